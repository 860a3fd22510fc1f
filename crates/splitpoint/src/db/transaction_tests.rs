//! Random transactions that overlap: is what they read and wrote serializable?

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::testing::history::{Committed, Writers, check};
use crate::testing::mutant::{self, Mutant};
use crate::{Db, Error, ErrorKind, Options, SimDisk, Transaction, Value};

const KEYS: u64 = 6;

/// A generator of numbers (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % end
    }
}

fn options() -> Options {
    Options::new().segment_bytes_min(4096).checkpoint_bytes_min(4096).seed(7).poison_freed()
}

fn list_of(value: Option<Value<'_>>) -> Writers {
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    value.map_or(Vec::new(), |value| value.chunks(4).map(number).collect())
}

/// Reads a key, or all of them, and perhaps adds the transaction to the list of one.
fn step(
    transaction: &mut Transaction<'_>,
    done: &mut Committed,
    random: &mut Random,
) -> Result<(), Error> {
    let key = random.below(KEYS) as u8;
    if random.below(10) == 0 {
        let mut found: BTreeMap<u8, Writers> = (0..KEYS as u8).map(|key| (key, vec![])).collect();
        for entry in transaction.scan()? {
            let entry = entry?;
            found.insert(entry.key[0], list_of(Some(entry.value)));
        }
        for (key, list) in found {
            note(done, key, list);
        }
        return Ok(());
    }
    let list = list_of(transaction.get([key])?);
    note(done, key, list.clone());
    if random.below(2) == 0 && !done.written.contains(&key) {
        let longer = list.into_iter().chain([done.number]).flat_map(u32::to_le_bytes);
        transaction.put([key], longer.collect::<Vec<u8>>())?;
        done.written.push(key);
    }
    Ok(())
}

/// Notes what was read of others: the own number is always the last.
fn note(done: &mut Committed, key: u8, mut list: Writers) {
    list.retain(|&writer| writer != done.number);
    let earlier = done.reads.entry(key).or_insert_with(|| list.clone());
    assert_eq!(*earlier, list, "a second read finds the same");
}

fn last_lists(db: &Db) -> BTreeMap<u8, Writers> {
    let entries = db.scan().unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.key[0], list_of(Some(entry.value)))).collect()
}

/// Runs transactions that overlap on one thread, a step of one after a step of another; an error says
/// what is wrong with their history.
fn run_interleaved(db: &Db, seed: u64) -> Result<usize, String> {
    let mut random = Random(seed);
    let (mut clock, mut conflict_count) = (0, 0);
    let mut tick = || {
        clock += 1;
        clock
    };
    let mut running: Vec<(Transaction<'_>, Committed)> = Vec::new();
    let mut history = Vec::new();
    for number in 0..300 {
        while running.len() >= 5 || !running.is_empty() && random.below(4) > 0 {
            let i = random.below(running.len() as u64) as usize;
            if random.below(5) > 0 {
                let (transaction, done) = &mut running[i];
                step(transaction, done, &mut random).unwrap();
                continue;
            }
            let (transaction, mut done) = running.swap_remove(i);
            match transaction.commit() {
                Ok(()) => {
                    done.ended = tick();
                    history.push(done);
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                    conflict_count += 1;
                }
            }
        }
        let done = Committed { number, began: tick(), ..Committed::default() };
        running.push((db.begin().unwrap(), done));
    }
    drop(running);
    assert!(conflict_count > 20, "{conflict_count}");
    check(&history, &last_lists(db)).map(|()| history.len())
}

#[test]
fn histories_of_transactions_that_overlap_are_serializable() {
    for seed in 0..20 {
        let count = run_interleaved(&options().in_memory().unwrap(), seed).unwrap();
        assert!(count > 100, "{count} of 300 commit");
    }
    run_interleaved(&SimDisk::new().open(&options()).unwrap(), 99).unwrap();
}

#[test]
fn commits_without_a_look_at_what_was_read_are_found() {
    let found = mutant::with(Mutant::CommitsBlindly, || {
        std::panic::catch_unwind(|| run_interleaved(&options().in_memory().unwrap(), 1))
    });
    // Without conflicts the history is wrong, or there are none where some are expected.
    assert!(!matches!(found, Ok(Ok(_))));
}

/// Eight threads; compaction goes on all the time.
#[test]
fn histories_of_eight_threads_are_serializable() {
    let db = options().in_memory().unwrap();
    let (clock, history) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let tick = || clock.fetch_add(1, Ordering::SeqCst);
    std::thread::scope(|scope| {
        for thread in 0..8_u32 {
            let (db, history, tick) = (&db, &history, &tick);
            scope.spawn(move || {
                let mut random = Random(thread.into());
                for i in 0..120 {
                    let number = thread * 1000 + i;
                    let began = tick();
                    let step_count = 1 + random.below(5);
                    let mut done = db.transaction(|transaction| {
                        // One that is not committed leaves no trace.
                        let mut done = Committed { number, began, ..Committed::default() };
                        for _ in 0..step_count {
                            step(transaction, &mut done, &mut random)?;
                        }
                        Ok(done)
                    });
                    if let Ok(done) = &mut done {
                        done.ended = tick();
                    }
                    history.lock().unwrap().push(done.unwrap());
                }
            });
        }
    });
    let history = history.into_inner().unwrap();
    assert_eq!(history.len(), 8 * 120);
    check(&history, &last_lists(&db)).unwrap();
    assert!(db.check().unwrap().is_clean());
}
