//! Names, dentries, inodes and integers in Linux after 2.2.
//!
//! Keys with an address have it in their first 8 bytes, little-endian; see [`KeyLayout`].
//!
//! # Source
//!
//! Linux 2.6 to 6.14: `dcache.c`, `dcache.h`, `namei.c`, `inode.c`, `hash.h`, `stringhash.h`,
//! `user.c`; commits bfcfaa77bdf0 (word at a time) and 99d263d4 (its fold). Written from the
//! formulas.

use super::{KeyLayout, Reduction, Seeding, Specimen, partial_word64, word32, word64};

/// `GOLDEN_RATIO_32` since 4.7.
pub const GOLDEN_32: u32 = 0x61c8_8647;
/// `GOLDEN_RATIO_64` since 4.7.
pub const GOLDEN_64: u64 = 0x61c8_8646_80b5_83eb;
/// `GOLDEN_RATIO_PRIME_32` up to 4.5, a prime of few bits.
pub const GOLDEN_32_OLD: u32 = 0x9e37_0001;
/// `GOLDEN_RATIO_PRIME_64` up to 4.5, a prime of few bits.
pub const GOLDEN_64_OLD: u64 = 0x9e37_ffff_fffc_0001;

/// `L1_CACHE_BYTES` of x86-64.
const L1_CACHE_BYTES: u64 = 64;

const CHOSEN: &str = "with keys that an attacker may choose";
const SPARSE: &str = "at all: the constant has so few bits that regular keys stay regular";

/// The functions of this family.
pub(super) const SPECIMENS: &[Specimen] = &[
    Specimen::new(
        "linux-r5-name",
        32,
        |key, _| u64::from(r5_name(key)),
        "Linux 2.6 to 3.3, names: (h + (c << 4) + (c >> 4)) * 11",
        CHOSEN,
    )
    .historic(Reduction::AddFold),
    Specimen::new(
        "linux-3.2-dentry",
        64,
        |key, _| dentry_3_2(word64(key, 0), name_of(key)),
        "Linux 3.2, dentry cache: name hash and the parent's address XOR a large constant",
        CHOSEN,
    )
    .of(KeyLayout::Dentry64)
    .historic(Reduction::GoldenFold(GOLDEN_64_OLD)),
    Specimen::new(
        "linux-3.4-dentry",
        32,
        |key, _| u64::from(dentry_3_4(word64(key, 0), word_add_fold(name_of(key)))),
        "Linux 3.4 to 3.16, dentry cache: word-at-a-time name hash and the parent, folded once",
        "at all: names that differ in a few digits share buckets by the hundred",
    )
    .of(KeyLayout::Dentry64)
    .historic(Reduction::AddFold),
    Specimen::new(
        "linux-3.10-name",
        32,
        |key, _| u64::from(word_add_fold(key)),
        "Linux 3.4 to 3.16, names a word at a time, halves added: what Bacik and Torvalds mended",
        "at all: names that differ in a few digits share buckets by the hundred",
    )
    .historic(Reduction::AddFold),
    Specimen::new(
        "linux-3.17-name",
        32,
        |key, _| u64::from(word_hash_fold(key)),
        "Linux 3.17 to 4.6, names a word at a time, folded by hash_64",
        "at all: Bacik's keys still collide nine times as often as chance would have it",
    )
    .historic(Reduction::Multiply32(GOLDEN_32_OLD)),
    Specimen::new(
        "linux-3.17-dentry",
        32,
        |key, _| u64::from(dentry_3_4(word64(key, 0), word_hash_fold(name_of(key)))),
        "Linux 3.17 to 4.6, dentry cache: the mended name hash and the parent, multiplied",
        "at all: Bacik's keys still collide nine times as often as chance would have it",
    )
    .of(KeyLayout::Dentry64)
    .historic(Reduction::Multiply32(GOLDEN_32_OLD)),
    Specimen::new(
        "linux-4.8-name",
        32,
        |key, salt| u64::from(name_4_8(key, salt)),
        "Linux 4.8 to 6.14, names; the seed is the salt, the parent's address",
        CHOSEN,
    )
    .seeded(Seeding::Bits64)
    .historic(Reduction::HighShift),
    Specimen::new(
        "linux-hash32",
        32,
        |key, _| u64::from(word32(key, 0).wrapping_mul(GOLDEN_32)),
        "Linux since 4.7, hash_32 of an integer",
        CHOSEN,
    )
    .of(KeyLayout::Word32)
    .historic(Reduction::HighShift),
    Specimen::new(
        "linux-hash32-4.5",
        32,
        |key, _| u64::from(word32(key, 0).wrapping_mul(GOLDEN_32_OLD)),
        "Linux to 4.5, hash_32 of an integer",
        SPARSE,
    )
    .of(KeyLayout::Word32)
    .historic(Reduction::HighShift),
    Specimen::new(
        "linux-hash64",
        64,
        |key, _| word64(key, 0).wrapping_mul(GOLDEN_64),
        "Linux since 4.7, hash_64 of an integer",
        CHOSEN,
    )
    .of(KeyLayout::Word64)
    .historic(Reduction::HighShift),
    Specimen::new(
        "linux-hash64-4.5",
        64,
        |key, _| word64(key, 0).wrapping_mul(GOLDEN_64_OLD),
        "Linux to 4.5, hash_64 of an integer",
        SPARSE,
    )
    .of(KeyLayout::Word64)
    .historic(Reduction::HighShift),
    Specimen::new(
        "linux-2.6-inode",
        64,
        |key, _| inode(word64(key, 0), word64(key, 1), GOLDEN_64_OLD),
        "Linux 2.6 to 4.5, inode cache",
        "outside of a replay: its input is the address of a kernel object",
    )
    .of(KeyLayout::Inode64)
    .historic(Reduction::GoldenFold(GOLDEN_64_OLD)),
    Specimen::new(
        "linux-6.14-inode",
        64,
        |key, _| inode(word64(key, 0), word64(key, 1), GOLDEN_64),
        "Linux 4.7 to 6.14, inode cache: still the XOR with a large constant",
        "outside of a replay: its input is the address of a kernel object",
    )
    .of(KeyLayout::Inode64)
    .historic(Reduction::GoldenFold(GOLDEN_64)),
    Specimen::new(
        "linux-uid",
        32,
        |key, _| u64::from(word32(key, 0)),
        "Linux 6.14, user ids: (uid >> 7) + uid in 128 buckets; all of it is in the reduction",
        "with ids in steps of a power of two",
    )
    .of(KeyLayout::Word32)
    .historic(Reduction::AddFold),
];

/// Returns the bytes after a dentry's parent.
fn name_of(key: &[u8]) -> &[u8] {
    key.get(8..).unwrap_or_default()
}

/// Returns the name hash of 2.6 to 3.3: `h = (h + (c << 4) + (c >> 4)) * 11`.
///
/// It ran in 64 bits of which the low 32 were kept. No step moves bits down, so 32 suffice.
pub fn r5_name(name: &[u8]) -> u32 {
    name.iter().fold(0_u32, |hash, &byte| {
        let byte = u32::from(byte);
        hash.wrapping_add(byte << 4).wrapping_add(byte >> 4).wrapping_mul(11)
    })
}

/// Returns what 3.2 folded: the name's hash plus `(parent ^ GOLDEN) / 64`.
pub fn dentry_3_2(parent: u64, name: &[u8]) -> u64 {
    u64::from(r5_name(name)).wrapping_add((parent ^ GOLDEN_64_OLD) / L1_CACHE_BYTES)
}

/// Returns what 3.4 to 3.16 folded and 3.17 multiplied: the name's hash plus the parent's address
/// in cache lines.
pub fn dentry_3_4(parent: u64, name_hash: u32) -> u32 {
    name_hash.wrapping_add((parent / L1_CACHE_BYTES) as u32)
}

/// Returns the sum of the words of a name: `h = (h + word) * 9`, then the rest added.
fn word_sum(name: &[u8]) -> u64 {
    let (words, rest) = name.as_chunks::<8>();
    let hash = words
        .iter()
        .fold(0_u64, |hash, word| hash.wrapping_add(u64::from_le_bytes(*word)).wrapping_mul(9));
    hash.wrapping_add(partial_word64(rest))
}

/// Returns the name hash of 3.4 to 3.16: the sum of the words, its two halves added.
pub fn word_add_fold(name: &[u8]) -> u32 {
    let hash = word_sum(name);
    hash.wrapping_add(hash >> 32) as u32
}

/// Returns the name hash of 3.17: the same sum of the words, folded by the old `hash_64`.
pub fn word_hash_fold(name: &[u8]) -> u32 {
    (word_sum(name).wrapping_mul(GOLDEN_64_OLD) >> 32) as u32
}

/// Returns the name hash since 4.8, with its salt.
///
/// Per word `a`: `x ^= a; y ^= x; x = rotl(x, 12); x += y; y = rotl(y, 45); y *= 9`; then for the
/// rest `x ^= a`, and `((y ^ x*G) * G) >> 32` is the hash.
pub fn name_4_8(name: &[u8], salt: u64) -> u32 {
    let (mut x, mut y) = (0_u64, salt);
    let (words, rest) = name.as_chunks::<8>();
    for word in words {
        x ^= u64::from_le_bytes(*word);
        y ^= x;
        x = x.rotate_left(12).wrapping_add(y);
        y = y.rotate_left(45).wrapping_mul(9);
    }
    x ^= partial_word64(rest);
    y ^= x.wrapping_mul(GOLDEN_64);
    (y.wrapping_mul(GOLDEN_64) >> 32) as u32
}

/// Returns what the inode cache has folded since 2.6: `(value * sb) ^ ((golden + value) / 64)`.
pub fn inode(superblock: u64, value: u64, golden: u64) -> u64 {
    value.wrapping_mul(superblock) ^ (golden.wrapping_add(value) / L1_CACHE_BYTES)
}

/// Returns `hash_32` of `bits` bits: the top of a product with [`GOLDEN_32`] or its old value.
///
/// # Panics
///
/// If `bits` is not 1 to 32.
pub fn hash_32(value: u32, golden: u32, bits: u32) -> u32 {
    assert!((1..=32).contains(&bits), "hash_32 gives 1 to 32 bits");
    value.wrapping_mul(golden) >> (32 - bits)
}

/// Returns `hash_64` of `bits` bits: the top of a product with [`GOLDEN_64`] or its old value.
///
/// # Panics
///
/// If `bits` is not 1 to 64.
pub fn hash_64(value: u64, golden: u64, bits: u32) -> u64 {
    assert!((1..=64).contains(&bits), "hash_64 gives 1 to 64 bits");
    value.wrapping_mul(golden) >> (64 - bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_parent(parent: u64, name: &str) -> Vec<u8> {
        [&parent.to_le_bytes(), name.as_bytes()].concat()
    }

    #[track_caller]
    fn hash(name: &str, key: &[u8]) -> u64 {
        Specimen::by_name(name).expect("is there").hash(key, 0)
    }

    /// A parent is counted in cache lines of 64 bytes and added to the name's hash.
    #[test]
    fn a_parent_one_cache_line_on_adds_one() {
        for (dentry, name) in
            [("linux-3.4-dentry", "linux-3.10-name"), ("linux-3.17-dentry", "linux-3.17-name")]
        {
            let of_name = hash(name, b"foobar");
            assert_eq!(hash(dentry, &with_parent(0, "foobar")), of_name, "{dentry}");
            assert_eq!(hash(dentry, &with_parent(63, "foobar")), of_name, "{dentry}");
            assert_eq!(hash(dentry, &with_parent(64, "foobar")), of_name + 1, "{dentry}");
        }
        // 0x9e37fffffffc0001 / 64, with the name's hash 0 and with that of "a".
        assert_eq!(hash("linux-3.2-dentry", &with_parent(0, "")), 0x0278_dfff_ffff_f000);
        assert_eq!(hash("linux-3.2-dentry", &with_parent(0, "a")), 0x0278_dfff_ffff_f000 + 0x42f2);
    }

    /// By hand, for a superblock at 3: `(v * 3) ^ ((golden + v) / 64)`.
    #[test]
    fn the_inode_hash_is_what_its_formula_gives_by_hand() {
        let key = |value: u64| [3_u64.to_le_bytes(), value.to_le_bytes()].concat();
        assert_eq!(hash("linux-2.6-inode", &key(0)), 0x0278_dfff_ffff_f000);
        assert_eq!(hash("linux-2.6-inode", &key(63)), 0x0278_dfff_ffff_f001 ^ 0xbd);
        assert_eq!(hash("linux-6.14-inode", &key(0)), 0x0187_2219_1a02_d60f);
    }
}
