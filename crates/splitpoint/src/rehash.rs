//! Moves a store to another hash function or seed.
//!
//! ```text
//! FILE, locked --index--> addresses of the live records, sorted
//!      |                               |
//!      +------log, verified--> the live records, in their order --> FILE.rehash-in-progress
//!                                                                            | synced, renamed
//!                                                                          FILE
//! ```
//!
//! The log of a compacted store does not contain all its records: the segments of such a store are
//! read one after the other, in file order.
//!
//! A rehash collects the live records from the slots of the index. A scan instead looks up each
//! record in the index, and so walks the chain of its bucket each time: that takes seconds for
//! 100,000 keys that were chosen to collide, and such keys are the reason to rehash a store.
//!
//! # Invariants
//!
//! - The old store is locked for writing before its first byte is read, until the new one has its
//!   name and the directory is durable. The new one is locked as well, so that no process changes
//!   it before then.
//! - Log and index agree: each slot holds a record of the log that nothing has replaced, each
//!   checksum is right, and both have as many records as the live header says. Otherwise the old
//!   store stays as it is. In a compacted store it is not known which records were replaced; that
//!   no key has two slots is checked there too.
//! - The new store gets its name only when it is complete, closed and durable.

use std::fmt;
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

use crate::atomic::Ordering;
use crate::error::{Error, Result};
use crate::format::{Addr, LIVE_OFFSET, SegmentHeader};
use crate::hash::HashFunction;
use crate::index::Lines;
use crate::index::line::{LINE_BYTES, SLOT_COUNT};
use crate::index::lookup::for_each_line;
use crate::index::shape::Shape;
use crate::linear::BucketIndex;
use crate::log::record::{Record, RecordKind};
use crate::log::runs::RunWalk;
use crate::log::scan::{Changes, LogWalk, Logged, Step, Trust};
use crate::options::{Access, Create, Durability, Options, Sharing};
use crate::recovery::{open_file, open_storage};
use crate::stats::Recovery;
use crate::storage::Storage;
use crate::storage::new_file::NewFile;
use crate::store::Store;
use crate::table::PutMode;

/// Buckets between two calls of the progress function.
const BUCKETS_PER_CALL: u64 = 8192;
/// Records, and bytes of log, between two calls of the progress function.
const RECORDS_PER_CALL: u64 = 1024;
const BYTES_PER_CALL: u64 = 2 << 20;

/// Gives the store in the file at `path` a new random seed.
///
/// Shorthand for [`Rehash::run`] with default options.
///
/// # Errors
///
/// As [`Rehash::run`].
///
/// # Examples
///
/// ```
/// # fn main() -> splitpoint::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("words.spt");
/// let db = splitpoint::Db::open(&path)?;
/// db.put(b"key", b"value")?;
/// db.close()?;
/// assert_eq!(splitpoint::rehash::rehash(&path)?.record_count, 1);
/// # Ok(())
/// # }
/// ```
pub fn rehash(path: impl AsRef<Path>) -> Result<RehashReport> {
    Rehash::of_file(path).run()
}

/// Moves a store to another hash function or seed: set options, then [`run`](Self::run) it.
///
/// This is the remedy for keys that were chosen to collide; `docs/hashing.md` says which function
/// to take. The live records stay the same and keep their order: log order, or file order if the
/// store was compacted. Replaced and deleted records are dropped.
///
/// # Examples
///
/// ```
/// # fn main() -> splitpoint::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("users.spt");
/// # splitpoint::Db::open(&path)?.put(b"alice", b"1")?;
/// use std::ops::ControlFlow;
/// use splitpoint::{Db, hash::HashFunction, rehash::Rehash};
///
/// let report = Rehash::of_file(&path)
///     .hash(HashFunction::siphash_1_3())
///     .on_progress(|progress| {
///         println!("{} of {} bytes", progress.bytes, progress.bytes_total);
///         ControlFlow::Continue(())
///     })
///     .run()?;
/// assert_eq!((&*report.old_hash, &*report.new_hash), ("rapidhash-v3", "siphash-1-3"));
/// assert_eq!(Db::open(&path)?.get(b"alice")?.as_deref(), Some(&b"1"[..]));
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is changed before `run`"]
pub struct Rehash<'a> {
    path: PathBuf,
    options: Options,
    hash: Option<HashFunction>,
    seed: Option<u64>,
    watch: Watch<'a>,
}

/// What a rehash is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RehashStage {
    /// Reading the index to find the live records.
    Index,
    /// Reading and verifying the log, and writing the live records to the new store.
    Copy,
    /// About to make the new store durable and to give it its name. This is reported once, as the
    /// last stage.
    Sync,
}

/// Progress of a rehash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RehashProgress {
    /// The current stage.
    pub stage: RehashStage,
    /// Records written to the new store.
    pub records: u64,
    /// Bytes that this stage has read so far.
    pub bytes: u64,
    /// Bytes that this stage reads in all; 0 in [`RehashStage::Sync`].
    pub bytes_total: u64,
}

/// Result of a rehash.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RehashReport {
    /// Records in the store, before and after.
    pub record_count: u64,
    /// The name of the hash function before.
    pub old_hash: String,
    /// The name of the hash function now.
    pub new_hash: String,
    /// Size of the file in bytes before.
    pub old_file_bytes: u64,
    /// Size of the file in bytes now.
    pub new_file_bytes: u64,
    /// How the rehash got the index of the old store, which is recovered first if a session ended
    /// in a crash.
    pub recovery: Recovery,
}

impl<'a> Rehash<'a> {
    /// Prepares to rehash the store in the file at `path`; [`run`](Self::run) does it.
    pub fn of_file(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref().to_path_buf();
        Self { path, options: Options::new(), hash: None, seed: None, watch: Watch(None) }
    }

    /// Sets the options with which to open the old store.
    ///
    /// They are needed if the store was created with [`HashFunction::user`], and useful to bound
    /// the cache or to watch the progress of a recovery. Options for new stores have no effect.
    pub fn opened_with(mut self, options: &Options) -> Self {
        self.options = options.clone();
        self
    }

    /// Sets the new hash function; by default the store keeps its own and gets a new seed.
    pub fn hash(mut self, function: HashFunction) -> Self {
        self.hash = Some(function);
        self
    }

    /// Sets the new seed; random by default, which is what keeps a keyed function safe.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Calls `function` when the new file exists, and then regularly until the rehash ends.
    ///
    /// If it returns `Break`, the rehash stops and the store stays as it is.
    pub fn on_progress(
        mut self,
        function: impl FnMut(RehashProgress) -> ControlFlow<()> + 'a,
    ) -> Self {
        self.watch = Watch(Some(Box::new(function)));
        self
    }

    /// Writes the live records to a new store, and replaces the old one with it.
    ///
    /// The new store is called `FILE.rehash-in-progress` until it is complete and durable, and then
    /// takes the name with one rename. So at every moment, also after a kill or a power loss, the
    /// file is either the old store or the new one. A killed process leaves the unfinished store
    /// behind; the next rehash removes it, and you may, too.
    ///
    /// Meanwhile the store is locked as by a handle that writes. If `path` is a symbolic link, the
    /// link stays and the file that it points to is replaced. The new file gets the permissions,
    /// owner, access list and user attributes of the old one, as far as this process may set them.
    ///
    /// # Errors
    ///
    /// After an error the store is as it was, and no other file is left. The one exception is the
    /// last step: if the directory cannot be synced, the new store already has the name, and a
    /// power loss may bring the old one back.
    ///
    /// - As [`Options::open`]; [`ErrorKind::Locked`](crate::ErrorKind::Locked) if any handle has
    ///   the store open, even in this process and even for reading.
    /// - [`ErrorKind::HashMismatch`](crate::ErrorKind::HashMismatch) if it was created with a
    ///   [user's function](HashFunction::user) that [`opened_with`](Self::opened_with) does not
    ///   give.
    /// - [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if a record, live or dead, or the index
    ///   is damaged; [`repair`](fn@crate::repair::repair) saves what can be read.
    /// - [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the file has several names
    ///   (hard links), because the others would keep the old store.
    /// - [`ErrorKind::Io`](crate::ErrorKind::Io) if the operating system refuses, the disk is full,
    ///   or the progress function returned `Break` ([`io::ErrorKind::Interrupted`]).
    /// - [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly) if the options are for reading only.
    ///
    /// # Durability
    ///
    /// The new store is durable under its name when this returns.
    ///
    /// # Cost
    ///
    /// Reads the index and the log once, and writes each live record once. Needs disk space for the
    /// live records and an index beside the old file, and 8 bytes of memory per record; for a batch
    /// also about 100 bytes per change. Keys that share a long chain under the old function cost no
    /// more than others; under the new function each key costs an ordinary put.
    pub fn run(mut self) -> Result<RehashReport> {
        if self.options.access == Access::ReadOnly {
            return Err(Error::ReadOnly);
        }
        let options = self.options.clone().create(Create::Never).sharing(Sharing::Exclusive);
        let opened = open_file(&self.path, &options)?;
        let source = Store::new(opened, &options);
        let replaced = self.replace(&source);
        if replaced.is_err() {
            // Close it so that its recovery need not be repeated. The first error is the one to
            // return.
            let _ = source.close();
        }
        replaced
    }

    fn replace(&mut self, source: &Store) -> Result<RehashReport> {
        let new = NewFile::begin_over(&self.path, source.region.storage().identity(), "rehash")?;
        let options = self.new_options(source)?;
        let report = rewrite(source, Box::new(new.storage()?), &options, &mut self.watch)?;
        new.publish()?;
        Ok(report)
    }

    /// Returns the options of the new store.
    fn new_options(&self, source: &Store) -> Result<Options> {
        let writer = source.lock()?;
        let superblock = &writer.superblock;
        let hash = self.hash.clone().unwrap_or_else(|| source.hash.clone());
        let options = Options {
            cache_bytes: self.options.cache_bytes,
            seed: self.seed,
            has_gdbm_mark: superblock.has_gdbm_mark,
            application_data: superblock.application_data,
            // The new store is closed at once: its first checkpoint is left to the next session.
            checkpoint_bytes_min: u64::MAX,
            ..Options::new()
        };
        Ok(options
            .hash(hash)
            .fill_factor(f64::from(superblock.fill_thousandths) / 1000.0)
            .segment_bytes_min(superblock.segment_bytes_min.into())
            .durability(Durability::Buffered))
    }
}

impl fmt::Debug for Rehash<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, hash, .. } = self;
        f.debug_struct("Rehash").field("path", path).field("hash", hash).finish_non_exhaustive()
    }
}

/// The caller's progress function, if any.
struct Watch<'a>(Option<Box<dyn FnMut(RehashProgress) -> ControlFlow<()> + 'a>>);

impl Watch<'_> {
    /// Reports the progress of the rehash of `source`, and returns an error if the caller stops it.
    fn report(&mut self, source: &Store, now: RehashProgress) -> Result<()> {
        match self.0.as_mut().map_or(ControlFlow::Continue(()), |function| function(now)) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Io {
                action: "finish the rehash of",
                path: source.region.storage().path().to_path_buf(),
                source: io::ErrorKind::Interrupted.into(),
            }),
        }
    }
}

/// Writes the live records of `source` to a new store in `storage`, which is empty, and closes it.
///
/// After an error the contents of the storage are incomplete and not synced.
fn rewrite(
    source: &Store,
    storage: Box<dyn Storage>,
    options: &Options,
    watch: &mut Watch<'_>,
) -> Result<RehashReport> {
    // Report once at the start: the new file exists now.
    watch.report(source, Held::progress(source, 0))?;
    let held = Held::collect(source, watch)?;
    let record_count = held.addrs.len() as u64;
    expect_count("record count", record_count, source.region.live().record_count())?;
    let options = options.clone().expected_records(record_count);
    let target = Store::new(open_storage(storage, &options, true)?, &options);
    let (start, end, runs) = {
        let mut writer = source.lock()?;
        let runs = if writer.is_log_whole() {
            None
        } else {
            writer.find_segments()?;
            writer.runs()
        };
        (writer.superblock.log_start, writer.log.position(), runs)
    };
    let mut copy = Copy { source, target: &target, held, records: 0, big_bytes: 0 };
    if let Some(runs) = runs {
        copy.read_runs(&runs, watch)?;
    } else if let Some(walk) = LogWalk::new(&source.region.view, start, Trust::Verified, end.lsn)? {
        copy.read(walk, end.lsn, watch)?;
    }
    expect_count("slot count", copy.records, record_count)?;
    let records = copy.records;
    let stage = RehashStage::Sync;
    watch.report(source, RehashProgress { stage, records, bytes: 0, bytes_total: 0 })?;
    target.close()?;
    expect_count("record count", record_count, target.region.live().record_count())?;
    Ok(RehashReport {
        record_count,
        old_hash: source.hash.name().to_string(),
        new_hash: target.hash.name().to_string(),
        old_file_bytes: source.region.view.file_bytes(),
        new_file_bytes: target.region.view.file_bytes(),
        recovery: source.recovery,
    })
}

fn expect_count(what: &'static str, expected: u64, found: u64) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(Error::Corrupt { what, offset: LIVE_OFFSET, expected, found })
}

/// The addresses in the slots of a store, ascending: its live records.
///
/// A bitmap with a bit for each 8 bytes of the file would be faster to query, but its size follows
/// the file, which may be full of dead bytes; the size of this list follows the index.
#[derive(Debug)]
struct Held {
    addrs: Vec<u64>,
    /// Position of the first address that is not below the last address queried.
    next: usize,
}

impl Held {
    fn collect(store: &Store, watch: &mut Watch<'_>) -> Result<Self> {
        let (region, windows) = (&store.region, &store.region.windows);
        let bucket_count = bucket_count(store);
        // A damaged header must not make this allocate more than the slots could hold.
        let lines = bucket_count.saturating_add(windows.overflow_line_count());
        let capacity = region.live().record_count().min(lines.saturating_mul(SLOT_COUNT as u64));
        let mut addrs = Vec::with_capacity(usize::try_from(capacity).unwrap_or(0));
        for bucket in 0..bucket_count {
            if bucket % BUCKETS_PER_CALL == 0 {
                watch.report(store, Self::progress(store, bucket))?;
            }
            for_each_line(windows, BucketIndex(bucket), |_, line| {
                addrs.extend(line.slots_in_use().map(|(_, slot)| slot.addr().0));
            })?;
        }
        addrs.sort_unstable();
        Ok(Self { addrs, next: 0 })
    }

    /// Returns the progress after `buckets` buckets.
    fn progress(store: &Store, buckets: u64) -> RehashProgress {
        let (bytes, bytes_total) = (buckets * LINE_BYTES, bucket_count(store) * LINE_BYTES);
        RehashProgress { stage: RehashStage::Index, records: 0, bytes, bytes_total }
    }

    /// Returns whether the list has an address. Queries in ascending order, as in a walk along the
    /// log, are the cheapest: they compare with the next address only.
    fn has(&mut self, addr: Addr) -> bool {
        let Self { addrs, next } = self;
        let at = |i: usize| addrs.get(i).copied();
        if at(*next) == Some(addr.0) {
            *next += 1;
            return true;
        }
        let is_behind_last = next.checked_sub(1).is_none_or(|last| addrs[last] < addr.0);
        if is_behind_last && at(*next).is_none_or(|next| addr.0 < next) {
            return false;
        }
        *next = addrs.partition_point(|&held| held < addr.0);
        let is_found = addrs.get(*next) == Some(&addr.0);
        *next += usize::from(is_found);
        is_found
    }

    /// As [`has`](Self::has), for an address that is not in ascending order.
    fn has_elsewhere(&self, addr: Addr) -> bool {
        self.addrs.binary_search(&addr.0).is_ok()
    }
}

fn bucket_count(store: &Store) -> u64 {
    let shape = Shape::of_word(store.region.windows.shape().load(Ordering::Acquire));
    shape.geometry.bucket_count()
}

/// The pass over the log that copies the live records.
struct Copy<'a> {
    source: &'a Store,
    target: &'a Store,
    held: Held,
    records: u64,
    big_bytes: u64,
}

impl<'a> Copy<'a> {
    /// Reads the log to its end, `end_lsn`.
    fn read(&mut self, walk: LogWalk<'a>, end_lsn: u64, watch: &mut Watch<'_>) -> Result<()> {
        let bytes_total = end_lsn.saturating_add(self.source.region.live().big_bytes());
        let mut log = Changes::new(walk);
        let mut reported_bytes = 0;
        loop {
            let mut taken = Ok(());
            let record = log.read_next(
                |change| change,
                |step| {
                    if let (Step::Change(change), true) = (step, taken.is_ok()) {
                        taken = self.take(change);
                    }
                },
            )?;
            taken?;
            if record.is_none() {
                break;
            }
            let bytes = log.position().lsn + self.big_bytes;
            if log.record_count().is_multiple_of(RECORDS_PER_CALL)
                || bytes - reported_bytes >= BYTES_PER_CALL
            {
                reported_bytes = bytes;
                let (stage, records) = (RehashStage::Copy, self.records);
                let now = RehashProgress { stage, records, bytes, bytes_total };
                watch.report(self.source, now)?;
            }
        }
        let (offset, found) = (log.position().offset, log.position().lsn);
        if found != end_lsn {
            let what = "end of the log";
            return Err(Error::Corrupt { what, offset, expected: end_lsn, found });
        }
        let (stage, records) = (RehashStage::Copy, self.records);
        let now = RehashProgress { stage, records, bytes: bytes_total, bytes_total };
        watch.report(self.source, now)
    }

    /// Reads the segments of a compacted store, whose log does not contain all records.
    fn read_runs(&mut self, runs: &[Range<u64>], watch: &mut Watch<'_>) -> Result<()> {
        let (source, stage) = (self.source, RehashStage::Copy);
        let bytes_total = runs.iter().map(|run| run.end - run.start).sum();
        let (mut bytes, mut reported_bytes) = (0, 0);
        for run in runs {
            let salt = source.region.view.segment(run.start - SegmentHeader::BYTES)?.salt;
            let mut walk = RunWalk::of_one(&source.region.view, run.clone());
            while let Some(record) = walk.next_record()? {
                record.verify(salt)?;
                let is_pair = matches!(record.header.kind, RecordKind::Put | RecordKind::Big);
                if is_pair && self.held.has(record.addr()) {
                    self.put(&record)?;
                }
            }
            bytes += run.end - run.start;
            if bytes - reported_bytes >= BYTES_PER_CALL || bytes == bytes_total {
                reported_bytes = bytes;
                let records = self.records;
                watch.report(source, RehashProgress { stage, records, bytes, bytes_total })?;
            }
        }
        Ok(())
    }

    /// Takes one change that is in effect: a change outside a batch, or one of a committed batch.
    fn take(&mut self, change: Logged<'_>) -> Result<()> {
        let (pair, prev) = match change {
            Logged::Put { pair, prev } => (Some(pair), prev),
            Logged::Delete { prev, .. } => (None, Some(prev)),
            Logged::Move { pair, from } => (Some(pair), Some(from.from)),
        };
        if let Some(prev) = prev.filter(|prev| self.held.has_elsewhere(*prev)) {
            let (what, offset) = ("slot of a replaced record", prev.offset());
            let expected = pair.map_or(0, |pair| pair.addr().0);
            return Err(Error::Corrupt { what, offset, expected, found: prev.0 });
        }
        let Some(pair) = pair else { return Ok(()) };
        if pair.header.kind == RecordKind::Big {
            self.big_bytes += pair.bytes.len() as u64;
        }
        if self.held.has(pair.addr()) { self.put(&pair) } else { Ok(()) }
    }

    fn put(&mut self, pair: &Record<'_>) -> Result<()> {
        let (key, value) = (pair.key(), pair.value());
        let mut writer = self.target.lock_for_change()?;
        let (mode, durability) = (PutMode::New, Durability::Buffered);
        if !self.target.put_at_once(&mut writer, key, value, mode, durability)? {
            let (what, offset) = ("slot of a key that has another", pair.offset);
            return Err(Error::Corrupt { what, offset, expected: 1, found: 2 });
        }
        self.records += 1;
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
