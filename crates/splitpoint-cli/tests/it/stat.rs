//! `splitpoint stat`.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use crate::sandbox::{Sandbox, end_of};

#[test]
fn stat_fits_80_columns_without_color() {
    let sandbox = Sandbox::with_words();
    let outcome = sandbox.run(&["stat", "words.spt"]);
    assert_eq!((outcome.exit, outcome.stderr.as_str()), (0, ""));
    let text = outcome.text();
    assert!(text.starts_with("words.spt\n  records         3\n"), "{text}");
    for needle in [
        "hash function   rapidhash-v3",
        "log             48 B written so far, all durable",
        "sum-pct",
        "ideal",
        "lines looked at, hit",
    ] {
        assert!(text.contains(needle), "no `{needle}` in\n{text}");
    }
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
}

#[test]
fn stat_colors_only_where_it_is_wanted() {
    let sandbox = Sandbox::with_words();
    let run = |name: &str, value: &str| {
        let output = sandbox.program(&["stat", "words.spt"]).env(name, value).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(run("CLICOLOR_FORCE", "1").contains('\x1b'));
    assert!(!run("NO_COLOR", "1").contains('\x1b'));
}

/// The text and the object come from one struct; this checks that its numbers agree with each
/// other.
#[test]
fn stat_prints_one_object_that_adds_up() {
    let sandbox = Sandbox::with_words();
    let stat = sandbox.run(&["stat", "words.spt", "--json"]).json();
    assert_eq!(stat["records"], 3);
    let number = |value: &serde_json::Value| value.as_u64().expect("a number");
    assert_eq!(
        number(&stat["buckets"]),
        (1 << number(&stat["level"])) + number(&stat["split_pointer"])
    );
    let rows = stat["chains"]["rows"].as_array().expect("rows");
    assert_eq!(
        rows.iter().map(|row| number(&row["buckets"])).sum::<u64>(),
        number(&stat["buckets"])
    );
    assert_eq!(rows.iter().map(|row| number(&row["keys"])).sum::<u64>(), 3);
    let segments = stat["segments"].as_object().expect("segments");
    assert_eq!(segments.values().map(number).sum::<u64>(), number(&stat["file_bytes"]));
    assert_eq!(stat["recovery"]["kind"], "clean");
}

/// 200 keys of one hash among 2,000 others: the default function gives the same hash to all keys of
/// 16 bytes that begin with these 8, whatever the seed is.
#[test]
fn stat_warns_of_keys_that_were_chosen_to_collide() {
    let sandbox = Sandbox::new();
    let key = |i: u32| format!("c9ac2e96934bb88b{i:016x}");
    let hostile: String = (0..200).map(|i| key(i) + " 31\n").collect();
    let others = (0..2000).map(|i| format!("{i:032x} 31\n")).collect::<Vec<_>>().concat();
    sandbox
        .run_with(&["load", "-q", "a b.spt", "--format", "hex"], others.as_bytes())
        .check(0, "", "");
    let text = sandbox.run(&["stat", "a b.spt"]).text();
    assert!(!text.contains("warning"), "{text}");
    assert!(sandbox.run(&["stat", "a b.spt", "--json"]).json()["warning"].is_null());

    sandbox
        .run_with(&["load", "-q", "a b.spt", "--format", "hex"], hostile.as_bytes())
        .check(0, "", "");
    let text = sandbox.run(&["stat", "a b.spt"]).text();
    let warning = text.split_once("\nwarning: 1 bucket has more than ").expect("a warning").1;
    assert!(warning.contains(" keys, which is not by chance\n"), "{text}");
    assert!(warning.contains("\n  splitpoint rehash 'a b.spt' --hash siphash-1-3\n"), "{text}");
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    let stat = sandbox.run(&["stat", "a b.spt", "--json"]).json();
    let warning = stat["warning"].as_str().expect("a warning");
    assert!(warning.starts_with("1 bucket has more than "), "{warning}");
    let remedy =
        "Move the store to a keyed function: splitpoint rehash 'a b.spt' --hash siphash-1-3";
    assert!(warning.ends_with(remedy), "{warning}");
    assert_eq!(stat["chains"]["beyond_chance"], 1);

    // The remedy is one.
    sandbox.run(&["rehash", "-q", "a b.spt", "--hash", "siphash-1-3"]).check(0, "", "");
    let text = sandbox.run(&["stat", "a b.spt"]).text();
    assert!(!text.contains("warning") && text.contains("siphash-1-3"), "{text}");
    sandbox.run(&["count", "a b.spt"]).check(0, "2200\n", "");
}

#[test]
fn stat_of_an_empty_store_has_a_histogram_too() {
    let sandbox = Sandbox::new();
    sandbox.run(&["create", "-q", "a.spt"]).check(0, "", "");
    let text = sandbox.run(&["stat", "a.spt"]).text();
    assert!(text.contains("records         0\n"), "{text}");
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
}

#[test]
fn stat_prints_the_lines_of_lever_and_of_vmstat() {
    let sandbox = Sandbox::with_words();
    let lines = |style: &str| sandbox.run(&["stat", "words.spt", "--style", style]).text();
    let lever = lines("lever");
    assert!(lever.contains("hash table contains 3 objects\n"), "{lever}");
    assert!(lever.ends_with("  >15          0             0      100\n"), "{lever}");
    let vmstat = lines("vmstat");
    assert_eq!(vmstat.lines().count(), 3);
    let numbers: Vec<&str> =
        vmstat.lines().last().expect("three lines").split_whitespace().collect();
    assert_eq!((numbers[0], numbers[4]), ("words.spt", "3"));
}

/// Lookups are counted: in the text, in the object, in Lever's lines and while they run.
#[test]
fn stat_shows_what_lookups_cost() {
    let sandbox = Sandbox::with_words();
    let stored = sandbox.run(&["list", "words.spt"]).text();
    let asked: Vec<String> = stored.lines().map(|key| format!("{key}\nnot {key}\n")).collect();
    let asked = asked.concat();
    sandbox.write("asked", asked.as_bytes());
    let text = sandbox.run(&["stat", "words.spt", "--lookups", "asked"]).text();
    let line = text.lines().find(|line| line.contains("  lookups ")).expect("a line of them");
    assert_eq!(
        line.split_whitespace().collect::<Vec<_>>().join(" "),
        "lookups 6, 50.0 % hits; 0.500 records compared, 1.000 lines each"
    );
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");

    let stat = sandbox.run(&["stat", "words.spt", "--lookups", "asked", "--json"]).json();
    let expected =
        serde_json::json!({"lookups": 6, "hits": 3, "records_compared": 3, "index_lines": 6});
    assert_eq!(stat["lookups"], expected);
    assert!(sandbox.run(&["stat", "words.spt", "--json"]).json()["lookups"].is_null());

    let args = ["stat", "words.spt", "--lookups", "-", "--style", "lever"];
    let lever = sandbox.run_with(&args, asked.as_bytes()).text();
    assert!(lever.starts_with("total lookups: 6 (hit rate: 50%)\nhash table size is 1 buckets\n"));
    assert!(lever.contains("\nget() iterations/lookup: 0/1000\n"), "{lever}");
}

#[test]
fn stat_refuses_lookups_it_cannot_make() {
    let sandbox = Sandbox::with_words();
    let outcome = sandbox.run(&["stat", "words.spt", "--lookups", "none"]);
    outcome.check_error(3, "cannot read `none`: No such file or directory (os error 2)");
    let args = ["stat", "words.spt", "--lookups", "words", "--watch", "1", "--json"];
    let outcome = sandbox.run(&args);
    assert!(outcome.exit == 2 && outcome.stderr.contains("--json"), "{}", outcome.stderr);
}

/// Reads lines of a watch while another process changes the store between two looks, and ends it by
/// a signal.
#[test]
fn stat_watches_a_store_until_a_signal() {
    let sandbox = Sandbox::with_words();
    let mut command = sandbox.program(&["stat", "words.spt", "--watch", "1"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let heading = lines.next().unwrap();
    assert!(heading.contains("records") && heading.contains("lines, hit (ideal)"), "{heading}");
    let first = lines.next().unwrap();
    assert!(first.trim_start().starts_with("3 "), "{first}");
    assert!(first.len() <= 90 && heading.len() == first.len(), "{heading}\n{first}");
    let put = ["put", "-q", "words.spt", "another", "value", "--lock-timeout", "0"];
    sandbox.run(&put).check(0, "", "");
    let changed = lines.find(|line| line.trim_start().starts_with("4 "));
    assert!(changed.is_some());
    let id = child.id().to_string();
    // Not Ctrl-C, which is ignored where this test runs in the background of a shell.
    assert!(Command::new("kill").args(["-s", "TERM", &id]).status().unwrap().success());
    assert_eq!(end_of(child, "a watch after a signal").exit, 143);
}
