//! `splitpoint backup`: copy a store, even while another process writes to it.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;
use splitpoint::backup::{Backup, BackupProgress, BackupReport, BackupStage};
use splitpoint::{Error, FileKind};

use crate::command::shared::Showing;
use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Result};
use crate::interrupt::Watch;
use crate::new_file::partial_of;
use crate::number::{bytes, counted, duration};
use crate::progress::{Progress, ProgressMode, Total};
use crate::shell::shell_word;
use crate::store;

/// Copy a store consistently, even while another process writes to it
///
/// The copy holds every change up to one moment. The backup reads the store as it is, so no process
/// has to wait or stop. It verifies every record that it copies. If a record is damaged, there is no
/// copy, and the exit code is 4. The copy gets a new index, so a damaged index of the source does not
/// matter.
///
/// The backup is built as DEST.backup-in-progress, with its index, and renamed once it is closed
/// and durable, so a file named DEST is always complete. Ctrl-C leaves nothing behind.
///
/// A copy on standard output has no index yet: the first command that opens the file builds it from
/// the log, as after a power loss. If the reader closes the pipe early, the copy is incomplete, and
/// the exit code is 5. --json requires a file as DEST. Do not use `cp` to back up a store that is
/// open.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint backup words.spt words-copy.spt
  splitpoint backup words.spt /mnt/usb/words.spt --force
  splitpoint backup words.spt - | zstd > words.spt.zst
  splitpoint backup words.spt | ssh host 'cat > words.spt'")]
pub(crate) struct Args {
    /// The store
    file: PathBuf,

    /// The copy; omitted or `-` writes it to standard output
    dest: Option<PathBuf>,

    /// Replace an existing DEST, once the copy is complete
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    showing: Showing,
}

/// What was copied.
#[derive(Debug, Serialize)]
struct Report {
    store: String,
    backup: String,
    records: u64,
    log_bytes: u64,
    copied_bytes: u64,
    file_bytes: u64,
    /// Whether the store had neither been closed nor been open since boot, so the backup read its
    /// log to the end.
    is_recovered: bool,
    seconds: f64,
}

/// Copies a store.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let dest = args.dest.as_deref().filter(|dest| *dest != Path::new("-"));
    if dest.is_none() {
        refuse_standard_output(args)?;
    }
    let started = Instant::now();
    let mut meter = Meter { mode: args.showing.progress, console, running: None };
    // A copy on standard output leaves no file to remove.
    let mut watch = Watch::over(dest.map(|dest| partial_of(dest, "backup")));
    let progress = |now: BackupProgress| {
        meter.tell(now);
        watch.look(now.stage == BackupStage::Index)
    };
    let backup = Backup::of_file(&args.file).on_progress(progress);
    let backup = if args.force { backup.replace_existing() } else { backup };
    let copied = match dest {
        Some(dest) => backup.write(dest),
        None => backup.write_to(console::data()),
    };
    meter.finish();
    let remedy = "the store is unchanged; run the backup again";
    let report =
        watch.end(copied, "no backup was made", remedy)?.map_err(|error| failure(args, &error))?;
    let name = dest.map_or("standard output".to_string(), |dest| format!("`{}`", dest.display()));
    if args.showing.json {
        console::print_json(&report_of(args, dest, report, started))?;
    }
    if report.is_recovered {
        console.note(format_args!(
            "`{}` was not closed, so the backup read its log to the end, as recovery does",
            args.file.display()
        ));
    }
    console.note(format_args!(
        "copied {} ({}) of `{}` to {name} in {}",
        counted(report.record_count, "record"),
        bytes(report.copied_bytes),
        args.file.display(),
        duration(started.elapsed())
    ));
    Ok(())
}

fn report_of(args: &Args, dest: Option<&Path>, report: BackupReport, started: Instant) -> Report {
    Report {
        store: args.file.display().to_string(),
        backup: dest.unwrap_or(Path::new("-")).display().to_string(),
        records: report.record_count,
        log_bytes: report.log_bytes,
        copied_bytes: report.copied_bytes,
        file_bytes: report.file_bytes,
        is_recovered: report.is_recovered,
        seconds: started.elapsed().as_secs_f64(),
    }
}

/// Refuses `--json` and a terminal if the copy goes to standard output.
fn refuse_standard_output(args: &Args) -> Result<()> {
    let file = shell_word(&args.file.to_string_lossy());
    if args.showing.json {
        let message = "--json and the copy cannot both go to standard output";
        return Err(Failure::new(Exit::Usage, message)
            .hint(format!("name a file: splitpoint backup {file} DEST --json")));
    }
    if io::stdout().is_terminal() {
        return Err(Failure::new(Exit::Usage, "refusing to write a store to a terminal")
            .hint(format!("name a file: splitpoint backup {file} DEST")));
    }
    Ok(())
}

/// Returns the failure for an error, with a hint for the file that it is about.
fn failure(args: &Args, error: &Error) -> Failure {
    let path = error.path().unwrap_or(&args.file);
    let is_opening = matches!(error, Error::Io { action: "open" | "create", .. });
    let failure =
        if is_opening { Failure::opening(path, error) } else { store::using(path, error) };
    let file = shell_word(&args.file.to_string_lossy());
    match error {
        // Only the writer to a stream uses this action.
        // Half a copy is worth nothing, so a reader that goes away is an error here.
        Error::Io { action: "write the backup of", source, .. }
            if source.kind() == io::ErrorKind::BrokenPipe =>
        {
            Failure::io("write all of the copy to standard output", source)
                .hint("what the reader got is not a complete store; run the backup again")
        }
        Error::Io { action: "write the backup of", source, .. } => Failure::output(source),
        Error::Io { source, .. } if path != args.file => match source.kind() {
            io::ErrorKind::NotFound => {
                failure.hint("the directory does not exist; create it first, or correct the path")
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                failure.hint("free some space and try again; nothing was left behind")
            }
            _ => failure,
        },
        Error::Corrupt { .. } => failure.hint(format!(
            "no backup was made; save what can be read: splitpoint repair {file} -o NEW"
        )),
        Error::Exists { .. } => failure.hint("--force replaces it once the copy is complete"),
        Error::LockedCompacted { .. } => {
            failure.hint("try again; nobody else can read a store that a process has for itself")
        }
        Error::Locked { .. } if path == args.file => failure
            .hint("that process is creating or recovering the store; try again when it is done"),
        Error::Locked { .. } => failure.hint("another process is using DEST; choose another name"),
        Error::NotAStore { found: FileKind::DanglingLink { .. }, .. } if path != args.file => {
            failure.hint("give the name of a file, or remove the link first")
        }
        Error::NotAStore { .. } | Error::Unsupported { .. } if path != args.file => {
            failure.hint(format!("write to standard output: splitpoint backup {file} - > DEST"))
        }
        Error::HashMismatch { .. } => failure.hint(format!(
            "`splitpoint backup {file} -` works without the function; open the copy with the \
             program that created the store"
        )),
        _ => failure,
    }
}

/// Progress, stage by stage.
struct Meter {
    mode: ProgressMode,
    console: Console,
    running: Option<(BackupStage, Progress, u64)>,
}

impl Meter {
    fn tell(&mut self, now: BackupProgress) {
        let phase = match now.stage {
            BackupStage::Verify => "verify",
            BackupStage::Copy => "copy",
            BackupStage::Index => "index",
            _ => "backup",
        };
        if self.running.as_ref().is_none_or(|(stage, ..)| *stage != now.stage) {
            self.finish();
            let total =
                if now.bytes_total == 0 { Total::Unknown } else { Total::Bytes(now.bytes_total) };
            let progress = Progress::start(self.mode, self.console, phase, total);
            self.running = Some((now.stage, progress, 0));
        }
        if let Some((_, progress, bytes)) = &mut self.running {
            *bytes = now.bytes;
            progress.update(0, now.bytes);
        }
    }

    fn finish(&mut self) {
        if let Some((_, mut progress, bytes)) = self.running.take() {
            progress.finish(0, bytes);
        }
    }
}
