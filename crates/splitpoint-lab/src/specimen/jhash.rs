//! Jenkins's lookup3 as Linux and `PostgreSQL` have it.
//!
//! # Source
//!
//! Bob Jenkins, lookup3, 2006, public domain; Linux `jhash.h` and `rhashtable`, which start the
//! state with `0xdeadbeef + length + seed`; the text of `PostgreSQL`'s `hashfn.c` in words. Written
//! from the formulas.

use super::{Reduction, Seeding, Specimen, word32};

/// The functions of this family.
pub(super) const SPECIMENS: &[Specimen] = &[
    Specimen::new(
        "linux-jhash",
        32,
        |key, seed| u64::from(jhash(key, seed as u32)),
        "Jenkins's lookup3, hashlittle, as in Linux jhash.h",
        "with keys that an attacker may choose: the seed does not make it a keyed function",
    )
    .used_in("Linux's rhashtable, which draws the seed for each table; memcached before 1.6; HDF5")
    .seeded(Seeding::Bits32)
    .historic(Reduction::LowMask),
    Specimen::new(
        "postgres",
        32,
        |key, _| u64::from(postgres(key)),
        "PostgreSQL 8.4 and later, hash_any, from lookup3",
        "with keys that an attacker may choose: it has no seed",
    )
    .used_in("PostgreSQL's hash indexes, hash joins and hashtext()"),
];

const START: u32 = 0xdead_beef;
/// What `PostgreSQL` starts the state with, before the length.
const POSTGRES_START: u32 = 0x9e37_79b9 + 3_923_095;

/// The three words of lookup3.
struct State {
    a: u32,
    b: u32,
    c: u32,
}

impl State {
    fn new(length: u32, seed: u32) -> Self {
        Self::starting(START.wrapping_add(length).wrapping_add(seed))
    }

    fn starting(start: u32) -> Self {
        Self { a: start, b: start, c: start }
    }

    fn add(&mut self, words: [u32; 3]) {
        self.a = self.a.wrapping_add(words[0]);
        self.b = self.b.wrapping_add(words[1]);
        self.c = self.c.wrapping_add(words[2]);
    }

    fn mix(&mut self) {
        let Self { a, b, c } = self;
        for [first, second, third] in [[4, 6, 8], [16, 19, 4]] {
            *a = a.wrapping_sub(*c) ^ c.rotate_left(first);
            *c = c.wrapping_add(*b);
            *b = b.wrapping_sub(*a) ^ a.rotate_left(second);
            *a = a.wrapping_add(*c);
            *c = c.wrapping_sub(*b) ^ b.rotate_left(third);
            *b = b.wrapping_add(*a);
        }
    }

    fn finish(mut self) -> u32 {
        let Self { a, b, c } = &mut self;
        *c = (*c ^ *b).wrapping_sub(b.rotate_left(14));
        *a = (*a ^ *c).wrapping_sub(c.rotate_left(11));
        *b = (*b ^ *a).wrapping_sub(a.rotate_left(25));
        *c = (*c ^ *b).wrapping_sub(b.rotate_left(16));
        *a = (*a ^ *c).wrapping_sub(c.rotate_left(4));
        *b = (*b ^ *a).wrapping_sub(a.rotate_left(14));
        (*c ^ *b).wrapping_sub(b.rotate_left(24))
    }
}

/// Returns `jhash` of bytes: lookup3, little-endian, three words at a time.
pub fn jhash(key: &[u8], seed: u32) -> u32 {
    let mut state = State::new(key.len() as u32, seed);
    let mut rest = key;
    while rest.len() > 12 {
        state.add([word32(rest, 0), word32(rest, 1), word32(rest, 2)]);
        state.mix();
        rest = &rest[12..];
    }
    if rest.is_empty() {
        return state.c;
    }
    state.add([word32(rest, 0), word32(rest, 1), word32(rest, 2)]);
    state.finish()
}

/// Returns `PostgreSQL`'s `hash_any`: lookup3 with another start, whose last words are those of
/// lookup2, with a byte left free.
pub fn postgres(key: &[u8]) -> u32 {
    let mut state = State::starting(POSTGRES_START.wrapping_add(key.len() as u32));
    let (blocks, tail) = key.as_chunks::<12>();
    for block in blocks {
        state.add([word32(block, 0), word32(block, 1), word32(block, 2)]);
        state.mix();
    }
    state.add([word32(tail, 0), word32(tail, 1), word32(tail, 2) << 8]);
    state.finish()
}

/// Returns `jhash2`: the same of 32-bit words.
pub fn jhash2(words: &[u32], seed: u32) -> u32 {
    let mut state = State::new((words.len() as u32) << 2, seed);
    let word = |words: &[u32], at: usize| words.get(at).copied().unwrap_or(0);
    let mut rest = words;
    while rest.len() > 3 {
        state.add([rest[0], rest[1], rest[2]]);
        state.mix();
        rest = &rest[3..];
    }
    if rest.is_empty() {
        return state.c;
    }
    state.add([word(rest, 0), word(rest, 1), word(rest, 2)]);
    state.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jhash2_matches_its_vectors() {
        assert_eq!(jhash2(&[1, 2], 0), 0x8b4c_7979);
        assert_eq!(jhash2(&[1], 0), 0x72a8_2a9b);
    }

    /// `lookup3.c`, driver 5, and `SMHasher`'s code.
    #[test]
    fn jhash_of_bytes_is_lookup3() {
        let score = b"Four score and seven years ago";
        assert_eq!([jhash(score, 0), jhash(score, 1)], [0x1777_0551, 0xcd62_8161]);
        let of = |key: &[u8], seed| u128::from(jhash(key, seed as u32));
        assert_eq!(super::super::tests::verification_code(of, 4), 0x3d83_917a);
    }

    /// What `hashtext` and `hashint4` of published sessions printed.
    #[test]
    fn postgres_hashes_as_the_server_prints() {
        for (key, hash) in [
            (&b"resource1"[..], 991_601_810),
            (b"gamekit.auth.migrations", -298_890_956),
            (&[1, 0, 0, 0], -1_905_060_026),
        ] {
            assert_eq!(postgres(key).cast_signed(), hash, "{key:?}");
        }
    }

    /// Words and their bytes are one key, at every length around the blocks of three words.
    #[test]
    fn jhash_of_whole_words_is_jhash2() {
        for count in 0..10_u32 {
            let words: Vec<u32> = (0..count).map(|n| n.wrapping_mul(0x9e37_79b9)).collect();
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            assert_eq!(jhash(&bytes, 7), jhash2(&words, 7), "{count} words");
        }
    }
}
