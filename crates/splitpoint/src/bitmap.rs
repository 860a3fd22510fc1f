//! `Bitmap`: one bit for each of many numbers.

/// A bit for each number below some bound; the system gives the memory when a bit is set.
#[derive(Clone, Debug)]
pub(crate) struct Bitmap(Vec<u64>);

impl Bitmap {
    /// Returns a bitmap in which the numbers below `count` are clear.
    pub(crate) fn new(count: u64) -> Self {
        Self(vec![0; count.div_ceil(64) as usize])
    }

    /// Sets or clears the bit of a number and returns whether it was set; `None` if it has none.
    #[inline]
    pub(crate) fn set(&mut self, number: u64, is_set: bool) -> Option<bool> {
        let word = self.0.get_mut((number / 64) as usize)?;
        let bit = 1 << (number % 64);
        let was_set = *word & bit != 0;
        *word = if is_set { *word | bit } else { *word & !bit };
        Some(was_set)
    }

    /// Returns whether the bit of a number is set.
    #[inline]
    pub(crate) fn has(&self, number: u64) -> bool {
        self.0.get((number / 64) as usize).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// Returns the numbers whose bits are set, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let words = (0..).zip(&self.0).filter(|&(_, &word)| word != 0);
        words.flat_map(|(i, &word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| i * 64 + bit)
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_bitmap_has_what_was_set_and_nothing_behind_its_end() {
        let mut bitmap = Bitmap::new(130);
        for number in [0, 63, 64, 129] {
            assert_eq!(bitmap.set(number, true), Some(false));
            assert_eq!(bitmap.set(number, true), Some(true));
        }
        assert!(bitmap.iter().eq([0, 63, 64, 129]));
        assert_eq!(bitmap.set(63, false), Some(true));
        assert!(bitmap.has(64) && !bitmap.has(63) && !bitmap.has(u64::MAX));
        assert_eq!(bitmap.set(1 << 40, true), None);
    }
}
