//! The lock of a handle: threads that use one handle take turns.
//!
//! A signal handler of a program may leave a call by `longjmp`: the call never ends, and its handle stays locked.
//! What it had half done nobody knows, so the handle is lost. But the thread is told so, and does not wait for itself:
//! it remembers which handle it is in. So it is where a function of the program that we call calls us again.

use std::cell::Cell;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

thread_local! {
    /// The lock of the call in which this thread is; null outside of calls.
    static CURRENT: Cell<*const ()> = const { Cell::new(ptr::null()) };
}

/// What the calls on one handle share.
#[derive(Debug)]
pub struct HandleLock<T> {
    // After a panic the handle says itself what it can still do.
    state: Mutex<T>,
}

impl<T> HandleLock<T> {
    /// Takes the state.
    pub const fn new(state: T) -> Self {
        Self { state: Mutex::new(state) }
    }

    /// Waits for the calls of other threads; `None` if a call of this thread on this handle has not ended, and never
    /// will: `EDEADLK`.
    #[inline]
    pub fn lock(&self) -> Option<HandleGuard<'_, T>> {
        let this = ptr::from_ref(self).cast();
        let before = CURRENT.replace(this);
        let call = Call { before: if before == this { ptr::null() } else { before } };
        let state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if before == this => {
                // For the next call, too.
                std::mem::forget(call);
                return None;
            }
            Err(TryLockError::WouldBlock) => self.wait(),
        };
        Some(HandleGuard { state, _call: call })
    }

    #[cold]
    fn wait(&self) -> MutexGuard<'_, T> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state when the handle is closed; `None`, and all of it stays open, if a call on it has not ended.
    pub fn into_inner(self) -> Option<T> {
        let is_left = matches!(self.state.try_lock(), Err(TryLockError::WouldBlock));
        if is_left {
            std::mem::forget(self);
            return None;
        }
        Some(self.state.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A call on a handle, to its end.
#[derive(Debug)]
pub struct HandleGuard<'a, T> {
    // Unlocked before the call ends.
    state: MutexGuard<'a, T>,
    _call: Call,
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

/// Remembers in which call the thread was before.
#[derive(Debug)]
struct Call {
    before: *const (),
}

impl Drop for Call {
    #[inline]
    fn drop(&mut self) {
        CURRENT.set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_never_ends_is_an_error_for_its_thread_and_no_wait() {
        let (lock, other) = (HandleLock::new(1), HandleLock::new(2));
        std::mem::forget(lock.lock());
        assert!(lock.lock().is_none() && lock.lock().is_none());
        assert_eq!(*other.lock().unwrap(), 2);
        assert!(lock.lock().is_none());
        assert_eq!((lock.into_inner(), other.into_inner()), (None, Some(2)));
    }

    #[test]
    fn threads_take_turns() {
        let lock = HandleLock::new(0);
        let count = || (0..10_000).for_each(|_| *lock.lock().unwrap() += 1);
        std::thread::scope(|scope| {
            scope.spawn(count);
            scope.spawn(count);
        });
        assert_eq!(lock.into_inner(), Some(20_000));
    }
}
