//! A thread of a handle's own, which begins when there is something for it to do.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::storage::fork::Origin;

/// A state that threads share, and a signal to those that wait until it changes.
///
/// The state is valid after every statement that changes it, so a thread that fails does not poison it.
#[derive(Debug, Default)]
pub(crate) struct Monitor<S> {
    state: Mutex<S>,
    changed: Condvar,
}

impl<S> Monitor<S> {
    /// Locks the state.
    pub(crate) fn lock(&self) -> MutexGuard<'_, S> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes all that wait for it.
    pub(crate) fn change<T>(&self, what: impl FnOnce(&mut S) -> T) -> T {
        let result = what(&mut self.lock());
        self.wake();
        result
    }

    /// Wakes all that wait for the state to change.
    pub(crate) fn wake(&self) {
        self.changed.notify_all();
    }

    /// Unlocks the state until it changes, or for no reason.
    pub(crate) fn wait<'a>(&self, state: MutexGuard<'a, S>) -> MutexGuard<'a, S> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`wait`](Self::wait), at most as long as `most`.
    pub(crate) fn wait_for<'a>(
        &self,
        state: MutexGuard<'a, S>,
        most: Duration,
    ) -> MutexGuard<'a, S> {
        self.changed.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0
    }
}

/// A thread, and what it shares with those it works for.
#[derive(Debug, Default)]
pub(crate) struct Worker<S> {
    origin: Origin,
    shared: Arc<Monitor<S>>,
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

impl<S: Send + 'static> Worker<S> {
    /// Returns what the thread shares.
    pub(crate) fn shared(&self) -> &Monitor<S> {
        &self.shared
    }

    /// Returns whether this is the process that the thread is in. In a child made by `fork` there
    /// is no thread, and the locks that it shared may be held for ever.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.origin.is_here()
    }

    /// Begins the thread unless it has begun, and returns whether there is one.
    pub(crate) fn begin(&self, name: &str, run: impl FnOnce(&Monitor<S>) + Send + 'static) -> bool {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() && !are_refused() {
            let shared = self.shared.clone();
            let builder = std::thread::Builder::new().name(name.to_string());
            *thread = builder.spawn(move || run(&shared)).ok();
        }
        thread.is_some()
    }

    /// Waits for the end of the thread, for which `stop` asks it.
    pub(crate) fn end(&mut self, stop: impl FnOnce(&mut S)) {
        let is_here = self.is_here();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if !is_here {
            // The thread stayed in the parent: there is nothing to wait for.
            std::mem::forget(thread);
            return;
        }
        self.shared.change(stop);
        if let Some(thread) = thread {
            // It cannot fail: what goes wrong in it is kept by those it works for.
            let _ = thread.join();
        }
    }
}
