//! `dbm(3)` of the seventh edition: one database at a time, for C.
//!
//! The database is that of ndbm(3); this keeps the one that is open. With the feature `gdbm-compat` the
//! library has ndbm(3) too, and so can stand in for gdbm's compatibility library.
//!
//! # Invariants
//!
//! - Nothing in here calls `fetch`, `store` or `delete` by those names: a program may have its own.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use libc::{EACCES, EBADF, EDEADLK, EINVAL, EIO, ENOENT, EPERM, EROFS};
use splitpoint_ffi::{Datum, HandleLock, guard, set_errno};
use splitpoint_ndbm::gdbm_errno::{self, Kind};
use splitpoint_ndbm::{Database, Failure, Lent, Request, StoreMode};

/// The database that is open.
#[derive(Debug)]
struct Current {
    database: Database,
    /// The value that a fetch has returned last.
    value: Lent,
    /// The key that a walk has returned last.
    key: Lent,
    /// Whether a panic may have left something half changed.
    is_broken: bool,
}

static CURRENT: HandleLock<Option<Current>> = HandleLock::new(None);

/// The database of gdbm behind dbm(3), for programs that ask for it: none, since there is no gdbm.
#[cfg(feature = "gdbm-compat")]
#[unsafe(export_name = "_gdbm_file")]
pub static GDBM_FILE: std::sync::atomic::AtomicPtr<std::ffi::c_void> =
    std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());

/// Opens the database of the files `NAME.pag` and `NAME.dir`, which have to be there, in place of the
/// one that is open: to read and write, or only to read if no more is allowed. Returns 0, or -1.
///
/// # Safety
///
/// `name` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dbminit(name: *const c_char) -> c_int {
    if name.is_null() {
        set_errno(EINVAL);
        return -1;
    }
    // SAFETY: the caller promised a string.
    let name = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()));
    let open = |current: &mut Option<Current>| {
        if let Some(old) = current.take() {
            // Whatever becomes of the old one, the new one is opened.
            let _ = old.database.close();
        }
        let database = open(name)?;
        let (value, key) = (Lent::default(), Lent::default());
        *current = Some(Current { database, value, key, is_broken: false });
        Ok(0)
    };
    run(open).unwrap_or(-1)
}

fn open(name: &Path) -> Result<Database, Failure> {
    let request = Request::existing(name);
    if !request.has_both_files() {
        return Err(ENOENT);
    }
    match Database::open(&request) {
        Err(EACCES | EPERM | EROFS) => Database::open(&Request::read_only(name)),
        opened => opened,
    }
}

/// Closes the database, if one is open. Returns 0, or -1 if its changes may not be durable.
#[unsafe(no_mangle)]
pub extern "C" fn dbmclose() -> c_int {
    let closed = run(|current| {
        let Some(old) = current.take() else { return Ok(0) };
        old.database.close().map(|()| 0)
    });
    closed.unwrap_or(-1)
}

/// Returns the value of a key, or a null pointer. It stays until the next fetch.
///
/// # Safety
///
/// The datum has null, or as many bytes as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fetch(key: Datum) -> Datum {
    look_up(|current| {
        // SAFETY: the caller promised it.
        let key = unsafe { bytes(key) }?;
        let value = current.database.fetch(key, |value| current.value.lend(value))?;
        value.unwrap_or(Ok(Datum::NONE))
    })
}

/// Stores a pair in place of an old one. Returns 0, or -1.
///
/// # Safety
///
/// The data have null, or as many bytes as they say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn store(key: Datum, value: Datum) -> c_int {
    let stored = with_current(|current| {
        // SAFETY: the caller promised it.
        let key = unsafe { bytes(key) }?;
        // SAFETY: the caller promised it.
        let value = unsafe { bytes(value) }?;
        current.changeable()?.store(key, value, StoreMode::Replace).map(|_| 0)
    });
    gdbm_errno::note(Kind::Store, stored, |_| true).unwrap_or(-1)
}

/// Deletes a key. Returns 0, or -1 if it is absent or cannot be deleted.
///
/// # Safety
///
/// The datum has null, or as many bytes as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn delete(key: Datum) -> c_int {
    let deleted = with_current(|current| {
        // SAFETY: the caller promised it.
        let key = unsafe { bytes(key) }?;
        Ok(if current.changeable()?.delete(key)? { 0 } else { -1 })
    });
    gdbm_errno::note(Kind::Delete, deleted, |&result| result == 0).unwrap_or(-1)
}

/// Begins a walk, and returns its first key or a null pointer. It stays until the next key.
#[unsafe(no_mangle)]
pub extern "C" fn firstkey() -> Datum {
    look_up(|current| {
        let key = current.database.first_key()?;
        key.map_or(Ok(Datum::NONE), |key| current.key.lend(key))
    })
}

/// Returns the key that follows another, or a null pointer at the end. It stays until the next key.
///
/// # Safety
///
/// The datum has null, or as many bytes as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nextkey(key: Datum) -> Datum {
    look_up(|current| {
        // SAFETY: the caller promised it.
        let key = unsafe { bytes(key) }?;
        let next = current.database.key_after(key)?;
        next.map_or(Ok(Datum::NONE), |key| current.key.lend(key))
    })
}

impl Current {
    fn changeable(&mut self) -> Result<&mut Database, Failure> {
        if self.is_broken { Err(EIO) } else { Ok(&mut self.database) }
    }
}

/// Returns the bytes of a datum, which is not null.
///
/// # Safety
///
/// The datum has null, or as many bytes as it says.
unsafe fn bytes<'a>(datum: Datum) -> Result<&'a [u8], Failure> {
    if datum.is_none() {
        return Err(EINVAL);
    }
    // SAFETY: the caller promised it.
    unsafe { datum.bytes() }.ok_or(EINVAL)
}

/// Calls `body`, which looks up a value or a key, with the database that is open.
fn look_up(body: impl FnOnce(&mut Current) -> Result<Datum, Failure>) -> Datum {
    let found = with_current(body);
    gdbm_errno::note(Kind::Lookup, found, |found| !found.is_none()).unwrap_or(Datum::NONE)
}

/// Calls `body` with the database that is open.
fn with_current<T>(body: impl FnOnce(&mut Current) -> Result<T, Failure>) -> Result<T, Failure> {
    run(|current| body(current.as_mut().ok_or(EBADF)?))
}

/// Calls `body` while no other thread does, and returns what it returns; a failure is in `errno` by then.
fn run<T>(body: impl FnOnce(&mut Option<Current>) -> Result<T, Failure>) -> Result<T, Failure> {
    let failed = |failure: Failure| {
        set_errno(failure);
        failure
    };
    let mut current = CURRENT.lock().ok_or_else(|| failed(EDEADLK))?;
    let result = guard(|| body(&mut current));
    if result.is_none()
        && let Some(current) = current.as_mut()
    {
        current.is_broken = true;
    }
    drop(current);
    result.unwrap_or(Err(EIO)).map_err(failed)
}
