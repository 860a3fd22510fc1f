//! Files of other packages: `identify`, `convert`, `salvage`, and the commands that only read.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::sandbox::Sandbox;

pub(crate) fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../splitpoint-legacy/tests/fixtures")
}

/// Makes a directory with a copy of these samples.
pub(crate) fn with_samples(files: &[&str]) -> Sandbox {
    let sandbox = Sandbox::new();
    for file in files {
        sandbox.write(file, &std::fs::read(fixtures().join(file)).expect("the sample is there"));
    }
    sandbox
}

pub(crate) fn lines(bytes: &[u8]) -> BTreeSet<String> {
    String::from_utf8(bytes.to_vec()).expect("text").lines().map(str::to_owned).collect()
}

/// One sample of each format: what is given, and its files.
pub(crate) const SAMPLES: [(&str, &str, &[&str]); 9] = [
    ("db185-be-512-small.db", "db185-be-512-small", &["db185-be-512-small.db"]),
    ("gdbm-be-std-word.gdbm", "gdbm-be-std-word", &["gdbm-be-std-word.gdbm"]),
    ("sdbm-ruby-word", "sdbm-ruby-word", &["sdbm-ruby-word.pag", "sdbm-ruby-word.dir"]),
    ("ndbm-be-word.dir", "ndbm-be-word", &["ndbm-be-word.pag", "ndbm-be-word.dir"]),
    ("krb5db2-v3-le-512-word.db", "krb5db2-v3-le-512-word", &["krb5db2-v3-le-512-word.db"]),
    ("bdb53-be-4096-big.bdb53", "bdb53-be-4096-big", &["bdb53-be-4096-big.bdb53"]),
    (
        "bdb53-btree-be-1024-big.bdb53",
        "bdb53-btree-be-1024-big",
        &["bdb53-btree-be-1024-big.bdb53"],
    ),
    ("cdb-tinycdb-word.cdb", "cdb-tinycdb-word", &["cdb-tinycdb-word.cdb"]),
    (
        "dumb-python3-quoted",
        "dumb-python3-quoted",
        &["dumb-python3-quoted.dat", "dumb-python3-quoted.dir"],
    ),
];

/// Dumps, counts, lists and converts each; the lists beside the samples are in the format of `dump`.
#[test]
fn every_format_is_read_by_the_commands_that_read_and_is_converted() {
    for (given, name, files) in SAMPLES {
        let sandbox = with_samples(files);
        let before: Vec<Vec<u8>> = files.iter().map(|file| sandbox.read(file)).collect();
        let expected = std::fs::read(fixtures().join(format!("{name}.expect.txt"))).unwrap();
        let dump = sandbox.run(&["dump", given]);
        assert_eq!((dump.exit, dump.stderr.as_str()), (0, ""), "{name}");
        assert_eq!(lines(&dump.stdout), lines(&expected), "{name}");
        let count = lines(&expected).len().to_string();
        sandbox.run(&["count", given]).check(0, format!("{count}\n"), "");
        let keys = sandbox.run(&["list", given, "--hex"]);
        assert_eq!(lines(&keys.stdout).len().to_string(), count, "{name}");
        let check = sandbox.run(&["check", given]);
        assert_eq!((check.exit, check.stderr.as_str()), (0, ""), "{name}");
        assert!(check.text().contains(" walked; its format has no checksums"), "{name}");
        assert_eq!(sandbox.run(&["stat", given]).exit, 0, "{name}");

        assert_eq!(sandbox.run(&["convert", "-q", given, "new.spt"]).exit, 0, "{name}");
        let converted = sandbox.run(&["dump", "new.spt"]).stdout;
        assert_eq!(lines(&converted), lines(&expected), "{name}");
        let after: Vec<Vec<u8>> = files.iter().map(|file| sandbox.read(file)).collect();
        assert!(before == after, "{name} was written");
        assert!(!sandbox.path("new.spt.convert-in-progress").exists());
    }
}

#[test]
fn identify_names_what_is_known_and_fails_for_the_rest() {
    let sandbox = with_samples(&["sdbm-ruby-word.pag", "sdbm-ruby-word.dir"]);
    sandbox.write("words", b"apple\n");
    sandbox.run(&["identify", "sdbm-ruby-word"]).check(
        0,
        "sdbm-ruby-word: sdbm, blocks of 1024, hash of Ruby, little-endian\n",
        "",
    );
    let outcome = sandbox.run(&["identify", "words"]);
    assert_eq!((outcome.exit, outcome.text().as_str()), (1, "words: text\n"));
}

#[test]
fn a_conversion_in_place_keeps_the_old_files() {
    let pair = ["sdbm-be-bin.pag", "sdbm-be-bin.dir"];
    let sandbox = with_samples(&["gdbm-std-bin.gdbm", pair[0], pair[1]]);
    let old = sandbox.read("gdbm-std-bin.gdbm");
    let dump = sandbox.run(&["dump", "gdbm-std-bin.gdbm"]).stdout;
    let outcome = sandbox.run(&["convert", "--in-place", "gdbm-std-bin.gdbm"]);
    assert_eq!(outcome.exit, 0, "{}", outcome.stderr);
    let said = "to `gdbm-std-bin.gdbm`; the old file is now `gdbm-std-bin.gdbm.old`\n";
    assert!(outcome.stderr.ends_with(said), "{}", outcome.stderr);
    assert!(sandbox.read("gdbm-std-bin.gdbm.old") == old);
    let converted = sandbox.run(&["dump", "gdbm-std-bin.gdbm"]).stdout;
    assert_eq!(lines(&converted), lines(&dump));
    // Again there is nothing to keep it under.
    assert_eq!(sandbox.run(&["convert", "-q", "--in-place", "gdbm-std-bin.gdbm"]).exit, 5);
    assert_eq!(lines(&sandbox.run(&["dump", "gdbm-std-bin.gdbm"]).stdout), lines(&dump));

    let outcome = sandbox.run(&["convert", "--json", "--in-place", "sdbm-be-bin"]);
    assert_eq!(outcome.exit, 0, "{}", outcome.stderr);
    let report: serde_json::Value = serde_json::from_slice(&outcome.stdout).expect("it is JSON");
    assert_eq!(report["kept"], serde_json::json!(["sdbm-be-bin.pag.old", "sdbm-be-bin.dir.old"]));
    sandbox.run(&["count", "sdbm-be-bin"]).check(0, "200\n", "");
    for file in pair {
        assert!(!sandbox.path(file).exists() && sandbox.path(&format!("{file}.old")).exists());
    }
}

/// The header of a gdbm file names a directory that is not there: all is found by salvage.
#[test]
fn salvage_saves_what_no_directory_leads_to_and_says_what_is_in_doubt() {
    let sandbox = with_samples(&["gdbm-std-512.gdbm"]);
    let expected = lines(&sandbox.run(&["dump", "gdbm-std-512.gdbm"]).stdout);
    let mut bytes = sandbox.read("gdbm-std-512.gdbm");
    bytes[8..20].fill(0xff);
    sandbox.write("gdbm-std-512.gdbm", &bytes);
    let dump = sandbox.run(&["dump", "gdbm-std-512.gdbm"]);
    assert_eq!(dump.exit, 4, "{}", dump.stderr);
    let outcome = sandbox.run(&["salvage", "gdbm-std-512.gdbm", "-o", "saved.spt"]);
    assert_eq!(outcome.exit, 1, "{}", outcome.stderr);
    assert!(outcome.text().contains("in doubt: key"));
    let saved = lines(&sandbox.run(&["dump", "saved.spt"]).stdout);
    assert!(saved.is_superset(&expected), "{} of {}", saved.len(), expected.len());
}

/// A version that is not read: salvage reads files of db 1.85 without their header, and no others.
#[test]
fn an_old_file_of_another_version_is_sent_to_whoever_can_read_it() {
    for (file, at, version, hint) in [
        ("bdb53-be-4096-big.bdb53", 19, 5, "dump it with the tools of the library that wrote it"),
        ("db185-be-1024-big.db", 7, 0, "splitpoint salvage db185-be-1024-big.db -o NEW.spt"),
    ] {
        let sandbox = with_samples(&[file]);
        let mut bytes = sandbox.read(file);
        bytes[at] = version;
        sandbox.write(file, &bytes);
        let outcome = sandbox.run(&["get", file, "key"]);
        assert_ne!(outcome.exit, 0);
        assert!(outcome.stderr.contains(hint), "{}", outcome.stderr);
        assert!(!outcome.stderr.contains("older splitpoint"), "{}", outcome.stderr);
    }
}

/// A block that is damaged is listed, and the rest is carried.
#[test]
fn a_conversion_carries_what_is_not_damaged_and_says_what_is() {
    let sandbox = with_samples(&["ndbm-be-word.pag", "ndbm-be-word.dir"]);
    let mut bytes = sandbox.read("ndbm-be-word.pag");
    bytes[0] = 0x7f;
    sandbox.write("ndbm-be-word.pag", &bytes);
    let outcome = sandbox.run(&["convert", "ndbm-be-word", "new.spt"]);
    assert_eq!(outcome.exit, 1);
    assert!(outcome.text().starts_with("skipped: corrupt slot count"), "{}", outcome.text());
    let count: u64 = sandbox.run(&["count", "new.spt"]).text().trim().parse().unwrap();
    assert!((880..900).contains(&count), "{count}");
    assert_eq!(sandbox.run(&["check", "ndbm-be-word"]).exit, 1);
    assert_eq!(sandbox.run(&["dump", "ndbm-be-word"]).exit, 4);
}

#[test]
fn identify_goes_on_after_a_file_that_cannot_be_read() {
    let sandbox = Sandbox::with_words();
    let outcome = sandbox.run(&["identify", "missing", "words.spt", ".", "gone", "words.spt"]);
    assert_eq!(outcome.exit, 3, "{}", outcome.stderr);
    let lines: Vec<String> = outcome.text().lines().map(str::to_string).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].starts_with("words.spt: ") && lines[2] == lines[0], "{lines:?}");
    assert_eq!(lines[1], ".: a directory");
    for name in ["missing", "gone"] {
        assert!(outcome.stderr.contains(&format!("`{name}`")), "{}", outcome.stderr);
    }
}

const DUMB: [&str; 2] = ["dumb-python3-quoted.dat", "dumb-python3-quoted.dir"];

#[test]
fn a_conversion_in_place_of_a_dumb_table_leaves_no_part_of_it() {
    let sandbox = with_samples(&DUMB);
    let [data, dir] = DUMB;
    let bak = "dumb-python3-quoted.bak";
    sandbox.write(bak, &sandbox.read(dir));
    assert_eq!(sandbox.run(&["convert", "-q", "--in-place", data]).exit, 0);
    for part in [data, dir, bak] {
        assert!(sandbox.path(&format!("{part}.old")).exists(), "{part}");
        assert_eq!(sandbox.path(part).exists(), part == data, "{part}");
    }
    let identity = sandbox.run(&["identify", data]).text();
    assert!(identity.contains("Splitpoint store"), "{identity}");
    // Nor is the store taken for a table if a list of keys is still there.
    sandbox.write(bak, &sandbox.read("dumb-python3-quoted.dir.old"));
    let identity = sandbox.run(&["identify", data]).text();
    assert!(identity.contains("Splitpoint store"), "{identity}");
}

/// A program that is killed while it writes the `.dir` leaves an empty one, or a part.
#[test]
fn a_dumb_table_that_lost_its_keys_is_not_replaced() {
    let sandbox = with_samples(&DUMB);
    let [data, dir] = DUMB;
    let index = sandbox.read(dir);
    sandbox.write("dumb-python3-quoted.bak", &index);
    let first = index.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for len in [0, first] {
        sandbox.write(dir, &index[..len]);
        let outcome = sandbox.run(&["convert", "--in-place", data]);
        assert_eq!(outcome.exit, 1, "{}", outcome.stderr);
        assert!(outcome.stderr.contains("nothing was replaced"), "{}", outcome.stderr);
        assert!(outcome.text().starts_with("skipped: the .dir lacks "), "{}", outcome.text());
        let name = format!("new{len}.spt");
        let outcome = sandbox.run(&["convert", data, &name]);
        assert_eq!(outcome.exit, 1, "{}", outcome.stderr);
        assert!(outcome.stderr.contains("splitpoint salvage"), "{}", outcome.stderr);
    }
    std::fs::remove_file(sandbox.path(dir)).unwrap();
    let outcome = sandbox.run(&["convert", "--in-place", data]);
    assert_eq!(outcome.exit, 1, "{}", outcome.stderr);
    let outcome = sandbox.run(&["convert", "--in-place", "--accept-loss", data]);
    assert!(sandbox.path(&format!("{data}.old")).exists(), "{}", outcome.stderr);
}

/// Another program's table that has the name of a part.
#[test]
fn a_conversion_in_place_replaces_the_file_that_is_named() {
    let sandbox = Sandbox::new();
    let sample = |name: &str| std::fs::read(fixtures().join(name)).unwrap();
    sandbox.write("mail.dat", &sample("gdbm-be-std-word.gdbm"));
    sandbox.write("mail.bak", &sample("cdb-tinycdb-word.cdb"));
    sandbox.run(&["identify", "mail.bak"]).check(0, "mail.bak: cdb\n", "");
    assert_eq!(sandbox.run(&["convert", "-q", "--in-place", "mail.bak"]).exit, 0);
    assert!(sandbox.read("mail.bak.old") == sample("cdb-tinycdb-word.cdb"));
    assert!(sandbox.read("mail.dat") == sample("gdbm-be-std-word.gdbm"));
}
