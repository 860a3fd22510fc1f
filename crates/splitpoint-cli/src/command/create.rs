//! `splitpoint create`: make an empty store.

use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use splitpoint::hash::HashFunction;
use splitpoint::{Create, FILL_FACTOR_DEFAULT, Options};
use splitpoint_legacy::ByteOrder;
use splitpoint_legacy::db185;

use crate::bytes::shell_word;
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::store::{self, Writable};

/// The hash function where none is asked for.
const HASH_DEFAULT: &str = "rapidhash-v3";

/// Make an empty store
///
/// An existing file is left as it is and is an error. `put` and `load` make a missing store too;
/// this command is for setting what cannot be changed later.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint create words.spt
  splitpoint create users.spt --hash siphash-1-3 --expected-records 1000000
  splitpoint create 'db185:words.db?bsize=1024&ffactor=8'")]
pub(crate) struct Args {
    /// The file to make; db185:FILE makes one of db 1.85, whose parameters follow the name
    file: PathBuf,

    /// The hash function; siphash-1-3 is for keys that an attacker may choose [default:
    /// rapidhash-v3]
    #[arg(long, value_name = "NAME", hide_default_value = true,
          value_parser = PossibleValuesParser::new(hash_names()))]
    hash: Option<String>,

    /// The seed of the hash function, in decimal or as 0x and hex [default: random]
    #[arg(long, value_parser = parse_seed)]
    seed: Option<u64>,

    /// Mean number of keys in a bucket above which a bucket is split, 1 to 7 [default: 4.5]
    #[arg(long, value_name = "KEYS")]
    fill_factor: Option<f64>,

    /// Number of records to make room for at once; the store grows beyond it all the same
    #[arg(long, value_name = "RECORDS")]
    expected_records: Option<u64>,
}

pub(super) fn hash_names() -> Vec<String> {
    HashFunction::all().iter().map(|function| function.name().to_string()).collect()
}

/// Reads a seed.
pub(in crate::command) fn parse_seed(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "a seed is a number of 64 bits, in decimal or as 0x and hex".to_string())
}

/// Makes an empty store.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    if let Some((file, options)) = store::db185_of(&args.file)? {
        return create_db185(args, &file, &options, console);
    }
    let hash = args.hash.as_deref().unwrap_or(HASH_DEFAULT);
    let function = HashFunction::by_name(hash)
        .ok_or_else(|| Failure::new(Exit::Usage, format!("no hash function `{hash}`")))?;
    let fill_factor = args.fill_factor.unwrap_or(FILL_FACTOR_DEFAULT);
    let mut options = Options::new()
        .hash(function)
        .fill_factor(fill_factor)
        .expected_records(args.expected_records.unwrap_or_default());
    if let Some(seed) = args.seed {
        options = options.seed(seed);
    }
    Writable::Store(store::create(&args.file, &options)?).close(&args.file)?;
    console.note(format_args!(
        "created `{}` with hash function {hash}, {fill_factor} keys a bucket",
        args.file.display(),
    ));
    Ok(())
}

/// Makes an empty file of the 1991 package.
fn create_db185(
    args: &Args,
    file: &Path,
    options: &db185::Options,
    console: Console,
) -> Result<()> {
    let Args { hash, seed, fill_factor, expected_records, .. } = args;
    let has_option =
        hash.is_some() || seed.is_some() || fill_factor.is_some() || expected_records.is_some();
    if has_option {
        let message = "a file of db 1.85 takes its parameters behind its name";
        let name = shell_word(&format!("db185:{}?ffactor=8&nelem=1000&hash=x33", file.display()));
        return Err(Failure::new(Exit::Usage, message)
            .hint(format!("for example: splitpoint create {name}")));
    }
    let table = options.clone().create(Create::New).open(file);
    let table = table.map_err(|error| Failure::opening(file, &error))?;
    let parameters = table.parameters();
    Writable::Db185(Box::new(table)).close(file)?;
    let lorder = if parameters.byte_order == ByteOrder::Little { 1234 } else { 4321 };
    console.note(format_args!(
        "created `{}`, a file of db 1.85: pages of {} bytes, byte order {lorder}",
        args.file.display(),
        parameters.page_bytes,
    ));
    Ok(())
}
