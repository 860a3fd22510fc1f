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

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::byte_locks::{self, LockByte, LockKind};
use super::fork::Origin;
use super::reservation::{Part, Protection, Reservation};
use super::shared_file::can_store_to_table;
use crate::format::{READER_TABLE_BYTES, READER_TABLE_OFFSET};
use crate::pins::Elsewhere;

/// Places of the table; the first is its head.
const PLACE_COUNT: usize = 64;
const WORD_COUNT: usize = (READER_TABLE_BYTES / 8) as usize;
const PLACE_WORDS: usize = WORD_COUNT / PLACE_COUNT;

const PARITY: usize = 0;
const USED: usize = 1;
const MOVES: usize = 2;
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
///     24    40  reserved
/// 64 * i     8  place i, from 1 on: pins on parity 0
///        +   8  8  pins on parity 1
///        +  16  8  process id of the owner, for messages
///        +  24  8  when the owner came: nanoseconds of the clock that goes on while the machine
///               sleeps, since it was started
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

    /// Returns the places that have an owner other than the description of `file`.
    fn taken_places(&self, file: &File) -> Vec<TakenPlace> {
        let now_ns = since_boot_ns();
        let has_owner =
            |&place: &usize| byte_locks::is_locked(file, LockByte::place(place)).unwrap_or(true);
        let taken = self.used_places().filter(has_owner).map(|place| {
            let words = self.place(place);
            let since_ns = words[SINCE].load(Ordering::Relaxed);
            TakenPlace {
                place,
                pid: words[PID].load(Ordering::Relaxed) as u32,
                age: Duration::from_nanos(now_ns.saturating_sub(since_ns)),
                is_pinned: words[..2].iter().any(|count| count.load(Ordering::Relaxed) != 0),
            }
        });
        taken.collect()
    }

    /// Returns how often records were moved without a name; odd while that goes on.
    fn moves(&self) -> u64 {
        self.words()[MOVES].load(Ordering::SeqCst)
    }
}

/// The readers of other processes, as the process sees them that writes.
#[derive(Debug)]
pub(crate) struct OtherReaders {
    file: Arc<File>,
    table: ReaderTable,
}

impl OtherReaders {
    /// Looks at the readers of a file that this handle has locked for writing.
    pub(crate) fn of(file: Arc<File>) -> io::Result<Self> {
        Ok(Self { table: ReaderTable::map(&file, Protection::ReadWrite)?, file })
    }

    /// Forgets every reader that there ever was. For a handle that is alone.
    pub(crate) fn forget_all(&self) {
        for word in self.table.words() {
            if word.load(Ordering::Relaxed) != 0 {
                word.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Notes that there may be readers that have told nothing of themselves yet.
    pub(crate) fn expect_readers(&self) {
        self.table.words()[USED].fetch_max(1, Ordering::SeqCst);
    }

    /// Begins to move records, and returns whether their copies must name the originals: a reader may
    /// be scanning. Otherwise one that comes now waits until the end of the move.
    pub(crate) fn begin_move(&self) -> bool {
        if self.table.used_count() != 0 {
            return true;
        }
        let moves = &self.table.words()[MOVES];
        moves.store(moves.load(Ordering::Relaxed) | 1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.table.used_count() != 0
    }

    /// Ends what [`begin_move`](Self::begin_move) began, when every slot leads to its copy.
    pub(crate) fn end_move(&self) {
        let moves = &self.table.words()[MOVES];
        let before = moves.load(Ordering::Relaxed);
        if before & 1 == 1 {
            moves.store(before.wrapping_add(1), Ordering::Release);
        }
    }

    /// Returns the places that have an owner.
    pub(crate) fn taken_places(&self) -> Vec<TakenPlace> {
        self.table.taken_places(&self.file)
    }

    /// Returns whether somebody without a place reads, counted on a parity.
    fn is_byte_locked(&self, parity: u64) -> bool {
        // Nothing is used again that somebody may look at.
        byte_locks::is_locked(&self.file, LockByte::pin(parity)).unwrap_or(true)
    }

    /// Returns whether a place has an owner; if it has none, erases what the last one counted.
    fn has_owner(&self, place: usize) -> bool {
        let byte = LockByte::place(place);
        match byte_locks::try_lock(&self.file, byte, LockKind::Exclusive) {
            Ok(true) => {
                for word in self.table.place(place) {
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
        let counts = |place: usize| &self.table.place(place)[(parity & 1) as usize];
        let is_counted =
            |&place: &usize| counts(place).load(Ordering::Acquire) != 0 && self.has_owner(place);
        !self.table.used_places().any(|place| is_counted(&place)) && !self.is_byte_locked(parity)
    }
}

impl Elsewhere for Arc<OtherReaders> {
    fn flip(&self) {
        self.table.words()[PARITY].store(self.table.parity() ^ 1, Ordering::Relaxed);
    }

    fn is_clear_behind(&self) -> bool {
        self.is_clear(self.table.parity() ^ 1)
    }

    fn is_pinned(&self) -> bool {
        !(self.is_clear(0) && self.is_clear(1))
    }
}

/// What a reader of this process pins with beside a writer.
#[derive(Debug)]
pub(crate) struct Seat {
    seated: Arc<Seated>,
    /// On each parity.
    pins: [SeatPins; 2],
}

/// A reader with a place in the table, or without.
#[derive(Debug)]
struct Seated {
    origin: Origin,
    /// A description of its own, which has the locks: a child of a fork shares that of its parent.
    file: File,
    table: ReaderTable,
    kind: SeatKind,
    /// Whether copies of records that are moved from now on name the original.
    is_named_to: bool,
}

#[derive(Debug)]
enum SeatKind {
    /// A place in the table.
    Place(usize),
    /// The bytes of the two parities, with the pins on each.
    Bytes(Mutex<[u64; 2]>),
}

impl Seat {
    /// Takes a seat at a file that this process has open.
    pub(crate) fn take(file: &File) -> io::Result<Self> {
        // Opens the same file again, whatever its name is now.
        let again = format!("/proc/self/fd/{}", file.as_raw_fd());
        let writable = File::options().read(true).write(true).open(&again);
        if let Ok(file) = writable
            && can_store_to_table(&file)
            && let Ok(table) = ReaderTable::map(&file, Protection::ReadWrite)
        {
            let kind = match take_place(&file, &table) {
                Some(place) => SeatKind::Place(place),
                None => SeatKind::Bytes(Mutex::default()),
            };
            table.words()[USED].fetch_max(kind.used_count(), Ordering::SeqCst);
            fence(Ordering::SeqCst);
            let (origin, is_named_to) = (Origin::here(), true);
            let seat = Self::of(Seated { origin, file, table, kind, is_named_to });
            seat.wait_for_move();
            return Ok(seat);
        }
        // Without /proc it shares the description of its handle.
        let file = File::open(&again).or_else(|_| file.try_clone())?;
        let table = ReaderTable::map(&file, Protection::Read)?;
        let (origin, kind) = (Origin::here(), SeatKind::Bytes(Mutex::default()));
        Ok(Self::of(Seated { origin, file, table, kind, is_named_to: false }))
    }

    fn of(seated: Seated) -> Self {
        let seated = Arc::new(seated);
        let pins = [0, 1].map(|parity| SeatPins::Seat(seated.clone(), parity));
        Self { seated, pins }
    }

    /// Returns whether the seat is of this process, and not of one that has forked it.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.seated.origin.is_here()
    }

    /// Waits until a move is over that may not have seen this reader come; not for ever, since the
    /// writer may be stopped.
    fn wait_for_move(&self) {
        let before = self.seated.table.moves();
        let mut waited = Duration::ZERO;
        while before & 1 == 1 && self.seated.table.moves() == before && waited < MOVE_WAIT {
            let step = Duration::from_micros(100);
            std::thread::sleep(step);
            waited += step;
        }
    }

    /// Returns a number that changes when records may have been moved from which nothing leads back to
    /// the originals.
    pub(crate) fn unnamed_moves(&self) -> u64 {
        // Of an odd number the reader knows that it was waited for in vain.
        if self.seated.is_named_to {
            self.seated.table.moves() & 1
        } else {
            self.seated.table.moves()
        }
    }

    /// Returns the places of the other readers.
    pub(crate) fn taken_places(&self) -> Vec<TakenPlace> {
        self.seated.table.taken_places(&self.seated.file)
    }

    /// Pins everything that slots hold from now on, until the pin is dropped.
    #[inline]
    pub(crate) fn pin(&self) -> io::Result<SeatPin<'_>> {
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
        }
        fence(Ordering::SeqCst);
        Ok(SeatPin(&self.pins[parity as usize]))
    }
}

impl Seated {
    /// Returns the counter of a parity in a place.
    fn count(&self, place: usize, parity: u64) -> &AtomicU64 {
        &self.table.place(place)[parity as usize]
    }
}

impl SeatKind {
    fn used_count(&self) -> u64 {
        match self {
            Self::Place(place) => *place as u64 + 1,
            Self::Bytes(_) => 1,
        }
    }
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

/// What a reader pins with while there is no writer: the bytes of both parities, which it has locked since
/// before it looked at anything. So it pins without telling anybody, and the file stays as it is.
#[derive(Debug)]
pub(crate) struct Rest(SeatPins);

impl Rest {
    /// Locks the bytes, of the description of a handle.
    pub(crate) fn begin(file: Arc<File>) -> io::Result<Self> {
        for parity in [0, 1] {
            byte_locks::try_lock(&file, LockByte::pin(parity), LockKind::Shared)?;
        }
        let (pin_count, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        Ok(Self(SeatPins::Rest(Resting { origin: Origin::here(), file, pin_count, is_over })))
    }

    fn resting(&self) -> &Resting {
        let SeatPins::Rest(resting) = &self.0 else { unreachable!("`begin` makes no other") };
        resting
    }

    /// Pins everything, unless the rest is over or of another process.
    #[inline]
    pub(crate) fn pin(&self) -> Option<SeatPin<'_>> {
        let resting = self.resting();
        if !resting.origin.is_here() {
            return None;
        }
        // Counted first: who ends the rest sees it, or this thread sees that it is over.
        resting.pin_count.fetch_add(1, Ordering::SeqCst);
        let pin = SeatPin(&self.0);
        (!resting.is_over.load(Ordering::SeqCst)).then_some(pin)
    }

    /// Ends it, because a writer has come. The bytes stay locked until the last of the pins is dropped.
    pub(crate) fn end(&self) {
        let resting = self.resting();
        resting.is_over.store(true, Ordering::SeqCst);
        if resting.pin_count.load(Ordering::SeqCst) == 0 {
            resting.unlock();
        }
    }
}

/// The state of a [`Rest`].
#[derive(Debug)]
struct Resting {
    origin: Origin,
    file: Arc<File>,
    pin_count: AtomicU64,
    is_over: AtomicBool,
}

impl Resting {
    fn unlock(&self) {
        for parity in [0, 1] {
            // A lock that stays holds space back until the handle is closed, and nothing else.
            let _ = byte_locks::unlock(&self.file, LockByte::pin(parity));
        }
    }
}

/// Where pins of a reader are counted.
#[derive(Debug)]
enum SeatPins {
    /// On a parity.
    Seat(Arc<Seated>, u64),
    Rest(Resting),
}

/// A pin that other processes see.
#[derive(Debug)]
pub(crate) struct SeatPin<'a>(&'a SeatPins);

impl Clone for SeatPin<'_> {
    fn clone(&self) -> Self {
        // This pin holds the counter above 0 already.
        match self.0 {
            SeatPins::Seat(seated, parity) => match &seated.kind {
                SeatKind::Place(place) => {
                    seated.count(*place, *parity).fetch_add(1, Ordering::Relaxed);
                }
                SeatKind::Bytes(counts) => lock(counts)[*parity as usize] += 1,
            },
            SeatPins::Rest(resting) => {
                resting.pin_count.fetch_add(1, Ordering::Relaxed);
            }
        }
        Self(self.0)
    }
}

impl Drop for SeatPin<'_> {
    fn drop(&mut self) {
        match self.0 {
            SeatPins::Seat(seated, parity) if seated.origin.is_here() => match &seated.kind {
                SeatKind::Place(place) => {
                    seated.count(*place, *parity).fetch_sub(1, Ordering::Release);
                }
                SeatKind::Bytes(counts) => {
                    let mut counts = lock(counts);
                    counts[*parity as usize] -= 1;
                    if counts[*parity as usize] == 0 {
                        // As in `Resting::unlock`.
                        let _ = byte_locks::unlock(&seated.file, LockByte::pin(*parity));
                    }
                }
            },
            SeatPins::Rest(resting) if resting.origin.is_here() => {
                let before = resting.pin_count.fetch_sub(1, Ordering::SeqCst);
                if before == 1 && resting.is_over.load(Ordering::SeqCst) {
                    resting.unlock();
                }
            }
            // The pins of a child that were its parent's are the parent's.
            SeatPins::Seat(..) | SeatPins::Rest(_) => {}
        }
    }
}

fn lock(counts: &Mutex<[u64; 2]>) -> MutexGuard<'_, [u64; 2]> {
    // Each statement leaves the counts whole.
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the nanoseconds since the machine was started, those included that it slept.
fn since_boot_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}

#[cfg(all(test, target_os = "linux", not(loom), not(miri)))]
mod tests {
    use super::*;

    struct Fixture {
        _dir: tempfile::TempDir,
        file: Arc<File>,
        others: Arc<OtherReaders>,
    }

    fn fixture() -> Fixture {
        let dir = tempfile::tempdir().expect("nothing fails");
        let path = dir.path().join("a");
        let file = File::options().read(true).write(true).create_new(true).open(path);
        let file = file.expect("nothing fails");
        file.set_len(16384).expect("nothing fails");
        let file = Arc::new(file);
        let others = Arc::new(OtherReaders::of(file.clone()).expect("nothing fails"));
        Fixture { _dir: dir, file, others }
    }

    #[test]
    fn a_pin_is_seen_until_it_is_dropped_on_the_parity_on_which_it_counts() {
        let Fixture { _dir, file, others } = fixture();
        let seat = Seat::take(&file).unwrap();
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
        let seats: Vec<Seat> = (0..PLACE_COUNT + 3).map(|_| Seat::take(&file).unwrap()).collect();
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
        let seat = Seat::take(&file).unwrap();
        std::mem::forget(seat.pin().unwrap());
        assert!(!others.is_clear(0));
        // As if its process were killed.
        drop(seat);
        assert!(others.is_clear(0));
        let next = Seat::take(&file).unwrap();
        assert!(matches!(next.seated.kind, SeatKind::Place(1)), "the place is free again");
    }

    #[test]
    fn copies_name_their_originals_from_the_first_reader_on() {
        let Fixture { _dir, file, others } = fixture();
        assert!(!others.begin_move());
        others.end_move();
        let moves = others.table.moves();
        assert_eq!(moves, 2);
        let _seat = Seat::take(&file).unwrap();
        assert!(others.begin_move());
        others.end_move();
        assert_eq!(others.table.moves(), moves);
    }
}
