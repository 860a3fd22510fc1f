//! The 1991 package as an access method.

#[path = "../../../../splitpoint/tests/it/conformance.rs"]
mod conformance;
mod fixtures;
mod model;
mod original;
mod salvage;
mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use splitpoint::hash::{HashFunction, HashId};
use splitpoint::{Table, TableExt};
use splitpoint_legacy::db185::Db185;

/// Contents of a table.
pub(crate) type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// Returns where the file `name` of the samples is.
pub(crate) fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Returns the names of all samples of the format, without `.db`.
pub(crate) fn fixture_names() -> Vec<String> {
    let entries = std::fs::read_dir(fixture("")).expect("there are samples");
    let names = entries.map(|entry| entry.expect("it is listed").file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    let names = names.filter(|name| name.starts_with("db185-"));
    let mut names: Vec<_> =
        names.filter_map(|name| name.strip_suffix(".db").map(str::to_owned)).collect();
    names.sort();
    names
}

/// FNV-1a in 32 bits: the user function of one of the samples.
pub(crate) fn fnv1a_32() -> HashFunction {
    let hash = |key: &[u8], _| {
        let step = |hash: u32, &byte: &u8| (hash ^ u32::from(byte)).wrapping_mul(16_777_619);
        u64::from(key.iter().fold(2_166_136_261, step))
    };
    HashFunction::user(HashId(0x8000_1a32), "fnv1a-32", hash).expect("a name and a free id")
}

/// Returns what `<name>.expect.txt` says.
pub(crate) fn expected(name: &str) -> Content {
    let text = std::fs::read_to_string(fixture(&format!("{name}.expect.txt")));
    let mut content = Content::new();
    for line in text.expect("every sample has its pairs").lines() {
        let (key, value) = line.split_once(' ').expect("a pair on each line");
        assert!(content.insert(unhex(key), unhex(value)).is_none(), "a key twice in {name}");
    }
    content
}

fn unhex(text: &str) -> Vec<u8> {
    if text == "-" {
        return Vec::new();
    }
    let digits = text.as_bytes().chunks(2);
    let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).expect("ASCII"), 16);
    digits.map(|two| byte(two).expect("two digits")).collect()
}

/// Returns everything that a scan returns; a key twice is a failure.
pub(crate) fn content(table: &dyn Table) -> Content {
    let mut content = Content::new();
    for entry in table.scan().expect("a scan begins") {
        let entry = entry.expect("nothing is damaged");
        let earlier = content.insert(entry.key.to_vec(), entry.value.to_vec());
        assert_eq!(earlier, None, "a scan returned {:?} twice", entry.key.to_vec());
    }
    content
}

/// Checks that scan, len and get agree with `expected`.
pub(crate) fn assert_content(table: &dyn Table, expected: &Content) {
    let found = content(table);
    if found != *expected {
        let missing = expected.keys().find(|key| found.get(*key) != expected.get(*key));
        let extra = found.keys().find(|key| !expected.contains_key(*key));
        panic!("{} of {} keys; {missing:?}, {extra:?}", found.len(), expected.len());
    }
    assert_eq!(table.len().expect("nothing is damaged"), expected.len() as u64);
    for (key, value) in expected {
        let found = table.get(key).expect("nothing is damaged");
        assert_eq!(found.as_deref(), Some(&value[..]), "{key:?}");
    }
}

/// Checks that a check finds nothing.
pub(crate) fn assert_sound(table: &Db185) {
    let report = table.check().expect("the pages can be read");
    assert!(report.is_clean(), "{} damages: {:?}", report.damage_count, report.damages.first());
    assert_eq!(report.leaked_page_count, 0);
}

/// Checks that the file at `path` has `record_count` records and all that it states of itself.
pub(crate) fn assert_whole(path: &Path, record_count: usize) {
    let file = splitpoint_legacy::open(path).expect("the file can be read");
    let survey = file.survey().expect("the file can be read");
    assert_eq!(survey.doubts, []);
    assert_eq!(survey.pair_count, record_count as u64);
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "-".to_owned();
    }
    let digit = |half: u8| char::from_digit(half.into(), 16).expect("half a byte");
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Returns the pairs as the lists of the samples have them.
pub(crate) fn lines(content: &Content) -> String {
    let lines = content.iter().map(|(key, value)| format!("{} {}\n", hex(key), hex(value)));
    let mut lines: Vec<_> = lines.collect();
    lines.sort();
    lines.concat()
}
