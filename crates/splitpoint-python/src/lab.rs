//! The lab: measurements of keys, and counts that merge. `python/splitpoint/lab` has the interface.

mod arrow;
mod keys;
mod own;
mod partial;
mod study;

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use splitpoint_lab::reduction::prime_at_least;
use splitpoint_lab::{Error, Reduction, Setup, Specimen};

use crate::error;

/// Adds the classes and functions of the lab to the module.
///
/// # Errors
///
/// Those of the interpreter.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<partial::Counts>()?;
    module.add_class::<partial::Sketch>()?;
    module.add_class::<study::Study>()?;
    module.add_function(wrap_pyfunction!(study::measure, module)?)?;
    module.add_function(wrap_pyfunction!(partial::add_keys, module)?)?;
    module.add_function(wrap_pyfunction!(partial::bucket_count, module)?)?;
    module.add_function(wrap_pyfunction!(partial::report_of, module)?)?;
    module.add_function(wrap_pyfunction!(hash_names, module)?)
}

/// Return the names of the hash functions of the lab, history first.
#[pyfunction]
fn hash_names() -> Vec<&'static str> {
    Specimen::all().map(Specimen::name).collect()
}

/// Returns the setup of one function in a table of `bucket_count` buckets.
///
/// # Errors
///
/// [`Error::UnknownReduction`] and [`Error::BucketCount`].
fn setup(
    specimen: &'static Specimen,
    reduction: &str,
    bucket_count: u64,
    seed: u64,
) -> Result<Setup, Error> {
    let reduction = reduction_of(specimen, reduction)?;
    Setup::new(specimen, seed, reduction, bucket_count)
}

/// Returns the reduction with this name; `own` is the one that the function was published with.
fn reduction_of(specimen: &Specimen, name: &str) -> Result<Reduction, Error> {
    match name {
        "own" => Ok(specimen.historic_reduction().unwrap_or(Reduction::LowMask)),
        _ => name.parse(),
    }
}

/// Returns how many buckets a table of so many keys has by default: about as many.
fn buckets_for(reduction: Reduction, key_count: u64) -> u64 {
    if reduction == Reduction::PrimeModulus {
        prime_at_least(key_count)
    } else if reduction.needs_power_of_two() {
        key_count.next_power_of_two()
    } else {
        key_count.max(1)
    }
}

/// Returns the exception of a measurement without keys, which would look like one of a good function.
fn no_keys(py: Python<'_>) -> PyErr {
    error::invalid(py, "there are no keys to measure")
}

/// Returns the exception for an error of the lab: a `ValueError`, or a `MemoryError`.
fn raise(py: Python<'_>, error: &Error) -> PyErr {
    match error {
        Error::NoMemory { .. } => PyMemoryError::new_err(()),
        error => error::invalid(py, &error.to_string()),
    }
}
