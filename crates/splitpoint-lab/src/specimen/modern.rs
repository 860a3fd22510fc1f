//! The field of today, by the crates that people use.
//!
//! Each is called on the whole key at once. Where the crate has only a `Hasher`, the bytes are
//! written by one `write`: a `HashMap` also writes the length of a slice or an end mark of a
//! string.

use std::hash::{BuildHasher, Hasher};

use super::{Reduction, Seeding, Specimen};

const SEED_PUBLIC: &str = "with keys that an attacker may choose when the seed is known";
const SEED_NO_HELP: &str =
    "with keys that an attacker may choose: keys are known that collide under every seed";
const MEMORY_ONLY: &str = "in a file: the output may change with any version of the crate";

/// The functions of this family.
pub(super) const SPECIMENS: &[Specimen] = &[
    Specimen::new(
        "rapidhash-v3",
        64,
        rapidhash_v3,
        "De Carli, rapidhash v3; crate rapidhash",
        SEED_NO_HELP,
    )
    .seeded(Seeding::Bits64),
    Specimen::new(
        "xxh3-64",
        64,
        xxhash_rust::xxh3::xxh3_64_with_seed,
        "Collet, XXH3 of xxHash 0.8; crate xxhash-rust",
        "where every test of SMHasher3 must pass: it fails 27; nor with hostile keys",
    )
    .seeded(Seeding::Bits64),
    Specimen::new(
        "xxh64",
        64,
        xxhash_rust::xxh64::xxh64,
        "Collet, XXH64; crate xxhash-rust",
        "for short keys, where its successor XXH3 is faster; nor with hostile keys",
    )
    .seeded(Seeding::Bits64),
    Specimen::new(
        "wyhash-final3",
        64,
        |key, seed| wyhash::final3::wyhash(key, seed, WYHASH_SECRET),
        "Wang Yi, wyhash final version 3; crate wyhash",
        "in new files: final version 4 gives other values, and rapidhash succeeds both",
    )
    .seeded(Seeding::Bits64),
    Specimen::new(
        "komihash",
        64,
        komihash::v5::komihash,
        "Vaneev, komihash 5; crate komihash",
        SEED_PUBLIC,
    )
    .seeded(Seeding::Bits64),
    Specimen::new(
        "foldhash-fast",
        64,
        |key, seed| written(&foldhash::fast::FixedState::with_seed(seed), key),
        "Peters, foldhash; crate foldhash, the default of hashbrown",
        MEMORY_ONLY,
    )
    .seeded(Seeding::Bits64)
    .unstable()
    .historic(Reduction::Hashbrown),
    Specimen::new(
        "foldhash-quality",
        64,
        |key, seed| written(&foldhash::quality::FixedState::with_seed(seed), key),
        "Peters, foldhash with a stronger finish; crate foldhash",
        MEMORY_ONLY,
    )
    .seeded(Seeding::Bits64)
    .unstable()
    .historic(Reduction::Hashbrown),
    Specimen::new(
        "ahash",
        64,
        |key, seed| written(&ahash::RandomState::with_seed(seed as usize), key),
        "Kaitchuck, aHash; crate ahash, by AES instructions where they are compiled in",
        "in a file: the output differs by processor and by version of the crate",
    )
    .seeded(Seeding::Bits64)
    .unstable()
    .historic(Reduction::Hashbrown),
    #[cfg(all(target_feature = "aes", target_feature = "sse2"))]
    Specimen::new(
        "gxhash64",
        64,
        |key, seed| gxhash::gxhash64(key, seed.cast_signed()),
        "Giniaux, GxHash 3; crate gxhash, only where AES instructions are compiled in",
        "in a file or where processors lack AES: there is no portable version",
    )
    .seeded(Seeding::Bits64)
    .unstable()
    .historic(Reduction::Hashbrown),
    Specimen::new(
        "siphash-1-3",
        64,
        |key, seed| {
            siphasher::sip::SipHasher13::new_with_keys(seed, seed.rotate_left(32)).hash(key)
        },
        "Aumasson and Bernstein, SipHash with 1 and 3 rounds; crate siphasher, std's default",
        "where keys are trusted and time counts: three to four times slower on short keys",
    )
    .seeded(Seeding::Key128),
    Specimen::new(
        "siphash-2-4",
        64,
        |key, seed| {
            siphasher::sip::SipHasher24::new_with_keys(seed, seed.rotate_left(32)).hash(key)
        },
        "Aumasson and Bernstein, SipHash with 2 and 4 rounds; crate siphasher",
        "for hash tables: 1 and 3 rounds are held to be enough there",
    )
    .seeded(Seeding::Key128),
    Specimen::new(
        "highwayhash-64",
        64,
        highwayhash_64,
        "Alakuijala, Cox and Wassenberg, HighwayHash; crate highway",
        "for short keys: it takes more than twice the cycles of rapidhash",
    )
    .seeded(Seeding::Key256),
    Specimen::new(
        "museair",
        64,
        museair::hash,
        "K--Aethiax, MuseAir 2; crate museair",
        SEED_PUBLIC,
    )
    .seeded(Seeding::Bits64),
    Specimen::new(
        "rustc-hash",
        64,
        |key, seed| {
            let mut hasher = rustc_hash::FxHasher::with_seed(seed as usize);
            hasher.write(key);
            hasher.finish()
        },
        "Firefox's and rustc's FxHash, version 2; crate rustc-hash",
        "for anything but a compiler's small keys: fxhash64 fails 165 tests of SMHasher3",
    )
    .seeded(Seeding::Bits64)
    .unstable()
    .historic(Reduction::Hashbrown),
];

/// The secret that wyhash is published with.
const WYHASH_SECRET: [u64; 4] =
    [0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db, 0x8ebc_6af0_9c88_c6e3, 0x5899_65cc_7537_4cc3];

fn rapidhash_v3(key: &[u8], seed: u64) -> u64 {
    rapidhash::v3::rapidhash_v3_seeded(key, &rapidhash::v3::RapidSecrets::seed_cpp(seed))
}

/// The seed is the first word of the key; the others are 0.
fn highwayhash_64(key: &[u8], seed: u64) -> u64 {
    use highway::HighwayHash;
    highway::PortableHash::new(highway::Key([seed, 0, 0, 0])).hash64(key)
}

fn written(state: &impl BuildHasher, key: &[u8]) -> u64 {
    let mut hasher = state.build_hasher();
    hasher.write(key);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::super::tests::verification_code;
    use super::*;

    #[test]
    fn verification_codes_are_the_published_ones() {
        for (name, hash, code) in [
            ("museair", museair::hash as fn(&[u8], u64) -> u64, 0x7140_cabc),
            ("xxh64", xxhash_rust::xxh64::xxh64, 0x024b_7cf4),
        ] {
            let of = |key: &[u8], seed| u128::from(hash(key, seed));
            assert_eq!(verification_code(of, 8), code, "{name}");
        }
    }

    /// The vectors that the author published with final version 3: seeds 0 to 6.
    #[test]
    fn wyhash_matches_the_published_vectors() {
        let keys = ["", "a", "abc", "message digest", "abcdefghijklmnopqrstuvwxyz"];
        let hashes = [
            0x42bc_986d_c5ee_c4d3,
            0x8450_8dc9_03c3_1551,
            0x0bc5_4887_cfc9_ecb1,
            0x6e2f_f329_8208_a67c,
            0x9a64_e42e_8971_95b9,
        ];
        for ((seed, key), hash) in (0..).zip(keys).zip(hashes) {
            assert_eq!(wyhash::final3::wyhash(key.as_bytes(), seed, WYHASH_SECRET), hash, "{key}");
        }
    }

    /// Vectors that the author published with version 5, seed 0.
    #[test]
    fn komihash_matches_the_published_vectors() {
        for (key, hash) in [
            ("This is a 32-byte tester string.", 0x8e92_e061_2783_66d2),
            ("The cat is out of the bag", 0xd157_2352_1d3c_37b1),
            ("A 16-byte string", 0x467c_aa28_ea3d_a7a6),
            ("7 bytes", 0xe72e_558f_5eaf_2554),
        ] {
            assert_eq!(komihash::v5::komihash(key.as_bytes(), 0), hash, "{key}");
        }
    }
}
