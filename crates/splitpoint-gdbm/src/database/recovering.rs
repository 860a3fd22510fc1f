//! Reorganize and recover: both leave the descriptor that the program knows.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use splitpoint::{Db, ErrorKind, SharedFile};
use splitpoint_ffi::{
    CutWatch, Identity, Predecessor, Walk, beside, close_descriptor, replace_descriptor,
};

use super::{Database, Descriptor, native_options, share};
use crate::code::{Code, Failure, Outcome};
use crate::descriptor;
use crate::table::Table;

/// Bytes that a reorganization reads at a time.
const BUDGET: u64 = 64 << 20;
/// How long a reorganization waits for the calls of others.
const CALL_WAIT_MAX: Duration = Duration::from_secs(10);
/// Copies that are kept beside a file at most.
const BACKUPS_MAX: u32 = 10_000;

/// What a program wants of a recovery.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecoveryWishes {
    /// Whether a copy of the file is kept.
    pub(crate) backs_up: bool,
    /// Whether a sound database is rebuilt too.
    pub(crate) is_forced: bool,
    /// So many lost keys, lost buckets, or both together are too many; 0 never are.
    pub(crate) failed_key_limit: usize,
    pub(crate) failed_bucket_limit: usize,
    pub(crate) failure_limit: usize,
}

/// What a recovery has found.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    pub(crate) key_count: usize,
    pub(crate) bucket_count: usize,
    pub(crate) failed_key_count: usize,
    pub(crate) failed_bucket_count: usize,
    /// What was damaged, in words.
    pub(crate) damage: Vec<String>,
    pub(crate) backup: Option<CString>,
    /// Whether more was lost than the program allows, so that the file is as it was.
    pub(crate) is_given_up: bool,
}

impl Recovered {
    fn loses_too_much(&self, wishes: &RecoveryWishes) -> bool {
        let reaches = |count: usize, limit: usize| limit != 0 && count >= limit;
        let failure_count = self.failed_key_count.saturating_add(self.failed_bucket_count);
        reaches(self.failed_key_count, wishes.failed_key_limit)
            || reaches(self.failed_bucket_count, wishes.failed_bucket_limit)
            || reaches(failure_count, wishes.failure_limit)
    }
}

impl Database {
    /// Gives back what dead pairs take, and shortens the file.
    pub(crate) fn reorganize(&mut self) -> Outcome<()> {
        if !self.is_writer {
            return Err(Failure::of(Code::READER_CANT_REORGANIZE));
        }
        if self.may_convert && matches!(self.table, Some(Table::Old(_))) {
            self.convert_old()?;
        } else if matches!(&self.file, Descriptor::Shared(file) if file.takes_turns()) {
            self.reorganize_alone()?;
        } else {
            self.read(|table| match table {
                Table::Native { db, .. } => compact(db),
                Table::Old(_) => Ok(()),
            })?;
            // A close shortens the file.
            self.reopen()?;
        }
        if self.snapshots.is_some() { self.sync() } else { Ok(()) }
    }

    /// Does the same for a handle that takes turns: others wait meanwhile.
    fn reorganize_alone(&mut self) -> Outcome<()> {
        if self.is_inherited() {
            self.adopt()?;
        }
        let Some(Table::Native { db, walk }) = self.table.take() else {
            return Err(Failure::of(Code::NEED_RECOVERY));
        };
        let closed = db.close().map_err(|error| Failure::of_sync(&error));
        let compacted = closed.and_then(|_| {
            let claim = self.claim_between_turns()?;
            let db = native_options(true).open_shared(&claim);
            let db = db.map_err(|error| Failure::of_open(&error, true))?;
            compact(&db)?;
            db.close().map(drop).map_err(|error| Failure::of_sync(&error))
        });
        self.open_again(walk)?;
        compacted
    }

    /// Claims the place of the writer while nobody is in a call.
    fn claim_between_turns(&self) -> Outcome<SharedFile> {
        let deadline = Instant::now() + CALL_WAIT_MAX;
        loop {
            let file = self.open_file()?.try_clone();
            let file = file.map_err(|error| Failure::of_io(Code::FILE_OPEN_ERROR, &error))?;
            match SharedFile::for_writer(file, &self.path) {
                Err(error) if error.kind() == ErrorKind::Locked && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_micros(200));
                }
                claimed => return claimed.map_err(|error| Failure::of_open(&error, true)),
            }
        }
    }

    /// Closes the store and opens it again, in the same file. The walk does not notice.
    fn reopen(&mut self) -> Outcome<()> {
        let Some(Table::Native { db, walk }) = self.table.take() else {
            return self.open_again(Box::default());
        };
        let closed = db.close();
        self.open_again(walk)?;
        match closed {
            // What can be read was read again.
            Err(error) if error.kind() != ErrorKind::Poisoned => Err(Failure::of_sync(&error)),
            _ => Ok(()),
        }
    }

    fn open_again(&mut self, mut walk: Box<Walk>) -> Outcome<()> {
        let Descriptor::Shared(file) = &self.file else {
            return Err(Failure::of(Code::NEED_RECOVERY));
        };
        let db = native_options(self.is_writer).open_shared(file);
        let db = db.map_err(|error| Failure::of_open(&error, self.is_writer))?;
        walk.move_on();
        self.table = Some(Table::Native { db, walk });
        Ok(())
    }

    /// Verifies the database, and saves what can be read into a new file if it is damaged.
    pub(crate) fn recover(&mut self, wishes: &RecoveryWishes) -> Outcome<Recovered> {
        if !self.is_writer {
            return Err(Failure::of(Code::READER_CANT_REORGANIZE));
        }
        if self.may_convert && matches!(self.table, Some(Table::Old(_))) {
            self.convert_old()?;
        }
        let backup = if wishes.backs_up { Some(self.back_up()?) } else { None };
        let mut recovered = Recovered::default();
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
        if wishes.is_forced || !recovered.damage.is_empty() {
            if matches!(&self.file, Descriptor::Shared(file) if file.takes_turns()) {
                self.repair_alone(wishes, &mut recovered)?;
            } else {
                self.repair(wishes, &mut recovered, backup.as_deref())?;
            }
        }
        if let Some(backup) = backup {
            let name = CString::new(backup.into_os_string().into_vec());
            recovered.backup = Some(name.map_err(|_| Failure::of(Code::BACKUP_FAILED))?);
        }
        if let Some(Table::Native { db, .. }) = &self.table
            && !recovered.is_given_up
        {
            let stats = db.stats().map_err(|error| Failure::of_read(&error))?;
            recovered.key_count = stats.record_count as usize;
            recovered.bucket_count = stats.geometry.bucket_count() as usize;
        }
        Ok(recovered)
    }

    /// Copies the file as it is, and returns the name of the copy.
    fn back_up(&self) -> Outcome<PathBuf> {
        for number in 1..BACKUPS_MAX {
            let name = beside(&self.path, &format!(".~{number}~"));
            match self.copy_file(&name) {
                Ok(()) => return Ok(name),
                Err(failure) if failure.errno == libc::EEXIST => {}
                Err(failure) => return Err(failure),
            }
        }
        Err(Failure::new(Code::BACKUP_FAILED, libc::EEXIST))
    }

    /// Copies the file as it is to a new one, durably.
    fn copy_file(&self, target: &Path) -> Outcome<()> {
        let failed = |error: io::Error| Failure::of_io(Code::BACKUP_FAILED, &error);
        // By the descriptor: the name may be another file's.
        let mut file = self.open_file()?;
        let mode = file.metadata().map_err(failed)?.mode() & 0o600;
        let mut copy = File::options();
        let copy = copy.write(true).create_new(true).mode(mode).open(target);
        let mut copy = copy.map_err(failed)?;
        let copied = file
            .seek(SeekFrom::Start(0))
            .and_then(|_| io::copy(&mut file, &mut copy))
            .and_then(|_| copy.sync_all());
        copied.map_err(failed).inspect_err(|_| drop(fs::remove_file(target)))
    }

    /// Does the same as [`repair`](Self::repair) for a handle that takes turns: from the copy to the moment
    /// at which the new file has the name nobody changes the old one.
    fn repair_alone(&mut self, wishes: &RecoveryWishes, recovered: &mut Recovered) -> Outcome<()> {
        // Its own turn would be in the way too.
        let walk = match self.table.take() {
            Some(Table::Native { walk, .. }) => walk,
            _ => Box::default(),
        };
        let repaired = self.claim_between_turns().and_then(|claim| {
            // A backup may lack what others have changed since.
            let repaired = self.repair(wishes, recovered, None);
            drop(claim);
            repaired
        });
        if self.table.is_none() {
            // The old file, as far as it can be read.
            let _ = self.open_again(walk);
        }
        repaired
    }

    /// Saves what can be read into a new file, which takes the name unless too much is lost.
    ///
    /// The damaged file stays locked: what is read is a copy of it, the backup if there is one.
    fn repair(
        &mut self,
        wishes: &RecoveryWishes,
        recovered: &mut Recovered,
        backup: Option<&Path>,
    ) -> Outcome<()> {
        let old = self.predecessor()?;
        let target = old.place_of_successor();
        // Of a recovery that was killed.
        let _ = fs::remove_file(&target);
        let copy = beside(&target, ".damaged");
        let source = if let Some(backup) = backup {
            backup
        } else {
            let _ = fs::remove_file(&copy);
            self.copy_file(&copy)?;
            &copy
        };
        let repaired = splitpoint::repair::repair(source, &target);
        let _ = fs::remove_file(&copy);
        let report = repaired.map_err(|error| Failure::of_write(&error))?;
        let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        recovered.failed_key_count = count(report.damaged_count + report.lost_big_count);
        recovered.failed_bucket_count = count(report.lost_segment_count);
        recovered.is_given_up = recovered.loses_too_much(wishes);
        if recovered.is_given_up {
            let _ = fs::remove_file(&target);
            return Ok(());
        }
        self.install(&old, &target).inspect_err(|_| drop(fs::remove_file(&target)))
    }

    /// Gives the name of the database to the store at `new`, and its descriptor to that file. Whoever is
    /// kept out of the old file is kept out of the new one from its first moment.
    pub(super) fn install(&mut self, old: &Predecessor, new: &Path) -> Outcome<()> {
        let failed = |code| move |error: io::Error| Failure::of_io(code, &error);
        old.pass_on_access(new).map_err(failed(Code::ERR_FILE_MODE))?;
        let file = File::options().read(true).write(true).open(new);
        let file = file.map_err(failed(Code::FILE_OPEN_ERROR))?;
        if self.has_flock && !descriptor::try_lock(&file, true).unwrap_or(true) {
            return Err(Failure::of(Code::CANT_BE_WRITER));
        }
        let metadata = file.metadata().map_err(failed(Code::FILE_STAT_ERROR))?;
        let shared = share(file, &self.path, true, self.has_flock);
        let shared = shared.map_err(|error| Failure::of_open(&error, true))?;
        let db = native_options(true).open_shared(&shared);
        let db = db.map_err(|error| Failure::of_open(&error, true))?;
        old.replace(new).map_err(failed(Code::FILE_WRITE_ERROR))?;

        // From here on it is the database, whatever fails.
        self.table = Some(match self.table.take() {
            Some(table @ Table::Old(_)) => table.moved_to(db, false),
            _ => Table::native(db),
        });
        let was = std::mem::replace(&mut self.identity, Identity::of(&metadata));
        let replaced = std::mem::replace(&mut self.file, Descriptor::None).into_file();
        let known = if let Some(given) = self.given.take() {
            replaced.map(|file| close_descriptor(file, was));
            Some(given)
        } else {
            replaced
        };
        let given = known.map(|known| replace_descriptor(known, was, shared.file()));
        self.watch = CutWatch::of(Some(shared.file()));
        self.file = Descriptor::Shared(shared);
        self.given = given.transpose().map_err(failed(Code::FILE_OPEN_ERROR))?;
        old.sync().map_err(failed(Code::FILE_SYNC_ERROR))
    }

    /// Keeps the number of the descriptor that the program knows when another claim takes its place.
    pub(super) fn keep_number(&mut self) {
        let number = self.fd();
        let old = std::mem::replace(&mut self.file, Descriptor::None);
        if let Descriptor::Shared(old) = old {
            // The claim was the parent's; closing the file would end the locks that this process has of it.
            let old_number = old.file().as_raw_fd();
            std::mem::forget(old);
            if self.given.is_none() {
                debug_assert_eq!(old_number, number);
                // SAFETY: nobody closes the descriptor but this, since its owner was forgotten.
                self.given = Some(unsafe { File::from_raw_fd(number) });
            }
        }
    }
}

/// Gives back what dead pairs take.
fn compact(db: &Db) -> Outcome<()> {
    loop {
        match db.maintain(BUDGET) {
            Ok(done) if done.is_done => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(Failure::of_write(&error)),
        }
    }
}
