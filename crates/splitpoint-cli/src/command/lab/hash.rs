//! `splitpoint lab hash`: every function on the same keys, best first.

use std::fmt::Write as _;

use splitpoint_lab::{Report, Setup, Study, Verdict};

use super::measuring::Measuring;
use super::saving::{self, Output};
use crate::console::Console;
use crate::failure::Result;
use crate::number::{bytes, counted, grouped};

/// Compare hash functions on your keys, best first
///
/// Each function spreads the keys over a table by the reduction it came with. The cost is that
/// of finding every key once, in units of what an ideal hash costs: 1.000 is ideal. Functions
/// of kernel caches, whose keys hold addresses, take part only if they are named by --hash.
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

    /// Compare only these functions
    #[arg(long, value_name = "NAME")]
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
    args.output.deliver(&study, console, in_words)?;
    session.end(study.interruption.as_ref())
}

/// Returns the text of a study.
pub(super) fn in_words(study: &Study) -> String {
    let Study { keys: facts, reports, .. } = study;
    let mut out = format!(
        "{}: {}, {}\n\n{:<19}{:<14}{:>9}{:>9}{:>7}{:>10}  {}\n",
        facts.source,
        counted(facts.key_count, "key"),
        bytes(facts.key_bytes),
        "hash",
        "reduction",
        "buckets",
        "longest",
        "ideal",
        "cost",
        "verdict"
    );
    for report in reports {
        let verdict = match report.verdict {
            Verdict::Fits => "fits",
            Verdict::Structured => "structured",
            worse if worse.is_slight() => "slight",
            Verdict::Worse { .. } => "worse",
        };
        // Constants are in `lab list`; here they would break the columns.
        let reduction = report.reduction.split(':').next().unwrap_or_default();
        let _ = writeln!(
            out,
            "{:<19}{reduction:<14}{:>9}{:>9}{:>7.1}{:>10.3}  {verdict}",
            report.hash,
            report.bucket_count,
            grouped(report.longest),
            report.longest_ideal,
            report.cost_ratio,
        );
    }
    out.push('\n');
    let has = |is_such: fn(&Verdict) -> bool| reports.iter().any(|one| is_such(&one.verdict));
    if has(|verdict| *verdict == Verdict::Structured) {
        out.push_str(
            "structured: not by chance but no worse, since the keys are regular; others\n\
             will not fare as well\n",
        );
    }
    if has(Verdict::is_slight) {
        out.push_str(
            "slight: worse than by chance, which is certain, but a hit costs less than 1.05\n\
             times the ideal\n",
        );
    }
    out
}
