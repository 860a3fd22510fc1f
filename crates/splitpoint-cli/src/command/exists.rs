//! `splitpoint exists`: tell by the exit code whether keys are there.

use std::path::PathBuf;

use splitpoint::TableExt as _;

use crate::command::shared::Keys;
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::loss;
use crate::store;

/// Tell by the exit code whether keys are there
///
/// 0 if all of them are, 1 if one is missing. Nothing is printed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint exists capitals.spt France && echo yes
  splitpoint exists capitals.spt France Spain Italy
  splitpoint exists words.spt --stdin < list      # a key a line")]
pub(crate) struct Args {
    /// The store, or an old file
    file: PathBuf,

    #[command(flatten)]
    keys: Keys,
}

/// Ends with an error that says nothing if a key is missing.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let keys = args.keys.parse()?;
    let opened = store::open(&args.file, console)?;
    loss::warn_at_once(&opened, console);
    keys.try_for_each(|keys| {
        let values = opened.get_many(keys).map_err(|error| opened.failed(&error))?;
        let is_missing = values.iter().any(Option::is_none);
        if is_missing { Err(Failure::silent(Exit::No)) } else { Ok(()) }
    })
}
