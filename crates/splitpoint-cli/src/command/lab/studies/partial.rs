//! `splitpoint lab partial`: the counts of a part of the keys, for `splitpoint lab merge`.

use std::ops::ControlFlow;
use std::path::PathBuf;

use splitpoint_lab::Setup;
use splitpoint_lab::keys::Watch as _;

use super::super::keys::FileArgs;
use super::super::list::FunctionName;
use super::super::measuring;
use super::super::watching::Watching;
use super::part::{self, Part};
use crate::command::shared::parse_seed;
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::number::{bytes, counted};
use crate::progress::ProgressMode;

/// Hashes that `--sample-hashes auto` keeps at most, as Python's `sample_hashes="auto"`.
const HASHES_MAX: usize = 1 << 23;

/// Count a part of the keys, to merge with the counts of other parts
///
/// Parts of any size, counted by any process or machine and merged in any order, give the counts of
/// one pass over all keys, to the byte. A key that occurs several times counts several times.
/// `splitpoint.lab.Partial` in Python reads and writes the same files.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab partial monday.txt --hash xxh3-64 --buckets 4096 -o monday.splp
  splitpoint lab partial k.csv --keys csv --hash xxh3-64 --buckets 512 -o k.splp")]
pub(crate) struct Args {
    #[command(flatten)]
    keys: FileArgs,

    /// The hash function; give the option again for another one
    #[arg(long, value_name = "NAME", required = true, value_parser = FunctionName,
          hide_possible_values = true)]
    hash: Vec<String>,

    /// Number of buckets of the table with all keys
    #[arg(long, value_name = "N")]
    buckets: u64,

    /// How a hash becomes a bucket: low, high, shift:N, modulus, prime, range, split, hashbrown, or
    /// own (the reduction published with the function, or low if there is none)
    #[arg(long, default_value = "own")]
    reduction: String,

    /// The seed of seeded functions, in decimal or in hex with 0x
    #[arg(long, default_value = "0", value_parser = parse_seed)]
    seed: u64,

    /// Look for equal hashes in a sample of one in 2^N; with auto, in as large a sample as fits into
    /// 64 MiB
    #[arg(long, value_name = "N", default_value = "auto", value_parser = Sample::parse)]
    sample_hashes: Sample,

    /// Use at most this much memory, plus a few megabytes; keys get half of it, and if they do not
    /// fit, they are read again
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 30)]
    memory_bytes: u64,

    /// When to show progress
    #[arg(long, value_enum, default_value_t)]
    progress: ProgressMode,

    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// Which hashes are kept to look for equal ones.
#[derive(Clone, Copy, Debug)]
enum Sample {
    Auto,
    OneIn(u32),
}

impl Sample {
    fn parse(word: &str) -> std::result::Result<Self, String> {
        match word.parse() {
            Ok(power @ 0..=32) => Ok(Self::OneIn(power)),
            _ if word == "auto" => Ok(Self::Auto),
            _ => Err("expected a number from 0 to 32, or auto".to_owned()),
        }
    }

    fn apply(self, setup: Setup) -> Setup {
        match self {
            Self::Auto => setup.limit_hashes(HASHES_MAX),
            Self::OneIn(power) => setup.sample_hashes(power),
        }
    }
}

/// Counts the keys.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let key_args = args.keys.with_duplicates(args.memory_bytes, args.progress);
    key_args.require_file(None)?;
    part::may_write(&args.output)?;
    let setups = args.hash.iter().map(|name| {
        let specimen = key_args.specimen(name)?;
        let setup = measuring::setup(specimen, args.seed, &args.reduction, Some(args.buckets), 0)?;
        Ok(args.sample_hashes.apply(setup))
    });
    let setups = setups.collect::<Result<Vec<Setup>>>()?;
    let mut watching = Watching::new(key_args.progress, console);
    let keys = key_args.read(&mut watching, console)?;
    let needed = |setup: &Setup| setup.memory_bytes(keys.len());
    let needed_bytes = setups.iter().map(needed).fold(0, u64::saturating_add);
    if needed_bytes > key_args.memory_bytes {
        let message = format!("the counts may take {}", bytes(needed_bytes));
        return Err(Failure::new(Exit::Usage, message)
            .hint("--memory-bytes allows more, and smaller tables need less"));
    }
    let mut part = Part::new(setups);
    let counted_all = keys.for_each_window(|window| {
        if watching.is_stopped() {
            return ControlFlow::Break(());
        }
        window.iter().for_each(|key| part.add(key));
        ControlFlow::Continue(())
    });
    counted_all.map_err(|error| key_args.failure(&error, watching.exit()))?;
    if let Some(exit) = watching.exit() {
        return Err(Failure::new(exit, "interrupted: not all keys were counted")
            .hint("nothing was written"));
    }
    part.write(&args.output)?;
    let keys = counted(part.key_count(), "key");
    console.note(format_args!("wrote the counts of {keys} to `{}`", args.output.display()));
    Ok(())
}
