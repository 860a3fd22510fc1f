//! Whether two measurements differ by more than chance.
//!
//! # Source
//!
//! Welch, "The generalization of Student's problem when several different population variances are
//! involved", 1947. Press et al., Numerical Recipes, 6.4: the incomplete beta function by its
//! continued fraction.

use crate::probability::{ln_gamma, normal_two_sided};
use crate::study::Spread;

/// Degrees of freedom from which Student's distribution is not told from the normal.
const DOF_MANY: f64 = 1e6;
/// Tries from which the binomial distribution is not told from the normal.
const TRIES_MANY: f64 = 1e6;

/// Returns the probability that the means of two spreads differ as much if chance alone made it, or
/// `None` if one has fewer than two runs.
///
/// # Examples
///
/// ```
/// use splitpoint_lab::{chance, study::Spread};
///
/// let left = Spread::of(&[0.0, 27.5, 21.0, 19.0, 23.6, 17.0, 17.9]);
/// let right = Spread::of(&[0.0, 27.1, 22.0, 20.8, 23.4, 23.4, 23.5]);
/// assert!(chance::welch_p(&left, &right).is_some_and(|p| p > 0.2));
/// ```
pub fn welch_p(left: &Spread, right: &Spread) -> Option<f64> {
    if left.run_count < 2 || right.run_count < 2 {
        return None;
    }
    let of = |spread: &Spread| {
        let n = spread.run_count as f64;
        (spread.deviation.powi(2) / n, n - 1.0)
    };
    let ((left_variance, left_dof), (right_variance, right_dof)) = (of(left), of(right));
    let variance = left_variance + right_variance;
    if variance == 0.0 {
        let is_same = left.mean.total_cmp(&right.mean).is_eq();
        return Some(if is_same { 1.0 } else { 0.0 });
    }
    let t = (left.mean - right.mean) / variance.sqrt();
    let dof =
        variance.powi(2) / (left_variance.powi(2) / left_dof + right_variance.powi(2) / right_dof);
    Some(student_two_sided(t, dof))
}

/// Returns the probability that Student's variable of `dof` degrees is further than `t` from 0.
pub fn student_two_sided(t: f64, dof: f64) -> f64 {
    if dof > DOF_MANY {
        return normal_two_sided(t);
    }
    beta_lower(dof / 2.0, 0.5, dof / (dof + t * t))
}

/// Returns the probability that a count splits as unevenly as `left` and `right`, where each of the
/// `left + right` falls to the left with probability `share`; on both sides.
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

    /// From tables: Abramowitz and Stegun 26.10, and closed forms for 1 and 2 degrees.
    #[test]
    fn student_has_the_values_of_tables() {
        for (t, dof, p) in [
            (12.706_205, 1.0, 0.05),
            (4.302_653, 2.0, 0.05),
            (2.228_139, 10.0, 0.05),
            (1.980, 120.0, 0.05),
            (3.169_273, 10.0, 0.01),
            (0.0, 5.0, 1.0),
        ] {
            let found = student_two_sided(t, dof);
            assert!((found - p).abs() < 1e-4, "t {t} of {dof} degrees: {found} is not {p}");
        }
        let normal = student_two_sided(2.0, 2e6);
        assert!((student_two_sided(2.0, 9e5) - normal).abs() < 1e-6);
    }

    /// Welch's own kind of example: unequal variances, worked by hand.
    ///
    /// Means 2 and 4, variances 1 and 4 over 3 and 5 runs: `t = -2 / sqrt(1/3 + 4/5)` and
    /// `dof = (17/15)^2 / ((1/9) / 2 + (16/25) / 4)`.
    #[test]
    fn welch_weighs_both_variances() {
        let spread =
            |run_count, mean, deviation| Spread { run_count, mean, deviation, ..Spread::default() };
        let p = welch_p(&spread(3, 2.0, 1.0), &spread(5, 4.0, 2.0)).unwrap();
        let t = 2.0 / (17.0_f64 / 15.0).sqrt();
        let dof = (17.0_f64 / 15.0).powi(2) / (1.0 / 18.0 + 4.0 / 25.0);
        assert!((p - student_two_sided(t, dof)).abs() < 1e-12);
        assert!((0.1..0.12).contains(&p), "{p}");
        assert_eq!(welch_p(&spread(7, 2.0, 0.0), &spread(7, 2.0, 0.0)), Some(1.0));
        assert_eq!(welch_p(&spread(7, 2.0, 0.0), &spread(7, 3.0, 0.0)), Some(0.0));
        assert_eq!(welch_p(&spread(1, 2.0, 0.0), &spread(7, 3.0, 1.0)), None);
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
