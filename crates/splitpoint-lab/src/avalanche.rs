//! How a hash changes when a bit of its key flips: each bit of the hash should flip with
//! probability one half.
//!
//! The flips are synthetic, but the keys are real, because a failure on keys that nobody has does
//! not matter. Keys next to each other in sorted order are neighbors that do occur.
//!
//! # Source
//!
//! Feistel, 1973, for the idea; Webster and Tavares, "On the design of S-boxes", 1985, for a half
//! as the criterion; Wilson, 1927, for the intervals; Sidak, 1967, for the worst of many.

use std::collections::HashSet;

use crate::Specimen;
use crate::bit_counts::BitCounts;
use crate::key_positions::KeySample;
use crate::keys::KeyBatch;
use crate::number::{counted, p_is};
use crate::probability::{coin_two_sided, sidak, wilson_interval};
use crate::study::{Avalanche, FlipRate, Neighbors};

/// Bits of a key that are flipped, from its start.
pub const KEY_BITS_MAX: usize = 1024;
/// Keys that suffice to distinguish a rate of 0.47 from a half.
pub const SAMPLE_KEYS: usize = 4096;
/// Bytes of flipped keys that are hashed at once.
const FLIPPED_BYTES: u64 = 4 << 20;
/// Standard deviations of the middle 99 % of the normal.
const Z_99: f64 = 2.575_829_303_548_901;

impl Avalanche {
    /// Flips every bit of the sampled keys, up to [`KEY_BITS_MAX`] of each.
    ///
    /// # Cost
    ///
    /// A hash for each bit of each key: half a million for 4096 keys of 16 bytes.
    pub fn new(specimen: &Specimen, seed: u64, sample: &KeySample) -> Self {
        let bit_count = sample.keys().map(bits_of).max().unwrap_or(0);
        let mut counts = Flips::new(bit_count);
        let sampled: HashSet<&[u8]> = sample.keys().collect();
        let hashes = specimen.hashes(sample.keys(), seed);
        let (mut flipped, mut origins) = (KeyBatch::default(), Vec::new());
        for (key, hash) in sample.keys().zip(hashes) {
            let Some(hash) = hash else { continue };
            for bit in 0..bits_of(key) {
                flipped.push_flipped(key, bit / 8, 1 << (bit % 8));
                // If two keys are each other's flip, we count one of the two flips, because
                // counting the same pair twice would make an ideal hash look uneven.
                let other = flipped.key(flipped.len() - 1);
                let is_counted = other > key || !sampled.contains(other);
                origins.push(is_counted.then_some((bit, hash)));
            }
            if flipped.key_bytes() > FLIPPED_BYTES {
                counts.add(specimen, seed, &mut flipped, &mut origins);
            }
        }
        counts.add(specimen, seed, &mut flipped, &mut origins);
        let Flips { counts, key_counts } = counts;
        let flips: Vec<Vec<u64>> = counts
            .iter()
            .map(|counts| counts.ones()[..specimen.width_bits() as usize].to_vec())
            .collect();
        let (worst, worst_p) = worst_entry(&flips, &key_counts);
        let tries: u64 = key_counts.iter().sum::<u64>() * u64::from(specimen.width_bits());
        let all: u64 = flips.iter().flatten().sum();
        Self {
            hash: specimen.name().to_owned(),
            seed,
            width_bits: specimen.width_bits(),
            sample_count: sample.keys().count() as u64,
            flip_rates: rates(&flips, &key_counts),
            worst,
            mean_rate: if tries == 0 { 0.0 } else { all as f64 / tries as f64 },
            worst_p,
            test_count: tests(&flips, &key_counts),
            key_counts,
            neighbors: None,
        }
    }

    /// Returns the result in words.
    pub fn in_words(&self) -> Vec<String> {
        let mut words = Vec::new();
        let Some(worst) = self.worst else {
            let why = "no key of the sample has a bit to flip, or the hashes of flipped keys are \
                       not known: only the function itself can give them";
            return vec![why.to_owned()];
        };
        let never = self.bits_where(|rates| rates.iter().all(|&rate| rate == 0.0));
        let partly = self.bits_where(|rates| {
            let is_still = |rate: &f64| [0.0, 1.0].contains(rate);
            rates.iter().any(is_still) && rates.iter().any(|&rate| rate > 0.0)
        });
        let bits = crate::key_positions::bits_in_words;
        if !never.is_empty() {
            words.push(format!("no bit of the hash depends on {} of the key", bits(&never)));
        }
        if !partly.is_empty() {
            words.push(format!(
                "some bits of the hash always flip, or never do, with {} of the key",
                bits(&partly)
            ));
        }
        words.push(format!(
            "the worst entry is bit {} of the hash with {} of the key: it flips in {:.1} % of the \
             keys (99 % sure: {:.1} to {:.1} %), {} over {}",
            worst.hash_bit,
            bits(&[worst.key_bit]),
            100.0 * worst.rate,
            100.0 * worst.interval[0],
            100.0 * worst.interval[1],
            p_is(self.worst_p),
            counted(self.test_count, "test")
        ));
        if let Some(neighbors) = self.neighbors {
            words.push(format!(
                "hashes of keys next to each other in sorted order differ in {:.2} bits, {:.1} are \
                 ideal (z {:+.1})",
                neighbors.mean_bits, neighbors.mean_bits_ideal, neighbors.z
            ));
        }
        words
    }

    fn bits_where(&self, is_wanted: impl Fn(&[f64]) -> bool) -> Vec<u64> {
        let rows = (0..).zip(&self.flip_rates).zip(&self.key_counts);
        let wanted = rows.filter(|((_, rates), count)| **count >= 32 && is_wanted(rates));
        wanted.map(|((bit, _), _)| bit).collect()
    }
}

fn bits_of(key: &[u8]) -> usize {
    (8 * key.len()).min(KEY_BITS_MAX)
}

/// Counts of the bits of the hash that flip, by the bit of the key that was flipped.
struct Flips {
    counts: Vec<BitCounts>,
    key_counts: Vec<u64>,
}

impl Flips {
    fn new(bit_count: usize) -> Self {
        Self { counts: vec![BitCounts::default(); bit_count], key_counts: vec![0; bit_count] }
    }

    /// Hashes the flipped keys and counts them, each beside the flipped bit and the hash of its
    /// origin, unless that is `None`. Clears both lists.
    fn add(
        &mut self,
        specimen: &Specimen,
        seed: u64,
        flipped: &mut KeyBatch,
        origins: &mut Vec<Option<(usize, u64)>>,
    ) {
        let hashes = specimen.hashes(flipped.iter(), seed);
        for (origin, hash) in origins.drain(..).zip(hashes) {
            if let (Some((bit, origin)), Some(hash)) = (origin, hash) {
                self.counts[bit].add(origin ^ hash);
                self.key_counts[bit] += 1;
            }
        }
        flipped.clear();
    }
}

/// Returns the number of entries that have a rate.
fn tests(flips: &[Vec<u64>], key_counts: &[u64]) -> u64 {
    let rows = flips.iter().zip(key_counts).filter(|(_, count)| **count > 0);
    rows.map(|(row, _)| row.len() as u64).sum()
}

fn rates(flips: &[Vec<u64>], key_counts: &[u64]) -> Vec<Vec<f64>> {
    let of_row = |(row, &count): (&Vec<u64>, &u64)| {
        row.iter().map(|&flips| flips as f64 / count.max(1) as f64).collect()
    };
    flips.iter().zip(key_counts).map(of_row).collect()
}

/// Returns the entry farthest from a half, and the probability that the worst of all is as bad.
fn worst_entry(flips: &[Vec<u64>], key_counts: &[u64]) -> (Option<FlipRate>, f64) {
    let mut worst: Option<(f64, usize, usize)> = None;
    for (bit, row) in flips.iter().enumerate().filter(|(bit, _)| key_counts[*bit] > 0) {
        let n = key_counts[bit] as f64;
        for (at, &count) in row.iter().enumerate() {
            let z = (2.0 * count as f64 - n).abs() / n.sqrt();
            if worst.is_none_or(|(most, ..)| z > most) {
                worst = Some((z, bit, at));
            }
        }
    }
    let Some((_, bit, at)) = worst else { return (None, 1.0) };
    let (count, of) = (flips[bit][at], key_counts[bit]);
    let tests = tests(flips, key_counts);
    let entry = FlipRate {
        key_bit: bit as u64,
        hash_bit: at as u32,
        rate: count as f64 / of as f64,
        interval: wilson_interval(count, of, Z_99),
    };
    (Some(entry), sidak(coin_two_sided(count, of), tests as f64))
}

impl Neighbors {
    /// Returns the number of bits in which the hashes of each key and the next differ, or `None`
    /// for fewer than two keys. The caller sorts the keys, or orders them so that neighbors are
    /// similar.
    pub fn new<'k>(
        specimen: &Specimen,
        seed: u64,
        keys: impl IntoIterator<Item = &'k [u8]>,
    ) -> Option<Self> {
        let mut hashes = specimen.hashes(keys, seed).into_iter().flatten();
        let mut last = hashes.next()?;
        let (mut pair_count, mut bits) = (0_u64, 0_u64);
        for hash in hashes {
            bits += u64::from((hash ^ last).count_ones());
            pair_count += 1;
            last = hash;
        }
        if pair_count == 0 {
            return None;
        }
        // Pairs that share a hash are still independent, because the difference of two uniform
        // words is independent of each of them.
        let (n, width_bits) = (pair_count as f64, f64::from(specimen.width_bits()));
        let (mean_bits, mean_bits_ideal) = (bits as f64 / n, width_bits / 2.0);
        let z = (mean_bits - mean_bits_ideal) / (width_bits / 4.0 / n).sqrt();
        Some(Self { pair_count, mean_bits, mean_bits_ideal, z })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Vec<Vec<u8>> {
        (0..1500).map(|n| format!("key{n:04}").into_bytes()).collect()
    }

    fn avalanche(name: &str, seed: u64) -> Avalanche {
        let keys = keys();
        let sample = KeySample::of(1024, keys.iter().map(Vec::as_slice));
        Avalanche::new(Specimen::by_name(name).unwrap(), seed, &sample)
    }

    #[test]
    fn the_worst_entry_of_an_ideal_hash_has_a_uniform_p() {
        let mut p: Vec<f64> = (0..60).map(|seed| avalanche("siphash-1-3", seed).worst_p).collect();
        p.sort_by(f64::total_cmp);
        // Kolmogorov and Smirnov: over 1.95 with a probability of 0.001. Counts of flips are whole,
        // so that p comes in steps.
        let distance = (0..).zip(&p).map(|(rank, p)| (p - (f64::from(rank) + 0.5) / 60.0).abs());
        let distance = distance.fold(0.0, f64::max) * 60_f64.sqrt();
        assert!(distance < 1.95, "{distance}: {p:?}");
    }

    #[test]
    fn an_ideal_hash_flips_a_half_and_a_sum_of_bytes_hardly_any() {
        let ideal = avalanche("siphash-1-3", 1);
        assert_eq!((ideal.flip_rates.len(), ideal.flip_rates[0].len()), (56, 64));
        assert_eq!((ideal.sample_count, ideal.test_count), (1024, 56 * 64));
        assert!((ideal.mean_rate - 0.5).abs() < 0.002, "{}", ideal.mean_rate);
        let bad = avalanche("netbsd-byte-sum", 0);
        assert!(bad.worst_p < 1e-200 && bad.mean_rate < 0.1, "{}", bad.mean_rate);
        // A flipped bit of any byte flips the same bit of the sum at least.
        assert!((bad.flip_rates[0][0] - 1.0).abs() < f64::EPSILON);
        let words = bad.in_words().join("\n");
        assert!(
            words.contains("always flip, or never do, with bytes 0 to 6 of the key"),
            "{words}"
        );
    }

    #[test]
    fn bits_that_are_not_looked_at_are_named() {
        let keys: Vec<Vec<u8>> = (0..300_u64).map(|n| n.to_le_bytes().to_vec()).collect();
        let sample = KeySample::of(256, keys.iter().map(Vec::as_slice));
        let narrow = Specimen::by_name("linux-uid").unwrap();
        let words = Avalanche::new(narrow, 0, &sample).in_words().join("\n");
        assert!(words.contains("depends on bytes 4 to 7 of the key"), "{words}");
        assert_eq!(Avalanche::new(narrow, 0, &KeySample::new(0)).worst, None);
    }

    #[test]
    fn neighbors_of_an_ideal_hash_differ_in_half_of_its_bits() {
        let keys = keys();
        let neighbors = |name: &str, seed: u64| {
            let specimen = Specimen::by_name(name).unwrap();
            Neighbors::new(specimen, seed, keys.iter().map(Vec::as_slice)).unwrap()
        };
        let z: Vec<f64> = (0..200).map(|seed| neighbors("siphash-1-3", seed).z).collect();
        let mean = z.iter().sum::<f64>() / 200.0;
        let square = z.iter().map(|z| z * z).sum::<f64>() / 200.0;
        assert!(mean.abs() < 0.3 && (square - 1.0).abs() < 0.4, "mean {mean}, square {square}");
        let sum = neighbors("netbsd-byte-sum", 0);
        assert_eq!((sum.pair_count, sum.mean_bits_ideal), (1499, 16.0));
        assert!(sum.z < -100.0, "{}", sum.z);
        let one = Specimen::by_name("xxh3-64").unwrap();
        assert_eq!(Neighbors::new(one, 0, [&b"a"[..]]), None);
    }
}
