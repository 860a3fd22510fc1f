//! The runner programs: which versions, how they are built, and why some are missing.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::plan::{Driver, Engine};
use crate::{Outcome, say};

/// What could be built, and what could not.
#[derive(Debug, Default)]
pub struct Programs {
    /// One program for each engine and driver.
    pub built: Vec<Program>,
    /// Names of engines that are left out, with the driver if it is not the tight one, and the reason.
    pub missing: BTreeMap<String, String>,
}

/// An engine that can be run, in one of the drivers.
#[derive(Debug)]
pub struct Program {
    pub engine: Engine,
    pub driver: Driver,
    pub version: String,
    pub path: PathBuf,
}

/// Options of the C++ compiler: the standard, and the optimization of Debian's packages.
const CPP: [&str; 5] = ["-std=c++20", "-O2", "-DNDEBUG", "-Wall", "-Wextra"];

/// Options of the C compiler: likewise.
const C: [&str; 5] = ["-std=c11", "-O2", "-DNDEBUG", "-Wall", "-Wextra"];

/// The sources of the dependent driver in `peers/c/`.
const C_SOURCES: [&str; 4] = ["dependent", "figures", "loads", "memory"];

/// The libraries that a program in C needs for a library in Rust.
const RUST_LIBRARIES: [&str; 5] = ["gcc_s", "rt", "dl", "m", "c"];

impl Programs {
    /// Builds a program for every engine and each of the drivers.
    pub fn build(root: &Path, engines: &[Engine], drivers: &[Driver]) -> Self {
        let mut programs = Self::default();
        let builder = Builder { root, target: target(root) };
        for engine in engines {
            for &driver in drivers {
                say(&format!("building {}, {} driver", engine.name, driver.word()));
                let path = match driver {
                    Driver::Tight => builder.tight(engine),
                    Driver::Dependent => builder.dependent(engine),
                };
                match path.and_then(|path| Ok((path, version(root, engine)?))) {
                    Ok((path, version)) => {
                        let engine = engine.clone();
                        programs.built.push(Program { engine, driver, version, path });
                    }
                    Err(reason) => drop(programs.missing.insert(missing(engine, driver), reason)),
                }
            }
        }
        programs
    }
}

fn missing(engine: &Engine, driver: Driver) -> String {
    match driver {
        Driver::Tight => engine.name.clone(),
        Driver::Dependent => format!("{}, {} driver", engine.name, driver.word()),
    }
}

/// The directory of everything that is built here.
pub fn target(root: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target/peers"), PathBuf::from)
}

/// Where the sources are, and where the programs go.
struct Builder<'a> {
    root: &'a Path,
    target: PathBuf,
}

impl Builder<'_> {
    fn tight(&self, engine: &Engine) -> Outcome<PathBuf> {
        let Some(source) = &engine.source else {
            self.cargo(engine, "engines", &["--bin", &engine.name])?;
            return Ok(self.target.join("release").join(&engine.name));
        };
        let program = self.directory("cpp")?.join(&engine.name);
        let mut command = Command::new("g++");
        command.args(CPP).arg("-o").arg(&program).arg(self.source("cpp", source));
        command.args(libraries(engine)).arg("-lpthread");
        build(&mut command, engine)?;
        Ok(program)
    }

    /// Links the driver in C with the engine: an object in C++, or a library in Rust.
    fn dependent(&self, engine: &Engine) -> Outcome<PathBuf> {
        let dir = self.directory("dependent")?;
        let program = dir.join(&engine.name);
        let mut link = Command::new("g++");
        link.arg("-o").arg(&program);
        for name in C_SOURCES {
            let object = dir.join(format!("{}-{name}.o", engine.name));
            let mut command = Command::new("gcc");
            command.args(C).arg(format!("-DRACE_ENGINE=race_engine_{}", engine.name));
            command.arg("-c").arg("-o").arg(&object).arg(self.source("c", &format!("{name}.c")));
            build(&mut command, engine)?;
            link.arg(object);
        }
        if let Some(source) = &engine.source {
            let object = dir.join(format!("{}.o", engine.name));
            let mut command = Command::new("g++");
            command.args(CPP).args(["-DRACE_C_INTERFACE", "-c", "-o"]).arg(&object);
            build(command.arg(self.source("cpp", source)), engine)?;
            link.arg(object).args(libraries(engine));
        } else {
            self.cargo(engine, "engines_c", &["--lib"])?;
            link.arg(self.target.join("release/libengines_c.a"));
            link.args(RUST_LIBRARIES.map(|library| format!("-l{library}")));
        }
        build(link.arg("-lpthread"), engine)?;
        Ok(program)
    }

    /// Builds a package of `peers/` with the feature of the engine.
    fn cargo(&self, engine: &Engine, package: &str, what: &[&str]) -> Outcome<()> {
        let feature = engine.feature.as_ref().ok_or("it has no source")?;
        let mut command = Command::new("cargo");
        command.args(["build", "--quiet", "--release", "--locked", "--package", package]);
        command.arg("--manifest-path").arg(self.root.join("peers/Cargo.toml"));
        command.args(["--features", feature]).args(what);
        command.env("CARGO_TARGET_DIR", &self.target);
        build(&mut command, engine)
    }

    fn directory(&self, name: &str) -> Outcome<PathBuf> {
        let dir = self.target.join(name);
        std::fs::create_dir_all(&dir)
            .map_err(|cause| format!("cannot make `{}`: {cause}", dir.display()))?;
        Ok(dir)
    }

    fn source(&self, language: &str, name: &str) -> PathBuf {
        self.root.join("peers").join(language).join(name)
    }
}

fn libraries(engine: &Engine) -> impl Iterator<Item = String> {
    engine.libraries.iter().map(|library| format!("-l{library}"))
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
