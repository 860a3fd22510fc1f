//! The tests of Perl's `GDBM_File`, with Debian's module and our library.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Whose, assert_bound_to_ours, bind, succeed};

/// Points a run of `apt-get` at lists of sources of its own.
fn apt_get(folder: &Path) -> Command {
    let mut command = Command::new("apt-get");
    command.current_dir(folder).arg("-q");
    for (option, path) in [
        ("Dir::Etc::sourcelist", "none"),
        ("Dir::Etc::sourceparts", "parts"),
        ("Dir::State::lists", "lists"),
    ] {
        command.arg("-o").arg(format!("{option}={}", folder.join(path).display()));
    }
    command
}

/// Fetches the source of the interpreter from where the machine gets its packages, or returns `None`
/// where there is no list of that.
fn fetch_source(folder: &Path) -> Option<()> {
    let list = fs::read_to_string("/etc/apt/sources.list.d/debian.sources").ok()?;
    for name in ["parts", "lists/partial"] {
        fs::create_dir_all(folder.join(name)).expect("there is room");
    }
    // Updates may have gone from the server that the list names.
    let first = list.split("\n\n").next().unwrap_or_default();
    let sources = first.replace("Types: deb\n", "Types: deb-src\n");
    fs::write(folder.join("parts/debian.sources"), sources).expect("there is room");
    succeed(apt_get(folder).arg("update"));
    succeed(apt_get(folder).args(["source", "--download-only", "perl"]));
    let archive = fs::read_dir(folder).expect("the folder is ours").find_map(|entry| {
        let path = entry.expect("the folder is ours").path();
        path.to_string_lossy().ends_with(".orig.tar.xz").then_some(path)
    });
    let mut tar = Command::new("tar");
    tar.arg("xJf").arg(archive.expect("a source has an archive")).arg("--strip-components=1");
    tar.args(["--wildcards", "*/ext/GDBM_File/*", "*/t/lib/*", "*/lib/dbm_filter_util.pl"]);
    succeed(tar.current_dir(folder));
    Some(())
}

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
        return;
    }
    let source = tempfile::tempdir().expect("there is room");
    if fetch_source(source.path()).is_none() {
        return;
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
