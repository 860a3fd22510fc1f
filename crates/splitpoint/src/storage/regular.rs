//! Opens files that must be regular, without ever blocking on a pipe or a device.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FileType, OFlags};

use super::failure::io_error;
use super::status::Status;
use crate::error::{Error, Result};
use crate::file_kind::FileKind;

/// The number of symbolic links that the system follows for one path.
const LINKS_MAX: u32 = 40;

/// Opens or creates the regular file at `path` with `options`, for access methods of other crates.
///
/// It refuses anything else at once, without opening it: opening a named pipe would wait for a
/// process at its other end, and opening a device may already have an effect.
///
/// # Errors
///
/// - [`ErrorKind::NotAStore`](crate::ErrorKind::NotAStore) if the file is not regular, or a
///   symbolic link to a missing file.
/// - [`ErrorKind::Exists`](crate::ErrorKind::Exists) if `options` require a new file and it exists.
/// - [`ErrorKind::Io`](crate::ErrorKind::Io) if the operating system refuses.
///
/// # Examples
///
/// ```
/// use std::fs::OpenOptions;
/// use splitpoint::{Error, FileKind};
///
/// match splitpoint::open_regular("/dev/zero", OpenOptions::new().read(true)) {
///     Err(Error::NotAStore { found, .. }) => assert_eq!(found, FileKind::CharacterDevice),
///     other => panic!("{other:?}"),
/// }
/// ```
pub fn open_regular(path: impl AsRef<Path>, options: &OpenOptions) -> Result<File> {
    open_regular_with(path.as_ref(), options, OFlags::empty())
}

/// As [`open_regular`], with additional `open` flags.
pub(super) fn open_regular_with(path: &Path, options: &OpenOptions, flags: OFlags) -> Result<File> {
    open_and_look(path, options, flags).map(|(file, _)| file)
}

/// As [`open_regular_with`], and returns the metadata of the file too.
pub(super) fn open_and_look(
    path: &Path,
    options: &OpenOptions,
    flags: OFlags,
) -> Result<(File, Status)> {
    // Check before the open, which would wake a process at the other end of a pipe.
    match Status::at(path) {
        Ok(status) => refuse_special(status.kind, path)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => refuse_dangling_link(path)?,
        // The open that follows returns a better error.
        Err(_) => {}
    }
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = options.clone().custom_flags(flags.bits().cast_signed()).open(path);
    let file = opened.map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => Error::Exists { path: path.to_path_buf() },
        _ => io_error("open", path, source),
    })?;
    // Check again: another file may have taken the name in between.
    let status = Status::of(&file).map_err(|source| io_error("read the size of", path, source))?;
    refuse_special(status.kind, path)?;
    Ok((file, status))
}

/// Refuses a file that is not regular.
pub(super) fn refuse_special(file_type: FileType, path: &Path) -> Result<()> {
    if file_type == FileType::RegularFile {
        return Ok(());
    }
    Err(Error::NotAStore { path: path.to_path_buf(), found: kind_of(file_type) })
}

/// Refuses a symbolic link; the caller knows that no file is behind it.
pub(super) fn refuse_dangling_link(path: &Path) -> Result<()> {
    let mut target = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        let Ok(next) = fs::read_link(&target) else { break };
        // A relative link begins where the link is.
        target = target.parent().unwrap_or(Path::new("")).join(next);
    }
    if target == path {
        return Ok(());
    }
    let found = FileKind::DanglingLink { target };
    Err(Error::NotAStore { path: path.to_path_buf(), found })
}

fn kind_of(file_type: FileType) -> FileKind {
    match file_type {
        FileType::Directory => FileKind::Directory,
        FileType::Fifo => FileKind::NamedPipe,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::CharacterDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        _ => FileKind::Special,
    }
}
