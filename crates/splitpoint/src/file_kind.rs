//! `FileKind`: the kind of a file that is not a store.

use std::fmt;
use std::path::PathBuf;

/// What a file is if it is not a Splitpoint store, judging by its type and its first bytes.
///
/// `Display` prints it with an article: `a gdbm file`.
///
/// # Examples
///
/// ```
/// use splitpoint::{Db, Error, FileKind};
///
/// let dir = tempfile::tempdir().unwrap();
/// match Db::open(dir.path()) {
///     Err(Error::NotAStore { found, .. }) => assert_eq!(found, FileKind::Directory),
///     other => panic!("{other:?}"),
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileKind {
    /// A directory.
    Directory,
    /// A named pipe (FIFO).
    NamedPipe,
    /// A socket.
    Socket,
    /// A character device, such as a terminal.
    CharacterDevice,
    /// A block device, such as a disk.
    BlockDevice,
    /// Another file that is not regular.
    Special,
    /// A symbolic link to a file that does not exist.
    DanglingLink {
        /// The missing file to which it leads, directly or by way of other links.
        target: PathBuf,
    },
    /// An empty file.
    Empty,
    /// A store whose creation was interrupted.
    UnfinishedStore,
    /// A regular file that begins with zeros.
    BeginsWithZeros,
    /// An `SQLite` file.
    Sqlite,
    /// A gdbm file.
    Gdbm,
    /// A hash file of Berkeley DB 2 to 18.
    BerkeleyDbHash,
    /// A btree of Berkeley DB 2 to 18.
    BerkeleyDbBtree,
    /// A hash file of db 1.85, the package of 1991.
    Db185Hash,
    /// A cdb file.
    Cdb,
    /// A tdb file.
    Tdb,
    /// An LMDB file.
    Lmdb,
    /// A redb file.
    Redb,
    /// A Kyoto Cabinet file.
    KyotoCabinet,
    /// Text in UTF-8.
    Text,
    /// Anything else.
    Other,
}

impl FileKind {
    /// Returns whether the file is regular, and not a directory, a pipe, a device, a link or the
    /// like.
    pub fn is_regular(&self) -> bool {
        !matches!(
            self,
            Self::Directory
                | Self::NamedPipe
                | Self::Socket
                | Self::CharacterDevice
                | Self::BlockDevice
                | Self::Special
                | Self::DanglingLink { .. }
        )
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DanglingLink { target } => {
                let target = target.display();
                return write!(f, "a symbolic link to `{target}`, which does not exist");
            }
            Self::Directory => "a directory",
            Self::NamedPipe => "a named pipe",
            Self::Socket => "a socket",
            Self::CharacterDevice => "a character device",
            Self::BlockDevice => "a block device",
            Self::Special => "a special file",
            Self::Empty => "an empty file",
            Self::UnfinishedStore => "a store whose creation was interrupted",
            Self::BeginsWithZeros => "a file that begins with zeros",
            Self::Sqlite => "an SQLite file",
            Self::Gdbm => "a gdbm file",
            Self::BerkeleyDbHash => "a Berkeley DB hash file",
            Self::BerkeleyDbBtree => "a Berkeley DB btree file",
            Self::Db185Hash => "a db 1.85 hash file",
            Self::Cdb => "a cdb file",
            Self::Tdb => "a tdb file",
            Self::Lmdb => "an LMDB file",
            Self::Redb => "a redb file",
            Self::KyotoCabinet => "a Kyoto Cabinet file",
            Self::Text => "text",
            Self::Other => "other data",
        })
    }
}
