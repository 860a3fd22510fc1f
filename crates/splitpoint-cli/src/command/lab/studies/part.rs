//! Counts of a part of the keys as a file, which `splitpoint.lab.Partial` of Python reads and writes too.
//!
//! ```text
//! for each function:  8 bytes: size of its counts, little-endian; the counts
//! then:               8 bytes: size of the sketch of the keys, little-endian; the sketch
//! ```

use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::Path;

use splitpoint_lab::study::KeyFacts;
use splitpoint_lab::{Error, KeySketch, PartialStats, Report, Setup, Study};

use super::super::saving;
use crate::failure::{Exit, Failure, Result};
use crate::files::read_whole;
use crate::number::{count, float};

/// Bytes of the size in front of each block.
const SIZE_BYTES: usize = size_of::<u64>();

/// Counts of the same keys by several functions, and which keys they were.
pub(super) struct Part {
    counts: Vec<PartialStats>,
    keys: KeySketch,
}

impl Part {
    /// Returns the counts of no keys.
    pub(super) fn new(setups: impl IntoIterator<Item = Setup>) -> Self {
        let counts = setups.into_iter().map(PartialStats::new).collect();
        Self { counts, keys: KeySketch::default() }
    }

    /// Counts a key.
    pub(super) fn add(&mut self, key: &[u8]) {
        for counts in &mut self.counts {
            counts.add(key);
        }
        self.keys.add(key);
    }

    /// Returns the number of keys.
    pub(super) fn key_count(&self) -> u64 {
        self.counts.first().map_or(0, PartialStats::key_count)
    }

    /// Adds the counts of other keys.
    ///
    /// # Errors
    ///
    /// [`Error::Different`] if they are of another measurement.
    pub(super) fn merge(&mut self, other: &Self) -> std::result::Result<(), Error> {
        if self.counts.len() != other.counts.len() {
            return Err(Error::Different { what: "number of functions" });
        }
        self.counts.iter_mut().zip(&other.counts).try_for_each(|(own, other)| own.merge(other))?;
        self.keys.merge(&other.keys);
        Ok(())
    }

    /// Reads a file.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let bytes = read_whole(path)?;
        Self::decode(&bytes).map_err(|reason| {
            let message = format!("`{}` is not a partial result: {reason}", path.display());
            Failure::new(Exit::Usage, message).hint("`splitpoint lab partial` writes them")
        })
    }

    fn decode(mut rest: &[u8]) -> std::result::Result<Self, String> {
        let mut blocks = Vec::new();
        while !rest.is_empty() || blocks.len() < 2 {
            let size = rest.first_chunk::<SIZE_BYTES>().map(|size| u64::from_le_bytes(*size));
            let end = size.and_then(|size| usize::try_from(size).ok()?.checked_add(SIZE_BYTES));
            let block = end.and_then(|end| rest.get(SIZE_BYTES..end));
            let Some(block) = block else { return Err("it ends early".to_owned()) };
            blocks.push(block);
            rest = &rest[SIZE_BYTES + block.len()..];
        }
        let Some((sketch, counts)) = blocks.split_last() else {
            return Err("it is empty".to_owned());
        };
        let decode = |bytes: &&[u8]| PartialStats::decode(bytes, PartialStats::setup_of(bytes)?);
        let counts = counts.iter().map(decode).collect::<std::result::Result<_, Error>>();
        let keys = KeySketch::decode(sketch).map_err(|error| error.to_string())?;
        Ok(Self { counts: counts.map_err(|error| error.to_string())?, keys })
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let blocks = self.counts.iter().map(PartialStats::encode);
        for block in blocks.chain([self.keys.encode()]) {
            bytes.extend_from_slice(&count(block.len()).to_le_bytes());
            bytes.extend_from_slice(&block);
        }
        bytes
    }

    /// Writes it to a file, in place of an older one.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        may_write(path)?;
        saving::replace(path, &self.encode())
    }

    /// Returns the study of the keys, which come from `source`.
    pub(super) fn study(&self, source: String) -> Study {
        let (key_count, first) = (self.key_count(), self.counts.first());
        let mut distinct = self.keys.estimate();
        distinct.key_count = distinct.key_count.min(float(key_count));
        let mut study = saving::study(KeyFacts {
            source,
            key_count,
            key_bytes: first.map_or(0, PartialStats::key_bytes),
            distinct_estimate: Some(distinct),
            ..KeyFacts::default()
        });
        study.reports = self.counts.iter().map(Report::new).collect();
        study
    }
}

/// Refuses to replace anything except a partial result.
pub(super) fn may_write(path: &Path) -> Result<()> {
    let is_part = |mut old: BufReader<File>| {
        let mut bytes = Vec::new();
        old.read_to_end(&mut bytes).is_ok() && Part::decode(&bytes).is_ok()
    };
    saving::may_replace_if(path, "--output", "partial result", is_part)
}

#[cfg(test)]
mod tests {
    use splitpoint_lab::{Reduction, Specimen};

    use super::*;

    fn part(keys: std::ops::Range<u32>) -> Part {
        let setup = |name| {
            let specimen = Specimen::by_name(name).unwrap();
            Setup::new(specimen, 0, Reduction::LowMask, 64).unwrap()
        };
        let mut part = Part::new(["xxh3-64", "fnv1a-32"].map(setup));
        for key in keys {
            part.add(format!("key {key}").as_bytes());
        }
        part
    }

    #[test]
    fn parts_of_any_cut_and_order_have_the_bytes_of_one_pass() {
        let whole = part(0..1000).encode();
        let mut merged = part(700..1000);
        for other in [part(0..300), part(300..300), part(300..700)] {
            merged.merge(&Part::decode(&other.encode()).unwrap()).unwrap();
        }
        assert_eq!(merged.encode(), whole);
        assert_eq!(Part::decode(&whole).unwrap().encode(), whole);
    }

    #[test]
    fn damaged_bytes_are_refused() {
        let whole = part(0..20).encode();
        for end in 0..whole.len() {
            assert!(Part::decode(&whole[..end]).is_err(), "{end}");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x20;
            assert!(Part::decode(&damaged).is_err(), "{at}");
        }
    }
}
