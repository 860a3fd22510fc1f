//! Open, make and lock the file of a store.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::address_space_refused;
use super::mapped::Mapped;
use super::regular::open_regular;
use crate::error::{Error, Result};
use crate::live::PID_OFFSET;
use crate::options::{Access, Create};

/// A file that this handle has locked and mapped.
#[derive(Debug)]
pub(crate) struct Locked {
    pub(crate) storage: Mapped,
    /// Whether this handle has made it.
    pub(crate) is_new: bool,
}

/// Opens the file at `path` and locks it: for this handle alone if it may write, otherwise
/// against writers.
///
/// A new file is empty. An existing one has not been read.
pub(crate) fn open_and_lock(path: &Path, access: Access, create: Create) -> Result<Locked> {
    let (file, is_new) = open(path, access, create)?;
    refuse_network(&file, path)?;
    let locked = match access {
        Access::ReadWrite => file.try_lock(),
        Access::ReadOnly => file.try_lock_shared(),
    };
    match locked {
        Ok(()) => {
            let is_writable = access == Access::ReadWrite;
            let storage = Mapped::new(file, path.to_path_buf(), is_writable)
                .map_err(|source| io_error("map", path, source))?;
            Ok(Locked { storage, is_new })
        }
        Err(TryLockError::WouldBlock) => {
            Err(Error::Locked { path: path.to_path_buf(), pid: writer_pid(&file) })
        }
        Err(TryLockError::Error(source)) => Err(io_error("lock", path, source)),
    }
}

/// A file that this handle reads while others may write to it.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) storage: Mapped,
    pub(crate) observer: Observer,
}

/// What an observer can ask of the system about its file.
#[derive(Debug)]
pub(crate) struct Observer {
    file: File,
}

/// Keeps writers away until it is dropped.
#[derive(Debug)]
pub(crate) struct WritersOut<'a>(&'a File);

impl Drop for WritersOut<'_> {
    fn drop(&mut self) {
        // The lock goes with the file anyway.
        let _ = self.0.unlock();
    }
}

impl Observer {
    /// Keeps writers away, or returns `None` while there is one.
    pub(crate) fn keep_writers_out(&self) -> Option<WritersOut<'_>> {
        self.file.try_lock_shared().is_ok().then_some(WritersOut(&self.file))
    }

    /// Returns the process that has the file open for writing, where the file tells.
    pub(crate) fn writer_pid(&self) -> Option<u32> {
        writer_pid(&self.file)
    }
}

/// Opens the file at `path` for reading and takes no lock.
pub(crate) fn open_to_observe(path: &Path) -> Result<Observed> {
    let (file, _) = open(path, Access::ReadOnly, Create::Never)?;
    refuse_network(&file, path)?;
    let observer =
        Observer { file: file.try_clone().map_err(|source| io_error("open", path, source))? };
    let storage = Mapped::new(file, path.to_path_buf(), false)
        .map_err(|source| io_error("map", path, source))?;
    Ok(Observed { storage, observer })
}

/// Opens or creates the regular file at `path` and returns whether it is new.
pub(super) fn open(path: &Path, access: Access, create: Create) -> Result<(File, bool)> {
    let mut options = OpenOptions::new();
    options.read(true).write(access == Access::ReadWrite);
    let existing = || open_regular(path, &options).map(|file| (file, false));
    let new = || open_regular(path, options.clone().create_new(true)).map(|file| (file, true));
    match create {
        Create::New => new(),
        Create::Never => existing(),
        Create::IfMissing => match existing() {
            Err(error) if is_missing(&error) => match new() {
                // Somebody was faster.
                Err(Error::Exists { .. }) => existing(),
                created => created,
            },
            opened => opened,
        },
    }
}

fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

/// Refuses file systems whose mappings are not coherent between machines.
pub(super) fn refuse_network(file: &File, path: &Path) -> Result<()> {
    const NETWORK: [(i64, &str); 6] = [
        (0x6969, "NFS"),
        (0xff53_4d42, "CIFS"),
        (0xfe53_4d42, "SMB"),
        (0x517b, "SMB"),
        (0x5346_414f, "AFS"),
        (0x00c3_6400, "Ceph"),
    ];
    let Ok(statistics) = rustix::fs::fstatfs(file) else { return Ok(()) };
    let kind = statistics.f_type & 0xffff_ffff;
    match NETWORK.iter().find(|(magic, _)| *magic == kind) {
        Some((_, name)) => Err(Error::Unsupported {
            path: path.to_path_buf(),
            reason: format!(
                "{name} does not keep mappings coherent; copy the file to a local disk"
            ),
        }),
        None => Ok(()),
    }
}

/// Removes a file that this handle made and could not make a store.
pub(crate) fn remove_new(path: &Path) {
    // The error that led here is the one to tell.
    let _ = std::fs::remove_file(path);
}

/// Returns the process that the live header names, if it lives: while somebody holds the lock,
/// that is the writer, unless readers hold it after a writer that was killed.
pub(super) fn writer_pid(file: &File) -> Option<u32> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, PID_OFFSET).ok()?;
    let pid = u32::try_from(u64::from_le_bytes(bytes)).ok()?;
    let process = rustix::process::Pid::from_raw(i32::try_from(pid).ok()?)?;
    let is_alive =
        !matches!(rustix::process::test_kill_process(process), Err(rustix::io::Errno::SRCH));
    is_alive.then_some(pid)
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

/// Returns an error that names the action and the file, or says that there is no address space left.
pub(crate) fn io_error(action: &'static str, path: &Path, source: io::Error) -> Error {
    match address_space_refused(&source) {
        Some(bytes) => Error::Full { what: "address space of this process", bytes },
        None => Error::Io { action, path: path.to_path_buf(), source },
    }
}
