//! Records that Python passes: mappings, and iterables of pairs.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyList, PyTuple};

use crate::objects;

/// A key with its value, not yet looked at.
pub(crate) type Pair<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

/// What [`pairs_of`] returns.
pub(crate) enum Pairs<'py> {
    /// Those of a dict.
    Dict(std::vec::IntoIter<Pair<'py>>),
    /// The items of a mapping, or of an iterable.
    Items(Bound<'py, PyIterator>),
    /// The keys of a mapping, which has the values.
    Keys(Bound<'py, PyIterator>, Bound<'py, PyAny>),
}

impl<'py> Iterator for Pairs<'py> {
    type Item = PyResult<Pair<'py>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Items(items) => items.next().map(|item| pair_of(item?)),
            Self::Dict(pairs) => pairs.next().map(Ok),
            Self::Keys(keys, source) => keys.next().map(|key| {
                let key = key?;
                let value = source.get_item(&key)?;
                Ok((key, value))
            }),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Self::Dict(pairs) => pairs.size_hint(),
            Self::Items(_) | Self::Keys(..) => (0, None),
        }
    }
}

/// Returns the pairs of a mapping, or of an iterable of pairs: what `dict.update` takes.
///
/// # Errors
///
/// `TypeError` for anything else, `ValueError` for an item that is no pair.
pub(crate) fn pairs_of<'py>(source: &Bound<'py, PyAny>) -> PyResult<Pairs<'py>> {
    if let Ok(dict) = source.cast_exact::<PyDict>() {
        // All at once, without a tuple for each: while they are stored the dict may change.
        let mut pairs: Vec<Pair<'py>> = Vec::new();
        objects::reserve(&mut pairs, dict.len())?;
        pairs.extend(dict.iter());
        return Ok(Pairs::Dict(pairs.into_iter()));
    }
    if source.cast_exact::<PyList>().is_ok() {
        return Ok(Pairs::Items(source.try_iter()?));
    }
    if source.hasattr("items")? {
        return Ok(Pairs::Items(source.call_method0("items")?.try_iter()?));
    }
    if source.hasattr("keys")? {
        return Ok(Pairs::Keys(source.call_method0("keys")?.try_iter()?, source.clone()));
    }
    Ok(Pairs::Items(source.try_iter()?))
}

/// Returns the two elements of `item`, which is nearly always a tuple.
#[inline]
fn pair_of(item: Bound<'_, PyAny>) -> PyResult<Pair<'_>> {
    let tuple = match item.cast_into_exact::<PyTuple>() {
        Ok(tuple) => tuple,
        Err(other) => {
            let item = other.into_inner();
            item.py().get_type::<PyTuple>().call1((item,))?.cast_into()?
        }
    };
    if tuple.len() != 2 {
        let message =
            format!("a record must have 2 elements, a key and a value, not {}", tuple.len());
        return Err(PyValueError::new_err(message));
    }
    Ok((tuple.get_item(0)?, tuple.get_item(1)?))
}
