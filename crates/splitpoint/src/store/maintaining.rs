//! Compaction outside of changes: by [`Db::maintain`](crate::Db::maintain), and at a close.

use super::closing::Mark;
use super::compacting::SLICE_BYTES;
use super::room::LOOKS_AT_PINS;
use super::{Store, Writer};
use crate::error::{Error, Result};
use crate::format::{GRANULE_BYTES, LOG_SEGMENT_BYTES_MAX, SegmentHeader};
use crate::live::LineWindow;
use crate::options::Access;
use crate::segments::{SegmentUse, TableSegment};
use crate::space::Extent;
use crate::storage::failure::is_want_of_room;
use crate::testing::mutant::{self, Mutant};

/// Free ranges that one turn punches out of the file, which takes milliseconds while other handles
/// wait.
const PUNCHES_A_TURN: usize = 16;
/// Largest number of times that one turn makes room on a full disk, while other handles wait.
const ROUNDS_IN_TURN_MAX: u32 = 4;
/// Approximate size of a key in a checkpoint, in bytes.
const IMAGE_BYTES_PER_KEY: u64 = 6;
/// A close compacts the file if this many of the smallest segments have died.
const FREED_SEGMENTS_MIN: u64 = 64;
/// Largest log that a close compacts: compacting it takes a second or two.
const PACKED_BYTES_MAX: u64 = 512 << 20;
/// Waiting bytes from which a close writes a checkpoint to free them.
const CLOSING_BYTES_MIN: u64 = 64 << 10;
/// Bytes of the last segments that are moved before a checkpoint frees them: at least this, and at
/// least `MOVED_BY_IMAGE` times the size of a checkpoint.
const MOVED_BYTES_MIN: u64 = 4 << 20;
const MOVED_BY_IMAGE: u64 = 16;
/// The last segments of a file are moved to its beginning if at least this share (as a divisor) of
/// it is free.
const LOOSE_SHARE: u64 = 8;

/// The result of [`Db::maintain`](crate::Db::maintain).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Maintenance {
    /// Bytes of segments read.
    pub read_bytes: u64,
    /// Bytes of live records moved.
    pub moved_bytes: u64,
    /// Bytes of emptied segments that cannot be reused yet, because a value, a scan or a backup may
    /// still read them.
    pub waiting_bytes: u64,
    /// Bytes of memory, or of disk space, that were returned to the system.
    pub returned_bytes: u64,
    /// Whether nothing is left to compact. Space may still be waiting.
    pub is_done: bool,
}

impl Store {
    /// Compacts everything worthwhile, reading `budget` bytes of segments or slightly more, and
    /// returns memory or disk space to the system.
    pub(crate) fn maintain(&self, budget: u64) -> Result<Maintenance> {
        if self.access == Access::ReadOnly {
            return Err(Error::ReadOnly);
        }
        if self.takes_turns() {
            return self.compact_by_turns(budget);
        }
        let done = self.pack(budget)?;
        self.lock()?.is_maintained = true;
        Ok(done)
    }

    fn pack(&self, budget: u64) -> Result<Maintenance> {
        let done = self.compact_and_pack(budget);
        self.lock()?.extents.pack(false);
        done
    }

    fn compact_and_pack(&self, budget: u64) -> Result<Maintenance> {
        let mut done = Maintenance::default();
        if !self.is_worth_maintaining()? {
            // Return before the store is marked "not clean".
            return Ok(Maintenance { is_done: true, ..done });
        }
        let is_in_file = !self.region.storage().is_volatile();
        let writer = self.lock_for_change()?;
        let moved_before = writer.moved_bytes();
        let mut is_started = writer.may_compact(self);
        drop(writer);
        // Try twice: a checkpoint that was in progress does not mark the store as compacted.
        for _ in 0..2 {
            if !is_started {
                self.start_compacting(&mut *self.lock_for_change()?);
                self.checkpoint_now()?;
                is_started = self.lock()?.may_compact(self);
            }
        }
        // Repeat, because space freed at the end of a round may make room for moving the last
        // segments.
        let (mut lowest, mut is_checkpoint_moved) = (u64::MAX, false);
        let mut writer = loop {
            done.is_done = match self.compact_within(budget, &mut done.read_bytes, &mut lowest) {
                // On a full disk, checkpoints free the emptied segments.
                Err(error) if is_want_of_room(&error) && self.regain_more() => continue,
                compacted => compacted?,
            };
            if done.is_done {
                self.shrink_index()?;
            }
            if is_in_file && done.is_done && self.lock()?.waiting_bytes() > 0 {
                self.checkpoint_now()?;
            }
            let mut writer = self.lock_for_change()?;
            for _ in 0..LOOKS_AT_PINS {
                self.reuse_emptied(&mut writer);
            }
            if done.is_done && self.may_move_last(&writer) {
                let Writer { log, extents, .. } = &mut *writer;
                log.release_next(extents);
                extents.pack(true);
                // Ignore an error: what cannot be moved stays in place.
                let _ = writer.extents.move_last();
            }
            // If readers still hold emptied segments, another round would not find room.
            if !done.is_done || is_in_file && writer.waiting_bytes() > 0 {
                break writer;
            }
            if self.last_to_move(&writer, lowest).is_some() {
                continue;
            }
            if is_checkpoint_moved || !self.is_checkpoint_last(&writer) {
                break writer;
            }
            is_checkpoint_moved = true;
            writer.extents.pack(true);
            drop(writer);
            self.checkpoint_now()?;
        };
        done.moved_bytes = writer.moved_bytes() - moved_before;
        done.waiting_bytes = writer.waiting_bytes();
        if done.is_done {
            // Space freed since the last checkpoint may complete the reserve.
            if self.hold(&mut writer).is_ok() {
                done.returned_bytes = writer.extents.cool();
            }
        }
        Ok(done)
    }

    /// Compacts in turns of a segment or two each. Moves only records, and does not truncate the
    /// file, because other handles have recorded its end.
    fn compact_by_turns(&self, budget: u64) -> Result<Maintenance> {
        let (mut done, mut is_held) = (Maintenance::default(), false);
        while !done.is_done && done.read_bytes < budget.max(1) {
            self.compact_in_turn(&mut *self.lock_for_change()?, &mut done, &mut is_held)?;
        }
        let mut from = done.is_done.then_some(0);
        while let Some(granule) = from {
            let mut writer = self.lock_for_change()?;
            // The reserve of another handle counts as free here, so reserve it before punching.
            let _ = self.hold(&mut writer);
            let (bytes, next) = writer.extents.punch_free(granule, PUNCHES_A_TURN);
            done.returned_bytes += bytes;
            from = next;
        }
        Ok(done)
    }

    /// Begins compaction, or reads segments, and frees emptied segments by a checkpoint if nothing
    /// else is left to do or many bytes wait. `is_held` tells whether the last such checkpoint
    /// freed nothing because readers hold the segments.
    fn compact_in_turn(
        &self,
        writer: &mut Writer,
        done: &mut Maintenance,
        is_held: &mut bool,
    ) -> Result<()> {
        if writer.compacting.is_none() {
            // This handle does not compact. Handles that do free the segments that are emptied.
            done.is_done = true;
            return Ok(());
        }
        if !writer.may_compact(self) {
            if writer.state.dead_bytes > 0 || self.has_victim(writer) {
                // Finish a checkpoint in progress first: its image would not contain what
                // `start_compacting` notes now.
                if !mutant::is_made(Mutant::WaitsForPending) {
                    self.free_pending(writer)?;
                }
                self.start_compacting(writer);
                self.checkpoint_in_this_turn(writer)?;
            }
            done.is_done = !writer.may_compact(self);
            return Ok(());
        }
        let moved_before = writer.moved_bytes();
        self.reuse_emptied(writer);
        // Reserve space first: copies must not take the space of the checkpoint that frees the
        // segments they come from.
        let _ = self.hold(writer);
        let mut round_count = 0;
        done.is_done = loop {
            match self.compact_slices(writer, &mut done.read_bytes) {
                // On a full disk, checkpoints free the emptied segments.
                Err(error) if is_want_of_room(&error) => {
                    round_count += 1;
                    if round_count > ROUNDS_IN_TURN_MAX || !self.regain_more_in_turn(writer)? {
                        return Err(error);
                    }
                }
                is_done => break is_done?,
            }
        };
        done.moved_bytes += writer.moved_bytes() - moved_before;
        if done.is_done || !*is_held && writer.wants_checkpoint() {
            let waiting_bytes = writer.waiting_bytes();
            self.free_emptied_in_turn(writer)?;
            *is_held = writer.waiting_bytes() >= waiting_bytes;
        }
        done.waiting_bytes = writer.waiting_bytes();
        Ok(())
    }

    /// Reads as many bytes as the largest segment has, or slightly more; returns whether nothing is
    /// left to compact.
    fn compact_slices(&self, writer: &mut Writer, read_bytes: &mut u64) -> Result<bool> {
        let end = *read_bytes + LOG_SEGMENT_BYTES_MAX;
        while *read_bytes < end {
            if writer.needs_room {
                // One check of the free space of the file system is valid only for a few stores, so
                // repeat it for each slice.
                self.region.require_room()?;
            }
            let slice_bytes = self.compact(writer, SLICE_BYTES)?;
            *read_bytes += slice_bytes;
            if slice_bytes < SLICE_BYTES {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Frees the emptied segments that no reader holds, by a checkpoint within the turn.
    pub(super) fn free_emptied_in_turn(&self, writer: &mut Writer) -> Result<()> {
        if writer.waiting_bytes() == 0 {
            return Ok(());
        }
        self.checkpoint_in_this_turn(writer)?;
        for _ in 0..LOOKS_AT_PINS {
            self.reuse_emptied(writer);
        }
        Ok(())
    }

    /// Compacts until `read_bytes` reaches the budget or nothing is left to compact; returns `true`
    /// in the latter case. `lowest` is the offset of the segment at the end of the file that was
    /// moved last.
    fn compact_within(&self, budget: u64, read_bytes: &mut u64, lowest: &mut u64) -> Result<bool> {
        while *read_bytes < budget {
            let mut writer = self.lock_for_change()?;
            self.group.check()?;
            self.reuse_emptied(&mut writer);
            let slice = SLICE_BYTES.min(budget - *read_bytes);
            let slice_bytes = self.compact(&mut writer, slice)?;
            *read_bytes += slice_bytes;
            if slice_bytes < slice && !self.choose_last(&mut writer, lowest)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether there may be anything to compact or to return to the system.
    fn is_worth_maintaining(&self) -> Result<bool> {
        let mut writer = self.lock()?;
        if writer.compacting.is_none() {
            return Ok(false);
        }
        if !self.region.storage().is_volatile() {
            writer.find_segments()?;
        }
        let is_idle = !self.has_victim(&mut writer) && writer.waiting_bytes() == 0;
        let dead_bigs = writer.state.dead_bytes > 0 && !writer.may_compact(self);
        let can_move = self.last_to_move(&writer, u64::MAX).is_some()
            || self.is_checkpoint_last(&writer)
            || self.may_move_last(&writer) && writer.extents.last_to_move().is_some();
        let has_spare = self.is_index_sparse(&writer) || writer.extents.warm_bytes() > 0;
        Ok(!is_idle || dead_bigs || can_move || has_spare)
    }

    /// Chooses the last segment of the file as the victim, if moving it helps to truncate the file;
    /// returns whether it did. If records are still appended to that segment, the head leaves it
    /// first.
    fn choose_last(&self, writer: &mut Writer, lowest: &mut u64) -> Result<bool> {
        // While readers hold the emptied segments, moving more would only take more space.
        let image_bytes = writer.superblock.checkpoint.map_or(0, |name| name.bytes);
        if writer.waiting_bytes() >= MOVED_BYTES_MIN.max(MOVED_BY_IMAGE * image_bytes) {
            return Ok(false);
        }
        let Some(last) = self.last_to_move(writer, *lowest) else { return Ok(false) };
        // Its records must not be copied to a place behind it.
        writer.extents.pack(true);
        writer.log.release_next(&mut writer.extents);
        writer.extents.forget_end();
        let [log, compacted] = writer.heads().map(|head| head.segment_offset == last.offset);
        if log || compacted {
            // Leave the log segment even if only the compacted head is affected: the log grows by
            // this, so the next checkpoint, which names the new head, waits for a sync of both.
            writer.log.leave_segment(&mut writer.extents)?;
        }
        let Writer { compacting: Some(compacting), extents, .. } = &mut *writer else {
            return Ok(false);
        };
        if compacted {
            compacting.head.leave_segment(extents)?;
        }
        if log || compacted {
            self.commit(writer);
        }
        *lowest = last.offset;
        self.begin_victim(writer, last)
    }

    /// Returns the last segment of the file if moving it helps: it is before `lowest`, only a
    /// checkpoint and emptied segments are behind it, much of the file is free, and there is room
    /// before it for its records. If a head is in it, there must be room for two segments, because
    /// both heads continue in new ones.
    fn last_to_move(&self, writer: &Writer, lowest: u64) -> Option<TableSegment> {
        let compacting = writer.compacting.as_ref().filter(|_| self.may_move_last(writer))?;
        let segments = writer.extents.segments()?;
        let in_use = segments.segments().filter(|found| found.segment_use != SegmentUse::Emptied);
        let last = in_use.max_by_key(|found| found.offset)?;
        let is_moved = matches!(last.segment_use, SegmentUse::Log | SegmentUse::Compacted);
        // Leave a head without records where it is: a replay finds a head by the record that names
        // its first copy, or by a checkpoint.
        let first = last.offset + SegmentHeader::BYTES;
        let heads = writer.heads();
        let is_empty_head = heads.iter().any(|head| head.offset == first);
        if !is_moved || is_empty_head || last.offset >= lowest {
            return None;
        }
        let granule = last.offset / GRANULE_BYTES;
        let live = self.region.live();
        let is_big_behind = segments.parts().any(|(part, _)| part.start > last.offset);
        let is_table_behind = live.segment_table().is_some_and(|table| table.granule > granule);
        let mut pieces = LineWindow::ALL.into_iter().flat_map(|window| {
            (0..live.piece_count(window)).map(move |piece| live.piece(window, piece))
        });
        if is_big_behind || is_table_behind || pieces.any(|piece| piece > granule) {
            return None;
        }
        let next_bytes =
            [&compacting.head, &writer.log].map(|head| head.next_segment_bytes(&self.region));
        let needed = next_bytes.into_iter().fold(last.bytes, u64::max) / GRANULE_BYTES;
        let is_head = heads.iter().any(|head| head.segment_offset == last.offset);
        let places = writer.extents.space().places_before(granule, needed, needed);
        (places > u64::from(is_head)).then_some(last)
    }

    /// Returns whether the file ends with a checkpoint for which there is room before it.
    fn is_checkpoint_last(&self, writer: &Writer) -> bool {
        let space = writer.extents.space();
        let is_last = |extent: &Extent| extent.granule + extent.count == space.used_end();
        let mut checkpoints = self.region.live().checkpoint_extents().into_iter().flatten();
        let last = if self.may_move_last(writer) { checkpoints.find(is_last) } else { None };
        last.is_some_and(|Extent { granule, .. }| {
            space.has_room_before(granule, self.image_bytes_max(writer) / GRANULE_BYTES, 1)
        })
    }

    /// Returns whether the last parts of the file are moved to its beginning.
    fn may_move_last(&self, writer: &Writer) -> bool {
        !self.region.storage().is_volatile() && writer.may_compact(self) && is_loose(writer)
    }

    /// Compacts a file of which more than half is free or dead, as [`maintain`](Self::maintain)
    /// does, but reads at most twice as many bytes as have died. If there is no room for that, the
    /// file stays as it is.
    pub(crate) fn pack_at_close(&self) {
        if self.region.storage().is_volatile() || self.group.check().is_err() {
            return;
        }
        let Ok(mut writer) = self.lock() else { return };
        // The thread that wrote checkpoints is gone.
        writer.checkpoints.set_asked(false);
        writer.extents.leave_to_close();
        let space = writer.extents.space();
        let end = space.end() * GRANULE_BYTES;
        let gained_bytes = space.free_bytes() + writer.waiting_bytes() + writer.state.dead_bytes;
        let dead_bytes = writer.retired_bytes + writer.state.dead_bytes;
        let may_pack = writer.mark == Mark::Changing && !writer.is_closed;
        let least_bytes = FREED_SEGMENTS_MIN * u64::from(writer.superblock.segment_bytes_min);
        let is_short = self.region.live().log_bytes() <= PACKED_BYTES_MAX;
        if may_pack && is_short && dead_bytes >= least_bytes && gained_bytes > end / 2 {
            // Segments that another process reads cannot be freed: copying their records would only
            // make the file longer.
            let others = self.others.as_deref();
            if self.region.pins.is_pinned_elsewhere()
                || others.is_some_and(|others| others.oldest_moment().is_some())
            {
                return;
            }
            drop(writer);
            // A failed sync poisons the handle, which the rest of the close sees.
            let is_unbound = mutant::is_made(Mutant::PacksBeyondBudget);
            let _ = self.pack(if is_unbound { u64::MAX } else { 2 * dead_bytes });
        }
    }

    /// Does the compaction that the last changes of a handle owe, and frees the emptied segments if
    /// that gains more space than the checkpoint for it takes.
    ///
    /// # Errors
    ///
    /// Those of a sync, which poison the handle.
    pub(super) fn compact_at_close(&self) -> Result<()> {
        let is_due = {
            let mut writer = self.lock()?;
            if self.region.storage().is_volatile() || writer.compacting.is_none() {
                return Ok(());
            }
            self.compact_a_step(&mut writer);
            // The thread that wrote checkpoints is gone.
            writer.checkpoints.set_asked(false);
            let image_bytes = writer.state.record_count * IMAGE_BYTES_PER_KEY;
            let is_worth = writer.waiting_bytes() > CLOSING_BYTES_MIN.max(image_bytes / 2);
            writer.wants_to_compact() && !writer.may_compact(self) || is_worth
        };
        if !is_due {
            return Ok(());
        }
        if let Err(error) = self.checkpoint_now() {
            // Without room for the checkpoint everything stays as it is.
            self.group.check()?;
            drop(error);
        }
        let mut writer = self.lock()?;
        for _ in 0..LOOKS_AT_PINS {
            self.reuse_emptied(&mut writer);
        }
        Ok(())
    }
}

/// Returns whether enough of the file is free to move its last segments to its beginning.
fn is_loose(writer: &Writer) -> bool {
    let space = writer.extents.space();
    let free_count: u64 = space.unreserved().map(|free| free.count).sum();
    free_count >= space.end() / LOOSE_SHARE
}
