//! A sample of a store in use: some of its chains, and the cost of lookups in all processes.

use super::{ChainHistogram, Lookups};
use crate::linear::Geometry;

/// A sample of a store that may be changing: see [`Db::sample`](crate::Db::sample).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Sample {
    /// Whether a writer has the store open.
    pub writer: WriterState,
    /// Number of keys of the whole table.
    pub record_count: u64,
    /// Shape of the whole table.
    pub geometry: Geometry,
    /// Bytes of log since the store was created: they grow with each change.
    pub log_bytes: u64,
    /// Buckets in the sample.
    pub bucket_count: u64,
    /// Keys in these buckets.
    pub key_count: u64,
    /// The chains of these buckets, compared with those that an ideal hash would give for as many
    /// keys in as many divided and undivided buckets.
    pub chains: ChainHistogram,
    /// The cost of the lookups of all handles, in all processes, that count them; `None` if there
    /// is nowhere to publish the counts, as for a table in memory whose handle does not count.
    pub lookups: Option<SharedLookups>,
}

/// Whether a store has a writer, and if not, how the last one ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriterState {
    /// A handle that may write has it open.
    Writing,
    /// No handle has the turn. The handles that write take turns.
    BetweenTurns,
    /// The last writer has closed the store.
    Closed,
    /// The last writer was killed, or its machine failed. The next one recovers the store.
    Killed,
}

/// The cost of the lookups of all handles of a file that were opened with
/// [`Options::instrument`](crate::Options::instrument).
///
/// Each handle adds its counts ten times a second, and when it is closed. The counts restart from 0
/// when a writer opens a file that no other handle has open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedLookups {
    /// The counts so far.
    pub lookups: Lookups,
    /// Whether a handle that counts is open now.
    pub is_counting: bool,
    /// When the counts last restarted, in nanoseconds of the system's monotonic clock.
    pub(crate) since_ns: u64,
}

impl SharedLookups {
    /// Returns what has been counted since an `earlier` reading of the same store; everything, if
    /// the counts have restarted since.
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
