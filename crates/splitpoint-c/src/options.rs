//! `sp_options`: how a store is opened and created.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::ptr;
use std::time::Duration;

use splitpoint::hash::HashFunction;
use splitpoint::{Create, Durability, Options, Sharing};
use splitpoint_ffi::guard;

use crate::failure::Failure;
use crate::handle::report;

/// Open the file, and create it if it is missing. The default.
pub const SP_CREATE_IF_MISSING: c_int = 0;
/// Create the file; fail with SP_ERR_FILE_EXISTS if it is there.
pub const SP_CREATE_NEW: c_int = 1;
/// Open an existing file; fail with SP_ERR_NO_FILE if it is missing.
pub const SP_CREATE_NEVER: c_int = 2;

/// The durability that the handle was opened with.
pub const SP_DEFAULT: c_int = 0;
/// A change survives a killed process at once, and a power loss after the next sp_sync(), or after
/// sp_close() unless the handle takes turns (SP_SHARED, SP_PER_CALL).
pub const SP_BUFFERED: c_int = 1;
/// The same, and a background thread syncs within a second. The default of a handle.
pub const SP_ASYNC: c_int = 2;
/// A change survives a power loss when the call returns.
pub const SP_SYNC: c_int = 3;

/// One handle writes for as long as it is open, and any number read beside it. The default.
pub const SP_ONE_WRITER: c_int = 0;
/// Nobody else has the file open.
pub const SP_EXCLUSIVE: c_int = 1;
/// Any number of handles write by turns, one change each, in any process.
pub const SP_SHARED: c_int = 2;
/// The same, and nothing is locked between two calls.
pub const SP_PER_CALL: c_int = 3;

/// How a store is opened and created. Set what differs from the defaults, open as many stores as you
/// like, then free it.
#[derive(Debug)]
pub struct sp_options {
    pub(crate) options: Options,
}

/// Returns options with their defaults, or null if there is no memory.
#[unsafe(no_mangle)]
pub extern "C" fn sp_options_new() -> *mut sp_options {
    let new = || Box::into_raw(Box::new(sp_options { options: Options::new() }));
    guard(new).unwrap_or(ptr::null_mut())
}

/// Frees options. Null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_options_free(options: *mut sp_options) {
    if !options.is_null() {
        // SAFETY: `sp_options_new` made it, and by the rules of the header nobody freed it.
        drop(unsafe { Box::from_raw(options) });
    }
}

/// Says whether a missing file is created: SP_CREATE_IF_MISSING, SP_CREATE_NEW or SP_CREATE_NEVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_options_create(options: *mut sp_options, create: c_int) -> c_int {
    let create = match create {
        SP_CREATE_IF_MISSING => Ok(Create::IfMissing),
        SP_CREATE_NEW => Ok(Create::New),
        SP_CREATE_NEVER => Ok(Create::Never),
        other => Err(Failure::argument(format!(
            "create is {other}; expected SP_CREATE_IF_MISSING, SP_CREATE_NEW or SP_CREATE_NEVER"
        ))),
    };
    // SAFETY: the pointer is null or as the rules of the header say.
    unsafe { set(options, |options| Ok(options.create(create?))) }
}

/// Opens for reading only, if `is_read_only` is not 0. Old databases can be opened only so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_options_read_only(
    options: *mut sp_options,
    is_read_only: c_int,
) -> c_int {
    let change = |options: Options| {
        if is_read_only == 0 && options.is_read_only() {
            return Err(Failure::argument("read-only options stay so: make new ones"));
        }
        Ok(if is_read_only == 0 { options } else { options.read_only() })
    };
    // SAFETY: the pointer is null or as the rules of the header say.
    unsafe { set(options, change) }
}

/// Says who else may have the file open: SP_ONE_WRITER, SP_EXCLUSIVE, SP_SHARED or SP_PER_CALL.
///
/// A handle of SP_PER_CALL keeps a lock while a snapshot or a transaction that has read is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_options_sharing(options: *mut sp_options, sharing: c_int) -> c_int {
    let sharing = match sharing {
        SP_ONE_WRITER => Ok(Sharing::OneWriter),
        SP_EXCLUSIVE => Ok(Sharing::Exclusive),
        SP_SHARED => Ok(Sharing::Shared),
        SP_PER_CALL => Ok(Sharing::PerCall),
        other => Err(Failure::argument(format!(
            "sharing is {other}; expected SP_ONE_WRITER, SP_EXCLUSIVE, SP_SHARED or SP_PER_CALL"
        ))),
    };
    // SAFETY: the pointer is null or as the rules of the header say.
    unsafe { set(options, |options| Ok(options.sharing(sharing?))) }
}

/// Sets how long an open waits for others before it fails with SP_ERR_LOCKED, in milliseconds; not at all
/// by default. A handle of SP_SHARED or SP_PER_CALL waits as long for its turn with each change, by default
/// 10 seconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_options_lock_timeout(
    options: *mut sp_options,
    milliseconds: u64,
) -> c_int {
    let time = Duration::from_millis(milliseconds);
    // SAFETY: the pointer is null or as the rules of the header say.
    unsafe { set(options, |options| Ok(options.lock_timeout(time))) }
}

/// Sets the durability of changes that name none: SP_BUFFERED, SP_ASYNC or SP_SYNC.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_options_durability(
    options: *mut sp_options,
    durability: c_int,
) -> c_int {
    let change = |options: Options| {
        let level = level_of(durability)?.unwrap_or(Durability::Async);
        Ok(options.durability(level))
    };
    // SAFETY: the pointer is null or as the rules of the header say.
    unsafe { set(options, change) }
}

/// Bounds the age of SP_ASYNC changes that are not durable yet, in milliseconds; 1000 by default. With
/// 0 changes never wait for the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_options_async_age_max(
    options: *mut sp_options,
    milliseconds: u64,
) -> c_int {
    let age = (milliseconds != 0).then(|| Duration::from_millis(milliseconds));
    // SAFETY: the pointer is null or as the rules of the header say.
    unsafe { set(options, |options| Ok(options.async_age_max(age))) }
}

/// Creates a new store with room for so many keys, which saves it from growing step by step.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_options_expected_records(
    options: *mut sp_options,
    records: u64,
) -> c_int {
    // SAFETY: the pointer is null or as the rules of the header say.
    unsafe { set(options, |options| Ok(options.expected_records(records))) }
}

/// Sets the mean number of keys in a bucket of a new store above which one bucket is split.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_options_fill_factor(
    options: *mut sp_options,
    keys_per_bucket: f64,
) -> c_int {
    // SAFETY: the pointer is null or as the rules of the header say.
    unsafe { set(options, |options| Ok(options.fill_factor(keys_per_bucket))) }
}

/// Bounds the memory of the file that the handle keeps mapped, in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_options_cache_bytes(options: *mut sp_options, bytes: u64) -> c_int {
    // SAFETY: the pointer is null or as the rules of the header say.
    unsafe { set(options, |options| Ok(options.cache_bytes(bytes))) }
}

/// Sets how many bytes of space a snapshot, a transaction or a scan may hold back; by default as many as are live
/// when it begins, and at least 64 MiB. A scan may hold back three times as much.
///
/// What is replaced or deleted while one is open stays in the store for it. One that has held back more is given
/// up: it returns SP_ERR_TOO_OLD from then on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_options_max_snapshot_pin(
    options: *mut sp_options,
    bytes: u64,
) -> c_int {
    // SAFETY: the pointer is null or as the rules of the header say.
    unsafe { set(options, |options| Ok(options.max_snapshot_pin(bytes))) }
}

/// Sets the mode of a new file, before the umask; 0666 by default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_options_file_mode(options: *mut sp_options, mode: c_uint) -> c_int {
    // SAFETY: the pointer is null or as the rules of the header say.
    unsafe { set(options, |options| Ok(options.file_mode(mode & 0o666))) }
}

/// Sets the hash function of a new store by its name, as `splitpoint lab list` has it. An existing
/// store has to have the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_options_hash(options: *mut sp_options, name: *const c_char) -> c_int {
    let change = |options: Options| {
        if name.is_null() {
            return Err(Failure::argument("the name of the hash function is null"));
        }
        // SAFETY: a string, by the rules of the header.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let function = HashFunction::by_name(&name);
        let unknown = || {
            let known = HashFunction::names();
            Failure::argument(format!("there is no hash function `{name}`; there are {known}"))
        };
        Ok(options.hash(function.ok_or_else(unknown)?))
    };
    // SAFETY: the pointer is null or as the rules of the header say.
    unsafe { set(options, change) }
}

/// Sets the seed of the hash function of a new store; random by default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_options_seed(options: *mut sp_options, seed: u64) -> c_int {
    // SAFETY: the pointer is null or as the rules of the header say.
    unsafe { set(options, |options| Ok(options.seed(seed))) }
}

/// Counts what the lookups of the handle cost, if `is_on` is not 0: `sp_get_lookups` has the counts, and
/// `splitpoint stat --watch` shows those of all handles of a file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_options_instrument(options: *mut sp_options, is_on: c_int) -> c_int {
    // SAFETY: the pointer is null or as the rules of the header say.
    unsafe { set(options, |options| Ok(options.instrument(is_on != 0))) }
}

/// Builds the index again from the records at the open, if `is_rebuilt` is not 0. For files of
/// unknown origin: the index in the file is not trusted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_options_rebuild_index(
    options: *mut sp_options,
    is_rebuilt: c_int,
) -> c_int {
    let change =
        |options: Options| Ok(if is_rebuilt == 0 { options } else { options.rebuild_index() });
    // SAFETY: the pointer is null or as the rules of the header say.
    unsafe { set(options, change) }
}

/// Returns the level of a change, `None` for that of the handle.
pub(crate) fn level_of(durability: c_int) -> Result<Option<Durability>, Failure> {
    match durability {
        SP_DEFAULT => Ok(None),
        SP_BUFFERED => Ok(Some(Durability::Buffered)),
        SP_ASYNC => Ok(Some(Durability::Async)),
        SP_SYNC => Ok(Some(Durability::Sync)),
        other => Err(Failure::argument(format!(
            "durability is {other}; expected SP_DEFAULT, SP_BUFFERED, SP_ASYNC or SP_SYNC"
        ))),
    }
}

/// Replaces options by what `change` makes of them.
///
/// # Safety
///
/// The pointer is null, or leads to options that no other thread uses.
unsafe fn set(
    options: *mut sp_options,
    change: impl FnOnce(Options) -> Result<Options, Failure>,
) -> c_int {
    // SAFETY: the caller promised it.
    let Some(place) = (unsafe { options.as_mut() }) else {
        return report(&Failure::argument("the options are null"));
    };
    match guard(|| change(place.options.clone())) {
        Some(Ok(changed)) => {
            place.options = changed;
            crate::SP_OK
        }
        Some(Err(failure)) => report(&failure),
        None => report(&Failure::panic()),
    }
}
