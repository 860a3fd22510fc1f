//! Checks whether the live tables that a killed writer left agree with the log.
//!
//! A killed writer leaves the header, the index and the log in the page cache, each in the state
//! after its last store. If the kernel has since dropped pages, some of them are stale: see
//! `docs/durability.md`, "When the tables are trusted". This module looks for the symptoms of stale
//! pages, and reads only the end of the log:
//!
//! | stale | symptom |
//! |---|---|
//! | the log | a published record that is not durable is invalid, or the log does not lead to it |
//! | the header | the log continues after the published commit by more than one change or batch |
//! | pages of the index | one of the last [`LAST_CHANGES`] changes is not in its bucket |
//!
//! Damage to durable records is not such a symptom, because a dropped page has its durable content
//! on the disk. It is left to `check`: a replay would end the log there and lose every record after
//! it.
//!
//! # Not here
//!
//! `Region::is_left_in_memory`, which callers ask first, says whether the kernel has kept the file
//! mounted, or its inode, ever since. What remains is a failed write-back that nobody was told of.

use std::collections::{HashSet, VecDeque};

use super::Opening;
use super::log_scan::{KeyHash, LogScan, NO_RECORD, SlotChange};
use crate::atomic::Ordering;
use crate::error::{Error, Result};
use crate::format::{Addr, GRANULE_BYTES, LIVE_OFFSET, SegmentHeader, SegmentKind};
use crate::index::Lines as _;
use crate::index::line::LineNumber;
use crate::index::lookup::is_held;
use crate::index::shape::Shape;
use crate::index::slot::{Slot, Tag};
use crate::live::{CommitState, LineWindow};
use crate::log::append::{LogPosition, segment_of};
use crate::log::batch::{Batches, is_member};
use crate::log::record::{Record, RecordKind};
use crate::log::relocation::Relocation;
use crate::log::scan::{Changes, LogWalk, Logged, Step, Trust};
use crate::log::segment::Segment;
use crate::region::{Region, View};
use crate::testing::meanwhile::{self, Point};
use crate::testing::mutant::{self, Mutant};

/// Number of the last published changes that are looked up in the index; takes about a millisecond.
const LAST_CHANGES: usize = 1024;
/// For a small index, the number for each of its pages, and the minimum. With these, the chance to
/// miss one stale page of a small index is that of missing a stale hundredth of a large one: 1 in
/// 30,000.
const LAST_CHANGES_A_PAGE: u64 = 11;
const LAST_CHANGES_MIN: usize = 128;
/// Bytes of the log that are verified, at least, for each of these changes, in complete segments,
/// if the log is that long.
const VERIFIED_BYTES_A_CHANGE: u64 = 128;
/// Size in bytes of the index from which its lines are read by system calls instead of through the
/// mapping. A thousand page faults all over an index of 160 MB take 6 ms, as many calls 1 ms; a
/// small index has few faults. Tests exercise both ways.
const READ_INDEX_BYTES_MIN: u64 = if cfg!(test) { 8 << 10 } else { 8 << 20 };
/// Largest number of segments that are verified.
const VERIFIED_SEGMENTS_MAX: usize = 64;

/// The records that a killed writer appended but did not publish: at most one change or batch.
#[derive(Debug)]
pub(super) struct Unpublished {
    pub(super) changes: Vec<SlotChange>,
    pub(super) scan: LogScan,
    /// Records of any kind, links included.
    pub(super) records: u64,
    /// The end of the log.
    pub(super) end: LogPosition,
}

impl Opening {
    /// Compares the end of the log with the live tables, whose pieces are mapped and whose last
    /// commit is at `published`. Returns the records after that commit. Writes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if they disagree: then at least one of them is stale.
    pub(super) fn compare_with_log(
        &self,
        region: &Region,
        published: LogPosition,
    ) -> Result<Unpublished> {
        let mut unpublished = Unpublished {
            changes: Vec::new(),
            scan: LogScan::new(self.unit_bytes()),
            records: 0,
            end: published,
        };
        if published.segment_offset == 0 {
            compare_head(region, self.key_hash(), NO_HEAD)?;
            return Ok(unpublished);
        }
        let durable_lsn = region.live().durable_lsn();
        let is_compacted = self.superblock.is_compacted;
        let search = Search { count: last_changes_of(region), durable_lsn, is_compacted };
        let last = search.last_changes(&region.view, published)?;
        let (_, CommitState { head_segment, .. }) = region.live().committed();
        unpublished.read(&region.view, self.key_hash(), head_segment, is_compacted)?;
        let head = unpublished.scan.head.unwrap_or(NO_HEAD);
        compare_head(region, self.key_hash(), head)?;
        if mutant::is_made(Mutant::TrustsOldTables) {
            return Ok(unpublished);
        }
        meanwhile::at(Point::LogVerified);
        let compared = compare_with_index(region, self.key_hash(), &last, &unpublished.changes);
        if is_read_by_copies(region) && !mutant::is_made(Mutant::BelievesStrangers) {
            region.windows.vouch_for_copies()?;
        }
        compared.map(|()| unpublished)
    }
}

/// Returns the number of last changes to look up.
fn last_changes_of(region: &Region) -> usize {
    let pages = region.windows.index_bytes().div_ceil(GRANULE_BYTES);
    let count = usize::try_from(pages * LAST_CHANGES_A_PAGE).unwrap_or(usize::MAX);
    count.clamp(LAST_CHANGES_MIN, LAST_CHANGES)
}

/// One of the last published changes.
#[derive(Clone, Copy, Debug)]
struct LastChange<'a> {
    record: Record<'a>,
    lsn: u64,
}

/// What to read at the end of the log.
struct Search {
    /// The number of changes.
    count: usize,
    durable_lsn: u64,
    is_compacted: bool,
}

/// Returns the starts of the last segments, newest first: as many as it takes to verify
/// `verified_bytes_min` of the log before `published`.
fn last_segments(
    view: &View,
    published: LogPosition,
    verified_bytes_min: u64,
    is_compacted: bool,
) -> Result<Vec<LogPosition>> {
    let start_of = |segment_offset: u64, header: &SegmentHeader| LogPosition {
        segment_offset,
        offset: segment_offset + SegmentHeader::BYTES,
        lsn: header.base_lsn,
    };
    let mut header = segment_of(view, published)?;
    let mut segment_offset = published.segment_offset;
    let mut starts = vec![start_of(segment_offset, &header)];
    for _ in 1..VERIFIED_SEGMENTS_MAX {
        let is_enough = published.lsn - header.base_lsn >= verified_bytes_min;
        if is_enough || header.previous_offset == 0 {
            break;
        }
        let previous = match view.segment(header.previous_offset) {
            // Its space has been reused, and may hold anything.
            Err(_) if is_compacted => break,
            previous => previous?,
        };
        let is_log = previous.kind == SegmentKind::Log && previous.base_lsn < header.base_lsn;
        let follows = Segment::new(header.previous_offset, &previous)
            .link_before(&Segment::new(segment_offset, &header))
            .is_some();
        if !(is_log && follows) {
            if is_compacted {
                // Its space has another use now.
                break;
            }
            return Err(disagreement(
                "previous segment",
                segment_offset,
                header.previous_offset,
                0,
            ));
        }
        (segment_offset, header) = (header.previous_offset, previous);
        starts.push(start_of(segment_offset, &header));
    }
    assert!(header.base_lsn <= published.lsn, "the way back leads back");
    Ok(starts)
}

impl Search {
    /// Verifies the log up to `published` and returns its last changes, oldest first; returns none
    /// if a durable record is damaged. Big records themselves are not verified, only the records
    /// that name them.
    fn last_changes<'a>(
        &self,
        view: &'a View,
        published: LogPosition,
    ) -> Result<VecDeque<LastChange<'a>>> {
        let verified_bytes_min = self.count as u64 * VERIFIED_BYTES_A_CHANGE;
        let mut starts = last_segments(view, published, verified_bytes_min, self.is_compacted)?;
        while let Some(first) = starts.pop() {
            match self.changes_from(view, first, published) {
                // The space of this segment has been reused, except for the header, so start with
                // the next one.
                Ok(None) | Err(Error::Corrupt { .. })
                    if self.is_compacted && !starts.is_empty() => {}
                last => return last.map(Option::unwrap_or_default),
            }
        }
        unreachable!("the last segment is never left out");
    }

    /// Verifies the log from `first` up to `published` and returns its last changes; `None` if a
    /// durable record is damaged.
    fn changes_from<'a>(
        &self,
        view: &'a View,
        first: LogPosition,
        published: LogPosition,
    ) -> Result<Option<VecDeque<LastChange<'a>>>> {
        let mut walk = LogWalk::from_position(view, first, Trust::Published, published.lsn)?;
        let mut batches = Batches::default();
        let mut last = VecDeque::with_capacity(self.count + 1);
        loop {
            let (lsn, salt) = (walk.position().lsn, walk.segment().salt);
            let record = walk.next_record().and_then(|record| {
                record.map(|record| record.verify(salt).map(|()| record)).transpose()
            });
            let record = match record {
                Ok(Some(record)) => record,
                Ok(None) => break,
                Err(Error::Corrupt { .. }) if lsn < self.durable_lsn => return Ok(None),
                Err(error) => return Err(error),
            };
            let mut keep = |change| {
                last.push_back(change);
                if last.len() > self.count {
                    last.pop_front();
                }
            };
            if batches.is_short_of(&record) {
                // The batch begins before the verified part, and is published, so all of its
                // members count.
                batches.take().for_each(&mut keep);
            }
            batches.add(&record, is_change(&record).then_some(LastChange { record, lsn }), keep);
        }
        assert!(last.len() <= self.count);
        if walk.position() != published {
            let found = walk.position().offset;
            return Err(disagreement(
                "tail of the log",
                published.segment_offset,
                published.offset,
                found,
            ));
        }
        Ok(Some(last))
    }
}

/// Stands for "no compacted head": no segment is at 0.
///
/// Not an `Option`: for `None`, the compiled code compares the uninitialized segment before it
/// tests the discriminant. The result is unused, but valgrind would report each open after a kill.
const NO_HEAD: (u64, u64) = (0, 0);

/// Verifies the compacted head, where the next moved records will be written. `unpublished` is the
/// segment and the end of the moved records that the log names after the published commit, or
/// [`NO_HEAD`].
fn compare_head(region: &Region, key_hash: KeyHash<'_>, unpublished: (u64, u64)) -> Result<()> {
    let (_, CommitState { head_segment, head_offset, .. }) = region.live().committed();
    let view = &region.view;
    if head_segment == 0 {
        let is_none = head_offset == 0;
        return if is_none {
            Ok(())
        } else {
            Err(disagreement("compacted head", 0, 0, head_offset))
        };
    }
    let header = view.segment(head_segment)?;
    if header.kind != SegmentKind::Compacted {
        let (expected, found) = (SegmentKind::Compacted as u64, header.kind as u64);
        return Err(disagreement("segment kind", head_segment + 4, expected, found));
    }
    let (mut at, end) = (head_segment + SegmentHeader::BYTES, head_segment + header.segment_bytes);
    while at < head_offset {
        at += view.record_before(at, end)?.bytes.len() as u64;
    }
    if at != head_offset {
        return Err(disagreement("compacted head", head_segment, at, head_offset));
    }
    // The records that follow were copied by a process that was killed before the log named them,
    // so no slot may hold one of them.
    let (named_segment, named_end) = unpublished;
    if named_segment == head_segment {
        at = named_end;
    }
    while let Ok(record) = view.record_before(at, end) {
        if record.header.kind != RecordKind::Put || record.verify(header.salt).is_err() {
            break;
        }
        if is_held(&region.windows, key_hash.of(record.key()), record.addr())? {
            return Err(disagreement("compacted head", head_segment, at, head_offset));
        }
        at += record.bytes.len() as u64;
    }
    Ok(())
}

fn is_change(record: &Record<'_>) -> bool {
    use RecordKind::{BigPut, Delete, Put, Relocate};
    matches!(record.header.kind, Put | BigPut | Delete | Relocate)
}

impl Unpublished {
    /// Reads the log after the published commit. Because the writer publishes each change before it
    /// appends the next, there is at most one change or batch. `is_counted` says whether the
    /// segment table in the file already counts it.
    fn read(
        &mut self,
        view: &View,
        key_hash: KeyHash<'_>,
        compacted_head: u64,
        is_counted: bool,
    ) -> Result<()> {
        let published = self.end;
        let walk = LogWalk::from_position(view, published, Trust::Nothing, 0)?;
        let mut log = Changes::new(walk.after_moves_to(compacted_head));
        let mut is_complete = false;
        while let Some(record) = log.read_next(
            |change| key_hash.effect_of(change),
            |step| {
                let Step::Change(effect) = step else { return self.scan.add_step(&step) };
                self.scan.counts.add(view, &effect);
                self.changes.push(effect.change);
            },
        )? {
            let is_link = record.header.kind == RecordKind::Link;
            if is_complete && !is_link && !mutant::is_made(Mutant::TrustsOldTables) {
                let (expected, found) = (record.offset, published.offset);
                return Err(disagreement("commit", published.offset, expected, found));
            }
            if is_member(&record) {
                self.scan.counts.add_member(&record, is_counted);
            } else {
                // The next commit would have published it.
                self.scan.counts.add_slotless(&record, is_counted);
            }
            is_complete |= !is_link && !record.header.is_in_transaction;
        }
        self.records = log.record_count();
        self.end = log.position();
        assert!(published.lsn <= self.end.lsn, "a walk goes forward");
        assert!(self.changes.len() as u64 <= self.records, "each change is of a record or a copy");
        Ok(())
    }
}

/// Looks up the last published changes in the index. Changes that were not published yet may have
/// replaced some of them, and the slots of those may be stored or not.
fn compare_with_index(
    region: &Region,
    key_hash: KeyHash<'_>,
    last: &VecDeque<LastChange<'_>>,
    unpublished: &[SlotChange],
) -> Result<()> {
    let mut later: HashSet<u64> = unpublished.iter().map(|change| change.hash).collect();
    // Records that were moved since; an unpublished move may have its slots stored or not.
    let mut moved: HashSet<Addr> = unpublished.iter().map(|change| change.prev).collect();
    for LastChange { record, lsn } in last.iter().rev() {
        if record.header.kind == RecordKind::Relocate {
            moved.extend(Relocation::decode(record)?.moved().map(|moved| moved.from));
            continue;
        }
        let change = match Logged::of(&region.view, record, *lsn) {
            // A big record that has been replaced since, in space that has another use now.
            Err(Error::Corrupt { .. }) if record.header.kind == RecordKind::BigPut => continue,
            change => change?,
        };
        let Some(change) = change else { continue };
        let SlotChange { hash, addr, prev } = key_hash.effect_of(change).change;
        // A later change of the same key counts, or of another with an equal hash.
        if !later.insert(hash) || moved.contains(&addr) {
            continue;
        }
        let agrees = if addr == NO_RECORD {
            // A slot has few bits of the hash: it may lead to another key's record that is there now.
            !is_in_index(region, hash, prev)?
                || last
                    .iter()
                    .rev()
                    .map(|later| later.record)
                    .take_while(|later| later.offset != record.offset)
                    .any(|later| later.addr() == prev)
                || is_moved_to(region, last, record, |copy: Record<'_>| copy.addr() == prev)
        } else {
            is_in_index(region, hash, addr)?
        };
        if !agrees {
            let (expected, found) = (addr.offset(), prev.offset());
            return Err(disagreement("slot", record.offset, expected, found));
        }
    }
    Ok(())
}

/// Returns whether the lines of the index are copied by calls.
fn is_read_by_copies(region: &Region) -> bool {
    region.windows.index_bytes() >= READ_INDEX_BYTES_MIN
}

/// Returns whether a slot of the chain of `hash` holds `addr`, while nobody stores to the index.
fn is_in_index(region: &Region, hash: u64, addr: Addr) -> Result<bool> {
    let windows = &region.windows;
    if !is_read_by_copies(region) {
        return is_held(windows, hash, addr);
    }
    let shape = Shape::of_word(windows.shape().load(Ordering::Acquire));
    let slot = Slot::new(Tag::of_hash(hash), addr);
    let mut line = windows.copy_of(LineWindow::Buckets, shape.geometry.bucket_of(hash).0)?;
    let line_count = windows.line_count(LineWindow::Overflow);
    for _ in 0..=line_count {
        if line.has(slot) {
            return Ok(true);
        }
        let Some(LineNumber(next)) = line.next() else { return Ok(false) };
        line = windows.copy_of(LineWindow::Overflow, u64::from(next) - 1)?;
    }
    Err(disagreement("lines of a chain", LIVE_OFFSET, line_count, line_count + 1))
}

/// Returns whether compaction has made a copy that `is_meant` since `record` was written: then the
/// space of the original was reused.
fn is_moved_to(
    region: &Region,
    last: &VecDeque<LastChange<'_>>,
    record: &Record<'_>,
    is_meant: impl Fn(Record<'_>) -> bool,
) -> bool {
    let later = last.iter().rev().map(|later| later.record);
    let later = later.take_while(|later| later.offset != record.offset);
    let mut moves = later.filter(|later| later.header.kind == RecordKind::Relocate);
    moves.any(|record| {
        let mut is_there = false;
        // A copy whose space has another use by now belongs to a later record.
        let _ = Relocation::decode(&record).and_then(|relocation| {
            let each = |copy: Record<'_>, _| is_there |= is_meant(copy);
            relocation.for_each_copy(&region.view, each)
        });
        is_there
    })
}

/// Nobody reads it: the log is replayed instead.
fn disagreement(what: &'static str, offset: u64, expected: u64, found: u64) -> Error {
    Error::Corrupt { what, offset, expected, found }
}
