//! What transactions and snapshots cost beside the same changes without them, by turns.
//!
//! ```sh
//! cargo bench -p splitpoint --bench transactions -- [RECORDS [CHANGES [ROUNDS]]]
//! ```
//!
//! By default 250,000 records of 16 + 100 bytes in memory, 200,000 changes a figure, five rounds, whose
//! medians it prints: processor time of a change, in nanoseconds. A change replaces the value of a random
//! record. `blind` transactions only put; the others read each record first, and are compared with an
//! `apply` after the same gets.
//!
//! Then a twentieth of the changes in a file by a handle that takes turns, alone and beside another process, which takes a new
//! snapshot every millisecond. The other process is this program, started again.

#![expect(clippy::print_stdout, reason = "a bench prints its results")]

mod support;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

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

/// Measures two kinds of changes by turns, the second beside what `beside` returns; prints both.
fn compare<T>(
    db: &Db,
    size: Size,
    (first, second, many, one, other): (&str, &str, usize, Changes, Changes),
    beside: impl Fn() -> Result<T>,
) -> Result {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..size.rounds {
        let numbers = (0..size.changes).map(|i| mix(i ^ round << 32) % size.records);
        let keys: Vec<_> = numbers.map(key).collect();
        ours.push(measure(db, &keys, many, one)?);
        let _guard = beside()?;
        theirs.push(measure(db, &keys, many, other)?);
    }
    let (ours, theirs) = (median(ours), median(theirs));
    let ratio = theirs / ours;
    println!("{many:>5} changes: {first} {ours:.0} ns, {second} {theirs:.0} ns: {ratio:.2}");
    Ok(())
}

const PAIRS: [(&str, &str, usize, Changes, Changes); 7] = [
    ("apply", "blind transaction", 1, apply, blind),
    ("apply", "blind transaction", 10, apply, blind),
    ("apply", "blind transaction", 1000, apply, blind),
    ("gets, then apply", "transaction", 1, gets_and_apply, transaction),
    ("gets, then apply", "transaction", 10, gets_and_apply, transaction),
    ("gets, then apply", "transaction", 1000, gets_and_apply, transaction),
    ("put", "put beside a snapshot", 1000, puts, puts_beside_a_snapshot),
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
    let path = directory.path().join("transactions.spt");
    let by_turns = Options::new().sharing(Sharing::Shared).durability(Durability::Buffered);
    let db = by_turns.open(&path)?;
    println!("in a file, by turns");
    // A snapshot looks at every segment there.
    let size = Size { changes: (size.changes / 20).max(1), ..size };
    compare_all(&db, size)?;
    println!("the second beside a process that takes snapshots");
    for (name, many, changes) in [
        ("put", 1000, puts as Changes),
        ("apply", 10, apply),
        ("transaction", 1, transaction),
        ("transaction", 10, transaction),
        ("transaction", 1000, transaction),
    ] {
        compare(&db, size, (name, name, many, changes, changes), || Watcher::start(&path))?;
    }
    Ok(())
}
