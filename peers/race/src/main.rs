//! Runs engines against each other: `cargo xtask race`.
//!
//! Every engine is a program of its own (`peers/rust`, `peers/cpp`), described in
//! `peers/engines.toml`; what they do is in `peers/workloads/`. This program builds them, runs them
//! by turns, saves what they print, and makes pages from what was saved.

#![forbid(unsafe_code)]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use condition::Condition;
use plan::{Driver, Engine, Workload};
use programs::Programs;
use saved::Saved;

mod busy;
mod condition;
mod csv;
#[cfg(test)]
mod driver_tests;
mod drop_ins;
mod group;
mod html;
mod limit;
mod machine;
mod markdown;
mod picture;
mod plan;
mod programs;
mod rows;
mod runs;
mod saved;
mod targets;
#[cfg(test)]
mod tests;

/// What went wrong, for the user, with its remedy where there is one.
type Failure = String;

type Outcome<T> = Result<T, Failure>;

const HELP: &str = "\
Runs engines against each other, and says who is faster at what.

usage: cargo xtask race [OPTIONS]
       cargo xtask race --drop-ins [--quick] [--runs N] [--dir DIR] [--save DIR] [--machine NAME]
       cargo xtask race --report FILE[,FILE...]

options:
  --setup             install the Debian packages that the engines need, then run
  --quick             a twentieth of the records and one run: minutes, and no figures to keep
  --engines A,B       only these engines (default: all in peers/engines.toml)
  --workloads W2,W3   only these workloads (default: W1 to W4 if quick, else all but curve)
  --drivers A,B       tight: a loop in the engine's language, keys ready, values lent;
                      dependent: a program in C that makes each key from the value before, and
                      copies values; for W2 and W3 (default: both)
  --conditions A,B    what else the machine does: quiet; spin: the other processors are busy;
                      copy: a process copies memory; one-core: the engine has one processor
                      (default: quiet)
  --runs N            runs of each engine, by turns (default: 1 if quick, else 3)
  --dir DIR           where the stores are made (default: target/race)
  --save DIR          where the results go (default: record/DATE-MACHINE/race;
                      target/race-quick if quick)
  --words FILE        the list for W1 (default: Debian's american-english-huge)
  --machine NAME      what this machine is called (default: its processor and how many there are)
  --report FILE,FILE  make docs/bench/results.md, .csv and pictures, and target/race/results.html,
                      from a saved race.json;
                      from more of them if a race was made in parts; what an engine has
                      done in two parts is that of the later one; a machine other than that of
                      docs/bench/results.md gets the directory docs/bench/NAME
  --drop-ins          the drop-ins for C, which are built first, against the machine's gdbm, its ndbm, db
                      1.85 and hsearch: programs in C, with either library
  --list              name engines and workloads
";

/// What the user asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    root: PathBuf,
    task: Task,
    is_setup: bool,
    is_quick: bool,
    engines: Option<Vec<String>>,
    workloads: Option<Vec<String>>,
    runs: Option<usize>,
    dir: Option<PathBuf>,
    save: Option<PathBuf>,
    words: Option<PathBuf>,
    drivers: Option<Vec<Driver>>,
    conditions: Option<Vec<Condition>>,
    machine: Option<String>,
}

impl Options {
    fn drivers(&self) -> &[Driver] {
        self.drivers.as_deref().unwrap_or(&Driver::ALL)
    }

    fn conditions(&self) -> &[Condition] {
        self.conditions.as_deref().unwrap_or(&[Condition::Quiet])
    }
}

/// What is to be done.
#[derive(Debug, Default, PartialEq, Eq)]
enum Task {
    #[default]
    Race,
    Help,
    List,
    /// The drop-ins that are installed here.
    DropIns(PathBuf),
    /// From these files.
    Report(Vec<PathBuf>),
    /// Keep the machine busy: what this program does when it has started itself.
    Companion(Condition),
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)).and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Writes a line to the terminal, or wherever the output goes. If nobody reads, there is nobody to be told.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn parse(words: impl Iterator<Item = String>) -> Outcome<Options> {
    let mut options = Options { root: ".".into(), ..Options::default() };
    let mut words = words.peekable();
    let list = |text: String| Some(text.split(',').map(str::to_owned).collect());
    while let Some(word) = words.next() {
        let mut value =
            || words.next_if(|next| !next.starts_with("--")).ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--root" => options.root = value()?.into(),
            "--help" | "-h" => options.task = Task::Help,
            "--list" => options.task = Task::List,
            "--setup" => options.is_setup = true,
            "--quick" => options.is_quick = true,
            "--engines" => options.engines = list(value()?),
            "--workloads" => options.workloads = list(value()?),
            "--runs" => options.runs = Some(positive(&value()?)?),
            "--dir" => options.dir = Some(value()?.into()),
            "--save" => options.save = Some(value()?.into()),
            "--words" => options.words = Some(value()?.into()),
            "--drivers" => options.drivers = Some(chosen(&value()?, &Driver::ALL, Driver::word)?),
            "--conditions" => {
                options.conditions = Some(chosen(&value()?, &Condition::ALL, Condition::word)?);
            }
            "--machine" => options.machine = Some(machine_name(value()?)?),
            "--companion" => {
                let busy = [Condition::Spin, Condition::Copy];
                options.task = Task::Companion(chosen(&value()?, &busy, Condition::word)?[0]);
            }
            "--drop-ins" => options.task = Task::DropIns(value()?.into()),
            "--report" => {
                let files = value()?.split(',').map(PathBuf::from).collect();
                options.task = Task::Report(files);
            }
            _ => return Err(format!("there is no option `{word}`\n\n{HELP}")),
        }
    }
    Ok(options)
}

fn positive(text: &str) -> Outcome<usize> {
    let number = text.parse().ok().filter(|&number| number > 0);
    number.ok_or(format!("`{text}` is no number of runs: 1 or more"))
}

/// Returns what the words of a list name, each once.
fn chosen<T: Copy + PartialEq>(
    list: &str,
    all: &[T],
    word_of: fn(T) -> &'static str,
) -> Outcome<Vec<T>> {
    let mut found = Vec::new();
    for word in list.split(',') {
        let Some(&one) = all.iter().find(|one| word_of(**one) == word) else {
            let words: Vec<&str> = all.iter().map(|one| word_of(*one)).collect();
            return Err(format!("there is no `{word}`; there are: {}", words.join(", ")));
        };
        if !found.contains(&one) {
            found.push(one);
        }
    }
    Ok(found)
}

/// Refuses what cannot be the name of a directory.
fn machine_name(name: String) -> Outcome<String> {
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    if name.chars().all(is_of_name) && name.chars().any(|letter| letter != '-') {
        return Ok(name);
    }
    Err(format!("`{name}` is no name of a machine: letters, digits and hyphens"))
}

fn run(options: &Options) -> Outcome<()> {
    let peers = options.root.join("peers");
    match &options.task {
        Task::Help => say(HELP.trim_end()),
        Task::Companion(condition) => condition::companion(*condition),
        Task::List => list(&plan::engines(&peers)?, &plan::workloads(&peers)?),
        Task::Report(files) => report(options, files)?,
        Task::DropIns(prefix) => {
            // Before hours of work, not behind them.
            let targets = targets::read(&peers)?;
            let saved = drop_ins::race(options, prefix)?;
            let table = drop_ins::verdicts::write(&saved, &targets, &saved.write(options)?)?;
            say(&format!("\n{table}"));
            finish(options, &saved)?;
        }
        Task::Race => race(options, plan::engines(&peers)?, plan::workloads(&peers)?)?,
    }
    Ok(())
}

fn race(options: &Options, engines: Vec<Engine>, workloads: Vec<Workload>) -> Outcome<()> {
    let engines = plan::chosen(engines, options.engines.as_deref(), |engine| &engine.name)?;
    let is_default = |name: &str| {
        let is_short = ["W1", "W2", "W3", "W4"].contains(&name);
        if options.is_quick { is_short } else { name != "curve" }
    };
    let default = workloads.iter().map(|workload| workload.name.clone());
    let default: Vec<String> = default.filter(|name| is_default(name)).collect();
    let names = options.workloads.as_ref().unwrap_or(&default);
    let workloads = plan::chosen(workloads, Some(names), |workload| &workload.name)?;
    if options.is_setup {
        programs::install_packages(&engines)?;
    }
    let has_work = |driver: &Driver| {
        workloads.iter().flat_map(|workload| &workload.cases).any(|case| case.driver == *driver)
    };
    let drivers: Vec<Driver> = options.drivers().iter().copied().filter(has_work).collect();
    if drivers.is_empty() {
        return Err(
            "none of these workloads has a case for that driver: see peers/workloads".into()
        );
    }
    let programs = Programs::build(&options.root, &engines, &drivers);
    for (engine, reason) in &programs.missing {
        say(&format!("left out: {engine}: {reason}"));
    }
    finish(options, &runs::race(options, &programs, &workloads)?)
}

/// Saves a race, and shows it.
fn finish(options: &Options, saved: &Saved) -> Outcome<()> {
    let dir = saved.write(options)?;
    say(&format!("\n{}", markdown::summary(saved)));
    say(&format!("saved in {}", dir.display()));
    if saved.failures.is_empty() {
        return Ok(());
    }
    Err(format!("{} runs failed; they are named above and in race.json", saved.failures.len()))
}

fn list(engines: &[Engine], workloads: &[Workload]) {
    for engine in engines {
        say(&format!("{:<20} {:<7} {}", engine.name, engine.place.word(), engine.title));
    }
    say("");
    for workload in workloads {
        say(&format!("{:<20} {}", workload.name, workload.title));
    }
}

/// Makes the pages from what was saved.
fn report(options: &Options, files: &[PathBuf]) -> Outcome<()> {
    let shown =
        |file: &PathBuf| file.strip_prefix(&options.root).unwrap_or(file).display().to_string();
    let names: Vec<String> = files.iter().map(shown).collect();
    let parts = files.iter().map(|file| Saved::read(file)).collect::<Outcome<Vec<_>>>()?;
    let saved = Saved::merged(parts)?;
    let targets = targets::read(&options.root.join("peers"))?;
    let docs = pages_dir(&options.root.join("docs/bench"), &saved.machine.name());
    let mut written = Vec::new();
    let mut write = |path: PathBuf, text: &str| {
        let directory = path.parent().expect("a file has a directory");
        std::fs::create_dir_all(directory)
            .and_then(|()| std::fs::write(&path, text))
            .map_err(|cause| format!("cannot write `{}`: {cause}", path.display()))?;
        written.push(path.display().to_string());
        Ok::<(), Failure>(())
    };
    let pictures = picture::all(&saved);
    for picture in &pictures {
        write(docs.join(&picture.file), &picture.svg)?;
    }
    let up = if docs.ends_with("bench") { "" } else { "../" };
    let page = markdown::page(&saved, &targets, &pictures, &names.join(","), up);
    write(docs.join("results.md"), &page)?;
    write(docs.join("results.csv"), &csv::page(&saved))?;
    // All of it is in the other files, so the repository does not keep it.
    let page = options.root.join("target/race/results.html");
    write(page, &html::page(&saved, &targets, &pictures))?;
    say(&format!("written: {}", written.join(", ")));
    Ok(())
}

/// Returns where the pages of a machine go: into `docs`, unless the page there is another machine's.
fn pages_dir(docs: &Path, machine: &str) -> PathBuf {
    let there = std::fs::read_to_string(docs.join("results.md")).unwrap_or_default();
    match markdown::machine_of_page(&there) {
        Some(other) if other != machine => docs.join(machine),
        _ => docs.to_owned(),
    }
}
