//! Opens tables of every access method in the same way.

use std::any::Any;
use std::borrow::Cow;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use splitpoint::{
    BatchAtomicity, Create, Db, Durability, Error, ErrorKind, FileKind, Holder, HolderRole,
    Options, Recovery, RecoveryProgress, Sharing, Table,
};
use splitpoint_legacy::db185::Db185;
use splitpoint_legacy::{Format, KeyValue, OldFile};

use crate::console::Console;
use crate::failure::{self, Exit, Failure, Result};
use crate::interrupt;
use crate::number::counted;
use crate::progress::{Progress, ProgressMode, Total};
use crate::report::rebuilt_from;
use crate::shell::shell_word;

/// How long a command waits before it says for whom.
const WAIT_IN_SILENCE: Duration = Duration::from_secs(1);

/// How long a command that reads waits for a process that keeps it out, unless the user says.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(10);
/// How long to wait between two attempts at work that a store in use refuses.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The values of a table, key by key.
pub(crate) type Values<'a> = Box<dyn Iterator<Item = Result<KeyValue<'a>, Error>> + 'a>;

/// How soon a change survives a power loss
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DurabilityName {
    /// Synced when the store is closed
    Buffered,
    /// Synced in the background within about 1 s, and when the store is closed
    #[default]
    Async,
    /// Synced before each write returns
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

/// An open table, with the name that the user gave.
#[derive(Debug)]
pub(crate) struct Opened {
    path: PathBuf,
    table: Box<dyn Table>,
    /// Whether it is changed by turns: a close then syncs only what its durability asks for.
    is_by_turns: bool,
}

impl Deref for Opened {
    type Target = dyn Table;

    fn deref(&self) -> &Self::Target {
        &*self.table
    }
}

impl Opened {
    /// Wraps a table; `path` is the name that the user gave.
    pub(crate) fn new(path: impl Into<PathBuf>, table: impl Table) -> Self {
        Self { path: path.into(), table: Box::new(table), is_by_turns: false }
    }

    /// Returns the name or the URL that the user gave.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the table as the access method `T`, if it is one, for features that only `T` has.
    fn downcast<T: Any>(&self) -> Option<&T> {
        let any: &dyn Any = &*self.table;
        any.downcast_ref()
    }

    /// Returns whether others may change the table by turns meanwhile.
    pub(crate) fn is_by_turns(&self) -> bool {
        self.is_by_turns
    }

    /// Returns the table as a store, if it is one.
    pub(crate) fn as_store(&self) -> Option<&Db> {
        self.downcast()
    }

    /// Returns the table as a read-only old file, if it is one.
    pub(crate) fn as_old(&self) -> Option<&OldFile> {
        self.downcast()
    }

    /// Returns the table as a writable db 1.85 file, if it is one.
    pub(crate) fn as_db185(&self) -> Option<&Db185> {
        self.downcast()
    }

    /// Returns every value of every key, which may have several in an old file.
    pub(crate) fn values(&self) -> Result<Values<'_>, Error> {
        Ok(match self.as_old() {
            Some(file) => Box::new(file.values()),
            None => Box::new(self.scan()?.map(|record| record.map(KeyValue::of))),
        })
    }

    /// Returns whether a scan continues after damage.
    pub(crate) fn scans_past_damage(&self) -> bool {
        self.as_old().is_some()
    }

    /// Returns the failure of a command that used the table.
    pub(crate) fn failed(&self, error: &Error) -> Failure {
        let old = self.as_old().map(|file| file.identity().format);
        let format = old.or(self.as_db185().map(|_| Format::Db185Hash));
        Failure::using_as(&self.path, format, error)
    }

    /// Closes the table, which makes its changes durable.
    pub(crate) fn close(self) -> Result<()> {
        if self.capabilities().batch != BatchAtomicity::Atomic {
            // A kill during the close may do harm.
            interrupt::last_step();
        }
        let Self { path, table, is_by_turns } = self;
        let synced = if is_by_turns { table.sync() } else { Ok(()) };
        synced.and_then(|()| table.close()).map(drop).map_err(|error| Failure::using(&path, &error))
    }

    /// Refuses a table that is read-only, or that ends with the command.
    fn expect_writable(self) -> Result<Self> {
        let given = self.path.display();
        let capabilities = self.capabilities();
        if let Some(file) = self.as_old() {
            let identity = file.identity();
            let what = identity.format.name();
            let old = identity.path.display();
            let name =
                if identity.path == self.path { String::new() } else { format!("`{old}`, ") };
            let message =
                format!("`{given}` is {name}an old file ({what}), which can only be read");
            let hint = failure::hint_to_write(&identity.path, identity.format);
            return Err(Failure::new(Exit::CannotOpen, message).hint(hint));
        }
        if capabilities.is_read_only {
            let message = format!("`{given}` can only be read");
            return Err(Failure::new(Exit::CannotOpen, message));
        }
        if capabilities.durability.is_empty() {
            let message = format!("`{given}` is a table in memory, which ends with this command");
            return Err(Failure::new(Exit::Usage, message).hint("give the name of a file"));
        }
        Ok(self)
    }
}

/// Returns the address to open for `path`. A name that looks like a URL is one only if such an
/// access method exists; otherwise it is a path.
fn address_of(path: &Path) -> Cow<'_, Path> {
    let is_like_url = path.as_os_str().as_encoded_bytes().contains(&b':') && path.is_relative();
    if !is_like_url || path.starts_with(".") || splitpoint::is_url(path) {
        return Cow::Borrowed(path);
    }
    Cow::Owned(Path::new(".").join(path))
}

/// Opens a table of any access method, by its content or its URL.
fn open_with(path: &Path, options: &Options, console: Console) -> Result<Opened, Error> {
    let table = splitpoint::open_with(address_of(path), &with_progress(options, console))?;
    Ok(Opened { path: path.to_path_buf(), table, is_by_turns: false })
}

/// Opens an existing table for reading, and notes if the index of a store had to be rebuilt.
pub(crate) fn open(path: &Path, mut wait_max: Duration, console: Console) -> Result<Opened> {
    open_for_steps(path, &mut wait_max, console)
}

/// Does the same for a command that may have to wait again, as [`open_to_read`].
pub(crate) fn open_for_steps(
    path: &Path,
    wait_max: &mut Duration,
    console: Console,
) -> Result<Opened> {
    let opened = open_to_read(path, wait_max, console);
    let opened = opened.map_err(|error| opening(path, &error))?;
    if let Some(db) = opened.as_store() {
        note_rebuilt(path, db, console);
    }
    Ok(opened)
}

/// Opens an existing store for reading, for features that only a store has, and notes if its index
/// had to be rebuilt.
pub(crate) fn open_store(path: &Path, console: Console) -> Result<Db> {
    open_store_with(path, &Options::new(), WAIT_MAX, console)
}

/// Does the same with other options.
pub(crate) fn open_store_with(
    path: &Path,
    options: &Options,
    wait_max: Duration,
    console: Console,
) -> Result<Db> {
    let options = with_progress(&options.clone().read_only(), console);
    let opened =
        wait(&mut { wait_max }, console, |time| options.clone().lock_timeout(time).open(path));
    let db = opened.map_err(|error| opening(path, &error))?;
    note_rebuilt(path, &db, console);
    Ok(db)
}

fn note_rebuilt(path: &Path, db: &Db, console: Console) {
    if let Recovery::Replayed { checkpoint_keys, records, .. } = db.recovery() {
        console.note(format_args!(
            "`{}` was not closed: index rebuilt from {}; the next write keeps the result",
            path.display(),
            rebuilt_from(checkpoint_keys, records)
        ));
    }
}

/// Opens an existing table for reading, without a note on its index, and returns the library's error. Leaves in
/// `wait_max` the time that it did not wait, for a command that may have to wait again.
pub(crate) fn open_to_read(
    path: &Path,
    wait_max: &mut Duration,
    console: Console,
) -> Result<Opened, Error> {
    let options = Options::new().read_only();
    wait(wait_max, console, |time| open_with(path, &options.clone().lock_timeout(time), console))
}

/// Does the same at once or not at all.
pub(crate) fn open_untouched(path: &Path, console: Console) -> Result<Opened, Error> {
    open_with(path, &Options::new().read_only(), console)
}

/// Calls `work`, which needs a table that nobody changes meanwhile, until it finds one; it may wait itself for the
/// time that it is given.
pub(crate) fn wait_for_rest<T>(
    wait_max: Duration,
    console: Console,
    mut work: impl FnMut(Duration) -> Result<T, Error>,
) -> Result<T, Error> {
    wait(&mut { wait_max }, console, |time| {
        let begun = Instant::now();
        loop {
            let done = work(time.saturating_sub(begun.elapsed()));
            let is_over = begun.elapsed() >= time || interrupt::has_come();
            if is_over || !matches!(done, Err(Error::Locked { .. })) {
                return done;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    })
}

/// Calls `open` with how long to wait for others to close the table, the first time in silence; then says
/// for whom it waits. Takes from `wait_max` the time that it has waited in vain.
fn wait<T>(
    wait_max: &mut Duration,
    console: Console,
    mut open: impl FnMut(Duration) -> Result<T, Error>,
) -> Result<T, Error> {
    let (begun, lock_timeout) = (Instant::now(), *wait_max);
    let opened = open(lock_timeout.min(WAIT_IN_SILENCE));
    let Err(Error::Locked { path: locked, holders }) = &opened else { return opened };
    *wait_max = lock_timeout.saturating_sub(begun.elapsed());
    if wait_max.is_zero() || interrupt::has_come() {
        return opened;
    }
    note_wait(locked, holders, lock_timeout, console);
    loop {
        // Whoever comes next may be of a kind beside which there is another way.
        let opened = open((*wait_max).min(WAIT_IN_SILENCE));
        let is_over = wait_max.is_zero() || interrupt::has_come();
        if is_over || !matches!(opened, Err(Error::Locked { .. })) {
            return opened;
        }
        *wait_max = lock_timeout.saturating_sub(begun.elapsed());
    }
}

/// Opens an existing table for writing, and notes if it is a store that had not been closed.
pub(crate) fn open_to_write(
    path: &Path,
    options: &WriteOptions,
    console: Console,
) -> Result<Opened> {
    open_writable(path, options, Create::Never, console)
        .map_err(|error| opening_to_write(path, &error))?
        .expect_writable()
}

/// Opens a table for writing, or returns `None` if there is none yet. An empty file and a store
/// whose creation was interrupted count as none.
pub(crate) fn open_if_there(
    path: &Path,
    options: &WriteOptions,
    console: Console,
) -> Result<Option<Opened>> {
    match open_writable(path, options, Create::Never, console) {
        Ok(opened) => opened.expect_writable().map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound || is_begun(&error) => Ok(None),
        Err(error) => Err(opening_to_write(path, &error)),
    }
}

/// Opens a table for writing; if it is missing, creates it and prints a note.
pub(crate) fn open_or_create(
    path: &Path,
    options: &WriteOptions,
    console: Console,
) -> Result<Opened> {
    if let Some(opened) = open_if_there(path, options, console)? {
        return Ok(opened);
    }
    let opened = open_writable(path, options, Create::IfMissing, console);
    let opened = opened.map_err(|error| creating(path, &error))?.expect_writable()?;
    // `note_left` reports a new store.
    if opened.as_store().is_none() {
        console.note(format_args!("created `{}`", path.display()));
    }
    Ok(opened)
}

/// Creates a table at a path without a file.
pub(crate) fn create(path: &Path, options: &Options, console: Console) -> Result<Opened> {
    match open_with(path, &options.clone().create(Create::New), console) {
        Ok(opened) => opened.expect_writable(),
        Err(error) => {
            if is_missing(path) && matches!(error, Error::Exists { .. }) {
                // The path is the common stem of a table in two files; its own error says more.
                open(path, WAIT_MAX, console)?.expect_writable()?;
            }
            Err(creating(path, &error))
        }
    }
}

/// Returns whether `path` leads to nothing at all.
pub(crate) fn is_missing(path: &Path) -> bool {
    !splitpoint::is_url(path) && path.symlink_metadata().is_err()
}

/// Refuses a table of another access method, for what only a store can do.
pub(crate) fn refuse_url(path: &Path) -> Result<()> {
    if !splitpoint::is_url(path) {
        return Ok(());
    }
    let message = format!("`{}` is not the path of a store", path.display());
    if path == Path::new("mem:") {
        return Err(Failure::new(Exit::CannotOpen, message).hint("give the name of a file"));
    }
    let file = shell_word(&path.to_string_lossy());
    Err(Failure::new(Exit::CannotOpen, message)
        .hint(format!("convert it to a store: splitpoint convert {file} NEW.spt")))
}

/// Returns the failure of a command that could not create the table at `path`.
fn creating(path: &Path, error: &Error) -> Failure {
    match error.kind() {
        ErrorKind::NotFound => Failure::creating(path, error),
        _ => opening_to_write(path, error),
    }
}

/// How a command opens a table that it may change.
#[derive(Clone, Debug)]
pub(crate) struct WriteOptions {
    pub(crate) options: Options,
    /// How long it waits for others to close the table.
    pub(crate) lock_timeout: Duration,
    /// Whether it changes the table by turns with those who do so.
    pub(crate) may_take_turns: bool,
}

impl WriteOptions {
    /// Calls `open` with options that wait for others to close the table, the first time in
    /// silence; then says for whom it waits.
    pub(crate) fn wait<T>(
        &self,
        console: Console,
        mut open: impl FnMut(&Options) -> Result<T, Error>,
    ) -> Result<T, Error> {
        wait(&mut { self.lock_timeout }, console, |time| {
            open(&self.options.clone().lock_timeout(time).stop_waiting(interrupt::has_come))
        })
    }

    /// Returns the options of a handle that changes the table at `path` by turns. Each change waits as long
    /// for its turn, and says for whom.
    fn by_turns(&self, path: &Path, console: Console) -> Options {
        let (path, time) = (path.to_path_buf(), self.lock_timeout);
        let options = self.options.clone().sharing(Sharing::Shared).lock_timeout(time);
        options.on_wait(move |holders| note_wait(&path, holders, time, console))
    }
}

fn note_wait(path: &Path, holders: &[Holder], lock_timeout: Duration, console: Console) {
    console.note(format_args!(
        "waiting for `{}`, locked by {}; giving up after {} s",
        path.display(),
        Holder::list(holders),
        lock_timeout.as_secs()
    ));
}

fn is_by_turns(holder: &Holder) -> bool {
    holder.role == HolderRole::TakesTurns
}

fn open_writable(
    path: &Path,
    options: &WriteOptions,
    create: Create,
    console: Console,
) -> Result<Opened, Error> {
    let open = |options: &Options| open_with(path, &options.clone().create(create), console);
    let opened = options.wait(console, |within| {
        match open(&within.clone().lock_timeout(Duration::ZERO)) {
            Err(Error::Locked { holders, .. })
                if options.may_take_turns && holders.iter().any(is_by_turns) =>
            {
                let opened = open(&options.by_turns(path, console))?;
                Ok(Opened { is_by_turns: true, ..opened })
            }
            Err(Error::Locked { .. }) => open(within),
            opened => opened,
        }
    })?;
    // That nobody has closed the store is nothing to note by turns.
    if let Some(db) = opened.as_store().filter(|_| !opened.is_by_turns) {
        note_left(path, db.recovery(), console);
    }
    Ok(opened)
}

/// Returns whether a store can be created in place of the file that caused the error, or perhaps:
/// an open that may create decides whose the zeros are.
fn is_begun(error: &Error) -> bool {
    use FileKind::{BeginsWithZeros, Empty, UnfinishedStore};
    matches!(error, Error::NotAStore { found: Empty | UnfinishedStore | BeginsWithZeros, .. })
}

/// Returns the failure of a command that could not open the table at `path`. The hint depends on
/// the format of the file, which is identified here, once.
pub(crate) fn opening(path: &Path, error: &Error) -> Failure {
    if let (Error::Locked { .. }, Some(exit)) = (error, interrupt::came()) {
        // The signal has ended the wait.
        return Failure::interrupted(exit, &format!("`{}` was not opened", path.display()));
    }
    Failure::opening_as(path, format_of(path, error), error)
}

/// Returns the failure of a command that could not open the table at `path` to write.
pub(crate) fn opening_to_write(path: &Path, error: &Error) -> Failure {
    let failure = opening(path, error);
    match error {
        Error::Locked { .. } if !splitpoint::is_url(path) && !interrupt::has_come() => {
            failure.hint(failure::HINT_TO_WAIT)
        }
        _ => failure,
    }
}

/// Returns the failure of a command that used the store at `path`, or could not open it.
pub(crate) fn using(path: &Path, error: &Error) -> Failure {
    Failure::using_as(path, format_of(path, error), error)
}

/// Identifies the format of a file that cannot be opened, if the hint depends on it.
pub(crate) fn format_of(path: &Path, error: &Error) -> Option<Format> {
    match error {
        Error::NotAStore { found, .. } if found.is_regular() => {}
        Error::Corrupt { .. }
        | Error::HashMismatch { .. }
        | Error::Unsupported { .. }
        | Error::Version { .. } => {}
        _ => return None,
    }
    let url = path.to_str().and_then(|text| text.strip_prefix("db185:"));
    let file =
        url.map_or(path, |url| Path::new(url.rsplit_once('?').map_or(url, |(file, _)| file)));
    let identity = splitpoint_legacy::identify(error.path().unwrap_or(file)).ok()??;
    Some(identity.format)
}

/// Notes in what state the last writer left a store that was opened for writing.
pub(crate) fn note_left(path: &Path, recovery: Recovery, console: Console) {
    let file = path.display();
    match recovery {
        Recovery::Created => console.note(format_args!("created `{file}`")),
        Recovery::WarmRestart { records } => console.note(format_args!(
            "`{file}` was not closed: its last writer was killed; kept its index and applied {}",
            counted(records, "record")
        )),
        Recovery::Replayed { checkpoint_keys, records, .. } => console.note(format_args!(
            "`{file}` was not closed: index rebuilt from {}",
            rebuilt_from(checkpoint_keys, records)
        )),
        _ => {}
    }
}

/// Returns options with which a long open shows its progress.
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
            Total::Records(_) | Total::Rounds(_) => (done, 0),
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
            // The last progress report.
            progress.finish(records, bytes);
            *shown = None;
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_leaves_the_next_step_the_rest_of_its_time() {
        let (whole, pause) = (Duration::from_secs(900), Duration::from_millis(20));
        let (mut wait_max, mut calls) = (whole, 0);
        let opened = wait(&mut wait_max, Console::new(true), |_| {
            calls += 1;
            if calls > 2 {
                return Ok(calls);
            }
            std::thread::sleep(pause);
            Err(Error::Locked { path: "a.spt".into(), holders: Vec::new() })
        });
        assert_eq!(opened.unwrap(), 3);
        assert!(wait_max + 2 * pause <= whole, "{wait_max:?}");
    }
}
