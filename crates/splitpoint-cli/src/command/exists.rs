//! `splitpoint exists`: test whether keys exist.

use std::path::PathBuf;

use splitpoint::TableExt as _;

use crate::command::shared::{Keys, Turn};
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::loss;
use crate::store;

/// Test whether keys exist
///
/// Prints nothing. The exit code is 0 if all keys exist and 1 if any is missing.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint exists capitals.spt France && echo yes
  splitpoint exists capitals.spt France Spain Italy
  splitpoint exists words.spt --stdin < list      # one key per line")]
pub(crate) struct Args {
    /// The store, or an old file
    file: PathBuf,

    #[command(flatten)]
    keys: Keys,

    #[command(flatten)]
    turn: Turn,
}

/// Fails silently if a key is missing.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let keys = args.keys.parse()?;
    let opened = store::open(&args.file, args.turn.wait_max(), console)?;
    loss::warn_at_once(&opened, console);
    keys.try_for_each(|keys| {
        let values = opened.get_many(keys).map_err(|error| opened.failed(&error))?;
        let is_missing = values.iter().any(Option::is_none);
        if is_missing { Err(Failure::silent(Exit::No)) } else { Ok(()) }
    })
}
