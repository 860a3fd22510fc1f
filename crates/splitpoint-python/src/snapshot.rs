//! The native half of `splitpoint.Snapshot`; `python/splitpoint/_moments.py` has the other.

use std::sync::{Arc, PoisonError};

use pyo3::exceptions::PyKeyError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use self_cell::self_cell;

use crate::handle::{Attached, Opened, Origin};
use crate::scan::{Part, Scan, Source, Walk};
use crate::table::{Table, get_in_chunks};
use crate::{bytes, error, objects};

type View<'table> = splitpoint::Snapshot<'table>;

self_cell!(
    /// A snapshot with the table that it borrows from.
    pub(crate) struct Moment {
        owner: Arc<Opened>,
        #[covariant]
        dependent: View,
    }
);

/// A table as it was at one moment. `splitpoint.Snapshot` derives from it, and documents the methods.
#[pyclass(frozen, subclass, weakref, module = "splitpoint._native")]
pub(crate) struct Snapshot {
    table: Py<Table>,
    moment: Attached<Arc<Moment>>,
    origin: Origin,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("is_open", &self.open().is_some()).finish_non_exhaustive()
    }
}

impl Snapshot {
    fn open(&self) -> Option<Arc<Moment>> {
        self.moment.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn moment(&self, py: Python<'_>) -> PyResult<Arc<Moment>> {
        self.origin.check(py)?;
        self.open().ok_or_else(|| error::ended(py, "snapshot"))
    }

    fn find<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let (key, moment) = (bytes::key(key)?, self.moment(py)?);
        let found = moment.borrow_dependent().get(key.as_slice());
        let found = found.map_err(|error| moment.borrow_owner().raise(py, &error))?;
        found.map(|value| objects::bytes(py, &value)).transpose()
    }

    fn scan(&self, py: Python<'_>, part: Part) -> PyResult<Scan> {
        let moment = self.moment(py)?;
        let handle = &self.table.get().handle;
        let opened = handle.opened_to_read(py)?;
        let walk = handle.attach(py, opened, |_| Walk::begin(Source::Snapshot(moment)))?;
        Ok(Scan::new(walk, part, self.origin.clone()))
    }
}

#[pymethods]
impl Snapshot {
    #[new]
    fn new(table: Bound<'_, Table>) -> PyResult<Self> {
        let begin = |opened: Arc<Opened>| {
            Moment::try_new(opened, |opened| opened.store("snapshot")?.snapshot()).map(Arc::new)
        };
        let (py, handle) = (table.py(), &table.get().handle);
        let opened = handle.opened_to_read(py)?;
        let origin = opened.origin.clone();
        let moment = handle.attach(py, opened, begin)?;
        Ok(Self { table: table.unbind(), moment, origin })
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.find(py, key)?.ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.find(py, key)?.is_some())
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(usize::try_from(self.moment(py)?.borrow_dependent().len())?)
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Scan> {
        self.scan(py, Part::Keys)
    }

    /// Return an iterator over the values.
    #[pyo3(name = "_scan_values")]
    fn scan_values(&self, py: Python<'_>) -> PyResult<Scan> {
        self.scan(py, Part::Values)
    }

    /// Return an iterator over the keys with their values.
    #[pyo3(name = "_scan_items")]
    fn scan_items(&self, py: Python<'_>) -> PyResult<Scan> {
        self.scan(py, Part::Items)
    }

    /// Return the value that `key` had, or `default`.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.find(py, key)?.map(Bound::into_any).or(default))
    }

    /// Return the values that `keys` had in a list, in the same order, with `default` for a missing key.
    #[pyo3(signature = (keys, default=None))]
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let moment = self.moment(py)?;
        get_in_chunks(keys, default, |keys| {
            py.detach(|| moment.borrow_dependent().get_many(keys))
                .map_err(|error| moment.borrow_owner().raise(py, &error))
        })
    }

    /// Give back what the snapshot keeps in the table. Closing it again has no effect.
    fn close(&self, py: Python<'_>) {
        if self.origin.check(py).is_err() {
            // It is the parent's to end.
            return;
        }
        let ended = self.moment.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(ended));
    }

    /// Shows the garbage collector the table, which may refer to the snapshot.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.table)
    }

    /// Whether the snapshot, or its table, is closed.
    #[getter]
    fn closed(&self) -> bool {
        if self.origin.is_lost() {
            // A thread of the parent may hold the lock.
            return self.moment.try_lock().is_ok_and(|moment| moment.is_none());
        }
        self.open().is_none()
    }
}
