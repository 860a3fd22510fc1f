//! The state of an open table that calls, scans and views share, and its end.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::Duration;

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use splitpoint::rehash::rehash;
use splitpoint::{
    Create, Db, Error, ErrorKind, Holder, HolderRole, Options, Result, Sharing, Table, Unsupported,
};

use crate::{error, opening};

/// A table by its access method. Only stores have calls of their own.
#[derive(Debug)]
pub(crate) enum Access {
    Store(Db),
    Other(Box<dyn Table>),
}

impl Access {
    pub(crate) fn of(table: Box<dyn Table>) -> Self {
        let is_store = (&*table as &dyn Any).is::<Db>();
        if !is_store {
            return Self::Other(table);
        }
        let table: Box<dyn Any> = table;
        match table.downcast::<Db>() {
            Ok(store) => Self::Store(*store),
            Err(_) => unreachable!("its type was compared"),
        }
    }

    fn close(self) -> Result<bool> {
        match self {
            Self::Store(store) => store.close(),
            Self::Other(table) => table.close(),
        }
    }
}

/// The forks that lie between this process and the one that imported the package. The interpreter
/// counts them, since asking the system at each lookup would take a fifth of its time.
static FORK_COUNT: AtomicU64 = AtomicU64::new(0);

/// Notes that this process is a new child.
#[pyfunction]
pub(crate) fn note_fork() {
    FORK_COUNT.fetch_add(1, Ordering::Relaxed);
}

/// The process that opened a table, for what may outlive it: an iterator, a snapshot, a transaction.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// As errors name it.
    path: Arc<Path>,
    /// Whether another process, the parent, may change it after a fork.
    is_shared_after_fork: bool,
    is_in_memory: bool,
    /// [`FORK_COUNT`] of the process.
    fork_count: u64,
}

impl Origin {
    /// Returns whether this process is a fork of it.
    fn is_forked(&self) -> bool {
        FORK_COUNT.load(Ordering::Relaxed) != self.fork_count
    }

    /// Returns whether a call would wait for a thread of the parent, or read what the parent changes.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.is_shared_after_fork && self.is_forked()
    }

    /// Refuses to go on with it in a child. It takes no lock, which a thread of the parent may hold.
    ///
    /// # Errors
    ///
    /// `splitpoint.error` with code `forked`.
    #[inline]
    pub(crate) fn check(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_lost() { Err(error::forked(py, &self.path)) } else { Ok(()) }
    }

    /// Returns the exception for an error of the table, which names its file if it has one.
    fn raise(&self, py: Python<'_>, error: &Error) -> PyErr {
        if self.is_in_memory {
            error::raise_about_none(py, error)
        } else {
            error::raise_about(py, &self.path, error)
        }
    }
}

/// An open table.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) access: Access,
    pub(crate) origin: Origin,
    /// Its path, whatever the working directory is by now.
    absolute: PathBuf,
    /// What opened it.
    options: Options,
    pub(crate) is_read_only: bool,
    /// Whether a child of a fork has opened it, in the place of a table that its parent writes.
    is_childs: bool,
    /// Views of values that Python has not released.
    views: AtomicUsize,
    attached: Mutex<Vec<Weak<dyn Ends>>>,
}

impl Opened {
    pub(crate) fn new(access: Access, path: &Path, options: Options) -> Self {
        let mut opened = Self {
            access,
            absolute: std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()),
            origin: Origin {
                path: path.into(),
                is_shared_after_fork: false,
                is_in_memory: false,
                fork_count: FORK_COUNT.load(Ordering::Relaxed),
            },
            options,
            is_read_only: false,
            is_childs: false,
            views: AtomicUsize::new(0),
            attached: Mutex::default(),
        };
        let capabilities = opened.table().capabilities();
        opened.is_read_only = capabilities.is_read_only;
        let has_file = !capabilities.durability.is_empty();
        opened.origin.is_shared_after_fork = has_file && !capabilities.is_read_only;
        // An old file that is only read has no durability either.
        opened.origin.is_in_memory = !has_file && matches!(opened.access, Access::Store(_));
        opened
    }

    /// Says that the table has no file, whatever its access method.
    pub(crate) fn in_memory(mut self) -> Self {
        self.origin.is_in_memory = true;
        self
    }

    /// Returns the path, as errors name it.
    pub(crate) fn path(&self) -> &Path {
        &self.origin.path
    }

    pub(crate) fn table(&self) -> &dyn Table {
        match &self.access {
            Access::Store(store) => store,
            Access::Other(table) => &**table,
        }
    }

    /// Returns the store, for what other tables do not have.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] for another table.
    pub(crate) fn store(&self, what: &str) -> Result<&Db> {
        match &self.access {
            Access::Store(store) => Ok(store),
            Access::Other(_) => Err(Error::Unsupported {
                path: self.path().to_path_buf(),
                feature: Unsupported::Other,
                reason: format!("only a store has `{what}`"),
            }),
        }
    }

    /// Returns whether this process is a fork of the one that opened the table.
    pub(crate) fn is_forked(&self) -> bool {
        self.origin.is_forked()
    }

    /// Opens the file again to read, with its own options, in a child of the process that writes it.
    ///
    /// # Errors
    ///
    /// Those of [`Options::open`]: [`ErrorKind::Locked`] if the parent has the file for itself.
    fn reopened(&self, options: Options, sharing: Sharing) -> Result<Self> {
        let options = options.create(Create::Never).read_only().sharing(sharing);
        let access = Access::Store(options.open(&self.absolute)?);
        let reopened = Self::new(access, self.path(), options);
        Ok(Self { absolute: self.absolute.clone(), is_childs: true, ..reopened })
    }

    /// Returns the exception for an error of this table.
    pub(crate) fn raise(&self, py: Python<'_>, error: &Error) -> PyErr {
        if error.kind() == ErrorKind::Poisoned && self.is_forked() {
            return error::forked(py, self.path());
        }
        self.origin.raise(py, error)
    }

    fn attached(&self) -> MutexGuard<'_, Vec<Weak<dyn Ends>>> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends what borrows from the table, which nobody can reach any more.
    fn end_attached(&self, py: Python<'_>) {
        let attached: Vec<_> = self.attached().drain(..).filter_map(|it| it.upgrade()).collect();
        py.detach(|| attached.iter().for_each(|it| it.end()));
    }

    /// Counts a view, which keeps the table from being closed.
    pub(crate) fn add_view(&self) {
        self.views.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a view less.
    pub(crate) fn remove_view(&self) {
        self.views.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A table during a call, as long as which it is not closed.
///
/// The outer count is that of the calls, the inner one that of what borrows from the table also.
#[derive(Clone, Debug)]
#[expect(clippy::redundant_allocation, reason = "two counts")]
pub(crate) struct Call(Arc<Arc<Opened>>);

impl Deref for Call {
    type Target = Opened;

    fn deref(&self) -> &Opened {
        &self.0
    }
}

impl Call {
    fn new(opened: Opened) -> Self {
        Self(Arc::new(Arc::new(opened)))
    }

    /// Returns the table for what borrows from it beyond the call.
    pub(crate) fn table_to_borrow(&self) -> Arc<Opened> {
        Arc::clone(&self.0)
    }
}

/// What borrows from a table: a scan, a snapshot, a transaction. It is there until Python drops it or the
/// table is closed.
pub(crate) type Attached<T> = Arc<Mutex<Option<T>>>;

/// Something [`Attached`], of any type.
trait Ends: Send + Sync {
    fn end(&self);
}

impl fmt::Debug for dyn Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ends")
    }
}

impl<T: Send> Ends for Mutex<Option<T>> {
    fn end(&self) {
        let ended = self.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Without the lock, for this may take long.
        drop(ended);
    }
}

/// A table, open or closed.
#[derive(Debug)]
pub(crate) struct Handle {
    /// A lock that is only taken with the interpreter's: a fork of another thread finds it free.
    slot: RwLock<Option<Call>>,
    /// Who else may have the file open.
    sharing: Sharing,
    /// How long an open waits for the others.
    lock_timeout: Duration,
}

impl Handle {
    pub(crate) fn new(opened: Opened, sharing: Sharing, lock_timeout: Duration) -> Self {
        Self { slot: RwLock::new(Some(Call::new(opened))), sharing, lock_timeout }
    }

    /// Returns the table, for a change.
    ///
    /// # Errors
    ///
    /// `splitpoint.error` with code `closed`, and with code `forked` in a child of the process that has
    /// opened it to write.
    pub(crate) fn opened(&self, py: Python<'_>) -> PyResult<Call> {
        let opened = self.slot().clone();
        // Without the lock: an exception is made by Python code.
        let opened = opened.ok_or_else(|| error::closed(py))?;
        opened.origin.check(py)?;
        if opened.is_childs { Err(error::forked(py, opened.path())) } else { Ok(opened) }
    }

    /// Returns the table, for a call that only reads and may take long or run Python code.
    ///
    /// # Errors
    ///
    /// `splitpoint.error` with code `closed`. In a child of the process that writes the table, those of
    /// an open, and code `forked` if it is no store.
    pub(crate) fn opened_to_read(&self, py: Python<'_>) -> PyResult<Call> {
        let opened = self.slot().clone();
        let opened = opened.ok_or_else(|| error::closed(py))?;
        if !opened.origin.is_lost() {
            return Ok(opened);
        }
        if matches!(opened.access, Access::Other(_)) {
            return Err(error::forked(py, opened.path()));
        }
        let sharing = match self.sharing {
            // Nobody has the file for itself in order to read it.
            Sharing::Exclusive => Sharing::OneWriter,
            sharing => sharing,
        };
        let own = opening::wait(
            py,
            Some(opened.path()),
            self.lock_timeout,
            &opened.options,
            |options| opened.reopened(options, sharing),
        )?;
        self.replace(py, opened, Call::new(own)).ok_or_else(|| error::closed(py))
    }

    /// Keeps a table of this child instead of its parent's. Returns the one that there is by then, or
    /// `None` if it was closed meanwhile.
    fn replace(&self, py: Python<'_>, parents: Call, own: Call) -> Option<Call> {
        let mut slot = self.slot.write().unwrap_or_else(PoisonError::into_inner);
        let is_still = slot.as_ref().is_some_and(|now| Arc::ptr_eq(&now.0, &parents.0));
        // Otherwise another thread of the child was first.
        let unused = if is_still { slot.replace(own) } else { Some(own) };
        let now = slot.clone();
        drop(slot);
        // The parent's goes only from memory: the file is not this process's to close.
        py.detach(|| drop((unused, parents)));
        now
    }

    /// Calls `work`, which only reads, on the table. It must not run Python code, which may close the
    /// table.
    ///
    /// # Errors
    ///
    /// As [`opened_to_read`](Self::opened_to_read).
    #[inline]
    pub(crate) fn with<R>(&self, py: Python<'_>, work: impl FnOnce(&Opened) -> R) -> PyResult<R> {
        let slot = self.slot();
        if let Some(opened) = slot.as_deref()
            && !opened.origin.is_lost()
        {
            return Ok(work(opened));
        }
        drop(slot);
        self.opened_to_read(py).map(|opened| work(&opened))
    }

    pub(crate) fn is_open(&self) -> bool {
        self.slot().is_some()
    }

    /// Returns whether it is open, and this process is a fork of the one that opened it.
    pub(crate) fn is_forked(&self) -> bool {
        let slot = self.slot();
        slot.as_ref().is_some_and(|opened| opened.is_childs || opened.is_forked())
    }

    /// Begins what borrows from `opened`, which is the table, and ends it when the table is closed.
    ///
    /// # Errors
    ///
    /// Those of `begin`; `splitpoint.error` with code `closed`.
    pub(crate) fn attach<T: Send + 'static>(
        &self,
        py: Python<'_>,
        opened: Call,
        begin: impl FnOnce(Arc<Opened>) -> Result<T> + Send,
    ) -> PyResult<Attached<T>> {
        let begun = py.detach(|| begin(opened.table_to_borrow()));
        let begun = begun.map_err(|error| opened.raise(py, &error))?;
        let begun = Arc::new(Mutex::new(Some(begun)));
        {
            let mut attached = opened.attached();
            attached.retain(|it| it.strong_count() > 0);
            let weak: Weak<Mutex<Option<T>>> = Arc::downgrade(&begun);
            attached.push(weak);
        }
        // A `close` that has ended the others before this one was among them has emptied the slot before
        // that.
        let is_open = self.slot().as_ref().is_some_and(|now| Arc::ptr_eq(&now.0, &opened.0));
        if is_open {
            return Ok(begun);
        }
        py.detach(|| drop((begun, opened)));
        Err(error::closed(py))
    }

    fn slot(&self) -> RwLockReadGuard<'_, Option<Call>> {
        self.slot.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the table away from other threads.
    ///
    /// # Errors
    ///
    /// `BufferError` while a view is open; then nothing has changed.
    fn take(&self) -> PyResult<Option<Call>> {
        let taken = {
            let mut slot = self.slot.write().unwrap_or_else(PoisonError::into_inner);
            match slot.as_ref().map_or(0, |opened| opened.views.load(Ordering::Relaxed)) {
                0 => Ok(slot.take()),
                views => Err(views),
            }
        };
        taken.map_err(|views| {
            PyBufferError::new_err(format!(
                "cannot close the table: views of its values are open ({views}); release them first"
            ))
        })
    }

    /// Closes the table. Other threads finish their calls, and the last of them closes the file.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take). Those of the library: the table is closed nevertheless.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(opened) = self.take()? else { return Ok(()) };
        if !opened.origin.is_lost() {
            // In a child a thread of the parent may hold their locks.
            opened.end_attached(py);
        }
        let origin = opened.origin.clone();
        py.detach(|| close(opened)).map_err(|error| origin.raise(py, &error))
    }

    /// Moves the live records of a store into a new file of the same name, as small as they allow.
    /// Meanwhile the table is closed for other threads, and what borrows from it ends.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take); `splitpoint.error` with code `locked` if another thread is in a
    /// call, or another handle reads the file; after these nothing has ended, unless that call was one of
    /// what borrows from the table, such as a step of a scan. The errors of [`rehash`],
    /// which needs the file for itself. If another process takes the file meanwhile, the table is
    /// closed.
    pub(crate) fn reorganize(&self, py: Python<'_>) -> PyResult<()> {
        if !self.can_be_reorganized(py)? {
            return Ok(());
        }
        let Some(opened) = self.take()? else { return Err(error::closed(py)) };
        let set =
            |opened| *self.slot.write().unwrap_or_else(PoisonError::into_inner) = Some(opened);
        let locked = |path: &Path| {
            let holder = Holder::new(HolderRole::Writer, Some(std::process::id()), None);
            let (path, holders) = (path.to_path_buf(), vec![holder]);
            error::raise(py, &Error::Locked { path, holders })
        };
        let opened = match Arc::try_unwrap(opened.0) {
            Ok(opened) => opened,
            Err(shared) => {
                // Another thread is in a call.
                let path = shared.origin.path.clone();
                set(Call(shared));
                return Err(locked(&path));
            }
        };
        opened.end_attached(py);
        let Opened { access, origin, absolute, options, .. } = match Arc::try_unwrap(opened) {
            Ok(opened) => opened,
            Err(shared) => {
                // Another thread is in a call of what has just ended.
                let path = shared.origin.path.clone();
                set(Call(Arc::new(shared)));
                return Err(locked(&path));
            }
        };
        let path = origin.path.clone();
        let reopened = py.detach(|| {
            access.close()?;
            let moved = rehash(&absolute);
            let store = options.clone().create(Create::Never).open(&absolute)?;
            let opened = Opened::new(Access::Store(store), &origin.path, options);
            Ok((Opened { absolute, ..opened }, moved))
        });
        let moved = reopened.and_then(|(opened, moved)| {
            set(Call::new(opened));
            moved
        });
        moved.map(drop).map_err(|error| error::raise_about(py, &path, &error))
    }

    /// Returns whether the table is a store in a file.
    ///
    /// # Errors
    ///
    /// `splitpoint.error` with code `read_only`, and with code `locked` if another handle reads the
    /// file: it would be refused later, when what borrows from the table has ended.
    fn can_be_reorganized(&self, py: Python<'_>) -> PyResult<bool> {
        let opened = self.opened(py)?;
        let has_file = !opened.table().capabilities().durability.is_empty();
        let Access::Store(store) = &opened.access else { return Ok(false) };
        if opened.is_read_only {
            return Err(opened.raise(py, &Error::ReadOnly));
        }
        let readers = py.detach(|| Ok(store.stats()?.readers));
        let readers = readers.map_err(|error| opened.raise(py, &error))?;
        let Some(reader) = readers.first().filter(|_| has_file) else { return Ok(has_file) };
        let holder = Holder::new(HolderRole::Reader, Some(reader.pid), None);
        let (path, holders) = (opened.path().to_path_buf(), vec![holder]);
        Err(error::raise(py, &Error::Locked { path, holders }))
    }
}

/// Closes a table for this thread; the last thread to do so closes the file.
fn close(call: Call) -> Result<()> {
    let (is_forked, opened) = (call.is_forked(), call.table_to_borrow());
    drop(call);
    match Arc::try_unwrap(opened) {
        // The parent's table is not this process's to close.
        Ok(opened) if is_forked => {
            drop(opened);
            Ok(())
        }
        Ok(opened) => opened.access.close().map(drop),
        Err(shared) if is_forked || shared.is_read_only => Ok(()),
        Err(shared) => shared.table().sync(),
    }
}
