//! Finds the segments of a file that was never compacted and so has no segment table.
//!
//! Its log is complete, so the segment headers lead from the tail back to the first log segment, at
//! the cost of one page read per segment. A range that has no other use and begins with the header
//! of a big segment is a big segment.

use std::ops::Range;

use super::deleted::look_behind;
use super::{Store, Writer};
use crate::births::AsOf;
use crate::error::{Error, Result};
use crate::format::{
    FILE_BYTES_MAX, GRANULE_BYTES, HEADER_BYTES, LogStart, SegmentHeader, SegmentKind, Superblock,
};
use crate::live::{CommitState, LineWindow};
use crate::log::append::LogPosition;
use crate::log::batch::is_member;
use crate::log::record::{LINK_BYTES, RecordKind};
use crate::log::runs::{Runs, run_of};
use crate::log::scan::{LogWalk, Trust, big_target};
use crate::log::segment::{Segment, log_segment_at, segments_before};
use crate::piece::piece_of;
use crate::region::{Extents, Region, read_superblock};
use crate::segments::{SegmentTable, SegmentUse};
use crate::space::{Extent, between};
use crate::testing::meanwhile::{self, Point};
use crate::testing::mutant::{self, Mutant};

/// How many times to try to read the segments of a file that another process is changing.
const LOOKS: u32 = 1000;

impl Store {
    /// Finds the segments of a file that another process may be changing, and notes the last
    /// commit: the segments contain all records of that commit, and none began after it. Returns
    /// the log sequence number of a commit from before the search: no segment emptied by then is
    /// among them. The caller has a pin.
    ///
    /// The segments are read before and after loading the commit. Every segment that has records at
    /// the commit was found by the first reading too, unless it was begun in between: then the
    /// second reading finds it, and the procedure starts over. It finds such a segment even if it is
    /// dead again by then, because its space is not reused while the caller has its pin, and even if
    /// it has made the file longer.
    pub(super) fn find_segments_beside(&self, writer: &mut Writer) -> Result<u64> {
        let region = &self.region;
        let mut last_error =
            Error::Locked { path: region.storage().path().to_path_buf(), holders: Vec::new() };
        for _ in 0..LOOKS {
            let found = self.look_at_segments(writer).and_then(|()| {
                let since = writer.log.position().lsn;
                let before = Places::of(writer.extents.segments());
                meanwhile::at(Point::SegmentsLookedAt);
                self.note_commit(writer);
                meanwhile::at(Point::CommitLoaded);
                // Learn the size of the file only after the commit: a segment beyond the end that
                // the free-space list knows would be missed.
                self.see_size()?;
                let extents = std::mem::replace(&mut writer.extents, Extents::of(region));
                writer.find_segments()?;
                let after = Places::of(writer.extents.segments());
                writer.extents = extents;
                let heads = [writer.state.tail_segment, writer.state.head_segment];
                let are_known =
                    heads.iter().all(|&head| head == 0 || before.has(head)) && before.have(&after);
                if are_known {
                    writer.forget_younger()?;
                }
                Ok(are_known.then_some(since))
            });
            match found {
                Ok(Some(since)) => return Ok(since),
                Ok(None) => {}
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }

    /// Returns the ranges of the records that were live at the commit noted with the segments.
    ///
    /// A writer marks the place of a big record as dead before the commit that makes it dead. So a
    /// record can be marked when the segments are read and still be live at the noted commit; then
    /// the first change after that commit, which was being made, names it. Stop there: a later
    /// change may name another record, because the place of a record that was dead before may be
    /// reused by now.
    pub(super) fn runs_beside(&self, writer: &Writer) -> Result<Runs> {
        let runs = writer.runs().unwrap_or_default();
        let segments = writer.extents.segments();
        let parts = segments.into_iter().flat_map(SegmentTable::parts);
        let dead: Vec<Range<u64>> =
            parts.filter(|&(_, is_dead)| is_dead).map(|(part, _)| part).collect();
        if dead.is_empty() {
            return Ok(runs);
        }
        let (mut runs, mut is_over) = (runs.to_vec(), false);
        look_behind(self, writer.log.position(), |record| {
            use RecordKind::{Link, Relocate};
            if is_over || matches!(record.header.kind, Link | Relocate) {
                return;
            }
            is_over = !is_member(record) && !mutant::is_made(Mutant::NamesDeadBigsAgain);
            let Some(prev) = record.header.prev else { return };
            runs.extend(
                dead.iter()
                    .filter(|part| part.start + SegmentHeader::BYTES == prev.offset())
                    .map(|part| run_of(part.start, part.end)),
            );
        })?;
        runs.sort_unstable_by_key(|run| run.start);
        runs.dedup_by_key(|run| run.start);
        Ok(runs.into())
    }

    /// Finds the segments with records in a file that no process changes meanwhile. A killed
    /// process may have begun a segment for a record that it did not commit: a handle that only
    /// reads leaves that segment in the file and out of its table.
    pub(crate) fn find_segments_as_left(&self, writer: &mut Writer) -> Result<()> {
        writer.find_segments()?;
        if self.reader.is_none() { Ok(()) } else { writer.forget_younger() }
    }

    fn look_at_segments(&self, writer: &mut Writer) -> Result<()> {
        self.see_size()?;
        writer.superblock = read_superblock(self.region.storage())?;
        self.note_commit(writer);
        writer.extents = Extents::of(&self.region);
        writer.find_segments()
    }

    /// Learns the size of the file, which another process may change.
    fn see_size(&self) -> Result<()> {
        match &self.reader {
            Some(_) => self.region.see_size().map(drop),
            None => Ok(()),
        }
    }

    /// Notes the last commit of another process.
    pub(crate) fn note_commit(&self, writer: &mut Writer) {
        let (position, state) = committed_position(&writer.superblock, &self.region);
        writer.state = state;
        writer.log.set_read_position(position);
    }
}

/// Returns the log position after the last published commit, and the counts of that commit.
pub(crate) fn committed_position(
    superblock: &Superblock,
    region: &Region,
) -> (LogPosition, CommitState) {
    let (lsn, state) = region.live().committed();
    let mut position =
        LogPosition { segment_offset: state.tail_segment, offset: state.tail_offset, lsn };
    let start = superblock.log_start;
    if position.segment_offset == 0 && start.segment_offset != 0 {
        let LogStart { segment_offset, record_offset: offset, lsn, .. } = start;
        position = LogPosition { segment_offset, offset, lsn };
    }
    (position, state)
}

/// The offset and the identity of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    offset: u64,
    /// The end offset for a part, the sequence number for any other segment.
    name: u64,
    /// Whether the segment was emptied, or its record is dead.
    is_gone: bool,
}

/// The places of all segments of a table, in the order of the file.
#[derive(Debug)]
struct Places(Vec<Place>);

impl Places {
    fn of(segments: Option<&SegmentTable>) -> Self {
        let whole = segments.into_iter().flat_map(SegmentTable::segments).map(|found| Place {
            offset: found.offset,
            name: found.sequence.into(),
            is_gone: found.segment_use == SegmentUse::Emptied,
        });
        let parts = segments.into_iter().flat_map(SegmentTable::parts);
        let parts =
            parts.map(|(part, is_gone)| Place { offset: part.start, name: part.end, is_gone });
        let mut places: Vec<Place> = whole.chain(parts).collect();
        places.sort_unstable();
        Self(places)
    }

    /// Returns whether a segment with records begins at `offset`.
    fn has(&self, offset: u64) -> bool {
        let found = self.0.binary_search_by_key(&offset, |place| place.offset);
        found.is_ok_and(|i| !self.0[i].is_gone)
    }

    /// Returns whether each segment of `later` is known from here. If the place of a dead record
    /// holds another record by then, that record is not known, unless it is dead too: a walk over
    /// the log finds it there.
    fn have(&self, later: &Self) -> bool {
        later.0.iter().all(|&place| {
            let is_known = |place| self.0.binary_search(&place).is_ok();
            let is_overlooked = place.is_gone && mutant::is_made(Mutant::OverlooksShortLived);
            is_overlooked
                || is_known(place)
                || place.is_gone && is_known(Place { is_gone: false, ..place })
        })
    }
}

impl Writer {
    /// Returns the segments with records of a commit, each from its first record to its end, in
    /// file order; `None` if the segments were not searched for, or a head cannot be read. No
    /// process may change the file meanwhile.
    pub(super) fn segments_of_commit(&self, (lsn, state): &(u64, CommitState)) -> Option<Runs> {
        let segments = self.extents.segments()?;
        let view = &self.extents.region().view;
        let sequence_of = |head: u64| view.segment(head).ok().map(|header| header.sequence);
        let tail_sequence = sequence_of(state.tail_segment)?;
        let head_sequence =
            if state.head_segment == 0 { 0 } else { sequence_of(state.head_segment)? };
        let is_younger =
            |sequence: u32, head: u64| (head as u32).wrapping_sub(sequence) > u32::MAX / 2;
        let whole = segments.segments().filter(|found| match found.segment_use {
            SegmentUse::Emptied => false,
            SegmentUse::Compacted => !is_younger(found.sequence, head_sequence),
            SegmentUse::Log => !is_younger(found.sequence, tail_sequence),
            // A segment of compacted records may be younger than the tail, so its sequence number
            // tells nothing here. Whichever use it had, it had live records.
            _ => true,
        });
        let alive = segments.parts().filter(|&(_, is_dead)| !is_dead).map(|(part, _)| part);
        // A failed change may have left a segment behind.
        let parts = alive.filter(|part| {
            !view.segment(part.start).is_ok_and(|header| match header.kind {
                SegmentKind::Log => header.sequence > tail_sequence,
                SegmentKind::Big => header.base_lsn >= *lsn,
                _ => false,
            })
        });
        Some(runs_of(whole.map(|found| found.range()).chain(parts), |segment| segment.end))
    }

    /// Removes from the table the segments that were begun for records younger than the last
    /// commit.
    fn forget_younger(&mut self) -> Result<()> {
        let LogPosition { segment_offset: tail, lsn, .. } = self.log.position();
        let region = self.extents.region().clone();
        let tail_sequence = if tail == 0 { 0 } else { region.view.segment(tail)?.sequence };
        let Some(segments) = self.extents.segments_mut() else { return Ok(()) };
        let is_younger = |offset: u64| {
            region.view.segment(offset).is_ok_and(|header| match header.kind {
                SegmentKind::Log => header.sequence > tail_sequence,
                SegmentKind::Big => header.base_lsn >= lsn,
                // Segments that the compaction head has not reached were removed before.
                _ => false,
            })
        };
        let parts: Vec<u64> = segments.parts().map(|(part, _)| part.start).collect();
        for offset in parts.into_iter().filter(|&offset| is_younger(offset)) {
            segments.end_big(offset);
        }
        let whole: Vec<u64> = segments.segments().map(|segment| segment.offset).collect();
        for offset in whole.into_iter().filter(|&offset| is_younger(offset)) {
            segments.set_use(offset, SegmentUse::Emptied);
        }
        Ok(())
    }

    /// Finds the segments with records, unless that was done before: in the segment table of the
    /// file or, without one, along the log.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the headers of the log do not lead to its start.
    pub(crate) fn find_segments(&mut self) -> Result<()> {
        if self.extents.segments().is_some() {
            return Ok(());
        }
        if self.extents.load_segments(&self.superblock, false)? {
            self.end_unnamed();
            return Ok(());
        }
        let region = self.extents.region().clone();
        let unit_bytes = SegmentTable::unit_bytes_for(self.superblock.segment_bytes_min.into());
        let mut table = SegmentTable::new(unit_bytes);
        let segments = self.log_segments(&region)?;
        for segment in &segments {
            table.begin(segment.offset..segment.end(), SegmentUse::Log, segment.sequence);
        }
        for big in self.big_segments(&region, &segments)? {
            table.begin_big(big);
        }
        assume_mean(&mut table, &segments, &self.state);
        self.extents.set_segments(table);
        Ok(())
    }

    /// Removes the segments of compacted records that a killed process had begun but not yet named
    /// in the log.
    fn end_unnamed(&mut self) {
        let (region, offset) = (self.extents.region().clone(), self.state.head_segment);
        let Some(segments) = self.extents.segments_mut() else { return };
        if offset == 0 {
            return segments.end_compacted_after(0);
        }
        // The table has a segment before the log names it, so a header that is damaged is not missed.
        let in_table = segments.segment_at(offset);
        let in_table = in_table.filter(|found| found.segment_use == SegmentUse::Compacted);
        let header = || region.view.segment(offset).ok().map(|header| header.sequence);
        if let Some(sequence) = in_table.map(|found| found.sequence.into()).or_else(header) {
            segments.end_compacted_after(sequence);
        }
    }

    /// Returns the segments of a complete log, the last one first.
    fn log_segments(&self, region: &Region) -> Result<Vec<Segment>> {
        let (start, end) = (self.superblock.log_start, self.log.position());
        if end.segment_offset == 0 {
            return Ok(Vec::new());
        }
        let view = &region.view;
        let segments: Vec<Segment> =
            segments_before(end, |offset| log_segment_at(view, offset)).collect();
        let first = segments.last().map_or(0, |segment| segment.offset);
        let is_aligned = |segment: &Segment| {
            segment.bytes.is_power_of_two() && segment.offset.is_multiple_of(segment.bytes)
        };
        if first == start.segment_offset && segments.iter().all(is_aligned) {
            return Ok(segments);
        }
        let (expected, offset) = (start.segment_offset, end.segment_offset);
        Err(Error::Corrupt { what: "previous segment", offset, expected, found: first })
    }

    /// Returns the segments of big records: every range that is neither free nor in other use.
    fn big_segments(&self, region: &Region, segments: &[Segment]) -> Result<Vec<Range<u64>>> {
        let live = region.live();
        let extent = |offset, bytes| Extent {
            granule: offset / GRANULE_BYTES,
            count: bytes / GRANULE_BYTES,
        };
        let mut others: Vec<Extent> =
            segments.iter().map(|segment| extent(segment.offset, segment.bytes)).collect();
        others.extend(self.extents.space().free());
        others.extend(live.checkpoint_extents().into_iter().flatten());
        if !region.is_private() {
            others.extend(LineWindow::ALL.into_iter().flat_map(|window| {
                (0..live.piece_count(window)).map(move |piece| Extent {
                    granule: live.piece(window, piece),
                    count: piece_of(piece).granule_count(),
                })
            }));
        }
        let end = region.view.file_bytes() / GRANULE_BYTES;
        let mut bigs = Vec::new();
        for extent in between(HEADER_BYTES / GRANULE_BYTES, end, others) {
            let end = (extent.granule + extent.count) * GRANULE_BYTES;
            let mut at = extent.granule * GRANULE_BYTES;
            while at < end {
                let header = region.view.segment(at).ok();
                let is_big = |bytes: &u64| at + bytes <= end;
                let bytes = header
                    .filter(|header| header.kind == SegmentKind::Big)
                    .map(|header| header.segment_bytes)
                    .filter(is_big);
                // Leaked granules that no structure refers to, or a damaged header.
                let Some(bytes) = bytes else { return self.named_bigs(region) };
                bigs.push(at..at + bytes);
                at += bytes;
            }
        }
        let bytes: u64 = bigs.iter().map(|big| big.end - big.start).sum();
        // If the sums differ, a process was killed before it named a big record: the log tells
        // which are named.
        if bytes == live.big_bytes() { Ok(bigs) } else { self.named_bigs(region) }
    }

    /// Returns the segments of big records that the log names.
    fn named_bigs(&self, region: &Region) -> Result<Vec<Range<u64>>> {
        let (start, end) = (self.superblock.log_start, self.log.position());
        let mut bigs = Vec::new();
        let Some(mut walk) = LogWalk::new(&region.view, start, Trust::Published, end.lsn)? else {
            return Ok(bigs);
        };
        while let Some(record) = walk.next_record()? {
            if record.header.kind == RecordKind::BigPut {
                let (offset, bytes) = big_target(&record)?;
                let is_inside =
                    offset >= HEADER_BYTES && offset.saturating_add(bytes) <= FILE_BYTES_MAX;
                if is_inside && offset.is_multiple_of(GRANULE_BYTES) && bytes >= GRANULE_BYTES {
                    bigs.push(offset..offset + bytes);
                }
            }
        }
        bigs.sort_unstable_by_key(|big| big.start);
        bigs.dedup_by_key(|big| big.start);
        Ok(bigs)
    }

    /// Returns the ranges of all records in file order, if the segments were searched for.
    pub(crate) fn runs(&self) -> Option<Runs> {
        let segments = self.extents.segments()?;
        let heads = self.heads();
        let end_of = |segment: &Range<u64>| {
            let head = heads.iter().find(|head| head.segment_offset == segment.start);
            head.map_or(segment.end, |head| head.offset)
        };
        let followed = segments
            .segments()
            .filter(|segment| segment.segment_use != SegmentUse::Emptied)
            .map(|segment| segment.range());
        let parts = segments.parts().filter(|&(_, is_dead)| !is_dead).map(|(part, _)| part);
        Some(runs_of(followed.chain(parts), end_of))
    }

    /// Returns whether every record in `runs`, the records of a file that was never compacted, is
    /// live and so has a slot: then the log is exactly as long as the live records and the LINKs
    /// between its segments.
    pub(super) fn has_only_live_records(&self, runs: &Runs) -> bool {
        let Self { superblock, state, extents, .. } = self;
        let is_file = !extents.region().storage().is_volatile();
        let is_log_whole = is_file && !superblock.is_compacted && superblock.log_start.lsn == 0;
        let link_bytes = LINK_BYTES * (runs.len() as u64).saturating_sub(1);
        let is_all = state.live_bytes.checked_add(link_bytes) == Some(self.log.position().lsn);
        if !is_log_whole || !is_all || state.dead_bytes > 0 {
            return false;
        }
        // Big records are outside the log, which only names them, so the sum above does not cover
        // them.
        let Some(segments) = extents.segments() else { return false };
        let view = &extents.region().view;
        let is_of_log = |offset| view.segment(offset).is_ok_and(|it| it.kind == SegmentKind::Log);
        segments.parts().all(|(part, _)| is_of_log(part.start))
    }

    /// Returns the ranges of the records at `stamp`, a moment that a horizon keeps, if the segments
    /// were searched for.
    pub(super) fn runs_at(&self, as_of: &AsOf, stamp: u64) -> Option<Runs> {
        let segments = self.extents.segments()?;
        let births = &self.extents.region().births;
        // Segments emptied since the moment are not reused while the horizon is open, so they still
        // hold its records.
        let emptied_before = self.compacting.as_ref().map(|it| it.state.emptied_until(stamp));
        let was_there = |segment: &Range<u64>, is_emptied: bool| {
            let is_gone = match &emptied_before {
                Some(emptied) => emptied.contains(&segment.start),
                // A handle that does not compact has emptied no segment since.
                None => is_emptied,
            };
            !is_gone && as_of.has_segment(births, segment.start)
        };
        let whole = segments
            .segments()
            .filter(|found| was_there(&found.range(), found.segment_use == SegmentUse::Emptied))
            .map(|segment| segment.range());
        // Keep dead parts: a record that is dead now may have died after the moment.
        let parts = segments.parts().map(|(part, _)| part).filter(|part| was_there(part, false));
        Some(runs_of(whole.chain(parts), |segment| as_of.end_of(segment)))
    }
}

/// Returns the ranges of the records of `segments` in file order; `end_of` returns where the
/// records of a segment end.
fn runs_of(
    segments: impl Iterator<Item = Range<u64>>,
    end_of: impl Fn(&Range<u64>) -> u64,
) -> Runs {
    let mut runs: Vec<Range<u64>> =
        segments.map(|segment| run_of(segment.start, end_of(&segment))).collect();
    runs.sort_unstable_by_key(|run| run.start);
    runs.into()
}

/// Estimates the live and dead bytes of log segments. Only the sums over the store are known, so
/// each segment gets the mean.
fn assume_mean(table: &mut SegmentTable, segments: &[Segment], state: &CommitState) {
    let all_bytes = state.live_bytes.saturating_add(state.dead_bytes).max(1);
    for segment in segments {
        let record_bytes = segment.bytes.min(all_bytes);
        let live_bytes =
            u128::from(record_bytes) * u128::from(state.live_bytes) / u128::from(all_bytes);
        let live_bytes = live_bytes as u64 / 8 * 8;
        table.add_live(segment.offset, live_bytes);
        table.add_dead(segment.offset, record_bytes - live_bytes);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    #[cfg(not(miri))]
    use crate::{
        batch::Batch,
        options::{Options, Sharing},
    };

    const UNIT: u64 = 1 << 16;

    fn table() -> SegmentTable {
        let mut table = SegmentTable::new(UNIT);
        table.begin(2 * UNIT..3 * UNIT, SegmentUse::Compacted, 7);
        table.begin_big(4096..8192);
        table.begin_big(8192..UNIT);
        table
    }

    /// Returns whether every segment of a table that `change` has changed is known from the table
    /// before.
    fn are_known(change: impl Fn(&mut SegmentTable)) -> bool {
        let mut table = table();
        table.bury_big(4096);
        let before = Places::of(Some(&table));
        change(&mut table);
        before.have(&Places::of(Some(&table)))
    }

    #[test]
    fn what_began_between_two_looks_is_not_known_even_if_it_is_dead_again() {
        assert!(are_known(|_| {}));
        assert!(are_known(|table| assert!(table.bury_big(8192).is_some())));
        assert!(are_known(|table| assert!(table.end_big(4096).is_some())));
        assert!(are_known(|table| table.set_use(2 * UNIT, SegmentUse::Emptied)));
        let begin_big = |table: &mut SegmentTable| table.begin_big(UNIT..2 * UNIT);
        assert!(!are_known(begin_big));
        assert!(!are_known(|table| {
            begin_big(table);
            table.bury_big(UNIT);
        }));
        let begin = |table: &mut SegmentTable| table.begin(UNIT..2 * UNIT, SegmentUse::Log, 8);
        assert!(!are_known(begin));
        assert!(!are_known(|table| {
            begin(table);
            table.set_use(UNIT, SegmentUse::Emptied);
        }));
    }

    #[test]
    fn a_record_in_the_place_of_one_that_is_dead_is_known_only_if_it_is_dead_too() {
        let reuse = |table: &mut SegmentTable| {
            table.end_big(4096);
            table.begin_big(4096..8192);
        };
        assert!(!are_known(reuse));
        assert!(are_known(|table| {
            reuse(table);
            table.bury_big(4096);
        }));
    }

    /// Returns what a snapshot beside another handle has, with a count of 1, of a key that had `old`: a batch
    /// stores a big record there and that count after the first look at the segments, and the record is dead at
    /// the second one if `dies`.
    #[cfg(not(miri))]
    fn get_beside_batch(dies: bool) -> Vec<u8> {
        let dir = tempfile::tempdir().expect("nothing fails");
        let options = Options::new().sharing(Sharing::Shared).live_share(0.9);
        let options = options.checkpoint_bytes_min(64 << 10);
        let open = || options.open(dir.path().join("a")).expect("nothing fails");
        let (db, other) = (open(), open());
        let put = |i: u32| other.put((i % 100).to_le_bytes(), [7; 1000]).expect("nothing fails");
        (0..4_000).for_each(put);
        assert!(db.store().region.live().segment_table().is_some(), "the dead are marked there");
        other.apply(&Batch::new().put("big", "old").put("count", "0")).expect("nothing fails");
        let mut next = vec![Point::CommitLoaded, Point::SegmentsLookedAt];
        let change = move |point| {
            if next.pop_if(|next| *next == point).is_none() {
                return;
            }
            let changes = Batch::new().put("big", vec![7; 300_000]).put("count", "1");
            match point {
                Point::SegmentsLookedAt => other.apply(&changes).expect("nothing fails"),
                _ if dies => other.put("big", "small").expect("nothing fails"),
                _ => {}
            }
        };
        let snapshot = meanwhile::with(change, || db.snapshot().expect("nothing fails"));
        let get = |key: &str| snapshot.get(key).expect("nothing fails").expect("it is there");
        assert_eq!(get("count"), "1");
        get("big").to_vec()
    }

    #[test]
    #[cfg(not(miri))]
    fn a_snapshot_has_a_big_record_that_another_handle_stores_while_it_is_taken() {
        // It makes the file longer.
        assert_eq!(get_beside_batch(false).len(), 300_000);
        assert_eq!(get_beside_batch(true), b"small");
        let overlooked = mutant::with(Mutant::OverlooksShortLived, || get_beside_batch(true));
        assert_eq!(overlooked, b"old");
    }

    /// Looks at the segments beside a writer that moves its segment table, and gives the place back, after the
    /// reader has found where it is; returns whether any is found, or `None` after an error.
    #[cfg(not(miri))]
    fn look_at_a_table_that_moves() -> Option<bool> {
        let dir = tempfile::tempdir().expect("it has room");
        let path = dir.path().join("a");
        let db = Options::new().live_share(0.9).open(&path).expect("nobody has it");
        // Enough segments for a table in the file.
        (0..8_000_u32).for_each(|i| db.put(i.to_le_bytes(), [7; 1000]).expect("it has room"));
        let place = db.store().region.live().segment_table().expect("it is in the file");
        let reader = Options::new().read_only().open(&path).expect("a writer lets it in");
        let change = move |point| {
            let store = db.store();
            if point == Point::TableFound && store.region.live().segment_table() == Some(place) {
                // More units than the table has room for.
                db.put("big", vec![7; 48 << 20]).expect("it has room");
                assert_ne!(store.region.live().segment_table(), Some(place));
                let zeros = vec![0; (place.count * GRANULE_BYTES) as usize];
                let offset = place.granule * GRANULE_BYTES;
                store.region.storage().write_at(offset, &zeros).expect("it is in the file");
            }
        };
        let mut looking = reader.store().lock_to_look().expect("nobody panics");
        meanwhile::with(change, || {
            reader.store().look_at_segments(&mut looking).ok()?;
            let segments = looking.extents.segments().expect("they were found");
            Some(segments.segments().next().is_some())
        })
    }

    #[test]
    #[cfg(not(miri))]
    fn a_segment_table_that_moves_while_a_reader_looks_is_not_believed() {
        assert_eq!(look_at_a_table_that_moves(), None);
        let found = mutant::with(Mutant::ReadsMovedTable, look_at_a_table_that_moves);
        assert_eq!(found, Some(false), "a store without a record");
    }

    #[test]
    fn a_head_is_in_a_segment_with_records() {
        let mut table = table();
        assert!([4096, 8192, 2 * UNIT].iter().all(|&head| Places::of(Some(&table)).has(head)));
        table.bury_big(4096);
        table.set_use(2 * UNIT, SegmentUse::Emptied);
        let places = Places::of(Some(&table));
        assert!([0, 4096, UNIT, 2 * UNIT].iter().all(|&head| !places.has(head)));
    }
}
