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

/// What was stored survives a process that is killed in the middle of its work.
#[test]
fn a_killed_load_leaves_a_store_that_opens() {
    let sandbox = Sandbox::new();
    let (mut child, stdin, _stderr) = start_load(&sandbox);
    signal(&child, "KILL");
    assert!(!child.wait().expect("the program ends").success());
    drop(stdin);
    let count = sandbox.run(&["count", "a.spt"]);
    assert_eq!(count.exit, 0, "{}", count.stderr);
    assert!(count.text().trim().parse::<u64>().unwrap() > 100_000, "{}", count.text());
    sandbox.run(&["put", "a.spt", "more", "records"]).check(0, "", "");
    assert_eq!(sandbox.run(&["check", "-q", "a.spt"]).exit, 0);
}
