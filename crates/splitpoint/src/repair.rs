//! Save what a damaged file still holds into a new store.
//!
//! ```text
//! granules --search--> headers of segments --order--> the log --verify--> its valid records
//!                                                                               | newest of each key
//!                                                                             new store
//! ```
//!
//! Nothing in the file is needed but records and something that leads to them: a superblock, the
//! header of a segment or the link to it. The index and the live header are not read for content.
//!
//! # Invariants
//!
//! - The damaged file is never written.
//! - A value that is saved was stored under its key: every record that is used is valid under the
//!   salt of its segment, at its place.
//! - Records that an earlier recovery dropped do not come back, as far as the file tells, and
//!   neither do those of a batch that was never committed.
//! - What could not be read is in the report: behind it may be newer values and deletes.

mod batches;
mod records;
mod segments;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::ops::{ControlFlow, Range};
use std::path::Path;

use crate::atomic::AtomicU64;
use crate::db::Db;
use crate::error::{Error, Result};
use crate::format::{
    Addr, FILE_BYTES_MAX, GRANULE_BYTES, HEADER_BYTES, LIVE_BYTES, LIVE_OFFSET, MAGIC,
    SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS, SegmentHeader, Superblock, SuperblockFault, VERSION,
    u64_at,
};
use crate::hash::{HashFunction, HashId, PROBE_KEY};
use crate::identify::identify;
use crate::live::{Live, WORD_COUNT};
use crate::log::record::{HEADER_BYTES_MAX, Record, RecordHeader, RecordKind, finish_crc};
use crate::options::{Create, Durability, Options};
use crate::storage::raw::{Emerging, RawFile, ReadAt};

use batches::Undone;
use records::{Tail, decode_at, records_of};
use segments::{Headers, KnownEnd, Log, Losses, Part, Segment, losses, order};

/// A range of a file whose bytes are damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedRange {
    /// Where it begins, in bytes from the start of the file.
    pub offset: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

impl fmt::Display for DamagedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at byte {}", self.bytes, self.offset)
    }
}

/// What a repair found, saved and could not save.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairReport {
    /// Size of the damaged file in bytes.
    pub file_bytes: u64,
    /// Keys in the new store.
    pub key_count: u64,
    /// Valid records that were read, links and deletes included.
    pub record_count: u64,
    /// Their size in bytes.
    pub record_bytes: u64,
    /// Superblocks that are valid, of two; a store that was never changed has one.
    pub superblock_count: u32,
    /// Whether the log ends as a writer leaves it, and not in damage; there may be damage before.
    pub is_tail_found: bool,
    /// Whether the live header agrees that the log ends there. Where it is damaged too, a log whose
    /// last sectors are lost as zeros cannot be told from a whole one.
    pub is_end_known: bool,
    /// Log segments that records were read from.
    pub segment_count: u64,
    /// Log segments of which nothing is there, at least.
    pub lost_segment_count: u64,
    /// The first damaged ranges among the records, at most [`RepairReport::RANGES_MAX`].
    pub damaged: Vec<DamagedRange>,
    /// How many there are in all.
    pub damaged_count: u64,
    /// Bytes of the log that are known to be missing: damaged, overwritten or cut off.
    pub missing_bytes: u64,
    /// Big records that are named and damaged: their keys and values are lost.
    pub lost_big_count: u64,
    /// Big records that were saved although the records that name them are lost. Perhaps they were
    /// never part of the log.
    pub doubtful_count: u64,
    /// Records of batches that were saved although damage hides whether all of their batch was
    /// written: perhaps it was never committed, or some of its changes are lost.
    pub doubtful_batched_count: u64,
    /// Records of batches that were never committed: an error or a crash came before. They were not
    /// saved, as opening the store does not find them.
    pub uncommitted_count: u64,
    /// Deletes whose key is not known: so many keys may have come back.
    pub unknown_delete_count: u64,
    /// Segments with a valid header that are not part of the log: what an earlier recovery dropped,
    /// or what was never finished.
    pub ignored_segment_count: u64,
    /// Bytes of valid records that are not part of the log, for the same reasons.
    pub ignored_bytes: u64,
    /// Blocks of 4 KiB that the disk could not read.
    pub unreadable_count: u64,
    /// The name of the hash function of the damaged store, if the new one has another.
    pub replaced_hash: Option<String>,
}

impl RepairReport {
    /// Damaged ranges that a report lists; the rest are counted.
    pub const RANGES_MAX: usize = 1000;

    /// Returns whether nothing is known to be lost, so that the new store has exactly the content
    /// of the old one. Damage elsewhere, in superblocks, headers or index, has done no harm then.
    pub fn is_whole(&self) -> bool {
        self.is_tail_found
            && self.missing_bytes == 0
            && self.lost_segment_count == 0
            && self.lost_big_count == 0
            && self.doubtful_count == 0
            && self.doubtful_batched_count == 0
            && self.unknown_delete_count == 0
            && self.unreadable_count == 0
    }

    /// Returns an upper bound of the keys that may have come back after they were deleted, or have
    /// an older value than the last: one for each record that fits in what is missing.
    pub fn stale_max(&self) -> u64 {
        let at_least_each = self.lost_segment_count + self.lost_big_count;
        self.unknown_delete_count
            + self.doubtful_count
            + self.doubtful_batched_count
            + at_least_each
            + self.missing_bytes.div_ceil(RECORD_BYTES_MIN)
    }
}

/// Size in bytes of the smallest record: a key that is stored for the first time.
const RECORD_BYTES_MIN: u64 = 8;

/// How far a repair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairProgress {
    /// `search`, `verify` and `save`, one after the other.
    pub phase: &'static str,
    /// Records saved so far.
    pub records: u64,
    /// Bytes of the file that this phase is done with.
    pub bytes: u64,
    /// Size of the file in bytes.
    pub bytes_total: u64,
}

/// Saves what the store in the file at `source` still holds into a new store at `target`.
///
/// As [`repair_with`] with [`Options::new`] and nobody who watches.
///
/// # Errors
///
/// As [`repair_with`].
///
/// # Examples
///
/// ```
/// # fn main() -> splitpoint::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let (path, saved) = (dir.path().join("words.spt"), dir.path().join("saved.spt"));
/// let db = splitpoint::Db::open(&path)?;
/// db.put(b"key", b"value")?;
/// db.close()?;
/// // Both superblocks, the live header and the reader table.
/// let mut bytes = std::fs::read(&path).unwrap();
/// bytes[..16384].fill(0xff);
/// std::fs::write(&path, bytes).unwrap();
///
/// let report = splitpoint::repair(&path, &saved)?;
/// assert!(report.is_whole());
/// let db = splitpoint::Db::open(&saved)?;
/// assert_eq!(db.get(b"key")?.as_deref(), Some(&b"value"[..]));
/// # Ok(())
/// # }
/// ```
pub fn repair(source: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<RepairReport> {
    repair_with(source, target, &Options::new(), |_| ControlFlow::Continue(()))
}

/// Saves what the store in the file at `source` still holds into a new store at `target`: the
/// newest value of each key that can be read.
///
/// The damaged file is opened for reading only. The new store keeps the hash function, the seed
/// and the fill factor of the old one if a superblock still tells them; otherwise it takes those
/// of `options`, whose `cache_bytes` it has in any case. `watch` is told now and then how far the
/// work is, and can stop it.
///
/// # Errors
///
/// - [`ErrorKind::NotAStore`](crate::ErrorKind::NotAStore) if nothing in the file is of a store.
/// - [`ErrorKind::Version`](crate::ErrorKind::Version) or
///   [`Unsupported`](crate::ErrorKind::Unsupported) if a newer version wrote it.
/// - [`ErrorKind::Locked`](crate::ErrorKind::Locked) if a process has it open for writing.
/// - [`ErrorKind::Exists`](crate::ErrorKind::Exists) if there is a file at `target`.
/// - [`ErrorKind::Io`](crate::ErrorKind::Io) or [`Full`](crate::ErrorKind::Full) if the new store
///   cannot be written, and `Io` with [`Interrupted`](std::io::ErrorKind::Interrupted) if `watch`
///   stopped the work.
///
/// After an error there is no file at `target`. That the damaged file cannot be read in places is
/// not an error but in the report.
///
/// # Durability
///
/// The new store appears under its name, whole and synced, when all of it is written.
///
/// # Cost
///
/// Reads the file once and the segments of the log four times, five times if there are batches.
/// Takes, beside the cache of the new store, one bit of memory for each 8 bytes of the log, two where
/// there are batches, 24 bytes for each record of the largest batch, and as much as the largest
/// record.
pub fn repair_with(
    source: impl AsRef<Path>,
    target: impl AsRef<Path>,
    options: &Options,
    mut watch: impl FnMut(RepairProgress) -> ControlFlow<()>,
) -> Result<RepairReport> {
    let emerging = Emerging::new(target.as_ref())?;
    let source = RawFile::open(source.as_ref())?;
    let mut reader = Reader::new(&source, &mut watch);
    let found = find(&mut reader, options)?;
    let options = found.options(options).create(Create::New).durability(Durability::Buffered);
    let db = options.open(emerging.hidden())?;
    let report = found.save(&mut reader, &db)?;
    db.close()?;
    emerging.emerge()?;
    Ok(report)
}

/// As [`repair_with`], from any bytes into a table in memory.
#[cfg(any(test, feature = "sim"))]
pub(crate) fn repair_in_memory(
    source: &dyn ReadAt,
    options: &Options,
) -> Result<(Db, RepairReport)> {
    let mut watch = |_| ControlFlow::Continue(());
    let mut reader = Reader::new(source, &mut watch);
    let found = find(&mut reader, options)?;
    let db = found.options(options).in_memory()?;
    let report = found.save(&mut reader, &db)?;
    Ok((db, report))
}

/// The damaged file, and who wants to know how far the work is.
struct Reader<'a> {
    source: &'a dyn ReadAt,
    watch: &'a mut dyn FnMut(RepairProgress) -> ControlFlow<()>,
    /// Blocks that could not be read.
    unreadable: BTreeSet<u64>,
    verified_bytes: u64,
}

impl<'a> Reader<'a> {
    fn new(
        source: &'a dyn ReadAt,
        watch: &'a mut dyn FnMut(RepairProgress) -> ControlFlow<()>,
    ) -> Self {
        Self { source, watch, unreadable: BTreeSet::new(), verified_bytes: 0 }
    }

    fn file_bytes(&self) -> u64 {
        self.source.file_bytes().min(FILE_BYTES_MAX)
    }

    /// Reads `bytes` of the file, all inside it, into `buf`. What the disk cannot read is zero.
    fn read(&mut self, offset: u64, bytes: u64, buf: &mut Vec<u8>) {
        buf.clear();
        buf.resize(bytes as usize, 0);
        if bytes == 0 || self.source.read_exact_at(offset, buf).is_ok() {
            return;
        }
        let mut at = offset;
        while at < offset + bytes {
            let end = (at / GRANULE_BYTES * GRANULE_BYTES + GRANULE_BYTES).min(offset + bytes);
            let block = &mut buf[(at - offset) as usize..(end - offset) as usize];
            if self.source.read_exact_at(at, block).is_err() {
                block.fill(0);
                self.unreadable.insert(at / GRANULE_BYTES);
            }
            at = end;
        }
    }

    /// Tells how far the work is.
    fn advance(&mut self, phase: &'static str, records: u64, bytes: u64) -> Result<()> {
        let bytes_total = self.file_bytes();
        let bytes = bytes.min(bytes_total);
        match (self.watch)(RepairProgress { phase, records, bytes, bytes_total }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Io {
                action: "finish the repair of",
                path: self.source.path().to_path_buf(),
                source: std::io::ErrorKind::Interrupted.into(),
            }),
        }
    }
}

/// What was found in a damaged file, before anything is saved.
struct Found {
    superblock: Option<Superblock>,
    /// The hash function of the store, if it is known.
    hash: Option<HashFunction>,
    log: Log,
    losses: Losses,
    bigs: Bigs,
    report: RepairReport,
}

/// Reads the file up to the point where it is known which records to save.
fn find(reader: &mut Reader<'_>, options: &Options) -> Result<Found> {
    let (superblock, superblock_count, has_magic) = read_superblocks(reader)?;
    let known_end = read_end(reader, superblock.as_ref());
    let headers = Headers::find(reader)?;
    if superblock.is_none() && !has_magic && headers.is_empty() {
        let (mut head, file_bytes) = (Vec::new(), reader.file_bytes());
        reader.read(0, HEADER_BYTES.min(file_bytes), &mut head);
        let path = reader.source.path().to_path_buf();
        return Err(Error::NotAStore { path, found: identify(&head, file_bytes) });
    }
    let start = superblock.as_ref().map(|superblock| superblock.log_start);
    let mut log = order(reader, headers, start, known_end)?;
    let mut losses = losses(&log, known_end);
    let is_known_empty = start.is_some_and(|start| start.segment_offset == 0);
    if log.parts.is_empty() && !is_known_empty {
        losses.segments += 1;
    }
    let is_tail_found = log.has_tail || log.parts.is_empty() && is_known_empty;
    // The end that was published; what a process was about to publish may lie behind it.
    let is_reached = |end: KnownEnd| log.end_lsn() >= end.lsn;
    let is_end_known = is_tail_found && known_end.is_some_and(is_reached);
    let is_end_sure = is_end_known || log.ends_in_a_sector() && known_end.is_none();
    let undone = batches::decide(reader, &mut log, is_end_sure)?;
    let Undone { uncommitted_count, doubtful_count: doubtful_batched_count } = undone;
    let bigs = Bigs::find(reader, &log, &losses)?;
    let mut report = RepairReport {
        file_bytes: reader.file_bytes(),
        superblock_count,
        is_tail_found,
        is_end_known,
        segment_count: log.parts.iter().filter(|part| !part.scan.runs.is_empty()).count() as u64,
        lost_segment_count: losses.segments,
        missing_bytes: losses.missing.iter().map(|range| range.end - range.start).sum(),
        lost_big_count: bigs.lost_count,
        doubtful_count: bigs.doubtful.len() as u64,
        doubtful_batched_count,
        uncommitted_count,
        ignored_segment_count: log.ignored_segments,
        ignored_bytes: log.ignored_bytes,
        record_bytes: log.record_bytes() + bigs.record_bytes,
        ..RepairReport::default()
    };
    for range in &losses.damaged {
        report.note(range.start, range.end - range.start);
    }
    let hash = superblock.as_ref().and_then(|superblock| hash_of_store(superblock, options));
    Ok(Found { superblock, hash, log, losses, bigs, report })
}

impl RepairReport {
    fn note(&mut self, offset: u64, bytes: u64) {
        self.damaged_count += 1;
        if self.damaged.len() < Self::RANGES_MAX {
            self.damaged.push(DamagedRange { offset, bytes });
        }
    }
}

/// Returns the newest valid superblock, how many there are, and whether either has its magic.
fn read_superblocks(reader: &mut Reader<'_>) -> Result<(Option<Superblock>, u32, bool)> {
    let mut newest: Option<Superblock> = None;
    let (mut count, mut has_magic) = (0, false);
    let mut block = Vec::new();
    for offset in SUPERBLOCK_OFFSETS {
        let here = reader.file_bytes().saturating_sub(offset).min(SUPERBLOCK_BYTES);
        reader.read(offset, here, &mut block);
        has_magic |= block.starts_with(&MAGIC);
        block.resize(SUPERBLOCK_BYTES as usize, 0);
        let path = || reader.source.path().to_path_buf();
        match Superblock::decode(&block) {
            Ok(superblock) => {
                count += 1;
                let is_newer = |newest: &Superblock| superblock.generation >= newest.generation;
                if newest.as_ref().is_none_or(is_newer) {
                    newest = Some(superblock);
                }
            }
            // What a record means in it is not known.
            Err(SuperblockFault::Version(found)) => {
                return Err(Error::Version { path: path(), expected: VERSION, found });
            }
            Err(SuperblockFault::Features(_)) => {
                let reason = "a newer version wrote it, with features that this one lacks";
                return Err(Error::Unsupported { path: path(), reason: reason.to_string() });
            }
            Err(SuperblockFault::Magic | SuperblockFault::Field { .. }) => {}
        }
    }
    Ok((newest, count, has_magic))
}

/// Returns where the live header says that the log ends, if it can be one.
fn read_end(reader: &mut Reader<'_>, superblock: Option<&Superblock>) -> Option<KnownEnd> {
    if reader.file_bytes() < LIVE_OFFSET + LIVE_BYTES {
        return None;
    }
    let mut block = Vec::new();
    reader.read(LIVE_OFFSET, LIVE_BYTES, &mut block);
    let words: [AtomicU64; WORD_COUNT] =
        std::array::from_fn(|word| AtomicU64::new(u64_at(&block, word * 8)));
    let live = Live(&words);
    // The file may be cut: what lay behind its end does not make the header wrong.
    live.validate(FILE_BYTES_MAX).ok()?;
    let (lsn, state) = live.committed();
    let is_certain = superblock.is_some_and(|block| block.is_clean && block.live_crc == live.crc());
    Some(KnownEnd {
        segment_offset: state.tail_segment,
        offset: state.tail_offset,
        lsn,
        durable_lsn: live.durable_lsn(),
        is_certain,
    })
}

/// The big records of a log.
#[derive(Debug, Default)]
struct Bigs {
    /// Valid ones by offset of the segment, those in doubt included.
    valid: HashMap<u64, Segment>,
    /// Those whose naming records are lost, by log sequence number.
    doubtful: BTreeMap<u64, Segment>,
    lost_count: u64,
    record_bytes: u64,
}

impl Bigs {
    /// Verifies the big records that the log names, and those that it may have named where it is
    /// damaged.
    fn find(reader: &mut Reader<'_>, log: &Log, losses: &Losses) -> Result<Self> {
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
        let Some((offset, segment_bytes)) = big_target(naming) else { return false };
        let Some(&segment) = log.bigs.get(&offset) else { return false };
        let is_meant = segment.bytes == segment_bytes
            && segment.base_lsn == part.segment.lsn_at(naming.offset);
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

/// Returns offset and size of the segment that a BIGPUT record names.
fn big_target(naming: &Record<'_>) -> Option<(u64, u64)> {
    let value = naming.value();
    (value.len() == 16).then(|| (u64_at(value, 0), u64_at(value, 8)))
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
fn verify_big(reader: &mut Reader<'_>, segment: &Segment) -> Option<RecordHeader> {
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
        payload = crc32c::crc32c_append(payload, &chunk);
        at += bytes;
    }
    let expected = finish_crc(payload, 0, &head, segment.salt, first);
    let is_valid = expected == crate::format::u32_at(&head, 0) && header.kind == RecordKind::Big;
    reader.verified_bytes += record_bytes;
    is_valid.then_some(header)
}

/// Returns the header of the record in a big segment and its size in bytes, all inside the file.
fn big_header(reader: &mut Reader<'_>, segment: &Segment) -> Option<(RecordHeader, u64)> {
    let end = segment.end().min(reader.file_bytes());
    let room = end.checked_sub(segment.first())?;
    let mut head = Vec::new();
    reader.read(segment.first(), room.min(HEADER_BYTES_MAX as u64), &mut head);
    let header = RecordHeader::decode(&head, room, segment.first()).ok()?;
    Some((header, header.record_bytes()))
}

impl Log {
    /// Returns the log sequence number after the last record.
    fn end_lsn(&self) -> u64 {
        self.parts.last().map_or(0, |part| part.segment.lsn_at(part.scan.end(&part.segment)))
    }

    /// Returns whether the log ends where nothing but a writer stops.
    fn ends_in_a_sector(&self) -> bool {
        self.has_tail && self.parts.last().is_some_and(|part| part.scan.tail == Tail::Yes)
    }

    /// Returns the size of the valid records in log segments, in bytes.
    fn record_bytes(&self) -> u64 {
        let runs = self.parts.iter().flat_map(|part| &part.scan.runs);
        runs.map(|run| run.end - run.start).sum()
    }

    /// Returns the part and the run of valid records that `offset` is in.
    fn run_at<'a>(
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
    fn each_record(
        &self,
        reader: &mut Reader<'_>,
        mut visit: impl FnMut(&mut Reader<'_>, &Record<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut bytes = Vec::new();
        if self.scan.runs.is_empty() {
            return Ok(());
        }
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

impl Found {
    /// Returns the options of the new store.
    fn options(&self, options: &Options) -> Options {
        let mut options = options.clone();
        if let Some(superblock) = &self.superblock {
            options = options.fill_factor(f64::from(superblock.fill_thousandths) / 1000.0);
            if let Some(hash) = &self.hash {
                options = options.hash(hash.clone()).seed(superblock.seed);
            }
        }
        options
    }

    /// Stores the newest value of each key in `db`, which is empty.
    fn save(mut self, reader: &mut Reader<'_>, db: &Db) -> Result<RepairReport> {
        let mut survey = Survey::new(&self);
        for part in &self.log.parts {
            part.each_record(reader, |reader, record| {
                survey.add(reader, part, record);
                Ok(())
            })?;
        }
        for (&lsn, segment) in &self.bigs.doubtful {
            if let Some((header, _)) = big_header(reader, segment) {
                survey.replace(header.prev, lsn);
            }
        }
        let (record_count, unknown) = (survey.record_count, survey.unknown_deletes);
        let saver = Saver { found: &self, survey, db, record_count: 0, saved_bytes: 0 };
        saver.save_all(reader)?;
        if let (Some(superblock), None) = (&self.superblock, &self.hash) {
            self.report.replaced_hash = Some(superblock.hash_name.clone());
        }
        self.report.record_count = record_count + self.report.uncommitted_count;
        self.report.unknown_delete_count = unknown;
        self.report.key_count = db.len();
        self.report.unreadable_count = reader.unreadable.len() as u64;
        Ok(self.report)
    }
}

/// Returns the hash function that a superblock names, given or one of this library.
fn hash_of_store(superblock: &Superblock, options: &Options) -> Option<HashFunction> {
    let known = HashFunction::by_id(HashId(superblock.hash_id));
    options.hash.clone().into_iter().chain(known).find(|hash| {
        hash.id().0 == superblock.hash_id
            && hash.hash(PROBE_KEY, superblock.seed) == superblock.probe_hash
    })
}

/// Returns the hash function and the seed of the store if equal hashes mean equal keys: functions
/// of the user and those of 32 bits may give many keys the same hash.
fn wide_hash(found: &Found) -> Option<(&HashFunction, u64)> {
    const WIDE: [HashId; 4] =
        [HashId::RAPIDHASH_V3, HashId::XXH3_64, HashId::SIPHASH_1_3, HashId::FNV1A_64];
    let hash = found.hash.as_ref().filter(|hash| WIDE.contains(&hash.id()))?;
    Some((hash, found.superblock.as_ref()?.seed))
}

/// One bit for each 8 bytes of a log segment.
#[derive(Clone, Debug)]
struct Marks {
    offset: u64,
    words: Vec<u64>,
}

impl Marks {
    fn new(segment: &Segment) -> Self {
        let word_count = (segment.bytes / 8).div_ceil(64) as usize;
        Self { offset: segment.offset, words: vec![0; word_count] }
    }

    /// Sets or clears the mark of the record at `offset`; returns whether that changed it.
    fn set(&mut self, offset: u64, is_marked: bool) -> bool {
        let bit = (offset - self.offset) / 8;
        let before = self.has(offset);
        let word = &mut self.words[(bit / 64) as usize];
        *word = if is_marked { *word | 1 << (bit % 64) } else { *word & !(1 << (bit % 64)) };
        before != is_marked
    }

    fn has(&self, offset: u64) -> bool {
        let bit = (offset - self.offset) / 8;
        self.words[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }
}

/// A first pass over the valid records: which were replaced or deleted.
struct Survey<'a> {
    log: &'a Log,
    bigs: &'a Bigs,
    by_offset: BTreeMap<u64, usize>,
    /// Records that were replaced or deleted, by segment.
    replaced: HashMap<u64, Marks>,
    replaced_bigs: HashSet<u64>,
    /// Whether all of the log is there, so that who replaces whom is known without keys.
    is_whole: bool,
    /// The hash function and its seed, if a hash tells which key was deleted.
    wide_hash: Option<(&'a HashFunction, u64)>,
    /// Deletes of records that are lost: the last log sequence number for each hash.
    deleted_hashes: HashMap<u64, u64>,
    unknown_deletes: u64,
    record_count: u64,
}

impl<'a> Survey<'a> {
    fn new(found: &'a Found) -> Self {
        let parts = found.log.parts.iter().enumerate();
        Self {
            log: &found.log,
            bigs: &found.bigs,
            by_offset: parts.map(|(i, part)| (part.segment.offset, i)).collect(),
            replaced: HashMap::new(),
            replaced_bigs: HashSet::new(),
            is_whole: found.losses.missing.is_empty()
                && found.bigs.lost_count == 0
                && found.losses.segments == 0,
            wide_hash: wide_hash(found),
            deleted_hashes: HashMap::new(),
            unknown_deletes: 0,
            record_count: 0,
        }
    }

    fn add(&mut self, reader: &mut Reader<'_>, part: &Part, record: &Record<'_>) {
        self.record_count += 1;
        let lsn = part.segment.lsn_at(record.offset);
        match record.header.kind {
            RecordKind::Put | RecordKind::BigPut => {
                self.replace(record.header.prev, lsn);
            }
            RecordKind::Delete => {
                // A record is deleted once; in a file made to harm not even its key is read twice.
                let is_first = self.replace(record.header.prev, lsn);
                let is_known =
                    self.is_whole || is_first && self.key_of_deleted(reader, record).is_some();
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

    /// Notes that the record at `prev` is not the newest of its key: one at `lsn` replaces it.
    /// Returns whether there is such a record and it was not noted before.
    fn replace(&mut self, prev: Option<Addr>, lsn: u64) -> bool {
        let Some(offset) = prev.map(Addr::offset) else { return false };
        if let Some((part, _)) = self.log.run_at(offset, &self.by_offset) {
            let segment = &part.segment;
            if segment.lsn_at(offset) < lsn {
                let marks = self.replaced.entry(segment.offset);
                return marks.or_insert_with(|| Marks::new(segment)).set(offset, true);
            }
        } else if let Some(segment) = self.big_at(offset)
            && segment.base_lsn < lsn
        {
            return self.replaced_bigs.insert(segment.offset);
        }
        false
    }

    /// Takes the note back that the record at `prev` was replaced; returns whether there was one.
    fn unmark(&mut self, prev: Option<Addr>) -> bool {
        let Some(offset) = prev.map(Addr::offset) else { return false };
        if let Some((part, _)) = self.log.run_at(offset, &self.by_offset) {
            let marks = self.replaced.get_mut(&part.segment.offset);
            return marks.is_some_and(|marks| marks.set(offset, false));
        }
        let segment = offset.checked_sub(SegmentHeader::BYTES);
        segment.is_some_and(|segment| self.replaced_bigs.remove(&segment))
    }

    fn big_at(&self, offset: u64) -> Option<&'a Segment> {
        self.bigs.valid.get(&offset.checked_sub(SegmentHeader::BYTES)?)
    }

    fn is_replaced(&self, segment: &Segment, offset: u64) -> bool {
        self.replaced.get(&segment.offset).is_some_and(|marks| marks.has(offset))
    }

    /// Returns whether a delete that tells only the hash of its key comes after `lsn`.
    fn is_deleted_later(&self, key: &[u8], lsn: u64) -> bool {
        let Some((hash, seed)) = self.wide_hash.filter(|_| !self.deleted_hashes.is_empty()) else {
            return false;
        };
        self.deleted_hashes.get(&hash.hash(key, seed)).is_some_and(|&at| lsn < at)
    }

    /// Returns the key of the record that `record` deletes, if it can be read.
    fn key_of_deleted(&self, reader: &mut Reader<'_>, record: &Record<'_>) -> Option<Vec<u8>> {
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

/// A key and its value, out of a big segment.
struct OwnedPair {
    key: Vec<u8>,
    value: Vec<u8>,
}

/// Reads the key of the record in a big segment that has been verified.
fn read_big_key(reader: &mut Reader<'_>, segment: &Segment) -> Option<Vec<u8>> {
    let (header, _) = big_header(reader, segment)?;
    let mut key = Vec::new();
    reader.read(segment.first() + header.header_bytes(), header.key_bytes, &mut key);
    Some(key)
}

/// Reads the record of a big segment that has been verified.
fn read_big(reader: &mut Reader<'_>, segment: &Segment) -> Option<OwnedPair> {
    let (header, _) = big_header(reader, segment)?;
    let value_offset = segment.first() + header.header_bytes() + header.key_bytes;
    let mut value = Vec::new();
    reader.read(value_offset, header.value_bytes, &mut value);
    Some(OwnedPair { key: read_big_key(reader, segment)?, value })
}

/// The pass that stores what is to be kept.
struct Saver<'a> {
    found: &'a Found,
    survey: Survey<'a>,
    db: &'a Db,
    record_count: u64,
    saved_bytes: u64,
}

impl Saver<'_> {
    fn save_all(mut self, reader: &mut Reader<'_>) -> Result<()> {
        let found = self.found;
        let mut doubtful = found.bigs.doubtful.iter().peekable();
        for part in &found.log.parts {
            part.each_record(reader, |reader, record| {
                let lsn = part.segment.lsn_at(record.offset);
                while let Some((&lsn, segment)) = doubtful.next_if(|(at, _)| **at < lsn) {
                    self.save_big(reader, segment, lsn)?;
                }
                self.apply(reader, part, record, lsn)
            })?;
            reader.advance("save", self.record_count, self.saved_bytes)?;
        }
        for (&lsn, segment) in doubtful {
            self.save_big(reader, segment, lsn)?;
        }
        Ok(())
    }

    fn apply(
        &mut self,
        reader: &mut Reader<'_>,
        part: &Part,
        record: &Record<'_>,
        lsn: u64,
    ) -> Result<()> {
        self.saved_bytes += record.bytes.len() as u64;
        match record.header.kind {
            RecordKind::Put if !self.survey.is_replaced(&part.segment, record.offset) => {
                self.put(record.key(), record.value(), lsn)
            }
            RecordKind::BigPut => {
                let target = big_target(record).map(|(offset, _)| offset);
                let valid = target.and_then(|offset| self.found.bigs.valid.get(&offset));
                // Its number tells whether it is this record that names it.
                match valid.filter(|segment| segment.base_lsn == lsn) {
                    Some(segment) => self.save_big(reader, segment, lsn),
                    None => Ok(()),
                }
            }
            // An older version of the key may have been stored, since the one that replaced it
            // is lost.
            RecordKind::Delete
                if !self.survey.is_whole && self.survey.unmark(record.header.prev) =>
            {
                match self.survey.key_of_deleted(reader, record) {
                    Some(key) => self.db.delete(&key).map(drop),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn save_big(&mut self, reader: &mut Reader<'_>, segment: &Segment, lsn: u64) -> Result<()> {
        self.saved_bytes += segment.bytes;
        if self.survey.replaced_bigs.contains(&segment.offset) {
            return Ok(());
        }
        let Some(pair) = read_big(reader, segment) else { return Ok(()) };
        self.put(&pair.key, &pair.value, lsn)
    }

    fn put(&mut self, key: &[u8], value: &[u8], lsn: u64) -> Result<()> {
        if self.survey.is_deleted_later(key, lsn) {
            return Ok(());
        }
        self.record_count += 1;
        self.db.put(key, value)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::SimDisk;

    /// A file with blocks that the disk cannot read.
    #[derive(Debug)]
    struct Failing {
        bytes: Vec<u8>,
        unreadable: Range<u64>,
    }

    impl ReadAt for Failing {
        fn path(&self) -> &Path {
            self.bytes.path()
        }

        fn file_bytes(&self) -> u64 {
            self.bytes.file_bytes()
        }

        fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
            let end = offset + buf.len() as u64;
            if offset < self.unreadable.end && self.unreadable.start < end {
                return Err(std::io::Error::from_raw_os_error(5));
            }
            self.bytes.read_exact_at(offset, buf)
        }
    }

    #[test]
    fn a_block_that_cannot_be_read_costs_what_is_in_it() {
        let disk = SimDisk::new();
        let db = disk.open(&Options::new()).unwrap();
        for i in 0..500_u32 {
            db.put(&i.to_le_bytes(), &[7; 92]).unwrap();
        }
        db.close().unwrap();
        let unreadable = 65_536 + 8192..65_536 + 12_288;
        let source = Failing { bytes: disk.file(), unreadable };
        let (db, report) = repair_in_memory(&source, &Options::new()).unwrap();
        // Records of 104 bytes: 4096 bytes are at least a part of 40 and at most of 41.
        assert!((500 - 41..=500 - 40).contains(&db.len()), "{report:?}");
        assert_eq!((report.unreadable_count, report.damaged_count), (1, 1), "{report:?}");
        assert!(!report.is_whole() && report.is_end_known, "{report:?}");
    }

    #[test]
    fn a_mark_is_set_and_cleared_once() {
        let segment = Segment {
            offset: 65_536,
            bytes: 4096,
            base_lsn: 0,
            sequence: 1,
            previous_offset: 0,
            salt: 0,
        };
        let mut marks = Marks::new(&segment);
        for offset in [65_536, 65_600, 65_536 + 4088] {
            assert!(!marks.has(offset));
            assert!(marks.set(offset, true) && !marks.set(offset, true));
            assert!(marks.has(offset));
            assert!(marks.set(offset, false) && !marks.set(offset, false));
            assert!(!marks.has(offset));
        }
    }
}
