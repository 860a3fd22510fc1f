//! `splitpoint lab hash`: every function on the same keys, best first.

use std::fmt::Write as _;

use splitpoint_lab::specimen::KeyLayout;
use splitpoint_lab::{Report, Specimen, Study, Verdict};

use super::list::by_name;
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
    args.output.check()?;
    let specimens = specimens(args)?;
    let keys = args.measuring.read_keys(console)?;
    let mut reports = Vec::with_capacity(specimens.len());
    for specimen in specimens {
        let setup = args.measuring.setup(specimen, keys.facts().key_count)?;
        reports.push(Report::new(&setup.count(keys.iter())));
    }
    reports.sort_by(|one, other| one.cost_ratio.total_cmp(&other.cost_ratio));
    let study = Study { reports, ..saving::study(keys.facts().clone()) };
    args.output.deliver(&study, console, in_words)
}

fn specimens(args: &Args) -> Result<Vec<&'static Specimen>> {
    if !args.hash.is_empty() {
        return args.hash.iter().map(|name| by_name(name)).collect();
    }
    let suits = |specimen: &&'static Specimen| match specimen.layout() {
        KeyLayout::Bytes => true,
        KeyLayout::Word32 => args.measuring.has_words_of(4),
        KeyLayout::Word64 => args.measuring.has_words_of(8),
        _ => false,
    };
    Ok(Specimen::all().filter(suits).collect())
}

/// Returns the text of a study.
pub(super) fn in_words(study: &Study) -> String {
    let Study { keys: facts, reports, .. } = study;
    let mut out = format!(
        "{}: {}, {}\n\n{:<19}{:<14}{:>9}{:>8}{:>8}{:>9}  {}\n",
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
            Verdict::Worse { .. } => "worse",
        };
        // Constants are in `lab list`; here they would break the columns.
        let reduction = report.reduction.split(':').next().unwrap_or_default();
        let _ = writeln!(
            out,
            "{:<19}{reduction:<14}{:>9}{:>8}{:>8.1}{:>9.3}  {verdict}",
            report.hash,
            report.bucket_count,
            grouped(report.longest),
            report.longest_ideal,
            report.cost_ratio,
        );
    }
    out.push_str(
        "\nstructured: more even than chance, since the keys are regular; others will not\n\
         fare as well\n",
    );
    out
}
