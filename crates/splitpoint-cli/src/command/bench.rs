//! `splitpoint bench`: benchmark a store on this machine with a word list.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anstyle::Style;
use serde::Serialize;
use splitpoint::{Create, Db, Options};
use tempfile::TempDir;

use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Result};
use crate::interrupt::{Interrupt, Unfinished};
use crate::measure::{median, timed};
use crate::number::{self, bytes, count, counted, duration, each};
use crate::words::Words;

/// Benchmark a store on this machine with a word list
///
/// Each run creates a new store and repeats the benchmark of the 1991 paper: store each word with
/// its number, sync, read every value, read again and compare every value, and scan all records.
/// The figures are medians over the runs. Compare them only with stores that you measure in the
/// same way on the same machine.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint bench
  splitpoint bench --words /usr/share/dict/words --runs 11
  splitpoint bench --memory --json")]
pub(crate) struct Args {
    /// A file with one word per line [default: 51,294 English words]
    #[arg(long, value_name = "FILE")]
    words: Option<PathBuf>,

    /// Keep the store in memory
    #[arg(long)]
    memory: bool,

    /// The directory for the store, which is removed afterwards [default: the system's temporary
    /// directory]
    #[arg(long, value_name = "DIR", conflicts_with = "memory")]
    dir: Option<PathBuf>,

    /// Number of runs
    #[arg(long, default_value = "7")]
    runs: NonZeroU32,

    /// Print a JSON object with every sample in nanoseconds
    #[arg(long)]
    json: bool,
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    words: u64,
    runs: u32,
    /// The directory of the store; none for a store in memory.
    dir: Option<String>,
    file_bytes: u64,
    phases: Vec<Phase>,
}

#[derive(Debug, Serialize)]
struct Phase {
    name: &'static str,
    median_ns: u64,
    min_ns: u64,
    max_ns: u64,
    samples_ns: Vec<u64>,
    #[serde(skip)]
    samples: Vec<Duration>,
}

const PHASES: [&str; 6] = ["create", "sync", "read", "verify", "scan", "close"];

/// Measures a store.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let words = match &args.words {
        Some(path) => Words::read(path)?,
        None => Words::bundled(),
    };
    let interrupt = Interrupt::watch();
    let place = Place::new(args)?;
    let _unfinished = place.own_dir().map(Unfinished::new);
    let mut samples: [Vec<Duration>; PHASES.len()] = Default::default();
    let mut file_bytes = 0;
    let whole = format!("{} of {}", counted(u64::from(args.runs.get()), "run"), {
        counted(count(words.len()), "word")
    });
    console.note(format_args!("measuring {whole}"));
    for run in 0..args.runs.get() {
        let times = measure(&words, &place, run, &interrupt, &mut file_bytes)?;
        for (samples, time) in samples.iter_mut().zip(times) {
            samples.push(time);
        }
    }
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        words: count(words.len()),
        runs: args.runs.get(),
        dir: place.dir().map(|dir| dir.display().to_string()),
        file_bytes,
        phases: phases(samples),
    };
    if args.json { console::print_json(&report) } else { console::print_styled(&report.to_text()) }
}

/// Returns an error of `tempfile` without the name that it adds, which nobody has given.
fn reason_of(error: &io::Error) -> io::Error {
    let said = error.to_string();
    let reason = said.split(" at path \"").next().unwrap_or(&said);
    io::Error::new(error.kind(), reason.to_owned())
}

/// Where the runs create their stores.
enum Place {
    Memory,
    Directory(TempDir),
}

impl Place {
    fn new(args: &Args) -> Result<Self> {
        if args.memory {
            return Ok(Self::Memory);
        }
        let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
        let made = tempfile::Builder::new().prefix("splitpoint-bench-").tempdir_in(&parent);
        made.map(Self::Directory).map_err(|error| {
            Failure::io(format!("create a directory in `{}`", parent.display()), &reason_of(&error))
        })
    }

    /// The directory to remove at the end.
    fn own_dir(&self) -> Option<&Path> {
        match self {
            Self::Memory => None,
            Self::Directory(dir) => Some(dir.path()),
        }
    }

    /// The directory that the user chose or has by default.
    fn dir(&self) -> Option<&Path> {
        match self {
            Self::Memory => None,
            Self::Directory(dir) => dir.path().parent(),
        }
    }

    /// The file of one run, or a name for it in messages.
    fn file(&self, run: u32) -> PathBuf {
        match self {
            Self::Memory => PathBuf::from(":memory:"),
            Self::Directory(dir) => dir.path().join(format!("{run}.spt")),
        }
    }

    fn create(&self, file: &Path) -> Result<Db> {
        let made = match self {
            Self::Memory => Options::new().in_memory(),
            Self::Directory(_) => Options::new().create(Create::New).open(file),
        };
        made.map_err(|error| Failure::opening(file, &error))
    }
}

/// Does one run and returns the time of each phase.
fn measure(
    words: &Words,
    place: &Place,
    run: u32,
    interrupt: &Interrupt,
    file_bytes: &mut u64,
) -> Result<[Duration; PHASES.len()]> {
    // Lay out keys and values before the clock starts.
    let records = words.records();
    let file = place.file(run);
    let failed = |error| Failure::using(&file, &error);
    let go_on = || match interrupt.exit() {
        Some(exit) => Err(Failure::new(exit, "interrupted")),
        None => Ok(()),
    };

    let (created, create) = timed(|| {
        let db = place.create(&file)?;
        for (key, value) in &records {
            db.put(key, value).map_err(failed)?;
        }
        Ok::<_, Failure>(db)
    });
    let db = created?;
    go_on()?;
    let (synced, sync) = timed(|| db.sync().map_err(failed));
    synced?;
    let (found, read) = timed(|| read_all(&db, &records).map_err(failed));
    let (right, verify) = timed(|| verify_all(&db, &records).map_err(failed));
    let (scanned, scan) = timed(|| scan_all(&db).map_err(failed));
    go_on()?;
    let record_count = count(records.len());
    if (found?, right?, scanned?) != (record_count, record_count, record_count) {
        return Err(Failure::new(Exit::Bug, "the store returned other records than it was given")
            .hint("this is a bug in splitpoint, please report it"));
    }
    let (closed, close) = timed(|| db.close().map_err(failed));
    closed?;
    if let Place::Directory(_) = place {
        *file_bytes = fs::metadata(&file).map_or(0, |metadata| metadata.len());
        // Best effort: dropping the directory removes it anyway.
        let _ = fs::remove_file(&file);
    }
    Ok([create, sync, read, verify, scan, close])
}

fn read_all(db: &Db, records: &[(&[u8], &[u8])]) -> splitpoint::Result<u64> {
    let mut found = 0;
    for (key, _) in records {
        found += u64::from(db.get(key)?.is_some());
    }
    Ok(found)
}

fn verify_all(db: &Db, records: &[(&[u8], &[u8])]) -> splitpoint::Result<u64> {
    let mut right = 0;
    for (key, value) in records {
        right += u64::from(db.get(key)?.as_deref() == Some(*value));
    }
    Ok(right)
}

fn scan_all(db: &Db) -> splitpoint::Result<u64> {
    let (mut records, mut bytes) = (0, 0);
    for record in db.scan()? {
        let record = record?;
        records += 1;
        bytes += record.key.len() + record.value.len();
    }
    std::hint::black_box(bytes);
    Ok(records)
}

fn phases(samples: [Vec<Duration>; PHASES.len()]) -> Vec<Phase> {
    let total: Vec<Duration> =
        (0..samples[0].len()).map(|run| samples.iter().map(|samples| samples[run]).sum()).collect();
    PHASES
        .into_iter()
        .zip(samples)
        .chain([("total", total)])
        .map(|(name, samples)| Phase {
            name,
            median_ns: nanoseconds(median(&samples)),
            min_ns: nanoseconds(samples.iter().min().copied().unwrap_or_default()),
            max_ns: nanoseconds(samples.iter().max().copied().unwrap_or_default()),
            samples_ns: samples.iter().copied().map(nanoseconds).collect(),
            samples,
        })
        .collect()
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Report {
    fn to_text(&self) -> String {
        const BOLD: Style = Style::new().bold();
        let place = self.dir.as_deref().map_or("in memory".to_string(), |dir| {
            format!("in a file of {} in {dir}", bytes(self.file_bytes))
        });
        let mut out = format!(
            "{}, {}, {place}\n\n",
            counted(self.words, "word"),
            counted(u64::from(self.runs), "run")
        );
        let _ = writeln!(
            out,
            "{BOLD}  {:<10}{:>12}{:>12}{:>12}{:>12}{BOLD:#}",
            "phase", "median", "min", "max", "per word"
        );
        for phase in &self.phases {
            let per_word = match phase.name {
                "sync" | "close" => String::new(),
                _ => duration(each(median(&phase.samples), self.words)),
            };
            let [median, min, max] = [phase.median_ns, phase.min_ns, phase.max_ns]
                .map(|time| duration(Duration::from_nanos(time)));
            let line = format!("  {:<10}{median:>12}{min:>12}{max:>12}{per_word:>12}", phase.name);
            let _ = writeln!(out, "{}", line.trim_end());
        }
        let median_total = self.phases.last().map(|phase| median(&phase.samples));
        if let Some(seconds) = median_total.map(|total| total.as_secs_f64()).filter(|s| *s > 0.0) {
            let rate = number::float(self.words) / seconds / 1e6;
            let _ = writeln!(out, "\n{rate:.2} million words per second over all phases");
        }
        out
    }
}
