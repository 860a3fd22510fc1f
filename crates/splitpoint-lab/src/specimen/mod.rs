//! Hash functions under study: historic ones by their formulas, and today's by their crates.
//!
//! A family is a file. Its functions are public and plain, and its list has the facts about each.
//! To add a function, write it into a family's list, where everything else finds it.
//!
//! # Invariants
//!
//! - A function is total: it never panics, whatever the key.
//! - A function of 32 bits is computed in 32 bits, and gives nothing above its width.
//! - A function whose output is frozen has vectors, in `golden` or in the tests of its family.

use std::fmt;

use crate::Error;
pub use crate::reduction::Reduction;
pub use foreign::{Foreign, KeyIndex, Recorded};
pub(crate) use names::nearest;

pub mod checksum;
pub mod city;
pub mod database;
pub mod fnv;
mod foreign;
pub mod hsearch;
mod identity;
pub mod jenkins;
pub mod jhash;
pub mod library;
pub mod linux;
pub mod linux_2_2;
mod modern;
pub mod murmur;
mod names;
pub mod netbsd;
pub mod server;

#[cfg(test)]
mod tests;

/// A hash function with the facts about it.
///
/// # Examples
///
/// ```
/// let fnv = splitpoint_lab::Specimen::by_name("fnv1a-32")?;
/// assert_eq!(fnv.hash(b"foobar", 0), 0xbf9c_f968);
/// # Ok::<(), splitpoint_lab::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Specimen {
    name: &'static str,
    width_bits: u32,
    seeding: Seeding,
    stability: Stability,
    layout: KeyLayout,
    historic: Option<Reduction>,
    source: &'static str,
    used_in: &'static str,
    avoid: &'static str,
    function: Function,
}

/// Where a function is.
#[derive(Clone, Copy)]
enum Function {
    BuiltIn(fn(key: &[u8], seed: u64) -> u64),
    Foreign(&'static dyn Foreign),
}

/// The effect of a seed on a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seeding {
    /// The function ignores the seed.
    None,
    /// The low 32 bits are the seed.
    Bits32,
    /// All 64 bits are the seed.
    Bits64,
    /// The seed and its rotation by 32 bits are a key of 128 bits.
    Key128,
    /// The seed and zeros are a key of 256 bits.
    Key256,
}

/// How long the output of a function stays the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    /// Forever and on every machine, so a file may name the function.
    Frozen,
    /// Until the crate's next version, or only on this kind of machine; for use in memory only.
    Memory,
}

/// What the bytes of a key mean to a function.
///
/// Fields are little-endian; bytes that a short key lacks count as 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyLayout {
    /// Any bytes.
    Bytes,
    /// One integer of 4 bytes.
    Word32,
    /// One integer of 8 bytes.
    Word64,
    /// Address of an inode and offset in the file, 4 bytes each.
    Page,
    /// Address of an `address_space` and number of the page, 4 bytes each.
    PageIndex,
    /// Device and block, 4 bytes each.
    Buffer,
    /// Address of the parent in 4 bytes, then the name.
    Dentry,
    /// Address of the parent in 8 bytes, then the name.
    Dentry64,
    /// Address of the superblock and inode number, 4 bytes each.
    Inode,
    /// Address of the superblock and inode number, 8 bytes each.
    Inode64,
}

impl KeyLayout {
    /// Returns the bytes of such a key, if all have as many.
    pub const fn width_bytes(self) -> Option<u8> {
        match self {
            Self::Bytes | Self::Dentry | Self::Dentry64 => None,
            Self::Word32 => Some(4),
            Self::Word64 | Self::Page | Self::PageIndex | Self::Buffer | Self::Inode => Some(8),
            Self::Inode64 => Some(16),
        }
    }

    /// Returns the fields in words.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Bytes => "any bytes",
            Self::Word32 => "u32",
            Self::Word64 => "u64",
            Self::Page => "u32 inode address, u32 offset",
            Self::PageIndex => "u32 address_space address, u32 page number",
            Self::Buffer => "u32 device, u32 block",
            Self::Dentry => "u32 parent address, name",
            Self::Dentry64 => "u64 parent address, name",
            Self::Inode => "u32 superblock address, u32 inode number",
            Self::Inode64 => "u64 superblock address, u64 inode number",
        }
    }
}

impl Specimen {
    const fn new(
        name: &'static str,
        width_bits: u32,
        function: fn(&[u8], u64) -> u64,
        source: &'static str,
        avoid: &'static str,
    ) -> Self {
        Self {
            name,
            width_bits,
            seeding: Seeding::None,
            stability: Stability::Frozen,
            layout: KeyLayout::Bytes,
            historic: None,
            source,
            used_in: "",
            avoid,
            function: Function::BuiltIn(function),
        }
    }

    const fn used_in(self, used_in: &'static str) -> Self {
        Self { used_in, ..self }
    }

    const fn seeded(self, seeding: Seeding) -> Self {
        Self { seeding, ..self }
    }

    const fn unstable(self) -> Self {
        Self { stability: Stability::Memory, ..self }
    }

    const fn of(self, layout: KeyLayout) -> Self {
        Self { layout, ..self }
    }

    const fn historic(self, reduction: Reduction) -> Self {
        Self { historic: Some(reduction), ..self }
    }

    /// Returns every function, history first.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        FAMILIES.iter().flat_map(|family| family.iter())
    }

    /// Returns the function that `name` means: its own name or one of its [aliases](Self::aliases),
    /// whatever the case, hyphens and underscores.
    ///
    /// # Errors
    ///
    /// [`Error::AmbiguousHash`] with the functions that people call so, if there are several;
    /// [`Error::UnknownHash`] with the nearest name.
    ///
    /// # Examples
    ///
    /// ```
    /// use splitpoint_lab::Specimen;
    ///
    /// assert_eq!(Specimen::by_name("MurmurHash3")?.name(), "murmur3-32");
    /// assert!(Specimen::by_name("siphash").is_err());
    /// # Ok::<(), splitpoint_lab::Error>(())
    /// ```
    pub fn by_name(name: &str) -> Result<&'static Self, Error> {
        names::find(name)
    }

    /// Returns the other names that mean this function and no other.
    pub fn aliases(&self) -> impl Iterator<Item = &'static str> + use<> {
        let name = self.name;
        names::ALIASES.iter().filter(move |(_, of)| *of == [name]).map(|&(alias, _)| alias)
    }

    /// Returns the name that commands and reports use.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the width of the output in bits. Bits above it are 0.
    pub const fn width_bits(&self) -> u32 {
        self.width_bits
    }

    /// Returns what the seed does.
    pub const fn seeding(&self) -> Seeding {
        self.seeding
    }

    /// Returns how long the output stays the same.
    pub const fn stability(&self) -> Stability {
        self.stability
    }

    /// Returns what the bytes of a key mean.
    pub const fn layout(&self) -> KeyLayout {
        self.layout
    }

    /// Returns the reduction that the function was published with, if it had a particular one.
    pub const fn historic_reduction(&self) -> Option<Reduction> {
        self.historic
    }

    /// Returns its author or definition, and for the functions of one program that program.
    pub const fn source(&self) -> &'static str {
        self.source
    }

    /// Returns the programs that people know it from, or "".
    pub const fn users(&self) -> &'static str {
        self.used_in
    }

    /// Returns when not to use it, as the end of a sentence that begins "do not use it".
    pub const fn avoid(&self) -> &'static str {
        self.avoid
    }

    /// Returns the function itself, for loops that must not look it up, or `None` if it is
    /// [foreign](Foreign).
    pub(crate) const fn function(&self) -> Option<fn(&[u8], u64) -> u64> {
        match self.function {
            Function::BuiltIn(function) => Some(function),
            Function::Foreign(_) => None,
        }
    }

    /// Returns whether it is not part of this program.
    pub const fn is_foreign(&self) -> bool {
        matches!(self.function, Function::Foreign(_))
    }

    /// Returns the hash of `key`; of a [foreign](Foreign) function 0 if it is not known.
    #[inline]
    pub fn hash(&self, key: &[u8], seed: u64) -> u64 {
        match self.function {
            Function::BuiltIn(function) => function(key, seed),
            Function::Foreign(_) => self.hashes([key], seed)[0].unwrap_or(0),
        }
    }

    /// Returns the hashes of some keys, `None` where that of a [foreign](Foreign) function is not
    /// known. Foreign functions cost much less for many keys at once.
    ///
    /// # Panics
    ///
    /// If a foreign function does not give one answer for each key.
    pub fn hashes<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k [u8]>,
        seed: u64,
    ) -> Vec<Option<u64>> {
        match self.function {
            Function::BuiltIn(function) => {
                keys.into_iter().map(|key| Some(function(key, seed))).collect()
            }
            Function::Foreign(foreign) => {
                let keys: Vec<&[u8]> = keys.into_iter().collect();
                let hashes = foreign.hashes(&keys, seed);
                assert_eq!(hashes.len(), keys.len(), "one hash for each key");
                hashes
            }
        }
    }
}

impl fmt::Debug for Specimen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Specimen({})", self.name)
    }
}

const FAMILIES: [&[Specimen]; 15] = [
    database::SPECIMENS,
    hsearch::SPECIMENS,
    fnv::SPECIMENS,
    netbsd::SPECIMENS,
    linux_2_2::SPECIMENS,
    linux::SPECIMENS,
    jenkins::SPECIMENS,
    jhash::SPECIMENS,
    checksum::SPECIMENS,
    library::SPECIMENS,
    server::SPECIMENS,
    murmur::SPECIMENS,
    city::SPECIMENS,
    identity::SPECIMENS,
    modern::SPECIMENS,
];

/// Returns the `at`-th little-endian word of 4 bytes; bytes that the key lacks are 0.
fn word32(key: &[u8], at: usize) -> u32 {
    let rest = key.get(at * 4..).unwrap_or_default();
    match rest.first_chunk::<4>() {
        Some(word) => u32::from_le_bytes(*word),
        None => partial_word64(rest) as u32,
    }
}

/// Returns the `at`-th little-endian word of 8 bytes; bytes that the key lacks are 0.
fn word64(key: &[u8], at: usize) -> u64 {
    let rest = key.get(at * 8..).unwrap_or_default();
    match rest.first_chunk::<8>() {
        Some(word) => u64::from_le_bytes(*word),
        None => partial_word64(rest),
    }
}

/// Returns up to 8 bytes as a little-endian word.
fn partial_word64(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}
