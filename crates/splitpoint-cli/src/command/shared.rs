//! Arguments shared by several commands.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use splitpoint::Options;
use splitpoint::hash::HashFunction;

use crate::bytes::Notation;
use crate::failure::{Exit, Failure, Result};
use crate::progress::ProgressMode;
use crate::store::WriteOptions;

/// How to show the progress and the result of long work.
#[derive(Debug, clap::Args)]
pub(super) struct Showing {
    /// Print the result as a JSON object
    #[arg(long)]
    pub(super) json: bool,

    /// When to show progress
    #[arg(long, value_enum, default_value_t)]
    pub(super) progress: ProgressMode,
}

/// How long a command waits for others.
#[derive(Debug, clap::Args)]
pub(super) struct Turn {
    /// Wait at most this long for a process that keeps this command out; 0 fails at once
    #[arg(long, value_name = "SECONDS", default_value_t = 10, allow_negative_numbers = true)]
    lock_timeout: u64,
}

impl Turn {
    /// Returns how long the command waits at most.
    pub(super) fn wait_max(&self) -> Duration {
        Duration::from_secs(self.lock_timeout)
    }

    /// Returns how to open a table that the command may change.
    pub(super) fn options(&self, options: Options) -> WriteOptions {
        WriteOptions { options, lock_timeout: self.wait_max(), may_take_turns: false }
    }

    /// Does the same for a command that may change it by turns with others.
    pub(super) fn options_by_turns(&self, options: Options) -> WriteOptions {
        WriteOptions { may_take_turns: true, ..self.options(options) }
    }
}

/// A damaged file, and the new store for its readable records.
#[derive(Debug, clap::Args)]
pub(super) struct Saving {
    /// The damaged file
    pub(super) file: PathBuf,

    /// The new store; the file must not exist
    #[arg(short, long, value_name = "NEW")]
    pub(super) output: PathBuf,

    #[command(flatten)]
    pub(super) showing: Showing,
}

/// The hash function of a new store.
#[derive(Debug, clap::Args)]
pub(super) struct HashChoice {
    /// The hash function; use siphash-1-3 if an attacker may choose the keys
    #[arg(long, value_name = "NAME", hide_default_value = true,
          value_parser = PossibleValuesParser::new(hash_names()))]
    pub(super) hash: Option<String>,

    /// The seed of the hash function, in decimal or in hex with 0x [default: random]
    #[arg(long, value_parser = parse_seed)]
    pub(super) seed: Option<u64>,
}

impl HashChoice {
    /// Returns the chosen function, if any.
    pub(super) fn function(&self) -> Result<Option<HashFunction>> {
        let Some(name) = &self.hash else { return Ok(None) };
        let unknown = || Failure::new(Exit::Usage, format!("no hash function `{name}`"));
        HashFunction::by_name(name).map(Some).ok_or_else(unknown)
    }
}

fn hash_names() -> Vec<String> {
    HashFunction::all().iter().map(|function| function.name().to_string()).collect()
}

/// Reads a seed.
pub(in crate::command) fn parse_seed(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "a seed is a 64-bit number, in decimal or in hex with 0x".to_string())
}

/// The keys that a command looks up or removes.
#[derive(Debug, clap::Args)]
pub(super) struct Keys {
    /// The keys
    #[arg(value_name = "KEY", id = "keys", required_unless_present = "stdin")]
    given: Vec<OsString>,

    /// Also read keys from standard input, one per line, or NUL-terminated with -0
    #[arg(long)]
    stdin: bool,

    /// Read keys in hex, and print keys and values in hex
    #[arg(long)]
    pub(super) hex: bool,

    /// Terminate keys on standard input and printed values with NUL instead of newline
    #[arg(short = '0', long, conflicts_with = "hex")]
    pub(super) null: bool,
}

/// Keys per batch.
const BATCH_KEYS: usize = 1024;

impl Keys {
    /// Returns the notation of keys and printed values.
    pub(super) fn notation(&self) -> Notation {
        Notation::with_hex(self.hex)
    }

    /// Decodes the keys of the command line; [`ParsedKeys`] reads those of standard input later.
    pub(super) fn parse(&self) -> Result<ParsedKeys> {
        let notation = self.notation();
        let given = self.given.iter().map(|key| notation.parse("key", key));
        let end = if self.null { 0 } else { b'\n' };
        let input = self.stdin.then_some(end);
        Ok(ParsedKeys { given: given.collect::<Result<_>>()?, input, notation })
    }
}

/// The keys of the command line, and the terminator of those on standard input.
#[derive(Debug)]
pub(super) struct ParsedKeys {
    given: Vec<Vec<u8>>,
    input: Option<u8>,
    notation: Notation,
}

impl ParsedKeys {
    /// Returns the key if there is certainly only one.
    pub(super) fn only(&self) -> Option<&[u8]> {
        match (&self.given[..], self.input) {
            ([key], None) => Some(key),
            _ => None,
        }
    }

    /// Calls `work` with batches of keys, in order, until it fails.
    pub(super) fn try_for_each(
        &self,
        mut work: impl FnMut(&[Vec<u8>]) -> Result<()>,
    ) -> Result<()> {
        self.given.chunks(BATCH_KEYS).try_for_each(&mut work)?;
        let Some(end) = self.input else { return Ok(()) };
        try_for_each_key(io::stdin(), (end, self.notation), "standard input", work)
    }
}

/// Calls `work` with batches of the keys in `input`, in order, until it fails. Each key ends with a
/// byte and is in a notation; `name` is what errors call the input.
pub(super) fn try_for_each_key(
    input: impl io::Read,
    (end, notation): (u8, Notation),
    name: &str,
    mut work: impl FnMut(&[Vec<u8>]) -> Result<()>,
) -> Result<()> {
    let mut input = BufReader::new(input);
    let mut keys = Vec::new();
    loop {
        let mut key = Vec::new();
        let taken = input.read_until(end, &mut key);
        let failed = |error| Failure::io(&format!("read keys from {name}"), &error);
        if taken.map_err(failed)? == 0 {
            return work(&keys);
        }
        if key.last() == Some(&end) {
            key.pop();
        }
        keys.push(notation.decode("key", key)?);
        // Work on what a slow pipe has sent before the next read blocks.
        if keys.len() == BATCH_KEYS || input.buffer().is_empty() {
            work(&keys)?;
            keys.clear();
        }
    }
}
