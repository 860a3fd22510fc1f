//! `Marks`: notes about the records of one log segment, by their place.

use crate::log::segment::Segment;

/// One bit for each 8 bytes of a log segment.
#[derive(Clone, Debug)]
pub(super) struct Marks {
    offset: u64,
    words: Vec<u64>,
}

impl Marks {
    pub(super) fn new(segment: &Segment) -> Self {
        let word_count = (segment.bytes / 8).div_ceil(64) as usize;
        Self { offset: segment.offset, words: vec![0; word_count] }
    }

    /// Sets or clears the mark of the record at `offset`; returns whether that changed it.
    pub(super) fn set(&mut self, offset: u64, is_marked: bool) -> bool {
        let bit = (offset - self.offset) / 8;
        let before = self.has(offset);
        let word = &mut self.words[(bit / 64) as usize];
        *word = if is_marked { *word | 1 << (bit % 64) } else { *word & !(1 << (bit % 64)) };
        before != is_marked
    }

    pub(super) fn has(&self, offset: u64) -> bool {
        let bit = (offset - self.offset) / 8;
        self.words[(bit / 64) as usize] >> (bit % 64) & 1 == 1
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
