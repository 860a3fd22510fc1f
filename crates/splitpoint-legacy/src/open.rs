//! Opening a file by its content.

use std::path::Path;

use splitpoint::{Error, Result};

use crate::Source;
use crate::bdb::BdbFile;
use crate::gdbm::GdbmFile;
use crate::identify::{Format, Identity, by_magic, files_of, unknown};
use crate::krb5::Krb5File;
use crate::old_file::OldFile;
use crate::pages::PagedFile;
use crate::reader::Reader;

/// Opens the old file at `path` to read it, whatever its format is.
///
/// Of a table in two files, `.dir` and `.pag`, either may be given, or what their names begin
/// with. The file is never written.
///
/// # Errors
///
/// - [`ErrorKind::NotAStore`](splitpoint::ErrorKind::NotAStore) if the content is of no format that
///   is known.
/// - [`ErrorKind::Unsupported`](splitpoint::ErrorKind::Unsupported) if it is known and not read.
/// - [`ErrorKind::Corrupt`](splitpoint::ErrorKind::Corrupt) if the header is damaged, so that
///   nothing can be found by it.
/// - [`ErrorKind::Io`](splitpoint::ErrorKind::Io) if the system refuses.
///
/// # Cost
///
/// As [`identify`](crate::identify()); for gdbm, the directory is read too.
///
/// # Examples
///
/// ```
/// use splitpoint::Table as _;
///
/// # fn main() -> splitpoint::Result<()> {
/// let old = splitpoint_legacy::open("tests/fixtures/ndbm-le-onepage")?;
/// assert_eq!(old.scan()?.count(), 10);
/// # Ok(())
/// # }
/// ```
pub fn open(path: impl AsRef<Path>) -> Result<OldFile> {
    open_as(path.as_ref(), false)
}

/// Opens the old file at `path` as [`open`] does, and goes on where a header is damaged: for
/// [`OldFile::salvage`].
///
/// # Errors
///
/// As [`open`], less often.
pub fn open_damaged(path: impl AsRef<Path>) -> Result<OldFile> {
    open_as(path.as_ref(), true)
}

fn open_as(path: &Path, is_salvage: bool) -> Result<OldFile> {
    let files = files_of(path);
    let source = Source::open(&files.data)?;
    let reader: Box<dyn Reader> = match by_magic(&source, &files)? {
        Some(identity) if identity.format == Format::Db185Hash => {
            return OldFile::db185(identity);
        }
        Some(identity) => by_format(source, identity, is_salvage)?,
        None => match PagedFile::recognize(source, &files)? {
            Some(file) => Box::new(file),
            None => return Err(unknown(path)),
        },
    };
    Ok(OldFile::new(reader))
}

/// Opens a file of a format that has a magic number and is only read.
pub(crate) fn by_format(
    source: Source,
    identity: Identity,
    is_salvage: bool,
) -> Result<Box<dyn Reader>> {
    match identity.format {
        Format::Gdbm => Ok(Box::new(GdbmFile::open(source, identity, is_salvage)?)),
        Format::Krb5Hash => Ok(Box::new(Krb5File::open(source, identity)?)),
        Format::BdbHash => Ok(Box::new(BdbFile::open(source, identity)?)),
        _ => {
            let reason = format!("a {} file is not read", identity.format.name());
            Err(Error::Unsupported { path: identity.path, reason })
        }
    }
}
