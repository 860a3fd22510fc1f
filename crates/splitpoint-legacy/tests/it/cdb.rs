//! cdb files by tinycdb, and those that are written here.

use std::io::{BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use splitpoint::{Table, TableExt as _};
use splitpoint_legacy::{CdbWriter, Format, identify, open, open_damaged};

use crate::support::{expected, fixtures, is_installed, listed, pairs_of};

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn write(path: &Path, pairs: &Pairs) {
    let file = std::fs::File::create(path).expect("the file is written");
    let mut writer = CdbWriter::new(BufWriter::new(file)).expect("the file is written");
    for (key, value) in pairs {
        assert!(writer.put(key, value).expect("the file is written"));
    }
    writer.finish().expect("the file is written");
}

/// Runs tinycdb's `cdb` and returns what it prints.
fn cdb(arguments: &[&str], file: &Path, input: &[u8]) -> Vec<u8> {
    let mut command = Command::new("cdb");
    command.args(arguments).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the tool runs");
    child.stdin.take().expect("the file is written").write_all(input).expect("the file is written");
    let output = child.wait_with_output().expect("the file is written");
    assert!(output.status.success());
    output.stdout
}

/// Empty keys and values, values of 70,000 bytes, a key with 1,000 values, and as many keys as fill
/// every table.
fn many() -> Pairs {
    let mut pairs: Pairs = (0..3000_u32)
        .map(|number| {
            (format!("key {number}").into_bytes(), vec![number as u8; number as usize % 70])
        })
        .collect();
    pairs.push((Vec::new(), b"value of the empty key".to_vec()));
    pairs.push((b"long".to_vec(), vec![b'v'; 70_000]));
    pairs.extend((0..1000_u32).map(|n| (b"several".to_vec(), n.to_string().into_bytes())));
    pairs
}

#[test]
fn the_samples_are_written_byte_by_byte_as_tinycdb_writes_them() {
    let dir = tempfile::tempdir().unwrap();
    for (name, list) in [
        ("cdb-tinycdb-empty", "cdb-tinycdb-empty.expect.txt"),
        ("cdb-tinycdb-several", "cdb-tinycdb-several.values.txt"),
    ] {
        let path = dir.path().join(name);
        write(&path, &listed(list));
        let original = std::fs::read(fixtures().join(format!("{name}.cdb"))).unwrap();
        assert!(std::fs::read(&path).unwrap() == original, "{name}");
    }
}

#[test]
fn tinycdb_and_this_library_read_each_other() {
    if !is_installed("cdb", "tinycdb") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
    write(&ours, &many());
    let dump = cdb(&["-d"], &ours, b"");
    cdb(&["-c"], &theirs, &dump);
    assert!(std::fs::read(&ours).unwrap() == std::fs::read(&theirs).unwrap());
    let file = open(&theirs).unwrap();
    let mut expected = many();
    let found = file.values().map(Result::unwrap);
    let mut found: Pairs =
        found.map(|one| (one.key.to_vec(), one.value.unwrap().to_vec())).collect();
    expected.sort_by(|one, other| one.0.cmp(&other.0));
    found.sort_by(|one, other| one.0.cmp(&other.0));
    assert!(found == expected);
    assert_eq!(file.get(b"several").unwrap().as_deref(), Some(&b"0"[..]));
    assert_eq!(file.survey().unwrap().doubt_count, 0);
    assert_eq!(file.stats().unwrap().hash_name, "cdb");
}

/// Cuts a file at many lengths. A cdb has its tables at its end, so that nothing is found without
/// a salvage, which finds each record that is whole.
#[test]
fn a_cdb_that_was_cut_says_so_and_its_records_are_salvaged() {
    let sound = std::fs::read(fixtures().join("cdb-tinycdb-word.cdb")).unwrap();
    let expected = expected("cdb-tinycdb-word");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cut");
    for len in (2048..sound.len()).step_by(499) {
        std::fs::write(&path, &sound[..len]).unwrap();
        assert_eq!(identify(&path).unwrap().unwrap().format, Format::Cdb);
        let file = open(&path).unwrap();
        assert!(file.survey().unwrap().loss_count > 0, "{len}");
        assert!(file.scan().unwrap().any(|entry| entry.is_err()), "{len}");
        let mut saved = Pairs::new();
        let file = open_damaged(&path).unwrap();
        let faults = file.salvage(|one, _| {
            saved.push((one.key.to_vec(), one.value?.to_vec()));
            Ok(())
        });
        assert!(!faults.unwrap().is_empty(), "{len}");
        assert!(saved.iter().all(|(key, value)| expected[key] == *value), "{len}");
        let whole = saved.iter().map(|(key, value)| 8 + key.len() + value.len()).sum::<usize>();
        assert!(2048 + whole + 100 > len.min(2048 + 14_000), "{len}: {whole}");
    }
}

/// Moves the slot of a record where no lookup gets to: it is reported, and not returned.
#[test]
fn a_slot_that_no_lookup_reaches_is_told() {
    let mut bytes = std::fs::read(fixtures().join("cdb-tinycdb-word.cdb")).unwrap();
    let (start, _) = tables_of(&bytes).into_iter().find(|(_, slots)| *slots == 2).unwrap();
    bytes[start..start + 16].rotate_left(8);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("moved");
    std::fs::write(&path, bytes).unwrap();
    let file = open(&path).unwrap();
    assert_eq!(file.survey().unwrap().loss_count, 1);
    let fault = file.survey().unwrap().fault().unwrap();
    assert_eq!(fault.what, "place of a slot");
    let found = file.scan().unwrap().flatten().count();
    assert_eq!(found + 1, pairs_of(&open(fixtures().join("cdb-tinycdb-word.cdb")).unwrap()).len());
}

/// A table of eight million slots, of which two are not in a hole: one that a lookup finds, and one
/// behind an empty slot.
#[test]
fn the_holes_of_a_sparse_table_are_empty_slots() {
    const SLOTS: u32 = 8 << 20;
    let hash = |key: &[u8]| {
        key.iter().fold(5381, |hash: u32, &byte| hash.wrapping_mul(33) ^ u32::from(byte))
    };
    // Two keys of one table.
    let table = hash(b"a") % 256;
    let other = (0..10_000_u32).map(|number| number.to_string().into_bytes());
    let other = other.into_iter().find(|key| hash(key) % 256 == table).expect("one of 256");
    let pair = |one: u32, other: u32| [one.to_le_bytes(), other.to_le_bytes()].concat();
    let mut records = Vec::new();
    let places = [&b"a"[..], &other].map(|key| {
        let place = 2048 + records.len() as u32;
        records.extend([pair(key.len() as u32, 5), key.to_vec(), b"value".to_vec()].concat());
        place
    });
    let start = 2048 + records.len() as u32;
    let head = (0..256_u32).flat_map(|index| match index {
        _ if index == table => pair(start, SLOTS),
        _ => pair(start + if index > table { 8 * SLOTS } else { 0 }, 0),
    });
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sparse.cdb");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(u64::from(start) + 8 * u64::from(SLOTS)).unwrap();
    file.write_all_at(&head.collect::<Vec<u8>>(), 0).unwrap();
    file.write_all_at(&records, 2048).unwrap();
    for (key, record, behind) in [(&b"a"[..], places[0], 0), (&other, places[1], 1)] {
        let slot = (hash(key) >> 8) % SLOTS + behind;
        let at = u64::from(start) + 8 * u64::from(slot);
        file.write_all_at(&pair(hash(key), record), at).unwrap();
    }
    let file = open(&path).unwrap();
    assert_eq!(file.get(b"a").unwrap().as_deref(), Some(&b"value"[..]));
    let survey = file.survey().unwrap();
    assert_eq!((survey.pair_count, survey.loss_count), (1, 1));
    assert_eq!(survey.fault().unwrap().what, "place of a slot");
}

/// Returns where each table of a cdb begins, and its slots.
fn tables_of(bytes: &[u8]) -> Vec<(usize, usize)> {
    let tables = bytes[..2048].as_chunks::<8>().0.iter().map(|pair| {
        let [start, slots] =
            [0, 4].map(|at| u32::from_le_bytes(pair[at..at + 4].try_into().expect("4 bytes")));
        (start as usize, slots as usize)
    });
    tables.collect()
}

#[test]
fn a_second_slot_of_a_record_is_told_and_is_no_second_value() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("two");
    write(&path, &vec![(b"key".to_vec(), b"value".to_vec())]);
    let mut bytes = std::fs::read(&path).unwrap();
    let (start, _) = tables_of(&bytes).into_iter().find(|(_, slots)| *slots == 2).unwrap();
    let is_first = bytes[start + 4..start + 8] != [0; 4];
    let (used, free) = if is_first { (start, start + 8) } else { (start + 8, start) };
    bytes.copy_within(used..used + 8, free);
    std::fs::write(&path, bytes).unwrap();
    let file = open(&path).unwrap();
    assert_eq!(file.values().flatten().count(), 1);
    let survey = file.survey().unwrap();
    assert_eq!((survey.pair_count, survey.further_value_count), (1, 0));
    assert_eq!(survey.fault().unwrap().what, "number of slots of a record");
}

/// The first number of a cdb is the end of its records, which may be the magic number of another
/// format.
#[test]
fn a_cdb_whose_length_is_the_number_of_another_format_is_a_cdb() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("long");
    for magic in [0x0005_3162, 0x0006_1561] {
        let value = vec![b'v'; magic - 2048 - 9];
        write(&path, &vec![(b"k".to_vec(), value.clone())]);
        assert_eq!(identify(&path).unwrap().unwrap().format, Format::Cdb, "{magic}");
        assert_eq!(open(&path).unwrap().get(b"k").unwrap().as_deref(), Some(&value[..]));
    }
}

/// Places are numbers of four bytes, so that a table cannot end further on.
#[test]
fn a_table_that_ends_behind_4_gib_is_none_of_a_cdb() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("far");
    let mut bytes = Vec::new();
    for _ in 0..256 {
        bytes.extend([2048_u32.to_le_bytes(), 0_u32.to_le_bytes()].concat());
    }
    // The last table takes the rest of 32 GiB.
    bytes[2044..2048].copy_from_slice(&u32::MAX.to_le_bytes());
    std::fs::write(&path, &bytes).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 36).unwrap();
    assert!(identify(&path).unwrap().is_none_or(|found| found.format != Format::Cdb));
}
