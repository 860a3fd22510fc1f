//! `jsonl`: one JSON object per line.
//!
//! ```text
//! {"key":"alpha","value":"one"}
//! {"key_base64":"AP8=","value":"not UTF-8 before"}
//! {"key_hex":"00ff","value_hex":""}
//! ```
//!
//! The name of a field shows its encoding: `key` and `value` are UTF-8 text, `key_base64` and
//! `value_base64` hold other bytes (RFC 4648, padded), `key_hex` and `value_hex` are written on
//! request. Each field is encoded separately; the reader accepts any mixture.

use std::io::{self, Write};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::{Deserialize, Serialize};

use crate::bytes::{decode_hex, hex};

use super::{Input, ReadError, ReadRecords, Record, WriteError, WriteRecords};

/// The encoding of bytes in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum JsonEncoding {
    /// Text if they are UTF-8, otherwise base64.
    #[default]
    Text,
    /// In hex.
    Hex,
}

impl JsonEncoding {
    /// Returns the encoding that `--hex` selects.
    pub(crate) fn with_hex(is_hex: bool) -> Self {
        if is_hex { Self::Hex } else { Self::Text }
    }
}

/// One object: at most one field for the key and one for the value.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JsonRecord {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_hex: Option<String>,
}

impl JsonRecord {
    /// Returns an object with `key` alone.
    pub(crate) fn of_key(key: &[u8], encoding: JsonEncoding) -> Self {
        let mut object = Self::default();
        match (encoding, std::str::from_utf8(key)) {
            (JsonEncoding::Hex, _) => object.key_hex = Some(hex(key)),
            (JsonEncoding::Text, Ok(text)) => object.key = Some(text.to_string()),
            (JsonEncoding::Text, Err(_)) => object.key_base64 = Some(BASE64_STANDARD.encode(key)),
        }
        object
    }

    /// Returns an object with `key` and `value`.
    pub(crate) fn new(key: &[u8], value: &[u8], encoding: JsonEncoding) -> Self {
        let mut object = Self::of_key(key, encoding);
        match (encoding, std::str::from_utf8(value)) {
            (JsonEncoding::Hex, _) => object.value_hex = Some(hex(value)),
            (JsonEncoding::Text, Ok(text)) => object.value = Some(text.to_string()),
            (JsonEncoding::Text, Err(_)) => {
                object.value_base64 = Some(BASE64_STANDARD.encode(value));
            }
        }
        object
    }

    fn decode(self, record: &mut Record) -> Result<(), String> {
        decode_field("key", self.key, self.key_base64, self.key_hex, &mut record.key)?;
        decode_field("value", self.value, self.value_base64, self.value_hex, &mut record.value)
    }
}

fn decode_field(
    name: &str,
    text: Option<String>,
    base64: Option<String>,
    hex: Option<String>,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    match (text, base64, hex) {
        (Some(text), None, None) => {
            *out = text.into_bytes();
            Ok(())
        }
        (None, Some(base64), None) => BASE64_STANDARD
            .decode_vec(base64, out)
            .map_err(|reason| format!("`{name}_base64` is not base64: {reason}")),
        (None, None, Some(hex)) => decode_hex(hex.as_bytes(), out)
            .map_err(|reason| format!("`{name}_hex` is not hex: {reason}")),
        (None, None, None) => Err(format!("no field `{name}`, `{name}_base64` or `{name}_hex`")),
        _ => Err(format!("more than one of `{name}`, `{name}_base64` and `{name}_hex`")),
    }
}

/// Reads `jsonl`.
#[derive(Default)]
pub(super) struct Reader {
    line: Vec<u8>,
}

impl ReadRecords for Reader {
    fn read(&mut self, input: &mut Input, record: &mut Record) -> Result<bool, ReadError> {
        record.clear();
        loop {
            if input.read_line(&mut self.line)?.is_none() {
                return Ok(false);
            }
            if !self.line.trim_ascii().is_empty() {
                break;
            }
        }
        let object: JsonRecord = serde_json::from_slice(&self.line)
            .map_err(|error| ReadError::at_line(input, json_reason(&error)))?;
        object.decode(record).map_err(|reason| ReadError::at_line(input, reason))?;
        Ok(true)
    }
}

/// Returns serde's message with only the column, because its line is always 1.
fn json_reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&place) {
        Some(reason) => format!("{reason} at column {}", error.column()),
        None => text,
    }
}

/// Writes `jsonl`.
#[derive(Default)]
pub(super) struct Writer {
    line: Vec<u8>,
}

impl WriteRecords for Writer {
    fn write(&mut self, out: &mut dyn Write, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        self.line.clear();
        let object = JsonRecord::new(key, value, JsonEncoding::Text);
        serde_json::to_writer(&mut self.line, &object).map_err(io::Error::from)?;
        self.line.push(b'\n');
        Ok(out.write_all(&self.line)?)
    }
}
