//! Opens a file read-only, beside a process that writes to it or may begin to.
//!
//! | state of the file | action |
//! |---|---|
//! | a writer is there, or has closed the store | its tables are read as they are |
//! | a killed writer has left the tables in the state after one of its stores | the same; its uncommitted change has no effect, and the next writer completes it |
//! | anything else | the handle builds an index of its own, and keeps writers out while it is open |

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::log_scan::{NO_RECORD, SlotChange};
use super::{Opening, random_u64, refuse_shortened, resolve_hash};
use crate::error::{Error, Result};
use crate::log::append::Appender;
use crate::options::{Access, Options, Sharing};
use crate::reader::{Reader, Unfinished, UnfinishedRecord};
use crate::region::{Extents, Region, read_superblock};
use crate::stats::Recovery;
use crate::storage::Storage;
use crate::storage::failure::io_error;
use crate::storage::holders::locked_storage;
use crate::storage::neighbours::Neighbours;
use crate::storage::open::OPENING_WAIT;
use crate::storage::reader_table::{has_turns, is_left_moving};
use crate::storage::waiting::Waiting;
use crate::store::{Opened, committed_position};

/// Minimum time for which an open retries while a writer is changing the tables, and the interval.
const LOOKING: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The result of an open for reading.
pub(super) enum Found {
    Opened(Box<Opened>),
    /// The handle needs an index of its own and must keep writers out, which a handle without locks
    /// between calls cannot do.
    NeedsOwnIndex,
    /// Another file has the name now.
    Replaced,
}

/// Opens a store for reading only.
pub(super) fn open(
    storage: Box<dyn Storage>,
    options: &Options,
    waiting: &mut Waiting<'_>,
) -> Result<Found> {
    waiting.begin_step();
    let mut patience = Patience { waiting, calm_since: Instant::now() };
    // Read the superblock before the header is mapped, to reject a file that is not a store.
    loop {
        let is_being_made = is_being_opened(&*storage);
        match read_superblock(&*storage) {
            Err(Error::NotAStore { .. }) if is_being_made || is_being_opened(&*storage) => {}
            superblock => {
                superblock?;
                break;
            }
        }
        if !let_others_go_first(&*storage, options, &mut patience)? {
            return Ok(Found::Replaced);
        }
        let seen = storage.see_size();
        seen.map_err(|source| io_error("map", storage.path(), source))?;
    }
    let region = Arc::new(Region::new(storage, false)?);
    loop {
        region.see_size()?;
        if let Some(found) = look(&region, options)? {
            return Ok(found);
        }
        if !let_others_go_first(region.storage(), options, &mut patience)? {
            return Ok(Found::Replaced);
        }
    }
}

/// Decides how long an open waits.
struct Patience<'w, 'a> {
    waiting: &'w mut Waiting<'a>,
    /// When this step began, or last saw a writer that was opening the file.
    calm_since: Instant,
}

impl Patience<'_, '_> {
    /// Returns whether to give up.
    fn is_over(&mut self, is_being_opened: bool, options: &Options) -> bool {
        if is_being_opened {
            self.calm_since = Instant::now();
        }
        let wait_min = if is_being_opened { OPENING_WAIT } else { Duration::ZERO };
        let is_late = self.waiting.is_late(wait_min);
        let has_looked = is_being_opened || self.calm_since.elapsed() >= LOOKING;
        is_late && has_looked || options.stops_waiting()
    }
}

/// Returns whether a writer is opening the file, or creating a store in it.
fn is_being_opened(storage: &dyn Storage) -> bool {
    storage.neighbours().is_some_and(Neighbours::has_opening_writer)
}

/// Releases the locks for a moment, so that a writer can get the exclusive access that it needs to
/// rebuild the tables, and takes them again. Returns `false` if another file has the name by then.
///
/// # Errors
///
/// [`Error::Locked`] if the locks cannot be taken again before the timeout of this handle.
fn let_others_go_first(
    storage: &dyn Storage,
    options: &Options,
    patience: &mut Patience<'_, '_>,
) -> Result<bool> {
    let shared = storage.neighbours().expect("the caller has looked");
    let lock_failed = |source| io_error("lock", storage.path(), source);
    storage.end_opening();
    shared.let_go_between_calls().map_err(lock_failed)?;
    loop {
        if patience.is_over(shared.has_opening_writer(), options) {
            return Err(locked_storage(storage));
        }
        patience.waiting.tell(|| locked_storage(storage));
        thread::sleep(LOOK_AGAIN);
        let is_named = || shared.is_named(storage.path()).map_err(lock_failed);
        if !is_named()? {
            return Ok(false);
        }
        let is_in = shared.try_lock_to_open(options.access, options.sharing);
        if is_in.map_err(lock_failed)? {
            // Test the name again: under the locks it can no longer be given to another file.
            return is_named();
        }
    }
}

/// Tries once to use the tables; returns `None` if a writer is changing them.
fn look(region: &Arc<Region>, options: &Options) -> Result<Option<Found>> {
    let is_per_call = options.sharing == Sharing::PerCall;
    let shared = region.storage().neighbours().expect("the caller has looked");
    let lock_failed = |source| io_error("lock", region.storage().path(), source);
    let opening = begin(region, options)?;
    let has_writer = shared.has_writer();
    let is_cut = refuse_shortened(region.storage(), &opening.superblock).is_err();
    if !is_cut
        && !options.rebuild_index
        && (has_writer || opening.superblock.is_clean)
        && opening.may_read_beside(region, has_writer)
        // A writer that is still opening the file may find that the tables cannot be trusted.
        && !(has_writer && shared.has_opening_writer())
    {
        let opened = opening.finish_beside(region, is_per_call, None)?;
        return Ok(Some(Found::Opened(Box::new(opened))));
    }
    // Reached also if the writer was killed in the meantime.
    let is_kept = if is_per_call {
        shared.keep_turns_out()
    } else {
        shared.keep_writers_out(Duration::ZERO, || false)
    };
    if !is_kept.map_err(lock_failed)? {
        return Ok(None);
    }
    region.see_size()?;
    let opening = begin(region, options)?;
    refuse_shortened(region.storage(), &opening.superblock)?;
    let left = if options.rebuild_index || !opening.may_read_beside(region, false) {
        None
    } else if opening.superblock.is_clean {
        Some(Left(None))
    } else {
        opening.left_behind(region)
    };
    if let Some(Left(unfinished)) = left {
        let are_in = if is_per_call { shared.let_turns_in() } else { shared.let_writers_in() };
        are_in.map_err(lock_failed)?;
        let opened = opening.finish_beside(region, is_per_call, unfinished)?;
        return Ok(Some(Found::Opened(Box::new(opened))));
    }
    if is_per_call {
        return Ok(Some(Found::NeedsOwnIndex));
    }
    let opened = opening.replay(region, options.rebuild_index)?;
    Ok(Some(Found::Opened(Box::new(opened))))
}

/// The unfinished change of a killed writer whose tables can be read.
struct Left(Option<Unfinished>);

fn begin(region: &Region, options: &Options) -> Result<Opening> {
    let superblock = read_superblock(region.storage())?;
    let hash = resolve_hash(&superblock, options)?;
    let log = Appender::new(
        random_u64(region.storage())?,
        superblock.segment_bytes_min.into(),
        superblock.segment_bytes_max.into(),
    );
    let on_recovery = options.on_recovery.clone();
    Ok(Opening { superblock, hash, log, access: Access::ReadOnly, on_recovery })
}

impl Opening {
    /// Returns whether the tables in the file can be read as they are. A writer may be changing
    /// them, so `false` holds only for this call.
    fn may_read_beside(&self, region: &Region, has_writer: bool) -> bool {
        let live = region.live();
        if live.has_failed_sync() || live.validate(region.view.file_bytes()).is_err() {
            return false;
        }
        if self.superblock.is_clean {
            return region.is_as_closed(&self.superblock, self.access);
        }
        // While the writer is running, both processes share the same page cache.
        has_writer && live.is_of_file(region.storage().identity()) || region.is_left_or_open()
    }

    /// Returns what a killed writer left unfinished, if its tables agree with the log and it was
    /// not moving a record whose copy does not lead back to the original. The caller keeps writers
    /// out.
    fn left_behind(&self, region: &Region) -> Option<Left> {
        if is_left_moving(region.storage()) {
            return None;
        }
        let compare = || -> Result<_> {
            region.windows.map_listed_pieces()?;
            let (position, _) = committed_position(&self.superblock, region);
            Ok((position, self.compare_with_log(region, position)?))
        };
        let (position, unpublished) = compare().ok()?;
        if unpublished.scan.head.is_some() {
            // A writer without other processes moves records without leaving a trace from the copy
            // to the original, which this reader would need.
            return None;
        }
        let record = |addr| (addr != NO_RECORD).then_some(addr);
        let records = unpublished.changes.iter().map(|&SlotChange { hash, addr, prev }| {
            UnfinishedRecord { hash, addr: record(addr), prev: record(prev) }
        });
        Some(Left(Unfinished::new(position.lsn, records)))
    }

    /// Completes the open of a handle that reads the tables in the file.
    fn finish_beside(
        mut self,
        region: &Arc<Region>,
        is_per_call: bool,
        unfinished: Option<Unfinished>,
    ) -> Result<Opened> {
        let (position, state) = committed_position(&self.superblock, region);
        self.log.set_read_position(position);
        let recovery = if self.superblock.is_clean {
            Recovery::Clean
        } else {
            Recovery::WarmRestart { records: 0 }
        };
        let shared = region.storage().neighbours().expect("it is beside a writer");
        // A handle that takes turns records its process id only with its first change.
        let is_closed = self.superblock.is_clean
            && !shared.has_writer()
            && !region.live().has_pid()
            && !has_turns(region.storage());
        let mut reader =
            if is_per_call { Reader::per_call(region) } else { Reader::new(region, is_closed) }?;
        reader.set_unfinished(unfinished);
        let reader = Some(reader);
        let extents = Extents::of(region);
        let opened = self.finish(extents, (state, recovery, position.lsn));
        Ok(Opened { reader, ..opened })
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use std::fs::{self, File};
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::backup::backup;
    use crate::recovery::open_file;
    use crate::storage::byte_locks::{LockByte, LockKind, try_lock, try_lock_to_open};
    use crate::{Db, ErrorKind};

    /// How long a test waits for an event that normally comes at once.
    const HANG: Duration = Duration::from_secs(60);

    /// Returns the file `name` in the state after a power loss, so that the next open has to
    /// rebuild the tables. `value` is the value of its only key.
    fn left(dir: &Path, name: &str, value: &str) -> PathBuf {
        let path = dir.join(name);
        let live = Db::open(dir.join(format!("{name} before"))).expect("there is room");
        live.put("key", value).expect("there is room");
        fs::copy(dir.join(format!("{name} before")), &path).expect("there is room");
        path
    }

    /// Locks a file as a writer does while it opens the file.
    fn begin_to_open(path: &Path) -> File {
        let writer = File::options().read(true).write(true).open(path).expect("it is there");
        assert!(try_lock_to_open(&writer).expect("locks work"));
        writer
    }

    /// Gives a handle time to come, which shows itself for a moment only. A test passes if it comes later.
    fn give_time_to_come(writer: &File) {
        let begun = Instant::now();
        while !Neighbours::is_in_use(writer) && begun.elapsed() < Duration::from_millis(100) {
            thread::yield_now();
        }
    }

    fn wait_until(mut is_so: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < HANG, "it does not come");
        }
    }

    #[test]
    fn a_reader_that_waits_for_a_writer_to_open_the_store_lets_it_exclude_others() {
        for sharing in [Sharing::OneWriter, Sharing::PerCall] {
            let dir = tempfile::tempdir().unwrap();
            let path = left(dir.path(), "a", "value");
            let writer = begin_to_open(&path);
            let options = Options::new().read_only().sharing(sharing);
            thread::scope(|scope| {
                let reader = scope.spawn(|| open_file(&path, &options));
                give_time_to_come(&writer);
                wait_until(|| try_lock(&writer, LockByte::PRESENCE, LockKind::Exclusive).unwrap());
                drop(writer);
                let opened = reader.join().unwrap();
                assert!(opened.is_ok(), "{sharing:?}: {opened:?}");
            });
        }
    }

    #[test]
    fn a_reader_whose_file_is_replaced_while_it_waits_opens_the_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = left(dir.path(), "a", "old");
        let new = left(dir.path(), "b", "new");
        let writer = begin_to_open(&path);
        let options = Options::new().read_only().lock_timeout(HANG);
        thread::scope(|scope| {
            let reader = scope.spawn(|| options.open(&path));
            give_time_to_come(&writer);
            // The writer keeps its lock, so the reader can only notice the new file by its name.
            wait_until(|| try_lock(&writer, LockByte::PRESENCE, LockKind::Exclusive).unwrap());
            fs::rename(&new, &path).unwrap();
            let db = reader.join().unwrap().unwrap();
            assert_eq!(db.get("key").unwrap().unwrap(), "new");
        });
    }

    #[test]
    fn a_reader_and_a_backup_wait_for_a_store_that_is_being_made() {
        let dir = tempfile::tempdir().unwrap();
        let made = dir.path().join("made");
        Db::open(&made).unwrap().close().unwrap();
        let (path, copy) = (dir.path().join("a"), dir.path().join("copy"));
        fs::write(&path, b"").unwrap();
        let writer = begin_to_open(&path);
        thread::scope(|scope| {
            let reader = scope.spawn(|| Options::new().read_only().open(&path));
            let copying = scope.spawn(|| backup(&path, &copy));
            give_time_to_come(&writer);
            // Time in which a backup that does not wait would see that there is no store.
            thread::sleep(Duration::from_millis(50));
            assert!(!copying.is_finished(), "it does not wait");
            fs::write(&path, fs::read(&made).unwrap()).unwrap();
            drop(writer);
            assert!(reader.join().unwrap().unwrap().is_empty());
            assert_eq!(copying.join().unwrap().unwrap().record_count, 0);
        });
    }

    #[test]
    fn a_backup_of_a_store_that_is_made_for_long_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::write(&path, b"").unwrap();
        let _writer = begin_to_open(&path);
        let error = backup(&path, dir.path().join("copy")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    }

    #[test]
    fn tables_are_looked_at_for_a_second_behind_a_long_wait_for_a_writer_that_opened() {
        let options = Options::new().lock_timeout(Duration::ZERO);
        let calm_since = Instant::now().checked_sub(2 * LOOKING).unwrap();
        let waiting = &mut Waiting::new(&options);
        let mut patience = Patience { waiting, calm_since };
        assert!(patience.is_over(false, &options));
        assert!(!patience.is_over(true, &options), "a writer opens for longer");
        assert!(!patience.is_over(false, &options), "it has just opened");
    }
}
