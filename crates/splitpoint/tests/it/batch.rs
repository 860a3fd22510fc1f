//! Batches: all changes or none, whatever fails.

use splitpoint::{Batch, BatchAtomicity, Change, Durability, ErrorKind, Options, SimDisk, Table};

use crate::support::{Content, Rng, assert_content, bad_hash, changes, tiny};

const ENOSPC: i32 = 28;

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Change<'a> {
    Change::Put { key, value }
}

fn options() -> Options {
    tiny().fill_factor(2.0).durability(Durability::Buffered)
}

/// Changes of random keys of a small range: new ones, overwrites, deletes, some big, some twice.
fn random_batch(rng: &mut Rng, change_count: u64) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let mut batch = Vec::new();
    for _ in 0..change_count {
        let key = format!("key {}", rng.below(40)).into_bytes();
        let value_bytes = if rng.below(9) == 0 { 3000 } else { rng.index(90) };
        let value = (rng.below(3) > 0).then(|| rng.bytes(value_bytes));
        batch.push((key, value));
    }
    batch
}

fn apply_to(model: &mut Content, batch: &[(Vec<u8>, Option<Vec<u8>>)]) {
    for (key, value) in batch {
        match value {
            Some(value) => drop(model.insert(key.clone(), value.clone())),
            None => drop(model.remove(key)),
        }
    }
}

#[test]
fn the_last_change_of_a_key_counts_and_a_delete_of_nothing_is_nothing() {
    let db = Options::new().in_memory().unwrap();
    assert_eq!(Table::capabilities(&db).batch, BatchAtomicity::Atomic);
    db.apply(&Batch::new()).unwrap();
    db.apply(&[Change::Delete { key: b"nothing" }]).unwrap();
    assert_eq!(db.stats().unwrap().log_bytes, 0);
    db.put(b"old", b"1").unwrap();
    db.apply(&[
        put(b"a", b"1"),
        put(b"b", b"2"),
        put(b"a", b"3"),
        Change::Delete { key: b"b" },
        Change::Delete { key: b"old" },
        put(b"", b""),
    ])
    .unwrap();
    let expected = [(b"".to_vec(), b"".to_vec()), (b"a".to_vec(), b"3".to_vec())];
    assert_content(&db, &expected.into());
    assert!(db.check().unwrap().is_clean());
}

#[test]
fn batches_and_single_changes_make_a_map_in_every_state_of_a_store() {
    for hash in [None, Some(bad_hash())] {
        let options = match hash {
            Some(hash) => options().hash(hash),
            None => options(),
        };
        let options = options.checkpoint_bytes_min(4096);
        let mut disk = SimDisk::new();
        let (mut rng, mut model) = (Rng::new(5), Content::new());
        for round in 0..40 {
            let db = disk.open(&options).unwrap();
            assert_content(&db, &model);
            for _ in 0..4 {
                let change_count = 1 + rng.below(30);
                let batch = random_batch(&mut rng, change_count);
                db.apply(&changes(&batch)).unwrap();
                apply_to(&mut model, &batch);
                db.put(b"single", &[round]).unwrap();
                model.insert(b"single".to_vec(), vec![round]);
                assert_content(&db, &model);
            }
            assert!(db.check().unwrap().is_clean());
            db.sync().unwrap();
            let next = match round % 3 {
                0 => disk.kill(),
                1 => disk.lose_power(u64::from(round)),
                _ => {
                    db.close().unwrap();
                    continue;
                }
            };
            disk = next;
        }
    }
}

/// Fails each call to the storage in turn during a batch that opens segments, writes a big record
/// and allocates overflow lines. After an error nothing of the batch remains, now and after a
/// crash.
#[test]
fn a_batch_that_fails_anywhere_has_changed_nothing() {
    let options = options().hash(bad_hash());
    let mut error_count = 0;
    for call in 1.. {
        let disk = SimDisk::new();
        let db = disk.open(&options).unwrap();
        let (mut rng, mut model) = (Rng::new(6), Content::new());
        for _ in 0..3 {
            let batch = random_batch(&mut rng, 12);
            db.apply(&changes(&batch)).unwrap();
            apply_to(&mut model, &batch);
        }
        db.sync().unwrap();
        let batch = random_batch(&mut rng, 60);
        // All that follow fail, too: where one place is refused, another is tried.
        disk.fail_call(call, ENOSPC, true);
        let calls_before = disk.call_count();
        let applied = db.apply(&changes(&batch));
        disk.fail_call(u64::MAX, ENOSPC, false);
        if disk.call_count() < calls_before + call {
            assert!(applied.is_ok() && error_count > 8, "{error_count} errors");
            break;
        }
        match &applied {
            // A split or a checkpoint that fails is skipped.
            Ok(()) => apply_to(&mut model, &batch),
            Err(error) => {
                error_count += 1;
                assert_eq!(error.kind(), ErrorKind::Io, "call {call}: {error}");
            }
        }
        assert_content(&db, &model);
        for after in [disk.kill(), disk.lose_power(0), disk.lose_power(u64::MAX)] {
            let found = after.open(&options).unwrap();
            // The last batch may not be durable when it was made.
            if applied.is_err() {
                assert_content(&found, &model);
            }
            assert!(found.check().unwrap().is_clean(), "call {call}");
        }
        // The same batch again, and what follows garbage in the log.
        db.apply(&changes(&batch)).unwrap();
        apply_to(&mut model, &batch);
        db.sync().unwrap();
        assert_content(&db, &model);
        for after in [disk.kill(), disk.lose_power(7)] {
            let found = after.open(&options).unwrap();
            assert_content(&found, &model);
            assert!(found.check().unwrap().is_clean(), "call {call}");
        }
    }
}

#[test]
fn a_batch_of_many_new_keys_never_has_them_all_in_a_few_chains() {
    const COUNT: u32 = 20_000;
    let keys: Vec<[u8; 4]> = (0..COUNT).map(u32::to_le_bytes).collect();
    let batch: Vec<Change<'_>> = keys.iter().map(|key| put(key, key)).collect();
    let lines_of = |fill: &dyn Fn(&splitpoint::Db)| {
        let db = Options::new().in_memory().unwrap();
        fill(&db);
        assert_eq!(db.len(), u64::from(COUNT));
        let stats = db.stats().unwrap();
        stats.overflow_line_count + stats.overflow_line_free_count
    };
    // Lines that were in use for a moment are counted too: they stay, as free ones.
    let by_puts = lines_of(&|db| keys.iter().for_each(|key| db.put(key, key).unwrap()));
    let by_batch = lines_of(&|db| db.apply(&batch).unwrap());
    let in_one_chain = u64::from(COUNT) / 7;
    assert!(by_batch <= 2 * by_puts && by_puts < in_one_chain / 2, "{by_batch}, {by_puts} by puts");
}

#[test]
fn a_batch_that_deletes_as_much_as_it_adds_keeps_the_number_of_buckets() {
    const COUNT: u32 = 20_000;
    let db = Options::new().in_memory().unwrap();
    (0..COUNT).for_each(|key| db.put(key.to_le_bytes(), "").unwrap());
    let before = db.stats().unwrap().geometry.bucket_count();
    let keys: Vec<[u8; 4]> = (0..2 * COUNT).map(u32::to_le_bytes).collect();
    let (old, new) = keys.split_at(COUNT as usize);
    let deletes = old.iter().map(|key| Change::Delete { key });
    let batch: Vec<Change<'_>> = deletes.chain(new.iter().map(|key| put(key, b""))).collect();
    db.apply(&batch).unwrap();
    assert_eq!(db.len(), u64::from(COUNT));
    assert_eq!(db.stats().unwrap().geometry.bucket_count(), before);
}
