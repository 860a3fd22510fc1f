//! The functions with which NetBSD hashed file handles, before FNV and after.
//!
//! # Source
//!
//! NetBSD `nfs_node.c` and `sys/hash.h`; Mewburn, 2001. Written from the formulas.

use super::Specimen;

/// The functions of this family.
pub(super) const SPECIMENS: &[Specimen] = &[
    Specimen::new(
        "netbsd-byte-sum",
        32,
        |key, _| u64::from(byte_sum(key)),
        "NetBSD's old nfs_hash: the sum of the handle's bytes",
        "at all: a handle of 32 bytes has 8,161 sums at most, and few of them are likely",
    ),
    Specimen::new(
        "netbsd-hash32-buf",
        32,
        |key, _| u64::from(hash32_buf(key)),
        "NetBSD sys/hash.h, hash32_buf",
        "with keys that an attacker may choose: collisions are found by hand",
    ),
    Specimen::new(
        "netbsd-hash32-str",
        32,
        |key, _| u64::from(hash32_str(key)),
        "NetBSD sys/hash.h, hash32_str",
        "with keys that an attacker may choose: collisions are found by hand",
    ),
];

/// The start of NetBSD's 32-bit functions, `HASH32_STR_INIT`.
const START: u32 = 5381;

/// Returns the sum of the bytes.
pub fn byte_sum(key: &[u8]) -> u32 {
    key.iter().fold(0, |sum: u32, &byte| sum.wrapping_add(u32::from(byte)))
}

/// Returns `hash32_buf`: `h = h*257 + c` from 5381, and once more times 257.
pub fn hash32_buf(key: &[u8]) -> u32 {
    let hash =
        key.iter().fold(START, |hash, &byte| hash.wrapping_mul(257).wrapping_add(u32::from(byte)));
    hash.wrapping_mul(257)
}

/// Returns `hash32_str`: `h = h*33 + c` from 5381, then `h + (h >> 5)`.
pub fn hash32_str(key: &[u8]) -> u32 {
    let hash =
        key.iter().fold(START, |hash, &byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)));
    hash.wrapping_add(hash >> 5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash32_str_is_what_its_formula_gives_by_hand() {
        assert_eq!(hash32_str(b""), 5381 + 168);
        // 5381 * 33 + 97 = 177670.
        assert_eq!(hash32_str(b"a"), 177_670 + 5552);
    }

    #[test]
    fn the_largest_handle_sums_to_8160() {
        assert_eq!(byte_sum(&[0xff; 32]), 8160);
    }
}
