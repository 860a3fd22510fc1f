//! What the commands of the lab say in words, of traces, of live tables, and of flipped bits.

use crate::sandbox::Sandbox;

fn with_keys() -> Sandbox {
    let sandbox = Sandbox::new();
    let keys = (0..3000).map(|n| format!("a{n:06}\n")).collect::<Vec<_>>().concat();
    sandbox.write("keys", keys.as_bytes());
    sandbox
}

#[test]
fn a_table_says_what_is_to_blame_and_what_to_do() {
    let sandbox = with_keys();
    let text = sandbox.run(&["lab", "table", "keys", "--hash", "netbsd-byte-sum"]).text();
    for needle in [
        "\nBuckets as pages: ",
        "\nslots of a page ",
        "\nlinear probing ",
        "\n- Groups of 16 slots take a tag from the top 7 of 64 bits",
        "\nVerdict\nworse: netbsd-byte-sum, low does not fit",
        "\nWorse by x",
        "\nTo blame:\n",
        "\nWhat to do:\n- No other reduction helps",
    ] {
        assert!(text.contains(needle), "no `{needle}` in\n{text}");
    }
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    let fits = sandbox.run(&["lab", "table", "keys", "--hash", "siphash-1-3"]).text();
    assert!(fits.contains("\n  equal tags of other keys "), "{fits}");
    assert!(fits.contains("\nIndistinguishable from an ideal hash at 4,096"), "{fits}");
}

/// Few keys: chance puts all of six into one of eight buckets once in 8^5, and no verdict is harder.
#[test]
fn keys_too_few_to_show_anything_are_said_to_be() {
    let sandbox = Sandbox::new();
    let run = |key_count: usize| {
        let keys: Vec<String> = (0..key_count).map(|n| format!("key {n}\n")).collect();
        let keys = keys.concat();
        sandbox.write("keys", keys.as_bytes());
        sandbox.write("hashes", "0x0\n".repeat(key_count).as_bytes());
        sandbox.run(&["lab", "table", "keys", "--hashes", "hashes"]).text()
    };
    let one = run(1);
    assert!(one.contains("an ideal hash at 1 bucket (p = 1.000 over 2 tests)"), "{one}");
    assert!(one.contains("\nThe only class of sizes is within the band."), "{one}");
    for (key_count, p) in [(1, "1.000"), (4, "0.031"), (6, "6e-5"), (7, "8e-6")] {
        let text = run(key_count);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(&format!("(p = {p} over 2 tests)")), "{text}");
        assert!(words.contains("cannot show that a function is bad: even if all were in one"));
        assert!(text.contains("\nVerdict\nfits: "), "{text}");
    }
    let eight = run(8);
    assert!(eight.contains("\nVerdict\nworse: "), "{eight}");
    assert!(!eight.contains("cannot show"), "{eight}");
}

/// A row of the tests has no room for the hashes that keys share.
#[test]
fn the_rows_of_the_tests_fit_into_80_columns() {
    let sandbox = with_keys();
    let hashes: Vec<String> = (0..3000_u64).map(|n| format!("{:#x}\n", n << 40)).collect();
    sandbox.write("hashes", hashes.concat().as_bytes());
    let text = sandbox.run(&["lab", "table", "keys", "--hashes", "hashes"]).text();
    assert!(text.contains("\nHashes that keys share, low 32 bits: `0x0`\n"), "{text}");
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
}

#[test]
fn a_trace_of_lookups_is_weighed() {
    let sandbox = with_keys();
    sandbox.write("asked", "a000001\n".repeat(9).as_bytes());
    sandbox.write("absent", b"a000001\nnever\n");
    let run = |file: &str| {
        let args = ["lab", "table", "keys", "--hash", "xxh3-64", "--lookups", file];
        sandbox.run(&args).text()
    };
    assert!(run("asked").contains("trace: 9 of keys that are there, 0 of others\n"));
    assert!(run("absent").contains("trace: 1 of keys that are there, 1 of others\n"));
}

#[test]
fn a_live_table_and_stat_have_one_histogram() {
    let sandbox = Sandbox::with_words();
    let table = |args: &[&str]| {
        let args = [&["lab", "table", "--store", "words.spt", "--hash", "xxh3-64"], args].concat();
        sandbox.run(&args)
    };
    let text = table(&[]).text();
    assert!(text.contains("\nThe table of the store\nrapidhash-v3, "), "{text}");
    let stat = sandbox.run(&["stat", "words.spt", "--json"]).json();
    assert_eq!(table(&["--json"]).json()["live_table"]["chains"], stat["chains"]);
    let vmstat = sandbox.run(&["stat", "words.spt", "--style", "vmstat"]).text();
    assert!(table(&["--style", "vmstat"]).text().starts_with(&vmstat));
}

#[test]
fn avalanche_shows_a_map_and_names_the_worst() {
    let sandbox = with_keys();
    let run = |hash: &str| sandbox.run(&["lab", "avalanche", "keys", "--hash", hash]);
    let sum = run("netbsd-byte-sum");
    assert_eq!((sum.exit, sum.stderr.as_str()), (0, ""));
    let text = sum.text();
    for needle in [
        "\n3,000 keys, ",
        "- the same in all keys: bytes 0 to 2, bits 2 to 7 of byte 3",
        "\nbyte 0.0    @",
        "- The worst entry is bit ",
        "- Hashes of keys next to each other in sorted order differ in ",
    ] {
        assert!(text.contains(needle), "no `{needle}` in\n{text}");
    }
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    let ideal = run("siphash-1-3").text();
    let rows = ideal.lines().filter(|line| line.starts_with("byte ") && line.ends_with('|'));
    assert_eq!(rows.filter(|row| row.contains([':', '+', '#', '@'])).count(), 0, "{ideal}");
    let json = sandbox.run(&["lab", "avalanche", "keys", "--hash", "sdbm", "--json"]).json();
    assert_eq!(json["avalanches"][0]["flip_rates"].as_array().map(Vec::len), Some(56));
    assert_eq!(json["key_positions"][0]["distinct_count"], 1);
}
