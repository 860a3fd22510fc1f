//! Appleby's murmur functions.
//!
//! # Source
//!
//! Appleby, `MurmurHash2.cpp`, 2008, and `MurmurHash3.cpp`, 2011, both in the public domain. Written
//! from the formulas.

use super::{Seeding, Specimen, partial_word64, word32, word64};

const AVOID: &str =
    "with keys that an attacker may choose: keys are known that collide under every seed";

/// The seed of Kafka's partitioner.
const KAFKA_SEED: u32 = 0x9747_b28c;

/// The functions of this family.
pub(super) const SPECIMENS: &[Specimen] = &[
    Specimen::new(
        "murmur2-32",
        32,
        |key, seed| u64::from(murmur2_32(key, seed as u32)),
        "Appleby, MurmurHash2",
        AVOID,
    )
    .used_in("nginx's split_clients; Kafka's partitions, with the seed of murmur2-kafka")
    .seeded(Seeding::Bits32),
    Specimen::new(
        "murmur2-kafka",
        32,
        |key, _| u64::from(murmur2_32(key, KAFKA_SEED)),
        "Appleby, MurmurHash2, with the seed 0x9747b28c",
        AVOID,
    )
    .used_in("Kafka's default partitioner, which takes 31 bits of it modulo the partitions"),
    Specimen::new("murmur2-64a", 64, murmur2_64a, "Appleby, MurmurHash64A", AVOID)
        .used_in("Redis to version 3; libstdc++ with another finish")
        .seeded(Seeding::Bits64),
    Specimen::new(
        "murmur3-32",
        32,
        |key, seed| u64::from(murmur3_32(key, seed as u32)),
        "Appleby, MurmurHash3_x86_32",
        AVOID,
    )
    .used_in("Guava's murmur3_32_fixed, scikit-learn's FeatureHasher, Elasticsearch's routing")
    .seeded(Seeding::Bits32),
    Specimen::new(
        "murmur3-x86-128",
        64,
        |key, seed| first_64(murmur3_x86_128(key, seed as u32)),
        "Appleby, MurmurHash3_x86_128, the first 64 bits",
        "on processors of 64 bits, where x64-128 is twice as fast; nor with hostile keys",
    )
    .used_in("Bloom filters of programs of 32 bits")
    .seeded(Seeding::Bits32),
    Specimen::new(
        "murmur3-x64-128",
        64,
        |key, seed| first_64(murmur3_x64_128(key, seed as u32)),
        "Appleby, MurmurHash3_x64_128, the first 64 bits",
        AVOID,
    )
    .used_in(
        "Cassandra's tokens, which take the bytes of the last block as signed, Guava's \
         murmur3_128, MongoDB",
    )
    .seeded(Seeding::Bits32),
];

/// Returns the first 8 of 16 bytes.
fn first_64(hash: u128) -> u64 {
    hash as u64
}

/// Returns `MurmurHash2` of 32 bits.
pub fn murmur2_32(key: &[u8], seed: u32) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let (words, tail) = key.as_chunks::<4>();
    let mut hash = seed ^ key.len() as u32;
    for word in words {
        let word = u32::from_le_bytes(*word).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ (word ^ word >> 24).wrapping_mul(M);
    }
    if !tail.is_empty() {
        hash = (hash ^ word32(tail, 0)).wrapping_mul(M);
    }
    hash = (hash ^ hash >> 13).wrapping_mul(M);
    hash ^ hash >> 15
}

/// Returns `MurmurHash64A`: `MurmurHash2` in words of 8 bytes.
pub fn murmur2_64a(key: &[u8], seed: u64) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    let (words, tail) = key.as_chunks::<8>();
    let mut hash = seed ^ (key.len() as u64).wrapping_mul(M);
    for word in words {
        let word = u64::from_le_bytes(*word).wrapping_mul(M);
        hash = (hash ^ (word ^ word >> 47).wrapping_mul(M)).wrapping_mul(M);
    }
    if !tail.is_empty() {
        hash = (hash ^ word64(tail, 0)).wrapping_mul(M);
    }
    hash = (hash ^ hash >> 47).wrapping_mul(M);
    hash ^ hash >> 47
}

/// Returns `MurmurHash3_x86_32`.
pub fn murmur3_32(key: &[u8], seed: u32) -> u32 {
    let scrambled =
        |word: u32| word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let (words, tail) = key.as_chunks::<4>();
    let mut hash = seed;
    for word in words {
        hash ^= scrambled(u32::from_le_bytes(*word));
        hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    hash ^= scrambled(partial_word64(tail) as u32);
    finished_32(hash ^ key.len() as u32)
}

fn finished_32(word: u32) -> u32 {
    let word = (word ^ word >> 16).wrapping_mul(0x85eb_ca6b);
    let word = (word ^ word >> 13).wrapping_mul(0xc2b2_ae35);
    word ^ word >> 16
}

/// Returns `MurmurHash3_x64_128`, its first word in the low 64 bits.
pub fn murmur3_x64_128(key: &[u8], seed: u32) -> u128 {
    const C: [u64; 2] = [0x87c3_7b91_1142_53d5, 0x4cf5_ad43_2745_937f];
    let scrambled = [
        |word: u64| word.wrapping_mul(C[0]).rotate_left(31).wrapping_mul(C[1]),
        |word: u64| word.wrapping_mul(C[1]).rotate_left(33).wrapping_mul(C[0]),
    ];
    let [mut one, mut two] = [u64::from(seed); 2];
    let (blocks, tail) = key.as_chunks::<16>();
    for block in blocks {
        one = (one ^ scrambled[0](word64(block, 0))).rotate_left(27).wrapping_add(two);
        one = one.wrapping_mul(5).wrapping_add(0x52dc_e729);
        two = (two ^ scrambled[1](word64(block, 1))).rotate_left(31).wrapping_add(one);
        two = two.wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    one ^= scrambled[0](word64(tail, 0)) ^ key.len() as u64;
    two ^= scrambled[1](word64(tail, 1)) ^ key.len() as u64;
    one = one.wrapping_add(two);
    two = two.wrapping_add(one);
    let [one, two] = [one, two].map(finished_64);
    let one = one.wrapping_add(two);
    u128::from(two.wrapping_add(one)) << 64 | u128::from(one)
}

fn finished_64(word: u64) -> u64 {
    let word = (word ^ word >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let word = (word ^ word >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ word >> 33
}

/// Returns `MurmurHash3_x86_128`, its first word in the low 32 bits.
pub fn murmur3_x86_128(key: &[u8], seed: u32) -> u128 {
    /// Multiplier, rotations of the word and of the state, and what is added, of each word.
    const STEPS: [(u32, u32, u32, u32); 4] = [
        (0x239b_961b, 15, 19, 0x561c_cd1b),
        (0xab0e_9789, 16, 17, 0x0bca_a747),
        (0x38b3_4ae5, 17, 15, 0x96cd_1c35),
        (0xa1e3_8b93, 18, 13, 0x32ac_3b17),
    ];
    let scrambled = |block: &[u8], at: usize| {
        let ((first, turn, ..), (second, ..)) = (STEPS[at], STEPS[(at + 1) % 4]);
        word32(block, at).wrapping_mul(first).rotate_left(turn).wrapping_mul(second)
    };
    let mut state = [seed; 4];
    let (blocks, tail) = key.as_chunks::<16>();
    for block in blocks {
        for (at, &(_, _, turn, added)) in STEPS.iter().enumerate() {
            let word = (state[at] ^ scrambled(block, at)).rotate_left(turn);
            let sum = word.wrapping_add(state[(at + 1) % 4]);
            state[at] = sum.wrapping_mul(5).wrapping_add(added);
        }
    }
    for (at, word) in state.iter_mut().enumerate() {
        *word ^= scrambled(tail, at) ^ key.len() as u32;
    }
    let state = summed(summed(state).map(finished_32));
    state.into_iter().rev().fold(0, |hash, word| hash << 32 | u128::from(word))
}

/// Adds all to the first, then the first to the others.
fn summed(words: [u32; 4]) -> [u32; 4] {
    let first = words.into_iter().fold(0, u32::wrapping_add);
    let [_, others @ ..] = words.map(|word| word.wrapping_add(first));
    [first, others[0], others[1], others[2]]
}

#[cfg(test)]
mod tests {
    use super::super::tests::verification_code;
    use super::*;

    #[test]
    fn murmur3_matches_its_published_vectors() {
        for (key, seed, hash) in [
            ("", 0, 0),
            ("", 1, 0x514e_28b7),
            ("test", 0, 0xba6b_d213),
            ("test", 0x9747_b28c, 0x704b_81dc),
            ("Hello, world!", 0, 0xc036_3e43),
            ("The quick brown fox jumps over the lazy dog", 0x9747_b28c, 0x2fa8_26cd),
        ] {
            assert_eq!(murmur3_32(key.as_bytes(), seed), hash, "{key} {seed:x}");
        }
    }

    /// Source: `testMurmur2` of Kafka's `UtilsTest.java`.
    #[test]
    fn kafka_s_murmur2_matches_its_published_vectors() {
        for (key, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107_i32),
        ] {
            let specimen = Specimen::by_name("kafka").unwrap();
            let hash = u64::from(hash.cast_unsigned());
            assert_eq!(specimen.hash(key.as_bytes(), 7), hash, "{key}: the seed is fixed");
        }
    }

    #[test]
    fn verification_codes_are_the_published_ones() {
        for (name, code) in
            [("murmur2-32", 0x2786_4c1e), ("murmur2-64a", 0x1f0d_3804), ("murmur3-32", 0xb0f5_7ee3)]
        {
            let specimen = Specimen::by_name(name).unwrap();
            let bytes = specimen.width_bits() as usize / 8;
            let of = |key: &[u8], seed| u128::from(specimen.hash(key, seed));
            assert_eq!(verification_code(of, bytes), code, "{name}");
        }
        for (hash, code) in [
            (murmur3_x64_128 as fn(&[u8], u32) -> u128, 0x6384_ba69),
            (murmur3_x86_128, 0xb3ec_e62a),
        ] {
            assert_eq!(verification_code(|key, seed| hash(key, seed as u32), 16), code, "{code:x}");
        }
    }
}
