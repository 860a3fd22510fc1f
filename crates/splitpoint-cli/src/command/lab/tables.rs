//! `splitpoint lab tables`: how large the hash tables of a kernel are.

use clap::builder::PossibleValuesParser;
use splitpoint_lab::replay::{ERAS, Era, TableSizes};
use splitpoint_lab::report;

use super::saving::PageOutput;
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
  splitpoint lab tables --era 6.x --memory 2G --json | jq '.tables[].bucket_count'")]
pub(super) struct Args {
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

/// Reads a size of memory.
pub(super) fn parse_memory(text: &str) -> Result<u64, String> {
    let error = || "a size of memory is a number from 1M to 4096T, as in 512M or 24G".to_owned();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        _ => return Err(error()),
    };
    let number: u64 = digits.parse().map_err(|_| error())?;
    let bytes = number.checked_mul(1 << shift).filter(|bytes| (1 << 20..=1 << 52).contains(bytes));
    bytes.ok_or_else(error)
}

/// Shows the tables.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    args.output.check()?;
    let chosen = |era: &&Era| args.era.is_empty() || args.era.iter().any(|name| name == era.name);
    let eras: Vec<&'static Era> = ERAS.iter().filter(chosen).collect();
    let sizes = TableSizes::new(&args.memory, &eras, args.objects);
    args.output.deliver(&sizes, &report::table_sizes(&sizes), console)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_a_unit_and_is_a_machine_s() {
        assert_eq!(parse_memory("64M"), Ok(64 << 20));
        assert_eq!(parse_memory("24g"), Ok(24 << 30));
        assert_eq!(parse_memory("1048576"), Ok(1 << 20));
        for text in ["", "M", "64X", "1K", "-1M", "99999999T", "18446744073709551616"] {
            assert!(parse_memory(text).is_err(), "{text}");
        }
    }
}
