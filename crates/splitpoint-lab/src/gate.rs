//! Limits that a hash function must keep, or a build fails.

use crate::measure::Report;
use crate::study::{Bound, Gate};

/// The limits; those that are `None` do not count.
///
/// # Examples
///
/// ```
/// use splitpoint_lab::{Reduction, Report, Setup, Specimen, gate::Limits};
///
/// let setup = Setup::new(Specimen::by_name("fnv1a-32")?, 0, Reduction::LowMask, 4)?;
/// let report = Report::new(&setup.count(["a", "b", "c"].map(str::as_bytes)));
/// let limits = Limits { cost_max: Some(1.5), ..Limits::default() };
/// assert!(limits.check(&report).iter().all(|gate| gate.is_met));
/// # Ok::<(), splitpoint_lab::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Cost of a hit, in units of the ideal.
    pub cost_max: Option<f64>,
    /// Keys of the fullest bucket.
    pub longest_max: Option<u64>,
    /// Probability that an ideal hash fills a bucket as full.
    pub longest_p_min: Option<f64>,
    /// Probability that an ideal hash spreads the keys as unevenly.
    pub spread_p_min: Option<f64>,
    /// Share of the buckets that hold a key.
    pub utilization_min: Option<f64>,
    /// Keys that are not the first of their bucket.
    pub dupes_max: Option<u64>,
    /// Pairs of keys whose hashes are equal in all bits. A report of a sample of the hashes knows only
    /// the pairs of the sample.
    pub collisions_max: Option<u64>,
}

impl Limits {
    /// Returns whether no limit is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Compares a report with each limit that is set.
    pub fn check(&self, report: &Report) -> Vec<Gate> {
        let collisions = report.collisions.first().map_or(0, |found| found.pair_count);
        let count = |limit: Option<u64>| limit.map(|limit| limit as f64);
        // Without commas, since `--json` has the name too.
        let buckets = match report.bucket_count {
            1 => "1 bucket".to_string(),
            count => format!("{count} buckets"),
        };
        let subject = format!("{}, {}, {buckets}", report.hash, report.reduction);
        let figures = [
            ("cost of a hit", Bound::AtMost, self.cost_max, report.cost_ratio),
            (
                "keys in fullest bucket",
                Bound::AtMost,
                count(self.longest_max),
                report.longest as f64,
            ),
            ("p of the fullest bucket", Bound::AtLeast, self.longest_p_min, report.longest_p),
            ("p of the spread", Bound::AtLeast, self.spread_p_min, report.spread_p),
            ("share of buckets used", Bound::AtLeast, self.utilization_min, report.utilization),
            ("dupes", Bound::AtMost, count(self.dupes_max), report.dupe_count as f64),
            ("pairs of equal hashes", Bound::AtMost, count(self.collisions_max), collisions as f64),
        ];
        let gate = |(figure, bound, limit, measured): (&str, Bound, Option<f64>, f64)| {
            let limit = limit?;
            let is_met = match bound {
                Bound::AtMost => measured <= limit,
                Bound::AtLeast => measured >= limit,
            };
            let (subject, figure) = (subject.clone(), figure.to_owned());
            Some(Gate { subject, figure, bound, limit, measured, is_met })
        };
        figures.into_iter().filter_map(gate).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reduction, Setup, Specimen};

    fn report() -> Report {
        let keys: Vec<[u8; 4]> = (0..64_u32).map(|n| (n * 16).to_le_bytes()).collect();
        let specimen = Specimen::by_name("identity-32").unwrap();
        let setup = Setup::new(specimen, 0, Reduction::LowMask, 64).unwrap();
        Report::new(&setup.count(keys.iter().map(<[u8; 4]>::as_slice)))
    }

    /// 64 multiples of 16 in 64 buckets: 16 keys in each of 4.
    #[test]
    fn each_limit_is_held_against_its_own_figure() {
        let report = report();
        let limits = |measured: f64| Limits {
            cost_max: Some(measured * report.cost_ratio),
            longest_max: Some((measured * 16.0) as u64),
            longest_p_min: None,
            spread_p_min: None,
            utilization_min: Some(4.0 / 64.0 / measured),
            dupes_max: Some((measured * 60.0) as u64),
            collisions_max: None,
        };
        let met = limits(1.0).check(&report);
        assert_eq!(met.len(), 4);
        assert!(met.iter().all(|gate| gate.is_met), "{met:?}");
        let missed = limits(0.9).check(&report);
        assert!(missed.iter().all(|gate| !gate.is_met), "{missed:?}");
        let p = Limits {
            longest_p_min: Some(0.001),
            spread_p_min: Some(0.001),
            collisions_max: Some(0),
            ..Limits::default()
        };
        let met: Vec<bool> = p.check(&report).iter().map(|gate| gate.is_met).collect();
        assert_eq!(met, [false, false, true]);
    }

    #[test]
    fn no_limits_are_no_gates() {
        assert!(Limits::default().is_empty() && Limits::default().check(&report()).is_empty());
    }
}
