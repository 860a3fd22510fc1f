//! The read set of a transaction, and its validation at the commit.
//!
//! Transactions use optimistic concurrency control. A commit takes the lock and compares the newest
//! version of each key that the transaction has read with the version that it saw. If all are
//! equal, everything that it read is current at the moment of its commit, as if it had run alone at
//! that moment: the order of commits is the serial order. Otherwise it conflicts.
//!
//! If the records differ, the versions are compared by their bytes. So neither a moved record
//! conflicts, nor a key that has been changed back to its old value.

use super::{Store, Versions, Writer};
use crate::error::Result;
use crate::key_list::KeyList;
use crate::options::KEY_BYTES_MAX;
use crate::testing::mutant::{self, Mutant};

/// What a transaction has read.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    keys: KeyList,
    /// Whether it has seen every key.
    has_all: bool,
    /// Whether it has seen the number of keys.
    has_count: bool,
}

impl Reads {
    /// Adds a key, present or missing. Keys that would take more than `bytes_max` of memory become
    /// every key.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full) with [`Error::MEMORY`](crate::Error::MEMORY).
    pub(crate) fn add(&mut self, key: &[u8], hash: u64, bytes_max: u64) -> Result<()> {
        // No table has a key that is too long.
        let is_too_long = key.len() as u64 > KEY_BYTES_MAX;
        if is_too_long || self.has_all || self.keys.find(key, hash).is_some() {
            return Ok(());
        }
        if self.keys.bytes_with(key.len()) > bytes_max {
            self.add_all();
            return Ok(());
        }
        self.keys.add(key, None, hash)
    }

    /// Adds every key.
    pub(crate) fn add_all(&mut self) {
        self.has_all = true;
        self.keys = KeyList::default();
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
        writer: &Writer,
        versions: &Versions<'_>,
        reads: &Reads,
    ) -> Result<bool> {
        if versions.is_of_now(writer) || mutant::is_made(Mutant::CommitsBlindly) {
            return Ok(true);
        }
        versions.check()?;
        if reads.has_all || reads.has_count && writer.state.record_count != versions.record_count {
            return Ok(false);
        }
        for (hash, key, _) in reads.keys.iter() {
            if !versions.is_newest(key, hash)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
