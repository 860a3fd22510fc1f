//! Reads a file by system calls instead of a mapping, for repair.
//!
//! An unreadable sector of the disk is then an error for its bytes; through a mapping it would
//! raise a signal and end the process.

use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;

use super::failure::io_error;
use super::fork::Origin;
use super::holders::locked;
use super::neighbours::{keep_writers_out, let_writers_in};
use super::open::{OPENINGS_MAX, leads_to};
use super::regular::open_and_look;
use super::shared_file::OtherFile;
use super::status::Status;
use crate::error::{Error, Result};

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
    /// the end of a turn as long as `wait_max`. On a file system without locks it reads without one.
    pub(crate) fn open(path: &Path, wait_max: Duration) -> Result<Self> {
        Self::open_with(path, wait_max, || ())
    }

    /// As [`open`](Self::open), but calls `before_lock` between each open and the lock.
    ///
    /// Until the lock a writer may make the file longer, or a rehash give its name to another one. So only what
    /// is found under the lock counts.
    fn open_with(path: &Path, wait_max: Duration, mut before_lock: impl FnMut()) -> Result<Self> {
        for _ in 0..OPENINGS_MAX {
            let (file, opened) =
                open_and_look(path, OpenOptions::new().read(true), OFlags::empty())?;
            let file = OtherFile::new(file, &opened);
            before_lock();
            if let Ok(false) = keep_writers_out(&file, wait_max, || false) {
                return Err(locked(path, &file));
            }
            let status =
                Status::of(&file).map_err(|source| io_error("read the size of", path, source))?;
            let (path, origin) = (path.to_path_buf(), Origin::here());
            let raw = Self { file, path, origin, file_bytes: status.bytes };
            if leads_to(&raw.path, &status) {
                return Ok(raw);
            }
        }
        Err(Error::Locked { path: path.to_path_buf(), holders: Vec::new() })
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

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use std::fs::{self, File};
    use std::ops::ControlFlow;
    use std::sync::mpsc::{self, RecvTimeoutError};
    use std::thread;

    use super::*;
    use crate::repair::repair_with;
    use crate::storage::byte_locks::{LockByte, LockKind, is_locked, try_lock};
    use crate::{Db, ErrorKind, Options};

    /// Opens a file, which `between` changes between the opening and the lock, and returns what is read of it.
    fn read_after(between: impl Fn(&Path)) -> Vec<u8> {
        let dir = tempfile::tempdir().expect("nothing fails");
        let path = dir.path().join("a");
        fs::write(&path, b"old").expect("nothing fails");
        let mut is_first = true;
        let raw = RawFile::open_with(&path, Duration::ZERO, || {
            if std::mem::take(&mut is_first) {
                between(&path);
            }
        });
        let raw = raw.expect("nothing fails");
        let mut bytes = vec![0; raw.file_bytes() as usize];
        raw.read_exact_at(0, &mut bytes).expect("nothing fails");
        bytes
    }

    #[test]
    fn what_a_writer_appends_before_the_lock_is_read() {
        let append = |path: &Path| fs::write(path, b"old and new").expect("nothing fails");
        assert_eq!(read_after(append), b"old and new");
    }

    #[test]
    fn a_file_that_is_replaced_before_the_lock_is_not_read() {
        let replace = |path: &Path| {
            let new = path.with_extension("new");
            fs::write(&new, b"replaced").expect("nothing fails");
            fs::rename(&new, path).expect("nothing fails");
        };
        assert_eq!(read_after(replace), b"replaced");
    }

    /// Whoever has the turn here gives it up if he is asked to.
    #[test]
    fn a_repair_waits_for_the_end_of_a_turn_as_long_as_its_options_say() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        Db::open(&path).unwrap().close().unwrap();
        let turn = File::options().read(true).write(true).open(&path).unwrap();
        assert!(try_lock(&turn, LockByte::WRITER, LockKind::Exclusive).unwrap());
        let repair_within = |time| {
            let options = Options::new().lock_timeout(time);
            repair_with(&path, dir.path().join("b"), &options, |_| ControlFlow::Continue(()))
        };
        thread::scope(|scope| {
            let (done, is_done) = mpsc::channel::<()>();
            scope.spawn(move || {
                let is_asked = || is_locked(&turn, LockByte::ASKED).unwrap();
                let pause = Duration::from_millis(1);
                while is_done.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) && !is_asked() {
                }
                drop(turn);
            });
            let refused = repair_within(Duration::ZERO).map(|report| report.key_count);
            assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::Locked));
            let report = repair_within(Duration::from_secs(600));
            drop(done);
            assert_eq!(report.unwrap().key_count, 0);
        });
    }
}
