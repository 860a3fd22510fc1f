//! How old an `Async` change becomes before it is durable, while one thread overwrites 10,000 values of
//! 1,000 bytes as fast as it can.
//!
//! ```sh
//! cargo bench -p splitpoint --bench unsafe_age -- DIR [SECONDS]
//! ```
//!
//! `DIR` is where the store is made, on the device to be measured; `record/2026-11-22-xeon-2core/unsafe-age` says how
//! to make a slow one.

#![expect(clippy::print_stdout, reason = "a bench prints its results")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use splitpoint::{Db, Options, Result};

const KEY_COUNT: u64 = 10_000;
const VALUE_BYTES: usize = 1000;
/// How often the age is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Overwrites values for `time`; returns how many, and the longest call.
fn overwrite(db: &Db, time: Duration) -> Result<(u64, Duration)> {
    let value = vec![7; VALUE_BYTES];
    let (begun, mut put_count, mut worst) = (Instant::now(), 0, Duration::ZERO);
    while begun.elapsed() < time {
        let before = Instant::now();
        db.put(&(put_count % KEY_COUNT).to_le_bytes(), &value)?;
        worst = worst.max(before.elapsed());
        put_count += 1;
    }
    Ok((put_count, worst))
}

/// Looks at the age of the oldest change that is not durable until `is_done`, and returns what was
/// seen, in order of size.
fn look(db: &Db, is_done: &AtomicBool) -> Result<Vec<Duration>> {
    let mut ages = Vec::new();
    while !is_done.load(Ordering::Relaxed) {
        ages.extend(db.stats()?.unsafe_age);
        std::thread::sleep(LOOK);
    }
    ages.sort_unstable();
    Ok(ages)
}

fn run(dir: &Path, age_max: Option<Duration>, time: Duration) -> Result<()> {
    let path = dir.join("unsafe-age.spt");
    let db = Options::new().async_age_max(age_max).open(&path)?;
    let is_done = AtomicBool::new(false);
    let (changed, ages) = std::thread::scope(|scope| {
        let looking = scope.spawn(|| look(&db, &is_done));
        let changed = overwrite(&db, time);
        is_done.store(true, Ordering::Relaxed);
        (changed, looking.join().expect("it does not panic"))
    });
    let ((put_count, worst), ages) = (changed?, ages?);
    let begun = Instant::now();
    db.close()?;
    let at = |percent: usize| ages[(ages.len() - 1) * percent / 100].as_millis();
    let bound = age_max.map_or("none".to_string(), |age| format!("{} ms", age.as_millis()));
    println!(
        "bound {bound}: {:.1} MB/s, worst put {} ms; age median {} ms, p99 {} ms, most {} ms; close {} ms",
        put_count as f64 * VALUE_BYTES as f64 / time.as_secs_f64() / 1e6,
        worst.as_millis(),
        at(50),
        at(99),
        at(100),
        begun.elapsed().as_millis(),
    );
    std::fs::remove_file(&path).expect("it was just closed");
    Ok(())
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let Some(dir) = words.first() else {
        println!("give a directory: it is not said where to make the store");
        return Ok(());
    };
    let seconds = words.get(1).and_then(|word| word.parse().ok()).unwrap_or(15);
    for age_max in [None, Some(Duration::from_secs(1)), Some(Duration::from_millis(200))] {
        run(Path::new(dir), age_max, Duration::from_secs(seconds))?;
    }
    Ok(())
}
