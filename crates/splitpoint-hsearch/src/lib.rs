//! `hsearch(3)`: tables of strings in memory, for C. They grow.
//!
//! ```text
//! program --> hsearch, hsearch_r --> Table: entries that never move, an index that grows
//! ```
//!
//! # Invariants
//!
//! - An entry stays at its address until its table is destroyed.
//! - A FIND changes nothing: any number of threads may run one at the same time.
//! - An ENTER that fails leaves the table as it was.

mod stable;
mod table;

use std::ffi::{CStr, c_int, c_uint};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use splitpoint_ffi::{guard, set_errno};

pub use table::Entry;
use table::Table;

/// `ACTION`: the entry with the key, or nothing.
const ENTER: c_uint = 1;

/// `struct hsearch_data`: one table, in memory of the program. glibc's, of 16 bytes.
#[repr(C)]
#[derive(Debug)]
pub struct HsearchData {
    /// Null while there is no table.
    table: *mut Table,
    /// Not used; not 0 while there is a table.
    size: c_uint,
    /// The number of entries.
    filled: c_uint,
}

const _: () = assert!(size_of::<HsearchData>() == 16);

/// The table of the functions without a table.
static GLOBAL: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

/// Creates the table of this process. Returns 0 with `ENOMEM` if there is no memory for `count`
/// entries, and 0 with `EEXIST` if there is a table, which stays as it is.
///
/// `count` is a guess: the table grows.
#[unsafe(no_mangle)]
pub extern "C" fn hcreate(count: usize) -> c_int {
    if !GLOBAL.load(Ordering::Acquire).is_null() {
        return fail(libc::EEXIST);
    }
    let Some(table) = create(count) else { return fail(libc::ENOMEM) };
    let old = GLOBAL.compare_exchange(ptr::null_mut(), table, Ordering::AcqRel, Ordering::Acquire);
    if old.is_ok() {
        return 1;
    }
    // SAFETY: `create` made it, and nobody else has it.
    drop(unsafe { Box::from_raw(table) });
    fail(libc::EEXIST)
}

/// Destroys the table of this process, with its entries, but neither their keys nor their data.
///
/// # Safety
///
/// No other thread uses the table, and nobody an entry of it afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hdestroy() {
    let table = GLOBAL.swap(ptr::null_mut(), Ordering::AcqRel);
    if !table.is_null() {
        // SAFETY: `create` made it, and it is taken out of its place once.
        drop(unsafe { Box::from_raw(table) });
    }
}

/// Looks an entry up in the table of this process, or enters it: [`hsearch_r`].
///
/// # Safety
///
/// As [`hsearch_r`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hsearch(item: Entry, action: c_uint) -> *mut Entry {
    let table = GLOBAL.load(Ordering::Acquire);
    // SAFETY: the caller promised it.
    match unsafe { search(table, item, action) } {
        Ok(found) => found,
        Err(errno) => {
            set_errno(errno);
            ptr::null_mut()
        }
    }
}

/// Creates a table in `data`, which the program has zeroed. Returns 0 with `EINVAL` for a null
/// pointer, with `ENOMEM` if there is no memory for `count` entries, and with `EEXIST` if there is a table
/// in it, which stays as it is.
///
/// # Safety
///
/// The pointer is null, or leads to a structure that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcreate_r(count: usize, data: *mut HsearchData) -> c_int {
    // SAFETY: the caller promised it.
    let Some(data) = (unsafe { data.as_mut() }) else { return fail(libc::EINVAL) };
    if !data.table.is_null() {
        return fail(libc::EEXIST);
    }
    let Some(table) = create(count) else { return fail(libc::ENOMEM) };
    *data = HsearchData { table, size: 1, filled: 0 };
    1
}

/// Destroys the table in `data`, with its entries, but neither their keys nor their data; `data` is
/// zeroed. Null, and a structure without a table, are fine.
///
/// # Safety
///
/// The pointer is null, or leads to a structure that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hdestroy_r(data: *mut HsearchData) {
    // SAFETY: the caller promised it.
    let Some(data) = (unsafe { data.as_mut() }) else { return set_errno(libc::EINVAL) };
    if !data.table.is_null() {
        // SAFETY: `create` made it, and it is taken out of its place once.
        drop(unsafe { Box::from_raw(data.table) });
    }
    *data = HsearchData { table: ptr::null_mut(), size: 0, filled: 0 };
}

/// Looks an entry up, or enters it, and stores its place in `*result`; returns whether there is one.
///
/// `FIND` (0) of a key that is not there: 0 with `ESRCH`. `ENTER` (1) of a key that is there: the old
/// entry, with its old data. `ENTER` fails with `ENOMEM` alone, for want of memory. The place is the
/// entry's until the table is destroyed.
///
/// # Safety
///
/// - `item.key` is null or a string; one that is entered stays a string, with the same bytes, until
///   the table is destroyed.
/// - `result` is null or a place for a pointer, `data` null or a structure with a table or none.
/// - No other thread enters into this table meanwhile, and none uses it during an `ENTER`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hsearch_r(
    item: Entry,
    action: c_uint,
    result: *mut *mut Entry,
    data: *mut HsearchData,
) -> c_int {
    let table = if data.is_null() {
        ptr::null_mut()
    } else {
        // SAFETY: the caller promised the structure.
        unsafe { (*data).table }
    };
    // SAFETY: the caller promised it.
    let found = unsafe { search(table, item, action) };
    if !result.is_null() {
        // SAFETY: the caller promised the place.
        unsafe { result.write(found.unwrap_or(ptr::null_mut())) };
    }
    if found.is_ok() && action == ENTER {
        // SAFETY: an ENTER found a table, so the structure is there, and the table in it.
        let count = unsafe { (*table).count() };
        // SAFETY: as above; nobody else uses it during an ENTER.
        unsafe { (*data).filled = count as c_uint };
    }
    match found {
        Ok(_) => 1,
        Err(errno) => fail(errno),
    }
}

/// Looks up or enters.
///
/// # Safety
///
/// As [`hsearch_r`]; `table` is null or a table.
#[inline(always)]
unsafe fn search(table: *mut Table, item: Entry, action: c_uint) -> Result<*mut Entry, c_int> {
    if item.key.is_null() {
        return Err(libc::EINVAL);
    }
    if table.is_null() {
        return Err(libc::ESRCH);
    }
    if action == ENTER {
        // SAFETY: the caller promised a string, and what an ENTER needs.
        return unsafe { enter(table, item) };
    }
    // SAFETY: the caller promised a string.
    let key = unsafe { CStr::from_ptr(item.key) };
    // SAFETY: no other thread enters meanwhile, as the caller promised.
    let table = unsafe { &*table };
    // Nothing in it panics or sets `errno`, and a guard would be a sixth of its instructions.
    table.find(key).ok_or(libc::ESRCH)
}

/// Enters an item, or finds the one that is there.
///
/// # Safety
///
/// As [`hsearch_r`]; `table` is a table, and the key of `item` a string.
#[inline(never)]
unsafe fn enter(table: *mut Table, item: Entry) -> Result<*mut Entry, c_int> {
    // SAFETY: the caller promised a string.
    let key = unsafe { CStr::from_ptr(item.key) };
    // SAFETY: no other thread uses the table during an ENTER, as the caller promised.
    let table = unsafe { &mut *table };
    // SAFETY: the caller promised that the key stays.
    let enter = || unsafe { table.enter(key, item) };
    guard(enter).flatten().ok_or(libc::ENOMEM)
}

/// Makes a table.
fn create(count: usize) -> Option<*mut Table> {
    guard(|| Table::new(count).map(|table| Box::into_raw(Box::new(table)))).flatten()
}

/// Sets `errno`, and returns what a failed call returns.
#[cold]
fn fail(errno: c_int) -> c_int {
    set_errno(errno);
    0
}
