//! Small stores in memory and on a simulated disk, for Miri: everything that touches memory by
//! hand, once, in little.
//!
//! ```text
//! cargo +nightly miri test -p splitpoint --lib miri
//! ```

use std::collections::BTreeMap;

use crate::hash::{HashFunction, HashId};
use crate::{Db, Durability, Options, Recovery, SimDisk};

/// A table that splits, merges and overflows with few keys. Nothing is synced in the background:
/// the simulated disk copies what the writer may be storing, as a kernel does behind its back.
fn options() -> Options {
    let few_bits = |key: &[u8], _| crate::hash::fnv1a_64(key) & 0b1011;
    let hash = HashFunction::user(HashId(0x8000_0001), "few-bits", few_bits).unwrap();
    let options = Options::new().durability(Durability::Buffered);
    options.segment_bytes_min(4096).fill_factor(2.0).hash(hash).seed(1)
}

fn assert_content(db: &Db, expected: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let mut found = BTreeMap::new();
    for entry in db.scan().unwrap() {
        let entry = entry.unwrap();
        assert!(found.insert(entry.key.to_vec(), entry.value.to_vec()).is_none());
    }
    assert_eq!(found, *expected);
    let keys: Vec<&[u8]> = expected.keys().map(|key| &key[..]).collect();
    for (key, value) in keys.iter().zip(db.get_many(&keys).unwrap()) {
        assert_eq!(value.as_deref(), Some(&expected[*key][..]));
    }
    assert!(db.check().unwrap().is_clean());
}

/// Grows, overwrites and shrinks a table, with records of every kind of header and big ones.
fn work(db: &Db) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut model = BTreeMap::new();
    for i in 0..40_u8 {
        let (key, value) = (vec![i; 1 + usize::from(i % 2)], vec![i; usize::from(i)]);
        db.put(&key, &value).unwrap();
        model.insert(key, value);
    }
    db.put(&[], &[]).unwrap();
    model.insert(Vec::new(), Vec::new());
    db.put(&[2], &[2; 20]).unwrap();
    model.insert(vec![2], vec![2; 20]);
    for (key, len) in [(vec![7; 300], 5), (vec![8], 1500), (vec![9], 300)] {
        db.put_with(&key, &vec![1; len], Durability::Sync).unwrap();
        model.insert(key, vec![1; len]);
    }
    let grown = db.stats().unwrap();
    assert!(grown.overflow_line_count > 0);
    for i in 3..36_u8 {
        let key = vec![i; 1 + usize::from(i % 2)];
        assert_eq!(db.delete(&key).unwrap(), model.remove(&key).is_some());
    }
    assert!(db.stats().unwrap().geometry.bucket_count() < grown.geometry.bucket_count());
    model
}

#[test]
fn miri_a_table_in_memory_reads_what_it_stored() {
    let db = options().in_memory().unwrap();
    let model = work(&db);
    assert_content(&db, &model);
    for entry in db.scan().unwrap() {
        assert!(db.delete(&entry.unwrap().key).unwrap());
    }
    assert!(db.is_empty());
}

#[test]
fn miri_a_simulated_disk_is_reopened_after_close_kill_and_power_loss() {
    let options = options();
    let disk = SimDisk::new();
    let db = disk.open(&options).unwrap();
    let model = work(&db);
    db.sync().unwrap();
    for (after, name) in [(disk.kill(), "killed"), (disk.lose_power(3), "power lost")] {
        let db = after.open(&options).unwrap();
        assert_content(&db, &model);
        match db.recovery() {
            Recovery::WarmRestart { .. } => assert_eq!(name, "killed"),
            recovery => assert!(matches!(recovery, Recovery::Replayed { .. }), "{recovery:?}"),
        }
    }
    db.close().unwrap();
    assert_content(&disk.open(&options).unwrap(), &model);
}

/// A reader and a scanner beside a writer that splits and merges.
#[test]
fn miri_readers_and_a_writer_share_a_table() {
    let db = options().in_memory().unwrap();
    for i in 0..4_u8 {
        db.put(&[i], &[i; 9]).unwrap();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..12 {
                let i = round % 4;
                assert_eq!(db.get(&[i]).unwrap().as_deref(), Some(&[i; 9][..]));
                assert!(!db.contains(&[200]).unwrap());
            }
        });
        scope.spawn(|| assert!(db.scan().unwrap().count() >= 4));
        for i in 10..30_u8 {
            db.put(&[i], &[i; 3]).unwrap();
        }
        for i in 10..30_u8 {
            db.put(&[2], &[2; 9]).unwrap();
            assert!(db.delete(&[i]).unwrap());
        }
    });
    assert_eq!(db.len(), 4);
}

/// View and buckets of a table move several times, under borrowed values, a scan and a reader.
#[test]
fn miri_a_table_moves_under_its_values_and_readers() {
    let options = Options::new().durability(Durability::Buffered).segment_bytes_min(4096);
    let db = options.fill_factor(1.0).seed(1).in_memory().unwrap();
    let value = |i: u8| vec![i; 100 * usize::from(i % 20)];
    db.put(&[0], &value(0)).unwrap();
    let (first, scan) = (db.get(&[0]).unwrap().unwrap(), db.scan().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in (0..100).chain(0..100) {
                if let Some(found) = db.get(&[i]).unwrap() {
                    assert_eq!(*found, value(i)[..]);
                }
            }
        });
        for i in 0..100 {
            db.put(&[i], &value(i)).unwrap();
        }
    });
    assert_eq!(db.stats().unwrap().geometry.bucket_count(), 100, "more than the first memory has");
    assert_eq!((scan.count(), &*first), (1, &value(0)[..]));
    for i in 0..100 {
        assert_eq!(db.get(&[i]).unwrap().as_deref(), Some(&value(i)[..]));
    }
}

/// A damaged file is read through the same raw memory: no bytes of it may lead outside.
#[test]
fn miri_a_damaged_file_leads_nowhere() {
    let options = options();
    let disk = SimDisk::new();
    let db = disk.open(&options).unwrap();
    for i in 0..20_u8 {
        db.put(&[i], &[i; 9]).unwrap();
    }
    let bytes = disk.file();
    drop(db);
    for offset in [8192 + 64, 8192 + 216, 8192 + 1024, 16_384, 16_392, 20_480, 20_488 + 64] {
        let mut damaged = bytes.clone();
        damaged[offset..offset + 3].fill(0xff);
        let Ok(db) = SimDisk::with_file(&damaged).open(&options) else { continue };
        let _ = (db.get(&[3]), db.scan().map(Iterator::count), db.check(), db.put(&[50], b""));
    }
}
