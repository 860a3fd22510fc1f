//! `splitpoint stat --watch` and `splitpoint lab live` of a store in use.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::Value;

use crate::sandbox::{Sandbox, end_of};

/// A watch that prints objects.
struct Watch {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watch {
    fn start(sandbox: &Sandbox) -> Self {
        let mut program = sandbox.program(&["stat", "a.spt", "--watch", "1", "--json"]);
        let mut child =
            program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Self { child, lines }
    }

    /// Returns the first look for which `is_wanted`.
    fn until(&mut self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let looks = self.lines.by_ref().map(|line| {
            serde_json::from_str(&line.expect("it is a line")).expect("it is an object")
        });
        looks.into_iter().find(is_wanted).expect("it does not end")
    }

    /// Ends it by a signal, and returns what it has said.
    fn end(self) -> String {
        signal(&self.child, "TERM");
        let outcome = end_of(self.child, "a watch after a signal");
        assert_eq!(outcome.exit, 143);
        outcome.stderr
    }
}

fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-s", name, &id]).status().expect("it runs").success());
}

/// Makes a store of so many keys.
fn load(sandbox: &Sandbox, name: &str, count: u32) {
    let pairs = (0..count).map(|i| format!("{i}\tvalue\n")).collect::<Vec<_>>().concat();
    let args = ["load", "-q", name, "--format", "tsv"];
    sandbox.run_with(&args, pairs.as_bytes()).check(0, "", "");
}

#[test]
fn a_watch_says_in_a_sentence_what_becomes_of_the_store() {
    let sandbox = Sandbox::new();
    load(&sandbox, "a.spt", 20_000);
    let mut program = sandbox.program(&["load", "-q", "a.spt", "--format", "tsv"]);
    let mut writer = program.stdin(Stdio::piped()).spawn().expect("it starts");
    let mut input = writer.stdin.take().expect("a pipe");
    // Changes, so that a kill leaves it open.
    (0..30_000).for_each(|i| writeln!(input, "new {i}\tvalue").expect("it reads"));
    input.flush().expect("it reads");

    let mut watch = Watch::start(&sandbox);
    let look = watch.until(|look| look["record_count"].as_u64() > Some(20_000));
    assert_eq!((&look["writer"], &look["is_counting"]), (&"writing".into(), &false.into()));
    assert!(look["lookups"].is_null() && look["sampled_bucket_count"].as_u64() <= Some(2049));
    signal(&writer, "KILL");
    writer.wait().expect("it ends");
    drop(input);
    watch.until(|look| look["writer"] == "killed");
    sandbox.run(&["put", "-q", "a.spt", "key", "value"]).check(0, "", "");
    watch.until(|look| look["writer"] == "closed");

    load(&sandbox, "b.spt", 10);
    std::fs::rename(sandbox.path("b.spt"), sandbox.path("a.spt")).expect("it is there");
    watch.until(|look| look["record_count"] == 10);
    let said = watch.end();
    for sentence in [
        "nobody writes `a.spt`: the last who did was killed, and left it open\n",
        "nobody writes `a.spt`: it is closed\n",
        "`a.spt` was replaced: another file has the name now\n",
        "`a.spt` has shrunk from ",
        "nobody counts the lookups: a program does if it opens the store with `Options::instrument",
    ] {
        assert_eq!(said.matches(sentence).count(), 1, "`{sentence}` in\n{said}");
    }
}

#[test]
fn a_watch_waits_for_a_store_that_has_gone() {
    let sandbox = Sandbox::new();
    load(&sandbox, "a.spt", 10);
    let mut watch = Watch::start(&sandbox);
    watch.until(|look| look["record_count"] == 10);
    std::fs::rename(sandbox.path("a.spt"), sandbox.path("b.spt")).expect("it is there");
    load(&sandbox, "c.spt", 20);
    thread::sleep(std::time::Duration::from_millis(1500));
    std::fs::rename(sandbox.path("c.spt"), sandbox.path("a.spt")).expect("it is there");
    watch.until(|look| look["record_count"] == 20);
    assert!(watch.end().contains("was replaced"));
}

/// One process looks keys up and counts that, another one shows what it costs.
#[test]
fn lookups_of_another_process_show_while_it_makes_them() {
    let sandbox = Sandbox::new();
    load(&sandbox, "a.spt", 20_000);
    let mut program = sandbox.program(&["stat", "a.spt", "--lookups", "-"]);
    let mut program = program.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("starts");
    let mut input = program.stdin.take().expect("a pipe");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // Three of four are there.
        let feed = scope.spawn(|| {
            let keys = (0..20_000).map(|i| format!("{i}\n")).collect::<Vec<_>>().concat();
            let keys = keys + &"none\n".repeat(20_000 / 3);
            while !is_over.load(Ordering::Relaxed) {
                input.write_all(keys.as_bytes()).expect("it reads");
            }
            drop(input);
        });
        let mut watch = Watch::start(&sandbox);
        let look = watch.until(|look| look["lookups"]["lookup_count"].as_u64() > Some(100_000));
        let lookups = &look["lookups"];
        let number = |name: &str| lookups[name].as_f64().expect("a number");
        assert!((number("hit_share") - 0.75).abs() < 0.1, "{lookups}");
        assert!((1.0..1.5).contains(&number("lines_per_lookup")), "{lookups}");
        assert!(number("in_vain_per_lookup") < 0.01 && number("per_second") > 0.0, "{lookups}");
        assert_eq!(look["is_counting"], true);
        watch.end();

        let live = sandbox.run(&["lab", "live", "a.spt"]);
        assert_eq!(
            (live.exit, live.stderr.as_str()),
            (0, "splitpoint: nobody writes `a.spt`: it is closed\n")
        );
        let text = live.text();
        for words in ["a.spt in use", "The chains are those of an ideal hash in ", "hit rate"] {
            assert!(text.contains(words), "no `{words}` in\n{text}");
        }
        is_over.store(true, Ordering::Relaxed);
        feed.join().expect("it does not panic");
    });
    assert!(program.wait().expect("it ends").success());
}

#[test]
fn lab_live_of_a_store_says_how_to_count_lookups() {
    let sandbox = Sandbox::new();
    load(&sandbox, "a.spt", 20_000);
    let page = sandbox.run(&["lab", "live", "a.spt", "--html", "-"]).text();
    assert!(page.contains("Options::instrument(true)") && page.contains("instrument=True"));
    let live = sandbox.run(&["lab", "live", "a.spt", "--json"]).json();
    assert_eq!((&live["schema"], &live["record_count"]), (&1.into(), &20_000.into()));
    let rows = live["chains"]["rows"].as_array().expect("rows").iter();
    let buckets: u64 = rows.map(|row| row["buckets"].as_u64().expect("a number")).sum();
    assert_eq!(live["sampled_bucket_count"], buckets);
}

#[test]
fn lab_live_refuses_what_nobody_uses_and_shows_other_formats() {
    let sandbox = Sandbox::new();
    let outcome = sandbox.run(&["lab", "live", "mem:"]);
    assert_eq!(outcome.exit, 3);
    assert!(outcome.stderr.contains("a table in the memory of this command"), "{}", outcome.stderr);
    let outcome = sandbox.run(&["lab", "live", "none:x"]);
    assert!(outcome.exit != 0 && outcome.stderr.contains("none:x"), "{}", outcome.stderr);
    sandbox.run(&["put", "-q", "db185:a.db", "key", "value"]).check(0, "", "");
    let live = sandbox.run(&["lab", "live", "db185:a.db", "--json"]);
    assert_eq!((live.exit, live.json()["record_count"].as_u64()), (0, Some(1)), "{}", live.stderr);
    let outcome = sandbox.run(&["lab", "live", "a.db", "--watch", "1", "--html", "a.html"]);
    assert!(outcome.exit == 2 && outcome.stderr.contains("--watch"), "{}", outcome.stderr);
}

#[test]
fn a_watch_prints_the_lines_of_lever_and_of_vmstat() {
    let sandbox = Sandbox::new();
    load(&sandbox, "a.spt", 100_000);
    for (style, first) in [("lever", "a.spt: "), ("vmstat", "           ")] {
        let mut program = sandbox.program(&["stat", "a.spt", "--watch", "1", "--style", style]);
        let mut child =
            program.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let lines: Vec<String> = lines.map(Result::unwrap).take(3).collect();
        assert!(lines[0].starts_with(first), "{lines:?}");
        let shown = if style == "lever" { "hash table size is " } else { "a.spt" };
        assert!(lines.iter().any(|line| line.starts_with(shown)), "{lines:?}");
        signal(&child, "TERM");
        assert_eq!(end_of(child, "a watch").exit, 143);
    }
}
