//! The functions of dbm and its descendants.
//!
//! # Source
//!
//! dbm of the seventh edition, `calchash`; Berkeley DB 1.85, `hash_func.c` (4.4BSD, 1994, and
//! 4.3BSD-Reno's of 1993 where it differs); Yigit's sdbm; GNU gdbm, `hash.c`. Written from the
//! formulas. Those that old files are read by are in `splitpoint::hash`.

use splitpoint::hash::{CharSign, dbm, gdbm, sdbm};

use super::{Reduction, Specimen};

/// The functions of this family.
pub(super) const SPECIMENS: &[Specimen] = &[
    Specimen::new(
        "dbm",
        32,
        |key, _| u64::from(dbm(key)),
        "dbm and ndbm of the seventh edition, calchash",
        "for new tables: it adds table entries by nibble and is slow; kept for old files",
    )
    .historic(Reduction::LowMask),
    Specimen::new(
        "db-hash1",
        21,
        |key, _| u64::from(db_hash1(key)),
        "Berkeley DB 1.85 hash1, by ejb; also called dynahash",
        "for more than a few thousand keys: it has 1,048,583 values in all",
    )
    .historic(Reduction::Split),
    Specimen::new(
        "db-hash1-1993",
        32,
        |key, _| u64::from(db_hash1_signed(key)),
        "Berkeley DB 5.3 of 1993, hash1 in signed arithmetic",
        "for anything but files written before 1994: negative remainders wrap to 32 bits",
    )
    .historic(Reduction::Split),
    Specimen::new(
        "db-hash2",
        32,
        |key, _| u64::from(db_hash2(key)),
        "Berkeley DB 1.85 hash2, by Phong Vo",
        "with power-of-two tables: its low bits depend on the low bits of the bytes alone",
    )
    .historic(Reduction::Split),
    Specimen::new(
        "sdbm",
        32,
        |key, _| u64::from(sdbm(key, 65_599, CharSign::Unsigned)),
        "Yigit's sdbm; Berkeley DB 1.85 hash3",
        "with keys that an attacker may choose, or with binary keys of few distinct bytes",
    )
    .historic(Reduction::LowMask),
    Specimen::new(
        "sdbm-65587",
        32,
        |key, _| u64::from(sdbm(key, 65_587, CharSign::Unsigned)),
        "Yigit's sdbm, the other multiplier that its source names",
        "with keys that an attacker may choose, or with binary keys of few distinct bytes",
    )
    .historic(Reduction::LowMask),
    Specimen::new(
        "db-hash4",
        32,
        |key, _| u64::from(db_hash4(key)),
        "Berkeley DB 1.85 hash4, by Torek: its default",
        "with keys that an attacker may choose: collisions are found by hand",
    )
    .historic(Reduction::Split),
    Specimen::new(
        "gdbm",
        31,
        |key, _| u64::from(gdbm(key, CharSign::Unsigned)),
        "GNU gdbm, hash.c, where char is unsigned",
        "for files from x86 with bytes above 127: there char is signed",
    )
    .historic(Reduction::HighShift),
    Specimen::new(
        "gdbm-signed",
        31,
        |key, _| u64::from(gdbm(key, CharSign::Signed)),
        "GNU gdbm, hash.c, where char is signed, as on x86",
        "for files from Arm or PowerPC with bytes above 127: there char is unsigned",
    )
    .historic(Reduction::HighShift),
];

/// Returns `hash1` of Berkeley DB 1.85: `h = h*37 ^ (c - 32)`, then modulo 1,048,583.
pub fn db_hash1(key: &[u8]) -> u32 {
    splitpoint_legacy::algorithm::dynahash::hash(key)
}

/// Returns `hash1` as of 1993, whose remainder is that of a signed number.
pub fn db_hash1_signed(key: &[u8]) -> u32 {
    (hash1_sum(key).cast_signed() % 1_048_583).cast_unsigned()
}

fn hash1_sum(key: &[u8]) -> u32 {
    key.iter().fold(0_u32, |hash, &byte| {
        hash.wrapping_mul(37) ^ u32::from(byte).wrapping_sub(u32::from(b' '))
    })
}

/// Returns `hash2` of Berkeley DB 1.85: `h = 0x63c63cd9*h + 0x9c39c33d + c`.
pub fn db_hash2(key: &[u8]) -> u32 {
    key.iter().fold(0_u32, |hash, &byte| {
        hash.wrapping_mul(0x63c6_3cd9).wrapping_add(0x9c39_c33d).wrapping_add(u32::from(byte))
    })
}

/// Returns `hash4` of Berkeley DB 1.85: `h = 33*h + c`, from 0.
pub fn db_hash4(key: &[u8]) -> u32 {
    splitpoint::hash::x33(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The 1991 package's own probe of its file headers.
    #[test]
    fn db_hash4_of_the_header_probe_is_what_the_files_hold() {
        assert_eq!(db_hash4(splitpoint::hash::PROBE_KEY), 0x956e_7de3);
    }

    #[test]
    fn hash1_of_1993_differs_only_where_the_sum_is_negative() {
        assert_eq!(db_hash1_signed(b"abc"), db_hash1(b"abc"));
        let differ = (0..1000_u32)
            .map(|n| format!("{n:x}{}", n * n))
            .filter(|key| db_hash1_signed(key.as_bytes()) != db_hash1(key.as_bytes()));
        assert!(differ.count() > 100);
    }
}
