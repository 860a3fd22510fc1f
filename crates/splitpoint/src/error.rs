//! What can go wrong, said once for every face of the library.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::file_kind::FileKind;

/// A `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed.
///
/// `Display` says all of it in one line: what failed, where, what was expected and found, and the
/// operating system's reason. So [`source`](std::error::Error::source) does not return that reason
/// again; [`io_error`](Self::io_error) does.
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
        /// What was tried, to follow "cannot".
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
        /// What it is instead, as far as its first bytes tell.
        found: FileKind,
    },
    /// The file was written by a version of the format that this library does not read.
    Version {
        /// The file.
        path: PathBuf,
        /// The version this library reads and writes.
        expected: u32,
        /// The version in the file.
        found: u32,
    },
    /// Bytes on disk break the format.
    Corrupt {
        /// What is broken: a term of `docs/glossary.md` or a field of `docs/format.md`.
        what: &'static str,
        /// Where, in bytes from the start of the file.
        offset: u64,
        /// What the format asks for there.
        expected: u64,
        /// What is there.
        found: u64,
    },
    /// Another handle holds the file open for writing.
    Locked {
        /// The file.
        path: PathBuf,
        /// The process that holds it, where the file tells.
        pid: Option<u32>,
    },
    /// A key, a value or an option is over its limit; nothing was written.
    TooLarge {
        /// `key`, `value` or the name of what is too large.
        what: &'static str,
        /// Its size in bytes.
        bytes: u64,
        /// The largest size in bytes.
        bytes_max: u64,
    },
    /// The store was made with another hash function.
    HashMismatch {
        /// The name of the function in the file.
        expected: String,
        /// The name of the function given, or of the one that gave another result.
        found: String,
    },
    /// The store was opened for reading only.
    ReadOnly,
    /// The file exists and a new one was asked for.
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// This handle can no longer be used: an earlier call failed and left it unable to promise
    /// durability, or this process is a fork of the one that opened the store. Reopen the store.
    Poisoned {
        /// What failed, or what this process is.
        reason: String,
    },
    /// The store cannot grow: the format or the address space of the process is at its end. The latter
    /// is limited by `ulimit -v`; the count of its mappings, on Linux, by `vm.max_map_count`. A full
    /// disk is [`Error::Io`].
    Full {
        /// What is full.
        what: &'static str,
        /// Bytes asked for.
        bytes: u64,
    },
    /// The file cannot be used by this version, or where it is.
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What of it is not supported.
        feature: Unsupported,
        /// Why not.
        reason: String,
    },
    /// An option or a URL has a value that cannot be used.
    Invalid {
        /// Which one.
        what: &'static str,
        /// Why not.
        reason: String,
    },
}

/// What is not supported, in [`Error::Unsupported`]: for a program that knows a remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unsupported {
    /// The format, which is known by its content and not read.
    Format,
    /// The encryption of the content.
    Encryption,
    /// The file system.
    FileSystem,
    /// Further names (hard links) of a file that is to be replaced.
    HardLinks,
    /// Something else: the reason says what.
    Other,
}

/// The kind of an [`Error`], without fields: for matching and for other languages.
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
    /// [`Error::Locked`].
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
}

impl ErrorKind {
    /// Every kind, in a stable order.
    pub const ALL: [Self; 14] = [
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
    ];
}

impl Error {
    /// What [`Error::Full`] says is full if the process has no address space left.
    pub const ADDRESS_SPACE: &'static str = "address space of this process";

    /// Returns the file that the error is about, if it names one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Io { path, .. }
            | Self::NotAStore { path, .. }
            | Self::Version { path, .. }
            | Self::Locked { path, .. }
            | Self::Exists { path }
            | Self::Unsupported { path, .. } => Some(path),
            Self::Corrupt { .. }
            | Self::TooLarge { .. }
            | Self::HashMismatch { .. }
            | Self::ReadOnly
            | Self::Poisoned { .. }
            | Self::Full { .. }
            | Self::Invalid { .. } => None,
        }
    }

    /// Returns the operating system's reason, if it refused.
    pub fn io_error(&self) -> Option<&io::Error> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }

    /// Returns the kind, for matching.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                ErrorKind::NotFound
            }
            Self::Io { .. } => ErrorKind::Io,
            Self::NotAStore { .. } => ErrorKind::NotAStore,
            Self::Version { .. } => ErrorKind::Version,
            Self::Corrupt { .. } => ErrorKind::Corrupt,
            Self::Locked { .. } => ErrorKind::Locked,
            Self::TooLarge { .. } => ErrorKind::TooLarge,
            Self::HashMismatch { .. } => ErrorKind::HashMismatch,
            Self::ReadOnly => ErrorKind::ReadOnly,
            Self::Exists { .. } => ErrorKind::Exists,
            Self::Poisoned { .. } => ErrorKind::Poisoned,
            Self::Full { .. } => ErrorKind::Full,
            Self::Unsupported { .. } => ErrorKind::Unsupported,
            Self::Invalid { .. } => ErrorKind::Invalid,
        }
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
                "`{}` has format version {found}, this library reads version {expected}",
                path.display()
            ),
            Self::Corrupt { what, offset, expected, found } => {
                write!(
                    f,
                    "corrupt {what} at byte {offset}: expected {expected:#x}, found {found:#x}"
                )
            }
            Self::Locked { path, pid: Some(pid) } if *pid == std::process::id() => {
                write!(f, "`{}` is already open in this process", path.display())
            }
            Self::Locked { path, pid: Some(pid) } => {
                write!(f, "`{}` is locked by process {pid}", path.display())
            }
            Self::Locked { path, pid: None } => {
                write!(f, "`{}` is locked by another handle", path.display())
            }
            Self::TooLarge { what, bytes, bytes_max } => {
                write!(f, "{what} of {bytes} bytes is over the limit of {bytes_max} bytes")
            }
            Self::HashMismatch { expected, found } => {
                write!(f, "the store was made with hash function {expected}, not {found}")
            }
            Self::ReadOnly => f.write_str("the store was opened for reading only"),
            Self::Exists { path } => write!(f, "`{}` exists already", path.display()),
            Self::Poisoned { reason } => {
                write!(f, "this handle can no longer be used: {reason}")
            }
            Self::Full { what, bytes } => {
                write!(f, "the {what} is full: {bytes} more bytes do not fit")
            }
            Self::Unsupported { path, reason, .. } => {
                write!(f, "cannot use `{}`: {reason}", path.display())
            }
            Self::Invalid { what, reason } => write!(f, "invalid {what}: {reason}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // `Display` has the reason itself; this is what is behind it.
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
