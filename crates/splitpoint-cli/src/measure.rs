//! Timing of work, and medians.

use std::time::{Duration, Instant};

/// Runs `work` and returns its result with the time it took.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let started = Instant::now();
    let result = work();
    (result, started.elapsed())
}

/// Returns the median of `times`, the lower of two in the middle; zero if there are none.
pub(crate) fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_does_not_mind_an_outlier() {
        let times = [3, 1, 900, 2, 4].map(Duration::from_secs);
        assert_eq!(median(&times), Duration::from_secs(3));
        assert_eq!(median(&[]), Duration::ZERO);
    }
}
