//! `splitpoint lab partial` and `merge`, as their users meet them.

use crate::sandbox::Sandbox;

const OPTIONS: [&str; 8] =
    ["--hash", "xxh3-64", "--hash", "fnv1a-32", "--buckets", "1024", "--sample-hashes", "0"];

fn lines(keys: std::ops::Range<u32>) -> String {
    keys.map(|n| ["key ", &n.to_string(), "\n"].concat()).collect()
}

/// Counts keys, and returns the bytes of the file `name`.
#[track_caller]
fn partial(sandbox: &Sandbox, name: &str, keys: std::ops::Range<u32>) -> Vec<u8> {
    let words = ["lab", "partial", "-", "-q", "-o", name];
    let words: Vec<&str> = words.into_iter().chain(OPTIONS).collect();
    sandbox.run_with(&words, lines(keys).as_bytes()).check(0, "", "");
    sandbox.read(name)
}

#[test]
fn parts_merged_in_any_order_have_the_bytes_and_the_report_of_one_pass() {
    let sandbox = Sandbox::new();
    let whole = partial(&sandbox, "whole.splp", 0..3000);
    for (name, keys) in [("a", 0..100), ("b", 100..2000), ("c", 2000..3000)] {
        partial(&sandbox, name, keys);
    }
    sandbox.run(&["lab", "merge", "c", "a", "-o", "ca"]).check(
        0,
        "",
        "splitpoint: wrote the counts of 1,100 keys to `ca`\n",
    );
    sandbox.run(&["lab", "merge", "-q", "b", "ca", "-o", "all.splp"]).check(0, "", "");
    assert_eq!(sandbox.read("all.splp"), whole);

    sandbox.write("keys", lines(0..3000).as_bytes());
    let reports = |words: &[&str]| {
        let mut json = sandbox.run(words).json();
        let reports = json["reports"].take();
        ["rows", "verdict", "collisions"].map(|field| [0, 1].map(|i| reports[i][field].clone()))
    };
    let table = ["lab", "hash", "keys", "--hash", "xxh3-64", "--hash", "fnv1a-32"];
    let measured = sandbox.run(&[&table[..], &["--buckets", "1024", "--json"]].concat()).json();
    let merged = reports(&["lab", "merge", "a", "b", "c", "--json"]);
    for (number, hash) in ["xxh3-64", "fnv1a-32"].into_iter().enumerate() {
        let report = measured["reports"].as_array().expect("a list");
        let report = report.iter().find(|report| report["hash"] == hash).expect("it is there");
        assert_eq!(merged[0][number], report["rows"]);
        assert_eq!(merged[1][number], report["verdict"]);
    }
    let text = sandbox.run(&["lab", "merge", "a", "b", "c"]);
    assert_eq!((text.exit, text.stderr.as_str()), (0, ""));
    for words in ["3 parts", "3,000 keys", "xxh3-64"] {
        assert!(text.text().contains(words), "no `{words}` in\n{}", text.text());
    }
}

/// The bytes that `test_lab.py` expects of Python's `lab.Partial`, too.
#[test]
fn the_file_is_that_of_python() {
    let sandbox = Sandbox::new();
    let words = ["lab", "partial", "-", "-q", "-o", "part", "--hash", "xxh3-64"];
    let words = [&words[..], &["--buckets", "8", "--sample-hashes", "0"]].concat();
    sandbox.run_with(&words, b"ant\nbee\ncrane\n").check(0, "", "");
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in sandbox.read("part") {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
    assert_eq!(format!("{hash:016x}"), "f7cb7e3103062cd2");
}

/// Nobody sees whether another part has the same key, so a choice would be none.
#[test]
fn each_repetition_of_a_key_counts_and_there_is_no_option_for_it() {
    let sandbox = Sandbox::new();
    let words = ["lab", "partial", "-", "--hash", "djb2", "--buckets", "8", "-o", "part"];
    sandbox.run_with(&words, b"ant\nbee\nant\n").check(
        0,
        "",
        "splitpoint: kept 1 duplicate key\nsplitpoint: wrote the counts of 3 keys to `part`\n",
    );
    for option in [&["--keep-duplicates"][..], &["--threads", "2"]] {
        let refused = sandbox.run_with(&[&words[..], option].concat(), b"ant\n");
        assert_eq!(refused.exit, 2, "{option:?}: {}", refused.stderr);
        assert!(refused.stderr.contains(option[0]), "{}", refused.stderr);
    }
}

#[test]
fn what_cannot_be_counted_or_merged_is_refused_by_name() {
    let sandbox = Sandbox::new();
    partial(&sandbox, "a", 0..100);
    sandbox.write("text", b"This is a text.\n");
    sandbox.write("empty", b"");
    let other = ["lab", "partial", "text", "-q", "-o", "b", "--hash", "xxh3-64", "--buckets", "8"];
    sandbox.run(&other).check(0, "", "");
    sandbox
        .run(&["lab", "merge", "a", "text"])
        .check_error(2, "`text` is not a partial result: it ends early");
    let different = "`a` and `b`: the partial results are of different measurements: the number of \
                     functions differs";
    sandbox.run(&["lab", "merge", "a", "b"]).check_error(2, different);
    let to =
        |output, keys| ["lab", "partial", keys, "-o", output, "--hash", "djb2", "--buckets", "8"];
    sandbox.run(&to("c", "empty")).check_error(1, "`empty` holds no keys");
    sandbox
        .run(&to("text", "text"))
        .check_error(2, "`text` exists and is not a partial result, so it was not replaced");
    sandbox
        .run(&["lab", "partial", "text", "-o", "c", "--hash", "djb2", "--buckets", "9"])
        .check_error(2, "`low` needs a power of two, not 9 buckets");
    assert!(!sandbox.path("c").exists());
    assert_eq!(sandbox.read("text"), b"This is a text.\n");
}
