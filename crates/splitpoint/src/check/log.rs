//! The pass of a check over the log: every record, behind damage as well.
//!
//! ```text
//! log start --LINK--> segment --LINK--> segment --LINK--> segment: end of the log
//!            <-header--        <-header--        <-header--
//! ```
//!
//! Both ends are known. Records follow each other up to the LINK; where one is damaged, the rest of
//! its segment is searched for the next that is valid. A damaged LINK is passed by the header of the
//! segment that follows, found from the end backwards, and a damaged header by the LINK that names
//! it. Where both are damaged a part of the log is lost as a whole, and the check goes on behind it.
//!
//! Each place is one damage, however much follows from it. No byte is read more than twice,
//! whatever the file holds.
//!
//! # Not here
//!
//! [`Changes`](crate::log::scan::Changes), which all others read the log by, ends at the first
//! damage. Here a damaged record is a finding, and what follows it may be in doubt.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{Check, CheckStage};
use crate::error::Result;
use crate::format::{Addr, GRANULE_BYTES, HEADER_BYTES, LogStart, SegmentHeader};
use crate::log::append::LogPosition;
use crate::log::batch::{CutBatches, Standing};
use crate::log::record::{LINK_BYTES, Record, RecordKind};
use crate::log::resync::{Link, Powers, SegmentScan, records_of, scan};
use crate::log::scan::{AHEAD_BYTES, big_addr, big_record, big_target, enter, link_target};
use crate::log::segment::{Segment, log_segment_at, segments_before};
use crate::region::Region;
use crate::space::Extent;

/// A place in the log from which records are read.
#[derive(Clone, Copy, Debug)]
struct Place {
    segment: Segment,
    /// Where the next record is.
    offset: u64,
    /// Whether the header of the segment is damaged.
    is_made_up: bool,
}

impl Place {
    fn first_of(segment: Segment) -> Self {
        Self { segment, offset: segment.first(), is_made_up: false }
    }

    fn position(&self) -> LogPosition {
        let Self { segment, offset, .. } = *self;
        LogPosition { segment_offset: segment.offset, offset, lsn: segment.lsn_at(offset) }
    }
}

/// The pass over the log.
struct Pass<'c, 'a> {
    check: &'c mut Check<'a>,
    region: &'a Region,
    /// How far the log has been read, and where it ends.
    position: LogPosition,
    end: LogPosition,
    /// The records that are held back, with their numbers.
    batches: CutBatches<(Record<'a>, u64)>,
    /// The segments that lead to the end, by the one that they follow; found when they are needed.
    followers: Option<BTreeMap<u64, Segment>>,
    powers: Powers,
}

impl Check<'_> {
    /// Reads every record of the log from `start` to `end`.
    pub(super) fn read_log(&mut self, start: LogStart, end: LogPosition) -> Result<()> {
        if start.segment_offset == 0 || start.lsn >= end.lsn {
            return Ok(());
        }
        let region = &self.store.region;
        let LogStart { segment_offset, record_offset: offset, lsn, .. } = start;
        let position = LogPosition { segment_offset, offset, lsn };
        let mut pass = Pass {
            check: self,
            region,
            position,
            end,
            batches: CutBatches::default(),
            followers: None,
            powers: Powers::new(),
        };
        let mut next = pass.first(start);
        while let Some(place) = next.or_else(|| pass.behind_the_gap()) {
            pass.position = place.position();
            if pass.position.lsn >= end.lsn {
                break;
            }
            next = pass.read(place);
            pass.tell()?;
        }
        pass.finish();
        Ok(())
    }

    /// Takes what a record with the number `lsn` says of the pairs that are live.
    fn apply(&mut self, (record, lsn): (Record<'_>, u64), standing: Standing) {
        let header = &record.header;
        if standing == Standing::InDoubt {
            // Whether the segment of a big record is still its own is in doubt as well.
            let addr = match header.kind {
                RecordKind::Put => Some(record.addr()),
                RecordKind::BigPut => big_addr(&record),
                _ => None,
            };
            for addr in header.prev.into_iter().chain(addr) {
                self.live.set(addr, false);
                self.doubtful.set(addr, true);
            }
            return;
        }
        let addr = match header.kind {
            RecordKind::Put => Some(record.addr()),
            RecordKind::BigPut => self.take_big(&record, lsn),
            RecordKind::Delete => None,
            _ => return,
        };
        if let Some(prev) = header.prev
            && self.live.set(prev, false) != Some(true)
            && !self.doubtful.has(prev)
            && !self.losses.has(&self.store.region.view, prev)
        {
            self.report.note("record prev", record.offset + 8, 1, prev.0);
        }
        if let Some(addr) = addr {
            self.live.set(addr, true);
        }
        match (header.kind, header.prev) {
            (RecordKind::Delete, _) => self.record_count = self.record_count.saturating_sub(1),
            (_, None) => self.record_count += 1,
            (_, Some(_)) => {}
        }
    }

    /// Verifies the big record that `naming` names and returns its address.
    fn take_big(&mut self, naming: &Record<'_>, lsn: u64) -> Option<Addr> {
        let view = &self.store.region.view;
        let big = |target| big_record(view, naming, lsn).map(|big| (target, big));
        let found = big_target(naming).and_then(big);
        match found {
            Ok(((segment_offset, segment_bytes), big)) => {
                self.report.log_bytes += big.bytes.len() as u64;
                self.big_bytes += segment_bytes;
                self.used.push(extent(segment_offset..segment_offset + segment_bytes));
                Some(big.addr())
            }
            Err(error) => {
                self.report.note_error(&error);
                // Only the address of the record is ever named.
                if let Some(addr) = big_addr(naming) {
                    self.losses.add(addr.offset()..addr.offset() + 8);
                }
                None
            }
        }
    }
}

/// Returns the granules of a range of the file.
fn extent(range: Range<u64>) -> Extent {
    let count = (range.end - range.start).div_ceil(GRANULE_BYTES);
    Extent { granule: range.start / GRANULE_BYTES, count }
}

impl<'a> Pass<'_, 'a> {
    /// Tells how much of the log has been read, big records included.
    fn tell(&mut self) -> Result<()> {
        let big_bytes = self.region.live().big_bytes();
        let bytes = self.position.lsn.saturating_add(self.check.big_bytes);
        let bytes_total = self.end.lsn.saturating_add(big_bytes.min(self.region.view.file_bytes()));
        self.check.tell(CheckStage::Log, bytes, bytes_total)
    }

    /// Returns where the first record is.
    fn first(&mut self, start: LogStart) -> Option<Place> {
        let first = start.segment_offset + SegmentHeader::BYTES;
        let before = start.record_offset.checked_sub(first);
        let Some(base_lsn) = before.and_then(|before| start.lsn.checked_sub(before)) else {
            let (offset, found) = (start.segment_offset, start.record_offset);
            self.check.report.note("log start record", offset, first, found);
            return None;
        };
        let place = self.enter(start.segment_offset, start.salt, base_lsn, 0)?;
        Some(Place { offset: start.record_offset, ..place })
    }

    /// Reads the records from `place` to the end of its segment, and returns what follows.
    fn read(&mut self, place: Place) -> Option<Place> {
        let segment = place.segment;
        let limit = self.limit_of(&segment);
        self.check.losses.note_read(&segment, limit.max(segment.first()));
        let mut at = place.offset;
        while at < limit {
            let Ok(record) = self.record_at(&segment, at, limit) else {
                return self.read_damaged(Place { offset: at, ..place }, limit);
            };
            self.region.view.prefetch_range(at + AHEAD_BYTES, record.bytes.len() as u64);
            at += record.bytes.len() as u64;
            self.take(&segment, &record);
            if record.header.kind == RecordKind::Link {
                self.leave(&place, at);
                return self.follow(&segment, &record);
            }
        }
        self.leave(&place, at.max(segment.first()));
        None
    }

    /// Returns where the records of a segment end at the latest.
    fn limit_of(&self, segment: &Segment) -> u64 {
        let by_lsn = segment.first() + (self.end.lsn - segment.base_lsn);
        let limit = segment.end().min(self.region.view.file_bytes()).min(by_lsn);
        if self.is_last(segment) { limit.min(self.end.offset) } else { limit }
    }

    fn is_last(&self, segment: &Segment) -> bool {
        segment.offset == self.end.segment_offset
    }

    /// Returns the record at `at`, verified.
    #[inline]
    fn record_at(&self, segment: &Segment, at: u64, limit: u64) -> Result<Record<'a>> {
        let record = self.region.view.record_before(at, limit)?;
        record.verify(segment.salt)?;
        Ok(record)
    }

    /// Takes a valid record.
    #[inline]
    fn take(&mut self, segment: &Segment, record: &Record<'a>) {
        let Self { check, batches, .. } = self;
        check.report.record_count += 1;
        check.report.log_bytes += record.bytes.len() as u64;
        let logged = (*record, segment.lsn_at(record.offset));
        batches.add(record, Some(logged), |logged, standing| check.apply(logged, standing));
    }

    /// Says that the records of a segment end at `end`.
    fn leave(&mut self, place: &Place, end: u64) {
        let segment = &place.segment;
        let used = segment.offset..if place.is_made_up { end } else { segment.end() };
        self.check.used.push(extent(used));
        self.check.losses.note_read(segment, end);
        self.position = Place { offset: end, ..*place }.position();
    }

    /// Returns the beginning of the segment that a LINK names.
    fn follow(&mut self, segment: &Segment, link: &Record<'_>) -> Option<Place> {
        let lsn = segment.lsn_at(link.offset) + LINK_BYTES;
        match link_target(link) {
            Ok((offset, salt)) => self.enter(offset, salt, lsn, segment.offset),
            Err(error) => {
                self.check.report.note_error(&error);
                None
            }
        }
    }

    /// Returns the beginning of the segment at `offset`. If its header is damaged, that is noted, and
    /// the record that named it has what is needed.
    fn enter(
        &mut self,
        offset: u64,
        salt: u64,
        base_lsn: u64,
        previous_offset: u64,
    ) -> Option<Place> {
        let file_bytes = self.region.view.file_bytes();
        let place = match enter(&self.region.view, offset, salt, Some(base_lsn)) {
            Ok(header) => Place::first_of(Segment::new(offset, &header)),
            Err(error) => {
                self.check.report.note_error(&error);
                self.check.losses.add(offset..offset.saturating_add(SegmentHeader::BYTES));
                let is_place = offset.is_multiple_of(GRANULE_BYTES)
                    && (HEADER_BYTES..file_bytes).contains(&offset);
                // It ends before the next one begins.
                let behind = |segment: &&Segment| segment.offset > offset;
                let next = self.followers().values().filter(behind).map(|next| next.offset).min();
                let next = next.into_iter().chain(self.check.losses.next_read(offset)).min();
                let bytes_max = is_place.then(|| next.unwrap_or(file_bytes) - offset)?;
                let segment = Segment::made_up(offset, salt, base_lsn, previous_offset, bytes_max);
                Place { is_made_up: true, ..Place::first_of(segment) }
            }
        };
        // A file made to harm may lead back to where the log has been.
        let range = offset..if place.is_made_up { offset + 8 } else { place.segment.end() };
        (!self.check.losses.was_read(range)).then_some(place)
    }

    /// Goes on behind the damaged record at `place`, and returns what follows its segment.
    #[cold]
    fn read_damaged(&mut self, place: Place, limit: u64) -> Option<Place> {
        let (segment, region) = (place.segment, self.region);
        let follower = self.follower_of(&segment).filter(|&(link_at, _)| link_at >= place.offset);
        let limit = follower.map_or(limit, |(link_at, _)| limit.min(link_at + LINK_BYTES));
        let bytes = region.view.log_bytes(segment.offset..limit).ok()?;
        let mut found = scan(bytes, &segment, &mut self.powers);
        let is_end_known = follower.is_some() || self.is_last(&segment);
        let link = if is_end_known { None } else { self.link_among(&segment, &found, &place) };
        let end = match link {
            Some(link) => link.offset + LINK_BYTES,
            None if is_end_known => limit,
            None => found.last_used.clamp(place.offset + 8, limit),
        };
        found.truncate(end);
        let link_at = follower.map(|(link_at, _)| link_at);
        self.read_runs(&place, bytes, &found, end, link_at);
        let is_sure = is_end_known || link.is_some();
        // Else the bytes behind the last record need not be of the log.
        self.leave(&place, if is_sure { end } else { found.end(&segment).max(place.offset) });
        match (follower, link) {
            (Some((_, next)), _) => Some(Place::first_of(next)),
            (None, Some(link)) => {
                self.enter(link.target, link.salt, segment.lsn_at(end), segment.offset)
            }
            (None, None) => None,
        }
    }

    /// Takes the records that a scan found from `place` on, and notes what lies between them, up to
    /// `end`.
    fn read_runs(
        &mut self,
        place: &Place,
        bytes: &'a [u8],
        found: &SegmentScan,
        end: u64,
        link_at: Option<u64>,
    ) {
        let mut at = place.offset;
        let rest = end..end;
        for run in found.runs.iter().filter(|run| run.end > place.offset).chain([&rest]) {
            let run = run.start.max(at)..run.end;
            if at < run.start {
                self.lose(place, at..run.start, end, link_at == Some(at));
            }
            for record in records_of(bytes, &place.segment, &run) {
                self.take(&place.segment, &record);
            }
            at = run.end;
        }
    }

    /// Notes that the records in a range are lost, as one damage; `is_link` says that the LINK is
    /// all that was there.
    fn lose(&mut self, place: &Place, range: Range<u64>, limit: u64, is_link: bool) {
        let segment = &place.segment;
        // What follows a damaged header without a valid record in between is one place with it.
        let is_told = place.is_made_up && range.start == segment.first();
        if let Err(error) = self.record_at(segment, range.start, limit)
            && !is_told
        {
            self.check.report.note_error(&error);
        }
        self.add_lost(range);
        if !is_link {
            let Self { check, batches, .. } = self;
            batches.cut(|logged, standing| check.apply(logged, standing));
        }
    }

    /// Notes what may be named in a range without a valid record: the damaged records, if the lengths
    /// in their headers agree with where the range ends; else every place in it.
    fn add_lost(&mut self, range: Range<u64>) {
        let (mut at, mut starts) = (range.start, Vec::new());
        while let Ok(record) = self.region.view.record_before(at, range.end) {
            starts.push(at);
            at += record.bytes.len() as u64;
        }
        let losses = &mut self.check.losses;
        if at != range.end {
            losses.add(range);
            return;
        }
        for start in starts {
            losses.add(start..start + 8);
        }
    }

    /// Returns which of the LINK records that a scan found leads on, if one does.
    fn link_among(&self, segment: &Segment, found: &SegmentScan, place: &Place) -> Option<Link> {
        let mut links = found.links.iter().filter(|link| link.offset >= place.offset);
        let leads_on = |link: &&Link| {
            let lsn = segment.lsn_at(link.offset) + LINK_BYTES;
            enter(&self.region.view, link.target, link.salt, Some(lsn)).is_ok()
        };
        // If all of their targets are damaged, what recovery dropped is behind the first.
        links.clone().find(leads_on).or_else(|| links.next()).copied()
    }

    /// Returns the segment that follows, with the place of its LINK, if it leads to the end.
    fn follower_of(&mut self, segment: &Segment) -> Option<(u64, Segment)> {
        let follower = *self.followers().get(&segment.offset)?;
        Some((segment.link_before(&follower)?, follower))
    }

    fn followers(&mut self) -> &BTreeMap<u64, Segment> {
        let (region, end) = (self.region, self.end);
        self.followers.get_or_insert_with(|| {
            let before = segments_before(end, |offset| log_segment_at(&region.view, offset));
            before.map(|segment| (segment.previous_offset, segment)).collect()
        })
    }

    /// Returns the next segment that leads to the end, where nothing leads to it.
    fn behind_the_gap(&mut self) -> Option<Place> {
        let lsn = self.position.lsn;
        if lsn >= self.end.lsn {
            return None;
        }
        let left = self.followers().values().filter(|segment| segment.base_lsn >= lsn);
        let next = *left.min_by_key(|segment| segment.base_lsn)?;
        if self.check.losses.was_read(next.offset..next.end()) {
            return None;
        }
        self.lose_segments(next.previous_offset);
        Some(Place::first_of(next))
    }

    /// Notes that the log is lost from here on, up to the end of the segment at `last`.
    fn lose_segments(&mut self, last: u64) {
        let Self { check, batches, region, .. } = self;
        if let Err(error) = region.view.segment(last) {
            check.report.note_error(&error);
        }
        check.losses.add_unread_segment();
        batches.cut(|logged, standing| check.apply(logged, standing));
    }

    /// Compares where the records end with where they should.
    fn finish(&mut self) {
        let is_lost = self.check.losses.is_any();
        if self.position != self.end && is_lost {
            self.lose_segments(self.end.segment_offset);
        }
        // What is lost has been noted, unless the headers contradict each other.
        if self.position != self.end && !is_lost || is_lost && self.check.report.is_clean() {
            let LogPosition { offset, lsn, .. } = self.end;
            self.check.report.note("end of the log", offset, lsn, self.position.lsn);
        }
    }
}
