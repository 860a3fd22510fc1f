//! One measurement has one verdict, whichever command makes it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::sandbox::Sandbox;

const FUNCTIONS: [&str; 6] = ["sdbm", "fnv1a-32", "crc32", "netbsd-byte-sum", "djb2", "xxh3-64"];

/// Five sets of keys: counting names, counting numbers, addresses, paths, and chance.
fn key_sets() -> [(&'static str, Vec<u8>, &'static [&'static str]); 5] {
    let lines = |key: &dyn Fn(u64) -> String| (0..4000).map(|n| key(n) + "\n").collect::<String>();
    let mixed = |n: u64| (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (n << 13);
    [
        ("names", lines(&|n| format!("user:{}", 1_000_000 + n)).into_bytes(), &[]),
        ("numbers", lines(&|n| n.to_string()).into_bytes(), &["--as", "u32"]),
        (
            "addresses",
            lines(&|n| (0x7f00_0000_0000 + 64 * n).to_string()).into_bytes(),
            &["--as", "u64"],
        ),
        ("paths", lines(&|n| format!("/usr/lib/{}/{:x}.so", n % 61, n * n)).into_bytes(), &[]),
        ("chance", lines(&|n| format!("{:016x}", mixed(n))).into_bytes(), &["--as", "hex"]),
    ]
}

/// Returns the verdict on each function.
fn verdicts(study: &Value) -> BTreeMap<String, Value> {
    let reports = study["reports"].as_array().expect("reports");
    let verdict = |report: &Value| {
        let name = report["hash"].as_str().expect("a name").to_owned();
        (name, report["verdict"].clone())
    };
    reports.iter().map(verdict).collect()
}

#[test]
fn every_command_gives_the_same_measurement_the_same_verdict() {
    let sandbox = Sandbox::new();
    let mut kinds = BTreeMap::new();
    for (name, bytes, format) in key_sets() {
        sandbox.write(name, &bytes);
        let run = |command: &str, more: &[&str]| {
            let outcome = sandbox.run(&[&["lab", command, name], format, more].concat());
            assert_eq!(outcome.stderr.replace("splitpoint: error: 1 of 1 limit is missed", ""), "");
            outcome
        };
        let all: Vec<&str> = FUNCTIONS.iter().flat_map(|hash| ["--hash", hash]).collect();
        let size = ["--buckets", "4096", "--reduction", "low", "--json"];
        let hash = verdicts(&run("hash", &[&all[..], &size].concat()).json());
        assert_eq!(hash.len(), FUNCTIONS.len());
        let sizes = ["--sizes", "4096", "--reduction", "low", "--json"];
        assert_eq!(verdicts(&run("sweep", &[&all[..], &sizes].concat()).json()), hash, "{name}");
        for function in FUNCTIONS {
            let one = [&["--hash", function][..], &size].concat();
            let expected = [(function.to_owned(), hash[function].clone())].into();
            assert_eq!(verdicts(&run("table", &one).json()), expected, "{name}");
            let gate = [&one[..], &["--max-cost", "1e9"]].concat();
            assert_eq!(verdicts(&run("gate", &gate).json()), expected, "{name}");
            let text = run("table", &one[..6]).text();
            let word = word_of(&hash[function]);
            assert!(
                text.contains(&format!("\nVerdict\n{word}: {function}, low")),
                "{word}\n{text}"
            );
            *kinds.entry(word).or_insert(0) += 1;
        }
        let text = run("hash", &[&all[..], &size[..4], &["--no-times"]].concat()).text();
        for (function, verdict) in &hash {
            let row = text.lines().find(|line| line.split_whitespace().next() == Some(function));
            let found = row.and_then(|row| row.split_whitespace().nth(1));
            assert_eq!(found, Some(word_of(verdict)), "{text}");
        }
    }
    assert!(kinds.contains_key("fits") && kinds.contains_key("worse"), "{kinds:?}");
    assert!(kinds.contains_key("structured"), "{kinds:?}");
}

/// The word of a saved verdict.
fn word_of(verdict: &Value) -> &'static str {
    match (verdict["kind"].as_str(), verdict["cost_ratio"].as_f64()) {
        (Some("fits"), _) => "fits",
        (Some("structured"), _) => "structured",
        (Some("worse"), Some(cost)) if cost < 1.05 => "slight",
        (Some("worse"), Some(_)) => "worse",
        other => panic!("{other:?}"),
    }
}

#[test]
fn functions_of_structured_keys_refuse_text() {
    let sandbox = Sandbox::new();
    sandbox.write("words", b"one\ntwo\n");
    sandbox.write("numbers", b"1\n2\n");
    for command in ["table", "hash", "sweep", "gate", "avalanche", "recommend"] {
        let refused = sandbox.run(&["lab", command, "words", "--hash", "linux-2.2-inode"]);
        refused.check_error(
            2,
            "`linux-2.2-inode` takes u32 superblock address, u32 inode number; the keys are text",
        );
    }
    let narrow = ["lab", "table", "numbers", "--as", "u32", "--hash", "linux-hash64"];
    sandbox
        .run(&narrow)
        .check_error(2, "`linux-hash64` takes u64; the keys are integers of 4 bytes");
    let right = ["lab", "table", "numbers", "--as", "u64", "--hash", "linux-hash64"];
    assert_eq!(sandbox.run(&right).exit, 0);
}

/// Functions that fit come in the order of their time, and say which are as fast as each other.
#[test]
fn the_league_is_timed_and_its_first_words_name_the_fastest() {
    let sandbox = Sandbox::new();
    let keys: Vec<String> = (0..4000).map(|n| format!("user:{}\n", 1_000_000 + n)).collect();
    let keys = keys.concat();
    sandbox.write("keys", keys.as_bytes());
    let functions = ["--hash", "xxh3-64", "--hash", "siphash-2-4", "--hash", "netbsd-byte-sum"];
    let league = sandbox.run(&[&["lab", "hash", "keys"], &functions[..]].concat());
    let text = league.text();
    assert!(text.contains("2 of 3 fit the keys, and 1 does not."), "{text}");
    assert!(
        text.split_whitespace().collect::<Vec<_>>().join(" ").contains("The fastest here"),
        "{text}"
    );
    let head = text.lines().find(|line| line.starts_with("function ")).expect("a league");
    let columns: Vec<&str> = head.split_whitespace().collect();
    assert_eq!(columns[..6], ["function", "verdict", "cost", "reduction", "ns", "place"]);
    assert!(
        text.split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .contains("A verdict other than fits means p < 2^-20"),
        "{text}"
    );
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}
