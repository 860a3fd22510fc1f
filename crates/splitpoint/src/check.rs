//! Verify a store without writing; a report, not an error.

use std::fmt;

use crate::atomic::Ordering;
use crate::checkpoint::Image;
use crate::error::Error;
use crate::format::{
    Addr, CheckpointName, GRANULE_BYTES, HEADER_BYTES, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS,
    SegmentHeader, Superblock, SuperblockFault, u64_at,
};
use crate::index::Lines;
use crate::index::lookup::for_each_line;
use crate::index::shape::Shape;
use crate::index::slot::{Slot, Tag};
use crate::linear::{BucketIndex, Geometry};
use crate::live::{END_OFFSET, FREE_LINES_OFFSET, LINES_USED_OFFSET, LineWindow};
use crate::log::batch::Batches;
use crate::log::record::{Record, RecordKind};
use crate::log::scan::{LogWalk, Trust, big_record};
use crate::piece::piece_of;
use crate::space::Extent;
use crate::store::{Store, Writer};

/// One damage that a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// What is broken: a term of the glossary.
    pub what: &'static str,
    /// Where, in bytes from the start of the file.
    pub offset: u64,
    /// What the format asks for there.
    pub expected: u64,
    /// What is there.
    pub found: u64,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, offset, expected, found } = self;
        write!(f, "{what} at byte {offset}: expected {expected:#x}, found {found:#x}")
    }
}

/// What a check looked at and what it found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// Records of the log whose checksum was verified.
    pub record_count: u64,
    /// Bytes of the log that were read.
    pub log_bytes: u64,
    /// Buckets and overflow lines that were compared with the log.
    pub line_count: u64,
    /// The first damages found, at most [`CheckReport::DAMAGES_MAX`].
    pub damages: Vec<Damage>,
    /// How many there are in all.
    pub damage_count: u64,
}

impl CheckReport {
    /// Damages that a report lists; the rest are counted.
    pub const DAMAGES_MAX: usize = 1000;

    /// Returns whether nothing was found.
    pub fn is_clean(&self) -> bool {
        self.damage_count == 0
    }

    /// Notes a damage.
    pub(crate) fn note(&mut self, what: &'static str, offset: u64, expected: u64, found: u64) {
        self.damage_count += 1;
        if self.damages.len() < Self::DAMAGES_MAX {
            self.damages.push(Damage { what, offset, expected, found });
        }
    }
}

/// One bit for each address of a file.
struct AddrSet(Vec<u64>);

impl AddrSet {
    fn for_file(file_bytes: u64) -> Self {
        Self(vec![0; (file_bytes / 8 / 64) as usize + 1])
    }

    /// Adds or removes an address and returns whether it was in; `None` outside the file.
    fn set(&mut self, addr: Addr, is_in: bool) -> Option<bool> {
        let word = self.0.get_mut((addr.0 / 64) as usize)?;
        let bit = 1 << (addr.0 % 64);
        let was_in = *word & bit != 0;
        *word = if is_in { *word | bit } else { *word & !bit };
        Some(was_in)
    }

    /// Returns the addresses that are in.
    fn iter(&self) -> impl Iterator<Item = Addr> + '_ {
        self.0.iter().enumerate().flat_map(|(i, &word)| {
            (0..64)
                .filter(move |bit| word >> bit & 1 == 1)
                .map(move |bit| Addr(i as u64 * 64 + bit))
        })
    }
}

impl Store {
    /// Verifies log and index against each other.
    ///
    /// The log alone says which records are live: every one that stores a pair, less those that
    /// a later record names as the one it replaces. The index must hold just these.
    pub(crate) fn check(&self, writer: &Writer) -> CheckReport {
        let mut report = CheckReport::default();
        self.check_superblocks(&mut report);
        // An index in memory of its own has no pieces in the file.
        if !self.region.is_private()
            && let Err(error) = self.region.live().validate(self.region.file_bytes())
        {
            report.note_error(&error);
        }
        let mut live = AddrSet::for_file(self.region.file_bytes());
        let mut used = Vec::new();
        let record_count = self.check_log(writer, &mut live, &mut used, &mut report);
        self.check_space(used, &mut report);
        self.check_index(&mut live, &mut report);
        let missing: Vec<Addr> = live.iter().collect();
        for addr in missing {
            report.note("record missing in the index", addr.offset(), addr.0, 0);
        }
        let stored_count = writer.state.record_count;
        if record_count != stored_count {
            report.note("record count", crate::format::LIVE_OFFSET, record_count, stored_count);
        }
        report
    }

    fn check_superblocks(&self, report: &mut CheckReport) {
        let storage = self.region.storage();
        if storage.is_volatile() {
            return;
        }
        let _no_writes = self.superblock_writes();
        let mut newest: Option<Superblock> = None;
        for offset in SUPERBLOCK_OFFSETS {
            let block = storage.read(offset, SUPERBLOCK_BYTES);
            // A new store has written only one of them.
            let is_unwritten = block.iter().all(|&byte| byte == 0);
            match Superblock::decode(&block) {
                Ok(block) => {
                    if newest.as_ref().is_none_or(|other| other.generation < block.generation) {
                        newest = Some(block);
                    }
                }
                Err(_) if is_unwritten => {}
                Err(SuperblockFault::Field { what, offset: at, expected, found }) => {
                    report.note(what, offset + at, expected, found);
                }
                Err(_) => report.note("superblock magic", offset, 0, u64_at(&block, 0)),
            }
        }
        match newest {
            None => report.note("superblocks", 0, 1, 0),
            Some(superblock) => {
                if let Some(name) = superblock.checkpoint {
                    self.check_checkpoint(name, report);
                }
            }
        }
    }

    /// Verifies the checkpoint that a recovery would begin with.
    fn check_checkpoint(&self, name: CheckpointName, report: &mut CheckReport) {
        let region = &self.region;
        let checked = Image::open(region, name)
            .and_then(|image| image.for_each_entry(region, |_, _| Ok(()), |_| {}, |_| {}));
        if let Err(error) = checked {
            report.note_error(&error);
        }
    }

    /// Verifies every record of the log and collects the live ones; returns how many there are.
    fn check_log(
        &self,
        writer: &Writer,
        live: &mut AddrSet,
        used: &mut Vec<Extent>,
        report: &mut CheckReport,
    ) -> u64 {
        let end = writer.log.position();
        let start = writer.superblock.log_start;
        let mut record_count: u64 = 0;
        let mut walk = match LogWalk::new(&self.region, start, Trust::Published, end.lsn) {
            Ok(Some(walk)) => walk,
            Ok(None) => return 0,
            Err(error) => {
                report.note_error(&error);
                return 0;
            }
        };
        used.push(extent_of(start.segment_offset, walk.header()));
        let mut batches = Batches::default();
        loop {
            let salt = walk.header().salt;
            let record = match walk.next_record() {
                Ok(Some(record)) => record,
                Ok(None) => break,
                Err(error) => {
                    report.note_error(&error);
                    return record_count;
                }
            };
            report.record_count += 1;
            report.log_bytes += record.bytes.len() as u64;
            if let Err(error) = record.verify(salt) {
                report.note_error(&error);
                // What a damaged record says is not to be believed, not even its size.
                return record_count;
            }
            if record.header.kind == RecordKind::Link {
                used.push(extent_of(walk.position().segment_offset, walk.header()));
            }
            batches.add(&record, Some(record), |record| {
                record_count = self.check_record(&record, record_count, live, used, report);
            });
        }
        if walk.position() != end {
            report.note("end of the log", end.offset, end.lsn, walk.position().lsn);
        }
        record_count
    }

    fn check_record(
        &self,
        record: &Record<'_>,
        record_count: u64,
        live: &mut AddrSet,
        used: &mut Vec<Extent>,
        report: &mut CheckReport,
    ) -> u64 {
        let addr = match record.header.kind {
            RecordKind::Put => Some(record.addr()),
            RecordKind::BigPut => match big_record(&self.region, record) {
                Ok(big) => {
                    report.log_bytes += big.bytes.len() as u64;
                    let segment_offset = big.offset - SegmentHeader::BYTES;
                    if let Ok(header) = self.region.segment(segment_offset) {
                        used.push(extent_of(segment_offset, &header));
                    }
                    Some(big.addr())
                }
                Err(error) => {
                    report.note_error(&error);
                    None
                }
            },
            RecordKind::Delete => None,
            _ => return record_count,
        };
        if let Some(prev) = record.header.prev
            && live.set(prev, false) != Some(true)
        {
            report.note("record prev", record.offset + 8, 1, prev.0);
        }
        if let Some(addr) = addr {
            live.set(addr, true);
        }
        match (record.header.kind, record.header.prev) {
            (RecordKind::Delete, _) => record_count.saturating_sub(1),
            (_, None) => record_count + 1,
            (_, Some(_)) => record_count,
        }
    }

    /// Checks that no granule has two uses: `used` has the segments that the log is in. What will be
    /// handed out must be in none of them, nor in a piece of the index, nor twice on the list.
    ///
    /// A granule that has no use at all is lost until the index is built again, which harms nobody.
    fn check_space(&self, mut used: Vec<Extent>, report: &mut CheckReport) {
        let region = &self.region;
        let live = region.live();
        let space = live.space();
        if region.storage().is_volatile() {
            return;
        }
        used.push(Extent { granule: 0, count: HEADER_BYTES / GRANULE_BYTES });
        // Those of an index in memory are in no file.
        if !region.is_private() {
            for window in LineWindow::ALL {
                used.extend((0..live.piece_count(window)).map(|piece| Extent {
                    granule: live.piece(window, piece),
                    count: piece_of(piece).granule_count(),
                }));
            }
            // A killed process may have noted one before it was taken, or after it was given back.
            let checkpoints = live.checkpoint_extents().into_iter().flatten();
            used.extend(checkpoints.filter(|&extent| !space.is_free(extent)));
        }
        let last = used.iter().map(|extent| extent.granule + extent.count).max();
        if let Some(last) = last.filter(|&last| last > space.end()) {
            report.note("end of the file in granules", END_OFFSET, last, space.end());
        }
        used.extend_from_slice(space.free());
        used.sort_unstable_by_key(|extent| extent.granule);
        for pair in used.windows(2) {
            let end = pair[0].granule + pair[0].count;
            if end > pair[1].granule {
                report.note("granule with two uses", pair[1].granule * GRANULE_BYTES, 1, 2);
            }
        }
    }

    /// Compares every slot with the live records and takes those that are found out of `live`.
    fn check_index(&self, live: &mut AddrSet, report: &mut CheckReport) {
        let region = &self.region;
        let geometry = Shape::of_word(region.shape().load(Ordering::Acquire)).geometry;
        let mut lines = vec![false; region.line_count(LineWindow::Overflow) as usize + 1];
        for bucket in (0..geometry.bucket_count()).map(BucketIndex) {
            let walked = for_each_line(region, bucket, |number, line| {
                report.line_count += 1;
                let (window, index) = match number {
                    None => (LineWindow::Buckets, bucket.0),
                    Some(number) => (LineWindow::Overflow, u64::from(number.0) - 1),
                };
                let offset =
                    if region.is_private() { 0 } else { region.line_offset(window, index) };
                if let Some(number) = number
                    && std::mem::replace(&mut lines[number.0 as usize], true)
                {
                    report.note("overflow line in two chains", offset, 1, 2);
                }
                for (i, slot) in line.slots_in_use() {
                    self.check_slot(slot, bucket, geometry, offset + i as u64 * 8, live, report);
                }
            });
            if let Err(error) = walked {
                report.note_error(&error);
            }
        }
        self.check_free_lines(&mut lines, report);
    }

    /// Checks that the lines that will be handed out are in no chain: `lines` has those that are.
    /// Lines in neither are lost until the index is built again, which harms nobody.
    fn check_free_lines(&self, lines: &mut [bool], report: &mut CheckReport) {
        let region = &self.region;
        let live = region.live();
        let used = live.lines_used();
        let last = lines.iter().rposition(|&is_in_chain| is_in_chain).unwrap_or(0) as u64;
        if last > used {
            report.note("overflow lines handed out", LINES_USED_OFFSET, last, used);
        }
        let (mut next, count) = live.free_lines();
        let mut found_count = 0;
        while let Some(number) = next {
            let is_free = u64::from(number.0) <= used
                && !std::mem::replace(&mut lines[number.0 as usize], true);
            let Some(line) = region.overflow(number).filter(|_| is_free) else {
                report.note("free overflow line", FREE_LINES_OFFSET, used, number.0.into());
                return;
            };
            found_count += 1;
            next = line.next_free();
        }
        // A killed process may have left a count that is too low.
        if found_count < count {
            report.note("free overflow lines", FREE_LINES_OFFSET, found_count, count);
        }
    }

    fn check_slot(
        &self,
        slot: Slot,
        bucket: BucketIndex,
        geometry: Geometry,
        offset: u64,
        live: &mut AddrSet,
        report: &mut CheckReport,
    ) {
        if live.set(slot.addr(), false) != Some(true) {
            report.note("slot without a live record", offset, 0, slot.0);
            return;
        }
        match self.region.pair(slot.addr()) {
            Ok(pair) => {
                let hash = self.hash_of(pair.key);
                let expected = Slot::new(Tag::of_hash(hash), slot.addr());
                if slot != expected {
                    report.note("tag of a slot", offset, expected.0, slot.0);
                } else if geometry.bucket_of(hash) != bucket {
                    report.note("bucket of a slot", offset, geometry.bucket_of(hash).0, bucket.0);
                }
            }
            Err(error) => report.note_error(&error),
        }
    }
}

/// Returns the granules of the segment at `offset`.
fn extent_of(offset: u64, header: &SegmentHeader) -> Extent {
    Extent { granule: offset / GRANULE_BYTES, count: header.segment_bytes / GRANULE_BYTES }
}

impl CheckReport {
    fn note_error(&mut self, error: &Error) {
        match error {
            Error::Corrupt { what, offset, expected, found } => {
                self.note(what, *offset, *expected, *found);
            }
            _ => self.note("operation", 0, 0, 0),
        }
    }
}
