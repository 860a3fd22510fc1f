//! The functions of gdbm.h that work on an open database. Each keeps the promises of C that the crate's
//! documentation lists.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void};

use splitpoint::PutMode;
use splitpoint_ffi::{Datum, errno, malloc_copy, set_errno};

use crate::code::{self, Code, Failure, Outcome};
use crate::database::{Database, FatalFunction, Recovered, RecoveryWishes, Request};
use crate::flags;
use crate::handle::{Allowed, Handle, call, call_free, fail, failure_text, never_ended, status};
use crate::head::Head;
use crate::settings::Place;
use crate::snapshot::{self, Choice, Snapshots};
use crate::table::Table;

/// Returns the bytes of a datum.
///
/// # Safety
///
/// As [`Datum::bytes`].
unsafe fn bytes_of<'a>(datum: Datum) -> Outcome<&'a [u8]> {
    if datum.is_none() {
        return Err(Failure::of(Code::MALFORMED_DATA));
    }
    // SAFETY: the caller promised it.
    unsafe { datum.bytes() }.ok_or_else(|| Failure::of(Code::MALFORMED_DATA))
}

/// Returns the bytes of a key to look up: a null pointer with the size 0 is the empty key.
///
/// # Safety
///
/// As [`Datum::bytes`].
unsafe fn key_of<'a>(datum: Datum) -> Outcome<&'a [u8]> {
    // SAFETY: the caller promised it.
    unsafe { datum.bytes() }.ok_or_else(|| Failure::of(Code::MALFORMED_DATA))
}

/// Makes a copy that the program frees.
#[inline]
fn put_copy(bytes: &[u8], copy: &mut Datum) -> Outcome<()> {
    if i32::try_from(bytes.len()).is_err() {
        return Err(Failure::new(Code::MALFORMED_DATA, libc::EOVERFLOW));
    }
    let start = malloc_copy(bytes);
    if start.is_null() {
        return Err(Failure::of(Code::MALLOC_ERROR));
    }
    *copy = Datum::new(start, bytes.len());
    Ok(())
}

/// Runs a call that leaves a copy for the program in its second argument, and returns that copy.
///
/// The copy does not pass through the results of all that `call` goes through: writing a result in parts and
/// reading it as a whole, in every one of them, took a fetch longer than a line that is not in the cache.
///
/// # Safety
///
/// As [`call`].
#[inline]
unsafe fn call_for_copy(
    handle: *mut Handle,
    body: impl FnOnce(&mut Database, &mut Datum) -> Outcome<()>,
) -> Datum {
    code::set_current(Code::NO_ERROR);
    let mut copy = Datum::NONE;
    // SAFETY: the caller promised it.
    match unsafe { call(handle, Allowed::Sound, |database| body(database, &mut copy)) } {
        Ok(()) => copy,
        Err(_) => Datum::NONE,
    }
}

/// Returns a copy of the text that C passes.
///
/// # Safety
///
/// The pointer is null or leads to a text that ends in NUL.
pub(crate) unsafe fn text_of(text: *const c_char) -> Outcome<CString> {
    if text.is_null() {
        return Err(Failure::of(Code::ERR_USAGE));
    }
    // SAFETY: the caller promised it.
    Ok(unsafe { CStr::from_ptr(text) }.to_owned())
}

fn open(
    request: impl FnOnce() -> Outcome<Request>,
    open: impl FnOnce(Request) -> Outcome<Database>,
) -> *mut Handle {
    code::set_current(Code::NO_ERROR);
    let opened = call_free(|| Ok(Handle::give(open(request()?)?)));
    opened.unwrap_or(std::ptr::null_mut())
}

/// Opens the database in a file, and makes it where the flags allow that.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_open(
    name: *const c_char,
    block_size: c_int,
    flags: c_int,
    mode: c_int,
    fatal: Option<FatalFunction>,
) -> *mut Handle {
    let request = || {
        // SAFETY: C promises it.
        let name = unsafe { text_of(name) };
        // What the system says of such a name.
        let name = name.map_err(|_| Failure::new(Code::FILE_OPEN_ERROR, libc::EFAULT))?;
        Ok(Request { name, block_size, flags, mode: mode.cast_unsigned(), fatal })
    };
    open(request, Request::open)
}

/// Opens the database in a file that is open.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_fd_open(
    fd: c_int,
    name: *const c_char,
    block_size: c_int,
    flags: c_int,
    fatal: Option<FatalFunction>,
) -> *mut Handle {
    let request = || {
        // SAFETY: C promises it.
        let name = unsafe { text_of(name) }?;
        Ok(Request { name, block_size, flags, mode: 0, fatal })
    };
    open(request, |request| request.open_descriptor(fd))
}

/// Closes a database, and makes it durable if it was changed.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_close(handle: *mut Handle) -> c_int {
    code::set_current(Code::NO_ERROR);
    // SAFETY: C promises it, and does not use the handle again.
    let Some(database) = (unsafe { Handle::take(handle) }) else {
        return 0;
    };
    status(call_free(|| database?.close()))
}

/// Stores a pair. Returns 1 if the key has a value that is to be kept.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_store(
    handle: *mut Handle,
    key: Datum,
    content: Datum,
    flag: c_int,
) -> c_int {
    code::set_current(Code::NO_ERROR);
    let store = |database: &mut Database| {
        if !database.is_writer {
            return Err(Failure::of(Code::READER_CANT_STORE));
        }
        // SAFETY: C promises it.
        let key = unsafe { bytes_of(key) }?;
        // SAFETY: C promises it.
        let content = unsafe { bytes_of(content) }?;
        let mode = if flag == flags::REPLACE { PutMode::Replace } else { PutMode::New };
        database.store(key, content, mode)
    };
    // SAFETY: C promises it.
    match unsafe { call(handle, Allowed::Sound, store) } {
        Ok(()) => 0,
        Err(Code::CANNOT_REPLACE) => 1,
        Err(_) => -1,
    }
}

/// Returns a copy of the value of a key, which the program frees.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_fetch(handle: *mut Handle, key: Datum) -> Datum {
    let fetch = |database: &mut Database, copy: &mut Datum| {
        // SAFETY: C promises it.
        let key = unsafe { key_of(key) }?;
        database.read(|table| table.with_value(key, |value| put_copy(value, copy)))
    };
    // SAFETY: C promises it.
    unsafe { call_for_copy(handle, fetch) }
}

/// Returns whether a key has a value.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_exists(handle: *mut Handle, key: Datum) -> c_int {
    code::set_current(Code::NO_ERROR);
    let exists = |database: &mut Database| {
        // SAFETY: C promises it.
        let key = unsafe { key_of(key) }?;
        database.read(|table| table.contains(key))
    };
    // SAFETY: C promises it.
    unsafe { call(handle, Allowed::Sound, exists) }.unwrap_or(false).into()
}

/// Deletes a key with its value.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_delete(handle: *mut Handle, key: Datum) -> c_int {
    code::set_current(Code::NO_ERROR);
    let delete = |database: &mut Database| {
        if !database.is_writer {
            return Err(Failure::of(Code::READER_CANT_DELETE));
        }
        // SAFETY: C promises it.
        let key = unsafe { key_of(key) }?;
        database.delete(key)
    };
    // SAFETY: C promises it.
    status(unsafe { call(handle, Allowed::Sound, delete) })
}

/// Begins a walk, and returns a copy of its first key.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_firstkey(handle: *mut Handle) -> Datum {
    let first = |database: &mut Database, copy: &mut Datum| {
        database.read(|table| put_copy(table.first()?, copy))
    };
    // SAFETY: C promises it.
    unsafe { call_for_copy(handle, first) }
}

/// Returns a copy of the key that follows another.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_nextkey(handle: *mut Handle, key: Datum) -> Datum {
    let next = |database: &mut Database, copy: &mut Datum| {
        // A walk that is over ends with a null pointer, which is the empty key in no other call of this kind.
        if key.is_none() {
            return Err(Failure::of(Code::ITEM_NOT_FOUND));
        }
        // SAFETY: C promises it.
        let key = unsafe { key_of(key) }?;
        database.read(|table| put_copy(table.after(key)?, copy))
    };
    // SAFETY: C promises it.
    unsafe { call_for_copy(handle, next) }
}

/// Makes every change so far durable.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_sync(handle: *mut Handle) -> c_int {
    code::set_current(Code::NO_ERROR);
    // SAFETY: C promises it.
    status(unsafe { call(handle, Allowed::Sound, Database::sync) })
}

/// Gives back the space of what was replaced and deleted.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_reorganize(handle: *mut Handle) -> c_int {
    code::set_current(Code::NO_ERROR);
    // SAFETY: C promises it.
    status(unsafe { call(handle, Allowed::Sound, Database::reorganize) })
}

/// Stores the number of keys at a place.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_count(handle: *mut Handle, count: *mut c_ulonglong) -> c_int {
    // SAFETY: C promises it.
    let found = unsafe { call(handle, Allowed::Sound, |database| database.read(|it| it.count())) };
    // SAFETY: C promises it.
    status(found.map(|found| unsafe { put(count, found) }))
}

/// Stores a value at a place, unless that is null.
///
/// # Safety
///
/// A place that is not null has room for it.
unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller promised it.
        unsafe { place.write(value) };
    }
}

/// Stores the number of buckets at a place.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_bucket_count(handle: *mut Handle, count: *mut usize) -> c_int {
    let buckets = |database: &mut Database| match database.table()? {
        Table::Native { db, .. } => {
            let stats = db.stats().map_err(|error| Failure::of_read(&error))?;
            Ok(stats.geometry.bucket_count() as usize)
        }
        Table::Old(old) => Ok(old.bucket_count()),
    };
    // SAFETY: C promises it.
    let found = unsafe { call(handle, Allowed::Sound, buckets) };
    // SAFETY: C promises it.
    status(found.map(|found| unsafe { put(count, found) }))
}

/// Verifies the lists of free space, of which a store has none in its file.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_avail_verify(handle: *mut Handle) -> c_int {
    // SAFETY: C promises it.
    status(unsafe { call(handle, Allowed::Sound, |_| Ok(())) })
}

/// Returns the descriptor of the file, which the program may lock.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_fdesc(handle: *mut Handle) -> c_int {
    // SAFETY: C promises it.
    unsafe { call(handle, Allowed::Any, |database| Ok(database.fd())) }.unwrap_or(-1)
}

/// Sets or returns an option.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_setopt(
    handle: *mut Handle,
    option: c_int,
    value: *mut c_void,
    size: c_int,
) -> c_int {
    // SAFETY: C promises it.
    let place = unsafe { Place::new(value, size) };
    // SAFETY: C promises it.
    status(unsafe { call(handle, Allowed::Sound, |database| database.set_option(option, place)) })
}

/// Has syncs counted in the file, or not.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_convert(handle: *mut Handle, flag: c_int) -> c_int {
    let convert = |database: &mut Database| {
        if !database.is_writer {
            return Err(Failure::of(Code::READER_CANT_STORE));
        }
        let sync_count = match flag {
            0 => None,
            flags::NUMSYNC => Some(database.head.sync_count.unwrap_or(0)),
            _ => return Err(Failure::of(Code::MALFORMED_DATA)),
        };
        database.set_head(Head { sync_count, ..database.head })
    };
    // SAFETY: C promises it.
    status(unsafe { call(handle, Allowed::Sound, convert) })
}

/// Has each sync make a snapshot, in two files in turn.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_failure_atomic(
    handle: *mut Handle,
    even: *const c_char,
    odd: *const c_char,
) -> c_int {
    let begin = |database: &mut Database| {
        // SAFETY: C promises it.
        let even = unsafe { text_of(even) }?;
        // SAFETY: C promises it.
        let names = [even, unsafe { text_of(odd) }?];
        if !database.is_writer {
            return Err(Failure::of(Code::READER_CANT_STORE));
        }
        database.snapshots = Some(Snapshots::create(names.each_ref())?);
        let made = database.sync();
        if made.is_err() {
            database.snapshots = None;
            for name in &names {
                // SAFETY: the name ends in NUL.
                unsafe { libc::unlink(name.as_ptr()) };
            }
        }
        made
    };
    // SAFETY: C promises it.
    status(unsafe { call(handle, Allowed::Sound, begin) })
}

/// Stores at a place which of two snapshots to use after a crash.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_latest_snapshot(
    even: *const c_char,
    odd: *const c_char,
    chosen: *mut *const c_char,
) -> c_int {
    let latest = || {
        // SAFETY: C promises it.
        let even = unsafe { text_of(even) }?;
        // SAFETY: C promises it.
        let names = [even, unsafe { text_of(odd) }?];
        snapshot::latest(names.each_ref())
    };
    let Ok((choice, number)) = call_free(latest) else { return Choice::Error.into() };
    if matches!(choice, Choice::Ok | Choice::Suspicious) {
        // SAFETY: C promises it.
        unsafe { put(chosen, [even, odd][number]) };
    }
    choice.into()
}

/// Gives a database the owner and the mode of another.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_copy_meta(target: *mut Handle, source: *mut Handle) -> c_int {
    let read = |database: &mut Database| {
        use std::os::unix::fs::MetadataExt;
        let metadata = database.open_file()?.metadata();
        let metadata = metadata.map_err(|error| Failure::of_io(Code::FILE_STAT_ERROR, &error))?;
        Ok((metadata.uid(), metadata.gid(), metadata.mode() & 0o777))
    };
    // SAFETY: C promises it.
    let Ok((uid, gid, mode)) = (unsafe { call(source, Allowed::Any, read) }) else { return -1 };
    let write = |database: &mut Database| {
        use std::os::unix::fs::PermissionsExt;
        let file = database.open_file()?;
        std::os::unix::fs::fchown(file, Some(uid), Some(gid))
            .map_err(|error| Failure::of_io(Code::ERR_FILE_OWNER, &error))?;
        file.set_permissions(std::fs::Permissions::from_mode(mode))
            .map_err(|error| Failure::of_io(Code::ERR_FILE_MODE, &error))
    };
    // SAFETY: C promises it.
    status(unsafe { call(target, Allowed::Any, write) })
}

/// What a program tells a recovery, and is told by it.
#[derive(Debug)]
#[repr(C)]
struct Recovery {
    report: Option<unsafe extern "C" fn(*mut c_void, *const c_char, ...)>,
    data: *mut c_void,
    max_failed_keys: usize,
    max_failed_buckets: usize,
    max_failures: usize,
    recovered_keys: usize,
    recovered_buckets: usize,
    failed_keys: usize,
    failed_buckets: usize,
    duplicate_keys: usize,
    backup_name: *mut c_char,
}

/// Verifies a database, and saves what can be read if it is damaged.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_recover(
    handle: *mut Handle,
    recovery: *mut Recovery,
    flags: c_int,
) -> c_int {
    // SAFETY: C promises it.
    let mut given = unsafe { recovery.as_mut() };
    let wishes = given.as_deref().map_or_else(RecoveryWishes::default, |it| it.wishes(flags));
    let wishes = RecoveryWishes {
        backs_up: flags & flags::RECOVER_BACKUP != 0,
        is_forced: flags & flags::RECOVER_FORCE != 0,
        ..wishes
    };
    let recover = |database: &mut Database| {
        let found = database.recover(&wishes)?;
        if !found.is_given_up {
            database.needs_recovery = false;
            database.failure = None;
        }
        // Nothing to drop while a function of the program is called that may not come back.
        Ok(Box::into_raw(Box::new(found)))
    };
    // SAFETY: C promises it.
    let Ok(found) = (unsafe { call(handle, Allowed::Any, recover) }) else { return -1 };
    // SAFETY: it was made above, and is taken back once.
    let found = unsafe { Box::from_raw(found) };
    if let Some(recovery) = given.as_deref_mut() {
        recovery.fill(&found);
    }
    // Nothing is locked: the function may call gdbm again.
    if let Some(Recovery { report: Some(report), data, .. }) = given
        && flags & flags::RECOVER_ERRFUN != 0
    {
        for damage in &found.damage {
            let damage = CString::new(damage.as_str()).unwrap_or_default();
            // SAFETY: the program has given the function and its data, and it comes back.
            unsafe { report(*data, c"%s".as_ptr(), damage.as_ptr()) };
        }
    }
    let is_given_up = found.is_given_up;
    drop(found);
    let give_up = |_: &mut Database| {
        if is_given_up { Err(Failure::of(Code::NEED_RECOVERY)) } else { Ok(()) }
    };
    // SAFETY: C promises it.
    status(unsafe { call(handle, Allowed::Any, give_up) })
}

impl Recovery {
    /// Returns the limits that the program has set.
    fn wishes(&self, flags: c_int) -> RecoveryWishes {
        let limit = |flag: c_int, limit: usize| if flags & flag == 0 { 0 } else { limit };
        RecoveryWishes {
            failed_key_limit: limit(flags::RECOVER_MAX_FAILED_KEYS, self.max_failed_keys),
            failed_bucket_limit: limit(flags::RECOVER_MAX_FAILED_BUCKETS, self.max_failed_buckets),
            failure_limit: limit(flags::RECOVER_MAX_FAILURES, self.max_failures),
            ..RecoveryWishes::default()
        }
    }

    /// Tells the program what was found. A store has one record of a key, so none is there twice.
    fn fill(&mut self, found: &Recovered) {
        self.recovered_keys = found.key_count;
        self.recovered_buckets = found.bucket_count;
        self.failed_keys = found.failed_key_count;
        self.failed_buckets = found.failed_bucket_count;
        self.duplicate_keys = 0;
        self.backup_name = match &found.backup {
            Some(name) => malloc_copy(name.as_bytes_with_nul()).cast(),
            None => std::ptr::null_mut(),
        };
    }
}

/// Returns whether a change has failed half-way.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_needs_recovery(handle: *mut Handle) -> c_int {
    if handle.is_null() {
        return 0;
    }
    let needs = |database: &mut Database| Ok(database.needs_recovery);
    // SAFETY: C promises it.
    unsafe { call(handle, Allowed::Any, needs) }.unwrap_or(true).into()
}

/// Returns the place of this thread's error number.
#[unsafe(no_mangle)]
extern "C" fn gdbm_errno_location() -> *mut c_int {
    code::place()
}

/// Sets the error number of a database, or of this thread alone.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_set_errno(handle: *mut Handle, number: c_int, is_fatal: c_int) {
    let code = Code(number);
    let of_system = if code.has_errno() { errno() } else { 0 };
    // SAFETY: C promises it.
    if let Some(mut state) = unsafe { handle.as_ref() }.and_then(Handle::lock) {
        let database = &mut state.database;
        let failure = Failure::new(code, of_system);
        database.failure = (code != Code::NO_ERROR).then_some(failure);
        database.needs_recovery |= is_fatal != 0;
    }
    code::set_current(code);
}

/// Returns the last failure of a database.
fn failure_of(handle: &Handle) -> Option<Failure> {
    handle.lock().map_or_else(|| Some(never_ended()), |state| state.database.failure)
}

/// Returns the number of the last failure of a database; -1 with `EINVAL` for a null one.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_last_errno(handle: *mut Handle) -> c_int {
    // SAFETY: C promises it.
    let Some(handle) = (unsafe { handle.as_ref() }) else { return without_handle() };
    failure_of(handle).map_or(0, |failure| failure.code.0)
}

/// Returns the `errno` that came with it, or 0 if it is of gdbm alone.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_last_syserr(handle: *mut Handle) -> c_int {
    // SAFETY: C promises it.
    let Some(handle) = (unsafe { handle.as_ref() }) else { return without_handle() };
    failure_of(handle).filter(|failure| failure.code.has_errno()).map_or(0, |failure| failure.errno)
}

/// Returns what the original returns of the failures of a null handle.
#[cold]
fn without_handle() -> c_int {
    set_errno(libc::EINVAL);
    -1
}

/// Forgets the last failure of a database.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_clear_error(handle: *mut Handle) {
    // SAFETY: C promises it.
    if let Some(mut state) = unsafe { handle.as_ref() }.and_then(Handle::lock) {
        state.database.failure = None;
    }
}

/// Returns the text of an error number.
#[unsafe(no_mangle)]
extern "C" fn gdbm_strerror(number: c_int) -> *const c_char {
    Code(number).text().as_ptr()
}

/// Returns the text of the last failure of a database, until the next call of this function.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_db_strerror(handle: *mut Handle) -> *const c_char {
    // SAFETY: C promises it.
    match unsafe { handle.as_ref() } {
        Some(handle) => match handle.lock() {
            Some(mut state) => failure_text(&mut state),
            None => never_ended().code.text().as_ptr(),
        },
        // SAFETY: the place is this thread's own.
        None => Code(unsafe { *code::place() }).text().as_ptr(),
    }
}

/// Returns whether an `errno` comes with an error number.
#[unsafe(no_mangle)]
extern "C" fn gdbm_check_syserr(number: c_int) -> c_int {
    Code(number).has_errno().into()
}

/// Compares two versions, of three numbers each.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_version_cmp(one: *const c_int, other: *const c_int) -> c_int {
    if one.is_null() || other.is_null() {
        fail(Failure::of(Code::ERR_USAGE));
        return 0;
    }
    // SAFETY: C promises three numbers.
    let one = unsafe { one.cast::<[c_int; 3]>().read() };
    // SAFETY: C promises three numbers.
    let other = unsafe { other.cast::<[c_int; 3]>().read() };
    one.cmp(&other) as c_int
}

/// What a program is told of one buffer.
#[derive(Debug)]
#[repr(C)]
struct CacheStat {
    address: libc::off_t,
    hits: usize,
}

/// Stores how well buckets were found in memory. A store has no buffers of its own: all of them were.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_get_cache_stats(
    handle: *mut Handle,
    access_count: *mut usize,
    hit_count: *mut usize,
    cached_count: *mut usize,
    buckets: *mut CacheStat,
    bucket_count: usize,
) {
    let accesses = |database: &mut Database| Ok(database.access_count);
    // SAFETY: C promises it.
    let Ok(accesses) = (unsafe { call(handle, Allowed::Any, accesses) }) else { return };
    for place in [access_count, hit_count] {
        // SAFETY: C promises it.
        unsafe { put(place, accesses) };
    }
    // SAFETY: C promises it.
    unsafe { put(cached_count, 1) };
    if bucket_count > 0 {
        // SAFETY: C promises as many.
        unsafe { put(buckets, CacheStat { address: 0, hits: accesses }) };
    }
}

const _: () = assert!(size_of::<c_uint>() == size_of::<libc::mode_t>());
