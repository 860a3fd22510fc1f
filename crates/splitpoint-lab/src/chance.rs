//! Tests whether two measurements differ by more than chance.
//!
//! # Source
//!
//! Mann and Whitney, "On a test of whether one of two random variables is stochastically larger
//! than the other", 1947; the variance with ties as in Hollander and Wolfe, Nonparametric
//! Statistical Methods, 4.1. Press et al., Numerical Recipes, 6.4: the incomplete beta function by
//! its continued fraction. Welch, "The generalization of Student's problem when several different
//! population variances are involved", 1947.

use serde::Serialize;

use crate::probability::{ln_gamma, normal_two_sided};

/// Tries from which the normal distribution replaces the binomial.
const TRIES_MANY: f64 = 1e6;

/// Fewest runs of each side; with fewer, ranks cannot reach the probabilities that count here.
const RUNS_MIN: usize = 8;

/// Returns the two-sided probability that chance alone makes the ranks of two sets of runs differ
/// as much, or `None` if one has fewer than eight runs.
///
/// Mann and Whitney's test: of all pairs of a run on the left and one on the right, how many have
/// the longer one on the left, a tie counting half; by the normal distribution, with the variance
/// that ties leave and a correction for continuity. One slow run counts like any other that is
/// slower than those of the other side, as it does in a median.
///
/// # Examples
///
/// ```
/// use splitpoint_lab::chance::ranks_p;
///
/// let quiet = [5.1, 5.2, 5.3, 5.4, 5.5, 5.6, 5.7, 5.8];
/// let one_slow_run = [4.1, 4.2, 4.3, 4.4, 4.5, 4.6, 4.7, 900.0];
/// assert!(ranks_p(&quiet, &one_slow_run).is_some_and(|p| p < 0.02));
/// assert!(ranks_p(&quiet, &quiet).is_some_and(|p| p > 0.99));
/// ```
pub fn ranks_p(left: &[f64], right: &[f64]) -> Option<f64> {
    if left.len().min(right.len()) < RUNS_MIN {
        return None;
    }
    let mut all: Vec<(f64, bool)> = left.iter().map(|&run| (run, true)).collect();
    all.extend(right.iter().map(|&run| (run, false)));
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (mut rank_sum, mut ties, mut passed) = (0.0, 0.0, 0.0);
    for tied in all.chunk_by(|one, other| one.0.total_cmp(&other.0).is_eq()) {
        let count = tied.len() as f64;
        let of_left = tied.iter().filter(|(_, is_left)| *is_left).count() as f64;
        rank_sum += of_left * (passed + f64::midpoint(count, 1.0));
        ties += count.powi(3) - count;
        passed += count;
    }
    let (n, m) = (left.len() as f64, right.len() as f64);
    let away = (rank_sum - n * (n + 1.0) / 2.0 - n * m / 2.0).abs();
    let total = n + m;
    let variance = n * m / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)));
    if variance <= 0.0 {
        return Some(1.0);
    }
    Some(normal_two_sided((away - 0.5).max(0.0) / variance.sqrt()))
}

/// Mean and standard deviation of some runs, which is all that most papers print.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Moments {
    /// Runs.
    pub run_count: u64,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation, with one run less as the divisor.
    pub deviation: f64,
}

impl Moments {
    /// Returns those of `runs`; without runs, zeros.
    pub fn of(runs: &[f64]) -> Self {
        let count = runs.len() as f64;
        let mean = runs.iter().sum::<f64>() / count.max(1.0);
        let squares: f64 = runs.iter().map(|run| (run - mean).powi(2)).sum();
        let deviation = (squares / (count - 1.0).max(1.0)).sqrt();
        Self { run_count: runs.len() as u64, mean, deviation }
    }
}

/// Welch's test of the difference of two means.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Welch {
    /// Difference of the means, right less left, in its standard errors.
    pub t: f64,
    /// Degrees of freedom.
    pub dof: f64,
    /// Two-sided probability that equal means differ as much.
    pub p: f64,
}

/// Tests whether the means of two sets of runs differ, whose variances may differ too.
///
/// Returns `None` if one has fewer than two runs, or if none of them varies.
///
/// # Examples
///
/// ```
/// use splitpoint_lab::chance::{Moments, welch};
///
/// let before = Moments { run_count: 10, mean: 4300.7, deviation: 15.73 };
/// let after = Moments { run_count: 10, mean: 4582.9, deviation: 12.55 };
/// assert!(welch(before, after).is_some_and(|test| test.p < 1e-12));
/// ```
pub fn welch(left: Moments, right: Moments) -> Option<Welch> {
    let share = |it: Moments| it.deviation.powi(2) / it.run_count as f64;
    let (one, other) = (share(left), share(right));
    let sum = one + other;
    if left.run_count.min(right.run_count) < 2 || !sum.is_normal() {
        return None;
    }
    let t = (right.mean - left.mean) / sum.sqrt();
    let term = |share: f64, it: Moments| share.powi(2) / (it.run_count as f64 - 1.0);
    let dof = sum.powi(2) / (term(one, left) + term(other, right));
    Some(Welch { t, dof, p: beta_lower(dof / 2.0, 0.5, dof / (dof + t * t)) })
}

/// Returns the two-sided probability that a count splits as unevenly as `left` and `right`, if each
/// of the `left + right` falls to the left with probability `share`.
///
/// Of two Poisson counts this tests whether their means are as `share` to `1 - share`.
pub fn split_p(left: f64, right: f64, share: f64) -> f64 {
    let total = left + right;
    if total == 0.0 || share <= 0.0 || share >= 1.0 {
        return 1.0;
    }
    let expected = total * share;
    if total > TRIES_MANY {
        return normal_two_sided((left - expected) / (expected * (1.0 - share)).sqrt());
    }
    // At least `left` to the left, or at most.
    let tail = if left >= expected {
        if left == 0.0 { 1.0 } else { beta_lower(left, right + 1.0, share) }
    } else if right == 0.0 {
        1.0
    } else {
        beta_lower(right, left + 1.0, 1.0 - share)
    };
    (2.0 * tail).min(1.0)
}

/// Returns the regularized incomplete beta function.
fn beta_lower(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return if x <= 0.0 { 0.0 } else { 1.0 };
    }
    let factor =
        (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp();
    let value = if x < (a + 1.0) / (a + b + 2.0) {
        factor * beta_fraction(a, b, x) / a
    } else {
        1.0 - factor * beta_fraction(b, a, 1.0 - x) / b
    };
    value.clamp(0.0, 1.0)
}

/// Lentz's evaluation of the continued fraction.
fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let bounded = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut above = 1.0;
    let mut below = 1.0 / bounded(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = below;
    let mut step = 0.0;
    loop {
        step += 1.0;
        let even = step * (b - step) * x / ((a + 2.0 * step - 1.0) * (a + 2.0 * step));
        below = 1.0 / bounded(1.0 + even * below);
        above = bounded(1.0 + even / above);
        fraction *= below * above;
        let odd = -(a + step) * (a + b + step) * x / ((a + 2.0 * step) * (a + 2.0 * step + 1.0));
        below = 1.0 / bounded(1.0 + odd * below);
        above = bounded(1.0 + odd / above);
        fraction *= below * above;
        if (below * above - 1.0).abs() < 1e-15 || step > 1e6 {
            return fraction;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 8 and 8 runs that do not overlap: `u = 0` of 64, away by 32, variance `64 * 17 / 12`.
    #[test]
    fn ranks_have_the_values_worked_by_hand() {
        let runs = |first: u32| -> Vec<f64> { (first..first + 8).map(f64::from).collect() };
        let apart = ranks_p(&runs(0), &runs(8)).unwrap();
        let z = 31.5 / (64.0_f64 * 17.0 / 12.0).sqrt();
        assert!((apart - normal_two_sided(z)).abs() < 1e-12 && apart < 0.001, "{apart}");
        // Four fours of equal runs, two of each side: no side is ahead.
        let ties = [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0];
        assert_eq!(ranks_p(&ties, &ties), Some(1.0));
        // Two values: six of the left are 0, two 1; on the right two and six. u = 16 of 64, and the
        // ties of 8 and 8 take `2 (512 - 8) / (16 * 15)` off 17.
        let (low, high) = ([0., 0., 0., 0., 0., 0., 1., 1.], [0., 0., 1., 1., 1., 1., 1., 1.]);
        let variance: f64 = 64.0 / 12.0 * (17.0 - 1008.0 / 240.0);
        let expected = normal_two_sided(15.5 / variance.sqrt());
        assert!((ranks_p(&low, &high).unwrap() - expected).abs() < 1e-12);
        assert_eq!(ranks_p(&low, &high), ranks_p(&high, &low));
        assert_eq!(ranks_p(&[7.0; 15], &[7.0; 15]), Some(1.0));
        assert_eq!(ranks_p(&[7.0; 7], &[1.0; 15]), None);
    }

    /// The quantiles of Student's distribution for 5 % on both sides, from a table.
    #[test]
    fn welch_s_test_of_equal_variances_is_student_s() {
        for (run_count, quantile) in [(2, 4.303), (6, 2.228), (16, 2.042), (61, 1.980)] {
            let left = Moments { run_count, mean: 0.0, deviation: 1.0 };
            let mean = quantile * (2.0 / run_count as f64).sqrt();
            let test = welch(left, Moments { mean, ..left }).unwrap();
            assert!((test.dof - 2.0 * (run_count as f64 - 1.0)).abs() < 1e-9);
            assert!((test.p - 0.05).abs() < 1e-4, "{test:?}");
        }
        let still = Moments { run_count: 5, mean: 1.0, deviation: 0.0 };
        assert_eq!(welch(still, still), None);
        assert_eq!(welch(Moments::of(&[1.0]), Moments::of(&[1.0, 2.0])), None);
    }

    /// Variances 1 and 9 of four and nine runs: dof = 1.25^2 / (0.25^2/3 + 1^2/8).
    #[test]
    fn welch_s_degrees_of_freedom_are_those_worked_by_hand() {
        let left = Moments { run_count: 4, mean: 3.0, deviation: 1.0 };
        let right = Moments { run_count: 9, mean: 1.0, deviation: 3.0 };
        let test = welch(left, right).unwrap();
        assert!((test.dof - 1.5625 / (0.0625 / 3.0 + 0.125)).abs() < 1e-9);
        assert!((test.t + 2.0 / 1.25_f64.sqrt()).abs() < 1e-12);
        let moments = Moments::of(&[1.0, 2.0, 4.0, 5.0]);
        assert_eq!((moments.mean, moments.deviation), (3.0, (10.0_f64 / 3.0).sqrt()));
    }

    #[test]
    fn one_slow_run_does_not_hide_a_difference() {
        let mut left: Vec<f64> = (0..15).map(|n| 1.0 + 0.01 * f64::from(n)).collect();
        let right: Vec<f64> = left.iter().map(|run| run + 3.0).collect();
        left[14] = 1e6;
        assert!(ranks_p(&left, &right).unwrap() < 0.001);
    }

    #[test]
    fn a_split_is_judged_by_the_binomial_distribution() {
        // 9 or 10 of 10 coins: 11 of 1024, on both sides.
        assert!((split_p(9.0, 1.0, 0.5) - 22.0 / 1024.0).abs() < 1e-12);
        assert!((split_p(1.0, 9.0, 0.5) - 22.0 / 1024.0).abs() < 1e-12);
        assert!((split_p(0.0, 4.0, 0.25) - 2.0 * 0.75_f64.powi(4)).abs() < 1e-12);
        assert_eq!((split_p(5.0, 5.0, 0.5), split_p(0.0, 0.0, 0.5)), (1.0, 1.0));
        assert!(split_p(1e9, 1e9 + 1e5, 0.5) > 0.01);
        assert!(split_p(1e9, 1e9 + 1e6, 0.5) < 1e-50);
    }
}
