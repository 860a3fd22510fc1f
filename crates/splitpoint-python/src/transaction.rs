//! The native half of `splitpoint.Transaction`; `python/splitpoint/_moments.py` has the other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pyo3::exceptions::PyKeyError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use self_cell::self_cell;
use splitpoint::{Error, Result, TransactionScan};

use crate::handle::{Attached, Opened, Origin};
use crate::scan::{Ahead, Next, Part, Record, Scan, Walks};
use crate::table::{Table, get_in_chunks, level, put_in_chunks};
use crate::{bytes, error, objects};

/// A transaction and the scans of it that go on.
struct Parts<'table> {
    /// `None` when it is committed.
    transaction: Option<splitpoint::Transaction<'table>>,
    scans: Vec<Option<(TransactionScan<'table>, Ahead)>>,
}

self_cell!(
    /// A transaction with the table that it borrows from.
    struct Work {
        owner: Arc<Opened>,
        #[not_covariant]
        dependent: Parts,
    }
);

/// A scan of a transaction, by its number.
struct WorkScan {
    work: Attached<Work>,
    number: usize,
    origin: Origin,
}

impl WorkScan {
    fn with<R>(
        slot: &mut Option<Work>,
        number: usize,
        what: impl FnOnce(&mut TransactionScan<'_>, &mut Ahead, &Arc<Opened>) -> R,
    ) -> Option<R> {
        slot.as_mut()?.with_dependent_mut(|opened, parts| {
            let (scan, ahead) = parts.scans.get_mut(number)?.as_mut()?;
            Some(what(scan, ahead, opened))
        })
    }
}

impl Walks for WorkScan {
    fn next_read(&self) -> Option<Record> {
        let mut slot = self.work.try_lock().ok()?;
        Self::with(&mut slot, self.number, |_, ahead, _| ahead.pop())?
    }

    fn ended(&self, py: Python<'_>) -> PyErr {
        error::ended(py, "transaction")
    }

    fn next(&self, has_values: bool) -> Option<Next> {
        let mut slot = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        Self::with(&mut slot, self.number, |scan, ahead, opened| {
            let next = ahead.next(has_values, || scan.next());
            next.map_err(|error| (opened.clone(), error))
        })
    }

    fn stop(&self) {
        let mut slot = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        Self::with(&mut slot, self.number, |_, ahead, _| ahead.stop());
    }
}

impl Drop for WorkScan {
    fn drop(&mut self) {
        if self.origin.is_lost() {
            // A thread of the parent may hold the lock.
            return;
        }
        // Without the interpreter's lock: another thread may be committing.
        Python::attach(|py| {
            py.detach(|| {
                let mut slot = self.work.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(work) = slot.as_mut() {
                    work.with_dependent_mut(|_, parts| parts.scans[self.number] = None);
                }
            });
        });
    }
}

/// Changes that take effect together. `splitpoint.Transaction` derives from it, and documents the
/// methods.
#[pyclass(frozen, subclass, weakref, module = "splitpoint._native")]
pub(crate) struct Transaction {
    work: Attached<Work>,
    origin: Origin,
    /// Nobody else may hold the table, which closes itself when it is dropped.
    table: Py<Table>,
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction").finish_non_exhaustive()
    }
}

/// A moment of a transaction, to which `rollback_to` returns.
#[pyclass(frozen, module = "splitpoint._native")]
#[derive(Debug)]
pub(crate) struct Savepoint {
    moment: splitpoint::Savepoint,
    /// The transaction that it is of, for no other has its number.
    work: Weak<Mutex<Option<Work>>>,
}

impl Transaction {
    /// Calls `what` without the interpreter's lock.
    fn with<R: Send>(
        &self,
        py: Python<'_>,
        what: impl FnOnce(&mut splitpoint::Transaction<'_>) -> Result<R> + Send,
    ) -> PyResult<R> {
        self.with_parts(py, |parts| parts.transaction.as_mut().map(what))
    }

    fn with_parts<R: Send>(
        &self,
        py: Python<'_>,
        what: impl FnOnce(&mut Parts<'_>) -> Option<Result<R>> + Send,
    ) -> PyResult<R> {
        self.origin.check(py)?;
        let made: Option<std::result::Result<R, (Arc<Opened>, Error)>> = py.detach(|| {
            let mut slot = self.slot();
            slot.as_mut()?.with_dependent_mut(|opened, parts| {
                let made = what(parts)?;
                Some(made.map_err(|error| (opened.clone(), error)))
            })
        });
        let made = made.ok_or_else(|| error::ended(py, "transaction"))?;
        made.map_err(|(opened, error)| opened.raise(py, &error))
    }

    fn slot(&self) -> MutexGuard<'_, Option<Work>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let key = bytes::key(key)?;
        let key = key.as_slice();
        let found = self.with(py, |transaction| copy_of(transaction, key))?;
        found.map(|value| objects::bytes(py, &value)).transpose()
    }

    fn scan(&self, py: Python<'_>, part: Part) -> PyResult<Scan> {
        let number = self.with_parts(py, |parts| {
            let scan = match parts.transaction.as_mut()?.scan() {
                Ok(scan) => Some((scan, Ahead::default())),
                Err(error) => return Some(Err(error)),
            };
            let free = parts.scans.iter().position(Option::is_none);
            Some(Ok(if let Some(number) = free {
                parts.scans[number] = scan;
                number
            } else {
                parts.scans.push(scan);
                parts.scans.len() - 1
            }))
        })?;
        Ok(Scan::new(
            Arc::new(WorkScan { work: self.work.clone(), number, origin: self.origin.clone() }),
            part,
            self.origin.clone(),
        ))
    }
}

/// Returns a copy of the value of `key` that needs no interpreter.
fn copy_of(transaction: &mut splitpoint::Transaction<'_>, key: &[u8]) -> Result<Option<Vec<u8>>> {
    transaction.get(key)?.map(|value| objects::copied(&value)).transpose()
}

#[pymethods]
impl Transaction {
    /// Begins one; a wrong name of a level is refused before the program does work that a commit could not end.
    #[new]
    fn new(table: Bound<'_, Table>, durability: Option<&str>) -> PyResult<Self> {
        level(table.py(), durability)?;
        let begin = |opened: Arc<Opened>| {
            Work::try_new(opened, |opened| {
                let transaction = Some(opened.store("transaction")?.begin()?);
                Ok(Parts { transaction, scans: Vec::new() })
            })
        };
        let (py, handle) = (table.py(), &table.get().handle);
        let opened = handle.opened(py)?;
        let origin = opened.origin.clone();
        let work = handle.attach(py, opened, begin)?;
        Ok(Self { work, origin, table: table.unbind() })
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.find(py, key)?.ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (owned_key, owned_value) = (bytes::key(key)?, bytes::value(value)?);
        let (key_bytes, value_bytes) = (owned_key.as_slice(), owned_value.as_slice());
        self.with(key.py(), |transaction| transaction.put(key_bytes, value_bytes))
    }

    fn __delitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let owned = bytes::key(key)?;
        let bytes = owned.as_slice();
        let was_there = self.with(py, |transaction| {
            let was_there = transaction.contains(bytes)?;
            if was_there {
                transaction.delete(bytes)?;
            }
            Ok(was_there)
        })?;
        if was_there { Ok(()) } else { Err(PyKeyError::new_err(key.clone().unbind())) }
    }

    /// Delete `key` if it exists when the transaction commits.
    ///
    /// Unlike ``del`` it does not read, so it conflicts with nothing.
    fn discard(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let key = bytes::key(key)?;
        let key = key.as_slice();
        self.with(py, |transaction| transaction.delete(key))
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let key = bytes::key(key)?;
        let key = key.as_slice();
        self.with(py, |transaction| transaction.contains(key))
    }

    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method is one of a transaction of a certain table"
    )]
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(usize::try_from(self.with(py, |transaction| transaction.len())?)?)
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

    /// Return the value of `key`, or `default`.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.find(py, key)?.map(Bound::into_any).or(default))
    }

    /// Return the values of `keys` in a list, in the same order, with `default` for a missing key.
    #[pyo3(signature = (keys, default=None))]
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        get_in_chunks(keys, default, |keys| {
            self.with(py, |transaction| {
                keys.iter().map(|key| copy_of(transaction, key)).collect::<Result<Vec<_>>>()
            })
        })
    }

    /// Store every pair of a mapping, or of an iterable of pairs, in order. It reads nothing, so that
    /// nothing conflicts.
    ///
    /// If one pair fails, the transaction has those before it. The call takes many pairs at a time before
    /// it stores them: an iterable that reads the transaction does not see the last pairs that it gave.
    fn put_many(&self, py: Python<'_>, pairs: &Bound<'_, PyAny>) -> PyResult<()> {
        put_in_chunks(pairs, |pairs| {
            self.with(py, |transaction| {
                pairs.iter().try_for_each(|(key, value)| transaction.put(key, value))
            })
        })
    }

    /// Return the moment of the changes so far, to `rollback_to`.
    fn savepoint(&self, py: Python<'_>) -> PyResult<Savepoint> {
        let moment = self.with(py, |transaction| Ok(transaction.savepoint()))?;
        Ok(Savepoint { moment, work: Arc::downgrade(&self.work) })
    }

    /// Undo the changes since `savepoint`. What was read since can still conflict.
    ///
    /// Raises `splitpoint.error` with code ``"invalid"`` for a savepoint of another transaction.
    fn rollback_to(&self, py: Python<'_>, savepoint: &Savepoint) -> PyResult<()> {
        if !std::ptr::eq(savepoint.work.as_ptr(), Arc::as_ptr(&self.work)) {
            return Err(error::invalid(py, "the savepoint is of another transaction"));
        }
        self.with(py, |transaction| {
            transaction.rollback_to(savepoint.moment);
            Ok(())
        })
    }

    /// Undo all changes so far.
    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |transaction| {
            transaction.rollback();
            Ok(())
        })
    }

    /// Make all changes, or none, and end the transaction.
    ///
    /// Raises `splitpoint.error` with code ``"conflict"`` if something that it has read has changed;
    /// then nothing is changed. `durability` is the level of these changes.
    #[pyo3(signature = (*, durability=None))]
    fn commit(&self, py: Python<'_>, durability: Option<&str>) -> PyResult<()> {
        let made = level(py, durability).and_then(|level| {
            self.with_parts(py, |parts| {
                let transaction = parts.transaction.take()?;
                Some(match level {
                    Some(level) => transaction.commit_with(level),
                    None => transaction.commit(),
                })
            })
        });
        self.close(py);
        made
    }

    /// End the transaction without its changes. After `commit` this has no effect.
    fn close(&self, py: Python<'_>) {
        if self.origin.check(py).is_err() {
            // It is the parent's to end.
            return;
        }
        py.detach(|| {
            let ended = self.slot().take();
            drop(ended);
        });
    }

    /// Shows the garbage collector the table, which may refer to the transaction.
    fn __traverse__(&self, visit: PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        visit.call(&self.table)
    }

    /// Whether the transaction has ended, or its table is closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        if self.origin.is_lost() {
            // A thread of the parent may hold the lock.
            return self.work.try_lock().is_ok_and(|slot| slot.is_none());
        }
        // Another thread may be committing.
        py.detach(|| self.slot().is_none())
    }
}
