//! Writes the image of a table that goes on changing.
//!
//! The writer captures each bucket that it is about to change. The other buckets are walked in
//! order by a background thread ([`Walker`]) or, if there is none, by the writer itself, a few with
//! each change. Both write blocks to the same segment, in any order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::claims::{Claims, GROUP_BUCKETS};
use super::{
    BLOCK_BYTES, BLOCK_HEAD_BYTES, CheckpointState, ENTRY_HEAD_BYTES, ENTRY_SLOTS_MAX,
    GROUP_SLOTS_MAX, Packing, block_crc, block_step, extent_of, release,
};
use crate::error::{Error, Result};
use crate::format::{CheckpointName, GRANULE_BYTES, SegmentHeader, SegmentKind, put_u32};
use crate::index::Lines;
use crate::index::lookup::for_each_line;
use crate::linear::BucketIndex;
use crate::live::LineWindow;
use crate::region::{Extents, Region};
use crate::space::Extent;

/// Groups of buckets by which the prefetch of the background thread runs ahead.
const GROUPS_AHEAD: u64 = 4;

/// Groups of buckets between two checks for other work of the background thread.
const GROUPS_BETWEEN: u64 = 256;

/// An image in progress: the part of the writer.
#[derive(Debug)]
pub(crate) struct CheckpointWriter {
    shared: Arc<Shared>,
    state: CheckpointState,
    /// The name that a superblock will have for it when it is complete.
    name: CheckpointName,
    /// The index of the place in the live header that names the segment.
    place: usize,
    sequence: u64,
    /// Bytes of the segment to keep for the next checkpoint, when this one is complete.
    kept_bytes: u64,
    /// The next bucket of the walk, if the writer walks the buckets itself.
    cursor: u64,
    entries: EntryWriter,
}

/// The same image: the part of the background thread that walks the buckets.
#[derive(Debug)]
pub(crate) struct Walker {
    shared: Arc<Shared>,
    entries: EntryWriter,
}

/// The part of an image in progress that both threads share.
#[derive(Debug)]
struct Shared {
    /// The segment, which may be longer than the image will be.
    segment: CheckpointName,
    packing: Packing,
    bucket_count: u64,
    record_count: u64,
    claims: Claims,
    /// Offset of the next block, from the start of the segment.
    next_block: AtomicU64,
    /// End of the last block.
    end: AtomicU64,
    /// Whether a write has failed, so that the image can never be completed.
    has_failed: AtomicBool,
}

impl CheckpointWriter {
    /// Begins the image of a table in this state, written by `thread_count` threads, and allocates
    /// its segment. An image written by a single thread may use the reserve, if there is no other
    /// space.
    pub(crate) fn begin(
        extents: &mut Extents,
        state: CheckpointState,
        salt: u64,
        thread_count: u64,
    ) -> Result<Self> {
        let region = &extents.region().clone();
        assert!(state.replay_start.segment_offset != 0, "a checkpoint is of a log");
        let bytes = state.segment_bytes_max(thread_count);
        let live = region.live();
        let place = live.checkpoint_extents().iter().position(Option::is_none);
        let place = place.ok_or(Error::Full { what: "checkpoint places", bytes })?;
        let note = |extent| live.set_checkpoint_extent(place, Some(extent));
        let (offset, bytes, kept_bytes) = take_place(extents, bytes, thread_count == 1, note)?;
        assert!(offset.is_multiple_of(GRANULE_BYTES) && bytes.is_multiple_of(GRANULE_BYTES));
        let segment = CheckpointName { offset, bytes, lsn: state.replay_start.lsn, salt };
        let bucket_count = state.geometry.bucket_count();
        Ok(Self {
            shared: Arc::new(Shared {
                segment,
                packing: state.packing,
                bucket_count,
                record_count: state.commit.record_count,
                claims: Claims::new(bucket_count),
                next_block: AtomicU64::new(state.head_bytes()),
                end: AtomicU64::new(state.head_bytes()),
                has_failed: AtomicBool::new(false),
            }),
            name: segment,
            place,
            sequence: state.next_sequence,
            state,
            kept_bytes,
            cursor: 0,
            entries: EntryWriter::default(),
        })
    }

    /// Returns the name that a superblock will have for it.
    pub(crate) fn name(&self) -> CheckpointName {
        self.name
    }

    /// Returns the number of buckets in the image.
    pub(crate) fn bucket_count(&self) -> u64 {
        self.shared.bucket_count
    }

    /// Frees the segment of an image that no superblock will name. No thread may be walking.
    pub(crate) fn release(&self, extents: &mut Extents) {
        release(extents, self.place);
    }

    /// Returns the walker for a background thread.
    pub(crate) fn walker(&self) -> Walker {
        Walker { shared: self.shared.clone(), entries: EntryWriter::default() }
    }

    /// Captures a bucket that is about to change, unless it has been captured already or is younger
    /// than the image. After an error the image can never be completed, and nothing more is
    /// written.
    #[inline]
    pub(crate) fn capture(&mut self, region: &Region, bucket: BucketIndex) -> Result<()> {
        if !self.shared.claims.claim(bucket.0) || self.shared.has_failed() {
            return Ok(());
        }
        let added = self.entries.add_bucket(&self.shared, region, bucket);
        added.inspect_err(|_| self.shared.fail())
    }

    /// Captures the next `bucket_count` buckets, for a walk without a background thread. Returns
    /// whether the image is complete.
    ///
    /// A bucket that a merge has removed was captured before the merge.
    pub(crate) fn advance(&mut self, extents: &mut Extents, bucket_count: u64) -> Result<bool> {
        let region = &extents.region().clone();
        let end = (self.cursor + bucket_count).min(self.shared.bucket_count);
        while self.cursor < end {
            self.capture(region, BucketIndex(self.cursor))?;
            self.cursor += 1;
        }
        if self.cursor < self.shared.bucket_count {
            return Ok(false);
        }
        self.complete(extents, 0).map(|()| true)
    }

    /// Completes the image after every bucket has been captured, `walked_count` slots of them by
    /// the background thread, and frees the unused end of the segment.
    pub(crate) fn complete(&mut self, extents: &mut Extents, walked_count: u64) -> Result<()> {
        let region = &extents.region().clone();
        self.entries.write_block(&self.shared, region)?;
        let found = self.entries.slot_count + walked_count;
        if found != self.shared.record_count || self.shared.has_failed() {
            return Err(self.shared.wrong_count(found));
        }
        let CheckpointName { offset, bytes: bytes_max, lsn, salt } = self.shared.segment;
        let bytes = self.shared.end.load(Ordering::Relaxed).next_multiple_of(GRANULE_BYTES);
        self.name = CheckpointName { bytes, ..self.shared.segment };
        let header = SegmentHeader {
            kind: SegmentKind::Checkpoint,
            sequence: self.sequence,
            segment_bytes: bytes,
            base_lsn: lsn,
            previous_offset: 0,
            salt,
        };
        let first = self.state.encode(header);
        region.write("write the checkpoint of", |storage| storage.write_at(offset, &first))?;
        let kept = CheckpointName { bytes: bytes.max(self.kept_bytes), ..self.name };
        region.live().set_checkpoint_extent(self.place, Some(extent_of(kept)));
        assert!(bytes <= bytes_max, "every block is in the segment");
        if kept.bytes < bytes_max {
            extents.release_segment(offset + kept.bytes..offset + bytes_max);
        }
        Ok(())
    }
}

/// Allocates a segment of at least `bytes` for a checkpoint. Returns its offset, its size, and how
/// many bytes to keep for the next checkpoint.
fn take_place(
    extents: &mut Extents,
    bytes: u64,
    may_be_held: bool,
    note: impl Fn(Extent) + Copy,
) -> Result<(u64, u64, u64)> {
    let Some(needs) = extents.needs() else {
        return Ok((extents.allocate_noted(bytes, GRANULE_BYTES, note)?, bytes, 0));
    };
    let unit = needs.segment_bytes_min;
    let kept_bytes = needs.place_bytes.next_multiple_of(unit);
    let whole_bytes = bytes.max(kept_bytes);
    if !may_be_held {
        let offset = extents.allocate_noted(whole_bytes, unit, note)?;
        return Ok((offset, whole_bytes, kept_bytes));
    }
    if let Ok(offset) = extents.allocate_backed(whole_bytes, unit, note) {
        return Ok((offset, whole_bytes, kept_bytes));
    }
    extents.region().health().check()?;
    if let Some((offset, held_bytes)) = extents.take_held_place(bytes, note) {
        return Ok((offset, held_bytes, held_bytes));
    }
    Ok((extents.allocate_backed(bytes, GRANULE_BYTES, note)?, bytes, 0))
}

impl Walker {
    /// Captures all buckets that the writer has not claimed, and returns the number of their slots.
    /// Returns `None` if the image cannot become complete, or if `go_on`, which is called
    /// regularly, returns `false`.
    pub(crate) fn walk(
        mut self,
        region: &Region,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<Option<u64>> {
        let Self { shared, entries } = &mut self;
        let buckets_of = |group: u64| {
            let first = group * GROUP_BUCKETS;
            (first..first + GROUP_BUCKETS).take_while(|bucket| *bucket < shared.bucket_count)
        };
        for group in 0..shared.claims.group_count() {
            for bucket in buckets_of(group + GROUPS_AHEAD) {
                region.windows.prefetch_bucket(BucketIndex(bucket));
            }
            for bucket in buckets_of(group + GROUPS_AHEAD / 2) {
                region.windows.prefetch_second_line(BucketIndex(bucket));
            }
            for bucket in buckets_of(group) {
                // A page that is not in memory is read now, and not while the writer may wait.
                std::hint::black_box(region.windows.bucket(BucketIndex(bucket)).slot(0));
            }
            let added = entries.add_group(shared, region, group);
            added.inspect_err(|_| shared.fail())?;
            if group % GROUPS_BETWEEN == 0 && (shared.has_failed() || !go_on()) {
                return Ok(None);
            }
        }
        entries.write_block(shared, region)?;
        Ok(Some(entries.slot_count))
    }
}

impl Shared {
    fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    fn fail(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    fn wrong_count(&self, found: u64) -> Error {
        let (expected, offset) = (self.record_count, self.segment.offset);
        Error::Corrupt { what: "record count", offset, expected, found }
    }
}

/// Writes entries into blocks.
///
/// The end of a block is the end of its last entry; an entry is the slots of some buckets that
/// follow each other, or a part of them.
///
/// ```text
/// offset  size  field
///      0     4  crc32c of the rest, then of the salt and of the block's offset in the file
///      4     4  size of the block in bytes
///      8     4  first bucket
///     12     1  number of buckets
///     13     -  slot count of each bucket, 1 byte; then the slots, packed; then the next entry
/// ```
#[derive(Debug)]
struct EntryWriter {
    block: Vec<u8>,
    slot_count: u64,
    /// Packed slots of the entry that comes next.
    packed: Vec<u64>,
}

impl Default for EntryWriter {
    fn default() -> Self {
        let block = vec![0; BLOCK_HEAD_BYTES];
        Self { block, slot_count: 0, packed: Vec::new() }
    }
}

impl EntryWriter {
    /// Packs the slots of a bucket, which nobody changes meanwhile; returns their number.
    fn pack(&mut self, shared: &Shared, region: &Region, bucket: BucketIndex) -> Result<usize> {
        let before = self.packed.len();
        let mut outside = None;
        for_each_line(&region.windows, bucket, |_, line| {
            for (_, slot) in line.slots_in_use() {
                match shared.packing.pack(slot) {
                    Some(packed) => self.packed.push(packed),
                    None => outside = Some(slot.addr().offset()),
                }
            }
        })?;
        match outside {
            None => Ok(self.packed.len() - before),
            Some(found) => {
                let expected = region.view.file_bytes();
                let offset = region.windows.line_offset(LineWindow::Buckets, bucket.0);
                Err(Error::Corrupt { what: "record address", offset, expected, found })
            }
        }
    }

    /// Adds a bucket.
    fn add_bucket(&mut self, shared: &Shared, region: &Region, bucket: BucketIndex) -> Result<()> {
        self.packed.clear();
        let count = self.pack(shared, region, bucket)?;
        let packed = std::mem::take(&mut self.packed);
        let added = self.add_single(shared, region, bucket, &packed);
        self.packed = packed;
        debug_assert!(self.packed.len() == count);
        added
    }

    /// Adds the buckets of a group that the writer has not claimed.
    fn add_group(&mut self, shared: &Shared, region: &Region, group: u64) -> Result<()> {
        self.packed.clear();
        let first = BucketIndex(group * GROUP_BUCKETS);
        let mut counts = [0; GROUP_BUCKETS as usize];
        shared.claims.read_group(group, |bucket| {
            counts[(bucket - first.0) as usize] = self.pack(shared, region, BucketIndex(bucket))?;
            Ok(())
        })?;
        let packed = std::mem::take(&mut self.packed);
        let added = if packed.len() <= GROUP_SLOTS_MAX {
            let bucket_count = GROUP_BUCKETS.min(shared.bucket_count - first.0);
            let counts = counts.map(|count| count as u8);
            self.add_entry(shared, region, first, &counts[..bucket_count as usize], &packed)
        } else {
            let mut rest = &packed[..];
            (first.0..).zip(counts).try_for_each(|(bucket, count)| {
                let (slots, after) = rest.split_at(count);
                rest = after;
                self.add_single(shared, region, BucketIndex(bucket), slots)
            })
        };
        self.packed = packed;
        added
    }

    /// Adds the slots of one bucket, in several entries if they are many or the block is full.
    fn add_single(
        &mut self,
        shared: &Shared,
        region: &Region,
        bucket: BucketIndex,
        packed: &[u64],
    ) -> Result<()> {
        let mut rest = packed;
        while !rest.is_empty() {
            let room_bytes = (BLOCK_BYTES - self.block.len()).saturating_sub(ENTRY_HEAD_BYTES + 1);
            let room = room_bytes / shared.packing.slot_bytes();
            if room == 0 {
                self.write_block(shared, region)?;
                continue;
            }
            let (slots, after) = rest.split_at(rest.len().min(room).min(ENTRY_SLOTS_MAX));
            self.add_entry(shared, region, bucket, &[slots.len() as u8], slots)?;
            rest = after;
        }
        Ok(())
    }

    /// Adds an entry, in the next block if this one has no room for it.
    fn add_entry(
        &mut self,
        shared: &Shared,
        region: &Region,
        first: BucketIndex,
        counts: &[u8],
        packed: &[u64],
    ) -> Result<()> {
        debug_assert_eq!(counts.iter().map(|&c| usize::from(c)).sum::<usize>(), packed.len());
        if packed.is_empty() {
            return Ok(());
        }
        let slot_bytes = shared.packing.slot_bytes();
        let bytes = ENTRY_HEAD_BYTES + counts.len() + packed.len() * slot_bytes;
        if self.block.len() + bytes > BLOCK_BYTES {
            self.write_block(shared, region)?;
        }
        let first = u32::try_from(first.0).expect("a table has at most 2^32 buckets");
        self.block.extend_from_slice(&first.to_le_bytes());
        self.block.push(counts.len() as u8);
        self.block.extend_from_slice(counts);
        for word in packed {
            // A copy of as many bytes as the compiler knows is no call.
            self.block.extend_from_slice(&word.to_le_bytes());
            self.block.truncate(self.block.len() - (size_of::<u64>() - slot_bytes));
        }
        self.slot_count += packed.len() as u64;
        debug_assert!(self.block.len() <= BLOCK_BYTES);
        Ok(())
    }

    /// Writes the block, unless it is empty, and begins another.
    fn write_block(&mut self, shared: &Shared, region: &Region) -> Result<()> {
        if self.block.len() == BLOCK_HEAD_BYTES {
            return Ok(());
        }
        let CheckpointName { offset, bytes, salt, .. } = shared.segment;
        let step = block_step(self.block.len());
        let at = shared.next_block.fetch_add(step, Ordering::Relaxed);
        let end = at + self.block.len() as u64;
        if end > bytes {
            return Err(shared.wrong_count(self.slot_count));
        }
        assert!(at.is_multiple_of(GRANULE_BYTES), "a block begins at a granule");
        seal(&mut self.block, salt, offset + at);
        let block = &self.block;
        region.write("write the checkpoint of", |storage| storage.write_at(offset + at, block))?;
        shared.end.fetch_max(end, Ordering::Relaxed);
        self.block.truncate(BLOCK_HEAD_BYTES);
        Ok(())
    }
}

/// Finishes the block in `bytes`, which will be at `offset` of the file.
fn seal(bytes: &mut [u8], salt: u64, offset: u64) {
    assert!((BLOCK_HEAD_BYTES + 1..=BLOCK_BYTES).contains(&bytes.len()), "a block has an entry");
    let len = u32::try_from(bytes.len()).expect("a block is small");
    put_u32(bytes, 4, len);
    let crc = block_crc(bytes, salt, offset);
    put_u32(bytes, 0, crc);
}
