//! Under valgrind, which ends with 9 for an invalid access or a block that is lost.

use std::path::Path;

use crate::support::{Program, Whose, bind, has_program, skip, succeed};

#[test]
fn no_call_leaks_or_touches_what_was_freed() {
    if !has_program("valgrind") {
        return skip("valgrind is not installed");
    }
    let sample = "../splitpoint-legacy/tests/fixtures/gdbm-be-std-word.gdbm";
    let sample = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(sample)).unwrap();
    let (all, no_leaks) = ("--leak-check=full", "--leak-check=no");
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
    ] {
        let program = Program::compile(name);
        std::fs::write(program.folder.path().join("sample"), &sample).unwrap();
        let mut command = std::process::Command::new("timeout");
        command.args(["300", "valgrind", "-q", "--error-exitcode=9", leaks]);
        command.args(["--errors-for-leak-kinds=definite", "--child-silent-after-fork=yes"]);
        command.arg(program.folder.path().join(format!("{name}.bin"))).args(args);
        command.current_dir(program.folder.path()).env("SPLITPOINT_OLD_FILES", "convert");
        bind(&mut command, Whose::Ours);
        succeed(&mut command);
    }
}
