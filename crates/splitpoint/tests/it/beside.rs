//! Handles that read a file beside one that writes it, in one process: locks of open file descriptions
//! make no difference between that and two processes. `processes` has those.

use std::collections::BTreeMap;
use std::time::Duration;

use splitpoint::{Db, Error, ErrorKind, Options, Sharing};

use crate::support::{Content, assert_sound, content};

fn read_only() -> Options {
    Options::new().read_only()
}

fn compacting() -> Options {
    Options::new()
        .segment_bytes_min(4096)
        .checkpoint_bytes_min(64 << 10)
        .live_share(0.9)
        .poison_freed()
}

#[test]
fn a_reader_sees_each_change_as_soon_as_it_has_returned() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let db = Db::open(&path).unwrap();
    let reader = read_only().open(&path).unwrap();
    assert_eq!(reader.len(), 0);
    for i in 0..20_000_u32 {
        let key = i.to_le_bytes();
        db.put(&key, &[i as u8; 100]).unwrap();
        assert_eq!(reader.get(&key).unwrap().expect("just stored"), [i as u8; 100], "{i}");
    }
    assert_eq!(reader.len(), 20_000);
    for i in 0..20_000_u32 {
        let key = i.to_le_bytes();
        match i % 3 {
            0 => assert!(db.delete(&key).unwrap()),
            1 => db.put(&key, b"new").unwrap(),
            _ => continue,
        }
        let expected = (i % 3 == 1).then_some(&b"new"[..]);
        assert_eq!(reader.get(&key).unwrap().as_deref(), expected, "{i}");
    }
    let keys: Vec<_> = (0..100_u32).map(u32::to_le_bytes).collect();
    let values = |db: &Db| -> Vec<_> {
        let values = db.get_many(&keys).unwrap();
        values.into_iter().map(|value| value.map(splitpoint::Value::into_vec)).collect()
    };
    assert_eq!(values(&reader), values(&db));
    assert_eq!(content(&reader), content(&db));
    db.close().unwrap();
    assert_eq!(reader.len(), 20_000 - 6_667);
    assert_eq!(reader.get(1_u32.to_le_bytes()).unwrap().expect("it is there"), b"new");
    assert_sound(&Db::open(&path).unwrap());
    assert!(reader.check().unwrap().is_clean());
}

#[test]
fn one_writer_and_any_number_of_readers_unless_it_is_exclusive() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let writer = Db::open(&path).unwrap();
    let readers: Vec<Db> = (0..200).map(|_| read_only().open(&path).unwrap()).collect();
    writer.put("key", "value").unwrap();
    for reader in &readers {
        assert_eq!(reader.get("key").unwrap().expect("it was stored"), "value");
    }
    let error = Db::open(&path).unwrap_err();
    assert!(error.to_string().contains("is locked by this process (writer"), "{error}");
    let exclusive = Options::new().sharing(Sharing::Exclusive);
    writer.close().unwrap();
    assert_eq!(exclusive.open(&path).unwrap_err().kind(), ErrorKind::Locked, "readers are there");
    let next = Db::open(&path).unwrap();
    next.put("key", "newer").unwrap();
    for reader in readers {
        assert_eq!(reader.get("key").unwrap().expect("it was stored"), "newer");
    }
    next.close().unwrap();
    let alone = exclusive.open(&path).unwrap();
    for options in [read_only(), Options::new(), exclusive.clone()] {
        assert_eq!(options.open(&path).unwrap_err().kind(), ErrorKind::Locked);
    }
    alone.close().unwrap();
}

/// Overwrites and deletes until space has been used again many times, and returns what is left.
fn churn(db: &Db, rounds: u32, mut after_round: impl FnMut(u32)) -> Content {
    let mut model = BTreeMap::new();
    for round in 0..rounds {
        for i in 0..2_000_u32 {
            let key = i.wrapping_mul(2_654_435_761).to_le_bytes();
            let is_changed = round == 0 || i.wrapping_mul(40_503).wrapping_add(round * 77) % 5 == 0;
            if !is_changed {
                continue;
            }
            if (i + round) % 17 == 0 {
                db.delete(&key).unwrap();
                model.remove(&key[..]);
            } else {
                let value = vec![round as u8; 50 + (i as usize * 13 + round as usize) % 100];
                db.put(&key, &value).unwrap();
                model.insert(key.to_vec(), value);
            }
        }
        db.sync().unwrap();
        if round % 4 == 3 {
            // Not only when a checkpoint that a thread makes happens to be done.
            db.maintain(256 << 10).unwrap();
        }
        after_round(round);
    }
    model
}

#[test]
fn a_value_that_a_reader_holds_keeps_its_bytes_while_space_is_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let db = compacting().open(&path).unwrap();
    churn(&db, 3, |_| ());
    let reader = read_only().open(&path).unwrap();
    let mut held = Vec::new();
    churn(&db, 40, |round| {
        for i in (round..2_000).step_by(97) {
            let key = i.wrapping_mul(2_654_435_761).to_le_bytes();
            if let Some(value) = reader.get(&key).unwrap() {
                held.push((value.to_vec(), value));
            }
        }
        if round % 10 == 9 {
            for (copy, value) in held.drain(..) {
                assert_eq!(value, copy);
            }
        }
    });
    assert!(held.is_empty());
    drop(held);
    let stats = db.stats().unwrap();
    assert!(stats.moved_bytes > 0, "nothing was compacted");
    assert_eq!(stats.readers.len(), 1);
    assert_eq!(stats.readers[0].pid, std::process::id());
    assert!(!stats.readers[0].is_pinned);
    drop(reader);
    assert!(db.stats().unwrap().readers.is_empty());
    assert_sound(&db);
}

#[test]
fn a_reader_that_holds_a_value_holds_space_back_and_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let db = compacting().open(&path).unwrap();
    churn(&db, 10, |_| ());
    let reader = read_only().open(&path).unwrap();
    let key = 3_u32.wrapping_mul(2_654_435_761).to_le_bytes();
    let value = reader.get(&key).unwrap().expect("it was stored");
    let before = db.stats().unwrap();
    assert!(before.is_pinned && before.readers[0].is_pinned);
    churn(&db, 20, |_| ());
    let held = db.stats().unwrap();
    assert!(held.held_up_for.is_some());
    drop(value);
    churn(&db, 20, |_| ());
    let after = db.stats().unwrap();
    assert!(!after.is_pinned && after.held_up_for.is_none());
    assert!(after.segments.waiting < held.segments.waiting, "{after:?}\n{held:?}");
}

#[test]
fn a_scan_of_a_reader_has_every_key_once_while_records_are_moved() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let db = compacting().open(&path).unwrap();
    for i in 0..3_000_u32 {
        db.put(format!("stays {i}"), i.to_le_bytes()).unwrap();
    }
    let reader = read_only().open(&path).unwrap();
    let mut scan = None;
    churn(&db, 30, |round| {
        if round % 3 == 0 {
            scan = Some((reader.scan().unwrap(), BTreeMap::new()));
        }
        let (scan, seen) = scan.as_mut().expect("one was begun");
        let count = if round % 3 == 2 { usize::MAX } else { 1_000 };
        for entry in scan.by_ref().take(count) {
            let entry = entry.unwrap();
            let twice = seen.insert(entry.key.to_vec(), entry.value.to_vec());
            assert_eq!(twice, None, "{:?}", entry.key);
        }
        if round % 3 == 2 {
            for i in 0..3_000_u32 {
                let value = seen.get(format!("stays {i}").as_bytes());
                assert_eq!(value.map(Vec::as_slice), Some(&i.to_le_bytes()[..]), "{i} in {round}");
            }
        }
    });
    assert!(db.stats().unwrap().moved_bytes > 0, "nothing was compacted");
}

#[test]
fn a_reader_follows_an_index_that_grows_shrinks_and_moves() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let db = compacting().open(&path).unwrap();
    let reader = read_only().open(&path).unwrap();
    for round in 0..3_u8 {
        for i in 0..30_000_u32 {
            db.put(i.to_le_bytes(), [round; 20]).unwrap();
        }
        for i in (0..30_000_u32).step_by(7) {
            let value = reader.get(i.to_le_bytes()).unwrap();
            assert_eq!(value.expect("it was stored"), [round; 20], "{i}");
        }
        for i in 1_000..30_000_u32 {
            db.delete(i.to_le_bytes()).unwrap();
        }
        db.maintain(u64::MAX).unwrap();
        for i in (0..30_000_u32).step_by(7) {
            let value = reader.get(i.to_le_bytes()).unwrap();
            assert_eq!(value.is_some(), i < 1_000, "{i}");
        }
        assert_eq!(content(&reader), content(&db));
        assert_eq!(reader.stats().unwrap().record_count, 1_000);
    }
}

#[test]
fn a_reader_stays_while_writers_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    compacting().open(&path).unwrap().close().unwrap();
    let reader = read_only().open(&path).unwrap();
    for round in 0..8_u8 {
        let db = compacting().open(&path).unwrap();
        let model = churn(&db, 4, |_| ());
        db.put(b"round", [round]).unwrap();
        assert_eq!(reader.get(b"round").unwrap().expect("it was stored"), [round]);
        if round % 2 == 0 {
            db.close().unwrap();
        } else {
            drop(db);
        }
        let mut found: Content = reader
            .scan()
            .unwrap()
            .map(|entry| entry.map(|entry| (entry.key.to_vec(), entry.value.to_vec())).unwrap())
            .collect();
        assert_eq!(found.remove(&b"round"[..]), Some(vec![round]));
        assert!(found == model, "round {round}");
        assert!(reader.check().unwrap().is_clean());
    }
}

#[test]
fn a_reader_copies_a_store_while_it_is_compacted() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("a.spt"), dir.path().join("copy.spt"));
    let db = compacting().open(&path).unwrap();
    churn(&db, 20, |_| ());
    db.put(b"big", vec![7; 300_000]).unwrap();
    let reader = read_only().open(&path).unwrap();
    let mut is_first = true;
    let report = reader
        .backup_with()
        .on_progress(|_| {
            if std::mem::take(&mut is_first) {
                churn(&db, 3, |_| ());
            }
            std::ops::ControlFlow::Continue(())
        })
        .write(&copy)
        .unwrap();
    let copied = Db::open(&copy).unwrap();
    assert_eq!(copied.len(), report.record_count);
    assert_eq!(copied.get(b"big").unwrap().expect("it was stored").len(), 300_000);
    assert_sound(&copied);
    splitpoint::backup::Backup::of_file(&path)
        .replace_existing()
        .write(dir.path().join("b.spt"))
        .unwrap();
}

#[test]
fn an_open_waits_as_long_as_it_was_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let db = Db::open(&path).unwrap();
    let wait = Duration::from_millis(50);
    let begun = std::time::Instant::now();
    let error = Options::new().lock_timeout(wait).open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert!(begun.elapsed() >= wait);
    let waiting = std::thread::spawn({
        let path = path.clone();
        move || Options::new().lock_timeout(Duration::from_secs(1800)).open(path)
    });
    db.put(b"key", b"value").unwrap();
    db.close().unwrap();
    assert_eq!(waiting.join().unwrap().unwrap().len(), 1);
}

#[test]
fn a_cursor_of_a_reader_reaches_every_key_while_the_writer_splits_and_merges() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let writer = compacting().open(&path).unwrap();
    let stays = |i: u32| format!("stays {i}");
    writer.put_many((0..2000).map(|i| (stays(i), "value"))).unwrap();
    // The first call on a handle: nothing of the index is mapped yet.
    let reader = read_only().open(&path).unwrap();
    assert!(splitpoint::Cursor::default().next(&reader).unwrap().is_some());
    let rounds = 40;
    for round in 0..rounds {
        let mut cursor = splitpoint::Cursor::default();
        let mut seen = BTreeMap::new();
        let mut others = 0_u32..;
        while let Some(key) = cursor.next(&reader).unwrap() {
            *seen.entry(key.to_vec()).or_insert(0) += 1;
            for i in others.by_ref().take(20) {
                let key = format!("comes and goes {}", i % 8000);
                if (i / 8000 + round) % 2 == 0 {
                    writer.put(key, "other").unwrap();
                } else {
                    writer.delete(key).unwrap();
                }
            }
        }
        assert!(seen.values().all(|&count| count == 1), "round {round}");
        let missing = (0..2000).filter(|&i| !seen.contains_key(stays(i).as_bytes())).count();
        assert_eq!(missing, 0, "round {round}");
    }
    // Behind the end of a closed store, too.
    writer.close().unwrap();
    let closed = read_only().open(&path).unwrap();
    let mut cursor = splitpoint::Cursor::default();
    let mut count = 0;
    while cursor.next(&closed).unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, closed.len());
}

#[test]
fn a_handle_that_only_reads_refuses_every_change_before_it_looks_at_anything() {
    type Change = fn(&Db) -> Result<(), Error>;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    Db::open(&path).unwrap().put("key", "value").unwrap();
    let changes: [Change; 6] = [
        |db| db.put_many([("key", "new")]),
        |db| db.put("key", "new"),
        |db| db.delete("key").map(drop),
        |db| db.increment("key", 1).map(drop),
        |db| db.compare_and_swap("key", None, None).map(drop),
        |db| db.clear().map(drop),
    ];
    for change in changes {
        let reader = read_only().open(&path).unwrap();
        assert_eq!(change(&reader).unwrap_err().kind(), ErrorKind::ReadOnly);
        assert_eq!(reader.get("key").unwrap().expect("it is there"), "value");
    }
}

#[test]
fn a_reader_checks_a_store_that_has_grown_since_it_has_looked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let writer = compacting().open(&path).unwrap();
    writer.put("key", "value").unwrap();
    let reader = read_only().open(&path).unwrap();
    assert!(reader.contains("key").unwrap());
    writer.put_many((0..50_000_u32).map(|i| (i.to_le_bytes(), "value"))).unwrap();
    writer.close().unwrap();
    let report = reader.check().unwrap();
    assert!(report.is_clean(), "{:?}", report.damages);
    assert_eq!(reader.len(), 50_001);
}
