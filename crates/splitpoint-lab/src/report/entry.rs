//! The measurements of a study, those of one function and reduction together.

use std::collections::{BTreeMap, BTreeSet};

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
    /// that fit differ in cost by chance only: they are in the order of their time, if that was
    /// measured, and name; the others in that of their cost.
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
        let latencies = latencies(&study.timings);
        let rank = |entry: &Self| match entry.grade() {
            Grade::Fits => latencies.get(entry.hash).copied().unwrap_or(f64::MAX),
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

/// Returns the latency of each function: that of the keys whose lengths most keys have.
pub(super) fn latencies(timings: &[Timing]) -> BTreeMap<&str, f64> {
    let mut found: BTreeMap<&str, &Timing> = BTreeMap::new();
    for timing in timings {
        let best = found.entry(&timing.hash).or_insert(timing);
        if timing.key_count > best.key_count {
            *best = timing;
        }
    }
    found.into_iter().map(|(hash, timing)| (hash, timing.latency_ns.median)).collect()
}
