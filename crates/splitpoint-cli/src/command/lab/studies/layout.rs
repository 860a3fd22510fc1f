//! `splitpoint lab layout`: the cache lines that a step along a chain reads, and what it takes.

use std::fs;

use clap::builder::PossibleValuesParser;
use splitpoint_lab::replay::{LayoutReport, NODE_LAYOUTS, NodeLayout, walk};

use super::super::saving::PageOutput;
use super::replay::columns::parse_memory;
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::number::count;

/// Show how many cache lines a step along a hash chain reads
///
/// Counts the lines of the fields that lookups of Linux 2.2.5 to 6.x and of Splitpoint read in each
/// node, at every place that a slab has for it. These counts are exact: nothing is measured. With
/// --time, it also builds chains of such nodes in memory and times lookups in them, in turns.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab layout
  splitpoint lab layout --node dentry-2.6.13 --node dentry-2.6.14 --first 140
  splitpoint lab layout --line 64,128 --html layout.html
  splitpoint lab layout --node dentry-2.6.13 --node dentry-2.6.14 --time")]
pub(crate) struct Args {
    /// Show only this node; repeat it for more
    #[arg(long, value_name = "NAME", value_parser = node_names())]
    node: Vec<String>,

    /// Bytes before the first node of a slab, instead of those of each layout
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(0..=4096))]
    first: Option<u32>,

    /// Sizes of cache lines
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', default_values_t = [32, 64, 128],
          value_parser = clap::value_parser!(u32).range(4..=4096))]
    line: Vec<u32>,

    /// Measure lookups on this machine; without --node, in dentries of 2.6 and in Splitpoint's buckets
    #[arg(long)]
    time: bool,

    /// Keys in each chain
    #[arg(long, value_name = "N", default_value_t = 16, requires = "time",
          value_parser = clap::value_parser!(u64).range(1..=1000))]
    chain: u64,

    /// Memory of the nodes, once [default: more than the caches hold, and once within a cache]
    #[arg(long, value_name = "BYTES", value_parser = parse_memory, requires = "time")]
    memory: Option<u64>,

    #[command(flatten)]
    output: PageOutput,
}

fn node_names() -> PossibleValuesParser {
    PossibleValuesParser::new(NODE_LAYOUTS.iter().map(|layout| layout.name))
}

/// Counts, and measures if asked.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    args.output.check()?;
    if let Some(odd) = args.line.iter().find(|bytes| !bytes.is_power_of_two()) {
        let message = format!("a cache line has a power of two of bytes, not {odd}");
        return Err(Failure::new(Exit::Usage, message));
    }
    let layouts = chosen(args, &|_| true);
    let mut report = LayoutReport::new(&layouts, &args.line);
    if args.time {
        let is_timed = |layout: &NodeLayout| {
            !args.node.is_empty()
                || layout.name.starts_with("dentry-2.6")
                || layout.name == "splitpoint"
        };
        let timed = chosen(args, &is_timed);
        for memory_bytes in memories(args.memory, timed.len()) {
            report.times.extend(walk::time(&timed, memory_bytes, args.chain));
        }
    }
    args.output.deliver(&report, console)
}

fn chosen(args: &Args, is_meant: &dyn Fn(&NodeLayout) -> bool) -> Vec<NodeLayout> {
    let is_named =
        |it: &&NodeLayout| args.node.is_empty() || args.node.iter().any(|name| name == it.name);
    NODE_LAYOUTS
        .iter()
        .filter(is_named)
        .filter(|layout| is_meant(layout))
        .map(|layout| args.first.map_or(*layout, |first| layout.with_first(first)))
        .collect()
}

/// Memory for all nodes together that no machine of today lacks.
const ALL_BYTES_MAX: u64 = 1 << 30;

/// Returns the memory that was asked for, or more than the largest cache and half of the second.
pub(super) fn memories(asked: Option<u64>, layout_count: usize) -> Vec<u64> {
    if let Some(bytes) = asked {
        return vec![bytes.min(walk::MEMORY_BYTES_MAX)];
    }
    let caches = caches();
    let largest = caches.iter().copied().max().unwrap_or(32 << 20);
    let within = caches.iter().copied().find(|bytes| *bytes >= 256 << 10).unwrap_or(1 << 20) / 2;
    let most = ALL_BYTES_MAX / count(layout_count.max(1));
    vec![(4 * largest).min(most), within]
}

/// Returns the sizes of the caches of the first processor, as far as the system tells, in order.
fn caches() -> Vec<u64> {
    let size = |index: u32| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        parse_kib(&fs::read_to_string(path).ok()?)
    };
    (0..8).map_while(size).collect()
}

fn parse_kib(text: &str) -> Option<u64> {
    text.trim().strip_suffix('K')?.parse::<u64>().ok()?.checked_mul(1024)
}
