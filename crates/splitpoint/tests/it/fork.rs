//! What a child of a `fork` may do with the handles it inherits.

use std::panic::{AssertUnwindSafe, catch_unwind};

use splitpoint::{Db, ErrorKind};

use crate::support::{assert_sound, content, tiny};

#[expect(unsafe_code, reason = "the standard library has no fork")]
mod system {
    unsafe extern "C" {
        fn fork() -> i32;
        fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
        fn _exit(status: i32) -> !;
    }

    /// Runs `child` in a child, which has `value` as well, and returns `value` with the exit
    /// status; `None` for a signal.
    pub(super) fn in_child<T>(value: T, child: impl FnOnce(T) -> i32) -> (T, Option<i32>) {
        // SAFETY: the child calls nothing of the test harness and never returns to it.
        match unsafe { fork() } {
            0 => {
                let status = child(value);
                // SAFETY: always sound.
                unsafe { _exit(status) }
            }
            pid => {
                assert!(pid > 0, "there is no process to be had");
                let mut status = 0;
                // SAFETY: the status is ours to write to.
                assert_eq!(unsafe { waitpid(pid, &raw mut status, 0) }, pid);
                (value, (status % 128 == 0).then_some(status >> 8 & 0xff))
            }
        }
    }
}

type Step<'a> = &'a dyn Fn(&Db) -> bool;

/// Runs these steps with a handle and drops it. Returns the number of the first step that fails,
/// counted from 1, or 0.
fn first_failure(db: Db, steps: &[Step<'_>]) -> i32 {
    let holds = |step: Step<'_>| catch_unwind(AssertUnwindSafe(|| step(&db))).unwrap_or(false);
    let failure = (1..).zip(steps).find(|(_, step)| !holds(**step)).map_or(0, |(number, _)| number);
    drop(db);
    failure
}

fn is_refused<T>(result: splitpoint::Result<T>) -> bool {
    result.err().is_some_and(|error| {
        let message = "this handle can no longer be used: this process is a fork";
        error.kind() == ErrorKind::Poisoned && error.to_string().starts_with(message)
    })
}

/// With both threads of the handle at work.
fn fill(db: &Db) {
    for i in 0..30_000_u32 {
        db.put(&i.to_le_bytes(), &[7; 100]).unwrap();
    }
}

#[test]
fn a_child_may_do_nothing_with_a_store_that_its_parent_changes_and_leaves_its_lock_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("inherited.spt");
    let db = tiny().open(&path).unwrap();
    fill(&db);
    let (db, status) = system::in_child(db, |db| {
        first_failure(
            db,
            &[
                &|db| is_refused(db.get(&5_u32.to_le_bytes())),
                &|db| is_refused(db.get_many([&5_u32.to_le_bytes()]).map(drop)),
                &|db| is_refused(db.contains(&5_u32.to_le_bytes())),
                &|db| is_refused(db.scan().map(drop)),
                &|db| is_refused(db.stats()),
                &|db| is_refused(db.check()),
                &|db| is_refused(db.backup(path.with_extension("copy")).map(drop)),
                &|db| is_refused(db.put(b"key", b"value")),
                &|db| is_refused(db.delete(&5_u32.to_le_bytes())),
                &|db| is_refused(db.sync()),
            ],
        )
    });
    assert_eq!(status, Some(0), "the step of the child that failed");
    let (db, status) = system::in_child(db, |db| i32::from(!is_refused(db.close())));
    assert_eq!(status, Some(0), "a close in the child");
    assert_eq!(Db::open(&path).unwrap_err().kind(), ErrorKind::Locked);
    db.put(b"key", b"of the parent").unwrap();
    assert_sound(&db);
    db.close().unwrap();
    let db = Db::open(&path).unwrap();
    assert_eq!(db.len(), 30_001);
    assert_sound(&db);
}

#[test]
fn a_child_opens_a_store_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("own.spt");
    let db = tiny().in_memory().unwrap();
    fill(&db);
    let (_, status) = system::in_child(db, |_inherited| {
        let Ok(db) = tiny().open(&path) else { return 1 };
        let is_put = db.put(b"key", b"of the child").is_ok() && db.sync().is_ok();
        i32::from(!(is_put && db.close().is_ok()))
    });
    assert_eq!(status, Some(0));
    assert_eq!(
        Db::open(&path).unwrap().get(b"key").unwrap().as_deref(),
        Some(&b"of the child"[..])
    );
}

#[test]
fn a_table_in_memory_is_a_childs_own() {
    let db = tiny().in_memory().unwrap();
    fill(&db);
    let (db, status) = system::in_child(db, |db| {
        first_failure(
            db,
            &[
                &|db| (0..60_000_u32).all(|i| db.put(&i.to_le_bytes(), &[9; 100]).is_ok()),
                &|db| db.len() == 60_000,
                &|db| db.get(&1_u32.to_le_bytes()).is_ok_and(|v| v.as_deref() == Some(&[9; 100])),
            ],
        )
    });
    assert_eq!(status, Some(0), "the step of the child that failed");
    assert_eq!(db.len(), 30_000);
    assert_eq!(db.get(&1_u32.to_le_bytes()).unwrap().as_deref(), Some(&[7; 100][..]));
    assert_sound(&db);
}

#[test]
fn a_child_reads_a_store_that_its_parent_only_reads() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("read.spt");
    let db = tiny().open(&path).unwrap();
    fill(&db);
    db.close().unwrap();
    let db = tiny().read_only().open(&path).unwrap();
    let (db, status) = system::in_child(db, |db| {
        first_failure(
            db,
            &[&|db| db.get(&5_u32.to_le_bytes()).is_ok_and(|value| value.is_some()), &|db| {
                content(db).len() == 30_000
            }],
        )
    });
    assert_eq!(status, Some(0), "the step of the child that failed");
    assert_sound(&db);
}

/// The pins of a reader are in the file, where parent and child could meet.
#[test]
fn a_child_reads_beside_the_writer_by_a_place_of_its_own_and_leaves_the_pins_of_its_parent() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shared.spt");
    let db = tiny().open(&path).unwrap();
    fill(&db);
    let reader = splitpoint::Options::new().read_only().open(&path).unwrap();
    let held = reader.get(5_u32.to_le_bytes()).unwrap();
    assert_eq!(db.stats().unwrap().readers.len(), 1);
    let ((held, _), status) = system::in_child((held, &reader), |(held, reader)| {
        drop(held);
        let is_found =
            |i: u32| reader.get(i.to_le_bytes()).is_ok_and(|v| v.as_deref() == Some(&[7; 100]));
        let has_all = (0..1_000).all(is_found) && reader.scan().is_ok_and(|scan| scan.count() > 0);
        i32::from(!(has_all && reader.stats().is_ok_and(|stats| stats.readers.len() == 1)))
    });
    assert_eq!(status, Some(0));
    let stats = db.stats().unwrap();
    assert!(stats.is_pinned && stats.readers.len() == 1, "{stats:?}");
    drop(held);
    assert!(!db.stats().unwrap().is_pinned);
}

/// Parent and child have the same files without names.
#[test]
fn a_child_changes_nothing_of_a_spilled_transaction() {
    let dir = tempfile::tempdir().unwrap();
    let db = tiny().transaction_bytes(0).open(dir.path().join("spilled.spt")).unwrap();
    let mut tx = db.begin().unwrap();
    for i in 0..3000_u32 {
        tx.put(i.to_le_bytes(), [7; 100]).unwrap();
    }
    let middle = tx.savepoint();
    for i in 3000..6000_u32 {
        tx.put(i.to_le_bytes(), [8; 100]).unwrap();
    }
    let (mut tx, status) = system::in_child(tx, |mut tx| {
        let is_put = (0..3000_u32).any(|i| tx.put(i.to_le_bytes(), [9; 100]).is_ok());
        tx.rollback_to(middle);
        i32::from(is_put)
    });
    assert_eq!(status, Some(0));
    for i in 0..6000_u32 {
        let expected = if i < 3000 { 7 } else { 8 };
        assert_eq!(tx.get(i.to_le_bytes()).unwrap().unwrap(), [expected; 100], "{i}");
    }
    tx.commit().unwrap();
    assert_eq!(db.len(), 6000);
    assert_sound(&db);
}
