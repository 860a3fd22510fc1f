//! Programs that are run: in the repository's root, with their output passed on.

use std::ffi::OsStr;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Failure, console};

/// Returns a command that runs `program` in `root`.
pub(crate) fn command(root: &Path, program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root);
    // What `cargo run` told this process about its own package is not true of others.
    for (name, _) in std::env::vars_os() {
        let is_own = name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        });
        if is_own {
            command.env_remove(name);
        }
    }
    command
}

/// Returns the command as one would type it, with the variables set for it.
pub(crate) fn as_typed(command: &Command) -> String {
    let mut words = Vec::new();
    for (name, value) in command.get_envs() {
        let Some(value) = value else { continue };
        words.push(format!("{}={}", name.display(), quoted(value)));
    }
    words.push(quoted(command.get_program()));
    words.extend(command.get_args().map(quoted));
    words.join(" ")
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    if word.contains(' ') { format!("'{word}'") } else { word.into_owned() }
}

/// Runs the command with its output where this thread writes.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    console::say(&format!("$ {}", as_typed(command)));
    console::share_with(command);
    let status = command.status().map_err(|cause| cannot_start(command, &cause))?;
    if status.success() { Ok(()) } else { Err(format!("`{}`: {status}", as_typed(command))) }
}

/// Runs the command quietly and returns what it wrote to stdout.
pub(crate) fn output(command: &mut Command) -> Result<String, Failure> {
    let output = command.output().map_err(|cause| cannot_start(command, &cause))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`{}`: {}\n{words}", as_typed(command), output.status));
    }
    String::from_utf8(output.stdout)
        .map_err(|_| format!("`{}` wrote bytes that are not UTF-8", as_typed(command)))
}

/// Runs tests with their output where this thread writes, and returns how many passed.
pub(crate) fn run_tests(command: &mut Command) -> Result<u64, Failure> {
    console::say(&format!("$ {}", as_typed(command)));
    console::share_with(command);
    let mut child =
        command.stdout(Stdio::piped()).spawn().map_err(|cause| cannot_start(command, &cause))?;
    let stdout = child.stdout.take().expect("stdout is a pipe");
    let mut passed = 0;
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line.map_err(|cause| format!("cannot read the tests' output: {cause}"))?;
        let line = String::from_utf8_lossy(&line);
        passed += passed_count(&line).unwrap_or(0);
        console::say(&line);
    }
    let status = child.wait().map_err(|cause| cannot_start(command, &cause))?;
    if status.success() { Ok(passed) } else { Err(format!("`{}`: {status}", as_typed(command))) }
}

/// Returns the number of tests that passed, if `line` is the last line of a test binary.
fn passed_count(line: &str) -> Option<u64> {
    let (_, counts) = line.split_once("test result: ")?;
    let (before, _) = counts.split_once(" passed;")?;
    before.rsplit(' ').next()?.parse().ok()
}

fn cannot_start(command: &Command, cause: &io::Error) -> Failure {
    format!("cannot run `{}`: {cause}", command.get_program().display())
}

pub(crate) fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |path| root.join(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        command(Path::new("."), "sh", &["-c", script])
    }

    #[test]
    fn passed_tests_are_counted_over_all_binaries() {
        let script = "echo 'test result: ok. 12 passed; 0 failed; 0 ignored'; echo other;
            echo 'test result: ok. 3 passed; 0 failed; 0 ignored'";
        assert_eq!(run_tests(&mut shell(script)), Ok(15));
    }

    #[test]
    fn failing_programs_are_failures_that_name_the_command() {
        let failures = [
            run(&mut shell("exit 3")).expect_err("status 3"),
            run_tests(&mut shell("echo 'test result: ok. 1 passed;'; exit 3")).expect_err("3"),
            output(&mut shell("echo why >&2; exit 3")).expect_err("status 3"),
        ];
        for failure in &failures {
            assert!(failure.contains("sh -c") && failure.contains("exit status: 3"), "{failure}");
        }
        assert!(failures[2].contains("why"));
    }

    #[test]
    fn missing_programs_are_failures_that_name_the_program() {
        let mut missing = command(Path::new("."), "no-such-program", &[]);
        assert!(run(&mut missing).expect_err("missing").contains("no-such-program"));
    }

    #[test]
    fn commands_are_shown_as_typed() {
        let mut command = command(Path::new("."), "cargo", &["test", "--lib"]);
        command.env("RUSTFLAGS", "--cfg loom");
        let shown = as_typed(&command);
        assert_eq!(shown, "RUSTFLAGS='--cfg loom' cargo test --lib");
    }
}
