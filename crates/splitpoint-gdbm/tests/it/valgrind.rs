//! Under valgrind, which ends with 9 for an invalid access or a block that is lost.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::memcheck::found_by_valgrind;
use crate::old_files::CONVERSIONS;
use crate::support::{Program, Whose, bind, has_program, skip, succeed};

const FULL: &str = "--leak-check=full";
const OPTIONS: [&str; 3] = ["-q", "--error-exitcode=9", "--errors-for-leak-kinds=definite"];

const NO_LEAKS: &str = "--leak-check=no";

/// Runs programs, each with its arguments and what is asked about leaks.
fn check(runs: &[(&str, &[&str], &str)]) {
    if !has_program("valgrind") {
        return skip("valgrind is not installed");
    }
    let sample = "../splitpoint-legacy/tests/fixtures/gdbm-be-std-word.gdbm";
    let sample = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(sample)).expect("a file");
    for &(name, args, leaks) in runs {
        let program = Program::compile(name);
        let sample_name = if name == "converts" { "old" } else { "sample" };
        std::fs::write(program.folder.path().join(sample_name), &sample).expect("there is room");
        let mut command = Command::new("timeout");
        command.args(["300", "valgrind"]);
        if (name, leaks) == ("locks", FULL) {
            // A child leaves its parent's handle behind.
            command.arg("--child-silent-after-fork=yes");
        }
        command.args(OPTIONS).arg(leaks);
        command.arg(program.folder.path().join(format!("{name}.bin"))).args(args);
        command.current_dir(program.folder.path()).env("SPLITPOINT_OLD_FILES", "convert");
        bind(&mut command, Whose::Ours);
        // A child that is killed has no status that tells.
        assert_eq!(found_by_valgrind(&succeed(&mut command).stderr), "", "{name}");
    }
}

#[test]
fn no_call_leaks_or_touches_what_was_freed() {
    check(&[("calls", &[], FULL), ("walks", &[], FULL), ("recover", &[], FULL)]);
}

#[test]
fn no_old_file_no_dump_and_no_lock_leaks_or_touches_what_was_freed() {
    check(&[
        ("old", &["read", "sample"], FULL),
        ("old", &["write", "sample"], FULL),
        ("dumps", &["source.db"], FULL),
        ("loads", &["0"], FULL),
        ("locks", &[], FULL),
        // It leaves the handles whose file was cut.
        ("cut", &[], NO_LEAKS),
        ("locks", &[], NO_LEAKS),
    ]);
}

/// They leave handles behind.
#[test]
fn no_conversion_touches_what_was_freed() {
    for case in CONVERSIONS {
        check(&[("converts", &[case], NO_LEAKS)]);
    }
}

/// A killed program has no status that tells: what valgrind has found is on its standard error.
#[test]
fn a_killed_writer_and_who_reads_after_it_touch_nothing_that_was_freed() {
    if !has_program("valgrind") {
        return skip("valgrind is not installed");
    }
    let [writer, reader] = ["crash", "read"].map(Program::compile);
    let under_valgrind = |mut command: Command, program: &Program, name: &str| {
        command.args(OPTIONS).arg(FULL).arg(program.folder.path().join(name)).arg("a.db");
        bind(command.current_dir(writer.folder.path()), Whose::Ours);
        command
    };
    // Without `timeout`, which would be killed in its place.
    let mut command = under_valgrind(Command::new("valgrind"), &writer, "crash.bin");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // The pipe stays until it is killed.
    let last = lines.by_ref().take(2000).last().expect("it stores").unwrap();
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(found_by_valgrind(&output.stderr), "");
    assert_eq!(last, "1999");
    let mut command = Command::new("timeout");
    command.args(["300", "valgrind"]);
    succeed(under_valgrind(command, &reader, "read.bin").arg("2000"));
}
