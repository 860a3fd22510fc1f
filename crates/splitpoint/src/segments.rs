//! `SegmentTable`: what the units of a table are used for, and how many of their bytes are live.
//! Pure.
//!
//! A *unit* is as large as the smallest log segment. The table has one word for each, so that one
//! load leads from the address of a record to the segment that it is in: segments are aligned to
//! their size, and the word has that size.
//!
//! # Invariants
//!
//! - The words of a segment agree on its use and its size; only the first has its counts.
//! - The live bytes of a segment are those of the records in it that a slot holds, between two
//!   changes. They choose what to compact. Nothing is freed because they are 0.
//!
//! # Not here
//!
//! Which granules are free is in [`space`](crate::space).

use std::collections::BTreeMap;
use std::ops::Range;

/// The use of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum SegmentUse {
    /// None, or one that the table does not follow.
    None = 0,
    /// Records in the order in which they were written.
    Log = 1,
    /// Records that compaction moved.
    Compacted = 2,
    /// Log segments smaller than a unit, one or more.
    Small = 3,
    /// Every live record was moved away. Somebody may still read the others.
    Emptied = 4,
    /// A live record is damaged, so that it was not moved.
    Damaged = 5,
}

impl SegmentUse {
    fn of_word(word: u64) -> Self {
        match word & ((1 << USE_BITS) - 1) {
            1 => Self::Log,
            2 => Self::Compacted,
            3 => Self::Small,
            4 => Self::Emptied,
            5 => Self::Damaged,
            _ => Self::None,
        }
    }
}

/// Bits of a word, from the lowest up: the use; log2 of the number of units; live bytes / 8; the low
/// half of the sequence number.
const USE_BITS: u32 = 3;
const SIZE_BITS: u32 = 5;
const LIVE_BITS: u32 = 24;
const LIVE_SHIFT: u32 = USE_BITS + SIZE_BITS;
const SEQUENCE_SHIFT: u32 = LIVE_SHIFT + LIVE_BITS;
const _: () = assert!(SEQUENCE_SHIFT == 32);

/// A segment as the table has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableSegment {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) segment_use: SegmentUse,
    pub(crate) live_bytes: u64,
    /// Bytes of records that no slot holds. What is left at the end of a segment is not among them.
    pub(crate) dead_bytes: u64,
    /// Low half of the sequence number.
    pub(crate) sequence: u32,
}

impl TableSegment {
    /// Returns where the segment is.
    pub(crate) fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.bytes
    }
}

/// The segments of a table.
#[derive(Debug)]
pub(crate) struct SegmentTable {
    /// log2 of the bytes of a unit.
    unit_shift: u32,
    words: Vec<u64>,
    /// Dead bytes of segments, at their first units.
    dead_bytes: Vec<u32>,
    /// Log segments smaller than a unit: the first of a table.
    small: Vec<Range<u64>>,
    /// Segments with one big record each, by their offset, with their size.
    bigs: BTreeMap<u64, u64>,
}

impl SegmentTable {
    /// Returns the table of a file without segments; `unit_bytes` is a power of two.
    pub(crate) fn new(unit_bytes: u64) -> Self {
        assert!(unit_bytes.is_power_of_two());
        let unit_shift = unit_bytes.trailing_zeros();
        Self {
            unit_shift,
            words: Vec::new(),
            dead_bytes: Vec::new(),
            small: Vec::new(),
            bigs: BTreeMap::new(),
        }
    }

    /// Returns the first unit of the segment that has the byte at `offset`, and its word.
    #[inline]
    fn first_unit(&self, offset: u64) -> Option<(usize, u64)> {
        let unit = offset >> self.unit_shift;
        let word = *self.words.get(unit as usize)?;
        let size_shift = word >> USE_BITS & ((1 << SIZE_BITS) - 1);
        Some(((unit >> size_shift << size_shift) as usize, word))
    }

    /// Adds a segment of the log or of compacted records.
    pub(crate) fn begin(&mut self, segment: Range<u64>, segment_use: SegmentUse, sequence: u64) {
        let bytes = segment.end - segment.start;
        assert!(matches!(segment_use, SegmentUse::Log | SegmentUse::Compacted));
        assert!(bytes.is_power_of_two() && segment.start.is_multiple_of(bytes));
        let is_small = bytes < 1 << self.unit_shift;
        let segment_use = if is_small { SegmentUse::Small } else { segment_use };
        let units = self.units_of(&segment);
        if self.words.len() < units.end {
            self.words.resize(units.end, 0);
            self.dead_bytes.resize(units.end, 0);
        }
        if is_small {
            self.small.push(segment);
            let live = self.words[units.start] & live_mask();
            self.words[units.start] = live | segment_use as u64;
            return;
        }
        debug_assert!(
            self.words[units.clone()].iter().all(|&word| word == 0),
            "a unit is in one segment"
        );
        let size = u64::from(units.len().trailing_zeros()) << USE_BITS;
        self.words[units.clone()].fill(size | segment_use as u64);
        self.dead_bytes[units.start] = 0;
        self.words[units.start] |= (sequence & u64::from(u32::MAX)) << SEQUENCE_SHIFT;
    }

    fn units_of(&self, segment: &Range<u64>) -> Range<usize> {
        let end = segment.end.next_multiple_of(1 << self.unit_shift);
        (segment.start >> self.unit_shift) as usize..(end >> self.unit_shift) as usize
    }

    /// Adds a segment of one big record.
    pub(crate) fn begin_big(&mut self, segment: Range<u64>) {
        let before = self.bigs.insert(segment.start, segment.end - segment.start);
        assert!(before.is_none(), "a segment begins once");
    }

    /// Removes the segment at `offset`, if it is one of a big record, and returns where it was.
    pub(crate) fn end_big(&mut self, offset: u64) -> Option<Range<u64>> {
        self.bigs.remove(&offset).map(|bytes| offset..offset + bytes)
    }

    /// Counts a record of `bytes` at `offset` as live. Records of big segments are not counted.
    #[inline]
    pub(crate) fn add_live(&mut self, offset: u64, bytes: u64) {
        debug_assert!(bytes.is_multiple_of(8));
        let Some((unit, word)) = self.first_unit(offset) else { return };
        if SegmentUse::of_word(word) != SegmentUse::None {
            let word = &mut self.words[unit];
            let room = live_mask() - (*word & live_mask());
            *word += ((bytes / 8) << LIVE_SHIFT).min(room);
        }
    }

    /// Counts a record as dead that was counted as live.
    #[inline]
    pub(crate) fn remove_live(&mut self, offset: u64, bytes: u64) {
        let Some((unit, _)) = self.first_unit(offset) else { return };
        let word = &mut self.words[unit];
        *word -= ((bytes / 8) << LIVE_SHIFT).min(*word & live_mask());
        self.add_dead(offset, bytes);
    }

    /// Counts a record of `bytes` at `offset` that no slot has ever held.
    #[inline]
    pub(crate) fn add_dead(&mut self, offset: u64, bytes: u64) {
        let Some((unit, _)) = self.first_unit(offset) else { return };
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.dead_bytes[unit] = self.dead_bytes[unit].saturating_add(bytes);
    }

    /// Changes the use of the segment at `offset`.
    pub(crate) fn set_use(&mut self, offset: u64, segment_use: SegmentUse) {
        let segment = self.segment_at(offset).expect("the table has the segment");
        assert_eq!(segment.offset, offset);
        for unit in self.units_of(&segment.range()) {
            let word = &mut self.words[unit];
            *word = *word >> USE_BITS << USE_BITS | segment_use as u64;
        }
    }

    /// Removes the segment at `offset`.
    pub(crate) fn end(&mut self, offset: u64) {
        let segment = self.segment_at(offset).expect("the table has the segment");
        assert_eq!(segment.segment_use, SegmentUse::Emptied, "a segment is emptied before it ends");
        let units = self.units_of(&segment.range());
        self.words[units].fill(0);
    }

    /// Returns the segment that has the byte at `offset`; `None` for one of a big record, and for
    /// those smaller than a unit.
    pub(crate) fn segment_at(&self, offset: u64) -> Option<TableSegment> {
        let (unit, word) = self.first_unit(offset)?;
        let segment_use = SegmentUse::of_word(word);
        if matches!(segment_use, SegmentUse::None | SegmentUse::Small) {
            return None;
        }
        let first = self.words[unit];
        Some(TableSegment {
            offset: (unit as u64) << self.unit_shift,
            bytes: (1 << (word >> USE_BITS & ((1 << SIZE_BITS) - 1))) << self.unit_shift,
            segment_use,
            live_bytes: (first & live_mask()) >> LIVE_SHIFT << 3,
            dead_bytes: self.dead_bytes[unit].into(),
            sequence: (first >> SEQUENCE_SHIFT) as u32,
        })
    }

    /// Returns the segments, in the order of the file: not those of big records, nor those smaller
    /// than a unit.
    pub(crate) fn segments(&self) -> impl Iterator<Item = TableSegment> + '_ {
        let end = (self.words.len() as u64) << self.unit_shift;
        let mut at = 0;
        std::iter::from_fn(move || {
            while at < end {
                let found = self.segment_at(at);
                at = found.map_or(at + (1 << self.unit_shift), |segment| segment.range().end);
                if found.is_some() {
                    return found;
                }
            }
            None
        })
    }

    /// Returns the number of units.
    pub(crate) fn unit_count(&self) -> u64 {
        self.words.len() as u64
    }

    /// Returns the segment of a unit, as [`segment_at`](Self::segment_at).
    pub(crate) fn segment_of_unit(&self, unit: u64) -> Option<TableSegment> {
        self.segment_at(unit << self.unit_shift)
    }

    /// Returns the log segments that are smaller than a unit.
    pub(crate) fn small(&self) -> &[Range<u64>] {
        &self.small
    }

    /// Returns the segments of big records.
    pub(crate) fn bigs(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.bigs.iter().map(|(&offset, &bytes)| offset..offset + bytes)
    }
}

const fn live_mask() -> u64 {
    ((1 << LIVE_BITS) - 1) << LIVE_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: u64 = 65_536;

    fn table() -> SegmentTable {
        let mut table = SegmentTable::new(UNIT);
        table.begin(16_384..20_480, SegmentUse::Log, 1);
        table.begin(24_576..32_768, SegmentUse::Log, 2);
        table.begin(UNIT..2 * UNIT, SegmentUse::Log, 3);
        table.begin(4 * UNIT..8 * UNIT, SegmentUse::Compacted, (1 << 32) + 9);
        table.begin_big(2 * UNIT..2 * UNIT + 20_480);
        table
    }

    #[test]
    fn every_address_of_a_segment_leads_to_its_counts() {
        let mut table = table();
        for offset in [4 * UNIT + 64, 5 * UNIT, 8 * UNIT - 24] {
            table.add_live(offset, 24);
        }
        table.remove_live(6 * UNIT + 8, 24);
        let segment = table.segment_at(7 * UNIT).unwrap();
        let expected = TableSegment {
            offset: 4 * UNIT,
            bytes: 4 * UNIT,
            segment_use: SegmentUse::Compacted,
            live_bytes: 48,
            dead_bytes: 24,
            sequence: 9,
        };
        assert_eq!(segment, expected);
        assert!(table.segments().eq([table.segment_at(UNIT).unwrap(), expected]));
    }

    #[test]
    fn records_outside_of_the_segments_are_not_counted() {
        let mut table = table();
        for offset in [2 * UNIT + 64, 3 * UNIT, 8 * UNIT, 1 << 40] {
            table.add_live(offset, 800);
            table.remove_live(offset, 800);
            assert_eq!(table.segment_at(offset), None);
        }
        table.add_live(16_384 + 64, 80);
        assert_eq!(table.segment_at(16_384 + 64), None, "smaller than a unit");
        assert_eq!(table.small(), [16_384..20_480, 24_576..32_768]);
        assert!(table.segments().all(|segment| segment.live_bytes == 0));
    }

    #[test]
    fn counts_stay_within_their_bits() {
        let mut table = table();
        table.remove_live(UNIT, 8);
        assert_eq!(table.segment_at(UNIT).unwrap().live_bytes, 0);
        table.add_live(UNIT, 1 << 40);
        table.add_live(UNIT, 8);
        let full = table.segment_at(UNIT).unwrap();
        assert_eq!((full.live_bytes, full.sequence), (((1 << LIVE_BITS) - 1) * 8, 3));
        assert_eq!(full.segment_use, SegmentUse::Log);
    }

    #[test]
    fn the_units_of_a_segment_that_ended_get_another_use() {
        let mut table = table();
        table.add_live(4 * UNIT + 64, 24);
        table.set_use(4 * UNIT, SegmentUse::Emptied);
        assert_eq!(table.segment_at(5 * UNIT).unwrap().segment_use, SegmentUse::Emptied);
        table.end(4 * UNIT);
        assert_eq!(table.segments().count(), 1);
        table.begin(6 * UNIT..8 * UNIT, SegmentUse::Log, 11);
        let segment = table.segment_at(7 * UNIT).unwrap();
        assert_eq!((segment.offset, segment.live_bytes, segment.sequence), (6 * UNIT, 0, 11));
    }

    #[test]
    fn a_big_segment_ends_once() {
        let mut table = table();
        assert_eq!(table.bigs().count(), 1);
        assert_eq!(table.end_big(2 * UNIT), Some(2 * UNIT..2 * UNIT + 20_480));
        assert_eq!(table.end_big(2 * UNIT), None);
    }
}
