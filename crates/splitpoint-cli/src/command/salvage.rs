//! `splitpoint salvage`: save the readable records of a damaged old file.

use splitpoint::Error;

use crate::command::convert::Target;
use crate::command::shared::Saving;
use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::number::{count, counted};
use crate::progress::{Progress, Total};
use crate::store;

/// Save the readable records of a damaged old file to a new store
///
/// For files of gdbm, dbm, ndbm, sdbm, Kerberos, Berkeley DB and db 1.85 that are damaged or were
/// not closed; for stores use `repair`. Saves each key once: first the records that a lookup would
/// find, then those in buckets that nothing refers to any more. The latter are in doubt, because
/// they may have been deleted or replaced before the damage, so salvage lists their keys. The exit
/// code is 1 if anything is in doubt or damaged.
///
/// Never writes to the old file. The new store appears once it is complete.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint salvage damaged.gdbm -o saved.spt
  splitpoint salvage damaged.gdbm -o saved.spt --json")]
pub(crate) struct Args {
    #[command(flatten)]
    saving: Saving,
}

/// Saves the readable records of an old file.
pub(super) fn run(Args { saving: args }: &Args, console: Console) -> Result<()> {
    let failed = |error: &Error| store::opening(&args.file, error);
    let file = splitpoint_legacy::open_damaged(&args.file).map_err(|error| failed(&error))?;
    let interrupt = Interrupt::watch();
    let mut target = Target::create(&args.output, "salvage", None)?;
    let mut progress = Progress::start(args.showing.progress, console, "salvage", Total::Unknown);
    let mut doubtful = Vec::new();
    let mut stopped = None;
    let mut records = 0;
    let salvaged = file.salvage(|key, value, is_doubtful| {
        let outcome = match interrupt.exit() {
            Some(exit) => Err(Failure::interrupted(exit, "no store was created")),
            None => target.put(key, value),
        };
        if let Err(failure) = outcome {
            stopped = Some(failure);
            // Any error ends the walk.
            return Err(Error::Poisoned { reason: "stopped".to_string() });
        }
        if is_doubtful {
            doubtful.push(crate::bytes::shown(key));
        }
        records += 1;
        progress.update(records, 0);
        Ok(())
    });
    progress.finish(records, 0);
    drop(interrupt);
    if let Some(failure) = stopped {
        return Err(failure);
    }
    let damages = salvaged.map_err(|error| failed(&error))?;
    let left_out = target.finish()?.left_out;
    if args.showing.json {
        console::print_json(&serde_json::json!({
            "file": args.file.display().to_string(),
            "output": args.output.display().to_string(),
            "records": records,
            "in_doubt": doubtful,
            "damages": damages.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "left_out": left_out,
        }))?;
    } else {
        let lines = (damages.iter().map(|damage| format!("damage: {damage}\n")))
            .chain(doubtful.iter().map(|key| format!("in doubt: key `{key}`\n")))
            .chain(left_out.iter().map(|reason| format!("skipped: {reason}\n")));
        console::print_styled(&lines.collect::<String>())?;
    }
    console.note(format_args!(
        "saved {} of `{}` to `{}`, {} in doubt",
        counted(records, "record"),
        args.file.display(),
        args.output.display(),
        doubtful.len()
    ));
    if damages.is_empty() && doubtful.is_empty() && left_out.is_empty() {
        return Ok(());
    }
    let message = format!(
        "`{}`: {} and {} in doubt",
        args.file.display(),
        counted(count(damages.len()), "damaged place"),
        counted(count(doubtful.len()), "record"),
    );
    Err(Failure::new(Exit::No, message).hint("compare with a backup if you have one"))
}
