//! Decides when a checkpoint is due, and writes it to the device.
//!
//! The background thread walks the buckets beside the writer. When the image is complete, it syncs
//! the image and writes the superblock that names it. Without a background thread, the writer walks
//! a few buckets with each change, so that no change waits for a complete checkpoint.
//!
//! # Invariants
//!
//! - A bucket is captured before its first change after the commit of the checkpoint.
//! - From the moment an image is complete until its superblock is durable or has failed, nothing
//!   else writes a superblock; a close waits for the thread.

mod by_turns;

use std::time::Duration;

use by_turns::Ending;

use super::{Store, Writer};
use crate::checkpoint::{
    self, CheckpointState, CheckpointWriter, is_of_older_version, is_place_of,
};
use crate::compaction::WAITING_BYTES_MIN;
use crate::error::{Error, Result};
use crate::format::{CheckpointName, GRANULE_BYTES, Superblock};
use crate::linear::BucketIndex;
use crate::region::Region;
use crate::testing::mutant::{self, Mutant};

/// Polling interval while waiting for a checkpoint of the background thread.
const THREAD_WAIT: Duration = Duration::from_millis(1);
/// Buckets that the writer walks per step.
const WALK_BUCKETS: u64 = 16;
/// Largest number of buckets that one change walks.
const WALK_BUCKETS_MAX: u64 = 512;
/// The walk is spread over this share (as a divisor) of the interval between two checkpoints.
const WALK_SHARE: u64 = 4;
/// If a checkpoint is due at an open, the log must first grow by this share (as a divisor) of the
/// interval: opening a large store for a single change should not pay for a checkpoint.
const GRACE_SHARE: u64 = 64;

/// A close keeps a checkpoint if it takes less than this share (as a divisor) of the file.
const KEPT_SHARE: u64 = 25;

/// Smallest interval, in bytes of log, between two checkpoints of a compacted store, whose emptied
/// segments wait for the next checkpoint; unless the options set a smaller one. The interval is at
/// least `1 / COMPACTED_SHARE` of the live bytes.
const COMPACTED_BYTES_MIN: u64 = 4 << 20;
const COMPACTED_SHARE: u64 = 4;

/// The state of checkpointing.
#[derive(Debug)]
pub(crate) struct Checkpointing {
    /// The log sequence number at which the next step is due.
    due_lsn: u64,
    /// Smallest number of bytes of log between two checkpoints.
    bytes_min: u64,
    progress: Progress,
    /// Number of checkpoints that this handle has begun.
    pub(crate) begun_count: u64,
    /// Value of `begun_count` when the last checkpoint became durable.
    finished_count: u64,
    /// The number of the checkpoint, counted from 1, that both superblocks name; 0 if they are not
    /// known to agree.
    pub(super) replay_checkpoint: u64,
    /// The log sequence number at which the last checkpoint was begun, and the bytes of log between
    /// it and the previous one.
    pub(crate) begun_lsn: u64,
    last_bytes: u64,
    /// After a failed checkpoint, the log sequence number before which none is tried.
    pub(super) put_off_lsn: u64,
    /// By how much the file could have grown at that time.
    put_off_free_bytes: u64,
    /// Whether the background thread should release pages of free space, because more free space
    /// has pages than may.
    pub(crate) is_excess: bool,
}

#[derive(Debug)]
enum Progress {
    /// No checkpoint is in progress.
    Idle,
    /// A checkpoint by turns is due, which first needs a sync of the log. `is_asked` says whether
    /// that has been requested.
    Unsynced { is_asked: bool },
    /// The buckets are being walked.
    Walking { image: Box<CheckpointWriter>, by: Walking },
    /// The image is complete but not durable. `is_asked` says whether the background thread has
    /// been asked to sync it.
    Written { image: Box<CheckpointWriter>, is_asked: bool },
    /// The image is being synced, or the sync has failed.
    Syncing,
    /// A checkpoint by turns is complete; it ends in a later turn.
    Ending(Ending),
}

/// The thread that walks the buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walking {
    /// The background thread. `is_asked` says whether it has been asked to.
    Thread { is_asked: bool },
    /// The writer, [`WALK_BUCKETS`] for each `step_bytes` of log.
    Writer { step_bytes: u64 },
}

impl Default for Checkpointing {
    /// Never any checkpoint: for a table in memory and a read-only handle.
    fn default() -> Self {
        Self {
            due_lsn: u64::MAX,
            bytes_min: u64::MAX,
            progress: Progress::Idle,
            begun_count: 0,
            finished_count: 0,
            replay_checkpoint: 0,
            begun_lsn: 0,
            last_bytes: 0,
            put_off_lsn: 0,
            put_off_free_bytes: 0,
            is_excess: false,
        }
    }
}

impl Checkpointing {
    /// Returns whether there is work for the background thread that has not been requested yet.
    #[inline]
    pub(crate) fn needs_thread(&self) -> bool {
        let by_thread = Walking::Thread { is_asked: false };
        match &self.progress {
            Progress::Walking { by, .. } => *by == by_thread,
            Progress::Written { is_asked, .. } | Progress::Unsynced { is_asked } => !is_asked,
            Progress::Ending(ending) => ending.needs_sync(),
            Progress::Idle | Progress::Syncing => self.is_excess,
        }
    }

    /// Returns whether an image is being synced.
    #[inline]
    pub(crate) fn is_syncing(&self) -> bool {
        matches!(self.progress, Progress::Syncing)
    }

    /// Returns whether a checkpoint waits for a sync of the log.
    pub(crate) fn is_unsynced(&self) -> bool {
        matches!(self.progress, Progress::Unsynced { .. })
    }

    /// Returns whether a sync for a checkpoint has been requested or is in progress, which may take
    /// long.
    #[inline]
    pub(super) fn is_flushing(&self) -> bool {
        match &self.progress {
            Progress::Syncing => true,
            Progress::Ending(ending) => ending.is_flushing(),
            _ => false,
        }
    }

    /// Returns whether a checkpoint by turns is being completed.
    pub(crate) fn is_ending(&self) -> bool {
        matches!(self.progress, Progress::Ending(_))
    }

    /// Returns whether a complete image waits to be synced.
    pub(crate) fn is_written(&self) -> bool {
        matches!(self.progress, Progress::Written { .. })
    }

    /// Records whether the background thread has been asked to do its part.
    pub(crate) fn set_asked(&mut self, has_been: bool) {
        match &mut self.progress {
            Progress::Walking { by: Walking::Thread { is_asked }, .. }
            | Progress::Written { is_asked, .. }
            | Progress::Unsynced { is_asked }
            | Progress::Ending(Ending { is_asked, .. }) => *is_asked = has_been,
            _ => {}
        }
    }

    /// Returns by how many bytes the log grows between two checkpoints: by about the size of the
    /// index, so that a recovery reads as much of the log as of the checkpoint. `live_bytes` is
    /// given for a compacted store.
    fn interval(&self, region: &Region, live_bytes: Option<u64>) -> u64 {
        let interval = self.bytes_min.max(region.windows.index_bytes());
        let compacted =
            |live_bytes| COMPACTED_BYTES_MIN.min(self.bytes_min).max(live_bytes / COMPACTED_SHARE);
        live_bytes.map_or(interval, |live_bytes| interval.min(compacted(live_bytes)))
    }

    /// Returns the log sequence number before which no checkpoint is tried.
    #[cfg(test)]
    pub(crate) fn put_off_lsn(&self) -> u64 {
        self.put_off_lsn
    }

    /// Returns whether no checkpoint is in progress.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.progress, Progress::Idle | Progress::Unsynced { .. })
    }
}

impl Writer {
    /// Schedules the first checkpoint of this handle.
    pub(super) fn schedule_first_checkpoint(&mut self, region: &Region, bytes_min: u64) {
        assert!(matches!(self.checkpoints.progress, Progress::Idle), "a handle begins with none");
        self.checkpoints.bytes_min = bytes_min;
        let interval = self.checkpoint_interval(region);
        let base_lsn = self.superblock.checkpoint.map_or(0, |name| name.lsn);
        self.checkpoints.begun_lsn = base_lsn;
        let lsn = self.log.position().lsn;
        self.checkpoints.due_lsn = (base_lsn + interval).max(lsn + interval / GRACE_SHARE);
    }

    fn checkpoint_interval(&self, region: &Region) -> u64 {
        let is_compacted = self.compacting.is_some() && self.superblock.is_compacted;
        self.checkpoints.interval(region, is_compacted.then_some(self.state.live_bytes))
    }

    /// Returns whether so much space waits for a checkpoint that one is due, and none that would
    /// free it is in progress.
    pub(super) fn wants_checkpoint(&self) -> bool {
        let Self { compacting: Some(compacting), checkpoints, superblock, state, .. } = self else {
            return false;
        };
        let image_bytes = superblock.checkpoint.map_or(0, |name| name.bytes);
        let bytes_min = WAITING_BYTES_MIN.min(checkpoints.bytes_min);
        // A pending checkpoint by turns would not free what was emptied since it was begun.
        (checkpoints.is_idle() || checkpoints.is_ending())
            && superblock.is_compacted
            && compacting.state.wants_checkpoint(state.live_bytes, image_bytes, bytes_min)
    }

    /// Makes a checkpoint due with the next change, if none is in progress; after a failed one, as
    /// soon as the next may be tried.
    pub(super) fn hurry_checkpoint(&mut self) {
        if self.checkpoints.is_idle() {
            let soonest = self.log.position().lsn.max(self.checkpoints.put_off_lsn);
            self.checkpoints.due_lsn = self.checkpoints.due_lsn.min(soonest);
        }
    }

    /// Ends checkpointing for a close, and returns the checkpoint to keep, if any. Keeping one pays
    /// off because the next session changes the index at once: after a power loss before its own
    /// first checkpoint, only the whole log would be left. A checkpoint that is large compared with
    /// the file is freed, unless the log is not complete.
    pub(super) fn end_checkpoints(&mut self) -> Option<CheckpointName> {
        let file_bytes = self.extents.space().end() * GRANULE_BYTES;
        let region = self.extents.region().clone();
        let is_of_use = |name: &CheckpointName| {
            let mut places = region.live().checkpoint_extents().into_iter().flatten();
            let is_there = places.any(|extent| is_place_of(extent, *name));
            let is_small = name.bytes * KEPT_SHARE < file_bytes;
            is_there && is_small && !is_of_older_version(&region.view, *name)
        };
        // A compacted store needs its checkpoint: the log is not enough to rebuild the index.
        let is_needed = self.superblock.is_compacted;
        let kept = self.superblock.checkpoint.filter(|name| is_needed || is_of_use(name));
        self.checkpoints = Checkpointing::default();
        checkpoint::release_all_but(&mut self.extents, kept);
        kept
    }
}

impl Store {
    /// Captures the bucket of a hash, which is about to change.
    #[inline(always)]
    pub(super) fn capture_bucket_of(&self, writer: &mut Writer, hash: u64) -> Result<()> {
        if let Progress::Walking { .. } = writer.checkpoints.progress {
            self.capture(writer, self.shape().geometry.bucket_of(hash));
            return self.group.check();
        }
        Ok(())
    }

    /// Captures a bucket that is about to change.
    #[inline]
    pub(super) fn capture(&self, writer: &mut Writer, bucket: BucketIndex) {
        if let Progress::Walking { image, by } = &mut writer.checkpoints.progress
            && image.capture(&self.region, bucket).is_err()
            && let Walking::Writer { .. } = by
        {
            // A background thread notices the failed image itself, and abandons the checkpoint.
            self.abandon_checkpoint(writer);
        }
    }

    /// Takes the step of checkpointing that is due after a change, if any: begins a checkpoint, or
    /// walks some buckets.
    #[inline]
    pub(super) fn checkpoint_if_due(&self, writer: &mut Writer) {
        let lsn = writer.log.position().lsn;
        if lsn >= writer.checkpoints.due_lsn {
            self.advance_checkpoint(writer, lsn);
        }
    }

    #[inline(never)]
    fn advance_checkpoint(&self, writer: &mut Writer, lsn: u64) {
        assert!(writer.checkpoints.due_lsn <= lsn, "nothing is done before it is due");
        if self.group.check().is_err() {
            // The preceding work may have poisoned the handle, which must then not store anything.
            return;
        }
        let checkpoints = &mut writer.checkpoints;
        let advanced = match &mut checkpoints.progress {
            Progress::Idle | Progress::Unsynced { .. } if self.takes_turns() => {
                self.checkpoint_due_by_turns(writer, lsn)
            }
            Progress::Ending(_) => self.go_on_ending(writer),
            Progress::Idle => self.begin_checkpoint(writer, lsn, self.walker_count()),
            Progress::Walking { image, by: Walking::Writer { step_bytes } } => {
                let steps = ((lsn - checkpoints.due_lsn) / *step_bytes + 1)
                    .min(WALK_BUCKETS_MAX / WALK_BUCKETS);
                checkpoints.due_lsn += steps * *step_bytes;
                image.advance(&mut writer.extents, steps * WALK_BUCKETS).map(|is_whole| {
                    if is_whole
                        && let Progress::Walking { image, .. } =
                            std::mem::replace(&mut checkpoints.progress, Progress::Idle)
                    {
                        checkpoints.progress = Progress::Written { image, is_asked: false };
                    }
                })
            }
            Progress::Walking { .. }
            | Progress::Written { .. }
            | Progress::Syncing
            | Progress::Unsynced { .. } => {
                checkpoints.due_lsn = u64::MAX;
                Ok(())
            }
        };
        // A checkpoint that cannot be written, as on a full disk, does no harm: the change is
        // committed and in the log, and the next checkpoint is tried later.
        if advanced.is_err() {
            self.abandon_checkpoint(writer);
        }
    }

    /// Makes a checkpoint due if enough space waits for it. Not on a handle that takes turns, whose
    /// checkpoints are scheduled only by the bytes of the log, because the other handles wait while
    /// an image is written.
    pub(super) fn checkpoint_for_waiting(&self, writer: &mut Writer) {
        if !self.takes_turns() && writer.wants_checkpoint() {
            writer.hurry_checkpoint();
        }
    }

    /// Begins a checkpoint that `walker_count` threads write. A checkpoint that a single thread
    /// writes at once may use the room for it in the reserve.
    fn begin_checkpoint(&self, writer: &mut Writer, lsn: u64, walker_count: u64) -> Result<()> {
        let region = &self.region;
        assert_eq!(writer.log.log_start().lsn, lsn, "the image is as of the last change");
        let state = self.checkpoint_state(writer);
        let mut state = state.ok_or(Error::Full { what: "segment table", bytes: 0 })?;
        if writer.wants_to_compact() && !writer.superblock.is_compacted {
            // A replay from the first checkpoint of a compacted store frees the dead big records,
            // so do not count them as dead.
            let dead_bytes = &mut state.commit.dead_bytes;
            *dead_bytes = dead_bytes.saturating_sub(self.dead_big_bytes(writer));
        }
        let salt = writer.log.next_salt();
        let may_have_thread = region.storage().may_sync_in_background();
        let image = CheckpointWriter::begin(&mut writer.extents, state, salt, walker_count)?;
        let by = Walking::Thread { is_asked: false };
        writer.checkpoints.begun_count += 1;
        writer.checkpoints.last_bytes = lsn.saturating_sub(writer.checkpoints.begun_lsn);
        writer.checkpoints.begun_lsn = lsn;
        if let Some(compacting) = &mut writer.compacting {
            compacting.state.note_checkpoint();
        }
        writer.checkpoints.progress = Progress::Walking { image: Box::new(image), by };
        writer.checkpoints.due_lsn = u64::MAX;
        if !may_have_thread {
            self.walk_without_thread(writer);
        }
        Ok(())
    }

    /// Returns the state for a checkpoint of the present moment; `None` without a segment table.
    pub(crate) fn checkpoint_state(&self, writer: &Writer) -> Option<CheckpointState> {
        let geometry = self.shape().geometry;
        CheckpointState::of(&writer.extents, geometry, writer.state, writer.log.log_start())
    }

    /// Returns the number of threads that capture buckets.
    fn walker_count(&self) -> u64 {
        if self.region.storage().may_sync_in_background() { 2 } else { 1 }
    }

    /// Returns an upper bound for the bytes that a checkpoint of the present moment takes while it
    /// is written.
    pub(super) fn image_bytes_max(&self, writer: &Writer) -> u64 {
        let state = self.checkpoint_state(writer);
        state.map_or(0, |state| state.segment_bytes_max(self.walker_count()))
    }

    /// Makes the writer itself walk the buckets of a checkpoint that has begun. The walk is paced
    /// by the interval until the next checkpoint, which may come sooner than the bytes of the log
    /// require.
    pub(crate) fn walk_without_thread(&self, writer: &mut Writer) {
        let interval = writer.checkpoint_interval(&self.region).min(writer.checkpoints.last_bytes);
        if let Progress::Walking { image, by } = &mut writer.checkpoints.progress {
            let step_count = image.bucket_count().div_ceil(WALK_BUCKETS);
            let step_bytes = (interval / WALK_SHARE / step_count).max(1);
            *by = Walking::Writer { step_bytes };
            writer.checkpoints.due_lsn = writer.log.position().lsn + step_bytes;
        }
    }

    /// Walks the buckets of a checkpoint that has begun, beside the writer. Calls `go_on` some
    /// thousand times a second, and abandons the checkpoint if that returns `false`.
    pub(crate) fn walk_checkpoint(&self, go_on: impl FnMut() -> bool) -> Result<()> {
        let walker = match &mut self.lock()?.checkpoints.progress {
            Progress::Walking { image, by: Walking::Thread { is_asked } } => {
                // From now on, no other thread begins the walk.
                *is_asked = true;
                image.walker()
            }
            _ => return Ok(()),
        };
        // Without the lock: changes go on.
        let walked = walker.walk(&self.region, go_on);
        let mut writer = self.lock()?;
        let writer = &mut *writer;
        let progress = std::mem::replace(&mut writer.checkpoints.progress, Progress::Idle);
        let Progress::Walking { mut image, by } = progress else {
            unreachable!("only the thread that walks ends the walk");
        };
        let is_whole = match walked {
            Ok(Some(slot_count)) => image.complete(&mut writer.extents, slot_count).is_ok(),
            // Ignore the error: the checkpoint is abandoned, and the next one is tried later.
            Ok(None) | Err(_) => false,
        };
        if is_whole {
            writer.checkpoints.progress = Progress::Written { image, is_asked: true };
        } else {
            writer.checkpoints.progress = Progress::Walking { image, by };
            self.abandon_checkpoint(writer);
        }
        Ok(())
    }

    /// Abandons the checkpoint in progress, and schedules the next attempt.
    #[cold]
    fn abandon_checkpoint(&self, writer: &mut Writer) {
        let progress = std::mem::replace(&mut writer.checkpoints.progress, Progress::Idle);
        if let Progress::Walking { image, .. } | Progress::Written { image, .. } = progress
            && self.group.check().is_ok()
        {
            // A poisoned handle stores nothing, so the segment stays allocated.
            image.release(&mut writer.extents);
        }
        let interval = writer.checkpoint_interval(&self.region);
        writer.checkpoints.due_lsn = writer.log.position().lsn + interval / WALK_SHARE;
        writer.checkpoints.put_off_lsn = writer.checkpoints.due_lsn;
        writer.checkpoints.put_off_free_bytes =
            self.region.storage().growth_bytes().unwrap_or(u64::MAX);
    }

    /// Retries a failed checkpoint at once if the file can now grow by at least its size more than
    /// at the failure: the disk was full, or a limit was reached. Called when the log has grown.
    pub(super) fn retry_checkpoint(&self, writer: &mut Writer) {
        let Checkpointing { put_off_lsn, put_off_free_bytes, .. } = writer.checkpoints;
        if put_off_lsn <= writer.log.position().lsn {
            return;
        }
        let free_bytes = self.region.storage().growth_bytes().unwrap_or(0);
        if free_bytes > put_off_free_bytes
            && free_bytes - put_off_free_bytes > self.image_bytes_max(writer)
        {
            writer.checkpoints.put_off_lsn = 0;
            writer.hurry_checkpoint();
        }
    }

    /// Syncs a complete image, writes and syncs the superblock that names it, and frees the
    /// previous checkpoint.
    ///
    /// # Errors
    ///
    /// Those of the syncs, which poison the handle.
    pub(crate) fn finish_checkpoint(&self) -> Result<()> {
        if self.takes_turns() {
            return self.finish_by_turns();
        }
        let name = {
            let mut writer = self.lock()?;
            let progress = std::mem::replace(&mut writer.checkpoints.progress, Progress::Syncing);
            let Progress::Written { image, .. } = progress else {
                writer.checkpoints.progress = progress;
                return Ok(());
            };
            image.name()
        };
        // Without the lock: changes go on.
        let superblock = match self.make_durable(name) {
            Ok(superblock) => superblock,
            Err(error) => {
                // It is unknown which of the two checkpoints a superblock names, so both stay.
                self.group.fail(&error);
                return Err(error);
            }
        };
        let mut writer = self.lock()?;
        self.note_durable_checkpoint(&mut writer, name, superblock)
    }

    fn note_durable_checkpoint(
        &self,
        writer: &mut Writer,
        name: CheckpointName,
        superblock: Superblock,
    ) -> Result<()> {
        assert!(matches!(writer.checkpoints.progress, Progress::Syncing), "a close waits for this");
        assert_eq!(superblock.checkpoint, Some(name), "the one before is released");
        let is_first = superblock.is_compacted && !writer.superblock.is_compacted;
        let application_data = writer.superblock.application_data;
        let is_new = application_data != superblock.application_data;
        writer.superblock = Superblock { application_data, ..superblock };
        if is_new {
            // `set_application_data` has left the write to this function, because a superblock was
            // being written.
            let _writing = self.superblock_writes();
            let written = self.region.write_superblock(&mut writer.superblock, false);
            // Poison the handle: nobody would complete this checkpoint, and the close would wait
            // for it forever.
            written.inspect_err(|error| self.group.fail(error))?;
        }
        // Only one checkpoint is in progress at a time.
        writer.checkpoints.finished_count = writer.checkpoints.begun_count;
        writer.checkpoints.put_off_lsn = 0;
        if writer.superblock.is_compacted {
            writer.checkpoints.replay_checkpoint = writer.checkpoints.begun_count;
        }
        checkpoint::release_all_but(&mut writer.extents, Some(name));
        // Refill the reserve before the freed space is taken.
        let _ = self.hold(writer);
        writer.checkpoints.progress = Progress::Idle;
        writer.checkpoints.due_lsn = name.lsn + writer.checkpoint_interval(&self.region);
        if is_first {
            writer.log.note_reused();
            self.retire_dead_bigs(writer);
        }
        Ok(())
    }

    /// Syncs the log up to the commit of a checkpoint, then the checkpoint, then writes the
    /// superblock (both copies, for a compacted store).
    fn make_durable(&self, name: CheckpointName) -> Result<Superblock> {
        self.wait_durable(name.lsn, false)?;
        assert!(name.lsn <= self.group.durable_lsn(), "a checkpoint needs the log before it");
        let CheckpointName { offset, bytes, .. } = name;
        self.region.sync_range(offset, bytes)?;
        let writer = self.lock()?;
        let superblock = superblock_naming(&writer, name);
        drop(writer);
        self.write_naming(superblock)
    }

    /// Writes and syncs a superblock that names a checkpoint; both copies, for a compacted store.
    fn write_naming(&self, mut superblock: Superblock) -> Result<Superblock> {
        let _writing = self.superblock_writes();
        self.region.write_superblock(&mut superblock, false)?;
        if superblock.is_compacted && !mutant::is_made(Mutant::OneSuperblock) {
            // Otherwise space could be reused to which the checkpoint of the older copy leads.
            self.region.write_superblock(&mut superblock, false)?;
        }
        Ok(superblock)
    }

    /// Makes a checkpoint of the present state, and waits until it is durable. Changes wait while
    /// the buckets are walked. A checkpoint in progress is finished first.
    ///
    /// # Errors
    ///
    /// Those of the file. Those of the syncs poison the handle.
    pub(crate) fn checkpoint_now(&self) -> Result<()> {
        let wanted = self.lock()?.checkpoints.begun_count + 1;
        loop {
            self.group.check()?;
            let mut writer = self.lock()?;
            match &writer.checkpoints.progress {
                Progress::Idle if writer.checkpoints.finished_count >= wanted => return Ok(()),
                Progress::Idle => {
                    let lsn = writer.log.position().lsn;
                    self.begin_checkpoint(&mut writer, lsn, 1)?;
                    self.walk_to_end(&mut writer)?;
                }
                // The background thread is working on it.
                Progress::Walking { by: Walking::Thread { is_asked: true }, .. }
                | Progress::Syncing => {
                    drop(writer);
                    std::thread::sleep(THREAD_WAIT);
                    continue;
                }
                Progress::Walking { .. } => self.walk_to_end(&mut writer)?,
                Progress::Written { .. } | Progress::Ending(_) | Progress::Unsynced { .. } => {}
            }
            drop(writer);
            self.finish_checkpoint()?;
        }
    }

    /// Walks the remaining buckets of a checkpoint that has begun, on this thread.
    pub(super) fn walk_to_end(&self, writer: &mut Writer) -> Result<()> {
        writer.checkpoints.due_lsn = u64::MAX;
        let progress = std::mem::replace(&mut writer.checkpoints.progress, Progress::Idle);
        let Progress::Walking { mut image, .. } = progress else {
            writer.checkpoints.progress = progress;
            return Ok(());
        };
        match image.advance(&mut writer.extents, u64::from(u32::MAX) + 1) {
            Ok(true) => {
                writer.checkpoints.progress = Progress::Written { image, is_asked: true };
                Ok(())
            }
            walked => {
                let by = Walking::Writer { step_bytes: 1 };
                writer.checkpoints.progress = Progress::Walking { image, by };
                self.abandon_checkpoint(writer);
                walked.map(drop)
            }
        }
    }
}

/// Returns the superblock that names a checkpoint.
fn superblock_naming(writer: &Writer, name: CheckpointName) -> Superblock {
    let is_compacted = writer.superblock.is_compacted || writer.wants_to_compact();
    Superblock { is_compacted, checkpoint: Some(name), ..writer.superblock.clone() }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use std::collections::BTreeSet;

    use super::Progress;
    use crate::background::without_threads;
    use crate::{Durability, Error, Options, Recovery, SimDisk};

    /// Merges most buckets while a thread walks them for a checkpoint, and builds the index of a copy of the
    /// file from that.
    fn merge_beside_a_walk() {
        const KEYS: u64 = 20_000;
        let dir = tempfile::tempdir().expect("nothing fails");
        let (path, copy) = (dir.path().join("a"), dir.path().join("copy"));
        let options = Options::new().seed(1).durability(Durability::Buffered);
        let db = options.open(&path).expect("nothing fails");
        (0..KEYS).for_each(|i| db.put(i.to_le_bytes(), b"value").expect("nothing fails"));
        (0..1000_u64).for_each(|i| db.put(i.to_le_bytes(), b"other").expect("nothing fails"));
        // From now on the log alone is not enough.
        db.maintain(u64::MAX).expect("nothing fails");
        let kept = |i: &u64| i.is_multiple_of(16);
        (0..KEYS)
            .filter(|i| !kept(i))
            .for_each(|i| assert!(db.delete(i.to_le_bytes()).expect("nothing fails")));
        let store = db.store();
        store.checkpoint_now().expect("nothing fails");
        assert!(store.lock().expect("nothing fails").superblock.is_compacted);
        let bucket_count = store.geometry().bucket_count();
        {
            let mut writer = store.lock_for_change().expect("nothing fails");
            store.commit(&mut writer);
            let lsn = writer.log.position().lsn;
            store.begin_checkpoint(&mut writer, lsn, 2).expect("nothing fails");
        }
        let mut is_merged = false;
        let walked = store.walk_checkpoint(|| {
            if !std::mem::replace(&mut is_merged, true) {
                store.shrink_index().expect("nothing fails");
            }
            true
        });
        walked.expect("nothing fails");
        assert!(is_merged && store.geometry().bucket_count() < bucket_count / 2);
        store.finish_checkpoint().expect("nothing fails");
        let is_whole = {
            let writer = store.lock().expect("nothing fails");
            writer.checkpoints.finished_count == writer.checkpoints.begun_count
        };
        assert!(is_whole, "it was given up");
        std::fs::copy(&path, &copy).expect("nothing fails");
        // Of another inode: as after a power loss.
        let built = Options::new().open(&copy).expect("nothing fails");
        assert!(matches!(built.recovery(), Recovery::Replayed { .. }), "{:?}", built.recovery());
        for db in [&db, &built] {
            let found: BTreeSet<Vec<u8>> = db
                .scan()
                .expect("nothing fails")
                .map(|entry| entry.expect("nothing fails").key.to_vec())
                .collect();
            let expected = (0..KEYS).filter(kept).map(|i| i.to_le_bytes().to_vec()).collect();
            assert!(found == expected, "{} keys", found.len());
            assert!(db.check().expect("nothing fails").is_clean());
        }
    }

    /// The program sets its bytes while a checkpoint is being synced, and the superblock with both cannot be
    /// written for want of room, as on a file system that writes nothing in place.
    #[test]
    fn application_data_that_cannot_be_written_with_a_checkpoint_poisons_the_handle() {
        let disk = SimDisk::new();
        let db = disk.open(&Options::new()).unwrap();
        db.put("key", "value").unwrap();
        let store = db.store();
        let mut writer = store.lock_for_change().unwrap();
        let lsn = writer.log.position().lsn;
        store.begin_checkpoint(&mut writer, lsn, 1).unwrap();
        store.walk_to_end(&mut writer).unwrap();
        let progress = std::mem::replace(&mut writer.checkpoints.progress, Progress::Syncing);
        let Progress::Written { image, .. } = progress else { panic!("{progress:?}") };
        drop(writer);
        let superblock = store.make_durable(image.name()).unwrap();
        db.set_application_data([7; 16]).unwrap();
        disk.fail_call(1, 28, false);
        let mut writer = store.lock().unwrap();
        store.note_durable_checkpoint(&mut writer, image.name(), superblock).unwrap_err();
        drop(writer);
        assert!(matches!(db.put("key", "other"), Err(Error::Poisoned { .. })));
        assert!(matches!(db.set_application_data([8; 16]), Err(Error::Poisoned { .. })));
        assert!(
            matches!(store.checkpoint_now(), Err(Error::Poisoned { .. })),
            "it waits for nobody"
        );
    }

    /// The write of the superblock or its sync finds no room, and the next call has the same bytes or those of
    /// before: it is durable when it returns.
    #[test]
    fn application_data_that_found_no_room_is_written_by_the_next_call() {
        const ENOSPC: i32 = 28;
        for (call, data) in [(1, [1; 16]), (1, [2; 16]), (2, [1; 16]), (2, [2; 16])] {
            let disk = SimDisk::new();
            let db = disk.open(&Options::new()).unwrap();
            db.put("key", "value").unwrap();
            db.set_application_data([1; 16]).unwrap();
            disk.fail_call(call, ENOSPC, false);
            db.set_application_data([2; 16]).unwrap_err();
            assert_eq!(db.application_data().unwrap(), [1; 16], "call {call}");
            db.set_application_data(data).unwrap();
            for seed in 0..8 {
                let found = disk.lose_power(seed).open(&Options::new()).unwrap();
                assert_eq!(found.application_data().unwrap(), data, "call {call}, seed {seed}");
            }
        }
    }

    #[test]
    fn a_checkpoint_whose_buckets_are_merged_during_the_walk_has_every_key_once() {
        without_threads(merge_beside_a_walk);
    }
}
