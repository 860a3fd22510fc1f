//! The progress of a repair, and its report: what it found, saved and could not save.

use std::fmt;

/// A range of a file whose bytes are damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedRange {
    /// Start of the range, in bytes from the start of the file.
    pub offset: u64,
    /// Size of the range in bytes.
    pub bytes: u64,
}

impl fmt::Display for DamagedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at byte {}", self.bytes, self.offset)
    }
}

/// What a repair found, saved and could not save.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairReport {
    /// Size of the damaged file in bytes.
    pub file_bytes: u64,
    /// Keys in the new store.
    pub key_count: u64,
    /// Valid records that were read, links and deletes included.
    pub record_count: u64,
    /// Size of those records in bytes.
    pub record_bytes: u64,
    /// Valid superblocks, of two; a store that was never changed has one.
    pub superblock_count: u32,
    /// Whether the log ends as a writer leaves it, and not in a damaged range; there may be damage
    /// before the end.
    pub is_tail_found: bool,
    /// Whether the live header agrees that the log ends there. Where it is damaged too, a log whose
    /// last sectors are lost as zeros cannot be told from a whole one.
    pub is_end_known: bool,
    /// Log segments from which records were read.
    pub segment_count: u64,
    /// Log segments that are missing altogether: a lower bound.
    pub lost_segment_count: u64,
    /// The first damaged ranges among the records, at most [`RepairReport::RANGES_MAX`].
    pub damaged: Vec<DamagedRange>,
    /// Number of damaged ranges in all.
    pub damaged_count: u64,
    /// Bytes of the log that are known to be missing: damaged, overwritten or cut off.
    pub missing_bytes: u64,
    /// Big records that the log names but that are damaged: their keys and values are lost.
    pub lost_big_count: u64,
    /// Big records that were saved although the records that name them are lost. Perhaps they were
    /// never part of the log.
    pub doubtful_count: u64,
    /// Records of batches that were saved although damage hides whether all of their batch was
    /// written: perhaps it was never committed, or some of its changes are lost.
    pub doubtful_batched_count: u64,
    /// Records of batches that were never committed because of an error or a crash. They were not
    /// saved: opening the store would drop them, too.
    pub uncommitted_count: u64,
    /// Deletes whose key is not known: up to that many deleted keys may have come back.
    pub unknown_delete_count: u64,
    /// Whether the index and the checkpoint of a store that was compacted are both lost. Then every
    /// valid record was considered: deleted keys may have come back, and values may be older than
    /// the last.
    pub is_order_lost: bool,
    /// Segments with a valid header that are not part of the log: an earlier recovery dropped them,
    /// or they were never finished.
    pub ignored_segment_count: u64,
    /// Bytes of valid records that are not part of the log, for the same reasons.
    pub ignored_bytes: u64,
    /// Blocks of 4 KiB that the disk could not read.
    pub unreadable_count: u64,
    /// The name of the hash function of the damaged store, if the new one has another.
    pub replaced_hash: Option<String>,
}

impl RepairReport {
    /// Most damaged ranges that a report lists; any others are only counted.
    pub const RANGES_MAX: usize = 1000;

    /// Returns whether nothing is known to be lost, so that the new store has exactly the content
    /// of the old one. The file may still have damage elsewhere, in superblocks, headers or the
    /// index, that did no harm.
    pub fn is_whole(&self) -> bool {
        self.is_tail_found
            && self.missing_bytes == 0
            && self.lost_segment_count == 0
            && self.lost_big_count == 0
            && self.doubtful_count == 0
            && self.doubtful_batched_count == 0
            && self.unknown_delete_count == 0
            && !self.is_order_lost
            && self.unreadable_count == 0
    }

    /// Returns an upper bound of the keys that may have come back after they were deleted, or have
    /// an older value than the last: one for each record that fits in the missing bytes, and every
    /// key if [`is_order_lost`](Self::is_order_lost).
    pub fn stale_max(&self) -> u64 {
        if self.is_order_lost {
            return self.key_count;
        }
        let at_least_each = self.lost_segment_count + self.lost_big_count;
        self.unknown_delete_count
            + self.doubtful_count
            + self.doubtful_batched_count
            + at_least_each
            + self.missing_bytes.div_ceil(RECORD_BYTES_MIN)
    }

    /// Adds a damaged range.
    pub(super) fn note(&mut self, offset: u64, bytes: u64) {
        self.damaged_count += 1;
        if self.damaged.len() < Self::RANGES_MAX {
            self.damaged.push(DamagedRange { offset, bytes });
        }
    }
}

/// Size in bytes of the smallest record: a key that is stored for the first time.
const RECORD_BYTES_MIN: u64 = 8;

/// Progress of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairProgress {
    /// The current phase: `search`, `verify` and `save`, in this order.
    pub phase: &'static str,
    /// Records saved so far.
    pub records: u64,
    /// Bytes of the file that this phase has finished.
    pub bytes: u64,
    /// Size of the file in bytes.
    pub bytes_total: u64,
}
