//! No hash at all: the key is its own hash, as the hashes of integers are in many libraries.
//!
//! They are also how hashes are measured that another program has computed: its hashes are the
//! keys.
//!
//! # Source
//!
//! `std::hash` of libstdc++ and libc++ for integers; `Integer.hashCode` of Java.

use super::{KeyLayout, Specimen, word32, word64};

const AVOID: &str = "with keys that are not random themselves: steps, multiples and addresses \
    share buckets, or make runs that linear probing walks along";

/// The functions of this family.
pub(super) const SPECIMENS: &[Specimen] = &[
    Specimen::new(
        "identity-32",
        32,
        |key, _| u64::from(word32(key, 0)),
        "the integer itself: libstdc++ and libc++, std::hash; Java, Integer.hashCode",
        AVOID,
    )
    .of(KeyLayout::Word32),
    Specimen::new(
        "identity-64",
        64,
        |key, _| word64(key, 0),
        "the integer itself: libstdc++ and libc++, std::hash",
        AVOID,
    )
    .of(KeyLayout::Word64),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_is_its_own_hash() {
        for (specimen, hash) in SPECIMENS.iter().zip([0xfedc_ba98, 0x7654_3210_fedc_ba98]) {
            let key = 0x7654_3210_fedc_ba98_u64.to_le_bytes();
            assert_eq!(specimen.hash(&key, 0), hash);
            assert_eq!(specimen.hash(&[7], 0), 7);
        }
    }
}
