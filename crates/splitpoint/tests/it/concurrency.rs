//! Many threads: readers without a lock while one thread changes everything.
//!
//! A value holds its key, its version and a checksum, so a reader can tell whether it was current.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use splitpoint::hash::{HashFunction, fnv1a_64};
use splitpoint::{Db, Options, SimDisk};

use crate::support::{Rng, assert_sound, bad_hash, rounds, seed, tiny, within, worst_hash};

/// Keys that exist throughout, and are overwritten.
const STEADY: u64 = 60;
/// Keys that come and go, so that the table splits and merges.
const COMING: u64 = 300;

fn key(number: u64) -> Vec<u8> {
    let mut key = number.to_le_bytes().to_vec();
    key.truncate(if number.is_multiple_of(3) { 2 } else { 8 });
    key.insert(0, (number % 5) as u8);
    key
}

fn value(number: u64, version: u64) -> Vec<u8> {
    let mut value = [number.to_le_bytes(), version.to_le_bytes()].concat();
    value.resize(16 + (version % 70) as usize, version as u8);
    let checksum = fnv1a_64(&value);
    value.extend_from_slice(&checksum.to_le_bytes());
    value
}

/// Returns the key's number and the version in a value, which must be complete.
fn decode(value: &[u8]) -> (u64, u64) {
    let (content, checksum) = value.split_last_chunk::<8>().expect("a checksum");
    assert_eq!(fnv1a_64(content), u64::from_le_bytes(*checksum), "a torn value");
    let word = |at: usize| u64::from_le_bytes(content[at..at + 8].try_into().unwrap());
    (word(0), word(8))
}

/// The versions that may be current, shared by the writer with the readers.
struct Shared {
    /// The last version of each steady key whose put has returned.
    done: Vec<AtomicU64>,
    /// The last version of each steady key whose put has begun.
    begun: Vec<AtomicU64>,
    is_over: AtomicBool,
    lookups: AtomicU64,
    scans: AtomicU64,
}

impl Shared {
    fn new() -> Self {
        let versions = || (0..STEADY).map(|_| AtomicU64::new(0)).collect();
        Self {
            done: versions(),
            begun: versions(),
            is_over: AtomicBool::new(false),
            lookups: AtomicU64::new(0),
            scans: AtomicU64::new(0),
        }
    }

    /// Repeats what a reader does until the writer is done: once at least, even if the machine has
    /// run nobody but the writer.
    fn repeat_until_over(&self, mut what: impl FnMut()) {
        loop {
            what();
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            // On one core, the writer needs a turn.
            std::thread::yield_now();
        }
    }

    /// Overwrites a steady key with its next version.
    fn overwrite(&self, db: &Db, number: u64) {
        let version = self.begun[number as usize].fetch_add(1, Ordering::SeqCst) + 1;
        db.put(&key(number), &value(number, version)).unwrap();
        self.done[number as usize].store(version, Ordering::SeqCst);
    }

    /// Checks a value against the versions that may have been current since `oldest` was noted.
    fn assert_current(&self, number: u64, oldest: u64, found: &[u8]) {
        let newest = self.begun[number as usize].load(Ordering::SeqCst);
        let (found_number, version) = decode(found);
        assert_eq!(found_number, number);
        assert!((oldest..=newest).contains(&version), "{version} not in {oldest}..={newest}");
    }

    fn look_up(&self, db: &Db, rng: &mut Rng) {
        let number = rng.below(STEADY);
        let oldest = self.done[number as usize].load(Ordering::SeqCst);
        let found = db.get(&key(number)).unwrap();
        let found = found.unwrap_or_else(|| panic!("key {number} was there all the time"));
        self.assert_current(number, oldest, &found);
        assert_eq!(db.get(&key(1 << 40 | rng.below(1000))).unwrap(), None);
        let number = STEADY + rng.below(COMING);
        if let Some(found) = db.get(&key(number)).unwrap() {
            assert_eq!(decode(&found).0, number);
        }
        self.lookups.fetch_add(1, Ordering::Relaxed);
    }

    fn look_up_many(&self, db: &Db) {
        let oldest: Vec<u64> =
            self.done.iter().map(|version| version.load(Ordering::SeqCst)).collect();
        let keys: Vec<Vec<u8>> = (0..STEADY).map(key).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        for (number, found) in (0..STEADY).zip(db.get_many(&keys).unwrap()) {
            self.assert_current(number, oldest[number as usize], &found.expect("a steady key"));
        }
    }

    /// Every steady key once, with the version that was current when the scan began.
    fn scan(&self, db: &Db) {
        let oldest: Vec<u64> =
            self.done.iter().map(|version| version.load(Ordering::SeqCst)).collect();
        let entries = db.scan().unwrap();
        let newest: Vec<u64> =
            self.begun.iter().map(|version| version.load(Ordering::SeqCst)).collect();
        let mut seen = std::collections::HashSet::new();
        for entry in entries {
            let entry = entry.unwrap();
            let (number, version) = decode(&entry.value);
            assert_eq!(key(number), &*entry.key);
            assert!(seen.insert(number), "key {number} twice in one scan");
            if number < STEADY {
                let at = number as usize;
                assert!((oldest[at]..=newest[at]).contains(&version), "{number}: {version}");
            }
        }
        assert!((0..STEADY).all(|number| seen.contains(&number)), "a steady key is missing");
        self.scans.fetch_add(1, Ordering::Relaxed);
    }
}

/// Puts and deletes the coming keys, and overwrites the steady ones meanwhile.
fn churn(db: &Db, shared: &Shared, rounds: u64, rng: &mut Rng) {
    for round in 0..rounds {
        for number in STEADY..STEADY + COMING {
            db.put(&key(number), &value(number, round)).unwrap();
            if number % 4 == 0 {
                shared.overwrite(db, rng.below(STEADY));
            }
        }
        let mut numbers: Vec<u64> = (STEADY..STEADY + COMING).collect();
        while !numbers.is_empty() {
            let number = numbers.swap_remove(rng.index(numbers.len()));
            assert!(db.delete(&key(number)).unwrap());
            if number % 4 == 1 {
                shared.overwrite(db, rng.below(STEADY));
            }
        }
    }
}

/// Runs two readers and a scanner against one writer and returns the table's largest and last
/// number of buckets.
fn readers_against_a_writer(db: &Db, rounds: u64) {
    let shared = Shared::new();
    for number in 0..STEADY {
        shared.overwrite(db, number);
    }
    let seed = seed();
    let start = Barrier::new(4);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (shared, start) = (&shared, &start);
            scope.spawn(move || {
                let mut rng = Rng::new(seed + reader);
                start.wait();
                shared.repeat_until_over(|| {
                    (0..50).for_each(|_| shared.look_up(db, &mut rng));
                    shared.look_up_many(db);
                });
            });
        }
        let (shared, start) = (&shared, &start);
        scope.spawn(move || {
            start.wait();
            shared.repeat_until_over(|| shared.scan(db));
        });
        // The readers end with the writer, even if it fails.
        let _over = SetOnDrop(&shared.is_over);
        start.wait();
        churn(db, shared, rounds, &mut Rng::new(seed));
    });
    assert!(shared.lookups.load(Ordering::Relaxed) > 0 && shared.scans.load(Ordering::Relaxed) > 0);
    assert_eq!(db.len(), STEADY);
    assert_sound(db);
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn options(hash: HashFunction, fill_factor: f64) -> Options {
    tiny().hash(hash).fill_factor(fill_factor)
}

#[test]
fn readers_of_a_table_in_memory_see_current_values_while_it_splits_and_merges() {
    for (hash, fill_factor) in
        [(worst_hash(), 1.0), (bad_hash(), 2.0), (HashFunction::rapidhash_v3(), 1.0)]
    {
        within("readers in memory", move || {
            let db = options(hash, fill_factor).in_memory().unwrap();
            readers_against_a_writer(&db, rounds(300, 1500));
        });
    }
}

#[test]
fn readers_of_a_file_see_current_values_while_it_splits_and_merges() {
    for (hash, fill_factor) in [(worst_hash(), 1.0), (HashFunction::rapidhash_v3(), 7.0)] {
        within("readers of a file", move || {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("busy.spt");
            let db = options(hash, fill_factor).open(&path).unwrap();
            readers_against_a_writer(&db, rounds(200, 800));
        });
    }
}

#[test]
fn readers_of_a_simulated_disk_see_current_values() {
    within("readers of a simulated disk", || {
        let db = SimDisk::new().open(&options(bad_hash(), 1.0)).unwrap();
        readers_against_a_writer(&db, rounds(100, 500));
    });
}

/// Four threads write separate keys while two read them all. Each writer finds its last version at
/// once, and all versions are there in the end.
#[test]
fn writers_take_turns_and_lose_nothing() {
    let db = Db::in_memory().unwrap();
    let per_thread = rounds(5000, 200_000);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let db = &db;
            scope.spawn(move || {
                for i in 0..per_thread {
                    let number = thread << 32 | i;
                    db.put(&number.to_le_bytes(), &value(number, i)).unwrap();
                    let found = db.get(&number.to_le_bytes()).unwrap().unwrap();
                    assert_eq!(decode(&found), (number, i));
                    if i % 3 == 0 {
                        assert!(db.delete(&number.to_le_bytes()).unwrap());
                        assert!(!db.contains(&number.to_le_bytes()).unwrap());
                    }
                }
            });
        }
    });
    assert_eq!(db.len(), 4 * (per_thread - per_thread.div_ceil(3)));
    assert_sound(&db);
}

/// One thread scans and deletes what the scan returns while another puts other keys. In the end
/// exactly the keys that existed when the scan began are gone.
#[test]
fn deleting_while_scanning_deletes_everything_beside_a_writer() {
    let db = tiny().fill_factor(1.0).in_memory().unwrap();
    for number in 0..3000_u64 {
        db.put(&number.to_le_bytes(), &value(number, 0)).unwrap();
    }
    let entries = db.scan().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 10_000..12_000_u64 {
                db.put(&number.to_le_bytes(), &value(number, 0)).unwrap();
            }
        });
        let mut count = 0;
        for entry in entries {
            assert!(db.delete(&entry.unwrap().key).unwrap());
            count += 1;
        }
        assert_eq!(count, 3000);
    });
    assert_eq!(db.len(), 2000);
    assert!((0..3000_u64).all(|number| !db.contains(&number.to_le_bytes()).unwrap()));
    assert_sound(&db);
}

/// A value that was read does not change, whatever happens to its key: it borrows from the handle,
/// and from bytes that are never written again.
#[test]
fn values_that_were_read_do_not_change() {
    let db = tiny().fill_factor(1.0).in_memory().unwrap();
    for number in 0..500_u64 {
        db.put(&number.to_le_bytes(), &value(number, 1)).unwrap();
    }
    let held: Vec<_> =
        (0..500_u64).map(|number| db.get(&number.to_le_bytes()).unwrap().unwrap()).collect();
    for number in 0..500_u64 {
        db.put(&number.to_le_bytes(), &value(number, 2)).unwrap();
        db.delete(&number.to_le_bytes()).unwrap();
    }
    for (number, held) in (0..500).zip(&held) {
        assert_eq!(decode(held), (number, 1));
    }
}

#[test]
fn many_handles_at_once_are_independent() {
    let dir = tempfile::tempdir().unwrap();
    let mut tables: Vec<Db> = (0..50).map(|_| Db::in_memory().unwrap()).collect();
    tables.extend((0..50).map(|i| Db::open(dir.path().join(format!("{i}.spt"))).unwrap()));
    for (number, table) in (0_u64..).zip(&tables) {
        table.put(b"key", &value(number, 0)).unwrap();
    }
    for (number, table) in (0_u64..).zip(&tables) {
        assert_eq!(decode(&table.get(b"key").unwrap().unwrap()), (number, 0));
        assert_eq!(table.len(), 1);
    }
}

#[test]
fn a_handle_can_be_shared_and_sent_between_threads() {
    fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<Db>();
    is_send_and_sync::<SimDisk>();
    is_send_and_sync::<splitpoint::Value<'static>>();
    let db = std::sync::Arc::new(Db::in_memory().unwrap());
    let sent = db.clone();
    std::thread::spawn(move || sent.put(b"key", b"value").unwrap()).join().unwrap();
    assert!(db.contains(b"key").unwrap());
}
