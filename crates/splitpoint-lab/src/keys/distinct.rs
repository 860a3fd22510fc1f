//! Finds duplicate keys: exactly, or by fingerprints where memory is short.

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::KeyBatch;

/// The distinct keys of a batch.
#[derive(Debug, Default)]
pub(super) struct ExactSet {
    /// Indexes of keys plus one; 0 is an empty slot. Probed linearly; a power of two long.
    slots: Vec<u64>,
    len: usize,
}

/// Slots of the smallest set that holds a key.
const SLOTS_MIN: usize = 64;
/// A set grows when more than 3/4 of its slots are used.
const LOAD_MAX: (usize, usize) = (3, 4);

impl ExactSet {
    /// Returns the most memory that a set of `len` keys takes, also while it grows, in bytes.
    pub(super) fn memory_bytes(len: usize) -> u64 {
        let slots = (len * LOAD_MAX.1 / LOAD_MAX.0 + 1).next_power_of_two();
        let slots = slots.max(SLOTS_MIN) as u64;
        8 * (slots + slots / 2)
    }

    /// Adds the last key of `batch`, and returns true unless the set has an equal key.
    pub(super) fn insert_last(&mut self, batch: &KeyBatch) -> bool {
        debug_assert!(!batch.is_empty(), "the batch has a last key");
        if (self.len + 1) * LOAD_MAX.1 > self.slots.len() * LOAD_MAX.0 {
            self.grow(batch);
        }
        let index = batch.len() - 1;
        let key = batch.key(index);
        let mut slot = self.home(key);
        while self.slots[slot] != 0 {
            if batch.key(self.slots[slot] as usize - 1) == key {
                return false;
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        self.slots[slot] = index as u64 + 1;
        self.len += 1;
        true
    }

    fn home(&self, key: &[u8]) -> usize {
        xxh3_64(key) as usize & (self.slots.len() - 1)
    }

    fn grow(&mut self, batch: &KeyBatch) {
        let slot_count = (2 * self.slots.len()).max(SLOTS_MIN);
        let old = std::mem::replace(&mut self.slots, vec![0; slot_count]);
        for index in old.into_iter().filter(|&index| index != 0) {
            let mut slot = self.home(batch.key(index as usize - 1));
            while self.slots[slot] != 0 {
                slot = (slot + 1) & (slot_count - 1);
            }
            self.slots[slot] = index;
        }
    }
}

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
    fn both_sets_agree_with_that_of_the_standard_library() {
        let (mut batch, mut exact, mut model) =
            (KeyBatch::default(), ExactSet::default(), HashSet::new());
        let mut fingerprints = FingerprintSet::new(4000);
        for n in 0..10_000_u64 {
            let key = (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 3001).to_string();
            batch.push(key.as_bytes());
            let is_new = model.insert(key.clone());
            assert_eq!(exact.insert_last(&batch), is_new, "{key}");
            assert_eq!(fingerprints.insert(fingerprint(key.as_bytes())), Ok(is_new), "{key}");
        }
        assert_eq!(exact.len, model.len());
        assert!(8 * exact.slots.len() as u64 <= ExactSet::memory_bytes(exact.len));
    }

    #[test]
    fn a_set_that_grows_stays_within_its_memory() {
        let (mut batch, mut set) = (KeyBatch::default(), ExactSet::default());
        for n in 0..2000_u64 {
            // The second is a duplicate, for which the set may grow as well.
            for is_new in [true, false] {
                let old = set.slots.len();
                batch.push(&n.to_le_bytes());
                assert_eq!(set.insert_last(&batch), is_new);
                let new = set.slots.len();
                let held = if new == old { new } else { old + new };
                assert!(8 * held as u64 <= ExactSet::memory_bytes(set.len), "{n}: {old} to {new}");
            }
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
