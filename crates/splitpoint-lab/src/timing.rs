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
//! call and index, and we subtract that cost. A function of another process is timed there, on the
//! same keys in the same order, less what a function that does nothing costs there.
//!
//! # Invariants
//!
//! - The sample stays in the first-level cache, unless one key alone is larger.
//! - Functions take turns, so that a change of the machine's speed affects all of them.
//! - A run is much shorter than the scheduler's time slice. So on a busy machine few runs are
//!   interrupted, and the median is that of uninterrupted runs.

mod sample;

use std::hint::black_box;
use std::time::{Duration, Instant};

pub use self::sample::{Sample, Sampler};
use crate::Specimen;
use crate::study::{Spread, Timing};

/// Runs that count; one more comes before them.
pub const RUNS: usize = 15;

/// Shortest time of one run.
const RUN: Duration = Duration::from_micros(40);
/// Tries to find how many passes take that long. The shortest try was not interrupted.
const TRIES: usize = 3;

type Function = fn(&[u8], u64) -> u64;

/// The function to subtract. It reads the key's length, so it too waits for the next key.
fn nothing(key: &[u8], seed: u64) -> u64 {
    seed ^ key.len() as u64
}

/// The time that a key takes in one turn of a function, with the loop around it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Turn {
    /// Where the processor overlaps the hashes, in nanoseconds.
    pub throughput_ns: f64,
    /// Where the next hash waits for the last, in nanoseconds.
    pub latency_ns: f64,
}

/// The clock of a function in another process.
pub trait RemoteClock {
    /// Makes one turn of a function that does nothing and one of the function, both in that
    /// process; `None` if it cannot.
    fn turn(&mut self) -> Option<[Turn; 2]>;
}

/// Times functions with their seeds on one sample, in turns.
///
/// A [foreign](crate::specimen::Foreign) function is timed where it is, in its turn, and left out
/// if that cannot be. Returns nothing if `is_stopped` returns true before the last run.
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
    let idle = Clock::idle(sample);
    let mut hands: Vec<Hand> =
        functions.iter().map(|&(specimen, seed)| Hand::new(specimen, seed, sample)).collect();
    let mut overheads = Vec::new();
    for _ in 0..=RUNS {
        overheads.push(idle.turn(sample));
        for hand in &mut hands {
            if is_stopped() {
                return Vec::new();
            }
            hand.run(sample);
        }
    }
    let of = |(hand, (specimen, _)): (Hand, &(&Specimen, u64))| {
        Some(sample.timing(specimen, hand.timing(&overheads)?))
    };
    hands.into_iter().zip(functions).filter_map(of).collect()
}

/// A function that takes its turns.
#[derive(Default)]
struct Hand {
    /// `None` if it cannot be timed.
    place: Option<Place>,
    turns: Vec<Turn>,
    /// Those of a function that does nothing, in the same place, if it is another process.
    overheads: Vec<Turn>,
}

/// Where a function runs.
enum Place {
    Here(Clock<Function>),
    Elsewhere(Box<dyn RemoteClock>),
}

impl Hand {
    fn new(specimen: &'static Specimen, seed: u64, sample: &Sample) -> Self {
        let place = match specimen.function() {
            Some(function) => Some(Place::Here(Clock::new(function, seed, sample))),
            None => specimen.clock_elsewhere(sample, seed).map(Place::Elsewhere),
        };
        Self { place, ..Self::default() }
    }

    fn run(&mut self, sample: &Sample) {
        match &mut self.place {
            Some(Place::Here(clock)) => self.turns.push(clock.turn(sample)),
            Some(Place::Elsewhere(clock)) => match clock.turn() {
                Some([overhead, turn]) => {
                    self.overheads.push(overhead);
                    self.turns.push(turn);
                }
                None => self.place = None,
            },
            None => {}
        }
    }

    /// Returns the times of the turns, less those of a function that does nothing: `overheads`, or
    /// its own.
    fn timing(self, overheads: &[Turn]) -> Option<Timing> {
        let overheads = match self.place? {
            Place::Here(_) => overheads,
            Place::Elsewhere(_) => &self.overheads,
        };
        let less = |of: fn(&Turn) -> f64| {
            let all = |turns: &[Turn]| turns.iter().map(of).collect::<Vec<f64>>();
            let overhead = Spread::of(&all(overheads)).median;
            // Noise does not make a time negative.
            let runs = all(&self.turns).into_iter().map(|run| (run - overhead).max(0.0));
            (Spread::of(&runs.collect::<Vec<f64>>()), overhead)
        };
        let (throughput_ns, throughput_overhead_ns) = less(|turn| turn.throughput_ns);
        let (latency_ns, latency_overhead_ns) = less(|turn| turn.latency_ns);
        Some(Timing {
            throughput_ns,
            latency_ns,
            throughput_overhead_ns,
            latency_overhead_ns,
            ..Timing::default()
        })
    }
}

/// The clock of a function of this process.
#[derive(Clone, Copy, Debug)]
pub struct Clock<F> {
    function: F,
    seed: u64,
    pass_count: u32,
}

impl Clock<Function> {
    /// Returns the clock of a function that does nothing.
    pub fn idle(sample: &Sample) -> Self {
        Self::new(nothing, 0, sample)
    }
}

impl<F: Fn(&[u8], u64) -> u64 + Copy> Clock<F> {
    /// Finds out how many passes over the sample a turn needs.
    pub fn new(function: F, seed: u64, sample: &Sample) -> Self {
        let mut pass_count = 1;
        let is_short = |pass_count| {
            let tries =
                (0..TRIES).map(|_| timed(|| independent(function, seed, sample, pass_count)));
            tries.min().is_some_and(|time| time < RUN)
        };
        while pass_count < 1 << 16 && is_short(pass_count) {
            pass_count *= 2;
        }
        Self { function, seed, pass_count }
    }

    /// Makes a turn.
    pub fn turn(&self, sample: &Sample) -> Turn {
        let Self { function, seed, pass_count } = *self;
        // The other functions have used the caches meanwhile.
        independent(function, seed, sample, 1);
        let per_key = |time: Duration| {
            time.as_secs_f64() * 1e9 / (sample.len() as f64 * f64::from(pass_count))
        };
        let throughput = timed(|| independent(function, seed, sample, pass_count));
        let latency = timed(|| dependent(function, seed, sample, pass_count));
        Turn { throughput_ns: per_key(throughput), latency_ns: per_key(latency) }
    }
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// Hashes every key, independently of the others.
#[inline(never)]
fn independent<F>(function: F, seed: u64, sample: &Sample, pass_count: u32)
where
    F: Fn(&[u8], u64) -> u64,
{
    // Opaque to the compiler, so that it cannot inline the call.
    let function = black_box(function);
    for _ in 0..pass_count {
        let all = (0..sample.len()).fold(0, |all, at| all ^ function(sample.key(at), seed));
        black_box(all);
    }
}

/// Hashes every key, each after the one before.
#[inline(never)]
fn dependent<F>(function: F, seed: u64, sample: &Sample, pass_count: u32)
where
    F: Fn(&[u8], u64) -> u64,
{
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
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};

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

    static BUILT_IN_CALLS: AtomicU64 = AtomicU64::new(0);

    /// A function of another process that notes how often the built-in one was called before each
    /// of its turns.
    #[derive(Debug, Default)]
    struct Remote(Arc<Mutex<Vec<u64>>>);

    impl crate::specimen::Foreign for Remote {
        fn hashes(&self, keys: &[&[u8]], _: u64) -> Vec<Option<u64>> {
            vec![None; keys.len()]
        }

        fn clock(&self, _: &Sample, _: u64) -> Option<Box<dyn RemoteClock>> {
            Some(Box::new(Self(Arc::clone(&self.0))))
        }
    }

    impl RemoteClock for Remote {
        fn turn(&mut self) -> Option<[Turn; 2]> {
            self.0.lock().unwrap().push(BUILT_IN_CALLS.load(Ordering::Relaxed));
            let overhead = Turn { throughput_ns: 1.0, latency_ns: 2.0 };
            Some([overhead, Turn { throughput_ns: 4.0, latency_ns: 6.0 }])
        }
    }

    #[test]
    fn a_function_of_another_process_has_its_turns_between_those_of_the_others() {
        fn counting(key: &[u8], _: u64) -> u64 {
            BUILT_IN_CALLS.fetch_add(1, Ordering::Relaxed) ^ key.len() as u64
        }
        let remote = Remote::default();
        let calls = Arc::clone(&remote.0);
        let remote = Specimen::foreign("remote", 64, crate::specimen::Seeding::None, remote);
        let functions = [(Specimen::linked("counting", counting), 0), (remote, 0)];
        let timings = time(&functions, &Sample::of([&b"key"[..]]), || false);
        let calls = calls.lock().unwrap();
        assert_eq!(calls.len(), RUNS + 1);
        assert!(calls.windows(2).all(|pair| pair[0] < pair[1]), "{calls:?}");
        let found = (&timings[1].hash, timings[1].throughput_ns.median);
        assert_eq!(
            found,
            (&"remote".to_owned(), 3.0),
            "less what a function of that process costs"
        );
        assert_eq!((timings[1].latency_ns.median, timings[1].latency_overhead_ns), (4.0, 2.0));
    }

    /// The loops hash what they say they hash: a function that counts sees every key once a pass.
    #[test]
    fn both_loops_visit_every_key_once_a_pass() {
        static SUM: AtomicU64 = AtomicU64::new(0);
        fn summing(key: &[u8], seed: u64) -> u64 {
            SUM.fetch_add(key.iter().map(|&byte| u64::from(byte)).sum(), Ordering::Relaxed);
            // All bits set: an index that used them would leave the sample.
            u64::MAX ^ seed
        }
        let mut sampler = Sampler::new();
        (1..=100_u8).for_each(|byte| sampler.add(&[byte]));
        let sample = &sampler.finish()[0];
        for hash in [independent::<Function>, dependent::<Function>] {
            SUM.store(0, Ordering::Relaxed);
            hash(summing, 0, sample, 3);
            assert_eq!(SUM.load(Ordering::Relaxed), 3 * 5050);
        }
    }
}
