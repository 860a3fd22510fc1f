//! An installed prefix, programs that are compiled against it, and what they say.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::memcheck::found_by_valgrind;

/// No program takes nearly as long, under valgrind and on a busy machine neither: an alarm of a program itself, of
/// at most 250 seconds, is there for the programs that wait for themselves.
const SECONDS_MAX: &str = "300";

/// Returns the prefix with all libraries: the one that `SPLITPOINT_PREFIX` names, or else one that is
/// staged now, once for all tests.
pub(crate) fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        if let Some(prefix) = std::env::var_os("SPLITPOINT_PREFIX") {
            return prefix.into();
        }
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prefix");
        let mut stage = Command::new(env!("CARGO"));
        stage.args(["run", "--quiet", "--package", "xtask", "--", "stage"]).arg(&prefix);
        stage.current_dir(repository());
        let output = stage.output().expect("cargo can be run");
        assert!(output.status.success(), "{stage:?}\n{}", words(&output));
        prefix
    })
}

/// Returns the root of the repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate is in crates/")
}

/// How a program gets a library.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Link {
    Shared,
    /// Our archive, and the shared C library.
    Archive,
    /// Nothing shared at all.
    Static,
}

/// A program that is compiled from one file of `tests/c/`.
#[derive(Debug)]
pub(crate) struct Program {
    path: PathBuf,
}

impl Program {
    /// Compiles `tests/c/SOURCE` with these libraries of the prefix.
    #[track_caller]
    pub(crate) fn new(source: &str, libraries: &[&str], link: Link) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source);
        Self::of_file(&source, libraries, link)
    }

    /// Compiles a file with these libraries of the prefix.
    #[track_caller]
    pub(crate) fn of_file(source: &Path, libraries: &[&str], link: Link) -> Self {
        // Tests run at the same time, and each compiles its own.
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let stem = source.file_stem().expect("a name").to_string_lossy();
        let name = format!("{stem}-{link:?}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]);
        cc.arg("-I").arg(prefix().join("include/splitpoint"));
        cc.arg("-o").arg(&path).arg(source);
        let lib = prefix().join("lib");
        for library in libraries {
            match link {
                Link::Shared => cc.arg("-L").arg(&lib).arg(format!("-l{library}")),
                Link::Archive | Link::Static => cc.arg(lib.join(format!("lib{library}.a"))),
            };
        }
        match link {
            Link::Shared => {}
            Link::Archive => drop(cc.args(["-lgcc_s", "-lm", "-ldl"])),
            Link::Static => drop(cc.args(["-static", "-lgcc_eh", "-lm"])),
        }
        let output = cc.output().expect("the tests need a C compiler");
        assert!(output.status.success(), "{cc:?}\n{}", words(&output));
        Self { path }
    }

    /// Returns the compiled program.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a command that runs it, for a bounded time.
    pub(crate) fn command(&self) -> Command {
        self.command_under(&[])
    }

    fn command_under(&self, wrapper: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.arg(SECONDS_MAX).args(wrapper).arg(&self.path);
        command.env("LD_LIBRARY_PATH", prefix().join("lib"));
        command
    }

    /// Runs it, and returns what it printed. It must end with status 0.
    #[track_caller]
    pub(crate) fn run(&self, arguments: &[&Path]) -> String {
        succeed(self.command().args(arguments))
    }

    /// Runs it where every wrong access and every leak is an error, if valgrind is installed.
    #[track_caller]
    pub(crate) fn run_checked(&self, arguments: &[&Path]) {
        succeed_in_silence(self.checked("full").args(arguments));
    }

    /// Returns a command that runs it where every wrong access is an error, if valgrind is installed. Of leaks it
    /// says nothing: the program leaves handles behind, cut ones and those of children.
    pub(crate) fn command_that_leaves_handles(&self) -> Command {
        self.checked("no")
    }

    fn checked(&self, leaks: &str) -> Command {
        let leaks = format!("--leak-check={leaks}");
        let valgrind = ["valgrind", "--quiet", "--error-exitcode=99", &leaks];
        let wrapper = if has_program("valgrind") {
            &valgrind[..]
        } else {
            skip("valgrind is not installed: the program is run without");
            &[]
        };
        self.command_under(wrapper)
    }
}

/// Says what a test does not test here.
#[expect(clippy::print_stdout, reason = "the harness shows it")]
pub(crate) fn skip(reason: &str) {
    println!("skipped: {reason}");
}

/// Like [`succeed`], for a command that must write no word to standard error: there valgrind says what it has
/// found in a child that is killed, and which has no status that tells.
#[track_caller]
pub(crate) fn succeed_in_silence(command: &mut Command) -> String {
    let output = command.output().expect("the program can be run");
    let is_silent = output.status.success() && found_by_valgrind(&output.stderr).is_empty();
    assert!(is_silent, "{command:?}: {}\n{}", output.status, words(&output));
    String::from_utf8(output.stdout).expect("the programs print ASCII")
}

/// Runs a command that must end with status 0, and returns what it printed.
#[track_caller]
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = command.output().expect("the program can be run");
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, words(&output));
    String::from_utf8(output.stdout).expect("the programs print ASCII")
}

fn words(output: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

pub(crate) fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
}
