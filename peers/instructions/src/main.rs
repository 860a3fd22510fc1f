//! What a hit, a miss, a put, a step of a scan, the same in batches and transactions cost in instructions
//! and cache lines, which no noise of the machine changes.
//!
//! `cargo xtask test instructions` counts them under callgrind and compares them with
//! `peers/instructions/counts.txt`. Cache lines are counted by hand:
//!
//! ```text
//! cargo build --release --package instructions
//! valgrind --tool=callgrind --cache-sim=yes --toggle-collect='instructions::hits' PROGRAM
//! ```
//!
//! with `--D1=32768,8,64`, and the same for the others. `D1mr` divided by the number of
//! operations is the number of lines that one reads and finds outside a cache of 32 KiB; the keys
//! themselves, read in order, are a quarter of one.
//!
//! The table is in memory with 16 + 100 bytes a record; its seed is fixed, so that every run splits
//! the same buckets.

#![forbid(unsafe_code)]

use std::hint::black_box;

use splitpoint::{Db, Options, Result};

const RECORD_COUNT: u64 = 120_000;
const OPERATION_COUNT: u64 = 20_000;
/// Keys of a batch.
const BATCH: usize = 256;

fn key(i: u64) -> [u8; 16] {
    let digits = format!("{:016x}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    digits.as_bytes().try_into().expect("16 digits")
}

fn main() -> Result<()> {
    let db = Options::new().seed(1).in_memory()?;
    for i in 0..RECORD_COUNT {
        db.put(key(i), [7; 100])?;
    }
    let mixed = |i: u64| i * 7_919 % RECORD_COUNT;
    let present: Vec<_> = (0..OPERATION_COUNT).map(|i| key(mixed(i))).collect();
    let absent: Vec<_> = (0..OPERATION_COUNT).map(|i| key(RECORD_COUNT + mixed(i))).collect();
    assert_eq!(black_box(hits(&db, &present)?), present.len() * 100);
    assert_eq!(black_box(misses(&db, &absent)?), absent.len());
    puts(&db, &absent)?;
    let records = RECORD_COUNT + OPERATION_COUNT;
    assert_eq!(black_box(steps(&db)?), records as usize * 100);
    assert_eq!(black_box(hits_in_batches(&db, &present)?), present.len() * 100);
    let later: Vec<_> = (0..OPERATION_COUNT).map(|i| key(2 * RECORD_COUNT + i)).collect();
    puts_in_batches(&db, &later)?;
    gets_and_puts(&db, &present)?;
    transactions_of_1(&db, &present)?;
    transactions_of_10(&db, &present)
}

#[inline(never)]
fn hits(db: &Db, keys: &[[u8; 16]]) -> Result<usize> {
    keys.iter().try_fold(0, |sum, key| Ok(sum + db.get(key)?.map_or(0, |value| value.len())))
}

#[inline(never)]
fn misses(db: &Db, keys: &[[u8; 16]]) -> Result<usize> {
    keys.iter().try_fold(0, |sum, key| Ok(sum + usize::from(db.get(key)?.is_none())))
}

#[inline(never)]
fn puts(db: &Db, keys: &[[u8; 16]]) -> Result<()> {
    keys.iter().try_for_each(|key| db.put(key, [7; 100]))
}

#[inline(never)]
fn steps(db: &Db) -> Result<usize> {
    db.scan()?.try_fold(0, |sum, record| Ok(sum + record?.value.len()))
}

#[inline(never)]
fn hits_in_batches(db: &Db, keys: &[[u8; 16]]) -> Result<usize> {
    keys.chunks(BATCH).try_fold(0, |sum, keys| {
        let values = db.get_many(keys)?;
        Ok(sum + values.iter().flatten().map(|value| value.len()).sum::<usize>())
    })
}

#[inline(never)]
fn puts_in_batches(db: &Db, keys: &[[u8; 16]]) -> Result<()> {
    keys.chunks(BATCH).try_for_each(|keys| db.put_many(keys.iter().map(|key| (key, [7; 100]))))
}

/// What a transaction of one change does, without a transaction.
#[inline(never)]
fn gets_and_puts(db: &Db, keys: &[[u8; 16]]) -> Result<()> {
    keys.iter().try_for_each(|key| {
        black_box(db.get(key)?);
        db.put(key, [7; 100])
    })
}

#[inline(never)]
fn transactions_of_1(db: &Db, keys: &[[u8; 16]]) -> Result<()> {
    transactions(db, keys, 1)
}

#[inline(never)]
fn transactions_of_10(db: &Db, keys: &[[u8; 16]]) -> Result<()> {
    transactions(db, keys, 10)
}

fn transactions(db: &Db, keys: &[[u8; 16]], size: usize) -> Result<()> {
    keys.chunks(size).try_for_each(|keys| {
        let mut transaction = db.begin()?;
        for key in keys {
            black_box(transaction.get(key)?);
            transaction.put(key, [7; 100])?;
        }
        transaction.commit()
    })
}
