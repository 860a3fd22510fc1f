//! The tests of Perl's `GDBM_File`, with Debian's module and our library.

use std::path::Path;
use std::process::Command;

use crate::debian::fetch_perl_source;
use crate::support::{Whose, assert_bound_to_ours, bind, skip, succeed};

fn perl(source: &Path, test: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["100", "perl", "-I../../lib", test]).current_dir(source.join("ext/GDBM_File"));
    bind(&mut command, Whose::Ours);
    command
}

#[test]
fn the_tests_of_perl_pass() {
    let has_module = Command::new("perl").args(["-MGDBM_File", "-e", "1"]).output();
    if !has_module.is_ok_and(|output| output.status.success()) {
        return skip("perl has no GDBM_File");
    }
    let source = tempfile::tempdir().expect("there is room");
    if fetch_perl_source(source.path(), "ext/GDBM_File").is_none() {
        return skip("the source of perl cannot be fetched");
    }
    assert_bound_to_ours(perl(source.path(), "t/count.t"), "gdbm_open");
    let mut passed = 0;
    for test in ["gdbm", "dump", "fatal", "opt", "snapshot", "count"] {
        let output = succeed(&mut perl(source.path(), &format!("t/{test}.t")));
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!lines.lines().any(|line| line.starts_with("not ok")), "{test}: {lines}");
        passed += lines.lines().filter(|line| line.starts_with("ok ")).count();
    }
    assert!(passed >= 178, "{passed}");
}
