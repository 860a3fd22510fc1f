//! `gdbm_errno`, where the process has gdbm's library too: the originals of ndbm(3) and dbm(3) call it, and
//! programs ask for the number afterwards.
//!
//! The reference is weak. A library that needed gdbm's would load it into every program.

use libc::{EINVAL, EPERM, c_int};

use crate::database::Failure;

/// Numbers of gdbm.
const NO_ERROR: c_int = 0;
const READER_CANT_DELETE: c_int = 11;
const READER_CANT_STORE: c_int = 12;
const UNKNOWN_ERROR: c_int = 14;
const ITEM_NOT_FOUND: c_int = 15;
const CANNOT_REPLACE: c_int = 17;
const MALFORMED_DATA: c_int = 18;

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It looks up a value, or the next key.
    Lookup,
    /// It stores a pair.
    Store,
    /// It deletes a key.
    Delete,
}

/// Sets `gdbm_errno` of this thread, if there is one, for a call with this outcome, and returns the outcome.
/// `is_done` tells whether it found, stored or deleted what it was asked for.
///
/// # Errors
///
/// Those of `outcome`.
#[inline]
pub fn note<T>(
    kind: Kind,
    outcome: Result<T, Failure>,
    is_done: impl FnOnce(&T) -> bool,
) -> Result<T, Failure> {
    if let Some(location) = location() {
        let number = number(kind, outcome.as_ref().map(is_done).map_err(|&failure| failure));
        // SAFETY: gdbm's library has the function for this.
        let place = unsafe { location() };
        // SAFETY: the place is this thread's own.
        unsafe { place.write(number) };
    }
    outcome
}

/// Returns the number for a call that is done, or not, or has failed.
fn number(kind: Kind, is_done: Result<bool, Failure>) -> c_int {
    match (is_done, kind) {
        (Ok(true), _) => NO_ERROR,
        (Ok(false), Kind::Store) => CANNOT_REPLACE,
        (Ok(false), Kind::Lookup | Kind::Delete) => ITEM_NOT_FOUND,
        (Err(EINVAL), _) => MALFORMED_DATA,
        (Err(EPERM), Kind::Store) => READER_CANT_STORE,
        (Err(EPERM), Kind::Delete) => READER_CANT_DELETE,
        (Err(_), _) => UNKNOWN_ERROR,
    }
}

/// `gdbm_errno_location` of gdbm's library.
type Location = unsafe extern "C" fn() -> *mut c_int;

#[cfg(not(miri))]
mod weak {
    use super::Location;

    // Stable Rust has no weak references of its own. The linker fills the word with the address of the
    // function, or with 0.
    std::arch::global_asm!(
        ".weak gdbm_errno_location",
        ".pushsection .data.rel.ro.splitpoint_gdbm_errno, \"aw\"",
        ".p2align 3",
        ".globl splitpoint_gdbm_errno_location",
        ".hidden splitpoint_gdbm_errno_location",
        "splitpoint_gdbm_errno_location:",
        ".quad gdbm_errno_location",
        ".popsection",
    );

    unsafe extern "C" {
        static splitpoint_gdbm_errno_location: Option<Location>;
    }

    #[inline]
    pub(super) fn location() -> Option<Location> {
        // SAFETY: the word is there, and has 0 or the address of such a function since the program began.
        unsafe { splitpoint_gdbm_errno_location }
    }
}

#[cfg(miri)]
mod weak {
    use super::Location;

    pub(super) fn location() -> Option<Location> {
        None
    }
}

use weak::location;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_gdbm_and_without_its_library_there_is_none() {
        for (kind, is_done, expected) in [
            (Kind::Lookup, Ok(true), 0),
            (Kind::Lookup, Ok(false), 15),
            (Kind::Delete, Ok(false), 15),
            (Kind::Store, Ok(false), 17),
            (Kind::Store, Err(EINVAL), 18),
            (Kind::Store, Err(EPERM), 12),
            (Kind::Delete, Err(EPERM), 11),
            (Kind::Lookup, Err(libc::EIO), 14),
        ] {
            assert_eq!(number(kind, is_done), expected, "{kind:?} {is_done:?}");
        }
        assert!(location().is_none());
        assert_eq!(note(Kind::Lookup, Ok(7), |_| true), Ok(7));
    }
}
