//! Counts of a part of the keys.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use splitpoint_lab::keys::KeyBatch;
use splitpoint_lab::study::{KeyFacts, Machine, Program};
use splitpoint_lab::{PartialStats, Report, Specimen};

use super::study::Study;
use super::{buckets_for, keys, raise, reduction_of, setup};

/// Bytes of keys that are copied before they are counted.
const BATCH_BYTES: u64 = 1 << 24;

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
}

#[pymethods]
impl Counts {
    #[new]
    fn of_no_keys(
        py: Python<'_>,
        hash: &str,
        reduction: &str,
        buckets: u64,
        seed: u64,
        sample_hashes: u32,
    ) -> PyResult<Self> {
        let setup = Specimen::by_name(hash)
            .and_then(|specimen| setup(specimen, reduction, buckets, seed))
            .map_err(|error| raise(py, &error))?;
        Ok(Self::new(PartialStats::new(setup.sample_hashes(sample_hashes))))
    }

    #[staticmethod]
    fn decode(py: Python<'_>, bytes: &[u8]) -> PyResult<Self> {
        PartialStats::setup_of(bytes)
            .and_then(|setup| PartialStats::decode(bytes, setup))
            .map(Self::new)
            .map_err(|error| raise(py, &error))
    }

    fn encode<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let bytes = py.detach(|| self.stats().encode());
        PyBytes::new(py, &bytes)
    }

    /// Returns the counts of the keys of both.
    fn merged(&self, py: Python<'_>, other: &Self) -> PyResult<Self> {
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
pub(super) fn add_keys(counts: Vec<PyRef<'_, Counts>>, source: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = source.py();
    let counts: Vec<&Counts> = counts.iter().map(|counts| &**counts).collect();
    let mut added: Vec<PartialStats> =
        counts.iter().map(|counts| PartialStats::new(*counts.stats().setup())).collect();
    let mut batch = KeyBatch::default();
    let count = |added: &mut [PartialStats], batch: &mut KeyBatch| {
        py.detach(|| {
            for stats in added {
                batch.iter().for_each(|key| stats.add(key));
            }
        });
        batch.clear();
    };
    keys::for_each(source, |key| {
        batch.push(key);
        if batch.key_bytes() >= BATCH_BYTES {
            count(&mut added, &mut batch);
        }
    })?;
    count(&mut added, &mut batch);
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
#[pyfunction]
pub(super) fn report_of(py: Python<'_>, counts: Vec<PyRef<'_, Counts>>) -> Study {
    let stats: Vec<PartialStats> = counts.iter().map(|counts| counts.stats().clone()).collect();
    drop(counts);
    py.detach(|| {
        let first = stats.first();
        let keys = KeyFacts {
            source: "keys".to_owned(),
            key_count: first.map_or(0, PartialStats::key_count),
            key_bytes: first.map_or(0, PartialStats::key_bytes),
            ..KeyFacts::default()
        };
        let program =
            Program { version: env!("CARGO_PKG_VERSION").to_owned(), ..Program::default() };
        let mut study = splitpoint_lab::Study::new(program, Machine::default(), keys);
        study.reports = stats.iter().map(Report::new).collect();
        Study::new(study)
    })
}
