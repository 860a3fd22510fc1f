//! `SharedFile`: a file that the program has opened, and shares with handles.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::failure::io_error;
use super::holders::locked;
use super::open::refuse_network;
use super::own_file::OwnFile;
use super::regular::refuse_special;
use super::writer_byte::{Claim, Exclusion, renew};
use crate::error::Result;

/// A file that the program has opened itself, and of which this process has claimed the place of a
/// writer, or one of a reader.
///
/// A store in it ([`Options::open_shared`](crate::Options::open_shared)) leaves `flock` to the program:
/// it may lock its descriptor, and also the whole file with `fcntl`, and meets no lock of the store.
/// Other handles are kept out by a lock of one byte far behind the end of the file, which handles that
/// are opened by a path take as well.
///
/// That lock of the process ends when the process closes any other descriptor of the file, or unlocks
/// the whole file with `fcntl`: a program that does either must keep other writers out by locks of its
/// own. Within the process such files exclude each other by inode, whatever happens to the lock.
///
/// A clone is the same claim; dropping the last one gives the place up and closes the file.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("a.spt");
/// use splitpoint::{ErrorKind, Options, SharedFile};
///
/// let open = || std::fs::File::options().read(true).write(true).create(true).open(&path);
/// let file = SharedFile::for_writer(open()?, &path)?;
/// let db = Options::new().open_shared(&file)?;
/// file.file().lock()?; // A lock of the program's own, which does not wait for the store.
/// db.put("key", "value")?;
///
/// let other = SharedFile::for_writer(open()?, &path).unwrap_err();
/// assert_eq!(other.kind(), ErrorKind::Locked);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SharedFile(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    // Closed before the claim is dropped, which takes the lock anew for other handles.
    file: OwnFile,
    path: PathBuf,
    is_writer: bool,
    claim: Claim,
}

impl SharedFile {
    /// Claims the place of the one writer of `file`, which is open for reading and writing. Messages
    /// call it `path`.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Locked`](crate::ErrorKind::Locked) if another handle has the store open.
    /// - [`ErrorKind::NotAStore`](crate::ErrorKind::NotAStore) if the file is not regular.
    /// - [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if it is on a network file system.
    /// - [`ErrorKind::Io`](crate::ErrorKind::Io) if a system call fails.
    ///
    /// After an error the file is closed.
    pub fn for_writer(file: File, path: impl AsRef<Path>) -> Result<Self> {
        Self::claim(file, path.as_ref(), true)
    }

    /// Claims a place of a reader of `file`, beside other readers.
    ///
    /// # Errors
    ///
    /// As [`for_writer`](Self::for_writer), with `Locked` if there is a writer.
    pub fn for_reader(file: File, path: impl AsRef<Path>) -> Result<Self> {
        Self::claim(file, path.as_ref(), false)
    }

    fn claim(file: File, path: &Path, is_writer: bool) -> Result<Self> {
        let claimed = Self::try_claim(&file, path, is_writer);
        match claimed {
            Ok(claim) => {
                let file = OwnFile::new(file).map_err(|source| io_error("open", path, source))?;
                let path = path.to_path_buf();
                Ok(Self(Arc::new(Inner { file, path, is_writer, claim })))
            }
            Err(error) => {
                Self::close_other(file);
                Err(error)
            }
        }
    }

    fn try_claim(file: &File, path: &Path, is_writer: bool) -> Result<Claim> {
        let metadata =
            file.metadata().map_err(|source| io_error("read the size of", path, source))?;
        refuse_special(metadata.file_type(), path)?;
        refuse_network(file, path)?;
        let exclusion = if is_writer { Exclusion::Everybody } else { Exclusion::Writers };
        let claim = Claim::take(file, exclusion);
        let claim = claim.map_err(|source| io_error("lock", path, source))?;
        claim.ok_or_else(|| locked(path, file))
    }

    /// Closes another descriptor of a file that this process may have open, and takes the lock anew that
    /// ends with it.
    pub fn close_other(file: File) {
        let metadata = file.metadata();
        drop(file);
        metadata.iter().for_each(renew);
    }

    /// Returns the open file.
    pub fn file(&self) -> &File {
        &self.0.file
    }

    /// Returns the path that messages use.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Returns whether this is the place of the writer.
    pub fn is_writer(&self) -> bool {
        self.0.is_writer
    }

    /// Gives the place up and returns the file, or `None` while a clone or a handle has it.
    pub fn into_file(self) -> Option<File> {
        Arc::into_inner(self.0).and_then(|inner| inner.file.into_file())
    }

    /// Returns another descriptor of the same description.
    pub(super) fn descriptor(&self) -> io::Result<File> {
        self.0.file.try_clone()
    }

    /// Takes the lock anew after a descriptor of the file was closed.
    pub(super) fn renew(&self) {
        self.0.claim.renew();
    }
}
