//! The windows of a file: its live header, its buckets and its overflow lines, contiguous in
//! memory.
//!
//! ```text
//! cell         | live header, reader table | buckets: B0 B1 .. | overflow lines: O0 |
//! outgrown by           |
//! the buckets           `-> | B0 B1 ... B8 B9 ...                        |
//! ```
//!
//! A small file has all three in one reservation of 44 KiB, the *cell*. Buckets or overflow lines
//! that outgrow the cell move to another reservation, eight times as large, and to a larger one
//! when they outgrow that. There all pieces are mapped again. The old mappings stay until the
//! handle is closed, because a reader may be looking at a line there. Both show the same pages, so
//! a store through either is visible through the other.
//!
//! The header, the reader table and the first piece are adjacent in the file as they are here, so
//! the kernel joins them in one mapping; the number of mappings of a process is limited
//! (`vm.max_map_count`).

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::mm::Advice;

use crate::format::{GRANULE_BYTES, HEADER_BYTES, LIVE_OFFSET};
use crate::storage::reservation::{Part, Protection, Reservation, first_that_fits};
use crate::storage::{Backing, Pages, Span, WindowKind};

/// Live header and reader table.
const HEAD_BYTES: u64 = HEADER_BYTES - LIVE_OFFSET;
/// Buckets of a cell, in bytes: 512 of them, for about 2,300 records.
const CELL_BUCKET_BYTES: u64 = 32 << 10;
/// Overflow lines of a cell, in bytes: one piece.
const CELL_OVERFLOW_BYTES: u64 = GRANULE_BYTES;
/// Factor by which a window grows when it moves.
const GROWTH: u64 = 8;

/// The windows of a file.
#[derive(Debug)]
pub(super) struct Windows {
    protection: Protection,
    windows: Mutex<[Window; 3]>,
}

/// One window.
#[derive(Debug)]
struct Window {
    reservation: Arc<Reservation>,
    /// Its offset in the reservation, and the bytes that it may use there.
    start: u64,
    bytes_max: u64,
    pieces: Vec<MappedPiece>,
    /// Earlier reservations; readers may still be looking at them.
    outgrown: Vec<Arc<Reservation>>,
}

/// A piece of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MappedPiece {
    /// Offset in the window.
    pub(super) at: u64,
    pub(super) bytes: u64,
    pub(super) backing: Backing,
}

impl Windows {
    /// Reserves the address space of the windows of a small file.
    pub(super) fn new(protection: Protection) -> io::Result<Self> {
        let bytes = HEAD_BYTES + CELL_BUCKET_BYTES + CELL_OVERFLOW_BYTES;
        let cell = Arc::new(Reservation::new(bytes)?);
        let mut start = 0;
        let windows = [HEAD_BYTES, CELL_BUCKET_BYTES, CELL_OVERFLOW_BYTES].map(|bytes_max| {
            let reservation = cell.clone();
            let window =
                Window { reservation, start, bytes_max, pieces: Vec::new(), outgrown: Vec::new() };
            start += bytes_max;
            window
        });
        Ok(Self { protection, windows: Mutex::new(windows) })
    }

    fn lock(&self) -> MutexGuard<'_, [Window; 3]> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the current span of a window.
    pub(super) fn span(&self, kind: WindowKind) -> Span {
        let window = &self.lock()[kind.number()];
        let Span { base, .. } = window.reservation.span();
        Span { base: base.wrapping_add(window.start as usize), bytes: window.bytes_max }
    }

    /// Maps a piece of a window, and moves the window if it outgrows its reservation.
    pub(super) fn map_piece(
        &self,
        file: &File,
        kind: WindowKind,
        mut piece: MappedPiece,
    ) -> io::Result<()> {
        if kind == WindowKind::Live && piece.backing == Backing::File(LIVE_OFFSET) {
            // Include the reader table, so that the first piece of the buckets joins the mapping.
            piece.bytes = HEAD_BYTES;
        }
        self.lock()[kind.number()].map(file, self.protection, piece)
    }

    /// Drops the pieces of buckets and overflow lines, none of which is touched before it is mapped
    /// again.
    pub(super) fn forget_pieces(&self) {
        for kind in [WindowKind::Buckets, WindowKind::Overflow] {
            self.lock()[kind.number()].pieces.clear();
        }
    }

    /// Returns pages of a window, all mapped.
    pub(super) fn pages(&self, kind: WindowKind, at: u64, bytes: u64) -> Pages {
        let windows = self.lock();
        let window = &windows[kind.number()];
        let base = window.reservation.span().base.wrapping_add((window.start + at) as usize);
        Pages::new(base, bytes, window.reservation.clone())
    }

    /// Takes the page faults of a range of a window, all mapped.
    pub(super) fn populate(&self, kind: WindowKind, at: u64, bytes: u64) {
        let (reservation, start) = {
            let window = &self.lock()[kind.number()];
            (window.reservation.clone(), window.start)
        };
        // In a range without the advice of random reading, folios have up to 128 KiB, and creating
        // them takes a third of the time of single pages. The price is that a store to one dirties
        // all of it until it has left the cache. On a kernel before 5.14, which cannot populate,
        // the faults come one by one.
        let advices = [Advice::Normal, Advice::LinuxPopulateWrite, Advice::Random];
        reservation.advise(start + at, bytes, &advices);
    }
}

impl Window {
    fn map(&mut self, file: &File, protection: Protection, piece: MappedPiece) -> io::Result<()> {
        let bytes = piece.at + piece.bytes;
        if bytes > self.bytes_max {
            self.move_to_larger(file, protection, bytes)?;
        }
        match piece.backing {
            Backing::File(offset) => {
                let part = Part { file, offset, protection };
                map_file(&self.reservation, self.start + piece.at, piece.bytes, part)?;
            }
            Backing::Private => self.reservation.map_memory(self.start + piece.at, piece.bytes)?,
        }
        self.pieces.retain(|other| other.at != piece.at);
        self.pieces.push(piece);
        Ok(())
    }

    /// Maps all pieces again in a reservation of at least `bytes`; after an error nothing has
    /// changed.
    fn move_to_larger(
        &mut self,
        file: &File,
        protection: Protection,
        bytes: u64,
    ) -> io::Result<()> {
        let sizes = [bytes.saturating_mul(GROWTH), 2 * bytes, bytes];
        let larger = first_that_fits(&sizes, Reservation::new)?;
        for piece in &self.pieces {
            match piece.backing {
                Backing::File(offset) => {
                    map_file(&larger, piece.at, piece.bytes, Part { file, offset, protection })?;
                }
                Backing::Private => {
                    let from = self.start + piece.at;
                    larger.map_again(piece.at, &self.reservation, from, piece.bytes)?;
                }
            }
        }
        self.bytes_max = larger.span().bytes;
        self.start = 0;
        self.outgrown.push(std::mem::replace(&mut self.reservation, Arc::new(larger)));
        Ok(())
    }
}

/// Maps a piece of a file with small folios: with a large one, a store to a single slot would dirty
/// 2 MiB.
fn map_file(reservation: &Reservation, at: u64, bytes: u64, part: Part<'_>) -> io::Result<()> {
    reservation.map_file(at, bytes, part)?;
    reservation.advise(at, bytes, &[Advice::Random]);
    Ok(())
}
