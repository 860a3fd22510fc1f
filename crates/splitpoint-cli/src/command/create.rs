//! `splitpoint create`: make an empty store.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use splitpoint::hash::HashFunction;
use splitpoint::{Create, FILL_FACTOR_DEFAULT, Options};

use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::store;

/// Make an empty store
///
/// An existing file is left as it is and is an error. `put` and `load` make a missing store too;
/// this command is for setting what cannot be changed later.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint create words.spt
  splitpoint create users.spt --hash siphash-1-3 --expected-records 1000000")]
pub(crate) struct Args {
    /// The file to make
    file: PathBuf,

    /// The hash function; siphash-1-3 is for keys that an attacker may choose
    #[arg(long, value_name = "NAME", default_value = "rapidhash-v3",
          value_parser = PossibleValuesParser::new(hash_names()))]
    hash: String,

    /// The seed of the hash function, in decimal or as 0x and hex [default: random]
    #[arg(long, value_parser = parse_seed)]
    seed: Option<u64>,

    /// Mean number of keys in a bucket above which a bucket is split, 1 to 7
    #[arg(long, value_name = "KEYS", default_value_t = FILL_FACTOR_DEFAULT)]
    fill_factor: f64,

    /// Number of records to make room for at once; the store grows beyond it all the same
    #[arg(long, value_name = "RECORDS", default_value_t = 0)]
    expected_records: u64,
}

fn hash_names() -> Vec<String> {
    HashFunction::all().iter().map(|function| function.name().to_string()).collect()
}

fn parse_seed(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "a seed is a number of 64 bits, in decimal or as 0x and hex".to_string())
}

/// Makes an empty store.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let hash = HashFunction::by_name(&args.hash)
        .ok_or_else(|| Failure::new(Exit::Usage, format!("no hash function `{}`", args.hash)))?;
    let mut options = Options::new()
        .create(Create::New)
        .hash(hash)
        .fill_factor(args.fill_factor)
        .expected_records(args.expected_records);
    if let Some(seed) = args.seed {
        options = options.seed(seed);
    }
    let db = options.open(&args.file).map_err(|error| Failure::opening(&args.file, &error))?;
    store::close(db, &args.file)?;
    console.note(format_args!(
        "created `{}` with hash function {}, {} keys a bucket",
        args.file.display(),
        args.hash,
        args.fill_factor
    ));
    Ok(())
}
