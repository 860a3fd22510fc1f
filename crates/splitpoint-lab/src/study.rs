//! A study: everything that was measured on one set of keys, as it is saved.
//!
//! Pages and text are rendered from a [`Study`] alone, so that one that was saved as JSON yesterday
//! or on another machine gives what it would have given there and then.
//!
//! # Invariants
//!
//! - Fields are only added while [`SCHEMA`] stays what it is, and each that is added has a default.
//! - A probability is 0 to 1, a share 0 to 1, and a duration in nanoseconds.
//! - No field holds a number that is not finite, which JSON cannot say.

use serde::{Deserialize, Serialize};

use crate::chains::LiveTable;
pub use crate::key_positions::KeyPosition;
use crate::measure::Report;

/// The version of the saved form.
pub const SCHEMA: u32 = 2;

/// Everything that was measured on one set of keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Study {
    /// [`SCHEMA`] of the program that saved it.
    pub schema: u32,
    /// The program and how it was called.
    pub program: Program,
    /// Where it ran.
    pub machine: Machine,
    /// The keys.
    pub keys: KeyFacts,
    /// What is missing, if the work was stopped before its end.
    #[serde(default)]
    pub interruption: Option<Interruption>,
    /// One report for each function, reduction, size and seed.
    #[serde(default)]
    pub reports: Vec<Report>,
    /// The table of the store that the keys are of, as it is in its file.
    #[serde(default)]
    pub live_table: Option<LiveTable>,
    /// How long the functions take on these keys.
    #[serde(default)]
    pub timings: Vec<Timing>,
    /// What a flipped bit of a key does to the hash.
    #[serde(default)]
    pub avalanches: Vec<Avalanche>,
    /// What the bytes of the keys hold.
    #[serde(default)]
    pub key_positions: Vec<KeyPosition>,
    /// What to use, cheapest first.
    #[serde(default)]
    pub choices: Vec<Choice>,
    /// What was asked of them.
    #[serde(default)]
    pub wishes: Wishes,
    /// The keys over the nodes of a cluster.
    #[serde(default)]
    pub slots: Option<Slots>,
    /// What two functions, or two studies, differ in.
    #[serde(default)]
    pub differences: Vec<Difference>,
    /// Limits that were set, and whether they hold.
    #[serde(default)]
    pub gates: Vec<Gate>,
}

impl Study {
    /// Returns a study of keys on which nothing has been measured yet.
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
    /// Its arguments, without its own name.
    pub arguments: Vec<String>,
    /// When it was called, in seconds since 1970.
    pub started_unix_s: u64,
}

/// A machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its processor, as it names itself.
    pub processor: String,
    /// Cores that the program may use.
    pub core_count: u64,
    /// Its operating system and architecture.
    pub system: String,
}

/// Where keys came from and what was noticed about them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeyFacts {
    /// The file, or `-`.
    pub source: String,
    /// How they are written there.
    pub format: String,
    /// Keys that are measured.
    pub key_count: u64,
    /// Bytes of those keys.
    pub key_bytes: u64,
    /// How many keys have which length, by rising length; beyond 64 lengths, ranges of them.
    pub lengths: Vec<LengthRow>,
    /// Keys that had been there before.
    pub duplicate_count: u64,
    /// What became of those.
    pub duplicates: Duplicates,
    /// Empty lines, which were left out.
    pub blank_count: u64,
    /// Lines that end in a carriage return, which is part of the key.
    pub carriage_return_count: u64,
    /// Lines or fields that hold a NUL byte, as no text does.
    #[serde(default)]
    pub nul_count: u64,
    /// The first few keys, readable.
    pub examples: Vec<String>,
}

/// Keys whose length is in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LengthRow {
    /// The shortest.
    pub bytes_min: u64,
    /// The longest.
    pub bytes_max: u64,
    /// How many.
    pub key_count: u64,
}

/// What became of keys that had been there before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Duplicates {
    /// They were counted like others.
    #[default]
    Kept,
    /// They were counted like others, and nobody looked for them: the keys do not fit into memory.
    Unchecked,
    /// They were left out; all bytes of the keys were compared.
    Removed,
    /// They were left out; fingerprints of 128 bits were compared.
    RemovedByFingerprint {
        /// Probability that any key was taken for another, at most.
        wrong_p: f64,
    },
}

/// What is missing of a study that was stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interruption {
    /// Keys that were counted.
    pub key_count: u64,
    /// In words: which part of the work was left out.
    pub missing: String,
}

/// How long a function takes on keys of some lengths.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// The function.
    pub hash: String,
    /// The shortest key.
    pub bytes_min: u64,
    /// The longest key.
    pub bytes_max: u64,
    /// Keys of these lengths, of which a sample may have been hashed.
    pub key_count: u64,
    /// All lengths, mixed as they are among the keys; else one class of lengths.
    #[serde(default)]
    pub is_mixed: bool,
    /// Keys that were hashed in each run.
    #[serde(default)]
    pub sample_count: u64,
    /// Time per key if the next does not wait for it.
    pub throughput_ns: Spread,
    /// Time per key if the next waits for it.
    pub latency_ns: Spread,
    /// Time per key of the same loop with a function that does nothing, which has been subtracted
    /// from the throughput.
    #[serde(default)]
    pub throughput_overhead_ns: f64,
    /// The same of the loop that waits, which has been subtracted from the latency.
    #[serde(default)]
    pub latency_overhead_ns: f64,
}

/// Several runs of the same work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Runs, the first left out.
    pub run_count: u64,
    /// The first run, which warms caches.
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
    /// All of them, the first left out, in their order: what differences are tested by.
    #[serde(default)]
    pub runs: Vec<f64>,
}

/// What a flipped bit of a key does to its hash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Avalanche {
    /// The function.
    pub hash: String,
    /// Its seed.
    pub seed: u64,
    /// Width of its output in bits.
    pub width_bits: u32,
    /// Keys of which bits were flipped: synthetic neighbours of real keys.
    pub sample_count: u64,
    /// For each bit of the key, from the lowest of its first byte, and each bit of the hash, from
    /// the lowest: how often the one flipped the other, of all tries.
    pub flip_rates: Vec<Vec<f64>>,
    /// Tries, for each bit of the key: keys that have it, two that are each other's flip as one.
    pub key_counts: Vec<u64>,
    /// The entry farthest from a half in its own standard deviations.
    pub worst: Option<FlipRate>,
    /// Flips of all tries: a half is ideal.
    pub mean_rate: f64,
    /// Probability of a worst entry as bad with an ideal hash, over all entries.
    pub worst_p: f64,
    /// Entries that this is of.
    #[serde(default)]
    pub test_count: u64,
    /// Keys that really are neighbours, in the order of the bytes.
    pub neighbors: Option<Neighbors>,
}

/// How often a bit of the key flips a bit of the hash.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlipRate {
    /// The bit of the key, from the lowest of its first byte.
    pub key_bit: u64,
    /// The bit of the hash, from the lowest.
    pub hash_bit: u32,
    /// Flips of all tries.
    pub rate: f64,
    /// The ends of its interval of 99 % confidence.
    pub interval: [f64; 2],
}

/// Hashes of keys next to each other in sorted order.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Neighbors {
    /// Pairs.
    pub pair_count: u64,
    /// Mean number of bits in which the two hashes differ.
    pub mean_bits: f64,
    /// The same of an ideal hash: half of its width.
    pub mean_bits_ideal: f64,
    /// Deviation of the mean in standard deviations of an ideal hash's.
    pub z: f64,
}

/// What a function must stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wishes {
    /// Its hashes are kept in files: its output must be frozen.
    pub on_disk: bool,
    /// Keys may be chosen by an attacker: it must have a secret key.
    pub hostile: bool,
}

/// A function, a reduction and a table to choose, and what they cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// The function.
    pub hash: String,
    /// The reduction.
    pub reduction: String,
    /// Buckets of the table.
    pub bucket_count: u64,
    /// Time to hash a key of the set, where the next waits for it.
    pub hash_ns: f64,
    /// Cache lines that a hit looks at: one of the bucket, and one of each key that is compared.
    ///
    /// Of an ideal hash, times the worst cost ratio if that is more than chance explains.
    pub line_count: f64,
    /// Time to load one of those lines on this machine.
    pub line_ns: f64,
    /// Bytes of the table over which that time was measured.
    #[serde(default)]
    pub table_bytes: u64,
    /// Time of a lookup: `hash_ns + line_count * line_ns`.
    pub lookup_ns: f64,
    /// Cost of the distribution in units of the ideal's; the worst over sizes and seeds.
    pub cost_ratio: f64,
    /// Buckets where it was the worst.
    #[serde(default)]
    pub worst_bucket_count: u64,
    /// Probability of a worst as bad with an ideal hash, over all sizes and seeds.
    #[serde(default)]
    pub worst_p: f64,
    /// Sizes and seeds that were tried.
    #[serde(default)]
    pub trial_count: u64,
    /// What the distribution does over those sizes and seeds.
    #[serde(default)]
    pub manner: Manner,
    /// In words: what speaks against it, or nothing.
    pub caution: String,
}

/// What the distribution of a function does over sizes and seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Manner {
    /// It is not to be told from an ideal hash at any.
    #[default]
    Fits,
    /// It is no worse than chance, but not random at some: the hash keeps a structure of the keys.
    Structured,
    /// It fits at the size that was asked for and is worse than chance at others.
    FailsElsewhere,
    /// It is worse than chance at the size that was asked for.
    Worse,
}

/// Keys over the 16,384 hash slots and the nodes of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Slots {
    /// Nodes, which share the slots evenly and in order.
    pub nodes: Vec<NodeLoad>,
    /// Slots that hold a key.
    pub used_slot_count: u64,
    /// The same of an ideal hash of as many different tags, expected.
    pub used_slot_ideal: f64,
    /// Keys with a hash tag, of which only the tag counts.
    pub tagged_count: u64,
    /// Different tags, a key without one being its own.
    pub distinct_tag_count: u64,
    /// The tags with most keys, readable, with their keys.
    pub heaviest_tags: Vec<(String, u64)>,
    /// The fullest slots: their numbers with their keys.
    pub fullest_slots: Vec<(u64, u64)>,
    /// Keys of the fullest node in units of the mean.
    pub imbalance: f64,
    /// The same of an ideal hash of tags with as many keys each, expected.
    pub imbalance_ideal: f64,
    /// Probability of nodes this uneven with an ideal hash of the tags.
    pub p: f64,
    /// Ideal hashes that were simulated for the two: no probability below one in so many is told.
    #[serde(default)]
    pub round_count: u64,
    /// Keys whose tags were not looked up among the others, since those were too many.
    #[serde(default)]
    pub unlisted_count: u64,
}

/// One figure of two functions on the same keys, or of the same function in two studies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// What is compared: the function, reduction and table of two studies, or the lengths of keys.
    pub subject: String,
    /// Which figure.
    pub figure: String,
    /// Of the first.
    pub left: f64,
    /// Of the second.
    pub right: f64,
    /// Of an ideal hash, where there is one.
    pub ideal: Option<f64>,
    /// Probability of a difference as large if chance alone made it, where that is known.
    pub p: Option<f64>,
}

/// A limit that was set, and what was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    /// The function, reduction and table.
    pub subject: String,
    /// Which figure.
    pub figure: String,
    /// Which side of the limit is right.
    pub bound: Bound,
    /// The limit.
    pub limit: f64,
    /// What was measured.
    pub measured: f64,
    /// Whether the limit holds.
    pub is_met: bool,
}

/// Which side of a limit is right.
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
    /// The slot after its last.
    pub end_slot: u64,
    /// Keys in them.
    pub key_count: u64,
}
