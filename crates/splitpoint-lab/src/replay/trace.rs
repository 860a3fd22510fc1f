//! Traces: what programs asked of the kernel's caches, one event a line.
//!
//! ```text
//! # kernel cache trace 1
//! # name usr
//! # dev 1 ext4 4096
//! L 1 2 11 usr
//! G 1 13 0 4 x2
//! ```
//!
//! | event | fields | meaning |
//! |---|---|---|
//! | L | dev dir ino name | a component of a path was looked up; inode 0: there is none |
//! | C | dev dir ino name | the name was created |
//! | U | dev dir ino name | unlinked |
//! | R | dev dir ino name dev2 dir2 name2 | renamed |
//! | E | dev ino | the inode was freed |
//! | G, M, F, W | dev ino first count | pages read, mapped around a fault, faulted, written: looked up |
//! | A | dev ino first count | pages added without a lookup |
//! | X | dev ino first count | pages removed |
//! | B, D | dev bytes block | buffer looked up; marked dirty |
//!
//! `xN` at the end of a line stands for the line N times in a row. In names, bytes outside
//! `0x21..=0x7e` and `%` are written `%xx`.

use std::io::{BufRead, Read as _};

use super::TraceError;

/// The first line of every trace.
pub const FIRST_LINE: &str = "# kernel cache trace 1";
/// Most pages that one event may name.
pub const PAGES_MAX: u64 = 1 << 20;
/// Most times that one line may be repeated.
pub const REPEATS_MAX: u64 = 1 << 32;
/// Longest name of a directory entry in bytes, as in Linux.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest line: a rename with two names, every byte of them escaped, and its numbers.
const LINE_BYTES_MAX: u64 = 4096;

/// An inode: the number of its device and its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeNumber {
    /// Device, from 0; the kernel's number is 0x800 more.
    pub device: u32,
    /// Inode number; never 0.
    pub number: u64,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The directory.
    pub directory: InodeNumber,
    /// The name: 1 to 255 bytes.
    pub name: Vec<u8>,
}

/// What happened to pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageUse {
    /// Looked up: G, M, F and W.
    Lookup,
    /// Added without a lookup: A.
    Add,
    /// Removed: X.
    Remove,
}

/// A line of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A name was looked up; the inode that was found, or `None`.
    Lookup(Entry, Option<InodeNumber>),
    /// A name was created for an inode.
    Create(Entry, InodeNumber),
    /// A name was removed.
    Unlink(Entry),
    /// A name became another one.
    Rename(Entry, Entry),
    /// An inode was freed.
    Free(InodeNumber),
    /// Pages `first..first + count` of a file.
    Pages {
        /// What happened to them.
        usage: PageUse,
        /// The file.
        owner: InodeNumber,
        /// The first page.
        first: u64,
        /// How many: 1 to [`PAGES_MAX`].
        count: u64,
    },
    /// A buffer was looked up, or marked dirty.
    Buffer {
        /// Device.
        device: u32,
        /// Number of the block.
        block: u64,
        /// Marked dirty.
        is_dirty: bool,
    },
}

/// Reads a trace, line by line, in memory of one line.
#[derive(Debug)]
pub struct Trace<R> {
    input: R,
    line: Vec<u8>,
    line_number: u64,
    name: String,
}

impl<R: BufRead> Trace<R> {
    /// Begins to read `input`, which has been decompressed.
    ///
    /// # Errors
    ///
    /// [`TraceError`] if it does not start as a trace does.
    pub fn new(input: R) -> Result<Self, TraceError> {
        let mut trace = Self { input, line: Vec::new(), line_number: 0, name: String::new() };
        if !trace.next_line()? || trace.line != FIRST_LINE.as_bytes() {
            return Err(trace.error(format!("no trace: the first line is not `{FIRST_LINE}`")));
        }
        Ok(trace)
    }

    /// Returns the name that the lines read so far give the trace.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of the line that was read last, from 1.
    pub fn line_number(&self) -> u64 {
        self.line_number
    }

    /// Returns the next event and how many times in a row it happened.
    ///
    /// # Errors
    ///
    /// [`TraceError`] with the number of a line that is no event, or if reading fails.
    pub fn next_event(&mut self) -> Result<Option<(Event, u64)>, TraceError> {
        while self.next_line()? {
            if let Some(comment) = self.line.strip_prefix(b"#") {
                if let Some(name) = comment.strip_prefix(b" name ") {
                    self.name = String::from_utf8_lossy(name).into_owned();
                }
            } else if !self.line.is_empty() {
                return match event(&self.line) {
                    Ok(event) => Ok(Some(event)),
                    Err(reason) => Err(self.error(reason)),
                };
            }
        }
        Ok(None)
    }

    /// Returns an error of the line that was read last.
    pub(crate) fn error(&self, reason: impl Into<String>) -> TraceError {
        TraceError { line_number: self.line_number, reason: reason.into(), is_unreadable: false }
    }

    /// Reads a line without its end, and returns whether there was one.
    fn next_line(&mut self) -> Result<bool, TraceError> {
        self.line.clear();
        self.line_number += 1;
        let limit = LINE_BYTES_MAX + 1;
        let read = self.input.by_ref().take(limit).read_until(b'\n', &mut self.line);
        let bytes = read.map_err(|error| TraceError {
            is_unreadable: true,
            ..self.error(format!("cannot be read: {error}"))
        })?;
        if self.line.pop_if(|byte| *byte == b'\n').is_none() && bytes as u64 == limit {
            return Err(self.error(format!("longer than {LINE_BYTES_MAX} bytes")));
        }
        Ok(bytes > 0)
    }
}

/// Parses a line that is no comment.
fn event(line: &[u8]) -> Result<(Event, u64), String> {
    let mut fields = Fields { rest: line };
    let letter = fields.next()?;
    let event = match letter {
        b"L" | b"C" | b"U" => {
            let device = fields.device()?;
            let directory = fields.inode(device)?;
            let number = fields.number()?;
            let found = (number != 0).then_some(InodeNumber { device, number });
            let entry = Entry { directory, name: fields.name()? };
            match (letter, found) {
                (b"L", found) => Event::Lookup(entry, found),
                (b"U", _) => Event::Unlink(entry),
                (_, Some(inode)) => Event::Create(entry, inode),
                (_, None) => return Err("a created name has inode 0".to_owned()),
            }
        }
        b"R" => {
            let device = fields.device()?;
            let directory = fields.inode(device)?;
            fields.number()?;
            let from = Entry { directory, name: fields.name()? };
            let device = fields.device()?;
            let directory = fields.inode(device)?;
            Event::Rename(from, Entry { directory, name: fields.name()? })
        }
        b"E" => {
            let device = fields.device()?;
            Event::Free(fields.inode(device)?)
        }
        b"G" | b"M" | b"F" | b"W" | b"A" | b"X" => {
            let usage = match letter {
                b"A" => PageUse::Add,
                b"X" => PageUse::Remove,
                _ => PageUse::Lookup,
            };
            let device = fields.device()?;
            let owner = fields.inode(device)?;
            let (first, count) = (fields.number()?, fields.number()?);
            if !(1..=PAGES_MAX).contains(&count) {
                return Err(format!("{count} pages: an event has 1 to {PAGES_MAX}"));
            }
            if first.checked_add(count).is_none_or(|end| end > 1 << 52) {
                return Err(format!("page {first} is behind the largest file"));
            }
            Event::Pages { usage, owner, first, count }
        }
        b"B" | b"D" => {
            let device = fields.device()?;
            fields.number()?;
            Event::Buffer { device, block: fields.number()?, is_dirty: letter == b"D" }
        }
        other => return Err(format!("no event is called `{}`", other.escape_ascii())),
    };
    Ok((event, fields.repeats()?))
}

/// The fields of a line, one space between them.
struct Fields<'line> {
    rest: &'line [u8],
}

impl<'line> Fields<'line> {
    fn next(&mut self) -> Result<&'line [u8], String> {
        let (field, rest) = match memchr::memchr(b' ', self.rest) {
            Some(at) => (&self.rest[..at], &self.rest[at + 1..]),
            None => (self.rest, &self.rest[self.rest.len()..]),
        };
        self.rest = rest;
        if field.is_empty() { Err("a field is missing".to_owned()) } else { Ok(field) }
    }

    fn number(&mut self) -> Result<u64, String> {
        decimal(self.next()?)
    }

    fn device(&mut self) -> Result<u32, String> {
        let device = self.number()?;
        // Minor numbers of Linux 2.2 have 8 bits.
        u8::try_from(device).map(u32::from).map_err(|_| format!("device {device}: at most 255"))
    }

    fn inode(&mut self, device: u32) -> Result<InodeNumber, String> {
        match self.number()? {
            0 => Err("inode 0 is none".to_owned()),
            number => Ok(InodeNumber { device, number }),
        }
    }

    fn name(&mut self) -> Result<Vec<u8>, String> {
        let field = self.next()?;
        let mut name = Vec::with_capacity(field.len());
        let mut bytes = field.iter().copied();
        while let Some(byte) = bytes.next() {
            name.push(match byte {
                b'%' => {
                    let digits = [bytes.next(), bytes.next()].map(|it| it.map(char::from));
                    match digits.map(|it| it.and_then(|digit| digit.to_digit(16))) {
                        [Some(high), Some(low)] => (high << 4 | low) as u8,
                        _ => return Err("a `%` in a name has no two hex digits".to_owned()),
                    }
                }
                byte => byte,
            });
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(format!("a name of {} bytes: at most {NAME_BYTES_MAX}", name.len()));
        }
        Ok(name)
    }

    /// Returns the `N` of `xN`, which ends the line, or 1.
    fn repeats(&mut self) -> Result<u64, String> {
        if self.rest.is_empty() {
            return Ok(1);
        }
        let field = self.next()?;
        let Some(digits) = field.strip_prefix(b"x").filter(|_| self.rest.is_empty()) else {
            return Err(format!("`{}` is a field too many", field.escape_ascii()));
        };
        match decimal(digits)? {
            0 => Err("a line is repeated 0 times".to_owned()),
            repeats if repeats > REPEATS_MAX => Err(format!("repeated {repeats} times")),
            repeats => Ok(repeats),
        }
    }
}

fn decimal(field: &[u8]) -> Result<u64, String> {
    let is_number = !field.is_empty() && field.iter().all(u8::is_ascii_digit);
    let digits = std::str::from_utf8(field).ok().filter(|_| is_number);
    digits
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| format!("`{}` is no decimal number of 64 bits", field.escape_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &str) -> Result<Vec<(Event, u64)>, TraceError> {
        let text = format!("{FIRST_LINE}\n{lines}");
        let mut trace = Trace::new(text.as_bytes())?;
        let mut events = Vec::new();
        while let Some(event) = trace.next_event()? {
            events.push(event);
        }
        Ok(events)
    }

    fn inode(number: u64) -> InodeNumber {
        InodeNumber { device: 1, number }
    }

    #[test]
    fn every_letter_is_read() {
        let entry = |name: &str| Entry { directory: inode(2), name: name.into() };
        let pages = |usage| Event::Pages { usage, owner: inode(13), first: 4, count: 2 };
        let buffer = |is_dirty| Event::Buffer { device: 1, block: 7, is_dirty };
        let lines = "# name t\nL 1 2 11 u%20%2fr\nL 1 2 0 a x3\nC 1 2 15 a\nU 1 2 15 a\n\
                     R 1 2 15 a 1 2 b\nE 1 15\nG 1 13 4 2 x2\nM 1 13 4 2\nF 1 13 4 2\nW 1 13 4 2\n\
                     A 1 13 4 2\nX 1 13 4 2\nB 1 1024 7\nD 1 1024 7 x9\n";
        let expected = vec![
            (Event::Lookup(entry("u /r"), Some(inode(11))), 1),
            (Event::Lookup(entry("a"), None), 3),
            (Event::Create(entry("a"), inode(15)), 1),
            (Event::Unlink(entry("a")), 1),
            (Event::Rename(entry("a"), entry("b")), 1),
            (Event::Free(inode(15)), 1),
            (pages(PageUse::Lookup), 2),
            (pages(PageUse::Lookup), 1),
            (pages(PageUse::Lookup), 1),
            (pages(PageUse::Lookup), 1),
            (pages(PageUse::Add), 1),
            (pages(PageUse::Remove), 1),
            (buffer(false), 1),
            (buffer(true), 9),
        ];
        assert_eq!(read(lines).unwrap(), expected);
    }

    #[test]
    fn a_bad_line_is_refused_with_its_number_and_the_reason() {
        for (line, reason) in [
            ("Q 1 2", "no event is called `Q`"),
            ("L 1 2 11", "a field is missing"),
            ("L 1 2 11 a b", "`b` is a field too many"),
            ("L 1 2 11 a x0", "a line is repeated 0 times"),
            ("L 1 2 11 a x9999999999", "repeated 9999999999 times"),
            ("L 1 0 11 a", "inode 0 is none"),
            ("C 1 2 0 a", "a created name has inode 0"),
            ("L 256 2 11 a", "device 256: at most 255"),
            ("L 1 2 11 a%2", "a `%` in a name has no two hex digits"),
            ("L 1 2 -1 a", "`-1` is no decimal number of 64 bits"),
            ("L 1 2 18446744073709551616 a", "`18446744073709551616` is no decimal number"),
            ("G 1 13 0 0", "0 pages: an event has 1 to 1048576"),
            ("G 1 13 0 1048577", "1048577 pages: an event has 1 to 1048576"),
            ("G 1 13 9223372036854775808 1", "page 9223372036854775808 is behind"),
            ("B 1 1024", "a field is missing"),
        ] {
            let error = read(&format!("E 1 15\n{line}\n")).unwrap_err();
            assert_eq!(error.line_number, 3, "{line}");
            assert!(error.reason.contains(reason), "{line}: {}", error.reason);
        }
        let long = format!("L 1 2 11 {}", "a".repeat(256));
        assert!(read(&long).unwrap_err().reason.contains("a name of 256 bytes"));
        let longer = format!("L 1 2 11 {}", "a".repeat(5000));
        assert!(read(&longer).unwrap_err().reason.contains("longer than 4096 bytes"));
    }

    #[test]
    fn a_file_that_is_no_trace_is_refused_at_its_first_line() {
        for text in ["", "hello\n", "# kernel cache trace 2\n"] {
            let error = Trace::new(text.as_bytes()).unwrap_err();
            assert_eq!(error.line_number, 1);
            assert!(error.reason.starts_with("no trace"), "{}", error.reason);
        }
    }
}
