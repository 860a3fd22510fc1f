//! `splitpoint delete`: remove records.

use std::path::PathBuf;

use splitpoint::{Options, TableExt as _};

use crate::bytes::shown;
use crate::command::shared::{Keys, Turn};
use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Result};
use crate::format::{JsonEncoding, JsonRecord};
use crate::number::{count, counted};
use crate::store;

/// Remove records
///
/// If some keys are missing, removes the others, names the missing ones and exits with code 1.
///
/// While another process writes to the store, the command waits its turn.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint delete capitals.spt France
  splitpoint delete capitals.spt France Spain Italy
  splitpoint list old.spt -0 | splitpoint delete new.spt --stdin -0")]
pub(crate) struct Args {
    /// The store, or a db 1.85 file as db185:FILE
    file: PathBuf,

    #[command(flatten)]
    keys: Keys,

    #[command(flatten)]
    turn: Turn,

    /// Print a JSON object with the number of records removed and the missing keys
    #[arg(long)]
    json: bool,
}

/// Most keys that an error names.
const NAMED_MAX: usize = 10;

/// Removes records.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let keys = args.keys.parse()?;
    let table =
        store::open_to_write(&args.file, &args.turn.options_by_turns(Options::new()), console)?;
    let (mut missing, mut key_count) = (Vec::new(), 0);
    let deleted = keys.try_for_each(|keys| {
        for key in keys {
            if !table.delete(key).map_err(|error| table.failed(&error))? {
                missing.push(key.clone());
            }
            key_count += 1;
        }
        Ok(())
    });
    table.close()?;
    deleted?;
    if args.json {
        let encoding = JsonEncoding::with_hex(args.keys.hex);
        let missing: Vec<_> = missing.iter().map(|key| JsonRecord::of_key(key, encoding)).collect();
        console::print_json(&serde_json::json!({
            "store": args.file.display().to_string(),
            "deleted": key_count - missing.len(),
            "missing": missing,
        }))?;
    }
    let file = args.file.display();
    match missing.as_slice() {
        [] => Ok(()),
        [key] if key_count == 1 => {
            Err(Failure::new(Exit::No, format!("no key `{}` in `{file}`", shown(key))))
        }
        missing => {
            let named = missing.iter().take(NAMED_MAX).map(|key| format!("`{}`", shown(key)));
            let named = named.collect::<Vec<_>>().join(", ");
            let more = if missing.len() > NAMED_MAX { ", ..." } else { "" };
            let (found, all) = (count(missing.len()), counted(count(key_count), "key"));
            let message = format!("{found} of {all} not found in `{file}`: {named}{more}");
            let removed = counted(count(key_count - missing.len()), "record");
            Err(Failure::new(Exit::No, message).hint(format!("{removed} removed")))
        }
    }
}
