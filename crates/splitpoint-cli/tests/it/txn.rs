//! `splitpoint txn`.

use crate::sandbox::Sandbox;

#[test]
fn txn_makes_all_changes_together() {
    let sandbox = Sandbox::with_words();
    let changes = b"put\tdate\t4\tfour\ndelete\tapple\nexpect\tzebra\ndelete\tzebra\n";
    sandbox.run_with(&["txn", "words.spt"], changes).check(0, "", "");
    sandbox.run(&["get", "words.spt", "date"]).check(0, "4\tfour", "");
    sandbox.run(&["exists", "words.spt", "apple"]).check(1, "", "");
    sandbox.run(&["count", "words.spt"]).check(0, "3\n", "");
    let json = sandbox.run_with(&["txn", "words.spt", "--hex", "--json"], b"put\t61\t62");
    let printed = "{\"delete\":0,\"expect\":0,\"put\":1,\"store\":\"words.spt\"}\n";
    json.check(0, printed, "");
    sandbox.run(&["get", "words.spt", "a"]).check(0, "b", "");
}

#[test]
fn txn_changes_nothing_if_the_store_is_not_as_expected() {
    let sandbox = Sandbox::with_words();
    let changes = b"put\tapple\tnew\nexpect\tapple\tnew\nexpect\tbanana\nexpect\tzebra\n";
    sandbox.run_with(&["txn", "words.spt"], changes).check(
        1,
        "",
        "splitpoint: error: 2 keys not as expected in `words.spt`: `apple`, `banana`\n\
         hint: nothing was changed\n",
    );
    sandbox.run(&["count", "words.spt"]).check(0, "3\n", "");
}

#[test]
fn txn_names_the_line_that_is_malformed_and_changes_nothing() {
    let sandbox = Sandbox::with_words();
    for (line, reason) in [
        ("put\tkey", "line 2 of standard input: no TAB between a key and a value"),
        ("put", "line 2 of standard input: no TAB behind the first word"),
        ("delete\tkey\tvalue", "line 2 of standard input: a delete has no value"),
        ("drop\tkey", "line 2 of standard input: expected put, delete or expect, found `drop`"),
    ] {
        let input = format!("delete\tapple\n{line}\n");
        let outcome = sandbox.run_with(&["txn", "words.spt"], input.as_bytes());
        outcome.check_error(1, reason);
    }
    let input = b"delete\t6170706c65\nput\tzz\t61\n";
    let reason = "line 2 of standard input: the key `zz` is not hex";
    let outcome = sandbox.run_with(&["txn", "words.spt", "--hex"], input);
    assert_eq!(outcome.exit, 1);
    assert!(outcome.stderr.contains(reason), "{}", outcome.stderr);
    sandbox.run(&["count", "words.spt"]).check(0, "3\n", "");
}

#[test]
fn txn_needs_an_existing_store() {
    let sandbox = Sandbox::with_words();
    let outcome = sandbox.run_with(&["txn", "missing.spt"], b"put\ta\tb\n");
    outcome.check_error(3, "cannot open `missing.spt`: No such file or directory (os error 2)");
    let hint = "hint: check the path, or make a store: splitpoint create missing.spt\n";
    assert!(outcome.stderr.ends_with(hint), "{}", outcome.stderr);
    assert!(!sandbox.path("missing.spt").exists());
}
