//! `splitpoint convert`: convert a file to a new store.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use splitpoint::Error;

use crate::command::convert::expected::{Expected, Why, survey};
use crate::command::convert::goal::{Goal, TargetFormat};
use crate::command::convert::in_place::{Place, check_is_part, parts_of};
use crate::command::duplicates::{Duplicates, Keep, Records, Several, Taken};
use crate::command::shared::{Showing, Turn};
use crate::command::target::Target;
use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::loss::{self, Numbers};
use crate::number::counted;
use crate::progress::{Progress, Total};
use crate::store::{self, Opened};

mod expected;
mod goal;
mod in_place;

/// Convert an old file, or a store, to a new store
///
/// Detects the format of the source from its content, and never writes to it. The new file appears
/// once it is complete, with its record count verified and with the permissions of the source, less
/// those that the umask withholds. If something cannot be converted (a second
/// record or value of a key, a damaged page), convert lists it, converts the rest and exits with
/// code 1. The exit code is also 1 if the source does not have the numbers of records, pages or
/// blocks that it states, because then it is truncated or was not closed.
///
/// A key of Berkeley DB or cdb may have several values. --duplicates says what becomes of them.
/// Without it, a new cdb gets all of them; for other formats convert keeps the first, counts the
/// others as left out, and exits with code 1.
///
/// With --in-place the store takes the name of the old file, and the old file is kept with the
/// suffix `.old`. Programs that used a file of gdbm or ndbm find the store as they found that file.
/// If something cannot be converted, the old file stays in place unless --accept-loss is given.
///
/// Verifies a store first. Nobody can write to it meanwhile, and convert waits for a process that does.
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

    #[command(flatten)]
    turn: Turn,
}

/// What was converted.
#[derive(Debug, Serialize)]
struct Report {
    source: String,
    dest: String,
    /// The names that the old files have now, if they were replaced.
    kept: Vec<String>,
    source_format: String,
    records: u64,
    /// Values of the source after the first of their key.
    further_values: u64,
    discrepancies: Vec<Numbers>,
    left_out: Vec<String>,
    left_out_count: u64,
}

/// Converts every record.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let mut goal = Goal::of(args)?;
    let mut wait_max = args.turn.wait_max();
    let opened = store::open_for_steps(&args.source, &mut wait_max, console)?;
    let mut expected = survey(&opened, args, wait_max, console)?;
    let keep = goal.keep(args);
    let several = expected.settle_several(args, keep)?;
    let parts = parts_of(&opened, &goal.source);
    let place = if args.in_place {
        check_is_part(&goal.source, &parts)?;
        let place = Place::of(&goal.source, &parts)?;
        goal.path = place.new_path();
        if let Some(old) = opened.as_old() {
            goal.mark_like(old.identity().format);
        }
        Some(place)
    } else {
        None
    };
    expected.check_replaceable(args)?;
    let taken = taken_keys(&opened, keep, expected.several)?;
    let interrupt = Interrupt::watch();
    let mut target =
        Target::create(&goal.path, "convert", &goal.format, parts.iter().map(PathBuf::as_path))?;
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
    let (dest, kept) = if let Some(place) = place {
        expected.check_replaceable(args).inspect_err(|_| drop(fs::remove_file(&goal.path)))?;
        let is_ndbm = opened
            .as_old()
            .is_some_and(|old| old.identity().format == splitpoint_legacy::Format::Dbm);
        (&goal.source, place.take(&parts, &goal.path, is_ndbm)?)
    } else {
        (&goal.path, Vec::new())
    };
    tell(args, expected, made.records, dest, &kept, console)?;
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

fn tell(
    args: &Args,
    expected: Expected,
    records: u64,
    dest: &Path,
    kept: &[PathBuf],
    console: Console,
) -> Result<()> {
    let losses = expected.losses();
    let numbers = loss::in_words(expected.discrepancies.iter().copied());
    let (why, expected_records) = (expected.why, expected.records);
    let report = Report {
        source: args.source.display().to_string(),
        dest: dest.display().to_string(),
        kept: kept.iter().map(|name| name.display().to_string()).collect(),
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
    // What is left of the old file is there.
    let old = kept.first().unwrap_or(&args.source);
    console.note(format_args!(
        "converted {} of `{}` ({}) to `{}`{}",
        counted(report.records, "record"),
        report.source,
        report.source_format,
        report.dest,
        kept_in_words(&report.kept)
    ));
    if let Some(numbers) = numbers {
        let message = format!("`{}`: {numbers}; converted only the records found", report.source);
        return Err(Failure::new(Exit::No, message).hint(loss::hint(old)));
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
    Err(Failure::new(Exit::No, message).hint(why.hint(&old.display().to_string())))
}

fn kept_in_words(kept: &[String]) -> String {
    let names: Vec<_> = kept.iter().map(|name| format!("`{name}`")).collect();
    match names.as_slice() {
        [] => String::new(),
        [name] => format!("; the old file is now {name}"),
        names => format!("; the old files are now {}", names.join(" and ")),
    }
}
