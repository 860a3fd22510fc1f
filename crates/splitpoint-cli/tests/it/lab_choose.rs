//! `splitpoint lab recommend`, `compare`, `gate` and `slots`, as their users meet them.

use crate::sandbox::Sandbox;

/// A sandbox with 2000 keys in `keys`.
fn with_keys() -> Sandbox {
    let sandbox = Sandbox::new();
    let keys = (0..2000).map(|n| format!("a{n:06}\n")).collect::<Vec<_>>().concat();
    sandbox.write("keys", keys.as_bytes());
    sandbox
}

#[track_caller]
fn check_text(text: &str, needles: &[&str]) {
    for needle in needles {
        assert!(text.contains(needle), "no `{needle}` in\n{text}");
    }
    let widest = text.lines().max_by_key(|line| line.chars().count()).unwrap_or_default();
    assert!(widest.chars().count() <= 80, "too wide: {widest}\n{text}");
    assert!(!text.contains("NaN") && !text.contains(" inf"), "{text}");
}

#[test]
fn slots_shows_the_nodes_the_tags_and_what_to_do() {
    let sandbox = Sandbox::new();
    let key =
        |n: u32| if n.is_multiple_of(4) { format!("{{hot}}{n}\n") } else { format!("k{n}\n") };
    let keys: String = (0..4000).map(key).collect();
    sandbox.write("keys", keys.as_bytes());
    let slots = sandbox.run(&["lab", "slots", "keys"]);
    assert_eq!((slots.exit, slots.stderr.as_str()), (0, ""));
    check_text(
        &slots.text(),
        &[
            "\n4,000 keys, ",
            "1,000 keys with a tag; 3,001 different tags",
            "\n   0  0-5460 ",
            "\n   1  5461-10922 ",
            "\n   2  10923-16383 ",
            "\n{hot}  1,000  25.0 %\n",
            "- One tag, {hot}, holds 25.0 % of the keys, which no cluster can divide:",
        ],
    );
    let json = sandbox.run(&["lab", "slots", "keys", "--nodes", "5", "--json"]).json();
    let nodes = json["slots"]["nodes"].as_array().expect("nodes");
    let keys = nodes.iter().filter_map(|node| node["key_count"].as_u64());
    assert_eq!((nodes.len(), keys.sum::<u64>()), (5, 4000));
    assert_eq!(json["slots"]["heaviest_tags"][0], serde_json::json!(["hot", 1000]));
}

#[test]
fn slots_are_those_that_a_cluster_names() {
    let sandbox = Sandbox::new();
    for (key, slot) in [("foo", 12_182), ("bar", 5061), ("{user1000}.following", 3443)] {
        let json = sandbox
            .run_with(&["lab", "slots", "-", "--json"], format!("{key}\n").as_bytes())
            .json();
        assert_eq!(json["slots"]["fullest_slots"][0], serde_json::json!([slot, 1]), "{key}");
    }
}

#[test]
fn clusters_that_cannot_be_are_refused() {
    let sandbox = with_keys();
    for nodes in ["0", "16385"] {
        sandbox.run(&["lab", "slots", "keys", "--nodes", nodes]).check(
            2,
            "",
            &format!(
                "splitpoint: error: a cluster has 1 to 16384 nodes, not {nodes}\n\
                 hint: --nodes counts masters; replicas own no slots\n"
            ),
        );
    }
    sandbox.write("empty", b"");
    sandbox.run(&["lab", "slots", "empty"]).check_error(1, "`empty` holds no keys");
    let many = sandbox.run(&["lab", "slots", "keys", "--nodes", "16384"]);
    assert_eq!(many.exit, 0);
    check_text(&many.text(), &["16,360 nodes between these", "nodes hold no key"]);
}

#[test]
fn gate_passes_a_good_function_and_names_each_limit_that_a_bad_one_misses() {
    let sandbox = with_keys();
    let good = sandbox.run(&["lab", "gate", "keys", "--hash", "xxh3-64"]);
    assert_eq!((good.exit, good.stderr.as_str()), (0, ""));
    check_text(
        &good.text(),
        &["Limits that hold: 1 of 1.", "\nmet     cost of a hit", "at most 1.1"],
    );
    let args = ["lab", "gate", "keys", "--hash", "netbsd-byte-sum", "--max-cost", "1.5"];
    let more = ["--min-utilization", "0.5", "--max-chain-p", "0.001", "--max-dupes", "5000"];
    let bad = sandbox.run(&[&args[..], &more[..]].concat());
    bad.check_error(1, "3 of 4 limits are missed");
    check_text(
        &bad.text(),
        &[
            "\nMISSED  cost of a hit",
            "\nMISSED  p of the fullest bucket",
            "\nMISSED  share of buckets used",
            "\nmet     dupes",
        ],
    );
    let json = sandbox.run(&[&args[..], &["--json"]].concat());
    assert_eq!(json.exit, 1);
    let gates = &json.json()["gates"];
    assert_eq!((&gates[0]["bound"], &gates[0]["is_met"]), (&"at_most".into(), &false.into()));
    assert_eq!(gates.as_array().map(Vec::len), Some(1));
}

#[test]
fn gate_checks_every_size_that_is_given() {
    let sandbox = with_keys();
    let sizes = ["--buckets", "16", "--buckets", "65536"];
    let args = [&["lab", "gate", "keys", "--hash", "netbsd-byte-sum"], &sizes[..]].concat();
    let outcome = sandbox.run(&args);
    outcome.check_error(1, "1 of 2 limits is missed");
    check_text(
        &outcome.text(),
        &["16 buckets\nresult ", "\nmet  ", "65536 buckets\nresult ", "\nMISSED  "],
    );
}

/// A program of any language computes the hashes; here it is FNV-1a, and then a bad one.
#[test]
fn gate_judges_hashes_that_another_program_computed() {
    let sandbox = with_keys();
    let fnv = |key: &str| {
        key.bytes()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
    };
    let keys: Vec<String> = (0..2000).map(|n| format!("a{n:06}")).collect();
    let hex: Vec<String> = keys.iter().map(|key| format!("{:#010x}\n", fnv(key))).collect();
    sandbox.write("fnv.hex", hex.concat().as_bytes());
    let own =
        sandbox.run(&["lab", "gate", "keys", "--hashes", "fnv.hex", "--max-cost", "9", "--json"]);
    let built_in =
        sandbox.run(&["lab", "gate", "keys", "--hash", "fnv1a-32", "--max-cost", "9", "--json"]);
    assert_eq!((own.exit, built_in.exit), (0, 0));
    let (own, built_in) = (own.json(), built_in.json());
    for figure in ["cost_ratio", "used_count", "width_bits", "key_count", "key_bytes", "longest"] {
        assert_eq!(own["reports"][0][figure], built_in["reports"][0][figure], "{figure}");
    }
    assert_eq!(own["reports"][0]["hash"], "fnv.hex");

    let bytes: Vec<u8> = (0..2000_u64).flat_map(|n| (n % 50).to_le_bytes()).collect();
    sandbox.write("bad.u64", &bytes);
    let args = ["lab", "gate", "--hashes", "bad.u64", "--hashes-as", "u64", "--width", "64"];
    let bad = sandbox.run(&[&args[..], &["--max-collisions", "0"]].concat());
    bad.check_error(1, "1 of 1 limit is missed");
    check_text(&bad.text(), &["\nMISSED  pairs of equal hashes    39,000  at most 0\n"]);
    // The same file, in depth.
    let table = ["lab", "table", "bad.u64", "--keys", "u64", "--hash", "identity-64"];
    let table = sandbox.run(&[&table[..], &["--keep-duplicates"]].concat());
    assert!(table.text().contains("\nVerdict\nworse: "), "{}", table.text());
}

#[test]
fn gate_refuses_hashes_that_do_not_go_with_the_keys() {
    let sandbox = Sandbox::new();
    sandbox.write("keys", b"a\nb\na\n");
    sandbox.write("two", b"0x1\n0x2\n");
    sandbox.write("other", b"0x1\n0x2\n0x3\n");
    sandbox.write("right", b"0x1\n0x2\n0x1\n");
    sandbox.write("digits", b"10\n11\n10\n");
    sandbox.write("words", b"one\n");
    sandbox.write("empty", b"");
    let gate = |hashes: &str| sandbox.run(&["lab", "gate", "keys", "--hashes", hashes]);
    for (hashes, error) in [
        ("two", "error: `two` has 2 hashes for 3 keys\n"),
        ("other", "error: `other`: keys 1 and 3 are equal, but their hashes are 0x1 and 0x3\n"),
    ] {
        let outcome = gate(hashes);
        assert!(outcome.exit == 2 && outcome.stderr.contains(error), "{}", outcome.stderr);
    }
    gate("words").check_error(2, "`words`: line 1: `one` is not a 64-bit integer");
    gate("empty").check_error(1, "`empty` holds no hashes");
    gate("digits").check_error(
        2,
        "`digits`: its hashes have only the digits 0 to 9, so they may be hex or decimal",
    );
    gate("absent").check_error(3, "cannot read `absent`: No such file or directory (os error 2)");
    let right = gate("right");
    assert_eq!((right.exit, right.stderr.as_str()), (0, "splitpoint: skipped 1 duplicate key\n"));
    let unknown = sandbox.run(&["lab", "gate", "keys", "--hash", "fnv2a-32"]);
    unknown.check_error(2, "no hash function is called `fnv2a-32`; the nearest is `fnv1a-32`");
    assert_eq!(sandbox.run(&["lab", "gate", "keys"]).exit, 2);
    assert_eq!(sandbox.run(&["lab", "gate", "keys", "--hash", "dbm", "--max-cost", "-1"]).exit, 2);
}

#[test]
fn compare_puts_two_functions_beside_each_other() {
    let sandbox = with_keys();
    let args = ["lab", "compare", "keys", "--hash", "xxh3-64", "--hash", "netbsd-byte-sum"];
    let outcome = sandbox.run(&args);
    assert_eq!((outcome.exit, outcome.stderr.as_str()), (0, ""));
    check_text(
        &outcome.text(),
        &[
            "\n2,000 keys, ",
            "- distribution: xxh3-64 is better, x",
            "\nfirst   xxh3-64, low, 2,048 buckets, seed 0: fits\n",
            "\nsecond  netbsd-byte-sum, low, 2,048 buckets, seed 0: worse\n",
            "cost of a hit ",
            "\nall lengths\nfigure ",
            "\nlatency, ns ",
        ],
    );
    let json = sandbox.run(&[&args[..], &["--json"]].concat()).json();
    let counts = |field: &str| json[field].as_array().map(Vec::len);
    assert_eq!(
        (counts("reports"), counts("timings")),
        (Some(2), Some(2)),
        "all keys have one length"
    );
    assert_eq!(counts("differences"), Some(8));
}

#[test]
fn compare_tells_what_changed_between_two_studies() {
    let sandbox = with_keys();
    let save = |name: &str, hashes: &[&str], keys: &str| {
        let mut args = vec!["lab", "hash", keys, "--json", name, "-q", "--buckets", "2048"];
        args.push("--no-times");
        for hash in hashes {
            args.extend(["--hash", hash]);
        }
        assert_eq!(sandbox.run(&args).exit, 0);
    };
    sandbox.write("fewer", b"x\ny\nz\n");
    save("old", &["xxh3-64", "sdbm"], "keys");
    save("same", &["xxh3-64", "sdbm"], "keys");
    save("new", &["xxh3-64", "fnv1a-32"], "fewer");
    let same = sandbox.run(&["lab", "compare", "old", "same"]);
    assert_eq!((same.exit, same.stderr.as_str()), (0, ""));
    check_text(&same.text(), &["\nCompared\nNo figure differs, of 10.\n"]);
    let changed = sandbox.run(&["lab", "compare", "old", "new"]);
    assert_eq!(
        (changed.exit, changed.stderr.as_str()),
        (
            0,
            "splitpoint: only the older study has sdbm, low, 2048 buckets, seed 0\n\
             splitpoint: only the newer study has fnv1a-32, low, 2048 buckets, seed 0\n\
             splitpoint: the keys differ: 2,000 keys then, 3 now\n"
        )
    );
    check_text(&changed.text(), &["xxh3-64, low, 2048 buckets, seed 0\n", "of 5 figures differ"]);
    let none = sandbox.run(&["lab", "compare", "old", "keys"]);
    assert_eq!(none.exit, 2);
    assert!(none.stderr.contains("`keys` is not a saved study"), "{}", none.stderr);
}

#[test]
fn compare_needs_two_of_a_kind() {
    let sandbox = with_keys();
    let nothing = sandbox.run(&["lab", "compare", "keys"]);
    nothing.check_error(2, "there is nothing to compare");
    let one = sandbox.run(&["lab", "compare", "keys", "--hash", "dbm"]);
    one.check_error(2, "compare takes two functions, not 1");
    assert_eq!(sandbox.run(&["lab", "compare", "keys", "keys", "--hash", "dbm"]).exit, 2);
}

#[test]
fn recommend_ranks_and_says_why() {
    let sandbox = with_keys();
    let hashes = ["--hash", "xxh3-64", "--hash", "netbsd-byte-sum", "--hash", "siphash-1-3"];
    let args = [&["lab", "recommend", "keys"], &hashes[..]].concat();
    let outcome = sandbox.run(&args);
    assert_eq!((outcome.exit, outcome.stderr.as_str()), (0, ""));
    let text = outcome.text();
    check_text(&text, &["\nfunction  ", "\nxxh3-64 ", "\nnetbsd-byte-sum ", "\n- Take "]);
    let lead = text.split("\nVerdict\nTake ").nth(1).and_then(|rest| rest.split(' ').next());
    assert!(matches!(lead, Some("xxh3-64" | "siphash-1-3")), "{text}");
    let advised = format!("\n- Take {} ", lead.expect("a name"));
    assert!(text.contains(&advised), "{text}");
    let words: Vec<&str> = text.split_whitespace().collect();
    let reason = "over 21 sizes and seeds it is indistinguishable from an ideal hash";
    assert!(words.join(" ").contains(reason), "{text}");
    let json = sandbox.run(&[&args[..], &["--json"]].concat()).json();
    let choices = json["choices"].as_array().expect("choices");
    assert_eq!((choices.len(), &json["wishes"]["hostile"]), (12, &false.into()));
    let costs: Vec<(bool, f64)> = choices
        .iter()
        .map(|choice| (choice["manner"] != "fits", choice["lookup_ns"].as_f64().expect("a number")))
        .collect();
    assert!(costs.is_sorted(), "{costs:?}");
    let byte_sum = choices.iter().find(|choice| choice["hash"] == "netbsd-byte-sum");
    assert_eq!(byte_sum.map(|choice| &choice["manner"]), Some(&"worse".into()));
}

#[test]
fn recommend_obeys_what_is_asked() {
    let sandbox = with_keys();
    let json =
        sandbox.run(&["lab", "recommend", "keys", "--hostile", "--on-disk", "--json"]).json();
    let choices = json["choices"].as_array().expect("choices");
    let mut names: Vec<&str> =
        choices.iter().filter_map(|choice| choice["hash"].as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names, ["highwayhash-64", "siphash-1-3", "siphash-2-4"]);
    for (args, exit, error) in [
        (
            &["--hostile", "--hash", "dbm"][..],
            2,
            "`dbm`: it has no secret key: an attacker can choose keys that collide",
        ),
        (
            &["--buckets", "4294967296"],
            2,
            "the keys, their hashes and the largest table tried for 4,294,967,296 buckets take \
             16.0 GiB; --memory-bytes allows 4.0 GiB",
        ),
        (
            &["--hash", "sipphash"],
            2,
            "no hash function is called `sipphash`; the nearest is `siphash-1-3`",
        ),
    ] {
        let outcome = sandbox.run(&[&["lab", "recommend", "keys"], args].concat());
        outcome.check_error(exit, error);
    }
    assert_eq!(sandbox.run(&["lab", "recommend", "keys", "--buckets", "0"]).exit, 2);
    sandbox.write("empty", b"");
    sandbox.run(&["lab", "recommend", "empty"]).check_error(1, "`empty` holds no keys");
}

/// Stops the program when it has read its keys and has seconds of work before it.
#[test]
fn recommend_that_is_stopped_says_what_is_missing() {
    use std::io::{BufRead as _, BufReader, Read as _};
    use std::process::{Command, Stdio};

    let sandbox = Sandbox::new();
    let keys = (0..100_000).map(|n| format!("{n}\n")).collect::<Vec<_>>().concat();
    sandbox.write("keys", keys.as_bytes());
    let mut child = sandbox
        .program(&["lab", "recommend", "keys", "--json", "--progress", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be run");
    let mut stderr = BufReader::new(child.stderr.take().expect("standard error is piped"));
    let mut line = String::new();
    while !line.contains("\"done\":true,\"phase\":\"read keys\"") {
        line.clear();
        assert!(stderr.read_line(&mut line).expect("a line can be read") > 0, "no phase ended");
    }
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-s", "INT", &id]).status().expect("kill").success());
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).expect("the rest can be read");
    let outcome = crate::sandbox::Outcome::of(&child.wait_with_output().expect("the program ends"));
    assert_eq!(outcome.exit, 130, "{rest}");
    assert!(rest.contains("error: interrupted: only "), "{rest}");
    let progress: Vec<serde_json::Value> =
        rest.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let last = progress.last().expect("progress");
    assert_eq!((&last["phase"], &last["done"]), (&"trying".into(), &true.into()), "{rest}");
    assert!(last["records"].as_u64() < last["records_total"].as_u64(), "{rest}");
    let json = outcome.json();
    let missing = json["interruption"]["missing"].as_str().expect("what is missing");
    assert!(missing.ends_with(" functions were measured"), "{missing}");
    assert_eq!(json["keys"]["key_count"], 100_000);
}
