//! `Marks`: notes about the records of one log segment, by their place.

use crate::bitmap::Bitmap;
use crate::log::segment::Segment;

/// One bit for each 8 bytes of a log segment.
#[derive(Clone, Debug)]
pub(super) struct Marks {
    segment: Segment,
    bits: Bitmap,
}

impl Marks {
    pub(super) fn new(segment: &Segment) -> Self {
        Self { segment: *segment, bits: Bitmap::new(segment.bytes / 8) }
    }

    /// Sets or clears the mark of the record at `offset`; returns whether that changed it.
    pub(super) fn set(&mut self, offset: u64, is_marked: bool) -> bool {
        let before = self.bits.set(self.unit(offset), is_marked);
        before.expect("the record is in the segment") != is_marked
    }

    pub(super) fn has(&self, offset: u64) -> bool {
        self.bits.has(self.unit(offset))
    }

    fn unit(&self, offset: u64) -> u64 {
        assert!((self.segment.offset..self.segment.end()).contains(&offset));
        (offset - self.segment.offset) / 8
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_set_and_cleared_once() {
        let segment = Segment {
            offset: 65_536,
            bytes: 4096,
            base_lsn: 0,
            sequence: 1,
            previous_offset: 0,
            salt: 0,
        };
        let mut marks = Marks::new(&segment);
        for offset in [65_536, 65_600, 65_536 + 4088] {
            assert!(!marks.has(offset));
            assert!(marks.set(offset, true) && !marks.set(offset, true));
            assert!(marks.has(offset));
            assert!(marks.set(offset, false) && !marks.set(offset, false));
            assert!(!marks.has(offset));
        }
    }
}
