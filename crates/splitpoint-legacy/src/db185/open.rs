//! How a table is made and opened: the package's parameters.

use std::path::Path;

use splitpoint::hash::HashFunction;
use splitpoint::{Create, Error, Result};

use super::disk::{Disk, FileDisk};
use super::header::Header;
use super::pool::Pool;
use super::store::{Store, probe_hash};
use super::table::Db185;

/// Cache when nothing else is asked, in bytes.
const CACHE_BYTES_DEFAULT: usize = 64 << 10;

/// Parameters of a table; build them, then [`open`](Self::open) a file.
#[derive(Clone, Debug)]
pub struct Options {
    cache_bytes: usize,
    hash: Option<HashFunction>,
    is_read_only: bool,
    is_any_hash: bool,
    create: Create,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// Returns the defaults of the package.
    pub fn new() -> Self {
        Self {
            cache_bytes: CACHE_BYTES_DEFAULT,
            hash: None,
            is_read_only: false,
            is_any_hash: false,
            create: Create::IfMissing,
        }
    }

    /// Sets how many bytes of pages are kept in memory, 64 KiB by default, and six pages at
    /// least: `cachesize`.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: usize) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// Sets the hash function that the file was or is to be made with, of whose results 32 bits
    /// are used; [`HashFunction::x33`] by default.
    #[must_use]
    pub fn hash(mut self, function: HashFunction) -> Self {
        self.hash = Some(function);
        self
    }

    /// Opens for reading only: the file is not written and must exist.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.is_read_only = true;
        self.create = Create::Never;
        self
    }

    /// Opens for reading only, also a file whose hash function nobody knows any more: a scan reads
    /// it all, and a get looks through it from the start.
    #[must_use]
    pub fn any_hash(mut self) -> Self {
        self.is_any_hash = true;
        self.read_only()
    }

    /// Opens the table in the file at `path`.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotAStore`](splitpoint::ErrorKind::NotAStore),
    ///   [`Version`](splitpoint::ErrorKind::Version),
    ///   [`Unsupported`](splitpoint::ErrorKind::Unsupported) or
    ///   [`Corrupt`](splitpoint::ErrorKind::Corrupt) if the file is something else or its header
    ///   is damaged.
    /// - [`ErrorKind::HashMismatch`](splitpoint::ErrorKind::HashMismatch) if it was made with
    ///   another hash function.
    /// - [`ErrorKind::Locked`](splitpoint::ErrorKind::Locked) if another handle has it open.
    /// - [`ErrorKind::Io`](splitpoint::ErrorKind::Io) if the operating system refuses.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Db185> {
        let disk = FileDisk::open(path.as_ref(), self.create, self.is_read_only)?;
        self.open_disk(Box::new(disk)).map(Db185::new)
    }

    fn open_disk(&self, disk: Box<dyn Disk>) -> Result<Store> {
        let mut bytes = [0; Header::BYTES];
        disk.read_at(0, &mut bytes)?;
        let header = Header::decode(&bytes, disk.path())?;
        let hash = self.hash.clone().unwrap_or_else(HashFunction::x33);
        let hash = if probe_hash(&hash) == header.probe_hash {
            Some(hash)
        } else if self.is_any_hash {
            None
        } else {
            return Err(mismatch(&hash, &header));
        };
        let pool = Pool::new(Some(disk), header.shape.page_bytes as usize, self.cache_bytes);
        Ok(Store::new(pool, header, hash))
    }
}

fn mismatch(hash: &HashFunction, header: &Header) -> Error {
    Error::HashMismatch {
        expected: format!("that maps the probe key to {:#010x}", header.probe_hash),
        found: format!("{}, which maps it to {:#010x}", hash.name(), probe_hash(hash)),
    }
}
