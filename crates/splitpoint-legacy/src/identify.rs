//! Identifies an old file by its content.

use std::path::Path;

use splitpoint::{FileKind, Result};

use crate::byte_order::ByteOrder;
use crate::files::{self, Files, Index};
use crate::identity::{Format, Identity};
use crate::pages::PagedFile;
use crate::{Source, cdb, dumb, gdbm};

/// Bytes of a file that reveal its format, if any do.
const HEAD_BYTES: usize = 512;
/// What a superblock of a Splitpoint store begins with.
const STORE_MAGICS: [&[u8; 8]; 2] = [b"\x89SPLIT\r\n", b"\xcf\x9a\x57\x13SPLT"];
/// Offset of the second superblock. The first is zero until the store has been used.
const STORE_SECOND_OFFSET: u64 = 4096;
/// Bytes of a file that reveal what else it is.
const KIND_HEAD_BYTES: usize = 16 << 10;

/// Returns what the file at `path` is, by its content, or `None` if the library does not recognize
/// it.
///
/// If the table is in several files, `.dir` and `.pag`, or `.dir`, `.dat` and `.bak`, `path` is one
/// of them or their common stem.
///
/// # Errors
///
/// - [`ErrorKind::NotAStore`](splitpoint::ErrorKind::NotAStore) if it is not a regular file.
/// - [`ErrorKind::Io`](splitpoint::ErrorKind::Io) if a system call fails.
///
/// # Cost
///
/// One read for a format with a magic number. dbm and sdbm have none, so it reads the complete
/// file.
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
    let Found { files, source, mark } = find(path.as_ref())?;
    if mark.is_some() {
        return Ok(mark);
    }
    Ok(PagedFile::recognize(source, &files)?.map(|file| file.identity))
}

/// The files of a table, and what marks its format.
pub(crate) struct Found {
    pub(crate) files: Files,
    /// The file with the records.
    pub(crate) source: Source,
    /// Its identity if it has a mark.
    pub(crate) mark: Option<Identity>,
}

/// Finds the files of the table at `path`.
///
/// A file belongs to a table beside it only if the content says so: the user must not get another
/// file than the one that he names.
pub(crate) fn find(path: &Path) -> Result<Found> {
    let is_file = path.is_file();
    for files in files::candidates(path) {
        match Found::of(files)? {
            Some(found) if !is_file || found.files.contain(path) => return Ok(found),
            _ => {}
        }
    }
    let files = Files::alone(path.to_path_buf());
    let source = Source::open(&files.data)?;
    let mark = by_magic(&source, &files)?;
    Ok(Found { files, source, mark })
}

impl Found {
    /// Identifies `files`, or returns `None` if their content does not make them one table.
    fn of(mut files: Files) -> Result<Option<Self>> {
        if let Some(index) = files.index.take() {
            return Self::of_dumb(files, &index);
        }
        let source = Source::open(&files.data)?;
        let mark = by_magic(&source, &files)?;
        if let Some(dir) = &files.dir {
            let dir = by_magic(&Source::open(dir)?, &Files::alone(dir.clone()))?;
            let formats = [&mark, &dir].map(|mark| mark.as_ref().map(|mark| mark.format));
            // Of the formats with a mark, only gdbm has a `.dir`, for programs of ndbm.
            let is_pair = matches!(
                formats,
                [None | Some(Format::Gdbm), None] | [Some(Format::Gdbm), Some(Format::Gdbm)]
            );
            if !is_pair {
                return Ok(None);
            }
        }
        Ok(Some(Self { files, source, mark }))
    }

    fn of_dumb(mut files: Files, index: &Index) -> Result<Option<Self>> {
        let Some(index) = dumb::sound_index(index, &files.data)? else { return Ok(None) };
        let source = Source::open(&files.data)?;
        if by_magic(&source, &files)?.is_some() {
            return Ok(None);
        }
        let mark = Some(dumb::identity_of(&source, &index));
        files.index = Some(index);
        Ok(Some(Self { files, source, mark }))
    }
}

/// Identifies a file that may have a foreign format.
pub(crate) fn kind_of(source: &Source) -> Result<FileKind> {
    let mut head = vec![0; KIND_HEAD_BYTES];
    let filled = source.read_at(0, &mut head)?;
    Ok(FileKind::of_content(&head[..filled], source.file_bytes()))
}

/// Identifies a file that has a mark: a magic number, or the places of tables.
pub(crate) fn by_magic(source: &Source, files: &Files) -> Result<Option<Identity>> {
    let mut head = [0; HEAD_BYTES];
    source.read_at(0, &mut head)?;
    let path = source.path();
    let numbers = |order: ByteOrder| (order.u32_at(&head, 0), order.u32_at(&head, 12));
    if is_store(&head) {
        return Ok(Some(Identity::new(Format::Store, path)));
    }
    // Before the numbers of four bytes: the place of a table may be one of these.
    if cdb::is_cdb(source)? {
        return Ok(Some(Identity::new(Format::Cdb, path)));
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
    let mut second = [0; STORE_MAGICS[0].len()];
    source.read_at(STORE_SECOND_OFFSET, &mut second)?;
    Ok(is_store(&second).then(|| Identity::new(Format::Store, path)))
}

/// Returns whether these are the first bytes of a store, perhaps of one with the mark of gdbm.
fn is_store(head: &[u8]) -> bool {
    STORE_MAGICS.iter().any(|magic| head.starts_with(*magic))
}

/// db 1.85 and its descendant in Kerberos.
fn of_berkeley(path: &Path, order: ByteOrder, magic: u32, head: &[u8]) -> Option<Identity> {
    const HASH: u32 = 0x0006_1561;
    const BTREE: u32 = 0x0005_3162;
    let version = order.u32_at(head, 4);
    let lorder = match order.u32_at(head, 8) {
        4321 => ByteOrder::Big,
        _ => ByteOrder::Little,
    };
    match (magic, order) {
        // Its header is big-endian, whatever the order of its pages.
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
