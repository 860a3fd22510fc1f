//! `sp_snapshot` and `sp_txn`: the store as it was at one moment, and changes that take effect together.

use std::ffi::{c_int, c_void};
use std::{fmt, ptr};

use splitpoint::{Savepoint, Snapshot, Transaction, Value};

use crate::code::{SP_NOT_FOUND, SP_OK};
use crate::failure::Failure;
use crate::handle::{call, report, sp_db};
use crate::options::level_of;
use crate::read::{bytes, sp_value};
use crate::scan::sp_scan;

/// The store as it was at one moment. Any number of threads may use one at the same time.
pub struct sp_snapshot {
    db: *const sp_db,
    snapshot: Snapshot<'static>,
}

impl fmt::Debug for sp_snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("sp_snapshot").finish_non_exhaustive()
    }
}

/// Reads of one moment, and changes that take effect together. One thread at a time uses it.
pub struct sp_txn {
    db: *const sp_db,
    transaction: Transaction<'static>,
}

impl fmt::Debug for sp_txn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("sp_txn").finish_non_exhaustive()
    }
}

/// A moment of a transaction, to which sp_txn_rollback_to() returns.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sp_savepoint {
    /// The library's own.
    pub owner: [u64; 3],
}

const _: () = assert!(size_of::<Savepoint>() == size_of::<sp_savepoint>());
const _: () = assert!(align_of::<Savepoint>() <= align_of::<sp_savepoint>());

/// Begins something that lasts until it is closed, and stores it in `*place`.
///
/// # Safety
///
/// The pointers are null or as the rules of the header say.
unsafe fn begin_into<T>(
    db: *const sp_db,
    place: *mut *mut T,
    begin: impl FnOnce(&'static sp_db) -> Result<T, Failure>,
) -> c_int {
    if !place.is_null() {
        // SAFETY: a place for a pointer, by the rules of the header.
        unsafe { place.write(ptr::null_mut()) };
    }
    let begin = |db: &'static sp_db| {
        if place.is_null() {
            return Err(Failure::argument("the place for the result is null"));
        }
        let new = Box::into_raw(Box::new(begin(db)?));
        db.part_opened();
        // SAFETY: the same place.
        unsafe { place.write(new) };
        Ok(SP_OK)
    };
    // SAFETY: null or an open handle, by the rules of the header.
    unsafe { call(db, begin) }
}

/// Stores what `find` finds in `*value`.
///
/// # Safety
///
/// The pointers are null or as the rules of the header say.
unsafe fn get_into(
    db: *const sp_db,
    key: *const c_void,
    key_size: usize,
    value: *mut sp_value,
    find: impl FnOnce(&[u8]) -> splitpoint::Result<Option<Value<'static>>>,
) -> c_int {
    if !value.is_null() {
        // SAFETY: a place for a value, by the rules of the header.
        unsafe { value.write(sp_value::NONE) };
    }
    let get = |_: &'static sp_db| {
        if value.is_null() {
            return Err(Failure::argument("the place for the value is null"));
        }
        // SAFETY: the rules of the header.
        let key = unsafe { bytes("key", key, key_size) }?;
        let Some(found) = find(key)? else { return Ok(SP_NOT_FOUND) };
        // SAFETY: the same place.
        unsafe { value.write(sp_value::new(found)) };
        Ok(SP_OK)
    };
    // SAFETY: the handle is open as long as a part of it is, since `sp_close` refuses.
    unsafe { call(db, get) }
}

/// Takes a snapshot of this moment, and stores it in `*snapshot`.
///
/// Whatever is put, deleted or compacted meanwhile, it returns each key with the value of that moment.
/// Close it soon: what is replaced meanwhile stays in the store. One that has held back too much returns
/// SP_ERR_TOO_OLD from then on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_snapshot_open(
    db: *mut sp_db,
    snapshot: *mut *mut sp_snapshot,
) -> c_int {
    let open = |handle: &'static sp_db| {
        let snapshot = handle.native()?.snapshot()?;
        Ok(sp_snapshot { db, snapshot })
    };
    // SAFETY: the rules of the header.
    unsafe { begin_into(db, snapshot, open) }
}

/// Looks up the value that `key` had, like sp_get(). Release it before the handle is closed; it may
/// outlive the snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_snapshot_get(
    snapshot: *const sp_snapshot,
    key: *const c_void,
    key_size: usize,
    value: *mut sp_value,
) -> c_int {
    // SAFETY: null or an open snapshot, by the rules of the header.
    let Some(it) = (unsafe { snapshot.as_ref() }) else {
        return report(&Failure::argument("the snapshot is null"));
    };
    // SAFETY: the rules of the header.
    unsafe { get_into(it.db, key, key_size, value, |key| it.snapshot.get(key)) }
}

/// Stores the number of keys that there were in `*count`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_snapshot_count(snapshot: *const sp_snapshot, count: *mut u64) -> c_int {
    // SAFETY: null or an open snapshot, by the rules of the header.
    let Some(it) = (unsafe { snapshot.as_ref() }) else {
        return report(&Failure::argument("the snapshot is null"));
    };
    if count.is_null() {
        return report(&Failure::argument("the place for the count is null"));
    }
    // SAFETY: a place for a number, by the rules of the header.
    unsafe { count.write(it.snapshot.len()) };
    SP_OK
}

/// Begins a walk over every key that there was, like sp_scan_open(). It may outlive the snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_snapshot_scan(
    snapshot: *const sp_snapshot,
    scan: *mut *mut sp_scan,
) -> c_int {
    // SAFETY: null or an open snapshot, by the rules of the header.
    let Some(it) = (unsafe { snapshot.as_ref() }) else {
        return report(&Failure::argument("the snapshot is null"));
    };
    let open = |_: &'static sp_db| Ok(sp_scan::new(it.db, Box::new(it.snapshot.scan()?)));
    // SAFETY: the rules of the header; the handle is open as long as the snapshot is.
    unsafe { begin_into(it.db, scan, open) }
}

/// Ends a snapshot. Null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_snapshot_close(snapshot: *mut sp_snapshot) {
    if snapshot.is_null() {
        return;
    }
    // SAFETY: `sp_snapshot_open` made it, and by the rules of the header nobody closed it.
    let snapshot = unsafe { Box::from_raw(snapshot) };
    let db = snapshot.db;
    let close = |db: &'static sp_db| {
        let _closing = db.closing_part();
        drop(snapshot);
        Ok(SP_OK)
    };
    // SAFETY: the handle is open as long as a snapshot is, since `sp_close` refuses.
    unsafe { call(db, close) };
}

/// Begins a transaction, and stores it in `*txn`. sp_txn_commit() and sp_txn_rollback() end it.
///
/// It reads the store as it was at its first read, and its own changes. Nobody sees its changes before
/// the commit. It is serializable: the commit succeeds only if everything that it has read is still so.
/// A change of a key that it has not read conflicts with nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_txn_begin(db: *mut sp_db, txn: *mut *mut sp_txn) -> c_int {
    let begin = |handle: &'static sp_db| {
        handle.changeable()?;
        Ok(sp_txn { db, transaction: handle.native()?.begin()? })
    };
    // SAFETY: the rules of the header.
    unsafe { begin_into(db, txn, begin) }
}

/// Calls `body` with a transaction.
///
/// # Safety
///
/// The pointer is null, or leads to an open transaction.
unsafe fn with_txn(
    txn: *mut sp_txn,
    body: impl FnOnce(&mut Transaction<'static>) -> Result<(), Failure>,
) -> c_int {
    // SAFETY: the caller promised it.
    let Some(it) = (unsafe { txn.as_mut() }) else {
        return report(&Failure::argument("the transaction is null"));
    };
    let with = |_: &'static sp_db| body(&mut it.transaction).map(|()| SP_OK);
    // SAFETY: the handle is open as long as a transaction is, since `sp_close` refuses.
    unsafe { call(it.db, with) }
}

/// Looks `key` up in a transaction, like sp_get(): its own change, or the value of its moment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_txn_get(
    txn: *mut sp_txn,
    key: *const c_void,
    key_size: usize,
    value: *mut sp_value,
) -> c_int {
    // SAFETY: null or an open transaction, by the rules of the header.
    let Some(it) = (unsafe { txn.as_mut() }) else {
        return report(&Failure::argument("the transaction is null"));
    };
    // SAFETY: the rules of the header.
    unsafe { get_into(it.db, key, key_size, value, |key| it.transaction.get(key)) }
}

/// Stores `value` under `key` when the transaction commits. Both are copied.
///
/// All changes of a transaction take 64 MiB of memory at most. Beyond that they are kept in a file without
/// a name beside the store, where there is room; of a table in memory it fails with SP_ERR_TOO_LARGE. After
/// an error the transaction is as before the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_txn_put(
    txn: *mut sp_txn,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
) -> c_int {
    let put = |transaction: &mut Transaction<'static>| {
        // SAFETY: the rules of the header.
        let key = unsafe { bytes("key", key, key_size) }?;
        // SAFETY: the rules of the header.
        let value = unsafe { bytes("value", value, value_size) }?;
        Ok(transaction.put(key, value)?)
    };
    // SAFETY: null or an open transaction, by the rules of the header.
    unsafe { with_txn(txn, put) }
}

/// Deletes `key` when the transaction commits, if it is there then. This reads nothing: look the key up
/// first if it matters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_txn_delete(
    txn: *mut sp_txn,
    key: *const c_void,
    key_size: usize,
) -> c_int {
    let delete = |transaction: &mut Transaction<'static>| {
        // SAFETY: the rules of the header.
        let key = unsafe { bytes("key", key, key_size) }?;
        Ok(transaction.delete(key)?)
    };
    // SAFETY: null or an open transaction, by the rules of the header.
    unsafe { with_txn(txn, delete) }
}

/// Stores the moment of the changes so far in `*savepoint`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_txn_savepoint(txn: *mut sp_txn, savepoint: *mut sp_savepoint) -> c_int {
    let save = |transaction: &mut Transaction<'static>| {
        if savepoint.is_null() {
            return Err(Failure::argument("the place for the savepoint is null"));
        }
        // SAFETY: a place for a savepoint, by the rules of the header; the constants above say that ours
        // fits.
        unsafe { savepoint.cast::<Savepoint>().write(transaction.savepoint()) };
        Ok(())
    };
    // SAFETY: null or an open transaction, by the rules of the header.
    unsafe { with_txn(txn, save) }
}

/// Undoes the changes since a savepoint. What was read since can still conflict.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_txn_rollback_to(
    txn: *mut sp_txn,
    savepoint: *const sp_savepoint,
) -> c_int {
    let roll_back = |transaction: &mut Transaction<'static>| {
        if savepoint.is_null() {
            return Err(Failure::argument("the savepoint is null"));
        }
        // SAFETY: `sp_txn_savepoint` wrote it, by the rules of the header; it is three numbers.
        transaction.rollback_to(unsafe { savepoint.cast::<Savepoint>().read() });
        Ok(())
    };
    // SAFETY: null or an open transaction, by the rules of the header.
    unsafe { with_txn(txn, roll_back) }
}

/// Makes all changes of a transaction, or none, and ends it, also if it fails.
///
/// Fails with SP_ERR_CONFLICT if something that it has read is no longer so; then nothing is changed: run
/// it again from the beginning. The durability is SP_DEFAULT for that of the handle, or SP_BUFFERED,
/// SP_ASYNC, SP_SYNC.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_txn_commit(txn: *mut sp_txn, durability: c_int) -> c_int {
    let commit = |db: &'static sp_db, transaction: Transaction<'static>| {
        db.changeable()?;
        match level_of(durability)? {
            Some(level) => transaction.commit_with(level)?,
            None => transaction.commit()?,
        }
        Ok(())
    };
    // SAFETY: the rules of the header.
    unsafe { end_txn(txn, commit) }
}

/// Ends a transaction without its changes. Null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_txn_rollback(txn: *mut sp_txn) {
    if !txn.is_null() {
        // SAFETY: the rules of the header.
        unsafe { end_txn(txn, |_, _| Ok(())) };
    }
}

/// Ends a transaction by `end`.
///
/// # Safety
///
/// The pointer is null, or leads to an open transaction, which nobody uses any more.
unsafe fn end_txn(
    txn: *mut sp_txn,
    end: impl FnOnce(&'static sp_db, Transaction<'static>) -> Result<(), Failure>,
) -> c_int {
    if txn.is_null() {
        return report(&Failure::argument("the transaction is null"));
    }
    // SAFETY: `sp_txn_begin` made it, and by the rules of the header nobody ended it.
    let sp_txn { db, transaction } = *unsafe { Box::from_raw(txn) };
    let end = |db: &'static sp_db| {
        let _closing = db.closing_part();
        end(db, transaction).map(|()| SP_OK)
    };
    // SAFETY: the handle is open as long as a transaction is, since `sp_close` refuses.
    unsafe { call(db, end) }
}
