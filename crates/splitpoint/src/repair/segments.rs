//! Find the segments of a damaged file and put those of the log into its order.
//!
//! How a log segment is bound to the one before it is in `log::segment`. Recovery after a power
//! loss cuts the log off and begins a new segment at an earlier number, so of two segments that
//! follow the same one, that with the smaller number is the younger, and the log; the other, and
//! all behind it, were dropped then and stay dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::marks::Marks;
use super::reader::Reader;
use crate::error::Result;
use crate::format::{
    FILE_BYTES_MAX, GRANULE_BYTES, HEADER_BYTES, LOG_SEGMENT_BYTES_MAX, LogStart, SegmentHeader,
    SegmentKind,
};
use crate::log::append::LogPosition;
use crate::log::record::{LINK_BYTES, Record};
use crate::log::resync::{Link, Powers, SegmentScan, Tail, records_of, scan};
use crate::log::segment::{Segment, segments_before};

/// A segment of the log, with what can be read of it.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) segment: Segment,
    pub(super) scan: SegmentScan,
    /// Where its records end, the LINK included, as far as that is known; else where the bytes end
    /// that may have been records.
    pub(super) end: u64,
    /// Whether its header had to be made up from the records before it.
    pub(super) is_rebuilt: bool,
    /// Its records that no COMMIT made count, if it has any.
    pub(super) uncommitted: Option<Marks>,
}

/// Where the live header says that the log ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownEnd {
    pub(super) segment_offset: u64,
    pub(super) offset: u64,
    pub(super) lsn: u64,
    /// How much of the log had been synced by then.
    pub(super) durable_lsn: u64,
    /// Whether a checksum proves it: the store was closed.
    pub(super) is_certain: bool,
}

impl KnownEnd {
    fn position(self) -> LogPosition {
        let Self { segment_offset, offset, lsn, .. } = self;
        LogPosition { segment_offset, offset, lsn }
    }
}

/// The log in its order, and what is left over.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) parts: Vec<Part>,
    /// Big segments by offset, whether or not a record names them.
    pub(super) bigs: BTreeMap<u64, Segment>,
    /// Log segments that are not part of the log.
    pub(super) ignored_segments: u64,
    /// Bytes of valid records that are not part of the log.
    pub(super) ignored_bytes: u64,
    /// Whether the segment where the log begins was found.
    pub(super) has_start: bool,
    /// Whether the log ends as a writer leaves it.
    pub(super) has_tail: bool,
}

impl Log {
    /// Returns the log sequence number after the last record.
    pub(super) fn end_lsn(&self) -> u64 {
        self.parts.last().map_or(0, |part| part.segment.lsn_at(part.scan.end(&part.segment)))
    }

    /// Returns whether the log ends where nothing but a writer stops.
    pub(super) fn ends_in_a_sector(&self) -> bool {
        self.has_tail && self.parts.last().is_some_and(|part| part.scan.tail == Tail::Yes)
    }

    /// Returns the size of the valid records in log segments, in bytes.
    pub(super) fn record_bytes(&self) -> u64 {
        let runs = self.parts.iter().flat_map(|part| &part.scan.runs);
        runs.map(|run| run.end - run.start).sum()
    }

    /// Returns the part and the run of valid records that `offset` is in.
    pub(super) fn run_at<'a>(
        &'a self,
        offset: u64,
        by_offset: &BTreeMap<u64, usize>,
    ) -> Option<(&'a Part, &'a Range<u64>)> {
        let (_, &part) = by_offset.range(..=offset).next_back()?;
        let part = &self.parts[part];
        let run = part.scan.runs.partition_point(|run| run.end <= offset);
        let run = part.scan.runs.get(run).filter(|run| run.contains(&offset))?;
        Some((part, run))
    }
}

impl Part {
    /// Calls `visit` for each record, in order, but not for those that no COMMIT made count.
    pub(super) fn each_record(
        &self,
        reader: &mut Reader<'_>,
        mut visit: impl FnMut(&mut Reader<'_>, &Record<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut bytes = Vec::new();
        if self.scan.runs.is_empty() {
            return Ok(());
        }
        reader.ask()?;
        let here = self.segment.end().min(reader.file_bytes()) - self.segment.offset;
        reader.read(self.segment.offset, here, &mut bytes);
        for run in &self.scan.runs {
            for record in records_of(&bytes, &self.segment, run) {
                let uncommitted = self.uncommitted.as_ref();
                if !uncommitted.is_some_and(|marks| marks.has(record.offset)) {
                    visit(reader, &record)?;
                }
            }
        }
        Ok(())
    }
}

/// The headers of all segments of a file.
#[derive(Debug, Default)]
pub(super) struct Headers {
    logs: BTreeMap<u64, Segment>,
    bigs: BTreeMap<u64, Segment>,
    compacted: BTreeMap<u64, Segment>,
}

impl Headers {
    /// Looks at every granule of the file for the header of a segment.
    pub(super) fn find(reader: &mut Reader<'_>) -> Result<Self> {
        let mut headers = Self::default();
        let file_bytes = reader.file_bytes();
        let mut chunk = Vec::new();
        let mut offset = HEADER_BYTES;
        while offset < file_bytes {
            reader.read(offset, CHUNK_BYTES.min(file_bytes - offset), &mut chunk);
            for (i, granule) in chunk.chunks(GRANULE_BYTES as usize).enumerate() {
                headers.add(offset + i as u64 * GRANULE_BYTES, granule);
            }
            offset += CHUNK_BYTES;
            reader.advance("search", 0, offset.min(file_bytes))?;
        }
        Ok(headers)
    }

    fn add(&mut self, offset: u64, granule: &[u8]) {
        let Some(bytes) = granule.get(..SegmentHeader::BYTES as usize) else { return };
        // The file may be cut: that the segment does not end in it must not hide its beginning.
        let Ok(header) = SegmentHeader::decode(bytes, offset, FILE_BYTES_MAX) else { return };
        let segment = Segment::new(offset, &header);
        match header.kind {
            SegmentKind::Log | SegmentKind::Compacted => {
                let bytes = header.segment_bytes;
                let is_possible = bytes <= LOG_SEGMENT_BYTES_MAX
                    && bytes.is_power_of_two()
                    && offset.is_multiple_of(bytes);
                if is_possible && header.kind == SegmentKind::Log {
                    self.logs.insert(offset, segment);
                } else if is_possible {
                    self.compacted.insert(offset, segment);
                }
            }
            SegmentKind::Big => {
                self.bigs.insert(offset, segment);
            }
            // No record that a key needs is in any other.
            _ => {}
        }
    }

    /// Returns whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.logs.is_empty() && self.bigs.is_empty()
    }

    /// Returns the segments of the log.
    pub(super) fn logs(&self) -> impl Iterator<Item = &Segment> {
        self.logs.values()
    }

    /// Returns the segments of records that compaction moved.
    pub(super) fn compacted(&self) -> impl Iterator<Item = &Segment> {
        self.compacted.values()
    }

    /// Returns all segments with records.
    pub(super) fn all(&self) -> impl Iterator<Item = &Segment> {
        self.logs.values().chain(self.compacted.values()).chain(self.bigs.values())
    }

    /// Returns whether a segment has records that compaction moved.
    pub(super) fn is_compacted(&self, segment: &Segment) -> bool {
        self.compacted.contains_key(&segment.offset)
    }

    /// Returns whether a segment is of one big record.
    pub(super) fn is_big(&self, segment: &Segment) -> bool {
        self.bigs.contains_key(&segment.offset)
    }

    /// Returns the segments that lead to the known end of the log, itself included.
    fn before(&self, end: Option<KnownEnd>) -> BTreeSet<u64> {
        let segment_at = |offset: u64| self.logs.get(&offset).copied();
        let before = end.map(|end| segments_before(end.position(), segment_at));
        before.into_iter().flatten().map(|segment| segment.offset).collect()
    }
}

/// Bytes read together while headers are looked for.
const CHUNK_BYTES: u64 = 1 << 20;

/// Puts the log in order.
pub(super) fn order(
    reader: &mut Reader<'_>,
    headers: Headers,
    start: Option<LogStart>,
    end: Option<KnownEnd>,
) -> Result<Log> {
    let known = headers.before(end);
    let mut order = Order::new(headers, known, end);
    let first = match start.filter(|start| start.segment_offset != 0) {
        Some(start) => order.first_segment(start),
        None => order.beginning(),
    };
    order.log.has_start = first.is_some();
    let mut next = first;
    loop {
        if let Some(candidate) = next.take() {
            order.follow(reader, candidate)?;
        }
        if order.log.has_tail {
            break;
        }
        next = order.behind_the_gap();
        if next.is_none() {
            break;
        }
    }
    Ok(order.finish())
}

/// A segment that may come next, and whether its header was read or made up.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    segment: Segment,
    is_rebuilt: bool,
}

/// The log while it is put in order.
struct Order {
    headers: Headers,
    /// Log segments by the one before them.
    followers: BTreeMap<u64, Vec<u64>>,
    trees: BTreeMap<u64, Tree>,
    /// The roots from [`roots_of`] that have not been examined yet.
    roots: Vec<(Segment, Segment)>,
    /// Segments that lead to the known end.
    known: BTreeSet<u64>,
    known_end: Option<KnownEnd>,
    /// Offsets of the segments that have been seen, with their ends.
    taken: BTreeMap<u64, u64>,
    /// Where the log has got to.
    lsn: u64,
    powers: Powers,
    log: Log,
}

impl Order {
    fn new(headers: Headers, known: BTreeSet<u64>, known_end: Option<KnownEnd>) -> Self {
        let mut followers: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for segment in headers.logs.values() {
            followers.entry(segment.previous_offset).or_default().push(segment.offset);
        }
        let trees = trees_of(&headers.logs);
        let roots = roots_of(&headers.logs, &trees, &known);
        Self {
            headers,
            followers,
            trees,
            roots,
            known,
            known_end,
            taken: BTreeMap::new(),
            lsn: 0,
            powers: Powers::new(),
            log: Log::default(),
        }
    }

    /// Returns the segment that a superblock names as the first.
    fn first_segment(&self, start: LogStart) -> Option<Candidate> {
        let first = start.segment_offset + SegmentHeader::BYTES;
        let base_lsn = start.lsn.checked_sub(start.record_offset.checked_sub(first)?)?;
        match self.headers.logs.get(&start.segment_offset) {
            Some(&segment) if segment.salt == start.salt => {
                Some(Candidate { segment, is_rebuilt: false })
            }
            Some(_) => None,
            None => Some(self.rebuilt(start.segment_offset, start.salt, base_lsn, 0)),
        }
    }

    /// Returns the segment where a log begins, without a superblock that says which.
    fn beginning(&self) -> Option<Candidate> {
        let is_first = |segment: &&Segment| segment.previous_offset == 0 && segment.base_lsn == 0;
        let firsts = self.headers.logs.values().filter(is_first);
        let segment = *firsts.max_by_key(|segment| rank(segment, &self.trees, &self.known))?;
        Some(Candidate { segment, is_rebuilt: false })
    }

    /// Makes up the segment at `offset`, whose header is damaged.
    fn rebuilt(&self, offset: u64, salt: u64, base_lsn: u64, previous_offset: u64) -> Candidate {
        // It ends before the next one begins.
        let next = |segments: &BTreeMap<u64, Segment>| {
            segments.range(offset + 1..).next().map_or(u64::MAX, |(&next, _)| next - offset)
        };
        let room = next(&self.headers.logs).min(next(&self.headers.bigs));
        let segment = Segment::made_up(offset, salt, base_lsn, previous_offset, room);
        Candidate { segment, is_rebuilt: true }
    }

    /// Takes `candidate` and all that follow it without a gap.
    fn follow(&mut self, reader: &mut Reader<'_>, candidate: Candidate) -> Result<()> {
        let mut next = Some(candidate);
        let mut bytes = Vec::new();
        while let Some(Candidate { segment, is_rebuilt }) = next.take() {
            if !self.take(segment.offset, segment.end()) {
                return Ok(());
            }
            let here = segment.end().min(reader.file_bytes()).saturating_sub(segment.offset);
            reader.read(segment.offset, here, &mut bytes);
            let mut scan = scan(&bytes, &segment, &mut self.powers);
            let record_bytes: u64 = scan.runs.iter().map(|run| run.end - run.start).sum();
            reader.verified_bytes += record_bytes;
            reader.advance("verify", 0, reader.verified_bytes)?;
            let is_tail = self.is_tail(&segment, &scan);
            let after = if is_tail { None } else { self.after(&segment, &scan) };
            let end = match after {
                Some((link_offset, _)) => link_offset + LINK_BYTES,
                None if is_tail || scan.solid_link(&segment).is_some() => scan.end(&segment),
                // Only zeros are behind it, or the end of the file, or both.
                None if here < segment.bytes => segment.end(),
                None => scan.last_used.max(scan.end(&segment)),
            };
            self.log.ignored_bytes += scan.truncate(end);
            self.lsn = match after {
                Some((_, next)) => next.segment.base_lsn,
                None => segment.lsn_at(scan.end(&segment)),
            };
            self.log.has_tail = is_tail;
            self.log.parts.push(Part { segment, scan, end, is_rebuilt, uncommitted: None });
            next = after.map(|(_, candidate)| candidate);
        }
        Ok(())
    }

    /// Marks a range as part of the log, if none of it is already.
    fn take(&mut self, offset: u64, end: u64) -> bool {
        if offset < HEADER_BYTES || self.overlaps(offset, end) {
            return false;
        }
        self.taken.insert(offset, end);
        true
    }

    /// Returns whether the log ends in this segment.
    fn is_tail(&self, segment: &Segment, scan: &SegmentScan) -> bool {
        let is_at =
            |end: KnownEnd| end.segment_offset == segment.offset && scan.end(segment) >= end.offset;
        match (scan.tail, self.known_end) {
            (Tail::No, Some(end)) => is_at(end) && self.ends_behind_damage(segment, scan, end),
            (Tail::No, None) => false,
            // A writer that is known to have gone on has not stopped here: the zeros are damage.
            (_, Some(end)) if end.is_certain => is_at(end),
            (Tail::Yes, _) => true,
            (Tail::Perhaps, Some(end)) if self.known.contains(&segment.offset) => is_at(end),
            (Tail::Perhaps, _) => !self.followers.contains_key(&segment.offset),
        }
    }

    /// Returns whether the log ends here all the same although damage comes before: only zeros are
    /// behind the last record, where the live header says that the log ends, and no segment
    /// follows.
    fn ends_behind_damage(&self, segment: &Segment, scan: &SegmentScan, end: KnownEnd) -> bool {
        let is_left = !scan.links.is_empty() || self.followers.contains_key(&segment.offset);
        scan.last_used <= scan.end(segment)
            && self.known.contains(&segment.offset)
            && (end.is_certain || !is_left)
    }

    /// Returns the segment that follows this one, and where its LINK is or was.
    fn after(&self, segment: &Segment, scan: &SegmentScan) -> Option<(u64, Candidate)> {
        if let Some(link) = scan.solid_link(segment) {
            return self.named_by(segment, &link);
        }
        let solid_end = scan.solid_end(segment);
        let named = scan.links.iter().filter_map(|link| self.named_by(segment, link));
        let followers = self.followers.get(&segment.offset).into_iter().flatten();
        let unnamed = followers.filter_map(|offset| {
            let follower = self.headers.logs[offset];
            let at = segment.link_before(&follower).filter(|&at| at >= solid_end)?;
            Some((at, Candidate { segment: follower, is_rebuilt: false }))
        });
        // The younger of two, as the module says.
        named.chain(unnamed).min_by_key(|&(at, candidate)| {
            let is_known = self.known.contains(&candidate.segment.offset);
            (!is_known, at, candidate.is_rebuilt)
        })
    }

    /// Returns the segment that a link names, if it may be that one.
    fn named_by(&self, segment: &Segment, link: &Link) -> Option<(u64, Candidate)> {
        let lsn = segment.lsn_at(link.offset + LINK_BYTES);
        let candidate = match self.headers.logs.get(&link.target) {
            Some(&next) => {
                let is_meant = next.salt == link.salt && next.base_lsn == lsn;
                is_meant.then_some(Candidate { segment: next, is_rebuilt: false })?
            }
            None if link.target.is_multiple_of(GRANULE_BYTES)
                && (HEADER_BYTES..FILE_BYTES_MAX).contains(&link.target) =>
            {
                self.rebuilt(link.target, link.salt, lsn, segment.offset)
            }
            None => return None,
        };
        Some((link.offset, candidate))
    }

    /// Returns the next segment of the log after one or more that are lost: the first of a chain
    /// that nothing found so far leads to.
    fn behind_the_gap(&mut self) -> Option<Candidate> {
        while let Some((segment, best)) = self.roots.pop() {
            let previous = segment.previous_offset;
            // What says to follow a segment of the log that goes on elsewhere was dropped.
            let is_left = segment.base_lsn >= self.lsn
                && !self.overlaps(segment.offset, segment.end())
                && !self.overlaps(previous, previous + 1);
            // Of two chains for the same part of the log only one is of it.
            let last_lsn = self.trees[&segment.offset].last_lsn;
            if is_left && (segment == best || last_lsn < best.base_lsn) {
                return Some(Candidate { segment, is_rebuilt: false });
            }
        }
        None
    }

    /// Returns whether any of a range belongs to the log.
    fn overlaps(&self, offset: u64, end: u64) -> bool {
        let before = self.taken.range(..end).next_back();
        before.is_some_and(|(_, &taken)| taken > offset)
    }

    fn finish(mut self) -> Log {
        let taken = |segment: &&Segment| self.taken.contains_key(&segment.offset);
        let taken_count = self.headers.logs.values().filter(taken).count();
        self.log.ignored_segments = (self.headers.logs.len() - taken_count) as u64;
        self.log.bigs = self.headers.bigs;
        self.log
    }
}

/// A segment and all that follow it, as far as their headers show.
#[derive(Clone, Copy, Debug)]
struct Tree {
    /// The highest sequence number.
    youngest: u64,
    /// The highest log sequence number that a segment begins with.
    last_lsn: u64,
    /// Whether the segment follows another one.
    is_follower: bool,
}

fn trees_of(logs: &BTreeMap<u64, Segment>) -> BTreeMap<u64, Tree> {
    let tree_of = |segment: &Segment| Tree {
        youngest: segment.sequence,
        last_lsn: segment.base_lsn,
        is_follower: false,
    };
    let mut trees: BTreeMap<u64, Tree> =
        logs.values().map(|segment| (segment.offset, tree_of(segment))).collect();
    let mut order: Vec<&Segment> = logs.values().collect();
    // Followers have higher numbers, so each has its own result before it hands it on.
    order.sort_by_key(|segment| std::cmp::Reverse(segment.base_lsn));
    for segment in order {
        let follows = |previous: &&Segment| previous.link_before(segment).is_some();
        if let Some(previous) = logs.get(&segment.previous_offset).filter(follows) {
            let mine = trees.get_mut(&segment.offset).expect("every segment has a tree");
            mine.is_follower = true;
            let mine = *mine;
            let theirs = trees.get_mut(&previous.offset).expect("every segment has a tree");
            theirs.youngest = theirs.youngest.max(mine.youngest);
            theirs.last_lsn = theirs.last_lsn.max(mine.last_lsn);
        }
    }
    trees
}

/// Returns the segments that follow none, the one with the lowest log sequence number last; with
/// each the best of it and those before it, which are those not before it in the log.
fn roots_of(
    logs: &BTreeMap<u64, Segment>,
    trees: &BTreeMap<u64, Tree>,
    known: &BTreeSet<u64>,
) -> Vec<(Segment, Segment)> {
    let mut roots: Vec<Segment> =
        logs.values().filter(|segment| !trees[&segment.offset].is_follower).copied().collect();
    roots.sort_by_key(|segment| std::cmp::Reverse(segment.base_lsn));
    let mut best: Option<Segment> = None;
    let with_best = roots.into_iter().map(|segment| {
        let is_better =
            best.is_none_or(|best| rank(&segment, trees, known) > rank(&best, trees, known));
        let best = if is_better { *best.insert(segment) } else { best.unwrap_or(segment) };
        (segment, best)
    });
    with_best.collect()
}

/// Orders chains by how likely they are the log: the one that leads to the known end, otherwise
/// the one that was written last.
fn rank(segment: &Segment, trees: &BTreeMap<u64, Tree>, known: &BTreeSet<u64>) -> (bool, u64) {
    (known.contains(&segment.offset), trees[&segment.offset].youngest)
}

/// What is known to be missing.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// Ranges of log sequence numbers, ascending.
    pub(super) missing: Vec<Range<u64>>,
    /// Ranges of the file with damaged records, ascending by log sequence number.
    pub(super) damaged: Vec<Range<u64>>,
    /// Segments of the log of which nothing is there, at least.
    pub(super) segments: u64,
}

/// Returns what is missing in the log, which the live header says to end at `known_end`.
pub(super) fn losses(log: &Log, known_end: Option<KnownEnd>) -> Losses {
    let mut losses = Losses::default();
    let mut lsn = 0;
    let mut is_lost_before = false;
    for part in &log.parts {
        losses.missing.push(lsn..part.segment.base_lsn);
        let is_lost = part.is_rebuilt && part.scan.runs.is_empty();
        let has_gap = lsn < part.segment.base_lsn && !is_lost_before;
        losses.segments += u64::from(is_lost) + u64::from(has_gap);
        is_lost_before = is_lost;
        let mut at = part.segment.first();
        let rest = part.end..part.end;
        for run in part.scan.runs.iter().chain(std::iter::once(&rest)) {
            if at < run.start {
                losses.damaged.push(at..run.start);
                let (from, to) = (part.segment.lsn_at(at), part.segment.lsn_at(run.start));
                losses.missing.push(from..to);
            }
            at = run.end.max(at);
        }
        lsn = part.segment.lsn_at(at);
    }
    // The last link leads nowhere.
    let has_open_link = log.parts.last().is_some_and(|part| {
        part.scan.links.last().is_some_and(|link| link.offset + LINK_BYTES == part.end)
    });
    losses.segments += u64::from(has_open_link);
    if let Some(end) = known_end {
        let end_lsn = if end.is_certain { end.lsn } else { end.durable_lsn.min(end.lsn) };
        losses.missing.push(lsn..end_lsn);
    }
    losses.missing.retain(|range| range.start < range.end);
    losses
}
