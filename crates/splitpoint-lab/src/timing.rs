//! Measures the time that a hash function takes on the user's keys.
//!
//! ```text
//! keys --> a sample by length --> copied side by side --> the same keys in the same order for all
//!
//! throughput   h(k0)  h(k1)  h(k2) ...          each alone: the processor overlaps them
//! latency      h(k0) -> h(k1) -> h(k2) ...      where the next key is depends on the last hash
//! ```
//!
//! For the latency, the index of the next key depends on the last hash: the loop adds `hash &
//! zero`, and the processor cannot know that `zero` is 0. So every function sees the same keys in
//! the same order, with or without a seed. A function that does nothing measures the cost of loop,
//! call and index, and we subtract that cost.
//!
//! # Invariants
//!
//! - The sample stays in the first-level cache, unless one key alone is larger.
//! - Functions take turns, so that a change of the machine's speed affects all of them.
//! - A run is much shorter than the scheduler's time slice. So on a busy machine few runs are
//!   interrupted, and the median is that of uninterrupted runs.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::Specimen;
use crate::random::Random;
use crate::study::{Spread, Timing};

/// Runs that count; one more comes before them.
pub const RUNS: usize = 15;

/// The longest key of each class of lengths; the last class has no end. At these lengths today's
/// functions switch algorithms.
const CLASS_ENDS: [usize; 9] = [3, 8, 16, 32, 64, 128, 256, 1024, 8192];
/// Most keys of a sample, and most bytes. With 8 bytes for the place of each, less than 32 KiB.
const SAMPLE_KEYS: usize = 2048;
const SAMPLE_BYTES: usize = 16 << 10;
/// Shortest time of one run.
const RUN: Duration = Duration::from_micros(40);
/// Tries to find how many passes take that long. The shortest try was not interrupted.
const TRIES: usize = 3;

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
        let mut bytes = Vec::with_capacity(self.bytes);
        let mut spans = Vec::with_capacity(self.keys.len());
        for key in &self.keys {
            spans.push((bytes.len() as u32, key.len() as u32));
            bytes.extend_from_slice(key);
        }
        Sample {
            bytes,
            spans,
            bytes_min: self.bytes_min as u64,
            bytes_max: self.bytes_max as u64,
            key_count: self.key_count,
            is_mixed,
        }
    }
}

/// Keys that are ready to be hashed.
#[derive(Clone, Debug)]
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

    #[inline]
    fn key(&self, at: usize) -> &[u8] {
        let (start, length) = self.spans[at];
        &self.bytes[start as usize..][..length as usize]
    }
}

type Function = fn(&[u8], u64) -> u64;

/// The function to subtract. It reads the key's length, so it too waits for the next key.
fn nothing(key: &[u8], seed: u64) -> u64 {
    seed ^ key.len() as u64
}

/// Times functions with their seeds on one sample, in turns.
///
/// Returns nothing if `is_stopped` returns true before the last run.
///
/// # Cost
///
/// 32 runs of at least 40 microseconds for each function.
pub fn time(
    functions: &[(&'static Specimen, u64)],
    sample: &Sample,
    is_stopped: impl Fn() -> bool,
) -> Vec<Timing> {
    if sample.is_empty() {
        return Vec::new();
    }
    let mut clocks: Vec<Clock> = std::iter::once((nothing as Function, 0))
        .chain(functions.iter().map(|(specimen, seed)| (specimen.function(), *seed)))
        .map(|(function, seed)| Clock::new(function, seed, sample))
        .collect();
    for _ in 0..=RUNS {
        for clock in &mut clocks {
            if is_stopped() {
                return Vec::new();
            }
            clock.run(sample);
        }
    }
    let Some((overhead, clocks)) = clocks.split_first() else { return Vec::new() };
    let throughput_overhead_ns = Spread::of(&overhead.throughputs).median;
    let latency_overhead_ns = Spread::of(&overhead.latencies).median;
    let timing = |((specimen, _), clock): (&(&Specimen, u64), &Clock)| Timing {
        hash: specimen.name().to_owned(),
        bytes_min: sample.bytes_min,
        bytes_max: sample.bytes_max,
        key_count: sample.key_count,
        is_mixed: sample.is_mixed,
        sample_count: sample.len() as u64,
        throughput_ns: Spread::of(&less(&clock.throughputs, throughput_overhead_ns)),
        latency_ns: Spread::of(&less(&clock.latencies, latency_overhead_ns)),
        throughput_overhead_ns,
        latency_overhead_ns,
    };
    functions.iter().zip(clocks).map(timing).collect()
}

/// Subtracts the overhead. Noise does not make a time negative.
fn less(runs: &[f64], overhead: f64) -> Vec<f64> {
    runs.iter().map(|run| (run - overhead).max(0.0)).collect()
}

/// The runs of one function.
struct Clock {
    function: Function,
    seed: u64,
    pass_count: u32,
    throughputs: Vec<f64>,
    latencies: Vec<f64>,
}

impl Clock {
    /// Finds out how many passes over the sample a run needs.
    fn new(function: Function, seed: u64, sample: &Sample) -> Self {
        let mut pass_count = 1;
        let is_short = |pass_count| {
            let tries =
                (0..TRIES).map(|_| timed(|| independent(function, seed, sample, pass_count)));
            tries.min().is_some_and(|time| time < RUN)
        };
        while pass_count < 1 << 16 && is_short(pass_count) {
            pass_count *= 2;
        }
        Self { function, seed, pass_count, throughputs: Vec::new(), latencies: Vec::new() }
    }

    fn run(&mut self, sample: &Sample) {
        let Self { function, seed, pass_count, .. } = *self;
        // The other functions have used the caches meanwhile.
        independent(function, seed, sample, 1);
        let per_key = |time: Duration| {
            time.as_secs_f64() * 1e9 / (sample.len() as f64 * f64::from(pass_count))
        };
        let time = timed(|| independent(function, seed, sample, pass_count));
        self.throughputs.push(per_key(time));
        let time = timed(|| dependent(function, seed, sample, pass_count));
        self.latencies.push(per_key(time));
    }
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// Hashes every key, independently of the others.
#[inline(never)]
fn independent(function: Function, seed: u64, sample: &Sample, pass_count: u32) {
    // Opaque to the compiler, so that it cannot inline the call.
    let function = black_box(function);
    for _ in 0..pass_count {
        let all = (0..sample.len()).fold(0, |all, at| all ^ function(sample.key(at), seed));
        black_box(all);
    }
}

/// Hashes every key, each after the one before.
#[inline(never)]
fn dependent(function: Function, seed: u64, sample: &Sample, pass_count: u32) {
    let (function, zero) = (black_box(function), black_box(0_usize));
    let mut last = 0;
    for _ in 0..pass_count {
        for at in 0..sample.len() {
            last = function(sample.key(at + (last as usize & zero)), seed);
        }
    }
    black_box(last);
}

impl Spread {
    /// Returns the spread of `runs`. The first run counts only as [`Spread::first`].
    ///
    /// The median of an even number is the mean of the two in the middle. The deviation is that of
    /// a sample, the root of `sum of (x - mean)^2 / (n - 1)`.
    ///
    /// # Panics
    ///
    /// If there are fewer than two runs.
    pub fn of(runs: &[f64]) -> Self {
        let (&first, others) = runs.split_first().expect("a first run");
        assert!(!others.is_empty(), "a run after the first");
        let mut sorted = others.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let mean = sorted.iter().sum::<f64>() / n as f64;
        let squares: f64 = sorted.iter().map(|run| (run - mean).powi(2)).sum();
        Self {
            run_count: n as u64,
            first,
            min: sorted[0],
            mean,
            median: f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]),
            max: sorted[n - 1],
            deviation: if n > 1 { (squares / (n as f64 - 1.0)).sqrt() } else { 0.0 },
            runs: others.to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_leaves_the_first_run_out() {
        let spread = Spread::of(&[90.0, 2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!((spread.run_count, spread.first), (8, 90.0));
        assert_eq!((spread.min, spread.median, spread.max), (2.0, 4.5, 9.0));
        assert!((spread.mean - 5.0).abs() < 1e-12);
        assert!((spread.deviation - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        let odd = Spread::of(&[0.0, 3.0, 1.0, 2.0]);
        assert_eq!((odd.median, odd.deviation), (2.0, 1.0));
        assert!(Spread::of(&[1.0, 6.0]).deviation.abs() < 1e-12);
    }

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

    #[test]
    fn functions_are_timed_for_every_run_and_a_stop_leaves_none() {
        let functions = ["fnv1a-32", "xxh3-64"].map(|name| (Specimen::by_name(name).unwrap(), 7));
        let mut sampler = Sampler::new();
        (0..100_u32).for_each(|n| sampler.add(format!("key{n}").as_bytes()));
        let samples = sampler.finish();
        let timings = time(&functions, &samples[0], || false);
        for (timing, (specimen, _)) in timings.iter().zip(functions) {
            assert_eq!(timing.hash, specimen.name());
            for spread in [&timing.throughput_ns, &timing.latency_ns] {
                assert_eq!(spread.run_count, RUNS as u64);
                assert!(spread.min <= spread.median && spread.median <= spread.max);
                assert!(spread.min >= 0.0 && spread.max.is_finite());
            }
            assert_eq!((timing.sample_count, timing.is_mixed), (100, true));
        }
        assert_eq!(timings.len(), 2);
        assert!(time(&functions, &samples[0], || true).is_empty());
    }

    /// The loops hash what they say they hash: a function that counts sees every key once a pass.
    #[test]
    fn both_loops_visit_every_key_once_a_pass() {
        use std::sync::atomic::{AtomicU64, Ordering};
        static SUM: AtomicU64 = AtomicU64::new(0);
        fn summing(key: &[u8], seed: u64) -> u64 {
            SUM.fetch_add(key.iter().map(|&byte| u64::from(byte)).sum(), Ordering::Relaxed);
            // All bits set: an index that used them would leave the sample.
            u64::MAX ^ seed
        }
        let mut sampler = Sampler::new();
        (1..=100_u8).for_each(|byte| sampler.add(&[byte]));
        let sample = &sampler.finish()[0];
        for hash in [independent, dependent] {
            SUM.store(0, Ordering::Relaxed);
            hash(summing, 0, sample, 3);
            assert_eq!(SUM.load(Ordering::Relaxed), 3 * 5050);
        }
    }
}
