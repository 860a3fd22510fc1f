//! `cargo xtask race --drop-ins PREFIX`: the drop-ins for C against the libraries of the machine.
//!
//! One program, `peers/c/drop_ins.c`, compiled for each original. It runs with the original and, unchanged,
//! with the drop-in that is installed in PREFIX, in turn. What it prints is saved as the race saves all else.
//!
//! Before each run the dynamic linker says whose functions the program gets: it ignores a library to load before
//! others that it cannot load, but for a warning, and the program would have the original.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::condition::Condition;
use crate::plan::{Driver, Place};
use crate::saved::{FailedRun, Figures, Missing, Sample, Saved, SavedCase, SavedEngine};
use crate::{Options, Outcome, limit, plan, programs, rows, runs, say};

pub mod verdicts;

/// The name of the workload, before that of a case.
pub const WORKLOAD: &str = "drop-ins";

/// Starts of a program that are timed in a run.
const STARTS: u32 = 200;

/// Variables that choose a library or a format, or make the dynamic linker talk: a run has those that it sets.
const VARIABLES: [&str; 8] = [
    "LD_BIND_NOW",
    "LD_DEBUG",
    "LD_DEBUG_OUTPUT",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "SPLITPOINT_NEW_FILES",
    "SPLITPOINT_OLD_FILES",
    "UNTOLD",
];

/// Longest time of a run.
const LIMIT: Duration = Duration::from_secs(600);

/// A library of the machine, and how a program that uses it gets ours.
#[derive(Debug)]
pub struct Library {
    pub name: &'static str,
    /// The Debian package with it, for the version; the C library has it in its own.
    package: &'static str,
    place: Place,
    /// What the program is compiled and linked with.
    compiled: &'static [&'static str],
    /// A function of it that the program calls.
    function: &'static str,
    drop_in: DropIn,
    records: u64,
    pair_bytes: [usize; 2],
    /// What the program times, besides its start.
    pub labels: &'static [&'static str],
}

/// Where ours lies in the prefix.
#[derive(Clone, Copy, Debug)]
enum DropIn {
    /// In the folder of libraries that have the names of the originals.
    Swapped,
    Preloaded(&'static str),
}

const FILES: Library = Library {
    name: "",
    package: "",
    place: Place::Disk,
    compiled: &[],
    function: "",
    drop_in: DropIn::Swapped,
    records: 1_000_000,
    pair_bytes: [16, 16],
    labels: &["store", "fetch", "walk", "open-store-close", "start"],
};

pub const LIBRARIES: [Library; 4] = [
    Library {
        name: "gdbm",
        package: "libgdbm6",
        compiled: &["-DGDBM", "-l:libgdbm.so.6"],
        function: "gdbm_open",
        ..FILES
    },
    Library {
        name: "ndbm",
        package: "libgdbm-compat4",
        compiled: &["-DNDBM", "-l:libgdbm_compat.so.4", "-l:libgdbm.so.6"],
        function: "dbm_open",
        ..FILES
    },
    Library {
        name: "db185",
        package: "libdb1-compat",
        compiled: &["-DDB185", "-l:libdb1.so.2"],
        function: "dbopen",
        drop_in: DropIn::Preloaded("libsplitpoint_db185.so"),
        ..FILES
    },
    Library {
        name: "hsearch",
        package: "libc6",
        place: Place::Memory,
        compiled: &["-DHSEARCH"],
        function: "hsearch_r",
        drop_in: DropIn::Preloaded("libsplitpoint_hsearch.so"),
        records: 10_000_000,
        pair_bytes: [8, 8],
        labels: &["enter", "find", "start"],
    },
];

impl Library {
    /// Returns the name of the engine that is the machine's, or ours.
    pub fn engine(&self, is_ours: bool) -> String {
        format!("{}c_{}", if is_ours { "splitpoint_" } else { "" }, self.name)
    }

    fn saved_engine(&self, is_ours: bool, version: String) -> SavedEngine {
        SavedEngine {
            name: self.engine(is_ours),
            title: if is_ours {
                format!("Splitpoint's {}", self.name)
            } else {
                self.name.to_owned()
            },
            place: self.place,
            kind: "library of C".to_owned(),
            version,
            tuning: match (self.place, is_ours) {
                (Place::Memory, false) => "told how many entries come",
                (Place::Memory, true) => "not told how many entries come",
                _ => "as programs use it, without options",
            }
            .to_owned(),
            manual: format!(
                "{}(3)",
                if self.place == Place::Memory { "hsearch" } else { self.name }
            ),
        }
    }
}

/// Runs everything, and saves it.
pub fn race(options: &Options, prefix: &Path) -> Outcome<Saved> {
    let stores = options.dir.clone().unwrap_or_else(|| options.root.join("target/race"));
    let made = fs::create_dir_all(&stores);
    made.map_err(|cause| format!("cannot make `{}`: {cause}", stores.display()))?;
    let run_count = options.runs.unwrap_or(if options.is_quick { 1 } else { 3 });
    let mut saved = runs::nothing_yet(options, &stores, run_count)?;
    let race = Race { options, prefix, stores: &stores };
    for library in &LIBRARIES {
        race.case(library, run_count, &mut saved);
        saved.write(options)?;
    }
    Ok(saved)
}

struct Race<'a> {
    options: &'a Options,
    prefix: &'a Path,
    stores: &'a Path,
}

impl Race<'_> {
    fn case(&self, library: &Library, run_count: usize, saved: &mut Saved) {
        let (program, version) = match self.program(library) {
            Ok(found) => found,
            Err(reason) => {
                say(&format!("left out: {}: {reason}", library.name));
                saved.missing.push(Missing { engine: library.engine(false), reason });
                return;
            }
        };
        let divisor = if self.options.is_quick { plan::QUICK_DIVISOR } else { 1 };
        let records = library.records / divisor;
        saved.engines.push(library.saved_engine(true, saved.commit.clone()));
        saved.engines.push(library.saved_engine(false, version));
        saved.cases.push(SavedCase {
            workload: WORKLOAD.to_owned(),
            name: library.name.to_owned(),
            title: "a program in C with either library: processor time, of sessions and starts by the clock"
                .to_owned(),
            records,
            key_bytes: library.pair_bytes[0],
            value_bytes: library.pair_bytes[1],
            has_total: false,
            total_of: Vec::new(),
            driver: Driver::Tight,
            condition: Condition::Quiet,
        });
        for run in 0..run_count {
            for turn in 0..2 {
                let is_ours = (turn + run) % 2 == 1;
                let before = saved.samples.len();
                let result = self.run(library, &program, is_ours, records);
                let engine = library.engine(is_ours);
                let (workload, case) = (WORKLOAD.to_owned(), library.name.to_owned());
                let figures = match result {
                    Ok(figures) => figures,
                    Err(reason) => {
                        say(&format!("FAILED: {engine}: {reason}"));
                        saved.failures.push(FailedRun { workload, case, engine, run, reason });
                        continue;
                    }
                };
                saved.samples.extend(figures.into_iter().map(|figures| Sample {
                    workload: workload.clone(),
                    case: case.clone(),
                    step: String::new(),
                    label: figures.phase.clone(),
                    engine: engine.clone(),
                    run,
                    part: 0,
                    version: String::new(),
                    figures,
                }));
                say(&format!(
                    "{engine}, run {}: {}",
                    run + 1,
                    rows::line(&saved.samples[before..])
                ));
            }
        }
    }

    /// Compiles the program for the library of the machine, and returns that one's version.
    fn program(&self, library: &Library) -> Outcome<(PathBuf, String)> {
        let directory = programs::target(&self.options.root).join("drop-ins");
        let made = fs::create_dir_all(&directory);
        made.map_err(|cause| format!("cannot make `{}`: {cause}", directory.display()))?;
        let program = directory.join(library.name);
        let mut compiler = Command::new("cc");
        compiler
            .arg("-O2")
            .arg(self.options.root.join("peers/c/drop_ins.c"))
            .arg("-o")
            .arg(&program);
        // Our headers: what is compiled with them runs with the original, too.
        compiler.arg("-I").arg(self.prefix.join("include/splitpoint")).args(library.compiled);
        programs::output(&mut compiler)?;
        let query = ["--show", "--showformat", "${Version}", library.package];
        let version = programs::output(Command::new("dpkg-query").args(query))?;
        Ok((program, version))
    }

    fn command(&self, library: &Library, program: &Path, is_ours: bool) -> Command {
        let mut command = Command::new(program);
        for variable in VARIABLES {
            command.env_remove(variable);
        }
        let lib = self.prefix.join("lib");
        match library.drop_in {
            _ if !is_ours => {}
            DropIn::Swapped => {
                command.env("LD_LIBRARY_PATH", lib.join("splitpoint/drop-in"));
            }
            DropIn::Preloaded(name) => {
                command.env("LD_PRELOAD", lib.join(name)).env("UNTOLD", "1");
            }
        }
        command
    }

    /// Starts the program, and requires that it gets the functions of the library that is to be timed.
    fn prove(&self, library: &Library, program: &Path, is_ours: bool) -> Outcome<()> {
        let mut command = self.command(library, program, is_ours);
        // All functions are bound at the start, before the first call.
        command.env("LD_BIND_NOW", "1").env("LD_DEBUG", "bindings");
        let output = command.output().map_err(|cause| format!("cannot start it: {cause}"))?;
        if !output.status.success() {
            return Err(format!("it does not start: {}", output.status));
        }
        let words = String::from_utf8_lossy(&output.stderr);
        let bound = targets_of(&words, library.function);
        let prefix = self.prefix.to_string_lossy();
        match bound.iter().find(|target| target.starts_with(&*prefix) != is_ours) {
            Some(wrong) => Err(format!("{} is that of {wrong}", library.function)),
            None if bound.is_empty() => Err(format!("it calls no {}", library.function)),
            None => Ok(()),
        }
    }

    /// Runs the program once, and starts it some times.
    fn run(
        &self,
        library: &Library,
        program: &Path,
        is_ours: bool,
        records: u64,
    ) -> Outcome<Vec<Figures>> {
        self.prove(library, program, is_ours)?;
        let clock = Clock::start();
        let mut command = self.command(library, program, is_ours);
        command.arg(self.stores.join("drop-ins.db")).arg(records.to_string());
        let (output, is_late) = limit::output(&mut command, LIMIT)?;
        require_silence(&output, is_late)?;
        let mut figures = figures_of(&String::from_utf8_lossy(&output.stdout))?;
        let others_cpus = clock.others_cpus();
        let begun = Instant::now();
        for _ in 0..STARTS {
            programs::output(&mut self.command(library, program, is_ours))?;
        }
        figures.push(Figures {
            phase: "start".to_owned(),
            ops: STARTS.into(),
            ns: begun.elapsed().as_nanos() as u64,
            ..Figures::default()
        });
        for figures in &mut figures {
            figures.others_cpus = others_cpus;
        }
        let found = figures.iter().map(|figures| figures.phase.as_str());
        let is_whole = found.eq(library.labels.iter().copied());
        if is_whole { Ok(figures) } else { Err(format!("it timed other work: {figures:?}")) }
    }
}

/// Requires that a program ended well, and that neither it nor the dynamic linker had anything to say.
fn require_silence(output: &Output, is_late: bool) -> Outcome<()> {
    let said = String::from_utf8_lossy(&output.stderr);
    let is_silent = said.trim().is_empty();
    if is_late || !output.status.success() || !is_silent {
        return Err(format!("{} {}", output.status, said.trim()));
    }
    Ok(())
}

/// Returns the files to which the dynamic linker says that it has bound a function for a program.
fn targets_of(log: &str, function: &str) -> Vec<String> {
    let symbol = format!("symbol `{function}'");
    let lines = log.lines().filter(|line| line.contains(&symbol));
    let target_of = |line: &str| {
        let (files, _) = line.rsplit_once(": ")?;
        let (_, target) = files.split_once("] to ")?;
        Some(target.rsplit_once(" [")?.0.to_owned())
    };
    lines.filter_map(target_of).collect()
}

/// Reads lines of a phase, its operations, its nanoseconds, and those of its longest operation or 0.
fn figures_of(text: &str) -> Outcome<Vec<Figures>> {
    let figures = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [phase, ops, ns, worst_ns] = words[..] else { return None };
        Some(Figures {
            phase: phase.to_owned(),
            ops: ops.parse().ok()?,
            ns: ns.parse().ok()?,
            worst_ns: worst_ns.parse().ok()?,
            ..Figures::default()
        })
    };
    text.lines().map(|line| figures(line).ok_or_else(|| format!("`{line}` is no time"))).collect()
}

/// What others of the machine do meanwhile.
struct Clock {
    start: Instant,
    ticks: [i64; 2],
}

/// Ticks of a second in `/proc`, on every machine that there is.
const TICKS_PER_SECOND: f64 = 100.0;

impl Clock {
    fn start() -> Self {
        Self { start: Instant::now(), ticks: ticks() }
    }

    /// Returns how many processors were busy with other programs.
    fn others_cpus(&self) -> f64 {
        let [busy, own] = ticks();
        let others = (busy - self.ticks[0] - (own - self.ticks[1])).max(0);
        others as f64 / TICKS_PER_SECOND / self.start.elapsed().as_secs_f64()
    }
}

/// Returns what all processors have worked, and what the programs have that this one has waited for.
fn ticks() -> [i64; 2] {
    let numbers = |text: &str| -> Vec<i64> {
        text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    };
    let machine = fs::read_to_string("/proc/stat").unwrap_or_default();
    let machine = numbers(machine.lines().next().unwrap_or_default());
    let busy = machine.iter().take(3).sum();
    let own = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which may have spaces, the state comes first, and is no number.
    let own = numbers(own.rsplit(')').next().unwrap_or_default());
    [busy, own.iter().skip(12).take(2).sum()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_prints_is_read_or_refused() {
        let found = figures_of("store 100 4200 0\nenter 7 700 90\n").expect("they are times");
        assert_eq!((found[0].phase.as_str(), found[0].ops, found[0].ns), ("store", 100, 4200));
        assert_eq!(found[1].worst_ns, 90);
        assert!(figures_of("store 100\n").is_err() && figures_of("a b c d\n").is_err());
    }

    /// The program is one that calls `getenv` of the C library, which stands for an original.
    #[test]
    fn a_run_with_the_functions_of_another_library_is_refused() {
        let folder = std::env::temp_dir().join(format!("race-drop-ins-{}", std::process::id()));
        fs::create_dir_all(folder.join("prefix/lib")).expect("there is room");
        let compile = |name: &str, text: &str, options: &[&str]| {
            let source = folder.join(format!("{name}.c"));
            fs::write(&source, text).expect("there is room");
            let mut compiler = Command::new("cc");
            compiler.arg(&source).arg("-o").arg(folder.join(name)).args(options);
            programs::output(&mut compiler).expect("it compiles");
            folder.join(name)
        };
        let main = "#include <stdlib.h>\nint main(void) { return getenv(\"ABSENT\") != NULL; }\n";
        let program = compile("program", main, &[]);
        let own = "char *getenv(const char *name) { (void)name; return 0; }\n";
        compile("prefix/lib/own.so", own, &["-shared", "-fPIC"]);
        let (options, prefix) = (Options::default(), folder.join("prefix"));
        let race = Race { options: &options, prefix: &prefix, stores: &folder };
        let library = |function, file| Library {
            name: "c",
            function,
            drop_in: DropIn::Preloaded(file),
            ..FILES
        };
        let proved =
            |function, file, is_ours| race.prove(&library(function, file), &program, is_ours);
        assert_eq!(proved("getenv", "own.so", true), Ok(()));
        assert_eq!(proved("getenv", "own.so", false), Ok(()));
        // The dynamic linker warns, and the program gets the original.
        let refused = proved("getenv", "absent.so", true).expect_err("ours is not there");
        assert!(refused.starts_with("getenv is that of ") && refused.contains("libc"), "{refused}");
        let refused = proved("hsearch_r", "own.so", true).expect_err("it is not called");
        assert_eq!(refused, "it calls no hsearch_r");
        let mut command = race.command(&library("getenv", "absent.so"), &program, true);
        let output = command.output().expect("it starts");
        assert!(output.status.success());
        let warned = require_silence(&output, false).expect_err("the linker has warned");
        assert!(warned.contains("absent.so"), "{warned}");
        fs::remove_dir_all(&folder).expect("it is there");
    }

    #[test]
    fn the_time_of_programs_that_were_waited_for_is_not_that_of_others() {
        // In a process of its own: the compilers of other tests are waited for in this one.
        const ALONE: &str = "RACE_TEST_ALONE";
        const NAME: &str = "the_time_of_programs_that_were_waited_for_is_not_that_of_others";
        if std::env::var_os(ALONE).is_none() {
            let mut own = Command::new(std::env::current_exe().expect("it runs"));
            own.args(["--exact", &format!("drop_ins::tests::{NAME}")]).env(ALONE, "1");
            let said = programs::output(&mut own).expect("it passes");
            assert!(said.contains("1 passed"), "{said}");
            return;
        }
        let before = ticks();
        let work = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        programs::output(Command::new("sh").args(["-c", work])).expect("it counts");
        let after = ticks();
        assert!(after[1] > before[1], "{before:?} {after:?}");
        assert!(after[0] - before[0] >= after[1] - before[1] - 2, "{before:?} {after:?}");
    }
}
