//! The own tests of `CPython` for `dbm.gnu`, `dbm.ndbm`, `dbm` and `shelve`, with Debian's interpreter.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Form, Library, Stop, Suites, require};
use crate::process::{command, output, run as run_program};
use crate::{Failure, console};

/// A module of C, and the tests that use it.
struct Module {
    name: &'static str,
    /// A macro that chooses the header.
    defines: &'static str,
    library: Library,
    /// What it is linked with, for the original, and the packages with the headers.
    original: &'static [&'static str],
    packages: &'static [&'static str],
    tests: &'static [&'static str],
    /// As many pass in Debian 12: without one of the files there are fewer.
    tests_min: u64,
}

/// Tests of `test_dbm` for the module of the package `python3-gdbm`, where that is installed.
const TESTS_OF_GDBM: u64 = 13;

const MODULES: [Module; 2] = [
    Module {
        name: "_dbm",
        defines: "-DUSE_NDBM",
        library: Library { name: "ndbm", file: "libgdbm_compat.so.4", function: "dbm_open" },
        original: &["-l:libgdbm_compat.so.4", "-l:libgdbm.so.6"],
        packages: &["libgdbm-compat-dev", "libgdbm-dev"],
        tests: &["test_dbm_ndbm", "test_dbm"],
        tests_min: 40,
    },
    Module {
        name: "_gdbm",
        defines: "-DUSE_GDBM",
        library: Library { name: "gdbm", file: "libgdbm.so.6", function: "gdbm_open" },
        original: &["-l:libgdbm.so.6"],
        packages: &["libgdbm-dev"],
        tests: &["test_dbm_gnu", "test_dbm", "test_shelve"],
        tests_min: 404,
    },
];

/// What the interpreter runs: the folder of the tests, and their names.
const RUN: &str = "import sys, test, unittest
test.__path__.insert(0, sys.argv[1])
unittest.main(module=None, argv=['tests'] + ['test.' + name for name in sys.argv[2:]])";

/// What it says about itself.
const ASK: &str = "import importlib.util, sysconfig, sys
print(sysconfig.get_path('include'), sysconfig.get_config_var('EXT_SUFFIX'), '%d.%d' % sys.version_info[:2],
    importlib.util.find_spec('_gdbm') is not None)";

/// Debian's, of which Debian has the sources.
const PYTHON: &str = "/usr/bin/python3";

impl Suites<'_> {
    /// Runs all of them; returns how many tests pass on ours.
    pub(super) fn python(&self) -> Result<u64, Stop> {
        require(&[])?;
        if !Path::new(PYTHON).is_file() {
            return Err(Stop::Obstacle(format!("there is no `{PYTHON}`")));
        }
        let facts = output(&mut command(self.root, PYTHON, &["-c", ASK]))?;
        let facts: Vec<&str> = facts.split_whitespace().collect();
        let [include, suffix, version, has_gdbm] = facts[..] else {
            return Err(format!("{PYTHON} says too little about itself: {facts:?}").into());
        };
        if !Path::new(include).join("Python.h").is_file() {
            return Err(Stop::Obstacle(format!("there is no `{include}/Python.h`")));
        }
        let wanted = ["*/Modules/_*dbmmodule.c", "*/Modules/clinic/_*dbmmodule.c.h", "*/Lib/test"];
        let source = self.source(&format!("python{version}"), &wanted)?;
        let mut count = 0;
        for module in &MODULES {
            let mut expected = None;
            let is_added = has_gdbm == "True" && module.name != "_gdbm";
            let min = module.tests_min + if is_added { TESTS_OF_GDBM } else { 0 };
            for form in [Form::Original, Form::Swapped, Form::Preloaded, Form::Relinked] {
                let modules = self.compiled(module, form, &source, include, suffix)?;
                let mut python = self.bounded(PYTHON);
                python.args(["-c", RUN]).arg(source.join("Lib/test")).args(module.tests);
                python.current_dir(&modules).env("PYTHONPATH", &modules);
                let said = self.proved(python, form, module.library)?;
                let ran = ran(&said)?;
                if *expected.get_or_insert(ran) != ran || ran.passed() < min {
                    let name = module.name;
                    let said = format!("{name}, {form:?}: {ran:?} of {expected:?}, {min} at least");
                    return Err(said.into());
                }
                console::say(&format!("{:?}, {form:?}: {} tests", module.tests, ran.passed()));
                count += if form == Form::Original { 0 } else { ran.passed() };
            }
        }
        Ok(count)
    }

    /// Compiles a module for the original, or with our header, and returns its directory.
    fn compiled(
        &self,
        module: &Module,
        form: Form,
        source: &Path,
        include: &str,
        suffix: &str,
    ) -> Result<PathBuf, Stop> {
        let is_ours = form == Form::Relinked;
        let kind = if is_ours { "relinked" } else { "original" };
        let modules = self.place.join("python").join(module.name).join(kind);
        fs::create_dir_all(&modules)
            .map_err(|cause| format!("`{}`: {cause}", modules.display()))?;
        let mut cc = command(self.root, "cc", &["-shared", "-fPIC", "-O1", module.defines]);
        if is_ours {
            cc.arg("-I").arg(self.prefix.join("include/splitpoint"));
        } else {
            for package in module.packages {
                cc.arg("-I").arg(self.package(package)?.join("usr/include"));
            }
        }
        cc.arg("-I").arg(include);
        cc.arg("-o").arg(modules.join(format!("{}{suffix}", module.name)));
        cc.arg(source.join(format!("Modules/{}module.c", module.name)));
        if is_ours {
            cc.arg("-L").arg(self.prefix.join("lib/splitpoint/link"));
            cc.arg(format!("-l{}", module.library.name));
        } else {
            cc.args(module.original);
        }
        run_program(&mut cc)?;
        Ok(modules)
    }
}

/// How many tests ran, and how many of these were skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ran {
    count: u64,
    skipped: u64,
}

impl Ran {
    fn passed(self) -> u64 {
        self.count - self.skipped
    }
}

/// Reads what a run that succeeded says of itself.
fn ran(said: &str) -> Result<Ran, Failure> {
    let number =
        |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse();
    let count = said.lines().find_map(|line| number(line.strip_prefix("Ran ")?).ok());
    let skipped = said.split("skipped=").nth(1).and_then(|rest| number(rest).ok()).unwrap_or(0);
    match count.filter(|&count| count > skipped) {
        Some(count) => Ok(Ran { count, skipped }),
        None => Err(format!("no test ran:\n{said}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_a_run_say_how_many_tests_passed() {
        let said = "..\nRan 12 tests in 0.1s\n\nOK (skipped=2)\n";
        assert_eq!(ran(said).unwrap().passed(), 10);
        assert!(ran("Ran 0 tests in 0s\n\nOK\n").is_err());
        assert!(ran("nothing").is_err());
    }
}
