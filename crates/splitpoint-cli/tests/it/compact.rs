//! `splitpoint compact`.

use crate::sandbox::{Outcome, Sandbox};

/// Makes a store `a.spt` with `count` records of 200 bytes, of which all but every eighth are
/// deleted, so that the rest is scattered over its segments. Of more, a close would compact the store.
fn with_deleted(count: u32) -> (Sandbox, Vec<String>) {
    let sandbox = Sandbox::new();
    let value = "v".repeat(200);
    let records: Vec<String> = (0..count).map(|i| format!("key {i}\t{value}\n")).collect();
    let records = records.concat();
    let args = ["load", "-q", "a.spt", "--format", "tsv"];
    sandbox.run_with(&args, records.as_bytes()).check(0, "", "");
    let (kept, deleted): (Vec<u32>, Vec<u32>) = (0..count).partition(|i| i % 8 == 0);
    let deleted: Vec<String> = deleted.iter().map(|i| format!("key {i}\n")).collect();
    let deleted = deleted.concat();
    let outcome = sandbox.run_with(&["delete", "-q", "a.spt", "--stdin"], deleted.as_bytes());
    assert_eq!(outcome.exit, 0, "{}", outcome.stderr);
    (sandbox, kept.iter().map(|i| format!("key {i}\n")).collect())
}

fn keys_of(sandbox: &Sandbox) -> Vec<String> {
    let text = sandbox.run(&["list", "a.spt"]).text();
    let mut keys: Vec<String> = text.lines().map(|line| format!("{line}\n")).collect();
    keys.sort();
    keys
}

fn number(outcome: &Outcome, field: &str) -> u64 {
    outcome.json()[field].as_u64().unwrap_or_else(|| panic!("{field}: {}", outcome.text()))
}

#[test]
fn a_compacted_store_has_every_record_and_little_else() {
    let (sandbox, mut kept) = with_deleted(16_000);
    kept.sort();
    let outcome = sandbox.run(&["compact", "-q", "a.spt", "--json"]);
    assert_eq!((outcome.exit, outcome.stderr.as_str()), (0, ""));
    let report = outcome.json();
    assert_eq!((&report["store"], &report["is_done"]), (&"a.spt".into(), &true.into()));
    let metadata = std::fs::metadata(sandbox.path("a.spt")).expect("it is there");
    assert_eq!(number(&outcome, "file_bytes"), metadata.len());
    assert!(number(&outcome, "file_bytes") <= number(&outcome, "old_file_bytes") / 4, "{report}");
    let (live, dead) = (number(&outcome, "live_bytes"), number(&outcome, "dead_bytes"));
    assert!(live > 2000 * 200 && dead < live / 10, "{report}");
    assert!(number(&outcome, "moved_bytes") <= number(&outcome, "read_bytes"), "{report}");
    assert_eq!(keys_of(&sandbox), kept);
    let check = sandbox.run(&["check", "-q", "a.spt"]);
    assert_eq!(check.exit, 0, "{} {}", check.text(), check.stderr);
}

#[test]
fn a_compaction_says_what_it_gained_and_a_second_one_finds_nothing() {
    let (sandbox, _) = with_deleted(16_000);
    let outcome = sandbox.run(&["compact", "a.spt"]);
    let said = outcome.stderr.strip_prefix("splitpoint: compacted `a.spt` in ");
    let said = said.and_then(|said| said.split_once(" on the disk, ")).map(|(_, said)| said);
    let said = said.unwrap_or_else(|| panic!("{}", outcome.stderr));
    assert!(said.contains(" % of the bytes of records are live; moved "), "{said}");
    assert_eq!((outcome.exit, outcome.text().as_str()), (0, ""));
    // Without the reader table, which says nothing of the store.
    let content = || [&sandbox.read("a.spt")[..12288], &sandbox.read("a.spt")[16384..]].concat();
    let before = content();
    check_nothing_to_compact(&sandbox.run(&["compact", "a.spt"]));
    assert!(content() == before, "the store has changed");
}

/// Checks what is said of a store that is compact. A file system may take blocks back that it had
/// given in advance: that is told as a gain.
#[track_caller]
fn check_nothing_to_compact(outcome: &Outcome) {
    let said = &outcome.stderr;
    let has_no_gain = said.starts_with("splitpoint: nothing to gain in `a.spt`: ");
    assert!(has_no_gain || said.ends_with("; moved 0 B\n"), "{said}");
    assert_eq!((outcome.exit, outcome.text().as_str()), (0, ""));
}

#[test]
fn a_small_or_an_empty_store_is_compact() {
    let sandbox = Sandbox::new();
    sandbox.run(&["create", "-q", "a.spt"]).check(0, "", "");
    check_nothing_to_compact(&sandbox.run(&["compact", "a.spt"]));
    sandbox.run(&["compact", "-q", "a.spt"]).check(0, "", "");
}

#[test]
fn a_compaction_tells_its_progress_in_json() {
    let (sandbox, _) = with_deleted(5_000);
    let outcome = sandbox.run(&["compact", "-q", "a.spt", "--progress", "json"]);
    let last = outcome.stderr.lines().last().expect("a line");
    let last: serde_json::Value = serde_json::from_str(last).expect("a line is JSON");
    assert_eq!((&last["phase"], &last["done"]), (&"compact".into(), &true.into()), "{last}");
    assert!(last["bytes"].as_u64() > Some(0), "{last}");
}

#[test]
fn what_cannot_be_compacted_is_refused_with_what_to_do() {
    let sandbox = Sandbox::with_words();
    sandbox.write("notes", b"just a text file\n");
    sandbox
        .run(&["compact", "none.spt"])
        .check_error(3, "cannot open `none.spt`: No such file or directory (os error 2)");
    let text = sandbox.run(&["compact", "notes"]);
    text.check_error(3, "`notes` is not a splitpoint store: found text");
    sandbox.run(&["compact", "db185:words.db"]).check(
        3,
        "",
        "splitpoint: error: `db185:words.db` is not the path of a store\n\
         hint: convert it to a store: splitpoint convert db185:words.db NEW.spt\n",
    );
    assert!(!sandbox.path("words.db").exists(), "nothing was created");
    sandbox.run(&["compact", "mem:"]).check(
        3,
        "",
        "splitpoint: error: `mem:` is not the path of a store\nhint: give the name of a file\n",
    );
}

#[test]
fn stat_shows_what_a_compaction_changed() {
    let (sandbox, _) = with_deleted(16_000);
    let share = |file: &str| {
        let stat = sandbox.run(&["stat", file, "--json"]).json();
        let segments = stat["segments"].as_object().expect("segments");
        let sum: u64 = segments.values().filter_map(serde_json::Value::as_u64).sum();
        assert_eq!(sum, stat["file_bytes"].as_u64().expect("a number"), "{segments:?}");
        assert!(stat["write_amplification"].is_null() && stat["held_up_ms"].is_null());
        stat["live_bytes"].as_f64().expect("a number") / stat["file_bytes"].as_f64().expect("one")
    };
    let before = share("a.spt");
    sandbox.run(&["compact", "-q", "a.spt"]).check(0, "", "");
    assert!(share("a.spt") > before, "{before}");
    let text = sandbox.run(&["stat", "a.spt"]).text();
    assert!(text.contains("\n  live share      ") && text.contains("\n  segment table "), "{text}");
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
}

/// Whenever the signal comes, every record stays, and the next run goes on.
#[test]
fn a_signal_at_any_time_of_a_compaction_loses_nothing() {
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use crate::interrupt::wait_until_it_listens;
    use crate::sandbox::end_of;

    let (sandbox, mut kept) = with_deleted(40_000);
    kept.sort();
    for milliseconds in [0, 3, 10, 30, 100] {
        let mut child = sandbox.program(&["compact", "-q", "a.spt"]);
        let mut child = child.stderr(Stdio::piped()).spawn().expect("the program can be run");
        wait_until_it_listens(&mut child);
        std::thread::sleep(Duration::from_millis(milliseconds));
        let mut kill = Command::new("kill");
        let _ = kill.args(["-s", "INT", &child.id().to_string()]).stderr(Stdio::null()).status();
        let outcome = end_of(child, "compact");
        let said = &outcome.stderr;
        // It may be done when the signal comes, and say so or not.
        let is_right = said.is_empty() || said.starts_with("splitpoint: error: interrupted");
        assert!(
            is_right && matches!(outcome.exit, 0 | 130),
            "after {milliseconds} ms: {} {}",
            outcome.exit,
            outcome.stderr
        );
        assert_eq!(keys_of(&sandbox), kept, "after {milliseconds} ms");
    }
    let check = sandbox.run(&["check", "-q", "a.spt"]);
    assert_eq!(check.exit, 0, "{} {}", check.text(), check.stderr);
}
