//! What transactions and snapshots are isolated from: `docs/sharing.md` names these tests, one for
//! each anomaly that cannot happen. Each is tried in memory and by two handles that take turns.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use splitpoint::{Batch, Db, ErrorKind, Options, Sharing, Transaction};

fn number(value: Option<splitpoint::Value<'_>>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(value.as_ref().try_into().unwrap()))
}

fn get(tx: &mut Transaction<'_>, key: &str) -> u64 {
    number(tx.get(key).unwrap())
}

fn put(tx: &mut Transaction<'_>, key: &str, value: u64) {
    tx.put(key, value.to_le_bytes()).unwrap();
}

/// Returns a table with x = 50 and y = 50.
fn fifty_fifty() -> Db {
    let db = Db::in_memory().unwrap();
    db.put_many([("x", 50_u64.to_le_bytes()), ("y", 50_u64.to_le_bytes())]).unwrap();
    db
}

/// Runs `check` with two handles of a store with x = 50 and y = 50: the same one, of a table in memory, and
/// those of a file that take turns.
fn with_two_handles(check: fn(&Db, &Db)) {
    let db = fifty_fifty();
    check(&db, &db);
    let (shared, per_call) = (Sharing::Shared, Sharing::PerCall);
    for both in [[shared, shared], [shared, per_call], [per_call, shared]] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.spt");
        let [one, two] = both.map(|sharing| Options::new().sharing(sharing).open(&path).unwrap());
        two.put_many([("x", 50_u64.to_le_bytes()), ("y", 50_u64.to_le_bytes())]).unwrap();
        check(&one, &two);
    }
}

#[track_caller]
fn assert_conflicts(tx: Transaction<'_>) {
    assert_eq!(tx.commit().unwrap_err().kind(), ErrorKind::Conflict);
}

#[test]
fn no_dirty_write_two_transactions_never_mix_their_changes() {
    with_two_handles(|db, other| {
        let (mut one, mut two) = (db.begin().unwrap(), other.begin().unwrap());
        put(&mut one, "x", 1);
        put(&mut two, "x", 2);
        put(&mut two, "y", 2);
        put(&mut one, "y", 1);
        two.commit().unwrap();
        one.commit().unwrap();
        for db in [db, other] {
            assert_eq!((number(db.get("x").unwrap()), number(db.get("y").unwrap())), (1, 1));
        }
    });
}

#[test]
fn no_dirty_read_nobody_sees_what_is_not_committed() {
    with_two_handles(|db, other| {
        let mut tx = db.begin().unwrap();
        put(&mut tx, "x", 1);
        tx.delete("y").unwrap();
        let mut reading = other.begin().unwrap();
        assert_eq!((get(&mut reading, "x"), get(&mut reading, "y")), (50, 50));
        for db in [db, other] {
            assert_eq!(number(db.get("x").unwrap()), 50);
            assert_eq!(db.snapshot().unwrap().len(), 2);
            assert_eq!(db.scan().unwrap().count(), 2);
        }
        drop(tx);
        assert_eq!(number(other.get("y").unwrap()), 50, "dropped is undone");
    });
}

#[test]
fn no_lost_update_the_second_of_two_that_read_the_same_conflicts() {
    with_two_handles(|db, other| {
        let (mut one, mut two) = (db.begin().unwrap(), other.begin().unwrap());
        for tx in [&mut one, &mut two] {
            let x = get(tx, "x");
            put(tx, "x", x + 1);
        }
        one.commit().unwrap();
        assert_conflicts(two);
        assert_eq!(number(db.get("x").unwrap()), 51);
    });
}

#[test]
fn no_non_repeatable_read_a_key_keeps_its_value_in_a_transaction() {
    with_two_handles(|db, other| {
        let mut tx = db.begin().unwrap();
        assert_eq!(get(&mut tx, "x"), 50);
        other.put("x", 7_u64.to_le_bytes()).unwrap();
        assert_eq!(get(&mut tx, "x"), 50);
        other.delete("x").unwrap();
        assert_eq!(get(&mut tx, "x"), 50);
        tx.commit().unwrap(); // It has changed nothing: it was before the others.
    });
}

#[test]
fn no_phantom_a_key_that_was_missing_stays_missing() {
    with_two_handles(|db, other| {
        let (mut by_scan, mut by_len, mut by_key) =
            (db.begin().unwrap(), db.begin().unwrap(), db.begin().unwrap());
        let snapshot = db.snapshot().unwrap();
        assert_eq!(by_scan.scan().unwrap().count(), 2);
        assert_eq!(by_len.len().unwrap(), 2);
        assert!(!by_key.contains("z").unwrap());
        other.put("z", "phantom").unwrap();
        assert_eq!(by_scan.scan().unwrap().count(), 2);
        assert_eq!(by_len.len().unwrap(), 2);
        assert!(!by_key.contains("z").unwrap());
        assert_eq!((snapshot.scan().unwrap().count(), snapshot.len()), (2, 2));
        for mut tx in [by_scan, by_len, by_key] {
            put(&mut tx, "count", 2);
            assert_conflicts(tx);
        }
    });
}

#[test]
fn no_write_skew_two_that_read_both_and_write_one_each_do_not_both_commit() {
    with_two_handles(|db, other| {
        let (mut one, mut two) = (db.begin().unwrap(), other.begin().unwrap());
        for (tx, key) in [(&mut one, "x"), (&mut two, "y")] {
            assert!(get(tx, "x") + get(tx, "y") >= 60, "the sum may fall to 40");
            put(tx, key, 0);
        }
        one.commit().unwrap();
        assert_conflicts(two);
    });
}

#[test]
fn no_read_skew_what_is_read_is_of_one_moment() {
    with_two_handles(|db, other| {
        let mut tx = db.begin().unwrap();
        let snapshot = db.snapshot().unwrap();
        assert_eq!(get(&mut tx, "x"), 50);
        let moved = Batch::new().put("x", 10_u64.to_le_bytes()).put("y", 90_u64.to_le_bytes());
        other.apply(&moved).unwrap();
        assert_eq!(get(&mut tx, "y"), 50, "x + y = 100");
        assert_eq!(number(snapshot.get("x").unwrap()) + number(snapshot.get("y").unwrap()), 100);
        put(&mut tx, "sum", 100);
        assert_conflicts(tx);
    });
}

/// The anomaly of Fekete, O'Neil and O'Neil 2004, which snapshots alone do not rule out.
#[test]
fn no_anomaly_of_a_transaction_that_only_reads() {
    with_two_handles(|db, other| {
        db.put_many([("x", 0_u64.to_le_bytes()), ("y", 0_u64.to_le_bytes())]).unwrap();
        let mut withdrawal = db.begin().unwrap();
        let sum = get(&mut withdrawal, "x") + get(&mut withdrawal, "y");
        other.transaction(|deposit| deposit.put("y", 20_u64.to_le_bytes())).unwrap();
        let mut report = other.begin().unwrap();
        assert_eq!((get(&mut report, "x"), get(&mut report, "y")), (0, 20));
        report.commit().unwrap();
        put(&mut withdrawal, "x", sum + 11); // With a fee, since the sum was 0.
        assert_conflicts(withdrawal);
    });
}

#[test]
fn changes_of_keys_that_were_not_read_conflict_with_nothing() {
    with_two_handles(|db, other| {
        let mut blind = db.begin().unwrap();
        put(&mut blind, "x", 1);
        blind.delete("y").unwrap();
        other.put("x", "other").unwrap();
        other.put("y", "other").unwrap();
        blind.commit().unwrap();
        assert_eq!((other.len(), number(other.get("x").unwrap())), (1, 1));
    });
}

#[test]
fn a_key_that_has_its_value_again_does_not_conflict() {
    with_two_handles(|db, other| {
        let mut tx = db.begin().unwrap();
        assert_eq!((get(&mut tx, "x"), get(&mut tx, "z")), (50, 0));
        other.delete("x").unwrap();
        other.put("z", "").unwrap();
        other.put("x", 50_u64.to_le_bytes()).unwrap();
        other.delete("z").unwrap();
        put(&mut tx, "sum", 50);
        tx.commit().unwrap();
    });
}

/// Compaction moves what a transaction has read.
#[test]
fn records_that_move_do_not_conflict() {
    let db = Options::new().segment_bytes_min(4096).poison_freed().in_memory().unwrap();
    db.put_many((0..500_u32).map(|i| (i.to_le_bytes(), [1; 60]))).unwrap();
    let mut tx = db.begin().unwrap();
    for i in (0..500_u32).step_by(10) {
        assert!(tx.contains(i.to_le_bytes()).unwrap());
    }
    for _ in 0..20 {
        db.put_many((0..500_u32).filter(|i| i % 10 != 0).map(|i| (i.to_le_bytes(), [2; 60])))
            .unwrap();
    }
    assert!(db.stats().unwrap().moved_bytes > 0);
    put(&mut tx, "done", 1);
    tx.commit().unwrap();
}

#[test]
fn a_transaction_reads_its_own_changes_in_every_way() {
    let db = fifty_fifty();
    let mut tx = db.begin().unwrap();
    put(&mut tx, "x", 1);
    put(&mut tx, "z", 2);
    put(&mut tx, "z", 3);
    tx.delete("y").unwrap();
    tx.delete("missing").unwrap();
    assert_eq!((get(&mut tx, "x"), get(&mut tx, "y"), get(&mut tx, "z")), (1, 0, 3));
    assert!(tx.contains("z").unwrap() && !tx.contains("y").unwrap());
    assert_eq!(tx.len().unwrap(), 2);
    let entries = tx.scan().unwrap().map(|entry| entry.unwrap());
    let mut found: Vec<(Vec<u8>, u64)> =
        entries.map(|entry| (entry.key.to_vec(), number(Some(entry.value)))).collect();
    found.sort();
    assert_eq!(found, [(b"x".to_vec(), 1), (b"z".to_vec(), 3)]);
    tx.commit().unwrap();
    assert_eq!((db.len(), number(db.get("z").unwrap())), (2, 3));
}

#[test]
fn savepoints_undo_what_came_after_them_and_no_more() {
    let db = fifty_fifty();
    let mut tx = db.begin().unwrap();
    put(&mut tx, "x", 1);
    let first = tx.savepoint();
    put(&mut tx, "x", 2);
    tx.delete("y").unwrap();
    let second = tx.savepoint();
    put(&mut tx, "y", 3);
    put(&mut tx, "x", 4);
    tx.rollback_to(second);
    assert_eq!((get(&mut tx, "x"), get(&mut tx, "y")), (2, 0));
    tx.rollback_to(first);
    assert_eq!((get(&mut tx, "x"), get(&mut tx, "y")), (1, 50));
    tx.rollback_to(second);
    put(&mut tx, "z", 5);
    assert_eq!((get(&mut tx, "x"), get(&mut tx, "z")), (1, 5));
    tx.rollback();
    assert_eq!((get(&mut tx, "x"), get(&mut tx, "z")), (50, 0));
    tx.commit().unwrap();
    assert_eq!((db.len(), number(db.get("x").unwrap())), (2, 50));
}

#[test]
fn a_savepoint_whose_changes_were_undone_or_of_another_transaction_does_nothing() {
    let db = fifty_fifty();
    let mut tx = db.begin().unwrap();
    let mut other = db.begin().unwrap();
    put(&mut other, "x", 9);
    let of_other = other.savepoint();
    put(&mut tx, "a", 1);
    let first = tx.savepoint();
    put(&mut tx, "b", 2);
    put(&mut tx, "c", 3);
    let undone = tx.savepoint();
    tx.rollback_to(first);
    for (key, value) in [("d", 4), ("e", 5), ("f", 6)] {
        put(&mut tx, key, value);
    }
    tx.rollback_to(undone);
    tx.rollback_to(of_other);
    for (key, value) in [("a", 1), ("b", 0), ("c", 0), ("d", 4), ("e", 5), ("f", 6)] {
        assert_eq!(get(&mut tx, key), value, "{key}");
    }
    tx.rollback_to(first);
    assert_eq!((get(&mut tx, "a"), get(&mut tx, "d")), (1, 0));
}

#[test]
fn a_transaction_that_has_read_more_than_fits_conflicts_with_every_other_change() {
    let db = Options::new().transaction_bytes(4000).in_memory().unwrap();
    let mut few = db.begin().unwrap();
    let mut many = db.begin().unwrap();
    assert_eq!(get(&mut few, "read"), 0);
    for i in 0..200 {
        assert_eq!(get(&mut many, &format!("read {i}")), 0);
    }
    put(&mut few, "a", 1);
    put(&mut many, "b", 1);
    db.put("other", "1").unwrap();
    few.commit().unwrap();
    assert_eq!(many.commit().unwrap_err().kind(), ErrorKind::Conflict);
}

/// Every run but the third is overtaken; the third has the lock.
#[test]
fn a_transaction_that_always_conflicts_ends_with_the_lock() {
    let db = fifty_fifty();
    let mut runs = 0;
    let result = db.transaction(|tx| {
        runs += 1;
        let x = get(tx, "x");
        assert_eq!(tx.scan().unwrap().count(), 2);
        if runs < 3 {
            db.put("x", (x + 1).to_le_bytes())?;
        } else {
            let other = |error: splitpoint::Error| error.kind();
            assert_eq!(db.put("x", "").unwrap_err().kind(), ErrorKind::Invalid);
            assert_eq!(db.scan().map(|_| ()).map_err(other), Err(ErrorKind::Invalid));
            assert_eq!(db.len(), 2);
        }
        put(tx, "x", x + 100);
        tx.delete("y")?;
        Ok(x)
    });
    assert_eq!((result.unwrap(), runs), (52, 3));
    assert_eq!((number(db.get("x").unwrap()), db.len()), (152, 1));
    let error = db.transaction(|tx| tx.put("x", "").and(Err::<(), _>(splitpoint::Error::ReadOnly)));
    assert_eq!(error.unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(number(db.get("x").unwrap()), 152, "an error undoes all");
}

#[test]
fn a_panic_in_a_transaction_with_the_lock_leaves_the_store_usable() {
    let db = fifty_fifty();
    let runs = AtomicU64::new(0);
    let run = || {
        db.transaction(|tx| {
            let x = get(tx, "x");
            match runs.fetch_add(1, Ordering::Relaxed) {
                2 => panic!("in the third run"),
                _ => db.put("x", (x + 1).to_le_bytes())?,
            }
            tx.put("x", "")
        })
    };
    let run = std::panic::AssertUnwindSafe(run);
    assert!(std::panic::catch_unwind(run).is_err());
    db.put("y", 1_u64.to_le_bytes()).unwrap();
    assert_eq!(number(db.get("x").unwrap()), 52);
}

#[test]
fn a_transaction_over_its_bound_is_refused_in_memory_and_stays_usable() {
    let db = Options::new().transaction_bytes(5000).in_memory().unwrap();
    let mut tx = db.begin().unwrap();
    tx.put("a", [1; 3000]).unwrap();
    let error = tx.put("b", [1; 3000]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    tx.commit().unwrap();
    assert_eq!(db.len(), 1);
}

#[test]
fn a_transaction_of_a_reader_reads_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let db = Db::open(&path).unwrap();
    db.put("a", "1").unwrap();
    db.close().unwrap();
    // Beside whoever may change it, and alone.
    for sharing in [Sharing::OneWriter, Sharing::Exclusive] {
        let db = Options::new().read_only().sharing(sharing).open(&path).unwrap();
        assert_eq!(db.snapshot().unwrap().len(), 1);
        let mut tx = db.begin().unwrap();
        assert_eq!(tx.len().unwrap(), 1);
        assert_eq!(tx.put("b", "").unwrap_err().kind(), ErrorKind::ReadOnly);
        tx.commit().unwrap();
    }
}

#[test]
fn transactions_can_be_sent_to_another_thread() {
    let db = fifty_fifty();
    let mut tx = db.begin().unwrap();
    assert_eq!(get(&mut tx, "x"), 50);
    let seen = thread::scope(|scope| {
        scope
            .spawn(move || {
                put(&mut tx, "x", 51);
                let seen = get(&mut tx, "x");
                tx.commit().unwrap();
                seen
            })
            .join()
            .unwrap()
    });
    assert_eq!((seen, number(db.get("x").unwrap())), (51, 51));
}

/// Threads move money between accounts; every snapshot has the same sum, and at the end each
/// transfer was made once.
#[test]
fn a_bank_keeps_its_money_in_every_snapshot() {
    const ACCOUNTS: u64 = 10;
    const THREADS: u64 = 8;
    const TRANSFERS: u64 = 400;
    let db = Options::new().segment_bytes_min(4096).poison_freed().in_memory().unwrap();
    let account = |i: u64| format!("account {}", i % ACCOUNTS);
    db.put_many((0..ACCOUNTS).map(|i| (account(i), 100_u64.to_le_bytes()))).unwrap();
    let made = AtomicU64::new(0);
    let sum_of = |entries: &mut dyn Iterator<Item = splitpoint::Result<splitpoint::Entry<'_>>>| {
        let entries = entries.map(Result::unwrap);
        let accounts = entries.filter(|entry| entry.key.starts_with(b"account"));
        accounts.map(|entry| number(Some(entry.value))).sum::<u64>()
    };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, made) = (&db, &made);
            scope.spawn(move || {
                for i in 0..TRANSFERS {
                    let (from, to) = (account(thread * 3 + i), account(thread + i * 7 + 1));
                    let amount = 1 + (i + thread) % 5;
                    let is_made = db.transaction(|tx| {
                        let rich = get(tx, &from);
                        if from == to || rich < amount {
                            return Ok(false);
                        }
                        let poor = get(tx, &to);
                        put(tx, &from, rich - amount);
                        put(tx, &to, poor + amount);
                        let count = get(tx, "transfers");
                        put(tx, "transfers", count + 1);
                        Ok(true)
                    });
                    made.fetch_add(is_made.unwrap().into(), Ordering::Relaxed);
                    if i % 50 == 0 {
                        let sum = sum_of(&mut db.snapshot().unwrap().scan().unwrap());
                        assert_eq!(sum, 100 * ACCOUNTS);
                    }
                }
            });
        }
    });
    assert_eq!(sum_of(&mut db.scan().unwrap()), 100 * ACCOUNTS);
    let made = made.into_inner();
    assert!(made > THREADS * TRANSFERS / 4, "{made}");
    assert_eq!(number(db.get("transfers").unwrap()), made);
}

#[test]
fn counters_and_swaps_of_threads_are_exact() {
    let db = Db::in_memory().unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    db.increment("counter", 2).unwrap();
                    loop {
                        let old = db.get("swapped").unwrap().map(splitpoint::Value::into_vec);
                        let new = number(old.clone().map(splitpoint::Value::owned)) + 1;
                        let new = new.to_le_bytes();
                        if db.compare_and_swap("swapped", old.as_deref(), Some(&new)).unwrap() {
                            break;
                        }
                    }
                }
            });
        }
    });
    assert_eq!(number(db.get("counter").unwrap()), 4000);
    assert_eq!(number(db.get("swapped").unwrap()), 2000);
    db.put("text", "seven").unwrap();
    db.put("most", i64::MAX.to_le_bytes()).unwrap();
    for key in ["text", "most"] {
        let error = db.increment(key, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    assert_eq!(db.get("text").unwrap().unwrap(), "seven");
}
