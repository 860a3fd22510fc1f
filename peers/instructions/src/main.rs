//! What a hit, a miss, a put and a step of a scan cost in instructions and cache lines, which no noise
//! of the machine changes.
//!
//! `cargo xtask test instructions` counts them under callgrind and compares them with
//! `peers/instructions/counts.txt`. Cache lines are counted by hand:
//!
//! ```text
//! cargo build --release --manifest-path peers/Cargo.toml --package instructions
//! valgrind --tool=callgrind --cache-sim=yes --toggle-collect='instructions::hits' PROGRAM
//! ```
//!
//! with `--D1=32768,8,64`, and the same for `misses`, `puts` and `steps`. `D1mr` divided by the number of
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
    Ok(())
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
