//! How many pairs of keys an ideal hash puts into one bucket: the tails of their number.
//!
//! Pearson's chi-square of equally likely buckets is a linear function of this number. Its usual
//! approximation is far too small for a few keys: of 16 keys in 16 buckets it rules out chance in
//! one of 8,000 tables where one in two million is meant. So few keys get the exact distribution,
//! and more the gamma distribution of the same mean, variance and skewness.
//!
//! # Source
//!
//! The exact distribution is that of Poisson counts on condition of their sum: Good, 1957. The
//! gamma distribution with three moments is Pearson's type III.

use crate::probability::gamma_at_least;

/// Up to so many keys the distribution is exact. The time grows with the fourth power.
const EXACT_KEYS: usize = 64;

/// Buckets that an ideal hash picks with the same probability, and how many they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Equal {
    pub(crate) probability: f64,
    pub(crate) bucket_count: u64,
}

/// The distribution of the number of pairs.
#[derive(Clone, Debug)]
pub(crate) enum PairChance {
    /// The probability of each number.
    Exact(Vec<f64>),
    /// The gamma distribution of this shape, moved to this mean and stretched.
    Gamma { shape: f64, mean: f64, deviation: f64 },
    /// There is one bucket, so all pairs are in it.
    Certain,
}

impl PairChance {
    /// Returns the distribution for all buckets of a table.
    pub(crate) fn new(buckets: &[Equal], key_count: u64) -> Self {
        match usize::try_from(key_count) {
            Ok(keys) if keys <= EXACT_KEYS => Self::Exact(exact(buckets, keys)),
            _ => gamma(buckets, key_count as f64),
        }
    }

    /// Returns the probability of `pairs` or more.
    pub(crate) fn at_least(&self, pairs: u128) -> f64 {
        match self {
            Self::Exact(chances) => chances.iter().skip(index(pairs)).sum::<f64>().min(1.0),
            Self::Gamma { shape, mean, deviation } if pairs > 0 => {
                // The half that is nearer to this number than to the one before counts.
                let away = (pairs as f64 - 0.5 - mean) / deviation;
                gamma_at_least(*shape, shape + away * shape.sqrt())
            }
            Self::Gamma { .. } | Self::Certain => 1.0,
        }
    }

    /// Returns the probability of `pairs` or fewer, or `None` with more keys: this tail of the gamma
    /// distribution is too short.
    pub(crate) fn at_most(&self, pairs: u128) -> Option<f64> {
        match self {
            Self::Exact(chances) => {
                let count = index(pairs).saturating_add(1);
                Some(chances.iter().take(count).sum::<f64>().min(1.0))
            }
            Self::Gamma { .. } => None,
            Self::Certain => Some(1.0),
        }
    }
}

fn index(pairs: u128) -> usize {
    usize::try_from(pairs).unwrap_or(usize::MAX)
}

/// Weights by number of keys, then by number of pairs: what `exp` of the keys' mean makes
/// probabilities.
type Weights = Vec<Vec<f64>>;

fn exact(buckets: &[Equal], keys: usize) -> Vec<f64> {
    let mut all: Weights = vec![vec![1.0]];
    all.extend((1..=keys).map(|_| Vec::new()));
    for kind in buckets.iter().filter(|kind| kind.bucket_count > 0) {
        all = product(&all, &of_equal(*kind, keys));
    }
    let chances = all.pop().unwrap_or_default();
    let sum: f64 = chances.iter().sum();
    chances.into_iter().map(|chance| chance / sum).collect()
}

/// Returns the weights of equally likely buckets together.
fn of_equal(Equal { probability, bucket_count }: Equal, keys: usize) -> Weights {
    let mean = keys as f64 * probability;
    let mut one = vec![1.0];
    for size in 1..=keys {
        one.push(one[size - 1] * mean / size as f64);
    }
    if bucket_count + 1 >= keys as u64 {
        return power(&one, bucket_count as f64);
    }
    let single: Weights = (0..=keys)
        .map(|size| {
            let mut row = vec![0.0; pairs_of(size) + 1];
            row[pairs_of(size)] = one[size];
            row
        })
        .collect();
    (1..bucket_count).fold(single.clone(), |all, _| product(&all, &single))
}

/// Returns the weights of `bucket_count` buckets from those of one, by the recurrence of a power of
/// a series. All terms are positive if there are at least as many buckets as keys, less one.
fn power(one: &[f64], bucket_count: f64) -> Weights {
    let mut all: Weights = vec![vec![1.0]];
    for keys in 1..one.len() {
        let mut row = vec![0.0; pairs_of(keys) + 1];
        for size in 1..=keys {
            let factor =
                (size as f64 * (bucket_count + 1.0) - keys as f64) * one[size] / keys as f64;
            let places = row[pairs_of(size)..].iter_mut();
            places.zip(&all[keys - size]).for_each(|(place, weight)| *place += factor * weight);
        }
        all.push(row);
    }
    all
}

/// Returns the weights of two sets of buckets together.
fn product(left: &Weights, right: &Weights) -> Weights {
    let row = |keys: usize| {
        let mut row = vec![0.0; pairs_of(keys) + 1];
        for (size, of_left) in left.iter().enumerate().take(keys + 1) {
            let of_right = &right[keys - size];
            let weighty = of_right.iter().enumerate().filter(|(_, weight)| **weight > 0.0);
            for (pairs, weight) in weighty {
                let places = row[pairs..].iter_mut();
                places.zip(of_left).for_each(|(place, other)| *place += weight * other);
            }
        }
        row
    };
    (0..left.len()).map(row).collect()
}

fn pairs_of(keys: usize) -> usize {
    keys * keys.saturating_sub(1) / 2
}

/// Returns the distribution by its moments, which are sums over one, two and three pairs of keys.
fn gamma(buckets: &[Equal], n: f64) -> PairChance {
    let sum = |power: i32| -> f64 {
        buckets.iter().map(|kind| kind.bucket_count as f64 * kind.probability.powi(power)).sum()
    };
    let (p2, p3, p4) = (sum(2), sum(3), sum(4));
    let pairs = n * (n - 1.0) / 2.0;
    let paths = n * (n - 1.0) * (n - 2.0);
    let mean = pairs * p2;
    let variance = pairs * p2 * (1.0 - p2) + paths * (p3 - p2 * p2);
    let triangle = p3 - 3.0 * p2 * p3 + 2.0 * p2.powi(3);
    let star = p4 - 3.0 * p2 * p3 + 2.0 * p2.powi(3);
    let chain = p4 - 2.0 * p2 * p3 + p2.powi(3);
    let third = pairs * p2 * (1.0 - p2) * (1.0 - 2.0 * p2)
        + 3.0 * paths * (1.0 - 2.0 * p2) * (p3 - p2 * p2)
        + paths * triangle
        + paths * (n - 3.0) * (star + 3.0 * chain);
    if variance <= 0.0 || third <= 0.0 {
        return PairChance::Certain;
    }
    let shape = 4.0 * variance.powi(3) / (third * third);
    PairChance::Gamma { shape, mean, deviation: variance.sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uniform(bucket_count: u64) -> Vec<Equal> {
        vec![Equal { probability: 1.0 / bucket_count as f64, bucket_count }]
    }

    /// A table of linear hashing: `divided` buckets of `level` bits are divided in two.
    fn split(level: u32, divided: u64) -> Vec<Equal> {
        let choices = 1 << level;
        vec![
            Equal { probability: 0.5 / choices as f64, bucket_count: 2 * divided },
            Equal { probability: 1.0 / choices as f64, bucket_count: choices - divided },
        ]
    }

    /// Puts the keys into buckets in every way.
    fn enumerated(buckets: &[Equal], keys: usize) -> Vec<f64> {
        let each = buckets.iter().flat_map(|kind| (0..kind.bucket_count).map(|_| kind.probability));
        let probabilities: Vec<f64> = each.collect();
        let mut chances = vec![0.0; pairs_of(keys) + 1];
        for mut way in 0..probabilities.len().pow(keys as u32) {
            let (mut sizes, mut chance) = (vec![0; probabilities.len()], 1.0);
            for _ in 0..keys {
                let bucket = way % probabilities.len();
                way /= probabilities.len();
                sizes[bucket] += 1;
                chance *= probabilities[bucket];
            }
            chances[sizes.into_iter().map(pairs_of).sum::<usize>()] += chance;
        }
        chances
    }

    #[test]
    fn few_keys_have_the_distribution_of_all_their_ways() {
        for buckets in [uniform(1), uniform(2), uniform(3), uniform(7), split(1, 1), split(2, 1)] {
            for keys in 0..=6 {
                let expected = enumerated(&buckets, keys);
                let found = exact(&buckets, keys);
                assert_eq!(found.len(), expected.len(), "{keys} keys in {buckets:?}");
                for (pairs, (found, expected)) in found.iter().zip(expected).enumerate() {
                    let context = format!("{pairs} pairs of {keys} keys in {buckets:?}");
                    assert!((found - expected).abs() <= 1e-12, "{found}, {expected}: {context}");
                }
            }
        }
    }

    /// Chance is ruled out as often as it should be: at the limit of a verdict, an ideal hash is beyond
    /// it with at most that probability, and not much more seldom. Both ways of computing meet there.
    #[test]
    fn the_tails_are_those_of_an_ideal_hash() {
        const LIMIT: f64 = 1.0 / 2_097_152.0;
        for (buckets, keys) in [
            (uniform(4), 16),
            (uniform(16), 16),
            (uniform(64), 16),
            (uniform(32), 64),
            (uniform(64), 64),
            (uniform(1024), 64),
            (split(6, 20), 64),
        ] {
            let chances = exact(&buckets, keys);
            let beyond = |chance: &PairChance| {
                let is_beyond = |pairs: &usize| chance.at_least(*pairs as u128) < LIMIT;
                (0..chances.len()).filter(is_beyond).map(|pairs| chances[pairs]).sum::<f64>()
                    / LIMIT
            };
            let context = format!("{keys} keys in {buckets:?}");
            let by_exact = beyond(&PairChance::new(&buckets, keys as u64));
            assert!((0.5..=1.0).contains(&by_exact), "{by_exact} times as often: {context}");
            let by_gamma = beyond(&gamma(&buckets, keys as f64));
            assert!(by_gamma < 16.0, "{by_gamma} times as often: {context}");
        }
    }

    /// The mean, variance and third moment of the exact distribution are those of the formulas.
    #[test]
    fn the_gamma_distribution_has_the_moments_of_the_exact_one() {
        for (buckets, keys) in [(uniform(3), 9), (uniform(50), 20), (split(3, 5), 30)] {
            let chances = exact(&buckets, keys);
            let moment = |of: &dyn Fn(f64) -> f64| -> f64 {
                chances.iter().enumerate().map(|(pairs, chance)| chance * of(pairs as f64)).sum()
            };
            let mean = moment(&|pairs| pairs);
            let variance = moment(&|pairs| (pairs - mean).powi(2));
            let skewness = moment(&|pairs| (pairs - mean).powi(3)) / variance.powf(1.5);
            let PairChance::Gamma { shape, mean: of_gamma, deviation } =
                gamma(&buckets, keys as f64)
            else {
                panic!("there are several buckets")
            };
            for (found, expected) in
                [(of_gamma, mean), (deviation, variance.sqrt()), (2.0 / shape.sqrt(), skewness)]
            {
                assert!((found / expected - 1.0).abs() < 1e-9, "{found}, {expected}: {buckets:?}");
            }
        }
    }

    #[test]
    fn one_bucket_and_no_keys_prove_nothing() {
        for (bucket_count, keys) in [(1, 0), (1, 1), (1, 5), (1, 1000), (5, 0), (5, 1)] {
            let chance = PairChance::new(&uniform(bucket_count), keys);
            let pairs = u128::from(keys * keys.saturating_sub(1) / 2);
            assert!((chance.at_least(pairs) - 1.0).abs() < 1e-12);
            assert!((chance.at_most(pairs).unwrap() - 1.0).abs() < 1e-12);
        }
    }
}
