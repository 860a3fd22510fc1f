//! `Growing`: memory that grows under readers that take no lock, and may move to do so.
//!
//! Mappings outgrow the address space that was reserved for them. Then there is a larger mapping of
//! the same bytes elsewhere, and the old one stays as long as the handle, since slices and lines
//! that were handed out lie in it. What changes for readers is one pointer and one count.
//!
//! # Invariants
//!
//! - A new base shows all that the old one shows: the same pages, or a copy of bytes that the
//!   writer stores to no more.
//! - The base is stored before the count, and the count before whatever leads a reader behind the
//!   old count: a slot, the number of an overflow line, the shape of the table. All of these stores
//!   release, in that order.
//! - A reader loads in the opposite order and acquires each time: what leads there, the count,
//!   *then* the base. A reader that sees a count thus sees a base that covers it. In the order
//!   base, count it could pair an old base with a new count and reach behind the end of a mapping.
//!
//! A bucket is reached by the shape, without a look at the count: the writer stores the base of the
//! buckets before a shape that needs it, and the reader loads the shape first.

use crate::atomic::{AtomicPtr, AtomicU64, Ordering};

/// The beginning of memory and how much of it there is.
#[derive(Debug)]
pub(crate) struct Growing<T> {
    base: AtomicPtr<T>,
    count: AtomicU64,
}

impl<T> Growing<T> {
    pub(crate) fn new(base: *mut T, count: u64) -> Self {
        Self { base: AtomicPtr::new(base), count: AtomicU64::new(count) }
    }

    /// Returns how much there is; to be loaded before the [`base`](Self::base).
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Returns a base that covers every count, line and shape that this thread has loaded before.
    #[inline]
    pub(crate) fn base(&self) -> *mut T {
        self.base.load(Ordering::Acquire)
    }

    /// Publishes more, perhaps at another base. One thread at a time.
    pub(crate) fn grow(&self, base: *mut T, count: u64) {
        self.base.store(base, Ordering::Release);
        self.count.fetch_max(count, Ordering::AcqRel);
    }

    /// As [`grow`](Self::grow), to a count that may be smaller. What is behind it stays where it is.
    pub(crate) fn set(&self, base: *mut T, count: u64) {
        self.base.store(base, Ordering::Release);
        self.count.store(count, Ordering::Release);
    }

    /// Publishes that there is no more than `count`.
    pub(crate) fn cut(&self, count: u64) {
        self.count.fetch_min(count, Ordering::AcqRel);
    }
}

/// Every interleaving of a reader with a writer that moves twice, by loom.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// A mapping, as far as a reader can be wrong about it.
    struct Mapping {
        count: u64,
    }

    /// The mappings that the writer moves to, larger each time. They stay for good, like the real
    /// ones.
    static MAPPINGS: [Mapping; 3] =
        [Mapping { count: 1 }, Mapping { count: 2 }, Mapping { count: 4 }];

    fn mapping(number: usize) -> *mut Mapping {
        std::ptr::from_ref(&MAPPINGS[number]).cast_mut()
    }

    /// Looks at memory that a writer grows twice: `lead` is the last place that it has filled.
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

    /// As a bucket is reached by the shape.
    #[test]
    fn loom_a_reader_that_looks_at_no_count_finds_what_it_was_led_to() {
        grow_under(|memory, lead| {
            let place = lead.load(Ordering::Acquire);
            assert!(place < covered(memory.base()));
        });
    }

    /// The test above can fail: this is the wrong order.
    #[test]
    #[should_panic(expected = "an old base")]
    fn loom_a_base_that_is_loaded_first_may_be_too_old() {
        grow_under(|memory, _| {
            let base = memory.base();
            assert!(memory.count() <= covered(base), "an old base");
        });
    }
}
