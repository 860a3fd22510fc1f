//! Checksums and digests, which many programs take for hash functions.
//!
//! # Source
//!
//! ISO 3309 (CRC-32), RFC 3720 (CRC-32C), ITU-T V.41 (CRC-16), RFC 1950 (Adler-32), RFC 1321 (MD5),
//! FIPS 180-4 (SHA-1). The CRCs of 32 bits and the digests are those of crates, which use the
//! instructions of the processor where it has them.

use sha1::Digest as _;

use super::Specimen;

const AVOID_CRC: &str = "with keys that an attacker may choose: it is linear, so that one \
    collision gives all others";
const AVOID_DIGEST: &str = "where time counts: it is ten times slower than XXH3; nor for \
    signatures, since collisions of the whole digest are known";

/// The functions of this family.
pub(super) const SPECIMENS: &[Specimen] = &[
    Specimen::new(
        "crc16",
        16,
        |key, _| u64::from(CRC_16.checksum(key)),
        "CRC-16/XMODEM, ITU-T V.41, from 0",
        "for more than a few thousand buckets: it has 65,536 values",
    )
    .used_in("Redis Cluster's slots, by the low 14 bits"),
    Specimen::new(
        "crc32",
        32,
        |key, _| u64::from(crc32fast::hash(key)),
        "CRC-32, ISO 3309; crate crc32fast, by carry-less multiplication where there is one",
        AVOID_CRC,
    )
    .used_in("zlib, Ethernet and PNG; PHP's and MySQL's crc32; memcached clients"),
    Specimen::new(
        "crc32c",
        32,
        |key, _| u64::from(crc32c::crc32c(key)),
        "CRC-32C by Castagnoli, RFC 3720; crate crc32c, by the instruction of x86 and Arm",
        AVOID_CRC,
    )
    .used_in("iSCSI, ext4, Btrfs; hash joins of analytical databases"),
    Specimen::new(
        "adler32",
        32,
        |key, _| u64::from(adler32(key)),
        "Adler, RFC 1950",
        "as a hash: the sums of short keys are small, so that most values never occur",
    )
    .used_in("zlib's streams; rsync in a variant"),
    Specimen::new(
        "md5-64",
        64,
        |key, _| first_64(&md5::Md5::digest(key)),
        "Rivest, RFC 1321, the first 64 bits; crate md-5",
        AVOID_DIGEST,
    )
    .used_in("sharding in SQL by the first digits of md5(key); ketama by other bytes of it"),
    Specimen::new(
        "sha1-64",
        64,
        |key, _| first_64(&sha1::Sha1::digest(key)),
        "NIST, FIPS 180-4, the first 64 bits; crate sha1",
        AVOID_DIGEST,
    )
    .used_in("Git's object names; sharding by the first digits of a digest"),
];

const CRC_16: crc::Crc<u16> = crc::Crc::<u16>::new(&crc::CRC_16_XMODEM);

/// Returns the first 16 digits of a digest as a number.
fn first_64(digest: &[u8]) -> u64 {
    digest.iter().take(8).fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// Returns Adler-32: the sum of the bytes from 1, and above it the sum of those sums.
pub fn adler32(key: &[u8]) -> u32 {
    const PRIME: u32 = 65_521;
    let (low, high) = key.iter().fold((1, 0), |(low, high), &byte| {
        let low = (low + u32::from(byte)) % PRIME;
        (low, (high + low) % PRIME)
    });
    high << 16 | low
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(name: &str, key: &[u8]) -> u64 {
        Specimen::by_name(name).unwrap().hash(key, 0)
    }

    /// Check values of the catalog of CRCs, and zlib's own.
    #[test]
    fn checksums_match_their_published_check_values() {
        for (name, check) in [("crc16", 0x31c3), ("crc32", 0xcbf4_3926), ("crc32c", 0xe306_9283)] {
            assert_eq!(hash(name, b"123456789"), check, "{name}");
        }
        // RFC 3720, B.4: 32 bytes of zeros, of ones, and 0 to 31.
        let rising: Vec<u8> = (0..32).collect();
        let keys = [vec![0; 32], vec![0xff; 32], rising];
        assert_eq!(keys.map(|key| hash("crc32c", &key)), [0x8a91_36aa, 0x62a8_ab43, 0x46dd_794e]);
        assert_eq!(adler32(b""), 1);
        assert_eq!(adler32(b"Wikipedia"), 0x11e6_0398);
        assert_eq!(adler32(&[0xff; 100].repeat(1000)), 0x149a_302c);
    }

    /// RFC 1321, A.5, and FIPS 180.
    #[test]
    fn digests_begin_as_the_standards_say() {
        assert_eq!(hash("md5-64", b""), 0xd41d_8cd9_8f00_b204);
        assert_eq!(hash("md5-64", b"abc"), 0x9001_5098_3cd2_4fb0);
        assert_eq!(hash("sha1-64", b""), 0xda39_a3ee_5e6b_4b0d);
        assert_eq!(hash("sha1-64", b"abc"), 0xa999_3e36_4706_816a);
    }
}
