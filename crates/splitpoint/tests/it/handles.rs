//! Clones of a handle, loops over one, and changes that depend on what is stored.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use splitpoint::{Db, Durability, ErrorKind, Options};

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
}

#[expect(clippy::unnecessary_wraps, reason = "what `update` calls returns an option")]
fn add_one(old: Option<&[u8]>) -> Option<[u8; 8]> {
    Some((old.map_or(0, number) + 1).to_le_bytes())
}

#[test]
fn the_last_handle_closes_the_store_and_the_others_say_that_it_stays_open() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let first = Options::new().durability(Durability::Buffered).open(&path).unwrap();
    let (second, third) = (first.clone(), first.clone());
    second.put("key", "value").unwrap();
    assert!(!second.close().unwrap());
    assert_eq!(first.stats().unwrap().unsafe_age, None, "close has synced");
    drop(third);
    assert_eq!(Db::open(&path).unwrap_err().kind(), ErrorKind::Locked);
    assert_eq!(first.get("key").unwrap().unwrap(), "value");
    assert!(first.close().unwrap());
    let db = Db::open(&path).unwrap();
    assert!(matches!(db.recovery(), splitpoint::Recovery::Clean));
    assert_eq!(db.len(), 1);
}

#[test]
fn of_handles_that_close_at_the_same_time_one_is_the_last_and_the_file_is_free_then() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    for round in 0..20_u64 {
        let db = Db::open(&path).unwrap();
        assert_eq!(db.len(), 4 * round);
        let (last_count, barrier) = (AtomicU64::new(0), Barrier::new(4));
        thread::scope(|scope| {
            for (i, db) in (0..).zip([db.clone(), db.clone(), db.clone(), db]) {
                let (path, last_count, barrier) = (&path, &last_count, &barrier);
                scope.spawn(move || {
                    db.put((4 * round + i).to_le_bytes(), "value").unwrap();
                    barrier.wait();
                    if db.close().unwrap() {
                        last_count.fetch_add(1, Ordering::Relaxed);
                        Db::open(path).expect("nobody holds the file");
                    }
                });
            }
        });
        assert_eq!(last_count.into_inner(), 1);
    }
}

#[test]
fn a_loop_over_a_store_and_its_keys_and_values_return_everything() {
    let db = Db::in_memory().unwrap();
    db.put_many((0..100_u8).map(|i| ([i], [i, i]))).unwrap();
    let mut count = 0;
    for entry in &db {
        let entry = entry.unwrap();
        assert_eq!(entry.value, [entry.key[0]; 2]);
        count += 1;
    }
    assert_eq!(count, 100);
    let keys: BTreeSet<u8> = db.keys().unwrap().map(|key| key.unwrap()[0]).collect();
    assert!(keys.into_iter().eq(0..100));
    let values: BTreeSet<Vec<u8>> =
        db.values().unwrap().map(|value| value.unwrap().into_vec()).collect();
    assert!(values.into_iter().eq((0..100).map(|i| vec![i, i])));
}

#[test]
fn update_loses_no_change_of_other_threads() {
    let db = Db::in_memory().unwrap();
    thread::scope(|scope| {
        for thread in 0..8_u64 {
            let db = db.clone();
            scope.spawn(move || {
                for i in 0..2000 {
                    db.update("all", add_one).unwrap();
                    db.update((i % 10).to_string(), add_one).unwrap();
                    db.put(thread.to_le_bytes(), "between").unwrap();
                }
            });
        }
    });
    assert_eq!(number(&db.get("all").unwrap().unwrap()), 16_000);
    for i in 0..10 {
        assert_eq!(number(&db.get(i.to_string()).unwrap().unwrap()), 1600);
    }
}

#[test]
fn update_stores_deletes_and_leaves_missing_keys_missing() {
    let db = Db::in_memory().unwrap();
    assert_eq!(db.update("key", |old| old.map(<[u8]>::to_vec)).unwrap(), None);
    assert!(db.is_empty());
    assert_eq!(db.update("key", |_| Some("value")).unwrap(), Some("value"));
    assert_eq!(db.get("key").unwrap().unwrap(), "value");
    assert_eq!(db.update("key", |_| None::<&str>).unwrap(), None);
    assert!(db.is_empty() && db.check().unwrap().is_clean());
}

/// Bytes whose owner is not what it should be.
struct Rude<'a>(&'a Db);

impl AsRef<[u8]> for Rude<'_> {
    fn as_ref(&self) -> &[u8] {
        panic!("no bytes today");
    }
}

impl Drop for Rude<'_> {
    fn drop(&mut self) {
        // It waits for the lock if that is held.
        self.0.put("dropped", "yes").unwrap();
    }
}

#[test]
fn a_value_that_panics_under_the_lock_leaves_the_store_usable() {
    let db = Db::in_memory().unwrap();
    let update = || db.update("key", |_| Some(Rude(&db))).map(drop);
    let insert = || db.get_or_insert_with("key", || Rude(&db)).map(drop);
    catch_unwind(AssertUnwindSafe(update)).unwrap_err();
    catch_unwind(AssertUnwindSafe(insert)).unwrap_err();
    assert!(!db.contains("key").unwrap());
    assert_eq!(db.get("dropped").unwrap().unwrap(), "yes");
}

#[test]
fn the_watcher_of_a_check_that_calls_the_store_or_panics_leaves_it_usable() {
    let db = Db::in_memory().unwrap();
    db.put("key", "value").unwrap();
    let mut call_count = 0;
    let report = db.check_with(|_| {
        assert_eq!(db.get("key").unwrap().unwrap(), "value");
        assert_eq!(db.stats().unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(db.put("key", "new").unwrap_err().kind(), ErrorKind::Invalid);
        call_count += 1;
        ControlFlow::Continue(())
    });
    assert!(report.unwrap().is_clean() && call_count > 0);
    let check = || db.check_with(|_| panic!("enough"));
    catch_unwind(AssertUnwindSafe(check)).unwrap_err();
    db.put("key", "new").unwrap();
}

#[test]
fn a_panic_in_update_changes_nothing_and_leaves_the_store_usable() {
    let db = Db::in_memory().unwrap();
    db.put("key", "value").unwrap();
    let panics = || db.update("key", |_| -> Option<&str> { panic!("a mistake of the caller") });
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    let panics = || db.get_or_insert_with("other", || -> &str { panic!("another one") });
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert_eq!(db.get("key").unwrap().unwrap(), "value");
    db.update("key", |_| Some("new")).unwrap();
    assert_eq!(db.get("key").unwrap().unwrap(), "new");
    assert_eq!(db.len(), 1);
}

#[test]
fn one_of_several_threads_makes_a_missing_value() {
    let db = Db::in_memory().unwrap();
    let made_count = AtomicU64::new(0);
    for key in 0..200_u64 {
        let barrier = Barrier::new(4);
        let values: BTreeSet<Vec<u8>> = thread::scope(|scope| {
            let get = |thread: u8| {
                let (db, made_count, barrier) = (&db, &made_count, &barrier);
                move || {
                    barrier.wait();
                    let value = db.get_or_insert_with(key.to_le_bytes(), || {
                        made_count.fetch_add(1, Ordering::Relaxed);
                        [thread]
                    });
                    value.unwrap().into_vec()
                }
            };
            let threads: Vec<_> = (0..4).map(|thread| scope.spawn(get(thread))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(values.len(), 1, "all return the same value");
    }
    assert_eq!((made_count.into_inner(), db.len()), (200, 200));
}

/// The memory of a table moves when it grows; the value that `retain` passed must stay valid.
#[test]
fn retain_asks_once_for_a_value_that_stays_also_when_the_memory_moves() {
    let dir = tempfile::tempdir().unwrap();
    for db in [Db::in_memory().unwrap(), Db::open(dir.path().join("a.spt")).unwrap()] {
        for i in 0..40_u32 {
            db.put(i.to_le_bytes(), b"old").unwrap();
        }
        let mut calls = 0;
        let deleted_count = db
            .retain(|key, _| {
                if key.len() != 4 {
                    return true;
                }
                calls += 1;
                if calls == 1 {
                    for i in 0..1_000_000_u64 {
                        db.put(i.to_le_bytes(), [7; 100]).unwrap();
                    }
                }
                false
            })
            .unwrap();
        assert_eq!((calls, deleted_count), (40, 40));
    }
}

#[test]
fn retain_deletes_what_it_was_asked_about_and_nothing_newer() {
    let db = Db::in_memory().unwrap();
    db.put_many((0..100_u8).map(|i| ([i], "old"))).unwrap();
    let mut asked_again = 0;
    let deleted = db
        .retain(|key, value| {
            if value == b"new" {
                asked_again += 1;
                return true;
            }
            // Another thread could do this between the call of `keep` and the delete.
            if key[0] % 3 == 0 {
                db.put(key, "new").unwrap();
            } else if key[0] % 3 == 1 {
                db.delete(key).unwrap();
            }
            false
        })
        .unwrap();
    assert_eq!((deleted, asked_again, db.len()), (33, 34, 34));
    assert!(db.values().unwrap().all(|value| value.unwrap() == "new"));
}

#[test]
fn clear_and_retain_are_durable_under_sync() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let db = Options::new().durability(Durability::Sync).open(&path).unwrap();
    db.put_many((0..1000_u32).map(|i| (i.to_le_bytes(), i.to_le_bytes()))).unwrap();
    assert_eq!(db.retain(|key, _| key[0] % 2 == 0).unwrap(), 500);
    assert_eq!((db.len(), db.stats().unwrap().unsafe_age), (500, None));
    assert_eq!(db.clear().unwrap(), 500);
    assert_eq!((db.len(), db.stats().unwrap().unsafe_age), (0, None));
    assert_eq!(db.clear().unwrap(), 0);
    assert!(db.check().unwrap().is_clean());
}
