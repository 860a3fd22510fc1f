//! The reader table: what processes that read a file tell the one that writes it.
//!
//! A reader of another process pins as one of the writer's process does (see [`pins`](crate::pins)): it
//! counts itself before it loads a slot, so that nothing it may look at is used again. Its counters are
//! in the file, in a *place* of its own; which places have an owner the kernel knows, by a lock on the
//! byte of each. An owner that was killed has no lock any more, and what it counted is erased.
//!
//! A reader without a place, because all are taken or because it may not write the file, locks the byte
//! of the parity while it reads: the same protocol, a system call at a time.
//!
//! # Invariants
//!
//! - A place is stored to by the owner of its lock alone.
//! - The table says nothing of the store: any content of it is valid when nobody has the file open.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::Storage;
use super::byte_locks::{self, LockByte, LockKind};
use super::fork::Origin;
use super::neighbours::can_store_to_table;
use super::own_file::OwnFile;
use super::reservation::{Part, Protection, Reservation};
use crate::format::{READER_TABLE_BYTES, READER_TABLE_OFFSET, u64_at};
use crate::pins::{Elsewhere, Pin, PinCount, SeenPins};

/// Places of the table; the first is its head.
const PLACE_COUNT: usize = 64;
const WORD_COUNT: usize = (READER_TABLE_BYTES / 8) as usize;
const PLACE_WORDS: usize = WORD_COUNT / PLACE_COUNT;

const PARITY: usize = 0;
const USED: usize = 1;
const MOVES: usize = 2;
const TURN: usize = 3;
const WANTED: usize = 4;
/// Words of a place, after its two counters.
const PID: usize = 2;
const SINCE: usize = 3;

/// How long a reader that comes waits at most for the end of a move that has begun.
const MOVE_WAIT: Duration = Duration::from_secs(1);

/// The reader table, at byte 12288 of the file: 64 places of 64 bytes, the first of which is the head.
///
/// ```text
/// offset  size  field
///      0     8  parity (bit 0): on which of two counters new pins count
///      8     8  one more than the largest place that was taken since a writer was alone
///     16     8  moves: odd while the writer moves records whose copies do not name the original;
///               each such move adds 2
///     24     8  turn: 1 while a handle that takes turns has its own (bit 0); 1 if the superblock said
///               durably, when it ended, that the store is not clean (bit 1); a random number of whoever
///               had it (bits 2-63). 0 if the last writer was a handle of another kind
///     32     8  1 if a handle waits for its turn, until one has got it
///     40    24  reserved
/// 64 * i     8  place i, from 1 on: pins on parity 0
///        +   8  8  pins on parity 1
///        +  16  8  process id of the owner, for messages
///        +  24  8  when the owner came, in nanoseconds of the system's monotonic clock
///        +  32 32  reserved
/// ```
#[derive(Debug)]
pub(crate) struct ReaderTable {
    map: Reservation,
}

/// A place that has an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TakenPlace {
    pub(crate) place: usize,
    pub(crate) pid: u32,
    /// For how long the owner has had the file open.
    pub(crate) age: Duration,
    /// Whether it holds anything.
    pub(crate) is_pinned: bool,
}

impl ReaderTable {
    /// Maps the table of a file.
    fn map(file: &File, protection: Protection) -> io::Result<Self> {
        let part = Part { file, offset: READER_TABLE_OFFSET, protection };
        Ok(Self { map: Reservation::of_file(READER_TABLE_BYTES, part)? })
    }

    fn words(&self) -> &[AtomicU64; WORD_COUNT] {
        // SAFETY: the reservation maps READER_TABLE_BYTES there, aligned to a page, as long as it lives;
        // the words are only ever used as atomics, by every process.
        unsafe { &*self.map.span().base.cast_const().cast() }
    }

    fn place(&self, place: usize) -> &[AtomicU64] {
        &self.words()[place * PLACE_WORDS..][..PLACE_WORDS]
    }

    fn parity(&self) -> u64 {
        self.words()[PARITY].load(Ordering::Relaxed) & 1
    }

    /// Returns the places that were ever taken, and may be in use.
    fn used_places(&self) -> std::ops::Range<usize> {
        1..self.used_count()
    }

    fn used_count(&self) -> usize {
        (self.words()[USED].load(Ordering::Relaxed) as usize).min(PLACE_COUNT)
    }

    /// Returns how often records were moved without a name; odd while that goes on.
    fn moves(&self) -> u64 {
        self.words()[MOVES].load(Ordering::SeqCst)
    }
}

/// Who had the last turn, and how it ended: a word of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TurnWord(u64);

impl TurnWord {
    /// The last writer was a handle that does not take turns, or nobody knows.
    pub(crate) const NONE: Self = Self(0);
    const BUSY: u64 = 1;
    const NOT_CLEAN_DURABLY: u64 = 2;

    /// Returns the word of a turn that begins, of a handle with a random number.
    pub(crate) fn begun(number: u64) -> Self {
        Self(number << 2 | Self::BUSY)
    }

    /// Returns the word of the same turn when it ends.
    pub(crate) fn ended(self, is_not_clean_durably: bool) -> Self {
        let durably = if is_not_clean_durably { Self::NOT_CLEAN_DURABLY } else { 0 };
        Self(self.0 & !(Self::BUSY | Self::NOT_CLEAN_DURABLY) | durably)
    }

    /// Returns whether the turn has ended: its handle has left the tables whole.
    pub(crate) fn has_ended(self) -> bool {
        self != Self::NONE && self.0 & Self::BUSY == 0
    }

    /// Returns whether the superblock said then, durably, that the store is not clean.
    pub(crate) fn is_not_clean_durably(self) -> bool {
        self.has_ended() && self.0 & Self::NOT_CLEAN_DURABLY != 0
    }
}

/// Tells handles that take turns that a writer has the file which may do anything with it: before it
/// does, so that a turn in which it is killed is not taken for one that has ended. Returns who had the
/// last turn before.
pub(crate) fn note_writer(storage: &dyn Storage) -> io::Result<TurnWord> {
    const OFFSET: u64 = READER_TABLE_OFFSET + 8 * TURN as u64;
    if storage.file_bytes() < OFFSET + 8 {
        return Ok(TurnWord::NONE);
    }
    let found = TurnWord(u64_at(&storage.read(OFFSET, 8), 0));
    if found != TurnWord::NONE {
        storage.write_at(OFFSET, &TurnWord::NONE.0.to_le_bytes())?;
    }
    Ok(found)
}

/// What the table has at a moment. It is read, not mapped: a new mapping of a file whose file system has
/// failed may end in a signal.
struct Snapshot([u64; WORD_COUNT]);

impl Snapshot {
    fn of(file: &File) -> io::Result<Self> {
        let mut bytes = [0; READER_TABLE_BYTES as usize];
        file.read_exact_at(&mut bytes, READER_TABLE_OFFSET)?;
        Ok(Self(std::array::from_fn(|word| u64_at(&bytes, 8 * word))))
    }

    /// Returns the places that have an owner other than the description of `file`.
    fn taken_places(&self, file: &File) -> Vec<TakenPlace> {
        let now_ns = since_boot_ns();
        let has_owner =
            |&place: &usize| byte_locks::is_locked(file, LockByte::place(place)).unwrap_or(true);
        let used_count = (self.0[USED] as usize).min(PLACE_COUNT);
        let taken = (1..used_count).filter(has_owner).map(|place| {
            let words = &self.0[place * PLACE_WORDS..][..PLACE_WORDS];
            TakenPlace {
                place,
                pid: words[PID] as u32,
                age: Duration::from_nanos(now_ns.saturating_sub(words[SINCE])),
                is_pinned: words[..2].iter().any(|&count| count != 0),
            }
        });
        taken.collect()
    }
}

/// The readers of other processes, as the process sees them that writes.
#[derive(Debug)]
pub(crate) struct OtherReaders {
    file: Arc<OwnFile>,
    /// Mapped when the writer first wants to use space again: a process may have thousands of stores
    /// open that never come to it.
    table: OnceLock<ReaderTable>,
    /// Whether other handles had the file open when this one came.
    were_there: AtomicBool,
}

impl OtherReaders {
    /// Looks at the readers of a file that this handle has locked for writing.
    pub(super) fn of(file: Arc<OwnFile>) -> Self {
        Self { file, table: OnceLock::new(), were_there: AtomicBool::new(false) }
    }

    /// Maps the table, or returns the error of the system, which has no address space.
    fn table(&self) -> io::Result<&ReaderTable> {
        if let Some(table) = self.table.get() {
            return Ok(table);
        }
        let table = ReaderTable::map(&self.file, Protection::ReadWrite)?;
        Ok(self.table.get_or_init(|| table))
    }

    /// Forgets every reader that there ever was. For a handle that is alone.
    pub(crate) fn forget_all(&self) -> io::Result<()> {
        let zeros = [0; READER_TABLE_BYTES as usize];
        let mut table = zeros;
        self.file.read_exact_at(&mut table, READER_TABLE_OFFSET)?;
        if table == zeros { Ok(()) } else { self.file.write_all_at(&zeros, READER_TABLE_OFFSET) }
    }

    /// Notes that there may be readers that have told nothing of themselves yet.
    ///
    /// A move that a killed process had begun is over.
    pub(crate) fn expect_readers(&self) -> io::Result<()> {
        self.table()?.words()[USED].fetch_max(1, Ordering::SeqCst);
        self.were_there.store(true, Ordering::Relaxed);
        self.end_move();
        Ok(())
    }

    /// Returns whether other handles had the file open when this one came.
    pub(crate) fn were_there(&self) -> bool {
        self.were_there.load(Ordering::Relaxed)
    }

    /// Returns who had the last turn, and how it ended.
    pub(crate) fn turn(&self) -> io::Result<TurnWord> {
        Ok(TurnWord(self.table()?.words()[TURN].load(Ordering::Acquire)))
    }

    /// Notes who has a turn, or had the last one.
    pub(crate) fn set_turn(&self, turn: TurnWord) -> io::Result<()> {
        self.table()?.words()[TURN].store(turn.0, Ordering::Release);
        Ok(())
    }

    /// Returns whether a handle waits for its turn, or did when it was killed.
    pub(crate) fn is_turn_wanted(&self) -> bool {
        self.table().is_ok_and(|table| table.words()[WANTED].load(Ordering::Relaxed) != 0)
    }

    /// Notes that a handle waits for its turn, or that none does.
    pub(crate) fn set_turn_wanted(&self, is_wanted: bool) {
        if let Ok(table) = self.table() {
            table.words()[WANTED].store(is_wanted.into(), Ordering::Relaxed);
        }
    }

    /// Begins to move records, and returns whether their copies must name the originals: a reader may
    /// be scanning. Otherwise one that comes now waits until the end of the move.
    pub(crate) fn begin_move(&self) -> bool {
        let Ok(table) = self.table() else { return true };
        if table.used_count() != 0 {
            return true;
        }
        let moves = &table.words()[MOVES];
        moves.store(moves.load(Ordering::Relaxed) | 1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        table.used_count() != 0
    }

    /// Ends what [`begin_move`](Self::begin_move) began, when every slot leads to its copy.
    pub(crate) fn end_move(&self) {
        let Some(table) = self.table.get() else { return };
        let moves = &table.words()[MOVES];
        let before = moves.load(Ordering::Relaxed);
        if before & 1 == 1 {
            moves.store(before.wrapping_add(1), Ordering::Release);
        }
    }

    /// Returns the places that have an owner.
    pub(crate) fn taken_places(&self) -> Vec<TakenPlace> {
        // Without the table nobody knows.
        Snapshot::of(&self.file).map(|table| table.taken_places(&self.file)).unwrap_or_default()
    }

    /// Returns whether somebody without a place reads, counted on a parity.
    fn is_byte_locked(&self, parity: u64) -> bool {
        // Nothing is used again that somebody may look at.
        byte_locks::is_locked(&self.file, LockByte::pin(parity)).unwrap_or(true)
    }

    /// Returns whether a place has an owner; if it has none, erases what the last one counted.
    fn has_owner(&self, table: &ReaderTable, place: usize) -> bool {
        let byte = LockByte::place(place);
        match byte_locks::try_lock(&self.file, byte, LockKind::Exclusive) {
            Ok(true) => {
                for word in table.place(place) {
                    word.store(0, Ordering::Relaxed);
                }
                // An error leaves it locked until this handle is closed: readers take another.
                let _ = byte_locks::unlock(&self.file, byte);
                false
            }
            // Who cannot be asked counts as alive.
            Ok(false) | Err(_) => true,
        }
    }

    /// Returns whether no reader counts on a parity.
    fn is_clear(&self, parity: u64) -> bool {
        let Ok(table) = self.table() else { return false };
        let counts = |place: usize| &table.place(place)[(parity & 1) as usize];
        let is_counted = |&place: &usize| {
            counts(place).load(Ordering::Acquire) != 0 && self.has_owner(table, place)
        };
        !table.used_places().any(|place| is_counted(&place)) && !self.is_byte_locked(parity)
    }
}

impl Elsewhere for Arc<OtherReaders> {
    fn flip(&self) {
        // It was mapped for the look before.
        if let Some(table) = self.table.get() {
            table.words()[PARITY].store(table.parity() ^ 1, Ordering::Relaxed);
        }
    }

    fn is_clear_behind(&self) -> bool {
        self.table().is_ok_and(|table| self.is_clear(table.parity() ^ 1))
    }

    fn is_pinned(&self) -> bool {
        let is_counted =
            |table: Snapshot| table.taken_places(&self.file).iter().any(|taken| taken.is_pinned);
        // Who cannot be asked may have something.
        Snapshot::of(&self.file).map_or(true, is_counted)
            || self.is_byte_locked(0)
            || self.is_byte_locked(1)
    }
}

/// What a reader of this process pins with.
#[derive(Debug)]
pub(crate) struct Seat {
    seated: Arc<Seated>,
    /// On each parity.
    pins: [PinCount; 2],
}

/// A reader with a place in the table, or without.
#[derive(Debug)]
struct Seated {
    origin: Origin,
    /// A description of its own, which has the locks: a child of a fork shares that of its parent.
    file: File,
    table: ReaderTable,
    kind: SeatKind,
}

#[derive(Debug)]
enum SeatKind {
    /// A place in the table.
    Place(usize),
    /// The bytes of the two parities, with the pins on each.
    Bytes(Mutex<[u64; 2]>),
    /// The same, and that the file is in use, only while anything is pinned.
    PerCall(Mutex<[u64; 2]>),
}

impl Seat {
    /// Takes a seat at a file that this process has open, with a place if one is wanted and there is one
    /// to be had: without, nothing is written to the file.
    ///
    /// # Errors
    ///
    /// Those of the system; [`io::ErrorKind::WouldBlock`] if a handle is open that lets nobody else in.
    pub(crate) fn take(file: &File, path: &Path, wants_place: bool) -> io::Result<Self> {
        if wants_place
            && let Ok(file) = open_again(file, path, File::options().read(true).write(true))
            && can_store_to_table(&file)
            && let Ok(table) = ReaderTable::map(&file, Protection::ReadWrite)
        {
            note_presence(&file)?;
            let place = take_place(&file, &table);
            let used_count = place.map_or(1, |place| place as u64 + 1);
            table.words()[USED].fetch_max(used_count, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            let kind = place.map_or_else(|| SeatKind::Bytes(Mutex::default()), SeatKind::Place);
            let seat = Self::of(Seated { origin: Origin::here(), file, table, kind });
            seat.wait_for_move();
            return Ok(seat);
        }
        let file = open_again(file, path, File::options().read(true))?;
        note_presence(&file)?;
        let table = ReaderTable::map(&file, Protection::Read)?;
        let (origin, kind) = (Origin::here(), SeatKind::Bytes(Mutex::default()));
        Ok(Self::of(Seated { origin, file, table, kind }))
    }

    /// Takes a seat that locks nothing while nothing is pinned.
    pub(crate) fn take_per_call(file: &File, path: &Path) -> io::Result<Self> {
        let file = open_again(file, path, File::options().read(true))?;
        let table = ReaderTable::map(&file, Protection::Read)?;
        let (origin, kind) = (Origin::here(), SeatKind::PerCall(Mutex::default()));
        Ok(Self::of(Seated { origin, file, table, kind }))
    }

    fn of(seated: Seated) -> Self {
        let seated = Arc::new(seated);
        let pins = [0, 1].map(|parity| PinCount::seen(Box::new(SeatPins(seated.clone(), parity))));
        Self { seated, pins }
    }

    /// Returns whether the seat is of this process, and not of one that has forked it.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.seated.origin.is_here()
    }

    /// Returns whether it has a place, so that a pin is no system call.
    pub(crate) fn has_place(&self) -> bool {
        matches!(self.seated.kind, SeatKind::Place(_))
    }

    /// Returns whether a pin keeps a lock that others may wait for.
    pub(crate) fn is_per_call(&self) -> bool {
        matches!(self.seated.kind, SeatKind::PerCall(_))
    }

    /// Waits until a move is over that may not have seen this reader come; not for ever, since the
    /// writer may be stopped.
    fn wait_for_move(&self) {
        let before = self.unnamed_moves();
        let mut waited = Duration::ZERO;
        let has_writer = || {
            byte_locks::is_locked_exclusively(&self.seated.file, LockByte::WRITER).unwrap_or(true)
        };
        while before & 1 == 1
            && self.unnamed_moves() == before
            && waited < MOVE_WAIT
            && has_writer()
        {
            let step = Duration::from_micros(100);
            std::thread::sleep(step);
            waited += step;
        }
    }

    /// Returns a number that changes when records were moved from which nothing leads back to the
    /// originals; odd while that goes on, or if the writer was killed meanwhile.
    pub(crate) fn unnamed_moves(&self) -> u64 {
        self.seated.table.moves()
    }

    /// Returns the places of the other readers.
    pub(crate) fn taken_places(&self) -> Vec<TakenPlace> {
        let table = Snapshot::of(&self.seated.file);
        table.map(|table| table.taken_places(&self.seated.file)).unwrap_or_default()
    }

    /// Pins everything that slots hold from now on, until the pin is dropped.
    #[inline]
    pub(crate) fn pin(&self) -> io::Result<Pin<'_>> {
        let parity = self.seated.table.parity();
        match &self.seated.kind {
            SeatKind::Place(place) => {
                self.seated.count(*place, parity).fetch_add(1, Ordering::SeqCst);
            }
            SeatKind::Bytes(counts) => {
                let mut counts = lock(counts);
                if counts[parity as usize] == 0 {
                    let byte = LockByte::pin(parity);
                    byte_locks::try_lock(&self.seated.file, byte, LockKind::Shared)?;
                }
                counts[parity as usize] += 1;
            }
            SeatKind::PerCall(counts) => {
                let mut counts = lock(counts);
                let is_first = *counts == [0; 2];
                if is_first {
                    note_presence(&self.seated.file)?;
                }
                if counts[parity as usize] == 0 {
                    let byte = LockByte::pin(parity);
                    let locked = byte_locks::try_lock(&self.seated.file, byte, LockKind::Shared);
                    if is_first && locked.is_err() {
                        let _ = byte_locks::unlock_all(&self.seated.file);
                    }
                    locked?;
                }
                counts[parity as usize] += 1;
            }
        }
        fence(Ordering::SeqCst);
        Ok(self.pins[parity as usize].counted())
    }
}

impl Seated {
    /// Returns the counter of a parity in a place.
    fn count(&self, place: usize, parity: u64) -> &AtomicU64 {
        &self.table.place(place)[parity as usize]
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        // Closing the file would unlock its bytes, unless a child of a fork has it open.
        if self.origin.is_here() {
            let _ = byte_locks::unlock_all(&self.file);
        }
    }
}

/// Opens a file again that this process has open, whatever its name is now.
fn open_again(file: &File, path: &Path, options: &OpenOptions) -> io::Result<File> {
    let same = format!("/proc/self/fd/{}", file.as_raw_fd());
    let again = options.open(same).or_else(|_| options.open(path))?;
    let identity = |file: &File| file.metadata().map(|found| (found.dev(), found.ino()));
    if identity(&again)? == identity(file)? {
        return Ok(again);
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "another file has the name now"))
}

/// Notes that somebody has the file open, who stays when the handle of a parent is closed.
fn note_presence(file: &File) -> io::Result<()> {
    if byte_locks::try_lock(file, LockByte::PRESENCE, LockKind::Shared)? {
        return Ok(());
    }
    Err(io::ErrorKind::WouldBlock.into())
}

/// Returns whether the writer was killed while it moved records whose copies do not name the original.
/// There is no writer.
pub(crate) fn is_left_moving(storage: &dyn Storage) -> bool {
    let moves = storage.read(READER_TABLE_OFFSET + 8 * MOVES as u64, 8);
    u64_at(&moves, 0) & 1 == 1
}

/// Takes the first place that has no owner.
fn take_place(file: &File, table: &ReaderTable) -> Option<usize> {
    let is_taken = |place: &usize| {
        byte_locks::try_lock(file, LockByte::place(*place), LockKind::Exclusive).unwrap_or(false)
    };
    let place = (1..PLACE_COUNT).find(is_taken)?;
    let words = table.place(place);
    // What the last owner counted.
    words[0].store(0, Ordering::Relaxed);
    words[1].store(0, Ordering::Relaxed);
    words[PID].store(std::process::id().into(), Ordering::Relaxed);
    words[SINCE].store(since_boot_ns(), Ordering::Relaxed);
    Some(place)
}

/// The pins of a seat on a parity.
#[derive(Debug)]
struct SeatPins(Arc<Seated>, u64);

impl SeenPins for SeatPins {
    fn add(&self) {
        let Self(seated, parity) = self;
        // The pins of a child that were its parent's are the parent's.
        if !seated.origin.is_here() {
            return;
        }
        match &seated.kind {
            SeatKind::Place(place) => {
                seated.count(*place, *parity).fetch_add(1, Ordering::Relaxed);
            }
            SeatKind::Bytes(counts) | SeatKind::PerCall(counts) => {
                lock(counts)[*parity as usize] += 1;
            }
        }
    }

    fn remove(&self) {
        let Self(seated, parity) = self;
        if !seated.origin.is_here() {
            return;
        }
        match &seated.kind {
            SeatKind::Place(place) => {
                seated.count(*place, *parity).fetch_sub(1, Ordering::Release);
            }
            SeatKind::Bytes(counts) => {
                let mut counts = lock(counts);
                counts[*parity as usize] -= 1;
                if counts[*parity as usize] == 0 {
                    // A lock that stays holds space back until the handle is closed, and nothing else.
                    let _ = byte_locks::unlock(&seated.file, LockByte::pin(*parity));
                }
            }
            SeatKind::PerCall(counts) => {
                let mut counts = lock(counts);
                counts[*parity as usize] -= 1;
                // As above.
                if *counts == [0; 2] {
                    let _ = byte_locks::unlock_all(&seated.file);
                } else if counts[*parity as usize] == 0 {
                    let _ = byte_locks::unlock(&seated.file, LockByte::pin(*parity));
                }
            }
        }
    }
}

fn lock(counts: &Mutex<[u64; 2]>) -> MutexGuard<'_, [u64; 2]> {
    // Each statement leaves the counts whole.
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the nanoseconds since some moment of this boot.
/// Returns the time of the system's monotonic clock, in which processes can compare.
pub(crate) fn since_boot() -> Duration {
    // Miri knows nothing of the call.
    if cfg!(miri) { Duration::ZERO } else { Duration::from_nanos(since_boot_ns()) }
}

/// Returns who reads a file and has a place in its table, other than this description.
pub(super) fn taken_places(file: &File) -> Vec<TakenPlace> {
    Snapshot::of(file).map(|table| table.taken_places(file)).unwrap_or_default()
}

fn since_boot_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}

#[cfg(all(test, target_os = "linux", not(loom), not(miri)))]
mod tests {
    use super::*;

    fn take(file: &File) -> Seat {
        Seat::take(file, Path::new("/"), true).expect("it is open already")
    }

    struct Fixture {
        _dir: tempfile::TempDir,
        file: Arc<OwnFile>,
        others: Arc<OtherReaders>,
    }

    fn fixture() -> Fixture {
        let dir = tempfile::tempdir().expect("nothing fails");
        let path = dir.path().join("a");
        let file = File::options().read(true).write(true).create_new(true).open(path);
        let file = file.expect("nothing fails");
        file.set_len(16384).expect("nothing fails");
        let file = Arc::new(OwnFile::new(file).expect("nothing fails"));
        let others = Arc::new(OtherReaders::of(file.clone()));
        Fixture { _dir: dir, file, others }
    }

    #[test]
    fn a_pin_is_seen_until_it_is_dropped_on_the_parity_on_which_it_counts() {
        let Fixture { _dir, file, others } = fixture();
        let seat = take(&file);
        assert!(matches!(seat.seated.kind, SeatKind::Place(1)));
        assert!(!others.is_pinned());
        let pin = seat.pin().unwrap();
        assert!(!others.is_clear(0) && others.is_clear(1));
        others.flip();
        let (later, copy) = (seat.pin().unwrap(), pin.clone());
        assert!(!others.is_clear(0) && !others.is_clear(1));
        drop(pin);
        assert!(!others.is_clear(0), "the copy is as old");
        drop(copy);
        assert!(others.is_clear_behind());
        drop(later);
        assert!(!others.is_pinned());
    }

    #[test]
    fn readers_beyond_the_places_lock_the_byte_of_the_parity() {
        let Fixture { _dir, file, others } = fixture();
        let seats: Vec<Seat> = (0..PLACE_COUNT + 3).map(|_| take(&file)).collect();
        let last = seats.last().unwrap();
        assert!(matches!(last.seated.kind, SeatKind::Bytes(_)));
        assert_eq!(others.taken_places().len(), PLACE_COUNT - 1);
        let (pin, second) = (last.pin().unwrap(), last.pin().unwrap());
        assert!(!others.is_clear(0));
        drop(pin);
        assert!(!others.is_clear(0));
        drop(second);
        assert!(others.is_clear(0));
    }

    #[test]
    fn what_an_owner_without_a_lock_has_counted_is_erased() {
        let Fixture { _dir, file, others } = fixture();
        let seat = take(&file);
        std::mem::forget(seat.pin().unwrap());
        assert!(!others.is_clear(0));
        // As if its process were killed.
        drop(seat);
        assert!(others.is_clear(0));
        let next = take(&file);
        assert!(matches!(next.seated.kind, SeatKind::Place(1)), "the place is free again");
    }

    #[test]
    fn copies_name_their_originals_from_the_first_reader_on() {
        let Fixture { _dir, file, others } = fixture();
        assert!(!others.begin_move());
        others.end_move();
        let moves = others.table().unwrap().moves();
        assert_eq!(moves, 2);
        let _seat = take(&file);
        assert!(others.begin_move());
        others.end_move();
        assert_eq!(others.table().unwrap().moves(), moves);
    }
}
