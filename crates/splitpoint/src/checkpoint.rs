//! Checkpoints: the index as of one commit, so that recovery need not read the whole log.
//!
//! While a checkpoint is made the table goes on changing. Each bucket is written once: when the
//! cursor comes to it, or before the first change of it, whichever is earlier. So the image is
//! exact, and a change pays for the bucket it has in its hands already.
//!
//! # Invariants
//!
//! - A superblock names a checkpoint only when all of it is durable, and the log up to its commit.
//! - The segment of the one before is freed only when that superblock is durable.
//! - Nothing in an image is used before the checksum of its block was verified.
//!
//! # Not here
//!
//! `store` decides when a checkpoint is due and which thread waits for the device; `recovery` reads
//! one after a crash.
//!
//! # Source
//!
//! Copying a page before its first change, to have a consistent image of a database in use: Rosenkrantz,
//! "Dynamic database dumping", SIGMOD 1978; here the pages are buckets.

use crate::bitmap::Bitmap;
use crate::error::{Error, Result};
use crate::format::{
    CheckpointName, GRANULE_BYTES, HEADER_BYTES, LogStart, SegmentHeader, SegmentKind, put_u32,
    put_u64, u32_at, u64_at,
};
use crate::index::lookup::for_each_line;
use crate::index::slot::Slot;
use crate::linear::{BucketIndex, Geometry};
use crate::live::{CommitState, LineWindow};
use crate::piece::piece_of;
use crate::region::{Extents, Region, View};
use crate::space::{Extent, between};

/// Size of a block of an image in bytes; the last one may be shorter.
pub(crate) const BLOCK_BYTES: usize = 64 << 10;
/// Size of the head of a block in bytes.
const BLOCK_HEAD_BYTES: usize = 8;
/// Most words that a block has for buckets and slots.
const BLOCK_WORDS: u64 = ((BLOCK_BYTES - BLOCK_HEAD_BYTES) / 8) as u64;
/// Bits of an entry's first word that count its slots.
const COUNT_BITS: u32 = 16;
/// Most extents that fit the state.
const EXTENT_COUNT_MAX: usize = ((GRANULE_BYTES - STATE_OFFSET) / 8) as usize - STATE_WORDS;
/// Where the state begins.
const STATE_OFFSET: u64 = SegmentHeader::BYTES;
/// Words of the state before its list of extents.
const STATE_WORDS: usize = 12;

/// What a checkpoint says beside the slots: the table and the file as of its commit.
///
/// ```text
/// offset  size  field
///      0    64  segment header, kind 5; its log sequence number is that of the commit
///     64     8  bucket count
///     72    24  record count, live bytes, dead bytes, 8 bytes each
///     96    24  where replay continues: offset of the log segment, its salt, offset of the record
///    120     8  sequence number of the next segment
///    128    16  bytes in log segments, bytes in big segments
///    144     8  number of extents in use
///    152     8  crc32c of the granule with this field zero, then of the salt
///    160     -  extents in use, except index extents and checkpoints: first granule (bits 0-31),
///               granule count (32-63)
///   4096     -  blocks of 64 KiB, the last one shorter
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointState {
    pub(crate) geometry: Geometry,
    pub(crate) commit: CommitState,
    /// Where replay goes on.
    pub(crate) replay_start: LogStart,
    pub(crate) next_sequence: u64,
    pub(crate) log_bytes: u64,
    pub(crate) big_bytes: u64,
    /// Granules that recovery must leave alone.
    pub(crate) used: Vec<Extent>,
}

pub(crate) const CRC_OFFSET: usize = 152;
const EXTENTS_OFFSET: usize = 160;
const _: () = assert!(EXTENTS_OFFSET as u64 == STATE_OFFSET + 8 * STATE_WORDS as u64);

impl CheckpointState {
    /// Returns the state of a table between two changes.
    pub(crate) fn of(
        extents: &Extents,
        geometry: Geometry,
        commit: CommitState,
        replay_start: LogStart,
    ) -> Self {
        let (live, space) = (extents.region().live(), extents.space());
        let mut unused = space.free().to_vec();
        for window in LineWindow::ALL {
            for piece in 0..live.piece_count(window) {
                let count = piece_of(piece).granule_count();
                unused.push(Extent { granule: live.piece(window, piece), count });
            }
        }
        unused.extend(live.checkpoint_extents().into_iter().flatten());
        Self {
            geometry,
            commit,
            replay_start,
            next_sequence: live.next_sequence(),
            log_bytes: live.log_bytes(),
            big_bytes: live.big_bytes(),
            used: between(HEADER_BYTES / GRANULE_BYTES, space.end(), unused),
        }
    }

    /// Returns the size in bytes of a segment that has room for the image.
    fn segment_bytes(&self) -> u64 {
        let record_count = self.commit.record_count;
        let words = record_count + record_count.min(self.geometry.bucket_count());
        // A chain may be cut by the end of a block, which costs its first word once more and, when
        // only one word is left, that word.
        let block_count = words.div_ceil(BLOCK_WORDS - 2).max(1);
        let bytes = 8 * words + block_count * (BLOCK_HEAD_BYTES as u64 + 16);
        GRANULE_BYTES + bytes.next_multiple_of(GRANULE_BYTES)
    }

    fn encode(&self, header: SegmentHeader) -> Vec<u8> {
        assert!(self.used.len() <= EXTENT_COUNT_MAX, "`CheckpointWriter::begin` has looked");
        assert_eq!(
            header.base_lsn, self.replay_start.lsn,
            "the segment has the number of its commit"
        );
        let mut block = vec![0; GRANULE_BYTES as usize];
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
            self.used.len() as u64,
        ];
        for (i, word) in words.into_iter().enumerate() {
            put_u64(&mut block, STATE_OFFSET as usize + 8 * i, word);
        }
        for (i, extent) in self.used.iter().enumerate() {
            put_u64(&mut block, EXTENTS_OFFSET + 8 * i, extent.count << 32 | extent.granule);
        }
        let crc = state_crc(&block, header.salt);
        put_u64(&mut block, CRC_OFFSET, crc.into());
        block
    }

    /// Decodes the first granule of the checkpoint `name` of a file of `file_bytes`; nothing has
    /// vouched for it.
    fn decode(block: &[u8], name: CheckpointName, file_bytes: u64) -> Result<Self> {
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
        for i in [1, 2, 3, 8, 9] {
            if word(i) > file_bytes {
                return corrupt("checkpoint counts", 64 + 8 * i, file_bytes, word(i));
            }
        }
        let count = word(10).min(EXTENT_COUNT_MAX as u64);
        if count != word(10) {
            return corrupt("checkpoint extents", 144, count, word(10));
        }
        let used = (0..count as usize).map(|i| u64_at(block, EXTENTS_OFFSET + 8 * i));
        let used = used.map(|word| Extent { granule: word & 0xffff_ffff, count: word >> 32 });
        let [segment_offset, salt, record_offset] = [4, 5, 6].map(word);
        Ok(Self {
            geometry,
            commit: CommitState {
                record_count: word(1),
                live_bytes: word(2),
                dead_bytes: word(3),
                tail_offset: record_offset,
                tail_segment: segment_offset,
            },
            replay_start: LogStart { segment_offset, salt, lsn: name.lsn, record_offset },
            next_sequence: word(7),
            log_bytes: word(8),
            big_bytes: word(9),
            used: used.collect(),
        })
    }
}

/// Returns the checksum of the first granule of a checkpoint, in which its field is zero.
pub(crate) fn state_crc(block: &[u8], salt: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(block), &salt.to_le_bytes())
}

/// Finishes the block in `bytes`, which will be at `offset` of the file.
fn seal(bytes: &mut [u8], salt: u64, offset: u64) {
    assert!((BLOCK_HEAD_BYTES + 1..=BLOCK_BYTES).contains(&bytes.len()), "a block has an entry");
    let len = u32::try_from(bytes.len()).expect("a block is small");
    put_u32(bytes, 4, len);
    let crc = block_crc(bytes, salt, offset);
    put_u32(bytes, 0, crc);
}

/// Returns the checksum of a block at `offset` of the file, whatever it says itself.
pub(crate) fn block_crc(bytes: &[u8], salt: u64, offset: u64) -> u32 {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[4..]), &salt.to_le_bytes());
    crc32c::crc32c_append(crc, &offset.to_le_bytes())
}

/// The end of a block is the end of its last entry; an entry is the slots of one bucket, or a part
/// of them.
///
/// ```text
/// offset  size  field
///      0     4  crc32c of the rest, then of the salt and of the block's offset in the file
///      4     4  size of the block in bytes
///      8     8  slot count (bits 0-15), bucket (16-63)
///     16     -  slots, 8 bytes each; then the next entry
/// ```
#[derive(Debug)]
pub(crate) struct CheckpointWriter {
    name: CheckpointName,
    /// Which of the two places of the live header names the segment.
    place: usize,
    geometry: Geometry,
    record_count: u64,
    /// The next bucket that the cursor comes to.
    cursor: u64,
    /// One bit for each bucket: whether it has been written.
    written: Bitmap,
    slot_count: u64,
    block: Vec<u8>,
    /// Where the block will be, from the start of the segment.
    block_at: u64,
    slots: Vec<Slot>,
}

impl CheckpointWriter {
    /// Begins the image of a table in that state: takes a segment and writes its first granule.
    pub(crate) fn begin(extents: &mut Extents, state: &CheckpointState, salt: u64) -> Result<Self> {
        let region = &extents.region().clone();
        if state.used.len() > EXTENT_COUNT_MAX {
            return Err(Error::Full { what: "checkpoint extents", bytes: GRANULE_BYTES });
        }
        assert!(state.replay_start.segment_offset != 0, "a checkpoint is of a log");
        let bytes = state.segment_bytes();
        let live = region.live();
        let place = live.checkpoint_extents().iter().position(Option::is_none);
        let place = place.ok_or(Error::Full { what: "checkpoint places", bytes })?;
        let offset = extents.allocate_noted(bytes, GRANULE_BYTES, |extent| {
            live.set_checkpoint_extent(place, Some(extent));
        })?;
        assert!(offset.is_multiple_of(GRANULE_BYTES) && bytes.is_multiple_of(GRANULE_BYTES));
        let name = CheckpointName { offset, bytes, lsn: state.replay_start.lsn, salt };
        let header = SegmentHeader {
            kind: SegmentKind::Checkpoint,
            sequence: state.next_sequence,
            segment_bytes: bytes,
            base_lsn: name.lsn,
            previous_offset: 0,
            salt,
        };
        let bucket_count = state.geometry.bucket_count();
        let image = Self {
            name,
            place,
            geometry: state.geometry,
            record_count: state.commit.record_count,
            cursor: 0,
            written: Bitmap::new(bucket_count),
            slot_count: 0,
            block: vec![0; BLOCK_HEAD_BYTES],
            block_at: GRANULE_BYTES,
            slots: Vec::new(),
        };
        let first = state.encode(header);
        if let Err(error) =
            region.write("write the checkpoint of", |storage| storage.write_at(offset, &first))
        {
            image.release(extents);
            return Err(error);
        }
        Ok(image)
    }

    /// Returns what a superblock calls it.
    pub(crate) fn name(&self) -> CheckpointName {
        self.name
    }

    /// Gives the segment back: nothing will name it.
    pub(crate) fn release(&self, extents: &mut Extents) {
        release(extents, self.place);
    }

    /// Writes a bucket that is about to change, unless that was done or it is younger.
    #[inline]
    pub(crate) fn capture(&mut self, region: &Region, bucket: BucketIndex) -> Result<()> {
        let is_younger = bucket.0 >= self.geometry.bucket_count();
        if is_younger || self.written.set(bucket.0, true) == Some(true) {
            return Ok(());
        }
        self.slots.clear();
        let slots = &mut self.slots;
        for_each_line(&region.windows, bucket, |_, line| {
            slots.extend(line.slots_in_use().map(|(_, slot)| slot));
        })?;
        self.slot_count += self.slots.len() as u64;
        let mut rest = 0;
        while rest < self.slots.len() {
            let room = (BLOCK_BYTES - self.block.len()) / 8;
            if room < 2 {
                self.write_block(region)?;
                continue;
            }
            let slots = &self.slots[rest..][..(room - 1).min(self.slots.len() - rest)];
            debug_assert!(!slots.is_empty() && slots.len() < 1 << COUNT_BITS);
            let first = bucket.0 << COUNT_BITS | slots.len() as u64;
            self.block.extend_from_slice(&first.to_le_bytes());
            for slot in slots {
                self.block.extend_from_slice(&slot.0.to_le_bytes());
            }
            rest += slots.len();
            debug_assert!(self.block.len() <= BLOCK_BYTES);
        }
        Ok(())
    }

    /// Writes the next `bucket_count` buckets and returns whether the image is whole.
    ///
    /// A bucket that a merge has taken away since was written then.
    pub(crate) fn advance(&mut self, region: &Region, bucket_count: u64) -> Result<bool> {
        let end = (self.cursor + bucket_count).min(self.geometry.bucket_count());
        while self.cursor < end {
            self.capture(region, BucketIndex(self.cursor))?;
            self.cursor += 1;
        }
        if self.cursor < self.geometry.bucket_count() {
            return Ok(false);
        }
        self.write_block(region)?;
        assert_eq!(self.cursor, self.geometry.bucket_count(), "every bucket has been captured");
        if self.slot_count == self.record_count {
            return Ok(true);
        }
        let (expected, found) = (self.record_count, self.slot_count);
        Err(Error::Corrupt { what: "record count", offset: self.name.offset, expected, found })
    }

    fn write_block(&mut self, region: &Region) -> Result<()> {
        if self.block.len() == BLOCK_HEAD_BYTES {
            return Ok(());
        }
        if self.block_at + self.block.len() as u64 > self.name.bytes {
            let (expected, found) = (self.record_count, self.slot_count);
            return Err(Error::Corrupt {
                what: "record count",
                offset: self.name.offset,
                expected,
                found,
            });
        }
        assert!(self.block_at.is_multiple_of(GRANULE_BYTES), "a full block ends at a granule");
        let offset = self.name.offset + self.block_at;
        seal(&mut self.block, self.name.salt, offset);
        let block = &self.block;
        region.write("write the checkpoint of", |storage| storage.write_at(offset, block))?;
        self.block_at += BLOCK_BYTES as u64;
        self.block.truncate(BLOCK_HEAD_BYTES);
        Ok(())
    }
}

/// Frees the segment that a place of the live header names.
fn release(extents: &mut Extents, place: usize) {
    let region = extents.region().clone();
    let live = region.live();
    let Some(extent) = live.checkpoint_extents()[place] else { return };
    // A killed process may have left the name of granules that are free.
    if !extents.space().is_free(extent) {
        extents.release(extent.granule * GRANULE_BYTES, extent.count * GRANULE_BYTES);
    }
    live.set_checkpoint_extent(place, None);
}

/// Frees the segments of all checkpoints except the one of that name.
pub(crate) fn release_all_but(extents: &mut Extents, kept: Option<CheckpointName>) {
    for (place, extent) in extents.region().live().checkpoint_extents().into_iter().enumerate() {
        if extent.is_some() && extent != kept.map(extent_of) {
            release(extents, place);
        }
    }
    let mut left = extents.region().live().checkpoint_extents().into_iter().flatten();
    assert!(left.all(|extent| Some(extent) == kept.map(extent_of)), "no other one is left");
}

/// Returns the granules of a checkpoint.
pub(crate) fn extent_of(name: CheckpointName) -> Extent {
    Extent { granule: name.offset / GRANULE_BYTES, count: name.bytes / GRANULE_BYTES }
}

/// A checkpoint as recovery finds it.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    name: CheckpointName,
    pub(crate) state: CheckpointState,
}

impl Image {
    /// Reads the first granule of a checkpoint that a superblock names.
    pub(crate) fn open(view: &View, name: CheckpointName) -> Result<Self> {
        let block = view.checkpoint_bytes("checkpoint offset", name, 0, GRANULE_BYTES)?;
        let state = CheckpointState::decode(block, name, view.file_bytes())?;
        Ok(Self { name, state })
    }

    /// Returns what the superblock calls it.
    pub(crate) fn name(&self) -> CheckpointName {
        self.name
    }

    /// Calls `each` with every bucket and its slots, a bucket perhaps more than once; `ahead` with
    /// the bucket some entries before that; after each block `read` with its size in bytes. Stops
    /// at damage.
    pub(crate) fn for_each_entry(
        &self,
        view: &View,
        mut each: impl FnMut(BucketIndex, &[[u8; 8]]) -> Result<()>,
        mut ahead: impl FnMut(BucketIndex),
        mut read: impl FnMut(u64),
    ) -> Result<()> {
        let mut left = self.state.commit.record_count;
        let mut at = GRANULE_BYTES;
        while left > 0 {
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
            let (mut words, _) = block[BLOCK_HEAD_BYTES..].as_chunks::<8>();
            let mut later = Entries(words).skip(ENTRIES_AHEAD);
            while let [first, rest @ ..] = words {
                if let Some((bucket, _)) = later.next() {
                    ahead(bucket);
                }
                let (bucket, slot_count) = bucket_and_count(*first);
                let is_inside = bucket.0 < self.state.geometry.bucket_count();
                if !is_inside || slot_count > rest.len() || slot_count as u64 > left {
                    return Err(short(offset, left));
                }
                let (slots, next) = rest.split_at(slot_count);
                each(bucket, slots)?;
                left -= slot_count as u64;
                words = next;
            }
            at += BLOCK_BYTES as u64;
            read(block.len() as u64);
        }
        Ok(())
    }
}

/// How many entries ahead `ahead` gets their buckets.
const ENTRIES_AHEAD: usize = 12;

/// The first words of the entries of a block, which may say anything.
struct Entries<'a>(&'a [[u8; 8]]);

impl Iterator for Entries<'_> {
    type Item = (BucketIndex, usize);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (first, rest) = self.0.split_first()?;
        let (bucket, slot_count) = bucket_and_count(*first);
        self.0 = rest.get(slot_count..).unwrap_or_default();
        Some((bucket, slot_count))
    }
}

/// Decodes the first word of an entry.
#[inline]
fn bucket_and_count(first: [u8; 8]) -> (BucketIndex, usize) {
    let first = u64::from_le_bytes(first);
    (BucketIndex(first >> COUNT_BITS), (first & ((1 << COUNT_BITS) - 1)) as usize)
}

fn short(offset: u64, left: u64) -> Error {
    Error::Corrupt { what: "checkpoint entries", offset, expected: left, found: 0 }
}
