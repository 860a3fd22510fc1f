//! `splitpoint dump`.

use std::collections::BTreeSet;

use crate::sandbox::{Sandbox, hex};

/// A dump of `awkward.spt` loads into a store that is dumped with the same records.
#[test]
fn dump_then_load_gives_back_any_bytes_in_every_binary_safe_format() {
    let sandbox = Sandbox::with_awkward();
    let records = |file: &str| -> BTreeSet<String> {
        sandbox.run(&["dump", file]).text().lines().map(str::to_string).collect()
    };
    let original = records("awkward.spt");
    assert_eq!(original.len(), crate::sandbox::AWKWARD.len());
    for format in ["hex", "cdb", "bytevalue", "print", "jsonl"] {
        let dump = sandbox.run(&["dump", "awkward.spt", "--format", format]);
        assert_eq!((dump.exit, dump.stderr.as_str()), (0, ""), "{format}");
        for (file, given) in [("recognized", None), ("given", Some(format))] {
            let file = format!("{format}-{file}.spt");
            let mut args = vec!["load", "-q", &file];
            args.extend(given.into_iter().flat_map(|format| ["--format", format]));
            sandbox.run_with(&args, &dump.stdout).check(0, "", "");
            assert_eq!(records(&file), original, "{format}");
        }
    }
}

#[test]
fn dump_writes_hex_unless_told_otherwise() {
    let sandbox = Sandbox::with_words();
    let text = sandbox.run(&["dump", "words.spt"]).text();
    assert!(text.lines().any(|line| line == format!("{} 31", hex(b"apple"))), "{text}");
}

#[test]
fn dump_in_tsv_stops_at_what_it_cannot_carry() {
    let sandbox = Sandbox::new();
    sandbox.run(&["put", "-q", "a.spt", "key\twith tab", "v"]).check(0, "", "");
    sandbox.run(&["dump", "a.spt", "--format", "tsv"]).check(
        1,
        "",
        "splitpoint: error: tsv cannot hold the record of key `key\\x09with tab`: its key holds \
         a TAB; stopped after 0 records\n\
         hint: jsonl can hold any bytes: splitpoint dump a.spt --format jsonl\n",
    );
}

/// A flipped bit in a value: the dump still has what can be read, and says that it is wrong.
#[test]
fn dump_of_a_damaged_store_is_exit_code_4() {
    let sandbox = Sandbox::new();
    sandbox.run(&["put", "-q", "a.spt", "needle", "a value to damage"]).check(0, "", "");
    let mut bytes = sandbox.read("a.spt");
    let at = bytes.windows(17).position(|window| window == b"a value to damage");
    bytes[at.expect("the value is in the file")] ^= 1;
    sandbox.write("a.spt", &bytes);
    let outcome = sandbox.run(&["dump", "a.spt"]);
    assert_eq!(outcome.exit, 4, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("corrupt"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("\nhint: "), "{}", outcome.stderr);
}

#[test]
fn dump_for_gdbm_warns_of_what_gdbm_load_refuses() {
    let sandbox = Sandbox::new();
    sandbox.run(&["put", "-q", "a.spt", "key", ""]).check(0, "", "");
    let outcome = sandbox.run(&["dump", "a.spt", "--format", "gdbm-ascii"]);
    assert_eq!(
        outcome.stderr,
        "splitpoint: warning: 1 record with an empty key or value: `gdbm_load` of gdbm 1.23 refuses \
         this dump\n"
    );
    assert_eq!(sandbox.run(&["dump", "a.spt"]).stderr, "");
}

#[test]
fn dump_of_an_empty_store_loads() {
    let sandbox = Sandbox::new();
    sandbox.run(&["create", "-q", "empty.spt"]).check(0, "", "");
    for format in ["hex", "tsv", "cdb", "bytevalue", "print", "jsonl"] {
        let dump = sandbox.run(&["dump", "empty.spt", "--format", format]);
        assert_eq!(dump.exit, 0, "{format}");
        let file = format!("{format}.spt");
        sandbox.run_with(&["load", "-q", &file], &dump.stdout).check(0, "", "");
        sandbox.run(&["count", &file]).check(0, "0\n", "");
    }
}

#[test]
fn dump_does_not_write_the_format_that_only_load_reads() {
    let sandbox = Sandbox::with_words();
    assert_eq!(sandbox.run(&["dump", "words.spt", "--format", "lines"]).exit, 2);
}

#[test]
fn dump_tells_its_progress_in_json() {
    let sandbox = Sandbox::with_words();
    let outcome = sandbox.run(&["dump", "words.spt", "--progress", "json"]);
    let last = outcome.stderr.lines().last().expect("a line of progress");
    let last: serde_json::Value = serde_json::from_str(last).expect("a line is JSON");
    assert_eq!(last["done"], true);
    assert_eq!((last["phase"].as_str(), last["records"].as_u64()), (Some("dump"), Some(3)));
}
