//! `Extents`: allocates the granules of the file, and knows which are free.
//!
//! # Invariants
//!
//! - After every call the live header has the list of [`Space`], so a process killed between two
//!   calls leaves no granule with two uses.
//! - Each handle that writes has one, protected by the writer's lock.
//! - From the first change on, the [`SegmentTable`] has every segment with records. A new segment
//!   is added once the log names it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::Region;
use super::reserve::Reserve;
use crate::error::{Error, Result};
use crate::format::{
    FILE_BYTES_MAX, GRANULE_BYTES, HEADER_BYTES, SegmentHeader, SegmentKind, Superblock, u64_at,
};
use crate::index::line::LINE_BYTES;
use crate::index::overflow::LinePool as _;
use crate::live::{CommitState, LineWindow};
use crate::piece::{lines_of, piece_of};
use crate::region::LivePool;
use crate::segments::{SegmentTable, SegmentUse};
use crate::space::{Extent, Space};
use crate::storage::reader_table::is_glanced_at;
use crate::storage::{Backing, HUGE_BYTES, Storage, WordMap};
use crate::testing::meanwhile::{self, Point};
use crate::testing::mutant::{self, Mutant};

/// Smallest free extent that a close punches out of the file.
const PUNCH_BYTES_MIN: u64 = 64 << 10;

/// Free bytes of the file system from which free extents of any size may be punched out.
const PUNCH_FREE_BYTES_MIN: u64 = 64 << 20;

/// The granules of a region.
#[derive(Debug)]
pub(crate) struct Extents {
    pub(super) region: Arc<Region>,
    pub(super) space: Space,
    /// The segments with records; `None` until they are first needed.
    pub(super) segments: Option<SegmentTable>,
    pub(super) warm: Warm,
    /// Free ranges that a killed process has left, with or without pages.
    pub(super) inherited: Warm,
    /// Largest number of bytes of free space that keep their pages, once the store is compacted.
    warm_bytes_max: Option<u64>,
    /// Whether a background thread releases the excess.
    is_cooled_by_thread: bool,
    /// Excess bytes whose pages the thread could not release.
    left_bytes: u64,
    giving_back: GivingBack,
    /// Bytes that the thread has [taken](Self::take_excess) to release their pages; they become
    /// free again afterwards.
    taken_bytes: u64,
    /// Number of ranges that the thread has taken.
    #[cfg(test)]
    pub(crate) taken_count: u64,
    /// Whether the last allocation had its pages, and blocks with the bytes of their previous use.
    is_taken_warm: bool,
    /// Whether the file was extended for the last allocation, so that it has blocks and all of its
    /// bytes are 0.
    is_taken_new: bool,
    /// The mapping of the segment table, perhaps from an earlier turn, and its extent in the file.
    mapped: Option<(Extent, WordMap)>,
    pub(super) reserve: Reserve,
}

/// When the pages of freed space are returned to the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GivingBack {
    AtOnce,
    /// At the end of the close in progress.
    ByClose,
    /// At the end of the close in progress, and there are some, perhaps in small ranges.
    OwedByClose,
}

/// A part of the file that is moved as a whole, without a record in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Movable {
    /// A piece of a window.
    Piece(LineWindow, usize),
    SegmentTable,
}

/// Free ranges that have kept their pages, so that a new segment there need not wait for memory.
#[derive(Debug, Default)]
pub(super) struct Warm {
    /// Maps the first granule of a range to the number of its granules.
    extents: BTreeMap<u64, u64>,
    count: u64,
}

impl Warm {
    fn add(&mut self, extent: Extent) {
        let before = self.extents.insert(extent.granule, extent.count);
        debug_assert!(before.is_none(), "a range is freed once");
        self.count += extent.count;
    }

    /// Returns the first of `count` granules with pages, a multiple of `alignment`, in the smallest
    /// range that has room for them.
    fn find(&self, count: u64, alignment: u64) -> Option<u64> {
        let first = |extent: (&u64, &u64)| extent.0.next_multiple_of(alignment);
        let fitting =
            self.extents.iter().filter(|&extent| first(extent) + count <= extent.0 + extent.1);
        fitting.min_by_key(|&(_, &count)| count).map(first)
    }

    /// Returns whether all granules of a range have kept their pages.
    fn has(&self, range: &Range<u64>) -> bool {
        let mut at = range.start;
        while at < range.end {
            match self.extents.range(..=at).next_back() {
                Some((&granule, &count)) if granule + count > at => at = granule + count,
                _ => return false,
            }
        }
        true
    }

    /// Removes and returns all ranges, with adjacent ones joined.
    fn take_joined(&mut self) -> Vec<Extent> {
        let mut joined: Vec<Extent> = Vec::new();
        for (granule, count) in std::mem::take(self).extents {
            match joined.last_mut() {
                Some(last) if last.granule + last.count == granule => last.count += count,
                _ => joined.push(Extent { granule, count }),
            }
        }
        joined
    }

    /// Removes and returns the ranges from a granule on.
    fn split_off(&mut self, granule: u64) -> Vec<Extent> {
        let behind = self.extents.split_off(&granule);
        self.count -= behind.values().sum::<u64>();
        behind.into_iter().map(|(granule, count)| Extent { granule, count }).collect()
    }

    /// Removes the granules of a range that is about to be used.
    pub(super) fn remove(&mut self, range: Range<u64>) {
        while let Some((&granule, &count)) = self.extents.range(..range.end).next_back()
            && granule + count > range.start
        {
            self.extents.remove(&granule);
            self.count -= count;
            for rest in [granule..range.start, range.end..granule + count] {
                if rest.start < rest.end {
                    self.add(Extent { granule: rest.start, count: rest.end - rest.start });
                }
            }
        }
    }
}

impl Extents {
    /// Creates the extents with the free granules that the live header lists.
    pub(crate) fn of(region: &Arc<Region>) -> Self {
        Self::new(region, region.live().space())
    }

    /// Creates the extents with these free granules, and lists them in the live header.
    pub(crate) fn begin(region: &Arc<Region>, space: Space) -> Self {
        let extents = Self::new(region, space);
        extents.publish();
        extents
    }

    fn new(region: &Arc<Region>, space: Space) -> Self {
        Self {
            region: region.clone(),
            space,
            segments: None,
            warm: Warm::default(),
            inherited: Warm::default(),
            warm_bytes_max: None,
            is_cooled_by_thread: false,
            left_bytes: 0,
            giving_back: GivingBack::AtOnce,
            taken_bytes: 0,
            #[cfg(test)]
            taken_count: 0,
            is_taken_warm: false,
            is_taken_new: false,
            mapped: None,
            reserve: Reserve::default(),
        }
    }

    /// Begins to track the segments of a table in memory, which has none yet, in units of
    /// `unit_bytes`.
    pub(crate) fn follow_segments(&mut self, unit_bytes: u64) {
        assert!(self.region.storage().is_volatile(), "a file has segments");
        self.space.keep_all();
        self.segments = Some(SegmentTable::new(unit_bytes));
    }

    /// Sets the segments that the caller has found in the file, whose granules are not free.
    pub(crate) fn set_segments(&mut self, segments: SegmentTable) {
        self.segments = Some(segments);
    }

    /// Loads the segment table of the file, if it has a current one, and returns whether it does.
    /// All granules without a use are then free. `may_write` says whether the table may be changed
    /// from now on.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the table is damaged.
    pub(crate) fn load_segments(
        &mut self,
        superblock: &Superblock,
        may_write: bool,
    ) -> Result<bool> {
        let region = self.region.clone();
        let live = region.live();
        let Some(extent) = live.segment_table() else { return Ok(false) };
        // A version that does not know the table may have added segments to a store that was not
        // compacted, so the table may be stale.
        if !superblock.is_compacted && live.table_sequence() != live.next_sequence() {
            return Ok(false);
        }
        let unit_bytes = SegmentTable::unit_bytes_for(superblock.segment_bytes_min.into());
        let (offset, bytes) = (extent.granule * GRANULE_BYTES, extent.count * GRANULE_BYTES);
        let header = region.view.segment(offset)?;
        if header.kind != SegmentKind::Map || header.segment_bytes != bytes {
            let (what, expected) = ("segment table", SegmentKind::Map as u64);
            return Err(Error::Corrupt { what, offset, expected, found: header.kind as u64 });
        }
        let file_bytes = self.space.end() * GRANULE_BYTES;
        let mut table = if may_write {
            let map = match self.mapped.take() {
                Some((place, map)) if place == extent => map,
                _ => map_words(&region, offset, bytes)?,
            };
            self.mapped = Some((extent, map.clone()));
            SegmentTable::of_map(unit_bytes, map)
        } else {
            meanwhile::at(Point::TableFound);
            let content = region.storage().read(offset, bytes);
            // Load the place again after the content: a writer that moves the table publishes the
            // new place before it frees the old one.
            fence(Ordering::Acquire);
            if live.segment_table() != Some(extent) && !mutant::is_made(Mutant::ReadsMovedTable) {
                let (what, expected) = ("segment table, which has moved", offset);
                return Err(Error::Corrupt { what, offset, expected, found: 0 });
            }
            let words = content[SegmentHeader::BYTES as usize..].chunks_exact(8);
            SegmentTable::of_words(unit_bytes, words.map(|word| u64_at(word, 0)).collect())
        };
        if superblock.is_clean {
            let (expected, found) = (live.table_crc(), table.crc().into());
            if expected != found {
                let what = "segment table checksum";
                return Err(Error::Corrupt { what, offset, expected, found });
            }
        }
        let what = "size of the segment table";
        let too_small = Error::Corrupt { what, offset, expected: file_bytes, found: bytes };
        let CommitState { tail_segment, tail_offset, .. } = live.committed().1;
        if !table.has_room(tail_offset.max(tail_segment + 1)) {
            return Err(too_small);
        }
        table.mend(file_bytes);
        self.segments = Some(table);
        self.free_the_rest();
        if self.forget_end_without_table() {
            return Ok(true);
        }
        self.segments = None;
        Err(too_small)
    }

    /// Removes free granules at the end of the file from the list, if the segment table has no room
    /// for them. Returns whether it has room for the rest.
    ///
    /// A larger table is created before the end of the file is raised for anything else. But for
    /// the new table itself, the end is raised while the old one is still in use: a process killed
    /// in between leaves free granules beyond the room of the old table.
    fn forget_end_without_table(&mut self) -> bool {
        self.has_table_room() || self.space.trim() && self.has_table_room()
    }

    /// Returns whether the segment table has room for the file up to its end.
    pub(crate) fn has_table_room(&self) -> bool {
        let end = self.space.end() * GRANULE_BYTES;
        self.segments.as_ref().is_some_and(|segments| segments.has_room(end))
    }

    /// Keeps the mapping of the segment table from an earlier turn of this handle, in case the
    /// table has not moved.
    pub(crate) fn keep_mapping(&mut self, before: &Self) {
        self.mapped.clone_from(&before.mapped);
    }

    /// Frees every granule without a use: those that a killed process has leaked, and those for
    /// which the list of the live header has no room.
    pub(crate) fn free_the_rest(&mut self) {
        let live = self.region.live();
        let mut used: Vec<Extent> = self.segments.iter().flat_map(SegmentTable::used).collect();
        used.extend(live.segment_table());
        let end = self.space.end();
        // A killed process may have recorded one that it did not allocate.
        let is_inside = |extent: &Extent| extent.granule + extent.count <= end;
        used.extend(live.checkpoint_extents().into_iter().flatten().filter(is_inside));
        for window in LineWindow::ALL {
            used.extend((0..live.piece_count(window)).map(|piece| Extent {
                granule: live.piece(window, piece),
                count: piece_of(piece).granule_count(),
            }));
        }
        let mut space = Space::complement(HEADER_BYTES / GRANULE_BYTES, used);
        space.extend_to(end);
        space.keep_aside(&self.space);
        self.space = space;
    }

    /// Moves the segment table to the file, unless it is there already, with room to grow.
    ///
    /// # Errors
    ///
    /// Those of the file. The table then stays where it was.
    pub(crate) fn keep_segments_in_file(&mut self) -> Result<()> {
        let is_private = self.segments.as_ref().is_some_and(|segments| !segments.is_in_file());
        if !is_private || self.region.storage().is_volatile() {
            return Ok(());
        }
        self.move_table(self.space.end() * GRANULE_BYTES)?;
        self.free_the_rest();
        self.publish();
        Ok(())
    }

    /// Moves the segment table to a segment of the file with room for a file of `file_bytes`.
    pub(super) fn move_table(&mut self, file_bytes: u64) -> Result<()> {
        let region = self.region.clone();
        let live = region.live();
        let segments = self.segments.as_ref().expect("a table that is moved is there");
        let bytes = segments.map_bytes(file_bytes);
        let offset = match self.allocate_backed_inside(bytes)? {
            Some(offset) => offset,
            None => self.take(bytes, |space| space.allocate(bytes / GRANULE_BYTES, 1), |_| {})?,
        };
        let header = SegmentHeader {
            kind: SegmentKind::Map,
            sequence: live.next_sequence(),
            segment_bytes: bytes,
            base_lsn: 0,
            previous_offset: 0,
            salt: 0,
        };
        let made = region
            .write("clear the segment table of", |storage| storage.write_zeros(offset, bytes))
            .and_then(|()| {
                let action = "write the segment table of";
                region.write(action, |storage| storage.write_at(offset, &header.encode()))
            })
            .and_then(|()| map_words(&region, offset, bytes));
        let map = match made {
            Ok(map) => map,
            Err(error) => {
                self.release(offset, bytes);
                if !self.has_table_room() {
                    // The end of the file was raised for the new table.
                    self.forget_end();
                }
                return Err(error);
            }
        };
        let place = Extent { granule: offset / GRANULE_BYTES, count: bytes / GRANULE_BYTES };
        self.mapped = Some((place, map.clone()));
        self.segments = self.segments.take().map(|segments| segments.moved_to(map));
        let before = live.segment_table();
        live.set_segment_table(Some(place));
        live.note_table_changed();
        if let Some(Extent { granule, count }) = before {
            self.release(granule * GRANULE_BYTES, count * GRANULE_BYTES);
        }
        Ok(())
    }

    /// Returns the segment table, if it has been loaded.
    #[inline]
    pub(crate) fn segments(&self) -> Option<&SegmentTable> {
        self.segments.as_ref()
    }

    /// Like [`segments`](Self::segments), to change the counts.
    #[inline]
    pub(crate) fn segments_mut(&mut self) -> Option<&mut SegmentTable> {
        self.segments.as_mut()
    }

    /// Adds a segment that is in use from now on.
    pub(crate) fn begin_segment(
        &mut self,
        kind: SegmentKind,
        offset: u64,
        bytes: u64,
        sequence: u64,
    ) {
        let range = offset..offset + bytes;
        self.region.births.begin(range.clone(), sequence);
        let Some(segments) = &mut self.segments else { return };
        match kind {
            SegmentKind::Log => segments.begin_own(range, SegmentUse::Log, sequence),
            SegmentKind::Compacted => {
                segments.begin_own(range, SegmentUse::Compacted, sequence);
            }
            SegmentKind::Big => segments.begin_big(range),
            other => unreachable!("a segment of kind {other:?} has no records"),
        }
        self.note_table_changed();
    }

    /// Removes the segment at `offset`: that of a big record, or one that was emptied.
    pub(crate) fn end_segment(&mut self, offset: u64, is_big: bool) {
        let Some(segments) = &mut self.segments else { return };
        if is_big {
            segments.end_big(offset);
        } else {
            segments.end(offset);
        }
        self.note_table_changed();
    }

    /// Stores the checksum of the segment table in the live header, for a close.
    pub(crate) fn note_table_crc(&mut self) {
        if let Some(segments) = self.segments.as_mut().filter(|segments| segments.is_in_file()) {
            segments.find_end();
            self.region.live().set_table_crc(segments.crc());
        }
    }

    fn note_table_changed(&self) {
        if self.segments.as_ref().is_some_and(SegmentTable::is_in_file) {
            self.region.live().note_table_changed();
        }
    }

    /// Returns their region.
    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Returns the free granules.
    pub(crate) fn space(&self) -> &Space {
        &self.space
    }

    /// Returns the bytes of free granules, including those whose pages are being released.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.space.free_bytes() + self.taken_bytes
    }

    /// Allocates `bytes` of the file, aligned to `alignment`, and extends the file if needed.
    pub(crate) fn allocate(&mut self, bytes: u64, alignment: u64) -> Result<u64> {
        self.allocate_noted(bytes, alignment, |_| {})
    }

    /// Like [`allocate`](Self::allocate), but passes the granules to `note` before they are
    /// allocated.
    pub(crate) fn allocate_noted(
        &mut self,
        bytes: u64,
        alignment: u64,
        note: impl FnOnce(Extent),
    ) -> Result<u64> {
        let (count, alignment) = (bytes / GRANULE_BYTES, alignment / GRANULE_BYTES);
        // Reusing pages is cheaper than faulting in new ones.
        let warm = if self.space.is_packed() { None } else { self.warm.find(count, alignment) };
        let take = |space: &mut Space| match warm {
            Some(granule) if space.allocate_at(granule, count) => granule,
            _ => space.allocate(count, alignment),
        };
        self.change(bytes, take, note)
    }

    fn change(
        &mut self,
        bytes: u64,
        take: impl Fn(&mut Space) -> u64,
        note: impl FnOnce(Extent),
    ) -> Result<u64> {
        let mut after = self.space.clone();
        take(&mut after);
        let end = after.end() * GRANULE_BYTES;
        self.make_table_room(end)?;
        self.take(bytes, take, note)
    }

    fn take(
        &mut self,
        bytes: u64,
        take: impl FnOnce(&mut Space) -> u64,
        note: impl FnOnce(Extent),
    ) -> Result<u64> {
        let mut after = self.space.clone();
        let granule = take(&mut after);
        let end = after.end() * GRANULE_BYTES;
        if end > FILE_BYTES_MAX {
            return Err(Error::Full { what: "address space of the file", bytes });
        }
        let file_bytes = self.region.storage().file_bytes();
        self.region.extend(end)?;
        let count = bytes / GRANULE_BYTES;
        note(Extent { granule, count });
        self.is_taken_warm = self.warm.has(&(granule..granule + count));
        self.is_taken_new = granule * GRANULE_BYTES >= file_bytes;
        self.warm.remove(granule..granule + count);
        self.inherited.remove(granule..granule + count);
        self.space = after;
        self.publish();
        Ok(granule * GRANULE_BYTES)
    }

    /// Stores the list in the live header, unless the device has failed: then a store through the
    /// mapping might raise a signal.
    pub(crate) fn publish(&self) {
        if self.region.health().check().is_ok() {
            self.region.live().set_space(&self.space);
        }
    }

    /// Frees an allocation.
    pub(crate) fn release(&mut self, offset: u64, bytes: u64) {
        self.space.add_free(offset / GRANULE_BYTES, bytes / GRANULE_BYTES);
        self.publish();
    }

    /// Sets how many bytes of free space may keep their pages, and whether a background thread
    /// [takes](Self::take_excess) the excess.
    pub(crate) fn set_warm_bytes_max(&mut self, bytes: u64, is_cooled_by_thread: bool) {
        self.warm_bytes_max = Some(bytes);
        self.is_cooled_by_thread = is_cooled_by_thread;
    }

    /// Returns whether the background thread has something to do: more bytes of free space have
    /// pages than may, and more than it has failed to release.
    pub(crate) fn has_excess(&self) -> bool {
        let is_too_much = |max: u64| self.warm_bytes() > max.max(self.left_bytes);
        self.is_cooled_by_thread && self.warm_bytes_max.is_some_and(is_too_much)
    }

    /// Records that the thread can release no more pages. The remaining excess consists of ranges
    /// without a complete folio on a nearly full disk, or of ranges whose pages the system does not
    /// take back.
    pub(crate) fn leave_excess(&mut self) {
        let is_too_much = self.warm_bytes_max.is_some_and(|max| self.warm_bytes() > max);
        self.left_bytes = if is_too_much { self.warm_bytes() } else { 0 };
    }

    /// Lowers `left_bytes` to the bytes that still have pages, so that later excess is released.
    fn note_cooler(&mut self) {
        self.left_bytes = self.left_bytes.min(self.warm_bytes());
    }

    /// Allocates the last free range with pages before `end`, if there is an excess, so that the
    /// caller can release its pages without the lock and then [`release_cool`](Self::release_cool)
    /// it. Ranges that may not be punched stay.
    ///
    /// If the process is killed in between, these granules leak until the next open.
    pub(crate) fn take_excess(&mut self, end: u64) -> Option<Range<u64>> {
        let warm_bytes_max = self.warm_bytes_max?;
        let unit = self.punch_unit();
        let mut end = end / GRANULE_BYTES;
        while self.warm_bytes() > warm_bytes_max && self.is_reserve_whole() {
            let (&granule, &count) = self.warm.extents.range(..end).next_back()?;
            end = granule;
            let Some(part) = Extent { granule, count }.whole_units(unit) else { continue };
            self.warm.remove(part.granule..part.granule + part.count);
            let range = self.take_free(part);
            if range.is_some() {
                return range;
            }
        }
        None
    }

    /// Records the free ranges, except small ones, as ranges in which a killed process may have
    /// left pages. Returns whether there is any.
    pub(crate) fn inherit_free(&mut self) -> bool {
        debug_assert_eq!(self.warm.count, 0, "nothing was freed yet");
        self.inherited = Warm::default();
        for &extent in self.space.unreserved() {
            if extent.count * GRANULE_BYTES >= PUNCH_BYTES_MIN {
                self.inherited.add(extent);
            }
        }
        self.inherited.count > 0
    }

    /// Allocates one of the inherited ranges or its end, if it is still free, so that the caller
    /// can release its pages like those of [`take_excess`](Self::take_excess). At most 2 MiB at a
    /// time, because changes cannot allocate it in the meantime.
    pub(crate) fn take_inherited(&mut self) -> Option<Range<u64>> {
        let unit = self.punch_unit();
        while self.is_reserve_whole() {
            let (granule, count) = self.inherited.extents.pop_last()?;
            self.inherited.count -= count;
            let Some(whole) = Extent { granule, count }.whole_units(unit) else { continue };
            // Cut at folio boundaries: a part that ends within a folio would split two folios.
            let (end, folio) = (whole.granule + whole.count, HUGE_BYTES / GRANULE_BYTES);
            let part_start = ((end - 1) / folio * folio).max(whole.granule);
            if part_start > granule {
                self.inherited.add(Extent { granule, count: part_start - granule });
            }
            let range = self.take_free(Extent { granule: part_start, count: end - part_start });
            if range.is_some() {
                return range;
            }
        }
        None
    }

    /// Allocates a range in order to release its pages, if it is free.
    fn take_free(&mut self, part: Extent) -> Option<Range<u64>> {
        // The list of free granules may have overflowed and lost the range.
        if !self.space.allocate_at(part.granule, part.count) {
            return None;
        }
        self.publish();
        let (offset, bytes) = (part.granule * GRANULE_BYTES, part.count * GRANULE_BYTES);
        self.taken_bytes += bytes;
        #[cfg(test)]
        {
            self.taken_count += 1;
        }
        Some(offset..offset + bytes)
    }

    /// Frees a range that [`take_excess`](Self::take_excess) returned; `is_cool` says whether its
    /// pages were released.
    pub(crate) fn release_cool(&mut self, range: Range<u64>, is_cool: bool) {
        let (offset, bytes) = (range.start, range.end - range.start);
        self.taken_bytes -= bytes;
        if !is_cool {
            self.warm.add(Extent { granule: offset / GRANULE_BYTES, count: bytes / GRANULE_BYTES });
        }
        self.release(offset, bytes);
    }

    /// Frees the granules of a segment that nobody reads any more. They keep their pages up to the
    /// [bound](Self::set_warm_bytes_max); beyond it the pages are returned to the system. Returns
    /// whether that was tried.
    pub(crate) fn release_segment(&mut self, segment: Range<u64>) -> bool {
        let (offset, bytes) = (segment.start, segment.end - segment.start);
        let extent = Extent { granule: offset / GRANULE_BYTES, count: bytes / GRANULE_BYTES };
        let warm_bytes = (self.warm.count + extent.count) * GRANULE_BYTES;
        let Some(warm_bytes_max) = self.warm_bytes_max else {
            // In a store that is not compacted, the next segments reuse free space before they grow
            // the file.
            self.release(offset, bytes);
            return false;
        };
        // If the background thread falls behind, release the pages here.
        let kept_bytes_max = warm_bytes_max << u32::from(self.is_cooled_by_thread);
        // While the reserve is short, keep the blocks: another file might take them.
        let is_kept = warm_bytes <= kept_bytes_max || !self.is_reserve_whole();
        let is_warm = is_kept || self.is_left_to_close();
        // If the system cannot release the pages, they stay.
        let is_punched = !is_warm && self.punchable(extent) == Some(extent);
        if !is_punched || self.region.storage().punch(offset, bytes).is_err() {
            self.warm.add(extent);
        }
        self.release(offset, bytes);
        is_punched
    }

    /// Defers the release of pages to [`shrink`](Self::shrink), at the end of a close. Most of what
    /// a close frees is then truncated, and adjacent ranges are punched together: punching waits
    /// for the disk if pages are not written back yet.
    pub(crate) fn leave_to_close(&mut self) {
        if !mutant::is_made(Mutant::PunchesBeforeCut) {
            self.giving_back = GivingBack::ByClose;
        }
    }

    /// Returns whether the release is deferred to the close, and records that the close has
    /// something to release.
    fn is_left_to_close(&mut self) -> bool {
        if self.giving_back == GivingBack::ByClose {
            self.giving_back = GivingBack::OwedByClose;
        }
        self.giving_back == GivingBack::OwedByClose
    }

    /// Returns the pages of all free granules to the system, and returns the number of bytes. Does
    /// nothing while the reserve is short, which may need them.
    pub(crate) fn cool(&mut self) -> u64 {
        if !self.is_reserve_whole() || self.warm.count > 0 && self.is_left_to_close() {
            return 0;
        }
        let mut bytes_cooled = 0;
        for extent in self.warm.take_joined() {
            self.warm.add(extent);
            let Some(part) = self.punchable(extent) else { continue };
            let (offset, bytes) = (part.granule * GRANULE_BYTES, part.count * GRANULE_BYTES);
            if self.region.storage().punch(offset, bytes).is_ok() {
                self.warm.remove(part.granule..part.granule + part.count);
                bytes_cooled += bytes;
            }
        }
        self.note_cooler();
        bytes_cooled
    }

    /// Punches out up to `count_max` large free ranges from a granule on, including those that
    /// other handles have freed. Returns the bytes punched, and the granule to continue with. Does
    /// nothing while the reserve is short, which may need them.
    pub(crate) fn punch_free(&mut self, from: u64, count_max: usize) -> (u64, Option<u64>) {
        if !self.is_reserve_whole() {
            return (0, None);
        }
        let is_large = |extent: &Extent| extent.count * GRANULE_BYTES >= PUNCH_BYTES_MIN;
        let free = self.space.unreserved().filter(|extent| extent.granule >= from);
        let mut large: Vec<Extent> =
            free.filter_map(|&extent| self.punchable(extent)).filter(is_large).collect();
        large.sort_unstable_by_key(|extent| extent.granule);
        let mut bytes_punched = 0;
        for &Extent { granule, count } in large.iter().take(count_max) {
            let (offset, bytes) = (granule * GRANULE_BYTES, count * GRANULE_BYTES);
            self.warm.remove(granule..granule + count);
            if self.region.storage().punch(offset, bytes).is_ok() {
                bytes_punched += bytes;
            }
        }
        self.note_cooler();
        (bytes_punched, large.get(count_max).map(|extent| extent.granule))
    }

    /// Returns whether the last allocation has the bytes of its previous use, in the page cache.
    pub(crate) fn is_taken_warm(&self) -> bool {
        self.is_taken_warm
    }

    /// Returns whether the file was extended for the last allocation or reservation. It then has
    /// blocks, and its bytes are 0.
    pub(crate) fn is_taken_new(&self) -> bool {
        self.is_taken_new
    }

    /// Returns the part of a free extent whose blocks may be returned to the file system. On a
    /// nearly full disk, where other files may take the blocks, only complete folios: a store
    /// beside a hole allocates the blocks of its whole folio, so the next handle could not change
    /// anything there.
    fn punchable(&self, extent: Extent) -> Option<Extent> {
        extent.whole_units(self.punch_unit())
    }

    /// Returns the number of granules that are returned to the system together or not at all.
    fn punch_unit(&self) -> u64 {
        if has_ample_room(self.region.storage()) { 1 } else { HUGE_BYTES / GRANULE_BYTES }
    }

    /// Returns the bytes of free granules that have kept their pages.
    pub(crate) fn warm_bytes(&self) -> u64 {
        self.warm.count * GRANULE_BYTES
    }

    /// Reserves `bytes` of the file, aligned to their own number, and extends the file if needed.
    /// They count as free until [`take_aside`](Self::take_aside).
    pub(crate) fn set_aside(&mut self, bytes: u64) -> Result<u64> {
        let count = bytes / GRANULE_BYTES;
        self.change(bytes, |space| space.set_aside(count, count), |_| {})
    }

    /// Allocates the range that is set aside.
    pub(crate) fn take_aside(&mut self) {
        self.space.take_aside();
        self.publish();
    }

    /// Frees the range that is set aside, if there is one.
    pub(crate) fn release_aside(&mut self) {
        self.space.release_aside();
        self.publish();
    }

    /// Sets the allocation policy: first fit, from the beginning of the file on, or best fit.
    pub(crate) fn pack(&mut self, is_packed: bool) {
        self.space.pack(is_packed);
    }

    /// Removes the free granules at the end of the file from the list, so that allocations come
    /// from before them, and returns their pages to the system unless the reserve is short.
    pub(crate) fn forget_end(&mut self) {
        if !self.space.trim() {
            return;
        }
        self.publish();
        let is_whole = self.is_reserve_whole();
        for extent in self.warm.split_off(self.space.end()) {
            if is_whole && !self.is_left_to_close() && self.punchable(extent) == Some(extent) {
                let (offset, bytes) =
                    (extent.granule * GRANULE_BYTES, extent.count * GRANULE_BYTES);
                // Ignore an error: the truncation of the file frees them.
                let _ = self.region.storage().punch(offset, bytes);
            }
        }
        self.note_cooler();
    }

    /// Removes the free granules at the end of the file from the list; [`shrink`](Self::shrink)
    /// truncates the file.
    pub(crate) fn trim(&mut self) {
        if self.space.trim() {
            self.publish();
        }
        // Records that a recovery has dropped may lie beyond the end.
        self.region.view.cut(self.space.end() * GRANULE_BYTES);
    }

    /// Truncates the file to its end, and punches out the larger free extents, or all of them with
    /// `is_all`. No durable structure may refer to them.
    pub(crate) fn shrink(&self, is_all: bool) -> Result<()> {
        let end = self.space.end() * GRANULE_BYTES;
        // Another process may be reading an old piece of the index or the log there; a later close
        // truncates the file.
        let is_looked_at =
            self.region.pins.is_pinned_elsewhere() || self.region.storage().is_read_by_lock();
        let file_bytes = self.region.storage().file_bytes();
        if end < file_bytes && !is_looked_at {
            if is_glanced_at(self.region.storage()) {
                // A glance discards what it reads there, but the pages must exist.
                self.region
                    .write("punch holes into", |storage| storage.punch(end, file_bytes - end))?;
            } else {
                self.region.write("truncate", |storage| storage.truncate(end))?;
            }
        }
        for extent in self.space.unreserved().filter_map(|extent| self.punchable(*extent)) {
            let (offset, bytes) = (extent.granule * GRANULE_BYTES, extent.count * GRANULE_BYTES);
            if is_all || self.giving_back == GivingBack::OwedByClose || bytes >= PUNCH_BYTES_MIN {
                self.region.write("punch holes into", |storage| storage.punch(offset, bytes))?;
            }
        }
        Ok(())
    }

    /// Grows a window to at least `line_count` lines; new lines are empty.
    pub(crate) fn reserve_lines(&mut self, window: LineWindow, line_count: u64) -> Result<()> {
        let clear = |storage: &dyn Storage, is_new, offset, bytes| {
            storage.clear_piece(offset, bytes, is_new)
        };
        self.take_lines(window, line_count, clear, |offset, _| Backing::Growth(offset))
    }

    /// Like [`reserve_lines`](Self::reserve_lines), for the buckets of a new store. Their blocks
    /// stay unwritten until a line is stored: by this, the next open recognizes a new file of which
    /// a power loss has left only zeros.
    pub(crate) fn create_buckets(&mut self, count: u64) -> Result<()> {
        let clear = |storage: &dyn Storage, is_new: bool, offset, bytes| {
            if is_new { Ok(()) } else { storage.clear_range(offset, bytes) }
        };
        // `Backing::Growth` would write the pages of small pieces when it clears them.
        let backing = |offset, bytes| match bytes {
            0..HUGE_BYTES => Backing::File(offset),
            _ => Backing::Growth(offset),
        };
        self.take_lines(LineWindow::Buckets, count, clear, backing)
    }

    /// Like [`reserve_lines`](Self::reserve_lines), but new lines have arbitrary contents, all of
    /// which the caller overwrites.
    pub(crate) fn claim_lines(&mut self, window: LineWindow, line_count: u64) -> Result<()> {
        let claim =
            |storage: &dyn Storage, _: bool, offset, bytes| storage.claim_range(offset, bytes);
        self.take_lines(window, line_count, claim, |offset, _| Backing::File(offset))
    }

    fn take_lines(
        &mut self,
        window: LineWindow,
        line_count: u64,
        make_ready: impl Fn(&dyn Storage, bool, u64, u64) -> std::io::Result<()>,
        backing: impl Fn(u64, u64) -> Backing,
    ) -> Result<()> {
        while self.region.windows.line_count(window) < line_count {
            let piece = self.region.live().piece_count(window);
            let bytes = piece_of(piece).line_count * LINE_BYTES;
            if self.region.is_private() {
                let mut shown = self.region.windows.shown();
                self.region.windows.map_one(window, piece, Backing::Private)?;
                self.region.live().add_piece(window, 0);
                shown[window.number()].push(0);
                continue;
            }
            let offset = self.allocate(bytes, piece_alignment(bytes))?;
            // The granules may have old contents.
            let is_new = self.is_taken_new;
            let made_ready = self.region.write("clear index space in", |storage| {
                make_ready(storage, is_new, offset, bytes)
            });
            let region = self.region.clone();
            let mut shown = region.windows.shown();
            let backing = backing(offset, bytes);
            let mapped = made_ready.and_then(|()| region.windows.map_one(window, piece, backing));
            if let Err(error) = mapped {
                self.release(offset, bytes);
                return Err(error);
            }
            region.live().add_piece(window, offset / GRANULE_BYTES);
            shown[window.number()].push(offset / GRANULE_BYTES);
        }
        Ok(())
    }

    /// Frees the pieces that a shrunken table no longer needs: of the buckets, as long as half of
    /// the remaining pieces would be enough (hysteresis, for a table that grows again); of the
    /// overflow lines, all but the first if no line is in use. A failure is retried after a later
    /// merge.
    ///
    /// A process killed in between leaks granules until the next recovery from the log.
    pub(crate) fn give_back_lines(&mut self) {
        let region = self.region.clone();
        let live = region.live();
        let bucket_count = region.windows.bucket_count();
        if self.give_back_buckets(|piece| bucket_count < lines_of(piece) / 2).is_err() {
            return;
        }
        let has_spare_lines = || live.piece_count(LineWindow::Overflow) > 1;
        if has_spare_lines() && LivePool(&region.windows).reset_if_unused() {
            while has_spare_lines() && self.give_back_last(LineWindow::Overflow).is_ok() {}
        }
    }

    /// Frees the pieces of the bucket window without buckets.
    pub(crate) fn give_back_spare_pieces(&mut self) {
        let bucket_count = self.region.windows.bucket_count();
        // A failure is retried by a later merge.
        let used = bucket_count - u64::from(mutant::is_made(Mutant::GivesBackUsedPiece));
        let _ = self.give_back_buckets(|piece| used <= lines_of(piece));
    }

    /// Frees pieces of the bucket window, last first, while `is_spare` returns `true` for the piece
    /// number.
    fn give_back_buckets(&mut self, is_spare: impl Fn(usize) -> bool) -> Result<()> {
        let region = self.region.clone();
        let count = || region.live().piece_count(LineWindow::Buckets);
        while count().checked_sub(1).is_some_and(&is_spare) {
            self.give_back_last(LineWindow::Buckets)?;
        }
        Ok(())
    }

    /// Frees the last piece of a window, in this order: unmap it, so that no thread can reach it;
    /// remove it from the live header; free its granules.
    fn give_back_last(&mut self, window: LineWindow) -> Result<()> {
        let live = self.region.live();
        let piece = live.piece_count(window) - 1;
        let (offset, lines) = (live.piece(window, piece) * GRANULE_BYTES, piece_of(piece));
        let region = self.region.clone();
        let mut shown = region.windows.shown();
        region.write("unmap index space of", |_| region.windows.unmap_last(window, piece))?;
        shown[window.number()].pop();
        if mutant::is_made(Mutant::FreesPieceFirst) {
            self.release(offset, lines.line_count * LINE_BYTES);
            self.region.live().remove_piece(window);
            return Ok(());
        }
        live.remove_piece(window);
        if !self.region.is_private() {
            self.release(offset, lines.line_count * LINE_BYTES);
        }
        Ok(())
    }

    /// Moves the index extents and the segment table at the end of the file to free granules at its
    /// beginning, and removes the end of the file from the free list. Readers may continue
    /// throughout.
    ///
    /// A process killed in between leaks granules until the next open.
    pub(crate) fn move_last(&mut self) -> Result<()> {
        while let Some(last) = self.last_to_move() {
            self.forget_end();
            match last {
                Movable::Piece(window, piece) => self.move_piece(window, piece)?,
                Movable::SegmentTable => self.move_table(self.space.end() * GRANULE_BYTES)?,
            }
        }
        Ok(())
    }

    /// Returns the index extent or the segment table at the end of the file, if there is one and
    /// there is room for it before.
    pub(crate) fn last_to_move(&self) -> Option<Movable> {
        let (live, end) = (self.region.live(), self.space.used_end());
        let can_move = |granule, count, needed| {
            let alignment = piece_alignment(needed * GRANULE_BYTES) / GRANULE_BYTES;
            granule + count == end && self.space.has_room_before(granule, needed, alignment)
        };
        let mut pieces = LineWindow::ALL
            .into_iter()
            .flat_map(|window| (0..live.piece_count(window)).map(move |piece| (window, piece)));
        let last_piece = pieces.find(|&(window, piece)| {
            let count = piece_of(piece).granule_count();
            can_move(live.piece(window, piece), count, count)
        });
        let is_table_last = || {
            let (table, segments) = (live.segment_table()?, self.segments.as_ref()?);
            let needed = segments.map_bytes(end * GRANULE_BYTES) / GRANULE_BYTES;
            Some(segments.is_in_file() && can_move(table.granule, table.count, needed))
        };
        match last_piece {
            Some((window, piece)) => Some(Movable::Piece(window, piece)),
            None => (is_table_last() == Some(true)).then_some(Movable::SegmentTable),
        }
    }

    /// Moves a piece of the index to the first free granules. No store is made to it meanwhile, so it
    /// is whole in one place or the other at every moment.
    fn move_piece(&mut self, window: LineWindow, piece: usize) -> Result<()> {
        let region = self.region.clone();
        let from = region.live().piece(window, piece) * GRANULE_BYTES;
        let bytes = piece_of(piece).line_count * LINE_BYTES;
        let offset = self.allocate(bytes, piece_alignment(bytes))?;
        let copied = region.write("move index space of", |storage| {
            storage.claim_range(offset, bytes)?;
            if mutant::is_made(Mutant::MovesPieceUncopied) {
                return Ok(());
            }
            region.windows.copy_piece(window, piece, offset)
        });
        if let Err(error) = copied {
            self.release(offset, bytes);
            return Err(error);
        }
        let mut shown = region.windows.shown();
        region
            .write("map the index of", |_| region.windows.move_piece(window, piece, offset))
            // Readers may be looking at either place, of which only one goes on changing.
            .inspect_err(|error| region.health().fail(error))?;
        region.live().move_piece(window, piece, offset / GRANULE_BYTES);
        shown[window.number()][piece] = offset / GRANULE_BYTES;
        drop(shown);
        self.release(from, bytes);
        Ok(())
    }

    /// Allocates lines ahead of the writer, and has their page faults taken. It ignores errors,
    /// because the writer allocates the lines when it needs them.
    pub(crate) fn prepare_lines(&mut self, window: LineWindow, lines: Range<u64>) {
        if self.reserve_lines(window, lines.end).is_err() {
            return;
        }
        if let Some(pages) = self.region.windows.pages(window, lines) {
            self.region.prefaulter().ask(Box::new(move || pages.fault_in_slices()));
            self.region.split_huge_pages_when_idle();
        }
    }

    /// Ensures that `count` overflow lines are free.
    pub(crate) fn reserve_overflow_lines(&mut self, count: u64) -> Result<()> {
        let windows = &self.region.windows;
        let free_count = LivePool(windows).free_count();
        if free_count >= count {
            return Ok(());
        }
        let line_count = windows.line_count(LineWindow::Overflow) + count - free_count;
        self.reserve_lines(LineWindow::Overflow, line_count)
    }
}

/// Returns whether the file system has so much room that any free extent may go back to it.
pub(crate) fn has_ample_room(storage: &dyn Storage) -> bool {
    storage.free_bytes().is_ok_and(|bytes| bytes >= PUNCH_FREE_BYTES_MIN)
}

/// Returns the alignment in bytes of a piece of this size: a huge page must begin at a multiple of its
/// size in the file as in memory.
fn piece_alignment(bytes: u64) -> u64 {
    if bytes < HUGE_BYTES { GRANULE_BYTES } else { HUGE_BYTES }
}

fn map_words(region: &Region, offset: u64, bytes: u64) -> Result<WordMap> {
    let map = region
        .write("map the segment table of", |storage| storage.open_tail(offset, bytes, bytes))?;
    Ok(map.into_words())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn granules_that_get_a_use_are_no_longer_warm() {
        let mut warm = Warm::default();
        warm.add(Extent { granule: 10, count: 10 });
        warm.add(Extent { granule: 30, count: 5 });
        warm.remove(20..30);
        assert_eq!(warm.count, 15);
        warm.remove(12..14);
        assert!(warm.extents.iter().eq([(&10, &2), (&14, &6), (&30, &5)]));
        warm.remove(0..31);
        assert!(warm.extents.iter().eq([(&31, &4)]));
        warm.remove(0..100);
        assert_eq!((warm.count, warm.extents.len()), (0, 0));
    }
}
