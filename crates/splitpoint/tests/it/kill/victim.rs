//! The process that is killed: writers that change a store, readers that check what they read
//! against the oracle, and a thread that kills the process at moments which no other process could
//! hit.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use splitpoint::{Create, Db, Durability, Options};

use super::oracle::{KEYS, Oracle, Word, key_bytes, value_of, version_of, way};
use crate::support::{Rng, bad_hash, tiny, worst_hash};

/// Largest number of keys in a batch.
const BATCH: usize = 12;

/// One process: its store, and the seed of everything it does.
#[derive(Clone, Debug)]
pub(super) struct Round {
    pub(super) dir: PathBuf,
    pub(super) store: u64,
    pub(super) seed: u64,
}

/// When a process is killed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Plan {
    /// By its parent, this long after its start.
    After(Duration),
    /// By one of its threads, after a counter has reached a value and some turns of a loop.
    At { word: Word, count: u64, turns: u64 },
}

impl Round {
    /// Returns the round in the form that an environment variable takes.
    pub(super) fn encode(&self) -> String {
        format!("{}|{}|{}", self.dir.display(), self.store, self.seed)
    }

    pub(super) fn decode(text: &str) -> Self {
        let [dir, store, seed] = text.split('|').collect::<Vec<_>>()[..] else {
            panic!("not three words: {text}")
        };
        let number = |text: &str| text.parse().expect("a number");
        Self { dir: dir.into(), store: number(store), seed: number(seed) }
    }

    pub(super) fn store_path(&self) -> PathBuf {
        self.dir.join(format!("{}.spt", self.store))
    }

    pub(super) fn oracle_path(&self) -> PathBuf {
        self.dir.join(format!("{}.oracle", self.store))
    }

    /// Returns the options of the store: hash functions with long chains, tables that split early
    /// or late.
    pub(super) fn options(&self) -> Options {
        let hash = match self.store % 3 {
            0 => worst_hash(),
            1 => bad_hash(),
            _ => splitpoint::hash::HashFunction::rapidhash_v3(),
        };
        let fill_factor = [1.0, 4.5, 7.0][(self.store / 3 % 3) as usize];
        let durability = [Durability::Buffered, Durability::Async][(self.store % 2) as usize];
        let options = tiny().hash(hash).fill_factor(fill_factor).checkpoint_bytes_min(8 << 10);
        let options = options.live_share([0.9, 0.78][(self.store % 2) as usize]).poison_freed();
        options.durability(durability).create(Create::IfMissing)
    }

    /// Returns the number of threads that write, each with its keys.
    pub(super) fn writer_count(&self) -> u64 {
        1 + self.store / 2 % 2
    }

    fn rng(&self, what: u64) -> Rng {
        Rng::new(self.seed ^ what << 56)
    }

    pub(super) fn plan(&self) -> Plan {
        let mut rng = self.rng(1);
        let turns_max = 1 << rng.below(18);
        let turns = rng.below(turns_max);
        match rng.below(10) {
            0 => Plan::After(Duration::from_micros(rng.below(10_000))),
            1..=3 => Plan::After(Duration::from_micros(rng.below(30_000))),
            4 | 5 => Plan::At { word: Word::OpenBegun, count: 1 + rng.below(2), turns },
            6 | 7 => Plan::At { word: Word::CloseBegun, count: 1 + rng.below(2), turns },
            _ => Plan::At { word: Word::Changes, count: 1 + rng.below(500), turns },
        }
    }

    /// Returns whether the `count`th open of a process rebuilds the index.
    fn is_rebuild(&self, count: u64) -> bool {
        self.rng(2 + count).below(6) == 0
    }
}

/// Changes the store until this process is killed.
pub(super) fn run(round: &Round) {
    end_with_the_first_panic();
    let oracle = Arc::new(Oracle::open(&round.oracle_path()));
    if let Plan::At { word, count, turns } = round.plan() {
        let oracle = Arc::clone(&oracle);
        std::thread::spawn(move || kill_self(&oracle, word, count, turns));
    }
    let mut rng = round.rng(0);
    for open_count in 0.. {
        let mut options = round.options();
        let is_rebuild = round.is_rebuild(open_count);
        if is_rebuild {
            options = options.rebuild_index();
        }
        oracle.begin_open(is_rebuild);
        let db = options.open(round.store_path()).expect("the store opens");
        oracle.end_open(db.recovery());
        oracle.settle(&db, round.writer_count());
        work(&db, &oracle, round, &mut rng);
        let stats = db.stats().expect("the store can be counted");
        oracle.add(Word::Checkpoints, u64::from(stats.checkpoint.is_some()));
        oracle.add(Word::Moves, u64::from(stats.moved_bytes > 0));
        oracle.begin_close(stats.geometry.bucket_count());
        if rng.below(2) == 0 {
            db.close().expect("the store closes");
        } else {
            drop(db);
        }
        oracle.end_close();
    }
}

/// Ends the process with the message of whichever thread panics first; the parent reads it.
fn end_with_the_first_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        print(info);
        std::process::exit(2);
    }));
}

/// Waits until a counter has gone up `count` times, and a little, and kills this process.
fn kill_self(oracle: &Oracle, word: Word, count: u64, turns: u64) {
    let goal = oracle.get(word) + count;
    while oracle.get(word) < goal {
        std::thread::yield_now();
    }
    (0..turns).for_each(|_| std::hint::spin_loop());
    let signal = rustix::process::Signal::KILL;
    rustix::process::kill_process(rustix::process::getpid(), signal).expect("it is our own");
}

/// Writers that make some changes, and readers beside them until they are done.
fn work(db: &Db, oracle: &Oracle, round: &Round, rng: &mut Rng) {
    let change_count_max = [1, 20, 200][rng.index(3)];
    let change_count = rng.below(change_count_max);
    // Stores grow for a while, then shrink for a while.
    let is_growing = (oracle.get(Word::OpenBegun) / 4).is_multiple_of(2);
    if change_count > 0 {
        oracle.begin_changes();
    }
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let rng = Rng::new(rng.next());
            scope.spawn(|| read(db, oracle, rng, &is_done));
        }
        let writers: Vec<_> = (0..round.writer_count())
            .map(|number| {
                let rng = Rng::new(rng.next());
                let (own, count) = ((number, round.writer_count()), change_count);
                scope.spawn(move || write(db, oracle, own, rng, count, is_growing))
            })
            .collect();
        for writer in writers {
            writer.join().expect("panics end the process");
        }
        is_done.store(true, Ordering::Relaxed);
    });
}

/// Makes changes of the keys that are `number` modulo `of`.
fn write(
    db: &Db,
    oracle: &Oracle,
    (number, of): (u64, u64),
    mut rng: Rng,
    change_count: u64,
    is_growing: bool,
) {
    for _ in 0..change_count {
        match rng.below(100) {
            0 => {
                db.sync().expect("nothing fails here");
                oracle.add(Word::Syncs, 1);
            }
            1 => {
                db.maintain(u64::MAX).expect("nothing fails here");
            }
            2..=5 => put_batch(db, oracle, (number, of), &mut rng),
            _ => {
                let is_put = rng.below(10) < if is_growing { 8 } else { 2 };
                let mut key = 0;
                // The version determines the next change of a key, so search for one that suits.
                for _ in 0..8 {
                    key = rng.below(KEYS / of) * of + number;
                    if value_of(key, oracle.intended(key) + 1).is_some() == is_put {
                        break;
                    }
                }
                change(db, oracle, key, &mut rng);
            }
        }
    }
}

/// Notes that changes have returned: the next open after a kill must be a warm restart.
fn count_changes(oracle: &Oracle, count: u64) {
    oracle.set(Word::Ways, way::TAKEN_OVER);
    oracle.add(Word::Changes, count);
}

fn change(db: &Db, oracle: &Oracle, key: u64, rng: &mut Rng) {
    let durability = match rng.below(50) {
        0 => Durability::Sync,
        1..=20 => Durability::Async,
        _ => Durability::Buffered,
    };
    let was_there = value_of(key, oracle.acknowledged(key)).is_some();
    let version = oracle.intend(key);
    let name = key_bytes(key);
    match value_of(key, version) {
        Some(value) if !was_there && durability == Durability::Async => {
            assert!(db.put_new(&name, &value).expect("nothing fails here"));
        }
        Some(value) => db.put_with(&name, &value, durability).expect("nothing fails here"),
        None => {
            let is_deleted = db.delete_with(&name, durability).expect("nothing fails here");
            assert_eq!(is_deleted, was_there, "key {key}, version {version}");
        }
    }
    oracle.acknowledge(key);
    count_changes(oracle, 1);
    oracle.add(Word::Syncs, u64::from(durability == Durability::Sync));
}

/// Stores several records in one call, in the order of their keys.
fn put_batch(db: &Db, oracle: &Oracle, (number, of): (u64, u64), rng: &mut Rng) {
    let mut keys: Vec<u64> = (0..BATCH).map(|_| rng.below(KEYS / of) * of + number).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.retain(|&key| value_of(key, oracle.intended(key) + 1).is_some());
    let pairs: Vec<(Vec<u8>, Vec<u8>)> = keys
        .iter()
        .map(|&key| (key_bytes(key), value_of(key, oracle.intend(key)).expect("a put")))
        .collect();
    if pairs.is_empty() {
        return;
    }
    let borrowed: Vec<(&[u8], &[u8])> =
        pairs.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    db.put_many(&borrowed).expect("nothing fails here");
    for &key in &keys {
        oracle.acknowledge(key);
    }
    count_changes(oracle, keys.len() as u64);
}

/// Reads in all ways until the writers are done. Each value must be of a version that is not older
/// than what had returned before the read, nor newer than what had begun after it.
fn read(db: &Db, oracle: &Oracle, mut rng: Rng, is_done: &AtomicBool) {
    let mut read_count = 0;
    while !is_done.load(Ordering::Relaxed) {
        match rng.below(200) {
            0 => scan_beside_writers(db, oracle),
            1..=20 => {
                let keys: Vec<u64> = (0..40).map(|_| rng.below(KEYS)).collect();
                let names: Vec<Vec<u8>> = keys.iter().map(|&key| key_bytes(key)).collect();
                let names: Vec<&[u8]> = names.iter().map(|name| &name[..]).collect();
                let before: Vec<u64> = keys.iter().map(|&key| oracle.acknowledged(key)).collect();
                let found = db.get_many(&names).expect("nothing fails here");
                for ((&key, before), found) in keys.iter().zip(before).zip(found) {
                    expect_version(oracle, key, before, found.as_deref());
                }
            }
            _ => {
                let key = rng.below(KEYS);
                let before = oracle.acknowledged(key);
                let found = db.get(&key_bytes(key)).expect("nothing fails here");
                expect_version(oracle, key, before, found.as_deref());
            }
        }
        read_count += 1;
        if read_count % 64 == 0 {
            oracle.add(Word::Reads, 64);
        }
    }
}

/// Checks a value that was read after version `before` had returned.
fn expect_version(oracle: &Oracle, key: u64, before: u64, found: Option<&[u8]>) {
    let allowed = before..=oracle.intended(key);
    version_of(key, allowed, found).unwrap_or_else(|error| panic!("a reader: {error}"));
}

/// Scans beside the writers. A value is of the version that its key had when the scan began, and
/// each key that is present throughout is returned once.
fn scan_beside_writers(db: &Db, oracle: &Oracle) {
    let before: Vec<u64> = (0..KEYS).map(|key| oracle.acknowledged(key)).collect();
    let entries = db.scan().expect("nothing fails here");
    let begun: Vec<u64> = (0..KEYS).map(|key| oracle.intended(key)).collect();
    let mut found: Vec<Option<Vec<u8>>> = vec![None; KEYS as usize];
    for entry in entries {
        let entry = entry.expect("nothing fails here");
        let key = u64::from_le_bytes(*entry.key.first_chunk().expect("keys have 8 bytes"));
        let earlier = found[key as usize].replace(entry.value.to_vec());
        assert_eq!(earlier, None, "a scan returned key {key} twice");
    }
    for (key, found) in (0..).zip(found) {
        let last = if found.is_some() { begun[key as usize] } else { oracle.intended(key) };
        version_of(key, before[key as usize]..=last, found.as_deref())
            .unwrap_or_else(|error| panic!("a scan beside writers: {error}"));
    }
    oracle.add(Word::Scans, 1);
}
