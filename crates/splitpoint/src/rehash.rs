//! Move a store to another hash function or seed.
//!
//! ```text
//! FILE, locked --index--> addresses of the live records, sorted
//!      |                               |
//!      +------log, verified--> the live records, in their order --> FILE.rehash-in-progress
//!                                                                            | synced, renamed
//!                                                                          FILE
//! ```
//!
//! The slots of the index tell which records are live. To ask the index about each record, as a
//! scan does, would walk the chain of its bucket each time: seconds for 100,000 keys that were
//! chosen to collide, and it is for such keys that a store is rehashed.
//!
//! # Invariants
//!
//! - The old store is locked for writing from the first look at it until the new one has its name
//!   and the directory is durable; the new one is locked as well, so that nobody changes it before.
//! - Log and index agree: each slot holds a record of the log that nothing has replaced, each
//!   checksum is right, and both have as many records as the live header says. Otherwise the store
//!   stays as it is.
//! - The new store has its name only when it is whole, closed and durable.

use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::atomic::Ordering;
use crate::error::{Error, Result};
use crate::format::{Addr, LIVE_OFFSET};
use crate::hash::HashFunction;
use crate::index::Lines;
use crate::index::line::{LINE_BYTES, SLOT_COUNT};
use crate::index::lookup::for_each_line;
use crate::index::shape::Shape;
use crate::linear::BucketIndex;
use crate::log::record::{Record, RecordKind};
use crate::log::scan::{Changes, LogWalk, Logged, Step, Trust};
use crate::options::{Access, Create, Durability, Options};
use crate::recovery::{open_file, open_storage};
use crate::stats::Recovery;
use crate::storage::Storage;
use crate::storage::new_file::NewFile;
use crate::store::Store;
use crate::table::PutMode;

/// Buckets between two calls of the progress function.
const BUCKETS_PER_CALL: u64 = 8192;
/// Records, and bytes of log, between two calls.
const RECORDS_PER_CALL: u64 = 1024;
const BYTES_PER_CALL: u64 = 2 << 20;

/// Gives the store in the file at `path` a new seed, drawn at random.
///
/// As [`Rehash::run`] with nothing else asked.
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

/// A store that is about to be moved to another hash function or seed.
///
/// It is the remedy for keys that were chosen to collide: `docs/hashing.md` says which function
/// to take. The records stay the same, in the same order; what deletes and newer values have left
/// dead is left out.
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
    /// Reading the index, to learn which records are live.
    Index,
    /// Reading and verifying the log, and writing the live records to the new store.
    Copy,
    /// About to make the new store durable and to give it its name: this is told once, and is the
    /// last.
    Sync,
}

/// How far a rehash is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RehashProgress {
    /// What is being done.
    pub stage: RehashStage,
    /// Records in the new store.
    pub records: u64,
    /// Bytes that this stage has read.
    pub bytes: u64,
    /// How many there are; 0 of [`RehashStage::Sync`].
    pub bytes_total: u64,
}

/// What a rehash has done.
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
    /// How the old store was found: what a killed process or a power loss left was recovered first.
    pub recovery: Recovery,
}

impl<'a> Rehash<'a> {
    /// Prepares to rehash the store in the file at `path`.
    pub fn of_file(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref().to_path_buf();
        Self { path, options: Options::new(), hash: None, seed: None, watch: Watch(None) }
    }

    /// Sets how the store is opened: with the function of the user that it was made with, a bound
    /// on the cache, or a function that is told of a recovery. What concerns new stores has no
    /// effect.
    pub fn opened_with(mut self, options: &Options) -> Self {
        self.options = options.clone();
        self
    }

    /// Sets the new hash function; without it the store keeps its own and gets a new seed.
    pub fn hash(mut self, function: HashFunction) -> Self {
        self.hash = Some(function);
        self
    }

    /// Sets the new seed; random by default, which is what keeps a keyed function safe.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Calls `function` when the new file has been made, and then now and then; the store stays as
    /// it is when it returns `Break`.
    pub fn on_progress(
        mut self,
        function: impl FnMut(RehashProgress) -> ControlFlow<()> + 'a,
    ) -> Self {
        self.watch = Watch(Some(Box::new(function)));
        self
    }

    /// Writes every record to a new store beside the old one, and replaces the old one by it.
    ///
    /// The new store is called `FILE.rehash-in-progress` until it is whole and durable, then takes
    /// the name by one rename. So the file is the old store or the new one at every moment, also
    /// after a kill or a power loss. A killed process leaves the unfinished one; the next rehash of
    /// the store removes it, and so may anybody.
    ///
    /// The store is locked meanwhile, as by a handle that may write. A symbolic link stays and the
    /// file that it leads to is replaced. Permissions, owner, access list and the attributes that a
    /// user has set are those of the old file, as far as this process may set them.
    ///
    /// # Errors
    ///
    /// After an error the store is as it was, and no other file is left. The exception is the very
    /// last step: if the directory cannot be synced, the new store has the name, and a power loss
    /// may bring the old one back.
    ///
    /// - As [`Options::open`]; [`ErrorKind::Locked`](crate::ErrorKind::Locked) if any handle has
    ///   the store open, also in this process and also for reading.
    /// - [`ErrorKind::HashMismatch`](crate::ErrorKind::HashMismatch) if it was made with a function
    ///   of the user that [`opened_with`](Self::opened_with) does not give.
    /// - [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if a record, live or dead, or the index
    ///   is damaged; [`repair`](fn@crate::repair::repair) saves what can be read.
    /// - [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the file has several names
    ///   (hard links): the others would keep the old store.
    /// - [`ErrorKind::Io`](crate::ErrorKind::Io) if the operating system refuses, the disk is full,
    ///   or the progress function gave up ([`io::ErrorKind::Interrupted`]).
    /// - [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly) if the options are for reading only.
    ///
    /// # Durability
    ///
    /// The new store is durable, under its name, when this returns.
    ///
    /// # Cost
    ///
    /// Reads index and log once, and writes each live record once. Needs as much disk as the live
    /// records and an index, beside the old file, and 8 bytes of memory for each record; for a
    /// batch also about 100 bytes for each of its changes. A key that the old function puts in a
    /// long chain costs no more than another; under the new function, a put costs what it always
    /// does.
    pub fn run(mut self) -> Result<RehashReport> {
        if self.options.access == Access::ReadOnly {
            return Err(Error::ReadOnly);
        }
        let options = self.options.clone().create(Create::Never);
        let opened = open_file(&self.path, &options)?;
        let source = Store::new(opened, &options);
        let replaced = self.replace(&source);
        if replaced.is_err() {
            // A recovery need not be done again. The error that led here is the one to tell.
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
            // It is of no use before the close, which gives it up.
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

/// Who wants to know how far the work is.
struct Watch<'a>(Option<Box<dyn FnMut(RehashProgress) -> ControlFlow<()> + 'a>>);

impl Watch<'_> {
    fn tell(&mut self, now: RehashProgress) -> Result<()> {
        match self.0.as_mut().map_or(ControlFlow::Continue(()), |function| function(now)) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Io {
                action: "finish",
                path: PathBuf::from("the rehash"),
                source: io::ErrorKind::Interrupted.into(),
            }),
        }
    }
}

/// Writes the live records of `source` to a new store in `storage`, which is empty, and closes it.
///
/// After an error what is in the storage is of no use, and is not synced either.
fn rewrite(
    source: &Store,
    storage: Box<dyn Storage>,
    options: &Options,
    watch: &mut Watch<'_>,
) -> Result<RehashReport> {
    // The file is there, which a caller may want to know.
    watch.tell(Held::progress(source, 0))?;
    let held = Held::collect(source, watch)?;
    let record_count = held.addrs.len() as u64;
    expect_count("record count", record_count, source.region.live().record_count())?;
    let options = options.clone().expected_records(record_count);
    let target = Store::new(open_storage(storage, &options, true)?, &options);
    let (start, end) = {
        let writer = source.lock()?;
        (writer.superblock.log_start, writer.log.position())
    };
    let mut copy = Copy { source, target: &target, held, records: 0, big_bytes: 0 };
    if let Some(walk) = LogWalk::new(&source.region.view, start, Trust::Verified, end.lsn)? {
        copy.read(walk, end.lsn, watch)?;
    }
    expect_count("slot count", copy.records, record_count)?;
    let records = copy.records;
    watch.tell(RehashProgress { stage: RehashStage::Sync, records, bytes: 0, bytes_total: 0 })?;
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

/// The addresses that the slots of a store hold, ascending: its live records.
///
/// A bit for each 8 bytes of the file would be faster to ask; its size follows the file, which may
/// be of dead bytes, and this one the index.
#[derive(Debug)]
struct Held {
    addrs: Vec<u64>,
    /// The first that is not behind the address that was asked for last.
    next: usize,
}

impl Held {
    fn collect(store: &Store, watch: &mut Watch<'_>) -> Result<Self> {
        let (region, windows) = (&store.region, &store.region.windows);
        let bucket_count = bucket_count(store);
        // What a damaged header says must not take more than the slots could hold.
        let lines = bucket_count.saturating_add(windows.overflow_line_count());
        let capacity = region.live().record_count().min(lines.saturating_mul(SLOT_COUNT as u64));
        let mut addrs = Vec::with_capacity(usize::try_from(capacity).unwrap_or(0));
        for bucket in 0..bucket_count {
            if bucket % BUCKETS_PER_CALL == 0 {
                watch.tell(Self::progress(store, bucket))?;
            }
            for_each_line(windows, BucketIndex(bucket), |_, line| {
                addrs.extend(line.slots_in_use().map(|(_, slot)| slot.addr().0));
            })?;
        }
        addrs.sort_unstable();
        Ok(Self { addrs, next: 0 })
    }

    /// Returns how far the work is when so many buckets have been read.
    fn progress(store: &Store, buckets: u64) -> RehashProgress {
        let (bytes, bytes_total) = (buckets * LINE_BYTES, bucket_count(store) * LINE_BYTES);
        RehashProgress { stage: RehashStage::Index, records: 0, bytes, bytes_total }
    }

    /// Returns whether an address is among them. It costs least if it is the next one, or lies
    /// before that and behind the last: as in a walk along the log.
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

    /// As [`has`](Self::has), for an address out of order.
    fn has_elsewhere(&self, addr: Addr) -> bool {
        self.addrs.binary_search(&addr.0).is_ok()
    }
}

fn bucket_count(store: &Store) -> u64 {
    let shape = Shape::of_word(store.region.windows.shape().load(Ordering::Acquire));
    shape.geometry.bucket_count()
}

/// The pass over the log.
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
        let mut told_bytes = 0;
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
                || bytes - told_bytes >= BYTES_PER_CALL
            {
                told_bytes = bytes;
                let (stage, records) = (RehashStage::Copy, self.records);
                watch.tell(RehashProgress { stage, records, bytes, bytes_total })?;
            }
        }
        let (offset, found) = (log.position().offset, log.position().lsn);
        if found != end_lsn {
            let what = "end of the log";
            return Err(Error::Corrupt { what, offset, expected: end_lsn, found });
        }
        let (stage, records) = (RehashStage::Copy, self.records);
        watch.tell(RehashProgress { stage, records, bytes: bytes_total, bytes_total })
    }

    /// Takes a change that counts: it is of no batch, or its batch was committed.
    fn take(&mut self, change: Logged<'_>) -> Result<()> {
        let (pair, prev) = match change {
            Logged::Put { pair, prev } => (Some(pair), prev),
            Logged::Delete { prev, .. } => (None, Some(prev)),
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
