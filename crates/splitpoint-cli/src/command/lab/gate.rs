//! `splitpoint lab gate`: fail a build if a hash function misses a limit.

use splitpoint_lab::gate::Limits;
use splitpoint_lab::{Report, Setup, Specimen, Study};

use super::keys::KeyArgs;
use super::list::FunctionName;
use super::measuring::setup;
use super::own::OwnArgs;
use super::saving::{self, Output};
use crate::command::shared::parse_seed;
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::number::{count, counted};

/// Fail if a hash function does not fit your keys, for continuous integration
///
/// Measures like `lab table` and compares the figures with limits. Prints each missed limit on a
/// separate line and exits with code 1. Without limits, a hit may cost up to 1.1 times the ideal.
///
/// To test your own function, in any language, have your program write the hash of every key to a
/// file, in the order of the keys, and pass that file to --hashes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab gate keys.txt --hash fnv1a-32 --max-cost 1.05
  splitpoint lab gate keys.txt --hash sdbm --buckets 1024 --buckets 65536
  splitpoint lab gate keys.txt --hashes hashes.txt --max-collisions 0
  splitpoint lab gate --hashes hashes.bin --hashes-as u64 --reduction high
  splitpoint lab gate keys.txt --hash fnv1a-32 --json | jq '.gates[]'")]
pub(super) struct Args {
    #[command(flatten)]
    keys: KeyArgs,

    /// The hash function
    #[arg(long, value_name = "NAME", value_parser = FunctionName, hide_possible_values = true)]
    hash: Option<String>,

    /// How a hash becomes a bucket: low, high, shift:N, modulus, prime, range, split, hashbrown, or
    /// own (the reduction published with the function, or low if there is none)
    #[arg(long, default_value = "own")]
    reduction: String,

    /// Number of buckets; repeat it to check several sizes [default: the number of keys, rounded up
    /// as the reduction requires]
    #[arg(long, value_name = "N")]
    buckets: Vec<u64>,

    /// The seed of seeded functions, in decimal or in hex with 0x
    #[arg(long, default_value = "0", value_parser = parse_seed)]
    seed: u64,

    #[command(flatten)]
    limits: LimitArgs,

    #[command(flatten)]
    own: OwnArgs,

    #[command(flatten)]
    output: Output,
}

/// The limits.
#[derive(Debug, clap::Args)]
struct LimitArgs {
    /// Maximum cost of a hit, relative to the ideal
    #[arg(long, value_name = "RATIO", value_parser = positive)]
    max_cost: Option<f64>,

    /// Maximum number of keys in the fullest bucket
    #[arg(long, value_name = "KEYS")]
    max_chain: Option<u64>,

    /// Minimum probability that an ideal hash fills a bucket as much as the fullest one
    #[arg(long, value_name = "P", alias = "max-chain-p", value_parser = share)]
    min_chain_p: Option<f64>,

    /// Minimum probability that an ideal hash spreads the keys as unevenly
    #[arg(long, value_name = "P", value_parser = share)]
    min_spread_p: Option<f64>,

    /// Minimum share of buckets that hold a key, from 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = share)]
    min_utilization: Option<f64>,

    /// Maximum number of keys that are not the first in their bucket
    #[arg(long, value_name = "KEYS")]
    max_dupes: Option<u64>,

    /// Maximum number of pairs of keys with equal hashes
    #[arg(long, value_name = "PAIRS")]
    max_collisions: Option<u64>,
}

/// The default limit.
const COST_MAX: f64 = 1.1;

impl LimitArgs {
    fn limits(&self) -> Limits {
        let limits = Limits {
            cost_max: self.max_cost,
            longest_max: self.max_chain,
            longest_p_min: self.min_chain_p,
            spread_p_min: self.min_spread_p,
            utilization_min: self.min_utilization,
            dupes_max: self.max_dupes,
            collisions_max: self.max_collisions,
        };
        if limits.is_empty() { Limits { cost_max: Some(COST_MAX), ..limits } } else { limits }
    }
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if number > 0.0 && f64::is_finite(number) => Ok(number),
        _ => Err("expected a number above 0".to_owned()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (0.0..=1.0).contains(&number) => Ok(number),
        _ => Err("expected a number from 0 to 1".to_owned()),
    }
}

/// Compares the reports of a study with the limits.
fn judge(args: &Args, study: &mut Study, console: Console) -> Result<()> {
    let limits = args.limits.limits();
    study.gates = study.reports.iter().flat_map(|report| limits.check(report)).collect();
    args.output.deliver(study, console)?;
    match study.gates.iter().filter(|gate| !gate.is_met).count() {
        0 => Ok(()),
        missed => {
            let limits = counted(count(study.gates.len()), "limit");
            let verb = if missed == 1 { "is" } else { "are" };
            let message = format!("{missed} of {limits} {verb} missed");
            Err(Failure::new(Exit::No, message)
                .hint("see the figures with lab table, and better functions with lab recommend"))
        }
    }
}

/// Measures, and fails if a limit is missed.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    args.own.require_one(args.hash.as_deref())?;
    let named = args.hash.as_deref().map(|name| args.keys.specimen(name)).transpose()?;
    let mut session = args.keys.begin_with(&args.own, &args.output, console)?;
    let setups = setups(args, session.only(named)?, session.keys().len())?;
    let outcome = session.measure(&args.keys, &setups, Report::new)?;
    if outcome.sampled_count > 0 && args.limits.max_collisions.is_some() {
        let message = "the pairs of equal hashes cannot be told: the hashes do not fit into memory";
        return Err(Failure::new(Exit::Usage, message)
            .hint("--memory-bytes allows more; or leave --max-collisions out"));
    }
    let mut study = saving::study(session.keys().facts().clone());
    study.reports = outcome.results;
    study.interruption = outcome.interruption;
    if study.interruption.is_some() {
        // Limits apply only to all of the keys.
        args.output.deliver(&study, console)?;
        return session.end(study.interruption.as_ref());
    }
    judge(args, &mut study, console)
}

/// Returns one measurement for each size.
fn setups(args: &Args, specimen: &'static Specimen, key_count: u64) -> Result<Vec<Setup>> {
    let of = |buckets| setup(specimen, args.seed, &args.reduction, buckets, key_count);
    if args.buckets.is_empty() {
        return Ok(vec![of(None)?]);
    }
    args.buckets.iter().map(|&buckets| of(Some(buckets))).collect()
}
