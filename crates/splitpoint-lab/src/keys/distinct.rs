//! Finds duplicate keys: exactly, or by fingerprints where memory is short.

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::KeyBatch;

/// Keys of a part, about: what is kept of them for the comparison fits into the cache of a core.
const PART_KEYS: usize = 1 << 14;
/// Most parts. Each has a place in memory to which its keys are written in turn.
const PART_BITS_MAX: u32 = 12;

/// A key: its hash, and its index in the batch.
type Hashed = (u64, u64);

/// Returns the memory that [`repeated`] takes for `len` keys, in bytes. Only keys chosen to collide
/// make it take more.
pub(super) fn repeated_memory_bytes(len: usize) -> u64 {
    let slots = 4 * (len >> part_bits(len));
    let bytes = size_of::<Hashed>() * len + size_of::<u32>() * slots;
    bytes as u64 + Bitmap::memory_bytes(len as u64)
}

/// Returns the number of bits of a hash that say to which part of `len` keys it belongs.
fn part_bits(len: usize) -> u32 {
    (len / PART_KEYS).max(1).ilog2().min(PART_BITS_MAX)
}

/// Marks the keys of a batch that are equal to an earlier one, and counts them.
///
/// The hashes of the keys are cut into parts first, by their highest bits. Then all that one part
/// needs is in the cache, and two keys are compared only if their hashes are equal.
///
/// # Source
///
/// Shatdal, Kant and Naughton, "Cache conscious algorithms for relational query processing", 1994.
pub(super) fn repeated(batch: &KeyBatch) -> (Bitmap, u64) {
    let part_bits = part_bits(batch.len());
    let part_index = |hash: u64| (hash >> 1 >> (63 - part_bits)) as usize;
    let mut ends = vec![0; 1 << part_bits];
    for key in batch.iter() {
        ends[part_index(xxh3_64(key))] += 1;
    }
    let mut start = 0;
    for end in &mut ends {
        let len = std::mem::replace(end, start);
        start += len;
    }
    // Each end is still the start of its part, and moves as the part is filled.
    let mut hashed: Vec<Hashed> = vec![(0, 0); batch.len()];
    for (index, key) in (0..).zip(batch.iter()) {
        let hash = xxh3_64(key);
        let end = &mut ends[part_index(hash)];
        hashed[*end] = (hash, index);
        *end += 1;
    }
    let mut part = Part {
        batch,
        slots: vec![0; (2 * (batch.len() >> part_bits)).next_power_of_two()],
        used: 0,
        marks: Bitmap::new(batch.len() as u64),
        count: 0,
    };
    let mut start = 0;
    for end in ends {
        part.mark(&hashed[start..end]);
        start = end;
    }
    (part.marks, part.count)
}

/// What is found, and the set of the keys of one part after the other.
struct Part<'b> {
    batch: &'b KeyBatch,
    /// Indexes of the part plus one; 0 is an empty slot. Probed linearly; a power of two long.
    slots: Vec<u32>,
    used: usize,
    marks: Bitmap,
    count: u64,
}

impl Part<'_> {
    /// Marks the keys of a part that are equal to an earlier one of it.
    fn mark(&mut self, hashed: &[Hashed]) {
        self.slots.fill(0);
        self.used = 0;
        for (number, &(hash, index)) in (1_u32..).zip(hashed) {
            if (self.used + 1) * LOAD_MAX.1 > self.slots.len() * LOAD_MAX.0 {
                self.grow(hashed);
            }
            let key = self.batch.key(index as usize);
            let mut slot = hash as usize & (self.slots.len() - 1);
            loop {
                let Some(earlier) = (self.slots[slot] as usize).checked_sub(1) else {
                    self.slots[slot] = number;
                    self.used += 1;
                    break;
                };
                let (other, earlier) = hashed[earlier];
                if other == hash && self.batch.key(earlier as usize) == key {
                    self.marks.set(index);
                    self.count += 1;
                    break;
                }
                slot = (slot + 1) & (self.slots.len() - 1);
            }
        }
    }

    fn grow(&mut self, hashed: &[Hashed]) {
        let slot_count = (2 * self.slots.len()).max(SLOTS_MIN);
        let old = std::mem::replace(&mut self.slots, vec![0; slot_count]);
        for number in old.into_iter().filter(|&number| number != 0) {
            let mut slot = hashed[number as usize - 1].0 as usize & (slot_count - 1);
            while self.slots[slot] != 0 {
                slot = (slot + 1) & (slot_count - 1);
            }
            self.slots[slot] = number;
        }
    }
}

/// Slots of the smallest set that holds a key.
const SLOTS_MIN: usize = 64;
/// A set grows when more than 3/4 of its slots are used.
const LOAD_MAX: (usize, usize) = (3, 4);

/// Returns the 128 bits that identify a key.
pub(super) fn fingerprint(key: &[u8]) -> u128 {
    xxh3_128(key)
}

/// Returns an upper bound of the probability that two of `key_count` different keys have equal
/// fingerprints: `n^2 / 2^129`.
///
/// Source: Knuth, The Art of Computer Programming 2, 3.3.2 (the birthday bound).
pub(super) fn collision_p_max(key_count: u64) -> f64 {
    let n = key_count as f64;
    (n * n * 0.5_f64.powi(129)).min(1.0)
}

/// Returns which of `part_count` parts a fingerprint belongs to.
pub(super) fn part_of(fingerprint: u128, part_count: u64) -> u64 {
    debug_assert!(part_count > 0, "a fingerprint belongs to a part");
    (((fingerprint >> 64) * u128::from(part_count)) >> 64) as u64
}

/// Fingerprints, in a table that does not grow.
#[derive(Debug)]
pub(super) struct FingerprintSet {
    /// 0 is an empty slot. Probed linearly.
    slots: Vec<u128>,
    len: usize,
}

/// Bytes of a slot.
pub(super) const FINGERPRINT_BYTES: u64 = 16;

/// A [`FingerprintSet`] is full; only adversarial keys can cause this.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

impl FingerprintSet {
    /// Returns an empty set of `slot_count` slots.
    pub(super) fn new(slot_count: usize) -> Self {
        Self { slots: vec![0; slot_count.max(8)], len: 0 }
    }

    /// Removes all.
    pub(super) fn clear(&mut self) {
        self.slots.fill(0);
        self.len = 0;
    }

    /// Adds a fingerprint, and returns true if the set did not have it.
    pub(super) fn insert(&mut self, fingerprint: u128) -> Result<bool, Full> {
        // An empty slot ends every search.
        if self.len + self.len / 32 + 1 >= self.slots.len() {
            return Err(Full);
        }
        let wanted = fingerprint.max(1);
        // `part_of` uses the high half, so the low half stays uniform within a part.
        let low = fingerprint & u128::from(u64::MAX);
        let mut slot = ((low * self.slots.len() as u128) >> 64) as usize;
        loop {
            match self.slots[slot] {
                0 => break,
                found if found == wanted => return Ok(false),
                _ => slot = if slot + 1 == self.slots.len() { 0 } else { slot + 1 },
            }
        }
        self.slots[slot] = wanted;
        self.len += 1;
        Ok(true)
    }
}

/// One bit for each key of a stream.
#[derive(Debug, Default)]
pub(super) struct Bitmap {
    words: Vec<u64>,
}

impl Bitmap {
    /// Returns a map of `bit_count` bits, none of them set.
    pub(super) fn new(bit_count: u64) -> Self {
        Self { words: vec![0; bit_count.div_ceil(64) as usize] }
    }

    /// Returns the memory of `bit_count` bits, in bytes.
    pub(super) fn memory_bytes(bit_count: u64) -> u64 {
        bit_count.div_ceil(64) * 8
    }

    /// Sets a bit.
    pub(super) fn set(&mut self, bit: u64) {
        self.words[(bit / 64) as usize] |= 1 << (bit % 64);
    }

    /// Returns whether a bit is set; those past the end are not.
    pub(super) fn has(&self, bit: u64) -> bool {
        self.words.get((bit / 64) as usize).is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn repeated_keys_are_those_of_a_set_in_one_part_and_in_many() {
        for (len, distinct) in [(0, 1), (1, 1), (10_000, 3001), (100_000, 70_001), (100_000, 1)] {
            let (mut batch, mut model) = (KeyBatch::default(), HashSet::new());
            let mut fingerprints = FingerprintSet::new(2 * distinct + 1000);
            let mut are_new = Vec::new();
            for n in 0..len as u64 {
                let key = (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % distinct as u64).to_string();
                batch.push(key.as_bytes());
                are_new.push(model.insert(key.clone()));
                let is_new = fingerprints.insert(fingerprint(key.as_bytes()));
                assert_eq!(is_new, Ok(are_new[n as usize]), "{key}");
            }
            let (marks, count) = repeated(&batch);
            assert_eq!(count as usize, len - model.len());
            assert!((0..).zip(are_new).all(|(index, is_new)| marks.has(index) != is_new));
        }
    }

    #[test]
    fn a_full_set_says_so_and_the_zero_is_a_fingerprint() {
        let mut set = FingerprintSet::new(100);
        assert_eq!((set.insert(0), set.insert(0)), (Ok(true), Ok(false)));
        let refused = (1..200_u128).position(|n| set.insert(n << 64 | n << 57) == Err(Full));
        assert!(refused.is_some_and(|n| (90..100).contains(&n)), "{refused:?}");
        set.clear();
        assert_eq!(set.insert(0), Ok(true));
    }

    #[test]
    fn the_bound_of_a_billion_keys_is_that_of_the_birthday() {
        assert!((collision_p_max(1 << 30) - 0.5_f64.powi(69)).abs() < 1e-30);
    }
}
