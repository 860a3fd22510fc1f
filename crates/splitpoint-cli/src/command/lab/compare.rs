//! `splitpoint lab compare`: two functions on the same keys, or two studies.

use std::fmt::Write as _;
use std::path::PathBuf;

use splitpoint_lab::compare::{self, CHANCE_P, Comparison};
use splitpoint_lab::number::probability;
use splitpoint_lab::study::{Difference, Interruption, Timing};
use splitpoint_lab::timing::{self, Sampler};
use splitpoint_lab::{Report, Setup, Specimen, Study};

use super::list::by_name;
use super::measuring::Measuring;
use super::saving::{self, Output};
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::number::counted;

/// Compare two functions on your keys, or two saved studies
///
/// With --hash twice, FILE holds keys: both functions are measured and timed on them, in turns.
/// With two files, both are studies that --json FILE saved, the older one first: what both have
/// is compared, measurement by measurement.
///
/// A p tells how often chance makes so large a difference: of the pairs of keys in one bucket,
/// were both hashes ideal; of times, by Welch's test of 15 runs each. Differences that chance does
/// not explain, at 0.001, have a star.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab compare words.txt --hash fnv1a-32 --hash xxh3-64
  splitpoint lab compare ids --keys u64 --hash identity-64 --hash rapidhash-v3
  splitpoint lab hash words.txt --json old.json
  splitpoint lab hash words.txt --json new.json
  splitpoint lab compare old.json new.json")]
pub(super) struct Args {
    #[command(flatten)]
    measuring: Measuring,

    /// The newer study, if FILE is the older one
    #[arg(value_name = "NEWER", conflicts_with = "hash")]
    newer: Option<PathBuf>,

    /// The functions: give it twice
    #[arg(long, value_name = "NAME")]
    hash: Vec<String>,

    #[command(flatten)]
    output: Output,
}

/// Compares.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    match (&args.newer, args.hash.as_slice()) {
        (Some(newer), _) => of_studies(args, newer, console),
        (None, [left, right]) => of_functions(args, by_name(left)?, by_name(right)?, console),
        (None, []) => Err(Failure::new(Exit::Usage, "there is nothing to compare")
            .hint("give two functions by --hash, or two saved studies")),
        (None, names) => {
            let message = format!("two functions can be compared, not {}", names.len());
            Err(Failure::new(Exit::Usage, message)
                .hint("splitpoint lab hash shows any number of them beside each other"))
        }
    }
}

fn of_functions(
    args: &Args,
    left: &'static Specimen,
    right: &'static Specimen,
    console: Console,
) -> Result<()> {
    let keys = &args.measuring.keys;
    let mut session = keys.begin(&args.output, console)?;
    let key_count = session.keys().len();
    let specimens = [left, right];
    let setups = specimens.map(|specimen| args.measuring.setup(specimen, key_count));
    let setups: Vec<Setup> = setups.into_iter().collect::<Result<_>>()?;
    let seeds = specimens.map(|specimen| (specimen, args.measuring.seed()));
    let outcome = session.measure(keys, &setups, Report::new)?;
    let mut sampler = Sampler::new();
    session.for_each(keys, |key| {
        sampler.add(key);
        true
    })?;
    let mut study = saving::study(session.keys().facts().clone());
    if let [left, right] = outcome.results.as_slice() {
        study.differences = compare::reports("", left, right);
    }
    study.reports = outcome.results;
    for sample in sampler.finish() {
        let timings = timing::time(&seeds, &sample, || session.is_stopped());
        if let [left, right] = timings.as_slice() {
            study.differences.extend(compare::timings(&compare::lengths(left), left, right));
        }
        study.timings.extend(timings);
    }
    study.interruption = outcome.interruption.or_else(|| {
        let missing = "the times of some lengths of keys".to_owned();
        session.is_stopped().then_some(Interruption { key_count, missing })
    });
    args.output.deliver(&study, console, in_words)?;
    session.end(study.interruption.as_ref())
}

fn of_studies(args: &Args, newer: &std::path::Path, console: Console) -> Result<()> {
    args.output.check()?;
    let (older, newer) = (saving::load(args.measuring.keys.file())?, saving::load(newer)?);
    let Comparison { differences, only_left, only_right } = compare::studies(&older, &newer);
    for (study, only) in [("older", only_left), ("newer", only_right)] {
        if !only.is_empty() {
            let first = &only[0];
            let more = match only.len() - 1 {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            console.note(format_args!("only the {study} study has {first}{more}"));
        }
    }
    if differences.is_empty() {
        return Err(Failure::new(Exit::No, "the studies have no measurement in common")
            .hint("measure the same functions, reductions, sizes and seeds"));
    }
    if older.keys.key_count != newer.keys.key_count {
        let (old, new) = (older.keys.key_count, newer.keys.key_count);
        console.note(format_args!("the keys differ: {} then, {new} now", counted(old, "key")));
    }
    if older.machine != newer.machine && !newer.timings.is_empty() {
        console.note("the machines differ: their times cannot be compared");
    }
    let study = Study { differences, ..newer };
    args.output.deliver(&study, console, studies_in_words)
}

fn in_words(study: &Study) -> String {
    let names: Vec<&str> = study.reports.iter().map(|report| &*report.hash).collect();
    let (left, right) = match names.as_slice() {
        [left, right] => (*left, *right),
        _ => ("first", "second"),
    };
    let reports: Vec<String> = study.reports.iter().map(of_report).collect();
    let mut out = format!(
        "{}, {}\n{}\n",
        study.keys.source,
        counted(study.keys.key_count, "key"),
        reports.concat()
    );
    out.push_str(&table(left, right, &study.differences));
    out.push('\n');
    for (number, report) in ["first", "second"].iter().zip(&study.reports) {
        let _ = writeln!(out, "{number}: {} {}", report.hash, report.verdict);
    }
    out.push_str(&conclusion(left, right, study));
    out
}

fn of_report(report: &Report) -> String {
    format!(
        "  {} (seed {}), reduction {}, {} buckets\n",
        report.hash, report.seed, report.reduction, report.bucket_count
    )
}

/// Returns the differences with a column for each side.
fn table(left: &str, right: &str, differences: &[Difference]) -> String {
    let mut out = format!(
        "{:<24}{:>15}{:>15}{:>9}{:>7}{:>9}\n",
        "",
        cut(left),
        cut(right),
        "ideal",
        "ratio",
        "p"
    );
    let all: Vec<&Difference> = differences.iter().collect();
    for group in all.chunk_by(|one, other| one.subject == other.subject) {
        let subject = &group[0].subject;
        if !subject.is_empty() {
            let _ = writeln!(out, "{subject}");
        }
        let indent = if subject.is_empty() { "" } else { "  " };
        for difference in group {
            let Difference { figure, left, right, ideal, p, .. } = difference;
            let star = if difference.is_beyond_chance() { "*" } else { " " };
            let ratio = match *left {
                0.0 => "-".to_owned(),
                left if right / left >= 1000.0 => format!("{:.0}", right / left),
                left => format!("{:.3}", right / left),
            };
            let line = format!(
                "{:<24}{:>15}{:>15}{:>9}{ratio:>7}{:>9}{star}",
                format!("{indent}{figure}"),
                shown(*left),
                shown(*right),
                ideal.map_or_else(|| "-".to_owned(), shown),
                p.map_or_else(|| "-".to_owned(), probability),
            );
            out.push_str(line.trim_end());
            out.push('\n');
        }
    }
    out
}

/// Cuts a name that would not fit its column.
fn cut(name: &str) -> String {
    name.chars().take(14).collect()
}

fn shown(figure: f64) -> String {
    if figure.abs() >= 1e5 { format!("{figure:.0}") } else { format!("{figure:.3}") }
}

/// Says which of the two is the better one, and in what.
fn conclusion(left: &str, right: &str, study: &Study) -> String {
    let is_mixed = |timing: &&Timing| timing.is_mixed;
    let times: Vec<&Timing> = study.timings.iter().filter(is_mixed).collect();
    let cost = study.differences.iter().find(|difference| difference.figure == "cost of a hit");
    let time = study.differences.iter().find(|difference| difference.figure == "latency, ns");
    let say = |what: &str, difference: Option<&Difference>| {
        let Some(difference) = difference else { return String::new() };
        if !difference.is_beyond_chance() {
            return format!("{what}: no difference that chance does not explain\n");
        }
        let is_left = difference.left < difference.right;
        let (better, worse) = if is_left {
            (difference.left, difference.right)
        } else {
            (difference.right, difference.left)
        };
        let name = if is_left { left } else { right };
        let ratio = if better > 0.0 { format!(" x{:.2}", worse / better) } else { String::new() };
        format!("{what}: {name} is better,{ratio} (p below {CHANCE_P})\n").replace(",  x", ", x")
    };
    let mut out = say("distribution", cost);
    if !times.is_empty() {
        out.push_str(&say("time", time));
    }
    out
}

fn studies_in_words(study: &Study) -> String {
    let changed = |difference: &&Difference| difference.differs();
    let different: Vec<Difference> = study.differences.iter().filter(changed).cloned().collect();
    let all = study.differences.len();
    if different.is_empty() {
        return format!("no figure differs, of {all}\n");
    }
    let beyond = different.iter().filter(|difference| difference.is_beyond_chance()).count();
    format!(
        "{}\n{} of {all} figures differ, {beyond} by more than chance\n",
        table("older", "newer", &different),
        different.len()
    )
}
