//! The functions of `hsearch`, System V's and glibc's.
//!
//! # Source
//!
//! System V `hsearch.c`; glibc `hsearch_r.c`. Written from the formulas.

use splitpoint_legacy::algorithm::hsearch::{Hashing, probe_of};

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

/// Returns the place of a key in System V's table of `2^bits` entries and the step to the next.
///
/// Both come from one crunch, so that keys that share it share every probe.
///
/// # Panics
///
/// If `bits` is not 1 to 31.
pub fn sysv_probe(crunch: u32, bits: u32) -> (u32, u32) {
    probe_of(Hashing::Mult, crunch, bits)
}

/// Returns glibc's hash: `h = (h << 4) + c` from the last byte, from the length; 1 for 0.
pub fn glibc_hsearch(key: &[u8]) -> u32 {
    let sum = key
        .iter()
        .rev()
        .fold(key.len() as u32, |hash, &byte| (hash << 4).wrapping_add(u32::from(byte)));
    sum.max(1)
}

/// Returns the place of a hash in glibc's table of `prime` entries, from 1, and the step.
///
/// # Panics
///
/// If `prime` is below 3.
pub fn glibc_probe(hash: u32, prime: u32) -> (u32, u32) {
    assert!(prime >= 3, "glibc's smallest table has 3 entries");
    (hash % prime + 1, 1 + hash % (prime - 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anagrams_share_the_whole_probe_path_in_system_v() {
        let (silent, listen) = (sysv_crunch(b"silent"), sysv_crunch(b"listen"));
        assert_eq!(sysv_probe(silent, 10), sysv_probe(listen, 10));
        assert_ne!(sysv_probe(silent, 10), sysv_probe(sysv_crunch(b"silence"), 10));
        assert!(sysv_probe(silent, 10).0 < 1024 && sysv_probe(silent, 10).1 < 1024);
    }

    #[test]
    fn glibc_probes_stay_in_the_table() {
        for hash in [0, 1, 6, 7, 8, u32::MAX] {
            let (place, step) = glibc_probe(hash, 7);
            assert!((1..=7).contains(&place) && (1..=5).contains(&step), "{hash}");
        }
    }
}
