//! `UnnamedFile`: a temporary file without a name, which disappears with its last descriptor;
//! `UnnamedBytes`: an append-only sequence of bytes in one.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::failure::io_error;
use super::mapped::{Mapped, refuse_over_limit};
use super::own_file::OwnFile;
use crate::error::Result;
use crate::memory;

/// A file without a name.
#[derive(Debug)]
pub(crate) struct UnnamedFile {
    file: OwnFile,
    /// Where it was made, for messages.
    dir: PathBuf,
}

impl UnnamedFile {
    /// Creates an empty file in the folder for temporary files; `random` keeps its name from being
    /// guessed while it has one.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io).
    pub(crate) fn create(random: u64) -> Result<Self> {
        Self::create_in(std::env::temp_dir(), random)
    }

    /// Does so beside the file at `path`, where there is most likely room for as much, or in the folder
    /// for temporary files if no file can be made there.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io).
    pub(crate) fn create_beside(path: &Path, random: u64) -> Result<Self> {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let beside = Self::create_in(dir.unwrap_or(Path::new(".")).to_path_buf(), random);
        beside.or_else(|_| Self::create(random))
    }

    fn create_in(dir: PathBuf, random: u64) -> Result<Self> {
        // Some file systems make a file without a name, which a kill cannot leave.
        let flags = OFlags::TMPFILE.bits().cast_signed();
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).mode(0o600).custom_flags(flags).open(&dir);
        if let Ok(file) = file.and_then(OwnFile::unnamed) {
            return Ok(Self { file, dir });
        }
        let path = dir.join(format!("splitpoint-{random:016x}"));
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path);
        let file = file.and_then(|file| fs::remove_file(&path).map(|()| file));
        match file.and_then(OwnFile::unnamed) {
            Ok(file) => Ok(Self { file, dir }),
            Err(error) => Err(io_error("create a file in", &dir, error)),
        }
    }

    /// Maps the file.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io).
    pub(crate) fn map(&self) -> Result<Mapped> {
        let mapped = self
            .file
            .checked()
            .and_then(|file| Mapped::new(file.try_clone()?, self.dir.clone(), true));
        mapped.map_err(|error| io_error("map a file in", &self.dir, error))
    }

    /// Returns the size of the file in bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io).
    pub(crate) fn bytes(&self) -> Result<u64> {
        let metadata = self.file.checked().and_then(File::metadata);
        let metadata = metadata.map_err(|error| io_error("read the size of", &self.dir, error))?;
        Ok(metadata.len())
    }

    /// Fills `chunk` with what is at `offset`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io), also at the end of the file.
    pub(crate) fn read_at(&self, chunk: &mut [u8], offset: u64) -> Result<()> {
        let read = self.file.checked().and_then(|file| file.read_exact_at(chunk, offset));
        read.map_err(|error| io_error("read a file in", &self.dir, error))
    }
}

/// Bytes that are written together.
const TAIL_BYTES: usize = 1 << 16;

/// Bytes in a file without a name, which grow and shrink at the end.
#[derive(Debug)]
pub(crate) struct UnnamedBytes {
    file: UnnamedFile,
    written_bytes: u64,
    /// What comes behind them.
    tail: Vec<u8>,
}

impl UnnamedBytes {
    pub(crate) fn new(file: UnnamedFile) -> Self {
        Self { file, written_bytes: 0, tail: Vec::new() }
    }

    pub(crate) fn len(&self) -> u64 {
        self.written_bytes + self.tail.len() as u64
    }

    /// Appends bytes; returns where they are. After an error [`truncate`](Self::truncate) to the length
    /// before: a part may be there.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io).
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<u64> {
        let start = self.len();
        if self.tail.len() + bytes.len() > TAIL_BYTES {
            self.write(&self.tail, self.written_bytes)?;
            self.written_bytes += self.tail.len() as u64;
            self.tail.clear();
        }
        if bytes.len() > TAIL_BYTES {
            self.write(bytes, self.written_bytes)?;
            self.written_bytes += bytes.len() as u64;
        } else {
            self.tail.extend_from_slice(bytes);
        }
        Ok(start)
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let written = refuse_over_limit(offset + bytes.len() as u64)
            .and_then(|()| self.file.file.checked()?.write_all_at(bytes, offset));
        written.map_err(|error| io_error("write a file in", &self.file.dir, error))
    }

    /// Fills `chunk` with what is at `offset`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io).
    pub(crate) fn read_at(&self, chunk: &mut [u8], offset: u64) -> Result<()> {
        debug_assert!(offset + chunk.len() as u64 <= self.len());
        let in_file = self.written_bytes.saturating_sub(offset).min(chunk.len() as u64) as usize;
        let (first, rest) = chunk.split_at_mut(in_file);
        if !first.is_empty() {
            self.file.read_at(first, offset)?;
        }
        if !rest.is_empty() {
            let start = (offset + in_file as u64 - self.written_bytes) as usize;
            rest.copy_from_slice(&self.tail[start..start + rest.len()]);
        }
        Ok(())
    }

    /// Forgets all but the first bytes, and gives the room of the others back.
    pub(crate) fn truncate(&mut self, bytes: u64) {
        if let Some(kept) = bytes.checked_sub(self.written_bytes) {
            self.tail.truncate(kept as usize);
            return;
        }
        self.tail.clear();
        self.written_bytes = bytes;
        // If that fails, later writes reuse the space.
        let _ = self.file.file.checked().and_then(|file| file.set_len(bytes));
    }
}

/// Bytes that are read together.
const AHEAD_BYTES: u64 = 1 << 18;

/// Reads bytes in order, many at once: the two system calls of a read take longer than all else that is done with a
/// small part.
#[derive(Debug)]
pub(crate) struct Ahead<'a> {
    bytes: &'a UnnamedBytes,
    start: u64,
    window: Vec<u8>,
}

impl<'a> Ahead<'a> {
    pub(crate) fn of(bytes: &'a UnnamedBytes) -> Self {
        Self { bytes, start: 0, window: Vec::new() }
    }

    /// Returns the bytes at `offset`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io).
    pub(crate) fn read(&mut self, offset: u64, bytes: u64) -> Result<&[u8]> {
        let is_inside = |offset: u64| {
            self.start <= offset && offset + bytes <= self.start + self.window.len() as u64
        };
        if !is_inside(offset) {
            let ahead = bytes.max(AHEAD_BYTES).min(self.bytes.len() - offset);
            let mut window = std::mem::take(&mut self.window);
            if window.len() < ahead as usize {
                window = memory::filled(0, ahead as usize)?;
            }
            window.truncate(ahead as usize);
            self.bytes.read_at(&mut window, offset)?;
            (self.start, self.window) = (offset, window);
        }
        let at = (offset - self.start) as usize;
        Ok(&self.window[at..at + bytes as usize])
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_file_without_a_name_holds_what_is_written_to_it() {
        let unnamed = UnnamedFile::create(0x5eed_0000 + u64::from(std::process::id())).unwrap();
        unnamed.file.write_all_at(b"bytes", 3).unwrap();
        assert_eq!(unnamed.bytes().unwrap(), 8);
        let mut chunk = [0; 5];
        unnamed.read_at(&mut chunk, 3).unwrap();
        assert_eq!(&chunk, b"bytes");
        assert_eq!(unnamed.read_at(&mut chunk, 4).unwrap_err().kind(), ErrorKind::Io);
    }

    #[test]
    fn bytes_without_a_name_are_read_across_what_is_written_and_cut_anywhere() {
        let mut bytes = UnnamedBytes::new(UnnamedFile::create(0xb17e_0000).unwrap());
        let mut model = Vec::new();
        for i in 0..40_u8 {
            let part = vec![i; if i % 13 == 12 { TAIL_BYTES + 9 } else { 5000 + usize::from(i) }];
            assert_eq!(bytes.append(&part).unwrap(), model.len() as u64);
            model.extend_from_slice(&part);
            if i % 7 == 6 {
                model.truncate(model.len() - 7001 * usize::from(i % 3));
                bytes.truncate(model.len() as u64);
            }
            assert_eq!(bytes.len(), model.len() as u64);
            for start in [0, model.len() / 2, model.len().saturating_sub(TAIL_BYTES + 100)] {
                let mut found = vec![0; model.len() - start];
                bytes.read_at(&mut found, start as u64).unwrap();
                assert!(found == model[start..], "{i}: from {start}");
            }
            let (mut ahead, mut at) = (Ahead::of(&bytes), 0);
            while at < model.len() {
                let part = (at % 70_001 + 1).min(model.len() - at);
                assert!(ahead.read(at as u64, part as u64).unwrap() == &model[at..at + part]);
                at += part;
            }
        }
    }
}
