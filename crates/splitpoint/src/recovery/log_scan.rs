//! The pass over the log, which finds its end, its segments and its changes.
//!
//! The log is a chain of segments, but two parts of it can be read in parallel. The start of the
//! second part is guessed from the live header, which is not trusted. The second part counts only
//! if the first part reaches its start, link by link, so a wrong guess costs only time.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use super::halves::{beside, has_halves};
use super::report_progress;
use crate::error::{Error, Result};
use crate::format::{Addr, GRANULE_BYTES, SegmentHeader, SegmentKind};
use crate::hash::HashFunction;
use crate::live::CommitState;
use crate::log::append::LogPosition;
use crate::log::batch::is_member;
use crate::log::record::{Record, RecordHeader, RecordKind};
use crate::log::scan::{Changes, LogWalk, Logged, Step, Trust, big_target};
use crate::log::segment::{Segment, backwards, log_segment_at};
use crate::options::{OnRecovery, RecoveryProgress};
use crate::region::{Region, View};
use crate::segments::{SegmentTable, SegmentUse};
use crate::store::TOMBSTONE_BYTES;
use crate::testing::mutant::{self, Mutant};

/// Largest number of changes held in memory at a time, 24 bytes each.
pub(super) const CHANGES_MAX: usize = 1 << 21;
/// Replaced records that are prefetched together.
const READ_AHEAD: usize = 32;
/// Size of the smallest record that can be a big record in any store.
const BIG_BYTES_MIN: u64 = 1 << 10;
/// Bytes read between two reports of progress. A guess, not tuned by measurement.
const PROGRESS_BYTES: u64 = 4 << 20;
/// Largest number of segments that are visited to find the start of the second part.
const SEGMENTS_MAX: usize = 1 << 14;

/// What a record does to the index.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotChange {
    pub(super) hash: u64,
    /// The record that the slot names after the change, 0 for a delete.
    pub(super) addr: Addr,
    /// The record that the slot named before the change, 0 for none.
    pub(super) prev: Addr,
}

/// Stands for "no record": none is at the start of the file.
pub(super) const NO_RECORD: Addr = Addr(0);

/// What a record does to the index and to the counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effect {
    pub(super) change: SlotChange,
    record_bytes: u64,
    /// Size in bytes of the replaced record, if the log records it.
    replaced_bytes: Option<u64>,
    /// Whether its record was [counted as dead](Counts::add_member) when it was read.
    is_member: bool,
}

/// Changes to the counts of segments, by units of the segment table.
#[derive(Debug, Default)]
struct UnitCounts {
    unit_shift: u32,
    /// For each unit, the change of its live bytes, and the bytes that died in it.
    counts: Vec<(i64, i64)>,
}

impl UnitCounts {
    #[inline]
    fn add(&mut self, offset: u64, live_bytes: i64, dead_bytes: i64) {
        let unit = (offset >> self.unit_shift) as usize;
        if unit >= self.counts.len() {
            self.counts.resize(unit + 1, (0, 0));
        }
        let (live, dead) = &mut self.counts[unit];
        *live += live_bytes;
        *dead += dead_bytes;
    }

    fn append(&mut self, later: &Self) {
        for (unit, &(live_bytes, dead_bytes)) in later.counts.iter().enumerate() {
            if (live_bytes, dead_bytes) != (0, 0) {
                self.add((unit as u64) << self.unit_shift, live_bytes, dead_bytes);
            }
        }
    }

    /// Adds these counts to a table that has the segments.
    fn add_to(&self, table: &mut SegmentTable) {
        for (unit, &(live_bytes, dead_bytes)) in self.counts.iter().enumerate() {
            let dead_bytes = dead_bytes.max(0).unsigned_abs();
            table.add_counts((unit as u64) << self.unit_shift, live_bytes, dead_bytes);
        }
    }
}

/// Changes to the counts by the records of the log.
#[derive(Debug, Default)]
pub(super) struct Counts {
    inserted_count: u64,
    deleted_count: u64,
    added_bytes: u64,
    /// Bytes of records that no slot has ever held; of batches, only of those with a COMMIT.
    slotless_bytes: u64,
    replaced_bytes: u64,
    /// Bytes of records of batches for which no COMMIT has been read yet.
    abandoned_bytes: u64,
    /// Replaced records whose sizes have not been looked up yet.
    replaced: Vec<Addr>,
    /// Replaced records that may be big, and their bytes.
    buried: Vec<(Addr, u64)>,
    /// The replaced bytes in segments that already wait to be reused: these no longer count as
    /// dead.
    waiting_bytes: u64,
    /// Segments of big records of batches for which no COMMIT has been read yet.
    abandoned_bigs: HashSet<u64>,
    units: UnitCounts,
}

impl Counts {
    /// Creates empty counts; segments have units of `unit_bytes`.
    pub(super) fn new(unit_bytes: u64) -> Self {
        let units = UnitCounts { unit_shift: unit_bytes.trailing_zeros(), counts: Vec::new() };
        Self { units, ..Self::default() }
    }

    pub(super) fn add(&mut self, view: &View, effect: &Effect) {
        let Effect { change, record_bytes, replaced_bytes, is_member } = *effect;
        let SlotChange { addr, prev, .. } = change;
        if is_member && addr == NO_RECORD {
            self.abandoned_bytes -= TOMBSTONE_BYTES;
        } else if is_member {
            self.abandoned_bytes -= record_bytes;
            self.units.add(addr.offset(), 0, -record_bytes.cast_signed());
        } else if addr != NO_RECORD && !self.abandoned_bigs.is_empty() {
            self.abandoned_bigs.remove(&segment_of_big(addr));
        }
        if addr == NO_RECORD {
            self.deleted_count += 1;
            self.slotless_bytes += TOMBSTONE_BYTES;
        } else if prev == NO_RECORD {
            self.inserted_count += 1;
        }
        self.added_bytes += record_bytes;
        if addr != NO_RECORD {
            self.units.add(addr.offset(), record_bytes.cast_signed(), 0);
        }
        if prev == NO_RECORD || prev.offset() >= view.file_bytes() {
            return;
        }
        if let Some(bytes) = replaced_bytes {
            self.count_replaced(prev, bytes);
            return;
        }
        view.prefetch_record(prev);
        self.replaced.push(prev);
        if self.replaced.len() == READ_AHEAD {
            self.add_replaced(view);
        }
    }

    fn count_replaced(&mut self, addr: Addr, bytes: u64) {
        self.replaced_bytes += bytes;
        if bytes > BIG_BYTES_MIN {
            self.buried.push((addr, bytes));
        }
        self.units.add(addr.offset(), -bytes.cast_signed(), bytes.cast_signed());
    }

    /// Counts a record outside of batches that no slot will ever hold: a tombstone, a COMMIT, a
    /// record that names a big record, or a relocation. `is_counted` says whether the segment table
    /// counts it already.
    pub(super) fn add_slotless(&mut self, record: &Record<'_>, is_counted: bool) {
        use RecordKind::{BigPut, Commit, Delete, Relocate};
        let bytes = record.bytes.len() as u64;
        match record.header.kind {
            // Counted with its change.
            Delete => {}
            BigPut | Commit | Relocate => self.slotless_bytes += bytes,
            _ => return,
        }
        if !is_counted {
            self.units.add(record.offset, 0, bytes.cast_signed());
        }
    }

    /// Counts a record of a batch as dead until its COMMIT is read. Otherwise the remains of a
    /// batch of a killed process would never be compacted. `is_counted` says whether that process
    /// has counted the record as live.
    pub(super) fn add_member(&mut self, record: &Record<'_>, is_counted: bool) {
        let bytes = record.bytes.len() as u64;
        let is_live = is_counted && record.header.kind == RecordKind::Put;
        let live_bytes = if is_live { -bytes.cast_signed() } else { 0 };
        self.units.add(record.offset, live_bytes, bytes.cast_signed());
        self.abandoned_bytes += bytes;
        if record.header.kind == RecordKind::BigPut
            && let Ok((segment_offset, _)) = big_target(record)
            && !mutant::is_made(Mutant::KeepsAbandonedBigs)
        {
            self.abandoned_bigs.insert(segment_offset);
        }
    }

    /// Adds the counts of the segments to a table that has the segments. Segments whose big record
    /// has died wait from now on; in a store that is not compacted yet, once compaction begins.
    pub(super) fn add_to(&mut self, view: &View, table: &mut SegmentTable, is_compacted: bool) {
        self.add_replaced(view);
        self.units.add_to(table);
        let buried = self.buried.iter().map(|&(addr, bytes)| (segment_of_big(addr), bytes));
        // Of these, only the records in the log that name them have been counted.
        let abandoned = self.abandoned_bigs.iter().map(|&offset| (offset, 0));
        let mut record_bytes = 0;
        for (offset, bytes) in buried.chain(abandoned) {
            // The other records are in segments of the log.
            if view.segment(offset).is_ok_and(|header| header.kind == SegmentKind::Big) {
                record_bytes += bytes;
                table.bury_big(offset);
            }
        }
        if is_compacted {
            self.waiting_bytes = record_bytes;
        }
    }

    fn add_replaced(&mut self, view: &View) {
        for addr in std::mem::take(&mut self.replaced) {
            // Ignore damage: a dead record matters only to these counts.
            let record = view.record(addr);
            self.count_replaced(addr, record.map_or(0, |record| record.bytes.len() as u64));
        }
    }

    /// Appends the counts of the records that follow.
    fn append(&mut self, later: Self) {
        self.inserted_count += later.inserted_count;
        self.deleted_count += later.deleted_count;
        self.added_bytes += later.added_bytes;
        self.slotless_bytes += later.slotless_bytes;
        self.replaced_bytes += later.replaced_bytes;
        self.abandoned_bytes += later.abandoned_bytes;
        self.replaced.extend(later.replaced);
        self.buried.extend(later.buried);
        self.abandoned_bigs.extend(later.abandoned_bigs);
        self.units.append(&later.units);
    }

    /// Returns the counts at `end`, given the counts `before` these records.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if more was deleted or replaced than was ever stored.
    pub(super) fn after(
        &mut self,
        view: &View,
        before: CommitState,
        end: LogPosition,
    ) -> Result<CommitState> {
        self.add_replaced(view);
        let less = |what, stored: u64, gone: u64| {
            let (offset, expected, found) = (end.offset, stored, gone);
            stored.checked_sub(gone).ok_or(Error::Corrupt { what, offset, expected, found })
        };
        let stored_count = before.record_count + self.inserted_count;
        let stored_bytes = before.live_bytes + self.added_bytes;
        Ok(CommitState {
            record_count: less("record count", stored_count, self.deleted_count)?,
            live_bytes: less("live bytes", stored_bytes, self.replaced_bytes)?,
            dead_bytes: (before.dead_bytes
                + self.replaced_bytes
                + self.slotless_bytes
                + self.abandoned_bytes)
                .saturating_sub(self.waiting_bytes),
            ..before
        })
    }
}

/// Returns the offset of the segment of a record, if it is a big record.
fn segment_of_big(addr: Addr) -> u64 {
    addr.offset().saturating_sub(SegmentHeader::BYTES)
}

/// Hashes keys with the function and the seed of a store.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyHash<'a> {
    pub(super) function: &'a HashFunction,
    pub(super) seed: u64,
}

impl KeyHash<'_> {
    #[inline]
    pub(super) fn of(self, key: &[u8]) -> u64 {
        self.function.hash(key, self.seed)
    }

    /// Returns the hash of the key of a record that a slot names.
    pub(super) fn of_record(self, view: &View, addr: Addr) -> Result<u64> {
        Ok(self.of(view.version(addr)?.key()))
    }

    /// Returns the effect of a logged change.
    #[inline]
    pub(super) fn effect_of(self, change: Logged<'_>) -> Effect {
        match change {
            Logged::Put { pair, prev } => {
                let (hash, prev) = (self.of(pair.key()), prev.unwrap_or(NO_RECORD));
                let RecordHeader { kind, is_in_transaction, .. } = pair.header;
                Effect {
                    change: SlotChange { hash, addr: pair.addr(), prev },
                    record_bytes: pair.bytes.len() as u64,
                    replaced_bytes: None,
                    // A big record itself is not in the log, only the record that names it.
                    is_member: is_in_transaction && kind == RecordKind::Put,
                }
            }
            Logged::Delete { hash, prev, is_in_batch } => Effect {
                change: SlotChange { hash, addr: NO_RECORD, prev },
                record_bytes: 0,
                replaced_bytes: None,
                is_member: is_in_batch,
            },
            Logged::Move { pair, from } => Effect {
                change: SlotChange {
                    hash: self.of(pair.key()),
                    addr: pair.addr(),
                    prev: from.from,
                },
                record_bytes: pair.bytes.len() as u64,
                replaced_bytes: Some(from.from_bytes),
                is_member: false,
            },
        }
    }
}

/// A segment that the log names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    segment: Segment,
    /// `None` for the segment of a big record.
    segment_use: Option<SegmentUse>,
}

impl Found {
    /// Adds the segment to a table, unless the table has it already.
    pub(super) fn add_to(&self, table: &mut SegmentTable) -> Result<()> {
        let Segment { offset, bytes, sequence, .. } = self.segment;
        let is_aligned = bytes.is_power_of_two() && offset.is_multiple_of(bytes);
        let adopted = if is_aligned || self.segment_use.is_none() {
            table.adopt(offset..offset + bytes, self.segment_use, sequence)
        } else {
            Err(offset)
        };
        adopted.map(drop).map_err(|found| Error::Corrupt {
            what: "segment with granules of another",
            offset,
            expected: bytes,
            found,
        })
    }
}

/// The result of a pass over the log: its end, its segments and its changes.
#[derive(Debug)]
pub(super) struct LogScan {
    pub(super) end: LogPosition,
    pub(super) found: Vec<Found>,
    pub(super) records: u64,
    pub(super) counts: Counts,
    /// Bytes of log segments; of segments of moved records, only those that the checkpoint has.
    pub(super) log_bytes: u64,
    pub(super) big_bytes: u64,
    pub(super) next_sequence: u64,
    pub(super) dropped_bytes: u64,
    /// Segment and end of the last moved records, if any.
    pub(super) head: Option<(u64, u64)>,
    /// The first changes, part by part, up to the limit of memory.
    pub(super) changes: Vec<Vec<SlotChange>>,
    pub(super) unread_from: Option<LogPosition>,
    pub(super) unit_bytes: u64,
}

impl LogScan {
    /// Returns the scan of an empty log; segments have units of `unit_bytes`.
    pub(super) fn new(unit_bytes: u64) -> Self {
        Self {
            end: LogPosition::default(),
            found: Vec::new(),
            records: 0,
            counts: Counts::new(unit_bytes),
            log_bytes: 0,
            big_bytes: 0,
            next_sequence: 1,
            dropped_bytes: 0,
            head: None,
            changes: Vec::new(),
            unread_from: None,
            unit_bytes,
        }
    }

    pub(super) fn add_segment(&mut self, segment: &Segment) {
        self.log_bytes += segment.bytes;
        self.add_found(segment, Some(SegmentUse::Log));
    }

    fn add_big(&mut self, segment: &Segment) {
        self.big_bytes += segment.bytes;
        self.add_found(segment, None);
    }

    fn add_compacted(&mut self, segment: &Segment, end: u64) {
        if self.head.is_none_or(|(offset, _)| offset != segment.offset) {
            self.add_found(segment, Some(SegmentUse::Compacted));
        }
        self.head = Some((segment.offset, end));
    }

    fn add_found(&mut self, segment: &Segment, segment_use: Option<SegmentUse>) {
        debug_assert!(segment.bytes.is_multiple_of(GRANULE_BYTES), "its header was checked");
        self.found.push(Found { segment: *segment, segment_use });
        self.next_sequence = self.next_sequence.max(segment.sequence + 1);
    }

    /// Adds the result of a step of the walk, unless it is a change.
    pub(super) fn add_step<T>(&mut self, step: &Step<T>) {
        match step {
            Step::Segment(segment) => self.add_segment(segment),
            Step::Big(segment) => self.add_big(segment),
            Step::Moved(segment, end) => self.add_compacted(segment, *end),
            Step::Change(_) => {}
        }
    }

    /// Reads the log on from `walk`, which is at the end of what this scan has read so far.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if a record whose checksum is right makes no sense.
    pub(super) fn read(
        &mut self,
        region: &Region,
        key_hash: KeyHash<'_>,
        walk: &LogWalk<'_>,
        on_recovery: Option<&OnRecovery>,
    ) -> Result<()> {
        let start = walk.position();
        let second_start = middle_of_log(region, start);
        let changes_max = CHANGES_MAX / (1 + usize::from(second_start.is_some()));
        let read_bytes = AtomicU64::new(0);
        let unit_bytes = self.unit_bytes;
        let part = |walk: LogWalk<'_>, until| {
            let scan = Self::new(unit_bytes);
            Part::read(region, key_hash, (walk, scan), (until, changes_max), |bytes| {
                let bytes = bytes + read_bytes.fetch_add(bytes, Ordering::Relaxed);
                if until.is_some() || second_start.is_none() {
                    report_progress(on_recovery, RecoveryProgress::ReadLog { bytes });
                }
            })
        };
        let Some(second_start) = second_start else {
            self.append(part(walk.clone(), None)?.scan);
            return Ok(());
        };
        let read_second = || {
            let second = LogWalk::from_position(&region.view, second_start, Trust::Nothing, 0)?;
            part(second.after_moves_to(walk.compacted_head()), None)
        };
        let read_first = || part(walk.clone(), Some(second_start));
        let (first, second) = beside(region, "splitpoint-log", read_first, read_second);
        let first = first?;
        assert!(
            !first.is_cut || first.scan.end == second_start,
            "the second part begins at its end"
        );
        self.append(first.scan);
        if first.is_cut {
            self.append(second.unwrap_or_else(read_second)?.scan);
        }
        Ok(())
    }

    /// Appends the scan of the part of the log that follows.
    fn append(&mut self, later: Self) {
        assert!(self.end.lsn <= later.end.lsn, "what is appended was read behind this");
        self.end = later.end;
        self.found.extend(later.found);
        self.head = later.head.or(self.head);
        self.records += later.records;
        self.counts.append(later.counts);
        self.log_bytes += later.log_bytes;
        self.big_bytes += later.big_bytes;
        self.next_sequence = self.next_sequence.max(later.next_sequence);
        self.dropped_bytes = later.dropped_bytes;
        if self.unread_from.is_none() {
            self.changes.extend(later.changes);
            self.unread_from = later.unread_from;
        }
    }
}

/// Returns the presumed start of a second part of the log: the segment in the middle between
/// `start` and the end that the live header shows. Neither the header nor the chain of segments
/// that leads back from there is verified.
fn middle_of_log(region: &Region, start: LogPosition) -> Option<LogPosition> {
    if !has_halves(region) {
        return None;
    }
    let (_, state) = region.live().committed();
    let segment_at = |offset| log_segment_at(&region.view, offset);
    let segments: Vec<Segment> = backwards(segment_at(state.tail_segment), segment_at)
        .take_while(|segment| segment.base_lsn > start.lsn)
        .take(SEGMENTS_MAX)
        .collect();
    let middle_lsn = start.lsn + (segments.first()?.base_lsn - start.lsn) / 2;
    let middle = segments.iter().min_by_key(|segment| segment.base_lsn.abs_diff(middle_lsn))?;
    assert!(start.lsn < middle.base_lsn, "the second part begins behind the first");
    let Segment { offset: segment_offset, base_lsn: lsn, .. } = *middle;
    Some(LogPosition { segment_offset, offset: middle.first(), lsn })
}

/// The part of the log that one thread reads.
#[derive(Debug)]
struct Part {
    scan: LogScan,
    /// Whether the part ends at the given position, rather than at the end of the log.
    is_cut: bool,
}

impl Part {
    /// Reads from `walk` to the end of the log, or to `until` if no batch is open there. Keeps up
    /// to `changes_max` changes; calls `read` with the number of bytes read since the last call.
    fn read(
        region: &Region,
        key_hash: KeyHash<'_>,
        (walk, mut scan): (LogWalk<'_>, LogScan),
        (until, changes_max): (Option<LogPosition>, usize),
        read: impl Fn(u64),
    ) -> Result<Self> {
        let mut own_changes = Vec::new();
        let mut reported_lsn = walk.position().lsn;
        let mut log = Changes::new(walk);
        let is_cut = loop {
            let position = log.position();
            if until == Some(position) && log.is_between_changes() {
                break true;
            }
            if own_changes.len() >= changes_max && log.is_between_changes() {
                scan.unread_from.get_or_insert(position);
            }
            if position.lsn - reported_lsn >= PROGRESS_BYTES {
                read(position.lsn - reported_lsn);
                reported_lsn = position.lsn;
            }
            let record = log.read_next(
                |change| key_hash.effect_of(change),
                |step| {
                    let Step::Change(effect) = step else { return scan.add_step(&step) };
                    scan.counts.add(&region.view, &effect);
                    if scan.unread_from.is_none() {
                        own_changes.push(effect.change);
                    }
                },
            )?;
            let Some(record) = record else { break false };
            if is_member(&record) {
                scan.counts.add_member(&record, false);
            } else {
                scan.counts.add_slotless(&record, false);
            }
        };
        scan.records = log.record_count();
        assert!(own_changes.len() as u64 <= scan.records, "each change is of a record");
        scan.changes.push(own_changes);
        scan.end = log.position();
        if !is_cut {
            let rest_bytes = log.segment().end() - scan.end.offset;
            let rest = region.storage().read(scan.end.offset, rest_bytes);
            let last = rest.iter().rposition(|&byte| byte != 0);
            scan.dropped_bytes = last.map_or(0, |last| last as u64 + 1);
        }
        Ok(Self { scan, is_cut })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Options;
    use crate::recovery::open_memory;

    #[test]
    fn counts_that_do_not_add_up_are_corrupt() {
        let opened = open_memory(&Options::new()).unwrap();
        let view = &opened.region.view;
        let before = CommitState { record_count: 2, live_bytes: 100, ..CommitState::default() };
        let end = LogPosition { segment_offset: 65_536, offset: 65_600, lsn: 8 };
        let after = |mut counts: Counts| counts.after(view, before, end);

        let most = Counts { deleted_count: 2, replaced_bytes: 100, ..Counts::default() };
        let state = after(most).unwrap();
        assert_eq!((state.record_count, state.live_bytes, state.dead_bytes), (0, 0, 100));

        let refused = |counts| match after(counts) {
            Err(Error::Corrupt { what, offset, expected, found }) => {
                (what, offset, expected, found)
            }
            other => panic!("{other:?}"),
        };
        let deleted = Counts { inserted_count: 1, deleted_count: 4, ..Counts::default() };
        assert_eq!(refused(deleted), ("record count", 65_600, 3, 4));
        let replaced = Counts { added_bytes: 8, replaced_bytes: 109, ..Counts::default() };
        assert_eq!(refused(replaced), ("live bytes", 65_600, 108, 109));
    }
}
