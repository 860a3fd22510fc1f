//! A file read by calls instead of a mapping, for repair.
//!
//! A sector that the disk can no longer read is then an error for its bytes; through a mapping it
//! would end the process by a signal.

use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::fork::Origin;
use super::holders::locked;
use super::neighbours::{keep_writers_out, let_writers_in};
use super::open::TURN_WAIT;
use super::regular::open_and_look;
use super::shared_file::OtherFile;
use crate::error::Result;

/// Bytes that can only be read.
pub(crate) trait ReadAt: fmt::Debug {
    /// Returns the path, or its stand-in.
    fn path(&self) -> &Path;

    /// Returns the size in bytes.
    fn file_bytes(&self) -> u64;

    /// Fills `buf` with the bytes from `offset` on, all of which lie in the file.
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
}

/// A file, locked against writers.
#[derive(Debug)]
pub(crate) struct RawFile {
    file: OtherFile,
    path: PathBuf,
    origin: Origin,
    file_bytes: u64,
}

impl RawFile {
    /// Opens the file at `path` for reading.
    ///
    /// It takes a reader's lock, so it fails while a process has the file open for writing; it waits for
    /// the end of a turn. On a file system without locks it reads without one.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let (file, status) = open_and_look(path, OpenOptions::new().read(true), OFlags::empty())?;
        let file = OtherFile::new(file, &status);
        if let Ok(false) = keep_writers_out(&file, TURN_WAIT) {
            return Err(locked(path, &file));
        }
        let origin = Origin::here();
        Ok(Self { file, path: path.to_path_buf(), origin, file_bytes: status.bytes })
    }
}

impl Drop for RawFile {
    fn drop(&mut self) {
        // As in `Mapped`.
        if self.origin.is_here() {
            let _ = let_writers_in(&self.file);
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
