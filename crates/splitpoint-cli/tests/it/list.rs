//! `splitpoint list`.

use std::collections::BTreeMap;

use crate::sandbox::{AWKWARD, Sandbox, hex};

#[test]
fn list_prints_one_key_a_line() {
    let sandbox = Sandbox::with_words();
    let outcome = sandbox.run(&["list", "words.spt"]);
    assert_eq!(sorted_lines(&outcome.text()), ["apple", "banana", "cherry"]);
    let outcome = sandbox.run(&["list", "words.spt", "--values"]);
    assert_eq!(sorted_lines(&outcome.text()), ["apple\t1", "banana\t2", "cherry\t3"]);
}

fn sorted_lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn list_0_is_exact_for_any_keys() {
    let sandbox = Sandbox::new();
    for key in ["a\nb", "", "c\td"] {
        sandbox.run(&["put", "-q", "a.spt", key, "v\n"]).check(0, "", "");
    }
    let mut keys: Vec<Vec<u8>> = sandbox
        .run(&["list", "a.spt", "-0"])
        .stdout
        .split_inclusive(|byte| *byte == 0)
        .map(<[u8]>::to_vec)
        .collect();
    keys.sort_unstable();
    assert_eq!(keys, [&b"\0"[..], b"a\nb\0", b"c\td\0"]);

    let listed = sandbox.run(&["list", "a.spt", "--null", "--values"]).stdout;
    assert_eq!(listed.split(|byte| *byte == 0).count(), 6 + 1);
}

#[test]
fn list_in_hex_and_json_carries_any_bytes() {
    let sandbox = Sandbox::with_awkward();
    let expected: BTreeMap<String, String> =
        AWKWARD.iter().map(|(key, value)| (hex(key), hex(value))).collect();
    let or_dash = |hex: &String| if hex.is_empty() { "-".to_string() } else { hex.clone() };
    let expected_lines: BTreeMap<String, String> =
        expected.iter().map(|(key, value)| (or_dash(key), or_dash(value))).collect();

    let listed = sandbox.run(&["list", "awkward.spt", "--hex", "--values"]).text();
    let found: BTreeMap<String, String> = listed
        .lines()
        .map(|line| line.split_once('\t').expect("key, TAB, value"))
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect();
    assert_eq!(found, expected_lines);

    let listed = sandbox.run(&["list", "awkward.spt", "--values", "--json", "--hex"]).text();
    let found: BTreeMap<String, String> = listed
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a line is JSON"))
        .map(|object| (field(&object, "key_hex"), field(&object, "value_hex")))
        .collect();
    assert_eq!(found, expected);

    let keys_alone = sandbox.run(&["list", "awkward.spt", "--json"]).text();
    assert!(keys_alone.lines().any(|line| line == r#"{"key":"plain"}"#), "{keys_alone}");
    assert!(keys_alone.lines().any(|line| line.starts_with(r#"{"key_base64":"#)), "{keys_alone}");
}

fn field(object: &serde_json::Value, name: &str) -> String {
    object[name].as_str().expect("the field is a string").to_string()
}

#[test]
fn list_takes_one_way_to_separate() {
    let sandbox = Sandbox::with_words();
    assert_eq!(sandbox.run(&["list", "words.spt", "-0", "--json"]).exit, 2);
}
