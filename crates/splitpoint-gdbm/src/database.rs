//! An open database: what `GDBM_FILE` points to.

mod converting;
mod opening;
mod recovering;

pub(crate) use opening::Request;
pub(crate) use recovering::{Recovered, RecoveryWishes};

use std::ffi::{CString, c_char};
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use splitpoint::{Db, Durability, ErrorKind, Options, PutMode, SharedFile};
use splitpoint_ffi::{CutWatch, Identity, close_descriptor};

use crate::code::{Code, Failure, Outcome};
use crate::descriptor;
use crate::head::Head;
use crate::settings::Settings;
use crate::snapshot::Snapshots;
use crate::table::Table;

/// How long a child of a fork waits for its parent to let go of a database.
const PARENT_WAIT_MAX: Duration = Duration::from_secs(1);

/// The function that a program wants called when its database cannot be used any more.
pub(crate) type FatalFunction = unsafe extern "C" fn(*const c_char);

/// An open database.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each says something of its own")]
pub(crate) struct Database {
    /// Its name as the program gave it.
    pub(crate) name: CString,
    /// The same, wherever the program goes.
    path: PathBuf,
    pub(crate) is_writer: bool,
    has_flock: bool,
    /// Whether the first change of an old file converts it.
    may_convert: bool,
    identity: Identity,
    process: libc::pid_t,
    file: Descriptor,
    watch: CutWatch,
    /// Whether a stranger has cut the file: it is opened by this handle never again.
    is_cut: bool,
    /// The descriptor that the program has opened itself, of the same description.
    given: Option<File>,
    /// `None` after a failure that left no table.
    table: Option<Table>,
    pub(crate) head: Head,
    pub(crate) settings: Settings,
    pub(crate) snapshots: Option<Snapshots>,
    pub(crate) fatal: Option<FatalFunction>,
    /// Calls that have looked at the table.
    pub(crate) access_count: usize,
    /// The last failure.
    pub(crate) failure: Option<Failure>,
    pub(crate) needs_recovery: bool,
}

/// The descriptor that the program may ask for.
#[derive(Debug)]
enum Descriptor {
    /// Of a store, with this process's place among its readers and writers.
    Shared(SharedFile),
    /// Of an old file.
    Plain(File),
    /// None: an operation that replaces the file has failed.
    None,
}

impl Descriptor {
    fn file(&self) -> Option<&File> {
        match self {
            Self::Shared(file) => Some(file.file()),
            Self::Plain(file) => Some(file),
            Self::None => None,
        }
    }

    /// Returns the file, unless the program has closed its descriptor.
    fn checked(&self, identity: Identity) -> Outcome<&File> {
        let file = self.file().ok_or_else(|| Failure::of(Code::NEED_RECOVERY))?;
        identity.checked(file).map_err(|error| Failure::of_io(Code::FILE_STAT_ERROR, &error))
    }

    fn into_file(self) -> Option<File> {
        match self {
            Self::Shared(file) => file.into_file(),
            Self::Plain(file) => Some(file),
            Self::None => None,
        }
    }
}

impl Database {
    /// Returns the descriptor that the program may lock, or -1.
    pub(crate) fn fd(&self) -> RawFd {
        self.given.as_ref().or(self.file.file()).map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Returns the open file, unless the program has closed its descriptor.
    pub(crate) fn open_file(&self) -> Outcome<&File> {
        self.file.checked(self.identity)
    }

    pub(crate) fn durability(&self) -> Durability {
        if self.settings.is_synchronous { Durability::Sync } else { Durability::Buffered }
    }

    /// Gives up a store whose file a stranger has cut.
    #[inline]
    pub(crate) fn expect_whole(&mut self) -> Outcome<()> {
        if !self.watch.sees_cut(self.file.file(), self.identity) {
            return Ok(());
        }
        self.forget_cut()
    }

    /// Does so, if it is one.
    #[cold]
    fn forget_cut(&mut self) -> Outcome<()> {
        if !matches!(self.table, Some(Table::Native { .. })) {
            return Ok(());
        }
        self.is_cut = true;
        std::mem::forget(self.table.take());
        if let Descriptor::Shared(file) = &self.file
            && !self.is_inherited()
        {
            // The table that is left has the file open, so its close ends neither.
            file.give_up_place();
            if self.has_flock {
                let _ = file.file().unlock();
            }
        }
        // Nothing opens it without the claim.
        self.keep_number();
        Err(end_of_file())
    }

    /// Returns the table, to read.
    pub(crate) fn table(&self) -> Outcome<&Table> {
        self.table.as_ref().ok_or_else(|| Failure::of(Code::NEED_RECOVERY))
    }

    /// Calls `read` with the table; in a child of a fork perhaps with another handle of the same file.
    #[inline]
    pub(crate) fn read<T>(&mut self, mut read: impl FnMut(&mut Table) -> Outcome<T>) -> Outcome<T> {
        self.access_count = self.access_count.wrapping_add(1);
        let table = self.table.as_mut().ok_or_else(|| Failure::of(Code::NEED_RECOVERY))?;
        match read(table) {
            Err(failure) if failure.is_fatal && self.is_inherited() => {
                self.adopt()?;
                let table = self.table.as_mut().ok_or_else(|| Failure::of(Code::NEED_RECOVERY))?;
                read(table)
            }
            other => other,
        }
    }

    /// Calls `change` with the table, converted before if it is an old file.
    fn change<T>(&mut self, change: impl Fn(&mut Table, Durability) -> Outcome<T>) -> Outcome<T> {
        if self.may_convert && matches!(self.table, Some(Table::Old(_))) {
            self.convert_old()?;
        }
        let durability = self.durability();
        let changed = self.read(|table| change(table, durability));
        if let (Ok(_), Some(snapshots)) = (&changed, &mut self.snapshots) {
            snapshots.is_behind = true;
        }
        changed
    }

    /// Stores a pair; where `mode` is to keep an old value, there must be none.
    pub(crate) fn store(&mut self, key: &[u8], value: &[u8], mode: PutMode) -> Outcome<()> {
        if !self.is_writer {
            return Err(Failure::of(Code::READER_CANT_STORE));
        }
        let put = |table: &mut Table, durability| table.put(key, value, mode, durability);
        if self.change(put)? { Ok(()) } else { Err(Failure::of(Code::CANNOT_REPLACE)) }
    }

    pub(crate) fn delete(&mut self, key: &[u8]) -> Outcome<()> {
        if !self.is_writer {
            return Err(Failure::of(Code::READER_CANT_DELETE));
        }
        let delete = |table: &mut Table, durability| table.delete(key, durability);
        if self.change(delete)? { Ok(()) } else { Err(Failure::of(Code::ITEM_NOT_FOUND)) }
    }

    /// Makes everything so far durable, and takes a snapshot if that was asked for.
    pub(crate) fn sync(&mut self) -> Outcome<()> {
        if !self.is_writer {
            return Ok(());
        }
        self.note_sync()?;
        self.read(|table| match table {
            Table::Native { db, .. } => db.sync().map_err(|error| Failure::of_sync(&error)),
            Table::Old(_) => Ok(()),
        })?;
        match &mut self.snapshots {
            Some(snapshots) => snapshots.take(self.file.checked(self.identity)?),
            None => Ok(()),
        }
    }

    /// Counts a sync, if syncs are counted.
    fn note_sync(&mut self) -> Outcome<()> {
        match self.head.sync_count {
            Some(count) => {
                let sync_count = Some(count.wrapping_add(1));
                self.set_head(Head { sync_count, ..self.head })
            }
            None => Ok(()),
        }
    }

    /// Stores what the database remembers beside its pairs.
    pub(crate) fn set_head(&mut self, head: Head) -> Outcome<()> {
        self.change(|table, _| match table {
            Table::Native { db, .. } => {
                let set = db.set_application_data(head.encode());
                set.map_err(|error| Failure::of_write(&error))
            }
            Table::Old(_) => Err(Failure::of(Code::READER_CANT_STORE)),
        })?;
        self.head = head;
        Ok(())
    }

    /// Returns whether another process has opened it, of which this is a fork.
    fn is_inherited(&self) -> bool {
        self.process != process_id()
    }

    /// Opens the file anew in a child of a fork, when the parent has let go of it.
    fn adopt(&mut self) -> Outcome<()> {
        let shared = self.claim_anew()?;
        let db = native_options(self.is_writer).open_shared(&shared);
        let db = db.map_err(|error| Failure::of_open(&error, self.is_writer))?;
        self.table = Some(match self.table.take() {
            Some(table) => table.moved_to(db, true),
            None => Table::native(db),
        });
        self.own(shared);
        Ok(())
    }

    /// Claims the file anew in a child of a fork, when the parent has let go of it.
    fn claim_anew(&self) -> Outcome<SharedFile> {
        let deadline = Instant::now() + PARENT_WAIT_MAX;
        let shared = loop {
            let file = self.open_file()?.try_clone();
            let file = file.map_err(|error| Failure::of_io(Code::FILE_OPEN_ERROR, &error))?;
            match share(file, &self.path, self.is_writer, self.has_flock || self.may_convert) {
                Err(error) if error.kind() == ErrorKind::Locked && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                claimed => break claimed.map_err(|error| Failure::of_open(&error, self.is_writer)),
            }
        }?;
        if self.has_flock && !descriptor::try_lock(shared.file(), self.is_writer).unwrap_or(true) {
            let code = if self.is_writer { Code::CANT_BE_WRITER } else { Code::CANT_BE_READER };
            return Err(Failure::of(code));
        }
        Ok(shared)
    }

    /// Takes the claim of this process in place of the parent's. The program keeps the number that it
    /// knows.
    fn own(&mut self, shared: SharedFile) {
        self.keep_number();
        self.file = Descriptor::Shared(shared);
        self.process = process_id();
    }

    /// Closes the database. All of it is gone afterwards, whatever is returned.
    pub(crate) fn close(mut self) -> Outcome<()> {
        let is_inherited = self.is_inherited();
        let whole = if self.is_cut {
            Err(end_of_file())
        } else if self.watch.is_cut(self.file.file(), self.identity) {
            self.forget_cut()
        } else {
            Ok(())
        };
        // Who restores a snapshot after a crash must not lose what was there before the close.
        let is_behind = self.snapshots.as_ref().is_some_and(|snapshots| snapshots.is_behind);
        let snapped = if is_behind && whole.is_ok() && !is_inherited && !self.needs_recovery {
            self.sync()
        } else {
            Ok(())
        };
        let closed = match self.table.take() {
            Some(Table::Native { db, walk }) => {
                drop(walk);
                if is_inherited { Ok(false) } else { db.close() }
            }
            _ => Ok(true),
        };
        let closed = closed.map_err(|error| Failure::of_sync(&error));
        let file = std::mem::replace(&mut self.file, Descriptor::None).into_file();
        let Some(file) = file else { return whole.and(closed.map(drop)).and(snapped) };
        if self.has_flock && !is_inherited && self.identity.is_of(&file) {
            // A child may have the description, and outlive this process.
            let _ = file.unlock();
        }
        let file_closed = close_descriptor(file, self.identity);
        let given = self.given.take();
        let given_closed = given.map_or(Ok(()), |given| close_descriptor(given, self.identity));
        whole?;
        closed?;
        snapped?;
        file_closed
            .and(given_closed)
            .map_err(|error| Failure::of_io(Code::FILE_CLOSE_ERROR, &error))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // `close` has taken both; an open that failed half-way has not.
        self.table = None;
        if let Some(file) = std::mem::replace(&mut self.file, Descriptor::None).into_file() {
            let _ = close_descriptor(file, self.identity);
        }
        if let Some(given) = self.given.take() {
            let _ = close_descriptor(given, self.identity);
        }
    }
}

/// Returns the failure of a file that was cut.
fn end_of_file() -> Failure {
    Failure { is_fatal: true, ..Failure::new(Code::FILE_EOF, libc::EIO) }
}

fn process_id() -> libc::pid_t {
    // SAFETY: the call has no conditions.
    unsafe { libc::getpid() }
}

/// Claims the place of a writer or of a reader in a file, or shares it by turns with handles that claim none.
fn share(
    file: File,
    path: &std::path::Path,
    is_writer: bool,
    is_claimed: bool,
) -> splitpoint::Result<SharedFile> {
    match (is_claimed, is_writer) {
        (false, _) => SharedFile::by_turns(file, path),
        (true, true) => SharedFile::for_writer(file, path),
        (true, false) => SharedFile::for_reader(file, path),
    }
}

/// Returns the options of a handle. What a program does not sync is durable when it closes.
fn native_options(is_writer: bool) -> Options {
    let options = Options::new().durability(Durability::Buffered).gdbm_mark(true);
    if is_writer { options } else { options.read_only() }
}

/// Returns what a store remembers for gdbm, or what it would if it had been made by it.
fn head_of(db: &Db, block_bytes: u32) -> Outcome<Head> {
    let data = db.application_data().map_err(|error| Failure::of_read(&error))?;
    Ok(Head::decode(data).unwrap_or(Head { block_bytes, sync_count: None }))
}
