//! Tables in memory whose space is used again, under changes of many patterns. What is freed is
//! overwritten at once, so a reader that still uses it fails.

use std::collections::BTreeMap;

use crate::storage::anon::limit;
use crate::testing::mutant::{self, Mutant};
use crate::{Batch, Db, Durability, Options, Value};

const SEGMENT_BYTES: u64 = 4096;
const LIVE_SHARE: f64 = 0.78;

/// A table of many small segments.
fn options() -> Options {
    let options = Options::new().durability(Durability::Buffered).seed(7).live_share(LIVE_SHARE);
    options.segment_bytes_min(SEGMENT_BYTES).poison_freed()
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A table, what it must hold, and random numbers.
struct Run {
    db: Db,
    model: Model,
    random: u64,
    value_count: u64,
}

impl Run {
    fn new() -> Self {
        Self::with(&options())
    }

    fn with(options: &Options) -> Self {
        let db = options.in_memory().unwrap();
        Self { db, model: Model::new(), random: 1, value_count: 0 }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % n
    }

    /// Returns a value that no other put has.
    fn value(&mut self, bytes: usize) -> Vec<u8> {
        self.value_count += 1;
        let mut value = self.value_count.to_le_bytes().to_vec();
        value.resize(bytes.max(8), self.value_count as u8);
        value
    }

    fn put(&mut self, key: u64, bytes: usize) {
        let (key, value) = (key.to_le_bytes().to_vec(), self.value(bytes));
        self.db.put(&key, &value).unwrap();
        self.model.insert(key, value);
    }

    fn delete(&mut self, key: u64) {
        let key = key.to_le_bytes();
        assert_eq!(self.db.delete(key).unwrap(), self.model.remove(&key[..]).is_some());
    }

    /// Compares every key, by scan and by lookup, checks every structure, and bounds the space.
    fn assert_sound(&self) {
        assert_eq!(content(&self.db), self.model);
        for (key, value) in &self.model {
            assert_eq!(self.db.get(key).unwrap().as_deref(), Some(&value[..]));
        }
        let report = self.db.check().unwrap();
        assert!(report.is_clean(), "{:?}", &report.damages[..report.damages.len().min(3)]);
        self.assert_bounded();
    }

    /// Asserts that the log takes little more than its live bytes and what compaction leaves free.
    fn assert_bounded(&self) {
        let stats = self.db.stats().unwrap();
        let segments = stats.segments;
        let largest = SEGMENT_BYTES.max(segments.log / 64);
        // Values up to 1000 bytes are in the log, those from 20,000 in segments of their own.
        let is_in_log = |(_, value): &(&Vec<u8>, &Vec<u8>)| value.len() <= 1000;
        let pairs = self.model.iter().filter(is_in_log);
        let live_bytes: usize = pairs.map(|(key, value)| key.len() + value.len() + 24).sum();
        let bound = (live_bytes as f64 / LIVE_SHARE) as u64 + 8 * largest;
        assert!(segments.log <= bound, "{segments:?} for {live_bytes}");
        assert!(segments.log + segments.big >= stats.live_bytes + stats.dead_bytes);
    }
}

fn content(db: &Db) -> Model {
    let mut found = Model::new();
    for entry in db.scan().unwrap() {
        let entry = entry.unwrap();
        let before = found.insert(entry.key.into_vec(), entry.value.into_vec());
        assert!(before.is_none(), "a scan returns each key once");
    }
    found
}

#[test]
fn a_table_that_is_overwritten_stays_small() {
    let mut run = Run::new();
    for key in 0..1000 {
        run.put(key, 100);
    }
    run.assert_sound();
    for _ in 0..20_000 {
        let key = run.below(1000);
        run.put(key, 100);
    }
    run.assert_sound();
    let stats = run.db.stats().unwrap();
    let appended = stats.log_bytes;
    assert!(stats.moved_bytes > appended / 4 && stats.moved_bytes < 3 * appended, "{stats:?}");
    assert!(stats.file_bytes < 2 * stats.live_bytes, "{stats:?}");
}

#[test]
fn skewed_overwrites_move_less_than_uniform_ones() {
    let moved = |hot: u64| {
        let mut run = Run::new();
        for key in 0..2000 {
            run.put(key, 50);
        }
        for _ in 0..20_000 {
            let is_hot = run.below(100) < 95;
            let key = if is_hot { run.below(hot) } else { run.below(2000) };
            run.put(key, 50);
        }
        run.assert_sound();
        run.db.stats().unwrap().moved_bytes
    };
    let (skewed, uniform) = (moved(100), moved(2000));
    assert!(skewed < uniform, "{skewed} and {uniform}");
}

#[test]
fn a_queue_takes_no_more_than_what_is_in_it() {
    let mut run = Run::new();
    for at in 0..20_000 {
        run.put(at, 60);
        if at >= 200 {
            run.delete(at - 200);
        }
    }
    run.assert_sound();
}

#[test]
fn a_sawtooth_gives_back_what_it_took() {
    let mut run = Run::new();
    for round in 0..5 {
        for key in 0..5000 {
            run.put(key, 40);
        }
        for key in 500..5000 {
            run.delete(key + round % 2);
        }
        for key in 500..5001 {
            run.delete(key);
        }
        run.assert_sound();
    }
}

#[test]
fn deletes_at_random_move_little_and_leave_a_log_within_its_bound() {
    const KEYS: u64 = 10_000;
    let mut run = Run::new();
    for key in 0..KEYS {
        run.put(key, 100);
    }
    for _ in 0..KEYS / 5 {
        let key = run.below(KEYS);
        run.put(key, 100);
    }
    // A prime step visits all of them, in an order of its own.
    for i in 0..KEYS {
        run.delete(i * 7919 % KEYS);
        if i % 16 != 0 {
            continue;
        }
        let stats = run.db.stats().unwrap();
        if i == KEYS / 5 {
            assert!(stats.moved_bytes < stats.live_bytes / 4, "{stats:?}");
        }
        let bound = (stats.live_bytes as f64 * 7.0 / 6.0 / LIVE_SHARE) as u64 + 8 * SEGMENT_BYTES;
        assert!(stats.live_bytes + stats.dead_bytes <= bound, "{i}: {stats:?}");
    }
    run.assert_sound();
}

#[test]
fn a_table_whose_keys_are_deleted_gives_everything_back() {
    let mut run = Run::new();
    for key in 0..10_000 {
        run.put(key, 100);
    }
    assert_eq!(run.db.clear().unwrap(), 10_000);
    run.model.clear();
    let mut steps = 0;
    while !run.db.maintain(64 << 10).unwrap().is_done {
        steps += 1;
    }
    assert!(steps < 100);
    run.assert_sound();
    let stats = run.db.stats().unwrap();
    assert!(stats.segments.log <= 8 * SEGMENT_BYTES, "{:?}", stats.segments);
    assert!(stats.segments.waiting + stats.segments.free <= 4 * SEGMENT_BYTES);
}

#[test]
fn big_values_are_given_back_when_they_are_replaced() {
    let mut run = Run::new();
    for round in 0..200 {
        for key in 0..10 {
            let bytes = if (round + key) % 3 == 0 { 100 } else { 20_000 };
            run.put(key, bytes);
        }
        run.delete(round % 10);
    }
    run.assert_sound();
    let stats = run.db.stats().unwrap();
    assert!(stats.file_bytes < 1 << 20, "{:?}", stats.segments);
}

/// Records of a quarter of a segment leave much of it unused. That is no space to gain: the work
/// must end.
#[test]
fn the_unused_ends_of_segments_are_not_compacted_again_and_again() {
    let mut run = Run::new();
    for _ in 0..3000 {
        let key = run.below(100);
        run.put(key, 950);
    }
    let stats = run.db.stats().unwrap();
    assert!(stats.write_amplification() < 5.0, "{}", stats.write_amplification());
    assert!(stats.segments.log < 2 * stats.live_bytes, "{:?}", stats.segments);
    let mut calls = 0;
    while !run.db.maintain(64 << 10).unwrap().is_done {
        calls += 1;
        assert!(calls < 20, "it ends");
    }
    assert_eq!(run.db.maintain(1 << 20).unwrap().moved_bytes, 0, "nothing is left");
    assert_eq!(content(&run.db), run.model);
}

/// A log of more than 4 MiB has segments of which the next one is prepared.
#[test]
fn a_log_whose_segments_are_prepared_is_compacted() {
    let mut run = Run::new();
    for key in 0..50_000 {
        run.put(key, 100);
    }
    for _ in 0..100_000 {
        let key = run.below(50_000);
        run.put(key, 100);
    }
    let stats = run.db.stats().unwrap();
    assert!(stats.segments.log > 4 << 20 && stats.moved_bytes > 0, "{stats:?}");
    run.assert_sound();
}

#[test]
fn maintenance_of_records_that_do_not_fill_their_segments_ends() {
    for bytes in [3000, 6000, 13_500] {
        let db = Options::new().seed(7).in_memory().unwrap();
        for key in 0..500_u64 {
            db.put(key.to_le_bytes(), vec![1; bytes]).unwrap();
        }
        let done = db.maintain(64 << 20).unwrap();
        assert!(done.is_done && done.moved_bytes == 0, "{bytes}: {done:?}");
    }
}

#[test]
fn the_log_of_big_values_alone_does_not_grow() {
    let mut run = Run::new();
    for _ in 0..20_000 {
        let key = run.below(5);
        run.put(key, 20_000);
    }
    run.assert_sound();
    let segments = run.db.stats().unwrap().segments;
    assert!(segments.log <= 16 * SEGMENT_BYTES, "{segments:?}");
}

#[test]
fn a_table_in_memory_keeps_no_list_for_a_sync() {
    let mut run = Run::new();
    for _ in 0..5000 {
        let key = run.below(100);
        run.put(key, if key == 0 { 20_000 } else { 200 });
    }
    let writer = run.db.store.lock().unwrap();
    assert_eq!((writer.log.unsynced_count(), writer.unsynced_moved_count()), (0, 0));
}

/// Refuses memory at every size in turn, so also within a step that has moved the view.
#[test]
fn no_change_is_lost_where_memory_ends_while_records_move() {
    for limit_kib in (100..420).step_by(4) {
        let mut run = Run::with(&options().live_share(0.5));
        run.put(0, 60);
        let db = run.db.clone();
        let held = db.get(0_u64.to_le_bytes()).unwrap().unwrap();
        for key in 0..1000 {
            run.put(key, 100);
        }
        for key in (0..1000).step_by(3) {
            run.put(key, 100);
        }
        limit::set(limit_kib << 10);
        let _ = run.db.maintain(1 << 20);
        for key in 2000..2100_u64 {
            let (key, value) = (key.to_le_bytes().to_vec(), run.value(100));
            if run.db.put(&key, &value).is_ok() {
                run.model.insert(key, value);
            }
        }
        limit::set(u64::MAX);
        assert_eq!(content(&run.db), run.model, "{limit_kib} KiB");
        assert!(run.db.check().unwrap().is_clean());
        drop(held);
    }
}

/// Puts new keys until there is no room; returns the number of keys.
fn fill(run: &mut Run) -> u64 {
    for key in 0.. {
        let (key_bytes, value) = (u64::to_le_bytes(key).to_vec(), run.value(100));
        if let Err(error) = run.db.put(&key_bytes, &value) {
            assert!(matches!(error.kind(), crate::ErrorKind::Io | crate::ErrorKind::Full));
            return key;
        }
        run.model.insert(key_bytes, value);
    }
    unreachable!("memory ends")
}

#[test]
fn keys_of_a_full_table_can_be_deleted_and_others_stored() {
    let mut run = Run::new();
    limit::set(1 << 20);
    let count = fill(&mut run);
    assert!(count > 4000, "{count}");
    for key in 0..count / 2 {
        run.delete(key);
    }
    for key in 0..count / 4 {
        run.put(key, 100);
    }
    run.db.apply(&Batch::new().put(b"batch", b"1")).unwrap();
    run.model.insert(b"batch".to_vec(), b"1".to_vec());
    assert_eq!(content(&run.db), run.model);
    for key in 0..count {
        run.delete(key);
    }
    limit::set(u64::MAX);
    assert_eq!(content(&run.db), run.model);
    assert!(run.db.check().unwrap().is_clean());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("copy.spt");
    run.db.backup(&path).unwrap();
    assert_eq!(content(&Db::open(&path).unwrap()), run.model, "also without tombstones");
}

#[test]
fn a_table_that_was_full_while_a_scan_went_on_takes_changes_after_it() {
    let mut run = Run::new();
    for key in 0..2000 {
        run.put(key, 100);
    }
    let db = run.db.clone();
    let scan = db.scan().unwrap();
    limit::set(1 << 20);
    let mut key = 0;
    loop {
        let (key_bytes, value) = (u64::to_le_bytes(key % 2000).to_vec(), run.value(100));
        if run.db.put(&key_bytes, &value).is_err() {
            break;
        }
        run.model.insert(key_bytes, value);
        key += 1;
    }
    drop(scan);
    for key in 0..2000 {
        run.put(key, 100);
    }
    limit::set(u64::MAX);
    run.assert_sound();
}

/// The room of what a failed batch had appended is counted once, also of a big value.
#[test]
fn a_batch_that_fails_behind_a_big_value_leaves_the_counts_right() {
    let mut run = Run::new();
    for key in 0..100 {
        run.put(key, 100);
    }
    for key in 0..50 {
        run.put(key, 100);
    }
    let before = run.db.stats().unwrap();
    limit::set(run.db.store.region.view.file_bytes() + (128 << 10));
    let big = vec![1; 20_000];
    let keys: Vec<[u8; 1]> = (0..100).map(|key| [key]).collect();
    let batch = keys.iter().fold(Batch::new(), |batch, key| batch.put(key, &big));
    assert!(run.db.apply(&batch).is_err());
    limit::set(u64::MAX);
    let after = run.db.stats().unwrap();
    assert_eq!(after.live_bytes, before.live_bytes);
    let gone = run.db.store.lock().unwrap().retired_record_bytes();
    assert!(after.dead_bytes >= before.dead_bytes.saturating_sub(gone), "{after:?}");
    assert_eq!(content(&run.db), run.model);
    run.assert_bounded();
}

#[test]
fn a_batch_pays_for_what_it_appends_in_steps() {
    let mut run = Run::new();
    for round in 0..20_u64 {
        let pairs: Vec<(Vec<u8>, Vec<u8>)> =
            (0..2000_u64).map(|key| (key.to_le_bytes().to_vec(), run.value(100))).collect();
        let batch = pairs.iter().fold(Batch::new(), |batch, (key, value)| batch.put(key, value));
        run.db.apply(&batch).unwrap();
        run.model.extend(pairs);
        assert!(round == 0 || run.db.store.lock().unwrap().owed_bytes() == 0, "{round}");
    }
    run.assert_sound();
}

#[test]
fn maintenance_leaves_a_file_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    Options::new().open(&path).unwrap().put(b"key", b"value").unwrap();
    let db = Options::new().open(&path).unwrap();
    let before = std::fs::read(&path).unwrap();
    assert!(db.maintain(1 << 20).unwrap().is_done);
    assert!(std::fs::read(&path).unwrap() == before, "not a byte");
}

#[test]
fn records_of_every_form_are_moved() {
    let mut run = Run::new();
    let keys: Vec<Vec<u8>> =
        [0, 1, 254, 255, 300, 900].into_iter().map(|bytes| vec![bytes as u8; bytes]).collect();
    for round in 0..400 {
        for (i, key) in keys.iter().enumerate() {
            if (round + i) % 7 == 0 {
                assert_eq!(run.db.delete(key).unwrap(), run.model.remove(key).is_some());
            } else if (round + i) % 5 != 1 {
                let value = run.value(8 + round % 90);
                run.db.put(key, &value).unwrap();
                run.model.insert(key.clone(), value);
            }
        }
        let (key, value) = (vec![1, 2, round as u8], run.value(30));
        run.db.apply(&Batch::new().put(&key, &value).delete(&keys[1])).unwrap();
        run.model.insert(key, value);
        run.model.remove(&keys[1]);
    }
    run.assert_sound();
    assert!(run.db.stats().unwrap().moved_bytes > 0);
}

/// Overwrites every key many times while a scan has begun and goes on.
fn scan_under_changes(run: &mut Run) {
    for key in 0..500 {
        run.put(key, 60);
    }
    for _ in 0..5000 {
        let key = run.below(500);
        run.put(key, 60);
    }
    let before = run.model.clone();
    let db = run.db.clone();
    let mut scan = db.scan().unwrap();
    let mut found = Model::new();
    for step in 0..500_u64 {
        let entry = scan.next().unwrap().unwrap();
        let (key, value) = (entry.key.into_vec(), entry.value.into_vec());
        assert!(found.insert(key, value).is_none(), "each key once");
        for _ in 0..20 {
            let key = run.below(500);
            run.put(key, 60);
        }
        run.put(1000 + step, 60);
    }
    assert!(scan.next().is_none());
    drop(scan);
    assert!(found == before, "the values of the beginning");
    for step in 0..500 {
        run.delete(1000 + step);
    }
    for _ in 0..10_000 {
        let key = run.below(500);
        run.put(key, 60);
    }
    run.assert_sound();
}

#[test]
fn a_scan_returns_what_was_current_when_it_began_under_compaction() {
    scan_under_changes(&mut Run::new());
}

#[test]
fn scans_that_follow_each_other_without_a_gap_do_not_hold_space_for_ever() {
    let mut run = Run::new();
    for key in 0..500 {
        run.put(key, 60);
    }
    let db = run.db.clone();
    let mut scan = db.scan().unwrap();
    let mut most = 0;
    for round in 0..40 {
        let next = db.scan().unwrap();
        assert_eq!(scan.count(), 500);
        scan = next;
        for _ in 0..1000 {
            let key = run.below(500);
            run.put(key, 60);
        }
        let segments = run.db.stats().unwrap().segments;
        if round >= 10 {
            most = most.max(segments.log + segments.waiting);
        }
    }
    drop(scan);
    // A round writes 84 KB.
    assert!(most < 1 << 20, "{most}");
    run.assert_sound();
}

#[test]
fn a_backup_of_a_compacted_table_has_every_pair() {
    let mut run = Run::new();
    for _ in 0..10_000 {
        let key = run.below(700);
        if key < 100 { run.delete(key) } else { run.put(key, 50) }
    }
    run.put(9999, 50_000);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("copy.spt");
    let report = run.db.backup(&path).unwrap();
    assert_eq!(report.record_count, run.model.len() as u64);
    let copy = Db::open(&path).unwrap();
    assert_eq!(content(&copy), run.model);
    assert!(copy.check().unwrap().is_clean());
    let streamed = dir.path().join("streamed.spt");
    run.db.backup_to(std::fs::File::create(&streamed).unwrap()).unwrap();
    assert_eq!(content(&Db::open(&streamed).unwrap()), run.model);
}

/// Each big value has a small record in the log that names it, dead from the first: thousands of them
/// fill segments that compaction would take away.
#[test]
fn a_backup_of_a_compacted_table_of_big_values_has_every_pair() {
    let mut run = Run::new();
    for key in 0..600 {
        run.put(key, 17_000);
    }
    run.put(0, 17_000);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("copy.spt");
    let report = run.db.backup(&path).unwrap();
    assert_eq!(report.record_count, 600);
    assert_eq!(content(&Db::open(&path).unwrap()), run.model);
}

#[test]
fn readers_find_every_key_while_records_move() {
    let mut run = Run::new();
    for key in 0..300 {
        run.put(key, 60);
    }
    let db = run.db.clone();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (db, is_done) = (&db, &is_done);
            scope.spawn(move || {
                let mut key = thread;
                while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                    key = (key + 7) % 300;
                    assert!(db.contains(u64::to_le_bytes(key)).unwrap());
                    assert!(!db.contains(u64::to_le_bytes(key + 1000)).unwrap());
                }
            });
        }
        for _ in 0..30_000 {
            let key = run.below(300);
            run.put(key, 60);
        }
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    run.assert_sound();
}

/// Holds values while every key is overwritten many times, and compares them at the end.
fn hold_values(run: &mut Run) {
    for key in 0..500 {
        run.put(key, 60);
    }
    let db = run.db.clone();
    let mut held = Vec::new();
    for round in 0..20 {
        for key in (round..500).step_by(50) {
            let key = u64::to_le_bytes(key);
            held.push((db.get(key).unwrap().expect("it is there"), run.model[&key[..]].clone()));
        }
        for _ in 0..500 {
            let key = run.below(500);
            run.put(key, 60);
        }
    }
    let waiting = db.stats().unwrap().segments.waiting;
    for (value, expected) in held.drain(..) {
        assert!(value == expected, "a value that is held does not change");
    }
    assert!(waiting > 0, "what was emptied is held back");
    for _ in 0..2000 {
        let key = run.below(500);
        run.put(key, 60);
    }
    run.assert_sound();
    assert!(db.stats().unwrap().segments.waiting < waiting);
}

#[test]
fn values_that_are_held_do_not_change_and_hold_space_back_until_they_are_dropped() {
    hold_values(&mut Run::new());
}

#[test]
fn a_value_whose_space_was_used_again_is_noticed() {
    assert_found(Mutant::ReusesPinned, || hold_values(&mut Run::new()));
}

/// Asserts that `what` panics with an engine that makes a mistake.
fn assert_found(mutant: Mutant, what: impl FnOnce() + std::panic::UnwindSafe) {
    let found = std::panic::catch_unwind(|| mutant::with(mutant, what));
    assert!(found.is_err(), "{mutant:?} was not noticed");
}

#[test]
fn a_segment_that_was_not_read_to_its_end_is_missed() {
    assert_found(Mutant::EmptiesUnread, a_table_that_is_overwritten_stays_small);
}

#[test]
fn a_scan_whose_space_was_used_again_is_noticed() {
    assert_found(Mutant::ReusesUnderScan, || scan_under_changes(&mut Run::new()));
}

#[test]
fn a_record_that_was_moved_without_a_name_is_missed_by_a_scan() {
    assert_found(Mutant::MovesWithoutName, || scan_under_changes(&mut Run::new()));
}

/// Returns the bytes moved for a byte of changes, while the grace period of what was emptied lasts
/// very long.
fn moved_share() -> f64 {
    let mut run = Run::new();
    for key in 0..2000 {
        run.put(key, 60);
    }
    let db = run.db.clone();
    for _ in 0..10 {
        // Each scan holds back what is emptied meanwhile.
        let scan = db.scan().unwrap();
        for _ in 0..2000 {
            let key = run.below(2000);
            run.put(key, 60);
        }
        drop(scan);
    }
    let stats = run.db.stats().unwrap();
    stats.moved_bytes as f64 / stats.log_bytes as f64
}

#[test]
fn changes_do_not_pay_for_space_that_is_on_its_way() {
    let (right, wrong) = (moved_share(), mutant::with(Mutant::PaysForWaiting, moved_share));
    assert!(right < 2.0, "{right}");
    assert!(wrong > 1.3 * right, "{wrong} instead of {right}");
}

/// Returns the most bytes that waited for a byte that was live, while a file was overwritten on a machine
/// without a thread: checkpoints come when they are due, and the log is so long that none is due by it.
fn waiting_share() -> f64 {
    let options = options().checkpoint_bytes_min(128 << 10);
    let db = crate::SimDisk::new().open(&options).unwrap();
    let (keys, mut random) = (4000_u64, 1_u64);
    let mut largest: f64 = 0.0;
    for i in 0..12 * keys {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let key = if i < keys { i } else { (random >> 33) % keys };
        db.put(key.to_le_bytes(), [i as u8; 100]).unwrap();
        if i % 500 == 0 && i > 3 * keys {
            let stats = db.stats().unwrap();
            largest = largest.max(stats.segments.waiting as f64 / stats.live_bytes as f64);
        }
    }
    assert!(db.check().unwrap().is_clean());
    largest
}

#[test]
fn what_waits_for_a_checkpoint_stays_a_share_of_what_is_live() {
    let (right, wrong) = (waiting_share(), mutant::with(Mutant::LetsWaitingGrow, waiting_share));
    println!("{right} {wrong}");
    assert!(right < 0.5, "{right}");
    assert!(wrong > 1.2 * right, "{wrong} instead of {right}");
}

#[test]
fn a_live_share_out_of_bounds_is_refused() {
    for share in [0.0, 0.49, 0.91, 1.0, f64::NAN, -1.0] {
        let error = Options::new().live_share(share).in_memory().unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Invalid, "{share}");
    }
}

#[test]
fn a_table_that_keeps_dead_records_does_not_move_any() {
    let options = Options::new().segment_bytes_min(SEGMENT_BYTES).seed(7).keep_dead_records();
    let db = options.in_memory().unwrap();
    let mut first: Option<Value<'_>> = None;
    for i in 0..10_000_u64 {
        db.put(b"key", &i.to_le_bytes()).unwrap();
        if i == 0 {
            first = db.get(b"key").unwrap();
        }
    }
    assert_eq!(first.as_deref(), Some(&[0; 8][..]));
    assert_eq!(db.stats().unwrap().moved_bytes, 0);
    assert_eq!(db.maintain(1 << 20).unwrap().read_bytes, 0);
}

#[test]
fn values_that_are_overwritten_many_at_a_time_leave_as_few_dead_bytes() {
    const KEYS: u64 = 340;
    let options = Options::new().durability(Durability::Buffered).seed(7).live_share(LIVE_SHARE);
    let mut run = Run::with(&options);
    let mut largest_share = 0.0_f64;
    for round in 0..400 {
        let pairs: Vec<_> =
            (0..32).map(|_| (run.below(KEYS).to_le_bytes(), run.value(12 << 10))).collect();
        run.db.put_many(&pairs).unwrap();
        let stats = run.db.stats().unwrap();
        if round > 40 {
            let share = stats.segments.log as f64 / stats.live_bytes as f64;
            largest_share = largest_share.max(share);
        }
    }
    assert!(largest_share < 2.0, "{largest_share}");
}
