//! Records that Python passes: mappings, and iterables of pairs.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

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
    if source.hasattr("items")? {
        let items = source.call_method0("items")?.try_iter()?;
        return Ok(Box::new(items.map(|item| pair_of(&item?))));
    }
    if source.hasattr("keys")? {
        let (keys, source) = (source.call_method0("keys")?.try_iter()?, source.clone());
        return Ok(Box::new(keys.map(move |key| {
            let key = key?;
            let value = source.get_item(&key)?;
            Ok((key, value))
        })));
    }
    Ok(Box::new(source.try_iter()?.map(|item| pair_of(&item?))))
}

/// Returns the two elements of `item`, which is nearly always a tuple.
fn pair_of<'py>(item: &Bound<'py, PyAny>) -> PyResult<Pair<'py>> {
    let tuple = match item.cast::<PyTuple>() {
        Ok(tuple) => tuple.clone(),
        Err(_) => item.py().get_type::<PyTuple>().call1((item,))?.cast_into()?,
    };
    if tuple.len() != 2 {
        let message = format!("a record is a key and a value, not {} elements", tuple.len());
        return Err(PyValueError::new_err(message));
    }
    Ok((tuple.get_item(0)?, tuple.get_item(1)?))
}
