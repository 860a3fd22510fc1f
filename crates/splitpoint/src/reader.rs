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
    /// Pins so far without a place.
    pin_count: AtomicU64,
    /// The piece epoch of the pieces that are mapped; `UNKNOWN` before the first lookup.
    mapped_epoch: AtomicU64,
    /// How long a pin waits for one that has the file for itself, if it is taken call by call.
    wait_max: Duration,
    /// What a killed process had not finished when the file was opened.
    unfinished: Option<Unfinished>,
}

/// Lookups of a handle that opened a closed store before it takes a place.
const PINS_WITHOUT_PLACE: u64 = 1000;
/// How long a pin waits at least for a writer that is opening the file.
const OPENING_WAIT: Duration = Duration::from_secs(30);
/// How long to wait at most between two looks at a file that somebody has for himself.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// A piece epoch that no file has.
const UNKNOWN: u64 = u64::MAX;

impl Reader {
    /// Takes a seat at the file of a region, which is closed or has a writer.
    ///
    /// Where nobody writes, it begins without a place: a program that looks up a few keys leaves the file
    /// as it is.
    pub(crate) fn new(region: &Region, is_closed: bool) -> Result<Self> {
        Ok(Self::of(take_seat(region, !is_closed)?))
    }

    /// Takes a seat that locks nothing while nothing is pinned.
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

    /// Returns what a key had at the last commit, for a caller that holds a pin.
    #[inline]
    pub(crate) fn at_commit(&self, region: &Region, key: &[u8], hash: u64) -> Result<AtCommit> {
        match &self.unfinished {
            None => Ok(AtCommit::AsNow),
            Some(change) => change.at_commit(region, key, hash),
        }
    }

    /// Sets how long a pin that is taken call by call waits for one that has the file for itself.
    pub(crate) fn set_wait_max(&mut self, wait_max: Duration) {
        self.wait_max = wait_max;
    }

    /// Returns whether a pin keeps a lock that others may wait for: values are copied.
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
            // The child looks anew at what its parent has mapped.
            self.mapped_epoch.store(UNKNOWN, Ordering::Release);
            let is_per_call = self.is_per_call();
            let seat =
                if is_per_call { take_seat_per_call(region) } else { take_seat(region, true) }?;
            // Another thread may have been first.
            let _ = seats.next.set(Box::new(Seats { seat, next: OnceLock::new() }));
        }
    }

    /// Pins like [`pin`](Self::pin), or returns an error without a wait if somebody has the file for himself.
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

    /// Pins when nobody has the file for himself any more, to open it or to change it.
    #[cold]
    fn pin_when_let_in<'a>(&self, region: &Region, seat: &'a Seat) -> io::Result<Pin<'a>> {
        let shared = region.storage().neighbours().expect("only files are read beside a writer");
        let begun = Instant::now();
        loop {
            let is_opened = shared.is_opened_by_other();
            let wait_max = if is_opened { self.wait_max.max(OPENING_WAIT) } else { self.wait_max };
            // Before the last pin, so that there is one when the time is over.
            let waited = begun.elapsed();
            match seat.pin() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && waited < wait_max => {
                    thread::sleep((waited / 4).clamp(Duration::from_micros(20), LOOK_AGAIN));
                }
                pinned => return pinned,
            }
        }
    }

    /// Takes a place, if there is one, so that a pin is no system call from now on.
    #[cold]
    fn take_place(&self, region: &Region) {
        let Ok(seat) = take_seat(region, true) else { return };
        let mut seats = &self.seats;
        while let Some(next) = seats.next.get() {
            seats = next;
        }
        // Pins of the seat before stay as they are.
        let _ = seats.next.set(Box::new(Seats { seat, next: OnceLock::new() }));
    }

    /// Returns a number that changes when records were moved from which nothing leads back to the
    /// originals; odd while that goes on.
    pub(crate) fn unnamed_moves(&self, region: &Region) -> Result<u64> {
        Ok(self.seat(region)?.unnamed_moves())
    }

    /// Returns what the lookups of all handles that count have cost.
    pub(crate) fn shared_lookups(&self, region: &Region) -> Result<SharedLookups> {
        Ok(self.seat(region)?.shared_lookups())
    }

    /// Returns who had the last turn, and how it ended.
    pub(crate) fn last_turn(&self, region: &Region) -> Result<TurnWord> {
        Ok(self.seat(region)?.last_turn())
    }

    /// Returns whether it has stored to the reader table.
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

    /// Takes a place for somebody who looks back for long, if there is one to be had: of a store that
    /// was closed there is none yet.
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

    /// Returns the same number when no such move goes on, unless the writer is stopped.
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
