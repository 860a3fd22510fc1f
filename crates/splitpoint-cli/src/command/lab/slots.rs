//! `splitpoint lab slots`: keys by slot and node of a Redis Cluster.

use splitpoint_lab::slots::{SlotCounts, ranges};
use splitpoint_lab::study::Interruption;

use super::keys::KeyArgs;
use super::saving::{self, Output};
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::number::grouped;

/// Show how a Redis Cluster spreads your keys over its nodes
///
/// A key goes to one of 16,384 slots by the CRC-16 of its hash tag (the part between the first {
/// and the next }), or of the whole key if it has none. Each node owns a range of slots, as
/// `redis-cli --cluster create` assigns them. The ideal is a hash that assigns the same tags, with
/// their keys, to slots at random.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab slots keys.txt
  redis-cli --scan | splitpoint lab slots - --nodes 6
  splitpoint lab slots keys.txt --nodes 6 --json | jq .slots.imbalance")]
pub(crate) struct Args {
    #[command(flatten)]
    keys: KeyArgs,

    /// Number of nodes that own slots (masters, not replicas)
    #[arg(long, value_name = "N", default_value_t = 3)]
    nodes: u64,

    #[command(flatten)]
    output: Output,
}

/// Counts the keys of each slot.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    // Before reading the keys, which may take long.
    let usage = |error: splitpoint_lab::Error| {
        Failure::new(Exit::Usage, error.to_string())
            .hint("--nodes counts masters; replicas own no slots")
    };
    ranges(args.nodes).map_err(usage)?;
    let session = args.keys.begin(&args.output, console)?;
    let mut counts = SlotCounts::new();
    session.for_each(&args.keys, |key| {
        counts.add(key);
        true
    })?;
    let (key_count, all) = (counts.key_count(), session.keys().len());
    let mut study = saving::study(session.keys().facts().clone());
    study.slots = Some(counts.slots(args.nodes).map_err(usage)?);
    study.interruption = (key_count < all).then(|| Interruption {
        key_count,
        missing: format!("only {} of {} keys were counted", grouped(key_count), grouped(all)),
    });
    args.output.deliver(&study, console)?;
    session.end(study.interruption.as_ref())
}
