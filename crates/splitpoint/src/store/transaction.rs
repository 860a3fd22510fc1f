//! What a transaction has read, and whether it is still so when it commits.
//!
//! Transactions are optimistic. One that commits takes the lock and compares the newest version of each
//! key that it has read with the one that it saw. If they are equal, everything that it read is true at
//! the moment of its commit, so it is as if it had run in that moment alone: the order of the commits is
//! the serial order. Otherwise it conflicts.
//!
//! Versions are compared by their bytes where the record is another one. So a record that was moved does
//! not conflict, nor does a key that has got its value back.

use std::collections::HashSet;

use super::{Store, Versions, Writer};
use crate::error::Result;
use crate::testing::mutant::{self, Mutant};

/// What a transaction has read.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    keys: HashSet<Box<[u8]>>,
    /// Whether it has seen every key.
    has_all: bool,
    /// Whether it has seen the number of keys.
    has_count: bool,
}

impl Reads {
    /// Adds a key, present or missing.
    pub(crate) fn add(&mut self, key: &[u8]) {
        if !self.keys.contains(key) {
            self.keys.insert(key.into());
        }
    }

    /// Adds every key.
    pub(crate) fn add_all(&mut self) {
        self.has_all = true;
    }

    /// Adds the number of keys.
    pub(crate) fn add_count(&mut self) {
        self.has_count = true;
    }
}

impl Store {
    /// Returns whether what was read of `versions` is so now. The caller holds the lock.
    ///
    /// # Errors
    ///
    /// [`Error::SnapshotTooOld`](crate::Error::SnapshotTooOld) if the versions are not kept any more.
    pub(crate) fn is_unchanged(
        &self,
        writer: &Writer,
        versions: &Versions<'_>,
        reads: &Reads,
    ) -> Result<bool> {
        if writer.change_count == versions.change_count || mutant::is_made(Mutant::CommitsBlindly) {
            return Ok(true);
        }
        versions.check()?;
        if reads.has_all || reads.has_count && writer.state.record_count != versions.record_count {
            return Ok(false);
        }
        for key in &reads.keys {
            if !versions.is_newest(key, self.hash_of(key))? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
