//! The state of an open store and its changes: the one place where log and index meet.
//!
//! A change goes in this order: the record is appended, its slot is stored, the commit is
//! published; then a bucket is split or merged if that is due.
//!
//! # Invariants
//!
//! - Only the thread that holds the lock of [`Writer`] stores to the file.
//! - The superblock on disk says "not clean" before anything else of the file changes.
//! - An error leaves the store as it was before the change, but for room that was made.
//!
//! # Not here
//!
//! What a program calls is in `db`; how a store is opened is in `recovery`.

mod batch;
mod checkpointing;
mod pace;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::atomic::Ordering;
use crate::canary::{self, Canary};
use crate::error::{Error, Result};
use crate::format::{Addr, GRANULE_BYTES, HEADER_BYTES, LogStart, Superblock};
use crate::hash::HashFunction;
use crate::index::Lines;
use crate::index::line::{LINE_BYTES, SLOT_COUNT};
use crate::index::lookup::{Located, find, for_each_line, locate};
use crate::index::shape::Shape;
use crate::index::slot::{Slot, Tag};
use crate::index::split::{Scratch, insert, merge, split};
use crate::linear::{BucketIndex, Geometry};
use crate::live::{CommitState, LineWindow, Live};
use crate::log::append::{Appender, OpenedSegments, Payload, Via};
use crate::log::durable::GroupCommit;
use crate::log::record::{Pair, RecordKind};
use crate::options::{Access, Durability, KEY_BYTES_MAX, Options, VALUE_BYTES_MAX};
use crate::region::{Extents, LivePool, Region};
use crate::stats::{Checkpoint, Occupancy, Recovery, SegmentBytes, Stats};
use crate::storage::Room;
use crate::storage::fork::Origin;
use crate::table::PutMode;

pub(crate) use checkpointing::Checkpointing;
pub(crate) use pace::{Pace, Step, Written};

/// Splits that one insert may do at most, so that a hostile chain cannot run away.
const SPLITS_PER_INSERT: u32 = 2;
/// Buckets whose pages are made ahead at a time: 2 MiB, a huge page.
const PREPARED_LINES: u64 = (2 << 20) / LINE_BYTES;
/// A bucket is merged when there are fewer keys than this share of the fill factor, in percent.
const MERGE_PERCENT: u64 = 35;

/// What the threads of a handle share.
pub(crate) struct Store {
    pub(crate) region: Arc<Region>,
    pub(crate) hash: HashFunction,
    pub(crate) seed: u64,
    pub(crate) access: Access,
    origin: Origin,
    pub(crate) durability: Durability,
    fill_thousandths: u64,
    pub(crate) recovery: Recovery,
    pub(crate) group: GroupCommit,
    pub(crate) opened: Arc<OpenedSegments>,
    writer: Mutex<Writer>,
    /// Held while a superblock is written without the lock of the writer.
    superblock_writes: Mutex<()>,
}

/// What only the thread that holds the lock uses.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) log: Appender,
    pub(crate) extents: Extents,
    pub(crate) state: CommitState,
    pub(crate) superblock: Superblock,
    pub(crate) mark: Mark,
    pub(crate) pace: Pace,
    /// Whether each store takes room of the file system.
    needs_room: bool,
    pub(crate) is_closed: bool,
    pub(crate) checkpoints: Checkpointing,
    scratch: Scratch,
}

/// What the superblock says of the live tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// "Clean", of a store that has no log yet: perhaps nothing of its file is durable.
    New,
    /// "Clean": closing has nothing to take back.
    Clean,
    /// "Not clean", perhaps in the cache alone: who wrote it may have been killed before its sync.
    NotClean,
    /// "Not clean", which this process has made durable: the tables may change.
    NotCleanDurably,
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
            log,
            extents,
            state,
            superblock,
            mark: if is_new { Mark::New } else { Mark::Clean },
            pace: Pace::new(None, Written::default()),
            needs_room: false,
            is_closed: false,
            checkpoints: Checkpointing::default(),
            scratch: Scratch::default(),
        }
    }
}

impl Writer {
    /// Returns how much has been written so far.
    #[inline]
    fn written(&self) -> Written {
        let bytes = self.state.live_bytes + self.state.dead_bytes;
        Written { lsn: self.log.position().lsn, bytes }
    }
}

/// What opening a store gives: see `recovery`.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) region: Arc<Region>,
    pub(crate) hash: HashFunction,
    pub(crate) writer: Writer,
    pub(crate) recovery: Recovery,
    pub(crate) durable_lsn: u64,
}

/// The hash of a key, the record to be written and what it replaces.
pub(crate) struct Put<'a> {
    pub(crate) hash: u64,
    payload: Payload<'a>,
    mode: PutMode,
    via: Via,
}

pub(crate) fn via(durability: Durability) -> Via {
    match durability {
        Durability::Buffered | Durability::Async => Via::Mapping,
        Durability::Sync => Via::Write,
    }
}

impl Store {
    /// Takes what opening has given.
    pub(crate) fn new(opened: Opened, options: &Options) -> Self {
        let Opened { region, hash, mut writer, recovery, durable_lsn } = opened;
        if let Some(cache_bytes) = options.cache_bytes
            && !region.storage().is_volatile()
        {
            region.view.set_cache_bytes(cache_bytes);
        }
        let group = GroupCommit::new(region.health().clone());
        group.start_at(durable_lsn);
        writer.pace = Pace::new(options.async_age_max, writer.written());
        if options.access == Access::ReadWrite && !region.storage().is_volatile() {
            writer.schedule_first_checkpoint(&region, options.checkpoint_bytes_min);
        }
        Self {
            region,
            hash,
            seed: writer.superblock.seed,
            access: options.access,
            origin: Origin::here(),
            durability: options.durability,
            fill_thousandths: writer.superblock.fill_thousandths.into(),
            recovery,
            group,
            opened: writer.log.opened().clone(),
            writer: Mutex::new(writer),
            superblock_writes: Mutex::default(),
        }
    }

    /// Waits until no superblock is being written, and keeps it so. Who needs the lock of the
    /// writer as well takes that first.
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

    #[inline]
    pub(crate) fn prefetch_bucket(&self, hash: u64) {
        self.region.windows.prefetch_bucket(self.shape().geometry.bucket_of(hash));
    }

    /// Asks for the records that the tags of a bucket do not rule out.
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

    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Result<Option<Pair<'_>>> {
        self.find_hashed(key, self.hash_of(key))
    }

    #[inline]
    pub(crate) fn find_hashed(&self, key: &[u8], hash: u64) -> Result<Option<Pair<'_>>> {
        let Region { view, windows, .. } = &*self.region;
        find(windows, hash, |addr| {
            let pair = view.pair(addr)?;
            Ok((pair.key == key).then_some(pair))
        })
    }

    /// Returns where a key is or should be. For the writer.
    fn locate(&self, key: &[u8], hash: u64) -> Result<Located<'_>> {
        let Region { view, windows, .. } = &*self.region;
        locate(windows, hash, |addr| Ok(view.pair(addr)?.key == key))
    }

    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, Writer>> {
        self.writer.lock().map_err(|_| Error::Poisoned {
            reason: "a thread failed while it changed the store".to_string(),
        })
    }

    /// Locks the writer for a change: what must be true before the first store to the file.
    #[inline(always)]
    pub(crate) fn lock_for_change(&self) -> Result<MutexGuard<'_, Writer>> {
        if self.access == Access::ReadOnly {
            return Err(Error::ReadOnly);
        }
        self.refuse_in_fork()?;
        let mut writer = self.lock()?;
        // A store that was left open before its first change is dirty, and knows of no log.
        if writer.mark != Mark::NotCleanDurably || writer.superblock.log_start.segment_offset == 0 {
            self.begin_changes(&mut writer)?;
        }
        if writer.needs_room {
            self.region.require_room()?;
        }
        Ok(writer)
    }

    /// Refuses what only the process that opened a file may do. A table in memory is the child's own.
    #[inline]
    fn refuse_in_fork(&self) -> Result<()> {
        if self.origin.is_here() || self.region.storage().is_volatile() {
            return Ok(());
        }
        Err(Error::Poisoned {
            reason: "this process is a fork of the one that opened the store; open it again here, \
                     when the other has closed it"
                .to_string(),
        })
    }

    /// Makes it durable that the live tables are about to change; until then a power loss would
    /// leave "clean" over half-changed tables.
    #[cold]
    fn begin_changes(&self, writer: &mut Writer) -> Result<()> {
        assert!(self.access == Access::ReadWrite, "only the writer stores to the file");
        self.group.check()?;
        let room = self.region.claim_stores(writer.log.rest_of_tail())?;
        writer.needs_room = room == Room::OfFileSystem;
        // What fails here is tried again by the next change.
        if writer.mark == Mark::NotCleanDurably {
            writer.mark = Mark::NotClean;
        }
        if writer.superblock.log_start == LogStart::default() {
            writer.log.reserve(0, &mut writer.extents)?;
            let log_start = writer.log.log_start();
            // Whoever reads a superblock that names a segment takes its absence for damage.
            self.sync_file()?;
            let mut superblock = Superblock { log_start, ..writer.superblock.clone() };
            // Both copies: a damaged one must not leave one that knows of no log.
            self.region.write_both_superblocks(&mut superblock)?;
            writer.superblock = superblock;
        } else if !canary::is_made(Canary::StaysClean) {
            self.region.write_superblock(&mut writer.superblock, false)?;
        }
        self.region.live().set_identity(self.region.storage().identity());
        writer.mark = Mark::NotCleanDurably;
        Ok(())
    }

    /// Makes the whole file durable, of which nothing need be so yet.
    fn sync_file(&self) -> Result<()> {
        let synced = self.region.sync_range(0, self.region.view.file_bytes());
        // A second sync that succeeds would prove nothing.
        synced.inspect_err(|error| self.group.fail(error))
    }

    /// Makes a new store durable that nobody has changed.
    fn sync_new(&self, writer: &mut Writer) -> Result<()> {
        if writer.mark == Mark::New {
            self.group.check()?;
            self.sync_file()?;
            writer.mark = Mark::Clean;
        }
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn prepare_put<'a>(
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

    /// Stores a pair while the lock is held, for callers that spend more on other things: the two
    /// steps of a put are compiled into the others, which saves a twelfth of their instructions.
    #[inline(never)]
    pub(crate) fn put_at_once(
        &self,
        writer: &mut Writer,
        key: &[u8],
        value: &[u8],
        mode: PutMode,
        durability: Durability,
    ) -> Result<bool> {
        let put = self.prepare_put(key, value, mode, durability)?;
        self.put_locked(writer, &put)
    }

    /// Stores a pair; the record first, then its slot, then the commit.
    #[inline(always)]
    pub(crate) fn put_locked(&self, writer: &mut Writer, put: &Put<'_>) -> Result<bool> {
        self.group.check()?;
        let region = &self.region;
        let mut at = self.locate(put.payload.key, put.hash)?;
        if at.found.is_some() && put.mode == PutMode::New {
            return Ok(false);
        }
        let prev = at.found.map(|(_, _, slot)| slot.addr());
        if at.found.is_none() && at.hole.is_none() {
            writer.extents.reserve_overflow_lines(1)?;
            at = self.locate(put.payload.key, put.hash)?;
        }
        let old_bytes = match prev {
            Some(old) => Some(region.view.record(old)?.bytes.len() as u64),
            None => None,
        };
        let mut header = put.payload.header;
        header.prev = prev;
        let record_bytes = header.record_bytes();
        let addr = if writer.log.is_big(record_bytes, region) {
            writer.log.append_big(&put.payload, prev, &mut writer.extents)?
        } else {
            writer.log.reserve(record_bytes, &mut writer.extents)?;
            if canary::is_made(Canary::SlotBeforeRecord) {
                let addr = Addr::of_offset(writer.log.position().offset);
                let place = at.found.map(|(line, i, _)| (line, i)).or(at.hole);
                if let Some((line, i)) = place {
                    line.set_slot(i, Slot::new(Tag::of_hash(put.hash), addr));
                }
            }
            writer.log.append(&put.payload, prev, put.via, region)?
        };
        let slot = Slot::new(Tag::of_hash(put.hash), addr);
        self.capture_bucket_of(writer, put.hash);
        let mut begins_second_line = false;
        debug_assert!(
            region.view.pair(addr).is_ok_and(|pair| pair.key == put.payload.key),
            "a record is complete before a slot holds its address"
        );
        if let Some((line, i, old)) = at.found {
            debug_assert_eq!(line.slot(i), old, "`prev` is what the slot held");
            line.set_slot(i, slot);
        } else {
            begins_second_line =
                insert(&region.windows, &mut LivePool(&region.windows), &at, slot)?;
        }
        writer.state.count_put(record_bytes, old_bytes);
        self.commit(writer);
        if at.found.is_none() {
            self.split_if_due(writer, begins_second_line);
        }
        self.checkpoint_if_due(writer);
        Ok(true)
    }

    /// Removes a key; the tombstone first, then the slot, then the commit.
    pub(crate) fn delete_locked(
        &self,
        writer: &mut Writer,
        key: &[u8],
        hash: u64,
        via: Via,
    ) -> Result<bool> {
        self.group.check()?;
        let region = &self.region;
        let Some((line, i, slot)) = self.locate(key, hash)?.found else { return Ok(false) };
        let old_bytes = region.view.record(slot.addr())?.bytes.len() as u64;
        let value = hash.to_le_bytes();
        let tombstone = Payload::new(RecordKind::Delete, &[], &value);
        writer.log.reserve(TOMBSTONE_BYTES, &mut writer.extents)?;
        writer.log.append(&tombstone, Some(slot.addr()), via, region)?;
        self.capture_bucket_of(writer, hash);
        debug_assert_eq!(line.slot(i), slot, "`prev` is what the slot held");
        line.set_slot(i, Slot::EMPTY);
        writer.state.count_delete(TOMBSTONE_BYTES, old_bytes);
        self.commit(writer);
        self.merge_if_due(writer);
        self.checkpoint_if_due(writer);
        Ok(true)
    }

    #[inline(always)]
    fn commit(&self, writer: &mut Writer) {
        let position = writer.log.position();
        writer.state.tail_offset = position.offset;
        writer.state.tail_segment = position.segment_offset;
        self.region.live().commit(position.lsn, &writer.state);
        writer.pace.note_change();
    }

    /// Splits after an insert: when the mean is above the fill factor, and when a chain began its
    /// second overflow line.
    #[inline(always)]
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

    #[inline(never)]
    fn split_one(&self, writer: &mut Writer) -> Result<()> {
        let region = &self.region;
        let Some(plan) = self.shape().geometry.plan_split() else { return Ok(()) };
        let bucket_count = plan.upper.0 + 1;
        writer.extents.reserve_lines(LineWindow::Buckets, bucket_count)?;
        if bucket_count.is_multiple_of(PREPARED_LINES) {
            let start = bucket_count + PREPARED_LINES;
            let lines = start..start + PREPARED_LINES;
            writer.extents.prepare_lines(LineWindow::Buckets, lines);
        }
        self.capture(writer, plan.lower);
        let mut line_count = 4;
        loop {
            writer.extents.reserve_overflow_lines(line_count)?;
            let mut hash_of = |addr: Addr| Ok(self.hash_of(region.view.pair(addr)?.key));
            let pool = &mut LivePool(&region.windows);
            match split(&region.windows, pool, &plan, &mut writer.scratch, &mut hash_of) {
                Err(Error::Full { .. }) if line_count < 1 << 32 => line_count *= 8,
                Err(other) => return Err(other),
                Ok(()) => break,
            }
        }
        // Some puts from now the next bucket is split: its line and the new one are not in the cache.
        if let Some(next) = self.shape().geometry.plan_split() {
            region.windows.prefetch_bucket(next.lower);
            region.windows.prefetch_bucket(next.upper);
        }
        Ok(())
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
        self.capture(writer, plan.lower);
        self.capture(writer, plan.upper);
        let mut line_count = 4;
        // As with a split, a merge that cannot be done is done later.
        while writer.extents.reserve_overflow_lines(line_count).is_ok() {
            match merge(&region.windows, &mut LivePool(&region.windows), &plan, &mut writer.scratch)
            {
                Err(Error::Full { .. }) if line_count < 1 << 32 => line_count *= 8,
                _ => return,
            }
        }
    }

    /// Waits until the log is durable up to `lsn`, as a leader or behind one.
    pub(crate) fn wait_durable(&self, lsn: u64, is_awaited: bool) -> Result<()> {
        self.group.wait_for(lsn, || {
            let (ranges, lsn) = {
                let mut writer = self.lock()?;
                let (ranges, lsn) = writer.log.take_unsynced(is_awaited);
                let written = writer.written();
                self.group.set_syncing_since(writer.pace.begin_sync(written));
                (ranges, lsn)
            };
            let begun = Instant::now();
            for (offset, bytes) in ranges {
                self.region.sync_range(offset, bytes)?;
            }
            self.region.live().set_durable_lsn(lsn);
            self.lock()?.pace.end_sync(begun.elapsed());
            Ok(lsn)
        })
    }

    /// Returns what a writer does after an `Async` change.
    #[inline]
    pub(crate) fn step(&self, writer: &mut Writer) -> Step {
        let is_syncing = self.group.is_syncing();
        let is_busy = is_syncing || writer.checkpoints.is_syncing();
        let written = writer.written();
        if writer.pace.is_calm(written, is_busy) {
            return Step::GoOn;
        }
        writer.pace.step(written, is_syncing, is_busy, Instant::now())
    }

    /// Returns since when the oldest change is not durable, unless all are or none need be.
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

    /// As [`sync`](Self::sync), without anybody who waits for the next one.
    pub(crate) fn sync_in_background(&self) -> Result<()> {
        self.sync_now(false)
    }

    fn sync_now(&self, is_awaited: bool) -> Result<()> {
        self.refuse_in_fork()?;
        let lsn = {
            let mut writer = self.lock()?;
            self.sync_new(&mut writer)?;
            writer.log.position().lsn
        };
        self.wait_durable(lsn, is_awaited)
    }

    /// Syncs log and index and marks the store clean, once.
    pub(crate) fn close(&self) -> Result<()> {
        if self.access == Access::ReadOnly {
            return Ok(());
        }
        self.refuse_in_fork()?;
        let mut writer = self.lock()?;
        if writer.is_closed {
            return Ok(());
        }
        writer.is_closed = true;
        // After a failure nothing is stored any more, not even to free what was set aside.
        self.group.check()?;
        if self.region.claim_live().is_ok() {
            self.region.live().clear_pid();
        }
        self.sync_new(&mut writer)?;
        assert_ne!(writer.mark, Mark::New, "a new store is durable before it is called clean");
        if writer.mark == Mark::Clean {
            return Ok(());
        }
        // The log may have gone on without a commit, into a segment for a change that was not made.
        self.commit(&mut writer);
        writer.drop_checkpoints();
        let Writer { log, extents, .. } = &mut *writer;
        log.release_next(extents);
        extents.trim();
        let lsn = writer.log.position().lsn;
        if canary::is_made(Canary::CleanBeforeSync) {
            self.region.write_superblock(&mut writer.superblock, true)?;
        }
        let written = writer.written();
        self.group.set_syncing_since(writer.pace.begin_sync(written));
        drop(writer);
        // Log and index together: what is not dirty costs nothing, and one flush is enough.
        self.group.sync_always(|| {
            let bytes = self.region.view.file_bytes();
            self.region.sync_range(0, bytes)?;
            self.region.live().set_durable_lsn(lsn);
            Ok(lsn)
        })?;
        let mut writer = self.lock()?;
        writer.superblock.checkpoint = None;
        self.region.write_superblock(&mut writer.superblock, true)?;
        // Room that is not given back now is used by the next session.
        let _ = writer.extents.shrink();
        Ok(())
    }

    /// Counts chains and collects what the writer knows.
    pub(crate) fn collect_stats(&self, writer: &Writer) -> Result<Stats> {
        let region = &self.region;
        let live = region.live();
        let geometry = self.shape().geometry;
        let mut occupancy = Occupancy::new(geometry, SLOT_COUNT as u64);
        let mut overflow_line_count = 0;
        let mut keys_per_line = Vec::new();
        for bucket in (0..geometry.bucket_count()).map(BucketIndex) {
            keys_per_line.clear();
            for_each_line(&region.windows, bucket, |_, line| {
                keys_per_line.push(line.slot_count());
            })?;
            overflow_line_count += keys_per_line.len() as u64 - 1;
            occupancy.add_chain(bucket, &keys_per_line);
        }
        let slot_count = (geometry.bucket_count() + overflow_line_count) * SLOT_COUNT as u64;
        let storage = region.storage();
        let index = region.windows.line_count(LineWindow::Buckets) * LINE_BYTES;
        let overflow = region.windows.line_count(LineWindow::Overflow) * LINE_BYTES;
        let private_bytes = if region.is_private() { index + overflow } else { 0 };
        Ok(Stats {
            path: (!storage.is_volatile()).then(|| storage.path().to_path_buf()),
            record_count: writer.state.record_count,
            geometry,
            fill_factor: self.fill_thousandths as f64 / 1000.0,
            load_factor: writer.state.record_count as f64 / slot_count as f64,
            overflow_line_count,
            overflow_line_free_count: region.windows.line_count(LineWindow::Overflow)
                - overflow_line_count,
            live_bytes: writer.state.live_bytes,
            dead_bytes: writer.state.dead_bytes,
            file_bytes: region.view.file_bytes() + private_bytes,
            segments: SegmentBytes {
                header: HEADER_BYTES,
                log: live.log_bytes(),
                big: live.big_bytes(),
                index,
                overflow,
                checkpoint: checkpoint_bytes(live),
                free: writer.extents.space().free_bytes(),
            },
            hash_name: self.hash.name().to_string(),
            log_bytes: writer.log.position().lsn,
            durable_bytes: self.group.durable_lsn(),
            unsafe_age: self.unsafe_since(writer).map(|since| since.elapsed()),
            checkpoint: writer
                .superblock
                .checkpoint
                .map(|name| Checkpoint { log_bytes: name.lsn, bytes: name.bytes }),
            recovery: self.recovery,
            chains: occupancy.finish(),
        })
    }

    /// Returns the end of the log segment at `offset`.
    pub(crate) fn tail_segment_end(&self, offset: u64) -> u64 {
        self.region.view.segment(offset).map_or(offset, |header| offset + header.segment_bytes)
    }

    /// Returns the number of buckets that `record_count` records ask for.
    pub(crate) fn geometry_for(record_count: u64, fill_thousandths: u32) -> Geometry {
        let buckets = u128::from(record_count) * 1000 / u128::from(fill_thousandths.max(1));
        Geometry::with_bucket_count(u64::try_from(buckets).unwrap_or(u64::MAX))
    }
}

fn checkpoint_bytes(live: Live<'_>) -> u64 {
    let extents = live.checkpoint_extents();
    extents.into_iter().flatten().map(|extent| extent.count * GRANULE_BYTES).sum()
}

/// Size in bytes of a record that deletes: header, prev and hash.
pub(crate) const TOMBSTONE_BYTES: u64 = 24;

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("region", &self.region).finish_non_exhaustive()
    }
}
