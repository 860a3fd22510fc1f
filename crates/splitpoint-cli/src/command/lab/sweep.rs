//! `splitpoint lab sweep`: functions and reductions at many table sizes and seeds.

use splitpoint_lab::measure::{Strip, Words};
use splitpoint_lab::reduction::prime_at_least;
use splitpoint_lab::specimen::Seeding;
use splitpoint_lab::{Reduction, Report, Setup, Specimen};

use super::keys::KeyArgs;
use super::list::FunctionName;
use super::own::OwnArgs;
use super::saving::{self, Output};
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};

/// Compare hash functions at many table sizes and seeds, to find where one fails
///
/// Measures every function with every reduction at every size, and with every seed if it takes one.
/// A function is as good as at its worst size. By default the sizes are the powers of two from 2^8
/// to four times the number of keys.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab sweep /usr/share/dict/words
  splitpoint lab sweep words --hash fnv1a-32 --hash sdbm --bits 8..20
  splitpoint lab sweep ids --keys u64 --reduction range --sizes 1000,1500,3000
  splitpoint lab sweep paths --primes --seeds 5 --json sweep.json")]
pub(super) struct Args {
    #[command(flatten)]
    keys: KeyArgs,

    /// Measure only this function; repeat it for more
    #[arg(long, value_name = "NAME", value_parser = FunctionName, hide_possible_values = true)]
    hash: Vec<String>,

    /// Measure only this reduction, at the sizes that it can address; repeat it for more: low,
    /// high, shift:N, modulus, prime, range, split, hashbrown, or own (the one published with a
    /// function)
    #[arg(long, value_name = "NAME")]
    reduction: Vec<String>,

    /// Tables of 2^N buckets for each N of the range, such as 8..24
    #[arg(long, value_name = "N..N", value_parser = bits)]
    bits: Option<(u32, u32)>,

    /// Tables with these numbers of buckets
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    sizes: Vec<u64>,

    /// For each power of two, the first prime at or above it
    #[arg(long)]
    primes: bool,

    /// Number of seeds for each function that takes one
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,

    #[command(flatten)]
    own: OwnArgs,

    #[command(flatten)]
    output: Output,
}

/// Bits of the smallest and the largest table.
const BITS_MIN: u32 = 8;
const BITS_MAX: u32 = 24;
fn bits(text: &str) -> Result<(u32, u32), String> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    match (first.parse(), last.trim_start_matches('=').parse()) {
        (Ok(first), Ok(last)) if first <= last && last <= 32 => Ok((first, last)),
        _ => Err("give two numbers from 0 to 32, as in 8..24".to_string()),
    }
}

/// Measures every combination.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let specimens = args.keys.specimens(&args.hash)?;
    args.own.require_keys_for(&args.hash, &args.keys)?;
    let mut session = args.keys.begin_with(&args.own, &args.output, console)?;
    let specimens = session.with_own(specimens);
    let setups = setups(args, &specimens, session.keys().len())?;
    let outcome = session.measure(&args.keys, &setups, |stats| light(Report::new(stats)))?;
    let mut study = saving::study(session.keys().facts().clone());
    study.reports = outcome.results;
    study.interruption = outcome.interruption;
    args.output.deliver(&study, console)?;
    session.end(study.interruption.as_ref())
}

/// Drops the bulky parts, which would fill a file of thousands of reports.
fn light(report: Report) -> Report {
    let test_count = report.test_count - report.collisions.len() as u32;
    Report {
        collisions: Vec::new(),
        pages: Vec::new(),
        probing: Vec::new(),
        item_shares: Vec::new(),
        strip: Strip::default(),
        alternatives: Vec::new(),
        words: Words::default(),
        rows: Vec::new(),
        test_count,
        ..report
    }
}

fn setups(args: &Args, specimens: &[&'static Specimen], key_count: u64) -> Result<Vec<Setup>> {
    let sizes = sizes(args, key_count);
    let usage = |error: splitpoint_lab::Error| Failure::new(Exit::Usage, error.to_string());
    let mut setups = Vec::new();
    for specimen in specimens {
        let own = specimen.historic_reduction().unwrap_or(Reduction::LowMask);
        let mut named = Vec::new();
        for name in &args.reduction {
            named.push(if name == "own" { own } else { name.parse().map_err(usage)? });
        }
        let seed_count = if specimen.seeding() == Seeding::None { 1 } else { args.seeds };
        for &size in &sizes {
            let reductions = if named.is_empty() { applicable(own, size) } else { named.clone() };
            for seed in 0..seed_count {
                // `flatten` drops the reductions that cannot address this size.
                let of_size = reductions.iter().map(|&reduction| {
                    // Keep no hashes: equal hashes are the same at every size.
                    Setup::new(specimen, seed, reduction, size).map(|it| it.sample_hashes(63))
                });
                setups.extend(of_size.flatten());
            }
        }
    }
    if setups.is_empty() {
        return Err(Failure::new(Exit::Usage, "no reduction can address a table of these sizes")
            .hint("low, high and hashbrown need powers of two, prime needs --primes"));
    }
    Ok(setups)
}

fn sizes(args: &Args, key_count: u64) -> Vec<u64> {
    let mut sizes = args.sizes.clone();
    if args.bits.is_some() || args.primes || sizes.is_empty() {
        let last = (key_count.next_power_of_two().ilog2() + 2).clamp(BITS_MIN + 2, BITS_MAX);
        let (first, last) = args.bits.unwrap_or((BITS_MIN, last));
        let powers = (first..=last).map(|bits| 1_u64 << bits);
        if args.primes {
            // Above 2^32 there is no table.
            sizes.extend(powers.filter(|&size| size < 1 << 32).map(prime_at_least));
        } else {
            sizes.extend(powers);
        }
    }
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Returns the reductions that differ for a table of this size: at a power of two, a modulus is a
/// mask and a range is a shift.
fn applicable(own: Reduction, size: u64) -> Vec<Reduction> {
    let mut reductions = if size.is_power_of_two() {
        vec![Reduction::LowMask, Reduction::HighShift]
    } else if Reduction::PrimeModulus.prepare(64, size).is_ok() {
        vec![Reduction::PrimeModulus, Reduction::Range, Reduction::Split]
    } else {
        vec![Reduction::Modulus, Reduction::Range, Reduction::Split]
    };
    let is_mask = match own {
        Reduction::Hashbrown | Reduction::Modulus => true,
        Reduction::Split => size.is_power_of_two(),
        _ => false,
    };
    if !reductions.contains(&own) && !is_mask {
        reductions.push(own);
    }
    reductions
}
