//! What it costs to open a small store, read or store one pair, and close it again, as web workers do.
//!
//! ```sh
//! cargo bench -p splitpoint --bench opens -- [DIRECTORY] [--count N] [--only KIND] [--pairs N]
//! ```
//!
//! The store has `--pairs` pairs (1,000) and is in `DIRECTORY`, by default a temporary one. For each kind of
//! handle the medians of the opening, the operation and the close, and what 90 % of them take together. "Late" is
//! an opening by turns that does not know of the close before, as if it came more than a second after that.
//! Beside it, in the same run, the least that can be done with a file: open, flock, one write, close.
//!
//! To see the calls of the system: `strace -f -T`. Each part begins with `getppid`, which does nothing.

#![expect(clippy::print_stdout, reason = "a program that prints its measurements")]

use std::fs::File;
use std::hint::black_box;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use splitpoint::{Durability, Options, Sharing};

type Run<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Where handles by turns note that they were closed in order.
const LEFT_OFFSET: u64 = 12_288 + 40;

/// How a store is opened and used.
struct Way {
    name: &'static str,
    sharing: Sharing,
    durability: Durability,
    is_put: bool,
    is_late: bool,
}

const fn way(name: &'static str, sharing: Sharing, durability: Durability, is_put: bool) -> Way {
    Way { name, sharing, durability, is_put, is_late: false }
}

const LATE: Way =
    Way { is_late: true, ..way("shared put, late", Sharing::Shared, Durability::Buffered, true) };

const WAYS: [Way; 10] = [
    way("shared get", Sharing::Shared, Durability::Buffered, false),
    LATE,
    way("shared put", Sharing::Shared, Durability::Buffered, true),
    way("shared put, flushed", Sharing::Shared, Durability::Sync, true),
    way("per call get", Sharing::PerCall, Durability::Buffered, false),
    way("per call put", Sharing::PerCall, Durability::Buffered, true),
    way("per call put, flushed", Sharing::PerCall, Durability::Sync, true),
    way("one writer get", Sharing::OneWriter, Durability::Buffered, false),
    way("one writer put", Sharing::OneWriter, Durability::Buffered, true),
    way("one writer put, flushed", Sharing::OneWriter, Durability::Sync, true),
];

/// The parts of what is measured.
type Parts = [Duration; 3];

fn main() -> Run {
    let (mut count, mut pairs) = (500_u64, 1_000_u64);
    let mut only = None;
    let mut directory: Option<PathBuf> = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--count" => count = arguments.next().ok_or("--count takes a number")?.parse()?,
            "--pairs" => pairs = arguments.next().ok_or("--pairs takes a number")?.parse()?,
            "--only" => only = arguments.next(),
            "--bench" => {}
            path => directory = Some(path.into()),
        }
    }
    let temporary = tempfile::tempdir()?;
    let directory = directory.as_deref().unwrap_or(temporary.path());
    println!("{:26} {:>9} {:>9} {:>9} {:>9} {:>9}", "us", "all", "90 %", "open", "call", "close");
    let plain = directory.join("plain");
    for (name, is_synced) in [("a file", false), ("a file, flushed", true)] {
        if only.is_none() {
            report(name, &measure(count, |i| write_file(&plain, i, is_synced))?);
        }
    }
    for way in WAYS.iter().filter(|way| only.as_ref().is_none_or(|only| way.name == only)) {
        let path = directory.join("opens.spt");
        make(&path, pairs)?;
        report(way.name, &measure(count, |i| open_and_close(&path, way, i % pairs))?);
        std::fs::remove_file(&path)?;
    }
    Ok(())
}

fn make(path: &Path, pairs: u64) -> Run {
    let db = Options::new().open(path)?;
    for i in 0..pairs {
        db.put(i.to_le_bytes(), [7; 40])?;
    }
    db.close()?;
    Ok(())
}

fn open_and_close(path: &Path, way: &Way, i: u64) -> Run<Parts> {
    let options = Options::new().sharing(way.sharing).durability(way.durability);
    if way.is_late {
        File::options().write(true).open(path)?.write_all_at(&[0; 8], LEFT_OFFSET)?;
    }
    let _ = parent_id();
    let begun = Instant::now();
    let db = options.open(path)?;
    let opened = Instant::now();
    let _ = parent_id();
    let key = i.to_le_bytes();
    if way.is_put {
        db.put(key, [i as u8; 40])?;
    } else {
        black_box(db.get(key)?);
    }
    let called = Instant::now();
    let _ = parent_id();
    db.close()?;
    let closed = Instant::now();
    let _ = parent_id();
    Ok(parts([begun, opened, called, closed]))
}

/// Returns the times between moments.
fn parts(at: [Instant; 4]) -> Parts {
    std::array::from_fn(|part| at[part + 1].duration_since(at[part]))
}

fn write_file(path: &Path, i: u64, is_synced: bool) -> Run<Parts> {
    let begun = Instant::now();
    let mut file = File::options().create(true).truncate(false).write(true).open(path)?;
    file.lock()?;
    let opened = Instant::now();
    file.write_all(&[i as u8; 48])?;
    let called = Instant::now();
    if is_synced {
        file.sync_data()?;
    }
    drop(file);
    Ok(parts([begun, opened, called, Instant::now()]))
}

fn measure(count: u64, run: impl FnMut(u64) -> Run<Parts>) -> Run<Vec<Parts>> {
    (0..count).map(run).collect()
}

fn report(name: &str, measured: &[Parts]) {
    let part = |of: &dyn Fn(&Parts) -> Duration, percent: usize| {
        let mut times: Vec<Duration> = measured.iter().map(of).collect();
        times.sort_unstable();
        times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e6
    };
    let all = |parts: &Parts| parts.iter().sum();
    println!(
        "{name:26} {:9.1} {:9.1} {:9.1} {:9.1} {:9.1}",
        part(&all, 50),
        part(&all, 90),
        part(&|parts| parts[0], 50),
        part(&|parts| parts[1], 50),
        part(&|parts| parts[2], 50),
    );
}
