//! Old hash files as tables: the 1991 package, dbm, ndbm, sdbm, gdbm and Berkeley DB.
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
//! - Every byte of a file is hostile: nothing panics, loops or takes more memory than the file is
//!   long, whatever the file holds.
//! - A file that was opened to be read is never written.

#![forbid(unsafe_code)]

mod bdb;
mod byte_order;
mod chain;
#[cfg(test)]
mod cost_tests;
pub mod db185;
mod dbm;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod gdbm;
mod identify;
mod krb5;
mod old_file;
mod open;
mod pages;
mod reader;
mod sdbm;
mod source;

pub use byte_order::ByteOrder;
pub use identify::{Format, Identity, identify};
pub use old_file::{BucketRow, Doubt, OldFile, Survey};
pub use open::{open, open_damaged};
pub use reader::{Fault, Parameter};
pub use source::Source;
