//! `Horizons`: the moments that open snapshots, scans and backups look back to.
//!
//! A snapshot returns the record that was current when it was taken, so what dies after that must stay
//! until the snapshot is dropped. A [pin](crate::pins) is too weak for it: the snapshot has yet to come
//! to the record, and has nothing of it but the moment.
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
//! A horizon that holds back more than it may is *evicted*: it counts as closed, and its owner finds out
//! by [`Horizon::is_evicted`].
//!
//! # Invariants
//!
//! - A horizon opens, stamps are taken, and horizons are evicted under the writer's lock. A horizon
//!   closes anywhere.
//! - Whoever reads by a horizon pins what it reads, then looks whether the horizon is evicted. Space that
//!   a horizon held is used again only after a grace period that begins when it has gone.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::births::AsOf;

/// The open horizons of one handle.
#[derive(Debug, Default)]
pub(crate) struct Horizons {
    now: AtomicU64,
    open: Mutex<Open>,
    /// How many are open, evicted ones not counted.
    open_count: AtomicU64,
    /// Those of a smaller moment were evicted, unless they are closed: the oldest are evicted first.
    evicted_below: AtomicU64,
}

/// The moments of the open horizons and what these are for, the oldest first.
type Open = VecDeque<(u64, Terms)>;

/// What a horizon is for.
#[derive(Debug)]
pub(crate) struct Terms {
    /// What its owner reads by; `None` for one that reads the log and asks for no version.
    pub(crate) as_of: Option<AsOf>,
    /// The most bytes that it may hold back.
    pub(crate) bytes_max: u64,
    /// The owner needs no record before this offset any more; `None` if it always needs them all.
    passed_offset: Option<Arc<AtomicU64>>,
}

impl Terms {
    /// Returns the terms of an owner that reads `as_of` a moment and may hold back `bytes_max`.
    pub(crate) fn new(as_of: Option<AsOf>, bytes_max: u64) -> Self {
        Self { as_of, bytes_max, passed_offset: None }
    }

    /// Returns these terms of an owner that reads each record once, in the order of their offsets.
    pub(crate) fn of_scan(self) -> Self {
        Self { passed_offset: Some(Arc::default()), ..self }
    }

    /// Returns whether the owner needs no record at `offset` any more.
    pub(crate) fn is_passed(&self, offset: u64) -> bool {
        self.passed_offset.as_ref().is_some_and(|passed| offset < passed.load(Ordering::Relaxed))
    }
}

impl Horizons {
    /// Opens a horizon at this moment. For a thread that holds the writer's lock.
    pub(crate) fn open(&self, terms: Terms) -> Horizon<'_> {
        let passed_offset = terms.passed_offset.clone();
        let mut open = self.lock();
        // Under this lock, for `past`.
        let moment = self.now.fetch_add(1, Ordering::Relaxed);
        debug_assert!(open.back().is_none_or(|last| last.0 < moment), "a moment has one horizon");
        open.push_back((moment, terms));
        self.open_count.store(open.len() as u64, Ordering::Relaxed);
        Horizon { horizons: self, moment, passed_offset }
    }

    /// Returns the stamp of what dies now. For a thread that holds the writer's lock.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Returns whether any is open. For a thread that holds the writer's lock.
    #[inline]
    pub(crate) fn is_any_open(&self) -> bool {
        self.open_count.load(Ordering::Relaxed) != 0
    }

    /// Returns the largest stamp of which no open horizon needs what died then, nor will one that opens
    /// later.
    pub(crate) fn past(&self) -> u64 {
        let open = self.lock();
        open.front().map_or_else(|| self.now(), |oldest| oldest.0)
    }

    /// Returns whether no open horizon needs what died at `stamp`.
    #[cfg(test)]
    pub(crate) fn are_past(&self, stamp: u64) -> bool {
        stamp <= self.past()
    }

    /// Returns whether one of the open horizons is as asked for.
    pub(crate) fn any(&self, mut is_it: impl FnMut(&Terms) -> bool) -> bool {
        self.lock().iter().any(|(_, terms)| is_it(terms))
    }

    /// Evicts the oldest horizons that hold back more than they may; `held_bytes` says what one of a
    /// moment does. For a thread that holds the writer's lock.
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
        // Each statement leaves it whole.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps what is live at the moment when it opened, until it is dropped or evicted.
#[derive(Debug)]
pub(crate) struct Horizon<'a> {
    horizons: &'a Horizons,
    moment: u64,
    passed_offset: Option<Arc<AtomicU64>>,
}

impl Horizon<'_> {
    /// Returns the moment: it needs what dies at a larger stamp.
    pub(crate) fn moment(&self) -> u64 {
        self.moment
    }

    /// Returns whether it keeps nothing any more. Ask after the bytes that are read are pinned, and once
    /// more when what was found depends on what was *not* there.
    #[inline]
    pub(crate) fn is_evicted(&self) -> bool {
        self.moment < self.horizons.evicted_below.load(Ordering::SeqCst)
    }

    /// Notes that the owner needs no record before `offset` any more.
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
