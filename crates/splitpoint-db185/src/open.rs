//! `dbopen`: which file it is, and how it is opened.

use std::ffi::{CStr, OsStr, c_int};
use std::fs::{self, File};
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use splitpoint::hash::HashFunction;
use splitpoint::{Create, Durability, ErrorKind, Options, SharedFile};
use splitpoint_ffi::{Identity, errno_of, is_store, open_by_turns, renew, secure_variable};
use splitpoint_legacy::{ByteOrder, Format, db185};

use crate::opened::{Kind, Opened, claim};
use crate::table::Table;
use crate::user_hash::{UserHash, register};

/// Largest page in bytes.
const PAGE_BYTES_MAX: u32 = 1 << 16;
/// Largest page that the format of db 1.85 has offsets for.
const PAGE_BYTES_MAX_IN_PLACE: u32 = 1 << 15;
/// Bits that programs for later libraries set, and that have no meaning here: locks.
const IGNORED: c_int = 0xe000_0000_u32.cast_signed();

/// A code of `errno`.
pub(crate) type Errno = c_int;

/// The parameters of a table: `HASHINFO`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct HashInfo {
    page_bytes: u32,
    fill_factor: u32,
    expected_records: u32,
    cache_bytes: u32,
    hash: Option<UserHash>,
    byte_order: c_int,
}

/// What a program asks for.
#[derive(Debug)]
struct Request<'a> {
    path: &'a Path,
    is_writer: bool,
    flags: c_int,
    info: HashInfo,
    hash: Option<HashFunction>,
}

/// Opens or makes a table: in memory without a name.
pub(crate) fn open(
    name: Option<&CStr>,
    flags: c_int,
    mode: c_int,
    info: HashInfo,
) -> Result<Opened, Errno> {
    let flags = flags & !IGNORED;
    let known = libc::O_ACCMODE
        | libc::O_CREAT
        | libc::O_EXCL
        | libc::O_TRUNC
        | libc::O_NONBLOCK
        | libc::O_CLOEXEC;
    if flags & !known != 0 || !matches!(flags & libc::O_ACCMODE, libc::O_RDONLY | libc::O_RDWR) {
        return Err(libc::EINVAL);
    }
    info.validate()?;
    let hash = info.hash.map(register).transpose().map_err(|error| errno_of(&error))?;
    let is_writer = flags & libc::O_ACCMODE == libc::O_RDWR;
    let Some(name) = name else {
        let options = native_options(hash, &info);
        let db = options.in_memory().map_err(|error| errno_of(&error))?;
        return Ok(Opened::in_memory(Table::native(db), is_writer));
    };
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    let file = open_file(name, path, flags, mode)?;
    Request { path, is_writer, flags, info, hash }.open(file)
}

impl HashInfo {
    fn validate(&self) -> Result<(), Errno> {
        let is_order = matches!(self.byte_order, 0 | 1234 | 4321);
        let is_page = self.page_bytes <= PAGE_BYTES_MAX;
        if is_order && is_page { Ok(()) } else { Err(libc::EINVAL) }
    }

    /// Returns the options of a table in the format of db 1.85.
    fn in_place(&self, hash: Option<HashFunction>) -> db185::Options {
        let mut options = db185::Options::new();
        if self.page_bytes != 0 {
            options = options.page_bytes(self.page_bytes.min(PAGE_BYTES_MAX_IN_PLACE));
        }
        if self.fill_factor != 0 {
            options = options.fill_factor(self.fill_factor);
        }
        if self.expected_records != 0 {
            options = options.expected_records(self.expected_records.into());
        }
        if self.cache_bytes != 0 {
            options = options.cache_bytes(self.cache_bytes as usize);
        }
        options = match self.byte_order {
            1234 => options.byte_order(ByteOrder::Little),
            4321 => options.byte_order(ByteOrder::Big),
            _ => options,
        };
        match hash {
            Some(hash) => options.hash(hash),
            None => options,
        }
    }
}

fn native_options(hash: Option<HashFunction>, info: &HashInfo) -> Options {
    // Page, fill factor and byte order are of the other format; the cache is the kernel's.
    let options = Options::new()
        .durability(Durability::Buffered)
        .expected_records(u64::from(info.expected_records).min(1 << 20));
    match hash {
        Some(hash) => options.hash(hash),
        None => options,
    }
}

/// Opens the file of a table, close-on-exec.
fn open_file(name: &CStr, path: &Path, flags: c_int, mode: c_int) -> Result<File, Errno> {
    let creates = flags & libc::O_CREAT != 0;
    // A reader that may create a table writes an empty one.
    let is_new = creates
        && (fs::metadata(path).is_ok_and(|found| found.len() == 0 && found.is_file())
            || fs::symlink_metadata(path).is_err());
    let access = if is_new { libc::O_RDWR } else { flags & libc::O_ACCMODE };
    let truncates = flags & libc::O_TRUNC != 0;
    let access = if truncates { libc::O_RDWR } else { access };
    // The file is truncated when it is claimed.
    let others = flags & (libc::O_CREAT | libc::O_EXCL);
    let flags = access | others | libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK;
    loop {
        // SAFETY: the name ends in NUL.
        let fd = unsafe { libc::open(name.as_ptr(), flags, mode.cast_unsigned()) };
        if fd != -1 {
            // SAFETY: the descriptor is new and nobody else's.
            return Ok(unsafe { File::from_raw_fd(fd) });
        }
        match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR) => {}
            code => return Err(code.unwrap_or(libc::EIO)),
        }
    }
}

impl Request<'_> {
    fn open(self, file: File) -> Result<Opened, Errno> {
        let code = |error: splitpoint::Error| errno_of(&error);
        let truncates = self.flags & libc::O_TRUNC != 0;
        let metadata =
            file.metadata().map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
        if metadata.is_dir() {
            return Err(libc::EISDIR);
        }
        let is_empty = metadata.len() == 0 || truncates;
        let is_writer = self.is_writer || is_empty;
        if is_empty && !truncates && self.flags & libc::O_CREAT == 0 {
            SharedFile::close_other(file);
            return Err(libc::EINVAL);
        }
        // A store is emptied as one: others may have it mapped.
        if is_empty && writes_db185() && !(truncates && is_store(&file)) {
            let shared = claim(file, self.path, is_writer).map_err(code)?;
            if truncates {
                let cut = shared.file().set_len(0);
                cut.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
            }
            let kind = Kind::InPlace(Box::new(self.info.in_place(self.hash)));
            let table = kind.open(&shared).map_err(code)?;
            // A file of the format from now on, whatever happens to the process.
            table.sync().map_err(code)?;
            return Opened::shared(table, shared, kind, self.is_writer);
        }
        let options = native_options(self.hash.clone(), &self.info);
        let options = if is_writer { options } else { options.read_only() };
        let shared = SharedFile::by_turns(file, self.path).map_err(code)?;
        match open_by_turns(&shared, &options, truncates) {
            Ok(db) => {
                let kind = Kind::Native(Box::new(options));
                Opened::shared(Table::native(db), shared, kind, self.is_writer)
            }
            Err(error) if error.kind() == ErrorKind::NotAStore => self.open_old(shared),
            Err(error) => Err(code(error)),
        }
    }

    /// Opens an old file: one of db 1.85 in place, others to read.
    fn open_old(self, shared: SharedFile) -> Result<Opened, Errno> {
        let code = |error: splitpoint::Error| errno_of(&error);
        // What opens the file by its name and closes it ends the lock of a claim: it comes before.
        let file = shared.into_file().ok_or(libc::EIO)?;
        let identity = Identity::of_file(&file).map_err(|_| libc::EIO)?;
        let found = splitpoint_legacy::identify(self.path).ok().flatten();
        let found = found.filter(|_| identity.has_name(self.path)).ok_or(libc::EINVAL)?;
        match found.format {
            Format::Db185Hash => {
                let shared = claim(file, self.path, self.is_writer).map_err(code)?;
                // Another reader of this process may have lost its lock.
                renew(&shared).map_err(|_| libc::EIO)?;
                let options = self.info.in_place(self.hash).create(Create::Never);
                let options = if self.is_writer { options } else { options.read_only() };
                let kind = Kind::InPlace(Box::new(options));
                let table = kind.open(&shared).map_err(code)?;
                Opened::shared(table, shared, kind, self.is_writer)
            }
            Format::BdbHash | Format::Krb5Hash if !self.is_writer => {
                let old = splitpoint_legacy::open(self.path).map_err(code)?;
                Opened::read_only(Table::read_only(old), file)
            }
            Format::BdbHash | Format::Krb5Hash => Err(libc::EROFS),
            _ => Err(libc::EINVAL),
        }
    }
}

/// Returns whether new files get the format of db 1.85: `SPLITPOINT_NEW_FILES`.
fn writes_db185() -> bool {
    secure_variable("SPLITPOINT_NEW_FILES").is_some_and(|value| value == "db185")
}
