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
    ("g++", "g++"),             // The race's two harnesses are compared.
    ("valgrind", "valgrind"),   // Instructions are counted.
    ("e2fsprogs", "mkfs.ext4"), // File systems are filled, stopped and lose power.
    ("xfsprogs", "mkfs.xfs"),
    ("btrfs-progs", "mkfs.btrfs"),
];

/// Toolchain that has Miri, and the sanitizers of the fuzzer.
pub(crate) const NIGHTLY: &str = "nightly";

/// What could not be installed, and so is not tested.
#[derive(Debug, Default)]
pub(crate) struct Missing {
    /// Why Miri cannot be run.
    pub(crate) miri: Option<String>,
    /// Why the fuzz targets cannot be run.
    pub(crate) fuzz: Option<String>,
}

/// Installs what is missing. Fails only where nothing can be tested without it.
pub(crate) fn install(root: &Path) -> Result<Missing, Failure> {
    install_components(root)?;
    install_packages(root);
    let miri = install_miri(root).err();
    if let Some(reason) = &miri {
        console::say(&format!("Miri cannot be run: {reason}"));
    }
    let fuzz = if is_slow() {
        install_fuzz(root).err()
    } else {
        Some("SPLITPOINT_SLOW=1 runs it".to_owned())
    };
    Ok(Missing { miri, fuzz })
}

/// Returns whether more rounds and larger sizes were asked for.
pub(crate) fn is_slow() -> bool {
    env::var_os("SPLITPOINT_SLOW").is_some_and(|value| value == "1")
}

/// The pinned toolchain itself was installed when cargo was first run here.
fn install_components(root: &Path) -> Result<(), Failure> {
    let works =
        |program: &str| output(&mut command(root, "cargo", &[program, "--version"])).is_ok();
    if works("fmt") && works("clippy") {
        return Ok(());
    }
    let add = ["component", "add", "rustfmt", "clippy"];
    run(&mut command(root, "rustup", &add))
        .map_err(|cause| format!("{cause}\nrustfmt and clippy are needed: install them by hand"))
}

/// A test that misses its program says so and is left out.
fn install_packages(root: &Path) {
    let missing = missing_packages(has_program);
    if missing.is_empty() {
        return;
    }
    let names = missing.join(" ");
    let result = if !has_program("apt-get") {
        Err("this is not Debian".to_owned())
    } else if !is_root(root) {
        Err(format!("run `sudo apt-get install {names}`"))
    } else {
        let mut install = vec!["install", "--no-install-recommends"];
        install.extend(&missing);
        apt_get(root, &["update"]).and_then(|()| apt_get(root, &install))
    };
    if let Err(reason) = result {
        console::say(&format!("some tests are left out without {names}: {reason}"));
    }
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

/// Installs a nightly toolchain with Miri, or says why not.
fn install_miri(root: &Path) -> Result<(), Failure> {
    if !has_program("rustup") {
        return Err("there is no rustup to install a nightly toolchain with".to_owned());
    }
    let works = ["run", NIGHTLY, "cargo", "miri", "--version"];
    let sources = ["component", "list", "--toolchain", NIGHTLY, "--installed"];
    let has_sources = || {
        output(&mut command(root, "rustup", &sources))
            .is_ok_and(|list| list.lines().any(|component| component.starts_with("rust-src")))
    };
    if output(&mut command(root, "rustup", &works)).is_ok() && has_sources() {
        return Ok(());
    }
    let install = [
        "toolchain",
        "install",
        NIGHTLY,
        "--profile",
        "minimal",
        "--component",
        "miri",
        "--component",
        "rust-src",
        "--no-self-update",
    ];
    run(&mut command(root, "rustup", &install))
}

/// Installs cargo-fuzz and the toolchain it needs, or says why not.
fn install_fuzz(root: &Path) -> Result<(), Failure> {
    let works = ["run", NIGHTLY, "rustc", "--version"];
    if !has_program("rustup") {
        return Err("there is no rustup to install a nightly toolchain with".to_owned());
    }
    if output(&mut command(root, "rustup", &works)).is_err() {
        let install = ["toolchain", "install", NIGHTLY, "--profile", "minimal", "--no-self-update"];
        run(&mut command(root, "rustup", &install))?;
    }
    let version = ["run", NIGHTLY, "cargo", "fuzz", "--version"];
    if output(&mut command(root, "rustup", &version)).is_ok() {
        return Ok(());
    }
    let install = ["run", NIGHTLY, "cargo", "install", "cargo-fuzz", "--locked"];
    run(&mut command(root, "rustup", &install))
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
    fn programs_are_looked_for_in_the_path() {
        assert!(has_program("sh"));
        assert!(!has_program("no-such-program"));
    }
}
