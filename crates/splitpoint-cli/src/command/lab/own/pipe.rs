//! A pipe that a thread reads all the time: its writer never waits, and we never wait for ever.

use std::io::{self, Read};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// The bytes that come out of a pipe.
#[derive(Debug)]
pub(super) struct Pipe {
    parts: Receiver<io::Result<Vec<u8>>>,
    /// What was not taken yet of the last part.
    rest: io::Cursor<Vec<u8>>,
}

impl Pipe {
    /// Begins to read. `check` sees each part; after its error nothing more is read.
    pub(super) fn new(
        mut from: impl Read + Send + 'static,
        mut check: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
    ) -> Self {
        let (sender, parts) = mpsc::channel();
        thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            loop {
                let part = match from.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(length) => check(&buffer[..length]).map(|()| buffer[..length].to_vec()),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => Err(error),
                };
                let is_last = part.is_err();
                if sender.send(part).is_err() || is_last {
                    break;
                }
            }
        });
        Self { parts, rest: io::Cursor::default() }
    }

    /// Returns the next bytes, none at the end of the pipe. If none come for this long, the kind of
    /// the error is [`TimedOut`](io::ErrorKind::TimedOut).
    pub(super) fn part(&mut self, limit: Duration) -> io::Result<Vec<u8>> {
        match self.parts.recv_timeout(limit) {
            Ok(part) => part,
            Err(RecvTimeoutError::Disconnected) => Ok(Vec::new()),
            Err(RecvTimeoutError::Timeout) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Fills `bytes`, and waits this long for each part of them.
    pub(super) fn fill(&mut self, bytes: &mut [u8], limit: Duration) -> io::Result<()> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.rest.read(&mut bytes[filled..])? {
                0 => self.rest = io::Cursor::new(self.part(limit)?),
                length => filled += length,
            }
            if self.rest.get_ref().is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: Duration = Duration::from_secs(3600);

    #[test]
    fn parts_are_joined_and_the_end_is_an_error_where_more_is_needed() {
        let mut pipe = Pipe::new(io::Cursor::new(b"abcde").chain(&b"fg"[..]), |_| Ok(()));
        let mut bytes = [0; 3];
        pipe.fill(&mut bytes, NEVER).unwrap();
        assert_eq!(&bytes, b"abc");
        pipe.fill(&mut bytes, NEVER).unwrap();
        assert_eq!(&bytes, b"def");
        let end = pipe.fill(&mut bytes, NEVER).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_writer_that_is_silent_or_says_too_much_is_not_waited_for() {
        let (reader, _writer) = io::pipe().unwrap();
        let silent = Pipe::new(reader, |_| Ok(())).part(Duration::from_millis(1));
        assert_eq!(silent.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let too_much = |_: &[u8]| Err(io::Error::other("too much"));
        let mut endless = Pipe::new(io::repeat(1), too_much);
        assert_eq!(endless.part(NEVER).unwrap_err().to_string(), "too much");
        assert!(endless.part(NEVER).unwrap().is_empty(), "the end");
    }
}
