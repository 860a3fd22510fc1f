//! Consistent copies of a store, also while it is being written to.
//!
//! [`Db::backup`](crate::Db::backup) copies an open store; [`backup`](fn@backup) copies a file,
//! even if another process is writing to it. [`Backup`] has the options of both.
//!
//! # A store that was never compacted
//!
//! ```text
//! source | header | log | index | log | big | index | log (tail)  P ... |
//!                   |             |     |             |           ^ last commit
//! copy   | header | log | hole  | log | big | hole  | log (tail)  0 ... |
//! ```
//!
//! Bytes of the log before the last commit never change, so the log up to some commit *is* a
//! snapshot of the store. Copying it blocks neither the threads of a handle nor a writer in another
//! process. Segments are copied to the same offsets, because checksums and addresses depend on
//! them; the tail is cut after the commit. The index is not copied but rebuilt from the copied log.
//!
//! A backup through an open handle pins the log, because the handle may begin to compact it during
//! the backup. A backup without a handle locks a byte of the file while it reads, so that no writer
//! shortens the file: a read beyond its end would raise a signal. That lock does not keep a writer
//! from reusing space. Therefore both superblocks are marked as compacted before any space of the
//! log is reused, and a copy counts only if they are still unmarked after its last byte was read.
//!
//! # A store that was compacted
//!
//! Space has been reused, so the log has gaps. The module `pairs` copies the records of a scan to a
//! new store, which is compact and has a uuid of its own. Changes go on during the copy: a file is
//! opened read-only, beside its writer if there is one.
//!
//! # Where the last commit is found
//!
//! | source | the log ends at |
//! |---|---|
//! | an open handle | its last commit |
//! | a file that is closed, or was opened on this boot | the commit in the live header |
//! | any other file: after a power loss, itself a copy | its first invalid record |
//!
//! In the last case no process may write during the copy, so the backup holds a shared lock; it
//! waits for a process that is creating or recovering the file. In all cases every checksum before
//! the end is verified, so a stale live header leads to an error and never to a wrong copy.
//!
//! # Invariants
//!
//! - Nothing is written to the source.
//! - The copy gets its name only when it is complete, closed and durable. The order is: sync data
//!   and index; write and sync the clean superblock; sync the file; rename it; sync the directory.
//!   A power loss before the directory is durable leaves no copy, or the previous one.
//! - A copy of a complete log keeps the uuid, because the uuid names the lineage of a log: up to
//!   the commit, the same sequence numbers name the same records in source and copy. After it the
//!   two may diverge; their new segments then have different salts.

mod pairs;

use std::fmt;
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pairs::{copy_pairs, stream_pairs};

use crate::error::{Error, Result};
use crate::format::{HEADER_BYTES, LIVE_OFFSET, LogStart, SUPERBLOCK_BYTES, Superblock};
use crate::hash::HashFunction;
use crate::horizons::{Horizon, Terms};
use crate::live::CommitState;
use crate::log::append::LogPosition;
use crate::log::scan::{Changes, LogWalk, Logged, Step, Trust};
use crate::log::segment::Segment;
use crate::options::{Create, Options};
use crate::pins::Pin;
use crate::recovery::{open_file, open_storage, resolve_hash};
use crate::region::{Region, read_superblock, unknown_features};
use crate::storage::Storage;
use crate::storage::failure::io_error;
use crate::storage::new_file::NewFile;
use crate::storage::open::{Observed, Observer, Reading, TURN_WAIT, WritersOut, open_to_observe};
use crate::store::{Mark, Store};

/// Bytes written between two calls of the progress function.
const CHUNK_BYTES: u64 = 2 << 20;
/// How often, and at what interval, the backup polls a source that another process is creating or
/// recovering.
const LOOKS: u32 = 100;
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How often a last commit of 0 must be read before it is believed, see
/// [`FileSource::commit_left`].
const LOOKS_AT_ZERO: u32 = 3;

/// Makes a consistent copy of the store in the file `source`, with [`Backup::of_file`].
///
/// # Errors
///
/// As [`Backup::write`].
///
/// # Examples
///
/// ```
/// # fn main() -> splitpoint::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let (path, copy) = (dir.path().join("a.spt"), dir.path().join("b.spt"));
/// let db = splitpoint::Db::open(&path)?; // Open here, or in another process.
/// db.put(b"key", b"value")?;
/// splitpoint::backup::backup(&path, &copy)?;
/// assert_eq!(splitpoint::Db::open(&copy)?.len(), 1);
/// # Ok(())
/// # }
/// ```
pub fn backup(source: impl AsRef<Path>, dest: impl AsRef<Path>) -> Result<BackupReport> {
    Backup::of_file(source).write(dest)
}

/// Options of a backup, of a file or of an open handle
/// ([`Db::backup_with`](crate::Db::backup_with)). [`write`](Self::write) and
/// [`write_to`](Self::write_to) run it.
///
/// The copy holds every change up to some moment during the call, and none after it. It does not
/// block changes, neither in this process nor in others.
///
/// If the store was ever compacted, its log has gaps and cannot be copied as it is. The backup then
/// copies the records to a new store with a uuid of its own. If the copy goes to a stream, that
/// store is an unnamed file in the directory for temporary files. For a compacted table in memory,
/// changes wait for the backup, and progress is reported only at its beginning and its end.
///
/// A backup of a file fails if another process compacts the store for the first time during the
/// backup, or has opened it for exclusive use: try again, or call [`Db::backup`](crate::Db::backup)
/// in that process.
///
/// # Examples
///
/// ```
/// # fn main() -> splitpoint::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// use std::ops::{ControlFlow, Range};
///
/// let db = splitpoint::Db::in_memory()?;
/// db.put(b"key", b"value")?;
/// let report = db
///     .backup_with()
///     .on_progress(|progress| {
///         println!("{} of {} bytes", progress.bytes, progress.bytes_total);
///         ControlFlow::Continue(())
///     })
///     .write(dir.path().join("saved.spt"))?;
/// assert_eq!(report.record_count, 1);
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is copied before `write` or `write_to`"]
pub struct Backup<'a> {
    source: Source<'a>,
    hash: Option<HashFunction>,
    is_replacing: bool,
    progress: Option<ProgressFunction<'a>>,
}

type ProgressFunction<'a> = Box<dyn FnMut(BackupProgress) -> ControlFlow<()> + 'a>;

enum Source<'a> {
    File(PathBuf),
    Store(&'a Store),
}

/// What a backup is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackupStage {
    /// Reading and verifying the log, before anything can be written to a stream.
    Verify,
    /// Copying the log. A copy to a file verifies it at the same time.
    Copy,
    /// Building the index of the copy.
    Index,
}

/// How far a backup is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupProgress {
    /// The present stage.
    pub stage: BackupStage,
    /// Bytes of segments that this stage has done.
    pub bytes: u64,
    /// Bytes that the stage will do; an estimate while the source grows. It is 0 for
    /// [`BackupStage::Index`], whose size is not known.
    pub bytes_total: u64,
}

/// What a backup has copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupReport {
    /// Keys in the copy.
    pub record_count: u64,
    /// Log sequence number of the last commit in the copy, in bytes of log.
    pub log_bytes: u64,
    /// Bytes of segments that were copied or, if the source was compacted, bytes of records.
    pub copied_bytes: u64,
    /// Size of the copy in bytes, holes included.
    pub file_bytes: u64,
    /// Whether the end of the log had to be found by scanning it, as after a power loss: the copy
    /// holds what a recovery of the source would find.
    pub is_recovered: bool,
}

impl<'a> Backup<'a> {
    /// Prepares a backup of the file at `path`, which this or another process may have open and be
    /// writing to.
    pub fn of_file(path: impl AsRef<Path>) -> Self {
        Self::new(Source::File(path.as_ref().to_path_buf()))
    }

    pub(crate) fn of_store(store: &'a Store) -> Self {
        let hash = Some(store.hash.clone());
        Self { hash, ..Self::new(Source::Store(store)) }
    }

    fn new(source: Source<'a>) -> Self {
        Self { source, hash: None, is_replacing: false, progress: None }
    }

    /// Sets the hash function, for a store that was created with a function of the program. Without
    /// it, such a file can be copied only to a stream.
    pub fn hash(mut self, function: HashFunction) -> Self {
        self.hash = Some(function);
        self
    }

    /// Replaces a file that exists under the name of the copy. The old file stays until the copy is complete
    /// and durable.
    pub fn replace_existing(mut self) -> Self {
        self.is_replacing = true;
        self
    }

    /// Calls `function` when the file of the copy has been created, and then about every 2 MiB. If
    /// it returns `Break`, the backup stops with an error.
    pub fn on_progress(
        mut self,
        function: impl FnMut(BackupProgress) -> ControlFlow<()> + 'a,
    ) -> Self {
        self.progress = Some(Box::new(function));
        self
    }

    /// Writes the copy to the file `dest`. It is a closed store with an index, ready to be opened.
    ///
    /// The copy is written to `DEST.backup-in-progress`, with the permissions of the source, and
    /// renamed when it is complete. So a file named `dest` is always a complete copy. Parts that
    /// the copy does not need, such as those of the source's index, are holes.
    ///
    /// # Errors
    ///
    /// After an error no partial file remains; a killed process leaves one.
    ///
    /// - [`ErrorKind::Exists`](crate::ErrorKind::Exists) if `dest` exists and
    ///   [`replace_existing`](Self::replace_existing) is not set; with it,
    ///   [`Locked`](crate::ErrorKind::Locked) if a program has the file open.
    /// - [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if `dest` is the source.
    /// - [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the source is damaged before its last
    ///   commit. Its index is not read.
    /// - [`ErrorKind::Locked`](crate::ErrorKind::Locked) if another process takes more than two
    ///   seconds to create or recover the source, or has it open for exclusive use for more than
    ///   ten, or compacts the store for the first time during the backup. In the last case try
    ///   again.
    /// - [`ErrorKind::HashMismatch`](crate::ErrorKind::HashMismatch) if the library does not know
    ///   the hash function of the source: see [`hash`](Self::hash).
    /// - [`ErrorKind::Io`](crate::ErrorKind::Io) if the operating system refuses, the disk is full,
    ///   or the progress function returned `Break` ([`io::ErrorKind::Interrupted`]).
    ///
    /// # Durability
    ///
    /// The copy is durable when this returns. It may hold changes that are not yet durable in the
    /// source.
    ///
    /// # Cost
    ///
    /// Reads the log of the source once and writes it once, then replays the copy: two passes over
    /// the log. Memory does not grow with the log, except by 16 bytes per segment during the
    /// replay. If the store was compacted: one pass over its segments, one bucket for each record,
    /// and a put for each key.
    pub fn write(mut self, dest: impl AsRef<Path>) -> Result<BackupReport> {
        let dest = dest.as_ref();
        if let Source::Store(store) = self.source {
            let Some(kept) = Kept::of(store)? else { return self.write_pairs(store, dest) };
            let new = self.begin(store.region.storage(), dest)?;
            let (snapshot, progress) = (&kept.snapshot, &mut self.progress);
            let options = options_for(&snapshot.superblock, self.hash.as_ref())?;
            let copied = copy_to_file(&store.region, snapshot, &new, progress)?;
            return finish(new, snapshot, copied, &options, progress);
        }
        let source = self.open_source()?;
        let reading = source.begin_reading()?;
        let superblock = read_superblock(source.region.storage())?;
        let options = options_for(&superblock, self.hash.as_ref())?;
        let new = self.begin(source.region.storage(), dest)?;
        let progress = &mut self.progress;
        let copied = source.with_snapshot(|region, snapshot| {
            new.set_bytes(0)?;
            copy_to_file(region, snapshot, &new, progress)
        })?;
        drop(reading);
        let Some((snapshot, copied)) = copied else {
            drop(new);
            let store = self.open_compacted(&source)?;
            return self.write_pairs(&store, dest);
        };
        finish(new, &snapshot, copied, &options, progress)
    }

    fn open_source(&self) -> Result<FileSource> {
        let Source::File(path) = &self.source else { unreachable!("a handle is no file") };
        FileSource::open(path)
    }

    /// Opens a compacted store read-only, beside its writer if there is one.
    fn open_compacted(&self, source: &FileSource) -> Result<Store> {
        let mut options = Options::new().create(Create::Never).read_only().lock_timeout(TURN_WAIT);
        if let Some(hash) = &self.hash {
            options = options.hash(hash.clone());
        }
        match open_file(source.region.storage().path(), &options) {
            Err(Error::Locked { path, holders }) => {
                let pid = holders.iter().find_map(|holder| holder.pid);
                Err(Error::LockedCompacted { path, pid })
            }
            opened => Ok(Store::new(opened?, &options)),
        }
    }

    /// Creates the file for the copy of `source`.
    fn begin(&self, source: &dyn Storage, dest: &Path) -> Result<NewFile> {
        let path = (!source.is_volatile()).then(|| source.path());
        NewFile::begin(dest, self.is_replacing, source.identity(), path)
    }

    /// Writes the copy of a compacted store, record by record.
    fn write_pairs(&mut self, store: &Store, dest: &Path) -> Result<BackupReport> {
        let new = self.begin(store.region.storage(), dest)?;
        let storage = new.storage()?;
        let report = copy_pairs(store, storage, BackupStage::Copy, &mut self.progress)?;
        new.publish()?;
        Ok(report)
    }

    /// Writes the copy to a stream, with zeros in place of holes.
    ///
    /// A stream carries no index, so the first open of a file with these bytes replays the log, as
    /// after a power loss. A compacted store is first copied to an unnamed file in the directory
    /// for temporary files (`TMPDIR`), which is then streamed with its index.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write), and those of the stream. The log is verified before the first
    /// byte is written. After an error the bytes written so far are not a usable copy.
    ///
    /// # Cost
    ///
    /// Two passes over the log of the source, and 16 bytes of memory for each run of adjacent
    /// segments.
    pub fn write_to(mut self, mut out: impl io::Write) -> Result<BackupReport> {
        if let Source::Store(store) = self.source {
            let progress = &mut self.progress;
            let Some(kept) = Kept::of(store)? else {
                return stream_pairs(store, &mut out, progress);
            };
            let (walked, extents) = scan_log(&store.region, &kept.snapshot, progress)?;
            return stream(&store.region, &kept.snapshot, walked, extents, &mut out, progress);
        }
        let source = self.open_source()?;
        let reading = source.begin_reading()?;
        let progress = &mut self.progress;
        let scanned =
            source.with_snapshot(|region, snapshot| scan_log(region, snapshot, progress))?;
        let Some((snapshot, (walked, extents))) = scanned else {
            drop(reading);
            let store = self.open_compacted(&source)?;
            return stream_pairs(&store, &mut out, &mut self.progress);
        };
        let report = stream(&source.region, &snapshot, walked, extents, &mut out, progress)?;
        // Verified segments may have been compacted and overwritten before they were streamed.
        source.expect_whole_log()?;
        Ok(report)
    }
}

impl fmt::Debug for Backup<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = match &self.source {
            Source::File(path) => path.as_path(),
            Source::Store(store) => store.region.storage().path(),
        };
        f.debug_struct("Backup").field("path", &path).finish_non_exhaustive()
    }
}

/// The prefix of a log that is to be copied.
#[derive(Clone, Debug)]
struct Snapshot {
    superblock: Superblock,
    end: LogEnd,
}

/// Where a log ends.
#[derive(Clone, Copy, Debug)]
enum LogEnd {
    /// At a commit.
    Commit { lsn: u64, tail_segment: u64, tail_offset: u64 },
    /// At its first invalid record.
    FirstInvalid,
}

impl LogEnd {
    fn of_commit((lsn, state): (u64, CommitState)) -> Self {
        let CommitState { tail_segment, tail_offset, .. } = state;
        Self::Commit { lsn, tail_segment, tail_offset }
    }
}

/// The log of an open handle up to its last commit. While this exists, a pin and a horizon keep all
/// of it from being overwritten.
struct Kept<'a> {
    snapshot: Snapshot,
    _pin: Pin<'a>,
    _horizon: Horizon<'a>,
}

impl<'a> Kept<'a> {
    /// Pins the log of a handle; `None` if the store was compacted.
    fn of(store: &'a Store) -> Result<Option<Self>> {
        let writer = store.lock_to_look()?;
        // This process cannot keep a writer of another process from compacting the log, so copy the
        // records instead.
        if !writer.is_log_whole() || store.reader.is_some() {
            return Ok(None);
        }
        let (pin, horizon) =
            (store.region.pins.pin(), store.horizons.open(Terms::new(None, u64::MAX)));
        let end = LogEnd::of_commit(store.region.live().committed());
        let snapshot = Snapshot { superblock: writer.superblock.clone(), end };
        Ok(Some(Self { snapshot, _pin: pin, _horizon: horizon }))
    }
}

/// Fails unless a store and its copy have the same number of keys.
fn expect_count(expected: u64, found: u64) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(Error::Corrupt { what: "record count", offset: LIVE_OFFSET, expected, found })
}

/// Returns the options to open the copy with while its index is built. Fails if the hash function
/// is not known.
fn options_for(superblock: &Superblock, hash: Option<&HashFunction>) -> Result<Options> {
    let mut options = Options::new().create(Create::Never);
    if let Some(hash) = hash {
        options = options.hash(hash.clone());
    }
    resolve_hash(superblock, &options)?;
    Ok(options)
}

/// A file that is read without the lock of a handle.
struct FileSource {
    region: Region,
    observer: Observer,
}

/// The result of [`FileSource::look`]: a snapshot, and the lock that must be held while it is
/// copied.
type Look<'a> = Option<(Snapshot, Option<WritersOut<'a>>)>;

impl FileSource {
    fn open(path: &Path) -> Result<Self> {
        let mut looks_left = LOOKS;
        loop {
            // Inside the loop, so that a retry closes the storage and asks for the claims of this
            // process again.
            let Observed { observer, storage } = open_to_observe(path)?;
            let is_being_made = observer.is_being_opened();
            // This also detects a file that is not a store, before the header is mapped.
            let superblock = match read_superblock(&storage) {
                Err(Error::NotAStore { .. }) if is_being_made || observer.is_being_opened() => {
                    if looks_left == 0 {
                        return Err(observer.locked(path));
                    }
                    looks_left -= 1;
                    std::thread::sleep(LOOK_AGAIN);
                    continue;
                }
                superblock => superblock?,
            };
            if superblock.write_features != 0 {
                return Err(unknown_features(path));
            }
            return Ok(Self { region: Region::new(Box::new(storage), false)?, observer });
        }
    }

    /// Keeps writers from shortening the file while its log is read.
    fn begin_reading(&self) -> Result<Reading<'_>> {
        let path = self.region.storage().path();
        self.observer.begin_reading().map_err(|source| io_error("lock a byte of", path, source))
    }

    /// Calls `copy` with a snapshot of the store, and retries if the store was being created,
    /// closed or recovered in the meantime, as its identity shows. Returns `None` if the store is
    /// compacted, or was compacted during the copy.
    ///
    /// Both superblocks are marked as compacted before the first byte of the log is reused. So if
    /// the newest is unmarked after the copy, every byte that was read is valid.
    fn with_snapshot<T>(
        &self,
        mut copy: impl FnMut(&Region, &Snapshot) -> Result<T>,
    ) -> Result<Option<(Snapshot, T)>> {
        for _ in 0..LOOKS {
            if read_superblock(self.region.storage())?.is_compacted {
                return Ok(None);
            }
            let Some((snapshot, lock)) = self.look()? else {
                std::thread::sleep(LOOK_AGAIN);
                continue;
            };
            let copied = copy(&self.region, &snapshot);
            drop(lock);
            // The superblock must be loaded after all bytes of the log.
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
            let now = read_superblock(self.region.storage())?;
            if now.is_compacted {
                return Ok(None);
            }
            let before = &snapshot.superblock;
            let is_same = (now.uuid, now.log_start) == (before.uuid, before.log_start);
            match copied {
                Ok(copied) if is_same => return Ok(Some((snapshot, copied))),
                // The apparent damage may have been a torn read of a header that was being changed.
                Err(Error::Corrupt { .. }) if now.generation != before.generation || !is_same => {}
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        Err(self.observer.locked(self.region.storage().path()))
    }

    /// Fails if the store may have been compacted by now.
    fn expect_whole_log(&self) -> Result<()> {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        if !read_superblock(self.region.storage())?.is_compacted {
            return Ok(());
        }
        let path = self.region.storage().path().to_path_buf();
        Err(Error::LockedCompacted { path, pid: self.observer.writer_pid() })
    }

    /// Looks for the end of the log once. Returns `None` while another process creates or recovers
    /// the file.
    fn look(&self) -> Result<Look<'_>> {
        if let Some(snapshot) = self.commit_in_header(None)? {
            return Ok(Some((snapshot, None)));
        }
        let Some(lock) = self.observer.keep_writers_out() else {
            return Ok(self.log_of_other_mount()?.map(|snapshot| (snapshot, None)));
        };
        // A writer may have opened and closed the file before the lock was taken, so look again.
        if let Some(snapshot) = self.commit_in_header(Some(&lock))? {
            return Ok(Some((snapshot, None)));
        }
        let superblock = read_superblock(self.region.storage())?;
        Ok(Some((Snapshot { superblock, end: LogEnd::FirstInvalid }, Some(lock))))
    }

    /// Returns a snapshot up to the first invalid record, if a writer has the store open through
    /// another mount of the file system and its live header cannot be told from one that an earlier
    /// writer left, because the writer has not changed the store yet or could not record its
    /// identity. Concurrent appends of that writer may be in the snapshot or not.
    fn log_of_other_mount(&self) -> Result<Option<Snapshot>> {
        let (live, identity) = (self.region.live(), self.region.storage().identity());
        if !live.is_of_file(identity) || self.region.is_left_in_memory() {
            return Ok(None);
        }
        let superblock = read_superblock(self.region.storage())?;
        self.region.see_size()?;
        Ok(Some(Snapshot { superblock, end: LogEnd::FirstInvalid }))
    }

    /// Returns the last commit, if the live header can be trusted at present.
    fn commit_in_header(&self, lock: Option<&WritersOut<'_>>) -> Result<Option<Snapshot>> {
        let (region, live) = (&self.region, self.region.live());
        region.see_size()?;
        // Load the commit before the superblock: a writer writes its superblock before its first
        // commit, so this order never pairs a new commit with an old superblock.
        let Some(end) = self.commit_left() else { return self.commit_closed(lock) };
        let superblock = read_superblock(region.storage())?;
        if superblock.is_clean || live.validate(region.view.file_bytes()).is_err() {
            return self.commit_closed(lock);
        }
        region.see_size()?;
        Ok(Some(Snapshot { superblock, end }))
    }

    /// Returns the last commit of a store that was closed.
    fn commit_closed(&self, lock: Option<&WritersOut<'_>>) -> Result<Option<Snapshot>> {
        let (region, live) = (&self.region, self.region.live());
        let superblock = read_superblock(region.storage())?;
        region.see_size()?;
        if superblock.is_clean && region.view.file_bytes() < superblock.file_bytes {
            // The store was opened, closed and shortened since the superblock was read, or it is
            // damaged. Under the lock there is no writer, so it is damaged.
            if lock.is_none() {
                return Ok(None);
            }
            let (expected, found) = (superblock.file_bytes, region.view.file_bytes());
            return Err(Error::Corrupt { what: "file size", offset: found, expected, found });
        }
        let end = LogEnd::of_commit(live.committed());
        let is_closed = superblock.is_clean
            && live.validate(region.view.file_bytes()).is_ok()
            && live.crc() == superblock.live_crc;
        Ok(is_closed.then_some(Snapshot { superblock, end }))
    }

    /// Returns the last commit of a store that a process of this boot has or had open.
    ///
    /// A recovery clears the identity in the live header, zeroes the header, and writes the
    /// identity again at its end. If all of that happens between the two checks of the identity,
    /// the commit read in between could be the temporary 0. So a 0 is read again after a delay,
    /// several times, before it is believed.
    fn commit_left(&self) -> Option<LogEnd> {
        let live = self.region.live();
        let mut looks_left = LOOKS_AT_ZERO;
        loop {
            if !self.region.is_left_in_memory() {
                return None;
            }
            let committed = live.committed();
            if !self.region.is_left_in_memory() {
                return None;
            }
            looks_left -= 1;
            if committed.0 != 0 || looks_left == 0 {
                return Some(LogEnd::of_commit(committed));
            }
            std::thread::sleep(LOOK_AGAIN / 4);
        }
    }
}

/// A run of bytes of the log that is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    offset: u64,
    bytes: u64,
}

impl Extent {
    fn range(self) -> Range<u64> {
        self.offset..self.offset + self.bytes
    }
}

/// The result of a walk over a snapshot.
#[derive(Clone, Copy, Debug)]
struct Walked {
    report: BackupReport,
    is_empty: bool,
}

/// Verifies a snapshot record by record, and passes its segments to `take` in the order of the log.
/// All are complete, except the tail, which ends where the snapshot ends.
fn walk(
    region: &Region,
    snapshot: &Snapshot,
    mut take: impl FnMut(Extent) -> Result<()>,
) -> Result<Walked> {
    let (trust, end_lsn) = match snapshot.end {
        LogEnd::Commit { lsn, .. } => (Trust::Verified, lsn),
        LogEnd::FirstInvalid => (Trust::Nothing, 0),
    };
    let mut report = BackupReport {
        file_bytes: HEADER_BYTES,
        is_recovered: trust == Trust::Nothing,
        ..BackupReport::default()
    };
    let start = snapshot.superblock.log_start;
    let Some(log) = LogWalk::new(&region.view, start, trust, end_lsn)? else {
        return Ok(Walked { report, is_empty: true });
    };
    let mut copy = |report: &mut BackupReport, offset, bytes, segment_bytes| {
        report.copied_bytes += bytes;
        report.file_bytes = report.file_bytes.max(offset + segment_bytes);
        take(Extent { offset, bytes })
    };
    let mut log = Changes::new(log);
    let mut segment = log.segment();
    loop {
        let mut passed: Option<Segment> = None;
        let record = log.read_next(added_keys, |step| match step {
            Step::Segment(next) => passed = Some(std::mem::replace(&mut segment, next)),
            Step::Big(big) => passed = Some(big),
            // These occur only in a compacted log, which is never walked from its start.
            Step::Moved(..) => {}
            // A malicious file may delete keys that it never stored.
            Step::Change(keys) => {
                report.record_count = report.record_count.saturating_add_signed(keys);
            }
        })?;
        if let Some(Segment { offset, bytes, .. }) = passed {
            copy(&mut report, offset, bytes, bytes)?;
        }
        if record.is_none() {
            break;
        }
    }
    let end = log.position();
    expect_end(snapshot.end, end)?;
    report.log_bytes = end.lsn;
    copy(&mut report, segment.offset, end.offset - segment.offset, segment.bytes)?;
    Ok(Walked { report, is_empty: false })
}

/// Returns how many keys a change adds.
fn added_keys(change: Logged<'_>) -> i64 {
    match change {
        Logged::Put { prev: None, .. } => 1,
        Logged::Put { .. } | Logged::Move { .. } => 0,
        Logged::Delete { .. } => -1,
    }
}

/// Fails unless the walk ended where the snapshot ends.
fn expect_end(expected: LogEnd, found: LogPosition) -> Result<()> {
    let LogEnd::Commit { lsn, tail_segment, tail_offset } = expected else { return Ok(()) };
    let expected = LogPosition { segment_offset: tail_segment, offset: tail_offset, lsn };
    if expected == found {
        return Ok(());
    }
    Err(Error::Corrupt {
        what: "end of the log",
        offset: tail_offset,
        expected: lsn,
        found: found.lsn,
    })
}

/// Reports the progress, and fails if the program's function wants to stop.
fn tell(progress: &mut Option<ProgressFunction<'_>>, now: BackupProgress) -> Result<()> {
    match progress.as_mut().map_or(ControlFlow::Continue(()), |function| function(now)) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::Io {
            action: "finish",
            path: PathBuf::from("the backup"),
            source: io::ErrorKind::Interrupted.into(),
        }),
    }
}

/// Returns an estimate of the bytes of segments to copy.
fn segment_bytes(region: &Region) -> u64 {
    region.live().log_bytes().saturating_add(region.live().big_bytes())
}

/// Divides an extent into chunks, each written by one call.
fn chunks(extent: Extent) -> impl Iterator<Item = Extent> {
    let end = extent.offset + extent.bytes;
    (extent.offset..end)
        .step_by(CHUNK_BYTES as usize)
        .map(move |offset| Extent { offset, bytes: CHUNK_BYTES.min(end - offset) })
}

/// Copies a snapshot into a file, except its header and its index.
fn copy_to_file(
    region: &Region,
    snapshot: &Snapshot,
    new: &NewFile,
    progress: &mut Option<ProgressFunction<'_>>,
) -> Result<Walked> {
    let bytes_total = segment_bytes(region);
    let mut bytes = 0;
    // Report once right after the file was created.
    tell(progress, BackupProgress { stage: BackupStage::Copy, bytes, bytes_total })?;
    walk(region, snapshot, |extent| {
        for chunk in chunks(extent) {
            new.write_at(chunk.offset, region.view.log_bytes(chunk.range())?)?;
            bytes += chunk.bytes;
            tell(progress, BackupProgress { stage: BackupStage::Copy, bytes, bytes_total })?;
        }
        Ok(())
    })
}

/// Writes the header of the copy, builds its index, and renames it.
fn finish(
    new: NewFile,
    snapshot: &Snapshot,
    copied: Walked,
    options: &Options,
    progress: &mut Option<ProgressFunction<'_>>,
) -> Result<BackupReport> {
    new.set_bytes(copied.report.file_bytes)?;
    new.write_at(0, &header(&snapshot.superblock, copied.is_empty))?;
    tell(progress, BackupProgress { stage: BackupStage::Index, bytes: 0, bytes_total: 0 })?;
    let mut opened = open_storage(Box::new(new.storage()?), options, false)?;
    // Otherwise the close of an empty copy would change nothing, and would not mark it clean.
    opened.writer.mark = Mark::NotClean;
    let store = Store::new(opened, options);
    store.close()?;
    let file_bytes = store.region.view.file_bytes();
    drop(store);
    new.publish()?;
    Ok(BackupReport { file_bytes, ..copied.report })
}

/// Returns the header of a copy: superblocks without a checkpoint or an index, and a live header
/// that no open trusts.
fn header(source: &Superblock, is_empty: bool) -> Vec<u8> {
    let mut header = vec![0; HEADER_BYTES as usize];
    // Write both copies, so that either may be damaged. A store has both from its first change on.
    for generation in [1, 2] {
        let superblock = Superblock {
            generation,
            is_clean: false,
            log_start: if is_empty { LogStart::default() } else { source.log_start },
            checkpoint: None,
            file_bytes: 0,
            live_crc: 0,
            index_crc: None,
            may_be_lost: false,
            ..source.clone()
        };
        let at = superblock.offset() as usize;
        header[at..at + SUPERBLOCK_BYTES as usize].copy_from_slice(&superblock.encode());
    }
    header
}

/// Verifies a snapshot, and returns its extents in the order of the file.
fn scan_log(
    region: &Region,
    snapshot: &Snapshot,
    progress: &mut Option<ProgressFunction<'_>>,
) -> Result<(Walked, Vec<Extent>)> {
    let bytes_total = segment_bytes(region);
    let mut bytes = 0;
    let mut extents: Vec<Extent> = Vec::new();
    let walked = walk(region, snapshot, |extent| {
        bytes += extent.bytes;
        match extents.last_mut() {
            Some(last) if last.offset + last.bytes == extent.offset => last.bytes += extent.bytes,
            _ => extents.push(extent),
        }
        tell(progress, BackupProgress { stage: BackupStage::Verify, bytes, bytes_total })
    })?;
    extents.sort_unstable_by_key(|extent| extent.offset);
    Ok((walked, extents))
}

/// Writes a verified snapshot from its first byte to its last.
fn stream(
    region: &Region,
    snapshot: &Snapshot,
    walked: Walked,
    extents: Vec<Extent>,
    out: &mut impl io::Write,
    progress: &mut Option<ProgressFunction<'_>>,
) -> Result<BackupReport> {
    let failed = |source| Error::Io {
        action: "write the backup of",
        path: region.storage().path().to_path_buf(),
        source,
    };
    let Walked { report, is_empty } = walked;
    let bytes_total = report.copied_bytes;
    out.write_all(&header(&snapshot.superblock, is_empty)).map_err(failed)?;
    let (mut at, mut bytes) = (HEADER_BYTES, 0);
    for extent in extents {
        // Segments of a malicious file may overlap.
        let skip = at.saturating_sub(extent.offset).min(extent.bytes);
        let extent = Extent { offset: extent.offset + skip, bytes: extent.bytes - skip };
        write_zeros(out, extent.offset.saturating_sub(at)).map_err(failed)?;
        for chunk in chunks(extent) {
            let chunk_bytes = region.view.log_bytes(chunk.range())?;
            out.write_all(chunk_bytes).map_err(failed)?;
            bytes += chunk.bytes;
            tell(progress, BackupProgress { stage: BackupStage::Copy, bytes, bytes_total })?;
        }
        at = at.max(extent.offset + extent.bytes);
    }
    write_zeros(out, report.file_bytes.saturating_sub(at)).map_err(failed)?;
    out.flush().map_err(failed)?;
    Ok(report)
}

fn write_zeros(out: &mut impl io::Write, bytes: u64) -> io::Result<()> {
    io::copy(&mut io::Read::take(io::repeat(0), bytes), out).map(drop)
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests;
