//! The table: entries that never move, and an index of them that grows by linear hashing.
//!
//! ```text
//! hash --> line of 64 bytes: 7 slots, link to an overflow line
//!             slot: 32 bits of hash | 32 bits of entry --> ENTRY { key, data } --> key
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

/// One line: a bucket, or what overflows it.
#[repr(C, align(64))]
#[derive(Debug)]
struct Line {
    /// Upper half: the lower half of the hash. Lower half: the number of the entry, plus 1. The slots
    /// in use come first; an empty one is 0.
    slots: [u64; SLOT_COUNT],
    /// The number of the overflow line, plus 1.
    overflow: u64,
}

impl Line {
    const EMPTY: Self = Self { slots: [0; SLOT_COUNT], overflow: 0 };
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
    /// The first line of a chain of free overflow lines, plus 1.
    overflow_free: u64,
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
            overflow_free: 0,
            entries: Stable::new(expected.max(FIRST_COUNT))?,
            count: 0,
        })
    }

    /// Returns the number of entries.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the entry with this key.
    #[inline]
    pub(crate) fn find(&self, key: &CStr) -> Option<*mut Entry> {
        self.find_hashed(key, self.hash(key))
    }

    /// Returns the entry with the key of `entry`; enters `entry` if there is none. `None` if there is
    /// no memory, and then the table is as it was.
    ///
    /// # Safety
    ///
    /// The key stays a string, with these bytes, as long as the table lives.
    #[inline]
    pub(crate) unsafe fn enter(&mut self, key: &CStr, entry: Entry) -> Option<*mut Entry> {
        let hash = self.hash(key);
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
        self.insert(self.geometry.bucket_of(hash).0, hash << 32 | (self.count + 1));
        self.count += 1;
        self.split_if_due();
        Some(place)
    }

    #[inline]
    fn hash(&self, key: &CStr) -> u64 {
        rapidhash_v3_inline::<true, false, false>(key.to_bytes(), &self.secrets)
    }

    #[inline]
    fn find_hashed(&self, key: &CStr, hash: u64) -> Option<*mut Entry> {
        let mut line = self.buckets.at(self.geometry.bucket_of(hash).0);
        let tag = hash as u32;
        loop {
            // SAFETY: a line of this table, which nobody changes during a lookup.
            let found = unsafe { &*line };
            for slot in found.slots {
                if (slot >> 32) as u32 == tag
                    && let Some(index) = u64::from(slot as u32).checked_sub(1)
                {
                    let entry = self.entries.at(index);
                    if self.has_key(entry, key) {
                        return Some(entry);
                    }
                }
            }
            line = self.overflow.at(found.overflow.checked_sub(1)?);
        }
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
    fn insert(&mut self, bucket: u64, slot: u64) {
        let mut line = self.buckets.at(bucket);
        loop {
            // SAFETY: a line of this table, to which there is no other reference.
            let found = unsafe { &mut *line };
            if let Some(free) = found.slots.iter_mut().find(|slot| **slot == 0) {
                *free = slot;
                return;
            }
            if found.overflow == 0 {
                found.overflow = self.take_overflow() + 1;
            }
            line = self.overflow.at(found.overflow - 1);
        }
    }

    /// Makes sure that an insert finds an overflow line. A split needs no more than it gives back.
    fn make_room_for_overflow(&mut self) -> Option<()> {
        self.overflow.reserve(self.overflow_count)
    }

    /// Returns an empty overflow line: a free one, or the next.
    fn take_overflow(&mut self) -> u64 {
        let Some(line) = self.overflow_free.checked_sub(1) else {
            self.overflow_count += 1;
            return self.overflow_count - 1;
        };
        // SAFETY: a line of this table, to which there is no other reference.
        let free = unsafe { &mut *self.overflow.at(line) };
        self.overflow_free = free.overflow;
        free.overflow = 0;
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
            for slot in line.slots.into_iter().take_while(|&slot| slot != 0) {
                self.insert(self.geometry.bucket_of(slot >> 32).0, slot);
            }
            let Some(next) = line.overflow.checked_sub(1) else { return };
            // SAFETY: as above.
            let overflow = unsafe { &mut *self.overflow.at(next) };
            line = std::mem::replace(overflow, Line::EMPTY);
            overflow.overflow = self.overflow_free;
            self.overflow_free = next + 1;
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
        for i in 0..200_u64 {
            table.make_room_for_overflow().unwrap();
            table.insert(0, (i << 32) | (i + 1));
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
                for slot in this.slots.into_iter().filter(|&slot| slot != 0) {
                    assert_eq!((slot >> 32) % 64, bucket);
                    found.push(slot as u32);
                }
                let Some(next) = this.overflow.checked_sub(1) else { break };
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
