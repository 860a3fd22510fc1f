//! The file format, version 1: the parts of the file, and the blocks and headers that locate them.
//!
//! ```text
//! 0      superblock A   4 KiB   written alternately with B
//! 4096   superblock B   4 KiB
//! 8192   live header    4 KiB   shared memory; never trusted after a power loss
//! 12288  reader table   4 KiB   64 places of 64 bytes, reserved for reader processes
//! 16384  granules of 4 KiB, grouped in segments
//! ```
//!
//! Every number is little-endian. `decode` checks every field, and nothing uses bytes of a file
//! before. The layout of a record is in `log/record.rs`, that of a bucket in `index/line.rs`.

use crate::checksum;
use crate::hash::NAME_BYTES_MAX;

/// Version of the format that this library reads and writes.
pub(crate) const VERSION: u32 = 1;
/// First bytes of a store. The high bit, CR and LF reveal a copy in text mode.
pub(crate) const MAGIC: [u8; 8] = *b"\x89SPLIT\r\n";
/// First bytes of a store with the mark of gdbm: the magic number of a gdbm file, for programs that look
/// at four bytes to choose a library, and four that no gdbm file has there, its block size.
pub(crate) const GDBM_MAGIC: [u8; 8] = *b"\xcf\x9a\x57\x13SPLT";
/// First bytes of the live header.
pub(crate) const LIVE_MAGIC: u64 = u64::from_le_bytes(*b"SPLTLIVE");
/// First bytes of a segment.
pub(crate) const SEGMENT_MAGIC: u32 = u32::from_le_bytes(*b"SEGM");

/// Unit of allocation in bytes.
pub(crate) const GRANULE_BYTES: u64 = 4096;
/// Size of a superblock in bytes.
pub(crate) const SUPERBLOCK_BYTES: u64 = 4096;
/// Offsets of the superblocks.
pub(crate) const SUPERBLOCK_OFFSETS: [u64; 2] = [0, SUPERBLOCK_BYTES];
/// Offset of the live header.
pub(crate) const LIVE_OFFSET: u64 = 8192;
/// Offset of the writer's process id, a word of the live header.
pub(crate) const PID_OFFSET: u64 = LIVE_OFFSET + 56;
/// Where the live header has the inode of the file that it is of.
pub(crate) const INODE_OFFSET: u64 = LIVE_OFFSET + 40;
/// Size of the live header in bytes.
pub(crate) const LIVE_BYTES: u64 = 4096;
/// Offset of the reader table.
pub(crate) const READER_TABLE_OFFSET: u64 = LIVE_OFFSET + LIVE_BYTES;
/// Size of the reader table in bytes.
pub(crate) const READER_TABLE_BYTES: u64 = 4096;
/// Offset of the first granule; the header is before it.
pub(crate) const HEADER_BYTES: u64 = 16384;
/// Size of the log segments of a small file in bytes.
pub(crate) const LOG_SEGMENT_BYTES_MIN: u64 = 64 << 10;
/// Size in bytes up to which the first segments double the log.
///
/// Another segment, of 16 KiB, would lie between the first index extents. That would cost each
/// store of 1,000 records one more mapping, which a process with ten thousand stores does not have.
const SMALL_LOG_BYTES: u64 = 16 << 10;
/// Size of the log segments of a large file in bytes.
pub(crate) const LOG_SEGMENT_BYTES_MAX: u64 = 2 << 20;
/// Offset of the byte that handles lock to exclude each other; no file reaches it.
pub(crate) const WRITER_BYTE_OFFSET: u64 = 1 << 62;
/// Largest file in bytes: 2^40 addresses of 8 bytes.
pub(crate) const FILE_BYTES_MAX: u64 = 8 << 40;

const _: () = {
    assert!(LIVE_OFFSET == SUPERBLOCK_OFFSETS[1] + SUPERBLOCK_BYTES);
    assert!(HEADER_BYTES.is_multiple_of(GRANULE_BYTES));
    assert!(LIVE_BYTES == GRANULE_BYTES);
    assert!(READER_TABLE_OFFSET + READER_TABLE_BYTES == HEADER_BYTES);
    assert!(WRITER_BYTE_OFFSET > FILE_BYTES_MAX);
};

/// Largest log sequence number. No log comes near it, and adding a size to it does not overflow.
pub(crate) const LSN_MAX: u64 = 1 << 62;

/// Address of a record: its offset in the file in units of 8 bytes, 40 bits, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Addr(pub(crate) u64);

impl Addr {
    /// Bits of an address.
    pub(crate) const BITS: u32 = 40;

    /// Returns the address of the record at `offset` in bytes, a multiple of 8.
    #[inline]
    pub(crate) fn of_offset(offset: u64) -> Self {
        debug_assert!(offset.is_multiple_of(8));
        debug_assert!(offset < FILE_BYTES_MAX);
        Self(offset / 8)
    }

    /// Returns the offset in bytes.
    #[inline]
    pub(crate) fn offset(self) -> u64 {
        self.0 * 8
    }
}

/// Reads the `u32` at `offset`.
#[inline]
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let field = bytes[offset..].first_chunk().expect("field is inside its block");
    u32::from_le_bytes(*field)
}

/// Reads the `u64` at `offset`.
#[inline]
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let field = bytes[offset..].first_chunk().expect("field is inside its block");
    u64::from_le_bytes(*field)
}

pub(crate) fn put_u32(bytes: &mut [u8], offset: usize, value: u32) {
    bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u64(bytes: &mut [u8], offset: usize, value: u64) {
    bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
}

/// The parameters of a store, and where to start reading its log after a power loss.
///
/// There are two copies, written alternately. The valid copy with the higher generation is the
/// current one, so a torn write leaves the other.
///
/// ```text
/// offset  size  field
///      0     8  magic: 89 53 50 4c 49 54 0d 0a, or with the mark of gdbm cf 9a 57 13 53 50 4c 54
///      8     4  format version: 1
///     12     4  crc32c of the block with this field zero
///     16     8  generation: the number of writes, odd in copy B
///     24     4  flags: bit 0 clean, the live header and the index are valid; bit 1 the same, if
///                the index has the checksum below; bit 2 may be lost
///     28     4  granule size in bytes: 4096
///     32    16  uuid of the store
///     48     4  hash function: id
///     52     4  fill factor in thousandths of a key per bucket
///     56     8  hash function: seed
///     64     8  hash function: hash of the probe key
///     72    32  hash function: name, NUL-padded
///    104     4  size of the log segments of a small file in bytes
///    108     4  size of the log segments of a large file in bytes
///    112     8  log start: offset of the first segment, 0 for an empty log
///    120     8  log start: salt of that segment
///    128     8  log start: log sequence number at the position
///    136     8  log start: offset of the first record to replay
///    144     8  checkpoint: offset of its segment; 0 for none, recovery reads the whole log
///    152     8  checkpoint: size in bytes
///    160     8  file size in bytes at a clean close
///    168     4  crc32c of the live header at a clean close
///    172     4  crc32c of the index at a clean close, if flagged
///    176     8  features that a reader must know, one bit each: bit 0, the store was compacted
///    184     8  features that a writer must know, one bit each: bit 0, the same
///    192     8  checkpoint: log sequence number of the commit that it holds
///    200     8  checkpoint: salt of its segment
///    208    16  application data: what the program keeps there, 0 at first
///    224  3872  reserved, 0
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a bit of the block")]
pub(crate) struct Superblock {
    pub(crate) generation: u64,
    pub(crate) is_clean: bool,
    pub(crate) uuid: [u8; 16],
    pub(crate) hash_id: u32,
    pub(crate) fill_thousandths: u32,
    pub(crate) seed: u64,
    pub(crate) probe_hash: u64,
    pub(crate) hash_name: String,
    pub(crate) segment_bytes_min: u32,
    pub(crate) segment_bytes_max: u32,
    pub(crate) log_start: LogStart,
    /// The checkpoint from which recovery starts, if there is one.
    pub(crate) checkpoint: Option<CheckpointName>,
    pub(crate) file_bytes: u64,
    pub(crate) live_crc: u32,
    /// The checksum of the index at the close of a small store. With it the next writer need not make
    /// "not clean" durable before it changes the tables.
    pub(crate) index_crc: Option<u32>,
    /// Whether the loss of the block loses nothing: the other copy is durable, has the same content, and says
    /// "not clean" or has a checksum of the index. A copy of the file that nobody has synced is another matter.
    pub(crate) may_be_lost: bool,
    /// Whether records were moved, so that the log alone does not have all.
    pub(crate) is_compacted: bool,
    /// Other features that a writer must know; if not 0, this version may only read the file.
    pub(crate) write_features: u64,
    /// Whether the block begins with [`GDBM_MAGIC`].
    pub(crate) has_gdbm_mark: bool,
    /// What the program keeps in the store beside its keys.
    pub(crate) application_data: [u8; APPLICATION_BYTES],
}

/// Bytes of the application data.
pub(crate) const APPLICATION_BYTES: usize = 16;

/// Returns whether a file with these first bytes is a store.
pub(crate) fn is_magic(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC) || bytes.starts_with(&GDBM_MAGIC)
}

/// The checkpoint that a superblock names, and the values that prove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointName {
    /// Offset of its segment.
    pub(crate) offset: u64,
    /// Size of the segment in bytes.
    pub(crate) bytes: u64,
    /// Log sequence number of the commit that it holds.
    pub(crate) lsn: u64,
    /// Salt of the segment.
    pub(crate) salt: u64,
}

/// The start of the log, and the values that prove it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogStart {
    /// Offset of the segment, 0 for an empty log.
    pub(crate) segment_offset: u64,
    /// Its salt.
    pub(crate) salt: u64,
    /// Log sequence number at `record_offset`.
    pub(crate) lsn: u64,
    /// Offset of the first record.
    pub(crate) record_offset: u64,
}

/// The reason why a block is not a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SuperblockFault {
    /// The first bytes are not those of a store.
    Magic,
    /// Another version of the format.
    Version(u32),
    /// Features that this library does not have.
    Features(u64),
    /// The field at `offset` in the block has a wrong value.
    Field { what: &'static str, offset: u64, expected: u64, found: u64 },
}

/// The two copies of a superblock, decoded.
pub(crate) type Superblocks = [Result<Superblock, SuperblockFault>; 2];

/// Returns the newer of the valid copies.
pub(crate) fn newest(copies: &Superblocks) -> Option<&Superblock> {
    let [first, second] = copies.each_ref().map(|copy| copy.as_ref().ok());
    match (first, second) {
        (Some(first), Some(second)) if second.generation > first.generation => Some(second),
        (None, second) => second,
        (first, _) => first,
    }
}

impl Superblock {
    const CLEAN: u32 = 1;
    /// Instead of `CLEAN`, for a library that does not compare the checksum of the index.
    const CLEAN_WITH_INDEX_CRC: u32 = 2;
    const MAY_BE_LOST: u32 = 4;
    const COMPACTED: u64 = 1;

    /// Returns the offset in the file of the copy with this generation.
    pub(crate) fn offset(&self) -> u64 {
        SUPERBLOCK_OFFSETS[(self.generation & 1) as usize]
    }

    /// Encodes the block, with its checksum.
    pub(crate) fn encode(&self) -> Vec<u8> {
        assert!(self.hash_name.len() <= NAME_BYTES_MAX);
        let mut block = vec![0; SUPERBLOCK_BYTES as usize];
        let magic = if self.has_gdbm_mark { GDBM_MAGIC } else { MAGIC };
        block[..8].copy_from_slice(&magic);
        put_u32(&mut block, 8, VERSION);
        put_u64(&mut block, 16, self.generation);
        put_u32(&mut block, 24, self.flags());
        put_u32(&mut block, 28, GRANULE_BYTES as u32);
        block[32..48].copy_from_slice(&self.uuid);
        put_u32(&mut block, 48, self.hash_id);
        put_u32(&mut block, 52, self.fill_thousandths);
        put_u64(&mut block, 56, self.seed);
        put_u64(&mut block, 64, self.probe_hash);
        block[72..72 + self.hash_name.len()].copy_from_slice(self.hash_name.as_bytes());
        put_u32(&mut block, 104, self.segment_bytes_min);
        put_u32(&mut block, 108, self.segment_bytes_max);
        put_u64(&mut block, 112, self.log_start.segment_offset);
        put_u64(&mut block, 120, self.log_start.salt);
        put_u64(&mut block, 128, self.log_start.lsn);
        put_u64(&mut block, 136, self.log_start.record_offset);
        if let Some(CheckpointName { offset, bytes, lsn, salt }) = self.checkpoint {
            put_u64(&mut block, 144, offset);
            put_u64(&mut block, 152, bytes);
            put_u64(&mut block, 192, lsn);
            put_u64(&mut block, 200, salt);
        }
        put_u64(&mut block, 160, self.file_bytes);
        put_u32(&mut block, 168, self.live_crc);
        put_u32(&mut block, 172, self.index_crc.unwrap_or(0));
        let compacted = if self.is_compacted { Self::COMPACTED } else { 0 };
        put_u64(&mut block, 176, compacted);
        put_u64(&mut block, 184, self.write_features | compacted);
        block[208..208 + APPLICATION_BYTES].copy_from_slice(&self.application_data);
        let crc = checksum::crc32c(&block);
        put_u32(&mut block, 12, crc);
        block
    }

    fn flags(&self) -> u32 {
        assert!(self.is_clean || self.index_crc.is_none(), "only a close has checksums");
        let clean = match self.index_crc {
            Some(_) => Self::CLEAN_WITH_INDEX_CRC,
            None if self.is_clean => Self::CLEAN,
            None => 0,
        };
        clean | if self.may_be_lost { Self::MAY_BE_LOST } else { 0 }
    }

    /// Returns whether both lead to the same records, whatever they say of the tables.
    pub(crate) fn has_content_of(&self, other: &Self) -> bool {
        let with_state_of_other = Self {
            generation: other.generation,
            is_clean: other.is_clean,
            file_bytes: other.file_bytes,
            live_crc: other.live_crc,
            index_crc: other.index_crc,
            may_be_lost: other.may_be_lost,
            ..self.clone()
        };
        with_state_of_other == *other
    }

    /// Decodes an untrusted block.
    pub(crate) fn decode(block: &[u8]) -> Result<Self, SuperblockFault> {
        assert_eq!(block.len() as u64, SUPERBLOCK_BYTES);
        if !is_magic(block) {
            return Err(SuperblockFault::Magic);
        }
        let found = u32_at(block, 12);
        let zeroed = checksum::crc32c_append(checksum::crc32c(&block[..12]), &[0; 4]);
        let expected = checksum::crc32c_append(zeroed, &block[16..]);
        if u32_at(block, 8) != VERSION && found == expected {
            return Err(SuperblockFault::Version(u32_at(block, 8)));
        }
        let field = |what, offset, expected: u64, found: u64| {
            if expected == found {
                return Ok(());
            }
            Err(SuperblockFault::Field { what, offset, expected, found })
        };
        field("superblock checksum", 12, expected.into(), found.into())?;
        field("granule size", 28, GRANULE_BYTES, u32_at(block, 28).into())?;
        let features = u64_at(block, 176);
        if features & !Self::COMPACTED != 0 {
            return Err(SuperblockFault::Features(features));
        }
        let name = &block[72..104];
        let name_bytes = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        let hash_name = std::str::from_utf8(&name[..name_bytes]).unwrap_or_default();
        field("hash function name", 72, 1, u64::from((1..32).contains(&hash_name.len())))?;
        let flags = u32_at(block, 24);
        let has_index_crc = flags & Self::CLEAN_WITH_INDEX_CRC != 0;
        let superblock = Self {
            generation: u64_at(block, 16),
            is_clean: has_index_crc || flags & Self::CLEAN != 0,
            uuid: *block[32..].first_chunk().expect("uuid is inside the block"),
            hash_id: u32_at(block, 48),
            fill_thousandths: u32_at(block, 52),
            seed: u64_at(block, 56),
            probe_hash: u64_at(block, 64),
            hash_name: hash_name.to_string(),
            segment_bytes_min: u32_at(block, 104),
            segment_bytes_max: u32_at(block, 108),
            log_start: LogStart {
                segment_offset: u64_at(block, 112),
                salt: u64_at(block, 120),
                lsn: u64_at(block, 128),
                record_offset: u64_at(block, 136),
            },
            checkpoint: (u64_at(block, 144) != 0).then(|| CheckpointName {
                offset: u64_at(block, 144),
                bytes: u64_at(block, 152),
                lsn: u64_at(block, 192),
                salt: u64_at(block, 200),
            }),
            file_bytes: u64_at(block, 160),
            live_crc: u32_at(block, 168),
            index_crc: has_index_crc.then(|| u32_at(block, 172)),
            may_be_lost: flags & Self::MAY_BE_LOST != 0,
            is_compacted: features & Self::COMPACTED != 0,
            write_features: u64_at(block, 184) & !Self::COMPACTED,
            has_gdbm_mark: block.starts_with(&GDBM_MAGIC),
            application_data: *block[208..].first_chunk().expect("the data is inside the block"),
        };
        superblock.validate_fields(field)?;
        Ok(superblock)
    }

    /// Checks the fields, since a malicious file can have a valid checksum.
    fn validate_fields<F>(&self, field: F) -> Result<(), SuperblockFault>
    where
        F: Fn(&'static str, u64, u64, u64) -> Result<(), SuperblockFault>,
    {
        // The next generation must not overflow.
        field("superblock generation", 16, self.generation.min(LSN_MAX), self.generation)?;
        let fill = u64::from(self.fill_thousandths);
        field("fill factor", 52, fill.clamp(1000, 7000), fill)?;
        for (offset, bytes) in [(104, self.segment_bytes_min), (108, self.segment_bytes_max)] {
            let bytes = u64::from(bytes);
            let expected = bytes.next_power_of_two().clamp(GRANULE_BYTES, LOG_SEGMENT_BYTES_MAX);
            field("log segment size", offset, expected, bytes)?;
        }
        let (min, max) = (self.segment_bytes_min.into(), self.segment_bytes_max.into());
        field("log segment size", 108, u64::max(min, max), max)?;
        if let Some(CheckpointName { offset, bytes, lsn, .. }) = self.checkpoint {
            for (what, at, word) in
                [("checkpoint offset", 144, offset), ("checkpoint size", 152, bytes)]
            {
                let aligned = word / GRANULE_BYTES * GRANULE_BYTES;
                field(what, at, aligned.min(FILE_BYTES_MAX), word)?;
            }
            field("checkpoint sequence number", 192, lsn.min(LSN_MAX) / 8 * 8, lsn)?;
        }
        let start = self.log_start;
        let aligned = start.segment_offset / GRANULE_BYTES * GRANULE_BYTES;
        field("log start", 112, aligned.min(FILE_BYTES_MAX), start.segment_offset)?;
        let record = start.record_offset.max(start.segment_offset) / 8 * 8;
        field("log start record", 136, record.min(FILE_BYTES_MAX), start.record_offset)?;
        let lsn = start.lsn.min(LSN_MAX) / 8 * 8;
        field("log start sequence number", 128, lsn, start.lsn)
    }
}

/// The purpose of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum SegmentKind {
    /// Records of the main stream.
    Log = 1,
    /// Records moved by compaction.
    Compacted = 2,
    /// One big record.
    Big = 3,
    /// The segment table.
    Map = 4,
    /// Checkpoint of an older version, which nothing reads; 6 as well.
    OldCheckpoint = 5,
    /// Checkpoint of the index.
    Checkpoint = 7,
}

/// Header of a segment.
///
/// Index extents have no header: their granules are plain lines, and the live header lists them.
/// Free granules have no header either.
///
/// ```text
/// offset  size  field
///      0     4  magic: "SEGM"
///      4     1  kind: 1 log, 2 compacted, 3 big, 4 segment table, 5 or 6 checkpoint of an older
///               version, 7 checkpoint
///      5     3  reserved, 0
///      8     8  segment sequence number: one more for each new segment
///     16     8  size in bytes, header included
///     24     8  log sequence number of the first record (log), of the record that names it (big),
///               of the commit that it holds (checkpoint)
///     32     8  offset of the log segment before this one, 0 for none
///     40     8  salt: random; seeds the checksum of every record inside
///     48    12  reserved, 0
///     60     4  crc32c of the first 60 bytes
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) kind: SegmentKind,
    pub(crate) sequence: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) base_lsn: u64,
    pub(crate) previous_offset: u64,
    pub(crate) salt: u64,
}

impl SegmentHeader {
    /// Size of the header in bytes.
    pub(crate) const BYTES: u64 = 64;

    /// Encodes the header, with its checksum.
    pub(crate) fn encode(self) -> [u8; Self::BYTES as usize] {
        assert!(self.segment_bytes.is_multiple_of(GRANULE_BYTES));
        let mut out = [0; Self::BYTES as usize];
        put_u32(&mut out, 0, SEGMENT_MAGIC);
        out[4] = self.kind as u8;
        put_u64(&mut out, 8, self.sequence);
        put_u64(&mut out, 16, self.segment_bytes);
        put_u64(&mut out, 24, self.base_lsn);
        put_u64(&mut out, 32, self.previous_offset);
        put_u64(&mut out, 40, self.salt);
        let crc = checksum::crc32c(&out[..60]);
        put_u32(&mut out, 60, crc);
        out
    }

    /// Decodes the untrusted header of the segment at `offset` of a file of `file_bytes`.
    pub(crate) fn decode(bytes: &[u8], offset: u64, file_bytes: u64) -> crate::Result<Self> {
        let corrupt = |what, at: u64, expected: u64, found: u64| {
            Err(crate::Error::Corrupt { what, offset: offset + at, expected, found })
        };
        let (expected, found) = (checksum::crc32c(&bytes[..60]), u32_at(bytes, 60));
        if expected != found {
            return corrupt("segment header checksum", 60, expected.into(), found.into());
        }
        if u32_at(bytes, 0) != SEGMENT_MAGIC {
            return corrupt("segment magic", 0, SEGMENT_MAGIC.into(), u32_at(bytes, 0).into());
        }
        let kind = match bytes[4] {
            1 => SegmentKind::Log,
            2 => SegmentKind::Compacted,
            3 => SegmentKind::Big,
            4 => SegmentKind::Map,
            5 | 6 => SegmentKind::OldCheckpoint,
            7 => SegmentKind::Checkpoint,
            other => return corrupt("segment kind", 4, 1, other.into()),
        };
        let segment_bytes = u64_at(bytes, 16);
        let room = file_bytes.saturating_sub(offset);
        if segment_bytes < GRANULE_BYTES
            || segment_bytes > room
            || !segment_bytes.is_multiple_of(GRANULE_BYTES)
        {
            return corrupt("segment size", 16, room, segment_bytes);
        }
        // Others are one more than these.
        let sequence = u64_at(bytes, 8);
        if sequence > LSN_MAX {
            return corrupt("segment number", 8, LSN_MAX, sequence);
        }
        let base_lsn = u64_at(bytes, 24);
        let expected = base_lsn.min(LSN_MAX) / 8 * 8;
        if base_lsn != expected {
            return corrupt("segment sequence number", 24, expected, base_lsn);
        }
        Ok(Self {
            kind,
            sequence,
            segment_bytes,
            base_lsn,
            previous_offset: u64_at(bytes, 32),
            salt: u64_at(bytes, 40),
        })
    }
}

/// Size of a new segment, as a share (a divisor) of the size of the log, in a store whose log only
/// grows.
pub(crate) const LOG_SHARE: u64 = 32;
/// The same in a store that reuses space.
pub(crate) const REUSED_SHARE: u64 = 128;

/// Returns the size of the next segment of a log of `log_bytes`: one part of it in `share`, a power
/// of two from `min` to `max`.
///
/// The first segments instead double the log, from one granule to [`SMALL_LOG_BYTES`], so that a
/// store of a few records is a small file.
pub(crate) fn log_segment_bytes(log_bytes: u64, share: u64, min: u64, max: u64) -> u64 {
    if log_bytes < SMALL_LOG_BYTES.min(min) {
        return (1 << log_bytes.max(1).ilog2()).max(GRANULE_BYTES);
    }
    (1 << (log_bytes / share).max(1).ilog2()).clamp(min, max)
}

/// Returns the size in bytes from which a record gets a segment to itself, if log segments have
/// `segment_bytes`. A larger limit would waste the ends of segments, a smaller one would waste
/// granules.
pub(crate) fn big_record_bytes_min(segment_bytes: u64) -> u64 {
    (segment_bytes / 16).clamp(16 << 10, 128 << 10).min(segment_bytes / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock() -> Superblock {
        Superblock {
            generation: 7,
            is_clean: true,
            uuid: *b"0123456789abcdef",
            hash_id: 1,
            fill_thousandths: 4500,
            seed: 42,
            probe_hash: 43,
            hash_name: "rapidhash-v3".to_string(),
            segment_bytes_min: 64 << 10,
            segment_bytes_max: 2 << 20,
            log_start: LogStart { segment_offset: 65536, salt: 99, lsn: 0, record_offset: 65600 },
            checkpoint: Some(CheckpointName { offset: 1 << 20, bytes: 1 << 16, lsn: 800, salt: 5 }),
            file_bytes: 131_072,
            live_crc: 5,
            index_crc: None,
            may_be_lost: false,
            is_compacted: true,
            write_features: 6,
            has_gdbm_mark: false,
            application_data: *b"0123456789abcdef",
        }
    }

    #[test]
    fn superblocks_have_the_same_content_if_they_lead_to_the_same_records() {
        let clean = superblock();
        let not_clean = Superblock {
            generation: 8,
            is_clean: false,
            file_bytes: 1,
            live_crc: 0,
            may_be_lost: true,
            ..superblock()
        };
        assert!(not_clean.has_content_of(&clean) && clean.has_content_of(&not_clean));
        let log_start = LogStart { record_offset: 65700, ..clean.log_start };
        for other in [
            Superblock { checkpoint: None, ..superblock() },
            Superblock { log_start, ..superblock() },
            Superblock { is_compacted: false, ..superblock() },
            Superblock { application_data: [0; APPLICATION_BYTES], ..superblock() },
        ] {
            assert!(!other.has_content_of(&clean) && !clean.has_content_of(&other), "{other:?}");
        }
    }

    #[test]
    fn superblock_survives_the_round_trip() {
        for has_gdbm_mark in [false, true] {
            for (index_crc, may_be_lost) in
                [(None, false), (None, true), (Some(0), true), (Some(9), false)]
            {
                let superblock =
                    Superblock { index_crc, may_be_lost, has_gdbm_mark, ..superblock() };
                assert_eq!(Superblock::decode(&superblock.encode()), Ok(superblock));
            }
        }
    }

    /// It would change the tables while this block alone is on the disk.
    #[test]
    fn a_library_that_compares_no_index_takes_a_store_that_was_closed_small_for_not_clean() {
        let block = Superblock { index_crc: Some(9), ..superblock() }.encode();
        assert_eq!(u32_at(&block, 24) & Superblock::CLEAN, 0);
    }

    #[test]
    fn a_marked_superblock_begins_as_a_gdbm_file_with_a_block_size_that_none_has() {
        let block = Superblock { has_gdbm_mark: true, ..superblock() }.encode();
        assert_eq!(u32_at(&block, 0), 0x1357_9acf);
        assert!(!u32_at(&block, 4).is_power_of_two(), "gdbm's block sizes are powers of two");
    }

    #[test]
    fn every_flipped_byte_of_a_superblock_is_noticed() {
        let block = superblock().encode();
        for offset in 0..block.len() {
            let mut flipped = block.clone();
            flipped[offset] ^= 0x10;
            assert!(Superblock::decode(&flipped).is_err(), "byte {offset}");
        }
    }

    #[test]
    fn a_superblock_whose_least_segment_is_larger_than_the_largest_is_refused() {
        let (least, largest) = (2 << 20, 4096);
        let crossed =
            Superblock { segment_bytes_min: least, segment_bytes_max: largest, ..superblock() };
        let (what, expected, found) = ("log segment size", least.into(), largest.into());
        let fault = SuperblockFault::Field { what, offset: 108, expected, found };
        assert_eq!(Superblock::decode(&crossed.encode()), Err(fault));
    }

    #[test]
    fn a_newer_version_is_told_from_damage() {
        let mut block = superblock().encode();
        put_u32(&mut block, 8, 2);
        put_u32(&mut block, 12, 0);
        let crc = checksum::crc32c(&block);
        put_u32(&mut block, 12, crc);
        assert_eq!(Superblock::decode(&block), Err(SuperblockFault::Version(2)));
    }

    #[test]
    fn every_flipped_byte_of_a_segment_header_is_noticed() {
        let header = SegmentHeader {
            kind: SegmentKind::Log,
            sequence: 3,
            segment_bytes: 65536,
            base_lsn: 800,
            previous_offset: 65536,
            salt: 0x1234,
        };
        let bytes = header.encode();
        assert_eq!(SegmentHeader::decode(&bytes, 0, 65536).unwrap(), header);
        for offset in 0..bytes.len() {
            let mut flipped = bytes;
            flipped[offset] ^= 1;
            assert!(SegmentHeader::decode(&flipped, 0, 65536).is_err(), "byte {offset}");
        }
    }

    #[test]
    fn log_segments_grow_with_the_log_within_their_bounds() {
        let (min, max) = (LOG_SEGMENT_BYTES_MIN, LOG_SEGMENT_BYTES_MAX);
        let mut log_bytes = 0;
        let first: [u64; 5] = std::array::from_fn(|_| {
            let segment_bytes = log_segment_bytes(log_bytes, LOG_SHARE, min, max);
            log_bytes += segment_bytes;
            segment_bytes >> 10
        });
        assert_eq!(first, [4, 4, 8, 64, 64], "in KiB");
        assert_eq!(log_segment_bytes(4 << 20, LOG_SHARE, min, max), 128 << 10);
        assert_eq!(log_segment_bytes(1 << 40, LOG_SHARE, min, max), 2 << 20);
        assert_eq!(log_segment_bytes(43 << 20, REUSED_SHARE, min, max), 256 << 10);
    }

    #[test]
    fn a_record_that_is_not_big_fits_every_segment_size() {
        for bits in 12..=21 {
            let segment = 1 << bits;
            assert!(big_record_bytes_min(segment) <= segment / 4);
        }
    }
}
