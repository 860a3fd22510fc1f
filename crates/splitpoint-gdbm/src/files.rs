//! The functions of gdbm.h that read and write other files: dumps, exports, imports and loads.

use std::ffi::{c_char, c_int, c_ulong};
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};

use splitpoint::PutMode;

use crate::calls::text_of;
use crate::code::{self, Code, Failure, Outcome};
use crate::database::Database;
use crate::descriptor;
use crate::flags;
use crate::handle::{Allowed, Handle, call, call_free, fail, status};
use crate::load::{Load, LoadFailure, Wishes};
use crate::stream::Stream;
use crate::{dump, handle};

/// Bytes of a buffer for a file.
const BUFFER_BYTES: usize = 64 << 10;

/// Opens a file to write: a new one, or with the flag `NEWDB` in place of an old one.
///
/// # Safety
///
/// As [`text_of`].
unsafe fn create(name: *const c_char, flag: c_int, mode: c_int) -> Outcome<BufWriter<File>> {
    // SAFETY: the caller promised it.
    let name = unsafe { text_of(name) }?;
    let how = match flag {
        flags::WRCREAT => libc::O_EXCL,
        flags::NEWDB => libc::O_TRUNC,
        _ => return Err(Failure::of(Code::BAD_OPEN_FLAGS)),
    };
    let access = libc::O_WRONLY | libc::O_CREAT | libc::O_CLOEXEC | how;
    let file = descriptor::open(&name, access, mode.cast_unsigned());
    let file = file.map_err(|error| Failure::of_io(Code::FILE_OPEN_ERROR, &error))?;
    Ok(BufWriter::with_capacity(BUFFER_BYTES, file))
}

/// Opens a file to read.
///
/// # Safety
///
/// As [`text_of`].
unsafe fn open(name: *const c_char) -> Outcome<BufReader<File>> {
    // SAFETY: the caller promised it.
    let name = unsafe { text_of(name) }?;
    let file = descriptor::open(&name, libc::O_RDONLY | libc::O_CLOEXEC, 0);
    let file = file.map_err(|error| Failure::of_io(Code::FILE_OPEN_ERROR, &error))?;
    Ok(BufReader::with_capacity(BUFFER_BYTES, file))
}

/// Returns a stream that C passes.
///
/// # Safety
///
/// The stream is null or open until the end of the call.
unsafe fn stream_of(stream: *mut libc::FILE) -> Outcome<Stream> {
    if stream.is_null() {
        return Err(Failure::of(Code::ERR_USAGE));
    }
    // SAFETY: the caller promised it.
    Ok(unsafe { Stream::new(stream) })
}

fn write(database: &Database, format: c_int, out: &mut dyn Write) -> Outcome<u64> {
    match format {
        flags::DUMP_BINARY => dump::write_flat(database, out),
        flags::DUMP_ASCII => dump::write_text(database, out),
        _ => Err(Failure::of(Code::BAD_OPEN_FLAGS)),
    }
}

/// Returns a count for C, or -1.
fn count(result: Result<u64, Code>) -> c_int {
    result.map_or(-1, |count| c_int::try_from(count).unwrap_or(c_int::MAX))
}

/// Writes all pairs to a file, in either format.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_dump(
    handle: *mut Handle,
    name: *const c_char,
    format: c_int,
    flag: c_int,
    mode: c_int,
) -> c_int {
    let dump = |database: &mut Database| {
        // SAFETY: C promises it.
        let mut out = unsafe { create(name, flag, mode) }?;
        write(database, format, &mut out).map(drop)
    };
    code::set_current(Code::NO_ERROR);
    // SAFETY: C promises it.
    status(unsafe { call(handle, Allowed::Sound, dump) })
}

/// Writes all pairs to a stream, in either format.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_dump_to_file(
    handle: *mut Handle,
    stream: *mut libc::FILE,
    format: c_int,
) -> c_int {
    let dump = |database: &mut Database| {
        // SAFETY: C promises it.
        let mut out = unsafe { stream_of(stream) }?;
        write(database, format, &mut out).map(drop)
    };
    code::set_current(Code::NO_ERROR);
    // SAFETY: C promises it.
    status(unsafe { call(handle, Allowed::Sound, dump) })
}

/// Writes all pairs to a file as bytes, and returns how many there were.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_export(
    handle: *mut Handle,
    name: *const c_char,
    flag: c_int,
    mode: c_int,
) -> c_int {
    let export = |database: &mut Database| {
        // SAFETY: C promises it.
        let mut out = unsafe { create(name, flag, mode) }?;
        dump::write_flat(database, &mut out)
    };
    code::set_current(Code::NO_ERROR);
    // SAFETY: C promises it.
    count(unsafe { call(handle, Allowed::Sound, export) })
}

/// Writes all pairs to a stream as bytes, and returns how many there were.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_export_to_file(handle: *mut Handle, stream: *mut libc::FILE) -> c_int {
    let export = |database: &mut Database| {
        // SAFETY: C promises it.
        let mut out = unsafe { stream_of(stream) }?;
        dump::write_flat(database, &mut out)
    };
    code::set_current(Code::NO_ERROR);
    // SAFETY: C promises it.
    count(unsafe { call(handle, Allowed::Sound, export) })
}

fn wishes(replace: c_int, meta_mask: c_int) -> Wishes {
    let mode = if replace == flags::REPLACE { PutMode::Replace } else { PutMode::New };
    Wishes { mode, meta_mask }
}

fn import(database: &mut Database, input: impl Read, flag: c_int) -> Outcome<u64> {
    Load::new(input, wishes(flag, 0)).load_flat(database)
}

/// Stores the pairs of a file of bytes, and returns how many there were.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_import(handle: *mut Handle, name: *const c_char, flag: c_int) -> c_int {
    // SAFETY: C promises it.
    let body = |database: &mut Database| import(database, unsafe { open(name) }?, flag);
    code::set_current(Code::NO_ERROR);
    // SAFETY: C promises it.
    count(unsafe { call(handle, Allowed::Sound, body) })
}

/// Stores the pairs of a stream of bytes, and returns how many there were.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_import_from_file(
    handle: *mut Handle,
    stream: *mut libc::FILE,
    flag: c_int,
) -> c_int {
    // SAFETY: C promises it.
    let body = |database: &mut Database| import(database, unsafe { stream_of(stream) }?, flag);
    code::set_current(Code::NO_ERROR);
    // SAFETY: C promises it.
    count(unsafe { call(handle, Allowed::Sound, body) })
}

/// Loads a dump of any format.
///
/// # Safety
///
/// `database` leads to a handle, null or open; `line` is null or leads to a number.
unsafe fn load(
    database: *mut *mut Handle,
    replace: c_int,
    meta_mask: c_int,
    line: *mut c_ulong,
    input: impl FnOnce() -> Outcome<Box<dyn Read>>,
) -> c_int {
    if database.is_null() {
        fail(Failure::of(Code::ERR_USAGE));
        return -1;
    }
    code::set_current(Code::NO_ERROR);
    let note = |(failure, number): LoadFailure| {
        if !line.is_null() {
            // SAFETY: the caller promised it.
            unsafe { line.write(number) };
        }
        failure
    };
    let begin = || Ok(Load::new(input()?, wishes(replace, meta_mask)));
    // SAFETY: the caller promised it.
    let given = unsafe { *database };
    if !given.is_null() {
        let body = |found: &mut Database| begin()?.run(Some(found), &mut None).map_err(note);
        // SAFETY: the caller promised it.
        return status(unsafe { call(given, Allowed::Sound, body) });
    }
    let body = || {
        let mut opened = None;
        let loaded = begin()?.run(None, &mut opened).map_err(note);
        let is_kept = match &loaded {
            Ok(()) => true,
            Err(failure) => [Code::ERR_FILE_OWNER, Code::ERR_FILE_MODE].contains(&failure.code),
        };
        if let Some(opened) = opened.filter(|_| is_kept) {
            // SAFETY: the caller promised it.
            unsafe { *database = handle::Handle::give(opened) };
        }
        loaded
    };
    status(call_free(body))
}

/// Loads a dump from a file, into a database or into the one that it names.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_load(
    database: *mut *mut Handle,
    name: *const c_char,
    replace: c_int,
    meta_mask: c_int,
    line: *mut c_ulong,
) -> c_int {
    // SAFETY: C promises it.
    let input = || Ok(Box::new(unsafe { open(name) }?) as Box<dyn Read>);
    // SAFETY: C promises it.
    unsafe { load(database, replace, meta_mask, line, input) }
}

/// Loads a dump from a stream, into a database or into the one that it names.
#[unsafe(no_mangle)]
unsafe extern "C" fn gdbm_load_from_file(
    database: *mut *mut Handle,
    stream: *mut libc::FILE,
    replace: c_int,
    meta_mask: c_int,
    line: *mut c_ulong,
) -> c_int {
    // SAFETY: C promises it.
    let input = || Ok(Box::new(unsafe { stream_of(stream) }?) as Box<dyn Read>);
    // SAFETY: C promises it.
    unsafe { load(database, replace, meta_mask, line, input) }
}
