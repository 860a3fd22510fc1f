//! What the commands that measure have in common: their arguments, and one measurement.

use std::path::{Path, PathBuf};

use splitpoint_lab::reduction::prime_at_least;
use splitpoint_lab::{LiveTable, Reduction, Setup, Specimen};

use super::keys::{KeyFormat, Keys};
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::store;

/// Arguments of every command that measures.
#[derive(Debug, clap::Args)]
pub(super) struct Measuring {
    /// The file with the keys; - for standard input
    file: PathBuf,

    /// How the keys are written
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    keys: KeyFormat,

    /// Count a key that comes again as another
    #[arg(long)]
    keep_duplicates: bool,

    /// low, high, shift:N, modulus, prime, range, split, hashbrown, or own: the one that the
    /// function came with, else low
    #[arg(long, default_value = "own")]
    reduction: String,

    /// Buckets of the table; without it as many as keys, rounded up as the reduction needs
    #[arg(long)]
    buckets: Option<u64>,

    /// The seed of functions that have one
    #[arg(long, default_value_t = 0)]
    seed: u64,

    /// Keep one in 2^N hashes to find collisions: less memory
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=32))]
    sample_hashes: u32,

    /// Refuse to count in more memory than this
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 30)]
    memory_bytes: u64,
}

impl Measuring {
    /// Reads the keys; none is a failure.
    pub(super) fn read_keys(&self, console: Console) -> Result<Keys> {
        let keys = Keys::read(&self.file, self.keys, self.keep_duplicates, console)?;
        if keys.facts().key_count == 0 {
            return Err(Failure::new(Exit::No, format!("`{}` holds no keys", self.file.display()))
                .hint("--keys says how keys are written: one a line if nothing else is said"));
        }
        Ok(keys)
    }

    /// Reads the keys of the file as those of a store, and the store's own table.
    pub(super) fn read_store(&self, console: Console) -> Result<(Keys, LiveTable)> {
        let keys = Keys::read(&self.file, KeyFormat::Store, true, console)?;
        let stats = store::open_untouched(&self.file, console)
            .and_then(|db| db.stats())
            .map_err(|error| Failure::using(&self.file, &error))?;
        let live_table = LiveTable {
            hash: stats.hash_name,
            bucket_count: stats.geometry.bucket_count(),
            key_count: stats.record_count,
            chains: stats.chains,
        };
        Ok((keys, live_table))
    }

    /// Reads a trace of lookups, written like the keys.
    pub(super) fn read_lookups(&self, path: &Path, console: Console) -> Result<Keys> {
        Keys::read(path, self.keys, true, console)
    }

    /// Returns whether the keys are integers of this width.
    pub(super) fn has_words_of(&self, bytes: usize) -> bool {
        match self.keys {
            KeyFormat::U32 | KeyFormat::U32Be => bytes == 4,
            KeyFormat::U64 | KeyFormat::U64Be => bytes == 8,
            _ => false,
        }
    }

    /// Returns the measurement of a function on so many keys.
    pub(super) fn setup(&self, specimen: &'static Specimen, key_count: u64) -> Result<Setup> {
        let usage = |error: splitpoint_lab::Error| Failure::new(Exit::Usage, error.to_string());
        let reduction = match self.reduction.as_str() {
            "own" => specimen.historic_reduction().unwrap_or(Reduction::LowMask),
            name => name.parse().map_err(usage)?,
        };
        let bucket_count = match self.buckets {
            Some(bucket_count) => bucket_count,
            None if reduction.needs_power_of_two() => key_count.next_power_of_two(),
            None if reduction == Reduction::PrimeModulus => prime_at_least(key_count),
            None => key_count,
        };
        let setup = Setup::new(specimen, self.seed, reduction, bucket_count)
            .map_err(|error| usage(error).hint("choose another --buckets or --reduction"))?;
        let setup = setup.sample_hashes(self.sample_hashes);
        setup.check_memory(key_count, self.memory_bytes).map_err(|error| {
            usage(error).hint("--sample-hashes needs less, --memory-bytes allows more")
        })?;
        Ok(setup)
    }
}
