//! `splitpoint put`: store one record.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Read};
use std::path::PathBuf;

use splitpoint::{Options, PutMode, VALUE_BYTES_MAX};

use crate::bytes::{Notation, shown};
use crate::command::shared::Turn;
use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Result};
use crate::store::{self, DurabilityName};

/// Store a record
///
/// Creates the store if the file is missing, and prints a note. Replaces the value of an existing
/// key, unless --new is given. The record is durable when the command exits.
///
/// One process at a time writes to a store: while another one does, the command waits its turn.
/// If the others write by turns, it takes turns with them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint put capitals.spt France Paris
  splitpoint put pictures.spt cat.png < cat.png   # value from standard input
  splitpoint put capitals.spt --new France Lyon   # exit 1: France is there
  splitpoint put any.spt --hex 00ff 0a            # arbitrary bytes
  splitpoint put any.spt -- -key -value           # a key that starts with -
  splitpoint put db185:aliases.db root admin      # to a db 1.85 file")]
pub(crate) struct Args {
    /// The store, or a db 1.85 file as db185:FILE
    file: PathBuf,

    /// The key
    key: OsString,

    /// The value; omitted or `-` reads it from standard input
    value: Option<OsString>,

    /// Fail with exit code 1 if the key exists
    #[arg(long)]
    new: bool,

    /// Read key and value in hex
    #[arg(long)]
    hex: bool,

    /// When to sync the record; closing the store at the end makes it durable in any case
    #[arg(long, value_enum, default_value_t)]
    durability: DurabilityName,

    #[command(flatten)]
    turn: Turn,

    /// Print a JSON object that shows whether the record was stored
    #[arg(long)]
    json: bool,
}

/// Stores a record.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let notation = Notation::with_hex(args.hex);
    let key = notation.parse("key", &args.key)?;
    // Read the value before opening the store, or a slow pipe would keep the store locked.
    let value = match &args.value {
        Some(value) if value != "-" => notation.parse("value", value)?,
        _ => notation.decode("value", read_standard_input(console)?)?,
    };
    let options = args.turn.options_by_turns(Options::new().durability(args.durability.into()));
    let table = store::open_or_create(&args.file, &options, console)?;
    let mode = if args.new { PutMode::New } else { PutMode::Replace };
    let was_stored = table.put_bytes(&key, &value, mode, Some(args.durability.into()));
    let was_stored = was_stored.map_err(|error| table.failed(&error))?;
    table.close()?;
    if args.json {
        console::print_json(&serde_json::json!({
            "store": args.file.display().to_string(),
            "stored": was_stored,
        }))?;
    }
    if was_stored {
        return Ok(());
    }
    let (key, file) = (shown(&key), args.file.display());
    Err(Failure::new(Exit::No, format!("key `{key}` already exists in `{file}`"))
        .hint("its value is unchanged; omit --new to replace it"))
}

fn read_standard_input(console: Console) -> Result<Vec<u8>> {
    if io::stdin().is_terminal() {
        console.note("reading the value from the terminal; end it with Ctrl-D on an empty line");
    }
    let mut value = Vec::new();
    // One byte over the limit is enough for the store to refuse it.
    io::stdin()
        .lock()
        .take(2 * VALUE_BYTES_MAX + 1)
        .read_to_end(&mut value)
        .map_err(|error| Failure::io("read the value from standard input", &error))?;
    Ok(value)
}
