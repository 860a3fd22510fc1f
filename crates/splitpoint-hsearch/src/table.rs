//! The table: entries that never move, and an index of them that grows by linear hashing.
//!
//! ```text
//! hash --> line of 64 bytes: 7 slots, link to an overflow line
//!             slot: 32 bits of hash, 32 bits of entry --> ENTRY { key, data } --> key
//! ```
//!
//! A slot has as many bits of the hash as decide on its bucket, so a split moves slots and looks at no
//! key. A split moves those of one bucket: no ENTER waits for the whole table, however large.
//!
//! # Source
//!
//! Linear hashing: Litwin 1980. A line of slots with a part of the hash: the index of the store.

use std::ffi::{CStr, c_char, c_void};

use rapidhash::v3::{RapidSecrets, rapidhash_v3_inline};
use splitpoint::linear::Geometry;

use crate::stable::Stable;

/// A key with its data, as `<search.h>` defines it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// A string. Its address is kept, its bytes are not copied.
    pub key: *mut c_char,
    /// Whatever the program likes.
    pub data: *mut c_void,
}

/// Slots of a line.
const SLOT_COUNT: usize = 7;
/// Entries of a bucket, on average, above which one is split; in 64ths.
const FILL: u64 = 300;
/// Entries at most: a slot has 32 bits for one, and 0 is an empty slot.
const ENTRY_COUNT_MAX: u64 = u32::MAX as u64;
/// Lines or entries of the first chunk of a table that expects none.
const FIRST_COUNT: u64 = 16;

/// What leads to one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    /// The lower half of the hash.
    tag: u32,
    /// The number of the entry, plus 1; 0 if the slot is empty.
    entry: u32,
}

/// One line: a bucket, or what overflows it. The slots in use come first.
#[repr(C, align(64))]
#[derive(Debug)]
struct Line {
    /// The tags of the slots, together, so that a lookup compares them all at once. Behind them the number
    /// of the overflow line, plus 1.
    tags: [u32; SLOT_COUNT + 1],
    /// The entries of the slots, and a place without use.
    entries: [u32; SLOT_COUNT + 1],
}

const _: () = assert!(size_of::<Line>() == 64);

impl Line {
    const EMPTY: Self = Self { tags: [0; SLOT_COUNT + 1], entries: [0; SLOT_COUNT + 1] };

    /// Returns a bit for each slot with this tag, empty ones among them.
    ///
    /// There is no branch for each: which slot it is nobody can predict, and a processor that guessed wrong
    /// would wait for the line before it begins with the lookup that follows.
    #[inline]
    fn slots_with(&self, tag: u32) -> u32 {
        same_words(&self.tags, tag) & ((1 << SLOT_COUNT) - 1)
    }

    /// Returns the slots in use.
    fn slots(&self) -> impl Iterator<Item = Slot> {
        let slots = std::iter::zip(self.tags, self.entries).take(SLOT_COUNT);
        slots.map(|(tag, entry)| Slot { tag, entry }).take_while(|slot| slot.entry != 0)
    }

    /// Puts a slot into the first free place, and returns whether there was one.
    fn push(&mut self, slot: Slot) -> bool {
        let free = self.entries[..SLOT_COUNT].iter().position(|&entry| entry == 0);
        if let Some(free) = free {
            (self.tags[free], self.entries[free]) = (slot.tag, slot.entry);
        }
        free.is_some()
    }

    /// Returns the number of the overflow line.
    #[inline]
    fn overflow(&self) -> Option<u64> {
        self.tags[SLOT_COUNT].checked_sub(1).map(u64::from)
    }

    fn set_overflow(&mut self, line: Option<u64>) {
        // There are fewer lines than entries.
        self.tags[SLOT_COUNT] = line.map_or(0, |line| line as u32 + 1);
    }
}

/// Returns a bit for each word that is this one.
#[cfg(target_arch = "x86_64")]
#[inline]
fn same_words(words: &[u32; 8], word: u32) -> u32 {
    // SAFETY: every processor of this kind has SSE2.
    unsafe { same_words_sse2(words, word) }
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse2")]
fn same_words_sse2(words: &[u32; 8], word: u32) -> u32 {
    use std::arch::x86_64 as sse2;

    #[expect(clippy::cast_ptr_alignment, reason = "the loads ask for none")]
    let halves = words.as_ptr().cast::<sse2::__m128i>();
    let word = sse2::_mm_set1_epi32(word.cast_signed());
    let same = |half: usize| {
        // SAFETY: there are two halves.
        let half = unsafe { sse2::_mm_loadu_si128(halves.wrapping_add(half)) };
        let same = sse2::_mm_castsi128_ps(sse2::_mm_cmpeq_epi32(half, word));
        sse2::_mm_movemask_ps(same).cast_unsigned()
    };
    same(0) | same(1) << 4
}

/// Returns a bit for each word that is this one.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn same_words(words: &[u32; 8], word: u32) -> u32 {
    same_words_one_by_one(words, word)
}

/// Does the same for any processor.
#[cfg(any(test, not(target_arch = "x86_64")))]
#[inline]
fn same_words_one_by_one(words: &[u32; 8], word: u32) -> u32 {
    (0..).zip(words).fold(0, |same, (i, &other)| same | u32::from(other == word) << i)
}

/// A table of hsearch.
#[derive(Debug)]
pub(crate) struct Table {
    secrets: RapidSecrets,
    geometry: Geometry,
    buckets: Stable<Line>,
    overflow: Stable<Line>,
    /// Overflow lines that have been used.
    overflow_count: u64,
    /// The first line of a chain of free overflow lines.
    overflow_free: Option<u64>,
    entries: Stable<Entry>,
    count: u64,
}

impl Table {
    /// Creates a table that expects `count` entries; `None` if there is no memory for so many.
    pub(crate) fn new(count: usize) -> Option<Self> {
        let expected = u64::try_from(count).ok().filter(|&count| count <= ENTRY_COUNT_MAX)?;
        let bucket_count = (expected * 64).div_ceil(FILL).max(1);
        let mut seed = [0; 8];
        // Without random numbers the table is as good, unless somebody chooses keys to collide.
        let _ = getrandom::fill(&mut seed);
        Some(Self {
            secrets: RapidSecrets::seed(u64::from_le_bytes(seed)),
            geometry: Geometry::with_bucket_count(bucket_count),
            buckets: Stable::new(bucket_count.max(FIRST_COUNT))?,
            overflow: Stable::new((bucket_count / 8).max(FIRST_COUNT))?,
            overflow_count: 0,
            overflow_free: None,
            entries: Stable::new(expected.max(FIRST_COUNT))?,
            count: 0,
        })
    }

    /// Returns the number of entries.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the entry with this key.
    #[inline(always)]
    pub(crate) fn find(&self, key: &CStr) -> Option<*mut Entry> {
        self.find_hashed(key, self.hash(key))
    }

    /// Returns the entry with the key of `entry`; enters `entry` if there is none. `None` if there is
    /// no memory, and then the table is as it was.
    ///
    /// # Safety
    ///
    /// The key stays a string, with these bytes, as long as the table lives.
    pub(crate) unsafe fn enter(&mut self, key: &CStr, entry: Entry) -> Option<*mut Entry> {
        // SAFETY: the caller promised it.
        unsafe { self.enter_hashed(key, self.hash(key), entry) }
    }

    /// Does the same for a key with this hash.
    ///
    /// # Safety
    ///
    /// As [`enter`](Self::enter).
    unsafe fn enter_hashed(&mut self, key: &CStr, hash: u64, entry: Entry) -> Option<*mut Entry> {
        if let Some(found) = self.find_hashed(key, hash) {
            return Some(found);
        }
        if self.count == ENTRY_COUNT_MAX {
            return None;
        }
        // Everything that can fail comes before the first change.
        self.entries.reserve(self.count)?;
        self.make_room_for_overflow()?;
        let place = self.entries.at(self.count);
        // SAFETY: the place is inside the memory of this table, which alone uses it yet.
        unsafe { place.write(entry) };
        let slot = Slot { tag: hash as u32, entry: (self.count + 1) as u32 };
        self.insert(self.geometry.bucket_of(hash).0, slot);
        self.count += 1;
        self.split_if_due();
        Some(place)
    }

    #[inline(always)]
    fn hash(&self, key: &CStr) -> u64 {
        rapidhash_v3_inline::<true, false, false>(key.to_bytes(), &self.secrets)
    }

    #[inline(always)]
    fn find_hashed(&self, key: &CStr, hash: u64) -> Option<*mut Entry> {
        let line = self.buckets.at(self.geometry.bucket_of(hash).0);
        // SAFETY: a line of this table, which nobody changes during a lookup.
        let found = unsafe { &*line };
        // One slot has the tag, as a rule, and the key. A lookup is made of so little that a processor
        // begins the next one while it waits for the lines of this one.
        let same = found.slots_with(hash as u32);
        if same.is_power_of_two()
            && let Some(entry) = self.entry_in(found, same)
            && self.has_key(entry, key)
        {
            return Some(entry);
        }
        self.find_in_chain(line, key, hash as u32)
    }

    /// Returns the entry with this key and tag in a line, or in those that overflow it.
    #[inline(never)]
    fn find_in_chain(&self, mut line: *mut Line, key: &CStr, tag: u32) -> Option<*mut Entry> {
        loop {
            // SAFETY: a line of this table, which nobody changes during a lookup.
            let found = unsafe { &*line };
            let mut same = found.slots_with(tag);
            while same != 0 {
                if let Some(entry) = self.entry_in(found, same)
                    && self.has_key(entry, key)
                {
                    return Some(entry);
                }
                same &= same - 1;
            }
            line = self.overflow.at(found.overflow()?);
        }
    }

    /// Returns the entry of the first of these slots of a line. An empty slot has none, and a tag that a
    /// hash may have too.
    #[inline]
    fn entry_in(&self, line: &Line, slots: u32) -> Option<*mut Entry> {
        let slot = slots.trailing_zeros() as usize % (SLOT_COUNT + 1);
        let index = line.entries[slot].checked_sub(1)?;
        Some(self.entries.at(index.into()))
    }

    #[inline]
    fn has_key(&self, entry: *mut Entry, key: &CStr) -> bool {
        debug_assert!(self.count > 0);
        // SAFETY: a slot leads to an entry that was written.
        let found = unsafe { (*entry).key };
        // SAFETY: whoever entered it promised that it stays a string.
        unsafe { libc::strcmp(found, key.as_ptr()) == 0 }
    }

    /// Puts a slot into the first free place of a bucket.
    fn insert(&mut self, bucket: u64, slot: Slot) {
        let mut line = self.buckets.at(bucket);
        loop {
            // SAFETY: a line of this table, to which there is no other reference.
            let found = unsafe { &mut *line };
            if found.push(slot) {
                return;
            }
            let overflow = found.overflow().unwrap_or_else(|| {
                let new = self.take_overflow();
                found.set_overflow(Some(new));
                new
            });
            line = self.overflow.at(overflow);
        }
    }

    /// Makes sure that an insert finds an overflow line. A split needs no more than it gives back.
    fn make_room_for_overflow(&mut self) -> Option<()> {
        self.overflow.reserve(self.overflow_count)
    }

    /// Returns an empty overflow line: a free one, or the next.
    fn take_overflow(&mut self) -> u64 {
        let Some(line) = self.overflow_free else {
            self.overflow_count += 1;
            return self.overflow_count - 1;
        };
        // SAFETY: a line of this table, to which there is no other reference.
        let free = unsafe { &mut *self.overflow.at(line) };
        self.overflow_free = free.overflow();
        free.set_overflow(None);
        line
    }

    /// Splits a bucket if there are more entries in each than there should be, on average. If there is
    /// no memory for another bucket, the chains grow instead.
    fn split_if_due(&mut self) {
        if self.count * 64 <= self.geometry.bucket_count() * FILL {
            return;
        }
        let Some(plan) = self.geometry.plan_split() else { return };
        if self.buckets.reserve(plan.upper.0).is_none() {
            return;
        }
        self.geometry = plan.after;
        self.divide(plan.lower.0);
    }

    /// Inserts every slot of a bucket again, now that some belong to another one.
    ///
    /// A line is empty, and an overflow line is free, before its slots are inserted: of `n` lines of
    /// slots in two buckets at most `n - 1` overflow.
    fn divide(&mut self, bucket: u64) {
        // SAFETY: a line of this table, to which there is no other reference.
        let first = unsafe { &mut *self.buckets.at(bucket) };
        let mut line = std::mem::replace(first, Line::EMPTY);
        loop {
            for slot in line.slots() {
                self.insert(self.geometry.bucket_of(slot.tag.into()).0, slot);
            }
            let Some(next) = line.overflow() else { return };
            // SAFETY: as above.
            let overflow = unsafe { &mut *self.overflow.at(next) };
            line = std::mem::replace(overflow, Line::EMPTY);
            overflow.set_overflow(self.overflow_free);
            self.overflow_free = Some(next);
        }
    }
}

// SAFETY: the pointers lead to memory of the table, and to keys that the program keeps.
unsafe impl Send for Table {}
// SAFETY: a lookup changes nothing.
unsafe impl Sync for Table {}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::ffi::CString;

    use super::*;

    fn entry(key: &CStr, data: usize) -> Entry {
        Entry { key: key.as_ptr().cast_mut(), data: data as *mut c_void }
    }

    fn keys(count: usize) -> Vec<CString> {
        (0..count).map(|i| CString::new(format!("key {i}")).unwrap()).collect()
    }

    /// Enters `count` keys into a table that expects `expected`, and checks every answer and address.
    fn check(expected: usize, count: usize) -> Table {
        let keys = keys(count + 1);
        let mut table = Table::new(expected).unwrap();
        let mut places = HashMap::new();
        for (i, key) in keys[..count].iter().enumerate() {
            assert_eq!(table.find(key), None);
            // SAFETY: the keys outlive what the table is asked for.
            let place = unsafe { table.enter(key, entry(key, i)) }.unwrap();
            places.insert(key, place);
        }
        for (i, key) in keys[..count].iter().enumerate() {
            assert_eq!(table.find(key), Some(places[key]));
            // SAFETY: as above.
            let again = unsafe { table.enter(key, entry(key, 0)) };
            assert_eq!(again, Some(places[key]), "the old entry");
            // SAFETY: the entry was written, and nobody changes it.
            assert_eq!(unsafe { (*places[key]).data } as usize, i, "with the old data");
        }
        assert_eq!(table.find(&keys[count]), None);
        assert_eq!(table.count(), count as u64);
        table
    }

    #[test]
    fn every_entry_is_found_where_it_was_entered_however_many_were_expected() {
        for expected in [0, 1, 10, 5000, 100_000] {
            check(expected, 20_000);
        }
    }

    /// Words that are equal in no place, in each, and in every set of places; 0 among them.
    #[test]
    fn words_are_compared_alike_on_every_processor() {
        for (word, other) in [(7, 9), (0, 1), (1, 0), (u32::MAX, u32::MAX >> 1), (1 << 31, 0)] {
            for places in 0..1 << (SLOT_COUNT + 1) {
                let in_place = |i| if places >> i & 1 == 1 { word } else { other };
                let words: [u32; SLOT_COUNT + 1] = std::array::from_fn(in_place);
                assert_eq!(same_words(&words, word), places, "{words:?}");
                assert_eq!(same_words_one_by_one(&words, word), places, "{words:?}");
            }
        }
    }

    #[test]
    fn keys_with_one_hash_are_told_apart_and_from_empty_slots() {
        // The tag of an empty slot, and another.
        for hash in [0, 7] {
            let keys = keys(30);
            let mut table = Table::new(0).unwrap();
            let mut places = Vec::new();
            for (i, key) in keys.iter().enumerate() {
                assert_eq!(table.find_hashed(key, hash), None);
                // SAFETY: the keys outlive the table.
                places.push(unsafe { table.enter_hashed(key, hash, entry(key, i)) });
                for (key, &place) in keys.iter().zip(&places) {
                    assert_eq!(table.find_hashed(key, hash), place);
                }
            }
        }
    }

    /// Lines without an empty slot have the tag of one nowhere, and lines with one have it without an entry.
    #[test]
    fn a_tag_of_zero_is_not_found_among_others() {
        let keys = keys(3 * SLOT_COUNT + 1);
        let (absent, keys) = keys.split_last().unwrap();
        let mut table = Table::new(0).unwrap();
        for (i, key) in keys.iter().enumerate() {
            // One bucket, until it is split.
            let tag = (i as u64 + 1) << 16;
            // SAFETY: the keys outlive the table.
            let place = unsafe { table.enter_hashed(key, tag, entry(key, i)) };
            assert_eq!(table.find_hashed(absent, 0), None, "{i}");
            assert_eq!(table.find_hashed(key, tag), place);
        }
        // SAFETY: as above.
        let place = unsafe { table.enter_hashed(absent, 0, entry(absent, 0)) };
        assert_eq!(table.find_hashed(absent, 0), place);
    }

    #[test]
    fn a_table_that_grew_takes_at_most_16_bytes_for_an_entry() {
        for expected in [0, 50_000] {
            let table = check(expected, 50_000);
            let lines = table.geometry.bucket_count() + table.overflow_count;
            assert!(lines * 64 <= 16 * table.count(), "{lines} lines");
        }
    }

    #[test]
    fn splits_use_the_overflow_lines_that_they_give_back() {
        let mut table = Table::new(0).unwrap();
        let key = c"key";
        // Slots that differ in the bits that the next splits look at: all in one chain before them.
        for tag in 0..200 {
            table.make_room_for_overflow().unwrap();
            table.insert(0, Slot { tag, entry: tag + 1 });
        }
        let used = table.overflow_count;
        assert_eq!(used, 200_u64.div_ceil(7) - 1);
        for bucket in 1..64 {
            table.geometry = Geometry::with_bucket_count(bucket + 1);
            table.buckets.reserve(bucket).unwrap();
            let lower = Geometry::with_bucket_count(bucket).split();
            table.divide(lower);
        }
        assert_eq!(table.overflow_count, used, "no further line");
        let mut found = Vec::new();
        for bucket in 0..64 {
            let mut line = table.buckets.at(bucket);
            loop {
                // SAFETY: a line of this table.
                let this = unsafe { &*line };
                for slot in this.slots() {
                    assert_eq!(u64::from(slot.tag) % 64, bucket);
                    found.push(slot.entry);
                }
                let Some(next) = this.overflow() else { break };
                line = table.overflow.at(next);
            }
        }
        found.sort_unstable();
        assert_eq!(found, (1..=200).collect::<Vec<_>>());
        assert_eq!(table.find(key), None, "none of these hashes is that of the key");
    }

    #[test]
    fn a_table_for_more_than_there_can_be_is_refused() {
        assert!(Table::new(usize::MAX).is_none());
    }
}
