//! The hash index: buckets of one cache line, lock-free for readers, one writer.
//!
//! ```text
//! shape: N, reuse epoch           bucket b                      overflow line
//!                     hash -> [slot x 7 | meta]  --meta-->  [slot x 7 | meta]
//!                                 |
//!                                 `-> address of a record in the log
//! ```
//!
//! # Invariants
//!
//! - A slot changes only by one 8-byte store, and the table is valid after each store.
//! - A record is complete before a slot holds its address.
//! - Whatever moves is copied first, then the shape is published, then the old place is erased.
//!   A reader that missed because of the erase sees the new shape when it looks again.
//! - An overflow line or a bucket is used again only after the reuse epoch in the shape has
//!   changed, so a reader that strayed into it looks again as well.
//! - The epoch changes before the next store to a line when lines have moved, and what they left
//!   behind keeps its slots.
//!
//! `docs/design.md` shows why these make a lookup without a lock right.
//!
//! # Not here
//!
//! Keys: the callers compare them, so the index knows nothing of the log and can be built again
//! from it.

pub(crate) mod line;
pub(crate) mod lookup;
pub(crate) mod overflow;
pub(crate) mod shape;
pub(crate) mod slot;
pub(crate) mod split;

#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
#[cfg(test)]
#[cfg(not(loom))]
pub(crate) mod tests;

use crate::atomic::AtomicU64;
use crate::linear::BucketIndex;
use line::{Line, LineNumber};

/// Where the lines of a table are.
pub(crate) trait Lines {
    /// Returns the word with the shape of the table.
    fn shape(&self) -> &AtomicU64;

    /// Returns the line of a bucket that the shape has or is about to have.
    fn bucket(&self, bucket: BucketIndex) -> &Line;

    /// Returns an overflow line, or `None` if there is no such line.
    fn overflow(&self, line: LineNumber) -> Option<&Line>;

    /// Returns how many overflow lines there may be: the bound on the length of a chain.
    fn overflow_line_count(&self) -> u64;
}
