//! The engines written in Rust behind the interface in C of `peers/c/engine.h`, which documents every
//! call. Each is a symbol `race_engine_NAME`, with the name of the engine in `peers/engines.toml`.
//!
//! A panic ends the process: none is caught, because an engine that panics has no result.

#![cfg_attr(
    not(any(
        feature = "fjall",
        feature = "hashbrown",
        feature = "redb",
        feature = "sled",
        feature = "splitpoint",
        feature = "std_hash_map"
    )),
    expect(dead_code, reason = "without an engine there is nothing to export")
)]

use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::ptr;

use engines::{Config, Engine, Outcome};

/// `struct race_config`.
#[repr(C)]
#[derive(Debug)]
pub struct RaceConfig {
    dir: *const c_char,
    records: u64,
    key_bytes: usize,
    value_bytes: usize,
    cache_bytes: u64,
}

/// `race_each`.
type Each = unsafe extern "C" fn(*mut c_void, *const u8, usize, *const u8, usize);

const DONE: c_int = 0;
const ABSENT: c_int = -1;
const FAILED: c_int = -2;

/// `struct race_engine`.
#[repr(C)]
#[derive(Debug)]
pub struct RaceEngine {
    is_persistent: c_int,
    open: unsafe extern "C" fn(*const RaceConfig) -> *mut c_void,
    put: unsafe extern "C" fn(*mut c_void, *const u8, usize, *const u8, usize) -> c_int,
    get: unsafe extern "C" fn(*mut c_void, *const u8, usize, *mut u8, usize) -> i64,
    erase: unsafe extern "C" fn(*mut c_void, *const u8, usize) -> c_int,
    scan: unsafe extern "C" fn(*mut c_void, Each, *mut c_void) -> c_int,
    settle: unsafe extern "C" fn(*mut c_void) -> c_int,
    sync: unsafe extern "C" fn(*mut c_void) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
    why: extern "C" fn() -> *const c_char,
}

impl RaceEngine {
    /// Returns the calls of an engine.
    const fn of<E: Engine>() -> Self {
        Self {
            is_persistent: E::IS_PERSISTENT as c_int,
            open: open::<E>,
            put: put::<E>,
            get: get::<E>,
            erase: erase::<E>,
            scan: scan::<E>,
            settle: settle::<E>,
            sync: sync::<E>,
            close: close::<E>,
            why,
        }
    }
}

thread_local! {
    /// What the last failure was about.
    static FAILURE: RefCell<CString> = RefCell::default();
}

/// Notes the reason of a failure, and returns its code.
fn failed(error: impl std::fmt::Display) -> c_int {
    let text = error.to_string().replace('\0', " ");
    FAILURE.set(CString::new(text).unwrap_or_default());
    FAILED
}

fn code(result: Outcome<()>) -> c_int {
    result.map_or_else(failed, |()| DONE)
}

/// # Safety
///
/// `table` is what `open::<E>` has returned, no call of `close` came after it, and no other call with
/// it runs: `engine.h` demands this of the driver, which has one thread.
unsafe fn engine<'a, E>(table: *mut c_void) -> &'a mut E {
    // SAFETY: by this function's contract `table` is a live `Box<E>` that nobody else uses now.
    unsafe { &mut *table.cast::<E>() }
}

/// # Safety
///
/// `start` has `count` bytes, which nobody changes during the call.
unsafe fn bytes<'a>(start: *const u8, count: usize) -> &'a [u8] {
    // SAFETY: by this function's contract they are there. The driver's pointers are never null.
    unsafe { std::slice::from_raw_parts(start, count) }
}

unsafe extern "C" fn open<E: Engine>(told: *const RaceConfig) -> *mut c_void {
    // SAFETY: `engine.h`: the driver's config, whose `dir` is a C string, lives during the call.
    let (told, dir) = unsafe { (&*told, CStr::from_ptr((*told).dir)) };
    let config = Config {
        dir: OsStr::from_bytes(dir.to_bytes()).into(),
        record_count: told.records,
        key_bytes: told.key_bytes,
        value_bytes: told.value_bytes,
        cache_bytes: told.cache_bytes,
    };
    match E::open(&config) {
        Ok(engine) => Box::into_raw(Box::new(engine)).cast(),
        Err(error) => {
            failed(error);
            ptr::null_mut()
        }
    }
}

unsafe extern "C" fn put<E: Engine>(
    table: *mut c_void,
    key: *const u8,
    key_bytes: usize,
    value: *const u8,
    value_bytes: usize,
) -> c_int {
    // SAFETY: `engine.h`: an open table, a key and a value of these lengths.
    let (engine, key, value) =
        unsafe { (engine::<E>(table), bytes(key, key_bytes), bytes(value, value_bytes)) };
    code(engine.put(key, value))
}

unsafe extern "C" fn get<E: Engine>(
    table: *mut c_void,
    key: *const u8,
    key_bytes: usize,
    value: *mut u8,
    room_bytes: usize,
) -> i64 {
    // SAFETY: `engine.h`: an open table and a key of this length.
    let (engine, key) = unsafe { (engine::<E>(table), bytes(key, key_bytes)) };
    let mut length = i64::from(ABSENT);
    let found = engine.get(key, |bytes| {
        length = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        // SAFETY: `engine.h`: `value` has room for `room_bytes` bytes, in memory of the driver, which
        // no engine lends.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), value, bytes.len().min(room_bytes)) };
    });
    found.map_or_else(|error| i64::from(failed(error)), |_| length)
}

unsafe extern "C" fn erase<E: Engine>(
    table: *mut c_void,
    key: *const u8,
    key_bytes: usize,
) -> c_int {
    // SAFETY: `engine.h`: an open table and a key of this length.
    let (engine, key) = unsafe { (engine::<E>(table), bytes(key, key_bytes)) };
    engine.delete(key).map_or_else(failed, |was_there| if was_there { DONE } else { ABSENT })
}

unsafe extern "C" fn scan<E: Engine>(
    table: *mut c_void,
    each: Each,
    context: *mut c_void,
) -> c_int {
    // SAFETY: `engine.h`: an open table.
    let engine = unsafe { engine::<E>(table) };
    code(engine.scan(|key, value| {
        // SAFETY: `engine.h`: the driver's function takes two pointers with their lengths, which are
        // valid until it returns, and its own context.
        unsafe { each(context, key.as_ptr(), key.len(), value.as_ptr(), value.len()) };
    }))
}

unsafe extern "C" fn settle<E: Engine>(table: *mut c_void) -> c_int {
    // SAFETY: `engine.h`: an open table.
    code(unsafe { engine::<E>(table) }.settle())
}

unsafe extern "C" fn sync<E: Engine>(table: *mut c_void) -> c_int {
    // SAFETY: `engine.h`: an open table.
    code(unsafe { engine::<E>(table) }.sync())
}

unsafe extern "C" fn close<E: Engine>(table: *mut c_void) -> c_int {
    // SAFETY: `engine.h`: an open table, which the driver does not use again: `open` has leaked it.
    let engine = unsafe { Box::from_raw(table.cast::<E>()) };
    code(engine.close())
}

extern "C" fn why() -> *const c_char {
    // The text stays where it is until the next failure of this thread.
    FAILURE.with_borrow(|text| text.as_ptr())
}

/// Splitpoint in a file.
#[cfg(feature = "splitpoint")]
#[unsafe(export_name = "race_engine_splitpoint")]
pub static SPLITPOINT: RaceEngine =
    RaceEngine::of::<engines::splitpoint::Store<engines::splitpoint::InFile>>();

/// Splitpoint in memory.
#[cfg(feature = "splitpoint")]
#[unsafe(export_name = "race_engine_splitpoint_memory")]
pub static SPLITPOINT_MEMORY: RaceEngine =
    RaceEngine::of::<engines::splitpoint::Store<engines::splitpoint::InMemory>>();

/// hashbrown.
#[cfg(feature = "hashbrown")]
#[unsafe(export_name = "race_engine_hashbrown")]
pub static HASHBROWN: RaceEngine =
    RaceEngine::of::<engines::MapEngine<engines::hashbrown::Boxed>>();

/// The standard library's map.
#[cfg(feature = "std_hash_map")]
#[unsafe(export_name = "race_engine_std_hash_map")]
pub static STD_HASH_MAP: RaceEngine =
    RaceEngine::of::<engines::MapEngine<engines::std_hash_map::Boxed>>();

/// redb.
#[cfg(feature = "redb")]
#[unsafe(export_name = "race_engine_redb")]
pub static REDB: RaceEngine = RaceEngine::of::<engines::redb::Redb>();

/// fjall.
#[cfg(feature = "fjall")]
#[unsafe(export_name = "race_engine_fjall")]
pub static FJALL: RaceEngine = RaceEngine::of::<engines::fjall::Fjall>();

/// sled.
#[cfg(feature = "sled")]
#[unsafe(export_name = "race_engine_sled")]
pub static SLED: RaceEngine = RaceEngine::of::<engines::sled::Sled>();
