//! Captures of what programs did, made into traces that a replay reads.
//!
//! ```text
//! strace -f -y -ttt -s 0 --> strace: calls --> paths: components of a tree --> TraceWriter
//! tracefs                --> tracefs: pages, buffers ----------------------> TraceWriter
//! ```
//!
//! A capture may come from another machine. Neither importer keeps what files contain.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead as _, Write};

pub mod files;
mod paths;
pub mod strace;
pub mod tracefs;

use crate::replay::trace::{FIRST_LINE, PAGES_MAX};

/// Most devices of a trace: the minor numbers of Linux 2.2 have 8 bits.
const DEVICES_MAX: usize = 255;
/// Longest line of a capture in bytes.
pub(crate) const LINE_BYTES_MAX: u64 = 1 << 20;

/// A capture that cannot be made into a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureError {
    /// Number of the line, from 1.
    pub line_number: u64,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line_number, self.reason)
    }
}

impl std::error::Error for CaptureError {}

/// What a trace says of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Type of its file system, or `unknown`.
    pub file_system: String,
    /// Bytes of a block.
    pub block_bytes: u64,
}

impl Default for DeviceFacts {
    fn default() -> Self {
        Self { file_system: "unknown".to_owned(), block_bytes: 4096 }
    }
}

/// A trace while it is written: equal lines that follow each other become one.
#[derive(Debug, Default)]
pub struct TraceWriter {
    devices: BTreeMap<u64, u32>,
    facts: Vec<DeviceFacts>,
    text: Vec<u8>,
    last: String,
    repeat_count: u64,
    counts: BTreeMap<char, u64>,
}

impl TraceWriter {
    /// Returns the number of a device in the trace, from 1; `facts` describe one that is new.
    pub(crate) fn device(
        &mut self,
        id: u64,
        facts: impl FnOnce() -> DeviceFacts,
    ) -> Result<u32, String> {
        if let Some(&number) = self.devices.get(&id) {
            return Ok(number);
        }
        if self.facts.len() == DEVICES_MAX {
            return Err(format!("more than {DEVICES_MAX} devices"));
        }
        self.facts.push(facts());
        let number = self.facts.len() as u32;
        self.devices.insert(id, number);
        Ok(number)
    }

    /// Adds an event.
    pub(crate) fn event(&mut self, line: String) {
        *self.counts.entry(line.chars().next().unwrap_or(' ')).or_default() += 1;
        if line == self.last {
            self.repeat_count += 1;
        } else {
            self.flush();
            (self.last, self.repeat_count) = (line, 1);
        }
    }

    /// Adds an event of pages, in parts if they are more than one event may have.
    pub(crate) fn pages(&mut self, letter: char, owner: &str, mut first: u64, mut count: u64) {
        while count > 0 {
            let part = count.min(PAGES_MAX);
            self.event(format!("{letter} {owner} {first} {part}"));
            (first, count) = (first.saturating_add(part), count - part);
        }
    }

    fn flush(&mut self) {
        self.text.extend(self.last.as_bytes());
        match self.repeat_count {
            0 => return,
            1 => {}
            count => self.text.extend(format!(" x{count}").as_bytes()),
        }
        self.text.push(b'\n');
    }

    /// Returns how many events of each letter there are.
    pub fn counts(&self) -> &BTreeMap<char, u64> {
        &self.counts
    }

    /// Writes the trace under this name, which must be one line.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write(mut self, name: &str, source: &str, mut out: impl Write) -> io::Result<()> {
        self.flush();
        writeln!(out, "{FIRST_LINE}\n# name {name}")?;
        for (number, DeviceFacts { file_system, block_bytes }) in (1..).zip(&self.facts) {
            writeln!(out, "# dev {number} {file_system} {block_bytes}")?;
        }
        writeln!(out, "# source {source}")?;
        out.write_all(&self.text)?;
        out.flush()
    }
}

/// Returns a name as traces have it: other bytes than visible ones, and `%`, as `%xx`.
pub(crate) fn escaped_name(name: &[u8]) -> String {
    use std::fmt::Write as _;
    name.iter().fold(String::new(), |mut out, &byte| {
        match byte {
            b'%' | 0..=0x20 | 0x7f.. => {
                let _ = write!(out, "%{byte:02x}");
            }
            visible => out.push(visible.into()),
        }
        out
    })
}

/// Reads a line without its end into `line`, and returns whether there was one.
pub(crate) fn next_line(
    input: &mut impl io::BufRead,
    line: &mut Vec<u8>,
    line_number: u64,
) -> Result<bool, CaptureError> {
    line.clear();
    let error = |reason: String| CaptureError { line_number, reason };
    let bytes = io::Read::take(&mut *input, LINE_BYTES_MAX)
        .read_until(b'\n', line)
        .map_err(|cause| error(format!("cannot be read: {cause}")))?;
    if line.pop_if(|byte| *byte == b'\n').is_none() && bytes as u64 == LINE_BYTES_MAX {
        return Err(error(format!("longer than {LINE_BYTES_MAX} bytes")));
    }
    Ok(bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{Shrink, Streams, Trace};

    #[test]
    fn what_is_written_is_a_trace_with_equal_lines_as_one() {
        let mut writer = TraceWriter::default();
        assert_eq!(writer.device(0x801, DeviceFacts::default), Ok(1));
        assert_eq!(writer.device(0x801, || unreachable!()), Ok(1));
        for _ in 0..3 {
            writer.event(format!("L 1 2 11 {}", escaped_name(b"a %\xff")));
        }
        writer.pages('G', "1 11", 0, PAGES_MAX + 2);
        assert_eq!(writer.counts().get(&'G'), Some(&2));
        let mut text = Vec::new();
        writer.write("t", "test", &mut text).unwrap();
        let expected = "# kernel cache trace 1\n# name t\n# dev 1 unknown 4096\n# source test\n\
                        L 1 2 11 a%20%25%ff x3\nG 1 11 0 1048576\nG 1 11 1048576 2\n";
        assert_eq!(String::from_utf8(text.clone()).unwrap(), expected);
        let streams = Streams::read(Trace::new(&text[..]).unwrap(), Shrink::None, |_| {}).unwrap();
        assert_eq!((streams.dentry.counts().hit_count, &*streams.names[0]), (2, &b"a %\xff"[..]));
    }

    #[test]
    fn more_devices_than_a_trace_has_are_refused() {
        let mut writer = TraceWriter::default();
        for id in 0..DEVICES_MAX as u64 {
            assert!(writer.device(id, DeviceFacts::default).is_ok());
        }
        assert!(writer.device(999, DeviceFacts::default).is_err());
    }
}
