//! Under valgrind, which ends with 9 for an invalid access or a block that is lost.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Program, Whose, bind, has_program, skip, succeed};

const FULL: &str = "--leak-check=full";
const OPTIONS: [&str; 3] = ["-q", "--error-exitcode=9", "--errors-for-leak-kinds=definite"];

#[test]
fn no_call_leaks_or_touches_what_was_freed() {
    if !has_program("valgrind") {
        return skip("valgrind is not installed");
    }
    let sample = "../splitpoint-legacy/tests/fixtures/gdbm-be-std-word.gdbm";
    let sample = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(sample)).unwrap();
    let (all, no_leaks) = (FULL, "--leak-check=no");
    for (name, args, leaks) in [
        ("calls", &[][..], all),
        ("walks", &[], all),
        ("recover", &[], all),
        ("old", &["read", "sample"], all),
        ("old", &["write", "sample"], all),
        ("dumps", &["source.db"], all),
        ("locks", &[], all),
        // It leaves the handles whose file was cut.
        ("cut", &[], no_leaks),
        ("locks", &[], no_leaks),
        // They leave handles behind.
        ("converts", &["goes elsewhere"], no_leaks),
        ("converts", &["loses its name"], no_leaks),
        ("converts", &["walks"], no_leaks),
        ("converts", &["was killed"], no_leaks),
        ("converts", &["was kept"], no_leaks),
        ("converts", &["are two"], no_leaks),
        ("converts", &["is closed"], no_leaks),
    ] {
        let program = Program::compile(name);
        let sample_name = if name == "converts" { "old" } else { "sample" };
        std::fs::write(program.folder.path().join(sample_name), &sample).unwrap();
        let mut command = Command::new("timeout");
        command.args(["300", "valgrind"]);
        if (name, leaks) == ("locks", all) {
            // A child leaves its parent's handle behind.
            command.arg("--child-silent-after-fork=yes");
        }
        command.args(OPTIONS).arg(leaks);
        command.arg(program.folder.path().join(format!("{name}.bin"))).args(args);
        command.current_dir(program.folder.path()).env("SPLITPOINT_OLD_FILES", "convert");
        bind(&mut command, Whose::Ours);
        // A child that is killed has no status that tells.
        assert_eq!(String::from_utf8_lossy(&succeed(&mut command).stderr), "", "{name}");
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
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(last, "1999");
    let mut command = Command::new("timeout");
    command.args(["300", "valgrind"]);
    succeed(under_valgrind(command, &reader, "read.bin").arg("2000"));
}
