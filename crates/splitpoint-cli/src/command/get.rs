//! `splitpoint get`: print the value of a key.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use splitpoint::TableExt as _;

use crate::bytes::{Notation, escaped, shown};
use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Result};
use crate::format::{JsonEncoding, JsonRecord};
use crate::loss;
use crate::store;

/// Print the value of a key
///
/// Into a pipe or a file the value is written exactly as it is stored, without a newline at its
/// end, so that `put` and `get` carry any bytes. On a terminal a newline is added, and control
/// characters are shown as \xNN. A missing key gives exit code 1.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint get capitals.spt France
  splitpoint get pictures.spt cat.png > cat.png   # exactly what was put
  splitpoint get any.spt --hex 00ff               # the value in hex
  splitpoint get capitals.spt France --json
  splitpoint get aliases.db root                  # old files too")]
pub(crate) struct Args {
    /// The store, or an old file
    file: PathBuf,

    /// The key
    key: OsString,

    /// The key is given in hex, and the value is printed in hex with a newline
    #[arg(long)]
    hex: bool,

    /// Print an object with key and value
    #[arg(long)]
    json: bool,
}

/// Prints the value of a key.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let notation = Notation::with_hex(args.hex);
    let key = notation.parse("key", &args.key)?;
    let opened = store::open_any(&args.file, console)?;
    loss::warn_at_once(&args.file, &opened, console);
    let value = opened.table().get(&key).map_err(|error| Failure::using(&args.file, &error))?;
    let Some(value) = value else {
        let (key, file) = (shown(&key), args.file.display());
        return Err(Failure::new(Exit::No, format!("no key `{key}` in `{file}`")));
    };
    if args.json {
        let encoding = if args.hex { JsonEncoding::Hex } else { JsonEncoding::Text };
        return console::print_json(&JsonRecord::new(&key, &value, encoding));
    }
    let mut out = console::data();
    let written = if args.hex {
        notation.write(&mut out, &value).and_then(|()| out.write_all(b"\n"))
    } else if console::is_terminal() {
        out.write_all(escaped(&value, "\n\t").as_bytes())
            .and_then(|()| if value.ends_with(b"\n") { Ok(()) } else { out.write_all(b"\n") })
    } else {
        out.write_all(&value)
    };
    written.and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
}
