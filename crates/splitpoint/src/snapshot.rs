//! `Snapshot`: the store as it was at one moment.

use std::sync::Arc;

use crate::cursor::Scan;
use crate::error::Result;
use crate::store::{Hold, Store, Versions};
use crate::value::Value;

/// The store as it was at one moment: between two changes, so with all of a batch or a transaction or
/// nothing of it.
///
/// [`Db::snapshot`](crate::Db::snapshot) takes one. Whatever other threads put, delete or compact
/// meanwhile, it returns each key with the value of that moment. Any number of threads may use it. Clones
/// are of the same moment.
///
/// It is not durable: it ends when it is dropped, and needs nothing to be cleaned up after a crash.
///
/// # What it holds back
///
/// What is replaced or deleted while it is open stays in the store, so do not keep it for long.
/// [`Options::max_snapshot_pin`](crate::Options::max_snapshot_pin) bounds that space. The store gives up
/// snapshots that exceed the bound, the oldest first: their reads return
/// [`ErrorKind::SnapshotTooOld`](crate::ErrorKind::SnapshotTooOld). Values that such a snapshot has returned
/// stay valid. If a handle reads beside other processes and has no place in the reader table, its snapshots
/// are never given up; docs/durability.md says which handles have none.
///
/// # Cost
///
/// Taking a snapshot waits for the writer's lock, and copies nothing. Beside other processes it does not wait
/// (a second at most if a writer is stopped while it moves records), and reads the list of all segments. A
/// handle that takes turns and had the last turn remembers that list, unless a segment or a big value has begun
/// or become free since, or another of its threads changes the store meanwhile.
///
/// A read looks at one more word in memory, and at one record for each change of the key since the snapshot.
/// Each delete while the snapshot is open takes 50 to 100 bytes of memory, until it and every older scan,
/// snapshot or backup have ended.
///
/// # Examples
///
/// ```
/// # fn main() -> splitpoint::Result<()> {
/// let db = splitpoint::Db::in_memory()?;
/// db.put_many([("a", "1"), ("b", "2")])?;
/// let snapshot = db.snapshot()?;
/// db.put("a", "3")?;
/// db.delete("b")?;
/// assert_eq!(snapshot.get("a")?.expect("it was there"), "1");
/// assert!(snapshot.contains("b")?);
/// assert_eq!((snapshot.len(), db.len()), (2, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Snapshot<'db> {
    versions: Arc<Versions<'db>>,
}

impl<'db> Snapshot<'db> {
    /// Takes one of this moment.
    pub(crate) fn of(store: &'db Store) -> Result<Self> {
        Ok(Self { versions: Versions::now(store, Hold::Snapshot)? })
    }

    /// Returns the value that `key` had, or `None`.
    ///
    /// The value borrows from the handle, as that of [`Db::get`](crate::Db::get), and may outlive the
    /// snapshot.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::SnapshotTooOld`](crate::ErrorKind::SnapshotTooOld) if the snapshot was given up.
    /// - [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the lookup meets damage in the file.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value<'db>>> {
        self.versions.get(key.as_ref())
    }

    /// Replaces the contents of `buf` with the value that `key` had, and returns whether it had one. A
    /// miss leaves `buf` as it is.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn get_into(&self, key: impl AsRef<[u8]>, buf: &mut Vec<u8>) -> Result<bool> {
        let Some(value) = self.get(key)? else { return Ok(false) };
        buf.clear();
        buf.extend_from_slice(&value);
        Ok(true)
    }

    /// Returns whether `key` was there.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// Returns the values that `keys` had, in the same order.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let db = splitpoint::Db::in_memory()?;
    /// db.put("a", "1")?;
    /// let snapshot = db.snapshot()?;
    /// db.put("b", "2")?;
    /// let values = snapshot.get_many(["a", "b"])?;
    /// assert!(values[0].is_some() && values[1].is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_many(
        &self,
        keys: impl IntoIterator<Item: AsRef<[u8]>>,
    ) -> Result<Vec<Option<Value<'db>>>> {
        /// Keys whose cache misses overlap.
        const GROUP: usize = 16;
        let store = self.versions.store();
        store.refuse_reading_in_fork()?;
        let copies_values = self.versions.copies_values();
        let mut keys = keys.into_iter().fuse();
        let mut values = Vec::with_capacity(keys.size_hint().0);
        let mut pins = self.versions.pins()?;
        loop {
            let group: [_; GROUP] = std::array::from_fn(|_| keys.next());
            let hash_of = |key: &Option<_>| {
                let hash = key.as_ref().map(|key: &_| store.hash_of(AsRef::as_ref(key)))?;
                // Beside a writer of another process the buckets may not be mapped here.
                if store.reader.is_none() {
                    store.prefetch_bucket(hash);
                }
                Some(hash)
            };
            let hashes: [Option<u64>; GROUP] = std::array::from_fn(|i| hash_of(&group[i]));
            if store.reader.is_none() {
                hashes.iter().flatten().for_each(|&hash| store.prefetch_candidates(hash));
            }
            for (key, hash) in group.iter().zip(hashes) {
                let (Some(key), Some(hash)) = (key, hash) else { return Ok(values) };
                let found = self.versions.find_while_pinned(key.as_ref(), hash)?;
                values.push(found.map(|pair| {
                    if copies_values {
                        Value::owned(pair.value.to_vec())
                    } else {
                        Value::pinned(pair.value, pins.take())
                    }
                }));
            }
        }
    }

    /// Returns an iterator over every key that was there, with its value, in the order of the file.
    ///
    /// # Errors
    ///
    /// As [`Db::scan`](crate::Db::scan), and
    /// [`ErrorKind::SnapshotTooOld`](crate::ErrorKind::SnapshotTooOld) if the snapshot was given up. An
    /// item may be either error, too, and is then the last one.
    ///
    /// # Cost
    ///
    /// As [`Db::scan`](crate::Db::scan), and for each key that has changed since, one record for each
    /// change, up to 64.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let db = splitpoint::Db::in_memory()?;
    /// db.put_many([("a", "1"), ("b", "2")])?;
    /// let snapshot = db.snapshot()?;
    /// db.clear()?;
    /// assert_eq!(snapshot.scan()?.count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan(&self) -> Result<Scan<'db>> {
        Scan::of(self.versions.clone(), self.versions.places()?)
    }

    /// Returns `part_count` scans, for as many threads, that together return every key once. They have
    /// about the same size; if the store is small, some are empty. There is at least one.
    ///
    /// # Errors
    ///
    /// As [`scan`](Self::scan).
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let db = splitpoint::Db::in_memory()?;
    /// db.put_many((0..1000_u32).map(|i| (i.to_le_bytes(), "value")))?;
    /// let parts = db.snapshot()?.scan_parts(4)?;
    /// let count: usize = std::thread::scope(|scope| {
    ///     let threads = parts.into_iter().map(|part| scope.spawn(|| part.count()));
    ///     threads.collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).sum()
    /// });
    /// assert_eq!(count, 1000);
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan_parts(&self, part_count: usize) -> Result<Vec<Scan<'db>>> {
        Scan::parts(&self.versions, part_count)
    }

    /// Returns the number of keys that there were.
    pub fn len(&self) -> u64 {
        self.versions.record_count
    }

    /// Returns whether there were no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
