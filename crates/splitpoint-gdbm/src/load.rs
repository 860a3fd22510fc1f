//! Loads: the pairs of a dump go into a database: of either format of gdbm, or of Berkeley DB's `db_dump`.

use std::ffi::CString;
use std::fs::Permissions;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, fchown};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use splitpoint::PutMode;

use crate::code::{Code, Failure, Outcome};
use crate::database::{Database, Request};
use crate::{dump, flags};

/// Longest line of text that is kept, in bytes: names of files are shorter.
const LINE_BYTES_MAX: usize = 16 << 10;
/// Bytes that are made room for before they have been read: a size may be wrong.
const ROOM_BYTES_MAX: usize = 1 << 20;

/// Permissions of a new file until it has those of the dump: nobody else may read it earlier.
const MODE: libc::mode_t = 0o600;

/// What a program asks of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wishes {
    pub(crate) mode: PutMode,
    /// Of [`flags::META_MASK_MODE`] and the other: what is not restored.
    pub(crate) meta_mask: i32,
}

/// A load as far as it is.
#[derive(Debug)]
pub(crate) struct Load<R> {
    input: Lines<R>,
    wishes: Wishes,
}

/// What went wrong, and the line of it, of text.
pub(crate) type LoadFailure = (Failure, u64);

/// The header of a dump in text.
#[derive(Debug, Default)]
struct Header {
    file: Option<CString>,
    user: Option<CString>,
    uid: Option<u32>,
    group: Option<CString>,
    gid: Option<u32>,
    mode: Option<u32>,
    counts_syncs: bool,
}

impl<R: Read> Load<R> {
    pub(crate) fn new(input: R, wishes: Wishes) -> Self {
        Self { input: Lines { input, pending: None, line: 0, ahead: None }, wishes }
    }

    /// Loads a dump of any format into a database; without one, into the one that the dump names,
    /// which becomes `opened`.
    pub(crate) fn run(
        &mut self,
        database: Option<&mut Database>,
        opened: &mut Option<Database>,
    ) -> Result<(), LoadFailure> {
        let loaded = self.load(database, opened);
        loaded.map_err(|failure| (failure, self.input.line))
    }

    fn load(
        &mut self,
        database: Option<&mut Database>,
        opened: &mut Option<Database>,
    ) -> Outcome<()> {
        let nameless = || Failure::of(Code::NO_DBNAME);
        match self.input.peek()? {
            Some(b'!') => return self.load_flat(database.ok_or_else(nameless)?).map(drop),
            Some(b'V') => return self.load_berkeley(database.ok_or_else(nameless)?),
            _ => {}
        }
        let header = self.read_header()?;
        let database = match database {
            Some(database) => database,
            None => opened.insert(open(&header, self.wishes)?),
        };
        if header.counts_syncs && database.head.sync_count.is_none() && database.is_writer {
            let head = crate::head::Head { sync_count: Some(0), ..database.head };
            database.set_head(head)?;
        }
        self.load_text(database)?;
        restore(database, &header, self.wishes.meta_mask)
    }

    fn load_text(&mut self, database: &mut Database) -> Outcome<()> {
        let mut count: u64 = 0;
        loop {
            let line = self.stated()?;
            if let Some(stated) = line.strip_prefix(b"#:count=") {
                return if number(stated) == Some(count) { Ok(()) } else { Err(malformed()) };
            }
            let key = self.datum(&line)?;
            let line = self.stated()?;
            let value = self.datum(&line)?;
            database.store(&key, &value, self.wishes.mode)?;
            count += 1;
        }
    }

    /// Returns the next line that is no comment.
    fn stated(&mut self) -> Outcome<Vec<u8>> {
        loop {
            let line = self.input.some_line()?;
            if line.starts_with(b"#:") || !line.starts_with(b"#") {
                return Ok(line);
            }
        }
    }

    /// Reads the datum that such a line begins.
    fn datum(&mut self, line: &[u8]) -> Outcome<Vec<u8>> {
        let len = stated_len(line).and_then(number).ok_or_else(malformed)?;
        let len = usize::try_from(len).ok().filter(|&len| i32::try_from(len).is_ok());
        let len = len.ok_or_else(malformed)?;
        let mut bytes = Vec::with_capacity(len.min(ROOM_BYTES_MAX));
        // Characters of which the next line may have the rest.
        let mut rest: Vec<u8> = Vec::new();
        while bytes.len() < len {
            let line = self.input.some_line()?;
            if line.starts_with(b"#") && !rest.is_empty() {
                // The line before is the wrong one.
                self.input.push_back(line);
                return Err(malformed());
            }
            if line.is_empty() {
                return Err(malformed());
            }
            rest.extend_from_slice(&line);
            let whole = rest.len() / 4 * 4;
            STANDARD.decode_vec(&rest[..whole], &mut bytes).map_err(|_| malformed())?;
            rest.drain(..whole);
        }
        if rest.is_empty() && bytes.len() == len { Ok(bytes) } else { Err(malformed()) }
    }

    /// Reads the lines before the first datum.
    fn read_header(&mut self) -> Outcome<Header> {
        let mut header = Header::default();
        loop {
            let line = self.input.some_line()?;
            if stated_len(&line).is_some() || line.starts_with(b"#:count=") {
                self.input.push_back(line);
                return Ok(header);
            }
            if line.starts_with(b"#:") {
                header.take(&line)?;
            } else if !line.starts_with(b"#") {
                return Err(malformed());
            }
        }
    }

    /// Loads what `db_dump` of Berkeley DB writes: a header of lines, then each key and each value as a line of a
    /// space and two hexadecimal digits a byte.
    fn load_berkeley(&mut self, database: &mut Database) -> Outcome<()> {
        if self.input.some_line()? != b"VERSION=3" {
            return Err(malformed());
        }
        loop {
            match &*self.input.some_line()? {
                b"HEADER=END" => break,
                b"format=print" => return Err(malformed()),
                _ => {}
            }
        }
        while self.input.peek()? == Some(b' ') {
            let key = self.input.hexadecimal_line()?;
            if self.input.peek()?.is_some_and(|byte| byte != b' ') {
                return Err(malformed());
            }
            let value = self.input.hexadecimal_line()?;
            database.store(&key, &value, self.wishes.mode)?;
        }
        if self.input.some_line()? == b"DATA=END" { Ok(()) } else { Err(malformed()) }
    }

    /// Loads a dump in bytes, and returns the number of pairs.
    pub(crate) fn load_flat(&mut self, database: &mut Database) -> Outcome<u64> {
        if !database.is_writer {
            return Err(Failure::of(Code::READER_CANT_STORE));
        }
        let mut begin = [0; dump::FLAT_BEGIN.len()];
        self.input.exact(&mut begin)?;
        if begin != *dump::FLAT_BEGIN {
            return Err(Failure::of(Code::BAD_MAGIC_NUMBER));
        }
        // Its version, and an empty line.
        for _ in 0..2 {
            if !self.input.some_line()?.starts_with(b"!") {
                return Err(malformed());
            }
        }
        let mut count = 0;
        while self.input.peek()?.is_some() {
            let (key, value) = (self.sized()?, self.sized()?);
            database.store(&key, &value, self.wishes.mode)?;
            count += 1;
        }
        Ok(count)
    }

    fn sized(&mut self) -> Outcome<Vec<u8>> {
        let mut size = [0; 8];
        self.input.exact(&mut size)?;
        #[expect(clippy::big_endian_bytes, reason = "gdbm dumps sizes so")]
        let size = u64::from_be_bytes(size);
        let len = i32::try_from(size >> 32).ok().filter(|_| size & u64::from(u32::MAX) == 0);
        let len = len.and_then(|len| usize::try_from(len).ok()).ok_or_else(malformed)?;
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let start = bytes.len();
            bytes.resize(len.min(start + ROOM_BYTES_MAX), 0);
            self.input.exact(&mut bytes[start..])?;
        }
        Ok(bytes)
    }
}

impl Header {
    /// Takes the parameters of a line.
    fn take(&mut self, line: &[u8]) -> Outcome<()> {
        let text = |value: &[u8]| CString::new(value).map_err(|_| malformed());
        if let Some(name) = line.strip_prefix(b"#:file=").filter(|name| !name.starts_with(b"\"")) {
            // A name may have commas.
            self.file = Some(text(name)?);
            return Ok(());
        }
        for parameter in parameters(line) {
            let (name, value) = parameter.ok_or_else(malformed)?;
            let as_number = || number(value).and_then(|n| u32::try_from(n).ok());
            match name {
                b"file" => self.file = Some(text(value)?),
                b"user" => self.user = Some(text(value)?),
                b"uid" => self.uid = as_number(),
                b"group" => self.group = Some(text(value)?),
                b"gid" => self.gid = as_number(),
                b"mode" => {
                    let digits = std::str::from_utf8(value).ok();
                    self.mode = digits.and_then(|digits| u32::from_str_radix(digits, 8).ok());
                }
                b"format" => self.counts_syncs = value == b"numsync",
                // Versions to come.
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the owner and the group of the file: those of the names, if this machine has them.
    fn owners(&self) -> (Option<u32>, Option<u32>) {
        let user = self.user.as_deref().and_then(dump::user_number);
        let group = self.group.as_deref().and_then(dump::group_number);
        (user.or(self.uid), group.or(self.gid))
    }
}

/// Returns the parameters of a line `#:name=value,name="value"`; `None` in the place of what is none.
fn parameters(line: &[u8]) -> impl Iterator<Item = Option<(&[u8], &[u8])>> {
    let mut rest = line.strip_prefix(b"#:");
    std::iter::from_fn(move || {
        let text = rest.take()?.trim_ascii_start();
        let equals = text.iter().position(|&byte| byte == b'=');
        let Some(equals) = equals else { return (!text.is_empty()).then_some(None) };
        let (name, value) = (&text[..equals], &text[equals + 1..]);
        let quoted = value.strip_prefix(b"\"").and_then(|inside| {
            let end = inside.iter().position(|&byte| byte == b'"')?;
            Some((&inside[..end], &inside[end + 1..]))
        });
        let to_comma =
            |text: &[u8]| text.iter().position(|&byte| byte == b',').unwrap_or(text.len());
        let (value, after) = quoted.unwrap_or_else(|| value.split_at(to_comma(value)));
        rest = after.get(to_comma(after) + 1..);
        Some(Some((name, value)))
    })
}

/// Returns the size that the line of a datum states.
fn stated_len(line: &[u8]) -> Option<&[u8]> {
    let (_, value) = parameters(line).flatten().find(|(name, _)| *name == b"len")?;
    Some(value)
}

/// Opens the database that a dump names.
fn open(header: &Header, wishes: Wishes) -> Outcome<Database> {
    let name = header.file.clone().ok_or_else(|| Failure::of(Code::NO_DBNAME))?;
    let open = if wishes.mode == PutMode::Replace { flags::WRCREAT } else { flags::NEWDB };
    let numsync = if header.counts_syncs { flags::NUMSYNC } else { 0 };
    let request = Request { name, block_size: 0, flags: open | numsync, mode: MODE, fatal: None };
    request.open()
}

/// Gives the file of a database the owner and the mode that a dump has. Only root may give files away; of others
/// the owner is the user who loads.
fn restore(database: &Database, header: &Header, mask: i32) -> Outcome<()> {
    let file = database.open_file()?;
    if mask & flags::META_MASK_OWNER == 0 && dump::is_root() {
        let (user, group) = header.owners();
        if user.is_some() || group.is_some() {
            fchown(file.as_fd(), user, group)
                .map_err(|error| Failure::of_io(Code::ERR_FILE_OWNER, &error))?;
        }
    }
    if mask & flags::META_MASK_MODE == 0
        && let Some(mode) = header.mode
    {
        let permissions = Permissions::from_mode(mode & 0o777);
        file.set_permissions(permissions)
            .map_err(|error| Failure::of_io(Code::ERR_FILE_MODE, &error))?;
    }
    Ok(())
}

fn malformed() -> Failure {
    Failure::of(Code::MALFORMED_DATA)
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.trim().parse().ok()
}

/// Lines and bytes of an input that is read no further than needed.
#[derive(Debug)]
struct Lines<R> {
    input: R,
    /// A line that is to be read again.
    pending: Option<Vec<u8>>,
    /// The number of the last line.
    line: u64,
    /// A byte that was looked at.
    ahead: Option<u8>,
}

impl<R: Read> Lines<R> {
    fn byte(&mut self) -> Outcome<Option<u8>> {
        if let Some(byte) = self.ahead.take() {
            return Ok(Some(byte));
        }
        let mut byte = [0];
        loop {
            match self.input.read(&mut byte) {
                Ok(0) => return Ok(None),
                Ok(_) => return Ok(Some(byte[0])),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::of_io(Code::FILE_READ_ERROR, &error)),
            }
        }
    }

    fn peek(&mut self) -> Outcome<Option<u8>> {
        if self.ahead.is_none() {
            self.ahead = self.byte()?;
        }
        Ok(self.ahead)
    }

    fn exact(&mut self, buf: &mut [u8]) -> Outcome<()> {
        let ahead = if buf.is_empty() { None } else { self.ahead.take() };
        let start = usize::from(ahead.is_some());
        buf[..start].copy_from_slice(ahead.as_slice());
        self.input.read_exact(&mut buf[start..]).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Failure::of(Code::FILE_EOF),
            _ => Failure::of_io(Code::FILE_READ_ERROR, &error),
        })
    }

    /// Returns the next line without its end, or `None` at the end of the input.
    fn line(&mut self) -> Outcome<Option<Vec<u8>>> {
        self.line += 1;
        if let Some(line) = self.pending.take() {
            return Ok(Some(line));
        }
        let mut line = Vec::new();
        loop {
            match self.byte()? {
                None if line.is_empty() => return Ok(None),
                None | Some(b'\n') => break,
                Some(_) if line.len() == LINE_BYTES_MAX => return Err(malformed()),
                Some(byte) => line.push(byte),
            }
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(Some(line))
    }

    /// Returns the next line; that there is none is a failure.
    fn some_line(&mut self) -> Outcome<Vec<u8>> {
        self.line()?.ok_or_else(|| Failure::of(Code::FILE_EOF))
    }

    /// Reads a line of a space and two digits a byte, of any length.
    fn hexadecimal_line(&mut self) -> Outcome<Vec<u8>> {
        self.line += 1;
        let digit = |byte: Option<u8>| {
            let byte = byte.ok_or_else(|| Failure::of(Code::FILE_EOF))?;
            char::from(byte).to_digit(16).ok_or_else(malformed)
        };
        let mut bytes = Vec::new();
        if self.byte()?.ok_or_else(|| Failure::of(Code::FILE_EOF))? != b' ' {
            return Err(malformed());
        }
        loop {
            let high = match self.byte()? {
                Some(b'\n') => return Ok(bytes),
                byte => digit(byte)?,
            };
            let low = digit(self.byte()?)?;
            bytes.push((high << 4 | low) as u8);
        }
    }

    fn push_back(&mut self, line: Vec<u8>) {
        self.line -= 1;
        self.pending = Some(line);
    }
}
