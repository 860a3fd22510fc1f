//! The reserve: granules with blocks that puts may not take, so that on a full disk keys can still
//! be deleted and compaction can free space.
//!
//! It has log segments, for tombstones and for the records that compaction moves, and room for
//! checkpoints. In the file, all of them are listed as free, so a killed process simply leaves them
//! free. The next process reserves the same granules, because it prefers those that have blocks.

use super::{Extents, Region};
use crate::error::{Error, Result};
use crate::format::{FILE_BYTES_MAX, GRANULE_BYTES};
use crate::space::{Extent, Space};
use crate::storage::no_room;
use crate::testing::mutant::{self, Mutant};

/// Log segments in the reserve: two for tombstones, so that one can be emptied while the other is
/// written, and one for the records that compaction moves.
const SEGMENTS: usize = 3;
/// Number of checkpoints that there is room for, including the present one.
const PLACES: usize = 2;
/// Largest number of free ranges that are tried: on a full disk, those without blocks cannot be
/// reserved.
const TRIES_MAX: usize = 64;
/// The same for a size that may be replaced by a smaller one. Each try is a system call, for which
/// all changes wait.
const TRIES_OF_LARGE_MAX: usize = 8;
/// Free bytes of the file system from which nothing is reserved.
const AMPLE_BYTES: u64 = 64 << 20;
/// The same, as a multiple of the size of the reserve.
const AMPLE_RESERVES: u64 = 4;
/// The divisor of the share that a reserve may take until it has been complete once.
const SHARE: u64 = 2;

/// The sizes that the reserve needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Size of a segment of the log, a power of two.
    pub(crate) segment_bytes: u64,
    /// The smallest size of a log segment, for when there is no room for larger ones.
    pub(crate) segment_bytes_min: u64,
    /// Upper bound for a checkpoint at present, or after deletes only.
    pub(crate) image_bytes: u64,
    /// Upper bound for the next checkpoint, after one more log segment is written, or after deletes
    /// then.
    pub(crate) place_bytes: u64,
}

impl Needs {
    /// Returns whether a file system with this many free bytes counts as nearly full. With
    /// `is_held` the threshold is doubled (hysteresis), so that an existing reserve is kept longer.
    pub(crate) fn is_nearly_full(&self, free_bytes: u64, is_held: bool) -> bool {
        let reserve_bytes =
            SEGMENTS as u64 * self.segment_bytes + PLACES as u64 * self.ample_bytes();
        let ample_bytes = AMPLE_BYTES.max(AMPLE_RESERVES * reserve_bytes);
        free_bytes < if is_held { 2 * ample_bytes } else { ample_bytes }
    }

    /// Returns the size of a checkpoint place if there is ample room, so that a growing table
    /// rarely needs another one.
    fn ample_bytes(&self) -> u64 {
        (self.place_bytes + self.place_bytes / 4).next_multiple_of(self.segment_bytes_min)
    }
}

/// What is held back.
#[derive(Debug, Default)]
pub(super) struct Reserve {
    needs: Option<Needs>,
    /// Whether a part of it was taken, and is not held back again.
    is_short: bool,
    /// Whether all of it was once held back.
    was_whole: bool,
    segments: Vec<Extent>,
    places: Vec<Extent>,
}

impl Extents {
    /// Notes what is to be held back; [`hold`](Self::hold) does it.
    pub(crate) fn set_needs(&mut self, needs: Needs) {
        assert!(needs.segment_bytes.is_power_of_two() && needs.segment_bytes_min >= GRANULE_BYTES);
        self.reserve.needs = Some(needs);
    }

    /// Returns what is to be held back, if anything is.
    pub(crate) fn needs(&self) -> Option<Needs> {
        self.reserve.needs
    }

    /// Holds nothing back any more: of a store that has become small.
    pub(crate) fn end_reserve(&mut self) {
        for held in self.space.held().to_vec() {
            self.space.let_go(held);
        }
        self.reserve = Reserve::default();
        self.publish();
    }

    /// Returns whether a part of the reserve was taken, and is not held back again.
    #[inline]
    pub(crate) fn is_reserve_short(&self) -> bool {
        self.reserve.is_short
    }

    /// Returns the number of segments that are held back.
    pub(crate) fn held_segment_count(&self) -> usize {
        self.reserve.segments.len()
    }

    /// Returns the bytes of the segments that are held back.
    pub(crate) fn held_segment_bytes(&self) -> u64 {
        self.reserve.segments.iter().map(|extent| extent.count * GRANULE_BYTES).sum()
    }

    /// Returns the bytes of the segments that compaction may take for copies.
    pub(crate) fn held_bytes_for_copies(&self) -> u64 {
        let sizes = self.reserve.segments.iter().map(|extent| extent.count * GRANULE_BYTES);
        if self.reserve.segments.len() < 2 { 0 } else { sizes.min().unwrap_or(0) }
    }

    /// Returns whether anything is held back.
    pub(crate) fn is_anything_held(&self) -> bool {
        !self.space.held().is_empty()
    }

    /// Returns whether all is held back that should be.
    pub(crate) fn is_reserve_whole(&self) -> bool {
        let Some(needs) = self.reserve.needs else { return true };
        self.reserve.segments.len() >= SEGMENTS && self.places_missing(needs) == 0
    }

    /// Holds back what is missing.
    ///
    /// # Errors
    ///
    /// If the disk has no room for it; then it holds back what it can.
    pub(crate) fn hold(&mut self) -> Result<()> {
        let Some(needs) = self.reserve.needs else { return Ok(()) };
        if mutant::is_made(Mutant::RefillsNothing) && self.reserve.is_short {
            return Ok(());
        }
        self.let_go_of_excess(needs);
        if self.is_reserve_whole() {
            self.note_whole();
            return Ok(());
        }
        let places = self.hold_places(needs);
        // Where the device has failed, nothing else is tried.
        self.region.health().check()?;
        let segments = self.hold_segments(needs);
        self.region.health().check()?;
        self.publish();
        places.and(segments)?;
        self.note_whole();
        Ok(())
    }

    fn note_whole(&mut self) {
        self.reserve.is_short = false;
        self.reserve.was_whole = true;
    }

    /// Returns whether all was once held back that should be: then no put takes of it.
    pub(crate) fn was_reserve_whole(&self) -> bool {
        self.reserve.was_whole
    }

    /// Makes what is more than needed free, and what is much larger, so that less is held back instead.
    fn let_go_of_excess(&mut self, needs: Needs) {
        let bytes_of = |extent: &Extent| extent.count * GRANULE_BYTES;
        let before = self.space.held().len();
        let is_large = |extent: &Extent| bytes_of(extent) > 2 * needs.segment_bytes;
        for extent in self.reserve.segments.extract_if(.., |extent| is_large(extent)) {
            self.space.let_go(extent);
        }
        let is_large = |extent: &Extent| bytes_of(extent) > 2 * needs.ample_bytes();
        for extent in self.reserve.places.extract_if(.., |extent| is_large(extent)) {
            self.space.let_go(extent);
        }
        while self.place_count(needs) > PLACES
            && let Some(extent) = self.reserve.places.pop()
        {
            self.space.let_go(extent);
        }
        if self.space.held().len() < before {
            self.publish();
        }
    }

    fn hold_segments(&mut self, needs: Needs) -> Result<()> {
        while self.reserve.segments.len() < SEGMENTS {
            let mut bytes = needs.segment_bytes;
            let extent = loop {
                let is_least = bytes <= needs.segment_bytes_min;
                let tries = if is_least { TRIES_MAX } else { TRIES_OF_LARGE_MAX };
                match self.hold_share(bytes, bytes, tries) {
                    Err(_) if bytes > needs.segment_bytes_min => {
                        self.region.health().check()?;
                        bytes /= 2;
                    }
                    held => break held?,
                }
            };
            self.reserve.segments.push(extent);
        }
        Ok(())
    }

    fn hold_places(&mut self, needs: Needs) -> Result<()> {
        while self.places_missing(needs) > 0 {
            // Extents that have become too small stay until there is a larger one.
            let extent = self.hold_place(needs).inspect_err(|_| self.hold_least_place(needs))?;
            self.reserve.places.push(extent);
            let too_small = |extent: &Extent| extent.count * GRANULE_BYTES < needs.place_bytes;
            if let Some(i) = self.reserve.places.iter().position(too_small) {
                let small = self.reserve.places.swap_remove(i);
                self.space.let_go(small);
            }
        }
        Ok(())
    }

    /// Holds back a place for the next checkpoint: an ample one, or as large a one as there is.
    fn hold_place(&mut self, needs: Needs) -> Result<Extent> {
        let unit = needs.segment_bytes_min;
        let least_bytes = needs.place_bytes.next_multiple_of(unit);
        let ample_bytes = needs.ample_bytes();
        if let Ok(extent) = self.hold_share(ample_bytes, unit, TRIES_OF_LARGE_MAX) {
            return Ok(extent);
        }
        self.region.health().check()?;
        let free = self.space.unreserved();
        let whole = free.filter_map(|extent| extent.whole_units(unit / GRANULE_BYTES));
        let longest_bytes = whole.map(|extent| extent.count).max().unwrap_or(0) * GRANULE_BYTES;
        if (least_bytes + 1..ample_bytes).contains(&longest_bytes)
            && let Ok(extent) = self.hold_share(longest_bytes, unit, TRIES_OF_LARGE_MAX)
        {
            return Ok(extent);
        }
        self.region.health().check()?;
        self.hold_share(least_bytes, unit, TRIES_OF_LARGE_MAX)
    }

    /// Holds back a place for a checkpoint of now where there is none for the next: puts are refused then,
    /// and deletes do not make it larger.
    fn hold_least_place(&mut self, needs: Needs) {
        let is_made = self.region.live().checkpoint_extents().iter().all(Option::is_some);
        let fits = |extent: &Extent| extent.count * GRANULE_BYTES >= needs.image_bytes;
        let is_left = mutant::is_made(Mutant::PlacesBecomeSegments);
        let has_failed = self.region.health().check().is_err();
        if is_made || is_left || has_failed || self.reserve.places.iter().any(fits) {
            return;
        }
        let count = needs.image_bytes.div_ceil(GRANULE_BYTES);
        if let Ok(held) = self.hold_inside(count, 1, TRIES_MAX) {
            self.reserve.places.extend(held);
        }
    }

    /// Returns how many places for a checkpoint are missing.
    fn places_missing(&self, needs: Needs) -> usize {
        PLACES.saturating_sub(self.place_count(needs))
    }

    /// Returns how many places for a checkpoint there are. The present one, and one that is being made,
    /// count where they are large enough for the next.
    fn place_count(&self, needs: Needs) -> usize {
        let live = self.region.live();
        let named = live.checkpoint_extents().into_iter().flatten();
        let places = named.chain(self.reserve.places.iter().copied());
        let is_large = |extent: &Extent| extent.count * GRANULE_BYTES >= needs.place_bytes;
        places.filter(is_large).count()
    }

    /// As [`hold_one`](Self::hold_one), but on a file system on which the reserve was never
    /// complete, it leaves as much space for puts as it takes.
    fn hold_share(&mut self, bytes: u64, alignment: u64, tries: usize) -> Result<Extent> {
        let (count, granules) = (bytes / GRANULE_BYTES, alignment / GRANULE_BYTES);
        if let Some(extent) = self.hold_inside(count, granules, tries)? {
            return Ok(extent);
        }
        if !self.reserve.was_whole {
            self.region.write("reserve space for", |storage| {
                let is_share = storage.growth_bytes()? >= SHARE * bytes;
                if is_share { Ok(()) } else { Err(no_room()) }
            })?;
        }
        self.hold_at_end(count, granules)
    }

    /// Holds back `bytes`, of free granules that have blocks or get them, or behind the end of the file.
    fn hold_one(&mut self, bytes: u64, alignment: u64) -> Result<Extent> {
        let (count, alignment) = (bytes / GRANULE_BYTES, alignment / GRANULE_BYTES);
        match self.hold_inside(count, alignment, TRIES_MAX)? {
            Some(extent) => Ok(extent),
            None => self.hold_at_end(count, alignment),
        }
    }

    /// Holds back free granules that have blocks or get them, if any of up to `tries` places does.
    ///
    /// # Errors
    ///
    /// Those of the device. After one, no other place is tried, since a handle that has failed
    /// stores nothing more.
    fn hold_inside(&mut self, count: u64, alignment: u64, tries: usize) -> Result<Option<Extent>> {
        let bytes = count * GRANULE_BYTES;
        for extent in self.space.candidates(count, alignment, tries) {
            let offset = extent.granule * GRANULE_BYTES;
            let held =
                self.region.write("reserve space for", |storage| storage.hold_range(offset, bytes));
            match held {
                Ok(()) => {
                    self.note_held(extent);
                    return Ok(Some(extent));
                }
                Err(error) if self.region.health().check().is_err() => return Err(error),
                Err(_) => {}
            }
        }
        Ok(None)
    }

    /// Allocates `bytes` of free granules that have blocks or get them, if there are any.
    pub(super) fn allocate_backed_inside(&mut self, bytes: u64) -> Result<Option<u64>> {
        let held = self.hold_inside(bytes / GRANULE_BYTES, 1, TRIES_MAX)?;
        if let Some(extent) = held {
            self.space.take_held(extent);
            self.publish();
        }
        Ok(held.map(|extent| extent.granule * GRANULE_BYTES))
    }

    /// Allocates `bytes` that have blocks or get them, of free granules or behind the end of the file, and
    /// first passes them to `note`: on a full disk some free granules have none.
    pub(crate) fn allocate_backed(
        &mut self,
        bytes: u64,
        alignment: u64,
        note: impl FnOnce(Extent),
    ) -> Result<u64> {
        let extent = self.hold_one(bytes, alignment)?;
        note(extent);
        self.space.take_held(extent);
        self.publish();
        Ok(extent.granule * GRANULE_BYTES)
    }

    fn hold_at_end(&mut self, count: u64, alignment: u64) -> Result<Extent> {
        let granule = self.space.loose_end().next_multiple_of(alignment);
        let end = granule + count;
        if end * GRANULE_BYTES > FILE_BYTES_MAX {
            let (what, bytes) = ("address space of the file", count * GRANULE_BYTES);
            return Err(Error::Full { what, bytes });
        }
        self.make_table_room(end * GRANULE_BYTES)?;
        // The table may have taken the end.
        let granule = self.space.loose_end().next_multiple_of(alignment);
        let end = granule + count;
        let (offset, bytes) = (granule * GRANULE_BYTES, count * GRANULE_BYTES);
        self.region.extend(end * GRANULE_BYTES)?;
        self.region.write("reserve space for", |storage| storage.hold_range(offset, bytes))?;
        self.space.extend_to(end);
        let extent = Extent { granule, count };
        self.note_held(extent);
        Ok(extent)
    }

    fn note_held(&mut self, extent: Extent) {
        for unused in [&mut self.warm, &mut self.inherited] {
            unused.remove(extent.granule..extent.granule + extent.count);
        }
        self.space.hold(extent);
    }

    /// Allocates a segment that is held back and has at least `bytes_min` bytes, if `left` others stay;
    /// returns where it is, and its size.
    pub(crate) fn take_held_segment(&mut self, bytes_min: u64, left: usize) -> Option<(u64, u64)> {
        if self.reserve.segments.len() <= left {
            return None;
        }
        let is_large = |extent: &Extent| extent.count * GRANULE_BYTES >= bytes_min;
        let i = self.reserve.segments.iter().position(is_large)?;
        let extent = self.reserve.segments.swap_remove(i);
        self.reserve.is_short = true;
        self.space.take_held(extent);
        self.publish();
        Some((extent.granule * GRANULE_BYTES, extent.count * GRANULE_BYTES))
    }

    /// Allocates a place for a checkpoint of `bytes`, all of it, and first passes its granules to
    /// `note`; returns where it is, and its size.
    pub(crate) fn take_held_place(
        &mut self,
        bytes: u64,
        note: impl FnOnce(Extent),
    ) -> Option<(u64, u64)> {
        let is_large = |extent: &Extent| extent.count * GRANULE_BYTES >= bytes;
        let i = self.reserve.places.iter().position(is_large)?;
        let extent = self.reserve.places.swap_remove(i);
        self.reserve.is_short = true;
        note(extent);
        self.space.take_held(extent);
        self.publish();
        Some((extent.granule * GRANULE_BYTES, extent.count * GRANULE_BYTES))
    }

    /// Makes what is held back at the end of the file free, so that it is held back before the end.
    pub(crate) fn let_go_of_end(&mut self) {
        let end = self.space.end();
        let is_loose = |space: &Space, extent: &Extent| {
            let alignment = 1 << extent.count.trailing_zeros();
            extent.granule + extent.count == end
                && space.has_room_before(extent.granule, extent.count, alignment)
        };
        let held = self.space.held().to_vec();
        for extent in held {
            if !is_loose(&self.space, &extent) {
                continue;
            }
            self.reserve.segments.retain(|other| *other != extent);
            self.reserve.places.retain(|other| *other != extent);
            self.space.let_go(extent);
        }
        self.publish();
    }

    /// Has the segment table in the file have room for a file of `file_bytes`.
    pub(super) fn make_table_room(&mut self, file_bytes: u64) -> Result<()> {
        if self.segments.as_ref().is_some_and(|segments| !segments.has_room(file_bytes)) {
            self.move_table(file_bytes)?;
        }
        Ok(())
    }
}

/// Returns whether the region is of a file in which something may be held back.
pub(crate) fn may_hold(region: &Region) -> bool {
    !region.storage().is_volatile() && !region.is_private()
}
