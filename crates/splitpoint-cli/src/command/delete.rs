//! `splitpoint delete`: remove records.

use std::ffi::OsString;
use std::path::PathBuf;

use splitpoint::{Options, TableExt as _};

use crate::bytes::{Notation, shown};
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::number::{count, counted};
use crate::store;

/// Remove records
///
/// Keys that are missing are named and give exit code 1; the others are removed all the same.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint delete capitals.spt France
  splitpoint delete capitals.spt France Spain Italy
  splitpoint list old.spt -0 | xargs -0 splitpoint delete new.spt --")]
pub(crate) struct Args {
    /// The store, or a file of db 1.85 as db185:FILE
    file: PathBuf,

    /// The keys
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<OsString>,

    /// The keys are given in hex
    #[arg(long)]
    hex: bool,
}

/// Removes records.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let notation = Notation::with_hex(args.hex);
    let keys: Vec<Vec<u8>> =
        args.keys.iter().map(|key| notation.parse("key", key)).collect::<Result<_>>()?;
    let db = store::open_to_write(&args.file, &Options::new(), console)?;
    let mut missing = Vec::new();
    for key in &keys {
        if !db.table().delete(key).map_err(|error| Failure::using(&args.file, &error))? {
            missing.push(key);
        }
    }
    db.close(&args.file)?;
    let Some(first) = missing.first() else { return Ok(()) };
    let file = args.file.display();
    let failure = Failure::new(Exit::No, format!("no key `{}` in `{file}`", shown(first)));
    if keys.len() == 1 {
        return Err(failure);
    }
    for key in &missing[1..] {
        console.note(format_args!("no key `{}` in `{file}`", shown(key)));
    }
    let removed = counted(count(keys.len() - missing.len()), "record");
    Err(failure
        .hint(format!("{removed} removed, {} not found", counted(count(missing.len()), "key"))))
}
