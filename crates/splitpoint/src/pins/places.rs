//! Which place a thread has: its number, which is the same in every handle.
//!
//! A thread gets the lowest free number when it first pins, and gives it back when it ends. A table
//! of places for each pair of thread and handle would cost every pin a search. Threads beyond the
//! places get numbers in turn, and share the places of others: correct, because counters change by
//! atomic additions, and slower.
//!
//! Nothing here takes a lock, because a child of a fork may find any state. It keeps the numbers of
//! threads that it does not have.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::PLACE_COUNT;

#[cfg(not(loom))]
const _: () = assert!(PLACE_COUNT == u64::BITS as usize, "each number has a bit");

/// The numbers that threads have, a bit each.
static TAKEN: AtomicU64 = AtomicU64::new(0);
/// One more than the largest number that a thread has had.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Threads that got a number while all were taken.
static BEYOND: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The number of this thread, or `usize::MAX` before its first pin. It has no destructor, so
    /// that a pin costs one load.
    static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
    static OWNED: Owned = const { Owned(Cell::new(None)) };
}

/// The number that this thread gives back.
struct Owned(Cell<Option<usize>>);

impl Drop for Owned {
    fn drop(&mut self) {
        if let Some(number) = self.0.get() {
            give_back(number);
        }
    }
}

/// Returns the number of this thread, below [`PLACE_COUNT`].
#[inline]
pub(super) fn number() -> usize {
    let number = NUMBER.get();
    if number < PLACE_COUNT { number } else { take() }
}

/// Returns how many places have been in use since the process began.
pub(super) fn used_count() -> usize {
    // Loom's threads choose their places themselves.
    if cfg!(loom) { PLACE_COUNT } else { USED.load(Ordering::Relaxed) }
}

#[cold]
fn take() -> usize {
    let number = if let Some(number) = claim() {
        // In a thread that is ending, nobody would give it back later. To share it is no mistake.
        if OWNED.try_with(|owned| owned.0.set(Some(number))).is_err() {
            give_back(number);
        }
        number
    } else {
        BEYOND.fetch_add(1, Ordering::Relaxed) % PLACE_COUNT
    };
    // Before the thread counts: a writer that looks after its fence sees both.
    USED.fetch_max(number + 1, Ordering::Relaxed);
    NUMBER.set(number);
    number
}

/// Takes the lowest free number.
fn claim() -> Option<usize> {
    let lowest = |taken: u64| (!taken).trailing_zeros();
    let with_lowest = |taken: u64| Some(taken | 1_u64.checked_shl(lowest(taken))?);
    let before = TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with_lowest).ok()?;
    Some(lowest(before) as usize % PLACE_COUNT)
}

fn give_back(number: usize) {
    TAKEN.fetch_and(!(1 << number), Ordering::Relaxed);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Barrier;

    use super::*;

    /// One test, because the numbers are those of the process. Other tests have some of them.
    #[test]
    fn a_thread_gives_its_number_back_and_threads_beyond_the_places_share_them() {
        let mut distinct = std::collections::BTreeSet::new();
        // More threads than there are numbers, one after the other.
        for _ in 0..2 * PLACE_COUNT {
            let thread = std::thread::spawn(|| {
                assert_eq!(number(), number(), "a thread keeps its number");
                assert!(number() < used_count());
                number()
            });
            distinct.insert(thread.join().unwrap());
        }
        assert!(distinct.len() < PLACE_COUNT, "no number was used again");

        let thread_count = PLACE_COUNT + 10;
        let all_have_one = Barrier::new(thread_count);
        let numbers: Vec<usize> = std::thread::scope(|scope| {
            let run = || {
                let number = number();
                all_have_one.wait();
                number
            };
            let threads: Vec<_> = (0..thread_count).map(|_| scope.spawn(run)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(numbers.iter().all(|&number| number < PLACE_COUNT));
        assert_eq!(used_count(), PLACE_COUNT);
    }
}
