//! A file that is only read, by calls: what repair reads.
//!
//! Not through a mapping, as everything else: a sector that the disk cannot read any more is then
//! an error for its bytes, where a mapping would end the process by a signal.

use std::fmt;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::open::{io_error, open, refuse_special, writer_pid};
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
    file_bytes: u64,
}

impl RawFile {
    /// Opens the file at `path` for reading.
    ///
    /// The lock is that of a reader, so it is refused while somebody has the file open for
    /// writing. Where there are no locks it is read without one.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let (file, _) = open(path, Access::ReadOnly, Create::Never)?;
        refuse_special(&file, path)?;
        let metadata =
            file.metadata().map_err(|source| io_error("read the size of", path, source))?;
        if let Err(TryLockError::WouldBlock) = file.try_lock_shared() {
            return Err(Error::Locked { path: path.to_path_buf(), pid: writer_pid(&file) });
        }
        Ok(Self { file, path: path.to_path_buf(), file_bytes: metadata.len() })
    }
}

impl Drop for RawFile {
    fn drop(&mut self) {
        // Closing would do, but for a child that is being forked and still has the file open.
        let _ = self.file.unlock();
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

/// A file that appears under its name only when it is whole.
#[derive(Debug)]
pub(crate) struct Emerging {
    target: PathBuf,
    /// Where it is until then, in the same directory.
    hidden: PathBuf,
}

impl Emerging {
    /// Prepares a new file at `target`, where there must be none.
    pub(crate) fn new(target: &Path) -> Result<Self> {
        if std::fs::symlink_metadata(target).is_ok() {
            return Err(Error::Exists { path: target.to_path_buf() });
        }
        let Some(name) = target.file_name() else {
            return Err(Error::Invalid { what: "path", reason: "it names no file".to_string() });
        };
        let name = format!(".{}.{}.repair", name.to_string_lossy(), std::process::id());
        Ok(Self { target: target.to_path_buf(), hidden: target.with_file_name(name) })
    }

    /// Returns where to write the file.
    pub(crate) fn hidden(&self) -> &Path {
        &self.hidden
    }

    /// Gives the file its name, durably. If there is a file of that name by now, it stays.
    pub(crate) fn emerge(self) -> Result<()> {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        let renamed = renameat_with(CWD, &self.hidden, CWD, &self.target, RenameFlags::NOREPLACE)
            .or_else(
                // A file system without that flag.
                |_| rustix::fs::link(&self.hidden, &self.target),
            );
        match renamed {
            // Dropping removes the other name, if there is one.
            Ok(()) => {
                let target = self.target.clone();
                drop(self);
                super::open::sync_directory(&target)
            }
            Err(rustix::io::Errno::EXIST) => Err(Error::Exists { path: self.target.clone() }),
            Err(source) => Err(io_error("make", &self.target, source.into())),
        }
    }
}

impl Drop for Emerging {
    fn drop(&mut self) {
        // There may be none, and there is nobody to tell.
        let _ = std::fs::remove_file(&self.hidden);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_emerging_file_is_there_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("new");
        let abandoned = Emerging::new(&target).unwrap();
        std::fs::write(abandoned.hidden(), b"half").unwrap();
        drop(abandoned);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);

        let first = Emerging::new(&target).unwrap();
        std::fs::write(first.hidden(), b"first").unwrap();
        assert!(!target.exists());
        first.emerge().unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"first");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(matches!(Emerging::new(&target), Err(Error::Exists { .. })));
    }

    #[test]
    fn an_emerging_file_does_not_replace_one_that_was_faster() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("new");
        let late = Emerging::new(&target).unwrap();
        std::fs::write(late.hidden(), b"late").unwrap();
        std::fs::write(&target, b"faster").unwrap();
        assert!(matches!(late.emerge(), Err(Error::Exists { .. })));
        assert_eq!(std::fs::read(&target).unwrap(), b"faster");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
