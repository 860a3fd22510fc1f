//! The files other than stores that commands read and write. Some may be pipes, others must be
//! regular.

use std::fs::{File, FileType, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use splitpoint::Error;

use crate::failure::{Exit, Failure, Result};

/// Opens an input to read once from start to end: a file, a pipe, a terminal.
pub(crate) fn open_stream(path: &Path) -> Result<File> {
    refuse_no_stream(path)?;
    File::open(path).map_err(|error| Failure::reading(format_args!("`{}`", path.display()), &error))
}

/// Reads all of a file or a pipe into memory.
pub(crate) fn read_whole(path: &Path) -> Result<Vec<u8>> {
    // A device such as /dev/zero has no end.
    refuse(path, |kind| kind.is_char_device() || kind.is_block_device())?;
    let mut bytes = Vec::new();
    open_stream(path)?
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::reading(format_args!("`{}`", path.display()), &error))?;
    Ok(bytes)
}

/// Writes a regular file, and replaces its content if it exists.
pub(crate) fn write_regular(path: &Path, bytes: &[u8]) -> Result<()> {
    let shown = path.display();
    let failed = |error| Failure::io(format!("write `{shown}`"), &error);
    let options = OpenOptions::new().write(true).create(true).truncate(true).clone();
    let opened = splitpoint::open_regular(path, &options);
    let mut file = opened.map_err(|error| match error {
        Error::Io { source, .. } => failed(source),
        Error::NotAStore { found, .. } => {
            Failure::new(Exit::Io, format!("cannot write `{shown}`: it is {found}"))
        }
        error => Failure::using(path, &error),
    })?;
    file.write_all(bytes).map_err(failed)
}

/// Refuses a socket, which [`open_stream`] cannot read and for which the system gives no clear
/// error.
pub(crate) fn refuse_no_stream(path: &Path) -> Result<()> {
    refuse(path, |kind| kind.is_socket())
}

/// Returns whether two names lead to one file.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    let number = |path| std::fs::metadata(path).map(|found| (found.dev(), found.ino()));
    matches!((number(one), number(other)), (Ok(one), Ok(other)) if one == other)
}

fn refuse(path: &Path, is_refused: impl Fn(FileType) -> bool) -> Result<()> {
    // If the metadata cannot be read, opening the file reports why.
    let Ok(metadata) = std::fs::metadata(path) else { return Ok(()) };
    let kind = metadata.file_type();
    if !is_refused(kind) {
        return Ok(());
    }
    let found = if kind.is_socket() { "a socket" } else { "a device" };
    let message = format!("cannot read `{}`: it is {found}", path.display());
    Err(Failure::new(Exit::Io, message).hint("give the path of a file or a pipe"))
}

/// What a file takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskUse {
    /// Its size in bytes.
    pub(crate) file_bytes: u64,
    /// Bytes of its blocks on the disk: holes have none.
    pub(crate) disk_bytes: u64,
}

impl DiskUse {
    /// Returns what the file at `path` takes.
    pub(crate) fn of(path: &Path) -> Result<Self> {
        let failed = |error| Failure::reading(format_args!("`{}`", path.display()), &error);
        let metadata = std::fs::metadata(path).map_err(failed)?;
        // POSIX counts blocks of 512 bytes, whatever the file system has.
        Ok(Self { file_bytes: metadata.len(), disk_bytes: metadata.blocks() * 512 })
    }
}
