//! The interleavings, with up to three preemptions, of a reader that looks back with a writer that empties a
//! segment and uses its space again, by loom. The pins are the real ones, counted in one table as if both were of one process.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p splitpoint --profile loom --lib loom_moments
//! ```

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::PastMoments;
use crate::atomic::{AtomicU64, Ordering, fence};
use crate::pins::Pins;
use crate::testing::mutant::{self, Mutant};

/// The commit before the change that empties the segment, its own, and one that follows.
const COMMITS: [u64; 3] = [8, 16, 24];
/// Looks of the writer at what it may use again: more than the pins of one reader hold up in a round.
const LOOKS: usize = 5;
/// In the word of a moment, so that it is not 0.
const IS_MOMENT: u64 = 1;

/// What reader and writer share of a store of one key, whose first record is in a segment of its own.
struct Shared {
    pins: Pins,
    commit: AtomicU64,
    /// Whether the segment table says that the segment was emptied.
    is_emptied: AtomicU64,
    /// Whether a reader has looked back.
    has_moments: AtomicU64,
    /// The place of the reader.
    moment: AtomicU64,
    evicted: AtomicU64,
    /// The record. Loom fails when the writer stores to it while the reader may read it.
    record: UnsafeCell<u64>,
}

/// Whether anybody has looked back before the reader does.
#[derive(Clone, Copy)]
enum Looked {
    Never,
    Before,
}

/// When the reader takes its moment back.
#[derive(Clone, Copy, PartialEq)]
enum TakenBack {
    /// While it has a value.
    Early,
    /// After it has dropped the value.
    Late,
}

/// How the writer empties the segment.
#[derive(Clone, Copy, PartialEq)]
enum Emptied {
    /// By a change.
    Changed,
    /// By a change, and gives up the moment that looks back.
    GivenUp,
    /// By a move, which commits nothing, while a round of looks is under way.
    Moved,
}

impl Shared {
    fn new(looked: Looked) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            pins: Pins::default(),
            commit: AtomicU64::new(COMMITS[0]),
            is_emptied: zero(),
            has_moments: AtomicU64::new(looked as u64),
            moment: zero(),
            evicted: zero(),
            record: UnsafeCell::new(0),
        }
    }

    /// Takes a snapshot and reads the record, if it was there and the moment is not given up.
    fn look_back(&self, taken_back: TakenBack) {
        let place = 0;
        let looking = self.pins.pin_at(place);
        let since = self.commit.load(Ordering::Acquire);
        let is_there = self.is_emptied.load(Ordering::Acquire) == 0;
        if !mutant::is_made(Mutant::HidesMoments) {
            self.has_moments.store(1, Ordering::SeqCst);
        }
        self.moment.store(since | IS_MOMENT, Ordering::SeqCst);
        drop(looking);
        if !is_there {
            return;
        }
        let value = self.pins.pin_at(place);
        if self.evicted.load(Ordering::SeqCst) > since {
            return;
        }
        if taken_back == TakenBack::Early {
            self.moment.store(0, Ordering::SeqCst);
        }
        self.record.with(|_| ());
        drop(value);
        if taken_back == TakenBack::Late {
            self.moment.store(0, Ordering::SeqCst);
        }
    }

    fn oldest(&self) -> Option<u64> {
        let moment = self.moment.load(Ordering::SeqCst);
        let since = (moment & !IS_MOMENT).max(self.evicted.load(Ordering::Relaxed));
        (moment & IS_MOMENT != 0).then_some(since)
    }

    /// Empties the segment, and stores to it when nobody needs it any more.
    fn use_again(&self, emptied: Emptied) {
        let mut past = PastMoments::default();
        let [_, emptied_at, last] = COMMITS;
        self.commit.store(emptied_at, Ordering::Release);
        let is_moved = emptied == Emptied::Moved;
        let last = if is_moved { emptied_at } else { last };
        // Another grace period may be under way, so that those of the segment and of the first step are one.
        let mut unpinned = 0;
        if is_moved {
            // Somebody has looked back.
            past.step(unpinned, last, || unreachable!(), || self.pins.ticket());
            // That of the round may be over when the segment is emptied.
            unpinned = self.pins.poll();
        }
        self.is_emptied.store(1, Ordering::Release);
        let (ticket, round) = (self.pins.ticket(), past.begun());
        self.commit.store(last, Ordering::Release);
        // The second round is the one that frees it.
        for look in 0..if is_moved { 2 * LOOKS } else { LOOKS } {
            if emptied == Emptied::GivenUp && look == 1 {
                self.evicted.store(emptied_at + 1, Ordering::SeqCst);
                fence(Ordering::SeqCst);
            }
            fence(Ordering::SeqCst);
            let may_look_back = self.has_moments.load(Ordering::SeqCst) != 0;
            if may_look_back {
                past.step(unpinned, last, || self.oldest(), || self.pins.ticket());
            }
            let is_past = !may_look_back || emptied_at < past.below() && past.is_over(round);
            if is_past && ticket < unpinned {
                self.record.with_mut(|_| ());
                break;
            }
            unpinned = self.pins.poll();
        }
    }
}

/// Runs a reader beside a writer.
fn look_back_beside_a_writer(looked: Looked, taken_back: TakenBack, emptied: Emptied) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 20_000;
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let shared = Arc::new(Shared::new(looked));
        let (reading, writing) = (shared.clone(), shared);
        let reader = thread::spawn(move || reading.look_back(taken_back));
        let writer = thread::spawn(move || writing.use_again(emptied));
        reader.join().unwrap();
        writer.join().unwrap();
    });
}

#[test]
fn loom_moments_keep_what_a_snapshot_reads() {
    look_back_beside_a_writer(Looked::Before, TakenBack::Late, Emptied::Changed);
}

#[test]
fn loom_moments_keep_what_the_first_snapshot_reads() {
    for taken_back in [TakenBack::Early, TakenBack::Late] {
        look_back_beside_a_writer(Looked::Never, taken_back, Emptied::Changed);
    }
}

#[test]
fn loom_moments_that_are_taken_back_keep_the_values_of_the_snapshot() {
    look_back_beside_a_writer(Looked::Before, TakenBack::Early, Emptied::Changed);
}

#[test]
fn loom_moments_that_are_given_up_keep_what_is_being_read() {
    look_back_beside_a_writer(Looked::Before, TakenBack::Late, Emptied::GivenUp);
}

#[test]
fn loom_moments_keep_what_was_moved_while_a_round_was_under_way() {
    look_back_beside_a_writer(Looked::Before, TakenBack::Late, Emptied::Moved);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_moments_of_which_the_writer_is_not_told_are_missed() {
    mutant::with(Mutant::HidesMoments, || {
        look_back_beside_a_writer(Looked::Never, TakenBack::Late, Emptied::Changed);
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_moments_of_a_round_that_was_under_way_are_missed() {
    mutant::with(Mutant::ForgetsRounds, || {
        look_back_beside_a_writer(Looked::Before, TakenBack::Late, Emptied::Moved);
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_moments_published_after_an_earlier_round_are_missed() {
    mutant::with(Mutant::KeepsLargestBelow, || {
        look_back_beside_a_writer(Looked::Before, TakenBack::Late, Emptied::Moved);
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_moments_that_nobody_waits_for_before_the_look_are_missed() {
    mutant::with(Mutant::LooksAtMomentsAtOnce, || {
        look_back_beside_a_writer(Looked::Before, TakenBack::Late, Emptied::Changed);
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_moments_that_are_taken_back_need_the_second_grace_period() {
    mutant::with(Mutant::OneGraceForMoments, || {
        look_back_beside_a_writer(Looked::Before, TakenBack::Early, Emptied::Changed);
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_moments_that_are_given_up_need_the_second_grace_period() {
    mutant::with(Mutant::OneGraceForMoments, || {
        look_back_beside_a_writer(Looked::Before, TakenBack::Late, Emptied::GivenUp);
    });
}
