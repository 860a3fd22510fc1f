//! `splitpoint demo`.

use std::path::Path;

use crate::sandbox::{Outcome, Sandbox};

/// Runs the demo, then everything that it says to try next, as a user would paste it.
#[test]
fn demo_claims_only_what_holds() {
    let sandbox = Sandbox::new();
    let outcome = sandbox.run(&["demo"]);
    assert_eq!((outcome.exit, outcome.stderr.as_str()), (0, ""), "{}", outcome.text());
    let text = outcome.text();
    for needle in [
        "51,294 English words",
        "get zebra         51223\n",
        "get splitpoint    not found\n",
        "40,402 left",
        "no damage",
    ] {
        assert!(text.contains(needle), "no `{needle}` in\n{text}");
    }

    let (_, commands) = text.split_once("Try next\n").expect("the demo says what to try");
    let commands: Vec<&str> = commands.lines().map(str::trim).collect();
    assert!(commands.len() >= 5, "{commands:?}");
    for command in &commands {
        let mut shell = sandbox.command(Path::new("/bin/sh"), &["-ec", command]);
        let tried = Outcome::of(&shell.output().expect("the shell can be run"));
        assert_eq!((tried.exit, tried.stderr.as_str()), (0, ""), "{command}");
        assert!(!tried.stdout.is_empty() || command.contains(" put "), "{command} says nothing");
    }

    let store = text.split("The store is yours: ").nth(1).and_then(|rest| rest.split(' ').next());
    let store = store.expect("the demo says where the store is");
    // The 40,402 words that are left, and the one that was put just now.
    sandbox.run(&["count", store]).check(0, "40403\n", "");
    assert_eq!(sandbox.run(&["check", "-q", store]).exit, 0);
}

#[test]
fn demo_puts_its_store_where_it_is_told_and_replaces_nothing() {
    let sandbox = Sandbox::new();
    let outcome = sandbox.run(&["demo", "--file", "demo.spt"]);
    assert_eq!(outcome.exit, 0);
    let file = std::fs::metadata(sandbox.path("demo.spt")).expect("the demo leaves its store");
    let said = format!("demo.spt ({:.1} MiB)", file.len() as f64 / 1_048_576.0);
    assert!(outcome.text().contains(&said), "no `{said}` in\n{}", outcome.text());
    sandbox.run(&["count", "demo.spt"]).check(0, "40402\n", "");
    sandbox.run(&["demo", "--file", "demo.spt"]).check_error(3, "`demo.spt` already exists");
}

#[test]
fn demo_fits_80_columns_but_for_the_commands() {
    let sandbox = Sandbox::new();
    let text = sandbox.run(&["demo", "--file", "demo.spt"]).text();
    let (report, _) = text.split_once("Try next\n").expect("the demo says what to try");
    assert!(report.lines().all(|line| line.len() <= 80), "{report}");
}

/// The first command of the README is `cargo run --release -- demo`: of two programs, cargo asks which one.
#[test]
fn cargo_run_starts_the_command() {
    let mut metadata = std::process::Command::new(env!("CARGO"));
    metadata.args(["metadata", "--no-deps", "--offline", "--locked", "--format-version", "1"]);
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let output = metadata.current_dir(root).output().expect("it starts");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let list = |value: &serde_json::Value| value.as_array().expect("it is a list").clone();
    let defaults = list(&metadata["workspace_default_members"]);
    let packages = list(&metadata["packages"]);
    let programs: Vec<String> = packages
        .iter()
        .filter(|package| defaults.contains(&package["id"]))
        .flat_map(|package| list(&package["targets"]))
        .filter(|target| list(&target["kind"]).contains(&"bin".into()))
        .map(|target| target["name"].as_str().expect("it is named").to_owned())
        .collect();
    assert_eq!(programs, ["splitpoint"]);
}
