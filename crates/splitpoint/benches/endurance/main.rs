//! Stores that are changed for as long as asked: does the file stay as small, the process, and a change as quick?
//!
//! ```sh
//! cargo bench -p splitpoint --bench endurance -- [SECONDS [RECORDS]] [--rate N] [--dir DIR]
//! cargo bench -p splitpoint --bench endurance -- plot FILE.csv FILE.svg
//! ```
//!
//! By default for a minute, with about 100,000 records of 16 + 100 bytes in each of five files, which take turns of
//! a second: each pattern lasts as long as the whole. With `--rate`, at most `N` changes are made in a turn, evenly.
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
//! and what a change took, first in processor time of its thread. At the end it compares each file with what its
//! pattern stored, checks and closes it.
//!
//! # Runs that are killed and go on
//!
//! With `--dir`, the files stay in `DIR`, and the lines are added to `DIR/endurance.csv`, each as soon as its turn is
//! over. The run may be killed at any instruction. The next one with that folder and `RECORDS` opens the files,
//! checks them, compares every record with what was changed so far, and goes on, in seconds too. So eight hours are
//! four times two hours, killed between:
//!
//! ```sh
//! cargo bench -p splitpoint --bench endurance --no-run # names the program, P here
//! for part in 1 2 3 4; do
//!     timeout --signal=KILL 7200 P 9999 100000 --rate 50000 --dir DIR
//! done
//! P 60 100000 --rate 50000 --dir DIR
//! P plot DIR/endurance.csv endurance.svg
//! ```
//!
//! The last but one ends by itself, so that the files are closed too. The last also prints a table of the thirds of the
//! time. `timeout` would kill `cargo` and not the program. What a file must hold is known from `DIR/Uniform.count`, where
//! each 64th change is counted: all of those must be there, and of those behind it no later one without the earlier ones.

#![expect(clippy::print_stdout, reason = "a bench prints its results")]

mod pattern;
mod plot;
#[path = "../support/mod.rs"]
mod support;

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use splitpoint::{Db, Durability, Options};

use pattern::{Change, Count, Pattern, fill};
use support::{key, processor_ns};

type Run<T = ()> = Result<T, Box<dyn std::error::Error>>;

const TURN: Duration = Duration::from_secs(1);
/// How long a run that is ahead of its rate sleeps.
const SLICE: Duration = Duration::from_millis(1);
const HEADER: &str =
    "second,pattern,changes,disk,live,waiting,anonymous,processor_ns,median_ns,p999_ns,worst_ns\n";

/// A store that is changed by a pattern.
struct Changed {
    pattern: Pattern,
    db: Db,
    path: PathBuf,
    records: u64,
    count: Count,
    /// The last value that was stored.
    value: Vec<u8>,
}

impl Changed {
    /// Opens the store of `pattern` in `dir`, and goes on where an earlier run was killed.
    fn open(dir: &Path, pattern: Pattern, records: u64) -> Run<Self> {
        let path = dir.join(format!("{pattern:?}.spt"));
        let db = Options::new().durability(Durability::Buffered).open(&path)?;
        let records = pattern.records(records);
        let count = Count::open(&path.with_extension("count"), records)?;
        let mut changed = Self { pattern, db, path, records, count, value: Vec::new() };
        changed.compare_after_kill()?;
        while changed.count.get() < records {
            changed.change()?;
        }
        Ok(changed)
    }

    /// Compares the store with what was changed so far: at least what is noted, and less than a step more.
    fn compare_after_kill(&mut self) -> Run {
        let noted = self.count.get();
        for number in noted..noted + Count::STEP {
            if self.is_visible(number)? {
                self.count.set(number + 1)?;
            }
        }
        self.compare()
    }

    fn change(&mut self) -> Run {
        let number = self.count.get();
        match self.pattern.change(self.records, number) {
            Change::Put(key_number, value_bytes) => {
                fill(&mut self.value, number, value_bytes);
                self.db.put(key(key_number), &self.value)?;
            }
            Change::Delete(key_number) => {
                assert!(self.db.delete(key(key_number))?, "key {key_number} was stored");
            }
        }
        self.count.set(number + 1)
    }

    /// Returns true if the store looks as change `number` leaves its key.
    fn is_visible(&self, number: u64) -> Run<bool> {
        Ok(match self.pattern.change(self.records, number) {
            Change::Put(key_number, value_bytes) => {
                let mut value = Vec::new();
                fill(&mut value, number, value_bytes);
                self.db.get(key(key_number))?.is_some_and(|found| *found == *value)
            }
            Change::Delete(key_number) => self.db.get(key(key_number))?.is_none(),
        })
    }

    /// Compares every record with the newest change of its key, and checks the file.
    fn compare(&self) -> Run {
        let (pattern, count) = (self.pattern, self.count.get());
        let record_count = pattern.record_count(self.records, count);
        assert_eq!(self.db.len(), record_count, "{pattern:?}, {count} changes");
        let (mut seen, mut compared_count) = (std::collections::HashSet::new(), 0);
        for number in (0..count).rev() {
            if compared_count == record_count {
                break;
            }
            let change = pattern.change(self.records, number);
            if seen.insert(change.key_number()) {
                assert!(
                    self.is_visible(number)?,
                    "{pattern:?}: change {number} of {count} is lost"
                );
                compared_count += u64::from(matches!(change, Change::Put(..)));
            }
        }
        assert_eq!(compared_count, record_count, "{pattern:?}");
        let report = self.db.check()?;
        assert!(report.is_clean(), "{pattern:?}: {:?}", report.damages);
        Ok(())
    }

    /// Changes the store for one turn, at most `rate` times; returns the columns behind the second.
    fn take_turn(&mut self, rate: u64, latencies: &mut Vec<u32>) -> Run<String> {
        latencies.clear();
        let (turn, processor) = (Instant::now(), processor_ns());
        while turn.elapsed() < TURN {
            if latencies.len() as f64 >= rate as f64 * turn.elapsed().as_secs_f64() {
                std::thread::sleep(SLICE);
                continue;
            }
            let before = Instant::now();
            self.change()?;
            latencies.push(u32::try_from(before.elapsed().as_nanos()).unwrap_or(u32::MAX));
        }
        let processor = processor_ns() - processor;
        latencies.sort_unstable();
        let quantile = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
        let stats = self.db.stats()?;
        Ok(format!(
            "{:?},{},{},{},{},{},{},{},{},{}",
            self.pattern,
            latencies.len(),
            self.disk_bytes()?,
            stats.live_bytes,
            stats.segments.waiting,
            anonymous_bytes(),
            processor / latencies.len() as u64,
            quantile(0.5),
            quantile(0.999),
            quantile(1.0),
        ))
    }

    fn disk_bytes(&self) -> Run<u64> {
        Ok(std::fs::metadata(&self.path)?.blocks() * 512)
    }

    /// Compares the store a last time and closes it; returns a line about it.
    fn close(self) -> Run<String> {
        self.compare()?;
        let live_bytes = self.db.stats()?.live_bytes;
        let (pattern, path) = (self.pattern, self.path.clone());
        self.db.close()?;
        let bytes = std::fs::metadata(path)?.blocks() * 512;
        let ratio = bytes as f64 / live_bytes as f64;
        Ok(format!("# {pattern:?} closed: {bytes} bytes, {ratio:.2} of live\n"))
    }
}

/// Where the lines go, each at once, and the seconds of earlier runs.
struct Lines {
    output: Box<dyn Write>,
    earlier_seconds: u64,
    begun: Instant,
}

impl Lines {
    /// Goes on behind the last whole line of the file in `dir`; without one, writes to the standard output.
    fn open(dir: Option<&Path>) -> Run<Self> {
        let mut text = String::new();
        let output: Box<dyn Write> = match dir {
            Some(dir) => {
                let mut options = OpenOptions::new();
                let mut file: File =
                    options.read(true).append(true).create(true).open(dir.join("endurance.csv"))?;
                file.read_to_string(&mut text)?;
                text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
                file.set_len(text.len() as u64)?;
                Box::new(file)
            }
            None => Box::new(std::io::stdout()),
        };
        let last = text.lines().rev().find_map(|line| line.split(',').next()?.parse().ok());
        let mut lines = Self { output, earlier_seconds: last.unwrap_or(0), begun: Instant::now() };
        if text.is_empty() {
            lines.write(HEADER)?;
        }
        Ok(lines)
    }

    fn second(&self) -> u64 {
        self.earlier_seconds + self.begun.elapsed().as_secs()
    }

    /// Writes `line` in one call, so that a killed run leaves at most one that is cut.
    fn write(&mut self, line: &str) -> Run {
        self.output.write_all(line.as_bytes())?;
        Ok(self.output.flush()?)
    }
}

/// Returns the bytes of memory of this process that are of no file.
fn anonymous_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// What the command line asks for.
struct Asked {
    seconds: u64,
    records: u64,
    rate: u64,
    dir: Option<PathBuf>,
}

impl Asked {
    fn parse(args: impl Iterator<Item = String>) -> Run<Self> {
        let mut asked = Self { seconds: 60, records: 100_000, rate: u64::MAX, dir: None };
        let (mut args, mut number_count) = (args.filter(|arg| arg != "--bench"), 0);
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--rate" => asked.rate = args.next().ok_or("--rate needs a number")?.parse()?,
                "--dir" => asked.dir = Some(args.next().ok_or("--dir needs a folder")?.into()),
                number => {
                    let into =
                        [&mut asked.seconds, &mut asked.records].into_iter().nth(number_count);
                    *into.ok_or("there are two numbers")? = number.parse()?;
                    number_count += 1;
                }
            }
        }
        (asked.rate > 0 && asked.records >= 10).then_some(asked).ok_or_else(|| "too few".into())
    }
}

fn run(asked: &Asked) -> Run {
    let temporary = tempfile::tempdir()?;
    let dir = asked.dir.as_deref().unwrap_or(temporary.path());
    std::fs::create_dir_all(dir)?;
    let stores = Pattern::ALL.map(|pattern| Changed::open(dir, pattern, asked.records));
    let mut stores: Vec<Changed> = stores.into_iter().collect::<Run<_>>()?;
    let mut lines = Lines::open(asked.dir.as_deref())?;
    lines.write(&format!("# {} s: opened\n", lines.second()))?;
    let mut latencies = Vec::new();
    while lines.begun.elapsed() < Duration::from_secs(asked.seconds) {
        for store in &mut stores {
            let columns = store.take_turn(asked.rate, &mut latencies)?;
            lines.write(&format!("{},{columns}\n", lines.second()))?;
        }
    }
    stores.into_iter().try_for_each(|store| lines.write(&store.close()?))
}

fn main() -> Run {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args[..] {
        [plot, from, to, ..] if plot == "plot" => {
            print!("{}", plot::draw(Path::new(from), Path::new(to))?);
            Ok(())
        }
        _ => run(&Asked::parse(args.into_iter())?),
    }
}
