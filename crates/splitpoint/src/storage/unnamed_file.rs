//! `UnnamedFile`: a file for one process alone, gone with its last handle.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use super::failure::io_error;
use super::mapped::Mapped;
use crate::error::Result;

/// A file without a name.
#[derive(Debug)]
pub(crate) struct UnnamedFile {
    file: File,
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
        let dir = std::env::temp_dir();
        let path = dir.join(format!("splitpoint-{random:016x}"));
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path);
        let file = file.and_then(|file| fs::remove_file(&path).map(|()| file));
        match file {
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
        let mapped =
            self.file.try_clone().and_then(|file| Mapped::new(file, self.dir.clone(), true));
        mapped.map_err(|error| io_error("map a file in", &self.dir, error))
    }

    /// Returns the size of the file in bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io).
    pub(crate) fn bytes(&self) -> Result<u64> {
        let metadata = self.file.metadata();
        let metadata = metadata.map_err(|error| io_error("read the size of", &self.dir, error))?;
        Ok(metadata.len())
    }

    /// Fills `chunk` with what is at `offset`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io), also at the end of the file.
    pub(crate) fn read_at(&self, chunk: &mut [u8], offset: u64) -> Result<()> {
        let read: io::Result<()> = self.file.read_exact_at(chunk, offset);
        read.map_err(|error| io_error("read a file in", &self.dir, error))
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
}
