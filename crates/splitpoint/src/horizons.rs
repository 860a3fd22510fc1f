//! `Horizons`: the moments to which open snapshots, scans and backups look back.
//!
//! A snapshot returns the record that was current when it was taken, so records that die later must
//! stay until the snapshot is dropped. A [pin](crate::pins) is not suited for this: it protects
//! records that a reader has already reached, whereas a snapshot knows only its moment.
//!
//! The horizons themselves number the moments: each horizon that opens begins a new one. A record
//! that dies is stamped with the present moment, and a horizon needs all records with a larger
//! stamp than its own.
//!
//! ```text
//! dies (0)   open A = 0   dies (1)   open B = 1   dies (2)
//!            A needs -------^--------------------- ^
//!                                    B needs ------^
//! ```
//!
//! Log sequence numbers cannot serve as moments, because a record may die by being moved, which
//! does not advance the log of a table in memory.
//!
//! A horizon that holds more space than it may is *evicted*: it counts as closed, and its owner
//! finds out by [`Horizon::is_evicted`].
//!
//! # Invariants
//!
//! - Horizons open and are evicted, and stamps are taken, under the writer's lock. A horizon may
//!   close on any thread without it.
//! - A reader first pins what it reads, then checks that its horizon is not evicted. Space that a
//!   horizon held is reused only after a grace period that begins when the horizon is gone.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::births::AsOf;

/// The open horizons of one handle.
#[derive(Debug, Default)]
pub(crate) struct Horizons {
    now: AtomicU64,
    open: Mutex<Open>,
    /// Number of open horizons, without evicted ones.
    open_count: AtomicU64,
    /// All horizons of smaller moments that are not closed were evicted: the oldest are evicted
    /// first.
    evicted_below: AtomicU64,
}

/// The moments and terms of the open horizons, oldest first.
type Open = VecDeque<(u64, Terms)>;

/// The terms on which a horizon is open.
#[derive(Debug)]
pub(crate) struct Terms {
    /// The records that its owner reads; `None` for an owner that reads the log without asking for
    /// versions.
    pub(crate) as_of: Option<AsOf>,
    /// Largest number of bytes that it may hold.
    pub(crate) bytes_max: u64,
    /// The owner no longer needs records before this offset; `None` if it needs all of them until
    /// the end.
    passed_offset: Option<Arc<AtomicU64>>,
}

impl Terms {
    /// Returns the terms of an owner that reads `as_of` a moment and may hold `bytes_max`.
    pub(crate) fn new(as_of: Option<AsOf>, bytes_max: u64) -> Self {
        Self { as_of, bytes_max, passed_offset: None }
    }

    /// Returns these terms for an owner that reads each record once, in the order of offsets.
    pub(crate) fn of_scan(self) -> Self {
        Self { passed_offset: Some(Arc::default()), ..self }
    }

    /// Returns whether the owner no longer needs a record at `offset`.
    pub(crate) fn is_passed(&self, offset: u64) -> bool {
        self.passed_offset.as_ref().is_some_and(|passed| offset < passed.load(Ordering::Relaxed))
    }
}

impl Horizons {
    /// Opens a horizon at the present moment. The caller holds the writer's lock.
    pub(crate) fn open(&self, terms: Terms) -> Horizon<'_> {
        let passed_offset = terms.passed_offset.clone();
        let mut open = self.lock();
        // Changed under this lock, so that `past` sees both changes or none.
        let moment = self.now.fetch_add(1, Ordering::Relaxed);
        debug_assert!(open.back().is_none_or(|last| last.0 < moment), "a moment has one horizon");
        open.push_back((moment, terms));
        self.open_count.store(open.len() as u64, Ordering::Relaxed);
        Horizon { horizons: self, moment, passed_offset }
    }

    /// Returns the stamp for a record that dies now. The caller holds the writer's lock.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Returns whether a horizon is open. The caller holds the writer's lock.
    #[inline]
    pub(crate) fn is_any_open(&self) -> bool {
        self.open_count.load(Ordering::Relaxed) != 0
    }

    /// Returns the largest stamp such that no open or future horizon needs what died at it.
    pub(crate) fn past(&self) -> u64 {
        let open = self.lock();
        open.front().map_or_else(|| self.now(), |oldest| oldest.0)
    }

    /// Returns whether no open horizon needs what died at `stamp`.
    #[cfg(test)]
    pub(crate) fn are_past(&self, stamp: u64) -> bool {
        stamp <= self.past()
    }

    /// Returns whether `is_it` holds for one of the open horizons.
    pub(crate) fn any(&self, mut is_it: impl FnMut(&Terms) -> bool) -> bool {
        self.lock().iter().any(|(_, terms)| is_it(terms))
    }

    /// Evicts the oldest horizons as long as they hold more than they may; `held_bytes` returns how
    /// much a horizon of a given moment holds. The caller holds the writer's lock.
    pub(crate) fn evict(&self, held_bytes: impl Fn(u64) -> u64) {
        let mut open = self.lock();
        while let Some((moment, terms)) = open.front()
            && held_bytes(*moment) > terms.bytes_max
        {
            self.evicted_below.store(moment + 1, Ordering::SeqCst);
            open.pop_front();
        }
        self.open_count.store(open.len() as u64, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        // Ignore poison: each statement leaves the list consistent.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the records that were live when it was opened, until it is dropped or evicted.
#[derive(Debug)]
pub(crate) struct Horizon<'a> {
    horizons: &'a Horizons,
    moment: u64,
    passed_offset: Option<Arc<AtomicU64>>,
}

impl Horizon<'_> {
    /// Returns the moment. The horizon needs what dies at a larger stamp.
    pub(crate) fn moment(&self) -> u64 {
        self.moment
    }

    /// Returns whether the horizon has been evicted and keeps nothing. Call this after pinning the
    /// bytes that are read, and again afterwards if the result depends on something *not* being
    /// found.
    #[inline]
    pub(crate) fn is_evicted(&self) -> bool {
        self.moment < self.horizons.evicted_below.load(Ordering::SeqCst)
    }

    /// Releases the records before `offset`, which the owner no longer needs.
    #[inline]
    pub(crate) fn pass(&self, offset: u64) {
        if let Some(passed) = &self.passed_offset {
            passed.store(offset, Ordering::Relaxed);
        }
    }
}

impl Drop for Horizon<'_> {
    fn drop(&mut self) {
        let mut open = self.horizons.lock();
        let found = open.binary_search_by_key(&self.moment, |it| it.0);
        debug_assert!(found.is_ok() || self.is_evicted(), "a horizon is open until it is dropped");
        if let Ok(at) = found {
            open.remove(at);
        }
        self.horizons.open_count.store(open.len() as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unbounded() -> Terms {
        Terms::new(None, u64::MAX)
    }

    #[test]
    fn a_horizon_needs_what_dies_after_it_and_nothing_that_died_before() {
        let horizons = Horizons::default();
        let before = horizons.now();
        let horizon = horizons.open(unbounded());
        let after = horizons.now();
        assert!(horizons.are_past(before));
        assert!(!horizons.are_past(after));
        drop(horizon);
        assert!(horizons.are_past(after) && !horizons.is_any_open());
    }

    #[test]
    fn the_oldest_open_horizon_decides() {
        let horizons = Horizons::default();
        let first = horizons.open(unbounded());
        let between = horizons.now();
        let second = horizons.open(unbounded());
        let after = horizons.now();
        assert!(!horizons.are_past(between) && !horizons.are_past(after));
        drop(first);
        assert!(horizons.are_past(between), "the second opened after it");
        assert!(!horizons.are_past(after));
        drop(second);
        assert!(horizons.are_past(after));
    }

    #[test]
    fn the_oldest_horizons_are_evicted_until_one_holds_back_no_more_than_it_may() {
        let horizons = Horizons::default();
        let open: Vec<_> =
            [10, 10, 100, 10].map(|bytes_max| horizons.open(Terms::new(None, bytes_max))).into();
        // The older, the more.
        horizons.evict(|moment| 50 - 10 * moment);
        let evicted: Vec<bool> = open.iter().map(Horizon::is_evicted).collect();
        assert_eq!(evicted, [true, true, false, false]);
        assert_eq!(horizons.past(), 2);
        drop(open);
        assert!(!horizons.is_any_open());
    }
}
