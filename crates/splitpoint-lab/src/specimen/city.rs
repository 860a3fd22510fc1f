//! Google's `CityHash64` and `FarmHash64`, which share their short keys.
//!
//! # Source
//!
//! Pike and Alakuijala, `CityHash` 1.1, 2013, and Pike, `FarmHash` 1.1, 2014, both under the MIT
//! license. Written from the formulas. Of `FarmHash` it is the stable part, `Fingerprint64`, which is
//! the same on every machine.

use super::{Seeding, Specimen, word32, word64};

const AVOID: &str =
    "with keys that an attacker may choose: keys are known that collide under every seed";

/// The functions of this family. Seed 0 is the function without a seed, as most programs call it.
pub(super) const SPECIMENS: &[Specimen] = &[
    Specimen::new(
        "cityhash-64",
        64,
        |key, seed| with_seed(city_64(key), seed),
        "Pike and Alakuijala, CityHash64 1.1; with a seed, CityHash64WithSeed",
        AVOID,
    )
    .used_in("ClickHouse, which has version 1.0.2; Abseil's and TensorFlow's early tables")
    .seeded(Seeding::Bits64),
    Specimen::new(
        "farmhash-64",
        64,
        |key, seed| with_seed(farm_64(key), seed),
        "Pike, FarmHash 1.1, Fingerprint64; with a seed, farmhashna::Hash64WithSeed",
        AVOID,
    )
    .used_in("BigQuery's FARM_FINGERPRINT, Guava's farmHashFingerprint64, TensorFlow's buckets")
    .seeded(Seeding::Bits64),
];

const K0: u64 = 0xc3a5_c85c_97cb_3127;
const K1: u64 = 0xb492_b66f_be98_f273;
const K2: u64 = 0x9ae1_6a3b_2f90_404f;
/// The multiplier of `hash_len_16` where no other is given.
const K_MUL: u64 = 0x9ddf_ea08_eb38_2d69;

/// Adds a seed to a hash, unless it is 0.
fn with_seed(hash: u64, seed: u64) -> u64 {
    if seed == 0 { hash } else { seeded(hash, seed) }
}

/// Adds a seed to a hash as `CityHash64WithSeed` and `Hash64WithSeed` do, 0 included.
fn seeded(hash: u64, seed: u64) -> u64 {
    hash_len_16(hash.wrapping_sub(K2), seed, K_MUL)
}

/// Returns the 8 bytes from `at` on.
fn fetch(bytes: &[u8], at: usize) -> u64 {
    word64(bytes.get(at..).unwrap_or_default(), 0)
}

fn shift_mix(word: u64) -> u64 {
    word ^ word >> 47
}

fn hash_len_16(one: u64, two: u64, mul: u64) -> u64 {
    let first = shift_mix((one ^ two).wrapping_mul(mul));
    shift_mix((two ^ first).wrapping_mul(mul)).wrapping_mul(mul)
}

/// The multiplier of keys of this length.
fn mul_of(length: usize) -> u64 {
    K2.wrapping_add(length as u64 * 2)
}

fn up_to_16(key: &[u8]) -> u64 {
    let (length, mul) = (key.len(), mul_of(key.len()));
    match length {
        0 => K2,
        1..4 => {
            let (first, middle, last) = (key[0], key[length >> 1], key[length - 1]);
            let one = u32::from(first) + (u32::from(middle) << 8);
            let two = length as u32 + (u32::from(last) << 2);
            let mixed = u64::from(one).wrapping_mul(K2) ^ u64::from(two).wrapping_mul(K0);
            shift_mix(mixed).wrapping_mul(K2)
        }
        4..8 => {
            let (first, last) = (word32(key, 0), word32(&key[length - 4..], 0));
            hash_len_16(length as u64 + (u64::from(first) << 3), u64::from(last), mul)
        }
        _ => {
            let (first, last) = (fetch(key, 0).wrapping_add(K2), fetch(key, length - 8));
            let one = last.rotate_right(37).wrapping_mul(mul).wrapping_add(first);
            let two = first.rotate_right(25).wrapping_add(last).wrapping_mul(mul);
            hash_len_16(one, two, mul)
        }
    }
}

/// The first word by `first_mul`, and the two words of the first 16 bytes and the last.
fn ends(key: &[u8], first_mul: u64, mul: u64) -> (u64, u64, u64) {
    let length = key.len();
    let (a, b) = (fetch(key, 0).wrapping_mul(first_mul), fetch(key, 8));
    let (c, d) =
        (fetch(key, length - 8).wrapping_mul(mul), fetch(key, length - 16).wrapping_mul(K2));
    let one = a.wrapping_add(b).rotate_right(43).wrapping_add(c.rotate_right(30)).wrapping_add(d);
    let two = a.wrapping_add(b.wrapping_add(K2).rotate_right(18)).wrapping_add(c);
    (a, one, two)
}

fn up_to_32(key: &[u8]) -> u64 {
    let mul = mul_of(key.len());
    let (_, one, two) = ends(key, K1, mul);
    hash_len_16(one, two, mul)
}

#[expect(clippy::many_single_char_names, reason = "the names of the original")]
fn city_up_to_64(key: &[u8]) -> u64 {
    let (length, mul) = (key.len(), mul_of(key.len()));
    let (a, b) = (fetch(key, 0).wrapping_mul(K2), fetch(key, 8));
    let (c, d) = (fetch(key, length - 24), fetch(key, length - 32));
    let (e, f) = (fetch(key, 16).wrapping_mul(K2), fetch(key, 24).wrapping_mul(9));
    let (g, h) = (fetch(key, length - 8), fetch(key, length - 16).wrapping_mul(mul));
    let ag = a.wrapping_add(g);
    let u = ag.rotate_right(43).wrapping_add(b.rotate_right(30).wrapping_add(c).wrapping_mul(9));
    let v = (ag ^ d).wrapping_add(f).wrapping_add(1);
    let w = u.wrapping_add(v).wrapping_mul(mul).swap_bytes().wrapping_add(h);
    let x = e.wrapping_add(f).rotate_right(42).wrapping_add(c);
    let y = v.wrapping_add(w).wrapping_mul(mul).swap_bytes().wrapping_add(g).wrapping_mul(mul);
    let z = e.wrapping_add(f).wrapping_add(c);
    let sum = x.wrapping_add(z).wrapping_mul(mul).wrapping_add(y).swap_bytes().wrapping_add(b);
    let last = z.wrapping_add(sum).wrapping_mul(mul).wrapping_add(d).wrapping_add(h);
    shift_mix(last).wrapping_mul(mul).wrapping_add(x)
}

#[expect(clippy::many_single_char_names, reason = "the names of the original")]
fn farm_up_to_64(key: &[u8]) -> u64 {
    let (length, mul) = (key.len(), mul_of(key.len()));
    let (a, y, two) = ends(key, K2, mul);
    let z = hash_len_16(y, two, mul);
    let (e, f) = (fetch(key, 16).wrapping_mul(mul), fetch(key, 24));
    let g = y.wrapping_add(fetch(key, length - 32)).wrapping_mul(mul);
    let h = z.wrapping_add(fetch(key, length - 24)).wrapping_mul(mul);
    let one = e.wrapping_add(f).rotate_right(43).wrapping_add(g.rotate_right(30)).wrapping_add(h);
    let two = e.wrapping_add(f.wrapping_add(a).rotate_right(18)).wrapping_add(g);
    hash_len_16(one, two, mul)
}

/// The state of keys of more than 64 bytes.
struct State {
    x: u64,
    y: u64,
    z: u64,
    v: [u64; 2],
    w: [u64; 2],
}

impl State {
    /// Takes the 64 bytes from `at` on. `nine` is 9 where the original multiplies by it, else 1.
    fn add(&mut self, key: &[u8], at: usize, mul: u64, nine: u64) {
        let Self { x, y, z, v, w } = self;
        let sum = x.wrapping_add(*y).wrapping_add(v[0]).wrapping_add(fetch(key, at + 8));
        *x = sum.rotate_right(37).wrapping_mul(mul);
        let sum = y.wrapping_add(v[1]).wrapping_add(fetch(key, at + 48));
        *y = sum.rotate_right(42).wrapping_mul(mul);
        *x ^= w[1].wrapping_mul(nine);
        *y = y.wrapping_add(v[0].wrapping_mul(nine)).wrapping_add(fetch(key, at + 40));
        *z = z.wrapping_add(w[0]).rotate_right(33).wrapping_mul(mul);
        *v = weak_32(key, at, v[1].wrapping_mul(mul), x.wrapping_add(w[0]));
        let second = y.wrapping_add(fetch(key, at + 16));
        *w = weak_32(key, at + 32, z.wrapping_add(w[1]), second);
        std::mem::swap(z, x);
    }

    fn finish(self, by: u64, mul: u64) -> u64 {
        let Self { x, y, z, v, w } = self;
        let one = hash_len_16(v[0], w[0], mul)
            .wrapping_add(shift_mix(y).wrapping_mul(by))
            .wrapping_add(z);
        hash_len_16(one, hash_len_16(v[1], w[1], mul).wrapping_add(x), mul)
    }
}

/// Mixes 32 bytes into two words, not thoroughly.
#[expect(clippy::many_single_char_names, reason = "the names of the original")]
fn weak_32(key: &[u8], at: usize, a: u64, b: u64) -> [u64; 2] {
    let [w, x, y, z] = [0, 8, 16, 24].map(|offset| fetch(key, at + offset));
    let start = a.wrapping_add(w);
    let b = b.wrapping_add(start).wrapping_add(z).rotate_right(21);
    let sum = start.wrapping_add(x).wrapping_add(y);
    [sum.wrapping_add(z), b.wrapping_add(sum.rotate_right(44)).wrapping_add(start)]
}

/// Returns `CityHash64` of version 1.1.
#[expect(clippy::many_single_char_names, reason = "the names of the original")]
pub fn city_64(key: &[u8]) -> u64 {
    let length = key.len();
    match length {
        0..=16 => return up_to_16(key),
        17..=32 => return up_to_32(key),
        33..=64 => return city_up_to_64(key),
        _ => {}
    }
    let x = fetch(key, length - 40);
    let y = fetch(key, length - 16).wrapping_add(fetch(key, length - 56));
    let z = hash_len_16(
        fetch(key, length - 48).wrapping_add(length as u64),
        fetch(key, length - 24),
        K_MUL,
    );
    let v = weak_32(key, length - 64, length as u64, z);
    let w = weak_32(key, length - 32, y.wrapping_add(K1), x);
    let x = x.wrapping_mul(K1).wrapping_add(fetch(key, 0));
    let mut state = State { x, y, z, v, w };
    for at in (0..(length - 1) / 64).map(|block| block * 64) {
        state.add(key, at, K1, 1);
    }
    state.finish(K1, K_MUL)
}

/// Returns `FarmHash`'s `Fingerprint64`.
pub fn farm_64(key: &[u8]) -> u64 {
    const SEED: u64 = 81;
    let length = key.len();
    match length {
        0..=16 => return up_to_16(key),
        17..=32 => return up_to_32(key),
        33..=64 => return farm_up_to_64(key),
        _ => {}
    }
    let y = SEED.wrapping_mul(K1).wrapping_add(113);
    let z = shift_mix(y.wrapping_mul(K2).wrapping_add(113)).wrapping_mul(K2);
    let x = SEED.wrapping_mul(K2).wrapping_add(fetch(key, 0));
    let mut state = State { x, y, z, v: [0; 2], w: [0; 2] };
    for at in (0..(length - 1) / 64).map(|block| block * 64) {
        state.add(key, at, K1, 1);
    }
    let mul = K1.wrapping_add((state.z & 0xff) << 1);
    state.w[0] = state.w[0].wrapping_add((length as u64 - 1) & 63);
    state.v[0] = state.v[0].wrapping_add(state.w[0]);
    state.w[0] = state.w[0].wrapping_add(state.v[0]);
    state.add(key, length - 64, mul, 9);
    state.finish(K0, mul)
}

#[cfg(test)]
mod tests {
    use super::super::tests::verification_code;
    use super::*;

    #[test]
    fn verification_codes_are_the_published_ones() {
        let code = |hash: fn(&[u8]) -> u64, is_seeded: bool| {
            let of = |key: &[u8], seed| {
                u128::from(if is_seeded { seeded(hash(key), seed) } else { hash(key) })
            };
            verification_code(of, 8)
        };
        assert_eq!([code(city_64, false), code(city_64, true)], [0x4c4e_54b1, 0x5fab_c5c5]);
        assert_eq!(code(farm_64, true), 0xebc4_a679);
    }

    /// The examples of the manual of `BigQuery`.
    #[test]
    fn farm_fingerprints_are_those_of_bigquery() {
        for (key, hash) in [
            ("1footrue", -1_541_654_101_129_638_711),
            ("2applefalse", 2_794_438_866_806_483_259),
            ("3true", -4_880_158_226_897_771_312_i64),
        ] {
            assert_eq!(farm_64(key.as_bytes()).cast_signed(), hash, "{key}");
        }
    }

    #[test]
    fn seed_zero_is_the_function_without_a_seed() {
        for specimen in SPECIMENS {
            assert_ne!(specimen.hash(b"key", 0), specimen.hash(b"key", 1));
        }
        assert_eq!(SPECIMENS[0].hash(b"key", 0), city_64(b"key"));
    }
}
