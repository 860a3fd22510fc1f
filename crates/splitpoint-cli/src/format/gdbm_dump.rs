//! `gdbm-ascii` and `gdbm-binary`: what `gdbm_dump` writes and `gdbm_load` reads.
//!
//! ```text
//! # GDBM dump file created by ...
//! #:version=1.1
//! # End of header
//! #:len=5
//! YWxwaGE=
//! #:len=3
//! b25l
//! #:count=1
//! # End of data
//! ```
//!
//! Keys and values alternate, in base64 of 76 columns. The binary form is four lines of `!`, and
//! then each datum after its length, without an end marker. The length is four bytes, the highest
//! first, in an `unsigned long` of the machine: see [`Lengths`].
//!
//! `gdbm_load` 1.23 refuses a dump of either form with an empty datum, even one that `gdbm_dump`
//! wrote.

use std::io::{self, Write};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use splitpoint::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

use super::input::LineEnd;
use super::{Contents, Input, Place, ReadError, ReadRecords, Record, WriteError, WriteRecords};

const COLUMNS: usize = 76;

/// Reads the ASCII form.
#[derive(Default)]
pub(super) struct AsciiReader {
    is_past_header: bool,
    record_count: u64,
    line: Vec<u8>,
    digits: Vec<u8>,
}

impl ReadRecords for AsciiReader {
    fn read(&mut self, input: &mut Input, record: &mut Record) -> Result<bool, ReadError> {
        record.clear();
        while !self.is_past_header {
            self.next_line(input, "the header")?;
            if !self.line.starts_with(b"#") {
                return Err(ReadError::at_line(input, "expected `# End of header`"));
            }
            self.is_past_header = self.line == b"# End of header";
        }
        self.next_line(input, "a datum or `#:count=`")?;
        if self.line.starts_with(b"#:count=") {
            return self.end(input);
        }
        self.read_datum(input, KEY_BYTES_MAX, &mut record.key)?;
        self.next_line(input, "the value of a key")?;
        self.read_datum(input, VALUE_BYTES_MAX, &mut record.value)?;
        self.record_count += 1;
        Ok(true)
    }
}

impl AsciiReader {
    /// Reads the datum whose length is on the line just read.
    fn read_datum(
        &mut self,
        input: &mut Input,
        bytes_max: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), ReadError> {
        let bytes = number_after(&self.line, b"#:len=")
            .ok_or_else(|| ReadError::at_line(input, "expected `#:len=` and a number"))?;
        if bytes > bytes_max {
            let reason = format!("a datum is over the limit of {bytes_max} bytes");
            return Err(ReadError::at_line(input, reason));
        }
        let digit_count = bytes.div_ceil(3) * 4;
        self.digits.clear();
        while crate::number::count(self.digits.len()) < digit_count {
            self.next_line(input, "the base64 of a datum")?;
            if self.line.is_empty() || self.line.starts_with(b"#") {
                return Err(ReadError::at_line(input, "the base64 of a datum is cut short"));
            }
            self.digits.append(&mut self.line);
        }
        BASE64_STANDARD
            .decode_vec(&self.digits, out)
            .map_err(|error| ReadError::at_line(input, format!("not base64: {error}")))?;
        if crate::number::count(out.len()) == bytes {
            return Ok(());
        }
        let reason = format!("{} bytes where `#:len=` says {bytes}", out.len());
        Err(ReadError::at_line(input, reason))
    }

    fn end(&mut self, input: &mut Input) -> Result<bool, ReadError> {
        let count = self.record_count;
        if number_after(&self.line, b"#:count=") != Some(count) {
            let reason = format!("`#:count=` does not match the {count} records before it");
            return Err(ReadError::at_line(input, reason));
        }
        self.next_line(input, "`# End of data`")?;
        if self.line != b"# End of data" || !input.peek()?.is_empty() {
            return Err(ReadError::at_line(input, "expected `# End of data` and nothing after it"));
        }
        Ok(false)
    }

    fn next_line(&mut self, input: &mut Input, what: &str) -> Result<(), ReadError> {
        match input.read_line(&mut self.line)? {
            Some(LineEnd::Newline) => Ok(()),
            Some(LineEnd::Input) if self.line == b"# End of data" => Ok(()),
            Some(LineEnd::Input) | None => {
                let reason = format!("the input ends where {what} should be: it is cut short");
                Err(ReadError::at_line(input, reason))
            }
        }
    }
}

fn number_after(line: &[u8], name: &[u8]) -> Option<u64> {
    std::str::from_utf8(line.strip_prefix(name)?).ok()?.parse().ok()
}

/// Writes the ASCII form.
#[derive(Default)]
pub(super) struct AsciiWriter {
    record_count: u64,
}

impl WriteRecords for AsciiWriter {
    fn begin(&mut self, out: &mut dyn Write, _contents: Contents) -> io::Result<()> {
        out.write_all(
            b"# GDBM dump file created by splitpoint\n#:version=1.1\n#:file=splitpoint.gdbm\n\
              #:format=standard\n# End of header\n",
        )
    }

    fn write(&mut self, out: &mut dyn Write, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        for datum in [key, value] {
            writeln!(out, "#:len={}", datum.len())?;
            for line in BASE64_STANDARD.encode(datum).as_bytes().chunks(COLUMNS) {
                out.write_all(line)?;
                out.write_all(b"\n")?;
            }
        }
        self.record_count += 1;
        Ok(())
    }

    fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "#:count={}\n# End of data", self.record_count)
    }
}

/// The layout of a length in a binary dump, which depends on the machine that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lengths {
    /// 64 bits, little-endian: zeros after the four bytes, as on this machine.
    ZerosBehind,
    /// 64 bits, big-endian: zeros before the four bytes.
    ZerosBefore,
    /// 32 bits: the four bytes alone.
    Alone,
}

impl Lengths {
    /// Returns the first layout that fits all of `bytes`, the part of the dump after the header
    /// that is in the buffer. The dump itself does not name its layout.
    fn of(bytes: &[u8]) -> Self {
        let agree = |lengths: &Self| {
            let mut rest = bytes;
            while let Some((head, behind)) = rest.split_at_checked(lengths.width()) {
                let Some(len) = lengths.decode(head) else { return false };
                let Some(behind) = behind.get(len as usize..) else { return true };
                rest = behind;
            }
            true
        };
        [Self::ZerosBehind, Self::ZerosBefore].into_iter().find(agree).unwrap_or(Self::Alone)
    }

    fn width(self) -> usize {
        if self == Self::Alone { 4 } else { 8 }
    }

    /// Returns the length in `head`, or `None` if the zeros are missing or the length is over every
    /// limit.
    fn decode(self, head: &[u8]) -> Option<u64> {
        let (value, zeros) = match self {
            Self::ZerosBehind => (&head[..4], &head[4..]),
            Self::ZerosBefore => (&head[4..], &head[..4]),
            Self::Alone => (head, &head[..0]),
        };
        let len = value.iter().fold(0, |len, &byte| len << 8 | u64::from(byte));
        (zeros.iter().all(|&byte| byte == 0) && len <= VALUE_BYTES_MAX).then_some(len)
    }
}

/// Reads the binary form.
#[derive(Default)]
pub(super) struct BinaryReader {
    /// `None` before the end of the header.
    lengths: Option<Lengths>,
    line: Vec<u8>,
}

impl ReadRecords for BinaryReader {
    fn read(&mut self, input: &mut Input, record: &mut Record) -> Result<bool, ReadError> {
        record.clear();
        while self.lengths.is_none() {
            let end = input.read_line(&mut self.line)?;
            if end != Some(LineEnd::Newline) || !self.line.starts_with(b"!") {
                return Err(ReadError::at_line(input, "expected the header: lines of `!`"));
            }
            // The first line is the same as the last.
            if self.line == b"!\r" && input.line() > 1 {
                self.lengths = Some(Lengths::of(input.peek()?));
            }
        }
        let lengths = self.lengths.unwrap_or(Lengths::Alone);
        if input.peek()?.is_empty() {
            return Ok(false);
        }
        read_datum(input, lengths, "a key", KEY_BYTES_MAX, &mut record.key)?;
        read_datum(input, lengths, "a value", VALUE_BYTES_MAX, &mut record.value)?;
        Ok(true)
    }
}

fn read_datum(
    input: &mut Input,
    lengths: Lengths,
    what: &str,
    bytes_max: u64,
    out: &mut Vec<u8>,
) -> Result<(), ReadError> {
    let start = input.offset();
    let mut head = [0; 8];
    let head = &mut head[..lengths.width()];
    for byte in head.iter_mut() {
        *byte = input.read_byte("the length of a datum")?;
    }
    match lengths.decode(head) {
        Some(bytes) if bytes <= bytes_max => input.read_bytes(bytes, what, out),
        _ => {
            let reason = format!("the length of {what} is over the limit of {bytes_max} bytes");
            Err(ReadError::Malformed { place: Place::Byte(start), reason })
        }
    }
}

/// Writes the binary form.
pub(super) struct BinaryWriter;

impl WriteRecords for BinaryWriter {
    fn begin(&mut self, out: &mut dyn Write, _contents: Contents) -> io::Result<()> {
        out.write_all(
            b"!\r\n! GDBM FLAT FILE DUMP -- THIS IS NOT A TEXT FILE\r\n! splitpoint\r\n!\r\n",
        )
    }

    fn write(&mut self, out: &mut dyn Write, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        for datum in [key, value] {
            let Ok(bytes) = u32::try_from(datum.len()) else {
                return Err(WriteError::Unfit { reason: "a length over 32 bits" });
            };
            out.write_all(&bytes.swap_bytes().to_le_bytes())?;
            out.write_all(&[0; 4])?;
            out.write_all(datum)?;
        }
        Ok(())
    }
}
