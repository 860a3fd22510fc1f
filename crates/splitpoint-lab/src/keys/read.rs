//! Reads keys out of a stream of bytes, in batches.

use std::fmt;
use std::io::{self, BufRead, Read as _};

use memchr::memchr;

use super::KeyBatch;
use super::format::{Column, Encoding, Framing, Integer, KeyFormat};
use super::text::decode;

/// Longest key that is read, in bytes. More is a file in another format.
pub const KEY_BYTES_MAX: usize = 16 << 20;
/// Keys after which a batch is full.
const BATCH_KEYS: usize = 1 << 15;
/// Bytes after which a batch is full.
const BATCH_BYTES: u64 = 1 << 20;

/// What gives keys in batches, in the same order whenever it is opened.
pub trait KeyInput {
    /// Adds keys to `batch` until it is full. Returns whether there may be more.
    ///
    /// # Errors
    ///
    /// If the input cannot be read or is malformed; keys before that are in the batch.
    fn read_batch(&mut self, batch: &mut KeyBatch) -> Result<bool, ReadError>;

    /// Returns what was noticed so far.
    fn noticed(&self) -> Noticed {
        Noticed::default()
    }

    /// Returns the bytes of the input that have been read.
    fn offset(&self) -> u64 {
        0
    }
}

/// What was noticed about the form of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Noticed {
    /// Empty lines or fields, which were left out.
    pub blank_count: u64,
    /// Lines that end in a carriage return, which is part of the key.
    pub carriage_return_count: u64,
    /// Lines or fields that hold a NUL byte, as no text does.
    pub nul_count: u64,
}

/// Why keys cannot be read.
#[derive(Debug)]
pub enum ReadError {
    /// The input fails.
    Io(io::Error),
    /// The input is not what the format says.
    Malformed {
        /// Where.
        place: Place,
        /// What is wrong: what was expected and what was found.
        reason: String,
    },
    /// The work was stopped.
    Stopped {
        /// Keys that had been read.
        key_count: u64,
    },
    /// Even what is kept of keys that are read again and again does not fit into memory.
    Memory {
        /// What it would take.
        needed_bytes: u64,
        /// What was allowed.
        allowed_bytes: u64,
    },
    /// The process does not get the memory for the keys, or for what is counted.
    NoMemory {
        /// What it may take.
        needed_bytes: u64,
    },
}

/// A place in an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The line, from 1.
    Line(u64),
    /// Bytes from the start.
    Byte(u64),
    /// The key, from 1.
    Key(u64),
    /// Nowhere in particular.
    Whole,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}: "),
            Self::Byte(offset) => write!(f, "byte {offset}: "),
            Self::Key(number) => write!(f, "key {number}: "),
            Self::Whole => Ok(()),
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::Malformed { place, reason } => write!(f, "{place}{reason}"),
            Self::Stopped { key_count } => write!(f, "stopped after {key_count} keys"),
            Self::Memory { needed_bytes, allowed_bytes } => {
                write!(
                    f,
                    "to compare the keys takes {needed_bytes} bytes, {allowed_bytes} are left"
                )
            }
            Self::NoMemory { needed_bytes } => {
                write!(f, "the process does not get {needed_bytes} bytes of memory")
            }
        }
    }
}

impl std::error::Error for ReadError {}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn malformed<T>(place: Place, reason: impl Into<String>) -> Result<T, ReadError> {
    Err(ReadError::Malformed { place, reason: reason.into() })
}

fn too_long<T>(place: Place) -> Result<T, ReadError> {
    malformed(place, format!("the key is longer than {KEY_BYTES_MAX} bytes"))
}

/// Reads keys of any format out of `input`.
///
/// # Errors
///
/// If the header of a table cannot be read or lacks the column.
///
/// # Examples
///
/// ```
/// use splitpoint_lab::keys::{Column, KeyBatch, KeyFormat, reader};
///
/// let column = Column { name: "name".to_owned(), has_header: true };
/// let format = KeyFormat::by_name("csv", column)?;
/// let mut input = reader(&b"id,name\n1,\"Doe, J.\"\n"[..], &format)?;
/// let mut batch = KeyBatch::default();
/// input.read_batch(&mut batch)?;
/// assert_eq!(batch.key(0), b"Doe, J.");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn reader<'r>(
    input: impl BufRead + Send + 'r,
    format: &KeyFormat,
) -> Result<Box<dyn KeyInput + Send + 'r>, ReadError> {
    let encoding = format.encoding;
    Ok(match &format.framing {
        Framing::Lines => Box::new(Delimited::new(input, b'\n', encoding)),
        Framing::Nul => Box::new(Delimited::new(input, 0, encoding)),
        Framing::Prefixed(length) => Box::new(Binary::new(input, Frame::Prefixed(*length))),
        Framing::Varint => Box::new(Binary::new(input, Frame::Varint)),
        Framing::Integers(width) => Box::new(Binary::new(input, Frame::Integer(*width))),
        Framing::Csv(column) => Box::new(Table::new(input, b',', column, encoding)?),
        Framing::Tsv(column) => Box::new(Table::new(input, b'\t', column, encoding)?),
    })
}

fn is_full(batch: &KeyBatch) -> bool {
    batch.len() >= BATCH_KEYS || batch.key_bytes() >= BATCH_BYTES
}

/// Keys that are ended by a byte.
struct Delimited<R> {
    input: R,
    end: u8,
    encoding: Encoding,
    line: u64,
    offset: u64,
    noticed: Noticed,
}

impl<R> Delimited<R> {
    fn new(input: R, end: u8, encoding: Encoding) -> Self {
        Self { input, end, encoding, line: 0, offset: 0, noticed: Noticed::default() }
    }
}

impl<R: BufRead> KeyInput for Delimited<R> {
    fn read_batch(&mut self, batch: &mut KeyBatch) -> Result<bool, ReadError> {
        let mut long = Vec::new();
        while !is_full(batch) {
            let available = self.input.fill_buf()?;
            if available.is_empty() {
                return Ok(false);
            }
            // Nearly every key lies whole in the buffer, and is copied once.
            if let Some(length) = memchr(self.end, available) {
                take(&mut self.noticed, self.end, self.encoding, &available[..length], batch)
                    .or_else(|reason| malformed(place_of(self.end, self.line), reason))?;
                self.input.consume(length + 1);
                self.offset += length as u64 + 1;
            } else {
                long.clear();
                let limit = KEY_BYTES_MAX as u64 + 2;
                let read = self.input.by_ref().take(limit).read_until(self.end, &mut long)?;
                self.offset += read as u64;
                let key = long.strip_suffix(&[self.end]).unwrap_or(&long);
                if key.len() > KEY_BYTES_MAX {
                    return too_long(place_of(self.end, self.line));
                }
                take(&mut self.noticed, self.end, self.encoding, key, batch)
                    .or_else(|reason| malformed(place_of(self.end, self.line), reason))?;
            }
            self.line += 1;
        }
        Ok(true)
    }

    fn noticed(&self) -> Noticed {
        self.noticed
    }

    fn offset(&self) -> u64 {
        self.offset
    }
}

fn place_of(end: u8, ended_before: u64) -> Place {
    if end == b'\n' { Place::Line(ended_before + 1) } else { Place::Key(ended_before + 1) }
}

/// Adds what one line or NUL-ended string says.
fn take(
    noticed: &mut Noticed,
    end: u8,
    encoding: Encoding,
    text: &[u8],
    batch: &mut KeyBatch,
) -> Result<(), String> {
    // NUL-ended keys come from programs, where an empty one is meant.
    if end == b'\n' {
        if text.is_empty() || text == b"\r" {
            noticed.blank_count += 1;
            return Ok(());
        }
        if encoding == Encoding::Bytes {
            noticed.carriage_return_count += u64::from(text.ends_with(b"\r"));
            noticed.nul_count += u64::from(memchr(0, text).is_some());
        }
    }
    batch.push_with(|bytes| decode(encoding, text, bytes))
}

/// How a key of bytes begins.
#[derive(Clone, Copy)]
enum Frame {
    Prefixed(Integer),
    Varint,
    Integer(Integer),
}

/// Keys of a length that is known before they are read.
struct Binary<R> {
    input: R,
    frame: Frame,
    offset: u64,
}

impl<R: BufRead> Binary<R> {
    fn new(input: R, frame: Frame) -> Self {
        Self { input, frame, offset: 0 }
    }

    /// Reads `length` bytes onto `out`, or says that they are not all there.
    fn read_exact(&mut self, length: usize, out: &mut Vec<u8>) -> Result<(), ReadError> {
        let before = self.offset;
        let read = self.input.by_ref().take(length as u64).read_to_end(out)?;
        self.offset += read as u64;
        if read < length {
            let reason =
                format!("expected {length} bytes, found {read} before the end of the file");
            return malformed(Place::Byte(before), reason);
        }
        Ok(())
    }

    fn read_length(&mut self) -> Result<u64, ReadError> {
        let before = self.offset;
        let mut bytes = Vec::with_capacity(8);
        match self.frame {
            Frame::Prefixed(length) => {
                self.read_exact(usize::from(length.width_bytes), &mut bytes)?;
                Ok(length.value(&bytes))
            }
            Frame::Integer(width) => Ok(u64::from(width.width_bytes)),
            Frame::Varint => {
                let mut value = 0_u64;
                for shift in (0..64).step_by(7) {
                    bytes.clear();
                    self.read_exact(1, &mut bytes)?;
                    value |= u64::from(bytes[0] & 0x7f) << shift;
                    if bytes[0] < 0x80 {
                        return Ok(value);
                    }
                }
                malformed(Place::Byte(before), "a varint has at most 10 bytes")
            }
        }
    }

    fn read_key(&mut self, batch: &mut KeyBatch) -> Result<(), ReadError> {
        let before = self.offset;
        let length = self.read_length()?;
        if length > KEY_BYTES_MAX as u64 {
            let reason = format!(
                "a key of {length} bytes, and {KEY_BYTES_MAX} are the most: the lengths may be \
                 written in another way"
            );
            return malformed(Place::Byte(before), reason);
        }
        let is_reversed = matches!(self.frame, Frame::Integer(width) if width.is_big_endian);
        batch.push_with(|bytes| {
            let start = bytes.len();
            self.read_exact(length as usize, bytes)?;
            if is_reversed {
                bytes[start..].reverse();
            }
            Ok(())
        })
    }
}

impl<R: BufRead> KeyInput for Binary<R> {
    fn read_batch(&mut self, batch: &mut KeyBatch) -> Result<bool, ReadError> {
        while !is_full(batch) {
            if self.input.fill_buf()?.is_empty() {
                return Ok(false);
            }
            self.read_key(batch)?;
        }
        Ok(true)
    }

    fn offset(&self) -> u64 {
        self.offset
    }
}

/// One column of a table.
struct Table<R> {
    rows: csv::Reader<Guard<R>>,
    record: csv::ByteRecord,
    /// From 0.
    column: usize,
    /// Of the last row.
    line: u64,
    encoding: Encoding,
    noticed: Noticed,
}

/// What passes on the way to the rows: quotes, each of which has its partner in a table that is
/// whole, and the bytes of one row, which an open quote would let grow up to the end of the file.
struct Guard<R> {
    input: R,
    quote: Option<u8>,
    quote_count: u64,
    row_bytes: usize,
}

impl<R: io::Read> io::Read for Guard<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.row_bytes > KEY_BYTES_MAX {
            let reason = format!("a row of more than {KEY_BYTES_MAX} bytes: a quote may be open");
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        let read = self.input.read(buf)?;
        self.row_bytes += read;
        if let Some(quote) = self.quote {
            self.quote_count += memchr::memchr_iter(quote, &buf[..read]).count() as u64;
        }
        Ok(read)
    }
}

impl<R: BufRead> Table<R> {
    fn new(
        input: R,
        delimiter: u8,
        column: &Column,
        encoding: Encoding,
    ) -> Result<Self, ReadError> {
        let is_quoted = delimiter == b',';
        let quote = is_quoted.then_some(b'"');
        let input = Guard { input, quote, quote_count: 0, row_bytes: 0 };
        let number = column.name.parse::<usize>().ok();
        let has_header = column.has_header || number.is_none();
        let rows = csv::ReaderBuilder::new()
            .delimiter(delimiter)
            .quoting(is_quoted)
            .has_headers(has_header)
            .from_reader(input);
        let mut table = Self {
            rows,
            record: csv::ByteRecord::new(),
            column: 0,
            line: 1,
            encoding,
            noticed: Noticed::default(),
        };
        let header = if has_header {
            table.rows.byte_headers().map_err(read_error)?.clone()
        } else {
            csv::ByteRecord::new()
        };
        let named = header.iter().position(|field| field == column.name.as_bytes());
        table.column = match (named, number) {
            (Some(index), _) => index,
            (None, Some(number @ 1..)) => number - 1,
            (None, Some(0)) => return malformed(Place::Whole, "columns are numbered from 1"),
            (None, None) => {
                let names: Vec<String> =
                    header.iter().map(|name| format!("`{}`", name.escape_ascii())).collect();
                let reason = format!(
                    "the header has no column `{}`, it has {}",
                    column.name,
                    names.join(", ")
                );
                return malformed(Place::Line(1), reason);
            }
        };
        Ok(table)
    }
}

impl<R: BufRead> KeyInput for Table<R> {
    fn read_batch(&mut self, batch: &mut KeyBatch) -> Result<bool, ReadError> {
        while !is_full(batch) {
            self.rows.get_mut().row_bytes = 0;
            if !self.rows.read_byte_record(&mut self.record).map_err(read_error)? {
                // An open quote has taken the rest of the file into the last row.
                if self.rows.get_ref().quote_count.is_multiple_of(2) {
                    return Ok(false);
                }
                return malformed(Place::Line(self.line), "a quote is opened and never closed");
            }
            self.line = self.record.position().map_or(0, csv::Position::line);
            let line = self.line;
            let Some(field) = self.record.get(self.column) else {
                let (column, count) = (self.column + 1, self.record.len());
                let reason = format!("expected a column {column}, found a row of {count}");
                return malformed(Place::Line(line), reason);
            };
            if field.is_empty() {
                self.noticed.blank_count += 1;
                continue;
            }
            if field.len() > KEY_BYTES_MAX {
                return too_long(Place::Line(line));
            }
            if self.encoding == Encoding::Bytes {
                self.noticed.nul_count += u64::from(memchr(0, field).is_some());
            }
            batch
                .push_with(|bytes| decode(self.encoding, field, bytes))
                .or_else(|reason| malformed(Place::Line(line), reason))?;
        }
        Ok(true)
    }

    fn noticed(&self) -> Noticed {
        self.noticed
    }

    fn offset(&self) -> u64 {
        self.rows.position().byte()
    }
}

fn read_error(error: csv::Error) -> ReadError {
    let line = error.position().map_or(0, csv::Position::line);
    match error.into_kind() {
        csv::ErrorKind::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
            ReadError::Malformed { place: Place::Whole, reason: error.to_string() }
        }
        csv::ErrorKind::Io(error) => ReadError::Io(error),
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => ReadError::Malformed {
            place: Place::Line(line),
            reason: format!(
                "a row of {}, where the first row has {expected_len}",
                crate::number::counted(len, "column")
            ),
        },
        kind => ReadError::Malformed { place: Place::Line(line), reason: format!("{kind:?}") },
    }
}
