//! The Python package: its wheel is built, installed into an empty environment, and tested there.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::layers::Outcome;
use crate::process::{command, output, run, run_tests, target};
use crate::{Failure, dependencies};

/// The package, with its tests and what they need.
const PACKAGE: &str = "crates/splitpoint-python";

/// Bytes that a wheel stays below.
const WHEEL_BYTES_MAX: u64 = 3_000_000;

/// Ends with 1 where the environment cannot be made: what is missing is on stderr.
const PROBE: &str = "import sys; sys.version_info >= (3, 11) or sys.exit('it is older than 3.11')
import ensurepip, venv";

/// Returns why the package cannot be tested here, or `None`.
pub(crate) fn obstacle(root: &Path) -> Option<String> {
    let failure = output(&mut command(root, "python3", &["-c", PROBE])).err()?;
    let reason = failure.lines().last().unwrap_or_default();
    Some(format!("python3 with venv and pip is not usable: {reason}"))
}

/// Builds and installs the package with the README's line, and runs its tests; skips that where no
/// package index can be reached.
pub(crate) fn test(root: &Path) -> Result<Outcome, Failure> {
    let directory = target(root).join("python");
    if directory.exists() {
        std::fs::remove_dir_all(&directory)
            .map_err(|cause| format!("cannot remove `{}`: {cause}", directory.display()))?;
    }
    let environment = Environment { root, directory };
    run(command(root, "python3", &["-m", "venv"]).arg(environment.path("environment")))?;
    if let Err(failure) = environment.install_requirements() {
        if !environment.reaches_an_index() {
            return Ok(Outcome::Skipped(format!("no package index can be reached: {failure}")));
        }
        // The network may have failed for a moment, or the requirements are wrong.
        environment.install_requirements()?;
    }
    let mut install = environment.shell(&line_of_readme(root)?);
    // The profile of the other tests, so that most of what others wrote is compiled only once.
    run(install.env("MATURIN_PEP517_ARGS", "--profile dev --features testing"))?;
    let tests = root.join(PACKAGE).join("tests/run.py");
    // In another directory, so that nothing of the source tree is imported.
    let mut tests_command = environment.python();
    tests_command.args(["-W", "error::ResourceWarning"]).arg(tests);
    let passed = run_tests(tests_command.current_dir(&environment.directory))?;
    if dependencies::is_slow() {
        environment.test_source_distribution()?;
        environment.test_studies()?;
    }
    Ok(Outcome::Passed(passed))
}

/// Returns the one file of a directory.
fn only_file(directory: &Path) -> Result<PathBuf, Failure> {
    let mut entries = std::fs::read_dir(directory)
        .map_err(|cause| format!("cannot read `{}`: {cause}", directory.display()))?;
    match (entries.next(), entries.next()) {
        (Some(Ok(entry)), None) => Ok(entry.path()),
        _ => Err(format!("`{}` should have one file", directory.display())),
    }
}

/// Refuses a wheel that is larger than people shall have to download.
fn check_size(wheel: &Path) -> Result<(), Failure> {
    let bytes = std::fs::metadata(wheel)
        .map_err(|cause| format!("cannot look at `{}`: {cause}", wheel.display()))?
        .len();
    if bytes >= WHEEL_BYTES_MAX {
        return Err(format!("the wheel has {bytes} bytes, {WHEEL_BYTES_MAX} or more"));
    }
    Ok(())
}

/// Returns the line of the README that builds and installs the package.
fn line_of_readme(root: &Path) -> Result<String, Failure> {
    let readme = std::fs::read_to_string(root.join("README.md"))
        .map_err(|cause| format!("cannot read `README.md`: {cause}"))?;
    let beginning = format!("pip install ./{PACKAGE}");
    readme
        .lines()
        .find(|line| line.starts_with(&beginning))
        .map(str::to_owned)
        .ok_or_else(|| format!("`README.md` has no line that begins with `{beginning}`"))
}

/// A virtual environment.
struct Environment<'a> {
    root: &'a Path,
    directory: PathBuf,
}

impl Environment<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn python(&self) -> Command {
        let python = self.path("environment/bin/python");
        command(self.root, &python.display().to_string(), &[])
    }

    /// Returns a shell that runs `line` in the environment, as a user would.
    fn shell(&self, line: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = command(self.root, "sh", &["-c", line]);
        shell.env("PATH", format!("{}:{path}", self.path("environment/bin").display()));
        shell.envs([("PIP_QUIET", "1"), ("PIP_DISABLE_PIP_VERSION_CHECK", "1")]);
        shell
    }

    fn pip(&self) -> Command {
        let mut pip = self.python();
        pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check"]);
        pip
    }

    /// Packs the source distribution, builds its wheel in an empty environment with the profile of wheels,
    /// as users do, checks its size, installs it and uses the package.
    fn test_source_distribution(&self) -> Result<(), Failure> {
        let packed = self.path("packed");
        let manifest = format!("{PACKAGE}/Cargo.toml");
        let pack = ["-m", "maturin", "sdist", "--manifest-path", &manifest, "--out"];
        run(self.python().args(pack).arg(&packed))?;
        let directory = self.path("unpacked");
        let unpacked = Environment { root: self.root, directory };
        run(command(self.root, "python3", &["-m", "venv"]).arg(unpacked.path("environment")))?;
        let wheels = self.path("wheels");
        let mut build = unpacked.pip();
        build.args(["wheel", "--no-deps", "--wheel-dir"]).arg(&wheels).arg(only_file(&packed)?);
        // Its crates lie elsewhere; what they depend on may have been compiled with this profile.
        // Its wheel is the one without options, whatever the environment asks for.
        build.env("CARGO_TARGET_DIR", target(self.root)).env_remove("MATURIN_PEP517_ARGS");
        run(&mut build)?;
        let wheel = only_file(&wheels)?;
        check_size(&wheel)?;
        run(unpacked.pip().arg("install").arg(&wheel))?;
        let tests = self.root.join(PACKAGE).join("tests/test_table.py");
        let mut tests_command = unpacked.python();
        run(tests_command.arg(tests).current_dir(&unpacked.directory))
    }

    /// Builds the wheel with the studies of the lab, as `docs/python.md` says but for the profile, and runs one.
    fn test_studies(&self) -> Result<(), Failure> {
        let mut install = self.pip();
        install.args(["install", &format!("./{PACKAGE}")]);
        run(install.env("MATURIN_PEP517_ARGS", "--profile dev --features studies"))?;
        let study = ["-m", "splitpoint", "lab", "tables"];
        run(self.python().args(study).current_dir(&self.directory))
    }

    fn install_requirements(&self) -> Result<(), Failure> {
        let requirements = format!("{PACKAGE}/tests/requirements.txt");
        run(self.pip().args(["install", "--requirement", &requirements]))
    }

    /// Returns whether pip can fetch anything: itself, which every index has, by the user's settings
    /// of indexes and proxies.
    fn reaches_an_index(&self) -> bool {
        let download = ["download", "--no-cache-dir", "--no-deps", "pip", "--dest"];
        run(self.pip().args(download).arg(self.path("fetched"))).is_ok()
    }
}
