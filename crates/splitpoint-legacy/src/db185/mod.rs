//! The 1991 package: hash files of 4.4BSD's db 1.85, read and written.
//!
//! ```text
//! Db185 (a Table) --> store: chains of pages --> pool: pages in memory --> disk
//!                      |    change, split, flush       \--> temporary file
//!                      |--> addresses, page, big: arithmetic and bytes, no I/O
//!                      \--> overflow: which pages are free
//! ```
//!
//! glibc's libdb1, FreeBSD, NetBSD, OpenBSD and macOS (also behind its `ndbm`) have the same
//! format. What they write is read here, and what is written here they read.
//!
//! # What differs from the original
//!
//! - Deleting while a scan runs is safe, and a scan returns each key once, also behind big pairs.
//! - A big pair that fills its pages exactly can be read again; the original crashes.
//! - Files of the other byte order can be written and synced.
//! - The number of keys is counted, not believed: the original's is too low after some puts.
//! - When the overflow pages run out, the put fails and nothing else happens.
//! - Pages of 65536 bytes are refused: they never worked.
//! - A file is locked against other handles of this library.
//!
//! # Crashes
//!
//! The format has no log. Between two syncs the file is not written at all: what changes stays in
//! the pool, and past its bound in a temporary file. So a process that dies then leaves the file
//! as it was last synced. A sync writes in an order in which no write can hide a pair that was
//! synced before: see [`Db185`], section "Durability", for what remains.
//!
//! # Source
//!
//! Seltzer and Yigit, "A new hashing package for UNIX", USENIX Winter 1991.

mod addresses;
mod big;
mod change;
mod check;
#[cfg(test)]
mod crash_tests;
mod disk;
mod extent;
mod flush;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod header;
mod open;
mod overflow;
mod page;
mod pool;
mod reader;
mod salvage;
mod scan;
mod split;
mod store;
mod table;
pub(crate) mod url;

pub(crate) use addresses::Shape;
pub use check::CheckReport;
pub(crate) use extent::{extent_of, records_of};
pub(crate) use header::flaw_of_spares;
pub use open::Options;
pub use pool::CacheCounts;
pub(crate) use reader::Db185File;
pub use table::{Db185, Parameters};
