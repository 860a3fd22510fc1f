//! Samples of keys to time functions on, as large as fits the cache.

use crate::Specimen;
use crate::random::Random;
use crate::study::Timing;

/// The longest key of each class of lengths; the last class has no end. At these lengths today's
/// functions switch algorithms.
const CLASS_ENDS: [usize; 9] = [3, 8, 16, 32, 64, 128, 256, 1024, 8192];
/// Most keys of a sample, and most bytes. With 8 bytes for the place of each, less than 32 KiB.
const SAMPLE_KEYS: usize = 2048;
const SAMPLE_BYTES: usize = 16 << 10;
/// Draws samples of keys, one for each class of lengths and one of all.
///
/// # Examples
///
/// ```
/// use splitpoint_lab::{Specimen, timing};
///
/// let mut sampler = timing::Sampler::new();
/// for key in ["pear", "apple", "a much longer name of a fruit"] {
///     sampler.add(key.as_bytes());
/// }
/// let samples = sampler.finish();
/// let timings = timing::time(&[(Specimen::by_name("fnv1a-32")?, 0)], &samples[0], || false);
/// assert_eq!(timings[0].key_count, 3);
/// # Ok::<(), splitpoint_lab::Error>(())
/// ```
#[derive(Debug)]
pub struct Sampler {
    mixed: Reservoir,
    classes: Vec<Reservoir>,
}

impl Default for Sampler {
    fn default() -> Self {
        Self::new()
    }
}

impl Sampler {
    /// Starts without keys.
    pub fn new() -> Self {
        let classes = (1..=CLASS_ENDS.len() as u64 + 1).map(Reservoir::new).collect();
        Self { mixed: Reservoir::new(0), classes }
    }

    /// Offers one key.
    ///
    /// # Cost
    ///
    /// A few steps, and a copy of the key if the sample takes it. 400 KiB of memory in all, or one
    /// key of each class.
    pub fn add(&mut self, key: &[u8]) {
        self.mixed.add(key);
        self.classes[class_of(key.len())].add(key);
    }

    /// Returns the samples: all lengths mixed, then by length the classes that have keys. If one
    /// class has all keys, it would only repeat the first. Without keys there are no samples.
    pub fn finish(self) -> Vec<Sample> {
        if self.mixed.key_count == 0 {
            return Vec::new();
        }
        let all = self.mixed.key_count;
        let classes: Vec<Sample> = self
            .classes
            .into_iter()
            .filter(|class| class.key_count > 0 && class.key_count < all)
            .map(|class| class.finish(false))
            .collect();
        let mixed = self.mixed.finish(true);
        std::iter::once(mixed).chain(classes).collect()
    }
}

fn class_of(bytes: usize) -> usize {
    CLASS_ENDS.partition_point(|&end| end < bytes)
}

/// A random sample of a stream of keys, as large as fits the cache.
///
/// Source: Waterman's algorithm R, in Knuth 2, 3.4.2; a random part of a sample is one as well.
#[derive(Debug)]
struct Reservoir {
    random: Random,
    keys: Vec<Box<[u8]>>,
    bytes: usize,
    capacity: usize,
    key_count: u64,
    bytes_min: usize,
    bytes_max: usize,
}

impl Reservoir {
    fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            keys: Vec::new(),
            bytes: 0,
            capacity: SAMPLE_KEYS,
            key_count: 0,
            bytes_min: usize::MAX,
            bytes_max: 0,
        }
    }

    fn add(&mut self, key: &[u8]) {
        self.key_count += 1;
        self.bytes_min = self.bytes_min.min(key.len());
        self.bytes_max = self.bytes_max.max(key.len());
        if self.keys.len() < self.capacity {
            self.bytes += key.len();
            self.keys.push(key.into());
        } else {
            let at = self.random.below(self.key_count) as usize;
            let Some(place) = self.keys.get_mut(at) else { return };
            self.bytes = self.bytes - place.len() + key.len();
            *place = key.into();
        }
        while self.bytes > SAMPLE_BYTES && self.keys.len() > 1 {
            let at = self.random.below(self.keys.len() as u64) as usize;
            self.bytes -= self.keys.swap_remove(at).len();
            self.capacity = self.keys.len();
        }
    }

    fn finish(mut self, is_mixed: bool) -> Sample {
        // Keys are in the reservoir in the order in which they came, so sorted keys would stay
        // sorted.
        for at in (1..self.keys.len()).rev() {
            self.keys.swap(at, self.random.below(at as u64 + 1) as usize);
        }
        let facts = Sample {
            bytes_min: self.bytes_min as u64,
            bytes_max: self.bytes_max as u64,
            key_count: self.key_count,
            is_mixed,
            ..Sample::default()
        };
        facts.with_keys(self.keys.iter().map(|key| &**key))
    }
}

/// Keys that are ready to be hashed.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    bytes: Vec<u8>,
    /// Start and length of each key.
    spans: Vec<(u32, u32)>,
    bytes_min: u64,
    bytes_max: u64,
    key_count: u64,
    is_mixed: bool,
}

impl Sample {
    /// Takes keys as they come: a sample that another process has drawn.
    pub fn of<'k>(keys: impl IntoIterator<Item = &'k [u8]>) -> Self {
        let mut sample = Self::default().with_keys(keys);
        let lengths = || sample.spans.iter().map(|&(_, length)| u64::from(length));
        let (bytes_min, bytes_max) = (lengths().min(), lengths().max());
        sample.bytes_min = bytes_min.unwrap_or(0);
        sample.bytes_max = bytes_max.unwrap_or(0);
        sample.key_count = sample.len() as u64;
        sample
    }

    fn with_keys<'k>(mut self, keys: impl IntoIterator<Item = &'k [u8]>) -> Self {
        for key in keys {
            self.spans.push((self.bytes.len() as u32, key.len() as u32));
            self.bytes.extend_from_slice(key);
        }
        self
    }

    /// Returns the number of keys in it.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns whether it is of all lengths.
    pub fn is_mixed(&self) -> bool {
        self.is_mixed
    }

    /// Returns its keys, in the order in which they are hashed.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|at| self.key(at))
    }

    /// Returns the timing of a function without its times, of which `of` knows.
    pub(super) fn timing(&self, specimen: &Specimen, of: Timing) -> Timing {
        Timing {
            hash: specimen.name().to_owned(),
            bytes_min: self.bytes_min,
            bytes_max: self.bytes_max,
            key_count: self.key_count,
            is_mixed: self.is_mixed,
            sample_count: self.len() as u64,
            ..of
        }
    }

    #[inline]
    pub(super) fn key(&self, at: usize) -> &[u8] {
        let (start, length) = self.spans[at];
        &self.bytes[start as usize..][..length as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_has_its_class_and_classes_follow_each_other() {
        let expected = [(0, 0), (3, 0), (4, 1), (8, 1), (9, 2), (8192, 8), (8193, 9), (1 << 20, 9)];
        for (bytes, class) in expected {
            assert_eq!(class_of(bytes), class, "{bytes}");
        }
        assert!(CLASS_ENDS.is_sorted());
        let mut sampler = Sampler::new();
        for bytes in [0, 5, 5, 7, 300, 1 << 20] {
            sampler.add(&vec![7; bytes]);
        }
        let samples = sampler.finish();
        let classes: Vec<_> = samples
            .iter()
            .map(|sample| (sample.is_mixed, sample.bytes_min, sample.bytes_max, sample.key_count))
            .collect();
        assert_eq!(
            classes,
            [
                (true, 0, 1 << 20, 6),
                (false, 0, 0, 1),
                (false, 5, 7, 3),
                (false, 300, 300, 1),
                (false, 1 << 20, 1 << 20, 1)
            ]
        );
        assert!(Sampler::new().finish().is_empty());
        let mut one_class = Sampler::new();
        (0..9_u64).for_each(|n| one_class.add(&n.to_le_bytes()));
        assert_eq!(one_class.finish().len(), 1, "the class would be measured twice");
    }

    /// A sample of 100,000 numbers fits, holds numbers that were given, and has their mean.
    #[test]
    fn a_sample_fits_the_cache_and_prefers_no_key() {
        let mut sampler = Sampler::new();
        for n in 0..100_000_u64 {
            sampler.add(&n.to_le_bytes());
        }
        let sample = &sampler.finish()[0];
        assert!(sample.bytes.len() <= SAMPLE_BYTES && sample.len() == SAMPLE_KEYS);
        let numbers = (0..sample.len())
            .map(|at| u64::from_le_bytes(*sample.key(at).first_chunk().expect("8 bytes")));
        let mean = numbers.sum::<u64>() as f64 / sample.len() as f64;
        // The deviation of the mean is 638.
        assert!((mean - 49_999.5).abs() < 3200.0, "{mean}");
    }
}
