//! Counts, sizes and chain lengths of a store, compared with those of an ideal hash function.
//!
//! [`Db::stats`](crate::Db::stats) returns [`Stats`]. Its [`ChainHistogram`] has one [`ChainRow`]
//! for each chain length, with the number of buckets that an [`Ideal`] hash function would give. To
//! count another table in the same way, fill an [`Occupancy`]:
//!
//! ```
//! use splitpoint::linear::{BucketIndex, Geometry};
//! use splitpoint::stats::Occupancy;
//!
//! let mut occupancy = Occupancy::new(Geometry::with_bucket_count(2), 7);
//! occupancy.add_chain(BucketIndex(0), &[7, 2]); // Seven keys in the bucket, two in its overflow.
//! occupancy.add_chain(BucketIndex(1), &[5]);
//! let chains = occupancy.finish();
//! assert_eq!(chains.longest, 9);
//! ```
//!
//! # Invariants
//!
//! - The rows of a histogram add up to the buckets and the keys that were counted.
//! - Counting takes memory for each distinct chain length, not for each bucket.
//!
//! # Not here
//!
//! `store` walks the index; the command-line program prints the histogram.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::linear::{BucketIndex, Geometry};

mod ideal;
mod sample;
#[cfg(test)]
mod tests;

pub use ideal::Ideal;
use ideal::real;
pub use sample::{Sample, SharedLookups, WriterState};

/// How an open got its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Recovery {
    /// The store is new.
    Created,
    /// The store had been closed cleanly, so the open used its index.
    Clean,
    /// The last writer was killed, and its index was still complete: a warm restart.
    WarmRestart {
        /// Records after the last published commit, which the open applied.
        records: u64,
    },
    /// The open rebuilt the index from the checkpoint and the log after it.
    Replayed {
        /// Keys that came from the checkpoint; 0 if there was none and the open read the whole log.
        checkpoint_keys: u64,
        /// Records read from the log after the checkpoint.
        records: u64,
        /// Bytes after the last valid commit, torn by the crash, that recovery dropped from the
        /// log.
        dropped_bytes: u64,
    },
}

/// The bytes of a file by their use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentBytes {
    /// Superblocks, live header and reader table.
    pub header: u64,
    /// Log segments.
    pub log: u64,
    /// Segments with one big record each.
    pub big: u64,
    /// Buckets.
    pub index: u64,
    /// Overflow lines.
    pub overflow: u64,
    /// Checkpoints of the index, including one that is being written.
    pub checkpoint: u64,
    /// The segment table, which a file has from the first compaction on, or once its log is long.
    pub segment_table: u64,
    /// Segments without live records that a pinned value, a scan or a backup may still read.
    pub waiting: u64,
    /// Free space.
    pub free: u64,
}

/// The checkpoint from which a recovery would start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checkpoint {
    /// The commit that it reflects, as a log sequence number: bytes of log since the store was
    /// created.
    pub log_bytes: u64,
    /// Size of its segment in bytes.
    pub bytes: u64,
}

/// The cost of the lookups of a handle since it was opened, as counted by
/// [`Options::instrument`](crate::Options::instrument).
///
/// This counts `get`, `get_into`, `get_many`, `contains` and the reads of `update`,
/// `compare_and_swap`, `increment` and `get_or_insert_with`, but not the searches of puts and
/// deletes. A lookup that had to restart because a split moved its bucket counts once, with
/// everything that it read.
///
/// # Examples
///
/// ```
/// # fn main() -> splitpoint::Result<()> {
/// let db = splitpoint::Options::new().instrument(true).in_memory()?;
/// db.put("a", "1")?;
/// db.get("a")?;
/// db.get("b")?;
/// let lookups = db.lookups().expect("the instrument is on");
/// assert_eq!((lookups.lookup_count, lookups.hit_count), (2, 1));
/// # Ok(())
/// # }
/// ```
///
/// # Source
///
/// Lever, "Linux kernel hash table behavior: analysis and improvements", 2000: lookups, hit rate and
/// iterations per lookup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookups {
    /// Number of lookups.
    pub lookup_count: u64,
    /// Lookups that found their key.
    pub hit_count: u64,
    /// Records whose key was compared with the key looked up: Lever's iterations. The tag in the
    /// slot rules out nearly all others.
    pub compared_count: u64,
    /// Cache lines of the index that were read: buckets and overflow lines.
    pub line_count: u64,
}

impl Lookups {
    /// Returns the mean number of records that a lookup compared; 0 if there was no lookup.
    pub fn compared_per_lookup(&self) -> f64 {
        real(self.compared_count) / real(self.lookup_count.max(1))
    }

    /// Returns what has been counted since an `earlier` reading of the same handle.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            lookup_count: self.lookup_count.saturating_sub(earlier.lookup_count),
            hit_count: self.hit_count.saturating_sub(earlier.hit_count),
            compared_count: self.compared_count.saturating_sub(earlier.compared_count),
            line_count: self.line_count.saturating_sub(earlier.line_count),
        }
    }

    /// Returns the mean number of lines of the index that a lookup read; 0 if there was no lookup.
    pub fn lines_per_lookup(&self) -> f64 {
        real(self.line_count) / real(self.lookup_count.max(1))
    }
}

/// Counts, sizes and chain lengths of a table at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// The file, or `None` for a table in memory.
    pub path: Option<PathBuf>,
    /// Number of keys.
    pub record_count: u64,
    /// Shape of the table: buckets, level and split pointer.
    pub geometry: Geometry,
    /// Fill factor: keys per bucket, on average, above which a put splits a bucket.
    pub fill_factor: f64,
    /// Keys divided by slots, overflow lines included.
    pub load_factor: f64,
    /// Overflow lines that are part of a chain.
    pub overflow_line_count: u64,
    /// Free overflow lines.
    pub overflow_line_free_count: u64,
    /// Bytes of records that slots lead to.
    pub live_bytes: u64,
    /// Bytes of replaced and deleted records, and of tombstones.
    pub dead_bytes: u64,
    /// Size of the file, or of the memory in use. It does not include the pages that a background
    /// thread prefaults for a table in memory of 16 MiB or more: up to 4 MiB, and as much again
    /// where compaction has moved the end of the table down.
    pub file_bytes: u64,
    /// The bytes of the file by their use.
    pub segments: SegmentBytes,
    /// Name of the hash function.
    pub hash_name: String,
    /// Bytes of log since the store was created: its last log sequence number.
    pub log_bytes: u64,
    /// Bytes of log since the store was opened.
    pub appended_bytes: u64,
    /// Bytes of records that compaction has moved since the store was opened. They are not in
    /// `appended_bytes`, except for the records in the log that name them, about 8 bytes each.
    pub moved_bytes: u64,
    /// Bytes of log that are durable.
    pub durable_bytes: u64,
    /// Age of the oldest change that is not durable; `None` if all are, and for a table in memory.
    pub unsafe_age: Option<Duration>,
    /// The newest checkpoint, if there is one.
    pub checkpoint: Option<Checkpoint>,
    /// Whether values that this handle has returned, or its scans and backups, pin records, so that
    /// these are not overwritten.
    pub is_pinned: bool,
    /// For how long, at least, the oldest pin has kept space from being reused; `None` if no space
    /// waits for a pin.
    pub held_up_for: Option<Duration>,
    /// The other read-only handles, in this process and in others, that have a place in the reader
    /// table of the file: at most 62.
    pub readers: Vec<ReaderStats>,
    /// How this handle got its index.
    pub recovery: Recovery,
    /// What the lookups of this handle cost; `None` unless
    /// [`Options::instrument`](crate::Options::instrument) asked for it.
    pub lookups: Option<Lookups>,
    /// The lengths of all chains, beside the ideal.
    pub chains: ChainHistogram,
}

impl Stats {
    /// Returns how many bytes the store has written for each byte appended to its log since it was
    /// opened: 1 until compaction moves records. Checkpoints do not count.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// let db = splitpoint::Db::in_memory()?;
    /// db.put("key", "value")?;
    /// assert_eq!(db.stats()?.write_amplification(), 1.0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn write_amplification(&self) -> f64 {
        let appended_bytes = self.appended_bytes.max(1);
        real(appended_bytes + self.moved_bytes) / real(appended_bytes)
    }

    /// Returns the statistics of a table without a log, as far as they follow from its chains.
    ///
    /// The other fields are 0 or empty; set those that apply to the table.
    ///
    /// # Examples
    ///
    /// ```
    /// use splitpoint::linear::{BucketIndex, Geometry};
    /// use splitpoint::stats::{Occupancy, Stats};
    ///
    /// let mut occupancy = Occupancy::new(Geometry::ONE, 12);
    /// occupancy.add_chain(BucketIndex(0), &[12, 3]);
    /// let mut stats = Stats::of_chains(&occupancy);
    /// stats.hash_name = "x33".to_string();
    /// assert_eq!((stats.record_count, stats.overflow_line_count), (15, 1));
    /// assert_eq!(stats.load_factor, 15.0 / 24.0);
    /// ```
    pub fn of_chains(occupancy: &Occupancy) -> Self {
        let line_count = occupancy.lines_divided + occupancy.lines_whole;
        let bucket_count = occupancy.divided_count + occupancy.whole_count;
        let slot_count = line_count * occupancy.slots_per_line;
        Self {
            path: None,
            record_count: occupancy.key_count,
            geometry: occupancy.geometry,
            fill_factor: 0.0,
            load_factor: real(occupancy.key_count) / real(slot_count.max(1)),
            overflow_line_count: line_count - bucket_count,
            overflow_line_free_count: 0,
            live_bytes: 0,
            dead_bytes: 0,
            file_bytes: 0,
            segments: SegmentBytes::default(),
            hash_name: String::new(),
            log_bytes: 0,
            appended_bytes: 0,
            moved_bytes: 0,
            durable_bytes: 0,
            unsafe_age: None,
            checkpoint: None,
            is_pinned: false,
            held_up_for: None,
            readers: Vec::new(),
            recovery: Recovery::Clean,
            lookups: None,
            chains: occupancy.finish(),
        }
    }
}

/// A read-only handle, as the reader table of the file shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReaderStats {
    /// The number of its place in the reader table of the file.
    pub place: usize,
    /// The process id that the reader recorded. It is meaningless if the reader is in another pid
    /// namespace.
    pub pid: u32,
    /// For how long it has been open.
    pub age: Duration,
    /// Whether values that it has returned, or its scans, pin records, so that these are not
    /// overwritten.
    pub is_pinned: bool,
}

/// One row of a [`ChainHistogram`]: the buckets with `size` keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChainRow {
    /// Keys in such a bucket and its overflow lines.
    pub size: u64,
    /// Buckets with that many keys.
    pub bucket_count: u64,
    /// Keys in all these buckets.
    pub item_count: u64,
    /// Keys in buckets of at most this size, in percent of all keys; 100 if there are none.
    pub cumulative_percent: f64,
    /// Buckets of this size that an ideal hash would give in a table of this shape.
    pub ideal_bucket_count: f64,
}

/// Histogram of chain lengths, compared with that of an ideal hash in a table of the same shape.
///
/// The ideal accounts for linear hashing: in the middle of a round, a bucket that has been divided
/// expects half the keys of one that has not, see [`Geometry`].
///
/// # Source
///
/// Lever, "Linux kernel hash table behavior: analysis and improvements", 2000, for the columns
/// size, buckets, items and cumulative percent. The ideal column is ours.
#[derive(Clone, Debug, PartialEq)]
pub struct ChainHistogram {
    /// The rows, by ascending size.
    ///
    /// Every size that was counted has a row. So does every size of which an ideal hash would give
    /// a millionth of a bucket or more, unless there are over 1024 such sizes. Other sizes have no
    /// row: no bucket has them, and almost none was expected.
    pub rows: Vec<ChainRow>,
    /// Mean number of lines that a hit probes; 0 if there are no keys.
    pub probes_hit: f64,
    /// The mean for an ideal hash, in a table whose lines have no empty slots in between.
    pub probes_hit_ideal: f64,
    /// Mean number of lines that a miss probes, if its hash is random.
    pub probes_miss: f64,
    /// The mean for an ideal hash, in a table whose lines have no empty slots in between.
    pub probes_miss_ideal: f64,
    /// Keys in the fullest bucket.
    pub longest: u64,
    /// Expected number of keys in the fullest bucket of an ideal hash.
    pub longest_ideal: f64,
    /// Probability that the fullest bucket of an ideal hash is as full as this one, or fuller.
    pub longest_p: f64,
    /// Number of keys that no bucket exceeds by chance: the probability that an ideal hash gives a
    /// fuller one is below 2^-40.
    pub longest_by_chance: u64,
    /// Buckets with more keys than `longest_by_chance`. If there is one, the hash function does not
    /// fit the keys, or somebody has chosen keys that collide. A keyed hash function helps against
    /// both.
    pub beyond_chance_count: u64,
}

/// Counts chains, one by one, for a [`ChainHistogram`].
///
/// Parts of a table can be counted separately, by several threads or machines, and merged.
///
/// # Examples
///
/// ```
/// use splitpoint::stats::Occupancy;
/// use splitpoint::linear::{BucketIndex, Geometry};
///
/// let mut occupancy = Occupancy::new(Geometry::with_bucket_count(2), 7);
/// occupancy.add_chain(BucketIndex(0), &[7, 1]); // A full line and one key in an overflow line.
/// occupancy.add_chain(BucketIndex(1), &[4]);
/// let histogram = occupancy.finish();
/// assert_eq!(histogram.longest, 8);
/// assert_eq!(histogram.probes_miss, 1.5);
/// assert_eq!(histogram.probes_hit, 13.0 / 12.0);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupancy {
    geometry: Geometry,
    slots_per_line: u64,
    bucket_count_by_size: BTreeMap<u64, u64>,
    key_count: u64,
    /// Lines that hits probe, if each key is looked up once.
    hit_lines: u128,
    /// Lines in chains of buckets that were divided in this round.
    lines_divided: u64,
    /// Lines in chains of the other buckets.
    lines_whole: u64,
    /// Buckets counted that were divided in this round, and those that were not.
    divided_count: u64,
    whole_count: u64,
}

impl Occupancy {
    /// Creates the count for a table of this shape, whose lines have `slots_per_line` slots.
    ///
    /// # Panics
    ///
    /// If `slots_per_line` is 0.
    pub fn new(geometry: Geometry, slots_per_line: u64) -> Self {
        assert!(slots_per_line > 0, "a line has slots");
        Self {
            geometry,
            slots_per_line,
            bucket_count_by_size: BTreeMap::new(),
            key_count: 0,
            hit_lines: 0,
            lines_divided: 0,
            lines_whole: 0,
            divided_count: 0,
            whole_count: 0,
        }
    }

    /// Counts one bucket, whose lines hold these numbers of keys.
    ///
    /// The lines are in the order of the chain. A line that deletes have emptied counts too,
    /// because a lookup reads it.
    ///
    /// # Panics
    ///
    /// If the table has no such bucket.
    ///
    /// # Cost
    ///
    /// O(lines + log of the number of distinct sizes).
    pub fn add_chain(&mut self, bucket: BucketIndex, keys_per_line: &[u64]) {
        assert!(bucket.0 < self.geometry.bucket_count(), "bucket {} is not in the table", bucket.0);
        debug_assert!(keys_per_line.iter().all(|&keys| keys <= self.slots_per_line));
        let size: u64 = keys_per_line.iter().sum();
        let line_count = (keys_per_line.len() as u64).max(1);
        *self.bucket_count_by_size.entry(size).or_insert(0) += 1;
        self.key_count += size;
        for (line, &keys) in (1_u128..).zip(keys_per_line) {
            self.hit_lines += line * u128::from(keys);
        }
        if self.is_divided(bucket) {
            self.lines_divided += line_count;
            self.divided_count += 1;
        } else {
            self.lines_whole += line_count;
            self.whole_count += 1;
        }
    }

    /// Adds the counts of `other`, which has counted other buckets of the same table.
    ///
    /// Merging is associative and commutative, and an [`Occupancy`] that has counted nothing is
    /// neutral.
    ///
    /// # Panics
    ///
    /// If the two tables differ in shape.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(self.geometry, other.geometry, "both count one table");
        assert_eq!(self.slots_per_line, other.slots_per_line, "both count one table");
        for (&size, &bucket_count) in &other.bucket_count_by_size {
            *self.bucket_count_by_size.entry(size).or_insert(0) += bucket_count;
        }
        self.key_count += other.key_count;
        self.hit_lines += other.hit_lines;
        self.lines_divided += other.lines_divided;
        self.lines_whole += other.lines_whole;
        self.divided_count += other.divided_count;
        self.whole_count += other.whole_count;
    }

    /// Returns the histogram of the chains counted so far.
    ///
    /// The ideal is that of a table of this shape with the keys counted so far, so count every
    /// bucket exactly once before comparing.
    ///
    /// # Cost
    ///
    /// O(distinct sizes + longest chain expected): under a millisecond for tables of usual fill.
    pub fn finish(&self) -> ChainHistogram {
        let ideal = Ideal::new(self.geometry, self.key_count);
        let longest = self.bucket_count_by_size.last_key_value().map_or(0, |(&size, _)| size);
        let longest_by_chance = ideal.longest_by_chance();
        let beyond_chance = self.bucket_count_by_size.range(longest_by_chance + 1..);
        ChainHistogram {
            rows: ideal.rows(&self.bucket_count_by_size),
            probes_hit: self.probes_hit(),
            probes_hit_ideal: ideal.probes_hit(self.slots_per_line),
            probes_miss: self.probes_miss(),
            probes_miss_ideal: ideal.probes_miss(self.slots_per_line),
            longest,
            longest_ideal: ideal.longest_mean(),
            longest_p: ideal.longest_at_least(longest),
            longest_by_chance,
            beyond_chance_count: beyond_chance.map(|(_, &bucket_count)| bucket_count).sum(),
        }
    }

    /// Returns whether `bucket` has been divided in this round, or is new in it.
    fn is_divided(&self, bucket: BucketIndex) -> bool {
        let (level, split) = (self.geometry.level(), self.geometry.split());
        bucket.0 < split || bucket.0 >= 1 << level
    }

    #[expect(clippy::cast_precision_loss, reason = "a mean needs no more than 53 bits")]
    fn probes_hit(&self) -> f64 {
        if self.key_count == 0 { 0.0 } else { self.hit_lines as f64 / real(self.key_count) }
    }

    /// Weights each bucket by its probability: a divided bucket is half as likely as one that is
    /// not.
    fn probes_miss(&self) -> f64 {
        let weight = 0.5 * real(self.divided_count) + real(self.whole_count);
        if weight > 0.0 {
            (0.5 * real(self.lines_divided) + real(self.lines_whole)) / weight
        } else {
            0.0
        }
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 100.0 } else { 100.0 * real(part) / real(whole) }
}
