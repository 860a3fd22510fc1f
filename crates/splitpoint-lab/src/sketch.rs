//! Estimates how many keys are different, in 4 KiB, whatever their number is.
//!
//! The hash of a key picks a register by its low bits; the register keeps the longest run of zeros,
//! counted from the highest bit, of the hashes that picked it.
//!
//! # Source
//!
//! Flajolet, Fusy, Gandouet and Meunier, "`HyperLogLog`", 2007; the estimator is that of Ertl, "New
//! cardinality estimation algorithms for `HyperLogLog` sketches", 2017, algorithm 6: it needs no tables
//! of corrections.
//!
//! # Invariants
//!
//! - [`KeySketch::merge`] is associative and commutative, and merging a sketch with itself changes
//!   nothing: sketches of any partition, merged in any order, are that of all keys.

use crate::Error;
use crate::study::DistinctEstimate;

const MAGIC: [u8; 4] = *b"SPLK";
const VERSION: u16 = 1;

const REGISTER_BITS: u32 = 12;
const REGISTERS: usize = 1 << REGISTER_BITS;
/// The largest value of a register: one more than the bits that are left of a hash.
const RANK_MAX: u8 = 64 - REGISTER_BITS as u8 + 1;
const CHECKSUM_BYTES: usize = 8;
const ENCODED_BYTES: usize = MAGIC.len() + 2 + REGISTERS + CHECKSUM_BYTES;

/// A sketch of a set of keys, from which the number of different ones is estimated.
///
/// # Examples
///
/// ```
/// use splitpoint_lab::KeySketch;
///
/// let mut sketch = KeySketch::default();
/// for number in 0..10_000_u64 {
///     sketch.add(&(number % 1000).to_le_bytes());
/// }
/// assert!((sketch.estimate().key_count - 1000.0).abs() < 50.0);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySketch {
    registers: Vec<u8>,
}

impl Default for KeySketch {
    fn default() -> Self {
        Self { registers: vec![0; REGISTERS] }
    }
}

impl KeySketch {
    /// Adds one key.
    #[inline]
    pub fn add(&mut self, key: &[u8]) {
        let hash = rapidhash::v3::rapidhash_v3(key);
        let register = &mut self.registers[hash as usize & (REGISTERS - 1)];
        // Never more than the bits above those of the register.
        let rank = (hash | (REGISTERS as u64 - 1)).leading_zeros() as u8 + 1;
        *register = rank.max(*register);
    }

    /// Adds the keys of another sketch.
    pub fn merge(&mut self, other: &Self) {
        for (mine, &others) in self.registers.iter_mut().zip(&other.registers) {
            *mine = others.max(*mine);
        }
    }

    /// Returns how many different keys it has seen, with the standard deviation of that.
    pub fn estimate(&self) -> DistinctEstimate {
        let count = REGISTERS as f64;
        let mut by_rank = [0.0; RANK_MAX as usize + 1];
        for &rank in &self.registers {
            by_rank[usize::from(rank)] += 1.0;
        }
        let last = usize::from(RANK_MAX);
        let mut sum = count * tau(1.0 - by_rank[last] / count);
        for &registers in by_rank[1..last].iter().rev() {
            sum = 0.5 * (sum + registers);
        }
        sum += count * sigma(by_rank[0] / count);
        DistinctEstimate {
            key_count: count * count / (2.0 * std::f64::consts::LN_2 * sum),
            deviation: 1.04 / count.sqrt(),
        }
    }

    /// Returns the sketch as bytes, which are equal if the sets of keys are.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(ENCODED_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.registers);
        let checksum = rapidhash::v3::rapidhash_v3(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads a sketch from untrusted bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Malformed`] if the bytes are damaged or of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let malformed = |what, offset| Err(Error::Malformed { what, offset });
        let Some((content, checksum)) = bytes.split_last_chunk::<CHECKSUM_BYTES>() else {
            return malformed("an early end", bytes.len() as u64);
        };
        let Some(rest) = content.strip_prefix(&MAGIC) else {
            return malformed("another magic number", 0);
        };
        let Some(registers) = rest.strip_prefix(&VERSION.to_le_bytes()) else {
            return malformed("another version", MAGIC.len() as u64);
        };
        if rapidhash::v3::rapidhash_v3(content).to_le_bytes() != *checksum {
            return malformed("a wrong checksum", content.len() as u64);
        }
        if registers.len() != REGISTERS || registers.iter().any(|&rank| rank > RANK_MAX) {
            return malformed("registers that cannot be", content.len() as u64);
        }
        Ok(Self { registers: registers.to_vec() })
    }
}

/// The part of the registers that no key has picked.
fn sigma(mut share: f64) -> f64 {
    if share >= 1.0 {
        return f64::INFINITY;
    }
    let (mut weight, mut sum) = (1.0, share);
    loop {
        share *= share;
        let before = sum;
        sum += share * weight;
        weight += weight;
        if sum <= before {
            return sum;
        }
    }
}

/// The part of the registers that are full.
fn tau(mut share: f64) -> f64 {
    if share <= 0.0 || share >= 1.0 {
        return 0.0;
    }
    let (mut weight, mut sum) = (1.0, 1.0 - share);
    loop {
        share = share.sqrt();
        let before = sum;
        weight *= 0.5;
        sum -= (1.0 - share).powi(2) * weight;
        if sum >= before {
            return sum / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(keys: impl Iterator<Item = u64>) -> KeySketch {
        let mut sketch = KeySketch::default();
        keys.for_each(|key| sketch.add(&key.to_le_bytes()));
        sketch
    }

    /// The keys are always the same, so this depends on no chance.
    #[test]
    fn the_estimate_is_within_three_deviations_at_every_size() {
        assert_eq!(of(0..0).estimate().key_count.round() as u64, 0);
        assert_eq!(of(7..8).estimate().key_count.round() as u64, 1);
        let mut sketch = KeySketch::default();
        let (mut next, mut size) = (0_u64, 100);
        while size <= 3_000_000 {
            (next..size).for_each(|key| sketch.add(&key.to_le_bytes()));
            next = size;
            let estimate = sketch.estimate();
            let error = (estimate.key_count / size as f64 - 1.0).abs();
            assert!(error < 3.0 * estimate.deviation, "{size} keys: wrong by {error}");
            size = size * 3 / 2;
        }
    }

    #[test]
    fn keys_that_come_again_change_nothing_and_parts_merge_in_any_order() {
        let whole = of(0..5000);
        assert_eq!(of((0..5000).chain(0..5000)), whole);
        let parts = [of(4000..5000), of(0..3000), of(2000..4500)];
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
            let mut merged = KeySketch::default();
            for part in order {
                merged.merge(&parts[part]);
            }
            assert_eq!(merged.encode(), whole.encode());
        }
    }

    /// Files keep sketches, so that this never changes.
    #[test]
    fn a_key_has_the_register_that_it_always_had() {
        let bytes = of(1..2).encode();
        let set: Vec<(usize, u8)> = (0..).zip(bytes[6..6 + REGISTERS].iter().copied()).collect();
        let set: Vec<(usize, u8)> = set.into_iter().filter(|&(_, rank)| rank > 0).collect();
        assert_eq!(set, [(4028, 1)]);
    }

    #[test]
    fn what_is_full_has_an_estimate_and_damaged_bytes_are_refused() {
        let full = KeySketch { registers: vec![RANK_MAX; REGISTERS] };
        assert!(full.estimate().key_count > 1e18);
        let bytes = of(0..100).encode();
        assert_eq!(KeySketch::decode(&bytes), Ok(of(0..100)));
        for length in 0..bytes.len() {
            assert!(KeySketch::decode(&bytes[..length]).is_err(), "{length}");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert!(KeySketch::decode(&damaged).is_err(), "byte {at}");
        }
        let beyond = KeySketch { registers: vec![RANK_MAX + 1; REGISTERS] };
        assert!(KeySketch::decode(&beyond.encode()).is_err());
    }
}
