//! `bytevalue` and `print`: what Berkeley DB's `db_dump` writes and `db_load` reads, and LMDB's
//! `mdb_dump` and `mdb_load` too.
//!
//! ```text
//! VERSION=3
//! format=print
//! type=hash
//! h_nelem=1
//! db_pagesize=4096
//! HEADER=END
//!  alpha
//!  \00\ff\\ and text
//! DATA=END
//! ```
//!
//! After the header every line is a space and a datum, alternating keys and values. `bytevalue`
//! writes them in lower-case hex; `print` writes printable ASCII characters unchanged, a backslash
//! doubled, and any other byte as a backslash and two hex digits.

use std::io::{self, Write};

use crate::bytes::{decode_hex, hex_value, push_hex};

use super::input::LineEnd;
use super::{Contents, Input, ReadError, ReadRecords, Record, WriteError, WriteRecords};

/// The encoding of a datum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Bytevalue,
    Print,
}

impl Encoding {
    fn name(self) -> &'static str {
        match self {
            Self::Bytevalue => "bytevalue",
            Self::Print => "print",
        }
    }

    fn push(self, line: &mut Vec<u8>, datum: &[u8]) {
        if self == Self::Bytevalue {
            return push_hex(line, datum);
        }
        for byte in datum {
            match byte {
                b'\\' => line.extend_from_slice(br"\\"),
                b' '..=b'~' => line.push(*byte),
                other => {
                    line.push(b'\\');
                    push_hex(line, &[*other]);
                }
            }
        }
    }

    fn decode(self, datum: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        match self {
            Self::Bytevalue => decode_hex(datum, out).map_err(|reason| reason.to_string()),
            Self::Print => unescape(datum, out),
        }
    }
}

fn unescape(mut datum: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    loop {
        match datum {
            [] => return Ok(()),
            [b'\\', b'\\', rest @ ..] => {
                out.push(b'\\');
                datum = rest;
            }
            [b'\\', high, low, rest @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                out.push(hex_value(*high) << 4 | hex_value(*low));
                datum = rest;
            }
            [b'\\', ..] => {
                return Err(r"a backslash is followed by `\` or two hex digits".to_string());
            }
            [byte, rest @ ..] => {
                out.push(*byte);
                datum = rest;
            }
        }
    }
}

/// Reads both formats; the header names the format.
#[derive(Default)]
pub(super) struct Reader {
    /// Set by the header.
    encoding: Option<Encoding>,
    line: Vec<u8>,
}

impl ReadRecords for Reader {
    fn read(&mut self, input: &mut Input, record: &mut Record) -> Result<bool, ReadError> {
        record.clear();
        let encoding = match self.encoding {
            Some(encoding) => encoding,
            None => self.read_header(input)?,
        };
        if !self.read_datum(input, encoding, &mut record.key)? {
            return self.end(input);
        }
        if !self.read_datum(input, encoding, &mut record.value)? {
            return Err(ReadError::at_line(input, "DATA=END where the value of a key should be"));
        }
        Ok(true)
    }
}

impl Reader {
    fn read_header(&mut self, input: &mut Input) -> Result<Encoding, ReadError> {
        self.next_line(input, "the header")?;
        if self.line != b"VERSION=3" {
            return Err(ReadError::at_line(input, "expected `VERSION=3`"));
        }
        let mut encoding = None;
        loop {
            self.next_line(input, "the header")?;
            match self.line.as_slice() {
                b"HEADER=END" => break,
                b"format=bytevalue" => encoding = Some(Encoding::Bytevalue),
                b"format=print" => encoding = Some(Encoding::Print),
                b"keys=0" => {
                    let reason = "the dump was made without its keys (`keys=0`)";
                    return Err(ReadError::at_line(input, reason));
                }
                line if line.starts_with(b"format=") => {
                    let reason = "expected `format=bytevalue` or `format=print`";
                    return Err(ReadError::at_line(input, reason));
                }
                line if line.starts_with(b"type=") => {
                    if !matches!(line, b"type=hash" | b"type=btree") {
                        let reason = "only dumps of type hash or btree have explicit keys";
                        return Err(ReadError::at_line(input, reason));
                    }
                }
                // Ignore page sizes and the like.
                line if line.contains(&b'=') => {}
                _ => return Err(ReadError::at_line(input, "expected `name=value` in the header")),
            }
        }
        self.encoding = encoding;
        encoding.ok_or_else(|| ReadError::at_line(input, "the header has no `format=`"))
    }

    /// Reads a datum into `out`, or returns false at `DATA=END`.
    fn read_datum(
        &mut self,
        input: &mut Input,
        encoding: Encoding,
        out: &mut Vec<u8>,
    ) -> Result<bool, ReadError> {
        self.next_line(input, "a datum or DATA=END")?;
        match self.line.as_slice() {
            b"DATA=END" => Ok(false),
            [b' ', datum @ ..] => {
                encoding.decode(datum, out).map_err(|reason| ReadError::at_line(input, reason))?;
                Ok(true)
            }
            _ => Err(ReadError::at_line(input, "expected a space before a datum, or DATA=END")),
        }
    }

    fn end(&mut self, input: &mut Input) -> Result<bool, ReadError> {
        if input.read_line(&mut self.line)?.is_none() {
            return Ok(false);
        }
        let reason = "data after DATA=END: dump and load the databases of a file one by one";
        Err(ReadError::at_line(input, reason))
    }

    fn next_line(&mut self, input: &mut Input, what: &str) -> Result<(), ReadError> {
        match input.read_line(&mut self.line)? {
            Some(LineEnd::Newline) => Ok(()),
            // Nothing can follow `DATA=END`, so its newline may be missing.
            Some(LineEnd::Input) if self.line == b"DATA=END" => Ok(()),
            Some(LineEnd::Input) => {
                Err(ReadError::at_line(input, "the line has no newline: the input is cut short"))
            }
            None => {
                let reason = format!("the input ends where {what} should be: it is cut short");
                Err(ReadError::at_line(input, reason))
            }
        }
    }
}

/// Writes one of the formats.
pub(super) struct Writer {
    encoding: Encoding,
    is_for_lmdb: bool,
    line: Vec<u8>,
}

/// Largest table that `mdb_load` is to have room for, in bytes of addresses: no file is as large
/// for that.
const MAP_BYTES: u64 = 1 << 36;

impl Writer {
    pub(super) fn bytevalue() -> Self {
        Self { encoding: Encoding::Bytevalue, is_for_lmdb: false, line: Vec::new() }
    }

    pub(super) fn print() -> Self {
        Self { encoding: Encoding::Print, is_for_lmdb: false, line: Vec::new() }
    }

    pub(super) fn lmdb() -> Self {
        Self { is_for_lmdb: true, ..Self::bytevalue() }
    }
}

impl WriteRecords for Writer {
    fn begin(&mut self, out: &mut dyn Write, contents: Contents) -> io::Result<()> {
        let Contents { record_count, has_several_values } = contents;
        let duplicates = if has_several_values { "duplicates=1\n" } else { "" };
        writeln!(out, "VERSION=3\nformat={}", self.encoding.name())?;
        if self.is_for_lmdb {
            return writeln!(out, "type=btree\nmapsize={MAP_BYTES}\n{duplicates}HEADER=END");
        }
        writeln!(out, "type=hash")?;
        out.write_all(duplicates.as_bytes())?;
        // db_load reserves room for this many records. Its field has 32 bits, and db_dump omits 0.
        if let Ok(record_count @ 1..) = u32::try_from(record_count) {
            writeln!(out, "h_nelem={record_count}")?;
        }
        writeln!(out, "db_pagesize=4096\nHEADER=END")
    }

    fn write(&mut self, out: &mut dyn Write, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        self.line.clear();
        for datum in [key, value] {
            self.line.push(b' ');
            self.encoding.push(&mut self.line, datum);
            self.line.push(b'\n');
        }
        Ok(out.write_all(&self.line)?)
    }

    fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(b"DATA=END\n")
    }
}
