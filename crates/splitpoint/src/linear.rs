//! Linear-hash arithmetic: which bucket a hash belongs to, and what a split or a merge moves.
//!
//! ```text
//! level 2, split 1: 5 buckets          bucket 0 has been divided in this round
//!   0   1   2   3 | 4                  bucket 1 is next: split pointer
//!   ^divided          ^its other half
//! ```
//!
//! A table of `N = 2^level + split` buckets grows by dividing bucket `split` into itself and bucket
//! `N`. The geometry alone fixes the order of splits, whichever bucket overflows; that is what
//! makes the hashing linear. All functions are pure and total, and none allocates.
//!
//! ```
//! use splitpoint::linear::{BucketIndex, Geometry};
//!
//! // A table of one bucket splits three times: bucket 0, then 0 and 1 of the next round.
//! let mut table = Geometry::ONE;
//! let mut split = Vec::new();
//! while let Some(plan) = table.plan_split().filter(|plan| plan.upper.0 < 4) {
//!     split.push(plan.lower);
//!     table = plan.after;
//! }
//! assert_eq!(split, [BucketIndex(0), BucketIndex(0), BucketIndex(1)]);
//! assert_eq!(table.bucket_of(0b0110), BucketIndex(0b10));
//! ```
//!
//! # Source
//!
//! Litwin, "Linear hashing", VLDB 1980; Larson, "Dynamic hash tables", CACM 1988; Seltzer and
//! Yigit, "A new hashing package for UNIX", USENIX Winter 1991, whose `low_mask` and `high_mask`
//! are [`low_mask`]`(level)` and [`low_mask`]`(level + 1)`.

/// Largest number of buckets a table may have.
pub const BUCKET_COUNT_MAX: u64 = 1 << 32;

/// Number of a bucket, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BucketIndex(pub u64);

/// Returns a mask of the `bits` lowest bits.
#[inline]
pub const fn low_mask(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// Shape of a linear-hash table: `2^level + split` buckets.
///
/// Invariant: `split < 2^level`, so the bucket count alone determines both.
///
/// # Examples
///
/// ```
/// use splitpoint::linear::{BucketIndex, Geometry};
///
/// let five = Geometry::with_bucket_count(5);
/// assert_eq!((five.level(), five.split()), (2, 1));
/// assert_eq!(five.bucket_of(0b100), BucketIndex(4)); // Bucket 0 was divided: one more bit counts.
/// assert_eq!(five.bucket_of(0b101), BucketIndex(1)); // Bucket 1 was not.
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    bucket_count: u64,
}

/// What one split or merge will do: pure data, before anything is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The bucket that a split divides, or into which a merge joins.
    pub lower: BucketIndex,
    /// The last bucket: new after a split, gone after a merge.
    pub upper: BucketIndex,
    /// The bit of the hash that selects between the two, counted from 0.
    pub bit: u32,
    /// The shape of the table afterwards.
    pub after: Geometry,
}

impl Plan {
    /// A bit that selects no bucket, for a merge: it moves every slot, whatever its hash.
    pub(crate) const NO_BIT: u32 = 63;
}

impl Geometry {
    /// A table of one bucket.
    pub const ONE: Self = Self { bucket_count: 1 };

    /// Returns the shape with `bucket_count` buckets, clamped to 1 ..= [`BUCKET_COUNT_MAX`].
    pub const fn with_bucket_count(bucket_count: u64) -> Self {
        let bucket_count = if bucket_count == 0 {
            1
        } else if bucket_count > BUCKET_COUNT_MAX {
            BUCKET_COUNT_MAX
        } else {
            bucket_count
        };
        Self { bucket_count }
    }

    /// Returns the number of buckets.
    #[inline]
    pub const fn bucket_count(self) -> u64 {
        self.bucket_count
    }

    /// Returns the number of finished doublings.
    #[inline]
    pub const fn level(self) -> u32 {
        self.bucket_count.ilog2()
    }

    /// Returns the bucket that will be divided next.
    #[inline]
    pub const fn split(self) -> u64 {
        self.bucket_count - (1 << self.level())
    }

    /// Returns the bucket in which `hash` belongs.
    ///
    /// The buckets before the split pointer have been divided in this round, so one more bit of the
    /// hash counts for them.
    #[inline]
    pub const fn bucket_of(self, hash: u64) -> BucketIndex {
        // One bit more than the level has, and one shift for both: this is in every lookup.
        let mask = u64::MAX >> self.bucket_count.leading_zeros();
        let bucket = hash & mask;
        let bucket = if bucket >= self.bucket_count { hash & mask >> 1 } else { bucket };
        debug_assert!(bucket < self.bucket_count);
        BucketIndex(bucket)
    }

    /// Plans the next split, or `None` when the table has [`BUCKET_COUNT_MAX`] buckets.
    pub const fn plan_split(self) -> Option<Plan> {
        if self.bucket_count >= BUCKET_COUNT_MAX {
            return None;
        }
        Some(Plan {
            lower: BucketIndex(self.split()),
            upper: BucketIndex(self.bucket_count),
            bit: self.level(),
            after: Self { bucket_count: self.bucket_count + 1 },
        })
    }

    /// Plans the merge that undoes the last split, or `None` when one bucket is left.
    pub const fn plan_merge(self) -> Option<Plan> {
        if self.bucket_count <= 1 {
            return None;
        }
        let after = Self { bucket_count: self.bucket_count - 1 };
        Some(Plan {
            lower: BucketIndex(after.split()),
            upper: BucketIndex(after.bucket_count),
            bit: after.level(),
            after,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bucket as db 1.85 computes it, from its two masks.
    fn bucket_of_1991(hash: u64, max_bucket: u64, low_mask: u64, high_mask: u64) -> u64 {
        let bucket = hash & high_mask;
        if bucket > max_bucket { bucket & low_mask } else { bucket }
    }

    /// Covers every shape up to 64 buckets with every hash that its masks can tell apart. The masks
    /// are kept as db 1.85 keeps them, by doubling at the end of each round.
    #[test]
    fn bucket_of_agrees_with_the_1991_masks() {
        let (mut low, mut high) = (0, 1);
        for bucket_count in 1..=64_u64 {
            let max_bucket = bucket_count - 1;
            if max_bucket > high {
                low = high;
                high = (high << 1) | 1;
            }
            let shape = Geometry::with_bucket_count(bucket_count);
            for hash in 0..256 {
                let expected = bucket_of_1991(hash, max_bucket, low, high);
                assert_eq!(shape.bucket_of(hash).0, expected, "{bucket_count} buckets, {hash:#b}");
            }
        }
    }

    #[test]
    fn split_moves_only_hashes_with_the_planned_bit_set() {
        for bucket_count in 1..=64 {
            let before = Geometry::with_bucket_count(bucket_count);
            let plan = before.plan_split().expect("64 is below the most");
            for hash in 0..1024_u64 {
                let (from, to) = (before.bucket_of(hash), plan.after.bucket_of(hash));
                if from == plan.lower && hash >> plan.bit & 1 == 1 {
                    assert_eq!(to, plan.upper);
                } else {
                    assert_eq!(to, from);
                }
            }
        }
    }

    #[test]
    fn merge_undoes_the_split() {
        for bucket_count in 1..=64 {
            let before = Geometry::with_bucket_count(bucket_count);
            let split = before.plan_split().expect("64 is below the most");
            let merge = split.after.plan_merge().expect("two buckets or more");
            assert_eq!(
                (merge.lower, merge.upper, merge.bit),
                (split.lower, split.upper, split.bit)
            );
            assert_eq!(merge.after, before);
        }
        assert_eq!(Geometry::ONE.plan_merge(), None);
    }

    #[test]
    fn the_largest_table_is_not_split_and_addresses_every_bucket() {
        let most = Geometry::with_bucket_count(u64::MAX);
        assert_eq!(most.bucket_count(), BUCKET_COUNT_MAX);
        assert_eq!(most.plan_split(), None);
        assert_eq!(most.bucket_of(u64::MAX), BucketIndex(BUCKET_COUNT_MAX - 1));
    }
}
