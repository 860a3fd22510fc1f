//! `Draft`: the changes of a transaction so far, in memory or, beyond its bound, in files.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::spill::{OwnChange, Spill};
use crate::error::{Error, Result};
use crate::key_list::KeyList;
use crate::memory;
use crate::options::Durability;
use crate::store::{Changes as _, HashedChange, Store, Writer};

/// The changes of a transaction, in order. A key without a value is a delete.
pub(super) enum Draft {
    Memory(KeyList),
    /// Shared with its scans.
    Files(Arc<Mutex<Spill>>),
}

impl Default for Draft {
    fn default() -> Self {
        Self::Memory(KeyList::default())
    }
}

/// A prefix of the changes of a draft, for a rollback.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) change_count: u64,
    /// The serial number of the last change of the prefix, to detect that it has been rolled back.
    serial: u64,
}

impl Draft {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Memory(list) => list.len() as u64,
            Self::Files(spill) => lock(spill).len(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the new value of a key.
    #[expect(
        clippy::option_option,
        reason = "whether the key was changed, and whether that has a value"
    )]
    pub(super) fn find(&self, key: &[u8], hash: u64) -> Result<Option<Option<Vec<u8>>>> {
        match self {
            Self::Memory(list) => {
                let Some(own) = list.find(key, hash) else { return Ok(None) };
                own.map(memory::copied).transpose().map(Some)
            }
            Self::Files(spill) => {
                let spill = lock(spill);
                spill.find(key, hash, spill.len())
            }
        }
    }

    /// Adds a change of a transaction on `store`. After an error the draft is unchanged.
    pub(super) fn add(&mut self, store: &Store, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let hash = store.hash_of(key);
        if let Self::Memory(list) = self {
            let bytes = list.bytes_with(key.len() + value.map_or(0, <[u8]>::len));
            let bytes_max = store.transaction_bytes;
            if bytes <= bytes_max {
                return list.add(key, value, hash);
            }
            if store.region.storage().is_volatile() {
                return Err(Error::TooLarge { what: "transaction", bytes, bytes_max });
            }
            let mut spill = Spill::beside(store)?;
            for (i, (hash, key, value)) in list.iter().enumerate() {
                spill.add_as(list.serial_of_last(i + 1), key, value, hash)?;
            }
            spill.skip_to(list.added_count());
            *self = Self::Files(Arc::new(Mutex::new(spill)));
        }
        let Self::Files(spill) = self else { unreachable!("it was just spilled") };
        lock(spill).add(key, value, hash)
    }

    /// Returns the mark of the changes so far. If these cannot be read any more, each later call fails.
    pub(super) fn mark(&self) -> Mark {
        let change_count = self.len();
        let serial = self.serial_of_last(change_count).unwrap_or_else(|_| {
            self.give_up();
            0
        });
        Mark { change_count, serial }
    }

    /// Forgets the changes since a mark, if those before it are the same as when it was made.
    pub(super) fn rollback_to(&mut self, mark: Mark) {
        let Mark { change_count, serial } = mark;
        if change_count > self.len() {
            return;
        }
        match self.serial_of_last(change_count) {
            Ok(found) if found != serial => {}
            Ok(_) => self.truncate(change_count),
            Err(_) => self.give_up(),
        }
    }

    /// Has each later call fail: what it holds is not known any more.
    fn give_up(&self) {
        if let Self::Files(spill) = self {
            lock(spill).give_up();
        }
    }

    fn serial_of_last(&self, len: u64) -> Result<u64> {
        match self {
            Self::Memory(list) => Ok(list.serial_of_last(len as usize)),
            Self::Files(spill) => lock(spill).serial_of_last(len),
        }
    }

    /// Forgets all but the first changes.
    pub(super) fn truncate(&mut self, len: u64) {
        match self {
            Self::Memory(list) => list.truncate(len as usize),
            Self::Files(spill) if len == 0 => {
                let added_count = lock(spill).added_count();
                *self = Self::Memory(KeyList::after(added_count));
            }
            Self::Files(spill) => lock(spill).truncate(len),
        }
    }

    /// Calls `visit` with each changed key once, and with whether it has a new value.
    pub(super) fn for_each_key(
        &self,
        mut visit: impl FnMut(&[u8], bool) -> Result<()>,
    ) -> Result<()> {
        match self {
            Self::Memory(list) => {
                last_changes(list)?.iter().try_for_each(|(key, value)| visit(key, value.is_some()))
            }
            Self::Files(spill) => lock(spill).for_each(&mut |change| {
                let (key, value) = change.parts();
                visit(key, value.is_some())
            }),
        }
    }

    /// Makes all changes or, on an error, none.
    pub(super) fn apply(
        &self,
        store: &Store,
        writer: &mut Writer,
        durability: Durability,
    ) -> Result<()> {
        match self {
            Self::Memory(list) => {
                let mut changes =
                    list.iter().map(|(hash, key, value)| HashedChange { hash, key, value });
                if list.len() == 1
                    && let Some(HashedChange { key, value, .. }) = changes.next()
                {
                    return store.make_one(writer, key, value, durability);
                }
                store.apply_hashed(writer, memory::collected(changes)?)
            }
            Self::Files(spill) => store.apply_large(writer, &*lock(spill)),
        }
    }
}

fn lock(spill: &Mutex<Spill>) -> MutexGuard<'_, Spill> {
    // After a panic it is as broken as its files are.
    spill.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns each changed key once, with its new value.
fn last_changes(list: &KeyList) -> Result<HashMap<&[u8], Option<&[u8]>>> {
    let mut changes = HashMap::new();
    let bytes = list.len() * size_of::<(&[u8], Option<&[u8]>)>();
    changes.try_reserve(list.len()).map_err(|_| memory::refused(bytes))?;
    changes.extend(list.iter().map(|(_, key, value)| (key, value)));
    Ok(changes)
}

/// The changes of a draft when a scan began.
pub(super) enum OwnChanges {
    Memory { changed: HashSet<Vec<u8>>, puts: std::vec::IntoIter<(Vec<u8>, Vec<u8>)> },
    Files { spill: Arc<Mutex<Spill>>, mark: Mark, next: u64 },
}

impl OwnChanges {
    pub(super) fn of(draft: &Draft) -> Result<Self> {
        let list = match draft {
            Draft::Memory(list) => list,
            Draft::Files(spill) => {
                return Ok(Self::Files { spill: spill.clone(), mark: draft.mark(), next: 0 });
            }
        };
        let changes = last_changes(list)?;
        let (mut changed, mut puts) = (HashSet::new(), memory::with_room(changes.len())?);
        let bytes = changes.len() * size_of::<Vec<u8>>();
        changed.try_reserve(changes.len()).map_err(|_| memory::refused(bytes))?;
        for (key, value) in changes {
            changed.insert(memory::copied(key)?);
            if let Some(value) = value {
                puts.push((memory::copied(key)?, memory::copied(value)?));
            }
        }
        Ok(Self::Memory { changed, puts: puts.into_iter() })
    }

    /// Returns whether a key is among them.
    pub(super) fn has(&self, key: &[u8], hash: u64) -> Result<bool> {
        match self {
            Self::Memory { changed, .. } => Ok(changed.contains(key)),
            Self::Files { spill, mark, .. } => {
                let spill = still(spill, *mark)?;
                Ok(spill.last_of(key, hash, mark.change_count)?.is_some())
            }
        }
    }

    /// Returns the next pair that was put.
    pub(super) fn next_put(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let (spill, mark, next) = match self {
            Self::Memory { puts, .. } => return Ok(puts.next()),
            Self::Files { spill, mark, next } => (spill, *mark, next),
        };
        while *next < mark.change_count {
            let change: Option<OwnChange> =
                still(spill, mark)?.last_change(*next, mark.change_count)?;
            *next += 1;
            if let Some((key, Some(value))) = change {
                return Ok(Some((key, value)));
            }
        }
        Ok(None)
    }
}

/// Returns the changes in files, if none of those before a mark was taken back.
fn still(spill: &Mutex<Spill>, mark: Mark) -> Result<MutexGuard<'_, Spill>> {
    let spill = lock(spill);
    let Mark { change_count, serial } = mark;
    if change_count <= spill.len() && spill.serial_of_last(change_count)? == serial {
        return Ok(spill);
    }
    let reason = "changes that it has to show were rolled back".into();
    Err(Error::Invalid { what: "scan of a transaction", reason })
}
