//! Keys as text that is safe to show.

use std::fmt::Write as _;

/// Longest part of a key that is shown, in bytes.
const SHOWN_BYTES_MAX: usize = 60;

/// Returns a key as one short line of text that is safe on a terminal.
///
/// # Examples
///
/// ```
/// assert_eq!(splitpoint_lab::keys::shown(b"tab\there \xff"), "tab\\x09here \\xff");
/// ```
pub fn shown(key: &[u8]) -> String {
    let is_long = key.len() > SHOWN_BYTES_MAX;
    let mut out = escaped(if is_long { &key[..SHOWN_BYTES_MAX] } else { key }, "");
    if is_long {
        let _ = write!(out, "... ({} bytes)", key.len());
    }
    out
}

/// Returns `bytes` as text in which control characters outside `kept`, and bytes that are not
/// UTF-8, are shown as `\xNN`.
///
/// # Examples
///
/// ```
/// assert_eq!(splitpoint_lab::keys::escaped(b"a\tb\x1b\n", "\t"), "a\tb\\x1b\\x0a");
/// ```
pub fn escaped(bytes: &[u8], kept: &str) -> String {
    let mut out = String::with_capacity(bytes.len());
    let push_escaped = |out: &mut String, bytes: &[u8]| {
        for byte in bytes {
            let _ = write!(out, "\\x{byte:02x}");
        }
    };
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() && !kept.contains(character) {
                push_escaped(&mut out, character.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                out.push(character);
            }
        }
        push_escaped(&mut out, chunk.invalid());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_shown_on_one_line_without_control_characters() {
        assert_eq!(shown(b"plain"), "plain");
        assert_eq!(shown(b"a\x1b[31m\n\xff"), "a\\x1b[31m\\x0a\\xff");
        assert_eq!(shown("\u{e9}t\u{e9}\u{9b}".as_bytes()), "\u{e9}t\u{e9}\\xc2\\x9b");
        assert_eq!(shown(&[b'k'; 61]), format!("{}... (61 bytes)", "k".repeat(60)));
    }
}
