//! A study of replays, in the form in which it is saved.
//!
//! # Invariants
//!
//! - As long as [`REPLAY_SCHEMA`] stays the same, versions only add fields, and each has a default.
//! - Every number is finite, because JSON has no others.

use serde::{Deserialize, Serialize};
use splitpoint::stats::ChainRow;

use super::trees::TreeReplay;
use super::{KernelTable, Reading, StreamCounts};
use crate::study::{Machine, Program};

/// The version of the saved form.
pub const REPLAY_SCHEMA: u32 = 1;

/// Traces of the kernel's caches, replayed through hash tables of several kernels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplayStudy {
    /// `REPLAY_SCHEMA` of the program that saved it.
    pub schema: u32,
    /// The program and how it was called.
    pub program: Program,
    /// The machine it ran on.
    pub machine: Machine,
    /// Seeds of the address model that were tried.
    pub seed_count: u64,
    /// Times that an ideal hash was drawn.
    pub draw_count: u64,
    /// The traces.
    pub traces: Vec<TraceReplay>,
    /// Names that were made to harm a table of names, if that was asked.
    #[serde(default)]
    pub attacks: Vec<NameAttack>,
}

/// One trace, replayed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceReplay {
    /// Its name.
    pub name: String,
    /// The file.
    pub source: String,
    /// Lines of the file.
    pub line_count: u64,
    /// How the dentry cache was shrunk: `none`, `lru:N`, `all:K` or `half:K`.
    pub shrink: String,
    /// Directories that were looked in before their own name was.
    pub root_count: u64,
    /// Lookups that found a dentry whose inode had changed.
    pub stale_count: u64,
    /// What the trace does to each table, whatever the function.
    pub streams: Vec<StreamReplay>,
    /// The stream of a table in a function and a size, one for each that was asked.
    pub tables: Vec<TableReplay>,
    /// Pages and buffers in trees.
    #[serde(default)]
    pub trees: Vec<TreeReplay>,
    /// The combinations of Lever's section 4.
    #[serde(default)]
    pub combinations: Vec<CombinationReplay>,
    /// The cost of each function over the size of its table.
    #[serde(default)]
    pub curves: Vec<SizeCurve>,
    /// Tables of today, at several sizes and many addresses.
    #[serde(default)]
    pub today: Vec<TodayReplay>,
    /// Addresses of superblocks, at every size of today's inode table.
    #[serde(default)]
    pub superblocks: Vec<SuperblockReplay>,
}

/// What a trace does to one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamReplay {
    /// The table.
    pub table: KernelTable,
    /// Its events.
    pub counts: StreamCounts,
}

/// The stream of a table in one function and size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableReplay {
    /// The kernel: an era such as `2.2.5`, or empty for a function and a size that were asked.
    pub kernel: String,
    /// The era of the objects: their addresses and the layout of the nodes.
    pub era: String,
    /// The table.
    pub table: KernelTable,
    /// The function.
    pub hash: String,
    /// Buckets of the table.
    pub bucket_count: u64,
    /// Bytes of its buckets.
    pub table_bytes: u64,
    /// Whether the function depends on addresses, and so on the seed.
    pub is_seeded: bool,
    /// The reading with seed 1: at the end, or after as many lookups as were asked.
    pub reading: Reading,
    /// Nodes visited by a lookup, the match included, over the seeds.
    pub visited: Across,
    /// Nodes passed by a lookup, the match not included, over the seeds.
    pub skipped: Across,
    /// Nodes visited by a lookup with an ideal hash, over its draws.
    pub visited_ideal: Across,
    /// Nodes passed by a lookup with an ideal hash, over its draws.
    pub skipped_ideal: Across,
    /// Objects in the fullest bucket of an ideal hash at the end, on average.
    pub largest_ideal: f64,
    /// Chi-square of the buckets at the end, in standard deviations from the ideal, over the seeds; null
    /// without two objects and two buckets.
    pub z: Option<Across>,
    /// Cache lines that a lookup reads; none where the nodes' layout is not known.
    pub lines: Vec<LineCost>,
    /// The sizes of the buckets with seed 1.
    #[serde(with = "crate::chains::rows")]
    pub rows: Vec<ChainRow>,
    /// Readings with seed 1 during the stream.
    pub moments: Vec<Moment>,
    /// The fullest buckets with seed 1, and what is in them.
    pub fullest: Vec<FullBucket>,
}

/// A number that was measured several times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Across {
    /// The mean.
    pub mean: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
    /// The seed, or the draw, of the most; the first is 1.
    pub max_at: u64,
}

impl Across {
    /// Sums up `values`, of which the first is that of seed 1; `None` if there are none.
    ///
    /// # Examples
    ///
    /// ```
    /// use splitpoint_lab::replay::Across;
    ///
    /// let across = Across::of(&[1.0, 4.0, 4.0]).unwrap();
    /// assert_eq!((across.mean, across.min, across.max, across.max_at), (3.0, 1.0, 4.0, 2));
    /// ```
    pub fn of(values: &[f64]) -> Option<Self> {
        let first = *values.first()?;
        let start = Self { mean: 0.0, min: first, max: first, max_at: 1 };
        let mut across = (1..).zip(values).fold(start, |mut across, (seed, &value)| {
            across.mean += value;
            across.min = across.min.min(value);
            if value > across.max {
                (across.max, across.max_at) = (value, seed);
            }
            across
        });
        across.mean /= values.len() as f64;
        Some(across)
    }
}

/// Cache lines of some size that a lookup reads: the bucket's, and those of the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LineCost {
    /// Bytes of a line.
    pub line_bytes: u32,
    /// Lines that a lookup reads with seed 1.
    pub per_lookup: f64,
    /// The same with an ideal hash, over its draws on average.
    pub per_lookup_ideal: f64,
}

/// A reading during the stream, beside that of the first draw of an ideal hash.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// The reading.
    pub reading: Reading,
    /// That of the ideal hash.
    pub ideal: Reading,
}

/// A bucket and what is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FullBucket {
    /// Its number.
    pub bucket: u64,
    /// Objects in it.
    pub object_count: u64,
    /// The first few: names, numbers of inodes, pages as `file:page`, blocks as `device:block`.
    pub objects: Vec<String>,
}

/// A kernel of Lever's section 4.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CombinationReplay {
    /// Its name: `ref` or A to D.
    pub name: String,
    /// Its four tables.
    pub tables: Vec<TableReplay>,
    /// Cache lines of 32 bytes that a lookup of any of the four tables reads, on average: the lab
    /// measures these in place of Lever's scripts per hour.
    pub lines_per_lookup: f64,
    /// The same with ideal hashes.
    pub lines_per_lookup_ideal: f64,
}

/// A function at several sizes of its table, with seed 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizeCurve {
    /// The table.
    pub table: KernelTable,
    /// The function.
    pub hash: String,
    /// Its cost at each size.
    pub points: Vec<SizePoint>,
}

/// The cost of a function at one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizePoint {
    /// Binary logarithm of the number of buckets.
    pub bits: u32,
    /// Nodes visited by a lookup with seed 1.
    pub visited: f64,
    /// The same with the first draw of an ideal hash.
    pub visited_ideal: f64,
}

/// A table of today at one size, or that of 2.2.5 beside it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TodayReplay {
    /// The era.
    pub era: String,
    /// The table.
    pub table: KernelTable,
    /// Buckets.
    pub bucket_count: u64,
    /// Bytes of its buckets.
    pub table_bytes: u64,
    /// Most memory of a machine whose table has this size, in bytes; null if its size is fixed.
    pub memory_bytes: Option<u64>,
    /// Nodes visited by a lookup, over the addresses.
    pub visited: Across,
    /// Nodes visited by a lookup with an ideal hash, over its draws.
    pub visited_ideal: Across,
    /// Addresses that were tried.
    pub seed_count: u64,
    /// Chi-square of the buckets in standard deviations from the ideal, over the addresses.
    pub z: Option<Across>,
    /// Cache lines of 64 bytes that a lookup reads, on average.
    pub lines_per_lookup: f64,
}

/// Addresses of superblocks, tried at one size of today's inode table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SuperblockReplay {
    /// Buckets.
    pub bucket_count: u64,
    /// Most memory of a machine whose table has this size, in bytes.
    pub memory_bytes: u64,
    /// Random addresses that were tried.
    pub address_count: u64,
    /// Inodes in the table at the end.
    pub inode_count: u64,
    /// Nodes visited to find one of them with an ideal hash, on average.
    pub visited_ideal: f64,
    /// Nodes visited to find one of them, in units of the ideal's, over the addresses.
    pub ratio: Across,
    /// Share of the addresses that cost more than 1.1 times the ideal.
    pub share_over_1_1: f64,
    /// Share of the addresses that cost more than 1.5 times the ideal.
    pub share_over_1_5: f64,
    /// The same ratio over addresses that are 0x800 or -0x800 modulo 2^17.
    pub ratio_awkward: Across,
    /// Objects in the fullest bucket at the worst of those addresses.
    pub largest_awkward: u64,
    /// Objects in the fullest bucket of an ideal hash, on average.
    pub largest_ideal: f64,
    /// The ratio of the mended function at the same awkward addresses: the sum of address and inode
    /// number multiplied, its top bits kept.
    pub ratio_mended: Across,
}

/// Names that harm a table of names, under one parent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NameAttack {
    /// What the names are.
    pub names: String,
    /// What the attacker knew.
    pub salt: String,
    /// The function.
    pub hash: String,
    /// Names.
    pub name_count: u64,
    /// Buckets.
    pub bucket_count: u64,
    /// Nodes visited to find a name, on average over the names, over the salts.
    pub visited: Across,
    /// The same with an ideal hash.
    pub visited_ideal: f64,
    /// Names in the fullest bucket, at the worst salt.
    pub largest: u64,
    /// Names in the fullest bucket of an ideal hash, on average.
    pub largest_ideal: f64,
}
