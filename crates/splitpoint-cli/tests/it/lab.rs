//! `splitpoint lab`.

use crate::sandbox::Sandbox;

fn with_keys() -> Sandbox {
    let sandbox = Sandbox::new();
    let keys = (0..5000).map(|n| format!("a{n:06}\n")).collect::<Vec<_>>().concat();
    sandbox.write("keys", keys.as_bytes());
    sandbox
}

#[test]
fn golden_results_are_met_and_slips_are_named() {
    let sandbox = Sandbox::new();
    let golden = sandbox.run(&["lab", "golden"]);
    assert_eq!((golden.exit, golden.stderr.as_str()), (0, ""));
    let text = golden.text();
    for needle in [
        "Bacik 2014: 12 of 12 are equal\n",
        "  new hash: dupes: 987372\n",
        "  new hash: p99 of buckets in use: 567\n",
        "  Histogram 3: chi-square per degree of freedom: 1.003\n",
        "2.2.16 sizes: 4 of 4 are equal\n",
        "  mult, shift 17, 2^17 buckets: reached: 25 %\n",
        "1991 figures: 11 of 11 are equal\n  figure-1, A: bit 0, internal\n",
        "1991 addresses: 3 of 3 are equal\n",
        "  values of System V's digest: 1519\n",
        "  equation (1) at (256, 8): (12.93 + 4) * 8 = 135.4 < 256\n",
        "  hsearch-rapidhash, probes of a hit, 24474 words in 2^15: 1.84\n",
        "its log: 2644 buffers in 217 buckets\n",
    ] {
        assert!(text.contains(needle), "no `{needle}` in\n{text}");
    }
    assert!(!text.contains("computed"), "{text}");
    let json = sandbox.run(&["lab", "golden", "--json"]).json();
    let rows = json["rows"].as_array().expect("rows");
    assert!(rows.len() > 180 && rows.iter().all(|row| row["is_equal"] == true));
    assert_eq!(json["slips"].as_array().map(Vec::len), Some(15));
}

#[test]
fn list_has_every_function_with_its_other_names() {
    let sandbox = Sandbox::new();
    let text = sandbox.run(&["lab", "list"]).text();
    let (functions, names) = text.split_once("\n\n").expect("two tables");
    assert!(functions.lines().count() > 60 && functions.contains("\nfnv1a-32 "), "{text}");
    assert!(names.contains("\nsdbm                       x65599, sdbm-65599"), "{text}");
    let kafka = sandbox.run(&["lab", "list", "kafka"]).text();
    assert!(
        kafka.starts_with("murmur2-kafka\n") && kafka.contains("  used in      Kafka's"),
        "{kafka}"
    );
    let one = sandbox.run(&["lab", "list", "foldhash-fast"]).text();
    assert!(one.contains("  do not use   in a file: the output may change"), "{one}");
    let json = sandbox.run(&["lab", "list", "--json"]).json();
    assert_eq!(json.as_array().map(Vec::len), Some(functions.lines().count() - 1));
}

#[test]
fn a_function_is_found_by_the_names_that_people_use() {
    let sandbox = with_keys();
    for (name, function) in
        [("FNV1A_32", "fnv1a-32"), ("MurmurHash3", "murmur3-32"), ("x65599", "sdbm")]
    {
        let listed = sandbox.run(&["lab", "list", name]).text();
        assert!(listed.starts_with(&format!("{function}\n  other names  ")), "{listed}");
        let json = sandbox.run(&["lab", "table", "keys", "--hash", name, "--json"]).json();
        assert_eq!(json["reports"][0]["hash"], function);
    }
    let unknown = sandbox.run(&["lab", "list", "fnv2a-32"]);
    unknown.check_error(2, "no hash function is called `fnv2a-32`; the nearest is `fnv1a-32`");
    let ambiguous = sandbox.run(&["lab", "hash", "keys", "--hash", "siphash"]);
    ambiguous.check_error(2, "`siphash` may be `siphash-1-3` or `siphash-2-4`");
    assert!(ambiguous.stderr.contains("hint: splitpoint lab list"), "{}", ambiguous.stderr);
}

#[test]
fn the_league_puts_the_byte_sum_last() {
    let sandbox = with_keys();
    let league = sandbox.run(&["lab", "hash", "keys", "--no-times"]);
    assert_eq!((league.exit, league.stderr.as_str()), (0, ""));
    let text = league.text();
    assert!(text.starts_with("Hash functions on `keys`\n5,000 keys, 34.2 KiB, "), "{text}");
    let verdicts = ["fits", "structured", "slight", "worse"];
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<&str>>())
        .filter(|row| row.len() == 7 && verdicts.contains(&row[1]))
        .collect();
    let worst = ["netbsd-byte-sum", "sysv-hsearch"];
    assert!(rows.last().is_some_and(|row| row[1] == "worse" && worst.contains(&row[0])), "{text}");
    assert!(rows.iter().any(|row| row[..2] == ["siphash-1-3", "fits"]), "{text}");
    // Those that fit come first, by name, whatever chance makes of their costs.
    let fits: Vec<&str> = rows.iter().filter(|row| row[1] == "fits").map(|row| row[0]).collect();
    assert!(fits.len() > 9 && fits.is_sorted(), "{text}");
    let order = rows.iter().map(|row| verdicts.iter().position(|verdict| *verdict == row[1]));
    assert!(order.is_sorted(), "{text}");
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    assert_eq!(sandbox.run(&["lab", "hash", "keys", "--hash", "no-such"]).exit, 2);
    let json = sandbox
        .run(&["lab", "hash", "keys", "--hash", "sdbm", "--hash", "xxh3-64", "--json"])
        .json();
    assert_eq!((&json["schema"], &json["keys"]["key_count"]), (&2.into(), &5000.into()));
    assert_eq!(json["reports"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_table_is_shown_in_depth() {
    let sandbox = with_keys();
    let table = sandbox.run(&["lab", "table", "keys", "--hash", "netbsd-byte-sum"]);
    assert_eq!((table.exit, table.stderr.as_str()), (0, ""));
    let text = table.text();
    for needle in [
        "5,000 keys, 34.2 KiB, ",
        "hash       netbsd-byte-sum (seed 0)\nreduction  low\n",
        "sum-pct",
        "keys looked at, hit",
        "bits of the hash never set: `0x",
        "\nVerdict\nworse: netbsd-byte-sum, low does not fit these keys. Use another.\n",
        "Below p = 2^-20, about one in a million",
        "dupes: keys not the first of a bucket",
    ] {
        assert!(text.contains(needle), "no `{needle}` in\n{text}");
    }
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    // The lowest sum is that of `a000000`, which it has alone; the next is shared.
    assert!(text.contains("\n0x182  a000001, a000010, a000100\n"), "{text}");
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    let json = sandbox.run(&["lab", "table", "keys", "--hash", "xxh3-64", "--json"]).json();
    let report = &json["reports"][0];
    assert_eq!(
        (&report["verdict"]["kind"], &report["bucket_count"]),
        (&"fits".into(), &8192.into())
    );
    let rows = report["rows"].as_array().expect("rows");
    assert_eq!(rows.iter().filter_map(|row| row["keys"].as_u64()).sum::<u64>(), 5000);
}

#[test]
fn a_seed_is_decimal_or_hex() {
    let sandbox = with_keys();
    for command in ["table", "gate"] {
        for (seed, expected) in [("255", 255_u64), ("0xffff888003f5a600", 0xffff_8880_03f5_a600)] {
            let args = ["lab", command, "keys", "--hash", "siphash-1-3", "--seed", seed, "--json"];
            let json = sandbox.run(&args).json();
            assert_eq!(json["reports"][0]["seed"], expected, "{command} {seed}");
        }
    }
    let refused = sandbox.run(&["lab", "hash", "keys", "--hash", "dbm", "--seed", "0xyz"]);
    assert_eq!(refused.exit, 2);
    assert!(refused.stderr.contains("in decimal or in hex with 0x"), "{}", refused.stderr);
}

#[test]
fn keys_come_from_stores_integers_and_standard_input() {
    let sandbox = Sandbox::with_words();
    let count = |args: &[&str], stdin: &[u8]| {
        let args = [&["lab", "table", "--hash", "fnv1a-64", "--json", "-q"], args].concat();
        let json = sandbox.run_with(&args, stdin).json();
        json["keys"]["key_count"].as_u64().expect("a number")
    };
    assert_eq!(count(&["words.spt", "--keys", "store"], b""), 3);
    assert_eq!(count(&["-"], b"a\nb\na\n\n"), 2);
    assert_eq!(count(&["-", "--keep-duplicates"], b"a\nb\na\n"), 3);
    assert_eq!(count(&["-", "--keys", "nul"], b"a\0b\0"), 2);
    assert_eq!(count(&["-", "--keys", "u32-be"], &[0; 8]), 1);
    assert_eq!(count(&["-", "--keys", "hex"], b"6161\n62\n"), 2);
    let noted = sandbox.run_with(&["lab", "hash", "-", "--hash", "dbm"], b"a\r\n\na\r\n");
    assert_eq!(
        noted.stderr,
        "splitpoint: skipped 1 duplicate key\nsplitpoint: skipped 1 blank line\n\
         splitpoint: 2 lines with a carriage return at the end of the key\n"
    );
}

#[test]
fn bad_input_is_refused_with_what_to_do() {
    let sandbox = with_keys();
    sandbox.write("empty", b"");
    sandbox.write("odd", b"12345");
    for (args, exit, error) in [
        (&["empty", "--hash", "dbm"][..], 1, "`empty` holds no keys"),
        (
            &["odd", "--hash", "dbm", "--keys", "u32"],
            2,
            "`odd`: byte 4: expected 4 bytes, found 1 before the end of the file",
        ),
        (
            &["keys", "--hash", "dbm", "--buckets", "1000"],
            2,
            "`low` needs a power of two, not 1000 buckets",
        ),
        (
            &["keys", "--hash", "dbm", "--memory-bytes", "1000000", "--buckets", "1048576"],
            2,
            "the counts take 8388608 bytes, 925000 are allowed",
        ),
        (
            &["keys", "--hash", "dbm", "--reduction", "mask"],
            2,
            "no reduction is called `mask`; there are low, high, shift:N, modulus, prime, range, \
             split and hashbrown",
        ),
    ] {
        let outcome = sandbox.run(&[&["lab", "table"], args].concat());
        outcome.check_error(exit, error);
    }
    assert_eq!(sandbox.run(&["lab", "table", "absent", "--hash", "dbm"]).exit, 3);
    let one = sandbox.run_with(&["lab", "table", "-", "--hash", "dbm"], b"only\n");
    assert!(one.exit == 0 && one.text().contains("\nfits: dbm, low fits"), "{}", one.text());
}
