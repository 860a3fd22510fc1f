//! The formats of `dump` and `load`: each in its own file, reader and writer side by side.
//!
//! | format | holds | detects truncation by |
//! |---|---|---|
//! | `hex` | every record | the final newline |
//! | `lines` | keys only, `load` alone | - |
//! | `tsv` | records without TAB in the key and newline in either | - |
//! | `csv` | every record, `load` alone | the number of fields |
//! | `cdb` | every record | the empty line at the end |
//! | `bytevalue`, `print`, `mdb` | every record | `DATA=END` |
//! | `jsonl` | every record | the syntax of JSON |
//! | `gdbm-ascii` | every record | `# End of data` and the number of records |
//! | `gdbm-binary` | every record | - |

mod cdb;
mod csv;
mod db_dump;
mod detect;
mod gdbm_dump;
mod hex;
mod input;
mod jsonl;
mod lines;
#[cfg(test)]
mod tests;
mod tsv;

use std::fmt;
use std::io::{self, Write};

use clap::ValueEnum;

pub(crate) use csv::Columns;
pub(crate) use detect::{Detected, Foreign, detect};
pub(crate) use input::Input;
pub(crate) use jsonl::{JsonEncoding, JsonRecord};

/// A key with its value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

impl Record {
    fn clear(&mut self) {
        self.key.clear();
        self.value.clear();
    }
}

/// A format that `dump` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DumpFormat {
    /// Key and value in lower-case hex, separated by a space; `-` is an empty string
    Hex,
    /// Key, TAB, value; fails on records that do not fit
    Tsv,
    /// What cdbmake reads: +5,3:alpha->one
    Cdb,
    /// What `db_load` reads, in hex
    Bytevalue,
    /// What `db_load` reads, in text with \xx escapes
    Print,
    /// What `mdb_load` reads, in hex; LMDB refuses empty keys and keys over 511 bytes
    Mdb,
    /// One JSON object per line; base64 for bytes that are not UTF-8
    Jsonl,
    /// What `gdbm_load` reads, in base64; gdbm 1.23 refuses an empty key or value
    GdbmAscii,
    /// What `gdbm_load` reads, in binary; gdbm 1.23 refuses an empty key or value
    GdbmBinary,
}

/// A format that `load` reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoadFormat {
    /// Key and value in hex, separated by a space; `-` is an empty string
    Hex,
    /// Each line is a key; its value is the line number
    Lines,
    /// Key, TAB, value; with --column or --header, TAB-separated fields
    Tsv,
    /// Comma-separated fields, quoted if necessary; see --column and --header
    Csv,
    /// What cdbdump writes: +5,3:alpha->one
    Cdb,
    /// What `db_dump` writes
    Bytevalue,
    /// What `db_dump -p` writes
    Print,
    /// One JSON object per line, with strings for key and value
    Jsonl,
    /// What `gdbm_dump` writes
    GdbmAscii,
    /// What `gdbm_dump --format=binary` writes
    GdbmBinary,
}

impl LoadFormat {
    /// Returns the name that `--format` takes.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hex => "hex",
            Self::Lines => "lines",
            Self::Tsv => "tsv",
            Self::Csv => "csv",
            Self::Cdb => "cdb",
            Self::Bytevalue => "bytevalue",
            Self::Print => "print",
            Self::Jsonl => "jsonl",
            Self::GdbmAscii => "gdbm-ascii",
            Self::GdbmBinary => "gdbm-binary",
        }
    }

    /// Returns a reader for the start of an input. `columns` is for `csv`, and for `tsv` if given.
    pub(crate) fn reader(self, columns: Option<Columns>) -> Box<dyn ReadRecords> {
        match self {
            Self::Hex => Box::new(hex::Reader::default()),
            Self::Lines => Box::new(lines::Reader),
            Self::Tsv => match columns {
                Some(columns) => Box::new(csv::Reader::tab_separated(columns)),
                None => Box::new(tsv::Reader::default()),
            },
            Self::Csv => Box::new(csv::Reader::comma_separated(columns.unwrap_or_default())),
            Self::Cdb => Box::new(cdb::Reader),
            // The header of the input names one of the two.
            Self::Bytevalue | Self::Print => Box::new(db_dump::Reader::default()),
            Self::Jsonl => Box::new(jsonl::Reader::default()),
            Self::GdbmAscii => Box::new(gdbm_dump::AsciiReader::default()),
            Self::GdbmBinary => Box::new(gdbm_dump::BinaryReader::default()),
        }
    }
}

impl DumpFormat {
    /// Returns a writer that has written nothing yet.
    pub(crate) fn writer(self) -> Box<dyn WriteRecords> {
        match self {
            Self::Hex => Box::new(hex::Writer::default()),
            Self::Tsv => Box::new(tsv::Writer),
            Self::Cdb => Box::new(cdb::Writer),
            Self::Bytevalue => Box::new(db_dump::Writer::bytevalue()),
            Self::Print => Box::new(db_dump::Writer::print()),
            Self::Mdb => Box::new(db_dump::Writer::lmdb()),
            Self::Jsonl => Box::new(jsonl::Writer::default()),
            Self::GdbmAscii => Box::new(gdbm_dump::AsciiWriter::default()),
            Self::GdbmBinary => Box::new(gdbm_dump::BinaryWriter),
        }
    }
}

/// Reads records from an input.
pub(crate) trait ReadRecords: Send {
    /// Replaces `record` with the next one, or returns false at the end.
    fn read(&mut self, input: &mut Input, record: &mut Record) -> Result<bool, ReadError>;
}

/// Writes records to an output.
pub(crate) trait WriteRecords {
    /// Writes the header, if the format has one.
    fn begin(&mut self, out: &mut dyn Write, contents: Contents) -> io::Result<()> {
        let _ = (out, contents);
        Ok(())
    }

    /// Writes one record; on `Unfit`, writes none of it.
    fn write(&mut self, out: &mut dyn Write, key: &[u8], value: &[u8]) -> Result<(), WriteError>;

    /// Writes the trailer, if the format has one.
    fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let _ = out;
        Ok(())
    }
}

/// What will be written, for the header of a format that states it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Contents {
    /// Records; a key with several values counts as many times.
    pub(crate) record_count: u64,
    /// Whether a key has several values.
    pub(crate) has_several_values: bool,
}

/// The place of an error in an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A line, counted from 1.
    Line(u64),
    /// A byte, counted from 0.
    Byte(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Byte(offset) => write!(f, "byte {offset}"),
        }
    }
}

/// Why no record could be read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The input is malformed.
    Malformed { place: Place, reason: String },
    /// The input could not be read.
    Io(io::Error),
}

impl ReadError {
    fn at_line(input: &Input, reason: impl Into<String>) -> Self {
        Self::Malformed { place: Place::Line(input.line()), reason: reason.into() }
    }
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Why a record was not written.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// The format cannot hold it.
    Unfit { reason: &'static str },
    /// The output refused it.
    Io(io::Error),
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
