//! A function in a shared library, in a process of its own: a crash there is an error here, and so
//! is a key on which the function does not end.

mod process;
mod worker;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use splitpoint_lab::keys::KeyBatch;
use splitpoint_lab::specimen::{Foreign, Seeding};
use splitpoint_lab::timing::{RemoteClock, Sample, Turn};

use self::process::{End, Process};
pub(in crate::command::lab) use self::worker::worker;
use super::{KNOWN_KEYS, Trouble};
use crate::bytes::shown;
use crate::failure::{Exit, Failure, Result};
use crate::number::{count, counted};

/// Keys of a request.
const BATCH_KEYS: usize = 1024;
/// Hashes that fit into 32 bits only by chance if they are of 64: one in `2^(32 * 8)`.
const NARROW_HASHES: usize = 8;

/// A function in a shared library.
#[derive(Debug)]
pub(super) struct LibraryFunction {
    name: String,
    file: PathBuf,
    symbol: String,
    width_bits: u32,
    /// Time for the hash of one key.
    limit: Duration,
    /// Keys of a request: one if the function is so slow that more would take too long.
    batch_keys: AtomicUsize,
    /// Some keys and their hashes with the seed 0, which every process must give.
    known: Vec<(Vec<u8>, u64)>,
    /// Processes that wait for work.
    idle: Mutex<Vec<Process>>,
    trouble: Trouble,
}

impl LibraryFunction {
    /// Starts a process with the library. `width_bits` are those of the hashes, and `limit` the
    /// time for one of them.
    pub(super) fn start(
        name: &str,
        (file, symbol): (&Path, &str),
        width_bits: u32,
        limit: Duration,
        trouble: Trouble,
    ) -> Result<Self> {
        let function = Self {
            name: name.to_owned(),
            file: file.to_owned(),
            symbol: symbol.to_owned(),
            width_bits,
            limit,
            batch_keys: AtomicUsize::new(BATCH_KEYS),
            known: Vec::new(),
            idle: Mutex::default(),
            trouble,
        };
        let process = function.process()?;
        function.give_back(process);
        Ok(function)
    }

    /// Tries some keys. Returns whether the seed does anything, and notes what looks wrong.
    pub(super) fn examine(&mut self, sample: &KeyBatch) -> Result<Seeding> {
        let keys: Vec<&[u8]> = sample.iter().collect();
        let hashes = [0, 1].map(|seed| self.hashes(&keys, seed));
        self.trouble.check()?;
        let is_narrow = |hash: &Option<u64>| hash.is_some_and(|hash| u32::try_from(hash).is_ok());
        if self.width_bits == u64::BITS
            && keys.len() >= NARROW_HASHES
            && hashes.iter().flatten().all(is_narrow)
        {
            self.trouble.note(format!(
                "`{}` counts as a function of 64 bits, but the hashes of the first {} fit into \
                 32; if all do, give --width 32",
                self.name,
                counted(count(keys.len()), "key")
            ));
        }
        let seeding = if hashes[0] == hashes[1] { Seeding::None } else { Seeding::Bits64 };
        let pairs = keys.iter().zip(&hashes[0]).take(KNOWN_KEYS);
        self.known = pairs.filter_map(|(key, hash)| Some((key.to_vec(), (*hash)?))).collect();
        Ok(seeding)
    }

    /// Returns a process that waits, or a new one that gives the known hashes.
    fn process(&self) -> Result<Process> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(process) = idle {
            return Ok(process);
        }
        let mut process = Process::start(&self.file, &self.symbol, self.limit)?;
        for (key, hash) in &self.known {
            match process.hashes(&[key], 0) {
                Ok(found) if found == [*hash] => {}
                Ok(_) => return Err(self.differs()),
                Err(error) => return Err(self.failed_on(key, &process.end(&error))),
            }
        }
        Ok(process)
    }

    fn give_back(&self, process: Process) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(process);
    }

    fn batch(&self, keys: &[&[u8]], seed: u64) -> Result<Vec<u64>> {
        let mut process = self.process()?;
        match process.hashes(keys, seed) {
            Ok(hashes) => {
                self.give_back(process);
                Ok(hashes)
            }
            Err(error) => {
                let end = process.end(&error);
                self.one_by_one(keys, seed, &end)
            }
        }
    }

    /// Hashes keys one by one, after a process with all of them ended as `end` says: finds the key
    /// to blame, or that the function is only slow.
    fn one_by_one(&self, keys: &[&[u8]], seed: u64, end: &End) -> Result<Vec<u64>> {
        let mut process = self.process()?;
        let mut hashes = Vec::with_capacity(keys.len());
        for key in keys {
            match process.hashes(&[key], seed) {
                Ok(found) => hashes.extend(found),
                Err(error) => return Err(self.failed_on(key, &process.end(&error))),
            }
        }
        match end {
            End::Silent => {
                self.batch_keys.store(1, Ordering::Relaxed);
                self.give_back(process);
                Ok(hashes)
            }
            End::Ended(how) => {
                let on = format!("on one of {} keys, though on none of them alone", keys.len());
                Err(self.crashed(&on, how))
            }
        }
    }

    fn failed_on(&self, key: &[u8], end: &End) -> Failure {
        let on = format!("on the key `{}` of {}", shown(key), counted(count(key.len()), "byte"));
        match end {
            End::Ended(how) => self.crashed(&on, how),
            End::Silent => {
                let seconds = self.limit.as_secs_f64();
                let message = format!("`{}` does not end in {seconds} s {on}", self.name);
                Failure::new(Exit::No, message)
                    .hint("nothing was measured; --hash-timeout gives it more time")
            }
        }
    }

    fn crashed(&self, on: &str, how: &str) -> Failure {
        Failure::new(Exit::No, format!("`{}` crashed {on} ({how})", self.name))
            .hint("nothing was measured; it must be uint64_t f(const void *, size_t, uint64_t)")
    }

    fn differs(&self) -> Failure {
        let message = format!("`{}` gives the same key another hash in another process", self.name);
        Failure::new(Exit::No, message)
            .hint("nothing was measured; it must not draw a seed of its own")
    }

    fn checked(&self, hashes: Vec<u64>) -> Result<Vec<Option<u64>>> {
        let wide = hashes.iter().find(|&&hash| hash > u64::MAX >> (64 - self.width_bits));
        let Some(wide) = wide else { return Ok(hashes.into_iter().map(Some).collect()) };
        let message = format!(
            "`{}`: the hash {wide:#x} has more than the {} bits of --width",
            self.name, self.width_bits
        );
        Err(Failure::new(Exit::Usage, message)
            .hint("leave --width out, or give the bits that the function can set"))
    }
}

impl Foreign for LibraryFunction {
    fn hashes(&self, keys: &[&[u8]], seed: u64) -> Vec<Option<u64>> {
        let mut hashes = Vec::with_capacity(keys.len());
        while hashes.len() < keys.len() && !self.trouble.is_set() {
            let rest = &keys[hashes.len()..];
            let batch = &rest[..rest.len().min(self.batch_keys.load(Ordering::Relaxed))];
            match self.batch(batch, seed).and_then(|found| self.checked(found)) {
                Ok(found) => hashes.extend(found),
                Err(failure) => self.trouble.set(failure),
            }
        }
        hashes.resize(keys.len(), None);
        hashes
    }

    fn clock(&self, sample: &Sample, seed: u64) -> Option<Box<dyn RemoteClock + '_>> {
        let mut process = self.process().ok()?;
        let keys: Vec<&[u8]> = sample.keys().collect();
        process.begin_to_time(&keys, seed).ok()?;
        Some(Box::new(LibraryClock { function: self, process: Some(process) }))
    }
}

/// The clock of a function in a library. One that takes too long has no times.
struct LibraryClock<'f> {
    function: &'f LibraryFunction,
    /// `None` once it has failed.
    process: Option<Process>,
}

impl RemoteClock for LibraryClock<'_> {
    fn turn(&mut self) -> Option<[Turn; 2]> {
        match self.process.as_mut()?.turn() {
            Ok(turns) => Some(turns),
            Err(error) => {
                if let End::Ended(how) = self.process.take()?.end(&error) {
                    self.function.trouble.set(self.function.crashed("while it was timed", &how));
                }
                None
            }
        }
    }
}

impl Drop for LibraryClock<'_> {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            self.function.give_back(process);
        }
    }
}
