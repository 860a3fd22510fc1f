//! The arguments and measurements shared by the commands that measure.

use std::path::Path;

use splitpoint_lab::drive::{Limits, Outcome, measure};
use splitpoint_lab::keys::{DuplicatePolicy, KeyBatch, ReadError, Watch as _};
use splitpoint_lab::reduction::prime_at_least;
use splitpoint_lab::specimen::KeyLayout;
use splitpoint_lab::study::{Interruption, KeyFacts};
use splitpoint_lab::{PartialStats, Reduction, Setup, Specimen};

use super::keys::{KeyArgs, Keys};
use super::list::by_name;
use super::own::{HashesAlone, OwnArgs, Trouble};
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

    /// Leave out what takes longest: windows of 32 bits, open addressing and other reductions; look for
    /// equal hashes in a sample, of half of them or about a million, whichever is less
    #[arg(long)]
    quick: bool,
}

/// About the most hashes that --quick keeps.
const QUICK_HASHES: u64 = 1 << 20;

/// One measurement of keys.
pub(super) struct Session {
    keys: Keys,
    /// The user's own functions.
    own: Vec<&'static Specimen>,
    trouble: Trouble,
    /// Whether there are keys, and not only hashes of unknown keys.
    has_keys: bool,
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
        self.begin_with(&OwnArgs::default(), output, console)
    }

    /// Does the same, for the user's own functions too. Hashes in a file need no keys.
    pub(super) fn begin_with(
        &self,
        own: &OwnArgs,
        output: &Output,
        console: Console,
    ) -> Result<Session> {
        let alone = if self.has_file() { None } else { own.alone()? };
        if alone.is_none() {
            self.require_file(output.json_file())?;
        }
        output.check()?;
        let mut watching = Watching::new(self.progress, console);
        if let Some((function, hashes)) = alone {
            let keys = self.hashes_as_keys(function.name(), hashes, &mut watching)?;
            let (own, trouble) = (vec![function], Trouble::default());
            return Ok(Session { keys, own, trouble, has_keys: false, watching, console });
        }
        let recorder = own.recorder(self.form_for_commands())?;
        let wrap = |source| match &recorder {
            Some(recorder) => recorder.recording(source),
            None => source,
        };
        let keys = self.read_through(wrap, &mut watching, console)?;
        let trouble = Trouble::default();
        let mut session =
            Session { keys, own: Vec::new(), trouble, has_keys: true, watching, console };
        let sample = session.first_keys(self)?;
        session.own = own.functions(recorder, &sample, &session.trouble)?;
        Ok(session)
    }

    /// Takes hashes of unknown keys for keys.
    fn hashes_as_keys(
        &self,
        name: &str,
        hashes: HashesAlone,
        watching: &mut Watching,
    ) -> Result<Keys> {
        let keep = DuplicatePolicy::Keep;
        let keys = Keys::read(Box::new(hashes), keep, self.memory_bytes / 2, watching);
        watching.stops_by_itself();
        watching.end_phase();
        let mut keys = keys.map_err(|error| self.failure(&error, watching.exit()))?;
        let facts = keys.facts_mut();
        let (key_count, duplicates) = (facts.key_count, facts.duplicates);
        let (source, format) = (name.to_owned(), "hashes".to_owned());
        *facts = KeyFacts { source, format, key_count, duplicates, ..KeyFacts::default() };
        Ok(keys)
    }

    /// Returns the functions with these names, or without names all that suit the keys.
    pub(super) fn specimens(&self, names: &[String]) -> Result<Vec<&'static Specimen>> {
        if !names.is_empty() {
            return names.iter().map(|name| self.specimen(name)).collect();
        }
        let suits = |specimen: &&'static Specimen| match specimen.layout() {
            KeyLayout::Bytes => true,
            KeyLayout::Word32 => self.has_words_of(4),
            KeyLayout::Word64 => self.has_words_of(8),
            _ => false,
        };
        Ok(Specimen::all().filter(suits).collect())
    }

    /// Returns the function of this name, unless the keys cannot be what it takes.
    pub(super) fn specimen(&self, name: &str) -> Result<&'static Specimen> {
        let specimen = by_name(name)?;
        let layout = specimen.layout();
        let (width, is_text) = self.width_and_text();
        let is_wrong = |width| layout.width_bytes().is_some_and(|needed| needed != width);
        if layout == KeyLayout::Bytes || !(is_text || width.is_some_and(is_wrong)) {
            return Ok(specimen);
        }
        let keys = match width {
            Some(width) => format!("the keys are integers of {}", counted(width.into(), "byte")),
            None => "the keys are text".to_owned(),
        };
        let takes = layout.description();
        let message = format!("`{}` takes {takes}; {keys}", specimen.name());
        let format = match layout {
            KeyLayout::Word32 => "numbers, one a line, with --as u32",
            KeyLayout::Word64 => "numbers, one a line, with --as u64",
            _ => "the fields of each key in little-endian bytes, in hex, with --as hex",
        };
        Err(Failure::new(Exit::Usage, message).hint(format!("give {format}")))
    }
}

impl Session {
    /// Returns the keys.
    pub(super) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Returns the function that is `named`, or the user's own.
    pub(super) fn only(&self, named: Option<&'static Specimen>) -> Result<&'static Specimen> {
        let none = || Failure::new(Exit::Usage, "no hash function is given");
        named.or(self.own.first().copied()).ok_or_else(none)
    }

    /// Returns these functions and the user's own; of hashes without keys only the latter.
    pub(super) fn with_own(&self, mut named: Vec<&'static Specimen>) -> Vec<&'static Specimen> {
        named.retain(|_| self.has_keys);
        named.extend(&self.own);
        named
    }

    /// Returns whether there are keys, and not only hashes of unknown keys.
    pub(super) fn has_keys(&self) -> bool {
        self.has_keys
    }

    /// Says what is to know about the user's own functions, and fails if one of them did.
    pub(super) fn check_own(&self) -> Result<()> {
        for note in self.trouble.take_notes() {
            self.console.note(note);
        }
        self.trouble.check()
    }

    /// Returns some keys.
    fn first_keys(&self, args: &KeyArgs) -> Result<KeyBatch> {
        const FIRST_KEYS: usize = 4096;
        let mut first = KeyBatch::default();
        self.for_each(args, |key| {
            first.push(key);
            first.len() < FIRST_KEYS
        })?;
        Ok(first)
    }

    /// Calls `visit` with each key and its hash, 0 if that is not known, until it returns false.
    pub(super) fn for_each_hash(
        &self,
        args: &KeyArgs,
        (specimen, seed): (&Specimen, u64),
        mut visit: impl FnMut(&[u8], u64) -> bool + Send,
    ) -> Result<()> {
        const BATCH_KEYS: usize = 1024;
        let mut batch = KeyBatch::default();
        let mut flush = |batch: &mut KeyBatch| {
            let hashes = specimen.hashes(batch.iter(), seed);
            let goes_on =
                batch.iter().zip(hashes).all(|(key, hash)| visit(key, hash.unwrap_or_default()));
            batch.clear();
            goes_on
        };
        let mut goes_on = true;
        self.for_each(args, |key| {
            batch.push(key);
            if batch.len() == BATCH_KEYS {
                goes_on = flush(&mut batch);
            }
            goes_on
        })?;
        if goes_on {
            flush(&mut batch);
        }
        self.check_own()
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
        self.check_own()?;
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
                "the hashes of {} do not fit into memory: equal ones are counted in a sample, and \
                 other reductions are not tried",
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
        // At least half of them are left out, since a report takes a sample for what it is.
        let quick = (key_count / QUICK_HASHES).checked_ilog2().map_or(1, |bits| bits + 1);
        Ok(setup.sample_hashes(self.sample_hashes.max(if self.quick { quick } else { 0 })))
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
