//! Appends records at the tail of the log.

use std::io::ErrorKind;
use std::ops::Range;

use super::pages_ahead::PagesAhead;
use super::record::{
    HEADER_BYTES_MAX, LINK_BYTES, RecordHeader, RecordKind, finish_crc, payload_crc,
};
use crate::error::{Error, Result};
use crate::format::{
    Addr, GRANULE_BYTES, LOG_SEGMENT_BYTES_MAX, LOG_SHARE, LogStart, REUSED_SHARE, SegmentHeader,
    SegmentKind, big_record_bytes_min, log_segment_bytes,
};
use crate::live::CommitState;
use crate::prefaulter::Ticket;
use crate::region::{Extents, Region, View, has_ample_room};
use crate::storage::failure::is_want_of_room;
use crate::storage::{Tail, no_room};

/// How the bytes of a record reach the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WritePath {
    /// By a copy through the mapping of the tail, without a system call.
    Mapping,
    /// By `write`, which dirties only single blocks: for records that are synced at once.
    Write,
}

/// A segment is prefaulted by the background thread if it is at least this many times as large as
/// the smallest: for a small segment, waking the thread costs more than the faults. The bound was
/// not measured.
const PREPARED_GROWTH: u64 = 8;

/// Bytes of the tail that are faulted in together.
const READY_BYTES: u64 = 64 << 10;

/// The segment table goes to the file once the log has this many of the smallest segments.
const TABLED_SEGMENTS: u64 = 64;

/// Bytes that a handle writes to a resumed segment before it maps it.
const UNMAPPED_BYTES: u64 = 4096;

/// A range of the file that is not durable yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnsyncedRange {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl UnsyncedRange {
    fn end(self) -> u64 {
        self.offset + self.bytes
    }
}

/// The tail of the log, to which records are appended.
#[derive(Debug)]
pub(crate) struct Appender {
    tail: Option<TailSegment>,
    /// The segment after the tail, if one is allocated already; a thread may still be clearing it.
    next: Option<NextSegment>,
    /// The pages that a table in memory will reach next.
    pages: PagesAhead,
    /// The end of the log, while there is no tail to write to.
    read_position: LogPosition,
    /// Log sequence number of the next record.
    lsn: u64,
    segment_bytes_min: u64,
    segment_bytes_max: u64,
    /// The kind of its segments: log, or records moved by compaction.
    kind: SegmentKind,
    /// Whether the store is compacted.
    is_reused: bool,
    /// State of the generator of salts.
    salt_state: u64,
    /// Ranges that the next sync must cover, oldest first, without the part in the tail.
    unsynced: Vec<UnsyncedRange>,
    /// Buffer for records written by `write`.
    buf: Vec<u8>,
    /// Number of segments that must remain in the reserve when the next segment is taken from it;
    /// `None` if none may be taken.
    held_left: Option<usize>,
    /// Bytes of the tail that puts must leave free: all, in a segment of the reserve.
    kept_bytes: u64,
}

/// `kept_bytes` of a tail that belongs to the reserve.
const ALL_KEPT: u64 = 1 << 40;

/// The open segment.
#[derive(Debug)]
struct TailSegment {
    map: Tail,
    segment_offset: u64,
    /// End of the segment.
    end: u64,
    /// End of the part that has been faulted in.
    ready_end: u64,
    salt: u64,
    /// Where the next record goes.
    offset: u64,
    /// Offset of the first record that this handle has appended.
    resumed_offset: u64,
    /// Offset of the last record; the first position of the segment if there is none.
    last_offset: u64,
    /// Checksum of the last record.
    last_crc: u32,
    /// Start of the bytes that no sync has covered.
    unsynced_offset: u64,
    /// Whether a sync has covered the whole segment, so that its blocks are allocated.
    is_allocated: bool,
}

/// An allocated segment that no LINK names yet.
#[derive(Debug)]
struct NextSegment {
    offset: u64,
    segment_bytes: u64,
    map: Tail,
    /// The background work that prepares the segment, if any.
    work: Option<Ticket>,
}

/// A record to be appended: its header without `prev`, its key and value, and the checksum begun
/// over these and the padding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Payload<'a> {
    pub(crate) header: RecordHeader,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) crc: u32,
}

impl<'a> Payload<'a> {
    /// Begins the checksum, which can overlap with the prefetch of the bucket line.
    #[inline(always)]
    pub(crate) fn new(kind: RecordKind, key: &'a [u8], value: &'a [u8]) -> Self {
        Self::begun(kind, key, value, payload_crc(key, value))
    }

    /// Creates the payload with a checksum that was begun before.
    #[inline(always)]
    pub(crate) fn begun(kind: RecordKind, key: &'a [u8], value: &'a [u8], crc: u32) -> Self {
        let header = RecordHeader::new(kind, key.len() as u64, value.len() as u64);
        Self { header, key, value, crc }
    }
}

/// A position in the log from which records are appended or read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogPosition {
    /// Offset of the segment, 0 for an empty log.
    pub(crate) segment_offset: u64,
    /// Offset of the next record.
    pub(crate) offset: u64,
    /// Log sequence number of the next record.
    pub(crate) lsn: u64,
}

/// Returns the header of the log segment that contains `position`. Fails unless position and header
/// agree on the log sequence number, and there is space for the LINK record that every segment
/// keeps.
pub(crate) fn segment_of(view: &View, position: LogPosition) -> Result<SegmentHeader> {
    segment_of_kind(view, position, SegmentKind::Log)
}

fn segment_of_kind(view: &View, position: LogPosition, kind: SegmentKind) -> Result<SegmentHeader> {
    let LogPosition { segment_offset, offset, lsn } = position;
    let header = view.segment(segment_offset)?;
    let corrupt =
        |what, at, expected, found| Err(Error::Corrupt { what, offset: at, expected, found });
    if header.kind != kind {
        let (expected, found) = (kind as u64, header.kind as u64);
        return corrupt("segment kind", segment_offset + 4, expected, found);
    }
    let first = segment_offset + SegmentHeader::BYTES;
    let last = segment_offset + header.segment_bytes - LINK_BYTES;
    if !(first..=last).contains(&offset) {
        return corrupt("tail of the log", segment_offset, last, offset);
    }
    if header.base_lsn + (offset - first) != lsn {
        return corrupt("tail of the log", segment_offset + 24, lsn, header.base_lsn);
    }
    debug_assert!(lsn.is_multiple_of(8), "a record begins at a multiple of 8");
    Ok(header)
}

impl Appender {
    /// Returns the appender of an empty log. `seed` makes the salts, which must not repeat.
    pub(crate) fn new(seed: u64, segment_bytes_min: u64, segment_bytes_max: u64) -> Self {
        Self {
            tail: None,
            next: None,
            pages: PagesAhead::default(),
            read_position: LogPosition { segment_offset: 0, offset: 0, lsn: 0 },
            lsn: 0,
            segment_bytes_min,
            segment_bytes_max,
            kind: SegmentKind::Log,
            is_reused: false,
            salt_state: seed,
            unsynced: Vec::new(),
            buf: Vec::new(),
            held_left: None,
            kept_bytes: 0,
        }
    }

    /// Returns a second appender, to the segments of records that compaction moves. Its log
    /// sequence numbers count a stream of their own.
    pub(crate) fn compacted(&mut self) -> Self {
        let new = Self::new(self.next_salt(), self.segment_bytes_min, self.segment_bytes_max);
        // Compaction leaves one segment of the reserve for tombstones.
        let held_left = Some(1);
        Self { kind: SegmentKind::Compacted, is_reused: true, held_left, ..new }
    }

    /// Makes new segments smaller from now on, because the store is compacted.
    pub(crate) fn note_reused(&mut self) {
        self.is_reused = true;
    }

    /// Returns the offset up to which a table in memory has its pages.
    #[cfg(test)]
    pub(crate) fn pages_end(&self) -> u64 {
        self.pages.end()
    }

    /// Marks the first `bytes` of the file as unsynced: all of it, if a killed process has written
    /// to the file.
    pub(crate) fn mark_file_unsynced(&mut self, bytes: u64) {
        self.unsynced.push(UnsyncedRange { offset: 0, bytes });
    }

    /// Continues the log at `position`, in the segment that holds it. The next sync covers the
    /// segment from its beginning, because a killed process may have left it unsynced.
    pub(crate) fn resume(&mut self, region: &Region, position: LogPosition) -> Result<()> {
        assert!(self.tail.is_none(), "a handle goes on once, when it is opened");
        self.lsn = position.lsn;
        if position.segment_offset == 0 {
            return Ok(());
        }
        let header = segment_of_kind(&region.view, position, self.kind)?;
        self.tail = Some(TailSegment {
            map: Tail::unmapped(position.offset - position.segment_offset),
            segment_offset: position.segment_offset,
            end: position.segment_offset + header.segment_bytes,
            ready_end: position.segment_offset + header.segment_bytes,
            salt: header.salt,
            offset: position.offset,
            resumed_offset: position.offset,
            last_offset: position.offset,
            last_crc: 0,
            unsynced_offset: position.segment_offset,
            is_allocated: false,
        });
        assert_eq!(self.position(), position, "the next record goes where the log ends");
        Ok(())
    }

    /// Reuses the mapping of the tail from an earlier turn of this handle, if the log still ends in
    /// that segment. If the segment was not mapped, keeps the count of bytes written to it.
    pub(crate) fn keep_mapping(&mut self, before: &mut Self) {
        let (Some(tail), Some(before)) = (&mut self.tail, &mut before.tail) else { return };
        let is_same = tail.segment_offset == before.segment_offset && tail.salt == before.salt;
        if !is_same || tail.end != before.end || tail.offset < before.offset {
            return;
        }
        tail.resumed_offset -= before.offset - before.resumed_offset;
        if before.map.is_mapped() {
            let page = tail.offset / GRANULE_BYTES * GRANULE_BYTES;
            tail.ready_end = before.ready_end.max(page);
            tail.map = std::mem::replace(&mut before.map, Tail::unmapped(0));
            tail.map.skip_to(tail.offset - tail.segment_offset);
        }
    }

    #[cfg(test)]
    pub(crate) fn is_mapped(&self) -> bool {
        self.tail.as_ref().is_some_and(|tail| tail.map.is_mapped())
    }

    /// Continues the segments of compacted records at the head in `state`, if there are any.
    pub(crate) fn resume_compacted(&mut self, region: &Region, state: &CommitState) -> Result<()> {
        assert!(self.tail.is_none() && self.kind == SegmentKind::Compacted);
        let (segment_offset, offset) = (state.head_segment, state.head_offset);
        if segment_offset == 0 {
            return Ok(());
        }
        let header = region.view.segment(segment_offset)?;
        let first = segment_offset + SegmentHeader::BYTES;
        // The sequence numbers of compacted segments count bytes of their own stream.
        let lsn = header.base_lsn.saturating_add(offset.saturating_sub(first));
        self.resume(region, LogPosition { segment_offset, offset, lsn })
    }

    /// Sets the end of the log, for a read-only handle.
    pub(crate) fn set_read_position(&mut self, position: LogPosition) {
        assert!(self.tail.is_none(), "a handle that only reads has nothing to append to");
        self.read_position = position;
    }

    /// Returns the position of the next record.
    #[inline]
    pub(crate) fn position(&self) -> LogPosition {
        match &self.tail {
            Some(tail) => LogPosition {
                segment_offset: tail.segment_offset,
                offset: tail.offset,
                lsn: self.lsn,
            },
            None => self.read_position,
        }
    }

    /// Returns the rest of the tail segment, from the page of the next record on.
    pub(crate) fn rest_of_tail(&self) -> Option<Range<u64>> {
        let page = |tail: &TailSegment| tail.offset / GRANULE_BYTES * GRANULE_BYTES;
        self.tail.as_ref().map(|tail| page(tail)..tail.end)
    }

    /// Returns the offset of the last record; for a big record, of the record that names it.
    pub(crate) fn last_record_offset(&self) -> u64 {
        self.tail.as_ref().expect("a record was appended").last_offset
    }

    /// Returns the checksum of that record.
    pub(crate) fn last_record_crc(&self) -> u32 {
        self.tail.as_ref().expect("a record was appended").last_crc
    }

    /// Returns the log start for a replay that begins with the next record.
    pub(crate) fn log_start(&self) -> LogStart {
        debug_assert!(self.tail.as_ref().is_none_or(|tail| tail.offset < tail.end));
        self.tail.as_ref().map_or(LogStart::default(), |tail| LogStart {
            segment_offset: tail.segment_offset,
            salt: tail.salt,
            lsn: self.lsn,
            record_offset: tail.offset,
        })
    }

    /// Returns whether a record of this size gets a segment of its own.
    #[inline(always)]
    pub(crate) fn is_big(&self, record_bytes: u64, region: &Region) -> bool {
        record_bytes > big_record_bytes_min(self.segment_bytes_min)
            && record_bytes > self.big_bytes_min(region)
    }

    #[cold]
    #[inline(never)]
    fn big_bytes_min(&self, region: &Region) -> u64 {
        big_record_bytes_min(self.next_segment_bytes(region))
    }

    /// Returns the size of the segment after the tail. In a compacted store segments are smaller,
    /// because a large one takes long until emptying it pays off.
    pub(crate) fn next_segment_bytes(&self, region: &Region) -> u64 {
        let is_reused = region.storage().is_volatile() || self.is_reused;
        let share = if is_reused { REUSED_SHARE } else { LOG_SHARE };
        let log_bytes = region.live().log_bytes();
        log_segment_bytes(log_bytes, share, self.segment_bytes_min, self.segment_bytes_max)
    }

    /// Makes room in the tail for a record of this size, opening a new segment if necessary. On an
    /// error the log is unchanged, except that a segment sequence number may be used up.
    #[inline(always)]
    pub(crate) fn reserve(&mut self, record_bytes: u64, extents: &mut Extents) -> Result<()> {
        let ready = self.tail.as_ref().map_or(0, |tail| tail.ready_end.saturating_sub(tail.offset));
        if record_bytes + LINK_BYTES <= ready {
            return Ok(());
        }
        self.make_room(record_bytes, extents)
    }

    /// Faults in the next pages of the tail, or opens a new segment. Only some pages at a time, so
    /// that the change that opens a segment does not pay for all of them.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self, record_bytes: u64, extents: &mut Extents) -> Result<()> {
        if !self.has_room(record_bytes) {
            self.open_segment(record_bytes, extents)?;
        }
        let tail = self.tail.as_mut().expect("there is room in it");
        let needed_end = tail.offset + record_bytes + LINK_BYTES;
        if tail.ready_end < needed_end {
            let ready_end = tail.ready_end.max(needed_end).next_multiple_of(READY_BYTES);
            let ready_end = ready_end.min(tail.end);
            if let Some(pages) = tail.map.pages() {
                let from = tail.ready_end - tail.segment_offset;
                pages.fault_in_part(from..ready_end - tail.segment_offset);
            }
            tail.ready_end = ready_end;
        }
        Ok(())
    }

    /// Makes room like [`reserve`](Self::reserve), but may take a segment of the reserve if there
    /// is no other and `left` of them remain.
    pub(crate) fn reserve_held(
        &mut self,
        record_bytes: u64,
        extents: &mut Extents,
        left: usize,
    ) -> Result<()> {
        self.held_left = Some(left);
        let reserved = self.reserve(record_bytes, extents);
        self.held_left = None;
        reserved
    }

    /// Returns whether a put's record of this size fits into the tail segment, and puts may use
    /// that segment.
    #[inline]
    pub(crate) fn has_room_for_put(&self, record_bytes: u64) -> bool {
        self.has_room(record_bytes + self.kept_bytes)
    }

    /// Returns whether puts must not use the tail segment, because it belongs to the reserve.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept_bytes > 0
    }

    /// Lets puts use the tail segment: the reserve is whole without it.
    pub(crate) fn give_to_puts(&mut self) {
        self.kept_bytes = 0;
    }

    /// Returns the bytes of records that still fit into the tail segment.
    pub(crate) fn room(&self) -> u64 {
        self.tail.as_ref().map_or(0, |tail| (tail.end - tail.offset).saturating_sub(LINK_BYTES))
    }

    /// Returns whether a record of this size fits into the tail segment.
    #[inline]
    pub(crate) fn has_room(&self, record_bytes: u64) -> bool {
        let room = self.tail.as_ref().map_or(0, |tail| tail.end - tail.offset);
        record_bytes + LINK_BYTES <= room
    }

    /// Returns whether the pages of all records of the tail were faulted in before they were
    /// written.
    #[cfg(test)]
    pub(crate) fn is_tail_ready(&self) -> bool {
        self.tail.as_ref().is_none_or(|tail| tail.offset <= tail.ready_end)
    }

    /// Returns the offset and the salt of the tail segment, which must exist.
    pub(crate) fn segment_and_salt(&self) -> (u64, u64) {
        let tail = self.tail.as_ref().expect("a record was appended");
        (tail.segment_offset, tail.salt)
    }

    /// Begins a new segment even if this one has room: after recovery, torn bytes after the end of
    /// the log may look like records.
    pub(crate) fn leave_segment(&mut self, extents: &mut Extents) -> Result<()> {
        self.open_segment(0, extents)
    }

    #[cold]
    fn open_segment(&mut self, record_bytes: u64, extents: &mut Extents) -> Result<()> {
        let region = &extents.region().clone();
        let held_before = extents.held_segment_count();
        let (offset, segment_bytes, map, has_pages) = self.take_segment(record_bytes, extents)?;
        let is_held = extents.held_segment_count() < held_before;
        assert!(segment_bytes.is_power_of_two() && offset.is_multiple_of(segment_bytes));
        // Taking the segment may have moved a table in memory, so update the old tail: it stays in
        // use if a step below fails.
        self.follow_view(region);
        let sequence = region.live().next_sequence();
        let opened = map.and_then(|map| {
            // Another attempt may have failed by now; nothing must be stored to a failed device.
            region.health().check()?;
            self.begin_segment(offset, segment_bytes, (map, has_pages), region)
        });
        let tail = match opened {
            Ok(tail) => tail,
            Err(error) => {
                extents.release(offset, segment_bytes);
                return Err(error);
            }
        };
        let base_lsn = self.next_base_lsn();
        if self.tail.is_some() {
            let mut value = [0; 16];
            value[..8].copy_from_slice(&offset.to_le_bytes());
            value[8..].copy_from_slice(&tail.salt.to_le_bytes());
            let link = Payload::new(RecordKind::Link, &[], &value);
            // By `write`, which does not depend on where the tail is mapped now.
            if let Err(error) = self.append(&link, None, WritePath::Write, region) {
                extents.release(offset, segment_bytes);
                return Err(error);
            }
        }
        // A walk arrives at the new segment with this number, which its header must have.
        assert_eq!(self.lsn, base_lsn, "the LINK ends where the next segment begins");
        if let Some(old) = self.tail.replace(tail) {
            let (offset, bytes) = (old.unsynced_offset, old.offset - old.unsynced_offset);
            self.note_unsynced(UnsyncedRange { offset, bytes }, region);
        }
        self.kept_bytes = if is_held { ALL_KEPT } else { 0 };
        extents.begin_segment(self.kind, offset, segment_bytes, sequence);
        let live = region.live();
        live.set_log_bytes(live.log_bytes() + segment_bytes);
        if self.kind == SegmentKind::Log && live.log_bytes() >= self.tabled_bytes() {
            // If there is no space for the table, it stays in memory, and the next session rebuilds
            // it.
            let _ = extents.keep_segments_in_file();
        }
        self.pages.take(region);
        // Ignore an error: it is retried when the segment is needed.
        let health = region.health();
        self.next = health.check().and_then(|()| self.prepare_next(extents)).ok().flatten();
        self.follow_view(region);
        // But return the error of a failed device: nothing may be stored from now on.
        health.check()?;
        let room = self.tail.as_ref().map_or(0, |tail| tail.end - tail.offset);
        assert!(record_bytes + LINK_BYTES <= room, "a new segment has room for its first record");
        Ok(())
    }

    /// Returns the size of a log, in bytes, from which its segment table is kept in the file. For a
    /// smaller log, a walk along the log rebuilds the table as quickly, and saves its granule.
    fn tabled_bytes(&self) -> u64 {
        TABLED_SEGMENTS * self.segment_bytes_min
    }

    /// Takes the segment after the tail. Returns its offset, its size, its mapping, and whether its
    /// pages are faulted in. The segment is smaller if there is no space for one of the usual size.
    fn take_segment(
        &mut self,
        record_bytes: u64,
        extents: &mut Extents,
    ) -> Result<(u64, u64, Result<Tail>, bool)> {
        let region = &extents.region().clone();
        let needed = (SegmentHeader::BYTES + record_bytes + LINK_BYTES).next_power_of_two();
        let usual_bytes = self.next_segment_bytes(region).max(needed).max(GRANULE_BYTES);
        if let Some(next) = self.next.take_if(|next| next.segment_bytes == usual_bytes) {
            extents.take_aside();
            self.pages.finish(next.offset + usual_bytes, region);
            return Ok((next.offset, usual_bytes, Ok(finish(next, region)), true));
        }
        self.release_next(extents);
        let least_bytes = self.segment_bytes_min.max(needed).max(GRANULE_BYTES);
        let error = match extents.allocate(usual_bytes, usual_bytes) {
            Ok(offset) => {
                // Moved records are read only up to the last one that the log names, so the old
                // bytes after it do no harm. The rest of a log segment must be zero, by which
                // `repair` recognizes the end of the log.
                let keeps_bytes = self.kind == SegmentKind::Compacted && extents.is_taken_warm();
                self.pages.finish(offset + usual_bytes, region);
                match new_tail(offset, usual_bytes, keeps_bytes, region) {
                    Err(error) if is_want_of_room(&error) => {
                        extents.release(offset, usual_bytes);
                        error
                    }
                    map => return Ok((offset, usual_bytes, map, false)),
                }
            }
            Err(error) if is_want_of_room(&error) => error,
            Err(error) => return Err(error),
        };
        let (offset, bytes) = self.take_small(usual_bytes, least_bytes, extents, error)?;
        Ok((offset, bytes, new_tail(offset, bytes, false, region), false))
    }

    /// Takes a smaller segment than usual or, if there is none, one of the reserve. Returns its
    /// offset and its size.
    #[cold]
    fn take_small(
        &self,
        usual_bytes: u64,
        least_bytes: u64,
        extents: &mut Extents,
        error: Error,
    ) -> Result<(u64, u64)> {
        if extents.region().storage().is_volatile() {
            let is_small = least_bytes < usual_bytes;
            let offset =
                if is_small { extents.allocate(least_bytes, least_bytes)? } else { Err(error)? };
            return Ok((offset, least_bytes));
        }
        let mut bytes = usual_bytes;
        while bytes >= least_bytes {
            if let Ok(offset) = extents.allocate_backed(bytes, bytes, |_| {}) {
                return Ok((offset, bytes));
            }
            extents.region().health().check()?;
            bytes /= 2;
        }
        let held = self.held_left.and_then(|left| extents.take_held_segment(least_bytes, left));
        held.ok_or(error)
    }

    /// Updates the mappings of the tail and of the segment after it: in a table in memory they are
    /// part of the view, which may have moved to make room.
    pub(crate) fn follow_view(&mut self, region: &Region) {
        let storage = region.storage();
        if let Some(tail) = &mut self.tail {
            let (offset, bytes) = (tail.segment_offset, tail.end - tail.segment_offset);
            if let Some(map) = storage.moved_tail(offset, bytes, tail.offset - offset) {
                tail.map = map;
            }
        }
        if let Some(next) = &mut self.next
            && let Some(map) =
                storage.moved_tail(next.offset, next.segment_bytes, SegmentHeader::BYTES)
        {
            if !map.is_where(&next.map) {
                // The thread may be working on the pages of the old place, which no longer matter.
                next.work = None;
            }
            next.map = map;
        }
    }

    /// Allocates the segment after the tail and has it prepared in the background, if segments are
    /// large: a small one costs less than waking the thread.
    fn prepare_next(&self, extents: &mut Extents) -> Result<Option<NextSegment>> {
        assert!(self.next.is_none(), "the segment that was prepared before is in use or released");
        let region = &extents.region().clone();
        let segment_bytes = self.next_segment_bytes(region);
        let is_large = segment_bytes >= PREPARED_GROWTH * self.segment_bytes_min;
        if !is_large && !region.storage().prepares_small_segments() {
            return Ok(None);
        }
        // Only one segment can be set aside, and it is that of the log, for which changes wait.
        if self.kind != SegmentKind::Log {
            return Ok(None);
        }
        let offset = extents.set_aside(segment_bytes)?;
        let is_zero = extents.is_taken_new();
        let begun = map_tail(offset, segment_bytes, region).and_then(|map| {
            let work = region.write("clear log segment of", |storage| {
                storage.ready_segment(offset, segment_bytes, is_zero, &map)
            })?;
            let work = work.map(|work| region.prefaulter().ask(work));
            Ok(NextSegment { offset, segment_bytes, map, work })
        });
        if begun.is_err() {
            extents.release_aside();
        }
        begun.map(Some)
    }

    /// Frees the prepared segment.
    pub(crate) fn release_next(&mut self, extents: &mut Extents) {
        if let Some(next) = self.next.take() {
            // The thread must be done before the granules are reused.
            drop(finish(next, extents.region()));
            // Only if there is a `next`: the segment set aside may belong to another appender.
            extents.release_aside();
        }
    }

    /// Writes the header of a new tail segment.
    fn begin_segment(
        &mut self,
        offset: u64,
        segment_bytes: u64,
        (map, has_pages): (Tail, bool),
        region: &Region,
    ) -> Result<TailSegment> {
        assert!(
            segment_bytes >= SegmentHeader::BYTES + LINK_BYTES,
            "a segment has room for a LINK"
        );
        let header = SegmentHeader {
            kind: self.kind,
            sequence: next_sequence(region),
            segment_bytes,
            base_lsn: self.next_base_lsn(),
            previous_offset: self.tail.as_ref().map_or(0, |tail| tail.segment_offset),
            salt: self.next_salt(),
        };
        region.write("write to", |storage| storage.write_at(offset, &header.encode()))?;
        Ok(TailSegment {
            map,
            segment_offset: offset,
            end: offset + segment_bytes,
            ready_end: if has_pages { offset + segment_bytes } else { offset },
            salt: header.salt,
            offset: offset + SegmentHeader::BYTES,
            resumed_offset: offset + SegmentHeader::BYTES,
            last_offset: offset + SegmentHeader::BYTES,
            last_crc: 0,
            unsynced_offset: offset,
            is_allocated: false,
        })
    }

    /// Returns the log sequence number of the first record of the segment after the tail.
    fn next_base_lsn(&self) -> u64 {
        self.lsn + if self.tail.is_some() { LINK_BYTES } else { 0 }
    }

    /// Returns the next number of a splitmix64 sequence with a random start.
    pub(crate) fn next_salt(&mut self) -> u64 {
        self.salt_state = self.salt_state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.salt_state ^ self.salt_state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Appends a record, for which [`reserve`](Self::reserve) has made room. The record is complete
    /// and readable when this returns, before any slot holds its address.
    #[inline]
    pub(crate) fn append(
        &mut self,
        payload: &Payload<'_>,
        prev: Option<Addr>,
        write_path: WritePath,
        region: &Region,
    ) -> Result<Addr> {
        let tail = self.tail.as_mut().expect("reserve opened a segment");
        let header = RecordHeader { prev, ..payload.header };
        let record_bytes = header.record_bytes();
        debug_assert!(
            prev.is_some() || header.kind != RecordKind::Delete,
            "a tombstone names what it deletes"
        );
        assert!(tail.offset + record_bytes <= tail.end, "`reserve` made room for the record");
        debug_assert!(tail.offset.is_multiple_of(8) && record_bytes.is_multiple_of(8));
        let mut head = [0; HEADER_BYTES_MAX];
        let head_bytes = header.encode(&mut head);
        let crc = finish_crc(payload.crc, &head[..head_bytes], tail.salt, tail.offset);
        head[..4].copy_from_slice(&crc.to_le_bytes());
        match write_path {
            WritePath::Mapping => {
                let at = tail.offset - tail.segment_offset;
                let parts = [&head[..head_bytes], payload.key, payload.value];
                if !tail.map.store(at, record_bytes, parts) {
                    // Build the array again: this way, that of the hot path need not be spilled to
                    // memory.
                    let parts = [&head[..head_bytes], payload.key, payload.value];
                    self.store_unmapped(record_bytes, parts, region)?;
                }
            }
            WritePath::Write => {
                let parts = [&head[..head_bytes], payload.key, payload.value];
                self.write_parts(record_bytes, parts, region)?;
            }
        }
        let tail = self.tail.as_mut().expect("there is one");
        let addr = Addr::of_offset(tail.offset);
        (tail.last_offset, tail.last_crc) = (tail.offset, crc);
        tail.offset += record_bytes;
        self.lsn += record_bytes;
        Ok(addr)
    }

    /// Maps the tail, if it is not mapped, so that no later append to it can fail.
    pub(crate) fn ensure_mapped(&mut self, region: &Region) -> Result<()> {
        let Some(tail) = self.tail.as_mut().filter(|tail| !tail.map.is_mapped()) else {
            return Ok(());
        };
        let (segment_offset, used_bytes) = (tail.segment_offset, tail.offset - tail.segment_offset);
        tail.map = region.write("map the tail of", |storage| {
            storage.open_tail(segment_offset, tail.end - segment_offset, used_bytes)
        })?;
        // The next record faults in the pages that it needs.
        tail.ready_end = tail.offset / GRANULE_BYTES * GRANULE_BYTES;
        Ok(())
    }

    /// Writes the parts of a record to the file.
    fn write_parts(&mut self, record_bytes: u64, parts: [&[u8]; 3], region: &Region) -> Result<()> {
        let tail = self.tail.as_mut().expect("the caller has looked");
        self.buf.clear();
        for part in parts {
            self.buf.extend_from_slice(part);
        }
        self.buf.resize(record_bytes as usize, 0);
        let (offset, buf) = (tail.offset, &self.buf);
        region.write("write to", |storage| storage.write_at(offset, buf))?;
        tail.map.skip_to(offset + record_bytes - tail.segment_offset);
        Ok(())
    }

    /// Stores the parts of a record in a tail that is not mapped. A handle that has just resumed
    /// the log may make a single change. So the first records are written, at the cost of about
    /// three system calls each; then the segment is mapped and faulted in, which costs as much as
    /// fifty.
    #[cold]
    #[inline(never)]
    fn store_unmapped(
        &mut self,
        record_bytes: u64,
        parts: [&[u8]; 3],
        region: &Region,
    ) -> Result<()> {
        let tail = self.tail.as_ref().expect("the caller has looked");
        if tail.offset - tail.resumed_offset < UNMAPPED_BYTES {
            match self.write_parts(record_bytes, parts, region) {
                // RLIMIT_FSIZE of this process: another process may have begun the segment beyond
                // that limit. A mapping is not subject to it.
                Err(Error::Io { source, .. }) if source.kind() == ErrorKind::FileTooLarge => {}
                written => return written,
            }
        }
        self.ensure_mapped(region)?;
        let tail = self.tail.as_mut().expect("there is one");
        let at = tail.offset - tail.segment_offset;
        let is_stored = tail.map.store(at, record_bytes, parts);
        assert!(is_stored, "`reserve` made room for the record");
        Ok(())
    }

    /// Writes a big record into a segment of its own, and appends the record that names it.
    pub(crate) fn append_big(
        &mut self,
        payload: &Payload<'_>,
        prev: Option<Addr>,
        extents: &mut Extents,
    ) -> Result<Addr> {
        let region = &extents.region().clone();
        let header = RecordHeader { kind: RecordKind::Big, prev, ..payload.header };
        let bytes = SegmentHeader::BYTES + header.record_bytes();
        let segment_bytes = bytes.next_multiple_of(GRANULE_BYTES);
        let is_in_transaction = header.is_in_transaction;
        let new = RecordHeader::new(RecordKind::BigPut, 0, 16);
        let salt = self.next_salt();
        let naming = RecordHeader { is_in_transaction, prev, salt: Some(salt), ..new };
        self.reserve(naming.record_bytes(), extents)?;
        let mut offset = extents.allocate(segment_bytes, GRANULE_BYTES)?;
        assert!(offset.is_multiple_of(GRANULE_BYTES) && bytes <= segment_bytes);
        self.follow_view(region);
        let mut sequence = region.live().next_sequence();
        let mut written = self.write_big(offset, segment_bytes, salt, &header, payload, region);
        if written.as_ref().is_err_and(is_want_of_room)
            && let Ok(backed) = extents.allocate_backed(segment_bytes, GRANULE_BYTES, |_| {})
        {
            // The first segment could not get its blocks.
            extents.release(offset, segment_bytes);
            offset = backed;
            sequence = region.live().next_sequence();
            written = self.write_big(offset, segment_bytes, salt, &header, payload, region);
        }
        let named = written.and_then(|()| {
            let mut value = [0; 16];
            value[..8].copy_from_slice(&offset.to_le_bytes());
            value[8..].copy_from_slice(&segment_bytes.to_le_bytes());
            let mut naming = Payload::new(RecordKind::BigPut, &[], &value);
            naming.header.is_in_transaction = is_in_transaction;
            naming.header.salt = Some(salt);
            self.note_unsynced(UnsyncedRange { offset, bytes: segment_bytes }, region);
            self.append(&naming, prev, WritePath::Mapping, region)
        });
        if let Err(error) = named {
            extents.release(offset, segment_bytes);
            return Err(error);
        }
        extents.begin_segment(SegmentKind::Big, offset, segment_bytes, sequence);
        let live = region.live();
        live.set_big_bytes(live.big_bytes() + segment_bytes);
        Ok(Addr::of_offset(offset + SegmentHeader::BYTES))
    }

    fn write_big(
        &mut self,
        offset: u64,
        segment_bytes: u64,
        salt: u64,
        header: &RecordHeader,
        payload: &Payload<'_>,
        region: &Region,
    ) -> Result<()> {
        let segment = SegmentHeader {
            kind: SegmentKind::Big,
            sequence: next_sequence(region),
            segment_bytes,
            base_lsn: self.lsn,
            previous_offset: 0,
            salt,
        };
        let mut head = [0; HEADER_BYTES_MAX];
        let head_bytes = header.encode(&mut head);
        let record_offset = offset + SegmentHeader::BYTES;
        let pad_bytes =
            header.record_bytes() as usize - head_bytes - payload.key.len() - payload.value.len();
        let crc = finish_crc(payload.crc, &head[..head_bytes], salt, record_offset);
        head[..4].copy_from_slice(&crc.to_le_bytes());
        let mut at = offset;
        let end = offset + segment_bytes;
        assert!(record_offset + header.record_bytes() <= end, "the record fits its segment");
        for part in [&segment.encode()[..], &head[..head_bytes], payload.key, payload.value] {
            region.write("write to", |storage| storage.write_at(at, part))?;
            at += part.len() as u64;
        }
        assert_eq!(at + pad_bytes as u64, record_offset + header.record_bytes());
        if region.storage().is_volatile() {
            // Reused memory: the bytes after the record may be anything, and are not read.
            let padding = &[0; 8][..pad_bytes];
            return region.write("write to", |storage| storage.write_at(at, padding));
        }
        region.write("write to", |storage| storage.write_zeros(at, end - at))
    }

    /// Adds a range to those that the next sync must cover. Not in memory, which is never synced:
    /// there the list would only grow.
    fn note_unsynced(&mut self, range: UnsyncedRange, region: &Region) {
        if !region.storage().is_volatile() {
            self.unsynced.push(range);
        }
    }

    /// Returns how many ranges the next sync must cover, beside the tail.
    #[cfg(test)]
    pub(crate) fn unsynced_count(&self) -> usize {
        self.unsynced.len()
    }

    /// Returns what no sync has begun to cover.
    pub(crate) fn unsynced(&self) -> Vec<UnsyncedRange> {
        let tail = self.tail.as_ref().filter(|tail| tail.unsynced_offset < tail.offset);
        let range_of = |tail: &TailSegment| UnsyncedRange {
            offset: tail.unsynced_offset,
            bytes: tail.offset - tail.unsynced_offset,
        };
        self.unsynced.iter().copied().chain(tail.map(range_of)).collect()
    }

    /// Returns what the next sync must cover, and the log sequence number it makes durable.
    ///
    /// When somebody waits, the first such sync in a segment covers all of it that no sync has
    /// covered: its blocks are allocated once, and the syncs after it touch no metadata. A background
    /// sync leaves the rest of the segment as it is, since clean pages cost the next store a fault.
    pub(crate) fn take_unsynced(&mut self, is_awaited: bool) -> (Vec<UnsyncedRange>, u64) {
        let mut ranges = std::mem::take(&mut self.unsynced);
        if let Some(tail) = &mut self.tail
            && tail.unsynced_offset < tail.offset
        {
            assert!(tail.segment_offset <= tail.unsynced_offset && tail.offset <= tail.end);
            let is_whole = is_awaited && !tail.is_allocated;
            let end = if is_whole { tail.end } else { tail.offset };
            let offset = tail.unsynced_offset;
            ranges.push(UnsyncedRange { offset, bytes: end - offset });
            assert!(end >= tail.offset, "a sync covers every record of the tail");
            tail.unsynced_offset = tail.offset;
            tail.is_allocated |= is_whole;
        }
        (coalesce(ranges), self.lsn)
    }
}

/// Returns the segment that was prepared when it is ready.
fn finish(next: NextSegment, region: &Region) -> Tail {
    if let Some(work) = next.work {
        region.prefaulter().finish(work);
    }
    next.map
}

/// Maps a segment, and clears it unless it `keeps_bytes` of its last use.
fn new_tail(offset: u64, segment_bytes: u64, keeps_bytes: bool, region: &Region) -> Result<Tail> {
    let storage = region.storage();
    // Where the file system has room, the free ranges beside it get no blocks: nobody would count them.
    let is_alone = keeps_bytes && !storage.is_volatile() && has_ample_room(storage);
    region.write("clear log segment of", |storage| match keeps_bytes {
        true if storage.is_volatile() => Ok(()),
        // What has pages may still lack blocks, in a copy with holes.
        true if is_alone => storage.claim_freed(offset, segment_bytes),
        true => storage.claim_range(offset, segment_bytes),
        false => storage.write_zeros(offset, segment_bytes),
    })?;
    let tail = map_tail(offset, segment_bytes, region)?;
    // Others may fill the disk before the first store to a page that shares a folio with a hole.
    let pages = if is_alone { tail.pages() } else { None };
    if pages.is_some_and(|pages| !pages.can_ends_be_stored_to()) {
        region.write("claim a log segment of", |_| Err(no_room()))?;
    }
    Ok(tail)
}

fn map_tail(offset: u64, segment_bytes: u64, region: &Region) -> Result<Tail> {
    region.write("map the tail of", |storage| {
        storage.open_tail(offset, segment_bytes, SegmentHeader::BYTES)
    })
}

/// Joins ranges that follow each other with gaps of a segment at most: each range costs a
/// flush of the device, and what lies in the gaps, index pieces, is little.
pub(crate) fn coalesce(mut ranges: Vec<UnsyncedRange>) -> Vec<UnsyncedRange> {
    ranges.sort_unstable_by_key(|range| (range.offset, range.bytes));
    let mut joined: Vec<UnsyncedRange> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.offset <= last.end() + LOG_SEGMENT_BYTES_MAX => {
                last.bytes = last.bytes.max(range.end() - last.offset);
            }
            _ => joined.push(range),
        }
    }
    let is_apart = |pair: &[UnsyncedRange]| pair[0].end() < pair[1].offset;
    debug_assert!(joined.windows(2).all(is_apart), "no byte is synced twice");
    joined
}

/// Takes the next segment sequence number.
fn next_sequence(region: &Region) -> u64 {
    let sequence = region.live().next_sequence();
    region.live().set_next_sequence(sequence + 1);
    sequence
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::recovery::open_storage;
    use crate::store::Opened;
    use crate::{Create, Options, SimDisk};

    /// Returns a store of one record, open again.
    fn opened() -> Opened {
        let disk = SimDisk::new();
        let db = disk.open(&Options::new()).expect("nothing fails");
        db.put("key", "value").expect("nothing fails");
        db.close().expect("nothing fails");
        let options = Options::new().create(Create::Never);
        open_storage(disk.storage().expect("nothing fails"), &options, false)
            .expect("nothing fails")
    }

    #[test]
    fn segment_of_refuses_a_position_outside_its_segment() {
        let opened = opened();
        let (view, end) = (&opened.region.view, opened.writer.log.position());
        let header = segment_of(view, end).unwrap();
        let first = end.segment_offset + SegmentHeader::BYTES;
        let last = end.segment_offset + header.segment_bytes - LINK_BYTES;
        let at = |offset: u64| {
            let lsn = (header.base_lsn + offset).wrapping_sub(first);
            segment_of(view, LogPosition { offset, lsn, ..end })
        };
        assert!(at(first).is_ok() && at(last).is_ok());
        let other_lsn = segment_of(view, LogPosition { lsn: end.lsn + 8, ..end });
        for refused in [at(first - 8), at(last + 8), other_lsn] {
            assert!(matches!(refused, Err(Error::Corrupt { what: "tail of the log", .. })));
        }
    }

    #[test]
    fn salts_do_not_repeat() {
        let mut appender = Appender::new(7, 4096, 1 << 21);
        let salts: BTreeSet<u64> = (0..10_000).map(|_| appender.next_salt()).collect();
        assert_eq!(salts.len(), 10_000);
    }

    #[test]
    fn the_first_awaited_sync_covers_the_whole_segment_and_the_second_does_not() {
        let Opened { region, mut writer, .. } = opened();
        let log = &mut writer.log;
        let start = log.position();
        let bytes = segment_of(&region.view, start).unwrap().segment_bytes;
        let whole = UnsyncedRange { offset: start.segment_offset, bytes };
        assert_eq!(log.take_unsynced(true), (vec![whole], start.lsn));

        let record = Payload::new(RecordKind::Put, b"key", b"newer");
        log.append(&record, None, WritePath::Write, &region).unwrap();
        let end = log.position();
        assert!(start.offset < end.offset);
        let appended = UnsyncedRange { offset: start.offset, bytes: end.offset - start.offset };
        assert_eq!(log.take_unsynced(true), (vec![appended], end.lsn));
        assert_eq!(log.take_unsynced(true), (vec![], end.lsn));
    }

    #[test]
    fn ranges_near_each_other_share_a_flush() {
        let coalesced = |ranges: &[(u64, u64)]| -> Vec<(u64, u64)> {
            let ranges = ranges.iter().map(|&(offset, bytes)| UnsyncedRange { offset, bytes });
            coalesce(ranges.collect()).iter().map(|range| (range.offset, range.bytes)).collect()
        };
        let mib = 1 << 20;
        let ranges = [(10 * mib, mib), (0, mib), (mib, mib), (4 * mib, 5), (100 * mib, 7)];
        assert_eq!(coalesced(&ranges), [(0, 4 * mib + 5), (10 * mib, mib), (100 * mib, 7)]);
        assert_eq!(coalesced(&[(0, 9 * mib), (mib, mib)]), [(0, 9 * mib)]);
    }
}
