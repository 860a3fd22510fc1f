//! `Database`: an open database, with the calls of ndbm(3) and dbm(3) in Rust.

use std::fs::File;
use std::os::fd::RawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use libc::c_int;
use splitpoint::{Db, Error, ErrorKind, PutMode, SharedFile};
use splitpoint_ffi::{CutWatch, errno_of};

use crate::descriptor::{Descriptor, Flags};
use crate::names::Names;
use crate::opening::{code_of, options};
use crate::table::Table;

/// How long the child of a fork waits for its parent to let go of a database.
const PARENT_WAIT_MAX: Duration = Duration::from_secs(1);

/// Why a call failed: a code of `errno`.
pub type Failure = c_int;

/// Whether a store replaces an old value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreMode {
    /// `DBM_REPLACE`
    Replace,
    /// `DBM_INSERT`
    Insert,
}

/// An open database.
///
/// # Examples
///
/// ```
/// use splitpoint_ndbm::{Database, Request, StoreMode};
///
/// # let dir = tempfile::tempdir().unwrap();
/// let name = dir.path().join("capitals");
/// let mut database = Database::open(&Request::create(&name)).unwrap();
/// assert!(database.store(b"Peru", b"Lima", StoreMode::Insert).unwrap());
/// assert!(!database.store(b"Peru", b"Cusco", StoreMode::Insert).unwrap());
/// assert_eq!(database.fetch(b"Peru", <[u8]>::to_vec).unwrap().unwrap(), b"Lima");
/// database.close().unwrap();
/// assert!(dir.path().join("capitals.pag").exists());
/// ```
#[derive(Debug)]
pub struct Database {
    // Closed before the descriptors: they share the file with it.
    pub(crate) table: Option<Table>,
    pub(crate) names: Names,
    pub(crate) flags: Flags,
    /// Whether changes are refused.
    pub(crate) is_read_only: bool,
    /// Whether the first change makes a store of an old file.
    pub(crate) may_convert: bool,
    /// Whether the file was empty when it was opened to read: a writer may make a store of it.
    pub(crate) is_unmade: bool,
    /// The process that opened it.
    pub(crate) process: u32,
    /// The file of a store as this process shares it, or the claim of an old one that may be converted.
    pub(crate) claim: Option<SharedFile>,
    pub(crate) pag: Descriptor,
    pub(crate) watch: CutWatch,
    /// `None` where there is no such file, and none could be made.
    pub(crate) dir: Option<Descriptor>,
}

impl Database {
    /// Calls `take` with the value of a key, and returns what it returns; `None` if the key is absent.
    ///
    /// # Errors
    ///
    /// The code of the failure. A key that is absent is none.
    pub fn fetch<T>(
        &mut self,
        key: &[u8],
        mut take: impl FnMut(&[u8]) -> T,
    ) -> Result<Option<T>, Failure> {
        self.look_for_store()?;
        self.look_for_cut();
        let mut get = |table: &mut Table| Ok(table.get(key)?.map(|value| take(&value)));
        match get(self.table_mut()?) {
            Err(error) if is_of_a_fork(&error) && self.is_inherited() => {
                self.adopt()?;
                get(self.table_mut()?).map_err(|error| errno_of(&error))
            }
            got => got.map_err(|error| errno_of(&error)),
        }
    }

    /// Stores a pair, and returns whether it did: [`StoreMode::Insert`] keeps an old value.
    ///
    /// The change is safe from the death of the process at once, and from a power loss when the
    /// database is closed.
    ///
    /// # Errors
    ///
    /// The code of the failure; `EPERM` if it was opened to read.
    pub fn store(&mut self, key: &[u8], value: &[u8], mode: StoreMode) -> Result<bool, Failure> {
        let mode = match mode {
            StoreMode::Replace => PutMode::Replace,
            StoreMode::Insert => PutMode::New,
        };
        self.change(|table| table.put(key, value, mode))
    }

    /// Deletes a key, and returns whether it was there.
    ///
    /// # Errors
    ///
    /// As [`store`](Self::store).
    pub fn delete(&mut self, key: &[u8]) -> Result<bool, Failure> {
        self.change(|table| table.delete(key))
    }

    /// Begins a walk, and returns its first key.
    ///
    /// Every key that is there from the beginning of the walk to its end comes exactly once, whatever
    /// is stored or deleted meanwhile, by whomever.
    ///
    /// # Errors
    ///
    /// The code of the failure.
    pub fn first_key(&mut self) -> Result<Option<&[u8]>, Failure> {
        self.adopt_to_read()?;
        self.table_mut()?.first_key().map_err(|error| errno_of(&error))
    }

    /// Returns the next key of the walk; `None` at its end, and before its beginning.
    ///
    /// # Errors
    ///
    /// The code of the failure.
    pub fn next_key(&mut self) -> Result<Option<&[u8]>, Failure> {
        self.adopt_to_read()?;
        self.table_mut()?.next_key().map_err(|error| errno_of(&error))
    }

    /// Returns the key that follows another; `None` at the end, and for a key that never was.
    ///
    /// # Errors
    ///
    /// The code of the failure.
    pub fn key_after(&mut self, key: &[u8]) -> Result<Option<&[u8]>, Failure> {
        self.adopt_to_read()?;
        self.table_mut()?.key_after(key).map_err(|error| errno_of(&error))
    }

    /// Returns the descriptor of the file with the pairs.
    pub fn pag_number(&self) -> RawFd {
        self.pag.number()
    }

    /// Returns the descriptor of `NAME.dir`, another one.
    pub fn dir_number(&self) -> RawFd {
        self.dir.as_ref().map_or(-1, Descriptor::number)
    }

    /// Returns whether changes are refused.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Closes it; what was changed is durable then.
    ///
    /// # Errors
    ///
    /// The code of the failure. The database is closed in any case.
    pub fn close(mut self) -> Result<(), Failure> {
        // `None` after a failure that every call has returned since.
        let table = self.table.take().ok_or(libc::EIO)?;
        if self.is_inherited() {
            // The parent has it, and writes what it has changed in an old file; only that has the lock.
            table.leave_to_parent();
            return Ok(());
        }
        if table.is_native() && !self.is_unmade && self.pag.is_cut(&self.watch) {
            std::mem::forget(table);
            return Err(libc::EIO);
        }
        table.close().map_err(|error| errno_of(&error))
    }

    fn change<T>(
        &mut self,
        change: impl Fn(&mut Table) -> splitpoint::Result<T>,
    ) -> Result<T, Failure> {
        if self.is_read_only {
            return Err(libc::EPERM);
        }
        if self.may_convert {
            self.convert()?;
        }
        self.look_for_cut();
        if !self.table()?.is_native() && self.is_inherited() {
            // Its pages are the parent's, which may change and write them too.
            return Err(libc::EAGAIN);
        }
        match change(self.table_mut()?) {
            Err(error) if is_of_a_fork(&error) && self.is_inherited() => {
                self.adopt()?;
                change(self.table_mut()?).map_err(|error| errno_of(&error))
            }
            changed => changed.map_err(|error| errno_of(&error)),
        }
    }

    /// Gives up a store whose file a stranger has cut: every call fails from then on.
    fn look_for_cut(&mut self) {
        let is_store = !self.is_unmade && self.table.as_ref().is_some_and(Table::is_native);
        if is_store && self.pag.sees_cut(&mut self.watch) {
            std::mem::forget(self.table.take());
        }
    }

    fn table(&self) -> Result<&Table, Failure> {
        self.table.as_ref().ok_or(libc::EIO)
    }

    fn table_mut(&mut self) -> Result<&mut Table, Failure> {
        self.table.as_mut().ok_or(libc::EIO)
    }

    /// Returns whether another process has opened it, of which this one is a fork.
    pub(crate) fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }

    /// Opens the store that a writer has made of an empty file since.
    fn look_for_store(&mut self) -> Result<(), Failure> {
        if !self.is_unmade || self.pag.file_bytes().map_err(|error| code_of(&error))? == 0 {
            return Ok(());
        }
        let file = self.pag.try_clone().map_err(|error| code_of(&error))?;
        let opened = SharedFile::by_turns(file, &self.names.pag)
            .and_then(|claim| Ok((options(true).open_shared(&claim)?, claim)));
        match opened {
            Ok((db, claim)) => {
                self.move_to(db, claim);
                self.is_unmade = false;
                self.watch = self.pag.watch();
                Ok(())
            }
            // It is being made: nothing was stored yet.
            Err(error) if error.kind() == ErrorKind::NotAStore => Ok(()),
            Err(error) => Err(errno_of(&error)),
        }
    }

    /// In the child of a fork a walk reads through a handle of its own.
    fn adopt_to_read(&mut self) -> Result<(), Failure> {
        self.look_for_store()?;
        self.look_for_cut();
        let is_parents = self.claim.is_some() && self.table()?.is_of_parent();
        if is_parents { self.adopt() } else { Ok(()) }
    }

    /// Opens the store anew in the child of a fork, beside its parent.
    fn adopt(&mut self) -> Result<(), Failure> {
        let claim = self.claim_anew(|file, path| SharedFile::by_turns(file, path))?;
        let db = options(self.is_read_only).open_shared(&claim).map_err(|it| errno_of(&it))?;
        self.move_to(db, claim);
        Ok(())
    }

    /// Shares the file anew in the child of a fork; if it is claimed, when the parent has let go of it.
    pub(crate) fn claim_anew(
        &self,
        share: impl Fn(File, &Path) -> splitpoint::Result<SharedFile>,
    ) -> Result<SharedFile, Failure> {
        let deadline = Instant::now() + PARENT_WAIT_MAX;
        loop {
            let file = self.pag.try_clone().map_err(|error| code_of(&error))?;
            match share(file, &self.names.pag) {
                Err(error) if error.kind() == ErrorKind::Locked && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                claimed => return claimed.map_err(|error| errno_of(&error)),
            }
        }
    }

    /// Goes on with another handle, which has a claim of its own.
    pub(crate) fn move_to(&mut self, db: Db, claim: SharedFile) {
        let is_inherited = self.is_inherited();
        self.table = Some(match self.table.take() {
            Some(table) => table.moved_to(db, is_inherited),
            None => Table::native(db),
        });
        if is_inherited {
            // Closing it would end the locks that this process has of the file.
            std::mem::forget(self.claim.take());
        }
        self.claim = Some(claim);
        self.process = std::process::id();
    }
}

/// Returns whether a handle refuses because its process is a fork.
fn is_of_a_fork(error: &Error) -> bool {
    error.kind() == ErrorKind::Poisoned
}
