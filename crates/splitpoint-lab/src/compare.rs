//! Compares two functions on the same keys, or two studies, and tests whether chance explains the
//! differences.
//!
//! The test of the buckets compares pairs of keys in one bucket. With ideal hashes these are two
//! Poisson counts whose means follow from the tables. The test of times compares the ranks of the
//! runs, because the medians in the report depend on them too.

use crate::chance::{ranks_p, split_p};
use crate::measure::{FAILURE_BITS, Report};
use crate::study::{Difference, Spread, Study, Timing};

/// Probability below which chance does not explain a difference of times.
pub const CHANCE_P: f64 = 0.001;

/// Shortest time that counts, in nanoseconds. The time of a function is what remains without the
/// loops around it, so anything shorter is their noise.
const RESOLUTION_NS: f64 = 0.1;

/// The measurements that two studies share, and those that only one has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// The figures of those that both have.
    pub differences: Vec<Difference>,
    /// Measurements that only the first has.
    pub only_left: Vec<String>,
    /// Measurements that only the second has.
    pub only_right: Vec<String>,
}

/// Returns the differences between two reports.
///
/// # Examples
///
/// ```
/// use splitpoint_lab::{Reduction, Report, Setup, Specimen, compare};
///
/// let keys: Vec<String> = (0..1000).map(|n| format!("k{n}")).collect();
/// let report = |name| -> Result<Report, splitpoint_lab::Error> {
///     let setup = Setup::new(Specimen::by_name(name)?, 0, Reduction::LowMask, 1024)?;
///     Ok(Report::new(&setup.count(keys.iter().map(String::as_bytes))))
/// };
/// let found = compare::reports("", &report("xxh3-64")?, &report("netbsd-byte-sum")?);
/// assert!(found[0].figure == "cost of a hit" && found[0].is_beyond_chance());
/// # Ok::<(), splitpoint_lab::Error>(())
/// ```
pub fn reports(subject: &str, left: &Report, right: &Report) -> Vec<Difference> {
    let figure = |figure: &str, of: fn(&Report) -> f64, ideal: fn(&Report) -> f64| Difference {
        subject: subject.to_owned(),
        figure: figure.to_owned(),
        left: of(left),
        right: of(right),
        ideal: shared(ideal(left), ideal(right)),
        p: None,
    };
    let mut figures = vec![
        figure("cost of a hit", |report| report.cost_ratio, |_| 1.0),
        figure("keys looked at, hit", |report| report.probes_hit, |report| report.probes_hit_ideal),
        figure(
            "keys looked at, miss",
            |report| report.probes_miss,
            |report| report.probes_miss_ideal,
        ),
        figure("buckets used", |report| report.used_count as f64, |report| report.used_ideal),
        figure(
            "keys in fullest bucket",
            |report| report.longest as f64,
            |report| report.longest_ideal,
        ),
    ];
    // All three follow from the number of pairs of keys that share a bucket.
    let p = pairs_p(left, right);
    figures[..3].iter_mut().for_each(|difference| difference.p = Some(p));
    figures.extend(collisions(subject, left, right));
    figures
}

/// Returns the ideal of both, if they have the same.
fn shared(left: f64, right: f64) -> Option<f64> {
    left.total_cmp(&right).is_eq().then_some(left)
}

fn pairs_p(left: &Report, right: &Report) -> f64 {
    let pairs = |report: &Report, probes: f64| {
        let pairs = (probes - 1.0).max(0.0) * report.key_count as f64;
        pairs.round()
    };
    let ideal = |report: &Report| pairs(report, report.probes_hit_ideal).max(1.0);
    let share = ideal(left) / (ideal(left) + ideal(right));
    split_p(pairs(left, left.probes_hit), pairs(right, right.probes_hit), share)
}

fn collisions(subject: &str, left: &Report, right: &Report) -> Option<Difference> {
    let (one, other) = (left.collisions.first()?, right.collisions.first()?);
    if one.pair_count == 0 && other.pair_count == 0 {
        return None;
    }
    // Another width has another ideal, so a difference would mean nothing.
    let ideal = shared(one.pair_count_ideal, other.pair_count_ideal);
    let (left, right) = (one.pair_count as f64, other.pair_count as f64);
    Some(Difference {
        subject: subject.to_owned(),
        figure: "pairs of equal hashes".to_owned(),
        left,
        right,
        ideal,
        p: ideal.map(|_| split_p(left, right, 0.5)),
    })
}

/// Returns the differences between two timings of keys of the same lengths.
pub fn timings(subject: &str, left: &Timing, right: &Timing) -> Vec<Difference> {
    let figure = |figure: &str, left: &Spread, right: &Spread| Difference {
        subject: subject.to_owned(),
        figure: figure.to_owned(),
        left: left.median,
        right: right.median,
        ideal: None,
        p: if left.median.max(right.median) < RESOLUTION_NS {
            None
        } else {
            ranks_p(&left.runs, &right.runs)
        },
    };
    vec![
        figure("latency, ns", &left.latency_ns, &right.latency_ns),
        figure("throughput, ns", &left.throughput_ns, &right.throughput_ns),
    ]
}

/// Returns the lengths of a timing in words.
pub fn lengths(timing: &Timing) -> String {
    match (timing.is_mixed, timing.bytes_min == timing.bytes_max) {
        (true, _) => "all lengths".to_owned(),
        (_, true) => format!("{} bytes", timing.bytes_min),
        (_, false) => format!("{} to {} bytes", timing.bytes_min, timing.bytes_max),
    }
}

/// Returns the differences between two studies, measurement by measurement.
pub fn studies(left: &Study, right: &Study) -> Comparison {
    let mut comparison = Comparison::default();
    let of_report = |report: &Report| {
        let Report { hash, reduction, bucket_count, seed, .. } = report;
        format!("{hash}, {reduction}, {bucket_count} buckets, seed {seed}")
    };
    comparison.add(&left.reports, &right.reports, of_report, reports);
    let of_timing = |timing: &Timing| format!("{}, {}", timing.hash, lengths(timing));
    // The two were timed at different moments, so the ranks of their runs prove nothing.
    let untested = |subject: &str, left: &Timing, right: &Timing| {
        timings(subject, left, right).into_iter().map(|it| Difference { p: None, ..it }).collect()
    };
    comparison.add(&left.timings, &right.timings, of_timing, untested);
    comparison
}

impl Comparison {
    fn add<T>(
        &mut self,
        left: &[T],
        right: &[T],
        name: impl Fn(&T) -> String,
        compare: impl Fn(&str, &T, &T) -> Vec<Difference>,
    ) {
        let mut rest: Vec<(String, &T)> = right.iter().map(|item| (name(item), item)).collect();
        for item in left {
            let subject = name(item);
            match rest.iter().position(|(name, _)| *name == subject) {
                Some(at) => self.differences.extend(compare(&subject, item, rest.remove(at).1)),
                None => self.only_left.push(subject),
            }
        }
        self.only_right.extend(rest.into_iter().map(|(subject, _)| subject));
    }
}

impl Difference {
    /// Returns whether the two figures differ.
    pub fn differs(&self) -> bool {
        self.left.total_cmp(&self.right).is_ne()
    }

    /// Returns the smallest figure that counts; only times have one above 0.
    pub fn resolution(&self) -> f64 {
        if self.figure.ends_with(", ns") { RESOLUTION_NS } else { 0.0 }
    }

    /// Returns the probability below which chance does not explain the difference: that of the
    /// verdicts, `2^-20`, or of times, which have few runs, [`CHANCE_P`].
    pub fn threshold_p(&self) -> f64 {
        if self.resolution() > 0.0 { CHANCE_P } else { 2_f64.powf(-FAILURE_BITS) }
    }

    /// Returns whether chance does not explain the difference, as far as a test exists.
    pub fn is_beyond_chance(&self) -> bool {
        self.differs() && self.p.is_some_and(|p| p < self.threshold_p())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::{KeyFacts, Machine, Program};
    use crate::{Reduction, Setup, Specimen};

    fn report(name: &str, keys: u32) -> Report {
        let keys: Vec<String> = (0..keys).map(|n| format!("k{n}")).collect();
        let specimen = Specimen::by_name(name).unwrap();
        let setup = Setup::new(specimen, 0, Reduction::LowMask, 4096).unwrap();
        Report::new(&setup.count(keys.iter().map(String::as_bytes)))
    }

    fn study(reports: Vec<Report>) -> Study {
        let study = Study::new(Program::default(), Machine::default(), KeyFacts::default());
        Study { reports, ..study }
    }

    #[test]
    fn two_good_hashes_differ_by_chance_and_a_bad_one_by_more() {
        let (good, other) = (report("xxh3-64", 5000), report("rapidhash-v3", 5000));
        assert!(reports("", &good, &other).iter().all(|found| !found.is_beyond_chance()));
        let bad = report("netbsd-byte-sum", 5000);
        let found = reports("", &good, &bad);
        assert!(found[0].is_beyond_chance() && found[0].right > 5.0 * found[0].left, "{found:?}");
        assert_eq!((found[0].ideal, found[3].ideal), (Some(1.0), Some(good.used_ideal)));
        let equal_hashes = found.last().unwrap();
        assert_eq!(equal_hashes.figure, "pairs of equal hashes");
        assert_eq!((equal_hashes.left, equal_hashes.p), (0.0, None));
    }

    #[test]
    fn a_study_does_not_differ_from_itself() {
        let one = study(vec![report("xxh3-64", 500), report("sdbm", 500)]);
        let comparison = studies(&one, &one.clone());
        assert!(comparison.differences.iter().all(|found| !found.differs()));
        assert_eq!((comparison.only_left.len(), comparison.only_right.len()), (0, 0));
        assert!(comparison.differences.len() >= 10);
    }

    fn timing(run_ns: [f64; 15]) -> Timing {
        let runs: Vec<f64> = std::iter::once(99.0).chain(run_ns).collect();
        let spread = Spread::of(&runs);
        Timing {
            hash: "any".to_owned(),
            bytes_min: 8,
            bytes_max: 8,
            key_count: 100,
            is_mixed: true,
            sample_count: 100,
            throughput_ns: spread.clone(),
            latency_ns: spread,
            throughput_overhead_ns: 0.5,
            latency_overhead_ns: 0.5,
        }
    }

    /// The means of these differ by chance, since one run took a thousand times as long.
    #[test]
    fn times_are_tested_by_ranks_as_their_medians_are_shown() {
        let mut slow = [1.09; 15];
        slow[3] = 4000.0;
        let found = timings("", &timing(slow), &timing([4.36; 15]));
        assert_eq!((found[0].left, found[0].right), (1.09, 4.36));
        assert!(found[0].is_beyond_chance(), "{found:?}");
    }

    #[test]
    fn times_below_the_resolution_are_not_tested() {
        let found = timings("", &timing([0.0; 15]), &timing([0.09; 15]));
        assert_eq!((found[0].p, found[0].resolution()), (None, RESOLUTION_NS));
        let found = timings("", &timing([0.0; 15]), &timing([0.5; 15]));
        assert!(found[0].is_beyond_chance(), "{found:?}");
        assert!(reports("", &report("sdbm", 500), &report("dbm", 500))[0].resolution() < 1e-9);
    }

    #[test]
    fn what_only_one_study_has_is_named() {
        let old = study(vec![report("xxh3-64", 500), report("sdbm", 500)]);
        let new = study(vec![report("fnv1a-32", 500), report("xxh3-64", 600)]);
        let comparison = studies(&old, &new);
        assert_eq!(comparison.only_left, ["sdbm, low, 4096 buckets, seed 0"]);
        assert_eq!(comparison.only_right, ["fnv1a-32, low, 4096 buckets, seed 0"]);
        assert!(comparison.differences.iter().all(|found| found.subject.starts_with("xxh3-64")));
        // Other keys: other ideals, but costs in units of the ideal can be compared.
        assert_eq!(comparison.differences[0].ideal, Some(1.0));
        assert_eq!(comparison.differences[3].ideal, None);
        assert!(!comparison.differences[0].is_beyond_chance());
    }
}
