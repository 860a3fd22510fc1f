//! Rebuilds the index from a checkpoint, if there is one, and the log after it.
//!
//! 1. *Scan*: the log is read to its end, and every checksum is verified. Nothing is written.
//! 2. *Load*: the slots of the checkpoint are inserted into an empty table of the final size.
//! 3. *Apply*: the changes of the log after the checkpoint are redone.
//!
//! Each step runs in two halves, in parallel on a machine with two cores. The log is cut in its
//! middle; the buckets are divided by the highest bit of the bucket number that all tables involved
//! have. Each bucket belongs to one thread, so its changes are applied in the order of the log.
//! Overflow lines are allocated under a lock.
//!
//! Memory is bounded by [`CHANGES_MAX`] and by the largest batch: changes that do not fit are read
//! again later.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use super::halves::{each_half, has_halves};
use super::log_scan::{CHANGES_MAX, KeyHash, LogScan, NO_RECORD, SlotChange};
use super::{Opened, Opening, count_segments_again, report_progress, set_geometry};
use crate::checkpoint::{GROUP_BUCKETS, Image, extent_of};
use crate::error::{Error, Result};
use crate::format::{CheckpointName, GRANULE_BYTES, HEADER_BYTES, LogStart, SUPERBLOCK_OFFSETS};
use crate::index::Lines;
use crate::index::line::{LINE_BYTES, Line, SLOT_COUNT};
use crate::index::lookup::{Located, locate_addr, locate_end};
use crate::index::shape::Shape;
use crate::index::slot::{Slot, Tag};
use crate::index::split::insert;
use crate::linear::{BucketIndex, Geometry};
use crate::live::{CommitState, LineWindow};
use crate::log::append::LogPosition;
use crate::log::scan::{Changes, LogWalk, Step, Trust};
use crate::options::{Access, RecoveryProgress};
use crate::region::{Extents, LivePool, Region, View};
use crate::segments::SegmentTable;
use crate::space::{Extent, Space};
use crate::stats::Recovery;
use crate::store::{Mark, Store};
use crate::testing::mutant::{self, Mutant};

/// Number of changes by which the prefetch of buckets runs ahead.
const READ_AHEAD: usize = 32;

/// A rebuilt index, and the end of its log.
#[derive(Debug)]
struct Rebuilt {
    end: LogPosition,
    state: CommitState,
    extents: Extents,
    recovery: Recovery,
}

/// The starting point of a replay: a checkpoint, if any, and the scan of the log after it.
#[derive(Debug)]
struct Base {
    image: Option<Image>,
    scan: LogScan,
    /// The segments of both.
    segments: SegmentTable,
}

impl Base {
    /// Adds the segments that the log names to those of the image.
    fn new(
        view: &View,
        image: Option<Image>,
        mut scan: LogScan,
        mut segments: SegmentTable,
        is_compacted: bool,
    ) -> Result<Self> {
        for found in &scan.found {
            // The table may have the segment already: from the image, or because both threads have
            // found it.
            found.add_to(&mut segments)?;
        }
        scan.counts.add_to(view, &mut segments, is_compacted);
        Ok(Self { image, scan, segments })
    }

    /// Returns the granules of all segments, and of the image.
    fn used(&self) -> Vec<Extent> {
        let image = self.image.iter().map(|image| extent_of(image.name()));
        image.chain(self.segments.used()).collect()
    }
}

impl Opening {
    /// Rebuilds the index without the live tables: from the checkpoint and the log after it, or
    /// from the whole log if there is no checkpoint or it is damaged.
    pub(super) fn replay(mut self, region: &Arc<Region>, is_log_alone: bool) -> Result<Opened> {
        // Replay may take long, and calls the program's progress function.
        region.storage().end_opening();
        let has_failed_sync = region.live().has_failed_sync();
        // The log of a compacted store is not complete.
        let is_compacted = self.superblock.is_compacted;
        let may_begin = is_compacted || !is_log_alone && !has_failed_sync;
        let name = self.superblock.checkpoint.filter(|_| may_begin);
        // Scan first: nothing is written before the log has been read, and a private index never
        // writes to the file.
        let base = name.map(|name| self.scan_from_checkpoint(region, name));
        let base = match base {
            Some(Err(error)) if is_compacted => return Err(error),
            None if is_compacted => return Err(no_checkpoint()),
            base => base.and_then(Result::ok),
        };
        match self.access {
            Access::ReadWrite => {
                region.claim_live()?;
                if has_failed_sync {
                    // Dirty the pages again, so that the next sync writes them.
                    let whole =
                        if is_compacted { None } else { Some(self.scan_whole_log(region)?) };
                    for used in whole.iter().chain(&base).flat_map(Base::used) {
                        let (offset, bytes) = (used.granule, used.count);
                        region.write_again(offset * GRANULE_BYTES, bytes * GRANULE_BYTES)?;
                    }
                }
                // Until the index is complete, only the log may be trusted, so the superblock must
                // be "not clean" on the device. If it says so already, write it all the same: that
                // copy may not be durable, because its writer was killed or its sync failed.
                region.write_superblock(&mut self.superblock, false)?;
                if has_failed_sync {
                    // Write the other copy, too: its last version may be only in the page cache,
                    // and its version on the device may have no log start.
                    region.write_superblock(&mut self.superblock, false)?;
                }
            }
            Access::ReadOnly => region.make_private()?,
        }
        if let Some(base) = base {
            match self.rebuild(region, base) {
                // A damaged checkpoint is no reason to fail if the log is complete.
                Err(Error::Corrupt { .. }) if !is_compacted => {}
                rebuilt => {
                    let rebuilt = rebuilt?;
                    return self.go_on(rebuilt);
                }
            }
        }
        let base = self.scan_whole_log(region)?;
        if self.superblock.checkpoint.take().is_some() && self.access == Access::ReadWrite {
            // Forget the checkpoint durably before its segment is reused.
            region.write_superblock(&mut self.superblock, false)?;
        }
        let rebuilt = self.rebuild(region, base)?;
        self.go_on(rebuilt)
    }

    /// Reads the log from the commit of a checkpoint to its end.
    fn scan_from_checkpoint(&self, region: &Region, name: CheckpointName) -> Result<Base> {
        let image = Image::open(&region.view, name)?;
        let state = &image.state;
        let start = state.replay_start;
        let unit_bytes = self.unit_bytes();
        let mut segments = SegmentTable::of_words(unit_bytes, state.segments.clone());
        segments.mend(region.view.file_bytes());
        if self.superblock.is_compacted {
            // Segments that were emptied before the checkpoint may have been reused since.
            segments.end_all_emptied();
        }
        let mut scan = LogScan {
            log_bytes: state.log_bytes,
            big_bytes: state.big_bytes,
            next_sequence: state.next_sequence,
            ..LogScan::new(unit_bytes)
        };
        // The log was durable up to the checkpoint, so a missing start is damage.
        let mut walk =
            LogWalk::new(&region.view, start, Trust::Nothing, 0)?.ok_or(Error::Corrupt {
                what: "log start of the checkpoint",
                offset: name.offset,
                expected: start.record_offset,
                found: 0,
            })?;
        walk = walk.after_moves_to(state.commit.head_segment);
        if mutant::is_made(Mutant::ReplaysTooLate) {
            walk.next_record()?;
        }
        scan.read(region, self.key_hash(), &walk, self.on_recovery.as_ref())?;
        assert!(start.lsn <= scan.end.lsn, "the log has all that the checkpoint has");
        if self.superblock.is_compacted {
            // Verify the whole image before anything is written: a compacted store has nothing else
            // to fall back to.
            let no_slots = |_, _: &[Slot]| Ok(());
            image.for_each_entry(&region.view, |_| false, no_slots, |_| {}, |_| {})?;
        }
        Base::new(&region.view, Some(image), scan, segments, self.superblock.is_compacted)
    }

    pub(super) fn unit_bytes(&self) -> u64 {
        SegmentTable::unit_bytes_for(self.superblock.segment_bytes_min.into())
    }

    /// Reads the whole log.
    fn scan_whole_log(&self, region: &Region) -> Result<Base> {
        let mut scan = LogScan::new(self.unit_bytes());
        let start = self.superblock.log_start;
        if let Some(walk) = LogWalk::new(&region.view, start, Trust::Nothing, 0)? {
            scan.add_segment(&walk.segment());
            scan.read(region, self.key_hash(), &walk, self.on_recovery.as_ref())?;
        }
        let segments = SegmentTable::new(self.unit_bytes());
        Base::new(&region.view, None, scan, segments, self.superblock.is_compacted)
    }

    /// Collects the changes of the log from `rest` on, whose checksums have been verified. Returns
    /// the position of the first change that did not fit.
    fn collect(
        &self,
        region: &Region,
        rest: LogPosition,
        end: LogPosition,
        changes: &mut Vec<SlotChange>,
    ) -> Result<Option<LogPosition>> {
        let walk = LogWalk::from_position(&region.view, rest, Trust::Published, end.lsn)?;
        let mut log = Changes::new(walk);
        loop {
            if changes.len() >= CHANGES_MAX && log.is_between_changes() {
                return Ok(Some(log.position()));
            }
            let record = log.read_next(
                |change| self.key_hash().effect_of(change).change,
                |step| {
                    if let Step::Change(change) = step {
                        changes.push(change);
                    }
                },
            )?;
            if record.is_none() {
                assert_eq!(log.position(), end, "the log ends where the scan before found its end");
                return Ok(None);
            }
        }
    }

    /// Builds the index: loads the image of the checkpoint, then applies the log after it.
    fn rebuild(&self, region: &Arc<Region>, base: Base) -> Result<Rebuilt> {
        let space = Space::complement(HEADER_BYTES / GRANULE_BYTES, base.used());
        let Base { image, mut scan, segments } = base;
        let live = region.live();
        live.clear_identity();
        live.initialize();
        // Handles without locks between calls may have mapped the old pieces.
        live.change_piece_epoch();
        if mutant::is_made(Mutant::WholeBeforeBuilt) {
            region.set_identity();
        }
        region.windows.forget_pieces();
        let mut extents = Extents::begin(region, space);
        extents.set_segments(segments);
        // The counts in a checkpoint may come from the unverified live header of a killed process,
        // so bound them by the space in use.
        let space = extents.space();
        let used_bytes = (space.end() * GRANULE_BYTES).saturating_sub(space.free_bytes());
        live.set_log_bytes(scan.log_bytes.min(used_bytes));
        live.set_big_bytes(scan.big_bytes.min(used_bytes));
        live.set_next_sequence(scan.next_sequence);
        let before = image.as_ref().map_or(CommitState::default(), |image| image.state.commit);
        let start_lsn = image.as_ref().map_or(0, |image| image.state.replay_start.lsn);
        let mut state = scan.counts.after(&region.view, before, scan.end)?;
        state.live_bytes = state.live_bytes.min(used_bytes);
        state.dead_bytes = state.dead_bytes.min(used_bytes);
        if self.superblock.is_compacted {
            // Recount, because the first checkpoint of a compacted store subtracts the space of the
            // big records that it frees.
            count_segments_again(&extents, &mut state);
        }
        let geometry = Store::geometry_for(state.record_count, self.superblock.fill_thousandths);
        // After a failed sync, pages in the page cache may be clean without being durable, so
        // allocate new ones.
        if live.has_failed_sync() {
            extents.reserve_lines(LineWindow::Buckets, geometry.bucket_count())?;
        } else {
            extents.claim_lines(LineWindow::Buckets, geometry.bucket_count())?;
        }
        set_geometry(region, geometry);
        if let Some(image) = &image {
            live.set_checkpoint_extent(0, Some(extent_of(image.name())));
        }
        make_pages(region)?;
        if let Some(image) = &image {
            self.load_checkpoint(image, geometry, &mut extents)?;
        }
        self.apply_log(&mut scan, &mut extents)?;
        let end = scan.end;
        assert!(start_lsn <= end.lsn, "the log has all that the checkpoint has");
        (state.tail_offset, state.tail_segment) = (end.offset, end.segment_offset);
        if let Some((head_segment, head_offset)) = scan.head {
            (state.head_segment, state.head_offset) = (head_segment, head_offset);
        }
        live.commit(end.lsn, &state);
        let recovery = Recovery::Replayed {
            checkpoint_keys: image.map_or(0, |image| image.state.commit.record_count),
            records: scan.records,
            dropped_bytes: scan.dropped_bytes,
        };
        Ok(Rebuilt { end, state, extents, recovery })
    }

    /// Completes the open of a store whose index has been rebuilt, and begins a new segment after
    /// the end of its log.
    fn go_on(mut self, rebuilt: Rebuilt) -> Result<Opened> {
        let Rebuilt { end, mut state, mut extents, recovery } = rebuilt;
        let region = extents.region().clone();
        let live = region.live();
        self.resume(&region, end)?;
        if self.access == Access::ReadOnly {
            assert!(region.is_private(), "a handle that only reads stores to no file");
            return Ok(self.finish(extents, (state, recovery, end.lsn)));
        }
        if self.superblock.is_compacted {
            extents.keep_segments_in_file()?;
        }
        if end.segment_offset != 0 {
            // It is unknown which parts a killed process, or the program that copied the file, left
            // unsynced.
            self.log.mark_file_unsynced(region.view.file_bytes());
            self.log.leave_segment(&mut extents)?;
            let position = self.log.position();
            assert!(end.lsn < position.lsn, "the new segment is behind all that was replayed");
            (state.tail_offset, state.tail_segment) = (position.offset, position.segment_offset);
            live.commit(position.lsn, &state);
        } else {
            // An empty log: the next change begins it.
            self.superblock.log_start = LogStart::default();
        }
        // Log, superblock and index have all been written again, so the next sync covers them.
        live.clear_sync_failed();
        region.set_identity();
        let mut opened = self.finish(extents, (state, recovery, 0));
        // So that the close marks the store clean again, even if it is empty.
        opened.writer.mark = Mark::Changing;
        Ok(opened)
    }

    /// Fills an empty table from a checkpoint.
    fn load_checkpoint(
        &self,
        image: &Image,
        geometry: Geometry,
        extents: &mut Extents,
    ) -> Result<()> {
        let region = &extents.region().clone();
        let (key_hash, on_recovery) = (self.key_hash(), self.on_recovery.as_ref());
        let extents = Mutex::new(extents);
        // The bits that the bucket numbers of both tables share, so that the image can be divided
        // without reading keys.
        let level = geometry.level().min(image.state.geometry.level());
        each_share(region, level, |share| {
            load_image(region, image, key_hash, (share, &extents), |progress| {
                if share.value == 0 {
                    report_progress(on_recovery, progress);
                }
            })
        })
    }

    /// Applies all changes of the log, in their order.
    fn apply_log(&self, scan: &mut LogScan, extents: &mut Extents) -> Result<()> {
        let region = &extents.region().clone();
        let geometry = Shape::of_word(region.windows.shape().load(Ordering::Relaxed)).geometry;
        let extents = Mutex::new(extents);
        let mut parts = std::mem::take(&mut scan.changes);
        let (mut records, records_total) = (0, scan.records);
        loop {
            each_share(region, geometry.level(), |share| {
                parts
                    .iter()
                    .try_for_each(|changes| apply_in_order(region, changes, share, &extents))
            })?;
            records += parts.iter().map(|changes| changes.len() as u64).sum::<u64>();
            // Links and uncommitted records count as applied with the last part.
            assert!(records <= records_total, "each change is of a record or a copy");
            let records = if scan.unread_from.is_some() { records } else { records_total };
            report_progress(
                self.on_recovery.as_ref(),
                RecoveryProgress::ApplyLog { records, records_total },
            );
            let Some(rest) = scan.unread_from else { return Ok(()) };
            parts.truncate(1);
            let changes = &mut parts[0];
            changes.clear();
            scan.unread_from = self.collect(region, rest, scan.end, changes)?;
        }
    }
}

/// Returns the error for a compacted store without a checkpoint, a state that no writer leaves.
fn no_checkpoint() -> Error {
    let (what, offset) = ("checkpoint offset", SUPERBLOCK_OFFSETS[0] + 144);
    Error::Corrupt { what, offset, expected: HEADER_BYTES, found: 0 }
}

/// A share of the buckets and of the changes to them, which belongs to one thread.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// The bits of a hash or of a bucket number that select the share.
    mask: u64,
    value: u64,
}

impl Share {
    #[inline]
    fn has(self, hash: u64) -> bool {
        hash & self.mask == self.value
    }
}

/// Calls `each` for the shares that together have all buckets of a table of this level.
fn each_share(
    region: &Region,
    level: u32,
    each: impl Fn(Share) -> Result<()> + Sync,
) -> Result<()> {
    if level == 0 || !has_halves(region) {
        return each(Share { mask: 0, value: 0 });
    }
    let mask = 1 << (level - 1);
    each_half(region, "splitpoint-index", [0, mask].map(|value| Share { mask, value }), each)
}

/// Inserts the slots of a share of the buckets of a checkpoint into an empty table of any geometry.
fn load_image(
    region: &Region,
    image: &Image,
    key_hash: KeyHash<'_>,
    (share, extents): (Share, &Mutex<&mut Extents>),
    tell: impl Fn(RecoveryProgress),
) -> Result<()> {
    let geometry = Shape::of_word(region.windows.shape().load(Ordering::Relaxed)).geometry;
    let from = image.state.geometry;
    // A bucket has its own number's bits of the hash, and the tag has bits 8 to 31.
    let is_known = from.level() >= Tag::FIRST_BIT;
    let (mut bytes, bytes_total) = (0, image.name().bytes);
    image.for_each_entry(
        &region.view,
        |bucket| share.has(bucket.0),
        |bucket, slots| {
            // Most slots stay in their bucket or go to the one that it is divided into: the
            // lines of the last slots of both.
            let mut open: [Option<(BucketIndex, &Line, usize)>; 2] = [None; 2];
            for &slot in slots {
                let target = if from == geometry {
                    bucket
                } else if is_known {
                    geometry.bucket_of(slot.low_hash(bucket.0))
                } else {
                    geometry.bucket_of(key_hash.of_record(&region.view, slot.addr())?)
                };
                let open = &mut open[usize::from(target != bucket)];
                match open {
                    Some((last, line, used)) if *last == target && *used < SLOT_COUNT => {
                        line.set_slot(*used, slot);
                        *used += 1;
                    }
                    _ => *open = Some(add_slot(region, target, slot, extents)?),
                }
            }
            Ok(())
        },
        |first| {
            // Where the slots of the buckets go, if the table has not grown much.
            for bucket in (first.0..first.0 + GROUP_BUCKETS).filter(|&bucket| share.has(bucket)) {
                region.windows.prefetch_bucket(geometry.bucket_of(bucket));
            }
        },
        |block_bytes| {
            bytes += block_bytes;
            tell(RecoveryProgress::LoadCheckpoint { bytes, bytes_total });
        },
    )
}

/// Makes the pages of the buckets, which are about to be filled, and the buckets empty; on two cores
/// if the machine has them.
fn make_pages(region: &Region) -> Result<()> {
    let line_count = region.windows.line_count(LineWindow::Buckets);
    let make = |lines: Range<u64>| {
        region.windows.populate(LineWindow::Buckets, lines.clone());
        region.windows.erase_lines(LineWindow::Buckets, lines);
        Ok(())
    };
    if !has_halves(region) {
        return make(0..line_count);
    }
    let half = line_count / 2;
    each_half(region, "splitpoint-pages", [0..half, half..line_count], make)
}

/// Applies the changes of a share of the buckets in their order; the cache misses of their buckets
/// overlap.
fn apply_in_order(
    region: &Region,
    changes: &[SlotChange],
    share: Share,
    extents: &Mutex<&mut Extents>,
) -> Result<()> {
    let geometry = Shape::of_word(region.windows.shape().load(Ordering::Relaxed)).geometry;
    for (i, change) in changes.iter().enumerate() {
        if let Some(ahead) = changes.get(i + READ_AHEAD)
            && share.has(ahead.hash)
        {
            region.windows.prefetch_bucket(geometry.bucket_of(ahead.hash));
        }
        if share.has(change.hash) {
            apply_change(region, change, extents)?;
        }
    }
    Ok(())
}

/// Applies a change to the index; one that has been applied changes nothing.
pub(super) fn apply_change(
    region: &Region,
    change: &SlotChange,
    extents: &Mutex<&mut Extents>,
) -> Result<()> {
    let SlotChange { hash, addr, prev } = *change;
    let is_delete = addr == NO_RECORD;
    debug_assert!(!is_delete || prev != NO_RECORD, "a delete names what it deletes");
    let slot = if is_delete { Slot::EMPTY } else { Slot::new(Tag::of_hash(hash), addr) };
    if prev != NO_RECORD
        && let Some((line, i, _)) = locate_addr(&region.windows, hash, prev)?.found
    {
        line.set_slot(i, slot);
        return Ok(());
    }
    if is_delete {
        return Ok(());
    }
    let at = locate_addr(&region.windows, hash, addr)?;
    if at.found.is_some() {
        return Ok(());
    }
    insert_at(region, &at, slot, extents)
}

/// Puts a slot where there is room for it, in an overflow line where there is none; the shares have
/// these in common.
fn insert_at(
    region: &Region,
    at: &Located<'_>,
    slot: Slot,
    extents: &Mutex<&mut Extents>,
) -> Result<()> {
    if let Some((line, i)) = at.empty {
        debug_assert!(line.slot(i).is_empty(), "a bucket is the business of one thread");
        line.set_slot(i, slot);
        return Ok(());
    }
    let mut extents = extents.lock().unwrap_or_else(PoisonError::into_inner);
    extents.reserve_overflow_lines(1)?;
    insert(&region.windows, &mut LivePool(&region.windows), at, slot).map(drop)
}

/// Puts a slot at the end of a chain of a table that is being built. Returns the line that it went
/// to, with the number of slots there.
fn add_slot<'a>(
    region: &'a Region,
    bucket: BucketIndex,
    slot: Slot,
    extents: &Mutex<&mut Extents>,
) -> Result<(BucketIndex, &'a Line, usize)> {
    let at = locate_end(&region.windows, bucket)?;
    insert_at(region, &at, slot, extents)?;
    // A line that was begun just now is found when the next slot comes.
    debug_assert!(
        at.empty.is_none_or(|(line, i)| line.slot(i) == slot),
        "it went into the empty slot"
    );
    Ok(at.empty.map_or((bucket, at.last, SLOT_COUNT), |(line, i)| (bucket, line, i + 1)))
}

const _: () = assert!(LINE_BYTES * 64 == GRANULE_BYTES);
