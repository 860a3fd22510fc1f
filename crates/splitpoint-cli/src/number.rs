//! Formatting of numbers, sizes and times.

use std::time::Duration;

pub(crate) use splitpoint_lab::number::{bytes, counted, grouped};

/// Returns `number` as a float, for shares, means and rates.
#[expect(clippy::cast_precision_loss, reason = "shown with at most six digits")]
pub(crate) fn float(number: u64) -> f64 {
    number as f64
}

/// Returns a length in memory as a count.
pub(crate) fn count(len: usize) -> u64 {
    u64::try_from(len).expect("a length in memory fits 64 bits")
}

/// Returns `part` of `whole` in percent; 0 if `whole` is 0.
pub(crate) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * float(part) / float(whole) }
}

/// Returns a duration with three significant digits: `1.23 ms`, `45.6 s`.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    let (scaled, unit) = if seconds >= 1.0 {
        (seconds, "s")
    } else if seconds >= 1e-3 {
        (seconds * 1e3, "ms")
    } else if seconds >= 1e-6 {
        (seconds * 1e6, "us")
    } else {
        (seconds * 1e9, "ns")
    };
    let decimals = if scaled >= 99.95 || unit == "ns" {
        0
    } else if scaled >= 9.995 {
        1
    } else {
        2
    };
    format!("{scaled:.decimals$} {unit}")
}

/// Returns the mean time of `count` operations that took `total` together.
pub(crate) fn each(total: Duration, count: u64) -> Duration {
    if count == 0 {
        return Duration::ZERO;
    }
    Duration::from_secs_f64(total.as_secs_f64() / float(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits_that_matter() {
        for (nanoseconds, shown) in [
            (7, "7 ns"),
            (1_234, "1.23 us"),
            (12_345_678, "12.3 ms"),
            (123_456_789, "123 ms"),
            (2_500_000_000, "2.50 s"),
        ] {
            assert_eq!(duration(Duration::from_nanos(nanoseconds)), shown);
        }
    }
}
