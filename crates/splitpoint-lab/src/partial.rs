//! The kernel: counts keys by a hash, a reduction and a table into statistics that can be merged.
//!
//! # Invariants
//!
//! - [`PartialStats::merge`] is associative and commutative, and merging empty counts changes
//!   nothing. So any partition of the keys, merged in any order, gives the counts of one pass.
//! - The keys of all buckets add up to the number of counted keys, also beyond 2^32 in one bucket.
//!
//! # Not here
//!
//! `drive` runs it in threads; `measure` evaluates the counts.

use std::borrow::Cow;
use std::collections::BTreeMap;

use splitpoint::linear::Geometry;

use crate::bit_counts::BitCounts;
use crate::memory;
use crate::occupancy::Occupancy;
use crate::reduction::{Reducer, Reduction};
use crate::{Error, Specimen};

mod encoding;

/// One measurement: a hash function with a seed, a reduction and a table.
///
/// # Examples
///
/// ```
/// use splitpoint_lab::{Reduction, Setup, Specimen};
///
/// let setup = Setup::new(Specimen::by_name("fnv1a-32")?, 0, Reduction::LowMask, 256)?;
/// let mut counts = setup.count(["a", "b"].map(str::as_bytes));
/// counts.merge(&setup.count(["c"].map(str::as_bytes)))?;
/// assert_eq!(counts.key_count(), 3);
/// assert_eq!(counts.occupancy().longest(), 1);
/// # Ok::<(), splitpoint_lab::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    specimen: &'static Specimen,
    seed: u64,
    reducer: Reducer,
    sampling: u32,
    /// Most hashes that are kept; [`usize::MAX`] if there is no limit.
    hash_limit: usize,
}

/// Bytes of a counter of one bucket: 4, and as many in a table of another reduction.
const COUNTER_BYTES: u64 = 8;
/// Most bytes for a hash that is kept to find collisions: 8 in a vector that may just have doubled,
/// 8 in the sorted copy, and 8 for a part of its bits or for slots of open addressing.
const HASH_BYTES: u64 = 32;
/// Copies of a hash that counts with a limit keep; how often it comes beyond them is a number.
const COPIES_MAX: usize = 8;
/// The sample that has the fewest hashes keeps one in 2 to this power.
const SAMPLING_MAX: u32 = 63;

/// Returns the most hashes that counts with a limit keep while keys or other counts are added. It is a
/// quarter more: where none is dropped, each may come again, and thinning sorts them.
fn kept_max(hash_limit: usize) -> usize {
    hash_limit.saturating_add(hash_limit / 4)
}

impl Setup {
    /// Returns a measurement of a table with `bucket_count` buckets.
    ///
    /// # Errors
    ///
    /// [`Error::BucketCount`] if the reduction cannot address that many.
    pub fn new(
        specimen: &'static Specimen,
        seed: u64,
        reduction: Reduction,
        bucket_count: u64,
    ) -> Result<Self, Error> {
        let reducer = reduction.prepare(specimen.width_bits(), bucket_count)?;
        Ok(Self { specimen, seed, reducer, sampling: 0, hash_limit: usize::MAX })
    }

    /// Keeps only one in `2^sampling` hashes to find collisions, which takes less memory.
    ///
    /// It keeps or drops equal hashes together, so the sample has `2^-sampling` of the pairs.
    #[must_use]
    pub fn sample_hashes(self, sampling: u32) -> Self {
        Self { sampling: sampling.min(SAMPLING_MAX), ..self }
    }

    /// Keeps at most `limit` hashes to find collisions, whatever the number of keys is.
    ///
    /// With more keys, a hash counts as 8 at most, however often it comes. If that leaves too many, it
    /// samples them, by the smallest power of two that keeps so few. The sample does not depend on the
    /// order of the keys, nor on how counts were merged. While keys are added and counts merged, a quarter
    /// more are kept.
    #[must_use]
    pub fn limit_hashes(self, limit: usize) -> Self {
        Self { hash_limit: limit, ..self }
    }

    /// Returns the hash function.
    pub fn specimen(&self) -> &'static Specimen {
        self.specimen
    }

    /// Returns the seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the reduction and the table.
    pub fn reducer(&self) -> Reducer {
        self.reducer
    }

    /// Returns the number of hashes that each kept one represents, as a power of two. With a limit,
    /// it grows with the number of keys.
    pub fn sampling(&self) -> u32 {
        self.sampling
    }

    /// Returns the most memory that counting `key_count` keys and reporting on them takes, in
    /// bytes, without the keys.
    pub fn memory_bytes(&self, key_count: u64) -> u64 {
        let counters = self.reducer.bucket_count() * COUNTER_BYTES;
        let hashes = (key_count >> self.sampling).min(kept_max(self.hash_limit) as u64);
        counters.saturating_add(hashes.saturating_mul(HASH_BYTES))
    }

    /// Checks that counting `key_count` keys takes at most `allowed_bytes` of memory.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`] if it takes more.
    pub fn check_memory(&self, key_count: u64, allowed_bytes: u64) -> Result<(), Error> {
        let needed_bytes = self.memory_bytes(key_count);
        if needed_bytes > allowed_bytes {
            return Err(Error::Memory { needed_bytes, allowed_bytes });
        }
        Ok(())
    }

    /// Checks that the process gets the memory to count `key_count` keys now.
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`].
    pub fn expect_memory(&self, key_count: u64) -> Result<(), Error> {
        let needed_bytes = self.memory_bytes(key_count);
        if memory::is_there(needed_bytes) { Ok(()) } else { Err(Error::NoMemory { needed_bytes }) }
    }

    /// Counts keys, which should be distinct, because equal keys count as collisions.
    ///
    /// # Cost
    ///
    /// One hash, one counter and a few steps for each key; [`Self::memory_bytes`] of memory.
    pub fn count<'k>(&self, keys: impl IntoIterator<Item = &'k [u8]>) -> PartialStats {
        let mut stats = PartialStats::new(*self);
        for key in keys {
            stats.add(key);
        }
        stats.settle();
        stats
    }

    fn is_limited(&self) -> bool {
        self.hash_limit != usize::MAX
    }

    /// Returns the text that identifies this measurement.
    fn description(&self) -> String {
        let Self { specimen, seed, reducer, sampling, hash_limit } = *self;
        let (reduction, bucket_count) = (reducer.reduction(), reducer.bucket_count());
        let sample = match hash_limit {
            usize::MAX => sampling.to_string(),
            limit => format!("<={limit}"),
        };
        format!("{} {seed:x} {reduction} {bucket_count} {sample}", specimen.name())
    }
}

/// Counts of some of the keys of one measurement.
#[derive(Clone, Debug)]
pub struct PartialStats {
    setup: Setup,
    key_count: u64,
    key_bytes: u64,
    /// Keys of each bucket, modulo 2^32.
    counters: Vec<u32>,
    /// How often the counter of a bucket has wrapped at 2^32.
    carries: BTreeMap<u64, u64>,
    bits: BitCounts,
    hashes: Vec<u64>,
    /// How often a hash comes beyond [`COPIES_MAX`]: only with a limit, and more keys than it.
    repeats: BTreeMap<u64, u64>,
    /// The number of hashes after the last [`thin`](Self::thin).
    thinned_count: usize,
}

impl PartialStats {
    /// Returns the counts of no keys.
    ///
    /// # Panics
    ///
    /// If the buckets do not fit into memory; call [`Setup::check_memory`] or
    /// [`Setup::expect_memory`] first.
    pub fn new(setup: Setup) -> Self {
        let bucket_count = usize::try_from(setup.reducer.bucket_count()).expect("fits in memory");
        Self {
            setup,
            key_count: 0,
            key_bytes: 0,
            counters: vec![0; bucket_count],
            carries: BTreeMap::new(),
            bits: BitCounts::default(),
            hashes: Vec::new(),
            repeats: BTreeMap::new(),
            thinned_count: 0,
        }
    }

    /// Makes room for the hashes of `key_count` more keys.
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`]; the counts are unchanged.
    pub fn reserve(&mut self, key_count: usize) -> Result<(), Error> {
        let kept_max = kept_max(self.setup.hash_limit);
        let more =
            (key_count >> self.setup.sampling).min(kept_max.saturating_sub(self.hashes.len())) + 1;
        self.hashes.try_reserve(more).map_err(|_| {
            let needed_bytes = 8 * (self.hashes.len() + more) as u64;
            Error::NoMemory { needed_bytes }
        })
    }

    /// Counts one key.
    #[inline]
    pub fn add(&mut self, key: &[u8]) {
        self.add_hash(self.setup.specimen.hash(key, self.setup.seed), key.len() as u64);
    }

    /// Counts one key of `key_bytes` bytes by its hash.
    #[inline]
    fn add_hash(&mut self, hash: u64, key_bytes: u64) {
        let bucket = self.note(hash, key_bytes);
        self.add_to_bucket(bucket, 1);
    }

    /// Counts a hash in everything but the table, and returns its bucket.
    #[inline]
    fn note(&mut self, hash: u64, key_bytes: u64) -> u64 {
        self.key_count += 1;
        self.key_bytes += key_bytes;
        self.bits.add(hash);
        if is_sampled(hash, self.setup.sampling) {
            self.hashes.push(hash);
            if self.hashes.len() > kept_max(self.setup.hash_limit) {
                self.settle();
            }
        }
        self.setup.reducer.bucket_of(hash)
    }

    /// Keeps no more hashes than the limit allows.
    #[cold]
    fn settle(&mut self) {
        if !self.is_settled() {
            self.thin();
            self.thinned_count = self.hashes.len();
        }
    }

    fn is_settled(&self) -> bool {
        self.key_count <= self.setup.hash_limit as u64 || self.hashes.len() == self.thinned_count
    }

    /// Returns counts that keep no more hashes than the limit allows.
    pub(crate) fn settled(&self) -> Cow<'_, Self> {
        let mut settled = Cow::Borrowed(self);
        if !self.is_settled() {
            settled.to_mut().settle();
        }
        settled
    }

    /// Keeps [`COPIES_MAX`] of equal hashes, and samples until there are no more than the limit.
    ///
    /// Without the first, a hash of more keys than the limit would raise the sample until it is dropped
    /// itself, and its collisions would be gone.
    ///
    /// The level that this ends with is the lowest that keeps so few of all hashes counted: that of a
    /// part is never above it, since a part has fewer. So it is the same for every order and tree.
    fn thin(&mut self) {
        self.take_repeats();
        let (limit, mut sampling) = (self.setup.hash_limit, self.setup.sampling);
        let mut by_level = [0_usize; 1 + SAMPLING_MAX as usize];
        for &hash in &self.hashes {
            by_level[mixed(hash).leading_zeros().min(SAMPLING_MAX) as usize] += 1;
        }
        let mut kept = self.hashes.len();
        while kept > limit && sampling < SAMPLING_MAX {
            kept -= by_level[sampling as usize];
            sampling += 1;
        }
        self.sample(sampling);
    }

    /// Counts the copies of a hash beyond [`COPIES_MAX`] instead of keeping them.
    fn take_repeats(&mut self) {
        self.hashes.sort_unstable();
        let (mut kept, mut at) = (0, 0);
        while let Some(&hash) = self.hashes.get(at) {
            let copies = self.hashes[at..].iter().take_while(|&&other| other == hash).count();
            let few = copies.min(COPIES_MAX);
            self.hashes[kept..kept + few].fill(hash);
            if copies > few {
                *self.repeats.entry(hash).or_insert(0) += (copies - few) as u64;
            }
            (kept, at) = (kept + few, at + copies);
        }
        self.hashes.truncate(kept);
    }

    /// Drops the hashes that a sample of one in `2^sampling` does not have.
    fn sample(&mut self, sampling: u32) {
        if sampling != self.setup.sampling {
            self.setup.sampling = sampling;
            self.hashes.retain(|&hash| is_sampled(hash, sampling));
            self.repeats.retain(|&hash, _| is_sampled(hash, sampling));
        }
    }

    /// Counts keys by their hashes and lengths.
    pub(crate) fn add_hashes(&mut self, hashes: &[(u64, u64)]) {
        visit_buckets(
            self,
            hashes,
            |stats, &(hash, key_bytes)| stats.note(hash, key_bytes),
            |stats, bucket| stats.add_to_bucket(bucket, 1),
        );
    }

    #[inline]
    fn add_to_bucket(&mut self, bucket: u64, keys: u32) {
        let counter = &mut self.counters[bucket as usize];
        let (sum, has_carry) = counter.overflowing_add(keys);
        *counter = sum;
        if has_carry {
            *self.carries.entry(bucket).or_insert(0) += 1;
        }
    }

    /// Adds the counts of other keys.
    ///
    /// # Errors
    ///
    /// [`Error::Different`] if `other` is of another measurement, [`Error::KeyCount`] if both have more
    /// than 2^64 keys, which decoded counts may claim; then it adds nothing.
    pub fn merge(&mut self, other: &Self) -> Result<(), Error> {
        if self.setup.description() != other.setup.description() {
            return Err(Error::Different { what: "setup" });
        }
        // No other count but the bytes is above it.
        self.key_count = self.key_count.checked_add(other.key_count).ok_or(Error::KeyCount)?;
        self.key_bytes = self.key_bytes.saturating_add(other.key_bytes);
        self.bits.merge(&other.bits);
        // Without a limit the two are equal.
        self.sample(self.setup.sampling.max(other.setup.sampling));
        let sampling = self.setup.sampling;
        self.hashes.extend(other.hashes.iter().filter(|&&hash| is_sampled(hash, sampling)));
        for (&hash, &times) in other.repeats.iter().filter(|&(&hash, _)| is_sampled(hash, sampling))
        {
            *self.repeats.entry(hash).or_insert(0) += times;
        }
        // What was dropped and what came may be as many.
        self.thinned_count = usize::MAX;
        if self.hashes.len() > kept_max(self.setup.hash_limit) {
            self.settle();
        }
        for (bucket, &keys) in (0..).zip(&other.counters) {
            self.add_to_bucket(bucket, keys);
        }
        for (&bucket, &times) in &other.carries {
            *self.carries.entry(bucket).or_insert(0) += times;
        }
        Ok(())
    }

    /// Returns the measurement that these counts are of.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Returns the number of keys counted.
    pub fn key_count(&self) -> u64 {
        self.key_count
    }

    /// Returns the bytes of those keys.
    pub fn key_bytes(&self) -> u64 {
        self.key_bytes
    }

    /// Returns the number of hashes in which each bit is set.
    pub fn bits(&self) -> &BitCounts {
        &self.bits
    }

    /// Returns the keys of each bucket, in the order of the buckets.
    pub fn chains(&self) -> impl Iterator<Item = u64> + '_ {
        (0..).zip(&self.counters).map(|(bucket, &keys)| self.with_carry(bucket, keys))
    }

    /// Returns the keys of one bucket.
    ///
    /// # Panics
    ///
    /// If the table has no such bucket.
    pub fn keys_of(&self, bucket: u64) -> u64 {
        self.with_carry(bucket, self.counters[bucket as usize])
    }

    fn with_carry(&self, bucket: u64, keys: u32) -> u64 {
        let carries = if self.carries.is_empty() { None } else { self.carries.get(&bucket) };
        u64::from(keys) + (carries.copied().unwrap_or(0) << 32)
    }

    /// Returns the sizes of the buckets, with the ideal of this table.
    pub fn occupancy(&self) -> Occupancy {
        occupancy(self.setup.reducer, || self.chains())
    }

    /// Returns the kept hashes, in no particular order.
    pub(crate) fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// Returns whether the kept hashes are those of all keys.
    pub(crate) fn has_all_hashes(&self) -> bool {
        self.setup.sampling == 0 && self.repeats.is_empty()
    }

    /// Returns how often a kept hash comes beyond its kept copies.
    pub(crate) fn repeats_of(&self, hash: u64) -> u64 {
        self.repeats.get(&hash).copied().unwrap_or(0)
    }

    /// Returns the kept hashes, in rising order. With a limit, a hash comes 8 times at most.
    pub fn sorted_hashes(&self) -> Vec<u64> {
        let mut hashes = self.settled().hashes.clone();
        hashes.sort_unstable();
        hashes
    }
}

/// Returns the number of `hashes` in each bucket.
pub(crate) fn keys_by_bucket(reducer: Reducer, hashes: &[u64]) -> Vec<u32> {
    let mut counters = vec![0_u32; reducer.bucket_count() as usize];
    visit_buckets(
        &mut counters,
        hashes,
        |_, &hash| reducer.bucket_of(hash),
        |counters, bucket| counters[bucket as usize] += 1,
    );
    counters
}

/// Calls `visit` with the bucket of each item.
///
/// # Cost
///
/// A counter in a large table is not in the cache. The loop over them does nothing else, so that the
/// processor waits for many at a time.
#[inline]
fn visit_buckets<S, T>(
    state: &mut S,
    items: &[T],
    bucket_of: impl Fn(&mut S, &T) -> u64,
    visit: impl Fn(&mut S, u64),
) {
    const AT_A_TIME: usize = 256;
    for items in items.chunks(AT_A_TIME) {
        let mut buckets = [0; AT_A_TIME];
        for (bucket, item) in buckets.iter_mut().zip(items) {
            *bucket = bucket_of(state, item);
        }
        for &bucket in &buckets[..items.len()] {
            visit(state, bucket);
        }
    }
}

/// Returns the sizes of the buckets of a table, with its ideal. `chains` gives the number of keys
/// of each bucket, in the order of the buckets.
pub(crate) fn occupancy<I: Iterator<Item = u64>>(
    reducer: Reducer,
    chains: impl Fn() -> I,
) -> Occupancy {
    if reducer.reduction() != Reduction::Split {
        return Occupancy::uniform(by_size(chains()));
    }
    let geometry = Geometry::with_bucket_count(reducer.bucket_count());
    let (level, split) = (geometry.level(), geometry.split());
    let is_divided = |bucket: u64| bucket < split || bucket >= 1 << level;
    let of_kind = |is_wanted: bool| {
        let of_kind = (0..).zip(chains()).filter(|&(b, _)| is_divided(b) == is_wanted);
        by_size(of_kind.map(|(_, keys)| keys))
    };
    Occupancy::split(geometry, [of_kind(true), of_kind(false)])
}

pub(crate) fn by_size(sizes: impl Iterator<Item = u64>) -> BTreeMap<u64, u64> {
    // Nearly all sizes are small. A table of them saves a search of the map for each bucket.
    const SMALL: usize = 64;
    let (mut small, mut by_size) = ([0_u64; SMALL], BTreeMap::new());
    for size in sizes {
        match usize::try_from(size).ok().and_then(|size| small.get_mut(size)) {
            Some(count) => *count += 1,
            None => *by_size.entry(size).or_insert(0) += 1,
        }
    }
    let counted = (0..).zip(small).filter(|&(_, count)| count > 0);
    by_size.extend(counted);
    by_size
}

/// Returns true for one in `2^sampling` hashes, whichever bits they have in common.
pub(crate) fn is_sampled(hash: u64, sampling: u32) -> bool {
    sampling == 0 || mixed(hash) >> (64 - sampling) == 0
}

/// Mixes all bits of a word. It is a bijection that leaves no pattern.
///
/// Source: `SplitMix64` of Steele, Lea and Flood, 2014.
pub(crate) fn mixed(word: u64) -> u64 {
    let mut mixed = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2^32 keys and more of one bucket, without hashing them one by one.
    #[test]
    fn counters_pass_two_to_the_32() {
        let specimen = Specimen::by_name("fnv1a-32").unwrap();
        let setup = Setup::new(specimen, 0, Reduction::LowMask, 4).unwrap();
        let mut stats = PartialStats::new(setup);
        stats.add_to_bucket(2, u32::MAX);
        stats.key_count = u64::from(u32::MAX);
        let other = stats.clone();
        stats.merge(&other).unwrap();
        stats.merge(&other).unwrap();
        let expected = 3 * u64::from(u32::MAX);
        assert_eq!(stats.chains().collect::<Vec<_>>(), [0, 0, expected, 0]);
        assert_eq!(stats.occupancy().longest(), expected);
        assert_eq!(stats.key_count(), expected);
    }

    #[test]
    fn a_measurement_of_another_setup_is_not_merged() {
        let specimen = Specimen::by_name("fnv1a-32").unwrap();
        let small = Setup::new(specimen, 0, Reduction::LowMask, 4).unwrap();
        let large = Setup::new(specimen, 0, Reduction::LowMask, 8).unwrap();
        let mut stats = PartialStats::new(small);
        assert!(stats.merge(&PartialStats::new(large)).is_err());
        assert!(stats.merge(&PartialStats::new(small.sample_hashes(1))).is_err());
    }

    /// Merges of few keys each sort what is kept only when a quarter more has come.
    #[test]
    fn small_counts_are_merged_without_thinning_each_time() {
        let mut merged = limited(0..200, 100);
        let kept = merged.hashes.len();
        let mut most = 0;
        for key in 200..400 {
            merged.merge(&limited(std::iter::once(key), 100)).unwrap();
            most = most.max(merged.hashes.len());
        }
        assert!(kept <= 100 && (101..=125).contains(&most), "{kept}, {most}");
        assert_eq!(merged.sorted_hashes(), limited(0..400, 100).sorted_hashes());
        assert_eq!(merged.encode(), limited(0..400, 100).encode());
    }

    #[test]
    fn counts_of_more_keys_than_a_word_counts_are_not_merged() {
        let mut stats = limited(0..3, 100);
        stats.add_to_bucket(0, 1);
        stats.carries.insert(0, u64::from(u32::MAX) - 1);
        stats.key_count = u64::MAX - 2;
        let before = stats.encode();
        assert_eq!(stats.merge(&limited(0..3, 100)), Err(Error::KeyCount));
        assert_eq!(stats.encode(), before);
        stats.merge(&limited(0..2, 100)).unwrap();
        assert_eq!(stats.key_count(), u64::MAX);
    }

    #[test]
    fn memory_is_stated_before_it_is_used() {
        let specimen = Specimen::by_name("xxh3-64").unwrap();
        let setup = Setup::new(specimen, 0, Reduction::LowMask, 1 << 20).unwrap();
        assert_eq!(setup.memory_bytes(1000), (8 << 20) + 32_000);
        assert_eq!(setup.sample_hashes(3).memory_bytes(1000), (8 << 20) + 4000);
        assert_eq!(setup.limit_hashes(80).memory_bytes(1000), (8 << 20) + 3200);
        assert_eq!(
            setup.check_memory(1000, 1 << 20),
            Err(Error::Memory { needed_bytes: (8 << 20) + 32_000, allowed_bytes: 1 << 20 })
        );
        assert_eq!(setup.memory_bytes(u64::MAX), u64::MAX);
    }

    fn limited(keys: impl Iterator<Item = u64>, limit: usize) -> PartialStats {
        let specimen = Specimen::by_name("xxh3-64").unwrap();
        let setup = Setup::new(specimen, 0, Reduction::LowMask, 4).unwrap().limit_hashes(limit);
        let keys: Vec<[u8; 8]> = keys.map(u64::to_le_bytes).collect();
        setup.count(keys.iter().map(<[u8; 8]>::as_slice))
    }

    /// One pass, every cut in two, and every tree of pieces of 37 keys that merges neighbors.
    #[test]
    fn a_limit_keeps_the_same_hashes_whatever_the_parts_and_their_order_are() {
        for limit in [0, 1, 50, 299, 300] {
            let whole = limited(0..300, limit);
            assert!(whole.hashes.len() <= limit && (limit < 299 || whole.hashes.len() > 100));
            assert_eq!(whole.setup.sampling == 0, limit == 300);
            let whole = whole.encode();
            for cut in 0..=300 {
                let mut later = limited(cut..300, limit);
                later.merge(&limited(0..cut, limit)).unwrap();
                assert_eq!(later.encode(), whole, "limit {limit}, cut {cut}");
            }
            for width in 2..6 {
                let mut parts: Vec<PartialStats> = (0..300_u64)
                    .step_by(37)
                    .map(|at| limited(at..(at + 37).min(300), limit))
                    .collect();
                while parts.len() > 1 {
                    let merged = |parts: &[PartialStats]| {
                        parts[1..].iter().fold(parts[0].clone(), |mut sum, part| {
                            sum.merge(part).unwrap();
                            sum
                        })
                    };
                    parts = parts.chunks(width).map(merged).collect();
                }
                assert_eq!(parts[0].encode(), whole, "limit {limit}, width {width}");
            }
        }
    }

    /// Its collisions would be gone if it raised the sample until it is dropped itself.
    #[test]
    fn a_hash_of_more_keys_than_the_limit_keeps_its_pairs() {
        let keys = (0..40_u64).chain(std::iter::repeat_n(7, 1000));
        let whole = limited(keys.clone(), 60);
        assert_eq!((whole.setup.sampling, whole.hashes.len()), (0, 47));
        let collisions = &crate::Report::new(&whole).collisions;
        assert_eq!(collisions.len(), 1, "the windows want all hashes");
        assert_eq!((collisions[0].pair_count, collisions[0].sampling), (1001 * 1000 / 2, 0));
        let keys: Vec<u64> = keys.collect();
        for cut in [1, 8, 30, 39, 45, 60, 500, 1039] {
            for (one, other) in [(&keys[..cut], &keys[cut..]), (&keys[cut..], &keys[..cut])] {
                let mut merged = limited(one.iter().copied(), 60);
                merged.merge(&limited(other.iter().copied(), 60)).unwrap();
                assert_eq!(merged.encode(), whole.encode(), "cut {cut}");
            }
        }
    }

    /// Keys of any multiplicity, added one by one, by two and by tens.
    #[test]
    fn repeated_keys_are_kept_alike_whatever_the_parts_are() {
        let keys: Vec<u64> = (0..3000).map(|at| mixed(at) % (1 + at % 300)).collect();
        for limit in [7, 100, 700, 2999, 3000] {
            let whole = limited(keys.iter().copied(), limit);
            assert!(whole.hashes.len() <= limit);
            for part_keys in [1, 2, 10, 1234] {
                let mut merged = limited(std::iter::empty(), limit);
                for part in keys.chunks(part_keys) {
                    merged.merge(&limited(part.iter().copied(), limit)).unwrap();
                }
                assert_eq!(merged.encode(), whole.encode(), "limit {limit}, parts of {part_keys}");
            }
            let mut one_by_one = PartialStats::new(*limited(std::iter::empty(), limit).setup());
            for key in &keys {
                one_by_one.add(&key.to_le_bytes());
            }
            assert!(one_by_one.hashes.len() <= limit + limit / 4);
            assert_eq!(one_by_one.encode(), whole.encode(), "limit {limit}");
        }
    }

    #[test]
    fn a_limit_drops_no_more_hashes_than_it_must() {
        let (kept, all) = (limited(0..1000, 100), limited(0..1000, usize::MAX));
        let of_level =
            |sampling| all.hashes().iter().filter(|&&hash| is_sampled(hash, sampling)).count();
        assert_eq!(kept.hashes.len(), of_level(kept.setup.sampling));
        assert!(of_level(kept.setup.sampling - 1) > 100);
    }

    #[test]
    fn a_sample_keeps_its_share_of_the_hashes_and_equal_ones_together() {
        let kept = (0..100_000_u64).filter(|&hash| is_sampled(hash, 4)).count();
        assert!((5800..6700).contains(&kept), "{kept} of 6250");
    }
}
