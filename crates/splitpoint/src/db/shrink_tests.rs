//! What a table that has shrunk keeps of its index.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::format::GRANULE_BYTES;
use crate::hash::{HashFunction, HashId};
use crate::{Db, Durability, Options};

const KEYS: u64 = 20_000;

fn options() -> Options {
    Options::new().seed(1).durability(Durability::Buffered)
}

fn fill(db: &Db, keys: std::ops::Range<u64>) {
    db.put_many(keys.map(|i| (i.to_le_bytes(), (!i).to_le_bytes()))).unwrap();
}

fn delete(db: &Db, keys: std::ops::Range<u64>) {
    for i in keys {
        assert!(db.delete(i.to_le_bytes()).unwrap());
    }
}

/// Returns the bytes of buckets, of overflow lines, and of free space.
fn index_bytes(db: &Db) -> (u64, u64, u64) {
    let segments = db.stats().unwrap().segments;
    (segments.index, segments.overflow, segments.free)
}

/// Fills, empties and fills a table while other threads look for keys that stay.
fn grow_and_shrink(db: &Db) {
    let is_over = AtomicBool::new(false);
    fill(db, 0..4);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    for i in 0..4_u64 {
                        let value = db.get(i.to_le_bytes()).unwrap().expect("it stays");
                        assert_eq!(value, (!i).to_le_bytes());
                        assert!(db.get((KEYS + i).to_le_bytes()).unwrap().is_none());
                    }
                }
            });
        }
        for _ in 0..2 {
            fill(db, 4..KEYS);
            let (buckets, overflow, _) = index_bytes(db);
            assert!(buckets > 60 * GRANULE_BYTES && overflow > 2 * GRANULE_BYTES);
            delete(db, 4..KEYS);
            let (buckets, overflow, _) = index_bytes(db);
            assert_eq!((buckets, overflow), (GRANULE_BYTES, GRANULE_BYTES));
            assert!(db.check().unwrap().is_clean());
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(db.len(), 4);
}

#[test]
fn a_table_in_memory_gives_its_index_back_when_it_shrinks() {
    grow_and_shrink(&options().in_memory().unwrap());
}

#[test]
fn a_file_gives_its_index_back_when_it_shrinks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let db = options().open(&path).unwrap();
    grow_and_shrink(&db);
    db.close().unwrap();
    let db = options().open(&path).unwrap();
    assert!(db.check().unwrap().is_clean());
    fill(&db, 0..KEYS);
    assert!(db.check().unwrap().is_clean());
    assert_eq!(db.len(), KEYS);
}

#[test]
fn the_space_of_an_index_that_has_shrunk_takes_segments_of_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let db = options().open(dir.path().join("a.spt")).unwrap();
    fill(&db, 0..KEYS);
    let (before, ..) = index_bytes(&db);
    let (.., free_before) = index_bytes(&db);
    delete(&db, 0..KEYS);
    let (.., free_after) = index_bytes(&db);
    assert!(free_after > free_before + before / 2, "{free_before} to {free_after} of {before}");
    let file_bytes = db.stats().unwrap().file_bytes;
    for i in 0..20_u64 {
        db.put(i.to_le_bytes(), vec![1; 4000]).unwrap();
    }
    assert!(index_bytes(&db).2 < free_after, "the log takes it");
    assert_eq!(db.stats().unwrap().file_bytes, file_bytes);
}

/// Chains that share few buckets have thousands of overflow lines.
#[test]
fn overflow_lines_that_deletes_empty_go_with_the_last_of_them() {
    let few_bits = |key: &[u8], _| crate::hash::fnv1a_64(key) & 0b1011;
    let hash = HashFunction::user(HashId(0x8000_0001), "few-bits", few_bits).unwrap();
    let db = options().hash(hash).in_memory().unwrap();
    for _ in 0..2 {
        fill(&db, 0..3000);
        assert!(index_bytes(&db).1 > 4 * GRANULE_BYTES);
        delete(&db, 0..3000);
        let (buckets, overflow, _) = index_bytes(&db);
        assert_eq!((buckets, overflow), (GRANULE_BYTES, GRANULE_BYTES));
        assert_eq!(db.stats().unwrap().overflow_line_count, 0);
    }
}

#[test]
fn a_table_that_grows_again_soon_keeps_its_index() {
    let db = options().in_memory().unwrap();
    fill(&db, 0..KEYS);
    let (buckets, overflow, _) = index_bytes(&db);
    delete(&db, KEYS / 2..KEYS);
    let (buckets_after, overflow_after, _) = index_bytes(&db);
    assert_eq!((buckets_after, overflow_after), (buckets, overflow));
}
