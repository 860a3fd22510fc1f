//! `Horizons`: the moments that open scans and backups look back to.
//!
//! A scan returns the record that was current when it began, so what dies after that must stay
//! until the scan ends. A [pin](crate::pins) is too weak for it: the scan has yet to come to the
//! record, and has nothing of it but the moment.
//!
//! Moments are numbered by the horizons themselves: each one that opens begins the next. What dies
//! is stamped with the moment, and a horizon needs what has a larger number than its own.
//!
//! ```text
//! dies (0)   open A = 0   dies (1)   open B = 1   dies (2)
//!            A needs -------^--------------------- ^
//!                                    B needs ------^
//! ```
//!
//! Log sequence numbers would not do, because a record may die by being moved, and that takes no
//! room in the log of a table in memory.
//!
//! # Invariants
//!
//! - A horizon opens, and stamps are taken, under the writer's lock. A horizon closes anywhere.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The open horizons of one handle.
#[derive(Debug, Default)]
pub(crate) struct Horizons {
    now: AtomicU64,
    open: Mutex<BTreeSet<u64>>,
}

impl Horizons {
    /// Opens a horizon at this moment. For a thread that holds the writer's lock.
    pub(crate) fn open(&self) -> Horizon<'_> {
        let moment = self.now.fetch_add(1, Ordering::Relaxed);
        let is_new = self.lock().insert(moment);
        debug_assert!(is_new, "a moment has one horizon");
        Horizon { horizons: self, moment }
    }

    /// Returns the stamp of what dies now. For a thread that holds the writer's lock.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Returns the oldest open horizon: it needs what died at a larger stamp.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.lock().first().copied()
    }

    /// Returns whether no open horizon needs what died at `stamp`.
    #[cfg(test)]
    pub(crate) fn are_past(&self, stamp: u64) -> bool {
        self.oldest().is_none_or(|oldest| stamp <= oldest)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        // Each statement leaves the set whole.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps what is live at the moment when it opened, until it is dropped.
#[derive(Debug)]
pub(crate) struct Horizon<'a> {
    horizons: &'a Horizons,
    moment: u64,
}

impl Drop for Horizon<'_> {
    fn drop(&mut self) {
        let was_open = self.horizons.lock().remove(&self.moment);
        debug_assert!(was_open, "a horizon is open until it is dropped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_horizon_needs_what_dies_after_it_and_nothing_that_died_before() {
        let horizons = Horizons::default();
        let before = horizons.now();
        let horizon = horizons.open();
        let after = horizons.now();
        assert!(horizons.are_past(before));
        assert!(!horizons.are_past(after));
        drop(horizon);
        assert!(horizons.are_past(after));
    }

    #[test]
    fn the_oldest_open_horizon_decides() {
        let horizons = Horizons::default();
        let first = horizons.open();
        let between = horizons.now();
        let second = horizons.open();
        let after = horizons.now();
        assert!(!horizons.are_past(between) && !horizons.are_past(after));
        drop(first);
        assert!(horizons.are_past(between), "the second opened after it");
        assert!(!horizons.are_past(after));
        drop(second);
        assert!(horizons.are_past(after));
    }
}
