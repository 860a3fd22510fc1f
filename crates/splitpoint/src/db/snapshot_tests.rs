//! Snapshots beside changes and compaction: each must show the content of its moment, whatever
//! comes after. Freed space is overwritten at once, so a reader that still needs it fails.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::hash::{HashFunction, HashId, fnv1a_64};
use crate::testing::mutant::{self, Mutant};
use crate::{Batch, Change, Db, ErrorKind, Options, SimDisk, Snapshot};

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// Options for a store of small segments, which is compacted all the time.
fn options() -> Options {
    Options::new().segment_bytes_min(4096).checkpoint_bytes_min(4096).seed(7).poison_freed()
}

/// The same with a hash function of few values, so that many keys have the same hash.
fn options_of_few_hashes() -> Options {
    let few = |key: &[u8], _| fnv1a_64(key) & 0x0007_0f03;
    options().hash(HashFunction::user(HashId(0x8000_0001), "few", few).unwrap())
}

/// A generator of numbers (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % end
    }
}

fn key(i: u64) -> Vec<u8> {
    format!("key {i}").into_bytes()
}

/// Asserts that a snapshot shows exactly a content, in every way.
#[track_caller]
fn assert_shows(snapshot: &Snapshot<'_>, content: &Content, key_count: u64) {
    assert_eq!(snapshot.len(), content.len() as u64);
    let keys: Vec<Vec<u8>> = (0..key_count).map(key).collect();
    let values = snapshot.get_many(&keys).unwrap();
    for (key, value) in keys.iter().zip(values) {
        assert_eq!(value.as_deref(), content.get(key).map(Vec::as_slice), "{key:?}");
        assert_eq!(snapshot.get(key).unwrap(), value);
    }
    for part_count in [1, 3] {
        let mut found = Content::new();
        for entry in snapshot.scan_parts(part_count).unwrap().into_iter().flatten() {
            let entry = entry.unwrap();
            let earlier = found.insert(entry.key.into_vec(), entry.value.into_vec());
            assert_eq!(earlier, None, "each key once");
        }
        assert!(found == *content, "{} keys instead of {}", found.len(), content.len());
    }
}

/// Makes random changes while up to four snapshots are open, and asks them all the time.
fn run(db: &Db, seed: u64, step_count: u64) {
    const KEYS: u64 = 150;
    let mut random = Random(seed);
    let mut content = Content::new();
    let mut open: Vec<(Snapshot<'_>, Content)> = Vec::new();
    let mut number = 0_u64;
    for step in 0..step_count {
        let mut value = |random: &mut Random| {
            number += 1;
            let bytes = if random.below(200) == 0 { 6000 } else { random.below(90) };
            [&number.to_le_bytes()[..], &vec![7; bytes as usize]].concat()
        };
        let i = random.below(KEYS);
        match random.below(100) {
            0..60 => {
                let value = value(&mut random);
                db.put(key(i), &value).unwrap();
                content.insert(key(i), value);
            }
            60..85 => {
                assert_eq!(db.delete(key(i)).unwrap(), content.remove(&key(i)).is_some());
            }
            85..92 => {
                let value = value(&mut random);
                let (from, to) = (key(i), key(random.below(KEYS)));
                db.apply(&Batch::new().delete(&from).put(&to, &value)).unwrap();
                content.remove(&from);
                content.insert(to, value);
            }
            92 => assert!(db.maintain(4096).is_ok()),
            93 | 94 if open.len() < 4 => open.push((db.snapshot().unwrap(), content.clone())),
            95 if !open.is_empty() => {
                let (snapshot, shown) = open.remove(random.below(open.len() as u64) as usize);
                assert_shows(&snapshot, &shown, KEYS);
            }
            96 if step % 7 == 0 => {
                db.clear().unwrap();
                content.clear();
            }
            _ => {
                for (snapshot, shown) in &open {
                    let found = snapshot.get(key(i)).unwrap();
                    assert_eq!(found.as_deref(), shown.get(&key(i)).map(Vec::as_slice));
                }
            }
        }
    }
    for (snapshot, content) in &open {
        assert_shows(snapshot, content, KEYS);
    }
    drop(open);
    assert_eq!(db.store().grave_count(), 0, "nobody needs them any more");
    assert_shows(&db.snapshot().unwrap(), &content, KEYS);
    assert!(db.check().unwrap().is_clean());
}

#[test]
fn snapshots_show_their_moment_under_changes_and_compaction() {
    for seed in 0..4 {
        for options in [options(), options_of_few_hashes()] {
            run(&options.in_memory().unwrap(), seed, 6000);
            run(&SimDisk::new().open(&options).unwrap(), seed, 3000);
        }
    }
}

#[test]
fn a_deleted_key_without_a_grave_is_missed() {
    assert_found(Mutant::LeavesNoGrave);
}

#[test]
fn a_record_moved_without_its_name_is_missed() {
    assert_found(Mutant::MovesWithoutName);
}

#[test]
fn a_scan_that_asks_the_index_for_nothing_is_noticed() {
    assert_found(Mutant::TakesAllForVersions);
}

#[test]
fn space_used_again_under_a_snapshot_is_noticed() {
    assert_found(Mutant::ReusesUnderScan);
}

#[track_caller]
fn assert_found(mutant: Mutant) {
    let wrong = || run(&options().in_memory().unwrap(), 0, 6000);
    let found = mutant::with(mutant, || catch_unwind(AssertUnwindSafe(wrong)));
    assert!(found.is_err(), "{mutant:?} goes unnoticed");
}

/// One key is overwritten very often, before and after.
#[test]
fn a_key_that_changes_often_is_walked_once() {
    let db = options().in_memory().unwrap();
    let count = 3000_u64;
    for i in 0..count {
        db.put("often", i.to_le_bytes()).unwrap();
        db.put("often and absent", i.to_le_bytes()).unwrap();
    }
    db.delete("often and absent").unwrap();
    let snapshot = db.snapshot().unwrap();
    for i in 0..count {
        db.put("often", [&i.to_le_bytes()[..], b"later"].concat()).unwrap();
        db.put("often and absent", "later").unwrap();
    }
    assert_eq!(snapshot.get("often").unwrap().unwrap(), (count - 1).to_le_bytes());
    for _ in 0..count {
        assert!(snapshot.contains("often").unwrap());
        assert!(!snapshot.contains("often and absent").unwrap());
    }
    assert_eq!(snapshot.scan().unwrap().count(), 1);
    db.delete("often").unwrap();
    assert_eq!(snapshot.get("often").unwrap().unwrap(), (count - 1).to_le_bytes());
}

/// A value outlives the snapshot that returned it, although only the horizon of that held its space.
#[test]
fn a_value_keeps_its_bytes_when_its_snapshot_has_gone() {
    let db = options().in_memory().unwrap();
    (0..300).for_each(|i| db.put(key(i), [1; 60]).unwrap());
    let snapshot = db.snapshot().unwrap();
    let churn = |rounds: u64| {
        (0..rounds)
            .for_each(|round| (0..300).for_each(|i| db.put(key(i), [round as u8; 60]).unwrap()));
    };
    churn(20);
    let values = snapshot.get_many((0..300).map(key)).unwrap();
    let entries: Vec<_> = snapshot.scan().unwrap().map(Result::unwrap).collect();
    drop(snapshot);
    churn(20);
    assert!(values.iter().flatten().all(|value| *value == [1; 60]));
    assert!(entries.len() == 300 && entries.iter().all(|entry| entry.value == [1; 60]));
    drop((values, entries));
    churn(3);
    assert!(db.stats().unwrap().segments.waiting < 100_000);
}

/// Overwrites every key of a store many times, with what the thread in the background does between;
/// returns the most bytes of segments that were in use or waited.
fn most_bytes_of_churn(db: &Db) -> u64 {
    let mut most_bytes = 0;
    for round in 0..60 {
        for i in 0..500 {
            db.put(key(i), [round; 60]).unwrap();
            if i % 50 == 0 && !db.store().region.storage().is_volatile() {
                db.store().sync_in_background().unwrap();
                db.store().finish_checkpoint().unwrap();
            }
        }
        let segments = db.stats().unwrap().segments;
        most_bytes = most_bytes.max(segments.log + segments.waiting);
    }
    most_bytes
}

#[test]
fn a_snapshot_that_holds_back_too_much_is_given_up_and_space_stays_bounded() {
    let options = options().max_snapshot_pin(200_000);
    for db in [options.in_memory().unwrap(), SimDisk::new().open(&options).unwrap()] {
        (0..500).for_each(|i| db.put(key(i), [1; 60]).unwrap());
        let usual_bytes = most_bytes_of_churn(&db);
        let snapshot = db.snapshot().unwrap();
        let mut scan = snapshot.scan().unwrap();
        assert_eq!(scan.next().unwrap().unwrap().value, [59; 60]);
        let most_bytes = most_bytes_of_churn(&db);
        let expected = usual_bytes + 150_000..usual_bytes + 300_000;
        assert!(expected.contains(&most_bytes), "{most_bytes} beside {usual_bytes}");
        let error = snapshot.get(key(7)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SnapshotTooOld, "{error}");
        assert!(error.to_string().contains("200000 bytes"), "{error}");
        let errors: Vec<_> = scan.filter_map(Result::err).map(|error| error.kind()).collect();
        assert_eq!(errors, [ErrorKind::SnapshotTooOld]);
        assert_eq!(snapshot.scan().unwrap_err().kind(), ErrorKind::SnapshotTooOld);
        drop(snapshot);
        (0..500).for_each(|i| db.put(key(i), [9; 60]).unwrap());
        assert_eq!(db.snapshot().unwrap().get(key(7)).unwrap().unwrap(), [9; 60]);
        assert!(db.check().unwrap().is_clean());
    }
}

/// A scan is given up later, so that what it returns can be deleted, and leaves no graves behind it.
#[test]
fn a_program_may_delete_every_key_that_a_scan_returns() {
    for db in [options().in_memory().unwrap(), SimDisk::new().open(&options()).unwrap()] {
        (0..3000).for_each(|i| db.put(key(i), [1; 60]).unwrap());
        let mut most_graves = 0;
        for entry in db.scan().unwrap() {
            assert!(db.delete(&entry.unwrap().key).unwrap());
            most_graves = most_graves.max(db.store().grave_count());
        }
        assert!(db.is_empty());
        assert_eq!(most_graves, 0, "what lies behind the scan is needed by nobody");
    }
}

#[test]
fn a_function_that_deletes_what_it_walks_over_leaves_no_graves() {
    let db = options().in_memory().unwrap();
    (0..3000).for_each(|i| db.put(key(i), [1; 60]).unwrap());
    let mut most_graves = 0;
    db.retain(|_, _| {
        most_graves = most_graves.max(db.store().grave_count());
        false
    })
    .unwrap();
    assert!(db.is_empty());
    assert_eq!(most_graves, 0);
}

/// Keys come and go that no snapshot has: a queue.
#[test]
fn keys_that_no_open_snapshot_has_leave_no_graves() {
    let db = options().in_memory().unwrap();
    db.put("old", "value").unwrap();
    let snapshot = db.snapshot().unwrap();
    for i in 0..1000 {
        db.put(key(i), "value").unwrap();
        db.put(key(i), "another").unwrap();
        db.delete(key(i)).unwrap();
    }
    assert_eq!(db.store().grave_count(), 0);
    db.delete("old").unwrap();
    assert_eq!(db.store().grave_count(), 1);
    assert!(snapshot.contains("old").unwrap());
}

#[test]
fn a_snapshot_of_a_store_that_is_only_read_or_was_never_compacted_shows_it() {
    let disk = SimDisk::new();
    let db = disk.open(&options().keep_dead_records()).unwrap();
    let mut content = Content::new();
    for i in 0..200 {
        let value = vec![i as u8; if i % 50 == 0 { 8000 } else { 20 }];
        db.put(key(i), &value).unwrap();
        content.insert(key(i), value);
    }
    let snapshot = db.snapshot().unwrap();
    (0..200).for_each(|i| assert!(db.delete(key(i)).unwrap()));
    db.put(key(300), "new").unwrap();
    assert_shows(&snapshot, &content, 310);
    drop(snapshot);
    for (key, value) in &content {
        db.apply([Change::Put { key, value }]).unwrap();
    }
    db.delete(key(300)).unwrap();
    db.close().unwrap();
    let db = disk.open(&Options::new().read_only()).unwrap();
    assert_shows(&db.snapshot().unwrap(), &content, 310);
}

/// Threads take snapshots of pairs that change together, and delete and put them.
#[test]
fn threads_find_both_or_neither_of_two_keys_that_change_together() {
    let db = options().in_memory().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            let db = &db;
            scope.spawn(move || {
                for round in 0..3000_u64 {
                    let pair = (round + thread) % 5;
                    let (a, b) = (format!("a{pair}"), format!("b{pair}"));
                    let value = [round, thread].map(u64::to_le_bytes).concat();
                    let batch = match round % 3 {
                        0 => Batch::new().delete(&a).delete(&b),
                        _ => Batch::new().put(&a, &value).put(&b, &value),
                    };
                    db.apply(&batch).unwrap();
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..1500 {
                    let snapshot = db.snapshot().unwrap();
                    for pair in 0..5 {
                        let a = snapshot.get(format!("a{pair}")).unwrap();
                        assert_eq!(a, snapshot.get(format!("b{pair}")).unwrap());
                    }
                    assert!(snapshot.len().is_multiple_of(2));
                }
            });
        }
    });
}

/// A writer of another handle is looked at before and after each of its stores: between an empty slot and
/// the commit, its tombstone is nowhere but behind the end of the log that readers know.
fn look_at_every_store_beside() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let writer = options().open(&path).unwrap();
    let mut before = Content::new();
    for i in 0..30_u64 {
        // Some have segments of their own.
        let value = vec![i as u8; if i % 7 == 3 { 9000 } else { 40 }];
        writer.put(key(i), &value).unwrap();
        before.insert(key(i), value);
    }
    let reader: &'static Db = Box::leak(Box::new(Options::new().read_only().open(&path).unwrap()));
    let snapshot = reader.snapshot().unwrap();
    let looks = std::rc::Rc::new(std::cell::Cell::new(0));
    let observer = {
        let (looks, before) = (looks.clone(), before.clone());
        move || {
            looks.set(looks.get() + 1);
            assert_shows(&snapshot, &before, 40);
            let newer = reader.snapshot().unwrap();
            let found: Vec<_> = (0..40).filter_map(|i| newer.get(key(i)).unwrap()).collect();
            assert_eq!(found.len() as u64, newer.len(), "of one commit");
        }
    };
    crate::atomic::kill_points::observe(observer, || {
        for i in 0..10 {
            writer.delete(key(i)).unwrap();
        }
        let mut batch = Batch::new();
        for i in 10..20 {
            batch = batch.delete(key(i)).put(key(i + 20), "new");
        }
        writer.apply(&batch).unwrap();
        for i in 0..20 {
            writer.put(key(i), "again").unwrap();
            writer.delete(key(i)).unwrap();
        }
    });
    assert!(looks.get() > 300, "{}", looks.get());
}

#[test]
fn a_snapshot_beside_a_writer_is_the_same_at_every_store_that_it_makes() {
    look_at_every_store_beside();
}

#[test]
fn a_snapshot_that_knows_only_what_is_committed_is_found() {
    let run = AssertUnwindSafe(look_at_every_store_beside);
    let found = mutant::with(Mutant::ReadsCommitsOnly, || catch_unwind(run));
    crate::atomic::kill_points::observe(|| (), || ());
    assert!(found.is_err(), "a tombstone that is not committed yet must be missed");
}

/// Changes a store beside the snapshot of a reader, which keeps what the writer frees.
fn change_beside_a_moment() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let writer = options().live_share(0.9).open(&path).unwrap();
    let mut before = Content::new();
    for i in 0..200_u64 {
        writer.put(key(i), [i as u8; 60]).unwrap();
        before.insert(key(i), vec![i as u8; 60]);
    }
    let reader = Options::new().read_only().open(&path).unwrap();
    let snapshot = reader.snapshot().unwrap();
    for round in 0..60 {
        for i in (0..200).filter(|i| i % 10 != 0) {
            writer.put(key(i), [round; 60]).unwrap();
        }
        // Not only when a checkpoint that a thread makes happens to be done.
        writer.maintain(256 << 10).unwrap();
    }
    assert!(writer.stats().unwrap().moved_bytes > 0);
    assert_shows(&snapshot, &before, 200);
}

#[test]
fn space_used_again_under_a_moment_of_another_process_is_noticed() {
    change_beside_a_moment();
    for made in [Mutant::ForgetsMoments, Mutant::HidesMoments] {
        let run = AssertUnwindSafe(change_beside_a_moment);
        let found = mutant::with(made, || catch_unwind(run));
        assert!(found.is_err(), "{made:?}: what the snapshot reads must be overwritten");
    }
}
