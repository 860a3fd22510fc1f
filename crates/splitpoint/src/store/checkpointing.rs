//! When a checkpoint is due, and its way to the disk.
//!
//! The writer walks the buckets, a few with each change, so that no change waits for a checkpoint.
//! When the image is whole the thread of the background sync makes it durable and writes the
//! superblock that names it.
//!
//! # Invariants
//!
//! - A bucket is captured before its first change after the commit that the checkpoint is of.
//! - From the moment an image is complete until its superblock is durable, or could not be written,
//!   nothing else writes a superblock: a close waits for the thread.

use super::{Store, Writer};
use crate::checkpoint::{self, CheckpointState, CheckpointWriter};
use crate::error::Result;
use crate::format::{CheckpointName, Superblock};
use crate::linear::BucketIndex;
use crate::region::Region;

/// Buckets that are walked at a time.
const WALK_BUCKETS: u64 = 16;
/// Buckets that one change walks at most.
const WALK_BUCKETS_MAX: u64 = 512;
/// Share of the interval between two checkpoints in which the buckets are walked: one part in so
/// many.
const WALK_SHARE: u64 = 4;
/// Share of the interval that the log grows after an open before there is a checkpoint, if one is
/// due: an open of a large store for one change should not pay for it.
const GRACE_SHARE: u64 = 64;

/// What the writer knows of checkpoints.
#[derive(Debug)]
pub(crate) struct Checkpointing {
    /// The log sequence number from which on there is something to do.
    due_lsn: u64,
    /// Least bytes of log between two.
    bytes_min: u64,
    progress: Progress,
}

#[derive(Debug)]
enum Progress {
    /// None is being made.
    Idle,
    /// The buckets are walked, `step_bytes` of log for each [`WALK_BUCKETS`].
    Walking { image: Box<CheckpointWriter>, step_bytes: u64 },
    /// The image is whole and not durable; whether the thread has been asked to make it so.
    Written { image: Box<CheckpointWriter>, is_asked: bool },
    /// Somebody makes it durable, or has failed to.
    Syncing,
}

impl Default for Checkpointing {
    /// None, ever: a table in memory, a handle that only reads.
    fn default() -> Self {
        Self { due_lsn: u64::MAX, bytes_min: u64::MAX, progress: Progress::Idle }
    }
}

impl Checkpointing {
    /// Returns whether an image waits to be made durable, and the thread has not been asked to.
    #[inline]
    pub(crate) fn is_written(&self) -> bool {
        matches!(self.progress, Progress::Written { is_asked: false, .. })
    }

    /// Returns whether an image is being made durable.
    #[inline]
    pub(crate) fn is_syncing(&self) -> bool {
        matches!(self.progress, Progress::Syncing)
    }

    /// Notes whether somebody has been asked to make the image durable.
    pub(crate) fn set_asked(&mut self, has_been: bool) {
        if let Progress::Written { is_asked, .. } = &mut self.progress {
            *is_asked = has_been;
        }
    }

    /// Returns by how many bytes the log grows between two checkpoints: a recovery reads about as
    /// much of the log as of the index.
    fn interval(&self, region: &Region) -> u64 {
        self.bytes_min.max(region.windows.index_bytes())
    }
}

impl Writer {
    /// Notes when the first checkpoint of this handle is due.
    pub(super) fn schedule_first_checkpoint(&mut self, region: &Region, bytes_min: u64) {
        assert!(matches!(self.checkpoints.progress, Progress::Idle), "a handle begins with none");
        self.checkpoints.bytes_min = bytes_min;
        let interval = self.checkpoints.interval(region);
        let base_lsn = self.superblock.checkpoint.map_or(0, |name| name.lsn);
        let lsn = self.log.position().lsn;
        self.checkpoints.due_lsn = (base_lsn + interval).max(lsn + interval / GRACE_SHARE);
    }

    /// Frees the segments of all checkpoints: a store that is closed needs none.
    pub(super) fn drop_checkpoints(&mut self) {
        self.checkpoints = Checkpointing::default();
        checkpoint::release_all_but(&mut self.extents, None);
    }
}

impl Store {
    /// Captures the bucket of a hash, which is about to change.
    #[inline(always)]
    pub(super) fn capture_bucket_of(&self, writer: &mut Writer, hash: u64) {
        if let Progress::Walking { .. } = writer.checkpoints.progress {
            self.capture(writer, self.shape().geometry.bucket_of(hash));
        }
    }

    /// Captures a bucket that is about to change.
    #[inline]
    pub(super) fn capture(&self, writer: &mut Writer, bucket: BucketIndex) {
        if let Progress::Walking { image, .. } = &mut writer.checkpoints.progress
            && image.capture(&self.region, bucket).is_err()
        {
            self.abandon_checkpoint(writer);
        }
    }

    /// Does what is due after a change: begins a checkpoint, or walks some buckets.
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
        let checkpoints = &mut writer.checkpoints;
        let advanced = match &mut checkpoints.progress {
            Progress::Idle => self.begin_checkpoint(writer, lsn),
            Progress::Walking { image, step_bytes } => {
                let steps = ((lsn - checkpoints.due_lsn) / *step_bytes + 1)
                    .min(WALK_BUCKETS_MAX / WALK_BUCKETS);
                checkpoints.due_lsn += steps * *step_bytes;
                image.advance(&self.region, steps * WALK_BUCKETS).map(|is_whole| {
                    if is_whole
                        && let Progress::Walking { image, .. } =
                            std::mem::replace(&mut checkpoints.progress, Progress::Idle)
                    {
                        checkpoints.progress = Progress::Written { image, is_asked: false };
                    }
                })
            }
            Progress::Written { .. } | Progress::Syncing => {
                checkpoints.due_lsn = u64::MAX;
                Ok(())
            }
        };
        // A checkpoint that cannot be written, on a full disk, harms nothing: the change has been
        // made, the log has it, and the next checkpoint is tried later.
        if advanced.is_err() {
            self.abandon_checkpoint(writer);
        }
    }

    fn begin_checkpoint(&self, writer: &mut Writer, lsn: u64) -> Result<()> {
        let region = &self.region;
        let interval = writer.checkpoints.interval(region);
        let replay_start = writer.log.log_start();
        assert_eq!(replay_start.lsn, lsn, "the image is as of the last change");
        let geometry = self.shape().geometry;
        let state = CheckpointState::of(&writer.extents, geometry, writer.state, replay_start);
        let salt = writer.log.next_salt();
        let image = CheckpointWriter::begin(&mut writer.extents, &state, salt)?;
        let step_count = geometry.bucket_count().div_ceil(WALK_BUCKETS);
        let step_bytes = (interval / WALK_SHARE / step_count).max(1);
        writer.checkpoints.due_lsn = lsn + step_bytes;
        writer.checkpoints.progress = Progress::Walking { image: Box::new(image), step_bytes };
        Ok(())
    }

    /// Gives up the checkpoint that is being made and notes when to try again.
    #[cold]
    fn abandon_checkpoint(&self, writer: &mut Writer) {
        let progress = std::mem::replace(&mut writer.checkpoints.progress, Progress::Idle);
        if let Progress::Walking { image, .. } | Progress::Written { image, .. } = progress {
            image.release(&mut writer.extents);
        }
        let interval = writer.checkpoints.interval(&self.region);
        writer.checkpoints.due_lsn = writer.log.position().lsn + interval / WALK_SHARE;
    }

    /// Makes a whole image durable, and the superblock that names it; then the one before is free.
    ///
    /// # Errors
    ///
    /// Those of the syncs, which poison the handle.
    pub(crate) fn finish_checkpoint(&self) -> Result<()> {
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
                // Which of the two checkpoints a superblock names is not known: both stay.
                self.group.fail(&error);
                return Err(error);
            }
        };
        let mut writer = self.lock()?;
        let writer = &mut *writer;
        assert!(matches!(writer.checkpoints.progress, Progress::Syncing), "a close waits for this");
        assert_eq!(superblock.checkpoint, Some(name), "the one before is released");
        writer.superblock = superblock;
        checkpoint::release_all_but(&mut writer.extents, Some(name));
        writer.checkpoints.progress = Progress::Idle;
        writer.checkpoints.due_lsn = name.lsn + writer.checkpoints.interval(&self.region);
        Ok(())
    }

    /// Syncs the log up to the commit of a checkpoint, then the checkpoint, then a superblock.
    fn make_durable(&self, name: CheckpointName) -> Result<Superblock> {
        self.wait_durable(name.lsn, false)?;
        assert!(name.lsn <= self.group.durable_lsn(), "a checkpoint needs the log before it");
        let CheckpointName { offset, bytes, .. } = name;
        self.region.sync_range(offset, bytes)?;
        let mut superblock = self.lock()?.superblock.clone();
        superblock.checkpoint = Some(name);
        let _writing = self.superblock_writes();
        self.region.write_superblock(&mut superblock, false)?;
        Ok(superblock)
    }
}
