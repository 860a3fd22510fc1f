//! What an ideal hash gives in a table: the right-hand column of the histogram.
//!
//! An ideal hash sends each of `n` keys to bucket `b` with a fixed probability, independently of
//! the others. In the middle of a round of linear hashing, that probability is not the same for all
//! buckets, so their sizes are a mixture of two binomials. Comparing them with a single one of mean
//! `n / N` would blame the hash for the shape of the table.
//!
//! ```text
//! level l, split s        buckets          a key lands in one with probability
//!   divided                2 s              2^-(l+1)
//!   whole                  2^l - s          2^-l
//! ```
//!
//! All functions are pure, and none returns NaN for 1 to 2^32 buckets and 0 to 10^10 keys.
//!
//! # Source
//!
//! Knuth, The Art of Computer Programming 3, 6.4 (separate chaining); Larson, "Dynamic hash
//! tables", CACM 1988 (expected search lengths of a linear-hashed table at any split pointer);
//! Lever, "Linux kernel hash table behavior", 2000 (the histograms); Loader, "Fast and accurate
//! computation of binomial probabilities", 2000 (the binomial without cancellation).

use std::collections::{BTreeMap, BTreeSet};

use super::{ChainRow, percent};
use crate::linear::Geometry;

/// A sum ends at a term that is smaller than this share of it.
const NEGLIGIBLE: f64 = 1e-18;

/// Probability below which the length of a chain is no longer put down to chance.
///
/// 2^-40: if a fresh table with an ideal hash were checked every second for a thousand years, the
/// probability of a single false alarm would be 3 %.
pub(super) const CHANCE_MIN: f64 = 1.0 / 1_099_511_627_776.0;

/// Expected number of buckets from which a size that was not counted still has a row.
pub(super) const IDEAL_ROW_MIN: f64 = 1e-6;

/// Largest number of rows that a histogram has for the sake of the ideal.
pub(super) const IDEAL_ROWS_MAX: usize = 1024;

/// The keys that one bucket receives from an ideal hash: `trials` keys, each landing in it with
/// probability `1 / choices`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Binomial {
    trials: u64,
    choices: u64,
}

impl Binomial {
    /// Returns the number of keys in the bucket if only one is possible.
    fn certain(self) -> Option<u64> {
        (self.trials == 0 || self.choices == 1).then_some(self.trials)
    }

    /// Returns the most likely number of keys: `floor((n + 1) p)`.
    fn mode(self) -> u64 {
        self.certain().unwrap_or((self.trials + 1) / self.choices)
    }

    /// Returns the probability that the bucket gets `size` keys: `C(n, k) p^k (1-p)^(n-k)`.
    ///
    /// In Loader's form, which takes the differences of large logarithms by a series, so that 10^10
    /// keys cost no digits.
    pub(super) fn probability(self, size: u64) -> f64 {
        if let Some(certain) = self.certain() {
            return if size == certain { 1.0 } else { 0.0 };
        }
        if size > self.trials {
            return 0.0;
        }
        let (n, k, rest) = (real(self.trials), real(size), real(self.trials - size));
        let p = 1.0 / real(self.choices);
        if size == 0 {
            return (n * (-p).ln_1p()).exp();
        }
        if size == self.trials {
            return (n * p.ln()).exp();
        }
        let exponent = stirling_error(self.trials)
            - stirling_error(size)
            - stirling_error(self.trials - size)
            - deviance(k, n * p)
            - deviance(rest, n * (1.0 - p));
        let scale = std::f64::consts::TAU * k * (rest / n);
        exponent.exp() / scale.sqrt()
    }

    /// Returns `P(size + 1) / P(size)`.
    fn ratio_up(self, size: u64) -> f64 {
        let others = real(self.choices - 1);
        real(self.trials - size) / (real(size + 1) * others)
    }

    /// Returns the probability of `size` keys or more.
    ///
    /// It sums from the small side, so that the far tail keeps its digits.
    pub(super) fn at_least(self, size: u64) -> f64 {
        if let Some(certain) = self.certain() {
            return if size <= certain { 1.0 } else { 0.0 };
        }
        if size == 0 {
            return 1.0;
        }
        if size > self.mode() {
            self.sum_up(size, |_| 1.0)
        } else {
            (1.0 - self.sum_down(size - 1, |_| 1.0)).max(0.0)
        }
    }

    /// Returns the mean of `weight(keys)`; `weight` must not grow faster than a power.
    pub(super) fn mean_of(self, weight: impl Fn(u64) -> f64) -> f64 {
        if let Some(certain) = self.certain() {
            return weight(certain);
        }
        let mode = self.mode();
        let below = if mode == 0 { 0.0 } else { self.sum_down(mode - 1, &weight) };
        below + self.sum_up(mode, &weight)
    }

    /// Sums `weight(k) P(k)` over `k >= from`, where `from` is the mode or more.
    fn sum_up(self, from: u64, weight: impl Fn(u64) -> f64) -> f64 {
        let (mut size, mut probability, mut sum) = (from, self.probability(from), 0.0);
        while probability > 0.0 {
            let term = weight(size) * probability;
            sum += term;
            if size >= self.trials || term < sum * NEGLIGIBLE {
                break;
            }
            probability *= self.ratio_up(size);
            size += 1;
        }
        sum
    }

    /// Sums `weight(k) P(k)` over `k <= from`, where `from` is the mode or less.
    fn sum_down(self, from: u64, weight: impl Fn(u64) -> f64) -> f64 {
        let (mut size, mut probability, mut sum) = (from, self.probability(from), 0.0);
        while probability > 0.0 {
            let term = weight(size) * probability;
            sum += term;
            if size == 0 || term < sum * NEGLIGIBLE {
                break;
            }
            size -= 1;
            probability /= self.ratio_up(size);
        }
        sum
    }
}

/// `P(X >= size)` of a [`Binomial`], followed downwards one size at a time.
///
/// A step costs one multiplication, where [`Binomial::at_least`] costs a sum.
struct TailWalk {
    binomial: Binomial,
    size: u64,
    probability: f64,
    at_least: f64,
}

impl TailWalk {
    fn new(binomial: Binomial, size: u64) -> Self {
        let (probability, at_least) = (binomial.probability(size), binomial.at_least(size));
        Self { binomial, size, probability, at_least }
    }

    fn step_down(&mut self) {
        self.size -= 1;
        // Below this limit a product would lose its digits, or stay zero forever.
        let is_followable = self.probability > 1e-290 && self.binomial.certain().is_none();
        self.probability = if is_followable {
            self.probability / self.binomial.ratio_up(self.size)
        } else {
            self.binomial.probability(self.size)
        };
        self.at_least = (self.at_least + self.probability).min(1.0);
    }
}

/// What an ideal hash gives for a number of keys in a table of one shape.
///
/// # Source
///
/// Each function has its formula; the list of sources is at the head of this module's file.
///
/// # Examples
///
/// ```
/// use splitpoint::stats::Ideal;
///
/// // Lever's page cache, 2000: the fullest of 256 buckets with 9785 inodes.
/// let ideal = Ideal::uniform(256, 9785);
/// assert!((ideal.longest_mean() - 56.8).abs() < 0.1);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Ideal {
    keys: u64,
    bucket_count: u64,
    /// The two kinds of buckets, divided in this round and not: how many there are, and the keys of
    /// one.
    kinds: [(u64, Binomial); 2],
}

impl Ideal {
    /// Creates the ideal of a linear-hashed table.
    pub fn new(geometry: Geometry, keys: u64) -> Self {
        let (level, split) = (geometry.level(), geometry.split());
        let whole_count = (1 << level) - split;
        let kinds = [
            (2 * split, Binomial { trials: keys, choices: 2 << level }),
            (whole_count, Binomial { trials: keys, choices: 1 << level }),
        ];
        debug_assert_eq!(kinds[0].0 + kinds[1].0, geometry.bucket_count());
        Self { keys, bucket_count: geometry.bucket_count(), kinds }
    }

    /// Creates the ideal of a table whose buckets are all equally likely.
    ///
    /// # Panics
    ///
    /// If `bucket_count` is 0.
    pub fn uniform(bucket_count: u64, keys: u64) -> Self {
        assert!(bucket_count > 0, "a table has a bucket");
        let of_bucket = Binomial { trials: keys, choices: bucket_count };
        Self { keys, bucket_count, kinds: [(0, of_bucket), (bucket_count, of_bucket)] }
    }

    /// Returns the probability that two keys land in the same bucket: the sum of the squared
    /// probabilities.
    pub fn pair_probability(self) -> f64 {
        let by_kind = self
            .kinds
            .into_iter()
            .map(|(count, keys)| real(count) / real(keys.choices) / real(keys.choices));
        by_kind.sum()
    }

    /// Returns the rows of a histogram, given the number of buckets that were counted of each size.
    ///
    /// # Panics
    ///
    /// If these buckets do not hold as many keys as the ideal.
    pub fn rows(self, bucket_count_by_size: &BTreeMap<u64, u64>) -> Vec<ChainRow> {
        let mut sizes: BTreeSet<u64> = bucket_count_by_size.keys().copied().collect();
        sizes.extend(self.likely_sizes(IDEAL_ROW_MIN, IDEAL_ROWS_MAX));
        let mut item_count_so_far = 0;
        let mut rows = Vec::with_capacity(sizes.len());
        for size in sizes {
            let bucket_count = bucket_count_by_size.get(&size).copied().unwrap_or(0);
            let item_count = size * bucket_count;
            item_count_so_far += item_count;
            rows.push(ChainRow {
                size,
                bucket_count,
                item_count,
                cumulative_percent: percent(item_count_so_far, self.keys),
                ideal_bucket_count: self.bucket_count(size),
            });
        }
        assert_eq!(item_count_so_far, self.keys, "the ideal is of the keys that were counted");
        rows
    }

    /// Returns the expected number of buckets with `size` keys.
    ///
    /// `E[N_k] = sum over kinds of m P(k)`.
    pub fn bucket_count(self, size: u64) -> f64 {
        self.kinds.iter().map(|&(count, keys)| real(count) * keys.probability(size)).sum()
    }

    /// Returns the sizes of which one kind is expected to have `expected_min` buckets or more, or
    /// none if there are more than `count_max` such sizes.
    pub(super) fn likely_sizes(self, expected_min: f64, count_max: usize) -> Vec<u64> {
        let mut sizes = Vec::new();
        for (count, keys) in self.kinds {
            let is_likely = |&size: &u64| real(count) * keys.probability(size) >= expected_min;
            let mode = keys.mode();
            // One more than fits tells "too many" from "just enough".
            sizes.extend((0..mode).rev().take_while(is_likely).take(count_max + 1));
            sizes.extend((mode..=self.keys).take_while(is_likely).take(count_max + 1));
        }
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.len() > count_max {
            sizes.clear();
        }
        sizes
    }

    /// Returns the mean number of lines that a hit probes; 0 without keys.
    ///
    /// A bucket of `k` keys in lines of `b` slots costs the sum of `ceil(i / b)` for `i = 1..=k`,
    /// counted here for all its keys; the mean is over keys: `(1 / n) sum of m P(k) cost(k)`.
    pub fn probes_hit(self, slots_per_line: u64) -> f64 {
        if self.keys == 0 {
            return 0.0;
        }
        let cost = |size: u64| {
            let (full, rest) = (real(size / slots_per_line), real(size % slots_per_line));
            real(slots_per_line) * full * (full + 1.0) / 2.0 + rest * (full + 1.0)
        };
        let all: f64 = self.kinds.iter().map(|&(m, keys)| mean_if(m, keys, cost)).sum();
        all / real(self.keys)
    }

    /// Returns the mean number of lines that a miss probes.
    ///
    /// A missing key lands in a bucket with that bucket's probability, so a divided bucket has half
    /// the weight: `sum of m P(k) max(1, ceil(k / b)) / choices`.
    pub fn probes_miss(self, slots_per_line: u64) -> f64 {
        let lines = |size: u64| real(size.div_ceil(slots_per_line).max(1));
        let by_kind = self
            .kinds
            .iter()
            .map(|&(count, keys)| mean_if(count, keys, lines) / real(keys.choices));
        by_kind.sum()
    }

    /// Returns the probability that some bucket has `size` keys or more.
    ///
    /// `1 - product over buckets of F(size - 1)`, as if the buckets were independent. They are not
    /// quite, since their sizes add up to `n`, which shows in small tables. So the certain cases
    /// are exact: the fullest bucket has at least `n / N` and at most `n` keys.
    pub fn longest_at_least(self, size: u64) -> f64 {
        let tails =
            self.kinds.map(|(count, keys)| if count == 0 { 0.0 } else { keys.at_least(size) });
        self.longest_from_tails(size, tails)
    }

    fn longest_from_tails(self, size: u64, tails: [f64; 2]) -> f64 {
        if size <= self.keys.div_ceil(self.bucket_count) {
            return 1.0;
        }
        if size > self.keys {
            return 0.0;
        }
        // ln of the product, in the form that keeps a tail of 10^-300.
        let mut ln_shorter = 0.0;
        for ((count, _), tail) in self.kinds.into_iter().zip(tails) {
            if count > 0 {
                ln_shorter += real(count) * (-tail).ln_1p();
            }
        }
        -f64::exp_m1(ln_shorter)
    }

    /// Returns the expected number of keys in the fullest bucket.
    ///
    /// `E[max] = sum over k >= 1 of P(max >= k)`.
    pub fn longest_mean(self) -> f64 {
        let mut size = self.first_size_below(NEGLIGIBLE);
        let mut tails = self.kinds.map(|(_, keys)| TailWalk::new(keys, size));
        let mut sum = 0.0;
        while size > 1 {
            size -= 1;
            for tail in &mut tails {
                tail.step_down();
            }
            let [divided, whole] = &tails;
            let term = self.longest_from_tails(size, [divided.at_least, whole.at_least]);
            if term >= 1.0 - 1e-9 {
                return sum + real(size); // The terms of smaller sizes are nearer to 1 still.
            }
            sum += term;
        }
        sum
    }

    /// Returns the size that no bucket exceeds, except with a probability below 2^-40.
    pub fn longest_by_chance(self) -> u64 {
        self.first_size_below(CHANCE_MIN) - 1
    }

    /// Returns the smallest size with `P(max >= size) < limit`, which is 1 or more.
    fn first_size_below(self, limit: f64) -> u64 {
        // `longest_at_least` falls with the size, from 1 at 0 to 0 at n + 1.
        let (mut above, mut below) = (0, self.keys + 1);
        while below - above > 1 {
            let middle = above + (below - above) / 2;
            if self.longest_at_least(middle) < limit {
                below = middle;
            } else {
                above = middle;
            }
        }
        below
    }
}

/// Returns `count` times the mean of `weight`; skips the work for a kind without buckets.
fn mean_if(count: u64, keys: Binomial, weight: impl Fn(u64) -> f64) -> f64 {
    if count == 0 { 0.0 } else { real(count) * keys.mean_of(weight) }
}

/// Returns `ln n! - ln(sqrt(2 pi n) (n / e)^n)`: the error of Stirling's formula, for `n > 0`.
fn stirling_error(n: u64) -> f64 {
    let x = real(n);
    if n <= 15 {
        let factorial: u64 = (1..=n).product();
        return real(factorial).ln() - (std::f64::consts::TAU * x).sqrt().ln() - x * x.ln() + x;
    }
    let square = x * x;
    let series = 1.0 / 1260.0 - (1.0 / 1680.0 - 1.0 / 1188.0 / square) / square;
    (1.0 / 12.0 - (1.0 / 360.0 - series / square) / square) / x
}

/// Returns `x ln(x / mean) + mean - x`, by a series where the two are close (Loader's `bd0`).
fn deviance(x: f64, mean: f64) -> f64 {
    let difference = x - mean;
    if difference.abs() >= 0.1 * (x + mean) {
        return x * (x / mean).ln() - difference;
    }
    // With v = (x - mean) / (x + mean): ln(x / mean) = 2 (v + v^3/3 + v^5/5 + ...).
    let v = difference / (x + mean);
    let (mut sum, mut power, mut odd) = (difference * v, 2.0 * x * v, 1.0);
    loop {
        power *= v * v;
        odd += 2.0;
        let next = sum + power / odd;
        if next.to_bits() == sum.to_bits() {
            return sum;
        }
        sum = next;
    }
}

/// Returns `count` as a real number.
#[expect(clippy::cast_precision_loss, reason = "counts are below 2^53, where it is exact")]
pub(super) fn real(count: u64) -> f64 {
    count as f64
}
