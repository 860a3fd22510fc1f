//! Changes: `sp_put`, `sp_delete`, and many at once.

use std::ffi::{c_int, c_void};

use splitpoint::PutMode;

use crate::batch::sp_batch;
use crate::code::{SP_KEPT, SP_NOT_FOUND, SP_OK};
use crate::failure::Failure;
use crate::handle::{call, sp_db};
use crate::options::{SP_DEFAULT, level_of};
use crate::read::{bytes, slices, sp_slice};

/// Store the value, whether or not the key is there.
pub const SP_REPLACE: c_int = 0;
/// Store the value only if the key is absent.
pub const SP_NEW: c_int = 1;

/// Stores `value` under `key`, in place of any earlier value. Both are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_put(
    db: *mut sp_db,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
) -> c_int {
    // SAFETY: the rules of the header are those of the other function.
    unsafe { sp_put_with(db, key, key_size, value, value_size, SP_REPLACE, SP_DEFAULT) }
}

/// Stores `value` under `key`, with a mode and a durability of its own.
///
/// The mode is SP_REPLACE, or SP_NEW: then it returns SP_KEPT if the key is there, and the old value
/// stays. The durability is SP_DEFAULT for that of the handle, or SP_BUFFERED, SP_ASYNC, SP_SYNC.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_put_with(
    db: *mut sp_db,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
    mode: c_int,
    durability: c_int,
) -> c_int {
    let put = |db: &'static sp_db| {
        let put_mode = match mode {
            SP_REPLACE => PutMode::Replace,
            SP_NEW => PutMode::New,
            other => {
                let message = format!("mode is {other}; expected SP_REPLACE or SP_NEW");
                return Err(Failure::argument(message));
            }
        };
        // SAFETY: the rules of the header.
        let key = unsafe { bytes("key", key, key_size) }?;
        // SAFETY: the rules of the header.
        let value = unsafe { bytes("value", value, value_size) }?;
        let table = db.changeable()?;
        let is_stored = table.put_bytes(key, value, put_mode, level_of(durability)?)?;
        Ok(if is_stored { SP_OK } else { SP_KEPT })
    };
    // SAFETY: null or an open handle, by the rules of the header.
    unsafe { call(db, put) }
}

/// Stores `count` values under as many keys. If it fails, those before the one that failed are stored;
/// sp_apply() is all or nothing.
///
/// With SP_SYNC all share one wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_put_many(
    db: *mut sp_db,
    keys: *const sp_slice,
    values: *const sp_slice,
    count: usize,
    durability: c_int,
) -> c_int {
    let put = |db: &'static sp_db| {
        // SAFETY: the rules of the header.
        let keys = unsafe { slices("key", keys, count) }?;
        // SAFETY: the rules of the header.
        let values = unsafe { slices("value", values, count) }?;
        let pairs: Vec<_> = keys.into_iter().zip(values).collect();
        db.changeable()?.put_many_bytes(&pairs, level_of(durability)?)?;
        Ok(SP_OK)
    };
    // SAFETY: null or an open handle, by the rules of the header.
    unsafe { call(db, put) }
}

/// Deletes `key`. Returns SP_NOT_FOUND if it was absent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_delete(db: *mut sp_db, key: *const c_void, key_size: usize) -> c_int {
    // SAFETY: the rules of the header are those of the other function.
    unsafe { sp_delete_with(db, key, key_size, SP_DEFAULT) }
}

/// Deletes `key`, with a durability of its own. Returns SP_NOT_FOUND if it was absent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_delete_with(
    db: *mut sp_db,
    key: *const c_void,
    key_size: usize,
    durability: c_int,
) -> c_int {
    let delete = |db: &'static sp_db| {
        // SAFETY: the rules of the header.
        let key = unsafe { bytes("key", key, key_size) }?;
        let is_deleted = db.changeable()?.delete_bytes(key, level_of(durability)?)?;
        Ok(if is_deleted { SP_OK } else { SP_NOT_FOUND })
    };
    // SAFETY: null or an open handle, by the rules of the header.
    unsafe { call(db, delete) }
}

/// Makes the changes of a batch: all or none, also if the process is killed or the power fails. The
/// batch stays as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_apply(
    db: *mut sp_db,
    batch: *const sp_batch,
    durability: c_int,
) -> c_int {
    let apply = |db: &'static sp_db| {
        // SAFETY: null or a batch, by the rules of the header.
        let batch = unsafe { batch.as_ref() };
        let batch = batch.ok_or_else(|| Failure::argument("the batch is null"))?;
        let changes: Vec<_> = batch.batch.iter().collect();
        db.changeable()?.apply_bytes(&changes, level_of(durability)?)?;
        Ok(SP_OK)
    };
    // SAFETY: null or an open handle, by the rules of the header.
    unsafe { call(db, apply) }
}

/// Stores `*value` under `key` if its value is `*expected`, in one step; null for `expected` is an absent
/// key, null for `value` deletes the key. Returns SP_KEPT, and changes nothing, if it is another.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_compare_and_swap(
    db: *mut sp_db,
    key: *const c_void,
    key_size: usize,
    expected: *const sp_slice,
    value: *const sp_slice,
) -> c_int {
    let swap = |db: &'static sp_db| {
        // SAFETY: the rules of the header.
        let key = unsafe { bytes("key", key, key_size) }?;
        // SAFETY: the rules of the header.
        let expected = unsafe { optional("expected value", expected) }?;
        // SAFETY: the rules of the header.
        let value = unsafe { optional("value", value) }?;
        db.changeable()?;
        let store = db.native()?;
        let is_swapped = store.compare_and_swap(key, expected, value)?;
        Ok(if is_swapped { SP_OK } else { SP_KEPT })
    };
    // SAFETY: null or an open handle, by the rules of the header.
    unsafe { call(db, swap) }
}

/// Returns the bytes of a slice, `None` for null.
///
/// # Safety
///
/// The pointer is null, or leads to a slice as the rules of the header say.
unsafe fn optional<'a>(
    what: &'static str,
    slice: *const sp_slice,
) -> Result<Option<&'a [u8]>, Failure> {
    // SAFETY: the caller promised it.
    let slice = unsafe { slice.as_ref() };
    // SAFETY: the same.
    slice.map(|slice| unsafe { bytes(what, slice.data, slice.size) }).transpose()
}

/// Adds `by` to the counter under `key`, in one step, and stores its new value in `*sum`, unless that is
/// null.
///
/// A counter is a value of 8 bytes: a signed number, little-endian. An absent key counts as 0. Fails with
/// SP_ERR_ARGUMENT for another value, and if the sum does not fit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_increment(
    db: *mut sp_db,
    key: *const c_void,
    key_size: usize,
    by: i64,
    sum: *mut i64,
) -> c_int {
    let increment = |db: &'static sp_db| {
        // SAFETY: the rules of the header.
        let key = unsafe { bytes("key", key, key_size) }?;
        db.changeable()?;
        let new = db.native()?.increment(key, by)?;
        if !sum.is_null() {
            // SAFETY: a place for a number, by the rules of the header.
            unsafe { sum.write(new) };
        }
        Ok(SP_OK)
    };
    // SAFETY: null or an open handle, by the rules of the header.
    unsafe { call(db, increment) }
}
