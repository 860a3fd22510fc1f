//! `splitpoint lab table`: one hash function in one table, in depth.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use splitpoint::stats::ChainRow;
use splitpoint_lab::keys::KeyBatch;
use splitpoint_lab::measure::EqualHashes;
use splitpoint_lab::{KeyPositions, KeySample, Lookups, Report, Setup, Specimen, Study};

use super::keys::KeyArgs;
use super::list::FunctionName;
use super::measuring::{Measuring, Session};
use super::own::OwnArgs;
use super::saving::{self, Output};
use crate::bytes::shown;
use crate::chains::{self, Form};
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};

/// Measure one hash function in one table, in depth
///
/// Prints the verdict, its cause and a remedy. Then come the bucket sizes in the columns of Lever's
/// histograms beside the ideal, the cost of hits and misses, statistics with their p values, equal
/// hashes with example keys, and bits that never change.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab table /usr/share/dict/words --hash fnv1a-32
  splitpoint lab table paths --hash linux-3.10-name --buckets 16777216
  splitpoint lab table --store words.spt --hash rapidhash-v3 --seed 7
  splitpoint lab table names --hash sdbm --lookups names-asked-for
  splitpoint lab table ids --hash-command ./my-hash
  splitpoint lab table ids --hash-library ./libmine.so:my_hash
  splitpoint lab table ids --keys u32 --hash linux-hash32 --json
  splitpoint lab table handles --keys hex --hash fnv1-32-bsd --style vmstat")]
pub(super) struct Args {
    #[command(flatten)]
    measuring: Measuring,

    /// The hash function
    #[arg(long, value_name = "NAME", value_parser = FunctionName, hide_possible_values = true)]
    hash: Option<String>,

    /// Treat FILE as a store: show the chains of its own table first, then measure its keys
    #[arg(long)]
    store: bool,

    /// A file of lookups, in the format of the keys; shows what they cost, misses included
    #[arg(long, value_name = "FILE")]
    lookups: Option<PathBuf>,

    /// How to print the histogram
    #[arg(long, value_enum, default_value_t, value_name = "STYLE")]
    style: Form,

    #[command(flatten)]
    own: OwnArgs,

    #[command(flatten)]
    output: Output,
}

/// Equal hashes for which example keys are shown.
const SHARED_SHOWN: usize = 3;
/// Example keys for each.
const KEYS_SHOWN: usize = 3;
/// Keys to flip when looking for the bits to blame.
const BLAMED_KEYS: usize = 512;

/// Measures the table.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    args.own.require_one(args.hash.as_deref())?;
    let keys =
        if args.store { args.measuring.keys.of_store() } else { args.measuring.keys.clone() };
    let named = args.hash.as_deref().map(|name| keys.specimen(name)).transpose()?;
    let mut session = keys.begin_with(&args.own, &args.output, console)?;
    let specimen = session.only(named)?;
    let live_table = if args.store { Some(keys.live_table(console)?) } else { None };
    let setup = args.measuring.setup(specimen, session.keys().len())?;
    let (mut positions, mut sample) = (KeyPositions::default(), KeySample::new(BLAMED_KEYS));
    session.for_each(&keys, |key| {
        positions.add(key);
        sample.add(key);
        session.has_keys()
    })?;
    let trace = match &args.lookups {
        Some(path) => Some(Trace::read(&keys, path, &mut session, console)?),
        None => None,
    };
    if let Some(trace) = &trace {
        trace.require_hashes(specimen, setup.seed(), &session)?;
    }
    let has_keys = session.has_keys();
    let outcome = session.measure(&keys, &[setup], |stats| {
        let mut report = Report::new(stats);
        if has_keys {
            report.find_blame(stats, &positions, &sample);
        }
        if let Some(trace) = &trace {
            report.add_lookups(stats, &Lookups::count(stats, trace.lookups()));
        }
        report
    })?;
    let mut study = saving::study(session.keys().facts().clone());
    study.reports = outcome.results;
    study.interruption = outcome.interruption;
    study.live_table = live_table;
    if has_keys {
        study.key_positions = positions.finish();
    }
    for report in &mut study.reports {
        add_examples(&session, &keys, &setup, report)?;
    }
    match args.style {
        Form::Full => args.output.deliver(&study, console)?,
        form => args.output.deliver_with(&study, console, || in_lines(&study, form))?,
    }
    session.end(study.interruption.as_ref())
}

/// Lookups, and the keys among them that exist.
struct Trace {
    lookups: KeyBatch,
    there: HashSet<Vec<u8>>,
}

impl Trace {
    /// Reads a trace, and finds its keys among those of the session in one more pass.
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

    /// Fails if the hash of a lookup is not known.
    fn require_hashes(&self, specimen: &Specimen, seed: u64, session: &Session) -> Result<()> {
        let hashes = specimen.hashes(self.lookups.iter(), seed);
        session.check_own()?;
        let unknown = self.lookups.iter().zip(hashes).find(|(_, hash)| hash.is_none());
        let Some((key, _)) = unknown else { return Ok(()) };
        let message = format!("the hash of the lookup `{}` is not known", shown(key));
        Err(Failure::new(Exit::Usage, message)
            .hint("give the function itself, with --hash-command or --hash-library"))
    }

    fn lookups(&self) -> impl Iterator<Item = (&[u8], bool)> {
        self.lookups.iter().map(|key| (key, self.there.contains(key)))
    }
}

/// Returns the bucket sizes in the output format of another program.
fn in_lines(study: &Study, form: Form) -> String {
    let lines = |name: &str, rows: &[ChainRow]| match form {
        Form::Vmstat => chains::vmstat_text(name, rows),
        Form::Lever | Form::Full => chains::lever_text(rows),
    };
    let live = study.live_table.iter().map(|live| lines(&study.keys.source, &live.chains.rows));
    let reports = study.reports.iter().map(|report| lines(&report.hash, &report.rows));
    live.chain(reports).collect()
}

/// Finds example keys for the first few equal hashes, in one more pass.
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
        session.for_each_hash(args, (setup.specimen(), setup.seed()), |key, hash| {
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
