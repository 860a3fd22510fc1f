//! The functions by which servers share their work: `MySQL`'s partitions, the load balancing of DHCP.
//!
//! # Source
//!
//! `my_hash_sort_bin` of `MySQL` and `MariaDB`; Pearson, "Fast hashing of variable-length text strings",
//! Communications of the ACM, 1990, with the table and the order of RFC 3074. Written from the
//! formulas; the table is that of the RFC, which every implementation must use.

use super::Specimen;

/// The functions of this family.
pub(super) const SPECIMENS: &[Specimen] = &[
    Specimen::new(
        "mysql",
        32,
        |key, _| u64::from(mysql(key)),
        "MySQL's my_hash_sort_bin, of bytes, from 1 and 4, the low 32 bits",
        "with keys that an attacker may choose, or with few bits: those above a byte never reach the \
         low ones",
    )
    .used_in(
        "PARTITION BY KEY of MySQL and MariaDB, modulo the partitions, for columns of bytes; their \
         collations fold case and leave out spaces first",
    ),
    Specimen::new(
        "pearson",
        8,
        |key, _| u64::from(pearson(key)),
        "Pearson, 1990, with the table of RFC 3074: from the length, the last byte first",
        "for more than a few dozen buckets: it has 256 values",
    )
    .used_in("the load balancing of DHCP failover: ISC DHCP, Kea; small tables of microcontrollers"),
];

/// Returns the hash by which `MySQL` chooses the partition of a key of bytes.
///
/// `MySQL` computes in 64 bits and uses the low 32, to which none of the others comes.
pub fn mysql(key: &[u8]) -> u32 {
    let add = |(hash, factor): (u32, u32), &byte: &u8| {
        let product = ((hash & 63).wrapping_add(factor)).wrapping_mul(u32::from(byte));
        (hash ^ product.wrapping_add(hash << 8), factor.wrapping_add(3))
    };
    key.iter().fold((1, 4), add).0
}

/// Returns Pearson's hash as RFC 3074 has it.
pub fn pearson(key: &[u8]) -> u8 {
    key.iter().rev().fold(key.len() as u8, |hash, &byte| PEARSON[usize::from(hash ^ byte)])
}

/// The permutation of RFC 3074, section 6.
const PEARSON: [u8; 256] = [
    251, 175, 119, 215, 81, 14, 79, 191, 103, 49, 181, 143, 186, 157, 0, 232, 31, 32, 55, 60, 152,
    58, 17, 237, 174, 70, 160, 144, 220, 90, 57, 223, 59, 3, 18, 140, 111, 166, 203, 196, 134, 243,
    124, 95, 222, 179, 197, 65, 180, 48, 36, 15, 107, 46, 233, 130, 165, 30, 123, 161, 209, 23, 97,
    16, 40, 91, 219, 61, 100, 10, 210, 109, 250, 127, 22, 138, 29, 108, 244, 67, 207, 9, 178, 204,
    74, 98, 126, 249, 167, 116, 34, 77, 193, 200, 121, 5, 20, 113, 71, 35, 128, 13, 182, 94, 25,
    226, 227, 199, 75, 27, 41, 245, 230, 224, 43, 225, 177, 26, 155, 150, 212, 142, 218, 115, 241,
    73, 88, 105, 39, 114, 62, 255, 192, 201, 145, 214, 168, 158, 221, 148, 154, 122, 12, 84, 82,
    163, 44, 139, 228, 236, 205, 242, 217, 11, 187, 146, 159, 64, 86, 239, 195, 42, 106, 198, 118,
    112, 184, 172, 87, 2, 173, 117, 176, 229, 247, 253, 137, 185, 99, 164, 102, 147, 45, 66, 231,
    52, 141, 211, 194, 206, 246, 238, 56, 110, 78, 248, 63, 240, 189, 93, 92, 51, 53, 183, 19, 171,
    72, 50, 33, 104, 101, 69, 8, 252, 83, 120, 76, 135, 85, 54, 202, 125, 188, 213, 96, 235, 136,
    208, 162, 129, 190, 132, 156, 38, 47, 1, 7, 254, 24, 4, 216, 131, 89, 21, 28, 133, 37, 153,
    149, 80, 170, 68, 6, 169, 234, 151,
];

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&[u8]; 8] = [
        b"",
        b"a",
        b"abc",
        b"foobar",
        b"a999999",
        b"libsesquipedalianism.so.3.141",
        b"The quick brown fox jumps over the lazy dog",
        b"\xe9\xff",
    ];

    /// The partitions that `EXPLAIN PARTITIONS SELECT .. WHERE k = ..` of `MariaDB` 10.11.19 named, of
    /// tables `(k VARBINARY(100) NOT NULL) PARTITION BY KEY (k)` with 8191, 1021 and 1019 partitions:
    /// together they give all 32 bits.
    #[test]
    fn mysql_chooses_the_partitions_that_a_server_chose() {
        let partitions: [[u32; 3]; 8] = [
            [1, 1, 1],
            [740, 740, 740],
            [490, 830, 110],
            [7492, 541, 227],
            [797, 907, 417],
            [7261, 680, 907],
            [5432, 335, 129],
            [7053, 918, 617],
        ];
        for (key, expected) in KEYS.iter().zip(partitions) {
            let found = [8191, 1021, 1019].map(|count| mysql(key) % count);
            assert_eq!(found, expected, "{}", key.escape_ascii());
        }
        assert_eq!(mysql(b"foobar"), 0x73f4_3d86);
    }

    /// What `QueryFilter::loadBalanceHash` of Kea 2.2.0, called in its library, returned.
    #[test]
    fn pearson_hashes_as_kea_balances_its_load() {
        assert_eq!(KEYS.map(pearson), [0x00, 0x14, 0xaa, 0x90, 0x5a, 0x67, 0x09, 0x28]);
        let bytes: Vec<u8> = (0..=255).cycle().take(512).collect();
        let found = [255, 256, 257, 512].map(|length| pearson(&bytes[..length]));
        assert_eq!(found, [0xbc, 0x98, 0x59, 0x81]);
        // Of one byte, the table itself.
        let mut values: Vec<u8> = (0..=255).map(|byte| pearson(&[byte])).collect();
        values.sort_unstable();
        assert_eq!(values, bytes[..256], "a permutation");
    }
}
