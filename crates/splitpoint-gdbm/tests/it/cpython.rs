//! The own tests of `CPython` for `dbm.gnu`, `dbm` and `shelve`, with Debian's interpreter and our
//! library.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Whose, assert_bound_to_ours, bind, skip, succeed, unpack_packages};

const PYTHON: &str = "/usr/bin/python3.11";
const PACKAGES: [&str; 2] = ["libpython3.11-testsuite", "python3-gdbm"];

/// What the interpreter runs: the packages are in the first argument.
const RUN: &str = "
import sys, test, unittest
test.__path__.insert(0, sys.argv[1] + '/usr/lib/python3.11/test')
unittest.main(module=None, argv=['tests', 'test.test_dbm_gnu', 'test.test_dbm', 'test.test_shelve'])
";

fn python(packages: &Path, folder: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(["200", PYTHON, "-c", RUN]).arg(packages).current_dir(folder);
    let library = packages.join("usr/lib/python3.11");
    let modules = [library.clone(), library.join("lib-dynload"), PathBuf::from("/nowhere")];
    command.env("PYTHONPATH", std::env::join_paths(modules).expect("no colons"));
    bind(&mut command, Whose::Ours);
    command
}

#[test]
fn the_tests_of_cpython_pass() {
    if !Path::new(PYTHON).exists() {
        return skip("there is no Python 3.11 of Debian");
    }
    let [packages, folder] = [(); 2].map(|()| tempfile::tempdir().expect("there is room"));
    if unpack_packages(packages.path(), &PACKAGES).is_none() {
        return skip("the packages cannot be fetched");
    }
    assert_bound_to_ours(python(packages.path(), folder.path()), "gdbm_open");
    let output = succeed(&mut python(packages.path(), folder.path()));
    let version = String::from_utf8_lossy(&output.stdout);
    assert!(version.contains("gdbm version: (1, 23, 0)"), "{version}");
    let words = String::from_utf8_lossy(&output.stderr);
    let count = words.lines().find_map(|line| line.strip_prefix("Ran ")?.split(' ').next());
    let count: u32 = count.expect("a count").parse().expect("a number");
    assert!(count >= 400, "{words}");
}
