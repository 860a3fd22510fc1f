//! The free granules of the file. Pure: the caller extends the file and stores the list.

use crate::format::GRANULE_BYTES;

/// A run of free granules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// First granule.
    pub(crate) granule: u64,
    /// Number of granules.
    pub(crate) count: u64,
}

impl Extent {
    /// Returns the part that is whole multiples of `unit` granules, if there is any.
    pub(crate) fn whole_units(self, unit: u64) -> Option<Self> {
        let start = self.granule.next_multiple_of(unit);
        let end = (self.granule + self.count) / unit * unit;
        (start < end).then(|| Self { granule: start, count: end - start })
    }
}

/// The end of the file, and the free granules before it.
///
/// Aligning log segments leaves gaps, which the small pieces of the index fill: the "buddy in
/// waiting" of db 1.85, with the log in the place of the buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    end: u64,
    free: Vec<Extent>,
    /// The free extent that is reserved for the next segment of the log.
    aside: Option<Extent>,
    /// The free extents that are held back for deletes and compaction.
    held: Vec<Extent>,
    /// Largest number of free extents in the list.
    extent_count_max: usize,
    is_packed: bool,
}

impl Space {
    /// Largest number of free extents in the live header. Of a store that was not compacted there are no
    /// more: the smallest is dropped, and its granules stay unused until the list is rebuilt.
    pub(crate) const EXTENT_COUNT_MAX: usize = 64;

    /// Returns the space of a file that ends at `end` granules, with these free extents.
    pub(crate) fn new(end: u64, free: Vec<Extent>) -> Self {
        let extent_count_max = Self::EXTENT_COUNT_MAX;
        Self { end, free, aside: None, held: Vec::new(), extent_count_max, is_packed: false }
    }

    /// Drops no extent however many there are, for a table in memory: no other process reads its
    /// list.
    pub(crate) fn keep_all(&mut self) {
        self.extent_count_max = usize::MAX;
    }

    /// Returns the space that is free beside `used` extents of a file, in any order. They must not
    /// overlap.
    pub(crate) fn complement(start: u64, mut used: Vec<Extent>) -> Self {
        used.sort_unstable_by_key(|extent| extent.granule);
        let mut space = Self::new(start, Vec::new());
        space.keep_all();
        for extent in used {
            if extent.granule > space.end {
                let count = extent.granule - space.end;
                space.free.push(Extent { granule: space.end, count });
            }
            space.end = space.end.max(extent.granule + extent.count);
        }
        space
    }

    /// Takes over what `before` has set aside or holds back, which is free in this list.
    pub(crate) fn keep_aside(&mut self, before: &Self) {
        if let Some(aside) = before.aside {
            self.split_off(aside);
            self.aside = Some(aside);
        }
        before.held.iter().for_each(|&held| self.hold(held));
    }

    /// Makes a part of a free extent one of its own.
    fn split_off(&mut self, part: Extent) {
        let whole = self.free.iter().position(|free| {
            !self.is_reserved(free)
                && free.granule <= part.granule
                && part.granule + part.count <= free.granule + free.count
        });
        let free = self.free.swap_remove(whole.expect("what is set aside is free"));
        let (end, free_end) = (part.granule + part.count, free.granule + free.count);
        self.add_free(free.granule, part.granule - free.granule);
        self.add_free(end, free_end - end);
        self.free.push(part);
    }

    /// Holds back a part of a free extent: it counts as free, and nothing allocates it before
    /// [`let_go`](Self::let_go). So a killed process leaves it free.
    pub(crate) fn hold(&mut self, part: Extent) {
        self.split_off(part);
        self.held.push(part);
        self.forget_smallest();
    }

    /// Makes what [`hold`](Self::hold) holds back an extent like the others.
    pub(crate) fn let_go(&mut self, held: Extent) {
        let before = self.held.len();
        self.held.retain(|extent| *extent != held);
        assert_eq!(self.held.len() + 1, before, "it was held");
        self.free.retain(|extent| *extent != held);
        self.add_free(held.granule, held.count);
    }

    /// Allocates what [`hold`](Self::hold) holds back.
    pub(crate) fn take_held(&mut self, held: Extent) {
        self.let_go(held);
        self.split_off(held);
        self.free.retain(|extent| *extent != held);
    }

    /// Returns the extents that are held back.
    pub(crate) fn held(&self) -> &[Extent] {
        &self.held
    }

    /// Returns up to `most` places before the end for `count` granules, the first a multiple of
    /// `alignment`: one of each free extent that has room, the smallest first, and then others in them.
    pub(crate) fn candidates(&self, count: u64, alignment: u64, most: usize) -> Vec<Extent> {
        let mut fits: Vec<&Extent> =
            self.unreserved().filter(|extent| fits(extent, count, alignment)).collect();
        fits.sort_unstable_by_key(|extent| (extent.count, extent.granule));
        let step = count.next_multiple_of(alignment) as usize;
        let places = |extent: &Extent| {
            let first = extent.granule.next_multiple_of(alignment);
            (first..=extent.granule + extent.count - count).step_by(step)
        };
        let first = fits.iter().flat_map(|extent| places(extent).take(1));
        let others = fits.iter().flat_map(|extent| places(extent).skip(1));
        first.chain(others).take(most).map(|granule| Extent { granule, count }).collect()
    }

    /// Returns whether an extent is set aside or held back.
    fn is_reserved(&self, extent: &Extent) -> bool {
        self.aside == Some(*extent) || self.held.contains(extent)
    }

    /// Makes the file end at `end` granules or behind, and the new ones free.
    pub(crate) fn extend_to(&mut self, end: u64) {
        if let Some(count) = end.checked_sub(self.end) {
            let granule = std::mem::replace(&mut self.end, end);
            self.add_free(granule, count);
        }
    }

    /// Returns whether any granule of `extent` is free or behind the end.
    pub(crate) fn is_free(&self, extent: Extent) -> bool {
        let after = |extent: Extent| extent.granule.saturating_add(extent.count);
        after(extent) > self.end
            || self
                .free
                .iter()
                .any(|free| free.granule < after(extent) && extent.granule < after(*free))
    }

    /// Removes the free granules at the end, and returns whether there were any; an extent that is set
    /// aside or held back stays.
    pub(crate) fn trim(&mut self) -> bool {
        let is_last = |extent: &Extent| {
            extent.granule + extent.count == self.end && !self.is_reserved(extent)
        };
        let last = self.free.iter().position(is_last);
        if let Some(last) = last {
            self.end = self.free.swap_remove(last).granule;
        }
        last.is_some()
    }

    /// Returns the end of the file in granules.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Returns where the free granules at the end begin, or the end.
    pub(crate) fn used_end(&self) -> u64 {
        let last = self.free.iter().find(|free| free.granule + free.count == self.end);
        last.map_or(self.end, |free| free.granule)
    }

    /// Returns where the granules at the end begin that may be allocated, or the end.
    pub(crate) fn loose_end(&self) -> u64 {
        let last = self.unreserved().find(|free| free.granule + free.count == self.end);
        last.map_or(self.end, |free| free.granule)
    }

    /// Returns the free extents, including the one that is set aside.
    pub(crate) fn free(&self) -> &[Extent] {
        &self.free
    }

    /// Returns the free extents that are not set aside or held back.
    pub(crate) fn unreserved(&self) -> impl Iterator<Item = &Extent> {
        self.free.iter().filter(|extent| !self.is_reserved(extent))
    }

    /// Returns the number of free bytes before the end.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.free.iter().map(|extent| extent.count * GRANULE_BYTES).sum()
    }

    /// Allocates `count` granules, the first a multiple of `alignment`, and returns the first.
    ///
    /// It takes them from the smallest free extent that fits, or from the first one while the file is
    /// [packed](Self::pack); otherwise from the end of the file.
    pub(crate) fn allocate(&mut self, count: u64, alignment: u64) -> u64 {
        assert!(count > 0 && alignment.is_power_of_two());
        let fit = self
            .free
            .iter()
            .enumerate()
            .filter(|(_, extent)| !self.is_reserved(extent))
            .filter(|(_, extent)| fits(extent, count, alignment))
            .min_by_key(|(_, extent)| if self.is_packed { extent.granule } else { extent.count });
        let (start, extent_count) = if let Some((i, _)) = fit {
            let extent = self.free.swap_remove(i);
            (extent.granule, extent.count)
        } else {
            let start = self.end;
            self.end = start.next_multiple_of(alignment) + count;
            (start, self.end - start)
        };
        let granule = start.next_multiple_of(alignment);
        self.add_free(start, granule - start);
        self.add_free(granule + count, start + extent_count - granule - count);
        granule
    }

    /// Allocates these granules if they are free and not set aside; returns whether.
    pub(crate) fn allocate_at(&mut self, granule: u64, count: u64) -> bool {
        let has_all = |extent: &Extent| {
            extent.granule <= granule && granule + count <= extent.granule + extent.count
        };
        let found = self.free.iter().position(|free| self.aside != Some(*free) && has_all(free));
        let Some(found) = found else { return false };
        let extent = self.free.swap_remove(found);
        self.add_free(extent.granule, granule - extent.granule);
        self.add_free(granule + count, extent.granule + extent.count - granule - count);
        true
    }

    /// Returns whether granules are taken from the beginning of the file on.
    pub(crate) fn is_packed(&self) -> bool {
        self.is_packed
    }

    /// Has [`allocate`](Self::allocate) take the first free extent that fits, or the smallest one
    /// again.
    pub(crate) fn pack(&mut self, is_packed: bool) {
        self.is_packed = is_packed;
    }

    /// Returns whether there is room for `count` granules before `end`.
    pub(crate) fn has_room_before(&self, end: u64, count: u64, alignment: u64) -> bool {
        self.places_before(end, count, alignment) > 0
    }

    /// Returns how many extents of `count` granules there is room for before `end`, each beginning at a
    /// multiple of `alignment`.
    pub(crate) fn places_before(&self, end: u64, count: u64, alignment: u64) -> u64 {
        let before = self.unreserved().filter(|extent| extent.granule < end);
        before.map(|extent| places(extent, count, alignment)).sum()
    }

    /// Reserves granules like [`allocate`](Self::allocate), but lists them as free until
    /// [`take_aside`](Self::take_aside).
    ///
    /// So a process killed meanwhile leaves them free. Nothing else can allocate them.
    pub(crate) fn set_aside(&mut self, count: u64, alignment: u64) -> u64 {
        assert!(self.aside.is_none());
        let granule = self.allocate(count, alignment);
        let extent = Extent { granule, count };
        self.free.push(extent);
        self.aside = Some(extent);
        self.forget_smallest();
        granule
    }

    /// Allocates the extent that is set aside.
    pub(crate) fn take_aside(&mut self) {
        let aside = self.aside.take().expect("an extent is set aside");
        self.free.retain(|extent| *extent != aside);
    }

    /// Makes the extent that is set aside free again, if there is one.
    pub(crate) fn release_aside(&mut self) {
        if let Some(Extent { granule, count }) = self.aside {
            self.take_aside();
            self.add_free(granule, count);
        }
    }

    /// Frees granules.
    pub(crate) fn add_free(&mut self, granule: u64, count: u64) {
        if count == 0 {
            return;
        }
        let mut extent = Extent { granule, count };
        let (aside, held) = (self.aside, &self.held);
        self.free.retain(|other| {
            if aside == Some(*other) || held.contains(other) {
                return true;
            }
            let touches = other.granule + other.count == extent.granule
                || extent.granule + extent.count == other.granule;
            if touches {
                extent.granule = extent.granule.min(other.granule);
                extent.count += other.count;
            }
            !touches
        });
        self.free.push(extent);
        self.forget_smallest();
    }

    fn forget_smallest(&mut self) {
        if self.free.len() > self.extent_count_max {
            let smallest = (0..self.free.len())
                .filter(|&i| !self.is_reserved(&self.free[i]))
                .min_by_key(|&i| self.free[i].count);
            self.free.swap_remove(smallest.expect("more are free than are set aside"));
        }
    }
}

/// Returns whether a free extent has `count` granules, the first a multiple of `alignment`.
fn fits(extent: &Extent, count: u64, alignment: u64) -> bool {
    places(extent, count, alignment) > 0
}

/// Returns how many extents of `count` granules a free one has room for, each beginning at a multiple of
/// `alignment`.
fn places(extent: &Extent, count: u64, alignment: u64) -> u64 {
    let skip = extent.granule.next_multiple_of(alignment) - extent.granule;
    let step = count.next_multiple_of(alignment).max(1);
    let spare = extent.count.checked_sub(skip + count);
    spare.map_or(0, |spare| spare / step + 1)
}

/// Returns the granules from `start` to `end` that are in none of `extents`, in order.
pub(crate) fn between(start: u64, end: u64, mut extents: Vec<Extent>) -> Vec<Extent> {
    extents.sort_unstable_by_key(|extent| extent.granule);
    let mut rest = Vec::new();
    let mut at = start;
    for Extent { granule, count } in extents.into_iter().chain([Extent { granule: end, count: 0 }])
    {
        if granule > at {
            rest.push(Extent { granule: at, count: granule - at });
        }
        at = at.max(granule + count);
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_between_extents_and_the_extents_are_the_whole() {
        let extents = vec![
            Extent { granule: 20, count: 2 },
            Extent { granule: 6, count: 4 },
            Extent { granule: 4, count: 2 },
        ];
        let rest = between(4, 30, extents.clone());
        assert_eq!(rest, [Extent { granule: 10, count: 10 }, Extent { granule: 22, count: 8 }]);
        assert_eq!(between(4, 30, rest).len(), 2);
        assert_eq!(between(4, 22, extents).len(), 1);
        assert_eq!(between(4, 8, Vec::new()), [Extent { granule: 4, count: 4 }]);
    }

    #[test]
    fn a_packed_file_takes_the_first_room_that_fits_and_any_other_the_smallest() {
        let free = vec![Extent { granule: 40, count: 2 }, Extent { granule: 5, count: 9 }];
        let mut space = Space::new(50, free);
        assert_eq!(space.clone().allocate(2, 1), 40);
        space.pack(true);
        assert!(space.has_room_before(9, 4, 4) && !space.has_room_before(8, 10, 1));
        assert!(!space.has_room_before(5, 1, 1), "what is free begins there");
        let places = [(2, 2), (4, 4), (3, 4), (3, 3), (10, 1)];
        let places = places.map(|(count, alignment)| space.places_before(9, count, alignment));
        assert_eq!(places, [4, 1, 1, 2, 0]);
        assert_eq!(space.clone().allocate(2, 1), 5);
        assert_eq!(space.allocate(4, 4), 8, "aligned");
        space.add_free(48, 2);
        assert_eq!((space.used_end(), space.end()), (48, 50));
    }

    #[test]
    fn a_file_is_trimmed_to_what_is_used() {
        let mut space = Space::new(20, Vec::new());
        assert!(!space.trim());
        space.add_free(16, 4);
        space.add_free(6, 2);
        assert!(space.is_free(Extent { granule: 7, count: 3 }));
        assert!(!space.is_free(Extent { granule: 8, count: 8 }));
        assert!(space.trim());
        assert_eq!((space.end(), space.free_bytes()), (16, 2 * GRANULE_BYTES));
        assert!(space.is_free(Extent { granule: 15, count: 2 }));
    }

    #[test]
    fn alignment_gaps_are_filled_by_small_pieces() {
        let mut space = Space::new(5, Vec::new());
        assert_eq!(space.allocate(16, 16), 16);
        assert_eq!(space.free(), [Extent { granule: 5, count: 11 }]);
        assert_eq!(space.allocate(1, 1), 5);
        assert_eq!(space.allocate(4, 4), 8);
        assert_eq!(space.allocate(16, 16), 32);
        assert_eq!(space.end(), 48);
    }

    /// Random requests of powers of two never overlap and never lose a granule.
    #[test]
    fn granules_are_used_once_and_none_is_lost() {
        let mut state = 7_u64;
        let mut space = Space::new(4, Vec::new());
        let mut used = Vec::new();
        for _ in 0..2000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let count = 1 << (state >> 60 & 7);
            let alignment = if state >> 40 & 1 == 0 { 1 } else { count };
            let granule = space.allocate(count, alignment);
            assert_eq!(granule % alignment, 0);
            used.push(Extent { granule, count });
        }
        let used_count: u64 = used.iter().map(|extent| extent.count).sum();
        used.sort_unstable_by_key(|extent| extent.granule);
        assert!(used.windows(2).all(|pair| pair[0].granule + pair[0].count <= pair[1].granule));
        assert_eq!(4 + used_count + space.free_bytes() / GRANULE_BYTES, space.end());
        assert_eq!(Space::complement(4, used).free_bytes(), space.free_bytes());
    }

    #[test]
    fn granules_are_allocated_where_they_are_asked_for_if_they_are_free() {
        let mut space = Space::new(100, vec![Extent { granule: 10, count: 20 }]);
        assert!(!space.allocate_at(8, 4) && !space.allocate_at(28, 4));
        assert!(space.allocate_at(12, 4) && !space.allocate_at(12, 4));
        let expected = [Extent { granule: 10, count: 2 }, Extent { granule: 16, count: 14 }];
        assert_eq!(space.free(), expected);
        assert_eq!(space.set_aside(2, 2), 10);
        assert!(!space.allocate_at(10, 2), "it is set aside");
    }

    /// An extent that is set aside is free in the list, and cannot be allocated.
    #[test]
    fn granules_set_aside_count_as_free_and_are_taken_by_nobody_else() {
        let mut space = Space::new(20, Vec::new());
        space.add_free(10, 2);
        assert_eq!(space.set_aside(4, 4), 20);
        assert_eq!((space.end(), space.free_bytes()), (24, 6 * GRANULE_BYTES));
        assert!(space.is_free(Extent { granule: 20, count: 4 }));
        assert_eq!(space.allocate(4, 4), 24);
        space.add_free(24, 4);
        assert_eq!(space.free().len(), 3, "neighbors are not joined to it");
        for granule in (0..2 * Space::EXTENT_COUNT_MAX as u64).map(|i| 100 + 2 * i) {
            space.add_free(granule, 1);
        }
        assert_eq!(space.free().len(), Space::EXTENT_COUNT_MAX);
        assert!(space.free().contains(&Extent { granule: 20, count: 4 }));
        let mut released = space.clone();
        space.take_aside();
        assert!(!space.is_free(Extent { granule: 20, count: 4 }));
        released.release_aside();
        assert!(released.free().contains(&Extent { granule: 20, count: 8 }));
        released.release_aside();
    }

    #[test]
    fn a_table_in_memory_forgets_no_extent() {
        let mut space = Space::new(1000, Vec::new());
        space.keep_all();
        for granule in (0..3 * Space::EXTENT_COUNT_MAX as u64).map(|i| 4 + 2 * i) {
            space.add_free(granule, 1);
        }
        assert_eq!(space.free().len(), 3 * Space::EXTENT_COUNT_MAX);
    }

    #[test]
    fn freed_neighbors_become_one_extent() {
        let mut space = Space::new(20, Vec::new());
        space.add_free(4, 2);
        space.add_free(8, 2);
        space.add_free(6, 2);
        assert_eq!(space.free(), [Extent { granule: 4, count: 6 }]);
    }
}
