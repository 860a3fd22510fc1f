//! What the text of a key means: itself, hex, base64 or a decimal number.

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::Encoding;

/// Appends to `out` the bytes that `text` means, or says why it means none.
pub(super) fn decode(encoding: Encoding, text: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    match encoding {
        Encoding::Bytes => {
            out.extend_from_slice(text);
            Ok(())
        }
        Encoding::Hex => decode_hex(text.trim_ascii(), out),
        Encoding::Base64 => decode_base64(text.trim_ascii(), out),
        Encoding::Decimal { width_bytes } => {
            let number = decode_decimal(text.trim_ascii(), width_bytes)?;
            out.extend_from_slice(&number.to_le_bytes()[..usize::from(width_bytes)]);
            Ok(())
        }
    }
}

fn decode_hex(digits: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    if let Some(column) = digits.iter().position(|&digit| value(digit).is_none()) {
        let found = digits[column].escape_ascii();
        return Err(format!("`{found}` at column {} is not a hex digit", column + 1));
    }
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(format!("{} hex digits do not make whole bytes", digits.len()));
    }
    let byte = |&[high, low]: &[u8; 2]| Some(value(high)? << 4 | value(low)?);
    out.extend(pairs.iter().filter_map(byte));
    Ok(())
}

fn decode_base64(text: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    const ANY_PADDING: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    const PLAIN: GeneralPurpose = GeneralPurpose::new(&STANDARD, ANY_PADDING);
    const FOR_URLS: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, ANY_PADDING);
    let is_for_urls = text.iter().any(|byte| matches!(byte, b'-' | b'_'));
    let engine = if is_for_urls { FOR_URLS } else { PLAIN };
    engine.decode_vec(text, out).map_err(|error| format!("no base64: {error}"))
}

fn decode_decimal(text: &[u8], width_bytes: u8) -> Result<u64, String> {
    let number: Option<u64> = std::str::from_utf8(text)
        .ok()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|text| text.parse().ok());
    let limit = u64::MAX >> (64 - 8 * u32::from(width_bytes));
    match number {
        Some(number) if number <= limit => Ok(number),
        _ => {
            let shown: String = text.escape_ascii().take(40).map(char::from).collect();
            Err(format!("`{shown}` is not a number from 0 to {limit}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(encoding: &str, text: &str, expected: Result<&[u8], &str>) {
        let mut out = Vec::new();
        let decoded =
            decode(encoding.parse().unwrap(), text.as_bytes(), &mut out).map(|()| &out[..]);
        assert_eq!(decoded.as_ref().map_err(String::as_str), expected.as_ref().map_err(|e| *e));
    }

    #[test]
    fn hex_is_decoded_or_refused_with_its_column() {
        check("hex", " 00fF\r", Ok(&[0, 0xff]));
        check("hex", "0g", Err("`g` at column 2 is not a hex digit"));
        check("hex", "123", Err("3 hex digits do not make whole bytes"));
    }

    #[test]
    fn base64_takes_both_alphabets_and_any_padding() {
        for text in ["+/8=", "+/8", "-_8", "-_8=\r"] {
            check("base64", text, Ok(&[0xfb, 0xff]));
        }
        check("base64", "a*", Err("no base64: Invalid symbol 42, offset 1."));
    }

    #[test]
    fn decimal_numbers_become_little_endian_bytes() {
        check("u32", "258\r", Ok(&[2, 1, 0, 0]));
        check("u64", "18446744073709551615", Ok(&[0xff; 8]));
        check("u8", "256", Err("`256` is not a number from 0 to 255"));
        check("u32", "-1", Err("`-1` is not a number from 0 to 4294967295"));
        check("u32", "+1", Err("`+1` is not a number from 0 to 4294967295"));
        check(
            "u64",
            "18446744073709551616",
            Err("`18446744073709551616` is not a number from 0 to 18446744073709551615"),
        );
    }
}
