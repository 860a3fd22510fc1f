//! `cargo xtask test`: every test there is, in layers, the quick ones first.

use std::path::Path;
use std::process::Command;

use crate::dependencies::{self, Installing, Missing, NIGHTLY};
use crate::lanes::Layer;
use crate::process::{command, run as run_program, run_tests, target};
use crate::{Failure, console, drop_ins, instructions, lanes, licenses, python, race, tidy};

/// What became of a layer that did not fail.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// So many tests passed.
    Passed(u64),
    /// The reason why it was not run.
    Skipped(String),
}

/// Runs the layers to the first that fails; with a word only those that have it in their names.
pub(crate) fn run(root: &Path, word: Option<&str>, installing: Installing) -> Result<(), Failure> {
    console::say("== what the tests need");
    let missing = dependencies::install(root, installing)?;
    if dependencies::is_slow() {
        console::say("SPLITPOINT_SLOW=1: more rounds, larger sizes");
    }
    lanes::climb(chosen(layers(root, missing), word)?, &target(root).join("beside"))
}

/// Returns the layers with `word` in their names; that there is none is a failure.
fn chosen<'a>(layers: Vec<Layer<'a>>, word: Option<&str>) -> Result<Vec<Layer<'a>>, Failure> {
    let Some(word) = word else { return Ok(layers) };
    let names: Vec<&str> = layers.iter().map(|layer| layer.name).collect();
    let none = format!("no layer has `{word}` in its name; there are: {}", names.join(", "));
    let chosen: Vec<_> = layers.into_iter().filter(|layer| layer.name.contains(word)).collect();
    if chosen.is_empty() { Err(none) } else { Ok(chosen) }
}

fn layers(root: &Path, missing: Missing) -> Vec<Layer<'_>> {
    let cargo = move |line: &str| cargo(root, line);
    let program =
        move |line: &'static str| move || run_program(&mut cargo(line)).map(|()| Outcome::Done);
    let tests = move |line: &'static str| move || run_tests(&mut cargo(line)).map(Outcome::Passed);
    let layer = Layer::new;
    // They share no directory with the others, of what is built and locked, or for a moment only.
    let beside = Layer::beside;
    vec![
        layer("format", Box::new(program("fmt --all --check"))),
        layer("clippy", Box::new(program(CLIPPY))),
        layer("clippy, no features", Box::new(program(CLIPPY_NO_FEATURES))),
        layer("clippy, the wheel", Box::new(program(CLIPPY_WHEEL))),
        layer("tidy", Box::new(move || tidy::run(root).map(|()| Outcome::Done))),
        layer(
            "documentation",
            Box::new(move || {
                for line in DOCUMENTATION {
                    run_program(cargo(line).env("RUSTDOCFLAGS", "-D warnings"))?;
                }
                Ok(Outcome::Done)
            }),
        ),
        layer("licenses", Box::new(move || licenses::check(root).map(|()| Outcome::Done))),
        layer("tests", Box::new(tests(TESTS))),
        layer(
            "python",
            Box::new(move || match python::obstacle(root) {
                Some(reason) => Ok(Outcome::Skipped(reason)),
                None => python::test(root),
            }),
        ),
        beside("drop-ins", Box::new(move || drop_ins::test(root))),
        beside("race", Box::new(move || race::test(root).map(Outcome::Passed))),
        beside(
            "instructions",
            Box::new(move || {
                if dependencies::has_program("valgrind") {
                    instructions::test(root).map(Outcome::Passed)
                } else {
                    Ok(Outcome::Skipped("valgrind is not installed".to_owned()))
                }
            }),
        ),
        beside("loom", Box::new(move || must_pass(&mut loom(root)))),
        beside(
            "miri",
            Box::new(move || match missing.miri {
                Some(reason) => Ok(Outcome::Skipped(reason)),
                None => must_pass(&mut miri(root)),
            }),
        ),
        beside(
            "fuzz",
            Box::new(move || match missing.fuzz {
                Some(reason) => Ok(Outcome::Skipped(reason)),
                None => fuzz(root),
            }),
        ),
    ]
}

/// Tests and benchmarks too; they have the feature `sim` in any case, because the library is a
/// dependency of its own tests.
const CLIPPY: &str = "clippy --workspace --all-targets --all-features -- -D warnings";

/// What users build.
const CLIPPY_NO_FEATURES: &str = "clippy --workspace --lib --bins -- -D warnings";

/// What the wheel has: the command without its default features.
const CLIPPY_WHEEL: &str =
    "clippy -p splitpoint-python -p splitpoint-cli --lib --no-default-features -- -D warnings";

/// Links are checked in private documentation too. The public one is made last: the command's
/// would be in its place, since both are called `splitpoint`.
const DOCUMENTATION: [&str; 3] = [
    "doc --workspace --no-deps --bins --document-private-items",
    "doc --workspace --no-deps --lib --all-features --document-private-items",
    "doc --workspace --no-deps --lib",
];

/// New crates come under this layer by themselves. The tests of the C libraries need them installed. No crate is
/// tested apart: what it depends on would have other features, and be compiled a second time.
const TESTS: &str = "test --workspace --exclude splitpoint-c";

fn cargo(root: &Path, line: &str) -> Command {
    command(root, "cargo", &line.split(' ').collect::<Vec<_>>())
}

/// The orders of the steps of threads, with few preemptions: lookups beside splits and merges, pins beside
/// reuse, what a snapshot looks back to.
fn loom(root: &Path) -> Command {
    let mut command = cargo(root, "test -p splitpoint --profile loom --lib loom");
    // Other flags would build everything else again if they shared a directory.
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target(root).join("loom"));
    command
}

/// The tests in modules named `miri`, under an interpreter that sees undefined behavior.
fn miri(root: &Path) -> Command {
    let line = ["run", NIGHTLY, "cargo", "miri", "test", "-p", "splitpoint", "--lib", "miri"];
    let mut command = command(root, "rustup", &line);
    command.env("CARGO_TARGET_DIR", target(root).join("miri"));
    if cfg!(target_arch = "x86_64") {
        // It knows the instructions for checksums, and is slow with tables of them.
        command.env("RUSTFLAGS", "-C target-feature=+sse4.2");
    }
    command
}

/// The fuzz targets, by the names of their files.
const FUZZ_TARGETS: [&str; 13] = [
    "bdb",
    "cdb",
    "db185",
    "dbm",
    "dumb",
    "gdbm",
    "identify",
    "krb5",
    "load_formats",
    "open_scan",
    "record",
    "recovery",
    "sdbm",
];

/// Each fuzz target for a minute, from its corpus and what earlier runs have added to it.
fn fuzz(root: &Path) -> Result<Outcome, Failure> {
    for name in FUZZ_TARGETS {
        // What a run finds is kept apart from the inputs of the repository.
        let found = target(root).join("fuzz-corpus").join(name);
        std::fs::create_dir_all(&found)
            .map_err(|cause| format!("cannot create `{}`: {cause}", found.display()))?;
        let line = format!("run {NIGHTLY} cargo fuzz run --target-dir");
        let mut command = command(root, "rustup", &line.split(' ').collect::<Vec<_>>());
        command.arg(target(root).join("fuzz")).arg(name).arg(found);
        command.arg(format!("fuzz/corpus/{name}")).args(FUZZ_LIMITS);
        run_program(&mut command)?;
    }
    Ok(Outcome::Done)
}

/// One minute in all; an input of more than 60 s or 2 GiB is a failure.
const FUZZ_LIMITS: [&str; 6] = [
    "--",
    "-max_total_time=60",
    "-timeout=60",
    "-rss_limit_mb=2048",
    "-malloc_limit_mb=1024",
    "-print_final_stats=1",
];

/// Runs tests that are picked by a part of their name; to pick none is a failure.
fn must_pass(command: &mut Command) -> Result<Outcome, Failure> {
    match run_tests(command)? {
        0 => Err("no test has this word in its name, so nothing was tested".to_owned()),
        passed => Ok(Outcome::Passed(passed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fuzz_target_is_run_and_has_a_corpus() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
        let names = |directory: &str| {
            let entries = std::fs::read_dir(root.join(directory)).expect("it is there");
            let paths = entries.map(|entry| entry.expect("it is listed").path());
            let mut names: Vec<String> = paths
                .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
                .collect();
            names.sort();
            names
        };
        assert_eq!(names("fuzz/fuzz_targets"), FUZZ_TARGETS);
        assert_eq!(names("fuzz/corpus"), FUZZ_TARGETS);
    }

    #[test]
    fn a_word_chooses_the_layers_that_have_it_in_their_names() {
        let layers = || {
            let done = || Ok(Outcome::Done);
            ["tests of one", "tests of two", "fuzz"]
                .map(|name| Layer::new(name, Box::new(done)))
                .into_iter()
                .collect::<Vec<_>>()
        };
        let names = |word| -> Result<Vec<&str>, Failure> {
            Ok(chosen(layers(), word)?.iter().map(|layer| layer.name).collect())
        };
        assert_eq!(names(None).map(|names| names.len()), Ok(3));
        assert_eq!(names(Some("tests")), Ok(vec!["tests of one", "tests of two"]));
        assert_eq!(names(Some("fuzz")), Ok(vec!["fuzz"]));
        let failure = names(Some("lint")).expect_err("no such layer");
        assert!(failure.ends_with("there are: tests of one, tests of two, fuzz"), "{failure}");
    }

    #[test]
    fn a_filter_that_picks_no_test_fails() {
        let root = Path::new(".");
        let none = "echo 'test result: ok. 0 passed; 0 failed'";
        assert!(must_pass(&mut command(root, "sh", &["-c", none])).is_err());
        let one = "echo 'test result: ok. 1 passed; 0 failed'";
        assert_eq!(must_pass(&mut command(root, "sh", &["-c", one])), Ok(Outcome::Passed(1)));
    }
}
