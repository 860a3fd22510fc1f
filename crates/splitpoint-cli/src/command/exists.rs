//! `splitpoint exists`: tell by the exit code whether keys are there.

use std::ffi::OsString;
use std::path::PathBuf;

use splitpoint::TableExt as _;

use crate::bytes::Notation;
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
  splitpoint exists capitals.spt France Spain Italy")]
pub(crate) struct Args {
    /// The store, or an old file
    file: PathBuf,

    /// The keys
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<OsString>,

    /// The keys are given in hex
    #[arg(long)]
    hex: bool,
}

/// Ends with an error that says nothing if a key is missing.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let notation = Notation::with_hex(args.hex);
    let keys = args.keys.iter().map(|key| notation.parse("key", key));
    let keys = keys.collect::<Result<Vec<_>>>()?;
    let opened = store::open(&args.file, console)?;
    loss::warn_at_once(&opened, console);
    for key in &keys {
        let value = opened.get(key).map_err(|error| opened.failed(&error))?;
        if value.is_none() {
            return Err(Failure::silent(Exit::No));
        }
    }
    Ok(())
}
