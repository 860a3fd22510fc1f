//! The original library, glibc's libdb1, reads what is written here and writes what is read here.
//!
//! It is driven by `tests/db185/original.py`. Where python3 or the library is missing (Debian:
//! libdb1-compat), these tests say so and pass, but not in continuous integration. `LIBDB1` may name
//! the library.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use splitpoint::{Table, TableExt};
use splitpoint_legacy::ByteOrder;
use splitpoint_legacy::db185::Options;

use crate::support::left_out;

use super::{Content, assert_content, assert_sound, assert_whole, hex, lines};

/// Runs the original, or returns `None` if it is not installed.
fn original(arguments: &[&str], input: &str) -> Option<Result<String, String>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/db185/original.py");
    let run = |arguments: &[&str]| {
        let mut command = Command::new("python3");
        command.arg(&script).args(arguments).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    };
    let is_there = run(&["find"]).and_then(std::process::Child::wait_with_output);
    if !is_there.is_ok_and(|output| output.status.success()) {
        left_out("python3 or libdb1 is not installed; Debian has them in python3, libdb1-compat");
        return None;
    }
    let mut child = run(arguments).expect("python3 was there a moment ago");
    // It may end before it has read all; then its status tells.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("python3 ends");
    Some(if output.status.success() {
        Ok(String::from_utf8(output.stdout).expect("hexadecimal digits"))
    } else {
        Err(format!("{} {}", output.status, String::from_utf8_lossy(&output.stderr)))
    })
}

/// Pairs of all kinds for pages of `page_bytes`: short, empty, and near every border at which a
/// big pair is laid out otherwise.
fn pairs(page_bytes: usize) -> Content {
    let mut pairs = Content::new();
    for number in 0..300_u32 {
        let key = format!("key {number}").into_bytes();
        pairs.insert(key, vec![number as u8; number as usize % 40]);
    }
    let part = page_bytes - 14;
    for (number, key_bytes) in
        [20, part - 1, part, part + 1, 2 * part - 3, 2 * part - 1, 2 * part, 2 * part + 1]
            .into_iter()
            .enumerate()
    {
        for total in [part, part + 1, 2 * part, 3 * part] {
            for offset in 0..5 {
                let value_bytes = (total + offset).saturating_sub(key_bytes + 2);
                let mut key = format!("{number} {total} {offset} ").into_bytes();
                key.resize(key_bytes, b'k');
                pairs.insert(key, vec![b'v'; value_bytes]);
            }
        }
    }
    pairs.insert(b"the last".to_vec(), Vec::new());
    pairs
}

const SETUPS: [(u32, u32, u64, ByteOrder); 6] = [
    (64, 2, 1, ByteOrder::Little),
    (128, 6, 1, ByteOrder::Big),
    (256, 200, 1, ByteOrder::Little),
    (512, 8, 1000, ByteOrder::Big),
    (4096, 40, 1, ByteOrder::Little),
    (32768, 100, 1, ByteOrder::Big),
];

#[test]
fn what_is_written_here_is_read_by_the_original() {
    for (page_bytes, fill_factor, records, order) in SETUPS {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("table.db");
        let options = Options::new().page_bytes(page_bytes).fill_factor(fill_factor);
        let table = options.expected_records(records).byte_order(order).open(&path).unwrap();
        let mut model = pairs(page_bytes as usize);
        for (key, value) in &model {
            assert!(table.put_new(key, value).unwrap());
        }
        // Deletes and replacements leave their own layouts.
        let keys: Vec<_> = model.keys().cloned().collect();
        for key in keys.iter().step_by(5) {
            assert!(table.delete(key).unwrap());
            model.remove(key);
        }
        for key in keys.iter().skip(1).step_by(7) {
            let value = vec![b'n'; key.len() % 100 * 3];
            table.put(key, &value).unwrap();
            model.insert(key.clone(), value);
        }
        table.close().unwrap();
        let Some(dump) = original(&["dump", path.to_str().unwrap()], "") else { return };
        let dump = dump.unwrap_or_else(|error| panic!("{page_bytes} {order:?}: {error}"));
        assert!(dump == lines(&model), "{page_bytes} {order:?}: the original reads other pairs");
    }
}

/// The original adds to a file of ours and deletes from it. The keys are short: it has bugs of its
/// own with others, and cannot sync pages of the other byte order, only close them.
#[test]
fn what_the_original_adds_to_a_file_written_here_is_read_here() {
    for (page_bytes, fill_factor, records, order) in SETUPS {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("table.db");
        let options = Options::new().page_bytes(page_bytes).fill_factor(fill_factor);
        let table = options.expected_records(records).byte_order(order).open(&path).unwrap();
        let mut model = pairs(page_bytes as usize);
        for (key, value) in &model {
            assert!(table.put_new(key, value).unwrap());
        }
        table.close().unwrap();
        let mut changes = Vec::new();
        for number in 200..900_u32 {
            let key = format!("key {number}").into_bytes();
            if number % 3 == 0 && model.remove(&key).is_some() {
                changes.push(hex(&key));
            } else {
                let value = vec![b'o'; number as usize % 20];
                changes.push(format!("{} {}", hex(&key), hex(&value)));
                model.insert(key, value);
            }
        }
        let changes = changes.join("\n");
        let Some(result) = original(&["change", path.to_str().unwrap()], &changes) else { return };
        result.unwrap_or_else(|error| panic!("{page_bytes} {order:?}: {error}"));
        assert_whole(&path, model.len());
        let table = Options::new().open(&path).unwrap();
        assert_content(&table, &model);
        // And it can go on here.
        for number in 0..900_u32 {
            let key = format!("key {number}").into_bytes();
            assert_eq!(table.delete(&key).unwrap(), model.remove(&key).is_some());
        }
        assert_content(&table, &model);
    }
}

/// The same pairs put in the same order give a table of the same shape as the original's.
#[test]
fn tables_have_the_shape_that_the_original_gives_them() {
    for (page_bytes, fill_factor, records, order) in SETUPS {
        let dir = tempfile::tempdir().unwrap();
        let (path, theirs) = (dir.path().join("ours.db"), dir.path().join("theirs.db"));
        let options = Options::new().page_bytes(page_bytes).fill_factor(fill_factor);
        let table = options.expected_records(records).byte_order(order).open(&path).unwrap();
        let mut model = Content::new();
        for number in 0..1000_u32 {
            let key = format!("{number}").into_bytes();
            model.insert(key, vec![b'v'; number as usize % 12]);
        }
        for (key, value) in &model {
            table.put_new(key, value).unwrap();
        }
        let lorder = if order == ByteOrder::Big { 4321 } else { 1234 };
        let arguments = [page_bytes.into(), fill_factor.into(), records, lorder];
        let arguments = arguments.map(|number: u64| number.to_string());
        let mut all = vec!["make", theirs.to_str().unwrap()];
        all.extend(arguments.iter().map(String::as_str));
        let Some(made) = original(&all, &lines(&model)) else { return };
        made.unwrap();
        assert_whole(&theirs, model.len());
        let made = Options::new().read_only().open(&theirs).unwrap();
        assert_content(&made, &model);
        // When a page overflows depends on how full pages are, so numbers of splits may differ a
        // little where those are what causes them.
        let buckets = |table: &dyn Table| table.stats().unwrap().geometry.bucket_count();
        let (ours, their) = (buckets(&table), buckets(&made));
        assert!(ours.abs_diff(their) <= their / 10, "{page_bytes} {order:?}: {ours} {their}");
        table.close().unwrap();
        if page_bytes == 4096 {
            // Header fields apart from sizes of the original's memory and hints.
            let header = |path: &Path| std::fs::read(path).unwrap()[..36].to_vec();
            assert_eq!(header(&path), header(&theirs));
        }
        let table = Options::new().read_only().open(&path).unwrap();
        assert_content(&table, &model);
        assert_sound(&table);
    }
}
