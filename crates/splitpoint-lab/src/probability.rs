//! Tails of distributions.
//!
//! All functions are total and give no NaN for finite arguments in their domain.
//!
//! # Source
//!
//! Press et al., Numerical Recipes, 6.2: the incomplete gamma function by its series and its
//! continued fraction. Lanczos, 1964: the logarithm of the gamma function.

/// Returns the probability that a chi-square variable of `dof` degrees is `value` or more.
pub fn chi_square_upper(value: f64, dof: f64) -> f64 {
    gamma_tails(dof / 2.0, value / 2.0).1
}

/// Returns the probability that a Poisson variable of this mean is `count` or more.
pub fn poisson_at_least(count: u64, mean: f64) -> f64 {
    if count == 0 { 1.0 } else { gamma_tails(count as f64, mean).0 }
}

/// Returns the probability that a chi-square variable of `dof` degrees is `value` or less.
pub fn chi_square_lower(value: f64, dof: f64) -> f64 {
    gamma_tails(dof / 2.0, value / 2.0).0
}

/// Returns the probability that a Poisson variable of this mean is `count` or less.
pub fn poisson_at_most(count: u64, mean: f64) -> f64 {
    gamma_tails(count as f64 + 1.0, mean).1
}

/// Returns the probability that a gamma variable of this shape, with a scale of 1, is `value` or
/// more.
pub(crate) fn gamma_at_least(shape: f64, value: f64) -> f64 {
    gamma_tails(shape, value).1
}

/// Returns the exact probability that `count` tosses of a coin are as unbalanced as `heads` heads,
/// or more so, on either side.
///
/// # Cost
///
/// O(count).
pub fn coin_two_sided(heads: u64, count: u64) -> f64 {
    let far = heads.max(count - heads);
    if 2 * far == count {
        return 1.0;
    }
    let (n, k) = (count as f64, far as f64);
    let ln_ways = ln_gamma(n + 1.0) - ln_gamma(k + 1.0) - ln_gamma(n - k + 1.0);
    let mut term = (ln_ways - n * std::f64::consts::LN_2).exp();
    let mut sum = term;
    for heads in far..count {
        term *= (count - heads) as f64 / (heads + 1) as f64;
        sum += term;
    }
    (2.0 * sum).min(1.0)
}

/// Returns the ends of the confidence interval for a probability, after `hits` of `count` tries,
/// at `z` standard deviations.
///
/// Source: Wilson, 1927.
pub fn wilson_interval(hits: u64, count: u64, z: f64) -> [f64; 2] {
    if count == 0 {
        return [0.0, 1.0];
    }
    let n = count as f64;
    let rate = hits as f64 / n;
    let (scale, middle) = (1.0 + z * z / n, rate + z * z / (2.0 * n));
    let reach = z * (rate * (1.0 - rate) / n + z * z / (4.0 * n * n)).sqrt();
    [((middle - reach) / scale).max(0.0), ((middle + reach) / scale).min(1.0)]
}

/// Returns the probability that a normal variable is further than `z` from 0, on either side.
pub fn normal_two_sided(z: f64) -> f64 {
    gamma_tails(0.5, z * z / 2.0).1
}

/// Returns the probability that the smallest of `tests` independent p values is `p` or less.
///
/// Source: Sidak, 1967; in a form that does not lose a `p` of `1e-300`.
pub fn sidak(p: f64, tests: f64) -> f64 {
    if p >= 1.0 { 1.0 } else { -(tests * (-p).ln_1p()).exp_m1() }
}

/// Returns `-log2 p`, the number of coin tosses whose result is as rare; 1074 at most.
pub fn bits_of(p: f64) -> f64 {
    if p > 0.0 { -p.log2() } else { 1074.0 }
}

/// Returns the regularized incomplete gamma functions `P(a, x)` and `Q(a, x)`.
///
/// # Cost
///
/// O(root of `a`) steps.
fn gamma_tails(a: f64, x: f64) -> (f64, f64) {
    if x <= 0.0 {
        return (0.0, 1.0);
    }
    if a <= 0.0 {
        return (1.0, 0.0);
    }
    let factor = (a * x.ln() - x - ln_gamma(a)).exp();
    if x < a + 1.0 {
        let lower = (factor * lower_series(a, x)).min(1.0);
        (lower, 1.0 - lower)
    } else {
        let upper = (factor * upper_fraction(a, x)).min(1.0);
        (1.0 - upper, upper)
    }
}

fn lower_series(a: f64, x: f64) -> f64 {
    let (mut term, mut sum, mut n) = (1.0 / a, 1.0 / a, a);
    while term > sum * 1e-17 {
        n += 1.0;
        term *= x / n;
        sum += term;
    }
    sum
}

/// Lentz's evaluation of the continued fraction.
fn upper_fraction(a: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let mut denominator = x + 1.0 - a;
    let mut above = 1.0 / TINY;
    let mut below = 1.0 / denominator;
    let mut fraction = below;
    let mut step = 0.0;
    loop {
        step += 1.0;
        let numerator = -step * (step - a);
        denominator += 2.0;
        below = numerator * below + denominator;
        below = if below.abs() < TINY { 1.0 / TINY } else { 1.0 / below };
        above = denominator + numerator / above;
        above = if above.abs() < TINY { TINY } else { above };
        fraction *= below * above;
        // Rounding alone keeps the last factor within a few units of the last place of 1.
        if (below * above - 1.0).abs() < 1e-15 || step > 1e8 {
            return fraction;
        }
    }
}

pub(crate) fn ln_gamma(x: f64) -> f64 {
    if x >= 10.0 {
        // Stirling's series; its next term would be below 1e-16 here.
        let y = 1.0 / (x * x);
        let series = [1.0 / 1188.0, -1.0 / 1680.0, 1.0 / 1260.0, -1.0 / 360.0, 1.0 / 12.0];
        let error = series.iter().fold(-691.0 / 360_360.0, |sum, term| sum * y + term) / x;
        return (x - 0.5) * x.ln() - x + std::f64::consts::TAU.ln() / 2.0 + error;
    }
    // Up to 10 by the recurrence gamma(x + 1) = x gamma(x).
    ln_gamma(x + 1.0) - x.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_close(found: f64, expected: f64) {
        let tolerance = 1e-9 * expected.abs().max(1e-290);
        assert!((found - expected).abs() <= tolerance, "{found} is not {expected}");
    }

    #[test]
    fn tails_have_the_values_of_closed_forms() {
        // Two degrees: exp(-x / 2). Four: (1 + x / 2) exp(-x / 2).
        for x in [0.1, 1.0, 5.0, 20.0, 600.0] {
            check_close(chi_square_upper(x, 2.0), (-x / 2.0).exp());
            check_close(chi_square_upper(x, 4.0), (1.0 + x / 2.0) * (-x / 2.0).exp());
        }
        check_close(poisson_at_least(1, 2.0), 1.0 - (-2.0_f64).exp());
        check_close(poisson_at_least(2, 2.0), 1.0 - 3.0 * (-2.0_f64).exp());
        check_close(poisson_at_least(0, 2.0), 1.0);
    }

    /// From tables: Abramowitz and Stegun 26.8 and 26.2.
    #[test]
    fn tails_have_the_values_of_tables() {
        assert!((chi_square_upper(18.307_038, 10.0) - 0.05).abs() < 1e-8);
        assert!((chi_square_upper(124.342_113, 100.0) - 0.05).abs() < 1e-8);
        assert!((normal_two_sided(1.959_963_985) - 0.05).abs() < 1e-9);
        assert!((normal_two_sided(6.0) / 1.973_175_29e-9 - 1.0).abs() < 1e-8);
    }

    #[test]
    fn large_degrees_agree_with_the_normal() {
        for degrees in [1e4, 1e6, 1.6e7] {
            let (mean, sd) = (degrees, (2.0_f64 * degrees).sqrt());
            let above = chi_square_upper(mean + 2.0 * sd, degrees);
            assert!((above - 0.022_75).abs() < 0.004, "{degrees}: {above}");
            let (below, rest) = gamma_tails(degrees / 2.0, degrees / 2.0);
            assert!((below + rest - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn ln_gamma_is_the_logarithm_of_factorials() {
        let mut factorial = 1.0_f64;
        for n in 1..30 {
            assert!((ln_gamma(f64::from(n)) - factorial.ln()).abs() < 1e-12, "{n}");
            factorial *= f64::from(n);
        }
        check_close(ln_gamma(0.5), std::f64::consts::PI.sqrt().ln());
    }

    #[test]
    fn both_sides_add_up() {
        for (count, mean) in [(0, 0.3), (3, 2.5), (40, 60.0)] {
            let sum = poisson_at_most(count, mean) + poisson_at_least(count + 1, mean);
            assert!((sum - 1.0).abs() < 1e-12, "{count} of {mean}");
        }
        let sum = chi_square_lower(90.0, 100.0) + chi_square_upper(90.0, 100.0);
        assert!((sum - 1.0).abs() < 1e-12);
    }

    #[test]
    fn coins_are_counted_exactly() {
        check_close(coin_two_sided(3, 6), 1.0);
        check_close(coin_two_sided(10, 10), 2.0 / 1024.0);
        check_close(coin_two_sided(1, 10), 22.0 / 1024.0);
        check_close(coin_two_sided(0, 1000), (-999.0 * std::f64::consts::LN_2).exp());
        let [low, high] = wilson_interval(500, 1000, 2.575_829);
        assert!((low - 0.4595).abs() < 1e-4 && (high - 0.5405).abs() < 1e-4, "{low} {high}");
        let [low, high] = wilson_interval(0, 0, 2.0);
        assert!(low.abs() < f64::EPSILON && (high - 1.0).abs() < f64::EPSILON);
    }

    #[test]
    fn sidak_keeps_small_probabilities() {
        check_close(sidak(1e-200, 64.0), 64e-200);
        check_close(sidak(0.5, 2.0), 0.75);
        check_close(sidak(1.0, 5.0), 1.0);
    }
}
