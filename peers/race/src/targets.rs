//! What is to be reached, and whether it is.

use std::path::Path;

use serde::Deserialize;

use crate::Outcome;
use crate::plan::{self, Place};
use crate::rows::{Row, Rows, median};
use crate::saved::{Saved, SavedCase};

/// One target of `peers/targets.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// In words.
    pub work: String,
    /// Workload and case, with `/` between them.
    pub case: String,
    pub label: String,
    #[serde(default = "splitpoint")]
    pub ours: String,
    #[serde(default)]
    pub measure: Measure,
    /// The best other engine there.
    pub place: Option<Place>,
    /// This engine.
    pub than: Option<String>,
    /// Our own phase of this label.
    pub than_label: Option<String>,
    pub at_most: Option<f64>,
    pub at_least: Option<f64>,
    /// What bounds the figure, and what was tried: shown where the target is missed.
    pub bound: Option<String>,
}

/// Which figure of a row is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    #[default]
    NsPerOperation,
    Milliseconds,
    WorstMs,
    DiskBytesPerRecord,
    RssBytesPerRecord,
    ReadBytesPerOperation,
}

impl Measure {
    pub fn unit(self) -> &'static str {
        match self {
            Self::NsPerOperation => "ns",
            Self::Milliseconds | Self::WorstMs => "ms",
            Self::DiskBytesPerRecord | Self::RssBytesPerRecord | Self::ReadBytesPerOperation => "B",
        }
    }
}

fn splitpoint() -> String {
    "splitpoint".to_owned()
}

/// Reads `peers/targets.toml`.
pub fn read(peers: &Path) -> Outcome<Vec<Target>> {
    #[derive(Deserialize)]
    struct List {
        target: Vec<Target>,
    }
    Ok(plan::read::<List>(&peers.join("targets.toml"))?.target)
}

/// A target beside what was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub work: String,
    /// What was wanted, in words.
    pub wanted: String,
    /// Of the figures.
    pub unit: &'static str,
    pub is_ratio: bool,
    pub ours: f64,
    /// The other's name and figure.
    pub other: Option<(String, f64)>,
    /// Our figure divided by the other's, or itself. Of times: the median over the runs, each
    /// divided by the other's of the same run, since a machine's drift hits both.
    pub found: f64,
    pub is_met: bool,
}

/// Compares a target with what was measured; `None` if that was not.
pub fn judge(target: &Target, saved: &Saved, rows: &Rows) -> Option<Verdict> {
    let case = saved
        .cases
        .iter()
        .find(|case| crate::rows::case_key(&case.workload, &case.name) == target.case)?;
    let figure_of =
        |row: &Row| figure(target.measure, row, base(rows, &target.case, &row.engine), case);
    let row = rows.find(&target.case, &target.label, &target.ours)?;
    let ours = figure_of(row)?;
    // What another was killed in took longer than that: it is no worse than it was.
    let figure = |label: &str, engine: &str| {
        rows.find_begun(&target.case, label, engine).and_then(figure_of)
    };
    let ratio = |label: &str, engine: &str| {
        let other = rows.find_begun(&target.case, label, engine)?;
        let is_time = matches!(target.measure, Measure::NsPerOperation | Measure::Milliseconds);
        if is_time { ratio_of_runs(row, other) } else { None }
    };
    let other = if let Some(place) = target.place {
        let others = saved
            .engines
            .iter()
            .filter(|engine| engine.place == place && !engine.name.starts_with("splitpoint"));
        let best = others
            .filter_map(|engine| Some((engine, figure(&target.label, &engine.name)?)))
            .min_by(|a, b| a.1.total_cmp(&b.1));
        best.map(|(engine, figure)| {
            (engine.title.clone(), figure, ratio(&target.label, &engine.name))
        })
    } else if let Some(name) = &target.than {
        let title = saved.engines.iter().find(|engine| engine.name == *name)?.title.clone();
        figure(&target.label, name).map(|figure| (title, figure, ratio(&target.label, name)))
    } else if let Some(label) = &target.than_label {
        figure(label, &target.ours)
            .map(|figure| (label.clone(), figure, ratio(label, &target.ours)))
    } else {
        None
    };
    let is_ratio = target.place.is_some() || target.than.is_some() || target.than_label.is_some();
    if is_ratio && other.is_none() {
        return None;
    }
    let found = other.as_ref().map_or(ours, |(_, figure, ratio)| ratio.unwrap_or(ours / figure));
    let other = other.map(|(title, figure, _)| (title, figure));
    let (sign, limit) = match (target.at_most, target.at_least) {
        (Some(limit), _) => ("at most", limit),
        (None, limit) => ("at least", limit?),
    };
    let is_met = if target.at_most.is_some() { found <= limit } else { found >= limit };
    let unit = target.measure.unit();
    let wanted =
        if is_ratio { format!("{sign} {limit}x") } else { format!("{sign} {limit} {unit}") };
    Some(Verdict { work: target.work.clone(), wanted, unit, is_ratio, ours, other, found, is_met })
}

/// Returns the median of our time divided by the other's, over the runs that both have.
pub fn ratio_of_runs(ours: &Row, other: &Row) -> Option<f64> {
    let ratio = |(run, ns): (&(usize, usize), &f64)| Some(ns / other.ns_of_runs.get(run)?);
    let mut ratios: Vec<f64> = ours.ns_of_runs.iter().filter_map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    (!ratios.is_empty()).then(|| median(&ratios))
}

/// Memory of a process before anything was stored.
fn base(rows: &Rows, case: &str, engine: &str) -> u64 {
    rows.find(case, "open", engine).map_or(0, |row| row.rss_bytes)
}

fn figure(measure: Measure, row: &Row, base_bytes: u64, case: &SavedCase) -> Option<f64> {
    let per_record = |bytes: u64| bytes as f64 / case.records as f64;
    match measure {
        Measure::NsPerOperation => Some(row.median_ns),
        Measure::Milliseconds => Some(row.median_ns / 1e6),
        Measure::WorstMs => Some(row.worst_ns as f64 / 1e6),
        Measure::DiskBytesPerRecord => row.disk_bytes.map(per_record),
        Measure::RssBytesPerRecord => Some(per_record(row.rss_bytes.saturating_sub(base_bytes))),
        Measure::ReadBytesPerOperation => row.read_bytes.map(|_| row.read_bytes_per_operation()),
    }
}
