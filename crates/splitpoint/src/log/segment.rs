//! `Segment`: the extent of a segment's records, and its link to the previous segment.
//!
//! Each log segment is linked to its predecessor twice: the LINK record at the end of the
//! predecessor names it, and its own header names the predecessor and the log sequence number after
//! that LINK. If one of the two is damaged, the other is enough.

use super::append::LogPosition;
use super::record::{LINK_BYTES, RecordHeader};
use crate::format::{GRANULE_BYTES, LOG_SEGMENT_BYTES_MAX, SegmentHeader, SegmentKind};
use crate::region::View;
use crate::testing::mutant::{self, Mutant};

/// A log segment or a big segment, as described by its header, or by the records before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) base_lsn: u64,
    pub(crate) sequence: u64,
    pub(crate) previous_offset: u64,
    pub(crate) salt: u64,
}

impl Segment {
    /// Returns the segment at `offset`, as described by its header.
    pub(crate) fn new(offset: u64, header: &SegmentHeader) -> Self {
        debug_assert!(offset.is_multiple_of(GRANULE_BYTES), "a segment begins at a granule");
        Self {
            offset,
            bytes: header.segment_bytes,
            base_lsn: header.base_lsn,
            sequence: header.sequence,
            previous_offset: header.previous_offset,
            salt: header.salt,
        }
    }

    /// Reconstructs the log segment at `offset`, whose header is damaged, from the LINK that names
    /// it. Its size is the largest possible up to `bytes_max`, given that a segment begins at a
    /// multiple of its size.
    pub(crate) fn made_up(
        offset: u64,
        salt: u64,
        base_lsn: u64,
        previous_offset: u64,
        bytes_max: u64,
    ) -> Self {
        let aligned = 1 << offset.trailing_zeros().min(LOG_SEGMENT_BYTES_MAX.trailing_zeros());
        let bytes = bytes_max.min(aligned);
        debug_assert!(bytes <= LOG_SEGMENT_BYTES_MAX && offset.is_multiple_of(GRANULE_BYTES));
        Self { offset, bytes, base_lsn, sequence: 0, previous_offset, salt }
    }

    /// Returns the offset of the first record.
    pub(crate) fn first(&self) -> u64 {
        self.offset + SegmentHeader::BYTES
    }

    /// Returns the end of the segment.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.bytes
    }

    /// Returns whether `naming`, the header of the BIGPUT record with the log sequence number
    /// `lsn`, names this big segment.
    ///
    /// An earlier big segment in the same space may have the same size, be valid, and even have the
    /// same number, because log sequence numbers are reused after a power loss, and a process may
    /// be killed before it names the record that it has written. But it has another salt. Records
    /// of earlier builds name no salt.
    pub(crate) fn is_named_by(&self, naming: &RecordHeader, lsn: u64) -> bool {
        let is_salt = |salt| salt == self.salt || mutant::is_made(Mutant::IgnoresSaltOfBigs);
        self.base_lsn == lsn && naming.salt.is_none_or(is_salt)
    }

    /// Returns the log sequence number of the record at `offset`.
    pub(crate) fn lsn_at(&self, offset: u64) -> u64 {
        debug_assert!(self.first() <= offset, "no record is before the first");
        self.base_lsn + (offset - self.first())
    }

    /// Returns the offset of the LINK record, if `next` follows this segment.
    pub(crate) fn link_before(&self, next: &Segment) -> Option<u64> {
        let before = next.base_lsn.checked_sub(self.base_lsn)?.checked_sub(LINK_BYTES)?;
        let at = self.first() + before;
        debug_assert_eq!(self.lsn_at(at) + LINK_BYTES, next.base_lsn);
        (next.previous_offset == self.offset && at + LINK_BYTES <= self.end()).then_some(at)
    }
}

/// Returns the log segment at `offset`, if there is one.
pub(crate) fn log_segment_at(view: &View, offset: u64) -> Option<Segment> {
    let header = view.segment(offset).ok()?;
    (header.kind == SegmentKind::Log).then(|| Segment::new(offset, &header))
}

/// Returns the segment of `end` and its predecessors, newest first, as far as the headers are
/// valid; `segment_at` reads a header.
pub(crate) fn segments_before(
    end: LogPosition,
    segment_at: impl Fn(u64) -> Option<Segment>,
) -> impl Iterator<Item = Segment> {
    let last = segment_at(end.segment_offset).filter(|last| {
        (last.first()..=last.end()).contains(&end.offset) && last.lsn_at(end.offset) == end.lsn
    });
    backwards(last, segment_at)
}

/// Returns `last` and its predecessors, newest first, as far as the headers are valid; `segment_at`
/// reads a header.
pub(crate) fn backwards(
    last: Option<Segment>,
    segment_at: impl Fn(u64) -> Option<Segment>,
) -> impl Iterator<Item = Segment> {
    // Terminates, because the log sequence number decreases with every step.
    std::iter::successors(last, move |segment| {
        let previous = segment_at(segment.previous_offset)?;
        previous.link_before(segment)?;
        assert!(previous.base_lsn < segment.base_lsn, "a walk backwards ends");
        Some(previous)
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::log::record::RecordKind;

    fn segment(offset: u64, base_lsn: u64, previous_offset: u64) -> Segment {
        Segment { offset, bytes: 4096, base_lsn, sequence: 0, previous_offset, salt: 0 }
    }

    #[test]
    fn a_big_segment_is_told_by_the_record_that_names_it() {
        let big = Segment { salt: 7, ..segment(65_536, 96, 0) };
        let naming = |salt| RecordHeader { salt, ..RecordHeader::new(RecordKind::BigPut, 0, 16) };
        assert!(big.is_named_by(&naming(Some(7)), 96));
        assert!(!big.is_named_by(&naming(Some(8)), 96), "one that had the same number");
        assert!(!big.is_named_by(&naming(Some(7)), 120));
        assert!(big.is_named_by(&naming(None), 96), "of an earlier build");
        assert!(!big.is_named_by(&naming(None), 120));
    }

    #[test]
    fn a_chain_is_followed_backwards_as_far_as_its_headers_tell() {
        let chain =
            [segment(65_536, 0, 0), segment(32_768, 1024, 65_536), segment(131_072, 2048, 32_768)];
        let end = LogPosition { segment_offset: 131_072, offset: 131_072 + 64 + 8, lsn: 2056 };
        let offsets = |end: LogPosition, damaged: u64| -> Vec<u64> {
            let at = |offset| {
                chain.into_iter().find(|segment| segment.offset == offset && offset != damaged)
            };
            segments_before(end, at).map(|segment| segment.offset).collect()
        };
        assert_eq!(offsets(end, 0), [131_072, 32_768, 65_536]);
        assert_eq!(offsets(end, 32_768), [131_072]);
        assert_eq!(offsets(end, 131_072), []);
        assert_eq!(
            offsets(LogPosition { lsn: 2064, ..end }, 0),
            [],
            "the header says another number"
        );
    }

    /// A header whose number fits no LINK in the segment before it does not follow that one.
    #[test]
    fn a_segment_follows_another_only_if_its_link_fits_there() {
        let previous = segment(65_536, 1000, 0);
        for (base_lsn, link) in
            [(1024, Some(65_600)), (1023, None), (999, None), (5032, Some(69_608)), (5040, None)]
        {
            assert_eq!(previous.link_before(&segment(0, base_lsn, 65_536)), link, "{base_lsn}");
        }
        assert_eq!(previous.link_before(&segment(0, 1024, 4096)), None);
    }

    #[test]
    fn a_segment_that_is_made_up_ends_before_the_next_place_for_one_of_its_size() {
        let bytes = |offset, room| Segment::made_up(offset, 1, 2, 3, room).bytes;
        assert_eq!(bytes(3 << 16, 1 << 40), 1 << 16);
        assert_eq!(bytes(1 << 30, 1 << 40), LOG_SEGMENT_BYTES_MAX);
        assert_eq!(bytes(1 << 30, 8192), 8192);
    }
}
