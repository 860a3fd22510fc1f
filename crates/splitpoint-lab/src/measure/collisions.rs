//! Keys with equal hashes, in all bits and in windows of 32, beside the birthday bound.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::partial::PartialStats;
use crate::probability::{poisson_at_least, sidak};

/// Most shared hashes whose values a report lists.
const SHARED_MAX: usize = 8;
/// Bits of a window.
const WINDOW_BITS: u32 = 32;
/// Bits from one window to the next.
const WINDOW_STEP: u32 = 4;
/// The same with over 2^20 keys, when each window takes a second to sort.
const WINDOW_STEP_MANY: u32 = 16;

/// Keys whose hashes are equal in some of their bits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Collisions {
    /// The bits, in words.
    pub window: Cow<'static, str>,
    /// Their number.
    pub width_bits: u32,
    /// Pairs of keys with equal bits, or those in the sample if the counts sampled the hashes.
    pub pair_count: u64,
    /// Pairs that an ideal hash gives on average: `n (n - 1) / 2^(w + 1)`.
    pub pair_count_ideal: f64,
    /// How many pairs one of these stands for, as a power of two: the counts kept one in so many
    /// hashes.
    #[serde(default)]
    pub sampling: u32,
    /// Probability that an ideal hash gives as many pairs or more. If this is the worst of several
    /// windows, the probability covers all of them.
    pub p: f64,
    /// Windows of which this is the worst.
    #[serde(default = "one")]
    pub test_count: u64,
    /// The lowest values that several keys share.
    pub shared: Vec<u64>,
    /// Keys of the first of those, from another pass over the keys; only for the full width.
    #[serde(default)]
    pub examples: Vec<EqualHashes>,
}

/// Keys with the same hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EqualHashes {
    /// The hash.
    pub hash: u64,
    /// The first few of the keys, escaped.
    pub keys: Vec<String>,
}

fn one() -> u64 {
    1
}

/// Returns the collisions of full hashes. If the counts kept all hashes, of 64 bits, it adds those
/// of the high half, the low half, and the worst window of 32 bits.
///
/// # Cost
///
/// O(n log n) for each of 9 windows, or of 3 with over 2^20 keys.
pub(super) fn collisions(stats: &PartialStats) -> Vec<Collisions> {
    let (width_bits, sampling) = (stats.setup().specimen().width_bits(), stats.setup().sampling());
    let hashes = stats.sorted_hashes();
    let (keys, repeats) = (stats.key_count(), |hash| stats.repeats_of(hash));
    let of_all = of_window("all".into(), width_bits, &hashes, keys, sampling, repeats);
    let mut found = vec![of_all];
    // Sampling decides by all bits of a hash: of two hashes with an equal window, one may be
    // missing.
    if width_bits == 64 && stats.has_all_hashes() {
        let step = if hashes.len() > 1 << 20 { WINDOW_STEP_MANY } else { WINDOW_STEP };
        let of_shift = |shift: u32| {
            let part = |&hash: &u64| (hash >> shift) as u32;
            let mut part: Vec<u32> = hashes.iter().map(part).collect();
            part.sort_unstable();
            let name = format!("{shift} to {}", shift + WINDOW_BITS - 1);
            of_window(name.into(), WINDOW_BITS, &part, keys, sampling, |_| 0)
        };
        let windows: Vec<Collisions> =
            (0..=64 - WINDOW_BITS).step_by(step as usize).map(of_shift).collect();
        let named = |window: Option<&Collisions>, name: &'static str| {
            window.map(|found| Collisions { window: name.into(), ..found.clone() })
        };
        found.extend(named(windows.last(), "high 32"));
        found.extend(named(windows.first(), "low 32"));
        let test_count = windows.len() as u64;
        let worst = windows.into_iter().min_by(|one, other| one.p.total_cmp(&other.p));
        found.extend(worst.map(|worst| Collisions {
            p: sidak(worst.p, test_count as f64),
            test_count,
            ..worst
        }));
    }
    found
}

fn of_window<Word: Copy + Eq + Into<u64>>(
    window: Cow<'static, str>,
    width_bits: u32,
    sorted: &[Word],
    key_count: u64,
    sampling: u32,
    repeats_of: impl Fn(u64) -> u64,
) -> Collisions {
    let runs = sorted.chunk_by(|left, right| left == right).filter(|run| run.len() > 1);
    let pairs = |run: &[Word]| {
        let keys = u128::from(run.len() as u64 + repeats_of(run[0].into()));
        u64::try_from(keys * (keys - 1) / 2).unwrap_or(u64::MAX)
    };
    let pair_count = runs.clone().map(pairs).fold(0, u64::saturating_add);
    let n = key_count as f64;
    let all = n * (n - 1.0).max(0.0) / 2.0 * 0.5_f64.powi(width_bits.cast_signed());
    let pair_count_ideal = all * 0.5_f64.powi(sampling.cast_signed());
    Collisions {
        window,
        width_bits,
        pair_count,
        pair_count_ideal,
        sampling,
        p: poisson_at_least(pair_count, pair_count_ideal),
        test_count: 1,
        shared: runs.map(|run| run[0].into()).take(SHARED_MAX).collect(),
        examples: Vec::new(),
    }
}
