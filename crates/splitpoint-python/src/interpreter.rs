//! One interpreter of a process may use the package.
//!
//! The types, names and registries here are those of the process. A second interpreter would take
//! the first one's objects for its own, and `PyO3` refuses it only where it makes a module itself.

#![allow(unsafe_code, reason = "only the C interface tells interpreters apart")]

use std::sync::OnceLock;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

/// Refuses every interpreter but the first that asks.
///
/// # Errors
///
/// `ImportError` in another interpreter; what Python raised if it has no number for this one.
pub(crate) fn be_the_only_one(py: Python<'_>) -> PyResult<()> {
    static FIRST: OnceLock<i64> = OnceLock::new();
    // SAFETY: `py` shows that this thread is attached, so that it has an interpreter.
    let interpreter = unsafe { pyo3::ffi::PyInterpreterState_Get() };
    // SAFETY: the interpreter lives while a thread is attached to it.
    let number = unsafe { pyo3::ffi::PyInterpreterState_GetID(interpreter) };
    if number < 0 {
        return Err(PyErr::fetch(py));
    }
    if *FIRST.get_or_init(|| number) == number {
        return Ok(());
    }
    Err(PyImportError::new_err(
        "splitpoint works in one interpreter of a process, and another has imported it; \
         use processes or threads instead of subinterpreters",
    ))
}
