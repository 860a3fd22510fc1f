//! A look at a store in use: some of its chains, and what the lookups of all processes have cost.

use super::{ChainHistogram, Lookups};
use crate::linear::Geometry;

/// A sample of a store that may be changing: see [`Db::sample`](crate::Db::sample).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Sample {
    /// Who writes it.
    pub writer: WriterState,
    /// Number of keys of the whole table.
    pub record_count: u64,
    /// Shape of the whole table.
    pub geometry: Geometry,
    /// Bytes of log since the store was created: they grow with each change.
    pub log_bytes: u64,
    /// Buckets that were looked at.
    pub bucket_count: u64,
    /// Keys in them.
    pub key_count: u64,
    /// Their chains, beside those that an ideal hash would give for as many keys in as many buckets of
    /// the same kinds.
    pub chains: ChainHistogram,
    /// What the lookups of all handles that count have cost, in all processes; `None` if nobody can
    /// publish that, as of a table in memory whose handle does not count.
    pub lookups: Option<SharedLookups>,
}

/// Who writes a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriterState {
    /// A handle that may write has it open.
    Writing,
    /// None writes now; those that do take turns.
    BetweenTurns,
    /// The last one that wrote has closed it.
    Closed,
    /// The last one that wrote was killed, or its machine failed. The next one goes on from there.
    Killed,
}

/// What the lookups of several handles of one file have cost: of all those that were opened with
/// [`Options::instrument`](crate::Options::instrument).
///
/// A handle adds to it ten times a second, and when it is closed. The counts begin anew when a writer
/// opens a file that nobody else has open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedLookups {
    /// The counts so far.
    pub lookups: Lookups,
    /// Whether a handle that counts is open now.
    pub is_counting: bool,
    /// When the counts began, by the system's monotonic clock.
    pub(crate) since_ns: u64,
}

impl SharedLookups {
    /// Returns what has been counted since an `earlier` reading of the same store; all, if the counts
    /// have begun anew since.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// let db = splitpoint::Options::new().instrument(true).in_memory()?;
    /// let before = db.sample(64, 0)?.lookups.expect("it counts");
    /// db.contains("key")?;
    /// let after = db.sample(64, 0)?.lookups.expect("it counts");
    /// assert_eq!(after.since(&before).lookup_count, 1);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Lookups {
        if self.since_ns == earlier.since_ns {
            self.lookups.since(&earlier.lookups)
        } else {
            self.lookups
        }
    }
}
