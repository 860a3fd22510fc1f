//! `splitpoint put`.

use std::path::Path;

use crate::sandbox::Sandbox;

#[test]
fn put_makes_a_missing_store_and_says_so() {
    let sandbox = Sandbox::new();
    sandbox.run(&["put", "a.spt", "France", "Paris"]).check(0, "", "splitpoint: created `a.spt`\n");
    sandbox.run(&["put", "a.spt", "Italy", "Rome"]).check(0, "", "");
    sandbox.run(&["get", "a.spt", "France"]).check(0, "Paris", "");
    sandbox.run(&["count", "a.spt"]).check(0, "2\n", "");
}

#[test]
fn put_replaces_unless_new_is_asked() {
    let sandbox = Sandbox::with_words();
    sandbox.run(&["put", "words.spt", "apple", "red"]).check(0, "", "");
    sandbox.run(&["put", "words.spt", "apple", "green", "--new"]).check(
        1,
        "",
        "splitpoint: error: key `apple` already exists in `words.spt`\n\
         hint: its value is unchanged; omit --new to replace it\n",
    );
    sandbox.run(&["put", "words.spt", "--new", "damson", "blue"]).check(0, "", "");
    sandbox.run(&["get", "words.spt", "apple"]).check(0, "red", "");
    sandbox.run(&["get", "words.spt", "damson"]).check(0, "blue", "");
}

#[test]
fn put_takes_the_value_from_standard_input() {
    let sandbox = Sandbox::with_words();
    let bytes: Vec<u8> = (0..=255).collect();
    sandbox.run_with(&["put", "words.spt", "absent"], &bytes).check(0, "", "");
    sandbox.run_with(&["put", "words.spt", "dash", "-"], b"\n").check(0, "", "");
    sandbox.run_with(&["put", "words.spt", "hex", "--hex"], b"").check(
        2,
        "",
        "splitpoint: error: the key `hex` is not hex: `h` at column 1 is not a hex digit\n\
         hint: with --hex, keys and values are given in hex: `68617368` is `hash`\n",
    );
    sandbox.run_with(&["put", "words.spt", "686578", "--hex"], b"00ff\n").check(0, "", "");
    sandbox.run(&["get", "words.spt", "absent"]).check(0, &bytes, "");
    sandbox.run(&["get", "words.spt", "dash"]).check(0, "\n", "");
    sandbox.run(&["get", "words.spt", "hex"]).check(0, b"\x00\xff", "");
}

#[test]
fn put_takes_empty_keys_and_values_and_keys_that_begin_with_a_dash() {
    let sandbox = Sandbox::with_words();
    sandbox.run(&["put", "words.spt", "", "nothing"]).check(0, "", "");
    sandbox.run(&["put", "words.spt", "void", ""]).check(0, "", "");
    sandbox.run(&["put", "words.spt", "--", "-k", "--v"]).check(0, "", "");
    sandbox.run(&["get", "words.spt", ""]).check(0, "nothing", "");
    sandbox.run(&["get", "words.spt", "void"]).check(0, "", "");
    sandbox.run(&["get", "words.spt", "--", "-k"]).check(0, "--v", "");
}

#[test]
fn put_takes_every_durability() {
    let sandbox = Sandbox::with_words();
    for durability in ["buffered", "async", "sync"] {
        let args = ["put", "words.spt", "key", durability, "--durability", durability];
        sandbox.run(&args).check(0, "", "");
        sandbox.run(&["get", "words.spt", "key"]).check(0, durability, "");
    }
}

/// Arguments are bytes: a name in another encoding is a key like any other.
#[test]
fn put_takes_arguments_that_are_not_utf_8() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let sandbox = Sandbox::with_words();
    let key = OsStr::from_bytes(b"\xe9t\xe9");
    let mut put = sandbox.program(&["put", "words.spt"]);
    assert!(put.arg(key).arg(OsStr::from_bytes(b"\xff")).status().unwrap().success());
    sandbox.run(&["get", "words.spt", "--hex", "e974e9"]).check(0, "ff\n", "");
}

#[test]
fn put_prints_an_object() {
    let sandbox = Sandbox::with_words();
    let stored = "{\"store\":\"words.spt\",\"stored\":true}\n";
    sandbox.run(&["put", "words.spt", "durian", "4", "--json"]).check(0, stored, "");
    let kept = sandbox.run(&["put", "words.spt", "--new", "durian", "5", "--json"]);
    assert_eq!(kept.exit, 1);
    assert_eq!(kept.json()["stored"], false);
}

#[test]
fn put_stores_a_large_value_exactly() {
    let sandbox = Sandbox::new();
    let value: Vec<u8> =
        (0..5_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    sandbox.run_with(&["put", "-q", "a.spt", "big"], &value).check(0, "", "");
    let found = sandbox.run(&["get", "a.spt", "big"]);
    assert_eq!(found.exit, 0, "{}", found.stderr);
    assert!(found.stdout == value, "the value came back different");
}

/// What a power loss leaves: superblocks and log; the live tables are of another boot.
const UNCLOSED: &str = "../splitpoint/tests/golden/v1-unclosed.spt";

#[test]
fn an_unclosed_store_says_how_it_was_recovered_and_does_not_say_it_again() {
    let sandbox = Sandbox::new();
    let unclosed = Path::new(env!("CARGO_MANIFEST_DIR")).join(UNCLOSED);
    std::fs::copy(unclosed, sandbox.path("a.spt")).unwrap();
    let rebuilt = "splitpoint: `a.spt` was not closed: index rebuilt from ";
    let count = sandbox.run(&["count", "a.spt"]);
    assert!(count.stderr.starts_with(rebuilt), "{}", count.stderr);
    assert!(count.stderr.ends_with("; the next write keeps the result\n"), "{}", count.stderr);
    let put = sandbox.run(&["put", "a.spt", "key", "value"]);
    assert!(put.stderr.starts_with(rebuilt), "{}", put.stderr);
    assert_eq!(put.stderr.lines().count(), 1, "{}", put.stderr);
    sandbox.run(&["get", "a.spt", "key"]).check(0, "value", "");
}
