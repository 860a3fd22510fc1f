//! The reader table, in which the readers of a file in other processes count their pins for the
//! writer.
//!
//! A reader of another process pins like one of the writer's process (see [`pins`](crate::pins)):
//! it counts itself before it loads a slot, so that nothing it may read is reused. Its counters are
//! in the file, in a *place* of its own. Each place has a lock byte, so the kernel knows which
//! places have an owner. The lock of a killed owner is gone, and its counts are erased.
//!
//! A reader without a place, because all are taken or because it may not write to the file, locks
//! the byte of the parity while it reads: the same protocol, with a system call instead of each
//! count.
//!
//! # Invariants
//!
//! - Only the owner of its lock stores to a place, except for the word about evicted moments, which
//!   the writer stores.
//! - About the store itself, the table says only which handle had the last turn, and whether and
//!   when that handle was closed in order. An open trusts this as far as the live header agrees.
//!   The rest of the table is meaningful only while some handle has the file open.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::byte_locks::{self, LockByte, LockKind};
use super::claim::Claims;
use super::fork::Origin;
use super::futex;
use super::mapped::boot_id;
use super::neighbours::can_store_to_table;
use super::own_file::OwnFile;
use super::pages::can_be_stored_to;
use super::reservation::{Part, Protection, Reservation};
use super::shared_counts;
use super::shared_file::OtherFile;
use super::status::Status;
use super::{Span, Storage};
use crate::atomic::may_be_killed;
use crate::format::{
    GRANULE_BYTES, HEADER_BYTES, LIVE_MAGIC, LIVE_OFFSET, READER_TABLE_BYTES, READER_TABLE_OFFSET,
    u64_at,
};
use crate::pins::{Elsewhere, Pin, PinCount, SeenPins};
use crate::stats::SharedLookups;
use crate::testing::mutant::{self, Mutant};

/// Places of the table; the first is its head.
const PLACE_COUNT: usize = 64;
/// The last place, which no reader takes: see [`shared_counts`].
pub(super) const COUNTS_PLACE: usize = PLACE_COUNT - 1;
const WORD_COUNT: usize = (READER_TABLE_BYTES / 8) as usize;
const PLACE_WORDS: usize = WORD_COUNT / PLACE_COUNT;

const PARITY: usize = 0;
const USED: usize = 1;
const MOVES: usize = 2;
const TURN: usize = 3;
const WANTED: usize = 4;
const LEFT: usize = 5;
const HANDED: usize = 6;
const LEFT_AT: usize = 7;
/// Of the last place.
const GLANCING: usize = 7;
/// Words of a place, after its two counters.
const PID: usize = 2;
const SINCE: usize = 3;
const MOMENT: usize = 4;
const MOMENT_BYTES: usize = 5;
const EVICTED: usize = 6;
/// A flag in the words with moments, so that a moment at the beginning of the log is not 0.
const IS_MOMENT: u64 = 1;

/// Longest time for which a new reader waits for the end of a move.
const MOVE_WAIT: Duration = Duration::from_secs(1);

/// The reader table, at byte 12288 of the file: 64 places of 64 bytes, the first of which is the head.
///
/// ```text
/// offset  size  field
///      0     8  parity (bit 0): on which of two counters new pins count
///      8     8  one more than the largest place that was taken since a writer was alone
///     16     8  moves: odd while the writer moves records whose copies do not name the original;
///               each such move adds 2
///     24     8  turn: 1 while a turn is open (bit 0); 1 if the superblock durably said "not clean"
///               when the turn ended (bit 1); a random number of the handle that had it (bits 2-63).
///               0 if the last writer was a handle of another kind
///     32     4  1 if a handle waits for its turn; 0 after a turn was handed over and nobody sleeps
///     36     4  1 if a place has named the moment of a snapshot since a writer was alone
///     40     8  note of an orderly close by the handle that had the last turn: its turn word, the high
///               half xor the checksum of bytes 64 to 135 and 144 to 4095 of the live header
///     48     4  number of times a turn was handed over: a waiting handle sleeps until it changes
///     52     4  reserved
///     56     8  when that close was, in nanoseconds of the system's monotonic clock
/// 64 * i     8  place i, from 1 to 62: pins on parity 0
///        +   8  8  pins on parity 1
///        +  16  8  process id of the owner, for messages
///        +  24  8  when the owner took it, in nanoseconds of the system's monotonic clock
///        +  32  8  the oldest moment to which a snapshot of the owner looks back: the log sequence number
///                  of a commit, plus 1; 0 for none
///        +  40  8  the most bytes that it may hold back
///        +  48  8  the commit before which the writer has given up all moments of the owner, by its
///                  log sequence number
///        +  56  8  reserved
///   4032     8  lookups of all handles that count them
///   4040     8  those that found their key
///   4048     8  records that they compared
///   4056     8  lines of the index that they read
///   4064     8  additions to these four that have begun
///   4072     8  additions that have ended
///   4080     8  when the counts began, in nanoseconds of the same clock
///   4088     4  handles that look up keys without a pin; those that were never closed count too
///   4092     4  the boot in which they registered, half of the system's id; 0 if there is none
/// ```
#[derive(Clone, Debug)]
pub(crate) struct ReaderTable {
    map: Arc<Reservation>,
    /// Offset of the table in the mapping.
    start: usize,
}

/// A place that has an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TakenPlace {
    pub(crate) place: usize,
    pub(crate) pid: u32,
    /// The time since the owner opened the file.
    pub(crate) age: Duration,
    /// Whether the owner has pins.
    pub(crate) is_pinned: bool,
}

/// A published moment of a reader: see [`moments`](crate::moments).
#[derive(Clone, Copy, Debug)]
pub(crate) struct PublishedMoment {
    place: usize,
    /// The last commit before it.
    pub(crate) since: u64,
    /// The most bytes that it may hold back.
    pub(crate) bytes_max: u64,
}

impl ReaderTable {
    /// Maps the table of a file.
    pub(super) fn map(file: &File, protection: Protection) -> io::Result<Self> {
        let part = Part { file, offset: READER_TABLE_OFFSET, protection };
        let map = Reservation::of_file(READER_TABLE_BYTES, part)?;
        Ok(Self { map: Arc::new(map), start: 0 })
    }

    /// Returns the table `start` bytes into a mapping. It must be mapped there for reading and
    /// writing before it is used.
    pub(super) fn within(map: Arc<Reservation>, start: u64) -> Self {
        assert!(start.is_multiple_of(GRANULE_BYTES));
        assert!(start + READER_TABLE_BYTES <= map.span().bytes);
        Self { map, start: start as usize }
    }

    fn span(&self) -> Span {
        let base = self.map.span().base.wrapping_add(self.start);
        Span { base, bytes: READER_TABLE_BYTES }
    }

    fn words(&self) -> &[AtomicU64; WORD_COUNT] {
        // SAFETY: the reservation, which `self` borrows, maps READER_TABLE_BYTES there, aligned to
        // a page; every process accesses the words only as atomics.
        unsafe { &*self.span().base.cast_const().cast() }
    }

    /// Returns the halves of a word on whose first half processes sleep. The word as a whole is
    /// only erased, by a handle that is alone.
    fn halves(&self, word: usize) -> &[AtomicU32; 2] {
        assert!(word == WANTED || word == HANDED);
        // SAFETY: the word stays mapped while `self` is borrowed, as in `words`, and is aligned to
        // 8. The word and its halves are accessed only as atomics, and never with two sizes at the
        // same time.
        unsafe { &*self.words()[word].as_ptr().cast_const().cast() }
    }

    fn sleepers(&self, word: usize) -> &AtomicU32 {
        &self.halves(word)[0]
    }

    /// Returns the flag that a handle has published a moment. The handle sets it before it drops
    /// the pin under which it has read the list of segments.
    fn has_moments(&self) -> &AtomicU32 {
        &self.halves(WANTED)[1]
    }

    pub(super) fn place(&self, place: usize) -> &[AtomicU64] {
        &self.words()[place * PLACE_WORDS..][..PLACE_WORDS]
    }

    /// Returns whether a store to the table is possible; `false` if it could raise a signal.
    fn can_be_stored_to(&self) -> bool {
        can_be_stored_to(self.span())
    }

    /// Erases the table, except for the count of glancing handles of this boot.
    fn forget_all(&self) {
        let (glancing, others) = self.words().split_last().expect("the table has words");
        let is_past = Glancing(glancing.load(Ordering::Relaxed)).is_of_other_boot();
        for word in others.iter().chain(is_past.then_some(glancing)) {
            // Avoid stores that change nothing, so that the page stays clean.
            if word.load(Ordering::Relaxed) != 0 {
                word.store(0, Ordering::Relaxed);
            }
        }
    }

    fn parity(&self) -> u64 {
        self.words()[PARITY].load(Ordering::Relaxed) & 1
    }

    /// Returns the places that have been taken since a writer was last alone.
    fn used_places(&self) -> std::ops::Range<usize> {
        1..self.used_count()
    }

    fn used_count(&self) -> usize {
        (self.words()[USED].load(Ordering::Relaxed) as usize).min(COUNTS_PLACE)
    }

    /// Returns the oldest moment of a place that counts, if it has one. If the published moment is
    /// evicted, that is the eviction mark: a younger moment of the same owner may begin there.
    fn moment(&self, place: usize) -> Option<PublishedMoment> {
        let words = self.place(place);
        let moment = words[MOMENT].load(Ordering::SeqCst);
        let since = (moment & !IS_MOMENT).max(words[EVICTED].load(Ordering::Relaxed));
        let bytes_max = words[MOMENT_BYTES].load(Ordering::Relaxed);
        (moment & IS_MOMENT != 0).then_some(PublishedMoment { place, since, bytes_max })
    }

    /// Returns the counter of moves whose copies do not name the original; odd during such a move.
    fn moves(&self) -> u64 {
        self.words()[MOVES].load(Ordering::SeqCst)
    }
}

/// The word of the table that identifies the last turn and says how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TurnWord(u64);

impl TurnWord {
    /// The last writer was a handle that does not take turns, or nobody knows.
    pub(crate) const NONE: Self = Self(0);
    const BUSY: u64 = 1;
    const NOT_CLEAN_DURABLY: u64 = 2;

    /// Returns the word of a turn that begins; `number` is random.
    pub(crate) fn begun(number: u64) -> Self {
        Self(number << 2 | Self::BUSY)
    }

    /// Returns the word of this turn at its end.
    pub(crate) fn ended(self, is_not_clean_durably: bool) -> Self {
        let durably = if is_not_clean_durably { Self::NOT_CLEAN_DURABLY } else { 0 };
        Self(self.0 & !(Self::BUSY | Self::NOT_CLEAN_DURABLY) | durably)
    }

    /// Returns whether the turn has ended, so that its handle has left the tables consistent.
    pub(crate) fn has_ended(self) -> bool {
        self != Self::NONE && self.0 & Self::BUSY == 0
    }

    /// Returns whether the superblock was durably "not clean" at the end of the turn.
    pub(crate) fn is_not_clean_durably(self) -> bool {
        self.has_ended() && self.0 & Self::NOT_CLEAN_DURABLY != 0
    }
}

/// The note that a handle leaves when it is closed in order after the last turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    pub(crate) turn: TurnWord,
    /// The checksum of the live header, which binds the note to the present tables.
    pub(crate) live_crc: u32,
    /// When the handle was closed, since the machine was started.
    pub(crate) at: Duration,
}

impl Left {
    /// Returns the word of the note.
    fn word(self) -> u64 {
        self.turn.0 ^ u64::from(self.live_crc) << 32
    }

    fn at_ns(self) -> u64 {
        self.at.as_nanos() as u64
    }
}

/// How long after an orderly close the tables are trusted without comparing them with the log.
const LEFT_MAX: Duration = Duration::from_secs(1);

/// The last turn before an open, and how its handle ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastWriter {
    pub(crate) turn: TurnWord,
    /// Whether its handle was closed in order, without another turn since.
    pub(crate) has_left: bool,
    /// Whether that was a moment ago.
    pub(crate) has_just_left: bool,
}

impl LastWriter {
    /// The last writer was a handle that does not take turns, or nobody knows.
    pub(crate) const UNKNOWN: Self =
        Self { turn: TurnWord::NONE, has_left: false, has_just_left: false };
}

/// Returns the file offset of a word of the head of the table.
const fn offset_of(word: usize) -> u64 {
    READER_TABLE_OFFSET + 8 * word as u64
}

/// Returns a word of the head of the table, or 0 if the file has no table.
fn word_of(storage: &dyn Storage, word: usize) -> u64 {
    if storage.file_bytes() < HEADER_BYTES {
        return 0;
    }
    u64_at(&storage.read(offset_of(word), 8), 0)
}

impl LastWriter {
    /// Returns the last turn of a file that nobody is changing, whose live header has this
    /// checksum.
    pub(crate) fn of(storage: &dyn Storage, live_crc: u32) -> Self {
        let word = |word| word_of(storage, word);
        let turn = read_turn(storage);
        let left = Left { turn, live_crc, at: Duration::from_nanos(word(LEFT_AT)) };
        let has_left = turn.has_ended() && word(LEFT) == left.word();
        let age = storage.since_boot().checked_sub(left.at);
        let has_just_left = has_left && age.is_some_and(|age| age <= LEFT_MAX);
        let is_trusted = turn != TurnWord::NONE && mutant::is_made(Mutant::TrustsLastTurns);
        Self { turn, has_left, has_just_left: has_just_left || is_trusted }
    }
}

/// Records that a writer that takes no turns has the file. Called before its first change, so that
/// handles by turns do not mistake its session, if it is killed, for a turn that has ended.
pub(crate) fn note_other_writer(storage: &dyn Storage) -> io::Result<()> {
    match read_turn(storage) {
        TurnWord::NONE => Ok(()),
        _ => write_turn(storage, TurnWord::NONE),
    }
}

/// Returns whether these bytes may be a table, as handles store it.
pub(crate) fn may_be_table(bytes: &[u8]) -> bool {
    let word = |number: usize| u64_at(bytes, 8 * number);
    let is_half = |number: usize| u32::try_from(word(number)).is_ok();
    let is_half_and_bit = |number: usize| word(number) >> 32 <= 1;
    let mut places = (1..COUNTS_PLACE).map(|place| place * PLACE_WORDS);
    let is_place = |first: usize| is_half(first + PID) && word(first + PLACE_WORDS - 1) == 0;
    word(USED) <= COUNTS_PLACE as u64
        && is_half_and_bit(WANTED)
        && is_half(HANDED)
        && places.all(is_place)
}

/// Returns the turn word, if the table is not mapped.
pub(crate) fn read_turn(storage: &dyn Storage) -> TurnWord {
    TurnWord(word_of(storage, TURN))
}

/// Stores the turn word, if the table is not mapped.
pub(crate) fn write_turn(storage: &dyn Storage, turn: TurnWord) -> io::Result<()> {
    storage.write_at(offset_of(TURN), &turn.0.to_le_bytes())
}

/// Stores the note of an orderly close, if the table is not mapped.
pub(crate) fn write_left(storage: &dyn Storage, left: Left) -> io::Result<()> {
    storage.write_at(offset_of(LEFT_AT), &left.at_ns().to_le_bytes())?;
    storage.write_at(offset_of(LEFT), &left.word().to_le_bytes())
}

/// Requests the writer's place for a handle that has not opened the store yet, and sleeps until it
/// is handed over, for at most `most`. Returns `false` at once if the file has no table.
pub(super) fn wait_for_hand_over(file: &File, most: Duration) -> bool {
    const WANTED_OFFSET: u64 = READER_TABLE_OFFSET + 8 * WANTED as u64;
    let Some(table) = table_of(file) else { return false };
    let seen = table.sleepers(HANDED).load(Ordering::SeqCst);
    let wanted = table.sleepers(WANTED);
    // Use `write`: the block has not been claimed for stores through this mapping.
    if wanted.load(Ordering::SeqCst) == 0
        && file.write_all_at(&1_u32.to_le_bytes(), WANTED_OFFSET).is_err()
    {
        return false;
    }
    futex::wake(wanted, u32::MAX);
    futex::wait(table.sleepers(HANDED), seen, most);
    true
}

/// Sleeps until the writer's place of a file is handed over, for at most `most`.
pub(super) fn sleep_until_handed_over(file: &File, most: Duration) {
    match table_of(file) {
        Some(table) => {
            let word = table.sleepers(HANDED);
            futex::wait(word, word.load(Ordering::SeqCst), most);
        }
        None => std::thread::sleep(most),
    }
}

/// Maps the table of a file for reading, if the file is a store.
fn table_of(file: &File) -> Option<ReaderTable> {
    let has_table = Status::of(file).is_ok_and(|found| found.bytes >= HEADER_BYTES);
    let mut magic = [0; 8];
    let is_read = has_table && file.read_exact_at(&mut magic, LIVE_OFFSET).is_ok();
    // Never write to a file that is not a store.
    let is_store = is_read && u64_at(&magic, 0) == LIVE_MAGIC;
    is_store.then(|| ReaderTable::map(file, Protection::Read).ok()).flatten()
}

/// Returns whether a handle may be glancing (reading without a pin) since before the caller
/// announced that it changes the file. Such a glance may read any byte of the file as it was then.
pub(crate) fn is_glanced_at(storage: &dyn Storage) -> bool {
    const OFFSET: u64 = READER_TABLE_OFFSET + 8 * (COUNTS_PLACE * PLACE_WORDS + GLANCING) as u64;
    // A handle that registers to glance after this load sees the turn word, and does not glance.
    fence(Ordering::SeqCst);
    // A container may have a boot id of its own, so those of another boot count as well.
    let glancing = Glancing(u64_at(&storage.read(OFFSET, 8), 0));
    glancing.count() > 0 && !mutant::is_made(Mutant::CutsUnderGlances)
}

/// A registration of this handle to glance (read without a pin): the process that registered, and
/// the boot in which it is counted.
#[derive(Clone, Copy, Debug)]
struct Glances {
    origin: Origin,
    boot: u32,
}

/// The number of registered glancing handles, and the boot in which they registered.
#[derive(Clone, Copy)]
struct Glancing(u64);

impl Glancing {
    fn new(boot: u32, count: u32) -> Self {
        Self(u64::from(boot) << 32 | u64::from(count))
    }

    fn count(self) -> u32 {
        self.0 as u32
    }

    fn boot(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Returns whether the count is of another boot and so may be erased. Handles in a container
    /// that has a boot id of its own notice that they are no longer counted.
    fn is_of_other_boot(self) -> bool {
        self.count() > 0 && boot_of(boot_id()).is_some_and(|boot| boot != self.boot())
    }
}

/// Returns half of the id of a boot, if the system has one.
fn boot_of(id: [u8; 16]) -> Option<u32> {
    let half = u32::from_le_bytes(*id.first_chunk().expect("it has 16 bytes"));
    (id != [0; 16]).then_some(half)
}

/// A copy of the table. It is read with `pread` and not through a mapping: an access to a new
/// mapping of a file whose file system has failed may raise a signal.
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
        let used_count = (self.0[USED] as usize).min(COUNTS_PLACE);
        let taken = (1..used_count).filter(has_owner).map(|place| {
            let words = &self.0[place * PLACE_WORDS..][..PLACE_WORDS];
            TakenPlace {
                place,
                pid: words[PID] as u32,
                age: Duration::from_nanos(now_ns.saturating_sub(words[SINCE])),
                is_pinned: words[..2].iter().chain([&words[MOMENT]]).any(|&count| count != 0),
            }
        });
        taken.collect()
    }
}

/// The readers of other processes, as seen by the writing process.
#[derive(Debug)]
pub(crate) struct OtherReaders {
    file: Arc<OwnFile>,
    /// The table, mapped with the live header, or when the writer first wants to reuse space.
    table: OnceLock<ReaderTable>,
    /// Whether other handles had the file open when this one opened it.
    were_there: AtomicBool,
    /// Whether the blocks of the table are allocated, so that a store to it, by any process, cannot
    /// fault.
    has_room: bool,
    /// The registration to glance, made at the first glance; `None` inside if this handle may not
    /// glance.
    glances: OnceLock<Option<Glances>>,
    /// Whether this handle has learned the size of the file since it registered to glance.
    has_seen_size: AtomicBool,
    /// The last known living reader among those with the oldest moment, and among those with a pin.
    looking_back: LastAlive,
    pinning: LastAlive,
}

/// The reader that was alive when the kernel was last asked: its place, the moment or parity with
/// which it holds space back, and for how many more checks it counts as alive before the kernel is
/// asked again. Used only by a thread that holds the writer's lock.
#[derive(Debug, Default)]
struct LastAlive {
    place: AtomicU64,
    hold: AtomicU64,
    looks_left: AtomicU64,
}

/// How many times a reader that holds space back is taken for alive without asking the kernel,
/// which costs a system call, whereas compaction checks once in 16 changes. A killed process
/// therefore holds space back for that many checks longer; [`OtherReaders::ask_again`] cuts this
/// short where space is needed at once.
const LOOKS_UNTIL_ASKED: u64 = 64;

impl LastAlive {
    fn place(&self) -> usize {
        self.place.load(Ordering::Relaxed) as usize
    }

    /// Returns whether a reader is alive; `ask` asks the kernel.
    fn is_alive(&self, place: usize, hold: u64, ask: impl FnOnce() -> bool) -> bool {
        let place = place as u64;
        let looks_left = self.looks_left.load(Ordering::Relaxed);
        let is_same = self.place.load(Ordering::Relaxed) == place
            && self.hold.load(Ordering::Relaxed) == hold;
        if is_same && looks_left > 0 {
            self.looks_left.store(looks_left - 1, Ordering::Relaxed);
            return true;
        }
        let is_alive = ask();
        self.place.store(place, Ordering::Relaxed);
        self.hold.store(hold, Ordering::Relaxed);
        self.looks_left.store(if is_alive { LOOKS_UNTIL_ASKED } else { 0 }, Ordering::Relaxed);
        is_alive
    }
}

impl OtherReaders {
    /// Watches the readers of a file that this handle has locked for writing. `has_room` tells that
    /// the blocks of the table are allocated; `table` is the table, if the handle has it mapped.
    pub(super) fn of(file: Arc<OwnFile>, has_room: bool, table: Option<ReaderTable>) -> Self {
        let table = table.map_or_else(OnceLock::new, OnceLock::from);
        let glances = OnceLock::new();
        let [were_there, has_seen_size] = [(); 2].map(|()| AtomicBool::new(false));
        let [looking_back, pinning] = [(); 2].map(|()| LastAlive::default());
        Self { file, table, were_there, has_room, glances, has_seen_size, looking_back, pinning }
    }

    /// Maps the table unless it is mapped already. Fails if the process has no address space left.
    fn table(&self) -> io::Result<&ReaderTable> {
        if let Some(table) = self.table.get() {
            return Ok(table);
        }
        let table = ReaderTable::map(&self.file, Protection::ReadWrite)?;
        Ok(self.table.get_or_init(|| table))
    }

    /// Erases all readers from the table, but keeps the count of the handles that glance in this
    /// boot, which hold no lock. For a handle that is alone; `is_mapped` tells that the handle
    /// needs the table mapped anyway.
    pub(crate) fn forget_all(&self, is_mapped: bool) -> io::Result<()> {
        if is_mapped && self.has_room {
            return self.table().map(ReaderTable::forget_all);
        }
        let zeros = [0; READER_TABLE_BYTES as usize];
        let mut table = zeros;
        self.file.read_exact_at(&mut table, READER_TABLE_OFFSET)?;
        let last = zeros.len() - 8;
        let is_past = Glancing(u64_at(&table, last)).is_of_other_boot();
        let erased = if is_past { zeros.len() } else { last };
        if table[..erased] == zeros[..erased] {
            return Ok(());
        }
        self.file.write_all_at(&zeros[..erased], READER_TABLE_OFFSET)
    }

    /// Notes that there may be readers that have not registered in the table yet.
    ///
    /// Also ends a move that a killed process had begun.
    pub(crate) fn expect_readers(&self) -> io::Result<()> {
        self.table()?.words()[USED].fetch_max(1, Ordering::SeqCst);
        self.were_there.store(true, Ordering::Relaxed);
        self.end_move();
        Ok(())
    }

    /// From now on, copies name their originals: this handle is about to look back, with or without
    /// a place in the table. The caller has already marked the file as in use.
    pub(crate) fn expect_lookers_back(&self) -> io::Result<()> {
        self.table()?.words()[USED].fetch_max(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// Returns whether any reader may look back to a moment. It also covers readers that have
    /// looked back and whose pins the caller has seen dropped.
    pub(crate) fn may_look_back(&self) -> bool {
        fence(Ordering::SeqCst);
        self.table().map_or(true, |table| table.has_moments().load(Ordering::SeqCst) != 0)
    }

    /// Returns the oldest moment that a living reader looks back to, or a reader that was alive at
    /// the last question to the kernel ([`LOOKS_UNTIL_ASKED`]). For a thread that holds the
    /// writer's lock.
    pub(crate) fn oldest_moment(&self) -> Option<PublishedMoment> {
        // Without the table the readers are unknown, so no space may be reused.
        let unknown = PublishedMoment { place: 0, since: 0, bytes_max: u64::MAX };
        let Ok(table) = self.table() else { return Some(unknown) };
        // Check one shared word first: readers store to the cache lines of their places at each
        // lookup, so reading those is expensive.
        if table.has_moments().load(Ordering::SeqCst) == 0 {
            return None;
        }
        loop {
            let moments = table.used_places().filter_map(|place| table.moment(place));
            let oldest = moments.min_by_key(|moment| moment.since)?;
            let PublishedMoment { place, since, .. } = oldest;
            if self.looking_back.is_alive(place, since, || self.has_owner(table, place)) {
                return Some(oldest);
            }
        }
    }

    /// Makes the next check ask the kernel whether the readers that hold space back are alive. For
    /// a caller that needs space at once.
    pub(crate) fn ask_again(&self) {
        for alive in [&self.looking_back, &self.pinning] {
            alive.looks_left.store(0, Ordering::Relaxed);
        }
    }

    /// Evicts a moment, and all moments of the same reader before the commit `until`.
    pub(crate) fn evict(&self, moment: &PublishedMoment, until: u64) {
        if let Ok(table) = self.table() {
            table.place(moment.place)[EVICTED].store(until, Ordering::SeqCst);
            fence(Ordering::SeqCst);
        }
    }

    /// Returns whether other handles had the file open when this one opened it.
    pub(crate) fn were_there(&self) -> bool {
        self.were_there.load(Ordering::Relaxed)
    }

    /// Returns the turn word: which handle had the last turn, and how the turn ended.
    pub(crate) fn turn(&self) -> io::Result<TurnWord> {
        Ok(TurnWord(self.table()?.words()[TURN].load(Ordering::Acquire)))
    }

    /// Publishes which handle has the turn, or had the last one.
    pub(crate) fn set_turn(&self, turn: TurnWord) -> io::Result<()> {
        self.table()?.words()[TURN].store(turn.0, Ordering::Release);
        may_be_killed();
        // A glance that reads anything stored after this fence also sees, in `is_unchanged`, that
        // this turn has begun.
        fence(Ordering::Release);
        Ok(())
    }

    /// Notes that this handle is closed in order, if it had the last turn: see
    /// [`LastWriter::has_just_left`].
    pub(crate) fn note_left(&self, left: Left) {
        let Some(table) = self.table.get().filter(|_| self.is_table_there()) else { return };
        // A handle that has changed the live header meanwhile began a turn before: the load below
        // then sees its turn word.
        fence(Ordering::Acquire);
        let is_last = left.turn.has_ended() && self.turn().is_ok_and(|last| last == left.turn);
        if is_last && table.can_be_stored_to() {
            table.words()[LEFT_AT].store(left.at_ns(), Ordering::Relaxed);
            table.words()[LEFT].store(left.word(), Ordering::Release);
        }
    }

    /// Begins a glance (a read without a pin), unless a handle has the turn. What the glance finds
    /// is valid only if [`is_unchanged`](Self::is_unchanged) returns `true` afterwards. Before the
    /// first glance, `see_size` must learn the size of the file, and returns whether it could.
    #[inline]
    pub(crate) fn glance(&self, see_size: impl FnOnce() -> bool) -> Option<TurnWord> {
        let begun = (*self.glances.get_or_init(|| self.begin_glancing()))?;
        if !begun.origin.is_here() {
            return None;
        }
        let turn = self.turn().ok().filter(|turn| turn.has_ended())?;
        // A handle that erases the count does so before the turn that was read above, and the load
        // below sees it, or after that turn, and `is_unchanged` fails.
        let glancing =
            Glancing(self.table().ok()?.place(COUNTS_PLACE)[GLANCING].load(Ordering::Relaxed));
        if glancing.boot() != begun.boot || glancing.count() == 0 {
            return None;
        }
        // A handle that truncated the file without seeing this handle in the count did so before
        // that turn, so the size that is read now is the size after the cut.
        if !self.has_seen_size.load(Ordering::Acquire) {
            if !see_size() {
                return None;
            }
            self.has_seen_size.store(true, Ordering::Release);
        }
        Some(turn)
    }

    /// Returns whether no handle has begun a turn since [`glance`](Self::glance) returned `since`.
    #[inline]
    pub(crate) fn is_unchanged(&self, since: TurnWord) -> bool {
        fence(Ordering::Acquire);
        self.turn().is_ok_and(|turn| turn == since) || mutant::is_made(Mutant::TrustsGlances)
    }

    /// Registers this handle as glancing until it is dropped. Returns `None` where the registration
    /// could never be recognized as past (the system has no boot id), or where a store to the table
    /// may raise a signal.
    #[cold]
    fn begin_glancing(&self) -> Option<Glances> {
        let boot = boot_of(boot_id()).filter(|_| self.has_room)?;
        let table = self.table().ok().filter(|table| table.can_be_stored_to())?;
        let one_more = |found| {
            let found = Glancing(found);
            let is_of_other_boot = found.count() > 0 && found.boot() != boot;
            // The retries are bounded: only handles that register at the same moment compete, at
            // most as many as there are processes.
            (!is_of_other_boot).then(|| Glancing::new(boot, found.count().saturating_add(1)).0)
        };
        let glancing = &table.place(COUNTS_PLACE)[GLANCING];
        glancing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).ok()?;
        fence(Ordering::SeqCst);
        Some(Glances { origin: Origin::here(), boot })
    }

    /// Returns whether the table is still in the file: the program may have closed the descriptor
    /// or truncated the file.
    fn is_table_there(&self) -> bool {
        let found = self.file.checked().and_then(Status::of);
        found.is_ok_and(|found| found.bytes >= HEADER_BYTES)
    }

    /// Withdraws the registration of this handle to glance.
    fn end_glancing(&self) {
        let (Some(Some(begun)), Some(table)) = (self.glances.get(), self.table.get()) else {
            return;
        };
        if !begun.origin.is_here() || !self.is_table_there() || !table.can_be_stored_to() {
            return;
        }
        let one_less = |found| {
            let is_own = Glancing(found).boot() == begun.boot && Glancing(found).count() > 0;
            is_own.then(|| found - 1)
        };
        let glancing = &table.place(COUNTS_PLACE)[GLANCING];
        let _ = glancing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less);
    }

    /// Returns whether a handle waits for its turn, or did when it was killed.
    #[inline]
    pub(crate) fn is_turn_wanted(&self) -> bool {
        self.table().is_ok_and(|table| table.sleepers(WANTED).load(Ordering::Relaxed) != 0)
    }

    /// Notes that a handle waits for its turn, and wakes the handle that keeps the writer's place.
    pub(crate) fn want_turn(&self) {
        let Ok(table) = self.table() else { return };
        if table.sleepers(WANTED).swap(1, Ordering::SeqCst) == 0 {
            futex::wake(table.sleepers(WANTED), u32::MAX);
        }
        may_be_killed();
    }

    /// Sleeps until a handle waits for its turn, for at most `most`; returns whether one does.
    pub(crate) fn wait_until_wanted(&self, most: Duration) -> bool {
        let Ok(table) = self.table() else { return false };
        futex::wait(table.sleepers(WANTED), 0, most);
        self.is_turn_wanted()
    }

    /// Ends every [`wait_until_wanted`](Self::wait_until_wanted), in this process and in others.
    pub(crate) fn wake_keepers(&self) {
        if let Ok(table) = self.table() {
            futex::wake(table.sleepers(WANTED), u32::MAX);
        }
    }

    /// Returns a number that changes when the place of the writer is handed over.
    pub(crate) fn handed(&self) -> u32 {
        self.table().map_or(0, |table| table.sleepers(HANDED).load(Ordering::SeqCst))
    }

    /// Wakes one handle that waits for the writer's place, which the caller has just given up;
    /// returns whether one was asleep. Waiters that are not asleep notice that
    /// [`handed`](Self::handed) has changed.
    pub(crate) fn hand_over(&self) -> bool {
        let Ok(table) = self.table() else { return false };
        let wanted = table.sleepers(WANTED);
        // Handles that begin to wait from now on set the flag again.
        wanted.store(0, Ordering::SeqCst);
        may_be_killed();
        table.sleepers(HANDED).fetch_add(1, Ordering::SeqCst);
        may_be_killed();
        let is_woken = futex::wake(table.sleepers(HANDED), 1) > 0;
        if is_woken {
            // More handles may be asleep.
            wanted.store(1, Ordering::SeqCst);
        }
        is_woken
    }

    /// Sleeps until the writer's place is handed over, for at most `most`; returns at once if it
    /// was handed over since [`handed`](Self::handed) returned `seen`.
    pub(crate) fn wait_for_hand_over(&self, seen: u32, most: Duration) {
        match self.table() {
            Ok(table) => futex::wait(table.sleepers(HANDED), seen, most),
            Err(_) => std::thread::sleep(most),
        }
    }

    /// Begins to move records, and returns whether their copies must name the originals because a
    /// reader may be scanning. If this returns `false`, a reader that registers during the move
    /// waits until it ends.
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

    /// Returns the cost of the lookups of all handles that count theirs.
    pub(crate) fn shared_lookups(&self) -> io::Result<SharedLookups> {
        Ok(shared_counts::read(self.table()?, &self.file))
    }

    /// Returns the places that have an owner.
    pub(crate) fn taken_places(&self) -> Vec<TakenPlace> {
        // If the table cannot be read, no owner is known.
        Snapshot::of(&self.file).map(|table| table.taken_places(&self.file)).unwrap_or_default()
    }

    /// Returns whether a reader without a place has a pin on a parity.
    fn is_byte_locked(&self, parity: u64) -> bool {
        // After an error assume a reader: space that may still be read is never reused.
        byte_locks::is_locked(&self.file, LockByte::pin(parity)).unwrap_or(true)
    }

    /// Returns whether a place has an owner; if it has none, erases the counts that the last owner
    /// left.
    fn has_owner(&self, table: &ReaderTable, place: usize) -> bool {
        let byte = LockByte::place(place);
        // An owner about which the kernel cannot be asked counts as alive.
        let is_left = byte_locks::try_lock(&self.file, byte, LockKind::Exclusive).unwrap_or(false);
        let is_owned = !is_left && !mutant::is_made(Mutant::ErasesLivingPlaces)
            || mutant::is_made(Mutant::SparesDeadPlaces);
        if !is_owned {
            for word in table.place(place) {
                word.store(0, Ordering::Relaxed);
                may_be_killed();
            }
        }
        if is_left {
            // After an error the byte stays locked until this handle is closed; readers then take
            // other places.
            let _ = byte_locks::unlock(&self.file, byte);
        }
        is_owned
    }

    /// Returns whether no reader counts on a parity. One living reader is enough to hold back all
    /// space of the parity, so the search stops at the first.
    fn is_clear(&self, parity: u64) -> bool {
        let Ok(table) = self.table() else { return false };
        if mutant::is_made(Mutant::OverlooksPins) {
            return true;
        }
        let parity = parity & 1;
        let is_counted = |&place: &usize| {
            table.place(place)[parity as usize].load(Ordering::Acquire) != 0
                && self.pinning.is_alive(place, parity, || self.has_owner(table, place))
        };
        // Begin with the reader that the kernel was last asked about: it is likely to be still
        // there, preempted or stopped, and while it does not run, it stores to no cache line that
        // this check would have to fetch again.
        let last = Some(self.pinning.place()).filter(|place| table.used_places().contains(place));
        !last.into_iter().chain(table.used_places()).any(|place| is_counted(&place))
            && !self.is_byte_locked(parity)
    }
}

impl Drop for OtherReaders {
    fn drop(&mut self) {
        self.end_glancing();
    }
}

impl Elsewhere for Arc<OtherReaders> {
    fn flip(&self) {
        // The check before the flip has mapped the table.
        if let Some(table) = self.table.get() {
            table.words()[PARITY].store(table.parity() ^ 1, Ordering::Relaxed);
            may_be_killed();
        }
    }

    fn is_clear_behind(&self) -> bool {
        self.table().is_ok_and(|table| self.is_clear(table.parity() ^ 1))
    }

    fn is_pinned(&self) -> bool {
        let is_counted =
            |table: Snapshot| table.taken_places(&self.file).iter().any(|taken| taken.is_pinned);
        // If the table cannot be read, assume a pin.
        Snapshot::of(&self.file).map_or(true, is_counted)
            || self.is_byte_locked(0)
            || self.is_byte_locked(1)
    }
}

/// The means by which a reader of this process pins.
#[derive(Debug)]
pub(crate) struct Seat {
    seated: Arc<Seated>,
    /// The pins on each parity.
    pins: [PinCount; 2],
}

/// The registration of a reader, with a place in the table or without.
#[derive(Debug)]
struct Seated {
    origin: Origin,
    /// A description of its own, which holds the locks. A child of a fork shares the description of
    /// its parent and so needs another.
    file: OwnFile,
    table: ReaderTable,
    kind: SeatKind,
    moments: Mutex<Moments>,
}

/// The moments that this process looks back to from a place, in order, and the number of the next.
#[derive(Debug, Default)]
struct Moments {
    /// The open moments by commit and number, with the bytes that each may hold back.
    open: BTreeMap<(u64, u64), u64>,
    next_number: u64,
}

/// A moment published to the writer until this is dropped.
#[derive(Debug)]
pub(crate) struct OpenMoment {
    seated: Arc<Seated>,
    place: usize,
    key: (u64, u64),
}

impl OpenMoment {
    /// Returns whether the writer has evicted the moment. Ask after taking a pin, and again if the
    /// result depends on something *not* having been found.
    #[inline]
    pub(crate) fn is_evicted(&self) -> bool {
        self.seated.table.place(self.place)[EVICTED].load(Ordering::SeqCst) > self.key.0
    }
}

impl Drop for OpenMoment {
    fn drop(&mut self) {
        // In a child of a fork the moment belongs to the parent.
        if self.seated.origin.is_here() {
            let mut moments = lock(&self.seated.moments);
            moments.open.remove(&self.key);
            self.seated.publish(self.place, &moments);
        }
    }
}

#[derive(Debug)]
enum SeatKind {
    /// A place in the table.
    Place(usize),
    /// The bytes of the two parities, with the pins on each.
    Bytes(Mutex<[u64; 2]>),
    /// The bytes of the two parities and the presence byte, locked only while anything is pinned.
    PerCall(Mutex<[u64; 2]>),
}

impl Seat {
    /// Takes a seat at a file that this process has open, with a place if one is wanted and free.
    /// Without a place nothing is written to the file.
    ///
    /// # Errors
    ///
    /// Those of the system; [`io::ErrorKind::WouldBlock`] if an exclusive handle is open.
    pub(super) fn take(
        file: &OwnFile,
        path: &Path,
        wants_place: bool,
        claims: &Claims,
        table: Option<&ReaderTable>,
    ) -> io::Result<Self> {
        let mapped = |file: &File| match table {
            Some(table) => Ok(table.clone()),
            None => ReaderTable::map(file, Protection::ReadWrite),
        };
        if wants_place
            && let Ok(file) = own_again(file, path, File::options().read(true).write(true))
            && can_store_to_table(&file, claims)
            && let Ok(table) = mapped(&file)
        {
            note_presence(&file)?;
            let place = take_place(&file, &table);
            let used_count = place.map_or(1, |place| place as u64 + 1);
            table.words()[USED].fetch_max(used_count, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            may_be_killed();
            let kind = place.map_or_else(|| SeatKind::Bytes(Mutex::default()), SeatKind::Place);
            let seat = Self::new(file, table, kind);
            seat.wait_for_move();
            return Ok(seat);
        }
        let file = own_again(file, path, File::options().read(true))?;
        note_presence(&file)?;
        let table = ReaderTable::map(&file, Protection::Read)?;
        let kind = SeatKind::Bytes(Mutex::default());
        Ok(Self::new(file, table, kind))
    }

    /// Takes a seat that holds no lock while nothing is pinned.
    pub(super) fn take_per_call(
        file: &OwnFile,
        path: &Path,
        table: Option<&ReaderTable>,
    ) -> io::Result<Self> {
        let file = own_again(file, path, File::options().read(true))?;
        let table = match table {
            Some(table) => table.clone(),
            None => ReaderTable::map(&file, Protection::Read)?,
        };
        Ok(Self::new(file, table, SeatKind::PerCall(Mutex::default())))
    }

    fn new(file: OwnFile, table: ReaderTable, kind: SeatKind) -> Self {
        let (origin, moments) = (Origin::here(), Mutex::default());
        let seated = Arc::new(Seated { origin, file, table, kind, moments });
        let pins = [0, 1].map(|parity| PinCount::seen(Box::new(SeatPins(seated.clone(), parity))));
        Self { seated, pins }
    }

    /// Returns whether the seat belongs to this process, and not to one from which it was forked.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.seated.origin.is_here()
    }

    /// Returns whether the seat has a place, so that a pin costs no system call.
    pub(crate) fn has_place(&self) -> bool {
        matches!(self.seated.kind, SeatKind::Place(_))
    }

    /// Returns whether a pin holds a lock for which others may wait.
    pub(crate) fn is_per_call(&self) -> bool {
        matches!(self.seated.kind, SeatKind::PerCall(_))
    }

    /// Opens a moment at the commit `since`, which may hold back `bytes_max` bytes. The caller must
    /// have held a pin since before it loaded that commit. Returns `None` without a place.
    pub(crate) fn open_moment(&self, since: u64, bytes_max: u64) -> Option<OpenMoment> {
        let SeatKind::Place(place) = self.seated.kind else { return None };
        let mut moments = lock(&self.seated.moments);
        let key = (since, moments.next_number);
        moments.next_number += 1;
        moments.open.insert(key, bytes_max);
        let has_moments = self.seated.table.has_moments();
        if has_moments.load(Ordering::Relaxed) == 0 && !mutant::is_made(Mutant::HidesMoments) {
            has_moments.store(1, Ordering::SeqCst);
            may_be_killed();
        }
        self.seated.publish(place, &moments);
        Some(OpenMoment { seated: self.seated.clone(), place, key })
    }

    /// Waits for the end of a move that may not have seen this reader register. The wait is
    /// bounded, since the writer may be stopped.
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

    /// Returns [`unnamed_moves`](Self::unnamed_moves) once no move is in progress, or after a
    /// bounded wait if the writer is stopped.
    pub(crate) fn moves_that_are_over(&self) -> u64 {
        self.wait_for_move();
        self.unnamed_moves()
    }

    /// Returns a number that changes whenever records are moved by copies that do not name their
    /// originals; odd during such a move, or if the writer was killed during one.
    pub(crate) fn unnamed_moves(&self) -> u64 {
        self.seated.table.moves()
    }

    /// Returns who had the last turn, and how it ended.
    pub(crate) fn last_turn(&self) -> TurnWord {
        TurnWord(self.seated.table.words()[TURN].load(Ordering::Acquire))
    }

    /// Returns what the lookups of all handles that count have cost.
    pub(crate) fn shared_lookups(&self) -> SharedLookups {
        shared_counts::read(&self.seated.table, &self.seated.file)
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
                    lock_shared(&self.seated.file, LockByte::pin(parity))?;
                }
                counts[parity as usize] += 1;
            }
            SeatKind::PerCall(counts) => {
                let mut counts = lock(counts);
                let is_first = *counts == [0; 2];
                if is_first {
                    // A program may have closed the descriptor.
                    lock_shared(self.seated.file.checked()?, LockByte::PRESENCE)?;
                }
                if counts[parity as usize] == 0 {
                    let locked = lock_shared(&self.seated.file, LockByte::pin(parity));
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

    /// Publishes the oldest of the moments in a place.
    fn publish(&self, place: usize, moments: &Moments) {
        let words = self.table.place(place);
        let oldest = moments.open.first_key_value();
        // Publish the largest bound of the place: an eviction mark evicts all moments of the place
        // before it, so it may only pass what the largest bound does not cover.
        if let Some(&bytes_max) = moments.open.values().max() {
            words[MOMENT_BYTES].store(bytes_max, Ordering::Relaxed);
        }
        let word = oldest.map_or(0, |(&(since, _), _)| since | IS_MOMENT);
        words[MOMENT].store(word, Ordering::SeqCst);
        may_be_killed();
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        // Closing the file would unlock its bytes, unless a child of a fork has it open.
        if self.origin.is_here()
            && let Ok(file) = self.file.checked()
        {
            let _ = byte_locks::unlock_all(file);
            self.file.trust();
        }
    }
}

/// Opens a file that this process has open once more, whatever its name is now.
pub(super) fn open_again(file: &File, path: &Path, options: &OpenOptions) -> io::Result<OtherFile> {
    let status = Status::of(file)?;
    let again = open_by_descriptor(file, path, options)?;
    let found = Status::of(&again)?;
    let again = OtherFile::new(again, &found);
    if found.is_same_file(&status) { Ok(again) } else { Err(has_no_name()) }
}

/// As [`open_again`], for a file of this handle, to get a description of its own.
fn own_again(file: &OwnFile, path: &Path, options: &OpenOptions) -> io::Result<OwnFile> {
    let again = file.again(open_by_descriptor(file, path, options)?)?;
    if again.is_same(file) { Ok(again) } else { Err(has_no_name()) }
}

fn open_by_descriptor(file: &File, path: &Path, options: &OpenOptions) -> io::Result<File> {
    let same = format!("/proc/self/fd/{}", file.as_raw_fd());
    options.open(same).or_else(|_| options.open(path))
}

fn has_no_name() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "another file has the name now")
}

/// Locks the presence byte: the file is in use, and stays so when the handle of a parent process is
/// closed.
fn note_presence(file: &File) -> io::Result<()> {
    lock_shared(file, LockByte::PRESENCE)
}

/// Locks a byte, or returns an error if an exclusive handle, or a program that has locked the whole
/// file, is in the way.
fn lock_shared(file: &File, byte: LockByte) -> io::Result<()> {
    if byte_locks::try_lock(file, byte, LockKind::Shared)? || mutant::is_made(Mutant::ReadsUnpinned)
    {
        return Ok(());
    }
    Err(io::ErrorKind::WouldBlock.into())
}

/// Returns whether the last writer was killed while it moved records by copies that do not name
/// their originals. The caller knows that there is no writer now.
pub(crate) fn is_left_moving(storage: &dyn Storage) -> bool {
    let moves = storage.read(READER_TABLE_OFFSET + 8 * MOVES as u64, 8);
    u64_at(&moves, 0) & 1 == 1
}

/// Returns whether the last handle that opened the file to write takes turns, or took them.
pub(crate) fn has_turns(storage: &dyn Storage) -> bool {
    let turn = storage.read(READER_TABLE_OFFSET + 8 * TURN as u64, 8);
    TurnWord(u64_at(&turn, 0)) != TurnWord::NONE
}

/// Takes the first place that has no owner.
fn take_place(file: &File, table: &ReaderTable) -> Option<usize> {
    let is_taken = |place: &usize| {
        let byte = LockByte::place(*place);
        byte_locks::try_lock(file, byte, LockKind::Exclusive).unwrap_or(false)
            || mutant::is_made(Mutant::TakesTakenPlace)
    };
    let place = (1..COUNTS_PLACE).find(is_taken)?;
    let words = table.place(place);
    // Erase the counts and the moment of the last owner.
    for word in words {
        word.store(0, Ordering::Relaxed);
        may_be_killed();
    }
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
        // Pins that a child of a fork has inherited belong to the parent.
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
                    // Ignore an error: a lock that stays only holds space back until the handle is
                    // closed.
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

fn lock<T>(words: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while they were locked cannot have left them inconsistent: each statement on them
    // keeps them valid.
    words.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the time of the system's monotonic clock, which all processes share.
pub(crate) fn since_boot() -> Duration {
    // Miri does not support the call.
    if cfg!(miri) { Duration::ZERO } else { Duration::from_nanos(since_boot_ns()) }
}

/// Returns the readers that have a place in the table of a file, except the one of this
/// description.
pub(super) fn taken_places(file: &File) -> Vec<TakenPlace> {
    Snapshot::of(file).map(|table| table.taken_places(file)).unwrap_or_default()
}

/// Returns the nanoseconds since some moment of this boot.
pub(super) fn since_boot_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}

#[cfg(all(test, not(loom), not(miri)))]
pub(super) mod tests {
    use super::super::writer_byte::{Claim, Exclusion};
    use super::*;

    /// Returns whether a handle with this description could change the file.
    pub(in super::super) fn is_free_to_write(file: &File) -> bool {
        let byte = LockByte::WRITER;
        let is_free = byte_locks::try_lock(file, byte, LockKind::Exclusive).expect("it is asked");
        byte_locks::unlock(file, byte).expect("nothing fails");
        is_free
    }

    fn take(file: &File) -> Seat {
        let own = OwnFile::new(file.try_clone().expect("nothing fails")).expect("nothing fails");
        let seat = Seat::take(&own, Path::new("/"), true, &Claims::default(), None);
        seat.expect("it is open already")
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
        let others = Arc::new(OtherReaders::of(file.clone(), true, None));
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
        assert_eq!(others.taken_places().len(), COUNTS_PLACE - 1);
        let (pin, second) = (last.pin().unwrap(), last.pin().unwrap());
        assert!(!others.is_clear(0));
        drop(pin);
        assert!(!others.is_clear(0));
        drop(second);
        assert!(others.is_clear(0));
    }

    #[test]
    fn a_seat_leaves_this_process_its_claims() {
        let Fixture { _dir, file, .. } = fixture();
        let path = Path::new("/");
        let claim = Claim::take(&file, Exclusion::Writers).unwrap().unwrap();
        let looking = open_again(&file, path, File::options().read(true).write(true)).unwrap();
        let is_kept = || !is_free_to_write(&looking);
        assert!(is_kept());
        for claims in [Claims::default(), Claims::without_room()] {
            let seat = Seat::take(&file, path, true, &claims, None).unwrap();
            assert!(is_kept(), "a place, or a description to take it by that was closed");
            drop(seat);
            assert!(is_kept(), "a seat that was given up");
        }
        drop(Seat::take_per_call(&file, path, None).unwrap());
        assert!(is_kept(), "a seat by turns");
        drop(claim);
        assert!(is_free_to_write(&looking));
    }

    #[test]
    fn a_pin_that_cannot_be_had_is_an_error() {
        let Fixture { _dir, file, others } = fixture();
        let seat = Seat::take_per_call(&file, Path::new("/"), None).unwrap();
        let pin = || seat.pin().map(drop).map_err(|error| error.kind());
        for byte in [LockByte::pin(0), LockByte::PRESENCE] {
            assert!(byte_locks::try_lock(&file, byte, LockKind::Exclusive).unwrap());
            assert_eq!(pin(), Err(io::ErrorKind::WouldBlock));
            assert_eq!(mutant::with(Mutant::ReadsUnpinned, pin), Ok(()));
            byte_locks::unlock(&file, byte).unwrap();
            // The other lock is gone.
            assert!(byte_locks::try_lock(&file, LockByte::PRESENCE, LockKind::Exclusive).unwrap());
            byte_locks::unlock_all(&file).unwrap();
        }
        assert_eq!(pin(), Ok(()));
        assert!(!others.is_pinned());
    }

    #[test]
    fn what_an_owner_without_a_lock_has_counted_is_erased() {
        let Fixture { _dir, file, others } = fixture();
        let seat = take(&file);
        std::mem::forget(seat.pin().unwrap());
        assert!(!others.is_clear(0));
        // As if its process were killed.
        drop(seat);
        assert!(!others.is_clear(0), "not every look asks the kernel");
        assert!((0..LOOKS_UNTIL_ASKED).any(|_| others.is_clear(0)), "a later one does");
        let next = take(&file);
        assert!(matches!(next.seated.kind, SeatKind::Place(1)), "the place is free again");
    }

    #[test]
    fn the_oldest_moment_of_a_living_reader_is_seen_until_it_is_given_up() {
        let Fixture { _dir, file, others } = fixture();
        let oldest = || others.oldest_moment().map(|moment| (moment.since, moment.bytes_max));
        let (one, other) = (take(&file), take(&file));
        assert_eq!(oldest(), None);
        let late = one.open_moment(80, 1).unwrap();
        let early = one.open_moment(40, 2).unwrap();
        let second = other.open_moment(64, 3).unwrap();
        assert_eq!(oldest(), Some((40, 2)));
        assert!(others.is_pinned());
        others.evict(&others.oldest_moment().unwrap(), 72);
        assert!(early.is_evicted() && !late.is_evicted() && !second.is_evicted());
        assert_eq!(oldest(), Some((64, 3)));
        drop(second);
        assert_eq!(oldest(), Some((72, 2)), "behind the one that was given up is another");
        drop(early);
        assert_eq!(oldest(), Some((80, 1)));
        // As if its process were killed.
        byte_locks::unlock_all(&one.seated.file).unwrap();
        assert_eq!(oldest(), Some((80, 1)), "not every look asks the kernel");
        assert!((0..LOOKS_UNTIL_ASKED).any(|_| oldest().is_none()), "a later one does");
        assert_eq!(oldest(), None);
        drop(late);
    }

    #[test]
    fn a_look_for_space_that_is_wanted_now_asks_whether_a_reader_lives() {
        let Fixture { _dir, file, others } = fixture();
        let reader = take(&file);
        let moment = reader.open_moment(80, 1).unwrap();
        let pin = reader.pin().unwrap();
        let is_held = || [others.oldest_moment().is_some(), !others.is_clear(0)];
        assert_eq!(is_held(), [true; 2]);
        // As if its process were killed.
        byte_locks::unlock_all(&reader.seated.file).unwrap();
        assert_eq!(is_held(), [true; 2], "it was asked for a look ago");
        others.ask_again();
        assert_eq!(is_held(), [false; 2]);
        std::mem::forget(pin);
        drop(moment);
    }

    #[test]
    fn who_looks_without_a_pin_is_counted_where_a_store_raises_no_signal() {
        let Fixture { _dir, file, others } = fixture();
        others.set_turn(TurnWord::begun(5).ended(true)).unwrap();
        let count = || others.table().unwrap().place(COUNTS_PLACE)[GLANCING].load(Ordering::SeqCst);
        assert!(OtherReaders::of(file.clone(), false, None).glance(|| true).is_none());
        assert_eq!(count(), 0);
        let looking = OtherReaders::of(file.clone(), true, None);
        assert!(looking.glance(|| false).is_none(), "it does not know how large the file is");
        assert!(looking.glance(|| true).is_some());
        assert!(looking.glance(|| unreachable!("it knows")).is_some());
        assert_eq!(count() as u32, 1);
        drop(looking);
        assert_eq!(count() as u32, 0);
        let looking = OtherReaders::of(file.clone(), true, None);
        assert!(looking.turn().unwrap().has_ended(), "it has mapped the table");
        file.set_len(READER_TABLE_OFFSET).unwrap();
        assert!(looking.begin_glancing().is_none());
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
