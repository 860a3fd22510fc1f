//! Pages that the kernel dropped within one boot: tables that are not those that the writer had.
//!
//! A device that goes away and comes back shows each page as of some moment between its last sync and
//! the end. Another mount tells that by its number; a write-back error under the same mount does not,
//! and then the tables must not agree with the log.

use std::ops::Range;
use std::time::Duration;

use super::{Content, mix};
use crate::format::{GRANULE_BYTES, LIVE_BYTES, LIVE_OFFSET, READER_TABLE_OFFSET, u64_at};
use crate::index::line::LINE_BYTES;
use crate::live::LineWindow;
use crate::piece::piece_of;
use crate::storage::reader_table::since_boot;
use crate::testing::mutant::{Mutant, with};
use crate::{Change, Db, Durability, Options, Recovery, Sharing, SimDisk};

fn options() -> Options {
    Options::new().seed(42).segment_bytes_min(4096).fill_factor(1.0)
}

/// Changes keys `from..to` of a small set, so that there are new ones, replaced ones and deletes.
fn change(db: &Db, content: &mut Content, steps: Range<u64>, durability: Durability) {
    for i in steps {
        let key = (mix(7, i) % 300).to_le_bytes().to_vec();
        if i % 5 == 4 && content.contains_key(&key) {
            assert!(db.delete_with(&key, durability).expect("there is room"));
            content.remove(&key);
        } else {
            let value = i.to_le_bytes().to_vec();
            db.put_with(&key, &value, durability).expect("there is room");
            content.insert(key, value);
        }
    }
}

/// Opens the file of a machine on its boot and mount and returns how, with what is there.
fn open(disk: &SimDisk) -> (Recovery, Content) {
    let db = disk.open(&options()).expect("it opens");
    let content = super::read(&db).expect("it is sound");
    assert!(db.check().expect("it can be checked").is_clean());
    (db.recovery(), content)
}

/// Where the pages of the index are in the file.
fn index_pages(db: &Db) -> Vec<u64> {
    let region = &db.store().region;
    let mut pages = Vec::new();
    for window in LineWindow::ALL {
        for piece in 0..region.live().piece_count(window) {
            let start = region.live().piece(window, piece) * GRANULE_BYTES;
            let end = start + piece_of(piece).line_count * LINE_BYTES;
            pages.extend((start..end).step_by(GRANULE_BYTES as usize));
        }
    }
    pages
}

/// Returns `newer` with some pages as they are in `older`.
fn with_pages_of(newer: &[u8], older: &[u8], pages: &[u64]) -> SimDisk {
    let mut file = newer.to_vec();
    for &page in pages {
        let range = page as usize..(page + GRANULE_BYTES) as usize;
        match older.get(range.clone()) {
            Some(old) => file[range].copy_from_slice(old),
            // It was no part of the file yet.
            None => file[range].fill(0),
        }
    }
    SimDisk::with_file(&file)
}

#[test]
fn a_device_that_was_mounted_again_on_the_same_boot_keeps_every_acknowledged_change() {
    for seed in 0..64 {
        let disk = SimDisk::new();
        let db = disk.open(&options()).unwrap();
        let mut content = Content::new();
        change(&db, &mut content, 0..100 + 7 * seed, Durability::Sync);
        let (recovery, found) = open(&disk.remount(mix(1, seed)));
        assert!(matches!(recovery, Recovery::Replayed { .. }), "{recovery:?}");
        assert_eq!(found, content, "seed {seed}");
    }
}

#[test]
fn a_killed_writer_alone_is_taken_over() {
    let disk = SimDisk::new();
    let db = disk.open(&options()).unwrap();
    let mut content = Content::new();
    for from in (0..600).step_by(50) {
        change(&db, &mut content, from..from + 50, Durability::Buffered);
        let (recovery, found) = open(&disk.kill());
        assert_eq!((recovery, found), (Recovery::WarmRestart { records: 0 }, content.clone()));
    }
}

/// The log has all changes: a header of some changes before leads to too few of them.
#[test]
fn a_header_older_than_the_log_is_not_trusted() {
    let disk = SimDisk::new();
    let db = disk.open(&options()).unwrap();
    let mut content = Content::new();
    change(&db, &mut content, 0..400, Durability::Sync);
    let older = disk.file();
    change(&db, &mut content, 400..402, Durability::Sync);
    let header = [LIVE_OFFSET];
    let stale = with_pages_of(&disk.file(), &older, &header);
    let (recovery, found) = open(&stale.kill());
    assert!(matches!(recovery, Recovery::Replayed { .. }), "{recovery:?}");
    assert_eq!(found, content);

    // Without the comparison it is.
    let (recovery, _) = with(Mutant::TrustsOldTables, || open(&stale.kill()));
    assert!(matches!(recovery, Recovery::WarmRestart { records: 2.. }), "{recovery:?}");
}

#[test]
fn a_header_that_lacks_a_batch_and_a_change_is_not_trusted() {
    let disk = SimDisk::new();
    let db = disk.open(&options()).unwrap();
    db.put(b"key", b"value").unwrap();
    let older = disk.file();
    let batch = [b"a", b"b", b"c"].map(|key| Change::Put { key, value: b"batch" });
    db.apply(&batch).unwrap();
    let one_behind = with_pages_of(&disk.file(), &older, &[LIVE_OFFSET]);
    assert_eq!(
        open(&one_behind).0,
        Recovery::WarmRestart { records: 4 },
        "killed before its commit"
    );
    db.put(b"key", b"again").unwrap();
    let two_behind = with_pages_of(&disk.file(), &older, &[LIVE_OFFSET]);
    let (recovery, content) = open(&two_behind);
    assert!(matches!(recovery, Recovery::Replayed { .. }), "{recovery:?}");
    assert_eq!((content.len(), &content[&b"key"[..]]), (4, &b"again".to_vec()));
}

/// Each page of the index that has changed, alone, and all of them.
#[test]
fn an_index_older_than_the_header_is_not_trusted() {
    let disk = SimDisk::new();
    let db = disk.open(&options()).unwrap();
    let mut content = Content::new();
    change(&db, &mut content, 0..300, Durability::Sync);
    let older = disk.file();
    change(&db, &mut content, 300..700, Durability::Sync);
    let newer = disk.file();
    let all = index_pages(&db);
    let is_changed = |&&page: &&u64| {
        let range = page as usize..(page + GRANULE_BYTES) as usize;
        older.get(range.clone()) != Some(&newer[range])
    };
    let changed: Vec<u64> = all.iter().filter(is_changed).copied().collect();
    assert!(changed.len() > 2, "{changed:?}");
    let mut sets: Vec<Vec<u64>> = changed.iter().map(|&page| vec![page]).collect();
    sets.push(changed);
    let mut wrong_count = 0;
    for pages in sets {
        let stale = with_pages_of(&newer, &older, &pages);
        let (recovery, found) = open(&stale.kill());
        assert!(matches!(recovery, Recovery::Replayed { .. }), "{pages:?}: {recovery:?}");
        assert_eq!(found, content, "{pages:?}");
        let trusted = with(Mutant::TrustsOldTables, || {
            let db = stale.kill().open(&options()).ok()?;
            super::read(&db).ok()
        });
        wrong_count += u32::from(trusted.as_ref() != Some(&content));
    }
    assert!(wrong_count > 2, "pages that nobody misses prove nothing: {wrong_count}");
}

/// A moment after it was closed they are not compared: the others took turns without a look at them, too.
#[test]
fn tables_that_a_handle_by_turns_has_left_for_a_while_are_compared_with_the_log() {
    let by_turns = options().sharing(Sharing::Shared);
    let disk = SimDisk::new();
    let db = disk.open(&by_turns).unwrap();
    let mut content = Content::new();
    change(&db, &mut content, 0..300, Durability::Sync);
    let older = disk.file();
    change(&db, &mut content, 300..700, Durability::Sync);
    let pages = index_pages(&db);
    db.close().unwrap();
    let recovery_after = |age: Duration| {
        let mut newer = disk.file();
        let closed = since_boot().saturating_sub(age).as_nanos() as u64;
        let at = READER_TABLE_OFFSET as usize + 56;
        newer[at..at + 8].copy_from_slice(&closed.to_le_bytes());
        with_pages_of(&newer, &older, &pages).kill().open(&by_turns).unwrap().recovery()
    };
    let (moment, while_ago) = (Duration::ZERO, Duration::from_secs(2));
    let is_replayed = |recovery| matches!(recovery, Recovery::Replayed { .. });
    assert!(is_replayed(recovery_after(while_ago)));
    assert!((0..100).any(|_| !is_replayed(recovery_after(moment))), "one of them takes less");
    let trusted = with(Mutant::TrustsLastTurns, || recovery_after(while_ago));
    assert!(!is_replayed(trusted));
}

/// The published commit names records that are not there.
#[test]
fn a_log_older_than_the_header_is_not_trusted() {
    let disk = SimDisk::new();
    let db = disk.open(&options()).unwrap();
    let mut content = Content::new();
    change(&db, &mut content, 0..200, Durability::Sync);
    let (older, synced) = (disk.file(), content.clone());
    change(&db, &mut content, 200..230, Durability::Buffered);
    let newer = disk.file();
    // Everything that has changed but for the header and the index.
    let index = index_pages(&db);
    let is_log = |page: &u64| *page >= LIVE_OFFSET + LIVE_BYTES && !index.contains(page);
    let pages: Vec<u64> =
        (0..newer.len() as u64).step_by(GRANULE_BYTES as usize).filter(is_log).collect();
    let (recovery, found) = open(&with_pages_of(&newer, &older, &pages));
    assert!(matches!(recovery, Recovery::Replayed { .. }), "{recovery:?}");
    assert_eq!(found, synced);
}

/// A process writes a big record and is killed before it has named it. The next writes another in the same
/// place, and a power loss keeps the name of that one, and of the record what the first has written.
#[test]
fn a_big_record_that_was_never_named_is_not_taken_for_the_next_one_there() {
    let disk = SimDisk::new();
    let db = disk.open(&options()).unwrap();
    db.put_with(b"key", b"small", Durability::Sync).unwrap();
    let with_big = |fill: u8| {
        let next = disk.kill();
        // Salts are random: those of two processes are not the same.
        (0..fill).for_each(|_| drop(next.storage().unwrap().random_u64()));
        let db = next.open(&options()).unwrap();
        db.put(b"key", &[fill; 5000]).unwrap();
        assert!(matches!(db.recovery(), Recovery::WarmRestart { .. }));
        next.file()
    };
    let (unnamed, named) = (with_big(1), with_big(2));
    let starts = (0..named.len()).step_by(GRANULE_BYTES as usize);
    let big: Vec<u64> = starts
        .filter(|&at| named[at..].starts_with(b"SEGM\x03"))
        .flat_map(|at| [at as u64, at as u64 + GRANULE_BYTES])
        .collect();
    assert_eq!(big.len(), 2, "one big record of two pages");
    let stale = with_pages_of(&named, &unnamed, &big);
    let (recovery, found) = open(&stale);
    assert!(matches!(recovery, Recovery::Replayed { .. }), "{recovery:?}");
    assert_eq!(found[&b"key"[..]], b"small", "the change that was durable");

    let stale = with_pages_of(&named, &unnamed, &big);
    let (_, found) = with(Mutant::IgnoresSaltOfBigs, || open(&stale));
    assert_eq!(found[&b"key"[..]], [1; 5000], "the salt alone tells them apart");
}

/// Each byte of the log, in a store whose changes were all acknowledged as durable.
#[test]
fn a_damaged_record_that_was_durable_costs_no_other() {
    let disk = SimDisk::new();
    let db = disk.open(&options()).unwrap();
    for i in 0..40_u8 {
        db.put_with(&[i], &[i; 30], Durability::Sync).unwrap();
    }
    let file = disk.file();
    let start = db.store().lock().unwrap().superblock.log_start.record_offset as usize;
    for at in start..start + 40 * 40 {
        let mut damaged = file.clone();
        damaged[at] ^= 0x10;
        let db = SimDisk::with_file(&damaged).open(&options()).unwrap();
        assert!(matches!(db.recovery(), Recovery::WarmRestart { .. }), "byte {at}");
        let is_there = |i: &u8| db.get(&[*i]).is_ok_and(|v| v.as_deref() == Some(&[*i; 30]));
        assert!((0..40).filter(is_there).count() >= 39, "byte {at}");
        assert!(!db.check().unwrap().is_clean(), "byte {at}");
    }
}

#[test]
fn a_read_only_handle_does_not_trust_old_tables_either() {
    let disk = SimDisk::new();
    let db = disk.open(&options()).unwrap();
    let mut content = Content::new();
    change(&db, &mut content, 0..300, Durability::Sync);
    let older = disk.file();
    change(&db, &mut content, 300..302, Durability::Sync);
    let stale = with_pages_of(&disk.file(), &older, &[LIVE_OFFSET]);
    let before = stale.file();
    let db = stale.open(&options().read_only()).unwrap();
    assert!(matches!(db.recovery(), Recovery::Replayed { .. }), "{:?}", db.recovery());
    assert_eq!(super::read(&db).unwrap(), content);
    drop(db);
    assert_eq!(stale.file(), before);
    assert_eq!(u64_at(&before, LIVE_OFFSET as usize), crate::format::LIVE_MAGIC);
}
