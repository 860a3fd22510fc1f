//! `csv`: rows of comma-separated fields, quoted if necessary (RFC 4180); and `tsv` by columns.
//!
//! Two columns of each row are key and value. All rows must have as many fields as the first one: a
//! different count shows a missing quote or a truncated file.

use super::{Input, Place, ReadError, ReadRecords, Record};
use crate::number::{count, counted};

/// Some spreadsheets write this before the first field.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Which columns of a table are key and value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Columns {
    key: String,
    value: String,
    has_header: bool,
}

impl Columns {
    /// Parses `KEY,VALUE`, each a number from 1 or a name in the header.
    pub(crate) fn parse(text: Option<&str>, has_header: bool) -> Result<Self, String> {
        let (key, value) = match text {
            None => ("1", "2"),
            Some(text) => text.split_once(',').ok_or_else(|| {
                format!("--column takes two columns, KEY,VALUE, as in 1,2; found `{text}`")
            })?,
        };
        for column in [key, value] {
            if !has_header && number_of(column).is_none() {
                return Err(format!(
                    "there is no column `{column}` without a header: give its number, or use \
                     --header"
                ));
            }
        }
        Ok(Self { key: key.to_string(), value: value.to_string(), has_header })
    }
}

impl Default for Columns {
    fn default() -> Self {
        Self { key: "1".to_string(), value: "2".to_string(), has_header: false }
    }
}

/// Returns the index of a column given by its number, counted from 1.
fn number_of(column: &str) -> Option<usize> {
    column.parse::<usize>().ok()?.checked_sub(1)
}

fn malformed(line: u64, reason: impl Into<String>) -> ReadError {
    ReadError::Malformed { place: Place::Line(line), reason: reason.into() }
}

/// Reads `csv`, and `tsv` by columns.
pub(super) struct Reader {
    rows: csv_core::Reader,
    columns: Columns,
    /// The fields of a row, contiguous.
    fields: Vec<u8>,
    /// Where each field ends.
    ends: Vec<usize>,
    /// The number of fields, and the indices of key and value.
    shape: Option<Shape>,
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    field_count: usize,
    key: usize,
    value: usize,
}

impl Reader {
    /// Reads comma-separated values.
    pub(super) fn comma_separated(columns: Columns) -> Self {
        Self::new(csv_core::Reader::new(), columns)
    }

    /// Reads TAB-separated values without quotes.
    pub(super) fn tab_separated(columns: Columns) -> Self {
        let rows = csv_core::ReaderBuilder::new().delimiter(b'\t').quoting(false).build();
        Self::new(rows, columns)
    }

    fn new(rows: csv_core::Reader, columns: Columns) -> Self {
        Self { rows, columns, fields: vec![0; 4096], ends: vec![0; 64], shape: None }
    }

    /// Reads a row and returns its number of fields, or `None` at the end of the input.
    fn read_row(&mut self, input: &mut Input) -> Result<Option<usize>, ReadError> {
        use csv_core::ReadRecordResult::{End, InputEmpty, OutputEndsFull, OutputFull, Record};

        let line = self.skip_line_ends(input)?;
        let (mut bytes, mut count) = (0, 0);
        loop {
            let ahead = input.peek()?;
            // A newline after the end of the input ends its last row, unless a quote is open.
            let is_end = ahead.is_empty();
            let ahead = if is_end { b"\n" } else { ahead };
            let (result, taken, written, ended) =
                self.rows.read_record(ahead, &mut self.fields[bytes..], &mut self.ends[count..]);
            if !is_end {
                input.consume(taken);
            }
            bytes += written;
            count += ended;
            match result {
                InputEmpty if is_end && written > 0 => {
                    let reason = "a quote of the row that begins here is not closed";
                    return Err(malformed(line, reason));
                }
                InputEmpty if is_end => return Ok(None),
                InputEmpty => {}
                OutputFull => self.fields.resize(2 * self.fields.len(), 0),
                OutputEndsFull => self.ends.resize(2 * self.ends.len(), 0),
                Record => return Ok(Some(count)),
                End => return Ok(None),
            }
        }
    }

    /// Skips the end of the previous row and empty lines, and returns the line where the next row
    /// begins.
    fn skip_line_ends(&mut self, input: &mut Input) -> Result<u64, ReadError> {
        loop {
            match input.peek()?.first() {
                Some(b'\n') => self.rows.set_line(self.rows.line() + 1),
                Some(b'\r') => {}
                _ => return Ok(self.rows.line()),
            }
            input.consume(1);
        }
    }

    fn field(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.fields[start..self.ends[index]]
    }

    /// Finds the columns in the first row, which has `field_count` fields.
    fn find_columns(&self, field_count: usize) -> Result<Shape, String> {
        let find = |column: &str| {
            let is_named = |index: &usize| self.field(*index) == column.as_bytes();
            let named =
                if self.columns.has_header { (0..field_count).find(is_named) } else { None };
            let numbered = || number_of(column).filter(|index| *index < field_count);
            named.or_else(numbered).ok_or_else(|| {
                format!("there is no column `{column}` in the first row, of {field_count} columns")
            })
        };
        Ok(Shape { field_count, key: find(&self.columns.key)?, value: find(&self.columns.value)? })
    }
}

impl ReadRecords for Reader {
    fn read(&mut self, input: &mut Input, record: &mut Record) -> Result<bool, ReadError> {
        record.clear();
        if self.shape.is_none() && input.peek()?.starts_with(BYTE_ORDER_MARK) {
            input.consume(BYTE_ORDER_MARK.len());
        }
        loop {
            let line = self.skip_line_ends(input)?;
            let Some(field_count) = self.read_row(input)? else { return Ok(false) };
            let (shape, is_first) = match self.shape {
                Some(shape) => (shape, false),
                None => (self.find_columns(field_count).map_err(|why| malformed(line, why))?, true),
            };
            self.shape = Some(shape);
            if is_first && self.columns.has_header {
                continue;
            }
            if field_count != shape.field_count {
                let columns = counted(count(field_count), "column");
                let reason =
                    format!("a row of {columns}, where the first row has {}", shape.field_count);
                return Err(malformed(line, reason));
            }
            record.key.extend_from_slice(self.field(shape.key));
            record.value.extend_from_slice(self.field(shape.value));
            return Ok(true);
        }
    }
}
