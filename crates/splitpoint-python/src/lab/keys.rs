//! Keys from Python: any iterable of bytes or text, an array of numbers, or a column of Arrow.

use pyo3::exceptions::{PyMemoryError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};
use splitpoint_lab::keys::{KeyBatch, KeyInput, KeySource, ReadError};

use super::arrow;
use crate::bytes;

/// Keys between two looks for Ctrl-C.
pub(super) const CHUNK: usize = 1 << 16;
/// Keys that the lab gets at a time.
const BATCH: usize = 4096;

/// Calls `work` on each key.
///
/// An array of numbers, such as one of numpy or of the module `array`, gives the bytes of each number
/// as a key, little-endian; so do a column of numbers of Arrow, and an index of pandas.
///
/// # Errors
///
/// `TypeError` for what holds no keys, `ValueError` for a null, and what the iterable or `work` raises.
pub(super) fn for_each(
    source: &Bound<'_, PyAny>,
    mut work: impl FnMut(&[u8]) -> PyResult<()>,
) -> PyResult<()> {
    bytes::refuse_single(source)?;
    if arrow::for_each(source, &mut work)? {
        return Ok(());
    }
    refuse_masked(source)?;
    // An index of pandas gives its numbers only so.
    let array = match PyMemoryView::from(source) {
        Err(_) if source.hasattr("__array__")? => source.call_method0("__array__")?,
        _ => source.clone(),
    };
    if let Ok(view) = PyMemoryView::from(&array)
        && is_of_numbers(&view)?
    {
        return for_each_number(&view, work);
    }
    for (index, key) in source.try_iter()?.enumerate() {
        work(bytes::key(&key?)?.as_slice())?;
        if index % CHUNK == CHUNK - 1 {
            source.py().check_signals()?;
        }
    }
    Ok(())
}

/// Refuses an array of numpy with masked elements: its buffer has what lies below the mask.
fn refuse_masked(source: &Bound<'_, PyAny>) -> PyResult<()> {
    // A series of pandas has a method `mask`, and nothing else has `compressed`.
    if !source.hasattr("compressed")? || !source.hasattr("mask")? {
        return Ok(());
    }
    let mask = source.getattr("mask")?;
    if !mask.call_method0("any")?.is_truthy()? {
        return Ok(());
    }
    let row = mask.call_method0("argmax")?;
    let message =
        format!("the key in row {row} is masked; leave such keys out with `compressed()`");
    Err(PyValueError::new_err(message))
}

/// Returns whether the items are numbers or bytes, and not pointers to objects or structures.
fn is_of_numbers(view: &Bound<'_, PyMemoryView>) -> PyResult<bool> {
    let format: String = view.getattr("format")?.extract()?;
    let format = format.trim_start_matches(['@', '=', '<', '>', '!']);
    Ok(format.len() == 1 && "bBhHiIlLqQnNefd?c".contains(format))
}

fn for_each_number(
    view: &Bound<'_, PyMemoryView>,
    mut work: impl FnMut(&[u8]) -> PyResult<()>,
) -> PyResult<()> {
    let dimension_count: usize = view.getattr("ndim")?.extract()?;
    let item_bytes: usize = view.getattr("itemsize")?.extract()?;
    if dimension_count != 1 {
        let message = format!("keys are an array of one dimension, not of {dimension_count}");
        return Err(PyTypeError::new_err(message));
    }
    let format: String = view.getattr("format")?.extract()?;
    // The other byte order than that of this machine.
    let is_swapped = if cfg!(target_endian = "big") {
        format.starts_with('<')
    } else {
        format.starts_with(['>', '!'])
    };
    let content = view.call_method0("tobytes")?.cast_into::<PyBytes>()?;
    let mut swapped = Vec::with_capacity(item_bytes);
    for bytes in content.as_bytes().chunks_exact(item_bytes.max(1)) {
        if is_swapped {
            swapped.clear();
            swapped.extend(bytes.iter().rev());
            number(&swapped, &mut work)?;
        } else {
            number(bytes, &mut work)?;
        }
    }
    Ok(())
}

/// Calls `work` on a number of this machine as a key: its bytes, little-endian.
pub(super) fn number(bytes: &[u8], mut work: impl FnMut(&[u8]) -> PyResult<()>) -> PyResult<()> {
    if cfg!(target_endian = "big") {
        work(&bytes.iter().rev().copied().collect::<Vec<_>>())
    } else {
        work(bytes)
    }
}

/// Adds a key to others in memory.
///
/// # Errors
///
/// `MemoryError`.
pub(super) fn push(keys: &mut KeyBatch, key: &[u8]) -> PyResult<()> {
    keys.reserve(1, key.len()).map_err(|_| PyMemoryError::new_err(()))?;
    keys.push(key);
    Ok(())
}

/// Keys in memory, as a source for the lab.
#[derive(Debug, Default)]
pub(super) struct HeldKeys(pub(super) KeyBatch);

impl KeySource for HeldKeys {
    fn open(&self) -> Result<Box<dyn KeyInput + Send + '_>, ReadError> {
        Ok(Box::new(HeldInput { keys: &self.0, next: 0 }))
    }
}

struct HeldInput<'a> {
    keys: &'a KeyBatch,
    next: usize,
}

impl KeyInput for HeldInput<'_> {
    fn read_batch(&mut self, batch: &mut KeyBatch) -> Result<bool, ReadError> {
        let end = self.keys.len().min(self.next + BATCH);
        for key in self.keys.slice(self.next..end).iter() {
            batch.reserve(1, key.len())?;
            batch.push(key);
        }
        self.next = end;
        Ok(end < self.keys.len())
    }
}
