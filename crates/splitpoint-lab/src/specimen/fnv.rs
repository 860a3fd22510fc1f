//! Fowler, Noll and Vo's functions, with the standard basis and with that of the BSD kernels.
//!
//! # Source
//!
//! Fowler, Noll and Vo, 1991; vectors from draft-eastlake-fnv. The BSD basis: `fnv_hash.h` of
//! FreeBSD and NetBSD, which is what Mewburn measured in 2001.

use super::Specimen;

const AVOID: &str = "with keys that an attacker may choose; its bit 0 is the parity of the bytes' \
    bit 0, and it takes one multiplication a byte";

/// The functions of this family.
pub(super) const SPECIMENS: &[Specimen] = &[
    Specimen::new(
        "fnv1-32",
        32,
        |key, _| u64::from(fnv1_32(key, BASIS_32)),
        "Fowler, Noll and Vo, FNV-1, 32 bits",
        AVOID,
    ),
    Specimen::new(
        "fnv1-32-bsd",
        32,
        |key, _| u64::from(fnv1_32(key, BASIS_32_BSD)),
        "FreeBSD and NetBSD, fnv_32_buf with FNV1_32_INIT 0x02000023",
        "where others compute FNV-1: the basis of the BSD kernels is not the standard one",
    ),
    Specimen::new(
        "fnv1a-32",
        32,
        |key, _| u64::from(fnv1a_32(key)),
        "Fowler, Noll and Vo, FNV-1a, 32 bits",
        AVOID,
    ),
    Specimen::new(
        "fnv1-64",
        64,
        |key, _| fnv1_64(key),
        "Fowler, Noll and Vo, FNV-1, 64 bits",
        AVOID,
    ),
    Specimen::new(
        "fnv1a-64",
        64,
        |key, _| splitpoint::hash::fnv1a_64(key),
        "Fowler, Noll and Vo, FNV-1a, 64 bits",
        AVOID,
    ),
];

/// The standard offset basis of 32 bits.
pub const BASIS_32: u32 = 0x811c_9dc5;
/// The basis of FreeBSD and NetBSD, `FNV1_32_INIT`.
pub const BASIS_32_BSD: u32 = 0x0200_0023;

const PRIME_32: u32 = 0x0100_0193;
const BASIS_64: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME_64: u64 = 0x0000_0100_0000_01b3;

/// Returns FNV-1 from `basis`: multiply, then XOR the byte.
pub fn fnv1_32(key: &[u8], basis: u32) -> u32 {
    key.iter().fold(basis, |hash, &byte| hash.wrapping_mul(PRIME_32) ^ u32::from(byte))
}

/// Returns FNV-1a of 32 bits: XOR the byte, then multiply.
pub fn fnv1a_32(key: &[u8]) -> u32 {
    key.iter().fold(BASIS_32, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(PRIME_32))
}

/// Returns FNV-1 of 64 bits.
pub fn fnv1_64(key: &[u8]) -> u64 {
    key.iter().fold(BASIS_64, |hash, &byte| hash.wrapping_mul(PRIME_64) ^ u64::from(byte))
}
