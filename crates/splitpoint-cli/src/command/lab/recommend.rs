//! `splitpoint lab recommend`: which function and reduction to use.

use std::collections::BTreeMap;

use splitpoint_lab::choose::{self, Distribution, REDUCTIONS, SEEDS};
use splitpoint_lab::line_load::{TABLE_BYTES_MAX, line_load_ns};
use splitpoint_lab::specimen::Seeding;
use splitpoint_lab::study::{Interruption, Spread, Timing, Wishes};
use splitpoint_lab::timing::{self, Sampler};
use splitpoint_lab::{Specimen, Study, report};

use super::keys::KeyArgs;
use super::list::FunctionName;
use super::measuring::Session;
use super::own::OwnArgs;
use super::saving::{self, Output};
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::look::look;
use crate::number::{bytes, count, counted};
use crate::progress::{Progress, Total};

/// Recommend the hash function and reduction that cost least on your keys
///
/// The cost is the time of a successful lookup in a chained table on this machine. It adds the
/// latency of the hash on these keys and one cache line for the bucket and for each key compared,
/// at the measured time of a line in a table of this size. The number of keys compared is the worst
/// over seven sizes and three seeds, if that is more than chance explains.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab recommend /usr/share/dict/words
  splitpoint lab recommend ids --keys u64 --buckets 1048576
  splitpoint lab recommend paths --on-disk       # files store the hashes
  splitpoint lab recommend names --hostile       # untrusted keys
  splitpoint lab recommend paths --json | jq '.choices[0]'")]
pub(super) struct Args {
    #[command(flatten)]
    keys: KeyArgs,

    /// Number of buckets [default: the number of keys, rounded up to a power of two]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    buckets: Option<u64>,

    /// Consider only functions whose output is frozen, because files store the hashes
    #[arg(long)]
    on_disk: bool,

    /// Consider only functions with a secret key, because an attacker may choose the keys
    #[arg(long)]
    hostile: bool,

    /// Consider only this function; repeat it for more
    #[arg(long, value_name = "NAME", value_parser = FunctionName, hide_possible_values = true)]
    hash: Vec<String>,

    /// Show every reduction of every function
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    own: OwnArgs,

    #[command(flatten)]
    output: Output,
}

/// Measures the candidates and prints them, the one to take first.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let wishes = Wishes { on_disk: args.on_disk, hostile: args.hostile };
    let candidates = candidates(args, wishes)?;
    if args.own.count() > 0 {
        if args.hostile {
            let message = "--hostile asks for a function with a secret key, which your own has not";
            return Err(Failure::new(Exit::Usage, message).hint(
                "it gets a seed of 64 bits at most, with which an attacker finds keys that \
                 collide; leave it out or --hostile",
            ));
        }
        // Without keys, nothing can be timed beside it.
        args.keys.require_file(None)?;
    }
    let session = args.keys.begin_with(&args.own, &args.output, console)?;
    let candidates = session.with_own(candidates);
    let key_count = session.keys().len();
    let bucket_count = args.buckets.unwrap_or(key_count.next_power_of_two());
    check_memory(args, bucket_count, &session)?;
    let study = saving::study(session.keys().facts().clone());
    let study = Study { wishes, ..study };
    let study = measure(study, &candidates, bucket_count, &session, args, console)?;
    let text = || report::document(&study).text(&look(args.all));
    args.output.deliver_with(&study, console, text)?;
    session.end(study.interruption.as_ref())
}

/// Returns the named functions, or all that suit the keys and the wishes.
fn candidates(args: &Args, wishes: Wishes) -> Result<Vec<&'static Specimen>> {
    let mut specimens = args.keys.specimens(&args.hash)?;
    if args.hash.is_empty() {
        specimens.retain(|specimen| choose::refusal(wishes, specimen).is_none());
    }
    for specimen in &specimens {
        if let Some(refusal) = choose::refusal(wishes, specimen) {
            return Err(Failure::new(Exit::Usage, format!("`{}`: {refusal}", specimen.name())));
        }
    }
    Ok(specimens)
}

/// Refuses a table whose counters do not fit into memory with the keys and their hashes.
fn check_memory(args: &Args, bucket_count: u64, session: &Session) -> Result<()> {
    let counters = choose::counter_bytes_max(bucket_count);
    let hashes = session.keys().len().saturating_mul(8);
    let needed = counters.saturating_add(hashes).saturating_add(session.keys().memory_bytes());
    if needed <= args.keys.memory_bytes {
        return Ok(());
    }
    let message = format!(
        "the keys, their hashes and the largest table tried for {} take {}; --memory-bytes \
         allows {}",
        counted(bucket_count, "bucket"),
        bytes(needed),
        bytes(args.keys.memory_bytes)
    );
    Err(Failure::new(Exit::Usage, message)
        .hint("--memory-bytes allows more; or use a sample of the keys"))
}

/// Measures the candidates and ranks their choices, the one to take first.
fn measure(
    mut study: Study,
    candidates: &[&'static Specimen],
    bucket_count: u64,
    session: &Session,
    args: &Args,
    console: Console,
) -> Result<Study> {
    let key_count = session.keys().len();
    study.timings = timings(candidates, session, args)?;
    let total = Total::Records(key_count * count(candidates.len()));
    let mut progress = Progress::start(args.keys.progress, console, "trying", total);
    let mut line_ns: BTreeMap<u64, Spread> = BTreeMap::new();
    let mut measured_count = 0;
    for &specimen in candidates {
        let is_timing_of = |timing: &&Timing| timing.is_mixed && timing.hash == specimen.name();
        let timing = study.timings.iter().find(is_timing_of);
        if timing.is_none() && !specimen.is_foreign() {
            break;
        }
        let hash_ns = timing.map(|timing| timing.latency_ns.median);
        let distributions = distributions(specimen, bucket_count, session, args)?;
        if session.is_stopped() {
            break;
        }
        for (distribution, reduction) in distributions.iter().zip(REDUCTIONS) {
            let buckets = choose::bucket_count_for(reduction, bucket_count);
            // The largest table that the lab builds stands for all larger ones.
            let table_bytes = choose::table_bytes(buckets, key_count).min(TABLE_BYTES_MAX);
            let line = line_ns.entry(table_bytes).or_insert_with(|| line_load_ns(table_bytes));
            study.choices.push(distribution.choice(specimen, hash_ns, line));
        }
        measured_count += 1;
        progress.update(key_count * measured_count, 0);
    }
    progress.finish(key_count * measured_count, 0);
    choose::rank(&mut study.choices);
    study.interruption = interruption(key_count, measured_count, count(candidates.len()));
    Ok(study)
}

/// Times the candidates on a sample of the keys, until the work is stopped.
fn timings(
    candidates: &[&'static Specimen],
    session: &Session,
    args: &Args,
) -> Result<Vec<Timing>> {
    let mut sampler = Sampler::new();
    session.for_each(&args.keys, |key| {
        sampler.add(key);
        true
    })?;
    let functions: Vec<_> = candidates.iter().map(|&specimen| (specimen, SEEDS[1])).collect();
    let samples = sampler.finish();
    let time = |sample| timing::time(&functions, sample, || session.is_stopped());
    Ok(samples.iter().flat_map(time).collect())
}

/// Returns what is missing if not all functions were measured.
fn interruption(key_count: u64, measured_count: u64, all_count: u64) -> Option<Interruption> {
    (measured_count < all_count).then(|| {
        let missing = format!("only {measured_count} of {all_count} functions were measured");
        Interruption { key_count, missing }
    })
}

/// Tries one function with every reduction, size and seed.
fn distributions(
    specimen: &'static Specimen,
    bucket_count: u64,
    session: &Session,
    args: &Args,
) -> Result<Vec<Distribution>> {
    let usage = |error: splitpoint_lab::Error| {
        Failure::new(Exit::Usage, error.to_string()).hint("choose another --buckets")
    };
    let mut distributions: Vec<Distribution> = REDUCTIONS
        .iter()
        .map(|&reduction| Distribution::new(specimen, reduction, bucket_count).map_err(usage))
        .collect::<Result<_>>()?;
    let is_seeded = specimen.seeding() != Seeding::None;
    for &seed in if is_seeded { &SEEDS[..] } else { &SEEDS[..1] } {
        let mut hashes = Vec::with_capacity(session.keys().len() as usize);
        session.for_each_hash(&args.keys, (specimen, seed), |_, hash| {
            hashes.push(hash);
            true
        })?;
        if session.is_stopped() {
            break;
        }
        for distribution in &mut distributions {
            distribution.add(&hashes);
        }
    }
    Ok(distributions)
}
