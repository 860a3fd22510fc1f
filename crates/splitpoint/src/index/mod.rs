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
//! - A slot that moves is first copied, then the shape is published, then the old slot is erased. A
//!   reader that misses because of the erasure sees the new shape when it checks again.
//! - An overflow line or a bucket is reused only after the reuse epoch in the shape has changed, so
//!   a reader that has strayed into it also checks again and retries.
//! - When lines have moved in memory, the epoch changes before the next store to a line, and the
//!   old copies keep their slots.
//!
//! `docs/design.md` argues why with these invariants a lookup needs no lock.
//!
//! # Not here
//!
//! Keys: callers compare them, so the index does not depend on the log and can be rebuilt from it.

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

/// Access to the lines of a table.
pub(crate) trait Lines {
    /// Returns the word with the shape of the table.
    fn shape(&self) -> &AtomicU64;

    /// Returns the line of a bucket that the shape has or is about to have.
    fn bucket(&self, bucket: BucketIndex) -> &Line;

    /// Returns an overflow line, or `None` if there is no such line.
    fn overflow(&self, line: LineNumber) -> Option<&Line>;

    /// Returns the number of overflow lines, which bounds the length of a chain.
    fn overflow_line_count(&self) -> u64;
}
