//! The lock of a handle: threads that use one handle take turns.
//!
//! A signal handler of a program may leave a call by `longjmp`: the call never ends, and its handle stays locked.
//! What it had half done nobody knows, so the handle is lost. But the thread is told so, and does not wait for itself:
//! the handle knows which thread has it. The same happens to a function of the program that calls us back.
//!
//! Who leaves while it waits for a handle has none, and has lost nothing. A jump out of the few instructions between
//! taking the lock and noting the thread leaves a lock that nobody has noted: all wait for it.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// What the calls on one handle share.
#[derive(Debug)]
pub struct HandleLock<T> {
    /// The thread in whose call the handle is; 0 between calls.
    // Each thread looks for its own number alone, which nobody else stores, and it stores 0 before it unlocks.
    holder: AtomicUsize,
    // After a panic the handle says itself what it can still do.
    state: Mutex<T>,
}

impl<T> HandleLock<T> {
    /// Takes the state.
    pub const fn new(state: T) -> Self {
        Self { holder: AtomicUsize::new(0), state: Mutex::new(state) }
    }

    /// Waits for the calls of other threads; `None` if this thread is in a call on this handle, or has left one that
    /// will never end: `EDEADLK`.
    #[inline]
    pub fn lock(&self) -> Option<HandleGuard<'_, T>> {
        let thread = this_thread();
        let state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => self.wait(thread)?,
        };
        self.holder.store(thread, Ordering::Relaxed);
        Some(HandleGuard { holder: &self.holder, state })
    }

    #[cold]
    fn wait(&self, thread: usize) -> Option<MutexGuard<'_, T>> {
        if self.holder.load(Ordering::Relaxed) == thread {
            return None;
        }
        Some(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns whether a call has not ended. Such a handle may not be freed: threads may wait for it.
    pub fn is_in_call(&self) -> bool {
        matches!(self.state.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// Returns the state, to close the handle.
    pub fn into_inner(self) -> T {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a number that no other living thread has, and that is not 0.
#[inline]
fn this_thread() -> usize {
    thread_local! {
        static HERE: Cell<u8> = const { Cell::new(0) };
    }
    HERE.with(|here| ptr::from_ref(here).addr())
}

/// A call on a handle, to its end.
#[derive(Debug)]
pub struct HandleGuard<'a, T> {
    holder: &'a AtomicUsize,
    state: MutexGuard<'a, T>,
}

impl<T> Drop for HandleGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // The lock goes behind it.
        self.holder.store(0, Ordering::Relaxed);
    }
}

impl<T> std::ops::Deref for HandleGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.state
    }
}

impl<T> std::ops::DerefMut for HandleGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.state
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Returns what a thread of its own finds, or `None` if it waits for ever.
    fn in_time<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || sender.send(act()));
        receiver.recv_timeout(Duration::from_secs(20)).ok()
    }

    #[test]
    fn a_thread_that_has_left_calls_on_two_handles_waits_for_neither() {
        let found = in_time(|| {
            let (first, second) = (HandleLock::new(1), HandleLock::new(2));
            std::mem::forget(first.lock());
            std::mem::forget(second.lock());
            (first.lock().is_none(), second.lock().is_none(), first.lock().is_none())
        });
        assert_eq!(found, Some((true, true, true)));
    }

    #[test]
    fn a_thread_that_has_left_a_call_waits_for_a_new_handle_in_the_same_place() {
        let found = in_time(|| {
            let mut place = HandleLock::new(1);
            std::mem::forget(place.lock());
            assert!(place.lock().is_none());
            place = HandleLock::new(2);
            let (sender, receiver) = mpsc::channel();
            std::thread::scope(|scope| {
                let place = &place;
                scope.spawn(move || {
                    let mut state = place.lock().unwrap();
                    sender.send(()).unwrap();
                    std::thread::sleep(Duration::from_millis(20));
                    *state = 3;
                });
                receiver.recv().unwrap();
                place.lock().map(|state| *state)
            })
        });
        assert_eq!(found, Some(Some(3)));
    }

    #[test]
    fn a_call_within_a_call_is_an_error_and_leaves_the_outer_one_its_handle() {
        let found = in_time(|| {
            let (lock, other) = (HandleLock::new(1), HandleLock::new(2));
            let outer = lock.lock();
            let between = other.lock();
            assert!(lock.lock().is_none() && other.lock().is_none());
            drop((outer, between));
            lock.lock().is_some() && other.lock().is_some()
        });
        assert_eq!(found, Some(true));
    }

    #[test]
    fn a_call_that_never_ends_is_an_error_for_its_thread_and_no_wait() {
        let (lock, other) = (HandleLock::new(1), HandleLock::new(2));
        std::mem::forget(lock.lock());
        assert!(lock.lock().is_none() && lock.lock().is_none());
        assert_eq!(*other.lock().unwrap(), 2);
        assert!(lock.lock().is_none());
        assert!(lock.is_in_call() && !other.is_in_call());
        assert_eq!(other.into_inner(), 2);
    }

    #[test]
    fn threads_take_turns() {
        let lock = HandleLock::new(0);
        let count = || (0..10_000).for_each(|_| *lock.lock().unwrap() += 1);
        std::thread::scope(|scope| {
            scope.spawn(count);
            scope.spawn(count);
        });
        assert_eq!(lock.into_inner(), 20_000);
    }
}
