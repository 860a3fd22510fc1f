//! `splitpoint demo`: a tour of a store, with a real word list.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};
use splitpoint::stats::Stats;
use splitpoint::{Create, Db, Options};

use crate::chains;
use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Result};
use crate::itself;
use crate::measure::timed;
use crate::number::{bytes, count, counted, duration, each, grouped};
use crate::shell::shell_word;
use crate::words::Words;

/// Show what a store can do, with 51,294 English words
///
/// Stores each word with its number, syncs, closes and reopens the file, reads and compares
/// every value, looks up words, deletes some, and shows how evenly the hash function spreads
/// them. Keeps the store, so you can try the other commands on it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint demo
  splitpoint demo --file words.spt")]
pub(crate) struct Args {
    /// The file to create [default: words.spt in a new temporary directory]
    #[arg(long)]
    file: Option<PathBuf>,
}

const BOLD: Style = Style::new().bold();
const PRESENT: Style = AnsiColor::Green.on_default();
const DIM: Style = Style::new().dimmed();

/// Shows what a store can do.
pub(super) fn run(args: &Args, _console: Console) -> Result<()> {
    let started = Instant::now();
    let words = Words::bundled();
    let path = match &args.file {
        Some(path) => path.clone(),
        None => temporary_file()?,
    };
    let failed = |error| Failure::using(&path, &error);

    let mut steps = Steps::default();
    console::print_styled(&format!(
        "{BOLD}{} English words, each stored with its number{BOLD:#}\n\n",
        grouped(count(words.len()))
    ))?;
    store_words(&words, &path, &mut steps)?;
    let db = read_words(&words, &path, &mut steps)?;
    steps.print()?;

    console::print_styled(&look_up(&db, &["zebra", "hash", "bucket", "splitpoint"], &path)?)?;

    let stats = db.stats().map_err(failed)?;
    console::print_styled(&histogram(&stats))?;

    let mut steps = Steps::default();
    delete_possessives(&words, &db, &path, &mut steps)?;
    check(&db, &path, &mut steps)?;
    steps.print()?;

    db.close().map_err(failed)?;
    console::print_styled(&next_steps(&path, size_of(&path)?, started.elapsed()))
}

/// Returns the size of the closed file, in bytes; a close may make it smaller.
fn size_of(path: &Path) -> Result<u64> {
    let metadata = std::fs::metadata(path);
    metadata
        .map(|metadata| metadata.len())
        .map_err(|error| Failure::io(format_args!("read the size of `{}`", path.display()), &error))
}

fn temporary_file() -> Result<PathBuf> {
    let parent = std::env::temp_dir();
    let made = tempfile::Builder::new().prefix("splitpoint-demo-").tempdir_in(&parent);
    let dir = made.map_err(|error| {
        let action = format!("create a directory in `{}`", parent.display());
        Failure::io(action, &error).hint("name a file for the store with --file")
    })?;
    Ok(dir.keep().join("words.spt"))
}

/// The steps of the demo, one line each, in columns.
#[derive(Default)]
struct Steps(String);

impl Steps {
    /// Adds a step done `times` times.
    fn add(&mut self, what: &str, times: u64, noun: &str, time: Duration, remark: &str) {
        let one = format!("{} each", duration(each(time, times)));
        self.push(what, &counted(times, noun), time, &one, remark);
    }

    /// Adds a step done once.
    fn add_once(&mut self, what: &str, time: Duration, remark: &str) {
        self.push(what, "", time, "", remark);
    }

    fn push(&mut self, what: &str, amount: &str, time: Duration, one: &str, remark: &str) {
        let time = duration(time);
        let _ = writeln!(
            self.0,
            "  {PRESENT}{what:<8}{PRESENT:#}{amount:<15}{time:>8}  {one:<14}{DIM}{remark}{DIM:#}"
        );
    }

    fn print(self) -> Result<()> {
        console::print_styled(&(self.0 + "\n"))
    }
}

fn store_words(words: &Words, path: &Path, steps: &mut Steps) -> Result<()> {
    let records = words.records();
    let failed = |error| Failure::using(path, &error);
    let record_count = count(records.len());
    let opened = Options::new().create(Create::New).open(path);
    let db = opened.map_err(|error| Failure::opening(path, &error))?;
    let (put, time) = timed(|| records.iter().try_for_each(|(key, value)| db.put(key, value)));
    put.map_err(failed)?;
    steps.add("put", record_count, "word", time, "one by one");
    let (synced, time) = timed(|| db.sync());
    synced.map_err(failed)?;
    steps.add_once("sync", time, "now safe from a power loss");
    let (closed, time) = timed(|| db.close());
    closed.map_err(failed)?;
    steps.add_once("close", time, &format!("the file holds {}", bytes(size_of(path)?)));
    Ok(())
}

fn read_words(words: &Words, path: &Path, steps: &mut Steps) -> Result<Db> {
    let records = words.records();
    let record_count = count(records.len());
    let failed = |error| Failure::using(path, &error);
    let (opened, time) = timed(|| Options::new().create(Create::Never).open(path));
    let db = opened.map_err(|error| Failure::opening(path, &error))?;
    steps.add_once("reopen", time, "the index is in the file");

    let (right, time) = timed(|| {
        records.iter().try_fold(0, |right, (key, value)| {
            let found = db.get(key)?;
            Ok(right + u64::from(found.as_deref() == Some(*value)))
        })
    });
    expect(right.map_err(failed)?, record_count)?;
    steps.add("get", record_count, "word", time, "every value compared");

    let absent: Vec<Vec<u8>> = records.iter().map(|(key, _)| [key, &b"?"[..]].concat()).collect();
    let (found, time) = timed(|| {
        absent.iter().try_fold(0, |found, key| Ok(found + u64::from(db.get(key)?.is_some())))
    });
    expect(found.map_err(failed)?, 0)?;
    steps.add("miss", record_count, "word", time, "words that are absent");

    let (scanned, time) =
        timed(|| db.scan()?.try_fold(0, |scanned, record| record.map(|_| scanned + 1)));
    expect(scanned.map_err(failed)?, record_count)?;
    steps.add("scan", record_count, "record", time, "each key exactly once");
    Ok(db)
}

/// Fails unless the demo found what it claims.
fn expect(found: u64, expected: u64) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Failure::new(Exit::Bug, format!("expected {expected} words, found {found}"))
        .hint("this is a bug in splitpoint, please report it"))
}

fn look_up(db: &Db, keys: &[&str], path: &Path) -> Result<String> {
    let mut out = String::new();
    for key in keys {
        let found = db.get(key.as_bytes()).map_err(|error| Failure::using(path, &error))?;
        let answer = match found {
            Some(value) => format!("{PRESENT}{}{PRESENT:#}", String::from_utf8_lossy(&value)),
            None => format!("{DIM}not found{DIM:#}"),
        };
        let _ = writeln!(out, "  get {key:<14}{answer}");
    }
    out.push('\n');
    Ok(out)
}

fn delete_possessives(words: &Words, db: &Db, path: &Path, steps: &mut Steps) -> Result<()> {
    let keys: Vec<&[u8]> = words
        .records()
        .into_iter()
        .map(|(key, _)| key)
        .filter(|key| key.ends_with(b"'s"))
        .collect();
    let (deleted, time) =
        timed(|| keys.iter().try_fold(0, |deleted, key| Ok(deleted + u64::from(db.delete(key)?))));
    let key_count = count(keys.len());
    expect(deleted.map_err(|error| Failure::using(path, &error))?, key_count)?;
    let left = grouped(db.len());
    steps.add("delete", key_count, "word", time, &format!("words ending in 's; {left} left"));
    Ok(())
}

fn check(db: &Db, path: &Path, steps: &mut Steps) -> Result<()> {
    let (report, time) = timed(|| db.check().map_err(|error| Failure::using(path, &error)));
    let report = report?;
    if !report.is_clean() {
        return Err(Failure::new(Exit::Bug, "the demo store is damaged")
            .hint("this is a bug in splitpoint, please report it"));
    }
    steps.add_once("check", time, "all checksums valid, no damage");
    Ok(())
}

fn histogram(stats: &Stats) -> String {
    format!(
        "{BOLD}How evenly does {} spread these keys?{BOLD:#}\n\
         {}, by number of keys:\n\n{}\n\
         A get reads {:.2} lines of 64 bytes to find a key; with an ideal hash, {:.2}.\n\n",
        stats.hash_name,
        counted(stats.geometry.bucket_count(), "bucket"),
        chains::to_text(&stats.chains, ""),
        stats.chains.probes_hit,
        stats.chains.probes_hit_ideal
    )
}

fn next_steps(path: &Path, file_bytes: u64, elapsed: Duration) -> String {
    let command = itself::shown();
    let file = shell_word(&path.to_string_lossy());
    let mut out = format!(
        "That took {}. The store is yours: {file} ({})\n\n{BOLD}Try next{BOLD:#}\n",
        duration(elapsed),
        bytes(file_bytes)
    );
    for line in [
        format!("{command} get {file} zebra"),
        format!("{command} put {file} splitpoint 'where a bucket is divided'"),
        format!("{command} list {file} --values | grep '^zeb'"),
        format!("{command} dump {file} --format jsonl | head -3"),
        format!("{command} stat {file}"),
        format!("{command} --help"),
    ] {
        let _ = writeln!(out, "  {line}");
    }
    out
}
