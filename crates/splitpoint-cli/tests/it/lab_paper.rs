//! `splitpoint lab paper seltzer-yigit`: the figures of the 1991 paper, run again.
//!
//! No test asserts a time. What a run does is counted, and repeats.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::sandbox::{Sandbox, end_of};

/// The command with the list of `splitpoint demo`, whatever the machine has.
fn arguments<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["lab", "paper", "seltzer-yigit", "--quick", "--words", "words"];
    args.extend(more);
    args
}

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("words", include_bytes!("../../data/words.txt"));
    sandbox
}

/// Returns what of each measurement must be the same in every run.
fn counted(report: &Value) -> Vec<Value> {
    let measurements = report["measurements"].as_array().expect("a list");
    let counts = |it: &Value| {
        let mut counts = it["counts"].clone();
        for name in ["read_calls", "write_calls", "device_bytes"] {
            // Of the process: its start and its memory make calls too.
            counts[name] = Value::Null;
        }
        serde_json::json!([it["run"], counts, it["refusal"]])
    };
    measurements.iter().map(counts).collect()
}

#[test]
fn page_counts_repeat_with_the_seed_and_with_1_mib_there_are_none() {
    let sandbox = sandbox();
    let args = arguments(&["--figure", "7", "--runs", "1", "--json"]);
    let first = sandbox.run(&args).json();
    let again = sandbox.run(&args).json();
    assert_eq!(counted(&first), counted(&again));
    let of_hash = |cache_bytes: u64| {
        let measurements = first["measurements"].as_array().expect("a list");
        let is_wanted =
            |it: &&Value| it["run"]["system"] == "hash" && it["run"]["cache_bytes"] == cache_bytes;
        let found = measurements.iter().find(is_wanted).expect("a run of hash");
        ["page_reads", "page_writes", "found_count"].map(|name| found["counts"][name].clone())
    };
    assert_eq!(of_hash(0), [48_626, 51_349, 24_474].map(Value::from));
    assert_eq!(of_hash(1 << 20), [0, 0, 24_474].map(Value::from));
    let claims = first["claims"].as_array().expect("a list");
    let no_io = claims.iter().find(|it| it["name"] == "no I/O with a pool of 1M");
    assert_eq!(no_io.expect("the claim")["verdict"], "held");
    // The data sets are those of the seed.
    let sets = first["data_sets"].as_array().expect("a list");
    assert_eq!((sets.len(), &sets[0]["pair_count"]), (2, &24_474.into()));
    assert_eq!((&sets[1]["pair_count"], &sets[1]["is_synthetic"]), (&600.into(), &true.into()));
}

#[test]
fn the_password_file_is_run_by_every_system_that_is_here() {
    let sandbox = sandbox();
    sandbox.write(
        "passwd",
        b"# none\nroot:x:0:0:root:/root:/bin/sh\nann:*:7:7:Ann,1,2:/u/ann:/bin/csh\n",
    );
    let args =
        arguments(&["--figure", "8b", "--runs", "2", "--passwd", "passwd", "--html", "page"]);
    let outcome = sandbox.run(&args);
    assert_eq!(outcome.exit, 0, "{}", outcome.stderr);
    let text = outcome.text();
    for needle in ["\nFigure 8b: the password file\n", "\nMistakes in the text\n", "algorithm:ndbm"]
    {
        assert!(text.contains(needle), "no {needle} in {text}");
    }
    assert!(!text.contains("Figure 7"), "{text}");
    let page = String::from_utf8(sandbox.read("page")).expect("the page is UTF-8");
    let (claims, figure) = (page.find("id=\"claims\""), page.find("id=\"figure-8b\""));
    assert!(claims.is_some() && claims < figure);
    // A machine without a library says which package has it.
    let json = arguments(&["--figure", "8b", "--runs", "1", "--passwd", "passwd", "--json"]);
    let report = sandbox.run(&json).json();
    for it in report["systems"].as_array().expect("a list") {
        let is_here = it["is_here"].as_bool().expect("yes or no");
        assert!(is_here || it["note"] != "", "{it}");
    }
    for it in report["measurements"].as_array().expect("a list") {
        let found = &it["counts"]["found_count"];
        assert!(*found == 4 || it["refusal"].is_string(), "{it}");
    }
}

#[test]
fn an_interrupted_command_reports_what_it_has() {
    let sandbox = sandbox();
    let args = arguments(&["--figure", "5", "--progress", "json"]);
    let mut child = sandbox
        .program(&args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be run");
    let mut stderr = BufReader::new(child.stderr.take().expect("standard error is piped"));
    let mut line = String::new();
    stderr.read_line(&mut line).expect("a line can be read");
    assert!(line.contains("\"phase\":\"run\""), "{line}");
    let id = child.id().to_string();
    let status = Command::new("kill").args(["-s", "INT", &id]).status();
    assert!(status.expect("kill can be run").success());
    let outcome = end_of(child, "an interrupted command");
    assert_eq!(outcome.exit, 130);
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert!(text.contains("warning: interrupted: "), "{text}");
    assert!(text.contains("Figures 5a, 5b, 5c: bucket sizes"), "{text}");
    let left = std::fs::read_dir(sandbox.path(".")).expect("the sandbox can be read");
    assert_eq!(left.count(), 1, "only the list of words is left");
}

#[test]
fn what_cannot_be_run_is_refused_with_the_remedy() {
    let sandbox = sandbox();
    sandbox.write("short", b"one\ntwo\nThree\n");
    let short = ["lab", "paper", "seltzer-yigit", "--words", "short"];
    sandbox.run(&short).check(
        2,
        "",
        "splitpoint: error: `short` has 2 words of only the letters a to z, and the paper's dictionary has \
         24,474\nhint: give a longer list, one word a line, with --words\n",
    );
    sandbox.write("none", b"\n");
    sandbox.run(&arguments(&["--passwd", "none"])).check_error(2, "`none` holds no accounts");
    let no_dir = sandbox.run(&arguments(&["--dir", "absent"]));
    assert_eq!(no_dir.exit, 5);
    let starts =
        no_dir.stderr.starts_with("splitpoint: error: cannot create a directory in `absent`: ");
    assert!(
        starts && no_dir.stderr.ends_with("hint: give another directory with --dir\n"),
        "{}",
        { no_dir.stderr }
    );
    let order = sandbox.run(&["lab", "paper", "seltzer-yigit", "--worker", "{}"]);
    order.check_error(2, "no order of a run: missing field `run` at line 1 column 2");
    assert_eq!(sandbox.run(&arguments(&["--figure", "9"])).exit, 2);
}
