//! The word that readers load before and after a search: bucket count and reuse epoch.

use crate::linear::Geometry;

const COUNT_BITS: u32 = 33;

/// The shape of a table, as one word: `epoch << 33 | bucket count`.
///
/// The epoch changes before memory that a reader may be reading is reused: an overflow line that
/// has left its chain, or a bucket that a merge has removed. It also changes when lines have moved
/// in memory, so that a reader does not continue with the stale copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) geometry: Geometry,
    pub(crate) epoch: u32,
}

impl Shape {
    /// Unpacks a word that the writer has stored.
    #[inline]
    pub(crate) fn of_word(word: u64) -> Self {
        let bucket_count = word & ((1 << COUNT_BITS) - 1);
        Self {
            geometry: Geometry::with_bucket_count(bucket_count),
            epoch: (word >> COUNT_BITS) as u32,
        }
    }

    /// Returns the word.
    #[inline]
    pub(crate) fn word(self) -> u64 {
        debug_assert!(self.geometry.bucket_count() >> COUNT_BITS == 0, "the count fits its bits");
        let epoch = u64::from(self.epoch & ((1 << (64 - COUNT_BITS)) - 1));
        epoch << COUNT_BITS | self.geometry.bucket_count()
    }

    /// Returns this shape in the next epoch.
    pub(crate) fn in_next_epoch(self) -> Self {
        let next = Self { epoch: self.epoch.wrapping_add(1), ..self };
        debug_assert_ne!(next.word(), self.word(), "a reader sees that the epoch has changed");
        next
    }
}

#[cfg(test)]
mod shape_tests {
    use super::*;
    use crate::linear::BUCKET_COUNT_MAX;

    #[test]
    fn shape_survives_the_word_and_the_wrap_of_its_epoch() {
        for bucket_count in [1, 5, BUCKET_COUNT_MAX] {
            for epoch in [0, 1, (1 << 31) - 1] {
                let geometry = Geometry::with_bucket_count(bucket_count);
                let shape = Shape { geometry, epoch };
                assert_eq!(Shape::of_word(shape.word()), shape);
                let next = Shape::of_word(shape.in_next_epoch().word());
                assert_ne!(next.epoch, epoch);
                assert_eq!(next.geometry, geometry);
            }
        }
    }
}
