//! Keys with several values: what `dump` and `convert` make of them, and cdb files.

use crate::old_files::{lines, with_samples};
use crate::sandbox::Sandbox;

const SEVERAL: &str = "bdb53-btree-le-512-several.bdb53";
const CHOOSE: &str = "hint: say what becomes of the values of such a key: --duplicates first, last \
                      or all-as-N; or keep them in a cdb: --format cdb\n";

/// Converts the sample in one way, and returns what was printed on standard error.
fn converted(sandbox: &Sandbox, exit: i32, args: &[&str]) -> String {
    let all = [&["convert", SEVERAL][..], args].concat();
    let outcome = sandbox.run(&all);
    assert_eq!(outcome.exit, exit, "{args:?}: {}", outcome.stderr);
    outcome.stderr
}

fn values(sandbox: &Sandbox, file: &str, keys: &[&str]) -> String {
    let values = keys.iter().map(|key| sandbox.run(&["get", file, key]).text());
    values.collect::<Vec<_>>().join(",")
}

#[test]
fn every_value_is_dumped_and_the_database_is_sound() {
    let sandbox = with_samples(&[SEVERAL]);
    let dump = lines(&sandbox.run(&["dump", SEVERAL]).stdout);
    assert_eq!(dump.len(), 376);
    let check = sandbox.run(&["check", SEVERAL]);
    assert_eq!(check.exit, 0, "{}", check.stderr);
    let print = sandbox.run(&["dump", SEVERAL, "--format", "print"]).text();
    assert!(print.starts_with("VERSION=3\nformat=print\ntype=hash\nduplicates=1\n"), "{print}");
    let stat = sandbox.run(&["stat", SEVERAL]).text();
    assert!(stat.contains("further values        364\n"), "{stat}");
    assert!(!stat.contains("Buckets"), "{stat}");
}

#[test]
fn without_a_decision_the_first_value_is_kept_and_the_others_are_counted() {
    let sandbox = with_samples(&[SEVERAL]);
    let errors = converted(&sandbox, 1, &["new.spt"]);
    assert!(errors.contains("converted 12 records of `bdb53"), "{errors}");
    assert!(errors.contains("skipped 364 parts\n") && errors.ends_with(CHOOSE), "{errors}");
    assert_eq!(values(&sandbox, "new.spt", &["key 1", "key 2"]), "value 0 of 1,value 0 of 2");
    let errors = converted(&sandbox, 1, &["--in-place"]);
    assert!(errors.contains("nothing was replaced"), "{errors}");
}

#[test]
fn duplicates_says_what_becomes_of_the_values() {
    let sandbox = with_samples(&[SEVERAL]);
    for (way, file, count, found, words) in [
        ("first", "f.spt", "12\n", "value 0 of 1", "kept the first value of 8 keys"),
        ("last", "l.spt", "12\n", "value 2 of 1", "kept the last value of 8 keys"),
        ("all-as-N", "n.spt", "376\n", "value 0 of 1", "gave 364 further values the keys KEY#2"),
    ] {
        let errors = converted(&sandbox, 0, &[file, "--duplicates", way]);
        assert!(errors.contains(words), "{way}: {errors}");
        assert_eq!(sandbox.run(&["count", file]).text(), count, "{way}");
        assert_eq!(values(&sandbox, file, &["key 1"]), found, "{way}");
    }
    assert_eq!(values(&sandbox, "n.spt", &["key 1#2", "key 1#3"]), "value 1 of 1,value 2 of 1");
    let errors = converted(&sandbox, 1, &["x.spt", "--duplicates", "fail"]);
    assert!(errors.contains("has 8 keys with several values; nothing was converted"), "{errors}");
    assert!(errors.ends_with(CHOOSE), "{errors}");
    assert!(sandbox.path("x.spt").symlink_metadata().is_err());
}

/// A key of the source that looks like the name of another key's second value keeps its own value.
#[test]
fn a_numbered_key_never_takes_the_place_of_a_key_of_the_source() {
    let sandbox = Sandbox::new();
    let mut writer = splitpoint_legacy::CdbWriter::new(
        std::fs::File::create(sandbox.path("several.cdb")).unwrap(),
    )
    .unwrap();
    for (key, value) in [("a", "1"), ("a", "2"), ("a", "3"), ("a#2", "own")] {
        assert!(writer.put(key.as_bytes(), value.as_bytes()).unwrap());
    }
    writer.finish().unwrap();
    let outcome = sandbox.run(&["convert", "several.cdb", "n.spt", "--duplicates", "all-as-n"]);
    assert_eq!(outcome.exit, 1);
    let skipped = "skipped: key `a#2`: value 2 would take this key, which is there\n";
    assert_eq!(outcome.text(), skipped);
    assert_eq!(values(&sandbox, "n.spt", &["a", "a#2", "a#3"]), "1,own,3");
}

#[test]
fn a_cdb_is_written_with_every_value_and_read_back() {
    let sandbox = with_samples(&[SEVERAL]);
    converted(&sandbox, 0, &["all.cdb", "--format", "cdb"]);
    let dumped = |file| lines(&sandbox.run(&["dump", file]).stdout);
    assert!(dumped("all.cdb") == dumped(SEVERAL));
    assert_eq!(sandbox.run(&["identify", "all.cdb"]).text(), "all.cdb: cdb\n");
    converted(&sandbox, 0, &["first.cdb", "--format", "cdb", "--duplicates", "first"]);
    assert_eq!(sandbox.run(&["count", "first.cdb"]).text(), "12\n");
    let again = sandbox.run(&["convert", SEVERAL, "all.cdb", "--format", "cdb"]);
    assert_eq!(again.exit, 3, "{}", again.stderr);
    let url = sandbox.run(&["convert", SEVERAL, "db185:x.db", "--format", "cdb"]);
    assert_eq!(url.exit, 2, "{}", url.stderr);
}

/// Changes byte `at` of the item with this number on a page of one kind, the first or the last.
fn damage_item(sandbox: &Sandbox, kind: u8, is_last: bool, at: usize, byte: u8) {
    const PAGE_BYTES: usize = 512;
    let mut bytes = sandbox.read(SEVERAL);
    let mut pages = (PAGE_BYTES..bytes.len()).step_by(PAGE_BYTES);
    let is_wanted = |page: &usize| bytes[page + 25] == kind;
    let page = if is_last { pages.rfind(is_wanted) } else { pages.find(is_wanted) };
    let page = page.expect("a page of this kind");
    let number = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let index = if is_last { number(page + 20) - 1 } else { 0 };
    let item = page + number(page + 26 + 2 * index);
    bytes[item + at] = byte;
    sandbox.write(SEVERAL, &bytes);
}

const LEAF: u8 = 5;
const LEAF_OF_VALUES: u8 = 6;

#[test]
fn a_damaged_key_does_not_stop_a_conversion_that_numbers_the_values() {
    let sandbox = with_samples(&[SEVERAL]);
    // Of an unknown type.
    damage_item(&sandbox, LEAF, false, 2, 9);
    converted(&sandbox, 1, &["f.spt", "--duplicates", "first"]);
    let errors = converted(&sandbox, 1, &["n.spt", "--duplicates", "all-as-N"]);
    assert!(errors.contains("splitpoint salvage"), "{errors}");
    let count = |file| sandbox.run(&["count", file]).text().trim().parse::<u64>().unwrap();
    assert_eq!(count("f.spt"), 11);
    assert!(count("n.spt") > 300, "{}", count("n.spt"));
    // The advice is for the damage, not for the values.
    let errors = converted(&sandbox, 1, &["d.cdb", "--format", "cdb"]);
    assert!(errors.contains("splitpoint salvage") && !errors.contains("--format"), "{errors}");
}

#[test]
fn no_other_value_takes_the_place_of_an_unreadable_one() {
    let sandbox = with_samples(&[SEVERAL]);
    let keys = |file| lines(&sandbox.run(&["list", file]).stdout);
    let all = keys(SEVERAL);
    damage_item(&sandbox, LEAF_OF_VALUES, true, 2, 9);
    let errors = converted(&sandbox, 1, &["n.spt", "--duplicates", "all-as-N"]);
    assert!(errors.contains("skipped 1 part\n"), "{errors}");
    assert_eq!(sandbox.run(&["count", "n.spt"]).text(), "375\n");
    assert_eq!(lines(&sandbox.run(&["dump", SEVERAL]).stdout).len(), 375);
    // It is the last value of its key.
    converted(&sandbox, 1, &["l.spt", "--duplicates", "last"]);
    let last = keys("l.spt");
    assert_eq!((last.len(), last.is_subset(&all)), (11, true));
    converted(&sandbox, 1, &["f.spt", "--duplicates", "first"]);
    assert_eq!(keys("f.spt"), all);
}

#[test]
fn salvage_saves_every_value_or_says_what_it_left_out() {
    let sandbox = with_samples(&[SEVERAL]);
    let salvaged = |exit: i32, args: &[&str]| {
        let outcome = sandbox.run(&[&["salvage", SEVERAL][..], args].concat());
        assert_eq!(outcome.exit, exit, "{args:?}: {}", outcome.stderr);
        outcome
    };
    let outcome = salvaged(1, &["-o", "first.spt"]);
    assert_eq!(outcome.text(), "skipped: 364 further values of 8 keys with several values\n");
    let hint = "skipped 364 parts\nhint: say what becomes of the values of such a key: --duplicates \
                first, last or all-as-N\n";
    assert!(outcome.stderr.ends_with(hint), "{}", outcome.stderr);
    for (way, file, count, found) in [
        ("first", "f.spt", "12\n", "value 0 of 1"),
        ("last", "l.spt", "12\n", "value 2 of 1"),
        ("all-as-N", "n.spt", "376\n", "value 0 of 1"),
    ] {
        let outcome = salvaged(0, &["-o", file, "--duplicates", way]);
        assert!(outcome.stderr.contains("364"), "{}", outcome.stderr);
        assert_eq!(sandbox.run(&["count", file]).text(), count, "{way}");
        assert_eq!(values(&sandbox, file, &["key 1"]), found, "{way}");
    }
    salvaged(1, &["-o", "x.spt", "--duplicates", "fail"]);
    assert!(sandbox.path("x.spt").symlink_metadata().is_err());
}

/// Files that other programs read are named with the program.
#[test]
fn files_of_other_programs_are_named_with_the_tool_that_reads_them() {
    let sandbox = Sandbox::new();
    let mut lmdb = vec![0; 8192];
    lmdb[16..20].copy_from_slice(&[0xde, 0xc0, 0xef, 0xbe]);
    sandbox.write("l.mdb", &lmdb);
    sandbox.write("s.db", b"SQLite format 3\0");
    sandbox.write("t.tdb", b"TDB file\n");
    sandbox.run(&["identify", "l.mdb", "s.db", "t.tdb"]).check(
        0,
        "l.mdb: an LMDB file (not read; to read it: mdb_dump -n l.mdb | splitpoint load NEW.spt)\n\
         s.db: an SQLite file (not read; to read it: sqlite3 -tabs s.db 'select key, value from t' \
         | splitpoint load --format tsv NEW.spt)\n\
         t.tdb: a tdb file (not read; to read it: tdbdump t.tdb)\n",
        "",
    );
    let error = sandbox.run(&["get", "l.mdb", "key"]).stderr;
    assert!(error.ends_with(
        "hint: check the path; to read it: mdb_dump -n l.mdb | splitpoint load NEW.spt\n"
    ));
}
