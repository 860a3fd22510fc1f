//! `splitpoint lab slots`: keys over the slots and nodes of a Redis Cluster.

use std::fmt::Write as _;

use splitpoint_lab::Study;
use splitpoint_lab::slots::{SLOT_COUNT, SlotCounts, ranges};
use splitpoint_lab::study::{Interruption, NodeLoad, Slots};

use super::keys::KeyArgs;
use super::saving::{self, Output};
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::number::{bytes, count, counted, float, grouped, percent};

/// Show how a Redis Cluster spreads your keys over its nodes
///
/// A key goes to one of 16,384 slots by CRC-16 of its hash tag, the part between the first { and
/// the next }, or of the whole key if there is none; a node has a range of slots, as `redis-cli
/// --cluster create` shares them out. The ideal beside it is a hash that throws the same tags,
/// each with its keys, on the slots at random.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab slots keys.txt
  redis-cli --scan | splitpoint lab slots - --nodes 6
  splitpoint lab slots keys.txt --nodes 6 --json | jq .slots.imbalance")]
pub(super) struct Args {
    #[command(flatten)]
    keys: KeyArgs,

    /// Nodes that hold slots: masters, not replicas
    #[arg(long, value_name = "N", default_value_t = 3)]
    nodes: u64,

    #[command(flatten)]
    output: Output,
}

/// Nodes that are shown one by one.
const NODES_SHOWN: usize = 24;
/// Letters of a full bar.
const BAR: f64 = 30.0;

/// Counts.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    // Before the keys are read, which may take long.
    let usage = |error: splitpoint_lab::Error| {
        Failure::new(Exit::Usage, error.to_string())
            .hint("--nodes counts masters; replicas hold no slots of their own")
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
    args.output.deliver(&study, console, in_words)?;
    session.end(study.interruption.as_ref())
}

fn in_words(study: &Study) -> String {
    let Some(slots) = &study.slots else { return String::new() };
    let key_count = slots.key_count();
    let mut out = format!(
        "{}\n  keys          {} of {}, {} with a hash tag\n  tags          {} different, a key \
         without one being its own\n  slots         {} of {} used; of an ideal hash {:.0}\n",
        study.keys.source,
        grouped(key_count),
        bytes(study.keys.key_bytes),
        grouped(slots.tagged_count),
        grouped(slots.distinct_tag_count),
        grouped(slots.used_slot_count),
        grouped(SLOT_COUNT),
        slots.used_slot_ideal,
    );
    out.push_str(&nodes(slots, key_count));
    let _ = writeln!(
        out,
        "\n{:<27}{:>10}{:>10}\n{:<27}{:>10.3}{:>10.3}  p = {:.4} of {} trials",
        "",
        "measured",
        "ideal",
        "fullest node, of its share",
        slots.imbalance,
        slots.imbalance_ideal,
        slots.p,
        grouped(slots.round_count),
    );
    let line = |keys: u64| format!("{:>14} {:>6.2} %  ", grouped(keys), percent(keys, key_count));
    if !slots.heaviest_tags.is_empty() {
        out.push_str("\nheaviest tags\n");
        for (tag, keys) in &slots.heaviest_tags {
            let _ = writeln!(out, "{}{{{tag}}}", line(*keys));
        }
    }
    out.push_str("\nfullest slots\n");
    for &(slot, keys) in &slots.fullest_slots {
        let _ = writeln!(out, "{}slot {slot}", line(keys));
    }
    out.push_str("\nverdict\n");
    for sentence in slots.advice() {
        out.push_str(&wrapped(&sentence));
    }
    out
}

/// Lists the nodes, or the fullest and the emptiest if they are many.
fn nodes(slots: &Slots, key_count: u64) -> String {
    let mut out = format!("\n{:<7}{:<15}{:>12}{:>9}\n", "node", "slots", "keys", "share");
    let mut shown: Vec<(usize, &NodeLoad)> = slots.nodes.iter().enumerate().collect();
    let left_out = shown.len().saturating_sub(NODES_SHOWN);
    if left_out > 0 {
        shown.sort_by_key(|(_, node)| std::cmp::Reverse(node.key_count));
        shown.drain(NODES_SHOWN / 2..NODES_SHOWN / 2 + left_out);
    }
    let fullest = slots.nodes.iter().map(|node| node.key_count).max().unwrap_or(0).max(1);
    for (row, (number, node)) in shown.iter().enumerate() {
        if left_out > 0 && row == NODES_SHOWN / 2 {
            let nodes = counted(count(left_out), "node");
            let _ = writeln!(out, "...    {nodes} between these");
        }
        let length = (BAR * float(node.key_count) / float(fullest)).round() as usize;
        let _ = writeln!(
            out,
            "{number:<7}{:<15}{:>12}{:>7.2} %  {}",
            format!("{}-{}", node.first_slot, node.end_slot - 1),
            grouped(node.key_count),
            percent(node.key_count, key_count),
            "#".repeat(length)
        );
    }
    out
}

/// Returns a sentence in lines of 80 columns, the first after a dash.
pub(super) fn wrapped(sentence: &str) -> String {
    const COLUMNS: usize = 80;
    let (mut out, mut line) = (String::new(), String::from("  -"));
    for word in sentence.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > COLUMNS {
            out.push_str(&line);
            out.push('\n');
            line = String::from("   ");
        }
        line.push(' ');
        line.push_str(word);
    }
    out.push_str(&line);
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_wrapped_at_80_columns() {
        assert_eq!(wrapped("short"), "  - short\n");
        let long = wrapped(&"word ".repeat(40));
        assert!(long.lines().all(|line| line.len() <= 80), "{long}");
        assert!(long.lines().skip(1).all(|line| line.starts_with("    ")), "{long}");
        assert_eq!(long.split_whitespace().filter(|word| *word == "word").count(), 40);
    }
}
