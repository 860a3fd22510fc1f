//! Checkpoints: copies of the index as of one commit, so that recovery need not read the whole log.
//!
//! The table goes on changing while a checkpoint is written. Each bucket is captured once: when the
//! cursor reaches it, or before its first change (copy on write), whichever is earlier. So the
//! image is exactly that of the commit, and a change pays only for the bucket that it touches
//! anyway.
//!
//! # Invariants
//!
//! - A superblock names a checkpoint only when the checkpoint is durable, and the log up to its
//!   commit.
//! - The segment of the previous checkpoint is freed only when no superblock, in the page cache or
//!   on the device, names it any more; or by a close, after which nothing is allocated before a superblock without a checkpoint
//!   is written.
//! - No block of an image is used before its checksum has been verified.
//!
//! # Not here
//!
//! `store` decides when a checkpoint is due and which thread waits for the device; `recovery` reads
//! checkpoints after a crash.
//!
//! # Source
//!
//! Copying a page before its first change, to have a consistent image of a database in use: Rosenkrantz,
//! "Dynamic database dumping", SIGMOD 1978; here the pages are buckets.

mod claims;
mod writer;

pub(crate) use claims::GROUP_BUCKETS;
pub(crate) use writer::CheckpointWriter;

use crate::checksum;
use crate::error::{Error, Result};
use crate::format::{
    Addr, CheckpointName, FILE_BYTES_MAX, GRANULE_BYTES, LSN_MAX, LogStart, SegmentHeader,
    SegmentKind, put_u64, u32_at, u64_at,
};
use crate::index::slot::{Slot, Tag};
use crate::linear::{BucketIndex, Geometry, low_mask};
use crate::live::CommitState;
use crate::region::{Extents, View};
use crate::segments::SegmentTable;
use crate::space::Extent;

/// Largest size of a block of an image, in bytes.
const BLOCK_BYTES: usize = 64 << 10;
/// Size of the head of a block in bytes.
const BLOCK_HEAD_BYTES: usize = 8;
/// Largest number of slots of a group of buckets in one entry.
const GROUP_SLOTS_MAX: usize = 64;
/// Bytes that may be left over at the end of a block, because the next entry does not fit.
const LEFT_OVER_BYTES: usize = ENTRY_HEAD_BYTES + GROUP_BUCKETS as usize + 8 * GROUP_SLOTS_MAX;
/// Size of the part of an entry before the counts of its buckets.
const ENTRY_HEAD_BYTES: usize = 5;
/// Largest number of slots of a bucket in one entry, which has a byte for the count.
const ENTRY_SLOTS_MAX: usize = u8::MAX as usize;
/// Offset of the state.
const STATE_OFFSET: u64 = SegmentHeader::BYTES;

/// The contents of a checkpoint apart from the slots: the state of table and file as of its commit.
///
/// ```text
/// offset  size  field
///      0    64  segment header, kind 7; its log sequence number is that of the commit
///     64     8  bucket count
///     72    24  record count, live bytes, dead bytes, 8 bytes each
///     96    24  where replay continues: offset of the log segment, its salt, offset of the record
///    120     8  sequence number of the next segment
///    128    16  bytes in log segments, bytes in big segments
///    144     8  words of the segment table
///    152     8  bits of an address in a slot of the image
///    160     8  crc32c of the granule with this field zero, then of the salt
///    168    16  the compacted head: offset of its segment, offset of the next record; 0 for none
///    184     8  crc32c of the segment table, then of the salt
///   4096     -  segment table, zeros up to a granule
///      -     -  blocks of 64 KiB at most
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointState {
    pub(crate) geometry: Geometry,
    pub(crate) commit: CommitState,
    /// Where replay continues the log.
    pub(crate) replay_start: LogStart,
    pub(crate) next_sequence: u64,
    pub(crate) log_bytes: u64,
    pub(crate) big_bytes: u64,
    pub(crate) packing: Packing,
    /// The words of the segment table.
    pub(crate) segments: Vec<u64>,
}

pub(crate) const CRC_OFFSET: usize = 160;
/// Offset of the words after the checksum.
const HEAD_OFFSET: usize = 168;
/// Offsets of the number of words of the segment table, and of their checksum.
pub(crate) const TABLE_WORDS_OFFSET: usize = 144;
pub(crate) const TABLE_CRC_OFFSET: usize = 184;

impl CheckpointState {
    /// Returns the state of a table between two changes; `None` if its segments are unknown because
    /// headers of the log are damaged.
    pub(crate) fn of(
        extents: &Extents,
        geometry: Geometry,
        commit: CommitState,
        replay_start: LogStart,
    ) -> Option<Self> {
        let live = extents.region().live();
        Some(Self {
            geometry,
            commit,
            replay_start,
            next_sequence: live.next_sequence(),
            log_bytes: live.log_bytes(),
            big_bytes: live.big_bytes(),
            packing: Packing::new(geometry, address_bits(extents.space().end())),
            segments: extents.segments()?.to_words(),
        })
    }

    /// Returns the size in bytes of the part before the blocks.
    fn head_bytes(&self) -> u64 {
        GRANULE_BYTES + (self.segments.len() as u64 * 8).next_multiple_of(GRANULE_BYTES)
    }

    /// Returns the size in bytes of a segment that has room for the image, regardless of which
    /// thread captures which bucket.
    ///
    /// Each of `thread_count` threads may leave a partly filled block.
    pub(crate) fn segment_bytes_max(&self, thread_count: u64) -> u64 {
        let (record_count, geometry) = (self.commit.record_count, self.geometry);
        self.head_bytes() + blocks_bytes(record_count, geometry, self.packing, thread_count)
    }

    fn encode(&self, header: SegmentHeader) -> Vec<u8> {
        assert_eq!(
            header.base_lsn, self.replay_start.lsn,
            "the segment has the number of its commit"
        );
        let mut block = vec![0; self.head_bytes() as usize];
        block[..SegmentHeader::BYTES as usize].copy_from_slice(&header.encode());
        let CommitState { record_count, live_bytes, dead_bytes, .. } = self.commit;
        let words = [
            self.geometry.bucket_count(),
            record_count,
            live_bytes,
            dead_bytes,
            self.replay_start.segment_offset,
            self.replay_start.salt,
            self.replay_start.record_offset,
            self.next_sequence,
            self.log_bytes,
            self.big_bytes,
            self.segments.len() as u64,
            self.packing.address_bits.into(),
        ];
        for (i, word) in words.into_iter().enumerate() {
            put_u64(&mut block, STATE_OFFSET as usize + 8 * i, word);
        }
        let (first, table) = block.split_at_mut(GRANULE_BYTES as usize);
        for (i, &word) in self.segments.iter().enumerate() {
            put_u64(table, 8 * i, word);
        }
        put_u64(first, HEAD_OFFSET, self.commit.head_segment);
        put_u64(first, HEAD_OFFSET + 8, self.commit.head_offset);
        let table_bytes = &table[..8 * self.segments.len()];
        put_u64(first, TABLE_CRC_OFFSET, state_crc(table_bytes, header.salt).into());
        let crc = state_crc(first, header.salt);
        put_u64(first, CRC_OFFSET, crc.into());
        block
    }

    /// Decodes and validates the first granule of the checkpoint `name` of a file of `file_bytes`,
    /// which is untrusted. Returns the state without the segment table, and the size in bytes and
    /// the checksum of that table.
    pub(crate) fn decode(
        block: &[u8],
        name: CheckpointName,
        file_bytes: u64,
    ) -> Result<(Self, u64, u64)> {
        let offset = name.offset;
        let corrupt = |what, at: usize, expected, found| {
            Err(Error::Corrupt { what, offset: offset + at as u64, expected, found })
        };
        let header = SegmentHeader::decode(&block[..64], offset, file_bytes)?;
        for (what, at, expected, found) in [
            ("segment kind", 4, SegmentKind::Checkpoint as u64, header.kind as u64),
            ("checkpoint size", 16, name.bytes, header.segment_bytes),
            ("checkpoint sequence number", 24, name.lsn, header.base_lsn),
            ("segment salt", 40, name.salt, header.salt),
        ] {
            if expected != found {
                return corrupt(what, at, expected, found);
            }
        }
        let mut zeroed = block.to_vec();
        put_u64(&mut zeroed, CRC_OFFSET, 0);
        let crc = state_crc(&zeroed, name.salt);
        let found = u64_at(block, CRC_OFFSET);
        if found != crc.into() {
            return corrupt("checkpoint checksum", CRC_OFFSET, crc.into(), found);
        }
        let word = |i: usize| u64_at(block, STATE_OFFSET as usize + 8 * i);
        let geometry = Geometry::with_bucket_count(word(0));
        if geometry.bucket_count() != word(0) {
            return corrupt("bucket count", 64, geometry.bucket_count(), word(0));
        }
        if word(1) > file_bytes {
            return corrupt("checkpoint counts", 72, file_bytes, word(1));
        }
        // These counts may come from the unverified live header of a killed process. They are only
        // for `stat`, so it is enough to bound them.
        let figure = |i: usize| word(i).min(file_bytes);
        // The file may have become shorter since the checkpoint, because a close truncates emptied
        // segments at the end. `SegmentTable::mend` removes the entries beyond the end.
        let word_count_max = name.bytes.saturating_sub(GRANULE_BYTES) / 16 * 2;
        if word(10) > word_count_max || !word(10).is_multiple_of(2) {
            return corrupt(
                "segment table of the checkpoint",
                TABLE_WORDS_OFFSET,
                word_count_max,
                word(10),
            );
        }
        let bits = word(11).min(Addr::BITS.into());
        if bits != word(11) {
            return corrupt("bits of an address", 152, bits, word(11));
        }
        let [segment_offset, salt, record_offset] = [4, 5, 6].map(word);
        let state = Self {
            geometry,
            commit: CommitState {
                record_count: word(1),
                live_bytes: figure(2),
                dead_bytes: figure(3),
                tail_offset: record_offset,
                tail_segment: segment_offset,
                head_segment: u64_at(block, HEAD_OFFSET),
                head_offset: u64_at(block, HEAD_OFFSET + 8),
            },
            replay_start: LogStart { segment_offset, salt, lsn: name.lsn, record_offset },
            next_sequence: word(7).min(LSN_MAX),
            log_bytes: figure(8),
            big_bytes: figure(9),
            packing: Packing::new(geometry, bits as u32),
            segments: Vec::new(),
        };
        Ok((state, 8 * word(10), u64_at(block, TABLE_CRC_OFFSET)))
    }
}

/// How the slots of an image are packed: without the bits of the tag that follow from the bucket
/// number, and with only as many address bits as the file needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packing {
    address_bits: u32,
    /// Number of low bits of the tag that follow from the bucket number.
    known_bits: u32,
}

impl Packing {
    /// Returns the packing for a table of this geometry, whose addresses have this many bits.
    fn new(geometry: Geometry, address_bits: u32) -> Self {
        debug_assert!(address_bits <= Addr::BITS);
        let known_bits = geometry.level().saturating_sub(Tag::FIRST_BIT).min(Tag::BITS);
        Self { address_bits, known_bits }
    }

    /// Returns the size of a packed slot in bytes: 1 to 8.
    fn slot_bytes(self) -> usize {
        (Tag::BITS - self.known_bits + self.address_bits).div_ceil(8).max(1) as usize
    }

    /// Packs a slot; `None` if its address does not fit, which means damage.
    #[inline]
    fn pack(self, slot: Slot) -> Option<u64> {
        let address = slot.addr().0;
        let tag = slot.tag().0 >> self.known_bits << self.address_bits;
        (address >> self.address_bits == 0).then_some(tag | address)
    }

    /// Reverses [`pack`](Self::pack) for a slot of `bucket`. Arbitrary input gives some slot.
    #[inline]
    fn unpack(self, packed: u64, bucket: BucketIndex) -> Slot {
        let known = bucket.0 >> Tag::FIRST_BIT & low_mask(self.known_bits);
        let tag = packed >> self.address_bits << self.known_bits | known;
        Slot((tag & low_mask(Tag::BITS)) << Addr::BITS | packed & low_mask(self.address_bits))
    }
}

/// Returns the size in bytes of a segment that has room for the image that a single thread writes
/// of a table with this geometry and record count, in a file that ends at granule `end`, with units
/// of `unit_bytes`. The segment also has room for the image after deletes: a table that loses a
/// level packs one bit more per slot, which may take another byte.
pub(crate) fn segment_bytes_later(
    record_count: u64,
    geometry: Geometry,
    end: u64,
    unit_bytes: u64,
) -> u64 {
    let bytes_of = |record_count, geometry| {
        blocks_bytes(record_count, geometry, Packing::new(geometry, address_bits(end)), 1)
    };
    let least_count = 1 << geometry.level();
    let left_count = u128::from(record_count) * u128::from(least_count);
    let left_count = left_count.div_ceil(geometry.bucket_count().into()) as u64;
    let merged = Geometry::with_bucket_count(least_count - 1);
    let unit_count = (end * GRANULE_BYTES).div_ceil(unit_bytes);
    GRANULE_BYTES
        + (unit_count * SegmentTable::ENTRY_BYTES).next_multiple_of(GRANULE_BYTES)
        + bytes_of(record_count, geometry).max(bytes_of(left_count, merged))
}

/// Returns an upper bound for the bytes of the blocks of an image that `thread_count` threads
/// write.
fn blocks_bytes(record_count: u64, geometry: Geometry, packing: Packing, thread_count: u64) -> u64 {
    // A killed process may have left any count. With a wrong count the image is never completed, so
    // bounding it is enough.
    let record_count = record_count.min(FILE_BYTES_MAX / 8);
    let bucket_count = geometry.bucket_count();
    // A bucket that is captured alone has an entry of its own, and a further one if its chain is
    // long; buckets that a walk captures share an entry per group.
    let entry_count = record_count.min(bucket_count) + record_count / ENTRY_SLOTS_MAX as u64;
    // A single thread captures each bucket alone.
    let groups = if thread_count == 1 {
        0
    } else {
        bucket_count.div_ceil(GROUP_BUCKETS) * (ENTRY_HEAD_BYTES as u64 + GROUP_BUCKETS)
    };
    let bytes = record_count * packing.slot_bytes() as u64
        + entry_count * (ENTRY_HEAD_BYTES as u64 + 1)
        + groups;
    // A block ends where the next entry does not fit; the last block of a thread may end anywhere.
    let block_bytes = (BLOCK_BYTES - BLOCK_HEAD_BYTES - LEFT_OVER_BYTES) as u64;
    let last_bytes = if thread_count == 1 {
        (BLOCK_HEAD_BYTES as u64 + bytes % block_bytes).next_multiple_of(GRANULE_BYTES)
    } else {
        let most = bytes.next_multiple_of(GRANULE_BYTES).min(thread_count * BLOCK_BYTES as u64);
        most + thread_count * GRANULE_BYTES
    };
    bytes / block_bytes * BLOCK_BYTES as u64 + last_bytes
}

/// Returns the number of bits of an address in a file of this many granules.
fn address_bits(granule_count: u64) -> u32 {
    let address_max = granule_count * GRANULE_BYTES / 8;
    (u64::BITS - address_max.leading_zeros()).min(Addr::BITS)
}

/// Returns the checksum of the first granule of a checkpoint, in which the checksum field is zero.
pub(crate) fn state_crc(block: &[u8], salt: u64) -> u32 {
    checksum::crc32c_append_words(0, block, [salt])
}

/// Computes the checksum of a block at `offset` of the file.
pub(crate) fn block_crc(bytes: &[u8], salt: u64, offset: u64) -> u32 {
    checksum::crc32c_append_words(0, &bytes[4..], [salt, offset])
}

/// Frees the segment that one of the two checkpoint places of the live header names.
fn release(extents: &mut Extents, place: usize) {
    let region = extents.region().clone();
    let live = region.live();
    let Some(extent) = live.checkpoint_extents()[place] else { return };
    // A killed process may have left a record of granules that are free.
    if !extents.space().is_free(extent) {
        let (offset, bytes) = (extent.granule * GRANULE_BYTES, extent.count * GRANULE_BYTES);
        extents.release_segment(offset..offset + bytes);
    }
    live.set_checkpoint_extent(place, None);
}

/// Frees the segments of all checkpoints except `kept`.
pub(crate) fn release_all_but(extents: &mut Extents, kept: Option<CheckpointName>) {
    for (place, extent) in extents.region().live().checkpoint_extents().into_iter().enumerate() {
        if extent.is_some_and(|extent| !kept.is_some_and(|name| is_place_of(extent, name))) {
            release(extents, place);
        }
    }
    let mut left = extents.region().live().checkpoint_extents().into_iter().flatten();
    let is_kept = |extent| kept.is_some_and(|name| is_place_of(extent, name));
    assert!(left.all(is_kept), "no other one is left");
}

/// Returns whether `extent`, as listed in the live header, is the segment of a checkpoint. It may
/// be longer than the checkpoint, because the rest is kept for the next one.
pub(crate) fn is_place_of(extent: Extent, name: CheckpointName) -> bool {
    let named = extent_of(name);
    extent.granule == named.granule && extent.count >= named.count
}

/// Returns whether a checkpoint has the format of an older version, which is not damage but cannot
/// be used.
pub(crate) fn is_of_older_version(view: &View, name: CheckpointName) -> bool {
    view.segment(name.offset).is_ok_and(|header| header.kind == SegmentKind::OldCheckpoint)
}

/// Returns the distance in bytes from a block of this size to the next block.
pub(crate) fn block_step(block_bytes: usize) -> u64 {
    (block_bytes as u64).next_multiple_of(GRANULE_BYTES)
}

/// Returns the granules of a checkpoint.
pub(crate) fn extent_of(name: CheckpointName) -> Extent {
    Extent { granule: name.offset / GRANULE_BYTES, count: name.bytes / GRANULE_BYTES }
}

/// A checkpoint that is being read.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    name: CheckpointName,
    pub(crate) state: CheckpointState,
}

impl Image {
    /// Reads the first granule and the segment table of a checkpoint that a superblock names.
    pub(crate) fn open(view: &View, name: CheckpointName) -> Result<Self> {
        let block = view.checkpoint_bytes("checkpoint offset", name, 0, GRANULE_BYTES)?;
        let (mut state, table_bytes, found) =
            CheckpointState::decode(block, name, view.file_bytes())?;
        let what = "segment table of the checkpoint";
        let table = view.checkpoint_bytes(what, name, GRANULE_BYTES, table_bytes)?;
        let expected = state_crc(table, name.salt).into();
        if found != expected {
            let offset = name.offset + TABLE_CRC_OFFSET as u64;
            return Err(Error::Corrupt { what, offset, expected, found });
        }
        state.segments = table.chunks_exact(8).map(|word| u64_at(word, 0)).collect();
        Ok(Self { name, state })
    }

    /// Returns the name that the superblock has for it.
    pub(crate) fn name(&self) -> CheckpointName {
        self.name
    }

    /// Calls `each` with every bucket that `is_wanted` and its slots, a bucket perhaps more than
    /// once; `ahead` with the first bucket of an entry some time before that; after each block `read`
    /// with its size in bytes. Stops at damage.
    pub(crate) fn for_each_entry(
        &self,
        view: &View,
        is_wanted: impl Fn(BucketIndex) -> bool,
        mut each: impl FnMut(BucketIndex, &[Slot]) -> Result<()>,
        mut ahead: impl FnMut(BucketIndex),
        mut read: impl FnMut(u64),
    ) -> Result<()> {
        let mut left = self.state.commit.record_count;
        let mut at = self.state.head_bytes();
        let mut slots = Vec::with_capacity(ENTRY_SLOTS_MAX);
        while left > 0 {
            let offset = self.name.offset + at;
            let block = self.block(view, at, left)?;
            let entries = Entries::new(&block[BLOCK_HEAD_BYTES..], self.state.packing);
            let mut later = entries.clone().skip(ENTRIES_AHEAD);
            for entry in entries {
                if let Some(Some(entry)) = later.next() {
                    ahead(entry.first);
                }
                let entry = entry.ok_or_else(|| short(offset, left))?;
                for (bucket, packed) in entry.buckets() {
                    let is_inside = bucket.0 < self.state.geometry.bucket_count();
                    let slot_count = packed.len() as u64;
                    if !is_inside || slot_count > left {
                        return Err(short(offset, left));
                    }
                    left -= slot_count;
                    if is_wanted(bucket) {
                        slots.clear();
                        let unpack = |packed| self.state.packing.unpack(packed, bucket);
                        slots.extend(packed.map(unpack));
                        each(bucket, &slots)?;
                    }
                }
            }
            at += block_step(block.len());
            read(block.len() as u64);
        }
        Ok(())
    }

    /// Returns the block at `at` of the segment, whose checksum is right; `left` slots are missing.
    fn block<'a>(&self, view: &'a View, at: u64, left: u64) -> Result<&'a [u8]> {
        let offset = self.name.offset + at;
        let room = self.name.bytes.saturating_sub(at).min(BLOCK_BYTES as u64);
        if room < BLOCK_HEAD_BYTES as u64 {
            return Err(short(offset, left));
        }
        let room = view.checkpoint_bytes("checkpoint block", self.name, at, room)?;
        let bytes = u32_at(room, 4) as usize;
        let Some(block) = room.get(..bytes).filter(|_| bytes > BLOCK_HEAD_BYTES) else {
            let (expected, found) = (room.len() as u64, bytes as u64);
            let what = "checkpoint block size";
            return Err(Error::Corrupt { what, offset: offset + 4, expected, found });
        };
        let (expected, found) = (block_crc(block, self.name.salt, offset), u32_at(block, 0));
        if expected != found {
            let (expected, found) = (expected.into(), found.into());
            let what = "checkpoint block checksum";
            return Err(Error::Corrupt { what, offset, expected, found });
        }
        Ok(block)
    }
}

/// How many entries ahead `ahead` gets their first bucket.
const ENTRIES_AHEAD: usize = 3;

/// The entries of a block, which may say anything: `None` where the rest is no entry.
#[derive(Clone)]
struct Entries<'a> {
    rest: &'a [u8],
    packing: Packing,
}

/// The slots of some buckets that follow each other.
struct Entry<'a> {
    first: BucketIndex,
    counts: &'a [u8],
    /// The slots, and what follows them in the block.
    slots: &'a [u8],
    slot_bytes: usize,
}

impl<'a> Entries<'a> {
    fn new(rest: &'a [u8], packing: Packing) -> Self {
        Self { rest, packing }
    }

    fn split_first(&self) -> Option<(Entry<'a>, &'a [u8])> {
        let (head, rest) = self.rest.split_at_checked(ENTRY_HEAD_BYTES)?;
        let (counts, rest) = rest.split_at_checked(head[4].into())?;
        let slot_bytes = self.packing.slot_bytes();
        let slot_count = counts.iter().map(|&count| usize::from(count)).sum::<usize>();
        let after = rest.get(slot_count * slot_bytes..)?;
        let first = BucketIndex(u32_at(head, 0).into());
        Some((Entry { first, counts, slots: rest, slot_bytes }, after))
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Option<Entry<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let split = self.split_first();
        self.rest = split.as_ref().map_or(&[], |(_, rest)| rest);
        Some(split.map(|(entry, _)| entry))
    }
}

impl Entry<'_> {
    /// Returns the buckets, each with its packed slots.
    fn buckets(
        &self,
    ) -> impl Iterator<Item = (BucketIndex, impl ExactSizeIterator<Item = u64> + '_)> + '_ {
        let mut start = 0;
        (self.first.0..).zip(self.counts).map(move |(bucket, &count)| {
            let slots = start..start + usize::from(count);
            start = slots.end;
            (BucketIndex(bucket), slots.map(|i| self.packed(i * self.slot_bytes)))
        })
    }

    /// Returns the packed slot at `at`.
    #[inline]
    fn packed(&self, at: usize) -> u64 {
        // One load, except at the end of a block.
        let word = if let Some(bytes) = self.slots[at..].first_chunk() {
            u64::from_le_bytes(*bytes)
        } else {
            let mut word = [0; 8];
            let rest = &self.slots[at..][..self.slot_bytes];
            word[..rest.len()].copy_from_slice(rest);
            u64::from_le_bytes(word)
        };
        word & low_mask(8 * self.slot_bytes as u32)
    }
}

fn short(offset: u64, left: u64) -> Error {
    Error::Corrupt { what: "checkpoint entries", offset, expected: left, found: 0 }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;
    use crate::hash::{HashFunction, HashId};
    use crate::{Db, Durability, Options, SimDisk};

    /// Granules of a file of 3 MiB.
    const END: u64 = 768;

    fn state(record_count: u64, bucket_count: u64) -> CheckpointState {
        let geometry = Geometry::with_bucket_count(bucket_count);
        CheckpointState {
            geometry,
            commit: CommitState { record_count, ..CommitState::default() },
            replay_start: LogStart::default(),
            next_sequence: 1,
            log_bytes: 0,
            big_bytes: 0,
            packing: Packing::new(geometry, address_bits(END)),
            segments: vec![0; 2 * END as usize],
        }
    }

    #[test]
    fn the_image_of_a_few_more_records_takes_a_few_bytes_more() {
        for record_count in (0..100_000).step_by(100) {
            let bytes_of = |count: u64| state(count, 1 + count / 5).segment_bytes_max(1);
            let (before, after) = (bytes_of(record_count), bytes_of(record_count + 100));
            assert!(after <= before + 2 * GRANULE_BYTES, "{record_count}: {before}, {after}");
        }
    }

    /// A place is held back for the next checkpoint of a full disk: no delete may make that larger.
    #[test]
    fn a_place_for_an_image_has_room_for_that_of_each_table_with_fewer_keys() {
        let mut larger_count = 0;
        for record_count in (100..60_000).step_by(500) {
            let before = state(record_count, record_count / 5);
            let place_bytes = segment_bytes_later(record_count, before.geometry, END, 4096);
            for left_count in (0..record_count).step_by(10) {
                let image_bytes = state(left_count, left_count / 5).segment_bytes_max(1);
                assert!(image_bytes <= place_bytes, "{left_count} of {record_count}");
                larger_count += u64::from(image_bytes > before.segment_bytes_max(1));
            }
        }
        assert!(larger_count > 10, "some take a byte more for each slot: {larger_count}");
    }

    /// Makes checkpoints of a table that grows, by one thread, and returns how many blocks the last one has.
    fn grow(options: Options, counts: &[u64]) -> u64 {
        let options = options.segment_bytes_min(4096).durability(Durability::Buffered).seed(1);
        let db: Db = SimDisk::new().open(&options).expect("a new store");
        let mut bytes = 0;
        for counts in counts.windows(2) {
            for i in counts[0]..counts[1] {
                db.put(i.to_le_bytes(), b"").expect("there is room");
            }
            let store = db.store();
            let bytes_max = {
                let writer = store.lock().expect("nobody panics");
                store.checkpoint_state(&writer).expect("it has segments").segment_bytes_max(1)
            };
            store.checkpoint_now().expect("it fits");
            let name = store.lock().expect("nobody panics").superblock.checkpoint;
            bytes = name.expect("one was made").bytes;
            assert!(bytes <= bytes_max, "{counts:?}: {bytes} of {bytes_max}");
            assert!(bytes_max <= bytes + bytes / 3 + 2 * GRANULE_BYTES, "{bytes} of {bytes_max}");
        }
        bytes / BLOCK_BYTES as u64
    }

    #[test]
    fn an_image_that_one_thread_makes_fits_and_leaves_little() {
        let counts = [0, 1, 2, 60, 255, 256, 257, 800, 1500, 6000, 10_000, 13_000, 13_100, 20_000];
        assert!(grow(Options::new(), &counts) > 1);
        assert!(grow(Options::new().fill_factor(1.0), &counts[..11]) > 0);
        let few_bits = |key: &[u8], _| crate::hash::fnv1a_64(key) & 0b0001_0011;
        let hash = HashFunction::user(HashId(0x8000_0001), "few-bits", few_bits);
        // Chains of hundreds of slots.
        grow(Options::new().hash(hash.expect("an id of ours")), &counts[..9]);
    }
}
