//! `PastMoments`: finds out what the snapshots of other processes no longer need.
//!
//! A reader of another process publishes its *moment*, the log sequence number of a commit, in its
//! place of the reader table, so that the writer keeps what dies later. A moment is like a
//! [horizon](crate::horizons) that the writer has not opened itself:
//!
//! ```text
//! reader   pin; load the commit, L; find out which segments have records; publish L; unpin
//!          for each read: pin; look whether L is evicted; read; unpin when the value is dropped
//!          take L back
//! writer   a segment is emptied when the log ended at D: no record in it is of a commit after D
//! ```
//!
//! So a segment may be reused when every moment has `L > D`: the reader of such a moment has found
//! the segment emptied. The writer establishes this in two grace periods:
//!
//! ```text
//! 1   end = the last commit + 1                 then a grace period
//! 2   below = the oldest moment, at most end    then a grace period: every segment with D < below is free
//! ```
//!
//! # Why it is right
//!
//! Consider a reader with `L <= D < below`, which may read the segment.
//!
//! - It must have loaded the commit before step 1. Otherwise it would have found `L >= end > D`, or
//!   the same commit and the segment already emptied, because a *round* frees only segments marked
//!   before its step 1, and the fences of the reader's pin and of the grace period are totally
//!   ordered. So the reader was pinned at step 1, and the first grace period waits until it has
//!   published its moment. A segment marked after step 1 may have the same `D`, if nothing was
//!   appended in between; it waits for the next round.
//! - If its moment is still published at step 2, `below <= L`, so the segment is kept.
//! - If the moment was withdrawn before step 2, every value read by it was pinned before step 2,
//!   and the second grace period waits for these pins.
//!
//! With only one grace period, a reader could publish its moment, pin a value on the new parity and
//! withdraw the moment while the writer waits for the old parity. Loom finds this, and also the
//! failure without the first period (`loom_tests`).
//!
//! If no reader has ever published a moment, no round is needed. Before a reader publishes its
//! first moment, it sets a flag in the head of the table, under the pin with which it has found the
//! segments. The writer loads the flag after the grace period of the segment, which has waited for
//! that pin.
//!
//! *Evicting* a moment is equivalent to withdrawing it: the mark is stored before step 2, and a
//! reader that does not see the mark after taking its pin was pinned before step 2.
//!
//! # Invariants
//!
//! - The commit, the marks of emptied segments, the steps and the marks of evicted moments are all
//!   stored under the writer's lock.

use crate::testing::mutant::{self, Mutant};

/// How far the writer knows what no moment of another process needs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PastMoments {
    below: u64,
    /// How many rounds have begun, and how many of these are over.
    begun: u64,
    over: u64,
    next: Option<Next>,
}

/// The step that waits for its grace period.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// Every moment before `end` is published or over then.
    Published { end: u64, ticket: u64 },
    /// Nobody needs what was emptied below then.
    Over { below: u64, ticket: u64 },
}

impl PastMoments {
    /// Returns the log sequence number below which no moment needs what was emptied before the last round that
    /// [is over](Self::is_over). It may be less than after the round before.
    pub(crate) fn below(&self) -> u64 {
        self.below
    }

    /// Returns how many rounds have begun: one that begins later frees what is emptied now.
    pub(crate) fn begun(&self) -> u64 {
        self.begun
    }

    /// Returns whether a round is over that began after `begun` rounds had begun.
    pub(crate) fn is_over(&self, begun: u64) -> bool {
        begun < self.over || mutant::is_made(Mutant::ForgetsRounds)
    }

    /// Takes a step if its grace period is over, where `unpinned` is the ticket below which all are, and
    /// returns whether it did. `committed` is the last commit, `oldest` looks at the moments and `ticket`
    /// begins a grace period.
    pub(crate) fn step(
        &mut self,
        unpinned: u64,
        committed: u64,
        oldest: impl FnOnce() -> Option<u64>,
        ticket: impl FnOnce() -> u64,
    ) -> bool {
        self.next = match self.next {
            None => {
                self.begun += 1;
                Some(Next::Published { end: committed + 1, ticket: ticket() })
            }
            Some(Next::Published { end, ticket: before })
                if before < unpinned || mutant::is_made(Mutant::LooksAtMomentsAtOnce) =>
            {
                let below = oldest().map_or(end, |oldest| oldest.min(end));
                let is_over = mutant::is_made(Mutant::OneGraceForMoments);
                let ticket = if is_over { before } else { ticket() };
                Some(Next::Over { below, ticket })
            }
            Some(Next::Over { below, ticket }) if ticket < unpinned => {
                // Not the largest so far: a moment of the commit at which the last round began may have been
                // published since, and what was emptied meanwhile is of that commit, too.
                self.below = if mutant::is_made(Mutant::KeepsLargestBelow) {
                    self.below.max(below)
                } else {
                    below
                };
                self.over = self.begun;
                None
            }
            Some(_) => return false,
        };
        true
    }

    /// Returns whether nothing is under way.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.next.is_none()
    }
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::pins::Pins;

    #[test]
    fn what_was_emptied_before_a_commit_is_free_after_two_grace_periods() {
        let mut past = PastMoments::default();
        assert!(past.step(0, 100, || unreachable!(), || 0));
        assert!(!past.step(0, 120, || unreachable!(), || unreachable!()));
        assert!(past.step(1, 120, || None, || 1));
        assert!(!past.step(1, 120, || unreachable!(), || unreachable!()));
        assert_eq!(past.below(), 0);
        assert!(past.step(2, 120, || unreachable!(), || unreachable!()));
        assert_eq!((past.below(), past.is_at_rest()), (101, true));
    }

    #[test]
    fn the_oldest_moment_keeps_what_was_emptied_since() {
        let mut past = PastMoments::default();
        for (i, oldest) in [(0, Some(40)), (2, Some(40)), (4, Some(90)), (6, Some(300))] {
            past.step(i, 200, || unreachable!(), || i);
            past.step(i + 1, 200, || oldest, || i + 1);
            past.step(i + 2, 200, || unreachable!(), || unreachable!());
            assert_eq!(past.below(), oldest.unwrap().min(201));
        }
    }

    /// A round frees what was emptied before 200; then a snapshot of 200 is taken, and something is emptied
    /// without a commit. Returns whether the next round frees that.
    fn frees_what_died_at_the_moment() -> bool {
        let mut past = PastMoments::default();
        let round = |past: &mut PastMoments, i: u64, oldest: Option<u64>| {
            past.step(i, 200, || unreachable!(), || i);
            past.step(i + 1, 200, || oldest, || i + 1);
            past.step(i + 2, 200, || unreachable!(), || unreachable!());
        };
        round(&mut past, 0, None);
        let begun = past.begun();
        round(&mut past, 2, Some(200));
        assert!(past.is_over(begun));
        200 < past.below()
    }

    #[test]
    fn a_moment_keeps_what_was_emptied_at_its_commit_after_it() {
        assert!(!frees_what_died_at_the_moment());
        assert!(mutant::with(Mutant::KeepsLargestBelow, frees_what_died_at_the_moment));
    }

    /// A reader publishes its moment, pins a value and takes the moment back while the writer waits for the
    /// first pin. Returns whether the writer frees what the value may be in.
    fn frees_under_a_value() -> bool {
        let (pins, mut past) = (Pins::default(), PastMoments::default());
        let mut look = || {
            past.step(pins.poll(), 8, || None, || pins.ticket());
            past.below() > 8
        };
        let looking = pins.pin();
        assert!(!look() && !look(), "the reader may publish");
        let value = pins.pin();
        drop(looking);
        let is_freed = (0..9).any(|_| look());
        drop(value);
        assert!((0..9).any(|_| look()), "nobody reads it");
        is_freed
    }

    #[test]
    fn one_grace_period_for_moments_is_found() {
        assert!(!frees_under_a_value());
        assert!(mutant::with(Mutant::OneGraceForMoments, frees_under_a_value));
    }
}
