//! What readers in other processes cost the process that writes.
//!
//! ```sh
//! cargo bench -p splitpoint --bench readers -- [READERS [RECORDS [ROUNDS]]]
//! ```
//!
//! By default 8 processes that look up any of 100,000 records of 16 + 100 bytes, and five rounds. In each
//! round the writer overwrites any records for a second alone, and for a second beside them. It has the first
//! processor to itself and the readers share the others, so that what they cost is not that they run at all.
//! Printed are the times of a change, elapsed and of the processor, each with the ratio of the two.

#![expect(clippy::print_stdout, reason = "a bench prints its results")]

mod support;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use splitpoint::{Db, Durability, Options};

use support::{key, mix, processor_ns};

type Run<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const CHILD: &str = "SPLITPOINT_BENCH_READERS";
const VALUE_BYTES: usize = 100;
const TIME: Duration = Duration::from_secs(1);
/// Changes or lookups between two looks at the clock.
const BETWEEN_LOOKS: u64 = 256;

/// Stays on the first of the processors that this thread may use, or on the others.
fn stay_on_first(is_first: bool) -> Run {
    let mut processors = sched_getaffinity(None)?;
    let first = (0..CpuSet::MAX_CPU).find(|&i| processors.is_set(i)).ok_or("it has a processor")?;
    for i in (0..CpuSet::MAX_CPU).filter(|&i| (i == first) != is_first) {
        processors.unset(i);
    }
    (processors.count() > 0).then_some(()).ok_or("two processors are needed")?;
    Ok(sched_setaffinity(None, &processors)?)
}

/// Calls `work` with mixed numbers from `from` on until `is_over`; returns how many.
fn repeat(from: u64, is_over: impl Fn() -> bool, mut work: impl FnMut(u64) -> Run) -> Run<u64> {
    let mut number = from;
    while !is_over() {
        for _ in 0..BETWEEN_LOOKS {
            work(mix(number))?;
            number += 1;
        }
    }
    Ok(number - from)
}

/// Looks records up until the parent kills this process.
fn read(job: &str) -> Run {
    let [path, records, seed] = job.split('|').collect::<Vec<_>>()[..] else {
        return Err("not three words".into());
    };
    let (records, seed): (u64, u64) = (records.parse()?, seed.parse()?);
    stay_on_first(false)?;
    let db = Options::new().read_only().open(path)?;
    println!("ready");
    repeat(
        seed << 40,
        || false,
        |number| {
            let value = db.get(key(number % records))?.ok_or("a record is missing")?;
            (value.len() == VALUE_BYTES).then_some(()).ok_or_else(|| "a wrong value".into())
        },
    )?;
    Ok(())
}

fn start_readers(path: &Path, records: u64, count: u64) -> Run<Vec<Child>> {
    let start = |seed| {
        let job = format!("{}|{records}|{seed}", path.display());
        let mut command = Command::new(std::env::current_exe()?);
        command.env(CHILD, job).stdout(Stdio::piped()).spawn()
    };
    let mut children = (1..=count).map(start).collect::<Result<Vec<_>, _>>()?;
    for child in &mut children {
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("it has an output")?).read_line(&mut line)?;
        (line == "ready\n").then_some(()).ok_or("a reader has failed")?;
    }
    Ok(children)
}

/// Overwrites records for a while on the first processor; returns what a change took in ns, elapsed and of
/// the processor.
fn write(db: &Db, records: u64, round: u64) -> Run<[f64; 2]> {
    stay_on_first(true)?;
    let (begun, begun_ns) = (Instant::now(), processor_ns());
    let count = repeat(
        round << 32,
        || begun.elapsed() >= TIME,
        |number| Ok(db.put(key(number % records), [round as u8; VALUE_BYTES])?),
    )?;
    let spent = [begun.elapsed().as_nanos() as u64, processor_ns() - begun_ns];
    Ok(spent.map(|ns| ns as f64 / count as f64))
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn main() -> Run {
    if let Ok(job) = std::env::var(CHILD) {
        return read(&job);
    }
    let numbers: Vec<u64> =
        std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let at = |i: usize, default| numbers.get(i).copied().unwrap_or(default);
    let (readers, records, rounds) = (at(0, 8), at(1, 100_000), at(2, 5));
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("readers.spt");
    let db = Options::new().durability(Durability::Buffered).open(&path)?;
    db.put_many((0..records).map(|i| (key(i), [0; VALUE_BYTES])))?;
    // In a thread of its own: this one starts the readers, and they stay where it may be.
    let write = |round| {
        let written = std::thread::scope(|scope| scope.spawn(|| write(&db, records, round)).join());
        written.map_err(|_| "the writer has panicked")?
    };
    // The first second is for the file, which becomes as large as it stays.
    write(0)?;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        alone.push(write(2 * round)?);
        let mut children = start_readers(&path, records, readers)?;
        let written = write(2 * round + 1);
        for child in &mut children {
            // One that has ended by itself has failed.
            child.try_wait()?.is_none().then_some(()).ok_or("a reader has failed")?;
            child.kill()?;
            child.wait()?;
        }
        beside.push(written?);
    }
    println!("{:10} {:>10} {:>10} {:>10}", "", "alone, ns", "beside, ns", "ratio");
    for (i, name) in ["elapsed", "processor"].into_iter().enumerate() {
        let ratios = alone.iter().zip(&beside).map(|(alone, beside)| beside[i] / alone[i]);
        let ratio = median(ratios.collect());
        let of = |figures: &[[f64; 2]]| median(figures.iter().map(|figure| figure[i]).collect());
        println!("{name:10} {:10.0} {:10.0} {ratio:10.3}", of(&alone), of(&beside));
    }
    Ok(db.close().map(drop)?)
}
