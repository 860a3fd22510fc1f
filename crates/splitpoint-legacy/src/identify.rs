//! What an old file is, by its content.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use splitpoint::{FileKind, Result};

use crate::byte_order::ByteOrder;
use crate::pages::{self, PagedFile};
use crate::{Source, gdbm};

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
    fn new(format: Format, path: &Path) -> Self {
        let path = path.to_path_buf();
        Self { format, path, dir_path: None, byte_order: None, details: Vec::new() }
    }

    fn order(mut self, order: ByteOrder) -> Self {
        self.byte_order = Some(order);
        self
    }

    fn detail(mut self, detail: impl Into<String>) -> Self {
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

/// The files of one table.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    /// The file that has the pairs.
    pub(crate) data: PathBuf,
    /// The `.dir` beside it.
    pub(crate) dir: Option<PathBuf>,
}

/// Finds the files of the table that the user calls `path`: one file, or a `.pag` with its `.dir`
/// given by either or by what their names begin with, or ndbm's `.db` given without it.
pub(crate) fn files_of(path: &Path) -> Files {
    let with = |extension: &str| {
        let mut name = OsString::from(path);
        name.push(extension);
        PathBuf::from(name)
    };
    let alone = Files { data: path.to_path_buf(), dir: None };
    if path.is_file() {
        let pair =
            Files { data: path.with_extension("pag"), dir: Some(path.with_extension("dir")) };
        let is_of_pair = path.extension().is_some_and(|end| end == "pag" || end == "dir");
        return if is_of_pair && pair.is_whole() { pair } else { alone };
    }
    let pair = Files { data: with(".pag"), dir: Some(with(".dir")) };
    let db = with(".db");
    if pair.is_whole() {
        pair
    } else if db.is_file() {
        Files { data: db, dir: None }
    } else if pair.data.is_file() {
        Files { data: pair.data, dir: None }
    } else {
        alone
    }
}

impl Files {
    fn is_whole(&self) -> bool {
        self.data.is_file() && self.dir.as_ref().is_some_and(|dir| dir.is_file())
    }
}

/// Bytes of a file that tell its format, if any do.
const HEAD_BYTES: usize = 512;
/// Bytes of a file that tell what else it is.
const KIND_HEAD_BYTES: usize = 16 << 10;

/// Says what the file at `path` is by its content, or `None` if it is nothing that this library
/// knows.
///
/// Of a table in two files, `.dir` and `.pag`, either may be given, or what their names begin
/// with.
///
/// # Errors
///
/// - [`ErrorKind::NotAStore`](splitpoint::ErrorKind::NotAStore) if it is no regular file.
/// - [`ErrorKind::Io`](splitpoint::ErrorKind::Io) if the system refuses to read.
///
/// # Cost
///
/// One read for a format with a magic number. dbm and sdbm have none: all of the file is read.
///
/// # Examples
///
/// ```
/// use splitpoint_legacy::{Format, identify};
///
/// # fn main() -> splitpoint::Result<()> {
/// let found = identify("tests/fixtures/sdbm-be-word")?.expect("a known format");
/// assert_eq!(found.format, Format::Sdbm);
/// assert!(found.to_string().ends_with("big-endian"));
/// # Ok(())
/// # }
/// ```
pub fn identify(path: impl AsRef<Path>) -> Result<Option<Identity>> {
    let files = files_of(path.as_ref());
    let source = Source::open(&files.data)?;
    if let Some(identity) = by_magic(&source, &files)? {
        return Ok(Some(identity));
    }
    Ok(PagedFile::recognize(source, &files)?.map(|file| file.identity))
}

/// Says what a file is that may be none of ours.
pub(crate) fn kind_of(source: &Source) -> Result<FileKind> {
    let mut head = vec![0; KIND_HEAD_BYTES];
    let filled = source.read_at(0, &mut head)?;
    Ok(FileKind::of_content(&head[..filled], source.file_bytes()))
}

/// Says what a file is that begins with a magic number.
pub(crate) fn by_magic(source: &Source, files: &Files) -> Result<Option<Identity>> {
    let mut head = [0; HEAD_BYTES];
    source.read_at(0, &mut head)?;
    let path = source.path();
    let numbers = |order: ByteOrder| (order.u32_at(&head, 0), order.u32_at(&head, 12));
    if head.starts_with(b"\x89SPLIT\r\n") {
        return Ok(Some(Identity::new(Format::Store, path)));
    }
    for order in ByteOrder::ALL {
        let (first, fourth) = numbers(order);
        if let Some(identity) = of_berkeley(path, order, first, &head) {
            return Ok(Some(identity));
        }
        if let Some(identity) = of_sleepycat(path, order, fourth, &head) {
            return Ok(Some(identity));
        }
        if let Some(kind) = gdbm::kind_of(first) {
            let mut identity = Identity::new(Format::Gdbm, path).order(order).detail(kind);
            if let Some(layout) = gdbm::layout_of(order, first, &head) {
                identity = identity.detail(layout.name());
            }
            identity.dir_path.clone_from(&files.dir);
            if files.dir.is_some() {
                identity = identity.detail("pair of libgdbm_compat");
            }
            return Ok(Some(identity));
        }
    }
    Ok(None)
}

/// The package of 1991 and what Kerberos made of it.
fn of_berkeley(path: &Path, order: ByteOrder, magic: u32, head: &[u8]) -> Option<Identity> {
    const HASH: u32 = 0x0006_1561;
    const BTREE: u32 = 0x0005_3162;
    let version = order.u32_at(head, 4);
    let lorder = match order.u32_at(head, 8) {
        4321 => ByteOrder::Big,
        _ => ByteOrder::Little,
    };
    match (magic, order) {
        // Its header is big-endian whatever its pages are.
        (HASH, ByteOrder::Big) if version == 3 => {
            let identity = Identity::new(Format::Krb5Hash, path).detail("version 3");
            Some(identity.detail(format!("pages of {}", order.u32_at(head, 12))).order(lorder))
        }
        (HASH, ByteOrder::Big) => {
            let identity = Identity::new(Format::Db185Hash, path);
            let identity = identity.detail(format!("version {version}"));
            Some(identity.detail(format!("pages of {}", order.u32_at(head, 12))).order(lorder))
        }
        (BTREE, _) => {
            let identity = Identity::new(Format::Db185Btree, path);
            Some(identity.detail(format!("version {version}")).order(order))
        }
        _ => None,
    }
}

/// Berkeley DB 2 to 18.
fn of_sleepycat(path: &Path, order: ByteOrder, magic: u32, head: &[u8]) -> Option<Identity> {
    /// A btree whose keys are record numbers.
    const RECNO: u32 = 0x02;
    /// The databases of one file by name.
    const SUBDATABASES: u32 = 0x20;
    let flags = order.u32_at(head, 48);
    let format = match magic {
        0x0006_1561 => Format::BdbHash,
        0x0005_3162 if flags & RECNO != 0 => Format::BdbRecno,
        0x0005_3162 => Format::BdbBtree,
        0x0004_2253 => Format::BdbQueue,
        0x0007_4582 => Format::BdbHeap,
        _ => return None,
    };
    let version = order.u32_at(head, 16);
    let identity = Identity::new(format, path).detail(format!("version {version}")).order(order);
    let identity = identity.detail(format!("pages of {}", order.u32_at(head, 20)));
    let has_names = format == Format::BdbBtree && flags & SUBDATABASES != 0;
    Some(if has_names { identity.detail("several databases by name") } else { identity })
}

/// Names the kind of a file of pairs in blocks.
pub(crate) fn of_blocks(files: &Files, shape: pages::Shape, kind: pages::Kind) -> Identity {
    let mut identity = Identity::new(kind.format(), &files.data).order(shape.order);
    identity.dir_path.clone_from(&files.dir);
    let identity = identity.detail(format!("blocks of {}", shape.block_bytes));
    match kind.detail() {
        Some(detail) => identity.detail(detail),
        None => identity,
    }
}
