//! Coordination by locks between the handles of one file, in all processes: see [`byte_locks`] for
//! the bytes, [`reader_table`](super::reader_table) for the pins.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::byte_locks::{self, LockByte, LockKind};
use super::claim::{Claims, Room, free_bytes};
use super::holders::holders_of;
use super::no_room;
use super::open::leads_to;
use super::own_file::OwnFile;
use super::reader_table::{OtherReaders, ReaderTable, Seat, sleep_until_handed_over};
use super::shared_counts::SharedCounts;
use super::status::Status;
use crate::format::{READER_TABLE_BYTES, READER_TABLE_OFFSET};
use crate::holder::Holder;
use crate::options::{Access, Sharing};

/// The reader table in the file.
const TABLE: std::ops::Range<u64> = READER_TABLE_OFFSET..READER_TABLE_OFFSET + READER_TABLE_BYTES;

/// Shortest and longest polling interval of a reader that waits to keep writers out.
const PAUSE_MIN: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(5);

/// Free bytes that a copy-on-write file system must have for a store to the table.
const ROOM_BYTES_MIN: u64 = 16 << 20;

/// The other handles of a file, in all processes, as far as locks show them.
#[derive(Debug)]
pub(crate) struct Neighbours {
    file: Arc<OwnFile>,
    claims: Arc<Claims>,
    /// Whether writers are kept out until the file is closed.
    is_private: AtomicBool,
    /// Whether the program has opened the file, and shares it.
    is_of_program: bool,
    /// The reader table where a handle that may change the file has it mapped.
    table: OnceLock<ReaderTable>,
}

impl Neighbours {
    /// Wraps a file that this handle has locked.
    pub(super) fn new(file: Arc<OwnFile>, claims: Arc<Claims>) -> Self {
        let (is_private, table) = (AtomicBool::new(false), OnceLock::new());
        Self { file, claims, is_private, is_of_program: false, table }
    }

    /// Wraps a description, which is this handle's, of a file that the program has opened.
    pub(super) fn of_program(file: Arc<OwnFile>, claims: Arc<Claims>) -> Self {
        Self { is_of_program: true, ..Self::new(file, claims) }
    }

    /// Sets the mapping of the reader table, once the handle is open.
    pub(super) fn set_table(&self, table: ReaderTable) {
        let set = self.table.set(table);
        debug_assert!(set.is_ok(), "a handle maps its header once");
    }

    /// Returns whether the program has opened the file, and shares it.
    pub(crate) fn is_of_program(&self) -> bool {
        self.is_of_program
    }

    /// Tries to lock a file for a handle that may change it, and returns whether that succeeded.
    /// Until [`let_others_in`](Self::let_others_in), other handles are excluded as far as possible.
    pub(crate) fn try_lock_to_write(file: &File, sharing: Sharing) -> io::Result<bool> {
        let exclusively = |byte| byte_locks::try_lock(file, byte, LockKind::Exclusive);
        let is_present = || byte_locks::try_lock(file, LockByte::PRESENCE, LockKind::Shared);
        let is_first = match sharing {
            Sharing::OneWriter | Sharing::Exclusive => try_flock(file)?,
            Sharing::Shared => try_flock_shared(file)? && is_present()?,
            Sharing::PerCall => is_present()?,
        };
        let is_writer = is_first && byte_locks::try_lock_to_open(file)?;
        let is_in = is_writer
            && (sharing.takes_turns()
                || exclusively(LockByte::PRESENCE)?
                || sharing == Sharing::OneWriter && is_present()?);
        if !is_in {
            Self::unlock(file);
        }
        Ok(is_in)
    }

    /// Tries to lock a file for a read-only handle, and returns whether that succeeded.
    pub(crate) fn try_lock_to_read(file: &File, sharing: Sharing) -> io::Result<bool> {
        if sharing == Sharing::Exclusive {
            let is_in = byte_locks::try_lock(file, LockByte::PRESENCE, LockKind::Shared)?
                && try_keep_writers_out(file)?;
            if !is_in {
                Self::unlock(file);
            }
            return Ok(is_in);
        }
        if !byte_locks::try_lock(file, LockByte::PRESENCE, LockKind::Shared)? {
            return Ok(false);
        }
        if sharing == Sharing::PerCall {
            // `flock` is the program's.
            return Ok(true);
        }
        // It may read beside a writer of this version, but not beside any other holder of `flock`,
        // such as a copy in progress or a writer that does not support readers.
        if try_flock_shared(file)? {
            file.unlock()?;
        } else if !byte_locks::is_locked_exclusively(file, LockByte::WRITER)? {
            Self::unlock(file);
            return Ok(false);
        }
        Ok(true)
    }

    /// Tries to lock the file to open a handle, and returns whether that succeeded.
    pub(crate) fn try_lock_to_open(&self, access: Access, sharing: Sharing) -> io::Result<bool> {
        let file = self.file.checked()?;
        match access {
            Access::ReadWrite => Self::try_lock_to_write(file, sharing),
            Access::ReadOnly => Self::try_lock_to_read(file, sharing),
        }
    }

    /// Releases every lock when the handle is closed. Closing the file is not enough, because the
    /// child of a fork may have it open. Not for a handle with a private index, whose child needs
    /// the lock as well.
    pub(crate) fn let_go(&self) {
        if !self.is_private.load(Ordering::Relaxed) {
            Self::unlock(&self.file);
        }
    }

    /// Releases every lock.
    pub(crate) fn unlock(file: &File) {
        // Ignore errors: there is nothing left to do about them.
        let _ = byte_locks::unlock_all(file);
        let _ = file.unlock();
    }

    /// Returns whether a writer is opening the file, which readers wait for.
    pub(crate) fn is_being_opened(file: &File) -> bool {
        byte_locks::is_locked(file, LockByte::OPENING).unwrap_or(false)
    }

    /// Returns whether another handle may change the file.
    pub(crate) fn is_being_written(file: &File) -> bool {
        byte_locks::is_locked_exclusively(file, LockByte::WRITER).unwrap_or(true)
    }

    /// Returns whether only handles that take turns, and readers, have the file locked.
    pub(crate) fn is_open_to_turns(file: &File) -> bool {
        let is_free = try_flock_shared(file).unwrap_or(false);
        is_free && file.unlock().is_ok()
    }

    /// Returns whether any other handle has the file open.
    pub(crate) fn is_in_use(file: &File) -> bool {
        byte_locks::is_locked(file, LockByte::PRESENCE).unwrap_or(false)
    }

    /// Returns whether another handle is opening the file for writing.
    pub(crate) fn is_opened_by_other(&self) -> bool {
        Self::is_being_opened(&self.file)
    }

    /// Returns whether a handle that may change the file is open.
    pub(crate) fn has_writer(&self) -> bool {
        Self::is_being_written(&self.file)
    }

    /// Returns whether another handle has a place in the reader table. It took the place after it had
    /// found the tables sound or built them, so the kernel has kept the file since then.
    pub(crate) fn has_reader_with_place(&self) -> bool {
        self.file.checked().and_then(byte_locks::is_any_place_locked).unwrap_or(false)
    }

    /// Returns whether a writer is opening the file.
    pub(crate) fn has_opening_writer(&self) -> bool {
        Self::is_being_opened(&self.file)
    }

    /// Returns whether the present writer of the file has only a turn.
    pub(super) fn is_written_by_turns(file: &File) -> bool {
        let is_shut = byte_locks::is_locked_exclusively(file, LockByte::PRESENCE).unwrap_or(true);
        !is_shut && Self::is_open_to_turns(file)
    }

    /// Returns whether anybody reads the file under a byte lock only.
    pub(super) fn is_read_by_lock(&self) -> bool {
        // If in doubt, assume a reader: the file must not be truncated under it.
        let is_locked =
            |parity| byte_locks::is_locked(&self.file, LockByte::pin(parity)).unwrap_or(true);
        is_locked(0) || is_locked(1)
    }

    /// Returns whether a reader waits for the writer's place.
    pub(crate) fn is_turn_asked_for(&self) -> bool {
        let file = self.file.checked();
        file.is_ok_and(|file| byte_locks::is_locked(file, LockByte::ASKED).unwrap_or(false))
    }

    /// Keeps writers out until the handle is closed or [`let_writers_in`](Self::let_writers_in) is
    /// called. Returns `false` if there is a writer, after waiting up to `wait_max` for the end of
    /// a turn, or until `stops` returns `true`; it is asked before each pause.
    pub(crate) fn keep_writers_out(
        &self,
        wait_max: Duration,
        stops: impl FnMut() -> bool,
    ) -> io::Result<bool> {
        let is_kept = keep_writers_out(self.file.checked()?, wait_max, stops)?;
        self.is_private.store(is_kept, Ordering::Relaxed);
        Ok(is_kept)
    }

    /// Keeps writers out for a moment, without `flock`, which belongs to the program. Returns
    /// `false` if a handle has its turn.
    pub(crate) fn keep_turns_out(&self) -> io::Result<bool> {
        byte_locks::try_lock(self.file.checked()?, LockByte::WRITER, LockKind::Shared)
    }

    /// Ends [`keep_turns_out`](Self::keep_turns_out).
    pub(crate) fn let_turns_in(&self) -> io::Result<()> {
        byte_locks::unlock(self.file.checked()?, LockByte::WRITER)
    }

    /// Releases every lock, for a handle that holds none between calls.
    pub(crate) fn let_go_between_calls(&self) -> io::Result<()> {
        byte_locks::unlock_all(self.file.checked()?)
    }

    /// Ends [`keep_writers_out`](Self::keep_writers_out).
    pub(crate) fn let_writers_in(&self) -> io::Result<()> {
        self.is_private.store(false, Ordering::Relaxed);
        let_writers_in(self.file.checked()?)
    }

    /// Keeps every other handle out, for a writer that makes the tables; returns `false` if there is
    /// another.
    pub(crate) fn try_exclude_others(&self) -> io::Result<bool> {
        byte_locks::try_lock(self.file.checked()?, LockByte::PRESENCE, LockKind::Exclusive)
    }

    /// Ends the opening of a writer: from now on other handles get in, unless this one is
    /// exclusive. Returns the view of the other processes' readers, or `None` if it stays alone.
    ///
    /// If the reader table has no room, a handle that is alone now stays alone.
    pub(crate) fn let_others_in(&self, sharing: Sharing) -> io::Result<Option<Arc<OtherReaders>>> {
        let is_shared = sharing != Sharing::Exclusive;
        let is_alone = self.try_exclude_others()?;
        let others = if is_shared { self.other_readers(is_alone, sharing) } else { Ok(None) };
        let others = match others {
            Err(_) if is_alone && !sharing.takes_turns() => None,
            others => others?,
        };
        if others.is_some() {
            byte_locks::try_lock(&self.file, LockByte::PRESENCE, LockKind::Shared)?;
        }
        byte_locks::unlock(&self.file, LockByte::OPENING)?;
        Ok(others)
    }

    /// Returns whether the descriptor still belongs to this handle: a program may close descriptors
    /// that it does not own.
    pub(crate) fn has_descriptor(&self) -> bool {
        self.file.checked().is_ok()
    }

    /// Takes the writer's place for a turn; returns `false` if another handle has the place or
    /// keeps writers out.
    pub(crate) fn try_take_turn(&self, sharing: Sharing) -> io::Result<bool> {
        // A program may have closed the descriptor: a lock of another file keeps nobody out.
        let file = self.file.checked()?;
        let is_present = sharing != Sharing::PerCall
            || byte_locks::try_lock(file, LockByte::PRESENCE, LockKind::Shared)?;
        if !is_present {
            return Ok(false);
        }
        let is_taken = byte_locks::try_lock(file, LockByte::WRITER, LockKind::Exclusive);
        if !matches!(is_taken, Ok(true)) && sharing == Sharing::PerCall {
            byte_locks::unlock(file, LockByte::PRESENCE)?;
        }
        is_taken
    }

    /// Gives the place of the writer up after a turn.
    pub(crate) fn give_up_turn(&self, sharing: Sharing) -> io::Result<()> {
        match sharing {
            Sharing::PerCall => byte_locks::unlock_all(self.file.checked()?),
            _ => byte_locks::unlock(self.file.checked()?, LockByte::WRITER),
        }
    }

    /// Returns whether any name leads to the file.
    pub(crate) fn has_name(&self) -> bool {
        Status::of(&self.file).map_or(true, |status| status.link_count > 0)
    }

    /// Returns whether a name leads to the file, or none need do so: the program has opened it.
    pub(crate) fn is_named(&self, path: &Path) -> io::Result<bool> {
        Ok(self.is_of_program || leads_to(path, &Status::of(self.file.checked()?)?))
    }

    /// Returns who stands in the way of this handle.
    pub(super) fn holders(&self) -> Vec<Holder> {
        holders_of(&self.file, false)
    }

    fn other_readers(
        &self,
        is_alone: bool,
        sharing: Sharing,
    ) -> io::Result<Option<Arc<OtherReaders>>> {
        let has_room = self.claims.claim(&self.file, TABLE)? == Room::Claimed;
        if !has_room && free_bytes(&self.file)? < ROOM_BYTES_MIN {
            return Err(no_room());
        }
        let others = OtherReaders::of(self.file.clone(), has_room, self.table.get().cloned());
        if is_alone {
            others.forget_all(sharing.takes_turns())?;
        } else {
            others.expect_readers()?;
        }
        Ok(Some(Arc::new(others)))
    }

    /// Takes the seat of a reader, with which it pins what it reads, with a place in the reader
    /// table if one is wanted and free.
    pub(crate) fn take_seat(&self, path: &Path, wants_place: bool) -> io::Result<Seat> {
        Seat::take(&self.file, path, wants_place, &self.claims, self.table.get())
    }

    /// Opens the place where handles add the cost of their lookups; `None` if this handle may not
    /// store to it.
    pub(crate) fn share_counts(&self, path: &Path) -> io::Result<Option<SharedCounts>> {
        SharedCounts::open(&self.file, path, &self.claims)
    }

    /// Takes the seat of a reader that holds no lock between its calls.
    pub(crate) fn take_seat_per_call(&self, path: &Path) -> io::Result<Seat> {
        Seat::take_per_call(&self.file, path, self.table.get())
    }
}

/// Returns whether the block of the reader table is allocated, so that a store to it by any process
/// cannot fault. The file is open for writing.
pub(super) fn can_store_to_table(file: &File, claims: &Claims) -> bool {
    claims.claim(file, TABLE).is_ok_and(|room| room == Room::Claimed)
}

/// Keeps writers out of a file that is read; returns `false` if there is a writer. If the writer
/// only has a turn, or is just opening the file, this waits up to `wait_max` for the end of that,
/// or until `stops` returns `true`, and asks the handle that keeps the writer's place between turns
/// to give it up.
pub(super) fn keep_writers_out(
    file: &File,
    wait_max: Duration,
    mut stops: impl FnMut() -> bool,
) -> io::Result<bool> {
    let begun = Instant::now();
    let mut asked = None;
    loop {
        if try_keep_writers_out(file)? {
            return Ok(true);
        }
        // A handle that is opening the file may keep all others out for a moment.
        let is_over_soon =
            Neighbours::is_being_opened(file) || Neighbours::is_written_by_turns(file);
        if begun.elapsed() >= wait_max || !is_over_soon || stops() {
            return Ok(false);
        }
        asked.get_or_insert_with(|| Asked::new(file));
        let pause = (begun.elapsed() / 4).clamp(PAUSE_MIN, PAUSE_MAX);
        sleep_until_handed_over(file, pause);
    }
}

/// A request for the writer's place, until it is dropped. It is a lock, because a lock needs no
/// permission to write.
pub(super) struct Asked<'a>(&'a File);

impl<'a> Asked<'a> {
    pub(super) fn new(file: &'a File) -> Self {
        // Ignore an error: a handle that cannot ask still polls for the place.
        let _ = byte_locks::try_lock(file, LockByte::ASKED, LockKind::Shared);
        Self(file)
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        // Ignore an error: the lock ends with the description at the latest.
        let _ = byte_locks::unlock(self.0, LockByte::ASKED);
    }
}

/// As [`keep_writers_out`], without waiting.
pub(super) fn try_keep_writers_out(file: &File) -> io::Result<bool> {
    if !try_flock_shared(file)? {
        return Ok(false);
    }
    // Also exclude a writer that leaves `flock` to its program.
    let is_kept = byte_locks::try_lock(file, LockByte::WRITER, LockKind::Shared);
    // The presence byte is also locked while a process closes a descriptor of a file that it has
    // claimed.
    let is_claimed = || byte_locks::is_locked_exclusively(file, LockByte::PRESENCE).unwrap_or(true);
    if matches!(is_kept, Ok(true)) && is_claimed() {
        let_writers_in(file)?;
        return Ok(false);
    }
    if !matches!(is_kept, Ok(true)) {
        file.unlock()?;
    }
    is_kept
}

/// Ends [`try_keep_writers_out`].
pub(super) fn let_writers_in(file: &File) -> io::Result<()> {
    byte_locks::unlock(file, LockByte::WRITER)?;
    file.unlock()
}

fn try_flock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(source)) => Err(source),
    }
}

fn try_flock_shared(file: &File) -> io::Result<bool> {
    match file.try_lock_shared() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(source)) => Err(source),
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn who_is_to_keep_writers_out_waits_for_one_that_is_opening_the_file() {
        const LONG: Duration = Duration::from_secs(600);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let open =
            || File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let (opening, reading) = (open().unwrap(), open().unwrap());
        assert!(Neighbours::try_lock_to_write(&opening, Sharing::PerCall).unwrap());
        assert!(byte_locks::try_lock(&opening, LockByte::PRESENCE, LockKind::Exclusive).unwrap());
        std::thread::scope(|scope| {
            let kept = scope.spawn(|| keep_writers_out(&reading, LONG, || false).unwrap());
            let is_asked = || byte_locks::is_locked(&opening, LockByte::ASKED).unwrap();
            while !is_asked() && !kept.is_finished() {
                std::thread::yield_now();
            }
            Neighbours::unlock(&opening);
            assert!(kept.join().unwrap());
        });
    }
}
