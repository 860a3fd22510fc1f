//! The errors of the library.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::file_kind::FileKind;
use crate::holder::{Holder, HolderRole};

/// A `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed.
///
/// `Display` prints one line with everything: what failed, where, what was expected and found, and
/// the operating system's reason. So that a printed error chain does not repeat that reason,
/// [`source`](std::error::Error::source) skips it; [`io_error`](Self::io_error) returns it.
///
/// # Examples
///
/// ```
/// use splitpoint::{ErrorKind, Options};
///
/// let error = Options::new().read_only().open("nofile").unwrap_err();
/// assert_eq!(error.to_string(), "cannot open `nofile`: No such file or directory (os error 2)");
/// assert_eq!(error.kind(), ErrorKind::NotFound);
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused `action` on the file at `path`.
    Io {
        /// The action that failed, worded to follow "cannot".
        action: &'static str,
        /// The file, or `:memory:`.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The file at `path` is not a Splitpoint store.
    NotAStore {
        /// The file.
        path: PathBuf,
        /// What the file is instead, judging by its type and its first bytes.
        found: FileKind,
    },
    /// The file has a version of the format that this library does not read.
    Version {
        /// The file.
        path: PathBuf,
        /// The version this library reads and writes.
        expected: u32,
        /// The version in the file.
        found: u32,
    },
    /// Bytes of the file break the format.
    Corrupt {
        /// The broken part: a term of `docs/glossary.md` or a field of `docs/format.md`.
        what: &'static str,
        /// Its offset in bytes from the start of the file.
        offset: u64,
        /// The value that the format requires there.
        expected: u64,
        /// The value that is there.
        found: u64,
    },
    /// Another handle has the file locked.
    ///
    /// [`Options::lock_timeout`](crate::Options::lock_timeout) makes an open wait for the lock.
    /// Handles that all open the file with [`Sharing::Shared`](crate::Sharing::Shared) write by
    /// turns and do not exclude each other; a writer does not exclude read-only handles.
    Locked {
        /// The file.
        path: PathBuf,
        /// Who holds the lock, as far as the system can tell; empty if it cannot.
        holders: Vec<Holder>,
    },
    /// A backup cannot copy the store while another process has it open: that process has opened
    /// the file for exclusive use, or has begun to reuse space that the backup could not pin.
    LockedCompacted {
        /// The file.
        path: PathBuf,
        /// The process that holds the lock, if the file names it.
        pid: Option<u32>,
    },
    /// A key, a value or another argument exceeds its limit; nothing was written.
    TooLarge {
        /// `key`, `value` or the name of the argument.
        what: &'static str,
        /// Its size in bytes.
        bytes: u64,
        /// The largest size in bytes.
        bytes_max: u64,
    },
    /// The store was created with another hash function.
    HashMismatch {
        /// The name of the function in the file.
        expected: String,
        /// The name of the function that was given, or of one that computes another hash under the
        /// same name.
        found: String,
    },
    /// The handle may not write: the store was opened for reading only.
    ReadOnly,
    /// The file exists already, but the caller asked for a new one.
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// This handle can no longer be used; open the store again.
    ///
    /// There are three causes: an earlier call failed, so the handle can no longer promise
    /// durability; this process is a fork of the one that opened the store; or another program has
    /// truncated the file, and it contains another store now.
    Poisoned {
        /// The error of the earlier call, or which of the other causes applies.
        reason: String,
    },
    /// The store cannot grow, because the format or the address space of the process is exhausted, or
    /// the process gets no memory for what it asked for.
    ///
    /// `ulimit -v` limits the address space. On Linux `vm.max_map_count` limits the number of
    /// mappings. A full disk is [`Error::Io`] instead.
    Full {
        /// What is full.
        what: &'static str,
        /// Bytes that did not fit.
        bytes: u64,
    },
    /// This version of the library cannot use the file, or cannot use it on its file system.
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The unsupported feature.
        feature: Unsupported,
        /// Why not.
        reason: String,
    },
    /// A snapshot or a scan kept more space from being reused than it may, so the store gave it up:
    /// take a new one. [`Options::max_snapshot_pin`](crate::Options::max_snapshot_pin) sets the
    /// bound.
    ///
    /// If handles change the store by turns, this may happen early: a handle cannot tell when,
    /// since its own last turn, the others emptied the segments that wait, so it counts all of
    /// these against every snapshot.
    SnapshotTooOld {
        /// The bound in bytes.
        bytes_max: u64,
    },
    /// Another thread or process has changed what a transaction has read, so the transaction changed nothing.
    /// Run it again; [`Db::transaction`](crate::Db::transaction) does so.
    Conflict,
    /// An option, a URL or a value is unusable, or the call is not allowed at that point, such as a
    /// change within [`Db::update`](crate::Db::update).
    Invalid {
        /// The option, `URL`, the value, or `call`.
        what: &'static str,
        /// Why not.
        reason: String,
    },
}

/// The missing feature of an [`Error::Unsupported`], for a program that has a remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unsupported {
    /// A format that the library recognizes but cannot read.
    Format,
    /// The content is encrypted.
    Encryption,
    /// The file system.
    FileSystem,
    /// The file to be replaced has further names (hard links).
    HardLinks,
    /// Something else; the reason names it.
    Other,
}

/// The kind of an [`Error`], without fields: to match on, and for bindings to other languages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// [`Error::Io`], unless a file or a directory is missing.
    Io,
    /// [`Error::Io`] because a file or a directory is missing: the reason is
    /// [`NotFound`](io::ErrorKind::NotFound).
    NotFound,
    /// [`Error::NotAStore`].
    NotAStore,
    /// [`Error::Version`].
    Version,
    /// [`Error::Corrupt`].
    Corrupt,
    /// [`Error::Locked`] and [`Error::LockedCompacted`].
    Locked,
    /// [`Error::TooLarge`].
    TooLarge,
    /// [`Error::HashMismatch`].
    HashMismatch,
    /// [`Error::ReadOnly`].
    ReadOnly,
    /// [`Error::Exists`].
    Exists,
    /// [`Error::Poisoned`].
    Poisoned,
    /// [`Error::Full`].
    Full,
    /// [`Error::Unsupported`].
    Unsupported,
    /// [`Error::Invalid`].
    Invalid,
    /// [`Error::SnapshotTooOld`].
    SnapshotTooOld,
    /// [`Error::Conflict`].
    Conflict,
}

impl ErrorKind {
    /// Every kind, in a stable order.
    pub const ALL: [Self; 16] = [
        Self::Io,
        Self::NotFound,
        Self::NotAStore,
        Self::Version,
        Self::Corrupt,
        Self::Locked,
        Self::TooLarge,
        Self::HashMismatch,
        Self::ReadOnly,
        Self::Exists,
        Self::Poisoned,
        Self::Full,
        Self::Unsupported,
        Self::Invalid,
        Self::SnapshotTooOld,
        Self::Conflict,
    ];
}

impl Error {
    /// The `what` of an [`Error::Full`] when the process has no address space left.
    pub const ADDRESS_SPACE: &'static str = "address space of this process";

    /// The `what` of an [`Error::Full`] when the process gets no memory for a copy or a list whose size
    /// the data decides: a value, the changes of a batch or of a transaction.
    pub const MEMORY: &'static str = "memory of this process";

    /// Returns the file that the error concerns, if it names one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Io { path, .. }
            | Self::NotAStore { path, .. }
            | Self::Version { path, .. }
            | Self::Locked { path, .. }
            | Self::LockedCompacted { path, .. }
            | Self::Exists { path }
            | Self::Unsupported { path, .. } => Some(path),
            Self::Corrupt { .. }
            | Self::TooLarge { .. }
            | Self::HashMismatch { .. }
            | Self::ReadOnly
            | Self::Poisoned { .. }
            | Self::Full { .. }
            | Self::SnapshotTooOld { .. }
            | Self::Conflict
            | Self::Invalid { .. } => None,
        }
    }

    /// Returns the hint for a lock error: what the program can do about it.
    fn remedy_of_lock(holders: &[Holder]) -> &'static str {
        let is_of = |role| holders.iter().any(|holder| holder.role == role);
        if is_of(HolderRole::TakesTurns) {
            "`Sharing::Shared` takes turns with it, `Options::lock_timeout` waits for its end"
        } else if is_of(HolderRole::Writer) {
            "`Options::lock_timeout` waits for it; if all open with `Sharing::Shared`, they take turns"
        } else {
            "`Options::lock_timeout` waits for it"
        }
    }

    /// Returns the operating system's reason, if there is one.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io;
    /// use splitpoint::Options;
    ///
    /// let error = Options::new().read_only().open("nofile").unwrap_err();
    /// assert_eq!(error.io_error().map(io::Error::kind), Some(io::ErrorKind::NotFound));
    /// ```
    pub fn io_error(&self) -> Option<&io::Error> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }

    /// Returns the kind, to match on.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                ErrorKind::NotFound
            }
            Self::Io { .. } => ErrorKind::Io,
            Self::NotAStore { .. } => ErrorKind::NotAStore,
            Self::Version { .. } => ErrorKind::Version,
            Self::Corrupt { .. } => ErrorKind::Corrupt,
            Self::Locked { .. } | Self::LockedCompacted { .. } => ErrorKind::Locked,
            Self::TooLarge { .. } => ErrorKind::TooLarge,
            Self::HashMismatch { .. } => ErrorKind::HashMismatch,
            Self::ReadOnly => ErrorKind::ReadOnly,
            Self::Exists { .. } => ErrorKind::Exists,
            Self::Poisoned { .. } => ErrorKind::Poisoned,
            Self::Full { .. } => ErrorKind::Full,
            Self::Unsupported { .. } => ErrorKind::Unsupported,
            Self::SnapshotTooOld { .. } => ErrorKind::SnapshotTooOld,
            Self::Conflict => ErrorKind::Conflict,
            Self::Invalid { .. } => ErrorKind::Invalid,
        }
    }
}

/// Writes the end of a message about a damaged `what`. Sizes are decimal, as other tools print
/// them; everything else, such as checksums and addresses, is hexadecimal.
pub(crate) fn write_difference(
    f: &mut fmt::Formatter<'_>,
    what: &str,
    expected: u64,
    found: u64,
) -> fmt::Result {
    match what {
        "file size" | "end of the file" => write!(f, "expected {expected}, found {found}"),
        _ => write!(f, "expected {expected:#x}, found {found:#x}"),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { action, path, source } => {
                write!(f, "cannot {action} `{}`: {source}", path.display())
            }
            Self::NotAStore { path, found: found @ FileKind::DanglingLink { .. } } => {
                write!(f, "`{}` is {found}", path.display())
            }
            Self::NotAStore { path, found } if !found.is_regular() => {
                write!(f, "`{}` is {found}, not a regular file", path.display())
            }
            Self::NotAStore { path, found } => {
                write!(f, "`{}` is not a splitpoint store: found {found}", path.display())
            }
            Self::Version { path, expected, found } => write!(
                f,
                "`{}` has format version {found}; this library reads version {expected}",
                path.display()
            ),
            Self::Corrupt { what, offset, expected, found } => {
                write!(f, "corrupt {what} at byte {offset}: ")?;
                write_difference(f, what, *expected, *found)
            }
            Self::Locked { path, holders } => {
                let remedy = Self::remedy_of_lock(holders);
                write!(f, "`{}` is locked by {}; {remedy}", path.display(), Holder::list(holders))
            }
            Self::LockedCompacted { path, pid } => {
                let path = path.display();
                match pid {
                    Some(pid) => write!(f, "process {pid} writes to `{path}`")?,
                    None => write!(f, "another process writes to `{path}`")?,
                }
                f.write_str(
                    ", whose space is used again: try again, or call `Db::backup` in that program",
                )
            }
            Self::TooLarge { what, bytes, bytes_max } => {
                write!(f, "{what} of {bytes} bytes is over the limit of {bytes_max} bytes")
            }
            Self::HashMismatch { expected, found } => {
                write!(f, "the store uses hash function {expected}, not {found}")
            }
            Self::ReadOnly => f.write_str("the store was opened for reading only"),
            Self::Exists { path } => write!(f, "`{}` already exists", path.display()),
            Self::Poisoned { reason } => {
                write!(f, "this handle can no longer be used: {reason}")
            }
            Self::Full { what, bytes } => {
                write!(f, "the {what} is full: {bytes} more bytes do not fit")
            }
            Self::Unsupported { path, reason, .. } => {
                write!(f, "cannot use `{}`: {reason}", path.display())
            }
            Self::SnapshotTooOld { bytes_max } => write!(
                f,
                "the snapshot is too old: it held back more than {bytes_max} bytes of space; take a \
                 new one, or set `max_snapshot_pin`"
            ),
            Self::Conflict => f.write_str(
                "the transaction conflicts with another: what it read has changed; run it again",
            ),
            Self::Invalid { what, reason } => write!(f, "invalid {what}: {reason}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // `Display` has printed the reason, so start the chain with the error below it.
            Self::Io { source, .. } => source.source(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_corruption_says_what_where_and_both_values() {
        let error = Error::Corrupt { what: "record kind", offset: 4106, expected: 1, found: 9 };
        assert_eq!(error.to_string(), "corrupt record kind at byte 4106: expected 0x1, found 0x9");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let (what, expected, found) = ("file size", 40_960, 100);
        let cut = Error::Corrupt { what, offset: 100, expected, found };
        assert_eq!(cut.to_string(), "corrupt file size at byte 100: expected 40960, found 100");
    }

    #[test]
    fn an_io_error_says_its_cause_once() {
        let source = io::Error::from(io::ErrorKind::PermissionDenied);
        let error = Error::Io { action: "open", path: "a.spt".into(), source };
        assert_eq!(error.to_string(), "cannot open `a.spt`: permission denied");
        assert!(std::error::Error::source(&error).is_none());
        assert_eq!(error.io_error().map(io::Error::kind), Some(io::ErrorKind::PermissionDenied));
        assert_eq!(error.kind(), ErrorKind::Io);
    }

    #[test]
    fn a_missing_file_has_a_kind_of_its_own() {
        let source = io::Error::from_raw_os_error(2);
        let error = Error::Io { action: "open", path: "a.spt".into(), source };
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}
