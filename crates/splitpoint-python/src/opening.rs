//! What `splitpoint.open` and `open_url` do: the flags of dbm, old files.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use rustix::fs::{FlockOperation, flock, fsync};
use splitpoint::{Create, Error, ErrorKind, Options, Result, Sharing, Table, Unsupported};
use splitpoint_legacy::Format;

use crate::error;
use crate::handle::{Access, Opened};

/// Mode of a new file that asks for nothing special: the umask decides.
const MODE_DEFAULT: u32 = 0o666;

/// How long to wait between two attempts to open a file that is locked.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// How long an open waits between two looks for signals.
const LOOK_FOR_SIGNALS: Duration = Duration::from_millis(50);

/// Returns the way to share a file with this name.
///
/// # Errors
///
/// `splitpoint.error` with code `invalid`, which is a `ValueError`, for another name.
pub(crate) fn sharing_by_name(py: Python<'_>, name: &str) -> PyResult<Sharing> {
    match name {
        "one-writer" => Ok(Sharing::OneWriter),
        "exclusive" => Ok(Sharing::Exclusive),
        "shared" => Ok(Sharing::Shared),
        "per-call" => Ok(Sharing::PerCall),
        _ => {
            let message = format!(
                "sharing must be 'one-writer', 'exclusive', 'shared' or 'per-call', not {name:?}"
            );
            Err(error::invalid(py, &message))
        }
    }
}

/// What ends the wait of an open: the time, or an exception that the handler of a signal raises.
struct Look {
    begun: Instant,
    timeout: Duration,
    /// Whether the library has waited as long as it does by itself.
    is_again: AtomicBool,
    /// Only the main thread may, so only it looks for signals.
    may_run_handlers: bool,
    last: Mutex<Option<Instant>>,
    stopped: Mutex<Option<PyErr>>,
}

impl Look {
    fn new(py: Python<'_>, timeout: Duration) -> Self {
        Self {
            begun: Instant::now(),
            timeout,
            is_again: AtomicBool::new(false),
            may_run_handlers: may_run_handlers(py),
            last: Mutex::default(),
            stopped: Mutex::default(),
        }
    }

    fn rest(&self) -> Duration {
        self.timeout.saturating_sub(self.begun.elapsed())
    }

    /// Returns whether the library's wait is over before its own time.
    fn is_stopped(&self) -> bool {
        self.is_interrupted() || self.is_again.load(Relaxed) && self.rest().is_zero()
    }

    /// Returns whether a handler of a signal has raised an exception.
    fn is_interrupted(&self) -> bool {
        if !self.may_run_handlers {
            return false;
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.get_or_insert_with(Instant::now).elapsed() < LOOK_FOR_SIGNALS {
            return false;
        }
        *last = Some(Instant::now());
        drop(last);
        let stopped = Python::attach(|py| py.check_signals().err());
        let is_stopped = stopped.is_some();
        *self.stopped() = stopped;
        is_stopped
    }

    /// Sleeps before another attempt, which shall not wait longer than the time that is left; returns whether
    /// there is one.
    fn goes_on(&self) -> bool {
        let rest = self.rest();
        if rest.is_zero() || self.stopped().is_some() || self.is_interrupted() {
            return false;
        }
        self.is_again.store(true, Relaxed);
        std::thread::sleep(LOOK_AGAIN.min(rest));
        true
    }

    fn stopped(&self) -> MutexGuard<'_, Option<PyErr>> {
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether handlers of signals may run in this thread.
fn may_run_handlers(py: Python<'_>) -> bool {
    let is_main = || -> PyResult<bool> {
        // Importing it may need permissions that the program has given up.
        let threading = py.import("sys")?.getattr("modules")?.get_item("threading")?;
        let main = threading.call_method0("main_thread")?.getattr("ident")?;
        threading.call_method0("get_ident")?.eq(main)
    };
    // Without that module nobody has made a thread in Python.
    is_main().unwrap_or(true)
}

/// Calls `open` for the file `path`, if there is one, without the interpreter's lock until nobody else has the file locked,
/// or the time is over. Ctrl-C ends the wait, the library's own too if `open` uses the options that it gets.
///
/// # Errors
///
/// Those of `open`, and what a handler of a signal raises.
pub(crate) fn wait(
    py: Python<'_>,
    path: Option<&Path>,
    timeout: Duration,
    options: &Options,
    open: impl Fn(Options) -> Result<Opened> + Sync,
) -> PyResult<Opened> {
    let look = Arc::new(Look::new(py, timeout));
    // The table keeps the options, but nobody asks for an exception when this open is over.
    let weak = Arc::downgrade(&look);
    let options =
        options.clone().stop_waiting(move || weak.upgrade().is_some_and(|look| look.is_stopped()));
    let opened = py.detach(|| {
        loop {
            match open(options.clone()) {
                Err(error) if error.kind() == ErrorKind::Locked && look.goes_on() => {}
                opened => return opened,
            }
        }
    });
    let stopped = look.stopped().take();
    opened.map_err(|error| {
        stopped.unwrap_or_else(|| match path {
            Some(path) => error::raise_about(py, path, &error),
            None => error::raise_about_none(py, &error),
        })
    })
}

/// What to do with a file that exists or is missing: the letters of dbm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flag {
    /// `r`: an existing file, to read.
    Read,
    /// `w`: an existing file, to read and write.
    Write,
    /// `c`: the same, created if it is missing.
    Create,
    /// `n`: a new file in its place.
    New,
}

impl Flag {
    /// Returns the flag with this letter. `f`, `s` and `u` may follow, as with gdbm; they have no
    /// effect.
    pub(crate) fn of(letters: &str) -> Option<Self> {
        let mut rest = letters.chars();
        let flag = match rest.next()? {
            'r' => Self::Read,
            'w' => Self::Write,
            'c' => Self::Create,
            'n' => Self::New,
            _ => return None,
        };
        rest.all(|letter| "fsu".contains(letter)).then_some(flag)
    }

    fn apply(self, options: Options) -> Options {
        match self {
            Self::Read => options.read_only().create(Create::Never),
            Self::Write => options.create(Create::Never),
            Self::Create => options.create(Create::IfMissing),
            Self::New => options.create(Create::New),
        }
    }
}

/// Opens the table at a URL.
///
/// # Errors
///
/// Those of [`splitpoint::open_with`].
pub(crate) fn open_url(url: &Path, flag: Flag, options: Options) -> Result<Opened> {
    // A table in memory is always new, and so has no use for a flag.
    let is_memory = url.to_str() == Some("mem:") && flag != Flag::Read;
    let options = if is_memory { options } else { flag.apply(options) };
    let table = Access::of(splitpoint::open_with(url, &options)?);
    // Errors name the file.
    Ok(match file_of_url(url) {
        Some(file) => Opened::new(table, &file, options),
        None => Opened::new(table, url, options).in_memory(),
    })
}

/// Returns the path of the file of the table at `url`; `None` for a table in memory.
pub(crate) fn file_of_url(url: &Path) -> Option<PathBuf> {
    let Some(text) = url.to_str() else { return Some(url.to_path_buf()) };
    let path = if let Some(path) = text.strip_prefix("file:") {
        path
    } else if let Some(place) = text.strip_prefix("db185:") {
        // With the parameters of the table behind it.
        place.rsplit_once('?').map_or(place, |(path, _)| path)
    } else {
        return (!splitpoint::is_url(url)).then(|| url.to_path_buf());
    };
    (!path.is_empty()).then(|| path.into())
}

/// Opens the file at `path`; a new one gets `mode` before the umask.
///
/// # Errors
///
/// Those of [`splitpoint::open_with`]; [`ErrorKind::Unsupported`] if `flag` asks to write to an old
/// file that the library only reads.
pub(crate) fn open_path(path: &Path, flag: Flag, mode: u32, options: Options) -> Result<Opened> {
    // Nobody executes a store, whatever `mode` is.
    let options = flag.apply(options).file_mode(mode & MODE_DEFAULT);
    let table = match splitpoint::open_with(never_url(path), &options) {
        Err(error) if flag == Flag::New && error.kind() == ErrorKind::Exists => {
            replace(path, mode, &options)?
        }
        opened => opened?,
    };
    let is_refused = flag != Flag::Read && table.capabilities().is_read_only;
    let table = if is_refused {
        // It locks the file.
        drop(table);
        open_old(path, &options)?
    } else {
        table
    };
    Ok(Opened::new(Access::of(table), path, options))
}

/// Returns a path that is not taken for a URL, even if a colon is in the name.
fn never_url(path: &Path) -> PathBuf {
    let is_like_url = match path.components().next() {
        Some(Component::Normal(first)) => first.to_string_lossy().contains(':'),
        _ => false,
    };
    if is_like_url { Path::new(".").join(path) } else { path.to_path_buf() }
}

/// Opens an old file for writing, if the library writes its format.
fn open_old(path: &Path, options: &Options) -> Result<Box<dyn Table>> {
    let format = splitpoint_legacy::identify(path)?.map(|identity| identity.format);
    if format == Some(Format::Db185Hash)
        && let Some(path) = path.to_str()
    {
        return splitpoint::open_with(format!("db185:{path}"), options);
    }
    let reason = format!(
        "it is a file of {}, which splitpoint only reads; open it with flag 'r', or copy it into a \
         store: `splitpoint convert OLD NEW`",
        format.map_or("another program", Format::name)
    );
    Err(Error::Unsupported { path: path.to_path_buf(), feature: Unsupported::Format, reason })
}

/// Replaces the file at `path` by an empty store, in one step.
fn replace(path: &Path, mode: u32, options: &Options) -> Result<Box<dyn Table>> {
    let fail = |action, source: io::Error| Error::Io { action, path: path.to_path_buf(), source };
    // The file that a link leads to is replaced, not the link.
    let target = path.canonicalize().map_err(|source| fail("replace", source))?;
    let old = splitpoint::open_regular(&target, File::options().read(true))?;
    flock(&old, FlockOperation::NonBlockingLockExclusive).map_err(|_| Error::Locked {
        path: path.to_path_buf(),
        holders: splitpoint::holders(&old),
    })?;
    let mut new_name = target.clone().into_os_string();
    new_name.push(format!(".new-{}", std::process::id()));
    let new = PathBuf::from(new_name);
    // Whoever left it is dead: this handle has the lock under which it is made.
    match std::fs::remove_file(&new) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            return Err(fail("replace", source));
        }
        Ok(()) | Err(_) => {}
    }
    let mut new_options = options.clone().create(Create::New);
    // Whoever made the old file private meant what comes after, too, unless `mode` says otherwise.
    if mode == MODE_DEFAULT {
        let old_mode = old.metadata().map_err(|source| fail("replace", source))?.mode();
        new_options = new_options.file_mode(old_mode & MODE_DEFAULT);
    }
    let replaced = new_options.open(&new).and_then(|store| {
        store.close()?;
        std::fs::rename(&new, &target).map_err(|source| fail("replace", source))
    });
    if !matches!(replaced, Ok(()) | Err(Error::Exists { .. })) {
        // It is empty, and was created here.
        let _ = std::fs::remove_file(&new);
    }
    replaced?;
    let directory = target.parent().unwrap_or(Path::new("/"));
    File::open(directory)
        .and_then(|directory| Ok(fsync(&directory)?))
        .map_err(|source| fail("replace", source))?;
    splitpoint::open_with(never_url(path), &options.clone().create(Create::Never))
}
