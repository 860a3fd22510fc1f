//! `splitpoint count`: print the number of records.

use std::io::Write;
use std::path::PathBuf;

use crate::command::shared::Turn;
use crate::console::{self, Console};
use crate::failure::{Failure, Result};
use crate::loss::Extent;
use crate::store;

/// Print the number of records
///
/// If an old file is damaged, truncated or was not closed, counts the records that it can read and
/// exits with code 1 or 4.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint count words.spt")]
pub(crate) struct Args {
    /// The store, or an old file
    file: PathBuf,

    /// Print the number in a JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    turn: Turn,
}

/// Prints the number of records.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let opened = store::open(&args.file, args.turn.wait_max(), console)?;
    let extent = Extent::of(&opened)?;
    print(args, extent.record_count)?;
    extent.warn_if_unknown(console);
    extent.failure("counted only the records found").map_or(Ok(()), Err)
}

fn print(args: &Args, record_count: u64) -> Result<()> {
    if args.json {
        return console::print_json(&serde_json::json!({ "records": record_count }));
    }
    let mut out = console::data();
    writeln!(out, "{record_count}")
        .and_then(|()| out.flush())
        .map_err(|error| Failure::output(&error))
}
