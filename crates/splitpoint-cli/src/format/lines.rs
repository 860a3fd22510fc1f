//! `lines`: each line is a key, its value is the number of the line in decimal.
//!
//! The format of word lists, and of the data in the 1991 paper. An empty line is the empty key; a
//! CR before the newline belongs to the key. There is no writer, because the format cannot hold
//! values.

use super::{Input, ReadError, ReadRecords, Record};

/// Reads `lines`.
pub(super) struct Reader;

impl ReadRecords for Reader {
    fn read(&mut self, input: &mut Input, record: &mut Record) -> Result<bool, ReadError> {
        record.clear();
        if input.read_line(&mut record.key)?.is_none() {
            return Ok(false);
        }
        record.value.extend_from_slice(input.line().to_string().as_bytes());
        Ok(true)
    }
}
