//! `splitpoint lab table`: one hash function in one table, in depth.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use splitpoint_lab::keys::KeyBatch;
use splitpoint_lab::measure::EqualHashes;
use splitpoint_lab::number::p_is;
use splitpoint_lab::study::KeyFacts;
use splitpoint_lab::{KeyPositions, KeySample, Lookups, Report, Setup, Study};

use super::bars;
use super::depth;
use super::keys::KeyArgs;
use super::list::by_name;
use super::measuring::{Measuring, Session};
use super::saving::{self, Output};
use crate::bytes::shown;
use crate::chains::{self, Form};
use crate::console::Console;
use crate::failure::Result;
use crate::number::{bytes, counted, grouped, percent};

/// Measure one hash function in one table, in depth
///
/// Prints the sizes of the buckets in the columns of Lever's histograms with the ideal beside
/// them, the cost of hits and misses, statistics with their p values, equal hashes with example
/// keys, and bits that are always the same.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab table /usr/share/dict/words --hash fnv1a-32
  splitpoint lab table paths --hash linux-3.10-name --buckets 16777216
  splitpoint lab table --store words.spt --hash rapidhash-v3 --seed 7
  splitpoint lab table names --hash sdbm --lookups names-asked-for
  splitpoint lab table ids --keys u32 --hash linux-hash32 --json
  splitpoint lab table handles --keys hex --hash fnv1-32-bsd --style vmstat")]
pub(super) struct Args {
    #[command(flatten)]
    measuring: Measuring,

    /// The hash function
    #[arg(long, value_name = "NAME")]
    hash: String,

    /// The file is a store: measure its keys, and show the chains of its own table first
    #[arg(long)]
    store: bool,

    /// A file of lookups, written like the keys: what they cost, and those of keys not there
    #[arg(long, value_name = "FILE")]
    lookups: Option<PathBuf>,

    /// How the sizes of the buckets are printed
    #[arg(long, value_enum, default_value_t, value_name = "STYLE")]
    style: Form,

    #[command(flatten)]
    output: Output,
}

/// Equal hashes of which keys are shown.
const SHARED_SHOWN: usize = 3;
/// Keys that are shown of each.
const KEYS_SHOWN: usize = 3;
/// Keys whose bits are flipped to find those to blame.
const BLAMED_KEYS: usize = 512;

/// Measures.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let specimen = by_name(&args.hash)?;
    let keys =
        if args.store { args.measuring.keys.of_store() } else { args.measuring.keys.clone() };
    let mut session = keys.begin(&args.output, console)?;
    let live_table = if args.store { Some(keys.live_table(console)?) } else { None };
    let setup = args.measuring.setup(specimen, session.keys().len())?;
    let (mut positions, mut sample) = (KeyPositions::default(), KeySample::new(BLAMED_KEYS));
    session.for_each(&keys, |key| {
        positions.add(key);
        sample.add(key);
        true
    })?;
    let trace = match &args.lookups {
        Some(path) => Some(Trace::read(&keys, path, &mut session, console)?),
        None => None,
    };
    let outcome = session.measure(&keys, &[setup], |stats| {
        let mut report = Report::new(stats);
        report.find_blame(stats, &positions, &sample);
        if let Some(trace) = &trace {
            report.add_lookups(stats, &Lookups::count(stats, trace.lookups()));
        }
        report
    })?;
    let mut study = saving::study(session.keys().facts().clone());
    study.reports = outcome.results;
    study.interruption = outcome.interruption;
    study.live_table = live_table;
    study.key_positions = positions.finish();
    for report in &mut study.reports {
        add_examples(&session, &keys, &setup, report)?;
    }
    args.output.deliver(&study, console, |study| in_words(study, args.style))?;
    session.end(study.interruption.as_ref())
}

/// Lookups, and which of them are of keys that are there.
struct Trace {
    lookups: KeyBatch,
    there: HashSet<Vec<u8>>,
}

impl Trace {
    /// Reads a trace, and looks for its keys among those of the session in one more pass.
    fn read(keys: &KeyArgs, path: &Path, session: &mut Session, console: Console) -> Result<Self> {
        let lookups = session.read_trace(keys, path, console)?;
        let asked: HashSet<&[u8]> = lookups.iter().collect();
        let mut there = HashSet::new();
        session.for_each(keys, |key| {
            if asked.contains(key) {
                there.insert(key.to_vec());
            }
            true
        })?;
        drop(asked);
        Ok(Self { lookups, there })
    }

    fn lookups(&self) -> impl Iterator<Item = (&[u8], bool)> {
        self.lookups.iter().map(|key| (key, self.there.contains(key)))
    }
}

/// Returns the text of a study.
pub(super) fn in_words(study: &Study, form: Form) -> String {
    let of_report = |report: &Report| match form {
        Form::Full => report_in_words(&study.keys, report),
        Form::Lever => chains::lever_text(&report.rows),
        Form::Vmstat => chains::vmstat_text(&report.hash, &report.rows),
    };
    let live = study.live_table.as_ref().map(|live| match form {
        Form::Full => format!(
            "the table of `{}`: {}, {}, {}\n\n{}\n",
            study.keys.source,
            live.hash,
            counted(live.bucket_count, "bucket"),
            counted(live.key_count, "key"),
            chains::to_text(
                &live.chains,
                "Take another hash function: `splitpoint lab recommend`.\n"
            )
        ),
        Form::Lever => chains::lever_text(&live.chains.rows),
        Form::Vmstat => chains::vmstat_text(&study.keys.source, &live.chains.rows),
    });
    live.into_iter().chain(study.reports.iter().map(of_report)).collect()
}

fn report_in_words(keys: &KeyFacts, report: &Report) -> String {
    let mut out = facts(keys, report);
    if report.reachable_count < report.bucket_count {
        let _ = writeln!(
            out,
            "  out of reach  `{}` of a hash of {} bits reaches {} of {} buckets ({:.3} %)",
            report.reduction,
            report.width_bits,
            grouped(report.reachable_count),
            grouped(report.bucket_count),
            percent(report.reachable_count, report.bucket_count)
        );
    }
    let bars = bars::text(report, bars::terminal_columns());
    let histogram = chains::histogram_text(&report.rows);
    let _ = write!(out, "\n{histogram}\n{bars}\n{}\n", costs(report));
    out.push_str(&statistics(report));
    out.push_str(&equal_hashes(report));
    out.push_str(&depth::pages(report));
    out.push_str(&depth::probing(report));
    out.push_str(&depth::lookups(report));
    out.push_str(&depth::verdict(report));
    out
}

fn facts(facts: &KeyFacts, report: &Report) -> String {
    format!(
        "{}\n  keys          {} of {}\n  hash          {} (seed {}), reduction {}\n  \
         buckets       {}, {} used ({:.1} %)\n",
        facts.source,
        grouped(facts.key_count),
        bytes(facts.key_bytes),
        report.hash,
        report.seed,
        report.reduction,
        grouped(report.bucket_count),
        grouped(report.used_count),
        100.0 * report.utilization,
    )
}

fn costs(report: &Report) -> String {
    let mut out = format!("{:<26}{:>12}{:>12}\n", "", "measured", "ideal");
    for (name, measured, ideal) in [
        ("keys looked at, hit", report.probes_hit, report.probes_hit_ideal),
        ("keys looked at, miss", report.probes_miss, report.probes_miss_ideal),
        ("cost of a hit", report.cost_ratio, 1.0),
        ("keys in fullest bucket", report.longest as f64, report.longest_ideal),
        ("buckets used", report.used_count as f64, report.used_ideal),
    ] {
        let _ = writeln!(out, "{name:<26}{measured:>12.3}{ideal:>12.3}");
    }
    let (buckets, keys) = (report.bucket_percentiles, report.item_percentiles);
    let _ = writeln!(
        out,
        "\n{:<26}{:>8}{:>8}{:>8}\n{:<26}{:>8}{:>8}{:>8}\n{:<26}{:>8}{:>8}{:>8}",
        "",
        "p50",
        "p90",
        "p99",
        "keys of a used bucket",
        buckets.p50,
        buckets.p90,
        buckets.p99,
        "keys of a key's bucket",
        keys.p50,
        keys.p90,
        keys.p99
    );
    out
}

fn statistics(report: &Report) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: String, p: f64| {
        let _ = writeln!(out, "{name:<26}{value:<36} {}", p_is(p));
    };
    if let Some(test) = report.chi_square {
        let value = format!("{:.1}, {} degrees, z {:+.2}", test.value, test.dof, test.z);
        line("chi-square", value, report.spread_p);
    }
    if let Some(test) = report.fit {
        line("fit of the sizes", format!("{:.1}, {} degrees", test.value, test.dof), test.p);
    }
    line("evenness", "the other side of chi-square".to_string(), report.even_p);
    line("fullest bucket", grouped(report.longest), report.longest_p);
    for collisions in &report.collisions {
        let name = format!("equal hashes, {} bits", collisions.window);
        let value = format!(
            "{}, {:.3} expected",
            counted(collisions.pair_count, "pair"),
            collisions.pair_count_ideal
        );
        line(&name, value, collisions.p);
    }
    if let Some(pair) = report.worst_pair {
        let [low, high] = pair.bits;
        let value = format!("bits {low} and {high}, correlation {:+.4}", pair.phi);
        line("worst pair of bits", value, pair.p);
    }
    if let Some(bit) = report.worst_bit {
        let value = format!("bit {}, set in {:.2} %", bit.bit, 100.0 * bit.ones);
        line("worst bit", value, bit.p);
    }
    for (name, bits) in
        [("bits never set", report.bits_never_set), ("bits always set", report.bits_always_set)]
    {
        if bits != 0 {
            let _ = writeln!(out, "{name:<26}{bits:#x}");
        }
    }
    out
}

/// Looks for keys with the first of the equal hashes, in one more pass.
fn add_examples(
    session: &Session,
    args: &KeyArgs,
    setup: &Setup,
    report: &mut Report,
) -> Result<()> {
    let Some(collisions) = report.collisions.first_mut() else { return Ok(()) };
    let of_hash = |&hash: &u64| EqualHashes { hash, keys: Vec::new() };
    let mut examples: Vec<EqualHashes> =
        collisions.shared.iter().take(SHARED_SHOWN).map(of_hash).collect();
    if !examples.is_empty() {
        session.for_each(args, |key| {
            let hash = setup.specimen().hash(key, setup.seed());
            let found = examples.iter_mut().find(|example| example.hash == hash);
            if let Some(example) = found.filter(|example| example.keys.len() < KEYS_SHOWN) {
                example.keys.push(shown(key));
            }
            examples.iter().any(|example| example.keys.len() < KEYS_SHOWN)
        })?;
    }
    collisions.examples = examples;
    Ok(())
}

fn equal_hashes(report: &Report) -> String {
    let mut out = String::new();
    for EqualHashes { hash, keys } in report.collisions.iter().flat_map(|found| &found.examples) {
        if out.is_empty() {
            out.push_str("\nkeys with equal hashes, the lowest hashes first\n");
        }
        let _ = writeln!(out, "  {hash:#x}: {}", keys.join(", "));
    }
    out
}
