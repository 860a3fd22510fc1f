//! Whole numbers that Python passes: one that does not fit is a `ValueError` that says which argument it was,
//! what it may be and what it is.

use std::ops::RangeInclusive;

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;

use crate::error;

/// Takes `value` as the argument `name`, a number in `range`; `unit` follows the range in the message.
///
/// Not generic: the wheel shall be small.
///
/// # Errors
///
/// `splitpoint.error` with code `invalid`, which is a `ValueError`, for another number; `TypeError` for
/// anything else.
#[inline(never)]
fn within(
    value: &Bound<'_, PyAny>,
    name: &str,
    range: RangeInclusive<u64>,
    unit: &str,
) -> PyResult<u64> {
    let number = value.extract::<u64>();
    if number.as_ref().is_ok_and(|number| range.contains(number)) {
        return number;
    }
    Err(refusal(
        value,
        number.err(),
        &format!("{name} must be {} to {}{unit}", range.start(), range.end()),
    ))
}

/// Returns the exception for `value`, which is no number or not one that `expected` names; `error` is what
/// the interpreter says of it.
fn refusal(value: &Bound<'_, PyAny>, error: Option<PyErr>, expected: &str) -> PyErr {
    let py = value.py();
    match error {
        Some(other) if !other.is_instance_of::<PyOverflowError>(py) => other,
        _ => {
            // Python refuses to write thousands of digits.
            let found = value.str().map(|digits| digits.to_string());
            let found = found.unwrap_or_else(|_| "a longer number".to_owned());
            error::invalid(py, &format!("{expected}, not {found}"))
        }
    }
}

/// The mode of a new file.
pub(crate) fn mode(value: &Bound<'_, PyAny>) -> PyResult<u32> {
    within(value, "mode", 0..=u64::from(u32::MAX), "").map(|mode| mode as u32)
}

/// Records for which a new table makes room.
pub(crate) fn expected_records(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    within(value, "expected_records", 0..=u64::MAX, "")
}

/// Memory that a file takes at most; `None` for any.
pub(crate) fn cache_bytes(value: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    or_none(value, |value| within(value, "cache_bytes", 0..=u64::MAX, ""))
}

/// What is added to a counter.
pub(crate) fn by(value: &Bound<'_, PyAny>) -> PyResult<i64> {
    let expected = "by must be -9223372036854775808 to 9223372036854775807";
    value.extract().map_err(|error| refusal(value, Some(error), expected))
}

/// Buckets of a measured table.
pub(crate) fn buckets(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    within(value, "buckets", 1..=u64::MAX, "")
}

/// Buckets of a measured table; `None` for about as many as there are keys.
pub(crate) fn buckets_or_none(value: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    or_none(value, buckets)
}

/// The seed of a hash function.
pub(crate) fn seed(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    within(value, "seed", 0..=u64::MAX, "")
}

/// Bits of the hashes of a function in Python.
pub(crate) fn width(value: &Bound<'_, PyAny>) -> PyResult<u32> {
    within(value, "width", 1..=64, " bits").map(|bits| bits as u32)
}

/// The power of two of which one hash is kept: the command takes the same.
pub(crate) fn sample_hashes(value: &Bound<'_, PyAny>) -> PyResult<u32> {
    within(value, "sample_hashes", 0..=32, "").map(|power| power as u32)
}

/// Memory for the counts of a measurement.
pub(crate) fn memory_bytes(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    within(value, "memory_bytes", 0..=u64::MAX, "")
}

/// Threads of a measurement; 0 for all cores.
pub(crate) fn threads(value: &Bound<'_, PyAny>) -> PyResult<usize> {
    within(value, "threads", 0..=usize::MAX as u64, "").map(|threads| threads as usize)
}

fn or_none<T>(
    value: &Bound<'_, PyAny>,
    number: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>,
) -> PyResult<Option<T>> {
    if value.is_none() { Ok(None) } else { number(value).map(Some) }
}
