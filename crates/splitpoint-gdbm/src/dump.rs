//! Dumps: the pairs of a database as text or as bytes, in the two formats of gdbm.
//!
//! ```text
//! # GDBM dump file created by ...        !\r\n! GDBM FLAT FILE DUMP -- THIS IS NOT A TEXT FILE\r\n
//! #:version=1.1                          ! GDBM version ...\r\n!\r\n
//! #:file=NAME                            then for each key and each value:
//! #:uid=0,user=root,gid=0,group=root,mode=640    size, 4 bytes, most significant first
//! #:format=standard                              4 bytes of zeros
//! # End of header                                the bytes
//! then for each key and each value:
//! #:len=3
//! b25l
//! and at last:
//! #:count=1
//! # End of data
//! ```
//!
//! The four zeros are those that a 64-bit machine writes where the original has a `long`.

use std::ffi::{CStr, CString, c_char, c_int};
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;
use std::ptr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::code::{Code, Failure, Outcome};
use crate::database::Database;

/// Columns of a line of base64, which are 57 bytes.
const COLUMNS: usize = 76;
const LINE_BYTES: usize = COLUMNS / 4 * 3;

/// First bytes of a dump in bytes.
pub(crate) const FLAT_BEGIN: &[u8] = b"!\r\n! GDBM FLAT FILE DUMP -- THIS IS NOT A TEXT FILE\r\n";

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn failed(error: io::Error) -> Failure {
    Failure::of_io(Code::FILE_WRITE_ERROR, &error)
}

/// Writes all pairs as bytes, and returns how many there were.
pub(crate) fn write_flat(database: &Database, out: &mut dyn Write) -> Outcome<u64> {
    out.write_all(FLAT_BEGIN).map_err(failed)?;
    write!(out, "! {}\r\n!\r\n", crate::VERSION_TEXT).map_err(failed)?;
    let mut count = 0;
    database.table()?.for_each(|key, value| {
        for bytes in [key, value] {
            let size = u32::try_from(bytes.len()).map_err(|_| Failure::of(Code::MALFORMED_DATA))?;
            #[expect(clippy::big_endian_bytes, reason = "gdbm dumps sizes so")]
            let size = (u64::from(size) << 32).to_be_bytes();
            out.write_all(&size).and_then(|()| out.write_all(bytes)).map_err(failed)?;
        }
        count += 1;
        Ok(())
    })?;
    out.flush().map_err(failed)?;
    Ok(count)
}

/// Writes all pairs as text, with what a load restores.
pub(crate) fn write_text(database: &Database, out: &mut dyn Write) -> Outcome<u64> {
    write_header(database, out)?;
    let mut count = 0;
    database.table()?.for_each(|key, value| {
        write_datum(out, key).and_then(|()| write_datum(out, value)).map_err(failed)?;
        count += 1;
        Ok(())
    })?;
    write!(out, "#:count={count}\n# End of data\n").map_err(failed)?;
    out.flush().map_err(failed)?;
    Ok(count)
}

fn write_header(database: &Database, out: &mut dyn Write) -> Outcome<()> {
    let metadata = database.open_file()?.metadata();
    let metadata = metadata.map_err(|error| Failure::of_io(Code::FILE_STAT_ERROR, &error))?;
    let (uid, gid) = (metadata.uid(), metadata.gid());
    let mut header = Vec::new();
    header.extend_from_slice(b"# GDBM dump file created by ");
    header.extend_from_slice(crate::VERSION_TEXT.as_bytes());
    header.extend_from_slice(b"\n#:version=1.1\n#:file=");
    header.extend_from_slice(database.name.as_bytes());
    header.extend_from_slice(format!("\n#:uid={uid},").as_bytes());
    if let Some(user) = user_name(uid) {
        header.extend_from_slice(b"user=");
        header.extend_from_slice(user.as_bytes());
        header.push(b',');
    }
    header.extend_from_slice(format!("gid={gid},").as_bytes());
    if let Some(group) = group_name(gid) {
        header.extend_from_slice(b"group=");
        header.extend_from_slice(group.as_bytes());
        header.push(b',');
    }
    let format = if database.head.sync_count.is_some() { "numsync" } else { "standard" };
    let mode = metadata.mode() & 0o777;
    header.extend_from_slice(format!("mode={mode:o}\n#:format={format}\n").as_bytes());
    header.extend_from_slice(b"# End of header\n");
    out.write_all(&header).map_err(failed)
}

fn write_datum(out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    let mut text = format!("#:len={}\n", bytes.len());
    for line in bytes.chunks(LINE_BYTES) {
        STANDARD.encode_string(line, &mut text);
        text.push('\n');
    }
    out.write_all(text.as_bytes())
}

/// Bytes for the names of one entry at first, and at most: groups have many members.
const NAMES_BYTES: (usize, usize) = (1 << 10, 1 << 20);

/// Returns the name of a user, if there is one. Other threads may ask at the same time.
fn user_name(uid: u32) -> Option<CString> {
    with_names(|names| {
        let (mut entry, mut found) = (MaybeUninit::uninit(), ptr::null_mut());
        let (start, bytes) = (names.as_mut_ptr(), names.len());
        // SAFETY: all pointers lead to places for what the call stores.
        let code =
            unsafe { libc::getpwuid_r(uid, entry.as_mut_ptr(), start, bytes, &raw mut found) };
        // SAFETY: what is found is a complete entry.
        let entry = unsafe { found.as_ref() };
        // SAFETY: its name is in `names`.
        (code, entry.and_then(|entry| unsafe { name_at(entry.pw_name) }))
    })
}

/// Returns the name of a group, if there is one.
fn group_name(gid: u32) -> Option<CString> {
    with_names(|names| {
        let (mut entry, mut found) = (MaybeUninit::uninit(), ptr::null_mut());
        let (start, bytes) = (names.as_mut_ptr(), names.len());
        // SAFETY: all pointers lead to places for what the call stores.
        let code =
            unsafe { libc::getgrgid_r(gid, entry.as_mut_ptr(), start, bytes, &raw mut found) };
        // SAFETY: what is found is a complete entry.
        let entry = unsafe { found.as_ref() };
        // SAFETY: its name is in `names`.
        (code, entry.and_then(|entry| unsafe { name_at(entry.gr_name) }))
    })
}

/// Returns the number of a user, if there is one of that name.
pub(crate) fn user_number(name: &CStr) -> Option<u32> {
    with_names(|names| {
        let (mut entry, mut found) = (MaybeUninit::uninit(), ptr::null_mut());
        let (name, start, bytes) = (name.as_ptr(), names.as_mut_ptr(), names.len());
        // SAFETY: all pointers lead to places for what the call stores, and to a name that ends in NUL.
        let code =
            unsafe { libc::getpwnam_r(name, entry.as_mut_ptr(), start, bytes, &raw mut found) };
        // SAFETY: what is found is a complete entry.
        (code, unsafe { found.as_ref() }.map(|entry| entry.pw_uid))
    })
}

/// Returns the number of a group, if there is one of that name.
pub(crate) fn group_number(name: &CStr) -> Option<u32> {
    with_names(|names| {
        let (mut entry, mut found) = (MaybeUninit::uninit(), ptr::null_mut());
        let (name, start, bytes) = (name.as_ptr(), names.as_mut_ptr(), names.len());
        // SAFETY: all pointers lead to places for what the call stores, and to a name that ends in NUL.
        let code =
            unsafe { libc::getgrnam_r(name, entry.as_mut_ptr(), start, bytes, &raw mut found) };
        // SAFETY: what is found is a complete entry.
        (code, unsafe { found.as_ref() }.map(|entry| entry.gr_gid))
    })
}

/// Returns whether the user of this process may give files to others.
pub(crate) fn is_root() -> bool {
    // SAFETY: the call has no conditions.
    unsafe { libc::getuid() == 0 }
}

/// Returns a copy of a name of an entry.
///
/// # Safety
///
/// The pointer is null or leads to a text that ends in NUL.
unsafe fn name_at(name: *const c_char) -> Option<CString> {
    // SAFETY: the caller promised it.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_owned())
}

/// Calls `ask` with room for names, more as long as that is too little, and returns what it finds.
fn with_names<T>(ask: impl Fn(&mut [c_char]) -> (c_int, Option<T>)) -> Option<T> {
    let mut names = vec![0; NAMES_BYTES.0];
    loop {
        match ask(&mut names) {
            (libc::ERANGE, _) if names.len() < NAMES_BYTES.1 => names.resize(names.len() * 2, 0),
            (0, found) => return found,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_length_are_found() {
        assert_eq!(user_name(0).as_deref(), Some(c"root"));
        assert_eq!(group_name(u32::MAX - 7), None);
        let long = CString::new(vec![b'a'; NAMES_BYTES.0 * 5]).unwrap();
        let bytes: Vec<c_char> =
            long.as_bytes_with_nul().iter().map(|&byte| byte.cast_signed()).collect();
        let found = with_names(|names| match names.get_mut(..bytes.len()) {
            Some(room) => {
                room.copy_from_slice(&bytes);
                // SAFETY: the bytes of `long` end in NUL.
                (0, unsafe { name_at(room.as_ptr()) })
            }
            None => (libc::ERANGE, None),
        });
        assert_eq!(found, Some(long));
        assert_eq!(with_names(|_| (libc::ERANGE, None::<CString>)), None);
        assert_eq!(user_number(c"root"), Some(0));
        assert_eq!((user_number(c"no such user"), group_number(c"no such group")), (None, None));
    }
}
