//! `splitpoint count`: print the number of records.

use std::io::Write;
use std::path::PathBuf;

use crate::console::{self, Console};
use crate::failure::{Failure, Result};
use crate::store;

/// Print the number of records
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint count words.spt")]
pub(crate) struct Args {
    /// The store, or an old file
    file: PathBuf,

    /// Print an object with the number
    #[arg(long)]
    json: bool,
}

/// Prints the number of records.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let opened = store::open_any(&args.file, console)?;
    let counted = opened.table().len();
    let record_count = counted.map_err(|error| Failure::using(&args.file, &error))?;
    if args.json {
        return console::print_json(&serde_json::json!({ "records": record_count }));
    }
    let mut out = console::data();
    writeln!(out, "{record_count}")
        .and_then(|()| out.flush())
        .map_err(|error| Failure::output(&error))
}
