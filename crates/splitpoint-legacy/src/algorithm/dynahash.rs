//! dynahash: linear hashing of chains in memory, after Larson.
//!
//! ```text
//! directory --> segments of 256 --> chain of bucket b: entry --> entry --> ...
//! ```
//!
//! The table splits the next bucket in order whenever it has more keys per bucket than the fill
//! factor: controlled splitting, and nothing else splits a bucket.
//!
//! # Source
//!
//! Seltzer and Yigit 1991, section "dynahash", for the addresses, the growth and the first size;
//! Berkeley DB 1.85, `hash1`, for the function of Pitt's package.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::addresses::ceil_log2;
use super::{Algorithm, Counts, Footprint, Refusal, StoreMode, Stored, Visit};

/// Buckets of a segment.
const SEGMENT_BUCKETS: usize = 256;

/// Segments that the first directory has room for.
const DIRECTORY_SEGMENTS: usize = 256;

/// Bytes of a pointer of today, for the sizes of directory and segments.
const POINTER_BYTES: u64 = 8;

/// Most buckets that a new table has.
pub const FIRST_BUCKETS_MAX: u64 = 1 << 28;

/// No entry.
const NONE: u32 = u32::MAX;

/// Lines of a drawing.
const LINES_MAX: usize = 64;

/// The parameters of a table.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Mean keys of a bucket above which one bucket is split, at least 1.
    pub fill_factor: u32,
    /// Expected number of entries, `nelem`: the first size, rounded up to a power of two.
    pub expected_records: u64,
    /// The hash function.
    pub hash: fn(&[u8]) -> u32,
}

impl Default for Options {
    /// Returns a fill factor of 1, one bucket and Pitt's function.
    fn default() -> Self {
        Self { fill_factor: 1, expected_records: 1, hash }
    }
}

/// Returns Pitt's hash: `h = h*37 ^ (c - 32)`, then modulo 1,048,583. Berkeley DB 1.85 has it as
/// `hash1`.
pub fn hash(key: &[u8]) -> u32 {
    let sum = key.iter().fold(0_u32, |hash, &byte| {
        hash.wrapping_mul(37) ^ u32::from(byte).wrapping_sub(u32::from(b' '))
    });
    sum % 1_048_583
}

/// A table of dynahash.
#[derive(Debug)]
pub struct Dynahash {
    options: Options,
    /// First entry of each bucket.
    segments: Vec<[u32; SEGMENT_BUCKETS]>,
    /// Segments that the directory has room for.
    directory_room: usize,
    max_bucket: u32,
    low_mask: u32,
    high_mask: u32,
    entries: Vec<Entry>,
    /// Entries that were deleted.
    free: Vec<u32>,
    counts: Counts,
}

#[derive(Debug)]
struct Entry {
    hash: u32,
    key: Box<[u8]>,
    value: Box<[u8]>,
    next: u32,
}

impl Dynahash {
    /// Returns an empty table.
    ///
    /// # Panics
    ///
    /// If the fill factor is 0.
    pub fn new(options: Options) -> Self {
        assert!(options.fill_factor > 0, "a bucket has a key on average");
        let buckets =
            options.expected_records.clamp(1, FIRST_BUCKETS_MAX).next_power_of_two() as u32;
        let segment_count = (buckets as usize).div_ceil(SEGMENT_BUCKETS);
        Self {
            options,
            segments: vec![[NONE; SEGMENT_BUCKETS]; segment_count],
            directory_room: DIRECTORY_SEGMENTS.max(segment_count.next_power_of_two()),
            max_bucket: buckets - 1,
            low_mask: buckets - 1,
            high_mask: 2 * buckets - 1,
            entries: Vec::new(),
            free: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Returns the number of buckets.
    pub fn bucket_count(&self) -> u64 {
        u64::from(self.max_bucket) + 1
    }

    /// Returns the bucket of a key with `hash`: the paper's two masks.
    pub fn bucket_of(&self, hash: u32) -> u32 {
        let bucket = hash & self.high_mask;
        if bucket > self.max_bucket { hash & self.low_mask } else { bucket }
    }

    fn head(&self, bucket: u32) -> u32 {
        self.segments[bucket as usize / SEGMENT_BUCKETS][bucket as usize % SEGMENT_BUCKETS]
    }

    fn head_mut(&mut self, bucket: u32) -> &mut u32 {
        &mut self.segments[bucket as usize / SEGMENT_BUCKETS][bucket as usize % SEGMENT_BUCKETS]
    }

    /// Returns the link that leads to entry `before`, or to the bucket's first.
    fn link_mut(&mut self, bucket: u32, before: u32) -> &mut u32 {
        if before == NONE { self.head_mut(bucket) } else { &mut self.entries[before as usize].next }
    }

    /// Looks for `key` in its chain: the entry, or none, and the one before it.
    fn find(&mut self, bucket: u32, hash: u32, key: &[u8]) -> (u32, u32) {
        let (mut before, mut at) = (NONE, self.head(bucket));
        while at != NONE {
            self.counts.probes += 1;
            self.counts.comparisons += 1;
            let entry = &self.entries[at as usize];
            if entry.hash == hash && *entry.key == *key {
                break;
            }
            (before, at) = (at, entry.next);
        }
        (at, before)
    }

    /// Adds one bucket, and moves to it the entries of the bucket at the split pointer whose next
    /// bit of the hash is set.
    fn split(&mut self) {
        let Some(new) = self.max_bucket.checked_add(1) else { return };
        if new as usize / SEGMENT_BUCKETS == self.segments.len() {
            self.add_segment();
        }
        self.max_bucket = new;
        if new > self.high_mask {
            self.low_mask = self.high_mask;
            self.high_mask = new | self.low_mask;
        }
        let old = new & self.low_mask;
        let mut at = std::mem::replace(self.head_mut(old), NONE);
        let (mut last_old, mut last_new) = (NONE, NONE);
        while at != NONE {
            let entry = &mut self.entries[at as usize];
            let next = std::mem::replace(&mut entry.next, NONE);
            let hash = entry.hash;
            let bucket = self.bucket_of(hash);
            let last = if bucket == new { &mut last_new } else { &mut last_old };
            let before = std::mem::replace(last, at);
            *self.link_mut(bucket, before) = at;
            at = next;
        }
        self.counts.fill_splits += 1;
    }

    fn add_segment(&mut self) {
        if self.segments.len() == self.directory_room {
            self.counts.doublings += 1;
            self.counts.copied_entries += self.directory_room as u64;
            self.directory_room *= 2;
        }
        self.segments.push([NONE; SEGMENT_BUCKETS]);
    }
}

impl Algorithm for Dynahash {
    fn store(&mut self, key: &[u8], value: &[u8], mode: StoreMode) -> Result<Stored, Refusal> {
        let hash = (self.options.hash)(key);
        let bucket = self.bucket_of(hash);
        let (found, last) = self.find(bucket, hash, key);
        if found != NONE {
            if mode == StoreMode::Insert {
                return Ok(Stored::Kept);
            }
            self.entries[found as usize].value = value.into();
            return Ok(Stored::Replaced);
        }
        let entry = Entry { hash, key: key.into(), value: value.into(), next: NONE };
        let new = if let Some(free) = self.free.pop() {
            self.entries[free as usize] = entry;
            free
        } else {
            self.entries.push(entry);
            (self.entries.len() - 1) as u32
        };
        *self.link_mut(bucket, last) = new;
        if self.len() / self.bucket_count() > u64::from(self.options.fill_factor) {
            self.split();
        }
        Ok(Stored::New)
    }

    fn fetch(&mut self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, Refusal> {
        let hash = (self.options.hash)(key);
        let (found, _) = self.find(self.bucket_of(hash), hash, key);
        Ok((found != NONE).then(|| (&*self.entries[found as usize].value).into()))
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool, Refusal> {
        let hash = (self.options.hash)(key);
        let bucket = self.bucket_of(hash);
        let (found, before) = self.find(bucket, hash, key);
        if found == NONE {
            return Ok(false);
        }
        let entry = &mut self.entries[found as usize];
        (entry.key, entry.value) = (Box::default(), Box::default());
        *self.link_mut(bucket, before) = self.entries[found as usize].next;
        self.free.push(found);
        Ok(true)
    }

    fn walk(&mut self, visit: &mut Visit<'_>) -> Result<(), Refusal> {
        for bucket in 0..=self.max_bucket {
            let mut at = self.head(bucket);
            while at != NONE {
                self.counts.probes += 1;
                let entry = &self.entries[at as usize];
                if visit(&entry.key, &entry.value).is_break() {
                    return Ok(());
                }
                at = entry.next;
            }
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        (self.entries.len() - self.free.len()) as u64
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    fn footprint(&self) -> Footprint {
        let pointers = self.directory_room + self.segments.len() * SEGMENT_BUCKETS;
        Footprint {
            place_count: self.bucket_count(),
            fill: self.len() as f64 / self.bucket_count() as f64,
            index_bytes: pointers as u64 * POINTER_BYTES,
            depth: ceil_log2(self.bucket_count()),
            ..Footprint::default()
        }
    }

    fn show(&self) -> String {
        let mut out = format!(
            "{} buckets in {} segments of 256; high mask {:#x}, low mask {:#x}\n",
            self.bucket_count(),
            self.segments.len(),
            self.high_mask,
            self.low_mask
        );
        for bucket in (0..=self.max_bucket).take(LINES_MAX) {
            let (mut keys, mut at) = (0, self.head(bucket));
            while at != NONE {
                keys += 1;
                at = self.entries[at as usize].next;
            }
            let _ = writeln!(out, "  bucket {bucket}: {keys} keys");
        }
        super::cut(out, self.bucket_count() as usize, LINES_MAX)
    }

    fn files(&self) -> Vec<(&'static str, Vec<u8>)> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use splitpoint::linear::{BucketIndex, Geometry};

    use super::*;

    #[test]
    fn addresses_are_those_of_the_store_for_every_size() {
        let mut table = Dynahash::new(Options::default());
        for _ in 0..3000 {
            let geometry = Geometry::with_bucket_count(table.bucket_count());
            for hash in (0..64_u32).map(|n| n.wrapping_mul(0x9e37_79b9)) {
                let expected = geometry.bucket_of(hash.into());
                assert_eq!(BucketIndex(table.bucket_of(hash).into()), expected);
            }
            table.split();
        }
    }

    proptest! {
        #[test]
        fn addresses_are_those_of_the_store_for_any_size_and_hash(
            doublings in 0_u32..16,
            splits in any::<prop::sample::Index>(),
            hashes in prop::collection::vec(any::<u32>(), 1..50),
        ) {
            let expected_records = 1_u64 << doublings;
            let mut table = Dynahash::new(Options { expected_records, ..Options::default() });
            (0..splits.index(expected_records as usize)).for_each(|_| table.split());
            let geometry = Geometry::with_bucket_count(table.bucket_count());
            for hash in hashes {
                let expected = geometry.bucket_of(hash.into());
                prop_assert_eq!(BucketIndex(table.bucket_of(hash).into()), expected);
            }
        }
    }

    #[test]
    fn a_bucket_is_split_once_the_keys_exceed_the_fill_factor() {
        let mut table = Dynahash::new(Options { fill_factor: 4, ..Options::default() });
        for number in 0..1000_u32 {
            table.store(&number.to_le_bytes(), b"", StoreMode::Insert).unwrap();
            assert!(table.len() / table.bucket_count() <= 4);
        }
        assert_eq!(table.bucket_count(), table.counts().fill_splits + 1);
        assert_eq!(table.counts().overflow_splits, 0);
    }

    #[test]
    fn the_first_size_is_rounded_up_to_a_power_of_two() {
        for (expected_records, buckets) in [(0, 1), (1, 1), (5, 8), (24_474, 32_768)] {
            let table = Dynahash::new(Options { expected_records, ..Options::default() });
            assert_eq!(table.bucket_count(), buckets, "{expected_records}");
        }
    }

    #[test]
    fn the_directory_doubles_beyond_256_segments() {
        let mut table = Dynahash::new(Options::default());
        (1..=256 * 256).for_each(|_| table.split());
        assert_eq!((table.counts().doublings, table.counts().copied_entries), (1, 256));
        assert_eq!(table.footprint().index_bytes, 8 * (512 + 257 * 256));
    }
}
