//! Hashes that another program has computed: text in any radix, or integers.

use crate::bytes::shown;

/// The format of a file of hashes
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum HashFormat {
    /// One per line, in hex, with or without 0x
    Hex,
    /// One per line, in decimal; negative numbers are signed 64-bit integers
    Decimal,
    /// One per line, in octal, with or without 0o
    Octal,
    /// One per line, in binary, with or without 0b
    Binary,
    /// 4-byte integers, little-endian
    U32,
    /// 8-byte integers, little-endian
    U64,
    /// 4-byte integers, big-endian
    U32Be,
    /// 8-byte integers, big-endian
    U64Be,
}

impl HashFormat {
    /// Returns the bytes of a hash, if all have as many.
    pub(super) fn bytes(self) -> Option<u64> {
        match self {
            Self::U32 | Self::U32Be => Some(4),
            Self::U64 | Self::U64Be => Some(8),
            Self::Hex | Self::Decimal | Self::Octal | Self::Binary => None,
        }
    }
}

/// Reads hashes, without a format in the one that their digits show, and returns it too.
pub(super) fn read(
    bytes: &[u8],
    format: Option<HashFormat>,
) -> Result<(Vec<u64>, HashFormat), String> {
    let format = format.map_or_else(|| evident_format(bytes), Ok)?;
    Ok((parse(bytes, format)?, format))
}

/// Returns the format that the digits of hashes show.
///
/// Decimal numbers read as hex would give a wrong verdict without a warning, so digits that may be
/// either are refused.
fn evident_format(bytes: &[u8]) -> Result<HashFormat, String> {
    /// Digits of the largest number of 64 bits in hex.
    const HEX_DIGITS_MAX: usize = 16;
    let text = bytes.trim_ascii();
    if text.starts_with(b"0o") {
        return Ok(HashFormat::Octal);
    }
    // A number in binary with its prefix is one in hex without: 0b101 is 0xb101. Where all are so,
    // nobody means hex.
    let is_binary = |line: &[u8]| {
        let digits = line.strip_prefix(b"0b").unwrap_or_default();
        !digits.is_empty() && digits.iter().all(|byte| matches!(byte, b'0' | b'1'))
    };
    if lines_of(text).all(is_binary) && !text.is_empty() {
        return Ok(HashFormat::Binary);
    }
    let is_decimal =
        |byte: &u8| byte.is_ascii_digit() || *byte == b'-' || byte.is_ascii_whitespace();
    if text.is_empty() || !text.iter().all(is_decimal) {
        return Ok(HashFormat::Hex);
    }
    let is_too_long = |line: &[u8]| line.len() > HEX_DIGITS_MAX;
    if text.contains(&b'-') || lines_of(text).any(is_too_long) {
        return Ok(HashFormat::Decimal);
    }
    Err("its hashes have only the digits 0 to 9, so they may be hex or decimal".to_owned())
}

/// Returns the lines that are not empty, without the space around them.
fn lines_of(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty())
}

fn parse(bytes: &[u8], format: HashFormat) -> Result<Vec<u64>, String> {
    match format {
        HashFormat::Hex => lines(bytes, |text| in_radix(text, "0x", 16)),
        HashFormat::Octal => lines(bytes, |text| in_radix(text, "0o", 8)),
        HashFormat::Binary => lines(bytes, |text| in_radix(text, "0b", 2)),
        HashFormat::Decimal => {
            lines(bytes, |text| text.parse().or_else(|_| text.parse().map(i64::cast_unsigned)).ok())
        }
        HashFormat::U32 => integers(bytes, |part: [u8; 4]| u32::from_le_bytes(part).into()),
        HashFormat::U64 => integers(bytes, u64::from_le_bytes),
        HashFormat::U32Be => integers(bytes, |mut part: [u8; 4]| {
            part.reverse();
            u32::from_le_bytes(part).into()
        }),
        HashFormat::U64Be => integers(bytes, |mut part: [u8; 8]| {
            part.reverse();
            u64::from_le_bytes(part)
        }),
    }
}

/// Reads a number in `radix`, with or without its prefix.
fn in_radix(text: &str, prefix: &str, radix: u32) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let digits = text.strip_prefix(prefix).unwrap_or(&text);
    u64::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with('+'))
}

fn lines(bytes: &[u8], of: impl Fn(&str) -> Option<u64>) -> Result<Vec<u64>, String> {
    let mut hashes = Vec::new();
    for (number, line) in (1_u64..).zip(bytes.split(|&byte| byte == b'\n')) {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let hash = std::str::from_utf8(line).ok().and_then(&of);
        hashes.push(
            hash.ok_or_else(|| {
                format!("line {number}: `{}` is not a 64-bit integer", shown(line))
            })?,
        );
    }
    Ok(hashes)
}

fn integers<const N: usize>(bytes: &[u8], of: impl Fn([u8; N]) -> u64) -> Result<Vec<u64>, String> {
    let (parts, rest) = bytes.as_chunks::<N>();
    if !rest.is_empty() {
        let length = bytes.len();
        return Err(format!("{length} bytes are not a whole number of {N}-byte integers"));
    }
    Ok(parts.iter().copied().map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decimal numbers read as hex would give a wrong verdict without any warning.
    #[test]
    fn hashes_that_may_be_hex_or_decimal_are_not_guessed_at() {
        for bytes in [&b"0x10\n0x11\n"[..], b"00000010\n0000001f\n", b"\n"] {
            assert_eq!(evident_format(bytes), Ok(HashFormat::Hex));
        }
        for bytes in [&b"-1\n12\n"[..], b"12\n12345678901234567\n"] {
            assert_eq!(evident_format(bytes), Ok(HashFormat::Decimal));
        }
        assert_eq!(evident_format(b"0o17\n"), Ok(HashFormat::Octal));
        assert_eq!(evident_format(b"0b101\n\n0b11\r\n"), Ok(HashFormat::Binary));
        for bytes in [&b"0b101\n0b12\n"[..], b"0b101\n101\n", b"0b\n"] {
            assert_eq!(evident_format(bytes), Ok(HashFormat::Hex), "{bytes:?}");
        }
        assert!(evident_format(b"3735928559\n12\n").is_err());
    }

    #[test]
    fn hashes_are_read_in_every_form() {
        for (bytes, format, hashes) in [
            (&b"0xff\nFF\r\n\n 10 \n"[..], HashFormat::Hex, &[255, 255, 16][..]),
            (b"255\n-1\n18446744073709551615", HashFormat::Decimal, &[255, u64::MAX, u64::MAX]),
            (b"0o17\n20\n", HashFormat::Octal, &[15, 16]),
            (b"0b101\n11\n", HashFormat::Binary, &[5, 3]),
            (&[1, 0, 0, 0, 2, 0, 0, 0], HashFormat::U32, &[1, 2]),
            (&[1, 0, 0, 0, 2, 0, 0, 0], HashFormat::U64, &[0x2_0000_0001]),
            (&[0, 0, 0, 1], HashFormat::U32Be, &[1]),
            (&[0, 0, 0, 0, 0, 0, 1, 0], HashFormat::U64Be, &[256]),
            (b"", HashFormat::Hex, &[]),
        ] {
            assert_eq!(parse(bytes, format).as_deref(), Ok(hashes), "{format:?}");
        }
        for (bytes, format, error) in [
            (&b"1\nxyz\n"[..], HashFormat::Hex, "line 2: "),
            (b"12345678901234567", HashFormat::Hex, "line 1: "),
            (b"+5", HashFormat::Hex, "line 1: "),
            (b"ff", HashFormat::Decimal, "line 1: "),
            (b"12345", HashFormat::U32, "5 bytes are not a whole number of 4-byte"),
        ] {
            let found = parse(bytes, format).unwrap_err();
            assert!(found.starts_with(error), "{found}");
        }
    }
}
