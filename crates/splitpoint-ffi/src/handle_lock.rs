//! The lock of a handle: threads that use one handle take turns.
//!
//! A signal handler of a program may leave a call by `longjmp`: the call never ends, and its handle stays locked.
//! What it had half done nobody knows, so the handle is lost. But the thread is told so, and does not wait for itself:
//! the handle knows which thread has it. The same happens to a function of the program that calls us back.
//!
//! Who leaves while it waits for a handle has none, and has lost nothing. But it may take the only wake with it, and
//! another one would sleep for ever. So nobody waits in the [`Mutex`]: who waits sleeps on a word beside it, and looks
//! again by itself. At the taking and the letting go there are a few instructions where the lock is held and no thread is
//! noted: a jump out of them leaves a lock of nobody, for which all wait, and so does a call of a signal handler there.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;
use std::{hint, ptr};

/// How often a thread looks at a handle that another one has before it sleeps: most calls are as short.
const LOOKS_AT_ONCE: u32 = 100;
/// After how long it looks again if nobody wakes it.
const LOOK_AGAIN: Duration = Duration::from_millis(4);

/// What the calls on one handle share.
#[derive(Debug)]
pub struct HandleLock<T> {
    /// The thread in whose call the handle is; 0 between calls.
    // Each thread looks for its own number alone, which nobody else stores, and it stores 0 before it unlocks.
    holder: AtomicUsize,
    /// 1 if a thread may be asleep.
    awaited: AtomicU32,
    // After a panic the handle says itself what it can still do.
    state: Mutex<T>,
}

impl<T> HandleLock<T> {
    /// Takes the state.
    pub const fn new(state: T) -> Self {
        Self { holder: AtomicUsize::new(0), awaited: AtomicU32::new(0), state: Mutex::new(state) }
    }

    /// Waits for the calls of other threads; `None` if this thread is in a call on this handle, or has left one that
    /// will never end: `EDEADLK`.
    #[inline]
    pub fn lock(&self) -> Option<HandleGuard<'_, T>> {
        let thread = this_thread();
        let state = match self.try_lock() {
            Some(state) => state,
            None => self.wait(thread)?,
        };
        self.holder.store(thread, Ordering::Relaxed);
        let Self { holder, awaited, .. } = self;
        let wake = Wake { word: awaited, is_due: false };
        Some(HandleGuard { holder, awaited, state, wake })
    }

    #[cold]
    fn wait(&self, thread: usize) -> Option<MutexGuard<'_, T>> {
        loop {
            // Again after each sleep: a handler may have interrupted it, and left a call of its own by a jump.
            if self.holder.load(Ordering::Relaxed) == thread {
                return None;
            }
            for _ in 0..LOOKS_AT_ONCE {
                hint::spin_loop();
                if let Some(state) = self.try_lock() {
                    return Some(state);
                }
            }
            // It stays so if this one gets the lock, since others may sleep: its call wakes one in vain at most.
            self.awaited.store(1, Ordering::Relaxed);
            if let Some(state) = self.try_lock() {
                return Some(state);
            }
            sleep_on(&self.awaited, LOOK_AGAIN);
        }
    }

    /// Takes the lock if nobody has it. All take it so, and none sleeps in it.
    #[inline]
    fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Returns whether a call has not ended. Such a handle may not be freed: threads may wait for it.
    pub fn is_in_call(&self) -> bool {
        self.try_lock().is_none()
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

/// Sleeps while the word is 1, until somebody wakes this thread, for at most `pause`, which is below a second.
fn sleep_on(word: &AtomicU32, pause: Duration) {
    let tv_nsec = libc::c_long::from(pause.subsec_nanos().cast_signed());
    let pause = libc::timespec { tv_sec: 0, tv_nsec };
    // A signal and another value end it as well: the caller looks again.
    // SAFETY: word and time outlive the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            1,
            &raw const pause,
        )
    };
}

/// Wakes one thread that sleeps on the word, which may not be there any more.
fn wake_one(word: *const AtomicU32) {
    // SAFETY: the kernel takes the address for the name of a queue, and reads nothing there.
    unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1) };
}

/// A call on a handle, to its end.
#[derive(Debug)]
pub struct HandleGuard<'a, T> {
    holder: &'a AtomicUsize,
    awaited: &'a AtomicU32,
    // Unlocked before the wake.
    state: MutexGuard<'a, T>,
    wake: Wake,
}

/// Wakes a thread when it is dropped, if that is due.
#[derive(Debug)]
struct Wake {
    /// Not read: whoever has the lock behind this call may close the handle.
    word: *const AtomicU32,
    is_due: bool,
}

impl Drop for Wake {
    #[inline]
    fn drop(&mut self) {
        if self.is_due {
            wake_one(self.word);
        }
    }
}

impl<T> Drop for HandleGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Who comes to wait from here on is not woken, and looks again.
        self.wake.is_due = self.awaited.load(Ordering::Relaxed) != 0
            && self.awaited.swap(0, Ordering::Relaxed) != 0;
        // Last: the lock goes right behind it, and who leaves in between has a handle that nobody has noted.
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

    /// The system's number of a thread, once it sleeps in the call that it makes behind `say`.
    fn asleep(said: &mpsc::Receiver<libc::pid_t>) -> libc::pid_t {
        let thread = said.recv().expect("it says so first");
        let stat = format!("/proc/self/task/{thread}/stat");
        let is_asleep = || {
            let text = std::fs::read_to_string(&stat).expect("it lives");
            text.rsplit(')').next().is_some_and(|rest| rest.starts_with(" S"))
        };
        while !is_asleep() {
            std::thread::sleep(Duration::from_millis(1));
        }
        thread
    }

    /// A handler of a signal that never returns stands for a jump: its thread has left the wait. Just then the lock
    /// comes free, so that a wake would be lost with it.
    #[test]
    #[cfg(not(miri))]
    fn who_leaves_its_wait_keeps_nobody_asleep() {
        extern "C" fn leave(_: libc::c_int) {
            loop {
                // SAFETY: it takes no pointer, and a handler may call it.
                unsafe { libc::pause() };
            }
        }
        // SAFETY: the handler calls what handlers may, and nobody else uses the signal.
        unsafe { libc::signal(libc::SIGUSR2, leave as *const () as libc::sighandler_t) };
        for _ in 0..20 {
            // Threads that have left have it for ever.
            let lock: &'static HandleLock<()> = Box::leak(Box::new(HandleLock::new(())));
            let call = || {
                let ((say, said), (done, is_done)) = (mpsc::channel(), mpsc::channel());
                std::thread::spawn(move || {
                    // SAFETY: it takes nothing.
                    say.send(unsafe { libc::gettid() }).expect("somebody listens");
                    drop(lock.lock());
                    let _ = done.send(());
                });
                (asleep(&said), is_done)
            };
            let held = lock.lock();
            let ((leaving, _), (_, is_done)) = (call(), call());
            drop(held);
            let process = std::process::id();
            // SAFETY: the call takes no pointer.
            unsafe { libc::syscall(libc::SYS_tgkill, process, leaving, libc::SIGUSR2) };
            let is_done = is_done.recv_timeout(Duration::from_secs(20)).is_ok();
            // It may have left a call of its own.
            assert!(is_done || lock.is_in_call(), "it sleeps for ever, and nobody has the handle");
        }
    }

    /// A handler that forgets its call stands for a jump within it, behind which the wait goes on.
    #[test]
    #[cfg(not(miri))]
    fn a_wait_ends_whose_thread_has_left_a_call_in_a_handler() {
        static LOCK: HandleLock<()> = HandleLock::new(());
        static HAS_COME: AtomicU32 = AtomicU32::new(0);
        extern "C" fn call(_: libc::c_int) {
            HAS_COME.store(1, Ordering::SeqCst);
            std::mem::forget(LOCK.lock());
        }
        // SAFETY: the handler waits as a call does, and nobody else uses the signal.
        unsafe { libc::signal(libc::SIGUSR1, call as *const () as libc::sighandler_t) };
        let held = LOCK.lock();
        let ((say, said), (done, is_done)) = (mpsc::channel(), mpsc::channel());
        std::thread::spawn(move || {
            // SAFETY: it takes nothing.
            say.send(unsafe { libc::gettid() }).expect("somebody listens");
            done.send(LOCK.lock().is_none()).expect("somebody listens");
        });
        let waiting = asleep(&said);
        // SAFETY: the call takes no pointer.
        unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), waiting, libc::SIGUSR1) };
        while HAS_COME.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        drop(held);
        assert_eq!(is_done.recv_timeout(Duration::from_secs(20)), Ok(true));
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
