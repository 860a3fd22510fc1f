//! `splitpoint stat`: counts, sizes and the chain histogram of a store.

use std::path::PathBuf;

use crate::chains::{self, Form};
use crate::console::{self, Console};
use crate::failure::Result;
use crate::loss;
use crate::old_report::OldReport;
use crate::report::StatReport;
use crate::store;

/// Print counts, sizes and the chain histogram of a store
///
/// The histogram counts buckets by their number of keys, beside the counts that an ideal hash
/// function would give in a table of this shape. A hash function that does not suit the keys thus
/// shows at a glance.
///
/// For an old file, prints its parameters, its buckets by their number of records, and the same
/// histogram of its keys.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint stat words.spt
  splitpoint stat words.spt --json | jq .chains.longest
  splitpoint stat words.spt --style vmstat")]
pub(crate) struct Args {
    /// The store, or an old file
    file: PathBuf,

    /// How to print the histogram
    #[arg(long, value_enum, default_value_t, value_name = "STYLE", conflicts_with = "json")]
    style: Form,

    /// Print all of it as a JSON object
    #[arg(long)]
    json: bool,
}

/// Prints counts, sizes and the chain histogram.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let opened = store::open(&args.file, console)?;
    loss::warn_at_once(&opened, console);
    let failed = |error| opened.failed(&error);
    let stats = opened.stats().map_err(failed)?;
    let name = args.file.display().to_string();
    if let Some(file) = opened.as_old() {
        let survey = file.survey().map_err(failed)?;
        let report = OldReport::new(name.clone(), file, survey, &stats);
        return match args.style {
            _ if args.json => console::print_json(&report),
            Form::Full => console::print_styled(&report.to_text()),
            Form::Lever => console::print_styled(&chains::lever_text(&stats.chains.rows)),
            Form::Vmstat => console::print_styled(&chains::vmstat_text(&name, &stats.chains.rows)),
        };
    }
    if args.json {
        return console::print_json(&StatReport::new(name, &stats));
    }
    console::print_styled(&match args.style {
        Form::Full => StatReport::new(name, &stats).to_text(),
        Form::Lever => chains::lever_text(&stats.chains.rows),
        Form::Vmstat => chains::vmstat_text(&name, &stats.chains.rows),
    })
}
