//! The layer `drop-ins`: the C libraries as they are installed, under tests of their own and under
//! suites that others wrote for the originals.
//!
//! The suites come from Debian's packages when they are run; none is in the repository. Each is run on the
//! original and on ours in every [`Form`], must pass as often on both, and proves by the output of the
//! dynamic linker whose functions the program called.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::dependencies::has_program;
use crate::layers::Outcome;
use crate::process::{as_typed, command, run as run_program, run_tests, target};
use crate::{Failure, console, stage};

mod debian;
mod perl;
mod python;

/// Installs the libraries and runs everything on them; returns how many tests passed.
pub(crate) fn test(root: &Path) -> Result<Outcome, Failure> {
    let place = target(root).join("drop-ins");
    let prefix = place.join("prefix");
    stage::run(root, &prefix, None)?;
    let mut tests = command(root, "cargo", &["test", "--package", "splitpoint-c"]);
    let passed = run_tests(tests.env("SPLITPOINT_PREFIX", &prefix))?;
    let suites = Suites { root, prefix, place };
    match obstacle().or_else(|| suites.source("perl", perl::SOURCES).err()) {
        Some(reason) => {
            console::say(&format!("suites of the originals: skipped: {reason}"));
            Ok(Outcome::Passed(passed))
        }
        None => Ok(Outcome::Passed(passed + suites.perl()? + suites.python()?)),
    }
}

/// Installs the libraries, and times them against those of the machine: PAIRS, ENTRIES, ROUNDS and FOLDER of
/// `benches/race.rs`.
pub(crate) fn race(root: &Path, options: &[String]) -> Result<(), Failure> {
    let prefix = target(root).join("drop-ins/prefix");
    stage::run(root, &prefix, None)?;
    let line = ["bench", "--package", "splitpoint-gdbm", "--bench", "race", "--"];
    run_program(command(root, "cargo", &line).arg(&prefix).args(options))
}

/// Returns why the suites cannot be run, if so.
fn obstacle() -> Option<String> {
    let needed = ["apt-get", "dpkg", "perl", "make", "tar", "cc"];
    if let Some(missing) = needed.into_iter().find(|program| !has_program(program)) {
        return Some(format!("{missing} is not installed"));
    }
    let list = debian::LIST;
    if !Path::new(list).is_file() {
        return Some(format!("there is no `{list}`"));
    }
    let has = |modules: &str, test: &str| {
        let perl = Command::new("perl").args(modules.split(' ')).args(["-e", test]).output();
        perl.is_ok_and(|output| output.status.success())
    };
    if !has("-MNDBM_File -MODBM_File -MGDBM_File", "1") {
        return Some("perl has no NDBM_File, ODBM_File and GDBM_File".to_owned());
    }
    let has_headers = has(
        "-MConfig -MDevel::PPPort -MExtUtils::Constant",
        "exit !-e \"$Config{archlibexp}/CORE/perl.h\"",
    );
    (!has_headers).then(|| "perl has no headers, or no Devel::PPPort".to_owned())
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

impl Suites<'_> {
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
    let targets = lines.filter_map(|line| line.split(" to ").nth(1)?.split(' ').next());
    targets.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_function_was_bound_to_is_read_from_the_words_of_the_linker() {
        let log = "\
      7: binding file /p/N.so [0] to /lib/libgdbm.so.6 [0]: normal symbol `gdbm_open'
      7: binding file /p/N.so [0] to /ours/libgdbm.so.6 [0]: normal symbol `gdbm_open'
      7: binding file /p/N.so [0] to /lib/libc.so.6 [0]: normal symbol `gdbm_opened' [G]
";
        assert_eq!(targets_of(log, "gdbm_open"), ["/lib/libgdbm.so.6", "/ours/libgdbm.so.6"]);
        assert!(targets_of(log, "open").is_empty());
    }
}
