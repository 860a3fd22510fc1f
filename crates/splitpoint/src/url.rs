//! Opens a table by its URL or its path, through this crate or an access method that another crate
//! has registered.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::options::{Create, Options};
use crate::storage::waiting::Waiting;
use crate::table::Table;

/// How long to wait between two attempts to open a file that another access method finds locked.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Function that opens a table of an access method; other crates [register](register()) one.
///
/// It receives the part of the URL after the colon, and ignores options that do not apply to the
/// access method. It need not wait for a lock: while it returns [`ErrorKind::Locked`], [`open_with`]
/// calls it again, for as long as [`Options::lock_timeout`] says.
pub type Opener = fn(&str, &Options) -> Result<Box<dyn Table>>;

/// Function that opens a file that is not a store, if it recognizes the format by the content.
///
/// It returns `None` for a file that it does not recognize. It receives the path as the program
/// gave it; the file may be missing, because some packages name a table by the common prefix of its
/// two files.
pub type Recognizer = fn(&Path, &Options) -> Result<Option<Box<dyn Table>>>;

/// The recognizers that other crates have registered, by name.
static RECOGNIZERS: RwLock<BTreeMap<&'static str, Recognizer>> = RwLock::new(BTreeMap::new());

/// The access methods that other crates have registered.
static OPENERS: RwLock<BTreeMap<&'static str, Opener>> = RwLock::new(BTreeMap::new());

/// Registers an access method for the URLs of one scheme.
///
/// From then on, [`open`] passes every URL that begins with `scheme` and a colon to `opener`, in
/// the whole process. A later registration of the same scheme replaces an earlier one. A crate that
/// provides an access method should export a function that makes this call.
///
/// # Errors
///
/// [`ErrorKind::Invalid`] if `scheme` is `mem` or `file`, or could be
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
    if is_own(scheme) || scheme_of(&format!("{scheme}:")) != Some(scheme) {
        let reason = format!("`{scheme}:` is reserved, or could be part of a path");
        return Err(Error::Invalid { what: "URL", reason });
    }
    OPENERS.write().unwrap_or_else(PoisonError::into_inner).insert(scheme, opener);
    Ok(())
}

/// Registers a recognizer of files for the whole process. It replaces an earlier one of the same
/// name.
///
/// From now on [`open`] calls it for each path that does not lead to a store.
///
/// # Examples
///
/// ```
/// use std::path::Path;
///
/// use splitpoint::{Options, Result, Table, TableExt};
///
/// /// Reads a list of words as a table of keys without values.
/// fn open_list(path: &Path, _options: &Options) -> Result<Option<Box<dyn Table>>> {
///     let Ok(text) = std::fs::read_to_string(path) else { return Ok(None) };
///     let table = Options::new().in_memory()?;
///     table.put_many(text.lines().map(|word| (word, "")))?;
///     Ok(Some(Box::new(table)))
/// }
///
/// # fn main() -> Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("words");
/// # std::fs::write(&path, "apple\nbanana\n").unwrap();
/// splitpoint::register_recognizer("list", open_list);
/// assert!(splitpoint::open(path)?.contains("banana")?);
/// # Ok(())
/// # }
/// ```
pub fn register_recognizer(name: &'static str, recognizer: Recognizer) {
    RECOGNIZERS.write().unwrap_or_else(PoisonError::into_inner).insert(name, recognizer);
}

/// Returns whether [`open`] treats `url` as the URL of a known access method.
///
/// If not, it is a path, or begins with an unregistered scheme.
///
/// # Examples
///
/// ```
/// assert!(splitpoint::is_url("mem:"));
/// assert!(!splitpoint::is_url("words.spt") && !splitpoint::is_url("./mem:"));
/// ```
pub fn is_url(url: impl AsRef<Path>) -> bool {
    let scheme = url.as_ref().to_str().and_then(scheme_of);
    scheme.is_some_and(|scheme| is_own(scheme) || opener_of(scheme).is_ok())
}

/// Opens a table by its URL or its path.
///
/// `mem:` is a table in memory. A [registered](register()) scheme selects its access method.
/// Everything else is the path of a file, which is created if it is missing; `file:` may precede
/// it. If the file is not a store, the first [recognizer](register_recognizer) that recognizes it
/// opens it, perhaps read-only: see [`Capabilities::is_read_only`](crate::Capabilities).
///
/// # Errors
///
/// [`ErrorKind::Invalid`] for an unknown scheme; otherwise as
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
pub fn open(url: impl AsRef<Path>) -> Result<Box<dyn Table>> {
    open_with(url, &Options::new())
}

/// Opens a table by its URL like [`open`], with `options`.
///
/// # Errors
///
/// As [`open`]; also [`ErrorKind::Invalid`] for `mem:` with
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
pub fn open_with(url: impl AsRef<Path>, options: &Options) -> Result<Box<dyn Table>> {
    let path = url.as_ref();
    let Some((url, scheme)) = path.to_str().and_then(|url| Some((url, scheme_of(url)?))) else {
        return open_file(path, options);
    };
    let rest = &url[scheme.len() + 1..];
    match scheme {
        "mem" if options.create == Create::Never => {
            let reason = "a table in memory is always new".to_string();
            Err(Error::Invalid { what: "options", reason })
        }
        "mem" => Ok(Box::new(options.in_memory()?)),
        "file" => open_file(Path::new(rest), options),
        other => {
            let opener = opener_of(other)?;
            wait(options, || opener(rest, options))
        }
    }
}

/// Calls `open` until nobody else has the file locked, or the time of the options is over: other access methods
/// do not wait themselves.
fn wait<T>(options: &Options, mut open: impl FnMut() -> Result<T>) -> Result<T> {
    let mut waiting = Waiting::new(options);
    loop {
        match open() {
            Err(error)
                if error.kind() == ErrorKind::Locked
                    && !waiting.is_late(Duration::ZERO)
                    && !options.stops_waiting() =>
            {
                waiting.tell(|| error);
                std::thread::sleep(LOOK_AGAIN);
            }
            opened => return opened,
        }
    }
}

/// Opens a store, or a file that a recognizer knows.
fn open_file(path: &Path, options: &Options) -> Result<Box<dyn Table>> {
    // First, before a store is created: the path may name a table by its files' common beginning.
    if path.symlink_metadata().is_err()
        && let Some(table) = recognize(path, options)?
    {
        return match options.create {
            Create::New => Err(Error::Exists { path: path.to_path_buf() }),
            Create::IfMissing | Create::Never => Ok(table),
        };
    }
    match options.open(path) {
        Err(error) if error.kind() == ErrorKind::NotAStore => {
            recognize(path, options)?.ok_or(error)
        }
        opened => Ok(Box::new(opened?)),
    }
}

fn recognize(path: &Path, options: &Options) -> Result<Option<Box<dyn Table>>> {
    // Not under the lock: a recognizer may open tables itself.
    let recognizers: Vec<Recognizer> = {
        let recognizers = RECOGNIZERS.read().unwrap_or_else(PoisonError::into_inner);
        recognizers.values().copied().collect()
    };
    for recognizer in recognizers {
        if let Some(table) = wait(options, || recognizer(path, options))? {
            return Ok(Some(table));
        }
    }
    Ok(None)
}

/// Returns whether a scheme is this crate's own.
fn is_own(scheme: &str) -> bool {
    matches!(scheme, "mem" | "file")
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
    use std::sync::atomic::{AtomicUsize, Ordering};

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
    fn an_access_method_is_called_again_while_it_finds_the_file_locked_and_time_is_left() {
        static CALLS: AtomicUsize = AtomicUsize::new(0);

        /// Finds the file locked, as often as `rest` says.
        fn open_late(rest: &str, _options: &Options) -> Result<Box<dyn Table>> {
            if CALLS.fetch_add(1, Ordering::Relaxed) < rest.parse().unwrap() {
                return Err(Error::Locked { path: rest.into(), holders: Vec::new() });
            }
            Ok(Box::new(Options::new().in_memory()?))
        }

        let call_count = |url: &str, options: &Options, is_opened: bool| {
            CALLS.store(0, Ordering::Relaxed);
            let opened = open_with(url, options).map_err(|error| error.kind());
            assert_eq!(opened.map(drop), if is_opened { Ok(()) } else { Err(ErrorKind::Locked) });
            CALLS.load(Ordering::Relaxed)
        };
        register("late", open_late).unwrap();
        let hour = Options::new().lock_timeout(Duration::from_secs(3600));
        assert_eq!(call_count("late:3", &hour, true), 4);
        assert_eq!(call_count("late:3", &Options::new(), false), 1);
        assert_eq!(call_count("late:3", &hour.stop_waiting(|| true), false), 1);
        let brief = Options::new().lock_timeout(Duration::from_millis(1));
        assert!(call_count("late:1000000", &brief, false) > 1);
    }

    /// Knows files that begin with `known`, and a table by its name without `.half`.
    fn recognize_known(path: &Path, _options: &Options) -> Result<Option<Box<dyn Table>>> {
        let half = path.with_added_extension("half");
        let text = std::fs::read(path).or_else(|_| std::fs::read(half)).unwrap_or_default();
        if !text.starts_with(b"known") {
            return Ok(None);
        }
        let table = Options::new().in_memory()?;
        table.put("key", "of another format")?;
        Ok(Some(Box::new(table)))
    }

    #[test]
    fn a_file_that_is_no_store_is_opened_by_the_recognizer_that_knows_it() {
        register_recognizer("known", recognize_known);
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("known"), "known content").unwrap();
        std::fs::write(path("named.half"), "known content").unwrap();
        std::fs::write(path("other"), "other content").unwrap();
        for name in ["known", "named"] {
            let table = open(path(name)).unwrap();
            assert_eq!(table.get_bytes(b"key").unwrap().unwrap(), "of another format");
        }
        assert!(!path("named").exists());
        let new = Options::new().create(Create::New);
        assert_eq!(open_with(path("named"), &new).unwrap_err().kind(), ErrorKind::Exists);
        assert_eq!(open(path("other")).unwrap_err().kind(), ErrorKind::NotAStore);
        let never = Options::new().create(Create::Never);
        assert_eq!(open_with(path("none"), &never).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(open(path("none")).unwrap().is_empty().unwrap());
    }

    #[test]
    fn only_a_scheme_that_is_registered_makes_a_url() {
        fn refuse(_rest: &str, _options: &Options) -> Result<Box<dyn Table>> {
            Err(Error::ReadOnly)
        }
        assert!(is_url("mem:") && is_url("file:a") && !is_url("later:a"));
        register("later", refuse).unwrap();
        assert!(is_url("later:a") && !is_url("./later:a"));
    }

    #[test]
    fn an_unknown_scheme_names_the_known_ones() {
        let error = open("gdbm:old.db").expect_err("no such access method yet");
        assert!(error.to_string().contains("`mem:`"), "{error}");
    }
}
