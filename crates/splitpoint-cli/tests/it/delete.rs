//! `splitpoint delete`.

use crate::sandbox::Sandbox;

#[test]
fn delete_removes_one_or_several_records() {
    let sandbox = Sandbox::with_words();
    sandbox.run(&["delete", "words.spt", "apple"]).check(0, "", "");
    sandbox.run(&["delete", "words.spt", "--hex", "62616e616e61"]).check(0, "", "");
    sandbox.run(&["list", "words.spt"]).check(0, "cherry\n", "");
}

#[test]
fn delete_names_the_keys_that_are_missing() {
    let sandbox = Sandbox::with_words();
    sandbox.run(&["delete", "words.spt", "durian"]).check(
        1,
        "",
        "splitpoint: error: no key `durian` in `words.spt`\n",
    );
    sandbox.run(&["delete", "words.spt", "apple", "durian", "banana", "elder"]).check(
        1,
        "",
        "splitpoint: error: 2 of 4 keys not found in `words.spt`: `durian`, `elder`\n\
         hint: 2 records removed\n",
    );
    sandbox.run(&["list", "words.spt"]).check(0, "cherry\n", "");
}

#[test]
fn delete_prints_an_object() {
    let sandbox = Sandbox::with_words();
    let deleted = sandbox.run(&["delete", "words.spt", "apple", "durian", "--json"]);
    deleted.check(
        1,
        "{\"deleted\":1,\"missing\":[{\"key\":\"durian\"}],\"store\":\"words.spt\"}\n",
        "splitpoint: error: 1 of 2 keys not found in `words.spt`: `durian`\n\
         hint: 1 record removed\n",
    );
}

#[test]
fn delete_removes_nothing_when_a_key_is_not_hex() {
    let sandbox = Sandbox::with_words();
    let outcome = sandbox.run(&["delete", "words.spt", "--hex", "6170706c65", "apple"]);
    outcome.check_error(2, "the key `apple` is not hex: `p` at column 2 is not a hex digit");
    sandbox.run(&["count", "words.spt"]).check(0, "3\n", "");
}

#[test]
fn delete_and_exists_read_keys_from_standard_input() {
    let sandbox = Sandbox::with_words();
    let all = b"apple\nbanana\n";
    sandbox.run_with(&["exists", "words.spt", "cherry", "--stdin"], all).check(0, "", "");
    let removed = sandbox.run_with(&["delete", "words.spt", "--stdin", "-0"], b"apple\0durian\0");
    removed.check_error(1, "1 of 2 keys not found in `words.spt`: `durian`");
    sandbox.run_with(&["exists", "words.spt", "cherry", "--stdin"], all).check(1, "", "");
    sandbox.run(&["count", "words.spt"]).check(0, "2\n", "");
}
