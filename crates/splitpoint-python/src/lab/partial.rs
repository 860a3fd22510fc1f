//! Counts of a part of the keys.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use splitpoint_lab::keys::KeyBatch;
use splitpoint_lab::study::{KeyFacts, Machine, Program};
use splitpoint_lab::{Error, KeySketch, PartialStats, Report, Setup, Specimen};

use super::study::Study;
use super::{buckets_for, keys, no_keys, raise, reduction_of, setup};
use crate::{error, number, objects};

/// Bytes of keys that are copied before they are counted.
const BATCH_BYTES: u64 = 1 << 24;

/// Hashes that counts keep by themselves: 64 MiB of them on their way, 80 while keys are added. If more
/// are left when a hash counts as 8 at most, half as many to so many.
const HASHES_MAX: usize = 1 << 23;

/// Has counts keep one in 2 to this power of the hashes; with `"auto"`, as few as that takes.
fn sampled(setup: Setup, sample_hashes: &Bound<'_, PyAny>) -> PyResult<Setup> {
    if let Ok(word) = sample_hashes.cast::<PyString>() {
        return match word.to_str()? {
            "auto" => Ok(setup.limit_hashes(HASHES_MAX)),
            word => {
                let message = format!("sample_hashes must be a number or 'auto', not {word:?}");
                Err(error::invalid(sample_hashes.py(), &message))
            }
        };
    }
    Ok(setup.sample_hashes(number::sample_hashes(sample_hashes)?))
}

/// Which keys were counted, for an estimate of how many of them are different.
#[pyclass(frozen, module = "splitpoint._native")]
#[derive(Debug)]
pub(crate) struct Sketch(Mutex<KeySketch>);

impl Sketch {
    fn keys(&self) -> MutexGuard<'_, KeySketch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Sketch {
    #[new]
    fn of_no_keys() -> Self {
        Self(Mutex::default())
    }

    #[staticmethod]
    fn decode(py: Python<'_>, bytes: &[u8]) -> PyResult<Self> {
        let keys = KeySketch::decode(bytes).map_err(|error| raise(py, &error))?;
        Ok(Self(Mutex::new(keys)))
    }

    fn encode<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        objects::bytes(py, &self.keys().encode())
    }

    fn merged(&self, other: &Self) -> Self {
        // One lock at a time: both may be the same.
        let mut merged = self.keys().clone();
        let other = other.keys().clone();
        merged.merge(&other);
        Self(Mutex::new(merged))
    }

    fn estimate(&self) -> f64 {
        self.keys().estimate().key_count
    }
}

/// Counts of one function. `splitpoint.lab.Partial` has one for each of its functions.
#[pyclass(frozen, module = "splitpoint._native")]
#[derive(Debug)]
pub(crate) struct Counts {
    stats: Mutex<PartialStats>,
}

impl Counts {
    fn new(stats: PartialStats) -> Self {
        Self { stats: Mutex::new(stats) }
    }

    fn stats(&self) -> MutexGuard<'_, PartialStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that there is memory for a copy, to which `more_keys` are added.
    fn expect_memory(&self, more_keys: u64) -> Result<(), Error> {
        let (setup, key_count) = {
            let stats = self.stats();
            (*stats.setup(), stats.key_count())
        };
        setup.expect_memory(key_count.saturating_add(more_keys))
    }
}

#[pymethods]
impl Counts {
    #[new]
    fn of_no_keys(
        py: Python<'_>,
        hash: &str,
        reduction: &str,
        #[pyo3(from_py_with = number::buckets)] buckets: u64,
        #[pyo3(from_py_with = number::seed)] seed: u64,
        sample_hashes: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let setup = Specimen::by_name(hash)
            .and_then(|specimen| setup(specimen, reduction, buckets, seed))
            .map_err(|error| raise(py, &error))?;
        let setup = sampled(setup, sample_hashes)?;
        setup.expect_memory(0).map_err(|error| raise(py, &error))?;
        Ok(Self::new(PartialStats::new(setup)))
    }

    #[staticmethod]
    fn decode(py: Python<'_>, bytes: &[u8]) -> PyResult<Self> {
        PartialStats::setup_of(bytes)
            .and_then(|setup| PartialStats::decode(bytes, setup))
            .map(Self::new)
            .map_err(|error| raise(py, &error))
    }

    fn encode<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.expect_memory(0).map_err(|error| raise(py, &error))?;
        let bytes = py.detach(|| self.stats().encode());
        objects::bytes(py, &bytes)
    }

    /// Returns the counts of the keys of both.
    fn merged(&self, py: Python<'_>, other: &Self) -> PyResult<Self> {
        self.expect_memory(other.key_count()).map_err(|error| raise(py, &error))?;
        let merged = py.detach(|| {
            // One lock at a time: both may be the same.
            let mut merged = self.stats().clone();
            let other = other.stats().clone();
            merged.merge(&other).map(|()| merged)
        });
        merged.map(Self::new).map_err(|error| raise(py, &error))
    }

    #[getter]
    fn key_count(&self) -> u64 {
        self.stats().key_count()
    }

    #[getter]
    fn hash(&self) -> &'static str {
        self.stats().setup().specimen().name()
    }
}

/// Counts the keys of `source` by several functions, all of the keys or none.
///
/// It reads them once: an iterator and a stream cannot be read again.
#[pyfunction]
pub(super) fn add_keys(
    counts: Vec<PyRef<'_, Counts>>,
    sketch: &Sketch,
    source: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let py = source.py();
    let counts: Vec<&Counts> = counts.iter().map(|counts| &**counts).collect();
    let none_of = |counts: &&Counts| {
        let setup = *counts.stats().setup();
        setup.expect_memory(0).map(|()| PartialStats::new(setup))
    };
    let added: Result<Vec<PartialStats>, Error> = counts.iter().map(none_of).collect();
    let mut added = added.map_err(|error| raise(py, &error))?;
    let (mut batch, mut added_keys) = (KeyBatch::default(), KeySketch::default());
    let mut count = |added: &mut [PartialStats], batch: &mut KeyBatch| {
        let counted = py.detach(|| {
            for stats in added {
                stats.reserve(batch.len())?;
                batch.iter().for_each(|key| stats.add(key));
            }
            batch.iter().for_each(|key| added_keys.add(key));
            Ok(())
        });
        batch.clear();
        counted.map_err(|error| raise(py, &error))
    };
    keys::for_each(source, |key| {
        keys::push(&mut batch, key)?;
        if batch.key_bytes() >= BATCH_BYTES { count(&mut added, &mut batch) } else { Ok(()) }
    })?;
    count(&mut added, &mut batch)?;
    // Before any is merged, so that all keys count or none.
    counts
        .iter()
        .zip(&added)
        .try_for_each(|(counts, added)| counts.stats().reserve(added.key_count() as usize))
        .map_err(|error| raise(py, &error))?;
    sketch.keys().merge(&added_keys);
    // The setups are the same, so this does not fail.
    let merged = py.detach(|| {
        counts.iter().zip(&added).try_for_each(|(counts, added)| counts.stats().merge(added))
    });
    merged.map_err(|error| raise(py, &error))
}

/// Returns how many buckets a table of so many keys has by default.
#[pyfunction]
pub(super) fn bucket_count(
    py: Python<'_>,
    hash: &str,
    reduction: &str,
    key_count: u64,
) -> PyResult<u64> {
    Specimen::by_name(hash)
        .and_then(|specimen| reduction_of(specimen, reduction))
        .map(|reduction| buckets_for(reduction, key_count))
        .map_err(|error| raise(py, &error))
}

/// Returns the report of counts of the same keys by several functions.
///
/// # Errors
///
/// `ValueError` if no key was counted.
#[pyfunction]
pub(super) fn report_of(
    py: Python<'_>,
    counts: Vec<PyRef<'_, Counts>>,
    sketch: &Sketch,
) -> PyResult<Study> {
    let stats: Vec<PartialStats> = counts.iter().map(|counts| counts.stats().clone()).collect();
    drop(counts);
    let first = stats.first().map(|first| (first.key_count(), first.key_bytes()));
    let (key_count, key_bytes) =
        first.filter(|&(key_count, _)| key_count > 0).ok_or_else(|| no_keys(py))?;
    let mut distinct = sketch.keys().estimate();
    Ok(py.detach(|| {
        distinct.key_count = distinct.key_count.min(key_count as f64);
        let keys = KeyFacts {
            source: "keys".to_owned(),
            key_count,
            key_bytes,
            distinct_estimate: Some(distinct),
            ..KeyFacts::default()
        };
        let program =
            Program { version: env!("CARGO_PKG_VERSION").to_owned(), ..Program::default() };
        let mut study = splitpoint_lab::Study::new(program, Machine::default(), keys);
        study.reports = stats.iter().map(Report::new).collect();
        Study::new(study)
    }))
}
