//! Descriptors as a program sees them: opened with its flags, locked, and perhaps closed under us.

use std::ffi::{CStr, c_int};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, RawFd};
use std::os::unix::fs::MetadataExt;

/// Opens a file with flags and mode of open(2), as they are: without `O_CLOEXEC` a program that is
/// executed has it too.
pub(crate) fn open(name: &CStr, flags: c_int, mode: libc::mode_t) -> io::Result<File> {
    loop {
        // SAFETY: the name ends in NUL.
        let fd = unsafe { libc::open(name.as_ptr(), flags, libc::c_uint::from(mode)) };
        match fd {
            -1 => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            // SAFETY: the descriptor is new and nobody else's.
            fd => return Ok(unsafe { File::from_raw_fd(fd) }),
        }
    }
}

/// Returns whether a descriptor allows to write, or `None` if it is not open.
pub(crate) fn is_writable(fd: RawFd) -> Option<bool> {
    // SAFETY: the call takes no pointer.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    (flags != -1).then_some(flags & libc::O_ACCMODE != libc::O_RDONLY)
}

/// Sets or clears close-on-exec.
pub(crate) fn set_close_on_exec(fd: RawFd, is_set: bool) {
    let flags = if is_set { libc::FD_CLOEXEC } else { 0 };
    // SAFETY: the call takes no pointer. It fails only for a descriptor that is closed.
    unsafe { libc::fcntl(fd, libc::F_SETFD, flags) };
}

/// Returns whether a descriptor is closed when a program is executed.
pub(crate) fn is_close_on_exec(fd: RawFd) -> bool {
    // SAFETY: the call takes no pointer.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    flags != -1 && flags & libc::FD_CLOEXEC != 0
}

/// Locks a description without waiting, and returns whether it could: exclusively or shared.
pub(crate) fn try_lock(file: &File, is_exclusive: bool) -> io::Result<bool> {
    let locked = if is_exclusive { file.try_lock() } else { file.try_lock_shared() };
    match locked {
        Ok(()) => Ok(true),
        Err(std::fs::TryLockError::WouldBlock) => Ok(false),
        Err(std::fs::TryLockError::Error(error)) => Err(error),
    }
}

/// What file a descriptor led to when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity(u64, u64);

impl Identity {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self(metadata.dev(), metadata.ino())
    }

    /// Returns whether the file's descriptor still leads there: a program may have closed it.
    pub(crate) fn is_of(self, file: &File) -> bool {
        file.metadata().is_ok_and(|metadata| Self::of(&metadata) == self)
    }
}

/// Closes a file whose descriptor still leads to `identity`, and reports whether close(2) failed.
///
/// A descriptor that the program has closed is not closed again: its number may be another file's.
pub(crate) fn close(file: File, identity: Identity) -> io::Result<()> {
    if !identity.is_of(&file) {
        let _ = file.into_raw_fd();
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    let fd = file.into_raw_fd();
    // SAFETY: the descriptor was this value's alone.
    match unsafe { libc::close(fd) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives the descriptor of `old` to the file of `new`, and keeps its close-on-exec: a program that has
/// the number has the new file.
#[expect(clippy::needless_pass_by_value, reason = "the other number of the new file is closed")]
pub(crate) fn replace(old: File, new: File) -> io::Result<File> {
    let flags = if is_close_on_exec(old.as_raw_fd()) { libc::O_CLOEXEC } else { 0 };
    let number = old.into_raw_fd();
    // SAFETY: both are open, and the first is this function's own since it was taken from its value.
    if unsafe { libc::dup3(new.as_raw_fd(), number, flags) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    Ok(unsafe { File::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_descriptor_keeps_its_number_and_leads_to_the_new_file() {
        let [old, new] = [tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap()];
        let number = old.as_raw_fd();
        let identity = Identity::of(&new.metadata().unwrap());
        set_close_on_exec(number, false);
        let replaced = replace(old, new).unwrap();
        assert_eq!(replaced.as_raw_fd(), number);
        assert!(identity.is_of(&replaced) && !is_close_on_exec(number));
        assert!(close(replaced, identity).is_ok());
    }
}
