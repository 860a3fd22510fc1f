//! Compaction: the writer moves live records out of segments that are mostly dead.
//!
//! A step reads some records of the victim, asks the index which of them are live, appends those to
//! the compacted head, and stores their slots. Nothing is overwritten before
//! [`Compaction::take_reusable`] says so.
//!
//! # Invariants
//!
//! - A record is copied completely before its slot leads to the copy.
//! - An error leaves every key where it was.
//!
//! # Not here
//!
//! What to compact and how fast is in [`compaction`](crate::compaction).

use std::ops::Range;

use super::{Store, Writer};
use crate::compaction::{Compaction, Death, Moment, Victim, warm_bytes_max};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Addr, SegmentHeader, big_record_bytes_min, u32_at};
use crate::index::lookup::locate_addr;
use crate::index::slot::{Slot, Tag};
use crate::log::append::{Appender, LogPosition, Payload, WritePath};
use crate::log::record::{Pair, RecordHeader, RecordKind, finish_crc};
use crate::log::runs::{Runs, run_of};
use crate::log::scan::AHEAD_BYTES;
use crate::options::{Access, Options};
use crate::region::Region;
use crate::segments::{SegmentTable, SegmentUse};
use crate::testing::mutant::{self, Mutant};

/// Records that are looked up together, so that the cache misses of their buckets overlap.
const BATCH: usize = 32;
/// Bytes of victims that [`Store::maintain`] reads between two releases of the lock.
const SLICE_BYTES: u64 = 64 << 10;
/// Bytes of victims that a change reads at most to find room in a table that is full.
const ROOM_BYTES_MAX: u64 = 4 << 20;
/// Looks at the pins after which `maintain` leaves what still waits.
const LOOKS_AT_PINS: u32 = 4;

/// What the writer has for compaction.
#[derive(Debug)]
pub(crate) struct Compacting {
    pub(crate) state: Compaction,
    /// Where moved records go.
    head: Appender,
    /// Live bytes of big records, which are not moved.
    big_live_bytes: u64,
    /// The smallest record that may have a segment to itself.
    big_bytes_min: u64,
    /// Where the segments are that were left because a record in them is damaged.
    damaged: Vec<u64>,
    /// Whether what is freed is overwritten, for tests.
    is_poisoned: bool,
}

/// What [`Db::maintain`](crate::Db::maintain) did, and what is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Maintenance {
    /// Bytes of segments that were read.
    pub read_bytes: u64,
    /// Bytes of live records that were moved.
    pub moved_bytes: u64,
    /// Bytes of emptied segments that wait: a value, a scan or a backup may still read them.
    pub waiting_bytes: u64,
    /// Bytes of memory that were given back to the system.
    pub returned_bytes: u64,
    /// Whether nothing is left to compact. Space may still wait.
    pub is_done: bool,
}

/// A record of the victim that may be live.
struct Candidate<'a> {
    addr: Addr,
    hash: u64,
    pair: Pair<'a>,
}

impl Writer {
    /// Begins to compact, in a table that has no record yet.
    pub(super) fn begin_compaction(&mut self, live_share: f64, options: &Options) {
        assert_eq!(self.log.position().lsn, 0, "the segment table begins with the log");
        let unit_bytes = u64::from(self.superblock.segment_bytes_min);
        self.extents.follow_segments(unit_bytes);
        let seed = self.log.next_salt();
        self.compacting = Some(Box::new(Compacting {
            state: Compaction::new(live_share, seed),
            head: self.log.compacted(),
            big_live_bytes: 0,
            big_bytes_min: big_record_bytes_min(unit_bytes),
            damaged: Vec::new(),
            is_poisoned: options.is_freed_poisoned,
        }));
    }

    /// Counts a record of `bytes` that was appended for a change, before its slot is stored.
    #[inline]
    pub(super) fn note_appended(&mut self, addr: Addr, bytes: u64, is_big: bool) {
        let Some(compacting) = &mut self.compacting else { return };
        if is_big {
            compacting.big_live_bytes += bytes;
        } else {
            compacting.state.note_appended(bytes);
            if let Some(segments) = self.extents.segments_mut() {
                segments.add_live(addr.offset(), bytes);
            }
        }
    }

    /// Counts a tombstone or another record that no slot holds.
    #[inline]
    pub(super) fn note_appended_dead(&mut self, addr: Addr, bytes: u64) {
        let Some(compacting) = &mut self.compacting else { return };
        compacting.state.note_appended_dead(bytes);
        if let Some(segments) = self.extents.segments_mut() {
            segments.add_dead(addr.offset(), bytes);
        }
    }

    /// Counts the record that names a big one, the last that was appended. Once the big record is in
    /// its segment nobody needs it.
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
        let Some(compacting) = &mut self.compacting else { return };
        let Some(segments) = self.extents.segments_mut() else { return };
        if bytes > compacting.big_bytes_min
            && let Some(segment) = segments.end_big(addr.offset() - SegmentHeader::BYTES)
        {
            compacting.big_live_bytes = compacting.big_live_bytes.saturating_sub(bytes);
            self.retire_big(store, segment, bytes);
            return;
        }
        compacting.state.note_buried(bytes);
        segments.remove_live(addr.offset(), bytes);
    }

    /// Retires the segment of a big record of `bytes`, which is dead.
    #[cold]
    fn retire_big(&mut self, store: &Store, segment: Range<u64>, bytes: u64) {
        let live = store.region.live();
        live.set_big_bytes(live.big_bytes().saturating_sub(segment.end - segment.start));
        self.retire(store, segment, true, bytes);
    }

    /// Puts a segment on the list of those that wait, in which `record_bytes` are dead.
    fn retire(&mut self, store: &Store, segment: Range<u64>, is_big: bool, record_bytes: u64) {
        let death = Death {
            lsn: self.log.position().lsn,
            ticket: store.region.pins.ticket(),
            stamp: store.horizons.now(),
        };
        let record_bytes = record_bytes.min(self.state.dead_bytes);
        self.state.dead_bytes -= record_bytes;
        self.retired_bytes += record_bytes;
        let compacting = self.compacting.as_mut().expect("only compaction retires segments");
        compacting.state.retire(segment, is_big, death);
    }

    /// Returns where the records of a table are whose segments are followed, in the order of the
    /// file.
    pub(crate) fn runs(&self) -> Option<Runs> {
        let segments = self.extents.segments()?;
        let heads = self.heads();
        let end_of = |segment: Range<u64>| {
            let head = heads.iter().find(|head| head.segment_offset == segment.start);
            head.map_or(segment.end, |head| head.offset)
        };
        let followed = segments
            .segments()
            .filter(|segment| segment.segment_use != SegmentUse::Emptied)
            .map(|segment| segment.range());
        let mut runs: Vec<Range<u64>> = followed
            .chain(segments.small().iter().cloned())
            .chain(segments.bigs())
            .map(|segment| run_of(segment.start, end_of(segment)))
            .collect();
        runs.sort_unstable_by_key(|run| run.start);
        Some(runs.into())
    }

    /// Returns where records are appended: the log, and the compacted head.
    fn heads(&self) -> [LogPosition; 2] {
        let head = self.compacting.as_ref().map(|compacting| compacting.head.position());
        [self.log.position(), head.unwrap_or_default()]
    }

    /// Returns whether keys may be deleted without tombstones, as where the log is not read again,
    /// and notes that from now on the log alone does not say what the table holds.
    pub(super) fn begin_without_tombstones(&mut self) -> bool {
        let Some(compacting) = &mut self.compacting else { return false };
        compacting.state.note_log_incomplete();
        true
    }

    /// Returns whether the log alone has every record: nothing was moved away from it.
    pub(crate) fn is_log_whole(&self) -> bool {
        self.compacting.as_ref().is_none_or(|compacting| compacting.state.is_log_whole())
    }

    /// Returns the bytes of free space whose pages went back to the system.
    pub(super) fn returned_bytes(&self) -> u64 {
        if self.compacting.is_none() {
            return 0;
        }
        self.extents.space().free_bytes() - self.extents.warm_bytes()
    }

    /// Returns the bytes of emptied segments that wait.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.compacting.as_ref().map_or(0, |compacting| compacting.state.waiting_bytes())
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

    /// Returns the bytes of victims that the changes so far have still to read.
    pub(crate) fn owed_bytes(&self) -> u64 {
        self.compacting.as_ref().map_or(0, |compacting| compacting.state.owed_bytes())
    }

    /// Returns the bytes of records that were moved since the store was opened.
    pub(crate) fn moved_bytes(&self) -> u64 {
        self.compacting.as_ref().map_or(0, |compacting| compacting.state.moved_bytes())
    }
}

impl Compacting {
    /// Returns the live bytes of the records that can be moved.
    fn movable_bytes(&self, live_bytes: u64) -> u64 {
        live_bytes.saturating_sub(self.big_live_bytes)
    }

    /// Returns the dead bytes that cannot be gained.
    fn stuck_bytes(&self, segments: Option<&SegmentTable>) -> u64 {
        let Some(segments) = segments else { return 0 };
        let damaged = self.damaged.iter().filter_map(|&offset| segments.segment_at(offset));
        damaged.map(|segment| segment.dead_bytes).sum()
    }
}

impl Store {
    /// Compacts after a change, if it is time.
    #[inline(always)]
    pub(super) fn compact_if_due(&self, writer: &mut Writer) {
        if let Some(compacting) = &mut writer.compacting
            && compacting.state.is_step_due()
        {
            self.compact_a_step(writer);
        }
    }

    #[inline(never)]
    fn compact_a_step(&self, writer: &mut Writer) {
        self.reuse_emptied(writer);
        let Writer { compacting: Some(compacting), extents, log, state, .. } = &mut *writer else {
            return;
        };
        let live_bytes = compacting.movable_bytes(state.live_bytes);
        let segment_bytes = log.next_segment_bytes(&self.region);
        let dead_bytes =
            state.dead_bytes.saturating_sub(compacting.stuck_bytes(extents.segments()));
        let used_bytes = live_bytes + dead_bytes;
        let budget = compacting.state.begin_step(used_bytes, live_bytes, segment_bytes);
        if budget > 0 {
            // What cannot be moved, for want of memory, is tried again by the next step.
            let _ = self.compact(writer, budget);
        }
    }

    /// Compacts a step after a batch, if it is time. What it owes then is for
    /// [`settle`](Self::settle).
    pub(super) fn compact_after_batch(&self, writer: &mut Writer, change_count: usize) {
        if let Some(compacting) = &mut writer.compacting
            && compacting.state.is_step_due_after(change_count)
        {
            self.compact_a_step(writer);
        }
    }

    /// Compacts what a batch owes, and lets go of the lock after each step. Until that is done,
    /// or another thread has done as much.
    #[cold]
    pub(crate) fn settle(&self, mut owed_bytes: u64) -> Result<()> {
        while owed_bytes > 0 {
            let mut writer = self.lock_for_change()?;
            self.compact_a_step(&mut writer);
            owed_bytes = writer.owed_bytes().min(owed_bytes.saturating_sub(SLICE_BYTES));
        }
        Ok(())
    }

    /// Tries a change again that found no room, if compaction makes some: what is emptied is used
    /// again, or a victim is emptied. So deletes go on in a table that is full.
    ///
    /// Records move, so the caller looks its keys up again.
    #[cold]
    #[inline(never)]
    pub(super) fn after_room<T>(
        &self,
        writer: &mut Writer,
        error: Error,
        again: impl Fn(&mut Writer) -> Result<T>,
    ) -> Result<T> {
        if !is_want_of_room(&error) || writer.compacting.is_none() || !self.make_room(writer) {
            return Err(error);
        }
        again(writer)
    }

    /// Frees at least one segment, if that can be done; returns whether.
    fn make_room(&self, writer: &mut Writer) -> bool {
        let free_before = writer.extents.space().free_bytes();
        self.reuse_emptied(writer);
        let mut read_bytes = 0;
        while writer.extents.space().free_bytes() <= free_before && read_bytes < ROOM_BYTES_MAX {
            // The lists of the grace periods move on by one look each.
            match self.compact(writer, SLICE_BYTES) {
                Ok(0) | Err(_) => break,
                Ok(bytes) => read_bytes += bytes,
            }
            self.reuse_emptied(writer);
        }
        for _ in 0..LOOKS_AT_PINS {
            self.reuse_emptied(writer);
        }
        writer.extents.space().free_bytes() > free_before
    }

    /// Reads `budget` bytes of victims, or a little more, and moves what is live; returns how many
    /// bytes it read. Fewer mean that there is no victim.
    ///
    /// # Errors
    ///
    /// If there is no room for what is live. What was moved before that stays moved.
    fn compact(&self, writer: &mut Writer, budget: u64) -> Result<u64> {
        if let Some(compacting) = &mut writer.compacting {
            // The view may have moved since the last record was moved.
            compacting.head.follow_view(&self.region);
        }
        let read = self.compact_victims(writer, budget);
        if !matches!(read, Ok(0)) {
            // The same for the log: also before an error a segment may have been opened, and records
            // moved.
            writer.log.follow_view(&self.region);
            self.commit(writer);
        }
        read
    }

    fn compact_victims(&self, writer: &mut Writer, budget: u64) -> Result<u64> {
        let mut read_bytes = 0;
        while read_bytes < budget {
            let Some(victim) = self.victim(writer)? else { break };
            read_bytes += self.compact_batch(writer, victim, budget - read_bytes)?;
        }
        Ok(read_bytes)
    }

    /// Returns the victim, and chooses one if there is none.
    fn victim(&self, writer: &mut Writer) -> Result<Option<Victim>> {
        let heads = writer.heads().map(|head| head.segment_offset);
        let Writer { compacting: Some(compacting), extents, .. } = writer else { return Ok(None) };
        if compacting.state.victim.is_some() {
            return Ok(compacting.state.victim);
        }
        let Some(segments) = extents.segments() else { return Ok(None) };
        let next_sequence = self.region.live().next_sequence();
        let Some(segment) = compacting.state.choose(segments, heads, next_sequence) else {
            compacting.state.rest();
            return Ok(None);
        };
        let header = self.region.view.segment(segment.offset)?;
        let at = segment.offset + SegmentHeader::BYTES;
        let victim = Victim { segment, at, salt: header.salt, record_bytes: 0 };
        compacting.state.victim = Some(victim);
        Ok(Some(victim))
    }

    /// Reads some records of the victim and moves those that are live. Returns the bytes it read.
    fn compact_batch(&self, writer: &mut Writer, mut victim: Victim, budget: u64) -> Result<u64> {
        let before = victim.at;
        let mut candidates = Vec::with_capacity(BATCH);
        let read = self.read_candidates(&mut victim, budget, &mut candidates);
        let moved = read.and_then(|is_end| {
            // A scan that goes on finds the version of its moment by `prev`.
            let names_original =
                self.horizons.oldest().is_some() && !mutant::is_made(Mutant::MovesWithoutName);
            for candidate in &candidates {
                self.move_if_live(writer, candidate, victim.salt, names_original)?;
            }
            Ok(is_end)
        });
        let is_end = match moved {
            Ok(is_end) => is_end,
            Err(Error::Corrupt { .. }) => {
                leave_damaged(writer, &victim);
                return Ok(victim.at.max(before + 8) - before);
            }
            // The batch is tried again; what was moved is not live there any more.
            Err(error) => return Err(error),
        };
        let Writer { compacting: Some(compacting), extents, .. } = &mut *writer else {
            unreachable!("a victim is of compaction");
        };
        compacting.state.victim = (!is_end).then_some(victim);
        if is_end || mutant::is_made(Mutant::EmptiesUnread) {
            let segment = victim.segment.range();
            compacting.state.victim = None;
            extents.segments_mut().expect("followed").set_use(segment.start, SegmentUse::Emptied);
            let live = self.region.live();
            live.set_log_bytes(live.log_bytes().saturating_sub(victim.segment.bytes));
            writer.retire(self, segment, false, victim.record_bytes);
        }
        Ok(victim.at.max(before + 8) - before)
    }

    /// Reads records of the victim up to [`BATCH`] that may be live or `budget` bytes, and asks for
    /// their buckets. Returns whether the victim was read to its end.
    fn read_candidates<'a>(
        &'a self,
        victim: &mut Victim,
        budget: u64,
        candidates: &mut Vec<Candidate<'a>>,
    ) -> Result<bool> {
        let view = &self.region.view;
        let (end, stop) = (victim.segment.range().end, victim.at.saturating_add(budget));
        while candidates.len() < BATCH && victim.at < stop {
            if let Some((pair, record_bytes)) = view.short_pair_before(victim.at, end) {
                self.add_candidate(victim.at, pair, candidates);
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
                    let pair = Pair { key: record.key(), value: record.value() };
                    self.add_candidate(victim.at, pair, candidates);
                    victim.record_bytes += record_bytes;
                }
                RecordKind::Delete | RecordKind::Commit | RecordKind::BigPut => {
                    victim.record_bytes += record_bytes;
                }
                _ => {}
            }
            victim.at += record_bytes;
        }
        Ok(false)
    }

    #[inline]
    fn add_candidate<'a>(&self, at: u64, pair: Pair<'a>, candidates: &mut Vec<Candidate<'a>>) {
        let hash = self.hash_of(pair.key);
        self.prefetch_bucket(hash);
        candidates.push(Candidate { addr: Addr::of_offset(at), hash, pair });
    }

    /// Moves a record if a slot holds it; `names_original` says whether the copy has it as `prev`.
    #[inline]
    fn move_if_live(
        &self,
        writer: &mut Writer,
        candidate: &Candidate<'_>,
        salt: u64,
        names_original: bool,
    ) -> Result<()> {
        let Candidate { addr, hash, pair } = *candidate;
        let windows = &self.region.windows;
        let Some((line, i, slot)) = locate_addr(windows, hash, addr)?.found else { return Ok(()) };
        if slot.tag() != Tag::of_hash(hash) {
            return Ok(());
        }
        let record = self.region.view.record(addr)?;
        let bytes = record.bytes.len() as u64;
        let mut payload = Payload::new(RecordKind::Put, pair.key, pair.value);
        verify(&payload, &record.header, record.bytes, salt, addr)?;
        let prev = names_original.then_some(addr);
        payload.header.prev = prev;
        let moved_bytes = payload.header.record_bytes();
        let Writer { compacting: Some(compacting), extents, .. } = &mut *writer else {
            unreachable!("a victim is of compaction");
        };
        compacting.head.reserve(moved_bytes, extents)?;
        let to = compacting.head.append(&payload, prev, WritePath::Mapping, &self.region)?;
        compacting.state.note_moved(moved_bytes);
        let segments = extents.segments_mut().expect("a victim is in the table");
        segments.add_live(to.offset(), moved_bytes);
        self.capture_bucket_of(writer, hash);
        line.set_slot(i, Slot::new(slot.tag(), to));
        writer.extents.segments_mut().expect("as above").remove_live(addr.offset(), bytes);
        writer.state.count_put(moved_bytes, Some(bytes));
        Ok(())
    }

    /// Frees the emptied segments that nobody looks at any more.
    fn reuse_emptied(&self, writer: &mut Writer) {
        let Writer { compacting: Some(compacting), extents, state, log, .. } = writer else {
            return;
        };
        if !compacting.state.is_any_waiting() {
            return;
        }
        let moment = Moment::in_memory(self.region.pins.poll(), self.horizons.oldest());
        let live_bytes = compacting.movable_bytes(state.live_bytes);
        let warm_bytes_max = warm_bytes_max(live_bytes, log.next_segment_bytes(&self.region));
        while let Some((segment, is_big)) = compacting.state.take_reusable(&moment) {
            if !is_big {
                extents.segments_mut().expect("it is in the table").end(segment.start);
            }
            if compacting.is_poisoned {
                poison(&self.region, &segment);
            }
            extents.release_segment(segment, warm_bytes_max);
        }
    }

    /// Compacts everything that is worth it, reading `budget` bytes of segments or a little more,
    /// and gives memory back.
    pub(crate) fn maintain(&self, budget: u64) -> Result<Maintenance> {
        let mut done = Maintenance::default();
        if self.access == Access::ReadOnly {
            return Err(Error::ReadOnly);
        }
        if self.lock()?.compacting.is_none() {
            // Not even marked as changed.
            return Ok(Maintenance { is_done: true, ..done });
        }
        let moved_before = self.lock_for_change()?.moved_bytes();
        while done.read_bytes < budget {
            let mut writer = self.lock_for_change()?;
            self.group.check()?;
            self.reuse_emptied(&mut writer);
            let slice = SLICE_BYTES.min(budget - done.read_bytes);
            let read_bytes = self.compact(&mut writer, slice)?;
            done.read_bytes += read_bytes;
            if read_bytes < slice {
                done.is_done = true;
                break;
            }
        }
        let mut writer = self.lock_for_change()?;
        for _ in 0..LOOKS_AT_PINS {
            self.reuse_emptied(&mut writer);
        }
        done.moved_bytes = writer.moved_bytes() - moved_before;
        done.waiting_bytes = writer.waiting_bytes();
        done.returned_bytes = writer.extents.cool();
        Ok(done)
    }
}

/// Returns whether an error may be for want of memory.
pub(super) fn is_want_of_room(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Full | ErrorKind::Io)
}

/// Leaves a segment as it is in which a live record is damaged: its keys answer what they did.
#[cold]
fn leave_damaged(writer: &mut Writer, victim: &Victim) {
    if let Some(segments) = writer.extents.segments_mut() {
        segments.set_use(victim.segment.offset, SegmentUse::Damaged);
    }
    if let Some(compacting) = &mut writer.compacting {
        compacting.state.victim = None;
        compacting.damaged.push(victim.segment.offset);
    }
}

/// Verifies the checksum of a record, whose key and value are those of `payload`.
#[inline]
fn verify(
    payload: &Payload<'_>,
    header: &RecordHeader,
    bytes: &[u8],
    salt: u64,
    addr: Addr,
) -> Result<()> {
    let header_bytes = header.header_bytes() as usize;
    let pad_bytes = bytes.len() - header_bytes - payload.key.len() - payload.value.len();
    let expected = finish_crc(payload.crc, pad_bytes, &bytes[..header_bytes], salt, addr.offset());
    let found = u32_at(bytes, 0);
    if expected == found {
        return Ok(());
    }
    let (expected, found) = (expected.into(), found.into());
    Err(Error::Corrupt { what: "record checksum", offset: addr.offset(), expected, found })
}

/// Overwrites what is freed, so that a test that still reads it finds out.
fn poison(region: &Region, segment: &Range<u64>) {
    let bytes = vec![0xdb; (segment.end - segment.start) as usize];
    let _ = region.storage().write_at(segment.start, &bytes);
}
