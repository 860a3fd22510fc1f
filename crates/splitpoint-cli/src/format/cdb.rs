//! `cdb`: what `cdbmake` reads and `cdbdump` writes.
//!
//! ```text
//! +5,3:alpha->one
//! +1,0:e->
//!
//! ```
//!
//! `+`, the lengths of key and value in decimal, a colon, the key, `->`, the value, a newline;
//! an empty line ends the records. The bytes are not escaped, because the lengths show where
//! they end; errors therefore name a byte and not a line.

use std::io::{self, Write};

use splitpoint::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

use super::{Input, Place, ReadError, ReadRecords, Record, WriteError, WriteRecords};

/// Reads `cdb`.
pub(super) struct Reader;

impl ReadRecords for Reader {
    fn read(&mut self, input: &mut Input, record: &mut Record) -> Result<bool, ReadError> {
        record.clear();
        match input.read_byte("a record or the empty line that ends a cdb dump")? {
            b'+' => {}
            b'\n' => return end(input),
            found => return Err(unexpected(input, "`+` or the empty line at the end", found)),
        }
        let key_bytes = read_length(input, "the length of a key", b',', KEY_BYTES_MAX)?;
        let value_bytes = read_length(input, "the length of a value", b':', VALUE_BYTES_MAX)?;
        input.read_bytes(key_bytes, "a key", &mut record.key)?;
        expect(input, b'-', "`->` after the key")?;
        expect(input, b'>', "`->` after the key")?;
        input.read_bytes(value_bytes, "a value", &mut record.value)?;
        expect(input, b'\n', "a newline after the value")?;
        Ok(true)
    }
}

fn end(input: &mut Input) -> Result<bool, ReadError> {
    if input.peek()?.is_empty() {
        return Ok(false);
    }
    let reason = "data after the empty line that ends a cdb dump".to_string();
    Err(ReadError::Malformed { place: Place::Byte(input.offset()), reason })
}

fn read_length(input: &mut Input, what: &str, end: u8, bytes_max: u64) -> Result<u64, ReadError> {
    let start = input.offset();
    let mut length: u64 = 0;
    loop {
        match input.read_byte(what)? {
            digit @ b'0'..=b'9' => length = length * 10 + u64::from(digit - b'0'),
            byte if byte == end && input.offset() > start + 1 => return Ok(length),
            found => return Err(unexpected(input, what, found)),
        }
        if length > bytes_max {
            let reason = format!("{what} is over the limit of {bytes_max} bytes");
            return Err(ReadError::Malformed { place: Place::Byte(start), reason });
        }
    }
}

fn expect(input: &mut Input, expected: u8, what: &str) -> Result<(), ReadError> {
    let found = input.read_byte(what)?;
    if found == expected { Ok(()) } else { Err(unexpected(input, what, found)) }
}

/// Returns the error for a byte just read that is not `what`.
fn unexpected(input: &Input, what: &str, found: u8) -> ReadError {
    let place = Place::Byte(input.offset() - 1);
    ReadError::Malformed {
        place,
        reason: format!("expected {what}, found `{}`", found.escape_ascii()),
    }
}

/// Writes `cdb`.
pub(super) struct Writer;

impl WriteRecords for Writer {
    fn write(&mut self, out: &mut dyn Write, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        write!(out, "+{},{}:", key.len(), value.len())?;
        out.write_all(key)?;
        out.write_all(b"->")?;
        out.write_all(value)?;
        Ok(out.write_all(b"\n")?)
    }

    fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(b"\n")
    }
}
