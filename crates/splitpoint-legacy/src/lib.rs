//! Old hash files as tables: the 1991 package, dbm, ndbm, sdbm, gdbm and Berkeley DB.
//!
//! ```text
//! file --> Source --> identify --> a reader of that format, which is a splitpoint::Table
//! ```
//!
//! # Invariants
//!
//! - Every byte of a file is hostile: nothing panics, loops or takes more memory than the file is
//!   long, whatever the file holds.
//! - A file that was opened to be read is never written.

#![forbid(unsafe_code)]

mod byte_order;
#[expect(dead_code, reason = "what changes a table comes next")]
pub mod db185;
mod source;

pub use byte_order::ByteOrder;
pub use source::Source;
