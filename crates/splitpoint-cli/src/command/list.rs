//! `splitpoint list`: print every key.

use std::io::{self, Write};
use std::path::PathBuf;

use splitpoint::Error;

use crate::bytes::{Notation, escaped};
use crate::command::shared::Turn;
use crate::console::{self, Console};
use crate::failure::{Failure, Result};
use crate::format::{JsonEncoding, JsonRecord};
use crate::loss;
use crate::store;

/// Print every key
///
/// Prints one key per line, in file order. Keys may contain newlines; -0, --hex and --json are safe
/// for any bytes. On a terminal, shows control characters as \xNN.
///
/// If an old file is damaged or truncated, prints every key that it can read and exits with code 1
/// or 4.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint list words.spt | grep '^q'
  splitpoint list words.spt --values              # key, TAB, value
  splitpoint list any.spt -0 | sort -z | tr '\\0' '\\n'
  splitpoint list any.spt --values --json")]
#[expect(clippy::struct_excessive_bools, reason = "they are flags")]
pub(crate) struct Args {
    /// The store, or an old file
    file: PathBuf,

    /// Also print each value, separated from its key by a TAB
    #[arg(long)]
    values: bool,

    /// Print keys and values in hex, empty ones as -
    #[arg(long)]
    hex: bool,

    /// Terminate each key and each value with a NUL byte
    #[arg(short = '0', long)]
    null: bool,

    /// Print one JSON object per line
    #[arg(long, conflicts_with = "null")]
    json: bool,

    #[command(flatten)]
    turn: Turn,
}

/// Prints every key.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let opened = store::open(&args.file, args.turn.wait_max(), console)?;
    let mut out = console::data();
    let is_shown = console::is_terminal() && !args.null && !args.hex;
    let (mut damage, mut listed) = (None, 0);
    for record in opened.scan().map_err(|error| opened.failed(&error))? {
        let record = match record {
            Ok(record) => record,
            Err(error @ Error::Corrupt { .. }) if opened.scans_past_damage() => {
                damage.get_or_insert(error);
                continue;
            }
            Err(error) => return Err(opened.failed(&error)),
        };
        listed += 1;
        let value = args.values.then_some(&*record.value);
        let written = if args.json {
            write_json(&mut out, args, &record.key, value)
        } else if is_shown {
            let key = escaped(&record.key, "");
            let value = value.map(|value| escaped(value, "\t"));
            write_record(&mut out, args, key.as_bytes(), value.as_deref().map(str::as_bytes))
        } else {
            write_record(&mut out, args, &record.key, value)
        };
        written.map_err(|error| Failure::output(&error))?;
    }
    out.flush().map_err(|error| Failure::output(&error))?;
    let failure = loss::of_scan(&opened, listed);
    failure.or(damage.map(|error| opened.failed(&error))).map_or(Ok(()), Err)
}

fn write_json(
    out: &mut dyn Write,
    args: &Args,
    key: &[u8],
    value: Option<&[u8]>,
) -> io::Result<()> {
    let encoding = if args.hex { JsonEncoding::Hex } else { JsonEncoding::Text };
    let object = match value {
        Some(value) => JsonRecord::new(key, value, encoding),
        None => JsonRecord::of_key(key, encoding),
    };
    serde_json::to_writer(&mut *out, &object)?;
    out.write_all(b"\n")
}

fn write_record(
    out: &mut dyn Write,
    args: &Args,
    key: &[u8],
    value: Option<&[u8]>,
) -> io::Result<()> {
    let notation = Notation::with_hex(args.hex);
    let (between, end): (&[u8], &[u8]) = if args.null { (b"\0", b"\0") } else { (b"\t", b"\n") };
    // As `dump` does: most tools would skip an empty line.
    let write = |out: &mut dyn Write, bytes: &[u8]| match notation {
        Notation::Hex if bytes.is_empty() => out.write_all(b"-"),
        _ => notation.write(out, bytes),
    };
    write(out, key)?;
    if let Some(value) = value {
        out.write_all(between)?;
        write(out, value)?;
    }
    out.write_all(end)
}
