//! `Segment`: where the records of one segment are, and which segment comes before it.
//!
//! Each log segment is bound to the one before it twice: the LINK record there names it, and its
//! own header names that segment and the log sequence number after the LINK. Where one of the two
//! is damaged the other is enough.

use super::append::LogPosition;
use super::record::LINK_BYTES;
use crate::format::{GRANULE_BYTES, LOG_SEGMENT_BYTES_MAX, SegmentHeader, SegmentKind};
use crate::region::View;

/// A log segment, or a big one: what its header says, or what the records before it say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) base_lsn: u64,
    pub(crate) sequence: u64,
    pub(crate) previous_offset: u64,
    pub(crate) salt: u64,
    /// Of a big one, the salt of the log segment that names it; 0 if that is not known.
    pub(crate) naming_salt: u64,
}

impl Segment {
    /// Returns the segment at `offset`, as its header says.
    pub(crate) fn new(offset: u64, header: &SegmentHeader) -> Self {
        debug_assert!(offset.is_multiple_of(GRANULE_BYTES), "a segment begins at a granule");
        Self {
            offset,
            bytes: header.segment_bytes,
            base_lsn: header.base_lsn,
            sequence: header.sequence,
            previous_offset: header.previous_offset,
            salt: header.salt,
            naming_salt: header.naming_salt,
        }
    }

    /// Makes up the log segment at `offset`, whose header is damaged, from the LINK that names it.
    /// Its size is the largest that is possible up to `bytes_max`: it begins at a multiple of its
    /// size.
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
        let (sequence, naming_salt) = (0, 0);
        Self { offset, bytes, base_lsn, sequence, previous_offset, salt, naming_salt }
    }

    /// Returns where the first record is.
    pub(crate) fn first(&self) -> u64 {
        self.offset + SegmentHeader::BYTES
    }

    /// Returns where the segment ends.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.bytes
    }

    /// Returns what the segment of a big record has, if the record at `offset` names it.
    pub(crate) fn name_at(&self, offset: u64) -> BigName {
        BigName { lsn: self.lsn_at(offset), salt: self.salt }
    }

    /// Returns the log sequence number of the record at `offset`.
    pub(crate) fn lsn_at(&self, offset: u64) -> u64 {
        debug_assert!(self.first() <= offset, "no record is before the first");
        self.base_lsn + (offset - self.first())
    }

    /// Returns where the LINK record was, if `next` follows this segment.
    pub(crate) fn link_before(&self, next: &Segment) -> Option<u64> {
        let before = next.base_lsn.checked_sub(self.base_lsn)?.checked_sub(LINK_BYTES)?;
        let at = self.first() + before;
        debug_assert_eq!(self.lsn_at(at) + LINK_BYTES, next.base_lsn);
        (next.previous_offset == self.offset && at + LINK_BYTES <= self.end()).then_some(at)
    }
}

/// What the segment of a big record says of the BIGPUT record that names it: the place of that in the log.
///
/// Other big records that have used the same space say something else, even if a power loss took the BIGPUT of
/// one and its log sequence number came again: then in another segment. One case is left: a process is killed
/// after it has written a big record and before it has named it, and the next process names another there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BigName {
    pub(crate) lsn: u64,
    /// Salt of the log segment.
    pub(crate) salt: u64,
}

impl BigName {
    /// Returns whether `big` is the segment that was meant.
    pub(crate) fn is_of(self, big: &Segment) -> bool {
        // Earlier builds did not note the salt.
        big.base_lsn == self.lsn && [0, self.salt].contains(&big.naming_salt)
    }
}

/// Returns the log segment at `offset`, if there is one.
pub(crate) fn log_segment_at(view: &View, offset: u64) -> Option<Segment> {
    let header = view.segment(offset).ok()?;
    (header.kind == SegmentKind::Log).then(|| Segment::new(offset, &header))
}

/// Returns the segments that lead to `end`, from its own backwards as far as the headers tell;
/// `segment_at` reads one.
pub(crate) fn segments_before(
    end: LogPosition,
    segment_at: impl Fn(u64) -> Option<Segment>,
) -> impl Iterator<Item = Segment> {
    let last = segment_at(end.segment_offset).filter(|last| {
        (last.first()..=last.end()).contains(&end.offset) && last.lsn_at(end.offset) == end.lsn
    });
    backwards(last, segment_at)
}

/// Returns `last` and the segments that lead to it, as far as the headers tell; `segment_at` reads one.
pub(crate) fn backwards(
    last: Option<Segment>,
    segment_at: impl Fn(u64) -> Option<Segment>,
) -> impl Iterator<Item = Segment> {
    // The log sequence number falls with every step, so this ends.
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

    fn segment(offset: u64, base_lsn: u64, previous_offset: u64) -> Segment {
        let (bytes, sequence, salt, naming_salt) = (4096, 0, 0, 0);
        Segment { offset, bytes, base_lsn, sequence, previous_offset, salt, naming_salt }
    }

    #[test]
    fn a_big_segment_is_told_by_the_record_that_names_it() {
        let name = BigName { lsn: 96, salt: 7 };
        let big =
            |base_lsn, naming_salt| Segment { base_lsn, naming_salt, ..segment(65_536, 0, 0) };
        assert!(name.is_of(&big(96, 7)));
        assert!(name.is_of(&big(96, 0)), "of an earlier build");
        assert!(!name.is_of(&big(96, 8)), "a number that came again, in another segment");
        assert!(!name.is_of(&big(120, 7)));
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
