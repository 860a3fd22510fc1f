//! An input that tracks its position: lines from 1, bytes from 0.

use std::io::{self, BufRead, BufReader, Read};

use super::{Place, ReadError};

/// How a line ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineEnd {
    /// With its newline, which is not part of the line.
    Newline,
    /// With the input.
    Input,
}

/// A source of records.
pub(crate) struct Input {
    reader: BufReader<Box<dyn Read + Send>>,
    line: u64,
    offset: u64,
}

/// Bytes to read ahead; `detect` sees at most this many.
const BUFFER_BYTES: usize = 256 << 10;

impl Input {
    /// Reads from `source`.
    pub(crate) fn new(source: Box<dyn Read + Send>) -> Self {
        Self { reader: BufReader::with_capacity(BUFFER_BYTES, source), line: 0, offset: 0 }
    }

    /// Returns the number of the last line read.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// Returns the number of bytes read so far.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns whether the next read may block.
    pub(crate) fn is_drained(&self) -> bool {
        self.reader.buffer().is_empty()
    }

    /// Returns the next bytes without consuming them; none at the end.
    pub(crate) fn peek(&mut self) -> io::Result<&[u8]> {
        loop {
            match self.reader.fill_buf() {
                Ok(_) => return Ok(self.reader.buffer()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Consumes bytes that [`peek`](Self::peek) returned.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.reader.consume(bytes);
        self.offset += crate::number::count(bytes);
    }

    /// Reads a line into `line`, whose content is replaced; `None` at the end of the input.
    pub(crate) fn read_line(&mut self, line: &mut Vec<u8>) -> io::Result<Option<LineEnd>> {
        line.clear();
        let taken = self.reader.read_until(b'\n', line)?;
        if taken == 0 {
            return Ok(None);
        }
        self.line += 1;
        self.offset += crate::number::count(taken);
        if line.last() == Some(&b'\n') {
            line.pop();
            return Ok(Some(LineEnd::Newline));
        }
        Ok(Some(LineEnd::Input))
    }

    /// Reads one byte; `what` names it in the error.
    pub(crate) fn read_byte(&mut self, what: &str) -> Result<u8, ReadError> {
        let mut byte = [0];
        match self.reader.read_exact(&mut byte) {
            Ok(()) => {
                self.offset += 1;
                Ok(byte[0])
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(self.cut_short(what)),
            Err(error) => Err(error.into()),
        }
    }

    /// Appends the next `len` bytes to `bytes`; `what` names them in the error.
    ///
    /// Memory grows as bytes arrive, so a false length costs nothing.
    pub(crate) fn read_bytes(
        &mut self,
        len: u64,
        what: &str,
        bytes: &mut Vec<u8>,
    ) -> Result<(), ReadError> {
        let taken = (&mut self.reader).take(len).read_to_end(bytes)?;
        let taken = crate::number::count(taken);
        self.offset += taken;
        if taken < len { Err(self.cut_short(what)) } else { Ok(()) }
    }

    fn cut_short(&self, what: &str) -> ReadError {
        let reason = format!("the input ends where {what} should be: it is cut short");
        ReadError::Malformed { place: Place::Byte(self.offset), reason }
    }
}
