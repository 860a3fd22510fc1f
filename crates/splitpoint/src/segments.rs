//! `SegmentTable`: the use of each unit of a file, and its live and dead bytes.
//!
//! A *unit* is as large as the smallest log segment, 64 KiB at most. The table has an entry of two
//! words for each, so that one load leads from the address of a record to the segment that it is in:
//! segments are aligned to their size, and the entry has that size.
//!
//! ```text
//! offset  size  field
//!      0     8  use (bits 0-2): 1 log, 2 compacted, 3 log segments smaller than a unit, 4 emptied,
//!               5 damaged; log2 of the units of the segment (3-7); live bytes / 8 (8-31); low half
//!               of the sequence number (32-63)
//!      8     8  dead bytes (bits 0-31); granules of big segments and of log segments smaller than a
//!               unit, one bit each (32-47); which of them are the first ones (48-63)
//! ```
//!
//! Only the first entry of a segment has its use and its counts; the other entries have a nonzero
//! use and the same size. A compacted file has the table in a mapped segment of kind 4. For a table
//! in memory, and for a file without one, the handle has it in private memory.
//!
//! # Invariants
//!
//! - A segment is added and removed atomically with respect to a kill: its first entry is stored
//!   last and erased first. [`SegmentTable::mend`] removes the remains of other entries.
//! - Between two changes, the live bytes of a segment are those of its records that a slot holds.
//!   They are only used to choose what to compact; nothing is freed because they are 0.
//! - A handle has counted every dead byte of the segments that it has begun itself, on which scans
//!   rely. The counts of other segments may lack what a killed process had not counted yet.
//!
//! # Not here
//!
//! Which granules are free is in [`space`](crate::space).

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::atomic::may_be_killed;
use crate::checksum;
use crate::format::{GRANULE_BYTES, HEADER_BYTES, LOG_SEGMENT_BYTES_MAX};
use crate::space::Extent;
use crate::storage::{WordMap, prefetch};

/// The use of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum SegmentUse {
    /// No segment, or one that the table does not track.
    None = 0,
    /// A log segment.
    Log = 1,
    /// A segment of records that compaction has moved.
    Compacted = 2,
    /// One or more log segments smaller than a unit.
    Small = 3,
    /// Every live record was moved away. Readers may still use the old records.
    Emptied = 4,
    /// The segment has a damaged live record, which could not be moved.
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

    /// Returns whether an entry with this use belongs to a segment of complete units.
    fn is_whole(self) -> bool {
        !matches!(self, Self::None | Self::Small)
    }
}

/// Bits of the first word, from the lowest up: the use; log2 of the number of units; live bytes / 8;
/// the low half of the sequence number.
const USE_BITS: u32 = 3;
const SIZE_BITS: u32 = 5;
const LIVE_BITS: u32 = 24;
const LIVE_SHIFT: u32 = USE_BITS + SIZE_BITS;
const SEQUENCE_SHIFT: u32 = LIVE_SHIFT + LIVE_BITS;
const _: () = assert!(SEQUENCE_SHIFT == 32);
/// Bits of the second word: dead bytes; granules of parts; first granules of parts.
const PARTS_SHIFT: u32 = 32;
const FIRSTS_SHIFT: u32 = 48;
/// Largest number of granules in a unit.
const GRANULES_MAX: u64 = 16;

/// A segment, as described by the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableSegment {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) segment_use: SegmentUse,
    pub(crate) live_bytes: u64,
    /// Bytes of records that no slot holds, without the unused end of the segment.
    pub(crate) dead_bytes: u64,
    /// Low half of the sequence number.
    pub(crate) sequence: u32,
}

impl TableSegment {
    /// Returns the byte range of the segment.
    pub(crate) fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.bytes
    }
}

/// The total size of the segments of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentTotals {
    /// Bytes of log segments and of segments of moved records, without emptied ones.
    pub(crate) log_bytes: u64,
    /// Bytes of segments of live big records.
    pub(crate) big_bytes: u64,
}

/// The segments of a table.
#[derive(Debug)]
pub(crate) struct SegmentTable {
    /// log2 of the unit size in bytes.
    unit_shift: u32,
    words: Words,
    /// Number of units up to the last one that may be in use: the last nonzero entry when it was
    /// searched for, or a later segment. Units beyond it have no use and no parts, but may have
    /// counts.
    used_units: usize,
    version: u64,
    /// For each unit, whether it is the first of a segment that this handle has begun, so that this
    /// handle has counted all of its records. Always `false` for segments smaller than a unit.
    own: Vec<bool>,
}

/// Chunk size, in words, of the search for the last entry.
const SCANNED_WORDS: usize = 64;

/// The next version number, unique among all tables of the process.
static NEXT_VERSION: AtomicU64 = AtomicU64::new(0);

fn next_version() -> u64 {
    NEXT_VERSION.fetch_add(1, Ordering::Relaxed)
}

/// The storage of the entries.
#[derive(Debug)]
enum Words {
    Private(Vec<AtomicU64>),
    /// A mapped segment of the file; the entries follow its header.
    File(WordMap),
}

impl Words {
    #[inline]
    fn all(&self) -> &[AtomicU64] {
        match self {
            Self::Private(words) => words,
            Self::File(map) => &map.words()[SegmentTable::MAP_HEAD_WORDS..],
        }
    }

    /// Returns the number of units up to the last nonzero entry. Searched in chunks, because a
    /// table in the file has room for at least twice its entries.
    fn used_units(&self) -> usize {
        let words = self.all();
        let is_used = |words: &[AtomicU64]| {
            words.iter().fold(0, |all, word| all | word.load(Ordering::Relaxed)) != 0
        };
        let chunk_count = words.chunks(SCANNED_WORDS).rposition(is_used).map_or(0, |last| last + 1);
        let words = &words[..words.len().min(chunk_count * SCANNED_WORDS)];
        words.chunks(2).rposition(is_used).map_or(0, |last| last + 1)
    }
}

/// The words of an entry.
#[derive(Clone, Copy)]
struct Entry<'a>(&'a [AtomicU64; 2]);

impl Entry<'_> {
    #[inline]
    fn word(self) -> u64 {
        self.0[0].load(Ordering::Relaxed)
    }

    #[inline]
    fn set_word(self, word: u64) {
        self.0[0].store(word, Ordering::Relaxed);
    }

    #[inline]
    fn second(self) -> u64 {
        self.0[1].load(Ordering::Relaxed)
    }

    #[inline]
    fn set_second(self, word: u64) {
        self.0[1].store(word, Ordering::Relaxed);
    }

    fn segment_use(self) -> SegmentUse {
        SegmentUse::of_word(self.word())
    }

    fn parts(self) -> u64 {
        self.second() >> PARTS_SHIFT & 0xffff
    }

    fn firsts(self) -> u64 {
        self.second() >> FIRSTS_SHIFT
    }

    fn set_parts(self, parts: u64, firsts: u64) {
        may_be_killed();
        let dead_bytes = self.second() & u64::from(u32::MAX);
        self.set_second(firsts << FIRSTS_SHIFT | parts << PARTS_SHIFT | dead_bytes);
        may_be_killed();
    }
}

impl SegmentTable {
    /// Size of an entry in bytes.
    pub(crate) const ENTRY_BYTES: u64 = 16;
    /// Words of the segment header before the entries.
    const MAP_HEAD_WORDS: usize = 8;

    /// Returns the unit size in bytes for a store whose smallest log segment has
    /// `segment_bytes_min`.
    pub(crate) fn unit_bytes_for(segment_bytes_min: u64) -> u64 {
        segment_bytes_min.min(GRANULES_MAX * GRANULE_BYTES)
    }

    /// Returns an empty table in private memory; `unit_bytes` is a power of two.
    pub(crate) fn new(unit_bytes: u64) -> Self {
        Self::of_words(unit_bytes, Vec::new())
    }

    /// Returns a table in private memory with these entries.
    pub(crate) fn of_words(unit_bytes: u64, words: Vec<u64>) -> Self {
        assert!(unit_bytes.is_power_of_two() && words.len().is_multiple_of(2));
        assert!((GRANULE_BYTES..=GRANULES_MAX * GRANULE_BYTES).contains(&unit_bytes));
        let words = words.into_iter().map(AtomicU64::new).collect();
        let words = Words::Private(words);
        let (unit_shift, used_units) = (unit_bytes.trailing_zeros(), words.used_units());
        Self { unit_shift, words, used_units, version: next_version(), own: Vec::new() }
    }

    /// Returns the table in a mapped segment of the file.
    pub(crate) fn of_map(unit_bytes: u64, map: WordMap) -> Self {
        let words = Words::File(map);
        let used_units = words.used_units();
        Self { words, used_units, ..Self::new(unit_bytes) }
    }

    /// Returns the size in bytes of a segment with room for the entries of a file of `file_bytes`,
    /// and for at least as many again.
    pub(crate) fn map_bytes(&self, file_bytes: u64) -> u64 {
        let in_use = self.words.used_units() as u64;
        let unit_count = file_bytes.div_ceil(1 << self.unit_shift).max(in_use);
        let bytes = Self::MAP_HEAD_WORDS as u64 * 8 + unit_count * Self::ENTRY_BYTES;
        (2 * bytes).next_power_of_two().max(GRANULE_BYTES)
    }

    /// Returns whether the table has room for every segment of a file of `file_bytes`.
    pub(crate) fn has_room(&self, file_bytes: u64) -> bool {
        match &self.words {
            Words::Private(_) => true,
            Words::File(_) => file_bytes.div_ceil(1 << self.unit_shift) <= self.unit_count(),
        }
    }

    /// Returns a number that changes whenever the segments or their uses change, and that no other
    /// table has.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Returns whether the table is in the file.
    pub(crate) fn is_in_file(&self) -> bool {
        matches!(self.words, Words::File(_))
    }

    /// Returns a copy of the words of all entries, without trailing zero entries.
    pub(crate) fn to_words(&self) -> Vec<u64> {
        let words = &self.words.all()[..2 * self.words.used_units()];
        words.iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }

    /// Searches for the last entry again, so that a checksum that will be stored covers all
    /// entries.
    pub(crate) fn find_end(&mut self) {
        self.used_units = self.words.used_units();
    }

    /// Raises `used_units` for a segment that ends before the unit `end`.
    #[inline]
    fn raise_end(&mut self, end: usize) {
        self.used_units = self.used_units.max(end);
    }

    /// Returns the checksum of the table up to `used_units`.
    pub(crate) fn crc(&self) -> u32 {
        self.words.all()[..2 * self.used_units].iter().fold(0, |crc, word| {
            checksum::crc32c_append_words(crc, &[], [word.load(Ordering::Relaxed)])
        })
    }

    /// Returns the table with its entries copied to `map`, a segment of the file whose entries are
    /// 0.
    pub(crate) fn moved_to(&self, map: WordMap) -> Self {
        let (unit_shift, version) = (self.unit_shift, next_version());
        let from = self.to_words();
        let (words, used_units, own) = (Words::File(map), from.len() / 2, self.own.clone());
        let moved = Self { unit_shift, words, used_units, version, own };
        assert!(from.len() <= moved.words.all().len(), "`map_bytes` has made room");
        for (to, from) in moved.words.all().iter().zip(from) {
            to.store(from, Ordering::Relaxed);
        }
        moved
    }

    #[inline]
    fn entry(&self, unit: usize) -> Option<Entry<'_>> {
        let words = self.words.all().get(2 * unit..2 * unit + 2)?;
        Some(Entry(words.first_chunk().expect("two words")))
    }

    fn entry_of(&self, unit: usize) -> Entry<'_> {
        self.entry(unit).expect("the table has room for the unit")
    }

    /// Returns the first unit of the segment with the byte at `offset`, and its entry.
    #[inline]
    fn first_unit(&self, offset: u64) -> Option<(usize, Entry<'_>)> {
        let unit = offset >> self.unit_shift;
        let size_shift = self.entry(unit as usize)?.word() >> USE_BITS & ((1 << SIZE_BITS) - 1);
        let first = (unit >> size_shift << size_shift) as usize;
        Some((first, self.entry(first)?))
    }

    /// Prefetches the entries that lead from a record at `offset` to the counts of its segment,
    /// assuming that the segment has the largest size, as most have.
    #[inline]
    pub(crate) fn prefetch_counts(&self, offset: u64) {
        let entries = self.words.all().as_ptr().cast::<[AtomicU64; 2]>();
        for first in [offset, offset & !(LOG_SEGMENT_BYTES_MAX - 1)] {
            prefetch(entries.wrapping_add((first >> self.unit_shift) as usize).cast());
        }
    }

    fn make_room(&mut self, unit_count: usize) {
        if let Words::Private(words) = &mut self.words
            && words.len() < 2 * unit_count
        {
            words.resize_with(2 * unit_count, AtomicU64::default);
        }
    }

    /// Adds a segment of the log or of compacted records.
    pub(crate) fn begin(&mut self, segment: Range<u64>, segment_use: SegmentUse, sequence: u64) {
        let bytes = segment.end - segment.start;
        assert!(matches!(segment_use, SegmentUse::Log | SegmentUse::Compacted));
        assert!(bytes.is_power_of_two() && segment.start.is_multiple_of(bytes));
        self.version = next_version();
        self.disown(segment.start);
        if bytes < 1 << self.unit_shift {
            let units = self.units_of(&segment);
            self.make_room(units.end);
            self.raise_end(units.end);
            let entry = self.entry_of(units.start);
            entry.set_word(entry.word() & live_mask() | SegmentUse::Small as u64);
            self.begin_part(&segment);
            return;
        }
        let units = self.units_of(&segment);
        self.make_room(units.end);
        self.raise_end(units.end);
        let is_unused = |unit| self.entry_of(unit).segment_use() == SegmentUse::None;
        debug_assert!(units.clone().all(is_unused), "a unit is in one segment");
        let size = u64::from(units.len().trailing_zeros()) << USE_BITS;
        let sequence = (sequence & u64::from(u32::MAX)) << SEQUENCE_SHIFT;
        for unit in units.clone().rev() {
            let first = if unit == units.start { sequence } else { 0 };
            self.entry_of(unit).set_second(0);
            may_be_killed();
            self.entry_of(unit).set_word(first | size | segment_use as u64);
            may_be_killed();
        }
    }

    /// Like [`begin`](Self::begin), for a new segment without records, whose counts this handle
    /// keeps exactly.
    pub(crate) fn begin_own(
        &mut self,
        segment: Range<u64>,
        segment_use: SegmentUse,
        sequence: u64,
    ) {
        let unit = (segment.start >> self.unit_shift) as usize;
        self.begin(segment, segment_use, sequence);
        self.own.resize(self.own.len().max(unit + 1), false);
        self.own[unit] = self.entry_of(unit).segment_use().is_whole();
    }

    fn disown(&mut self, offset: u64) {
        if let Some(is_own) = self.own.get_mut((offset >> self.unit_shift) as usize) {
            *is_own = false;
        }
    }

    /// Returns whether slots hold every record of the segment at `offset`. Also `false` if this
    /// handle has not counted all of its records itself.
    pub(crate) fn is_all_live(&self, offset: u64) -> bool {
        let is_own = self.own.get((offset >> self.unit_shift) as usize) == Some(&true);
        let is_all = |segment: TableSegment| {
            matches!(segment.segment_use, SegmentUse::Log | SegmentUse::Compacted)
                && segment.offset == offset
                && segment.dead_bytes == 0
        };
        is_own && self.segment_at(offset).is_some_and(is_all)
    }

    fn units_of(&self, segment: &Range<u64>) -> Range<usize> {
        let end = segment.end.next_multiple_of(1 << self.unit_shift);
        (segment.start >> self.unit_shift) as usize..(end >> self.unit_shift) as usize
    }

    /// Returns the granules of a unit that are in a range, as a bit mask.
    fn granules_in(&self, range: &Range<u64>, unit: usize) -> u64 {
        let start = (unit as u64) << self.unit_shift;
        let end = start + (1 << self.unit_shift);
        let granule = |at: u64| (at.clamp(start, end) - start) / GRANULE_BYTES;
        (1 << granule(range.end)) - (1 << granule(range.start))
    }

    fn begin_part(&self, range: &Range<u64>) {
        let units = self.units_of(range);
        for unit in units.clone().rev() {
            let (entry, granules) = (self.entry_of(unit), self.granules_in(range, unit));
            debug_assert_eq!(entry.parts() & granules, 0, "a granule is in one segment");
            let first = if unit == units.start { granules & granules.wrapping_neg() } else { 0 };
            entry.set_parts(entry.parts() | granules, entry.firsts() | first);
        }
    }

    /// Adds a segment of one big record.
    pub(crate) fn begin_big(&mut self, segment: Range<u64>) {
        self.version = next_version();
        let end = self.units_of(&segment).end;
        self.make_room(end);
        self.raise_end(end);
        self.begin_part(&segment);
    }

    /// Marks the big record in the segment at `offset` as dead, and returns the range of the
    /// segment; `None` if it is not a big segment.
    pub(crate) fn bury_big(&mut self, offset: u64) -> Option<Range<u64>> {
        let range = self.part_at(offset)?;
        self.version = next_version();
        let unit = (offset >> self.unit_shift) as usize;
        let (entry, first) = (self.entry_of(unit), self.granules_in(&first_of(offset), unit));
        entry.set_parts(entry.parts() & !first, entry.firsts());
        Some(range)
    }

    /// Removes the segment at `offset`, if it is that of a big record, and returns its range.
    pub(crate) fn end_big(&mut self, offset: u64) -> Option<Range<u64>> {
        let range = self.part_at(offset)?;
        self.version = next_version();
        for unit in self.units_of(&range) {
            let (entry, granules) = (self.entry_of(unit), self.granules_in(&range, unit));
            entry.set_parts(entry.parts() & !granules, entry.firsts() & !granules);
        }
        Some(range)
    }

    /// Returns the part that begins at `offset`, if there is one.
    fn part_at(&self, offset: u64) -> Option<Range<u64>> {
        let unit = (offset >> self.unit_shift) as usize;
        let first = self.granules_in(&first_of(offset), unit);
        let is_first = self.entry(unit)?.firsts() & first != 0;
        (is_first && offset.is_multiple_of(GRANULE_BYTES)).then(|| offset..self.end_of_part(offset))
    }

    /// Returns the end of the part that begins at `offset`.
    fn end_of_part(&self, offset: u64) -> u64 {
        let mut end = offset + GRANULE_BYTES;
        loop {
            let unit = (end >> self.unit_shift) as usize;
            let Some(entry) = self.entry(unit) else { return end };
            let at = self.granules_in(&first_of(end), unit);
            // The granules from `end` on that do not belong to the part.
            let others = (!entry.parts() | entry.firsts()) & !(at - 1);
            let count = others.trailing_zeros().min(self.granule_count()) - at.trailing_zeros();
            end += u64::from(count) * GRANULE_BYTES;
            if !end.is_multiple_of(1 << self.unit_shift) || count == 0 {
                return end;
            }
        }
    }

    /// Returns the number of granules of a unit.
    fn granule_count(&self) -> u32 {
        1 << (self.unit_shift - GRANULE_BYTES.trailing_zeros())
    }

    /// Adds a segment that a walk along the log has found, unless the table has it; returns whether it
    /// is new.
    ///
    /// # Errors
    ///
    /// The offset of a segment that has a part of it.
    pub(crate) fn adopt(
        &mut self,
        segment: Range<u64>,
        segment_use: Option<SegmentUse>,
        sequence: u64,
    ) -> Result<bool, u64> {
        let units = self.units_of(&segment);
        self.make_room(units.end);
        if !self.has_room(segment.end) {
            return Err(segment.start);
        }
        let is_known = match (segment_use, self.segment_at(segment.start)) {
            (Some(_), Some(known)) => known.range() == segment,
            _ => self.part_at(segment.start).is_some_and(|part| part == segment),
        };
        if is_known {
            return Ok(false);
        }
        for unit in units.clone() {
            let entry = self.entry_of(unit);
            let is_free = !entry.segment_use().is_whole()
                && (entry.parts() | entry.firsts()) & self.granules_in(&segment, unit) == 0;
            if !is_free {
                return Err((unit as u64) << self.unit_shift);
            }
        }
        match segment_use {
            Some(segment_use) => self.begin(segment, segment_use, sequence),
            None => self.begin_big(segment),
        }
        Ok(true)
    }

    /// Removes all emptied segments and dead big records, after a recovery: neither a slot nor a
    /// replayed record leads to them.
    pub(crate) fn end_all_emptied(&mut self) {
        for segment in self.emptied() {
            match segment {
                (segment, true) => drop(self.end_big(segment.start)),
                (segment, false) => self.end(segment.start),
            }
        }
    }

    /// Returns the emptied segments (with `false`) and those of dead big records (with `true`).
    pub(crate) fn emptied(&self) -> Vec<(Range<u64>, bool)> {
        let whole = self.segments().filter(|found| found.segment_use == SegmentUse::Emptied);
        let dead = self.parts().filter(|&(_, is_dead)| is_dead);
        let whole = whole.map(|segment| (segment.range(), false));
        whole.chain(dead.map(|(part, _)| (part, true))).collect()
    }

    /// Removes the segments of compacted records that are younger than `sequence`: a process was
    /// killed before the log named a record in them.
    pub(crate) fn end_compacted_after(&mut self, sequence: u64) {
        let is_younger = |found: &TableSegment| {
            let age = (sequence as u32).wrapping_sub(found.sequence);
            found.segment_use == SegmentUse::Compacted && age > u32::MAX / 2
        };
        let younger: Vec<TableSegment> = self.segments().filter(is_younger).collect();
        for segment in younger {
            self.set_use(segment.offset, SegmentUse::Emptied);
            self.end(segment.offset);
        }
    }

    /// Adds to the counts of the segment that contains `offset`.
    pub(crate) fn add_counts(&mut self, offset: u64, live_bytes: i64, dead_bytes: u64) {
        let change = live_bytes.unsigned_abs();
        if live_bytes >= 0 {
            self.add_live(offset, change);
        } else if let Some((_, entry)) = self.first_unit(offset) {
            let word = entry.word();
            entry.set_word(word - ((change / 8) << LIVE_SHIFT).min(word & live_mask()));
        }
        self.add_dead(offset, dead_bytes);
    }

    /// Counts a record of `bytes` at `offset` as live. Records of big segments are not counted.
    #[inline]
    pub(crate) fn add_live(&mut self, offset: u64, bytes: u64) {
        debug_assert!(bytes.is_multiple_of(8));
        let Some((_, entry)) = self.first_unit(offset) else { return };
        let word = entry.word();
        if SegmentUse::of_word(word) != SegmentUse::None {
            let room = live_mask() - (word & live_mask());
            entry.set_word(word + ((bytes / 8) << LIVE_SHIFT).min(room));
        }
    }

    /// Counts a record as dead that was counted as live before.
    #[inline]
    pub(crate) fn remove_live(&mut self, offset: u64, bytes: u64) {
        let Some((_, entry)) = self.first_unit(offset) else { return };
        let word = entry.word();
        entry.set_word(word - ((bytes / 8) << LIVE_SHIFT).min(word & live_mask()));
        add_dead_to(entry, bytes);
    }

    /// Counts a record of `bytes` at `offset` that no slot has ever held.
    #[inline]
    pub(crate) fn add_dead(&mut self, offset: u64, bytes: u64) {
        if let Some((_, entry)) = self.first_unit(offset) {
            add_dead_to(entry, bytes);
        }
    }

    /// Changes the use of the segment at `offset`.
    pub(crate) fn set_use(&mut self, offset: u64, segment_use: SegmentUse) {
        let segment = self.segment_at(offset).expect("the table has the segment");
        assert!(segment.offset == offset && segment_use.is_whole());
        self.version = next_version();
        let entry = self.entry_of((offset >> self.unit_shift) as usize);
        may_be_killed();
        entry.set_word(entry.word() >> USE_BITS << USE_BITS | segment_use as u64);
        may_be_killed();
    }

    /// Removes the segment at `offset`.
    pub(crate) fn end(&mut self, offset: u64) {
        let segment = self.segment_at(offset).expect("the table has the segment");
        assert_eq!(segment.segment_use, SegmentUse::Emptied, "a segment is emptied before it ends");
        self.version = next_version();
        self.disown(offset);
        for unit in self.units_of(&segment.range()) {
            may_be_killed();
            let entry = self.entry_of(unit);
            entry.set_word(0);
            // Clear the second word too: a table shrinks only by empty entries.
            entry.set_second(0);
        }
        may_be_killed();
    }

    /// Returns the segment that contains `offset`; `None` for a segment of a big record or a
    /// segment smaller than a unit.
    pub(crate) fn segment_at(&self, offset: u64) -> Option<TableSegment> {
        let (unit, entry) = self.first_unit(offset)?;
        let word = entry.word();
        let segment_use = SegmentUse::of_word(word);
        segment_use.is_whole().then(|| TableSegment {
            offset: (unit as u64) << self.unit_shift,
            bytes: (1 << (word >> USE_BITS & ((1 << SIZE_BITS) - 1))) << self.unit_shift,
            segment_use,
            live_bytes: (word & live_mask()) >> LIVE_SHIFT << 3,
            dead_bytes: entry.second() & u64::from(u32::MAX),
            sequence: (word >> SEQUENCE_SHIFT) as u32,
        })
    }

    /// Returns the segments in file order, except those of big records and those smaller than a
    /// unit. The iteration ends whatever the entries contain, because another process may change
    /// them meanwhile.
    pub(crate) fn segments(&self) -> impl Iterator<Item = TableSegment> + '_ {
        let end = (self.used_units as u64) << self.unit_shift;
        let mut at = 0;
        std::iter::from_fn(move || {
            while at < end {
                let (found, next) = (self.segment_at(at), at + (1 << self.unit_shift));
                at = found.map_or(next, |segment| segment.range().end.max(next));
                if found.is_some() {
                    return found;
                }
            }
            None
        })
    }

    /// Returns the segments of big records and the log segments smaller than a unit, in file order,
    /// each with whether its record is dead.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (Range<u64>, bool)> + '_ {
        (0..self.used_units).flat_map(move |unit| {
            let (firsts, parts) = (self.entry_of(unit).firsts(), self.entry_of(unit).parts());
            let start = (unit as u64) << self.unit_shift;
            bits_of(firsts).map(move |granule| {
                let offset = start + granule * GRANULE_BYTES;
                (offset..self.end_of_part(offset), parts >> granule & 1 == 0)
            })
        })
    }

    /// Returns how many bytes the segments in use take. `is_big` returns whether a segment in a
    /// unit of small log segments belongs to a big record.
    pub(crate) fn totals(&self, is_big: impl Fn(u64) -> bool) -> SegmentTotals {
        let mut totals = SegmentTotals::default();
        for segment in self.segments().filter(|found| found.segment_use != SegmentUse::Emptied) {
            totals.log_bytes += segment.bytes;
        }
        // A dead big record of a compacted store counts as waiting, like an emptied segment.
        for (part, _) in self.parts().filter(|&(_, is_dead)| !is_dead) {
            let entry = self.entry_of((part.start >> self.unit_shift) as usize);
            let is_small = entry.segment_use() == SegmentUse::Small && !is_big(part.start);
            let bytes = if is_small { &mut totals.log_bytes } else { &mut totals.big_bytes };
            *bytes += part.end - part.start;
        }
        totals
    }

    /// Returns the granules of all segments.
    pub(crate) fn used(&self) -> impl Iterator<Item = Extent> + '_ {
        let parts = self.parts().map(|(part, _)| part);
        self.segments().map(|segment| segment.range()).chain(parts).map(|range| {
            let (granule, end) = (range.start / GRANULE_BYTES, range.end / GRANULE_BYTES);
            Extent { granule, count: end - granule }
        })
    }

    /// Returns the number of units that the table has entries for.
    pub(crate) fn unit_count(&self) -> u64 {
        self.words.all().len() as u64 / 2
    }

    /// Returns the segment of a unit, as [`segment_at`](Self::segment_at).
    pub(crate) fn segment_of_unit(&self, unit: u64) -> Option<TableSegment> {
        self.segment_at(unit << self.unit_shift)
    }

    /// Removes entries that a killed process had begun to add or remove, and all inconsistent ones:
    /// nothing has verified the entries so far. `file_bytes` is the size of the file.
    pub(crate) fn mend(&mut self, file_bytes: u64) {
        self.version = next_version();
        let mut in_segment = 0..0;
        let mut in_part = false;
        for unit in 0..self.used_units {
            let entry = self.entry_of(unit);
            if !in_segment.contains(&unit) {
                let segment = self.segment_at((unit as u64) << self.unit_shift);
                let size = |entry: Entry<'_>| entry.word() >> USE_BITS & ((1 << SIZE_BITS) - 1);
                let whole = segment.filter(|segment| {
                    let units = self.units_of(&segment.range());
                    let agrees = |unit| {
                        let other = self.entry(unit);
                        other.is_some_and(|other| {
                            other.segment_use().is_whole() && size(other) == size(entry)
                        })
                    };
                    let is_inside =
                        segment.offset >= HEADER_BYTES && segment.range().end <= file_bytes;
                    is_inside && units.start == unit && units.clone().all(agrees)
                });
                if let Some(segment) = whole {
                    in_segment = self.units_of(&segment.range());
                } else if entry.segment_use() != SegmentUse::Small && entry.word() != 0 {
                    entry.set_word(0);
                }
            }
            let (parts, firsts) = (entry.parts(), entry.firsts());
            if parts | firsts == 0 && entry.segment_use() != SegmentUse::Small {
                in_part = false;
                continue;
            }
            let (mut kept, mut kept_firsts) = (0, 0);
            for granule in 0..self.granule_count() {
                let at = ((unit as u64) << self.unit_shift) + u64::from(granule) * GRANULE_BYTES;
                let is_inside = at >= HEADER_BYTES
                    && at + GRANULE_BYTES <= file_bytes
                    && !in_segment.contains(&unit);
                let is_first = firsts >> granule & 1 != 0;
                let is_part = parts >> granule & 1 != 0;
                in_part = is_inside && (is_first || in_part && is_part);
                kept |= u64::from(in_part && is_part) << granule;
                kept_firsts |= u64::from(in_part && is_first) << granule;
            }
            if (parts, firsts) != (kept, kept_firsts) {
                entry.set_parts(kept, kept_firsts);
            }
            if entry.segment_use() == SegmentUse::Small {
                // Small segments lie within one unit, whatever a damaged entry says.
                let word = entry.word() & (live_mask() | ((1 << USE_BITS) - 1));
                let mended = if kept_firsts == 0 { 0 } else { word };
                if mended != entry.word() {
                    entry.set_word(mended);
                }
            }
        }
    }
}

/// Returns the numbers of the bits that are set, from the lowest up.
fn bits_of(mut word: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| u64::from(word.trailing_zeros()))?;
        word &= word - 1;
        Some(bit)
    })
}

/// Returns the granule that begins at `offset`.
fn first_of(offset: u64) -> Range<u64> {
    offset..offset + GRANULE_BYTES
}

#[inline]
fn add_dead_to(entry: Entry<'_>, bytes: u64) {
    let second = entry.second();
    let room = u64::from(u32::MAX) - (second & u64::from(u32::MAX));
    entry.set_second(second + bytes.min(room));
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
        let parts = [16_384..20_480, 24_576..32_768, 2 * UNIT..2 * UNIT + 20_480];
        assert!(table.parts().map(|part| part.0).eq(parts));
        assert!(table.segments().all(|segment| segment.live_bytes == 0));
    }

    #[test]
    fn a_walk_over_entries_that_make_no_sense_ends() {
        let word = |size: u64| size << USE_BITS | SegmentUse::Log as u64;
        let parts = 0xffff << PARTS_SHIFT | 1 << FIRSTS_SHIFT;
        // The last unit leads to the first one, which ends before it.
        let words = [word(0), parts, 0, parts, 0, parts, word(2), parts];
        let table = SegmentTable::of_words(UNIT, words.to_vec());
        assert_eq!(table.segments().take(9).count(), 2);
        assert_eq!(table.parts().count(), 4);
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
        assert_eq!(table.parts().count(), 3);
        assert_eq!(table.end_big(2 * UNIT), Some(2 * UNIT..2 * UNIT + 20_480));
        assert_eq!(table.end_big(2 * UNIT), None);
        assert_eq!(table.parts().count(), 2);
    }

    #[test]
    fn parts_end_where_the_next_begins_and_run_over_units() {
        let mut table = SegmentTable::new(UNIT);
        let parts =
            [4096..8192, 8192..3 * UNIT + 4096, 3 * UNIT + 8192..4 * UNIT, 4 * UNIT..5 * UNIT];
        for part in parts.iter().rev() {
            table.begin_big(part.clone());
        }
        assert!(table.parts().eq(parts.clone().map(|part| (part, false))));
        assert_eq!(table.end_big(8192), Some(parts[1].clone()));
        assert!(table.parts().map(|part| part.0).eq([0, 2, 3].map(|i: usize| parts[i].clone())));
        assert_eq!(table.bury_big(4 * UNIT), Some(parts[3].clone()));
        assert!(table.emptied().into_iter().eq([(parts[3].clone(), true)]));
        assert_eq!(table.end_big(4 * UNIT), Some(parts[3].clone()));
        assert_eq!(table.end_big(3 * UNIT + 8192), Some(parts[2].clone()));
        assert!(table.parts().eq([(parts[0].clone(), false)]));
    }

    #[test]
    fn a_table_survives_its_words() {
        let mut before = table();
        before.add_live(4 * UNIT + 64, 24);
        let mut after = SegmentTable::of_words(UNIT, before.to_words());
        after.mend(8 * UNIT);
        assert!(after.segments().eq(before.segments()) && after.parts().eq(before.parts()));
        assert_eq!(after.crc(), before.crc());
    }

    /// A table in the file has room for at least twice its entries.
    #[test]
    fn room_behind_the_last_entry_is_no_part_of_the_words() {
        for used in [0, 1, 2, 3, SCANNED_WORDS - 1, SCANNED_WORDS, SCANNED_WORDS + 1, 1000] {
            let entries: Vec<u64> = (1..=used as u64).collect();
            let of_room = |word_count| {
                let mut words = entries.clone();
                words.resize(word_count, 0);
                SegmentTable::of_words(UNIT, words)
            };
            let least = used.next_multiple_of(2);
            let narrow = of_room(least);
            for room in [2, SCANNED_WORDS - 2, SCANNED_WORDS, 5 * SCANNED_WORDS + 2] {
                let wide = of_room(least + room);
                assert_eq!(wide.to_words(), narrow.to_words(), "{used} words and {room}");
                assert_eq!((wide.to_words().len(), wide.crc()), (least, narrow.crc()));
            }
        }
    }

    #[test]
    fn the_end_is_kept_by_whatever_adds_an_entry() {
        type Change = fn(&mut SegmentTable);
        let changes: [Change; 4] = [
            |table| table.begin(4 * UNIT..8 * UNIT, SegmentUse::Log, 1),
            |table| table.begin(4 * UNIT..4 * UNIT + 8192, SegmentUse::Log, 1),
            |table| table.begin_big(3 * UNIT..5 * UNIT + 4096),
            |table| {
                assert_eq!(table.adopt(8 * UNIT..16 * UNIT, Some(SegmentUse::Log), 1), Ok(true));
            },
        ];
        for (at, change) in changes.into_iter().enumerate() {
            let mut table = SegmentTable::of_words(UNIT, vec![0; 64]);
            change(&mut table);
            let again = SegmentTable::of_words(UNIT, table.to_words());
            assert_eq!(table.used_units, again.used_units, "change {at}");
            assert_eq!(table.crc(), again.crc(), "change {at}");
            assert!(table.used().eq(again.used()), "change {at}");
        }
    }

    #[test]
    fn a_count_behind_the_end_is_in_a_copy_and_in_the_checksum_of_a_close() {
        let mut table = SegmentTable::of_words(UNIT, vec![0; 64]);
        table.begin(2 * UNIT..3 * UNIT, SegmentUse::Log, 1);
        let end = table.used_units;
        table.remove_live(9 * UNIT + 64, 24);
        assert_eq!((table.used_units, table.to_words().len()), (end, 2 * 10), "a copy has all");
        table.find_end();
        assert_eq!(table.crc(), SegmentTable::of_words(UNIT, table.to_words()).crc());
    }

    /// Each place between two stores of an addition or a removal.
    #[test]
    #[cfg(not(loom))]
    fn a_killed_process_leaves_a_segment_or_none() {
        use crate::atomic::kill_points::is_killed;

        type Change = fn(&mut SegmentTable);
        let changes: [Change; 4] = [
            |table| table.begin(8 * UNIT..16 * UNIT, SegmentUse::Log, 77),
            |table| table.begin_big(2 * UNIT + 24_576..3 * UNIT + 8192),
            |table| {
                table.end_big(2 * UNIT);
            },
            |table| {
                table.set_use(4 * UNIT, SegmentUse::Emptied);
                table.end(4 * UNIT);
            },
        ];
        for change in changes {
            let mut after = table();
            change(&mut after);
            let counts =
                [table(), after].map(|table| table.segments().count() + table.parts().count());
            let mut killed_count = 0;
            for at in 0.. {
                let mut killed = table();
                let is_killed = is_killed(at, || change(&mut killed));
                let mut killed = SegmentTable::of_words(UNIT, killed.to_words());
                killed.mend(16 * UNIT);
                let count = killed.segments().count() + killed.parts().count();
                assert!(counts.contains(&count), "place {at}: {count} of {counts:?}");
                if !is_killed {
                    break;
                }
                killed_count += 1;
            }
            assert!(killed_count >= 2);
        }
    }

    /// Whatever the words say, what is left can be walked, is inside the file and has one use.
    #[test]
    fn entries_that_make_no_sense_are_removed() {
        let mut state = 7_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state ^ state >> 29
        };
        for _ in 0..500 {
            let words =
                (0..64).map(|_| if next() % 3 == 0 { next() & next() } else { 0 }).collect();
            let mut table = SegmentTable::of_words(UNIT, words);
            table.mend(30 * UNIT + 4096);
            let whole = table.segments().map(|segment| segment.range());
            let mut ranges: Vec<_> = whole.chain(table.parts().map(|part| part.0)).collect();
            ranges.sort_by_key(|range| range.start);
            assert!(ranges.iter().all(|range| range.start < range.end));
            assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "{ranges:?}");
            assert!(ranges.first().is_none_or(|first| first.start >= HEADER_BYTES));
            assert!(ranges.last().is_none_or(|last| last.end <= 30 * UNIT + 4096));
        }
    }
}
