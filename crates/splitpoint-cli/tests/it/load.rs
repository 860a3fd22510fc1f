//! `splitpoint load`.

use crate::sandbox::{Outcome, Sandbox};

#[test]
fn load_makes_a_store_and_says_what_it_did() {
    let sandbox = Sandbox::new();
    sandbox.write("words", b"apple\nbanana\ncherry\n");
    sandbox.run(&["load", "a.spt", "words"]).check(
        0,
        "",
        "splitpoint: created `a.spt`\n\
         splitpoint: loaded 3 records in [..] from `words` (lines) into `a.spt`: 3 new\n",
    );
    sandbox.run(&["get", "a.spt", "cherry"]).check(0, "3", "");
}

#[test]
fn load_replaces_values_unless_told_to_keep_them() {
    let sandbox = Sandbox::with_words();
    let input = b"apple\tred\ndamson\tblue\n";
    sandbox.run_with(&["load", "words.spt", "--no-overwrite"], input).check(
        0,
        "",
        "splitpoint: loaded 2 records in [..] from standard input (tsv) into `words.spt`: \
         1 new, 1 kept unchanged\n",
    );
    sandbox.run(&["get", "words.spt", "apple"]).check(0, "1", "");
    sandbox.run_with(&["load", "words.spt", "-"], input).check(
        0,
        "",
        "splitpoint: loaded 2 records in [..] from standard input (tsv) into `words.spt`: \
         0 new, 2 replaced\n",
    );
    sandbox.run(&["get", "words.spt", "apple"]).check(0, "red", "");
}

#[test]
fn load_stores_what_comes_before_an_error_and_tells_its_line() {
    let sandbox = Sandbox::new();
    sandbox.write("bad.tsv", b"a\t1\nb\t2\nc 3\nd\t4\n");
    sandbox.run(&["load", "-q", "a.spt", "bad.tsv", "--format", "tsv"]).check(
        1,
        "",
        "splitpoint: error: `bad.tsv`, line 3: no TAB between a key and a value\n\
         hint: loaded 2 records before the error; correct the input and load it again\n",
    );
    sandbox.run(&["count", "a.spt"]).check(0, "2\n", "");
    sandbox.run_with(&["load", "-q", "a.spt"], b"+1,1:x->y\n+1,1:a=>b\n").check(
        1,
        "",
        "splitpoint: error: standard input, byte 16: expected `->` after the key, found `=`\n\
         hint: loaded 1 record before the error; correct the input and load it again\n",
    );
    sandbox.run(&["count", "a.spt"]).check(0, "3\n", "");
}

/// A stack of no machine's size stands for a limit on threads, which does not hold for root.
#[test]
fn load_without_a_thread_is_an_error_and_makes_no_store() {
    let sandbox = Sandbox::new();
    sandbox.write("words", b"apple\n");
    let mut command = sandbox.program(&["load", "a.spt", "words"]);
    command.env("RUST_MIN_STACK", (1_u64 << 50).to_string());
    Outcome::of(&command.output().expect("the command runs")).check(
        5,
        "",
        "splitpoint: error: loaded 0 records before the error: cannot start a thread: \
         Resource temporarily unavailable (os error 11)\n",
    );
    assert!(!sandbox.path("a.spt").exists());
}

#[test]
fn load_does_not_guess_where_nothing_is_certain() {
    let sandbox = Sandbox::new();
    sandbox.run_with(&["load", "a.spt"], b"a\tb\nc\n").check(
        2,
        "",
        "splitpoint: error: cannot tell the format of standard input: some lines have a TAB and \
         some have none\n\
         hint: choose one with --format: hex, lines, tsv, csv, cdb, bytevalue, print, jsonl, \
         gdbm-ascii, gdbm-binary\n",
    );
    assert!(!sandbox.path("a.spt").exists());
    sandbox.run_with(&["load", "-q", "a.spt", "--format", "lines"], b"a\tb\nc\n").check(0, "", "");
    sandbox.run(&["get", "a.spt", "a\tb"]).check(0, "1", "");
}

#[test]
fn load_names_files_that_are_not_dumps() {
    let sandbox = Sandbox::with_words();
    sandbox.run(&["load", "a.spt", "words.spt"]).check(
        2,
        "",
        "splitpoint: error: `words.spt` is a store, not a dump or a list\n\
         hint: dump it first: splitpoint dump words.spt | splitpoint load FILE\n",
    );
    sandbox.run_with(&["load", "a.spt"], b"\x1f\x8b\x08\0\0").check(
        2,
        "",
        "splitpoint: error: standard input is compressed, not a dump or a list\n\
         hint: decompress it into a pipe: zcat FILE | splitpoint load ...\n",
    );
    sandbox.write("keys.zst", b"\x28\xb5\x2f\xfd\x04\x58\x41\0\0");
    sandbox.run(&["load", "a.spt", "keys.zst"]).check(
        2,
        "",
        "splitpoint: error: `keys.zst` is compressed, not a dump or a list\n\
         hint: decompress it into a pipe: zstdcat keys.zst | splitpoint load ...\n",
    );
    assert!(!sandbox.path("a.spt").exists());
}

#[test]
fn load_of_a_missing_input_makes_no_store() {
    let sandbox = Sandbox::new();
    sandbox
        .run(&["load", "a.spt", "nowhere"])
        .check_error(3, "cannot read `nowhere`: No such file or directory (os error 2)");
    sandbox
        .run(&["load", "a.spt", "."])
        .check_error(3, "cannot read `.`: Is a directory (os error 21)");
    assert!(!sandbox.path("a.spt").exists());
}

#[test]
fn load_of_nothing_loads_nothing() {
    let sandbox = Sandbox::new();
    sandbox.run_with(&["load", "-q", "a.spt"], b"").check(0, "", "");
    sandbox.run(&["count", "a.spt"]).check(0, "0\n", "");
}

#[test]
fn load_reports_in_json() {
    let sandbox = Sandbox::with_words();
    let outcome = sandbox.run_with(&["load", "-q", "words.spt", "--json"], b"apple\t9\nnew\t1\n");
    let report = outcome.json();
    for (field, value) in [("loaded", 2), ("new", 1), ("replaced", 1), ("kept", 0)] {
        assert_eq!(report[field], value, "{report}");
    }
    assert_eq!(report["format"], "tsv");
}

#[test]
fn load_says_that_carriage_returns_are_kept() {
    let sandbox = Sandbox::new();
    let outcome = sandbox.run_with(&["load", "a.spt"], b"apple\r\nbanana\r\n");
    assert!(outcome.stderr.contains("the CR is kept"), "{}", outcome.stderr);
    sandbox.run(&["get", "a.spt", "apple\r"]).check(0, "1", "");
}

#[test]
fn load_takes_many_records_and_the_last_of_equal_keys() {
    let sandbox = Sandbox::new();
    let input: String =
        (0..60_000).fold(String::new(), |input, i| input + &format!("{}\t{i}\n", i % 50_000));
    sandbox.run_with(&["load", "a.spt", "--durability", "sync"], input.as_bytes()).check(
        0,
        "",
        "splitpoint: created `a.spt`\n\
         splitpoint: loaded 60,000 records in [..] from standard input (tsv) into `a.spt`: \
         50,000 new, 10,000 replaced\n",
    );
    sandbox.run(&["get", "a.spt", "9999"]).check(0, "59999", "");
    sandbox.run(&["get", "a.spt", "10000"]).check(0, "10000", "");
}

#[test]
fn load_tells_its_progress_in_json() {
    let sandbox = Sandbox::new();
    sandbox.write("words", b"apple\nbanana\n");
    let outcome = sandbox.run(&["load", "-q", "a.spt", "words", "--progress", "json"]);
    // More lines come before it if the load takes longer than a second.
    let last = outcome.stderr.lines().last().expect("there is a line");
    let last: serde_json::Value = serde_json::from_str(last).expect("a line is JSON");
    assert_eq!((last["records"].as_u64(), last["bytes"].as_u64()), (Some(2), Some(13)));
    assert_eq!((last["bytes_total"].as_u64(), last["done"].as_bool()), (Some(13), Some(true)));
}

#[test]
fn load_takes_two_columns_of_a_table() {
    let sandbox = Sandbox::new();
    let table =
        b"\xef\xbb\xbfid,name,note\r\n1,\"Smith, J\",\"two\nlines\"\r\n2,\"\"\"X\"\"\",\r\n";
    sandbox.write("people.csv", table);
    let load = |args: &[&str]| sandbox.run(&[&["load", "-q"], args].concat());
    load(&["a.spt", "people.csv", "--header", "--column", "name,note"]).check(0, "", "");
    sandbox.run(&["get", "a.spt", "Smith, J"]).check(0, "two\nlines", "");
    sandbox.run(&["get", "a.spt", "\"X\""]).check(0, "", "");
    sandbox.run(&["count", "a.spt"]).check(0, "2\n", "");
    // Columns 1 and 2, and the first row is a record.
    load(&["b.spt", "people.csv", "-f", "csv"]).check(0, "", "");
    sandbox.run(&["get", "b.spt", "id"]).check(0, "name", "");
    sandbox.run(&["get", "b.spt", "1"]).check(0, "Smith, J", "");
    // TABs, without quotes.
    sandbox.write("people.tsv", b"id\tname\tborn\n1\t\"Jo\t1901\n");
    load(&["c.spt", "people.tsv", "--header", "--column", "born,name"]).check(0, "", "");
    sandbox.run(&["get", "c.spt", "1901"]).check(0, "\"Jo", "");
}

#[test]
fn a_table_is_wrong_in_the_line_that_is_named() {
    let sandbox = Sandbox::new();
    for (table, line, count) in [
        (&b"a,1\nb,\"2\nc,3\nd,4\n"[..], 2, "1\n"),
        (b"a,1\r\nb,2\r\n\r\nc,\"3", 4, "2\n"),
        (b"a,1\r\nb,2\r\nc\r\n", 3, "2\n"),
        (b"a,\"1\n\n\"\nb\n", 4, "1\n"),
    ] {
        sandbox.write("a.csv", table);
        let outcome = sandbox.run(&["load", "-q", "a.spt", "a.csv", "-f", "csv"]);
        let place = format!("`a.csv`, line {line}: ");
        assert!(outcome.stderr.contains(&place), "{line}: {}", outcome.stderr);
        assert_eq!(outcome.exit, 1);
        sandbox.run(&["count", "a.spt"]).check(0, count, "");
        std::fs::remove_file(sandbox.path("a.spt")).unwrap();
    }
    // The last row may lack its newline, also behind a quote.
    sandbox.write("a.csv", b"a,1\nb,\"2\"");
    sandbox.run(&["load", "-q", "a.spt", "a.csv", "-f", "csv"]).check(0, "", "");
    sandbox.run(&["get", "a.spt", "b"]).check(0, "2", "");
}

#[test]
fn a_table_that_cannot_be_read_says_why_and_leaves_no_store() {
    let sandbox = Sandbox::new();
    sandbox.write("a.csv", b"id,name\n1,one\n2\n");
    for (args, exit, message) in [
        (&["a.csv"][..], 2, "`a.csv` may be CSV, or a list of keys"),
        (&["a.csv", "--header", "--column", "id,born"], 1, "line 1: there is no column `born`"),
        (&["a.csv", "--column", "id,name"], 2, "there is no column `id` without a header"),
        (&["a.csv", "--column", "0,1"], 2, "there is no column `0` without a header"),
        (&["a.csv", "--column", "1"], 2, "--column takes two columns, KEY,VALUE"),
        (&["a.csv", "--column", "1,3"], 1, "line 1: there is no column `3` in the first row, of 2"),
        (&["a.csv", "-f", "lines", "--header"], 2, "--column and --header are for csv and tsv"),
    ] {
        let outcome = sandbox.run(&[&["load", "new.spt"], args].concat());
        assert_eq!(outcome.exit, exit, "{args:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(message), "{args:?}: {}", outcome.stderr);
        assert!(!sandbox.path("new.spt").exists(), "{args:?}");
    }
    let outcome = sandbox.run(&["load", "-q", "new.spt", "a.csv", "--header"]);
    assert_eq!(outcome.exit, 1);
    let reason = "line 3: a row of 1 column, where the first row has 2";
    assert!(outcome.stderr.contains(reason), "{}", outcome.stderr);
    sandbox.run(&["count", "new.spt"]).check(0, "1\n", "");
}

#[test]
fn a_load_that_fails_before_its_first_record_leaves_no_store() {
    let sandbox = Sandbox::new();
    let outcome = sandbox.run_with(&["load", "new.spt", "-f", "tsv"], b"no tab\n");
    outcome.check(
        1,
        "",
        "splitpoint: error: standard input, line 1: no TAB between a key and a value\n\
         hint: loaded 0 records before the error; correct the input and load it again\n",
    );
    assert_eq!(sandbox.run_with(&["load", "-q", "db185:new.db", "-f", "tsv"], b"no tab\n").exit, 1);
    assert!(!sandbox.path("new.spt").exists() && !sandbox.path("new.db").exists());
    // An empty input is no failure.
    sandbox.run_with(&["load", "-q", "new.spt"], b"").check(0, "", "");
    sandbox.run(&["count", "new.spt"]).check(0, "0\n", "");
}

#[test]
fn load_says_that_it_keeps_a_byte_order_mark() {
    let sandbox = Sandbox::new();
    let outcome = sandbox.run_with(&["load", "a.spt"], b"\xef\xbb\xbfa\tb\n");
    assert!(outcome.stderr.contains("begins with a byte order mark"), "{}", outcome.stderr);
    sandbox.run(&["get", "a.spt", "\u{feff}a"]).check(0, "b", "");
}
