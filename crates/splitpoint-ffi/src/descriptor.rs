//! Descriptors that programs see, use, and close under us.
//!
//! # Invariants
//!
//! - A number that leads elsewhere than when it was opened is the program's: it is neither written to,
//!   nor closed, nor given another file.
//! - Closing a descriptor takes none of the locks of the handles on its file.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, IntoRawFd as _, RawFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use splitpoint::{SharedFile, Status};

/// Which file a descriptor led to when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// Returns the identity of the file that has such metadata.
    pub fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }

    /// Returns the identity of an open file, without asking for its times, which makes
    /// the next write dearer.
    ///
    /// # Errors
    ///
    /// Of the system.
    pub fn of_file(file: &File) -> io::Result<Self> {
        Status::of(file).map(Self::of_status)
    }

    /// Returns the identity of the file at which somebody has looked.
    pub(crate) fn of_status(status: Status) -> Self {
        Self { device: status.device, inode: status.inode }
    }

    /// Returns whether the file's descriptor still leads there: a program may have closed it.
    pub fn is_of(self, file: &File) -> bool {
        Self::of_file(file).is_ok_and(|found| found == self)
    }

    /// Returns whether `path` is a name of the file, perhaps by symbolic links.
    pub fn has_name(self, path: &Path) -> bool {
        Status::at(path).is_ok_and(|status| Self::of_status(status) == self)
    }

    /// Returns the file to use its descriptor.
    ///
    /// # Errors
    ///
    /// `EBADF` if it leads elsewhere.
    pub fn checked(self, file: &File) -> io::Result<&File> {
        if self.is_of(file) { Ok(file) } else { Err(closed()) }
    }
}

fn closed() -> io::Error {
    io::Error::from_raw_os_error(libc::EBADF)
}

/// Sets or clears close-on-exec.
pub fn set_close_on_exec(number: RawFd, is_set: bool) {
    let flags = if is_set { libc::FD_CLOEXEC } else { 0 };
    // SAFETY: the call takes no pointer. It fails only for a descriptor that is closed.
    unsafe { libc::fcntl(number, libc::F_SETFD, flags) };
}

/// Returns whether a descriptor is closed when a program is executed.
pub fn is_close_on_exec(number: RawFd) -> bool {
    // SAFETY: the call takes no pointer.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    flags != -1 && flags & libc::FD_CLOEXEC != 0
}

/// Takes the lock of a claim anew, which ends when the process closes another descriptor of the file.
///
/// # Errors
///
/// Of the system, if there is no descriptor left.
pub fn renew(claim: &SharedFile) -> io::Result<()> {
    SharedFile::close_other(claim.file().try_clone()?);
    Ok(())
}

/// Closes a file, and reports whether close(2) failed; `EBADF` if its descriptor leads elsewhere.
///
/// # Errors
///
/// Of the system. The file is closed, unless the look at whose the descriptor is fails.
pub fn close_descriptor(file: File, identity: Identity) -> io::Result<()> {
    let status = Status::of(&file).ok();
    let number = file.into_raw_fd();
    let Some(status) = status.filter(|&status| Identity::of_status(status) == identity) else {
        return Err(closed());
    };
    SharedFile::close_by(&status, || {
        // SAFETY: the descriptor was this value's alone.
        let is_closed = unsafe { libc::close(number) } == 0;
        if is_closed { Ok(()) } else { Err(io::Error::last_os_error()) }
    })
}

/// Gives the number of `old` to another descriptor of `new`, and keeps its close-on-exec: a program that
/// has the number has the new file. Nothing of the new file is closed, so its locks stay.
///
/// A number that the program has closed stays what it is now; the result has its own then.
///
/// # Errors
///
/// Of the system. The old file is closed then.
pub fn replace_descriptor(old: File, identity: Identity, new: &File) -> io::Result<File> {
    let status = Status::of(&old).ok().filter(|&status| Identity::of_status(status) == identity);
    let Some(status) = status else {
        let _ = old.into_raw_fd();
        return new.try_clone();
    };
    let flags = if is_close_on_exec(old.as_raw_fd()) { libc::O_CLOEXEC } else { 0 };
    let number = old.as_raw_fd();
    let replaced = SharedFile::close_by(&status, || {
        // SAFETY: both are open.
        let is_replaced = unsafe { libc::dup3(new.as_raw_fd(), number, flags) } != -1;
        if is_replaced { Ok(()) } else { Err(io::Error::last_os_error()) }
    });
    if let Err(error) = replaced {
        SharedFile::close_other(old);
        return Err(error);
    }
    let _ = old.into_raw_fd();
    // SAFETY: the descriptor was the old file's, which has been taken from it.
    Ok(unsafe { File::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files<const COUNT: usize>() -> [File; COUNT] {
        [(); COUNT].map(|()| tempfile::tempfile().unwrap())
    }

    fn identity(file: &File) -> Identity {
        Identity::of_file(file).unwrap()
    }

    /// Gives the number of a file to another, as a program does that closes and opens.
    fn take_number(number: RawFd, stranger: &File) {
        // SAFETY: both are open.
        assert_eq!(unsafe { libc::dup2(stranger.as_raw_fd(), number) }, number);
    }

    #[test]
    fn a_replaced_descriptor_keeps_its_number_and_leads_to_the_new_file() {
        let [old, new] = files();
        let number = old.as_raw_fd();
        let [was, is] = [identity(&old), identity(&new)];
        set_close_on_exec(number, false);
        let replaced = replace_descriptor(old, was, &new).unwrap();
        assert_eq!(replaced.as_raw_fd(), number);
        assert!(is.is_of(&replaced) && !is_close_on_exec(number));
        assert!(close_descriptor(replaced, is).is_ok());
    }

    #[test]
    fn a_number_that_leads_elsewhere_is_neither_replaced_nor_closed() {
        let [old, new, stranger] = files();
        let (number, was, is) = (old.as_raw_fd(), identity(&old), identity(&new));
        take_number(number, &stranger);
        let replaced = replace_descriptor(old, was, &new).unwrap();
        assert!(is.is_of(&replaced) && replaced.as_raw_fd() != number);

        // SAFETY: the number is open, and belongs to nobody.
        let theirs = unsafe { File::from_raw_fd(number) };
        assert!(identity(&stranger).is_of(&theirs));
        assert_eq!(was.checked(&theirs).unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert!(close_descriptor(theirs, was).is_err());
        assert!(is_close_on_exec(stranger.as_raw_fd()), "it is open");
        // SAFETY: the call takes no pointer.
        assert_ne!(unsafe { libc::fcntl(number, libc::F_GETFD) }, -1, "it was not closed");
    }
}
