//! `errno`: what C programs ask after a failure.

use std::ffi::c_int;

use splitpoint::{Error, ErrorKind, FileKind};

/// Stores `code` in `errno`. Call it last, on failure alone.
pub fn set_errno(code: c_int) {
    // SAFETY: the function has no conditions; the pointer is this thread's own.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the pointer leads to the `errno` of this thread for as long as it lives.
    unsafe { *place = code };
}

/// Returns `errno`.
pub fn errno() -> c_int {
    // SAFETY: the function has no conditions; the pointer is this thread's own.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the pointer leads to the `errno` of this thread for as long as it lives.
    unsafe { *place }
}

/// Returns the code of `errno` that tells most of an error.
pub fn errno_of(error: &Error) -> c_int {
    if let Some(code) = error.io_error().and_then(std::io::Error::raw_os_error) {
        return code;
    }
    if matches!(error, Error::Full { what: Error::MEMORY, .. }) {
        return libc::ENOMEM;
    }
    if matches!(error, Error::NotAStore { found: FileKind::Directory, .. }) {
        return libc::EISDIR;
    }
    match error.kind() {
        ErrorKind::NotFound => libc::ENOENT,
        ErrorKind::Exists => libc::EEXIST,
        ErrorKind::Locked | ErrorKind::Conflict => libc::EAGAIN,
        ErrorKind::SnapshotTooOld => libc::ESTALE,
        ErrorKind::ReadOnly => libc::EPERM,
        ErrorKind::Full => libc::ENOSPC,
        ErrorKind::TooLarge => libc::EFBIG,
        ErrorKind::Unsupported => libc::EOPNOTSUPP,
        ErrorKind::Io | ErrorKind::Poisoned => libc::EIO,
        // Not a store, another version, damaged, another hash function, a wrong option.
        _ => libc::EINVAL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_the_system_counts_first() {
        let error = splitpoint::Options::new().read_only().open("nofile").unwrap_err();
        assert_eq!(errno_of(&error), libc::ENOENT);
        assert_eq!(errno_of(&Error::ReadOnly), libc::EPERM);
        let error = splitpoint::Options::new().open("/").unwrap_err();
        assert_eq!(errno_of(&error), libc::EISDIR);
        let full = |what| Error::Full { what, bytes: 8 };
        assert_eq!(errno_of(&full(Error::MEMORY)), libc::ENOMEM);
        assert_eq!(errno_of(&full("segment table")), libc::ENOSPC);
    }

    #[test]
    fn errno_is_what_was_set() {
        set_errno(libc::EAGAIN);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN));
    }
}
