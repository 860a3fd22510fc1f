//! `splitpoint convert`: carry every record of a file into a new store.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::Serialize;
use splitpoint::{Create, Db, Error, KEY_BYTES_MAX, Options, VALUE_BYTES_MAX};

use crate::bytes::{shell_word, shown};
use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::number::{count, counted};
use crate::progress::{Progress, ProgressMode, Total};
use crate::store::{self, Readable};

/// Carry every record of an old file, or of a store, into a new store
///
/// The source is opened by its content and never written. The new file appears when it is whole;
/// the records in it are counted and compared with those of the source. What cannot be carried (a
/// key that is there twice, further values of one key, a damaged page) is listed, the rest is
/// carried, and the exit code is 1.
///
/// With --in-place the store takes the name of the old file, which is kept with `.old` after its
/// name: nothing is lost by it but the space.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint convert aliases.db aliases.spt
  splitpoint convert mail.pag mail.spt           # with the mail.dir beside it
  splitpoint convert --in-place cache.gdbm       # keeps cache.gdbm.old")]
pub(crate) struct Args {
    /// The file to read
    source: PathBuf,

    /// The file to make; there must be no such file
    #[arg(required_unless_present = "in_place", conflicts_with = "in_place")]
    dest: Option<PathBuf>,

    /// Replace the old file, and keep it with `.old` after its name
    #[arg(long)]
    in_place: bool,

    /// The format of the new file
    #[arg(short, long, value_enum, default_value_t)]
    format: TargetFormat,

    /// Print an object
    #[arg(long)]
    json: bool,

    /// When to show progress
    #[arg(long, value_enum, default_value_t)]
    progress: ProgressMode,
}

/// A format that `convert` writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum TargetFormat {
    /// A store
    #[default]
    Store,
}

/// What was carried.
#[derive(Debug, Serialize)]
struct Report {
    source: String,
    dest: String,
    source_format: String,
    records: u64,
    left_out: Vec<String>,
    left_out_count: u64,
}

/// Carries every record.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let interrupt = Interrupt::watch()?;
    let opened = store::open_any(&args.source, console)?;
    let failed = |error: Error| Failure::using(&args.source, &error);
    let (source_format, expected, mut left_out, mut left_out_count) = match &opened {
        Readable::Store(db) => ("Splitpoint store".to_string(), db.len(), Vec::new(), 0),
        Readable::Old(file) => {
            let survey = file.survey().map_err(failed)?;
            let losses = survey.doubts.iter().filter(|doubt| doubt.is_loss());
            let words = losses.map(ToString::to_string).collect();
            (file.identity().to_string(), survey.pair_count, words, survey.loss_count)
        }
    };
    let dest = args.dest.clone().unwrap_or_else(|| with_ending(&args.source, ".new"));
    let mut target = Target::create(&dest)?;
    let mut progress = Progress::start(args.progress, console, "convert", Total::Records(expected));
    let mut records = 0;
    for record in opened.table().scan().map_err(failed)? {
        if let Some(exit) = interrupt.exit() {
            return Err(Failure::new(exit, "interrupted: no file was made"));
        }
        match record {
            Ok(record) => target.put(&record.key, &record.value)?,
            // The survey has listed it.
            Err(Error::Corrupt { .. }) if matches!(opened, Readable::Old(_)) => continue,
            Err(error) => return Err(failed(error)),
        }
        records += 1;
        progress.update(records, 0);
    }
    progress.finish(records, 0);
    let too_large = target.finish()?;
    left_out_count += count(too_large.len());
    left_out.extend(too_large);
    let name = if args.in_place {
        take_place(&opened, &args.source, &dest)?;
        args.source.display().to_string()
    } else {
        dest.display().to_string()
    };
    let report = Report {
        source: args.source.display().to_string(),
        dest: name,
        source_format,
        records,
        left_out,
        left_out_count,
    };
    tell(args, &report, expected, console)
}

fn tell(args: &Args, report: &Report, expected: u64, console: Console) -> Result<()> {
    if args.json {
        console::print_json(report)?;
    } else {
        let lines = report.left_out.iter().map(|reason| format!("left out: {reason}\n"));
        console::print_styled(&lines.collect::<String>())?;
    }
    console.note(format_args!(
        "carried {} of `{}` ({}) into `{}`",
        counted(report.records, "record"),
        report.source,
        report.source_format,
        report.dest
    ));
    if report.left_out_count == 0 && report.records == expected {
        return Ok(());
    }
    let message = format!(
        "`{}` has {}, of which {} were carried; {} left out",
        report.source,
        counted(expected, "record"),
        report.records,
        counted(report.left_out_count, "part"),
    );
    let file = shell_word(&report.source);
    Err(Failure::new(Exit::No, message).hint(format!(
        "if it is damaged, more may be found: splitpoint salvage {file} -o SAVED.spt"
    )))
}

/// Puts the new file where the old one is, and keeps that with `.old` after its name.
///
/// There is a file of this name at every moment: the old one gets its second name before the new
/// one takes the first.
fn take_place(opened: &Readable, source: &Path, new: &Path) -> Result<()> {
    let mut parts = vec![source.to_path_buf()];
    if let Readable::Old(file) = opened {
        let identity = file.identity();
        parts = std::iter::once(identity.path.clone()).chain(identity.dir_path.clone()).collect();
    }
    for part in &parts {
        let kept = with_ending(part, ".old");
        fs::hard_link(part, &kept).map_err(|error| {
            let _ = fs::remove_file(new);
            let (part, kept) = (part.display(), kept.display());
            Failure::io(format_args!("keep `{part}` as `{kept}`"), &error)
        })?;
    }
    let place = |error| Failure::io(format_args!("replace `{}`", source.display()), &error);
    fs::rename(new, source).map_err(place)?;
    for part in parts.iter().filter(|part| *part != source) {
        fs::remove_file(part).map_err(place)?;
    }
    Ok(())
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    PathBuf::from(name)
}

/// A new store that appears under its name when it is whole.
pub(super) struct Target {
    db: Option<Db>,
    path: PathBuf,
    /// Where it is until then.
    partial: PathBuf,
    batch: Vec<(Vec<u8>, Vec<u8>)>,
    batch_bytes: usize,
    records: u64,
    left_out: Vec<String>,
}

impl Target {
    /// Makes an empty store beside where it is to be.
    pub(super) fn create(path: &Path) -> Result<Self> {
        if path.symlink_metadata().is_ok() {
            let error = Error::Exists { path: path.to_path_buf() };
            return Err(Failure::opening(path, &error));
        }
        let partial = with_ending(path, ".partial");
        let options = Options::new().create(Create::New);
        let db = options.open(&partial).map_err(|error| Failure::opening(&partial, &error))?;
        Ok(Self {
            db: Some(db),
            path: path.to_path_buf(),
            partial,
            batch: Vec::new(),
            batch_bytes: 0,
            records: 0,
            left_out: Vec::new(),
        })
    }

    /// Adds a record; one that is over a limit is left out.
    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        const BATCH_RECORDS: usize = 4096;
        const BATCH_BYTES: usize = 4 << 20;
        if count(key.len()) > KEY_BYTES_MAX || count(value.len()) > VALUE_BYTES_MAX {
            let bytes = key.len() + value.len();
            let start = shown(&key[..key.len().min(64)]);
            self.left_out.push(format!("key `{start}`: {bytes} bytes are over the limit"));
            return Ok(());
        }
        self.batch_bytes += key.len() + value.len();
        self.batch.push((key.to_vec(), value.to_vec()));
        self.records += 1;
        if self.batch.len() >= BATCH_RECORDS || self.batch_bytes >= BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let Some(db) = &self.db else { return Ok(()) };
        let pairs: Vec<(&[u8], &[u8])> =
            self.batch.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        db.put_many(&pairs).map_err(|error| Failure::using(&self.path, &error))?;
        self.batch.clear();
        self.batch_bytes = 0;
        Ok(())
    }

    /// Makes the store durable, compares its count with what was put, and gives it its name.
    /// Returns what was left out.
    pub(super) fn finish(mut self) -> Result<Vec<String>> {
        self.flush()?;
        let Some(db) = self.db.take() else { return Ok(Vec::new()) };
        let found = db.len();
        store::close(db, &self.partial)?;
        if found != self.records {
            let put = counted(self.records, "record");
            let message = format!("`{}` has {found} after {put}", self.path.display());
            return Err(Failure::new(Exit::Bug, message));
        }
        fs::hard_link(&self.partial, &self.path).map_err(|error| {
            Failure::io(format_args!("give `{}` its name", self.path.display()), &error)
        })?;
        Ok(std::mem::take(&mut self.left_out))
    }
}

/// Nothing is left behind: neither of what was stopped, nor the first name of what is whole.
impl Drop for Target {
    fn drop(&mut self) {
        drop(self.db.take());
        let _ = fs::remove_file(&self.partial);
    }
}
