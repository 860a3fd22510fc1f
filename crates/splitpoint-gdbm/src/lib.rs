//! A drop-in for GNU dbm: the functions of libgdbm.so.6, on Splitpoint files.
//!
//! Programs are relinked, or have this library in place of the original in their path. The manual page
//! `splitpoint-gdbm(3)` and `docs/compat/gdbm.md` have what is the same and what differs.
//!
//! ```text
//! calls, files  -->  handle     -->  database  -->  table: a store, or an old file in place
//! (C)                lock, panics,   open, lock,
//!                    errors          convert
//! ```
//!
//! # What every function expects of C
//!
//! - A `GDBM_FILE` is null or open. A null one is an error.
//! - A `datum` leads to as many bytes as it says; they do not change during the call.
//! - Other pointers are null or lead to what their type says.
//!
//! # Invariants
//!
//! - No function that C calls is called from here: a program that defines one of its name changes
//!   nothing.
//! - `errno` is set last, on failure alone; a function of the program that may not come back is called
//!   after everything else.

mod calls;
mod code;
mod database;
mod descriptor;
mod dump;
mod files;
mod flags;
mod handle;
mod head;
mod load;
mod settings;
mod snapshot;
mod stream;
mod table;

pub use code::Texts;
pub use handle::Handle;

use std::ffi::{c_char, c_int};

/// The text of [`gdbm_version`]; others parse its begin.
pub(crate) const VERSION_TEXT: &str =
    concat!("GDBM version 1.23 (Splitpoint ", env!("CARGO_PKG_VERSION"), ")");

/// A pointer to a constant text, for C.
#[derive(Debug)]
#[repr(transparent)]
pub struct TextPointer(*const c_char);

// SAFETY: it leads to a constant.
unsafe impl Sync for TextPointer {}

/// The version of gdbm whose functions these are, in words.
#[unsafe(no_mangle)]
pub static gdbm_version: TextPointer = TextPointer(
    concat!("GDBM version 1.23 (Splitpoint ", env!("CARGO_PKG_VERSION"), ")\0").as_ptr().cast(),
);

/// The same as numbers.
#[unsafe(no_mangle)]
pub static gdbm_version_number: [c_int; 3] = [1, 23, 0];

/// The texts of the error numbers.
#[unsafe(no_mangle)]
pub static gdbm_errlist: Texts = Texts::ALL;

/// For each error number, 1 if `errno` tells more.
#[unsafe(no_mangle)]
pub static gdbm_syserr: [c_int; code::COUNT] = code::has_errno_table();
