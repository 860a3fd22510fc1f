//! The layer `drop-ins`: the C libraries as they are installed, under tests of their own and under
//! suites that others wrote for the originals.
//!
//! The suites come from Debian's source packages when they are run; none is in the repository. Each run
//! proves by the output of the dynamic linker whose functions the program called.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::dependencies::has_program;
use crate::layers::Outcome;
use crate::process::{command, output, run as run_program, run_tests, target};
use crate::{Failure, console, stage};

/// Where the system has its packages from; their sources are beside them.
const DEBIAN_SOURCES: &str = "/etc/apt/sources.list.d/debian.sources";

/// A suite of Perl: its directory, its program, a function it calls, and how many claims it makes.
struct PerlSuite {
    directory: &'static str,
    program: &'static str,
    function: &'static str,
    claim_count: usize,
}

const PERL_SUITES: [PerlSuite; 2] = [
    PerlSuite {
        directory: "ext/NDBM_File",
        program: "t/ndbm.t",
        function: "dbm_open",
        claim_count: 131,
    },
    PerlSuite {
        directory: "ext/ODBM_File",
        program: "t/odbm.t",
        function: "dbminit",
        claim_count: 131,
    },
];

/// Test modules of Python, on `_dbm` that is compiled with our header.
const PYTHON_SUITES: [&str; 2] = ["test_dbm_ndbm", "test_dbm"];

/// Installs the libraries and runs everything on them; returns how many tests passed.
pub(crate) fn test(root: &Path) -> Result<Outcome, Failure> {
    let place = target(root).join("drop-ins");
    let prefix = place.join("prefix");
    stage::run(root, &prefix, None)?;
    let mut tests = command(root, "cargo", &["test", "--package", "splitpoint-c"]);
    let passed = run_tests(tests.env("SPLITPOINT_PREFIX", &prefix))?;
    let suites = Suites { root, prefix, place };
    match obstacle().or_else(|| suites.perl_source().err()) {
        Some(reason) => {
            console::say(&format!("suites of the originals: skipped: {reason}"));
            Ok(Outcome::Passed(passed))
        }
        None => Ok(Outcome::Passed(passed + suites.perl()? + suites.python()?)),
    }
}

/// Returns why the suites cannot be run, if so.
fn obstacle() -> Option<String> {
    let needed = ["apt-get", "perl", "python3", "tar", "cc"];
    if let Some(missing) = needed.into_iter().find(|program| !has_program(program)) {
        return Some(format!("{missing} is not installed"));
    }
    if !Path::new(DEBIAN_SOURCES).is_file() {
        return Some(format!("there is no `{DEBIAN_SOURCES}`"));
    }
    let modules = Command::new("perl").args(["-MNDBM_File", "-MODBM_File", "-e", "1"]).output();
    let has_modules = modules.is_ok_and(|output| output.status.success());
    (!has_modules).then(|| "perl has no NDBM_File and ODBM_File".to_owned())
}

/// Suites of others, and what they are run on.
struct Suites<'a> {
    root: &'a Path,
    prefix: PathBuf,
    place: PathBuf,
}

impl Suites<'_> {
    fn perl_source(&self) -> Result<PathBuf, Failure> {
        let wanted = ["*/ext/NDBM_File/t", "*/ext/ODBM_File/t", "*/t/lib/dbmt_common.pl", "*/lib"];
        self.source("perl", &wanted)
    }

    fn perl(&self) -> Result<u64, Failure> {
        let source = self.perl_source()?;
        let folder = self.prefix.join("lib/splitpoint/drop-in");
        let mut count = 0;
        for suite in &PERL_SUITES {
            let mut perl = command(self.root, "perl", &["-I../../lib", suite.program]);
            perl.current_dir(source.join(suite.directory)).env("LD_LIBRARY_PATH", &folder);
            let said = self.proved(&mut perl, suite.function, &folder)?;
            let claims = said.lines().filter(|line| line.starts_with("ok ")).count();
            if claims != suite.claim_count || said.lines().any(|line| line.starts_with("not ok")) {
                let PerlSuite { program, claim_count, .. } = suite;
                return Err(format!("{program}: {claims} of {claim_count} claims hold:\n{said}"));
            }
            console::say(&format!("{}: {claims} claims", suite.program));
            count += claims as u64;
        }
        Ok(count)
    }

    fn python(&self) -> Result<u64, Failure> {
        let wanted = ["*/Modules/_dbmmodule.c", "*/Modules/clinic/_dbmmodule.c.h", "*/Lib/test"];
        let ask =
            "import sys, sysconfig; print(sys.executable); print(sysconfig.get_path('include'));
print(sysconfig.get_config_var('EXT_SUFFIX')); print('%d.%d' % sys.version_info[:2])";
        // Debian's, of which Debian has the sources.
        let python =
            if Path::new("/usr/bin/python3").exists() { "/usr/bin/python3" } else { "python3" };
        let facts = output(&mut command(self.root, python, &["-c", ask]))?;
        let facts: Vec<&str> = facts.lines().collect();
        let [_, include, suffix, version] = facts[..] else {
            return Err(format!("{python} says too little about itself: {facts:?}"));
        };
        if !Path::new(include).join("Python.h").is_file() {
            console::say(&format!("suites of CPython: skipped: there is no `{include}/Python.h`"));
            return Ok(0);
        }
        let source = self.source(&format!("python{version}"), &wanted)?;
        let modules = self.place.join("python");
        fs::create_dir_all(&modules)
            .map_err(|cause| format!("`{}`: {cause}", modules.display()))?;
        let lib = self.prefix.join("lib");
        let mut cc = command(self.root, "cc", &["-shared", "-fPIC", "-O1", "-DUSE_NDBM"]);
        cc.arg("-I").arg(self.prefix.join("include/splitpoint")).arg("-I").arg(include);
        cc.arg("-o").arg(modules.join(format!("_dbm{suffix}")));
        cc.arg(source.join("Modules/_dbmmodule.c")).arg("-L").arg(&lib).arg("-lsplitpoint_ndbm");
        run_program(&mut cc)?;
        let mut count = 0;
        for suite in PYTHON_SUITES {
            let test = source.join("Lib/test").join(format!("{suite}.py"));
            fs::copy(&test, modules.join(format!("{suite}.py")))
                .map_err(|cause| format!("cannot copy `{}`: {cause}", test.display()))?;
            let mut run = command(self.root, python, &["-m", "unittest", suite]);
            run.current_dir(&modules).env("LD_LIBRARY_PATH", &lib).env("PYTHONPATH", &modules);
            let said = self.proved(&mut run, "dbm_open", &lib)?;
            let ran = said.lines().find_map(|line| line.strip_prefix("Ran ")?.split(' ').next());
            let ran: u64 = ran.and_then(|ran| ran.parse().ok()).unwrap_or(0);
            if ran == 0 {
                return Err(format!("{suite} ran nothing:\n{said}"));
            }
            console::say(&format!("{suite}: {ran} tests"));
            count += ran;
        }
        Ok(count)
    }

    /// Runs a command, requires that `function` was bound to a library in `folder` and to no other, and
    /// returns what the command said.
    fn proved(&self, run: &mut Command, function: &str, folder: &Path) -> Result<String, Failure> {
        let log = self.place.join("bindings");
        // A process adds its number.
        let of_earlier_runs = |directory: &Path| -> Vec<PathBuf> {
            let entries = fs::read_dir(directory).into_iter().flatten().flatten();
            let paths = entries.map(|entry| entry.path());
            paths.filter(|path| path.to_string_lossy().contains("/bindings.")).collect()
        };
        for old in of_earlier_runs(&self.place) {
            let _ = fs::remove_file(old);
        }
        run.env("LD_DEBUG", "bindings").env("LD_DEBUG_OUTPUT", &log);
        let said = run.output().map_err(|cause| format!("cannot run {run:?}: {cause}"))?;
        let mut words = String::from_utf8_lossy(&said.stdout).into_owned();
        words.push_str(&String::from_utf8_lossy(&said.stderr));
        if !said.status.success() {
            return Err(format!("{run:?}: {}\n{words}", said.status));
        }
        let mut is_bound = false;
        for path in of_earlier_runs(&self.place) {
            let text = fs::read(&path).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let symbol = format!("symbol `{function}'");
            for line in text.lines().filter(|line| line.contains(&symbol)) {
                let to = line.split(" to ").nth(1).unwrap_or_default();
                if !to.starts_with(&*folder.to_string_lossy()) {
                    return Err(format!("{function} is another library's: {line}"));
                }
                is_bound = true;
            }
        }
        if is_bound { Ok(words) } else { Err(format!("{run:?} never called {function}")) }
    }

    /// Fetches a source package, unpacks what matches the patterns, and returns the directory.
    fn source(&self, package: &str, wanted: &[&str]) -> Result<PathBuf, Failure> {
        let directory = self.place.join("sources").join(package);
        let done = directory.join("complete");
        if done.is_file() {
            return Ok(directory);
        }
        let packages = self.place.join("packages").join(package);
        for path in [&directory, &packages, &self.place.join("lists/partial")] {
            fs::create_dir_all(path).map_err(|cause| format!("`{}`: {cause}", path.display()))?;
        }
        self.apt_get(&packages, &["update"])?;
        self.apt_get(&packages, &["source", "--download-only", package])?;
        let archive = fs::read_dir(&packages).into_iter().flatten().flatten().find_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name.contains(".orig.tar").then(|| entry.path())
        });
        let archive = archive.ok_or_else(|| format!("{package} came without an archive"))?;
        let mut tar = command(self.root, "tar", &["-x", "--strip-components=1", "--wildcards"]);
        tar.arg("-C").arg(&directory).arg("-f").arg(&archive).args(wanted);
        run_program(&mut tar)?;
        fs::write(&done, "").map_err(|cause| format!("`{}`: {cause}", done.display()))?;
        Ok(directory)
    }

    /// Calls apt-get with lists of its own, so that nothing of the system changes.
    fn apt_get(&self, directory: &Path, arguments: &[&str]) -> Result<(), Failure> {
        let sources = self.place.join("debian.sources");
        let packages = fs::read_to_string(DEBIAN_SOURCES)
            .map_err(|cause| format!("`{DEBIAN_SOURCES}`: {cause}"))?;
        // Updates for security may have gone from the server that the list names.
        let release = packages.split("\n\n").next().unwrap_or_default();
        fs::write(&sources, release.replace("Types: deb\n", "Types: deb-src\n"))
            .map_err(|cause| format!("`{}`: {cause}", sources.display()))?;
        let mut apt = command(self.root, "apt-get", &["--quiet"]);
        apt.current_dir(directory);
        for (name, path) in [
            ("Dir::Etc::sourcelist", sources),
            ("Dir::Etc::sourceparts", self.place.join("none")),
            ("Dir::State::lists", self.place.join("lists")),
        ] {
            apt.arg("-o").arg(format!("{name}={}", path.display()));
        }
        // The user that apt changes to may not reach this directory.
        run_program(apt.args(["-o", "APT::Sandbox::User=root"]).args(arguments))
    }
}
