//! What the commands of the lab read and save: keys in every format, and studies.

use crate::sandbox::Sandbox;

fn with_keys() -> Sandbox {
    let sandbox = Sandbox::new();
    let keys = (0..500).map(|n| format!("key {n}\n")).collect::<Vec<_>>().concat();
    sandbox.write("keys", keys.as_bytes());
    sandbox
}

#[test]
fn a_study_is_saved_whole_and_replaces_only_a_study() {
    let sandbox = with_keys();
    let args = ["lab", "hash", "keys", "--hash", "sdbm", "--json", "study.json"];
    let saved = sandbox.run(&args);
    assert_eq!(
        (saved.exit, saved.stderr.as_str()),
        (0, "splitpoint: saved the study to `study.json`\n")
    );
    assert!(saved.text().starts_with("Hash functions on `keys`\n500 keys, "), "{}", saved.text());
    let study: serde_json::Value = serde_json::from_slice(&sandbox.read("study.json")).unwrap();
    assert_eq!(study["schema"], 2);
    assert_eq!(study["program"]["arguments"], serde_json::json!(args));
    assert_eq!(study["keys"]["examples"][0], "key 0");
    assert_eq!(study["keys"]["format"], "lines");
    assert_eq!(study["keys"]["duplicates"]["kind"], "removed");
    assert_eq!(
        study["keys"]["lengths"][1],
        serde_json::json!({"bytes_min": 6, "bytes_max": 6, "key_count": 90})
    );
    // Again over itself, then not over the keys.
    assert_eq!(sandbox.run(&args).exit, 0);
    let before = sandbox.read("keys");
    let args = ["lab", "table", "keys", "--hash", "sdbm", "--json", "keys"];
    sandbox
        .run(&args)
        .check_error(2, "`keys` exists and is not a saved study, so it was not replaced");
    assert_eq!(sandbox.read("keys"), before);
    let args = ["lab", "table", "keys", "--hash", "sdbm", "--json", "absent/study.json"];
    let refused = sandbox.run(&args);
    assert_eq!(refused.exit, 5, "{}", refused.stderr);
    let names: Vec<_> = std::fs::read_dir(sandbox.path(".")).unwrap().collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

/// Measures one function on keys from standard input, and returns the facts of the keys.
#[track_caller]
fn facts(args: &[&str], stdin: &[u8]) -> serde_json::Value {
    let sandbox = Sandbox::new();
    let args = [&["lab", "table", "-", "--hash", "fnv1a-64", "-q"], args, &["--json"]].concat();
    let outcome = sandbox.run_with(&args, stdin);
    assert_eq!((outcome.exit, outcome.stderr.as_str()), (0, ""), "{args:?}");
    outcome.json()["keys"].clone()
}

#[test]
fn keys_are_read_in_every_format() {
    for (args, stdin, key_count, first) in [
        (&["--keys", "nul"][..], &b"a b\0c\0"[..], 2, "a b"),
        (&["--keys", "hex"], b"6161\n62\n", 2, "aa"),
        (&["--keys", "base64"], b"YWE=\nYg\n", 2, "aa"),
        (&["--keys", "decimal"], b"97\n98\n", 2, "a\\x00\\x00\\x00\\x00\\x00\\x00\\x00"),
        (&["--as", "u16"], b"97\n98\n", 2, "a\\x00"),
        (&["--keys", "u32"], b"aaaabbbb", 2, "aaaa"),
        (&["--keys", "u24-be"], b"abcdef", 2, "cba"),
        (&["--keys", "len16-be"], b"\0\x02ab\0\x01c", 2, "ab"),
        (&["--keys", "varint"], b"\x02ab\x01c", 2, "ab"),
        (&["--keys", "csv"], b"x,1\ny,2\n", 2, "x"),
        (&["--keys", "csv", "--column", "id", "--as", "u8"], b"n,id\nx,97\ny,98\n", 2, "a"),
        (&["--keys", "csv", "--column", "2", "--header"], b"n,id\nx,\"9\"\"7\"\n", 1, "9\"7"),
        (&["--keys", "tsv", "--column", "id"], b"n\tid\nx\t97\ny\t98\n", 2, "97"),
    ] {
        let facts = facts(args, stdin);
        assert_eq!(facts["key_count"], key_count, "{args:?}");
        assert_eq!(facts["examples"][0], first, "{args:?}");
    }
}

#[test]
fn keys_of_no_bytes_and_of_a_megabyte_are_keys() {
    let mut stdin = vec![0];
    stdin.extend(std::iter::repeat_n(b'k', 1 << 20));
    stdin.push(0);
    let facts = facts(&["--keys", "nul"], &stdin);
    assert_eq!(facts["lengths"][0]["bytes_max"], 0);
    assert_eq!(facts["lengths"][1]["bytes_min"], 1 << 20);
    let sandbox = Sandbox::new();
    let same = sandbox.run_with(&["lab", "hash", "-"], &b"same\n".repeat(1000));
    assert_eq!((same.exit, same.stderr.as_str()), (0, "splitpoint: skipped 999 duplicate keys\n"));
    let kept = ["lab", "table", "-", "--hash", "dbm", "--keep-duplicates"];
    let same = sandbox.run_with(&kept, &b"same\n".repeat(1000));
    assert_eq!((same.exit, same.stderr.as_str()), (0, "splitpoint: kept 999 duplicate keys\n"));
    assert!(same.text().contains("\nVerdict\nworse: "), "{}", same.text());
}

#[test]
fn what_cannot_be_read_is_refused_with_its_place_and_what_to_do() {
    let sandbox = Sandbox::with_words();
    std::fs::create_dir(sandbox.path("dir")).unwrap();
    sandbox.write("gz", b"\x1f\x8b\x08\x00 and so on");
    sandbox.write("text", b"one\ntwo\n");
    sandbox.write("table", b"id,name\n1,x\n2\n");
    sandbox.write("open", b"id,name\n1,\"x\n2,y\n");
    sandbox.write("long", &vec![1; (16 << 20) + 1]);
    sandbox.write("nothing", b"\n\r\n\n");
    for (args, exit, error) in [
        (&["dir"][..], 3, "cannot read `dir`: Is a directory (os error 21)"),
        (&["absent"], 3, "cannot read `absent`: No such file or directory (os error 2)"),
        (&["words.spt"], 2, "`words.spt`: it is a store"),
        (&["gz"], 2, "`gz`: it is compressed, for zcat"),
        (&["text", "--keys", "store"], 3, "`text` is not a splitpoint store: found text"),
        (&["text", "--keys", "hex"], 2, "`text`: line 1: `o` at column 1 is not a hex digit"),
        (
            &["text", "--keys", "decimal"],
            2,
            "`text`: line 1: `one` is not a number from 0 to 18446744073709551615",
        ),
        (
            &["text", "--keys", "len32"],
            2,
            "`text`: byte 0: a key of 174419567 bytes, and 16777216 are the most: the lengths may \
             be written in another way",
        ),
        (
            &["table", "--keys", "csv"],
            2,
            "`table`: line 3: a row of 1 column, where the first row has 2",
        ),
        (&["open", "--keys", "csv"], 2, "`open`: line 2: a quote is opened and never closed"),
        (
            &["table", "--keys", "csv", "--column", "nme"],
            2,
            "`table`: line 1: the header has no column `nme`, it has `id`, `name`",
        ),
        (&["long"], 2, "`long`: line 1: the key is longer than 16777216 bytes"),
        (&["nothing"], 1, "`nothing` holds no keys"),
        (
            &["text", "--keys", "line"],
            2,
            "no format of keys is called `line`; the nearest is `lines`",
        ),
        (
            &["text", "--as", "base46"],
            2,
            "no format of keys is called `base46`; the nearest is `base64`",
        ),
        (&["table", "--keys", "u8", "--as", "hex"], 2, "--as is for text, and `u8` is not text"),
        (&["text", "--column", "1"], 2, "--column and --header are for csv and tsv"),
        (&["--json", "text"], 2, "no file with keys is given"),
        (&["text", "--memory-bytes", "4000"], 0, ""),
    ] {
        let outcome = sandbox.run(&[&["lab", "table", "--hash", "dbm"], args].concat());
        if exit == 0 {
            assert_eq!((outcome.exit, outcome.stderr.as_str()), (0, ""));
            continue;
        }
        let errors = outcome.stderr.lines().find(|line| line.contains("error: "));
        assert_eq!(
            (outcome.exit, errors),
            (exit, Some(format!("splitpoint: error: {error}").as_str())),
            "{}",
            outcome.stderr
        );
        assert!(outcome.stderr.contains("hint: ") || exit == 3, "{}", outcome.stderr);
    }
}

/// 300,000 keys of 2.3 MB, of which a twelfth came before.
fn many() -> Vec<u8> {
    let line = |n: u64| if n % 6 == 5 { n / 2 } else { n };
    (0..300_000).flat_map(|n| format!("{:07}\n", line(n)).into_bytes()).collect()
}

#[test]
fn keys_that_do_not_fit_give_the_same_result_from_files_and_pipes() {
    let sandbox = Sandbox::new();
    sandbox.write("many", &many());
    let args = ["--hash", "fnv1a-32", "--hash", "xxh3-64", "--buckets", "65536", "--json"];
    let run = |file: &str, more: &[&str], stdin: &[u8]| {
        sandbox.run_with(&[&["lab", "hash", file], &args[..], more].concat(), stdin)
    };
    let held = run("many", &[], b"");
    assert_eq!(held.stderr, "splitpoint: skipped 25,000 duplicate keys\n");
    let reports = held.json()["reports"].clone();
    assert_eq!(reports[0]["key_count"], 275_000);

    // The hashes fit, the keys do not.
    let streamed = run("many", &["--memory-bytes", "18000000", "--threads", "2"], b"");
    assert!(streamed.stderr.contains("they are read again"), "{}", streamed.stderr);
    assert!(!streamed.stderr.contains("sample"), "{}", streamed.stderr);
    assert_eq!(streamed.json()["reports"], reports);
    let less = ["--memory-bytes", "4000000", "--sample-hashes", "8"];
    let sampled = ["--sample-hashes", "8"];
    let reports = run("many", &sampled, b"").json()["reports"].clone();
    let streamed = run("many", &less, b"");
    assert_eq!(streamed.exit, 0, "{}", streamed.stderr);
    assert_eq!(streamed.json()["reports"], reports);
    assert_eq!(
        streamed.stderr,
        "splitpoint: the keys do not fit into 1.9 MiB of memory: they are read again for each \
         pass; duplicates were found by fingerprints, which are wrong with a probability of \
         about 1e-28\nsplitpoint: skipped 25,000 duplicate keys\n"
    );
    assert_eq!(streamed.json()["keys"]["duplicates"]["kind"], "removed_by_fingerprint");
    let piped = run("-", &less, &many());
    assert_eq!(piped.json()["reports"], reports);
    assert!(piped.stderr.starts_with("splitpoint: `-` does not fit into memory: "));
    let names: Vec<_> = std::fs::read_dir(sandbox.path(".")).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    let refused = run("many", &["--memory-bytes", "60000"], b"");
    assert_eq!(refused.exit, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("too little memory: "), "{}", refused.stderr);
}

#[test]
fn progress_is_told_as_objects() {
    let sandbox = Sandbox::new();
    sandbox.write("many", &many());
    let outcome = sandbox.run(&[
        "lab",
        "table",
        "many",
        "--hash",
        "dbm",
        "--progress",
        "json",
        "--memory-bytes",
        "40000000",
    ]);
    assert_eq!(outcome.exit, 0, "{}", outcome.stderr);
    let phase = |name: &str| {
        let needle = format!("\"phase\":\"{name}\"");
        let found: Vec<&str> =
            outcome.stderr.lines().filter(|line| line.contains(&needle)).collect();
        found.last().is_some_and(|line| line.contains("\"done\":true"))
    };
    assert!(phase("read keys") && phase("count"), "{}", outcome.stderr);
}

/// Ctrl-C while the counting goes on: what was counted is printed, and said to be a part.
#[test]
fn an_interrupted_run_gives_a_partial_report_that_says_so() {
    use std::io::{BufRead as _, BufReader, Read as _};
    let sandbox = Sandbox::new();
    sandbox.write("many", &many());
    // Thousands of passes, each of which reads all keys.
    let mut child = sandbox
        .program(&["lab", "sweep", "many", "--seeds", "10000", "--hash", "siphash-1-3"])
        .args(["--bits", "16..16", "--reduction", "low", "--json", "study.json"])
        .args(["--memory-bytes", "3000000", "--progress", "json"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the program can be run");
    let mut stderr = BufReader::new(child.stderr.take().expect("standard error is piped"));
    let mut line = String::new();
    while !line.contains("\"phase\":\"count\"") {
        line.clear();
        assert!(stderr.read_line(&mut line).expect("a line can be read") > 0);
    }
    let id = child.id().to_string();
    let status = std::process::Command::new("kill").args(["-s", "INT", &id]).status();
    assert!(status.expect("kill can be run").success());
    let (mut text, mut rest) = (String::new(), String::new());
    child.stdout.take().expect("piped").read_to_string(&mut text).expect("text");
    stderr.read_to_string(&mut rest).expect("text");
    assert_eq!(child.wait().expect("the program ends").code(), Some(130), "{rest}");
    assert!(text.contains("\nVerdict\nwarning: Stopped before its end. "), "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("of 10000 measurements were not begun"), "{text}");
    assert!(rest.contains("splitpoint: error: interrupted: "), "{rest}");
    let study: serde_json::Value = serde_json::from_slice(&sandbox.read("study.json")).unwrap();
    assert!(study["interruption"]["missing"].is_string());
    let reports = study["reports"].as_array().expect("reports");
    assert!(!reports.is_empty() && reports.len() < 10_000, "{}", reports.len());
}

#[test]
fn compressed_keys_are_refused_with_the_program_that_reads_them() {
    let sandbox = Sandbox::new();
    for (name, start, program) in [
        ("k.gz", &b"\x1f\x8b\x08\0 and so on"[..], "zcat"),
        ("k.zst", b"\x28\xb5\x2f\xfd\x04\x58\x41\0\0", "zstdcat"),
        ("k.xz", b"\xfd7zXZ\0 and so on", "xzcat"),
        ("k.bz2", b"BZh91AY&SY and so on", "bzcat"),
    ] {
        sandbox.write(name, start);
        let error = |file: &str, from: &str| {
            format!(
                "splitpoint: error: `{file}`: it is compressed, for {program}\n\
                 hint: decompress it into a pipe: {program} {from} | splitpoint lab ... -\n"
            )
        };
        sandbox.run(&["lab", "table", name, "--hash", "dbm"]).check(2, "", &error(name, name));
        let piped = sandbox.run_with(&["lab", "table", "-", "--hash", "dbm"], start);
        piped.check(2, "", &error("-", "FILE"));
    }
}
