//! Iterators over keys, values, or both.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use self_cell::self_cell;
use splitpoint::{Entries, Entry, Error, Result};

use crate::error;
use crate::handle::{Access, Opened, SharedWalk};

/// Records that an iterator takes from the scan at a time, without the interpreter's lock.
const AHEAD: usize = 64;
/// Bytes of values after which it takes no more.
const AHEAD_BYTES: usize = 1 << 18;

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

self_cell!(
    /// A scan with the table that it borrows from.
    struct OwnedScan {
        owner: Arc<Opened>,
        #[not_covariant]
        dependent: Records,
    }
);

/// A key and its value, copied.
type Record = (Box<[u8]>, Box<[u8]>);

/// A scan and the records that it has read ahead.
pub(crate) struct Walk {
    scan: OwnedScan,
    ahead: VecDeque<Record>,
    /// The damage behind them, where the scan ended.
    damage: Option<Error>,
    /// An iterator that has ended stays so, whatever is stored later.
    is_done: bool,
}

impl fmt::Debug for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walk").field("ahead", &self.ahead.len()).finish_non_exhaustive()
    }
}

impl Walk {
    /// Begins a scan of every record.
    ///
    /// # Errors
    ///
    /// Those of the access method.
    pub(crate) fn begin(opened: Arc<Opened>) -> Result<Self> {
        let scan = OwnedScan::try_new(opened, |opened| match &opened.access {
            Access::Store(store) => store.scan().map(Records::Store),
            Access::Other(table) => table.scan().map(Records::Other),
        })?;
        Ok(Self { scan, ahead: VecDeque::new(), damage: None, is_done: false })
    }

    /// Returns the next record. If none was read ahead, reads some, with values if `has_values`.
    fn next(&mut self, has_values: bool) -> Result<Option<Record>> {
        if self.ahead.is_empty() && !self.is_done {
            self.damage.take().map_or(Ok(()), Err)?;
            self.read_ahead(has_values);
        }
        match self.ahead.pop_front() {
            Some(record) => Ok(Some(record)),
            None => self.damage.take().map_or(Ok(None), Err),
        }
    }

    fn read_ahead(&mut self, has_values: bool) {
        let Self { scan, ahead, damage, is_done } = self;
        let mut bytes = 0;
        scan.with_dependent_mut(|_, records| {
            while ahead.len() < AHEAD && bytes < AHEAD_BYTES {
                match records.next() {
                    None => {
                        *is_done = true;
                        break;
                    }
                    Some(Ok(entry)) => {
                        let value = if has_values { &entry.value[..] } else { &[] };
                        bytes += entry.key.len() + value.len();
                        ahead.push_back(((*entry.key).into(), value.into()));
                    }
                    Some(Err(error)) => {
                        *damage = Some(error);
                        break;
                    }
                }
            }
        });
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
#[derive(Debug)]
pub(crate) struct Scan {
    walk: SharedWalk,
    part: Part,
}

impl Scan {
    pub(crate) fn new(walk: SharedWalk, part: Part) -> Self {
        Self { walk, part }
    }
}

#[pymethods]
impl Scan {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let record = match self.next_read() {
            Some(record) => Some(record),
            None => self.next_unread(py)?,
        };
        let Some((key, value)) = record else { return Ok(None) };
        let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
        Ok(Some(match self.part {
            Part::Keys => bytes(&key).into_any(),
            Part::Values => bytes(&value).into_any(),
            Part::Items => PyTuple::new(py, [bytes(&key), bytes(&value)])?.into_any(),
        }))
    }
}

impl Scan {
    /// Returns a record that was read ahead, if nobody else is at the scan.
    fn next_read(&self) -> Option<Record> {
        self.walk.try_lock().ok()?.as_mut()?.ahead.pop_front()
    }

    fn next_unread(&self, py: Python<'_>) -> PyResult<Option<Record>> {
        let next = py.detach(|| {
            let mut slot = self.walk.lock().unwrap_or_else(PoisonError::into_inner);
            let walk = slot.as_mut()?;
            let next = walk.next(self.part != Part::Keys);
            Some(next.map_err(|error| (walk.scan.borrow_owner().clone(), error)))
        });
        match next {
            None => Err(error::closed(py)),
            Some(next) => next.map_err(|(opened, error)| opened.raise(py, &error)),
        }
    }
}
