//! Random numbers from a seed: the same on every machine.
//!
//! # Source
//!
//! Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014; Box and Muller,
//! 1958; Kachitvichyanukul and Schmeiser, 1988, for the inversion of the binomial distribution;
//! Cornish and Fisher, 1938.

/// Mean from which a binomial variable is drawn by its moments instead of step by step.
const BY_MOMENTS_MEAN: f64 = 200.0;

/// `SplitMix64`.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    /// Starts at `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, each as likely to within one part in `2^64 / end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// Returns a number in `0.0..1.0`.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 * 0.5_f64.powi(53)
    }

    /// Returns a normal variable of mean 0 and variance 1.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Returns how many of `tries` succeed, each with probability `p`.
    ///
    /// Exact if few are expected; else by the first three moments, wrong by much less than a
    /// simulation can see.
    ///
    /// # Cost
    ///
    /// O(200) steps at most.
    pub(crate) fn binomial(&mut self, tries: u64, p: f64) -> u64 {
        if p > 0.5 {
            return tries - self.binomial(tries, 1.0 - p);
        }
        let (n, mean) = (tries as f64, tries as f64 * p.max(0.0));
        if mean > BY_MOMENTS_MEAN {
            let deviation = (mean * (1.0 - p)).sqrt();
            let skew = (1.0 - 2.0 * p) / deviation;
            let z = self.normal();
            let drawn = mean + deviation * (z + skew * (z * z - 1.0) / 6.0);
            return (drawn.round().max(0.0) as u64).min(tries);
        }
        let odds = p.max(0.0) / (1.0 - p);
        let mut probability = (n * (-p.max(0.0)).ln_1p()).exp();
        let mut left = self.unit();
        let mut found = 0_u64;
        while left > probability && found < tries {
            left -= probability;
            found += 1;
            probability *= odds * (n - found as f64 + 1.0) / found as f64;
            // What is left is rounding.
            if probability < 1e-18 && found as f64 > mean {
                break;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs for seed 1234567, as published with the algorithm's reference code.
    #[test]
    fn the_first_numbers_are_the_published_ones() {
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    /// Means and variances of 20,000 draws, within 5 standard deviations of a mean.
    #[test]
    fn binomial_variables_have_their_mean_and_variance() {
        let mut random = Random::new(7);
        for (tries, p) in
            [(1, 0.3), (10, 0.5), (1000, 0.001), (100_000, 0.001), (1 << 40, 0.25), (500, 0.9)]
        {
            let rounds = 20_000;
            let draws: Vec<f64> = (0..rounds).map(|_| random.binomial(tries, p) as f64).collect();
            let mean = draws.iter().sum::<f64>() / f64::from(rounds);
            let expected = tries as f64 * p;
            let variance = expected * (1.0 - p);
            let error = (mean - expected).abs() / (variance / f64::from(rounds)).sqrt();
            assert!(error < 5.0, "{tries} {p}: mean {mean}, {error} deviations off");
            let spread = draws.iter().map(|draw| (draw - expected).powi(2)).sum::<f64>();
            let ratio = spread / f64::from(rounds) / variance;
            assert!((0.9..1.1).contains(&ratio), "{tries} {p}: variance off by {ratio}");
        }
        assert_eq!((random.binomial(0, 0.5), random.binomial(9, 0.0)), (0, 0));
        assert_eq!(random.binomial(9, 1.0), 9);
    }
}
