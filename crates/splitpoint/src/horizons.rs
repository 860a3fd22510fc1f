//! `Horizons`: since when scans and backups go on. What was current at such a moment is kept.
//!
//! A scan returns the records that were current when it began. So the space of a record that died
//! since is not used again before the scan ends, even if nobody has borrowed it yet.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The horizons of one handle.
#[derive(Debug, Default)]
pub(crate) struct Horizons {
    /// How many there are, by the log sequence number at which they began.
    open: Mutex<BTreeMap<u64, u64>>,
}

/// A moment whose records are kept until this is dropped.
#[derive(Debug)]
pub(crate) struct Horizon<'a> {
    horizons: &'a Horizons,
    lsn: u64,
}

impl Horizons {
    fn open(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what is current where the log ends at `lsn`. For a thread that holds the writer's lock.
    pub(crate) fn keep(&self, lsn: u64) -> Horizon<'_> {
        *self.open().entry(lsn).or_default() += 1;
        Horizon { horizons: self, lsn }
    }

    /// Returns where the log ended at the oldest horizon.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.open().first_key_value().map(|(&lsn, _)| lsn)
    }
}

impl Drop for Horizon<'_> {
    fn drop(&mut self) {
        let mut open = self.horizons.open();
        let count = open.get_mut(&self.lsn).expect("a horizon is dropped once");
        *count -= 1;
        if *count == 0 {
            open.remove(&self.lsn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_horizon_counts_until_all_of_its_moment_are_dropped() {
        let horizons = Horizons::default();
        assert_eq!(horizons.oldest(), None);
        let (late, first, second) = (horizons.keep(16), horizons.keep(8), horizons.keep(8));
        assert_eq!(horizons.oldest(), Some(8));
        drop(first);
        assert_eq!(horizons.oldest(), Some(8));
        drop(second);
        assert_eq!(horizons.oldest(), Some(16));
        drop(late);
        assert_eq!(horizons.oldest(), None);
    }
}
