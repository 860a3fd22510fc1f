//! dbm and ndbm: finds the block of a key in the `.pag` by the bits of the `.dir`.
//!
//! ```text
//! mask 0       bit 0 set: this block was split by bit 0 of the hash
//! mask 1       bit (hash & 1) + 1 set: and that one by bit 1
//! mask 3       bit (hash & 3) + 3 not set: the pairs are in block hash & 3
//! ```
//!
//! # Source
//!
//! dbm of the seventh edition; ndbm of 4.3BSD.

/// More bits than any trie has: it would take 2^40 blocks.
pub(crate) const DEPTH_MAX: u32 = 40;

/// Returns the block for `hash`, and the number of bits that chose it.
pub(crate) fn leaf_of(dir: &[u8], hash: u64) -> (u64, u32) {
    let (mut mask, mut depth) = (0_u64, 0);
    while depth < DEPTH_MAX && is_set(dir, (hash & mask) + mask) {
        mask = 2 * mask + 1;
        depth += 1;
    }
    (hash & mask, depth)
}

/// Returns the highest block that the trie reaches, 0 if none was split.
///
/// Bit t belongs to block b of 2^d, where t + 1 is b + 2^d, the block that the split created.
pub(crate) fn highest_block(dir: &[u8]) -> u64 {
    // Bits that no lookup reaches have no meaning.
    let is_split = |bit: &u64| {
        let made = bit + 1;
        let block = made & !(1 << made.ilog2());
        (0..=made.ilog2()).all(|depth| {
            let mask = (1 << depth) - 1;
            is_set(dir, (block & mask) + mask)
        })
    };
    set_bits(dir).find(is_split).map_or(0, |bit| bit + 1)
}

/// Returns the set bits, the highest first.
pub(crate) fn set_bits(dir: &[u8]) -> impl Iterator<Item = u64> {
    let bytes = dir.iter().enumerate().rev().filter(|(_, byte)| **byte != 0);
    bytes.flat_map(|(at, &byte)| {
        let bits = (0..8).rev().filter(move |bit| byte >> bit & 1 == 1);
        bits.map(move |bit| 8 * at as u64 + bit)
    })
}

/// Returns whether bit `bit` is set, counting from the lowest of each byte. Bits beyond the end are
/// not set.
pub(crate) fn is_set(dir: &[u8], bit: u64) -> bool {
    let byte = usize::try_from(bit / 8).ok().and_then(|byte| dir.get(byte));
    byte.is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_set_bit_splits_one_block() {
        assert_eq!(leaf_of(&[], 7), (0, 0));
        assert_eq!(leaf_of(&[0b1], 7), (1, 1));
        // Bit 2 is of the block of odd hashes.
        assert_eq!(leaf_of(&[0b101], 7), (3, 2));
        assert_eq!(leaf_of(&[0b101], 6), (0, 1));
    }

    #[test]
    fn the_highest_block_is_that_of_the_last_split_that_a_lookup_comes_to() {
        for (dir, block) in [(&[][..], 0), (&[0, 0], 0), (&[0b1], 1), (&[0b101], 3), (&[0b11], 2)] {
            assert_eq!(highest_block(dir), block, "{dir:?}");
            let leaves = (0..64).map(|hash| leaf_of(dir, hash).0);
            assert_eq!(leaves.max(), Some(block), "{dir:?}");
        }
        // Bit 2 is of block 1, which was never made; so is bit 6, of block 3.
        assert_eq!(highest_block(&[0b100_0100]), 0);
        assert_eq!(highest_block(&[0b100_0011]), 2);
    }

    #[test]
    fn a_trie_without_an_end_ends() {
        assert_eq!(leaf_of(&vec![0xff; 1 << 16], 0).1, 20);
    }
}
