//! What a handle reads and writes: a store, or an old file in place.

use splitpoint::{Db, Durability, PutMode, Table as _, TableExt as _};
use splitpoint_ffi::{Following, Walk};
use splitpoint_legacy::OldFile;

use crate::code::{Code, Failure, Outcome};

/// An open database.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one for each open database")]
pub(crate) enum Table {
    Native { db: Db, walk: Box<Walk> },
    Old(OldTable),
}

/// An old gdbm file, which is only read.
#[derive(Debug)]
pub(crate) struct OldTable {
    pub(crate) file: OldFile,
    /// The keys in the order of the file, once a walk has begun.
    keys: Option<Vec<Vec<u8>>>,
    /// The number of the key that a walk returned last.
    last: usize,
}

impl OldTable {
    pub(crate) fn new(file: OldFile) -> Self {
        Self { file, keys: None, last: 0 }
    }

    /// Returns the number of buckets, which is at least 1.
    pub(crate) fn bucket_count(&self) -> usize {
        let parameters = self.file.parameters();
        let found = parameters.iter().find(|parameter| parameter.name == "buckets");
        found.and_then(|parameter| parameter.value.parse().ok()).unwrap_or(1).max(1)
    }

    /// Returns the keys of the file.
    fn keys(&mut self) -> Outcome<&[Vec<u8>]> {
        if self.keys.is_none() {
            let entries = self.file.scan().map_err(|error| Failure::of_read(&error))?;
            let keys = entries.map(|entry| entry.map(|entry| entry.key.into_vec()));
            let keys = keys.collect::<splitpoint::Result<Vec<_>>>();
            self.keys = Some(keys.map_err(|error| Failure::of_read(&error))?);
        }
        Ok(self.keys.as_deref().unwrap_or_default())
    }

    /// Returns the walk over its keys, for a store that has them too.
    fn into_walk(self) -> Walk {
        match self.keys {
            Some(keys) => {
                let next = (self.last + 1).min(keys.len());
                Walk::resumed(keys, next)
            }
            None => Walk::default(),
        }
    }

    fn after(&mut self, key: &[u8]) -> Outcome<&[u8]> {
        let last = self.last;
        let keys = self.keys()?;
        let is_last = keys.get(last).is_some_and(|other| other == key);
        let at = if is_last { Some(last) } else { keys.iter().position(|other| other == key) };
        let next = at.map(|at| at + 1).filter(|&next| next < keys.len());
        let next = next.ok_or_else(|| Failure::of(Code::ITEM_NOT_FOUND))?;
        self.last = next;
        Ok(&self.keys()?[next])
    }
}

impl Table {
    pub(crate) fn native(db: Db) -> Self {
        Self::Native { db, walk: Box::default() }
    }

    /// Goes on with another handle of the same store, or with the store that was made of an old file.
    /// The walk does not notice. A handle of the parent stays open for ever in its child: closing any
    /// descriptor of the file would end the locks that the child has of it.
    pub(crate) fn moved_to(self, db: Db, is_inherited: bool) -> Self {
        let mut walk = match self {
            Self::Native { db, walk } => {
                if is_inherited {
                    std::mem::forget(db);
                }
                walk
            }
            Self::Old(old) => Box::new(old.into_walk()),
        };
        walk.move_on();
        Self::Native { db, walk }
    }

    /// Calls `take` with the value of a key.
    #[inline]
    pub(crate) fn with_value<T>(
        &mut self,
        key: &[u8],
        take: impl FnOnce(&[u8]) -> Outcome<T>,
    ) -> Outcome<T> {
        let found = match self {
            Self::Native { db, walk } => walk.get(db, key),
            Self::Old(old) => old.file.get(key),
        };
        match found {
            Ok(Some(value)) => take(&value),
            Ok(None) => Err(Failure::of(Code::ITEM_NOT_FOUND)),
            Err(error) => Err(Failure::of_read(&error)),
        }
    }

    pub(crate) fn contains(&mut self, key: &[u8]) -> Outcome<bool> {
        match self.with_value(key, |_| Ok(())) {
            Ok(()) => Ok(true),
            Err(failure) if failure.code == Code::ITEM_NOT_FOUND => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    pub(crate) fn count(&self) -> Outcome<u64> {
        match self {
            Self::Native { db, .. } => Ok(db.len()),
            Self::Old(old) => old.file.len().map_err(|error| Failure::of_read(&error)),
        }
    }

    /// Stores a pair, and returns whether it did: not over an old one that is to be kept.
    pub(crate) fn put(
        &mut self,
        key: &[u8],
        value: &[u8],
        mode: PutMode,
        durability: Durability,
    ) -> Outcome<bool> {
        let Self::Native { db, walk } = self else {
            return Err(Failure::of(Code::READER_CANT_STORE));
        };
        let stored = match mode {
            PutMode::New => db.put_new_with(key, value, durability),
            PutMode::Replace => db.put_with(key, value, durability).map(|()| true),
        };
        walk.note_stored(db, key);
        stored.map_err(|error| Failure::of_write(&error))
    }

    pub(crate) fn delete(&mut self, key: &[u8], durability: Durability) -> Outcome<bool> {
        let Self::Native { db, .. } = self else {
            return Err(Failure::of(Code::READER_CANT_DELETE));
        };
        db.delete_with(key, durability).map_err(|error| Failure::of_write(&error))
    }

    /// Returns the first key of a new walk.
    pub(crate) fn first(&mut self) -> Outcome<&[u8]> {
        match self {
            Self::Native { db, walk } => match walk.first(db) {
                Ok(Some(key)) => Ok(key),
                Ok(None) => Err(Failure::of(Code::ITEM_NOT_FOUND)),
                Err(error) => Err(Failure::of_read(&error)),
            },
            Self::Old(old) => {
                old.last = 0;
                let first = old.keys()?.first().map(Vec::as_slice);
                first.ok_or_else(|| Failure::of(Code::ITEM_NOT_FOUND))
            }
        }
    }

    /// Returns the key that follows another.
    pub(crate) fn after(&mut self, key: &[u8]) -> Outcome<&[u8]> {
        match self {
            Self::Native { db, walk } => match walk.after(db, key) {
                Ok(Following::Key(key)) => Ok(key),
                Ok(Following::End | Following::Unknown) => Err(Failure::of(Code::ITEM_NOT_FOUND)),
                Err(error) => Err(Failure::of_read(&error)),
            },
            Self::Old(old) => old.after(key),
        }
    }

    /// Calls `each` with every pair.
    pub(crate) fn for_each(
        &self,
        mut each: impl FnMut(&[u8], &[u8]) -> Outcome<()>,
    ) -> Outcome<()> {
        let entries = match self {
            Self::Native { db, .. } => splitpoint::Table::scan(db),
            Self::Old(old) => old.file.scan(),
        };
        for entry in entries.map_err(|error| Failure::of_read(&error))? {
            let entry = entry.map_err(|error| Failure::of_read(&error))?;
            each(&entry.key, &entry.value)?;
        }
        Ok(())
    }
}
