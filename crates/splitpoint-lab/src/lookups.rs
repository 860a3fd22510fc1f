//! The cost of real lookups, from a trace of hits and misses.
//!
//! A table that spreads its keys well may still be slow if the most frequent keys share buckets;
//! and misses need not spread like hits.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::occupancy::{Percentiles, percentiles};
use crate::partial::PartialStats;

/// Lookups by the size of the bucket that they read. Counts of parts of a trace add up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lookups {
    hits_by_size: BTreeMap<u64, u64>,
    misses_by_size: BTreeMap<u64, u64>,
}

/// The cost of the lookups of a trace, each counting once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LookupCost {
    /// Lookups that find their key.
    pub hit_count: u64,
    /// Lookups that do not.
    pub miss_count: u64,
    /// Mean keys that a hit compares, its key being equally likely at each place in its bucket.
    pub probes_hit: f64,
    /// The same for an ideal hash.
    pub probes_hit_ideal: f64,
    /// Mean keys that a miss compares, which are all keys of its bucket.
    pub probes_miss: f64,
    /// The same for an ideal hash.
    pub probes_miss_ideal: f64,
    /// Mean keys that a lookup of either kind compares.
    pub probes: f64,
    /// The same for an ideal hash.
    pub probes_ideal: f64,
    /// Keys compared, in units of the ideal; 1 if there are none.
    pub cost_ratio: f64,
    /// Keys of the bucket that a lookup reads.
    pub percentiles: Percentiles,
}

impl Lookups {
    /// Counts lookups in the table of `stats`, which has counted all of its keys.
    ///
    /// The caller, which has the keys, says with each lookup whether it is a hit. The hash of a
    /// [foreign](crate::specimen::Foreign) function counts as 0 where it is not known.
    pub fn count<'k>(
        stats: &PartialStats,
        lookups: impl IntoIterator<Item = (&'k [u8], bool)>,
    ) -> Self {
        let (setup, mut counted) = (stats.setup(), Self::default());
        let lookups: Vec<(&[u8], bool)> = lookups.into_iter().collect();
        let hashes = setup.specimen().hashes(lookups.iter().map(|(key, _)| *key), setup.seed());
        for ((_, is_hit), hash) in lookups.into_iter().zip(hashes) {
            let hash = hash.unwrap_or_default();
            let size = stats.keys_of(setup.reducer().bucket_of(hash));
            let by_size = if is_hit && size > 0 {
                &mut counted.hits_by_size
            } else {
                &mut counted.misses_by_size
            };
            *by_size.entry(size).or_insert(0) += 1;
        }
        counted
    }

    /// Adds the lookups of another part of the trace, in the same table.
    pub fn merge(&mut self, other: &Self) {
        let pairs = [
            (&mut self.hits_by_size, &other.hits_by_size),
            (&mut self.misses_by_size, &other.misses_by_size),
        ];
        for (ours, theirs) in pairs {
            for (&size, &count) in theirs {
                *ours.entry(size).or_insert(0) += count;
            }
        }
    }

    /// Returns what they cost in the table of `stats`.
    pub fn cost(&self, stats: &PartialStats) -> LookupCost {
        let occupancy = stats.occupancy();
        let sum = |by_size: &BTreeMap<u64, u64>| by_size.values().sum::<u64>();
        let (hit_count, miss_count) = (sum(&self.hits_by_size), sum(&self.misses_by_size));
        let mean = |total: f64, count: u64| if count == 0 { 0.0 } else { total / count as f64 };
        let hits = self.hits_by_size.iter();
        let hit: f64 =
            hits.map(|(&size, &count)| f64::midpoint(size as f64, 1.0) * count as f64).sum();
        let misses = self.misses_by_size.iter();
        let miss: f64 = misses.map(|(&size, &count)| size as f64 * count as f64).sum();
        let hit_ideal = occupancy.ideal().probes_hit(1);
        let miss_ideal = occupancy.probes_miss_ideal();
        let ideal = hit_ideal * hit_count as f64 + miss_ideal * miss_count as f64;
        let mut by_size = self.hits_by_size.clone();
        for (&size, &count) in &self.misses_by_size {
            *by_size.entry(size).or_insert(0) += count;
        }
        LookupCost {
            hit_count,
            miss_count,
            probes_hit: mean(hit, hit_count),
            probes_hit_ideal: hit_ideal,
            probes_miss: mean(miss, miss_count),
            probes_miss_ideal: miss_ideal,
            probes: mean(hit + miss, hit_count + miss_count),
            probes_ideal: mean(ideal, hit_count + miss_count),
            cost_ratio: if ideal > 0.0 { (hit + miss) / ideal } else { 1.0 },
            percentiles: percentiles(&by_size.iter().map(|(&size, &count)| (size, count))),
        }
    }
}
