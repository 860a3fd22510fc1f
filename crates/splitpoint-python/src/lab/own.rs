//! A hash function in Python: it gets a list of keys, and returns an array of their hashes.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use splitpoint_lab::Specimen;
use splitpoint_lab::specimen::{Foreign, Seeding};

use crate::objects;

/// What the functions of one measurement share with the caller.
#[derive(Clone, Default)]
pub(super) struct Calls(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The functions, until the measurement ends: the lab never forgets a function.
    functions: Vec<Py<PyAny>>,
    /// The first exception of one of them.
    failure: Option<PyErr>,
}

impl Calls {
    /// Returns the function of the lab that calls `function`. Its name is none of `taken`: two lambdas have
    /// the same, and a report tells functions apart by their names.
    ///
    /// # Errors
    ///
    /// `TypeError` if it cannot be called.
    pub(super) fn specimen(
        &self,
        function: &Bound<'_, PyAny>,
        width_bits: u32,
        taken: &[&str],
    ) -> PyResult<&'static Specimen> {
        if !function.is_callable() {
            let found = function.get_type().name()?;
            let message = format!("a hash is a name or a function, not {found}");
            return Err(PyTypeError::new_err(message));
        }
        let own = name_of(function);
        let numbered = (2..).map(|number| format!("{own}-{number}"));
        let mut names = std::iter::once(own.clone()).chain(numbered);
        let name = names.find(|name| !taken.contains(&name.as_str())).unwrap_or(own);
        let mut state = self.state();
        let index = state.functions.len();
        state.functions.push(function.clone().unbind());
        let calling = Calling { calls: self.clone(), index, width_bits };
        Ok(Specimen::foreign(&name, width_bits, Seeding::None, calling))
    }

    /// Ends the measurement, and returns the first exception.
    pub(super) fn finish(&self) -> Option<PyErr> {
        let mut state = self.state();
        let functions = std::mem::take(&mut state.functions);
        let failure = state.failure.take();
        drop(state);
        // Without the lock: the last reference may run Python code.
        drop(functions);
        failure
    }

    /// Returns whether a function has raised.
    pub(super) fn has_failed(&self) -> bool {
        self.state().failure.is_some()
    }

    /// Notes an exception, if it is the first.
    pub(super) fn fail(&self, failure: PyErr) {
        self.state().failure.get_or_insert(failure);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the name of a function, as reports and errors have it.
fn name_of(function: &Bound<'_, PyAny>) -> String {
    function.getattr("__name__").map_or_else(|_| "own".to_owned(), |name| name.to_string())
}

/// One function.
struct Calling {
    calls: Calls,
    index: usize,
    width_bits: u32,
}

impl fmt::Debug for Calling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Calling({})", self.index)
    }
}

impl Calling {
    fn call(&self, py: Python<'_>, keys: &[&[u8]]) -> PyResult<Vec<Option<u64>>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let function = {
            let state = self.calls.state();
            state.functions.get(self.index).map(|function| function.clone_ref(py))
        };
        let Some(function) = function else { return Ok(vec![None; keys.len()]) };
        let list = objects::list(py)?;
        for key in keys {
            list.append(objects::bytes(py, key)?)?;
        }
        // What the function raises is the user's, and comes out as it is.
        let returned = function.bind(py).call1((list,))?;
        let name = || name_of(function.bind(py));
        let Ok(returned) = returned.try_iter() else {
            let found = returned.get_type().name()?;
            let message = format!(
                "the hash function `{}` returns an iterable of integers, not {found}",
                name()
            );
            return Err(PyTypeError::new_err(message));
        };
        let mut hashes = Vec::with_capacity(keys.len());
        for hash in returned {
            let hash = hash?;
            let number = hash.extract::<u64>().map_err(|cause| {
                let index = hashes.len();
                let message = format!(
                    "the hash function `{}` returned {hash:?} for the key {index} of {}; a hash is \
                     an integer from 0 to 2**64 - 1",
                    name(),
                    keys.len()
                );
                let (of_type, of_range) = (
                    cause.is_instance_of::<PyTypeError>(py),
                    cause.is_instance_of::<PyOverflowError>(py),
                );
                if !of_type && !of_range {
                    // What the function's own `__index__` raised.
                    return cause;
                }
                let error = if of_type {
                    PyTypeError::new_err(message)
                } else {
                    PyOverflowError::new_err(message)
                };
                error.set_cause(py, Some(cause));
                error
            })?;
            let bits = u64::BITS - number.leading_zeros();
            if bits > self.width_bits {
                return Err(PyValueError::new_err(format!(
                    "the hash function `{}` returned {hash:?} for the key {} of {}; it has {bits} bits, and \
                     `width` is {}",
                    name(),
                    hashes.len(),
                    keys.len(),
                    self.width_bits
                )));
            }
            hashes.push(Some(number));
        }
        if hashes.len() == keys.len() {
            return Ok(hashes);
        }
        Err(PyValueError::new_err(format!(
            "the hash function `{}` returned {} hashes for {} keys",
            name(),
            hashes.len(),
            keys.len()
        )))
    }
}

impl Foreign for Calling {
    fn hashes(&self, keys: &[&[u8]], _seed: u64) -> Vec<Option<u64>> {
        if self.calls.has_failed() {
            return vec![None; keys.len()];
        }
        Python::attach(|py| {
            self.call(py, keys).unwrap_or_else(|failure| {
                self.calls.fail(failure);
                vec![None; keys.len()]
            })
        })
    }
}
