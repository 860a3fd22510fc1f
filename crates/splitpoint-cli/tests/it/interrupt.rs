//! Ctrl-C, and a store that another process has open.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, Command, Stdio};

use crate::sandbox::Sandbox;

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
fn a_locked_store_names_the_process_that_has_it() {
    let sandbox = Sandbox::new();
    let (mut child, stdin, _stderr) = start_load(&sandbox);
    let pid = child.id();
    for args in [
        &["get", "a.spt", "1"][..],
        &["put", "a.spt", "1", "2"],
        &["count", "a.spt"],
        &["check", "a.spt"],
    ] {
        sandbox.run(args).check(
            3,
            "",
            &format!(
                "splitpoint: error: `a.spt` is locked by process {pid}\n\
                 hint: a store that is being written is closed to others: wait until process \
                 {pid} is done\n"
            ),
        );
    }
    drop(stdin);
    assert!(child.wait().expect("the program ends").success());
    sandbox.run(&["count", "a.spt"]).check(0, "200000\n", "");
}

/// Kills a load at different sizes of the store, from its beginning on. What is found is a prefix
/// of the input, every pair of it, and loading again completes it.
#[test]
fn a_killed_load_leaves_a_prefix_of_its_input() {
    const RECORDS: usize = 300_000;
    let sandbox = Sandbox::new();
    let lines: Vec<String> = (0..RECORDS).map(|i| format!("{i}\tvalue {}", i * 7)).collect();
    sandbox.write("input", (lines.join("\n") + "\n").as_bytes());
    let mut cut_count = 0;
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
        let was_killed = !child.wait().expect("the program ends").success();

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
            cut_count += usize::from(was_killed && count > 0 && count < RECORDS);
        }
        sandbox.run(&["load", "-q", "a.spt", "input", "--format", "tsv"]).check(0, "", "");
        sandbox.run(&["count", "a.spt"]).check(0, format!("{RECORDS}\n"), "");
        assert_eq!(sandbox.run(&["check", "-q", "a.spt"]).exit, 0);
    }
    assert!(cut_count > 0, "no load was killed in the middle of its work");
}
