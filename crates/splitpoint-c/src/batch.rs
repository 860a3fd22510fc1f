//! `sp_batch`: changes that are made together.

use std::ffi::{c_int, c_void};
use std::ptr;

use splitpoint::{Batch, Change, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use splitpoint_ffi::guard;

use crate::code::SP_OK;
use crate::failure::Failure;
use crate::handle::report;
use crate::read::bytes;

/// Changes for sp_apply(), in order. It belongs to no handle.
#[derive(Debug)]
pub struct sp_batch {
    pub(crate) batch: Batch,
}

/// Returns an empty batch, or null if there is no memory.
#[unsafe(no_mangle)]
pub extern "C" fn sp_batch_new() -> *mut sp_batch {
    let new = || Box::into_raw(Box::new(sp_batch { batch: Batch::new() }));
    guard(new).unwrap_or(ptr::null_mut())
}

/// Frees a batch. Null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_batch_free(batch: *mut sp_batch) {
    if !batch.is_null() {
        // SAFETY: `sp_batch_new` made it, and by the rules of the header nobody freed it.
        drop(unsafe { Box::from_raw(batch) });
    }
}

/// Adds a put. Key and value are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_batch_put(
    batch: *mut sp_batch,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
) -> c_int {
    let put = |batch: &mut Batch| {
        // SAFETY: the rules of the header.
        let key = unsafe { bounded("key", key, key_size, KEY_BYTES_MAX) }?;
        // SAFETY: the rules of the header.
        let value = unsafe { bounded("value", value, value_size, VALUE_BYTES_MAX) }?;
        Ok(batch.try_push(Change::Put { key, value })?)
    };
    // SAFETY: the pointer is null or as the rules of the header say.
    unsafe { change(batch, put) }
}

/// Adds a delete. The key is copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_batch_delete(
    batch: *mut sp_batch,
    key: *const c_void,
    key_size: usize,
) -> c_int {
    let delete = |batch: &mut Batch| {
        // SAFETY: the rules of the header.
        let key = unsafe { bounded("key", key, key_size, KEY_BYTES_MAX) }?;
        Ok(batch.try_push(Change::Delete { key })?)
    };
    // SAFETY: the pointer is null or as the rules of the header say.
    unsafe { change(batch, delete) }
}

/// Removes all changes from a batch, to use it again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_batch_clear(batch: *mut sp_batch) -> c_int {
    let clear = |batch: &mut Batch| {
        batch.clear();
        Ok(())
    };
    // SAFETY: the pointer is null or as the rules of the header say.
    unsafe { change(batch, clear) }
}

/// Returns the number of changes of a batch; 0 of null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_batch_count(batch: *const sp_batch) -> usize {
    // SAFETY: null or a batch, by the rules of the header.
    unsafe { batch.as_ref() }.map_or(0, |batch| batch.batch.len())
}

/// Returns the bytes of a key or a value that sp_apply() would not refuse for its size.
///
/// # Safety
///
/// As [`bytes`].
unsafe fn bounded<'a>(
    what: &'static str,
    data: *const c_void,
    size: usize,
    bytes_max: u64,
) -> Result<&'a [u8], Failure> {
    if size as u64 > bytes_max && !data.is_null() {
        return Err(Failure::too_large(what, size));
    }
    // SAFETY: the caller promised it.
    unsafe { bytes(what, data, size) }
}

/// Calls `body` with the batch.
///
/// # Safety
///
/// The pointer is null, or leads to a batch that no other thread uses.
unsafe fn change(
    batch: *mut sp_batch,
    body: impl FnOnce(&mut Batch) -> Result<(), Failure>,
) -> c_int {
    // SAFETY: the caller promised it.
    let Some(batch) = (unsafe { batch.as_mut() }) else {
        return report(&Failure::argument("the batch is null"));
    };
    match guard(|| body(&mut batch.batch)) {
        Some(Ok(())) => SP_OK,
        Some(Err(failure)) => report(&failure),
        None => report(&Failure::panic()),
    }
}
