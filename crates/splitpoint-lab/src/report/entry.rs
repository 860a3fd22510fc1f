//! The measurements of a study, those of one function and reduction together.

use std::collections::{BTreeMap, BTreeSet};

use crate::Verdict;
use crate::measure::Report;

/// A hash function with a reduction, at every size and seed that was measured.
#[derive(Clone, Debug)]
pub(super) struct Entry<'a> {
    pub(super) hash: &'a str,
    pub(super) reduction: &'a str,
    /// By rising size, then seed; there is at least one.
    pub(super) reports: Vec<&'a Report>,
}

impl<'a> Entry<'a> {
    /// Returns the entries of a study, best first by the cost at the worst size and seed.
    pub(super) fn all(reports: &'a [Report]) -> Vec<Self> {
        let mut by_name: BTreeMap<(&str, &str), Vec<&Report>> = BTreeMap::new();
        for report in reports {
            by_name.entry((&report.hash, &report.reduction)).or_default().push(report);
        }
        let mut entries: Vec<Self> = by_name
            .into_iter()
            .map(|((hash, reduction), mut reports)| {
                reports.sort_by_key(|report| (report.bucket_count, report.seed));
                Self { hash, reduction, reports }
            })
            .collect();
        entries.sort_by(|one, other| one.rank().total_cmp(&other.rank()));
        entries
    }

    /// Returns the name: the function, and the reduction.
    pub(super) fn name(&self) -> String {
        format!("{}, {}", self.hash, self.reduction)
    }

    /// Returns the report to judge it by: the one that is worse than chance, if any is, and of
    /// those the one with the highest cost.
    pub(super) fn worst(&self) -> &'a Report {
        let badness = |report: &Report| (Kind::of(&report.verdict), report.cost_ratio);
        let worse = |one: &&&Report, other: &&&Report| {
            let (one, other) = (badness(one), badness(other));
            one.0.cmp(&other.0).then(one.1.total_cmp(&other.1))
        };
        self.reports.iter().max_by(worse).expect("an entry has a report")
    }

    /// Returns the middle one of the costs.
    pub(super) fn median_cost(&self) -> f64 {
        let mut costs: Vec<f64> = self.reports.iter().map(|report| report.cost_ratio).collect();
        costs.sort_by(f64::total_cmp);
        costs[(costs.len() - 1) / 2]
    }

    /// Returns how many reports have a verdict of this kind.
    pub(super) fn count(&self, kind: Kind) -> usize {
        self.reports.iter().filter(|report| Kind::of(&report.verdict) == kind).count()
    }

    /// Returns the highest cost at each size, over the seeds, by rising size.
    pub(super) fn cost_by_size(&self) -> BTreeMap<u64, f64> {
        let mut costs = BTreeMap::new();
        for report in &self.reports {
            let cost = costs.entry(report.bucket_count).or_insert(report.cost_ratio);
            *cost = f64::max(*cost, report.cost_ratio);
        }
        costs
    }

    /// Returns the kind that it is judged by: that of the worst.
    pub(super) fn kind(&self) -> Kind {
        Kind::of(&self.worst().verdict)
    }

    fn rank(&self) -> f64 {
        self.worst().cost_ratio
    }
}

/// Returns the numbers of buckets that were measured, in order.
pub(super) fn sizes(reports: &[Report]) -> BTreeSet<u64> {
    reports.iter().map(|report| report.bucket_count).collect()
}

/// Returns how many seeds were measured.
pub(super) fn seed_count(reports: &[Report]) -> usize {
    reports.iter().map(|report| report.seed).collect::<BTreeSet<u64>>().len()
}

/// A verdict without its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Fits,
    Structured,
    Worse,
}

impl Kind {
    pub(super) fn of(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Fits => Self::Fits,
            Verdict::Structured => Self::Structured,
            Verdict::Worse { .. } => Self::Worse,
        }
    }

    /// Returns the word for it, which is also its class in the style sheet.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Fits => "fits",
            Self::Structured => "structured",
            Self::Worse => "worse",
        }
    }
}
