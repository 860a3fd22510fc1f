//! `hex`: key and value in lower-case hex, separated by a space; `-` is an empty string.
//!
//! ```text
//! 616c706861 6f6e65
//! 65 -
//! ```
//!
//! One record per line, so `sort`, `diff` and `grep` work on it. The reader also accepts upper
//! case, and requires the last newline: without it the last value may be truncated.

use std::io::Write;

use crate::bytes::{decode_hex, push_hex};

use super::input::LineEnd;
use super::{Input, ReadError, ReadRecords, Record, WriteError, WriteRecords};

/// Reads `hex`.
#[derive(Default)]
pub(super) struct Reader {
    line: Vec<u8>,
}

impl ReadRecords for Reader {
    fn read(&mut self, input: &mut Input, record: &mut Record) -> Result<bool, ReadError> {
        record.clear();
        match input.read_line(&mut self.line)? {
            None => return Ok(false),
            Some(LineEnd::Newline) => {}
            Some(LineEnd::Input) => {
                let reason = "the line has no newline at its end: the input is cut short";
                return Err(ReadError::at_line(input, reason));
            }
        }
        let mut words = self.line.splitn(2, |byte| *byte == b' ');
        let (Some(key), Some(value)) = (words.next(), words.next()) else {
            let reason = "expected a key and a value in hex with one space between";
            return Err(ReadError::at_line(input, reason));
        };
        decode(key, &mut record.key)
            .map_err(|reason| ReadError::at_line(input, format!("key: {reason}")))?;
        decode(value, &mut record.value)
            .map_err(|reason| ReadError::at_line(input, format!("value: {reason}")))?;
        Ok(true)
    }
}

fn decode(word: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    match word {
        b"-" => Ok(()),
        b"" => Err("it is missing; an empty string is written `-`".to_string()),
        digits => decode_hex(digits, out).map_err(|reason| reason.to_string()),
    }
}

/// Returns whether `line` is a record of this format.
pub(super) fn is_record(line: &[u8]) -> bool {
    let is_word = |word: &[u8]| {
        let is_hex = word.len().is_multiple_of(2) && word.iter().all(u8::is_ascii_hexdigit);
        word == b"-" || (!word.is_empty() && is_hex)
    };
    let mut words = line.splitn(2, |byte| *byte == b' ');
    words.next().is_some_and(is_word) && words.next().is_some_and(is_word)
}

/// Writes `hex`.
#[derive(Default)]
pub(super) struct Writer {
    line: Vec<u8>,
}

impl WriteRecords for Writer {
    fn write(&mut self, out: &mut dyn Write, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        self.line.clear();
        push_word(&mut self.line, key);
        self.line.push(b' ');
        push_word(&mut self.line, value);
        self.line.push(b'\n');
        Ok(out.write_all(&self.line)?)
    }
}

fn push_word(line: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.is_empty() {
        line.push(b'-');
    } else {
        push_hex(line, bytes);
    }
}
