//! `splitpoint count`.

use crate::sandbox::Sandbox;

#[test]
fn count_prints_the_number_of_records() {
    let sandbox = Sandbox::with_words();
    sandbox.run(&["count", "words.spt"]).check(0, "3\n", "");
    sandbox.run(&["count", "words.spt", "--json"]).check(0, "{\"records\":3}\n", "");
}

#[test]
fn reading_does_not_change_the_file() {
    let sandbox = Sandbox::with_words();
    let before = sandbox.read("words.spt");
    for args in [
        &["count", "words.spt"][..],
        &["get", "words.spt", "apple"],
        &["list", "words.spt"],
        &["dump", "words.spt"],
        &["stat", "words.spt"],
        &["check", "words.spt"],
    ] {
        assert_eq!(sandbox.run(args).exit, 0, "{args:?}");
        assert!(sandbox.read("words.spt") == before, "{args:?} changed the file");
    }
}
