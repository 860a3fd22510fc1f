//! Old files as tables: db 1.85, dbm, ndbm, sdbm, gdbm, Berkeley DB, cdb and Python's dbm.dumb.
//!
//! ```text
//! file --> Source --> identify --> a reader of that format, which is a splitpoint::Table
//! ```
//!
//! ```
//! use splitpoint::Table as _;
//!
//! # fn main() -> splitpoint::Result<()> {
//! let old = splitpoint_legacy::open("tests/fixtures/gdbm-be-std-word.gdbm")?;
//! assert_eq!(old.len()?, 500);
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//!
//! - Every byte of a file is untrusted: whatever the file holds, the library does not panic, loop,
//!   or take more memory than the length of the file.
//! - The library never writes a file that it opened for reading.

#![forbid(unsafe_code)]

pub mod algorithm;
mod bdb;
mod byte_order;
mod cdb;
mod chain;
#[cfg(test)]
mod cost_tests;
pub mod db185;
mod dbm;
mod doubt;
mod dumb;
mod files;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod gdbm;
mod identify;
mod identity;
mod krb5;
mod lookup;
mod old_file;
mod open;
mod pages;
mod reader;
mod scan;
mod sdbm;
mod source;
mod stated;
mod survey;

pub use byte_order::ByteOrder;
pub use cdb::CdbWriter;
pub use doubt::Doubt;
pub use gdbm::COMPAT_DIR;
pub use identify::identify;
pub use identity::{Format, Identity};
pub use old_file::OldFile;
pub use open::{open, open_damaged};
pub use reader::{Fault, Parameter};
pub use scan::KeyValue;
pub use source::Source;
pub use stated::{Counted, Discrepancy, StatedBy};
pub use survey::{BucketRow, Survey};

/// Registers the access methods of this crate with [`splitpoint::open`], for this process:
///
/// - `db185:PATH`, a file of db 1.85 for reading and writing, with the parameters that
///   [`db185::Options::of_url`] lists; with read-only options it is an [`OldFile`]. `db185:` alone is
///   a table in memory.
/// - `old:PATH`, an old file of any format, read-only.
/// - A plain path of an old file opens the same [`OldFile`].
///
/// # Errors
///
/// None with this version of `splitpoint`, which does not define these schemes.
///
/// # Examples
///
/// ```
/// use splitpoint::TableExt as _;
///
/// # fn main() -> splitpoint::Result<()> {
/// splitpoint_legacy::register()?;
/// let old = splitpoint::open("tests/fixtures/gdbm-be-std-word.gdbm")?;
/// let table = splitpoint::open("db185:?bsize=1024&ffactor=16")?;
/// for entry in old.scan()? {
///     let entry = entry?;
///     table.put_new(&entry.key, &entry.value)?;
/// }
/// assert_eq!(table.len()?, 500);
/// # Ok(())
/// # }
/// ```
pub fn register() -> splitpoint::Result<()> {
    splitpoint::register("db185", db185::url::open)?;
    splitpoint::register("old", |path, _options| Ok(Box::new(open(path)?)))?;
    splitpoint::register_recognizer("old", open::recognize);
    Ok(())
}
