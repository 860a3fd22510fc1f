//! `splitpoint lab paper seltzer-yigit`: the figures of the 1991 paper, run again.
//!
//! Each run is a process of its own, this program with a hidden option: so that user and system time are
//! of nothing else, that libraries with the same names do not meet, and that what one run leaves in memory
//! does not help the next.

mod sources;
mod stores;
mod worker;

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::builder::PossibleValuesParser;
use splitpoint_lab::paper::seltzer_yigit::{
    Evidence, Measurement, PaperFigure, PaperRerun, Run, RunOutcome, left_out, runs, seltzer_yigit,
    shuffled,
};
use splitpoint_machine::{Usage, try_wait};
use tempfile::TempDir;

use self::sources::Sources;
use self::worker::Order;
use super::super::super::saving::{PageOutput, machine, program};
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::interrupt::{Interrupt, Unfinished};
use crate::number::{count, counted};
use crate::progress::{Phases, ProgressMode, Total};

/// Seltzer and Yigit 1991: the paper behind this program, its figures run again
///
/// Makes the paper's two data sets, runs every test of Figures 5 to 8 with db 1.85 as in the paper, the
/// native store, the ndbm, gdbm and hsearch of this machine and the algorithms of the time, each run in a
/// process of its own, and says of each claim whether it held here. Times are of this machine; the pages
/// that are read and written repeat exactly and compare with 1991.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab paper seltzer-yigit --quick
  splitpoint lab paper seltzer-yigit --figure 7 --html pool.html
  splitpoint lab paper seltzer-yigit --figure 8a 8b --json times.json")]
pub(super) struct Args {
    /// Run only these figures; 5 is 5a to 5c, text is what the text says after 5c
    #[arg(long = "figure", value_name = "NAME", num_args = 1..,
          value_parser = PossibleValuesParser::new(
              ["5", "5a", "5b", "5c", "6", "7", "text", "8a", "8b"]))]
    figures: Vec<String>,

    /// Make three runs of fewer kinds, in less than half a minute
    #[arg(long)]
    quick: bool,

    /// Runs of each kind [default: 5, as in the paper; 3 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,

    /// Take the words of the dictionary from this list, one a line [default: /usr/share/dict/words, or
    /// the list of `splitpoint demo`]
    #[arg(long, value_name = "FILE")]
    words: Option<PathBuf>,

    /// Take the accounts from this password file [default: 300 made up]
    #[arg(long, value_name = "FILE")]
    passwd: Option<PathBuf>,

    /// Directory for the files of the runs, which are removed [default: the system's temporary
    /// directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Seed of the data sets and of the order of the runs
    #[arg(long, default_value_t = 1991)]
    seed: u64,

    /// When to show progress
    #[arg(long, value_enum, default_value_t)]
    progress: ProgressMode,

    /// Make one run and print what came of it: what this command calls itself for
    #[arg(long, value_name = "ORDER", hide = true)]
    worker: Option<String>,

    #[command(flatten)]
    output: PageOutput,
}

/// Runs of each kind, as in the paper, and for a quick look.
const RUNS: u32 = 5;
const RUNS_QUICK: u32 = 3;
/// Time after which a run is ended.
const RUN_TIME_MAX: Duration = Duration::from_secs(60);
/// Time between two looks whether a run has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Runs the figures, or a single run.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    if let Some(order) = &args.worker {
        return worker::run(order);
    }
    args.output.check()?;
    let sources = Sources::read(args.words.as_deref(), args.passwd.as_deref(), args.seed)?;
    let interrupt = Interrupt::watch();
    let bench = Bench::new(args, &sources)?;
    let _unfinished = Unfinished::new(bench.dir.path());
    let mut measurements = bench.measurements();
    let systems = sources::systems(&measurements);
    let load_average = load_average();
    let mut phases = Phases::new(args.progress, console);
    let outcome = bench.run_all(&mut measurements, &mut phases, &interrupt);
    phases.finish();
    let stopped = outcome?;
    let rerun = seltzer_yigit(Evidence {
        program: program(),
        machine: machine(),
        load_average,
        seed: args.seed,
        run_count: bench.run_count.into(),
        figures: bench.figures.clone(),
        data_sets: sources.facts(),
        systems,
        measurements,
        defaults: sources::package_defaults(bench.dir.path()),
        interruption: stopped.as_ref().map(|(_, missing)| missing.clone()),
    });
    deliver(args, &rerun, stopped, console)
}

/// Prints or saves the report; if it was interrupted, that is the error after it.
fn deliver(
    args: &Args,
    rerun: &PaperRerun,
    stopped: Option<(Exit, String)>,
    console: Console,
) -> Result<()> {
    args.output.deliver(rerun, console)?;
    let Some((exit, missing)) = stopped else { return Ok(()) };
    Err(Failure::interrupted(exit, &missing))
}

/// Returns how many processes wanted to run in the last minute.
fn load_average() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// What all runs have in common.
struct Bench {
    /// The files of the runs and the data sets.
    dir: TempDir,
    program: PathBuf,
    figures: Vec<PaperFigure>,
    run_count: u32,
    is_quick: bool,
    seed: u64,
}

impl Bench {
    fn new(args: &Args, sources: &Sources) -> Result<Self> {
        let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
        let shown = parent.display().to_string();
        let made = tempfile::Builder::new().prefix("splitpoint-paper-").tempdir_in(&parent);
        let dir = made
            .map_err(|error| Failure::io(format!("create a directory in `{shown}`"), &error))
            .map_err(|failure| failure.hint("give another directory with --dir"))?;
        for set in sources.sets() {
            let path = pairs_path(dir.path(), set.facts.name);
            fs::write(&path, set.encode())
                .map_err(|error| Failure::io(format!("write `{}`", path.display()), &error))?;
        }
        let program = std::env::current_exe()
            .map_err(|error| Failure::io("find this program, to run it", &error))?;
        let named = |name: &String| PaperFigure::by_name(name);
        let asked: Vec<PaperFigure> = args.figures.iter().filter_map(named).collect();
        let is_asked = |figure: &PaperFigure| asked.is_empty() || asked.contains(figure);
        let figures = PaperFigure::ALL.into_iter().filter(is_asked).collect();
        let run_count = args.runs.unwrap_or(if args.quick { RUNS_QUICK } else { RUNS });
        Ok(Self { dir, program, figures, run_count, is_quick: args.quick, seed: args.seed })
    }

    /// Returns what will be measured, without any run.
    fn measurements(&self) -> Vec<Measurement> {
        let start = |run: Run| {
            let refusal = left_out(&run);
            Measurement { refusal, ..Measurement::new(run) }
        };
        runs(&self.figures, self.is_quick).into_iter().map(start).collect()
    }

    /// Makes all runs, each round in an order of its own. Returns how it was stopped, if it was, and what
    /// is missing.
    fn run_all(
        &self,
        measurements: &mut [Measurement],
        phases: &mut Phases,
        interrupt: &Interrupt,
    ) -> Result<Option<(Exit, String)>> {
        let total = count(measurements.len()) * u64::from(self.run_count);
        let mut done = 0;
        for round in 0..self.run_count {
            for index in shuffled(measurements.len(), self.seed.wrapping_add(round.into())) {
                phases.tell("run", Total::Rounds(total), done, 0);
                let measurement = &mut measurements[index];
                // What is refused once is refused again.
                if measurement.refusal.is_none() {
                    match self.run_one(&measurement.run, interrupt)? {
                        Ended::With(outcome) => measurement.push(outcome),
                        Ended::Interrupted(exit) => {
                            let missing = format!("{done} of {} were made", counted(total, "run"));
                            return Ok(Some((exit, missing)));
                        }
                    }
                }
                done += 1;
            }
        }
        Ok(None)
    }

    /// Makes a run in a process of its own.
    fn run_one(&self, run: &Run, interrupt: &Interrupt) -> Result<Ended> {
        let dir = self.dir.path().join("run");
        let failed = |error| Failure::io(format!("prepare `{}`", dir.display()), &error);
        if dir.exists() {
            fs::remove_dir_all(&dir).map_err(failed)?;
        }
        fs::create_dir(&dir).map_err(failed)?;
        let pairs = pairs_path(self.dir.path(), run.data);
        let order = Order { run: *run, pairs, dir: dir.clone() };
        let order = serde_json::to_string(&order)
            .map_err(|error| Failure::new(Exit::Bug, format!("no order can be made: {error}")))?;
        let mut child = Command::new(&self.program)
            .args(["lab", "paper", "seltzer-yigit", "--worker", &order])
            .env("TMPDIR", &dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Failure::io("run this program again", &error))?;
        let ended =
            wait(&mut child, interrupt).map_err(|error| Failure::io("wait for a run", &error))?;
        Ok(match (ended, interrupt.exit()) {
            (_, Some(exit)) => Ended::Interrupted(exit),
            (None, None) => Ended::With(RunOutcome::Refused {
                reason: format!("it took longer than {} seconds", RUN_TIME_MAX.as_secs()),
            }),
            (Some((status, usage)), None) => Ended::With(outcome_of(&mut child, status, usage)),
        })
    }
}

/// How a run ended.
enum Ended {
    With(RunOutcome),
    Interrupted(Exit),
}

/// Returns the file of a data set.
fn pairs_path(dir: &Path, name: splitpoint_lab::paper::seltzer_yigit::DataName) -> PathBuf {
    dir.join(format!("{}.pairs", name.words().replace(' ', "-")))
}

/// Waits for a run to end; `None` if it took too long. What a run prints fits into the pipe, so it does not
/// wait for a reader.
fn wait(child: &mut Child, interrupt: &Interrupt) -> std::io::Result<Option<(ExitStatus, Usage)>> {
    let started = Instant::now();
    let mut is_late = false;
    loop {
        if let Some(ended) = try_wait(child)? {
            return Ok((!is_late).then_some(ended));
        }
        if !is_late && (interrupt.exit().is_some() || started.elapsed() > RUN_TIME_MAX) {
            is_late = true;
            child.kill()?;
        }
        thread::sleep(LOOK_AGAIN);
    }
}

/// Returns what a run printed, or why it printed nothing.
fn outcome_of(child: &mut Child, status: ExitStatus, usage: Usage) -> RunOutcome {
    let mut printed = String::new();
    if let Some(out) = &mut child.stdout {
        let _ = out.read_to_string(&mut printed);
    }
    match serde_json::from_str(&printed) {
        Ok(RunOutcome::Measured { mut sample, counts }) if status.success() => {
            sample.process_s = (usage.user + usage.system).as_secs_f64();
            sample.resident_bytes_max = usage.resident_bytes_max;
            RunOutcome::Measured { sample, counts }
        }
        Ok(outcome) if status.success() => outcome,
        _ => {
            let mut said = String::new();
            if let Some(err) = &mut child.stderr {
                let _ = err.read_to_string(&mut said);
            }
            let said = said.lines().next().unwrap_or("it printed nothing").to_string();
            RunOutcome::Refused { reason: format!("the run failed, {status}: {said}") }
        }
    }
}
