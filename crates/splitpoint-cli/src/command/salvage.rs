//! `splitpoint salvage`: save the readable records of a damaged old file.

use splitpoint::Error;
use splitpoint_legacy::{Doubt, KeyValue, OldFile};

use crate::command::duplicates::{CHOOSE, Duplicates, Keep, Records, Several, Taken};
use crate::command::shared::Saving;
use crate::command::target::{Format, LeftOut, Target};
use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::number::{count, counted, grouped};
use crate::progress::{Progress, Total};
use crate::store;

/// Save the readable records of a damaged old file to a new store
///
/// For files of gdbm, dbm, ndbm, sdbm, Kerberos, Berkeley DB, db 1.85, cdb and Python's dbm.dumb that
/// are damaged or were not closed; for stores use `repair`. Saves each key once: first the records
/// that a lookup would find, then those in buckets that nothing refers to any more. The latter are
/// in doubt, because they may have been deleted or replaced before the damage, so salvage lists
/// their keys. The exit code is 1 if anything is in doubt, damaged or left out.
///
/// A key of Berkeley DB or cdb may have several values. --duplicates says what becomes of them.
/// Without it, salvage saves the first, and counts the others as left out. If the chosen value is
/// unreadable, salvage saves no other in its place.
///
/// Never writes to the old file. The new store appears once it is complete, with the permissions of
/// the old file, less those that the umask withholds.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint salvage damaged.gdbm -o saved.spt
  splitpoint salvage tags.db -o saved.spt --duplicates all-as-N
  splitpoint salvage damaged.gdbm -o saved.spt --json")]
pub(crate) struct Args {
    #[command(flatten)]
    saving: Saving,

    /// What to save of a key with several values
    #[arg(long, value_enum, ignore_case = true, value_name = "KEEP")]
    duplicates: Option<Duplicates>,
}

/// Saves the readable records of an old file.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let Args { saving, duplicates } = args;
    let failed = |error: &Error| store::opening(&saving.file, error);
    let file = splitpoint_legacy::open_damaged(&saving.file).map_err(|error| failed(&error))?;
    let keep = match duplicates {
        Some(Duplicates::Last) => Keep::Last,
        Some(Duplicates::AllAsN) => Keep::Numbered,
        Some(Duplicates::First | Duplicates::Fail) | None => Keep::First,
    };
    let mut taken = Taken::default();
    if keep == Keep::Numbered {
        let noted = walk(&file, args, |one, _| {
            taken.note(&one.key);
            Ok(())
        });
        noted?;
    }
    let format = Format::Store { has_gdbm_mark: false };
    let mut target = Target::create(&saving.output, "salvage", &format, file.identity().files())?;
    let mode = saving.showing.progress;
    let mut progress = Progress::start(mode, console, "salvage", Total::Unknown);
    let mut saved = Saved::default();
    let mut put = |key: &[u8], value: &[u8], number| match taken.refusal(key, number) {
        Some(reason) => {
            target.leave_out(key, &reason);
            Ok(())
        }
        None => target.put(key, value),
    };
    let mut records = Records::new(keep);
    let damages = walk(&file, args, |one, is_doubtful| {
        saved.count(&one, is_doubtful);
        progress.update(saved.values, 0);
        records.take(&one, &mut put)
    })?;
    records.finish(&mut put)?;
    progress.finish(saved.values, 0);
    if *duplicates == Some(Duplicates::Fail) && saved.several.keys > 0 {
        let (name, keys) = (saving.file.display(), saved.several.keys_in_words());
        let message = format!("`{name}` has {keys}; nothing was saved");
        return Err(Failure::new(Exit::No, message).hint(CHOOSE));
    }
    let made = target.finish()?;
    saved.records = made.records;
    saved.left_out = made.left_out;
    if duplicates.is_none() && saved.several.further > 0 {
        saved.left_out.add(saved.several.left_out(), saved.several.further);
    }
    tell(args, &damages, &saved, keep, console)
}

/// Calls `take` with every value of a salvage, and returns the damage. Ends at an interrupt.
fn walk(
    file: &OldFile,
    args: &Args,
    mut take: impl FnMut(KeyValue<'_>, bool) -> Result<()>,
) -> Result<Vec<Doubt>> {
    let interrupt = Interrupt::watch();
    let mut stopped = None;
    let salvaged = file.salvage(|one, is_doubtful| {
        let outcome = match interrupt.exit() {
            Some(exit) => Err(Failure::interrupted(exit, "no store was created")),
            None => take(one, is_doubtful),
        };
        outcome.map_err(|failure| {
            stopped = Some(failure);
            // Any error ends the walk.
            Error::Poisoned { reason: "stopped".to_string() }
        })
    });
    match stopped {
        Some(failure) => Err(failure),
        None => salvaged.map_err(|error| store::opening(&args.saving.file, &error)),
    }
}

/// What a salvage found, and made of it.
#[derive(Debug, Default)]
struct Saved {
    /// Readable values.
    values: u64,
    several: Several,
    /// Keys of which a value is in doubt.
    doubtful: Vec<String>,
    /// Records of the new store.
    records: u64,
    left_out: LeftOut,
}

impl Saved {
    fn count(&mut self, one: &KeyValue<'_>, is_doubtful: bool) {
        self.values += u64::from(one.value.is_ok());
        self.several.count(one);
        if is_doubtful && one.value.is_ok() {
            let key = crate::bytes::shown(&one.key);
            // The values of a key follow each other.
            if one.number == 1 || self.doubtful.last() != Some(&key) {
                self.doubtful.push(key);
            }
        }
    }
}

fn tell(args: &Args, damages: &[Doubt], saved: &Saved, keep: Keep, console: Console) -> Result<()> {
    let Saved { several, doubtful, records, left_out, .. } = saved;
    let saving = &args.saving;
    let file = saving.file.display();
    if saving.showing.json {
        console::print_json(&serde_json::json!({
            "file": file.to_string(),
            "output": saving.output.display().to_string(),
            "records": records,
            "further_values": several.further,
            "in_doubt": doubtful,
            "damages": damages.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "left_out": left_out.reasons,
            "left_out_count": left_out.count,
        }))?;
    } else {
        let lines = (damages.iter().map(|damage| format!("damage: {damage}\n")))
            .chain(doubtful.iter().map(|key| format!("in doubt: key `{key}`\n")))
            .chain([left_out.lines()]);
        console::print_styled(&lines.collect::<String>())?;
    }
    console.note(format_args!(
        "saved {} of `{file}` to `{}`, {} in doubt",
        counted(*records, "record"),
        saving.output.display(),
        grouped(count(doubtful.len()))
    ));
    if several.keys > 0 && args.duplicates.is_some() {
        console.note(format_args!("{}", several.kept(keep)));
    }
    if damages.is_empty() && doubtful.is_empty() && left_out.count == 0 {
        return Ok(());
    }
    let mut message = format!(
        "`{file}`: {} and {} in doubt",
        counted(count(damages.len()), "damaged place"),
        counted(count(doubtful.len()), "record"),
    );
    if left_out.count > 0 {
        message = format!("{message}; skipped {}", counted(left_out.count, "part"));
    }
    let is_undecided = several.further > 0 && args.duplicates.is_none();
    let hint = if is_undecided { CHOOSE } else { "compare with a backup if you have one" };
    Err(Failure::new(Exit::No, message).hint(hint))
}
