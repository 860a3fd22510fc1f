//! Stable hash functions: those that the file of a store can name.
//!
//! A function with a [`HashId`] never changes its output, and its id is never reused. Each store
//! records the id, the name, the seed and the hash of [`PROBE_KEY`]. An open checks all of them, as
//! db 1.85 does with its `h_charkey`.
//!
//! [`dbm`](fn@dbm), [`sdbm`](fn@sdbm) and [`gdbm`](fn@gdbm) have no id, because no store uses them.
//! They serve to read the old files of these names, and are here so that each function of a file
//! format is defined once.
//!
//! # Which one to take
//!
//! [`HashFunction::rapidhash_v3`], the default, unless strangers choose the keys; then
//! [`HashFunction::siphash_1_3`]. `docs/hashing.md` compares them, and `splitpoint lab hash`
//! measures them on your keys.

mod dbm;
mod fnv1a;
mod gdbm;
mod sdbm;
mod x33;

pub use dbm::dbm;
pub use fnv1a::fnv1a_64;
pub use gdbm::gdbm;
pub use sdbm::sdbm;
pub use x33::x33;

use std::fmt;
use std::sync::Arc;

/// The key whose hash every store records, so that an open detects a wrong hash function.
///
/// It is the probe of db 1.85, with its final NUL.
pub const PROBE_KEY: &[u8] = b"%$sniglet^&\0";

/// How a C program converts a `char` above 127 to an `int`.
///
/// `char` is signed on x86, and unsigned on Arm, POWER and s390x. A hash function written with
/// `char` differs between them for keys with such bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CharSign {
    /// From -128 to 127.
    Signed,
    /// From 0 to 255.
    Unsigned,
}

impl CharSign {
    /// Returns `byte` as an `int` of 32 bits.
    fn widen(self, byte: u8) -> u32 {
        match self {
            Self::Signed => i32::from(byte.cast_signed()).cast_unsigned(),
            Self::Unsigned => u32::from(byte),
        }
    }
}

/// The number that identifies a hash function in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HashId(pub u32);

impl HashId {
    /// rapidhash version 3, 64 bits, seeded: the default.
    pub const RAPIDHASH_V3: Self = Self(1);
    /// XXH3, 64 bits, seeded.
    pub const XXH3_64: Self = Self(2);
    /// SipHash-1-3, 64 bits, keyed by the seed and the seed rotated by 32 bits: for keys that an
    /// attacker may choose.
    pub const SIPHASH_1_3: Self = Self(3);
    /// The default of db 1.85, 32 bits, without a seed.
    pub const X33: Self = Self(4);
    /// FNV-1a, 64 bits, without a seed.
    pub const FNV1A_64: Self = Self(5);
    /// The lowest id of the functions that users register: [`HashFunction::user`].
    pub const USER_MIN: Self = Self(0x8000_0000);
}

/// A hash function of keys, with the id and the name that a store records.
#[derive(Clone)]
pub struct HashFunction {
    id: HashId,
    name: Arc<str>,
    function: fn(key: &[u8], seed: u64) -> u64,
}

impl HashFunction {
    /// Returns the hash functions of the library, the default first.
    pub fn all() -> Vec<Self> {
        vec![
            Self::rapidhash_v3(),
            Self::xxh3_64(),
            Self::siphash_1_3(),
            Self::x33(),
            Self::fnv1a_64(),
        ]
    }

    /// Returns rapidhash v3, the default.
    ///
    /// It passes every test of `SMHasher3`.
    ///
    /// Do not use it for keys that an attacker may choose, whether or not the seed is secret: all
    /// keys of 16 bytes that begin with `c9 ac 2e 96 93 4b b8 8b` have the same hash under every
    /// seed, because these bytes make a factor of its multiplication zero. Use
    /// [`Self::siphash_1_3`] for those.
    ///
    /// # Source
    ///
    /// Nicolas De Carli, rapidhash, successor of wyhash.
    pub fn rapidhash_v3() -> Self {
        Self::known(HashId::RAPIDHASH_V3, "rapidhash-v3", rapidhash_v3)
    }

    /// Returns XXH3, 64 bits.
    ///
    /// It is the fastest on long keys, and fails some tests of `SMHasher3`.
    ///
    /// # Source
    ///
    /// Yann Collet, xxHash 0.8.
    pub fn xxh3_64() -> Self {
        Self::known(HashId::XXH3_64, "xxh3-64", xxhash_rust::xxh3::xxh3_64_with_seed)
    }

    /// Returns SipHash-1-3, keyed by the seed: a pseudo-random function, for hostile keys.
    ///
    /// It is three to four times slower than the default on short keys.
    ///
    /// # Source
    ///
    /// Aumasson and Bernstein, "SipHash: a fast short-input PRF", INDOCRYPT 2012.
    pub fn siphash_1_3() -> Self {
        Self::known(HashId::SIPHASH_1_3, "siphash-1-3", siphash_1_3)
    }

    /// Returns the default hash function of db 1.85: see [`x33()`](fn@x33).
    pub fn x33() -> Self {
        Self::known(HashId::X33, "x33", |key, _| u64::from(x33(key)))
    }

    /// Returns FNV-1a, 64 bits: see [`fnv1a_64()`](fn@fnv1a_64).
    pub fn fnv1a_64() -> Self {
        Self::known(HashId::FNV1A_64, "fnv1a-64", |key, _| fnv1a_64(key))
    }

    /// Creates a hash function of your own, with an `id` of at least [`HashId::USER_MIN`].
    ///
    /// It must return the same result for the same key and seed in every process that opens the
    /// store, and should spread all of its low 32 bits. Every open passes the same id, name and
    /// function to [`Options::hash`](crate::Options::hash).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the id is reserved, or the name is
    /// empty or longer than [`NAME_BYTES_MAX`].
    ///
    /// # Examples
    ///
    /// ```
    /// use splitpoint::{Options, hash::{HashFunction, HashId}};
    ///
    /// # fn main() -> splitpoint::Result<()> {
    /// fn by_length(key: &[u8], seed: u64) -> u64 {
    ///     (key.len() as u64 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
    /// }
    /// let hash = HashFunction::user(HashId(0x8000_0001), "by-length", by_length)?;
    /// let db = Options::new().hash(hash).in_memory()?;
    /// db.put(b"key", b"value")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn user(id: HashId, name: &str, function: fn(&[u8], u64) -> u64) -> crate::Result<Self> {
        if id < HashId::USER_MIN {
            return Err(crate::Error::Invalid {
                what: "hash id",
                reason: format!(
                    "expected an id of at least {:#x}, found {:#x}",
                    HashId::USER_MIN.0,
                    id.0
                ),
            });
        }
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(crate::Error::Invalid {
                what: "hash name",
                reason: format!("expected 1 to {NAME_BYTES_MAX} bytes, found {}", name.len()),
            });
        }
        Ok(Self { id, name: name.into(), function })
    }

    /// Returns the hash function of the library that is called `name`.
    ///
    /// # Examples
    ///
    /// ```
    /// use splitpoint::hash::HashFunction;
    ///
    /// let hash = HashFunction::by_name("siphash-1-3").expect("the library has it");
    /// assert_ne!(hash.hash(b"key", 1), hash.hash(b"key", 2)); // Two seeds.
    /// assert!(HashFunction::by_name("siphash").is_none());
    /// ```
    pub fn by_name(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|known| &*known.name == name)
    }

    /// Returns the names of all hash functions of the library, as messages list them.
    ///
    /// # Examples
    ///
    /// ```
    /// let names = splitpoint::hash::HashFunction::names();
    /// assert!(names.starts_with("rapidhash-v3, xxh3-64, "), "{names}");
    /// ```
    pub fn names() -> String {
        let all = Self::all();
        let names: Vec<&str> = all.iter().map(Self::name).collect();
        names.join(", ")
    }

    /// Returns the hash function of the library with this id.
    pub fn by_id(id: HashId) -> Option<Self> {
        Self::all().into_iter().find(|known| known.id == id)
    }

    /// Returns the id that a store records.
    pub fn id(&self) -> HashId {
        self.id
    }

    /// Returns the name that a store records and messages show.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the hash of `key` under `seed`.
    #[inline]
    pub fn hash(&self, key: &[u8], seed: u64) -> u64 {
        // Call the default directly, so that the compiler inlines it into the lookup.
        if self.id == HashId::RAPIDHASH_V3 {
            return rapidhash_v3(key, seed);
        }
        (self.function)(key, seed)
    }

    fn known(id: HashId, name: &str, function: fn(&[u8], u64) -> u64) -> Self {
        Self { id, name: name.into(), function }
    }
}

impl fmt::Debug for HashFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HashFunction({} {:?})", self.id.0, self.name)
    }
}

/// Largest length of a hash function's name, in bytes.
pub const NAME_BYTES_MAX: usize = 31;

#[inline]
fn rapidhash_v3(key: &[u8], seed: u64) -> u64 {
    let secrets = rapidhash::v3::RapidSecrets::seed_cpp(seed);
    rapidhash::v3::rapidhash_v3_seeded(key, &secrets)
}

fn siphash_1_3(key: &[u8], seed: u64) -> u64 {
    siphasher::sip::SipHasher13::new_with_keys(seed, seed.rotate_left(32)).hash(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published vectors with seed or key 0, for the keys "", "a", "abc" and "foobar".
    #[test]
    fn every_function_matches_its_published_vectors() {
        let keys = ["", "a", "abc", "foobar"];
        for (function, hashes) in [
            (
                HashFunction::rapidhash_v3(),
                [
                    0x0338_dc4b_e2ce_cdae,
                    0x599f_47df_33a2_e1eb,
                    0xcb47_5bea_fa9c_0da2,
                    0xd76f_53d9_bff5_e23c,
                ],
            ),
            (
                HashFunction::xxh3_64(),
                [
                    0x2d06_8005_38d3_94c2,
                    0xe6c6_32b6_1e96_4e1f,
                    0x78af_5f94_892f_3950,
                    0xd78f_da63_144c_5c84,
                ],
            ),
            (
                HashFunction::siphash_1_3(),
                [
                    0xd1fb_a762_150c_532c,
                    0x4074_48d2_b89b_1813,
                    0xc03b_c3a0_0426_30f2,
                    0x7738_ae0a_5df0_9b34,
                ],
            ),
            (HashFunction::x33(), [0, 0x61, 0x0001_a9a6, 0xf605_5bf9]),
            (
                HashFunction::fnv1a_64(),
                [
                    0xcbf2_9ce4_8422_2325,
                    0xaf63_dc4c_8601_ec8c,
                    0xe71f_a219_0541_574b,
                    0x8594_4171_f739_67e8,
                ],
            ),
        ] {
            for (key, hash) in keys.iter().zip(hashes) {
                assert_eq!(function.hash(key.as_bytes(), 0), hash, "{function:?} of {key:?}");
            }
        }
    }

    #[test]
    fn ids_and_names_are_distinct_and_found_again() {
        for function in HashFunction::all() {
            assert_eq!(HashFunction::by_id(function.id()).unwrap().name(), function.name());
            assert_eq!(HashFunction::by_name(function.name()).unwrap().id(), function.id());
        }
    }

    /// What the documentation says of the default, and why a new seed is no remedy for such keys.
    #[test]
    fn only_a_keyed_function_keeps_chosen_keys_apart() {
        let keys: Vec<Vec<u8>> = (0..100_u64)
            .map(|i| [&0x8bb8_4b93_962e_acc9_u64.to_le_bytes()[..], &i.to_le_bytes()].concat())
            .collect();
        let hash_count = |function: &HashFunction, seed: u64| {
            let hashes = keys.iter().map(|key| function.hash(key, seed));
            hashes.collect::<std::collections::HashSet<u64>>().len()
        };
        for seed in (0..200).map(|i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
            assert_eq!(hash_count(&HashFunction::rapidhash_v3(), seed), 1, "seed {seed}");
            assert_eq!(hash_count(&HashFunction::siphash_1_3(), seed), 100, "seed {seed}");
        }
    }

    #[test]
    fn seeded_functions_depend_on_the_seed() {
        for name in ["rapidhash-v3", "xxh3-64", "siphash-1-3"] {
            let function = HashFunction::by_name(name).unwrap();
            assert_ne!(function.hash(b"key", 1), function.hash(b"key", 2), "{name}");
        }
    }

    #[test]
    fn a_user_function_may_not_take_a_reserved_id_or_name() {
        assert!(HashFunction::user(HashId(6), "mine", |_, _| 0).is_err());
        assert!(HashFunction::user(HashId::USER_MIN, "", |_, _| 0).is_err());
        assert!(HashFunction::user(HashId::USER_MIN, &"n".repeat(32), |_, _| 0).is_err());
        assert!(HashFunction::user(HashId::USER_MIN, "mine", |_, _| 0).is_ok());
    }
}
