//! Jenkins's functions before lookup3, which is in [`jhash`](super::jhash).
//!
//! # Source
//!
//! Jenkins, "Algorithm alley: hash functions", Dr. Dobb's, September 1997; his `lookup2.c`, 1996,
//! in the public domain. Written from the formulas.

use super::{Seeding, Specimen, word32};

const AVOID: &str =
    "with keys that an attacker may choose: keys are known that collide under every seed";

/// The functions of this family.
pub(super) const SPECIMENS: &[Specimen] = &[
    Specimen::new(
        "one-at-a-time",
        32,
        |key, seed| u64::from(one_at_a_time(key, seed as u32)),
        "Jenkins, one-at-a-time, 1997",
        AVOID,
    )
    .used_in("Perl 5.8 to 5.16 with a seed; uthash; the names of GTA's files")
    .seeded(Seeding::Bits32),
    Specimen::new(
        "lookup2",
        32,
        |key, seed| u64::from(lookup2(key, seed as u32)),
        "Jenkins, lookup2, 1996",
        "in new programs: lookup3 takes half the time",
    )
    .used_in("Linux 2.6's jhash, GCC's iterative_hash, Ceph's placement, netfilter")
    .seeded(Seeding::Bits32),
];

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

/// Returns Jenkins's lookup2.
pub fn lookup2(key: &[u8], seed: u32) -> u32 {
    const START: u32 = 0x9e37_79b9;
    let mut state = [START, START, seed];
    let (blocks, tail) = key.as_chunks::<12>();
    for block in blocks {
        state = mixed_by_lookup2(added(state, [0, 1, 2].map(|at| word32(block, at))));
    }
    // The lowest byte of the third word is for the length.
    let last = (word32(tail, 2) << 8).wrapping_add(key.len() as u32);
    mixed_by_lookup2(added(state, [word32(tail, 0), word32(tail, 1), last]))[2]
}

fn added(state: [u32; 3], words: [u32; 3]) -> [u32; 3] {
    [0, 1, 2].map(|at: usize| state[at].wrapping_add(words[at]))
}

fn mixed_by_lookup2([mut a, mut b, mut c]: [u32; 3]) -> [u32; 3] {
    for [first, second, third] in [[13, 8, 13], [12, 16, 5], [3, 10, 15]] {
        a = a.wrapping_sub(b).wrapping_sub(c) ^ c >> first;
        b = b.wrapping_sub(c).wrapping_sub(a) ^ a << second;
        c = c.wrapping_sub(a).wrapping_sub(b) ^ b >> third;
    }
    [a, b, c]
}

#[cfg(test)]
mod tests {
    use super::super::tests::verification_code;
    use super::*;

    #[test]
    fn one_at_a_time_matches_its_published_vectors() {
        assert_eq!(one_at_a_time(b"a", 0), 0xca2e_9442);
        let fox = b"The quick brown fox jumps over the lazy dog";
        assert_eq!(one_at_a_time(fox, 0), 0x519e_91f5);
        let of = |key: &[u8], seed| u128::from(one_at_a_time(key, seed as u32));
        assert_eq!(verification_code(of, 4), 0xee05_869b, "as in old Perl");
    }

    /// Vectors of the implementations in Java and for Python that were made from Jenkins's own.
    #[test]
    fn lookup2_matches_published_vectors() {
        for (key, seed, hash) in [
            ("hello", 0, 3_070_638_494),
            ("hello", 3_070_638_494, 1_535_955_511),
            ("wow", 0, 627_410_295),
            ("\0", 0, 1_843_378_377),
            ("this is 11c", 0, 3_384_459_500),
            ("this is 12ch", 0, 313_177_311),
            ("this is much large than 12 characters", 0, 2_771_373_033),
            ("foobar", 0, 0x9d3f_fa02),
            ("hello world", 0, 0x1aa9_19e6),
            ("1234567890abcdefghijklmnopqstuvwxyz", 0, 0x49ea_ee3e),
        ] {
            assert_eq!(lookup2(key.as_bytes(), seed), hash, "{key:?} {seed}");
        }
    }
}
