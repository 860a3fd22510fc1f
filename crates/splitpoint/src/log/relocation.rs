//! `Relocation`: the record in the log that names the records that compaction has moved.

use std::ops::Range;

use super::record::{LINK_BYTES, Record, RecordKind};
use super::scan::link_target;
use super::segment::Segment;
use crate::checksum;
use crate::error::{Error, Result};
use crate::format::{Addr, SegmentHeader, SegmentKind, u64_at};
use crate::region::View;
use crate::testing::mutant::{self, Mutant};

/// Bytes of the value before its entries.
const HEAD_BYTES: usize = 24;
/// Largest number of records that a relocation names.
pub(crate) const MOVED_MAX: usize = 256;

/// A moved record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    /// The address of the original, and its size in bytes.
    pub(crate) from: Addr,
    pub(crate) from_bytes: u64,
}

/// Records whose copies are contiguous in a segment of compacted records.
///
/// A relocation is valid only if every copy is, as a record that names a big record is only valid
/// with it. After a power loss, other records may be moved to the same place under the same salt,
/// so the header has a checksum over the checksums of the copies.
///
/// ```text
/// offset  size  field
///      0     8  offset of the segment
///      8     8  its salt
///     16     8  offset of the first copy in the file
///     24     -  for each copy, 8 bytes: address of the original (bits 0-39), its size / 8 (40-63)
/// ```
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relocation<'a> {
    pub(crate) segment_offset: u64,
    pub(crate) salt: u64,
    pub(crate) first: u64,
    /// The checksum over the checksums of the copies; `None` in files of earlier builds.
    copies_crc: Option<u64>,
    entries: &'a [u8],
}

impl<'a> Relocation<'a> {
    /// Returns the size in bytes of the value of a relocation of `count` records.
    pub(crate) fn value_bytes(count: usize) -> u64 {
        (HEAD_BYTES + 8 * count) as u64
    }

    /// Returns the checksum over `crcs`, the checksums of the copies, in order.
    pub(crate) fn copies_crc(crcs: impl Iterator<Item = u32>) -> u64 {
        crcs.fold(0, with_copy).into()
    }

    /// Encodes to `value` the value of the relocation whose first copy is at `first`.
    pub(crate) fn encode(
        segment_offset: u64,
        salt: u64,
        first: u64,
        moved: impl ExactSizeIterator<Item = Moved>,
        value: &mut Vec<u8>,
    ) {
        assert!((1..=MOVED_MAX).contains(&moved.len()));
        value.clear();
        value.reserve(HEAD_BYTES + 8 * moved.len());
        for word in [segment_offset, salt, first] {
            value.extend_from_slice(&word.to_le_bytes());
        }
        for moved in moved {
            debug_assert!(moved.from_bytes / 8 < 1 << (64 - Addr::BITS));
            let word = (moved.from_bytes / 8) << Addr::BITS | moved.from.0;
            value.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// Decodes a record of the log.
    pub(crate) fn decode(record: &Record<'a>) -> Result<Self> {
        let value = record.value();
        let is_whole = value.len() > HEAD_BYTES && value.len().is_multiple_of(8);
        if !is_whole || record.header.key_bytes != 0 {
            let (expected, found) = (HEAD_BYTES as u64 + 8, value.len() as u64);
            let offset = record.offset + 6;
            return Err(Error::Corrupt { what: "record value size", offset, expected, found });
        }
        Ok(Self {
            segment_offset: u64_at(value, 0),
            salt: u64_at(value, 8),
            first: u64_at(value, 16),
            copies_crc: record.header.salt,
            entries: &value[HEAD_BYTES..],
        })
    }

    /// Returns the offset of the first copy.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Returns the salt of the segment of the copies.
    pub(crate) fn salt(&self) -> u64 {
        self.salt
    }

    /// Returns the moved records.
    pub(crate) fn moved(&self) -> impl ExactSizeIterator<Item = Moved> + use<'a> {
        self.entries.chunks_exact(8).map(|entry| {
            let word = u64_at(entry, 0);
            let from = Addr(word & ((1 << Addr::BITS) - 1));
            Moved { from, from_bytes: (word >> Addr::BITS) * 8 }
        })
    }

    /// Returns the header of the segment of the copies. Fails if it is not the segment that the
    /// relocation names.
    pub(crate) fn segment(&self, view: &View) -> Result<SegmentHeader> {
        let header = view.segment(self.segment_offset)?;
        let corrupt = |what, at, expected, found| {
            Err(Error::Corrupt { what, offset: self.segment_offset + at, expected, found })
        };
        if header.kind != SegmentKind::Compacted {
            let (expected, found) = (SegmentKind::Compacted as u64, header.kind as u64);
            return corrupt("segment kind", 4, expected, found);
        }
        if header.salt != self.salt {
            return corrupt("segment salt", 40, self.salt, header.salt);
        }
        Ok(header)
    }

    /// Verifies the checksum of every copy, that they are the copies that the relocation names, and
    /// that the chain of compacted segments leads to this one. `head` is a compacted segment that
    /// is known to be valid.
    pub(crate) fn verify(&self, view: &View, head: u64) -> Result<()> {
        let header = self.segment(view)?;
        if self.segment_offset != head {
            self.verify_link(view, &header)?;
        }
        let (mut verified, mut crc) = (Ok(()), 0);
        self.for_each_copy(view, |copy, _| {
            if verified.is_ok() {
                verified = copy.verify(header.salt);
            }
            crc = with_copy(crc, copy.crc());
        })?;
        verified?;
        let (offset, found) = (self.first, u64::from(crc));
        match self.copies_crc {
            Some(expected) if expected != found && !mutant::is_made(Mutant::TakesOtherCopies) => {
                Err(Error::Corrupt { what: "checksum of moved records", offset, expected, found })
            }
            None if mutant::is_made(Mutant::RefusesUnchecked) => Err(Error::Corrupt {
                what: "checksum of moved records",
                offset,
                expected: 0,
                found,
            }),
            _ => Ok(()),
        }
    }

    /// Calls `each` with every copy and what was moved there; returns where the last one ends.
    pub(crate) fn for_each_copy<'v>(
        &self,
        view: &'v View,
        mut each: impl FnMut(Record<'v>, Moved),
    ) -> Result<u64> {
        let header = self.segment(view)?;
        let end = self.segment_offset + header.segment_bytes;
        let mut at = self.first.max(self.segment_offset + SegmentHeader::BYTES) / 8 * 8;
        for moved in self.moved() {
            let copy = view.record_before(at, end)?;
            if copy.header.kind != RecordKind::Put || moved.from.0 == 0 {
                let (expected, found) = (RecordKind::Put as u64, copy.header.kind as u64);
                let offset = at + 4;
                return Err(Error::Corrupt { what: "moved record", offset, expected, found });
            }
            each(copy, moved);
            at += copy.bytes.len() as u64;
        }
        Ok(at)
    }

    /// Returns which part of the segment before must be durable for the first copies in this one to count: up
    /// to the LINK that leads here.
    pub(crate) fn range_before(&self, view: &View) -> Option<Range<u64>> {
        let segment = Segment::new(self.segment_offset, &self.segment(view).ok()?);
        if self.first != segment.first() || segment.previous_offset == 0 {
            return None;
        }
        // Where its space has another use by now, no replay comes here.
        let header = view.segment(segment.previous_offset).ok()?;
        let before = Segment::new(segment.previous_offset, &header);
        before.link_before(&segment).map(|link| before.offset..link + LINK_BYTES)
    }

    /// Verifies that the segment before this one ends with a LINK to it, if the first copies here are
    /// meant: else nothing would say where its records end.
    fn verify_link(&self, view: &View, header: &SegmentHeader) -> Result<()> {
        let segment = Segment::new(self.segment_offset, header);
        if self.first != segment.first() || segment.previous_offset == 0 {
            return Ok(());
        }
        let (what, offset) = ("previous segment", self.segment_offset + 32);
        let found = segment.previous_offset;
        let before = Segment::new(found, &view.segment(found)?);
        let wrong = Error::Corrupt { what, offset, expected: header.base_lsn, found };
        let Some(at) = before.link_before(&segment) else { return Err(wrong) };
        let link = view.record_before(at, before.end())?;
        link.verify(before.salt)?;
        let is_meant = link.header.kind == RecordKind::Link
            && link_target(&link)? == (self.segment_offset, self.salt);
        if is_meant { Ok(()) } else { Err(wrong) }
    }
}

/// Goes on with the checksum over those of copies.
fn with_copy(crc: u32, copy_crc: u32) -> u32 {
    checksum::crc32c_append(crc, &copy_crc.to_le_bytes())
}
