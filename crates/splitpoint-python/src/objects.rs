//! Objects of Python that hold what the table returns. Where memory is short they are an error: the
//! constructors of `PyO3` panic then.

#![allow(unsafe_code, reason = "PyO3 has no constructors that return an error and copy once")]

use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use splitpoint::{Error, Result};

/// Returns a copy of `bytes` for Python.
///
/// # Errors
///
/// `MemoryError`.
#[inline]
pub(crate) fn bytes<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    // A slice has at most `isize::MAX` bytes.
    let len = bytes.len().cast_signed();
    // SAFETY: `bytes` is `len` bytes to copy, and `py` shows that this thread holds the interpreter's lock.
    let object = unsafe { ffi::PyBytes_FromStringAndSize(bytes.as_ptr().cast(), len) };
    // SAFETY: the call has returned a new reference, or null and an exception.
    let object = unsafe { Bound::from_owned_ptr_or_err(py, object) }?;
    // SAFETY: it is what the call makes, a `bytes`.
    Ok(unsafe { object.cast_into_unchecked() })
}

/// Returns a tuple of a key and its value.
///
/// # Errors
///
/// `MemoryError`.
pub(crate) fn pair<'py>(
    py: Python<'py>,
    key: &[u8],
    value: &[u8],
) -> PyResult<Bound<'py, PyTuple>> {
    let (key, value) = (bytes(py, key)?, bytes(py, value)?);
    // SAFETY: two objects follow, as the first argument says, and `py` shows that this thread holds the
    // interpreter's lock. The tuple takes references of its own.
    let object = unsafe { ffi::PyTuple_Pack(2, key.as_ptr(), value.as_ptr()) };
    // SAFETY: the call has returned a new reference, or null and an exception.
    let object = unsafe { Bound::from_owned_ptr_or_err(py, object) }?;
    // SAFETY: it is what the call makes, a tuple.
    Ok(unsafe { object.cast_into_unchecked() })
}

/// Returns an empty list.
///
/// # Errors
///
/// `MemoryError`.
pub(crate) fn list(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    // SAFETY: `py` shows that this thread holds the interpreter's lock.
    let object = unsafe { ffi::PyList_New(0) };
    // SAFETY: the call has returned a new reference, or null and an exception.
    let object = unsafe { Bound::from_owned_ptr_or_err(py, object) }?;
    // SAFETY: it is what the call makes, a list.
    Ok(unsafe { object.cast_into_unchecked() })
}

/// Returns a copy of `bytes` that needs no interpreter.
///
/// # Errors
///
/// [`Error::Full`] with [`Error::MEMORY`].
pub(crate) fn copied(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len())
        .map_err(|_| Error::Full { what: Error::MEMORY, bytes: bytes.len() as u64 })?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// Makes room in a list of what Python passes, of which there may be as many as it has memory for.
///
/// # Errors
///
/// `MemoryError`.
pub(crate) fn reserve<T>(list: &mut Vec<T>, count: usize) -> PyResult<()> {
    list.try_reserve(count).map_err(|_| PyMemoryError::new_err(()))
}
