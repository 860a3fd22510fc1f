//! `splitpoint rehash`: move a store to another hash function or seed.

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;
use splitpoint::hash::{HashFunction, PROBE_KEY};
use splitpoint::rehash::{Rehash, RehashProgress, RehashReport, RehashStage};
use splitpoint::{Error, Options, Unsupported};

use crate::command::shared::{HashChoice, Showing, Turn};
use crate::console::{self, Console};
use crate::failure::{Failure, Result, is_disk_full};
use crate::interrupt::Watch;
use crate::new_file::partial_of;
use crate::number::{counted, duration};
use crate::progress::{Phases, Total};
use crate::shell::shell_word;
use crate::store;

/// Move a store to another hash function or seed
///
/// This is the remedy for keys that an attacker chose to collide: `stat` warns of them, and
/// siphash-1-3 keeps them apart. Without --hash the store keeps its function and gets a new random
/// seed.
///
/// Writes the records to a new store beside FILE and renames it to FILE once it is complete and
/// durable. At every moment FILE is either the old store or the new one, even after a kill or a
/// power loss; Ctrl-C leaves FILE unchanged. Nobody else can open FILE meanwhile, and the command waits
/// for those who have it open. The disk needs room for both. Leaves a damaged store unchanged, with
/// exit code 4.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint rehash users.spt --hash siphash-1-3
  splitpoint rehash users.spt                     # a new seed
  splitpoint rehash users.spt --hash xxh3-64 --json | jq .new_bytes")]
pub(crate) struct Args {
    /// The store
    file: PathBuf,

    #[command(flatten)]
    choice: HashChoice,

    #[command(flatten)]
    turn: Turn,

    #[command(flatten)]
    showing: Showing,
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
    store::refuse_url(&args.file)?;
    let started = Instant::now();
    let mut phases = Phases::new(args.showing.progress, console);
    let mut watch = Watch::over(Some(partial_of(&args.file, "rehash")));
    let function = args.choice.function()?;
    let options = args.turn.options(store::with_progress(&Options::new(), console));
    let done = options.wait(console, |options| {
        let progress = |now: RehashProgress| {
            let (name, total) = phase_of(now);
            phases.tell(name, total, now.records, now.bytes);
            watch.look(now.stage == RehashStage::Sync)
        };
        let mut rehash = Rehash::of_file(&args.file).opened_with(options).on_progress(progress);
        if let Some(function) = &function {
            rehash = rehash.hash(function.clone());
        }
        if let Some(seed) = args.choice.seed {
            rehash = rehash.seed(seed);
        }
        rehash.run()
    });
    phases.finish();
    let state = format!("`{}` is unchanged", args.file.display());
    match watch.end(done, &state, "run the rehash again")? {
        Ok(report) => tell(args, report, started, console),
        Err(error) => Err(failure(args, &error)),
    }
}

fn phase_of(now: RehashProgress) -> (&'static str, Total) {
    match now.stage {
        RehashStage::Index => ("index", Total::Bytes(now.bytes_total)),
        RehashStage::Copy => ("copy", Total::Bytes(now.bytes_total)),
        _ => ("sync", Total::Unknown),
    }
}

/// Reports the result.
fn tell(args: &Args, report: RehashReport, started: Instant, console: Console) -> Result<()> {
    store::note_left(&args.file, report.recovery, console);
    let (old, new) = (&report.old_hash, &report.new_hash);
    let is_unseeded = HashFunction::by_name(new).is_some_and(|function| !is_seeded(&function));
    let change = match old == new {
        true if is_unseeded => format!("with the same function {new}"),
        true => format!("to a new seed of {new}"),
        false => format!("from {old} to {new}"),
    };
    console.note(format_args!(
        "moved {} of `{}` in {} {change}",
        counted(report.record_count, "record"),
        args.file.display(),
        duration(started.elapsed())
    ));
    if old == new && is_unseeded {
        console.note(format_args!(
            "{new} takes no seed, so the chains are unchanged; choose another function with --hash"
        ));
    }
    if !args.showing.json {
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

/// Returns the failure for an error, with a hint.
fn failure(args: &Args, error: &Error) -> Failure {
    let file = &args.file;
    let is_opening = matches!(error, Error::Io { action: "open" | "create", .. });
    let failure =
        if is_opening { Failure::opening(file, error) } else { store::using(file, error) };
    match error {
        Error::Locked { .. } => failure.hint(
            "rehash needs the store for itself; --lock-timeout waits longer for those who write or \
             read it",
        ),
        Error::Io { source, .. } if is_disk_full(source.kind()) => failure
            .hint("the disk needs room for the old store and the new one; the store is unchanged"),
        Error::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => failure
            .hint("the file and its directory must be writable, to create the new store beside it"),
        Error::Unsupported { feature: Unsupported::HardLinks, .. } => {
            let name = shell_word(&file.to_string_lossy());
            failure.hint(format!(
                "remove the other links; to find them: find / -xdev -samefile {name}"
            ))
        }
        _ => failure,
    }
}
