//! `sp_scan`: a walk over every key.

use std::ffi::c_int;
use std::{fmt, ptr};

use splitpoint::{Entries, Entry};

use crate::code::{SP_END, SP_OK};
use crate::failure::Failure;
use crate::handle::{call, report, sp_db};
use crate::read::sp_slice;

/// A walk over every key with its value. One thread at a time uses it.
pub struct sp_scan {
    db: *const sp_db,
    // Before `entries`, which it borrows from, is dropped.
    entry: Option<Entry<'static>>,
    entries: Entries<'static>,
}

impl sp_scan {
    pub(crate) fn new(db: *const sp_db, entries: Entries<'static>) -> Self {
        Self { db, entry: None, entries }
    }
}

impl fmt::Debug for sp_scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("sp_scan").field("entry", &self.entry).finish_non_exhaustive()
    }
}

/// Begins a walk over every key with its value, and stores it in `*scan`.
///
/// Every key that is there from the beginning of the walk to its end comes exactly once, whatever is
/// changed meanwhile, with the value that it had at the beginning. So a program that deletes each key
/// as it comes deletes all. Keys that are stored during the walk do not come.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_scan_open(db: *mut sp_db, scan: *mut *mut sp_scan) -> c_int {
    if !scan.is_null() {
        // SAFETY: a place for a pointer, by the rules of the header.
        unsafe { scan.write(ptr::null_mut()) };
    }
    let open = |handle: &'static sp_db| {
        if scan.is_null() {
            return Err(Failure::argument("the place for the scan is null"));
        }
        let entries = handle.table().scan()?;
        handle.part_opened();
        let new = Box::into_raw(Box::new(sp_scan::new(db, entries)));
        // SAFETY: the same place.
        unsafe { scan.write(new) };
        Ok(SP_OK)
    };
    // SAFETY: null or an open handle, by the rules of the header.
    unsafe { call(db, open) }
}

/// Stores the next key and its value in `*key` and `*value`; either may be null. Returns SP_END, and
/// stores null, when every key has come.
///
/// Their bytes are the store's: do not write to them. They last until the next call on this scan.
/// A failure stores null, and the next call returns SP_END.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_scan_next(
    scan: *mut sp_scan,
    key: *mut sp_slice,
    value: *mut sp_slice,
) -> c_int {
    // The bytes of the call before end with this one, whatever it returns.
    // SAFETY: null or a place for a slice, by the rules of the header.
    unsafe { store(key, None) };
    // SAFETY: null or a place for a slice, by the rules of the header.
    unsafe { store(value, None) };
    // SAFETY: null or an open scan, by the rules of the header.
    let Some(scan) = (unsafe { scan.as_mut() }) else {
        return report(&Failure::argument("the scan is null"));
    };
    let next = |_| {
        scan.entry = None;
        scan.entry = scan.entries.next().transpose()?;
        let pair = scan.entry.as_ref().map(|entry| (&*entry.key, &*entry.value));
        // SAFETY: null or a place for a slice, by the rules of the header.
        unsafe { store(key, pair.map(|(key, _)| key)) };
        // SAFETY: null or a place for a slice, by the rules of the header.
        unsafe { store(value, pair.map(|(_, value)| value)) };
        Ok(if pair.is_some() { SP_OK } else { SP_END })
    };
    // SAFETY: the handle is open as long as the scan is, since `sp_close` refuses.
    unsafe { call(scan.db, next) }
}

/// Stores `bytes` in `*slice`.
///
/// # Safety
///
/// The pointer is null, or leads to a place for a slice.
unsafe fn store(slice: *mut sp_slice, bytes: Option<&[u8]>) {
    if slice.is_null() {
        return;
    }
    let bytes = bytes.map_or(sp_slice { data: ptr::null(), size: 0 }, |bytes| sp_slice {
        data: bytes.as_ptr().cast(),
        size: bytes.len(),
    });
    // SAFETY: the caller promised the place.
    unsafe { slice.write(bytes) };
}

/// Ends a walk. Null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_scan_close(scan: *mut sp_scan) {
    if scan.is_null() {
        return;
    }
    // SAFETY: `sp_scan_open` made it, and by the rules of the header nobody closed it.
    let scan = unsafe { Box::from_raw(scan) };
    let db = scan.db;
    let close = |db: &'static sp_db| {
        let _closing = db.closing_part();
        drop(scan);
        Ok(SP_OK)
    };
    // SAFETY: the handle is open as long as a scan is, since `sp_close` refuses.
    unsafe { call(db, close) };
}
