//! The arguments and measurements shared by the commands that measure.

use std::path::Path;

use splitpoint_lab::drive::{Limits, Outcome, measure};
use splitpoint_lab::keys::{KeyBatch, ReadError, Watch as _};
use splitpoint_lab::reduction::prime_at_least;
use splitpoint_lab::specimen::KeyLayout;
use splitpoint_lab::study::Interruption;
use splitpoint_lab::{PartialStats, Reduction, Setup, Specimen};

use super::keys::{KeyArgs, Keys};
use super::list::by_name;
use super::saving::Output;
use super::watching::Watching;
use crate::command::shared::parse_seed;
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::number::{bytes, counted};

/// Arguments of the commands that measure one table.
#[derive(Debug, clap::Args)]
pub(super) struct Measuring {
    #[command(flatten)]
    pub(super) keys: KeyArgs,

    /// How a hash becomes a bucket: low, high, shift:N, modulus, prime, range, split, hashbrown, or
    /// own (the reduction published with the function, or low if there is none)
    #[arg(long, default_value = "own")]
    reduction: String,

    /// Number of buckets [default: the number of keys, rounded up as the reduction requires]
    #[arg(long)]
    buckets: Option<u64>,

    /// The seed of seeded functions, in decimal or in hex with 0x
    #[arg(long, default_value = "0", value_parser = parse_seed)]
    seed: u64,

    /// Look for equal hashes in a sample of one in 2^N, to save memory
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=32))]
    sample_hashes: u32,
}

/// One measurement of keys.
pub(super) struct Session {
    keys: Keys,
    watching: Watching,
    console: Console,
}

/// Memory for counts up to which the command prints no note.
const UNSAID_BYTES: u64 = 1 << 30;
/// Buffers of a pass over keys that are not in memory.
const BUFFERS_BYTES: u64 = 8 << 20;

impl KeyArgs {
    /// Reads the keys, to measure them until Ctrl-C, and fails if there are none.
    pub(super) fn begin(&self, output: &Output, console: Console) -> Result<Session> {
        self.require_file(output.json_file())?;
        output.check()?;
        let mut watching = Watching::new(self.progress, console);
        let keys = self.read(&mut watching, console)?;
        Ok(Session { keys, watching, console })
    }

    /// Returns the functions with these names, or without names all that suit the keys.
    pub(super) fn specimens(&self, names: &[String]) -> Result<Vec<&'static Specimen>> {
        if !names.is_empty() {
            return names.iter().map(|name| by_name(name)).collect();
        }
        let suits = |specimen: &&'static Specimen| match specimen.layout() {
            KeyLayout::Bytes => true,
            KeyLayout::Word32 => self.has_words_of(4),
            KeyLayout::Word64 => self.has_words_of(8),
            _ => false,
        };
        Ok(Specimen::all().filter(suits).collect())
    }
}

impl Session {
    /// Returns the keys.
    pub(super) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Measures every setup, in threads, and passes the counts of each to `finish`.
    pub(super) fn measure<T: Send>(
        &mut self,
        args: &KeyArgs,
        setups: &[Setup],
        finish: impl Fn(&PartialStats) -> T + Sync,
    ) -> Result<Outcome<T>> {
        let buffers = if self.keys.held().is_some() { 0 } else { BUFFERS_BYTES };
        let key_bytes = self.keys.memory_bytes();
        let memory_bytes = args.memory_bytes.saturating_sub(key_bytes + buffers);
        let memory_bytes = memory_bytes.max(args.memory_bytes / 4);
        let needed = |setup: &Setup| setup.memory_bytes(self.keys.len()).min(memory_bytes);
        let needed_bytes = setups.iter().map(needed).fold(0, u64::saturating_add).min(memory_bytes);
        if needed_bytes > UNSAID_BYTES {
            self.console.note(format_args!(
                "the counts of {} will take up to {}, the keys take {}",
                counted(setups.len() as u64, "table"),
                bytes(needed_bytes),
                bytes(key_bytes)
            ));
        }
        let limits = Limits { memory_bytes, thread_count: args.threads };
        let outcome = measure(&self.keys, setups, limits, &mut self.watching, finish);
        self.watching.end_phase();
        let outcome = outcome.map_err(|error| match error {
            ReadError::Memory { needed_bytes, allowed_bytes } => Failure::new(
                Exit::Usage,
                format!("the counts take {needed_bytes} bytes, {allowed_bytes} are allowed"),
            )
            .hint("--memory-bytes allows more, and smaller tables need less"),
            error => args.failure(&error, self.watching.exit()),
        })?;
        if outcome.sampled_count > 0 {
            self.console.note(format_args!(
                "the hashes of {} do not fit into memory: equal ones are counted in a sample",
                counted(outcome.sampled_count, "table")
            ));
        }
        Ok(outcome)
    }

    /// Reads a trace of lookups in the format of the keys; it must fit into memory.
    pub(super) fn read_trace(
        &mut self,
        args: &KeyArgs,
        path: &Path,
        console: Console,
    ) -> Result<KeyBatch> {
        let trace = args.of_trace(path).read(&mut self.watching, console)?;
        trace.held().cloned().ok_or_else(|| {
            Failure::new(Exit::Usage, format!("`{}` does not fit into memory", path.display()))
                .hint("--memory-bytes allows more; or use a part of the lookups")
        })
    }

    /// Calls `visit` with each key until it returns false.
    pub(super) fn for_each(
        &self,
        args: &KeyArgs,
        mut visit: impl FnMut(&[u8]) -> bool + Send,
    ) -> Result<()> {
        use std::ops::ControlFlow;
        let flow =
            |goes_on| if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
        let is_stopped = || self.watching.is_stopped();
        self.keys
            .for_each(|key| flow(!is_stopped() && visit(key)))
            .map_err(|error| args.failure(&error, self.watching.exit()))
    }

    /// Returns whether to stop the work.
    pub(super) fn is_stopped(&self) -> bool {
        self.watching.is_stopped()
    }

    /// Fails if a signal stopped the work; call it after printing the partial result.
    pub(super) fn end(&self, interruption: Option<&Interruption>) -> Result<()> {
        let Some(interruption) = interruption else { return Ok(()) };
        let exit = self.watching.exit().unwrap_or(Exit::Interrupted);
        Err(Failure::new(exit, format!("interrupted: {}", interruption.missing))
            .hint("the results cover only the keys counted so far"))
    }
}

impl Measuring {
    /// Returns the seed.
    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the measurement of a function on `key_count` keys.
    pub(super) fn setup(&self, specimen: &'static Specimen, key_count: u64) -> Result<Setup> {
        let Self { seed, reduction, buckets, .. } = self;
        let setup = setup(specimen, *seed, reduction, *buckets, key_count)?;
        Ok(setup.sample_hashes(self.sample_hashes))
    }
}

/// Returns the measurement of a function with the reduction of this name. Without `buckets`, the
/// size of the table follows from the number of keys.
pub(super) fn setup(
    specimen: &'static Specimen,
    seed: u64,
    reduction: &str,
    buckets: Option<u64>,
    key_count: u64,
) -> Result<Setup> {
    let usage = |error: splitpoint_lab::Error| Failure::new(Exit::Usage, error.to_string());
    let reduction = match reduction {
        "own" => specimen.historic_reduction().unwrap_or(Reduction::LowMask),
        name => name.parse().map_err(usage)?,
    };
    let bucket_count = buckets.unwrap_or_else(|| match reduction {
        Reduction::PrimeModulus => prime_at_least(key_count),
        _ if reduction.needs_power_of_two() => key_count.next_power_of_two(),
        _ => key_count,
    });
    Setup::new(specimen, seed, reduction, bucket_count)
        .map_err(|error| usage(error).hint("choose another --buckets or --reduction"))
}
