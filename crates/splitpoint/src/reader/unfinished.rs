//! `Unfinished`: the change that a killed process had appended but not committed.
//!
//! Some of its slots may be stored already. Scans are of the last commit, and so are the lookups of
//! a handle that finds such a change when it opens the file: for the keys concerned, they return
//! the previous versions according to the log. The next writer commits the change; from then on the
//! slots are valid.

use crate::error::Result;
use crate::format::Addr;
use crate::region::Region;
use crate::testing::mutant::{self, Mutant};

/// A record of such a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnfinishedRecord {
    /// Of the key.
    pub(crate) hash: u64,
    /// What was stored, `None` for a delete.
    pub(crate) addr: Option<Addr>,
    /// What the key had before.
    pub(crate) prev: Option<Addr>,
}

/// What a key had at the last commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtCommit {
    /// What its slot says.
    AsNow,
    /// This record, or none.
    Was(Option<Addr>),
}

/// The records of such a change: 40 bytes each.
#[derive(Debug)]
pub(crate) struct Unfinished {
    /// Log sequence number of the last commit.
    committed_lsn: u64,
    /// By the hashes of the keys. A change has each key once.
    records: Box<[UnfinishedRecord]>,
}

impl Unfinished {
    /// Returns the change that has `records` behind the last commit; `None` if there are none.
    pub(crate) fn new(
        committed_lsn: u64,
        records: impl Iterator<Item = UnfinishedRecord>,
    ) -> Option<Self> {
        let mut records: Vec<_> = records.collect();
        records.sort_unstable_by_key(|record| record.hash);
        let is_any = !records.is_empty();
        is_any.then(|| Self { committed_lsn, records: records.into() })
    }

    /// Returns what a key had before the change. The caller has a pin.
    pub(super) fn at_commit(&self, region: &Region, key: &[u8], hash: u64) -> Result<AtCommit> {
        let first = self.records.partition_point(|record| record.hash < hash);
        let records = self.records[first..].iter().take_while(|record| record.hash == hash);
        for &UnfinishedRecord { addr, prev, .. } in records {
            let is_committed = region.live().committed().0 != self.committed_lsn;
            if is_committed || mutant::is_made(Mutant::ShowsUnfinished) {
                return Ok(AtCommit::AsNow);
            }
            let one = addr.or(prev).expect("a delete names what it deletes");
            if region.view.version(one)?.key() == key {
                return Ok(AtCommit::Was(prev));
            }
        }
        Ok(AtCommit::AsNow)
    }
}
