//! Counts how often each bit of a stream of words is set.

/// Words that can be counted before the planes are full.
const WORDS_MAX: u32 = (1 << PLANE_COUNT) - 1;
const PLANE_COUNT: usize = 16;

/// Counts of set bits, by position.
///
/// # Source
///
/// Vertical counters: plane `p` holds bit `p` of 64 counters, so adding a word takes two
/// operations on average instead of 64. Knuth, The Art of Computer Programming 4A, 7.1.3.
#[derive(Clone, Debug)]
pub struct BitCounts {
    planes: [u64; PLANE_COUNT],
    pending: u32,
    sums: [u64; 64],
    always_set: u64,
    ever_set: u64,
}

impl Default for BitCounts {
    fn default() -> Self {
        Self::of_sums(u64::MAX, 0, &[0; 64])
    }
}

impl BitCounts {
    /// Returns the counts with these values.
    pub(crate) fn of_sums(always_set: u64, ever_set: u64, sums: &[u64; 64]) -> Self {
        let sums = *sums;
        Self { planes: [0; PLANE_COUNT], pending: 0, sums, always_set, ever_set }
    }

    /// Counts the bits of a word.
    #[inline]
    pub(crate) fn add(&mut self, word: u64) {
        self.always_set &= word;
        self.ever_set |= word;
        let mut carry = word;
        for plane in &mut self.planes {
            let next = *plane & carry;
            *plane ^= carry;
            carry = next;
            if carry == 0 {
                break;
            }
        }
        self.pending += 1;
        if self.pending == WORDS_MAX {
            self.sums = self.ones();
            self.planes = [0; PLANE_COUNT];
            self.pending = 0;
        }
    }

    /// Adds the counts of other words.
    pub(crate) fn merge(&mut self, other: &Self) {
        let (mut sums, others) = (self.ones(), other.ones());
        for (sum, other) in sums.iter_mut().zip(others) {
            *sum += other;
        }
        let (always, ever) = (self.always_set & other.always_set, self.ever_set | other.ever_set);
        *self = Self::of_sums(always, ever, &sums);
    }

    /// Returns how often each bit was set, the lowest first.
    pub fn ones(&self) -> [u64; 64] {
        let mut ones = self.sums;
        for (weight, plane) in (0..).zip(self.planes) {
            for (bit, count) in (0..).zip(&mut ones) {
                *count += (plane >> bit & 1) << weight;
            }
        }
        ones
    }

    /// Returns the bits that every word has set; all bits if there were no words.
    pub fn always_set(&self) -> u64 {
        self.always_set
    }

    /// Returns the bits that some word has set.
    pub fn ever_set(&self) -> u64 {
        self.ever_set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Past the point where the planes are emptied, against plain counters.
    #[test]
    fn counts_are_those_of_plain_counters() {
        let (mut counts, mut other, mut plain) =
            (BitCounts::default(), BitCounts::default(), [0; 64]);
        for n in 0..200_000_u64 {
            let word = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            for (bit, count) in plain.iter_mut().enumerate() {
                *count += word >> bit & 1;
            }
            if n % 3 == 0 { other.add(word) } else { counts.add(word) }
        }
        counts.merge(&other);
        assert_eq!(counts.ones(), plain);
        assert_eq!((counts.always_set(), counts.ever_set()), (1, u64::MAX));
    }
}
