//! `splitpoint compact`: give the space of replaced and deleted values back.

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;
use splitpoint::{Db, Maintenance, Options};

use crate::command::shared::{Showing, Turn};
use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Result};
use crate::files::DiskUse;
use crate::interrupt::Interrupt;
use crate::number::{bytes, duration, percent};
use crate::progress::{Phases, Total};
use crate::store::{self, Opened};

/// Bytes of segments to read before the next look for a signal.
const STEP_BYTES: u64 = 4 << 20;

/// Give the space of replaced and deleted values back
///
/// Each change of a store gives some space back, until 78 % of its log are live values. This
/// command goes on until less than 3 % of each segment is dead. Use it after many deletes, or before
/// you archive the file.
///
/// Moves live values out of the segments that have dead ones, frees those segments, and shortens
/// the file or makes holes in it. Works in place: the disk needs room for a few segments and for a
/// checkpoint of the index. The store is valid at every moment; after Ctrl-C, a kill or an error
/// what was moved stays moved, and the next run goes on.
///
/// Other processes can read FILE meanwhile. If programs change it by turns, they go on, and the
/// command compacts in turns of a few megabytes; then the file gets holes and is not shortened. Other
/// writers have to wait.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint compact words.spt
  splitpoint compact words.spt --json | jq .disk_bytes")]
pub(crate) struct Args {
    /// The store
    file: PathBuf,

    #[command(flatten)]
    turn: Turn,

    #[command(flatten)]
    showing: Showing,
}

/// What was done.
#[derive(Debug, Serialize)]
struct Report {
    store: String,
    /// Whether nothing is left to compact.
    is_done: bool,
    /// Bytes of segments that were read, and of live records that were moved.
    read_bytes: u64,
    moved_bytes: u64,
    /// Bytes of live and of dead records in the store now.
    live_bytes: u64,
    dead_bytes: u64,
    /// Sizes of the file.
    old_file_bytes: u64,
    file_bytes: u64,
    /// Bytes of blocks that the file has on the disk: its size without the holes.
    old_disk_bytes: u64,
    disk_bytes: u64,
    seconds: f64,
}

/// Compacts a store.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    store::refuse_url(&args.file)?;
    let started = Instant::now();
    // Opening it to write takes room for the next changes.
    let before = DiskUse::of(&args.file);
    let opened =
        store::open_to_write(&args.file, &args.turn.options_by_turns(Options::new()), console)?;
    let before = before?;
    let interrupt = Interrupt::watch();
    let mut work = Work::default();
    let outcome = work.run(args, &opened, &interrupt, console);
    // Also after a failure: a close frees what was emptied.
    let closed = opened.close();
    let after = match DiskUse::of(&args.file) {
        Ok(after) => after,
        // What failed before says more.
        Err(failure) => return outcome.and(closed).and(Err(failure)),
    };
    let Work { done, live_bytes, dead_bytes, .. } = work;
    let report = Report {
        store: args.file.display().to_string(),
        is_done: done.is_done,
        read_bytes: done.read_bytes,
        moved_bytes: done.moved_bytes,
        live_bytes,
        dead_bytes,
        old_file_bytes: before.file_bytes,
        file_bytes: after.file_bytes,
        old_disk_bytes: before.disk_bytes,
        disk_bytes: after.disk_bytes,
        seconds: started.elapsed().as_secs_f64(),
    };
    if args.showing.json {
        console::print_json(&report)?;
    }
    outcome?;
    closed?;
    if let Some(exit) = work.stopped {
        return Err(Failure::interrupted(exit, &report.gain_in_words())
            .hint("what was moved stays moved; run it again to go on"));
    }
    console.note(report.in_words());
    Ok(())
}

/// What a run has done so far.
#[derive(Debug, Default)]
struct Work {
    done: Maintenance,
    live_bytes: u64,
    dead_bytes: u64,
    /// The exit code of the signal that stopped it.
    stopped: Option<Exit>,
}

impl Work {
    fn run(
        &mut self,
        args: &Args,
        opened: &Opened,
        interrupt: &Interrupt,
        console: Console,
    ) -> Result<()> {
        let db = opened.as_store().ok_or_else(|| not_a_store(&args.file))?;
        let failed = |error| store::using(&args.file, &error);
        let log_bytes = db.stats().map_err(failed)?.segments.log;
        let total = Total::Bytes(log_bytes);
        let mut phases = Phases::new(args.showing.progress, console);
        let mut outcome = Ok(());
        // What others change meanwhile may be worth compacting again, without end.
        let is_over = |done: &Maintenance| {
            done.is_done || opened.is_by_turns() && done.read_bytes > log_bytes
        };
        while !is_over(&self.done) && self.stopped.is_none() && outcome.is_ok() {
            phases.tell("compact", total, 0, self.done.read_bytes);
            outcome = self.step(db).map_err(failed);
            self.stopped = interrupt.exit();
        }
        phases.tell("compact", total, 0, self.done.read_bytes);
        phases.finish();
        let stats = db.stats().map_err(failed)?;
        (self.live_bytes, self.dead_bytes) = (stats.live_bytes, stats.dead_bytes);
        outcome
    }

    fn step(&mut self, db: &Db) -> splitpoint::Result<()> {
        let step = db.maintain(STEP_BYTES)?;
        self.done.is_done = step.is_done;
        self.done.read_bytes += step.read_bytes;
        self.done.moved_bytes += step.moved_bytes;
        Ok(())
    }
}

fn not_a_store(path: &Path) -> Failure {
    Failure::new(Exit::CannotOpen, format!("`{}` is not a store", path.display()))
}

impl Report {
    fn in_words(&self) -> String {
        let elapsed = duration(std::time::Duration::from_secs_f64(self.seconds));
        if self.read_bytes == 0 && self.disk_bytes >= self.old_disk_bytes {
            let dead = bytes(self.dead_bytes);
            return format!("nothing to gain in `{}`: {dead} of it are dead values", self.store);
        }
        format!("compacted `{}` in {elapsed}: {}", self.store, self.gain_in_words())
    }

    /// Returns what was gained, and what it took.
    fn gain_in_words(&self) -> String {
        format!(
            "{} on the disk, {} before; {:.1} % of the bytes of records are live; moved {}",
            bytes(self.disk_bytes),
            bytes(self.old_disk_bytes),
            percent(self.live_bytes, self.live_bytes + self.dead_bytes),
            bytes(self.moved_bytes)
        )
    }
}
