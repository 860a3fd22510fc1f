//! Memory that grows and never moves: chunks, each as large as all before it together.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr;

/// One chunk for each bit of an index, the first, and more: the remainder of a division by it is in range.
const CHUNK_COUNT_MAX: usize = 64;

/// Items that are all zeroes at first, at addresses that stay the same until the memory is dropped.
///
/// The first chunk has `2^first_bits` items, and chunk `k` has `2^(first_bits + k - 1)`. The system
/// gives memory to a chunk as it is touched, so half of the last one costs nothing until it is used.
/// Huge pages are not asked for: to find and clear one takes the system up to 8 ms, and lookups gain
/// nothing that could be measured at 10,000,000 entries.
#[derive(Debug)]
pub(crate) struct Stable<T> {
    first_bits: u32,
    /// Where each chunk would begin if it began with item 0.
    origins: [*mut T; CHUNK_COUNT_MAX],
    /// What was allocated, to free it.
    allocations: Vec<(*mut u8, Layout)>,
    /// Items that have a place.
    capacity: u64,
}

impl<T> Stable<T> {
    /// Creates memory with room for `count` items, or returns `None` if there is none.
    pub(crate) fn new(count: u64) -> Option<Self> {
        let first_bits = count.max(1).checked_next_power_of_two()?.ilog2();
        let mut new = Self {
            first_bits,
            origins: [ptr::null_mut(); CHUNK_COUNT_MAX],
            allocations: Vec::new(),
            capacity: 0,
        };
        new.grow()?;
        Some(new)
    }

    /// Makes room for item `index`, which is at most one behind the last that has a place.
    pub(crate) fn reserve(&mut self, index: u64) -> Option<()> {
        debug_assert!(index <= self.capacity, "items are used in order");
        if index < self.capacity { Some(()) } else { self.grow() }
    }

    /// Returns the place of item `index`, which has one.
    #[inline]
    pub(crate) fn at(&self, index: u64) -> *mut T {
        debug_assert!(index < self.capacity, "item {index} has a place");
        let chunk = u64::BITS - (index >> self.first_bits).leading_zeros();
        self.origins[chunk as usize % CHUNK_COUNT_MAX].wrapping_add(index as usize)
    }

    #[cold]
    fn grow(&mut self) -> Option<()> {
        let chunk = self.allocations.len();
        let first = self.capacity;
        let count = if chunk == 0 { 1 << self.first_bits } else { first };
        let bytes = usize::try_from(count).ok()?.checked_mul(size_of::<T>())?;
        // Aligned by hand: a larger alignment than malloc's would make the allocator touch all of it.
        let layout = Layout::from_size_align(bytes.checked_add(align_of::<T>())?, 16).ok()?;
        self.allocations.try_reserve(1).ok()?;
        // SAFETY: the size is not 0.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            return None;
        }
        let aligned = start.wrapping_add(start.align_offset(align_of::<T>()));
        self.allocations.push((start, layout));
        *self.origins.get_mut(chunk)? = aligned.cast::<T>().wrapping_sub(first as usize);
        self.capacity = first + count;
        Some(())
    }
}

impl<T> Drop for Stable<T> {
    fn drop(&mut self) {
        for &(start, layout) in &self.allocations {
            // SAFETY: `grow` allocated it with this layout, and it is freed once.
            unsafe { dealloc(start, layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Line([u64; 8]);

    #[test]
    fn items_stay_where_they_are_while_the_memory_grows() {
        for first in [0, 1, 3, 8] {
            let mut items = Stable::<Line>::new(first).unwrap();
            let mut places = Vec::new();
            for index in 0..1000 {
                items.reserve(index).unwrap();
                let place = items.at(index);
                assert!(place.is_aligned());
                // SAFETY: the item has a place, and nobody else uses it.
                let item = unsafe { &mut *place };
                assert_eq!(item.0, [0; 8]);
                item.0 = [index; 8];
                places.push(place);
            }
            for (index, &place) in (0..).zip(&places) {
                assert_eq!(items.at(index), place);
                // SAFETY: as above.
                assert_eq!(unsafe { &*place }.0, [index; 8]);
            }
        }
    }

    #[test]
    fn more_than_there_is_is_refused() {
        assert!(Stable::<[u64; 8]>::new(u64::MAX).is_none());
        assert!(Stable::<[u64; 8]>::new(1 << 60).is_none());
    }
}
