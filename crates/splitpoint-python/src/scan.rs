//! Iterators over keys, values, or both.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use self_cell::self_cell;
use splitpoint::{Entries, Entry, Error, Result};

use crate::handle::{Access, Opened, Origin};
use crate::snapshot::Moment;
use crate::{error, objects};

/// Records that an iterator takes from the scan at a time, without the interpreter's lock.
const AHEAD: usize = 64;
/// Bytes of values after which it takes no more.
const AHEAD_BYTES: usize = 1 << 18;
/// Bytes of a key or a value from which on a copy may find no memory. To ask for each one costs a fifth of a scan.
const LARGE_BYTES: usize = 1 << 16;

/// The scan of the library.
enum Records<'table> {
    Store(splitpoint::Scan<'table>),
    Other(Entries<'table>),
}

impl<'table> Records<'table> {
    fn next(&mut self) -> Option<Result<Entry<'table>>> {
        match self {
            Self::Store(scan) => scan.next(),
            Self::Other(entries) => entries.next(),
        }
    }
}

/// What a scan borrows from.
pub(crate) enum Source {
    Table(Arc<Opened>),
    Snapshot(Arc<Moment>),
}

impl Source {
    fn opened(&self) -> &Arc<Opened> {
        match self {
            Self::Table(opened) => opened,
            Self::Snapshot(moment) => moment.borrow_owner(),
        }
    }

    fn scan(&self) -> Result<Records<'_>> {
        match self {
            Self::Table(opened) => match &opened.access {
                Access::Store(store) => store.scan().map(Records::Store),
                Access::Other(table) => table.scan().map(Records::Other),
            },
            Self::Snapshot(moment) => moment.borrow_dependent().scan().map(Records::Store),
        }
    }
}

self_cell!(
    struct OwnedScan {
        owner: Source,
        #[not_covariant]
        dependent: Records,
    }
);

/// A key and its value, copied.
pub(crate) type Record = (Box<[u8]>, Box<[u8]>);

/// The records that a scan has read ahead.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    records: VecDeque<Record>,
    /// The error behind them: damage, where the scan ended, or no memory for a copy.
    damage: Option<Error>,
    /// An iterator that has ended stays so, whatever is stored later.
    is_done: bool,
}

impl Ahead {
    /// Returns the next record. If none was read ahead, reads some with `read`, with values if
    /// `has_values`.
    pub(crate) fn next<'table>(
        &mut self,
        has_values: bool,
        read: impl FnMut() -> Option<Result<Entry<'table>>>,
    ) -> Result<Option<Record>> {
        if self.records.is_empty() && !self.is_done {
            self.damage.take().map_or(Ok(()), Err)?;
            self.fill(has_values, read);
        }
        match self.records.pop_front() {
            Some(record) => Ok(Some(record)),
            None => self.damage.take().map_or(Ok(None), Err),
        }
    }

    fn fill<'table>(
        &mut self,
        has_values: bool,
        mut read: impl FnMut() -> Option<Result<Entry<'table>>>,
    ) {
        let mut bytes = 0;
        while self.records.len() < AHEAD && bytes < AHEAD_BYTES {
            match read() {
                None => {
                    self.is_done = true;
                    break;
                }
                Some(Ok(entry)) => {
                    let value = if has_values { &entry.value[..] } else { &[] };
                    bytes += entry.key.len() + value.len();
                    match copied(&entry.key).and_then(|key| Ok((key, copied(value)?))) {
                        Ok(record) => self.records.push_back(record),
                        Err(error) => return self.end_with(error),
                    }
                }
                Some(Err(error)) => return self.end_with(error),
            }
        }
    }

    fn end_with(&mut self, error: Error) {
        (self.damage, self.is_done) = (Some(error), true);
    }

    /// Drops what was read ahead: the next record is none.
    pub(crate) fn stop(&mut self) {
        *self = Self { is_done: true, ..Self::default() };
    }

    pub(crate) fn pop(&mut self) -> Option<Record> {
        self.records.pop_front()
    }
}

/// Returns a copy of a key or a value.
fn copied(bytes: &[u8]) -> Result<Box<[u8]>> {
    if bytes.len() < LARGE_BYTES { Ok(bytes.into()) } else { objects::copied(bytes).map(Vec::into) }
}

/// A scan and the records that it has read ahead.
pub(crate) struct Walk {
    scan: OwnedScan,
    ahead: Ahead,
}

impl Walk {
    /// Begins a scan of every record.
    ///
    /// # Errors
    ///
    /// Those of the access method.
    pub(crate) fn begin(source: Source) -> Result<Self> {
        let scan = OwnedScan::try_new(source, Source::scan)?;
        Ok(Self { scan, ahead: Ahead::default() })
    }
}

/// A record, or `None` behind the last; with an error comes the table that it is of.
pub(crate) type Next = std::result::Result<Option<Record>, (Arc<Opened>, Error)>;

/// What an iterator takes its records from.
pub(crate) trait Walks: Send + Sync {
    /// Returns a record that was read ahead, if nobody else is at the scan.
    fn next_read(&self) -> Option<Record>;

    /// Returns the exception of a scan that was ended.
    fn ended(&self, py: Python<'_>) -> PyErr {
        error::closed(py)
    }

    /// Returns the next record; `None` if the scan was ended.
    fn next(&self, has_values: bool) -> Option<Next>;

    /// Lets the scan have no further record.
    fn stop(&self);
}

impl Walks for Mutex<Option<Walk>> {
    fn next_read(&self) -> Option<Record> {
        self.try_lock().ok()?.as_mut()?.ahead.pop()
    }

    fn next(&self, has_values: bool) -> Option<Next> {
        let mut slot = self.lock().unwrap_or_else(PoisonError::into_inner);
        let Walk { scan, ahead } = slot.as_mut()?;
        let next = scan.with_dependent_mut(|_, records| ahead.next(has_values, || records.next()));
        Some(next.map_err(|error| (scan.borrow_owner().opened().clone(), error)))
    }

    fn stop(&self) {
        let mut slot = self.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(walk) = slot.as_mut() {
            walk.ahead.stop();
        }
    }
}

/// What an iterator returns of each record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Keys,
    Values,
    Items,
}

/// An iterator over the records of a table.
#[pyclass(frozen, module = "splitpoint._native")]
pub(crate) struct Scan {
    walk: Arc<dyn Walks>,
    part: Part,
    origin: Origin,
}

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan").field("part", &self.part).finish_non_exhaustive()
    }
}

impl Scan {
    pub(crate) fn new(walk: Arc<dyn Walks>, part: Part, origin: Origin) -> Self {
        Self { walk, part, origin }
    }
}

#[pymethods]
impl Scan {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.origin.check(py)?;
        let record = match self.walk.next_read() {
            Some(record) => Some(record),
            None => self.next_unread(py)?,
        };
        let Some((key, value)) = record else { return Ok(None) };
        let object = match self.part {
            Part::Keys => objects::bytes(py, &key).map(Bound::into_any),
            Part::Values => objects::bytes(py, &value).map(Bound::into_any),
            Part::Items => objects::pair(py, &key, &value).map(Bound::into_any),
        };
        // As after a copy that finds no memory: otherwise the iterator would go on behind this record.
        object.map(Some).inspect_err(|_| py.detach(|| self.walk.stop()))
    }
}

impl Scan {
    fn next_unread(&self, py: Python<'_>) -> PyResult<Option<Record>> {
        // The interpreter does not, in `list(table)`; and what is read then would be lost.
        py.check_signals()?;
        // A handler may have forked. In the child a lock of the walk may be that of a thread it does not have.
        self.origin.check(py)?;
        match py.detach(|| self.walk.next(self.part != Part::Keys)) {
            None => Err(self.walk.ended(py)),
            Some(next) => next.map_err(|(opened, error)| opened.raise(py, &error)),
        }
    }
}
