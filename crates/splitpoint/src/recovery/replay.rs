//! Build the index again: from a checkpoint, if there is one, and the log after it.
//!
//! 1. *Survey*: the log is read to its end and every checksum verified. Nothing is written.
//! 2. *Load*: the slots of the checkpoint are put into an empty table that has the final size.
//! 3. *Apply*: what the log did after the checkpoint is done again.
//!
//! Memory is bounded by [`CHANGES_MAX`], and by the largest batch: what does not fit is read
//! again.

use std::sync::atomic::Ordering;

use super::{Opened, Opening, set_geometry};
use crate::canary::{self, Canary};
use crate::checkpoint::{Image, extent_of};
use crate::error::{Error, Result};
use crate::format::{
    Addr, CheckpointName, GRANULE_BYTES, HEADER_BYTES, LogStart, SegmentHeader, SegmentKind, u64_at,
};
use crate::index::Lines;
use crate::index::line::{LINE_BYTES, Line, SLOT_COUNT};
use crate::index::lookup::{locate_addr, locate_end};
use crate::index::overflow::LinePool;
use crate::index::shape::Shape;
use crate::index::slot::{Slot, Tag};
use crate::index::split::insert;
use crate::linear::{BucketIndex, Geometry};
use crate::live::{CommitState, LineWindow};
use crate::log::append::Position;
use crate::log::batch::Batches;
use crate::log::record::{Record, RecordKind};
use crate::log::scan::{LogWalk, Trust, big_record_unverified, expect_value_bytes};
use crate::options::{Access, OnRecovery, RecoveryProgress};
use crate::region::{LivePool, Region};
use crate::space::{Extent, Space};
use crate::stats::Recovery;
use crate::store::{Mark, Store, TOMBSTONE_BYTES};

/// Changes that are held in memory at a time, of 24 bytes each.
const CHANGES_MAX: usize = 1 << 21;
/// Changes, and records that they replace, that are asked for ahead.
const READ_AHEAD: usize = 32;
/// Size in bytes from which an index is worth a thread that makes its pages.
const POPULATE_BYTES_MIN: u64 = 16 << 20;
/// How often progress is told, in bytes.
const PROGRESS_BYTES: u64 = 4 << 20;

/// What a record does to the index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    hash: u64,
    /// The record that the slot names from now on, 0 for a delete.
    addr: Addr,
    /// The record that it named before, 0 for none.
    prev: Addr,
}

/// No record: none is at the beginning of the file.
const NONE: Addr = Addr(0);

/// What a record does to the index and to the counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effect {
    pub(super) change: Change,
    record_bytes: u64,
}

/// What records have done to the counts.
#[derive(Debug, Default)]
pub(super) struct Tally {
    inserted_count: u64,
    deleted_count: u64,
    added_bytes: u64,
    tombstone_bytes: u64,
    replaced_bytes: u64,
    /// Records that were replaced, whose sizes are not known yet.
    replaced: Vec<Addr>,
}

impl Tally {
    pub(super) fn add(&mut self, region: &Region, effect: &Effect) {
        let Effect { change: Change { addr, prev, .. }, record_bytes } = *effect;
        if addr == NONE {
            self.deleted_count += 1;
            self.tombstone_bytes += TOMBSTONE_BYTES;
        } else if prev == NONE {
            self.inserted_count += 1;
        }
        self.added_bytes += record_bytes;
        if prev == NONE {
            return;
        }
        region.prefetch_record(prev);
        self.replaced.push(prev);
        if self.replaced.len() == READ_AHEAD {
            self.add_replaced(region);
        }
    }

    fn add_replaced(&mut self, region: &Region) {
        for addr in self.replaced.drain(..) {
            // Damage to what is dead matters to nobody but these counts.
            let record = region.record(addr);
            self.replaced_bytes += record.map_or(0, |record| record.bytes.len() as u64);
        }
    }

    /// Returns what the counts are after all that, when they were `before`.
    pub(super) fn after(mut self, region: &Region, before: CommitState) -> CommitState {
        self.add_replaced(region);
        CommitState {
            record_count: (before.record_count + self.inserted_count)
                .saturating_sub(self.deleted_count),
            live_bytes: (before.live_bytes + self.added_bytes).saturating_sub(self.replaced_bytes),
            dead_bytes: before.dead_bytes + self.replaced_bytes + self.tombstone_bytes,
            ..before
        }
    }
}

/// An index that has been built, and where its log ends.
#[derive(Debug)]
struct Rebuilt {
    end: Position,
    state: CommitState,
    space: Space,
    recovery: Recovery,
}

/// What replay begins with, and what the log after it says.
#[derive(Debug)]
struct Base {
    image: Option<Image>,
    survey: Survey,
}

/// What a pass over the log finds: where it ends, what it uses, what it does.
#[derive(Debug, Default)]
struct Survey {
    end: Position,
    used: Vec<Extent>,
    records: u64,
    tally: Tally,
    log_bytes: u64,
    big_bytes: u64,
    next_sequence: u64,
    dropped_bytes: u64,
    /// The first changes, and where the others begin.
    changes: Vec<Change>,
    rest: Option<Position>,
}

impl Survey {
    fn add_segment(&mut self, offset: u64, header: &SegmentHeader) {
        let count = header.segment_bytes / GRANULE_BYTES;
        self.used.push(Extent { granule: offset / GRANULE_BYTES, count });
        match header.kind {
            SegmentKind::Big => self.big_bytes += header.segment_bytes,
            _ => self.log_bytes += header.segment_bytes,
        }
        self.next_sequence = self.next_sequence.max(header.sequence + 1);
    }

    fn space(&self) -> Space {
        Space::complement(HEADER_BYTES / GRANULE_BYTES, self.used.clone())
    }
}

impl Opening {
    /// Builds the index again, whatever the live tables say: from the checkpoint and the log after
    /// it, or from the whole log where there is no checkpoint or it is damaged.
    pub(super) fn replay(mut self, region: Region, is_log_alone: bool) -> Result<Opened> {
        let has_failed_sync = region.live().has_failed_sync();
        let name = self.superblock.checkpoint.filter(|_| !is_log_alone && !has_failed_sync);
        // Nothing has been written yet, and a private index is made without the file.
        let base = name.and_then(|name| self.survey_checkpoint(&region, name).ok());
        let region = match self.access {
            Access::ReadWrite => {
                if has_failed_sync {
                    // So that the next sync writes it.
                    for used in &self.survey_log(&region)?.survey.used {
                        let (offset, bytes) = (used.granule, used.count);
                        region.write_again(offset * GRANULE_BYTES, bytes * GRANULE_BYTES)?;
                    }
                }
                // The log alone counts until the index is whole. A superblock that says so already
                // need not be durable: who wrote it may have been killed, or its sync has failed.
                region.write_superblock(&mut self.superblock, false)?;
                region
            }
            Access::ReadOnly => region.into_private()?,
        };
        if let Some(base) = base {
            match self.rebuild(&region, base) {
                // What is wrong with a checkpoint does not matter to the log.
                Err(Error::Corrupt { .. }) => {}
                rebuilt => {
                    let rebuilt = rebuilt?;
                    return self.go_on(region, rebuilt);
                }
            }
        }
        let base = self.survey_log(&region)?;
        if self.superblock.checkpoint.take().is_some() && self.access == Access::ReadWrite {
            // Its segment is about to be used for something else.
            region.write_superblock(&mut self.superblock, false)?;
        }
        let rebuilt = self.rebuild(&region, base)?;
        self.go_on(region, rebuilt)
    }

    /// Reads the log from the commit of a checkpoint on.
    fn survey_checkpoint(&self, region: &Region, name: CheckpointName) -> Result<Base> {
        let image = Image::open(region, name)?;
        let state = &image.state;
        let start = state.replay_start;
        let mut survey = Survey {
            used: state.used.clone(),
            log_bytes: state.log_bytes,
            big_bytes: state.big_bytes,
            next_sequence: state.next_sequence,
            ..Survey::default()
        };
        survey.used.push(extent_of(name));
        // The log was durable that far: without it there is damage, and more of it before.
        let walk = LogWalk::new(region, start, Trust::Nothing, 0)?.ok_or(Error::Corrupt {
            what: "log start of the checkpoint",
            offset: name.offset,
            expected: start.record_offset,
            found: 0,
        })?;
        self.survey(region, walk, &mut survey)?;
        Ok(Base { image: Some(image), survey })
    }

    /// Reads the whole log.
    fn survey_log(&self, region: &Region) -> Result<Base> {
        let mut survey = Survey { next_sequence: 1, ..Survey::default() };
        let start = self.superblock.log_start;
        if let Some(walk) = LogWalk::new(region, start, Trust::Nothing, 0)? {
            survey.add_segment(walk.position().segment_offset, walk.header());
            self.survey(region, walk, &mut survey)?;
        }
        Ok(Base { image: None, survey })
    }

    fn survey(&self, region: &Region, mut walk: LogWalk<'_>, survey: &mut Survey) -> Result<()> {
        let start_lsn = walk.position().lsn;
        let mut told_lsn = start_lsn;
        let mut batches = Batches::default();
        loop {
            let position = walk.position();
            if survey.changes.len() >= CHANGES_MAX && batches.is_empty() {
                survey.rest.get_or_insert(position);
            }
            if position.lsn - told_lsn >= PROGRESS_BYTES {
                told_lsn = position.lsn;
                self.tell(RecoveryProgress::ReadLog { bytes: position.lsn - start_lsn });
            }
            let Some(record) = walk.next_record()? else { break };
            survey.records += 1;
            match record.header.kind {
                RecordKind::Link => {
                    survey.add_segment(walk.position().segment_offset, walk.header());
                }
                RecordKind::BigPut => {
                    let offset = u64_at(record.value(), 0);
                    survey.add_segment(offset, &region.segment(offset)?);
                }
                _ => {}
            }
            let effect = self.effect_of(region, &record)?;
            let Survey { tally, changes, rest, .. } = &mut *survey;
            batches.add(&record, effect, |effect| {
                tally.add(region, &effect);
                if rest.is_none() {
                    changes.push(effect.change);
                }
            });
        }
        survey.end = walk.position();
        let segment_end = survey.end.segment_offset + walk.header().segment_bytes;
        let rest = region.storage().read(survey.end.offset, segment_end - survey.end.offset);
        let last = rest.iter().rposition(|&byte| byte != 0);
        survey.dropped_bytes = last.map_or(0, |last| last as u64 + 1);
        Ok(())
    }

    /// Collects the changes of the log from `rest` on, whose checksums have been verified; returns
    /// where those begin that did not fit.
    fn collect(
        &self,
        region: &Region,
        rest: Position,
        end: Position,
        changes: &mut Vec<Change>,
    ) -> Result<Option<Position>> {
        let mut walk = LogWalk::from_position(region, rest, Trust::Published, end.lsn)?;
        let mut batches = Batches::default();
        loop {
            if changes.len() >= CHANGES_MAX && batches.is_empty() {
                return Ok(Some(walk.position()));
            }
            let Some(record) = walk.next_record()? else { return Ok(None) };
            let effect = self.effect_of(region, &record)?;
            batches.add(&record, effect, |effect| changes.push(effect.change));
        }
    }

    /// Returns what a record does.
    #[inline]
    pub(super) fn effect_of(&self, region: &Region, record: &Record<'_>) -> Result<Option<Effect>> {
        let prev = record.header.prev;
        let (hash, addr, record_bytes) = match record.header.kind {
            RecordKind::Put => {
                (self.hash_of(record.key()), record.addr(), record.bytes.len() as u64)
            }
            RecordKind::BigPut => {
                let big = big_record_unverified(region, record)?;
                (self.hash_of(big.key()), big.addr(), big.bytes.len() as u64)
            }
            RecordKind::Delete => {
                expect_value_bytes(record, 8)?;
                if prev.is_none() {
                    return Err(no_prev(record));
                }
                (u64_at(record.value(), 0), NONE, 0)
            }
            _ => return Ok(None),
        };
        let prev = prev.unwrap_or(NONE);
        Ok(Some(Effect { change: Change { hash, addr, prev }, record_bytes }))
    }

    /// Builds the index: the image of the checkpoint, then what the log did after it.
    fn rebuild(&self, region: &Region, base: Base) -> Result<Rebuilt> {
        let Base { image, mut survey } = base;
        let live = region.live();
        live.clear_identity();
        live.initialize();
        if canary::is_made(Canary::WholeBeforeBuilt) {
            live.set_identity(region.storage().identity());
        }
        region.forget_pieces();
        let mut space = survey.space();
        live.set_space(&space);
        live.set_log_bytes(survey.log_bytes);
        live.set_big_bytes(survey.big_bytes);
        live.set_next_sequence(survey.next_sequence);
        let before = image.as_ref().map_or(CommitState::default(), |image| image.state.commit);
        let mut state = std::mem::take(&mut survey.tally).after(region, before);
        let geometry = Store::geometry_for(state.record_count, self.superblock.fill_thousandths);
        region.reserve_lines(LineWindow::Buckets, geometry.bucket_count(), &mut space)?;
        set_geometry(region, geometry);
        if let Some(image) = &image {
            live.set_checkpoint_extent(0, Some(extent_of(image.name())));
        }
        make_pages(region);
        if let Some(image) = &image {
            self.load_image(region, image, geometry, &mut space)?;
        }
        self.apply_log(region, &mut survey, &mut space)?;
        let end = survey.end;
        (state.tail_offset, state.tail_segment) = (end.offset, end.segment_offset);
        live.commit(end.lsn, &state);
        let recovery = Recovery::Replayed {
            checkpoint_keys: image.map_or(0, |image| image.state.commit.record_count),
            records: survey.records,
            dropped_bytes: survey.dropped_bytes,
        };
        Ok(Rebuilt { end, state, space, recovery })
    }

    /// Goes on behind the end of the log of a store whose index has been built.
    fn go_on(mut self, region: Region, rebuilt: Rebuilt) -> Result<Opened> {
        let Rebuilt { end, mut state, mut space, recovery } = rebuilt;
        let live = region.live();
        self.resume(&region, end)?;
        if self.access == Access::ReadOnly {
            return Ok(self.finish(region, state, recovery, end.lsn));
        }
        if end.segment_offset != 0 {
            // Nothing tells which of it a killed process, or a copy, left unsynced.
            self.log.distrust_durability(region.file_bytes());
            self.log.leave_segment(&region, &mut space)?;
            let position = self.log.position();
            (state.tail_offset, state.tail_segment) = (position.offset, position.segment_offset);
            live.commit(position.lsn, &state);
        } else {
            // The next change begins the log.
            self.superblock.log_start = LogStart::default();
        }
        live.set_identity(region.storage().identity());
        let mut opened = self.finish(region, state, recovery, 0);
        // Closing takes that back, also of an empty store.
        opened.writer.mark = Mark::NotCleanDurably;
        Ok(opened)
    }

    /// Puts the slots of a checkpoint into an empty table of any geometry.
    fn load_image(
        &self,
        region: &Region,
        image: &Image,
        geometry: Geometry,
        space: &mut Space,
    ) -> Result<()> {
        let from = image.state.geometry;
        // A bucket has its own number's bits of the hash, and the tag has bits 8 to 31.
        let is_known = from.level() >= Tag::FIRST_BIT;
        let (mut bytes, bytes_total) = (0, image.name().bytes);
        image.for_each_entry(
            region,
            |bucket, slots| {
                // Most slots stay in their bucket or go to the one that it is divided into: the
                // lines of the last slots of both.
                let mut open: [Option<(BucketIndex, &Line, usize)>; 2] = [None; 2];
                for &slot in slots {
                    let slot = Slot(u64::from_le_bytes(slot));
                    let target = if from == geometry {
                        bucket
                    } else if is_known {
                        geometry.bucket_of(slot.low_hash(bucket.0))
                    } else {
                        geometry.bucket_of(self.hash_of(region.version(slot.addr())?.key()))
                    };
                    let open = &mut open[usize::from(target != bucket)];
                    match open {
                        Some((last, line, used)) if *last == target && *used < SLOT_COUNT => {
                            line.set_slot(*used, slot);
                            *used += 1;
                        }
                        _ => *open = Some(add_slot(region, target, slot, space)?),
                    }
                }
                Ok(())
            },
            |bucket| {
                // Where the slots of the bucket go, if the table has not grown much.
                region.prefetch_bucket(geometry.bucket_of(bucket.0));
            },
            |block_bytes| {
                bytes += block_bytes;
                self.tell(RecoveryProgress::LoadCheckpoint { bytes, bytes_total });
            },
        )
    }

    /// Applies all changes of the log, in their order.
    fn apply_log(&self, region: &Region, survey: &mut Survey, space: &mut Space) -> Result<()> {
        let mut changes = std::mem::take(&mut survey.changes);
        let (mut records, records_total) = (0, survey.records);
        loop {
            apply_in_order(region, &changes, space)?;
            records += changes.len() as u64;
            // Links and what was not committed count as applied with the last.
            let records = if survey.rest.is_some() { records } else { records_total };
            self.tell(RecoveryProgress::ApplyLog { records, records_total });
            let Some(rest) = survey.rest else { return Ok(()) };
            changes.clear();
            survey.rest = self.collect(region, rest, survey.end, &mut changes)?;
        }
    }

    fn tell(&self, progress: RecoveryProgress) {
        if let Some(OnRecovery(function)) = &self.on_recovery {
            function(progress);
        }
    }
}

/// Makes the pages of the buckets, which are about to be filled, on two cores if the machine has
/// them: a third of the time goes there if each is made at its first store.
fn make_pages(region: &Region) {
    let line_count = region.line_count(LineWindow::Buckets);
    // Asked last: the system is asked for it by reading files.
    let has_cores = || std::thread::available_parallelism().is_ok_and(|count| count.get() > 1);
    let may_have_threads = region.storage().may_sync_in_background();
    if line_count * LINE_BYTES < POPULATE_BYTES_MIN || !may_have_threads || !has_cores() {
        return region.populate(LineWindow::Buckets, 0..line_count);
    }
    std::thread::scope(|scope| {
        // Without the thread its half of the pages are made one by one.
        let _ = std::thread::Builder::new().name("splitpoint-pages".to_string()).spawn_scoped(
            scope,
            || {
                region.populate(LineWindow::Buckets, line_count / 2..line_count);
            },
        );
        region.populate(LineWindow::Buckets, 0..line_count / 2);
    });
}

/// Applies changes in their order; the cache misses of their buckets overlap.
fn apply_in_order(region: &Region, changes: &[Change], space: &mut Space) -> Result<()> {
    let geometry = Shape::of_word(region.shape().load(Ordering::Relaxed)).geometry;
    for (i, change) in changes.iter().enumerate() {
        if let Some(ahead) = changes.get(i + READ_AHEAD) {
            region.prefetch_bucket(geometry.bucket_of(ahead.hash));
        }
        apply_change(region, change, space)?;
    }
    Ok(())
}

/// Applies a change to the index; one that has been applied changes nothing.
pub(super) fn apply_change(region: &Region, change: &Change, space: &mut Space) -> Result<()> {
    let Change { hash, addr, prev } = *change;
    let is_delete = addr == NONE;
    let slot = if is_delete { Slot::EMPTY } else { Slot::new(Tag::of_hash(hash), addr) };
    if prev != NONE
        && let Some((line, i, _)) = locate_addr(region, hash, prev)?.found
    {
        line.set_slot(i, slot);
        return Ok(());
    }
    if is_delete {
        return Ok(());
    }
    let mut at = locate_addr(region, hash, addr)?;
    if at.found.is_some() {
        return Ok(());
    }
    if at.hole.is_none() && reserve_line(region, space)? {
        at = locate_addr(region, hash, addr)?;
    }
    insert(region, &mut LivePool(region), &at, slot).map(drop)
}

/// Puts a slot at the end of a chain of a table that is being built. Returns the line that it went
/// to, with the number of slots there.
fn add_slot<'a>(
    region: &'a Region,
    bucket: BucketIndex,
    slot: Slot,
    space: &mut Space,
) -> Result<(BucketIndex, &'a Line, usize)> {
    let mut at = locate_end(region, bucket)?;
    if at.hole.is_none() && reserve_line(region, space)? {
        at = locate_end(region, bucket)?;
    }
    insert(region, &mut LivePool(region), &at, slot)?;
    // A line that was begun just now is found when the next slot comes.
    Ok(at.hole.map_or((bucket, at.last, SLOT_COUNT), |(line, i)| (bucket, line, i + 1)))
}

/// Makes sure that an overflow line can be taken; returns whether more were mapped.
fn reserve_line(region: &Region, space: &mut Space) -> Result<bool> {
    if LivePool(region).free_count() > 0 {
        return Ok(false);
    }
    let line_count = region.line_count(LineWindow::Overflow) + 1;
    region.reserve_lines(LineWindow::Overflow, line_count, space)?;
    Ok(true)
}

fn no_prev(record: &Record<'_>) -> Error {
    Error::Corrupt { what: "record flags", offset: record.offset + 4, expected: 0x12, found: 0x02 }
}

const _: () = assert!(LINE_BYTES * 64 == GRANULE_BYTES);
