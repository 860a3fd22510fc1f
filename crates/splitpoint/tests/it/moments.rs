//! Snapshots and transactions of handles that share a file: beside a writer, and by turns. In one process,
//! where locks of open file descriptions make no difference; `processes` kills some.

use std::path::Path;
use std::time::Duration;

use splitpoint::{Batch, Db, ErrorKind, Options, Sharing, Snapshot};

use crate::support::{Content, HANG, Rng, assert_sound, content, rounds, seed};

const KEYS: u64 = 400;

/// Small segments, so that space is used again all the time, and overwritten as soon as it is free.
fn compacting(sharing: Sharing) -> Options {
    Options::new()
        .sharing(sharing)
        .lock_timeout(HANG)
        .segment_bytes_min(4096)
        .checkpoint_bytes_min(16 << 10)
        .live_share(0.9)
        .poison_freed()
}

fn key(i: u64) -> [u8; 8] {
    i.to_le_bytes()
}

/// Changes some keys, in the store and in the model: one at a time, or some together.
fn change(db: &Db, model: &mut Content, rng: &mut Rng) {
    let mut batch = Batch::new();
    for _ in 0..rng.below(6) {
        let key = key(rng.below(KEYS));
        if rng.below(4) == 0 {
            batch = batch.delete(key);
            model.remove(&key[..]);
            continue;
        }
        // Now and then one that has a segment of its own.
        let bytes = if rng.below(60) == 0 { 9_000 } else { 20 + rng.below(150) };
        let value = vec![rng.next() as u8; bytes as usize];
        model.insert(key.to_vec(), value.clone());
        batch = batch.put(key, value);
    }
    if rng.below(2) == 0 {
        db.apply(&batch).unwrap();
        return;
    }
    for change in &batch {
        match change {
            splitpoint::Change::Put { key, value } => db.put(key, value).unwrap(),
            splitpoint::Change::Delete { key } => drop(db.delete(key).unwrap()),
        }
    }
}

/// Checks that a snapshot shows a content in every way.
#[track_caller]
fn assert_shows(snapshot: &Snapshot<'_>, expected: &Content) {
    assert_eq!(snapshot.len(), expected.len() as u64);
    let keys: Vec<[u8; 8]> = (0..KEYS).map(key).collect();
    let values = snapshot.get_many(&keys).unwrap();
    for (key, value) in keys.iter().zip(&values) {
        assert_eq!(value.as_deref(), expected.get(&key[..]).map(Vec::as_slice), "{key:?}");
    }
    for parts in [1, 3] {
        let mut found = Content::new();
        for entry in snapshot.scan_parts(parts).unwrap().into_iter().flatten() {
            let entry = entry.unwrap();
            let twice = found.insert(entry.key.to_vec(), entry.value.to_vec());
            assert_eq!(twice, None, "{:?}", entry.key);
        }
        assert!(found == *expected, "{} keys instead of {}", found.len(), expected.len());
    }
}

/// Takes snapshots by `readers` while `writers` change the store, and looks at all of them again and again.
fn assert_snapshots_keep_their_moment(writers: &[Db], readers: &[Db], step_count: u64) {
    let mut rng = Rng::new(seed());
    let mut model = Content::new();
    let mut open: Vec<(Snapshot<'_>, Content)> = Vec::new();
    let mut scans = Vec::new();
    for step in 0..step_count {
        let writer = &writers[(step / 7) as usize % writers.len()];
        change(writer, &mut model, &mut rng);
        if step % 500 == 499 {
            maintain(writer);
        }
        if step % 40 == 0 {
            let reader = &readers[rng.index(readers.len())];
            let snapshot = reader.snapshot().unwrap();
            scans.push((snapshot.scan().unwrap(), model.clone(), Content::new()));
            open.push((snapshot, model.clone()));
        }
        if open.len() > 4 {
            let (snapshot, expected) = open.swap_remove(rng.index(open.len()));
            assert_shows(&snapshot, &expected);
        }
        if let Some((snapshot, expected)) = open.last() {
            let key = key(rng.below(KEYS));
            let value = snapshot.get(key).unwrap();
            assert_eq!(value.as_deref(), expected.get(&key[..]).map(Vec::as_slice));
        }
        // Scans go on a little at a time, and outlive their snapshots.
        for (scan, _, found) in &mut scans {
            for entry in scan.by_ref().take(2) {
                let entry = entry.unwrap();
                found.insert(entry.key.to_vec(), entry.value.to_vec());
            }
        }
        if scans.len() > 6 {
            let (scan, expected, mut found) = scans.remove(0);
            for entry in scan {
                let entry = entry.unwrap();
                found.insert(entry.key.to_vec(), entry.value.to_vec());
            }
            assert!(found == expected, "{} keys instead of {}", found.len(), expected.len());
        }
    }
    let moved: u64 = writers.iter().map(|db| db.stats().unwrap().moved_bytes).sum();
    assert!(moved > 0, "nothing was compacted");
    for (snapshot, expected) in open {
        assert_shows(&snapshot, &expected);
    }
    drop(scans);
    for db in writers.iter().chain(readers) {
        assert!(content(db) == model);
    }
}

#[test]
fn snapshots_of_readers_keep_their_moment_beside_a_writer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let writer = compacting(Sharing::OneWriter).open(&path).unwrap();
    let readers = [0, 1].map(|_| Options::new().read_only().open(&path).unwrap());
    assert_snapshots_keep_their_moment(&[writer], &readers, rounds(8_000, 200_000));
    drop(readers);
    assert_sound(&Db::open(&path).unwrap());
}

#[test]
fn snapshots_of_handles_by_turns_keep_their_moment() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let kinds = [Sharing::Shared, Sharing::PerCall];
    let handles = kinds.map(|sharing| compacting(sharing).open(&path).unwrap());
    assert_snapshots_keep_their_moment(&handles, &handles, rounds(5_000, 100_000));
    handles[0].clear().unwrap();
    let reader = Options::new().read_only().open(&path).unwrap();
    assert_snapshots_keep_their_moment(&handles, &[reader], rounds(2_000, 100_000));
}

/// Nobody writes when the snapshot is taken; who comes later moves records.
#[test]
fn a_snapshot_of_a_closed_store_keeps_its_moment_under_writers_that_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let (mut rng, mut model) = (Rng::new(seed()), Content::new());
    let db = compacting(Sharing::OneWriter).open(&path).unwrap();
    (0..500).for_each(|_| change(&db, &mut model, &mut rng));
    db.close().unwrap();
    let reader = Options::new().read_only().open(&path).unwrap();
    let (snapshot, expected) = (reader.snapshot().unwrap(), model.clone());
    for sharing in [Sharing::OneWriter, Sharing::Shared, Sharing::OneWriter, Sharing::PerCall] {
        let db = compacting(sharing).open(&path).unwrap();
        (0..1_500).for_each(|_| change(&db, &mut model, &mut rng));
        db.close().unwrap();
        assert_shows(&snapshot, &expected);
    }
    assert!(content(&reader) == model);
}

/// Has a checkpoint be made and space used again, not only when one that a thread makes happens to be done.
/// Handles that take turns make theirs in a turn.
fn maintain(db: &Db) {
    match db.maintain(256 << 10) {
        Err(error) if error.kind() == ErrorKind::Unsupported => db.sync().unwrap(),
        done => drop(done.unwrap()),
    }
}

/// Overwrites everything several times.
fn overwrite(db: &Db, times: u64) {
    for round in 0..times {
        for i in 0..KEYS {
            db.put(key(i), vec![round as u8; 100]).unwrap();
        }
        maintain(db);
    }
}

/// Returns a store that has been overwritten, and one that reads it, whose moments may hold back 200 KiB.
fn churned_beside_a_reader(path: &Path, sharing: Sharing) -> (Db, Db) {
    let db = compacting(sharing).open(path).expect("opens");
    overwrite(&db, 5);
    let reader = Options::new().read_only().max_snapshot_pin(200 << 10);
    (db, reader.open(path).expect("opens"))
}

#[test]
fn a_moment_that_holds_back_too_much_is_given_up_and_space_stays_bounded() {
    for sharing in [Sharing::OneWriter, Sharing::Shared] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.spt");
        let (db, reader) = churned_beside_a_reader(&path, sharing);
        let old = reader.snapshot().unwrap();
        let mut scan = reader.scan().unwrap();
        // A value that is held keeps its bytes, and no moment is given up for what it holds back.
        let held = old.get(key(1)).unwrap().expect("it is there");
        overwrite(&db, 20);
        assert_eq!(held, [4; 100]);
        drop(held);
        let mut tx = reader.begin().unwrap();
        assert!(tx.contains(key(2)).unwrap());
        overwrite(&db, 60);
        for error in [
            old.get(key(1)).unwrap_err(),
            old.scan().unwrap_err(),
            scan.find_map(Result::err).expect("it is given up"),
            tx.get(key(3)).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::SnapshotTooOld, "{sharing:?}: {error}");
        }
        // One that is taken now is kept, while the old ones are still there.
        let new = reader.snapshot().unwrap();
        db.put(key(1), "newer").unwrap();
        assert_eq!(new.get(key(1)).unwrap().expect("it is there"), [59; 100]);
        overwrite(&db, 60);
        let bytes = db.stats().unwrap().file_bytes;
        assert!(bytes < 2 << 20, "{sharing:?}: {bytes} bytes for {KEYS} pairs of 100");
        drop((old, new, scan, tx));
        overwrite(&db, 3);
        assert!(db.check().unwrap().is_clean());
    }
}

#[test]
fn only_as_many_moments_of_a_reader_are_given_up_as_hold_back_too_much() {
    for sharing in [Sharing::OneWriter, Sharing::Shared] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.spt");
        let (db, reader) = churned_beside_a_reader(&path, sharing);
        let old = reader.snapshot().unwrap();
        overwrite(&db, 3);
        let young = reader.snapshot().unwrap();
        let mut rounds = 0;
        while old.get(key(1)).is_ok() {
            overwrite(&db, 1);
            rounds += 1;
            assert!(rounds < 100, "the old one is given up");
        }
        assert_eq!(young.get(key(1)).unwrap().expect("it is there"), [2; 100], "{sharing:?}");
        assert_eq!(young.scan().unwrap().flatten().count(), KEYS as usize);
    }
}

/// The second reader comes when the segments are empty already that the first has held back.
#[test]
fn a_moment_by_turns_is_not_charged_with_what_died_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let handles = [0, 1].map(|_| compacting(Sharing::Shared).open(&path).unwrap());
    overwrite(&handles[0], 5);
    let reader = |bytes| Options::new().read_only().max_snapshot_pin(bytes).open(&path).unwrap();
    let (patient, strict) = (reader(64 << 20), reader(200 << 10));
    let first = patient.snapshot().unwrap();
    overwrite(&handles[0], 20);
    // Each handle has seen what waits.
    for db in &handles {
        db.put(key(0), "before").unwrap();
    }
    let second = strict.snapshot().unwrap();
    drop(first);
    // A turn that is long enough to make checkpoints, and two rounds of bytes that die in it.
    handles[0].put(key(0), "after").unwrap();
    overwrite(&handles[1], 2);
    assert_eq!(second.get(key(0)).unwrap().expect("it is there"), b"before");
}

/// A reader without a place cannot be told that it is given up: it holds back what it may read.
#[test]
fn a_snapshot_without_a_place_holds_space_back_until_it_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let db = compacting(Sharing::OneWriter).open(&path).unwrap();
    overwrite(&db, 5);
    let readers: Vec<Db> =
        (0..65).map(|_| Options::new().read_only().open(&path).unwrap()).collect();
    let last = readers.last().expect("there are some");
    let snapshot = last.snapshot().unwrap();
    overwrite(&db, 20);
    assert_eq!(snapshot.get(key(7)).unwrap().expect("it was there"), [4; 100]);
    assert!(db.stats().unwrap().is_pinned);
    drop(snapshot);
    overwrite(&db, 5);
    assert!(!db.stats().unwrap().is_pinned);
}

/// Returns two handles that take turns, with x = 50 and y = 50.
fn fifty_fifty(dir: &tempfile::TempDir) -> [Db; 2] {
    let path = dir.path().join("a.spt");
    let handles =
        [Sharing::Shared, Sharing::PerCall].map(|sharing| compacting(sharing).open(&path).unwrap());
    handles[0].put_many([("x", "50"), ("y", "50")]).unwrap();
    handles
}

/// What a transaction has read was moved, replaced, deleted and compacted meanwhile.
#[test]
fn reads_are_of_one_moment_while_others_compact() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two] = fifty_fifty(&dir);
    overwrite(&two, 2);
    let mut stays = one.begin().unwrap();
    let mut changes = one.begin().unwrap();
    assert_eq!(stays.get("x").unwrap().unwrap(), "50");
    assert_eq!(changes.get(key(1)).unwrap().unwrap(), [1; 100]);
    overwrite(&two, 30);
    two.delete(key(2)).unwrap();
    assert!(two.stats().unwrap().moved_bytes > 0);
    assert_eq!(stays.get("y").unwrap().unwrap(), "50");
    assert_eq!(changes.get(key(2)).unwrap().unwrap(), [1; 100], "it was deleted since");
    stays.put("x", "51").unwrap();
    changes.put("x", "52").unwrap();
    stays.commit().unwrap();
    assert_eq!(changes.commit().unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(two.get("x").unwrap().unwrap(), "51");
}

#[test]
fn a_transaction_that_always_conflicts_ends_with_the_turn() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    for sharing in [Sharing::Shared, Sharing::PerCall] {
        let db = compacting(sharing).open(&path).unwrap();
        let wait = Duration::from_millis(20);
        let other = compacting(Sharing::Shared).lock_timeout(wait).open(&path).unwrap();
        db.put("number", 0_i64.to_le_bytes()).unwrap();
        let mut runs = 0;
        let count = db.transaction(|tx| {
            runs += 1;
            let number = tx.get("number")?.expect("it is there");
            assert!(tx.scan()?.count() > 0 && tx.len()? > 0);
            let outcome = other.increment("number", 1);
            if runs < 3 {
                outcome?;
            } else {
                assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Locked);
                assert_eq!(db.put("number", "").unwrap_err().kind(), ErrorKind::Invalid);
            }
            let number = i64::from_le_bytes(number[..].try_into().expect("a number"));
            tx.put("number", (number + 100).to_le_bytes())?;
            Ok(runs)
        });
        assert_eq!(count.unwrap(), 3);
        assert_eq!(other.increment("number", 0).unwrap(), 102);
    }
}

/// Each thread has a handle of its own, so that they are as processes.
#[test]
fn a_bank_of_handles_by_turns_keeps_its_money() {
    const ACCOUNTS: u64 = 10;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let number = |value: &[u8]| i64::from_le_bytes(value.try_into().expect("a number"));
    let account = |i: u64| format!("account {}", i % ACCOUNTS);
    let open = |i: u64| {
        let sharing = if i.is_multiple_of(2) { Sharing::Shared } else { Sharing::PerCall };
        compacting(sharing).open(&path).unwrap()
    };
    let bank = open(0);
    bank.put_many((0..ACCOUNTS).map(|i| (account(i), 100_i64.to_le_bytes()))).unwrap();
    let sum = |db: &Db| -> i64 {
        let entries = db.snapshot().unwrap().scan().unwrap().map(Result::unwrap);
        entries.map(|entry| number(&entry.value)).sum()
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let db = open(thread);
                for i in 0..300 {
                    let (from, to) = (account(thread * 3 + i), account(thread + i * 7 + 1));
                    db.transaction(|tx| {
                        let rich = number(&tx.get(&from)?.expect("an account"));
                        if from == to || rich == 0 {
                            return Ok(());
                        }
                        let poor = number(&tx.get(&to)?.expect("an account"));
                        tx.put(&from, (rich - 1).to_le_bytes())?;
                        tx.put(&to, (poor + 1).to_le_bytes())
                    })
                    .unwrap();
                    if i % 30 == 0 {
                        assert_eq!(sum(&db), 1_000);
                    }
                }
            });
        }
    });
    assert_eq!(sum(&bank), 1_000);
    assert!(bank.check().unwrap().is_clean());
}
