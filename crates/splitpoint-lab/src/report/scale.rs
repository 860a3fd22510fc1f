//! Where a value stands on an axis, and which values the axis names. Nothing is drawn here.

use super::number::short;

/// An axis: values from `from` to `to` stand from `start` to `end`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    from: f64,
    to: f64,
    start: f64,
    end: f64,
    is_log: bool,
}

/// A value that an axis names.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) label: String,
}

impl Scale {
    /// Makes an axis of equal steps.
    pub(super) fn linear([from, to]: [f64; 2], [start, end]: [f64; 2]) -> Self {
        let to = if to > from { to } else { from + 1.0 };
        Self { from, to, start, end, is_log: false }
    }

    /// Makes an axis of equal ratios; values under `from` stand at its start.
    pub(super) fn log([from, to]: [f64; 2], [start, end]: [f64; 2]) -> Self {
        assert!(from > 0.0, "a logarithm is of something");
        let to = if to > from { to } else { from * 10.0 };
        Self { from, to, start, end, is_log: true }
    }

    /// Returns where `value` stands; at an end if it is beyond.
    pub(super) fn at(self, value: f64) -> f64 {
        let value = value.clamp(self.from, self.to);
        let share = if self.is_log {
            (value / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        self.start + share * (self.end - self.start)
    }

    /// Returns the first and the last value.
    pub(super) fn range(self) -> [f64; 2] {
        [self.from, self.to]
    }

    /// Returns where they stand.
    pub(super) fn ends(self) -> [f64; 2] {
        [self.start, self.end]
    }

    /// Returns about `count` round values in order, never more than twice as many.
    pub(super) fn ticks(self, count: usize) -> Vec<Tick> {
        self.round_values(count)
            .into_iter()
            .map(|value| Tick { at: self.at(value), label: short(value) })
            .collect()
    }

    fn round_values(self, count: usize) -> Vec<f64> {
        let decades = (self.to / self.from).log10();
        if !self.is_log || decades < 0.8 {
            return self.multiples(round_up((self.to - self.from) / count.max(1) as f64));
        }
        let (first, last) = (self.from.log10().floor() as i32, self.to.log10().ceil() as i32);
        let mantissas: &[f64] = match decades {
            _ if decades < 1.5 => &[1.0, 2.0, 5.0],
            _ if decades < 3.0 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let apart = ((decades / count.max(1) as f64).ceil() as usize).max(1);
        let powers = (first..=last).step_by(apart);
        let values =
            powers.flat_map(|power| mantissas.iter().map(move |m| m * power_of_ten(power)));
        let is_inside = |value: &f64| (self.from * 0.9999..=self.to * 1.0001).contains(value);
        values.filter(is_inside).collect()
    }

    fn multiples(self, step: f64) -> Vec<f64> {
        let first = (self.from / step - 1e-9).ceil() as i64;
        let last = (self.to / step + 1e-9).floor() as i64;
        (first..=last).map(|n| n as f64 * step).collect()
    }
}

/// Returns the power exactly, where `powi` of ten would be one digit off.
fn power_of_ten(power: i32) -> f64 {
    format!("1e{power}").parse().expect("a power of ten is a number")
}

/// Returns the smallest 1, 2 or 5 times a power of ten that is `step` or more.
fn round_up(step: f64) -> f64 {
    let power = power_of_ten(step.log10().floor() as i32);
    [1.0, 2.0, 5.0].into_iter().map(|m| m * power).find(|&m| m >= step).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale, count: usize) -> Vec<String> {
        scale.ticks(count).into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(labels(Scale::linear([0.0, 37.0], [0.0, 1.0]), 4), ["0", "10", "20", "30"]);
        assert_eq!(labels(Scale::linear([-3.0, 3.0], [0.0, 1.0]), 3), ["-2", "0", "2"]);
        assert_eq!(
            labels(Scale::log([0.9, 1.3], [0.0, 1.0]), 4),
            ["0.9", "1", "1.1", "1.2", "1.3"]
        );
        assert_eq!(labels(Scale::log([0.9, 4.8], [0.0, 1.0]), 5), ["1", "2", "3", "4"]);
        assert_eq!(labels(Scale::log([0.9, 12.0], [0.0, 1.0]), 4), ["1", "2", "5", "10"]);
        assert_eq!(labels(Scale::log([1.0, 1e6], [0.0, 1.0]), 3), ["1", "100", "10k", "1M"]);
        assert_eq!(labels(Scale::linear([5.0, 5.0], [0.0, 1.0]), 2), ["5", "5.5", "6"]);
    }

    #[test]
    fn every_axis_has_ticks_but_not_too_many() {
        for exponent in -6..12 {
            for mantissa in [1.0, 1.01, 1.7, 3.3, 9.99] {
                let to = mantissa * power_of_ten(exponent);
                for scale in [
                    Scale::linear([0.0, to], [0.0, 300.0]),
                    Scale::log([to / 1e9, to], [300.0, 0.0]),
                    Scale::log([to / 1.3, to], [300.0, 0.0]),
                    Scale::log([to / 40.0, to], [300.0, 0.0]),
                ] {
                    let count = scale.ticks(4).len();
                    assert!((2..=8).contains(&count), "{count} ticks of {scale:?}");
                }
            }
        }
    }

    #[test]
    fn values_stand_between_the_ends() {
        let scale = Scale::log([1.0, 100.0], [200.0, 0.0]);
        let places = [1.0, 10.0, 100.0, 0.0, 1e9].map(|value| scale.at(value).round() as i64);
        assert_eq!(places, [200, 100, 0, 200, 0]);
    }
}
