//! Page numbers of buckets and overflow pages, and the growth of a table: arithmetic only.
//!
//! ```text
//! page 0      1        2        3..          ..
//! | header | bucket 0 | bucket 1 | overflow | bucket 2 | bucket 3 | overflow | bucket 4 ...
//!                                 ^ split point 1                  ^ split point 2
//! ```
//!
//! Buckets come in doublings of the table. The table allocates overflow pages behind the newest
//! doubling, at the current split point, for any bucket that needs them ("buddy-in-waiting"). When
//! the next doubling begins, their number at that split point is final, so no page ever moves.
//!
//! # Source
//!
//! Seltzer and Yigit, "A new hashing package for UNIX", USENIX Winter 1991.

/// Split points that a header has room for.
pub(super) const SPLIT_POINTS: usize = 32;

/// Most overflow pages of one split point: one less than an address has room for, because the
/// original cannot reuse the last one after freeing it.
const POSITIONS_MAX: u32 = POSITION_MASK - 1;

/// The bits of an overflow address that are the position at its split point, counted from 1.
pub(super) const POSITION_MASK: u32 = 0x7ff;
const POSITION_BITS: u32 = 11;

/// Largest file that the library creates, in bytes, which common file systems support. The pages of
/// a table lie far apart if it runs out of overflow pages at one split point.
const FILE_BYTES_MAX: u64 = 1 << 43;

/// Bitmap pages that a header has room for.
pub(super) const BITMAP_PAGES_MAX: u32 = 32;

/// Address of an overflow page as pages and the header have it: split point and position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct OverflowAddr(pub(super) u16);

impl OverflowAddr {
    fn new(split_point: u32, position: u32) -> Self {
        assert!(split_point < 32 && (1..=POSITION_MASK).contains(&position));
        Self((split_point << POSITION_BITS | position) as u16)
    }

    pub(super) fn split_point(self) -> u32 {
        u32::from(self.0) >> POSITION_BITS
    }

    pub(super) fn position(self) -> u32 {
        u32::from(self.0) & POSITION_MASK
    }
}

/// Returns the smallest `i` with `2^i >= n`.
pub(super) const fn clog2(n: u64) -> u32 {
    n.next_power_of_two().trailing_zeros()
}

/// The buckets of one split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Split {
    pub(super) from: u32,
    pub(super) to: u32,
}

/// The shape of a table, which determines all addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) page_bytes: u32,
    pub(crate) header_pages: u32,
    pub(crate) max_bucket: u32,
    pub(crate) low_mask: u32,
    pub(crate) high_mask: u32,
    /// The split point at which overflow pages are allocated now.
    pub(crate) split_point: u32,
    /// Overflow pages allocated up to and including each split point.
    pub(crate) spares: [u32; SPLIT_POINTS],
    /// Where the bitmaps of the overflow pages are: overflow pages too.
    pub(crate) bitmaps: [u16; BITMAP_PAGES_MAX as usize],
}

impl Shape {
    /// Returns the shape of a new table of at least `bucket_count` buckets.
    pub(super) fn new(page_bytes: u32, header_pages: u32, bucket_count: u64) -> Self {
        assert!(page_bytes.is_power_of_two());
        let level = clog2(bucket_count.clamp(2, 1 << 30));
        let mut spares = [0; SPLIT_POINTS];
        // The bitmap, and as many free pages as there are split points below.
        spares[level as usize] = level + 1;
        spares[level as usize + 1] = level + 1;
        let mut bitmaps = [0; BITMAP_PAGES_MAX as usize];
        bitmaps[0] = OverflowAddr::new(level, 1).0;
        let low_mask = (1 << level) - 1;
        Self {
            page_bytes,
            header_pages,
            max_bucket: low_mask,
            low_mask,
            high_mask: low_mask << 1 | 1,
            split_point: level,
            spares,
            bitmaps,
        }
    }

    /// Returns the bucket in which `hash` belongs.
    #[inline]
    pub(super) fn bucket_of(&self, hash: u32) -> u32 {
        let bucket = hash & self.high_mask;
        if bucket > self.max_bucket { hash & self.low_mask } else { bucket }
    }

    /// Returns the number of the page of `bucket`.
    #[inline]
    pub(super) fn bucket_page(&self, bucket: u32) -> u64 {
        let before = match clog2(u64::from(bucket) + 1) {
            0 => 0,
            generation => self.spares[generation as usize - 1],
        };
        u64::from(bucket) + u64::from(self.header_pages) + u64::from(before)
    }

    /// Returns the number of the page at `addr`, or `None` if no page has such an address.
    ///
    /// After a crash a file has pages that the header does not know of; these have numbers too.
    #[inline]
    pub(super) fn overflow_page(&self, addr: OverflowAddr) -> Option<u64> {
        let last_bucket = ((1_u64 << addr.split_point()) - 1) as u32;
        let position = u64::from(addr.position());
        (position > 0).then(|| self.bucket_page(last_bucket) + position)
    }

    /// Returns the number of overflow pages.
    pub(super) fn overflow_count(&self) -> u32 {
        self.spares[self.split_point as usize]
    }

    /// Returns which overflow page `addr` is, counted from 0 over the whole file, if it has been
    /// allocated.
    pub(super) fn overflow_index(&self, addr: OverflowAddr) -> Option<u32> {
        let split_point = addr.split_point();
        if addr.position() == 0 || split_point > self.split_point {
            return None;
        }
        let number = self.spares_before(split_point).checked_add(addr.position())?;
        (number <= self.spares[split_point as usize]).then(|| number - 1)
    }

    /// Returns which overflow page has page number `page`, if one has.
    pub(super) fn overflow_index_of_page(&self, page: u64) -> Option<u32> {
        (0..=self.split_point).find_map(|split_point| {
            let before = self.spares_before(split_point);
            let count = self.spares[split_point as usize] - before;
            let last_bucket = ((1_u64 << split_point) - 1) as u32;
            let position = page.checked_sub(self.bucket_page(last_bucket) + 1)?;
            (position < u64::from(count)).then(|| before + position as u32)
        })
    }

    /// Returns the number of the page behind the last page of the table.
    pub(super) fn page_end(&self) -> u64 {
        let last = self.overflow_count().checked_sub(1);
        let last = last.and_then(|index| self.overflow_page(self.overflow_addr(index)));
        self.bucket_page(self.max_bucket).max(last.unwrap_or(0)) + 1
    }

    /// Returns the address of overflow page `index`, which has been allocated.
    pub(super) fn overflow_addr(&self, index: u32) -> OverflowAddr {
        assert!(index < self.overflow_count(), "overflow page {index} is not allocated");
        let number = index + 1;
        let split_point = self.spares.iter().position(|&spares| number <= spares);
        let split_point = split_point.expect("the current split point has all") as u32;
        OverflowAddr::new(split_point, number - self.spares_before(split_point))
    }

    fn spares_before(&self, split_point: u32) -> u32 {
        if split_point == 0 { 0 } else { self.spares[split_point as usize - 1] }
    }

    /// Returns the number of bits in one bitmap page.
    pub(super) fn bitmap_bits(&self) -> u32 {
        self.page_bytes * 8
    }

    /// Returns the number of bitmap pages.
    pub(super) fn bitmap_count(&self) -> u32 {
        self.overflow_count().div_ceil(self.bitmap_bits()).min(BITMAP_PAGES_MAX)
    }

    /// Returns how many more overflow pages could be allocated at the end, apart from bitmaps.
    pub(super) fn room(&self) -> u32 {
        let used = self.overflow_count() - self.spares_before(self.split_point);
        let here = POSITIONS_MAX.saturating_sub(used);
        let later = self.split_point_max().saturating_sub(self.split_point) * POSITIONS_MAX;
        let bits = self.bitmap_bits().saturating_mul(BITMAP_PAGES_MAX);
        let room = (here + later).min(bits.saturating_sub(self.overflow_count()));
        room.saturating_sub(room.div_ceil(self.bitmap_bits()))
    }

    /// Returns the last split point whose pages are within the largest file.
    fn split_point_max(&self) -> u32 {
        let pages_max = FILE_BYTES_MAX / u64::from(self.page_bytes);
        let others = u64::from(self.header_pages) + u64::from(u16::MAX);
        (pages_max - others.min(pages_max / 2)).ilog2().min(SPLIT_POINTS as u32 - 1)
    }

    /// Allocates one more overflow page at the end and returns its address. If the page becomes a
    /// bitmap, the shape records that, and the caller must allocate another.
    ///
    /// # Panics
    ///
    /// If there is no [room](Self::room).
    pub(super) fn extend(&mut self) -> (OverflowAddr, Extension) {
        let index = self.overflow_count();
        let used = index - self.spares_before(self.split_point);
        if used >= POSITIONS_MAX {
            self.split_point += 1;
            assert!(self.split_point <= self.split_point_max(), "there is no room");
            self.spares[self.split_point as usize] = index;
        }
        self.spares[self.split_point as usize] += 1;
        let addr = self.overflow_addr(index);
        if index.is_multiple_of(self.bitmap_bits()) {
            self.bitmaps[(index / self.bitmap_bits()) as usize] = addr.0;
            return (addr, Extension::Bitmap);
        }
        (addr, Extension::Page)
    }

    /// Adds one bucket, and returns the bucket to split, or `None` if the file cannot have more.
    pub(super) fn grow(&mut self) -> Option<Split> {
        let to = self.max_bucket.checked_add(1)?;
        let generation = clog2(u64::from(to) + 1);
        if generation > self.split_point_max() {
            return None;
        }
        self.max_bucket = to;
        // The mask of the round that ends, if this is the first bucket of the next one.
        if to > self.high_mask {
            self.low_mask = self.high_mask;
            self.high_mask = to | self.low_mask;
        }
        if generation > self.split_point {
            self.spares[generation as usize] = self.overflow_count();
            self.split_point = generation;
        }
        Some(Split { from: to & self.low_mask, to })
    }
}

/// What a page at the new end of the overflow pages is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extension {
    Page,
    Bitmap,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn clog2_is_the_smallest_power_that_is_enough() {
        let expected = [0, 0, 1, 2, 2, 3, 3, 3, 3, 4];
        for (n, &expected) in expected.iter().enumerate() {
            assert_eq!(clog2(n as u64), expected, "{n}");
        }
        assert_eq!(clog2(1 << 32), 32);
    }

    #[test]
    fn a_new_table_has_the_pages_of_the_original() {
        // The empty file of 2048 bytes: header, two buckets, the bitmap; then one free page.
        let shape = Shape::new(512, 1, 1);
        assert_eq!((shape.max_bucket, shape.low_mask, shape.high_mask), (1, 1, 3));
        assert_eq!((shape.bucket_page(0), shape.bucket_page(1)), (1, 2));
        let bitmap = OverflowAddr(shape.bitmaps[0]);
        assert_eq!(bitmap, OverflowAddr(1 << 11 | 1));
        assert_eq!(shape.overflow_page(bitmap), Some(3));
        assert_eq!((shape.overflow_count(), shape.bitmap_count()), (2, 1));
        assert_eq!(Shape::new(1024, 1, 125).max_bucket, 127);
    }

    /// Grows tables with overflow pages at every moment and checks that no page is used twice,
    /// that none moves, and that addresses and numbers agree.
    #[test]
    fn pages_never_collide_and_never_move() {
        for overflow_per_split in [0_usize, 1, 3, 40] {
            let mut shape = Shape::new(64, 8, 2);
            let mut pages: BTreeSet<u64> = (0..8).collect();
            let mut addrs = Vec::new();
            let add = |pages: &mut BTreeSet<u64>, page: u64| {
                assert!(pages.insert(page), "page {page} is used twice");
            };
            for bucket in 0..=shape.max_bucket {
                add(&mut pages, shape.bucket_page(bucket));
            }
            for index in 0..shape.overflow_count() {
                addrs.push(shape.overflow_addr(index));
                add(&mut pages, shape.overflow_page(addrs[index as usize]).unwrap());
            }
            for bucket in 0..300 {
                let page = shape.bucket_page(bucket % 4);
                assert_eq!(shape.overflow_index_of_page(page), None);
                assert_eq!(pages.iter().last(), Some(&(shape.page_end() - 1)));
                let split = shape.grow().unwrap();
                assert_eq!(split.to, shape.max_bucket);
                assert!(split.from < split.to && shape.bucket_of(split.to) == split.to);
                add(&mut pages, shape.bucket_page(split.to));
                for _ in 0..overflow_per_split {
                    let (addr, _) = shape.extend();
                    addrs.push(addr);
                    add(&mut pages, shape.overflow_page(addr).unwrap());
                }
                for (index, &addr) in addrs.iter().enumerate() {
                    assert_eq!(shape.overflow_addr(index as u32), addr);
                    assert_eq!(shape.overflow_index(addr), Some(index as u32));
                    let page = shape.overflow_page(addr).unwrap();
                    assert_eq!(shape.overflow_index_of_page(page), Some(index as u32));
                }
            }
        }
    }

    #[test]
    fn splits_go_as_in_linear_hashing() {
        use splitpoint::linear::{BucketIndex, Geometry};

        let mut shape = Shape::new(512, 1, 2);
        for _ in 0..1000 {
            let plan = Geometry::with_bucket_count(u64::from(shape.max_bucket) + 1).plan_split();
            let plan = plan.unwrap();
            let split = shape.grow().unwrap();
            assert_eq!(BucketIndex(split.from.into()), plan.lower);
            assert_eq!(BucketIndex(split.to.into()), plan.upper);
            for hash in [0, 1, 77, 0xffff_ffff, 0x1234_5678_u32] {
                let expected = plan.after.bucket_of(hash.into());
                assert_eq!(BucketIndex(shape.bucket_of(hash).into()), expected);
            }
        }
    }

    #[test]
    fn room_is_what_can_be_allocated() {
        for page_bytes in [64, 4096, 32768] {
            let mut shape = Shape::new(page_bytes, 8, 2);
            let mut count = 0;
            while shape.room() > 0 {
                while shape.extend().1 == Extension::Bitmap {}
                count += 1;
            }
            assert!(count > 15_000, "{count} overflow pages of {page_bytes} bytes");
            assert!(shape.bitmap_count() <= BITMAP_PAGES_MAX);
            let last = shape.overflow_page(shape.overflow_addr(shape.overflow_count() - 1));
            assert!((last.unwrap() + 1) * u64::from(page_bytes) <= FILE_BYTES_MAX);
        }
    }
}
