//! The registry: distinct names, widths that hold, names that are suggested.

use std::collections::BTreeSet;

use super::*;

/// Keys of every length around the word sizes, with high bytes.
fn keys() -> Vec<Vec<u8>> {
    (0..70_u32)
        .flat_map(|length| {
            [0x9d_u32, 0x35, 0xff].map(|step| {
                (0..length).map(|at| at.wrapping_mul(step).wrapping_add(length) as u8).collect()
            })
        })
        .collect()
}

/// The code by which implementations of a hash are compared: keys of 0 to 255 bytes 0, 1, 2... are
/// hashed with the seeds 256, 255, 254..., and the hashes, in little-endian bytes, with 0.
///
/// Source: `hashverify.c` of `SMHasher3`.
pub(super) fn verification_code(hash: impl Fn(&[u8], u64) -> u128, hash_bytes: usize) -> u32 {
    let bytes: Vec<u8> = (0..=255).collect();
    let all: Vec<u8> = (0..256)
        .map(|length| hash(&bytes[..length], 256 - length as u64))
        .flat_map(|hash| hash.to_le_bytes().into_iter().take(hash_bytes))
        .collect();
    hash(&all, 0) as u32
}

#[test]
fn names_are_distinct_and_found_again() {
    let mut names = BTreeSet::new();
    for specimen in Specimen::all() {
        assert!(names.insert(specimen.name()), "{} is there twice", specimen.name());
        assert_eq!(Specimen::by_name(specimen.name()).unwrap().name(), specimen.name());
    }
    assert!(names.len() >= 60, "{} names", names.len());
}

#[test]
fn every_function_has_its_facts() {
    for specimen in Specimen::all() {
        let name = specimen.name();
        assert!(specimen.source().len() > 10 && specimen.avoid().len() > 5, "{name}");
        assert!(
            name.bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b))
        );
        assert!((1..=64).contains(&specimen.width_bits()), "{name}");
    }
}

#[test]
fn no_function_gives_bits_above_its_width() {
    for specimen in Specimen::all().filter(|specimen| specimen.width_bits() < 64) {
        for key in keys() {
            for seed in [0, 1, u64::MAX] {
                let hash = specimen.hash(&key, seed);
                assert_eq!(hash >> specimen.width_bits(), 0, "{specimen:?} of {key:x?}: {hash:x}");
            }
        }
    }
}

#[test]
fn a_seed_changes_the_hash_of_seeded_functions_and_of_no_others() {
    for specimen in Specimen::all() {
        let changes = keys().iter().any(|key| specimen.hash(key, 1) != specimen.hash(key, 2));
        assert_eq!(changes, specimen.seeding() != Seeding::None, "{specimen:?}");
    }
}

/// Not a test of quality: a function that ignored its key or gave one value would pass all others.
#[test]
fn every_function_tells_most_keys_apart() {
    for specimen in Specimen::all() {
        let keys: Vec<[u8; 16]> = (0..256_u64)
            .map(|n| u128::from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 32 | u128::from(n) << 4)
            .map(u128::to_le_bytes)
            .collect();
        let hashes: BTreeSet<u64> = keys.iter().map(|key| specimen.hash(key, 0)).collect();
        assert!(hashes.len() > 100, "{specimen:?} gives {} hashes of 256 keys", hashes.len());
    }
}

#[test]
fn words_of_short_keys_are_padded_with_zeros() {
    assert_eq!(word32(&[1, 2, 3, 4, 5], 0), 0x0403_0201);
    assert_eq!(word32(&[1, 2, 3, 4, 5], 1), 5);
    assert_eq!(word32(&[1], 3), 0);
    assert_eq!(word64(&[1, 2, 3], 0), 0x0003_0201);
    assert_eq!(word64(&[0xff; 16], 1), u64::MAX);
}
