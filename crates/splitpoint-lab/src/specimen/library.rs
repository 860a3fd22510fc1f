//! The functions of languages, libraries and textbooks.
//!
//! # Source
//!
//! ISO 3309 (CRC-32), RFC 3720 (CRC-32C), RFC 1950 (Adler-32); Bernstein in comp.lang.c, 1991, and
//! his cdb; the Java language's `String.hashCode`; the System V ABI, "Hash Table Section";
//! Jenkins, Dr. Dobb's, September 1997; Appleby, `MurmurHash2.cpp` and `MurmurHash3.cpp`; crate
//! xxhash-rust. Written from the formulas where no crate is named.

use super::{Seeding, Specimen, partial_word64, word32, word64};

const AVOID_SUM: &str = "with keys that an attacker may choose: collisions are found by hand; on \
    short keys the high bits stay 0";
const AVOID_CHECKSUM: &str = "with keys that an attacker may choose: it is linear, so that one \
    collision gives all others";
const AVOID_SEEDED: &str =
    "with keys that an attacker may choose: keys are known that collide under every seed";

/// The functions of this family.
pub(super) const SPECIMENS: &[Specimen] = &[
    Specimen::new(
        "crc32",
        32,
        |key, _| u64::from(CRC_32.checksum(key)),
        "CRC-32 of zlib, Ethernet and PNG; PHP and MySQL, crc32",
        AVOID_CHECKSUM,
    ),
    Specimen::new(
        "crc32c",
        32,
        |key, _| u64::from(CRC_32C.checksum(key)),
        "CRC-32C of iSCSI, by Castagnoli; an instruction of x86 and Arm",
        AVOID_CHECKSUM,
    ),
    Specimen::new(
        "adler32",
        32,
        |key, _| u64::from(adler32(key)),
        "Adler, zlib's checksum",
        "as a hash: the sums of short keys are small, so that most values never occur",
    ),
    Specimen::new(
        "djb2",
        32,
        |key, _| u64::from(djb2(key)),
        "Bernstein, h*33 + c from 5381; the GNU hash section of ELF files",
        AVOID_SUM,
    ),
    Specimen::new(
        "djb2-xor",
        32,
        |key, _| u64::from(djb2_xor(key)),
        "Bernstein, h*33 XOR c from 5381; cdb",
        AVOID_SUM,
    ),
    Specimen::new(
        "java-string",
        32,
        |key, _| u64::from(java_string(key)),
        "Java and Kotlin, String.hashCode, h*31 + c, of keys in Latin-1",
        AVOID_SUM,
    ),
    Specimen::new(
        "elf",
        28,
        |key, _| u64::from(elf(key)),
        "Weinberger's PJW as in the hash section of ELF files",
        "with tables over 2^28, or with keys that an attacker may choose",
    ),
    Specimen::new(
        "one-at-a-time",
        32,
        |key, seed| u64::from(one_at_a_time(key, seed as u32)),
        "Jenkins 1997; Perl 5.8 to 5.16 with a seed",
        AVOID_SEEDED,
    )
    .seeded(Seeding::Bits32),
    Specimen::new(
        "murmur2-32",
        32,
        |key, seed| u64::from(murmur2_32(key, seed as u32)),
        "Appleby, MurmurHash2; Kafka's default partitioner, with seed 0x9747b28c",
        AVOID_SEEDED,
    )
    .seeded(Seeding::Bits32),
    Specimen::new(
        "murmur2-64a",
        64,
        murmur2_64a,
        "Appleby, MurmurHash64A; Redis to version 3, libstdc++ with another finish",
        AVOID_SEEDED,
    )
    .seeded(Seeding::Bits64),
    Specimen::new(
        "murmur3-32",
        32,
        |key, seed| u64::from(murmur3_32(key, seed as u32)),
        "Appleby, MurmurHash3_x86_32; Guava, scikit-learn, Bloom filters",
        AVOID_SEEDED,
    )
    .seeded(Seeding::Bits32),
    Specimen::new(
        "xxh32",
        32,
        |key, seed| u64::from(xxhash_rust::xxh32::xxh32(key, seed as u32)),
        "Collet, XXH32; crate xxhash-rust; the checksum of LZ4 frames",
        "on processors of 64 bits, where XXH3 is faster; nor with hostile keys",
    )
    .seeded(Seeding::Bits32),
];

const CRC_32: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC);
const CRC_32C: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI);

/// Returns Adler-32: the sum of the bytes from 1, and above it the sum of those sums.
pub fn adler32(key: &[u8]) -> u32 {
    const PRIME: u32 = 65_521;
    let (low, high) = key.iter().fold((1, 0), |(low, high), &byte| {
        let low = (low + u32::from(byte)) % PRIME;
        (low, (high + low) % PRIME)
    });
    high << 16 | low
}

/// Returns Bernstein's `h = 33*h + c`, from 5381.
pub fn djb2(key: &[u8]) -> u32 {
    key.iter().fold(5381, |hash, &byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)))
}

/// Returns Bernstein's `h = 33*h XOR c`, from 5381.
pub fn djb2_xor(key: &[u8]) -> u32 {
    key.iter().fold(5381, |hash, &byte| hash.wrapping_mul(33) ^ u32::from(byte))
}

/// Returns Java's `h = 31*h + c`, from 0.
pub fn java_string(key: &[u8]) -> u32 {
    key.iter().fold(0, |hash, &byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte)))
}

/// Returns the hash of a symbol's name in ELF files: 4 bits a byte, the top 4 folded back in.
pub fn elf(key: &[u8]) -> u32 {
    key.iter().fold(0, |hash: u32, &byte| {
        let sum = (hash << 4).wrapping_add(u32::from(byte));
        let top = sum & 0xf000_0000;
        (sum ^ top >> 24) & !top
    })
}

/// Returns Jenkins's one-at-a-time hash.
pub fn one_at_a_time(key: &[u8], seed: u32) -> u32 {
    let hash = key.iter().fold(seed, |hash, &byte| {
        let sum = hash.wrapping_add(u32::from(byte));
        let sum = sum.wrapping_add(sum << 10);
        sum ^ sum >> 6
    });
    let hash = hash.wrapping_add(hash << 3);
    let hash = hash ^ hash >> 11;
    hash.wrapping_add(hash << 15)
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
    hash ^= key.len() as u32;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

#[cfg(test)]
mod tests {
    use super::super::tests::verification_code;
    use super::*;

    /// Check values of the catalog of CRCs, and zlib's own.
    #[test]
    fn checksums_match_their_published_check_values() {
        assert_eq!(CRC_32.checksum(b"123456789"), 0xcbf4_3926);
        assert_eq!(CRC_32C.checksum(b"123456789"), 0xe306_9283);
        assert_eq!(adler32(b""), 1);
        assert_eq!(adler32(b"Wikipedia"), 0x11e6_0398);
        assert_eq!(adler32(&[0xff; 100].repeat(1000)), 0x149a_302c);
    }

    /// The symbols' hashes are those that linkers write; Java's is the language's.
    #[test]
    fn sums_over_the_bytes_match_published_values() {
        assert_eq!([djb2(b""), djb2(b"printf"), djb2(b"exit")], [5381, 0x156b_2bb8, 0x7c96_7e3f]);
        assert_eq!([djb2_xor(b""), djb2_xor(b"abc")], [5381, 0x0b87_3285]);
        assert_eq!([java_string(b""), java_string(b"hello")], [0, 99_162_322]);
        assert_eq!([elf(b"printf"), elf(b"syscall")], [0x0779_05a6, 0x0b09_985c]);
    }

    #[test]
    fn one_at_a_time_matches_its_published_vectors() {
        assert_eq!(one_at_a_time(b"a", 0), 0xca2e_9442);
        let fox = b"The quick brown fox jumps over the lazy dog";
        assert_eq!(one_at_a_time(fox, 0), 0x519e_91f5);
    }

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

    #[test]
    fn verification_codes_are_the_published_ones() {
        for (name, bytes, code) in [
            ("murmur2-32", 4, 0x2786_4c1e),
            ("murmur2-64a", 8, 0x1f0d_3804),
            ("murmur3-32", 4, 0xb0f5_7ee3),
            ("xxh32", 4, 0xba88_b743),
        ] {
            let specimen = Specimen::by_name(name).unwrap();
            let found = verification_code(|key, seed| specimen.hash(key, seed), bytes);
            assert_eq!(found, code, "{name}: {found:x}");
        }
    }
}
