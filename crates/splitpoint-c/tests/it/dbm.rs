//! `libsplitpoint_dbm`, and the stand-in for gdbm's compatibility library, from C.

use std::process::Command;

use crate::support::{Link, Program, prefix, succeed};

#[test]
fn the_interface_does_what_the_header_says() {
    for link in [Link::Shared, Link::Archive, Link::Static] {
        let dir = tempfile::tempdir().unwrap();
        Program::new("dbm.c", &["splitpoint_dbm"], link).run(&[&dir.path().join("x")]);
    }
}

#[test]
fn nothing_leaks_and_nothing_is_used_after_its_end() {
    let dir = tempfile::tempdir().unwrap();
    Program::new("dbm.c", &["splitpoint_dbm"], Link::Shared).run_checked(&[&dir.path().join("x")]);
}

#[test]
fn the_drop_in_takes_the_place_of_the_compatibility_library_of_gdbm() {
    // Linked by the name that configure scripts look for, and found by its SONAME in the folder for
    // the run time.
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("program");
    let lib = prefix().join("lib/splitpoint");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c/dbm.c");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", source, "-o"]).arg(&program);
    cc.arg("-I").arg(prefix().join("include/splitpoint"));
    cc.arg("-L").arg(lib.join("link")).arg("-lgdbm_compat");
    succeed(&mut cc);
    let needed = succeed(Command::new("readelf").arg("-d").arg(&program));
    assert!(needed.contains("[libgdbm_compat.so.4]"), "{needed}");
    let mut run = Command::new("timeout");
    run.arg("60").arg(&program).arg(dir.path().join("x"));
    run.env("LD_LIBRARY_PATH", lib.join("drop-in")).env("LD_DEBUG", "bindings");
    let output = run.output().unwrap();
    assert!(output.status.success());
    let bindings = String::from_utf8_lossy(&output.stderr);
    let mut bound = bindings.lines().filter(|line| line.contains("symbol `dbminit'"));
    assert!(bound.all(|line| line.contains("drop-in/libgdbm_compat.so.4")), "{bindings}");
    assert!(bindings.contains("symbol `dbminit'"));
}
