//! Evaluates the counts: one report per measurement, with the ideal beside each figure.
//!
//! # Source
//!
//! The statistics of the buckets are in `occupancy`; for full-width collisions see Knuth 2, 3.3.2
//! (the birthday bound), for the bits Sidak 1967.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use splitpoint::stats::ChainRow;

use crate::key_positions::{Blame, KeyPositions, KeySample};
use crate::lookups::{LookupCost, Lookups};
use crate::occupancy::{Percentiles, Test};
use crate::paging::{PAGE_SLOTS, PageCost};
use crate::partial::PartialStats;
use crate::probing::{Probing, probing};

mod bits;
mod collisions;
mod shape;
mod verdict;

pub use bits::{BitBias, BitPair};
pub use collisions::{Collisions, EqualHashes};
pub use shape::{CELLS_MAX, ItemShare, Strip};
pub use verdict::{Alternative, Grade, Verdict, Words};
pub(crate) use verdict::{Evidence, FAILURE_BITS};

/// The figures of one measurement, with those of an ideal hash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name of the hash function.
    pub hash: Cow<'static, str>,
    /// Its seed.
    pub seed: u64,
    /// Its width in bits.
    pub width_bits: u32,
    /// Name of the reduction.
    pub reduction: String,
    /// Buckets of the table.
    pub bucket_count: u64,
    /// Buckets that the reduction can reach.
    pub reachable_count: u64,
    /// Keys.
    pub key_count: u64,
    /// Bytes of the keys.
    pub key_bytes: u64,
    /// Buckets that hold a key.
    pub used_count: u64,
    /// The same for an ideal hash, on average.
    pub used_ideal: f64,
    /// Share of the buckets that hold a key.
    pub utilization: f64,
    /// Keys per bucket.
    pub load_factor: f64,
    /// Keys per bucket that holds a key.
    pub mean_chain: f64,
    /// Keys that are not the first of their bucket.
    pub dupe_count: u64,
    /// Buckets that hold more than one key.
    pub shared_bucket_count: u64,
    /// Keys in the fullest bucket.
    pub longest: u64,
    /// The same for an ideal hash, on average.
    pub longest_ideal: f64,
    /// Probability that an ideal hash fills a bucket as full.
    pub longest_p: f64,
    /// Percentiles of keys per bucket, over the buckets that hold a key.
    pub bucket_percentiles: Percentiles,
    /// Percentiles of the size of a key's bucket, over the keys.
    pub item_percentiles: Percentiles,
    /// Mean keys that a hit compares.
    pub probes_hit: f64,
    /// The same for an ideal hash.
    pub probes_hit_ideal: f64,
    /// Mean keys that a miss compares.
    pub probes_miss: f64,
    /// The same for an ideal hash.
    pub probes_miss_ideal: f64,
    /// Cost of a hit in units of the ideal.
    pub cost_ratio: f64,
    /// Chi-square of the buckets.
    pub chi_square: Option<Test>,
    /// Probability that an ideal hash spreads the keys as unevenly.
    pub spread_p: f64,
    /// Probability that an ideal hash spreads the keys as evenly.
    #[serde(default = "certain")]
    pub even_p: f64,
    /// Fit of the sizes of the buckets.
    pub fit: Option<Test>,
    /// Keys with equal hashes, over the whole width and over parts of it.
    pub collisions: Vec<Collisions>,
    /// Bits of the width that no hash has set.
    pub bits_never_set: u64,
    /// Bits of the width that every hash has set.
    pub bits_always_set: u64,
    /// The bit whose share of ones is furthest from a half.
    pub worst_bit: Option<BitBias>,
    /// The two bits with the largest correlation.
    #[serde(default)]
    pub worst_pair: Option<BitPair>,
    /// The cost of lookups if the buckets are pages.
    #[serde(default)]
    pub pages: Vec<PageCost>,
    /// The cost of lookups in tables with open addressing; empty if the counts kept only some
    /// hashes.
    #[serde(default)]
    pub probing: Vec<Probing>,
    /// The cost of the lookups of a trace, if there was one.
    #[serde(default)]
    pub lookups: Option<LookupCost>,
    /// The distribution of the sizes of the keys' buckets.
    #[serde(default)]
    pub item_shares: Vec<ItemShare>,
    /// The buckets in the order of their addresses.
    #[serde(default)]
    pub strip: Strip,
    /// Bits of the keys that do not reach the bucket number as they should, if the lab examined the
    /// keys and the hash does not fit.
    #[serde(default)]
    pub blame: Option<Blame>,
    /// The same hashes with other reductions, if the verdict is worse.
    #[serde(default)]
    pub alternatives: Vec<Alternative>,
    /// Number of p values in this report. The worst of several counts once, because it covers its
    /// own tests.
    pub test_count: u32,
    /// The verdict.
    pub verdict: Verdict,
    /// The verdict in words, with what is to blame and what to do.
    #[serde(default)]
    pub words: Words,
    /// Buckets by the number of their keys.
    #[serde(with = "crate::chains::rows")]
    pub rows: Vec<ChainRow>,
}

impl Report {
    /// Computes the report of the counts.
    ///
    /// # Panics
    ///
    /// If the buckets do not add up to the number of keys, which would be a bug.
    ///
    /// # Cost
    ///
    /// O(buckets + n log n) for `n` kept hashes, about twenty times.
    pub fn new(stats: &PartialStats) -> Self {
        Self::of_settled(&stats.settled())
    }

    fn of_settled(stats: &PartialStats) -> Self {
        let occupancy = stats.occupancy();
        let (setup, ideal) = (stats.setup(), occupancy.ideal());
        let (key_count, bucket_count) = (occupancy.key_count(), occupancy.bucket_count());
        assert_eq!(key_count, stats.key_count(), "every key is in one bucket");
        let (used_count, longest) = (occupancy.at_least(1), occupancy.longest());
        let (chi_square, spread_p) = (occupancy.chi_square(), occupancy.spread_p());
        let collisions = collisions::collisions(stats);
        let (fit, worst_bit, worst_pair) =
            (occupancy.fit(), bits::worst_bit(stats), bits::worst_pair(stats));
        let rows = ideal.rows(occupancy.bucket_count_by_size());
        let width = u64::MAX >> (64 - setup.specimen().width_bits());
        let longest_p = ideal.longest_at_least(longest);
        let mut report = Self {
            hash: setup.specimen().name().into(),
            seed: setup.seed(),
            width_bits: setup.specimen().width_bits(),
            reduction: setup.reducer().reduction().to_string(),
            bucket_count,
            reachable_count: setup.reducer().reachable_count(),
            key_count,
            key_bytes: stats.key_bytes(),
            used_count,
            used_ideal: bucket_count as f64 - ideal.bucket_count(0),
            utilization: used_count as f64 / bucket_count as f64,
            load_factor: key_count as f64 / bucket_count as f64,
            mean_chain: key_count as f64 / used_count.max(1) as f64,
            dupe_count: key_count - used_count,
            shared_bucket_count: occupancy.at_least(2),
            longest,
            longest_ideal: ideal.longest_mean(),
            longest_p,
            bucket_percentiles: occupancy.bucket_percentiles(),
            item_percentiles: occupancy.item_percentiles(),
            probes_hit: occupancy.probes_hit(),
            probes_hit_ideal: ideal.probes_hit(1),
            probes_miss: occupancy.probes_miss(),
            probes_miss_ideal: occupancy.probes_miss_ideal(),
            cost_ratio: occupancy.cost_ratio(),
            chi_square,
            spread_p,
            even_p: occupancy.even_p(),
            fit,
            bits_never_set: if key_count == 0 { 0 } else { width & !stats.bits().ever_set() },
            bits_always_set: if key_count == 0 { 0 } else { width & stats.bits().always_set() },
            test_count: 3
                + u32::from(fit.is_some())
                + collisions.len() as u32
                + u32::from(worst_bit.is_some())
                + u32::from(worst_pair.is_some()),
            collisions,
            worst_bit,
            worst_pair,
            pages: PAGE_SLOTS.map(|slots| PageCost::new(&occupancy, slots)).to_vec(),
            probing: probing(stats),
            lookups: None,
            item_shares: shape::item_shares(&rows),
            strip: Strip::new(stats),
            blame: None,
            alternatives: Vec::new(),
            verdict: Verdict::Fits,
            words: Words::default(),
            rows,
        };
        report.verdict = report.judge();
        if matches!(report.verdict, Verdict::Worse { .. }) {
            report.alternatives = verdict::alternatives(stats);
        }
        report.words = report.put_into_words();
        report
    }

    /// Adds the cost of the lookups of a trace. `stats` are the counts that this report is of.
    pub fn add_lookups(&mut self, stats: &PartialStats, lookups: &Lookups) {
        self.lookups = Some(lookups.cost(stats));
        self.words = self.put_into_words();
    }

    /// Looks for the bits of the keys that are to blame, unless the hash fits.
    ///
    /// # Cost
    ///
    /// That of [`Blame::new`]: a hash for each bit of each key of the sample.
    pub fn find_blame(
        &mut self,
        stats: &PartialStats,
        positions: &KeyPositions,
        sample: &KeySample,
    ) {
        if self.verdict != Verdict::Fits {
            self.blame = Some(Blame::new(stats.setup(), positions, sample));
            self.words = self.put_into_words();
        }
    }
}

fn certain() -> f64 {
    1.0
}
