//! `Losses`: which parts of the log a check could not read, and what was in them.

use std::collections::BTreeMap;
use std::ops::Range;

use super::addr_set::AddrSet;
use crate::format::{Addr, SegmentHeader, SegmentKind};
use crate::log::segment::Segment;
use crate::region::View;

/// The parts of the log that are damaged, and those that were read.
#[derive(Debug)]
pub(super) struct Losses {
    /// Whether there are any.
    is_any: bool,
    /// The damaged units of the file.
    units: AddrSet,
    /// Whether there are segments that nothing leads to.
    has_unread_segment: bool,
    /// The segments that were read, by the number of their first record: offset of that, and the
    /// number after the last.
    read: BTreeMap<u64, (u64, u64)>,
    /// The same, by offset, with their ends in the file.
    taken: BTreeMap<u64, u64>,
}

impl Losses {
    /// Nothing lost, of a file of this size.
    pub(super) fn none(file_bytes: u64) -> Self {
        Self {
            is_any: false,
            units: AddrSet::for_file(file_bytes),
            has_unread_segment: false,
            read: BTreeMap::new(),
            taken: BTreeMap::new(),
        }
    }

    /// Returns whether anything is lost.
    pub(super) fn is_any(&self) -> bool {
        self.is_any
    }

    /// Notes that a range of the file cannot be read.
    pub(super) fn add(&mut self, range: Range<u64>) {
        self.is_any = true;
        self.units.add_range(range);
    }

    /// Notes that segments are lost that nothing leads to.
    pub(super) fn add_unread_segment(&mut self) {
        self.is_any = true;
        self.has_unread_segment = true;
    }

    /// Notes that a segment is being read or was read, whose records end at `end` at the latest.
    pub(super) fn note_read(&mut self, segment: &Segment, end: u64) {
        self.read.insert(segment.base_lsn, (segment.first(), segment.lsn_at(end)));
        self.taken.insert(segment.offset, end);
    }

    /// Returns where the first segment behind `offset` begins that was read.
    pub(super) fn next_read(&self, offset: u64) -> Option<u64> {
        self.taken.range(offset + 1..).next().map(|(&next, _)| next)
    }

    /// Returns whether any of a range was read as part of the log.
    pub(super) fn was_read(&self, range: Range<u64>) -> bool {
        let before = self.taken.range(..range.end).next_back();
        before.is_some_and(|(_, &end)| end > range.start)
    }

    /// Returns whether the record at `addr` is in a range that was added.
    pub(super) fn is_added(&self, addr: Addr) -> bool {
        self.units.has(addr)
    }

    /// Returns whether the record at `addr`, if there was one, is lost: nothing can be said of it,
    /// nor of who names it.
    pub(super) fn has(&self, view: &View, addr: Addr) -> bool {
        self.is_any && (self.units.has(addr) || self.has_unread(view, addr.offset()))
    }

    /// Returns whether the record at `offset` is of a lost segment, or a big one that a lost record
    /// names.
    #[cold]
    fn has_unread(&self, view: &View, offset: u64) -> bool {
        let segment = offset.checked_sub(SegmentHeader::BYTES);
        let header = segment.and_then(|segment| view.segment(segment).ok());
        if let Some(header) = header.filter(|header| header.kind == SegmentKind::Big) {
            return self.has_lsn(header.base_lsn);
        }
        let is_read = self.was_read(offset..offset + 8);
        self.has_unread_segment && offset < view.file_bytes() && !is_read
    }

    /// Returns whether the record with this number is lost.
    fn has_lsn(&self, lsn: u64) -> bool {
        match self.read.range(..=lsn).next_back() {
            Some((base_lsn, &(first, end_lsn))) if lsn < end_lsn => {
                self.units.has(Addr::of_offset((first + (lsn - base_lsn)) / 8 * 8))
            }
            _ => self.has_unread_segment,
        }
    }
}
