//! Errors of the library as exceptions. `splitpoint/_errors.py` has the classes and their `errno`.

use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
use std::path::Path;

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use rustix::io::Errno;
use splitpoint::{Error, ErrorKind, FileKind, Holder, HolderRole};

/// Returns the exception for an error of the library.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    if is_want_of_memory(error) {
        return PyMemoryError::new_err(());
    }
    let number = match error {
        Error::NotAStore { found: FileKind::Directory, .. } => Some(Errno::ISDIR.raw_os_error()),
        _ => error.io_error().and_then(std::io::Error::raw_os_error),
    };
    exception(py, code(error.kind()), number, &text(error), error.path())
}

/// Returns the exception for an error of a table that has no file, and so names none.
pub(crate) fn raise_about_none(py: Python<'_>, error: &Error) -> PyErr {
    if is_want_of_memory(error) {
        return raise(py, error);
    }
    exception(py, code(error.kind()), None, &text(error), None)
}

/// Returns the exception for an error of the file `path`, which it names.
pub(crate) fn raise_about(py: Python<'_>, path: &Path, error: &Error) -> PyErr {
    if error.path().is_some() || is_want_of_memory(error) {
        return raise(py, error);
    }
    let file = path.display();
    let message = match error.kind() {
        ErrorKind::Corrupt => {
            format!("`{file}`: {error}; `splitpoint check {file}` lists all damage")
        }
        ErrorKind::Poisoned if !has_advice(error) => {
            format!("`{file}`: {error}; close the table, and open it again")
        }
        // What is invalid is an argument of the program's.
        ErrorKind::Invalid => error.to_string(),
        _ => format!("`{file}`: {error}"),
    };
    exception(py, code(error.kind()), None, &message, Some(path))
}

/// Returns whether the process got no memory.
fn is_want_of_memory(error: &Error) -> bool {
    matches!(error, Error::Full { what: Error::MEMORY, .. })
}

/// Returns whether the reason of a poisoned handle says what to do.
fn has_advice(error: &Error) -> bool {
    let Error::Poisoned { reason } = error else { return false };
    reason.ends_with("open it again") || reason.contains("open the file again")
}

/// Returns the message of an error, with what a program in Python can do.
fn text(error: &Error) -> String {
    match error {
        Error::Locked { path, holders } => {
            let (path, list) = (path.display(), Holder::list(holders));
            format!("`{path}` is locked by {list}; {}", remedy_of_lock(holders))
        }
        Error::Io { action, source, .. }
            if action.starts_with("write the changes of a large transaction")
                && matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge) =>
        {
            format!("{error}; make room for it, or commit smaller transactions")
        }
        _ => error.to_string(),
    }
}

/// Returns what to do about a lock. Only a store says who has it locked for writing, and only stores can be written
/// by turns.
fn remedy_of_lock(holders: &[Holder]) -> &'static str {
    let is_of = |role| holders.iter().any(|holder| holder.role == role);
    if is_of(HolderRole::Writer) || is_of(HolderRole::TakesTurns) {
        "lock_timeout waits, and tables that are all opened with sharing='shared' are written by turns"
    } else {
        "lock_timeout waits"
    }
}

/// Returns the exception of a call on a closed table.
pub(crate) fn closed(py: Python<'_>) -> PyErr {
    exception(py, "closed", None, "I/O operation on closed table", None)
}

/// Returns the exception of a call on a snapshot or a transaction that has ended.
pub(crate) fn ended(py: Python<'_>, what: &str) -> PyErr {
    let message = format!("the {what} has ended, or its table is closed");
    exception(py, "closed", None, &message, None)
}

/// Returns the exception of a call in a child of the process that opened the table for writing.
pub(crate) fn forked(py: Python<'_>, path: &Path) -> PyErr {
    let message = format!(
        "`{}` was opened for writing before the fork, and belongs to the parent; open it again here, \
         after the parent has closed it",
        path.display()
    );
    exception(py, "forked", None, &message, Some(path))
}

/// Returns the exception of an option with an unusable value.
pub(crate) fn invalid(py: Python<'_>, message: &str) -> PyErr {
    exception(py, "invalid", None, message, None)
}

/// Returns what makes an exception. The module asks for it when it is imported, because nothing can be
/// imported any more when the interpreter ends.
///
/// # Errors
///
/// Those of the import.
pub(crate) fn maker(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    MAKE.import(py, "splitpoint._errors", "make")
}

fn exception(
    py: Python<'_>,
    code: &str,
    number: Option<i32>,
    message: &str,
    path: Option<&Path>,
) -> PyErr {
    let path = path.map(Path::as_os_str);
    match maker(py).and_then(|make| make.call1((code, number, message, path))) {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// Returns the name of a kind: `splitpoint.error.code`.
fn code(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Io => "io",
        ErrorKind::NotFound => "not_found",
        ErrorKind::NotAStore => "not_a_store",
        ErrorKind::Version => "version",
        ErrorKind::Corrupt => "corrupt",
        ErrorKind::Locked => "locked",
        ErrorKind::TooLarge => "too_large",
        ErrorKind::HashMismatch => "hash_mismatch",
        ErrorKind::ReadOnly => "read_only",
        ErrorKind::Exists => "exists",
        ErrorKind::Poisoned => "poisoned",
        ErrorKind::Full => "full",
        ErrorKind::Unsupported => "unsupported",
        ErrorKind::Invalid => "invalid",
        ErrorKind::SnapshotTooOld => "snapshot_too_old",
        ErrorKind::Conflict => "conflict",
        // A kind that this version does not know.
        _ => "other",
    }
}
