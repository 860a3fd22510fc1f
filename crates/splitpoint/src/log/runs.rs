//! `RunWalk`: a walk over the records of a list of segments in file order, without following the
//! chain of the log. Works for compacted stores.

use std::ops::Range;
use std::sync::Arc;

use super::record::{Pair, Record, RecordKind};
use super::scan::AHEAD_BYTES;
use crate::error::Result;
use crate::format::{Addr, SegmentHeader};
use crate::region::View;

/// The byte ranges of a table's records: those of each segment from its first record on, in the
/// order of the file. The records of a run end with a LINK, with a big record, or at the end of the
/// run.
pub(crate) type Runs = Arc<[Range<u64>]>;

/// The starts of the runs whose records were all held by slots at a moment, in the order of the
/// file.
pub(crate) type HeldRuns = Arc<[u64]>;

/// Returns the run that contains the record at `offset`.
#[inline]
pub(crate) fn run_at(runs: &[Range<u64>], offset: u64) -> Option<&Range<u64>> {
    let after = runs.partition_point(|run| run.start <= offset);
    after.checked_sub(1).map(|last| &runs[last]).filter(|run| run.contains(&offset))
}

/// Returns the run of a segment whose records end at `end`.
pub(crate) fn run_of(segment_offset: u64, end: u64) -> Range<u64> {
    debug_assert!(segment_offset + SegmentHeader::BYTES <= end, "a segment has a header");
    segment_offset + SegmentHeader::BYTES..end
}

/// A walk over the records of a list of runs.
#[derive(Clone, Debug)]
pub(crate) struct RunWalk<'a> {
    view: &'a View,
    runs: Runs,
    held: HeldRuns,
    /// Index of the next run.
    next_run: usize,
    /// The rest of the present run.
    rest: Range<u64>,
    /// Whether slots held every record of the present run.
    is_held: bool,
}

impl<'a> RunWalk<'a> {
    /// Walks over `runs` from the first record.
    pub(crate) fn new(view: &'a View, runs: Runs, held: HeldRuns) -> Self {
        Self { view, runs, held, next_run: 0, rest: 0..0, is_held: false }
    }

    /// Walks over one run.
    pub(crate) fn of_one(view: &'a View, run: Range<u64>) -> Self {
        let (runs, held) = (Arc::new([]), Arc::new([]));
        Self { view, runs, held, next_run: 0, rest: run, is_held: false }
    }

    /// Returns the next record of any kind but LINK, or `None` after the last.
    pub(crate) fn next_record(&mut self) -> Result<Option<Record<'a>>> {
        let record = loop {
            while self.rest.is_empty() {
                let Some(run) = self.runs.get(self.next_run) else { return Ok(None) };
                self.rest = run.clone();
                self.next_run += 1;
                self.is_held = self.held.binary_search(&run.start).is_ok();
            }
            let record = self.view.record_before(self.rest.start, self.rest.end)?;
            if record.header.kind != RecordKind::Link {
                break record;
            }
            self.rest = 0..0;
        };
        self.rest.start += record.bytes.len() as u64;
        if record.header.kind == RecordKind::Big {
            // A big record is alone in its segment.
            self.rest = 0..0;
        }
        Ok(Some(record))
    }

    /// Returns whether slots held every record of the run of the last record.
    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.is_held
    }

    /// Returns the next record with a key and a value, or `None` after the last.
    #[inline]
    pub(crate) fn next_pair(&mut self) -> Result<Option<(Addr, Pair<'a>)>> {
        let offset = self.rest.start;
        if let Some((pair, record_bytes)) = self.view.short_pair_before(offset, self.rest.end) {
            self.view.prefetch_range(offset + AHEAD_BYTES, record_bytes);
            self.rest.start += record_bytes;
            return Ok(Some((Addr::of_offset(offset), pair)));
        }
        self.next_long_pair()
    }

    /// As [`next_pair`](Self::next_pair), past records of other kinds.
    #[cold]
    fn next_long_pair(&mut self) -> Result<Option<(Addr, Pair<'a>)>> {
        loop {
            let Some(record) = self.next_record()? else { return Ok(None) };
            if matches!(record.header.kind, RecordKind::Put | RecordKind::Big) {
                let pair = Pair { key: record.key(), value: record.value() };
                return Ok(Some((record.addr(), pair)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_in_a_run_from_its_first_record_to_its_end() {
        let runs = [run_of(4096, 8192), run_of(16_384, 16_384 + 64), run_of(20_480, 24_576)];
        for (offset, expected) in [
            (0, false),
            (4096, false),
            (4160, true),
            (8184, true),
            (8192, false),
            (16_448, false),
            (24_568, true),
            (1 << 40, false),
        ] {
            assert_eq!(run_at(&runs, offset).is_some(), expected, "{offset}");
        }
        assert!(run_at(&[], 8).is_none());
    }
}
