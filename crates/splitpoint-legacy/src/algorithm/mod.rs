//! The hashing schemes that the paper of 1991 compares, as algorithms in memory.
//!
//! ```text
//! dbm, ndbm  a bitmap says which pages were split        one page access
//! sdbm       a trie of bits says it                      one page access
//! gdbm       a directory of buckets, which doubles       one bucket, one record
//! hsearch    a table of fixed size                       probes, or a chain
//! dynahash   linear hashing of chains in memory          a chain
//! hash       the package itself, db 1.85                 a chain of pages
//! ```
//!
//! Each module stores, fetches, deletes and walks over pages or slots in memory, and counts what it
//! does. A [`Variant`] names a module with its options and creates a table.
//!
//! ```
//! use splitpoint_legacy::algorithm::{Parameters, StoreMode, Stored, Variant};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut table = Variant::Sdbm.create(&Parameters::default())?;
//! assert_eq!(table.store(b"key", b"value", StoreMode::Replace)?, Stored::New);
//! assert_eq!(table.fetch(b"key")?.as_deref(), Some(&b"value"[..]));
//! assert_eq!(table.counts().probes, 2);
//! // A pair that exceeds the page is refused, as in the paper.
//! assert!(table.store(b"long", &[0; 2000], StoreMode::Replace).is_err());
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//!
//! - A store that is refused changes no pair.
//! - The same calls in the same order give the same counts.
//!
//! # Not here
//!
//! These are no drop-ins for the libraries. Readers of their files are in the modules of the crate's
//! root; [`open`](fn@crate::open) opens what [`Algorithm::files`] returns.
//!
//! # Source
//!
//! Seltzer and Yigit, "A new hashing package for UNIX", USENIX Winter 1991, and the formats of the
//! files that the originals wrote.

pub mod addresses;
mod blocks;
pub mod dbm;
pub mod dynahash;
mod figures;
pub mod gdbm;
pub mod hash;
pub mod hsearch;
mod page;
mod paged;
mod refusal;
pub mod sdbm;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod twins;
mod variant;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::ControlFlow;

pub use figures::Figure;
pub use refusal::{Reason, Refusal};
pub use variant::{Parameters, Unit, Variant};

/// What a walk calls with each key and its value.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// One table of one algorithm.
pub trait Algorithm: Send {
    /// Stores `value` under `key`.
    ///
    /// # Errors
    ///
    /// A [`Refusal`], whose [`reason`](Refusal::reason) is the one that the paper names.
    fn store(&mut self, key: &[u8], value: &[u8], mode: StoreMode) -> Result<Stored, Refusal>;

    /// Returns the value of `key`.
    ///
    /// # Errors
    ///
    /// [`Refusal::Failed`] if the package itself, `hash`, fails.
    fn fetch(&mut self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, Refusal>;

    /// Deletes `key`, and returns whether it was there.
    ///
    /// # Errors
    ///
    /// [`Refusal::Failed`] if the package itself, `hash`, fails.
    fn delete(&mut self, key: &[u8]) -> Result<bool, Refusal>;

    /// Calls `visit` with every pair, in the order of the table, until it breaks.
    ///
    /// # Errors
    ///
    /// [`Refusal::Failed`] if the package itself, `hash`, fails.
    fn walk(&mut self, visit: &mut Visit<'_>) -> Result<(), Refusal>;

    /// Returns the number of pairs.
    fn len(&self) -> u64;

    /// Returns whether there is no pair.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns what the table has done since it was created.
    fn counts(&self) -> Counts;

    /// Returns what the table takes now.
    fn footprint(&self) -> Footprint;

    /// Draws the table as lines of text: its bitmap, trie or directory, and what is where. A large
    /// table is cut after some dozens of lines, and says so.
    fn show(&self) -> String;

    /// Returns the files of the table: the ending of each, such as `.pag`, and its bytes. Empty for
    /// tables that have none.
    ///
    /// A file may be sparse and then long: see [`Footprint::file_bytes`] first.
    fn files(&self) -> Vec<(&'static str, Vec<u8>)>;
}

/// What a store does with a key that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreMode {
    /// Keep the old value, as `DBM_INSERT` and `hsearch` do.
    Insert,
    /// Replace it, as `DBM_REPLACE` does.
    Replace,
}

/// What a store did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// The key is new.
    New,
    /// The key had another value.
    Replaced,
    /// The key was there and kept its value.
    Kept,
}

/// What a table has done. All counts are exact and the same on every machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Pages, slots or chained entries looked at, by the [`Unit`] of the variant.
    pub probes: u64,
    /// Keys compared.
    pub comparisons: u64,
    /// Pages written; 0 for tables without pages, and for `hash`, which counts them in its pool.
    pub page_writes: u64,
    /// Buckets split because a page was full: uncontrolled splits.
    pub overflow_splits: u64,
    /// Buckets split because of the fill factor: controlled splits.
    pub fill_splits: u64,
    /// How often the directory doubled.
    pub doublings: u64,
    /// Entries of the old directories that doublings copied.
    pub copied_entries: u64,
    /// Entries that Brent's rearrangement moved.
    pub moves: u64,
}

impl Counts {
    /// Returns the splits of both kinds.
    pub fn splits(&self) -> u64 {
        self.overflow_splits + self.fill_splits
    }
}

/// What a table takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Footprint {
    /// Buckets, pages or slots of the table.
    pub place_count: u64,
    /// Bytes of a page, 0 for tables without.
    pub page_bytes: u64,
    /// Share of the pages' bytes that pairs take, or entries per slot or bucket.
    pub fill: f64,
    /// Bytes of the bitmap, trie, directory or array of slots that leads to the pairs.
    pub index_bytes: u64,
    /// Entries of a directory that name the same bucket as another.
    pub index_copies: u64,
    /// Bits of the hash that lead to the deepest bucket.
    pub depth: u32,
    /// Length of the file or files, 0 for tables without. That of `hash` is the length that its table
    /// in memory would have as a file.
    pub file_bytes: u64,
    /// Bytes of the files that were never written: holes, where the file system has them.
    pub hole_bytes: u64,
}

/// Cuts a drawing of which only the first `most` of `lines` were drawn.
fn cut(mut drawing: String, lines: usize, most: usize) -> String {
    if lines > most {
        let _ = writeln!(drawing, "... {} more", lines - most);
    }
    drawing
}
