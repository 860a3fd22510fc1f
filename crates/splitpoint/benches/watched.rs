//! What a watch costs: lookups and changes of a store while another process takes a sample of it each
//! second, and without one, by turns.
//!
//! ```sh
//! cargo bench -p splitpoint --bench watched -- [RECORDS [SECONDS [ROUNDS]]]
//! ```
//!
//! By default 1,000,000 records, ten seconds with and ten without, three rounds. Nine of ten operations
//! look a key up, one puts. Printed are processor time of the thread that does them, and of the watch
//! and of the thread that publishes the counts, which other processes of the machine disturb least.

#![expect(clippy::print_stdout, reason = "a bench prints its results")]

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use splitpoint::{Db, Options, Result};

use support::{key, mix, processor_ns};

/// Buckets of a sample, as `splitpoint stat --watch` takes it.
const BUCKET_COUNT: u64 = 2048;
/// The first argument of the process that watches.
const WATCH: &str = "--watch";

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if let [first, path, seconds] = &*words
        && first == WATCH
    {
        return watch(Path::new(path), seconds.parse().expect("a number"));
    }
    let number =
        |at: usize, default| words.get(at).map_or(default, |it| it.parse().expect("a number"));
    let (records, seconds, rounds) = (number(0, 1_000_000), number(1, 10), number(2, 3));
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("watched.spt");
    let db = Options::new().instrument(true).open(&path)?;
    db.put_many((0..records).map(|at| (key(at), [0; 16])))?;
    let mut done = 0;
    for round in 0..rounds {
        // Now this one first, now that one: the work of an operation grows with the churn.
        let is_first = round % 2 == 0;
        let before = if is_first { Some(work(&db, records, seconds, &mut done)?) } else { None };
        let program = std::env::current_exe().expect("it has a name");
        let mut watch = Command::new(program);
        watch.arg(WATCH).arg(&path).arg(seconds.to_string()).stdout(Stdio::piped());
        let watch = watch.spawn().expect("it starts");
        let watched = work(&db, records, seconds, &mut done);
        let said = watch.wait_with_output().expect("it ends").stdout;
        let watched = watched?;
        let alone = match before {
            Some(before) => before,
            None => work(&db, records, seconds, &mut done)?,
        };
        println!(
            "round {round}: {alone:.1} ns an operation alone, {watched:.1} watched, ratio {:.3}; {}",
            watched / alone,
            String::from_utf8_lossy(&said).trim_end()
        );
    }
    let (publishing_ns, looks) = (publishing_ns(), 10 * 2 * seconds * rounds);
    println!(
        "the thread that publishes: {:.1} us each of about {looks} times, {:.4} % of one core",
        publishing_ns as f64 / 1e3 / looks as f64,
        publishing_ns as f64 / 1e7 / (2 * seconds * rounds) as f64
    );
    db.close().map(drop)
}

/// Looks up and puts for so many seconds, and returns the processor time of an operation in ns.
fn work(db: &Db, records: u64, seconds: u64, done: &mut u64) -> Result<f64> {
    let (begun, before, done_before) = (Instant::now(), processor_ns(), *done);
    while begun.elapsed() < Duration::from_secs(seconds) {
        for _ in 0..1000 {
            let random = mix(*done);
            // Nine of eighteen lookups find nothing.
            let at = random % (2 * records);
            if done.is_multiple_of(10) {
                db.put(key(at % records), done.to_le_bytes())?;
            } else {
                std::hint::black_box(db.contains(key(at))?);
            }
            *done += 1;
        }
    }
    Ok((processor_ns() - before) as f64 / (*done - done_before) as f64)
}

/// Takes a sample each second, and prints what that has cost.
fn watch(path: &Path, seconds: u64) -> Result<()> {
    let (mut cost_ns, mut worst_ns, mut lookups) = (0, 0, 0);
    for look in 0..seconds {
        let before = processor_ns();
        let db = Options::new().read_only().open(path)?;
        let sample = db.sample(BUCKET_COUNT, look)?;
        lookups = sample.lookups.map_or(0, |lookups| lookups.lookups.lookup_count);
        drop(db);
        let took_ns = processor_ns() - before;
        cost_ns += took_ns;
        worst_ns = worst_ns.max(took_ns);
        thread::sleep(Duration::from_secs(1));
    }
    println!(
        "a look takes {:.2} ms of processor time, at most {:.2}; {lookups} lookups seen",
        cost_ns as f64 / 1e6 / seconds as f64,
        worst_ns as f64 / 1e6
    );
    Ok(())
}

/// Returns the processor time of the thread that publishes the counts.
fn publishing_ns() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let is_publisher = |path: &Path| {
        fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim_end() == "splitpoint-coun")
    };
    let spent_ns = |path: &Path| {
        let text = fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0)
    };
    tasks
        .map(|task| task.path())
        .filter(|path| is_publisher(path))
        .map(|path| spent_ns(&path))
        .sum()
}
