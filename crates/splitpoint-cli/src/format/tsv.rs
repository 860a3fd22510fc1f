//! `tsv`: key, TAB, value, newline; nothing is escaped.
//!
//! `cut`, `awk`, `sort` and spreadsheets read this format, and other stores export it. The first
//! TAB ends the key, so a value may hold TABs. There are no escapes, so a backslash in the data
//! comes through unchanged; instead, the writer refuses a record that does not fit.

use std::io::Write;

use super::{Input, ReadError, ReadRecords, Record, WriteError, WriteRecords};

/// Reads `tsv`.
#[derive(Default)]
pub(super) struct Reader {
    line: Vec<u8>,
}

impl ReadRecords for Reader {
    fn read(&mut self, input: &mut Input, record: &mut Record) -> Result<bool, ReadError> {
        record.clear();
        if input.read_line(&mut self.line)?.is_none() {
            return Ok(false);
        }
        let Some(tab) = self.line.iter().position(|byte| *byte == b'\t') else {
            return Err(ReadError::at_line(input, "no TAB between a key and a value"));
        };
        record.key.extend_from_slice(&self.line[..tab]);
        record.value.extend_from_slice(&self.line[tab + 1..]);
        Ok(true)
    }
}

/// Writes `tsv`.
pub(super) struct Writer;

impl WriteRecords for Writer {
    fn write(&mut self, out: &mut dyn Write, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        let reason = if key.contains(&b'\t') {
            Some("its key holds a TAB")
        } else if key.contains(&b'\n') {
            Some("its key holds a newline")
        } else if value.contains(&b'\n') {
            Some("its value holds a newline")
        } else {
            None
        };
        if let Some(reason) = reason {
            return Err(WriteError::Unfit { reason });
        }
        out.write_all(key)?;
        out.write_all(b"\t")?;
        out.write_all(value)?;
        Ok(out.write_all(b"\n")?)
    }
}
