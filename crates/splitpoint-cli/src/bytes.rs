//! Keys and values as the user gives and sees them: raw bytes, hex, or escaped text.

use std::ffi::OsStr;
use std::io::{self, Write};

pub(crate) use splitpoint_lab::keys::{escaped, shown};

use crate::failure::{Exit, Failure, Result};

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Appends `bytes` to `out` in lower-case hex.
pub(crate) fn push_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(2 * bytes.len());
    for byte in bytes {
        out.push(HEX_DIGITS[usize::from(byte >> 4)]);
        out.push(HEX_DIGITS[usize::from(byte & 15)]);
    }
}

/// Returns `bytes` in lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut out, byte| {
        out.push(char::from(HEX_DIGITS[usize::from(byte >> 4)]));
        out.push(char::from(HEX_DIGITS[usize::from(byte & 15)]));
        out
    })
}

/// Why a string is not hex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotHex {
    /// A byte, counted from 1, that is not a hex digit.
    Digit { column: usize, found: u8 },
    /// Half a byte is left over.
    OddLength { digits: usize },
}

impl std::fmt::Display for NotHex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Digit { column, found } => {
                write!(f, "`{}` at column {column} is not a hex digit", found.escape_ascii())
            }
            Self::OddLength { digits: 1 } => f.write_str("1 hex digit does not make a whole byte"),
            Self::OddLength { digits } => {
                write!(f, "{digits} hex digits do not make whole bytes")
            }
        }
    }
}

/// Decodes `digits`, hex of either case, and appends the bytes to `out`.
pub(crate) fn decode_hex(digits: &[u8], out: &mut Vec<u8>) -> Result<(), NotHex> {
    for (index, digit) in digits.iter().enumerate() {
        if !digit.is_ascii_hexdigit() {
            return Err(NotHex::Digit { column: index + 1, found: *digit });
        }
    }
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(NotHex::OddLength { digits: digits.len() });
    }
    out.extend(pairs.iter().map(|[high, low]| hex_value(*high) << 4 | hex_value(*low)));
    Ok(())
}

/// Returns the value of a valid hex digit.
pub(crate) fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

/// The notation of keys and values on the command line and in output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notation {
    Raw,
    Hex,
}

impl Notation {
    /// Returns the notation that `--hex` selects.
    pub(crate) fn with_hex(is_hex: bool) -> Self {
        if is_hex { Self::Hex } else { Self::Raw }
    }

    /// Decodes an argument; `what` names it in the error.
    pub(crate) fn parse(self, what: &str, argument: &OsStr) -> Result<Vec<u8>> {
        self.decode(what, argument.as_encoded_bytes().to_vec())
    }

    /// Decodes `given`; `what` names it in the error.
    pub(crate) fn decode(self, what: &str, given: Vec<u8>) -> Result<Vec<u8>> {
        if self == Self::Raw {
            return Ok(given);
        }
        let mut bytes = Vec::new();
        match decode_hex(given.trim_ascii(), &mut bytes) {
            Ok(()) => Ok(bytes),
            Err(reason) => {
                let shown = shown(&given);
                Err(Failure::new(Exit::Usage, format!("the {what} `{shown}` is not hex: {reason}"))
                    .hint("with --hex, keys and values are given in hex: `68617368` is `hash`"))
            }
        }
    }

    /// Writes `bytes` to `out` in this notation.
    pub(crate) fn write(self, out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Raw => out.write_all(bytes),
            Self::Hex => {
                let mut digits = Vec::new();
                push_hex(&mut digits, bytes);
                out.write_all(&digits)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hex_says_which_digit_is_wrong() {
        let mut out = Vec::new();
        assert_eq!(decode_hex(b"0Aff", &mut out), Ok(()));
        assert_eq!(out, [0x0a, 0xff]);
        assert_eq!(decode_hex(b"0g", &mut out), Err(NotHex::Digit { column: 2, found: b'g' }));
        assert_eq!(decode_hex(b"abc", &mut out), Err(NotHex::OddLength { digits: 3 }));
    }

    proptest! {
        #[test]
        fn hex_comes_back(bytes: Vec<u8>) {
            let mut digits = Vec::new();
            push_hex(&mut digits, &bytes);
            let text = hex(&bytes);
            prop_assert_eq!(text.as_bytes(), &digits[..]);
            let mut back = Vec::new();
            prop_assert_eq!(decode_hex(&digits, &mut back), Ok(()));
            prop_assert_eq!(back, bytes);
        }
    }
}
