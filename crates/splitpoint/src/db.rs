//! `Db`: a store in a file or in memory; the only place where log and index meet.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::check::CheckReport;
use crate::cursor::Scan;
use crate::error::{Error, Result};
use crate::format::{Addr, HEADER_BYTES, LogStart, Superblock};
use crate::hash::HashFunction;
use crate::index::Lines;
use crate::index::line::{LINE_BYTES, SLOT_COUNT};
use crate::index::lookup::{Located, find, for_each_line, locate};
use crate::index::overflow::LinePool;
use crate::index::shape::Shape;
use crate::index::slot::{Slot, Tag};
use crate::index::split::{Scratch, insert, merge, split};
use crate::linear::{BucketIndex, Geometry};
use crate::live::{CommitState, LineWindow};
use crate::log::append::{Appender, OpenedSegments, Payload, Via};
use crate::log::durable::GroupCommit;
use crate::log::record::{Pair, RecordKind};
use crate::options::{Access, Durability, KEY_BYTES_MAX, Options, VALUE_BYTES_MAX};
use crate::region::{LivePool, Region};
use crate::space::Space;
use crate::stats::{Occupancy, Recovery, SegmentBytes, Stats};
use crate::syncer::Syncer;
use crate::table::{
    BatchAtomicity, Capabilities, Change, Entries, PutMode, ScanGuarantee, Table, Value,
};

/// Keys that [`Db::get_many`] and [`Db::put_many`] look up at a time, so that their cache misses
/// overlap.
const BATCH: usize = 32;
/// Splits that one insert may do at most, so that a hostile chain cannot run away.
const SPLITS_PER_INSERT: u32 = 2;
/// A bucket is merged when there are fewer keys than this share of the fill factor, in percent.
const MERGE_PERCENT: u64 = 35;

/// A store: keys and values in one file or in memory.
///
/// Any number of threads may use a handle at the same time. Reads take no lock; writes take one
/// mutex. A value that was read borrows from the handle and is not copied.
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
/// assert_eq!(db.get(b"France")?.as_deref(), Some(&b"Paris"[..]));
/// assert!(db.delete(b"Peru")?);
/// assert_eq!(db.len(), 1);
/// db.close()?;
/// # Ok(())
/// # }
/// ```
pub struct Db {
    store: Arc<Store>,
    syncer: Syncer,
}

/// What the threads of a handle share.
pub(crate) struct Store {
    pub(crate) region: Region,
    pub(crate) hash: HashFunction,
    pub(crate) seed: u64,
    access: Access,
    pub(crate) durability: Durability,
    fill_thousandths: u64,
    pub(crate) recovery: Recovery,
    pub(crate) group: GroupCommit,
    pub(crate) opened: Arc<OpenedSegments>,
    writer: Mutex<Writer>,
}

/// What only the thread that holds the lock uses.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) log: Appender,
    pub(crate) space: Space,
    pub(crate) state: CommitState,
    pub(crate) superblock: Superblock,
    /// Whether the superblock on disk says that the live tables may be changing.
    pub(crate) is_dirty: bool,
    /// Whether a background sync is on its way.
    pub(crate) is_sync_due: bool,
    pub(crate) is_closed: bool,
    scratch: Scratch,
}

impl Writer {
    pub(crate) fn new(
        log: Appender,
        space: Space,
        state: CommitState,
        superblock: Superblock,
    ) -> Self {
        Self {
            log,
            space,
            state,
            superblock,
            is_dirty: false,
            is_sync_due: false,
            is_closed: false,
            scratch: Scratch::default(),
        }
    }
}

/// What opening a store gives: see `recovery`.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) region: Region,
    pub(crate) hash: HashFunction,
    pub(crate) writer: Writer,
    pub(crate) recovery: Recovery,
    pub(crate) durable_lsn: u64,
}

/// The hash of a key, the record to be written and what it replaces.
struct Put<'a> {
    hash: u64,
    payload: Payload<'a>,
    mode: PutMode,
    via: Via,
}

impl Db {
    /// Opens the store in the file at `path`, or makes it, with [`Options::new`].
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

    pub(crate) fn open_with(path: &Path, options: &Options) -> Result<Self> {
        Ok(Self::from_opened(crate::recovery::open_file(path, options)?, options))
    }

    pub(crate) fn in_memory_with(options: &Options) -> Result<Self> {
        Ok(Self::from_opened(crate::recovery::open_memory(options)?, options))
    }

    pub(crate) fn from_opened(opened: Opened, options: &Options) -> Self {
        let Opened { mut region, hash, writer, recovery, durable_lsn } = opened;
        if let Some(cache_bytes) = options.cache_bytes
            && !region.storage().is_volatile()
        {
            region.set_cache_bytes(cache_bytes);
        }
        let group = GroupCommit::default();
        group.start_at(durable_lsn);
        let store = Store {
            region,
            hash,
            seed: writer.superblock.seed,
            access: options.access,
            durability: options.durability,
            fill_thousandths: writer.superblock.fill_thousandths.into(),
            recovery,
            group,
            opened: writer.log.opened().clone(),
            writer: Mutex::new(writer),
        };
        Self { store: Arc::new(store), syncer: Syncer::default() }
    }

    /// Returns the value of `key`, or `None`.
    ///
    /// The value is not copied; it borrows from the handle. It is the one that was current at
    /// some moment during the call.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the file is damaged where it was read.
    ///
    /// # Cost
    ///
    /// Two cache lines for a key that is there, the bucket and the record; one for a key that is
    /// not. More only for an overflow line, or one key in 16 million with an equal tag.
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
    pub fn get(&self, key: &[u8]) -> Result<Option<Value<'_>>> {
        Ok(self.store.find(key)?.map(|pair| Value::borrowed(pair.value)))
    }

    /// Replaces the content of `buf` by the value of `key` and returns whether there is one.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn get_into(&self, key: &[u8], buf: &mut Vec<u8>) -> Result<bool> {
        let Some(pair) = self.store.find(key)? else { return Ok(false) };
        buf.clear();
        buf.extend_from_slice(pair.value);
        Ok(true)
    }

    /// Returns whether `key` is there.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        Ok(self.store.find(key)?.is_some())
    }

    /// Returns the values of `keys`, in their order, looked up together.
    ///
    /// Three passes over 32 keys at a time: ask for the buckets, match tags and ask for the
    /// records, compare. The cache misses overlap instead of following each other, which is
    /// several times faster than as many calls of [`get`](Self::get) once the table is larger
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
    /// db.put(b"a", b"1")?;
    /// let values = db.get_many(&[b"a", b"b"])?;
    /// assert_eq!(values[0].as_deref(), Some(&b"1"[..]));
    /// assert_eq!(values[1], None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value<'_>>>> {
        let mut values = Vec::with_capacity(keys.len());
        for keys in keys.chunks(BATCH) {
            let mut hashes = [0; BATCH];
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
        }
        Ok(values)
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
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_with(key, value, self.store.durability)
    }

    /// Stores `value` under `key` as [`put`](Self::put), with a durability of its own.
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
    pub fn put_with(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        self.put_mode(key, value, PutMode::Replace, durability).map(drop)
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
    pub fn put_new(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.put_mode(key, value, PutMode::New, self.store.durability)
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
    /// # Errors
    ///
    /// As [`put`](Self::put); the pairs before the one that failed are stored.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let db = splitpoint::Db::in_memory()?;
    /// db.put_many(&[(b"a", b"1"), (b"b", b"2")])?;
    /// assert_eq!(db.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_many(&self, pairs: &[(&[u8], &[u8])]) -> Result<()> {
        let durability = self.store.durability;
        for pairs in pairs.chunks(BATCH) {
            let puts: Vec<Put<'_>> = pairs
                .iter()
                .map(|(key, value)| {
                    self.store.prepare_put(key, value, PutMode::Replace, durability)
                })
                .collect::<Result<_>>()?;
            for put in &puts {
                self.store.prefetch_candidates(put.hash);
            }
            let mut writer = self.store.lock_for_change()?;
            for put in &puts {
                self.store.put_locked(&mut writer, put)?;
            }
            if durability == Durability::Async {
                self.schedule_sync(&mut writer);
            }
        }
        match durability {
            Durability::Sync => self.sync(),
            Durability::Async | Durability::Buffered => Ok(()),
        }
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
    pub fn delete(&self, key: &[u8]) -> Result<bool> {
        self.delete_with(key, self.store.durability)
    }

    /// Removes `key` as [`delete`](Self::delete), with a durability of its own.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    pub fn delete_with(&self, key: &[u8], durability: Durability) -> Result<bool> {
        let hash = self.store.hash_of(key);
        self.store.prefetch_bucket(hash);
        let mut writer = self.store.lock_for_change()?;
        let is_deleted = self.store.delete_locked(&mut writer, key, hash, via(durability))?;
        self.finish(writer, durability)?;
        Ok(is_deleted)
    }

    /// Does what the durability of a change asks for, once the change is visible.
    fn finish(&self, mut writer: MutexGuard<'_, Writer>, durability: Durability) -> Result<()> {
        match durability {
            Durability::Buffered => Ok(()),
            Durability::Async => {
                self.schedule_sync(&mut writer);
                Ok(())
            }
            Durability::Sync => {
                let lsn = writer.log.position().lsn;
                drop(writer);
                self.store.wait_durable(lsn, true)
            }
        }
    }

    #[inline]
    fn schedule_sync(&self, writer: &mut Writer) {
        if !writer.is_sync_due && !self.store.region.storage().is_volatile() {
            writer.is_sync_due = true;
            self.syncer.schedule(&self.store);
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

    /// Syncs the store, marks it closed and gives up the lock.
    ///
    /// Dropping the handle does the same, without a way to tell of an error.
    ///
    /// # Errors
    ///
    /// As [`sync`](Self::sync). The next open then recovers the store.
    pub fn close(mut self) -> Result<()> {
        self.syncer.stop();
        self.store.close()
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
    /// Reads the whole file once; one bit of memory for 8 bytes of log; holds up writers.
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
        let writer = self.store.lock()?;
        Ok(self.store.check(&writer))
    }

    /// Returns how this handle came to its index.
    pub fn recovery(&self) -> Recovery {
        self.store.recovery
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        self.syncer.stop();
        // There is nobody to tell; the next open recovers.
        let _ = self.store.close();
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

fn via(durability: Durability) -> Via {
    match durability {
        Durability::Buffered | Durability::Async => Via::Mapping,
        Durability::Sync => Via::Write,
    }
}

impl Store {
    /// Returns the hash of a key.
    #[inline]
    pub(crate) fn hash_of(&self, key: &[u8]) -> u64 {
        self.hash.hash(key, self.seed)
    }

    #[inline]
    fn shape(&self) -> Shape {
        Shape::of_word(self.region.shape().load(crate::atomic::Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn prefetch_bucket(&self, hash: u64) {
        self.region.prefetch_bucket(self.shape().geometry.bucket_of(hash));
    }

    /// Asks for the records that the tags of a bucket do not rule out.
    #[inline]
    fn prefetch_candidates(&self, hash: u64) {
        let line = self.region.bucket(self.shape().geometry.bucket_of(hash));
        let mut candidates = line.match_tag(Tag::of_hash(hash));
        while candidates != 0 {
            let slot = line.slot(candidates.trailing_zeros() as usize);
            if !slot.is_empty() {
                self.region.prefetch_record(slot.addr());
            }
            candidates &= candidates - 1;
        }
    }

    #[inline]
    fn find(&self, key: &[u8]) -> Result<Option<Pair<'_>>> {
        self.find_hashed(key, self.hash_of(key))
    }

    #[inline]
    fn find_hashed(&self, key: &[u8], hash: u64) -> Result<Option<Pair<'_>>> {
        find(&self.region, hash, |addr| {
            let pair = self.region.pair(addr)?;
            Ok((pair.key == key).then_some(pair))
        })
    }

    /// Returns where a key is or should be. For the writer.
    fn locate(&self, key: &[u8], hash: u64) -> Result<Located<'_>> {
        locate(&self.region, hash, |addr| Ok(self.region.pair(addr)?.key == key))
    }

    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, Writer>> {
        self.writer.lock().map_err(|_| Error::Poisoned {
            reason: "a thread failed while it changed the store".to_string(),
        })
    }

    /// Locks the writer for a change: what must be true before the first store to the file.
    fn lock_for_change(&self) -> Result<MutexGuard<'_, Writer>> {
        if self.access == Access::ReadOnly {
            return Err(Error::ReadOnly);
        }
        let mut writer = self.lock()?;
        if !writer.is_dirty {
            self.begin_changes(&mut writer)?;
        }
        Ok(writer)
    }

    /// Makes it durable that the live tables are about to change; until then a power loss would
    /// leave "clean" over half-changed tables.
    #[cold]
    fn begin_changes(&self, writer: &mut Writer) -> Result<()> {
        self.group.check()?;
        if writer.superblock.log_start == LogStart::default() {
            writer.log.reserve(0, &self.region, &mut writer.space)?;
            writer.superblock.log_start = writer.log.log_start();
            // Once more than needed: a damaged copy must not leave one that knows of no log.
            crate::recovery::write_superblock(&self.region, &mut writer.superblock, false)?;
        }
        crate::recovery::write_superblock(&self.region, &mut writer.superblock, false)?;
        self.region.live().set_identity(self.region.storage().identity());
        writer.is_dirty = true;
        Ok(())
    }

    fn prepare_put<'a>(
        &self,
        key: &'a [u8],
        value: &'a [u8],
        mode: PutMode,
        durability: Durability,
    ) -> Result<Put<'a>> {
        for (what, bytes, bytes_max) in
            [("key", key.len(), KEY_BYTES_MAX), ("value", value.len(), VALUE_BYTES_MAX)]
        {
            let bytes = bytes as u64;
            if bytes > bytes_max {
                return Err(Error::TooLarge { what, bytes, bytes_max });
            }
        }
        let hash = self.hash_of(key);
        // The checksum is computed while the bucket is on its way.
        self.prefetch_bucket(hash);
        Ok(Put {
            hash,
            payload: Payload::new(RecordKind::Put, key, value),
            mode,
            via: via(durability),
        })
    }

    /// Stores a pair; the record first, then its slot, then the commit.
    fn put_locked(&self, writer: &mut Writer, put: &Put<'_>) -> Result<bool> {
        self.group_is_sound(put.via)?;
        let region = &self.region;
        let mut at = self.locate(put.payload.key, put.hash)?;
        if at.found.is_some() && put.mode == PutMode::New {
            return Ok(false);
        }
        let prev = at.found.map(|(_, _, slot)| slot.addr());
        if at.found.is_none() && at.hole.is_none() {
            self.reserve_overflow_lines(writer, 1)?;
            at = self.locate(put.payload.key, put.hash)?;
        }
        let mut header = put.payload.header;
        header.prev = prev;
        let record_bytes = header.record_bytes();
        let addr = if writer.log.is_big(record_bytes, region) {
            writer.log.append_big(&put.payload, prev, region, &mut writer.space)?
        } else {
            writer.log.reserve(record_bytes, region, &mut writer.space)?;
            writer.log.append(&put.payload, prev, put.via, region)?
        };
        let slot = Slot::new(Tag::of_hash(put.hash), addr);
        let mut begins_second_line = false;
        if let Some((line, i, old)) = at.found {
            let old_bytes = self.region.record(old.addr())?.bytes.len() as u64;
            line.set_slot(i, slot);
            writer.state.dead_bytes += old_bytes;
            writer.state.live_bytes -= old_bytes.min(writer.state.live_bytes);
        } else {
            writer.state.record_count += 1;
            begins_second_line = insert(region, &mut LivePool(region), &at, slot)?;
        }
        writer.state.live_bytes += record_bytes;
        self.commit(writer);
        if at.found.is_none() {
            self.split_if_due(writer, begins_second_line);
        }
        Ok(true)
    }

    /// Removes a key; the tombstone first, then the slot, then the commit.
    fn delete_locked(&self, writer: &mut Writer, key: &[u8], hash: u64, via: Via) -> Result<bool> {
        self.group_is_sound(via)?;
        let region = &self.region;
        let Some((line, i, slot)) = self.locate(key, hash)?.found else { return Ok(false) };
        let old_bytes = region.record(slot.addr())?.bytes.len() as u64;
        let value = hash.to_le_bytes();
        let tombstone = Payload::new(RecordKind::Delete, &[], &value);
        writer.log.reserve(TOMBSTONE_BYTES, region, &mut writer.space)?;
        writer.log.append(&tombstone, Some(slot.addr()), via, region)?;
        line.set_slot(i, Slot::EMPTY);
        writer.state.record_count = writer.state.record_count.saturating_sub(1);
        writer.state.live_bytes -= old_bytes.min(writer.state.live_bytes);
        writer.state.dead_bytes += old_bytes + TOMBSTONE_BYTES;
        self.commit(writer);
        self.merge_if_due(writer);
        Ok(true)
    }

    /// A change that will be waited for must not begin on a handle that can promise nothing; the
    /// others are refused as well, but need not look at the lock each time.
    fn group_is_sound(&self, via: Via) -> Result<()> {
        match via {
            Via::Write => self.group.check(),
            Via::Mapping => self.group.check_quickly(),
        }
    }

    #[inline]
    fn commit(&self, writer: &mut Writer) {
        let position = writer.log.position();
        writer.state.tail_offset = position.offset;
        writer.state.tail_segment = position.segment_offset;
        self.region.live().commit(position.lsn, &writer.state);
    }

    /// Makes sure that `count` overflow lines can be taken.
    fn reserve_overflow_lines(&self, writer: &mut Writer, count: u64) -> Result<()> {
        let free_count = LivePool(&self.region).free_count();
        if free_count >= count {
            return Ok(());
        }
        let lines = self.region.line_count(LineWindow::Overflow) + count - free_count;
        self.region.reserve_lines(LineWindow::Overflow, lines, &mut writer.space)
    }

    /// Splits after an insert: when the mean is above the fill factor, and when a chain began its
    /// second overflow line.
    fn split_if_due(&self, writer: &mut Writer, begins_second_line: bool) {
        let mut split_count = u32::from(begins_second_line);
        let geometry = self.shape().geometry;
        let limit = u128::from(self.fill_thousandths) * u128::from(geometry.bucket_count());
        if u128::from(writer.state.record_count) * 1000 > limit {
            split_count += 1;
        }
        for _ in 0..split_count.min(SPLITS_PER_INSERT) {
            // A split that cannot be done, on a full disk, leaves a longer chain and no harm: the
            // pair has been stored, and the next insert tries again.
            if self.split_one(writer).is_err() {
                break;
            }
        }
    }

    fn split_one(&self, writer: &mut Writer) -> Result<()> {
        let region = &self.region;
        let Some(plan) = self.shape().geometry.plan_split() else { return Ok(()) };
        region.reserve_lines(LineWindow::Buckets, plan.upper.0 + 1, &mut writer.space)?;
        let mut line_count = 4;
        loop {
            self.reserve_overflow_lines(writer, line_count)?;
            let mut hash_of = |addr: Addr| Ok(self.hash_of(region.pair(addr)?.key));
            let pool = &mut LivePool(region);
            match split(region, pool, &plan, &mut writer.scratch, &mut hash_of) {
                Err(Error::Full { .. }) if line_count < 1 << 32 => line_count *= 8,
                other => return other,
            }
        }
    }

    /// Merges after a delete, when the mean is far below the fill factor.
    fn merge_if_due(&self, writer: &mut Writer) {
        let geometry = self.shape().geometry;
        let limit = u128::from(self.fill_thousandths * MERGE_PERCENT / 100)
            * u128::from(geometry.bucket_count());
        if u128::from(writer.state.record_count) * 1000 >= limit {
            return;
        }
        let Some(plan) = geometry.plan_merge() else { return };
        let region = &self.region;
        let mut line_count = 4;
        // As with a split, a merge that cannot be done is done later.
        while self.reserve_overflow_lines(writer, line_count).is_ok() {
            match merge(region, &mut LivePool(region), &plan, &mut writer.scratch) {
                Err(Error::Full { .. }) if line_count < 1 << 32 => line_count *= 8,
                _ => return,
            }
        }
    }

    /// Waits until the log is durable up to `lsn`, as a leader or behind one.
    fn wait_durable(&self, lsn: u64, is_awaited: bool) -> Result<()> {
        self.group.wait_for(lsn, || {
            let (ranges, lsn) = {
                let mut writer = self.lock()?;
                writer.is_sync_due = false;
                writer.log.take_unsynced(is_awaited)
            };
            for (offset, bytes) in ranges {
                self.region.write("sync", |storage| storage.sync_range(offset, bytes))?;
            }
            self.region.live().set_durable_lsn(lsn);
            Ok(lsn)
        })
    }

    /// Makes every change so far durable.
    pub(crate) fn sync(&self) -> Result<()> {
        if self.access == Access::ReadOnly {
            return Ok(());
        }
        self.sync_now(true)
    }

    /// As [`sync`](Self::sync), without anybody who waits for the next one.
    pub(crate) fn sync_in_background(&self) -> Result<()> {
        self.sync_now(false)
    }

    fn sync_now(&self, is_awaited: bool) -> Result<()> {
        let lsn = self.lock()?.log.position().lsn;
        self.wait_durable(lsn, is_awaited)
    }

    /// Syncs log and index and marks the store clean, once.
    fn close(&self) -> Result<()> {
        if self.access == Access::ReadOnly {
            return Ok(());
        }
        let mut writer = self.lock()?;
        if writer.is_closed {
            return Ok(());
        }
        self.region.live().clear_pid();
        writer.is_closed = true;
        if !writer.is_dirty {
            return Ok(());
        }
        // The log may have gone on without a commit, into a segment for a change that was not made.
        self.commit(&mut writer);
        let lsn = writer.log.position().lsn;
        drop(writer);
        // Log and index together: what is not dirty costs nothing, and one flush is enough.
        self.group.sync_always(|| {
            let bytes = self.region.file_bytes();
            self.region.write("sync", |storage| storage.sync_range(0, bytes))?;
            self.region.live().set_durable_lsn(lsn);
            Ok(lsn)
        })?;
        let mut writer = self.lock()?;
        crate::recovery::write_superblock(&self.region, &mut writer.superblock, true)
    }

    /// Counts chains and collects what the writer knows.
    fn collect_stats(&self, writer: &Writer) -> Result<Stats> {
        let region = &self.region;
        let live = region.live();
        let geometry = self.shape().geometry;
        let mut occupancy = Occupancy::new(geometry, SLOT_COUNT as u64);
        let mut overflow_line_count = 0;
        let mut keys_per_line = Vec::new();
        for bucket in (0..geometry.bucket_count()).map(BucketIndex) {
            keys_per_line.clear();
            for_each_line(region, bucket, |_, line| keys_per_line.push(line.slot_count()))?;
            overflow_line_count += keys_per_line.len() as u64 - 1;
            occupancy.add_chain(bucket, &keys_per_line);
        }
        let slot_count = (geometry.bucket_count() + overflow_line_count) * SLOT_COUNT as u64;
        let storage = region.storage();
        let index = region.line_count(LineWindow::Buckets) * LINE_BYTES;
        let overflow = region.line_count(LineWindow::Overflow) * LINE_BYTES;
        let private_bytes = if region.is_private() { index + overflow } else { 0 };
        Ok(Stats {
            path: (!storage.is_volatile()).then(|| storage.path().to_path_buf()),
            record_count: writer.state.record_count,
            geometry,
            fill_factor: self.fill_thousandths as f64 / 1000.0,
            load_factor: writer.state.record_count as f64 / slot_count as f64,
            overflow_line_count,
            overflow_line_free_count: region.line_count(LineWindow::Overflow) - overflow_line_count,
            live_bytes: writer.state.live_bytes,
            dead_bytes: writer.state.dead_bytes,
            file_bytes: region.file_bytes() + private_bytes,
            segments: SegmentBytes {
                header: HEADER_BYTES,
                log: live.log_bytes(),
                big: live.big_bytes(),
                index,
                overflow,
                free: writer.space.free_bytes(),
            },
            hash_name: self.hash.name().to_string(),
            log_bytes: writer.log.position().lsn,
            durable_bytes: self.group.durable_lsn(),
            recovery: self.recovery,
            chains: occupancy.finish(),
        })
    }

    /// Returns the end of the log segment at `offset`.
    pub(crate) fn tail_segment_end(&self, offset: u64) -> u64 {
        self.region.segment(offset).map_or(offset, |header| offset + header.segment_bytes)
    }

    /// Returns the number of buckets that `record_count` records ask for.
    pub(crate) fn geometry_for(record_count: u64, fill_thousandths: u32) -> Geometry {
        let buckets = u128::from(record_count) * 1000 / u128::from(fill_thousandths.max(1));
        Geometry::with_bucket_count(u64::try_from(buckets).unwrap_or(u64::MAX))
    }
}

/// Size in bytes of a record that deletes: header, prev and hash.
pub(crate) const TOMBSTONE_BYTES: u64 = 24;

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("region", &self.region).finish_non_exhaustive()
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
            batch: BatchAtomicity::None,
            scan: ScanGuarantee::ExactlyOnce,
            durability,
            may_lose_acknowledged: false,
        }
    }

    fn get(&self, key: &[u8]) -> Result<Option<Value<'_>>> {
        Self::get(self, key)
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value<'_>>>> {
        Self::get_many(self, keys)
    }

    fn put(&self, key: &[u8], value: &[u8], mode: PutMode) -> Result<bool> {
        self.put_mode(key, value, mode, self.store.durability)
    }

    fn delete(&self, key: &[u8]) -> Result<bool> {
        Self::delete(self, key)
    }

    fn apply(&self, changes: &[Change<'_>]) -> Result<()> {
        let durability = self.store.durability;
        // One wait for all of them: what is not waited for is at least visible.
        let each = durability.min(Durability::Async);
        for change in changes {
            match change {
                Change::Put { key, value } => self.put_with(key, value, each)?,
                Change::Delete { key } => drop(self.delete_with(key, each)?),
            }
        }
        if durability == Durability::Sync { self.sync() } else { Ok(()) }
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
}
