//! Counts what a hit, a miss and a put cost in instructions and cache lines, which no noise of
//! the machine changes.
//!
//! ```text
//! cargo bench -p splitpoint --bench lines --no-run   # prints the program's path
//! valgrind --tool=callgrind --cache-sim=yes --toggle-collect='lines::hits' PROGRAM
//! ```
//!
//! and the same with `lines::misses` and `lines::puts`. Each does 100,000 operations on a table of
//! 500,000 records of 16 + 100 bytes in memory, so `D1mr` / 100,000 is the number of lines that an
//! operation reads and finds outside a cache of 32 KiB; the keys themselves, read in order, are a
//! quarter of one.

use std::hint::black_box;

use splitpoint::{Db, Result};

const RECORD_COUNT: u64 = 500_000;
const OPERATION_COUNT: u64 = 100_000;

fn key(i: u64) -> [u8; 16] {
    let digits = format!("{:016x}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    digits.as_bytes().try_into().expect("16 digits")
}

fn main() -> Result<()> {
    let db = Db::in_memory()?;
    for i in 0..RECORD_COUNT {
        db.put(&key(i), &[7; 100])?;
    }
    let mixed = |i: u64| i * 7_919 % RECORD_COUNT;
    let present: Vec<_> = (0..OPERATION_COUNT).map(|i| key(mixed(i))).collect();
    let absent: Vec<_> = (0..OPERATION_COUNT).map(|i| key(RECORD_COUNT + mixed(i))).collect();
    black_box(hits(&db, &present)?);
    black_box(misses(&db, &absent)?);
    puts(&db, &absent)
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
    keys.iter().try_for_each(|key| db.put(key, &[7; 100]))
}
