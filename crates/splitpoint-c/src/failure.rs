//! Why a call failed: its code, its `errno` and its message.

use std::cell::RefCell;
use std::ffi::{CString, c_int};
use std::path::Path;

use splitpoint::{Error, ErrorKind, Holder, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use splitpoint_ffi::errno_of;

use crate::code::{
    SP_ERR_ARGUMENT, SP_ERR_BUSY, SP_ERR_CORRUPT, SP_ERR_PANIC, SP_ERR_UNSUPPORTED, code_of,
};

/// The errors of C's `errno` that the library sets itself.
const EINVAL: c_int = 22;
const EBUSY: c_int = 16;
const EIO: c_int = 5;
const EOPNOTSUPP: c_int = 95;

/// A failed call.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: c_int,
    pub(crate) errno: c_int,
    message: String,
}

impl Failure {
    /// An argument that cannot be; `message` names it and says what is expected.
    pub(crate) fn argument(message: impl Into<String>) -> Self {
        Self { code: SP_ERR_ARGUMENT, errno: EINVAL, message: message.into() }
    }

    /// A key or a value of more bytes than a store keeps.
    pub(crate) fn too_large(what: &'static str, size: usize) -> Self {
        let (bytes, bytes_max) = (size as u64, VALUE_BYTES_MAX.min(KEY_BYTES_MAX));
        Error::TooLarge { what, bytes, bytes_max }.into()
    }

    /// Something that the file does not have.
    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self { code: SP_ERR_UNSUPPORTED, errno: EOPNOTSUPP, message: message.into() }
    }

    /// Something that has to be closed first.
    pub(crate) fn busy(message: impl Into<String>) -> Self {
        Self { code: SP_ERR_BUSY, errno: EBUSY, message: message.into() }
    }

    /// The file `path` could not be opened.
    pub(crate) fn opening(path: &Path, error: Error) -> Self {
        let is_named = error.path().is_some();
        let failure = Self::from(error);
        if is_named { failure } else { failure.naming(path) }
    }

    /// The open file `path` failed. Errors of damage do not name it.
    pub(crate) fn using(self, path: &Path) -> Self {
        if self.code == SP_ERR_CORRUPT { self.naming(path) } else { self }
    }

    fn naming(self, path: &Path) -> Self {
        Self { message: format!("`{}`: {}", path.display(), self.message), ..self }
    }

    /// A panic that was caught.
    pub(crate) fn panic() -> Self {
        let message = "a defect of the library; the handle refuses changes from now on";
        Self { code: SP_ERR_PANIC, errno: EIO, message: message.to_owned() }
    }

    /// Returns the message for C.
    pub(crate) fn text(&self) -> CString {
        // A path may not have NUL bytes, so no message has any.
        let bytes = self.message.bytes().filter(|&byte| byte != 0).collect::<Vec<u8>>();
        CString::new(bytes).unwrap_or_default()
    }
}

/// Returns who has a file locked, and what a program in C can do.
fn text_of_lock(error: &Error) -> String {
    let Error::Locked { path, holders } = error else { return error.to_string() };
    format!(
        "`{}` is locked by {}; sp_options_lock_timeout() waits, and handles that all have SP_SHARED \
         write by turns",
        path.display(),
        Holder::list(holders)
    )
}

/// Returns why a scan, a snapshot or a transaction was given up, and what a program in C can do.
fn text_of_age(error: &Error) -> String {
    let Error::SnapshotTooOld { bytes_max } = error else { return error.to_string() };
    format!(
        "it is too old: it held back more than {bytes_max} bytes of space; begin it again, or allow more with \
         sp_options_max_snapshot_pin()"
    )
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let errno = errno_of(&error);
        let message = match error.kind() {
            ErrorKind::Corrupt => format!("{error}; `splitpoint check` lists all damage"),
            ErrorKind::Locked => text_of_lock(&error),
            ErrorKind::SnapshotTooOld => text_of_age(&error),
            _ => error.to_string(),
        };
        Self { code: code_of(error.kind()), errno, message }
    }
}

thread_local! {
    /// The message of the last call of this thread that failed.
    static LAST: RefCell<CString> = RefCell::default();
}

/// Keeps `text` as the message of this thread.
pub(crate) fn remember(text: CString) {
    // A thread that is ending asks for no message.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
}

/// Returns the message of this thread; it is valid until the thread's next failure.
pub(crate) fn last() -> *const std::ffi::c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
