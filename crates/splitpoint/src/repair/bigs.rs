//! Find the big records that the log names, and those that it may have named where it is lost.
//!
//! A big record lies alone in a segment, and a small one in the log names it; one counts with the
//! other.

use std::collections::{BTreeMap, HashMap};

use super::reader::Reader;
use super::segments::{Log, Losses, Part};
use crate::checksum;
use crate::error::Result;
use crate::log::record::{HEADER_BYTES_MAX, Record, RecordHeader, RecordKind, finish_crc};
use crate::log::scan::big_target;
use crate::log::segment::Segment;

/// The big records of a log.
#[derive(Debug, Default)]
pub(super) struct Bigs {
    /// Valid ones by offset of the segment, those in doubt included.
    pub(super) valid: HashMap<u64, Segment>,
    /// Those whose naming records are lost, by log sequence number.
    pub(super) doubtful: BTreeMap<u64, Segment>,
    pub(super) lost_count: u64,
    pub(super) record_bytes: u64,
}

impl Bigs {
    /// Verifies the big records that the log names, and those that it may have named where it is
    /// damaged.
    pub(super) fn find(reader: &mut Reader<'_>, log: &Log, losses: &Losses) -> Result<Self> {
        let mut bigs = Self::default();
        let mut taken: BTreeMap<u64, u64> = BTreeMap::new();
        for part in &log.parts {
            taken.insert(part.segment.offset, part.segment.end());
        }
        for part in &log.parts {
            part.each_record(reader, |reader, record| {
                if record.header.kind == RecordKind::BigPut
                    && !bigs.add_named(reader, log, part, record, &mut taken)
                {
                    bigs.lost_count += 1;
                }
                Ok(())
            })?;
        }
        bigs.add_doubtful(reader, log, losses, &mut taken)?;
        Ok(bigs)
    }

    /// Takes the big record that `naming` names; returns whether it is valid.
    fn add_named(
        &mut self,
        reader: &mut Reader<'_>,
        log: &Log,
        part: &Part,
        naming: &Record<'_>,
        taken: &mut BTreeMap<u64, u64>,
    ) -> bool {
        let Ok((offset, segment_bytes)) = big_target(naming) else { return false };
        let Some(&segment) = log.bigs.get(&offset) else { return false };
        let lsn = part.segment.lsn_at(naming.offset);
        let is_meant = segment.bytes == segment_bytes && segment.is_named_by(&naming.header, lsn);
        if !is_meant || !take(taken, &segment) {
            return false;
        }
        match verify_big(reader, &segment) {
            Some(header) if header.prev == naming.header.prev => {
                self.record_bytes += header.record_bytes();
                self.valid.insert(offset, segment);
                true
            }
            _ => false,
        }
    }

    /// Takes the big records that were named where the log is lost. Where the log is whole, one
    /// that nobody names was never part of it.
    fn add_doubtful(
        &mut self,
        reader: &mut Reader<'_>,
        log: &Log,
        losses: &Losses,
        taken: &mut BTreeMap<u64, u64>,
    ) -> Result<()> {
        let is_open = !log.has_tail && !log.parts.is_empty() || !log.has_start;
        let end_lsn = log.end_lsn();
        for segment in log.bigs.values() {
            let lsn = segment.base_lsn;
            let before = losses.missing.partition_point(|range| range.start <= lsn);
            let is_missing = before > 0 && losses.missing[before - 1].contains(&lsn);
            let may_be_named = is_missing || is_open && lsn >= end_lsn;
            if !may_be_named || !take(taken, segment) {
                continue;
            }
            let Some(header) = verify_big(reader, segment) else { continue };
            self.record_bytes += header.record_bytes();
            reader.advance("verify", 0, reader.verified_bytes)?;
            // Of two for one place the younger was the last to be tried.
            let place = self.doubtful.entry(lsn).or_insert(*segment);
            if place.sequence < segment.sequence {
                *place = *segment;
            }
        }
        self.valid.extend(self.doubtful.values().map(|segment| (segment.offset, *segment)));
        Ok(())
    }
}

/// Marks a segment as used, if none of it is: so each byte is verified once at most.
fn take(taken: &mut BTreeMap<u64, u64>, segment: &Segment) -> bool {
    let before = taken.range(..segment.end()).next_back();
    if before.is_some_and(|(_, &end)| end > segment.offset) {
        return false;
    }
    taken.insert(segment.offset, segment.end());
    true
}

/// Bytes of a big record that are read together.
const CHUNK_BYTES: u64 = 1 << 20;

/// Returns the header of the record in a big segment, if it is valid.
pub(super) fn verify_big(reader: &mut Reader<'_>, segment: &Segment) -> Option<RecordHeader> {
    let (header, record_bytes) = big_header(reader, segment)?;
    let first = segment.first();
    let (mut chunk, head_bytes) = (Vec::new(), header.header_bytes());
    reader.read(first, head_bytes, &mut chunk);
    let head = chunk.clone();
    let (mut at, end) = (first + head_bytes, first + record_bytes);
    let mut payload = 0;
    while at < end {
        let bytes = CHUNK_BYTES.min(end - at);
        reader.read(at, bytes, &mut chunk);
        payload = checksum::crc32c_append(payload, &chunk);
        at += bytes;
    }
    let expected = finish_crc(payload, &head, segment.salt, first);
    let is_valid = expected == crate::format::u32_at(&head, 0) && header.kind == RecordKind::Big;
    reader.verified_bytes += record_bytes;
    is_valid.then_some(header)
}

/// Returns the header of the record in a big segment and its size in bytes, all inside the file.
pub(super) fn big_header(
    reader: &mut Reader<'_>,
    segment: &Segment,
) -> Option<(RecordHeader, u64)> {
    let end = segment.end().min(reader.file_bytes());
    let room = end.checked_sub(segment.first())?;
    let mut head = Vec::new();
    reader.read(segment.first(), room.min(HEADER_BYTES_MAX as u64), &mut head);
    let header = RecordHeader::decode(&head, room, segment.first()).ok()?;
    Some((header, header.record_bytes()))
}

/// A key and its value, out of a big segment.
pub(super) struct OwnedPair {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
}

/// Reads the key of the record in a big segment that has been verified.
pub(super) fn read_big_key(reader: &mut Reader<'_>, segment: &Segment) -> Option<Vec<u8>> {
    let (header, _) = big_header(reader, segment)?;
    let mut key = Vec::new();
    reader.read(segment.first() + header.header_bytes(), header.key_bytes, &mut key);
    Some(key)
}

/// Reads the record of a big segment that has been verified.
pub(super) fn read_big(reader: &mut Reader<'_>, segment: &Segment) -> Option<OwnedPair> {
    let (header, _) = big_header(reader, segment)?;
    let value_offset = segment.first() + header.header_bytes() + header.key_bytes;
    let mut value = Vec::new();
    reader.read(value_offset, header.value_bytes, &mut value);
    Some(OwnedPair { key: read_big_key(reader, segment)?, value })
}
