//! Errors of the operating system, with what was done and to which file.

use std::io;
use std::path::Path;

use super::reservation::NoAddressSpace;
use crate::error::Error;

/// Returns an error with the action and the file, or one that says that the address space is
/// exhausted.
pub(crate) fn io_error(action: &'static str, path: &Path, source: io::Error) -> Error {
    match address_space_refused(&source) {
        Some(bytes) => Error::Full { what: Error::ADDRESS_SPACE, bytes },
        None => Error::Io { action, path: path.to_path_buf(), source },
    }
}

/// Returns the size of the mapping whose refusal is the cause of `error`, if that is the cause.
fn address_space_refused(error: &io::Error) -> Option<u64> {
    NoAddressSpace::of(error).map(|refused| refused.bytes)
}

/// Returns whether an error is for want of space or memory, of which compaction may make some.
pub(crate) fn is_want_of_room(error: &Error) -> bool {
    match error {
        Error::Io { source, .. } => super::is_no_room(source),
        // No room of the store is memory of the process.
        Error::Full { what, .. } => *what != Error::MEMORY,
        _ => false,
    }
}
