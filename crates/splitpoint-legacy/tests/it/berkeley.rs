//! What Berkeley DB's own tools write is read here; what cannot be read is refused by name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use splitpoint::{Error, Table, TableExt};
use splitpoint_legacy::{Format, OldFile, open};

use crate::support::{is_installed, pairs_of};

/// Pairs in the order in which they are loaded: a key may be there several times.
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Loads pairs into a new file of `kind` by Debian's `db5.3_load`; `None` if it is not installed.
fn load(dir: &Path, kind: &str, options: &[&str], pairs: &Pairs) -> Option<PathBuf> {
    if !is_installed("db5.3_load", "db5.3-util") {
        return None;
    }
    let path = dir.join("made.db");
    let mut command = Command::new("db5.3_load");
    command.args(["-t", kind]);
    for option in options {
        command.args(["-c", option]);
    }
    let kind = format!("type={kind}");
    let head = ["VERSION=3", "format=bytevalue", &kind].into_iter();
    let duplicates = options.iter().copied().filter(|option| option.starts_with("dup"));
    let mut lines: Vec<String> = head.chain(duplicates).map(str::to_owned).collect();
    lines.push("HEADER=END".to_owned());
    lines.extend(pairs.iter().map(|(key, value)| format!(" {}\n {}", hex(key), hex(value))));
    lines.push("DATA=END\n".to_owned());
    let text = dir.join("pairs.txt");
    std::fs::write(&text, lines.join("\n")).expect("the pairs are written");
    command.arg("-f").arg(&text).arg(&path).stdin(Stdio::null());
    let output = command.output().expect("the tool runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(path)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut out, byte| {
        write!(out, "{byte:02x}").expect("a string takes anything");
        out
    })
}

/// Short pairs, empty ones, keys and values that need one overflow page and several.
fn plain() -> Pairs {
    let mut pairs = Pairs::new();
    for number in 0..300_usize {
        let value = vec![number as u8; number % 50];
        pairs.push((format!("key {number}").into_bytes(), value));
    }
    for bytes in [100, 127, 128, 129, 400, 486, 487, 500, 512, 1024, 5000] {
        pairs.push((vec![b'k'; bytes], b"value of a long key".to_vec()));
        pairs.push((format!("long {bytes}").into_bytes(), vec![b'v'; bytes]));
    }
    pairs
}

/// Keys with one value, with a few on the page of the key, and with so many that they are in a
/// tree; in rising order, as a sorted database has them.
fn duplicates() -> Pairs {
    let mut pairs = Pairs::new();
    for key in 0..60_usize {
        let values = match key % 10 {
            7 => 400,
            even if even % 2 == 0 => 1,
            odd => odd,
        };
        for value in 0..values {
            let mut value = format!("value {value:03} of {key}").into_bytes();
            // Some are on pages of their own.
            value.resize(
                if key % 10 == 7 && value.ends_with(b"0 of 7") { 600 } else { value.len() },
                b'.',
            );
            pairs.push((format!("key {key}").into_bytes(), value));
        }
    }
    pairs
}

fn firsts(pairs: &Pairs) -> BTreeMap<Vec<u8>, (Vec<u8>, u64)> {
    let mut firsts = BTreeMap::new();
    for (key, value) in pairs {
        let first = firsts.entry(key.clone()).or_insert((value.clone(), 0));
        first.1 += 1;
    }
    firsts
}

fn assert_content(file: &OldFile, pairs: &Pairs, what: &str) {
    let expected = firsts(pairs);
    let found = pairs_of(file);
    assert_eq!(found.len(), expected.len(), "{what}");
    for (key, (first, _)) in &expected {
        assert!(found.get(key) == Some(first), "{what}: {}", key.escape_ascii());
        let value = file.get(key).expect("a lookup");
        assert!(value.as_deref() == Some(first), "{what}: {}", key.escape_ascii());
    }
    // All values of a key follow each other, in their order.
    let mut values: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = BTreeMap::new();
    let mut keys = Vec::new();
    for entry in file.values() {
        let entry = entry.expect("an entry");
        if keys.last() != Some(&entry.key.to_vec()) {
            keys.push(entry.key.to_vec());
        }
        let value = entry.value.expect("a value").to_vec();
        values.entry(entry.key.to_vec()).or_default().push(value);
    }
    assert_eq!(keys.len(), values.len(), "{what}: a key comes back");
    if file.identity().format == Format::BdbBtree {
        assert!(keys.is_sorted(), "{what}: not in order");
    }
    assert!(values == all(pairs), "{what}: all values");
    let survey = file.survey().expect("a check");
    assert_eq!(survey.doubt_count, 0, "{what}: {:?}", survey.doubts);
    let value_count = survey.pair_count + survey.further_value_count;
    assert_eq!(value_count, pairs.len() as u64, "{what}");
    let several = values.values().filter(|values| values.len() > 1).count();
    assert_eq!(survey.several_values_count, several as u64, "{what}");
}

fn all(pairs: &Pairs) -> BTreeMap<Vec<u8>, Vec<Vec<u8>>> {
    let mut all: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = BTreeMap::new();
    for (key, value) in pairs {
        all.entry(key.clone()).or_default().push(value.clone());
    }
    all
}

#[test]
fn what_the_original_loads_is_read() {
    for options in [
        &["db_pagesize=512"][..],
        &["db_pagesize=512", "chksum=1"],
        &["db_pagesize=1024", "db_lorder=4321", "h_ffactor=40"],
        &["db_pagesize=4096", "chksum=1", "db_lorder=4321"],
        &["db_pagesize=65536", "h_nelem=10000"],
    ] {
        let dir = tempfile::tempdir().unwrap();
        let Some(path) = load(dir.path(), "hash", options, &plain()) else { return };
        assert_content(&open(&path).unwrap(), &plain(), &format!("{options:?}"));
    }
}

#[test]
fn all_values_of_a_key_are_read_in_their_order() {
    for options in [
        &["db_pagesize=512", "duplicates=1"][..],
        &["db_pagesize=1024", "duplicates=1", "db_lorder=4321"],
        &["db_pagesize=512", "duplicates=1", "dupsort=1"],
        &["db_pagesize=2048", "duplicates=1", "dupsort=1", "chksum=1"],
    ] {
        let dir = tempfile::tempdir().unwrap();
        let Some(path) = load(dir.path(), "hash", options, &duplicates()) else { return };
        assert_content(&open(&path).unwrap(), &duplicates(), &format!("{options:?}"));
    }
}

#[test]
fn a_btree_that_the_original_loads_is_read_in_the_order_of_its_keys() {
    for options in [
        &["db_pagesize=512"][..],
        &["db_pagesize=512", "chksum=1", "db_lorder=4321"],
        &["db_pagesize=1024", "db_lorder=4321", "bt_minkey=4"],
        &["db_pagesize=512", "recnum=1"],
        &["db_pagesize=65536"],
    ] {
        let dir = tempfile::tempdir().unwrap();
        let Some(path) = load(dir.path(), "btree", options, &plain()) else { return };
        assert_content(&open(&path).unwrap(), &plain(), &format!("{options:?}"));
    }
    for options in [
        &["db_pagesize=512", "duplicates=1"][..],
        &["db_pagesize=1024", "duplicates=1", "db_lorder=4321", "chksum=1"],
        &["db_pagesize=512", "duplicates=1", "dupsort=1"],
        &["db_pagesize=4096", "duplicates=1", "dupsort=1", "db_lorder=4321"],
    ] {
        let dir = tempfile::tempdir().unwrap();
        let Some(path) = load(dir.path(), "btree", options, &duplicates()) else { return };
        assert_content(&open(&path).unwrap(), &duplicates(), &format!("{options:?}"));
    }
}

/// Cuts a btree after each of its pages: whatever is lost is reported, and what is left is as it
/// was.
#[test]
fn a_btree_that_was_cut_short_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = load(dir.path(), "btree", &["db_pagesize=512"], &plain()) else { return };
    let sound = std::fs::read(&path).unwrap();
    let expected = firsts(&plain());
    for pages in 2..sound.len() / 512 {
        std::fs::write(&path, &sound[..512 * pages]).unwrap();
        let file = open(&path).unwrap();
        let entries = file.scan().unwrap().filter_map(Result::ok);
        let found: Vec<_> =
            entries.map(|entry| (entry.key.to_vec(), entry.value.to_vec())).collect();
        assert!(found.iter().all(|(key, value)| expected[key].0 == *value), "{pages}");
        let is_told = file.survey().unwrap().loss_count > 0;
        assert!(is_told || found.len() == expected.len(), "{pages}: {} found", found.len());
    }
}

/// Versions 7 and 8 do not sort the pairs of a page and say so in its type; 10 has the pages of 9.
#[test]
fn the_versions_with_the_same_pages_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = load(dir.path(), "hash", &["db_pagesize=512"], &plain()) else { return };
    let sound = std::fs::read(&path).unwrap();
    for version in [7, 8, 9, 10] {
        let mut bytes = sound.clone();
        bytes[16] = version;
        for page in bytes.chunks_mut(512).skip(1).filter(|page| page[25] == 13 && version < 9) {
            page[25] = 2;
        }
        std::fs::write(&path, bytes).unwrap();
        assert_content(&open(&path).unwrap(), &plain(), &format!("version {version}"));
    }
    for version in [5, 6, 11] {
        let mut bytes = sound.clone();
        bytes[16] = version;
        std::fs::write(&path, bytes).unwrap();
        let error = open(&path).unwrap_err();
        let found = u32::from(version);
        assert!(matches!(error, Error::Version { found: f, .. } if f == found), "{error}");
    }
}

#[test]
fn what_cannot_be_read_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = load(dir.path(), "hash", &["db_pagesize=512"], &plain()) else { return };
    let sound = std::fs::read(&path).unwrap();
    for (at, byte, name) in [(24, 1, "encrypted"), (26, 2, "partitions"), (26, 4, "partitions")] {
        let mut bytes = sound.clone();
        bytes[at] = byte;
        std::fs::write(&path, bytes).unwrap();
        let error = open(&path).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
}

/// Flips a byte of each page of a database with checksums: no pair of that page is believed, and
/// none of another is lost.
#[test]
fn a_wrong_checksum_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let pairs = plain();
    let Some(path) = load(dir.path(), "hash", &["db_pagesize=512", "chksum=1"], &pairs) else {
        return;
    };
    let sound = std::fs::read(&path).unwrap();
    let expected = firsts(&pairs);
    let mut told = 0;
    for page in 0..sound.len() / 512 {
        let mut bytes = sound.clone();
        // Of the header, a field that is not used; of a page, its last byte.
        bytes[512 * page + if page == 0 { 300 } else { 511 }] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let file = open(&path).unwrap();
        let (mut faults, mut pair_count) = (0, 0);
        for entry in file.scan().unwrap() {
            match entry {
                Ok(entry) => {
                    assert!(expected[&entry.key[..]].0 == entry.value[..], "page {page}");
                    pair_count += 1;
                }
                Err(error) => {
                    assert!(error.to_string().contains("checksum"), "page {page}: {error}");
                    faults += 1;
                }
            }
        }
        // Pages are made for a whole doubling at once: not all are in use.
        assert!(faults == 1 || pair_count == expected.len(), "page {page}: {faults}");
        told += faults;
    }
    assert!(told > 50, "{told}");
}
