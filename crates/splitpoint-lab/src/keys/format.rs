//! The format of keys in a file: what separates them, and what their text means.

use std::fmt;
use std::str::FromStr;

use crate::Error;
use crate::specimen::nearest;

/// A format of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFormat {
    /// Where one ends and the next begins.
    pub framing: Framing,
    /// What the bytes of each mean.
    pub encoding: Encoding,
}

/// Where one key ends and the next begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Framing {
    /// One key per line. Empty lines are not keys; a carriage return is part of the key.
    Lines,
    /// A NUL byte ends each key. An empty one is a key.
    Nul,
    /// The length comes first, as an integer.
    Prefixed(Integer),
    /// The length comes first, 7 bits a byte from the lowest on, with the high bit set in all bytes
    /// except the last: LEB128, as in protocol buffers.
    Varint,
    /// Integers of one width, which become keys in little-endian bytes.
    Integers(Integer),
    /// One column of a table of comma-separated values: RFC 4180.
    Csv(Column),
    /// One column of a table of values with TABs between them, without quotes.
    Tsv(Column),
}

/// An integer in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Integer {
    /// Its bytes, 1 to 8.
    pub width_bytes: u8,
    /// Whether the highest byte comes first.
    pub is_big_endian: bool,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name in the header, or its number, counted from 1.
    pub name: String,
    /// Whether the first row is a header. A name that is not a number implies one.
    pub has_header: bool,
}

/// What the bytes of a key mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Themselves.
    Bytes,
    /// Bytes in hex, of either case.
    Hex,
    /// Bytes in base64 of either alphabet, padded or not.
    Base64,
    /// An unsigned integer in decimal, which becomes a key of little-endian bytes.
    Decimal {
        /// Bytes of the key, 1 to 8.
        width_bytes: u8,
    },
}

/// Names of formats that take no number.
const PLAIN: [&str; 8] = ["lines", "nul", "hex", "base64", "decimal", "csv", "tsv", "varint"];

impl KeyFormat {
    /// Returns the format called `name`; the column of a table is `column`.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownFormat`] with the nearest name.
    pub fn by_name(name: &str, column: Column) -> Result<Self, Error> {
        let of = |framing, encoding| Ok(Self { framing, encoding });
        match name {
            "lines" => of(Framing::Lines, Encoding::Bytes),
            "nul" => of(Framing::Nul, Encoding::Bytes),
            "hex" => of(Framing::Lines, Encoding::Hex),
            "base64" => of(Framing::Lines, Encoding::Base64),
            "decimal" => of(Framing::Lines, Encoding::Decimal { width_bytes: 8 }),
            "csv" => of(Framing::Csv(column), Encoding::Bytes),
            "tsv" => of(Framing::Tsv(column), Encoding::Bytes),
            "varint" => of(Framing::Varint, Encoding::Bytes),
            _ => {
                let integer = |prefix: &str| Integer::parse(name.strip_prefix(prefix)?);
                if let Some(integer) = integer("u") {
                    return of(Framing::Integers(integer), Encoding::Bytes);
                }
                match integer("len") {
                    Some(length) if matches!(length.width_bytes, 1 | 2 | 4 | 8) => {
                        of(Framing::Prefixed(length), Encoding::Bytes)
                    }
                    _ => Err(Error::UnknownFormat {
                        name: name.to_owned(),
                        nearest: nearest(name, Self::names().iter().map(String::as_str)).to_owned(),
                    }),
                }
            }
        }
    }

    /// Returns the names of all formats.
    pub fn names() -> Vec<String> {
        let orders = |prefix: &str, bits: u32| {
            let is_byte = bits == 8;
            let endings = if is_byte { &[""][..] } else { &["", "-be"] };
            endings.iter().map(|end| format!("{prefix}{bits}{end}")).collect::<Vec<_>>()
        };
        let lengths = [8, 16, 32, 64].into_iter().flat_map(|bits| orders("len", bits));
        let integers = (8..=64).step_by(8).flat_map(|bits| orders("u", bits));
        PLAIN.map(str::to_owned).into_iter().chain(lengths).chain(integers).collect()
    }

    /// Returns the length of each key in bytes, if all keys have the same.
    pub fn width_bytes(&self) -> Option<u8> {
        match (&self.framing, self.encoding) {
            (_, Encoding::Decimal { width_bytes }) => Some(width_bytes),
            (Framing::Integers(integer), _) => Some(integer.width_bytes),
            _ => None,
        }
    }

    /// Returns whether keys are text, so that the user may choose its encoding.
    pub fn is_text(&self) -> bool {
        matches!(self.framing, Framing::Lines | Framing::Nul | Framing::Csv(_) | Framing::Tsv(_))
    }
}

impl Integer {
    /// Reads the bits and the byte order: `32`, `32-be`.
    fn parse(text: &str) -> Option<Self> {
        let (bits, is_big_endian) = match text.strip_suffix("-be") {
            Some(bits) => (bits, true),
            None => (text, false),
        };
        let width_bits: u8 = bits.parse().ok().filter(|bits| (8..=64).contains(bits))?;
        // One byte has no order, and a number has one spelling.
        let is_valid = width_bits.is_multiple_of(8)
            && !(width_bits == 8 && is_big_endian)
            && bits == width_bits.to_string();
        is_valid.then_some(Self { width_bytes: width_bits / 8, is_big_endian })
    }

    /// Returns the number in `bytes`, which must be as many as the width.
    pub(super) fn value(self, bytes: &[u8]) -> u64 {
        debug_assert_eq!(bytes.len(), usize::from(self.width_bytes));
        let shift_in = |value: u64, &byte: &u8| value << 8 | u64::from(byte);
        if self.is_big_endian {
            bytes.iter().fold(0, shift_in)
        } else {
            bytes.iter().rev().fold(0, shift_in)
        }
    }
}

impl FromStr for Encoding {
    type Err = Error;

    /// Reads `bytes`, `hex`, `base64` or the integer that a decimal number becomes, `u8` to `u64`.
    fn from_str(name: &str) -> Result<Self, Error> {
        match name {
            "bytes" => Ok(Self::Bytes),
            "hex" => Ok(Self::Hex),
            "base64" => Ok(Self::Base64),
            _ => {
                let integer = name.strip_prefix('u').and_then(Integer::parse);
                if let Some(Integer { width_bytes, is_big_endian: false }) = integer {
                    return Ok(Self::Decimal { width_bytes });
                }
                let known = ["bytes", "hex", "base64", "u8", "u16", "u32", "u64"];
                let nearest = nearest(name, known.into_iter()).to_owned();
                Err(Error::UnknownFormat { name: name.to_owned(), nearest })
            }
        }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes => f.write_str("bytes"),
            Self::Hex => f.write_str("hex"),
            Self::Base64 => f.write_str("base64"),
            Self::Decimal { width_bytes } => write!(f, "u{}", 8 * width_bytes),
        }
    }
}

impl fmt::Display for KeyFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let integer = |f: &mut fmt::Formatter<'_>, prefix: &str, integer: Integer| {
            let order = if integer.is_big_endian { "-be" } else { "" };
            write!(f, "{prefix}{}{order}", 8 * integer.width_bytes)
        };
        match &self.framing {
            Framing::Lines => f.write_str("lines")?,
            Framing::Nul => f.write_str("nul")?,
            Framing::Varint => f.write_str("varint")?,
            Framing::Prefixed(length) => integer(f, "len", *length)?,
            Framing::Integers(width) => integer(f, "u", *width)?,
            Framing::Csv(column) => write!(f, "csv, column {}", column.name)?,
            Framing::Tsv(column) => write!(f, "tsv, column {}", column.name)?,
        }
        match self.encoding {
            Encoding::Bytes => Ok(()),
            encoding => write!(f, " as {encoding}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(name: &str) -> Result<KeyFormat, Error> {
        KeyFormat::by_name(name, Column { name: "1".to_owned(), has_header: false })
    }

    #[test]
    fn every_name_is_a_format_and_no_two_are_the_same() {
        let names = KeyFormat::names();
        let mut formats: Vec<KeyFormat> = Vec::new();
        for name in &names {
            let format = format(name).unwrap();
            assert!(!formats.contains(&format), "{name}");
            formats.push(format);
        }
        assert_eq!(formats.len(), 8 + 7 + 15);
    }

    #[test]
    fn an_unknown_name_gets_the_nearest() {
        for (name, expected) in [
            ("line", "lines"),
            ("u65", "u64"),
            ("len24", "len64"),
            ("CSV", "csv"),
            ("base46", "base64"),
        ] {
            match format(name).unwrap_err() {
                Error::UnknownFormat { nearest, .. } => {
                    assert!(nearest.starts_with(&expected[..2]), "{name}: {nearest}");
                }
                error => panic!("{name}: {error}"),
            }
        }
    }

    #[test]
    fn an_integer_has_its_order() {
        let value = |name: &str, bytes: &[u8]| Integer::parse(name).unwrap().value(bytes);
        assert_eq!(value("24", &[1, 2, 3]), 0x03_0201);
        assert_eq!(value("24-be", &[1, 2, 3]), 0x01_0203);
        assert_eq!(value("64", &[0xff; 8]), u64::MAX);
    }
}
