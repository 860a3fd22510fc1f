//! The names of the levels of durability.

use pyo3::prelude::*;
use splitpoint::Durability;

use crate::error;

/// Returns the level with this name.
///
/// # Errors
///
/// `splitpoint.error` with code `invalid`, which is a `ValueError`, for another name.
pub(crate) fn by_name(py: Python<'_>, name: &str) -> PyResult<Durability> {
    match name {
        "buffered" => Ok(Durability::Buffered),
        "async" => Ok(Durability::Async),
        "sync" => Ok(Durability::Sync),
        _ => Err(error::invalid(
            py,
            &format!("durability must be 'buffered', 'async' or 'sync', not {name:?}"),
        )),
    }
}
