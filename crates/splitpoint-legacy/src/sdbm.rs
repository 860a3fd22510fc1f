//! sdbm: finds the block of a key in the `.pag` by the bits of the `.dir`.
//!
//! The bits are a binary tree in the order of a heap: the children of bit t are 2t+1, for hashes
//! whose next bit is 0, and 2t+2. Block numbers are those of dbm; the places of the bits are not.
//!
//! # Source
//!
//! Ozan Yigit, sdbm, 1990.

use crate::dbm::{DEPTH_MAX, is_set, set_bits};

/// Returns the block for `hash`, and the number of bits that chose it.
pub(crate) fn leaf_of(dir: &[u8], hash: u64) -> (u64, u32) {
    let (mut bit, mut depth) = (0_u64, 0_u32);
    while depth < DEPTH_MAX && is_set(dir, bit) {
        bit = 2 * bit + 1 + (hash >> depth & 1);
        depth += 1;
    }
    (hash & ((1 << depth) - 1), depth)
}

/// Returns the highest block that the trie reaches, 0 if none was split.
pub(crate) fn highest_block(dir: &[u8]) -> u64 {
    let (mut highest, mut level) = (0, None);
    for bit in set_bits(dir) {
        let depth = (bit + 1).ilog2();
        if level.is_some_and(|level| depth < level) {
            // Further up, blocks are lower than any that was made down there.
            break;
        }
        // What follows the highest bit of bit + 1 is the path, its first step highest.
        let path = bit + 1 - (1 << depth);
        let block = if depth == 0 { 0 } else { path.reverse_bits() >> (64 - depth) };
        let made = block + (1 << depth);
        if made > highest && is_split(dir, bit) {
            (highest, level) = (made, Some(depth));
        }
    }
    highest
}

/// Returns whether a lookup reaches `bit` and continues below it.
fn is_split(dir: &[u8], mut bit: u64) -> bool {
    while bit > 0 && is_set(dir, bit) {
        bit = (bit - 1) / 2;
    }
    is_set(dir, bit)
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

    #[test]
    fn the_highest_block_is_that_of_the_deepest_level_that_a_lookup_comes_to() {
        for (dir, block) in [
            (&[][..], 0),
            (&[0, 0], 0),
            (&[0b1], 1),
            (&[0b11], 2),
            (&[0b101], 3),
            (&[0b10_0101], 5),
            (&[0b101_0101], 7),
            (&[0b1011], 4),
            (&[0b1000_1011], 8),
        ] {
            assert_eq!(highest_block(dir), block, "{dir:?}");
            let leaves = (0..64).map(|hash| leaf_of(dir, hash).0);
            assert_eq!(leaves.max(), Some(block), "{dir:?}");
        }
        // Bits 2 and 5 are below bits that are not set.
        assert_eq!(highest_block(&[0b100]), 0);
        assert_eq!(highest_block(&[0b10_0011]), 2);
    }
}
