//! `Format` and `Identity`: what an old file can be. `identify` finds it out.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::byte_order::ByteOrder;

/// A format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// db 1.85 hash: 4.4BSD, glibc's libdb1, the BSDs, macOS.
    Db185Hash,
    /// db 1.85 btree.
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
    /// Blocks of dbm or sdbm. The file never split, so no hash function can tell which.
    DbmOrSdbm,
    /// Bernstein's cdb.
    Cdb,
    /// Python's dbm.dumb.
    Dumb,
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
            Self::Cdb => "cdb",
            Self::Dumb => "Python dbm.dumb",
            Self::Store => "Splitpoint store",
        }
    }

    /// Returns whether this library reads the format.
    pub fn is_readable(self) -> bool {
        match self {
            Self::Db185Hash
            | Self::Krb5Hash
            | Self::BdbHash
            | Self::BdbBtree
            | Self::Gdbm
            | Self::Dbm
            | Self::Sdbm
            | Self::DbmOrSdbm
            | Self::Cdb
            | Self::Dumb
            | Self::Store => true,
            Self::Db185Btree | Self::BdbRecno | Self::BdbQueue | Self::BdbHeap => false,
        }
    }
}

/// The identity of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its format.
    pub format: Format,
    /// The file with the records.
    pub path: PathBuf,
    /// The `.dir` beside a `.pag` or a `.dat`, if there is one.
    pub dir_path: Option<PathBuf>,
    /// The `.bak` beside a `.dat`, if there is one.
    pub bak_path: Option<PathBuf>,
    /// The order of the bytes in its numbers, if the format has both.
    pub byte_order: Option<ByteOrder>,
    /// Its variant of the format: version, sizes, the program that wrote it.
    pub details: Vec<String>,
}

impl Identity {
    pub(crate) fn new(format: Format, path: &Path) -> Self {
        let path = path.to_path_buf();
        let (dir_path, bak_path) = (None, None);
        Self { format, path, dir_path, bak_path, byte_order: None, details: Vec::new() }
    }

    /// Returns every file of the table, the one with the records first.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let others = [&self.dir_path, &self.bak_path].into_iter().flatten();
        std::iter::once(&self.path).chain(others).map(PathBuf::as_path)
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
