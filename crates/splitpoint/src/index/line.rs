//! One line: seven slots and a word that leads to the next line.

use super::slot::{Slot, Tag};
use crate::atomic::{AtomicU64, Ordering, may_be_killed};

/// Slots of a line.
pub(crate) const SLOT_COUNT: usize = 7;
/// Size of a line in bytes: one cache line.
pub(crate) const LINE_BYTES: u64 = 64;

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

impl Line {
    /// Returns a line without slots, for tables outside a window.
    #[cfg(test)]
    pub(crate) fn new() -> Self {
        Self { slots: std::array::from_fn(|_| AtomicU64::new(0)), meta: AtomicU64::new(0) }
    }

    /// Returns a mask of the slots whose tag is `tag`, without a branch; for tag 0 the empty
    /// slots are in it.
    #[inline]
    pub(crate) fn match_tag(&self, tag: Tag) -> u32 {
        let mut mask = 0;
        for (i, slot) in self.slots.iter().enumerate() {
            let equal = Slot(slot.load(Ordering::Acquire)).tag() == tag;
            mask |= u32::from(equal) << i;
        }
        mask
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
    pub(crate) fn hole(&self) -> Option<usize> {
        (0..SLOT_COUNT).find(|&i| self.slot(i).is_empty())
    }

    /// Returns the number of slots in use.
    pub(crate) fn slot_count(&self) -> u64 {
        (0..SLOT_COUNT).map(|i| u64::from(!self.slot(i).is_empty())).sum()
    }
}
