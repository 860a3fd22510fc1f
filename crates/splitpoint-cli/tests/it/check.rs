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

/// A flipped bit in the value of a record is found, told with its place, and is exit code 1.
#[test]
fn check_finds_a_flipped_bit_and_does_not_touch_the_file() {
    let sandbox = Sandbox::new();
    sandbox.run(&["put", "-q", "a.spt", "needle", "a value to damage"]).check(0, "", "");
    let mut bytes = sandbox.read("a.spt");
    let at = bytes.windows(17).position(|window| window == b"a value to damage").unwrap();
    bytes[at] ^= 1;
    sandbox.write("a.spt", &bytes);

    let outcome = sandbox.run(&["check", "a.spt"]);
    assert_eq!(outcome.exit, 1, "{}{}", outcome.text(), outcome.stderr);
    assert!(outcome.text().starts_with("damage: "), "{}", outcome.text());
    assert!(outcome.text().contains(" at byte "), "{}", outcome.text());
    assert!(outcome.stderr.starts_with("splitpoint: error: `a.spt` is corrupt: "));
    assert!(outcome.stderr.contains("\nhint: restore the file from a backup, or save what can be read: splitpoint repair a.spt -o "));
    assert!(sandbox.read("a.spt") == bytes, "check changed the file");

    let report = sandbox.run(&["check", "a.spt", "--json"]).json();
    assert_eq!(report["is_clean"], false);
    assert!(report["damage_count"].as_u64() >= Some(1), "{report}");
}
