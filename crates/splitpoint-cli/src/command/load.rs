//! `splitpoint load`: store the records of a dump or a list.

use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum as _;
use serde::Serialize;
use splitpoint::{Error, Options, PutMode, TableExt as _};

use crate::command::shared::{Showing, Turn};
use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Result};
use crate::files::open_stream;
use crate::format::{
    Columns, Detected, Foreign, Input, LoadFormat, ReadError, ReadRecords, Record, detect,
};
use crate::interrupt::Interrupt;
use crate::number::{count, counted};
use crate::progress::{Progress, Total, pace};
use crate::shell::shell_word;
use crate::store::{self, DurabilityName, Opened, WriteOptions};

/// Store the records of a dump or a list
///
/// Creates a missing store once it has read the first records, and prints a note. Detects the
/// format from the first bytes of the input and prints it; --format overrides this. Replaces the
/// value of an existing key, unless --no-overwrite is given.
///
/// Other processes see each record as soon as it is stored. Processes that take turns can write in
/// between; other writers wait for the end of the load, up to their lock timeout.
///
/// Malformed input stops the load with exit code 1. The error names the line (for cdb, the byte)
/// and the number of records stored before it. Ctrl-C stops the load in the same way, with exit
/// code 130. It is safe to load the corrected input again.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint load words.spt /usr/share/dict/words # values: line numbers
  splitpoint load capitals.spt capitals.tsv
  splitpoint load cities.spt cities.csv -f csv --header --column name,country
  db5.3_dump old.db | splitpoint load new.spt
  splitpoint dump a.spt | splitpoint load b.spt --no-overwrite")]
pub(crate) struct Args {
    /// The store, or a db 1.85 file as db185:FILE
    file: PathBuf,

    /// The input; omitted or `-` reads standard input
    input: Option<PathBuf>,

    /// The format of the input [default: detected]
    #[arg(short, long, value_enum)]
    format: Option<LoadFormat>,

    /// The columns of a CSV or TSV file to use as key and value, by number or, with --header, by
    /// name [default: 1,2]
    #[arg(long, value_name = "KEY,VALUE")]
    column: Option<String>,

    /// Treat the first row of a CSV or TSV file as a header
    #[arg(long)]
    header: bool,

    /// Keep the values of existing keys
    #[arg(long)]
    no_overwrite: bool,

    /// When to sync records; closing the store at the end makes all of them durable
    #[arg(long, value_enum, default_value_t)]
    durability: DurabilityName,

    #[command(flatten)]
    turn: Turn,

    #[command(flatten)]
    showing: Showing,
}

/// What was loaded.
#[derive(Debug, Serialize)]
struct Report {
    store: String,
    input: String,
    format: &'static str,
    /// Records read from the input.
    loaded: u64,
    /// Keys that did not exist before.
    new: u64,
    /// Values that were replaced.
    replaced: u64,
    /// Records skipped because their keys existed.
    kept: u64,
    seconds: f64,
}

impl Args {
    /// Returns the requested columns, if any.
    fn columns(&self) -> Result<Option<Columns>> {
        if self.column.is_none() && !self.header {
            return Ok(None);
        }
        Columns::parse(self.column.as_deref(), self.header)
            .map(Some)
            .map_err(|reason| Failure::new(Exit::Usage, reason))
    }

    fn options(&self) -> WriteOptions {
        self.turn.options_by_turns(Options::new().durability(self.durability.into()))
    }
}

/// Stores the records of an input.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let columns = args.columns()?;
    let source = Source::open(args.input.as_deref(), console)?;
    let Source { name, mut input, total } = source;
    let format = match args.format {
        Some(format) => format,
        None => recognize(&name, &mut input, columns.is_some())?,
    };
    if columns.is_some() && !matches!(format, LoadFormat::Csv | LoadFormat::Tsv) {
        return Err(Failure::new(Exit::Usage, "--column and --header are for csv and tsv")
            .hint(format!("the format is {}; choose another with --format", format.name())));
    }
    if columns.is_none() {
        note_oddities(&mut input, format, console);
    }
    // Open an existing table before the first read, which may wait for a pipe.
    let table = store::open_if_there(&args.file, &args.options(), console)?;
    let interrupt = Interrupt::watch();
    let progress = Progress::start(args.showing.progress, console, "load", total);
    let mut load = Load {
        args,
        console,
        table,
        record_count_before: 0,
        interrupt,
        progress,
        loaded: 0,
        kept: 0,
        offset: 0,
    };

    let started = Instant::now();
    let outcome = load.run(input, format.reader(columns));
    let Load { table, record_count_before, mut progress, loaded, kept, offset, .. } = load;
    progress.finish(loaded, offset);
    let (new, closed) = match table {
        Some(table) => {
            let record_count = table.len();
            let new = record_count.map_or(0, |count| count.saturating_sub(record_count_before));
            (new, table.close())
        }
        None => (0, Ok(())),
    };
    let elapsed = started.elapsed();

    let report = Report {
        store: args.file.display().to_string(),
        input: name.clone(),
        format: format.name(),
        loaded,
        new,
        replaced: (loaded - kept).saturating_sub(new),
        kept,
        seconds: elapsed.as_secs_f64(),
    };
    if args.showing.json {
        console::print_json(&report)?;
    }
    outcome.map_err(|stop| stop.into_failure(&name, loaded))?;
    closed?;
    let file = args.file.display();
    let format = report.format;
    console.note(format_args!(
        "loaded {} from {name} ({format}) into `{file}`: {}",
        { pace(loaded, elapsed) },
        outcome_in_words(&report)
    ));
    Ok(())
}

fn outcome_in_words(report: &Report) -> String {
    let mut words = format!("{} new", crate::number::grouped(report.new));
    for (count, what) in [(report.replaced, "replaced"), (report.kept, "kept unchanged")] {
        if count > 0 {
            let _ = write!(words, ", {} {what}", crate::number::grouped(count));
        }
    }
    words
}

/// An input, its name for messages, and its size if known.
struct Source {
    name: String,
    input: Input,
    total: Total,
}

impl Source {
    fn open(path: Option<&Path>, console: Console) -> Result<Self> {
        let Some(path) = path.filter(|path| *path != Path::new("-")) else {
            if io::stdin().is_terminal() {
                console.note(
                    "reading records from the terminal; end them with Ctrl-D on an empty line",
                );
            }
            let input = Input::new(Box::new(io::stdin()));
            return Ok(Self { name: "standard input".to_string(), input, total: Total::Unknown });
        };
        let name = format!("`{}`", path.display());
        let file = open_stream(path)?;
        let metadata =
            file.metadata().map_err(|error| Failure::io(format!("read {name}"), &error))?;
        let total = if metadata.is_file() { Total::Bytes(metadata.len()) } else { Total::Unknown };
        Ok(Self { name, input: Input::new(Box::new(file)), total })
    }
}

/// Detects the format of `input` from its first bytes, and from whether columns are given.
fn recognize(name: &str, input: &mut Input, has_columns: bool) -> Result<LoadFormat> {
    let start = input.peek().map_err(|error| Failure::reading(name, &error))?;
    let extension = Path::new(name.trim_matches('`')).extension();
    let is_named_csv = extension.is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
    let (what, hint) = match detect(start) {
        Detected::Format(LoadFormat::Lines) if has_columns => return Ok(LoadFormat::Csv),
        Detected::Format(LoadFormat::Lines) if is_named_csv => {
            let message = format!("{name} may be CSV, or a list of keys");
            return Err(Failure::new(Exit::Usage, message).hint(
                "choose --format csv, with --header if the first row is one, or --format lines",
            ));
        }
        Detected::Format(format) => return Ok(format),
        Detected::Unclear(reason) => {
            let message = format!("cannot tell the format of {name}: {reason}");
            let names = LoadFormat::value_variants().iter().map(|format| format.name());
            let names = names.collect::<Vec<_>>().join(", ");
            return Err(Failure::new(Exit::Usage, message)
                .hint(format!("choose one with --format: {names}")));
        }
        Detected::Foreign(Foreign::Store) => {
            let file = shell_word(name.trim_matches('`'));
            ("a store", format!("dump it first: splitpoint dump {file} | splitpoint load FILE"))
        }
        Detected::Foreign(Foreign::BerkeleyDb) => {
            let file = shell_word(name.trim_matches('`'));
            ("a Berkeley DB file", {
                format!("dump it first: db5.3_dump {file} | splitpoint load FILE")
            })
        }
        Detected::Foreign(Foreign::Gdbm) => {
            let file = shell_word(name.trim_matches('`'));
            ("a gdbm file", format!("convert it to a store: splitpoint convert {file} NEW.spt"))
        }
        Detected::Foreign(Foreign::Compressed(program)) => {
            let from = if name.starts_with('`') {
                shell_word(name.trim_matches('`'))
            } else {
                "FILE".into()
            };
            (
                "compressed",
                format!("decompress it into a pipe: {program} {from} | splitpoint load ..."),
            )
        }
    };
    Err(Failure::new(Exit::Usage, format!("{name} is {what}, not a dump or a list")).hint(hint))
}

/// Notes that the load keeps carriage returns and a byte order mark, if the input has them.
fn note_oddities(input: &mut Input, format: LoadFormat, console: Console) {
    if !matches!(format, LoadFormat::Lines | LoadFormat::Tsv) {
        return;
    }
    let Ok(start) = input.peek() else { return };
    if start.split(|byte| *byte == b'\n').next().is_some_and(|line| line.ends_with(b"\r")) {
        console.note(
            "the lines end in CR LF, and the CR is kept as part of each line; `tr -d '\\r'` \
             removes it",
        );
    }
    if start.starts_with(b"\xef\xbb\xbf") {
        console.note(
            "the input begins with a byte order mark, which is kept as part of the first key; \
             `tail -c +4` removes it",
        );
    }
}

/// Records per batch.
const BATCH_RECORDS: usize = 4096;
/// Records between two checks for a signal, if each record is synced.
const SLOW_RECORDS: usize = 64;
/// Bytes of keys and values in a full batch.
const BATCH_BYTES: usize = 4 << 20;
/// Interval between checks for a signal while the input is silent.
const PATIENCE: Duration = Duration::from_millis(50);

/// Records, contiguous in memory.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Where each key and each value ends.
    ends: Vec<(usize, usize)>,
    /// Bytes of input read so far.
    offset: u64,
}

impl Batch {
    fn push(&mut self, record: &Record) {
        self.bytes.extend_from_slice(&record.key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(&record.value);
        self.ends.push((key_end, self.bytes.len()));
    }

    fn is_full(&self) -> bool {
        self.ends.len() >= BATCH_RECORDS || self.bytes.len() >= BATCH_BYTES
    }

    fn records(&self) -> Vec<(&[u8], &[u8])> {
        let mut start = 0;
        let record_of = |&(key_end, value_end): &(usize, usize)| {
            let record = (&self.bytes[start..key_end], &self.bytes[key_end..value_end]);
            start = value_end;
            record
        };
        self.ends.iter().map(record_of).collect()
    }
}

/// Why a load ended early.
enum Stop {
    Read(ReadError),
    Store(Failure),
    Signal(Exit),
}

impl Stop {
    fn into_failure(self, name: &str, loaded: u64) -> Failure {
        let records = counted(loaded, "record");
        match self {
            Self::Read(ReadError::Malformed { place, reason }) => {
                Failure::new(Exit::No, format!("{name}, {place}: {reason}")).hint(format!(
                    "loaded {records} before the error; correct the input and load it again"
                ))
            }
            Self::Read(ReadError::Io(error)) => {
                Failure::reading(name, &error).within(format!("loaded {records} before the error"))
            }
            Self::Store(failure) => failure.within(format!("loaded {records} before the error")),
            Self::Signal(exit) => Failure::new(exit, format!("interrupted: loaded {records}"))
                .hint("the store is valid; load the same input again to store the rest"),
        }
    }
}

/// One load: a thread reads batches, this one stores them.
struct Load<'a> {
    args: &'a Args,
    console: Console,
    /// `None` until the first records arrive, if there is no store yet.
    table: Option<Opened>,
    record_count_before: u64,
    interrupt: Interrupt,
    progress: Progress,
    loaded: u64,
    kept: u64,
    offset: u64,
}

impl Load<'_> {
    fn run(&mut self, input: Input, reader: Box<dyn ReadRecords>) -> Result<(), Stop> {
        if let Some(table) = &self.table {
            self.record_count_before = table.len().map_err(|error| failed(table, &error))?;
        }
        // At most two batches are in flight, so memory is bounded for any input.
        let (sender, receiver) = mpsc::sync_channel(1);
        // In a separate thread, because a read that waits for a pipe cannot be interrupted.
        thread::Builder::new()
            .spawn(move || read_batches(input, reader, &sender))
            .map_err(|error| Stop::Store(Failure::io("start a thread", &error)))?;
        self.store_batches(&receiver)
    }

    fn store_batches(&mut self, receiver: &Receiver<Result<Batch, ReadError>>) -> Result<(), Stop> {
        loop {
            self.go_on()?;
            match receiver.recv_timeout(PATIENCE) {
                Ok(Ok(batch)) => self.store(&batch)?,
                Ok(Err(error)) => return Err(Stop::Read(error)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.open().map(drop),
            }
            self.progress.update(self.loaded, self.offset);
        }
    }

    /// Returns the store, and creates it if it is missing. This waits for the first records or the
    /// end of an empty input, so that an unreadable input leaves no store.
    fn open(&mut self) -> Result<&Opened, Stop> {
        let table = match self.table.take() {
            Some(table) => table,
            None => store::open_or_create(&self.args.file, &self.args.options(), self.console)
                .map_err(Stop::Store)?,
        };
        Ok(self.table.insert(table))
    }

    fn store(&mut self, batch: &Batch) -> Result<(), Stop> {
        self.open()?;
        let Some(table) = &self.table else { unreachable!("it was just opened") };
        let records = batch.records();
        let durability = Some(self.args.durability.into());
        if self.args.no_overwrite {
            for (key, value) in records {
                self.go_on()?;
                let stored = table.put_bytes(key, value, PutMode::New, durability);
                if !stored.map_err(|error| failed(table, &error))? {
                    self.kept += 1;
                }
                self.loaded += 1;
            }
        } else {
            // A device may take long to sync a record.
            let is_slow = self.args.durability == DurabilityName::Sync;
            for records in records.chunks(if is_slow { SLOW_RECORDS } else { BATCH_RECORDS }) {
                self.go_on()?;
                let stored = table.put_many_bytes(records, durability);
                self.loaded += match stored {
                    Ok(()) => count(records.len()),
                    // Records are stored in order, so a prefix of them is there.
                    Err(_) => count(records.iter().take_while(|record| has(table, record)).count()),
                };
                stored.map_err(|error| failed(table, &error))?;
            }
        }
        self.offset = batch.offset;
        Ok(())
    }

    /// Stops if a signal has arrived.
    fn go_on(&self) -> Result<(), Stop> {
        self.interrupt.exit().map_or(Ok(()), |exit| Err(Stop::Signal(exit)))
    }
}

fn failed(table: &Opened, error: &Error) -> Stop {
    Stop::Store(table.failed(error))
}

fn has(table: &Opened, (key, value): &(&[u8], &[u8])) -> bool {
    table.get(key).is_ok_and(|found| found.as_deref() == Some(*value))
}

/// Reads batches until the input ends, is malformed, or the receiver is gone.
fn read_batches(
    mut input: Input,
    mut reader: Box<dyn ReadRecords>,
    sender: &SyncSender<Result<Batch, ReadError>>,
) {
    let mut record = Record::default();
    let mut batch = Batch::default();
    let result = loop {
        match reader.read(&mut input, &mut record) {
            Ok(true) => batch.push(&record),
            Ok(false) => break Ok(()),
            Err(error) => break Err(error),
        }
        // Store what a slow pipe has sent before the next read blocks.
        if batch.is_full() || input.is_drained() {
            batch.offset = input.offset();
            if sender.send(Ok(std::mem::take(&mut batch))).is_err() {
                return;
            }
        }
    };
    batch.offset = input.offset();
    if !batch.ends.is_empty() && sender.send(Ok(batch)).is_err() {
        return;
    }
    if let Err(error) = result {
        // The receiver may be gone, if the load has ended for another reason.
        let _ = sender.send(Err(error));
    }
}
