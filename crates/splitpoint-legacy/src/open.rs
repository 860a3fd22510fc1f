//! Opens a file by its content.

use std::path::Path;

use splitpoint::{Error, ErrorKind, Options, Result, Table, Unsupported};

use crate::Source;
use crate::bdb::{BtreeFile, HashFile};
use crate::cdb::CdbFile;
use crate::db185::{self, Db185File};
use crate::dumb::DumbFile;
use crate::gdbm::GdbmFile;
use crate::identify::{Found, find, kind_of};
use crate::identity::{Format, Identity};
use crate::krb5::Krb5File;
use crate::old_file::OldFile;
use crate::pages::PagedFile;
use crate::reader::Reader;

/// Opens the old file at `path` for reading, whatever its format.
///
/// If the table is in several files, `.dir` and `.pag`, or `.dir`, `.dat` and `.bak`, `path` is one
/// of them or their common stem.
/// The library never writes the file.
///
/// # Errors
///
/// - [`ErrorKind::NotAStore`] if the content has no known format,
///   or the file is not a regular file.
/// - [`ErrorKind::Unsupported`] if the library recognizes the
///   format but cannot read it.
/// - [`ErrorKind::Corrupt`] if the header is too damaged to find
///   anything by it.
/// - [`ErrorKind::Io`] if a system call fails.
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

/// Opens the old file at `path` like [`open`], but accepts a damaged header, for
/// [`OldFile::salvage`].
///
/// # Errors
///
/// As [`open`], less often.
pub fn open_damaged(path: impl AsRef<Path>) -> Result<OldFile> {
    open_as(path.as_ref(), true)
}

/// Opens the file at `path` for [`splitpoint::open`], if it is an old file that this library knows.
pub(crate) fn recognize(path: &Path, _options: &Options) -> Result<Option<Box<dyn Table>>> {
    let opened = find(path).and_then(|found| match &found.mark {
        // Made since the library has found none.
        Some(identity) if identity.format == Format::Store => Ok(None),
        _ => open_found(path, found, false).map(Some),
    });
    match opened {
        Ok(file) => Ok(file.map(|file| Box::new(file) as _)),
        Err(error) if matches!(error.kind(), ErrorKind::NotAStore | ErrorKind::NotFound) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

impl OldFile {
    /// Opens the db 1.85 file at `path` with `options`, which may name the hash function that
    /// created it.
    ///
    /// # Errors
    ///
    /// As [`open`](crate::open()); [`ErrorKind::NotAStore`] if it
    /// has another format.
    pub fn db185(path: impl AsRef<Path>, options: &db185::Options) -> Result<Self> {
        open_db185(path.as_ref(), options)
    }
}

/// Opens the db 1.85 file at `path` with `options`.
fn open_db185(path: &Path, options: &db185::Options) -> Result<OldFile> {
    let Found { source, mark, .. } = find(path)?;
    match mark {
        Some(identity) if identity.format == Format::Db185Hash => {
            Ok(OldFile::new(Box::new(Db185File::open(identity, options)?)))
        }
        Some(Identity { path, format, .. }) => {
            let reason = format!("it is a {} file, not a db 1.85 file", format.name());
            Err(Error::Unsupported { path, feature: Unsupported::Format, reason })
        }
        None => Err(Error::NotAStore { path: path.to_path_buf(), found: kind_of(&source)? }),
    }
}

fn open_as(path: &Path, is_salvage: bool) -> Result<OldFile> {
    open_found(path, find(path)?, is_salvage)
}

fn open_found(path: &Path, found: Found, is_salvage: bool) -> Result<OldFile> {
    let Found { files, source, mark } = found;
    if let Some(identity) = mark {
        return by_format(source, identity, is_salvage).map(OldFile::new);
    }
    // Before blocks without any mark, which a damaged file can resemble by chance.
    if is_salvage && let Some(file) = Db185File::open_unmarked(&files.data)? {
        return Ok(OldFile::new(Box::new(file)));
    }
    let found = kind_of(&source)?;
    match PagedFile::recognize(source, &files)? {
        Some(file) => Ok(OldFile::new(Box::new(file))),
        None => Err(Error::NotAStore { path: path.to_path_buf(), found }),
    }
}

/// Opens a file of a read-only format with a magic number.
pub(crate) fn by_format(
    source: Source,
    identity: Identity,
    is_salvage: bool,
) -> Result<Box<dyn Reader>> {
    match identity.format {
        Format::Db185Hash => {
            let damaged = is_salvage.then(|| Db185File::open_damaged(identity.clone()));
            Ok(Box::new(match damaged.transpose()?.flatten() {
                Some(file) => file,
                None => Db185File::open(identity, &db185::Options::new())?,
            }))
        }
        Format::Gdbm => Ok(Box::new(GdbmFile::open(source, identity, is_salvage)?)),
        Format::Krb5Hash => Ok(Box::new(Krb5File::open(source, identity)?)),
        Format::BdbHash => Ok(Box::new(HashFile::open(source, identity)?)),
        Format::Cdb => Ok(Box::new(CdbFile::open(source, identity)?)),
        Format::Dumb => Ok(Box::new(DumbFile::open(source, identity)?)),
        Format::BdbBtree => Ok(Box::new(BtreeFile::open(source, identity)?)),
        _ => {
            let reason = match identity.format {
                Format::Store => "it is a store, not an old file".to_string(),
                format => format!("files of the format {} cannot be read", format.name()),
            };
            Err(Error::Unsupported { path: identity.path, feature: Unsupported::Format, reason })
        }
    }
}
