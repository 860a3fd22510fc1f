//! `splitpoint lab avalanche`: how a flipped bit of a key changes its hash.

use splitpoint_lab::avalanche::SAMPLE_KEYS;
use splitpoint_lab::study::{Avalanche, Neighbors};
use splitpoint_lab::{KeyPositions, KeySample};

use super::list::FunctionName;
use super::measuring::Measuring;
use super::own::OwnArgs;
use super::saving::{self, Output};
use crate::console::Console;
use crate::failure::Result;

/// Flip the bits of your keys and see which bits of the hash change
///
/// Flips every bit of a sample of keys, one at a time. In an ideal hash each flip changes half of
/// the bits, each with the same probability. Neighbors in sorted order differ in few bits, and
/// their hashes should differ as much as those of any two keys. The report also shows what the
/// bytes of the keys hold, because bits that are the same in all keys need not affect the hash.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab avalanche /usr/share/dict/words --hash fnv1a-32
  splitpoint lab avalanche ids --keys u64 --hash rustc-hash --hash xxh3-64
  splitpoint lab avalanche words.spt --keys store --hash sdbm --html map.html")]
pub(super) struct Args {
    #[command(flatten)]
    measuring: Measuring,

    /// The hash function; repeat it to study several, one after the other
    #[arg(long, value_name = "NAME", value_parser = FunctionName, hide_possible_values = true)]
    hash: Vec<String>,

    /// Number of keys in the sample
    #[arg(long, value_name = "N", default_value_t = SAMPLE_KEYS as u64,
        value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    sample: u64,

    #[command(flatten)]
    own: OwnArgs,

    #[command(flatten)]
    output: Output,
}

/// Flips bits, and reports what changes.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let keys = &args.measuring.keys;
    let specimens = args.hash.iter().map(|name| keys.specimen(name)).collect::<Result<Vec<_>>>()?;
    if specimens.is_empty() && args.own.count() == 0 {
        args.own.require_one(None)?;
    }
    // Without keys there is nothing to flip.
    keys.require_file(None)?;
    let session = keys.begin_with(&args.own, &args.output, console)?;
    let sample_count = usize::try_from(args.sample).unwrap_or(SAMPLE_KEYS);
    let (mut positions, mut sample) = (KeyPositions::default(), KeySample::new(sample_count));
    session.for_each(keys, |key| {
        positions.add(key);
        sample.add(key);
        true
    })?;
    let measured = session.keys();
    // Keys that do not fit into memory cannot be sorted, so they have no neighbors.
    let mut sorted: Vec<&[u8]> =
        measured.held().map_or_else(Vec::new, |keys| keys.iter().collect());
    sorted.sort_unstable();
    let mut study = saving::study(measured.facts().clone());
    study.key_positions = positions.finish();
    let seed = args.measuring.seed();
    for specimen in session.with_own(specimens) {
        let mut avalanche = Avalanche::new(specimen, seed, &sample);
        avalanche.neighbors = Neighbors::new(specimen, seed, sorted.iter().copied());
        study.avalanches.push(avalanche);
    }
    session.check_own()?;
    args.output.deliver(&study, console)
}
