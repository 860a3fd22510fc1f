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

#![expect(clippy::print_stdout, reason = "a bench prints its results")]

mod support;

use splitpoint::{Batch, Db, Options, Result};

use support::{key, mix, processor_ns};

const VALUE: [u8; 100] = [7; 100];

/// The changes of a figure: with how many keys at a time they are made.
type Changes = fn(&Db, &[[u8; 16]]) -> Result<()>;

fn apply(db: &Db, keys: &[[u8; 16]]) -> Result<()> {
    db.apply(&keys.iter().fold(Batch::new(), |batch, key| batch.put(key, VALUE)))
}

fn blind(db: &Db, keys: &[[u8; 16]]) -> Result<()> {
    let mut transaction = db.begin()?;
    for key in keys {
        transaction.put(key, VALUE)?;
    }
    transaction.commit()
}

fn gets_and_apply(db: &Db, keys: &[[u8; 16]]) -> Result<()> {
    for key in keys {
        std::hint::black_box(db.get(key)?);
    }
    apply(db, keys)
}

fn transaction(db: &Db, keys: &[[u8; 16]]) -> Result<()> {
    let mut transaction = db.begin()?;
    for key in keys {
        std::hint::black_box(transaction.get(key)?);
        transaction.put(key, VALUE)?;
    }
    transaction.commit()
}

fn puts(db: &Db, keys: &[[u8; 16]]) -> Result<()> {
    keys.iter().try_for_each(|key| db.put(key, VALUE))
}

/// Puts while a snapshot is open, a new one every thousand.
fn puts_beside_a_snapshot(db: &Db, keys: &[[u8; 16]]) -> Result<()> {
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

fn main() -> Result<()> {
    let numbers: Vec<u64> = std::env::args().filter_map(|it| it.parse().ok()).collect();
    let number = |i: usize, default| numbers.get(i).copied().unwrap_or(default);
    let (records, changes, rounds) = (number(0, 250_000), number(1, 200_000), number(2, 5));
    let pairs: [(&str, &str, usize, Changes, Changes); 7] = [
        ("apply", "blind transaction", 1, apply, blind),
        ("apply", "blind transaction", 10, apply, blind),
        ("apply", "blind transaction", 1000, apply, blind),
        ("gets, then apply", "transaction", 1, gets_and_apply, transaction),
        ("gets, then apply", "transaction", 10, gets_and_apply, transaction),
        ("gets, then apply", "transaction", 1000, gets_and_apply, transaction),
        ("put", "put beside a snapshot", 1000, puts, puts_beside_a_snapshot),
    ];
    let db = Options::new().in_memory()?;
    db.put_many((0..records).map(|i| (key(i), VALUE)))?;
    for (first, second, size, one, other) in pairs {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            let keys: Vec<_> = (0..changes).map(|i| key(mix(i ^ round << 32) % records)).collect();
            ours.push(measure(&db, &keys, size, one)?);
            theirs.push(measure(&db, &keys, size, other)?);
        }
        let (ours, theirs) = (median(ours), median(theirs));
        let ratio = theirs / ours;
        println!("{size:>5} changes: {first} {ours:.0} ns, {second} {theirs:.0} ns: {ratio:.2}");
    }
    Ok(())
}
