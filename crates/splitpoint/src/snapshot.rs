//! `Snapshot`: the store as it was at one moment.

use std::sync::Arc;

use crate::cursor::Scan;
use crate::error::Result;
use crate::memory;
use crate::store::{Hold, Store, Versions};
use crate::value::Value;

/// The store as it was at one moment. The moment lies between two commits, so a snapshot has all
/// changes of a batch or a transaction, or none.
///
/// [`Db::snapshot`](crate::Db::snapshot) takes one. It returns each key with the value of that
/// moment, regardless of concurrent puts, deletes and compaction. Any number of threads may use it.
/// A clone shows the same moment.
///
/// It is not durable: it ends when it is dropped, and leaves nothing to clean up after a crash.
///
/// # Space
///
/// Records that are replaced or deleted while a snapshot is open stay in the store, so do not keep
/// it for long. [`Options::max_snapshot_pin`](crate::Options::max_snapshot_pin) bounds their space.
/// The store gives up snapshots that exceed the bound, the oldest first: their reads return
/// [`ErrorKind::SnapshotTooOld`](crate::ErrorKind::SnapshotTooOld). Values that such a snapshot has
/// returned stay valid. The snapshots of a handle that reads beside other processes without a place
/// in the reader table are never given up; `docs/sharing.md` says which handles have no place.
///
/// # Cost
///
/// Taking a snapshot waits for the writer's mutex, and copies nothing. A read-only handle beside a
/// writer, and a handle that takes turns, wait for no lock, but read the list of all segments. (If
/// the writer is suspended while it moves records, they wait up to a second.) A handle that takes
/// turns and had the last turn has that list cached, unless a segment or a big value has since been
/// allocated or freed, or another of its threads is changing the store.
///
/// A read costs one more memory access than [`Db::get`](crate::Db::get), and reads one record for
/// each change of the key since the snapshot. Each delete while the snapshot is open takes 50 to
/// 100 bytes of memory, until this and every older scan, snapshot and backup have ended.
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
    /// Takes a snapshot of the present moment.
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

    /// Copies the value that `key` had into `buf`, replacing its contents, and returns whether the
    /// key existed. A miss leaves `buf` as it is.
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

    /// Returns whether `key` existed.
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
        /// Number of keys whose cache misses overlap.
        const GROUP: usize = 16;
        let store = self.versions.store();
        store.refuse_reading_in_fork()?;
        let copies_values = self.versions.copies_values();
        let mut keys = keys.into_iter().fuse();
        let mut values = memory::with_room(keys.size_hint().0)?;
        let mut pins = self.versions.pins()?;
        loop {
            let group: [_; GROUP] = std::array::from_fn(|_| keys.next());
            let hash_of = |key: &Option<_>| {
                let hash = key.as_ref().map(|key: &_| store.hash_of(AsRef::as_ref(key)))?;
                // Beside a writer in another process, the buckets may not be mapped here yet.
                if store.reader.is_none() {
                    store.prefetch_bucket(hash);
                }
                Some(hash)
            };
            let hashes: [Option<u64>; GROUP] = std::array::from_fn(|i| hash_of(&group[i]));
            if store.reader.is_none() {
                hashes.iter().flatten().for_each(|&hash| store.prefetch_candidates(hash));
            }
            memory::reserve(&mut values, GROUP)?;
            for (key, hash) in group.iter().zip(hashes) {
                let (Some(key), Some(hash)) = (key, hash) else { return Ok(values) };
                let found = self.versions.find_while_pinned(key.as_ref(), hash)?;
                let value = found.map(|pair| {
                    if copies_values {
                        Value::copied(pair.value)
                    } else {
                        Ok(Value::pinned(pair.value, pins.take()))
                    }
                });
                values.push(value.transpose()?);
            }
        }
    }

    /// Returns an iterator over every key that existed, with its value, in the order of the file.
    ///
    /// # Errors
    ///
    /// As [`Db::scan`](crate::Db::scan), and
    /// [`ErrorKind::SnapshotTooOld`](crate::ErrorKind::SnapshotTooOld) if the snapshot was given
    /// up. An item may be one of these errors, too; the scan then ends.
    ///
    /// # Cost
    ///
    /// As [`Db::scan`](crate::Db::scan). For each key that has changed since, it also reads one
    /// record for each change, up to 64.
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

    /// Splits a scan into `part_count` scans, for as many threads, that together return every key
    /// exactly once.
    ///
    /// The parts have about the same size; if the store is small, some are empty. A `part_count` of
    /// 0 counts as 1.
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

    /// Returns the number of keys at the moment of the snapshot.
    pub fn len(&self) -> u64 {
        self.versions.record_count
    }

    /// Returns whether there were no keys at the moment of the snapshot.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
