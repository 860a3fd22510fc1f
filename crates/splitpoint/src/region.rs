//! Windows of contiguous memory over scattered pieces of a file, and the view of its records.
//!
//! ```text
//! file     | header | B0 | O0 | log ... | B1 | log ... | B2 | O1 | log ...
//!                     |          |        |              |
//! buckets  | B0 | B1 | B2 | ... <--- contiguous by bucket number
//! ```
//!
//! A table doubles in eight steps, one piece of buckets each, so that it never asks for much at
//! once: the 1991 package's generations, whose overflow pages lie between them, with a window in
//! place of the arithmetic of `spares`. The live header lists where each piece is.
//!
//! View and windows move when they outgrow their address space: see [`growing`](crate::growing) for how
//! a reader is never behind the end of either. The live header stays where it is.
//!
//! # Invariants
//!
//! - A pointer is made only to a line that is mapped, or to bytes of the file before its end.
//! - The writer takes references to lines anew after it has reserved some: in memory, what is stored
//!   through an older one is lost. In a file both lead to the same page.
//! - A slice is made only of a record's bytes, which nobody writes once it is published, or of
//!   bytes that recovery reads before there is a writer.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::atomic::Ordering;
use crate::error::{Error, Result};
use crate::format::{
    Addr, GRANULE_BYTES, LIVE_BYTES, LIVE_OFFSET, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS,
    SegmentHeader, Superblock,
};
use crate::growing::Growing;
use crate::health::Health;
use crate::index::Lines;
use crate::index::line::{LINE_BYTES, Line, LineNumber};
use crate::index::overflow::LinePool;
use crate::index::shape::Shape;
use crate::linear::BucketIndex;
use crate::live::{LineWindow, Live, WORD_COUNT};
use crate::log::record::{Pair, Record, RecordHeader, RecordKind, ShortPut};
use crate::piece::{Piece, piece_count_for, piece_of};
use crate::prefaulter::Prefaulter;
use crate::residency::Residency;
use crate::space::{Extent, Space};
use crate::storage::open::io_error;
use crate::storage::{Backing, Room, Storage, WindowKind, is_of_device, no_room, prefetch};

/// Free extents from this size on are given back to the file system at a close.
const PUNCH_BYTES_MIN: u64 = 256 << 10;
/// What a file system that never writes in place must have left before a change: many times what
/// one dirties, since other programs take from it too.
const ROOM_BYTES_MIN: u64 = 16 << 20;
/// Bytes that are read and written again at a time.
const AGAIN_BYTES: u64 = 1 << 20;

/// A storage with its view, its windows and its live header.
#[derive(Debug)]
pub(crate) struct Region {
    storage: Box<dyn Storage>,
    /// The view, and the size of the file as far as this handle may read.
    view: Growing<u8>,
    live: *const crate::atomic::AtomicU64,
    /// The mapped lines of each window.
    buckets: Growing<Line>,
    overflow: Growing<Line>,
    /// Whether the index is memory of this handle, because the file may not be written.
    is_private: bool,
    residency: Option<Residency>,
    prefaulter: Prefaulter,
    health: Arc<Health>,
}

// SAFETY: the pointers lead into spans of `storage`, which is `Send + Sync` and owned here. What
// they lead to is read and written as atomics, or is immutable.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Takes a storage whose file has at least the header, with or without an index of its own.
    pub(crate) fn new(storage: Box<dyn Storage>, is_private: bool) -> Result<Self> {
        assert!(storage.file_bytes() >= crate::format::HEADER_BYTES);
        let backing = if is_private { Backing::Private } else { Backing::File(LIVE_OFFSET) };
        map_piece(&*storage, WindowKind::Live, 0, LIVE_BYTES, backing)?;
        let lines = |kind| Growing::new(storage.window(kind).base.cast(), 0);
        Ok(Self {
            view: Growing::new(storage.view().base, storage.file_bytes()),
            live: storage.window(WindowKind::Live).base.cast_const().cast(),
            buckets: lines(WindowKind::Buckets),
            overflow: lines(WindowKind::Overflow),
            storage,
            is_private,
            residency: None,
            prefaulter: Prefaulter::default(),
            health: Arc::default(),
        })
    }

    /// Bounds the resident bytes of the view.
    pub(crate) fn set_cache_bytes(&mut self, cache_bytes: u64) {
        self.residency = Some(Residency::new(cache_bytes));
    }

    #[inline]
    fn touch(&self, offset: u64, bytes: u64) {
        if let Some(residency) = &self.residency {
            residency.touch(offset, bytes, |at, bytes| self.storage.drop_resident(at, bytes));
        }
    }

    /// Goes on with an index in memory of this handle, because the file may not be written.
    pub(crate) fn into_private(mut self) -> Result<Self> {
        map_piece(self.storage(), WindowKind::Live, 0, LIVE_BYTES, Backing::Private)?;
        self.is_private = true;
        Ok(self)
    }

    /// Forgets the pieces that are mapped: the index is about to be built again.
    pub(crate) fn forget_pieces(&self) {
        for window in LineWindow::ALL {
            self.lines(window).cut(0);
        }
        self.storage.forget_pieces();
    }

    /// Returns the storage.
    pub(crate) fn storage(&self) -> &dyn Storage {
        &*self.storage
    }

    /// Returns whether the index is memory of this handle only.
    pub(crate) fn is_private(&self) -> bool {
        self.is_private
    }

    /// Returns the live header.
    #[inline]
    pub(crate) fn live(&self) -> Live<'_> {
        // SAFETY: `new` mapped the live window: LIVE_BYTES, aligned to a page; its words are
        // only ever used as atomics.
        let words = unsafe { &*self.live.cast::<[crate::atomic::AtomicU64; WORD_COUNT]>() };
        Live(words)
    }

    /// Returns the size of the file in bytes, as far as this handle may read.
    #[inline]
    pub(crate) fn file_bytes(&self) -> u64 {
        self.view.count()
    }

    /// Learns how long the file is now that another process is writing to. One thread at a time.
    pub(crate) fn see_size(&self) -> Result<()> {
        let file_bytes = self.write("read the size of", |storage| storage.see_size())?;
        self.view.set(self.storage.view().base, file_bytes);
        self.let_go_of_outgrown();
        Ok(())
    }

    /// Has the memory behind a view that has moved let go.
    fn let_go_of_outgrown(&self) {
        if let Some(work) = self.storage.outgrown_view() {
            self.prefaulter.ask(work);
        }
    }

    /// Returns bytes of the file that nobody writes: of a published record, of a segment header,
    /// of a segment of the log before its tail.
    #[inline]
    pub(crate) fn bytes(&self, what: &'static str, offset: u64, bytes: u64) -> Result<&[u8]> {
        let end = self.file_bytes();
        if offset.checked_add(bytes).is_none_or(|needed| needed > end) {
            return Err(outside(what, offset, end, bytes));
        }
        self.touch(offset, bytes);
        // SAFETY: the range ends before the end of the file, which was loaded before the base: all
        // of it is mapped for reading there.
        let start = unsafe { self.view.base().add(offset as usize) };
        // SAFETY: as above; the callers ask for ranges that nobody writes.
        Ok(unsafe { std::slice::from_raw_parts(start, bytes as usize) })
    }

    /// Returns the record at `addr`, which a slot or another record named: nothing has vouched
    /// for its bytes, but they lie within the file.
    #[inline]
    pub(crate) fn record(&self, addr: Addr) -> Result<Record<'_>> {
        self.record_before(addr.offset(), self.file_bytes())
    }

    /// Returns the record at `offset`, which must end at or before `end`.
    #[inline]
    pub(crate) fn record_before(&self, offset: u64, end: u64) -> Result<Record<'_>> {
        let first = self.bytes("record address", offset, 8)?;
        let head_bytes = RecordHeader::bytes_of_first(crate::format::u64_at(first, 0));
        let head =
            if head_bytes == 8 { first } else { self.bytes("record header", offset, head_bytes)? };
        let header = RecordHeader::decode(head, end.saturating_sub(offset), offset)?;
        let bytes = self.bytes("record size", offset, header.record_bytes())?;
        Ok(Record { header, bytes, offset })
    }

    /// Returns the key and value of the record that a slot names.
    #[inline]
    pub(crate) fn pair(&self, addr: Addr) -> Result<Pair<'_>> {
        match self.short_pair_before(addr.offset(), u64::MAX) {
            Some((pair, _)) => Ok(pair),
            None => self.long_pair(addr),
        }
    }

    /// Returns the pair of the record at `offset` with the size of the record in bytes, if it is
    /// short and ends before `end` and the end of the file.
    #[inline]
    #[expect(clippy::cast_ptr_alignment, reason = "offsets of records are multiples of 8")]
    pub(crate) fn short_pair_before(&self, offset: u64, end: u64) -> Option<(Pair<'_>, u64)> {
        let end = end.min(self.file_bytes());
        if offset + 8 > end {
            return None;
        }
        self.touch(offset, 8);
        let at = self.view.base().cast_const().wrapping_add(offset as usize);
        // SAFETY: the word ends before the end of the file, which was loaded before the base, so it is
        // mapped; and offsets of records are multiples of 8. A hostile slot may lead to bytes that the
        // writer is storing, so this first look is atomic.
        let first = unsafe { &*at.cast::<AtomicU64>() }.load(Ordering::Relaxed);
        let short = ShortPut::of_first(u64::from_le(first))?;
        let record_bytes = short.record_bytes();
        if offset + record_bytes > end {
            return None;
        }
        let at = at.wrapping_add(short.header_bytes as usize);
        // SAFETY: the record ends before the end of the file; one that is published is never
        // written again.
        let key = unsafe { std::slice::from_raw_parts(at, short.key_bytes as usize) };
        let at = at.wrapping_add(key.len());
        // SAFETY: as above.
        let value = unsafe { std::slice::from_raw_parts(at, short.value_bytes as usize) };
        Some((Pair { key, value }, record_bytes))
    }

    #[cold]
    fn long_pair(&self, addr: Addr) -> Result<Pair<'_>> {
        let record = self.version(addr)?;
        Ok(Pair { key: record.key(), value: record.value() })
    }

    /// Returns the record that a slot or the `prev` of another names: one with a key and a value.
    pub(crate) fn version(&self, addr: Addr) -> Result<Record<'_>> {
        let record = self.record(addr)?;
        if matches!(record.header.kind, RecordKind::Put | RecordKind::Big) {
            return Ok(record);
        }
        Err(Error::Corrupt {
            what: "record kind",
            offset: record.offset + 4,
            expected: RecordKind::Put as u64,
            found: record.header.kind as u64,
        })
    }

    /// Returns the header of the segment at `offset`.
    pub(crate) fn segment(&self, offset: u64) -> Result<SegmentHeader> {
        if offset < crate::format::HEADER_BYTES || !offset.is_multiple_of(GRANULE_BYTES) {
            let expected = offset / GRANULE_BYTES * GRANULE_BYTES;
            return Err(Error::Corrupt { what: "segment offset", offset, expected, found: offset });
        }
        let bytes = self.bytes("segment offset", offset, SegmentHeader::BYTES)?;
        SegmentHeader::decode(bytes, offset, self.file_bytes())
    }

    /// Asks for the cache line at the beginning of a record, which will be read soon.
    #[inline]
    pub(crate) fn prefetch_record(&self, addr: Addr) {
        prefetch(self.view.base().wrapping_add(addr.offset() as usize));
    }

    /// Asks for the first cache lines of a range of the log, which will be read soon.
    #[inline]
    pub(crate) fn prefetch_range(&self, offset: u64, bytes: u64) {
        let at = self.view.base().wrapping_add(offset as usize);
        prefetch(at);
        if bytes > 64 {
            prefetch(at.wrapping_add(64));
        }
    }

    /// Asks for the line of a bucket, which will be read soon.
    #[inline]
    pub(crate) fn prefetch_bucket(&self, bucket: BucketIndex) {
        prefetch(self.buckets.base().wrapping_add(bucket.0 as usize).cast());
    }

    /// Maps the pieces that the live header lists.
    pub(crate) fn map_listed_pieces(&self) -> Result<()> {
        for window in LineWindow::ALL {
            for piece in 0..self.live().piece_count(window) {
                let offset = self.live().piece(window, piece) * GRANULE_BYTES;
                self.map_one(window, piece, Backing::File(offset))?;
            }
        }
        Ok(())
    }

    /// Makes a window have at least `line_count` lines; new ones are empty. The writer's.
    pub(crate) fn reserve_lines(
        &self,
        window: LineWindow,
        line_count: u64,
        space: &mut Space,
    ) -> Result<()> {
        let clear = |storage: &dyn Storage, offset, bytes| storage.clear_range(offset, bytes);
        self.take_lines(window, line_count, space, clear)
    }

    /// As [`reserve_lines`](Self::reserve_lines), but new lines have anything: for who is about to
    /// write all of them.
    pub(crate) fn claim_lines(
        &self,
        window: LineWindow,
        line_count: u64,
        space: &mut Space,
    ) -> Result<()> {
        let claim = |storage: &dyn Storage, offset, bytes| storage.claim_range(offset, bytes);
        self.take_lines(window, line_count, space, claim)
    }

    fn take_lines(
        &self,
        window: LineWindow,
        line_count: u64,
        space: &mut Space,
        make_ready: impl Fn(&dyn Storage, u64, u64) -> std::io::Result<()>,
    ) -> Result<()> {
        while self.line_count(window) < line_count {
            let piece = self.live().piece_count(window);
            let bytes = piece_of(piece).line_count * LINE_BYTES;
            if self.is_private {
                self.map_one(window, piece, Backing::Private)?;
                self.live().add_piece(window, 0);
                continue;
            }
            let offset = self.allocate(bytes, GRANULE_BYTES, space)?;
            // A piece of the file may have been something else before.
            let mapped = self
                .write("clear index piece", |storage| make_ready(storage, offset, bytes))
                .and_then(|()| self.map_one(window, piece, Backing::File(offset)));
            if let Err(error) = mapped {
                self.release(offset, bytes, space);
                return Err(error);
            }
            self.live().add_piece(window, offset / GRANULE_BYTES);
        }
        Ok(())
    }

    /// Makes lines ahead of the writer and has the faults of their pages taken. What cannot be done
    /// now is done when the lines are needed.
    pub(crate) fn prepare_lines(&self, window: LineWindow, lines: Range<u64>, space: &mut Space) {
        if self.reserve_lines(window, lines.end, space).is_err() {
            return;
        }
        let (at, bytes) = (lines.start * LINE_BYTES, (lines.end - lines.start) * LINE_BYTES);
        if let Some(pages) = self.storage.window_pages(window_kind(window), at, bytes) {
            self.prefaulter.ask(Box::new(move || pages.fault_in_slices()));
        }
    }

    /// Returns the thread that makes memory ready.
    pub(crate) fn prefaulter(&self) -> &Prefaulter {
        &self.prefaulter
    }

    /// Makes sure that stores to the live header, the index and `tail` of the file find their blocks,
    /// or that the file system has some left.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if there is no room: a store could be a signal.
    pub(crate) fn claim_stores(&self, tail: Option<Range<u64>>) -> Result<Room> {
        let live = std::iter::once(LIVE_OFFSET..LIVE_OFFSET + LIVE_BYTES);
        let pieces = LineWindow::ALL.into_iter().flat_map(|window| {
            let pieces = 0..self.live().piece_count(window);
            pieces.map(move |piece| {
                let start = self.live().piece(window, piece) * GRANULE_BYTES;
                start..start + piece_of(piece).line_count * LINE_BYTES
            })
        });
        let pieces = pieces.filter(|_| !self.is_private);
        let mut room = Room::Claimed;
        for range in live.chain(pieces).chain(tail) {
            let claimed = self.write("claim blocks of", |storage| {
                storage.claim_stores(range.start, range.end - range.start)
            })?;
            if claimed == Room::OfFileSystem {
                room = claimed;
            }
        }
        if room == Room::OfFileSystem {
            self.require_room()?;
        }
        Ok(room)
    }

    /// As [`claim_stores`](Self::claim_stores), for the live header alone.
    pub(crate) fn claim_live(&self) -> Result<()> {
        let action = "claim blocks of";
        match self.write(action, |storage| storage.claim_stores(LIVE_OFFSET, LIVE_BYTES))? {
            Room::Claimed => Ok(()),
            Room::OfFileSystem => self.require_room(),
        }
    }

    /// Returns an error unless the file system has room for the stores of some changes.
    pub(crate) fn require_room(&self) -> Result<()> {
        self.write("keep room for the pages of", |storage| {
            if storage.free_bytes()? >= ROOM_BYTES_MIN {
                return Ok(());
            }
            Err(no_room())
        })
    }

    /// Says that these lines of a window are about to be written.
    pub(crate) fn populate(&self, window: LineWindow, lines: Range<u64>) {
        assert!(lines.start <= lines.end && lines.end <= self.line_count(window));
        let granule = GRANULE_BYTES / LINE_BYTES;
        let start = lines.start / granule * granule * LINE_BYTES;
        let bytes = lines.end * LINE_BYTES - start;
        self.storage.populate(window_kind(window), start, bytes);
    }

    /// Makes lines empty that nobody looks at yet.
    pub(crate) fn erase_lines(&self, window: LineWindow, lines: Range<u64>) {
        assert!(lines.end <= self.line_count(window));
        let base = self.lines(window).base();
        for number in lines {
            // SAFETY: the line is mapped, as was just checked.
            unsafe { &*base.wrapping_add(number as usize) }.erase();
        }
    }

    fn map_one(&self, window: LineWindow, piece: usize, backing: Backing) -> Result<()> {
        let Piece { first_line, line_count } = piece_of(piece);
        let kind = window_kind(window);
        let (at, bytes) = (first_line * LINE_BYTES, line_count * LINE_BYTES);
        map_piece(self.storage(), kind, at, bytes, backing)?;
        let base = self.storage.window(kind).base;
        self.lines(window).set(base.cast(), first_line + line_count);
        Ok(())
    }

    fn lines(&self, window: LineWindow) -> &Growing<Line> {
        match window {
            LineWindow::Buckets => &self.buckets,
            LineWindow::Overflow => &self.overflow,
        }
    }

    /// Returns how many lines of a window are mapped.
    pub(crate) fn line_count(&self, window: LineWindow) -> u64 {
        self.lines(window).count()
    }

    /// Returns the size in bytes of the buckets and the overflow lines that are in use.
    pub(crate) fn index_bytes(&self) -> u64 {
        let shape = Shape::of_word(self.shape().load(Ordering::Relaxed));
        (shape.geometry.bucket_count() + self.live().lines_used()) * LINE_BYTES
    }

    /// Takes `bytes` of the file, aligned to `alignment`, and makes the file that long.
    pub(crate) fn allocate(&self, bytes: u64, alignment: u64, space: &mut Space) -> Result<u64> {
        self.allocate_noted(bytes, alignment, space, |_| {})
    }

    /// As [`allocate`](Self::allocate); `note` is told of the granules before they are taken.
    pub(crate) fn allocate_noted(
        &self,
        bytes: u64,
        alignment: u64,
        space: &mut Space,
        note: impl FnOnce(Extent),
    ) -> Result<u64> {
        let (count, alignment) = (bytes / GRANULE_BYTES, alignment / GRANULE_BYTES);
        self.change_space(bytes, space, |space| space.allocate(count, alignment), note)
    }

    fn change_space(
        &self,
        bytes: u64,
        space: &mut Space,
        take: impl FnOnce(&mut Space) -> u64,
        note: impl FnOnce(Extent),
    ) -> Result<u64> {
        let mut after = space.clone();
        let granule = take(&mut after);
        let end = after.end() * GRANULE_BYTES;
        if end > crate::format::FILE_BYTES_MAX {
            return Err(Error::Full { what: "address space of the file", bytes });
        }
        self.write("extend", |storage| storage.grow(end))?;
        self.view.grow(self.storage.view().base, end);
        self.let_go_of_outgrown();
        note(Extent { granule, count: bytes / GRANULE_BYTES });
        *space = after;
        self.live().set_space(space);
        Ok(granule * GRANULE_BYTES)
    }

    /// Sets `bytes` of the file aside, aligned to their own number, and makes the file that long:
    /// they count as free until [`take_aside`](Self::take_aside).
    pub(crate) fn set_aside(&self, bytes: u64, space: &mut Space) -> Result<u64> {
        let count = bytes / GRANULE_BYTES;
        self.change_space(bytes, space, |space| space.set_aside(count, count), |_| {})
    }

    /// Takes what is set aside.
    pub(crate) fn take_aside(&self, space: &mut Space) {
        space.take_aside();
        self.live().set_space(space);
    }

    /// Lets others have what is set aside, if anything is.
    pub(crate) fn release_aside(&self, space: &mut Space) {
        space.release_aside();
        self.live().set_space(space);
    }

    /// Gives back what [`allocate`](Self::allocate) took.
    pub(crate) fn release(&self, offset: u64, bytes: u64, space: &mut Space) {
        space.add_free(offset / GRANULE_BYTES, bytes / GRANULE_BYTES);
        self.live().set_space(space);
    }

    /// Gives up the free granules at the end of the file; [`shrink`](Self::shrink) does it.
    pub(crate) fn trim(&self, space: &mut Space) {
        if space.trim() {
            self.live().set_space(space);
        }
        // What a recovery left out may lie behind the end.
        self.view.cut(space.end() * GRANULE_BYTES);
    }

    /// Gives the file system the end of the file that was trimmed, and the larger free extents.
    /// Only when nothing on the disk names them.
    pub(crate) fn shrink(&self, space: &Space) -> Result<()> {
        let end = space.end() * GRANULE_BYTES;
        if end < self.storage.file_bytes() {
            self.write("truncate", |storage| storage.truncate(end))?;
        }
        for extent in space.free() {
            let (offset, bytes) = (extent.granule * GRANULE_BYTES, extent.count * GRANULE_BYTES);
            if bytes >= PUNCH_BYTES_MIN {
                self.write("punch holes into", |storage| storage.punch(offset, bytes))?;
            }
        }
        Ok(())
    }

    /// Does something to the storage, with the action and the path in the error.
    pub(crate) fn write<T>(
        &self,
        action: &'static str,
        what: impl FnOnce(&dyn Storage) -> std::io::Result<T>,
    ) -> Result<T> {
        what(self.storage()).map_err(|source| {
            let is_of_device = is_of_device(&source);
            let error = io_error(action, self.storage.path(), source);
            if is_of_device {
                self.health.fail(&error);
            }
            error
        })
    }

    /// Returns the health of the handle: what a call to the storage says of it is noted.
    pub(crate) fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// Makes a range of the file durable. A failure is remembered in the live header, for the next
    /// process: see [`write_again`](Self::write_again).
    pub(crate) fn sync_range(&self, offset: u64, bytes: u64) -> Result<()> {
        let synced = self.write("sync", |storage| storage.sync_range(offset, bytes));
        if synced.is_err() && self.can_note_failure() {
            self.live().set_sync_failed();
        }
        synced
    }

    /// Returns whether the page of the live header can be stored to: a file system that has stopped
    /// may refuse it with a signal.
    fn can_note_failure(&self) -> bool {
        let pages = self.storage.window_pages(WindowKind::Live, 0, LIVE_BYTES);
        pages.is_none_or(|pages| pages.can_be_stored_to())
    }

    /// Writes what a range of the file has over itself: after a failed sync its pages may be marked
    /// clean without being durable, and the next sync writes only what is dirty.
    pub(crate) fn write_again(&self, offset: u64, bytes: u64) -> Result<()> {
        let end = offset + bytes;
        for at in (offset..end).step_by(AGAIN_BYTES as usize) {
            let content = self.storage.read(at, AGAIN_BYTES.min(end - at));
            self.write("write to", |storage| storage.write_at(at, &content))?;
        }
        Ok(())
    }

    /// Writes the superblock over the older copy and waits until it is durable.
    pub(crate) fn write_superblock(
        &self,
        superblock: &mut Superblock,
        is_clean: bool,
    ) -> Result<()> {
        let next = self.place_superblock(superblock, is_clean)?;
        self.sync_range(next.offset(), SUPERBLOCK_BYTES)?;
        *superblock = next;
        Ok(())
    }

    /// As [`write_superblock`](Self::write_superblock), "not clean" and over both copies at once:
    /// for a store in which nothing is durable yet, so that a torn one costs nothing.
    pub(crate) fn write_both_superblocks(&self, superblock: &mut Superblock) -> Result<()> {
        let first = self.place_superblock(superblock, false)?;
        let second = self.place_superblock(&first, false)?;
        self.sync_range(0, SUPERBLOCK_OFFSETS[1] + SUPERBLOCK_BYTES)?;
        *superblock = second;
        Ok(())
    }

    /// Writes the superblock over the older copy, and returns it as it was written.
    pub(crate) fn place_superblock(
        &self,
        superblock: &Superblock,
        is_clean: bool,
    ) -> Result<Superblock> {
        let next = Superblock {
            generation: superblock.generation + 1,
            is_clean,
            live_crc: if is_clean { self.live().crc() } else { 0 },
            file_bytes: self.file_bytes(),
            ..superblock.clone()
        };
        if !self.storage.is_volatile() {
            let action = "write the superblock of";
            self.write(action, |storage| storage.write_at(next.offset(), &next.encode()))?;
        }
        Ok(next)
    }

    /// Returns the offset in the file of a bucket or an overflow line, for messages.
    pub(crate) fn line_offset(&self, window: LineWindow, line: u64) -> u64 {
        let piece = piece_count_for(line + 1) - 1;
        let start = self.live().piece(window, piece) * GRANULE_BYTES;
        start + (line - piece_of(piece).first_line) * LINE_BYTES
    }
}

fn window_kind(window: LineWindow) -> WindowKind {
    match window {
        LineWindow::Buckets => WindowKind::Buckets,
        LineWindow::Overflow => WindowKind::Overflow,
    }
}

#[cold]
fn outside(what: &'static str, offset: u64, end: u64, bytes: u64) -> Error {
    Error::Corrupt { what, offset, expected: end, found: offset.saturating_add(bytes) }
}

fn map_piece(
    storage: &dyn Storage,
    kind: WindowKind,
    at: u64,
    bytes: u64,
    backing: Backing,
) -> Result<()> {
    let mapped = storage.map_piece(kind, at, bytes, backing);
    mapped.map_err(|source| io_error("map index piece of", storage.path(), source))
}

impl Lines for Region {
    #[inline]
    fn shape(&self) -> &crate::atomic::AtomicU64 {
        self.live().shape()
    }

    #[inline]
    fn bucket(&self, bucket: BucketIndex) -> &Line {
        debug_assert!(bucket.0 < self.line_count(LineWindow::Buckets));
        let line = self.buckets.base().wrapping_add(bucket.0 as usize);
        // SAFETY: the shape never has a bucket that is not mapped: `Live::validate` proved it of
        // the file's, and the writer maps a piece, and publishes where, before it publishes a bucket of
        // it. The caller has loaded the shape before this loads the base.
        unsafe { &*line }
    }

    #[inline]
    fn overflow(&self, line: LineNumber) -> Option<&Line> {
        let index = u64::from(line.0).checked_sub(1)?;
        if index >= self.line_count(LineWindow::Overflow) {
            return None;
        }
        let line = self.overflow.base().wrapping_add(index as usize);
        // SAFETY: the line is mapped, as was just checked, before the base was loaded.
        Some(unsafe { &*line })
    }

    fn overflow_line_count(&self) -> u64 {
        self.line_count(LineWindow::Overflow)
    }
}

/// The overflow lines of a region, as the live header keeps them.
#[derive(Debug)]
pub(crate) struct LivePool<'a>(pub(crate) &'a Region);

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
        // The counter of a killed process may be behind: start again with an empty list.
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

#[cfg(all(test, not(loom)))]
mod tests {

    /// Reads a file of 48 MiB at random under a bound of 8 MiB, then asks the kernel how much of
    /// it this process has mapped.
    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn cache_bytes_bounds_what_the_kernel_has_mapped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bounded.spt");
        let options = crate::Options::new().cache_bytes(8 << 20);
        let db = options.open(&path).unwrap();
        let value = vec![7; 1000];
        for i in 0..48_000_u64 {
            db.put(&i.to_le_bytes(), &value).unwrap();
        }
        db.close().unwrap();
        let db = options.open(&path).unwrap();
        for i in 0..48_000_u64 {
            let key = (i * 7919 % 48_000).to_le_bytes();
            assert_eq!(db.get(&key).unwrap().as_deref(), Some(&value[..]));
        }
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_view = false;
        let mut resident_kb = 0;
        for line in maps.lines() {
            if line.contains('-') && line.split(' ').nth(1).is_some_and(|flags| flags.len() == 4) {
                is_view = line.contains("bounded.spt") && line.contains("r--s");
            } else if let Some(kb) = line.strip_prefix("Rss:").filter(|_| is_view) {
                resident_kb += kb.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
            }
        }
        assert!(resident_kb <= 10 << 10, "{resident_kb} kB of the view are resident");
        assert!(resident_kb > 0);
    }
}
