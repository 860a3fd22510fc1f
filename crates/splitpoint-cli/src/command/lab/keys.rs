//! The keys that the lab measures: where they are and how to read them.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Read, Seek as _, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use splitpoint::Db;
use splitpoint_lab::keys::{
    Column, DuplicatePolicy, Encoding, Framing, KeyBatch, KeyFormat, KeyInput, KeySource, Place,
    ReadError, reader,
};
use splitpoint_lab::study::{Duplicates, KeyFacts};
use splitpoint_lab::{Error, LiveTable};

use super::own::Form;
use super::watching::Watching;
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::files::refuse_no_stream;
use crate::format::{Detected, Foreign, detect};
use crate::number::{bytes, count, counted};
use crate::progress::ProgressMode;
use crate::shell::shell_word;
use crate::store;

/// Keys and the facts about them.
pub(super) type Keys = splitpoint_lab::keys::Keys<'static>;

/// Which file has the keys, and how they lie in it.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct FileArgs {
    /// The file with the keys; - for standard input
    file: Option<PathBuf>,

    /// The format of the keys: lines, hex, base64, decimal (text, one key per line); nul
    /// (NUL-terminated text); csv, tsv (see --column); u8 to u64 (integers, little-endian, or
    /// big-endian with the suffix -be); len8, len16, len32, len64 (each key after its length, also
    /// with -be); varint (each key after its length in LEB128); store
    #[arg(long = "keys", default_value = "lines", value_name = "FORMAT")]
    format: String,

    /// How to decode the text of a key: bytes, hex, base64, or u8 to u64 for decimal numbers
    #[arg(long = "as", value_name = "ENCODING")]
    encoding: Option<String>,

    /// The column of a CSV or TSV file, by header name or by number [default: 1]
    #[arg(long, value_name = "COLUMN")]
    column: Option<String>,

    /// Treat the first row of a CSV or TSV file as a header
    #[arg(long)]
    header: bool,
}

/// Arguments of the commands that measure keys.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct KeyArgs {
    #[command(flatten)]
    in_file: FileArgs,

    /// Count each repetition of a key as another key
    #[arg(long)]
    keep_duplicates: bool,

    /// Use at most this much memory, plus a few megabytes; keys get half of it, and if they do not
    /// fit, they are read again for each pass
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 30)]
    pub(super) memory_bytes: u64,

    /// Number of threads [default: one per core]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(super) threads: usize,

    /// When to show progress
    #[arg(long, value_enum, default_value_t)]
    pub(super) progress: ProgressMode,
}

/// The format of the keys, or a store.
enum Format {
    Bytes(KeyFormat),
    Store,
}

impl FileArgs {
    /// Returns the arguments that count each repetition of a key, in one thread.
    pub(super) fn with_duplicates(&self, memory_bytes: u64, progress: ProgressMode) -> KeyArgs {
        KeyArgs { in_file: self.clone(), keep_duplicates: true, memory_bytes, threads: 1, progress }
    }
}

impl KeyArgs {
    /// Fails if there is no file of keys. `taken` is the file of another argument, which the user
    /// may have meant as the file of keys.
    pub(super) fn require_file(&self, taken: Option<&Path>) -> Result<()> {
        if self.in_file.file.is_some() { Ok(()) } else { Err(missing_file(taken)) }
    }

    /// Reads the keys, and fails if there are none.
    pub(super) fn read(&self, watching: &mut Watching, console: Console) -> Result<Keys> {
        self.read_through(|source| source, watching, console)
    }

    /// Does the same with the source that `wrap` makes of the keys' own.
    pub(super) fn read_through(
        &self,
        wrap: impl FnOnce(Box<dyn KeySource>) -> Box<dyn KeySource>,
        watching: &mut Watching,
        console: Console,
    ) -> Result<Keys> {
        let path = self.file();
        let format = self.format()?;
        let policy =
            if self.keep_duplicates { DuplicatePolicy::Keep } else { DuplicatePolicy::Remove };
        let source = wrap(source(path, &format, console)?);
        watching.expect_bytes(path);
        let keys =
            splitpoint_lab::keys::Keys::read(source, policy, self.memory_bytes / 2, watching);
        watching.stops_by_itself();
        watching.end_phase();
        let mut keys = keys.map_err(|error| self.failure(&error, watching.exit()))?;
        keys.facts_mut().source = path.display().to_string();
        keys.facts_mut().format = match &format {
            Format::Bytes(format) => format.to_string(),
            Format::Store => "store".to_string(),
        };
        self.tell(&keys, console);
        if keys.is_empty() {
            return Err(Failure::new(Exit::No, format!("`{}` holds no keys", path.display()))
                .hint("set the format of the keys with --keys; the default is one per line"));
        }
        Ok(keys)
    }

    /// Returns the same arguments for a file that is a store.
    pub(super) fn of_store(&self) -> Self {
        let in_file = FileArgs { format: "store".to_string(), ..self.in_file.clone() };
        Self { in_file, ..self.clone() }
    }

    /// Returns the same arguments for a file of lookups, with all of its duplicates.
    pub(super) fn of_trace(&self, path: &Path) -> Self {
        let in_file = FileArgs { file: Some(path.to_owned()), ..self.in_file.clone() };
        Self { in_file, keep_duplicates: true, ..self.clone() }
    }

    /// Returns whether there is a file of keys.
    pub(super) fn has_file(&self) -> bool {
        self.in_file.file.is_some()
    }

    /// Returns whether a repeated key counts as another key.
    pub(super) fn keeps_duplicates(&self) -> bool {
        self.keep_duplicates
    }

    /// Returns the same arguments, but with duplicates.
    pub(super) fn with_duplicates(&self) -> Self {
        Self { keep_duplicates: true, ..self.clone() }
    }

    /// Returns how a command gets the keys.
    pub(super) fn form_for_commands(&self) -> Form {
        match self.format() {
            Ok(Format::Bytes(format)) if format.encoding == Encoding::Bytes => {
                match format.framing {
                    Framing::Lines | Framing::Csv(_) | Framing::Tsv(_) => Form::Lines,
                    Framing::Nul => Form::Nul,
                    _ => Form::Hex,
                }
            }
            _ => Form::Hex,
        }
    }

    /// Returns the bytes of each key if the format fixes them, and whether the keys are text.
    pub(super) fn width_and_text(&self) -> (Option<u8>, bool) {
        match self.format() {
            Ok(Format::Bytes(format)) => {
                let is_bytes = format.encoding == Encoding::Bytes;
                (format.width_bytes(), is_bytes && format.is_text())
            }
            _ => (None, false),
        }
    }

    /// Returns the store's own table.
    pub(super) fn live_table(&self, console: Console) -> Result<LiveTable> {
        let stats = store::open_to_read(self.file(), &mut { store::WAIT_MAX }, console)
            .and_then(|db| db.stats())
            .map_err(|error| Failure::using(self.file(), &error))?;
        Ok(LiveTable {
            hash: stats.hash_name,
            bucket_count: stats.geometry.bucket_count(),
            key_count: stats.record_count,
            chains: stats.chains,
        })
    }

    /// Returns whether the keys are integers of this width.
    pub(super) fn has_words_of(&self, width_bytes: u8) -> bool {
        match self.format() {
            Ok(Format::Bytes(format)) => format.width_bytes() == Some(width_bytes),
            _ => false,
        }
    }

    /// Returns the failure for an error of the keys, with a hint; `signal` is the exit code of the
    /// signal that arrived, if any.
    pub(super) fn failure(&self, error: &ReadError, signal: Option<Exit>) -> Failure {
        let path = self.file();
        let shown = path.display();
        match error {
            ReadError::Io(error) => match error.get_ref().and_then(|error| error.downcast_ref()) {
                Some(error) => Failure::using(path, error),
                None => Failure::reading(format_args!("`{shown}`"), error),
            },
            ReadError::Malformed { .. } => {
                Failure::new(Exit::Usage, format!("`{shown}`: {error}")).hint(hint(path, error))
            }
            ReadError::Stopped { .. } => {
                let exit = signal.unwrap_or(Exit::Interrupted);
                Failure::new(exit, format!("interrupted: {error} of `{shown}`"))
                    .hint("nothing has been measured yet")
            }
            ReadError::Memory { needed_bytes, allowed_bytes } => Failure::new(
                Exit::Usage,
                format!(
                    "too little memory: {error} ({} of {})",
                    bytes(*needed_bytes),
                    bytes(*allowed_bytes)
                ),
            )
            .hint("--memory-bytes allows more; smaller tables and --keep-duplicates need less"),
            ReadError::NoMemory { .. } => {
                Failure::new(Exit::Usage, format!("too little memory: {error}"))
                    .hint("--memory-bytes bounds what keys and counts take")
            }
        }
    }

    pub(super) fn file(&self) -> &Path {
        self.in_file.file.as_deref().unwrap_or(Path::new("-"))
    }

    fn format(&self) -> Result<Format> {
        let usage = |error: Error| {
            Failure::new(Exit::Usage, error.to_string())
                .hint("for the formats, see: splitpoint lab hash --help")
        };
        let FileArgs { format: name, encoding, column, header, .. } = &self.in_file;
        if name == "store" {
            return Ok(Format::Store);
        }
        let key_column =
            Column { name: column.clone().unwrap_or_else(|| "1".to_string()), has_header: *header };
        let mut format = KeyFormat::by_name(name, key_column).map_err(usage)?;
        if let Some(encoding) = encoding {
            if !format.is_text() {
                let message = format!("--as is for text, and `{name}` is not text");
                return Err(Failure::new(Exit::Usage, message).hint("omit --as"));
            }
            format.encoding = encoding.parse().map_err(usage)?;
        }
        let is_table = matches!(format.framing, Framing::Csv(_) | Framing::Tsv(_));
        if (column.is_some() || *header) && !is_table {
            return Err(Failure::new(Exit::Usage, "--column and --header are for csv and tsv")
                .hint("add --keys csv or --keys tsv"));
        }
        Ok(Format::Bytes(format))
    }

    fn tell(&self, keys: &Keys, console: Console) {
        let KeyFacts { duplicate_count, duplicates, blank_count, .. } = keys.facts();
        let KeyFacts { carriage_return_count, nul_count, .. } = keys.facts();
        if keys.held().is_none() {
            let half = bytes(self.memory_bytes / 2);
            let rest = match duplicates {
                Duplicates::RemovedByFingerprint { wrong_p } => format!(
                    "; duplicates were found by fingerprints, which are wrong with a probability \
                     of about {wrong_p:.0e}"
                ),
                Duplicates::Unchecked => "; they were not checked for duplicates".to_string(),
                _ => String::new(),
            };
            console.note(format_args!(
                "the keys do not fit into {half} of memory: they are read again for each pass{rest}"
            ));
        }
        if *duplicate_count > 0 {
            let keys = counted(*duplicate_count, "duplicate key");
            let outcome = if self.keep_duplicates { "kept" } else { "skipped" };
            console.note(format_args!("{outcome} {keys}"));
        }
        if *blank_count > 0 {
            console.note(format_args!("skipped {}", counted(*blank_count, "blank line")));
        }
        if *carriage_return_count > 0 {
            let lines = counted(*carriage_return_count, "line");
            console.note(format_args!("{lines} with a carriage return at the end of the key"));
        }
        if *nul_count > 0 {
            let lines = counted(*nul_count, "line");
            console.note(format_args!(
                "{lines} with NUL bytes: if the file is not text, set its format with --keys"
            ));
        }
    }
}

fn hint(path: &Path, error: &ReadError) -> String {
    let file = shell_word(&path.to_string_lossy());
    match error {
        ReadError::Malformed { place: Place::Whole, reason } if reason == IS_STORE => {
            let from = if path == Path::new("-") { "FILE" } else { &file };
            format!("to measure its keys: splitpoint lab ... {from} --keys store")
        }
        ReadError::Malformed { place: Place::Whole, reason }
            if let Some(program) = reason.strip_prefix(IS_COMPRESSED) =>
        {
            let from = if path == Path::new("-") { "FILE" } else { &file };
            format!("decompress it into a pipe: {program} {from} | splitpoint lab ... -")
        }
        _ => {
            "set the format of the keys with --keys, and the meaning of text with --as".to_string()
        }
    }
}

fn source(path: &Path, format: &Format, console: Console) -> Result<Box<dyn KeySource>> {
    Ok(match format {
        Format::Store => Box::new(StoreSource { db: store::open_store(path, console)? }),
        Format::Bytes(format) if !can_open_again(path) => {
            if path != Path::new("-") {
                refuse_no_stream(path)?;
            }
            Box::new(PipeSource {
                path: path.to_owned(),
                format: format.clone(),
                spilled: Mutex::new(None),
                console,
            })
        }
        Format::Bytes(format) => {
            Box::new(FileSource { path: path.to_owned(), format: format.clone() })
        }
    })
}

fn missing_file(taken: Option<&Path>) -> Failure {
    let missing = Failure::new(Exit::Usage, "no file with keys is given");
    match taken {
        Some(path) => {
            let file = shell_word(&path.to_string_lossy());
            missing.hint(format!(
                "--json took {file} as its own; put the file before --json, or - for standard \
                 input"
            ))
        }
        None => missing.hint("give its name, or - for standard input"),
    }
}

const IS_STORE: &str = "it is a store";
/// Followed by the program that reads it.
const IS_COMPRESSED: &str = "it is compressed, for ";

/// Bytes per read.
const BUFFER_BYTES: usize = 256 << 10;

/// Keys in a file.
struct FileSource {
    path: PathBuf,
    format: KeyFormat,
}

impl KeySource for FileSource {
    fn open(&self) -> Result<Box<dyn KeyInput + Send + '_>, ReadError> {
        read_keys(File::open(&self.path)?, &self.format)
    }
}

/// Reads keys, and refuses text that is a store or compressed.
fn read_keys<'a>(
    input: impl Read + Send + 'a,
    format: &KeyFormat,
) -> Result<Box<dyn KeyInput + Send + 'a>, ReadError> {
    let mut input = BufReader::with_capacity(BUFFER_BYTES, input);
    if format.is_text() {
        let whole = |reason: String| Err(ReadError::Malformed { place: Place::Whole, reason });
        match detect(input.fill_buf()?) {
            Detected::Foreign(Foreign::Store) => return whole(IS_STORE.to_string()),
            Detected::Foreign(Foreign::Compressed(program)) => {
                return whole(format!("{IS_COMPRESSED}{program}"));
            }
            _ => {}
        }
    }
    reader(input, format)
}

/// Returns whether the file can be read more than once, unlike standard input and other pipes.
fn can_open_again(path: &Path) -> bool {
    path != Path::new("-") && std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
}

/// Keys from a pipe. If they do not fit into memory, later passes read a temporary file.
struct PipeSource {
    path: PathBuf,
    format: KeyFormat,
    spilled: Mutex<Option<File>>,
    console: Console,
}

impl KeySource for PipeSource {
    fn open(&self) -> Result<Box<dyn KeyInput + Send + '_>, ReadError> {
        let spilled = self.spilled.lock().unwrap_or_else(PoisonError::into_inner);
        match &*spilled {
            None if self.path == Path::new("-") => read_keys(io::stdin(), &self.format),
            None => read_keys(File::open(&self.path)?, &self.format),
            Some(file) => {
                // One pass at a time, because all passes share the position.
                let mut file = file.try_clone()?;
                file.rewind()?;
                let format = KeyFormat { framing: Framing::Varint, encoding: Encoding::Bytes };
                reader(BufReader::with_capacity(BUFFER_BYTES, file), &format)
            }
        }
    }

    fn spill(&self) -> Result<Option<Box<dyn Write + '_>>, ReadError> {
        let file = tempfile::tempfile()?;
        self.console.note(format_args!(
            "`{}` does not fit into memory: its keys go to a temporary file in `{}`",
            self.path.display(),
            std::env::temp_dir().display()
        ));
        let writer = BufWriter::with_capacity(BUFFER_BYTES, file.try_clone()?);
        *self.spilled.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
        Ok(Some(Box::new(writer)))
    }
}

/// The keys of a store.
struct StoreSource {
    db: Db,
}

impl KeySource for StoreSource {
    fn open(&self) -> Result<Box<dyn KeyInput + Send + '_>, ReadError> {
        let records = self.db.scan().map_err(of_store)?;
        Ok(Box::new(StoreInput { records: records.map(|record| Ok(record?.key.to_vec())) }))
    }

    fn is_distinct(&self) -> bool {
        true
    }
}

fn of_store(error: splitpoint::Error) -> ReadError {
    ReadError::Io(io::Error::other(error))
}

/// A scan of a store.
struct StoreInput<I> {
    records: I,
}

impl<I: Iterator<Item = splitpoint::Result<Vec<u8>>>> KeyInput for StoreInput<I> {
    fn read_batch(&mut self, batch: &mut KeyBatch) -> Result<bool, ReadError> {
        const BATCH_KEYS: u64 = 1 << 15;
        while count(batch.len()) < BATCH_KEYS {
            match self.records.next() {
                Some(key) => batch.push(&key.map_err(of_store)?),
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}
