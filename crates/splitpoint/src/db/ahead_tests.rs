//! What a thread prepares ahead of the writer: the next segment of the log, and the pages of a table in memory.

use std::collections::BTreeSet;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use crate::format::GRANULE_BYTES;
use crate::storage::anon::limit;
use crate::{Create, Db, Durability, Options};

const MIB: u64 = 1 << 20;
const VALUE_BYTES: usize = 1000;

fn options() -> Options {
    Options::new().seed(7).durability(Durability::Buffered)
}

fn value(i: u64) -> Vec<u8> {
    [&i.to_le_bytes()[..], &[i as u8; VALUE_BYTES]].concat()
}

/// Stores so many MiB of records.
fn fill(db: &Db, mib: u64) {
    for i in 0..mib * MIB / VALUE_BYTES as u64 {
        db.put(i.to_le_bytes(), value(i)).unwrap();
    }
}

fn assert_sound(db: &Db) {
    for i in (0..db.len()).step_by(7) {
        assert_eq!(db.get(i.to_le_bytes()).unwrap().as_deref(), Some(&value(i)[..]));
    }
    assert!(db.check().unwrap().is_clean());
}

/// Has the thread that takes page faults wait until the sender is dropped.
fn stop_thread(db: &Db) -> Sender<()> {
    let (lets_go, is_let_go) = channel::<()>();
    let (begins, begun) = channel();
    let work = Box::new(move || {
        begins.send(()).unwrap();
        let _ = is_let_go.recv();
    });
    db.store().lock().unwrap().extents.region().prefaulter().ask(work);
    begun.recv().unwrap();
    lets_go
}

#[test]
fn a_writer_goes_on_while_the_thread_that_prepares_is_stuck() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    for db in [options().open(&path).unwrap(), options().in_memory().unwrap()] {
        let lets_go = stop_thread(&db);
        fill(&db, 24);
        assert_sound(&db);
        drop(lets_go);
        db.close().unwrap();
    }
    assert_sound(&options().create(Create::Never).open(&path).unwrap());
}

#[test]
fn a_handle_that_is_dropped_while_the_thread_is_at_work_waits_for_it() {
    let dir = tempfile::tempdir().unwrap();
    for db in [options().open(dir.path().join("a.spt")).unwrap(), options().in_memory().unwrap()] {
        let lets_go = stop_thread(&db);
        fill(&db, 20);
        let dropping = std::thread::spawn(move || drop(db));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!dropping.is_finished());
        drop(lets_go);
        dropping.join().unwrap();
    }
}

/// Returns when the thread has done what it was asked for.
fn wait_for_thread(db: &Db) {
    drop(stop_thread(db));
}

#[test]
fn a_table_in_memory_has_one_or_two_huge_pages_ahead_of_it_unless_it_is_small() {
    const HUGE: u64 = 2 * MIB;
    let db = options().in_memory().unwrap();
    let mut pages = BTreeSet::new();
    for i in 0..60_000_u64 {
        db.put(i.to_le_bytes(), value(i)).unwrap();
        let writer = db.store().lock().unwrap();
        let (file_bytes, end) =
            (writer.extents.region().storage().file_bytes(), writer.log.pages_end());
        if file_bytes < 16 * MIB {
            assert_eq!(end, 0, "{file_bytes}");
        } else if end > 0 {
            assert!(end.is_multiple_of(HUGE));
            // One less at times: of a segment that was set aside since.
            let next = file_bytes.next_multiple_of(HUGE);
            assert!(next <= end && end <= next + 2 * HUGE, "{file_bytes} {end}");
            pages.insert((end - next) / HUGE);
        }
    }
    wait_for_thread(&db);
    let writer = db.store().lock().unwrap();
    let storage = writer.extents.region().storage();
    let (next, end) = (storage.file_bytes().next_multiple_of(HUGE), writer.log.pages_end());
    let Some(behind) = storage.pages_behind(next, HUGE) else {
        println!("the system does not overcommit memory: nothing is taken ahead");
        return;
    };
    assert!(pages.contains(&1) && pages.contains(&2), "{pages:?}");
    assert!(end >= next + HUGE, "{next} {end}");
    assert_ne!(behind.are_resident(), Some(false), "the thread takes their faults");
    let after = storage.pages_behind(end, HUGE).expect("there is more address space");
    assert_ne!(after.are_resident(), Some(true), "and none behind them");
    drop(writer);
    assert_sound(&db);
}

#[test]
fn a_writer_does_not_prepare_what_a_table_in_memory_has_outgrown() {
    let db = options().in_memory().unwrap();
    limit::set_reserved(32 * MIB);
    let lets_go = stop_thread(&db);
    fill(&db, 18);
    // Pages that were asked for, behind what is in use.
    let asked = || {
        let writer = db.store().lock().unwrap();
        let storage = writer.extents.region().storage();
        let next = storage.file_bytes().next_multiple_of(2 * MIB);
        (next < writer.log.pages_end()).then(|| storage.pages_behind(next, 2 * MIB))?
    };
    limit::set_reserved(u64::MAX);
    let Some(asked) = asked() else {
        println!("the system does not overcommit memory: nothing is taken ahead");
        return;
    };
    assert_ne!(asked.are_resident(), Some(true));
    db.put("big", vec![7; 20 << 20]).unwrap();
    fill(&db, 4);
    assert_ne!(asked.are_resident(), Some(true), "the table has moved");
    drop(lets_go);
    assert!(db.check().unwrap().is_clean());
}

/// Only what the file was extended for need not be cleared.
#[test]
fn granules_that_had_a_use_are_not_taken_for_new_ones() {
    let dir = tempfile::tempdir().unwrap();
    let db = options().open(dir.path().join("a.spt")).unwrap();
    db.put("key", "value").unwrap();
    let mut writer = db.store().lock().unwrap();
    let extents = &mut writer.extents;
    let bytes = 64 * GRANULE_BYTES;
    let offset = extents.allocate(bytes, bytes).unwrap();
    assert!(extents.is_taken_new());
    let storage = || extents.region().storage();
    assert!(storage().read(offset, bytes).iter().all(|&byte| byte == 0));
    storage().write_at(offset, &[7; 100]).unwrap();
    extents.release(offset, bytes);
    assert_eq!(extents.set_aside(bytes).unwrap(), offset);
    assert!(!extents.is_taken_new());
    extents.release_aside();
    assert_eq!(extents.allocate(bytes, bytes).unwrap(), offset);
    assert!(!extents.is_taken_new());
}
