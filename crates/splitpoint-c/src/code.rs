//! The codes that the functions return, and what they mean.

use std::ffi::{CStr, c_char, c_int};

use splitpoint::ErrorKind;

/// Done.
pub const SP_OK: c_int = 0;
/// The key is absent. An answer, not a failure.
pub const SP_NOT_FOUND: c_int = 1;
/// The key is there, and SP_NEW leaves it as it is. An answer, not a failure.
pub const SP_KEPT: c_int = 2;
/// A scan has returned every key. An answer, not a failure.
pub const SP_END: c_int = 3;

/// The operating system refused something; errno says what.
pub const SP_ERR_IO: c_int = -1;
/// The file or its directory is missing.
pub const SP_ERR_NO_FILE: c_int = -2;
/// The file is no store and no old database.
pub const SP_ERR_NOT_A_STORE: c_int = -3;
/// The file is of a version that this library does not read.
pub const SP_ERR_VERSION: c_int = -4;
/// The file is damaged. `splitpoint check FILE` lists the damage, `splitpoint repair` saves the rest.
pub const SP_ERR_CORRUPT: c_int = -5;
/// Another handle has the file open for writing.
pub const SP_ERR_LOCKED: c_int = -6;
/// A key, a value or an option is over its limit.
pub const SP_ERR_TOO_LARGE: c_int = -7;
/// The store was created with another hash function.
pub const SP_ERR_HASH: c_int = -8;
/// The handle is for reading only.
pub const SP_ERR_READ_ONLY: c_int = -9;
/// The file exists, but a new one was to be created.
pub const SP_ERR_FILE_EXISTS: c_int = -10;
/// An earlier failure, or a fork, made the handle unusable. Close it and open the store again.
pub const SP_ERR_UNUSABLE: c_int = -11;
/// The store, the memory or the address space of the process is full.
pub const SP_ERR_FULL: c_int = -12;
/// This library cannot do that with this file.
pub const SP_ERR_UNSUPPORTED: c_int = -13;
/// An argument is null, out of its range, or does not fit the others.
pub const SP_ERR_ARGUMENT: c_int = -14;
/// Something is still open that has to be closed first.
pub const SP_ERR_BUSY: c_int = -15;
/// A defect of this library. The handle refuses changes from now on; the file is as last synced.
pub const SP_ERR_PANIC: c_int = -16;
/// A scan held back more space than it may, and was given up. Begin it again.
pub const SP_ERR_TOO_OLD: c_int = -17;
/// Another thread has changed what was read, and nothing was done. Try again.
pub const SP_ERR_CONFLICT: c_int = -18;

/// Every code with its text, in one line.
const TEXTS: [(c_int, &CStr); 22] = [
    (SP_OK, c"done"),
    (SP_NOT_FOUND, c"the key is absent"),
    (SP_KEPT, c"the key is there, and keeps its value"),
    (SP_END, c"the scan has returned every key"),
    (SP_ERR_IO, c"the operating system refused an operation"),
    (SP_ERR_NO_FILE, c"the file is missing"),
    (SP_ERR_NOT_A_STORE, c"the file is not a store"),
    (SP_ERR_VERSION, c"the file is of another version"),
    (SP_ERR_CORRUPT, c"the file is damaged"),
    (SP_ERR_LOCKED, c"another handle has the file open for writing"),
    (SP_ERR_TOO_LARGE, c"a key, a value or an option is over its limit"),
    (SP_ERR_HASH, c"the store was created with another hash function"),
    (SP_ERR_READ_ONLY, c"the handle is for reading only"),
    (SP_ERR_FILE_EXISTS, c"the file exists"),
    (SP_ERR_UNUSABLE, c"the handle is unusable: close it and open the store again"),
    (SP_ERR_FULL, c"the store, the memory or the address space is full"),
    (SP_ERR_UNSUPPORTED, c"that is not supported"),
    (SP_ERR_ARGUMENT, c"an argument is wrong"),
    (SP_ERR_BUSY, c"something is still open that has to be closed first"),
    (SP_ERR_PANIC, c"a defect of the library"),
    (
        SP_ERR_TOO_OLD,
        c"a scan, a snapshot or a transaction held back too much space: begin it again",
    ),
    (SP_ERR_CONFLICT, c"another thread has changed what was read: try again"),
];

/// Returns the code of a kind of error.
pub(crate) fn code_of(kind: ErrorKind) -> c_int {
    match kind {
        ErrorKind::NotFound => SP_ERR_NO_FILE,
        ErrorKind::NotAStore => SP_ERR_NOT_A_STORE,
        ErrorKind::Version => SP_ERR_VERSION,
        ErrorKind::Corrupt => SP_ERR_CORRUPT,
        ErrorKind::Locked => SP_ERR_LOCKED,
        ErrorKind::TooLarge => SP_ERR_TOO_LARGE,
        ErrorKind::HashMismatch => SP_ERR_HASH,
        ErrorKind::ReadOnly => SP_ERR_READ_ONLY,
        ErrorKind::Exists => SP_ERR_FILE_EXISTS,
        ErrorKind::Poisoned => SP_ERR_UNUSABLE,
        ErrorKind::Full => SP_ERR_FULL,
        ErrorKind::Unsupported => SP_ERR_UNSUPPORTED,
        ErrorKind::Invalid => SP_ERR_ARGUMENT,
        ErrorKind::SnapshotTooOld => SP_ERR_TOO_OLD,
        ErrorKind::Conflict => SP_ERR_CONFLICT,
        // `Io`, and what a later version adds.
        _ => SP_ERR_IO,
    }
}

/// Returns what a code means, in a line without a full stop; never null. The text is constant.
///
/// sp_message() says more of a failure: which file, what was expected and what was found.
#[unsafe(no_mangle)]
pub extern "C" fn sp_strerror(code: c_int) -> *const c_char {
    let known = TEXTS.iter().find(|(known, _)| *known == code);
    known.map_or(c"a code that this library does not have", |(_, text)| text).as_ptr()
}

/// Returns the version of the library, as in "0.1.0". The text is constant.
#[unsafe(no_mangle)]
pub extern "C" fn sp_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no NUL"),
        };
    VERSION.as_ptr()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_kind_has_a_code_and_every_code_a_text() {
        let codes: HashSet<_> = ErrorKind::ALL.into_iter().map(code_of).collect();
        assert_eq!(codes.len(), ErrorKind::ALL.len(), "no two kinds share a code");
        assert!(codes.iter().all(|code| TEXTS.iter().any(|(known, _)| known == code)));
        let texts: HashSet<_> = TEXTS.iter().map(|(_, text)| text).collect();
        assert_eq!(texts.len(), TEXTS.len(), "no two codes share a text");
        assert!(!sp_strerror(4711).is_null());
    }
}
