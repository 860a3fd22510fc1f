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
