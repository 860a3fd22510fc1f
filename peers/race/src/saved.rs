//! What a race leaves: every sample, and what it was measured on.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::machine::Machine;
use crate::plan::{Driver, Place};
use crate::{Options, Outcome};

/// A race as it is saved in `race.json`. Times are in nanoseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Saved {
    /// Of this file's format.
    pub version: u32,
    pub date: String,
    pub command: Vec<String>,
    /// Of this repository.
    pub commit: String,
    pub is_quick: bool,
    pub run_count: usize,
    pub machine: Machine,
    pub engines: Vec<SavedEngine>,
    /// Engines that were left out, with the reason.
    pub missing: Vec<Missing>,
    pub cases: Vec<SavedCase>,
    pub samples: Vec<Sample>,
    pub failures: Vec<FailedRun>,
    /// The later parts of a race made in parts, without what has been added to the first one.
    #[serde(skip)]
    pub later: Vec<Saved>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SavedEngine {
    pub name: String,
    pub title: String,
    pub place: Place,
    pub kind: String,
    pub version: String,
    pub tuning: String,
    pub manual: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    pub engine: String,
    pub reason: String,
}

/// A case as it was run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedCase {
    pub workload: String,
    pub name: String,
    pub title: String,
    pub records: u64,
    pub key_bytes: usize,
    pub value_bytes: usize,
    pub has_total: bool,
    /// The labels of the phases that the total sums up; if there are none here, all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub total_of: Vec<String>,
    #[serde(default)]
    pub driver: Driver,
    #[serde(default)]
    pub condition: Condition,
}

impl SavedCase {
    fn is_the_same_work(&self, other: &Self) -> bool {
        (&self.workload, &self.name) == (&other.workload, &other.name)
    }

    /// Returns its name on a quiet machine.
    pub fn quiet_name(&self) -> &str {
        let end = self.condition.case_name("");
        self.name.strip_suffix(&end).unwrap_or(&self.name)
    }
}

/// One phase of one run of one engine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    pub workload: String,
    pub case: String,
    pub step: String,
    pub label: String,
    pub engine: String,
    pub run: usize,
    /// Of which part of the race it is, in a report of several.
    #[serde(skip)]
    pub part: usize,
    /// Of the engine, in a report of several parts.
    #[serde(skip)]
    pub version: String,
    #[serde(flatten)]
    pub figures: Figures,
}

impl Sample {
    /// Returns workload, case and engine.
    fn entry(&self) -> (String, String, String) {
        (self.workload.clone(), self.case.clone(), self.engine.clone())
    }
}

/// What a runner program prints about a phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    pub phase: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsupported: Option<String>,
    /// Whether it was killed after `ns`: it would have taken longer for all of `ops`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_unfinished: bool,
    pub ops: u64,
    pub ns: u64,
    pub worst_ns: u64,
    /// Processors that others kept busy, and that the host gave to somebody else.
    pub others_cpus: f64,
    pub stolen_cpus: f64,
    pub own_cpus: f64,
    pub faults: u64,
    /// Bytes that the process has had the device read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_bytes: Option<u64>,
    pub rss_bytes: u64,
    pub peak_rss_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p999_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p9999_ns: Option<u64>,
    /// Changes that were made while others read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub puts: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
}

/// A run that ended with an error.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FailedRun {
    pub workload: String,
    pub case: String,
    pub engine: String,
    pub run: usize,
    pub reason: String,
}

impl FailedRun {
    /// Returns workload, case and engine.
    fn entry(&self) -> (String, String, String) {
        (self.workload.clone(), self.case.clone(), self.engine.clone())
    }
}

/// The format that this program writes and reads.
pub const VERSION: u32 = 1;

impl Saved {
    pub fn read(path: &Path) -> Outcome<Self> {
        let text = fs::read_to_string(path)
            .map_err(|cause| format!("cannot read `{}`: {cause}", path.display()))?;
        let saved: Self = serde_json::from_str(&text)
            .map_err(|cause| format!("`{}`: {cause}", path.display()))?;
        if saved.version == VERSION {
            return Ok(saved);
        }
        let found = saved.version;
        Err(format!("`{}` has format {found}, and this program reads {VERSION}", path.display()))
    }

    /// Makes one race of its parts: the cases of the later ones are added to the first. What an engine
    /// has done in two parts is that of the later one, so that some work can be done again without
    /// hours of other.
    ///
    /// Parts of different machines are refused, and so are two sizes of a case: their times do not
    /// belong in one table.
    pub fn merged(parts: impl IntoIterator<Item = Self>) -> Outcome<Self> {
        let mut parts = parts.into_iter();
        let mut whole = parts.next().ok_or("no file to make a report of")?;
        whole.label_samples(0);
        for mut part in parts {
            whole.fits(&part)?;
            part.label_samples(whole.later.len() + 1);
            let again: BTreeSet<(String, String, String)> =
                (part.samples.iter().map(Sample::entry))
                    .chain(part.failures.iter().map(FailedRun::entry))
                    .collect();
            whole.samples.retain(|sample| !again.contains(&sample.entry()));
            whole.failures.retain(|failed| !again.contains(&failed.entry()));
            for case in std::mem::take(&mut part.cases) {
                match whole.cases.iter_mut().find(|other| other.is_the_same_work(&case)) {
                    // The later one may sum up what the earlier one did not yet.
                    Some(other) => *other = case,
                    None => whole.cases.push(case),
                }
            }
            for engine in std::mem::take(&mut part.engines) {
                whole.add_engine(engine);
            }
            for missing in std::mem::take(&mut part.missing) {
                if !whole.missing.contains(&missing) {
                    whole.missing.push(missing);
                }
            }
            whole.samples.append(&mut part.samples);
            whole.failures.append(&mut part.failures);
            whole.later.push(part);
        }
        Ok(whole)
    }

    /// Says why a part cannot be shown together with this one.
    fn fits(&self, part: &Self) -> Outcome<()> {
        if let Some(difference) = self.machine.difference(&part.machine) {
            return Err(format!(
                "the races of {} and {} are from different machines: {difference}; make a report of \
                 each",
                self.date, part.date
            ));
        }
        for case in &part.cases {
            let is_it = |other: &&SavedCase| other.is_the_same_work(case);
            let Some(other) = self.cases.iter().find(is_it) else { continue };
            if other.records != case.records {
                return Err(format!(
                    "{} {} has {} records in one race and {} in another; make a report of each",
                    case.workload, case.name, other.records, case.records
                ));
            }
        }
        Ok(())
    }

    /// Notes in each sample of which part and of which version of its engine it is.
    fn label_samples(&mut self, part: usize) {
        for sample in &mut self.samples {
            sample.part = part;
            let engine = self.engines.iter().find(|engine| engine.name == sample.engine);
            sample.version = engine.map_or_else(String::new, |engine| engine.version.clone());
        }
    }

    /// Adds an engine, or its version if that is another one than in the parts before.
    fn add_engine(&mut self, engine: SavedEngine) {
        match self.engines.iter_mut().find(|other| other.name == engine.name) {
            None => self.engines.push(engine),
            Some(other) => {
                if !other.version.split(", ").any(|version| version == engine.version) {
                    other.version = format!("{}, {}", other.version, engine.version);
                }
            }
        }
    }

    /// Writes `race.json` and a README, and returns their directory.
    pub fn write(&self, options: &Options) -> Outcome<PathBuf> {
        let default = if self.is_quick {
            options.root.join("target/race-quick")
        } else {
            let day = format!("{}-{}", &self.date[..10], self.machine.name());
            options.root.join("record").join(day).join("race")
        };
        let dir = options.save.clone().unwrap_or(default);
        let failed =
            |cause: std::io::Error| format!("cannot write in `{}`: {cause}", dir.display());
        fs::create_dir_all(&dir).map_err(failed)?;
        let json = serde_json::to_string_pretty(self).map_err(|cause| cause.to_string())?;
        // Whole or not at all: what was there may be all that is left of some hours.
        let unfinished = dir.join("race.json.new");
        fs::write(&unfinished, json + "\n").map_err(failed)?;
        fs::rename(unfinished, dir.join("race.json")).map_err(failed)?;
        let readme = dir.join("README.md");
        if !readme.exists() {
            fs::write(readme, self.readme()).map_err(failed)?;
        }
        Ok(dir)
    }

    fn readme(&self) -> String {
        let Machine { processor, kernel, memory_bytes, file_system, .. } = &self.machine;
        let memory_gib = *memory_bytes as f64 / f64::from(1 << 30);
        let versions: Vec<String> = self
            .engines
            .iter()
            .map(|engine| format!("- {}: {}", engine.title, engine.version))
            .collect();
        let missing: Vec<String> = self
            .missing
            .iter()
            .map(|missing| format!("- left out: {}: {}\n", missing.engine, missing.reason))
            .collect();
        format!(
            "# {}: the race on {}\n\nCommit {}, made by\n\n```sh\ncargo xtask race {}\n```\n\n\
             {processor}, {memory_gib:.0} GiB of memory, {kernel}, {file_system}. `race.json` has every \
             sample and what lscpu says of the processor; `cargo xtask race --report` makes pages \
             of it.\n\n{}\n{}",
            self.date,
            self.machine.name(),
            self.commit,
            self.command.join(" "),
            versions.join("\n"),
            missing.concat(),
        )
    }
}
