//! Compiles C programs and runs them with a chosen library.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The name by which programs ask for the library.
pub(crate) const NAME: &str = "libgdbm.so.6";

/// Returns the library that these tests were built with.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a file");
    let folder = test.parent().expect("it is in a folder");
    folder.join("libsplitpoint_gdbm.so")
}

/// Returns a folder in which our library has the name of the original.
pub(crate) fn swap_folder() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().expect("there is room");
        std::os::unix::fs::symlink(library(), folder.path().join(NAME)).expect("a new name");
        folder
    });
    folder.path()
}

/// Whose functions a program gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Ours,
    Original,
}

/// Returns the original library, if the machine has it.
pub(crate) fn original() -> Option<PathBuf> {
    let folders =
        ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    folders.iter().map(|folder| Path::new(folder).join(NAME)).find(|path| path.exists())
}

/// A C program in a folder of its own.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) folder: tempfile::TempDir,
    path: PathBuf,
}

impl Program {
    /// Compiles a program of `tests/c` with our header.
    pub(crate) fn compile(name: &str) -> Self {
        let folder = tempfile::tempdir().expect("there is room");
        let path = folder.path().join(format!("{name}.bin"));
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g", "-I"]);
        compiler.arg(own.join("include")).arg(own.join(format!("tests/c/{name}.c")));
        compiler.arg("-o").arg(&path).arg("-L").arg(swap_folder());
        compiler.arg(format!("-l:{NAME}")).arg("-lpthread");
        succeed(&mut compiler);
        Self { folder, path }
    }

    /// Returns a command that runs it in its folder, ended after a minute.
    pub(crate) fn command(&self, whose: Whose) -> Command {
        let mut command = Command::new("timeout");
        command.arg("60").arg(&self.path).current_dir(self.folder.path());
        bind(&mut command, whose);
        command
    }

    /// Runs it with arguments, and returns what it prints.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, whose: Whose, args: &[S]) -> String {
        text(succeed(self.command(whose).args(args)))
    }
}

/// Has a program find our library in place of the original, or the original alone.
pub(crate) fn bind(command: &mut Command, whose: Whose) {
    match whose {
        Whose::Ours => command.env("LD_LIBRARY_PATH", swap_folder()),
        Whose::Original => command.env_remove("LD_LIBRARY_PATH"),
    };
}

/// Asserts that a command succeeds.
pub(crate) fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let words = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(output.status.success(), "{command:?}: {}\n{}\n{}", output.status, words[0], words[1]);
    output
}

/// Returns what a program prints.
pub(crate) fn text(output: Output) -> String {
    String::from_utf8(output.stdout).expect("the programs print text")
}

/// Asserts, by the dynamic linker's own words, that a program's calls of `function` come to our library.
pub(crate) fn assert_bound_to_ours(mut command: Command, function: &str) {
    let output = command.env("LD_DEBUG", "bindings").output().expect("it can be run");
    let words = String::from_utf8_lossy(&output.stderr);
    let end = format!("symbol `{function}'");
    let bound = words.lines().filter(|line| line.contains(&end)).collect::<Vec<_>>();
    let is_ours = |line: &&str| line.contains(&format!("{}/{NAME}", swap_folder().display()));
    assert!(!bound.is_empty(), "{command:?} calls no {function}");
    assert!(bound.iter().all(is_ours), "{bound:?}");
}

/// Says why a test tests nothing here.
pub(crate) fn skip(reason: &str) {
    println!("skipped: {reason}");
}

/// Returns whether a program can be run.
pub(crate) fn has_program(name: &str) -> bool {
    Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
}
