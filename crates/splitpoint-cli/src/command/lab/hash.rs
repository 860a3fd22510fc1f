//! `splitpoint lab hash`: all functions on the same keys, best first.

use splitpoint_lab::{Report, Setup};

use super::list::FunctionName;
use super::measuring::Measuring;
use super::saving::{self, Output};
use crate::console::Console;
use crate::failure::Result;

/// Compare hash functions on your keys, best first
///
/// Each function spreads the keys over a table with the reduction it was published with. The cost
/// is that of finding every key once, relative to an ideal hash, which costs 1.000. Hash functions
/// of kernel caches, whose keys hold addresses, take part only if --hash names them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab hash /usr/share/dict/words
  splitpoint lab hash ids --keys u64 --reduction low --buckets 65536
  splitpoint lab hash paths --hash fnv1a-32 --hash xxh3-64 --json
  find . -print0 | splitpoint lab hash - --keys nul")]
pub(super) struct Args {
    #[command(flatten)]
    measuring: Measuring,

    /// Compare only this function; repeat it for more
    #[arg(long, value_name = "NAME", value_parser = FunctionName, hide_possible_values = true)]
    hash: Vec<String>,

    #[command(flatten)]
    output: Output,
}

/// Compares.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let keys = &args.measuring.keys;
    let specimens = keys.specimens(&args.hash)?;
    let mut session = keys.begin(&args.output, console)?;
    let key_count = session.keys().len();
    let setups: Result<Vec<Setup>> =
        specimens.iter().map(|specimen| args.measuring.setup(specimen, key_count)).collect();
    let outcome = session.measure(keys, &setups?, Report::new)?;
    let mut study = saving::study(session.keys().facts().clone());
    study.reports = outcome.results;
    study.reports.sort_by(|one, other| one.cost_ratio.total_cmp(&other.cost_ratio));
    study.interruption = outcome.interruption;
    args.output.deliver(&study, console)?;
    session.end(study.interruption.as_ref())
}
