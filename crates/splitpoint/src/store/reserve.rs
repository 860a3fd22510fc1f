//! The reserve: space that only deletes and compaction may take, so that on a full disk deletes
//! still succeed and space is freed.
//!
//! Nothing is reserved unless the file system is nearly full.
//!
//! A put that finds its segment full first brings the reserve up to date, and fails if the disk has
//! no space for it. A delete takes a segment of the reserve if there is no other; before the next
//! change [`Store::regain`] refills the reserve. That always succeeds unless readers hold the
//! emptied segments: a segment of tombstones is completely dead, so a checkpoint, for which there
//! is room in the reserve, frees it without moving a record.
//!
//! # Not here
//!
//! Which granules are reserved: that is in [`region::reserve`](crate::region).

use super::room::LOOKS_AT_PINS;
use super::{Changing, Store, TOMBSTONE_BYTES, Writer};
use crate::checkpoint::segment_bytes_later;
use crate::error::{Error, Result};
use crate::format::{GRANULE_BYTES, REUSED_SHARE, SegmentHeader, log_segment_bytes};
use crate::log::batch::COMMIT_BYTES;
use crate::log::record::{LINK_BYTES, RecordKind};
use crate::options::Access;
use crate::region::{Needs, may_hold};
use crate::segments::{SegmentTable, SegmentUse, TableSegment};
use crate::storage::failure::is_want_of_room;
use crate::testing::mutant::{self, Mutant};

/// A store has a reserve once its records take this many of the smallest segments, so that a file
/// of few records stays small.
const HOLDING_SEGMENTS: u64 = 16;
/// A store loses its reserve below this share (as a divisor) of that size (hysteresis).
const ENDING_SHARE: u64 = 2;
/// Largest number of checkpoints that one call writes to regain space.
const ROUNDS_MAX: u32 = 64;
/// After a failed attempt to refill the reserve, this share (as a divisor) of a segment is appended
/// to the log before the next attempt.
const PAUSE_SHARE: u64 = 4;
/// Number of segments, or records of the size of the put, for which the file system must have space
/// besides a reserve that was never complete.
const PUT_SHARE: u64 = 2;
/// Size in bytes of the smallest record of which there may be many.
const RECORD_BYTES_MIN: u64 = 16;
/// Upper bound for the size of a record that names a big record, in bytes.
const NAMING_BYTES: u64 = 64;

impl Writer {
    /// Returns whether the reserve should be refilled before the next change.
    fn is_regaining_due(&self) -> bool {
        let is_last = self.extents.held_segment_count() == 0 && self.log.room() < GRANULE_BYTES / 4;
        self.extents.is_reserve_short()
            && (self.log.position().lsn >= self.regaining_lsn || is_last)
    }

    /// Returns whether the tail and the reserve have room for a batch of `count` deletes.
    pub(super) fn has_room_for_deletes(&self, count: usize) -> bool {
        let lost_bytes = SegmentHeader::BYTES + LINK_BYTES + TOMBSTONE_BYTES;
        let lost_bytes = self.extents.held_segment_count() as u64 * lost_bytes;
        let room = self.log.room() + self.extents.held_segment_bytes().saturating_sub(lost_bytes);
        count as u64 * TOMBSTONE_BYTES + COMMIT_BYTES <= room
    }

    /// Records that the reserve could not be refilled, so that it is not retried before more is
    /// deleted.
    fn pause_regaining(&mut self) {
        let segment_bytes = self.extents.needs().map_or(0, |needs| needs.segment_bytes);
        let pause_bytes = segment_bytes / PAUSE_SHARE;
        self.regaining_lsn = self.log.position().lsn + pause_bytes;
        self.hopeless_dead_bytes = self.state.dead_bytes + self.waiting_bytes() + pause_bytes;
    }

    /// Returns the segment whose emptying gains most, among those whose live records have room
    /// elsewhere or, if nothing may be copied, those without live records.
    fn segment_that_fits(&self, left_out: &[u64], may_copy: bool) -> Option<TableSegment> {
        let heads = self.heads().map(|head| head.segment_offset);
        let room = if may_copy { self.room_for_copies() } else { 0 };
        let fits = |segment: &TableSegment| {
            matches!(segment.segment_use, SegmentUse::Log | SegmentUse::Compacted)
                && !heads.contains(&segment.offset)
                && !left_out.contains(&segment.offset)
                && segment.dead_bytes > 0
                && segment.live_bytes <= room
        };
        let segments = self.extents.segments()?.segments();
        segments.filter(fits).max_by_key(|segment| segment.bytes.saturating_sub(segment.live_bytes))
    }
}

impl Store {
    /// Returns what this store should reserve; `None` if nothing.
    pub(super) fn needs(&self, writer: &Writer) -> Option<Needs> {
        let may_hold = may_hold(&self.region) && self.access == Access::ReadWrite;
        if !may_hold || writer.compacting.is_none() {
            return None;
        }
        let live = self.region.live();
        let log_bytes = live.log_bytes();
        let (min, max) = (writer.superblock.segment_bytes_min, writer.superblock.segment_bytes_max);
        let (min, max) = (u64::from(min).max(GRANULE_BYTES), u64::from(max));
        let holding_bytes = HOLDING_SEGMENTS * min;
        let has_any = writer.extents.needs().is_some();
        if log_bytes + live.big_bytes()
            < if has_any { holding_bytes / ENDING_SHARE } else { holding_bytes }
        {
            return None;
        }
        let segment_bytes = log_segment_bytes(log_bytes.max(min), REUSED_SHARE, min, max.max(min));
        let free_bytes = self.region.storage().growth_bytes().unwrap_or(0);
        // The bytes that puts may add before the next check.
        let added_bytes = writer.log.next_segment_bytes(&self.region);
        writer.extents.segments()?;
        let unit_bytes = SegmentTable::unit_bytes_for(min);
        let (count, geometry) = (writer.state.record_count, self.shape().geometry);
        let end = writer.extents.space().end();
        let image_bytes = segment_bytes_later(count, geometry, end, unit_bytes);
        let later_count = count.saturating_add(added_bytes / RECORD_BYTES_MIN);
        let later = Self::geometry_for(later_count, writer.superblock.fill_thousandths);
        let later = if later.bucket_count() < geometry.bucket_count() { geometry } else { later };
        let later_end = end + (added_bytes + image_bytes).div_ceil(GRANULE_BYTES);
        // Consider both shapes: a split that finds no room is skipped, and puts continue.
        let bytes_of = |shape| segment_bytes_later(later_count, shape, later_end, unit_bytes);
        let place_bytes = bytes_of(geometry).max(bytes_of(later));
        let needs = Needs { segment_bytes, segment_bytes_min: min, image_bytes, place_bytes };
        needs.is_nearly_full(free_bytes, has_any).then_some(needs)
    }

    /// Brings the reserve up to date.
    ///
    /// # Errors
    ///
    /// If the disk has no space for the reserve, or the handle is poisoned.
    pub(crate) fn hold(&self, writer: &mut Writer) -> Result<()> {
        // A store to the free-space list of a file that can no longer be written may raise a
        // signal.
        self.group.check()?;
        let Some(needs) = self.needs(writer) else {
            if writer.extents.needs().is_some() {
                writer.extents.end_reserve();
            }
            writer.log.give_to_puts();
            return Ok(());
        };
        writer.extents.set_needs(needs);
        let tabled = writer.extents.keep_segments_in_file();
        self.group.check()?;
        writer.extents.hold().and(tabled)?;
        writer.log.give_to_puts();
        Ok(())
    }

    /// Makes room for the record of a change in the tail of the log.
    #[cold]
    #[inline(never)]
    pub(super) fn make_way(
        &self,
        writer: &mut Writer,
        kind: RecordKind,
        record_bytes: u64,
    ) -> Result<()> {
        if kind == RecordKind::Delete {
            return self.make_way_for_delete(writer, record_bytes);
        }
        if mutant::is_made(Mutant::PutsTakeReserve) {
            writer.log.give_to_puts();
            return writer.log.reserve_held(record_bytes, &mut writer.extents, 0);
        }
        self.leave_reserve(writer, record_bytes)?;
        if writer.log.has_room_for_put(record_bytes) {
            return Ok(());
        }
        writer.log.reserve(record_bytes, &mut writer.extents)?;
        self.retry_checkpoint(writer);
        // The file may have grown, and with it the addresses in a checkpoint image, so the reserve
        // may have to be larger.
        let _ = self.hold(writer);
        // After an error of the device the record must not be stored.
        self.group.check()
    }

    /// Refuses a put of `record_bytes` if the reserve for deletes was complete once and is not now.
    /// If it was never complete, puts and the reserve share the free space of the file system.
    fn leave_reserve(&self, writer: &mut Writer, record_bytes: u64) -> Result<()> {
        let Err(error) = self.hold(writer) else { return Ok(()) };
        if !is_want_of_room(&error) {
            return Err(error);
        }
        let is_held = writer.extents.is_anything_held() || writer.log.is_kept();
        let put_bytes = record_bytes.max(writer.log.next_segment_bytes(&self.region));
        let has_share = || {
            let free_bytes = self.region.storage().growth_bytes().unwrap_or(0);
            !writer.extents.was_reserve_whole() && free_bytes >= PUT_SHARE * put_bytes
        };
        if is_held && !has_share() {
            return Err(error);
        }
        writer.log.give_to_puts();
        Ok(())
    }

    /// As [`make_way`](Self::make_way), for the record that names a big record. Every such put
    /// checks the reserve: naming records are small, so the log seldom begins a segment, while the
    /// checkpoint image grows.
    #[inline]
    pub(super) fn make_way_for_big(&self, writer: &mut Writer, record_bytes: u64) -> Result<()> {
        if may_hold(&self.region) {
            self.leave_reserve(writer, record_bytes)?;
        }
        if writer.log.has_room_for_put(NAMING_BYTES) {
            return Ok(());
        }
        self.make_way(writer, RecordKind::BigPut, NAMING_BYTES)
    }

    /// Makes room for a record of deletes, in a segment of the reserve if no other space is left.
    pub(super) fn make_way_for_delete(&self, writer: &mut Writer, record_bytes: u64) -> Result<()> {
        let is_looking = writer.extents.needs().is_none() && !writer.log.has_room(record_bytes);
        if is_looking && may_hold(&self.region) {
            let _ = self.hold(writer);
            self.group.check()?;
        }
        let error = match writer.log.reserve(record_bytes, &mut writer.extents) {
            Err(error) if is_want_of_room(&error) && may_hold(&self.region) => error,
            reserved => return reserved,
        };
        self.reuse_emptied(writer);
        self.group.check()?;
        let reserved = writer.log.reserve_held(record_bytes, &mut writer.extents, 0);
        reserved.map_err(|_| error)
    }

    /// Regains the reserve before a change whose lock was taken while the reserve is short. Returns
    /// the lock for the change.
    #[cold]
    #[inline(never)]
    pub(super) fn regain_before<'a>(&'a self, mut writer: Changing<'a>) -> Result<Changing<'a>> {
        for _ in 0..LOOKS_AT_PINS {
            if !writer.is_regaining_due() {
                break;
            }
            if self.takes_turns() {
                self.regain_in_turn(&mut writer);
                break;
            }
            drop(writer);
            self.regain(0, GRANULE_BYTES);
            writer = self.lock_out_others()?;
        }
        Ok(writer)
    }

    /// Makes room for a put that failed with `error`, if it failed for want of room.
    ///
    /// # Errors
    ///
    /// `error` itself, if it has another cause or no room could be made.
    #[cold]
    #[inline(never)]
    pub(crate) fn regain_after(&self, error: Error, record_bytes: u64) -> Result<()> {
        let is_possible = is_want_of_room(&error) && may_hold(&self.region) && !self.takes_turns();
        if !is_possible {
            return Err(error);
        }
        let (bytes, alignment) = {
            let writer = self.lock()?;
            let log = &writer.log;
            let dead_bytes = writer.state.dead_bytes + writer.waiting_bytes();
            if writer.extents.needs().is_none() || dead_bytes <= writer.hopeless_dead_bytes {
                return Err(error);
            }
            let least_bytes = u64::from(writer.superblock.segment_bytes_min).max(GRANULE_BYTES);
            let bytes = (SegmentHeader::BYTES + record_bytes + LINK_BYTES).next_power_of_two();
            if log.is_big(record_bytes, &self.region) {
                let bytes = SegmentHeader::BYTES + record_bytes;
                (bytes.next_multiple_of(GRANULE_BYTES), GRANULE_BYTES)
            } else {
                (bytes.max(least_bytes), bytes.max(least_bytes))
            }
        };
        if self.regain(bytes, alignment) { Ok(()) } else { Err(error) }
    }

    /// Empties segments and writes checkpoints until the reserve is complete and there is room for
    /// `bytes` besides it; returns whether it got that far.
    pub(super) fn regain(&self, bytes: u64, alignment: u64) -> bool {
        let _alone = self.regaining.lock();
        for round in 0..ROUNDS_MAX {
            let Ok(mut writer) = self.lock() else { return false };
            if self.is_regained(&mut writer, bytes, alignment) {
                return true;
            }
            if self.group.check().is_err() {
                return false;
            }
            let free_before = writer.extents.free_bytes();
            let was_compacting = writer.may_compact(self);
            self.empty_what_fits(&mut writer);
            drop(writer);
            if self.checkpoint_now().is_err() {
                break;
            }
            let Ok(mut writer) = self.lock() else { return false };
            for _ in 0..LOOKS_AT_PINS {
                self.reuse_emptied(&mut writer);
            }
            let _ = self.hold(&mut writer);
            let is_begun = was_compacting || round > 1;
            if is_begun && writer.extents.free_bytes() <= free_before {
                break;
            }
        }
        let Ok(mut writer) = self.lock() else { return false };
        let is_regained = self.is_regained(&mut writer, bytes, alignment);
        if !is_regained {
            writer.pause_regaining();
        }
        is_regained
    }

    /// Makes room for maintenance on a full disk; returns whether there is more free space than
    /// before.
    pub(super) fn regain_more(&self) -> bool {
        let free_bytes = || self.lock().map(|writer| writer.extents.free_bytes());
        let Ok(before) = free_bytes() else { return false };
        let wanted = self.lock().ok().and_then(|writer| writer.extents.needs());
        let wanted_bytes = wanted.map_or(0, |needs| needs.segment_bytes);
        self.regain(wanted_bytes, wanted_bytes.max(GRANULE_BYTES));
        free_bytes().is_ok_and(|after| after > before)
    }

    fn is_regained(&self, writer: &mut Writer, bytes: u64, alignment: u64) -> bool {
        if self.hold(writer).is_err() || writer.extents.is_reserve_short() {
            return false;
        }
        let space = writer.extents.space();
        let (count, alignment) = (bytes / GRANULE_BYTES, alignment / GRANULE_BYTES);
        bytes == 0 || space.has_room_before(space.end(), count, alignment)
    }

    /// As [`regain`](Self::regain), within a turn.
    fn regain_in_turn(&self, writer: &mut Writer) {
        for _ in 0..LOOKS_AT_PINS {
            if self.is_regained(writer, 0, GRANULE_BYTES) {
                return;
            }
            if self.group.check().is_err() {
                return;
            }
            self.empty_what_fits(writer);
            if self.group.check().is_err() || self.checkpoint_in_this_turn(writer).is_err() {
                break;
            }
            let _ = self.hold(writer);
        }
        writer.pause_regaining();
    }

    /// As [`regain_more`](Self::regain_more), within a turn.
    pub(super) fn regain_more_in_turn(&self, writer: &mut Writer) -> Result<bool> {
        let before = writer.extents.free_bytes();
        self.empty_what_fits(writer);
        self.group.check()?;
        self.free_emptied_in_turn(writer)?;
        Ok(writer.extents.free_bytes() > before)
    }

    /// Empties the segments whose live records have room in the compacted head, the ones that gain
    /// most first. For a store that was never compacted, it only begins compaction.
    fn empty_what_fits(&self, writer: &mut Writer) {
        if !writer.may_compact(self) {
            return self.start_compacting(writer);
        }
        let (mut left_out, mut may_copy) = (Vec::new(), true);
        while let Some(segment) = writer.segment_that_fits(&left_out, may_copy) {
            // A segment that has more live bytes than were counted, or is damaged, stays: do not
            // choose it twice.
            left_out.push(segment.offset);
            if writer.needs_room && self.region.require_room().is_err() {
                break;
            }
            if self.compact_one(writer, segment).is_err() {
                if !may_copy || self.group.check().is_err() {
                    break;
                }
                // The free space is more fragmented than it seemed. Go on with segments of
                // tombstones, which need no copies.
                may_copy = false;
            }
        }
    }
}
