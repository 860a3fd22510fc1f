//! sdbm: which block of the `.pag` a key is in, by the bits of the `.dir`.
//!
//! The bits are a binary tree in the order of a heap: the children of bit t are 2t+1, for hashes
//! whose next bit is 0, and 2t+2. Block numbers are those of dbm; the places of the bits are not.
//!
//! # Source
//!
//! Ozan Yigit, sdbm, 1990.

use crate::dbm::{DEPTH_MAX, is_set};

/// Returns the block for `hash` and how many bits of the hash chose it.
pub(crate) fn leaf_of(dir: &[u8], hash: u64) -> (u64, u32) {
    let (mut bit, mut depth) = (0_u64, 0_u32);
    while depth < DEPTH_MAX && is_set(dir, bit) {
        bit = 2 * bit + 1 + (hash >> depth & 1);
        depth += 1;
    }
    (hash & ((1 << depth) - 1), depth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_set_bit_splits_one_block() {
        assert_eq!(leaf_of(&[], 7), (0, 0));
        assert_eq!(leaf_of(&[0b1], 7), (1, 1));
        assert_eq!(leaf_of(&[0b101], 7), (3, 2));
        assert_eq!(leaf_of(&[0b101], 6), (0, 1));
        // Bit 5 is of hashes that end in 01, where dbm has it for those that end in 10.
        assert_eq!(leaf_of(&[0b10_0101], 0b101), (0b101, 3));
    }
}
