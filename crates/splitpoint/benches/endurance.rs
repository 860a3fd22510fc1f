//! Stores that are changed for as long as asked: does the file stay as small, the process, and a change as quick?
//!
//! ```sh
//! cargo bench -p splitpoint --bench endurance -- [SECONDS [RECORDS]] >endurance.csv
//! ```
//!
//! By default for a minute, with about 100,000 records of 16 + 100 bytes in each of five files, which take turns of
//! a second: each pattern lasts as long as the whole.
//!
//! | pattern | changes |
//! |---|---|
//! | `uniform` | overwrites any key |
//! | `skewed` | four of five overwrites are of a fifth of the keys |
//! | `queue` | stores a new key, deletes the oldest one |
//! | `sawtooth` | stores ten times as many keys, deletes all but a tenth, and again |
//! | `mixed` | overwrites any key, one value of 64 is of up to 64 KiB |
//!
//! It prints a line for each turn: bytes on the disk, live, and that wait; bytes of memory that are of no file;
//! and what a change took, first in processor time of its thread.

#![expect(clippy::print_stdout, reason = "a bench prints its results")]

mod support;

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use splitpoint::{Db, Durability, Options, Result};

use support::{key, mix, processor_ns};

const TURN: Duration = Duration::from_secs(1);
const VALUE_BYTES: usize = 100;
const BIG_BYTES_MAX: u64 = 64 << 10;

#[derive(Clone, Copy, Debug)]
enum Pattern {
    Uniform,
    Skewed,
    Queue,
    Sawtooth,
    Mixed,
}

/// A store that is changed by a pattern.
struct Run {
    pattern: Pattern,
    db: Db,
    path: PathBuf,
    records: u64,
    change_count: u64,
    /// Of a sawtooth: the keys that there are, and whether they become more.
    key_count: u64,
    is_rising: bool,
}

impl Run {
    fn new(dir: &Path, pattern: Pattern, records: u64) -> Result<Self> {
        let path = dir.join(format!("{pattern:?}.spt"));
        let db = Options::new().durability(Durability::Buffered).open(&path)?;
        let records = match pattern {
            Pattern::Uniform | Pattern::Skewed | Pattern::Queue => records,
            Pattern::Sawtooth | Pattern::Mixed => records / 10,
        };
        for number in 0..records {
            db.put(key(number), [0; VALUE_BYTES])?;
        }
        let (change_count, key_count, is_rising) = (0, records, true);
        Ok(Self { pattern, db, path, records, change_count, key_count, is_rising })
    }

    fn change(&mut self) -> Result<()> {
        let (number, records) = (self.change_count, self.records);
        self.change_count += 1;
        let random = mix(number);
        let value = [number as u8; VALUE_BYTES];
        match self.pattern {
            Pattern::Skewed => {
                let is_hot = random >> 32 & 0xff < 205;
                self.db.put(key(random % if is_hot { records / 5 } else { records }), value)
            }
            Pattern::Queue if number % 2 == 0 => self.db.put(key(records + number / 2), value),
            Pattern::Queue => self.delete(number / 2),
            Pattern::Sawtooth if self.is_rising => {
                self.key_count += 1;
                self.is_rising = self.key_count < 10 * records;
                self.db.put(key(self.key_count - 1), value)
            }
            Pattern::Sawtooth => {
                self.key_count -= 1;
                self.is_rising = self.key_count <= records;
                self.delete(self.key_count)
            }
            Pattern::Mixed if (random >> 32).is_multiple_of(64) => {
                let value = vec![number as u8; (random >> 40) as usize % BIG_BYTES_MAX as usize];
                self.db.put(key(random % records), value)
            }
            Pattern::Uniform | Pattern::Mixed => self.db.put(key(random % records), value),
        }
    }

    fn delete(&self, number: u64) -> Result<()> {
        assert!(self.db.delete(key(number))?, "key {number} was stored");
        Ok(())
    }

    /// Changes the store for one turn and prints what that took.
    fn take_turn(&mut self, begun: Instant, latencies: &mut Vec<u32>) -> Result<()> {
        latencies.clear();
        let (turn, processor) = (Instant::now(), processor_ns());
        while turn.elapsed() < TURN {
            let before = Instant::now();
            self.change()?;
            latencies.push(u32::try_from(before.elapsed().as_nanos()).unwrap_or(u32::MAX));
        }
        let processor = processor_ns() - processor;
        latencies.sort_unstable();
        let quantile = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
        let stats = self.db.stats()?;
        println!(
            "{},{:?},{},{},{},{},{},{},{},{},{}",
            begun.elapsed().as_secs(),
            self.pattern,
            latencies.len(),
            std::fs::metadata(&self.path).map_or(0, |metadata| metadata.blocks() * 512),
            stats.live_bytes,
            stats.segments.waiting,
            anonymous_bytes(),
            processor / latencies.len() as u64,
            quantile(0.5),
            quantile(0.999),
            quantile(1.0),
        );
        Ok(())
    }
}

/// Returns the bytes of memory of this process that are of no file.
fn anonymous_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

fn main() -> Result<()> {
    let numbers: Vec<u64> = std::env::args().filter_map(|arg| arg.parse().ok()).collect();
    let seconds = numbers.first().copied().unwrap_or(60);
    let records = numbers.get(1).copied().unwrap_or(100_000);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let patterns =
        [Pattern::Uniform, Pattern::Skewed, Pattern::Queue, Pattern::Sawtooth, Pattern::Mixed];
    let runs = patterns.map(|pattern| Run::new(dir.path(), pattern, records));
    let mut runs: Vec<Run> = runs.into_iter().collect::<Result<_>>()?;
    println!(
        "second,pattern,changes,disk,live,waiting,anonymous,processor_ns,median_ns,p999_ns,worst_ns"
    );
    let (begun, mut latencies) = (Instant::now(), Vec::new());
    while begun.elapsed() < Duration::from_secs(seconds) {
        for run in &mut runs {
            run.take_turn(begun, &mut latencies)?;
        }
    }
    for Run { pattern, db, path, .. } in runs {
        let report = db.check()?;
        assert!(report.is_clean(), "{pattern:?}: {:?}", report.damages);
        let live_bytes = db.stats()?.live_bytes;
        db.close()?;
        let bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.blocks() * 512);
        println!(
            "# {pattern:?} closed: {bytes} bytes, {:.2} of live",
            bytes as f64 / live_bytes as f64
        );
    }
    Ok(())
}
