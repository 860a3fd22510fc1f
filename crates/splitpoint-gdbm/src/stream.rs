//! Streams of C (`FILE *`) as Rust reads and writes them.

use std::io::{self, Read, Write};

/// A `FILE *` of the program.
#[derive(Debug)]
pub(crate) struct Stream(*mut libc::FILE);

impl Stream {
    /// Takes a stream for the duration of a call.
    ///
    /// # Safety
    ///
    /// The stream is open, and stays so as long as this value lives.
    pub(crate) unsafe fn new(stream: *mut libc::FILE) -> Self {
        Self(stream)
    }

    fn error() -> io::Error {
        let error = io::Error::last_os_error();
        if error.raw_os_error() == Some(0) { io::ErrorKind::Other.into() } else { error }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        // SAFETY: `new` was promised an open stream; the bytes are a slice.
        let count = unsafe { libc::fwrite(buf.as_ptr().cast(), 1, buf.len(), self.0) };
        if count == 0 && !buf.is_empty() { Err(Self::error()) } else { Ok(count) }
    }

    fn flush(&mut self) -> io::Result<()> {
        // SAFETY: `new` was promised an open stream.
        if unsafe { libc::fflush(self.0) } == 0 { Ok(()) } else { Err(Self::error()) }
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        // SAFETY: `new` was promised an open stream; the room is a slice.
        let count = unsafe { libc::fread(buf.as_mut_ptr().cast(), 1, buf.len(), self.0) };
        // SAFETY: as above.
        let is_failed = count == 0 && unsafe { libc::ferror(self.0) } != 0;
        if is_failed { Err(Self::error()) } else { Ok(count) }
    }
}
