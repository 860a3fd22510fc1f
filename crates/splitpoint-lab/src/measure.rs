//! What the counts say: one report per measurement, measured beside ideal.
//!
//! # Source
//!
//! The statistics of the buckets are in `occupancy`; for full-width collisions see Knuth 2, 3.3.2
//! (the birthday bound), for the bits Sidak 1967.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use splitpoint::ChainRow;

use crate::occupancy::{Percentiles, Test};
use crate::partial::PartialStats;
use crate::probability::{bits_of, normal_two_sided, poisson_at_least, sidak};

/// Standard deviations below the mean from which buckets are too even for chance.
const MORE_EVEN_Z: f64 = -4.0;
/// Coin tosses of a p value from which chance is ruled out: that of `SMHasher3`'s failures.
const FAILURE_BITS: f64 = 20.0;
/// Hashes that several keys share of which a report gives the value.
const SHARED_MAX: usize = 8;

/// What was measured, beside what an ideal hash gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name of the hash function.
    pub hash: Cow<'static, str>,
    /// Its seed.
    pub seed: u64,
    /// Its width in bits.
    pub width_bits: u32,
    /// Name of the reduction.
    pub reduction: String,
    /// Buckets of the table.
    pub bucket_count: u64,
    /// Buckets that the reduction can reach at all.
    pub reachable_count: u64,
    /// Keys.
    pub key_count: u64,
    /// Bytes of the keys.
    pub key_bytes: u64,
    /// Buckets that hold a key.
    pub used_count: u64,
    /// The same of an ideal hash, expected.
    pub used_ideal: f64,
    /// Share of the buckets that hold a key.
    pub utilization: f64,
    /// Keys per bucket.
    pub load_factor: f64,
    /// Keys per bucket that holds a key.
    pub mean_chain: f64,
    /// Keys that are not the first of their bucket.
    pub dupe_count: u64,
    /// Buckets that hold more than one key.
    pub shared_bucket_count: u64,
    /// Keys in the fullest bucket.
    pub longest: u64,
    /// The same of an ideal hash, expected.
    pub longest_ideal: f64,
    /// Probability of a bucket this full with an ideal hash.
    pub longest_p: f64,
    /// Keys per bucket that holds a key, each bucket counting once.
    pub bucket_percentiles: Percentiles,
    /// Keys of the bucket that a key is in, each key counting once.
    pub item_percentiles: Percentiles,
    /// Mean keys looked at for a key that is there.
    pub probes_hit: f64,
    /// The same of an ideal hash.
    pub probes_hit_ideal: f64,
    /// Mean keys looked at for a key that is not there.
    pub probes_miss: f64,
    /// The same of an ideal hash.
    pub probes_miss_ideal: f64,
    /// Cost of a hit in units of the ideal's.
    pub cost_ratio: f64,
    /// Chi-square of the buckets.
    pub chi_square: Option<Test>,
    /// Probability that an ideal hash spreads the keys as unevenly.
    pub spread_p: f64,
    /// Fit of the sizes of the buckets.
    pub fit: Option<Test>,
    /// Keys with equal hashes, over the whole width and over parts of it.
    pub collisions: Vec<Collisions>,
    /// Bits of the width that no hash has set.
    pub bits_never_set: u64,
    /// Bits of the width that every hash has set.
    pub bits_always_set: u64,
    /// The bit whose share of ones is furthest from a half.
    pub worst_bit: Option<BitBias>,
    /// Number of p values in this report.
    pub test_count: u32,
    /// What it comes to.
    pub verdict: Verdict,
    /// Buckets by the number of their keys.
    #[serde(with = "crate::chains::rows")]
    pub rows: Vec<ChainRow>,
}

/// Keys whose hashes are equal in some of their bits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Collisions {
    /// Which bits.
    pub window: Cow<'static, str>,
    /// How many.
    pub width_bits: u32,
    /// Pairs of keys with equal bits; if hashes were sampled, those of the sample.
    pub pair_count: u64,
    /// Pairs expected of an ideal hash: `n (n - 1) / 2^(w + 1)`.
    pub pair_count_ideal: f64,
    /// Probability of as many pairs or more with an ideal hash.
    pub p: f64,
    /// The lowest of the values that several keys share.
    pub shared: Vec<u64>,
    /// Keys of the first of those, found by another pass over the keys; only for the whole width.
    #[serde(default)]
    pub examples: Vec<EqualHashes>,
}

/// Keys with one hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EqualHashes {
    /// The hash.
    pub hash: u64,
    /// The first few of the keys, readable.
    pub keys: Vec<String>,
}

/// A bit that is not set half of the time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BitBias {
    /// The bit, 0 the lowest.
    pub bit: u32,
    /// Share of the hashes in which it is set.
    pub ones: f64,
    /// Deviations of the number of ones from a half of the keys, in standard deviations.
    pub z: f64,
    /// Probability that the worst of all bits is as bad with an ideal hash.
    pub p: f64,
}

/// What a measurement comes to, for these keys at this size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Verdict {
    /// Not to be told from an ideal hash.
    Fits,
    /// More even than chance: the keys have a structure that the hash keeps.
    Structured,
    /// Less even than chance allows.
    Worse {
        /// Cost of a hit in units of the ideal's.
        cost_ratio: f64,
    },
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fits => f.write_str("fits"),
            Self::Structured => {
                f.write_str("better than random: structured, will not survive other keys")
            }
            Self::Worse { cost_ratio } => {
                write!(f, "worse than random: a hit costs x{cost_ratio:.2}")
            }
        }
    }
}

impl Report {
    /// Computes the report of what was counted.
    ///
    /// # Panics
    ///
    /// If the buckets do not add up to the keys, which would be a bug.
    ///
    /// # Cost
    ///
    /// O(buckets + n log n) for `n` hashes that were kept.
    pub fn new(stats: &PartialStats) -> Self {
        let occupancy = stats.occupancy();
        let (setup, ideal) = (stats.setup(), occupancy.ideal());
        let (key_count, bucket_count) = (occupancy.key_count(), occupancy.bucket_count());
        assert_eq!(key_count, stats.key_count(), "every key is in one bucket");
        let (used_count, longest) = (occupancy.at_least(1), occupancy.longest());
        let (chi_square, spread_p) = (occupancy.chi_square(), occupancy.spread_p());
        let (fit, collisions, worst_bit) = (occupancy.fit(), collisions(stats), worst_bit(stats));
        let width = u64::MAX >> (64 - setup.specimen().width_bits());
        let longest_p = ideal.longest_at_least(longest);
        let mut report = Self {
            hash: setup.specimen().name().into(),
            seed: setup.seed(),
            width_bits: setup.specimen().width_bits(),
            reduction: setup.reducer().reduction().to_string(),
            bucket_count,
            reachable_count: setup.reducer().reachable_count(),
            key_count,
            key_bytes: stats.key_bytes(),
            used_count,
            used_ideal: bucket_count as f64 - ideal.bucket_count(0),
            utilization: used_count as f64 / bucket_count as f64,
            load_factor: key_count as f64 / bucket_count as f64,
            mean_chain: key_count as f64 / used_count.max(1) as f64,
            dupe_count: key_count - used_count,
            shared_bucket_count: occupancy.at_least(2),
            longest,
            longest_ideal: ideal.longest_mean(),
            longest_p,
            bucket_percentiles: occupancy.bucket_percentiles(),
            item_percentiles: occupancy.item_percentiles(),
            probes_hit: occupancy.probes_hit(),
            probes_hit_ideal: ideal.probes_hit(1),
            probes_miss: occupancy.probes_miss(),
            probes_miss_ideal: occupancy.probes_miss_ideal(),
            cost_ratio: occupancy.cost_ratio(),
            chi_square,
            spread_p,
            fit,
            bits_never_set: if key_count == 0 { 0 } else { width & !stats.bits().ever_set() },
            bits_always_set: if key_count == 0 { 0 } else { width & stats.bits().always_set() },
            test_count: 2
                + u32::from(fit.is_some())
                + collisions.len() as u32
                + u32::from(worst_bit.is_some()),
            collisions,
            worst_bit,
            verdict: Verdict::Fits,
            rows: ideal.rows(occupancy.bucket_count_by_size()),
        };
        report.verdict = report.judge();
        report
    }

    /// The buckets alone decide: a hash may collide in full and still be what a table needs, or
    /// have dead bits that the reduction does not use.
    fn judge(&self) -> Verdict {
        let p = sidak(self.spread_p.min(self.longest_p), 2.0);
        if bits_of(p) > FAILURE_BITS {
            Verdict::Worse { cost_ratio: self.cost_ratio }
        } else if self.chi_square.is_some_and(|test| test.z < MORE_EVEN_Z) {
            Verdict::Structured
        } else {
            Verdict::Fits
        }
    }
}

fn collisions(stats: &PartialStats) -> Vec<Collisions> {
    let (width_bits, sampling) = (stats.setup().specimen().width_bits(), stats.setup().sampling());
    let hashes = stats.sorted_hashes();
    let share = 0.5_f64.powi(sampling.cast_signed());
    let mut found = vec![of_window("all", width_bits, &hashes, stats.key_count(), share)];
    // Hashes are sampled whole, so that a part of them says nothing of the parts left out.
    if width_bits == 64 && sampling == 0 {
        let mut part: Vec<u64> = hashes.iter().map(|hash| hash >> 32).collect();
        found.push(of_window("high 32", 32, &part, stats.key_count(), share));
        part = hashes.iter().map(|hash| hash & u64::from(u32::MAX)).collect();
        part.sort_unstable();
        found.push(of_window("low 32", 32, &part, stats.key_count(), share));
    }
    found
}

fn of_window(
    window: &'static str,
    width_bits: u32,
    sorted: &[u64],
    key_count: u64,
    share: f64,
) -> Collisions {
    let runs = sorted.chunk_by(|left, right| left == right).filter(|run| run.len() > 1);
    let pairs = |run: &[u64]| run.len() as u64 * (run.len() as u64 - 1) / 2;
    let pair_count = runs.clone().map(pairs).sum();
    let n = key_count as f64;
    let all = n * (n - 1.0).max(0.0) / 2.0 * 0.5_f64.powi(width_bits.cast_signed());
    let pair_count_ideal = all * share;
    Collisions {
        window: window.into(),
        width_bits,
        pair_count,
        pair_count_ideal,
        p: poisson_at_least(pair_count, pair_count_ideal),
        shared: runs.map(|run| run[0]).take(SHARED_MAX).collect(),
        examples: Vec::new(),
    }
}

fn worst_bit(stats: &PartialStats) -> Option<BitBias> {
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
