//! A thread of a handle's own, which begins when there is something for it to do.

use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::storage::fork::Origin;

/// The thread, and the process that it is in.
#[derive(Debug, Default)]
pub(crate) struct Background {
    origin: Origin,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Returns whether no thread is to be had: only in a test that asks for it.
#[cfg(any(not(test), loom))]
fn are_refused() -> bool {
    false
}
#[cfg(all(test, not(loom)))]
use refusal::are_refused;
#[cfg(all(test, not(loom)))]
pub(crate) use refusal::without_threads;

#[cfg(all(test, not(loom)))]
mod refusal {
    use std::cell::Cell;

    thread_local! {
        static REFUSED: Cell<bool> = const { Cell::new(false) };
    }

    pub(super) fn are_refused() -> bool {
        REFUSED.get()
    }

    /// Runs `what` as in a process that may have no more threads.
    pub(crate) fn without_threads<T>(what: impl FnOnce() -> T) -> T {
        REFUSED.set(true);
        let result = what();
        REFUSED.set(false);
        result
    }
}

impl Background {
    /// Returns whether this is the process that the thread is in. In a child made by `fork` there
    /// is no thread, and the locks that it shared may be held for ever.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.origin.is_here()
    }

    /// Begins the thread unless it has begun, and returns whether there is one.
    pub(crate) fn begin(&self, name: &str, run: impl FnOnce() + Send + 'static) -> bool {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() && !are_refused() {
            *thread = std::thread::Builder::new().name(name.to_string()).spawn(run).ok();
        }
        thread.is_some()
    }

    /// Waits for the end of the thread, for which `stop` asks it.
    pub(crate) fn end(&mut self, stop: impl FnOnce()) {
        let is_here = self.is_here();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if !is_here {
            // The thread stayed in the parent: there is nothing to wait for.
            std::mem::forget(thread);
            return;
        }
        stop();
        if let Some(thread) = thread {
            // It cannot fail: what goes wrong in it is kept by those it works for.
            let _ = thread.join();
        }
    }
}
