//! Ctrl-C at any time, and a store that another process has open.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use crate::old_files::fixtures;
use crate::sandbox::{HANG, PATIENCE_ENV, Sandbox, end_of};

/// Starts to load records that do not end, and returns when the store is open and many have been
/// taken.
fn start_load(sandbox: &Sandbox) -> (Child, std::process::ChildStdin, BufReader<ChildStderr>) {
    let mut child = sandbox
        .program(&["load", "a.spt", "--format", "tsv"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be run");
    let mut stdin = child.stdin.take().expect("standard input is piped");
    let mut stderr = BufReader::new(child.stderr.take().expect("standard error is piped"));
    let input: String =
        (0..200_000).fold(String::new(), |input, i| input + &format!("{i}\tvalue\n"));
    // Far more than pipe, buffers and batches hold: when it is gone, much has been stored.
    stdin.write_all(input.as_bytes()).expect("the input is taken");
    let mut line = String::new();
    stderr.read_line(&mut line).expect("a line can be read");
    assert_eq!(line, "splitpoint: created `a.spt`\n");
    (child, stdin, stderr)
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args(["-s", name, &child.id().to_string()]).status();
    assert!(status.expect("kill can be run").success());
}

#[test]
fn ctrl_c_leaves_a_valid_store_with_what_it_says() {
    for (name, exit) in [("INT", 130), ("TERM", 143)] {
        let sandbox = Sandbox::new();
        let (mut child, stdin, mut stderr) = start_load(&sandbox);
        signal(&child, name);
        let status = child.wait().expect("the program ends");
        drop(stdin);
        let mut rest = String::new();
        stderr.read_to_string(&mut rest).expect("the rest can be read");
        assert_eq!(status.code(), Some(exit), "{rest}");

        let said = rest
            .strip_prefix("splitpoint: error: interrupted: loaded ")
            .and_then(|rest| rest.split_once(" records\nhint: the store is valid; "))
            .map_or_else(|| panic!("{rest}"), |(count, _)| count.replace(',', ""));
        sandbox.run(&["count", "a.spt"]).check(0, format!("{said}\n"), "");
        assert!(said.parse::<u64>().unwrap() > 100_000, "{said}");
        assert_eq!(sandbox.run(&["check", "-q", "a.spt"]).exit, 0);
    }
}

#[test]
fn a_store_that_is_written_names_the_process_that_does_it() {
    let sandbox = Sandbox::new();
    let (mut child, stdin, _stderr) = start_load(&sandbox);
    let pid = child.id();
    sandbox.write("one", b"1\t2\n");
    for args in [
        &["put", "a.spt", "1", "2"][..],
        &["delete", "a.spt", "1"],
        &["load", "a.spt", "one", "--format", "tsv"],
        &["compact", "a.spt"],
    ] {
        sandbox.run(&[args, &["--lock-timeout", "0"]].concat()).check(
            3,
            "",
            &format!(
                "splitpoint: error: `a.spt` is locked by process {pid} (writer)\n\
                 hint: one process at a time writes to a store; --lock-timeout waits longer, and \
                 get, list, count, dump and stat need not wait\n"
            ),
        );
    }
    sandbox.run(&["check", "a.spt", "--lock-timeout", "0"]).check(
        3,
        "",
        &format!(
            "splitpoint: error: `a.spt` is locked by process {pid} (writer)\n\
             hint: a check needs a store that stays as it is; check a copy: splitpoint backup \
             a.spt COPY && splitpoint check COPY\n"
        ),
    );
    drop(stdin);
    assert!(child.wait().expect("the program ends").success());
    sandbox.run(&["count", "a.spt"]).check(0, "200000\n", "");
}

/// A process that is killed while it allocates a new store leaves zeros.
#[test]
fn a_creation_that_was_killed_is_made_good_by_the_next_writer_and_other_zeros_stay() {
    let sandbox = Sandbox::new();
    for name in ["put.spt", "load.spt"] {
        sandbox.write(name, &[0; 16 << 10]);
    }
    assert_eq!(sandbox.run(&["put", "-q", "put.spt", "a", "1"]).exit, 0);
    sandbox.run_with(&["load", "-q", "load.spt", "--format", "tsv"], b"a\t1\n").check(0, "", "");
    for name in ["put.spt", "load.spt"] {
        sandbox.run(&["dump", name, "--format", "tsv"]).check(0, "a\t1\n", "");
    }
    let others = vec![0; 1 << 20];
    sandbox.write("others", &others);
    let loaded = sandbox.run_with(&["load", "-q", "others", "--format", "tsv"], b"a\t1\n");
    assert_eq!(loaded.exit, 3, "{}", loaded.stderr);
    assert!(std::fs::read(sandbox.path("others")).expect("it is there") == others);
}

/// Kills a load at different sizes of the store, from its beginning on. What is found is a prefix
/// of the input, every pair of it, and loading again completes it.
#[test]
fn a_killed_load_leaves_a_prefix_of_its_input() {
    const RECORDS: usize = 300_000;
    let sandbox = Sandbox::new();
    let lines: Vec<String> = (0..RECORDS).map(|i| format!("{i}\tvalue {}", i * 7)).collect();
    sandbox.write("input", (lines.join("\n") + "\n").as_bytes());
    for store_bytes in [0, 1, 20 << 10, 100 << 10, 1 << 20, 3 << 20, 5 << 20, 8 << 20] {
        let store = sandbox.path("a.spt");
        let _ = std::fs::remove_file(&store);
        let mut child = sandbox
            .program(&["load", "-q", "a.spt", "input", "--format", "tsv"])
            .spawn()
            .expect("the program can be run");
        let bytes = || std::fs::metadata(&store).map_or(0, |metadata| metadata.len());
        while bytes() < store_bytes && child.try_wait().expect("it can be asked").is_none() {
            std::thread::yield_now();
        }
        child.kill().expect("a child can be killed");
        child.wait().expect("the program ends");

        if store.exists() {
            // The next writer, which takes over or makes the store, and adds nothing.
            let opened = sandbox.run_with(&["load", "-q", "a.spt", "--format", "tsv"], b"");
            opened.check(0, "", "");
            let dump = sandbox.run(&["dump", "a.spt", "--format", "tsv"]);
            assert_eq!(dump.exit, 0, "{}", dump.stderr);
            let text = dump.text();
            let mut found: Vec<&str> = text.lines().collect();
            let number = |line: &str| line.split('\t').next().and_then(|key| key.parse().ok());
            found.sort_by_key(|line| number(line).unwrap_or(usize::MAX));
            let count = found.len();
            assert!(count <= RECORDS, "{count}");
            assert!(found == lines[..count], "{count} records are not a prefix of the input");
            sandbox.run(&["count", "a.spt"]).check(0, format!("{count}\n"), "");
        }
        sandbox.run(&["load", "-q", "a.spt", "input", "--format", "tsv"]).check(0, "", "");
        sandbox.run(&["count", "a.spt"]).check(0, format!("{RECORDS}\n"), "");
        assert_eq!(sandbox.run(&["check", "-q", "a.spt"]).exit, 0);
    }
}

/// It waits for more input when it is killed.
#[test]
fn a_load_that_is_killed_in_the_middle_of_its_work_has_stored_most_of_its_input() {
    let sandbox = Sandbox::new();
    let (mut child, stdin, _stderr) = start_load(&sandbox);
    child.kill().expect("a child can be killed");
    assert!(!child.wait().expect("the program ends").success());
    drop(stdin);
    sandbox.run_with(&["load", "-q", "a.spt", "--format", "tsv"], b"").check(0, "", "");
    let count: u64 = sandbox.run(&["count", "a.spt"]).text().trim().parse().expect("a number");
    assert!((100_000..=200_000).contains(&count), "{count}");
    let dump = sandbox.run(&["dump", "a.spt", "--format", "tsv"]).text();
    let mut found: Vec<&str> = dump.lines().collect();
    found.sort_unstable();
    let mut stored: Vec<String> = (0..count).map(|i| format!("{i}\tvalue")).collect();
    stored.sort_unstable();
    assert!(found == stored, "{count} records are not a prefix of the input");
    assert_eq!(sandbox.run(&["check", "-q", "a.spt"]).exit, 0);
}

/// Waits until the program has taken over what a signal does; `TERM` is the last.
pub(crate) fn wait_until_it_listens(child: &mut Child) {
    const TERM: u64 = 1 << 14;
    let path = format!("/proc/{}/status", child.id());
    let caught = || {
        let status = std::fs::read_to_string(&path).unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
        u64::from_str_radix(mask.trim(), 16).expect("a mask")
    };
    let begun = Instant::now();
    while caught() & TERM == 0 && child.try_wait().expect("it can be asked").is_none() {
        assert!(begun.elapsed() < HANG, "signals are left to the system");
        std::thread::yield_now();
    }
}

const SIGNALS: [(&str, i32); 3] = [("INT", 130), ("TERM", 143), ("HUP", 129)];

/// What waits for somebody who does not come: the other end of a named pipe, more input, or room in
/// a pipe that nobody empties.
#[test]
fn a_command_that_waits_ends_by_a_signal_with_one_line() {
    let sandbox = Sandbox::new();
    let words: String = (0..20_000).fold(String::new(), |words, i| words + &format!("word {i}\n"));
    sandbox.write("words", words.as_bytes());
    sandbox.run(&["load", "-q", "words.spt", "words"]).check(0, "", "");
    let made = Command::new("mkfifo").arg(sandbox.path("pipe")).status();
    assert!(made.expect("mkfifo can be run").success());
    for args in [
        &["load", "a.spt", "pipe"][..],
        &["put", "a.spt", "key"],
        &["lab", "hash", "pipe"],
        &["lab", "hash", "-"],
        &["lab", "report", "pipe"],
        &["lab", "gate", "words", "--hashes", "pipe"],
        &["bench", "--words", "pipe"],
        &["list", "words.spt"],
        &["dump", "words.spt"],
        &["backup", "words.spt"],
    ] {
        for (name, exit) in SIGNALS {
            let mut child = sandbox
                .program(args)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("the program can be run");
            // Both ends stay open, and nobody uses them.
            let streams = (child.stdin.take(), child.stdout.take());
            wait_until_it_listens(&mut child);
            signal(&child, name);
            let outcome = end_of(child, &format!("{args:?}"));
            drop(streams);
            outcome.check(exit, "", "splitpoint: error: interrupted\n");
        }
    }
    assert!(!sandbox.path("a.spt").exists());
}

/// Returns a stream that takes no more bytes, and its other end.
fn full_stream() -> (OwnedFd, UnixStream) {
    let (mut near, far) = UnixStream::pair().expect("a pair of sockets");
    near.set_nonblocking(true).expect("a mode");
    // Until there is not even room for one byte.
    for bytes in [&[0; 4096][..], &[0]] {
        while near.write(bytes).is_ok() {}
    }
    near.set_nonblocking(false).expect("a mode");
    (near.into(), far)
}

/// Standard error takes no byte, so progress on it blocks the work in its middle, and so would any
/// last words. The process ends all the same, and nothing is left but what was there.
#[test]
fn a_command_that_is_blocked_in_its_work_ends_by_a_signal_and_leaves_nothing() {
    let sandbox = Sandbox::new();
    let input: String = (0..50_000).fold(String::new(), |input, i| input + &format!("{i}\t{i}\n"));
    assert_eq!(sandbox.run_with(&["load", "-q", "a.spt"], input.as_bytes()).exit, 0);
    let old = std::fs::read(fixtures().join("gdbm-std-512.gdbm")).expect("the sample is there");
    sandbox.write("old.gdbm", &old);
    // Each of them takes seconds, the most that such a command is given.
    for ((args, partial), (name, exit)) in [
        (&["repair", "a.spt", "-o", "new.spt"][..], "new.spt.repair-in-progress"),
        (&["backup", "a.spt", "new.spt"], "new.spt.backup-in-progress"),
        (&["convert", "a.spt", "new.spt"], "new.spt.convert-in-progress"),
        (&["convert", "a.spt", "new.db", "--format", "db185"], "new.db.convert-in-progress"),
        (&["salvage", "old.gdbm", "-o", "new.spt"], "new.spt.salvage-in-progress"),
        (&["rehash", "a.spt", "--hash", "siphash-1-3"], "a.spt.rehash-in-progress"),
    ]
    .into_iter()
    .zip(SIGNALS.into_iter().cycle())
    {
        let (stderr, _reader) = full_stream();
        let mut child = sandbox
            .program(args)
            .args(["--progress", "json"])
            .env_remove(PATIENCE_ENV)
            .stdout(Stdio::null())
            .stderr(Stdio::from(stderr))
            .spawn()
            .expect("the program can be run");
        wait_until_it_listens(&mut child);
        // From here on it is blocked, or will be: in the copy, or in the check before it.
        let patience = Instant::now() + Duration::from_secs(2);
        while !sandbox.path(partial).exists() && Instant::now() < patience {
            assert!(child.try_wait().expect("it can be asked").is_none(), "{args:?} has ended");
            std::thread::yield_now();
        }
        signal(&child, name);
        assert_eq!(end_of(child, &format!("{args:?}")).exit, exit, "{args:?}");
        let mut names: Vec<_> = std::fs::read_dir(sandbox.path(""))
            .expect("the sandbox")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        names.sort_unstable();
        assert_eq!(names, ["a.spt", "old.gdbm"], "{args:?}");
        // By its own function: a store that is moved in place stays what it was.
        let stat = sandbox.run(&["stat", "a.spt", "--json"]).json();
        assert_eq!((&stat["hash"], &stat["records"]), (&"rapidhash-v3".into(), &50_000.into()));
    }
}

/// Signals a command as soon as a file has so many bytes, in all phases of its work: what is under
/// the final name then is whole or not there, and nothing else is left.
#[test]
fn a_signal_at_any_time_leaves_a_whole_file_or_none() {
    let sandbox = Sandbox::new();
    let input: String = (0..100_000).fold(String::new(), |input, i| input + &format!("{i}\t{i}\n"));
    assert_eq!(sandbox.run_with(&["load", "-q", "a.spt"], input.as_bytes()).exit, 0);
    for (args, dest, partial) in [
        (&["repair", "-q", "a.spt", "-o", "b.spt"][..], "b.spt", "b.spt.repair-in-progress"),
        (&["backup", "-q", "a.spt", "b.spt"], "b.spt", "b.spt.backup-in-progress"),
        (&["convert", "-q", "a.spt", "b.spt"], "b.spt", "b.spt.convert-in-progress"),
        (
            &["convert", "-q", "a.spt", "b.db", "--format", "db185"],
            "b.db",
            "b.db.convert-in-progress",
        ),
    ] {
        // Before it is there, from its first byte on, and when only the name is missing.
        for bytes in [None, Some(0), Some(1 << 17), Some(1 << 20), Some(3 << 20), Some(4 << 20)] {
            let mut child = sandbox.program(args);
            let mut child = child.stderr(Stdio::piped()).spawn().expect("the program can be run");
            wait_until_it_listens(&mut child);
            let has_come = || {
                let metadata = std::fs::metadata(sandbox.path(partial));
                bytes.is_none_or(|bytes| metadata.is_ok_and(|found| found.len() >= bytes))
            };
            while !has_come() && child.try_wait().expect("it can be asked").is_none() {
                std::thread::yield_now();
            }
            // It may be done by now.
            let mut kill = Command::new("kill");
            let _ =
                kill.args(["-s", "INT", &child.id().to_string()]).stderr(Stdio::null()).status();
            let outcome = end_of(child, &format!("{args:?}"));
            let said = &outcome.stderr;
            let context = format!("{args:?} at {bytes:?}: {} {said}", outcome.exit);
            assert!(!sandbox.path(partial).exists(), "{context}");
            if sandbox.path(dest).exists() {
                assert_eq!((outcome.exit, said.as_str()), (0, ""), "{context}");
                sandbox.run(&["count", dest]).check(0, "100000\n", "");
                std::fs::remove_file(sandbox.path(dest)).expect("it was made");
            } else {
                assert_eq!(outcome.exit, 130, "{context}");
                assert!(said.starts_with("splitpoint: error: interrupted"), "{context}");
            }
        }
    }
}

/// As before, of a store that is replaced: it is the old one or the new one, as the exit code says.
#[test]
fn a_signal_at_any_time_of_a_rehash_leaves_the_old_store_or_the_new_one() {
    let sandbox = Sandbox::new();
    let input: String = (0..100_000).fold(String::new(), |input, i| input + &format!("{i}\t{i}\n"));
    assert_eq!(sandbox.run_with(&["load", "-q", "a.spt"], input.as_bytes()).exit, 0);
    let partial = "a.spt.rehash-in-progress";
    let mut old = "rapidhash-v3";
    for bytes in [None, Some(0), Some(1 << 17), Some(1 << 20), Some(3 << 20), Some(4 << 20)] {
        let new = if old == "xxh3-64" { "siphash-1-3" } else { "xxh3-64" };
        let mut child = sandbox.program(&["rehash", "-q", "a.spt", "--hash", new]);
        let mut child = child.stderr(Stdio::piped()).spawn().expect("the program can be run");
        wait_until_it_listens(&mut child);
        let has_come = || {
            let metadata = std::fs::metadata(sandbox.path(partial));
            bytes.is_none_or(|bytes| metadata.is_ok_and(|found| found.len() >= bytes))
        };
        while !has_come() && child.try_wait().expect("it can be asked").is_none() {
            std::thread::yield_now();
        }
        let mut kill = Command::new("kill");
        let _ = kill.args(["-s", "INT", &child.id().to_string()]).stderr(Stdio::null()).status();
        let outcome = end_of(child, "rehash");
        let context = format!("at {bytes:?}: {} {}", outcome.exit, outcome.stderr);
        assert!(!sandbox.path(partial).exists(), "{context}");
        let stat = sandbox.run(&["stat", "a.spt", "--json"]).json();
        assert_eq!(stat["records"], 100_000, "{context}");
        if stat["hash"] == new {
            assert_eq!((outcome.exit, outcome.stderr.as_str()), (0, ""), "{context}");
            old = new;
        } else {
            assert_eq!((&stat["hash"], outcome.exit), (&old.into(), 130), "{context}");
            assert!(outcome.stderr.starts_with("splitpoint: error: interrupted"), "{context}");
        }
        assert_eq!(sandbox.run(&["check", "-q", "a.spt"]).exit, 0, "{context}");
    }
}

#[test]
fn a_benchmark_that_is_stopped_leaves_no_store() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("dir")).expect("a directory can be made");
    let mut child = sandbox
        .program(&["bench", "-q", "--dir", "dir", "--runs", "100000"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be run");
    let names = || std::fs::read_dir(sandbox.path("dir")).expect("a directory").count();
    while names() == 0 {
        assert!(child.try_wait().expect("it can be asked").is_none(), "it has ended");
        std::thread::yield_now();
    }
    signal(&child, "HUP");
    assert_eq!(end_of(child, "bench").exit, 129);
    assert_eq!(names(), 0);
}

/// As a shell starts what runs in the background: Ctrl-C is not for it.
#[test]
fn a_signal_that_is_to_be_ignored_is_ignored() {
    let sandbox = Sandbox::new();
    let program = sandbox.program(&[]).get_program().to_string_lossy().into_owned();
    let script = format!("trap '' INT; exec '{program}' load -q a.spt --format tsv");
    let mut child = sandbox
        .command(std::path::Path::new("/bin/sh"), &["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a shell can be run");
    let mut stdin = child.stdin.take().expect("standard input is piped");
    wait_until_it_listens(&mut child);
    signal(&child, "INT");
    stdin.write_all(b"key\tvalue\n").expect("it goes on reading");
    drop(stdin);
    end_of(child, "load").check(0, "", "");
    sandbox.run(&["count", "a.spt"]).check(0, "1\n", "");

    let mut child = sandbox.command(std::path::Path::new("/bin/sh"), &["-c", &script]);
    let mut child = child.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a shell");
    wait_until_it_listens(&mut child);
    signal(&child, "TERM");
    let stdin = child.stdin.take();
    let outcome = end_of(child, "load");
    drop(stdin);
    assert_eq!(outcome.exit, 143, "{}", outcome.stderr);
}
