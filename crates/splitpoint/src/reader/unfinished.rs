//! `Unfinished`: the change that a killed process had appended and not committed.
//!
//! Its slots are stored or not. A scan is of the last commit, and so are the lookups of a handle that finds
//! such a change when it opens the file: of the keys concerned they return what the log says was there before.
//! The next writer commits the change; from then on the slots count.

use std::collections::HashMap;

use crate::error::Result;
use crate::format::Addr;
use crate::region::Region;

/// What a key had at the last commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtCommit {
    /// What its slot says.
    AsNow,
    /// This record, or none.
    Was(Option<Addr>),
}

/// The records of such a change.
#[derive(Debug)]
pub(crate) struct Unfinished {
    /// Log sequence number of the last commit.
    committed_lsn: u64,
    /// By the hash of the key, in the order of the log: the record that was stored, if one was, and the one
    /// that the key had before.
    records: HashMap<u64, Vec<[Option<Addr>; 2]>>,
}

/// A key of such a change. Its slot holds the record before, or one of those stored since; or none, if one
/// of these is missing.
#[derive(Debug)]
pub(crate) struct UnfinishedKey {
    pub(crate) hash: u64,
    pub(crate) before: Option<Addr>,
    pub(crate) stored: Vec<Addr>,
}

impl Unfinished {
    /// Returns the change that has `records`, each with the hash of its key, behind the last commit; `None`
    /// if there are none.
    pub(crate) fn new(
        committed_lsn: u64,
        records: impl Iterator<Item = (u64, [Option<Addr>; 2])>,
    ) -> Option<Self> {
        let mut unfinished = Self { committed_lsn, records: HashMap::new() };
        for (hash, record) in records {
            unfinished.records.entry(hash).or_default().push(record);
        }
        (!unfinished.records.is_empty()).then_some(unfinished)
    }

    /// Returns whether the change is still not committed.
    fn is_current(&self, region: &Region) -> bool {
        region.live().committed().0 == self.committed_lsn
    }

    /// Returns the keys of the change, unless it is committed by now.
    pub(crate) fn keys(&self, region: &Region) -> Vec<UnfinishedKey> {
        let mut keys: Vec<UnfinishedKey> = Vec::new();
        let records = self.records.iter().filter(|_| self.is_current(region));
        for (&hash, records) in records {
            for &[addr, prev] in records {
                // A batch may store a key more than once.
                let follows = |key: &&mut UnfinishedKey| {
                    prev.is_some_and(|prev| key.before == Some(prev) || key.stored.contains(&prev))
                };
                if let Some(key) = keys.iter_mut().find(follows) {
                    key.stored.extend(addr);
                } else {
                    let stored = addr.into_iter().collect();
                    keys.push(UnfinishedKey { hash, before: prev, stored });
                }
            }
        }
        keys
    }

    /// Returns what a key had before the change. The caller has a pin.
    pub(super) fn at_commit(&self, region: &Region, key: &[u8], hash: u64) -> Result<AtCommit> {
        let Some(records) = self.records.get(&hash) else { return Ok(AtCommit::AsNow) };
        if !self.is_current(region) {
            return Ok(AtCommit::AsNow);
        }
        for &[addr, prev] in records {
            let one = addr.or(prev).expect("a delete names what it deletes");
            if region.view.version(one)?.key() == key {
                return Ok(AtCommit::Was(prev));
            }
        }
        Ok(AtCommit::AsNow)
    }
}
