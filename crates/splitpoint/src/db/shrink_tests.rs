//! What a table that has shrunk keeps of its index.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::format::GRANULE_BYTES;
use crate::hash::{HashFunction, HashId};
use crate::live::LineWindow;
use crate::piece::lines_of;
use crate::testing::mutant::{self, Mutant};
use crate::{Cursor, Db, Durability, Options};

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

/// Deletes most keys of a table in a file and calls `look` with a handle that changes it and one that reads
/// it, and with what merges the buckets; returns the keys that stay.
#[cfg(not(miri))]
fn merge_beside(look: impl FnOnce(&Db, &Db, &mut dyn FnMut()) -> Vec<u64>) {
    let kept = |i: &u64| i.is_multiple_of(16);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let db = options().open(&path).unwrap();
    fill(&db, 0..KEYS);
    (0..KEYS).filter(|i| !kept(i)).for_each(|i| delete(&db, i..i + 1));
    let reader = options().read_only().open(&path).unwrap();
    let bucket_count = || db.store().geometry().bucket_count();
    let (before, mut is_merged) = (bucket_count(), false);
    let mut keys = look(&db, &reader, &mut || {
        if !std::mem::replace(&mut is_merged, true) {
            while !db.maintain(1 << 20).unwrap().is_done {}
            assert!(bucket_count() < before / 2, "{} of {before}", bucket_count());
        }
    });
    assert!(is_merged, "the look has begun before");
    keys.sort_unstable();
    assert!(keys.into_iter().eq((0..KEYS).filter(kept)), "every key once");
    assert!(db.check().unwrap().is_clean());
}

/// Returns the number of a key.
#[cfg(not(miri))]
fn number(key: &[u8]) -> u64 {
    u64::from_le_bytes(key.try_into().unwrap())
}

#[cfg(not(miri))]
fn scan_beside(db: &Db, merge: &mut dyn FnMut()) -> Vec<u64> {
    let entries = db.scan().unwrap().enumerate();
    let numbers = entries.map(|(i, entry)| {
        if i == 100 {
            merge();
        }
        number(&entry.unwrap().key)
    });
    numbers.collect()
}

#[cfg(not(miri))]
fn walk_beside(db: &Db, merge: &mut dyn FnMut()) -> Vec<u64> {
    let (mut cursor, mut keys) = (Cursor::at(0), Vec::new());
    while let Some(key) = cursor.next(db).unwrap() {
        keys.push(number(key));
        if keys.len() == 100 {
            merge();
        }
    }
    keys
}

#[test]
#[cfg(not(miri))]
fn scans_and_cursors_return_every_key_once_whose_buckets_maintenance_merges() {
    merge_beside(|db, _, merge| scan_beside(db, merge));
    merge_beside(|_, reader, merge| scan_beside(reader, merge));
    merge_beside(|db, _, merge| walk_beside(db, merge));
    merge_beside(|_, reader, merge| walk_beside(reader, merge));
}

#[test]
#[cfg(not(miri))]
fn a_reader_beside_the_file_finds_every_key_while_maintenance_merges_buckets() {
    let (is_over, is_begun) = (AtomicBool::new(false), AtomicBool::new(false));
    merge_beside(|_, reader, merge| {
        std::thread::scope(|scope| {
            let looking = scope.spawn(|| {
                let mut keys = Vec::new();
                while !is_over.load(Ordering::Relaxed) || keys.is_empty() {
                    keys.clear();
                    for i in 0..KEYS {
                        let found = reader.get(i.to_le_bytes()).unwrap();
                        assert!(
                            found.as_ref().is_none_or(|value| *value == (!i).to_le_bytes()[..])
                        );
                        keys.extend(found.is_some().then_some(i));
                    }
                    assert_eq!(keys.len() as u64, KEYS / 16);
                    is_begun.store(true, Ordering::Relaxed);
                }
                keys
            });
            while !is_begun.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            let merged = catch_unwind(AssertUnwindSafe(merge));
            is_over.store(true, Ordering::Relaxed);
            merged.unwrap();
            looking.join().unwrap()
        })
    });
}

/// Merges the buckets of tables of so many keys; returns how many have fewer lines than buckets then.
fn short_tables(key_counts: std::ops::Range<u64>) -> usize {
    let is_short = |&kept: &u64| {
        let db = options().in_memory().unwrap();
        fill(&db, 0..5_000);
        delete(&db, kept..5_000);
        let store = db.store();
        store.shrink_index().unwrap();
        let piece_count = store.region.live().piece_count(LineWindow::Buckets);
        let bucket_count = store.geometry().bucket_count();
        assert!(lines_of(piece_count.saturating_sub(1)) <= bucket_count, "one too many is kept");
        lines_of(piece_count) < bucket_count
    };
    key_counts.filter(is_short).count()
}

/// Some of these tables end with the first bucket of a piece.
#[test]
fn a_table_that_has_shrunk_keeps_the_piece_of_its_last_bucket() {
    assert_eq!(short_tables(1290..1310), 0);
}

#[test]
fn a_piece_too_many_given_back_is_found() {
    let short = mutant::with(Mutant::GivesBackUsedPiece, || short_tables(1290..1310));
    assert!(short > 0, "it goes unnoticed");
}
