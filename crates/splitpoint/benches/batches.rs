//! What a record costs in a batch beside one by one: puts of new keys, of the same keys again, and lookups.
//!
//! ```sh
//! cargo bench -p splitpoint --bench batches -- [RECORDS [ROUNDS [DIRECTORY]]]
//! ```
//!
//! By default 1,000,000 records of 16 + 100 bytes, five rounds, in memory; with a directory in a file there, whose
//! changes are `Buffered`. A round makes one store by single calls and one by batches of 256, now this one
//! first, now that one. Printed are the medians of the thread's processor time, which has the faults of pages in
//! it, and the median of the rounds' ratios.

#![expect(clippy::print_stdout, reason = "a bench prints its results")]

mod support;

use std::path::Path;

use splitpoint::{Db, Durability, Options, Result};

use support::{key, processor_ns};

/// Records of a batch.
const BATCH: usize = 256;
/// What a round does with each store.
const STEPS: [&str; 3] = ["new", "replaced", "looked up"];

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let number =
        |at: usize, default| words.get(at).map_or(default, |it| it.parse().expect("a number"));
    let (records, rounds) = (number(0, 1_000_000), number(1, 5));
    let keys: Vec<_> = (0..records).map(key).collect();
    let directory = words.get(2).map(Path::new);
    let mut alone = [const { Vec::new() }; STEPS.len()];
    let mut together = [const { Vec::new() }; STEPS.len()];
    for round in 0..rounds {
        let is_alone_first = round % 2 == 0;
        for is_alone in [is_alone_first, !is_alone_first] {
            let costs = if is_alone { &mut alone } else { &mut together };
            for (costs, cost) in costs.iter_mut().zip(costs_of(directory, &keys, is_alone)?) {
                costs.push(cost);
            }
        }
    }
    println!("ns a record      alone  in batches  ratio");
    for (step, name) in STEPS.iter().enumerate() {
        let ratios =
            together[step].iter().zip(&alone[step]).map(|(together, alone)| together / alone);
        let ratio = median(ratios.collect());
        let (alone, together) = (median(alone[step].clone()), median(together[step].clone()));
        println!("{name:<12}{alone:>10.0}{together:>12.0}{ratio:>7.2}");
    }
    Ok(())
}

/// Returns what a record costs in each step, in nanoseconds, in a store of its own.
fn costs_of(directory: Option<&Path>, keys: &[[u8; 16]], is_alone: bool) -> Result<[f64; 3]> {
    let options = Options::new().seed(1).durability(Durability::Buffered);
    let Some(directory) = directory else { return costs_in(&options.in_memory()?, keys, is_alone) };
    let directory = tempfile::tempdir_in(directory).expect("a directory");
    costs_in(&options.open(directory.path().join("batches.spt"))?, keys, is_alone)
}

fn costs_in(db: &Db, keys: &[[u8; 16]], is_alone: bool) -> Result<[f64; 3]> {
    let put = || if is_alone { put_alone(db, keys) } else { put_together(db, keys) };
    let look_up = || if is_alone { look_up_alone(db, keys) } else { look_up_together(db, keys) };
    let costs = [cost(put)?, cost(put)?, cost(look_up)?];
    Ok(costs.map(|ns| ns / keys.len() as f64))
}

/// Returns the processor time of `work` in nanoseconds.
fn cost(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let before = processor_ns();
    work()?;
    Ok((processor_ns() - before) as f64)
}

fn put_alone(db: &Db, keys: &[[u8; 16]]) -> Result<()> {
    keys.iter().try_for_each(|key| db.put(key, [7; 100]))
}

fn put_together(db: &Db, keys: &[[u8; 16]]) -> Result<()> {
    keys.chunks(BATCH).try_for_each(|keys| db.put_many(keys.iter().map(|key| (key, [7; 100]))))
}

fn look_up_alone(db: &Db, keys: &[[u8; 16]]) -> Result<()> {
    keys.iter().try_for_each(|key| {
        assert!(db.get(key)?.is_some_and(|value| value.len() == 100));
        Ok(())
    })
}

fn look_up_together(db: &Db, keys: &[[u8; 16]]) -> Result<()> {
    keys.chunks(BATCH).try_for_each(|keys| {
        let values = db.get_many(keys)?;
        assert!(values.iter().all(|value| value.as_ref().is_some_and(|value| value.len() == 100)));
        Ok(())
    })
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
