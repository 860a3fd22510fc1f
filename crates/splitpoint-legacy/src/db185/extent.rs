//! The number of pages that a file must have, by its header and its bitmaps. Also for krb5's
//! libdb2, which has the same addresses.
//!
//! At a close the original writes every bucket that a split has made, every overflow page that is
//! in use and every bitmap. The buckets of a new table may be without a page, but the first bitmap
//! is behind them. Only overflow pages that are free may never have been written.
//!
//! A crash of this library in the middle of a sync can leave pages that a bitmap shows as in use
//! and that no chain has, so that the bitmaps alone prove nothing.

use splitpoint::Result;

use super::addresses::{OverflowAddr, POSITION_MASK, Shape};
use crate::ByteOrder;
use crate::Source;
use crate::stated::{Counted, Extent, StatedBy};

/// Computes the extent of the file of a table of this `shape`. Its header has the highest bucket at
/// offset `at`.
pub(crate) fn extent_of(
    source: &Source,
    shape: &Shape,
    order: ByteOrder,
    at: u64,
) -> Result<Extent> {
    let page_bytes = u64::from(shape.page_bytes);
    let (known, found) = (shape.page_end(), source.file_bytes() / page_bytes);
    let needed = needed_end(shape);
    let last_used = last_used(source, shape, order)?;
    Ok(Extent {
        counted: Counted::Pages,
        stated_by: StatedBy::Header,
        at,
        unit_bytes: page_bytes,
        needed,
        stated: last_used.map_or(needed, |page| needed.max(page + 1)),
        known: Some(known),
        found,
        has_more: known < found,
    })
}

/// Returns the page behind the last bucket and the last bitmap.
pub(crate) fn needed_end(shape: &Shape) -> u64 {
    let bitmaps = bitmap_pages(shape).filter_map(|(_, page)| page);
    bitmaps.fold(shape.bucket_page(shape.max_bucket), u64::max) + 1
}

/// Returns the least number of records of a file, by the count in its header.
///
/// The original does not count pairs that it squeezes on a page, but counts it when they are
/// deleted. So its count may be too low, and even below 0, but never too high.
pub(crate) fn records_of(key_count: u32) -> Option<u64> {
    i32::try_from(key_count).ok().map(|count| count.unsigned_abs().into())
}

/// Returns the bitmaps, each with the page that it is on, the first one first.
pub(super) fn bitmap_pages(shape: &Shape) -> impl Iterator<Item = (u32, Option<u64>)> {
    (0..shape.bitmap_count()).map(|bitmap| {
        let addr = OverflowAddr(shape.bitmaps[bitmap as usize]);
        let page = shape.overflow_index(addr).and_then(|_| shape.overflow_page(addr));
        (bitmap, page)
    })
}

/// Returns the last overflow page that is in use, by those bitmaps that are there.
fn last_used(source: &Source, shape: &Shape, order: ByteOrder) -> Result<Option<u64>> {
    let mut bits = vec![0; shape.page_bytes as usize];
    let bitmaps: Vec<_> = bitmap_pages(shape).collect();
    for (bitmap, page) in bitmaps.into_iter().rev() {
        let Some(page) = page else { continue };
        let filled = source.read_at(page * u64::from(shape.page_bytes), &mut bits)?;
        if filled < bits.len() {
            continue;
        }
        let first = bitmap * shape.bitmap_bits();
        let end = shape.overflow_count().min(first + shape.bitmap_bits());
        let is_used = |index: &u32| {
            let (word, bit) = ((index - first) / 32, (index - first) % 32);
            order.u32_at(&bits, 4 * word as usize) >> bit & 1 == 1
        };
        // The original shows the last position of a split point as in use when it cannot use it.
        let addrs = (first..end).rev().filter(is_used).map(|index| shape.overflow_addr(index));
        let last = addrs.into_iter().find(|addr| addr.position() < POSITION_MASK);
        if let Some(last) = last {
            return Ok(shape.overflow_page(last));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of 512-byte pages and 20 splits, each with an overflow page in use.
    fn shape() -> Shape {
        let mut shape = Shape::new(512, 1, 2);
        for _ in 0..20 {
            shape.grow();
            shape.extend();
        }
        shape
    }

    /// Returns a file of `shape` that has `page_count` pages and a bitmap of these bytes.
    fn file(shape: &Shape, page_count: u64, bitmap: u8) -> Source {
        let mut bytes = vec![0; 512 * page_count as usize];
        let page = shape.overflow_page(OverflowAddr(shape.bitmaps[0])).unwrap() as usize;
        if let Some(page) = bytes.get_mut(512 * page..512 * page + 512) {
            page.fill(bitmap);
        }
        Source::of_bytes(bytes)
    }

    #[test]
    fn all_pages_in_use_are_stated_and_free_ones_are_not() {
        let shape = shape();
        let last_bucket = shape.bucket_page(shape.max_bucket);
        assert!(last_bucket + 1 < shape.page_end(), "overflow pages are last");
        for (bitmap, stated) in [(0xff, shape.page_end()), (0, last_bucket + 1)] {
            let source = file(&shape, shape.page_end(), bitmap);
            let extent = extent_of(&source, &shape, ByteOrder::Little, 40).unwrap();
            assert_eq!((extent.needed, extent.stated), (last_bucket + 1, stated), "{bitmap:#x}");
            assert_eq!((extent.known, extent.has_more), (Some(shape.page_end()), false));
            let source = file(&shape, shape.page_end() + 1, bitmap);
            let extent = extent_of(&source, &shape, ByteOrder::Little, 40).unwrap();
            assert!(extent.has_more);
        }
    }

    #[test]
    fn a_bitmap_that_is_not_there_states_nothing_but_itself() {
        let shape = Shape::new(512, 1, 64);
        let bitmap = shape.overflow_page(OverflowAddr(shape.bitmaps[0])).unwrap();
        assert_eq!(needed_end(&shape), bitmap + 1);
        let source = file(&shape, bitmap, 0xff);
        let extent = extent_of(&source, &shape, ByteOrder::Little, 40).unwrap();
        assert_eq!((extent.needed, extent.stated), (bitmap + 1, bitmap + 1));
    }
}
