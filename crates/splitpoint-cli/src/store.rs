//! Opening stores the way the commands want them.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use splitpoint::{
    Create, Db, Durability, Error, Options, PutMode, Recovery, RecoveryProgress, Table,
};
use splitpoint_legacy::OldFile;
use splitpoint_legacy::db185::{self, Db185};

use crate::console::Console;
use crate::failure::{self, Exit, Failure, Result};
use crate::interrupt;
use crate::number::counted;
use crate::progress::{Progress, ProgressMode, Total};
use crate::report::rebuilt_from;

/// How soon a change survives a power loss
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DurabilityName {
    /// Not synced until the store is closed
    Buffered,
    /// Synced in the background in about 1 s, and when the store is closed
    #[default]
    Async,
    /// Synced before each step is reported as done
    Sync,
}

impl From<DurabilityName> for Durability {
    fn from(name: DurabilityName) -> Self {
        match name {
            DurabilityName::Buffered => Self::Buffered,
            DurabilityName::Async => Self::Async,
            DurabilityName::Sync => Self::Sync,
        }
    }
}

/// What commands that only read work on.
#[derive(Debug)]
pub(crate) enum Readable {
    /// A store.
    Store(Db),
    /// A file of another package.
    Old(Box<OldFile>),
}

impl Readable {
    /// Returns it as a table.
    pub(crate) fn table(&self) -> &dyn Table {
        match self {
            Self::Store(db) => db,
            Self::Old(file) => &**file,
        }
    }
}

/// What commands that change work on.
#[derive(Debug)]
pub(crate) enum Writable {
    /// A store.
    Store(Db),
    /// A file of the 1991 package.
    Db185(Box<Db185>),
}

impl Writable {
    /// Returns it as a table.
    pub(crate) fn table(&self) -> &dyn Table {
        match self {
            Self::Store(db) => db,
            Self::Db185(table) => &**table,
        }
    }

    /// Stores a record in such a way that it survives what `durability` says, and returns whether
    /// it was stored. A file of the 1991 package has one way: it is safe when it is closed.
    pub(crate) fn put(
        &self,
        key: &[u8],
        value: &[u8],
        mode: PutMode,
        durability: Durability,
    ) -> Result<bool, Error> {
        match (self, mode) {
            (Self::Store(db), PutMode::New) => db.put_new(key, value),
            (Self::Store(db), PutMode::Replace) => {
                db.put_with(key, value, durability).map(|()| true)
            }
            (Self::Db185(table), _) => table.put_bytes(key, value, mode, None),
        }
    }

    /// Stores records in their order; after an error a prefix of them is there.
    pub(crate) fn put_many(&self, records: &[(&[u8], &[u8])]) -> Result<(), Error> {
        match self {
            Self::Store(db) => db.put_many(records),
            Self::Db185(table) => table.put_many_bytes(records, None),
        }
    }

    /// Closes it, which makes its changes durable.
    pub(crate) fn close(self, path: &Path) -> Result<()> {
        let closed = match self {
            Self::Store(db) => db.close().map(drop),
            Self::Db185(table) => {
                // Its sync has an order that a kill may break where overflow pages run out.
                interrupt::last_step();
                (*table).close()
            }
        };
        closed.map_err(|error| Failure::using(path, &error))
    }
}

/// Cache of a file of the 1991 package where the URL does not say: what one command takes anyway.
const DB185_CACHE_BYTES: usize = 64 << 20;

/// Returns the parameters of a file of the 1991 package where nothing else is asked.
pub(crate) fn db185_options() -> db185::Options {
    db185::Options::new().cache_bytes(DB185_CACHE_BYTES)
}

/// Returns path and parameters of a file that is given as `db185:PATH?NAME=VALUE`.
pub(crate) fn db185_of(path: &Path) -> Result<Option<(PathBuf, db185::Options)>> {
    let Some(url) = path.to_str().and_then(|text| text.strip_prefix("db185:")) else {
        return Ok(None);
    };
    let (file, options) = db185_options()
        .and_url(url)
        .map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    if file.as_os_str().is_empty() {
        let message = format!("`{}` names no file", path.display());
        return Err(Failure::new(Exit::Usage, message));
    }
    Ok(Some((file, options)))
}

/// Opens a file of the 1991 package for reading, if it is given by its URL.
pub(crate) fn open_db185(path: &Path) -> Result<Option<OldFile>> {
    let Some((file, options)) = db185_of(path)? else { return Ok(None) };
    let opened = OldFile::db185(&file, &options);
    opened.map(Some).map_err(|error| Failure::opening(&file, &error))
}

/// Opens a store or an old file for reading, whichever it is by its content, or by its URL.
pub(crate) fn open_any(path: &Path, console: Console) -> Result<Readable> {
    if let Some(file) = open_db185(path)? {
        return Ok(Readable::Old(Box::new(file)));
    }
    match open_untouched(path, console) {
        Ok(db) => {
            note_recovery(path, &db, console);
            Ok(Readable::Store(db))
        }
        Err(error) => match open_old(path, &error) {
            Some(opened) => {
                let file = opened.map_err(|error| Failure::opening(path, &error))?;
                Ok(Readable::Old(Box::new(file)))
            }
            None => Err(Failure::opening(path, &error)),
        },
    }
}

/// Opens what is no store, if `error` says so and the content is known. A table in two files is
/// called by what their names begin with, so that there may be no such file.
pub(crate) fn open_old(path: &Path, error: &Error) -> Option<Result<OldFile, Error>> {
    let is_missing = matches!(
        error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound
    );
    if !is_missing && !matches!(error, Error::NotAStore { .. }) {
        return None;
    }
    match splitpoint_legacy::open(path) {
        Err(Error::NotAStore { .. }) => None,
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => None,
        opened => Some(opened),
    }
}

/// Opens an existing store for reading, and says so if its index had to be rebuilt.
pub(crate) fn open_to_read(path: &Path, console: Console) -> Result<Db> {
    let db = open_untouched(path, console).map_err(|error| Failure::opening(path, &error))?;
    note_recovery(path, &db, console);
    Ok(db)
}

fn note_recovery(path: &Path, db: &Db, console: Console) {
    if let Recovery::Replayed { checkpoint_keys, records, .. } = db.recovery() {
        console.note(format_args!(
            "`{}` was not closed: index rebuilt from {}; the next write keeps the result",
            path.display(),
            rebuilt_from(checkpoint_keys, records)
        ));
    }
}

/// Opens an existing store for reading, or says what is wrong with it, without changing it.
pub(crate) fn open_untouched(path: &Path, console: Console) -> Result<Db, Error> {
    with_progress(&Options::new().read_only(), console).open(path)
}

/// Opens an existing store for writing, and says so if it had not been closed.
pub(crate) fn open_to_write(path: &Path, options: &Options, console: Console) -> Result<Writable> {
    open_writable(path, &options.clone().create(Create::Never), console)
}

/// Opens a store for writing; makes it where there is none, and says so. An empty file, and one
/// whose creation was interrupted, is none yet.
pub(crate) fn open_or_create(path: &Path, options: &Options, console: Console) -> Result<Writable> {
    open_writable(path, &options.clone().create(Create::IfMissing), console)
}

/// Returns whether there is no file yet.
pub(crate) fn is_missing(path: &Path) -> Result<bool> {
    let file = db185_of(path)?.map_or_else(|| path.to_path_buf(), |(file, _)| file);
    Ok(file.symlink_metadata().is_err())
}

/// Makes a store where there is no file.
pub(crate) fn create(path: &Path, options: &Options) -> Result<Db> {
    refuse_name_of_old(path)?;
    let options = options.clone().create(Create::New);
    options.open(path).map_err(|error| Failure::opening(path, &error))
}

fn open_writable(path: &Path, options: &Options, console: Console) -> Result<Writable> {
    if let Some((file, own)) = db185_of(path)? {
        let is_new = !file.exists();
        let opened = own.create(options.creation()).open(&file);
        let table = opened.map_err(|error| Failure::opening(&file, &error))?;
        if is_new {
            console.note(format_args!("created `{}`", path.display()));
        }
        return Ok(Writable::Db185(Box::new(table)));
    }
    refuse_name_of_old(path)?;
    open_as_left(path, options, console).map(Writable::Store)
}

/// Refuses to make a store under what the names of an old table's files begin with: the commands
/// that read take that for the old table.
fn refuse_name_of_old(path: &Path) -> Result<()> {
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    let Ok(Some(identity)) = splitpoint_legacy::identify(path) else { return Ok(()) };
    let (given, old) = (path.display(), identity.path.display());
    let message = format!("`{given}` is `{old}`, an old file: {}", identity.format.name());
    Err(Failure::new(Exit::CannotOpen, message).hint(failure::hint_to_write(&identity.path)))
}

/// Opens a store for writing and says what the last writer left.
fn open_as_left(path: &Path, options: &Options, console: Console) -> Result<Db> {
    let opened = with_progress(options, console).open(path);
    let db = opened.map_err(|error| Failure::opening(path, &error))?;
    note_left(path, db.recovery(), console);
    Ok(db)
}

/// Says what the last writer left, of a store that has been opened for writing.
pub(crate) fn note_left(path: &Path, recovery: Recovery, console: Console) {
    let file = path.display();
    match recovery {
        Recovery::Created => console.note(format_args!("created `{file}`")),
        Recovery::WarmRestart { records } => console.note(format_args!(
            "`{file}` was not closed: its last writer was killed; index taken over, {} applied",
            counted(records, "record")
        )),
        Recovery::Replayed { checkpoint_keys, records, .. } => console.note(format_args!(
            "`{file}` was not closed: index rebuilt from {}",
            rebuilt_from(checkpoint_keys, records)
        )),
        _ => {}
    }
}

/// Returns options under which an opening that takes long shows how far it is.
pub(crate) fn with_progress(options: &Options, console: Console) -> Options {
    let shown: Mutex<Option<(&'static str, Progress)>> = Mutex::new(None);
    options.clone().on_recovery(move |told| {
        let (phase, total, done) = match told {
            RecoveryProgress::ReadLog { bytes } => ("reading the log", Total::Unknown, bytes),
            RecoveryProgress::LoadCheckpoint { bytes, bytes_total } => {
                ("reading the checkpoint", Total::Bytes(bytes_total), bytes)
            }
            RecoveryProgress::ApplyLog { records, records_total } => {
                ("rebuilding the index", Total::Records(records_total), records)
            }
            _ => return,
        };
        let (records, bytes) = match total {
            Total::Records(_) => (done, 0),
            Total::Bytes(_) | Total::Unknown => (0, done),
        };
        let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.as_ref().is_none_or(|(other, _)| *other != phase) {
            if let Some((_, mut earlier)) = shown.take() {
                earlier.finish(0, 0);
            }
            *shown = Some((phase, Progress::start(ProgressMode::Auto, console, phase, total)));
        }
        let Some((_, progress)) = &mut *shown else { return };
        progress.update(records, bytes);
        if total == Total::Records(done) {
            // The last that is told.
            progress.finish(records, bytes);
            *shown = None;
        }
    })
}
