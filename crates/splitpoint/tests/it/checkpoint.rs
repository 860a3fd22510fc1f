//! Recovery with a checkpoint, without one, and with a damaged one.

use splitpoint::{Db, Durability, ErrorKind, Options, Recovery, SimDisk};

use crate::support::{Content, HANG, Rng, assert_content};

/// Options under which a checkpoint is due with every other kilobyte of the log.
fn options() -> Options {
    let options = Options::new().seed(7).segment_bytes_min(4096).fill_factor(2.0);
    options.checkpoint_bytes_min(2048).durability(Durability::Buffered).keep_dead_records()
}

/// Applies random changes that grow, overwrite and shrink the table, and returns its contents.
fn change(db: &Db, rng: &mut Rng, content: &mut Content, change_count: u64) {
    for i in 0..change_count {
        // Waves: the table splits for a while and merges for a while.
        let is_growing = i / 400 % 2 == 0;
        let key = format!("key {}", rng.below(600)).into_bytes();
        if rng.below(4) > 0 && is_growing || rng.below(8) == 0 {
            let value = vec![i as u8; rng.below(60) as usize];
            db.put(&key, &value).expect("there is room");
            content.insert(key, value);
        } else {
            let is_deleted = db.delete(&key).expect("there is room");
            assert_eq!(is_deleted, content.remove(&key).is_some());
        }
    }
}

fn checkpoint_keys(db: &Db) -> u64 {
    match db.recovery() {
        Recovery::Replayed { checkpoint_keys, .. } => checkpoint_keys,
        other => panic!("{other:?}"),
    }
}

#[test]
fn recovery_begins_with_the_newest_checkpoint_and_finds_the_same_content() {
    let disk = SimDisk::new();
    let db = disk.open(&options()).unwrap();
    let (mut rng, mut expected) = (Rng::new(1), Content::new());
    let mut checkpoints = std::collections::BTreeSet::new();
    for round in 0..120 {
        change(&db, &mut rng, &mut expected, 25);
        db.sync().unwrap();
        let stats = db.stats().unwrap();
        checkpoints.extend(stats.checkpoint.map(|checkpoint| checkpoint.log_bytes));
        for seed in [0, 1 + round, u64::MAX] {
            let found = disk.lose_power(seed).open(&options()).unwrap();
            assert_eq!(checkpoint_keys(&found) > 0, stats.checkpoint.is_some(), "{stats:?}");
            assert_content(&found, &expected);
            assert!(found.check().unwrap().is_clean());
        }
        let killed = disk.kill().open(&options()).unwrap();
        assert!(matches!(killed.recovery(), Recovery::WarmRestart { .. }));
        assert_content(&killed, &expected);
    }
    assert!(checkpoints.len() > 10, "{} checkpoints", checkpoints.len());
}

/// In a file a thread walks the buckets while the writer changes them: splits, merges, overflow
/// lines that are used again. A copy of the file has another inode, so its tables prove nothing.
#[test]
fn a_checkpoint_that_a_thread_makes_beside_changes_is_of_one_moment() {
    let dir = tempfile::tempdir().unwrap();
    let options = options().checkpoint_bytes_min(64 << 10);
    let path = dir.path().join("store.spt");
    let db = options.open(&path).unwrap();
    let (mut rng, mut expected) = (Rng::new(5), Content::new());
    for i in 0..30_000_u32 {
        let key = i.to_le_bytes().to_vec();
        db.put(&key, [7; 20]).unwrap();
        expected.insert(key, vec![7; 20]);
    }
    for round in 0..20 {
        let begun = std::time::Instant::now();
        let before = db.stats().unwrap().checkpoint;
        // At least one checkpoint is completed in each round, beside changes.
        while db.stats().unwrap().checkpoint == before {
            assert!(begun.elapsed() < HANG, "no checkpoint in {HANG:?}");
            for _ in 0..300 {
                let key = (rng.below(30_000) as u32).to_le_bytes().to_vec();
                if rng.below(2) == u64::from(round % 2 == 0) {
                    let value = vec![round as u8; rng.below(60) as usize];
                    db.put(&key, &value).unwrap();
                    expected.insert(key, value);
                } else {
                    assert_eq!(db.delete(&key).unwrap(), expected.remove(&key).is_some());
                }
            }
            // On one core, the thread needs a turn.
            std::thread::yield_now();
        }
        db.sync().unwrap();
        let copy = dir.path().join("copy.spt");
        std::fs::copy(&path, &copy).unwrap();
        let found = options.open(&copy).unwrap();
        assert!(checkpoint_keys(&found) > 0, "{:?}", found.recovery());
        assert_content(&found, &expected);
        assert!(found.check().unwrap().is_clean());
        drop(found);
        std::fs::remove_file(&copy).unwrap();
    }
}

#[test]
fn a_checkpoint_that_takes_little_room_is_there_after_a_close() {
    let disk = SimDisk::new();
    let mut expected = Content::new();
    let mut put = |db: &Db, numbers: std::ops::Range<u32>| {
        for i in numbers {
            let (key, value) = (i.to_le_bytes().to_vec(), vec![i as u8; 700]);
            db.put(&key, &value).unwrap();
            expected.insert(key, value);
        }
        expected.clone()
    };
    let options = options().checkpoint_bytes_min(64 << 10);
    let db = disk.open(&options).unwrap();
    put(&db, 0..1000);
    db.sync().unwrap();
    let before = db.stats().unwrap();
    assert!(before.segments.checkpoint * 25 < before.file_bytes, "{before:?}");
    db.close().unwrap();
    let db = disk.open(&options).unwrap();
    assert_eq!(db.recovery(), Recovery::Clean);
    assert_eq!(db.stats().unwrap().checkpoint, before.checkpoint);
    assert!(db.check().unwrap().is_clean());
    let expected = put(&db, 1000..1003);
    db.sync().unwrap();
    for seed in 0..4 {
        let found = disk.lose_power(seed).open(&options).unwrap();
        assert!(checkpoint_keys(&found) > 0, "the log alone: {:?}", found.recovery());
        assert_content(&found, &expected);
        assert!(found.check().unwrap().is_clean());
    }
}

/// Files from 16 MiB on are recovered by two threads.
#[test]
fn a_file_that_two_threads_recover_has_the_same_content() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("large.spt");
    let options = Options::new().checkpoint_bytes_min(4 << 20).keep_dead_records();
    let options = options.durability(Durability::Buffered);
    let db = options.open(&path).unwrap();
    let mut expected = Content::new();
    for i in 0..220_000_u32 {
        // Some are overwritten and some deleted, and a few have segments of their own.
        let (number, bytes) = (i % 150_000, if i % 50_000 == 0 { 70_000 } else { 60 + i % 50 });
        let key = number.to_le_bytes().to_vec();
        if i >= 150_000 && i % 3 == 0 {
            assert!(db.delete(&key).unwrap());
            expected.remove(&key);
        } else {
            let value = vec![(i >> 8) as u8; bytes as usize];
            db.put(&key, &value).unwrap();
            expected.insert(key, value);
        }
    }
    db.sync().unwrap();
    let copy = dir.path().join("copy.spt");
    std::fs::copy(&path, &copy).unwrap();
    assert!(std::fs::metadata(&copy).unwrap().len() > 16 << 20);
    for (options, is_log_alone) in [(options.clone(), false), (options.rebuild_index(), true)] {
        let lost = dir.path().join("lost.spt");
        std::fs::copy(&copy, &lost).unwrap();
        let found = options.open(&lost).unwrap();
        assert_eq!(checkpoint_keys(&found) == 0, is_log_alone, "{:?}", found.recovery());
        assert_content(&found, &expected);
        assert!(found.check().unwrap().is_clean());
    }
}

#[test]
fn a_closed_store_has_no_checkpoint_that_takes_much_room() {
    let disk = SimDisk::new();
    let db = disk.open(&options()).unwrap();
    let (mut rng, mut expected) = (Rng::new(2), Content::new());
    for i in 0..5000_u32 {
        db.put(i.to_le_bytes(), []).unwrap();
        expected.insert(i.to_le_bytes().to_vec(), Vec::new());
    }
    assert!(db.stats().unwrap().segments.checkpoint > 0);
    db.close().unwrap();
    let closed_bytes = disk.file().len();
    let db = disk.open(&options()).unwrap();
    assert_eq!(db.recovery(), Recovery::Clean);
    assert_content(&db, &expected);
    let stats = db.stats().unwrap();
    assert_eq!((stats.segments.checkpoint, stats.checkpoint), (0, None));
    assert_eq!(stats.file_bytes, closed_bytes as u64);
    let used = stats.segments;
    let used = used.header + used.log + used.big + used.index + used.overflow + used.free;
    assert_eq!(used, stats.file_bytes);
    // The file can be written again, and a power loss finds the log.
    change(&db, &mut rng, &mut expected, 3);
    db.sync().unwrap();
    let found = disk.lose_power(3).open(&options()).unwrap();
    assert_content(&found, &expected);
}

#[test]
fn a_damaged_checkpoint_costs_a_pass_over_the_log_and_nothing_else() {
    let disk = SimDisk::new();
    let db = disk.open(&options()).unwrap();
    let (mut rng, mut expected) = (Rng::new(3), Content::new());
    change(&db, &mut rng, &mut expected, 1200);
    db.sync().unwrap();
    let whole = disk.lose_power(0).file();
    let word = |at: usize| u64::from_le_bytes(*whole[at..].first_chunk().unwrap());
    let newest = if word(16) > word(4096 + 16) { 0 } else { 4096 };
    let (offset, bytes) = (word(newest + 144) as usize, word(newest + 152) as usize);
    assert!(bytes > 4096 && offset > 0);
    let mut harmless_count = 0;
    for at in (offset..offset + bytes).step_by(37) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        let disk = SimDisk::with_file(&damaged);
        let db = disk.open(&options()).unwrap();
        harmless_count += u64::from(checkpoint_keys(&db) > 0);
        assert_content(&db, &expected);
        assert!(db.check().unwrap().is_clean());
    }
    // The bytes behind the last block are not read.
    assert!(harmless_count < (bytes as u64 / 37) / 2, "{harmless_count} of {}", bytes / 37);
}

#[test]
fn a_failed_call_leaves_out_the_checkpoint_or_poisons_and_keeps_the_changes() {
    let disk = SimDisk::new();
    let mut db = disk.open(&options()).unwrap();
    let (mut rng, mut expected) = (Rng::new(4), Content::new());
    change(&db, &mut rng, &mut expected, 500);
    let (mut poisoned_count, mut left_out_count) = (0, 0);
    for call in 1..60 {
        let calls_before = disk.call_count();
        disk.fail_call(call, 28, false);
        let mut error_count = 0;
        while disk.call_count() < calls_before + call {
            let (key, value) =
                (format!("key {}", rng.below(600)).into_bytes(), vec![call as u8; 40]);
            expected.insert(key.clone(), value.clone());
            let Err(error) = db.put(&key, &value) else { continue };
            error_count += 1;
            if error.kind() == ErrorKind::Poisoned {
                poisoned_count += 1;
                drop(db);
                db = disk.open(&options()).unwrap();
            }
            db.put(&key, &value).unwrap();
        }
        if let Err(error) = db.sync() {
            assert_eq!(error.kind(), ErrorKind::Poisoned);
            poisoned_count += 1;
            drop(db);
            db = disk.open(&options()).unwrap();
        } else if error_count == 0 {
            left_out_count += 1;
        }
        assert_content(&db, &expected);
        assert!(db.check().unwrap().is_clean());
    }
    assert!(poisoned_count > 0 && left_out_count > 0, "{poisoned_count}, {left_out_count}");
    db.close().unwrap();
    assert_content(&disk.open(&options()).unwrap(), &expected);
}
