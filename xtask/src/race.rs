//! `cargo xtask race`: other engines and this one against each other.
//!
//! What does it is a program in `peers/`, a workspace of its own: what reads and writes the results
//! is thus no dependency of every `cargo xtask test`, and the other engines are none of the store.

use std::path::Path;
use std::process::Command;

use crate::process::{command, run as run_program, run_tests, target};
use crate::{Failure, drop_ins, stage};

/// Runs the race's program, built with optimization if it is not yet. With `--drop-ins` it gets to know where
/// those are, which are built and installed first.
pub(crate) fn run(root: &Path, options: &[String]) -> Result<(), Failure> {
    let mut command = cargo(root, "run --quiet --release --locked --package race");
    command.arg("--").arg("--root").arg(root);
    let asks = options.iter().any(|option| option == "--help");
    for option in options.iter().filter(|option| *option != DROP_INS || !asks) {
        command.arg(option);
        if option == DROP_INS {
            command.arg(drop_ins::install(root, stage::RELEASE)?);
        }
    }
    run_program(&mut command)
}

const DROP_INS: &str = "--drop-ins";

/// Formats, lints and tests what runs the race, and the common part of the engines in Rust; returns
/// how many tests passed. The engines themselves are compiled by a race only.
pub(crate) fn test(root: &Path) -> Result<u64, Failure> {
    run_program(&mut cargo(root, "fmt --all --check"))?;
    let mut clippy = cargo(root, "clippy --locked --all-targets --features engines_c/std_hash_map");
    run_program(clippy.args(["--", "-D", "warnings"]))?;
    run_tests(&mut cargo(root, "test --locked --package race"))
}

/// Cargo, with the workspace `peers/` and a directory of its own for what it builds.
fn cargo(root: &Path, line: &str) -> Command {
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    let mut command = command(root, "cargo", &[verb, "--manifest-path", "peers/Cargo.toml"]);
    command.args(rest.split_whitespace()).env("CARGO_TARGET_DIR", target(root).join("peers"));
    command
}
