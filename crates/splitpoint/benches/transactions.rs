//! What transactions and snapshots cost beside the same changes without them, by turns.
//!
//! ```sh
//! TMPDIR=/dev/shm cargo bench -p splitpoint --bench transactions -- [RECORDS [CHANGES [ROUNDS [MIB]]]]
//! ```
//!
//! By default 250,000 records of 16 + 100 bytes, 200,000 changes a figure, five rounds, of which it prints the
//! medians: processor time of a change in nanoseconds, the ratio within a round, and its goal. A change
//! replaces the value of a random record. `blind` transactions only put; the others read each record first,
//! and are compared with an `apply` after the same gets.
//!
//! In memory, in a file with one writer, and in a file by a handle that takes turns; that one also beside
//! another process, which takes a new snapshot every millisecond: this program, started again.
//!
//! At last one transaction of that many MiB by turns, 256 by default, of which 16 may be in memory: what it
//! takes of memory that is not a mapping of the file.

#![expect(clippy::print_stdout, reason = "a bench prints its results")]

mod support;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use splitpoint::{Batch, Db, Durability, Options, Sharing};

use support::{key, mix, processor_ns};

const VALUE: [u8; 100] = [7; 100];
const CHILD: &str = "SPLITPOINT_BENCH_SNAPSHOTS";

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The changes of a figure: with how many keys at a time they are made.
type Changes = fn(&Db, &[[u8; 16]]) -> Result;

fn apply(db: &Db, keys: &[[u8; 16]]) -> Result {
    Ok(db.apply(&keys.iter().fold(Batch::new(), |batch, key| batch.put(key, VALUE)))?)
}

fn blind(db: &Db, keys: &[[u8; 16]]) -> Result {
    let mut transaction = db.begin()?;
    for key in keys {
        transaction.put(key, VALUE)?;
    }
    Ok(transaction.commit()?)
}

fn gets_and_apply(db: &Db, keys: &[[u8; 16]]) -> Result {
    for key in keys {
        std::hint::black_box(db.get(key)?);
    }
    apply(db, keys)
}

fn transaction(db: &Db, keys: &[[u8; 16]]) -> Result {
    let mut transaction = db.begin()?;
    for key in keys {
        std::hint::black_box(transaction.get(key)?);
        transaction.put(key, VALUE)?;
    }
    Ok(transaction.commit()?)
}

fn puts(db: &Db, keys: &[[u8; 16]]) -> Result {
    Ok(keys.iter().try_for_each(|key| db.put(key, VALUE))?)
}

/// Puts while a snapshot is open, a new one every thousand.
fn puts_beside_a_snapshot(db: &Db, keys: &[[u8; 16]]) -> Result {
    let _snapshot = db.snapshot()?;
    puts(db, keys)
}

/// Returns the nanoseconds of a change.
fn measure(db: &Db, keys: &[[u8; 16]], size: usize, changes: Changes) -> Result<f64> {
    let before = processor_ns();
    for keys in keys.chunks(size) {
        changes(db, keys)?;
    }
    Ok((processor_ns() - before) as f64 / keys.len() as f64)
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// How much is measured.
#[derive(Clone, Copy)]
struct Size {
    records: u64,
    changes: u64,
    rounds: u64,
}

/// Two kinds of changes, how many are made at a time, and the most that the second should take of the first.
type Pair = (&'static str, &'static str, usize, f64, Changes, Changes);

/// Measures two kinds of changes by turns, the second beside what `beside` returns; prints both.
fn compare<T>(
    db: &Db,
    size: Size,
    (first, second, many, goal, one, other): Pair,
    beside: impl Fn() -> Result<T>,
) -> Result {
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..size.rounds {
        // Each has keys of its own, and each is first in every other round: what was just changed is cached.
        let keys = |which| -> Vec<_> {
            let numbers = (0..size.changes).map(|i| mix(i ^ (2 * round + which) << 32));
            numbers.map(|number| key(number % size.records)).collect()
        };
        let measure_one = || measure(db, &keys(0), many, one);
        let measure_other = || {
            let _guard = beside()?;
            measure(db, &keys(1), many, other)
        };
        let (one_ns, other_ns) = if round % 2 == 0 {
            let one_ns = measure_one()?;
            (one_ns, measure_other()?)
        } else {
            let other_ns = measure_other()?;
            (measure_one()?, other_ns)
        };
        ours.push(one_ns);
        theirs.push(other_ns);
        ratios.push(other_ns / one_ns);
    }
    let (ours, theirs, ratio) = (median(ours), median(theirs), median(ratios));
    println!(
        "{many:>5} changes: {first} {ours:.0} ns, {second} {theirs:.0} ns: {ratio:.2}, goal {goal}"
    );
    Ok(())
}

const PAIRS: [Pair; 7] = [
    ("apply", "blind transaction", 1, 1.3, apply, blind),
    ("apply", "blind transaction", 10, 1.3, apply, blind),
    ("apply", "blind transaction", 1000, 1.3, apply, blind),
    ("gets, then apply", "transaction", 1, 1.3, gets_and_apply, transaction),
    ("gets, then apply", "transaction", 10, 1.3, gets_and_apply, transaction),
    ("gets, then apply", "transaction", 1000, 1.3, gets_and_apply, transaction),
    ("put", "put beside a snapshot", 1000, 1.1, puts, puts_beside_a_snapshot),
];

fn compare_all(db: &Db, size: Size) -> Result {
    db.put_many((0..size.records).map(|i| (key(i), VALUE)))?;
    PAIRS.into_iter().try_for_each(|pair| compare(db, size, pair, || Ok(())))
}

/// A process that takes snapshots, ended when it is dropped.
struct Watcher(Child);

impl Watcher {
    fn start(path: &Path) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.env(CHILD, path).stdout(Stdio::piped()).spawn()?;
        let said = child.stdout.take().ok_or("it has an output")?;
        let watcher = Self(child);
        BufReader::new(said).read_line(&mut String::new())?;
        Ok(watcher)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the other process does.
fn take_snapshots(path: &Path) -> Result {
    let db = Options::new().read_only().open(path)?;
    println!("open");
    loop {
        let _snapshot = db.snapshot()?;
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn main() -> Result {
    if let Some(path) = std::env::var_os(CHILD) {
        return take_snapshots(Path::new(&path));
    }
    let numbers: Vec<u64> = std::env::args().filter_map(|it| it.parse().ok()).collect();
    let number = |i: usize, default| numbers.get(i).copied().unwrap_or(default);
    let size =
        Size { records: number(0, 250_000), changes: number(1, 200_000), rounds: number(2, 5) };
    println!("in memory");
    compare_all(&Options::new().in_memory()?, size)?;
    let directory = tempfile::tempdir()?;
    let buffered = Options::new().durability(Durability::Buffered);
    println!("in a file, of one writer");
    compare_all(&buffered.open(directory.path().join("alone.spt"))?, size)?;
    let path = directory.path().join("by_turns.spt");
    let by_turns = buffered.sharing(Sharing::Shared);
    let db = by_turns.open(&path)?;
    println!("in a file, by turns");
    compare_all(&db, size)?;
    println!("the second beside a process that takes snapshots");
    for (name, many, goal, changes) in [
        ("put", 1000, 1.1, puts as Changes),
        ("apply", 10, 1.3, apply),
        ("transaction", 1, 1.3, transaction),
        ("transaction", 10, 1.3, transaction),
        ("transaction", 1000, 1.3, transaction),
    ] {
        let pair = (name, name, many, goal, changes, changes);
        compare(&db, size, pair, || Watcher::start(&path))?;
    }
    drop(db);
    commit_large(&by_turns, directory.path(), number(3, 256))
}

/// Commits one transaction of so many MiB and prints what it took.
fn commit_large(options: &Options, directory: &Path, mebibytes: u64) -> Result {
    let options = options.clone().transaction_bytes(16 << 20);
    let db = options.open(directory.join("large.spt"))?;
    let value = [7; 1000];
    let (begun, before) = (Instant::now(), private_bytes());
    let mut most_bytes = before;
    let mut transaction = db.begin()?;
    let change_count = (mebibytes << 20) / 1024;
    for i in 0..change_count {
        transaction.put(key(i), value)?;
        if i % 4096 == 0 {
            most_bytes = most_bytes.max(private_bytes());
        }
    }
    let (made, committing) = (begun.elapsed(), Instant::now());
    let sampled = std::thread::scope(|scope| {
        let commit = scope.spawn(|| transaction.commit());
        while !commit.is_finished() {
            most_bytes = most_bytes.max(private_bytes());
            std::thread::sleep(Duration::from_millis(5));
        }
        commit.join().expect("it does not panic")
    });
    sampled?;
    let committed = committing.elapsed();
    assert_eq!(db.len(), change_count);
    let more = most_bytes.saturating_sub(before) >> 20;
    println!(
        "a transaction of {mebibytes} MiB by turns: {made:.1?} to make, {committed:.1?} to commit, \
         {more} MiB of memory"
    );
    Ok(())
}

/// Returns the bytes of memory that are no mapping of a file, 0 where the system does not say.
fn private_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kibibytes.and_then(|it| it.trim().parse::<u64>().ok()).unwrap_or(0) << 10
}
