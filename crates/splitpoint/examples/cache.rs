//! A cache of slow answers, with counters of its hits and misses, that several threads share.
//!
//! ```sh
//! cargo run --release --example cache
//! ```

use std::error::Error;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use splitpoint::{Db, Result};

/// A cache in memory. With `Db::open` and a path it would keep its answers from run to run.
struct Cache {
    answers: Db,
    hit_count: AtomicU64,
    miss_count: AtomicU64,
}

impl Cache {
    fn new() -> Result<Self> {
        let (hit_count, miss_count) = Default::default();
        Ok(Self { answers: Db::in_memory()?, hit_count, miss_count })
    }

    /// Returns the answer for `key`, and computes it with `make` if the cache does not have it.
    fn get(&self, key: &str, make: impl FnOnce() -> String) -> Result<String> {
        let answer = if let Some(answer) = self.answers.get(key)? {
            self.hit_count.fetch_add(1, Relaxed);
            answer
        } else {
            self.miss_count.fetch_add(1, Relaxed);
            // Compute it without the writer's lock, because it is slow. If another thread was
            // faster, its answer stays.
            let made = make();
            self.answers.get_or_insert_with(key, || made)?
        };
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let cache = Cache::new()?;
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for number in (0..300_000_u64).map(|i| i * i % 1009) {
                    let answer = cache.get(&number.to_string(), || largest_factor(number));
                    answer.expect("a table in memory fails only when memory is used up");
                }
            });
        }
    });
    let (hits, misses) = (cache.hit_count.into_inner(), cache.miss_count.into_inner());
    let share = 100.0 * hits as f64 / (hits + misses) as f64;
    writeln!(io::stdout(), "{hits} hits, {misses} misses: {share:.1} % hits")?;
    Ok(())
}

/// Stands in for slow work.
fn largest_factor(number: u64) -> String {
    let largest = (1..=number / 2).rev().find(|factor| number.is_multiple_of(*factor));
    largest.unwrap_or(number).to_string()
}
