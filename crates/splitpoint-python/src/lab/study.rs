//! A measurement of keys by several functions, and its report in every form.

use std::panic::resume_unwind;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::{PyMemoryError, PyOSError};
use pyo3::prelude::*;
use splitpoint_lab::document::Look;
use splitpoint_lab::drive::{self, Limits};
use splitpoint_lab::keys::{Done, DuplicatePolicy, KeyBatch, Keys, Phase, ReadError, Watch};
use splitpoint_lab::study::{Machine, Program};
use splitpoint_lab::{Error, KeyPositions, KeySample, Report, Setup, Specimen, report};

use super::keys::{HeldKeys, for_each, push};
use super::own::Calls;
use super::{buckets_for, no_keys, raise, reduction_of, setup};
use crate::{error, number};

/// Keys among which the lab looks for the bits that are to blame, as the command does.
const BLAMED_KEYS: usize = 512;

/// What a measurement found. `splitpoint.lab.Report` shows it.
#[pyclass(frozen, module = "splitpoint._native")]
#[derive(Debug)]
pub(crate) struct Study {
    study: splitpoint_lab::Study,
}

impl Study {
    pub(super) fn new(study: splitpoint_lab::Study) -> Self {
        Self { study }
    }
}

#[pymethods]
impl Study {
    fn json(&self, py: Python<'_>) -> PyResult<String> {
        serde_json::to_string(&self.study).map_err(|error| error::invalid(py, &error.to_string()))
    }

    /// Return the study that `json` has written.
    #[staticmethod]
    fn of_json(py: Python<'_>, text: &str) -> PyResult<Self> {
        // By the functions with which the command reads one, so that the wheel has them once.
        let study = serde_json::from_slice::<serde_json::Value>(text.as_bytes())
            .and_then(serde_json::from_value);
        study.map(Self::new).map_err(|error| error::invalid(py, &error.to_string()))
    }

    fn html(&self, py: Python<'_>) -> String {
        py.detach(|| report::document(&self.study).html())
    }

    fn markdown(&self, py: Python<'_>) -> String {
        py.detach(|| report::document(&self.study).markdown())
    }

    fn text(&self, py: Python<'_>, columns: usize) -> String {
        py.detach(|| report::document(&self.study).text(&Look::plain(columns)))
    }
}

/// Time between two looks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// Stops a measurement after Ctrl-C, and after an exception of the user's own function.
struct Watching(Calls);

impl Watch for Watching {
    fn progress(&mut self, _phase: Phase, _done: Done) {}

    fn is_stopped(&self) -> bool {
        self.0.has_failed()
    }
}

/// Runs `work` in another thread, while this one, which alone gets signals, looks for Ctrl-C.
///
/// # Errors
///
/// `OSError` if the system gives no thread.
fn watched<R: Send>(py: Python<'_>, calls: &Calls, work: impl FnOnce() -> R + Send) -> PyResult<R> {
    py.detach(|| {
        thread::scope(|scope| {
            let (done, is_done) = mpsc::channel();
            let work = move || {
                let result = work();
                // Nobody waits if this thread has panicked.
                let _ = done.send(());
                result
            };
            let worker = thread::Builder::new().spawn_scoped(scope, work).map_err(|cause| {
                let message = format!("cannot start a thread: {cause}");
                PyOSError::new_err((cause.raw_os_error(), message))
            })?;
            while is_done.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                let looked = Python::attach(|py| {
                    py.check_signals()?;
                    Ok(())
                });
                if let Err(interrupt) = looked {
                    calls.fail(interrupt);
                }
            }
            Ok(worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
        })
    })
}

/// How to measure.
struct Plan {
    specimens: Vec<&'static Specimen>,
    reduction: String,
    bucket_count: Option<u64>,
    seed: u64,
    sample_hashes: u32,
    duplicates: DuplicatePolicy,
    limits: Limits,
}

impl Plan {
    /// Returns the setup of one function for so many keys.
    fn setup(&self, specimen: &'static Specimen, key_count: u64) -> Result<Setup, Error> {
        let reduction = reduction_of(specimen, &self.reduction)?;
        let bucket_count = self.bucket_count.unwrap_or_else(|| buckets_for(reduction, key_count));
        let setup = setup(specimen, &self.reduction, bucket_count, self.seed)?;
        Ok(setup.sample_hashes(self.sample_hashes))
    }

    fn run(
        &self,
        held: HeldKeys,
        watch: &mut Watching,
    ) -> Result<splitpoint_lab::Study, Unmeasured> {
        // They are in memory already, so the limit is only for the counts.
        let keys = Keys::read(Box::new(held), self.duplicates, u64::MAX, watch);
        let mut keys = keys?;
        "keys".clone_into(&mut keys.facts_mut().source);
        let setups: Vec<Setup> = self
            .specimens
            .iter()
            .map(|specimen| self.setup(specimen, keys.len()))
            .collect::<Result<_, Error>>()?;
        let (mut positions, mut sample) = (KeyPositions::default(), KeySample::new(BLAMED_KEYS));
        for key in keys.held().into_iter().flat_map(KeyBatch::iter) {
            positions.add(key);
            sample.add(key);
        }
        let outcome = drive::measure(&keys, &setups, self.limits, watch, |stats| {
            let mut report = Report::new(stats);
            if !stats.setup().specimen().is_foreign() {
                report.find_blame(stats, &positions, &sample);
            }
            report
        });
        let outcome = outcome?;
        let program =
            Program { version: env!("CARGO_PKG_VERSION").to_owned(), ..Program::default() };
        let facts = keys.facts().clone();
        let mut study = splitpoint_lab::Study::new(program, Machine::default(), facts);
        study.interruption = outcome.interruption;
        study.reports = outcome.results;
        Ok(study)
    }
}

/// Why there is no measurement.
enum Unmeasured {
    NoMemory,
    /// In words.
    Other(String),
}

impl From<ReadError> for Unmeasured {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::NoMemory { .. } => Self::NoMemory,
            other => Self::Other(other.to_string()),
        }
    }
}

impl From<Error> for Unmeasured {
    fn from(error: Error) -> Self {
        match error {
            Error::NoMemory { .. } => Self::NoMemory,
            other => Self::Other(other.to_string()),
        }
    }
}

/// Returns the functions of a measurement, each with a name of its own.
fn specimens(
    py: Python<'_>,
    hashes: &[Bound<'_, PyAny>],
    width_bits: u32,
    calls: &Calls,
) -> PyResult<Vec<&'static Specimen>> {
    let mut taken: Vec<&str> = Specimen::all().map(Specimen::name).collect();
    let mut specimens = Vec::with_capacity(hashes.len());
    for hash in hashes {
        let specimen = match hash.extract::<String>() {
            Ok(name) => Specimen::by_name(&name).map_err(|error| raise(py, &error))?,
            Err(_) => calls.specimen(hash, width_bits, &taken)?,
        };
        taken.push(specimen.name());
        specimens.push(specimen);
    }
    Ok(specimens)
}

/// Measures `hashes`, names or functions, on `keys`.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the options of splitpoint.lab.measure")]
pub(super) fn measure(
    py: Python<'_>,
    keys: &Bound<'_, PyAny>,
    hashes: Vec<Bound<'_, PyAny>>,
    #[pyo3(from_py_with = number::width)] width: u32,
    reduction: String,
    #[pyo3(from_py_with = number::buckets_or_none)] buckets: Option<u64>,
    #[pyo3(from_py_with = number::seed)] seed: u64,
    #[pyo3(from_py_with = number::sample_hashes)] sample_hashes: u32,
    has_duplicates: bool,
    #[pyo3(from_py_with = number::memory_bytes)] memory_bytes: u64,
    #[pyo3(from_py_with = number::threads)] threads: usize,
) -> PyResult<Study> {
    let calls = Calls::default();
    let measured = || {
        let plan = Plan {
            specimens: specimens(py, &hashes, width, &calls)?,
            reduction,
            bucket_count: buckets,
            seed,
            sample_hashes,
            duplicates: if has_duplicates {
                DuplicatePolicy::Keep
            } else {
                DuplicatePolicy::Remove
            },
            limits: Limits { memory_bytes, thread_count: threads },
        };
        let mut held = HeldKeys::default();
        for_each(keys, |key| push(&mut held.0, key))?;
        if held.0.is_empty() {
            return Err(no_keys(py));
        }
        let mut watch = Watching(calls.clone());
        let study = watched(py, &calls, || plan.run(held, &mut watch))?;
        study.map(Study::new).map_err(|failed| match failed {
            Unmeasured::NoMemory => PyMemoryError::new_err(()),
            Unmeasured::Other(message) => error::invalid(py, &message),
        })
    };
    let measured = measured();
    // After an error too: the lab itself never forgets a function.
    calls.finish().map_or(measured, Err)
}
