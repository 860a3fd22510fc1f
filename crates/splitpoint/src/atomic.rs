//! The atomic words that lock-free readers and the writer share: the standard library's, or
//! loom's when a test enumerates their interleavings.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU64, fence};
pub(crate) use std::sync::atomic::Ordering;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU64, fence};

/// A place where a test may kill the process: before and after each store of a word that the next
/// process reads.
#[cfg(any(not(test), loom))]
#[inline(always)]
pub(crate) fn may_be_killed() {}
#[cfg(test)]
#[cfg(not(loom))]
pub(crate) use kill_points::may_be_killed;

/// What a test makes of such a place: an end, or a copy of the machine.
#[cfg(test)]
#[cfg(not(loom))]
pub(crate) mod kill_points {
    use std::cell::{Cell, RefCell};

    type Observer = Box<dyn FnMut()>;

    thread_local! {
        static OBSERVER: RefCell<Option<Observer>> = const { RefCell::new(None) };
    }

    /// Tells the test of this thread, if there is one.
    pub(crate) fn may_be_killed() {
        // The observer itself may store.
        let observer = OBSERVER.take();
        if let Some(mut observer) = observer {
            observer();
            OBSERVER.set(Some(observer));
        }
    }

    /// Runs `change` while `observer` is told of each place.
    pub(crate) fn observe<T>(observer: impl FnMut() + 'static, change: impl FnOnce() -> T) -> T {
        drop(OBSERVER.replace(Some(Box::new(observer))));
        let result = change();
        // A handle that the observer has stores when it is dropped.
        drop(OBSERVER.take());
        result
    }

    /// Runs `change` and kills it at place `at`; returns whether it was still running.
    pub(crate) fn is_killed(at: u64, change: impl FnOnce()) -> bool {
        let left = Cell::new(at);
        let observer = move || match left.get() {
            0 => std::panic::resume_unwind(Box::new("killed")),
            more => left.set(more - 1),
        };
        let change = std::panic::AssertUnwindSafe(|| observe(observer, change));
        let result = std::panic::catch_unwind(change);
        drop(OBSERVER.take());
        result.is_err()
    }
}
