//! `Deleted`: finds the deletes of another process since a moment, by the tombstones in the log.
//!
//! A writer digs [graves](crate::graves) in its own memory for the snapshots of its own process. A
//! handle in another process finds the same records in the log: whatever keeps the records of a
//! moment also keeps the log after it, and each tombstone names the record that it deletes.
//!
//! # Why nothing is missed
//!
//! A delete appends its tombstone, empties the slot, and publishes the commit, in this order. A
//! reader that finds an empty slot and then reads the log up to the last commit may miss the
//! tombstone of a change in progress, or of one in which the writer was killed. So it also reads
//! the bytes after the commit: the records of that change, all of which are complete before its
//! first slot is stored. It copies them and verifies their checksums; the first invalid one ends
//! the search.
//!
//! The tombstone of an uncommitted batch does no harm: the record that it names was the newest of
//! its key, and leads to the same version.

use std::collections::HashMap;

use super::Store;
use crate::error::Result;
use crate::format::{Addr, SegmentHeader, SegmentKind, u64_at};
use crate::log::append::LogPosition;
use crate::log::record::{Record, RecordHeader, RecordKind};
use crate::log::relocation::Relocation;
use crate::log::scan::{LogWalk, Trust, big_addr, link_target};
use crate::reader::UnfinishedRecord;
use crate::testing::mutant::{self, Mutant};

/// Bytes that are copied first to see whether they are a record: a tombstone, or the largest header.
const LOOK_BYTES: u64 = 40;

/// The records that were deleted since a moment, by the hash of their keys.
#[derive(Debug)]
pub(super) struct Deleted {
    /// Up to where the log was read.
    read_to: LogPosition,
    by_hash: HashMap<u64, Vec<Addr>>,
}

impl Deleted {
    /// Begins with nothing, at the moment when the log ended at `log_end`.
    pub(super) fn since(log_end: LogPosition) -> Self {
        Self { read_to: log_end, by_hash: HashMap::new() }
    }

    /// Returns the records with keys of this hash that were deleted, those of every slot that was found
    /// empty before this call among them. For a caller for whom the log is kept.
    pub(super) fn of(&mut self, store: &Store, hash: u64) -> Result<Vec<Addr>> {
        // Before the moment there was no log, hence no record.
        if self.read_to.segment_offset == 0 {
            return Ok(Vec::new());
        }
        self.read_commits(store)?;
        let mut found = self.by_hash.get(&hash).cloned().unwrap_or_default();
        if !mutant::is_made(Mutant::ReadsCommitsOnly) {
            look_behind(store, self.read_to, |record| {
                found.extend(tombstone(record).filter(|it| it.0 == hash).map(|it| it.1));
            })?;
        }
        Ok(found)
    }

    /// Reads the log up to the last commit.
    fn read_commits(&mut self, store: &Store) -> Result<()> {
        let region = &store.region;
        let (lsn, _) = region.live().committed();
        if lsn <= self.read_to.lsn {
            return Ok(());
        }
        region.see_size()?;
        let mut walk = LogWalk::from_position(&region.view, self.read_to, Trust::Published, lsn)?;
        while let Some(record) = walk.next_record()? {
            if let Some((hash, addr)) = tombstone(&record) {
                self.by_hash.entry(hash).or_default().push(addr);
            }
        }
        self.read_to = walk.position();
        Ok(())
    }
}

/// Returns the hash and the record that a tombstone names.
fn tombstone(record: &Record<'_>) -> Option<(u64, Addr)> {
    let is_tombstone = record.header.kind == RecordKind::Delete && record.header.value_bytes == 8;
    let prev = record.header.prev.filter(|_| is_tombstone)?;
    Some((u64_at(record.value(), 0), prev))
}

impl Store {
    /// Returns the records of the change that a killed process had appended behind `position`, where the log
    /// ended at the last commit, and not committed; also those of a batch that is not whole, whose slots are
    /// as before. The caller keeps writers out.
    pub(crate) fn unfinished_behind(&self, position: LogPosition) -> Result<Vec<UnfinishedRecord>> {
        let view = &self.region.view;
        let mut unfinished = Vec::new();
        look_behind(self, position, |record| {
            let prev = record.header.prev;
            if let Some((hash, addr)) = tombstone(record) {
                unfinished.push(UnfinishedRecord { hash, addr: None, prev: Some(addr) });
            }
            let stored = match record.header.kind {
                RecordKind::Put => Some(record.addr()),
                RecordKind::BigPut => big_addr(record),
                _ => None,
            };
            if let Some(addr) = stored
                && let Ok(pair) = view.pair(addr)
            {
                let hash = self.hash_of(pair.key);
                unfinished.push(UnfinishedRecord { hash, addr: Some(addr), prev });
            }
            if record.header.kind == RecordKind::Relocate
                && let Ok(relocation) = Relocation::decode(record)
            {
                // What is not whole has changed no slot.
                let _ = relocation.for_each_copy(view, |copy, from| {
                    let (hash, addr) = (self.hash_of(copy.key()), Some(copy.addr()));
                    unfinished.push(UnfinishedRecord { hash, addr, prev: Some(from.from) });
                });
            }
        })?;
        Ok(unfinished)
    }
}

/// Calls `visit` with the records behind `position`, where the log ended at a commit: those of later commits,
/// and of the change that is being made, if there is one. The caller has a pin from before that commit was
/// loaded, or one that keeps the log behind it.
pub(super) fn look_behind(
    store: &Store,
    position: LogPosition,
    mut visit: impl FnMut(&Record<'_>),
) -> Result<()> {
    let LogPosition { mut segment_offset, mut offset, .. } = position;
    if segment_offset == 0 {
        return Ok(());
    }
    let mut header = store.region.view.segment(segment_offset)?;
    loop {
        let end = segment_offset + header.segment_bytes;
        let Some(bytes) = copy_record(store, offset, end) else { return Ok(()) };
        let Ok(decoded) = RecordHeader::decode(&bytes, end - offset, offset) else { return Ok(()) };
        let record = Record { header: decoded, bytes: &bytes, offset };
        if record.verify(header.salt).is_err() {
            return Ok(());
        }
        visit(&record);
        offset += bytes.len() as u64;
        if decoded.kind == RecordKind::Link {
            let Ok((next, salt)) = link_target(&record) else { return Ok(()) };
            store.region.see_size()?;
            match store.region.view.segment(next) {
                Ok(found) if found.kind == SegmentKind::Log && found.salt == salt => {
                    (segment_offset, header) = (next, found);
                }
                _ => return Ok(()),
            }
            offset = segment_offset + SegmentHeader::BYTES;
        }
    }
}

/// Returns a copy of the record at `offset`, if there may be one that ends before `end`.
fn copy_record(store: &Store, offset: u64, end: u64) -> Option<Vec<u8>> {
    let storage = store.region.storage();
    let end = end.min(store.region.view.file_bytes());
    let room = end.checked_sub(offset).filter(|&room| room >= 8)?;
    let mut bytes = storage.read(offset, room.min(LOOK_BYTES));
    let header = RecordHeader::decode(&bytes, room, offset).ok()?;
    let record_bytes = header.record_bytes();
    if record_bytes > room {
        return None;
    }
    if record_bytes > bytes.len() as u64 {
        bytes = storage.read(offset, record_bytes);
    }
    bytes.truncate(record_bytes as usize);
    Some(bytes)
}
