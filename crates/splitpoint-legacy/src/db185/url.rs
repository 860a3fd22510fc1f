//! The access method `db185:`: a path, and the parameters of `HASHINFO` behind a question mark.

use std::path::PathBuf;

use splitpoint::hash::HashFunction;
use splitpoint::{Create, Error, ErrorKind, Result, Table};

use super::disk::FileDisk;
use super::open::Options;
use crate::{ByteOrder, OldFile};

impl Options {
    /// Parses a URL without its `db185:`: the path and, behind the last question mark, the
    /// parameters of db 1.85 by their original names.
    ///
    /// | name | what |
    /// |---|---|
    /// | `bsize` | bytes of a page: [`page_bytes`](Self::page_bytes) |
    /// | `ffactor` | keys per bucket: [`fill_factor`](Self::fill_factor) |
    /// | `nelem` | records to make room for: [`expected_records`](Self::expected_records) |
    /// | `cachesize` | bytes of cache: [`cache_bytes`](Self::cache_bytes) |
    /// | `hash` | name of the hash function: [`hash`](Self::hash) |
    /// | `lorder` | 1234 or 4321: [`byte_order`](Self::byte_order) |
    ///
    /// 0 stands for the default, as in the structure `HASHINFO`. An existing file keeps its page
    /// size, fill factor and byte order. A path that contains a question mark needs another one at
    /// its end.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] for an unknown name or an impossible
    /// value.
    ///
    /// # Examples
    ///
    /// ```
    /// use splitpoint_legacy::db185::Options;
    ///
    /// # fn main() -> splitpoint::Result<()> {
    /// let (path, options) = Options::of_url("old.db?bsize=1024&lorder=4321")?;
    /// assert_eq!(path.to_str(), Some("old.db"));
    /// assert!(Options::of_url("old.db?pages=1024").is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn of_url(url: &str) -> Result<(PathBuf, Self)> {
        Self::new().and_url(url)
    }

    /// Parses a URL like [`of_url`](Self::of_url), but keeps the options that the URL does not set.
    ///
    /// # Errors
    ///
    /// As [`of_url`](Self::of_url).
    pub fn and_url(self, url: &str) -> Result<(PathBuf, Self)> {
        let (path, parameters) = url.rsplit_once('?').unwrap_or((url, ""));
        let parameters = parameters.split('&').filter(|parameter| !parameter.is_empty());
        let options = parameters.into_iter().try_fold(self, Self::and_parameter)?;
        Ok((path.into(), options))
    }

    fn and_parameter(self, parameter: &str) -> Result<Self> {
        let Some((name, value)) = parameter.split_once('=') else {
            return Err(invalid(format!("`{parameter}` is not a name, `=` and a value")));
        };
        if name == "hash" {
            let unknown = || {
                let known = HashFunction::names();
                invalid(format!("there is no hash function `{value}`; there are {known}"))
            };
            return HashFunction::by_name(value)
                .map(|function| self.hash(function))
                .ok_or_else(unknown);
        }
        let number: u32 = value
            .parse()
            .map_err(|_| invalid(format!("`{value}` is not a number of 32 bits for `{name}`")))?;
        Ok(match (name, number) {
            ("bsize" | "ffactor" | "nelem" | "cachesize" | "lorder", 0) => self,
            ("bsize", bytes) => self.page_bytes(bytes),
            ("ffactor", keys) => self.fill_factor(keys),
            ("nelem", records) => self.expected_records(records.into()),
            ("cachesize", bytes) => self.cache_bytes(bytes as usize),
            ("lorder", 1234) => self.byte_order(ByteOrder::Little),
            ("lorder", 4321) => self.byte_order(ByteOrder::Big),
            ("lorder", _) => {
                return Err(invalid(format!("byte order {number}: there are 1234 and 4321")));
            }
            _ => {
                return Err(invalid(format!(
                    "there is no parameter `{name}`: only bsize, ffactor, nelem, cachesize, hash \
                     and lorder"
                )));
            }
        })
    }
}

fn invalid(reason: String) -> Error {
    Error::Invalid { what: "URL", reason }
}

/// Cache where neither the options nor the URL bound it, in bytes: programs that come this way have
/// one table or a few, and the package's own default is of a time of small memories.
const CACHE_BYTES: u64 = 64 << 20;

/// Opens a table for [`splitpoint::open_with`]: in memory if the path is empty, and as an [`OldFile`]
/// if it is only read.
pub(crate) fn open(url: &str, options: &splitpoint::Options) -> Result<Box<dyn Table>> {
    let mut own = Options::new().create(options.creation()).file_mode(options.mode_of_file());
    if let Some(function) = options.chosen_hash() {
        own = own.hash(function.clone());
    }
    let cache_bytes = options.cache_bytes_max().unwrap_or(CACHE_BYTES);
    own = own.cache_bytes(usize::try_from(cache_bytes).unwrap_or(usize::MAX));
    let (path, own) = own.expected_records(options.record_count_expected()).and_url(url)?;
    if !path.as_os_str().is_empty() {
        if options.is_read_only() {
            return Ok(Box::new(open_to_read(path, &own)?));
        }
        return Ok(Box::new(own.open(path)?));
    }
    if options.creation() == Create::Never {
        return Err(invalid("a table in memory is always new".to_string()));
    }
    Ok(Box::new(own.in_memory()?))
}

/// Opens a file to read. While its creator has it locked, it is empty, or has a part of what the first sync writes:
/// what is found counts only under the lock.
fn open_to_read(path: PathBuf, options: &Options) -> Result<OldFile> {
    OldFile::db185(path.clone(), options).or_else(|found| {
        match FileDisk::open(&path, Create::Never, true, 0) {
            Ok(_lock) => OldFile::db185(path, options),
            Err(error) if error.kind() == ErrorKind::Locked => Err(error),
            Err(_) => Err(found),
        }
    })
}

#[cfg(test)]
mod tests {
    use splitpoint::{FileKind, TableExt};

    use super::*;

    #[test]
    fn a_file_beside_its_creator_is_locked_and_not_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new.db");
        let url = path.to_str().unwrap();
        let creator = Options::new().open(&path).unwrap();
        let read = || open(url, &splitpoint::Options::new().read_only()).map(drop);
        assert!(matches!(read().unwrap_err(), Error::Locked { .. }));
        // In the middle of its first sync.
        std::fs::write(&path, b"a page").unwrap();
        assert!(matches!(read().unwrap_err(), Error::Locked { .. }));
        std::fs::write(&path, b"").unwrap();
        drop(creator);
        read().unwrap();
        std::fs::write(&path, b"").unwrap();
        let found = read().unwrap_err();
        assert!(matches!(found, Error::NotAStore { found: FileKind::Empty, .. }), "{found}");
    }

    #[test]
    fn a_new_file_has_the_mode_of_the_options() {
        use std::os::unix::fs::PermissionsExt as _;

        crate::register().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("private.db");
        let options = splitpoint::Options::new().file_mode(0o600);
        let url = format!("db185:{}", path.display());
        splitpoint::open_with(&url, &options).unwrap().close().unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn the_parameters_of_1991_make_a_file_and_an_existing_one_keeps_its_own() {
        crate::register().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a?b.db");
        let url = format!(
            "db185:{}?bsize=1000&ffactor=12&nelem=300&cachesize=0&lorder=4321&hash=x33",
            path.display()
        );
        let table = splitpoint::open(&url).unwrap();
        table.put_new(b"key", b"value").unwrap();
        assert_eq!(table.stats().unwrap().geometry.bucket_count(), 32);
        drop(table);
        let table = splitpoint::open(&format!("db185:{}?bsize=64", path.display())).unwrap();
        assert_eq!(table.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
        drop(table);
        let (found, options) = Options::of_url(&format!("{}?", path.display())).unwrap();
        assert_eq!(found, path);
        let parameters = options.open(path).unwrap().parameters();
        assert_eq!((parameters.page_bytes, parameters.fill_factor), (1024, Some(12)));
        assert_eq!(parameters.byte_order, ByteOrder::Big);
    }

    #[test]
    fn what_is_to_be_read_is_not_made_and_memory_is_always_new() {
        crate::register().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let url = format!("db185:{}", dir.path().join("none.db").display());
        let read_only = splitpoint::Options::new().read_only();
        assert!(splitpoint::open_with(&url, &read_only).is_err());
        assert!(splitpoint::open_with("db185:?bsize=64", &read_only).is_err());
        assert!(splitpoint::open("db185:?bsize=64").unwrap().is_empty().unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_parameter_that_cannot_be_is_named() {
        for (url, word) in [
            ("a?size=1", "`size`"),
            ("a?bsize", "`bsize`"),
            ("a?bsize=big", "`big`"),
            ("a?lorder=12", "4321"),
            ("a?hash=md5", "`md5`; there are rapidhash-v3, xxh3-64, siphash-1-3, x33, fnv1a-64"),
            ("a?nelem=4294967296", "32 bits"),
        ] {
            let error = Options::of_url(url).unwrap_err().to_string();
            assert!(error.contains(word), "{url}: {error}");
        }
    }
}
