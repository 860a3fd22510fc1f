//! The free overflow pages: the bitmaps, in memory.
//!
//! # Invariants
//!
//! - A page that the last synced state may need is not allocated again before the next sync: it is
//!   *released* until then, and free afterwards.

use super::addresses::{Extension, OverflowAddr, Shape};
use crate::ByteOrder;

/// A growing set of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    pub(super) fn contains(&self, index: u32) -> bool {
        self.0.get(index as usize / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// Adds `index` and returns whether it was not there.
    pub(super) fn insert(&mut self, index: u32) -> bool {
        let word = index as usize / 64;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        let is_new = !self.contains(index);
        self.0[word] |= 1 << (index % 64);
        is_new
    }

    fn remove(&mut self, index: u32) {
        if let Some(word) = self.0.get_mut(index as usize / 64) {
            *word &= !(1 << (index % 64));
        }
    }

    /// Returns the first number from `from` on that is not in the set.
    fn first_absent(&self, from: u32) -> u32 {
        let mut index = from;
        while let Some(&word) = self.0.get(index as usize / 64) {
            let absent = !word >> (index % 64);
            if absent != 0 {
                return index + absent.trailing_zeros();
            }
            index = (index / 64 + 1) * 64;
        }
        index
    }
}

/// The overflow pages of a table, by their numbers from 0.
#[derive(Clone, Debug, Default)]
pub(super) struct Overflow {
    in_use: Bits,
    /// In use in the state that was last synced.
    synced: Bits,
    /// In use there, and no longer needed now.
    released: Bits,
    free_count: u32,
    /// No page before this one is free.
    first_free: u32,
}

impl Overflow {
    /// Returns the state of a new table: its bitmap is in use.
    pub(super) fn new(shape: &Shape) -> Self {
        let mut overflow = Self { free_count: shape.overflow_count(), ..Self::default() };
        for addr in &shape.bitmaps[..shape.bitmap_count() as usize] {
            overflow.mark(shape, OverflowAddr(*addr));
        }
        overflow
    }

    /// Returns the state in the bitmap pages, all of it synced.
    pub(super) fn decode(shape: &Shape, order: ByteOrder, bitmaps: &[Vec<u8>]) -> Self {
        let mut in_use = Bits::default();
        let words = bitmaps.iter().flat_map(|page| page.chunks_exact(4));
        for (word, index) in words.zip((0..shape.overflow_count()).step_by(32)) {
            let word = order.u32([word[0], word[1], word[2], word[3]]);
            let count = (shape.overflow_count() - index).min(32);
            for bit in (0..count).filter(|bit| word >> bit & 1 == 1) {
                in_use.insert(index + bit);
            }
        }
        // A damaged file may have a page without a bitmap, which we do not touch.
        for index in bitmaps.len() as u32 * shape.bitmap_bits()..shape.overflow_count() {
            in_use.insert(index);
        }
        Self::of_used(shape, in_use)
    }

    /// Returns the state in which just `in_use` and the bitmaps themselves are in use.
    pub(super) fn of_used(shape: &Shape, mut in_use: Bits) -> Self {
        for addr in &shape.bitmaps[..shape.bitmap_count() as usize] {
            if let Some(index) = shape.overflow_index(OverflowAddr(*addr)) {
                in_use.insert(index);
            }
        }
        let free = |index: &u32| !in_use.contains(*index);
        let free_count = (0..shape.overflow_count()).filter(free).count() as u32;
        Self { synced: in_use.clone(), in_use, free_count, ..Self::default() }
    }

    fn mark(&mut self, shape: &Shape, addr: OverflowAddr) {
        if let Some(index) = shape.overflow_index(addr) {
            self.free_count -= u32::from(self.in_use.insert(index));
        }
    }

    /// Returns the number of pages that can be allocated.
    pub(super) fn available(&self, shape: &Shape) -> u32 {
        self.free_count + shape.room()
    }

    /// Returns the number of free pages.
    pub(super) fn free_count(&self) -> u32 {
        self.free_count
    }

    /// Returns the first page that is free, or the number of all.
    pub(super) fn first_free(&self, shape: &Shape) -> u32 {
        self.in_use.first_absent(self.first_free).min(shape.overflow_count())
    }

    /// Allocates a page, or returns `None` if the format has no more.
    pub(super) fn allocate(&mut self, shape: &mut Shape) -> Option<OverflowAddr> {
        if self.free_count > 0 {
            let index = self.in_use.first_absent(self.first_free);
            assert!(index < shape.overflow_count(), "there is a free page");
            self.in_use.insert(index);
            self.free_count -= 1;
            self.first_free = index + 1;
            return Some(shape.overflow_addr(index));
        }
        if shape.room() == 0 {
            return None;
        }
        loop {
            let (addr, extension) = shape.extend();
            self.in_use.insert(shape.overflow_count() - 1);
            if extension == Extension::Page {
                return Some(addr);
            }
        }
    }

    /// Frees a page. It can be allocated again at once, or after the next sync.
    pub(super) fn release(&mut self, index: u32) {
        if self.synced.contains(index) {
            self.released.insert(index);
        } else if self.in_use.contains(index) {
            self.in_use.remove(index);
            self.free_count += 1;
            self.first_free = self.first_free.min(index);
        }
    }

    /// Returns whether the state that was last synced may need this page.
    pub(super) fn is_synced(&self, index: u32) -> bool {
        self.synced.contains(index)
    }

    /// Returns whether there are pages that a sync would free.
    pub(super) fn has_released(&self) -> bool {
        self.released.0.iter().any(|&word| word != 0)
    }

    /// Returns whether page `index` is in use, and not only by the state that was last synced.
    pub(super) fn is_needed(&self, index: u32) -> bool {
        self.in_use.contains(index) && !self.released.contains(index)
    }

    /// Records a successful sync, which turns released pages into free ones.
    pub(super) fn all_written(&mut self, shape: &Shape) {
        for index in 0..shape.overflow_count() {
            if self.released.contains(index) {
                self.in_use.remove(index);
                self.free_count += 1;
                self.first_free = self.first_free.min(index);
            }
        }
        self.released = Bits::default();
        self.synced = self.in_use.clone();
    }

    /// Returns bitmap page `page`: with the pages that only the last synced state needs, or not.
    ///
    /// Bits of pages that have not been allocated are set.
    pub(super) fn encode(
        &self,
        shape: &Shape,
        order: ByteOrder,
        page: u32,
        which: Which,
    ) -> Vec<u8> {
        let first = page * shape.bitmap_bits();
        let is_set = |index: u32| {
            index >= shape.overflow_count()
                || match which {
                    Which::NeededOrSynced => self.in_use.contains(index),
                    Which::Needed => self.is_needed(index),
                }
        };
        let word = |first: u32| (0..32).map(|bit| u32::from(is_set(first + bit)) << bit).sum();
        let words = (first..first + shape.bitmap_bits()).step_by(32).map(word);
        words.flat_map(|word| order.bytes_of_u32(word)).collect()
    }
}

/// Which pages a bitmap shows as in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    NeededOrSynced,
    Needed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitmaps_come_back_as_they_were() {
        for order in ByteOrder::ALL {
            let mut shape = Shape::new(64, 8, 2);
            let mut overflow = Overflow::new(&shape);
            let addrs: Vec<_> = (0..1200).map(|_| overflow.allocate(&mut shape).unwrap()).collect();
            for addr in addrs.iter().step_by(3) {
                overflow.release(shape.overflow_index(*addr).unwrap());
            }
            assert_eq!(overflow.free_count(), 400);
            let pages = 0..shape.bitmap_count();
            let pages: Vec<_> =
                pages.map(|page| overflow.encode(&shape, order, page, Which::Needed)).collect();
            assert!(pages.len() > 2);
            let decoded = Overflow::decode(&shape, order, &pages);
            assert_eq!(decoded.free_count(), 400);
            for index in 0..shape.overflow_count() {
                assert_eq!(decoded.is_needed(index), overflow.is_needed(index), "{index}");
            }
        }
    }

    #[test]
    fn what_is_synced_is_handed_out_again_only_after_a_sync() {
        let mut shape = Shape::new(512, 1, 2);
        let mut overflow = Overflow::new(&shape);
        let synced = overflow.allocate(&mut shape).unwrap();
        overflow.all_written(&shape);
        let fresh = overflow.allocate(&mut shape).unwrap();
        for addr in [synced, fresh] {
            overflow.release(shape.overflow_index(addr).unwrap());
        }
        assert!(overflow.has_released());
        assert_eq!(overflow.allocate(&mut shape), Some(fresh));
        assert_ne!(overflow.allocate(&mut shape), Some(synced));
        overflow.all_written(&shape);
        assert_eq!(overflow.allocate(&mut shape), Some(synced));
    }

    #[test]
    fn a_page_is_handed_out_once_until_there_are_no_more() {
        let mut shape = Shape::new(64, 8, 2);
        let mut overflow = Overflow::new(&shape);
        let mut seen = std::collections::HashSet::new();
        while let Some(addr) = overflow.allocate(&mut shape) {
            assert!(seen.insert(addr));
        }
        assert!(seen.len() > 15_000, "{}", seen.len());
        let some = *seen.iter().next().unwrap();
        overflow.release(shape.overflow_index(some).unwrap());
        assert_eq!(overflow.allocate(&mut shape), Some(some));
        assert_eq!(overflow.allocate(&mut shape), None);
    }
}
