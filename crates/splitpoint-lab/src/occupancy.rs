//! Statistics of the number of keys in the buckets, beside those of an ideal hash.
//!
//! ```text
//! n keys, m buckets, c_j keys in bucket j, which an ideal hash picks with probability p_j
//! ```
//!
//! # Source
//!
//! Knuth, The Art of Computer Programming 2, 3.3.1, and 3, 6.4; Pearson, 1900; Haldane, 1937, for
//! the variance of chi-square with few keys a bucket.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use splitpoint::linear::Geometry;
use splitpoint::stats::Ideal;

use crate::pairs::{Equal, PairChance};
use crate::probability::{chi_square_lower, chi_square_upper, poisson_at_most};

/// With fewer pairs in one bucket than this, their number is compared with Poisson instead of
/// chi-square.
const PAIRS_FEW: f64 = 50.0;

/// Buckets with the same probability, by their number of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kind {
    /// An ideal hash picks one of these buckets with probability `1 / choices`.
    choices: u64,
    bucket_count_by_size: BTreeMap<u64, u64>,
}

/// The numbers of keys in the buckets of a table.
#[derive(Clone, Debug)]
pub struct Occupancy {
    kinds: Vec<Kind>,
    all: BTreeMap<u64, u64>,
    bucket_count: u64,
    key_count: u64,
    ideal: Ideal,
}

/// Percentiles by nearest rank: the item at index `floor(N p)` of the sorted list, or the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    /// The median.
    pub p50: u64,
    /// Nine of ten are at or below.
    pub p90: u64,
    /// 99 of 100 are at or below.
    pub p99: u64,
}

/// A statistic, with the probability that an ideal hash gives one as large or larger.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Test {
    /// The statistic.
    pub value: f64,
    /// Its degrees of freedom.
    pub dof: f64,
    /// Deviation from its mean, in standard deviations.
    pub z: f64,
    /// Probability of this value or a larger one.
    pub p: f64,
}

impl Occupancy {
    /// Returns the occupancy of a table whose buckets are all equally likely.
    ///
    /// # Panics
    ///
    /// If there are no buckets.
    pub fn uniform(bucket_count_by_size: BTreeMap<u64, u64>) -> Self {
        let bucket_count = bucket_count_by_size.values().sum();
        let kind = Kind { choices: bucket_count, bucket_count_by_size };
        Self::new(vec![kind], |key_count| Ideal::uniform(bucket_count, key_count))
    }

    /// Returns the occupancy of a linear-hashed table, from the sizes of the buckets that this
    /// doubling has split and of those that it has not.
    pub(crate) fn split(geometry: Geometry, sizes: [BTreeMap<u64, u64>; 2]) -> Self {
        let [divided, whole] = sizes;
        let choices = 1 << geometry.level();
        let kinds = vec![
            Kind { choices: 2 * choices, bucket_count_by_size: divided },
            Kind { choices, bucket_count_by_size: whole },
        ];
        Self::new(kinds, |key_count| Ideal::new(geometry, key_count))
    }

    fn new(kinds: Vec<Kind>, ideal: impl FnOnce(u64) -> Ideal) -> Self {
        let mut all = BTreeMap::new();
        for kind in &kinds {
            for (&size, &count) in &kind.bucket_count_by_size {
                if count == 0 {
                    continue;
                }
                *all.entry(size).or_insert(0) += count;
            }
        }
        let bucket_count = all.values().sum();
        let key_count = all.iter().map(|(size, count)| size * count).sum();
        Self { kinds, all, bucket_count, key_count, ideal: ideal(key_count) }
    }

    /// Returns the buckets by the number of their keys.
    pub fn bucket_count_by_size(&self) -> &BTreeMap<u64, u64> {
        &self.all
    }

    /// Returns the number of buckets.
    pub fn bucket_count(&self) -> u64 {
        self.bucket_count
    }

    /// Returns the number of keys.
    pub fn key_count(&self) -> u64 {
        self.key_count
    }

    /// Returns the ideal for as many keys.
    pub fn ideal(&self) -> Ideal {
        self.ideal
    }

    /// Returns the number of buckets with `size` keys or more.
    pub fn at_least(&self, size: u64) -> u64 {
        self.all.range(size..).map(|(_, count)| count).sum()
    }

    /// Returns the number of keys in the fullest bucket.
    pub fn longest(&self) -> u64 {
        self.all.last_key_value().map_or(0, |(&size, _)| size)
    }

    /// Returns the sizes of the buckets that hold a key, each bucket counting once.
    pub fn bucket_percentiles(&self) -> Percentiles {
        percentiles(&self.all.range(1..).map(|(&size, &count)| (size, count)))
    }

    /// Returns the size of the bucket that a key is in, each key counting once.
    pub fn item_percentiles(&self) -> Percentiles {
        percentiles(&self.all.range(1..).map(|(&size, &count)| (size, size * count)))
    }

    /// Returns the pairs of keys in one bucket: `sum of c (c - 1) / 2`.
    pub fn pair_count(&self) -> u128 {
        let pairs = |(&size, &count): (&u64, &u64)| {
            u128::from(size) * u128::from(size.saturating_sub(1)) / 2 * u128::from(count)
        };
        self.all.iter().map(pairs).sum()
    }

    /// Returns the pairs expected of an ideal hash: `n (n - 1) / 2` times the sum of `p^2`.
    pub fn pair_count_ideal(&self) -> f64 {
        let n = self.key_count as f64;
        n * (n - 1.0).max(0.0) / 2.0 * self.ideal.pair_probability()
    }

    /// Returns Pearson's chi-square of the buckets, or `None` without two buckets and two keys.
    ///
    /// `sum of (c - n p)^2 / (n p)`, of `m - 1` degrees. Its variance for any number of keys is
    /// `2 (m - 1) + (sum of 1/p - m^2 - 2 m + 2) / n`.
    pub fn chi_square(&self) -> Option<Test> {
        if self.bucket_count < 2 || self.key_count < 2 {
            return None;
        }
        let (n, m) = (self.key_count as f64, self.bucket_count as f64);
        let (mut value, mut variance) = (-n, 2.0 * (m - 1.0) + (2.0 - 2.0 * m - m * m) / n);
        for Kind { choices, bucket_count_by_size } in &self.kinds {
            let square = |(&size, &count): (&u64, &u64)| {
                u128::from(size) * u128::from(size) * u128::from(count)
            };
            let squares: u128 = bucket_count_by_size.iter().map(square).sum();
            let buckets: u64 = bucket_count_by_size.values().sum();
            value += squares as f64 * *choices as f64 / n;
            variance += buckets as f64 * *choices as f64 / n;
        }
        let dof = m - 1.0;
        let value = value.max(0.0);
        let z = (value - dof) / variance.sqrt();
        Some(Test { value, dof, z, p: chi_square_upper(value, dof) })
    }

    /// Returns the probability that an ideal hash spreads the keys as unevenly or more so: that it
    /// puts as many pairs of keys into one bucket.
    ///
    /// Exact for up to 64 keys; beyond, the p of [`Self::chi_square`] with the skewness that it has
    /// in this table.
    pub fn spread_p(&self) -> f64 {
        self.pair_chance().at_least(self.pair_count())
    }

    /// Returns the probability that an ideal hash spreads the keys as evenly or more so.
    ///
    /// Exact for up to 64 keys; beyond, by Poisson where an ideal hash gives few pairs, else by
    /// [`Self::chi_square`].
    pub fn even_p(&self) -> f64 {
        let pairs = self.pair_count();
        let exact = self.pair_chance().at_most(pairs);
        exact.unwrap_or_else(|| match self.chi_square() {
            Some(Test { value, dof, .. }) if self.pair_count_ideal() >= PAIRS_FEW => {
                chi_square_lower(value, dof)
            }
            _ => {
                let pairs = u64::try_from(pairs).unwrap_or(u64::MAX);
                poisson_at_most(pairs, self.pair_count_ideal())
            }
        })
    }

    fn pair_chance(&self) -> PairChance {
        let equal = |kind: &Kind| Equal {
            probability: 1.0 / kind.choices.max(1) as f64,
            bucket_count: kind.bucket_count_by_size.values().sum(),
        };
        let buckets: Vec<Equal> = self.kinds.iter().map(equal).collect();
        PairChance::new(&buckets, self.key_count)
    }

    /// Returns how well the sizes of the buckets fit those of an ideal hash, or `None` if fewer
    /// than three classes of sizes are expected.
    ///
    /// `sum of (N_k - E_k)^2 / E_k` over sizes `k`, pooled until 5 buckets are expected. It has
    /// `classes - 2` degrees of freedom, because both the buckets and the keys add up.
    pub fn fit(&self) -> Option<Test> {
        const EXPECTED_MIN: f64 = 5.0;
        let rows = self.ideal.rows(&self.all);
        let mut classes: Vec<(f64, f64)> = Vec::new();
        let mut open = (0.0, 0.0);
        for row in rows {
            open = (open.0 + row.bucket_count as f64, open.1 + row.ideal_bucket_count);
            if open.1 >= EXPECTED_MIN {
                classes.push(open);
                open = (0.0, 0.0);
            }
        }
        let last = classes.last_mut()?;
        *last = (last.0 + open.0, last.1 + open.1);
        if classes.len() < 3 {
            return None;
        }
        let value =
            classes.iter().map(|(found, expected)| (found - expected).powi(2) / expected).sum();
        let dof = classes.len() as f64 - 2.0;
        let z = (value - dof) / (2.0 * dof).sqrt();
        Some(Test { value, dof, z, p: chi_square_upper(value, dof) })
    }

    /// Returns the mean number of keys that a hit compares, each key found once: `1 + pairs / n`,
    /// or 0 without keys.
    pub fn probes_hit(&self) -> f64 {
        if self.key_count == 0 {
            return 0.0;
        }
        1.0 + self.pair_count() as f64 / self.key_count as f64
    }

    /// Returns the mean number of keys that a miss compares: the sum of `p c`.
    pub fn probes_miss(&self) -> f64 {
        let of_kind = |kind: &Kind| {
            let keys: u64 = kind.bucket_count_by_size.iter().map(|(size, n)| size * n).sum();
            keys as f64 / kind.choices as f64
        };
        self.kinds.iter().map(of_kind).sum()
    }

    /// Returns the mean of `weight`, applied to the size of the bucket that a miss reads.
    pub(crate) fn mean_of_miss(&self, weight: impl Fn(u64) -> f64) -> f64 {
        let of_kind = |kind: &Kind| {
            let sizes = kind.bucket_count_by_size.iter();
            let sum: f64 = sizes.map(|(&size, &count)| weight(size) * count as f64).sum();
            sum / kind.choices as f64
        };
        self.kinds.iter().map(of_kind).sum()
    }

    /// Returns the same for an ideal hash: `n` times the sum of `p^2`.
    pub fn probes_miss_ideal(&self) -> f64 {
        self.key_count as f64 * self.ideal.pair_probability()
    }

    /// Returns the cost of a hit in units of the ideal; 1 without keys.
    ///
    /// The Red Dragon book and Perl call it the quality score of a hash.
    pub fn cost_ratio(&self) -> f64 {
        if self.key_count == 0 { 1.0 } else { self.probes_hit() / self.ideal.probes_hit(1) }
    }
}

/// Percentiles of `(value, weight)` by rising value.
pub(crate) fn percentiles(values: &(impl Iterator<Item = (u64, u64)> + Clone)) -> Percentiles {
    let total: u64 = values.clone().map(|(_, weight)| weight).sum();
    let at = |hundredths: u64| {
        let rank = u128::from(total) * u128::from(hundredths) / 100;
        let mut passed = 0_u128;
        let mut found = 0;
        for (value, weight) in values.clone() {
            found = value;
            passed += u128::from(weight);
            if passed > rank {
                break;
            }
        }
        found
    };
    Percentiles { p50: at(50), p90: at(90), p99: at(99) }
}
