//! The functions of dbm and its descendants.
//!
//! # Source
//!
//! dbm of the seventh edition, `calchash`; Berkeley DB 1.85, `hash_func.c` (4.4BSD, 1994, and
//! 4.3BSD-Reno's of 1993 where it differs); Yigit's sdbm; GNU gdbm, `hash.c`. Written from the
//! formulas.

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
        |key, _| u64::from(sdbm(key, 65_599)),
        "Yigit's sdbm; Berkeley DB 1.85 hash3",
        "with keys that an attacker may choose, or with binary keys of few distinct bytes",
    )
    .historic(Reduction::LowMask),
    Specimen::new(
        "sdbm-65587",
        32,
        |key, _| u64::from(sdbm(key, 65_587)),
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
        |key, _| u64::from(gdbm(key, i32::from)),
        "GNU gdbm, hash.c, where char is unsigned",
        "for files from x86 with bytes above 127: there char is signed",
    )
    .historic(Reduction::HighShift),
    Specimen::new(
        "gdbm-signed",
        31,
        |key, _| u64::from(gdbm(key, |byte| i32::from(byte.cast_signed()))),
        "GNU gdbm, hash.c, where char is signed, as on x86",
        "for files from Arm or PowerPC with bytes above 127: there char is unsigned",
    )
    .historic(Reduction::HighShift),
];

/// Steps of the table index of [`dbm`], by nibble.
const DBM_STEPS: [u32; 16] = [61, 57, 53, 49, 45, 41, 37, 33, 29, 25, 21, 17, 13, 9, 5, 1];

/// The words that [`dbm`] adds up, in octal as they were published.
const DBM_WORDS: [u32; 64] = [
    0o6_100_151_277,
    0o6_106_161_736,
    0o6_452_611_562,
    0o5_001_724_107,
    0o2_614_772_546,
    0o4_120_731_531,
    0o4_665_262_210,
    0o7_347_467_531,
    0o6_735_253_126,
    0o6_042_345_173,
    0o3_072_226_605,
    0o1_464_164_730,
    0o3_247_435_524,
    0o7_652_510_057,
    0o1_546_775_256,
    0o5_714_532_133,
    0o6_173_260_402,
    0o7_517_101_630,
    0o2_431_460_343,
    0o1_743_245_566,
    0o261_675_137,
    0o2_433_103_631,
    0o3_421_772_437,
    0o4_447_707_466,
    0o4_435_620_103,
    0o3_757_017_115,
    0o3_641_531_772,
    0o6_767_633_246,
    0o2_673_230_344,
    0o260_612_216,
    0o4_133_454_451,
    0o615_531_516,
    0o6_137_717_526,
    0o2_574_116_560,
    0o2_304_023_373,
    0o7_061_702_261,
    0o5_153_031_405,
    0o5_322_056_705,
    0o7_401_116_734,
    0o6_552_375_715,
    0o6_165_233_473,
    0o5_311_063_631,
    0o1_212_221_723,
    0o1_052_267_235,
    0o6_000_615_237,
    0o1_075_222_665,
    0o6_330_216_006,
    0o4_402_355_630,
    0o1_451_177_262,
    0o2_000_133_436,
    0o6_025_467_062,
    0o7_121_076_461,
    0o3_123_433_522,
    0o1_010_635_225,
    0o1_716_177_066,
    0o5_161_746_527,
    0o1_736_635_071,
    0o6_243_505_026,
    0o3_637_211_610,
    0o1_756_474_365,
    0o4_723_077_174,
    0o3_642_763_134,
    0o5_750_130_273,
    0o3_655_541_561,
];

/// Returns the hash of dbm and ndbm: `calchash` of the seventh edition, in 32 bits.
///
/// For each byte, low nibble first: the index advances by a step of the nibble, and the word at
/// the index is added.
pub fn dbm(key: &[u8]) -> u32 {
    let (mut index, mut hash) = (0_u32, 0_u32);
    for &byte in key {
        for nibble in [byte & 15, byte >> 4] {
            index = index.wrapping_add(DBM_STEPS[usize::from(nibble)]);
            hash = hash.wrapping_add(DBM_WORDS[(index & 63) as usize]);
        }
    }
    hash
}

/// Returns `hash1` of Berkeley DB 1.85: `h = h*37 ^ (c - 32)`, then modulo 1,048,583.
pub fn db_hash1(key: &[u8]) -> u32 {
    hash1_sum(key) % 1_048_583
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

/// Returns the hash of sdbm: `h = c + multiplier*h`, with the multiplier 65,599 or 65,587.
pub fn sdbm(key: &[u8], multiplier: u32) -> u32 {
    key.iter()
        .fold(0_u32, |hash, &byte| hash.wrapping_mul(multiplier).wrapping_add(u32::from(byte)))
}

/// Returns `hash4` of Berkeley DB 1.85: `h = 33*h + c`, from 0.
pub fn db_hash4(key: &[u8]) -> u32 {
    splitpoint::hash::x33(key)
}

/// Returns the hash of gdbm, 31 bits, with `char` converted to `int` by `widen`.
///
/// Its buckets are the top bits.
pub fn gdbm(key: &[u8], widen: fn(u8) -> i32) -> u32 {
    const MASK: u32 = 0x7fff_ffff;
    let mut value = 0x238f_13af_u32.wrapping_mul(key.len() as u32);
    for (index, &byte) in key.iter().enumerate() {
        let shifted = widen(byte).cast_unsigned() << (index * 5 % 24);
        value = value.wrapping_add(shifted) & MASK;
    }
    value.wrapping_mul(1_103_515_243).wrapping_add(12_345) & MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gdbm_depends_on_the_sign_of_char() {
        assert_eq!(gdbm(&[0xe9, 0xff], |byte| i32::from(byte.cast_signed())), 0x18b2_6f86);
        assert_eq!(gdbm(&[0xe9, 0xff], i32::from), 0x28ce_3a86);
        assert_eq!(gdbm(b"abc", |byte| i32::from(byte.cast_signed())), gdbm(b"abc", i32::from));
    }

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
