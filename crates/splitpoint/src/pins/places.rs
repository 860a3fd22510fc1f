//! Assigns a place to each thread: a number, which is the same in every handle.
//!
//! A thread gets the lowest free number when it first pins, and returns it when it ends. Rejected:
//! a place for each pair of thread and handle, because every pin would have to search for it.
//! Threads beyond the number of places get numbers round-robin and share the places of others. That
//! is correct, because counters change by atomic additions, but slower.
//!
//! Nothing here takes a lock, because the child of a fork may inherit any state. In the child, the
//! numbers of threads that it does not have stay taken.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::PLACE_COUNT;

#[cfg(not(loom))]
const _: () = assert!(PLACE_COUNT == u64::BITS as usize, "each number has a bit");

/// The numbers that are taken, one bit each.
static TAKEN: AtomicU64 = AtomicU64::new(0);
/// One more than the largest number ever taken.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Number of threads that found all numbers taken.
static BEYOND: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The number of this thread, or `usize::MAX` before its first pin. It has no destructor, so
    /// that a pin costs one load.
    static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
    static OWNED: Owned = const { Owned(Cell::new(None)) };
}

/// The number that this thread returns when it ends.
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

/// Returns a bound: no thread of this process has had a place with this number or a higher one.
pub(super) fn used_count() -> usize {
    // The threads of the loom tests choose their places themselves.
    if cfg!(loom) { PLACE_COUNT } else { USED.load(Ordering::Relaxed) }
}

#[cold]
fn take() -> usize {
    let number = if let Some(number) = claim() {
        // If the thread is ending already, nothing would return the number later, so return it now.
        // Sharing a place is correct.
        if OWNED.try_with(|owned| owned.0.set(Some(number))).is_err() {
            give_back(number);
        }
        number
    } else {
        BEYOND.fetch_add(1, Ordering::Relaxed) % PLACE_COUNT
    };
    // Ordered before the thread's first count: a writer that sees that count after its fence also
    // sees this.
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

    /// One test, because the numbers are global to the process. Concurrent tests have some of them.
    #[test]
    fn a_thread_gives_its_number_back_and_threads_beyond_the_places_share_them() {
        let mut distinct = std::collections::BTreeSet::new();
        // Start more threads than there are numbers, one after the other.
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
