//! The sample files and what is in them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use splitpoint::Table;

/// Returns whether `tool` is on the `PATH`. Where it must be, its absence is a failure; elsewhere
/// the test says that it is left out.
pub(crate) fn is_installed(tool: &str, package: &str) -> bool {
    let dirs = std::env::var_os("PATH").unwrap_or_default();
    let is_found = std::env::split_paths(&dirs).any(|dir| dir.join(tool).is_file());
    if !is_found {
        left_out(&format!("no `{tool}` on PATH; Debian has it in package {package}"));
    }
    is_found
}

/// Says that a test is left out.
///
/// # Panics
///
/// Where nothing may be left out: in continuous integration.
pub(crate) fn left_out(reason: &str) {
    use std::io::Write as _;
    assert!(std::env::var_os("CI").is_none_or(|value| value != "true"), "{reason}");
    // Not `eprintln!`, which the test harness would hide.
    let _ = writeln!(std::io::stderr(), "left out: {reason}");
}

/// Returns the directory of the sample files.
pub(crate) fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Returns the files of the sample `name`, the one with the pairs first.
pub(crate) fn files_of(name: &str) -> Vec<PathBuf> {
    let endings = [".pag", ".dat", ".dir", ".gdbm", ".db", ".bdb53", ".cdb"];
    let candidates = endings.map(|ending| fixtures().join(format!("{name}{ending}")));
    candidates.into_iter().filter(|path| path.is_file()).collect()
}

/// Returns the name of every sample, in order.
pub(crate) fn names() -> Vec<String> {
    let entries = std::fs::read_dir(fixtures()).expect("the fixtures are there");
    let files = entries.map(|entry| entry.expect("a directory").file_name());
    let names = files.filter_map(|name| {
        let name = name.into_string().expect("ASCII");
        name.strip_suffix(".expect.txt").map(str::to_owned)
    });
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    names
}

/// Returns what is in the sample `name`.
pub(crate) fn expected(name: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
    listed(&format!("{name}.expect.txt")).into_iter().collect()
}

/// Returns the pairs that a file of this directory lists, line by line.
pub(crate) fn listed(file: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let text = std::fs::read_to_string(fixtures().join(file)).expect("the list of its pairs");
    let pairs = text.lines().map(|line| {
        let (key, value) = line.split_once(' ').expect("key and value");
        (unhex(key), unhex(value))
    });
    pairs.collect()
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    if text == "-" {
        return Vec::new();
    }
    let digits = text.as_bytes().chunks(2);
    let byte = |digits: &[u8]| {
        let digits = std::str::from_utf8(digits).expect("ASCII");
        u8::from_str_radix(digits, 16).expect("hex")
    };
    digits.map(byte).collect()
}

/// Returns every pair of a scan, which must not have a key twice.
pub(crate) fn pairs_of(table: &dyn Table) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut pairs = BTreeMap::new();
    for entry in table.scan().expect("a scan") {
        let entry = entry.expect("a pair");
        let earlier = pairs.insert(entry.key.to_vec(), entry.value.to_vec());
        assert_eq!(earlier, None, "key {} twice", entry.key.escape_ascii());
    }
    pairs
}
