//! Descriptors as a program sees them: opened with its flags, and locked.

use std::ffi::{CStr, c_int};
use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, RawFd};

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

/// Locks a description without waiting, and returns whether it could: exclusively or shared.
pub(crate) fn try_lock(file: &File, is_exclusive: bool) -> io::Result<bool> {
    let locked = if is_exclusive { file.try_lock() } else { file.try_lock_shared() };
    match locked {
        Ok(()) => Ok(true),
        Err(std::fs::TryLockError::WouldBlock) => Ok(false),
        Err(std::fs::TryLockError::Error(error)) => Err(error),
    }
}

/// Unlocks the description of a descriptor that is the program's.
pub(crate) fn unlock(fd: RawFd) {
    // SAFETY: the call takes no pointer. It fails only for a descriptor that is closed.
    unsafe { libc::flock(fd, libc::LOCK_UN) };
}
