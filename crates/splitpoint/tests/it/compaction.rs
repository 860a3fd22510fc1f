//! Tables in memory whose space is used again, while values are borrowed and scans go on. What is
//! freed is overwritten at once, so a value whose space was used again has other bytes.

use std::collections::{BTreeMap, BTreeSet};

use splitpoint::{Batch, Db, Options, Scan, Value};

use crate::support::{Content, Rng, assert_sound, content, rounds, seed, tiny, within};

/// Keys of the tables.
const KEYS: u64 = 600;
/// Values that are held at most.
const HELD_MAX: usize = 40;

fn options() -> Options {
    tiny().live_share(0.78).poison_freed()
}

/// A table under random changes, and what it must hold.
struct Run<'db> {
    db: &'db Db,
    rng: Rng,
    model: Content,
    value_count: u64,
    /// Values that were read at some time, with their bytes.
    held: Vec<(Value<'db>, Vec<u8>)>,
    /// A scan that goes on, what it must return, and what it has returned.
    scan: Option<(Scan<'db>, Content, Content)>,
    /// The keys that were deleted since it began.
    deleted: BTreeSet<Vec<u8>>,
}

impl<'db> Run<'db> {
    fn new(db: &'db Db, seed: u64) -> Self {
        let (rng, model) = (Rng::new(seed), BTreeMap::new());
        Self {
            db,
            rng,
            model,
            value_count: 0,
            held: Vec::new(),
            scan: None,
            deleted: BTreeSet::new(),
        }
    }

    fn pair(&mut self) -> (Vec<u8>, Vec<u8>) {
        self.value_count += 1;
        let key = self.rng.below(KEYS).to_le_bytes().to_vec();
        let bytes = match self.rng.below(50) {
            0 => 3000,
            1 => 0,
            2..=10 => 300,
            _ => 40,
        };
        let mut value = self.value_count.to_le_bytes().to_vec();
        value.resize(bytes, self.value_count as u8);
        (key, value)
    }

    fn put(&mut self) {
        let (key, value) = self.pair();
        self.db.put(&key, &value).unwrap();
        self.model.insert(key, value);
    }

    fn delete(&mut self) {
        let (key, _) = self.pair();
        self.delete_key(key);
    }

    fn delete_key(&mut self, key: Vec<u8>) {
        assert_eq!(self.db.delete(&key).unwrap(), self.model.remove(&key).is_some());
        self.deleted.insert(key);
    }

    fn apply(&mut self) {
        let mut batch = Batch::new();
        for _ in 0..self.rng.below(20) {
            let (key, value) = self.pair();
            if self.rng.below(3) == 0 {
                batch = batch.delete(&key);
                self.model.remove(&key);
                self.deleted.insert(key);
            } else {
                batch = batch.put(&key, &value);
                self.model.insert(key, value);
            }
        }
        self.db.apply(&batch).unwrap();
    }

    /// Borrows a value, or a copy of one that is borrowed, or drops one; what is held does not
    /// change.
    fn hold(&mut self) {
        if self.held.len() == HELD_MAX || self.rng.below(4) == 0 && !self.held.is_empty() {
            let at = self.rng.index(self.held.len());
            let (value, expected) = self.held.swap_remove(at);
            assert!(*value == expected[..], "a value that is held does not change");
        }
        if self.rng.below(5) == 0 && !self.held.is_empty() {
            let at = self.rng.index(self.held.len());
            let copy = self.held[at].clone();
            self.held.push(copy);
            return;
        }
        let (key, _) = self.pair();
        if let Some(value) = self.db.get(&key).unwrap() {
            self.held.push((value, self.model[&key].clone()));
        }
    }

    /// Begins a scan, or goes on with the one that has begun.
    fn scan(&mut self) {
        let Some((scan, expected, found)) = &mut self.scan else {
            self.scan = Some((self.db.scan().unwrap(), self.model.clone(), Content::new()));
            self.deleted.clear();
            return;
        };
        for _ in 0..self.rng.below(60) {
            let Some(entry) = scan.next() else {
                let missed = expected.keys().filter(|key| !found.contains_key(*key));
                let wrong = missed.filter(|key| !self.deleted.contains(*key)).count();
                assert_eq!(wrong, 0, "only a key that was deleted meanwhile may be missing");
                self.scan = None;
                return;
            };
            let entry = entry.unwrap();
            assert!(expected.get(&*entry.key).is_some_and(|value| value[..] == *entry.value));
            let before = found.insert(entry.key.to_vec(), entry.value.to_vec());
            assert!(before.is_none(), "a scan returns each key once");
            if self.held.len() < HELD_MAX && self.rng.below(10) == 0 {
                self.held.push((entry.value.clone(), entry.value.to_vec()));
            }
        }
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..60 => self.put(),
            60..80 => self.delete(),
            80..82 => self.apply(),
            82..92 => self.hold(),
            92..98 => self.scan(),
            98 => drop(self.db.maintain(self.value_count % 3 * 20_000).unwrap()),
            _ => self.shrink(),
        }
    }

    /// Deletes most keys, now and then.
    fn shrink(&mut self) {
        if self.rng.below(10) != 0 {
            return;
        }
        for key in (0..KEYS).map(|key| key.to_le_bytes().to_vec()) {
            self.delete_key(key);
        }
    }

    fn finish(mut self) {
        assert_eq!(content(self.db), self.model);
        assert_sound(self.db);
        for (value, expected) in self.held.drain(..) {
            assert!(*value == expected[..], "a value that is held does not change");
        }
        self.scan = None;
        while !self.db.maintain(1 << 20).unwrap().is_done {}
        assert_eq!(content(self.db), self.model);
        assert_sound(self.db);
        let stats = self.db.stats().unwrap();
        assert_eq!(stats.segments.waiting, 0, "nothing is held");
        let bound = stats.live_bytes + stats.live_bytes / 4 + 4 * 4096;
        assert!(stats.segments.log <= bound, "{:?} for {}", stats.segments, stats.live_bytes);
    }
}

#[test]
fn values_that_are_held_never_change_whatever_is_compacted() {
    for case in 0..rounds(8, 2000) {
        let db = options().in_memory().unwrap();
        let mut run = Run::new(&db, seed() + case);
        for _ in 0..4000 {
            run.step();
        }
        run.finish();
    }
}

/// Readers check the values that they hold while others make the table compact all the time.
#[test]
fn readers_of_many_threads_hold_values_while_records_move() {
    within("readers and compaction", || {
        let db = options().in_memory().unwrap();
        let value = |key: u64, version: u64| [key.to_le_bytes(), version.to_le_bytes()].concat();
        for key in 0..KEYS {
            db.put(key.to_le_bytes(), value(key, 0)).unwrap();
        }
        let is_done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (db, is_done) = (&db, &is_done);
                scope.spawn(move || {
                    let mut rng = Rng::new(thread);
                    let mut held: Vec<(u64, Value<'_>, Vec<u8>)> = Vec::new();
                    while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                        let key = rng.below(KEYS);
                        let value = db.get(key.to_le_bytes()).unwrap().expect("it is there");
                        assert_eq!(value[..8], key.to_le_bytes());
                        assert!(!db.contains((key + KEYS).to_le_bytes()).unwrap());
                        let bytes = value.to_vec();
                        held.push((key, value, bytes));
                        if held.len() > 20 {
                            let at = rng.index(held.len());
                            let (key, value, bytes) = held.swap_remove(at);
                            assert_eq!(value, bytes);
                            assert_eq!(value[..8], key.to_le_bytes());
                        }
                        // On one core, the writer needs a turn.
                        std::thread::yield_now();
                    }
                });
            }
            let mut rng = Rng::new(9);
            for version in 1..rounds(100_000, 3_000_000) {
                let key = rng.below(KEYS);
                db.put(key.to_le_bytes(), value(key, version)).unwrap();
            }
            is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert!(db.stats().unwrap().moved_bytes > 0);
        assert_sound(&db);
    });
}

/// The index, the segments that records are appended to and the checkpoint move to the beginning of the
/// file while others read: nothing of it is behind what is in use.
#[test]
fn a_file_is_as_short_as_what_it_holds_after_maintenance_and_reads_go_on_meanwhile() {
    const RECORDS: u64 = 20_000;
    const KEPT: u64 = 8;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let db = Options::new().open(&path).unwrap();
    for key in 0..RECORDS {
        db.put(key.to_le_bytes(), [key as u8; 200]).unwrap();
    }
    let long_bytes = db.stats().unwrap().file_bytes;
    for key in (0..RECORDS).filter(|key| !key.is_multiple_of(KEPT)) {
        assert!(db.delete(key.to_le_bytes()).unwrap());
    }
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (db, is_done) = (&db, &is_done);
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                    let key = rng.below(RECORDS);
                    let value = db.get(key.to_le_bytes()).unwrap();
                    assert_eq!(value.is_some(), key.is_multiple_of(KEPT), "{key}");
                    assert!(value.is_none_or(|value| *value == [key as u8; 200][..]));
                    std::thread::yield_now();
                }
            });
        }
        while !db.maintain(1 << 20).unwrap().is_done {}
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    // What a reader was looking at could not make room.
    while !db.maintain(1 << 20).unwrap().is_done {}
    let short = db.stats().unwrap();
    let segments = short.segments;
    let held_bytes = segments.header
        + segments.log
        + segments.index
        + segments.overflow
        + segments.checkpoint
        + segments.segment_table;
    assert_sound(&db);
    drop(db);
    let file_bytes = std::fs::metadata(&path).unwrap().len();
    assert!(file_bytes < held_bytes + held_bytes / 8, "{file_bytes} for {short:?}");
    assert!(file_bytes < long_bytes / 4, "{file_bytes} of {long_bytes}");
    let db = Db::open(&path).unwrap();
    assert_eq!(db.len(), RECORDS / KEPT);
    assert_sound(&db);
}

/// Returns the offsets of the log segments whose headers are in a file.
fn log_segments(file: &[u8]) -> Vec<u64> {
    let is_one = |at: &usize| file[*at..].starts_with(b"SEGM\x01");
    (0..file.len()).step_by(4096).filter(is_one).map(|at| at as u64).collect()
}

#[test]
fn a_damaged_header_of_a_segment_does_not_stop_compaction() {
    use std::os::unix::fs::FileExt as _;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let db = tiny().open(&path).unwrap();
    let mut churn = {
        let mut rng = Rng::new(5);
        move |db: &Db, count: u64| {
            for _ in 0..count {
                db.put(rng.below(KEYS).to_le_bytes(), [7; 100]).unwrap();
            }
        }
    };
    churn(&db, 20_000);
    while !db.maintain(1 << 20).unwrap().is_done {}
    churn(&db, 300);
    let segments = log_segments(&std::fs::read(&path).unwrap());
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    // Not the newest ones, to which records are appended.
    for offset in &segments[..segments.len() / 2] {
        file.write_all_at(b"?", offset + 8).unwrap();
    }
    let before = db.stats().unwrap().moved_bytes;
    churn(&db, 40_000);
    db.sync().unwrap();
    while !db.maintain(1 << 20).unwrap().is_done {}
    let stats = db.stats().unwrap();
    assert!(stats.moved_bytes > before, "records move");
    let log_bytes = stats.segments.log;
    assert!(log_bytes < 4 * stats.live_bytes, "{log_bytes} for {}", stats.live_bytes);
    assert_eq!(db.len(), KEYS);
}
