//! Opening a table by its URL: the schemes of this crate, and those that other crates register.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use crate::db::Db;
use crate::error::{Error, Result};
use crate::options::{Create, Options};
use crate::table::Table;

/// Function that opens a table of an access method; other crates [register](register()) one.
///
/// It gets the part of the URL after the colon, and ignores options that do not apply to it.
pub type Opener = fn(&str, &Options) -> Result<Box<dyn Table>>;

/// The access methods that other crates have registered.
static OPENERS: RwLock<BTreeMap<&'static str, Opener>> = RwLock::new(BTreeMap::new());

/// Registers an access method for the URLs of one scheme.
///
/// From then on, [`open`] passes every URL that begins with `scheme` and a colon to `opener`, in
/// the whole process. A later registration of the same scheme replaces an earlier one. A crate with
/// an access method has a function that calls this one.
///
/// # Errors
///
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if `scheme` is `mem` or `file`, or could be
/// part of a path. A scheme has two or more letters, digits or `+-.`, and begins with a letter.
///
/// # Examples
///
/// ```
/// use splitpoint::{Options, Result, Table};
///
/// fn open_scratch(_name: &str, options: &Options) -> Result<Box<dyn Table>> {
///     Ok(Box::new(options.in_memory()?))
/// }
///
/// # fn main() -> Result<()> {
/// splitpoint::register("scratch", open_scratch)?;
/// assert!(splitpoint::open("scratch:pad")?.is_empty()?);
/// # Ok(())
/// # }
/// ```
pub fn register(scheme: &'static str, opener: Opener) -> Result<()> {
    let is_own = matches!(scheme, "mem" | "file");
    if is_own || scheme_of(&format!("{scheme}:")) != Some(scheme) {
        let reason = format!("`{scheme}:` is reserved, or could be part of a path");
        return Err(Error::Invalid { what: "URL", reason });
    }
    OPENERS.write().unwrap_or_else(PoisonError::into_inner).insert(scheme, opener);
    Ok(())
}

/// Opens a table by its URL.
///
/// `mem:` is a table in memory. A [registered](register()) scheme selects its access method.
/// Everything else is the path of a file, which is created if it is missing; `file:` may precede
/// it.
///
/// # Errors
///
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for an unknown scheme; otherwise as
/// [`Options::open`], or the errors of the access method.
///
/// # Examples
///
/// ```
/// # fn main() -> splitpoint::Result<()> {
/// let table = splitpoint::open("mem:")?;
/// assert!(table.is_empty()?);
/// # Ok(())
/// # }
/// ```
pub fn open(url: &str) -> Result<Box<dyn Table>> {
    open_with(url, &Options::new())
}

/// Opens a table by its URL like [`open`], with `options`.
///
/// # Errors
///
/// As [`open`]; also [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for `mem:` with
/// [`Create::Never`], because a table in memory is always new.
///
/// # Examples
///
/// ```
/// # fn main() -> splitpoint::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("words.spt");
/// # let url = format!("file:{}", path.display());
/// use splitpoint::{Create, Options, TableExt};
///
/// let table = splitpoint::open_with(&url, &Options::new().create(Create::New))?;
/// table.put("key", "value")?;
/// table.close()?;
/// # Ok(())
/// # }
/// ```
pub fn open_with(url: &str, options: &Options) -> Result<Box<dyn Table>> {
    let db: Db = match scheme_of(url) {
        Some("mem") if options.create == Create::Never => {
            let reason = "a table in memory is always new".to_string();
            return Err(Error::Invalid { what: "options", reason });
        }
        Some("mem") => options.in_memory()?,
        Some("file") => options.open(&url["file:".len()..])?,
        Some(other) => return opener_of(other)?(&url[other.len() + 1..], options),
        None => options.open(url)?,
    };
    Ok(Box::new(db))
}

fn opener_of(scheme: &str) -> Result<Opener> {
    let openers = OPENERS.read().unwrap_or_else(PoisonError::into_inner);
    openers.get(scheme).copied().ok_or_else(|| {
        let known: Vec<&str> = ["mem", "file"].into_iter().chain(openers.keys().copied()).collect();
        let known = known.join(":`, `");
        let reason = format!("`{scheme}:` is not an access method; expected one of `{known}:`");
        Error::Invalid { what: "URL", reason }
    })
}

/// Returns the scheme of `url`, if it has one: two or more letters, digits or `+-.` before a colon.
/// A path that begins like a scheme can be written `./name:rest`.
fn scheme_of(url: &str) -> Option<&str> {
    let (scheme, _) = url.split_once(':')?;
    let is_scheme = scheme.len() >= 2
        && scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    is_scheme.then_some(scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_is_told_from_a_path() {
        for (url, scheme) in [
            ("mem:", Some("mem")),
            ("redis-cluster://h:1", Some("redis-cluster")),
            ("words.spt", None),
            ("./a:b", None),
            ("dir/a:b", None),
            ("C:words", None),
        ] {
            assert_eq!(scheme_of(url), scheme, "{url}");
        }
    }

    #[test]
    fn an_access_method_can_be_added_under_a_name_that_is_free() {
        fn refuse(rest: &str, options: &Options) -> Result<Box<dyn Table>> {
            let reason = format!("{rest}, {}", options.is_read_only());
            Err(Error::Invalid { what: "test", reason })
        }
        for scheme in ["mem", "file", "x", "a:b", "", "1991"] {
            assert!(register(scheme, refuse).is_err(), "{scheme}");
        }
        register("refused", refuse).unwrap();
        let error = open_with("refused:a:b?c", &Options::new().read_only()).unwrap_err();
        assert_eq!(error.to_string(), "invalid test: a:b?c, true");
        assert!(open("nobody:a").unwrap_err().to_string().contains("`refused:`"));
    }

    #[test]
    fn an_unknown_scheme_names_the_known_ones() {
        let error = open("gdbm:old.db").expect_err("no such access method yet");
        assert!(error.to_string().contains("`mem:`"), "{error}");
    }
}
