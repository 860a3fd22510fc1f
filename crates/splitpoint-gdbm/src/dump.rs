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

use std::ffi::{CStr, CString};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;

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

fn user_name(uid: u32) -> Option<CString> {
    // SAFETY: the call has no conditions; nobody else asks in the middle of this call's use.
    let entry = unsafe { libc::getpwuid(uid) };
    if entry.is_null() {
        return None;
    }
    // SAFETY: what is not null is an entry of this thread's until the next call.
    let name = unsafe { (*entry).pw_name };
    // SAFETY: the name of an entry ends in NUL.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_owned())
}

fn group_name(gid: u32) -> Option<CString> {
    // SAFETY: as above.
    let entry = unsafe { libc::getgrgid(gid) };
    if entry.is_null() {
        return None;
    }
    // SAFETY: as above.
    let name = unsafe { (*entry).gr_name };
    // SAFETY: as above.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_owned())
}
