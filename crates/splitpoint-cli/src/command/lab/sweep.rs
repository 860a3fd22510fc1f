//! `splitpoint lab sweep`: functions and reductions over table sizes and seeds.

use std::fmt::Write as _;

use splitpoint_lab::measure::{Strip, Words};
use splitpoint_lab::reduction::prime_at_least;
use splitpoint_lab::specimen::Seeding;
use splitpoint_lab::{Reduction, Report, Setup, Specimen, Study, Verdict};

use super::keys::KeyArgs;
use super::saving::{self, Output};
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::number::{bytes, counted, grouped, percent};

/// Compare hash functions over table sizes and seeds: find the sizes at which one fails
///
/// Every function is measured with every reduction at every size, and with every seed if it has
/// one. What counts is the worst: a function is as good as it is at its worst size. Sizes are
/// powers of two if nothing else is said, from 2^8 to four times the number of keys.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab sweep /usr/share/dict/words
  splitpoint lab sweep words --hash fnv1a-32 --hash x65599 --bits 8..20
  splitpoint lab sweep ids --keys u64 --reduction range --sizes 1000,1500,3000
  splitpoint lab sweep paths --primes --seeds 5 --json sweep.json")]
pub(super) struct Args {
    #[command(flatten)]
    keys: KeyArgs,

    /// Measure only these functions
    #[arg(long, value_name = "NAME")]
    hash: Vec<String>,

    /// Measure only these reductions, at the sizes that they can address: low, high, shift:N,
    /// modulus, prime, range, split, hashbrown, or own: the one that a function came with
    #[arg(long, value_name = "NAME")]
    reduction: Vec<String>,

    /// Tables of 2^N buckets, from the first to the second number, as in 8..24
    #[arg(long, value_name = "N..N", value_parser = bits)]
    bits: Option<(u32, u32)>,

    /// Tables of these numbers of buckets
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    sizes: Vec<u64>,

    /// Tables of the first prime number from each power of two on
    #[arg(long)]
    primes: bool,

    /// Measure functions that take a seed with so many of them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,

    #[command(flatten)]
    output: Output,
}

/// Bits of the smallest and the largest table.
const BITS_MIN: u32 = 8;
const BITS_MAX: u32 = 24;
/// Sizes that have a place in the chart.
const CHART_MAX: usize = 18;
/// Cost from which a size at which others are fine is named.
const BUG_COST_RATIO: f64 = 1.05;
/// Those that are named.
const BUGS_SHOWN: usize = 12;

fn bits(text: &str) -> Result<(u32, u32), String> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    match (first.parse(), last.trim_start_matches('=').parse()) {
        (Ok(first), Ok(last)) if first <= last && last <= 32 => Ok((first, last)),
        _ => Err("give two numbers from 0 to 32, as in 8..24".to_string()),
    }
}

/// Measures.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let specimens = args.keys.specimens(&args.hash)?;
    let mut session = args.keys.begin(&args.output, console)?;
    let setups = setups(args, &specimens, session.keys().len())?;
    let outcome = session.measure(&args.keys, &setups, |stats| light(Report::new(stats)))?;
    let mut study = saving::study(session.keys().facts().clone());
    study.reports = outcome.results;
    study.interruption = outcome.interruption;
    args.output.deliver(&study, console, in_words)?;
    session.end(study.interruption.as_ref())
}

/// Leaves out what would fill a file in which thousands of reports are.
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
                // A reduction that cannot address this size has no place here.
                let of_size = reductions.iter().map(|&reduction| {
                    // No hash is kept: equal ones are the same at every size.
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

/// Returns the reductions of a table that give different buckets: at a power of two, a modulus is a
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

/// One function with one reduction over the sizes.
struct Line<'a> {
    hash: &'a str,
    reduction: &'a str,
    /// The worst of the seeds at each size, by size.
    by_size: Vec<&'a Report>,
    seed_count: usize,
}

impl<'a> Line<'a> {
    fn of(reports: &[&'a Report]) -> Self {
        let mut by_size: Vec<&Report> = Vec::new();
        let mut sorted = reports.to_vec();
        sorted.sort_by_key(|report| report.bucket_count);
        for of_size in sorted.chunk_by(|one, other| one.bucket_count == other.bucket_count) {
            by_size.extend(of_size.iter().copied().max_by(|one, other| worse(one, other)));
        }
        let seed_count = reports.len() / by_size.len().max(1);
        let reduction = &reports[0].reduction;
        Self { hash: &reports[0].hash, reduction, by_size, seed_count }
    }

    fn worst(&self) -> &'a Report {
        self.by_size.iter().copied().max_by(|one, other| worse(one, other)).expect("a size")
    }

    /// Sizes at which it fails, though it fits the keys at another.
    fn bugs(&self) -> impl Iterator<Item = &'a Report> + '_ {
        let fits = self.by_size.iter().any(|report| !is_worse(report));
        let fails = move |report: &&&Report| {
            fits && is_worse(report) && report.cost_ratio >= BUG_COST_RATIO
        };
        self.by_size.iter().filter(fails).copied()
    }
}

fn worse(one: &Report, other: &Report) -> std::cmp::Ordering {
    one.cost_ratio.total_cmp(&other.cost_ratio)
}

fn is_worse(report: &Report) -> bool {
    matches!(report.verdict, Verdict::Worse { .. })
}

fn in_words(study: &Study) -> String {
    let Study { keys, reports, .. } = study;
    let mut sorted: Vec<&Report> = reports.iter().collect();
    let name = |report: &Report| (report.hash.clone(), report.reduction.clone());
    sorted.sort_by_cached_key(|report| name(report));
    let mut lines: Vec<Line<'_>> =
        sorted.chunk_by(|one, other| name(one) == name(other)).map(Line::of).collect();
    lines.sort_by(|one, other| worse(one.worst(), other.worst()));

    let mut sizes: Vec<u64> = reports.iter().map(|report| report.bucket_count).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut out = format!(
        "{}: {}, {}\n{} of {}: {}\n\n",
        keys.source,
        counted(keys.key_count, "key"),
        bytes(keys.key_bytes),
        counted(reports.len() as u64, "measurement"),
        counted(sizes.len() as u64, "table size"),
        sizes_in_words(&sizes)
    );
    let _ = writeln!(
        out,
        "{:<19}{:<15}{:>10}{:>11}{:>5}  by rising size",
        "hash", "reduction", "worst", "at", "seed"
    );
    for line in &lines {
        let _ = writeln!(out, "{}", line_in_words(line, &sizes));
    }
    out.push_str(
        "\nworst: cost of a hit in units of an ideal hash's, at the worst size and seed\n\
         . fits   ~ more even than chance: structured   + worse   x by 1.1   X by 2\n",
    );
    out.push_str(&unreached_in_words(&lines));
    out.push_str(&bugs_in_words(&lines));
    out
}

/// Names the tables of which no hash of the width reaches every bucket, whatever the keys are.
fn unreached_in_words(lines: &[Line<'_>]) -> String {
    let mut out = String::new();
    for line in lines {
        let is_short = |report: &&&Report| report.reachable_count < report.bucket_count;
        let short: Vec<&Report> = line.by_size.iter().filter(is_short).copied().collect();
        let Some(last) = short.last() else { continue };
        if out.is_empty() {
            out.push_str("\nleave buckets out of reach, whatever the keys are\n");
        }
        let sizes: Vec<u64> = short.iter().map(|report| report.bucket_count).collect();
        let _ = writeln!(
            out,
            "  {} {}: {} buckets, the last with {:.3} % in reach",
            line.hash,
            line.reduction,
            sizes_in_words(&sizes),
            percent(last.reachable_count, last.bucket_count)
        );
    }
    out
}

fn sizes_in_words(sizes: &[u64]) -> String {
    match sizes {
        [] => "none".to_string(),
        [first, .., last] => format!("{} to {}", size_in_words(*first), size_in_words(*last)),
        [only] => size_in_words(*only),
    }
}

fn size_in_words(size: u64) -> String {
    if size.is_power_of_two() { format!("2^{}", size.ilog2()) } else { grouped(size) }
}

fn line_in_words(line: &Line<'_>, sizes: &[u64]) -> String {
    let worst = line.worst();
    // Constants are in `lab list`; here they would break the columns.
    let reduction = match line.reduction.split_once(':') {
        Some((name, _)) if name != "shift" => name,
        _ => line.reduction,
    };
    let seed = if line.seed_count > 1 { worst.seed.to_string() } else { "-".to_string() };
    let at = size_in_words(worst.bucket_count);
    // The chart has a place for every size; a reduction that cannot address it leaves it empty.
    let of_size = |size: &u64| {
        let report = line.by_size.iter().find(|report| report.bucket_count == *size);
        report.map_or(' ', |report| mark(report))
    };
    let chart: String = sizes.iter().take(CHART_MAX).map(of_size).collect();
    format!("{:<19}{reduction:<15}{:>10.3}{at:>11}{seed:>5}  {chart}", line.hash, worst.cost_ratio)
        .trim_end()
        .to_string()
}

fn mark(report: &Report) -> char {
    match report.verdict {
        Verdict::Worse { cost_ratio } if cost_ratio >= 2.0 => 'X',
        Verdict::Worse { cost_ratio } if cost_ratio >= 1.1 => 'x',
        Verdict::Worse { .. } => '+',
        Verdict::Structured => '~',
        Verdict::Fits => '.',
    }
}

fn bugs_in_words(lines: &[Line<'_>]) -> String {
    let bugs: Vec<&Report> = lines.iter().flat_map(Line::bugs).collect();
    if bugs.is_empty() {
        return String::new();
    }
    let mut out = String::from("\nfail at some sizes only, so that a test at one size misses it\n");
    for report in bugs.iter().take(BUGS_SHOWN) {
        let _ = writeln!(
            out,
            "  {} {}: {} buckets, a hit costs x{:.2}",
            report.hash,
            report.reduction,
            size_in_words(report.bucket_count),
            report.cost_ratio
        );
    }
    if bugs.len() > BUGS_SHOWN {
        let _ = writeln!(out, "  and {} more: --json has them", bugs.len() - BUGS_SHOWN);
    }
    out
}
