//! `splitpoint lab tables`: how large the hash tables of a kernel are.

use clap::builder::PossibleValuesParser;
use splitpoint_lab::replay::{ERAS, Era, TableSizes};

use super::super::saving::PageOutput;
use super::replay::columns::parse_memory;
use crate::console::Console;
use crate::failure::Result;

/// Show how large a kernel makes its hash tables
///
/// Applies the rules of Linux 2.2.5, 2.2.16, 2.4.0 and 6.x for the tables of dentries, inodes, pages
/// and buffers to machines of any memory: buckets, bytes and, for a number of objects, their load and
/// the fullest bucket that an ideal hash would give.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab tables
  splitpoint lab tables --memory 64M,512M,24G --objects 200000
  splitpoint lab tables --era 6.x --memory 2G --json | jq '.tables[]'")]
pub(crate) struct Args {
    /// Memory of the machines, with K, M, G or T for binary units
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', value_parser = parse_memory,
          default_values = ["64M", "512M", "24G"])]
    memory: Vec<u64>,

    /// Show only this kernel; repeat it for more
    #[arg(long, value_name = "VERSION", value_parser = era_names())]
    era: Vec<String>,

    /// Number of objects in each table
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    objects: Option<u64>,

    #[command(flatten)]
    output: PageOutput,
}

fn era_names() -> PossibleValuesParser {
    PossibleValuesParser::new(ERAS.iter().map(|era| era.name))
}

/// Shows the tables.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    args.output.check()?;
    let chosen = |era: &&Era| args.era.is_empty() || args.era.iter().any(|name| name == era.name);
    let eras: Vec<&'static Era> = ERAS.iter().filter(chosen).collect();
    let sizes = TableSizes::new(&args.memory, &eras, args.objects);
    args.output.deliver(&sizes, console)
}
