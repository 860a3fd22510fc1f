//! A file that is only read, by calls: what repair reads.
//!
//! Not through a mapping, as everything else: a sector that the disk cannot read any more is then
//! an error for its bytes, where a mapping would end the process by a signal.

use std::fmt;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::fork::Origin;
use super::open::{io_error, open, writer_pid};
use crate::error::{Error, Result};
use crate::options::{Access, Create};

/// Bytes that can be read and not written.
pub(crate) trait ReadAt: fmt::Debug {
    /// Returns the path, or what stands for it.
    fn path(&self) -> &Path;

    /// Returns the size in bytes.
    fn file_bytes(&self) -> u64;

    /// Fills `buf` with the bytes from `offset` on, all of which lie in the file.
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
}

/// A file, locked against writers.
#[derive(Debug)]
pub(crate) struct RawFile {
    file: File,
    path: PathBuf,
    origin: Origin,
    file_bytes: u64,
}

impl RawFile {
    /// Opens the file at `path` for reading.
    ///
    /// The lock is that of a reader, so it is refused while somebody has the file open for
    /// writing. Where there are no locks it is read without one.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let (file, _) = open(path, Access::ReadOnly, Create::Never)?;
        let metadata =
            file.metadata().map_err(|source| io_error("read the size of", path, source))?;
        if let Err(TryLockError::WouldBlock) = file.try_lock_shared() {
            return Err(Error::Locked { path: path.to_path_buf(), pid: writer_pid(&file) });
        }
        let origin = Origin::here();
        Ok(Self { file, path: path.to_path_buf(), origin, file_bytes: metadata.len() })
    }
}

impl Drop for RawFile {
    fn drop(&mut self) {
        // As in `Mapped`.
        if self.origin.is_here() {
            let _ = self.file.unlock();
        }
    }
}

impl ReadAt for RawFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }
}

/// Bytes in memory, for tests.
#[cfg(any(test, feature = "sim"))]
impl ReadAt for Vec<u8> {
    fn path(&self) -> &Path {
        Path::new(":sim:")
    }

    fn file_bytes(&self) -> u64 {
        self.len() as u64
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        buf.copy_from_slice(&self[offset as usize..][..buf.len()]);
        Ok(())
    }
}
