//! Copies of stores in files whose space was used again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

use super::*;
use crate::{Batch, Db, ErrorKind, Sharing};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Keys with values of 60 bytes; as many as a twentieth have values of 40,000.
const KEYS: u64 = 2000;

fn options() -> Options {
    let options = Options::new().durability(crate::Durability::Buffered).seed(7);
    options.segment_bytes_min(4096).checkpoint_bytes_min(16_384).poison_freed()
}

fn key(i: u64) -> [u8; 8] {
    i.to_le_bytes()
}

fn value(i: u64, round: u64) -> Vec<u8> {
    let bytes = if i.is_multiple_of(20) && round == 0 { 40_000 } else { 60 };
    vec![(i ^ round) as u8; bytes]
}

fn put_all(db: &Db, round: u64) {
    for i in 0..KEYS {
        db.put(key(i), value(i, round)).expect("there is room");
    }
}

fn is_compacted(db: &Db) -> bool {
    db.store().lock().expect("nothing fails").superblock.is_compacted
}

/// Overwrites until space was used again.
fn churn(db: &Db) {
    for round in 1..40 {
        put_all(db, round);
        db.maintain(u64::MAX).expect("nothing fails");
        if is_compacted(db) && round > 3 {
            return;
        }
    }
    panic!("the store is never compacted");
}

/// Returns a compacted store with small and big values.
fn compacted(path: &Path) -> Db {
    let db = options().open(path).expect("a new store");
    put_all(&db, 0);
    churn(&db);
    put_all(&db, 0);
    for i in (0..KEYS).step_by(7) {
        db.delete(key(i)).expect("nothing fails");
    }
    db
}

fn content(db: &Db) -> Model {
    let entries = db.scan().expect("nothing fails").map(|entry| entry.expect("nothing fails"));
    entries.map(|entry| (entry.key.into_vec(), entry.value.into_vec())).collect()
}

fn uuid(path: &Path) -> [u8; 16] {
    let bytes = fs::read(path).expect("it is there");
    let copies = crate::format::SUPERBLOCK_OFFSETS
        .map(|at| Superblock::decode(&bytes[at as usize..][..SUPERBLOCK_BYTES as usize]));
    crate::format::newest(&copies).expect("a superblock").uuid
}

/// Checks that a copy is closed, sound and compact, and has just these pairs.
#[track_caller]
fn assert_copy(path: &Path, expected: &Model) {
    let db = Options::new().create(Create::Never).open(path).expect("a copy opens");
    assert_eq!(db.recovery(), crate::Recovery::Clean);
    let found = content(&db);
    assert_eq!(found.len(), expected.len());
    assert!(found == *expected, "another value");
    let report = db.check().expect("nothing fails");
    assert!(report.is_clean(), "{:?}", report.damages);
    let stats = db.stats().expect("nothing fails");
    // Of a big record also the one that names it.
    assert!(stats.dead_bytes < stats.live_bytes / 100, "a copy is compact: {stats:?}");
}

/// Deletes, overwrites and adds keys.
fn change_everything(db: &Db, round: u64) {
    for i in (round % 3..KEYS).step_by(3) {
        db.delete(key(i)).expect("nothing fails");
    }
    let mut batch = Batch::new();
    for i in (0..KEYS).step_by(5) {
        batch = batch.delete(key(i)).put(key(KEYS + i), b"new");
    }
    db.apply(&batch).expect("there is room");
    put_all(db, 100 + round);
    db.maintain(u64::MAX).expect("nothing fails");
}

#[test]
fn a_copy_of_a_compacted_store_has_just_what_its_moment_had_whatever_changes_meanwhile() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, copy) = (dir.path().join("a.spt"), dir.path().join("copy.spt"));
    let db = compacted(&path);
    let model = content(&db);
    let mut calls = 0;
    let report = db.backup_with().on_progress(|_| {
        // The moment comes after the first call.
        if calls > 0 {
            change_everything(&db, calls);
        }
        calls += 1;
        ControlFlow::Continue(())
    });
    let report = report.write(&copy).expect("nothing fails");
    assert!(calls >= 3, "nothing was changed meanwhile");
    assert_eq!(report.record_count, model.len() as u64);
    assert_eq!(report.file_bytes, fs::metadata(&copy).expect("it is there").len());
    assert_copy(&copy, &model);
    assert_ne!(uuid(&path), uuid(&copy), "another lineage");
    let report = db.check().expect("nothing fails");
    assert!(report.is_clean(), "{:?}", report.damages);
}

#[test]
fn a_stream_from_a_compacted_store_is_a_closed_copy() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, copy) = (dir.path().join("a.spt"), dir.path().join("copy.spt"));
    let db = compacted(&path);
    let model = content(&db);
    let report = db.backup_to(File::create(&copy).expect("a file")).expect("nothing fails");
    assert_eq!(report.file_bytes, fs::metadata(&copy).expect("it is there").len());
    assert_copy(&copy, &model);
    db.close().expect("nothing fails");
    let of_file = Backup::of_file(&path).write_to(File::create(&copy).expect("a file"));
    assert_eq!(of_file.expect("nothing fails").record_count, model.len() as u64);
    assert_copy(&copy, &model);
}

#[test]
fn a_compacted_file_is_copied_closed_left_and_beside_a_writer_that_is_not_exclusive() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, copy) = (dir.path().join("a.spt"), dir.path().join("copy.spt"));
    let db = compacted(&path);
    let model = content(&db);
    backup(&path, &copy).expect("it is written to, which stands in nobody's way");
    assert_copy(&copy, &model);
    fs::remove_file(&copy).expect("it is there");
    db.close().expect("nothing fails");
    let db = Options::new().sharing(Sharing::Exclusive).open(&path).expect("nobody else is there");
    db.put(b"key", b"value").expect("there is room");
    db.delete(b"key").expect("it is there");
    let error = backup(&path, &copy).expect_err("nobody else may have it open");
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert!(error.to_string().contains("call `Db::backup` in that program"), "{error}");
    assert!(!copy.exists());
    // As a power loss leaves it, or a copy of the bytes.
    db.sync().expect("nothing fails");
    let left = dir.path().join("left.spt");
    fs::copy(&path, &left).expect("there is room");
    let report = backup(&left, &copy).expect("nothing fails");
    assert!(report.is_recovered);
    assert_copy(&copy, &model);
    db.close().expect("nothing fails");
    let before = fs::read(&path).expect("it is there");
    let report = Backup::of_file(&path).replace_existing().write(&copy).expect("nothing fails");
    assert!(!report.is_recovered);
    assert_copy(&copy, &model);
    assert!(before == fs::read(&path).expect("it is there"), "nothing is written to the source");
}

/// A store that another handle begins to compact while its log is copied without a handle.
#[test]
fn a_log_that_is_given_away_under_a_copy_of_a_file_is_copied_again_by_its_pairs() {
    for is_stream in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, copy) = (dir.path().join("a.spt"), dir.path().join("copy.spt"));
        let db = options().open(&path).expect("a new store");
        put_all(&db, 0);
        assert!(!is_compacted(&db));
        let mut is_given_away = false;
        let backup = Backup::of_file(&path).on_progress(|now| {
            if now.stage == BackupStage::Copy && now.bytes > 0 && !is_given_away {
                is_given_away = true;
                churn(&db);
            }
            ControlFlow::Continue(())
        });
        let copied = if is_stream { backup.write_to(Vec::new()) } else { backup.write(&copy) };
        match copied {
            Ok(_) => {
                assert!(!is_stream, "a part of the log had gone out");
                assert_copy(&copy, &content(&db));
            }
            // What lay there has been used for something else.
            Err(error) => {
                assert!(is_stream, "{error}");
                assert!([ErrorKind::Corrupt, ErrorKind::Locked].contains(&error.kind()), "{error}");
                assert!(!copy.exists());
            }
        }
        assert!(is_given_away);
    }
}

#[test]
fn a_handle_that_begins_to_compact_keeps_the_log_that_is_being_copied() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, copy) = (dir.path().join("a.spt"), dir.path().join("copy.spt"));
    let db = options().open(&path).expect("a new store");
    put_all(&db, 0);
    let model = content(&db);
    let mut is_first = true;
    let backup = db.backup_with().on_progress(|_| {
        if std::mem::take(&mut is_first) {
            churn(&db);
        }
        ControlFlow::Continue(())
    });
    backup.write(&copy).expect("the log is kept");
    let copy = Options::new().create(Create::Never).open(&copy).expect("a copy opens");
    assert!(content(&copy) == model);
    assert!(is_compacted(&db));
}

#[test]
fn a_damaged_record_of_a_compacted_store_is_not_copied() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, copy) = (dir.path().join("a.spt"), dir.path().join("copy.spt"));
    let db = compacted(&path);
    db.put(b"needle", [0x5a; 333]).expect("there is room");
    db.close().expect("nothing fails");
    let mut bytes = fs::read(&path).expect("it is there");
    let at = bytes.windows(333).rposition(|window| window == [0x5a; 333]).expect("it is there");
    bytes[at + 100] ^= 1;
    fs::write(&path, bytes).expect("there is room");
    for damaged in [backup(&path, &copy), Backup::of_file(&path).write_to(Vec::new())] {
        assert_eq!(damaged.expect_err("it is damaged").kind(), ErrorKind::Corrupt);
    }
    assert!(!copy.exists());
}

/// Empties a long store through another handle, and closes that, while `copy` reads the log; returns whether the
/// file is shorter then.
fn is_cut_under_a_copy(sharing: Sharing, copy: impl Fn(Backup<'_>, &Path)) -> bool {
    let dir = tempfile::tempdir().expect("nothing fails");
    let (path, dest) = (dir.path().join("a"), dir.path().join("copy"));
    let options = Options::new().sharing(sharing).durability(crate::Durability::Buffered);
    let db = options.open(&path).expect("a new store");
    (0..KEYS).for_each(|i| db.put(key(i), [7; 5000]).expect("there is room"));
    db.close().expect("nothing fails");
    let bytes = || path.metadata().expect("it is there").len();
    let before = bytes();
    let mut is_emptied = false;
    let empty = |progress: BackupProgress| {
        // What is read next is behind the new end.
        if progress.bytes >= 4 << 20 && !std::mem::replace(&mut is_emptied, true) {
            let db = options.open(&path).expect("nobody keeps it out");
            db.clear().expect("there is room");
            db.maintain(u64::MAX).expect("there is room");
            db.close().expect("nothing fails");
        }
        ControlFlow::Continue(())
    };
    copy(Backup::of_file(&path).on_progress(empty), &dest);
    let is_cut = bytes() < before;
    let db = options.open(&path).expect("nobody keeps it out");
    assert!(db.is_empty() && db.check().expect("it is read").is_clean());
    is_cut
}

/// Behind the new end of the file the mapping answers with a signal.
#[test]
fn nobody_cuts_a_file_whose_log_is_copied() {
    let to_file = |backup: Backup<'_>, dest: &Path| {
        // The copy of a store that was emptied meanwhile, or of what it had before.
        let _ = backup.write(dest).expect("it is copied");
    };
    let to_stream = |backup: Backup<'_>, dest: &Path| {
        // Space may have been used again under the stream.
        match backup.write_to(File::create(dest).expect("a new file")) {
            Ok(_) | Err(Error::LockedCompacted { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    };
    for sharing in [Sharing::OneWriter, Sharing::Exclusive] {
        assert!(!is_cut_under_a_copy(sharing, to_file), "{sharing:?}");
        assert!(!is_cut_under_a_copy(sharing, to_stream), "{sharing:?}");
    }
}
