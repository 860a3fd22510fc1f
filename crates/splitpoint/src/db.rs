//! `Db`: a handle to a store, in a file or in memory.

#[cfg(test)]
#[cfg(not(any(loom, miri)))]
mod ahead_tests;
#[cfg(test)]
#[cfg(not(any(loom, miri)))]
mod compaction_tests;
mod draft;
mod iter;
#[cfg(test)]
#[cfg(not(loom))]
mod miri_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod pace_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod pin_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod shrink_tests;
#[cfg(test)]
#[cfg(not(any(loom, miri)))]
mod snapshot_tests;
#[cfg(test)]
#[cfg(not(any(loom, miri)))]
mod space_tests;
mod spill;
mod transaction;
#[cfg(test)]
#[cfg(not(any(loom, miri)))]
mod transaction_tests;
mod update;

pub use iter::{Iter, Keys, Values};
pub use transaction::{Savepoint, Transaction, TransactionScan};

use std::borrow::Borrow;
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::backup::{Backup, BackupReport};
use crate::batch::{AsPair, Change, copied};
use crate::check::{CheckProgress, CheckReport};
use crate::cursor::Scan;
use crate::error::{Error, Result, Unsupported};
use crate::memory;
use crate::options::{
    Access, Create, Durability, KEY_BYTES_MAX, Options, Sharing, VALUE_BYTES_MAX,
};
use crate::pins::Bunch;
use crate::publisher::Publisher;
use crate::snapshot::Snapshot;
use crate::stats::{Lookups, Recovery, Sample, Stats};
use crate::storage::shared_file::SharedFile;
use crate::store::{
    Begun, Changing, Hold, Maintenance, Opened, Put, Step, Store, Writer, run_locked,
};
use crate::syncer::Syncer;
use crate::table::{
    BatchAtomicity, Capabilities, Entries, PutMode, ScanGuarantee, Table, TableCheck,
};
use crate::value::Value;

/// Keys that [`Db::get_many`] and [`Db::put_many`] process as one chunk, so that their cache misses
/// overlap.
const CHUNK: usize = 32;

/// A handle to a store: keys and values in one file or in memory.
///
/// Any number of threads may use a handle at the same time. Reads take no lock; writes take one
/// mutex. A value borrows from the handle and is not copied.
///
/// The store starts background threads when it first needs them. One thread syncs; another touches
/// the pages that the writer will soon reach, so that the writer takes no page faults. With
/// [`Options::instrument`] a third publishes what lookups cost, and with [`Sharing::Shared`] a
/// fourth gives up the writer's place when other handles want it. Closing the last handle joins all
/// of them.
///
/// A clone is another handle to the same store, so give a clone to each thread that needs one.
/// Dropping or [closing](Self::close) the last handle closes the store.
///
/// # Forks
///
/// After a `fork`, the child may read through a read-only handle; if a writer has the file open,
/// the child takes a place of its own in the reader table. Through a handle that may write, every
/// call in the child returns [`ErrorKind::Poisoned`](crate::ErrorKind::Poisoned), except
/// [`len`](Self::len), and dropping the handle does nothing. The reason: the parent does not see
/// the child's pins, so it may overwrite records that the child is reading. The child must
/// therefore drop values and scans from before the fork, and call [`reopen`](Self::reopen) once the
/// parent has closed the store. A table in memory becomes a private copy of the child, which the
/// child may change.
///
/// # Examples
///
/// ```
/// # fn main() -> splitpoint::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("capitals.spt");
/// use splitpoint::Db;
///
/// let db = Db::open(&path)?;
/// db.put(b"France", b"Paris")?;
/// db.put(b"Peru", b"Lima")?;
/// assert_eq!(db.get(b"France")?.expect("it was stored"), b"Paris");
/// assert!(db.delete(b"Peru")?);
/// assert_eq!(db.len(), 1);
/// db.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Db {
    // Declared, and so dropped, before `handle`: when the last handle closes the file, no clone
    // still holds a reference to the store.
    store: Arc<Store>,
    handle: Arc<Handle>,
}

/// The state that the clones of a handle share; dropping the last clone drops it.
struct Handle {
    store: Arc<Store>,
    syncer: Syncer,
    publisher: Publisher,
    /// The options with which it was opened, for [`Db::reopen`].
    options: Options,
}

impl Handle {
    fn close(mut self) -> Result<()> {
        self.publisher.stop();
        self.syncer.stop();
        self.store.stop_keeper();
        self.store.close()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.publisher.stop();
        self.syncer.stop();
        self.store.stop_keeper();
        // A drop cannot return the error. The next open recovers.
        let _ = self.store.close();
    }
}

impl Db {
    /// Opens the store in the file at `path` with [`Options::new`], and creates it if it is
    /// missing.
    ///
    /// # The contract of a mapped file
    ///
    /// The store reads and writes its file through shared mappings, so values are borrowed and not
    /// copied. In return, while any handle has the file open, the program must ensure that:
    ///
    /// - **No other program writes to the file.** Splitpoint locks it (`flock`), but the lock is
    ///   advisory: an editor or `cp` ignores it. A write by another program can change a value
    ///   while it is borrowed, which Rust code assumes never happens.
    /// - **No program truncates it.** An access to a page beyond the new end raises `SIGBUS`, which
    ///   ends the process unless it handles the signal. To replace the file, rename another over
    ///   it.
    /// - **The device stays readable.** As with every mapping, a read error raises `SIGBUS` too,
    ///   and so does any access after the file system has shut itself down because of an error.
    ///   Changes with [`Durability::Sync`] return most write errors as errors, because their
    ///   records go through `write`.
    /// - **A file of unknown origin is opened with [`Options::rebuild_index`].** Otherwise
    ///   Splitpoint trusts the index in the file. A malicious index can make a lookup return any
    ///   bytes of the file, but never memory outside of it.
    ///
    /// # Errors
    ///
    /// As [`Options::open`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("words.spt");
    /// let db = splitpoint::Db::open(&path)?;
    /// db.put("key", "value")?;
    /// db.close()?;
    ///
    /// let db = splitpoint::Db::open(&path)?;
    /// assert_eq!(db.get("key")?.expect("it was stored"), "value");
    /// # Ok(())
    /// # }
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Options::new().open(path)
    }

    /// Creates an empty table in memory with [`Options::new`].
    ///
    /// # Errors
    ///
    /// As [`Options::in_memory`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// let table = splitpoint::Db::in_memory()?;
    /// table.put(b"key", b"value")?;
    /// assert!(table.contains(b"key")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn in_memory() -> Result<Self> {
        Options::new().in_memory()
    }

    pub(crate) fn from_opened(opened: Opened, options: &Options) -> Self {
        let store = Arc::new(Store::new(opened, options));
        store.link_keeper();
        let options = options.clone();
        let (syncer, publisher) = (Syncer::default(), Publisher::default());
        publisher.begin(&store);
        let handle = Arc::new(Handle { store: store.clone(), syncer, publisher, options });
        Self { store, handle }
    }

    /// Opens the file of this handle again with the same options, except that the file must exist.
    ///
    /// The child of a fork needs a handle of its own to write. The file is opened by its path: if
    /// another file has been renamed over it, this opens the new one.
    ///
    /// # Errors
    ///
    /// As [`Options::open`]. That includes [`ErrorKind::Locked`](crate::ErrorKind::Locked) if the
    /// options allow one writer only and this handle, which is still open, is that writer.
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for a table in memory.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("a.spt");
    /// # splitpoint::Db::open(&path)?.put("key", "value")?;
    /// let reader = splitpoint::Options::new().read_only().open(&path)?;
    /// let another = reader.reopen()?;
    /// drop(reader);
    /// assert!(another.contains("key")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn reopen(&self) -> Result<Self> {
        let storage = self.store.region.storage();
        if storage.is_volatile() {
            return Err(Error::Unsupported {
                path: storage.path().to_path_buf(),
                feature: Unsupported::Other,
                reason: "a table in memory has no file to open again".to_string(),
            });
        }
        self.handle.options.clone().create(Create::Never).open(storage.path())
    }

    /// Returns the store, for cursors and for tests of internals.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the value of `key`, or `None`.
    ///
    /// The value is not copied: it borrows from the handle, and through it from the mapped file. It
    /// was current at some moment during the call, and later changes of the key do not change it.
    /// While it is borrowed, the program must keep the contract of [`Db::open`], and the store
    /// cannot reuse the space of the record. To be independent of the file, or to keep a value for
    /// long, copy it with [`Value::into_vec`] or [`get_into`](Self::get_into).
    ///
    /// This does not verify the checksum of the record, which would read all of a large value.
    /// [`check`](Self::check) verifies every record.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the lookup meets damage in the file.
    ///
    /// # Cost
    ///
    /// A hit touches two cache lines, the bucket and the record; a miss touches one. Either touches
    /// more only for an overflow line, or for another key with an equal tag. As the table grows,
    /// more of the tag's 24 bits are the same for all keys of a bucket: with `2^l` buckets, `l` at
    /// least 8, the slot of another key matches with probability `2^(l - 32)`. That is 1 in 2,048
    /// at ten million keys and 1 in 256 at eighty million.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let db = splitpoint::Db::in_memory()?;
    /// db.put(b"key", b"value")?;
    /// assert_eq!(db.get(b"key")?.as_deref(), Some(&b"value"[..]));
    /// assert_eq!(db.get(b"other")?, None);
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value<'_>>> {
        self.store.find(key.as_ref())
    }

    /// Copies the value of `key` into `buf`, replacing its contents, and returns whether the key
    /// exists.
    ///
    /// A miss leaves `buf` as it is.
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
    /// db.put_many([("a", "1"), ("b", "2")])?;
    /// let mut buf = Vec::new(); // One allocation for all lookups.
    /// let mut sum = 0;
    /// for key in ["a", "b", "c"] {
    ///     if db.get_into(key, &mut buf)? {
    ///         sum += buf[0] - b'0';
    ///     }
    /// }
    /// assert_eq!(sum, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_into(&self, key: impl AsRef<[u8]>, buf: &mut Vec<u8>) -> Result<bool> {
        let Some(value) = self.store.find(key.as_ref())? else { return Ok(false) };
        buf.clear();
        buf.extend_from_slice(&value);
        Ok(true)
    }

    /// Returns whether `key` exists.
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
    /// db.put("key", "")?;
    /// assert!(db.contains("key")?);
    /// assert!(!db.contains("other")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.store.find(key.as_ref())?.is_some())
    }

    /// Looks up many keys together, and returns their values in the order of `keys`.
    ///
    /// Groups of 16 keys go through three passes: prefetch the buckets; match the tags and prefetch
    /// the records; compare the keys. The cache misses of a group overlap, so on a table larger
    /// than the cache this is several times faster than one [`get`](Self::get) after the other. The
    /// values need not be of the same moment; [`Snapshot::get_many`] returns values that are.
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
    /// let values = db.get_many(["a", "b"])?;
    /// assert_eq!(values[0].as_ref().expect("it was stored"), "1");
    /// assert_eq!(values[1], None);
    /// let values = db.get_many((0..100_u64).map(u64::to_le_bytes))?;
    /// assert_eq!(values.len(), 100);
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_many(
        &self,
        keys: impl IntoIterator<Item: AsRef<[u8]>>,
    ) -> Result<Vec<Option<Value<'_>>>> {
        let mut keys = keys.into_iter().fuse();
        let mut values = memory::with_room(keys.size_hint().0)?;
        let mut pins = self.store.pins()?;
        loop {
            let chunk: [_; CHUNK] = std::array::from_fn(|_| keys.next());
            let mut slices = [&[][..]; CHUNK];
            let mut count = 0;
            for (slice, key) in slices.iter_mut().zip(chunk.iter().flatten()) {
                *slice = key.as_ref();
                count += 1;
            }
            self.get_chunk(&slices[..count], &mut pins, &mut values)?;
            if count < CHUNK {
                return Ok(values);
            }
        }
    }

    fn get_chunk<'db>(
        &'db self,
        keys: &[&[u8]],
        pins: &mut Bunch<'db>,
        values: &mut Vec<Option<Value<'db>>>,
    ) -> Result<()> {
        memory::reserve(values, keys.len())?;
        // Check this before the index is read: in a forked child it may not be mapped, and another
        // process may be changing it.
        self.store.refuse_reading_in_fork()?;
        if let Some(reader) = &self.store.reader {
            for key in keys {
                let found = self.store.find_while_pinned(key, self.store.hash_of(key))?;
                let value = found.map(|pair| {
                    if reader.is_per_call() {
                        Value::copied(pair.value)
                    } else {
                        Ok(Value::pinned(pair.value, pins.take()))
                    }
                });
                values.push(value.transpose()?);
            }
            return Ok(());
        }
        self.store.find_many_while_pinned(keys, |found| {
            values.push(found.map(|pair| Value::pinned(pair.value, pins.take())));
        })
    }

    /// Stores `value` under `key`, replacing any earlier value.
    ///
    /// Keys and values are 0 to 4 GiB - 1 bytes long. Both are copied. The new value is visible to
    /// every thread when this returns.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::TooLarge`](crate::ErrorKind::TooLarge) if the key or the value is over its
    ///   limit.
    /// - [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly) on a handle opened for reading only.
    /// - [`ErrorKind::Io`](crate::ErrorKind::Io) if the file cannot grow; the store is unchanged
    ///   and the handle usable.
    /// - [`ErrorKind::Full`](crate::ErrorKind::Full) if the format or the address space of the
    ///   process is exhausted; the store is unchanged and the handle usable.
    /// - [`ErrorKind::Poisoned`](crate::ErrorKind::Poisoned) after a failed sync.
    ///
    /// # Durability
    ///
    /// As set by [`Options::durability`].
    ///
    /// # Cost
    ///
    /// Appends one record to the log. Reads one bucket and, for each tag that matches, one record.
    /// Splits at most two buckets, and may compact a little: see [`Options::live_share`].
    ///
    /// # Source
    ///
    /// Splits on overflow and on the fill factor: Seltzer and Yigit 1991. Unlike in their package,
    /// values live in a log, so a split moves slots and never values.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let db = splitpoint::Db::in_memory()?;
    /// db.put("France", "Paris")?;
    /// db.put(604_u64.to_be_bytes(), vec![0, 1, 2])?;
    /// db.put("France", "Lyon")?; // Replaces the value.
    /// assert_eq!(db.get("France")?.expect("it was stored"), "Lyon");
    /// assert_eq!(db.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, self.store.durability)
    }

    /// Stores `value` under `key` like [`put`](Self::put), with `durability` for this change.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = splitpoint::Db::open(dir.path().join("a.spt"))?;
    /// use splitpoint::Durability;
    ///
    /// db.put_with(b"balance", b"100", Durability::Sync)?; // On the device when this returns.
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<()> {
        self.put_mode(key.as_ref(), value.as_ref(), PutMode::Replace, durability).map(drop)
    }

    /// Stores `value` under `key` if the key is missing, and returns whether it stored the value.
    ///
    /// The test and the change are one atomic step: of several threads that store the same missing
    /// key, one gets `true`.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let db = splitpoint::Db::in_memory()?;
    /// assert!(db.put_new(b"key", b"first")?);
    /// assert!(!db.put_new(b"key", b"second")?);
    /// assert_eq!(db.get(b"key")?.as_deref(), Some(&b"first"[..]));
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn put_new(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        self.put_new_with(key, value, self.store.durability)
    }

    /// Stores `value` like [`put_new`](Self::put_new), with `durability` for this change.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = splitpoint::Db::open(dir.path().join("a.spt"))?;
    /// use splitpoint::Durability;
    ///
    /// // Claims an order number once, also across a power loss.
    /// assert!(db.put_new_with(b"order 17", b"alice", Durability::Sync)?);
    /// assert!(!db.put_new_with(b"order 17", b"bob", Durability::Sync)?);
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn put_new_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<bool> {
        self.put_mode(key.as_ref(), value.as_ref(), PutMode::New, durability)
    }

    fn put_mode(
        &self,
        key: &[u8],
        value: &[u8],
        mode: PutMode,
        durability: Durability,
    ) -> Result<bool> {
        let put = self.store.prepare_put(key, value, mode, durability)?;
        self.store.with_lock_for_change(|mut writer| {
            match self.store.put_locked(&mut writer, &put) {
                Ok(is_stored) => self.finish(writer, durability).map(|()| is_stored),
                Err(error) => {
                    drop(writer);
                    self.put_again(&put, durability, error)
                }
            }
        })
    }

    /// Retries a put that has failed for lack of space, after making room. Any other error is
    /// returned.
    #[cold]
    #[inline(never)]
    fn put_again(&self, put: &Put<'_>, durability: Durability, error: Error) -> Result<bool> {
        self.store.regain_after(error, put.record_bytes())?;
        let mut writer = self.store.lock_for_change()?;
        let is_stored = self.store.put_locked(&mut writer, put)?;
        self.finish(writer, durability)?;
        Ok(is_stored)
    }

    /// Stores many records in order, and waits for durability once, at the end.
    ///
    /// The result is that of one [`put`](Self::put) for each item, but the cache misses of 32 items
    /// overlap. The call is not atomic: see [`apply`](Self::apply).
    ///
    /// The items are tuples of a key and a value, or references to such tuples: see [`AsPair`]. No
    /// lock is held while the iterator produces items, so it may use the store.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put). The records before the one that failed are stored.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let db = splitpoint::Db::in_memory()?;
    /// db.put_many([("a", "1"), ("b", "2")])?;
    /// assert_eq!(db.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_many(&self, pairs: impl IntoIterator<Item: AsPair>) -> Result<()> {
        self.put_many_with(pairs, self.store.durability)
    }

    /// Stores many records like [`put_many`](Self::put_many), with `durability` for all of them.
    ///
    /// # Errors
    ///
    /// As [`put_many`](Self::put_many).
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = splitpoint::Db::open(dir.path().join("a.spt"))?;
    /// use splitpoint::Durability;
    ///
    /// let zeros = (0..100_u8).map(|key| ([key], [0; 8]));
    /// db.put_many_with(zeros, Durability::Sync)?; // One flush for all of them.
    /// assert_eq!(db.len(), 100);
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_many_with(
        &self,
        pairs: impl IntoIterator<Item: AsPair>,
        durability: Durability,
    ) -> Result<()> {
        let mut pairs = pairs.into_iter().fuse();
        loop {
            let chunk: [_; CHUNK] = std::array::from_fn(|_| pairs.next());
            let mut slices = [(&[][..], &[][..]); CHUNK];
            let mut count = 0;
            for (slice, pair) in slices.iter_mut().zip(chunk.iter().flatten()) {
                *slice = pair.as_pair();
                count += 1;
            }
            self.put_chunk(&slices[..count], durability)?;
            if count < CHUNK {
                break;
            }
        }
        if durability.is_synced_at_end() { self.sync() } else { Ok(()) }
    }

    /// Stores a chunk of records. With `Sync` it waits for the device only after an error;
    /// otherwise the caller waits once for all chunks.
    fn put_chunk(&self, pairs: &[(&[u8], &[u8])], durability: Durability) -> Result<()> {
        if pairs.is_empty() {
            return Ok(());
        }
        // A read-only handle may not have mapped the index yet, so refuse before anything looks
        // there.
        if self.store.access == Access::ReadOnly {
            return Err(Error::ReadOnly);
        }
        self.store.refuse_reading_in_fork()?;
        let mut begun = [Begun::default(); CHUNK];
        let mut begun_count = 0;
        // If a record is over its limit, those before it are still stored.
        let prepared = pairs.iter().zip(&mut begun).try_for_each(|(&(key, value), begun)| {
            *begun = self.store.begin_put(key, value)?;
            begun_count += 1;
            Ok(())
        });
        let begun = &begun[..begun_count];
        // Where another process may change the index, it may be read only within a turn.
        if self.store.reader.is_none() {
            for begun in begun {
                self.store.prefetch_candidates_of(begun);
            }
        }
        let puts_from = |first: usize| {
            let rest = pairs.iter().zip(begun).skip(first);
            rest.map(|(&pair, begun)| begun.put(pair, PutMode::Replace, durability))
        };
        let mut writer = self.store.lock_for_change()?;
        let (mut stored_count, mut failed) = (0, None);
        let stored = loop {
            let (run_count, stored) = self.store.put_run(&mut writer, puts_from(stored_count));
            stored_count += run_count;
            let Some(put) = puts_from(stored_count).next() else { break Ok(()) };
            let Err(error) = stored else { continue };
            // Make room at most once for each record, so that a full disk ends the loop.
            if failed == Some(stored_count) {
                break Err(error);
            }
            failed = Some(stored_count);
            drop(writer);
            let made_room = self.store.regain_after(error, put.record_bytes());
            writer = self.store.lock_for_change()?;
            if let Err(error) = made_room {
                break Err(error);
            }
        };
        let is_last = prepared.is_err() || stored.is_err();
        let level = if is_last { durability } else { durability.deferred() };
        self.finish(writer, level)?;
        stored.and(prepared)
    }

    /// Deletes `key`, and returns whether it existed.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put), except that deletes still work when the disk is full: on a file
    /// system with less than 64 MiB free, a store with at least 1 MiB of records keeps a reserve
    /// for them. `docs/durability.md` has the rule and its limits.
    ///
    /// # Cost
    ///
    /// As [`put`](Self::put), but instead of splitting it merges at most one bucket into another.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let db = splitpoint::Db::in_memory()?;
    /// db.put("Peru", "Lima")?;
    /// assert!(db.delete("Peru")?);
    /// assert!(!db.delete("Peru")?); // Not an error.
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.delete_with(key, self.store.durability)
    }

    /// Deletes `key` like [`delete`](Self::delete), with `durability` for this change.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = splitpoint::Db::open(dir.path().join("a.spt"))?;
    /// # db.put("session 17", "alice")?;
    /// use splitpoint::Durability;
    ///
    /// // A power loss does not bring the session back.
    /// assert!(db.delete_with("session 17", Durability::Sync)?);
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn delete_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<bool> {
        self.remove(key.as_ref(), durability)
    }

    fn remove(&self, key: &[u8], durability: Durability) -> Result<bool> {
        let hash = self.store.hash_of(key);
        self.store.prefetch_bucket(hash);
        let mut writer = self.store.lock_for_change()?;
        let is_deleted = self.store.delete_locked(&mut writer, key, hash, durability)?;
        self.finish(writer, durability)?;
        Ok(is_deleted)
    }

    /// Applies all changes atomically, also across a crash.
    ///
    /// `changes` is a reference to a [`Batch`](crate::Batch), or [`Change`]s that borrow their keys
    /// and values. The last change of a key wins; deleting a missing key is a no-op. A
    /// [`snapshot`](Self::snapshot) or a [`transaction`](Self::transaction) sees all of the changes
    /// or none; a [`get`](Self::get) of another thread may see one change before another. A batch
    /// is a transaction that reads nothing.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put). After an error no change of the batch takes effect. On a full disk, a
    /// batch that only deletes may use the reserve for [deletes](Self::delete) if it fits there:
    /// about 8,000 deletes with segments of 64 KiB. A batch with a put may not.
    ///
    /// # Durability
    ///
    /// As set by [`Options::durability`]. With [`Durability::Sync`], the batch waits for the device
    /// once.
    ///
    /// # Cost
    ///
    /// The cost of each change, plus 24 bytes of log if there is more than one.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let db = splitpoint::Db::in_memory()?;
    /// # db.put("from", "7")?;
    /// use splitpoint::{Batch, Change};
    ///
    /// db.apply(&Batch::new().delete("from").put("to", "7"))?;
    /// assert_eq!(db.get("to")?.expect("it was stored"), "7");
    /// assert!(!db.contains("from")?);
    ///
    /// db.apply(&[Change::Delete { key: b"to" }, Change::Put { key: b"from", value: b"7" }])?;
    /// assert!(!db.contains("to")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn apply<'a, C>(&self, changes: C) -> Result<()>
    where
        C: IntoIterator<Item: Borrow<Change<'a>>>,
    {
        self.apply_with(changes, self.store.durability)
    }

    /// Applies all changes like [`apply`](Self::apply), with `durability` for all of them.
    ///
    /// # Errors
    ///
    /// As [`apply`](Self::apply).
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = splitpoint::Db::open(dir.path().join("a.spt"))?;
    /// use splitpoint::{Batch, Durability};
    ///
    /// let transfer = Batch::new().put("alice", "70").put("bob", "30");
    /// db.apply_with(&transfer, Durability::Sync)?;
    /// assert_eq!(db.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn apply_with<'a, C>(&self, changes: C, durability: Durability) -> Result<()>
    where
        C: IntoIterator<Item: Borrow<Change<'a>>>,
    {
        self.apply_slice(&copied(changes)?, durability)
    }

    fn apply_slice(&self, changes: &[Change<'_>], durability: Durability) -> Result<()> {
        let mut writer = self.store.lock_for_change()?;
        if let Err(error) = self.store.apply_locked(&mut writer, changes, durability) {
            drop(writer);
            let value_bytes = |change: &Change<'_>| change.parts().1.map_or(0, <[u8]>::len);
            let largest = changes.iter().map(value_bytes).max().unwrap_or(0);
            self.store.regain_after(error, largest as u64)?;
            writer = self.store.lock_for_change()?;
            self.store.apply_locked(&mut writer, changes, durability)?;
        }
        self.finish_apply(writer, durability)
    }

    /// Waits as the durability of a batch requires, then does the compaction that the batch owes.
    fn finish_apply(&self, writer: Changing<'_>, durability: Durability) -> Result<()> {
        let owed_bytes = writer.owed_bytes();
        self.finish(writer, durability)?;
        if owed_bytes > 0 {
            // The batch is committed, so a failure of the compaction is not an error of this call.
            let settled = self.store.settle(owed_bytes);
            if settled.is_ok_and(|needs_thread| needs_thread)
                && let Ok(writer) = self.store.lock_for_change()
            {
                self.advance_checkpoint(writer);
            }
        }
        Ok(())
    }

    /// Waits as the durability of a change requires. The change is already visible.
    #[inline(always)]
    fn finish(&self, mut writer: Changing<'_>, durability: Durability) -> Result<()> {
        let lsn = writer.log.position().lsn;
        let step =
            if durability == Durability::Async { self.pace(&mut writer) } else { Step::GoOn };
        self.advance_checkpoint(writer);
        match (durability, step) {
            (Durability::Sync, _) => self.store.wait_durable(lsn, true),
            (_, Step::Wait(lsn)) => {
                // The change is committed, so this returns no error. The store keeps it for the
                // next change.
                let _ = self.store.wait_durable(lsn, false);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Schedules the sync that makes an `Async` change durable within its bound, and returns what
    /// the caller must do to keep the bound.
    #[inline(always)]
    fn pace(&self, writer: &mut Writer) -> Step {
        if writer.pace.is_unasked() {
            if !self.store.region.storage().may_sync_in_background() {
                return Step::GoOn;
            }
            let has_thread = self.handle.syncer.schedule(&self.store, writer.pace.delay());
            writer.pace.set_asked(has_thread);
        }
        let step = self.store.step(writer);
        if step == Step::Hurry {
            self.handle.syncer.schedule(&self.store, Duration::ZERO);
        }
        step
    }

    /// Releases the lock, and advances a pending checkpoint by a step: on the background thread if
    /// the storage allows one, otherwise here.
    #[inline(always)]
    fn advance_checkpoint(&self, writer: Changing<'_>) {
        if writer.checkpoints.needs_thread() {
            self.ask_for_checkpoint(writer);
        }
    }

    #[cold]
    fn ask_for_checkpoint(&self, mut writer: Changing<'_>) {
        let may_have_thread = self.store.region.storage().may_sync_in_background();
        if std::mem::take(&mut writer.checkpoints.is_excess) {
            if !may_have_thread || !self.handle.syncer.cool_excess(&self.store) {
                drop(writer);
                // Ignore the error: pages that stay in memory cost space, not correctness.
                let _ = self.store.cool_excess(|| true);
                return;
            }
            if !writer.checkpoints.needs_thread() {
                return;
            }
        }
        if writer.checkpoints.is_unsynced() {
            writer.checkpoints.set_asked(true);
            let lsn = writer.log.position().lsn;
            drop(writer);
            if !may_have_thread || !self.handle.syncer.schedule(&self.store, Duration::ZERO) {
                // The store keeps the error for the next change and the next sync.
                let _ = self.store.wait_durable(lsn, false);
            }
            return;
        }
        // Ask only once: the thread may be busy with a sync, and waking it costs a system call.
        if may_have_thread && self.handle.syncer.make_checkpoint(&self.store) {
            writer.checkpoints.set_asked(true);
        } else if writer.checkpoints.is_written() {
            drop(writer);
            // The store keeps the error for the next change and the next sync.
            let _ = self.store.finish_checkpoint();
        } else if writer.checkpoints.is_ending() {
            drop(writer);
            // Each change does one step. The store keeps the error, as above.
            let _ = self.store.sync_ending();
        } else {
            self.store.walk_without_thread(&mut writer);
        }
    }

    /// Returns a [`Snapshot`]: the store as it is now, unaffected by later changes.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Poisoned`](crate::ErrorKind::Poisoned) if a thread panicked while it changed the
    ///   store.
    /// - [`ErrorKind::Locked`](crate::ErrorKind::Locked) as [`scan`](Self::scan).
    ///
    /// # Cost
    ///
    /// Waits for the writer's mutex, and copies nothing. A read-only handle beside a writer, and a
    /// handle that takes turns, wait for no lock, but read the list of all segments. (If the writer
    /// is suspended while it moves records, they wait up to a second.) The handle that had the last
    /// turn usually has that list cached: [`Snapshot`] says when.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let db = splitpoint::Db::in_memory()?;
    /// db.put("key", "old")?;
    /// let snapshot = db.snapshot()?;
    /// db.put("key", "new")?;
    /// assert_eq!(snapshot.get("key")?.expect("it was there"), "old");
    /// # Ok(())
    /// # }
    /// ```
    pub fn snapshot(&self) -> Result<Snapshot<'_>> {
        Snapshot::of(&self.store)
    }

    /// Returns an iterator over every key with its value, in the order of the file.
    ///
    /// The scan returns every key that exists when it begins exactly once, with its value of that
    /// moment, regardless of concurrent changes: it is the scan of a [`snapshot`](Self::snapshot).
    /// A program that deletes each key that the scan returns deletes everything.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the file is damaged.
    /// - [`ErrorKind::SnapshotTooOld`](crate::ErrorKind::SnapshotTooOld) if the scan has kept more
    ///   space from being reused than [`Options::max_snapshot_pin`] allows.
    /// - [`ErrorKind::Locked`](crate::ErrorKind::Locked) if another process starts new segments so
    ///   fast that the list of segments cannot be read consistently; also, on a handle that may not
    ///   write to the file, if another process moves records during the scan while no reader has a
    ///   place in the reader table.
    ///
    /// An item may be one of these errors, too; the scan then ends.
    ///
    /// # Cost
    ///
    /// Reads the log once, sequentially, including dead records, and one bucket for each record of
    /// a segment that may contain dead records.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let db = splitpoint::Db::in_memory()?;
    /// db.put(b"a", b"1")?;
    /// db.put(b"b", b"2")?;
    /// for entry in db.scan()? {
    ///     db.delete(&entry?.key)?;
    /// }
    /// assert!(db.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan(&self) -> Result<Scan<'_>> {
        self.scan_with(Hold::Scan)
    }

    fn scan_with(&self, hold: Hold) -> Result<Scan<'_>> {
        // Hold the lock until the scan has recorded the list of segments: younger ones are not part
        // of it.
        let mut writer = self.store.lock_to_look()?;
        Scan::new(&self.store, &mut writer, hold)
    }

    /// Returns a number that stays the same as long as only this handle changes the store, or
    /// `None` if another handle may have changed the store since this handle's last change.
    ///
    /// It validates what a program has cached: as long as the number stays the same, the store has
    /// changed only by the program's own changes through this handle. A handle that is the only
    /// writer always returns `Some(0)`; a handle that reads beside a writer always returns `None`.
    ///
    /// # Cost
    ///
    /// O(1), without a system call.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("a.spt");
    /// use splitpoint::{Options, Sharing};
    ///
    /// let open = || Options::new().sharing(Sharing::Shared).open(&path);
    /// let (one, other) = (open()?, open()?);
    /// one.put("a", "1")?;
    /// let seen = one.turns_of_others();
    /// one.put("b", "2")?;
    /// assert!(seen.is_some() && one.turns_of_others() == seen);
    /// other.put("c", "3")?;
    /// assert_eq!(one.turns_of_others(), None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn turns_of_others(&self) -> Option<u64> {
        self.store.turns_of_others()
    }

    /// Returns whether a parent process opened this handle and this process is its fork. The parent
    /// may still be using the handle: see [Forks](Self#forks).
    ///
    /// On Linux 4.14 or later this makes no system call.
    #[inline]
    pub fn is_of_parent(&self) -> bool {
        self.store.is_of_parent()
    }

    /// Panics while holding the writer's lock, as a bug in the engine might: for tests of the
    /// bindings.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn panic_in_change(&self) -> Result<()> {
        let _writer = self.store.lock_for_change()?;
        panic!("a test asked for a panic in a change");
    }

    /// Returns the number of keys.
    pub fn len(&self) -> u64 {
        self.store.region.live().record_count()
    }

    /// Returns whether the store has no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes every change before this call durable, whatever its [`Durability`]; a no-op on a
    /// read-only handle.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) with the operating system's error, once. From then
    /// on [`ErrorKind::Poisoned`](crate::ErrorKind::Poisoned): after a failed write-back the kernel
    /// may report the next sync as successful although changes are lost, so the handle refuses
    /// changes until the store is opened again.
    ///
    /// # Cost
    ///
    /// One flush of the device, shared with other threads that wait for it.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = splitpoint::Db::open(dir.path().join("a.spt"))?;
    /// for i in 0..1000_u32 {
    ///     db.put(i.to_le_bytes(), "imported")?;
    /// }
    /// db.sync()?; // A power loss can no longer undo them.
    /// # Ok(())
    /// # }
    /// ```
    pub fn sync(&self) -> Result<()> {
        self.store.sync()
    }

    /// Closes the store if this is its last handle, and returns whether it was the last.
    ///
    /// The last handle syncs the store, marks it clean and releases the lock on the file. While
    /// clones exist, this call syncs the store, drops this handle and returns `false`; the store
    /// stays open for the clones. If several threads close the last clones at the same time,
    /// exactly one gets `true`.
    ///
    /// Dropping a handle does the same, except that it cannot report an error, and does not sync
    /// while clones exist.
    ///
    /// Closing the last handle of a file also compacts it, as [`maintain`](Self::maintain) does, if
    /// more than half of the file is free or dead, at least 4 MiB of records (64 of the smallest
    /// segments) have died, and the log is at most 512 MiB long. This reads at most twice as many
    /// bytes as have died, which takes seconds on a slow disk. A handle that takes turns does not
    /// compact when it is closed.
    ///
    /// # Errors
    ///
    /// As [`sync`](Self::sync). If closing the last handle fails, the next open recovers the store.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("a.spt");
    /// let db = splitpoint::Db::open(&path)?;
    /// let other = db.clone();
    /// other.put("key", "value")?;
    /// assert!(!other.close()?, "the store stays open for `db`");
    /// assert!(db.contains("key")?);
    /// assert!(db.close()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn close(self) -> Result<bool> {
        let Self { store, handle } = self;
        let synced = if Arc::strong_count(&handle) > 1 { store.sync() } else { Ok(()) };
        // Drop this reference first, so that the last `Handle` also has the last reference to the
        // store.
        drop(store);
        match (synced, Arc::into_inner(handle)) {
            (Ok(()), Some(handle)) => handle.close().map(|()| true),
            (synced, _) => synced.map(|()| false),
        }
    }

    /// Returns the 16 bytes that the store keeps for the program, beside its keys.
    ///
    /// They are zero unless [`Options::application_data`] or
    /// [`set_application_data`](Self::set_application_data) has set them. A backup and a rehash keep
    /// them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Poisoned`](crate::ErrorKind::Poisoned) if a thread panicked while it changed the
    /// store.
    pub fn application_data(&self) -> Result<[u8; 16]> {
        self.store.application_data()
    }

    /// Replaces the 16 bytes that the store keeps for the program.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    ///
    /// # Durability
    ///
    /// The bytes are durable when this returns; if a checkpoint is being synced at that moment,
    /// they are durable when its sync ends.
    ///
    /// # Cost
    ///
    /// Writes and syncs 4 KiB, unless the store has these bytes already.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// let db = splitpoint::Db::in_memory()?;
    /// db.set_application_data(*b"schema version 3")?;
    /// assert_eq!(&db.application_data()?, b"schema version 3");
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_application_data(&self, data: [u8; 16]) -> Result<()> {
        self.store.set_application_data(data)
    }

    /// Returns what the lookups of all clones of this handle have cost since it was opened, or `None`
    /// unless [`Options::instrument`] asked for it.
    ///
    /// # Cost
    ///
    /// Reads 64 cache lines, and blocks nobody.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// let db = splitpoint::Options::new().instrument(true).in_memory()?;
    /// let before = db.lookups().expect("the instrument is on");
    /// db.contains("key")?;
    /// let since = db.lookups().expect("the instrument is on").since(&before);
    /// assert_eq!((since.lookup_count, since.hit_count), (1, 0));
    /// # Ok(())
    /// # }
    /// ```
    pub fn lookups(&self) -> Option<Lookups> {
        self.store.lookups()
    }

    /// Measures the chains of a sample of about `bucket_count` buckets without stopping other users
    /// of the store, and returns them with the cost of lookups so far.
    ///
    /// `which` selects the sample, so pass a different number each time. The hashes of a sample
    /// have some low bits in common. It is therefore a smaller table of the same kind, and if the
    /// hash function fits the keys, it is an unbiased sample of them. If one of these buckets is
    /// split or merged meanwhile, the measurement starts over, with fewer buckets if need be. A
    /// concurrent change may be counted or not. If the table has no more buckets than the sample, a
    /// key that a split is moving may be counted twice.
    ///
    /// The lookups are those of all handles, in all processes, that have opened the file with
    /// [`Options::instrument`]; see [`SharedLookups`](crate::stats::SharedLookups).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if a chain is damaged.
    ///
    /// # Cost
    ///
    /// Reads one cache line for each bucket, each in a different page of a large table, and their
    /// overflow lines. Blocks nobody.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// let db = splitpoint::Db::in_memory()?;
    /// db.put_many((0..100_000_u32).map(|key| (key.to_le_bytes(), "")))?;
    /// let sample = db.sample(2048, 0)?;
    /// assert!(sample.bucket_count <= 2049);
    /// assert!(sample.chains.probes_hit < 1.1 * sample.chains.probes_hit_ideal);
    /// # Ok(())
    /// # }
    /// ```
    pub fn sample(&self, bucket_count: u64, which: u64) -> Result<Sample> {
        self.store.sample(bucket_count, which)
    }

    /// Returns the counts, sizes and chain lengths of the store.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if a chain is damaged.
    ///
    /// # Cost
    ///
    /// Reads the whole index, 16 bytes per key. Writers wait meanwhile.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let db = splitpoint::Db::in_memory()?;
    /// # db.put("key", "value")?;
    /// let stats = db.stats()?;
    /// println!("{} keys, load factor {:.2}", stats.record_count, stats.load_factor);
    /// for row in &stats.chains.rows {
    ///     println!("{} buckets of {} keys", row.bucket_count, row.size);
    /// }
    /// # assert_eq!(stats.record_count, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn stats(&self) -> Result<Stats> {
        let moved_bytes = self.store.moved_by_turns()?;
        let mut writer = self.store.lock_to_look()?;
        let stats = self.store.collect_stats(&mut writer)?;
        Ok(Stats { moved_bytes: moved_bytes.unwrap_or(stats.moved_bytes), ..stats })
    }

    /// Compacts the store ahead of need, for when the program is idle, and returns memory or disk
    /// space to the system.
    ///
    /// Every change pays for some compaction, until [`Options::live_share`] of the log is live.
    /// This call goes further, until less than 3 % of each closed segment is dead. If an eighth of
    /// the file is free, it also moves segments, the index and the checkpoint from the end of the
    /// file towards its beginning. It reads at most about `budget` bytes of segments;
    /// [`Maintenance::is_done`] says whether that was enough.
    ///
    /// Other threads may read throughout, and may change the store after every 64 KiB read or 256
    /// buckets merged. Changes wait while a checkpoint walks the buckets, about 30 ns each, and
    /// while an index extent is copied.
    ///
    /// On a file it writes checkpoints, and waits for their syncs: one before a store is compacted
    /// for the first time; one to free the emptied segments; one after each round of moved segments
    /// (a round moves at least 4 MiB and 16 times the bytes of a checkpoint, if that much is left
    /// to move); and one more if the last checkpoint lies at the end of the file. Free space
    /// becomes holes in the file. [`close`](Self::close) shortens the file, and punches holes again
    /// that the open had filled.
    ///
    /// A handle that takes turns compacts in turns of a few megabytes, between which other handles
    /// may change the store, and frees the emptied segments when nothing is left to compact. It
    /// moves only records, and its `close` does not shorten the file: free space becomes holes.
    /// [`Maintenance::returned_bytes`] then also counts holes that existed before.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly) on a handle opened for reading only.
    /// - [`ErrorKind::Full`](crate::ErrorKind::Full) or [`ErrorKind::Io`](crate::ErrorKind::Io) if
    ///   there is no room for the records that are moved, or for a checkpoint; no key has changed.
    /// - [`ErrorKind::Poisoned`](crate::ErrorKind::Poisoned) after a failed sync.
    ///
    /// # Cost
    ///
    /// Reads each segment that it empties once, and one bucket for each record in it. Writes the
    /// live records and, for a file, 8 bytes of log for each of them and 5 to 6 bytes per key for
    /// each checkpoint. If deletes have left fewer keys per bucket than half of the fill factor, it
    /// merges buckets until there are nine tenths of it, and frees their lines. A handle that takes
    /// turns ([`Sharing::Shared`]) merges none.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// let db = splitpoint::Db::in_memory()?;
    /// for i in 0..50_000_u32 {
    ///     db.put(i.to_le_bytes(), [7; 100])?;
    /// }
    /// db.clear()?;
    /// while !db.maintain(1 << 20)?.is_done {}
    /// assert!(db.stats()?.segments.log < 1 << 20);
    /// # Ok(())
    /// # }
    /// ```
    pub fn maintain(&self, budget: u64) -> Result<Maintenance> {
        self.store.maintain(budget)
    }

    /// Verifies every structure of the store against every other, without writing.
    ///
    /// Damage is part of the report, not an error.
    ///
    /// # Errors
    ///
    /// Only if the check cannot continue: [`ErrorKind::Poisoned`](crate::ErrorKind::Poisoned) if a
    /// thread panicked while it changed the store; [`ErrorKind::Locked`](crate::ErrorKind::Locked)
    /// if this handle is read-only and a writer has the file open.
    ///
    /// # Cost
    ///
    /// Reads the file once, and damaged segments of its log twice. Takes one bit of memory for each
    /// 8 bytes of the file and for each bucket, up to three bits where the log is damaged, and up
    /// to two log segments (4 MiB) for a damaged one. Writers of this handle wait; a writer in
    /// another process cannot open the file during the check.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let db = splitpoint::Db::in_memory()?;
    /// assert!(db.check()?.is_clean());
    /// # Ok(())
    /// # }
    /// ```
    pub fn check(&self) -> Result<CheckReport> {
        self.check_with(|_| ControlFlow::Continue(()))
    }

    /// Verifies the store like [`check`](Self::check), and reports its progress.
    ///
    /// It calls `watch` after each log segment and each half MiB of the index, and stops if `watch`
    /// returns `Break`.
    ///
    /// Writers wait: the calling thread holds the writer's lock, as in [`update`](Self::update), so
    /// `watch` may only look up keys. If `watch` panics, the store stays usable.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check), and [`ErrorKind::Io`](crate::ErrorKind::Io) with
    /// [`Interrupted`](std::io::ErrorKind::Interrupted) if `watch` returned `Break`.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let db = splitpoint::Db::in_memory()?;
    /// use std::ops::ControlFlow;
    ///
    /// let report = db.check_with(|progress| {
    ///     println!("{:?}: {} of {} bytes", progress.stage, progress.bytes, progress.bytes_total);
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert!(report.is_clean());
    /// # Ok(())
    /// # }
    /// ```
    pub fn check_with(
        &self,
        mut watch: impl FnMut(CheckProgress) -> ControlFlow<()>,
    ) -> Result<CheckReport> {
        if self.store.takes_turns() {
            return self.store.check_in_turn(&mut watch);
        }
        let writer = self.store.lock()?;
        run_locked(&self.store, writer, |writer| self.store.check(writer, &mut watch)).1
    }

    /// Writes a consistent copy of the store, or of a table in memory, to the file `dest` while
    /// other threads go on writing.
    ///
    /// The copy holds every change that returned before this call began, and every other one up to
    /// some moment during the call. [`Backup`] describes how it works and has options;
    /// [`backup`](crate::backup::backup()) copies a file that another process has open.
    ///
    /// # Errors
    ///
    /// As [`Backup::write`]; [`ErrorKind::Exists`](crate::ErrorKind::Exists) if `dest` exists.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let copy = dir.path().join("copy.spt");
    /// let db = splitpoint::Db::in_memory()?;
    /// db.put(b"key", b"value")?;
    /// db.backup(&copy)?;
    /// assert_eq!(splitpoint::Db::open(&copy)?.get(b"key")?.as_deref(), Some(&b"value"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn backup(&self, dest: impl AsRef<Path>) -> Result<BackupReport> {
        self.backup_with().write(dest)
    }

    /// Writes a consistent copy of the store to a stream.
    ///
    /// The copy has no index: the first open of a file that holds these bytes replays the log.
    ///
    /// # Errors
    ///
    /// As [`Backup::write_to`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let copy = dir.path().join("copy.spt");
    /// let db = splitpoint::Db::in_memory()?;
    /// db.put("key", "value")?;
    /// let mut stream = Vec::new(); // Or a pipe, or a socket.
    /// db.backup_to(&mut stream)?;
    /// # std::fs::write(&copy, &stream).unwrap();
    /// # assert_eq!(splitpoint::Db::open(&copy)?.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn backup_to(&self, out: impl io::Write) -> Result<BackupReport> {
        self.backup_with().write_to(out)
    }

    /// Returns a [`Backup`] of the store, on which to set options.
    pub fn backup_with(&self) -> Backup<'_> {
        Backup::of_store(&self.store)
    }

    /// Returns how this handle's open got its index: as the last close left it, by a warm restart,
    /// or by replaying the log.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("a.spt");
    /// # splitpoint::Db::open(&path)?.close()?;
    /// use splitpoint::Recovery;
    ///
    /// match splitpoint::Db::open(&path)?.recovery() {
    ///     Recovery::Created | Recovery::Clean => {}
    ///     other => println!("the last process did not close the store: {other:?}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn recovery(&self) -> Recovery {
        self.store.recovery
    }
}

impl Options {
    /// Opens the store in the file at `path`; [`create`](Self::create) says what happens if the
    /// file is missing.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotAStore`](crate::ErrorKind::NotAStore),
    ///   [`Version`](crate::ErrorKind::Version) or [`Corrupt`](crate::ErrorKind::Corrupt) if the
    ///   file is not a store, has another format version, or is damaged. The file is not changed.
    /// - [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if the file is missing and
    ///   [`Create::Never`] is set;
    ///   [`ErrorKind::Exists`](crate::ErrorKind::Exists) if it exists and
    ///   [`Create::New`] is.
    /// - [`ErrorKind::Locked`](crate::ErrorKind::Locked) if another handle may write and this one
    ///   wants to, too, or if another handle has opened the file for exclusive use; the open first
    ///   waits up to [`Options::lock_timeout`]. The error names the process that has the file
    ///   locked, if the file records it.
    /// - [`ErrorKind::HashMismatch`](crate::ErrorKind::HashMismatch) if the store was created with
    ///   another hash function. The error names both.
    /// - [`ErrorKind::Full`](crate::ErrorKind::Full) if the process may not reserve more address
    ///   space: see [Address space](Self#address-space).
    /// - [`ErrorKind::Io`](crate::ErrorKind::Io) if the operating system refuses.
    ///
    /// # Cost
    ///
    /// O(1) after a clean close, and after a killed process whose index is still in the page cache;
    /// an open of a clean file of at most 1 MiB reads its index. After a power loss, an open reads
    /// the last checkpoint, 5 or 6 bytes per key, and the log after it; without a checkpoint, the
    /// whole log.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Db> {
        self.validate()?;
        Ok(Db::from_opened(crate::recovery::open_file(path.as_ref(), self)?, self))
    }

    /// Opens the store in a [`SharedFile`], whose descriptor the program and the handle share, and
    /// creates a store there if the file is empty and [`create`](Self::create) allows it.
    ///
    /// A claimed file stays claimed as long as the program or the handle has it open: the program
    /// may close the handle and open the file again, and no other writer can get in between. If the
    /// file is shared [by turns](SharedFile::by_turns), its handles are [`Sharing::PerCall`],
    /// whatever these options say, and closing a handle makes its changes durable.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open); [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the file was claimed
    /// for a reader and these options are not [`read_only`](Self::read_only).
    ///
    /// # Examples
    ///
    /// See [`SharedFile`].
    pub fn open_shared(&self, file: &SharedFile) -> Result<Db> {
        let sharing = match self.sharing {
            _ if file.takes_turns() => Sharing::PerCall,
            // The claim keeps other writers out, so there is nobody to take turns with.
            sharing if sharing.takes_turns() => Sharing::OneWriter,
            sharing => sharing,
        };
        let options = &self.clone().sharing(sharing);
        options.validate()?;
        Ok(Db::from_opened(crate::recovery::open_shared(file, options)?, options))
    }

    /// Creates an empty table in memory. Dropping the last handle frees it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Full`](crate::ErrorKind::Full) if the process may not reserve more address
    /// space, or if the index of [`expected_records`](Self::expected_records) is larger than the memory.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// use splitpoint::Options;
    ///
    /// let cache = Options::new().expected_records(1_000_000).in_memory()?;
    /// cache.put("key", "value")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn in_memory(&self) -> Result<Db> {
        self.validate()?;
        Ok(Db::from_opened(crate::recovery::open_memory(self)?, self))
    }
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Db")
            .field("path", &self.store.region.storage().path())
            .field("record_count", &self.len())
            .finish_non_exhaustive()
    }
}

impl Table for Db {
    fn capabilities(&self) -> Capabilities {
        let durability = if self.store.region.storage().is_volatile() {
            Vec::new()
        } else {
            vec![Durability::Buffered, Durability::Async, Durability::Sync]
        };
        Capabilities {
            key_bytes_max: KEY_BYTES_MAX,
            value_bytes_max: VALUE_BYTES_MAX,
            is_read_only: self.store.access == Access::ReadOnly,
            batch: BatchAtomicity::Atomic,
            scan: ScanGuarantee::ExactlyOnce,
            durability,
            may_lose_acknowledged: false,
        }
    }

    fn get_bytes(&self, key: &[u8]) -> Result<Option<Value<'_>>> {
        self.get(key)
    }

    fn get_many_bytes(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value<'_>>>> {
        let mut values = Vec::new();
        // All keys in one call, which prefetches the buckets of the next group before it compares
        // the keys of this one.
        self.get_chunk(keys, &mut self.store.pins()?, &mut values)?;
        Ok(values)
    }

    fn put_bytes(
        &self,
        key: &[u8],
        value: &[u8],
        mode: PutMode,
        durability: Option<Durability>,
    ) -> Result<bool> {
        self.put_mode(key, value, mode, durability.unwrap_or(self.store.durability))
    }

    fn put_many_bytes(
        &self,
        pairs: &[(&[u8], &[u8])],
        durability: Option<Durability>,
    ) -> Result<()> {
        let durability = durability.unwrap_or(self.store.durability);
        pairs.chunks(CHUNK).try_for_each(|chunk| self.put_chunk(chunk, durability))?;
        if durability.is_synced_at_end() { self.sync() } else { Ok(()) }
    }

    fn delete_bytes(&self, key: &[u8], durability: Option<Durability>) -> Result<bool> {
        self.remove(key, durability.unwrap_or(self.store.durability))
    }

    fn apply_bytes(&self, changes: &[Change<'_>], durability: Option<Durability>) -> Result<()> {
        self.apply_slice(changes, durability.unwrap_or(self.store.durability))
    }

    fn scan(&self) -> Result<Entries<'_>> {
        Ok(Box::new(Self::scan(self)?))
    }

    fn len(&self) -> Result<u64> {
        Ok(Self::len(self))
    }

    fn sync(&self) -> Result<()> {
        Self::sync(self)
    }

    fn stats(&self) -> Result<Stats> {
        Self::stats(self)
    }

    fn check(&self) -> Result<TableCheck> {
        let report = Self::check(self)?;
        // `CheckReport::record_count` counts the records of the log, not the keys.
        let mut check = TableCheck::new(Self::len(self));
        report.damages.iter().for_each(|damage| check.note(damage));
        check.damage_count = report.damage_count;
        Ok(check)
    }

    fn close(self: Box<Self>) -> Result<bool> {
        Self::close(*self)
    }
}
