//! The functions of `<ndbm.h>`.
//!
//! They share one contract: a `DBM *` is null or came from [`dbm_open`] and was not closed, and a datum
//! has null or as many bytes as it says. The `SAFETY` comments call it the contract of ndbm.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr;

use libc::{EDEADLK, EINVAL, EIO, ENOENT, mode_t};
use splitpoint_ffi::{Datum, HandleLock, guard, set_errno};

use crate::database::{Database, Failure, StoreMode};
use crate::gdbm_errno::{self, Kind};
use crate::lent::Lent;
use crate::opening::Request;

/// `DBM_REPLACE`
const REPLACE: c_int = 1;

/// A database as a program holds it. Threads that use one at the same time take turns.
#[derive(Debug)]
pub struct DBM(HandleLock<Handle>);

/// What is behind the lock.
#[derive(Debug)]
struct Handle {
    database: Database,
    /// The value that a fetch has returned last.
    value: Lent,
    /// The key that a walk has returned last.
    key: Lent,
    /// The code of the first failure since the last [`dbm_clearerr`].
    failure: Failure,
    /// Whether a panic may have left something half changed.
    is_broken: bool,
}

/// Opens or creates the database of the files `NAME.pag` and `NAME.dir`, or returns null.
///
/// # Safety
///
/// `name` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dbm_open(name: *const c_char, flags: c_int, mode: mode_t) -> *mut DBM {
    if name.is_null() {
        set_errno(EINVAL);
        return ptr::null_mut();
    }
    // SAFETY: the caller promised a string.
    let name = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()));
    match guard(|| Database::open(&Request::new(name, flags, mode))).unwrap_or(Err(EIO)) {
        Ok(database) => Box::into_raw(Box::new(DBM(HandleLock::new(Handle {
            database,
            value: Lent::default(),
            key: Lent::default(),
            failure: 0,
            is_broken: false,
        })))),
        Err(failure) => {
            set_errno(failure);
            ptr::null_mut()
        }
    }
}

/// Closes a database; what was changed is durable then.
///
/// # Safety
///
/// The contract of ndbm; nobody uses the database or what it returned afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dbm_close(dbm: *mut DBM) {
    if dbm.is_null() {
        return;
    }
    // SAFETY: `dbm_open` made it, and it is closed once.
    if unsafe { &*dbm }.0.is_in_call() {
        set_errno(EDEADLK);
        return;
    }
    // SAFETY: as above.
    let dbm = unsafe { Box::from_raw(dbm) };
    let close = || dbm.0.into_inner().database.close();
    if let Err(failure) = guard(close).unwrap_or(Err(EIO)) {
        set_errno(failure);
    }
}

/// Returns the value of a key, or a null pointer. It stays until the next fetch.
///
/// # Safety
///
/// The contract of ndbm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dbm_fetch(dbm: *mut DBM, key: Datum) -> Datum {
    let fetch = |handle: &mut Handle| {
        // SAFETY: the contract of ndbm.
        let key = unsafe { bytes(key) }?;
        let value = handle.database.fetch(key, |value| handle.value.lend(value))?;
        value.unwrap_or(Ok(Datum::NONE))
    };
    // SAFETY: the contract of ndbm.
    unsafe { look_up(dbm, fetch) }
}

/// Stores a pair: 0, or 1 if `DBM_INSERT` found the key, whose value stays; -1 if it failed. Any other mode than
/// `DBM_REPLACE` is `DBM_INSERT`, as in gdbm's library.
///
/// # Safety
///
/// The contract of ndbm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dbm_store(dbm: *mut DBM, key: Datum, value: Datum, mode: c_int) -> c_int {
    let store = |handle: &mut Handle| {
        let mode = if mode == REPLACE { StoreMode::Replace } else { StoreMode::Insert };
        // SAFETY: the contract of ndbm.
        let key = unsafe { bytes(key) }?;
        // SAFETY: the contract of ndbm.
        let value = unsafe { bytes(value) }?;
        Ok(c_int::from(!handle.change(|database| database.store(key, value, mode))?))
    };
    // SAFETY: the contract of ndbm.
    let stored = unsafe { try_call(dbm, store) };
    gdbm_errno::note(Kind::Store, stored, |&result| result == 0).unwrap_or(-1)
}

/// Deletes a key: 0, or -1 if it is absent, which is no failure, or if it failed.
///
/// # Safety
///
/// The contract of ndbm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dbm_delete(dbm: *mut DBM, key: Datum) -> c_int {
    let delete = |handle: &mut Handle| {
        // SAFETY: the contract of ndbm.
        let key = unsafe { bytes(key) }?;
        Ok(if handle.change(|database| database.delete(key))? { 0 } else { -1 })
    };
    // SAFETY: the contract of ndbm.
    let deleted = unsafe { try_call(dbm, delete) };
    gdbm_errno::note(Kind::Delete, deleted, |&result| result == 0).unwrap_or(-1)
}

/// Begins a walk, and returns its first key or a null pointer. It stays until the next key.
///
/// # Safety
///
/// The contract of ndbm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dbm_firstkey(dbm: *mut DBM) -> Datum {
    let first = |handle: &mut Handle| {
        let key = handle.database.first_key()?;
        key.map_or(Ok(Datum::NONE), |key| handle.key.lend(key))
    };
    // SAFETY: the contract of ndbm.
    unsafe { look_up(dbm, first) }
}

/// Returns the next key of the walk, or a null pointer at its end. It stays until the next key.
///
/// # Safety
///
/// The contract of ndbm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dbm_nextkey(dbm: *mut DBM) -> Datum {
    let next = |handle: &mut Handle| {
        let key = handle.database.next_key()?;
        key.map_or(Ok(Datum::NONE), |key| handle.key.lend(key))
    };
    // SAFETY: the contract of ndbm.
    unsafe { look_up(dbm, next) }
}

/// Returns whether a call has failed since the last [`dbm_clearerr`]: the first code of `errno`.
///
/// # Safety
///
/// The contract of ndbm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dbm_error(dbm: *mut DBM) -> c_int {
    // SAFETY: the contract of ndbm.
    unsafe { call(dbm, EINVAL, |handle| Ok(handle.failure)) }
}

/// Forgets that a call has failed.
///
/// # Safety
///
/// The contract of ndbm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dbm_clearerr(dbm: *mut DBM) -> c_int {
    let clear = |handle: &mut Handle| {
        handle.failure = 0;
        Ok(0)
    };
    // SAFETY: the contract of ndbm.
    unsafe { call(dbm, -1, clear) }
}

/// Returns the descriptor of `NAME.dir`; -1 with `ENOENT` if an old database, or one in a folder that may not be
/// written, has none.
///
/// # Safety
///
/// The contract of ndbm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dbm_dirfno(dbm: *mut DBM) -> c_int {
    // SAFETY: the contract of ndbm.
    let number = unsafe { try_call(dbm, |handle| Ok(handle.database.dir_number())) };
    // No failure of the database, which `dbm_error` would go on to name.
    if number == Ok(-1) {
        set_errno(ENOENT);
    }
    number.unwrap_or(-1)
}

/// Returns the descriptor of `NAME.pag`. The program may lock it.
///
/// # Safety
///
/// The contract of ndbm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dbm_pagfno(dbm: *mut DBM) -> c_int {
    // SAFETY: the contract of ndbm.
    unsafe { call(dbm, -1, |handle| Ok(handle.database.pag_number())) }
}

/// Returns whether the database was opened to read.
///
/// # Safety
///
/// The contract of ndbm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dbm_rdonly(dbm: *mut DBM) -> c_int {
    // SAFETY: the contract of ndbm.
    unsafe { call(dbm, -1, |handle| Ok(c_int::from(handle.database.is_read_only()))) }
}

impl Handle {
    fn change<T>(
        &mut self,
        change: impl FnOnce(&mut Database) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if self.is_broken { Err(EIO) } else { change(&mut self.database) }
    }
}

/// Returns the bytes of a datum, which is not null.
///
/// # Safety
///
/// The contract of ndbm.
unsafe fn bytes<'a>(datum: Datum) -> Result<&'a [u8], Failure> {
    if datum.is_none() {
        return Err(EINVAL);
    }
    // SAFETY: the contract of ndbm.
    unsafe { datum.bytes() }.ok_or(EINVAL)
}

/// Calls `body`, which looks up a value or a key, and returns what it returns.
///
/// # Safety
///
/// The contract of ndbm.
#[inline]
unsafe fn look_up(
    dbm: *mut DBM,
    body: impl FnOnce(&mut Handle) -> Result<Datum, Failure>,
) -> Datum {
    // SAFETY: the contract of ndbm.
    let found = unsafe { try_call(dbm, body) };
    gdbm_errno::note(Kind::Lookup, found, |found| !found.is_none()).unwrap_or(Datum::NONE)
}

/// Calls `body` with the handle, and returns what it returns; `failed` if it fails.
///
/// # Safety
///
/// The contract of ndbm.
unsafe fn call<T>(
    dbm: *mut DBM,
    failed: T,
    body: impl FnOnce(&mut Handle) -> Result<T, Failure>,
) -> T {
    // SAFETY: the contract of ndbm.
    unsafe { try_call(dbm, body) }.unwrap_or(failed)
}

/// Does the same, and returns the failure, which is in `errno` by then.
///
/// # Safety
///
/// The contract of ndbm.
unsafe fn try_call<T>(
    dbm: *mut DBM,
    body: impl FnOnce(&mut Handle) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let failed = |failure: Failure| {
        set_errno(failure);
        failure
    };
    // SAFETY: the contract of ndbm.
    let dbm = unsafe { dbm.as_ref() }.ok_or_else(|| failed(EINVAL))?;
    let mut handle = dbm.0.lock().ok_or_else(|| failed(EDEADLK))?;
    let result = guard(|| body(&mut handle));
    handle.is_broken |= result.is_none();
    result.unwrap_or(Err(EIO)).map_err(|failure| {
        if handle.failure == 0 {
            handle.failure = failure;
        }
        drop(handle);
        failed(failure)
    })
}
