//! What `stat --watch` prints of a store that changes: a line for each look.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use splitpoint::ErrorKind;
use splitpoint::stats::Stats;

use crate::console::{self, Console};
use crate::failure::{Failure, Result};
use crate::interrupt::Interrupt;
use crate::number::grouped;
use crate::store;

/// Looks at the table at `path` every `interval` until a signal ends it.
///
/// The table is open only during a look. While another process has it for itself alone, there is
/// nothing to see.
pub(super) fn watch(path: &Path, interval: Duration, console: Console) -> Result<()> {
    let interrupt = Interrupt::watch();
    let mut heading = heading();
    loop {
        let begun = Instant::now();
        match look(path, console) {
            Ok(stats) => {
                console::print_styled(&format!("{heading}{}", line(&stats)))?;
                heading.clear();
            }
            Err(error) if error.kind() == ErrorKind::Locked => {
                console.note(format_args!("nothing to see: {error}"));
            }
            Err(error) => return Err(store::opening(path, &error)),
        }
        while begun.elapsed() < interval {
            if let Some(exit) = interrupt.exit() {
                return Err(Failure::silent(exit));
            }
            thread::sleep(Duration::from_millis(50).min(interval));
        }
    }
}

fn look(path: &Path, console: Console) -> Result<Stats, splitpoint::Error> {
    store::open_untouched(path, console)?.stats()
}

fn heading() -> String {
    let [records, buckets, load] = ["records", "buckets", "load"];
    let [hit, miss, longest] = ["lines, hit (ideal)", "lines, miss (ideal)", "longest (ideal)"];
    format!("{records:>13} {buckets:>11} {load:>6} {hit:>19} {miss:>19} {longest:>16}\n")
}

/// Returns the line of a look, beside the ideal.
fn line(stats: &Stats) -> String {
    let chains = &stats.chains;
    let buckets: u64 = chains.rows.iter().map(|row| row.bucket_count).sum();
    let load = stats.record_count as f64 / buckets.max(1) as f64;
    let beside = |found: f64, ideal: f64| format!("{found:.3} ({ideal:.3})");
    let hit = beside(chains.probes_hit, chains.probes_hit_ideal);
    let miss = beside(chains.probes_miss, chains.probes_miss_ideal);
    let longest = format!("{} ({:.1})", chains.longest, chains.longest_ideal);
    let (records, buckets) = (grouped(stats.record_count), grouped(buckets));
    format!("{records:>13} {buckets:>11} {load:>6.2} {hit:>19} {miss:>19} {longest:>16}\n")
}
