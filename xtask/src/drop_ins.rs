//! The layer `drop-ins`: the C libraries as they are installed, under tests of their own and under
//! suites that others wrote for the originals.
//!
//! The suites come from Debian's packages when they are run; none is in the repository. Each is run on the
//! original and on ours in every [`Form`], must pass as often on both, and proves by the output of the
//! dynamic linker whose functions the program called.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::dependencies::{has_program, is_slow};
use crate::layers::Outcome;
use crate::process::{as_typed, command, run_tests, target};
use crate::{Failure, console, stage};

mod debian;
mod perl;
mod python;

/// Why a suite has not run to its end.
#[derive(Debug)]
enum Stop {
    /// It cannot be run on this machine, or not now.
    Obstacle(String),
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Installs the libraries and runs everything on them; returns how many tests passed.
pub(crate) fn test(root: &Path) -> Result<Outcome, Failure> {
    let place = target(root).join("drop-ins");
    let profile = if is_slow() { stage::RELEASE } else { stage::UNDER_TEST };
    let prefix = install(root, profile)?;
    let mut tests = command(root, "cargo", &OWN_TESTS);
    let own = run_tests(tests.env("SPLITPOINT_PREFIX", &prefix))?;
    let suites = Suites { root, prefix, place };
    outcome(own, [("Perl", suites.perl()), ("CPython", suites.python())])
}

/// The Python package, with its features in the layer `python`, adds no test. With it the crates below have the
/// features that they have there, and are compiled once for both.
const OWN_TESTS: [&str; 7] = [
    "test",
    "--package",
    "splitpoint-c",
    "--package",
    "splitpoint-python",
    "--features",
    "splitpoint-python/testing",
];

/// What the layer says: a suite that could not be run is named, and a layer in which none ran is skipped.
fn outcome<const COUNT: usize>(
    own: u64,
    suites: [(&str, Result<u64, Stop>); COUNT],
) -> Result<Outcome, Failure> {
    let (mut passed, mut reasons) = (own, Vec::new());
    for (name, result) in suites {
        match result {
            Ok(count) => passed += count,
            Err(Stop::Obstacle(reason)) => reasons.push(format!("suites of {name}: {reason}")),
            Err(Stop::Failed(failure)) => return Err(failure),
        }
    }
    for reason in &reasons {
        console::say(&format!("skipped: {reason}"));
    }
    if reasons.len() < COUNT {
        return Ok(Outcome::Passed(passed));
    }
    Ok(Outcome::Skipped(format!("{}; {own} other tests passed", reasons.join("; "))))
}

/// Installs the libraries, compiled with a profile, and returns where.
pub(crate) fn install(root: &Path, profile: &str) -> Result<PathBuf, Failure> {
    let prefix = target(root).join("drop-ins/prefix");
    stage::run(root, &prefix, None, profile)?;
    Ok(prefix)
}

/// Requires programs, and what the packages of the suites are fetched with.
fn require(programs: &[&str]) -> Result<(), Stop> {
    let mut needed = programs.iter().chain(&["apt-get", "dpkg", "tar", "cc", "timeout"]);
    if let Some(missing) = needed.find(|program| !has_program(program)) {
        return Err(Stop::Obstacle(format!("{missing} is not installed")));
    }
    let list = debian::LIST;
    let is_there = Path::new(list).is_file();
    if is_there { Ok(()) } else { Err(Stop::Obstacle(format!("there is no `{list}`"))) }
}

/// How a program gets a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// It was compiled for the original, and has it.
    Original,
    /// It was compiled for the original, and finds ours under its name.
    Swapped,
    /// It was compiled for the original, and ours is loaded before.
    Preloaded,
    /// It was compiled with our header.
    Relinked,
}

/// A library, by the names that programs know.
#[derive(Clone, Copy, Debug)]
struct Library {
    /// After `-l`, in `lib/splitpoint/link`.
    name: &'static str,
    /// The file in `lib/` that takes the original's place, or its name in `lib/splitpoint/drop-in`.
    file: &'static str,
    /// A function of it that every test calls.
    function: &'static str,
}

/// Suites of others, and what they are run on.
struct Suites<'a> {
    root: &'a Path,
    prefix: PathBuf,
    place: PathBuf,
}

/// Longest time in seconds that the tests of one file may take.
const SECONDS_MAX: &str = "300";

/// Variables that choose formats: a suite that does not set them has none.
const VARIABLES: [&str; 2] = ["SPLITPOINT_NEW_FILES", "SPLITPOINT_OLD_FILES"];

impl Suites<'_> {
    /// Returns a command that runs a program of a suite, for a bounded time.
    fn bounded(&self, program: &str) -> Command {
        let mut command = command(self.root, "timeout", &[SECONDS_MAX, program]);
        for variable in VARIABLES {
            command.env_remove(variable);
        }
        command
    }

    /// Runs a command with a library in one of the forms, requires that the library's function was bound to
    /// ours, or to the original, and to no other, and returns what the command said.
    fn proved(&self, mut run: Command, form: Form, library: Library) -> Result<String, Failure> {
        let lib = self.prefix.join("lib");
        let drop_in = lib.join("splitpoint/drop-in");
        match form {
            Form::Original => {}
            Form::Swapped => {
                run.env("LD_LIBRARY_PATH", &drop_in);
            }
            Form::Preloaded => {
                let swapped = drop_in.join(library.file);
                let file = if swapped.exists() { swapped } else { lib.join(library.file) };
                run.env("LD_PRELOAD", file);
            }
            Form::Relinked => {
                run.env("LD_LIBRARY_PATH", &lib);
            }
        }
        // A process adds its number.
        let (log, logs) = (self.place.join("bindings/of"), self.place.join("bindings"));
        let _ = fs::remove_dir_all(&logs);
        fs::create_dir_all(&logs).map_err(|cause| format!("`{}`: {cause}", logs.display()))?;
        run.env("LD_DEBUG", "bindings").env("LD_DEBUG_OUTPUT", &log);
        let said = run.output().map_err(|cause| format!("cannot run {run:?}: {cause}"))?;
        let mut words = String::from_utf8_lossy(&said.stdout).into_owned();
        words.push_str(&String::from_utf8_lossy(&said.stderr));
        if !said.status.success() {
            return Err(format!("{form:?}: `{}`: {}\n{words}", as_typed(&run), said.status));
        }
        let mut bound = Vec::new();
        for entry in fs::read_dir(&logs).into_iter().flatten().flatten() {
            let text = fs::read(entry.path()).unwrap_or_default();
            bound.extend(targets_of(&String::from_utf8_lossy(&text), library.function));
        }
        let prefix = self.prefix.to_string_lossy();
        let is_right = |target: &String| (form != Form::Original) == target.starts_with(&*prefix);
        match bound.iter().find(|target| !is_right(target)) {
            Some(wrong) => Err(format!("{form:?}: {} is that of {wrong}", library.function)),
            None if bound.is_empty() => {
                Err(format!("{form:?}: `{}` never called {}", as_typed(&run), library.function))
            }
            None => Ok(words),
        }
    }
}

/// Returns the files to which the dynamic linker says that it has bound a function.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_function_was_bound_to_is_read_from_the_words_of_the_linker() {
        let log = "\
      7: binding file /p/N.so [0] to /lib/libgdbm.so.6 [0]: normal symbol `gdbm_open'
      7: binding file /p/N.so [0] to /ours/libgdbm.so.6 [0]: normal symbol `gdbm_open'
      7: binding file /p/N.so [0] to /a folder/libgdbm.so.6 [0]: normal symbol `gdbm_close'
      7: binding file /p/N.so [0] to /lib/libc.so.6 [0]: normal symbol `gdbm_opened' [G]
";
        assert_eq!(targets_of(log, "gdbm_open"), ["/lib/libgdbm.so.6", "/ours/libgdbm.so.6"]);
        assert_eq!(targets_of(log, "gdbm_close"), ["/a folder/libgdbm.so.6"]);
        assert!(targets_of(log, "open").is_empty());
    }

    #[test]
    fn a_suite_that_fails_fails_the_layer_and_one_without_any_is_skipped() {
        let stop = |reason: &str| Err(Stop::Obstacle(reason.to_owned()));
        let fails = || Err(Stop::Failed("wrong".to_owned()));
        assert_eq!(outcome(1, [("a", Ok(2)), ("b", Ok(4))]), Ok(Outcome::Passed(7)));
        assert_eq!(outcome(1, [("a", stop("no net")), ("b", Ok(4))]), Ok(Outcome::Passed(5)));
        assert_eq!(outcome(1, [("a", stop("no net")), ("b", fails())]), Err("wrong".to_owned()));
        let skipped = outcome(1, [("a", stop("no net")), ("b", stop("no cc"))]);
        let reasons = "suites of a: no net; suites of b: no cc; 1 other tests passed";
        assert_eq!(skipped, Ok(Outcome::Skipped(reasons.to_owned())));
    }
}
