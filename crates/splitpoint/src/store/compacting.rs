//! Compaction: the writer moves live records out of segments that are mostly dead.
//!
//! A step reads some records of the victim, looks up in the index which of them are live, appends
//! copies of those at the compacted head, and stores their slots. Nothing is overwritten before
//! [`Compaction::take_reusable`] permits it.
//!
//! # Invariants
//!
//! - A copy is complete before a slot leads to it.
//! - An error leaves every key where it was.
//! - After an error of the device nothing is stored, because a store through the mapping might
//!   raise a signal.
//! - The compacted head begins a segment for a copy only after room for the record that names the
//!   copy was reserved.
//! - A former head segment dies only after a commit with the next head. So each checkpoint begun
//!   after that death has the next head, too, and a replay from it does not look for the LINK
//!   between the two.
//!
//! # Not here
//!
//! What to compact and how fast is in [`compaction`](crate::compaction).

use std::ops::Range;

use super::{Store, Writer};
use crate::checksum;
use crate::compaction::{Compaction, Victim};
use crate::error::{Error, Result};
use crate::format::{Addr, SegmentHeader, SegmentKind};
use crate::health::Health;
use crate::index::line::Line;
use crate::index::lookup::{is_held, locate_held};
use crate::index::slot::Slot;
use crate::log::append::{Appender, Payload, WritePath};
use crate::log::record::{Record, RecordHeader, RecordKind, finish_crc};
use crate::log::relocation::{Moved, Relocation};
use crate::log::scan::AHEAD_BYTES;
use crate::segments::{SegmentTable, SegmentUse, TableSegment};
use crate::storage::reader_table::OtherReaders;
use crate::testing::mutant::{self, Mutant};

/// Records that are looked up as one batch, so that the cache misses of their buckets overlap.
const BATCH: usize = 32;
/// Bytes of victims that [`Store::maintain`] reads between two releases of the lock.
pub(super) const SLICE_BYTES: u64 = 64 << 10;

/// Segments of the reserve that relocation records must leave: for the copies, and for tombstones.
const LEFT_BY_NAMES: usize = 2;

/// Largest number of emptied segments that one change frees: after a long scan, thousands may wait.
const FREED_MAX: usize = 64;

/// The state of compaction in the writer.
#[derive(Debug)]
pub(crate) struct Compacting {
    pub(crate) state: Compaction,
    /// The appender of moved records.
    pub(super) head: Appender,
    /// Live bytes of big records, which are never moved.
    pub(super) big_live_bytes: u64,
    /// The smallest size of a big record.
    pub(super) big_bytes_min: u64,
    /// Offsets of the segments that were skipped because of a damaged record.
    pub(super) damaged: Vec<u64>,
    /// Whether freed space is overwritten, for tests.
    pub(super) is_poisoned: bool,
    /// Whether it has become worthwhile to compact a store that was never compacted.
    pub(super) is_wanted: bool,
    /// Buffer for the value of the relocation record of a batch.
    pub(super) named: Vec<u8>,
}

/// A copy of a live record that no slot leads to yet, and the slot that will.
struct Copied<'a> {
    hash: u64,
    line: &'a Line,
    i: usize,
    slot: Slot,
    from: Moved,
    to: Addr,
    bytes: u64,
    /// The checksum of the copy.
    crc: u32,
}

/// A record of the victim whose slot must be looked up.
struct Candidate {
    addr: Addr,
    hash: u64,
}

/// Buffers that the batches of a step share.
struct Batch<'a> {
    candidates: Vec<Candidate>,
    copies: Vec<Copied<'a>>,
}

impl Batch<'_> {
    fn new() -> Self {
        Self { candidates: Vec::with_capacity(BATCH), copies: Vec::with_capacity(BATCH) }
    }
}

impl Compacting {
    /// Returns the rest of the head segment, from the page of the next moved record on.
    pub(super) fn rest_of_head(&self) -> Option<Range<u64>> {
        self.head.rest_of_tail()
    }

    /// Returns the bytes of copies that still fit into the head segment.
    pub(super) fn room(&self) -> u64 {
        self.head.room()
    }

    /// Returns the live bytes of the records that can be moved.
    pub(super) fn movable_bytes(&self, live_bytes: u64) -> u64 {
        live_bytes.saturating_sub(self.big_live_bytes)
    }

    /// Returns the dead bytes in damaged segments, which compaction cannot recover.
    pub(super) fn stuck_bytes(&self, segments: Option<&SegmentTable>) -> u64 {
        let Some(segments) = segments else { return 0 };
        let damaged = self.damaged.iter().filter_map(|&offset| segments.segment_at(offset));
        damaged.map(|segment| segment.dead_bytes).sum()
    }
}

impl Store {
    /// Compacts a step after a change, if one is due.
    #[inline(always)]
    pub(super) fn compact_if_due(&self, writer: &mut Writer) {
        if let Some(compacting) = &mut writer.compacting
            && compacting.state.is_step_due()
        {
            self.compact_a_step(writer);
        }
    }

    #[inline(never)]
    pub(super) fn compact_a_step(&self, writer: &mut Writer) {
        self.reuse_some(writer, FREED_MAX);
        if self.group.check().is_err() {
            // What this comes behind may have failed. A handle that has failed stores nothing any more.
            return;
        }
        self.checkpoint_for_waiting(writer);
        let Writer { compacting: Some(compacting), extents, log, state, .. } = &mut *writer else {
            return;
        };
        let live_bytes = compacting.movable_bytes(state.live_bytes);
        let segment_bytes = log.next_segment_bytes(&self.region);
        let dead_bytes =
            state.dead_bytes.saturating_sub(compacting.stuck_bytes(extents.segments()));
        let used_bytes = live_bytes + dead_bytes;
        let budget = compacting.state.begin_step(used_bytes, live_bytes, segment_bytes);
        if budget > 0 && !writer.may_compact(self) {
            self.start_compacting(writer);
        } else if budget > 0
            && let Some(budget) = self.budget_of_turn(writer, budget)
        {
            // Ignore an error: records that could not be moved for lack of space are retried by the
            // next step.
            let _ = self.compact(writer, budget);
        }
    }

    /// Returns how many bytes a step with this `budget` reads. On a handle that takes turns, the
    /// next change may come from another handle, which would start its victim from the beginning.
    /// So there a step reads either a complete victim or nothing (`None`), with a probability such
    /// that the mean is `budget`.
    #[inline]
    fn budget_of_turn(&self, writer: &mut Writer, budget: u64) -> Option<u64> {
        if !self.takes_turns() {
            return Some(budget);
        }
        let victim = self.victim(writer).ok().flatten()?;
        let rest = victim.segment.range().end.saturating_sub(victim.at).max(1);
        let is_lucky = budget >= rest || writer.log.next_salt() % rest < budget;
        is_lucky.then_some(budget.max(rest))
    }

    /// Prepares a file for its first compaction: keeps the segment table in the file from now on,
    /// marks dead big records there, and makes a checkpoint due, which marks both superblocks as
    /// compacted.
    #[cold]
    pub(super) fn start_compacting(&self, writer: &mut Writer) {
        if writer.wants_to_compact() {
            return writer.hurry_checkpoint();
        }
        // A checkpoint in progress would not include what is recorded here.
        if !writer.checkpoints.is_idle() {
            return;
        }
        let is_in_file =
            writer.extents.segments().is_some() && writer.extents.keep_segments_in_file().is_ok();
        if is_in_file && self.note_dead_bigs(writer).is_ok() {
            writer.hurry_checkpoint();
            if let Some(compacting) = &mut writer.compacting {
                compacting.is_wanted = true;
            }
        }
    }

    /// Marks the dead big records in the segment table. A damaged one counts as live.
    fn note_dead_bigs(&self, writer: &mut Writer) -> Result<()> {
        let Some(segments) = writer.extents.segments_mut() else { return Ok(()) };
        let parts: Vec<(Range<u64>, bool)> = segments.parts().collect();
        for (part, is_dead) in parts {
            match self.is_dead_big(&part) {
                Ok(true) if !is_dead => drop(segments.bury_big(part.start)),
                Ok(_) | Err(Error::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns whether a segment has a big record that no slot leads to.
    fn is_dead_big(&self, segment: &Range<u64>) -> Result<bool> {
        if self.region.view.segment(segment.start)?.kind != SegmentKind::Big {
            return Ok(false);
        }
        let at = segment.start + SegmentHeader::BYTES;
        let record = self.region.view.record_before(at, segment.end)?;
        is_held(&self.region.windows, self.hash_of(record.key()), record.addr()).map(|held| !held)
    }

    /// Retires the big records that had died before the store was first compacted.
    #[cold]
    pub(super) fn retire_dead_bigs(&self, writer: &mut Writer) {
        if self.group.check().is_err() {
            // A change may be unfinished, and no commit may follow it.
            return;
        }
        writer.take_off_dead(self.dead_big_bytes(writer));
        // As in `retire_emptied`.
        self.commit(writer);
        for segment in dead_bigs(writer) {
            self.take_off_big(&segment);
            writer.retire(self, segment, true);
        }
    }

    /// Returns the bytes of the records that `retire_dead_bigs` retires.
    pub(super) fn dead_big_bytes(&self, writer: &Writer) -> u64 {
        let bytes_of = |segment: &Range<u64>| {
            let at = segment.start + SegmentHeader::BYTES;
            let record = self.region.view.record_before(at, segment.end);
            record.map_or(0, |record| record.bytes.len() as u64)
        };
        dead_bigs(writer).iter().map(bytes_of).sum()
    }

    /// Compacts a step after a batch, if one is due. The rest that the batch owes is left to
    /// [`settle`](Self::settle).
    pub(super) fn compact_after_batch(&self, writer: &mut Writer, change_count: usize) {
        if let Some(compacting) = &mut writer.compacting
            && compacting.state.is_step_due_after(change_count)
        {
            self.compact_a_step(writer);
        }
    }

    /// Compacts what a batch owes, releasing the lock after each step, until it or other threads
    /// have done as much. Returns whether there is work to request from the background thread.
    #[cold]
    pub(crate) fn settle(&self, mut owed_bytes: u64) -> Result<bool> {
        let mut needs_thread = false;
        while owed_bytes > 0 {
            let mut writer = self.lock_for_change()?;
            self.group.check()?;
            self.compact_a_step(&mut writer);
            owed_bytes = writer.owed_bytes().min(owed_bytes.saturating_sub(SLICE_BYTES));
            needs_thread = writer.checkpoints.needs_thread();
        }
        Ok(needs_thread)
    }

    /// Reads `budget` bytes of victims, or slightly more, and moves the live records. Returns the
    /// number of bytes read; fewer than `budget` means that there is no victim left.
    ///
    /// # Errors
    ///
    /// If there is no space for the live records. Records moved before the error stay moved.
    pub(super) fn compact(&self, writer: &mut Writer, budget: u64) -> Result<u64> {
        self.group.check()?;
        if !writer.may_compact(self) || mutant::is_made(Mutant::NeverCompacts) {
            return Ok(0);
        }
        if let Some(compacting) = &mut writer.compacting {
            // The view may have moved since the last use of the head.
            compacting.head.follow_view(&self.region);
        }
        let read = self.compact_victims(writer, budget);
        if self.group.check().is_err() {
            return read.and_then(|bytes| self.group.check().map(|()| bytes));
        }
        if !matches!(read, Ok(0)) {
            // The same for the log. Also after an error, because a segment may have been opened and
            // records moved before it.
            writer.log.follow_view(&self.region);
            self.commit(writer);
        }
        read
    }

    /// Empties one segment, if there is space for its live records.
    pub(super) fn compact_one(&self, writer: &mut Writer, segment: TableSegment) -> Result<()> {
        let Some(compacting) = &mut writer.compacting else { return Ok(()) };
        compacting.head.follow_view(&self.region);
        compacting.state.victim = None;
        let mut batch = Batch::new();
        let mut emptied = self.begin_victim(writer, segment).map(drop);
        while emptied.is_ok()
            && let Some(victim) = writer.compacting.as_ref().and_then(|found| found.state.victim)
        {
            emptied = self.compact_batch(writer, victim, SLICE_BYTES, &mut batch).map(drop);
        }
        if let Some(compacting) = &mut writer.compacting {
            compacting.state.victim = None;
        }
        if self.group.check().is_err() {
            return emptied.and(self.group.check());
        }
        writer.log.follow_view(&self.region);
        self.commit(writer);
        emptied
    }

    fn compact_victims(&self, writer: &mut Writer, budget: u64) -> Result<u64> {
        let mut batch = Batch::new();
        let mut read_bytes = 0;
        while read_bytes < budget {
            let Some(victim) = self.victim(writer)? else { break };
            read_bytes += self.compact_batch(writer, victim, budget - read_bytes, &mut batch)?;
        }
        Ok(read_bytes)
    }

    /// Returns the present victim, or chooses one.
    pub(super) fn victim(&self, writer: &mut Writer) -> Result<Option<Victim>> {
        let heads = writer.heads().map(|head| head.segment_offset);
        let victim = writer.compacting.as_ref().and_then(|compacting| compacting.state.victim);
        if victim.is_some() {
            return Ok(victim);
        }
        let next_sequence = self.region.live().next_sequence();
        loop {
            let Writer { compacting: Some(compacting), extents, .. } = &mut *writer else {
                return Ok(None);
            };
            let Some(segments) = extents.segments() else { return Ok(None) };
            let Some(segment) = compacting.state.choose(segments, heads, next_sequence) else {
                compacting.state.rest();
                return Ok(None);
            };
            if self.begin_victim(writer, segment)? {
                return Ok(writer.compacting.as_ref().and_then(|found| found.state.victim));
            }
        }
    }

    /// Returns whether there is a victim, or may be one.
    pub(super) fn has_victim(&self, writer: &mut Writer) -> bool {
        let heads = writer.heads().map(|head| head.segment_offset);
        let next_sequence = self.region.live().next_sequence();
        let Writer { compacting: Some(compacting), extents, .. } = writer else { return false };
        compacting.state.victim.is_some()
            || extents.segments().is_some_and(|segments| {
                compacting.state.choose(segments, heads, next_sequence).is_some()
            })
    }

    /// Makes a segment the victim, unless its header is damaged. Returns whether it did.
    pub(super) fn begin_victim(&self, writer: &mut Writer, segment: TableSegment) -> Result<bool> {
        let header = match self.region.view.segment(segment.offset) {
            Err(Error::Corrupt { .. }) => {
                leave_damaged(writer, segment.offset);
                return Ok(false);
            }
            header => header?,
        };
        let at = segment.offset + SegmentHeader::BYTES;
        let victim = Victim { segment, at, salt: header.salt, record_bytes: 0 };
        if let Some(compacting) = &mut writer.compacting {
            compacting.state.victim = Some(victim);
        }
        Ok(true)
    }

    /// Reads a batch of records of the victim, and moves the live ones. Returns the number of bytes
    /// read.
    fn compact_batch<'a>(
        &'a self,
        writer: &mut Writer,
        mut victim: Victim,
        budget: u64,
        batch: &mut Batch<'a>,
    ) -> Result<u64> {
        let before = victim.at;
        batch.candidates.clear();
        let read = self.read_candidates(&mut victim, budget, &mut batch.candidates);
        let moved = read.and_then(|is_end| {
            self.move_live(writer, victim.salt, batch)?;
            Ok(is_end)
        });
        let is_end = match moved {
            Ok(is_end) => is_end,
            Err(Error::Corrupt { .. }) => {
                leave_damaged(writer, victim.segment.offset);
                return Ok(victim.at.max(before + 8) - before);
            }
            // The batch is retried; the records that were moved are no longer live in the victim.
            Err(error) => return Err(error),
        };
        let compacting = writer.compacting.as_mut().expect("a victim is of compaction");
        compacting.state.victim = (!is_end).then_some(victim);
        let is_none_counted = victim.segment.live_bytes == 0;
        if is_end
            || mutant::is_made(Mutant::EmptiesUnread)
            || is_none_counted && mutant::is_made(Mutant::FreesByCount)
        {
            compacting.state.victim = None;
            self.retire_emptied(writer, &victim);
        }
        Ok(victim.at.max(before + 8) - before)
    }

    /// Moves an emptied victim to the waiting list. The counts without its dead records are
    /// published first: otherwise a kill could leave more dead bytes than the segments in use have.
    /// A kill directly after that commit makes them be subtracted twice, when the segment is
    /// emptied again; then too few bytes count as dead, and less is compacted for a while.
    fn retire_emptied(&self, writer: &mut Writer, victim: &Victim) {
        writer.take_off_dead(victim.record_bytes);
        if !mutant::is_made(Mutant::RetiresUncommitted) {
            self.commit(writer);
        }
        let segment = victim.segment.range();
        let segments = writer.extents.segments_mut().expect("a victim is in the table");
        segments.set_use(segment.start, SegmentUse::Emptied);
        let live = self.region.live();
        live.set_log_bytes(live.log_bytes().saturating_sub(victim.segment.bytes));
        writer.retire(self, segment, false);
    }

    /// Reads records of the victim, up to [`BATCH`] candidates or `budget` bytes, and prefetches
    /// their buckets. Returns whether the end of the victim was reached.
    fn read_candidates(
        &self,
        victim: &mut Victim,
        budget: u64,
        candidates: &mut Vec<Candidate>,
    ) -> Result<bool> {
        let view = &self.region.view;
        let geometry = self.geometry();
        let add = |at, key: &[u8], candidates: &mut Vec<Candidate>| {
            let hash = self.hash_of(key);
            self.region.windows.prefetch_bucket(geometry.bucket_of(hash));
            candidates.push(Candidate { addr: Addr::of_offset(at), hash });
        };
        let (end, stop) = (victim.segment.range().end, victim.at.saturating_add(budget));
        while candidates.len() < BATCH && victim.at < stop {
            if let Some((pair, record_bytes)) = view.short_pair_before(victim.at, end) {
                add(victim.at, pair.key, candidates);
                victim.at += record_bytes;
                victim.record_bytes += record_bytes;
                view.prefetch_range(victim.at + AHEAD_BYTES, record_bytes);
                continue;
            }
            let record = view.record_before(victim.at, end)?;
            let record_bytes = record.bytes.len() as u64;
            match record.header.kind {
                RecordKind::Link => return Ok(true),
                RecordKind::Put => {
                    add(victim.at, record.key(), candidates);
                    victim.record_bytes += record_bytes;
                }
                RecordKind::Delete
                | RecordKind::Commit
                | RecordKind::BigPut
                | RecordKind::Relocate => {
                    victim.record_bytes += record_bytes;
                }
                _ => {}
            }
            victim.at += record_bytes;
        }
        Ok(false)
    }

    /// Moves the records of a batch that a slot holds: writes the copies; then, in a file, appends
    /// the relocation record that names them; then stores the slots.
    ///
    /// # Errors
    ///
    /// Records moved before the error stay moved. Of the others, copies without a name may remain.
    fn move_live<'a>(
        &'a self,
        writer: &mut Writer,
        salt: u64,
        Batch { candidates, copies }: &mut Batch<'a>,
    ) -> Result<()> {
        // If a snapshot may be open, the copy must name the original, because a snapshot finds the
        // version of its moment by `prev`.
        let others = MovesAmongOthers::begin(self);
        let is_looked_back = self.horizons.is_any_open() || others.names_original;
        let names_original = is_looked_back && !mutant::is_made(Mutant::MovesWithoutName);
        let is_logged = !self.region.storage().is_volatile();
        if is_logged {
            let bytes = relocation_bytes(candidates.len());
            writer.log.reserve_held(bytes, &mut writer.extents, LEFT_BY_NAMES)?;
            // Map before the first copy, so that appending its name cannot fail.
            writer.log.ensure_mapped(&self.region)?;
            let compacting = writer.compacting.as_mut().expect("a victim is of compaction");
            compacting.head.ensure_mapped(&self.region)?;
        }
        copies.clear();
        for candidate in candidates {
            let copied = self.copy_if_live(writer, candidate, salt, names_original, copies);
            if let Err(error) = copied {
                if self.group.check().is_ok() {
                    self.store_slots(writer, copies)?;
                }
                return Err(error);
            }
        }
        self.store_slots(writer, copies)
    }

    /// Copies a record if a slot holds it; `names_original` says whether the `prev` of the copy is
    /// the original. If the copy does not fit into the segment of the previous copies, the slots of
    /// those are stored first.
    #[inline]
    fn copy_if_live<'a>(
        &'a self,
        writer: &mut Writer,
        &Candidate { addr, hash }: &Candidate,
        salt: u64,
        names_original: bool,
        copies: &mut Vec<Copied<'a>>,
    ) -> Result<()> {
        let windows = &self.region.windows;
        let Some((line, i, slot)) = locate_held(windows, hash, addr)? else { return Ok(()) };
        let record = self.region.view.record(addr)?;
        let from_bytes = record.bytes.len() as u64;
        let mut payload = verified(&record, salt)?;
        let prev = names_original.then_some(addr);
        payload.header.prev = prev;
        let bytes = payload.header.record_bytes();
        let has_room = |writer: &Writer| {
            writer.compacting.as_ref().is_some_and(|compacting| compacting.head.has_room(bytes))
        };
        if !has_room(writer) && !copies.is_empty() {
            self.store_slots(writer, copies)?;
            let left = relocation_bytes(BATCH);
            if !self.region.storage().is_volatile() {
                writer.log.reserve_held(left, &mut writer.extents, LEFT_BY_NAMES)?;
            }
        }
        let Writer { compacting: Some(compacting), extents, .. } = &mut *writer else {
            unreachable!("a victim is of compaction");
        };
        compacting.head.reserve(bytes, extents)?;
        let to = compacting.head.append(&payload, prev, WritePath::Mapping, &self.region)?;
        let (from, crc) = (Moved { from: addr, from_bytes }, compacting.head.last_record_crc());
        copies.push(Copied { hash, line, i, slot, from, to, bytes, crc });
        Ok(())
    }

    /// Names the copies in the log, and stores their slots.
    fn store_slots(&self, writer: &mut Writer, copies: &mut Vec<Copied<'_>>) -> Result<()> {
        let stored = self.try_store_slots(writer, copies);
        // A copy without a slot is not counted as dead.
        writer.has_stray_records |= stored.is_err();
        stored
    }

    fn try_store_slots(&self, writer: &mut Writer, copies: &mut Vec<Copied<'_>>) -> Result<()> {
        let Some(&Copied { to: first, from: Moved { from: first_from, .. }, .. }) = copies.first()
        else {
            return Ok(());
        };
        if !self.region.storage().is_volatile() && !mutant::is_made(Mutant::MovesUnnamed) {
            let compacting = writer.compacting.as_mut().expect("copies are of compaction");
            let (segment_offset, salt) = compacting.head.segment_and_salt();
            let moved = copies.iter().map(|copied| copied.from);
            let value = &mut compacting.named;
            Relocation::encode(segment_offset, salt, first.offset(), moved, value);
            let mut named = Payload::new(RecordKind::Relocate, &[], value);
            let copies_crc = Relocation::copies_crc(copies.iter().map(|copied| copied.crc));
            named.header.salt =
                Some(copies_crc).filter(|_| !mutant::is_made(Mutant::NamesUnchecked));
            let bytes = named.header.record_bytes();
            let at = writer.log.append(&named, None, WritePath::Mapping, &self.region)?;
            writer.state.dead_bytes += bytes;
            writer.note_appended_dead(at, bytes);
        }
        // All copies are from one victim and go to one segment. Count them as live there before a
        // slot leads there, and in the victim as long as a slot may lead there.
        let bytes = copies.iter().map(|copied| copied.bytes).sum();
        let from_bytes = copies.iter().map(|copied| copied.from.from_bytes).sum();
        let Writer { compacting: Some(compacting), extents, .. } = &mut *writer else {
            unreachable!("copies are of compaction");
        };
        compacting.state.note_moved(bytes);
        let segments = extents.segments_mut().expect("a victim is in the table");
        segments.add_live(first.offset(), bytes);
        for Copied { hash, line, i, slot, to, .. } in copies.drain(..) {
            self.capture_bucket_of(writer, hash)?;
            debug_assert_eq!(line.slot(i), slot, "nothing changes the slots of a batch");
            line.set_slot(i, Slot::new(slot.tag(), to));
        }
        let segments = writer.extents.segments_mut().expect("as above");
        segments.remove_live(first_from.offset(), from_bytes);
        writer.state.count_put(bytes, Some(from_bytes));
        self.commit(writer);
        Ok(())
    }
}

/// Marks moves of records while other processes may read, until it is dropped.
struct MovesAmongOthers<'a> {
    others: Option<&'a OtherReaders>,
    health: &'a Health,
    /// Whether one of them may look back, so that copies must name their originals.
    names_original: bool,
}

impl<'a> MovesAmongOthers<'a> {
    fn begin(store: &'a Store) -> Self {
        let (others, health) = (store.others.as_deref(), &**store.region.health());
        // On a failed file system, a store to the table may raise a signal.
        let may_store = health.check().is_ok();
        let names_original = others.is_some_and(|others| !may_store || others.begin_move());
        Self { others, health, names_original }
    }
}

impl Drop for MovesAmongOthers<'_> {
    fn drop(&mut self) {
        if let Some(others) = self.others.filter(|_| self.health.check().is_ok()) {
            others.end_move();
        }
    }
}

/// Returns the segments of the big records that are marked as dead.
fn dead_bigs(writer: &Writer) -> Vec<Range<u64>> {
    let emptied = writer.extents.segments().map(SegmentTable::emptied).unwrap_or_default();
    emptied.into_iter().filter_map(|(segment, is_big)| is_big.then_some(segment)).collect()
}

/// Returns the size in bytes of a relocation record that names `count` copies.
fn relocation_bytes(count: usize) -> u64 {
    let value_bytes = Relocation::value_bytes(count.max(1));
    let header = RecordHeader::new(RecordKind::Relocate, 0, value_bytes);
    RecordHeader { salt: Some(0), ..header }.record_bytes()
}

/// Skips a segment with a damaged header or live record, so that its keys stay readable as before.
/// The next session tries it again.
#[cold]
fn leave_damaged(writer: &mut Writer, offset: u64) {
    if let Some(segments) = writer.extents.segments_mut() {
        segments.set_use(offset, SegmentUse::Damaged);
    }
    if let Some(compacting) = &mut writer.compacting {
        compacting.state.victim = None;
        compacting.damaged.push(offset);
    }
}

/// Verifies a record of a segment with this salt, and returns the payload to copy: key, value and
/// padding as one slice, with the payload checksum, which the copy shares.
#[inline]
fn verified<'a>(record: &Record<'a>, salt: u64) -> Result<Payload<'a>> {
    let header = &record.header;
    let (head, rest) = record.bytes.split_at(header.header_bytes() as usize);
    let crc = checksum::crc32c(rest);
    let (expected, found) = (finish_crc(crc, head, salt, record.offset), record.crc());
    if expected != found {
        let (expected, found) = (expected.into(), found.into());
        let what = "record checksum";
        return Err(Error::Corrupt { what, offset: record.offset, expected, found });
    }
    let header = RecordHeader::new(RecordKind::Put, header.key_bytes, header.value_bytes);
    Ok(Payload { header, key: rest, value: &[], crc })
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use crate::{Batch, Db, Durability, Options, SimDisk};

    const EIO: i32 = 5;
    /// Largest number of calls of the changes that are made to fail.
    const CALLS_MAX: u64 = 2_000;

    /// Returns a store on which compaction has something to do.
    fn store_on(disk: &SimDisk) -> Db {
        let options = Options::new().seed(1).durability(Durability::Buffered).live_share(0.9);
        let db = disk.open(&options.segment_bytes_min(4096)).expect("a new store");
        for i in (0..300_u32).chain(0..120) {
            db.put(i.to_le_bytes(), [7; 200]).expect("it has room");
        }
        db.maintain(u64::MAX).expect("it has room");
        for i in 0..100_u32 {
            db.put((3 * i).to_le_bytes(), [8; 200]).expect("it has room");
        }
        db
    }

    /// Each call of some changes fails: a page of the file may answer the next store with a signal, so there is
    /// none. Where a disk of `disk_bytes` is full, changes go on.
    #[track_caller]
    fn assert_nothing_is_stored_behind_a_failure(disk_bytes: u64, change: impl Fn(&Db)) {
        let mut compared_count = 0;
        for call in 1..CALLS_MAX {
            let disk = SimDisk::new();
            let db = store_on(&disk);
            disk.limit_to(disk_bytes);
            let before = disk.call_count();
            disk.fail_call(call, EIO, false);
            change(&db);
            if let Some(then) = disk.take_file_at_failure() {
                compared_count += 1;
                let now = disk.file();
                let stored = then.iter().zip(&now).position(|(then, now)| then != now);
                assert_eq!(stored, None, "call {call}");
            }
            if disk.call_count() - before < call {
                assert!(compared_count > 0, "{compared_count} calls");
                return;
            }
        }
        panic!("the changes have fewer calls");
    }

    fn grow(db: &Db) {
        for i in 1000..1060_u32 {
            let _ = db.put(i.to_le_bytes(), [9; 200]);
        }
    }

    fn overwrite(db: &Db) {
        for i in 0..60_u32 {
            let _ = db.put((5 * i).to_le_bytes(), [9; 200]);
        }
    }

    fn delete(db: &Db) {
        for i in 0..300_u32 {
            let _ = db.delete(i.to_le_bytes());
        }
    }

    fn apply(db: &Db) {
        for i in 0..4_u32 {
            let key = |j: u32| (17 * (20 * i + j) % 400).to_le_bytes();
            let changes = (0..20).fold(Batch::new(), |batch, j| batch.put(key(j), [9; 200]));
            let _ = db.apply(&changes.delete(key(20)));
        }
    }

    fn maintain(db: &Db) {
        let _ = db.maintain(u64::MAX);
    }

    #[test]
    fn compaction_stores_nothing_behind_a_failure_of_the_device() {
        assert_nothing_is_stored_behind_a_failure(1 << 40, maintain);
    }

    #[test]
    fn puts_and_what_they_make_due_store_nothing_behind_a_failure_of_the_device() {
        assert_nothing_is_stored_behind_a_failure(1 << 40, grow);
        assert_nothing_is_stored_behind_a_failure(1 << 40, overwrite);
    }

    #[test]
    fn deletes_and_batches_store_nothing_behind_a_failure_of_the_device() {
        assert_nothing_is_stored_behind_a_failure(1 << 40, delete);
        assert_nothing_is_stored_behind_a_failure(1 << 40, apply);
    }

    /// The store holds back a reserve, and takes from it.
    #[test]
    fn on_a_nearly_full_disk_nothing_is_stored_behind_a_failure_of_the_device() {
        for disk_bytes in [1 << 20, 200 << 10] {
            for change in [grow, overwrite, delete, apply, maintain] {
                assert_nothing_is_stored_behind_a_failure(disk_bytes, change);
            }
        }
    }
}
