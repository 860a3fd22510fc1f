//! What is run: engines, workloads, their cases, steps and phases.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Failure, Outcome};

/// Where an engine keeps its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    Disk,
    Memory,
}

impl Place {
    pub fn word(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Memory => "memory",
        }
    }
}

/// The program around an engine, and how it asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Driver {
    /// A loop in the engine's own language: keys are written before the clock starts, lookups may
    /// overlap, values are lent.
    #[default]
    Tight,
    /// A program in C: each key is made from the value of the lookup before, values are copied, and
    /// every call goes through a pointer.
    Dependent,
}

impl Driver {
    pub const ALL: [Self; 2] = [Self::Tight, Self::Dependent];

    pub fn word(self) -> &'static str {
        match self {
            Self::Tight => "tight",
            Self::Dependent => "dependent",
        }
    }
}

/// One engine of `peers/engines.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Engine {
    pub name: String,
    pub title: String,
    pub place: Place,
    /// Its family, in words.
    pub kind: String,
    /// The Debian package that it is built with.
    pub package: Option<String>,
    #[serde(rename = "crate")]
    pub crate_name: Option<String>,
    /// The file in `peers/cpp/`.
    pub source: Option<String>,
    #[serde(default)]
    pub libraries: Vec<String>,
    /// The feature of `peers/rust`.
    pub feature: Option<String>,
    /// What it is told.
    pub tuning: String,
    /// Where its manual advises that.
    pub manual: String,
}

/// One file of `peers/workloads/`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    pub name: String,
    pub title: String,
    #[serde(rename = "case")]
    pub cases: Vec<Case>,
}

/// One size or kind of a workload.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub name: String,
    pub records: u64,
    /// 0 for the words of a list.
    pub key_bytes: usize,
    pub value_bytes: usize,
    #[serde(default)]
    pub driver: Driver,
    pub places: Vec<Place>,
    /// Only these engines, where a workload asks for what others do not have.
    pub engines: Option<Vec<String>>,
    /// Whether a quick race makes it smaller.
    #[serde(default = "yes")]
    pub is_scaled: bool,
    /// Whether the sum of all phases is a result.
    #[serde(default)]
    pub has_total: bool,
    /// The labels of the phases that it sums up; if there are none here, all.
    #[serde(default)]
    pub total_of: Vec<String>,
    /// How many more times than others it is run.
    #[serde(default = "one")]
    pub runs_factor: usize,
    /// How many times it is run at most, where one run takes long.
    pub runs_max: Option<usize>,
    /// What one of its steps may take: an engine that waits for itself must not hold up a race.
    #[serde(default = "half_an_hour")]
    pub step_minutes_max: u64,
    /// Memory that a process may use, page cache included, as a part of the bytes of all records.
    pub memory_share: Option<f64>,
    #[serde(rename = "step")]
    pub steps: Vec<Step>,
}

/// What one process does.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    #[serde(default)]
    pub name: String,
    /// What becomes of the files that the step before has left.
    #[serde(default)]
    pub files: Files,
    /// Each is `LABEL=PHASE`, or a phase that is its own label; with nothing before the sign it is
    /// no result.
    pub phases: Vec<String>,
}

/// The files that a step finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Files {
    /// None.
    #[default]
    New,
    /// Those that the step before has left.
    Kept,
    /// A copy of them, which is given up afterwards: other files, so that an engine that knows
    /// its file from before the power loss does not know these.
    Copied,
}

impl Case {
    /// Returns how many times it is run, where others are run so many times.
    pub fn run_count(&self, others: usize) -> usize {
        (others * self.runs_factor).min(self.runs_max.unwrap_or(usize::MAX))
    }

    pub fn step_limit(&self) -> Duration {
        Duration::from_secs(60 * self.step_minutes_max)
    }
}

fn half_an_hour() -> u64 {
    30
}

fn yes() -> bool {
    true
}

fn one() -> usize {
    1
}

/// A phase as it is asked for, and the name of its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    pub label: String,
    pub text: String,
}

/// By how much a quick race makes everything smaller.
pub const QUICK_DIVISOR: u64 = 20;

/// Phases whose first parameter is a number of operations.
const COUNTED: [&str; 10] = [
    "hit",
    "miss",
    "get_many",
    "overwrite",
    "churn",
    "transactions",
    "delete",
    "memory",
    "loads",
    "driver",
];

impl Step {
    /// Returns the phases for one place and size. In memory nothing is synced, closed or opened
    /// again.
    pub fn phases(&self, place: Place, divisor: u64) -> Vec<Phase> {
        let phases = self.phases.iter().map(|text| phase(text, divisor));
        let is_of_memory = |phase: &Phase| {
            phase.label == "open" || !["sync", "close", "open"].contains(&phase.text.as_str())
        };
        phases.filter(|phase| place == Place::Disk || is_of_memory(phase)).collect()
    }
}

impl Phase {
    /// Returns how many operations it is, where that is known before.
    pub fn op_count(&self, records: u64) -> Option<u64> {
        let mut words = self.text.split(':');
        match words.next() {
            Some("create") => Some(records),
            Some(name) if COUNTED.contains(&name) => words.next()?.parse().ok(),
            _ => None,
        }
    }
}

fn phase(text: &str, divisor: u64) -> Phase {
    let (label, text) = match text.split_once('=') {
        Some((label, text)) => (Some(label), text),
        None => (None, text),
    };
    let mut words: Vec<String> = text.split(':').map(str::to_owned).collect();
    let name = words[0].clone();
    let default = match name.as_str() {
        "get_many" | "durable" | "churn" | "transactions" => {
            format!("{name}:{}", words.last().expect("a word"))
        }
        "readers" | "beside" | "written" | "turns" => {
            format!("{name}:{}", words.get(1).map_or("", |count| count))
        }
        _ => name.clone(),
    };
    if COUNTED.contains(&name.as_str())
        && let Some(count) = words.get(1).and_then(|word| word.parse::<u64>().ok())
    {
        words[1] = (count / divisor).max(1).to_string();
    }
    Phase { label: label.map_or(default, str::to_owned), text: words.join(":") }
}

/// Reads `peers/engines.toml`.
pub fn engines(peers: &Path) -> Outcome<Vec<Engine>> {
    #[derive(Deserialize)]
    struct List {
        engine: Vec<Engine>,
    }
    let engines = read::<List>(&peers.join("engines.toml"))?.engine;
    for engine in &engines {
        if engine.source.is_some() == engine.feature.is_some() {
            return Err(format!("engine `{}`: one of `source` and `feature`", engine.name));
        }
    }
    Ok(engines)
}

/// Reads all of `peers/workloads/`, shorter names first.
pub fn workloads(peers: &Path) -> Outcome<Vec<Workload>> {
    let dir = peers.join("workloads");
    let entries =
        fs::read_dir(&dir).map_err(|cause| format!("cannot list `{}`: {cause}", dir.display()))?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    // W10 comes after W9.
    paths.sort_by_cached_key(|path| (path.as_os_str().len(), path.clone()));
    let workloads = paths.iter().map(|path| read(path)).collect::<Outcome<Vec<Workload>>>()?;
    for workload in &workloads {
        for case in &workload.cases {
            labels_are_unique(case).map_err(|label| {
                format!("{}: {}: `{label}` is the label of two phases", workload.name, case.name)
            })?;
            if let Some(label) = unknown_label(case) {
                let name = format!("{}: {}", workload.name, case.name);
                return Err(format!(
                    "{name}: `total_of` names `{label}`, and no phase has that label"
                ));
            }
        }
    }
    Ok(workloads)
}

/// Returns the first label that two phases of a step have.
fn labels_are_unique(case: &Case) -> Result<(), String> {
    for step in &case.steps {
        let mut seen = BTreeSet::new();
        for phase in step.phases(Place::Disk, 1) {
            if !phase.label.is_empty() && !seen.insert(phase.label.clone()) {
                return Err(phase.label);
            }
        }
    }
    Ok(())
}

/// Returns a label that the total sums up and no phase has.
fn unknown_label(case: &Case) -> Option<&String> {
    let phases = case.steps.iter().flat_map(|step| step.phases(Place::Disk, 1));
    let labels: BTreeSet<String> = phases.map(|phase| phase.label).collect();
    case.total_of.iter().find(|label| !labels.contains(*label))
}

pub fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> Outcome<T> {
    let text = fs::read_to_string(path)
        .map_err(|cause| format!("cannot read `{}`: {cause}", path.display()))?;
    toml::from_str(&text).map_err(|cause| format!("`{}`: {cause}", path.display()))
}

/// Returns those with these names, or all; a name that is none of them is a failure.
pub fn chosen<T>(
    all: Vec<T>,
    names: Option<&[String]>,
    name_of: impl Fn(&T) -> &String,
) -> Result<Vec<T>, Failure> {
    let Some(names) = names else { return Ok(all) };
    let known: Vec<String> = all.iter().map(|one| name_of(one).clone()).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        return Err(format!("there is no `{unknown}`; there are: {}", known.join(", ")));
    }
    Ok(all.into_iter().filter(|one| names.contains(name_of(one))).collect())
}
