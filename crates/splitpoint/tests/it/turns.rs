//! Handles that change one file by turns: in one process, where locks of open file descriptions make no
//! difference, and in several, some of which are killed.
//!
//! The other processes are this test binary, started again with an environment variable.

use std::collections::BTreeMap;
use std::panic;
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use splitpoint::{Batch, Db, Durability, ErrorKind, Options, Recovery, Sharing};

use crate::support::{HANG, assert_sound, content, rounds};

const BY_TURNS: [Sharing; 2] = [Sharing::Shared, Sharing::PerCall];

fn by_turns(sharing: Sharing) -> Options {
    Options::new().sharing(sharing).lock_timeout(HANG)
}

/// Small segments, so that a few thousand changes compact and make checkpoints.
fn compacting(sharing: Sharing) -> Options {
    by_turns(sharing)
        .segment_bytes_min(4096)
        .checkpoint_bytes_min(32 << 10)
        .live_share(0.9)
        .poison_freed()
}

#[test]
fn two_handles_see_each_others_changes_at_once() {
    for sharing in BY_TURNS {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.spt");
        let open = || by_turns(sharing).open(&path).unwrap();
        let handles = [open(), open()];
        for i in 0..3_000_u32 {
            let (one, other) = (&handles[i as usize % 2], &handles[(i as usize + 1) % 2]);
            one.put(i.to_le_bytes(), [i as u8; 50]).unwrap();
            assert_eq!(other.get(i.to_le_bytes()).unwrap().expect("just stored"), [i as u8; 50]);
            assert_eq!(other.len(), u64::from(i) + 1);
        }
        for i in (0..3_000_u32).step_by(3) {
            assert!(handles[0].delete(i.to_le_bytes()).unwrap());
            assert!(!handles[1].delete(i.to_le_bytes()).unwrap());
            assert!(handles[1].get(i.to_le_bytes()).unwrap().is_none());
        }
        assert_eq!(content(&handles[0]), content(&handles[1]));
        for handle in &handles {
            assert!(handle.check().unwrap().is_clean());
            handle.stats().unwrap();
        }
        let [one, other] = handles;
        one.close().unwrap();
        other.put("last", "change").unwrap();
        other.close().unwrap();
        let db = Db::open(&path).unwrap();
        assert!(
            matches!(db.recovery(), Recovery::WarmRestart { records: 0 }),
            "{:?}",
            db.recovery()
        );
        assert_eq!(db.len(), 2_001);
        assert_sound(&db);
    }
}

/// A handle that has no lock between its calls has mapped an index that is gone.
#[test]
fn an_index_that_was_built_again_is_seen_by_handles_that_were_idle() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let db = by_turns(Sharing::PerCall).open(&path).unwrap();
    let has_all = || (0..5_000_u32).all(|i| db.get(i.to_le_bytes()).unwrap().is_some());
    for i in 0..5_000_u32 {
        db.put(i.to_le_bytes(), "value").unwrap();
    }
    assert!(has_all());
    for i in 5_000..5_004_u32 {
        Options::new().rebuild_index().open(&path).unwrap().close().unwrap();
        assert!(has_all());
        let other = by_turns(Sharing::PerCall).open(&path).unwrap();
        other.put(i.to_le_bytes(), "value").unwrap();
        assert!(has_all() && db.get(i.to_le_bytes()).unwrap().is_some());
    }
}

#[test]
fn handles_of_both_kinds_overwrite_and_compact_by_turns() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let handles: Vec<Db> =
        BY_TURNS.iter().map(|&sharing| compacting(sharing).open(&path).unwrap()).collect();
    let reader = Options::new().read_only().open(&path).unwrap();
    let mut model = BTreeMap::new();
    let mut held = Vec::new();
    for i in 0..40_000_u32 {
        let key = (i.wrapping_mul(2_654_435_761) % 700).to_le_bytes();
        // Runs of one, and longer ones.
        let handle = &handles[(if i % 1000 < 500 { i } else { i / 50 }) as usize % 2];
        if i % 11 == 0 {
            handle.delete(key).unwrap();
            model.remove(&key[..]);
        } else {
            let value = vec![i as u8; 30 + i as usize % 90];
            handle.put(key, &value).unwrap();
            model.insert(key.to_vec(), value);
        }
        if i % 100 == 0
            && let Some(value) = handles[0].get(key).unwrap()
        {
            held.push((value.to_vec(), value));
        }
        if i % 3_000 == 0 {
            held.drain(..).for_each(|(copy, value)| assert_eq!(value, copy));
        }
    }
    assert_eq!(content(&reader), model);
    assert!(handles.iter().any(|handle| handle.stats().unwrap().moved_bytes > 0));
    drop(held);
    for handle in &handles {
        assert_eq!(content(handle), model);
        assert!(handle.check().unwrap().is_clean());
    }
    drop(handles);
    drop(reader);
    let db = Db::open(&path).unwrap();
    assert_sound(&db);
    assert_eq!(content(&db), model);
}

#[test]
fn counters_that_threads_with_handles_of_their_own_increment_are_exact() {
    for sharing in BY_TURNS {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.spt");
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let db = by_turns(sharing).open(&path).unwrap();
                    for i in 0..500_u32 {
                        db.increment("all", 1).unwrap();
                        db.increment(i.to_le_bytes(), 1).unwrap();
                    }
                    db.close().unwrap();
                });
            }
        });
        let db = by_turns(sharing).open(&path).unwrap();
        assert_eq!(db.increment("all", 0).unwrap(), 2_000);
        for i in 0..500_u32 {
            assert_eq!(db.increment(i.to_le_bytes(), 0).unwrap(), 4);
        }
        assert!(db.check().unwrap().is_clean());
    }
}

#[test]
fn calls_of_several_changes_are_one_turn_each() {
    for sharing in BY_TURNS {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.spt");
        let open = || by_turns(sharing).open(&path).unwrap();
        let (one, other) = (open(), open());
        one.apply(&Batch::new().put("a", "1").put("b", "2").delete("c")).unwrap();
        other.apply(&Batch::new().put("a", "3").delete("b")).unwrap();
        one.put_many((0..100_u32).map(|i| (i.to_le_bytes(), "many"))).unwrap();
        assert_eq!(
            other.update("a", |old| old.map(|old| [old, b"4"].concat())).unwrap().unwrap(),
            b"34"
        );
        assert!(one.compare_and_swap("a", Some(b"34"), Some(b"5")).unwrap());
        assert!(!other.compare_and_swap("a", Some(b"34"), Some(b"6")).unwrap());
        assert_eq!(other.get_or_insert_with("a", || "7").unwrap(), "5");
        assert!(!one.put_new("a", "8").unwrap());
        assert_eq!(other.retain(|key, _| key == b"a").unwrap(), 100);
        assert_eq!(one.len(), 1);
        let values = one.get_many(["a", "b"]).unwrap();
        assert_eq!(values[0].as_ref().expect("it is there"), "5");
        assert!(one.maintain(1).unwrap().is_done);
    }
}

/// As workers of a web server do: each opens the store, stores one pair and closes it.
#[test]
fn handles_that_live_for_one_change_make_checkpoints_and_compact() {
    for sharing in BY_TURNS {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.spt");
        let options = compacting(sharing).durability(Durability::Buffered);
        // Somebody has it open all the time, or nobody.
        let other = (sharing == Sharing::Shared).then(|| options.open(&path).unwrap());
        let mut largest = 0;
        for i in 0..rounds(3_000, 10_000) {
            let db = options.open(&path).unwrap();
            db.put((i % 100).to_le_bytes(), [i as u8; 100]).unwrap();
            if i % 100 == 99 {
                let stats = db.stats().unwrap();
                let checkpoint_end = stats.checkpoint.map_or(0, |made| made.log_bytes);
                largest = largest.max(stats.log_bytes - checkpoint_end);
            }
            db.close().unwrap();
        }
        assert!(largest < 3 * (32 << 10), "{sharing:?}: a tail of {largest} bytes");
        let file_bytes = std::fs::metadata(&path).unwrap().len();
        assert!(file_bytes < 400_000, "{sharing:?}: {file_bytes} bytes for 100 pairs");
        drop(other);
        assert_sound(&Db::open(&path).unwrap());
    }
}

#[test]
fn a_turn_that_another_keeps_is_an_error_that_names_the_file_after_the_timeout() {
    for sharing in BY_TURNS {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.spt");
        let db = by_turns(sharing).lock_timeout(Duration::from_millis(20)).open(&path).unwrap();
        db.put("key", "value").unwrap();
        let other = by_turns(sharing).open(&path).unwrap();
        other
            .update("key", |_| {
                // This is its turn.
                let error = db.put("key", "another").unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
                assert!(error.to_string().contains("a.spt"), "{error}");
                assert_eq!(db.get("key").unwrap().expect("readers never wait"), "value");
                Some("new")
            })
            .unwrap();
        db.put("key", "another").unwrap();
        assert_eq!(other.get("key").unwrap().expect("it was stored"), "another");
    }
}

#[test]
fn a_change_that_waits_for_its_turn_tells_the_program_for_whom() {
    for sharing in BY_TURNS {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.spt");
        let (told, heard) = mpsc::channel();
        let telling = by_turns(sharing).on_wait(move |holders| {
            told.send(holders.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
        });
        let db = telling.open(&path).unwrap();
        let other = by_turns(sharing).open(&path).unwrap();
        thread::scope(|scope| {
            other
                .update("key", |_| {
                    // This is its turn.
                    scope.spawn(|| db.put("own", "value").unwrap());
                    let holders = heard.recv_timeout(HANG).unwrap();
                    assert!(holders[0].starts_with("this process"), "{holders:?}");
                    Some("new")
                })
                .unwrap();
        });
        assert_eq!(other.get("own").unwrap().expect("it was stored"), "value");
    }
}

#[test]
fn a_function_that_is_told_of_a_wait_cannot_use_the_handle_and_may_panic() {
    for sharing in BY_TURNS {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.spt");
        let waiting = Arc::new(OnceLock::<Db>::new());
        let handle = waiting.clone();
        let telling = by_turns(sharing).on_wait(move |_| {
            let error = handle.get().unwrap().put("inner", "value").unwrap_err();
            panic::resume_unwind(Box::new(error.kind()));
        });
        let db = waiting.get_or_init(|| telling.open(&path).unwrap());
        let other = by_turns(sharing).open(&path).unwrap();
        other
            .update("key", |_| {
                let told = thread::scope(|scope| scope.spawn(|| db.put("own", "value")).join());
                let panic = told.expect_err("it is told of the other");
                assert_eq!(panic.downcast_ref(), Some(&ErrorKind::Invalid));
                Some("new")
            })
            .unwrap();
        db.put("own", "value").unwrap();
        db.update("own", |_| Some("another")).unwrap();
        assert_eq!(other.get("own").unwrap().expect("it was stored"), "another");
        assert_sound(&other);
    }
}

#[test]
fn a_handle_without_locks_goes_on_behind_handles_of_other_kinds() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let db = by_turns(Sharing::PerCall).open(&path).unwrap();
    db.put("number", "0").unwrap();
    let held = db.get("number").unwrap();
    for (i, sharing) in [Sharing::OneWriter, Sharing::Exclusive, Sharing::Shared].iter().enumerate()
    {
        let other = Options::new().sharing(*sharing).open(&path).unwrap();
        other.put("number", i.to_string()).unwrap();
        other.put_many((0..1_000_u32).map(|key| (key.to_le_bytes(), [i as u8; 30]))).unwrap();
        other.close().unwrap();
        assert_eq!(db.get("number").unwrap().expect("it was stored"), i.to_string().as_str());
        db.put("own", i.to_string()).unwrap();
        assert_eq!(db.len(), 1_002);
    }
    drop(held);
    // The name leads to another store now.
    Db::open(&path).unwrap().close().unwrap();
    splitpoint::rehash::rehash(&path).unwrap();
    let error = db.put("own", "change").unwrap_err();
    assert!(error.to_string().contains("a.spt"), "{error}");
    drop(db);
    assert_sound(&Db::open(&path).unwrap());
}

#[test]
fn lookups_without_locks_in_between_never_fail_while_others_open_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let db = by_turns(Sharing::PerCall).open(&path).unwrap();
    db.put("key", "value").unwrap();
    thread::scope(|scope| {
        let opening = scope.spawn(|| {
            for i in 0..300 {
                let options = if i % 2 == 0 { Options::new() } else { by_turns(Sharing::PerCall) };
                let other = options.lock_timeout(HANG).open(&path).unwrap();
                other.put(format!("{i}"), "value").unwrap();
                other.close().unwrap();
            }
        });
        while !opening.is_finished() {
            assert_eq!(db.get("key").unwrap().expect("it was stored"), "value");
            assert_eq!(db.get_many(["key", "none"]).unwrap().len(), 2);
        }
        opening.join().unwrap();
    });
    assert_eq!(db.len(), 301);
}

/// The reader finds a store that was closed and that nobody has changed since.
#[test]
fn a_reader_has_a_place_beside_a_handle_that_takes_turns_and_has_changed_nothing_yet() {
    for sharing in [Sharing::Shared, Sharing::PerCall] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let db = Options::new().segment_bytes_min(4096).open(&path).unwrap();
        (0..1000_u32).for_each(|i| db.put(i.to_le_bytes(), [1; 100]).unwrap());
        db.close().unwrap();
        let writer = compacting(sharing).open(&path).unwrap();
        let reader = Options::new().read_only().open(&path).unwrap();
        let mut scan = reader.scan().unwrap();
        assert!(scan.next().unwrap().is_ok());
        let readers = writer.stats().unwrap().readers;
        assert_eq!(readers.iter().filter(|reader| reader.is_pinned).count(), 1, "{sharing:?}");
        for round in 0..30_u8 {
            (0..1000_u32).for_each(|i| writer.put(i.to_le_bytes(), [round; 100]).unwrap());
        }
        assert_eq!(scan.map(|pair| drop(pair.unwrap())).count(), 999, "{sharing:?}");
    }
}
