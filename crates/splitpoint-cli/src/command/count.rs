//! `splitpoint count`: print the number of records.

use std::io::Write;
use std::path::PathBuf;

use splitpoint::Table;

use crate::console::{self, Console};
use crate::failure::{Failure, Result};
use crate::loss;
use crate::store::{self, Readable};

/// Print the number of records
///
/// If an old file is damaged, was cut short or was not closed, the records that can be read are
/// counted, and the exit code is 1 or 4.
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
    let failed = |error| Failure::using(&args.file, &error);
    match store::open_any(&args.file, console)? {
        Readable::Store(db) => print(args, Table::len(&db).map_err(failed)?),
        Readable::Old(file) => {
            let survey = file.survey().map_err(failed)?;
            print(args, survey.pair_count)?;
            loss::warn_of_unknown_extent(&args.file, survey, console);
            let failure = loss::of_survey(&args.file, survey, "only what was found is counted");
            failure.map_or(Ok(()), Err)
        }
    }
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
