//! Random transactions that overlap: is what they read and wrote serializable?
//!
//! The other processes are this test binary, started again with an environment variable.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::testing::history::{Committed, Writers, check};
use crate::testing::mutant::{self, Mutant};
use crate::{Db, Error, ErrorKind, Options, Sharing, SimDisk, Transaction, Value};

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

/// Runs transactions of some handles that overlap on one thread, a step of one after a step of another;
/// an error says what is wrong with their history.
fn run_interleaved(handles: &[Db], seed: u64) -> Result<usize, String> {
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
        let db = &handles[random.below(handles.len() as u64) as usize];
        running.push((db.begin().unwrap(), done));
    }
    drop(running);
    assert!(conflict_count > 20, "{conflict_count}");
    check(&history, &last_lists(&handles[0])).map(|()| history.len())
}

#[test]
fn histories_of_transactions_that_overlap_are_serializable() {
    for seed in 0..20 {
        let count = run_interleaved(&[options().in_memory().unwrap()], seed).unwrap();
        assert!(count > 100, "{count} of 300 commit");
    }
    run_interleaved(&[SimDisk::new().open(&options()).unwrap()], 99).unwrap();
}

#[test]
fn commits_without_a_look_at_what_was_read_are_found() {
    let found = mutant::with(Mutant::CommitsBlindly, || {
        std::panic::catch_unwind(|| run_interleaved(&[options().in_memory().unwrap()], 1))
    });
    // Without conflicts the history is wrong, or there are none where some are expected.
    assert!(!matches!(found, Ok(Ok(_))));
    let dir = tempfile::tempdir().unwrap();
    let found = mutant::with(Mutant::CommitsBlindly, || {
        std::panic::catch_unwind(|| run_interleaved(&handles_by_turns(&dir.path().join("a")), 1))
    });
    assert!(!matches!(found, Ok(Ok(_))));
}

/// Opens handles of both kinds that change a file by turns.
fn handles_by_turns(path: &Path) -> Vec<Db> {
    let kinds = [Sharing::Shared, Sharing::PerCall, Sharing::Shared, Sharing::PerCall];
    kinds.iter().map(|&sharing| options().sharing(sharing).open(path).unwrap()).collect()
}

/// Their locks are of open file descriptions: each handle is as one of another process.
#[test]
fn histories_of_handles_by_turns_are_serializable() {
    for seed in 0..10 {
        let dir = tempfile::tempdir().unwrap();
        let handles = handles_by_turns(&dir.path().join("a"));
        let count = run_interleaved(&handles, seed).unwrap();
        assert!(count > 100, "{count} of 300 commit");
        assert!(handles[0].check().unwrap().is_clean());
    }
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

const PROCESS_ENV: &str = "SPLITPOINT_TEST_HISTORY";

/// Not a test by itself: a process that runs transactions until it is killed, and says in a file what it
/// is about to commit, and what it has.
#[test]
fn another_process_runs_transactions_until_it_is_killed() {
    let Some(arguments) = std::env::var_os(PROCESS_ENV) else { return };
    let arguments = arguments.into_string().unwrap();
    let [path, said, number] = arguments.split('|').collect::<Vec<_>>()[..] else { panic!() };
    let mut said = File::options().append(true).create(true).open(said).unwrap();
    let first: u32 = number.parse().unwrap();
    let mut random = Random(first.into());
    let sharing = if first.is_multiple_of(2) { Sharing::Shared } else { Sharing::PerCall };
    let options = options().sharing(sharing).lock_timeout(Duration::from_secs(1800));
    let mut number = first;
    loop {
        let db = options.open(path).unwrap();
        for _ in 0..random.below(60) {
            number += 1;
            let began = now_ns();
            let step_count = 1 + random.below(5);
            let done = db.transaction(|transaction| {
                let mut done = Committed { number, began, ..Committed::default() };
                for _ in 0..step_count {
                    step(transaction, &mut done, &mut random)?;
                }
                // One that is not committed after all has written no list.
                writeln!(said, "{}", encode(&done)).unwrap();
                Ok(done)
            });
            done.unwrap();
            writeln!(said, "{number} ended {}", now_ns()).unwrap();
        }
        // By a close, or as it is.
        if random.below(2) == 0 {
            db.close().unwrap();
        }
    }
}

/// Returns the time of a clock that all processes share.
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn encode(done: &Committed) -> String {
    let list = |list: &Writers| list.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let reads = done.reads.iter().map(|(key, seen)| format!("{key}:{}", list(seen)));
    let written: Vec<String> = done.written.iter().map(u8::to_string).collect();
    let reads: Vec<String> = reads.collect();
    format!("{} {} {} r{}", done.number, done.began, written.join(","), reads.join(";"))
        .replace("  ", " - ")
}

fn decode(line: &str) -> Option<Committed> {
    let [number, began, written, reads] = line.split(' ').collect::<Vec<_>>()[..] else {
        return None;
    };
    let numbers = |text: &str| -> Writers {
        text.split(',').filter_map(|number| number.parse().ok()).collect()
    };
    let read = |text: &str| {
        let (key, list) = text.split_once(':')?;
        Some((key.parse().ok()?, numbers(list)))
    };
    Some(Committed {
        number: number.parse().ok()?,
        began: began.parse().ok()?,
        written: numbers(written).into_iter().map(|key| key as u8).collect(),
        reads: reads.strip_prefix('r')?.split(';').filter_map(read).collect(),
        ended: u64::MAX,
    })
}

/// Adds what a process has said to a history. What it was killed in counts if a list has it.
fn add_said(said: &Path, last: &BTreeMap<u8, Writers>, history: &mut Vec<Committed>) {
    let text = fs::read_to_string(said).unwrap_or_default();
    let mut pending: Option<Committed> = None;
    let is_there = |done: &Committed| last.values().any(|list| list.contains(&done.number));
    for line in text.split_inclusive('\n') {
        let Some(line) = line.strip_suffix('\n') else { break };
        if let [number, "ended", at] = line.split(' ').collect::<Vec<_>>()[..] {
            let mut done = pending.take().expect("it was begun");
            assert_eq!(done.number.to_string(), number);
            done.ended = at.parse().unwrap();
            history.push(done);
            continue;
        }
        // The last try is the one that counts.
        pending = decode(line);
        assert!(pending.is_some(), "{line}");
    }
    history.extend(pending.filter(is_there));
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Four processes at a time, each killed at some moment: nothing that has ended is lost, nothing is done
/// twice, and all that was committed is serializable.
#[test]
fn histories_of_four_processes_that_are_killed_are_serializable() {
    let is_slow = std::env::var_os("SPLITPOINT_SLOW").is_some_and(|value| value == "1");
    let (mut random, mut committed_count) = (Random(1991), 0);
    for round in 0..if is_slow { 500 } else { 6 } {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.spt");
        let db = options().sharing(Sharing::Shared).open(&path).unwrap();
        let said = |i: u32| dir.path().join(format!("{i}.said"));
        let start = |i: u32| {
            let arguments = format!("{}|{}|{}", path.display(), said(i).display(), i * 100_000);
            let mut command = Command::new(std::env::current_exe().unwrap());
            command
                .args(["--exact", "--nocapture"])
                .arg("db::transaction_tests::another_process_runs_transactions_until_it_is_killed")
                .env(PROCESS_ENV, arguments)
                .stdin(Stdio::null())
                .stdout(Stdio::null());
            Killed(command.spawn().unwrap())
        };
        let process_count = 8;
        let begun = Instant::now();
        let mut running: Vec<Killed> = (1..=4).map(start).collect();
        let has_said = |i: u32| fs::metadata(said(i)).is_ok_and(|file| file.len() > 0);
        while !(1..=4).any(has_said) && begun.elapsed() < Duration::from_secs(600) {
            std::thread::sleep(Duration::from_millis(1));
        }
        // In most of which a process begins transactions, however slow the machine is.
        let span_ms = 60.max(begun.elapsed().as_millis() as u64);
        for i in 5..=process_count + 4 {
            std::thread::sleep(Duration::from_millis(20 + random.below(span_ms)));
            let next = random.below(running.len() as u64) as usize;
            let mut dying = running.swap_remove(next);
            let ended = dying.0.try_wait().unwrap();
            assert!(ended.is_none(), "round {round}: it has ended by itself: {ended:?}");
            drop(dying);
            if i <= process_count {
                running.push(start(i));
            }
        }
        assert!(running.is_empty());
        let last = last_lists(&db);
        let mut history = Vec::new();
        (1..=process_count).for_each(|i| add_said(&said(i), &last, &mut history));
        check(&history, &last).unwrap_or_else(|error| panic!("round {round}: {error}"));
        committed_count += history.iter().filter(|done| !done.written.is_empty()).count();
        assert!(db.check().unwrap().is_clean());
    }
    assert!(committed_count > 0, "nothing was committed");
}

/// No table has such a key.
#[test]
fn a_transaction_looks_in_vain_for_a_key_that_is_too_long() {
    let db = options().in_memory().unwrap();
    let key = vec![0; 1 << 32];
    let mut transaction = db.begin().unwrap();
    assert!(transaction.get(&key).unwrap().is_none());
    transaction.put("key", "value").unwrap();
    transaction.commit().unwrap();
    assert_eq!(db.get("key").unwrap().unwrap(), b"value");
}
