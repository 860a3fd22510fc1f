//! Reads the bytes of an old file at checked offsets.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
#[cfg(any(test, feature = "fuzzing"))]
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::SeekFrom;
use splitpoint::{Error, Result, SharedFile};

/// The bytes of a read-only file.
#[derive(Debug)]
pub struct Source {
    bytes: Bytes,
    path: PathBuf,
    file_bytes: u64,
    #[cfg(any(test, feature = "fuzzing"))]
    read_bytes: AtomicU64,
}

/// A file that is looked at. The process may have claimed it as a store: the claims stay when it is closed.
#[derive(Debug)]
struct LookedAt(Option<File>);

impl LookedAt {
    fn file(&self) -> &File {
        self.0.as_ref().expect("it is there until the drop")
    }
}

impl Drop for LookedAt {
    fn drop(&mut self) {
        if let Some(file) = self.0.take() {
            SharedFile::close_other(file);
        }
    }
}

#[derive(Debug)]
enum Bytes {
    File(LookedAt),
    #[cfg(any(test, feature = "fuzzing"))]
    Memory(Vec<u8>),
}

impl Bytes {
    /// Returns the offset of the first data from `offset` on, if the system reports it.
    fn next_data(&self, offset: u64) -> Option<u64> {
        match self {
            Self::File(file) => match rustix::fs::seek(file.file(), SeekFrom::Data(offset)) {
                Ok(data) => Some(data),
                Err(rustix::io::Errno::NXIO) => Some(u64::MAX),
                Err(_) => None,
            },
            #[cfg(any(test, feature = "fuzzing"))]
            Self::Memory(_) => None,
        }
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::File(file) => file.file().read_at(bytes, offset),
            #[cfg(any(test, feature = "fuzzing"))]
            Self::Memory(image) => std::io::Read::read(&mut &image[offset as usize..], bytes),
        }
    }
}

impl Source {
    /// Opens the file at `path` for reading.
    ///
    /// # Errors
    ///
    /// [`Error::NotAStore`] if it is not a regular file; [`Error::Io`] if a system call fails.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_path_buf();
        let file = LookedAt(Some(splitpoint::open_regular(&path, OpenOptions::new().read(true))?));
        let failed = |source| Error::Io { action: "open", path: path.clone(), source };
        let file_bytes = file.file().metadata().map_err(failed)?.len();
        Ok(Self::new(Bytes::File(file), path, file_bytes))
    }

    fn new(bytes: Bytes, path: PathBuf, file_bytes: u64) -> Self {
        Self {
            bytes,
            path,
            file_bytes,
            #[cfg(any(test, feature = "fuzzing"))]
            read_bytes: AtomicU64::new(0),
        }
    }

    /// Returns the number of bytes read so far, including those beyond the end.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Treats bytes in memory as a file.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn of_bytes(bytes: Vec<u8>) -> Self {
        let file_bytes = bytes.len() as u64;
        Self::new(Bytes::Memory(bytes), ":memory:".into(), file_bytes)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the length of the file when it was opened.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Returns the offset of the first byte from `offset` on that may not be 0, or the end of the
    /// file. The bytes before it are a hole of a sparse file.
    ///
    /// # Cost
    ///
    /// One system call. If the system cannot tell, it returns `offset`.
    pub fn next_data(&self, offset: u64) -> u64 {
        let data = self.bytes.next_data(offset).unwrap_or(offset).max(offset);
        data.min(self.file_bytes.max(offset))
    }

    /// Reads the whole file, which may have up to `bytes_max` bytes. `what` names it in an error.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if it has more; [`Error::Io`] if a system call fails.
    pub fn read_all(&self, what: &'static str, bytes_max: u64) -> Result<Vec<u8>> {
        let bytes = self.file_bytes;
        if bytes > bytes_max {
            return Err(Error::TooLarge { what, bytes, bytes_max });
        }
        let mut bytes = vec![0; bytes as usize];
        let filled = self.read_at(0, &mut bytes)?;
        bytes.truncate(filled);
        Ok(bytes)
    }

    /// Reads `bytes.len()` bytes at `offset`; those beyond the end of the file are 0.
    ///
    /// Returns how many the file has, because old files are sparse and may end in a short page.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if a system call fails.
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        #[cfg(any(test, feature = "fuzzing"))]
        self.read_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let mut filled = 0;
        while filled < bytes.len() {
            let at = offset.saturating_add(filled as u64);
            if at >= self.file_bytes {
                break;
            }
            match self.bytes.read_at(at, &mut bytes[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(Error::Io { action: "read", path: self.path.clone(), source });
                }
            }
        }
        bytes[filled..].fill(0);
        Ok(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_beyond_the_end_are_zero() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"abc").unwrap();
        let source = Source::open(file.path()).unwrap();
        assert_eq!(source.file_bytes(), 3);
        let mut bytes = [0xff; 4];
        assert_eq!(source.read_at(1, &mut bytes).unwrap(), 2);
        assert_eq!(bytes, *b"bc\0\0");
        assert_eq!(source.read_at(u64::MAX >> 1, &mut bytes).unwrap(), 0);
        assert_eq!(bytes, [0; 4]);
    }

    #[test]
    fn a_look_at_a_file_that_this_process_has_claimed_leaves_the_claim() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.spt");
        splitpoint::Db::open(&path).unwrap().close().unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let claim = SharedFile::for_writer(file, &path).unwrap();
        assert_eq!(crate::identify(&path).unwrap().unwrap().format, crate::Format::Store);
        let other = splitpoint::Db::open(&path).map(drop).map_err(|error| error.kind());
        assert_eq!(other, Err(splitpoint::ErrorKind::Locked));
        drop(claim);
    }

    #[test]
    fn holes_are_skipped() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 42).unwrap();
        file.as_file().write_all_at(b"data", 1 << 41).unwrap();
        let source = Source::open(file.path()).unwrap();
        assert_eq!(source.next_data(1 << 41), 1 << 41);
        // Only complete blocks of the file system are holes.
        assert!(((1 << 41) - (1 << 20)..=1 << 41).contains(&source.next_data(0)));
        assert_eq!(source.next_data(1 << 42), 1 << 42);
        assert_eq!(source.next_data((1 << 41) + (1 << 30)), 1 << 42);
    }
}
