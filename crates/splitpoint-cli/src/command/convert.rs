//! `splitpoint convert`: convert a file to a new store.

use std::fs;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::Serialize;
use splitpoint::Error;
use splitpoint_legacy::{Discrepancy, Doubt, db185};

use crate::command::duplicates::{CHOOSE, Duplicates, Keep, Records, Several, Taken};
use crate::command::shared::Showing;
use crate::command::target::{Format, LeftOut, Target};
use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::loss::{self, Extent, Numbers};
use crate::new_file::{sync_directory_of, with_ending};
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
/// A key of Berkeley DB or cdb may have several values. --duplicates says what becomes of them; a
/// cdb gets them all without it. Otherwise convert keeps the first, counts the others as left out,
/// and exits with code 1.
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
  splitpoint convert words.spt words.cdb --format cdb
  splitpoint convert postings.db postings.spt --duplicates all-as-N
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

    /// What to keep of a key with several values
    #[arg(long, value_enum, ignore_case = true, value_name = "KEEP")]
    duplicates: Option<Duplicates>,

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
    /// A cdb file, which holds several values of a key
    Cdb,
}

/// What to create, and where.
#[derive(Debug)]
struct Goal {
    /// The file to read.
    source: PathBuf,
    path: PathBuf,
    format: Format,
}

impl Goal {
    fn of(args: &Args) -> Result<Self> {
        let source = db185_of(&args.source)?;
        let source = source.map_or_else(|| args.source.clone(), |(file, _)| file);
        let dest = args.dest.clone().unwrap_or_else(|| with_ending(&source, ".new"));
        let (path, format) = match (db185_of(&dest)?, args.format) {
            (Some(_), Some(other @ (TargetFormat::Splitpoint | TargetFormat::Cdb))) => {
                let wanted = if other == TargetFormat::Cdb { "cdb" } else { "store" };
                let message = format!("`{}` is not a {wanted}", dest.display());
                return Err(Failure::new(Exit::Usage, message).hint("omit --format or `db185:`"));
            }
            (Some((path, options)), _) => (path, Format::Db185(options)),
            (None, Some(TargetFormat::Db185)) => (dest, Format::Db185(db185_options())),
            (None, Some(TargetFormat::Cdb)) => (dest, Format::Cdb),
            (None, _) => (dest, Format::Store),
        };
        Ok(Self { source, path, format })
    }

    /// Returns which records to make of a key with several values.
    fn keep(&self, args: &Args) -> Keep {
        match args.duplicates {
            Some(Duplicates::Last) => Keep::Last,
            Some(Duplicates::AllAsN) => Keep::Numbered,
            None if matches!(self.format, Format::Cdb) => Keep::Every,
            Some(Duplicates::First | Duplicates::Fail) | None => Keep::First,
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
    /// Values of the source after the first of their key.
    further_values: u64,
    discrepancies: Vec<Numbers>,
    left_out: Vec<String>,
    left_out_count: u64,
}

/// What the source should hold, before reading its records.
struct Expected {
    format: String,
    records: u64,
    several: Several,
    /// Numbers that the source states and that do not match what it holds.
    discrepancies: Vec<Discrepancy>,
    /// What cannot be converted.
    left_out: LeftOut,
    why: Why,
}

/// Why something was left out, the reason that most needs an advice last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    /// A key is there twice, or nothing was left out.
    Other,
    /// Nothing says what becomes of further values.
    Undecided,
    /// The key of a further value is a key of the source.
    Taken,
    /// The new file cannot hold a record.
    Refused,
    /// The source is damaged.
    Damaged,
}

impl Why {
    /// Returns what to do about it.
    fn hint(self, source: &str) -> String {
        let file = shell_word(source);
        match self {
            Self::Undecided => format!("{CHOOSE}; or keep them in a cdb: --format cdb"),
            Self::Taken => format!(
                "to keep every value: splitpoint convert {file} NEW.cdb --format cdb; or keep one \
                 of each key: --duplicates first or last"
            ),
            Self::Refused => {
                format!("a store has no such limit: splitpoint convert {file} NEW.spt")
            }
            Self::Damaged | Self::Other => format!(
                "restore the file from a backup, or let salvage look for more: splitpoint salvage \
                 {file} -o SAVED.spt"
            ),
        }
    }
}

impl Expected {
    /// Describes what the new file lacks, one line each.
    fn losses(&self) -> String {
        let discrepancies = self.discrepancies.iter().map(|one| format!("damage: {one}\n"));
        discrepancies.chain([self.left_out.lines()]).collect()
    }

    fn leave_out(&mut self, why: Why) {
        self.why = self.why.max(why);
    }

    /// Takes account of what becomes of further values, and returns it in words.
    fn settle_several(&mut self, args: &Args, keep: Keep) -> Result<Option<String>> {
        let several = self.several;
        if several.keys > 0 && args.duplicates == Some(Duplicates::Fail) {
            let (file, keys) = (args.source.display(), several.keys_in_words());
            let message = format!("`{file}` has {keys}; nothing was converted");
            let hint = Why::Undecided.hint(&args.source.to_string_lossy());
            return Err(Failure::new(Exit::No, message).hint(hint));
        }
        if several.further == 0 {
            return Ok(None);
        }
        if keep == Keep::First && args.duplicates.is_none() {
            self.left_out.add(several.left_out(), several.further);
            self.leave_out(Why::Undecided);
            return Ok(None);
        }
        if matches!(keep, Keep::Numbered | Keep::Every) {
            self.records += several.further;
        }
        Ok(Some(several.kept(keep)))
    }

    /// Fails if the new file lacks something, and the old one may not be replaced without it.
    fn check_replaceable(&self, args: &Args) -> Result<()> {
        let is_whole = self.left_out.count == 0 && self.discrepancies.is_empty();
        if !args.in_place || args.accept_loss || is_whole {
            return Ok(());
        }
        console::print_styled(&if args.showing.json { String::new() } else { self.losses() })?;
        let numbers = loss::in_words(self.discrepancies.iter().copied());
        let parts = counted(self.left_out.count, "part");
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
        several: Several::default(),
        discrepancies: Vec::new(),
        left_out: LeftOut::default(),
        why: Why::Other,
    };
    let (Some(file), Some(survey)) = (opened.as_old(), extent.survey()) else {
        if opened.as_store().is_none() {
            expected.format = "table of another access method".to_string();
        }
        // A scan does not verify checksums.
        let damage_count = damage_count(opened, args.showing.progress, console)?;
        return if damage_count == 0 { Ok(expected) } else { Err(damaged(args, damage_count)) };
    };
    expected.format = file.identity().to_string();
    expected.several =
        Several { keys: survey.several_values_count, further: survey.further_value_count };
    expected.discrepancies = survey.discrepancies().collect();
    for doubt in &survey.doubts {
        let is_damage = doubt.is_about_index() || matches!(doubt, Doubt::Fault(_));
        if is_damage {
            expected.leave_out(Why::Damaged);
        }
        match doubt {
            Doubt::Discrepancy(_) => {}
            Doubt::ShorterIndex { key_count } => {
                expected.left_out.add(doubt.to_string(), *key_count);
            }
            _ if is_damage || doubt.is_loss() => expected.left_out.add(doubt.to_string(), 1),
            _ => {}
        }
    }
    let listed = survey.doubts.iter().filter(|doubt| doubt.is_loss()).count();
    expected.left_out.add_unlisted(survey.loss_count - count(listed));
    Ok(expected)
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
    let keep = goal.keep(args);
    let several = expected.settle_several(args, keep)?;
    let parts = parts_of(&opened, &goal.source);
    if args.in_place {
        check_is_part(&goal.source, &parts)?;
    }
    expected.check_replaceable(args)?;
    let taken = taken_keys(&opened, keep, expected.several)?;
    let interrupt = Interrupt::watch();
    let mut target = Target::create(&goal.path, "convert", &goal.format)?;
    let total = Total::Records(expected.records);
    let mut progress = Progress::start(args.showing.progress, console, "convert", total);
    let failed = |error: Error| opened.failed(&error);
    let mut records = Records::new(keep);
    let mut read = 0;
    let mut put = |key: &[u8], value: &[u8], number: u64| {
        read += 1;
        progress.update(read, 0);
        let Some(reason) = taken.refusal(key, number) else { return target.put(key, value) };
        expected.leave_out(Why::Taken);
        target.leave_out(key, &reason);
        Ok(())
    };
    for record in opened.values().map_err(failed)? {
        if let Some(exit) = interrupt.exit() {
            return Err(Failure::interrupted(exit, "no file was created"));
        }
        match record {
            Ok(one) => records.take(&one, &mut put)?,
            // The analysis before has listed it.
            Err(Error::Corrupt { .. }) if opened.scans_past_damage() => {}
            Err(error) => return Err(failed(error)),
        }
    }
    records.finish(&mut put)?;
    progress.finish(read, 0);
    drop(interrupt);
    let made = target.finish()?;
    if made.has_refused {
        expected.leave_out(Why::Refused);
    }
    expected.left_out.append(made.left_out);
    let dest = if args.in_place {
        expected.check_replaceable(args).inspect_err(|_| drop(fs::remove_file(&goal.path)))?;
        take_place(&parts, &goal.source, &goal.path)?;
        &goal.source
    } else {
        &goal.path
    };
    tell(args, expected, made.records, &dest.display().to_string(), console)?;
    if let Some(words) = several {
        console.note(format_args!("{words}"));
    }
    Ok(())
}

/// Returns the keys that further values cannot have. What a scan cannot read is not converted, so
/// that it takes no key.
fn taken_keys(opened: &Opened, keep: Keep, several: Several) -> Result<Taken> {
    let mut taken = Taken::default();
    if keep != Keep::Numbered || several.keys == 0 {
        return Ok(taken);
    }
    for record in opened.scan().map_err(|error| opened.failed(&error))? {
        match record {
            Ok(record) => taken.note(&record.key),
            Err(Error::Corrupt { .. }) => {}
            Err(error) => return Err(opened.failed(&error)),
        }
    }
    Ok(taken)
}

fn tell(args: &Args, expected: Expected, records: u64, dest: &str, console: Console) -> Result<()> {
    let losses = expected.losses();
    let numbers = loss::in_words(expected.discrepancies.iter().copied());
    let (why, expected_records) = (expected.why, expected.records);
    let report = Report {
        source: args.source.display().to_string(),
        dest: dest.to_string(),
        source_format: expected.format,
        records,
        further_values: expected.several.further,
        discrepancies: expected.discrepancies.into_iter().map(Numbers::from).collect(),
        left_out: expected.left_out.reasons,
        left_out_count: expected.left_out.count,
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
    if report.left_out_count == 0 && records == expected_records {
        return Ok(());
    }
    let converted = if records < expected_records {
        format!("{records} of {}", counted(expected_records, "record"))
    } else {
        counted(records, "record")
    };
    let parts = counted(report.left_out_count, "part");
    let message = format!("converted {converted} of `{}`; skipped {parts}", report.source);
    Err(Failure::new(Exit::No, message).hint(why.hint(&report.source)))
}

/// Returns the files of the source.
fn parts_of(opened: &Opened, source: &Path) -> Vec<PathBuf> {
    match opened.as_old() {
        Some(file) => file.identity().files().map(Path::to_path_buf).collect(),
        None => vec![source.to_path_buf()],
    }
}

/// Fails if `source` is a file, but none of `parts`, so that its content would be lost.
fn check_is_part(source: &Path, parts: &[PathBuf]) -> Result<()> {
    let Ok(file) = fs::canonicalize(source) else { return Ok(()) };
    let is_part = parts.iter().any(|part| fs::canonicalize(part).is_ok_and(|part| part == file));
    if is_part {
        return Ok(());
    }
    let read = parts.first().map(|part| part.display().to_string()).unwrap_or_default();
    let message = format!(
        "`{}` is not a file of the table that was read, `{read}`; nothing was replaced",
        source.display()
    );
    let hint = format!("name that file: splitpoint convert --in-place {}", shell_word(&read));
    Err(Failure::new(Exit::No, message).hint(hint))
}

/// Replaces the old file by the new one, and keeps the old one with the suffix `.old`.
///
/// A file of this name exists at every moment, even after a power loss: the second name of the old
/// file is durable before the new file takes the first.
fn take_place(parts: &[PathBuf], source: &Path, new: &Path) -> Result<()> {
    let kept = Kept::keep(parts).inspect_err(|_| drop(fs::remove_file(new)))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_part_of_the_table_is_not_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = ["mail.dat", "mail.bak", "mail"].map(|name| dir.path().join(name));
        let [data, other, stem] = &paths;
        for path in [data, other] {
            fs::write(path, b"content").expect("the file is written");
        }
        let parts = [data.clone()];
        assert!(check_is_part(data, &parts).is_ok() && check_is_part(stem, &parts).is_ok());
        assert!(check_is_part(other, &parts).is_err());
    }
}
