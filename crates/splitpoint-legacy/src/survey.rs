//! What a walk over a complete old file finds.

use std::collections::HashMap;

use splitpoint::Result;

use crate::doubt::Doubt;
use crate::reader::{Fault, Reader};
use crate::stated::Discrepancy;
use crate::survey::walk::Walk;

mod walk;

/// Most doubts that a survey lists; it counts further ones.
pub(crate) const DOUBTS_MAX: usize = 1000;

/// The buckets with `size` pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BucketRow {
    /// Pairs in the bucket.
    pub size: u64,
    /// Buckets with that many pairs.
    pub bucket_count: u64,
    /// Buckets of this size that an ideal hash gives on average.
    pub ideal_bucket_count: f64,
}

/// The result of a walk over a complete file.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Pairs that a scan returns.
    pub pair_count: u64,
    /// Readable values after the first of their key, in formats that have several of a key.
    pub further_value_count: u64,
    /// Keys with several values.
    pub several_values_count: u64,
    /// Buckets or blocks.
    pub bucket_count: u64,
    /// Pages of chains after their first.
    pub overflow_pages: u64,
    /// The first thousand doubts.
    pub doubts: Vec<Doubt>,
    /// The number of all doubts.
    pub doubt_count: u64,
    /// The number of losses among them; see [`Doubt::is_loss`].
    pub loss_count: u64,
    /// Buckets by their number of pairs, by rising size.
    pub buckets: Vec<BucketRow>,
    /// What breaks the format first.
    fault: Option<Fault>,
    /// Keys with a pair out of place, and the place of the pair that counts, unless that is in its
    /// place.
    pub(crate) strays: HashMap<Vec<u8>, Option<Place>>,
}

/// An item of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) unit: u64,
    pub(crate) index: usize,
}

impl Survey {
    /// Walks over the complete file of `reader`.
    pub(crate) fn of(reader: &dyn Reader) -> Result<Self> {
        Walk::new(reader).run()
    }

    /// Returns the first fault in the format, if there is one.
    pub fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// Returns the stated numbers that differ from what was found, records first.
    pub fn discrepancies(&self) -> impl Iterator<Item = Discrepancy> {
        self.doubts.iter().filter_map(|doubt| match doubt {
            Doubt::Discrepancy(discrepancy) => Some(*discrepancy),
            _ => None,
        })
    }

    fn doubt(&mut self, doubt: Doubt) {
        self.doubt_count += 1;
        self.loss_count += u64::from(doubt.is_loss());
        if let Doubt::Fault(fault) = doubt {
            self.fault.get_or_insert(fault);
        }
        if self.doubts.len() < DOUBTS_MAX {
            self.doubts.push(doubt);
        }
    }

    /// Puts a discrepancy before all other doubts, so that it stays in the list.
    fn discrepancy(&mut self, discrepancy: Discrepancy) {
        self.doubt_count += 1;
        self.loss_count += 1;
        self.doubts.truncate(DOUBTS_MAX - 1);
        self.doubts.insert(0, Doubt::Discrepancy(discrepancy));
    }
}
