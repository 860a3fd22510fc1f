//! Functions that are not part of this program: the user's own.

use std::collections::HashMap;
use std::fmt;

use xxhash_rust::xxh3::xxh3_128;

use super::{Function, KeyLayout, Seeding, Specimen, Stability};
use crate::timing::{RemoteClock, Sample};

/// A function whose hashes come from elsewhere: a file, another program, a library.
///
/// It never panics and never fails. Who made it learns from it what went wrong, and drops the
/// results.
pub trait Foreign: fmt::Debug + Send + Sync {
    /// Returns the hash of each key, `None` where it is not known.
    fn hashes(&self, keys: &[&[u8]], seed: u64) -> Vec<Option<u64>>;

    /// Prepares to time the function where it is, on the keys of the sample in their order. `None`
    /// if that cannot be.
    fn clock(&self, _sample: &Sample, _seed: u64) -> Option<Box<dyn RemoteClock + '_>> {
        None
    }
}

impl Specimen {
    /// Makes a function that is linked with this process.
    #[cfg(test)]
    pub(crate) fn linked(name: &str, function: fn(key: &[u8], seed: u64) -> u64) -> &'static Self {
        Self::leaked(name, u64::BITS, Seeding::Bits64, Function::BuiltIn(function))
    }

    /// Returns the clock of a function that is not part of this process.
    pub(crate) fn clock_elsewhere(
        &self,
        sample: &Sample,
        seed: u64,
    ) -> Option<Box<dyn RemoteClock>> {
        match self.function {
            Function::BuiltIn(_) => None,
            Function::Foreign(foreign) => foreign.clock(sample, seed),
        }
    }

    /// Makes a function of the user's known by a name, which no other function may have.
    ///
    /// Memory for the function is never given back: functions live as long as the process.
    ///
    /// # Examples
    ///
    /// ```
    /// use splitpoint_lab::Specimen;
    /// use splitpoint_lab::specimen::{Foreign, Seeding};
    ///
    /// #[derive(Debug)]
    /// struct Length;
    ///
    /// impl Foreign for Length {
    ///     fn hashes(&self, keys: &[&[u8]], _: u64) -> Vec<Option<u64>> {
    ///         keys.iter().map(|key| Some(key.len() as u64)).collect()
    ///     }
    /// }
    ///
    /// let length = Specimen::foreign("length", 32, Seeding::None, Length);
    /// assert_eq!(length.hash(b"four", 0), 4);
    /// ```
    ///
    /// # Panics
    ///
    /// If the width is not 1 to 64.
    pub fn foreign(
        name: &str,
        width_bits: u32,
        seeding: Seeding,
        function: impl Foreign + 'static,
    ) -> &'static Self {
        let function = Function::Foreign(Box::leak(Box::new(function)));
        Self::leaked(name, width_bits, seeding, function)
    }

    fn leaked(name: &str, width_bits: u32, seeding: Seeding, function: Function) -> &'static Self {
        assert!((1..=64).contains(&width_bits), "a hash has 1 to 64 bits");
        Box::leak(Box::new(Self {
            name: Box::leak(name.to_owned().into_boxed_str()),
            width_bits,
            seeding,
            stability: Stability::Frozen,
            layout: KeyLayout::Bytes,
            historic: None,
            source: "your own function",
            used_in: "",
            avoid: "",
            function,
        }))
    }
}

/// The places of keys in a list, found by their bytes.
///
/// A key is known by 128 bits of its XXH3. Two of `n` keys are taken for one with a probability
/// below `n * n / 2^129`: 1e-20 for a billion keys.
///
/// # Examples
///
/// ```
/// let mut index = splitpoint_lab::specimen::KeyIndex::default();
/// for key in ["a", "b", "a"] {
///     index.add(key.as_bytes());
/// }
/// assert_eq!((index.position(b"b"), index.position(b"c")), (Some(1), None));
/// assert_eq!(index.repeated(), [(0, 2)]);
/// ```
#[derive(Debug, Default)]
pub struct KeyIndex {
    positions: HashMap<[u64; 2], usize>,
    /// The first place and a later one of the same key.
    repeated: Vec<(usize, usize)>,
    key_count: usize,
}

impl KeyIndex {
    /// Adds the next key of the list.
    ///
    /// # Cost
    ///
    /// About 50 bytes of memory.
    pub fn add(&mut self, key: &[u8]) {
        let position = self.key_count;
        self.key_count += 1;
        let first = *self.positions.entry(fingerprint(key)).or_insert(position);
        if first != position {
            self.repeated.push((first, position));
        }
    }

    /// Returns the first place of a key.
    pub fn position(&self, key: &[u8]) -> Option<usize> {
        self.positions.get(&fingerprint(key)).copied()
    }

    /// Returns the number of keys, with repetitions.
    pub fn key_count(&self) -> usize {
        self.key_count
    }

    /// Returns the first place of each key that came again, and the later place.
    pub fn repeated(&self) -> &[(usize, usize)] {
        &self.repeated
    }
}

fn fingerprint(key: &[u8]) -> [u64; 2] {
    let print = xxh3_128(key);
    [print as u64, (print >> 64) as u64]
}

/// A function that is known by the hashes of some keys alone.
#[derive(Debug)]
pub struct Recorded<I> {
    index: I,
    hashes: Vec<u64>,
}

impl<I: AsRef<KeyIndex>> Recorded<I> {
    /// Takes the hashes of the keys of `index`, in their order.
    ///
    /// # Panics
    ///
    /// If there is not one hash for each key.
    pub fn new(index: I, hashes: Vec<u64>) -> Self {
        assert_eq!(index.as_ref().key_count(), hashes.len(), "one hash for each key");
        Self { index, hashes }
    }

    /// Returns the hash of a key.
    pub fn hash(&self, key: &[u8]) -> Option<u64> {
        self.index.as_ref().position(key).map(|position| self.hashes[position])
    }
}

impl<I: AsRef<KeyIndex> + fmt::Debug + Send + Sync> Foreign for Recorded<I> {
    fn hashes(&self, keys: &[&[u8]], _seed: u64) -> Vec<Option<u64>> {
        keys.iter().map(|key| self.hash(key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::drive::{Limits, measure};
    use crate::keys::{Bytes, Column, DuplicatePolicy, KeyFormat, Keys};
    use crate::{Reduction, Report, Setup};

    /// `lines` and the hashes of a built-in function on them.
    fn recorded(lines: &str, name: &str) -> &'static Specimen {
        let built_in = Specimen::by_name("sdbm").unwrap();
        let mut index = KeyIndex::default();
        lines.lines().for_each(|line| index.add(line.as_bytes()));
        let hashes = lines.lines().map(|line| built_in.hash(line.as_bytes(), 0)).collect();
        Specimen::foreign(name, 32, Seeding::None, Recorded::new(Arc::new(index), hashes))
    }

    #[test]
    fn recorded_hashes_are_measured_as_the_function_that_gave_them() {
        let lines: Vec<String> = (0..3000).map(|n| format!("key{}\n", n % 2900)).collect();
        let lines = lines.concat();
        let own = recorded(&lines, "recorded sdbm");
        assert!(own.is_foreign() && own.function().is_none());
        let column = Column { name: "1".to_owned(), has_header: false };
        let format = KeyFormat::by_name("lines", column).unwrap();
        let source: &'static [u8] = lines.into_bytes().leak();
        let source = Box::new(Bytes { bytes: source, format });
        let keys = Keys::read(source, DuplicatePolicy::Remove, 1 << 20, &mut ()).unwrap();
        let built_in = Specimen::by_name("sdbm").unwrap();
        let setups: Vec<Setup> = [(own, 512), (built_in, 512), (own, 4096), (built_in, 4096)]
            .map(|(it, buckets)| Setup::new(it, 0, Reduction::LowMask, buckets).unwrap())
            .into();
        let limits = Limits { memory_bytes: 1 << 24, thread_count: 2 };
        let found = measure(&keys, &setups, limits, &mut (), Report::new).unwrap().results;
        for pair in found.chunks(2) {
            let expected = Report { hash: pair[0].hash.clone(), ..pair[1].clone() };
            assert_eq!(pair[0], expected);
        }
        assert_eq!(found[0].key_count, 2900);
    }

    #[test]
    fn keys_that_were_not_recorded_have_no_hash() {
        let own = recorded("a\nb\n", "recorded a and b");
        assert_eq!(own.hashes([&b"b"[..], b"c"], 0), [Some(98), None]);
    }
}
