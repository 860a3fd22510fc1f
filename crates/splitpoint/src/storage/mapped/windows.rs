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
//! that outgrow the cell move to another reservation, of 1 MiB, and to one eight times as large
//! when they outgrow that. There all pieces are mapped again. The old mappings stay until the
//! handle is closed, because a reader may be looking at a line there. Both show the same pages, so
//! a store through either is visible through the other.
//!
//! The header, the reader table and the first piece are adjacent in the file as they are here, so
//! the kernel joins them in one mapping; the number of mappings of a process is limited
//! (`vm.max_map_count`).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::mm::Advice;

use crate::format::{GRANULE_BYTES, HEADER_BYTES, LIVE_BYTES, LIVE_OFFSET};
use crate::storage::reader_table::ReaderTable;
use crate::storage::reservation::{HUGE_BYTES, Part, Protection, Reservation, first_that_fits};
use crate::storage::{Backing, Clean, Pages, Span, WindowKind};

/// Live header and reader table.
const HEAD_BYTES: u64 = HEADER_BYTES - LIVE_OFFSET;
/// Buckets of a cell, in bytes: 512 of them, for about 2,300 records.
const CELL_BUCKET_BYTES: u64 = 32 << 10;
/// Overflow lines of a cell, in bytes: one piece.
const CELL_OVERFLOW_BYTES: u64 = GRANULE_BYTES;
/// Bytes of a piece whose huge pages are split at a time: cleaning them takes a few milliseconds, in
/// which stores may make some of them dirty again.
const SPLIT_BYTES: u64 = 16 << 20;
/// Pieces from this size on have the advice of random reading. The kernel reads 128 KiB around a fault without
/// it: the first pieces of a table are in them together, with the header that each opening reads.
const ADVISED_BYTES_MIN: u64 = 64 << 10;
/// Factor by which a window grows when it moves.
const GROWTH: u64 = 8;
/// Address space of a window that has moved, at least, where there is so much: each move maps all pieces
/// anew, and takes the faults of their pages again. It has room for the buckets of some 70,000 records.
const MOVED_BYTES_MIN: u64 = 1 << 20;

/// Whether this kernel splits huge pages when it is asked to, once that is known. If it does not,
/// there are no more of them in this process.
static ARE_SPLIT: OnceLock<bool> = OnceLock::new();

/// Bytes that all files of this process keep locked or preferred in memory.
static KEPT_BYTES: AtomicU64 = AtomicU64::new(0);

/// The windows of a file.
#[derive(Debug)]
pub(super) struct Windows {
    protection: Protection,
    all: Mutex<[Window; 3]>,
    /// Bytes that are kept in memory.
    kept_bytes: AtomicU64,
}

impl Drop for Windows {
    fn drop(&mut self) {
        self.note_kept(0);
    }
}

/// One window.
#[derive(Debug)]
struct Window {
    reservation: Arc<Reservation>,
    /// Its offset in the reservation, and the bytes that it may use there.
    start: u64,
    bytes_max: u64,
    pieces: Vec<MappedPiece>,
    /// Its earlier places, where readers may still be reading.
    outgrown: Vec<Outgrown>,
}

/// The place of a window before it moved.
#[derive(Debug)]
struct Outgrown {
    reservation: Arc<Reservation>,
    start: u64,
    bytes_max: u64,
}

/// A piece of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MappedPiece {
    /// Offset in the window.
    pub(super) at: u64,
    pub(super) bytes: u64,
    pub(super) backing: Backing,
    /// Whether the kernel is to keep its pages in memory.
    pub(super) is_kept: bool,
}

/// A piece that is large enough for huge pages.
#[derive(Clone, Copy, Debug)]
struct LargePiece {
    /// Offset in the window.
    at: u64,
    bytes: u64,
    /// Offset in the file.
    offset: u64,
    /// Whether it was mapped with huge pages. Others may have some as well, which a killed process
    /// left in the page cache.
    was_huge: bool,
    /// Whether it is locked in memory.
    is_kept: bool,
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
        let kept_bytes = AtomicU64::new(0);
        Ok(Self { protection, all: Mutex::new(windows), kept_bytes })
    }

    /// Returns the reader table, which is mapped with the live header.
    pub(super) fn reader_table(&self) -> ReaderTable {
        let window = &self.lock()[WindowKind::Live.number()];
        ReaderTable::within(window.reservation.clone(), window.start + LIVE_BYTES)
    }

    fn lock(&self) -> MutexGuard<'_, [Window; 3]> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Maps pieces that are adjacent in a window, with one call for each run that is adjacent in
    /// the file as well.
    pub(super) fn map_pieces(
        &self,
        file: &File,
        kind: WindowKind,
        mut at: u64,
        pieces: &[(u64, u64)],
    ) -> io::Result<()> {
        let follows = |one: &(u64, u64), next: &(u64, u64)| one.1 + one.0 == next.1;
        let window = &mut self.lock()[kind.number()];
        let end = at + pieces.iter().map(|&(bytes, _)| bytes).sum::<u64>();
        window.make_room(file, self.protection, end)?;
        let mut large = at..at;
        for run in pieces.chunk_by(follows) {
            let bytes = run.iter().map(|&(bytes, _)| bytes).sum();
            let part = Part { file, offset: run[0].1, protection: self.protection };
            window.reservation.map_file(window.start + at, bytes, part)?;
            if bytes < ADVISED_BYTES_MIN || large.end != at {
                window.advise_random(&large);
                large = at..at;
            }
            window.pieces.retain(|piece| !(at..at + bytes).contains(&piece.at));
            for &(bytes, offset) in run {
                let backing = Backing::File(offset);
                window.pieces.push(MappedPiece { at, bytes, backing, is_kept: false });
                at += bytes;
            }
            if bytes >= ADVISED_BYTES_MIN {
                large.end = at;
            }
        }
        window.advise_random(&large);
        Ok(())
    }

    /// Replaces a piece of a window by zeros, wherever it is mapped.
    pub(super) fn unmap_piece(&self, kind: WindowKind, at: u64, bytes: u64) -> io::Result<()> {
        let window = &mut self.lock()[kind.number()];
        for Outgrown { reservation, start, bytes_max } in &window.outgrown {
            // The old place does not have this piece: that it did not fit there was the reason to
            // move.
            if at + bytes <= *bytes_max {
                reservation.map_zeros(start + at, bytes)?;
            }
        }
        window.reservation.map_zeros(window.start + at, bytes)?;
        window.pieces.retain(|piece| piece.at != at);
        Ok(())
    }

    /// Maps a piece of a window from another place in the file, wherever the piece is mapped.
    pub(super) fn move_piece(
        &self,
        file: &File,
        kind: WindowKind,
        at: u64,
        offset: u64,
    ) -> io::Result<()> {
        let window = &mut self.lock()[kind.number()];
        let piece = window.pieces.iter_mut().find(|piece| piece.at == at);
        let piece = piece.expect("a piece that is moved is mapped");
        let moved = MappedPiece { backing: Backing::File(offset), ..*piece };
        let part = Part { file, offset, protection: self.protection };
        for Outgrown { reservation, start, bytes_max } in &window.outgrown {
            if at + moved.bytes <= *bytes_max {
                map_file(reservation, *start, moved, part)?;
            }
        }
        map_file(&window.reservation, window.start, moved, part)?;
        if moved.is_kept {
            keep(&window.reservation, window.start + at, moved.bytes);
        }
        *piece = moved;
        Ok(())
    }

    /// Has the kernel keep buckets and overflow lines in memory, if they are at most `bytes_max`;
    /// otherwise takes that back. This is for files larger than memory, where each lookup uses a
    /// line of the index and a record: the kernel cannot know that index pages are used more often.
    ///
    /// References through a mapping that is advised `Random` do not count when the kernel chooses what to
    /// drop (Linux 6.3), so without the lock it drops as much of the index as of the log.
    pub(super) fn keep_in_memory(&self, bytes_max: u64) {
        let mut windows = self.lock();
        let of_index = [WindowKind::Buckets, WindowKind::Overflow].map(WindowKind::number);
        let of_file = |piece: &MappedPiece| piece.backing != Backing::Private;
        let pieces = of_index.iter().flat_map(|&kind| &windows[kind].pieces);
        let bytes = pieces.filter(|piece| of_file(piece)).map(|piece| piece.bytes).sum::<u64>();
        let before = self.kept_bytes.load(Ordering::Relaxed);
        let of_others = KEPT_BYTES.load(Ordering::Relaxed).saturating_sub(before);
        let is_kept = bytes <= bytes_max.saturating_sub(of_others);
        self.note_kept(if is_kept { bytes } else { 0 });
        for kind in of_index {
            let Window { reservation, start, pieces, .. } = &mut windows[kind];
            for piece in pieces.iter_mut().filter(|piece| of_file(piece)) {
                if std::mem::replace(&mut piece.is_kept, is_kept) != is_kept {
                    let change = if is_kept { keep } else { release };
                    change(reservation, *start + piece.at, piece.bytes);
                }
            }
        }
    }

    /// Notes how many bytes of this file's index are kept in memory.
    fn note_kept(&self, bytes: u64) {
        let before = self.kept_bytes.swap(bytes, Ordering::Relaxed);
        KEPT_BYTES.fetch_add(bytes, Ordering::Relaxed);
        KEPT_BYTES.fetch_sub(before, Ordering::Relaxed);
    }

    /// Drops the pieces of buckets and overflow lines, none of which is touched before it is mapped
    /// again.
    pub(super) fn forget_pieces(&self) {
        for kind in [WindowKind::Buckets, WindowKind::Overflow] {
            self.lock()[kind.number()].pieces.clear();
        }
    }

    /// Splits the huge pages of the pieces that have any: see [`Storage::split_huge_pages`].
    ///
    /// [`Storage::split_huge_pages`]: crate::storage::Storage::split_huge_pages
    pub(super) fn split_huge_pages(&self, clean: Option<&Clean<'_>>) {
        for kind in [WindowKind::Buckets, WindowKind::Overflow] {
            let (reservation, start, large) = self.lock()[kind.number()].take_huge_pages();
            for LargePiece { at, bytes, offset, was_huge, is_kept } in large {
                // Pages that are not known to be huge are not worth a sync.
                if !was_huge && clean.is_some() {
                    continue;
                }
                if is_kept {
                    // The kernel does not split locked pages.
                    reservation.unlock_pages(start + at, bytes);
                }
                reservation.advise(start + at, bytes, &[Advice::LinuxNoHugepage, Advice::Random]);
                for done in (0..bytes).step_by(SPLIT_BYTES as usize) {
                    let bytes = SPLIT_BYTES.min(bytes - done);
                    if clean.is_some_and(|clean| !clean(offset + done, bytes)) {
                        return;
                    }
                    reservation.split_huge_pages(start + at + done, bytes);
                }
                if is_kept {
                    keep(&reservation, start + at, bytes);
                } else if clean.is_none() && was_huge && ARE_SPLIT.get().is_none() {
                    // Not in `get_or_init`: other threads would wait for this check, and a child of
                    // a fork forever.
                    let are_split = !reservation.has_huge_pages(start + at);
                    let _ = ARE_SPLIT.set(are_split);
                }
            }
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
        let (reservation, start, kept) = {
            let window = &self.lock()[kind.number()];
            let kept = window.pieces.iter().any(|piece| piece.is_kept);
            (window.reservation.clone(), window.start, kept)
        };
        // In a range without the advice of random reading, folios have up to 128 KiB, and creating
        // them takes a third of the time of single pages. The price is that a store to one dirties
        // all of it until it has left the cache. On a kernel before 5.14, which cannot populate,
        // the faults come one by one.
        reservation.advise(start + at, bytes, &[Advice::Normal, Advice::LinuxPopulateWrite]);
        if !kept && bytes >= ADVISED_BYTES_MIN {
            reservation.advise(start + at, bytes, &[Advice::Random]);
        }
    }
}

impl Window {
    fn map(&mut self, file: &File, protection: Protection, piece: MappedPiece) -> io::Result<()> {
        self.make_room(file, protection, piece.at + piece.bytes)?;
        match piece.backing {
            Backing::File(offset) | Backing::Growth(offset) => {
                let part = Part { file, offset, protection };
                map_file(&self.reservation, self.start, piece, part)?;
            }
            Backing::Private => self.reservation.map_memory(self.start + piece.at, piece.bytes)?,
        }
        self.pieces.retain(|other| other.at != piece.at);
        self.pieces.push(piece);
        Ok(())
    }

    /// Moves the window if it has no room for `bytes`.
    fn make_room(&mut self, file: &File, protection: Protection, bytes: u64) -> io::Result<()> {
        if bytes > self.bytes_max {
            self.move_to_larger(file, protection, bytes)?;
        }
        Ok(())
    }

    /// Advises the kernel that a part of the window is read at random: of pieces that follow each other by one
    /// call.
    fn advise_random(&self, part: &Range<u64>) {
        if !part.is_empty() {
            let bytes = part.end - part.start;
            self.reservation.advise(self.start + part.start, bytes, &[Advice::Random]);
        }
    }

    /// Notes that all pieces use single pages from now on. Returns the reservation, the offset of
    /// the window in it, and the pieces that are large enough for huge pages.
    fn take_huge_pages(&mut self) -> (Arc<Reservation>, u64, Vec<LargePiece>) {
        let mut large = Vec::new();
        for piece in &mut self.pieces {
            let (offset, was_huge) = match piece.backing {
                Backing::File(offset) => (offset, false),
                Backing::Growth(offset) => (offset, true),
                Backing::Private => continue,
            };
            piece.backing = Backing::File(offset);
            if piece.bytes >= HUGE_BYTES {
                let MappedPiece { at, bytes, is_kept, .. } = *piece;
                large.push(LargePiece { at, bytes, offset, was_huge, is_kept });
            }
        }
        (self.reservation.clone(), self.start, large)
    }

    /// Maps all pieces again in a reservation of at least `bytes`; after an error nothing has
    /// changed.
    fn move_to_larger(
        &mut self,
        file: &File,
        protection: Protection,
        bytes: u64,
    ) -> io::Result<()> {
        let ample_bytes = bytes.saturating_mul(GROWTH).max(MOVED_BYTES_MIN);
        let sizes = [ample_bytes, 2 * bytes, bytes];
        let reserve = |bytes| match bytes {
            0..HUGE_BYTES => Reservation::new(bytes),
            _ => Reservation::aligned(bytes),
        };
        let larger = first_that_fits(&sizes, reserve)?;
        for piece in &self.pieces {
            match piece.backing {
                Backing::File(offset) | Backing::Growth(offset) => {
                    map_file(&larger, 0, *piece, Part { file, offset, protection })?;
                }
                Backing::Private => {
                    let from = self.start + piece.at;
                    larger.map_again(piece.at, &self.reservation, from, piece.bytes)?;
                }
            }
        }
        for piece in &self.pieces {
            let at = self.start + piece.at;
            if piece.is_kept {
                // Unlock the old mapping first: the limit on locked memory may not allow for both.
                self.reservation.unlock_pages(at, piece.bytes);
                keep(&larger, piece.at, piece.bytes);
            }
            if let Backing::Growth(_) = piece.backing
                && piece.bytes >= HUGE_BYTES
            {
                // Some kernels do not split a huge page that is mapped twice.
                self.reservation.advise(at, piece.bytes, &[Advice::LinuxDontNeed]);
            }
        }
        let larger_bytes = larger.span().bytes;
        self.outgrown.push(Outgrown {
            reservation: std::mem::replace(&mut self.reservation, Arc::new(larger)),
            start: std::mem::take(&mut self.start),
            bytes_max: std::mem::replace(&mut self.bytes_max, larger_bytes),
        });
        Ok(())
    }
}

/// Maps a piece of a file at its offset from `start`. A large piece by which a table grows is
/// mapped in huge pages; any other in single pages, since a store to a slot dirties all of its
/// page.
fn map_file(
    reservation: &Reservation,
    start: u64,
    piece: MappedPiece,
    part: Part<'_>,
) -> io::Result<()> {
    let (at, bytes) = (start + piece.at, piece.bytes);
    reservation.map_file(at, bytes, part)?;
    let is_huge = matches!(piece.backing, Backing::Growth(_))
        && bytes >= HUGE_BYTES
        && ARE_SPLIT.get() != Some(&false);
    let advice = if is_huge { Advice::LinuxHugepage } else { Advice::Random };
    if bytes >= ADVISED_BYTES_MIN {
        reservation.advise(at, bytes, &[advice]);
    }
    Ok(())
}

/// Has the kernel keep pages in memory.
fn keep(reservation: &Reservation, at: u64, bytes: u64) {
    if reservation.lock_pages(at, bytes).is_err() {
        // Without the right to lock pages, use normal advice: then references count when the kernel
        // evicts pages, at the price of readahead around each fault.
        reservation.advise(at, bytes, &[Advice::Normal]);
    }
}

/// Lets the kernel take pages back.
fn release(reservation: &Reservation, at: u64, bytes: u64) {
    reservation.unlock_pages(at, bytes);
    if bytes >= ADVISED_BYTES_MIN {
        reservation.advise(at, bytes, &[Advice::Random]);
    }
}
