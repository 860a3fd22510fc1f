//! `splitpoint check`.

use crate::sandbox::Sandbox;

#[test]
fn check_of_a_sound_store_says_what_was_verified() {
    let sandbox = Sandbox::with_words();
    let outcome = sandbox.run(&["check", "words.spt"]);
    assert_eq!((outcome.exit, outcome.stderr.as_str()), (0, ""));
    assert!(
        outcome.text().starts_with("`words.spt` is sound: 3 log records ("),
        "{}",
        outcome.text()
    );
    sandbox.run(&["check", "words.spt", "--quiet"]).check(0, "", "");
    let report = sandbox.run(&["check", "words.spt", "--json"]).json();
    assert_eq!((&report["is_clean"], &report["records"]), (&true.into(), &3.into()));
    assert_eq!(report["damages"].as_array().map(Vec::len), Some(0));
}

/// Flips a bit of the first place where `what` is, `at` bytes behind its beginning.
fn flip(sandbox: &Sandbox, file: &str, what: &[u8], at: usize) -> usize {
    let mut bytes = sandbox.read(file);
    let start = bytes.windows(what.len()).position(|window| window == what);
    let place = start.expect("it is in the file") + at;
    bytes[place] ^= 1;
    sandbox.write(file, &bytes);
    place
}

/// A flipped bit in the value of a record is one damage, told with its place; the slot that points to
/// the record follows from it. The exit code is 1.
#[test]
fn check_finds_a_flipped_bit_and_does_not_touch_the_file() {
    let sandbox = Sandbox::new();
    sandbox.write("records", &b"key A\tvalue\nneedle\ta value to damage\nkey B\tvalue\n".repeat(2));
    sandbox.run(&["load", "-q", "a.spt", "records", "--format", "tsv"]).check(0, "", "");
    let record = flip(&sandbox, "a.spt", b"needlea value to damage", 8) - 8 - 8;
    let bytes = sandbox.read("a.spt");

    // Of each key an older version is there, of which that of `needle` is damaged: no slot is.
    let outcome = sandbox.run(&["check", "a.spt"]);
    assert_eq!(outcome.exit, 1, "{}{}", outcome.text(), outcome.stderr);
    let damage = format!("damage: record checksum at byte {record}: expected 0x");
    assert!(outcome.text().starts_with(&damage), "{}", outcome.text());
    assert_eq!(outcome.text().lines().count(), 1, "{}", outcome.text());
    assert_eq!(
        outcome.stderr,
        "splitpoint: error: `a.spt` is corrupt: 1 damaged place found\n\
         hint: restore the file from a backup, or save what can be read: splitpoint repair a.spt \
         -o NEW.spt\n"
    );
    assert!(sandbox.read("a.spt") == bytes, "check changed the file");

    let live = sandbox.read("a.spt").windows(23).rposition(|at| at == b"needlea value to damage");
    let mut bytes = bytes;
    bytes[live.expect("it was stored twice")] ^= 1;
    sandbox.write("a.spt", &bytes);
    let outcome = sandbox.run(&["check", "a.spt"]);
    let lines: Vec<String> = outcome.text().lines().map(str::to_string).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!(lines[2], "hence: 1 slot points into the damage");
    assert!(outcome.stderr.contains("corrupt: 2 damaged places found\n"), "{}", outcome.stderr);
    let report = sandbox.run(&["check", "a.spt", "--json"]).json();
    assert_eq!((&report["is_clean"], &report["damage_count"]), (&false.into(), &2.into()));
    assert_eq!(report["consequences"], serde_json::json!({"slots": 1, "records": 0}));
}

/// Both name the parts of the check; the dump then says how far itself is.
#[test]
fn check_and_dump_tell_their_progress_in_json() {
    let sandbox = Sandbox::with_words();
    for (command, expected) in
        [("check", &["verify", "index"][..]), ("dump", &["verify", "index", "dump"])]
    {
        let outcome = sandbox.run(&[command, "words.spt", "--progress", "json"]);
        assert_eq!(outcome.exit, 0, "{}", outcome.stderr);
        let lines = outcome.stderr.lines();
        let done: Vec<serde_json::Value> = lines
            .map(|line| serde_json::from_str(line).expect("a line is JSON"))
            .filter(|line: &serde_json::Value| line["done"] == true)
            .collect();
        let phases: Vec<&str> = done.iter().filter_map(|line| line["phase"].as_str()).collect();
        assert_eq!(phases, expected, "{command}");
        for line in &done[..2] {
            assert_eq!(line["bytes"], line["bytes_total"], "{command}: {line}");
        }
        sandbox.run(&[command, "-q", "words.spt", "--progress", "never"]);
        let quiet = sandbox.run(&[command, "-q", "words.spt"]);
        assert_eq!(quiet.stderr, "", "{command}");
    }
}

/// Whether the dump comes to its end or stops at a record of no kind, it says what the check says.
#[test]
fn dump_counts_the_damages_that_check_counts() {
    let (to_end, stopped) = (", the dump may hold wrong bytes", "; 1 record written before");
    for (at, mask, end) in [(0, 1, to_end), (-4, 8, stopped)] {
        let sandbox = Sandbox::with_words();
        let mut bytes = sandbox.read("words.spt");
        let banana = bytes.windows(6).position(|window| window == b"banana").expect("a record");
        bytes[banana.checked_add_signed(at).expect("behind the header")] ^= mask;
        sandbox.write("words.spt", &bytes);
        let check = sandbox.run(&["check", "words.spt"]);
        assert!(check.stderr.contains("corrupt: 1 damaged place found\n"), "{}", check.stderr);
        assert!(check.text().ends_with("hence: 1 slot points into the damage\n"));
        let dump = sandbox.run(&["dump", "words.spt"]);
        assert_eq!(dump.exit, 4, "{}", dump.stderr);
        let expected =
            format!("splitpoint: error: `words.spt` is corrupt: 1 damaged place found{end}");
        assert!(dump.stderr.starts_with(&expected), "{}", dump.stderr);
        assert!(dump.stderr.ends_with("repair words.spt -o NEW.spt\n"), "{}", dump.stderr);
    }
}
