//! A handle that reads a file while another process may write to it.
//!
//! It looks up keys like the writer's own threads, in the same pages. What those learn from the
//! memory of the writer, it learns from the file:
//!
//! | what | how |
//! |---|---|
//! | that what it reads is not overwritten | its [`Seat`]: a pin that the writer sees, taken before anything is read |
//! | that the index has a new piece | a bucket or a line beyond those that are mapped |
//! | that a piece was moved or removed | the piece epoch, compared before and after a lookup |
//! | that the file has grown | a record beyond the known end |
//!
//! # Why a lookup is right
//!
//! For records, the argument of [`pins`](crate::pins) applies unchanged. For lines: a piece that
//! was moved or removed may be reused as soon as the piece epoch has changed. What was read from it
//! is valid only if the epoch is unchanged afterwards, in which case all of it was read before the
//! reuse. The file is not truncated while anybody holds a pin.
//!
//! # Invariants
//!
//! - Nothing of the store is written.
//! - The child of a fork gets a seat of its own with its first lookup.

mod unfinished;

use std::cell::Cell;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::thread;
use std::time::{Duration, Instant};

use crate::atomic::AtomicU64 as AtomicWord;
use crate::error::{Error, Result};
use crate::format::LIVE_OFFSET;
use crate::index::Lines;
use crate::index::line::{Line, LineNumber};
use crate::linear::BucketIndex;
use crate::live::LineWindow;
use crate::pins::Pin;
use crate::region::Region;
use crate::stats::SharedLookups;
use crate::storage::failure::io_error;
use crate::storage::holders::locked_storage;
use crate::storage::open::TURN_WAIT;
use crate::storage::reader_table::{OpenMoment, Seat, TakenPlace, TurnWord};

pub(crate) use unfinished::{AtCommit, Unfinished, UnfinishedRecord};

/// What a handle has that reads beside a writer.
#[derive(Debug)]
pub(crate) struct Reader {
    /// What it pins with.
    seats: Seats,
    /// Pins taken so far without a place in the reader table.
    pin_count: AtomicU64,
    /// The piece epoch of the pieces that are mapped; `UNKNOWN` before the first lookup.
    mapped_epoch: AtomicU64,
    /// How long a per-call pin waits for a handle that has the file exclusively.
    wait_max: Duration,
    /// The change that a killed process had not finished when the file was opened.
    unfinished: Option<Unfinished>,
}

/// Number of lookups after which a handle that opened a closed store takes a place.
const PINS_WITHOUT_PLACE: u64 = 1000;
/// How long a pin waits at least for a writer that is opening the file.
const OPENING_WAIT: Duration = Duration::from_secs(30);
/// Longest pause between two attempts to pin a file that another handle has exclusively.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// A piece epoch that no file has.
const UNKNOWN: u64 = u64::MAX;

impl Reader {
    /// Takes a seat at the file of a region, which is closed or has a writer.
    ///
    /// If there is no writer, the seat begins without a place, so that a program that looks up only
    /// a few keys does not change the file.
    pub(crate) fn new(region: &Region, is_closed: bool) -> Result<Self> {
        Ok(Self::of(take_seat(region, !is_closed)?))
    }

    /// Takes a seat that holds no lock while nothing is pinned.
    pub(crate) fn per_call(region: &Region) -> Result<Self> {
        Ok(Self::of(take_seat_per_call(region)?))
    }

    fn of(seat: Seat) -> Self {
        Self {
            seats: Seats { seat, next: OnceLock::new() },
            pin_count: AtomicU64::new(0),
            mapped_epoch: AtomicU64::new(UNKNOWN),
            wait_max: TURN_WAIT,
            unfinished: None,
        }
    }

    /// Notes the change that a killed process had not finished.
    pub(crate) fn set_unfinished(&mut self, unfinished: Option<Unfinished>) {
        self.unfinished = unfinished;
    }

    /// Returns the value of a key at the last commit, for a caller that holds a pin.
    #[inline]
    pub(crate) fn at_commit(&self, region: &Region, key: &[u8], hash: u64) -> Result<AtCommit> {
        match &self.unfinished {
            None => Ok(AtCommit::AsNow),
            Some(change) => change.at_commit(region, key, hash),
        }
    }

    /// Sets how long a per-call pin waits for a handle that has the file exclusively.
    pub(crate) fn set_wait_max(&mut self, wait_max: Duration) {
        self.wait_max = wait_max;
    }

    /// Returns whether a pin holds a lock for which others may wait, so that values must be copied.
    #[inline]
    pub(crate) fn is_per_call(&self) -> bool {
        self.seats.seat.is_per_call()
    }

    /// Returns the seat of this process, and takes one if it has none.
    fn seat(&self, region: &Region) -> Result<&Seat> {
        let mut seats = &self.seats;
        loop {
            while let Some(next) = seats.next.get() {
                seats = next;
            }
            if seats.seat.is_here() {
                return Ok(&seats.seat);
            }
            // The child checks again which pieces its parent has mapped.
            self.mapped_epoch.store(UNKNOWN, Ordering::Release);
            let is_per_call = self.is_per_call();
            let seat =
                if is_per_call { take_seat_per_call(region) } else { take_seat(region, true) }?;
            // An error means that another thread was first.
            let _ = seats.next.set(Box::new(Seats { seat, next: OnceLock::new() }));
        }
    }

    /// Like [`pin`](Self::pin), but returns an error without waiting if another handle has the file
    /// exclusively.
    pub(crate) fn pin_at_once(&self, region: &Region) -> Result<Pin<'_>> {
        let pinned = self.seat(region)?.pin();
        pinned.map_err(|source| io_error("lock a byte of", region.storage().path(), source))
    }

    /// Pins everything that slots hold from now on.
    pub(crate) fn pin(&self, region: &Region) -> Result<Pin<'_>> {
        let mut seat = self.seat(region)?;
        if !seat.has_place() && !seat.is_per_call() {
            let pin_count = self.pin_count.fetch_add(1, Ordering::Relaxed);
            if pin_count == PINS_WITHOUT_PLACE {
                self.take_place(region);
                seat = self.seat(region)?;
            }
        }
        let pinned = match seat.pin() {
            Err(error) if seat.is_per_call() && error.kind() == io::ErrorKind::WouldBlock => {
                self.pin_when_let_in(region, seat)
            }
            pinned => pinned,
        };
        pinned.map_err(|source| {
            let storage = region.storage();
            match source.kind() {
                io::ErrorKind::WouldBlock => locked_storage(storage),
                _ => io_error("lock a byte of", storage.path(), source),
            }
        })
    }

    /// Waits to pin until no other handle has the file exclusively, to open it or to change it.
    #[cold]
    fn pin_when_let_in<'a>(&self, region: &Region, seat: &'a Seat) -> io::Result<Pin<'a>> {
        let shared = region.storage().neighbours().expect("only files are read beside a writer");
        let begun = Instant::now();
        loop {
            let is_opened = shared.is_opened_by_other();
            let wait_max = if is_opened { self.wait_max.max(OPENING_WAIT) } else { self.wait_max };
            // Read the clock before the pin, so that one more attempt is made when the time is
            // over.
            let waited = begun.elapsed();
            match seat.pin() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && waited < wait_max => {
                    thread::sleep((waited / 4).clamp(Duration::from_micros(20), LOOK_AGAIN));
                }
                pinned => return pinned,
            }
        }
    }

    /// Takes a place, if one is free, so that from now on a pin costs no system call.
    #[cold]
    fn take_place(&self, region: &Region) {
        let Ok(seat) = take_seat(region, true) else { return };
        let mut seats = &self.seats;
        while let Some(next) = seats.next.get() {
            seats = next;
        }
        // Pins of the previous seat stay as they are.
        let _ = seats.next.set(Box::new(Seats { seat, next: OnceLock::new() }));
    }

    /// Returns a number that changes whenever records are moved by copies that do not name their
    /// originals; odd during such a move.
    pub(crate) fn unnamed_moves(&self, region: &Region) -> Result<u64> {
        Ok(self.seat(region)?.unnamed_moves())
    }

    /// Returns the cost of the lookups of all handles that count theirs.
    pub(crate) fn shared_lookups(&self, region: &Region) -> Result<SharedLookups> {
        Ok(self.seat(region)?.shared_lookups())
    }

    /// Returns the turn word: which handle had the last turn, and how the turn ended.
    pub(crate) fn last_turn(&self, region: &Region) -> Result<TurnWord> {
        Ok(self.seat(region)?.last_turn())
    }

    /// Returns whether the reader has a place, and so has stored to the reader table.
    pub(crate) fn has_place(&self, region: &Region) -> bool {
        self.seat(region).is_ok_and(Seat::has_place)
    }

    /// Looks back to the moment of the commit `since`: see [`Seat::open_moment`].
    pub(crate) fn open_moment(
        &self,
        region: &Region,
        since: u64,
        bytes_max: u64,
    ) -> Result<Option<OpenMoment>> {
        Ok(self.seat(region)?.open_moment(since, bytes_max))
    }

    /// Takes a place, if one is free, for a caller that looks back for long: a handle that opened a
    /// closed store has none yet.
    pub(crate) fn take_place_to_look_back(&self, region: &Region) -> Result<()> {
        let seat = self.seat(region)?;
        let is_first = || {
            self.pin_count.fetch_max(PINS_WITHOUT_PLACE + 1, Ordering::Relaxed)
                <= PINS_WITHOUT_PLACE
        };
        if !seat.has_place() && !seat.is_per_call() && is_first() {
            self.take_place(region);
        }
        Ok(())
    }

    /// Returns [`unnamed_moves`](Self::unnamed_moves) once no such move is in progress, or after a
    /// bounded wait if the writer is stopped.
    pub(crate) fn moves_that_are_over(&self, region: &Region) -> Result<u64> {
        Ok(self.seat(region)?.moves_that_are_over())
    }

    /// Returns the places of the other readers.
    pub(crate) fn taken_places(&self, region: &Region) -> Result<Vec<TakenPlace>> {
        Ok(self.seat(region)?.taken_places())
    }

    /// Runs a search in the index until the pieces were the same from its beginning to its end. The
    /// caller has a pin.
    pub(crate) fn look<'a, T>(
        &'a self,
        region: &'a Region,
        mut search: impl FnMut(&Followed<'a>) -> Result<T>,
    ) -> Result<T> {
        loop {
            let epoch = self.follow(region)?;
            let known_bytes = region.view.file_bytes();
            let lines = Followed { region, reader: self, fault: Cell::new(None) };
            let found = search(&lines);
            fence(Ordering::Acquire);
            if region.live().piece_epoch() != epoch {
                continue;
            }
            if let Some(fault) = lines.fault.take() {
                return Err(fault);
            }
            match found {
                // The record may be beyond the end that was known.
                Err(Error::Corrupt { .. }) if region.see_size()? > known_bytes => {}
                found => return found,
            }
        }
    }

    /// Maps what the live header lists, if it has changed, and returns the piece epoch.
    fn follow(&self, region: &Region) -> Result<u64> {
        let epoch = region.live().piece_epoch();
        if epoch == self.mapped_epoch.load(Ordering::Acquire) {
            return Ok(epoch);
        }
        self.map_pieces(region)
    }

    /// Maps the pieces as the live header lists them, and returns their epoch.
    #[cold]
    pub(crate) fn map_pieces(&self, region: &Region) -> Result<u64> {
        let epoch = region.follow_pieces()?;
        self.mapped_epoch.store(epoch, Ordering::Release);
        Ok(epoch)
    }
}

/// A seat, and those taken after it: one with a place, those of children. A child leaves the seat of its
/// parent to it, to which pins of its own may lead.
#[derive(Debug)]
struct Seats {
    seat: Seat,
    next: OnceLock<Box<Seats>>,
}

fn take_seat_per_call(region: &Region) -> Result<Seat> {
    let storage = region.storage();
    let shared = storage.neighbours().expect("only files are read beside a writer");
    let seat = shared.take_seat_per_call(storage.path());
    seat.map_err(|source| io_error("map the reader table of", storage.path(), source))
}

/// Takes a seat at the file of a region.
fn take_seat(region: &Region, wants_place: bool) -> Result<Seat> {
    let storage = region.storage();
    let shared = storage.neighbours().expect("only files are read beside a writer");
    match shared.take_seat(storage.path(), wants_place) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(locked_storage(storage)),
        seat => seat.map_err(|source| {
            io_error("take a place among the readers of", storage.path(), source)
        }),
    }
}

/// The lines of an index that another process changes.
pub(crate) struct Followed<'a> {
    region: &'a Region,
    reader: &'a Reader,
    /// Why a bucket could not be mapped.
    fault: Cell<Option<Error>>,
}

impl Lines for Followed<'_> {
    #[inline]
    fn shape(&self) -> &AtomicWord {
        self.region.windows.shape()
    }

    #[inline]
    fn bucket(&self, bucket: BucketIndex) -> &Line {
        let windows = &self.region.windows;
        if bucket.0 < windows.line_count(LineWindow::Buckets) {
            return windows.bucket(bucket);
        }
        match self.reader.map_pieces(self.region) {
            Ok(_) if bucket.0 < windows.line_count(LineWindow::Buckets) => windows.bucket(bucket),
            mapped => {
                let found = windows.line_count(LineWindow::Buckets);
                let (what, expected) = ("bucket count", bucket.0 + 1);
                let missing = Error::Corrupt { what, offset: LIVE_OFFSET, expected, found };
                self.fault.set(Some(mapped.err().unwrap_or(missing)));
                Line::none()
            }
        }
    }

    fn overflow(&self, line: LineNumber) -> Option<&Line> {
        let windows = &self.region.windows;
        windows.overflow(line).or_else(|| {
            self.reader.map_pieces(self.region).ok()?;
            windows.overflow(line)
        })
    }

    fn overflow_line_count(&self) -> u64 {
        self.region.windows.overflow_line_count()
    }
}
