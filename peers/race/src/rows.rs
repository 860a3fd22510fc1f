//! Results: the samples of all runs of one phase, summed up.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::plan::Place;
use crate::saved::{Sample, Saved, SavedCase, SavedEngine};

/// Label of the sum of all phases.
pub const EVERYTHING: &str = "everything";

/// Says whether a phase measures the machine or the driver, and no engine: no engine wins it.
pub fn is_of_no_engine(label: &str) -> bool {
    label.starts_with("two loads") || ["driver", "flush", "2 MiB of new memory"].contains(&label)
}

/// One phase of one engine over all runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Workload and case, with `/` between them.
    pub case: String,
    /// The phase, after the name of its step if it has one.
    pub label: String,
    pub engine: String,
    pub version: String,
    pub unsupported: Option<String>,
    /// Whether some run was killed in it: the times are less than it would have taken.
    pub is_unfinished: bool,
    pub run_count: usize,
    pub ops: u64,
    /// Nanoseconds per operation: of the run in the middle, the quickest and the slowest.
    pub median_ns: f64,
    pub min_ns: f64,
    pub max_ns: f64,
    /// The same by the part of the race and the number of the run.
    pub ns_of_runs: BTreeMap<(usize, usize), f64>,
    /// Nanoseconds of the slowest operation of all runs.
    pub worst_ns: u64,
    pub p99_ns: Option<u64>,
    pub p999_ns: Option<u64>,
    pub rss_bytes: u64,
    pub peak_rss_bytes: u64,
    pub file_bytes: Option<u64>,
    pub disk_bytes: Option<u64>,
    /// Read from the device in all operations.
    pub read_bytes: Option<u64>,
    pub others_cpus: f64,
    pub stolen_cpus: f64,
    /// Changes a second, made while others read.
    pub puts_per_second: Option<f64>,
}

impl Row {
    pub fn read_bytes_per_operation(&self) -> f64 {
        self.read_bytes.unwrap_or(0) as f64 / self.ops.max(1) as f64
    }
}

/// The results of a race, in the order in which they were first measured.
#[derive(Debug)]
pub struct Rows(pub Vec<Row>);

impl Rows {
    pub fn of(saved: &Saved) -> Self {
        let mut groups: Vec<(Key, Vec<&Sample>)> = Vec::new();
        // A phase without a label is only there for those after it.
        for sample in saved.samples.iter().filter(|sample| !sample.label.is_empty()) {
            let key = Key::of(sample);
            match groups.iter_mut().find(|(other, _)| *other == key) {
                Some((_, samples)) => samples.push(sample),
                None => groups.push((key, vec![sample])),
            }
        }
        let mut rows: Vec<Row> =
            groups.into_iter().map(|(key, samples)| row(key, &samples)).collect();
        for case in saved.cases.iter().filter(|case| case.has_total) {
            for engine in &saved.engines {
                rows.extend(total(saved, case, &engine.name));
            }
        }
        Self(rows)
    }

    pub fn find(&self, case: &str, label: &str, engine: &str) -> Option<&Row> {
        self.find_begun(case, label, engine).filter(|row| !row.is_unfinished)
    }

    /// As [`find`](Self::find), with those that took so long that they were killed.
    pub fn find_begun(&self, case: &str, label: &str, engine: &str) -> Option<&Row> {
        let is_it = |row: &&Row| row.case == case && row.label == label && row.engine == engine;
        self.0.iter().find(is_it).filter(|row| row.unsupported.is_none())
    }

    pub fn of_case<'a>(&'a self, case: &'a str) -> impl Iterator<Item = &'a Row> {
        self.0.iter().filter(move |row| row.case == case)
    }

    /// Returns the labels of a case, in their order. Phases that measure nothing have none.
    pub fn labels(&self, case: &str) -> Vec<String> {
        let mut labels: Vec<String> = Vec::new();
        for row in self.of_case(case).filter(|row| row.ops > 0) {
            if !labels.contains(&row.label) {
                labels.push(row.label.clone());
            }
        }
        labels
    }
}

/// The engines of one place that have a result in a case.
pub fn entrants<'a>(
    saved: &'a Saved,
    rows: &Rows,
    case: &str,
    place: Place,
) -> Vec<&'a SavedEngine> {
    let has_row = |engine: &&SavedEngine| rows.of_case(case).any(|row| row.engine == engine.name);
    saved.engines.iter().filter(|engine| engine.place == place).filter(has_row).collect()
}

/// Returns what a case is called above its tables and in its pictures.
pub fn heading(case: &SavedCase, place: Place) -> String {
    let SavedCase { workload, name, records, .. } = case;
    let place = match place {
        Place::Disk => "on disk",
        Place::Memory => "in memory",
    };
    if case.key_bytes == 0 {
        return format!("{workload}, {name}, {place}");
    }
    let records = match records {
        1 => "1 record".to_owned(),
        count => format!("{} records", thousands(count.cast_signed())),
    };
    format!("{workload}, {name}, {records}, {place}")
}

/// What the samples of a row have in common.
#[derive(PartialEq)]
struct Key {
    case: String,
    label: String,
    engine: String,
}

impl Key {
    fn of(sample: &Sample) -> Self {
        let is_whole = |label: &str| label.starts_with("durable") || label == "flush";
        let name = |label: &str| match (sample.step.as_str(), is_whole(label)) {
            // How many threads there are is in the label already, and a flush needs no engine.
            ("", _) | (_, true) => label.to_owned(),
            (step, false) => format!("{step}: {label}"),
        };
        Self {
            case: case_key(&sample.workload, &sample.case),
            label: name(&sample.label),
            engine: sample.engine.clone(),
        }
    }
}

pub fn case_key(workload: &str, case: &str) -> String {
    format!("{workload}/{case}")
}

fn row(key: Key, samples: &[&Sample]) -> Row {
    let per_operation =
        |sample: &&Sample| sample.figures.ns as f64 / sample.figures.ops.max(1) as f64;
    let mut times: Vec<f64> = samples.iter().map(per_operation).collect();
    times.sort_by(f64::total_cmp);
    let ns_of_runs =
        samples.iter().map(|sample| ((sample.part, sample.run), per_operation(sample))).collect();
    let largest =
        |of: fn(&Sample) -> u64| samples.iter().map(|sample| of(sample)).max().unwrap_or(0);
    let middle = |of: fn(&Sample) -> Option<u64>| {
        let mut figures: Vec<u64> = samples.iter().filter_map(|sample| of(sample)).collect();
        figures.sort_unstable();
        figures.get(figures.len() / 2).copied()
    };
    let mean = |of: fn(&Sample) -> f64| {
        samples.iter().map(|sample| of(sample)).sum::<f64>() / samples.len() as f64
    };
    let puts = |sample: &Sample| {
        sample.figures.puts.map(|puts| (puts as f64 * 1e9 / sample.figures.ns as f64) as u64)
    };
    Row {
        case: key.case,
        label: key.label,
        engine: key.engine,
        version: samples[0].version.clone(),
        unsupported: samples.iter().find_map(|sample| sample.figures.unsupported.clone()),
        is_unfinished: samples.iter().any(|sample| sample.figures.is_unfinished),
        run_count: samples.len(),
        ops: largest(|sample| sample.figures.ops),
        median_ns: median(&times),
        min_ns: times[0],
        max_ns: times[times.len() - 1],
        ns_of_runs,
        worst_ns: largest(|sample| sample.figures.worst_ns),
        p99_ns: middle(|sample| sample.figures.p99_ns),
        p999_ns: middle(|sample| sample.figures.p999_ns),
        rss_bytes: middle(|sample| Some(sample.figures.rss_bytes)).unwrap_or(0),
        peak_rss_bytes: largest(|sample| sample.figures.peak_rss_bytes),
        file_bytes: middle(|sample| sample.figures.file_bytes),
        disk_bytes: middle(|sample| sample.figures.disk_bytes),
        read_bytes: middle(|sample| sample.figures.read_bytes),
        others_cpus: mean(|sample| sample.figures.others_cpus),
        stolen_cpus: mean(|sample| sample.figures.stolen_cpus),
        puts_per_second: middle(puts).map(|puts| puts as f64),
    }
}

/// The middle one of sorted figures, or the mean of the two in the middle.
pub fn median(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[half - 1], sorted[half])
    } else {
        sorted[half]
    }
}

/// Returns the sum of the phases of a case, which is an operation by itself. There is none for an
/// engine that lacks a phase which others in its place have: its sum would be of less work.
fn total(saved: &Saved, case: &SavedCase, engine: &str) -> Option<Row> {
    let wanted = total_labels(saved, case, engine);
    let is_summed = |sample: &&Sample| {
        (&sample.workload, &sample.case) == (&case.workload, &case.name)
            && sample.engine == engine
            && sample.figures.unsupported.is_none()
            && wanted.contains(sample.label.as_str())
    };
    let mut sums: Vec<(Sample, usize)> = Vec::new();
    for sample in saved.samples.iter().filter(is_summed) {
        match sums.iter_mut().find(|(sum, _)| sum.run == sample.run) {
            Some((sum, phase_count)) => {
                let figures = &mut sum.figures;
                figures.ns += sample.figures.ns;
                figures.worst_ns = figures.worst_ns.max(sample.figures.worst_ns);
                figures.peak_rss_bytes = figures.peak_rss_bytes.max(sample.figures.peak_rss_bytes);
                figures.disk_bytes = sample.figures.disk_bytes;
                figures.file_bytes = sample.figures.file_bytes;
                figures.is_unfinished |= sample.figures.is_unfinished;
                *phase_count += 1;
            }
            None => sums.push((sample.clone(), 1)),
        }
    }
    sums.retain(|(sum, phase_count)| *phase_count == wanted.len() || sum.figures.is_unfinished);
    for (sum, _) in &mut sums {
        EVERYTHING.clone_into(&mut sum.label);
        sum.figures.ops = 1;
    }
    let refs: Vec<&Sample> = sums.iter().map(|(sum, _)| sum).collect();
    refs.first().map(|first| row(Key::of(first), &refs))
}

/// Returns the labels that the total of a case sums up in the place of an engine.
fn total_labels<'a>(saved: &'a Saved, case: &SavedCase, engine: &str) -> BTreeSet<&'a str> {
    let place = |name: &str| {
        saved.engines.iter().find(|engine| engine.name == name).map(|engine| engine.place)
    };
    let is_there = |sample: &&Sample| {
        (&sample.workload, &sample.case) == (&case.workload, &case.name)
            && place(&sample.engine) == place(engine)
            && sample.figures.unsupported.is_none()
    };
    let labels = saved.samples.iter().filter(is_there).map(|sample| sample.label.as_str());
    let is_named =
        |label: &&str| case.total_of.is_empty() || case.total_of.iter().any(|named| named == label);
    labels.filter(is_named).collect()
}

/// A time in the unit that suits what it is the time of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Nanoseconds,
    Microseconds,
    Milliseconds,
}

impl Unit {
    /// One call has milliseconds, a durable commit and a flush microseconds, and what is done in a loop
    /// nanoseconds.
    pub fn of(label: &str, ops: u64) -> Self {
        match label {
            _ if ops == 1 => Self::Milliseconds,
            _ if label.starts_with("durable") || label == "flush" => Self::Microseconds,
            _ => Self::Nanoseconds,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Nanoseconds => "ns",
            Self::Microseconds => "us",
            Self::Milliseconds => "ms",
        }
    }

    pub fn show(self, ns: f64) -> String {
        match self {
            Self::Nanoseconds => number(ns),
            Self::Microseconds => number(ns / 1e3),
            Self::Milliseconds => number(ns / 1e6),
        }
    }
}

/// Three digits, or as many as there are before the point.
pub fn number(value: f64) -> String {
    match value {
        _ if value == 0.0 => "0".to_owned(),
        _ if value.abs() < 1.0 => format!("{value:.3}"),
        _ if value.abs() < 10.0 => format!("{value:.2}"),
        _ if value.abs() < 100.0 => format!("{value:.1}"),
        _ => thousands(value.round() as i64),
    }
}

fn thousands(value: i64) -> String {
    let digits = value.abs().to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if value < 0 { format!("-{out}") } else { out }
}

/// One line about one run, for the terminal.
pub fn line(samples: &[Sample]) -> String {
    let mut out = String::new();
    for sample in samples {
        let figures = &sample.figures;
        if figures.unsupported.is_some() || figures.ops == 0 || sample.label.is_empty() {
            continue;
        }
        let unit = Unit::of(&sample.label, figures.ops);
        let more = if figures.is_unfinished { "> " } else { "" };
        let time = unit.show(figures.ns as f64 / figures.ops as f64);
        let comma = if out.is_empty() { "" } else { ", " };
        let _ = write!(out, "{comma}{} {more}{time} {}", sample.label, unit.word());
    }
    out
}
