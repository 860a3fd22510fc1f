//! A rehash on the simulated machine: what is durable before the new store may take the name, and
//! what each failing call leaves.

use std::collections::BTreeSet;

use super::*;
use crate::hash::HashId;
use crate::{Change, Db, SimDisk, SimFault};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Options for a store whose log has all.
fn options() -> Options {
    Options::new().segment_bytes_min(4096).seed(7).keep_dead_records()
}

/// Returns a closed store with everything that a log can hold: replaced, deleted and empty keys,
/// big values, batches.
fn store_disk() -> SimDisk {
    let disk = SimDisk::new();
    let db = disk.open(&options()).expect("nothing fails");
    for i in 0..300_u32 {
        let key = (i % 90).to_le_bytes();
        match i % 7 {
            0 => drop(db.delete(&key).expect("nothing fails")),
            1 => db.put(&key, &vec![i as u8; 3000]).expect("nothing fails"),
            2 => {
                let changes = [
                    Change::Put { key: &key, value: b"batched" },
                    Change::Delete { key: &((i + 1) % 90).to_le_bytes() },
                    Change::Put { key: b"", value: &i.to_le_bytes() },
                ];
                db.apply(&changes).expect("nothing fails");
            }
            _ => db.put(&key, &i.to_le_bytes()).expect("nothing fails"),
        }
    }
    db.put(b"of no value", b"").expect("nothing fails");
    db.close().expect("nothing fails");
    disk
}

/// Returns the records of a store, in the order of its log.
fn pairs(db: &Db) -> Pairs {
    let entries = db.scan().expect("nothing fails").map(|entry| entry.expect("nothing fails"));
    entries.map(|entry| (entry.key.into_vec(), entry.value.into_vec())).collect()
}

fn open_source(disk: &SimDisk) -> Store {
    let options = options().create(Create::Never);
    Store::new(
        open_storage(disk.storage().expect("nothing fails"), &options, false)
            .expect("nothing fails"),
        &options,
    )
}

/// Rehashes `source` to the machine `target`.
fn rewrite_to(source: &Store, target: &SimDisk) -> Result<RehashReport> {
    let rehash = Rehash::of_file("unused").hash(HashFunction::siphash_1_3());
    let options = rehash.new_options(source)?;
    rewrite(source, target.storage().expect("nothing fails"), &options, &mut Watch(None))
}

/// Checks that a machine has the complete new store, closed, as its owner left it.
#[track_caller]
fn assert_new(disk: &SimDisk, expected: &Pairs) {
    assert!(assert_new_content(disk, expected) == *expected, "the order of the records differs");
}

/// Does the same for records in any order, and returns them.
#[track_caller]
fn assert_new_content(disk: &SimDisk, expected: &Pairs) -> Pairs {
    let db = disk.open(&Options::new().create(Create::Never)).expect("nothing fails");
    // The last write of a close is not synced.
    let is_whole =
        matches!(db.recovery(), Recovery::Clean | Recovery::Replayed { dropped_bytes: 0, .. });
    assert!(is_whole, "{:?}", db.recovery());
    assert_eq!(db.stats().expect("nothing fails").hash_name, "siphash-1-3");
    let found = pairs(&db);
    let sorted = |pairs: &Pairs| {
        let mut sorted = pairs.clone();
        sorted.sort_unstable();
        sorted
    };
    assert!(sorted(&found) == sorted(expected), "the records differ");
    assert!(db.check().expect("nothing fails").is_clean());
    found
}

#[test]
fn the_new_store_has_the_same_records_in_the_same_order() {
    let disk = store_disk();
    let expected = pairs(&disk.open(&options()).unwrap());
    assert!(expected.len() > 50 && expected.iter().any(|(_, value)| value.len() == 3000));
    let (source, target) = (open_source(&disk), SimDisk::new());
    let report = rewrite_to(&source, &target).unwrap();
    assert_eq!(report.record_count, expected.len() as u64);
    assert_new(&target, &expected);
}

/// The new store gets its name only after this, so a power loss leaves the old store or this one.
#[test]
fn a_rewritten_store_survives_power_loss_before_its_rename() {
    let disk = store_disk();
    let expected = pairs(&disk.open(&options()).unwrap());
    let (source, target) = (open_source(&disk), SimDisk::new());
    rewrite_to(&source, &target).unwrap();
    for seed in [0, 1, 2, 3, u64::MAX] {
        assert_new(&target.lose_power(seed), &expected);
    }
}

/// Fails each call on the new file, with each fault: there is an error, or the new store is
/// complete. A call that is repeated, or does not matter, returns no error.
#[test]
fn a_failing_call_is_reported_or_harmless() {
    let disk = store_disk();
    let before = disk.file();
    let expected = pairs(&disk.open(&options()).unwrap());
    let source = open_source(&disk);
    let mut error_count = 0;
    for fault in [SimFault::Error(EIO), SimFault::Error(ENOSPC), SimFault::ShortWrite] {
        for call in 1.. {
            let target = SimDisk::new();
            target.fail_once(call, fault);
            let rewritten = rewrite_to(&source, &target);
            let is_over = target.call_count() < call;
            match rewritten {
                Ok(_) => {
                    for seed in [0, call, u64::MAX] {
                        let after = target.lose_power(seed);
                        match fault {
                            // A segment that found no room is elsewhere.
                            SimFault::Error(ENOSPC) => drop(assert_new_content(&after, &expected)),
                            _ => assert_new(&after, &expected),
                        }
                    }
                }
                Err(error) => {
                    assert!(!is_over, "{error}");
                    error_count += 1;
                }
            }
            if is_over {
                break;
            }
        }
    }
    assert!(error_count > 100, "{error_count}");
    source.close().unwrap();
    drop(source);
    assert!(disk.file() == before, "the old store has changed");
}

/// Shows that this test detects a sync that did nothing, and so would detect a missing one.
#[test]
fn a_skipped_sync_is_detected() {
    let disk = store_disk();
    let source = open_source(&disk);
    let is_lost = |call| {
        let target = SimDisk::new();
        target.fail_once(call, SimFault::SkippedSync);
        rewrite_to(&source, &target).unwrap();
        let after = target.lose_power(0).open(&Options::new().create(Create::Never));
        !after.is_ok_and(|db| db.recovery() == Recovery::Clean)
    };
    let call_count = {
        let target = SimDisk::new();
        rewrite_to(&source, &target).unwrap();
        target.call_count()
    };
    assert!((1..=call_count).any(is_lost));
}

#[test]
fn an_interrupt_at_any_call_of_the_watcher_is_an_error() {
    let disk = store_disk();
    let source = open_source(&disk);
    let options = Rehash::of_file("unused").new_options(&source).unwrap();
    let mut stages = BTreeSet::new();
    for limit in 0.. {
        let mut calls = 0;
        let mut watch = Watch(Some(Box::new(|now: RehashProgress| {
            stages.insert(format!("{:?}", now.stage));
            assert!(now.bytes <= now.bytes_total, "{now:?}");
            calls += 1;
            if calls > limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })));
        match rewrite(&source, SimDisk::new().storage().unwrap(), &options, &mut watch) {
            Err(Error::Io { source, .. }) => {
                assert_eq!(source.kind(), io::ErrorKind::Interrupted);
            }
            Err(error) => panic!("{error}"),
            Ok(_) => break,
        }
    }
    assert_eq!(stages, ["Copy", "Index", "Sync"].map(str::to_owned).into());
}

/// Damages one slot: it names a dead record, another slot's record or no record; then it is empty.
#[test]
fn an_index_that_does_not_agree_with_the_log_is_refused() {
    let mut kinds = BTreeSet::new();
    let sound = store_disk().file();
    for nth in 0..4 {
        for damage in 0..4 {
            let disk = SimDisk::with_file(&sound);
            let source = open_source(&disk);
            let addrs = Held::collect(&source, &mut Watch(None)).unwrap().addrs;
            let region = &source.region;
            let line = (0..bucket_count(&source))
                .map(|bucket| region.windows.bucket(BucketIndex(bucket)))
                .filter(|line| line.slot_count() > 0)
                .nth(nth);
            let Some(line) = line else { break };
            let (i, slot) = line.slots_in_use().next().unwrap();
            let other = match damage {
                // The records of the log, dead ones too.
                0 | 1 => {
                    let writer = source.lock().unwrap();
                    let (start, end) = (writer.superblock.log_start, writer.log.position().lsn);
                    drop(writer);
                    let walk = LogWalk::new(&region.view, start, Trust::Published, end).unwrap();
                    let mut log = walk.expect("the log is not empty");
                    let mut dead = Vec::new();
                    while let Some(record) = log.next_record().unwrap() {
                        let is_live = addrs.binary_search(&record.addr().0).is_ok();
                        if record.header.kind == RecordKind::Put && !is_live {
                            dead.push(record.addr());
                        }
                    }
                    dead[(4 * nth + damage) % dead.len()]
                }
                2 => Addr(addrs[(4 * nth + damage) % addrs.len()]),
                _ => Addr(slot.addr().0 + 1),
            };
            if other == slot.addr() {
                continue;
            }
            line.set_slot(i, crate::index::slot::Slot::new(slot.tag(), other));
            let error = rewrite_to(&source, &SimDisk::new()).unwrap_err();
            let Error::Corrupt { what, .. } = error else { panic!("{error}") };
            kinds.insert(what);
            // Missing in the index.
            line.set_slot(i, crate::index::slot::Slot::EMPTY);
            let error = rewrite_to(&source, &SimDisk::new()).unwrap_err();
            assert!(matches!(error, Error::Corrupt { what: "record count", .. }), "{error}");
        }
    }
    assert!(
        kinds.contains("slot of a replaced record") && kinds.contains("slot count"),
        "{kinds:?}"
    );
}

#[test]
fn rehash_replaces_and_restores_a_user_hash() {
    let by_length = |key: &[u8], _| key.len() as u64;
    let own = HashFunction::user(HashId(0x8000_0001), "by-length", by_length).unwrap();
    let disk = SimDisk::new();
    let db = disk.open(&options().hash(own.clone())).unwrap();
    (0..100_u32).for_each(|i| db.put(&i.to_le_bytes(), b"value").unwrap());
    let expected = pairs(&db);
    db.close().unwrap();
    let opened = open_storage(disk.storage().unwrap(), &options().hash(own.clone()), false);
    let source = Store::new(opened.unwrap(), &options());
    let target = SimDisk::new();
    rewrite_to(&source, &target).unwrap();
    assert_new(&target, &expected);

    // Back again. Parameters that are not set stay.
    let source = open_source(&target);
    let back = SimDisk::new();
    let new_options = Rehash::of_file("unused").hash(own.clone()).new_options(&source).unwrap();
    rewrite(&source, back.storage().unwrap(), &new_options, &mut Watch(None)).unwrap();
    let db = back.open(&options().hash(own)).unwrap();
    assert_eq!(pairs(&db), expected);
    assert_eq!(
        Rehash::of_file("unused").new_options(&source).unwrap().hash.unwrap().name(),
        "siphash-1-3"
    );
}

/// Space of the source was used again, so that its log does not have all.
#[test]
fn the_records_of_a_compacted_store_are_found_by_its_segments() {
    let disk = SimDisk::new();
    let options = Options::new().segment_bytes_min(4096).durability(Durability::Buffered);
    let db = disk.open(&options).expect("a new store");
    for round in 0..30_u64 {
        for i in 0..150_u64 {
            let bytes = if i % 50 == 0 { 5000 } else { 40 };
            db.put(i.to_le_bytes(), vec![(i + round) as u8; bytes]).expect("there is room");
        }
        db.maintain(u64::MAX).expect("nothing fails");
    }
    db.close().expect("nothing fails");
    let expected: std::collections::BTreeMap<_, _> =
        pairs(&disk.open(&options).expect("it opens")).into_iter().collect();
    let source = open_source(&disk);
    assert!(!source.lock().expect("nothing fails").is_log_whole());
    let target = SimDisk::new();
    let storage = target.storage().expect("nothing fails");
    let new = Options::new().hash(HashFunction::siphash_1_3());
    let report = rewrite(&source, storage, &new, &mut Watch(None)).expect("it is sound");
    assert_eq!(report.record_count, 150);
    drop(source);
    let found = pairs(&target.open(&Options::new()).expect("it opens")).into_iter().collect();
    assert!(expected == found, "other pairs");
}
