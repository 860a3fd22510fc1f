//! `splitpoint rehash`: move a store to another hash function or seed.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::builder::PossibleValuesParser;
use serde::Serialize;
use splitpoint::hash::{HashFunction, PROBE_KEY};
use splitpoint::rehash::{Rehash, RehashProgress, RehashReport, RehashStage};
use splitpoint::{Error, Options, Unsupported};

use super::create::{hash_names, parse_seed};
use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Result};
use crate::interrupt::{self, Interrupt, Unfinished};
use crate::number::{counted, duration};
use crate::progress::{Phases, ProgressMode, Total};
use crate::shell::shell_word;
use crate::store;

/// Move a store to another hash function or seed
///
/// This is the remedy for keys that somebody chose to collide: `stat` warns of them, and
/// siphash-1-3 keeps them apart. Without --hash the store keeps its function and gets a new random
/// seed.
///
/// The records go to a new store beside FILE, which replaces FILE by one rename when it is whole
/// and durable. FILE is the old store or the new one at every moment, also after a kill or a power
/// loss; Ctrl-C leaves FILE as it was. It is locked meanwhile, and the disk needs room for both. A
/// damaged store stays as it is, exit code 4.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint rehash users.spt --hash siphash-1-3
  splitpoint rehash users.spt                     # a new seed
  splitpoint rehash users.spt --hash xxh3-64 --json | jq .new_bytes")]
pub(crate) struct Args {
    /// The store
    file: PathBuf,

    /// The new hash function; siphash-1-3 is for keys that an attacker may choose [default: that of
    /// the store]
    #[arg(long, value_name = "NAME", hide_default_value = true,
          value_parser = PossibleValuesParser::new(hash_names()))]
    hash: Option<String>,

    /// The new seed of the hash function, in decimal or as 0x and hex [default: random]
    #[arg(long, value_parser = parse_seed)]
    seed: Option<u64>,

    /// Print an object that says what was done
    #[arg(long)]
    json: bool,

    /// When to show progress
    #[arg(long, value_enum, default_value_t)]
    progress: ProgressMode,
}

/// What was done.
#[derive(Debug, Serialize)]
struct Report {
    store: String,
    records: u64,
    old_hash: String,
    new_hash: String,
    /// Sizes of the file.
    old_bytes: u64,
    new_bytes: u64,
    seconds: f64,
}

/// Moves a store to another hash function or seed.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    refuse_url(args)?;
    let started = Instant::now();
    let mut phases = Phases::new(args.progress, console);
    let mut interrupt = Some(Interrupt::watch());
    let (mut unfinished, mut stopped) = (None, None);
    let watch = |now: RehashProgress| {
        // The first call says that the file is there, and is ours.
        unfinished.get_or_insert_with(|| Unfinished::new(partial_of(&args.file)));
        let (name, total) = phase_of(now);
        phases.tell(name, total, now.records, now.bytes);
        stopped = interrupt.as_ref().and_then(Interrupt::exit);
        if now.stage == RehashStage::Sync {
            // The last call: nobody looks any more.
            interrupt = None;
        }
        if stopped.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let options = store::with_progress(&Options::new(), console);
    let mut rehash = Rehash::of_file(&args.file).opened_with(&options).on_progress(watch);
    if let Some(name) = &args.hash {
        let function = HashFunction::by_name(name)
            .ok_or_else(|| Failure::new(Exit::Usage, format!("no hash function `{name}`")))?;
        rehash = rehash.hash(function);
    }
    if let Some(seed) = args.seed {
        rehash = rehash.seed(seed);
    }
    let done = rehash.run();
    if done.is_ok() {
        interrupt::last_step();
    }
    phases.finish();
    drop(unfinished);
    match (done, stopped) {
        (Ok(report), _) => tell(args, report, started, console),
        (Err(_), Some(exit)) => {
            let message = format!("interrupted: `{}` is as it was", args.file.display());
            Err(Failure::new(exit, message).hint("start the rehash again"))
        }
        (Err(error), None) => Err(failure(args, &error)),
    }
}

/// Refuses a table of another access method, whose hash function is its own business.
fn refuse_url(args: &Args) -> Result<()> {
    if !splitpoint::is_url(&args.file) {
        return Ok(());
    }
    let message = format!("`{}` is not the path of a store", args.file.display());
    let file = shell_word(&args.file.to_string_lossy());
    Err(Failure::new(Exit::CannotOpen, message)
        .hint(format!("make a store of it: splitpoint convert {file} NEW.spt")))
}

/// Returns where the new store is until it is whole.
fn partial_of(file: &Path) -> PathBuf {
    // Beside the file that a link leads to.
    let target = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_path_buf());
    let mut name = target.into_os_string();
    name.push(".rehash-in-progress");
    name.into()
}

fn phase_of(now: RehashProgress) -> (&'static str, Total) {
    match now.stage {
        RehashStage::Index => ("index", Total::Bytes(now.bytes_total)),
        RehashStage::Copy => ("copy", Total::Bytes(now.bytes_total)),
        _ => ("sync", Total::Unknown),
    }
}

/// Says what was done.
fn tell(args: &Args, report: RehashReport, started: Instant, console: Console) -> Result<()> {
    store::note_left(&args.file, report.recovery, console);
    let (old, new) = (&report.old_hash, &report.new_hash);
    let change =
        if old == new { format!("to a new seed of {new}") } else { format!("from {old} to {new}") };
    console.note(format_args!(
        "moved {} of `{}` in {} {change}",
        counted(report.record_count, "record"),
        args.file.display(),
        duration(started.elapsed())
    ));
    if old == new && HashFunction::by_name(new).is_some_and(|function| !is_seeded(&function)) {
        console.note(format_args!(
            "{new} takes no seed, so the chains are what they were; --hash names another function"
        ));
    }
    if !args.json {
        return Ok(());
    }
    console::print_json(&Report {
        store: args.file.display().to_string(),
        records: report.record_count,
        old_hash: report.old_hash,
        new_hash: report.new_hash,
        old_bytes: report.old_file_bytes,
        new_bytes: report.new_file_bytes,
        seconds: started.elapsed().as_secs_f64(),
    })
}

fn is_seeded(function: &HashFunction) -> bool {
    function.hash(PROBE_KEY, 0) != function.hash(PROBE_KEY, 1)
}

/// Returns what the user is told of an error.
fn failure(args: &Args, error: &Error) -> Failure {
    let file = &args.file;
    let is_opening = matches!(error, Error::Io { action: "open", .. });
    let failure =
        if is_opening { Failure::opening(file, error) } else { store::using(file, error) };
    match error {
        Error::Io { source, .. } if is_full(source) => failure
            .hint("the disk needs room for the old store and the new one; the store is as it was"),
        Error::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => failure
            .hint("the file and its directory must be writable: the new store is made beside it"),
        Error::Unsupported { feature: Unsupported::HardLinks, .. } => {
            let name = shell_word(&file.to_string_lossy());
            failure.hint(format!("remove the others: find / -xdev -samefile {name}"))
        }
        _ => failure,
    }
}

fn is_full(source: &io::Error) -> bool {
    matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
