//! `lab classics`: the algorithms of the 1991 paper.

use crate::sandbox::Sandbox;

/// Writes `count` decimal numbers, one a line, as `ls -i` has inodes.
fn numbers(sandbox: &Sandbox, name: &str, count: u32) {
    let lines: Vec<String> =
        (0..count).map(|number| format!("{}\n", 1_000_000 + 7 * number)).collect();
    sandbox.write(name, lines.concat().as_bytes());
}

#[test]
fn each_figure_of_the_paper_is_built_and_printed() {
    let sandbox = Sandbox::new();
    sandbox.run(&["lab", "classics", "--show", "figure-1"]).check(
        0,
        "Figure 1: a radix search trie\n  \
           A: bit 0, internal\n  \
           B: bit 1, internal\n  \
           C: bit 3, external, bucket L00 = page 0\n  \
           D: bit 4, external, bucket L01 = page 2\n  \
           E: bit 2, external, bucket L1 = page 1\n\
         Table: trie of 4096 bytes, depth 2\n\
         bit 0: internal\n  \
           bit 1: internal\n    \
             bit 3: external, L00 = page 0: 6 keys, 30 of 64 bytes\n    \
             bit 4: external, L01 = page 2: 7 keys, 35 of 64 bytes\n  \
           bit 2: external, L1 = page 1: 3 keys, 15 of 64 bytes\n",
        "",
    );
    sandbox.run(&["lab", "classics", "--show", "figure-2"]).check(
        0,
        "Figure 2: a directory representing the trie\n  \
           00 -> L00\n  \
           01 -> L01\n  \
           10 -> L1\n  \
           11 -> L1\n\
         Table: directory of depth 2: 4 entries for 3 buckets\n  \
           entry 0: L00, depth 2, 5 of 16 elements\n  \
           entry 1: L01, depth 2, 12 of 16 elements\n  \
           entry 2 to 3: L1, depth 1, 8 of 16 elements\n",
        "",
    );
    let third = sandbox.run(&["lab", "classics", "--show", "figure-3"]).text();
    assert!(third.contains("\n  split point 1: 2 overflow pages\n"), "{third}");
    assert!(third.contains("\n  split point 2: 3 overflow pages\n"), "{third}");
    let fourth = sandbox.run(&["lab", "classics", "--show", "figure-4"]).text();
    assert!(fourth.contains("\n    [5] -> B5 (page "), "{fourth}");
}

#[test]
fn the_table_of_the_keys_is_drawn() {
    let sandbox = Sandbox::new();
    sandbox.write("keys", b"a\nb\nc\n");
    sandbox.run(&["lab", "classics", "keys", "--show", "hsearch-chained"]).check(
        0,
        "hsearch-chained: 3 entries in a table of 4: chained\n  chain 2: c b\n  chain 3: a\n",
        "",
    );
    let args = ["lab", "classics", "keys", "--show", "ndbm"];
    sandbox.run(&args).check(
        0,
        "ndbm: bitmap of 0 bytes\n  \
           0 bits of the hash: bits 0 to 0: 0\n\
         pages\n  \
           page 0: 3 keys, 18 of 1024 bytes\n",
        "",
    );
}

#[test]
fn every_algorithm_has_a_row_with_the_ideal_beside() {
    let sandbox = Sandbox::new();
    numbers(&sandbox, "keys", 1000);
    let text = sandbox.run(&["lab", "classics", "keys"]).text();
    for name in ["dbm", "ndbm", "sdbm", "gdbm", "hash", "dynahash", "hsearch-div-brent"] {
        assert!(text.lines().any(|line| line.starts_with(&format!("{name} "))), "{name}\n{text}");
    }
    assert!(text.contains("The paper does not say with which options"), "{text}");
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    let report = sandbox.run(&["lab", "classics", "keys", "--json"]).json();
    assert_eq!(report["rows"].as_array().expect("rows").len(), 34);
    assert_eq!((&report["key_count"], &report["schema"]), (&1000.into(), &1.into()));
    let row = |name: &str| {
        let rows = report["rows"].as_array().expect("rows").iter();
        rows.clone().find(|row| row["name"] == name).expect("a row of this name").clone()
    };
    // Numbers of seven digits have few sums.
    assert!(report["digest_count"].as_u64().expect("a count") < 60);
    let cost = |name: &str| row(name)["hit"].as_f64().expect("a mean");
    assert!(cost("hsearch") > 5.0 && cost("hsearch-brent") > 4.0, "{}", cost("hsearch"));
    assert!(cost("hsearch-chained-rapidhash") < 1.6);
    assert_eq!(row("ndbm")["hit"], 1.0);
    let curves = report["curves"].as_array().expect("curves");
    assert_eq!((curves.len(), curves[0]["points"].as_array().expect("points").len()), (12, 19));
    sandbox.run(&["lab", "classics", "keys", "--html", "page.html", "-q"]);
    let page = String::from_utf8(sandbox.read("page.html")).expect("text");
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("Probes of a hit over the load"));
}

#[test]
fn refused_keys_have_the_reason_of_the_paper() {
    let sandbox = Sandbox::new();
    sandbox.write("keys", format!("short\n{}\n{}\n", "x".repeat(600), "y".repeat(600)).as_bytes());
    let args = ["lab", "classics", "keys", "--algorithm", "dbm", "--algorithm", "ndbm"];
    let text = sandbox.run(&args).text();
    assert!(text.contains("dbm      pair exceeds page     2\n"), "{text}");
    let text = text.split_whitespace().collect::<Vec<&str>>().join(" ");
    assert!(text.contains("it has 601 bytes, at most 505 fit"), "{text}");
    assert!(text.contains("total key and data size exceed the page size"), "{text}");
    // hcreate takes the number of keys, and more do not fit.
    numbers(&sandbox, "many", 100);
    let args = ["lab", "classics", "many", "--algorithm", "hsearch-rapidhash", "--nelem", "40"];
    let report = sandbox.run(&[&args[..], &["--json"]].concat()).json();
    let failure = &report["rows"][0]["failures"][0];
    assert_eq!((&failure["reason"], &failure["key_count"]), (&"table full".into(), &37.into()));
    assert_eq!(failure["first_key"], "1000441");
}

#[test]
fn values_are_those_of_the_file() {
    let sandbox = Sandbox::new();
    sandbox.write("keys", b"a\nb\n");
    sandbox.write("values", b"12345678\n1234\n");
    let args = ["lab", "classics", "keys", "--algorithm", "sdbm", "--values"];
    let report = sandbox.run(&[&args[..], &["values", "--json"]].concat()).json();
    assert_eq!(report["pair_bytes_mean"], 7.0);
    sandbox.write("few", b"1\n");
    let few = sandbox.run(&[&args[..], &["few"]].concat());
    few.check_error(2, "`few` has 1 value for 2 keys");
    // The first of equal keys counts, with its value.
    sandbox.write("keys", b"a\nb\na\nc\n");
    sandbox.write("values", b"1\n22\n333\n4444\n");
    let report = sandbox.run(&[&args[..], &["values", "--json"]].concat()).json();
    assert_eq!(
        (&report["key_count"], &report["pair_bytes_mean"]),
        (&3.into(), &(10.0 / 3.0).into())
    );
    // A blank line is no key, so that one value is too many.
    sandbox.write("keys", b"a\n\nb\nc\n");
    let many = sandbox.run(&[&args[..], &["values"]].concat());
    assert_eq!(many.exit, 2);
    assert!(many.stderr.contains("`values` has 4 values for 3 keys"), "{}", many.stderr);
}

#[test]
fn a_million_inode_numbers_are_stored() {
    let sandbox = Sandbox::new();
    numbers(&sandbox, "inodes", 1_000_000);
    let names = ["ndbm", "dynahash", "hash", "hsearch-rapidhash"];
    let chosen = names.map(|name| ["--algorithm", name]).concat();
    let args = [&["lab", "classics", "inodes", "--json"], &chosen[..]].concat();
    let report = sandbox.run(&args).json();
    let rows = report["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), names.len());
    for row in rows {
        assert_eq!(row["stored_count"], 1_000_000, "{row}");
        let cost = |name: &str| row[name].as_f64().expect("a mean");
        // The digest of hsearch is a good one here, and dbm always takes one page.
        if row["name"] == "ndbm" || row["name"] == "hsearch-rapidhash" {
            assert!((cost("hit") / cost("hit_ideal") - 1.0).abs() < 0.1, "{row}");
        }
    }
}

#[test]
fn one_algorithm_of_a_module_is_chosen_and_none_twice() {
    let sandbox = Sandbox::new();
    numbers(&sandbox, "keys", 20);
    let names = ["hsearch-mult", "ndbm", "hsearch-open", "ndbm"];
    let chosen = names.map(|name| ["--algorithm", name]).concat();
    let args = [&["lab", "classics", "keys", "--json"], &chosen[..]].concat();
    let report = sandbox.run(&args).json();
    let rows = report["rows"].as_array().expect("rows").iter();
    assert_eq!(rows.map(|row| row["name"].clone()).collect::<Vec<_>>(), ["hsearch", "ndbm"]);
    let args = ["lab", "classics", "keys", "--json", "--algorithm", "hsearch"];
    let report = sandbox.run(&args).json();
    assert_eq!(report["rows"].as_array().map(Vec::len), Some(28));
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let sandbox = Sandbox::new();
    numbers(&sandbox, "keys", 10);
    let run = |args: &[&str]| sandbox.run(&[&["lab", "classics"], args].concat());
    run(&["keys", "--algorithm", "btree"]).check_error(2, "there is no algorithm `btree`");
    run(&["keys", "--show", "figure-9"]).check_error(2, "there is no algorithm `figure-9`");
    run(&["keys", "--show", "figure-1"]).check_error(2, "figure-1 is drawn from keys of its own");
    let page =
        "dbm: invalid page size: 70000 bytes are not 32 to 32768, which offsets of 16 bits reach";
    run(&["keys", "--page", "70000"]).check_error(2, page);
    run(&["keys", "--fill", "0"])
        .check_error(2, "dynahash: invalid fill factor: 0 is not a number of keys per bucket");
    run(&["keys", "--nelem", "99999999999"])
        .check_error(2, "dynahash: invalid nelem: 99999999999 entries are more than 268435456");
    let large = ["keys", "--algorithm", "hsearch-mult", "--nelem", "268435000", "--memory-bytes"];
    let large = run(&[&large[..], &["1000000"]].concat());
    let words = "hsearch: too little memory: an empty table takes 2";
    assert!(large.stderr.contains(words), "{}", large.stderr);
    run(&["keys", "--keep-duplicates"]).check_error(2, "a table stores a key once");
    run(&["--show", "figure-1", "--page", "512"])
        .check_error(2, "figure-1 has parameters of its own");
    // Only the table that is shown must take the parameters.
    assert_eq!(run(&["keys", "--show", "hsearch", "--page", "70000"]).exit, 0);
    assert_eq!(run(&["keys", "--show", "hsearch", "--algorithm", "dbm"]).exit, 2);
    run(&[]).check_error(2, "no file with keys is given");
    sandbox.write("empty", b"");
    run(&["empty"]).check_error(1, "`empty` holds no keys");
}

/// Permutations of blocks of 24 letters, chosen so that dbm, gdbm and the digest of System V take all
/// of them for one: see the twins of the library's tests.
#[test]
fn two_thousand_keys_that_all_collide_are_reported() {
    let sandbox = Sandbox::new();
    let blocks: Vec<String> = ["a", "b", "c", "d", "e", "f", "g"]
        .into_iter()
        .map(|first| {
            let block = format!("{first}{}", "p".repeat(22));
            let nibbles = |byte: u8| u32::from(byte & 15) + u32::from(byte >> 4);
            let sum: u32 = block.bytes().map(nibbles).sum();
            let last = (b'A'..=b'z').find(|&byte| (sum + nibbles(byte)) % 16 == 12);
            format!("{block}{}", char::from(last.expect("a letter of every sum")))
        })
        .collect();
    let mut keys = Vec::new();
    permute(&mut Vec::new(), &blocks, &mut keys);
    keys.truncate(2000);
    sandbox.write("keys", keys.join("\n").as_bytes());
    let report = sandbox.run(&["lab", "classics", "keys", "--json"]).json();
    let row = |name: &str| {
        let rows = report["rows"].as_array().expect("rows").iter();
        rows.clone().find(|row| row["name"] == name).expect("a row of this name").clone()
    };
    assert_eq!(report["digest_count"], 1);
    for (name, reason) in [
        ("dbm", "colliding keys exceed page"),
        ("ndbm", "colliding keys exceed page"),
        ("gdbm", "directory limit"),
    ] {
        assert_eq!(row(name)["failures"][0]["reason"], reason, "{name}");
    }
    // These take every key, hsearch at the cost of a walk through half of them.
    for name in ["hash", "dynahash", "hsearch", "hsearch-chained"] {
        assert_eq!(
            (&row(name)["stored_count"], &row(name)["failures"]),
            (&2000.into(), &serde_json::json!([]))
        );
    }
    assert!(row("hsearch")["hit"].as_f64().expect("a mean") > 900.0);
}

/// Adds the permutations of `blocks` behind `start` to `keys`.
fn permute(start: &mut Vec<usize>, blocks: &[String], keys: &mut Vec<String>) {
    if start.len() == blocks.len() {
        keys.push(start.iter().map(|&index| &blocks[index][..]).collect());
        return;
    }
    for index in 0..blocks.len() {
        if !start.contains(&index) {
            start.push(index);
            permute(start, blocks, keys);
            start.pop();
        }
    }
}
