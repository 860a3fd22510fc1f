//! An open table: whose it is after a fork, and what becomes of it when its descriptor is closed.
//!
//! # Invariants
//!
//! - A child of a fork opens the file anew: a store beside its parent, a file in the format of db 1.85, which
//!   has one process that changes it, when its parent has let go of it.
//! - Pages that the parent has not written are never written by the child.
//! - Nothing is written by a number that leads elsewhere than when the file was opened.

use std::fs::File;
use std::os::fd::{AsRawFd as _, RawFd};
use std::time::{Duration, Instant};

use splitpoint::{ErrorKind, Options, PutMode, SharedFile};
use splitpoint_ffi::{CutWatch, Identity, errno_of};
use splitpoint_legacy::db185;

use crate::open::Errno;
use crate::table::Table;

/// How long the child of a fork waits for its parent to let go of a table.
const PARENT_WAIT_MAX: Duration = Duration::from_secs(1);

/// An open table, and its file if it has one.
#[derive(Debug)]
pub(crate) struct Opened {
    table: Table,
    pub(crate) is_writer: bool,
    place: Option<Place>,
    watch: CutWatch,
    /// Whether a stranger has cut the file: it is not read any more.
    is_cut: bool,
    /// The process that may use the table.
    process: u32,
}

/// Where a table is.
#[derive(Debug)]
pub(crate) struct Place {
    /// The file that a program may ask the descriptor of.
    descriptor: Descriptor,
    identity: Identity,
}

#[derive(Debug)]
enum Descriptor {
    Shared(SharedFile, Kind),
    /// Of a file that is only read, and needs no place among its readers.
    Plain(File),
}

/// How the file is opened anew.
#[derive(Debug)]
pub(crate) enum Kind {
    Native(Box<Options>),
    InPlace(Box<db185::Options>),
}

impl Kind {
    /// Opens the table in a file.
    pub(crate) fn open(&self, shared: &SharedFile) -> splitpoint::Result<Table> {
        match self {
            Self::Native(options) => options.open_shared(shared).map(Table::native),
            Self::InPlace(options) => options.open_shared(shared).map(Table::in_place),
        }
    }
}

fn code(error: &std::io::Error) -> Errno {
    error.raw_os_error().unwrap_or(libc::EIO)
}

impl Opened {
    fn new(table: Table, place: Option<Place>, is_writer: bool) -> Self {
        let process = std::process::id();
        let watch = CutWatch::of(place.as_ref().map(Place::descriptor));
        Self { table, is_writer, place, watch, is_cut: false, process }
    }

    /// Takes a table in memory.
    pub(crate) fn in_memory(table: Table, is_writer: bool) -> Self {
        Self::new(table, None, is_writer)
    }

    /// Takes a table in a file, which was opened as `kind` says.
    pub(crate) fn shared(
        table: Table,
        shared: SharedFile,
        kind: Kind,
        is_writer: bool,
    ) -> Result<Self, Errno> {
        let identity = Identity::of_file(shared.file()).map_err(|error| code(&error))?;
        let place = Some(Place { descriptor: Descriptor::Shared(shared, kind), identity });
        Ok(Self::new(table, place, is_writer))
    }

    /// Takes an old file that is only read.
    pub(crate) fn read_only(table: Table, file: File) -> Result<Self, Errno> {
        let identity = Identity::of_file(&file).map_err(|error| code(&error))?;
        let place = Some(Place { descriptor: Descriptor::Plain(file), identity });
        Ok(Self::new(table, place, false))
    }

    /// Returns the descriptor of the file.
    pub(crate) fn number(&self) -> Option<RawFd> {
        Some(match &self.place.as_ref()?.descriptor {
            Descriptor::Shared(file, _) => file.file().as_raw_fd(),
            Descriptor::Plain(file) => file.as_raw_fd(),
        })
    }

    /// Copies the value of a key into `value`, and returns whether there is one.
    pub(crate) fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Errno> {
        self.require_place()?;
        let get = |table: &Table, value: &mut Vec<u8>| -> splitpoint::Result<bool> {
            let Some(found) = table.get(key)? else { return Ok(false) };
            value.clear();
            value.extend_from_slice(&found);
            Ok(true)
        };
        // A store can be read by the child of its writer at once; pages of the other format cannot.
        if self.table.is_in_place() {
            self.adopt()?;
        }
        match get(&self.table, value) {
            Err(error) if error.kind() == ErrorKind::Poisoned && self.is_inherited() => {
                self.adopt()?;
                get(&self.table, value).map_err(|error| errno_of(&error))
            }
            got => got.map_err(|error| errno_of(&error)),
        }
    }

    /// Copies the next pair of a walk, or the first one, and returns whether there is one.
    pub(crate) fn next(
        &mut self,
        begins: bool,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<bool, Errno> {
        // What is in memory needs no file: whose it is by now is asked when the walk reads on.
        let reads = begins || !self.table.is_ahead();
        let table = if reads { self.own()? } else { &mut self.table };
        table.next(begins, key, value).map_err(|error| errno_of(&error))
    }

    /// Stores a pair, and returns whether it did.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8], mode: PutMode) -> Result<bool, Errno> {
        self.own()?.put(key, value, mode).map_err(|error| errno_of(&error))
    }

    /// Deletes a key, and returns whether it was there.
    pub(crate) fn delete(&mut self, key: &[u8]) -> Result<bool, Errno> {
        self.own()?.delete(key).map_err(|error| errno_of(&error))
    }

    /// Makes everything so far durable.
    pub(crate) fn sync(&mut self) -> Result<(), Errno> {
        self.own()?.sync().map_err(|error| errno_of(&error))
    }

    /// Closes the table, and makes it durable.
    pub(crate) fn close(self) -> Result<(), Errno> {
        let Self { table, place, process, watch, .. } = self;
        let is_ours = place.as_ref().is_none_or(|place| place.file().is_some());
        let code = if is_ours { Ok(()) } else { Err(libc::EBADF) };
        if process != std::process::id() {
            // The parent's: closing its file would end the locks that this process has of it.
            std::mem::forget(table);
            return code;
        }
        if !is_ours && table.is_in_place() {
            // Its number may be another file's by now.
            table.abandon();
            return code;
        }
        let is_cut = |place: &Place| watch.is_cut(Some(place.descriptor()), place.identity);
        if table.is_native() && place.as_ref().is_some_and(is_cut) {
            std::mem::forget(table);
            return Err(libc::EIO);
        }
        let closed = table.close();
        drop(place);
        closed.map_err(|error| errno_of(&error))
    }

    fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }

    /// Returns whether the table is that of the process of which this one is a fork.
    fn is_of_parent(&self) -> bool {
        match &self.table {
            // It knows without a system call, which would take longer than a step of a walk.
            Table::Native { db, .. } if self.place.is_some() => db.is_of_parent(),
            _ => self.is_inherited(),
        }
    }

    fn require_place(&mut self) -> Result<(), Errno> {
        match &self.place {
            Some(place) if self.table.is_in_place() => place.file().map(drop).ok_or(libc::EBADF),
            // A store looks itself before it writes.
            Some(place) if self.table.is_native() => {
                let (file, identity) = (place.descriptor(), place.identity);
                self.is_cut = self.is_cut || self.watch.sees_cut(Some(file), identity);
                if self.is_cut { Err(libc::EIO) } else { Ok(()) }
            }
            // In memory, or an old file that is only read, without a mapping: it may be of any size.
            _ => Ok(()),
        }
    }

    /// Returns the table of this process.
    fn own(&mut self) -> Result<&mut Table, Errno> {
        self.require_place()?;
        self.adopt()?;
        Ok(&mut self.table)
    }

    /// Opens the file anew in a child of a fork, when the parent has let go of it.
    fn adopt(&mut self) -> Result<(), Errno> {
        if !self.is_of_parent() {
            return Ok(());
        }
        if let Some(place) = &self.place
            && let Descriptor::Shared(shared, kind) = &place.descriptor
        {
            // The claim of the table is its own; the program keeps the number that it knows.
            let claim = claim_anew(place, shared, kind)?;
            let table = kind.open(&claim).map_err(|error| errno_of(&error))?;
            self.table.move_to(table);
        }
        self.process = std::process::id();
        Ok(())
    }
}

impl Place {
    /// Returns the file, unless the program has closed its descriptor.
    fn file(&self) -> Option<&File> {
        self.identity.checked(self.descriptor()).ok()
    }

    fn descriptor(&self) -> &File {
        match &self.descriptor {
            Descriptor::Shared(file, _) => file.file(),
            Descriptor::Plain(file) => file,
        }
    }
}

fn claim_anew(place: &Place, shared: &SharedFile, kind: &Kind) -> Result<SharedFile, Errno> {
    let deadline = Instant::now() + PARENT_WAIT_MAX;
    loop {
        let file = place.file().ok_or(libc::EBADF)?.try_clone().map_err(|error| code(&error))?;
        let claimed = match kind {
            Kind::Native(_) => SharedFile::by_turns(file, shared.path()),
            Kind::InPlace(_) => claim(file, shared.path(), shared.is_writer()),
        };
        match claimed {
            Err(error) if error.kind() == ErrorKind::Locked && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            claimed => return claimed.map_err(|error| errno_of(&error)),
        }
    }
}

/// Claims the place of a writer or of a reader in a file.
pub(crate) fn claim(
    file: File,
    path: &std::path::Path,
    is_writer: bool,
) -> splitpoint::Result<SharedFile> {
    if is_writer { SharedFile::for_writer(file, path) } else { SharedFile::for_reader(file, path) }
}
