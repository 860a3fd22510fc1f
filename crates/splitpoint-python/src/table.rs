//! The native half of `splitpoint.Table`; `python/splitpoint/_table.py` has the other.

use std::path::PathBuf;
use std::time::Duration;

use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyMemoryView, PySlice};
use splitpoint::hash::HashFunction;
use splitpoint::{Change, Durability, Options, PutMode, Result, TableExt as _};

use crate::bytes::{self, ByteString};
use crate::handle::{Access, Handle, Opened};
use crate::opening::{self, Flag};
use crate::pairs::pairs_of;
use crate::pinned::Pinned;
use crate::scan::{Part, Scan, Source, Walk};
use crate::{durability, error, number, objects, watch};

/// Keys that `get_many` looks up between two looks for Ctrl-C, and records that `put_many` stores.
const CHUNK: usize = 1024;
/// Records of a batch for which room is made before their number is known.
const BATCH: usize = 256;

/// An open table. `splitpoint.Table` derives from it, and documents the methods.
#[pyclass(frozen, subclass, weakref, module = "splitpoint._native")]
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) handle: Handle,
}

impl Table {
    /// Calls `work`, which runs no Python code, with the interpreter's lock.
    fn brief<R>(&self, py: Python<'_>, work: impl FnOnce(&Opened) -> Result<R>) -> PyResult<R> {
        self.handle.with(py, |opened| work(opened).map_err(|error| opened.raise(py, &error)))?
    }

    /// Calls `work` without the interpreter's lock.
    fn long<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Opened) -> Result<R> + Send,
    ) -> PyResult<R> {
        let opened = self.handle.opened(py)?;
        py.detach(|| work(&opened)).map_err(|error| opened.raise(py, &error))
    }

    /// The same, for work that only reads.
    fn long_read<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Opened) -> Result<R> + Send,
    ) -> PyResult<R> {
        let opened = self.handle.opened_to_read(py)?;
        py.detach(|| work(&opened)).map_err(|error| opened.raise(py, &error))
    }

    fn scan(&self, py: Python<'_>, part: Part) -> PyResult<Scan> {
        let opened = self.handle.opened_to_read(py)?;
        let origin = opened.origin.clone();
        let walk = self.handle.attach(py, opened, |opened| Walk::begin(Source::Table(opened)))?;
        Ok(Scan::new(walk, part, origin))
    }

    fn find<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let key = bytes::key(key)?;
        self.handle.with(py, |opened| copy_of(py, opened, key.as_slice()))?
    }

    fn put_mode(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        mode: PutMode,
    ) -> PyResult<bool> {
        let (owned_key, owned_value) = (bytes::key(key)?, bytes::value(value)?);
        let (key_bytes, value_bytes) = (owned_key.as_slice(), owned_value.as_slice());
        self.long(key.py(), |opened| opened.table().put_bytes(key_bytes, value_bytes, mode, None))
    }
}

/// Returns a copy of the value of `key` for Python.
#[inline]
fn copy_of<'py>(
    py: Python<'py>,
    opened: &Opened,
    key: &[u8],
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let found = match &opened.access {
        Access::Store(store) => store.get(key),
        Access::Other(table) => table.get_bytes(key),
    };
    let value = found.map_err(|error| opened.raise(py, &error))?;
    value.map(|value| objects::bytes(py, &value)).transpose()
}

/// Returns the level for one call, if it names one.
pub(crate) fn level(py: Python<'_>, name: Option<&str>) -> PyResult<Option<Durability>> {
    name.map(|name| durability::by_name(py, name)).transpose()
}

/// Returns the hash function with this name.
fn hash_function(py: Python<'_>, name: &str) -> PyResult<HashFunction> {
    HashFunction::by_name(name).ok_or_else(|| {
        let known = HashFunction::names();
        error::invalid(py, &format!("no hash function is called {name:?}; there are {known}"))
    })
}

#[pymethods]
impl Table {
    #[new]
    #[pyo3(signature = (
        place, *, is_url, durability, flag="c", mode=0o666, expected_records=0, cache_bytes=None,
        hash=None, sharing="one-writer", lock_timeout=0.0, instrument=false
    ))]
    #[expect(clippy::too_many_arguments, reason = "the options of splitpoint.open")]
    fn new(
        py: Python<'_>,
        place: PathBuf,
        is_url: bool,
        durability: &str,
        flag: &str,
        #[pyo3(from_py_with = number::mode)] mode: u32,
        #[pyo3(from_py_with = number::expected_records)] expected_records: u64,
        #[pyo3(from_py_with = number::cache_bytes)] cache_bytes: Option<u64>,
        hash: Option<&str>,
        sharing: &str,
        lock_timeout: f64,
        instrument: bool,
    ) -> PyResult<Self> {
        let Some(flag) = Flag::of(flag) else {
            let message = format!("flag must be 'r', 'w', 'c' or 'n', not {flag:?}");
            return Err(error::invalid(py, &message));
        };
        let durability = durability::by_name(py, durability)?;
        let sharing = opening::sharing_by_name(py, sharing)?;
        let Ok(lock_timeout) = Duration::try_from_secs_f64(lock_timeout) else {
            let message = format!(
                "lock_timeout must be a finite number of seconds, 0 or more, not {lock_timeout}"
            );
            return Err(error::invalid(py, &message));
        };
        let mut options = Options::new()
            .durability(durability)
            .expected_records(expected_records)
            .sharing(sharing)
            .instrument(instrument);
        if let Some(bytes) = cache_bytes {
            options = options.cache_bytes(bytes);
        }
        if let Some(name) = hash {
            options = options.hash(hash_function(py, name)?);
        }
        let file = if is_url { opening::file_of_url(&place) } else { Some(place.clone()) };
        let opened = opening::wait(py, file.as_deref(), lock_timeout, &options, |options| {
            if is_url {
                opening::open_url(&place, flag, options)
            } else {
                opening::open_path(&place, flag, mode, options)
            }
        })?;
        Ok(Self { handle: Handle::new(opened, sharing, lock_timeout) })
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.find(py, key)?.ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.put_mode(key, value, PutMode::Replace).map(drop)
    }

    fn __delitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let owned = bytes::key(key)?;
        let bytes = owned.as_slice();
        if self.long(py, |opened| opened.table().delete(bytes))? {
            Ok(())
        } else {
            Err(PyKeyError::new_err(key.clone().unbind()))
        }
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let key = bytes::key(key)?;
        self.brief(py, |opened| match &opened.access {
            Access::Store(store) => store.contains(key.as_slice()),
            Access::Other(table) => table.contains(key.as_slice()),
        })
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let len = match self.handle.with(py, |opened| match &opened.access {
            Access::Store(store) => Some(store.len()),
            Access::Other(_) => None,
        })? {
            Some(len) => len,
            // It may have to read the file.
            None => self.long_read(py, |opened| opened.table().len())?,
        };
        Ok(usize::try_from(len)?)
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

    /// Store `value` under `key` if the key is missing, and return whether it was: `DBM_INSERT`.
    fn put_new(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.put_mode(key, value, PutMode::New)
    }

    /// Delete `key` and return the value that it had, or `None`: one step for a store.
    #[pyo3(name = "_take")]
    fn take<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let owned = bytes::key(key)?;
        let bytes = owned.as_slice();
        let opened = self.handle.opened(py)?;
        loop {
            // Before the delete, so that nothing is lost if there is no memory for the copy.
            let taken = copy_of(py, &opened, bytes)?;
            let expected = taken.as_ref().map(PyBytesMethods::as_bytes);
            let is_deleted = py.detach(|| match &opened.access {
                Access::Store(store) => store.compare_and_swap(bytes, expected, None),
                Access::Other(table) => table.delete(bytes).map(|_| true),
            });
            if is_deleted.map_err(|error| opened.raise(py, &error))? {
                return Ok(taken);
            }
            // The value has changed since.
            py.check_signals()?;
        }
    }

    /// Return the values of `keys` in a list, in the same order, with `default` for a missing key.
    ///
    /// One call for many keys takes less than half the time of a `get` for each.
    #[pyo3(signature = (keys, default=None))]
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let opened = self.handle.opened_to_read(py)?;
        get_in_chunks(keys, default, |keys| {
            py.detach(|| opened.table().get_many_bytes(keys))
                .map_err(|error| opened.raise(py, &error))
        })
    }

    /// Store `new` under `key` if its value is `expected`, and return whether it was, in one step.
    ///
    /// An `expected` of `None` is a missing key; a `new` of `None` deletes the key.
    fn compare_and_swap(
        &self,
        key: &Bound<'_, PyAny>,
        expected: &Bound<'_, PyAny>,
        new: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let (py, key) = (key.py(), bytes::key(key)?);
        let (expected, new) = (bytes::value_or_none(expected)?, bytes::value_or_none(new)?);
        let key = key.as_slice();
        let expected = expected.as_ref().map(ByteString::as_slice);
        let new = new.as_ref().map(ByteString::as_slice);
        self.long(py, |opened| {
            opened.store("compare_and_swap")?.compare_and_swap(key, expected, new)
        })
    }

    /// Add `by` to the counter under `key`, in one step, and return its new value.
    ///
    /// A counter is a value of 8 bytes: ``int.to_bytes(8, "little", signed=True)``. A missing key counts
    /// as 0. Raises `splitpoint.error` with code ``"invalid"`` for another value, and if the sum does not
    /// fit.
    #[pyo3(signature = (key, by=1))]
    fn increment(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = number::by)] by: i64,
    ) -> PyResult<i64> {
        let key = bytes::key(key)?;
        let key = key.as_slice();
        self.long(py, |opened| opened.store("increment")?.increment(key, by))
    }

    /// Store every pair of a mapping, or of an iterable of pairs, in order.
    ///
    /// If one pair fails, those before it are stored. The call takes many pairs at a time before it
    /// stores them: an iterable that reads the table does not see the last pairs that it gave.
    /// `durability` is the level of this call; with ``"sync"`` the call waits for the device once, at the
    /// end.
    #[pyo3(signature = (pairs, *, durability=None))]
    fn put_many(
        &self,
        py: Python<'_>,
        pairs: &Bound<'_, PyAny>,
        durability: Option<&str>,
    ) -> PyResult<()> {
        let (opened, level) = (self.handle.opened(py)?, level(py, durability)?);
        // One sync at the end is enough.
        let of_chunk = level.map(|level| match level {
            Durability::Sync => Durability::Buffered,
            other => other,
        });
        let made = put_in_chunks(pairs, |pairs| {
            py.detach(|| opened.table().put_many_bytes(pairs, of_chunk))
                .map_err(|error| opened.raise(py, &error))
        });
        if level == Some(Durability::Sync) {
            // Those before an error become durable, too.
            let synced = py.detach(|| opened.table().sync());
            made?;
            return synced.map_err(|error| opened.raise(py, &error));
        }
        made
    }

    /// Make all changes or none, also if the process is killed or the power fails.
    ///
    /// `changes` is a mapping or an iterable of pairs; a value of `None` deletes the key.
    #[pyo3(signature = (changes, *, durability=None))]
    fn apply(
        &self,
        py: Python<'_>,
        changes: &Bound<'_, PyAny>,
        durability: Option<&str>,
    ) -> PyResult<()> {
        let (opened, level) = (self.handle.opened(py)?, level(py, durability)?);
        let mut pairs: Vec<(ByteString<'_>, Option<ByteString<'_>>)> = Vec::new();
        for pair in pairs_of(changes)? {
            let (key, value) = pair?;
            objects::reserve(&mut pairs, 1)?;
            pairs.push((bytes::key(&key)?, bytes::value_or_none(&value)?));
        }
        let mut changes: Vec<Change<'_>> = Vec::new();
        objects::reserve(&mut changes, pairs.len())?;
        changes.extend(pairs.iter().map(|(key, value)| match value {
            Some(value) => Change::Put { key: key.as_slice(), value: value.as_slice() },
            None => Change::Delete { key: key.as_slice() },
        }));
        py.detach(|| opened.table().apply_bytes(&changes, level))
            .map_err(|error| opened.raise(py, &error))
    }

    /// Copy the value of `key` into a writable buffer, and return its size; `None` if it is missing.
    ///
    /// Raises `ValueError` if the buffer is too small, with both sizes.
    fn get_into<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        buffer: &Bound<'py, PyAny>,
    ) -> PyResult<Option<usize>> {
        let Some(value) = self.find(py, key)? else { return Ok(None) };
        let view = PyMemoryView::from(buffer)?;
        if bytes::holds_objects(&view)? {
            let found = buffer.get_type().name()?;
            let message =
                format!("bytes cannot be copied into the {found}: it holds references to objects");
            return Err(PyTypeError::new_err(message));
        }
        let view = view.call_method1("cast", ("B",))?;
        let (value_bytes, buffer_bytes) = (value.as_bytes().len(), view.len()?);
        if value_bytes > buffer_bytes {
            return Err(PyValueError::new_err(format!(
                "the value has {value_bytes} bytes, the buffer {buffer_bytes}"
            )));
        }
        view.set_item(PySlice::new(py, 0, isize::try_from(value_bytes)?, 1), value)?;
        Ok(Some(value_bytes))
    }

    /// Return the value of `key` as a buffer, without a copy, or `None`.
    #[pyo3(name = "_pin")]
    fn pin(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<Pinned>> {
        let (key, opened) = (bytes::key(key)?, self.handle.opened_to_read(py)?);
        Pinned::find(opened.table_to_borrow(), key.as_slice())
            .map_err(|error| opened.raise(py, &error))
    }

    /// Delete every key.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.long(py, |opened| match &opened.access {
            Access::Store(store) => store.clear().map(drop),
            Access::Other(table) => {
                table.scan()?.try_for_each(|entry| table.delete(&entry?.key).map(drop))
            }
        })
    }

    /// Make every change so far durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.long(py, |opened| opened.table().sync())
    }

    /// Move the records into a new file of the same name, without the space of replaced and deleted
    /// ones. Meanwhile the table is closed for other threads.
    fn reorganize(&self, py: Python<'_>) -> PyResult<()> {
        self.handle.reorganize(py)
    }

    /// Close the table, and make its changes durable. Closing it again has no effect.
    ///
    /// If more than half of the file is free or dead, it also compacts the file, up to a log of 512 MiB,
    /// unless the table takes turns. That may take seconds, even if the table is closed only because nothing
    /// refers to it any more.
    ///
    /// Raises `BufferError` while a view of a value is open.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.handle.close(py)
    }

    /// Panics in a call, or in the middle of a change: for the tests, and in no wheel.
    #[cfg(feature = "testing")]
    #[pyo3(name = "_panic")]
    fn panic(&self, py: Python<'_>, in_change: bool) -> PyResult<()> {
        self.long(py, |opened| match &opened.access {
            Access::Store(store) if in_change => store.panic_in_change(),
            _ => panic!("a test asked for a panic"),
        })
    }

    /// Whether the table is closed.
    #[getter]
    fn closed(&self) -> bool {
        !self.handle.is_open()
    }

    /// Whether the table refuses changes.
    #[getter]
    fn readonly(&self, py: Python<'_>) -> PyResult<bool> {
        self.handle.with(py, |opened| opened.is_read_only)
    }

    /// Whether this process is a fork of the one that opened the table.
    #[getter(_forked)]
    fn forked(&self) -> bool {
        self.handle.is_forked()
    }

    /// Return the fields of `splitpoint.Stats` in a dict.
    #[pyo3(name = "_stats")]
    fn stats_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.long_read(py, |opened| opened.table().stats())?;
        let dict = PyDict::new(py);
        dict.set_item("record_count", stats.record_count)?;
        dict.set_item("bucket_count", stats.geometry.bucket_count())?;
        dict.set_item("fill_factor", stats.fill_factor)?;
        dict.set_item("load_factor", stats.load_factor)?;
        dict.set_item("overflow_line_count", stats.overflow_line_count)?;
        dict.set_item("live_bytes", stats.live_bytes)?;
        dict.set_item("dead_bytes", stats.dead_bytes)?;
        dict.set_item("file_bytes", stats.file_bytes)?;
        dict.set_item("log_bytes", stats.log_bytes)?;
        dict.set_item("durable_bytes", stats.durable_bytes)?;
        dict.set_item("hash_name", stats.hash_name)?;
        let rows = stats
            .chains
            .rows
            .iter()
            .map(|row| (row.size, row.bucket_count, row.ideal_bucket_count));
        dict.set_item("chains", rows.collect::<Vec<_>>())?;
        Ok(dict)
    }

    /// Return the fields of `splitpoint.Lookups`, or None if lookups are not counted.
    #[pyo3(name = "_lookups")]
    fn lookups_tuple(&self, py: Python<'_>) -> PyResult<Option<(u64, u64, u64, u64)>> {
        let opened = self.handle.opened_to_read(py)?;
        let Access::Store(store) = &opened.access else { return Ok(None) };
        Ok(store
            .lookups()
            .map(|it| (it.lookup_count, it.hit_count, it.compared_count, it.line_count)))
    }

    /// Verify the table; return its keys, the number of damages and the first of them.
    #[pyo3(name = "_check", signature = (progress=None))]
    fn check_parts(
        &self,
        py: Python<'_>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(u64, u64, Vec<String>)> {
        let opened = self.handle.opened_to_read(py)?;
        let Access::Store(store) = &opened.access else {
            let report = self.long_read(py, |opened| opened.table().check())?;
            return Ok((report.record_count, report.damage_count, report.damages));
        };
        let report = watch::run(py, progress.as_ref(), &opened, |watch| {
            store.check_with(|progress| watch.call(progress.bytes, progress.bytes_total))
        })?;
        let damages = report.damages.iter().map(ToString::to_string).collect();
        Ok((store.len(), report.damage_count, damages))
    }

    /// Copy the table to a new file; return the size of the copy.
    #[pyo3(name = "_backup", signature = (path, progress=None))]
    fn backup_file(
        &self,
        py: Python<'_>,
        path: PathBuf,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<u64> {
        let opened = self.handle.opened_to_read(py)?;
        let Access::Store(store) = &opened.access else {
            return Err(error::invalid(py, "only a store can be backed up; copy the file instead"));
        };
        let report = watch::run(py, progress.as_ref(), &opened, |watch| {
            let copy = store.backup_with();
            let copy = copy.on_progress(|it| watch.call(it.bytes, it.bytes_total));
            copy.write(&path)
        })?;
        Ok(report.file_bytes)
    }
}

/// Returns the values of keys that `find` looks up, `default` for a missing key, and looks for Ctrl-C
/// between chunks.
pub(crate) fn get_in_chunks<'py, V: AsRef<[u8]>>(
    keys: &Bound<'py, PyAny>,
    default: Option<Bound<'py, PyAny>>,
    mut find: impl FnMut(&[&[u8]]) -> PyResult<Vec<Option<V>>>,
) -> PyResult<Bound<'py, PyList>> {
    let py = keys.py();
    bytes::refuse_single(keys)?;
    let default = default.unwrap_or_else(|| py.None().into_bound(py));
    let values = objects::list(py)?;
    let mut keys = keys.try_iter()?;
    let mut chunk: Vec<ByteString<'py>> = Vec::with_capacity(BATCH);
    loop {
        chunk.clear();
        for key in keys.by_ref().take(CHUNK) {
            chunk.push(bytes::key_of(key?)?);
        }
        let slices: Vec<&[u8]> = chunk.iter().map(ByteString::as_slice).collect();
        for value in find(&slices)? {
            match value {
                Some(value) => values.append(objects::bytes(py, value.as_ref())?)?,
                None => values.append(&default)?,
            }
        }
        if chunk.len() < CHUNK {
            return Ok(values);
        }
        py.check_signals()?;
    }
}

/// Stores pairs by `put` up to the first that fails, and looks for Ctrl-C between chunks.
pub(crate) fn put_in_chunks(
    pairs: &Bound<'_, PyAny>,
    mut put: impl FnMut(&[(&[u8], &[u8])]) -> PyResult<()>,
) -> PyResult<()> {
    let py = pairs.py();
    let mut pairs = pairs_of(pairs)?;
    loop {
        let expected = pairs.size_hint().0.clamp(BATCH, CHUNK);
        let mut chunk: Vec<(ByteString<'_>, ByteString<'_>)> = Vec::with_capacity(expected);
        let taken = pairs.by_ref().take(CHUNK).try_for_each(|pair| {
            let (key, value) = pair?;
            chunk.push((bytes::key_of(key)?, bytes::value_of(value)?));
            Ok::<(), PyErr>(())
        });
        let slices: Vec<(&[u8], &[u8])> =
            chunk.iter().map(|(key, value)| (key.as_slice(), value.as_slice())).collect();
        put(&slices)?;
        taken?;
        if chunk.len() < CHUNK {
            return Ok(());
        }
        py.check_signals()?;
    }
}
