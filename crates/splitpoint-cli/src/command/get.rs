//! `splitpoint get`: print the values of keys.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use splitpoint::{Snapshot, TableExt as _};

use crate::bytes::{Notation, escaped, shown};
use crate::command::shared::{Keys, Turn};
use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Result};
use crate::format::{JsonEncoding, JsonRecord};
use crate::loss;
use crate::number::{count, counted, grouped};
use crate::store::{self, Opened};

/// Print the values of keys
///
/// With one key and output to a pipe or a file, writes the value byte for byte, without a trailing
/// newline. On a terminal, adds a newline and shows control characters as \xNN.
///
/// With several keys, writes the values in the order of the keys, one per line, or NUL-terminated
/// with -0. Skips missing keys, reports how many there are, and exits with code 1.
///
/// All values are those of one moment, whatever other processes change meanwhile. This is also so
/// with --stdin, which looks up each key as it comes: until the last one, the file keeps what others
/// replace or delete. If that exceeds both 64 MiB and the size of its records, the command ends with
/// an error.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint get capitals.spt France
  splitpoint get capitals.spt France Spain --json # keys with values
  splitpoint get words.spt --stdin < list         # one key per line
  splitpoint get pictures.spt cat.png > cat.png   # the exact bytes
  splitpoint get any.spt --hex 00ff               # the value in hex
  splitpoint get aliases.db root                  # an old file")]
pub(crate) struct Args {
    /// The store, or an old file
    file: PathBuf,

    #[command(flatten)]
    keys: Keys,

    /// Print one JSON object per line, with key and value
    #[arg(long, conflicts_with = "null")]
    json: bool,

    #[command(flatten)]
    turn: Turn,
}

/// Prints the values of keys.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let keys = args.keys.parse()?;
    let opened = store::open(&args.file, args.turn.wait_max(), console)?;
    loss::warn_at_once(&opened, console);
    let mut lookup = Lookup {
        args,
        notation: args.keys.notation(),
        table: &opened,
        snapshot: None,
        missing: Missing::default(),
    };
    let mut out = console::data();
    if let Some(db) = opened.as_store().filter(|_| keys.only().is_none()) {
        lookup.snapshot = Some(db.snapshot().map_err(|error| opened.failed(&error))?);
    }
    match keys.only() {
        Some(key) => lookup.print_one(key, &mut out)?,
        None => keys.try_for_each(|keys| {
            lookup.print_many(keys, &mut out)?;
            out.flush().map_err(|error| Failure::output(&error))
        })?,
    }
    out.flush().map_err(|error| Failure::output(&error))?;
    lookup.missing.into_result(&args.file)
}

/// Missing keys.
#[derive(Debug, Default)]
struct Missing {
    first: Option<Vec<u8>>,
    count: u64,
    looked_up: u64,
}

impl Missing {
    fn add(&mut self, key: &[u8]) {
        self.first.get_or_insert_with(|| key.to_vec());
        self.count += 1;
    }

    fn into_result(self, file: &Path) -> Result<()> {
        let Some(first) = self.first else { return Ok(()) };
        let (first, file) = (shown(&first), file.display());
        let message = match self.looked_up {
            1 => format!("no key `{first}` in `{file}`"),
            all => {
                let (count, keys) = (grouped(self.count), counted(all, "key"));
                format!("{count} of {keys} not found in `{file}`, the first is `{first}`")
            }
        };
        Err(Failure::new(Exit::No, message))
    }
}

/// Lookups in one table.
struct Lookup<'a> {
    args: &'a Args,
    notation: Notation,
    table: &'a Opened,
    /// The moment of all keys, where there are several and the table has moments.
    snapshot: Option<Snapshot<'a>>,
    missing: Missing,
}

impl Lookup<'_> {
    /// Prints the value of the only key byte for byte, so it can be anything.
    fn print_one(&mut self, key: &[u8], out: &mut impl Write) -> Result<()> {
        let is_plain = !(self.args.json || self.args.keys.hex || self.args.keys.null);
        if !is_plain {
            return self.print_many(&[key.to_vec()], out);
        }
        self.missing.looked_up += 1;
        let value = self.table.get(key).map_err(|error| self.table.failed(&error))?;
        let Some(value) = value else {
            self.missing.add(key);
            return Ok(());
        };
        let written = if console::is_terminal() {
            out.write_all(escaped(&value, "\n\t").as_bytes())
                .and_then(|()| if value.ends_with(b"\n") { Ok(()) } else { out.write_all(b"\n") })
        } else {
            out.write_all(&value)
        };
        written.map_err(|error| Failure::output(&error))
    }

    /// Prints the value of each key.
    fn print_many(&mut self, keys: &[Vec<u8>], out: &mut impl Write) -> Result<()> {
        let borrowed: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let values = match &self.snapshot {
            Some(snapshot) => snapshot.get_many(&borrowed),
            None => self.table.get_many(&borrowed),
        };
        let values = values.map_err(|error| self.table.failed(&error))?;
        self.missing.looked_up += count(keys.len());
        for (key, value) in keys.iter().zip(values) {
            match value {
                None => self.missing.add(key),
                Some(value) => {
                    self.print(key, &value, out).map_err(|error| Failure::output(&error))?;
                }
            }
        }
        Ok(())
    }

    fn print(&self, key: &[u8], value: &[u8], out: &mut impl Write) -> io::Result<()> {
        if self.args.json {
            let encoding = JsonEncoding::with_hex(self.args.keys.hex);
            serde_json::to_writer(&mut *out, &JsonRecord::new(key, value, encoding))?;
        } else if !self.args.keys.hex && !self.args.keys.null && console::is_terminal() {
            out.write_all(escaped(value, "\t").as_bytes())?;
        } else {
            self.notation.write(out, value)?;
        }
        out.write_all(if self.args.keys.null { b"\0" } else { b"\n" })
    }
}
