//! The runner programs: which versions, how they are built, and why some are missing.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::plan::Engine;
use crate::{Outcome, say};

/// What could be built, and what could not.
#[derive(Debug, Default)]
pub struct Programs {
    pub built: Vec<Program>,
    /// Names of engines that are left out, with the reason.
    pub missing: BTreeMap<String, String>,
}

/// An engine that can be run.
#[derive(Debug)]
pub struct Program {
    pub engine: Engine,
    pub version: String,
    pub path: PathBuf,
}

/// Options of the C++ compiler: the standard, and the optimization of Debian's packages.
const CPP: [&str; 5] = ["-std=c++20", "-O2", "-DNDEBUG", "-Wall", "-Wextra"];

impl Programs {
    /// Builds a program for every engine.
    pub fn build(root: &Path, engines: Vec<Engine>) -> Self {
        let mut programs = Self::default();
        let target = target(root);
        for engine in engines {
            say(&format!("building {}", engine.name));
            let path = match (&engine.source, &engine.feature) {
                (Some(source), _) => build_cpp(root, &target, &engine, source),
                (None, Some(feature)) => build_rust(root, &target, &engine, feature),
                (None, None) => Err("it has no source".to_owned()),
            };
            match path.and_then(|path| Ok((path, version(root, &engine)?))) {
                Ok((path, version)) => programs.built.push(Program { engine, version, path }),
                Err(reason) => drop(programs.missing.insert(engine.name, reason)),
            }
        }
        programs
    }
}

/// The directory of everything that is built here.
pub fn target(root: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target/peers"), PathBuf::from)
}

fn build_cpp(root: &Path, target: &Path, engine: &Engine, source: &str) -> Outcome<PathBuf> {
    let dir = target.join("cpp");
    std::fs::create_dir_all(&dir)
        .map_err(|cause| format!("cannot make `{}`: {cause}", dir.display()))?;
    let program = dir.join(&engine.name);
    let mut command = Command::new("g++");
    command.args(CPP).arg("-o").arg(&program).arg(root.join("peers/cpp").join(source));
    command.args(engine.libraries.iter().map(|library| format!("-l{library}"))).arg("-lpthread");
    build(&mut command, engine)?;
    Ok(program)
}

fn build_rust(root: &Path, target: &Path, engine: &Engine, feature: &str) -> Outcome<PathBuf> {
    let mut command = Command::new("cargo");
    command.args(["build", "--quiet", "--release", "--locked", "--package", "engines"]);
    command.arg("--manifest-path").arg(root.join("peers/Cargo.toml"));
    command.args(["--features", feature, "--bin", &engine.name]);
    command.env("CARGO_TARGET_DIR", target);
    build(&mut command, engine)?;
    Ok(target.join("release").join(&engine.name))
}

fn build(command: &mut Command, engine: &Engine) -> Outcome<()> {
    let output = command.output().map_err(|cause| {
        format!("cannot start {}: {cause}", command.get_program().to_string_lossy())
    })?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let first = text.lines().find(|line| line.contains("error")).unwrap_or("it does not build");
    let hint = engine.package.as_ref().map_or_else(String::new, |package| {
        format!("; `cargo xtask race --setup` installs {package}")
    });
    Err(format!("{first}{hint}"))
}

fn version(root: &Path, engine: &Engine) -> Outcome<String> {
    match (&engine.package, &engine.crate_name) {
        (Some(package), _) => {
            let query = ["--show", "--showformat", "${Version}", package];
            output(Command::new("dpkg-query").args(query))
        }
        (None, Some(name)) if name == "splitpoint" => {
            let commit = output(
                Command::new("git").arg("-C").arg(root).args(["describe", "--always", "--dirty"]),
            );
            Ok(format!("{} {}", locked_version(root, name)?, commit.unwrap_or_default()))
        }
        (None, Some(name)) => locked_version(root, name),
        (None, None) => output(Command::new("rustc").arg("--version")),
    }
}

/// Returns the version of a crate in `peers/Cargo.lock`: the newest, if there are more.
fn locked_version(root: &Path, name: &str) -> Outcome<String> {
    #[derive(serde::Deserialize)]
    struct Lock {
        package: Vec<Package>,
    }
    #[derive(serde::Deserialize)]
    struct Package {
        name: String,
        version: String,
    }
    let lock: Lock = crate::plan::read(&root.join("peers/Cargo.lock"))?;
    let versions = lock.package.into_iter().filter(|package| package.name == name);
    versions.map(|package| package.version).next_back().ok_or(format!("no crate {name} is locked"))
}

pub fn output(command: &mut Command) -> Outcome<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|cause| format!("cannot start {name}: {cause}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}

/// The list of W1.
const WORD_LIST_PACKAGE: &str = "wamerican-huge";

/// Installs the Debian packages that are missing, or says what to install.
pub fn install_packages(engines: &[Engine]) -> Outcome<()> {
    let mut names: Vec<&str> =
        engines.iter().filter_map(|engine| engine.package.as_deref()).collect();
    names.push(WORD_LIST_PACKAGE);
    names.push("g++");
    names.sort_unstable();
    names.dedup();
    let is_there = |name: &&str| {
        let query = ["--show", "--showformat", "${db:Status-Status}", name];
        output(Command::new("dpkg-query").args(query)).is_ok_and(|status| status == "installed")
    };
    names.retain(|name| !is_there(name));
    if names.is_empty() {
        return Ok(());
    }
    let list = names.join(" ");
    if output(Command::new("id").arg("-u")).as_deref() != Ok("0") {
        return Err(format!("run `sudo apt-get install {list}`, then without --setup"));
    }
    let apt = |arguments: &[&str]| -> Outcome<()> {
        let mut command = Command::new("apt-get");
        command.args(["--quiet", "--yes"]).args(arguments);
        let status = command
            .env("DEBIAN_FRONTEND", "noninteractive")
            .status()
            .map_err(|cause| format!("cannot start apt-get: {cause}; install {list}"))?;
        if status.success() { Ok(()) } else { Err(format!("apt-get {}: {status}", arguments[0])) }
    };
    apt(&["update"])?;
    // One by one, so that a package that this system does not have leaves out one engine.
    for name in &names {
        if let Err(failure) = apt(&["install", "--no-install-recommends", name]) {
            say(&format!("not installed: {name}: {failure}"));
        }
    }
    Ok(())
}
