//! Reads the log in order, segment by segment along its chain: all records ([`LogWalk`]), or only
//! the committed changes ([`Changes`]).

use super::append::{LogPosition, segment_of};
use super::batch::Batches;
use super::record::{Pair, Record, RecordKind};
use super::relocation::{Moved, Relocation};
use super::segment::Segment;
use crate::error::{Error, Result};
use crate::format::{
    Addr, FILE_BYTES_MAX, GRANULE_BYTES, LogStart, SegmentHeader, SegmentKind, u64_at,
};
use crate::region::View;
use crate::testing::mutant::{self, Mutant};

/// How much the reader of a log trusts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The log is published up to the given end, so an invalid record is damage.
    Published,
    /// As [`Published`](Self::Published), and every checksum is verified.
    Verified,
    /// The state after a crash: every checksum is verified, and the first invalid record is the end
    /// of the log.
    Nothing,
}

/// Bytes by which the prefetch of the log runs ahead of a walk.
pub(crate) const AHEAD_BYTES: u64 = 1024;

/// A walk over the records of a log.
#[derive(Clone, Debug)]
pub(crate) struct LogWalk<'a> {
    view: &'a View,
    header: SegmentHeader,
    position: LogPosition,
    trust: Trust,
    /// The end of a published log.
    end_lsn: u64,
    /// The compacted head at the start of the walk; 0 for none.
    compacted_head: u64,
}

impl<'a> LogWalk<'a> {
    /// Walks from `start`. `end_lsn` is the end of a published or verified log. Returns `None` if
    /// the log is empty.
    ///
    /// The first segment was durable before the superblock named it, so a missing one is damage
    /// even with [`Trust::Nothing`]. Otherwise one damaged byte would silently lose the whole log.
    pub(crate) fn new(
        view: &'a View,
        start: LogStart,
        trust: Trust,
        end_lsn: u64,
    ) -> Result<Option<Self>> {
        if start.segment_offset == 0 || (trust != Trust::Nothing && start.lsn >= end_lsn) {
            return Ok(None);
        }
        let position = LogPosition {
            segment_offset: start.segment_offset,
            offset: start.record_offset,
            lsn: start.lsn,
        };
        enter(view, start.segment_offset, start.salt, None)?;
        Self::from_position(view, position, trust, end_lsn).map(Some)
    }

    /// Walks from a position in a segment that has been verified.
    pub(crate) fn from_position(
        view: &'a View,
        position: LogPosition,
        trust: Trust,
        end_lsn: u64,
    ) -> Result<Self> {
        let header = segment_of(view, position)?;
        Ok(Self { view, header, position, trust, end_lsn, compacted_head: 0 })
    }

    /// Sets the compacted head at the start of the walk. The segments before it may be gone, so the
    /// LINK that leads to it is not verified.
    pub(crate) fn after_moves_to(self, compacted_head: u64) -> Self {
        Self { compacted_head, ..self }
    }

    /// Returns the segment that [`after_moves_to`](Self::after_moves_to) was called with.
    pub(crate) fn compacted_head(&self) -> u64 {
        self.compacted_head
    }

    /// Returns the position of the next record, or of the end of the log.
    pub(crate) fn position(&self) -> LogPosition {
        self.position
    }

    /// Returns the segment that the walk is in.
    pub(crate) fn segment(&self) -> Segment {
        Segment::new(self.position.segment_offset, &self.header)
    }

    /// Returns the next record of any kind, links included, or `None` at the end of the log.
    pub(crate) fn next_record(&mut self) -> Result<Option<Record<'a>>> {
        if self.trust != Trust::Nothing && self.position.lsn >= self.end_lsn {
            return Ok(None);
        }
        match self.step() {
            Ok(record) => Ok(Some(record)),
            Err(Error::Corrupt { .. }) if self.trust == Trust::Nothing => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the next pair of a published log with its address, or `None` at its end.
    #[inline]
    pub(crate) fn next_pair(&mut self) -> Result<Option<(Addr, Pair<'a>)>> {
        debug_assert_eq!(self.trust, Trust::Published);
        let segment_end = self.position.segment_offset + self.header.segment_bytes;
        if self.position.lsn < self.end_lsn {
            let offset = self.position.offset;
            let short = self.view.short_pair_before(offset, segment_end);
            if let Some((pair, record_bytes)) = short {
                // Prefetch explicitly: the processor's hardware prefetcher stops at each page
                // boundary.
                self.view.prefetch_range(offset + AHEAD_BYTES, record_bytes);
                self.position.offset += record_bytes;
                self.position.lsn += record_bytes;
                debug_assert!(self.position.offset <= segment_end);
                return Ok(Some((Addr::of_offset(offset), pair)));
            }
        }
        self.next_long_pair()
    }

    /// As [`next_pair`](Self::next_pair), past records of other kinds.
    #[cold]
    fn next_long_pair(&mut self) -> Result<Option<(Addr, Pair<'a>)>> {
        loop {
            let before = self.position;
            let Some(record) = self.next_record()? else { return Ok(None) };
            let stored = stored_by(self.view, &record, before.lsn);
            if stored.is_err() {
                // A caller that continues meets the damage again, rather than the records after it.
                self.position = before;
            }
            let Some(record) = stored? else { continue };
            let pair = Pair { key: record.key(), value: record.value() };
            return Ok(Some((record.addr(), pair)));
        }
    }

    /// Reads one record. The position advances only if the record is valid.
    fn step(&mut self) -> Result<Record<'a>> {
        let offset = self.position.offset;
        let segment = self.segment();
        debug_assert!((segment.first()..=segment.end()).contains(&offset));
        debug_assert_eq!(segment.lsn_at(offset), self.position.lsn);
        let record = self.view.record_before(offset, segment.end())?;
        self.view.prefetch_range(offset + AHEAD_BYTES, record.bytes.len() as u64);
        if self.trust != Trust::Published && !mutant::is_made(Mutant::AnyChecksum) {
            record.verify(self.header.salt)?;
        }
        let lsn = self.position.lsn + record.bytes.len() as u64;
        debug_assert!(lsn > self.position.lsn, "a walk ends");
        if record.header.kind == RecordKind::Link {
            let (segment_offset, salt) = link_target(&record)?;
            self.header = enter(self.view, segment_offset, salt, Some(lsn))?;
            debug_assert_eq!(self.header.base_lsn, lsn, "the LINK leads to the next record");
            let offset = segment_offset + SegmentHeader::BYTES;
            self.position = LogPosition { segment_offset, offset, lsn };
        } else {
            if self.trust != Trust::Published {
                self.verify_named(&record)?;
            }
            self.position.offset += record.bytes.len() as u64;
            self.position.lsn = lsn;
        }
        Ok(record)
    }
}

impl LogWalk<'_> {
    /// Verifies the records outside of the log that a record names.
    #[inline]
    fn verify_named(&self, record: &Record<'_>) -> Result<()> {
        match record.header.kind {
            RecordKind::BigPut => big_record(self.view, record, self.position.lsn).map(drop),
            RecordKind::Relocate => {
                Relocation::decode(record)?.verify(self.view, self.compacted_head)
            }
            _ => Ok(()),
        }
    }
}

/// A change of a key, as the log has it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Logged<'a> {
    /// A record was stored.
    Put {
        /// The record with key and value: the logged record itself, or the big record that it
        /// names.
        pair: Record<'a>,
        /// The previous record of the key.
        prev: Option<Addr>,
    },
    /// The record at `prev` was deleted, whose key has this hash.
    Delete { hash: u64, prev: Addr, is_in_batch: bool },
    /// Compaction moved a record.
    Move {
        /// The copy.
        pair: Record<'a>,
        /// The original.
        from: Moved,
    },
}

impl<'a> Logged<'a> {
    /// Returns the change that a record makes, if any; `lsn` is its log sequence number.
    #[inline]
    pub(crate) fn of(view: &'a View, record: &Record<'a>, lsn: u64) -> Result<Option<Self>> {
        let prev = record.header.prev;
        if record.header.kind != RecordKind::Delete {
            let pair = stored_by(view, record, lsn)?;
            return Ok(pair.map(|pair| Self::Put { pair, prev }));
        }
        expect_value_bytes(record, 8)?;
        let prev = prev.ok_or_else(|| no_prev(record))?;
        let (hash, is_in_batch) = (u64_at(record.value(), 0), record.header.is_in_transaction);
        Ok(Some(Self::Delete { hash, prev, is_in_batch }))
    }
}

/// An event of reading a log.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step<T> {
    /// The log continues in this segment.
    Segment(Segment),
    /// A big record has this segment.
    Big(Segment),
    /// Records were moved to this segment; the last one ends at this offset.
    Moved(Segment, u64),
    /// A change is committed: on its own, or with its batch by the COMMIT that was just read.
    Change(T),
}

/// The committed changes of a log, in order.
#[derive(Debug)]
pub(crate) struct Changes<'a, T> {
    walk: LogWalk<'a>,
    batches: Batches<T>,
    record_count: u64,
}

impl<'a, T> Changes<'a, T> {
    /// Reads from the position of `walk`, which must not be within a batch.
    pub(crate) fn new(walk: LogWalk<'a>) -> Self {
        Self { walk, batches: Batches::default(), record_count: 0 }
    }

    /// Returns the position of the next record, or of the end of the log.
    pub(crate) fn position(&self) -> LogPosition {
        self.walk.position()
    }

    /// Returns the segment of the position.
    pub(crate) fn segment(&self) -> Segment {
        self.walk.segment()
    }

    /// Returns whether no change is held back for its COMMIT, so that reading can be resumed from
    /// the position alone.
    #[inline]
    pub(crate) fn is_between_changes(&self) -> bool {
        self.batches.is_empty()
    }

    /// Returns the number of records read so far, of any kind.
    pub(crate) fn record_count(&self) -> u64 {
        self.record_count
    }

    /// Reads a record, and calls `visit` for its events, including each change that it commits, as
    /// `of_change` converted that change when its own record was read. Returns the record, or
    /// `None` at the end of the log.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the log is published and damaged, or a record with a valid checksum is
    /// malformed.
    #[inline]
    pub(crate) fn read_next(
        &mut self,
        of_change: impl Fn(Logged<'a>) -> T,
        mut visit: impl FnMut(Step<T>),
    ) -> Result<Option<Record<'a>>> {
        let lsn = self.walk.position().lsn;
        let Some(record) = self.walk.next_record()? else { return Ok(None) };
        self.record_count += 1;
        if record.header.kind == RecordKind::Relocate {
            self.batches.add(&record, None, |change| visit(Step::Change(change)));
            self.read_moved(&record, of_change, visit)?;
            return Ok(Some(record));
        }
        match record.header.kind {
            RecordKind::Link => {
                let segment = self.walk.segment();
                debug_assert_eq!(self.walk.position().offset, segment.first());
                visit(Step::Segment(segment));
            }
            RecordKind::BigPut => {
                let (offset, _) = big_target(&record)?;
                let header = self.walk.view.segment(offset)?;
                visit(Step::Big(Segment::new(offset, &header)));
            }
            _ => {}
        }
        let change = Logged::of(self.walk.view, &record, lsn)?.map(of_change);
        self.batches.add(&record, change, |change| visit(Step::Change(change)));
        Ok(Some(record))
    }

    #[cold]
    fn read_moved(
        &mut self,
        record: &Record<'a>,
        of_change: impl Fn(Logged<'a>) -> T,
        mut visit: impl FnMut(Step<T>),
    ) -> Result<()> {
        let (view, relocation) = (self.walk.view, Relocation::decode(record)?);
        let segment = Segment::new(relocation.segment_offset, &relocation.segment(view)?);
        self.record_count += relocation.moved().len() as u64;
        let end = relocation.for_each_copy(view, |pair, from| {
            visit(Step::Change(of_change(Logged::Move { pair, from })));
        })?;
        visit(Step::Moved(segment, end));
        Ok(())
    }
}

/// Returns the record with the pair that a record of the log stores, if it stores one.
#[inline]
fn stored_by<'a>(view: &'a View, record: &Record<'a>, lsn: u64) -> Result<Option<Record<'a>>> {
    match record.header.kind {
        RecordKind::Put => Ok(Some(*record)),
        RecordKind::BigPut => big_record_unverified(view, record, lsn).map(Some),
        _ => Ok(None),
    }
}

#[cold]
fn no_prev(record: &Record<'_>) -> Error {
    Error::Corrupt { what: "record flags", offset: record.offset + 4, expected: 0x12, found: 0x02 }
}

/// Returns the segment and the salt that a LINK record names.
pub(crate) fn link_target(record: &Record<'_>) -> Result<(u64, u64)> {
    expect_value_bytes(record, 16)?;
    Ok((u64_at(record.value(), 0), u64_at(record.value(), 8)))
}

/// Returns offset and size of the segment that a BIGPUT record names.
pub(crate) fn big_target(naming: &Record<'_>) -> Result<(u64, u64)> {
    expect_value_bytes(naming, 16)?;
    Ok((u64_at(naming.value(), 0), u64_at(naming.value(), 8)))
}

/// Returns where the big record should be that `naming` names.
pub(crate) fn big_addr(naming: &Record<'_>) -> Option<Addr> {
    let (segment, _) = big_target(naming).ok()?;
    (segment < FILE_BYTES_MAX - GRANULE_BYTES && segment.is_multiple_of(8))
        .then(|| Addr::of_offset(segment + SegmentHeader::BYTES))
}

/// Checks that the value of a record of the engine's own has its size.
fn expect_value_bytes(record: &Record<'_>, bytes: u64) -> Result<()> {
    if record.header.value_bytes == bytes && record.header.key_bytes == 0 {
        return Ok(());
    }
    Err(Error::Corrupt {
        what: "record value size",
        offset: record.offset + 6,
        expected: bytes,
        found: record.header.value_bytes,
    })
}

/// Returns the header of the log segment at `offset`, if it is the one that was meant.
pub(crate) fn enter(
    view: &View,
    offset: u64,
    salt: u64,
    lsn: Option<u64>,
) -> Result<SegmentHeader> {
    let header = view.segment(offset)?;
    let corrupt = |what, at: u64, expected, found| {
        Err(Error::Corrupt { what, offset: offset + at, expected, found })
    };
    if header.kind != SegmentKind::Log {
        return corrupt("segment kind", 4, SegmentKind::Log as u64, header.kind as u64);
    }
    if header.salt != salt {
        return corrupt("segment salt", 40, salt, header.salt);
    }
    match lsn {
        Some(lsn) if header.base_lsn != lsn => {
            corrupt("segment sequence number", 24, lsn, header.base_lsn)
        }
        _ => Ok(header),
    }
}

/// Returns the big record that the BIGPUT record with the number `lsn` names, with its checksum verified.
pub(crate) fn big_record<'a>(view: &'a View, naming: &Record<'_>, lsn: u64) -> Result<Record<'a>> {
    let record = big_record_unverified(view, naming, lsn)?;
    debug_assert_eq!(record.header.kind, RecordKind::Big);
    let header = view.segment(record.offset - SegmentHeader::BYTES)?;
    record.verify(header.salt)?;
    Ok(record)
}

/// Returns the big record that the BIGPUT record with the log sequence number `lsn` names. Compares
/// the segment header with that number, since an earlier big record in the same space may be valid
/// too.
fn big_record_unverified<'a>(view: &'a View, naming: &Record<'_>, lsn: u64) -> Result<Record<'a>> {
    let (offset, segment_bytes) = big_target(naming)?;
    let header = view.segment(offset)?;
    let corrupt =
        |what, offset, expected, found| Err(Error::Corrupt { what, offset, expected, found });
    if header.kind != SegmentKind::Big || header.segment_bytes != segment_bytes {
        return corrupt("big segment size", offset + 16, segment_bytes, header.segment_bytes);
    }
    let is_meant = Segment::new(offset, &header).is_named_by(&naming.header, lsn);
    if !is_meant && !mutant::is_made(Mutant::TakesOlderBigs) {
        return corrupt("segment sequence number", offset + 24, lsn, header.base_lsn);
    }
    let start = offset + SegmentHeader::BYTES;
    let record = view.record_before(start, offset + segment_bytes)?;
    if record.header.kind != RecordKind::Big || record.header.prev != naming.header.prev {
        let (expected, found) = (RecordKind::Big as u64, record.header.kind as u64);
        return corrupt("big record", start + 4, expected, found);
    }
    Ok(record)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::recovery::open_storage;
    use crate::{Create, Options, SimDisk};

    /// The header of a segment with a big record is damaged, which no checksum of the log covers.
    #[test]
    fn a_walk_stays_before_a_big_record_that_is_damaged() {
        let disk = SimDisk::new();
        let db = disk.open(&Options::new()).unwrap();
        for (key, value) in [("a", vec![1; 10]), ("b", vec![2; 200_000]), ("c", vec![3; 10])] {
            db.put(key, value).unwrap();
        }
        db.close().unwrap();
        let mut file = disk.file();
        let starts = (0..file.len()).step_by(GRANULE_BYTES as usize);
        let bigs: Vec<usize> = starts.filter(|&at| file[at..].starts_with(b"SEGM\x03")).collect();
        let [big] = bigs[..] else { panic!("{bigs:?}") };
        file[big + 16] ^= 1;
        let options = Options::new().create(Create::Never);
        let storage = SimDisk::with_file(&file).storage().unwrap();
        let opened = open_storage(storage, &options, false).unwrap();
        let (view, start) = (&opened.region.view, opened.writer.superblock.log_start);
        let end_lsn = opened.writer.log.position().lsn;
        let walk = LogWalk::new(view, start, Trust::Published, end_lsn).unwrap();
        let mut walk = walk.expect("it has records");
        let mut next_key = || walk.next_pair().map(|pair| pair.map(|(_, pair)| pair.key.to_vec()));
        assert_eq!(next_key().unwrap(), Some(b"a".to_vec()));
        for _ in 0..3 {
            let error = next_key().expect_err("not the record behind it");
            assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        }
    }
}
