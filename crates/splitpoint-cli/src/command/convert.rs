//! `splitpoint convert`: convert a file to a new store.

use std::fs;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::Serialize;
use splitpoint::{BatchAtomicity, Capabilities, Create, Error, Options, TableExt as _};
use splitpoint_legacy::{Discrepancy, Doubt, db185};

use crate::bytes::shown;
use crate::command::shared::Showing;
use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::loss::{self, Extent, Numbers};
use crate::new_file::{NewFile, sync_directory_of, with_ending};
use crate::number::{count, counted};
use crate::progress::{Progress, Total};
use crate::shell::shell_word;
use crate::store::{self, Opened};
use crate::verify::damage_count;

/// Convert an old file, or a store, to a new store
///
/// Detects the format of the source from its content, and never writes to it. The new file appears
/// once it is complete, with its record count verified. If something cannot be converted (a second
/// record or value of a key, a damaged page), convert lists it, converts the rest and exits with
/// code 1. The exit code is also 1 if the source holds other numbers of records, pages or blocks
/// than it states, because then it is truncated or was not closed.
///
/// With --in-place the store takes the name of the old file, and the old file is kept with the
/// suffix `.old`. If something cannot be converted, the old file stays in place unless
/// --accept-loss is given.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint convert aliases.db aliases.spt
  splitpoint convert mail.pag mail.spt           # with the mail.dir beside it
  splitpoint convert --in-place cache.gdbm       # keeps cache.gdbm.old
  splitpoint convert words.spt words.db --format db185
  splitpoint convert words.spt 'db185:words.db?bsize=1024&lorder=4321'")]
pub(crate) struct Args {
    /// The file to read
    source: PathBuf,

    /// The new file; it must not exist
    #[arg(required_unless_present = "in_place", conflicts_with = "in_place")]
    dest: Option<PathBuf>,

    /// Replace the old file, and keep it with the suffix `.old`
    #[arg(long)]
    in_place: bool,

    /// With --in-place, replace the old file even if something in it cannot be converted
    #[arg(long, conflicts_with = "dest")]
    accept_loss: bool,

    /// The format of the new file [default: splitpoint, or db185 for db185:DEST]
    #[arg(short, long, value_enum)]
    format: Option<TargetFormat>,

    #[command(flatten)]
    showing: Showing,
}

/// A format that `convert` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TargetFormat {
    /// A store
    Splitpoint,
    /// A db 1.85 hash file, for programs that need one
    Db185,
}

/// What to create, and where.
#[derive(Debug)]
struct Goal {
    /// The file to read.
    source: PathBuf,
    path: PathBuf,
    /// Parameters of a db 1.85 file.
    db185: Option<db185::Options>,
}

impl Goal {
    fn of(args: &Args) -> Result<Self> {
        let source = db185_of(&args.source)?;
        let source = source.map_or_else(|| args.source.clone(), |(file, _)| file);
        let dest = args.dest.clone().unwrap_or_else(|| with_ending(&source, ".new"));
        match (db185_of(&dest)?, args.format) {
            (Some(_), Some(TargetFormat::Splitpoint)) => {
                let message = format!("`{}` is not a store", dest.display());
                Err(Failure::new(Exit::Usage, message).hint("omit --format or `db185:`"))
            }
            (Some((path, options)), _) => Ok(Self { source, path, db185: Some(options) }),
            (None, Some(TargetFormat::Db185)) => {
                Ok(Self { source, path: dest, db185: Some(db185_options()) })
            }
            (None, _) => Ok(Self { source, path: dest, db185: None }),
        }
    }
}

/// Returns the parameters of a file of the 1991 package where nothing else is asked: a conversion
/// has the memory for a larger cache than the package's own.
fn db185_options() -> db185::Options {
    db185::Options::new().cache_bytes(64 << 20)
}

/// Returns path and parameters of a file given as `db185:PATH?NAME=VALUE`.
fn db185_of(path: &Path) -> Result<Option<(PathBuf, db185::Options)>> {
    let Some(url) = path.to_str().and_then(|text| text.strip_prefix("db185:")) else {
        return Ok(None);
    };
    let (file, options) = db185_options()
        .and_url(url)
        .map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    if file.as_os_str().is_empty() {
        let message = format!("`{}` names no file", path.display());
        return Err(Failure::new(Exit::Usage, message));
    }
    Ok(Some((file, options)))
}

/// What was converted.
#[derive(Debug, Serialize)]
struct Report {
    source: String,
    dest: String,
    source_format: String,
    records: u64,
    discrepancies: Vec<Numbers>,
    left_out: Vec<String>,
    left_out_count: u64,
}

/// What the source should hold, before reading its records.
struct Expected {
    format: String,
    records: u64,
    /// Numbers that the source states and that do not match what it holds.
    discrepancies: Vec<Discrepancy>,
    /// What cannot be converted.
    left_out: Vec<String>,
    left_out_count: u64,
    /// Whether the new file refused a record.
    has_refused: bool,
}

impl Expected {
    /// Describes what the new file lacks, one line each.
    fn losses(&self) -> String {
        let discrepancies = self.discrepancies.iter().map(|one| format!("damage: {one}\n"));
        let left_out = self.left_out.iter().map(|reason| format!("skipped: {reason}\n"));
        discrepancies.chain(left_out).collect()
    }

    /// Fails if the new file lacks something, and the old one may not be replaced without it.
    fn check_replaceable(&self, args: &Args) -> Result<()> {
        let is_whole = self.left_out_count == 0 && self.discrepancies.is_empty();
        if !args.in_place || args.accept_loss || is_whole {
            return Ok(());
        }
        console::print_styled(&if args.showing.json { String::new() } else { self.losses() })?;
        let numbers = loss::in_words(self.discrepancies.iter().copied());
        let parts = counted(self.left_out_count, "part");
        let reason = numbers.unwrap_or_else(|| format!("{parts} cannot be converted"));
        let source = args.source.display();
        let message = format!("`{source}`: {reason}; nothing was replaced");
        let file = shell_word(&args.source.to_string_lossy());
        Err(Failure::new(Exit::No, message).hint(format!(
            "save what can be read: splitpoint salvage {file} -o NEW.spt; or accept the \
             loss: --accept-loss"
        )))
    }
}

/// Verifies the source, to find all damage before creating anything.
fn survey(opened: &Opened, args: &Args, console: Console) -> Result<Expected> {
    let extent = Extent::of(opened)?;
    extent.warn_if_unknown(console);
    let mut expected = Expected {
        format: "Splitpoint store".to_string(),
        records: extent.record_count,
        discrepancies: Vec::new(),
        left_out: Vec::new(),
        left_out_count: 0,
        has_refused: false,
    };
    let (Some(file), Some(survey)) = (opened.as_old(), extent.survey()) else {
        if opened.as_store().is_none() {
            expected.format = "table of another access method".to_string();
        }
        // A scan does not verify checksums.
        let damage_count = damage_count(opened, args.showing.progress, console)?;
        return if damage_count == 0 { Ok(expected) } else { Err(damaged(args, damage_count)) };
    };
    let discrepancies: Vec<_> = survey.discrepancies().collect();
    let is_left_out = |doubt: &&Doubt| doubt.is_loss() && !matches!(doubt, Doubt::Discrepancy(_));
    let left_out = survey.doubts.iter().filter(is_left_out);
    Ok(Expected {
        format: file.identity().to_string(),
        left_out: left_out.map(ToString::to_string).collect(),
        left_out_count: survey.loss_count - count(discrepancies.len()),
        discrepancies,
        ..expected
    })
}

/// Returns the failure to convert a damaged store.
fn damaged(args: &Args, damage_count: u64) -> Failure {
    let damages = counted(damage_count, "damaged place");
    let file = shell_word(&args.source.to_string_lossy());
    let message = format!("`{}` is corrupt: {damages} found", args.source.display());
    Failure::new(Exit::Corrupt, message)
        .hint(format!("save what can be read first: splitpoint repair {file} -o NEW.spt"))
}

/// Converts every record.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let goal = Goal::of(args)?;
    let opened = store::open(&args.source, console)?;
    let mut expected = survey(&opened, args, console)?;
    expected.check_replaceable(args)?;
    let interrupt = Interrupt::watch();
    let mut target = Target::create(&goal.path, "convert", goal.db185.as_ref())?;
    let total = Total::Records(expected.records);
    let mut progress = Progress::start(args.showing.progress, console, "convert", total);
    let failed = |error: Error| opened.failed(&error);
    let mut read = 0;
    for record in opened.scan().map_err(failed)? {
        if let Some(exit) = interrupt.exit() {
            return Err(Failure::interrupted(exit, "no file was created"));
        }
        match record {
            Ok(record) => target.put(&record.key, &record.value)?,
            // The analysis before has listed it.
            Err(Error::Corrupt { .. }) if opened.scans_past_damage() => continue,
            Err(error) => return Err(failed(error)),
        }
        read += 1;
        progress.update(read, 0);
    }
    progress.finish(read, 0);
    drop(interrupt);
    let made = target.finish()?;
    expected.has_refused = made.has_refused;
    expected.left_out_count += count(made.left_out.len());
    expected.left_out.extend(made.left_out);
    let dest = if args.in_place {
        expected.check_replaceable(args).inspect_err(|_| drop(fs::remove_file(&goal.path)))?;
        take_place(&opened, &goal.source, &goal.path)?;
        &goal.source
    } else {
        &goal.path
    };
    tell(args, expected, made.records, &dest.display().to_string(), console)
}

fn tell(args: &Args, expected: Expected, records: u64, dest: &str, console: Console) -> Result<()> {
    let losses = expected.losses();
    let numbers = loss::in_words(expected.discrepancies.iter().copied());
    let has_refused = expected.has_refused;
    let report = Report {
        source: args.source.display().to_string(),
        dest: dest.to_string(),
        source_format: expected.format,
        records,
        discrepancies: expected.discrepancies.into_iter().map(Numbers::from).collect(),
        left_out: expected.left_out,
        left_out_count: expected.left_out_count,
    };
    if args.showing.json {
        console::print_json(&report)?;
    } else {
        console::print_styled(&losses)?;
    }
    console.note(format_args!(
        "converted {} of `{}` ({}) to `{}`",
        counted(report.records, "record"),
        report.source,
        report.source_format,
        report.dest
    ));
    if let Some(numbers) = numbers {
        let message = format!("`{}`: {numbers}; converted only the records found", report.source);
        return Err(Failure::new(Exit::No, message).hint(loss::hint(&args.source)));
    }
    if report.left_out_count == 0 && records == expected.records {
        return Ok(());
    }
    let message = format!(
        "converted {} of {} of `{}`; skipped {}",
        report.records,
        counted(expected.records, "record"),
        report.source,
        counted(report.left_out_count, "part"),
    );
    let file = shell_word(&report.source);
    Err(Failure::new(Exit::No, message).hint(if has_refused {
        format!("a store can hold every record: splitpoint convert {file} NEW.spt")
    } else {
        format!(
            "if the file is damaged, salvage may find more: splitpoint salvage {file} -o SAVED.spt"
        )
    }))
}

/// Replaces the old file by the new one, and keeps the old one with the suffix `.old`.
///
/// A file of this name exists at every moment, even after a power loss: the second name of the old
/// file is durable before the new file takes the first.
fn take_place(opened: &Opened, source: &Path, new: &Path) -> Result<()> {
    let mut parts = vec![source.to_path_buf()];
    if let Some(file) = opened.as_old() {
        let identity = file.identity();
        parts = std::iter::once(identity.path.clone()).chain(identity.dir_path.clone()).collect();
    }
    let kept = Kept::keep(&parts).inspect_err(|_| drop(fs::remove_file(new)))?;
    // If the source is a link, replace its target and keep the link.
    let place = fs::canonicalize(source).unwrap_or_else(|_| kept.place_of(source));
    let failed = |error| Failure::io(format_args!("replace `{}`", source.display()), &error);
    if let Err(error) = fs::rename(new, &place) {
        let _ = fs::remove_file(new);
        kept.undo();
        return Err(failed(error));
    }
    sync_directory_of(&place)?;
    for part in kept.parts.iter().filter(|part| **part != place) {
        fs::remove_file(part).map_err(failed)?;
    }
    sync_directory_of(&place)
}

/// Old files, each with a second name.
struct Kept {
    parts: Vec<PathBuf>,
    names: Vec<PathBuf>,
}

impl Kept {
    /// Gives each of `parts` its second name, or none of them.
    fn keep(parts: &[PathBuf]) -> Result<Self> {
        let mut kept = Self { parts: Vec::new(), names: Vec::new() };
        for part in parts {
            let part = fs::canonicalize(part).unwrap_or_else(|_| part.clone());
            let name = with_ending(&part, ".old");
            if let Err(error) = fs::hard_link(&part, &name) {
                kept.undo();
                let (part, name) = (part.display(), name.display());
                return Err(Failure::io(format_args!("keep `{part}` as `{name}`"), &error));
            }
            kept.parts.push(part);
            kept.names.push(name);
        }
        kept.names.iter().try_for_each(|name| sync_directory_of(name))?;
        Ok(kept)
    }

    fn undo(&self) {
        for name in &self.names {
            let _ = fs::remove_file(name);
        }
    }

    /// Returns the place of the new file if `source` is the common stem of the parts.
    fn place_of(&self, source: &Path) -> PathBuf {
        let directory = self.parts.first().and_then(|part| part.parent());
        match (directory, source.file_name()) {
            (Some(directory), Some(name)) => directory.join(name),
            _ => source.to_path_buf(),
        }
    }
}

/// A new file that gets its name once it is complete.
pub(super) struct Target {
    table: Option<Opened>,
    capabilities: Capabilities,
    path: PathBuf,
    file: NewFile,
    batch: Vec<(Vec<u8>, Vec<u8>)>,
    batch_bytes: usize,
    records: u64,
    left_out: Vec<String>,
    /// Whether a record did not fit the format.
    has_refused: bool,
}

/// What the new file holds.
pub(super) struct Made {
    /// Whether a record did not fit the format.
    pub(super) has_refused: bool,
    pub(super) records: u64,
    pub(super) left_out: Vec<String>,
}

impl Target {
    /// Creates an empty store, or with `db185` an empty db 1.85 file, beside its final place.
    pub(super) fn create(path: &Path, work: &str, db185: Option<&db185::Options>) -> Result<Self> {
        if path.symlink_metadata().is_ok() {
            let error = match splitpoint::open_regular(path, fs::OpenOptions::new().read(true)) {
                // The error says what it is, such as a directory or a dangling link.
                Err(error @ Error::NotAStore { .. }) => error,
                _ => Error::Exists { path: path.to_path_buf() },
            };
            return Err(Failure::opening(path, &error)
                .hint("choose another name, or remove the file first"));
        }
        let open = |partial: &Path| {
            Ok(if let Some(options) = db185 {
                Opened::new(partial, options.clone().create(Create::New).open(partial)?)
            } else {
                Opened::new(partial, Options::new().create(Create::New).open(partial)?)
            })
        };
        let created = NewFile::create(path, work, open);
        let (table, file) = created.map_err(|error: Error| match (&error, error.path()) {
            (Error::Exists { .. }, Some(partial)) => {
                let file = shell_word(&partial.to_string_lossy());
                Failure::opening(partial, &error).hint(format!(
                    "another process is creating it, or one was killed; in that case: rm {file}"
                ))
            }
            _ => Failure::creating(path, &error),
        })?;
        let capabilities = table.capabilities();
        Ok(Self {
            table: Some(table),
            capabilities,
            path: path.to_path_buf(),
            file,
            batch: Vec::new(),
            batch_bytes: 0,
            records: 0,
            left_out: Vec::new(),
            has_refused: false,
        })
    }

    /// Adds a record, and skips it if it does not fit the format.
    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        const BATCH_RECORDS: usize = 4096;
        const BATCH_BYTES: usize = 4 << 20;
        if self.capabilities.batch != BatchAtomicity::Atomic {
            return self.put_one(key, value);
        }
        let Capabilities { key_bytes_max, value_bytes_max, .. } = self.capabilities;
        if count(key.len()) > key_bytes_max || count(value.len()) > value_bytes_max {
            let bytes = key.len() + value.len();
            self.leave_out(key, &format!("{bytes} bytes are over the limit"));
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

    /// Adds a record to a table that may refuse single records.
    fn put_one(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let Some(table) = &self.table else { return Ok(()) };
        match table.put_new(key, value) {
            Ok(true) => self.records += 1,
            Ok(false) => self.leave_out(key, "is there twice"),
            // Nothing has changed; a record that needs fewer pages may still fit.
            Err(error @ (Error::TooLarge { .. } | Error::Full { .. })) => {
                self.has_refused = true;
                self.leave_out(key, &error.to_string());
            }
            Err(error) => return Err(self.failed(&error)),
        }
        Ok(())
    }

    fn leave_out(&mut self, key: &[u8], reason: &str) {
        let start = shown(&key[..key.len().min(64)]);
        self.left_out.push(format!("key `{start}`: {reason}"));
    }

    /// Returns the failure for an error, with the name that the user gave and not the temporary
    /// one.
    fn failed(&self, error: &Error) -> Failure {
        Failure::using(&self.path, error).hint("no file was created; the source is unchanged")
    }

    fn flush(&mut self) -> Result<()> {
        let Some(table) = &self.table else { return Ok(()) };
        let pairs: Vec<(&[u8], &[u8])> =
            self.batch.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        table.put_many(&pairs).map_err(|error| self.failed(&error))?;
        self.batch.clear();
        self.batch_bytes = 0;
        Ok(())
    }

    /// Makes the file durable, verifies its record count and gives it its name.
    pub(super) fn finish(mut self) -> Result<Made> {
        self.flush()?;
        let Some(table) = self.table.take() else { unreachable!("a target is finished once") };
        let found = table.len().map_err(|error| self.failed(&error))?;
        table.close()?;
        if found != self.records {
            let put = counted(self.records, "record");
            let message =
                format!("`{}` has {found} records after storing {put}", self.path.display());
            return Err(Failure::new(Exit::Bug, message));
        }
        self.file.publish()?;
        Ok(Made { records: self.records, left_out: self.left_out, has_refused: self.has_refused })
    }
}
