//! A drop-in for `dbopen(3)` of db 1.85: hash tables in Splitpoint files, and in its own format.
//!
//! Programs are relinked, or this library is loaded before the original. The manual page
//! `splitpoint-db185(3)` and `docs/compat/db185.md` have what is the same and what differs.
//!
//! # What every function expects of C
//!
//! - A `DB` is one that `dbopen` returned and that was not closed.
//! - A `DBT` leads to as many bytes as it says; they do not change during the call.
//! - A hash function returns, and gives a key the same hash each time.
//!
//! # Invariants
//!
//! - `errno` is set last, on failure alone.
//! - What `get` and `seq` return stays until the next call on the same table.

mod open;
mod opened;
mod table;
mod user_hash;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use splitpoint::PutMode;
use splitpoint_ffi::{HandleGuard, HandleLock, guard, set_errno};

use open::{Errno, HashInfo, open};
use opened::Opened;

/// The kind of table that there is; the others are trees and lines.
const HASH: c_int = 1;

/// Flags of the calls.
const CURSOR: c_uint = 1;
const FIRST: c_uint = 3;
const NEXT: c_uint = 7;
const NO_OVERWRITE: c_uint = 8;

/// What a call returns: done, not there or there already, failed.
const DONE: c_int = 0;
const SPECIAL: c_int = 1;
const FAILED: c_int = -1;

/// Bytes of a program or of a table: `DBT`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Thing {
    data: *mut c_void,
    size: usize,
}

impl Thing {
    /// Returns its bytes, or `None` at null with a size.
    ///
    /// # Safety
    ///
    /// The pointer leads to that many bytes, which nobody changes for as long as `'a`.
    unsafe fn bytes<'a>(&self) -> Option<&'a [u8]> {
        match (self.size, self.data.is_null()) {
            (0, _) => Some(&[]),
            (_, true) => None,
            // SAFETY: the caller promised the bytes.
            (size, false) => Some(unsafe { std::slice::from_raw_parts(self.data.cast(), size) }),
        }
    }

    fn to(bytes: &mut Vec<u8>) -> Self {
        // An empty value is not null.
        bytes.reserve(1);
        Self { data: bytes.as_mut_ptr().cast(), size: bytes.len() }
    }
}

/// A table as C has it: `DB`.
#[derive(Debug)]
#[repr(C)]
pub struct Handle {
    kind: c_int,
    close: unsafe extern "C" fn(*mut Handle) -> c_int,
    del: unsafe extern "C" fn(*const Handle, *const Thing, c_uint) -> c_int,
    get: unsafe extern "C" fn(*const Handle, *const Thing, *mut Thing, c_uint) -> c_int,
    put: unsafe extern "C" fn(*const Handle, *mut Thing, *const Thing, c_uint) -> c_int,
    seq: unsafe extern "C" fn(*const Handle, *mut Thing, *mut Thing, c_uint) -> c_int,
    sync: unsafe extern "C" fn(*const Handle, c_uint) -> c_int,
    internal: *mut c_void,
    fd: unsafe extern "C" fn(*const Handle) -> c_int,
}

/// What `internal` leads to.
#[derive(Debug)]
struct State {
    opened: Opened,
    /// The key that `seq` returned last.
    key: Vec<u8>,
    /// Whether the walk is on that key: it has begun, and has not returned all keys.
    is_on_key: bool,
    /// The value that a call returned last.
    value: Vec<u8>,
    /// Whether a call has failed half-way: nothing more is changed.
    is_broken: bool,
}

type Outcome = Result<c_int, Errno>;

/// Opens or makes a table.
#[unsafe(no_mangle)]
unsafe extern "C" fn dbopen(
    name: *const c_char,
    flags: c_int,
    mode: c_int,
    kind: c_int,
    info: *const c_void,
) -> *mut Handle {
    // SAFETY: C promises it.
    unsafe { open_for_c(name, flags, mode, kind, info.cast()) }
}

/// `dbopen` under the name that Berkeley DB's `db_185.h` has for it.
#[unsafe(no_mangle)]
unsafe extern "C" fn __db185_open(
    name: *const c_char,
    flags: c_int,
    mode: c_int,
    kind: c_int,
    info: *const c_void,
) -> *mut Handle {
    // SAFETY: C promises it.
    unsafe { open_for_c(name, flags, mode, kind, info.cast()) }
}

/// `dbopen` under the name that C libraries have for it.
#[unsafe(no_mangle)]
unsafe extern "C" fn __dbopen(
    name: *const c_char,
    flags: c_int,
    mode: c_int,
    kind: c_int,
    info: *const c_void,
) -> *mut Handle {
    // SAFETY: C promises it.
    unsafe { open_for_c(name, flags, mode, kind, info.cast()) }
}

/// # Safety
///
/// `name` is null or a text that ends in NUL; `info` is null or leads to a `HASHINFO`.
unsafe fn open_for_c(
    name: *const c_char,
    flags: c_int,
    mode: c_int,
    kind: c_int,
    info: *const HashInfo,
) -> *mut Handle {
    // SAFETY: the caller promised it.
    let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) });
    // SAFETY: the caller promised it.
    let info = unsafe { info.as_ref() }.copied().unwrap_or_default();
    let opened = guard(|| {
        if kind != HASH {
            return Err(libc::EINVAL);
        }
        let opened = open(name, flags, mode, info)?;
        let (key, value) = (Vec::new(), Vec::new());
        let state = State { opened, key, is_on_key: false, value, is_broken: false };
        Ok(Box::into_raw(Box::new(Handle {
            kind: HASH,
            close,
            del,
            get,
            put,
            seq,
            sync,
            internal: Box::into_raw(Box::new(HandleLock::new(state))).cast(),
            fd,
        })))
    });
    opened.unwrap_or(Err(libc::EIO)).unwrap_or_else(|code| {
        set_errno(code);
        std::ptr::null_mut()
    })
}

impl Handle {
    fn lock(&self) -> &HandleLock<State> {
        // SAFETY: `dbopen` stored a pointer to such a value, which lives until the close.
        unsafe { &*self.internal.cast() }
    }

    /// Waits for other threads; `None` if a call of this one has never ended.
    fn state(&self) -> Option<HandleGuard<'_, State>> {
        self.lock().lock()
    }
}

/// Runs a call on a table, and returns what C expects.
///
/// # Safety
///
/// The pointer is null or a table that is open.
unsafe fn call(handle: *const Handle, body: impl FnOnce(&mut State) -> Outcome) -> c_int {
    // SAFETY: the caller promised it.
    let Some(handle) = (unsafe { handle.as_ref() }) else {
        set_errno(libc::EINVAL);
        return FAILED;
    };
    let Some(mut state) = handle.state() else {
        set_errno(libc::EDEADLK);
        return FAILED;
    };
    let result = guard(|| body(&mut state));
    state.is_broken |= result.is_none();
    drop(state);
    result.unwrap_or(Err(libc::EIO)).unwrap_or_else(|code| {
        set_errno(code);
        FAILED
    })
}

impl State {
    fn require_writer(&self) -> Result<(), Errno> {
        match (self.opened.is_writer, self.is_broken) {
            (false, _) => Err(libc::EPERM),
            (true, true) => Err(libc::EIO),
            (true, false) => Ok(()),
        }
    }
}

/// Returns the bytes that C passes.
///
/// # Safety
///
/// As [`Thing::bytes`]; the pointer may be null.
unsafe fn bytes_of<'a>(thing: *const Thing) -> Result<&'a [u8], Errno> {
    // SAFETY: the caller promised it.
    let thing = unsafe { thing.as_ref() }.ok_or(libc::EINVAL)?;
    // SAFETY: the caller promised it.
    unsafe { thing.bytes() }.ok_or(libc::EINVAL)
}

/// Stores a result at a place, unless that is null.
///
/// # Safety
///
/// A place that is not null has room for it.
unsafe fn give(place: *mut Thing, bytes: &mut Vec<u8>) {
    if !place.is_null() {
        // SAFETY: the caller promised it.
        unsafe { place.write(Thing::to(bytes)) };
    }
}

unsafe extern "C" fn close(handle: *mut Handle) -> c_int {
    if handle.is_null() {
        set_errno(libc::EINVAL);
        return FAILED;
    }
    // SAFETY: C promises a table that is open.
    if unsafe { &*handle }.lock().is_in_call() {
        set_errno(libc::EDEADLK);
        return FAILED;
    }
    // SAFETY: as above, and it does not use the table again.
    let handle = unsafe { Box::from_raw(handle) };
    // SAFETY: `dbopen` made it so.
    let state = unsafe { Box::from_raw(handle.internal.cast::<HandleLock<State>>()) };
    let closed = guard(|| state.into_inner().opened.close());
    match closed.unwrap_or(Err(libc::EIO)) {
        Ok(()) => DONE,
        Err(code) => {
            set_errno(code);
            FAILED
        }
    }
}

unsafe extern "C" fn get(
    handle: *const Handle,
    key: *const Thing,
    data: *mut Thing,
    flags: c_uint,
) -> c_int {
    let body = |state: &mut State| {
        if flags != 0 {
            return Err(libc::EINVAL);
        }
        // SAFETY: C promises it.
        let key = unsafe { bytes_of(key) }?;
        if !state.opened.get(key, &mut state.value)? {
            return Ok(SPECIAL);
        }
        // SAFETY: C promises it.
        unsafe { give(data, &mut state.value) };
        Ok(DONE)
    };
    // SAFETY: C promises it.
    unsafe { call(handle, body) }
}

unsafe extern "C" fn put(
    handle: *const Handle,
    key: *mut Thing,
    data: *const Thing,
    flags: c_uint,
) -> c_int {
    let body = |state: &mut State| {
        let mode = match flags {
            0 => PutMode::Replace,
            NO_OVERWRITE => PutMode::New,
            _ => return Err(libc::EINVAL),
        };
        state.require_writer()?;
        // SAFETY: C promises it.
        let key = unsafe { bytes_of(key) }?;
        // SAFETY: C promises it.
        let data = unsafe { bytes_of(data) }?;
        let is_stored = state.opened.put(key, data, mode)?;
        Ok(if is_stored { DONE } else { SPECIAL })
    };
    // SAFETY: C promises it.
    unsafe { call(handle, body) }
}

unsafe extern "C" fn del(handle: *const Handle, key: *const Thing, flags: c_uint) -> c_int {
    let body = |state: &mut State| {
        if !matches!(flags, 0 | CURSOR) {
            return Err(libc::EINVAL);
        }
        state.require_writer()?;
        let key = if flags == CURSOR && key.is_null() {
            if !state.is_on_key {
                return Err(libc::EINVAL);
            }
            &state.key
        } else {
            // SAFETY: C promises it.
            unsafe { bytes_of(key) }?
        };
        let was_there = state.opened.delete(key)?;
        Ok(if was_there { DONE } else { SPECIAL })
    };
    // SAFETY: C promises it.
    unsafe { call(handle, body) }
}

unsafe extern "C" fn seq(
    handle: *const Handle,
    key: *mut Thing,
    data: *mut Thing,
    flags: c_uint,
) -> c_int {
    let body = |state: &mut State| {
        let begins = match flags {
            FIRST => true,
            // Without a flag too. A walk that has not begun begins; one that has ended begins again.
            0 | NEXT => !state.is_on_key,
            _ => return Err(libc::EINVAL),
        };
        state.is_on_key = state.opened.next(begins, &mut state.key, &mut state.value)?;
        if !state.is_on_key {
            return Ok(SPECIAL);
        }
        // SAFETY: C promises it.
        unsafe { give(data, &mut state.value) };
        // SAFETY: C promises it.
        unsafe { give(key, &mut state.key) };
        Ok(DONE)
    };
    // SAFETY: C promises it.
    unsafe { call(handle, body) }
}

unsafe extern "C" fn sync(handle: *const Handle, flags: c_uint) -> c_int {
    let body = |state: &mut State| {
        if flags != 0 {
            return Err(libc::EINVAL);
        }
        if state.opened.is_writer {
            state.opened.sync()?;
        }
        Ok(DONE)
    };
    // SAFETY: C promises it.
    unsafe { call(handle, body) }
}

unsafe extern "C" fn fd(handle: *const Handle) -> c_int {
    let body = |state: &mut State| state.opened.number().ok_or(libc::ENOENT);
    // SAFETY: C promises it.
    unsafe { call(handle, body) }
}
