//! Open, make and lock the file of a store.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::error::{Error, Result};
use crate::live::PID_OFFSET;
use crate::options::{Access, Create};

/// Opens the file at `path` and locks it: for this handle alone if it may write, otherwise
/// against writers.
///
/// A new file is empty. An existing one has not been read.
pub(crate) fn open_and_lock(path: &Path, access: Access, create: Create) -> Result<File> {
    let file = open(path, access, create)?;
    let metadata = file.metadata().map_err(|source| io_error("read the size of", path, source))?;
    if metadata.is_dir() {
        return Err(Error::NotAStore { path: path.to_path_buf(), found: "a directory" });
    }
    if !metadata.is_file() {
        return Err(Error::NotAStore { path: path.to_path_buf(), found: "a special file" });
    }
    let locked = match access {
        Access::ReadWrite => file.try_lock(),
        Access::ReadOnly => file.try_lock_shared(),
    };
    match locked {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(Error::Locked { path: path.to_path_buf(), pid: writer_pid(&file) })
        }
        Err(TryLockError::Error(source)) => Err(io_error("lock", path, source)),
    }
}

fn open(path: &Path, access: Access, create: Create) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    if access == Access::ReadWrite {
        options.write(true);
        match create {
            Create::IfMissing => options.create(true),
            Create::New => options.create_new(true),
            Create::Never => &mut options,
        };
    }
    options.open(path).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => Error::Exists { path: path.to_path_buf() },
        io::ErrorKind::IsADirectory => {
            Error::NotAStore { path: path.to_path_buf(), found: "a directory" }
        }
        _ => io_error("open", path, source),
    })
}

/// Returns the process that the live header names, while somebody holds the lock.
fn writer_pid(file: &File) -> Option<u32> {
    let mut pid = [0; 8];
    file.read_exact_at(&mut pid, PID_OFFSET).ok()?;
    u32::try_from(u64::from_le_bytes(pid)).ok().filter(|&pid| pid != 0)
}

/// Makes the name of a new file durable.
pub(crate) fn sync_directory(path: &Path) -> Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(parent)
        .and_then(|directory| directory.sync_all())
        .map_err(|source| io_error("sync the directory of", path, source))
}

/// Returns an error that names the action and the file.
pub(crate) fn io_error(action: &'static str, path: &Path, source: io::Error) -> Error {
    Error::Io { action, path: path.to_path_buf(), source }
}

/// Returns random bits for a seed, a uuid or the salts of a log.
pub(crate) fn random_u64() -> Result<u64> {
    getrandom::u64().map_err(|source| {
        io_error("get random bits for", Path::new("a new store"), io::Error::other(source))
    })
}
