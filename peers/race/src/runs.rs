//! The race itself: every engine by turns, each run a process of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::condition::Condition;
use crate::group::Group;
use crate::machine::Machine;
use crate::plan::{Case, Files, Phase, QUICK_DIVISOR, Step, Workload};
use crate::programs::{Program, Programs, output};
use crate::saved::{FailedRun, Figures, Missing, Sample, Saved, SavedCase, SavedEngine, VERSION};
use crate::{Options, Outcome, limit, rows, say};

/// Debian's list of words, in `wamerican-huge`.
const WORDS: &str = "/usr/share/dict/american-english-huge";

/// Runs everything. The engines take turns, and another one begins in every run, so that the
/// machine's drift hits all alike.
pub fn race(options: &Options, programs: &Programs, workloads: &[Workload]) -> Outcome<Saved> {
    let stores = options.dir.clone().unwrap_or_else(|| options.root.join("target/race"));
    fs::create_dir_all(&stores)
        .map_err(|cause| format!("cannot make `{}`: {cause}", stores.display()))?;
    let run_count = options.runs.unwrap_or(if options.is_quick { 1 } else { 3 });
    let words = options.words.clone().unwrap_or_else(|| WORDS.into());
    let race = Race { options, programs, stores: &stores, words: &words, run_count };
    let mut saved = nothing_yet(options, &stores, run_count)?;
    for engine in programs.built.iter().map(saved_engine) {
        if !saved.engines.iter().any(|other| other.name == engine.name) {
            saved.engines.push(engine);
        }
    }
    let missing = programs.missing.iter();
    saved.missing = missing
        .map(|(engine, reason)| Missing { engine: engine.clone(), reason: reason.clone() })
        .collect();
    for workload in workloads {
        for case in workload.cases.iter().filter(|case| options.drivers().contains(&case.driver)) {
            for &condition in options.conditions() {
                race.case(workload, case, condition, &mut saved)?;
                // A race takes hours: what is done is not lost with the rest.
                saved.write(options)?;
            }
        }
    }
    Ok(saved)
}

/// Returns what is saved of a race before anything has run.
pub fn nothing_yet(options: &Options, stores: &Path, run_count: usize) -> Outcome<Saved> {
    Ok(Saved {
        version: VERSION,
        date: output(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]))?,
        command: typed(),
        commit: commit(&options.root),
        is_quick: options.is_quick,
        run_count,
        machine: Machine::read(stores, options.machine.clone()),
        engines: Vec::new(),
        missing: Vec::new(),
        cases: Vec::new(),
        samples: Vec::new(),
        failures: Vec::new(),
        later: Vec::new(),
    })
}

/// What all cases of a race have in common.
struct Race<'a> {
    options: &'a Options,
    programs: &'a Programs,
    stores: &'a Path,
    words: &'a Path,
    run_count: usize,
}

impl Race<'_> {
    /// Runs all engines of a case, under one condition.
    fn case(
        &self,
        workload: &Workload,
        case: &Case,
        condition: Condition,
        saved: &mut Saved,
    ) -> Outcome<()> {
        let case = &Case { name: condition.case_name(&case.name), ..case.clone() };
        if let Err(reason) = self.can_run(case, condition) {
            let engine = format!("all, in {} {}", workload.name, case.name);
            say(&format!("left out: {engine}: {reason}"));
            saved.missing.push(Missing { engine, reason });
            return Ok(());
        }
        let is_smaller = self.options.is_quick && case.is_scaled;
        let divisor = if is_smaller { QUICK_DIVISOR } else { 1 };
        let records = (case.records / divisor).max(1);
        saved.cases.push(saved_case(workload, case, condition, records));
        let built = self.programs.built.iter();
        let entrants: Vec<&Program> = built.filter(|program| takes_part(case, program)).collect();
        let mut companions = condition.companions()?;
        let mut not_again = BTreeSet::new();
        for run in 0..case.run_count(self.run_count) {
            for turn in 0..entrants.len() {
                let program = entrants[(turn + run) % entrants.len()];
                let name = &program.engine.name;
                if not_again.contains(name) {
                    continue;
                }
                let words = self.words;
                let entry =
                    Entry { workload, case, condition, program, run, records, divisor, words };
                if entry.run(&self.stores.join("store"), saved) >= case.step_limit() {
                    not_again.insert(name.clone());
                }
            }
            if run == 0 {
                not_again.extend(slow_engines(saved, &workload.name, &case.name));
            }
        }
        companions.still_run()
    }

    /// Says why a case cannot be run on this machine.
    fn can_run(&self, case: &Case, condition: Condition) -> Outcome<()> {
        if case.key_bytes == 0 && !self.words.exists() {
            return Err(format!("no word list at {}", self.words.display()));
        }
        if case.memory_share.is_some() {
            Group::can_be_made()?;
        }
        condition.can_be_made()
    }
}

fn saved_case(workload: &Workload, case: &Case, condition: Condition, records: u64) -> SavedCase {
    SavedCase {
        workload: workload.name.clone(),
        name: case.name.clone(),
        title: workload.title.clone(),
        records,
        key_bytes: case.key_bytes,
        value_bytes: case.value_bytes,
        has_total: case.has_total,
        total_of: case.total_of.clone(),
        driver: case.driver,
        condition,
    }
}

/// How many times longer than another an engine may take and be run again.
const SLOW_FACTOR: u64 = 3;

/// Returns the engines that are not run again in a case: in its first run each took more than
/// [`SLOW_FACTOR`] times as long as another of its place did for the same phases. An engine that
/// lacks a phase sets no pace for those that have it.
pub fn slow_engines(saved: &Saved, workload: &str, case: &str) -> BTreeSet<String> {
    let mut phases: BTreeMap<&str, BTreeMap<(&str, &str), u64>> = BTreeMap::new();
    for sample in &saved.samples {
        let is_meant = (sample.workload.as_str(), sample.case.as_str(), sample.run);
        if is_meant == (workload, case, 0) && sample.figures.unsupported.is_none() {
            let phases = phases.entry(&sample.engine).or_default();
            *phases.entry((&sample.step, &sample.label)).or_default() += sample.figures.ns;
        }
    }
    let place = |name: &str| {
        saved.engines.iter().find(|engine| engine.name == name).map(|engine| engine.place)
    };
    let is_slow = |name: &&str| {
        let own = &phases[name];
        let own_ns: u64 = own.values().sum();
        phases.iter().filter(|(other, _)| place(other) == place(name)).any(|(_, theirs)| {
            let same: Option<u64> = own.keys().map(|phase| theirs.get(phase)).sum();
            same.is_some_and(|ns| own_ns > ns * SLOW_FACTOR)
        })
    };
    phases.keys().copied().filter(is_slow).map(str::to_owned).collect()
}

fn takes_part(case: &Case, program: &Program) -> bool {
    let engine = &program.engine;
    program.driver == case.driver
        && case.places.contains(&engine.place)
        && case.engines.as_ref().is_none_or(|names| names.contains(&engine.name))
}

/// What the user typed after `cargo xtask race`.
fn typed() -> Vec<String> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = words.iter().position(|word| word == "--root") {
        words.drain(at..(at + 2).min(words.len()));
    }
    // It comes with the prefix in which xtask has installed them.
    if let Some(at) = words.iter().position(|word| word == "--drop-ins") {
        words.remove(at + 1);
    }
    words
}

fn commit(root: &Path) -> String {
    let mut git = Command::new("git");
    output(git.arg("-C").arg(root).args(["describe", "--always", "--dirty"])).unwrap_or_default()
}

fn saved_engine(program: &Program) -> SavedEngine {
    let engine = program.engine.clone();
    SavedEngine {
        name: engine.name,
        title: engine.title,
        place: engine.place,
        kind: engine.kind,
        version: program.version.clone(),
        tuning: engine.tuning,
        manual: engine.manual,
    }
}

/// One run of one engine in one case.
struct Entry<'a> {
    workload: &'a Workload,
    case: &'a Case,
    condition: Condition,
    program: &'a Program,
    run: usize,
    records: u64,
    divisor: u64,
    words: &'a Path,
}

impl Entry<'_> {
    /// Returns how long it took, with everything that is not measured.
    fn run(&self, store: &Path, saved: &mut Saved) -> Duration {
        let start = Instant::now();
        let before = saved.samples.len();
        let result = self.steps(store, &mut saved.samples);
        if let Err(reason) = &result {
            saved.failures.push(FailedRun {
                workload: self.workload.name.clone(),
                case: self.case.name.clone(),
                engine: self.program.engine.name.clone(),
                run: self.run,
                reason: reason.clone(),
            });
        }
        let line = rows::line(&saved.samples[before..]);
        let engine = &self.program.engine.name;
        let run = self.run + 1;
        let name = &self.workload.name;
        let failure = result.err().map_or_else(String::new, |reason| format!(" FAILED: {reason}"));
        let took = start.elapsed();
        let seconds = took.as_secs_f64();
        let case = &self.case.name;
        let line = format!("{name} {case}, run {run}, {engine}: {line}{failure} [{seconds:.1} s]");
        say(&line);
        took
    }

    fn steps(&self, store: &Path, samples: &mut Vec<Sample>) -> Outcome<()> {
        for step in &self.case.steps {
            let copy = store.with_extension("copy");
            let dir = match step.files {
                Files::New => {
                    empty(store)?;
                    store
                }
                Files::Kept => store,
                Files::Copied => {
                    empty(&copy)?;
                    copy_files(store, &copy)?;
                    &copy
                }
            };
            self.step(step, dir, samples)?;
            remove(&copy)?;
        }
        remove(store)
    }

    fn step(&self, step: &Step, dir: &Path, samples: &mut Vec<Sample>) -> Outcome<()> {
        let phases = step.phases(self.program.engine.place, self.divisor);
        let memory_bytes_max = self.memory_bytes_max();
        let group = memory_bytes_max.map(Group::new).transpose()?;
        let mut command = self.command(dir, &phases, memory_bytes_max);
        if let Some(group) = &group {
            command = group.inside(&command);
        }
        let mut command = self.condition.apply(command)?;
        let (output, is_late) = limit::output(&mut command, self.case.step_limit())?;
        drop(group);
        let lines: Vec<Figures> = String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(|line| serde_json::from_str(line).map_err(|cause| format!("`{line}`: {cause}")))
            .collect::<Outcome<_>>()?;
        let is_killed = phases.last().is_some_and(|phase| phase.text == "kill");
        let line_count = lines.len();
        let done_ns: u64 = lines.iter().map(|figures| figures.ns).sum();
        let mut sample = |phase: &Phase, figures: Figures| {
            samples.push(Sample {
                workload: self.workload.name.clone(),
                case: self.case.name.clone(),
                step: step.name.clone(),
                label: phase.label.clone(),
                engine: self.program.engine.name.clone(),
                run: self.run,
                part: 0,
                version: String::new(),
                figures,
            });
        };
        for (phase, figures) in phases.iter().zip(lines) {
            sample(phase, figures);
        }
        let next = phases.get(line_count);
        let phase = next.map_or("the end", |phase| phase.text.as_str());
        if is_late {
            let ns = (self.case.step_limit().as_nanos() as u64).saturating_sub(done_ns);
            if let Some((phase, ops)) =
                next.and_then(|next| Some((next, next.op_count(self.records)?)))
            {
                let phase_text = phase.text.clone();
                sample(
                    phase,
                    Figures {
                        phase: phase_text,
                        is_unfinished: true,
                        ops,
                        ns,
                        ..Figures::default()
                    },
                );
            }
            let minutes = self.case.step_minutes_max;
            return Err(format!(
                "at `{phase}`: killed after {minutes} minutes, the limit of a step"
            ));
        }
        if line_count == phases.len() && (output.status.success() || is_killed) {
            return Ok(());
        }
        let words = String::from_utf8_lossy(&output.stderr);
        let last = words.lines().last().unwrap_or("it said nothing");
        Err(format!("at `{phase}`: {last} ({})", output.status))
    }

    /// Returns what the process may use, where that is part of the work.
    fn memory_bytes_max(&self) -> Option<u64> {
        let bytes = self.records * (self.case.key_bytes + self.case.value_bytes) as u64;
        self.case.memory_share.map(|share| (bytes as f64 * share) as u64)
    }

    fn command(&self, dir: &Path, phases: &[Phase], limit: Option<u64>) -> Command {
        let mut command = Command::new(&self.program.path);
        command.stdin(Stdio::null()).arg("--dir").arg(dir);
        command.args(["--records", &self.records.to_string()]);
        command.args(["--key-bytes", &self.case.key_bytes.to_string()]);
        command.args(["--value-bytes", &self.case.value_bytes.to_string()]);
        command.arg("--words").arg(self.words);
        if let Some(limit) = limit {
            // The other half is for everything else, and for the page cache.
            command.args(["--cache-bytes", &(limit / 2).to_string()]);
        }
        command.args(phases.iter().map(|phase| &phase.text));
        command
    }
}

/// Makes a directory with nothing in it.
fn empty(dir: &Path) -> Outcome<()> {
    remove(dir)?;
    fs::create_dir_all(dir).map_err(|cause| format!("cannot make `{}`: {cause}", dir.display()))
}

fn remove(dir: &Path) -> Outcome<()> {
    match fs::remove_dir_all(dir) {
        Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("cannot remove `{}`: {cause}", dir.display()))
        }
        _ => Ok(()),
    }
}

fn copy_files(from: &Path, to: &Path) -> Outcome<()> {
    let failed = |cause: std::io::Error| format!("cannot copy `{}`: {cause}", from.display());
    for entry in fs::read_dir(from).map_err(failed)? {
        let path: PathBuf = entry.map_err(failed)?.path();
        let target = to.join(path.file_name().expect("an entry has a name"));
        if path.is_dir() {
            fs::create_dir(&target).map_err(failed)?;
            copy_files(&path, &target)?;
        } else {
            fs::copy(&path, &target).map_err(failed)?;
        }
    }
    Ok(())
}
