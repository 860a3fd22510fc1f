//! Reorganize and recover: both leave the descriptor that the program knows.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use splitpoint::ErrorKind;

use super::{Database, Descriptor, claim, native_options};
use crate::code::{Code, Failure, Outcome};
use crate::descriptor::{self, Identity};
use crate::table::Table;

/// Bytes that a reorganization reads at a time.
const BUDGET: u64 = 64 << 20;
/// Copies that are kept beside a file at most.
const BACKUPS_MAX: u32 = 10_000;

/// What a recovery has found.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    pub(crate) key_count: usize,
    pub(crate) bucket_count: usize,
    pub(crate) failed_key_count: usize,
    /// What was damaged, in words.
    pub(crate) damage: Vec<String>,
    pub(crate) backup: Option<CString>,
}

impl Database {
    /// Gives back what dead pairs take, and shortens the file.
    pub(crate) fn reorganize(&mut self) -> Outcome<()> {
        if !self.is_writer {
            return Err(Failure::of(Code::READER_CANT_REORGANIZE));
        }
        if self.may_convert && matches!(self.table, Some(Table::Old(_))) {
            return self.convert_old();
        }
        self.read(|table| {
            let Table::Native { db, .. } = table else { return Ok(()) };
            loop {
                match db.maintain(BUDGET) {
                    Ok(done) if done.is_done => return Ok(()),
                    Ok(_) => {}
                    Err(error) => return Err(Failure::of_write(&error)),
                }
            }
        })?;
        // A close shortens the file.
        self.reopen()
    }

    /// Closes the store and opens it again, in the same file.
    fn reopen(&mut self) -> Outcome<()> {
        if let Some(Table::Native { db, walk }) = self.table.take() {
            drop(walk);
            let closed = db.close();
            // What can be read is read again below.
            if let Err(error) = closed
                && error.kind() != ErrorKind::Poisoned
            {
                self.open_again()?;
                return Err(Failure::of_sync(&error));
            }
        }
        self.open_again()
    }

    fn open_again(&mut self) -> Outcome<()> {
        let Descriptor::Shared(file) = &self.file else {
            return Err(Failure::of(Code::NEED_RECOVERY));
        };
        let db = native_options(self.is_writer).open_shared(file);
        let db = db.map_err(|error| Failure::of_open(&error, self.is_writer))?;
        self.table = Some(Table::native(db));
        Ok(())
    }

    /// Verifies the database, and saves what can be read into a new file if it is damaged.
    pub(crate) fn recover(&mut self, wants_backup: bool) -> Outcome<Recovered> {
        if !self.is_writer {
            return Err(Failure::of(Code::READER_CANT_STORE));
        }
        if self.may_convert && matches!(self.table, Some(Table::Old(_))) {
            self.convert_old()?;
        }
        let backup = if wants_backup { Some(self.back_up()?) } else { None };
        let mut recovered = Recovered { backup, ..Recovered::default() };
        // A new handle: the old one may refuse everything.
        let opened = self.reopen();
        recovered.damage = match (&self.table, opened) {
            (Some(Table::Native { db, .. }), Ok(())) => match db.check() {
                Ok(report) => report.damages.iter().map(ToString::to_string).collect(),
                Err(error) => vec![error.to_string()],
            },
            (_, Err(failure)) => vec![failure.code.text().to_string_lossy().into_owned()],
            _ => return Err(Failure::of(Code::NEED_RECOVERY)),
        };
        if !recovered.damage.is_empty() {
            recovered.failed_key_count = self.repair()?;
        }
        if let Some(Table::Native { db, .. }) = &self.table {
            let stats = db.stats().map_err(|error| Failure::of_read(&error))?;
            recovered.key_count = stats.record_count as usize;
            recovered.bucket_count = stats.geometry.bucket_count() as usize;
        }
        Ok(recovered)
    }

    /// Copies the file as it is, and returns the name of the copy.
    fn back_up(&self) -> Outcome<CString> {
        let failed = |error: std::io::Error| Failure::of_io(Code::BACKUP_FAILED, &error);
        for number in 1..BACKUPS_MAX {
            let name = beside(&self.path, &format!(".~{number}~"));
            match File::options().write(true).create_new(true).open(&name) {
                Ok(mut copy) => {
                    let mut file = File::open(&self.path).map_err(failed)?;
                    let copied = std::io::copy(&mut file, &mut copy);
                    splitpoint::SharedFile::close_other(file);
                    copied.and_then(|_| copy.sync_all()).map_err(failed)?;
                    return CString::new(name.as_os_str().as_bytes())
                        .map_err(|_| Failure::of(Code::BACKUP_FAILED));
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(Failure::new(Code::BACKUP_FAILED, libc::EEXIST))
    }

    /// Saves what can be read into a new file, which takes the name. Returns the number of records that
    /// were lost.
    fn repair(&mut self) -> Outcome<usize> {
        let target = beside(&self.path, ".splitpoint-recovered");
        // Of a recovery that was killed.
        let _ = fs::remove_file(&target);
        self.table = None;
        // A repair opens the file by its name, and wants no writer.
        let old = std::mem::replace(&mut self.file, Descriptor::None).into_file();
        let old = old.ok_or_else(|| Failure::of(Code::NEED_RECOVERY))?;
        if self.has_flock {
            let _ = old.unlock();
        }
        let repaired = splitpoint::repair::repair(&self.path, &target);
        self.file = Descriptor::Plain(old);
        let report = repaired.map_err(|error| Failure::of_write(&error))?;
        self.install(&target)?;
        Ok(usize::try_from(report.damaged_count).unwrap_or(usize::MAX))
    }

    /// Gives the name of the database to the store at `new`, and its descriptor to that file.
    pub(super) fn install(&mut self, new: &Path) -> Outcome<()> {
        let failed = |code| move |error: std::io::Error| Failure::of_io(code, &error);
        let file = File::options().read(true).write(true).open(new);
        let file = file.map_err(failed(Code::FILE_OPEN_ERROR))?;
        if self.has_flock && !descriptor::try_lock(&file, true).unwrap_or(true) {
            return Err(Failure::of(Code::CANT_BE_WRITER));
        }
        let metadata = file.metadata().map_err(failed(Code::FILE_STAT_ERROR))?;
        let path = fs::canonicalize(&self.path).map_err(failed(Code::ERR_REALPATH))?;
        fs::rename(new, &path).map_err(failed(Code::FILE_WRITE_ERROR))?;
        sync_directory(&path).map_err(failed(Code::FILE_SYNC_ERROR))?;

        let old = std::mem::replace(&mut self.file, Descriptor::None).into_file();
        let Some(known) = self.given.take().or(old) else {
            return Err(Failure::of(Code::NEED_RECOVERY));
        };
        let file = descriptor::replace(known, file).map_err(failed(Code::FILE_OPEN_ERROR))?;
        self.identity = Identity::of(&metadata);
        let shared = claim(file, &self.path, self.is_writer);
        let shared = shared.map_err(|error| Failure::of_open(&error, self.is_writer))?;
        self.file = Descriptor::Shared(shared);
        self.open_again()
    }

    /// Keeps the number of the descriptor that the program knows when another claim takes its place.
    pub(super) fn keep_number(&mut self) {
        let number = self.fd();
        let old = std::mem::replace(&mut self.file, Descriptor::None);
        if let (Descriptor::Shared(old), None) = (old, &self.given) {
            // The claim was the parent's.
            debug_assert_eq!(old.file().as_raw_fd(), number);
            std::mem::forget(old);
            // SAFETY: nobody closes the descriptor but this, since its owner was forgotten.
            self.given = Some(unsafe { File::from_raw_fd(number) });
        }
    }
}

/// Returns the path of a file beside another one.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(suffix);
    PathBuf::from(name)
}

/// Makes the names in the directory of a file durable.
pub(super) fn sync_directory(path: &Path) -> std::io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}
