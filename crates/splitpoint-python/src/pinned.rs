//! A value as a buffer: Python reads it where it lies.

#![allow(unsafe_code, reason = "the buffer protocol is one of pointers")]

use std::ffi::c_int;
use std::fmt;
use std::sync::Arc;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use self_cell::self_cell;
use splitpoint::{Result, Value};

use crate::handle::Opened;

self_cell!(
    /// A value with the table that it borrows from.
    struct OwnedValue {
        owner: Arc<Opened>,
        #[covariant]
        dependent: Value,
    }
);

/// A value that is not copied. Its buffer is read-only and stays as it is; meanwhile the table cannot
/// be closed.
#[pyclass(frozen, module = "splitpoint._native")]
pub(crate) struct Pinned {
    value: OwnedValue,
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pinned({} bytes)", self.value.borrow_dependent().len())
    }
}

impl Pinned {
    /// Returns the value of `key` in `opened`, or `None`.
    ///
    /// # Errors
    ///
    /// Those of the access method.
    pub(crate) fn find(opened: Arc<Opened>, key: &[u8]) -> Result<Option<Self>> {
        let found = OwnedValue::try_new(opened, |opened| match opened.table().get_bytes(key) {
            Ok(Some(value)) => Ok(value),
            Ok(None) => Err(None),
            Err(error) => Err(Some(error)),
        });
        match found {
            Ok(value) => {
                value.borrow_owner().add_view();
                Ok(Some(Self { value }))
            }
            Err(None) => Ok(None),
            Err(Some(error)) => Err(error),
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.value.borrow_owner().remove_view();
    }
}

#[pymethods]
impl Pinned {
    fn __len__(&self) -> usize {
        self.value.borrow_dependent().len()
    }

    /// Exports the value. The exported buffer holds a reference to this object, and so the value.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("there is no view to fill"));
        }
        let bytes: &[u8] = slf.get().value.borrow_dependent();
        let Ok(len) = isize::try_from(bytes.len()) else {
            return Err(PyBufferError::new_err("the value does not fit into memory"));
        };
        let start = bytes.as_ptr().cast_mut().cast();
        // SAFETY: the interpreter passes a view to fill, which is not null. `start` points to `len`
        // bytes that live as long as `slf`: a frozen class never replaces its value, and the view
        // holds a reference to `slf`. It is read-only, so nobody writes through the pointer.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, len, 1, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
