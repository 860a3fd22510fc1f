//! `splitpoint stat`: counts, sizes and the chain histogram of a store.

use std::path::PathBuf;

use crate::console::{self, Console};
use crate::failure::{Failure, Result};
use crate::report::StatReport;
use crate::store;

/// Print counts, sizes and the chain histogram of a store
///
/// The histogram counts buckets by the number of their keys and sets beside it what an ideal
/// hash function would give in a table of this shape, so that a hash function that does not
/// suit the keys is seen at once.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint stat words.spt
  splitpoint stat words.spt --json | jq .chains.longest")]
pub(crate) struct Args {
    /// The store
    file: PathBuf,

    /// Print everything in one object
    #[arg(long)]
    json: bool,
}

/// Prints counts, sizes and the chain histogram.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let db = store::open_to_read(&args.file, console)?;
    let stats = db.stats().map_err(|error| Failure::using(&args.file, &error))?;
    let report = StatReport::new(args.file.display().to_string(), &stats);
    if args.json { console::print_json(&report) } else { console::print_styled(&report.to_text()) }
}
