//! `sp_db`: an open store; what opens and closes it, and what a failure leaves behind.

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use splitpoint::{Db, Error, ErrorKind, Options, Table, Unsupported};
use splitpoint_ffi::{guard, set_errno};

use crate::code::{SP_ERR_PANIC, SP_OK};
use crate::failure::{self, Failure};
use crate::options::sp_options;

/// An open store. Any number of threads may use one handle at the same time.
#[derive(Debug)]
pub struct sp_db {
    /// The file; empty for a table in memory.
    path: PathBuf,
    table: Box<dyn Table>,
    /// The process that has opened it.
    process: u32,
    /// The message of the last call on this handle that failed.
    message: Mutex<CString>,
    /// Scans, snapshots and transactions that are open.
    part_count: AtomicUsize,
    /// Whether a panic may have left something half changed.
    is_broken: AtomicBool,
}

impl sp_db {
    pub(crate) fn table(&self) -> &dyn Table {
        &*self.table
    }

    /// Returns the table for a change.
    pub(crate) fn changeable(&self) -> Result<&dyn Table, Failure> {
        if self.is_broken.load(Ordering::Relaxed) {
            Err(Failure::panic())
        } else {
            Ok(self.table())
        }
    }

    /// Returns the store, if it is a native one.
    pub(crate) fn store(&self) -> Option<&Db> {
        let any: &dyn std::any::Any = &*self.table;
        any.downcast_ref()
    }

    pub(crate) fn part_opened(&self) {
        self.part_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one less of its parts when the result is dropped, also by a panic.
    pub(crate) fn closing_part(&self) -> ClosingPart<'_> {
        ClosingPart(self)
    }

    /// Returns the store, for what files of other formats do not have.
    pub(crate) fn native(&self) -> Result<&Db, Failure> {
        let what = "a file of another format has values to look up and to walk over, nothing more";
        self.store().ok_or_else(|| Failure::unsupported(what))
    }

    #[cold]
    fn keep(&self, failure: Failure) -> c_int {
        let failure = failure.using(&self.path);
        if failure.code == SP_ERR_PANIC {
            self.is_broken.store(true, Ordering::Relaxed);
        }
        *self.message.lock().unwrap_or_else(PoisonError::into_inner) = failure.text();
        report(&failure)
    }
}

/// A scan, a snapshot or a transaction that is being closed.
pub(crate) struct ClosingPart<'a>(&'a sp_db);

impl Drop for ClosingPart<'_> {
    fn drop(&mut self) {
        self.0.part_count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Remembers a failure for this thread, sets `errno`, and returns the code.
#[cold]
pub(crate) fn report(failure: &Failure) -> c_int {
    failure::remember(failure.text());
    set_errno(failure.errno);
    failure.code
}

/// Calls `body` with the handle; returns its code, or that of the failure, which it keeps.
///
/// # Safety
///
/// The pointer is null, or leads to an open handle.
#[inline]
pub(crate) unsafe fn call(
    db: *const sp_db,
    body: impl FnOnce(&'static sp_db) -> Result<c_int, Failure>,
) -> c_int {
    // SAFETY: the caller promised it. What `body` keeps of the lifetime is returned to the program,
    // which releases it before it closes the handle: a rule of the header.
    let Some(db) = (unsafe { db.as_ref() }) else {
        return report(&Failure::argument("the handle is null"));
    };
    match guard(|| body(db)) {
        Some(Ok(code)) => code,
        Some(Err(failure)) => db.keep(failure),
        None => db.keep(Failure::panic()),
    }
}

/// Opens the store in the file `path`, and stores its handle in `*db`; null if it fails.
///
/// Null options are the defaults: create the file if it is missing. A handle may write unless the
/// options say otherwise, and then nobody else can open the file for writing.
///
/// Databases of ndbm, dbm, sdbm, gdbm, db 1.85, Berkeley DB, cdb and dbm.dumb open too, with read-only
/// options. `splitpoint convert` makes stores of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_open(
    path: *const c_char,
    options: *const sp_options,
    db: *mut *mut sp_db,
) -> c_int {
    let open = |options: &Options| {
        if path.is_null() {
            return Err(Failure::argument("the path is null"));
        }
        // SAFETY: a string, by the rules of the header.
        let path = unsafe { CStr::from_ptr(path) };
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        let table = open_path(path, options).map_err(|error| Failure::opening(path, error))?;
        Ok((path.to_path_buf(), table))
    };
    // SAFETY: the pointers are null or as the rules of the header say.
    unsafe { open_into(db, options, open) }
}

/// Creates an empty table in memory, and stores its handle in `*db`; null if it fails.
///
/// Closing it loses its content. Durability has no meaning for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_open_in_memory(
    options: *const sp_options,
    db: *mut *mut sp_db,
) -> c_int {
    let open =
        |options: &Options| Ok((PathBuf::new(), Box::new(options.in_memory()?) as Box<dyn Table>));
    // SAFETY: the pointers are null or as the rules of the header say.
    unsafe { open_into(db, options, open) }
}

/// Opens a store, or an old file to read.
fn open_path(path: &Path, options: &Options) -> splitpoint::Result<Box<dyn Table>> {
    let not_a_store = match options.open(path) {
        Err(error) if error.kind() == ErrorKind::NotAStore => error,
        opened => return Ok(Box::new(opened?)),
    };
    let Ok(old) = splitpoint_legacy::open(path) else { return Err(not_a_store) };
    if options.is_read_only() {
        return Ok(Box::new(old));
    }
    let reason = format!(
        "it is a file of {}, which is only read: open it with sp_options_read_only(), or copy it \
         into a store with `splitpoint convert OLD NEW`",
        old.identity().format.name()
    );
    Err(Error::Unsupported { path: path.to_path_buf(), feature: Unsupported::Format, reason })
}

/// Stores what `open` opens in `*db`.
///
/// # Safety
///
/// As the rules of the header say of the pointers.
unsafe fn open_into(
    db: *mut *mut sp_db,
    options: *const sp_options,
    open: impl FnOnce(&Options) -> Result<(PathBuf, Box<dyn Table>), Failure>,
) -> c_int {
    if db.is_null() {
        return report(&Failure::argument("the place for the handle is null"));
    }
    // SAFETY: a place for a pointer, by the rules of the header.
    unsafe { db.write(ptr::null_mut()) };
    // SAFETY: null or options, by the rules of the header.
    let chosen = unsafe { options.as_ref() };
    let opened = guard(|| {
        let (path, table) = open(chosen.map_or(&Options::new(), |chosen| &chosen.options))?;
        Ok(Box::into_raw(Box::new(sp_db {
            path,
            table,
            process: std::process::id(),
            message: Mutex::default(),
            part_count: AtomicUsize::new(0),
            is_broken: AtomicBool::new(false),
        })))
    });
    match opened.unwrap_or_else(|| Err(Failure::panic())) {
        Ok(handle) => {
            // SAFETY: the same place.
            unsafe { db.write(handle) };
            SP_OK
        }
        Err(failure) => report(&failure),
    }
}

/// Closes a handle, and makes its changes durable. Null is fine.
///
/// Release its values first. With open scans, snapshots or transactions it fails with SP_ERR_BUSY, and the
/// handle stays as it was; after any other failure the handle is gone too, and the next open recovers the store.
/// A child of fork(2) closes its copy of the handle, and changes nothing.
///
/// The last handle of a file, unless it takes turns, compacts it if more than half of it is free or dead: that may
/// take seconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_close(db: *mut sp_db) -> c_int {
    if db.is_null() {
        return SP_OK;
    }
    // SAFETY: an open handle, by the rules of the header.
    let busy = unsafe {
        call(db, |db| match db.part_count.load(Ordering::Relaxed) {
            0 => Ok(SP_OK),
            count => Err(Failure::busy(format!(
                "close its scans, snapshots and transactions first: {count} are open"
            ))),
        })
    };
    if busy != SP_OK {
        return busy;
    }
    // SAFETY: `open_into` made it, and by the rules of the header this thread alone uses it now.
    let sp_db { path, table, process, .. } = *unsafe { Box::from_raw(db) };
    let is_own = process == std::process::id();
    let close = || {
        if is_own {
            return table.close().map(drop);
        }
        drop(table);
        Ok(())
    };
    match guard(close) {
        Some(Ok(())) => SP_OK,
        Some(Err(error)) => report(&Failure::from(error).using(&path)),
        None => report(&Failure::panic()),
    }
}

/// Returns what the last call on this handle that failed had to say, in a line for people: the file,
/// what was expected and what was found. "" if none failed. The text is valid until the next failure
/// on the handle.
///
/// With null: the same of the calling thread's last call that failed, whatever its handle. So it
/// serves after sp_open() and sp_close(), and where threads share a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_message(db: *const sp_db) -> *const c_char {
    // SAFETY: null or an open handle, by the rules of the header.
    match unsafe { db.as_ref() } {
        Some(db) => db.message.lock().unwrap_or_else(PoisonError::into_inner).as_ptr(),
        None => failure::last(),
    }
}

/// Makes every change before this call durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_sync(db: *mut sp_db) -> c_int {
    let sync = |db: &'static sp_db| {
        db.changeable()?.sync()?;
        Ok(SP_OK)
    };
    // SAFETY: null or an open handle, by the rules of the header.
    unsafe { call(db, sync) }
}

/// Compacts the store while the program has nothing else to do, and gives room back to the system.
///
/// Reads at most about `budget` bytes, and stores in `*is_done`, unless that is null, whether nothing
/// is left to compact. Stores compact by themselves as they change; this is for what is left.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_maintain(db: *mut sp_db, budget: u64, is_done: *mut c_int) -> c_int {
    let maintain = |db: &'static sp_db| {
        db.changeable()?;
        let store = db.store().ok_or(Error::ReadOnly)?;
        let done = store.maintain(budget)?.is_done;
        if !is_done.is_null() {
            // SAFETY: a place for an int, by the rules of the header.
            unsafe { is_done.write(c_int::from(done)) };
        }
        Ok(SP_OK)
    };
    // SAFETY: null or an open handle, by the rules of the header.
    unsafe { call(db, maintain) }
}

/// Compacts the store to the end, however long it takes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_compact(db: *mut sp_db) -> c_int {
    // SAFETY: the rules of the header are those of the other function.
    unsafe { sp_maintain(db, u64::MAX, ptr::null_mut()) }
}
