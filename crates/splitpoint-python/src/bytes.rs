//! Keys and values that Python passes: bytes, text as UTF-8, or any buffer.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PyString};

/// Bytes that nobody changes: those of an immutable object, or a copy.
pub(crate) enum ByteString<'py> {
    Bytes(Bound<'py, PyBytes>),
    /// Text that has been encoded once, which Python keeps with the object.
    Text(Bound<'py, PyString>),
}

impl<'py> ByteString<'py> {
    /// Takes `object` as a key or a value, as `role` says in the error.
    ///
    /// # Errors
    ///
    /// `TypeError` for anything but bytes, text and buffers; `UnicodeEncodeError` for text with
    /// unpaired surrogates; what a buffer raises that gives its bytes no more.
    pub(crate) fn of(object: &Bound<'py, PyAny>, role: &str) -> PyResult<Self> {
        Self::owned(object.clone(), role)
    }

    /// The same, for an object that the caller needs no more.
    #[inline]
    pub(crate) fn owned(object: Bound<'py, PyAny>, role: &str) -> PyResult<Self> {
        // Of this very type, which asks the interpreter nothing.
        match object.cast_into_exact::<PyBytes>() {
            Ok(bytes) => Ok(Self::Bytes(bytes)),
            Err(other) => Self::of_other(other.into_inner(), role),
        }
    }

    #[inline(never)]
    fn of_other(object: Bound<'py, PyAny>, role: &str) -> PyResult<Self> {
        let object = match object.cast_into::<PyBytes>() {
            Ok(bytes) => return Ok(Self::Bytes(bytes)),
            Err(other) => other.into_inner(),
        };
        let object = match object.cast_into::<PyString>() {
            Ok(text) => {
                text.to_str()?;
                return Ok(Self::Text(text));
            }
            Err(other) => other.into_inner(),
        };
        let view = match PyMemoryView::from(&object) {
            Ok(view) => view,
            Err(error) if error.is_instance_of::<PyTypeError>(object.py()) => {
                let found = object.get_type().name()?;
                let message = format!("a {role} is bytes, str or a buffer, not {found}");
                return Err(PyTypeError::new_err(message));
            }
            // Of a buffer that gives its bytes no more: a view that was released, a file that was unmapped.
            Err(error) => return Err(error),
        };
        if holds_objects(&view)? {
            let found = object.get_type().name()?;
            let message = format!("a {role} is bytes, and the {found} holds references to objects");
            return Err(PyTypeError::new_err(message));
        }
        // A copy: another thread may change a bytearray while the interpreter's lock is released.
        Ok(Self::Bytes(view.call_method0("tobytes")?.cast_into()?))
    }

    /// Returns the bytes.
    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes.as_bytes(),
            // `of` has encoded it, so this does not fail.
            Self::Text(text) => text.to_str().unwrap_or_default().as_bytes(),
        }
    }
}

/// Returns whether the buffer has references to Python's objects, as an array of numpy with the dtype
/// `object` has. Their addresses are nothing to store, and a copy into such a buffer would forge them.
pub(crate) fn holds_objects(view: &Bound<'_, PyMemoryView>) -> PyResult<bool> {
    let format = view.getattr("format")?;
    // The names of the fields of a structure are between colons.
    Ok(format.cast::<PyString>()?.to_str()?.split(':').step_by(2).any(|codes| codes.contains('O')))
}

/// Refuses one key where many are expected: a `str` would give its characters.
///
/// # Errors
///
/// `TypeError`.
pub(crate) fn refuse_single(keys: &Bound<'_, PyAny>) -> PyResult<()> {
    if keys.is_instance_of::<PyBytes>() || keys.is_instance_of::<PyString>() {
        let message = "keys are an iterable of bytes or str, not one of them";
        return Err(PyTypeError::new_err(message));
    }
    Ok(())
}

/// Takes `object` as a key.
///
/// # Errors
///
/// As [`ByteString::of`].
pub(crate) fn key<'py>(object: &Bound<'py, PyAny>) -> PyResult<ByteString<'py>> {
    ByteString::of(object, "key")
}

/// Takes what an iterator has returned as a key.
///
/// # Errors
///
/// As [`ByteString::of`].
#[inline]
pub(crate) fn key_of(object: Bound<'_, PyAny>) -> PyResult<ByteString<'_>> {
    ByteString::owned(object, "key")
}

/// Takes `object` as a value.
///
/// # Errors
///
/// As [`ByteString::of`].
pub(crate) fn value<'py>(object: &Bound<'py, PyAny>) -> PyResult<ByteString<'py>> {
    ByteString::of(object, "value")
}

/// Takes what an iterator has returned as a value.
///
/// # Errors
///
/// As [`ByteString::of`].
#[inline]
pub(crate) fn value_of(object: Bound<'_, PyAny>) -> PyResult<ByteString<'_>> {
    ByteString::owned(object, "value")
}

/// Takes `object` as a value, or as the absence of one if it is Python's `None`.
///
/// # Errors
///
/// As [`ByteString::of`].
pub(crate) fn value_or_none<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<ByteString<'py>>> {
    if object.is_none() { Ok(None) } else { value(object).map(Some) }
}
