//! `splitpoint repair`: save the readable records of a damaged store.

use std::fmt::Write as _;

use serde::Serialize;
use splitpoint::repair::{RepairProgress, RepairReport, repair_with};
use splitpoint::{Error, ErrorKind, Options};

use crate::command::shared::{Saving, Turn};
use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Result, is_disk_full};
use crate::files::is_same;
use crate::interrupt::Watch;
use crate::new_file::partial_of;
use crate::number::{bytes, counted, grouped};
use crate::progress::{Progress, Total};
use crate::shell::shell_word;
use crate::store;

/// Save the readable records of a damaged store to a new one
///
/// Saves the newest readable value of each key and reports what it could not save, with exit code 1
/// if it knows that something is missing. If the missing part deleted or changed a key, that key
/// comes back with its previous value.
///
/// Never writes to the damaged file. The new store appears once it is complete; after an error or
/// Ctrl-C there is none. It may be on another disk, and takes about as much space as the records of
/// the damaged one. It gets the permissions of the damaged file, less those that the umask
/// withholds.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint repair damaged.spt -o saved.spt
  splitpoint repair damaged.spt -o saved.spt --json | jq .damaged
  splitpoint repair damaged.spt -o saved.spt --quiet || echo 'incomplete'")]
pub(crate) struct Args {
    #[command(flatten)]
    saving: Saving,

    #[command(flatten)]
    turn: Turn,
}

/// The outcome of a repair.
#[derive(Debug, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "they are fields of JSON")]
struct Report {
    store: String,
    output: String,
    is_whole: bool,
    keys: u64,
    stale_max: u64,
    file_bytes: u64,
    records: u64,
    record_bytes: u64,
    superblocks: u32,
    is_tail_found: bool,
    is_end_known: bool,
    segments: u64,
    lost_segments: u64,
    missing_bytes: u64,
    damaged_count: u64,
    damaged: Vec<Range>,
    lost_big_records: u64,
    doubtful_records: u64,
    doubtful_batched: u64,
    uncommitted: u64,
    unknown_deletes: u64,
    is_order_lost: bool,
    ignored_segments: u64,
    ignored_bytes: u64,
    unreadable_blocks: u64,
    replaced_hash: Option<String>,
}

#[derive(Debug, Serialize)]
struct Range {
    offset: u64,
    bytes: u64,
}

/// Saves the readable records of a store.
pub(super) fn run(Args { saving: args, turn }: &Args, console: Console) -> Result<()> {
    let mut watch = Watch::over(Some(partial_of(&args.output, "repair")));
    let mut bar: Option<(&'static str, Progress)> = None;
    let mut last = (0, 0);
    let mut progress = |progress: RepairProgress| {
        if bar.as_ref().is_none_or(|(phase, _)| *phase != progress.phase) {
            if let Some((_, mut bar)) = bar.take() {
                bar.finish(last.0, last.1);
            }
            let total = Total::Bytes(progress.bytes_total);
            let started = Progress::start(args.showing.progress, console, progress.phase, total);
            bar = Some((progress.phase, started));
        }
        last = (progress.records, progress.bytes);
        if let Some((_, bar)) = &mut bar {
            bar.update(progress.records, progress.bytes);
        }
        watch.look(false)
    };
    let repaired = store::wait_for_rest(turn.wait_max(), console, |time| {
        repair_with(&args.file, &args.output, &Options::new().lock_timeout(time), &mut progress)
    });
    if let Some((_, mut bar)) = bar {
        bar.finish(last.0, last.1);
    }
    let remedy = "the damaged file is unchanged; run the repair again";
    let report = watch
        .end(repaired, "no store was created", remedy)?
        .map_err(|error| failed(args, &error))?;
    let report = Report::new(args, &report);
    if args.showing.json {
        console::print_json(&report)?;
    } else {
        console::print_styled(&report.in_words(console))?;
    }
    if report.is_whole { Ok(()) } else { Err(report.failure(args)) }
}

/// Returns the failure for an error, about the file that it concerns.
fn failed(args: &Saving, error: &Error) -> Failure {
    let target = shell_word(&args.output.to_string_lossy());
    match error.kind() {
        // To remove it would be the end of what the user wants to save.
        ErrorKind::Exists if is_same(&args.output, &args.file) => {
            let message = format!("`{}` is the damaged store itself", args.output.display());
            Failure::new(Exit::CannotOpen, message).hint("give the name of a new file")
        }
        ErrorKind::Exists => Failure::opening(&args.output, error)
            .hint(format!("give the name of a new file, or remove it first: rm {target}")),
        _ if has_no_room(error) => Failure::using(&args.output, error)
            .hint("choose a disk with more space; the damaged file is unchanged"),
        ErrorKind::NotAStore if error.path() == Some(&args.output) => {
            Failure::using(&args.output, error).hint("give the name of a new file")
        }
        // Of others the hint names another command; of these it would name this one.
        _ if is_without_records(error) => store::opening(&args.file, error)
            .hint("check the path: nothing in the file is of a store, so there is nothing to save"),
        _ if error.path() == Some(&args.output) => Failure::creating(&args.output, error),
        _ => store::opening(&args.file, error),
    }
}

fn has_no_room(error: &Error) -> bool {
    let is_io = |source: &std::io::Error| is_disk_full(source.kind());
    error.kind() == ErrorKind::Full || error.io_error().is_some_and(is_io)
}

/// Returns whether a file of no known kind was searched for records in vain.
fn is_without_records(error: &Error) -> bool {
    use splitpoint::FileKind::{BeginsWithZeros, Other};
    matches!(error, Error::NotAStore { found: BeginsWithZeros | Other, .. })
}

impl Report {
    fn new(args: &Saving, report: &RepairReport) -> Self {
        let range_of = |range: &splitpoint::repair::DamagedRange| Range {
            offset: range.offset,
            bytes: range.bytes,
        };
        Self {
            store: args.file.display().to_string(),
            output: args.output.display().to_string(),
            is_whole: report.is_whole(),
            keys: report.key_count,
            stale_max: report.stale_max(),
            file_bytes: report.file_bytes,
            records: report.record_count,
            record_bytes: report.record_bytes,
            superblocks: report.superblock_count,
            is_tail_found: report.is_tail_found,
            is_end_known: report.is_end_known,
            segments: report.segment_count,
            lost_segments: report.lost_segment_count,
            missing_bytes: report.missing_bytes,
            damaged_count: report.damaged_count,
            damaged: report.damaged.iter().map(range_of).collect(),
            lost_big_records: report.lost_big_count,
            doubtful_records: report.doubtful_count,
            doubtful_batched: report.doubtful_batched_count,
            uncommitted: report.uncommitted_count,
            unknown_deletes: report.unknown_delete_count,
            is_order_lost: report.is_order_lost,
            ignored_segments: report.ignored_segment_count,
            ignored_bytes: report.ignored_bytes,
            unreadable_blocks: report.unreadable_count,
            replaced_hash: report.replaced_hash.clone(),
        }
    }

    fn in_words(&self, console: Console) -> String {
        let mut text = String::new();
        let mut line = |words: String| {
            let _ = writeln!(text, "{words}");
        };
        for Range { offset, bytes } in &self.damaged {
            line(format!("damage: {bytes} bytes of the log at byte {offset}"));
        }
        let unlisted = self.damaged_count - crate::number::count(self.damaged.len());
        for (count, what) in [
            (unlisted, "more damaged range"),
            (self.lost_segments, "log segment lost, at least"),
            (self.lost_big_records, "big record lost with its key"),
            (self.unreadable_blocks, "4 KiB block that the disk cannot read"),
            (self.doubtful_records, "saved big record that may not belong to the log"),
            (
                self.doubtful_batched,
                "saved change of a batch that may be uncommitted or incomplete",
            ),
            (self.unknown_deletes, "delete of an unknown key"),
        ] {
            if count > 0 {
                line(format!("damage: {} x {what}", grouped(count)));
            }
        }
        if self.is_order_lost {
            line("damage: index and checkpoint are lost: deleted keys may be back".into());
        }
        if !console.is_quiet() {
            for words in self.notes() {
                line(words);
            }
            line(format!(
                "saved {} of `{}` to `{}`, from {} ({})",
                counted(self.keys, "key"),
                self.store,
                self.output,
                counted(self.records, "log record"),
                bytes(self.record_bytes)
            ));
        }
        text
    }

    /// Returns notes on what did no harm but is good to know.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.superblocks == 0 {
            notes.push(
                "note: no superblock is valid, so the new store has default parameters".into(),
            );
        }
        if let Some(name) = &self.replaced_hash {
            notes.push(format!(
                "note: hash function {name} is unknown here, so the new store has the default one"
            ));
        }
        if self.ignored_segments > 0 || self.ignored_bytes > 0 {
            notes.push(format!(
                "note: skipped {} and {} of records that an earlier recovery dropped",
                counted(self.ignored_segments, "segment"),
                bytes(self.ignored_bytes)
            ));
        }
        if self.uncommitted > 0 {
            notes.push(format!(
                "note: skipped {} of batches that were never committed",
                counted(self.uncommitted, "record")
            ));
        }
        if self.is_whole && !self.is_end_known {
            notes.push(
                "note: the live header is damaged or out of date, and nothing else shows where the \
                 log ends"
                    .into(),
            );
        }
        notes
    }

    fn failure(&self, args: &Saving) -> Failure {
        let message = format!("`{}` {}", self.store, self.loss_in_words());
        let target = shell_word(&args.output.to_string_lossy());
        Failure::new(Exit::No, message)
            .hint(format!("compare with a backup if you have one: splitpoint dump {target} | sort"))
    }

    /// Returns what is lost, as far as it is known.
    fn loss_in_words(&self) -> String {
        if self.is_order_lost {
            return "has lost its index and its checkpoint: nothing says how many keys are missing, \
                    and any key may be out of date, or back after a delete"
                .into();
        }
        let mut words = match self.missing_bytes {
            0 => "has lost a part of its log".into(),
            missing => format!("has lost {} of its log", bytes(missing)),
        };
        if self.stale_max > 0 {
            let verb = if self.stale_max == 1 { "is" } else { "are" };
            let _ = write!(
                words,
                ": up to {} {verb} missing, out of date, or back after a delete",
                counted(self.stale_max, "key")
            );
        }
        words
    }
}
