//! Pages that the kernel dropped within one boot: tables that are not those that the writer had.
//!
//! A device that goes away and comes back shows each page as of some moment between its last sync and
//! the end. Another mount tells that by its number; a write-back error under the same mount does not,
//! and then the tables must not agree with the log.

use std::ops::Range;
use std::time::Duration;

use super::{Content, mix};
use crate::format::{
    GRANULE_BYTES, LIVE_BYTES, LIVE_OFFSET, READER_TABLE_BYTES, READER_TABLE_OFFSET, u64_at,
};
use crate::index::line::LINE_BYTES;
use crate::live::LineWindow;
use crate::piece::piece_of;
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
        let disk = if seed % 2 == 0 { SimDisk::new() } else { SimDisk::with_older_kernel() };
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
    for disk in [SimDisk::new(), SimDisk::with_older_kernel()] {
        let db = disk.open(&options()).unwrap();
        let mut content = Content::new();
        for from in (0..600).step_by(50) {
            change(&db, &mut content, from..from + 50, Durability::Buffered);
            let (recovery, found) = open(&disk.kill());
            assert_eq!((recovery, found), (Recovery::WarmRestart { records: 0 }, content.clone()));
        }
    }
}

/// It may have been unmounted, or the kernel had room for other files: the hint is gone, and the header the same.
#[test]
fn a_header_proves_nothing_on_an_older_kernel_that_has_forgotten_the_file() {
    let disk = SimDisk::with_older_kernel();
    let db = disk.open(&options()).unwrap();
    let mut content = Content::new();
    change(&db, &mut content, 0..400, Durability::Sync);
    let killed = disk.kill();
    killed.forget_write_hint();
    let (recovery, found) = open(&killed);
    assert!(matches!(recovery, Recovery::Replayed { .. }), "{recovery:?}");
    assert_eq!(found, content);
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

fn by_turns() -> Options {
    options().sharing(Sharing::Shared).durability(Durability::Buffered)
}

/// Returns what a handle by turns has left that was closed, with an index from before, which a comparison with
/// the log finds. At the close it takes so long to ask for an error of write-back.
fn left_with_old_index(wait: Duration) -> SimDisk {
    let disk = SimDisk::new();
    let db = disk.open(&by_turns()).expect("a new store");
    let mut content = Content::new();
    change(&db, &mut content, 0..300, Durability::Sync);
    let older = disk.file();
    change(&db, &mut content, 300..700, Durability::Sync);
    let pages = index_pages(&db);
    disk.delay_write_back_reports(wait);
    db.close().expect("nothing fails here");
    let left = with_pages_of(&disk.file(), &older, &pages);
    left.pass(wait);
    left
}

fn is_replayed_by_turns(disk: &SimDisk) -> bool {
    let db = disk.open(&by_turns()).expect("it opens");
    matches!(db.recovery(), Recovery::Replayed { .. })
}

const SECOND: Duration = Duration::from_secs(1);

/// A moment after it was closed they are not compared: the others took turns without a look at them, too.
#[test]
fn tables_that_a_handle_by_turns_has_left_for_a_while_are_compared_with_the_log() {
    let left = left_with_old_index(Duration::ZERO);
    let is_replayed_after = |time| {
        let disk = left.kill();
        disk.pass(time);
        is_replayed_by_turns(&disk)
    };
    assert!(!is_replayed_after(SECOND));
    let longer = SECOND + Duration::from_nanos(1);
    assert!(is_replayed_after(longer));
    assert!(!with(Mutant::TrustsLastTurns, || is_replayed_after(longer)));
}

/// Returns the file without the table in which handles note that they are there.
fn without_table(disk: &SimDisk) -> Vec<u8> {
    let mut file = disk.file();
    file.drain(READER_TABLE_OFFSET as usize..(READER_TABLE_OFFSET + READER_TABLE_BYTES) as usize);
    file
}

/// At once, and at any time: of tables that agree with the log nothing is to be mended.
#[test]
fn an_opening_by_turns_without_a_change_leaves_the_file_as_it_was() {
    for wait in [Duration::ZERO, 2 * SECOND, 2000 * SECOND] {
        let disk = SimDisk::new();
        let db = disk.open(&by_turns()).unwrap();
        let mut content = Content::new();
        change(&db, &mut content, 0..300, Durability::Sync);
        db.close().unwrap();
        let db = disk.open(&by_turns()).unwrap();
        change(&db, &mut content, 300..700, Durability::Buffered);
        db.close().unwrap();
        let left = without_table(&disk);
        for _ in 0..2 {
            disk.pass(wait);
            let db = disk.open(&by_turns()).unwrap();
            assert_eq!(db.recovery(), Recovery::WarmRestart { records: 0 });
            assert_eq!(super::read(&db).unwrap(), content);
            db.close().unwrap();
            assert!(without_table(&disk) == left, "{wait:?}");
        }
        // What was never synced is durable with the first change that is.
        let db = disk.open(&by_turns()).unwrap();
        change(&db, &mut content, 700..701, Durability::Sync);
        for seed in [0, 1, 7, u64::MAX] {
            assert_eq!(open(&disk.lose_power(seed)).1, content, "{wait:?}, seed {seed}");
        }
    }
}

#[test]
fn the_time_since_a_close_by_turns_begins_before_it_asks_for_an_error() {
    assert!(!is_replayed_by_turns(&left_with_old_index(SECOND)));
    assert!(is_replayed_by_turns(&left_with_old_index(2 * SECOND)));
}

/// A writer of an older version knows nothing of the note, and a copy may be put back.
#[test]
fn tables_of_another_header_than_a_handle_by_turns_has_left_are_compared_with_the_log() {
    let mut file = left_with_old_index(Duration::ZERO).file();
    assert!(!is_replayed_by_turns(&SimDisk::with_file(&file)));
    // A figure for `stat`.
    file[LIVE_OFFSET as usize + 408] ^= 1;
    assert!(is_replayed_by_turns(&SimDisk::with_file(&file)));
}

#[test]
fn a_writer_of_another_kind_withdraws_what_a_handle_by_turns_has_left() {
    let turn_word = |disk: &SimDisk| u64_at(&disk.file(), READER_TABLE_OFFSET as usize + 24);
    let disk = SimDisk::new();
    let db = disk.open(&by_turns()).unwrap();
    db.put(b"key", b"value").unwrap();
    db.close().unwrap();
    assert_ne!(turn_word(&disk), 0);
    let killed = {
        let db = disk.open(&options()).unwrap();
        db.put_with(b"other", b"value", Durability::Buffered).unwrap();
        disk.kill()
    };
    assert_eq!(turn_word(&killed), 0);
    let db = killed.open(&by_turns()).unwrap();
    assert_eq!(super::read(&db).unwrap().len(), 2);
}

/// Opens a store whose pages the kernel could not write, and makes a change durable: a power loss takes
/// nothing then. Returns how it was opened.
fn reopen_and_lose_power(disk: &SimDisk, options: &Options) -> Recovery {
    let db = disk.open(options).expect("there is room");
    db.put_with(b"last", b"value", Durability::Sync).expect("there is room");
    let (recovery, content) = (db.recovery(), super::read(&db).expect("it is sound"));
    drop(db);
    for seed in [0, 1, u64::MAX] {
        let (_, found) = open(&disk.lose_power(seed));
        assert_eq!(found, content, "{recovery:?}, seed {seed}");
    }
    recovery
}

#[test]
fn a_close_by_turns_notes_an_error_of_write_back_or_leaves_it_to_the_next_open() {
    for is_full in [false, true] {
        let disk = SimDisk::new();
        disk.copy_on_write();
        let db = disk.open(&by_turns()).unwrap();
        db.put(b"key", b"value").unwrap();
        disk.fail_write_back();
        if is_full {
            disk.limit_to(disk.file().len() as u64);
        }
        db.close().unwrap();
        disk.limit_to(u64::MAX);
        let recovery = reopen_and_lose_power(&disk, &by_turns());
        assert!(matches!(recovery, Recovery::Replayed { .. }), "full: {is_full}: {recovery:?}");
    }
}

#[test]
fn an_open_without_room_leaves_an_error_of_write_back_to_the_next_one() {
    let disk = SimDisk::new();
    disk.copy_on_write();
    let db = disk.open(&options()).unwrap();
    db.put_with(b"key", b"value", Durability::Buffered).unwrap();
    let disk = disk.kill();
    disk.fail_write_back();
    disk.limit_to(disk.file().len() as u64);
    disk.open(&options()).unwrap_err();
    disk.limit_to(u64::MAX);
    let recovery = reopen_and_lose_power(&disk, &options());
    assert!(matches!(recovery, Recovery::Replayed { .. }), "{recovery:?}");
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
