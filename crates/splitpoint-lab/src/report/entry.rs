//! The measurements of a study, those of one function and reduction together.

use std::collections::{BTreeMap, BTreeSet};

use crate::chance::ranks_p;
use crate::choose::TIE;
use crate::compare::CHANCE_P;
use crate::measure::{Grade, Report};
use crate::study::{Study, Timing};

/// A hash function with a reduction, at every size and seed that was measured.
#[derive(Clone, Debug)]
pub(super) struct Entry<'a> {
    pub(super) hash: &'a str,
    pub(super) reduction: &'a str,
    /// By rising size, then seed; there is at least one.
    pub(super) reports: Vec<&'a Report>,
}

impl<'a> Entry<'a> {
    /// Returns the entries of a study, best first by the verdict at the worst size and seed. Those
    /// that fit differ in cost by chance only: they are in the order of their [places] by
    /// time, if that was measured, and of their names; the others in that of their cost.
    pub(super) fn all(study: &'a Study) -> Vec<Self> {
        let mut by_name: BTreeMap<(&str, &str), Vec<&Report>> = BTreeMap::new();
        for report in &study.reports {
            by_name.entry((&report.hash, &report.reduction)).or_default().push(report);
        }
        let mut entries: Vec<Self> = by_name
            .into_iter()
            .map(|((hash, reduction), mut reports)| {
                reports.sort_by_key(|report| (report.bucket_count, report.seed));
                Self { hash, reduction, reports }
            })
            .collect();
        let places = places(study, &entries);
        let rank = |entry: &Self| match entry.grade() {
            Grade::Fits => places.get(entry.hash).map_or(f64::MAX, |place| place.number as f64),
            _ => entry.worst().cost_ratio,
        };
        entries.sort_by(|one, other| {
            one.grade().cmp(&other.grade()).then(rank(one).total_cmp(&rank(other)))
        });
        entries
    }

    /// Returns the name: the function, and the reduction.
    pub(super) fn name(&self) -> String {
        format!("{}, {}", self.hash, self.reduction)
    }

    /// Returns the report to judge it by: of those with the worst verdict the one with the highest
    /// cost.
    pub(super) fn worst(&self) -> &'a Report {
        let worse = |one: &&&Report, other: &&&Report| {
            let by_grade = one.verdict.grade().cmp(&other.verdict.grade());
            by_grade.then(one.cost_ratio.total_cmp(&other.cost_ratio))
        };
        self.reports.iter().max_by(worse).expect("an entry has a report")
    }

    /// Returns the middle one of the costs.
    pub(super) fn median_cost(&self) -> f64 {
        let mut costs: Vec<f64> = self.reports.iter().map(|report| report.cost_ratio).collect();
        costs.sort_by(f64::total_cmp);
        costs[(costs.len() - 1) / 2]
    }

    /// Returns how many reports have this verdict.
    pub(super) fn count(&self, grade: Grade) -> usize {
        self.reports.iter().filter(|report| report.verdict.grade() == grade).count()
    }

    /// Returns the report with the highest cost at each size, over the seeds, by rising size.
    pub(super) fn by_size(&self) -> BTreeMap<u64, &'a Report> {
        let mut reports: BTreeMap<u64, &Report> = BTreeMap::new();
        for &report in &self.reports {
            let highest = reports.entry(report.bucket_count).or_insert(report);
            if report.cost_ratio > highest.cost_ratio {
                *highest = report;
            }
        }
        reports
    }

    /// Returns the verdict that it is judged by: that of the worst.
    pub(super) fn grade(&self) -> Grade {
        self.worst().verdict.grade()
    }
}

/// Returns the numbers of buckets that were measured, in order.
pub(super) fn sizes(reports: &[Report]) -> BTreeSet<u64> {
    reports.iter().map(|report| report.bucket_count).collect()
}

/// The place of a function that fits, by its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// From 1; the same for functions that are as fast as each other.
    pub(super) number: usize,
    /// Others have the same place.
    pub(super) is_shared: bool,
}

/// How many times the fastest run of one function may take that of another of the same place.
const FASTEST_TIE: f64 = 1.25;

/// Returns the places of the functions that fit, of those that were timed. Functions are as fast as
/// the first of their place if they take less than [`TIE`] times as long; or if the ranks of their runs are no
/// further apart than by chance, and their fastest runs less than [`FASTEST_TIE`] times. What disturbs a run
/// only makes it longer, so those tell how far two functions are apart at the least.
pub(super) fn places<'a>(study: &'a Study, entries: &[Entry<'a>]) -> BTreeMap<&'a str, Place> {
    let fits = |hash: &str| entries.iter().any(|it| it.hash == hash && it.grade() == Grade::Fits);
    let mut timed: Vec<(&str, &Timing)> = commonest(&study.timings).into_iter().collect();
    timed.retain(|(hash, _)| fits(hash));
    let median = |timing: &Timing| timing.latency_ns.median;
    timed.sort_by(|one, other| median(one.1).total_cmp(&median(other.1)));
    let is_tie = |first: &Timing, other: &Timing| {
        let p = ranks_p(&first.latency_ns.runs, &other.latency_ns.runs);
        let (fastest, other_fastest) = (first.latency_ns.min, other.latency_ns.min);
        let is_near = fastest.max(other_fastest) <= fastest.min(other_fastest) * FASTEST_TIE;
        let may_be_chance = is_near && p.is_some_and(|p| p >= CHANCE_P);
        median(other) <= median(first) * TIE || may_be_chance
    };
    let mut places = BTreeMap::new();
    let mut rest = timed.as_slice();
    while let Some((first, _)) = rest.split_first() {
        let shared = rest.iter().take_while(|(_, other)| is_tie(first.1, other)).count().max(1);
        let number = timed.len() - rest.len() + 1;
        let place = Place { number, is_shared: shared > 1 };
        places.extend(rest[..shared].iter().map(|(hash, _)| (*hash, place)));
        rest = &rest[shared..];
    }
    places
}

/// Returns the latency of each function: that of the keys whose lengths most keys have.
pub(super) fn latencies(timings: &[Timing]) -> BTreeMap<&str, f64> {
    let median = |(hash, timing): (_, &Timing)| (hash, timing.latency_ns.median);
    commonest(timings).into_iter().map(median).collect()
}

fn commonest(timings: &[Timing]) -> BTreeMap<&str, &Timing> {
    let mut found: BTreeMap<&str, &Timing> = BTreeMap::new();
    for timing in timings {
        let best = found.entry(&timing.hash).or_insert(timing);
        if timing.key_count > best.key_count {
            *best = timing;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::{KeyFacts, Machine, Program, Spread};
    use crate::{Reduction, Setup, Specimen};

    fn study(times: &[(&str, f64)]) -> Study {
        let keys: Vec<String> = (0..5000).map(|n| format!("k{n}")).collect();
        let mut study = Study::new(Program::default(), Machine::default(), KeyFacts::default());
        for &(name, ns) in times {
            let specimen = Specimen::by_name(name).unwrap();
            let setup = Setup::new(specimen, 0, Reduction::LowMask, 4096).unwrap();
            study.reports.push(Report::new(&setup.count(keys.iter().map(String::as_bytes))));
            let runs: Vec<f64> = (0..16).map(|run| ns + 0.001 * f64::from(run)).collect();
            let latency_ns = Spread::of(&runs);
            study.timings.push(Timing { hash: name.to_owned(), latency_ns, ..Timing::default() });
        }
        study
    }

    #[test]
    fn functions_that_fit_are_placed_by_time_and_ties_share_a_place() {
        let of_time = [
            ("xxh3-64", 2.0),
            ("rapidhash-v3", 2.05),
            ("siphash-1-3", 9.0),
            ("museair", 3.0),
            ("netbsd-byte-sum", 1.0),
        ];
        let study = study(&of_time);
        let entries = Entry::all(&study);
        let order: Vec<&str> = entries.iter().map(|entry| entry.hash).collect();
        let expected = ["rapidhash-v3", "xxh3-64", "museair", "siphash-1-3", "netbsd-byte-sum"];
        assert_eq!(order, expected);
        let places = places(&study, &entries);
        let of = |hash| places.get(hash).map(|place| (place.number, place.is_shared));
        assert_eq!([of("xxh3-64"), of("rapidhash-v3")], [Some((1, true)); 2]);
        assert_eq!([of("museair"), of("siphash-1-3")], [Some((3, false)), Some((4, false))]);
        assert_eq!(of("netbsd-byte-sum"), None, "it does not fit");
    }

    #[test]
    fn a_function_whose_runs_were_disturbed_has_no_place_with_a_slow_one() {
        let place_of_both = |two_runs: [f64; 2]| {
            let mut study = study(&[("xxh3-64", 5.0), ("siphash-1-3", 190.0)]);
            let disturbed: Vec<f64> = (0..16).map(|run| two_runs[run % 2]).collect();
            study.timings[0].latency_ns = Spread::of(&disturbed);
            let entries = Entry::all(&study);
            let places = places(&study, &entries);
            ["xxh3-64", "siphash-1-3"].map(|hash| (places[hash].number, places[hash].is_shared))
        };
        assert_eq!(place_of_both([500.0, 5.0]), [(1, false), (2, false)], "7 of 15 runs");
        assert_eq!(place_of_both([5.0, 500.0]), [(2, false), (1, false)], "8 of 15 runs");
    }
}
