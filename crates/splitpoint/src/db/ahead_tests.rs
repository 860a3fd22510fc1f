//! What a thread prepares ahead of the writer: the next segment of the log, and the pages of a table in memory.

use std::sync::mpsc::{Sender, channel};

use crate::format::GRANULE_BYTES;
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
        drop(lets_go);
        dropping.join().unwrap();
    }
}

#[test]
fn a_table_in_memory_has_one_or_two_huge_pages_ahead_of_it_unless_it_is_small() {
    let db = options().in_memory().unwrap();
    let ahead = || {
        let writer = db.store().lock().unwrap();
        let file_bytes = writer.extents.region().storage().file_bytes();
        (file_bytes, writer.log.pages_end())
    };
    let mut pages_max = 0;
    for i in 0..60_000_u64 {
        db.put(i.to_le_bytes(), value(i)).unwrap();
        let (file_bytes, end) = ahead();
        if file_bytes < 2 * MIB {
            assert_eq!(end, 0, "{file_bytes}");
        } else if end > 0 {
            assert!(end.is_multiple_of(2 * MIB));
            // The segment that was set aside after it is of less than one page.
            assert!(
                end + 2 * MIB > file_bytes && end <= file_bytes + 6 * MIB,
                "{file_bytes} {end}"
            );
            pages_max = pages_max.max((end - file_bytes.min(end)) / (2 * MIB));
        }
    }
    assert!(pages_max >= 1, "{:?}", ahead());
    assert_sound(&db);
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
