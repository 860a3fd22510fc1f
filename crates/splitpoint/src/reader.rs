//! A handle that reads a file beside a process that writes it.
//!
//! It looks up keys as the writer's own threads do, in the same pages. What they learn from the writer's
//! memory it learns from the file:
//!
//! | what | how |
//! |---|---|
//! | that nobody uses again what it reads | its [`Seat`]: a pin that the writer sees, taken before anything is looked at |
//! | that the index has a new piece | a bucket or a line beyond those that are mapped |
//! | that a piece has moved or gone | the piece epoch, looked at before a lookup and after it |
//! | that the file is larger | a record beyond the end that is known |
//!
//! # Why a lookup is right
//!
//! Records: the argument of [`pins`](crate::pins), word for word. Lines: a piece that has moved or gone
//! may be used for something else as soon as the piece epoch has changed. What was read in it counts only
//! if the epoch is still the same afterwards, and then all of it was read before. The end of the file
//! stays while anybody is pinned.
//!
//! # Invariants
//!
//! - Nothing of the store is written.
//! - A child of a fork has a seat of its own, from its first lookup on.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::atomic::AtomicU64 as AtomicWord;
use crate::error::{Error, Result};
use crate::format::LIVE_OFFSET;
use crate::index::Lines;
use crate::index::line::{Line, LineNumber};
use crate::linear::BucketIndex;
use crate::live::LineWindow;
use crate::region::Region;
use crate::storage::failure::io_error;
use crate::storage::reader_table::{Rest, Seat, SeatPin, TakenPlace};
use crate::storage::shared_file::SharedFile;

/// What a handle has that reads beside a writer.
#[derive(Debug)]
pub(crate) struct Reader {
    /// What it pins with while nobody writes; `None` if a writer was there when it came.
    rest: Option<Rest>,
    /// What it pins with beside a writer.
    seats: OnceLock<Box<Seats>>,
    /// The piece epoch of the pieces that are mapped; `UNKNOWN` before the first lookup.
    mapped_epoch: AtomicU64,
    /// First granules of the pieces that are mapped, of each window.
    pieces: Mutex<[Vec<u64>; 2]>,
}

/// A piece epoch that no file has.
const UNKNOWN: u64 = u64::MAX;

impl Reader {
    /// Prepares to read the file of a region, which is closed or has a writer.
    pub(crate) fn new(region: &Region, is_closed: bool) -> Result<Self> {
        let shared = shared_file(region);
        let action = "lock bytes of";
        let rest = is_closed.then(|| region.write(action, |_| shared.begin_rest())).transpose()?;
        let reader = Self {
            rest,
            seats: OnceLock::new(),
            mapped_epoch: AtomicU64::new(UNKNOWN),
            pieces: Mutex::default(),
        };
        if reader.rest.is_none() {
            reader.seat(region)?;
        }
        Ok(reader)
    }

    /// Returns the seat of this process, and takes one if it has none.
    fn seat(&self, region: &Region) -> Result<&Seat> {
        let mut seats = &self.seats;
        loop {
            if seats.get().is_none() {
                let seat = region.write("take a place among the readers of", |_| {
                    shared_file(region).take_seat()
                })?;
                // Another thread may have been first.
                let _ = seats.set(Box::new(Seats { seat, of_child: OnceLock::new() }));
            }
            let found = seats.get().expect("one was just set");
            if found.seat.is_here() {
                return Ok(&found.seat);
            }
            seats = &found.of_child;
        }
    }

    /// Pins everything that slots hold from now on.
    pub(crate) fn pin(&self, region: &Region) -> Result<SeatPin<'_>> {
        if let Some(pin) = self.rest.as_ref().and_then(Rest::pin) {
            if !region.live().has_pid() {
                return Ok(pin);
            }
            // A writer has come: what is pinned until now stays so, the rest by a seat.
            self.seat(region)?;
            self.rest.as_ref().expect("it has pinned").end();
        }
        let path = || region.storage().path();
        self.seat(region)?.pin().map_err(|source| io_error("lock a byte of", path(), source))
    }

    /// Returns a number that changes when records may have been moved from which nothing leads back to
    /// the originals.
    pub(crate) fn unnamed_moves(&self, region: &Region) -> Result<u64> {
        // A writer that comes while others rest names all.
        if self.is_resting(region) { Ok(0) } else { Ok(self.seat(region)?.unnamed_moves()) }
    }

    /// Returns the places of the other readers; of a file that nobody writes they are not known.
    pub(crate) fn taken_places(&self, region: &Region) -> Result<Vec<TakenPlace>> {
        if self.is_resting(region) { Ok(Vec::new()) } else { Ok(self.seat(region)?.taken_places()) }
    }

    fn is_resting(&self, region: &Region) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.pin().is_some()) && !region.live().has_pid()
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
                Err(Error::Corrupt { .. }) if self.see_growth(region)? => {}
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
    fn map_pieces(&self, region: &Region) -> Result<u64> {
        let mut mapped = self.lock();
        loop {
            let epoch = region.live().piece_epoch();
            let listed = LineWindow::ALL.map(|window| region.windows.listed_pieces(window));
            fence(Ordering::Acquire);
            if region.live().piece_epoch() != epoch {
                continue;
            }
            region.see_size()?;
            for (window, listed) in LineWindow::ALL.into_iter().zip(&listed) {
                show_pieces(region, window, listed, &mut mapped[window.number()])?;
            }
            self.mapped_epoch.store(epoch, Ordering::Release);
            return Ok(epoch);
        }
    }

    /// Learns how large the file is; returns whether it has grown.
    pub(crate) fn see_growth(&self, region: &Region) -> Result<bool> {
        // One thread at a time.
        let _mapped = self.lock();
        let before = region.view.file_bytes();
        region.see_size()?;
        Ok(region.view.file_bytes() > before)
    }

    fn lock(&self) -> MutexGuard<'_, [Vec<u64>; 2]> {
        // What is mapped is noted after each step.
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The seat of a process, and those of its children.
#[derive(Debug)]
struct Seats {
    seat: Seat,
    /// A child leaves the seat of its parent to it, to which pins of its own may lead.
    of_child: OnceLock<Box<Seats>>,
}

fn shared_file(region: &Region) -> &SharedFile {
    region.storage().shared_file().expect("only files are read beside a writer")
}

/// Has a window show the pieces that the live header lists; `mapped` is what it shows.
fn show_pieces(
    region: &Region,
    window: LineWindow,
    listed: &[u64],
    mapped: &mut Vec<u64>,
) -> Result<()> {
    while mapped.len() > listed.len() {
        region.hide_last_piece(window, mapped.len() - 1)?;
        mapped.pop();
    }
    for (piece, &granule) in listed.iter().enumerate() {
        match mapped.get_mut(piece) {
            Some(before) if *before == granule => {}
            Some(before) => {
                region.show_piece_elsewhere(window, piece, granule)?;
                *before = granule;
            }
            None => {
                region.show_piece(window, piece, granule)?;
                mapped.push(granule);
            }
        }
    }
    Ok(())
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
