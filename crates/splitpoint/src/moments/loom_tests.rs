//! Every interleaving of a reader with a moment and a writer that uses a segment again, by loom.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p splitpoint --profile loom --lib loom
//! ```

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::PastMoments;
use crate::atomic::{AtomicU64, Ordering};
use crate::pins::Pins;
use crate::testing::mutant::{self, Mutant};

/// A record that the commit 8 replaces.
struct Table {
    pins: Pins,
    commit: AtomicU64,
    /// The moment that is published, plus one; 0 for none.
    moment: AtomicU64,
    /// Loom fails when one thread writes to a cell that another may be reading.
    old: UnsafeCell<u64>,
}

impl Table {
    fn read(&self) {
        let pin = self.pins.pin_at(0);
        let commit = self.commit.load(Ordering::Acquire);
        self.moment.store(commit + 1, Ordering::SeqCst);
        drop(pin);
        let value = self.pins.pin_at(0);
        self.moment.store(0, Ordering::SeqCst);
        if commit == 0 {
            self.old.with(|_| ());
        }
        drop(value);
    }

    fn replace(&self, looks: usize) {
        self.commit.store(8, Ordering::Release);
        let (emptied_at, ticket) = (8, self.pins.ticket());
        let mut past = PastMoments::default();
        for _ in 0..looks {
            let unpinned = self.pins.poll();
            let oldest = || self.moment.load(Ordering::SeqCst).checked_sub(1);
            past.step(unpinned, 8, oldest, || self.pins.ticket());
            if ticket < unpinned && emptied_at < past.below() {
                self.old.with_mut(|_| ());
                return;
            }
        }
    }
}

fn explore() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let table = Arc::new(Table {
            pins: Pins::default(),
            commit: AtomicU64::new(0),
            moment: AtomicU64::new(0),
            old: UnsafeCell::new(0),
        });
        let reader = {
            let table = table.clone();
            thread::spawn(move || table.read())
        };
        table.replace(6);
        reader.join().unwrap();
    });
}

#[test]
fn loom_a_moment_keeps_what_it_may_read() {
    explore();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_one_grace_period_for_moments_is_found() {
    mutant::with(Mutant::OneGraceForMoments, explore);
}
