//! Records that Python passes: mappings, and iterables of pairs.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// A key with its value, not yet looked at.
pub(crate) type Pair<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

/// Returns the pairs of a mapping, or of an iterable of pairs: what `dict.update` takes.
///
/// # Errors
///
/// `TypeError` for anything else, `ValueError` for an item that is no pair.
pub(crate) fn pairs_of<'py>(
    source: &Bound<'py, PyAny>,
) -> PyResult<Box<dyn Iterator<Item = PyResult<Pair<'py>>> + 'py>> {
    if let Ok(dict) = source.cast_exact::<PyDict>() {
        // All at once, without a tuple for each: while they are stored the dict may change.
        let pairs: Vec<Pair<'py>> = dict.iter().collect();
        return Ok(Box::new(pairs.into_iter().map(Ok)));
    }
    if source.hasattr("items")? {
        let items = source.call_method0("items")?.try_iter()?;
        return Ok(Box::new(items.map(|item| pair_of(item?))));
    }
    if source.hasattr("keys")? {
        let (keys, source) = (source.call_method0("keys")?.try_iter()?, source.clone());
        return Ok(Box::new(keys.map(move |key| {
            let key = key?;
            let value = source.get_item(&key)?;
            Ok((key, value))
        })));
    }
    Ok(Box::new(source.try_iter()?.map(|item| pair_of(item?))))
}

/// Returns the two elements of `item`, which is nearly always a tuple.
fn pair_of(item: Bound<'_, PyAny>) -> PyResult<Pair<'_>> {
    let tuple = match item.cast_into::<PyTuple>() {
        Ok(tuple) => tuple,
        Err(other) => {
            let item = other.into_inner();
            item.py().get_type::<PyTuple>().call1((item,))?.cast_into()?
        }
    };
    if tuple.len() != 2 {
        let message = format!("a record is a key and a value, not {} elements", tuple.len());
        return Err(PyValueError::new_err(message));
    }
    Ok((tuple.get_item(0)?, tuple.get_item(1)?))
}
