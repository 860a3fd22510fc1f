//! Old files that were cut short or not closed: every command says what they lack.

use std::collections::BTreeSet;

use crate::old_files::{SAMPLES, fixtures, lines, with_samples};
use crate::sandbox::{Outcome, Sandbox};

/// Where each of [`SAMPLES`] is cut: its name, a page boundary, and what is said.
const CUTS: [(&str, usize, &str); 6] = [
    ("db185-be-512-small", 40 * 512, "the header states 158 pages, found 40"),
    ("gdbm-be-std-word", 60 * 512, "the header states 67584 bytes, found 30720"),
    ("sdbm-ruby-word", 20 * 1024, "the .dir states 64 blocks, found 20"),
    ("ndbm-be-word", 50 * 1024, "the .dir states 111 blocks, found 50"),
    ("krb5db2-v3-le-512-word", 40 * 512, "the header states 72 pages, found 40"),
    ("bdb53-be-4096-big", 10 * 4096, "the header states 23 pages, found 10"),
];

/// A directory with a sample that was cut, what to call it, and what is said of it.
struct Cut {
    sandbox: Sandbox,
    given: &'static str,
    name: &'static str,
    files: &'static [&'static str],
    numbers: &'static str,
}

fn cuts() -> impl Iterator<Item = Cut> {
    CUTS.into_iter().map(|(cut_name, bytes, numbers)| {
        let sample = SAMPLES.into_iter().find(|(_, name, _)| *name == cut_name);
        let (given, name, files) = sample.expect("it is one of the samples");
        let sandbox = with_samples(files);
        let whole = sandbox.read(files[0]);
        sandbox.write(files[0], &whole[..bytes]);
        Cut { sandbox, given, name, files, numbers }
    })
}

impl Cut {
    fn expected(&self) -> BTreeSet<String> {
        lines(&std::fs::read(fixtures().join(format!("{}.expect.txt", self.name))).expect("a list"))
    }

    /// Returns every file of the directory with its content.
    fn directory(&self) -> Vec<(String, Vec<u8>)> {
        directory(&self.sandbox)
    }
}

fn directory(sandbox: &Sandbox) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(sandbox.path(".")).expect("the sandbox");
    let names = entries.map(|entry| entry.expect("a file").file_name());
    let names = names.map(|name| name.into_string().expect("a name"));
    let mut all: Vec<_> = names.map(|name| (name.clone(), sandbox.read(&name))).collect();
    all.sort();
    all
}

/// Checks an exit code of 1, that standard error has both numbers, and where it says to go on.
#[track_caller]
fn assert_told(outcome: &Outcome, what: &str, numbers: &str) {
    assert_eq!(outcome.exit, 1, "{what}: {}", outcome.stderr);
    let (error, hint) = outcome.stderr.split_once("hint: ").expect("a hint");
    assert!(error.contains(numbers), "{what}: {error}");
    assert!(hint.contains("splitpoint salvage "), "{what}: {hint}");
}

#[test]
fn what_is_left_of_a_file_is_written_and_the_rest_is_told() {
    for cut in cuts() {
        let Cut { sandbox, given, name, files, numbers } = &cut;
        let before = cut.directory();
        let check = sandbox.run(&["check", given]);
        assert_eq!(check.exit, 1, "{name}: {}", check.stderr);
        assert!(check.text().contains(&format!("damage: {numbers}\n")), "{name}: {}", check.text());
        assert!(check.stderr.contains("splitpoint salvage "), "{name}: {}", check.stderr);

        let dump = sandbox.run(&["dump", given]);
        assert_told(&dump, &format!("dump {name}"), numbers);
        let (left, whole) = (lines(&dump.stdout), cut.expected());
        assert!(left.is_subset(&whole) && left.len() < whole.len(), "{name}: {}", left.len());

        let count = sandbox.run(&["count", given]);
        assert_told(&count, &format!("count {name}"), numbers);
        assert_eq!(count.text(), format!("{}\n", left.len()), "{name}");
        let list = sandbox.run(&["list", "--hex", given]);
        assert_eq!(lines(&list.stdout).len(), left.len(), "{name}");
        assert_ne!(list.exit, 0, "{name}");
        assert!(list.stderr.contains("splitpoint salvage "), "{name}: {}", list.stderr);
        assert!(directory(sandbox) == before, "{name} was written");

        let convert = sandbox.run(&["convert", "-q", given, "new.spt"]);
        assert_told(&convert, &format!("convert {name}"), numbers);
        assert!(convert.text().contains(&format!("damage: {numbers}\n")), "{name}");
        assert!(lines(&sandbox.run(&["dump", "new.spt"]).stdout) == left, "{name}");
        let salvage = sandbox.run(&["salvage", "-q", given, "-o", "saved.spt"]);
        assert_eq!(salvage.exit, 1, "{name}: {}", salvage.stderr);
        assert!(salvage.text().contains(&format!("damage: {numbers}\n")), "{name}");
        let saved = lines(&sandbox.run(&["dump", "saved.spt"]).stdout);
        assert!(saved.is_superset(&left), "{name}: {} of {}", saved.len(), left.len());
        assert_eq!(files.len(), before.len(), "{name}");
    }
}

/// A lookup that needs no page that is missing gives its value, and a warning where one bucket is
/// missing: one that needs such a page is no miss.
#[test]
fn a_lookup_in_a_part_of_a_file_warns_and_denies_nothing() {
    for cut in cuts() {
        let Cut { sandbox, given, name, numbers, .. } = &cut;
        let left = lines(&sandbox.run(&["dump", given]).stdout);
        let (key, value) = left.first().expect("a record").split_once(' ').expect("two");
        let found = sandbox.run(&["get", given, "--hex", key]);
        assert_eq!((found.exit, found.text()), (0, format!("{value}\n")), "{name}");
        // gdbm's buckets and long values of Berkeley DB are named one by one.
        if !name.starts_with("gdbm") && !name.starts_with("bdb") {
            let warning = format!("splitpoint: warning: `{given}`: {numbers}\n");
            assert_eq!(found.stderr, warning, "{name}");
            assert_eq!(sandbox.run(&["-q", "get", given, "--hex", key]).stderr, "");
        }
        for line in cut.expected().difference(&left).step_by(29) {
            let (key, _) = line.split_once(' ').expect("key and value");
            let lost = sandbox.run(&["get", given, "--hex", key]);
            assert_eq!(lost.exit, 4, "{name}: {key}: {}", lost.stderr);
        }
    }
}

#[test]
fn a_conversion_in_place_replaces_a_part_of_a_file_only_if_told_to() {
    for cut in cuts() {
        let Cut { sandbox, given, name, files, numbers } = &cut;
        let before = cut.directory();
        let left = lines(&sandbox.run(&["dump", given]).stdout);
        let refused = sandbox.run(&["convert", "--in-place", given]);
        assert_told(&refused, name, numbers);
        assert!(refused.stderr.contains("nothing was replaced"), "{name}: {}", refused.stderr);
        assert!(refused.stderr.contains("--accept-loss"), "{name}: {}", refused.stderr);
        assert!(refused.text().contains(&format!("damage: {numbers}\n")), "{name}");
        assert!(cut.directory() == before, "{name}: something has changed");

        let accepted = sandbox.run(&["convert", "-q", "--in-place", "--accept-loss", given]);
        assert_told(&accepted, name, numbers);
        assert!(lines(&sandbox.run(&["dump", given]).stdout) == left, "{name}");
        for (file, bytes) in &before {
            assert!(sandbox.read(&format!("{file}.old")) == *bytes, "{name}: {file}");
        }
        // The store, and for a pair of ndbm the second file, without which its programs find none.
        let new_count = if name.starts_with("ndbm") { 2 } else { 1 };
        assert_eq!(directory(sandbox).len(), files.len() + new_count, "{name}");
    }
    let sandbox = Sandbox::with_words();
    let outcome = sandbox.run(&["convert", "--accept-loss", "words.spt", "new.spt"]);
    assert_eq!(outcome.exit, 2, "{}", outcome.stderr);
}

/// All pages are there, and the count in the header is damaged.
#[test]
fn a_count_that_is_too_high_is_told_as_it_is() {
    let sandbox = with_samples(&["db185-be-512-small.db"]);
    let mut bytes = sandbox.read("db185-be-512-small.db");
    // 700, the highest byte first.
    bytes[56..60].copy_from_slice(&[0, 0, 2, 188]);
    sandbox.write("a.db", &bytes);
    let hint = "hint: restore the file from a backup, or save what can be read: splitpoint salvage \
                a.db -o NEW.spt\n";
    sandbox.run(&["check", "a.db"]).check(
        1,
        "damage: the header states 700 records, found 600\n",
        &format!("splitpoint: error: `a.db` is corrupt: 1 damaged place found\n{hint}"),
    );
    sandbox.run(&["count", "a.db"]).check(
        1,
        "600\n",
        &format!(
            "splitpoint: error: `a.db`: the header states 700 records, found 600; counted \
             only the records found\n{hint}"
        ),
    );
    sandbox
        .run(&["list", "a.db"])
        .check_error(1, "`a.db`: the header states 700 records, listed 600");
    let damages = sandbox.run(&["check", "a.db", "--json"]).json()["damages"].clone();
    let expected = serde_json::json!([{
        "what": "the header states 700 records, found 600",
        "counted": "records", "stated_by": "header", "stated": 700, "found": 600,
    }]);
    assert_eq!(damages, expected);
    let report = sandbox.run(&["convert", "a.db", "new.spt", "--json"]).json();
    let numbers = serde_json::json!([
        { "counted": "records", "stated_by": "header", "stated": 700, "found": 600 },
    ]);
    assert_eq!((&report["discrepancies"], &report["records"]), (&numbers, &600.into()));
    assert_eq!(sandbox.run(&["dump", "a.db"]).exit, 1);
    assert_eq!(sandbox.run(&["convert", "--in-place", "a.db"]).exit, 1);
    assert!(sandbox.read("a.db") == bytes);
}

/// The program that wrote it was killed: 300 records were synced, and 900 more put.
#[test]
fn a_file_that_was_not_closed_is_not_called_sound() {
    let sandbox = with_samples(&["db185-unclean-le-1024.db"]);
    let file = "db185-unclean-le-1024.db";
    for args in
        [&["check", file][..], &["dump", file], &["count", file], &["convert", file, "a.spt"]]
    {
        let outcome = sandbox.run(args);
        assert_eq!(outcome.exit, 1, "{args:?}: {}", outcome.stderr);
        let text = outcome.text() + &outcome.stderr;
        assert!(text.contains("the header states 300 records, found 284"), "{args:?}: {text}");
        assert!(text.contains("the header states 37 pages, found 128, as after a crash"), "{text}");
    }
    let before = directory(&sandbox);
    assert_eq!(sandbox.run(&["convert", "--in-place", file]).exit, 1);
    assert!(directory(&sandbox) == before);
}

#[test]
fn a_file_of_db_185_that_was_cut_is_not_written_to() {
    let cut = cuts().next().expect("the first is of db 1.85");
    let before = cut.directory();
    let url = format!("db185:{}", cut.given);
    for args in [&["put", &url, "key", "value"][..], &["delete", &url, "key"]] {
        let outcome = cut.sandbox.run(args);
        assert_eq!(outcome.exit, 4, "{args:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("number of pages"), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("splitpoint salvage "), "{}", outcome.stderr);
    }
    assert!(cut.directory() == before);
}

/// So little is left that there is nothing to read: that is damage too.
#[test]
fn a_check_of_a_file_without_its_directory_is_exit_code_1() {
    let sandbox = with_samples(&["gdbm-std-512.gdbm"]);
    let whole = sandbox.read("gdbm-std-512.gdbm");
    sandbox.write("a.gdbm", &whole[..512]);
    let check = sandbox.run(&["check", "a.gdbm"]);
    assert_eq!(check.exit, 1, "{}", check.stderr);
    let damage = "end of the file at byte 512: expected 81920, found 512";
    assert!(check.text().starts_with(&format!("damage: {damage}")), "{}", check.text());
    assert!(check.stderr.contains("splitpoint salvage a.gdbm"), "{}", check.stderr);
}

/// Only the `.dir` states how many blocks there were.
#[test]
fn a_pag_alone_is_read_with_a_warning_and_not_called_sound() {
    let sandbox = with_samples(&["sdbm-ruby-word.pag"]);
    let doubt = "there is no .dir, and nothing else states how many blocks there were";
    let check = sandbox.run(&["check", "sdbm-ruby-word"]);
    assert_eq!((check.exit, check.text()), (1, format!("damage: {doubt}\n")), "{}", check.stderr);
    for args in [&["dump", "sdbm-ruby-word"][..], &["convert", "sdbm-ruby-word", "new.spt"]] {
        let outcome = sandbox.run(args);
        assert_eq!(outcome.exit, 0, "{args:?}: {}", outcome.stderr);
        let warning = format!("splitpoint: warning: `sdbm-ruby-word`: {doubt}\n");
        assert!(outcome.stderr.starts_with(&warning), "{args:?}: {}", outcome.stderr);
    }
    sandbox.run(&["count", "new.spt"]).check(0, "900\n", "");
}
