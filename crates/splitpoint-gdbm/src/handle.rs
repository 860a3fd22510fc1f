//! How a call from C goes: it locks its handle, catches panics, and leaves errors where programs look.

use std::ffi::{CString, c_char, c_int};

use splitpoint_ffi::{HandleGuard, HandleLock, guard, set_errno};

use crate::code::{self, Code, Failure, Outcome};
use crate::database::{Database, FatalFunction};

/// What `GDBM_FILE` points to. Threads that use one take turns.
#[derive(Debug)]
pub struct Handle {
    state: HandleLock<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) database: Database,
    /// The text that `gdbm_db_strerror` has returned last.
    pub(crate) text: CString,
}

impl Handle {
    /// Returns a handle for C, which [`take`](Self::take) takes back.
    pub(crate) fn give(database: Database) -> *mut Self {
        let state = State { database, text: CString::default() };
        Box::into_raw(Box::new(Self { state: HandleLock::new(state) }))
    }

    /// Takes a handle back from C; `None` for a null one.
    ///
    /// # Safety
    ///
    /// The pointer is null or comes from [`give`](Self::give), and is not used again.
    pub(crate) unsafe fn take(handle: *mut Self) -> Option<Outcome<Database>> {
        if handle.is_null() {
            return None;
        }
        // SAFETY: the caller promised it.
        if unsafe { &*handle }.state.is_in_call() {
            return Some(Err(never_ended()));
        }
        // SAFETY: as above.
        let handle = unsafe { Box::from_raw(handle) };
        Some(Ok(handle.state.into_inner().database))
    }

    /// Waits for other threads; `None` if a call of this one has never ended.
    #[inline]
    pub(crate) fn lock(&self) -> Option<HandleGuard<'_, State>> {
        self.state.lock()
    }
}

/// Which handles a call works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// Those that do not need recovery.
    Sound,
    /// All.
    Any,
}

/// Runs a call on a handle, and returns what it returns, or the number of its failure.
///
/// # Safety
///
/// The pointer is null or a handle that is open.
pub(crate) unsafe fn call<T: Copy>(
    handle: *mut Handle,
    allowed: Allowed,
    body: impl FnOnce(&mut Database) -> Outcome<T>,
) -> Result<T, Code> {
    // SAFETY: the caller promised it.
    let Some(handle) = (unsafe { handle.as_ref() }) else {
        return Err(fail(Failure::of(Code::ERR_USAGE)));
    };
    let (outcome, fatal) = run(handle, allowed, body);
    match outcome {
        Ok(value) => Ok(value),
        Err(failure) => {
            fail(failure);
            if let Some(fatal) = fatal {
                // It may not come back. Nothing is locked, and nothing of this call is left.
                // SAFETY: the program has given it for this.
                unsafe { fatal(failure.code.text().as_ptr()) };
            }
            Err(failure.code)
        }
    }
}

/// Returns what a call returns, and the function to call after a failure that the handle does not
/// survive.
fn run<T>(
    handle: &Handle,
    allowed: Allowed,
    body: impl FnOnce(&mut Database) -> Outcome<T>,
) -> (Outcome<T>, Option<FatalFunction>) {
    let Some(mut state) = handle.lock() else { return (Err(never_ended()), None) };
    let database = &mut state.database;
    if allowed == Allowed::Sound && database.needs_recovery {
        let failure = Failure::of(Code::NEED_RECOVERY);
        database.failure = Some(failure);
        return (Err(failure), None);
    }
    let outcome = guard(|| database.expect_whole().and_then(|()| body(database)))
        .unwrap_or(Err(Failure { is_fatal: true, ..Failure::of(Code::NEED_RECOVERY) }));
    let Err(failure) = &outcome else { return (outcome, None) };
    database.failure = Some(*failure);
    if failure.is_fatal {
        database.needs_recovery = true;
        return (outcome, database.fatal);
    }
    (outcome, None)
}

/// Returns the failure of a handle that a call has not left: a signal handler of the program went elsewhere.
pub(crate) fn never_ended() -> Failure {
    Failure::new(Code::NEED_RECOVERY, libc::EDEADLK)
}

/// Sets the numbers of a failure for this thread, `errno` last.
pub(crate) fn fail(failure: Failure) -> Code {
    code::set_current(failure.code);
    set_errno(failure.errno);
    failure.code
}

/// Runs a call without a handle.
pub(crate) fn call_free<T: Copy>(body: impl FnOnce() -> Outcome<T>) -> Result<T, Code> {
    let outcome = guard(body).unwrap_or(Err(Failure::of(Code::UNKNOWN_ERROR)));
    outcome.map_err(fail)
}

/// Returns 0 for success and -1 for a failure.
pub(crate) fn status(result: Result<(), Code>) -> c_int {
    if result.is_ok() { 0 } else { -1 }
}

/// Returns the text of the last failure of a handle, with that of the system.
pub(crate) fn failure_text(state: &mut State) -> *const c_char {
    let failure = state.database.failure;
    let code = failure.map_or(Code::NO_ERROR, |failure| failure.code);
    let Some(failure) = failure.filter(|failure| code.has_errno() && failure.errno != 0) else {
        return code.text().as_ptr();
    };
    let mut text = code.text().to_bytes().to_vec();
    text.extend_from_slice(b": ");
    // SAFETY: the call has no conditions.
    let of_system = unsafe { libc::strerror(failure.errno) };
    if !of_system.is_null() {
        // SAFETY: what is not null ends in NUL.
        let of_system = unsafe { std::ffi::CStr::from_ptr(of_system) };
        text.extend_from_slice(of_system.to_bytes());
    }
    state.text = CString::new(text).unwrap_or_default();
    state.text.as_ptr()
}
