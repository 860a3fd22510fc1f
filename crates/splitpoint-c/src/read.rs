//! Reading: `sp_get` and its kin.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::{ptr, slice};

use splitpoint::{Error, Value};
use splitpoint_ffi::{bytes_at, malloc_copy};

use crate::code::{SP_NOT_FOUND, SP_OK};
use crate::failure::Failure;
use crate::handle::{call, sp_db};

/// Bytes of the program's, or of the store's where a function says so.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sp_slice {
    /// The first byte.
    pub data: *const c_void,
    /// The number of bytes.
    pub size: usize,
}

/// A value of the store, not copied. sp_release() gives it back; until then later changes do not
/// touch its bytes, and the store cannot use their space again. Do not write to the bytes.
#[repr(C)]
#[derive(Debug)]
pub struct sp_value {
    /// The first byte; null for an absent key.
    pub data: *const c_void,
    /// The number of bytes.
    pub size: usize,
    /// The library's own.
    pub owner: [u64; 4],
}

/// What is in `owner` while `data` is not null.
type Owner = Value<'static>;
const _: () = assert!(size_of::<Owner>() <= size_of::<[u64; 4]>());
const _: () = assert!(align_of::<Owner>() <= align_of::<[u64; 4]>());

impl sp_value {
    pub(crate) const NONE: Self = Self { data: ptr::null(), size: 0, owner: [0; 4] };

    pub(crate) fn new(value: Owner) -> Self {
        let mut new = Self { data: value.as_ptr().cast(), size: value.len(), owner: [0; 4] };
        // SAFETY: the constants above say that it fits.
        unsafe { (&raw mut new.owner).cast::<Owner>().write(value) };
        new
    }
}

/// Returns the bytes of a key or a value.
///
/// # Safety
///
/// The pointer is null, or leads to so many bytes.
pub(crate) unsafe fn bytes<'a>(
    what: &'static str,
    data: *const c_void,
    size: usize,
) -> Result<&'a [u8], Failure> {
    if data.is_null() && size > 0 {
        return Err(Failure::argument(format!("the {what} is null, with a size of {size}")));
    }
    // SAFETY: the caller promised it.
    let bytes = unsafe { bytes_at(data, size) };
    // No object has more, so a negative number was the size.
    bytes.ok_or_else(|| Failure::too_large(what, size))
}

/// Looks `key` up, and stores its value in `*value` without a copy: release it with sp_release(),
/// before the handle is closed.
///
/// Returns SP_NOT_FOUND, with a null value, if the key is absent. The value was current during the
/// call; what is changed later does not change its bytes. Only copy what you keep for long: until a
/// value is released, no record that died after it gives its room back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_get(
    db: *const sp_db,
    key: *const c_void,
    key_size: usize,
    value: *mut sp_value,
) -> c_int {
    if !value.is_null() {
        // SAFETY: a place for a value, by the rules of the header.
        unsafe { value.write(sp_value::NONE) };
    }
    let get = |db: &'static sp_db| {
        if value.is_null() {
            return Err(Failure::argument("the place for the value is null"));
        }
        // SAFETY: the rules of the header.
        let key = unsafe { bytes("key", key, key_size) }?;
        let Some(found) = db.table().get_bytes(key)? else { return Ok(SP_NOT_FOUND) };
        // SAFETY: the same place.
        unsafe { value.write(sp_value::new(found)) };
        Ok(SP_OK)
    };
    // SAFETY: null or an open handle, by the rules of the header.
    unsafe { call(db, get) }
}

/// Gives a value back. The value is null afterwards; to release it again does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_release(value: *mut sp_value) {
    // SAFETY: null or a value, by the rules of the header.
    let Some(value) = (unsafe { value.as_mut() }) else { return };
    if value.data.is_null() {
        return;
    }
    value.data = ptr::null();
    value.size = 0;
    // SAFETY: `data` was not null, so `new` wrote an owner; it is taken once, since `data` is null now.
    drop(unsafe { (&raw mut value.owner).cast::<Owner>().read() });
}

/// Looks `key` up, and stores a copy of its value in `*data` and its size in `*size`. The program
/// frees the copy with free(3). An empty value is not null.
///
/// Returns SP_NOT_FOUND, with null and 0, if the key is absent. An error leaves null and 0 too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_get_copy(
    db: *const sp_db,
    key: *const c_void,
    key_size: usize,
    data: *mut *mut c_void,
    size: *mut usize,
) -> c_int {
    // Before anything can fail, the handle included: the program may free what it finds there.
    if !data.is_null() {
        // SAFETY: a place for a pointer, by the rules of the header.
        unsafe { data.write(ptr::null_mut()) };
    }
    if !size.is_null() {
        // SAFETY: a place for a size, by the rules of the header.
        unsafe { size.write(0) };
    }
    let get = |db: &'static sp_db| {
        if data.is_null() || size.is_null() {
            return Err(Failure::argument("a place for the result is null"));
        }
        // SAFETY: the rules of the header.
        let key = unsafe { bytes("key", key, key_size) }?;
        let Some(found) = db.table().get_bytes(key)? else { return Ok(SP_NOT_FOUND) };
        let copy = malloc_copy(&found);
        if copy.is_null() {
            let (what, bytes) = (Error::MEMORY, found.len() as u64);
            return Err(Error::Full { what, bytes }.into());
        }
        // SAFETY: the same place.
        unsafe { data.write(copy) };
        // SAFETY: the same place.
        unsafe { size.write(found.len()) };
        Ok(SP_OK)
    };
    // SAFETY: null or an open handle, by the rules of the header.
    unsafe { call(db, get) }
}

/// Looks `key` up, and copies the first `capacity` bytes of its value to `data`; stores the size of the
/// whole value in `*size`. Nothing is allocated.
///
/// Returns SP_NOT_FOUND if the key is absent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_get_into(
    db: *const sp_db,
    key: *const c_void,
    key_size: usize,
    data: *mut c_void,
    capacity: usize,
    size: *mut usize,
) -> c_int {
    let get = |db: &'static sp_db| {
        if size.is_null() || (data.is_null() && capacity > 0) {
            return Err(Failure::argument("a place for the result is null"));
        }
        // SAFETY: the rules of the header.
        let key = unsafe { bytes("key", key, key_size) }?;
        let found = db.table().get_bytes(key)?;
        // SAFETY: a place for a size, by the rules of the header.
        unsafe { size.write(found.as_ref().map_or(0, |value| value.len())) };
        let Some(found) = found else { return Ok(SP_NOT_FOUND) };
        let copied = found.len().min(capacity);
        // SAFETY: `data` has room for `capacity` bytes, by the rules of the header. They are not
        // those of the value, which are the library's.
        unsafe { ptr::copy_nonoverlapping(found.as_ptr(), data.cast(), copied) };
        Ok(SP_OK)
    };
    // SAFETY: null or an open handle, by the rules of the header.
    unsafe { call(db, get) }
}

/// Looks `count` keys up at once, which is faster than one by one, and stores their values in
/// `values`, in the same order; null for those that are absent. Release each with sp_release().
///
/// If it fails, all values are null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_get_many(
    db: *const sp_db,
    keys: *const sp_slice,
    count: usize,
    values: *mut sp_value,
) -> c_int {
    // Before anything can fail, the handle included.
    let places: &mut [MaybeUninit<sp_value>] = if values.is_null() || !is_count(count) {
        &mut []
    } else {
        // SAFETY: places for `count` values, by the rules of the header; any bytes are one of these.
        unsafe { slice::from_raw_parts_mut(values.cast(), count) }
    };
    for place in &mut *places {
        place.write(sp_value::NONE);
    }
    let get = |db: &'static sp_db| {
        // SAFETY: the rules of the header.
        let keys = unsafe { slices("key", keys, count) }?;
        if places.len() != count {
            return Err(Failure::argument("the place for the values is null"));
        }
        let found = db.table().get_many_bytes(&keys)?;
        for (place, value) in places.iter_mut().zip(found) {
            place.write(value.map_or(sp_value::NONE, sp_value::new));
        }
        Ok(SP_OK)
    };
    // SAFETY: null or an open handle, by the rules of the header.
    unsafe { call(db, get) }
}

/// Returns whether there can be so many slices, or values.
fn is_count(count: usize) -> bool {
    count <= isize::MAX as usize / size_of::<sp_slice>().max(size_of::<sp_value>())
}

/// Returns the bytes of `count` slices.
///
/// # Safety
///
/// The pointer is null, or leads to so many slices, each as the rules of the header say.
pub(crate) unsafe fn slices<'a>(
    what: &'static str,
    start: *const sp_slice,
    count: usize,
) -> Result<Vec<&'a [u8]>, Failure> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if start.is_null() {
        return Err(Failure::argument(format!("the {what}s are null, and their count is {count}")));
    }
    if !is_count(count) {
        return Err(Failure::argument(format!("there cannot be {count} {what}s")));
    }
    // SAFETY: the caller promised so many.
    let all = unsafe { slice::from_raw_parts(start, count) };
    // SAFETY: the caller promised the bytes of each.
    all.iter().map(|one| unsafe { bytes(what, one.data, one.size) }).collect()
}

/// Returns SP_OK if `key` is there, else SP_NOT_FOUND.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_exists(db: *const sp_db, key: *const c_void, key_size: usize) -> c_int {
    let exists = |db: &'static sp_db| {
        // SAFETY: the rules of the header.
        let key = unsafe { bytes("key", key, key_size) }?;
        Ok(if db.table().get_bytes(key)?.is_some() { SP_OK } else { SP_NOT_FOUND })
    };
    // SAFETY: null or an open handle, by the rules of the header.
    unsafe { call(db, exists) }
}

/// Stores the number of keys in `*count`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_count(db: *const sp_db, count: *mut u64) -> c_int {
    let get = |db: &'static sp_db| {
        if count.is_null() {
            return Err(Failure::argument("the place for the count is null"));
        }
        // SAFETY: a place for a number, by the rules of the header.
        unsafe { count.write(db.table().len()?) };
        Ok(SP_OK)
    };
    // SAFETY: null or an open handle, by the rules of the header.
    unsafe { call(db, get) }
}
