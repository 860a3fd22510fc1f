//! The sizes of the buckets of one table, in few enough classes to be drawn.

use splitpoint::stats::ChainRow;

use crate::measure::Report;

/// Buckets whose number of keys is in a range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SizeClass {
    /// The fewest keys.
    pub(super) size_min: u64,
    /// The most keys.
    pub(super) size_max: u64,
    /// Buckets of these sizes.
    pub(super) bucket_count: u64,
    /// Keys in them.
    pub(super) key_count: u64,
    /// Share of all keys in buckets of at most [`Self::size_max`], in percent.
    pub(super) cumulative_percent: f64,
    /// Buckets of these sizes of an ideal hash, expected.
    pub(super) ideal: f64,
    /// Standard deviation of that number.
    pub(super) deviation: f64,
}

/// Fewest buckets of an ideal hash for a size to get a separate class.
const EXPECTED_MIN: f64 = 0.05;
/// Classes that the sizes to be expected are put into.
const CORE_CLASSES: u64 = 16;

impl SizeClass {
    /// Returns the classes of the sizes in `report`, in order: one for each size that is to be
    /// expected if those are few, else ranges of equal width; beyond them, ranges that double.
    pub(super) fn of(report: &Report) -> Vec<Self> {
        Self::of_rows(&report.rows)
    }

    /// Returns the same classes of the sizes in the rows of a table whose buckets are equally likely.
    pub(super) fn of_rows(all: &[ChainRow]) -> Vec<Self> {
        let rows: Vec<&ChainRow> = all.iter().filter(|row| is_seen(row)).collect();
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Vec::new() };
        let core = || rows.iter().filter(|row| row.ideal_bucket_count >= EXPECTED_MIN);
        let core_min = core().next().map_or(first.size, |row| row.size);
        let core_max = core().next_back().map_or(last.size, |row| row.size);
        let width = (core_max - core_min) / CORE_CLASSES + 1;
        let mut classes = Vec::new();
        if first.size < core_min {
            classes.push((first.size, core_min - 1));
        }
        let mut start = core_min;
        while start <= core_max {
            classes.push((start, (start + width - 1).min(core_max)));
            start += width;
        }
        // Chains that no ideal hash has: each range is twice as long as the one before.
        let mut length = width;
        while start <= last.size {
            let end = start.saturating_add(length - 1).min(last.size);
            classes.push((start, end));
            start = end.saturating_add(1);
            length = length.saturating_mul(2);
        }
        classes.into_iter().map(|(min, max)| Self::sum(all, min, max)).collect()
    }

    /// Deviations of the buckets from the ideal's, in its standard deviations.
    pub(super) fn z(self) -> f64 {
        // Of less than one bucket a quarter is as good as none: no infinite surprise.
        (self.bucket_count as f64 - self.ideal) / self.deviation.max(0.25)
    }

    /// Returns the class as `1 key`, or `4-7 keys`.
    pub(super) fn in_words(self, noun: &str) -> String {
        match (self.size_min, self.size_max) {
            (1, 1) => format!("1 {noun}"),
            _ => format!("{} {noun}s", self.label()),
        }
    }

    /// Returns the class as `3`, or `4-7`.
    pub(super) fn label(self) -> String {
        if self.size_min == self.size_max {
            self.size_min.to_string()
        } else {
            format!("{}-{}", self.size_min, self.size_max)
        }
    }

    /// Sums the rows of a range.
    ///
    /// The variance of the number of buckets in the range, given that the keys add up to `n`, is
    /// `m (P - P^2 - C^2 / V)` for `m` independent buckets: `P` the probability of the range, `C`
    /// its covariance with the size, `V` the variance of the size.
    fn sum(rows: &[ChainRow], size_min: u64, size_max: u64) -> Self {
        let sum = |of: fn(&ChainRow) -> u64| rows.iter().map(of).sum::<u64>() as f64;
        let m = sum(|row| row.bucket_count);
        let mean = sum(|row| row.item_count) / m.max(1.0);
        let (mut bucket_count, mut key_count, mut ideal) = (0, 0, 0.0);
        let mut cumulative_percent = 0.0;
        let (mut covariance, mut variance) = (0.0, 0.0);
        for row in rows {
            let p = row.ideal_bucket_count / m;
            let away = row.size as f64 - mean;
            variance += p * away * away;
            if (size_min..=size_max).contains(&row.size) {
                bucket_count += row.bucket_count;
                key_count += row.item_count;
                cumulative_percent = row.cumulative_percent;
                ideal += row.ideal_bucket_count;
                covariance += p * away;
            }
        }
        let p = ideal / m;
        let shared = if variance > 0.0 { covariance * covariance / variance } else { 0.0 };
        let deviation = (m * (p - p * p - shared).max(0.0)).sqrt();
        Self { size_min, size_max, bucket_count, key_count, cumulative_percent, ideal, deviation }
    }
}

/// Returns whether a bucket has this size, or should have.
pub(super) fn is_seen(row: &ChainRow) -> bool {
    row.bucket_count > 0 || row.ideal_bucket_count >= EXPECTED_MIN
}
