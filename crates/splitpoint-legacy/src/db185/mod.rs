//! db 1.85: reads and writes the hash files of 4.4BSD's package of 1991.
//!
//! ```text
//! Db185 (a Table) --> store: chains of pages --> pool: pages in memory --> disk
//!                      |    change, split, flush       \--> temporary file
//!                      |--> addresses, page, big: arithmetic and bytes, no I/O
//!                      \--> overflow: which pages are free
//! ```
//!
//! glibc's libdb1, FreeBSD, NetBSD, OpenBSD and macOS (also behind its `ndbm`) have the same
//! format. They and this library read each other's files.
//!
//! # What differs from the original
//!
//! - Deleting while a scan runs is safe, and a scan returns each key once, also behind big pairs.
//! - A big pair that fills its pages exactly can be read again; the original crashes.
//! - Files of the other byte order can be written and synced.
//! - This library counts the keys, because the original's count is too low after some puts.
//! - When the overflow pages run out, the put fails and changes nothing.
//! - This library refuses pages of 65536 bytes, which never worked.
//! - It locks a file against its other handles.
//!
//! # Crashes
//!
//! The format has no log. Between two syncs the library does not write the file: changes stay in
//! the pool and, beyond its bound, in a temporary file. So a process that dies then leaves the file
//! as it was last synced. A sync writes in an order in which no write can hide a pair of an earlier
//! sync. [`Db185`], section "Durability", lists the remaining risks.
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
mod cursor;
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
mod page_map;
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
pub use cursor::Cursor;
pub(crate) use extent::{extent_of, records_of};
pub(crate) use header::flaw_of_spares;
pub use open::Options;
pub(crate) use page_map::page_of_overflow;
pub use page_map::{PageAddr, PageRow, PageUse, PooledBucket, PooledPage, Work};
pub use pool::CacheCounts;
pub(crate) use reader::Db185File;
pub use table::{Db185, Parameters};
