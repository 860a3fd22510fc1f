//! The bits of the hashes, one by one and in pairs.

use serde::{Deserialize, Serialize};

use crate::partial::{PartialStats, is_sampled};
use crate::probability::{normal_two_sided, sidak};

/// About the most hashes whose pairs of bits are counted.
const PAIR_SAMPLE_MAX: usize = 1 << 19;
/// Fewest hashes for a nearly normal correlation.
const PAIR_SAMPLE_MIN: usize = 32;

/// A bit that is set more or less often than half of the time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BitBias {
    /// The bit, 0 the lowest.
    pub bit: u32,
    /// Share of the hashes in which it is set.
    pub ones: f64,
    /// Deviation of the number of ones from half of the keys, in standard deviations.
    pub z: f64,
    /// Probability that the worst bit of an ideal hash is as bad.
    pub p: f64,
}

/// Two bits of the hashes that are correlated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BitPair {
    /// The bits, 0 the lowest.
    pub bits: [u32; 2],
    /// Their correlation, -1 to 1.
    pub phi: f64,
    /// Hashes that the lab examined.
    pub sample_count: u64,
    /// Pairs of bits that the lab compared, without bits that never vary.
    pub test_count: u64,
    /// Probability that the worst pair of an ideal hash is as bad.
    pub p: f64,
}

pub(super) fn worst_bit(stats: &PartialStats) -> Option<BitBias> {
    let (n, width_bits) = (stats.key_count() as f64, stats.setup().specimen().width_bits());
    if stats.key_count() == 0 {
        return None;
    }
    let ones = stats.bits().ones();
    let bias = |bit: u32| {
        let ones = ones[bit as usize] as f64;
        let z = (2.0 * ones - n) / n.sqrt();
        let p = sidak(normal_two_sided(z), f64::from(width_bits));
        BitBias { bit, ones: ones / n, z, p }
    };
    (0..width_bits).map(bias).max_by(|one, other| one.z.abs().total_cmp(&other.z.abs()))
}

/// Returns the pair of bits with the largest correlation over the kept hashes. Of many hashes it
/// takes a part that does not depend on their order.
///
/// # Cost
///
/// A step for each pair of bits and 64 hashes, of up to half a million.
pub(super) fn worst_pair(stats: &PartialStats) -> Option<BitPair> {
    let width_bits = stats.setup().specimen().width_bits() as usize;
    let kept = stats.hashes();
    let thinning = (kept.len() / PAIR_SAMPLE_MAX).checked_ilog2().map_or(0, |bits| bits + 1);
    // Sampled hashes passed the same test with fewer bits.
    let thinning = if thinning == 0 { 0 } else { thinning + stats.setup().sampling() };
    let chosen = kept.iter().copied().filter(|&hash| is_sampled(hash, thinning.min(63)));
    let counts = PairCounts::of(chosen, width_bits);
    if counts.sample_count < PAIR_SAMPLE_MIN {
        return None;
    }
    let n = counts.sample_count as f64;
    let mut worst: Option<BitPair> = None;
    let mut test_count = 0;
    for high in 1..width_bits {
        for low in 0..high {
            let (one, other) = (counts.ones[low] as f64, counts.ones[high] as f64);
            let variance = one * (n - one) * other * (n - other);
            if variance <= 0.0 {
                continue;
            }
            test_count += 1;
            let phi = (n * counts.both[high][low] as f64 - one * other) / variance.sqrt();
            if worst.is_none_or(|pair| phi.abs() > pair.phi.abs()) {
                let bits = [low as u32, high as u32];
                let sample_count = counts.sample_count as u64;
                worst = Some(BitPair { bits, phi, sample_count, test_count: 0, p: 1.0 });
            }
        }
    }
    let p = |phi: f64| sidak(normal_two_sided(phi * n.sqrt()), test_count as f64);
    worst.map(|pair| BitPair { test_count, p: p(pair.phi), ..pair })
}

/// How often each bit and each pair of bits is set.
struct PairCounts {
    sample_count: usize,
    ones: [u64; 64],
    both: Vec<[u64; 64]>,
}

impl PairCounts {
    /// Counts 64 words at a time. After the transposition each word holds one bit of all of them,
    /// and the pairs are intersections.
    fn of(words: impl Iterator<Item = u64>, width_bits: usize) -> Self {
        let mut counts = Self { sample_count: 0, ones: [0; 64], both: vec![[0; 64]; 64] };
        let (mut block, mut length) = ([0_u64; 64], 0);
        for word in words {
            block[length] = word;
            length += 1;
            if length == 64 {
                counts.add(block, width_bits);
                (block, length) = ([0; 64], 0);
            }
            counts.sample_count += 1;
        }
        counts.add(block, width_bits);
        counts
    }

    fn add(&mut self, mut block: [u64; 64], width_bits: usize) {
        transpose(&mut block);
        for high in 0..width_bits {
            self.ones[high] += u64::from(block[high].count_ones());
            for (low, count) in self.both[high][..high].iter_mut().enumerate() {
                *count += u64::from((block[high] & block[low]).count_ones());
            }
        }
    }
}

/// Transposes a matrix of 64 by 64 bits: bit `i` of word `j` becomes bit `j` of word `i`.
///
/// Source: Warren, Hacker's Delight, 7-3.
fn transpose(block: &mut [u64; 64]) {
    let (mut width, mut mask) = (32, u64::MAX >> 32);
    while width > 0 {
        let mut row = 0;
        while row < 64 {
            let swapped = (block[row] >> width ^ block[row | width]) & mask;
            block[row] ^= swapped << width;
            block[row | width] ^= swapped;
            row = ((row | width) + 1) & !width;
        }
        width /= 2;
        mask ^= mask << width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partial::mixed;

    #[test]
    fn a_transposed_block_has_its_bits_in_the_other_order() {
        let words: [u64; 64] = std::array::from_fn(|row| mixed(row as u64));
        let mut block = words;
        transpose(&mut block);
        for (row, word) in words.iter().enumerate() {
            for (column, other) in block.iter().enumerate() {
                assert_eq!(word >> column & 1, other >> row & 1, "{row} {column}");
            }
        }
    }

    #[test]
    fn pairs_are_counted_as_one_by_one() {
        let words: Vec<u64> = (0..200).map(|n| mixed(n) & mixed(n + 1000)).collect();
        let counts = PairCounts::of(words.iter().copied(), 64);
        for (low, high) in [(0, 1), (3, 60), (31, 32), (0, 63)] {
            let both = words.iter().filter(|&word| word >> low & word >> high & 1 == 1).count();
            assert_eq!(counts.both[high][low], both as u64);
        }
        assert_eq!(counts.sample_count, 200);
    }
}
