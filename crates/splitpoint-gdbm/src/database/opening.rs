//! How a database is opened, and made.

use std::ffi::{CString, OsStr, c_int};
use std::fs::{File, Metadata};
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use splitpoint::{Error, SharedFile};
use splitpoint_ffi::{CutWatch, Identity, converts_old_files, open_by_turns, set_close_on_exec};
use splitpoint_legacy::{Format, OldFile};

use super::{Database, Descriptor, FatalFunction, head_of, native_options, process_id, share};
use crate::code::{Code, Failure, Outcome};
use crate::descriptor;
use crate::flags;
use crate::head::{BLOCK_BYTES_MIN, Head, block_bytes_for};
use crate::settings::Settings;
use crate::table::{OldTable, Table};

/// Times that a file is opened whose name others keep giving to another one.
const OPENINGS_MAX: u32 = 100;

/// Bytes that the original reads before it looks at the magic number.
const HEADER_BYTES: u64 = 40;

/// What a program asks for.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) name: CString,
    pub(crate) block_size: c_int,
    pub(crate) flags: c_int,
    pub(crate) mode: libc::mode_t,
    pub(crate) fatal: Option<FatalFunction>,
}

impl Request {
    fn is_writer(&self) -> bool {
        self.flags & flags::OPEN_MASK != flags::READER
    }

    fn locks(&self) -> bool {
        self.flags & flags::NOLOCK == 0
    }

    fn is_new(&self) -> bool {
        self.flags & flags::OPEN_MASK == flags::NEWDB
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(OsStr::from_bytes(self.name.as_bytes()))
    }

    fn refusal(&self) -> Failure {
        let code = if self.is_writer() { Code::CANT_BE_WRITER } else { Code::CANT_BE_READER };
        Failure::of(code)
    }

    fn of_open(&self, error: &Error) -> Failure {
        Failure::of_open(error, self.is_writer())
    }

    /// Opens the file of that name.
    pub(crate) fn open(self) -> Outcome<Database> {
        let access = match self.flags & flags::OPEN_MASK {
            flags::READER => libc::O_RDONLY,
            flags::WRITER => libc::O_RDWR,
            flags::WRCREAT | flags::NEWDB => libc::O_RDWR | libc::O_CREAT,
            _ => return Err(Failure::new(Code::FILE_OPEN_ERROR, libc::EINVAL)),
        };
        let close_on_exec = if self.flags & flags::CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
        // A named pipe without a writer does not stop an open for reading.
        let access = access | close_on_exec | libc::O_NOCTTY | libc::O_NONBLOCK;
        for _ in 0..OPENINGS_MAX {
            let file = descriptor::open(&self.name, access, self.mode);
            let file = file.map_err(|error| Failure::of_io(Code::FILE_OPEN_ERROR, &error))?;
            if !self.lock(&file)? {
                return Err(self.refused(file));
            }
            let (metadata, shared) = self.claim(file)?;
            // Whoever had the lock at the opening may have given the name to another file since.
            if Identity::of(&metadata).has_name(&self.path()) {
                return self.open_claimed(&metadata, shared);
            }
        }
        Err(self.refusal())
    }

    /// Closes the file that others lock. Handles of this process may have lost their lock by that.
    fn refused(&self, file: File) -> Failure {
        SharedFile::close_other(file);
        self.refusal()
    }

    /// Takes an open file. It is closed after an error only if the flags say so.
    pub(crate) fn open_descriptor(self, fd: c_int) -> Outcome<Database> {
        let is_closed_on_error = self.flags & flags::CLOERROR != 0;
        let opened = self.open_copy(fd);
        if opened.is_err() && is_closed_on_error && descriptor::is_writable(fd).is_some() {
            // SAFETY: it is open, and the program has asked for its close.
            SharedFile::close_other(unsafe { File::from_raw_fd(fd) });
        }
        opened
    }

    /// Opens a copy of a descriptor, so that the program still has its own after an error.
    fn open_copy(self, fd: c_int) -> Outcome<Database> {
        let is_writable = descriptor::is_writable(fd);
        let is_writable = is_writable.ok_or(Failure::new(Code::FILE_STAT_ERROR, libc::EBADF))?;
        let is_known = matches!(self.flags & flags::OPEN_MASK, flags::READER..=flags::NEWDB);
        if !is_known || self.is_writer() && !is_writable {
            return Err(Failure::new(Code::FILE_OPEN_ERROR, libc::EINVAL));
        }
        // SAFETY: the call takes no pointer.
        let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
        if copy == -1 {
            let error = std::io::Error::last_os_error();
            return Err(Failure::of_io(Code::FILE_OPEN_ERROR, &error));
        }
        // SAFETY: the descriptor is new and nobody else's.
        let copy = unsafe { File::from_raw_fd(copy) };
        if !self.lock(&copy)? {
            return Err(self.refused(copy));
        }
        let (is_close_on_exec, locks) = (self.flags & flags::CLOEXEC != 0, self.locks());
        let opened =
            self.claim(copy).and_then(|(metadata, shared)| self.open_claimed(&metadata, shared));
        let mut database = opened.inspect_err(|_| {
            // The program's descriptor has the lock too.
            if locks {
                descriptor::unlock(fd);
            }
        })?;
        if is_close_on_exec {
            set_close_on_exec(fd, true);
        }
        // SAFETY: the program has handed it over.
        database.given = Some(unsafe { File::from_raw_fd(fd) });
        Ok(database)
    }

    /// Locks a file without waiting; `false` if others keep it out.
    fn lock(&self, file: &File) -> Outcome<bool> {
        if !self.locks() {
            return Ok(true);
        }
        descriptor::try_lock(file, self.is_writer())
            .map_err(|error| Failure::of_io(Code::FILE_OPEN_ERROR, &error))
    }

    /// Claims a place of a reader or the writer in a file that is locked.
    fn claim(&self, file: File) -> Outcome<(Metadata, SharedFile)> {
        let metadata = file.metadata();
        let metadata = metadata.map_err(|error| Failure::of_io(Code::FILE_STAT_ERROR, &error))?;
        if metadata.is_dir() {
            return Err(Failure::new(Code::FILE_OPEN_ERROR, libc::EISDIR));
        }
        let shared = share(file, &self.path(), self.is_writer(), self.locks());
        shared.map(|shared| (metadata, shared)).map_err(|error| self.of_open(&error))
    }

    /// Opens a file in which this process has a place.
    fn open_claimed(self, metadata: &Metadata, shared: SharedFile) -> Outcome<Database> {
        let of_system = u32::try_from(metadata.blksize()).unwrap_or(4096);
        let block_bytes = block_bytes_for(self.block_size, of_system);
        let is_new = self.is_writer() && (self.is_new() || metadata.len() == 0);
        let wants_exactly = self.flags & flags::BSEXACT != 0;
        let is_exact = u32::try_from(self.block_size).unwrap_or(0) == block_bytes
            // That of the file system is asked for.
            || self.block_size < BLOCK_BYTES_MIN.cast_signed();
        if is_new && wants_exactly && !is_exact {
            return Err(Failure::of(Code::BLOCK_SIZE_ERROR));
        }
        let counts_syncs = self.flags & flags::NUMSYNC != 0;
        let head = Head { block_bytes, sync_count: counts_syncs.then_some(0) };
        let options = native_options(self.is_writer()).application_data(head.encode());
        match open_by_turns(&shared, &options, self.is_new()) {
            Ok(db) => {
                if self.is_new() {
                    // A store that was there is emptied, and has its old head.
                    let set = db.set_application_data(head.encode());
                    set.map_err(|error| self.of_open(&error))?;
                }
                let head = head_of(&db, block_bytes_for(0, of_system))?;
                let identity = Identity::of(metadata);
                Ok(self.database(identity, Descriptor::Shared(shared), Table::native(db), head))
            }
            Err(error) => {
                let opened = self.open_old(Identity::of(metadata), shared, &error);
                opened.map_err(|failure| match failure.code {
                    Code::BAD_MAGIC_NUMBER if metadata.len() < HEADER_BYTES => {
                        Failure::new(Code::FILE_EOF, failure.errno)
                    }
                    _ => failure,
                })
            }
        }
    }

    /// Opens a file that is no store, if it is an old one.
    fn open_old(self, identity: Identity, shared: SharedFile, error: &Error) -> Outcome<Database> {
        let path = self.path();
        let failure = self.of_open(error);
        if failure.code != Code::BAD_MAGIC_NUMBER {
            return Err(failure);
        }
        // What opens the file by its name and closes it ends the lock of a claim: it comes before.
        let plain = shared.into_file().ok_or(failure)?;
        if !identity.has_name(&path) || !is_gdbm(&path) {
            SharedFile::close_other(plain);
            return Err(failure);
        }
        let may_convert = self.is_writer() && converts_old_files();
        if self.is_writer() && !may_convert {
            SharedFile::close_other(plain);
            return Err(Failure::new(Code::CANT_BE_WRITER, libc::EROFS));
        }
        let file = splitpoint_legacy::open(&path).map_err(|error| self.of_open(&error))?;
        let head = head_of_old(&file);
        let descriptor = if may_convert {
            // Two processes do not convert it at once, also where they do not lock.
            let shared =
                SharedFile::for_writer(plain, &path).map_err(|error| self.of_open(&error))?;
            if !identity.has_name(&path) {
                return Err(failure);
            }
            Descriptor::Shared(shared)
        } else {
            Descriptor::Plain(plain)
        };
        let table = Table::Old(OldTable::new(file));
        let mut database = self.database(identity, descriptor, table, head);
        database.may_convert = may_convert;
        Ok(database)
    }

    fn database(self, identity: Identity, file: Descriptor, table: Table, head: Head) -> Database {
        let path = self.path();
        Database {
            // Where there is no directory to begin at, nothing can be replaced either.
            path: std::path::absolute(&path).unwrap_or(path),
            is_writer: self.is_writer(),
            has_flock: self.locks(),
            settings: Settings::of_open(self.flags),
            fatal: self.fatal,
            name: self.name,
            may_convert: false,
            identity,
            process: process_id(),
            watch: CutWatch::of(file.file()),
            is_cut: false,
            file,
            given: None,
            table: Some(table),
            head,
            snapshots: None,
            failure: None,
            access_count: 0,
            needs_recovery: false,
        }
    }
}

fn is_gdbm(path: &Path) -> bool {
    splitpoint_legacy::identify(path)
        .is_ok_and(|found| found.is_some_and(|identity| identity.format == Format::Gdbm))
}

/// Returns what the header of an old file says.
fn head_of_old(file: &OldFile) -> Head {
    let number = |name: &str| {
        let parameters = file.parameters();
        let found = parameters.iter().find(|parameter| parameter.name == name);
        found.and_then(|parameter| parameter.value.parse().ok())
    };
    let block_bytes = number("block size").and_then(|bytes| u32::try_from(bytes).ok());
    Head { block_bytes: block_bytes.unwrap_or(512), sync_count: number("syncs") }
}
