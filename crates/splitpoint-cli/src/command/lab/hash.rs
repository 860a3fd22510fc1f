//! `splitpoint lab hash`: all functions on the same keys, best first.

use splitpoint_lab::timing::{self, Sampler};
use splitpoint_lab::{Report, Setup};

use super::list::FunctionName;
use super::measuring::Measuring;
use super::own::OwnArgs;
use super::saving::{self, Output};
use crate::console::Console;
use crate::failure::Result;

/// Compare hash functions on your keys, best first
///
/// Each function spreads the keys over a table with the reduction it was published with. The cost
/// is that of finding every key once, relative to an ideal hash, which costs 1.000. Functions that fit
/// are ranked by the time to hash these keys, measured on this machine. Hash functions of kernel
/// caches, whose keys hold addresses, take part only if --hash names them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab hash /usr/share/dict/words
  splitpoint lab hash ids --keys u64 --reduction low --buckets 65536
  splitpoint lab hash paths --hash fnv1a-32 --hash xxh3-64 --json
  find . -print0 | splitpoint lab hash - --keys nul
  splitpoint lab hash words --hash-command ./my-hash  # beside yours")]
pub(super) struct Args {
    #[command(flatten)]
    measuring: Measuring,

    /// Compare only this function; repeat it for more
    #[arg(long, value_name = "NAME", value_parser = FunctionName, hide_possible_values = true)]
    hash: Vec<String>,

    /// Do not time the functions, and sort those that fit by name
    #[arg(long)]
    no_times: bool,

    #[command(flatten)]
    own: OwnArgs,

    #[command(flatten)]
    output: Output,
}

/// Compares.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let keys = &args.measuring.keys;
    let specimens = keys.specimens(&args.hash)?;
    args.own.require_keys_for(&args.hash, keys)?;
    let mut session = keys.begin_with(&args.own, &args.output, console)?;
    let specimens = session.with_own(specimens);
    let key_count = session.keys().len();
    let setups: Result<Vec<Setup>> =
        specimens.iter().map(|specimen| args.measuring.setup(specimen, key_count)).collect();
    let outcome = session.measure(keys, &setups?, Report::new)?;
    let mut study = saving::study(session.keys().facts().clone());
    study.reports = outcome.results;
    study.reports.sort_by(|one, other| {
        let [one_grade, other_grade] = [one, other].map(|report| report.verdict.grade());
        one_grade.cmp(&other_grade).then(one.cost_ratio.total_cmp(&other.cost_ratio))
    });
    study.interruption = outcome.interruption;
    if !args.no_times && session.has_keys() && study.interruption.is_none() {
        let seed = args.measuring.seed();
        let functions: Vec<_> = specimens.iter().map(|specimen| (*specimen, seed)).collect();
        let mut sampler = Sampler::new();
        session.for_each(keys, |key| {
            sampler.add(key);
            true
        })?;
        let sample = sampler.finish().into_iter().next();
        let times = |sample| timing::time(&functions, &sample, || session.is_stopped());
        study.timings = sample.map_or_else(Vec::new, times);
        session.check_own()?;
    }
    args.output.deliver(&study, console)?;
    session.end(study.interruption.as_ref())
}
