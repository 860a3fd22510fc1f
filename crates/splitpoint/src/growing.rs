//! `Growing`: memory that grows, and may move to do so, under readers that take no lock.
//!
//! A mapping can outgrow the address space reserved for it. Then the writer maps the same bytes
//! again at another address, with more space, and keeps the old mapping until the handle is closed,
//! because slices and lines that were handed out lie in it. For readers, only one pointer and one
//! count change.
//!
//! Rejected: a lock around the two, because readers would write to a shared cache line; and one
//! word for both, because a base has 48 bits and a count up to 43.
//!
//! # Invariants
//!
//! - A new base shows everything that the old one shows: the same pages, or a copy of bytes to
//!   which the writer no longer stores. A reader for which later stores matter must learn of the
//!   move. For the lines of an index, the epoch of the shape tells it; for the view it need not,
//!   because published records do not change.
//! - The writer stores the base before the count, and the count before anything that leads a reader
//!   past the old count: a slot, the number of an overflow line, the shape of the table. All of
//!   these are release stores, in that order.
//! - A reader loads in the opposite order, each time with acquire: the word that leads it there,
//!   then the count, *then* the base. So a reader that sees a count sees a base that covers it. If
//!   it loaded the base first, it could pair an old base with a new count, and reach past the end
//!   of a mapping; a test below shows that loom finds this.
//!
//! For a bucket the shape takes the place of the count. The writer stores the base of the buckets
//! before a shape that needs it, and the reader loads the shape first.

use crate::atomic::{AtomicPtr, AtomicU64, Ordering};

/// The base of the memory, and its size in units of `T`.
#[derive(Debug)]
pub(crate) struct Growing<T> {
    base: AtomicPtr<T>,
    count: AtomicU64,
}

impl<T> Growing<T> {
    pub(crate) fn new(base: *mut T, count: u64) -> Self {
        Self { base: AtomicPtr::new(base), count: AtomicU64::new(count) }
    }

    /// Returns the size; load it before the [`base`](Self::base).
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Returns a base that covers every count, line and shape that this thread has loaded before.
    #[inline]
    pub(crate) fn base(&self) -> *mut T {
        self.base.load(Ordering::Acquire)
    }

    /// Publishes a larger size, perhaps at another base. One thread at a time.
    pub(crate) fn grow(&self, base: *mut T, count: u64) {
        self.base.store(base, Ordering::Release);
        self.count.fetch_max(count, Ordering::AcqRel);
    }

    /// Publishes like [`grow`](Self::grow) a size that may be smaller. The memory behind it stays
    /// mapped.
    pub(crate) fn set(&self, base: *mut T, count: u64) {
        self.base.store(base, Ordering::Release);
        self.count.store(count, Ordering::Release);
    }

    /// Publishes a size of at most `count`.
    pub(crate) fn cut(&self, count: u64) {
        self.count.fetch_min(count, Ordering::AcqRel);
    }
}

/// Runs every interleaving of a reader with a writer that moves twice, by loom.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// A mapping, reduced to what a reader can get wrong.
    struct Mapping {
        count: u64,
    }

    /// The mappings to which the writer moves, larger each time. They stay forever, like real ones
    /// until the handle is closed.
    static MAPPINGS: [Mapping; 3] =
        [Mapping { count: 1 }, Mapping { count: 2 }, Mapping { count: 4 }];

    fn mapping(number: usize) -> *mut Mapping {
        std::ptr::from_ref(&MAPPINGS[number]).cast_mut()
    }

    /// Runs `reader` on memory that a writer grows twice; `lead` is the last place that the writer
    /// has filled.
    fn grow_under(reader: fn(&Growing<Mapping>, &AtomicU64)) {
        loom::model(move || {
            let memory = Arc::new(Growing::new(mapping(0), 1));
            let lead = Arc::new(AtomicU64::new(0));
            let (seen, led) = (memory.clone(), lead.clone());
            let thread = thread::spawn(move || reader(&seen, &led));
            for number in 1..MAPPINGS.len() {
                let count = MAPPINGS[number].count;
                memory.grow(mapping(number), count);
                lead.store(count - 1, Ordering::Release);
            }
            thread.join().unwrap();
        });
    }

    fn covered(base: *mut Mapping) -> u64 {
        let is_it = |mapping: &&Mapping| std::ptr::eq(*mapping, base);
        MAPPINGS.iter().find(is_it).expect("only these are published").count
    }

    #[test]
    fn loom_a_reader_finds_what_it_was_led_to_and_a_base_that_covers_the_count() {
        grow_under(|memory, lead| {
            let place = lead.load(Ordering::Acquire);
            let count = memory.count();
            assert!(place < count, "led to {place} of {count}");
            assert!(count <= covered(memory.base()));
        });
    }

    /// This is how a reader reaches a bucket, by the shape.
    #[test]
    fn loom_a_reader_that_looks_at_no_count_finds_what_it_was_led_to() {
        grow_under(|memory, lead| {
            let place = lead.load(Ordering::Acquire);
            assert!(place < covered(memory.base()));
        });
    }

    /// Shows that the test above can fail: this is the wrong order.
    #[test]
    #[should_panic(expected = "an old base")]
    fn loom_a_base_that_is_loaded_first_may_be_too_old() {
        grow_under(|memory, _| {
            let base = memory.base();
            assert!(memory.count() <= covered(base), "an old base");
        });
    }
}
