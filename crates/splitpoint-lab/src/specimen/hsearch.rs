//! The functions of `hsearch`, System V's and glibc's.
//!
//! # Source
//!
//! System V `hsearch.c`; glibc `hsearch_r.c`. Written from the formulas.

use super::{Reduction, Specimen};

pub use splitpoint_legacy::algorithm::hsearch::{FACTOR, digest as sysv_crunch};

/// The functions of this family.
pub(super) const SPECIMENS: &[Specimen] = &[
    Specimen::new(
        "sysv-hsearch",
        32,
        |key, _| u64::from(sysv_crunch(key)),
        "System V hsearch, the crunch of a key: the sum of its bytes and its length",
        "at all: words with the same letters collide, and with them their whole probe paths",
    )
    .historic(Reduction::Multiply32(FACTOR)),
    Specimen::new(
        "glibc-hsearch",
        32,
        |key, _| u64::from(glibc_hsearch(key)),
        "glibc hsearch_r, from the last byte to the first",
        "with keys over 8 bytes: what the last bytes gave is shifted out of the word",
    )
    .historic(Reduction::PrimeModulus),
];

/// Returns glibc's hash: `h = (h << 4) + c` from the last byte, from the length; 1 for 0.
pub fn glibc_hsearch(key: &[u8]) -> u32 {
    let sum = key
        .iter()
        .rev()
        .fold(key.len() as u32, |hash, &byte| (hash << 4).wrapping_add(u32::from(byte)));
    sum.max(1)
}
