//! `Replaced`: a pass over the valid records that finds which of them were replaced or deleted.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Found;
use super::bigs::{Bigs, read_big_key};
use super::marks::Marks;
use super::reader::Reader;
use super::segments::{Log, Part};
use crate::format::{Addr, SegmentHeader, u64_at};
use crate::hash::{HashFunction, HashId};
use crate::log::record::{HEADER_BYTES_MAX, Record, RecordHeader, RecordKind};
use crate::log::resync::decode_at;
use crate::log::segment::Segment;

/// A first pass over the valid records: which were replaced or deleted.
pub(super) struct Replaced<'a> {
    log: &'a Log,
    bigs: &'a Bigs,
    by_offset: BTreeMap<u64, usize>,
    /// Records that were replaced or deleted, by segment.
    marks: HashMap<u64, Marks>,
    pub(super) big_marks: HashSet<u64>,
    /// Whether no part of the log is lost. Then `prev` alone shows which record replaces which.
    pub(super) is_complete: bool,
    /// The hash function and its seed, if a hash tells which key was deleted.
    wide_hash: Option<(&'a HashFunction, u64)>,
    /// Deletes of records that are lost: the last log sequence number for each hash.
    deleted_hashes: HashMap<u64, u64>,
    pub(super) unknown_deletes: u64,
    pub(super) record_count: u64,
}

impl<'a> Replaced<'a> {
    pub(super) fn new(found: &'a Found) -> Self {
        let parts = found.log.parts.iter().enumerate();
        Self {
            log: &found.log,
            bigs: &found.bigs,
            by_offset: parts.map(|(i, part)| (part.segment.offset, i)).collect(),
            marks: HashMap::new(),
            big_marks: HashSet::new(),
            is_complete: found.losses.missing.is_empty()
                && found.bigs.lost_count == 0
                && found.losses.segments == 0,
            wide_hash: wide_hash(found),
            deleted_hashes: HashMap::new(),
            unknown_deletes: 0,
            record_count: 0,
        }
    }

    pub(super) fn add(&mut self, reader: &mut Reader<'_>, part: &Part, record: &Record<'_>) {
        self.record_count += 1;
        let lsn = part.segment.lsn_at(record.offset);
        match record.header.kind {
            RecordKind::Put | RecordKind::BigPut => {
                self.mark_replaced(record.header.prev, lsn);
            }
            RecordKind::Delete => {
                // A record is deleted once; in a file made to harm not even its key is read twice.
                let is_first = self.mark_replaced(record.header.prev, lsn);
                let is_known =
                    self.is_complete || is_first && self.key_of_deleted(reader, record).is_some();
                if !is_known {
                    self.add_unknown_delete(record, lsn);
                }
            }
            _ => {}
        }
    }

    fn add_unknown_delete(&mut self, record: &Record<'_>, lsn: u64) {
        if self.wide_hash.is_some() && record.value().len() == 8 {
            self.deleted_hashes.insert(u64_at(record.value(), 0), lsn);
        } else {
            self.unknown_deletes += 1;
        }
    }

    /// Marks the record at `prev` as replaced by the one at `lsn`. Returns whether it exists and was
    /// unmarked.
    pub(super) fn mark_replaced(&mut self, prev: Option<Addr>, lsn: u64) -> bool {
        let Some(offset) = prev.map(Addr::offset) else { return false };
        if let Some((part, _)) = self.log.run_at(offset, &self.by_offset) {
            let segment = &part.segment;
            if segment.lsn_at(offset) < lsn {
                let marks = self.marks.entry(segment.offset);
                return marks.or_insert_with(|| Marks::new(segment)).set(offset, true);
            }
        } else if let Some(segment) = self.big_at(offset)
            && segment.base_lsn < lsn
        {
            return self.big_marks.insert(segment.offset);
        }
        false
    }

    /// Clears the mark on the record at `prev`, and returns whether it was set.
    pub(super) fn unmark_replaced(&mut self, prev: Option<Addr>) -> bool {
        let Some(offset) = prev.map(Addr::offset) else { return false };
        if let Some((part, _)) = self.log.run_at(offset, &self.by_offset) {
            let marks = self.marks.get_mut(&part.segment.offset);
            return marks.is_some_and(|marks| marks.set(offset, false));
        }
        let segment = offset.checked_sub(SegmentHeader::BYTES);
        segment.is_some_and(|segment| self.big_marks.remove(&segment))
    }

    fn big_at(&self, offset: u64) -> Option<&'a Segment> {
        self.bigs.valid.get(&offset.checked_sub(SegmentHeader::BYTES)?)
    }

    pub(super) fn is_replaced(&self, segment: &Segment, offset: u64) -> bool {
        self.marks.get(&segment.offset).is_some_and(|marks| marks.has(offset))
    }

    /// Returns whether a delete that has only the hash of its key comes after `lsn`.
    pub(super) fn is_deleted_later(&self, key: &[u8], lsn: u64) -> bool {
        let Some((hash, seed)) = self.wide_hash.filter(|_| !self.deleted_hashes.is_empty()) else {
            return false;
        };
        self.deleted_hashes.get(&hash.hash(key, seed)).is_some_and(|&at| lsn < at)
    }

    /// Returns the key of the record that `record` deletes, if it can be read.
    pub(super) fn key_of_deleted(
        &self,
        reader: &mut Reader<'_>,
        record: &Record<'_>,
    ) -> Option<Vec<u8>> {
        let offset = record.header.prev?.offset();
        if let Some(segment) = self.big_at(offset) {
            return read_big_key(reader, segment);
        }
        let (part, run) = self.log.run_at(offset, &self.by_offset)?;
        let room = run.end - offset;
        let mut bytes = Vec::new();
        reader.read(offset, room.min(HEADER_BYTES_MAX as u64), &mut bytes);
        let header = RecordHeader::decode(&bytes, room, offset).ok()?;
        reader.read(offset, header.record_bytes(), &mut bytes);
        let record = decode_at(&bytes, offset, 0)?;
        // It must be a record, not a place inside one.
        record.verify(part.segment.salt).ok()?;
        (header.kind == RecordKind::Put).then(|| record.key().to_vec())
    }
}

/// Returns the hash function and the seed of the store if equal hashes mean equal keys: functions
/// of the user and those of 32 bits may give many keys the same hash.
fn wide_hash(found: &Found) -> Option<(&HashFunction, u64)> {
    const WIDE: [HashId; 4] =
        [HashId::RAPIDHASH_V3, HashId::XXH3_64, HashId::SIPHASH_1_3, HashId::FNV1A_64];
    let hash = found.hash.as_ref().filter(|hash| WIDE.contains(&hash.id()))?;
    Some((hash, found.superblock.as_ref()?.seed))
}
