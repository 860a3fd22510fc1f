//! `Format` and `Identity`: what an old file can be. How that is found out is in `identify`.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::byte_order::ByteOrder;

/// A format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// The 1991 package: 4.4BSD, glibc's libdb1, the BSDs, macOS.
    Db185Hash,
    /// A btree of the same package.
    Db185Btree,
    /// Kerberos 5's libdb2, a "Berkeley DB 2.0-ALPHA": hash version 3.
    Krb5Hash,
    /// Berkeley DB 2 to 18, hash.
    BdbHash,
    /// Berkeley DB 2 to 18, btree.
    BdbBtree,
    /// Berkeley DB 2 to 18, recno.
    BdbRecno,
    /// Berkeley DB 3 to 18, queue.
    BdbQueue,
    /// Berkeley DB 5.2 to 18, heap.
    BdbHeap,
    /// GNU gdbm.
    Gdbm,
    /// dbm of the seventh edition and ndbm of 4.3BSD and its heirs.
    Dbm,
    /// Yigit's sdbm: Perl, Ruby, Apache, PHP.
    Sdbm,
    /// Blocks of dbm or sdbm of which no hash function says which: a file that never split.
    DbmOrSdbm,
    /// A Splitpoint store.
    Store,
}

impl Format {
    /// Returns the name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Db185Hash => "db 1.85 hash",
            Self::Db185Btree => "db 1.85 btree",
            Self::Krb5Hash => "krb5 libdb2 hash",
            Self::BdbHash => "Berkeley DB hash",
            Self::BdbBtree => "Berkeley DB btree",
            Self::BdbRecno => "Berkeley DB recno",
            Self::BdbQueue => "Berkeley DB queue",
            Self::BdbHeap => "Berkeley DB heap",
            Self::Gdbm => "gdbm",
            Self::Dbm => "dbm/ndbm",
            Self::Sdbm => "sdbm",
            Self::DbmOrSdbm => "dbm/ndbm or sdbm",
            Self::Store => "Splitpoint store",
        }
    }

    /// Returns whether this library reads the format.
    pub fn is_readable(self) -> bool {
        match self {
            Self::Db185Hash
            | Self::Krb5Hash
            | Self::BdbHash
            | Self::Gdbm
            | Self::Dbm
            | Self::Sdbm
            | Self::DbmOrSdbm
            | Self::Store => true,
            Self::Db185Btree | Self::BdbBtree | Self::BdbRecno | Self::BdbQueue | Self::BdbHeap => {
                false
            }
        }
    }
}

/// What a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its format.
    pub format: Format,
    /// The file that has the pairs.
    pub path: PathBuf,
    /// The `.dir` beside a `.pag`, if there is one.
    pub dir_path: Option<PathBuf>,
    /// The order of its numbers, where the format has either.
    pub byte_order: Option<ByteOrder>,
    /// Its kind within the format: version, sizes, what wrote it.
    pub details: Vec<String>,
}

impl Identity {
    pub(crate) fn new(format: Format, path: &Path) -> Self {
        let path = path.to_path_buf();
        Self { format, path, dir_path: None, byte_order: None, details: Vec::new() }
    }

    pub(crate) fn order(mut self, order: ByteOrder) -> Self {
        self.byte_order = Some(order);
        self
    }

    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.details.push(detail.into());
        self
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.format.name())?;
        for detail in &self.details {
            write!(f, ", {detail}")?;
        }
        if let Some(order) = self.byte_order {
            write!(f, ", {}", order.name())?;
        }
        Ok(())
    }
}
