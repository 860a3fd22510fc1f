//! The bookkeeping of the writer for compaction: live and dead bytes, emptied segments and their
//! deaths, and the compacted head.

use std::ops::Range;

use super::compacting::Compacting;
use super::{Store, Writer};
use crate::compaction::{Compaction, Death};
use crate::format::{Addr, GRANULE_BYTES, SegmentHeader, SegmentKind, big_record_bytes_min};
use crate::live::CommitState;
use crate::log::append::{LogPosition, UnsyncedRange, coalesce};
use crate::log::record::LINK_BYTES;
use crate::options::Options;
use crate::region::Region;
use crate::segments::{SegmentTable, SegmentUse, TableSegment};
use crate::testing::mutant::{self, Mutant};

impl Writer {
    /// Begins compaction, or continues that of the last handle.
    pub(super) fn begin_compaction(&mut self, store: &Store, live_share: f64, options: &Options) {
        let segment_bytes_min = u64::from(self.superblock.segment_bytes_min);
        let (region, live) = (&store.region, store.region.live());
        let mut head = self.log.compacted();
        if region.storage().is_volatile() {
            assert_eq!(self.log.position().lsn, 0, "the segment table begins with the log");
            self.extents.follow_segments(SegmentTable::unit_bytes_for(segment_bytes_min));
        } else if head.resume_compacted(region, &self.state).is_err() {
            // Do not compact if the head cannot be read; `check` reports the damage.
            return;
        }
        if self.superblock.is_compacted {
            self.log.note_reused();
        }
        let mut state = Compaction::new(live_share, self.log.next_salt());
        let mut damaged = Vec::new();
        if let Some(segments) = self.extents.segments() {
            // The time of their death is unknown, so assume now.
            let death = self.death(store);
            let emptied =
                if self.superblock.is_compacted { segments.emptied() } else { Vec::new() };
            for (segment, is_big) in emptied {
                let sequence = sequence_of(store, segments, &segment, is_big);
                state.retire(segment, is_big, death, sequence);
            }
            let is_damaged = |segment: &TableSegment| segment.segment_use == SegmentUse::Damaged;
            damaged.extend(segments.segments().filter(is_damaged).map(|segment| segment.offset));
        }
        self.compacting = Some(Box::new(Compacting {
            state,
            head,
            big_live_bytes: live.big_bytes().min(self.state.live_bytes),
            big_bytes_min: big_record_bytes_min(segment_bytes_min),
            damaged,
            is_poisoned: options.is_freed_poisoned,
            is_wanted: false,
            named: Vec::new(),
        }));
    }

    /// Takes over the pace of `before`, the state of this handle in an earlier turn, and the deaths
    /// of the segments that have waited since.
    pub(super) fn go_on_compacting(&mut self, before: &mut Self) {
        if let (Some(compacting), Some(before)) = (&mut self.compacting, &mut before.compacting) {
            compacting.state.go_on(&before.state);
            // Otherwise each turn would charge readers' moments with space that died before them.
            compacting.state.redate(&before.state);
            compacting.head.keep_mapping(&mut before.head);
        }
    }

    /// Makes segments that were skipped because of damage eligible again, unless their header is
    /// damaged: the index may have been rebuilt, or the damaged record may be dead now.
    pub(super) fn retry_damaged(&mut self, region: &Region) {
        let Self { compacting: Some(compacting), extents, .. } = self else { return };
        let Some(segments) = extents.segments_mut() else { return };
        compacting.damaged.retain(|&offset| {
            let segment_use = match region.view.segment(offset).map(|header| header.kind) {
                Ok(SegmentKind::Log) => SegmentUse::Log,
                Ok(SegmentKind::Compacted) => SegmentUse::Compacted,
                Ok(_) | Err(_) => return true,
            };
            segments.set_use(offset, segment_use);
            false
        });
    }

    /// Returns the death of a record that dies now.
    pub(super) fn death(&self, store: &Store) -> Death {
        Death {
            lsn: self.log.position().lsn,
            checkpoint: self.checkpoints.begun_count,
            ticket: store.region.pins.ticket(),
            stamp: store.horizons.now(),
        }
    }

    /// Returns whether the next checkpoint should mark the store as compacted.
    pub(super) fn wants_to_compact(&self) -> bool {
        self.compacting.as_ref().is_some_and(|compacting| compacting.is_wanted)
    }

    /// Returns whether segments may be emptied and reused: in a file, only once both superblocks
    /// are marked as compacted and name a checkpoint.
    pub(super) fn may_compact(&self, store: &Store) -> bool {
        store.region.storage().is_volatile() || self.superblock.is_compacted
    }

    /// Returns the ranges that the next sync must cover, including the copies that the log names,
    /// and the log sequence number that it makes durable.
    pub(super) fn take_unsynced(&mut self, is_awaited: bool) -> (Vec<UnsyncedRange>, u64) {
        let (mut ranges, lsn) = self.log.take_unsynced(is_awaited);
        if let Some(compacting) = &mut self.compacting
            && !mutant::is_made(Mutant::SyncsWithoutCopies)
        {
            let (moved, _) = compacting.head.take_unsynced(false);
            ranges = coalesce(ranges.into_iter().chain(moved).collect());
        }
        (ranges, lsn)
    }

    /// Returns the ranges that no sync has begun to cover.
    pub(super) fn unsynced(&self) -> Vec<UnsyncedRange> {
        let moved = self.compacting.as_ref().map(|compacting| compacting.head.unsynced());
        let ranges = self.log.unsynced().into_iter().chain(moved.into_iter().flatten());
        coalesce(ranges.collect())
    }

    /// Copies the compacted head to the state, to be published with the next commit.
    #[inline]
    pub(super) fn note_head(&mut self) {
        if let Some(compacting) = &self.compacting {
            let head = compacting.head.position();
            self.state.head_offset = head.offset;
            self.state.head_segment = head.segment_offset;
        }
    }

    /// Counts a record of `bytes` that was appended for a change, before its slot is stored.
    #[inline(always)]
    pub(super) fn note_appended(&mut self, addr: Addr, bytes: u64, is_big: bool) {
        if !is_big && let Some(segments) = self.extents.segments_mut() {
            segments.add_live(addr.offset(), bytes);
        }
        let Some(compacting) = &mut self.compacting else { return };
        if is_big {
            compacting.big_live_bytes += bytes;
        } else {
            compacting.state.note_appended(bytes);
        }
    }

    /// Counts a tombstone or another record that no slot holds.
    #[inline]
    pub(super) fn note_appended_dead(&mut self, addr: Addr, bytes: u64) {
        if let Some(segments) = self.extents.segments_mut() {
            segments.add_dead(addr.offset(), bytes);
        }
        if let Some(compacting) = &mut self.compacting {
            compacting.state.note_appended_dead(bytes);
        }
    }

    /// Counts the record that names a big record, the last one appended, as dead: no slot ever
    /// leads to it.
    #[cold]
    pub(super) fn note_named(&mut self) {
        if self.compacting.is_none() {
            return;
        }
        let offset = self.log.last_record_offset();
        let bytes = self.log.position().offset - offset;
        self.state.dead_bytes += bytes;
        self.note_appended_dead(Addr::of_offset(offset), bytes);
    }

    /// Counts a record of `bytes` as dead, after the change of its slot.
    #[inline]
    pub(super) fn note_buried(&mut self, store: &Store, addr: Addr, bytes: u64) {
        let Some(segments) = self.extents.segments_mut() else { return };
        let Some(compacting) = &mut self.compacting else {
            let least_bytes = big_record_bytes_min(self.superblock.segment_bytes_min.into());
            let big = (bytes > least_bytes)
                .then(|| segments.bury_big(addr.offset() - SegmentHeader::BYTES))
                .flatten();
            match big {
                // A later handle frees it.
                Some(segment) if self.superblock.is_compacted => {
                    self.take_off_dead(bytes);
                    store.take_off_big(&segment);
                }
                Some(_) => {}
                None => segments.remove_live(addr.offset(), bytes),
            }
            return;
        };
        if bytes > compacting.big_bytes_min
            && let Some(segment) = segments.bury_big(addr.offset() - SegmentHeader::BYTES)
        {
            compacting.big_live_bytes = compacting.big_live_bytes.saturating_sub(bytes);
            // Otherwise `start_compacting` finds it later.
            if self.may_compact(store) {
                self.take_off_dead(bytes);
                store.take_off_big(&segment);
                self.retire(store, segment, true);
            }
            return;
        }
        compacting.state.note_buried(bytes);
        segments.remove_live(addr.offset(), bytes);
    }

    /// Counts an appended record of `bytes` that, because of an error, no slot holds.
    #[cold]
    pub(super) fn note_stray(&mut self, bytes: u64) {
        self.state.dead_bytes += bytes;
        self.has_stray_records = true;
    }

    /// Subtracts `record_bytes` of an emptied segment from the dead bytes.
    pub(super) fn take_off_dead(&mut self, record_bytes: u64) {
        let record_bytes = record_bytes.min(self.state.dead_bytes);
        self.state.dead_bytes -= record_bytes;
        self.retired_bytes += record_bytes;
    }

    /// Moves a segment to the waiting list.
    pub(super) fn retire(&mut self, store: &Store, segment: Range<u64>, is_big: bool) {
        let death = self.death(store);
        let compacting = self.compacting.as_mut().expect("only compaction retires segments");
        let segments = self.extents.segments().expect("it has the segment");
        let sequence = sequence_of(store, segments, &segment, is_big);
        compacting.state.retire(segment, is_big, death, sequence);
    }

    /// Returns the positions where records are appended: the log, and the compacted head.
    pub(crate) fn heads(&self) -> [LogPosition; 2] {
        let CommitState { head_segment: segment_offset, head_offset: offset, .. } = self.state;
        let head = self.compacting.as_ref().map(|compacting| compacting.head.position());
        [self.log.position(), head.unwrap_or(LogPosition { segment_offset, offset, lsn: 0 })]
    }

    /// Returns whether keys may be deleted without tombstones, as in a table in memory, whose log
    /// is never replayed. If so, notes that from now on the log alone does not determine the
    /// contents of the table.
    pub(super) fn begin_without_tombstones(&mut self, store: &Store) -> bool {
        if !store.region.storage().is_volatile() {
            return false;
        }
        let Some(compacting) = &mut self.compacting else { return false };
        compacting.state.note_log_incomplete();
        true
    }

    /// Returns whether the log alone has every record, because none was moved out of it.
    pub(crate) fn is_log_whole(&self) -> bool {
        let is_whole = |compacting: &Compacting| compacting.state.is_log_whole();
        !self.superblock.is_compacted && self.compacting.as_deref().is_none_or(is_whole)
    }

    /// Returns the bytes of free space of a table in memory whose pages went back to the system.
    pub(super) fn returned_bytes(&self) -> u64 {
        if self.compacting.is_none() || !self.extents.region().storage().is_volatile() {
            return 0;
        }
        self.extents.space().free_bytes() - self.extents.warm_bytes()
    }

    /// Returns the bytes of emptied segments that wait to be freed.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        match (&self.compacting, self.extents.segments()) {
            (Some(compacting), _) => compacting.state.waiting_bytes(),
            // A handle that only reads or does not compact frees no emptied segments, so all of
            // them wait.
            (None, Some(segments)) if self.superblock.is_compacted => {
                segments.emptied().iter().map(|(segment, _)| segment.end - segment.start).sum()
            }
            (None, _) => 0,
        }
    }

    /// Returns how many ranges of moved records a sync would have to cover.
    #[cfg(test)]
    pub(crate) fn unsynced_moved_count(&self) -> usize {
        self.compacting.as_ref().map_or(0, |compacting| compacting.head.unsynced_count())
    }

    /// Returns the bytes of dead records whose segments were emptied.
    #[cfg(test)]
    pub(crate) fn retired_record_bytes(&self) -> u64 {
        self.retired_bytes
    }

    /// Returns the bytes of victims that are still to be read for the changes so far.
    pub(crate) fn owed_bytes(&self) -> u64 {
        self.compacting.as_ref().map_or(0, |compacting| compacting.state.owed_bytes())
    }

    /// Returns about how many bytes of records compaction can move now.
    pub(crate) fn room_for_copies(&self) -> u64 {
        let Some(compacting) = &self.compacting else { return 0 };
        let least_bytes = u64::from(self.superblock.segment_bytes_min).max(GRANULE_BYTES);
        let lost_bytes = SegmentHeader::BYTES + 2 * LINK_BYTES;
        // A segment begins at a multiple of its size.
        let unit = least_bytes / GRANULE_BYTES;
        let free = self.extents.space().unreserved().filter_map(|extent| extent.whole_units(unit));
        let free_bytes: u64 = free.map(|extent| extent.count * GRANULE_BYTES).sum();
        let held_bytes = self.extents.held_bytes_for_copies();
        let segment_count = (free_bytes + held_bytes) / least_bytes;
        let room = compacting.room() + free_bytes + held_bytes;
        room.saturating_sub(segment_count * lost_bytes)
    }

    /// Returns the bytes of records that were moved since the store was opened.
    pub(crate) fn moved_bytes(&self) -> u64 {
        self.compacting.as_ref().map_or(0, |compacting| compacting.state.moved_bytes())
    }
}

impl Store {
    /// Takes the segment of a big record off the bytes of big records: it counts as waiting
    /// instead.
    #[cold]
    pub(super) fn take_off_big(&self, segment: &Range<u64>) {
        let live = self.region.live();
        live.set_big_bytes(live.big_bytes().saturating_sub(segment.end - segment.start));
    }
}

/// Returns the number by which a later turn recognizes a waiting segment: the low half of its
/// sequence number, as in the segment table, or 0 in a store without turns.
fn sequence_of(store: &Store, table: &SegmentTable, segment: &Range<u64>, is_big: bool) -> u64 {
    if !store.takes_turns() {
        return 0;
    }
    if !is_big {
        return table.segment_at(segment.start).map_or(0, |found| found.sequence.into());
    }
    let header = store.region.view.segment(segment.start);
    header.map_or(0, |header| header.sequence & u64::from(u32::MAX))
}
