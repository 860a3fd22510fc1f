//! The cost of buckets that are pages: reads of a lookup, and keys in overflow pages.
//!
//! A bucket of `k` keys fills one page of `b` slots, and then overflow pages. A lookup finds key
//! `i` of the bucket with `ceil(i / b)` reads; a miss reads all `max(1, ceil(k / b))` pages.
//!
//! # Source
//!
//! Larson, "Dynamic hash tables", CACM 1988; Knuth, The Art of Computer Programming 3, 6.4. Halfway
//! through a doubling, the ideal of a linear-hashed table is the mixture of its two kinds of
//! buckets, which costs more than its mean load suggests.

use serde::{Deserialize, Serialize};

use crate::occupancy::Occupancy;

/// Slots of the pages in a report: 64 bytes to 4 KiB of 8-byte slots and one extra word.
///
/// 7 is a bucket line of a Splitpoint store.
pub const PAGE_SLOTS: [u64; 5] = [7, 15, 31, 63, 511];

/// The cost of lookups if the buckets are pages of [`Self::slots`] slots.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PageCost {
    /// Slots of a page.
    pub slots: u64,
    /// Mean reads of a hit.
    pub reads_hit: f64,
    /// The same for an ideal hash.
    pub reads_hit_ideal: f64,
    /// Mean reads of a miss.
    pub reads_miss: f64,
    /// The same for an ideal hash.
    pub reads_miss_ideal: f64,
    /// Share of the keys that are not in the first page of their bucket.
    pub overflow_share: f64,
    /// The same for an ideal hash.
    pub overflow_share_ideal: f64,
}

impl PageCost {
    /// Returns the cost of a table with pages of `slots` slots.
    ///
    /// # Panics
    ///
    /// If a page has no slot.
    ///
    /// # Cost
    ///
    /// O(different sizes + slots).
    pub fn new(occupancy: &Occupancy, slots: u64) -> Self {
        assert!(slots > 0, "a page has slots");
        let key_count = occupancy.key_count().max(1) as f64;
        let (mut hit, mut overflow) = (0_u128, 0_u64);
        for (&size, &buckets) in occupancy.bucket_count_by_size() {
            hit += reads_of_all(size, slots) * u128::from(buckets);
            overflow += size.saturating_sub(slots) * buckets;
        }
        let reads = |size: u64| size.div_ceil(slots).max(1) as f64;
        Self {
            slots,
            reads_hit: hit as f64 / key_count,
            reads_hit_ideal: occupancy.ideal().probes_hit(slots),
            reads_miss: occupancy.mean_of_miss(reads),
            reads_miss_ideal: occupancy.ideal().probes_miss(slots),
            overflow_share: overflow as f64 / key_count,
            overflow_share_ideal: overflow_ideal(occupancy, slots) / key_count,
        }
    }
}

/// Returns the reads to find each of `size` keys once: the sum of `ceil(i / slots)`.
fn reads_of_all(size: u64, slots: u64) -> u128 {
    let (full, rest) = (u128::from(size / slots), u128::from(size % slots));
    u128::from(slots) * full * (full + 1) / 2 + rest * (full + 1)
}

/// Returns the keys expected beyond the first `slots` of their buckets.
///
/// `E[max(K - b, 0)] = E[K] - b + E[max(b - K, 0)]`, of which the last has `b` terms only.
fn overflow_ideal(occupancy: &Occupancy, slots: u64) -> f64 {
    let ideal = occupancy.ideal();
    let free: f64 = (0..slots).map(|size| (slots - size) as f64 * ideal.bucket_count(size)).sum();
    let room = slots as f64 * occupancy.bucket_count() as f64;
    (occupancy.key_count() as f64 - room + free).max(0.0)
}
