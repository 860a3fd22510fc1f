//! `Spill`: the changes of a transaction beyond its memory bound, in unnamed files.
//!
//! ```text
//! bytes     key value key value ...           one behind the other
//! entries   hash, place, sizes, earlier ...   48 bytes a change
//! newest    hash -> the last entry with it    a store of its own
//! ```
//!
//! Only the transaction sees these files. They need not be durable, because a change has no effect
//! before it is in the log of the store. Their space is freed when the transaction ends, or by the
//! system when the process does.

use crate::batch::Change;
use crate::error::{Error, Result};
use crate::format::u64_at;
use crate::memory;
use crate::options::{Durability, Options};
use crate::recovery::open_storage;
use crate::storage::failure::io_error;
use crate::storage::fork::Origin;
use crate::storage::unnamed_file::{Ahead, UnnamedBytes, UnnamedFile};
use crate::store::{Changes, Store, in_fork};
use crate::table::PutMode;

/// Changes in order, with lookup by key.
pub(super) struct Spill {
    bytes: UnnamedBytes,
    entries: UnnamedBytes,
    newest: Store,
    added_count: u64,
    /// How many entries have the hash of an earlier one.
    repeated_count: u64,
    /// The process that created the files: the child of a fork shares them, and must not write to
    /// them.
    origin: Origin,
    /// Whether an error has made the list of changes unreliable.
    is_broken: bool,
}

/// Size in bytes of an entry.
const ENTRY_BYTES: u64 = 48;
/// The value size of a delete.
const NO_VALUE: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u64,
    /// Counts from 1, in the order of insertion; never reused.
    serial: u64,
    /// Offset of the key in `bytes`; the value follows it.
    start: u64,
    key_bytes: u64,
    value_bytes: u64,
    /// The number, from 1 on, of the previous entry with the same hash; 0 for none.
    earlier: u64,
}

impl Entry {
    fn encode(self) -> [u8; ENTRY_BYTES as usize] {
        let Self { hash, serial, start, key_bytes, value_bytes, earlier } = self;
        let mut bytes = [0; ENTRY_BYTES as usize];
        let words = [hash, serial, start, key_bytes, value_bytes, earlier];
        for (at, word) in bytes.chunks_exact_mut(8).zip(words) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Self {
        let word = |i| u64_at(bytes, 8 * i);
        let [hash, serial, start, key_bytes, value_bytes, earlier] = std::array::from_fn(word);
        Self { hash, serial, start, key_bytes, value_bytes, earlier }
    }
}

impl Spill {
    /// Creates an empty one beside the file of `store`.
    pub(super) fn beside(store: &Store) -> Result<Self> {
        Self::try_beside(store).map_err(in_file)
    }

    fn try_beside(store: &Store) -> Result<Self> {
        let storage = store.region.storage();
        let file = || {
            let random = storage.random_u64();
            let random =
                random.map_err(|error| io_error("choose a name beside", storage.path(), error));
            UnnamedFile::create_beside(storage.path(), random?)
        };
        let options = Options { checkpoint_bytes_min: u64::MAX, ..Options::new() };
        let options = options.durability(Durability::Buffered).keep_dead_records();
        let newest = open_storage(Box::new(file()?.map()?), &options, true)?;
        let newest = Store::new(newest, &options);
        let (bytes, entries) = (UnnamedBytes::new(file()?), UnnamedBytes::new(file()?));
        Ok(Self {
            bytes,
            entries,
            newest,
            added_count: 0,
            repeated_count: 0,
            origin: Origin::here(),
            is_broken: false,
        })
    }

    pub(super) fn len(&self) -> u64 {
        self.entries.len() / ENTRY_BYTES
    }

    /// Returns the last serial number that was given.
    pub(super) fn added_count(&self) -> u64 {
        self.added_count
    }

    /// Gives no serial number up to this one any more.
    pub(super) fn skip_to(&mut self, added_count: u64) {
        self.added_count = self.added_count.max(added_count);
    }

    /// Adds a change. After an error it is as before.
    pub(super) fn add(&mut self, key: &[u8], value: Option<&[u8]>, hash: u64) -> Result<()> {
        self.add_as(self.added_count + 1, key, value, hash)
    }

    /// Adds a change that has a serial number already.
    pub(super) fn add_as(
        &mut self,
        serial: u64,
        key: &[u8],
        value: Option<&[u8]>,
        hash: u64,
    ) -> Result<()> {
        debug_assert!(serial > self.added_count, "no number is given twice");
        self.check()?;
        self.refuse_in_fork()?;
        let (start, len) = (self.bytes.len(), self.len());
        let added = self.try_add(serial, key, value, hash).map_err(in_file);
        if added.is_err() {
            self.bytes.truncate(start);
            self.entries.truncate(len * ENTRY_BYTES);
        }
        added
    }

    fn try_add(&mut self, serial: u64, key: &[u8], value: Option<&[u8]>, hash: u64) -> Result<()> {
        let start = self.bytes.append(key)?;
        let value_bytes = value.map_or(NO_VALUE, |value| value.len() as u64);
        if let Some(value) = value {
            self.bytes.append(value)?;
        }
        let key_bytes = key.len() as u64;
        let earlier = self.newest_of(hash)?;
        let entry = Entry { hash, serial, start, key_bytes, value_bytes, earlier };
        self.entries.append(&entry.encode())?;
        self.set_newest(hash, self.len())?;
        self.added_count = serial;
        self.repeated_count += u64::from(earlier != 0);
        Ok(())
    }

    /// Returns the value of the last of the first `len` changes of a key.
    #[expect(
        clippy::option_option,
        reason = "whether the key was changed, and whether that has a value"
    )]
    pub(super) fn find(&self, key: &[u8], hash: u64, len: u64) -> Result<Option<Option<Vec<u8>>>> {
        self.check()?;
        let Some(i) = self.last_of(key, hash, len)? else { return Ok(None) };
        self.value(&self.entry(i)?).map(Some)
    }

    /// Returns the last of the first `len` changes of a key.
    pub(super) fn last_of(&self, key: &[u8], hash: u64, len: u64) -> Result<Option<u64>> {
        let mut number = self.newest_of(hash)?;
        while let Some(i) = number.checked_sub(1) {
            let entry = self.entry(i)?;
            if i < len && self.key(&entry)? == key {
                return Ok(Some(i));
            }
            number = entry.earlier;
        }
        Ok(None)
    }

    /// Returns the `i`th key with its new value, if no later one of the first `len` changes is of the same.
    pub(super) fn last_change(&self, i: u64, len: u64) -> Result<Option<OwnChange>> {
        self.check()?;
        let entry = self.entry(i)?;
        let key = self.key(&entry)?;
        if !self.is_last(i, &entry, &key, len)? {
            return Ok(None);
        }
        Ok(Some((key, self.value(&entry)?)))
    }

    /// Returns whether the `i`th change is the last of its key among the first `len`.
    fn is_last(&self, i: u64, entry: &Entry, key: &[u8], len: u64) -> Result<bool> {
        if self.repeated_count == 0 {
            return Ok(i < len);
        }
        // Usually no other key has the hash, and then no entry need be read.
        let is_last_of_hash = i < len && self.newest_of(entry.hash)? == i + 1;
        Ok(is_last_of_hash || self.last_of(key, entry.hash, len)? == Some(i))
    }

    /// Returns the serial number of the last of the first `len` changes, 0 for none of them. No other
    /// sequence of changes since this one began has the same.
    pub(super) fn serial_of_last(&self, len: u64) -> Result<u64> {
        len.checked_sub(1).map_or(Ok(0), |last| Ok(self.entry(last)?.serial))
    }

    /// Forgets all but the first changes. If that fails, each later call does.
    pub(super) fn truncate(&mut self, len: u64) {
        self.is_broken |= self.try_truncate(len).is_err();
    }

    /// Has each later call fail.
    pub(super) fn give_up(&mut self) {
        self.is_broken = true;
    }

    fn try_truncate(&mut self, len: u64) -> Result<()> {
        debug_assert!(len <= self.len(), "what is forgotten was added");
        self.refuse_in_fork()?;
        let mut bytes = self.bytes.len();
        for i in (len..self.len()).rev() {
            let last = self.entry(i)?;
            self.set_newest(last.hash, last.earlier)?;
            self.repeated_count -= u64::from(last.earlier != 0);
            bytes = last.start;
        }
        self.entries.truncate(len * ENTRY_BYTES);
        self.bytes.truncate(bytes);
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let reason = "an error took it back in part: begin it again";
        let broken = || Error::Invalid { what: "transaction", reason: reason.into() };
        if self.is_broken { Err(broken()) } else { Ok(()) }
    }

    fn refuse_in_fork(&self) -> Result<()> {
        if self.origin.is_here() { Ok(()) } else { Err(in_fork()) }
    }

    fn entry(&self, i: u64) -> Result<Entry> {
        let mut bytes = [0; ENTRY_BYTES as usize];
        self.entries.read_at(&mut bytes, i * ENTRY_BYTES)?;
        Ok(Entry::decode(&bytes))
    }

    fn key(&self, entry: &Entry) -> Result<Vec<u8>> {
        let mut key = memory::filled(0, entry.key_bytes as usize)?;
        self.bytes.read_at(&mut key, entry.start)?;
        Ok(key)
    }

    fn value(&self, entry: &Entry) -> Result<Option<Vec<u8>>> {
        if entry.value_bytes == NO_VALUE {
            return Ok(None);
        }
        let mut value = memory::filled(0, entry.value_bytes as usize)?;
        self.bytes.read_at(&mut value, entry.start + entry.key_bytes)?;
        Ok(Some(value))
    }

    /// Returns the number of the last entry with a hash, 0 for none.
    fn newest_of(&self, hash: u64) -> Result<u64> {
        let found = self.newest.find(&hash.to_le_bytes())?;
        Ok(found.map_or(0, |number| u64_at(&number, 0)))
    }

    fn set_newest(&self, hash: u64, number: u64) -> Result<()> {
        let (key, value) = (hash.to_le_bytes(), number.to_le_bytes());
        let mut writer = self.newest.lock_for_change()?;
        let (mode, durability) = (PutMode::Replace, Durability::Buffered);
        self.newest.put_at_once(&mut writer, &key, &value, mode, durability).map(drop)
    }
}

/// Returns an error with what the file is in which the changes found no room: it has no name, and the error names
/// the directory alone.
fn in_file(error: Error) -> Error {
    let action = "write the changes of a large transaction to an unnamed file in";
    match error {
        Error::Io { path, source, .. } => Error::Io { action, path, source },
        other => other,
    }
}

/// A key with its new value, `None` if it is deleted.
pub(super) type OwnChange = (Vec<u8>, Option<Vec<u8>>);

impl Changes for Spill {
    fn for_each(&self, visit: &mut dyn FnMut(&Change<'_>) -> Result<()>) -> Result<()> {
        self.check()?;
        let (mut entries, mut bytes) = (Ahead::of(&self.entries), Ahead::of(&self.bytes));
        for i in 0..self.len() {
            let entry = Entry::decode(entries.read(i * ENTRY_BYTES, ENTRY_BYTES)?);
            let value_bytes = if entry.value_bytes == NO_VALUE { 0 } else { entry.value_bytes };
            let pair = bytes.read(entry.start, entry.key_bytes + value_bytes)?;
            let (key, value) = pair.split_at(entry.key_bytes as usize);
            if self.is_last(i, &entry, key, self.len())? {
                visit(&match entry.value_bytes {
                    NO_VALUE => Change::Delete { key },
                    _ => Change::Put { key, value },
                })?;
            }
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use crate::Db;

    /// Adds and takes back changes of few keys, of which several have one hash.
    #[test]
    fn the_last_changes_of_all_keys_are_found_after_any_number_was_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path().join("store")).unwrap();
        for key_count in [7, 5000] {
            let mut spill = Spill::beside(db.store()).unwrap();
            let mut model: Vec<OwnChange> = Vec::new();
            for i in 0..3000_u64 {
                let number = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
                if number % 50 == 0 {
                    let len = model.len() - (number / 50 % 80).min(model.len() as u64) as usize;
                    spill.truncate(len as u64);
                    model.truncate(len);
                }
                let key = (number % key_count).to_le_bytes().to_vec();
                let value = (number % 3 > 0).then(|| vec![i as u8; (i % 300) as usize]);
                spill.add(&key, value.as_deref(), number % key_count / 3).unwrap();
                model.push((key, value));
                if i % 100 != 99 {
                    continue;
                }
                let mut found = Vec::new();
                let note = &mut |change: &Change<'_>| {
                    let (key, value) = change.parts();
                    found.push((key.to_vec(), value.map(<[u8]>::to_vec)));
                    Ok(())
                };
                spill.for_each(note).unwrap();
                let is_last = |i: usize| model[i + 1..].iter().all(|later| later.0 != model[i].0);
                let last = (0..model.len()).filter(|&i| is_last(i)).map(|i| model[i].clone());
                assert!(found == last.collect::<Vec<_>>(), "after {i} changes of {key_count} keys");
            }
        }
    }
}
