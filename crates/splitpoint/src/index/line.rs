//! One line: seven slots and a word that leads to the next line.

use std::sync::OnceLock;

use super::slot::{Slot, Tag};
use crate::atomic::{AtomicU64, Ordering, may_be_killed};
use crate::format::u64_at;

/// Slots of a line.
pub(crate) const SLOT_COUNT: usize = 7;
/// A mask of all of them.
pub(super) const ALL_PLACES: u32 = (1 << SLOT_COUNT) - 1;
/// Size of a line in bytes: one cache line.
pub(crate) const LINE_BYTES: u64 = 64;

/// Where in a line the number of the next line of its chain is, in bytes.
pub(crate) const NEXT_OFFSET: u64 = 8 * SLOT_COUNT as u64;

/// Number of an overflow line, counted from 1; 0 would be none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LineNumber(pub(crate) u32);

/// A bucket or an overflow line: one cache line.
///
/// ```text
/// offset  size  field
///      0    56  seven slots: tag (bits 40-63), address of a record / 8 (bits 0-39); 0 is empty
///     56     4  overflow line that continues the chain, counted from 1; 0 for none
///     60     4  next line of the free list, for a line that is on it; 0 for none
/// ```
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Line {
    slots: [AtomicU64; SLOT_COUNT],
    meta: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Line>() as u64 == LINE_BYTES);

/// Every store to a line: in a test, a place where the process may be killed.
#[inline]
fn store(word: &AtomicU64, value: u64) {
    may_be_killed();
    word.store(value, Ordering::Release);
    may_be_killed();
}

/// Returns the places of a mask, lowest first.
#[inline]
pub(super) fn places_of(mut mask: u32) -> impl Iterator<Item = usize> {
    debug_assert!(mask & !ALL_PLACES == 0, "one bit for each slot");
    std::iter::from_fn(move || {
        let place = (mask != 0).then(|| mask.trailing_zeros() as usize);
        mask &= mask.wrapping_sub(1);
        place
    })
}

impl Line {
    /// Returns a line that is always empty, in place of one that is not there.
    pub(crate) fn none() -> &'static Self {
        static NONE: OnceLock<Line> = OnceLock::new();
        NONE.get_or_init(Self::new)
    }

    /// Returns a line without slots, for tables outside a window.
    pub(crate) fn new() -> Self {
        Self { slots: std::array::from_fn(|_| AtomicU64::new(0)), meta: AtomicU64::new(0) }
    }

    /// Returns a line with the content that one of the file has.
    pub(crate) fn of_bytes(bytes: &[u8; LINE_BYTES as usize]) -> Self {
        let word = |i| AtomicU64::new(u64_at(bytes, 8 * i));
        Self { slots: std::array::from_fn(word), meta: word(SLOT_COUNT) }
    }

    /// Returns a mask of the slots that `is_meant` chooses, without a branch: which they are cannot be
    /// predicted.
    #[inline]
    fn mask(&self, is_meant: impl Fn(Slot) -> bool) -> u32 {
        let slots = self.slots.iter().rev();
        slots.fold(0, |mask, slot| {
            mask << 1 | u32::from(is_meant(Slot(slot.load(Ordering::Acquire))))
        })
    }

    /// Returns a mask of the slots whose tag is `tag`; for tag 0 the empty slots are in it.
    #[inline]
    pub(crate) fn match_tag(&self, tag: Tag) -> u32 {
        debug_assert!(tag.0 >> Tag::BITS == 0);
        self.mask(|slot| slot.tag() == tag)
    }

    /// Returns whether one of the slots is `wanted`.
    #[inline]
    pub(crate) fn has(&self, wanted: Slot) -> bool {
        self.place_of(wanted).is_some()
    }

    /// Returns the first place that holds `wanted`.
    #[inline]
    pub(crate) fn place_of(&self, wanted: Slot) -> Option<usize> {
        debug_assert!(!wanted.is_empty(), "an empty slot holds nothing");
        let places = self.mask(|slot| slot == wanted);
        (places != 0).then(|| places.trailing_zeros() as usize)
    }

    /// Returns a mask of the slots in use.
    #[inline]
    pub(super) fn in_use(&self) -> u32 {
        self.mask(|slot| !slot.is_empty())
    }

    /// Returns a mask of the slots for whose hashes bit `bit` is set, if tags have that bit.
    #[inline]
    pub(super) fn with_hash_bit(&self, bit: u32) -> Option<u32> {
        let bit = Slot::place_of_bit(bit)?;
        Some(self.mask(|slot| slot.0 >> bit & 1 == 1))
    }

    /// Returns the slots at the places of a mask.
    #[inline]
    pub(super) fn slots_at(&self, places: u32) -> impl Iterator<Item = Slot> + '_ {
        places_of(places).map(|i| self.slot(i))
    }

    /// Returns the slots in use with their places.
    #[inline]
    pub(crate) fn slots_in_use(&self) -> impl Iterator<Item = (usize, Slot)> + '_ {
        let slots = places_of(self.in_use()).map(|i| (i, self.slot(i)));
        // One may have been erased since.
        slots.filter(|(_, slot)| !slot.is_empty())
    }

    /// Returns slot `i`.
    #[inline]
    pub(crate) fn slot(&self, i: usize) -> Slot {
        Slot(self.slots[i].load(Ordering::Acquire))
    }

    /// Replaces slot `i` in one store, after everything stored before.
    #[inline]
    pub(crate) fn set_slot(&self, i: usize, slot: Slot) {
        store(&self.slots[i], slot.0);
    }

    /// Returns the line that continues the chain.
    #[inline]
    pub(crate) fn next(&self) -> Option<LineNumber> {
        let next = self.meta.load(Ordering::Acquire) as u32;
        (next != 0).then_some(LineNumber(next))
    }

    /// Replaces the line that continues the chain.
    pub(crate) fn set_next(&self, next: Option<LineNumber>) {
        debug_assert!(next != Some(LineNumber(0)), "lines are counted from 1");
        store(&self.meta, next.map_or(0, |line| line.0.into()));
    }

    /// Returns the next line of the free list.
    pub(crate) fn next_free(&self) -> Option<LineNumber> {
        let next = (self.meta.load(Ordering::Relaxed) >> 32) as u32;
        (next != 0).then_some(LineNumber(next))
    }

    /// Puts the line before `next` on the free list. Its chain is left as it is, for readers
    /// that have strayed here.
    pub(crate) fn set_next_free(&self, next: Option<LineNumber>) {
        debug_assert!(next != Some(LineNumber(0)), "lines are counted from 1");
        let chain = self.meta.load(Ordering::Relaxed) & u64::from(u32::MAX);
        let free = next.map_or(0, |line| line.0.into());
        store(&self.meta, free << 32 | chain);
    }

    /// Empties the line. Only for lines that no chain has; a reader that has strayed here and
    /// finds nothing must also find that the epoch has changed, so each store releases.
    pub(crate) fn clear(&self) {
        for slot in &self.slots {
            store(slot, 0);
        }
        store(&self.meta, 0);
    }

    /// Makes a line zero that has anything, for a table that nobody looks at yet.
    #[inline]
    pub(crate) fn erase(&self) {
        for word in self.slots.iter().chain([&self.meta]) {
            if word.load(Ordering::Relaxed) != 0 {
                store(word, 0);
            }
        }
    }

    /// Returns the first empty slot.
    #[inline]
    pub(crate) fn first_empty(&self) -> Option<usize> {
        let empty = self.mask(Slot::is_empty);
        debug_assert!(empty >> SLOT_COUNT == 0, "one bit for each slot");
        (empty != 0).then(|| empty.trailing_zeros() as usize)
    }

    /// Returns the number of slots in use.
    pub(crate) fn slot_count(&self) -> u64 {
        self.in_use().count_ones().into()
    }
}
