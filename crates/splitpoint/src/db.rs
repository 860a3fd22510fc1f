//! `Db`: a store in a file or in memory, as a program uses it.

mod iter;
#[cfg(test)]
#[cfg(not(loom))]
mod miri_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod pace_tests;
mod update;

pub use iter::{Iter, Keys, Values};

use std::borrow::Borrow;
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use crate::backup::{Backup, BackupReport};
use crate::batch::{AsPair, Change};
use crate::check::{CheckProgress, CheckReport};
use crate::cursor::Scan;
use crate::error::Result;
use crate::options::{Access, Durability, KEY_BYTES_MAX, Options, VALUE_BYTES_MAX};
use crate::stats::{Recovery, Stats};
use crate::store::{Opened, Put, Step, Store, Writer};
use crate::syncer::Syncer;
use crate::table::{
    BatchAtomicity, Capabilities, Entries, PutMode, ScanGuarantee, Table, TableCheck,
};
use crate::value::Value;

/// Keys that [`Db::get_many`] and [`Db::put_many`] take at a time, so that their cache misses
/// overlap.
const CHUNK: usize = 32;

/// A store: keys and values in one file or in memory.
///
/// Any number of threads may use a handle at the same time. Reads take no lock; writes take one
/// mutex. A value borrows from the handle and is not copied. A large store starts two threads, which
/// sync it and make room ahead of the writer.
///
/// A clone is another handle to the same store: threads that need a handle each get a clone, and the
/// last one to be dropped or [closed](Self::close) closes the store.
///
/// After a `fork`, the child may read through the handle of a file; changes, syncs and closing are
/// refused there with [`ErrorKind::Poisoned`](crate::ErrorKind::Poisoned), and dropping it does
/// nothing. A table in memory is then one of the child's own.
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
    // Dropped before `handle`: when the last handle closes the file, nobody else holds it any more.
    store: Arc<Store>,
    handle: Arc<Handle>,
}

/// What the clones of a handle share, and what the last one ends.
struct Handle {
    store: Arc<Store>,
    syncer: Syncer,
}

impl Handle {
    fn close(mut self) -> Result<()> {
        self.syncer.stop();
        self.store.close()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.syncer.stop();
        // There is nobody to tell; the next open recovers.
        let _ = self.store.close();
    }
}

impl Db {
    /// Opens the store in the file at `path`, or creates it, with [`Options::new`].
    ///
    /// # The contract of a mapped file
    ///
    /// The store reads and writes its file through shared mappings, so values are borrowed and not
    /// copied. While any handle has the file open, the program must see to this:
    ///
    /// - **No other program writes to the file.** Splitpoint locks it (`flock`), but the lock is advisory:
    ///   an editor or `cp` ignores it. What another program writes can change a value while it is
    ///   borrowed, which Rust code relies on never to happen.
    /// - **No program truncates it.** To touch a page behind the new end raises `SIGBUS`, which ends the
    ///   process unless it handles the signal. Replace a file by renaming another over it.
    /// - **The device stays readable.** A read error, or a file system that stops after an error, raises
    ///   `SIGBUS` too, as with every mapping. Changes with [`Durability::Sync`] meet most write errors as
    ///   an error first: their records go through `write`.
    /// - **A file of unknown origin** is opened with [`Options::rebuild_index`]. Without it the index in the
    ///   file is trusted: one that was made to harm can lead a lookup to any bytes of the file, but
    ///   never to memory outside of it.
    ///
    /// # Errors
    ///
    /// As [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Options::new().open(path)
    }

    /// Makes an empty table in memory, with [`Options::new`].
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
        let handle = Arc::new(Handle { store: store.clone(), syncer: Syncer::default() });
        Self { store, handle }
    }

    /// Returns the store, for tests that look behind the interface.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the value of `key`, or `None`.
    ///
    /// The value is not copied: it borrows from the handle, and through it from the mapped file. It
    /// is the one that was current at some moment during the call, and later changes of the key do not
    /// change it. [`Db::open`] says what the program must see to while it is borrowed; copy it with
    /// [`Value::into_vec`] or [`get_into`](Self::get_into) to be independent of the file.
    ///
    /// The checksum of the record is not verified: that would read all of a large value.
    /// [`check`](Self::check) verifies every record.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the file is damaged where it was read.
    ///
    /// # Cost
    ///
    /// Two cache lines for a key that is there, the bucket and the record; one for a key that is
    /// not. More only for an overflow line, or for another key with an equal tag: as the table
    /// grows, more of the tag's 24 bits are the same for a whole bucket. With `2^l` buckets, `l`
    /// from 8 on, a slot of another key matches with probability `2^(l - 32)`: 1 in 2,048 at ten
    /// million keys, 1 in 256 at eighty.
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
        Ok(self.store.find(key.as_ref())?.map(|pair| Value::borrowed(pair.value)))
    }

    /// Replaces the content of `buf` by the value of `key` and returns whether there is one.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn get_into(&self, key: impl AsRef<[u8]>, buf: &mut Vec<u8>) -> Result<bool> {
        let Some(pair) = self.store.find(key.as_ref())? else { return Ok(false) };
        buf.clear();
        buf.extend_from_slice(pair.value);
        Ok(true)
    }

    /// Returns whether `key` is there.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.store.find(key.as_ref())?.is_some())
    }

    /// Returns the values of `keys`, in their order, looked up together.
    ///
    /// It looks up 32 keys at a time in three passes: prefetch the buckets; match the tags and
    /// prefetch the records; compare. The cache misses overlap instead of following each other, which
    /// is several times faster than calling [`get`](Self::get) for each key once the table is larger
    /// than the cache.
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
        let mut values = Vec::with_capacity(keys.size_hint().0);
        loop {
            let chunk: [_; CHUNK] = std::array::from_fn(|_| keys.next());
            let mut slices = [&[][..]; CHUNK];
            let mut count = 0;
            for (slice, key) in slices.iter_mut().zip(chunk.iter().flatten()) {
                *slice = key.as_ref();
                count += 1;
            }
            self.get_chunk(&slices[..count], &mut values)?;
            if count < CHUNK {
                return Ok(values);
            }
        }
    }

    fn get_chunk<'db>(
        &'db self,
        keys: &[&[u8]],
        values: &mut Vec<Option<Value<'db>>>,
    ) -> Result<()> {
        let mut hashes = [0; CHUNK];
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = self.store.hash_of(key);
            self.store.prefetch_bucket(*hash);
        }
        for &hash in &hashes[..keys.len()] {
            self.store.prefetch_candidates(hash);
        }
        for (&hash, key) in hashes.iter().zip(keys) {
            let found = self.store.find_hashed(key, hash)?;
            values.push(found.map(|pair| Value::borrowed(pair.value)));
        }
        Ok(())
    }

    /// Stores `value` under `key`, replacing any earlier value.
    ///
    /// Keys and values have 0 to 4 GiB - 1 bytes. Both are copied. The new value is visible to
    /// every thread when this returns.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::TooLarge`](crate::ErrorKind::TooLarge) if the key or the value is over its
    ///   limit.
    /// - [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly) on a handle that may not write.
    /// - [`ErrorKind::Io`](crate::ErrorKind::Io) if the file could not be extended: nothing has
    ///   changed and the handle is usable.
    /// - [`ErrorKind::Poisoned`](crate::ErrorKind::Poisoned) after a sync that failed.
    ///
    /// # Durability
    ///
    /// That of the handle, see [`Durability`].
    ///
    /// # Cost
    ///
    /// Writes one record; reads one bucket and, for each tag that matches, one record. Splits at
    /// most two buckets.
    ///
    /// # Source
    ///
    /// Controlled and uncontrolled splits: Seltzer and Yigit 1991. Values live in a log, so a
    /// split moves slots and never values.
    #[inline]
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, self.store.durability)
    }

    /// Stores `value` under `key` as [`put`](Self::put), with `durability` for this change.
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

    /// Stores `value` under `key` if the key is not there, and returns whether it was stored.
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

    /// Stores `value` as [`put_new`](Self::put_new), with `durability` for this change.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
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
        let mut writer = self.store.lock_for_change()?;
        let is_stored = self.store.put_locked(&mut writer, &put)?;
        self.finish(writer, durability)?;
        Ok(is_stored)
    }

    /// Stores every pair, in order, as [`put`](Self::put) does one by one; their cache misses
    /// overlap, and they share one wait for durability.
    ///
    /// The items are tuples of a key and a value, or references to such: [`AsPair`]. The iterator may
    /// use the store: no lock is held while it makes its next items, 32 at a time.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put); the pairs before the one that failed are stored.
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

    /// Stores every pair as [`put_many`](Self::put_many), with `durability` for all of them.
    ///
    /// # Errors
    ///
    /// As [`put_many`](Self::put_many).
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
        match durability {
            Durability::Sync => self.sync(),
            Durability::Async | Durability::Buffered => Ok(()),
        }
    }

    /// Stores a chunk of pairs. With `Sync` it waits for the device only after an error: the caller
    /// waits once for all chunks.
    fn put_chunk(&self, pairs: &[(&[u8], &[u8])], durability: Durability) -> Result<()> {
        if pairs.is_empty() {
            return Ok(());
        }
        // The pairs before one that cannot be stored are stored.
        let mut puts: Vec<Put<'_>> = Vec::with_capacity(pairs.len());
        let prepared = pairs.iter().try_for_each(|(key, value)| {
            puts.push(self.store.prepare_put(key, value, PutMode::Replace, durability)?);
            Ok(())
        });
        for put in &puts {
            self.store.prefetch_candidates(put.hash);
        }
        let mut writer = self.store.lock_for_change()?;
        let stored =
            puts.iter().try_for_each(|put| self.store.put_locked(&mut writer, put).map(drop));
        let is_last = prepared.is_err() || stored.is_err();
        let level = match durability {
            Durability::Sync if !is_last => Durability::Buffered,
            level => level,
        };
        self.finish(writer, level)?;
        stored.and(prepared)
    }

    /// Removes `key` and returns whether it was there.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    ///
    /// # Cost
    ///
    /// As [`put`](Self::put); merges at most one pair of buckets.
    #[inline]
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.delete_with(key, self.store.durability)
    }

    /// Removes `key` as [`delete`](Self::delete), with `durability` for this change.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
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
    /// It takes a [`Batch`](crate::Batch), or [`Change`]s that borrow. The last change of a key wins; deleting a
    /// missing key is a no-op. Other threads may see the changes one after the other.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put), and then no change is made.
    ///
    /// # Durability
    ///
    /// That of the handle, see [`Durability`]. With [`Durability::Sync`] the batch waits for the
    /// device once.
    ///
    /// # Cost
    ///
    /// That of the changes one by one, and 24 bytes of log.
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

    /// Applies all changes as [`apply`](Self::apply), with `durability` for all of them.
    ///
    /// # Errors
    ///
    /// As [`apply`](Self::apply).
    pub fn apply_with<'a, C>(&self, changes: C, durability: Durability) -> Result<()>
    where
        C: IntoIterator<Item: Borrow<Change<'a>>>,
    {
        let changes: Vec<Change<'a>> = changes.into_iter().map(|item| *item.borrow()).collect();
        self.apply_slice(&changes, durability)
    }

    fn apply_slice(&self, changes: &[Change<'_>], durability: Durability) -> Result<()> {
        let mut writer = self.store.lock_for_change()?;
        self.store.apply_locked(&mut writer, changes)?;
        self.finish(writer, durability)
    }

    /// Does what the durability of a change asks for, once the change is visible.
    #[inline(always)]
    fn finish(&self, mut writer: MutexGuard<'_, Writer>, durability: Durability) -> Result<()> {
        let lsn = writer.log.position().lsn;
        let step =
            if durability == Durability::Async { self.pace(&mut writer) } else { Step::GoOn };
        self.finish_checkpoint(writer);
        match (durability, step) {
            (Durability::Sync, _) => self.store.wait_durable(lsn, true),
            (_, Step::Wait(lsn)) => {
                // The change is made. An error stays with the store: the next change returns it.
                let _ = self.store.wait_durable(lsn, false);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Sees to it that an `Async` change becomes durable in time, and returns what is left to do.
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

    /// Gives up the lock; a checkpoint that has been written is made durable, by the thread if the
    /// storage allows one.
    #[inline(always)]
    fn finish_checkpoint(&self, mut writer: MutexGuard<'_, Writer>) {
        if !writer.checkpoints.is_written() {
            return;
        }
        if self.store.region.storage().may_sync_in_background() {
            // Once: the thread may be at a sync, and to wake it costs a system call.
            let is_asked = self.handle.syncer.finish_checkpoint(&self.store);
            writer.checkpoints.set_asked(is_asked);
        } else {
            drop(writer);
            // An error stays with the store: the next change and the next sync return it.
            let _ = self.store.finish_checkpoint();
        }
    }

    /// Returns every key with its value, in the order of the file.
    ///
    /// Every key that is present from the beginning of the scan to its end is returned exactly
    /// once, whatever changes meanwhile, with the value it had when the scan began. A key that is
    /// deleted meanwhile may be returned or not; one that is new is not. Deleting each key that
    /// is returned deletes everything.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the file is damaged.
    ///
    /// # Cost
    ///
    /// Reads the log once, sequentially, dead records included; one bucket per record.
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
        // The lock is held until the scan has noted which segments are younger.
        let writer = self.store.lock()?;
        Scan::new(&self.store, writer.superblock.log_start, writer.log.position())
    }

    /// Returns the number of keys.
    pub fn len(&self) -> u64 {
        self.store.region.live().record_count()
    }

    /// Returns whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes every change so far durable.
    ///
    /// # Errors
    ///
    /// The operating system's, once; then
    /// [`ErrorKind::Poisoned`](crate::ErrorKind::Poisoned): what was not durable may be lost
    /// although a later sync succeeds, so the handle refuses changes until it is opened again.
    pub fn sync(&self) -> Result<()> {
        self.store.sync()
    }

    /// Closes the store if this is its last handle, and returns whether it was.
    ///
    /// The last handle syncs the store, marks it closed and gives up the lock on the file. While clones
    /// live, this syncs the store, drops this handle and returns `false`; the store stays open for the
    /// clones. Of several threads that close their clones at the same time, one gets `true`.
    ///
    /// Dropping a handle does the same, except that it does not sync while clones live, and that it
    /// has no way to report an error.
    ///
    /// # Errors
    ///
    /// As [`sync`](Self::sync). If the last handle fails, the next open recovers the store.
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
        // First this one, so that the last handle is the last to hold the file.
        drop(store);
        match (synced, Arc::into_inner(handle)) {
            (Ok(()), Some(handle)) => handle.close().map(|()| true),
            (synced, _) => synced.map(|()| false),
        }
    }

    /// Returns counts, sizes and the occupancy of the table.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if a chain is damaged.
    ///
    /// # Cost
    ///
    /// Reads the whole index, 16 bytes a key; holds up writers meanwhile.
    pub fn stats(&self) -> Result<Stats> {
        let writer = self.store.lock()?;
        self.store.collect_stats(&writer)
    }

    /// Verifies every structure against every other, without writing.
    ///
    /// What is found is in the report, not in the error.
    ///
    /// # Errors
    ///
    /// Only if the check itself cannot go on.
    ///
    /// # Cost
    ///
    /// Reads the whole file once, and the damaged segments of its log twice. Takes one bit of memory
    /// for each 8 bytes of the file and for each bucket, up to three where the log is damaged, and as
    /// much as two log segments, 4 MiB, for one that is. Holds up writers.
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

    /// As [`check`](Self::check); calls `watch` with how far it is, each log segment and each half
    /// MiB of the index, and stops when that returns `Break`.
    ///
    /// Writers wait meanwhile, so `watch` must not change the store.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check), and [`ErrorKind::Io`](crate::ErrorKind::Io) with
    /// [`Interrupted`](std::io::ErrorKind::Interrupted) if `watch` stopped it.
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
        let writer = self.store.lock()?;
        self.store.check(&writer, &mut watch)
    }

    /// Makes a consistent copy of the store in the file `dest`, while any thread goes on to write;
    /// of a table in memory too.
    ///
    /// The copy holds every change that returned before this call and none after some moment of
    /// it. [`Backup`] says how it is made, and has options; [`backup`](crate::backup::backup()) copies a
    /// file that another process has open.
    ///
    /// # Errors
    ///
    /// As [`Backup::write`]; [`ErrorKind::Exists`](crate::ErrorKind::Exists) if there is such a
    /// file.
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

    /// Writes a consistent copy of the store to a stream; the first open of that file replays the
    /// log.
    ///
    /// # Errors
    ///
    /// As [`Backup::write_to`].
    pub fn backup_to(&self, out: impl io::Write) -> Result<BackupReport> {
        self.backup_with().write_to(out)
    }

    /// Prepares a copy of the store, to be given options.
    pub fn backup_with(&self) -> Backup<'_> {
        Backup::of_store(&self.store)
    }

    /// Returns how this handle came to its index.
    pub fn recovery(&self) -> Recovery {
        self.store.recovery
    }
}

impl Options {
    /// Opens the store in the file at `path`, or makes it.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotAStore`](crate::ErrorKind::NotAStore),
    ///   [`Version`](crate::ErrorKind::Version) or [`Corrupt`](crate::ErrorKind::Corrupt) if the
    ///   file is something else or damaged; it is left as it is.
    /// - [`ErrorKind::Locked`](crate::ErrorKind::Locked) if another handle has it open, with the
    ///   process id.
    /// - [`ErrorKind::HashMismatch`](crate::ErrorKind::HashMismatch) if it was made with another
    ///   hash function, with both names.
    /// - [`ErrorKind::Full`](crate::ErrorKind::Full) if the process may have no more address space:
    ///   see [Address space](Self#address-space).
    /// - [`ErrorKind::Io`](crate::ErrorKind::Io) if the operating system refuses.
    ///
    /// # Cost
    ///
    /// O(1) after a clean close or a killed process. After a power loss a pass over the last
    /// checkpoint, 10 bytes a key, and the log after it; over the whole log if there is none.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Db> {
        self.validate()?;
        Ok(Db::from_opened(crate::recovery::open_file(path.as_ref(), self)?, self))
    }

    /// Makes an empty table in memory. It is gone when the handle is dropped.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Full`](crate::ErrorKind::Full) if the process may have no more address space.
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
        self.get_many(keys)
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
        self.put_many_with(pairs, durability.unwrap_or(self.store.durability))
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
        // The report counts the records of the log.
        let mut check = TableCheck::new(Self::len(self));
        report.damages.iter().for_each(|damage| check.note(damage));
        check.damage_count = report.damage_count;
        Ok(check)
    }

    fn close(self: Box<Self>) -> Result<bool> {
        Self::close(*self)
    }
}
