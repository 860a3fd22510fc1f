//! A background thread of a handle, started on first use and joined on drop.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::storage::fork::Origin;
use crate::testing::mutant;

/// A state that threads share, with a signal for its changes.
///
/// The state is valid after every statement that changes it, so a panic need not poison the mutex.
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

    /// Changes the state, and wakes all threads that wait for it.
    pub(crate) fn change<T>(&self, what: impl FnOnce(&mut S) -> T) -> T {
        let result = what(&mut self.lock());
        self.wake();
        result
    }

    /// Wakes all threads that wait for the state to change.
    pub(crate) fn wake(&self) {
        self.changed.notify_all();
    }

    /// Unlocks the state and waits until it changes; it may also wake for no reason.
    pub(crate) fn wait<'a>(&self, state: MutexGuard<'a, S>) -> MutexGuard<'a, S> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits like [`wait`](Self::wait), for at most `most`.
    pub(crate) fn wait_for<'a>(
        &self,
        state: MutexGuard<'a, S>,
        most: Duration,
    ) -> MutexGuard<'a, S> {
        self.changed.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0
    }
}

/// A thread, and the state that it shares with its users.
#[derive(Debug, Default)]
pub(crate) struct Worker<S> {
    origin: Origin,
    shared: Arc<Monitor<S>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Returns whether threads are refused, which only a test does.
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

    /// Runs `what` as in a process that may not start threads.
    pub(crate) fn without_threads<T>(what: impl FnOnce() -> T) -> T {
        REFUSED.set(true);
        let result = what();
        REFUSED.set(false);
        result
    }
}

impl<S: Send + 'static> Worker<S> {
    /// Returns the shared state.
    pub(crate) fn shared(&self) -> &Monitor<S> {
        &self.shared
    }

    /// Returns whether this is the process of the thread. A child of a fork has no such thread, and
    /// the locks that it shared may be held forever.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.origin.is_here()
    }

    /// Starts the thread unless it runs, and returns whether there is one.
    pub(crate) fn begin(&self, name: &str, run: impl FnOnce(&Monitor<S>) + Send + 'static) -> bool {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() && !are_refused() {
            let shared = self.shared.clone();
            let builder = std::thread::Builder::new().name(name.to_string());
            *thread = builder.spawn(mutant::inherited(move || run(&shared))).ok();
        }
        thread.is_some()
    }

    /// Asks the thread to end, by `stop`, and joins it.
    pub(crate) fn end(&self, stop: impl FnOnce(&mut S)) {
        self.end_waking(stop, None);
    }

    /// As [`end`](Self::end), for a thread that may also sleep at a place where only `wake` wakes
    /// it, now or a moment later.
    pub(crate) fn end_waking(&self, stop: impl FnOnce(&mut S), wake: Option<&dyn Fn()>) {
        if !self.is_here() {
            // The thread stayed in the parent, so there is nothing to join; it may hold the lock.
            if let Ok(mut thread) = self.thread.try_lock() {
                std::mem::forget(thread.take());
            }
            return;
        }
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Callers that wait for the thread have made sure that it exists.
        stop(&mut self.shared.lock());
        if let Some(thread) = thread {
            self.shared.wake();
            while let Some(wake) = wake.filter(|_| !thread.is_finished()) {
                wake();
                std::thread::sleep(Duration::from_micros(50));
            }
            // An error is kept by the users of the thread, so only a panic is lost here.
            let _ = thread.join();
        }
    }
}
