//! `Births` records which segments were begun while a snapshot is open; `AsOf` describes which
//! records were in the store at a moment.
//!
//! Segments are numbered in the order in which they are begun. A record existed at a moment if the
//! number of its segment is below the next number at that moment and the record is not after the
//! end of the records that the segment, if it was open, had then. A commit publishes these numbers,
//! so nothing is kept per record.
//!
//! [`Births`] maps the address of a record to the number of its segment, without a lock. It records
//! only segments that begin while there is a [watcher](Births::watch): every other segment was
//! begun before the moment of each watcher.
//!
//! # Invariants
//!
//! - Watchers and segments begin under the writer's lock. A watcher may end on any thread without
//!   it.
//! - The number of a segment is stored before any slot leads to the segment.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::format::{Addr, GRANULE_BYTES};

/// Granules in the first chunk. Each further chunk is twice as large as the previous one.
const FIRST_CHUNK: u64 = 1024;
/// Chunks for the largest file: 2^31 granules.
const CHUNK_COUNT: usize = 22;

/// The sequence numbers of segments, by granule. Takes 8 bytes for each granule up to the last one
/// of a segment that was begun while there was a watcher.
#[derive(Debug, Default)]
pub(crate) struct Births {
    watcher_count: AtomicU64,
    chunks: [OnceLock<Box<[AtomicU64]>>; CHUNK_COUNT],
}

/// Returns the chunk of a granule, and the index in that chunk.
#[inline]
fn place_of(granule: u64) -> (usize, usize) {
    let chunk = (granule / FIRST_CHUNK + 1).ilog2();
    (chunk as usize, (granule - FIRST_CHUNK * ((1 << chunk) - 1)) as usize)
}

impl Births {
    /// Records the segments that begin from now on, until the watch is dropped. The caller holds
    /// the writer's lock.
    pub(crate) fn watch(&self) -> Watch<'_> {
        self.watcher_count.fetch_add(1, Ordering::Relaxed);
        Watch(self)
    }

    /// Records that a segment begins. The caller holds the writer's lock.
    #[inline]
    pub(crate) fn begin(&self, segment: Range<u64>, sequence: u64) {
        if self.watcher_count.load(Ordering::Relaxed) != 0 {
            self.note(segment, sequence);
        }
    }

    #[cold]
    fn note(&self, segment: Range<u64>, sequence: u64) {
        for granule in segment.start / GRANULE_BYTES..segment.end.div_ceil(GRANULE_BYTES) {
            let (chunk, i) = place_of(granule);
            let words = self.chunks[chunk]
                .get_or_init(|| (0..FIRST_CHUNK << chunk).map(|_| AtomicU64::new(0)).collect());
            words[i].store(sequence, Ordering::Release);
        }
    }

    /// Returns the number of the segment that has the byte at `offset`, or a smaller number if
    /// there was no watcher when the segment began.
    #[inline]
    pub(crate) fn of(&self, offset: u64) -> u64 {
        let (chunk, i) = place_of(offset / GRANULE_BYTES);
        let words = self.chunks.get(chunk).and_then(OnceLock::get);
        words.and_then(|words| words.get(i)).map_or(0, |word| word.load(Ordering::Acquire))
    }
}

/// Makes [`Births`] record the segments that begin, until it is dropped.
#[derive(Debug)]
pub(crate) struct Watch<'a>(&'a Births);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let before = self.0.watcher_count.fetch_sub(1, Ordering::Relaxed);
        debug_assert_ne!(before, 0, "a watcher is counted until it is dropped");
    }
}

/// The append position of one stream of records at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// Offset of the segment, 0 for none.
    pub(crate) segment_offset: u64,
    /// The rest of the segment, where later records are appended.
    pub(crate) rest: Range<u64>,
}

/// The records in the store at a moment: all records of segments whose number is below
/// `next_sequence`, up to the two heads, of the log and of compacted records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AsOf {
    /// The number that the next segment would have got.
    pub(crate) next_sequence: u64,
    pub(crate) heads: [Head; 2],
}

impl AsOf {
    /// Returns whether the record at `addr` existed at the moment.
    #[inline]
    pub(crate) fn has(&self, births: &Births, addr: Addr) -> bool {
        let offset = addr.offset();
        self.has_segment(births, offset)
            && !self.heads.iter().any(|head| head.rest.contains(&offset))
    }

    /// Returns whether the segment with the byte at `offset` had been begun.
    #[inline]
    pub(crate) fn has_segment(&self, births: &Births, offset: u64) -> bool {
        births.of(offset) < self.next_sequence.max(1)
    }

    /// Returns the end of the records, at the moment, of a segment that existed.
    pub(crate) fn end_of(&self, segment: &Range<u64>) -> u64 {
        let head = self.heads.iter().find(|head| head.segment_offset == segment.start);
        head.map_or(segment.end, |head| head.rest.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_granule_has_a_place_of_its_own() {
        let mut next = (0, 0);
        for granule in 0..100_000 {
            assert_eq!(place_of(granule), next, "{granule}");
            next.1 += 1;
            if next.1 as u64 == FIRST_CHUNK << next.0 {
                next = (next.0 + 1, 0);
            }
        }
        let last = place_of((1 << 31) - 1);
        assert!(last.0 < CHUNK_COUNT, "{last:?}");
    }

    #[test]
    fn a_record_is_of_the_moment_up_to_the_heads_and_in_no_later_segment() {
        let births = Births::default();
        births.begin(0x1_0000..0x2_0000, 5);
        assert_eq!(births.of(0x1_8000), 0, "nobody watches");
        let _watch = births.watch();
        let heads = [(0x1_0000, 0x1_4000..0x2_0000), (0x5_0000, 0x5_0100..0x6_0000)]
            .map(|(segment_offset, rest)| Head { segment_offset, rest });
        let as_of = AsOf { next_sequence: 9, heads };
        births.begin(0x8_0000..0x8_1000, 9);
        for (offset, expected) in [
            (0x1_3ff8, true),
            (0x1_4000, false),
            (0x2_0000, true),
            (0x5_00f8, true),
            (0x5_0100, false),
            (0x8_0040, false),
            (0x8_1000, true),
        ] {
            assert_eq!(as_of.has(&births, Addr::of_offset(offset)), expected, "{offset:#x}");
        }
    }

    #[test]
    fn space_that_is_used_again_is_younger() {
        let births = Births::default();
        let _watch = births.watch();
        let as_of = AsOf { next_sequence: 3, ..AsOf::default() };
        births.begin(0x1_0000..0x2_0000, 2);
        assert!(as_of.has(&births, Addr::of_offset(0x1_0040)));
        births.begin(0x1_8000..0x2_0000, 7);
        assert!(as_of.has(&births, Addr::of_offset(0x1_0040)));
        assert!(!as_of.has(&births, Addr::of_offset(0x1_8040)));
    }
}
