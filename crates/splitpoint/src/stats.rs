//! Counters and occupancy; what `splitpoint stat` and the lab read.

use std::path::PathBuf;

use crate::linear::Geometry;

/// How a handle came to its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Recovery {
    /// The store is new.
    Created,
    /// The store had been closed; nothing was to be done.
    Clean,
    /// The last writer was killed on this boot; its index was taken over.
    TakenOver {
        /// Records after the last published commit that were applied.
        records: u64,
    },
    /// The index was built again from the log.
    Replayed {
        /// Records read from the log.
        records: u64,
        /// Bytes after the log's end that were left out: torn by the crash.
        dropped_bytes: u64,
    },
}

/// Where the bytes of the file are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentBytes {
    /// Superblocks, live header and reader table.
    pub header: u64,
    /// Log segments.
    pub log: u64,
    /// Segments of one big record each.
    pub big: u64,
    /// Buckets.
    pub index: u64,
    /// Overflow lines.
    pub overflow: u64,
    /// Free, ready to be used again.
    pub free: u64,
}

/// Counters and occupancy of a table at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// The file, or `None` in memory.
    pub path: Option<PathBuf>,
    /// Number of keys.
    pub record_count: u64,
    /// Shape of the table: buckets, level and split pointer.
    pub geometry: Geometry,
    /// Mean keys per bucket above which a bucket is split.
    pub fill_factor: f64,
    /// Keys per slot of the buckets.
    pub load_factor: f64,
    /// Overflow lines in chains.
    pub overflow_line_count: u64,
    /// Overflow lines ready to be used again.
    pub overflow_line_free_count: u64,
    /// Bytes of records that the index reaches.
    pub live_bytes: u64,
    /// Bytes of records that were replaced or deleted, and of tombstones.
    pub dead_bytes: u64,
    /// Size of the file, or of the memory in use.
    pub file_bytes: u64,
    /// Where those bytes are.
    pub segments: SegmentBytes,
    /// Name of the hash function.
    pub hash_name: String,
    /// Bytes of the log since the store was made: its last log sequence number.
    pub log_bytes: u64,
    /// How much of that is durable.
    pub durable_bytes: u64,
    /// How this handle came to its index.
    pub recovery: Recovery,
    /// Chains by the number of their keys, beside the ideal.
    pub chains: ChainHistogram,
}

/// One row of a [`ChainHistogram`]: the buckets that hold `size` keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChainRow {
    /// Keys in the bucket and its overflow lines.
    pub size: u64,
    /// Buckets with that many keys.
    pub bucket_count: u64,
    /// Keys in those buckets.
    pub item_count: u64,
    /// Share of all keys in buckets of at most this size, in percent.
    pub cumulative_percent: f64,
    /// Buckets of this size that an ideal hash would give, for this shape of table.
    pub ideal_bucket_count: f64,
}

/// Chains by the number of their keys, in the form of Lever's histograms, with what an ideal
/// hash would give in a linear-hashed table of the same shape.
#[derive(Clone, Debug, PartialEq)]
pub struct ChainHistogram {
    /// Rows by size from 0, without gaps.
    pub rows: Vec<ChainRow>,
    /// Mean lines looked at for a key that is there.
    pub probes_hit: f64,
    /// The same with an ideal hash.
    pub probes_hit_ideal: f64,
    /// Mean lines looked at for a key that is not there, each bucket as likely as it is hashed to.
    pub probes_miss: f64,
    /// The same with an ideal hash.
    pub probes_miss_ideal: f64,
    /// Keys in the fullest bucket.
    pub longest: u64,
    /// Expected keys in the fullest bucket with an ideal hash.
    pub longest_ideal: f64,
    /// Probability that an ideal hash gives a bucket this full or fuller.
    pub longest_p: f64,
}

/// Counts chains one by one for a [`ChainHistogram`].
#[derive(Clone, Debug)]
pub struct Occupancy {
    geometry: Geometry,
}

impl Occupancy {
    /// Starts to count the chains of a table of this shape, whose buckets have `slots_per_line`
    /// slots a line.
    pub fn new(geometry: Geometry, slots_per_line: u64) -> Self {
        let _ = slots_per_line;
        Self { geometry }
    }

    /// Counts bucket `bucket`, whose line and overflow lines hold these numbers of keys.
    pub fn add_chain(&mut self, bucket: crate::linear::BucketIndex, keys_per_line: &[u64]) {
        let _ = (self.geometry, bucket, keys_per_line);
        todo!()
    }

    /// Returns the histogram of what was counted.
    pub fn finish(&self) -> ChainHistogram {
        todo!()
    }
}
