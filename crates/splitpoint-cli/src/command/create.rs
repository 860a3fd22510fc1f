//! `splitpoint create`: create an empty store.

use std::path::PathBuf;

use splitpoint::{FILL_FACTOR_DEFAULT, Options};
use splitpoint_legacy::ByteOrder;
use splitpoint_legacy::db185::Db185;

use crate::command::shared::HashChoice;
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::store;

/// The hash function without `--hash`.
const HASH_DEFAULT: &str = "rapidhash-v3";

/// Create an empty store
///
/// Fails if the file exists, and leaves it unchanged. `put` and `load` also create a missing store;
/// use this command to set parameters that `put` and `load` do not offer. The default hash function
/// is rapidhash-v3.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint create words.spt
  splitpoint create users.spt --hash siphash-1-3 --expected-records 1000000
  splitpoint create 'db185:words.db?bsize=1024&ffactor=8'")]
pub(crate) struct Args {
    /// The file to create; db185:FILE creates a db 1.85 file, with its parameters after the name
    file: PathBuf,

    #[command(flatten)]
    choice: HashChoice,

    /// Mean keys per bucket above which a put splits a bucket, 1 to 7 [default: 4.5]
    #[arg(long, value_name = "KEYS")]
    fill_factor: Option<f64>,

    /// Number of records to reserve room for; the store still grows beyond it
    #[arg(long, value_name = "RECORDS")]
    expected_records: Option<u64>,
}

/// Creates an empty store, or an empty table of another access method.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let fill_factor = args.fill_factor.unwrap_or(FILL_FACTOR_DEFAULT);
    let is_url = splitpoint::is_url(&args.file);
    let options = if is_url { args.no_options()? } else { args.options(fill_factor)? };
    let table = store::create(&args.file, &options, console)?;
    let what = match table.as_db185().map(Db185::parameters) {
        Some(parameters) => {
            let lorder = if parameters.byte_order == ByteOrder::Little { 1234 } else { 4321 };
            let page_bytes = parameters.page_bytes;
            format!(", a file of db 1.85: pages of {page_bytes} bytes, byte order {lorder}")
        }
        None if is_url => String::new(),
        None => {
            let hash = args.choice.hash.as_deref().unwrap_or(HASH_DEFAULT);
            format!(" with hash function {hash}, {fill_factor} keys per bucket")
        }
    };
    table.close()?;
    console.note(format_args!("created `{}`{what}", args.file.display()));
    Ok(())
}

impl Args {
    /// Returns the parameters of a store.
    fn options(&self, fill_factor: f64) -> Result<Options> {
        let mut options = Options::new()
            .fill_factor(fill_factor)
            .expected_records(self.expected_records.unwrap_or_default());
        if let Some(function) = self.choice.function()? {
            options = options.hash(function);
        }
        if let Some(seed) = self.choice.seed {
            options = options.seed(seed);
        }
        Ok(options)
    }

    /// Refuses the parameters of a store for a table of another access method.
    fn no_options(&self) -> Result<Options> {
        let Self { file, choice: HashChoice { hash, seed }, fill_factor, expected_records } = self;
        if hash.is_none() && seed.is_none() && fill_factor.is_none() && expected_records.is_none() {
            return Ok(Options::new());
        }
        let message = format!("`{}` takes its parameters after its name", file.display());
        Err(Failure::new(Exit::Usage, message)
            .hint("for example: splitpoint create 'db185:words.db?ffactor=8&nelem=1000&hash=x33'"))
    }
}
