//! A study: all measurements of one set of keys, in the form in which they are saved.
//!
//! [`report`](crate::report) renders pages and text from a [`Study`] alone, so a study saved
//! yesterday, or on another machine, renders exactly as it did originally.
//!
//! # Invariants
//!
//! - As long as [`SCHEMA`] stays the same, versions only add fields, and each has a default.
//! - A probability and a share are 0 to 1, and a duration is in nanoseconds.
//! - Every number is finite, because JSON has no others.

use serde::{Deserialize, Serialize};

use crate::chains::LiveTable;
pub use crate::key_positions::KeyPosition;
use crate::measure::Report;

/// The version of the saved form.
pub const SCHEMA: u32 = 2;

/// All measurements of one set of keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Study {
    /// [`SCHEMA`] of the program that saved it.
    pub schema: u32,
    /// The program and how it was called.
    pub program: Program,
    /// The machine it ran on.
    pub machine: Machine,
    /// The keys.
    pub keys: KeyFacts,
    /// What is missing, if somebody stopped the work early.
    #[serde(default)]
    pub interruption: Option<Interruption>,
    /// One report for each function, reduction, size and seed.
    #[serde(default)]
    pub reports: Vec<Report>,
    /// The table of the store that the keys came from, as its file has it.
    #[serde(default)]
    pub live_table: Option<LiveTable>,
    /// How long the functions take on these keys.
    #[serde(default)]
    pub timings: Vec<Timing>,
    /// How the hash changes when a bit of a key flips.
    #[serde(default)]
    pub avalanches: Vec<Avalanche>,
    /// What each byte position of the keys holds.
    #[serde(default)]
    pub key_positions: Vec<KeyPosition>,
    /// Functions to choose from: those that fit at all sizes and seeds, cheapest first, then the
    /// others.
    #[serde(default)]
    pub choices: Vec<Choice>,
    /// What the user required of them.
    #[serde(default)]
    pub wishes: Wishes,
    /// The keys over the nodes of a cluster.
    #[serde(default)]
    pub slots: Option<Slots>,
    /// Figures in which two functions, or two studies, differ.
    #[serde(default)]
    pub differences: Vec<Difference>,
    /// The limits that the user set, and whether they hold.
    #[serde(default)]
    pub gates: Vec<Gate>,
}

impl Study {
    /// Returns a study of `keys` without any measurement.
    pub fn new(program: Program, machine: Machine, keys: KeyFacts) -> Self {
        Self {
            schema: SCHEMA,
            program,
            machine,
            keys,
            interruption: None,
            reports: Vec::new(),
            live_table: None,
            timings: Vec::new(),
            avalanches: Vec::new(),
            key_positions: Vec::new(),
            choices: Vec::new(),
            wishes: Wishes::default(),
            slots: None,
            differences: Vec::new(),
            gates: Vec::new(),
        }
    }
}

/// A program and how it was called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Its version.
    pub version: String,
    /// Its arguments, without its name.
    pub arguments: Vec<String>,
    /// When it started, in seconds since 1970.
    pub started_unix_s: u64,
}

/// A machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its processor, by the name that it reports.
    pub processor: String,
    /// Cores that the program may use.
    pub core_count: u64,
    /// Its operating system and architecture.
    pub system: String,
}

/// Where the keys came from, and facts about them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeyFacts {
    /// The file, or `-`.
    pub source: String,
    /// The format of the keys there.
    pub format: String,
    /// Keys that the study measures.
    pub key_count: u64,
    /// Bytes of those keys.
    pub key_bytes: u64,
    /// The number of keys of each length, by rising length. Beyond 64 lengths, ranges of lengths.
    pub lengths: Vec<LengthRow>,
    /// Keys that occurred before in the input.
    pub duplicate_count: u64,
    /// What the lab did with them.
    pub duplicates: Duplicates,
    /// How many of the keys are different, by an estimate where nobody compared them.
    #[serde(default)]
    pub distinct_estimate: Option<DistinctEstimate>,
    /// Empty lines, which the lab skipped.
    pub blank_count: u64,
    /// Lines that end in a carriage return, which is part of the key.
    pub carriage_return_count: u64,
    /// Lines or fields with a NUL byte, which text never has.
    #[serde(default)]
    pub nul_count: u64,
    /// The first few keys, with unprintable bytes escaped.
    pub examples: Vec<String>,
}

/// How many keys are different, by a sketch of them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DistinctEstimate {
    /// Their number, at most that of all keys.
    pub key_count: f64,
    /// The standard deviation of that number, as a share of it.
    pub deviation: f64,
}

/// The keys whose length is in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LengthRow {
    /// The shortest.
    pub bytes_min: u64,
    /// The longest.
    pub bytes_max: u64,
    /// Their number.
    pub key_count: u64,
}

/// What the lab did with keys that occurred before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Duplicates {
    /// It counted them like others.
    #[default]
    Kept,
    /// It counted them like others and did not look for them, because the keys do not fit into
    /// memory.
    Unchecked,
    /// It skipped them, after comparing all bytes of the keys.
    Removed,
    /// It skipped them, after comparing fingerprints of 128 bits.
    RemovedByFingerprint {
        /// Upper bound of the probability that it mistook any key for another.
        wrong_p: f64,
    },
}

/// What a study lacks because somebody stopped the work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interruption {
    /// Keys that were counted.
    pub key_count: u64,
    /// The part of the work that was not done, in words.
    pub missing: String,
}

/// The time of a function on keys of some lengths.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// The function.
    pub hash: String,
    /// The shortest key.
    pub bytes_min: u64,
    /// The longest key.
    pub bytes_max: u64,
    /// Keys of these lengths. The runs may have hashed a sample of them.
    pub key_count: u64,
    /// True for all lengths, mixed as they are among the keys; false for one class of lengths.
    #[serde(default)]
    pub is_mixed: bool,
    /// Keys that each run hashed.
    #[serde(default)]
    pub sample_count: u64,
    /// Time per key if the next key does not depend on its hash.
    pub throughput_ns: Spread,
    /// Time per key if the next key depends on its hash.
    pub latency_ns: Spread,
    /// Time per key of the same loop with a function that does nothing, already subtracted from
    /// the throughput.
    #[serde(default)]
    pub throughput_overhead_ns: f64,
    /// The same for the dependent loop, already subtracted from the latency.
    #[serde(default)]
    pub latency_overhead_ns: f64,
}

/// The results of several runs of the same work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Runs, without the first.
    pub run_count: u64,
    /// The first run, which warms the caches.
    pub first: f64,
    /// The fastest of the others.
    pub min: f64,
    /// Their mean.
    #[serde(default)]
    pub mean: f64,
    /// Their median.
    pub median: f64,
    /// The slowest.
    pub max: f64,
    /// Their standard deviation.
    pub deviation: f64,
    /// All of them in order, without the first, for tests of differences.
    #[serde(default)]
    pub runs: Vec<f64>,
}

/// How the hash changes when a bit of a key flips.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Avalanche {
    /// The function.
    pub hash: String,
    /// Its seed.
    pub seed: u64,
    /// Width of its output in bits.
    pub width_bits: u32,
    /// Real keys whose bits the lab flipped.
    pub sample_count: u64,
    /// How often each bit of the key flips each bit of the hash, as a share of the tries. Rows are
    /// bits of the key, from the lowest of its first byte; columns are bits of the hash, from the
    /// lowest.
    pub flip_rates: Vec<Vec<f64>>,
    /// Tries for each bit of the key: the keys long enough to have it. Two keys that differ only in
    /// this bit count as one.
    pub key_counts: Vec<u64>,
    /// The entry furthest from a half, in standard deviations of that entry.
    pub worst: Option<FlipRate>,
    /// Share of flips in all tries; a half is ideal.
    pub mean_rate: f64,
    /// Probability that the worst entry of an ideal hash is as bad, over all entries.
    pub worst_p: f64,
    /// Entries that this probability covers.
    #[serde(default)]
    pub test_count: u64,
    /// Pairs of real keys that are neighbors in byte order.
    pub neighbors: Option<Neighbors>,
}

/// How often a bit of the key flips a bit of the hash.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlipRate {
    /// The bit of the key, from the lowest of its first byte.
    pub key_bit: u64,
    /// The bit of the hash, from the lowest.
    pub hash_bit: u32,
    /// Share of flips in all tries.
    pub rate: f64,
    /// The ends of its 99 % confidence interval.
    pub interval: [f64; 2],
}

/// Hashes of keys that are next to each other in sorted order.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Neighbors {
    /// Pairs.
    pub pair_count: u64,
    /// Mean number of bits in which the two hashes differ.
    pub mean_bits: f64,
    /// The same for an ideal hash, which is half of the width.
    pub mean_bits_ideal: f64,
    /// Deviation of the mean from the ideal, in standard deviations of an ideal hash.
    pub z: f64,
}

/// What the user requires of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wishes {
    /// Files keep its hashes, so its output must be frozen.
    pub on_disk: bool,
    /// An attacker may choose the keys, so it must have a secret key.
    pub hostile: bool,
}

/// A function, a reduction and a table to choose, with their cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// The function.
    pub hash: String,
    /// The reduction.
    pub reduction: String,
    /// Buckets of the table.
    pub bucket_count: u64,
    /// Time to hash a key of the set if the next key depends on the hash.
    pub hash_ns: f64,
    /// Whether that time is known; if not, it counts as 0.
    #[serde(default = "known")]
    pub is_timed: bool,
    /// Cache lines that a hit reads: one of the bucket, and one of each key that it compares.
    ///
    /// This is the number of an ideal hash, times the worst cost ratio if chance does not explain
    /// that.
    pub line_count: f64,
    /// Time to load one of those lines on this machine.
    pub line_ns: f64,
    /// Bytes of the table in which that time was measured.
    #[serde(default)]
    pub table_bytes: u64,
    /// Time of a lookup: `hash_ns + line_count * line_ns`.
    pub lookup_ns: f64,
    /// Cost of the distribution in units of the ideal; the worst over sizes and seeds.
    pub cost_ratio: f64,
    /// Buckets of the table in which it was the worst.
    #[serde(default)]
    pub worst_bucket_count: u64,
    /// Probability that the worst of an ideal hash is as bad, over all sizes and seeds.
    #[serde(default)]
    pub worst_p: f64,
    /// Sizes and seeds that the lab tried.
    #[serde(default)]
    pub trial_count: u64,
    /// How the distribution does over those sizes and seeds.
    #[serde(default)]
    pub manner: Manner,
    /// Arguments against it, in words; may be empty.
    pub caution: String,
}

fn known() -> bool {
    true
}

/// How the distribution of a function does over sizes and seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Manner {
    /// It is indistinguishable from an ideal hash at all of them.
    #[default]
    Fits,
    /// It is never worse than chance, but not random at some, because the hash keeps a structure of
    /// the keys.
    Structured,
    /// It is worse than chance at some, but a hit hardly costs more.
    Slight,
    /// It fits at the requested size and is worse than chance at others.
    FailsElsewhere,
    /// It is worse than chance at the requested size.
    Worse,
}

/// How keys spread over the 16,384 hash slots and the nodes of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Slots {
    /// Nodes, which share the slots evenly and in order.
    pub nodes: Vec<NodeLoad>,
    /// Slots that hold a key.
    pub used_slot_count: u64,
    /// The same for an ideal hash of as many different tags, on average.
    pub used_slot_ideal: f64,
    /// Keys with a hash tag; the cluster hashes only the tag.
    pub tagged_count: u64,
    /// Different tags. A key without a tag counts as a tag.
    pub distinct_tag_count: u64,
    /// The tags with the most keys, escaped, and their numbers of keys.
    pub heaviest_tags: Vec<(String, u64)>,
    /// The fullest slots: the number of each, and its number of keys.
    pub fullest_slots: Vec<(u64, u64)>,
    /// Keys of the fullest node, in units of the mean.
    pub imbalance: f64,
    /// The same for an ideal hash of tags with as many keys each, on average.
    pub imbalance_ideal: f64,
    /// Probability that an ideal hash of the tags loads the nodes as unevenly.
    pub p: f64,
    /// Ideal hashes simulated for these two figures. One in this number is the lowest probability
    /// that the simulation can find.
    #[serde(default)]
    pub round_count: u64,
    /// Keys whose tags the lab did not compare with others, because it had too many of them.
    #[serde(default)]
    pub unlisted_count: u64,
}

/// One figure of two functions on the same keys, or of the same function in two studies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// The function, reduction and table of two studies, or the lengths of keys.
    pub subject: String,
    /// The name of the figure.
    pub figure: String,
    /// Its value for the first.
    pub left: f64,
    /// Its value for the second.
    pub right: f64,
    /// Its value for an ideal hash, where there is one.
    pub ideal: Option<f64>,
    /// Probability that chance alone makes a difference as large, where the lab can compute it.
    pub p: Option<f64>,
}

/// A limit that the user set, and the measured figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    /// The function, reduction and table.
    pub subject: String,
    /// The name of the figure.
    pub figure: String,
    /// On which side of the limit the figure may be.
    pub bound: Bound,
    /// The limit.
    pub limit: f64,
    /// The measured figure.
    pub measured: f64,
    /// Whether the limit holds.
    pub is_met: bool,
}

/// The side of a limit that is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The limit or less.
    AtMost,
    /// The limit or more.
    AtLeast,
}

/// The keys of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLoad {
    /// Its first slot.
    pub first_slot: u64,
    /// The slot after its last one.
    pub end_slot: u64,
    /// Keys in them.
    pub key_count: u64,
}
