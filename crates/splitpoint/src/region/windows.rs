//! `Windows`: contiguous memory over the scattered pieces of an index.
//!
//! ```text
//! file     | header | B0 | O0 | log ... | B1 | log ... | B2 | O1 | log ...
//!                     |          |        |              |
//! buckets  | B0 | B1 | B2 | ... <--- contiguous by bucket number
//! ```
//!
//! A table doubles in eight steps, one piece of buckets each, so that it never needs much space at
//! once. In db 1.85 such a step is a generation, with overflow pages between two of them; a window
//! replaces its arithmetic of `spares`. The live header lists the first granule of each piece.
//!
//! # Invariants
//!
//! - A pointer is created only to mapped memory: a line, or zeros in the place of a piece that was
//!   removed.
//! - After reserving lines, the writer must get its references to lines again, because the window
//!   may have moved. In a file, old and new references lead to the same page; in memory, a store
//!   through an old reference is lost. So in memory the epoch of the [`Shape`] changes when a
//!   window has moved, before the next store to a line.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{LiveHeader, map_piece};
use crate::atomic::{AtomicU64, Ordering};
use crate::error::{Error, Result};
use crate::format::GRANULE_BYTES;
use crate::growing::Growing;
use crate::index::Lines;
use crate::index::line::{LINE_BYTES, Line, LineNumber};
use crate::index::overflow::LinePool;
use crate::index::shape::Shape;
use crate::index::split::change_epoch;
use crate::linear::BucketIndex;
use crate::live::{LineWindow, Live};
use crate::piece::{Piece, piece_count_for, piece_of};
use crate::storage::failure::io_error;
use crate::storage::{Backing, Pages, Storage, WindowKind, prefetch};

/// Bytes copied at a time, when a piece is moved.
const COPIED_BYTES: usize = 1 << 20;

/// The buckets and overflow lines of an index, and the live header, which knows how many are in
/// use.
#[derive(Debug)]
pub(crate) struct Windows {
    live: LiveHeader,
    /// The mapped lines of each window.
    buckets: Growing<Line>,
    overflow: Growing<Line>,
    /// For each window, the first granules of the mapped pieces. Locked while a piece is added,
    /// moved or removed: on a handle that takes turns, reading threads follow the changes of other
    /// handles while one thread writes.
    shown: Mutex<[Vec<u64>; 2]>,
    /// Keeps the mappings alive.
    storage: Arc<dyn Storage>,
}

impl Windows {
    pub(super) fn new(storage: Arc<dyn Storage>, live: LiveHeader) -> Self {
        let lines = |kind| Growing::new(storage.window(kind).base.cast(), 0);
        let (buckets, overflow) = (lines(WindowKind::Buckets), lines(WindowKind::Overflow));
        Self { live, buckets, overflow, shown: Mutex::default(), storage }
    }

    #[inline]
    fn live(&self) -> Live<'_> {
        self.live.of(&self.storage)
    }

    /// Maps those pieces of the live header that are not mapped yet.
    pub(crate) fn map_listed_pieces(&self) -> Result<()> {
        let mut shown = self.shown();
        for window in LineWindow::ALL {
            let listed = self.listed_pieces(window);
            self.show(window, &listed, &mut shown[window.number()])?;
        }
        Ok(())
    }

    /// Locks the list of mapped pieces, and returns their first granules.
    pub(super) fn shown(&self) -> MutexGuard<'_, [Vec<u64>; 2]> {
        // Ignore poison: the list is updated after each step, so it is always consistent.
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Maps into a window the pieces that begin at the granules `listed`, all within the file;
    /// `shown` has the pieces mapped so far.
    pub(super) fn show(
        &self,
        window: LineWindow,
        listed: &[u64],
        shown: &mut Vec<u64>,
    ) -> Result<()> {
        let failed = |action| move |source| io_error(action, self.storage.path(), source);
        while shown.len() > listed.len() {
            self.unmap_last(window, shown.len() - 1).map_err(failed("unmap index space of"))?;
            shown.pop();
        }
        for (piece, (before, &granule)) in shown.iter_mut().zip(listed).enumerate() {
            if *before != granule {
                let moved = self.move_piece(window, piece, granule * GRANULE_BYTES);
                moved.map_err(failed("map the index of"))?;
                *before = granule;
            }
        }
        let new = &listed[shown.len()..];
        if !new.is_empty() {
            self.map_new(window, shown.len(), new)?;
            shown.extend_from_slice(new);
        }
        Ok(())
    }

    /// Maps the pieces from number `first` on, which begin at the granules `listed`.
    fn map_new(&self, window: LineWindow, first: usize, listed: &[u64]) -> Result<()> {
        let bytes_of = |piece| piece_of(piece).line_count * LINE_BYTES;
        let pieces: Vec<(u64, u64)> = (first..)
            .zip(listed)
            .map(|(piece, &granule)| (bytes_of(piece), granule * GRANULE_BYTES))
            .collect();
        let kind = kind_of(window);
        let at = piece_of(first).first_line * LINE_BYTES;
        let mapped = self.storage.map_pieces(kind, at, &pieces);
        mapped.map_err(|source| io_error("map the index of", self.storage.path(), source))?;
        self.set_mapped(window, first + listed.len() - 1);
        Ok(())
    }

    /// Returns the first granules of the pieces of a window, as the live header lists them.
    pub(crate) fn listed_pieces(&self, window: LineWindow) -> Vec<u64> {
        let live = self.live();
        (0..live.piece_count(window)).map(|piece| live.piece(window, piece)).collect()
    }

    /// Drops the pieces that are mapped, because the index is about to be rebuilt.
    pub(crate) fn forget_pieces(&self) {
        let mut shown = self.shown();
        for window in LineWindow::ALL {
            self.lines(window).cut(0);
            shown[window.number()].clear();
        }
        self.storage.forget_pieces();
    }

    pub(super) fn map_one(&self, window: LineWindow, piece: usize, backing: Backing) -> Result<()> {
        let Piece { first_line, line_count } = piece_of(piece);
        let kind = kind_of(window);
        let (at, bytes) = (first_line * LINE_BYTES, line_count * LINE_BYTES);
        map_piece(&*self.storage, kind, at, bytes, backing)?;
        self.set_mapped(window, piece);
        Ok(())
    }

    /// Notes that a window is mapped up to the end of a piece.
    fn set_mapped(&self, window: LineWindow, last: usize) {
        let Piece { first_line, line_count } = piece_of(last);
        let base = self.storage.window(kind_of(window)).base.cast();
        let has_moved = base != self.lines(window).base();
        self.lines(window).set(base, first_line + line_count);
        if has_moved && self.storage.is_volatile() {
            // Readers must not take slots of the old copy for those of now.
            change_epoch(self);
        }
    }

    /// Lets go of the last piece of a window, of which no line is in use. Readers that stray there, led
    /// by what was published before, find empty lines or no lines, and look at the shape again.
    pub(super) fn unmap_last(&self, window: LineWindow, piece: usize) -> std::io::Result<()> {
        let Piece { first_line, line_count } = piece_of(piece);
        debug_assert_eq!(self.line_count(window), first_line + line_count, "the last one");
        let (at, bytes) = (first_line * LINE_BYTES, line_count * LINE_BYTES);
        self.storage.unmap_piece(kind_of(window), at, bytes)?;
        self.lines(window).cut(first_line);
        Ok(())
    }

    /// Copies a piece to another place in the file. The writer stores to no line meanwhile.
    pub(super) fn copy_piece(
        &self,
        window: LineWindow,
        piece: usize,
        offset: u64,
    ) -> std::io::Result<()> {
        let Piece { first_line, line_count } = piece_of(piece);
        let bytes = line_count * LINE_BYTES;
        debug_assert!(first_line + line_count <= self.line_count(window), "it is mapped");
        let from = self.lines(window).base().wrapping_add(first_line as usize).cast::<u8>();
        let mut content = Vec::new();
        for at in (0..bytes).step_by(COPIED_BYTES) {
            content.resize(COPIED_BYTES.min((bytes - at) as usize), 0);
            // SAFETY: the piece is mapped, as was just checked, and only the writer stores to it. A raw
            // copy needs no reference to lines that others read.
            unsafe {
                from.wrapping_add(at as usize)
                    .copy_to_nonoverlapping(content.as_mut_ptr(), content.len());
            }
            self.storage.write_at(offset + at, &content)?;
        }
        Ok(())
    }

    /// Shows a piece from another place in the file, to which it was copied.
    pub(super) fn move_piece(
        &self,
        window: LineWindow,
        piece: usize,
        offset: u64,
    ) -> std::io::Result<()> {
        let Piece { first_line, line_count } = piece_of(piece);
        let (at, bytes) = (first_line * LINE_BYTES, line_count * LINE_BYTES);
        self.storage.move_piece(kind_of(window), at, bytes, offset)
    }

    fn lines(&self, window: LineWindow) -> &Growing<Line> {
        match window {
            LineWindow::Buckets => &self.buckets,
            LineWindow::Overflow => &self.overflow,
        }
    }

    /// Returns the number of mapped lines of a window.
    pub(crate) fn line_count(&self, window: LineWindow) -> u64 {
        self.lines(window).count()
    }

    /// Returns the size in bytes of the buckets and the overflow lines that are in use.
    pub(crate) fn index_bytes(&self) -> u64 {
        (self.bucket_count() + self.live().lines_used()) * LINE_BYTES
    }

    /// Returns the number of buckets. For the writer.
    pub(super) fn bucket_count(&self) -> u64 {
        Shape::of_word(self.shape().load(Ordering::Relaxed)).geometry.bucket_count()
    }

    /// Returns the offset in the file of a bucket line or an overflow line, for messages.
    pub(crate) fn line_offset(&self, window: LineWindow, line: u64) -> u64 {
        let piece = piece_count_for(line + 1) - 1;
        let start = self.live().piece(window, piece) * GRANULE_BYTES;
        start + (line - piece_of(piece).first_line) * LINE_BYTES
    }

    /// Returns a copy of a line of a file, read by [`Storage::read_scattered`]. What was found in several
    /// counts once [`vouch_for_copies`](Self::vouch_for_copies) has returned.
    pub(crate) fn copy_of(&self, window: LineWindow, line: u64) -> Result<Line> {
        let line_count = self.line_count(window);
        if line >= line_count {
            let (what, offset) = ("line number", crate::format::LIVE_OFFSET);
            return Err(Error::Corrupt { what, offset, expected: line_count, found: line });
        }
        let mut bytes = [0; LINE_BYTES as usize];
        let read = self.storage.read_scattered(self.line_offset(window, line), &mut bytes);
        read.map_err(|source| io_error("read the index of", self.storage.path(), source))?;
        Ok(Line::of_bytes(&bytes))
    }

    /// Returns an error if the copies may be of another file, which has got the descriptor of this one.
    pub(crate) fn vouch_for_copies(&self) -> Result<()> {
        let is_own = self.storage.vouch_for_reads();
        is_own.map_err(|source| io_error("read the index of", self.storage.path(), source))
    }

    /// Returns the pages of lines of a window, if their faults can be taken ahead.
    pub(super) fn pages(&self, window: LineWindow, lines: Range<u64>) -> Option<Pages> {
        let (at, bytes) = (lines.start * LINE_BYTES, (lines.end - lines.start) * LINE_BYTES);
        self.storage.window_pages(kind_of(window), at, bytes)
    }

    /// Takes the page faults of lines that are about to be written.
    pub(crate) fn populate(&self, window: LineWindow, lines: Range<u64>) {
        assert!(lines.start <= lines.end && lines.end <= self.line_count(window));
        let granule = GRANULE_BYTES / LINE_BYTES;
        let start = lines.start / granule * granule * LINE_BYTES;
        let bytes = lines.end * LINE_BYTES - start;
        self.storage.populate(kind_of(window), start, bytes);
    }

    /// Empties lines that no reader looks at yet.
    pub(crate) fn erase_lines(&self, window: LineWindow, lines: Range<u64>) {
        assert!(lines.end <= self.line_count(window));
        let base = self.lines(window).base();
        for number in lines {
            // SAFETY: the line is mapped, as was just checked.
            unsafe { &*base.wrapping_add(number as usize) }.erase();
        }
    }

    /// Prefetches the line of a bucket.
    #[inline]
    pub(crate) fn prefetch_bucket(&self, bucket: BucketIndex) {
        prefetch(self.buckets.base().wrapping_add(bucket.0 as usize).cast());
    }

    /// Prefetches the line that continues a bucket, if it has one.
    #[inline]
    pub(crate) fn prefetch_second_line(&self, bucket: BucketIndex) {
        if let Some(line) = self.bucket(bucket).next().and_then(|next| self.overflow(next)) {
            prefetch(std::ptr::from_ref(line).cast());
        }
    }
}

fn kind_of(window: LineWindow) -> WindowKind {
    match window {
        LineWindow::Buckets => WindowKind::Buckets,
        LineWindow::Overflow => WindowKind::Overflow,
    }
}

impl Lines for Windows {
    #[inline]
    fn shape(&self) -> &AtomicU64 {
        self.live().shape()
    }

    #[inline]
    fn bucket(&self, bucket: BucketIndex) -> &Line {
        let line = self.buckets.base().wrapping_add(bucket.0 as usize);
        // SAFETY: every bucket of the shape is mapped. `Live::validate` proved it for the shape in
        // the file; the writer maps a piece and publishes its base before it publishes a bucket in
        // it, and the caller has loaded the shape before this loads the base; on a handle that
        // reads beside a writer, `Followed` has checked it. A reader with an older shape may reach
        // into a piece that was removed: zeros are mapped in its place, and the window moves only
        // when it outgrows every size that it ever had.
        unsafe { &*line }
    }

    #[inline]
    fn overflow(&self, line: LineNumber) -> Option<&Line> {
        let index = u64::from(line.0).checked_sub(1)?;
        if index >= self.line_count(LineWindow::Overflow) {
            return None;
        }
        let line = self.overflow.base().wrapping_add(index as usize);
        // SAFETY: the number was just checked against the count of mapped lines, which was loaded
        // before the base, so the base covers the line (see `growing`).
        Some(unsafe { &*line })
    }

    fn overflow_line_count(&self) -> u64 {
        self.line_count(LineWindow::Overflow)
    }
}

/// The free overflow lines, as the live header lists them.
#[derive(Debug)]
pub(crate) struct LivePool<'a>(pub(crate) &'a Windows);

impl LivePool<'_> {
    /// Begins anew if no line is in use, and returns whether that is so.
    pub(super) fn reset_if_unused(&mut self) -> bool {
        let live = self.0.live();
        if live.free_lines().1 != live.lines_used() {
            return false;
        }
        // Until the list is empty, it names lines that have not been taken, so a header that a killed
        // process leaves is not valid, and the index is built again. In the other order the next process
        // would take all lines for used.
        live.set_lines_used(0);
        live.set_free_lines(None, 0);
        true
    }
}

impl LinePool for LivePool<'_> {
    fn take(&mut self) -> Option<LineNumber> {
        let live = self.0.live();
        if let (Some(first), count) = live.free_lines() {
            let line = self.0.overflow(first)?;
            live.set_free_lines(line.next_free(), count.saturating_sub(1));
            line.clear();
            return Some(first);
        }
        let used = live.lines_used();
        let number = LineNumber(u32::try_from(used + 1).ok()?);
        let line = self.0.overflow(number)?;
        live.set_lines_used(used + 1);
        // The counter of a killed process may be too low, so start again with an empty list.
        live.set_free_lines(None, 0);
        line.clear();
        Some(number)
    }

    fn give(&mut self, number: LineNumber) {
        let live = self.0.live();
        let (first, count) = live.free_lines();
        if let Some(line) = self.0.overflow(number) {
            line.set_next_free(first);
            live.set_free_lines(Some(number), count + 1);
        }
    }

    fn free_count(&self) -> u64 {
        let unused = self.0.line_count(LineWindow::Overflow) - self.0.live().lines_used();
        self.0.live().free_lines().1 + unused
    }
}
