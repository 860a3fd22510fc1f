//! `splitpoint lab compare`: two functions on the same keys, or two studies.

use std::path::PathBuf;

use splitpoint_lab::compare::{self, Comparison};
use splitpoint_lab::study::Interruption;
use splitpoint_lab::timing::{self, Sampler};
use splitpoint_lab::{Report, Setup, Study};

use super::list::FunctionName;
use super::measuring::Measuring;
use super::own::OwnArgs;
use super::saving::{self, Output};
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::number::counted;

/// Compare two functions on your keys, or two saved studies
///
/// With two --hash options, FILE holds keys, and both functions are measured and timed on them, by
/// turns, a function of a library in its own process. With two files, both are studies saved with --json FILE, the older one first, and every
/// measurement that both contain is compared.
///
/// The p value is the probability that chance alone makes a difference this large. For pairs of
/// keys in one bucket, it assumes that both hashes are ideal. For times, it comes from the
/// Mann-Whitney rank test on 15 runs each; the figures are their medians. A star marks differences
/// that chance does not explain: p below 2^-20, about one in a million, as in all verdicts; for
/// times, of which there are few runs, p below 0.001. Times under 0.1 ns cannot be told from zero.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab compare words.txt --hash fnv1a-32 --hash xxh3-64
  splitpoint lab compare ids --keys u64 --hash identity-64 --hash rapidhash-v3
  splitpoint lab compare ids --hash xxh3-64 --hash-library ./libmine.so:my_hash
  splitpoint lab hash words.txt --json old.json
  splitpoint lab hash words.txt --json new.json
  splitpoint lab compare old.json new.json")]
pub(super) struct Args {
    #[command(flatten)]
    measuring: Measuring,

    /// The newer study, with FILE as the older one
    #[arg(value_name = "NEWER", conflicts_with_all = ["hash", "hashes", "hash_command", "hash_library"])]
    newer: Option<PathBuf>,

    /// A hash function; give this option twice, or once beside a function of your own
    #[arg(long, value_name = "NAME", value_parser = FunctionName, hide_possible_values = true)]
    hash: Vec<String>,

    #[command(flatten)]
    own: OwnArgs,

    #[command(flatten)]
    output: Output,
}

/// Compares.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    match (&args.newer, args.hash.len() + args.own.count()) {
        (Some(newer), _) => of_studies(args, newer, console),
        (None, 2) => of_functions(args, console),
        (None, 0) => Err(Failure::new(Exit::Usage, "there is nothing to compare")
            .hint("give two functions, by --hash or your own, or two saved studies")),
        (None, function_count) => {
            let message = format!("compare takes two functions, not {function_count}");
            Err(Failure::new(Exit::Usage, message)
                .hint("to compare any number of functions, use splitpoint lab hash"))
        }
    }
}

fn of_functions(args: &Args, console: Console) -> Result<()> {
    let keys = &args.measuring.keys;
    let named = args.hash.iter().map(|name| keys.specimen(name)).collect::<Result<Vec<_>>>()?;
    // Hashes without keys cannot be compared with a function.
    keys.require_file(None)?;
    let mut session = keys.begin_with(&args.own, &args.output, console)?;
    let key_count = session.keys().len();
    let specimens = session.with_own(named);
    let setups = specimens.iter().map(|specimen| args.measuring.setup(specimen, key_count));
    let setups: Vec<Setup> = setups.collect::<Result<_>>()?;
    let seeds: Vec<_> = specimens.iter().map(|it| (*it, args.measuring.seed())).collect();
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
    session.check_own()?;
    study.interruption = outcome.interruption.or_else(|| {
        let missing = "keys of some lengths were not timed".to_owned();
        session.is_stopped().then_some(Interruption { key_count, missing })
    });
    args.output.deliver(&study, console)?;
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
        console.note("the machines differ, so their times cannot be compared");
    }
    let study = Study { differences, ..newer };
    args.output.deliver(&study, console)
}
