//! `splitpoint txn`: make several changes together, or none.

use std::path::{Path, PathBuf};

use splitpoint::{Error, Options, Transaction};

use crate::bytes::{Notation, shown};
use crate::command::shared::Turn;
use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Result};
use crate::format::Input;
use crate::number::{count, counted};
use crate::shell::shell_word;
use crate::store;

/// Make several changes together, or none
///
/// Reads one change from each line of standard input:
///
///   put TAB KEY TAB VALUE     store VALUE under KEY
///   delete TAB KEY            remove KEY, if it is there
///   expect TAB KEY TAB VALUE  only if KEY has VALUE
///   expect TAB KEY            only if KEY is missing
///
/// A value may hold TABs. All lines with "expect" are compared with the store as
/// it was before the changes. If one is not met, or a line is malformed, nothing
/// is changed, and the exit code is 1. Whatever happens, even a crash, the store
/// has all of the changes or none.
///
/// The store must be there: `splitpoint create` makes one.
#[derive(Debug, clap::Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  splitpoint txn accounts.spt --hex < changes.txt
  printf 'delete\\told\\nput\\tnew\\t1\\n' | splitpoint txn words.spt
  printf 'expect\\tlock\\nput\\tlock\\talice\\n' | splitpoint txn jobs.spt"
)]
pub(crate) struct Args {
    /// The store
    file: PathBuf,

    /// Keys and values are in hex
    #[arg(long)]
    hex: bool,

    #[command(flatten)]
    turn: Turn,

    /// Print a JSON object with the number of changes
    #[arg(long)]
    json: bool,
}

/// Most keys that an error names.
const NAMED_MAX: usize = 10;

/// A line of the input.
#[derive(Debug)]
enum Line {
    Put { key: Vec<u8>, value: Vec<u8> },
    Delete { key: Vec<u8> },
    Expect { key: Vec<u8>, value: Option<Vec<u8>> },
}

/// Makes the changes.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let lines = read(args)?;
    // The input is in memory in any case.
    let options = Options::new().transaction_bytes(u64::MAX);
    let options = args.turn.options_by_turns(options);
    let opened = store::open_to_write(&args.file, &options, console).map_err(|failure| {
        if store::is_missing(&args.file) {
            let file = shell_word(&args.file.to_string_lossy());
            return failure
                .hint(format!("check the path, or make a store: splitpoint create {file}"));
        }
        failure
    })?;
    let Some(db) = opened.as_store() else {
        let message = format!("`{}` has no transactions", args.file.display());
        return Err(Failure::new(Exit::Usage, message)
            .hint("convert it to a store: splitpoint convert OLD NEW"));
    };
    let unmet = db.transaction(|transaction| apply(transaction, &lines));
    let unmet = unmet.map_err(|error| opened.failed(&error));
    opened.close()?;
    let unmet = unmet?;
    if !unmet.is_empty() {
        return Err(not_as_expected(&unmet, &args.file));
    }
    if args.json {
        let number_of = |is_it: fn(&Line) -> bool| lines.iter().filter(|&line| is_it(line)).count();
        console::print_json(&serde_json::json!({
            "store": args.file.display().to_string(),
            "put": number_of(|line| matches!(line, Line::Put { .. })),
            "delete": number_of(|line| matches!(line, Line::Delete { .. })),
            "expect": number_of(|line| matches!(line, Line::Expect { .. })),
        }))?;
    }
    Ok(())
}

/// Makes all changes if the store is as expected; returns the keys that are not.
fn apply(
    transaction: &mut Transaction<'_>,
    lines: &[Line],
) -> std::result::Result<Vec<Vec<u8>>, Error> {
    let mut unmet = Vec::new();
    for line in lines {
        if let Line::Expect { key, value } = line
            && transaction.get(key)?.as_deref() != value.as_deref()
        {
            unmet.push(key.clone());
        }
    }
    if unmet.is_empty() {
        for line in lines {
            match line {
                Line::Put { key, value } => transaction.put(key, value)?,
                Line::Delete { key } => transaction.delete(key)?,
                Line::Expect { .. } => {}
            }
        }
    }
    Ok(unmet)
}

fn not_as_expected(unmet: &[Vec<u8>], file: &Path) -> Failure {
    let named = unmet.iter().take(NAMED_MAX).map(|key| format!("`{}`", shown(key)));
    let named = named.collect::<Vec<_>>().join(", ");
    let more = if unmet.len() > NAMED_MAX { ", ..." } else { "" };
    let keys = counted(count(unmet.len()), "key");
    let message = format!("{keys} not as expected in `{}`: {named}{more}", file.display());
    Failure::new(Exit::No, message).hint("nothing was changed")
}

/// Reads all lines of standard input.
fn read(args: &Args) -> Result<Vec<Line>> {
    let mut input = Input::new(Box::new(std::io::stdin()));
    let (mut lines, mut line) = (Vec::new(), Vec::new());
    let notation = Notation::with_hex(args.hex);
    loop {
        let read = input.read_line(&mut line);
        match read.map_err(|error| Failure::reading("standard input", &error))? {
            None => return Ok(lines),
            Some(_) => lines.push(parse(&line, notation, input.line())?),
        }
    }
}

fn parse(line: &[u8], notation: Notation, number: u64) -> Result<Line> {
    let malformed = |reason: &str| {
        Failure::new(Exit::No, format!("line {number} of standard input: {reason}"))
            .hint("nothing was changed")
    };
    let mut fields = line.splitn(3, |byte| *byte == b'\t');
    let verb = fields.next().unwrap_or_default();
    let key = fields.next().ok_or_else(|| malformed("no TAB behind the first word"))?;
    let decode = |what, given: &[u8]| {
        let decoded = notation.decode(what, given.to_vec());
        decoded.map_err(|failure| malformed(failure.message().unwrap_or_default()))
    };
    let key = decode("key", key)?;
    let value = fields.next().map(|value| decode("value", value)).transpose()?;
    match (verb, value) {
        (b"put", Some(value)) => Ok(Line::Put { key, value }),
        (b"put", None) => Err(malformed("no TAB between a key and a value")),
        (b"delete", None) => Ok(Line::Delete { key }),
        (b"delete", Some(_)) => Err(malformed("a delete has no value")),
        (b"expect", value) => Ok(Line::Expect { key, value }),
        _ => Err(malformed(&format!("expected put, delete or expect, found `{}`", shown(verb)))),
    }
}
