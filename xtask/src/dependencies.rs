//! What the tests need beyond cargo: components, Debian packages, a nightly toolchain, cargo-fuzz.

use std::env;
use std::path::Path;

use crate::process::{command, output, run};
use crate::{Failure, console};

/// Debian packages that tests use, each with a program by which it is known.
const PACKAGES: &[(&str, &str)] = &[
    ("db5.3-util", "db5.3_load"),    // Dumps are exchanged with Berkeley DB.
    ("tinycdb", "cdb"),              // The same with cdb,
    ("gdbmtool", "gdbm_load"),       // gdbm,
    ("lmdb-utils", "mdb_load"),      // and LMDB.
    ("libdb1-compat", "db_dump185"), // The original of the 1991 package.
    ("python3", "python3"),          // It is driven from there.
    ("mandoc", "mandoc"),            // The manual pages are checked,
    ("zsh", "zsh"),                  // and the completions.
    ("fish", "fish"),
    ("chromium", "chromium"),   // Pages of the lab are looked at.
    ("g++", "g++"),             // The race's drivers are compared.
    ("valgrind", "valgrind"),   // Instructions are counted.
    ("e2fsprogs", "mkfs.ext4"), // File systems are filled, stopped and lose power.
    ("xfsprogs", "mkfs.xfs"),
    ("btrfs-progs", "mkfs.btrfs"),
    ("perl", "perl"),   // Tests of Perl are run on the drop-ins,
    ("make", "make"),   // with a module that is compiled.
    ("xz-utils", "xz"), // Their sources are unpacked.
];

/// Debian packages that are headers, each with a command in Perl or Python that fails without them.
const HEADERS: &[(&str, &str, &str)] = &[
    ("libperl-dev", "perl", "use Config; exit !-e \"$Config{archlibexp}/CORE/perl.h\""),
    (
        "python3-dev",
        "python3",
        "import os, sysconfig; open(os.path.join(sysconfig.get_path('include'), 'Python.h'))",
    ),
];

/// Debian packages that are modules of Python, each with one by which it is known. `VERSION` stands
/// for that of `python3`.
const MODULES: &[(&str, &str)] = &[
    ("python3-venv", "ensurepip"), // The Python package is installed into an empty environment.
    ("libpythonVERSION-testsuite", "test.test_dbm"), // CPython's own tests are run on it.
];

/// Toolchain that has Miri, and the sanitizers of the fuzzer.
pub(crate) const NIGHTLY: &str = "nightly";

/// Whether missing programs are installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Installing {
    Allowed,
    Refused,
}

/// What could not be installed, and so is not tested.
#[derive(Debug, Default)]
pub(crate) struct Missing {
    /// Why Miri cannot be run.
    pub(crate) miri: Option<String>,
    /// Why the fuzz targets cannot be run.
    pub(crate) fuzz: Option<String>,
}

/// Says what is missing and where it would be installed, and installs it if that is allowed. Fails
/// only where nothing can be tested without it.
pub(crate) fn install(root: &Path, installing: Installing) -> Result<Missing, Failure> {
    let needs = [
        Need::components(root),
        Need::packages(),
        Need::modules(),
        Need::headers(),
        Need::miri(root),
        Need::toolchain_of_fuzz(root),
        Need::fuzz(root),
    ];
    let needs: Vec<Need> = needs.into_iter().flatten().collect();
    for need in &needs {
        console::say(&need.announcement(installing));
    }
    let mut missing = Missing::default();
    for need in needs {
        let installed = match installing {
            Installing::Allowed => (need.install)(root),
            Installing::Refused => Err("not installed, because of --no-install".to_owned()),
        };
        let Err(reason) = installed else { continue };
        match need.used_by {
            UsedBy::Everything => return Err(format!("{}: {reason}", need.what)),
            UsedBy::SomeTests => {
                console::say(&format!("tests that use {} are skipped: {reason}", need.what));
            }
            UsedBy::Miri => missing.miri = Some(reason),
            UsedBy::Fuzz => missing.fuzz = Some(reason),
        }
    }
    if !is_slow() {
        missing.fuzz = Some("SPLITPOINT_SLOW=1 runs it".to_owned());
    }
    Ok(missing)
}

/// What cannot be tested without something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UsedBy {
    Everything,
    SomeTests,
    Miri,
    Fuzz,
}

/// Something that is missing.
#[derive(Debug)]
struct Need {
    what: String,
    /// Where it is installed.
    place: &'static str,
    used_by: UsedBy,
    install: fn(&Path) -> Result<(), Failure>,
}

impl Need {
    fn announcement(&self, installing: Installing) -> String {
        match installing {
            Installing::Allowed => format!("installing {} {}", self.what, self.place),
            Installing::Refused => format!("missing: {}", self.what),
        }
    }

    /// The pinned toolchain itself was installed when cargo was first run here.
    fn components(root: &Path) -> Option<Self> {
        let works =
            |program: &str| output(&mut command(root, "cargo", &[program, "--version"])).is_ok();
        let is_present = works("fmt") && works("clippy");
        (!is_present).then(|| Self {
            what: "rustfmt and clippy".to_owned(),
            place: "into this toolchain, by rustup",
            used_by: UsedBy::Everything,
            install: |root| {
                run(&mut command(root, "rustup", &["component", "add", "rustfmt", "clippy"]))
            },
        })
    }

    fn packages() -> Option<Self> {
        let install = |root: &Path| install_packages(root, &[missing_packages(has_program)]);
        Self::of_packages(&missing_packages(has_program), install)
    }

    /// Each is installed by itself: a python3 that is not Debian's may be of a version for which
    /// Debian has no testsuite.
    fn modules() -> Option<Self> {
        let install = |root: &Path| {
            let modules = modules_to_install();
            let each: Vec<Vec<&str>> = modules.iter().map(|module| vec![&**module]).collect();
            install_packages(root, &each)
        };
        Self::of_packages(&modules_to_install(), install)
    }

    fn headers() -> Option<Self> {
        let install = |root: &Path| install_packages(root, &[missing_headers(runs)]);
        Self::of_packages(&missing_headers(runs), install)
    }

    fn of_packages(
        missing: &[impl AsRef<str>],
        install: fn(&Path) -> Result<(), Failure>,
    ) -> Option<Self> {
        let names: Vec<&str> = missing.iter().map(AsRef::as_ref).collect();
        let place = "system-wide, by apt-get";
        let used_by = UsedBy::SomeTests;
        (!names.is_empty()).then(|| Self { what: names.join(" "), place, used_by, install })
    }

    /// Miri runs with the sources of the standard library.
    fn miri(root: &Path) -> Option<Self> {
        let works = ["run", NIGHTLY, "cargo", "miri", "--version"];
        let sources = ["component", "list", "--toolchain", NIGHTLY, "--installed"];
        let has_sources = || {
            output(&mut command(root, "rustup", &sources))
                .is_ok_and(|list| list.lines().any(|component| component.starts_with("rust-src")))
        };
        let is_present = output(&mut command(root, "rustup", &works)).is_ok() && has_sources();
        (!is_present).then(|| Self {
            what: "the nightly toolchain with Miri".to_owned(),
            place: "beside the other toolchains, by rustup",
            used_by: UsedBy::Miri,
            install: |root| {
                let options = ["--component", "miri", "--component", "rust-src"];
                install_nightly(root, &options)
            },
        })
    }

    fn toolchain_of_fuzz(root: &Path) -> Option<Self> {
        let works = ["run", NIGHTLY, "rustc", "--version"];
        let is_needed = is_slow() && output(&mut command(root, "rustup", &works)).is_err();
        is_needed.then(|| Self {
            what: "the nightly toolchain".to_owned(),
            place: "beside the other toolchains, by rustup",
            used_by: UsedBy::Fuzz,
            install: |root| install_nightly(root, &[]),
        })
    }

    fn fuzz(root: &Path) -> Option<Self> {
        let version = ["run", NIGHTLY, "cargo", "fuzz", "--version"];
        let is_needed = is_slow() && output(&mut command(root, "rustup", &version)).is_err();
        is_needed.then(|| Self {
            what: "cargo-fuzz".to_owned(),
            place: "into cargo's directory of programs, by cargo",
            used_by: UsedBy::Fuzz,
            install: |root| {
                let install = ["run", NIGHTLY, "cargo", "install", "cargo-fuzz", "--locked"];
                run(&mut command(root, "rustup", &install))
            },
        })
    }
}

/// Returns whether more rounds and larger sizes were asked for.
pub(crate) fn is_slow() -> bool {
    env::var_os("SPLITPOINT_SLOW").is_some_and(|value| value == "1")
}

/// Installs Debian packages, each group by a call of its own. Names the groups that fail.
fn install_packages(root: &Path, groups: &[Vec<&str>]) -> Result<(), Failure> {
    let names = groups.concat().join(" ");
    if !has_program("apt-get") {
        return Err("this is not Debian".to_owned());
    }
    if !is_root(root) {
        return Err(format!("run `sudo apt-get install {names}`"));
    }
    apt_get(root, &["update"])?;
    let failed = groups.iter().filter_map(|group| {
        let install = [&["install", "--no-install-recommends"], &group[..]].concat();
        let failure = apt_get(root, &install).err()?;
        Some(format!("{}: {failure}", group.join(" ")))
    });
    let failed: Vec<String> = failed.collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

/// Returns the packages of modules that this machine's Python lacks.
fn modules_to_install() -> Vec<String> {
    let python = |script: &str| output(&mut command(Path::new("."), "python3", &["-c", script]));
    let has_module = |module: &str| python(&format!("import {module}")).is_ok();
    // Without an interpreter, the one that is installed now brings no testsuite.
    let version = python("import sys; print(*sys.version_info[:2], sep='.')").unwrap_or_default();
    missing_modules(version.trim(), has_module)
}

fn missing_modules(version: &str, is_present: impl Fn(&str) -> bool) -> Vec<String> {
    let missing = MODULES.iter().filter(|(_, module)| !is_present(module));
    let named = missing.filter(|(package, _)| !version.is_empty() || !package.contains("VERSION"));
    named.map(|(package, _)| package.replace("VERSION", version)).collect()
}

/// Returns whether a command of an interpreter succeeds.
fn runs(interpreter: &str, script: &str) -> bool {
    let option = if interpreter == "perl" { "-e" } else { "-c" };
    // Debian's, to which the packages belong.
    let debian = format!("/usr/bin/{interpreter}");
    let program = if Path::new(&debian).exists() { &debian } else { interpreter };
    output(&mut command(Path::new("."), program, &[option, script])).is_ok()
}

fn missing_headers(is_present: impl Fn(&str, &str) -> bool) -> Vec<&'static str> {
    let missing =
        HEADERS.iter().filter(|(_, interpreter, script)| !is_present(interpreter, script));
    missing.map(|(package, ..)| *package).collect()
}

fn missing_packages(is_present: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let missing = PACKAGES.iter().filter(|(_, program)| !is_present(program));
    missing.map(|(package, _)| *package).collect()
}

fn apt_get(root: &Path, arguments: &[&str]) -> Result<(), Failure> {
    let mut command = command(root, "apt-get", &["--quiet", "--yes"]);
    run(command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive"))
}

fn is_root(root: &Path) -> bool {
    output(&mut command(root, "id", &["-u"])).is_ok_and(|id| id.trim() == "0")
}

/// Returns true if `program` is in one of the directories of `PATH`.
pub(crate) fn has_program(program: &str) -> bool {
    let Some(path) = env::var_os("PATH") else { return false };
    env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

fn install_nightly(root: &Path, options: &[&str]) -> Result<(), Failure> {
    if !has_program("rustup") {
        return Err("there is no rustup to install it with".to_owned());
    }
    let install = ["toolchain", "install", NIGHTLY, "--profile", "minimal", "--no-self-update"];
    run(command(root, "rustup", &install).args(options))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_missing_by_their_programs() {
        let missing = missing_packages(|program| program != "cdb" && program != "fish");
        assert_eq!(missing, ["tinycdb", "fish"]);
        assert!(missing_packages(|_| true).is_empty());
    }

    #[test]
    fn headers_are_missing_by_what_cannot_be_run() {
        let missing = missing_headers(|interpreter, _| interpreter != "perl");
        assert_eq!(missing, ["libperl-dev"]);
        assert!(missing_headers(|_, _| true).is_empty());
    }

    #[test]
    fn modules_of_python_are_missing_by_what_cannot_be_imported() {
        let none = missing_modules("3.11", |_| false);
        assert_eq!(none, ["python3-venv", "libpython3.11-testsuite"]);
        assert_eq!(missing_modules("3.12", |module| module == "ensurepip").len(), 1);
        assert_eq!(missing_modules("", |_| false), ["python3-venv"]);
        assert!(missing_modules("3.11", |_| true).is_empty());
    }

    #[test]
    fn what_is_installed_is_announced_with_its_place() {
        let need = Need {
            what: "zsh fish".to_owned(),
            place: "system-wide, by apt-get",
            used_by: UsedBy::SomeTests,
            install: |_| Ok(()),
        };
        assert_eq!(
            need.announcement(Installing::Allowed),
            "installing zsh fish system-wide, by apt-get"
        );
        assert_eq!(need.announcement(Installing::Refused), "missing: zsh fish");
    }

    #[test]
    fn programs_are_looked_for_in_the_path() {
        assert!(has_program("sh"));
        assert!(!has_program("no-such-program"));
    }
}
