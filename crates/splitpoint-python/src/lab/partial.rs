//! Counts of a part of the keys.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use splitpoint_lab::study::{KeyFacts, Machine, Program};
use splitpoint_lab::{PartialStats, Report, Specimen};

use super::study::Study;
use super::{keys, raise, setup};

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

    /// Counts keys, all of them or none.
    fn add(&self, source: &Bound<'_, PyAny>) -> PyResult<()> {
        let setup = *self.stats().setup();
        let mut batch = splitpoint_lab::keys::KeyBatch::default();
        keys::for_each(source, |key| batch.push(key))?;
        source
            .py()
            .detach(|| {
                let counted = setup.count(batch.iter());
                // The setup is the same, so this does not fail.
                self.stats().merge(&counted)
            })
            .map_err(|error| raise(source.py(), &error))
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
