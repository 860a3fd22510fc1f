//! A directory of its own for each test, and the program run in it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

/// Keys and values that trip up careless programs.
pub(crate) const AWKWARD: [(&[u8], &[u8]); 7] = [
    (b"plain", b"text"),
    (b"", b"the empty key"),
    (b"the empty value", b""),
    (b"\x00\xff\\\n\t ", b"\x1b[31m\r\n\x00"),
    (b"tab\there", b"new\nline"),
    ("\u{e9}t\u{e9}".as_bytes(), "\u{1f600}".as_bytes()),
    (b"-", b"--"),
];

/// What takes longer hangs: far more than anything takes on a slow machine that is busy with
/// something else.
pub(crate) const HANG: Duration = Duration::from_secs(1800);
/// Name of the environment variable with the seconds that the program waits at least for its work
/// to notice a signal, and to end.
pub(crate) const PATIENCE_ENV: &str = "SPLITPOINT_TEST_PATIENCE";

/// A directory that goes away with the test.
pub(crate) struct Sandbox {
    dir: TempDir,
}

/// What a run left behind.
pub(crate) struct Outcome {
    pub(crate) exit: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Sandbox {
    /// Makes an empty directory.
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a temporary directory can be made") }
    }

    /// Makes a directory with a store `words.spt` of three words.
    pub(crate) fn with_words() -> Self {
        let sandbox = Self::new();
        sandbox.write("words", b"apple\nbanana\ncherry\n");
        sandbox.run(&["load", "words.spt", "words", "--quiet"]).check(0, "", "");
        sandbox
    }

    /// Makes a directory with a store `awkward.spt` of [`AWKWARD`].
    pub(crate) fn with_awkward() -> Self {
        let sandbox = Self::new();
        for (key, value) in AWKWARD {
            let args = ["put", "-q", "awkward.spt", "--hex", &hex(key), &hex(value)];
            sandbox.run(&args).check(0, "", "");
        }
        sandbox
    }

    /// Returns the path of `name` in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).expect("the sandbox can be written");
    }

    /// Reads a file.
    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).expect("the sandbox can be read")
    }

    /// Returns the program, to be run in the directory and away from the user's settings.
    pub(crate) fn program(&self, args: &[&str]) -> Command {
        self.command(Path::new(env!("CARGO_BIN_EXE_splitpoint")), args)
    }

    /// Returns another command, to be run in the same way.
    pub(crate) fn command(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(self.dir.path())
            .env_remove("NO_COLOR")
            .env_remove("CLICOLOR_FORCE")
            .env(PATIENCE_ENV, "900")
            .env("TMPDIR", self.dir.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs the program.
    pub(crate) fn run(&self, args: &[&str]) -> Outcome {
        Outcome::of(&self.program(args).output().expect("the program can be run"))
    }

    /// Runs the program with `stdin` on its standard input.
    pub(crate) fn run_with(&self, args: &[&str], stdin: &[u8]) -> Outcome {
        Outcome::of(&feed(&mut self.program(args), stdin))
    }
}

/// Runs `command` with `stdin` on its standard input.
pub(crate) fn feed(command: &mut Command, stdin: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be run");
    let mut pipe = child.stdin.take().expect("standard input is piped");
    let stdin = stdin.to_vec();
    // A program that stops reading early is not this writer's error.
    let writer = std::thread::spawn(move || drop(pipe.write_all(&stdin)));
    let output = child.wait_with_output().expect("the program ends");
    writer.join().expect("the writer does not panic");
    output
}

/// Waits until a program ends, which takes no time; one that hangs is killed and fails the test.
pub(crate) fn end_of(child: Child, what: &str) -> Outcome {
    let id = child.id().to_string();
    let (sender, receiver) = mpsc::channel();
    let waiter = thread::spawn(move || sender.send(child.wait_with_output()));
    let ended = receiver.recv_timeout(HANG);
    if ended.is_err() {
        let _ = Command::new("kill").args(["-s", "KILL", &id]).status();
    }
    waiter.join().expect("the waiter does not panic").expect("the receiver lives");
    let Ok(output) = ended else { panic!("{what} hangs") };
    Outcome::of(&output.expect("the program ends"))
}

impl Outcome {
    /// Returns the outcome of a run.
    pub(crate) fn of(output: &Output) -> Self {
        Self {
            exit: output.status.code().unwrap_or(-1),
            stdout: output.stdout.clone(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Checks all that is to be seen. In `stderr`, `[..]` stands for a time, with the rate that
    /// follows one of a second or more.
    #[track_caller]
    pub(crate) fn check(&self, exit: i32, stdout: impl AsRef<[u8]>, stderr: &str) {
        let found = format!(
            "exit {}\n--- stdout\n{}\n--- stderr\n{}",
            self.exit,
            text(&self.stdout),
            without_times(&without_ages(&self.stderr))
        );
        let expected =
            format!("exit {exit}\n--- stdout\n{}\n--- stderr\n{stderr}", text(stdout.as_ref()));
        assert_eq!(found, expected, "\nfound:\n{found}\nexpected:\n{expected}");
    }

    /// Checks the exit code and the first line of standard error, which says what went wrong.
    #[track_caller]
    pub(crate) fn check_error(&self, exit: i32, error: &str) {
        let stderr = without_ages(&self.stderr);
        let first = stderr.lines().next().unwrap_or_default();
        let expected = format!("splitpoint: error: {error}");
        assert_eq!((self.exit, first), (exit, expected.as_str()), "{}", self.stderr);
    }

    /// Returns standard output as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).expect("standard output is UTF-8")
    }

    /// Returns standard output as one JSON value.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.stdout).expect("standard output is JSON")
    }
}

fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_string(),
        Err(_) => bytes.escape_ascii().to_string(),
    }
}

/// Replaces every time, as in ` in 12.3 ms`, by `[..]`, and leaves out the rate that follows a long
/// one, as in ` in 1.25 s, 48,000 a second`.
fn without_times(text: &str) -> String {
    let mut words: Vec<&str> = text.split(' ').collect();
    while let Some(at) = words.windows(4).position(is_long_time) {
        words.splice(at..at + 4, ["s"]);
    }
    let mut at = 0;
    while at + 1 < words.len() {
        let unit = words[at + 1].trim_end_matches([',', ':']);
        if matches!(unit, "s" | "ms" | "us" | "ns") && words[at].parse::<f64>().is_ok() {
            words[at] = "[..]";
            let rest = words[at + 1].len() - unit.len();
            let tail = &words[at + 1][words[at + 1].len() - rest..];
            words[at + 1] = tail;
        }
        at += 1;
    }
    words.join(" ").replace("[..] :", "[..]:").replace("[..]  ", "[..] ").replace("[..] ,", "[..],")
}

/// Returns whether these are the last words of a time of a second or more and of a rate.
fn is_long_time(words: &[&str]) -> bool {
    let is_count = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit() || byte == b',');
    words[0] == "s," && is_count(words[1]) && words[2..] == ["a", "second"]
}

#[test]
fn times_and_rates_are_left_out_whatever_they_are() {
    for time in ["12.3 ms", "1.25 s, 48,000 a second", "75 s, 8 a second"] {
        let text = format!("loaded 60,000 records in {time} from `a` (tsv), 2 new\n");
        let expected = "loaded 60,000 records in [..] from `a` (tsv), 2 new\n";
        assert_eq!(without_times(&text), expected);
    }
}

/// Returns `bytes` in hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut out, byte| {
        write!(out, "{byte:02x}").expect("a string takes anything");
        out
    })
}

/// Returns where `tool` is, or says that a test is left out without it.
pub(crate) fn tool(tool: &str, package: &str) -> Option<PathBuf> {
    let dirs = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&dirs).map(|dir| dir.join(tool)).find(|path| path.is_file());
    if found.is_none() {
        let is_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
        assert!(!is_ci, "no `{tool}` on PATH; Debian has it in package {package}");
        // Not `eprintln!`, which the test harness would hide.
        let reason = format!("skipped: no `{tool}` on PATH; Debian has it in package {package}");
        let _ = writeln!(std::io::stderr(), "{reason}");
    }
    found
}

/// Removes for how long somebody has a file locked: `process 12 (writer for 3 s)`.
pub(crate) fn without_ages(text: &str) -> String {
    let mut rest = text;
    let mut out = String::new();
    while let Some((before, after)) = rest.split_once(" for ") {
        out.push_str(before);
        let number = after.bytes().take_while(u8::is_ascii_digit).count();
        let units = [" s)", " min)", " h)"];
        let is_age = number > 0 && units.iter().any(|unit| after[number..].starts_with(unit));
        if let Some(end) = after.find(')').filter(|_| is_age) {
            rest = &after[end..];
        } else {
            out.push_str(" for ");
            rest = after;
        }
    }
    out + rest
}
