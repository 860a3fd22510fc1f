//! The state of an open store and its changes: the only place where log and index meet.
//!
//! A change takes these steps in order: append the record, store its slot, publish the commit; then
//! split or merge a bucket if that is due.
//!
//! # Invariants
//!
//! - Only the thread that holds the lock of [`Writer`] stores to the file.
//! - The superblock is "not clean" before anything else in the file changes. It is so on the
//!   device, too, unless the clean superblock has checksums of what changes.
//! - An error leaves the store as it was before the change, except for space that was allocated.
//!
//! # Not here
//!
//! The API is in `db`, opening in `recovery`. Of the operations on an open store, this module has
//! lookups and the wait for the device; changes are in `put` and `batch`, splits and merges in
//! `resize`, checkpoints in `checkpointing`, the clean mark in `closing`.

mod accounting;
mod batch;
mod checkpointing;
mod closing;
mod compacting;
mod deleted;
mod glance;
mod known_segments;
mod large_batch;
mod lease;
mod maintaining;
mod pace;
mod put;
mod reserve;
mod resize;
mod room;
mod sampling;
mod segments;
mod transaction;
mod turns;
mod versions;

use std::cell::Cell;
use std::fmt;
use std::ops::DerefMut;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use crate::atomic::Ordering;
use crate::error::{Error, Result};
use crate::format::{APPLICATION_BYTES, Addr, GRANULE_BYTES, HEADER_BYTES, LogStart, Superblock};
use crate::graves::Graves;
use crate::hash::HashFunction;
use crate::holder::HolderRole;
use crate::horizons::Horizons;
use crate::index::Lines;
use crate::index::line::{LINE_BYTES, SLOT_COUNT};
use crate::index::lookup::{
    Candidate, Located, Start, find, find_candidate, for_each_line, is_held, locate,
};
use crate::index::shape::Shape;
use crate::index::slot::Tag;
use crate::index::split::Scratch;
use crate::instrument::{CountedLines, Instrument};
use crate::linear::{BucketIndex, Geometry};
use crate::live::{CommitState, LINES_USED_OFFSET, LineWindow, Live};
use crate::log::append::Appender;
use crate::log::durable::GroupCommit;
use crate::log::record::{Pair, Record};
use crate::options::{Access, Durability, Options, Sharing};
use crate::pins::Bunch;
use crate::reader::{AtCommit, Reader};
use crate::region::{Extents, Region, View, read_superblock};
use crate::stats::{Checkpoint, Lookups, Occupancy, ReaderStats, Recovery, SegmentBytes, Stats};
use crate::storage::failure::io_error;
use crate::storage::fork::Origin;
use crate::storage::holders::locked_storage;
use crate::storage::prefetch;
use crate::storage::reader_table::{LastWriter, OtherReaders, TakenPlace};
use crate::storage::shared_counts::SharedCounts;
use crate::value::Value;

pub(crate) use batch::HashedChange;
pub(crate) use checkpointing::Checkpointing;
pub(crate) use closing::Mark;
use compacting::Compacting;
pub(crate) use large_batch::Changes;
pub use maintaining::Maintenance;
pub(crate) use pace::{Pace, Step, Written};
pub(crate) use put::{Begun, Put, TOMBSTONE_BYTES, check_sizes};
pub(crate) use segments::committed_position;
pub(crate) use transaction::Reads;
pub(crate) use turns::{Changing, LastTurn, TakeOver};
use turns::{Turn, Turns};
pub(crate) use versions::{Hold, Places, Versions};

/// Keys that are looked up or changed as one group, while the buckets of the next group are being
/// prefetched. Takes 0.85 to 0.91 of the time of groups of 32 (`record/2026-11-23-xeon-106-2core`).
const GROUP: usize = 16;

/// Number of stores that this process has opened.
static STORES: AtomicU64 = AtomicU64::new(0);

/// The state that the threads of a handle share.
pub(crate) struct Store {
    /// Identifies the store within this process.
    pub(crate) number: u64,
    pub(crate) region: Arc<Region>,
    pub(crate) hash: HashFunction,
    pub(crate) seed: u64,
    pub(crate) access: Access,
    origin: Origin,
    /// The processes in which lookups may take the fast path: all for a table in memory or a
    /// private index; only the one that opened it for a file that this handle may change; none if
    /// another process may change the file.
    readable_in: Origin,
    /// Set on a handle that reads beside a writer of another handle.
    pub(crate) reader: Option<Reader>,
    /// The readers of other handles that a writer must wait for, if it lets any in.
    pub(crate) others: Option<Arc<OtherReaders>>,
    /// Set on a handle that changes the file by turns.
    turns: Option<Box<Turns>>,
    /// How a check waits: with what `Options` say of the wait of an open.
    pub(crate) waits: Box<Options>,
    pub(crate) durability: Durability,
    fill_thousandths: u64,
    pub(crate) recovery: Recovery,
    pub(crate) group: GroupCommit,
    instrument: Option<Instrument>,
    /// The moments to which open snapshots, scans and backups look back.
    pub(crate) horizons: Horizons,
    /// Where records are that were deleted since the oldest of these moments.
    graves: Graves,
    /// See `Options::max_snapshot_pin`.
    max_snapshot_pin: Option<u64>,
    /// See `Options::transaction_bytes`.
    pub(crate) transaction_bytes: u64,
    writer: Mutex<Writer>,
    /// The [`this_thread`] number of the thread that runs a function of the program under the lock,
    /// or 0.
    calling: AtomicUsize,
    /// Held while a superblock is written without the writer's lock.
    superblock_writes: Mutex<()>,
    /// Held while the reserve is refilled without the writer's lock.
    regaining: Mutex<()>,
}

/// The state that only the thread with the writer's lock uses.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each says something else about the handle")]
pub(crate) struct Writer {
    pub(crate) log: Appender,
    pub(crate) extents: Extents,
    pub(crate) state: CommitState,
    pub(crate) superblock: Superblock,
    /// Application data whose write failed. The file may have it all the same.
    doubtful_data: Option<[u8; APPLICATION_BYTES]>,
    pub(crate) mark: Mark,
    /// Where the log ended when the store was opened.
    opened_lsn: u64,
    /// Size of the file at its first change, which the first sync makes durable at the latest; 0 if
    /// there was no change.
    begun_file_bytes: u64,
    pub(crate) pace: Pace,
    /// Whether stores through the mapping may allocate space, as on a copy-on-write file system.
    needs_room: bool,
    pub(crate) is_closed: bool,
    /// Whether the close also punches holes for small free extents.
    is_maintained: bool,
    /// The state of the turn, on a handle that takes turns.
    turn: Turn,
    pub(crate) checkpoints: Checkpointing,
    /// The state of compaction; `None` if this handle does not compact.
    compacting: Option<Box<Compacting>>,
    /// Bytes of dead records in segments that have been emptied, which the counts no longer
    /// include.
    retired_bytes: u64,
    /// The log sequence number from which it is worth trying again to refill the reserve.
    regaining_lsn: u64,
    /// Dead bytes when a put last failed to gain any space by compaction.
    pub(crate) hopeless_dead_bytes: u64,
    /// Whether an error may have left records that no slot holds and that were not counted as dead.
    pub(crate) has_stray_records: bool,
    /// Changes since the store was opened; a batch counts as one.
    pub(crate) change_count: u64,
    scratch: Scratch,
}

impl Writer {
    pub(crate) fn new(
        log: Appender,
        extents: Extents,
        state: CommitState,
        superblock: Superblock,
    ) -> Self {
        let is_new = superblock.log_start == LogStart::default();
        Self {
            opened_lsn: log.position().lsn,
            begun_file_bytes: 0,
            log,
            extents,
            state,
            superblock,
            doubtful_data: None,
            mark: if is_new { Mark::New } else { Mark::Clean },
            pace: Pace::new(None, Written::default()),
            needs_room: false,
            is_closed: false,
            is_maintained: false,
            turn: Turn::default(),
            checkpoints: Checkpointing::default(),
            compacting: None,
            retired_bytes: 0,
            regaining_lsn: 0,
            hopeless_dead_bytes: 0,
            has_stray_records: false,
            change_count: 0,
            scratch: Scratch::default(),
        }
    }
}

impl Writer {
    /// Returns a second writer state, which a handle that takes turns uses to look at the file
    /// outside of its turns.
    fn looking(&self, region: &Arc<Region>) -> Self {
        let (least, most) = (self.superblock.segment_bytes_min, self.superblock.segment_bytes_max);
        let mut log = Appender::new(0, least.into(), most.into());
        log.set_read_position(self.log.position());
        Self::new(log, Extents::of(region), self.state, self.superblock.clone())
    }

    /// Returns the log position and the bytes written so far.
    #[inline]
    fn written(&self) -> Written {
        let bytes = self.state.live_bytes + self.state.dead_bytes + self.retired_bytes;
        Written { lsn: self.log.position().lsn, bytes }
    }
}

/// The result of opening a store: see `recovery`.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) region: Arc<Region>,
    pub(crate) hash: HashFunction,
    pub(crate) writer: Writer,
    pub(crate) recovery: Recovery,
    pub(crate) durable_lsn: u64,
    /// Set on a handle that reads beside a writer of another handle.
    pub(crate) reader: Option<Reader>,
    /// The readers of other handles that a writer must wait for, if it lets any in.
    pub(crate) others: Option<Arc<OtherReaders>>,
    /// Begins a turn, on a handle that takes turns.
    pub(crate) take_over: Option<Box<dyn TakeOver>>,
    /// The writer that had the last turn before the store was opened.
    pub(crate) last_writer: LastWriter,
}

impl Opened {
    /// Returns the result for a handle that shares the file with nobody.
    pub(crate) fn new(
        region: Arc<Region>,
        hash: HashFunction,
        writer: Writer,
        recovery: Recovery,
        durable_lsn: u64,
    ) -> Self {
        let (reader, others, take_over) = (None, None, None);
        let last_writer = LastWriter::UNKNOWN;
        Self { region, hash, writer, recovery, durable_lsn, reader, others, take_over, last_writer }
    }

    /// Lets other handles open the file, as far as `sharing` allows.
    pub(crate) fn let_others_in(&mut self, sharing: Sharing) -> Result<()> {
        let storage = self.region.storage();
        if let Some(shared) = storage.neighbours() {
            let others = shared.let_others_in(sharing);
            self.others = others.map_err(|source| io_error("lock", storage.path(), source))?;
        }
        if let Some(others) = &self.others {
            self.region.pins.wait_for(Box::new(others.clone()));
        }
        match sharing {
            Sharing::Shared => self.reader = Some(Reader::new(&self.region, false)?),
            Sharing::PerCall => self.reader = Some(Reader::per_call(&self.region)?),
            Sharing::OneWriter | Sharing::Exclusive => {}
        }
        Ok(())
    }
}

impl Store {
    /// Creates the store from the result of an open.
    pub(crate) fn new(opened: Opened, options: &Options) -> Self {
        let Opened {
            region,
            hash,
            mut writer,
            recovery,
            durable_lsn,
            mut reader,
            others,
            take_over,
            last_writer,
        } = opened;
        if let (Some(reader), Some(wait_max)) = (&mut reader, options.lock_timeout) {
            reader.set_wait_max(wait_max);
        }
        if let Some(cache_bytes) = options.cache_bytes
            && !region.storage().is_volatile()
        {
            region.view.set_cache_bytes(cache_bytes);
        }
        assert!(
            options.access == Access::ReadWrite || writer.mark != Mark::Changing,
            "a handle that only reads has marked nothing"
        );
        let group = GroupCommit::new(region.health().clone());
        group.start_at(durable_lsn);
        writer.pace = Pace::new(options.async_age_max, writer.written());
        if options.access == Access::ReadWrite && !region.storage().is_volatile() {
            writer.schedule_first_checkpoint(&region, options.checkpoint_bytes_min);
        }
        let origin = Origin::here();
        let is_changed = options.access == Access::ReadWrite && !region.storage().is_volatile();
        let readable_in = match (&reader, is_changed) {
            (Some(_), _) => Origin::nowhere(),
            (None, true) => origin,
            (None, false) => Origin::everywhere(),
        };
        let turns = take_over.map(|take_over| {
            let looking = writer.looking(&region);
            Box::new(Turns::new(take_over, options, looking))
        });
        let is_left = !matches!(recovery, Recovery::Created | Recovery::Clean);
        if is_changed && is_left && turns.is_none() && writer.superblock.is_compacted {
            writer.checkpoints.is_excess = writer.extents.inherit_free();
        }
        let store = Self {
            number: STORES.fetch_add(1, Ordering::Relaxed),
            region,
            reader,
            others,
            turns,
            hash,
            seed: writer.superblock.seed,
            access: options.access,
            origin,
            readable_in,
            waits: Box::new(options.only_waits()),
            durability: options.durability,
            fill_thousandths: writer.superblock.fill_thousandths.into(),
            recovery,
            group,
            instrument: options.instrument.then(Instrument::new),
            horizons: Horizons::default(),
            graves: Graves::default(),
            max_snapshot_pin: options.max_snapshot_pin,
            transaction_bytes: options.transaction_bytes,
            writer: Mutex::new(writer),
            calling: AtomicUsize::new(0),
            superblock_writes: Mutex::default(),
            regaining: Mutex::default(),
        };
        if options.access == Access::ReadWrite
            && let Some(live_share) = options.live_share
        {
            let mut writer = store.writer.lock().unwrap_or_else(PoisonError::into_inner);
            writer.begin_compaction(&store, live_share, options);
            if let Some(compacting) = writer.compacting.as_mut().filter(|_| store.takes_turns()) {
                compacting.state.pay_at_once();
            }
        }
        store.end_opening(last_writer.turn);
        store.region.storage().end_opening();
        store
    }

    /// Locks out writes of superblocks. A caller that also needs the writer's lock takes that one
    /// first.
    pub(crate) fn superblock_writes(&self) -> MutexGuard<'_, ()> {
        self.superblock_writes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the hash of a key.
    #[inline]
    pub(crate) fn hash_of(&self, key: &[u8]) -> u64 {
        self.hash.hash(key, self.seed)
    }

    #[inline]
    fn shape(&self) -> Shape {
        Shape::of_word(self.region.windows.shape().load(Ordering::Acquire))
    }

    /// Returns the present shape of the table.
    #[inline]
    pub(crate) fn geometry(&self) -> Geometry {
        self.shape().geometry
    }

    #[inline]
    pub(crate) fn prefetch_bucket(&self, hash: u64) {
        self.region.windows.prefetch_bucket(self.shape().geometry.bucket_of(hash));
    }

    /// Prefetches the records of a bucket whose tags match.
    #[inline]
    pub(crate) fn prefetch_candidates(&self, hash: u64) {
        let line = self.region.windows.bucket(self.shape().geometry.bucket_of(hash));
        let mut candidates = line.match_tag(Tag::of_hash(hash));
        while candidates != 0 {
            let slot = line.slot(candidates.trailing_zeros() as usize);
            if !slot.is_empty() {
                self.region.view.prefetch_record(slot.addr());
            }
            candidates &= candidates - 1;
        }
    }

    /// Returns the value of a key, pinned.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Result<Option<Value<'_>>> {
        self.find_hashed(key, self.hash_of(key))
    }

    #[inline]
    pub(crate) fn find_hashed(&self, key: &[u8], hash: u64) -> Result<Option<Value<'_>>> {
        if !self.readable_in.is_here() {
            return self.find_beside(key, hash);
        }
        let Region { view, windows, pins, .. } = &*self.region;
        if let Some(instrument) = &self.instrument {
            let pin = pins.pin();
            let found = self.find_counted(windows, instrument, key, hash)?;
            return Ok(found.map(|pair| Value::pinned(pair.value, pin)));
        }
        let Some(candidate) = find_candidate(windows, hash)? else { return Ok(None) };
        let pin = pins.pin();
        match candidate.find_pinned(windows, hash, |addr| key_at(view, addr, key)) {
            Ok(Some(pair)) => Ok(Some(Value::pinned(pair.value, pin))),
            other => other.map(|_| None),
        }
    }

    /// Returns the record of a key, for a caller that holds a pin.
    #[inline]
    pub(crate) fn find_while_pinned(&self, key: &[u8], hash: u64) -> Result<Option<Pair<'_>>> {
        if !self.readable_in.is_here() {
            return self.find_beside_while_pinned(key, hash);
        }
        if let Some(instrument) = &self.instrument {
            return self.find_counted(&self.region.windows, instrument, key, hash);
        }
        let Region { view, windows, .. } = &*self.region;
        find(windows, hash, |addr| key_at(view, addr, key))
    }

    /// Calls `each` with the records of `keys` in order, for a caller that holds a pin. The cache
    /// misses of a group of keys overlap: first those of their buckets, then those of their
    /// records.
    #[inline]
    pub(crate) fn find_many_while_pinned<'a>(
        &'a self,
        keys: &[&[u8]],
        mut each: impl FnMut(Option<Pair<'a>>),
    ) -> Result<()> {
        if !self.readable_in.is_here() || self.instrument.is_some() {
            for key in keys {
                each(self.find_while_pinned(key, self.hash_of(key))?);
            }
            return Ok(());
        }
        let Region { view, windows, .. } = &*self.region;
        let ask_for_buckets = |keys: &[&[u8]], starts: &mut [Option<(u64, Start<'a>)>; GROUP]| {
            for (start, key) in starts.iter_mut().zip(keys) {
                let hash = self.hash_of(key);
                *start = Some((hash, Start::of_hash(windows, hash)));
            }
            for (_, start) in starts.iter().take(keys.len()).flatten() {
                prefetch(ptr::from_ref(start.line()).cast());
            }
        };
        let mut groups = keys.chunks(GROUP).peekable();
        let mut starts = [None; GROUP];
        if let Some(group) = groups.peek() {
            ask_for_buckets(group, &mut starts);
        }
        while let Some(group) = groups.next() {
            let mut candidates = [const { None }; GROUP];
            for (candidate, &start) in candidates.iter_mut().zip(&starts[..group.len()]) {
                let Some((hash, start)) = start else { continue };
                *candidate = start.find_candidate(windows, hash)?.map(|found| (hash, found));
            }
            for addr in candidates.iter().flatten().filter_map(|(_, found)| found.first()) {
                view.prefetch_record(addr);
            }
            // Prefetch the buckets of the next group before the keys of this group are compared.
            if let Some(next) = groups.peek() {
                ask_for_buckets(next, &mut starts);
            }
            for (candidate, key) in candidates.into_iter().zip(group) {
                let Some((hash, candidate)) = candidate else {
                    each(None);
                    continue;
                };
                // The first candidate nearly always has the key.
                match candidate.first().map(|addr| key_at(view, addr, key)) {
                    Some(Ok(Some(pair))) => each(Some(pair)),
                    _ => each(self.find_from(candidate, key, hash)?),
                }
            }
        }
        Ok(())
    }

    /// Returns the record of a key if the first candidate does not have it, for a caller that holds
    /// a pin.
    #[cold]
    #[inline(never)]
    fn find_from<'a>(
        &'a self,
        candidate: Candidate<'a>,
        key: &[u8],
        hash: u64,
    ) -> Result<Option<Pair<'a>>> {
        let Region { view, windows, .. } = &*self.region;
        candidate.find_if(true, windows, hash, |addr| key_at(view, addr, key))
    }

    /// Returns the value of a key in a file that another process may change.
    #[cold]
    #[inline(never)]
    fn find_beside(&self, key: &[u8], hash: u64) -> Result<Option<Value<'_>>> {
        let Some(reader) = &self.reader else { return Err(in_fork()) };
        if self.turns.is_some() {
            self.refuse_reading_in_fork()?;
        }
        if let Ok(found) = self.glance(key, hash, Value::copied) {
            return found.transpose();
        }
        let pin = reader.pin(&self.region)?;
        let found = self.find_beside_while_pinned(key, hash)?;
        if reader.is_per_call() {
            return found.map(|pair| Value::copied(pair.value)).transpose();
        }
        Ok(found.map(|pair| Value::pinned(pair.value, pin)))
    }

    /// Like [`find_beside`](Self::find_beside), for a caller that holds a pin.
    #[cold]
    fn find_beside_while_pinned(&self, key: &[u8], hash: u64) -> Result<Option<Pair<'_>>> {
        let Some(reader) = &self.reader else { return Err(in_fork()) };
        if let AtCommit::Was(record) = reader.at_commit(&self.region, key, hash)? {
            return record.map(|addr| self.region.view.pair(addr)).transpose();
        }
        reader.look(&self.region, |lines| {
            let Some(instrument) = &self.instrument else {
                return find(lines, hash, |addr| key_at(&self.region.view, addr, key));
            };
            self.find_counted(lines, instrument, key, hash)
        })
    }

    /// Returns a number that changes when another process may have moved records whose copies do
    /// not lead back to the originals. This matters to a handle that may not write to the file and
    /// so cannot register as a reader.
    pub(crate) fn unnamed_moves(&self) -> Result<u64> {
        match &self.reader {
            Some(reader) => reader.unnamed_moves(&self.region),
            None => Ok(0),
        }
    }

    /// Returns the error of an operation that the present writer excludes.
    pub(crate) fn locked(&self) -> Error {
        let mut error = locked_storage(self.region.storage());
        if let Error::Locked { holders, .. } = &mut error {
            // Readers exclude nobody. If the writer has gone in the meantime, the list would have
            // only readers, such as this handle.
            holders.retain(|holder| holder.role != HolderRole::Reader);
        }
        error
    }

    /// Returns the other handles, in all processes, that read the file and have a place in its
    /// reader table.
    fn other_readers(&self) -> Result<Vec<TakenPlace>> {
        match (&self.others, &self.reader) {
            (Some(others), _) => Ok(others.taken_places()),
            (None, Some(reader)) => reader.taken_places(&self.region),
            (None, None) => Ok(Vec::new()),
        }
    }

    /// Pins everything that slots hold from now on, for a caller that hands out many values.
    pub(crate) fn pins(&self) -> Result<Bunch<'_>> {
        match &self.reader {
            Some(reader) => reader.pin(&self.region).map(Bunch::of),
            None => Ok(self.region.pins.bunch()),
        }
    }

    /// Returns the newest record of a key and its address, for a caller that holds a pin.
    #[inline]
    pub(crate) fn newest(&self, key: &[u8], hash: u64) -> Result<Option<(Addr, Pair<'_>)>> {
        let Region { view, windows, .. } = &*self.region;
        let is_key = |addr: Addr| {
            let pair = view.pair(addr)?;
            Ok((pair.key == key).then_some((addr, pair)))
        };
        match &self.reader {
            None => find(windows, hash, is_key),
            Some(reader) => reader.look(&self.region, |lines| find(lines, hash, is_key)),
        }
    }

    /// Returns the record that a slot or the `prev` of another record names.
    pub(crate) fn version(&self, addr: Addr) -> Result<Record<'_>> {
        match (self.region.view.version(addr), &self.reader) {
            // The record may be beyond the file size that this handle has recorded.
            (Err(Error::Corrupt { .. }), Some(_)) => {
                self.region.see_size()?;
                self.region.view.version(addr)
            }
            (found, _) => found,
        }
    }

    /// Returns whether a slot holds an address.
    #[inline]
    pub(crate) fn is_held(&self, hash: u64, addr: Addr) -> Result<bool> {
        match &self.reader {
            Some(reader) => reader.look(&self.region, |lines| is_held(lines, hash, addr)),
            None => is_held(&self.region.windows, hash, addr),
        }
    }

    /// Finds the record of a key, and adds the cost to the counters.
    #[cold]
    fn find_counted(
        &self,
        lines: &impl Lines,
        instrument: &Instrument,
        key: &[u8],
        hash: u64,
    ) -> Result<Option<Pair<'_>>> {
        let view = &self.region.view;
        let lines = CountedLines::of(lines);
        let mut compared_count = 0;
        let found = find(&lines, hash, |addr| {
            compared_count += 1;
            key_at(view, addr, key)
        })?;
        instrument.add(found.is_some(), compared_count, lines.count.get());
        Ok(found)
    }

    /// Returns the slot of a key, or the place for one. Only for the writer.
    fn locate(&self, key: &[u8], hash: u64) -> Result<Located<'_>> {
        let Region { view, windows, .. } = &*self.region;
        locate(windows, hash, |addr| Ok(view.pair(addr)?.key == key))
    }

    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, Writer>> {
        // In the child of a fork, a thread that does not exist there may hold the lock forever.
        if !self.readable_in.is_here() {
            self.refuse_reading_in_fork()?;
        }
        match self.writer.try_lock() {
            Ok(writer) => Ok(writer),
            Err(TryLockError::WouldBlock) => self.wait_for_lock(),
            Err(TryLockError::Poisoned(panicked)) => self.lock_after_panic(panicked),
        }
    }

    /// Recovers from poison, if the panic came from the program's `on_wait` function: nothing had
    /// changed by then.
    #[cold]
    fn lock_after_panic<'a>(
        &self,
        panicked: PoisonError<MutexGuard<'a, Writer>>,
    ) -> Result<MutexGuard<'a, Writer>> {
        if !self.turns.as_ref().is_some_and(|turns| turns.take_panic_of_wait()) {
            return Err(poisoned());
        }
        self.writer.clear_poison();
        Ok(panicked.into_inner())
    }

    #[cold]
    fn wait_for_lock(&self) -> Result<MutexGuard<'_, Writer>> {
        if self.calling.load(Ordering::Relaxed) == this_thread() {
            return Err(Error::Invalid {
                what: "call",
                reason: "this thread holds the lock of the store, in `transaction` or `update`; \
                         use the transaction, or the result of the function"
                    .to_string(),
            });
        }
        self.writer.lock().or_else(|panicked| self.lock_after_panic(panicked))
    }

    /// Records that this thread, which holds the lock, runs a function of the program. Until the
    /// result is dropped, calls on this thread that would deadlock return an error.
    pub(crate) fn begin_call(&self) -> Calling<'_> {
        self.calling.store(this_thread(), Ordering::Relaxed);
        Calling(self)
    }

    /// Takes the writer's lock for a change, and establishes what must hold before the first store
    /// to the file.
    #[inline(always)]
    pub(crate) fn lock_for_change(&self) -> Result<Changing<'_>> {
        self.with_lock_for_change(Ok)
    }

    /// Calls `change` with that lock. A closure, because a guard returned in a `Result` is copied,
    /// which costs a put 1 %.
    #[inline(always)]
    pub(crate) fn with_lock_for_change<'a, R>(
        &'a self,
        change: impl FnOnce(Changing<'a>) -> Result<R>,
    ) -> Result<R> {
        if self.access == Access::ReadOnly {
            return Err(Error::ReadOnly);
        }
        let mut writer = Changing::new(self, self.lock()?);
        self.begin_change(&mut writer)?;
        if writer.extents.is_reserve_short() {
            writer = self.regain_before(writer)?;
        }
        change(writer)
    }

    #[inline(always)]
    fn begin_change(&self, writer: &mut Writer) -> Result<()> {
        if self.turns.is_some() {
            self.begin_turn(writer)?;
        }
        // A store whose process was killed before its first change is "not clean" without having a
        // log.
        if writer.mark != Mark::Changing || writer.superblock.log_start.segment_offset == 0 {
            self.begin_changes(writer)?;
        }
        if writer.needs_room {
            self.region.require_room()?;
        }
        if self.turns.is_some() {
            self.name_process(writer);
        }
        debug_assert!(!writer.is_closed, "the last handle closes the store");
        debug_assert_eq!(writer.mark, Mark::Changing, "before the tables change");
        Ok(())
    }

    /// Refuses to read through a handle that the parent of a fork opened for writing: the parent
    /// does not see the child's pins, and may overwrite what the child reads.
    #[inline]
    pub(crate) fn refuse_reading_in_fork(&self) -> Result<()> {
        let is_reader = self.reader.is_some() && (self.turns.is_none() || self.origin.is_here());
        if self.readable_in.is_here() || is_reader {
            return Ok(());
        }
        Err(in_fork())
    }

    /// Returns whether a parent of this process has opened the handle.
    #[inline]
    pub(crate) fn is_of_parent(&self) -> bool {
        !self.origin.is_here()
    }

    /// Refuses operations that only the process that opened a file may do. A table in memory is a
    /// private copy of the child, which may do anything.
    #[cold]
    #[inline(never)]
    fn refuse_in_fork(&self) -> Result<()> {
        if self.origin.is_here() || self.region.storage().is_volatile() {
            return Ok(());
        }
        Err(in_fork())
    }

    /// Waits until the log is durable up to `lsn`, as the leader of a group commit or behind one.
    pub(crate) fn wait_durable(&self, lsn: u64, is_awaited: bool) -> Result<()> {
        self.group.wait_for(lsn, || {
            if self.turns.is_some() {
                return self.sync_for_all();
            }
            let (ranges, lsn) = {
                let mut writer = self.lock()?;
                let (ranges, lsn) = writer.take_unsynced(is_awaited);
                let written = writer.written();
                self.group.set_syncing_since(writer.pace.begin_sync(written));
                debug_assert_eq!(
                    lsn,
                    writer.log.position().lsn,
                    "a sync covers the log to its end"
                );
                (ranges, lsn)
            };
            let begun = Instant::now();
            for range in ranges {
                self.region.sync_range(range.offset, range.bytes)?;
            }
            self.region.live().set_durable_lsn(lsn);
            self.lock()?.pace.end_sync(begun.elapsed());
            Ok(lsn)
        })
    }

    /// Returns the application data in the superblock.
    pub(crate) fn application_data(&self) -> Result<[u8; APPLICATION_BYTES]> {
        if self.turns.is_some() && self.reader.is_some() {
            return Ok(read_superblock(self.region.storage())?.application_data);
        }
        Ok(self.lock()?.superblock.application_data)
    }

    /// Replaces the application data in the superblock.
    pub(crate) fn set_application_data(&self, data: [u8; APPLICATION_BYTES]) -> Result<()> {
        let mut writer = self.lock_for_change()?;
        self.group.check()?;
        if writer.superblock.application_data == data && writer.doubtful_data.is_none() {
            return Ok(());
        }
        let mut superblock = Superblock { application_data: data, ..writer.superblock.clone() };
        if writer.checkpoints.is_syncing() {
            // The checkpoint that is being synced writes a superblock at its end, which includes
            // this data.
            writer.superblock = superblock;
            return Ok(());
        }
        let _writing = self.superblock_writes();
        // If the write fails, the file may have either version, so the next call must write, even
        // if its data is the same.
        writer.doubtful_data = Some(data);
        self.region.write_superblock(&mut superblock, false)?;
        writer.superblock = superblock;
        writer.doubtful_data = None;
        Ok(())
    }

    /// Returns what the writer must do after an `Async` change to keep its bound.
    #[inline]
    pub(crate) fn step(&self, writer: &mut Writer) -> Step {
        let is_syncing = self.group.is_syncing();
        let is_busy = is_syncing || writer.checkpoints.is_flushing();
        let written = writer.written();
        if writer.pace.is_calm(written, is_busy) {
            return Step::GoOn;
        }
        writer.pace.step(written, is_syncing, is_busy, Instant::now())
    }

    /// Returns whether the handle compacts or may begin to.
    #[cfg(test)]
    pub(crate) fn may_ever_compact(&self) -> bool {
        self.lock().is_ok_and(|writer| writer.compacting.is_some())
    }

    /// Returns since when the oldest change has not been durable; `None` if all are durable, or in
    /// memory.
    fn unsafe_since(&self, writer: &Writer) -> Option<Instant> {
        if self.region.storage().is_volatile() {
            return None;
        }
        self.group.syncing_since().or(writer.pace.unsafe_since())
    }

    /// Makes every change so far durable.
    pub(crate) fn sync(&self) -> Result<()> {
        if self.access == Access::ReadOnly {
            return Ok(());
        }
        self.sync_now(true)
    }

    /// As [`sync`](Self::sync), for the thread that syncs in the background: no caller waits for
    /// it.
    pub(crate) fn sync_in_background(&self) -> Result<()> {
        self.sync_now(false)
    }

    fn sync_now(&self, is_awaited: bool) -> Result<()> {
        self.refuse_in_fork()?;
        let lsn = {
            let mut writer = self.lock()?;
            self.sync_new(&mut writer)?;
            match &self.turns {
                // Include the changes of other handles.
                Some(_) => self.region.live().committed().0,
                None => writer.log.position().lsn,
            }
        };
        self.wait_durable(lsn, is_awaited)?;
        assert!(lsn <= self.group.durable_lsn(), "a sync covers every change before it");
        Ok(())
    }

    /// Returns the cost of lookups, if it is counted.
    pub(crate) fn lookups(&self) -> Option<Lookups> {
        self.instrument.as_ref().map(Instrument::read)
    }

    /// Returns whether lookups are counted, and the file may be open elsewhere.
    pub(crate) fn may_publish_lookups(&self) -> bool {
        // A handle without locks between calls has no place in the reader table.
        let is_per_call = self.reader.as_ref().is_some_and(Reader::is_per_call);
        let is_beside_others = self.others.is_some() || self.reader.is_some();
        self.instrument.is_some() && !is_per_call && is_beside_others
    }

    /// Returns the shared counters of the file, if this handle may store to it. A read-only handle
    /// must not change the file before it has taken a place in the reader table.
    pub(crate) fn share_counts(&self) -> Option<SharedCounts> {
        let storage = self.region.storage();
        let is_allowed = self.access == Access::ReadWrite
            || self.reader.as_ref().is_some_and(|reader| reader.has_place(&self.region));
        if !is_allowed {
            return None;
        }
        // Without shared counters, the handle still counts for itself.
        storage.neighbours()?.share_counts(storage.path()).ok().flatten()
    }

    /// Counts the chains, and collects the rest from the state of the writer.
    pub(crate) fn collect_stats(&self, writer: &mut Writer) -> Result<Stats> {
        let region = &self.region;
        let (geometry, occupancy, overflow_line_count) = if let Some(reader) = &self.reader {
            let _pin = reader.pin(region)?;
            self.find_segments_beside(writer)?;
            reader.look(region, count_chains)?
        } else {
            if writer.superblock.is_compacted {
                // Load the segment table, which knows the waiting and the free segments.
                writer.find_segments()?;
            }
            count_chains(&region.windows)?
        };
        let slot_count = (geometry.bucket_count() + overflow_line_count) * SLOT_COUNT as u64;
        let storage = region.storage();
        let index = region.windows.line_count(LineWindow::Buckets) * LINE_BYTES;
        let line_count = region.windows.line_count(LineWindow::Overflow);
        let overflow = line_count * LINE_BYTES;
        let free_line_count =
            line_count.checked_sub(overflow_line_count).ok_or(Error::Corrupt {
                what: "overflow line count",
                offset: LINES_USED_OFFSET,
                expected: line_count,
                found: overflow_line_count,
            })?;
        let used_file_bytes = region.view.file_bytes() - writer.returned_bytes();
        let private_bytes = if region.is_private() { index + overflow } else { 0 };
        // A sync may end between this load and the next one.
        let unsafe_since = self.unsafe_since(writer);
        let durable_bytes = match &self.turns {
            Some(_) => region.live().durable_lsn().min(writer.log.position().lsn),
            None => self.group.durable_lsn(),
        };
        let is_durable = durable_bytes >= writer.log.position().lsn;
        let unsafe_age = unsafe_since.filter(|_| !is_durable).map(|since| since.elapsed());
        // Poll, so that pins dropped since the last change do not count as holding space up. Not
        // after a failure: nobody waits for space on a failed file system. Not on a handle that
        // takes turns: its grace periods belong to the handle that has the turn.
        if region.health().check().is_ok() && !self.takes_turns() {
            region.pins.poll();
        }
        Ok(Stats {
            path: (!storage.is_volatile()).then(|| storage.path().to_path_buf()),
            record_count: writer.state.record_count,
            geometry,
            fill_factor: self.fill_thousandths as f64 / 1000.0,
            load_factor: writer.state.record_count as f64 / slot_count as f64,
            overflow_line_count,
            overflow_line_free_count: free_line_count,
            live_bytes: writer.state.live_bytes,
            dead_bytes: writer.state.dead_bytes,
            file_bytes: used_file_bytes + private_bytes,
            segments: SegmentBytes { index, overflow, ..self.segment_bytes(writer) },
            hash_name: self.hash.name().to_string(),
            log_bytes: writer.log.position().lsn,
            appended_bytes: writer.log.position().lsn - writer.opened_lsn,
            moved_bytes: writer.moved_bytes(),
            durable_bytes,
            unsafe_age,
            checkpoint: writer
                .superblock
                .checkpoint
                .map(|name| Checkpoint { log_bytes: name.lsn, bytes: name.bytes }),
            is_pinned: region.pins.is_pinned(),
            held_up_for: region.pins.held_up_for(),
            readers: self.other_readers()?.into_iter().map(reader_stats).collect(),
            recovery: self.recovery,
            lookups: self.lookups(),
            chains: occupancy.finish(),
        })
    }

    /// Returns the bytes of the file by their use, without those of the index.
    fn segment_bytes(&self, writer: &Writer) -> SegmentBytes {
        let live = self.region.live();
        let table = live.segment_table();
        SegmentBytes {
            header: HEADER_BYTES,
            log: live.log_bytes(),
            big: live.big_bytes(),
            checkpoint: checkpoint_bytes(live),
            segment_table: table.map_or(0, |extent| extent.count * GRANULE_BYTES),
            waiting: writer.waiting_bytes(),
            free: writer.extents.space().free_bytes() - writer.returned_bytes(),
            ..SegmentBytes::default()
        }
    }

    /// Returns the geometry for `record_count` records at this fill factor.
    pub(crate) fn geometry_for(record_count: u64, fill_thousandths: u32) -> Geometry {
        assert!(fill_thousandths >= 1000, "a bucket has room for one key on average");
        let buckets = u128::from(record_count) * 1000 / u128::from(fill_thousandths);
        Geometry::with_bucket_count(u64::try_from(buckets).unwrap_or(u64::MAX))
    }
}

fn reader_stats(taken: TakenPlace) -> ReaderStats {
    let TakenPlace { place, pid, age, is_pinned } = taken;
    ReaderStats { place, pid, age, is_pinned }
}

/// Returns the error of an operation that the child of a fork may not do.
#[cold]
pub(crate) fn in_fork() -> Error {
    Error::Poisoned {
        // The wording names no Rust API, because bindings show it too.
        reason:
            "this process is a fork of the one that opened the store; open the file again here: to \
                 read at once, to write when the other process has closed it"
                .to_string(),
    }
}

/// Counts the keys of each line. Returns the geometry, the occupancy, and the number of overflow
/// lines in use.
fn count_chains(lines: &impl Lines) -> Result<(Geometry, Occupancy, u64)> {
    let geometry = Shape::of_word(lines.shape().load(Ordering::Acquire)).geometry;
    let mut occupancy = Occupancy::new(geometry, SLOT_COUNT as u64);
    let mut overflow_line_count = 0;
    let mut keys_per_line = Vec::new();
    for bucket in (0..geometry.bucket_count()).map(BucketIndex) {
        keys_per_line.clear();
        for_each_line(lines, bucket, |_, line| keys_per_line.push(line.slot_count()))?;
        overflow_line_count += keys_per_line.len() as u64 - 1;
        occupancy.add_chain(bucket, &keys_per_line);
    }
    Ok((geometry, occupancy, overflow_line_count))
}

/// Returns the record at `addr` if it has the key.
#[inline(always)]
fn key_at<'a>(view: &'a View, addr: Addr, key: &[u8]) -> Result<Option<Pair<'a>>> {
    let pair = view.pair(addr)?;
    Ok((pair.key == key).then_some(pair))
}

fn poisoned() -> Error {
    Error::Poisoned { reason: "a thread failed while it changed the store".to_string() }
}

/// Runs a function that calls the program under the lock. A panic is resumed only after the lock is
/// released: the store has not changed, so the mutex must not be poisoned.
pub(crate) fn run_locked<G: DerefMut<Target = Writer>, R>(
    store: &Store,
    mut writer: G,
    what: impl FnOnce(&mut Writer) -> R,
) -> (G, R) {
    let calling = store.begin_call();
    let run = catch_unwind(AssertUnwindSafe(|| what(&mut writer)));
    drop(calling);
    match run {
        Ok(result) => (writer, result),
        Err(panic) => {
            drop(writer);
            resume_unwind(panic)
        }
    }
}

/// Marks that a function of the program runs under the lock, until it is dropped.
pub(crate) struct Calling<'a>(&'a Store);

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        self.0.calling.store(0, Ordering::Relaxed);
    }
}

/// Returns a number that no other running thread has. Unlike the thread id of the standard library,
/// it allocates nothing, which in a thread of a C program would never be freed.
fn this_thread() -> usize {
    thread_local! {
        static HERE: Cell<u8> = const { Cell::new(0) };
    }
    HERE.with(|here| ptr::from_ref(here).addr())
}

fn checkpoint_bytes(live: Live<'_>) -> u64 {
    let extents = live.checkpoint_extents();
    extents.into_iter().flatten().map(|extent| extent.count * GRANULE_BYTES).sum()
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("region", &self.region).finish_non_exhaustive()
    }
}
