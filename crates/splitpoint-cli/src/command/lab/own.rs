//! The user's own functions, which are not in the lab: hashes in a file, a command, a symbol of a
//! shared library.
//!
//! ```text
//! --hashes, --hash-command --> recorded by key while the keys are read --+
//! --hash-library --> a process of its own, asked in batches -------------+--> Specimen
//! ```
//!
//! # Invariants
//!
//! - A function that fails never panics or ends this process: it gives no hashes, and its
//!   [`Trouble`] is reported instead of the results.

mod command;
mod hash_file;
mod library;
mod pipe;
mod recording;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use splitpoint_lab::Specimen;
use splitpoint_lab::keys::{KeyBatch, KeyInput, KeySource, ReadError};
use splitpoint_lab::specimen::{KeyIndex, Recorded, Seeding};

pub(super) use self::command::Form;
use self::command::{Answers, CommandFunction};
use self::hash_file::HashFormat;
use self::library::LibraryFunction;
pub(super) use self::library::worker;
pub(super) use self::recording::Recorder;
use super::keys::KeyArgs;
use crate::failure::{Exit, Failure, Result};
use crate::files::read_whole;
use crate::number::{count, counted, grouped};

/// Functions that are not in the lab.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Your own function")]
pub(super) struct OwnArgs {
    /// A file with the hash of every key, in the order of the keys, computed by your program
    #[arg(long, value_name = "FILE")]
    hashes: Vec<PathBuf>,

    /// A shell command that reads the keys from standard input, one a line, and prints the hash of
    /// each on a line; keys that are not text come in hex, those of --keys nul end with a NUL byte
    #[arg(long, value_name = "COMMAND")]
    hash_command: Vec<String>,

    /// A function in a shared library.
    #[arg(
        long,
        value_name = "FILE:SYMBOL",
        help = "A function in a shared library: uint64_t SYMBOL(const void *key, size_t bytes, \
                uint64_t seed); it runs in a process of its own"
    )]
    hash_library: Vec<String>,

    /// The format of the hashes of files and commands [default: what their digits show]
    #[arg(long, value_enum, value_name = "FORMAT")]
    hashes_as: Option<HashFormat>,

    /// Width of the hashes [default: of a library 64; of a file or command 32 if all of them fit,
    /// otherwise 64]
    #[arg(long, value_name = "BITS", value_parser = clap::value_parser!(u32).range(1..=64))]
    width: Option<u32>,

    /// Seconds that a function of a library may take for a key; after that it counts as one that
    /// does not end
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    hash_timeout: Duration,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|&seconds| seconds > 0.0);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "expected a number of seconds above 0".to_owned())
}

/// Keys of which a function is asked again whenever it is started, to see that it is the same.
const KNOWN_KEYS: usize = 8;

/// What went wrong with functions.
#[derive(Clone, Debug, Default)]
pub(super) struct Trouble(Arc<Mutex<Troubles>>);

#[derive(Debug, Default)]
struct Troubles {
    /// The first failure: there are no results.
    failure: Option<Failure>,
    /// What to know about the results.
    notes: Vec<String>,
}

impl Trouble {
    fn lock(&self) -> MutexGuard<'_, Troubles> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, failure: Failure) {
        self.lock().failure.get_or_insert(failure);
    }

    fn is_set(&self) -> bool {
        self.lock().failure.is_some()
    }

    fn note(&self, note: String) {
        self.lock().notes.push(note);
    }

    /// Returns what to know about the results, once.
    pub(super) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().notes)
    }

    /// Returns what went wrong as an error.
    pub(super) fn check(&self) -> Result<()> {
        match self.lock().failure.take() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }
}

impl OwnArgs {
    /// Returns how many functions these are.
    pub(super) fn count(&self) -> usize {
        self.hashes.len() + self.hash_command.len() + self.hash_library.len()
    }

    /// Fails unless there is exactly one function, `named` or own.
    pub(super) fn require_one(&self, named: Option<&str>) -> Result<()> {
        match self.count() + usize::from(named.is_some()) {
            1 => Ok(()),
            0 => Err(Failure::new(Exit::Usage, "no hash function is given").hint(
                "name one with --hash (splitpoint lab list shows them), or give your own with \
                 --hashes, --hash-command or --hash-library",
            )),
            several => {
                let message = format!("{several} hash functions are given, one is needed");
                Err(Failure::new(Exit::Usage, message)
                    .hint("to compare several, use splitpoint lab hash"))
            }
        }
    }

    /// Fails if a function is `named` beside hashes without their keys, which it needs.
    pub(super) fn require_keys_for(&self, named: &[String], keys: &KeyArgs) -> Result<()> {
        match named.first() {
            Some(name) if self.count() > 0 && !keys.has_file() => {
                Err(Failure::new(Exit::Usage, format!("--hash {name} needs the keys"))
                    .hint("give a file with the keys, or leave --hash out"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the recorder that notes the keys as they are read and passes them to the commands;
    /// `None` if no function needs it.
    pub(super) fn recorder(&self, form: Form) -> Result<Option<Recorder>> {
        if self.hashes.is_empty() && self.hash_command.is_empty() {
            return Ok(None);
        }
        // Now, so that errors show early; and once, because a file may be a pipe.
        let of_files = self.hashes.iter().map(|path| self.read(path)).collect::<Result<_>>()?;
        Recorder::start(&self.hash_command, form, self.hashes_as, of_files).map(Some)
    }

    /// Returns the functions, after all keys were read. `sample` are some of the keys.
    pub(super) fn functions(
        &self,
        recorder: Option<Recorder>,
        sample: &KeyBatch,
        trouble: &Trouble,
    ) -> Result<Vec<&'static Specimen>> {
        let mut names = Names::default();
        let mut functions = Vec::new();
        if let Some(recorder) = recorder {
            let recorded = recorder.finish(self.hashes_as)?;
            for (path, hashes) in self.hashes.iter().zip(recorded.of_files) {
                let name = names.unique(&path.display().to_string());
                require_one_each(&name, &hashes, &recorded.index)?;
                let width = self.width_of(&name, &hashes)?;
                let function = Recorded::new(Arc::clone(&recorded.index), hashes);
                functions.push(Specimen::foreign(&name, width, Seeding::None, function));
            }
            for (command, Answers { hashes, format, known }) in
                self.hash_command.iter().zip(recorded.of_commands)
            {
                let name = names.unique(command);
                require_one_each(&name, &hashes, &recorded.index)?;
                let width = self.width_of(&name, &hashes)?;
                let function = CommandFunction {
                    recorded: Recorded::new(Arc::clone(&recorded.index), hashes),
                    command: command.clone(),
                    form: recorded.form,
                    format,
                    width_bits: width,
                    known,
                    is_another: AtomicBool::new(false),
                    trouble: trouble.clone(),
                };
                functions.push(Specimen::foreign(&name, width, Seeding::None, function));
            }
        }
        for library in &self.hash_library {
            let place = split_library(library)?;
            let name = names.unique(library);
            let (width, trouble) = (self.width.unwrap_or(u64::BITS), trouble.clone());
            let mut function =
                LibraryFunction::start(&name, place, width, self.hash_timeout, trouble)?;
            let seeding = function.examine(sample)?;
            functions.push(Specimen::foreign(&name, width, seeding, function));
        }
        Ok(functions)
    }

    /// Returns the hashes of the only file, to measure without their keys; `None` if other
    /// functions need the keys.
    pub(super) fn alone(&self) -> Result<Option<(&'static Specimen, HashesAlone)>> {
        let ([path], [], []) = (&*self.hashes, &*self.hash_command, &*self.hash_library) else {
            return Ok(None);
        };
        let name = path.display().to_string();
        let hashes = self.read(path)?;
        let width = self.width_of(&name, &hashes)?;
        let identity = Specimen::foreign(&name, width, Seeding::None, Identity);
        Ok(Some((identity, HashesAlone(hashes))))
    }

    fn read(&self, path: &Path) -> Result<Vec<u64>> {
        let bytes = read_whole(path)?;
        let name = path.display().to_string();
        let (hashes, _) =
            hash_file::read(&bytes, self.hashes_as).map_err(|why| malformed(&name, &why))?;
        if hashes.is_empty() {
            return Err(Failure::new(Exit::No, format!("`{name}` holds no hashes")));
        }
        Ok(hashes)
    }

    /// Returns the width of all hashes: that of --width, or 32 if they fit, otherwise 64.
    fn width_of(&self, name: &str, hashes: &[u64]) -> Result<u32> {
        let bits =
            hashes.iter().fold(0, |all, hash| all | hash).checked_ilog2().map_or(0, |top| top + 1);
        match self.width {
            Some(width) if bits > width => {
                let message =
                    format!("`{name}`: a hash has {bits} bits, more than the {width} of --width");
                Err(Failure::new(Exit::Usage, message).hint(format!("give --width {bits} or more")))
            }
            Some(width) => Ok(width),
            None => Ok(if bits > 32 { 64 } else { 32 }),
        }
    }
}

fn malformed(name: &str, why: &str) -> Failure {
    Failure::new(Exit::Usage, format!("`{name}`: {why}"))
        .hint("set the format of the hashes with --hashes-as, such as hex, decimal or u64")
}

/// Fails unless there is one hash for each key, and the same for the same key.
fn require_one_each(name: &str, hashes: &[u64], index: &KeyIndex) -> Result<()> {
    if hashes.len() != index.key_count() {
        let keys = counted(count(index.key_count()), "key");
        let message = format!("`{name}` has {} hashes for {keys}", grouped(count(hashes.len())));
        return Err(Failure::new(Exit::Usage, message)
            .hint("give one hash per key, in the order of the keys"));
    }
    for &(first, later) in index.repeated() {
        let [first_hash, later_hash] = [hashes[first], hashes[later]];
        if first_hash != later_hash {
            let (first, later) = (grouped(count(first) + 1), grouped(count(later) + 1));
            let message = format!(
                "`{name}`: keys {first} and {later} are equal, but their hashes are \
                 {first_hash:#x} and {later_hash:#x}"
            );
            return Err(Failure::new(Exit::Usage, message).hint(
                "a function gives a key one hash; are the hashes in the order of the keys?",
            ));
        }
    }
    Ok(())
}

/// Splits `FILE:SYMBOL`.
fn split_library(text: &str) -> Result<(&Path, &str)> {
    match text.rsplit_once(':') {
        Some((file, symbol)) if !file.is_empty() && !symbol.is_empty() => {
            Ok((Path::new(file), symbol))
        }
        _ => Err(Failure::new(Exit::Usage, format!("`{text}` is not FILE:SYMBOL"))
            .hint("for example --hash-library ./libmine.so:my_hash")),
    }
}

/// Names of functions that no other function has.
#[derive(Default)]
struct Names(Vec<String>);

impl Names {
    fn unique(&mut self, wanted: &str) -> String {
        let mut name = wanted.to_owned();
        let is_taken = |name: &String| {
            self.0.contains(name) || Specimen::all().any(|built_in| built_in.name() == name)
        };
        let mut number = 1;
        while is_taken(&name) {
            number += 1;
            name = format!("{wanted} ({number})");
        }
        self.0.push(name.clone());
        name
    }
}

/// Hashes as keys that are their own hashes.
#[derive(Debug)]
struct Identity;

impl splitpoint_lab::specimen::Foreign for Identity {
    fn hashes(&self, keys: &[&[u8]], _seed: u64) -> Vec<Option<u64>> {
        keys.iter().map(|key| key.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))).collect()
    }
}

/// Hashes whose keys are not known.
pub(super) struct HashesAlone(Vec<u64>);

impl KeySource for HashesAlone {
    fn open(&self) -> Result<Box<dyn KeyInput + Send + '_>, ReadError> {
        Ok(Box::new(HashInput(self.0.iter())))
    }
}

struct HashInput<'a>(std::slice::Iter<'a, u64>);

impl KeyInput for HashInput<'_> {
    fn read_batch(&mut self, batch: &mut KeyBatch) -> Result<bool, ReadError> {
        const BATCH_KEYS: usize = 1 << 15;
        self.0.by_ref().take(BATCH_KEYS).for_each(|hash| batch.push(&hash.to_le_bytes()));
        Ok(!self.0.as_slice().is_empty())
    }
}
