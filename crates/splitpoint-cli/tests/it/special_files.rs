//! Pipes, sockets, devices and directories where a file belongs: an error at once, and they stay
//! what they are. Pipes where a stream belongs.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use crate::old_files::fixtures;
use crate::sandbox::{Outcome, Sandbox, end_of};

/// Every command that takes a store, an old file or a destination. None has an effect outside of
/// the sandbox: a destination is always a file of ours.
const COMMANDS: [&[&str]; 31] = [
    &["create", "FILE"],
    &["create", "db185:FILE"],
    &["put", "FILE", "k", "v"],
    &["put", "db185:FILE", "k", "v"],
    &["get", "FILE", "k"],
    &["get", "db185:FILE", "k"],
    &["delete", "FILE", "k"],
    &["count", "FILE"],
    &["list", "FILE"],
    &["load", "FILE", "words"],
    &["dump", "FILE"],
    &["stat", "FILE"],
    &["check", "FILE"],
    &["backup", "FILE", "new"],
    &["backup", "words.spt", "FILE"],
    &["backup", "words.spt", "FILE", "--force"],
    &["repair", "FILE", "-o", "new"],
    &["repair", "words.spt", "-o", "FILE"],
    &["convert", "FILE", "new"],
    &["convert", "--in-place", "FILE"],
    &["convert", "words.spt", "FILE"],
    &["convert", "words.spt", "db185:FILE"],
    &["salvage", "FILE", "-o", "new"],
    &["salvage", "old.gdbm", "-o", "FILE"],
    &["demo", "--file", "FILE"],
    &["lab", "table", "FILE", "--keys", "store", "--hash", "fnv1a-32"],
    &["lab", "table", "words", "--hash", "fnv1a-32", "--html", "FILE"],
    &["lab", "table", "words", "--hash", "fnv1a-32", "--json", "FILE"],
    &["lab", "hash", "words", "--hash", "fnv1a-32", "--json", "FILE"],
    &["bench", "--dir", "FILE"],
    &["man", "FILE"],
];

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::with_words();
    let old = fs::read(fixtures().join("gdbm-std-512.gdbm")).expect("the sample is there");
    sandbox.write("old.gdbm", &old);
    sandbox
}

fn names_in(sandbox: &Sandbox) -> Vec<String> {
    let entries = fs::read_dir(sandbox.path("")).expect("the sandbox");
    let name = |entry: fs::DirEntry| entry.file_name().into_string().expect("a plain name");
    let mut names: Vec<String> = entries.map(|entry| name(entry.expect("an entry"))).collect();
    names.sort_unstable();
    names
}

/// Starts the program with nothing on its standard input.
fn run(sandbox: &Sandbox, args: &[&str]) -> Outcome {
    let mut command = sandbox.program(args);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    end_of(child.expect("the program can be run"), &format!("{args:?}"))
}

/// Runs every command on the file of this name, which is `kind`.
fn check_all(sandbox: &Sandbox, file: &str, kind: &str) {
    let identity = || {
        let metadata = fs::symlink_metadata(sandbox.path(file)).expect("the file is there");
        (metadata.file_type(), metadata.dev(), metadata.ino(), metadata.rdev())
    };
    let (before, names) = (identity(), names_in(sandbox));
    for args in COMMANDS {
        let makes_a_directory = matches!(args[0], "man" | "bench");
        if makes_a_directory && kind == "a directory" {
            continue;
        }
        let args: Vec<String> = args.iter().map(|arg| arg.replace("FILE", file)).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let outcome = run(sandbox, &args);
        let said = &outcome.stderr;
        assert!((2..=5).contains(&outcome.exit), "{args:?}: {} {said}", outcome.exit);
        let error = said.lines().last().filter(|line| line.contains("error: "));
        let error = error.or_else(|| said.lines().rev().nth(1)).unwrap_or_default();
        let is_named = error.contains(kind) || makes_a_directory;
        assert!(error.starts_with("splitpoint: error: ") && is_named, "{args:?}: {said}");
        assert!(error.contains(file), "{args:?}: {said}");
        assert_eq!(identity(), before, "{args:?} has replaced it");
        assert_eq!(names_in(sandbox), names, "{args:?} has left something");
    }
    let identified = run(sandbox, &["identify", file, "words.spt"]);
    let said = format!("{file}: {kind}\nwords.spt: Splitpoint store\n");
    assert_eq!((identified.exit, identified.text()), (1, said), "{}", identified.stderr);
}

fn make_fifo(sandbox: &Sandbox, name: &str) {
    let made = Command::new("mkfifo").arg(sandbox.path(name)).status();
    assert!(made.expect("mkfifo can be run").success());
}

#[test]
fn a_named_pipe_is_no_file() {
    let sandbox = sandbox();
    make_fifo(&sandbox, "it");
    check_all(&sandbox, "it", "a named pipe");
}

#[test]
fn a_socket_is_no_file() {
    let sandbox = sandbox();
    let _listener = UnixListener::bind(sandbox.path("it")).expect("a socket can be made");
    check_all(&sandbox, "it", "a socket");
}

#[test]
fn a_directory_is_no_file() {
    let sandbox = sandbox();
    fs::create_dir(sandbox.path("it")).expect("a directory can be made");
    check_all(&sandbox, "it", "a directory");
}

/// Devices like those of the system, but in the sandbox: a command that would replace one by a file,
/// as `lab --html /dev/null` once did for root, replaces ours.
#[test]
fn a_device_is_no_file() {
    let sandbox = sandbox();
    // Those of /dev/zero, which has no end, of /dev/null and of the terminal.
    for (number, (major, minor)) in [("1", "5"), ("1", "3"), ("5", "0")].into_iter().enumerate() {
        let name = format!("it{number}");
        let made = Command::new("mknod")
            .arg(sandbox.path(&name))
            .args(["c", major, minor])
            .stderr(Stdio::null())
            .status();
        if !made.is_ok_and(|status| status.success()) {
            let _ = writeln!(std::io::stderr(), "skipped: only root can make a device");
            return;
        }
        let metadata = fs::metadata(sandbox.path(&name)).expect("it was made");
        assert!(metadata.file_type().is_char_device());
        check_all(&sandbox, &name, "a character device");
    }
}

/// What is read into memory as a whole must have an end.
#[test]
fn a_device_is_no_list_and_no_study() {
    let sandbox = sandbox();
    for args in [
        &["bench", "--words", "/dev/zero"][..],
        &["lab", "report", "/dev/zero"],
        &["lab", "compare", "/dev/zero", "/dev/zero"],
        &["lab", "gate", "words", "--hashes", "/dev/zero"],
    ] {
        let outcome = run(&sandbox, args);
        outcome.check_error(5, "cannot read `/dev/zero`: it is a device");
    }
}

/// Runs `args` while another thread writes `bytes` to the pipe of this name.
fn run_with_pipe(sandbox: &Sandbox, args: &[&str], name: &str, bytes: &[u8]) -> Outcome {
    make_fifo(sandbox, name);
    let (path, bytes) = (sandbox.path(name), bytes.to_vec());
    // It waits for the program, as a shell's `<(...)` does.
    let writer = std::thread::spawn(move || fs::write(path, bytes));
    let outcome = run(sandbox, args);
    writer.join().expect("the writer does not panic").expect("the program has read all");
    outcome
}

#[test]
fn a_named_pipe_is_a_stream() {
    let sandbox = sandbox();
    let words = sandbox.read("words");
    let load = run_with_pipe(&sandbox, &["load", "-q", "a.spt", "pipe1"], "pipe1", &words);
    load.check(0, "", "");
    sandbox.run(&["count", "a.spt"]).check(0, "3\n", "");

    let args = ["lab", "hash", "pipe2", "--hash", "fnv1a-32", "--json", "study.json"];
    assert_eq!(run_with_pipe(&sandbox, &args, "pipe2", &words).exit, 0);
    let study = sandbox.read("study.json");
    let from_file = sandbox.run(&["lab", "report", "study.json"]);
    let report = run_with_pipe(&sandbox, &["lab", "report", "pipe3"], "pipe3", &study);
    report.check(0, from_file.stdout, "");

    let hashes = b"10\n20\nff\n";
    let args = ["lab", "gate", "words", "--hashes", "pipe4", "--buckets", "16", "--max-cost", "2"];
    let gate = run_with_pipe(&sandbox, &args, "pipe4", hashes);
    assert_eq!(gate.exit, 0, "{}", gate.stderr);

    let args = ["bench", "--words", "pipe5", "--runs", "1", "--memory"];
    assert_eq!(run_with_pipe(&sandbox, &args, "pipe5", &words).exit, 0);
}

#[test]
fn a_manual_page_is_not_written_into_a_pipe() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("man1")).expect("a directory can be made");
    make_fifo(&sandbox, "man1/splitpoint.1");
    let outcome = run(&sandbox, &["man", "man1"]);
    outcome.check_error(5, "cannot write `man1/splitpoint.1`: it is a named pipe");
}

/// A study or a page may take the place of an earlier one, and of nothing else.
#[test]
fn a_study_replaces_only_a_study() {
    let sandbox = sandbox();
    let args = |option, file| ["lab", "table", "words", "--hash", "fnv1a-32", option, file];
    for (option, what) in [("--json", "saved study"), ("--html", "lab page")] {
        assert_eq!(sandbox.run(&args(option, "out")).exit, 0);
        assert_eq!(sandbox.run(&args(option, "out")).exit, 0);
        let error = format!("`words.spt` exists and is not a {what}, so it was not replaced");
        sandbox.run(&args(option, "words.spt")).check_error(2, &error);
        fs::remove_file(sandbox.path("out")).expect("it was made");
    }
    sandbox.run(&["count", "words.spt"]).check(0, "3\n", "");
}

#[test]
fn a_directory_as_input_cannot_be_opened() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("dir")).unwrap();
    let error = "cannot read `dir`: Is a directory (os error 21)";
    for args in [
        &["load", "a.spt", "dir"][..],
        &["load", "a.spt", "dir", "--format", "tsv"],
        &["lab", "hash", "dir"],
        &["lab", "compare", "dir", "dir"],
    ] {
        let outcome = sandbox.run(args);
        assert_eq!(outcome.exit, 3, "{args:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(error), "{args:?}: {}", outcome.stderr);
    }
}
