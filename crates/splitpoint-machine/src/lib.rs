//! What only the machine has: its hash libraries, the user's own, and the times of its processes.
//!
//! ```text
//! Ndbm, Gdbm, Hsearch --> Library: dlopen, dlsym      Usage: getrusage, wait4
//! HashLibrary: one function of the user's
//! ```
//!
//! Nothing is linked. A library is loaded when it is asked for, and a machine without it gets
//! [`Absent`] with the package that has it.
//!
//! A crate of its own, because the command and the lab forbid `unsafe`, and this calls functions of C.
//!
//! # Trust
//!
//! The functions of a library are called with the types that its header gives them. That a file of
//! the library's name holds this library is the machine's promise, as with every program that is
//! linked with it.

mod gdbm;
mod hash_library;
mod hsearch;
mod library;
mod ndbm;
mod process;

use std::fmt;

pub use gdbm::Gdbm;
pub use hash_library::HashLibrary;
pub use hsearch::Hsearch;
pub use ndbm::Ndbm;
pub use process::{Usage, try_wait};

/// A library is not on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// The files that were tried.
    pub tried: Vec<&'static str>,
    /// The package that has it.
    pub package: &'static str,
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not here: no {}; it is in {}", self.tried.join(", no "), self.package)
    }
}

impl std::error::Error for Absent {}
