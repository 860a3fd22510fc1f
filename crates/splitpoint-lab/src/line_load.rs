//! Measures the time to load a random cache line from a table of a given size, on this machine.
//!
//! The lines form one random cycle, so each load waits for the one before, and no prefetcher can
//! guess the next.
//!
//! # Source
//!
//! Sattolo, "An algorithm to generate a random cyclic permutation", 1986; `McVoy` and
//! Staelin, "lmbench", 1996.

use std::hint::black_box;
use std::time::Instant;

use crate::random::Random;
use crate::study::Spread;
use crate::timing::RUNS;

/// Largest table that the lab builds. It reports this one's time for larger tables.
pub const TABLE_BYTES_MAX: u64 = 256 << 20;

/// Loads of one run: few, so that other programs hardly ever interrupt it.
const STEPS: u32 = 2000;
/// Loads before the first run, which fill the caches.
const STEPS_BEFORE: u32 = 200_000;
/// Bytes of a cache line.
pub const LINE_BYTES: u64 = 64;

#[repr(align(64))]
#[derive(Clone, Copy, Debug)]
struct Line {
    next: u64,
}

/// Lines in one random cycle.
#[derive(Debug)]
struct Circle {
    lines: Vec<Line>,
}

impl Circle {
    fn new(line_count: u64) -> Self {
        assert!(line_count > 0, "a circle has a line");
        let mut lines: Vec<Line> = (0..line_count).map(|next| Line { next }).collect();
        let mut random = Random::new(line_count);
        for at in (1..lines.len()).rev() {
            let other = random.below(at as u64) as usize;
            let next = lines[at].next;
            lines[at].next = lines[other].next;
            lines[other].next = next;
        }
        Self { lines }
    }

    #[inline(never)]
    fn walk(&self, from: u64, steps: u32) -> u64 {
        (0..steps).fold(from, |at, _| self.lines[at as usize].next)
    }
}

/// Measures the time of a load from a table of `table_bytes`, in nanoseconds.
///
/// # Cost
///
/// Memory for the table, [`TABLE_BYTES_MAX`] at most, and up to a second.
pub fn line_load_ns(table_bytes: u64) -> Spread {
    let table_bytes = table_bytes.clamp(LINE_BYTES, TABLE_BYTES_MAX);
    let circle = Circle::new(table_bytes / LINE_BYTES);
    let mut at = circle.walk(0, STEPS_BEFORE);
    let runs: Vec<f64> = (0..=RUNS)
        .map(|_| {
            let start = Instant::now();
            at = black_box(circle.walk(black_box(at), STEPS));
            start.elapsed().as_secs_f64() * 1e9 / f64::from(STEPS)
        })
        .collect();
    Spread::of(&runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_meets_every_line_before_it_comes_back() {
        for line_count in [1_u32, 2, 3, 100, 4096] {
            let circle = Circle::new(u64::from(line_count));
            let mut seen = vec![false; line_count as usize];
            let mut at = 0;
            for _ in 0..line_count {
                assert!(!std::mem::replace(&mut seen[at as usize], true));
                at = circle.walk(at, 1);
            }
            assert_eq!(at, 0);
            assert_eq!(circle.walk(0, 3 * line_count), 0);
        }
        assert_eq!(size_of::<Line>() as u64, LINE_BYTES);
    }

    #[test]
    fn any_size_can_be_asked_for() {
        for table_bytes in [0, 1, 4096] {
            let spread = line_load_ns(table_bytes);
            assert_eq!(spread.run_count, RUNS as u64);
            assert!(spread.min > 0.0 && spread.median.is_finite());
        }
    }
}
