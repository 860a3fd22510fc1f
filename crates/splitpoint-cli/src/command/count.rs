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
    /// The store
    file: PathBuf,

    /// Print an object with the number
    #[arg(long)]
    json: bool,
}

/// Prints the number of records.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let db = store::open_to_read(&args.file, console)?;
    let record_count = db.len();
    if args.json {
        return console::print_json(&serde_json::json!({ "records": record_count }));
    }
    let mut out = console::data();
    writeln!(out, "{record_count}")
        .and_then(|()| out.flush())
        .map_err(|error| Failure::output(&error))
}
