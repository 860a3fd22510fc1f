//! Standard output that is closed or full.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::sandbox::{Outcome, Sandbox};

fn with_many_words() -> Sandbox {
    let sandbox = Sandbox::new();
    let words: String = (0..50_000).fold(String::new(), |words, i| words + &format!("word {i}\n"));
    sandbox.write("words", words.as_bytes());
    sandbox.run(&["load", "-q", "words.spt", "words"]).check(0, "", "");
    sandbox
}

/// `splitpoint list words.spt | head -1`: more than a pipe holds, and a reader that goes away.
#[test]
fn a_reader_that_goes_away_is_not_an_error() {
    let sandbox = with_many_words();
    for args in
        [&["list", "words.spt"][..], &["dump", "words.spt"], &["list", "words.spt", "--json"]]
    {
        let mut child = sandbox
            .program(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program can be run");
        let mut reader = BufReader::new(child.stdout.take().expect("standard output is piped"));
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line can be read");
        drop(reader);
        let outcome = Outcome::of(&child.wait_with_output().expect("the program ends"));
        outcome.check(0, "", "");
        assert!(!line.is_empty());
    }
}

/// Half a copy is no copy: `splitpoint backup words.spt | ssh host 'cat > copy.spt'` must not seem to
/// have worked if the connection breaks.
#[test]
fn a_reader_that_goes_away_from_a_backup_is_an_error() {
    let sandbox = with_many_words();
    let mut child = sandbox
        .program(&["backup", "words.spt"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be run");
    drop(child.stdout.take());
    Outcome::of(&child.wait_with_output().expect("the program ends")).check(
        5,
        "",
        "splitpoint: error: cannot write all of the copy to standard output: Broken pipe (os error \
         32)\nhint: what the reader got is not a complete store; run the backup again\n",
    );
}

/// Every command that prints, and what else does.
const PRINTING: [&[&str]; 26] = [
    &["--help"],
    &["--version"],
    &["put", "--help"],
    &["lab", "hash", "-h"],
    &["man"],
    &["completions", "bash"],
    &["get", "words.spt", "word 1"],
    &["get", "words.spt", "word 1", "--json"],
    &["count", "words.spt"],
    &["count", "words.spt", "--json"],
    &["list", "words.spt"],
    &["list", "words.spt", "--json"],
    &["dump", "words.spt"],
    &["dump", "words.spt", "--format", "jsonl"],
    &["stat", "words.spt"],
    &["stat", "words.spt", "--json"],
    &["check", "words.spt"],
    &["check", "words.spt", "--json"],
    &["identify", "words.spt"],
    &["identify", "words.spt", "--json"],
    &["backup", "words.spt"],
    &["load", "-q", "words.spt", "few", "--json"],
    &["bench", "-q", "--memory", "--runs", "1", "--words", "few"],
    &["demo"],
    &["lab", "list"],
    &["lab", "hash", "few", "--hash", "fnv1a-32"],
];

#[test]
fn a_full_device_is_exit_code_5() {
    let sandbox = with_many_words();
    sandbox.write("few", b"one\ntwo\n");
    for args in PRINTING {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = sandbox.program(args).stdout(full).output().expect("the program can be run");
        Outcome::of(&output).check(
            5,
            "",
            "splitpoint: error: cannot write to standard output: No space left on device (os \
             error 28)\n\
             hint: free some space; the output ends early, and what was stored is safe\n",
        );
    }
}
