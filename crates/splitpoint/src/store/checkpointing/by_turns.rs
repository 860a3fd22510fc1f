//! Checkpoints of handles that take turns: begun in one turn, completed in a later one.
//!
//! The image is written completely within a turn, so that it is in the file when the turn ends. The
//! syncs happen between turns, while other handles have theirs:
//!
//! | when | step |
//! |---|---|
//! | a turn | write the image of the last commit; the live header lists its place |
//! | between turns | sync the log up to that commit, then the image |
//! | a turn | write a superblock that names it, without a sync; a superblock that another handle has written before is synced first |
//! | between turns | sync that superblock |
//! | a turn, and between | for a compacted store, the same with the other superblock |
//! | a turn | free the place of the previous checkpoint, and the segments that a replay no longer needs |
//!
//! A background thread does the syncs, and also takes the turns in between, except with `PerCall`:
//! there the next changes of the program take these steps, because nothing is locked between calls.
//! A handle without a background thread takes all steps after its changes, one at a time.
//!
//! # Pending checkpoints
//!
//! A checkpoint whose place is listed in the live header, but which the newest superblock does not
//! name, is *pending*, regardless of which handle began it. It is left alone for
//! [`PENDING_INTERVALS`], even by an open. After that, because its handle is gone or the device is
//! slow, the next handle frees its place and makes another checkpoint within a single turn,
//! including the syncs, with the log synced before. So a checkpoint is completed eventually,
//! however short-lived the handles are. After a killed turn, the next handle frees the pending
//! checkpoint at once.
//!
//! # Invariants
//!
//! - A superblock names an image only after the image and the log before it are durable.
//! - A handle that continues a checkpoint in a later turn first checks that its image still exists:
//!   see [`Store::is_pending`].
//! - The place of the previous checkpoint is kept until no superblock that may be on the device
//!   names it.

use super::{Checkpointing, Progress, WALK_SHARE};
use crate::checkpoint::{is_place_of, release_all_but};
use crate::error::Result;
use crate::format::{CheckpointName, GRANULE_BYTES, SUPERBLOCK_BYTES, SegmentKind, Superblock};
use crate::log::append::UnsyncedRange;
use crate::options::Sharing;
use crate::region::Region;
use crate::space::Extent;
use crate::store::{Store, Writer};
use crate::testing::meanwhile::{self, Point};
use crate::testing::mutant::{self, Mutant};

/// Largest number of bytes of log that a checkpoint within a single turn should have to sync.
const TURN_SYNC_BYTES_MAX: u64 = 1 << 20;

/// Number of intervals, from its commit on, for which a pending checkpoint is left alone.
const PENDING_INTERVALS: u64 = 2;

/// A checkpoint with a complete image that is being made durable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    name: CheckpointName,
    /// Number of superblocks that name it.
    named_count: u32,
    /// The range to sync next: the image, after the log before it; then a superblock.
    unsynced: Option<UnsyncedRange>,
    /// Whether that sync has been requested.
    pub(super) is_asked: bool,
}

impl Ending {
    fn of_image(name: CheckpointName) -> Self {
        let CheckpointName { offset, bytes, .. } = name;
        let unsynced = Some(UnsyncedRange { offset, bytes });
        Self { name, named_count: 0, unsynced, is_asked: false }
    }

    /// Returns the superblock that names it. Its compacted mark is that of the time when the image
    /// was written.
    fn superblock(&self, writer: &Writer) -> Superblock {
        Superblock { checkpoint: Some(self.name), ..writer.superblock.clone() }
    }

    /// Returns whether there is a sync to do that has not been requested. It needs no turn.
    pub(super) fn needs_sync(&self) -> bool {
        self.unsynced.is_some() && !self.is_asked
    }

    /// Returns whether a sync has been requested or is in progress.
    pub(super) fn is_flushing(&self) -> bool {
        self.unsynced.is_some() && self.is_asked
    }

    /// Returns the next state, after `superblock` was written.
    fn named_by(self, superblock: &Superblock) -> Self {
        let range = UnsyncedRange { offset: superblock.offset(), bytes: SUPERBLOCK_BYTES };
        let named_count = self.named_count + 1;
        Self { named_count, unsynced: Some(range), is_asked: false, ..self }
    }
}

impl Checkpointing {
    /// Takes over the state of the handle's last turn, after turns of other handles; `has_ended`
    /// says whether the last of these has ended in order.
    pub(in crate::store) fn go_on(&mut self, before: &Self, has_ended: bool) {
        self.begun_count = before.begun_count;
        self.finished_count = before.finished_count;
        self.bytes_min = before.bytes_min;
        self.put_off_lsn = before.put_off_lsn;
        self.put_off_free_bytes = before.put_off_free_bytes;
        if has_ended {
            self.replay_checkpoint = before.replay_checkpoint;
            if let Progress::Ending(ending) = before.progress {
                self.progress = Progress::Ending(ending);
            }
        }
    }
}

impl Writer {
    /// Schedules the next checkpoint of handles that take turns. It is derived from the file, so it
    /// does not depend on the number of handles and their lifetimes.
    pub(in crate::store) fn schedule_checkpoint_by_turns(&mut self, region: &Region) {
        self.checkpoints.due_lsn = match &self.checkpoints.progress {
            Progress::Ending(ending) if ending.unsynced.is_some() => u64::MAX,
            Progress::Ending(_) => 0,
            _ => {
                let interval = self.checkpoint_interval(region);
                let due_lsn = self.superblock.checkpoint.map_or(0, |name| name.lsn) + interval;
                let pending_lsn = self.pending_lsn(region);
                let due_lsn = pending_lsn
                    .map_or(due_lsn, |lsn| due_lsn.max(lsn + PENDING_INTERVALS * interval));
                due_lsn.max(self.checkpoints.put_off_lsn)
            }
        };
    }

    /// Returns the place of a pending checkpoint, if there is one.
    fn pending(&self, region: &Region) -> Option<Extent> {
        let mut places = region.live().checkpoint_extents().into_iter().flatten();
        let is_named =
            |place| self.superblock.checkpoint.is_some_and(|name| is_place_of(place, name));
        places.find(|&place| !is_named(place))
    }

    /// Returns the log sequence number of the commit of a pending checkpoint, if there is one; 0 if
    /// it cannot be read.
    fn pending_lsn(&self, region: &Region) -> Option<u64> {
        let offset = self.pending(region)?.granule * GRANULE_BYTES;
        let header = region.view.segment(offset).ok();
        Some(
            header
                .filter(|found| found.kind == SegmentKind::Checkpoint)
                .map_or(0, |it| it.base_lsn),
        )
    }

    /// Returns the offset of the image that is being completed.
    #[cfg(test)]
    fn ending_offset(&self) -> u64 {
        match &self.checkpoints.progress {
            Progress::Ending(ending) => ending.name.offset,
            _ => panic!("there is one"),
        }
    }

    /// Stops completing a checkpoint, and leaves it pending for the next handle that finds it.
    fn leave_pending(&mut self, region: &Region) {
        self.checkpoints.progress = Progress::Idle;
        self.schedule_checkpoint_by_turns(region);
    }
}

impl Store {
    /// Begins the checkpoint that is due, or requests a sync of the log before it. Other handles
    /// wait during a checkpoint within a single turn, so most of the log is synced before, without
    /// a turn, unless that takes too long.
    pub(super) fn checkpoint_due_by_turns(&self, writer: &mut Writer, lsn: u64) -> Result<()> {
        let unsynced_bytes = lsn.saturating_sub(self.region.live().durable_lsn());
        let grace = writer.checkpoint_interval(&self.region) / WALK_SHARE;
        let is_soon = lsn < writer.checkpoints.due_lsn.saturating_add(grace);
        if is_soon && unsynced_bytes > TURN_SYNC_BYTES_MAX && self.is_made_in_turn(writer) {
            if !writer.checkpoints.is_unsynced() {
                writer.checkpoints.progress = Progress::Unsynced { is_asked: false };
            }
            return Ok(());
        }
        self.checkpoint_by_turns(writer)
    }

    /// Returns whether the next checkpoint must be completed within a single turn.
    fn is_made_in_turn(&self, writer: &Writer) -> bool {
        // The first checkpoint of a compacted store: no handle may empty a segment before it is
        // durable.
        let is_first = !writer.superblock.is_compacted && writer.wants_to_compact();
        is_first || writer.pending(&self.region).is_some()
    }

    /// Begins a checkpoint that is completed in a later turn, unless another one is pending.
    fn checkpoint_by_turns(&self, writer: &mut Writer) -> Result<()> {
        if self.is_made_in_turn(writer) {
            return self.checkpoint_in_this_turn(writer);
        }
        if let Some(name) = self.image_in_turn(writer)? {
            writer.checkpoints.progress = Progress::Ending(Ending::of_image(name));
        }
        Ok(())
    }

    /// Writes the image of a checkpoint within a turn.
    fn image_in_turn(&self, writer: &mut Writer) -> Result<Option<CheckpointName>> {
        writer.checkpoints.progress = Progress::Idle;
        let lsn = writer.log.position().lsn;
        if self.region.live().committed().0 < lsn {
            // The log has advanced into a new segment for a change that failed.
            self.commit(writer);
        }
        self.begin_checkpoint(writer, lsn, 1)?;
        self.walk_to_end(writer)?;
        let progress = std::mem::replace(&mut writer.checkpoints.progress, Progress::Idle);
        let Progress::Written { image, .. } = progress else {
            writer.checkpoints.progress = progress;
            return Ok(None);
        };
        Ok(Some(image.name()))
    }

    /// Makes a checkpoint within the present turn, and waits until it is durable.
    pub(in crate::store) fn checkpoint_in_this_turn(&self, writer: &mut Writer) -> Result<()> {
        self.free_pending(writer)?;
        let Some(name) = self.image_in_turn(writer)? else { return Ok(()) };
        let superblock = super::superblock_naming(writer, name);
        self.name_in_this_turn(writer, name, superblock)
    }

    /// Completes the checkpoint in progress of this handle, if any, within the present turn.
    pub(in crate::store) fn end_in_this_turn(&self, writer: &mut Writer) -> Result<()> {
        let Progress::Ending(ending) = writer.checkpoints.progress else { return Ok(()) };
        if !self.is_pending(writer, &ending) {
            writer.leave_pending(&self.region);
            return Ok(());
        }
        let superblock = ending.superblock(writer);
        self.name_in_this_turn(writer, ending.name, superblock)
    }

    /// Syncs an image, and writes and syncs the superblock that names it, within the present turn.
    fn name_in_this_turn(
        &self,
        writer: &mut Writer,
        name: CheckpointName,
        superblock: Superblock,
    ) -> Result<()> {
        writer.checkpoints.progress = Progress::Syncing;
        let made = self.make_durable_in_turn(name, superblock);
        // After an error it is unknown which of the two checkpoints a superblock names: both stay.
        let superblock = made.inspect_err(|error| self.group.fail(error))?;
        self.note_durable_checkpoint(writer, name, superblock)?;
        // Do it now: the next turn would start with new waiting lists.
        self.reuse_emptied(writer);
        Ok(())
    }

    fn make_durable_in_turn(
        &self,
        name: CheckpointName,
        superblock: Superblock,
    ) -> Result<Superblock> {
        let durable_lsn = self.sync_by_turns()?;
        assert!(name.lsn <= durable_lsn, "a checkpoint needs the log before it");
        self.group.note_durable(durable_lsn);
        self.region.sync_range(name.offset, name.bytes)?;
        self.write_naming(superblock)
    }

    /// Frees the place of a pending checkpoint of any handle; or that of the previous checkpoint,
    /// if a superblock names the new one already.
    pub(in crate::store) fn free_pending(&self, writer: &mut Writer) -> Result<()> {
        writer.checkpoints.progress = Progress::Idle;
        let Some(pending_lsn) = writer.pending_lsn(&self.region) else { return Ok(()) };
        // A checkpoint younger than that of the newest superblock was never named by a superblock.
        if writer.superblock.checkpoint.is_none_or(|name| pending_lsn <= name.lsn) {
            // The newest superblock may not be durable, and the older one may name the place that
            // is freed.
            let written = self.write_naming(writer.superblock.clone());
            writer.superblock = written.inspect_err(|error| self.group.fail(error))?;
        }
        release_all_but(&mut writer.extents, writer.superblock.checkpoint);
        Ok(())
    }

    /// Does the sync that a checkpoint by turns waits for. Needs no turn.
    ///
    /// # Errors
    ///
    /// Those of the syncs, which poison the handle.
    pub(crate) fn sync_ending(&self) -> Result<()> {
        let (ending, range) = {
            let mut writer = self.lock()?;
            let Progress::Ending(ending) = &mut writer.checkpoints.progress else { return Ok(()) };
            let Some(range) = ending.unsynced else { return Ok(()) };
            ending.is_asked = true;
            (*ending, range)
        };
        meanwhile::at(Point::BeforeFlush);
        if !mutant::is_made(Mutant::NamesUnsynced) {
            if ending.named_count == 0 {
                self.wait_durable(ending.name.lsn, false)?;
                assert!(ending.name.lsn <= self.group.durable_lsn(), "it needs the log before it");
            }
            // After an error it is unknown which of the two checkpoints a superblock names, so both
            // stay. A concurrent failed sync of another process makes every later turn fail.
            let synced = self.region.sync_range(range.offset, range.bytes);
            synced.inspect_err(|error| self.group.fail(error))?;
        }
        meanwhile::at(Point::BehindFlush);
        let mut writer = self.lock()?;
        // Another thread may have freed or continued it in the meantime.
        if let Progress::Ending(now) = &mut writer.checkpoints.progress
            && (now.name, now.named_count) == (ending.name, ending.named_count)
        {
            now.unsynced = None;
            // Due at once: this handle's next turn continues.
            writer.checkpoints.due_lsn = 0;
        }
        Ok(())
    }

    /// Continues a checkpoint by turns, within a turn, if the sync that it waits for is done.
    pub(super) fn go_on_ending(&self, writer: &mut Writer) -> Result<()> {
        // If it was completed elsewhere, keep the schedule of the next one.
        let Progress::Ending(ending) = writer.checkpoints.progress else { return Ok(()) };
        writer.checkpoints.due_lsn = u64::MAX;
        if ending.unsynced.is_some() {
            return Ok(());
        }
        if !self.is_pending(writer, &ending) {
            writer.leave_pending(&self.region);
            return Ok(());
        }
        let is_both = writer.superblock.is_compacted && !mutant::is_made(Mutant::OneSuperblock);
        if ending.named_count < if is_both { 2 } else { 1 } {
            let naming = ending.superblock(writer);
            let _writing = self.superblock_writes();
            let written = self.region.place_superblock(&naming, false);
            writer.superblock = written.inspect_err(|error| self.group.fail(error))?;
            writer.checkpoints.progress = Progress::Ending(ending.named_by(&writer.superblock));
            return Ok(());
        }
        writer.checkpoints.progress = Progress::Syncing;
        let superblock = writer.superblock.clone();
        self.note_durable_checkpoint(writer, ending.name, superblock)?;
        self.reuse_emptied(writer);
        Ok(())
    }

    /// Returns whether a checkpoint that this handle has begun is still what it was, in a turn: another
    /// handle may have freed its place, and used that again, or have been killed when it had named a newer one
    /// and not freed it yet.
    fn is_pending(&self, writer: &Writer, ending: &Ending) -> bool {
        let (name, named) = (ending.name, writer.superblock.checkpoint);
        let is_newest = match ending.named_count {
            0 => named.is_none_or(|named| named.lsn < name.lsn),
            _ => named == Some(name),
        };
        let mut places = self.region.live().checkpoint_extents().into_iter().flatten();
        let has_place = places.any(|place| is_place_of(place, name));
        let is_same = match self.region.view.segment(name.offset) {
            Ok(found) => found.kind == SegmentKind::Checkpoint && found.salt == name.salt,
            Err(_) => false,
        };
        is_newest && has_place && is_same || mutant::is_made(Mutant::NamesWhatWasFreed)
    }

    /// Goes on in a turn that the program has not asked for.
    fn go_on_in_silence(&self) -> Result<()> {
        let mut writer = self.lock_out_others_in_silence()?;
        if writer.needs_room {
            // As before each change: a store without a block ends the process.
            self.region.require_room()?;
        }
        self.name_process(&mut writer);
        self.go_on_ending(&mut writer)
    }

    /// Does the thread's part of a checkpoint that is whole.
    ///
    /// # Errors
    ///
    /// Those of [`finish_checkpoint`](Self::finish_checkpoint).
    pub(crate) fn finish_in_background(&self) -> Result<()> {
        let sharing = self.turns.as_ref().map(|turns| turns.options.sharing);
        match sharing {
            // The program wants no lock between its calls: the next change has the turn.
            Some(Sharing::PerCall) => self.sync_ending(),
            _ => self.finish_checkpoint(),
        }
    }

    /// Ends a checkpoint by turns, for the thread.
    ///
    /// # Errors
    ///
    /// Those of the syncs, which poison the handle; `Locked` if others do not let it have its turn, and that of
    /// a full disk, after which the next change goes on.
    pub(super) fn finish_by_turns(&self) -> Result<()> {
        loop {
            self.sync_ending()?;
            if !self.lock()?.checkpoints.is_ending() {
                return Ok(());
            }
            self.go_on_in_silence()?;
        }
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::SimDisk;
    use crate::format::READER_TABLE_OFFSET;
    use crate::options::{Durability, Options};
    use crate::recovery::open_file;
    use crate::region::read_superblock;
    use crate::store::Step;
    use crate::table::PutMode;

    fn options() -> Options {
        Options::new().sharing(Sharing::Shared).live_share(0.9)
    }

    /// Opens a store, without threads: what comes between turns is the test's.
    fn open(path: &Path) -> Arc<Store> {
        open_with(path, &options())
    }

    fn open_with(path: &Path, options: &Options) -> Arc<Store> {
        let opened = open_file(path, options).expect("nobody keeps it out");
        Arc::new(Store::new(opened, options))
    }

    fn turn(store: &Store, what: impl FnOnce(&mut Writer)) {
        what(&mut store.lock_for_change().expect("nobody has a turn"));
    }

    /// Overwrites 100 pairs with that many.
    fn put(store: &Store, numbers: std::ops::Range<u32>) {
        for i in numbers {
            turn(store, |writer| {
                let (key, value) = ((i % 100).to_le_bytes(), [i as u8; 1_000]);
                let (mode, durability) = (PutMode::Replace, Durability::Buffered);
                store.put_at_once(writer, &key, &value, mode, durability).expect("it has room");
            });
        }
    }

    fn begin(store: &Store) {
        turn(store, |writer| store.checkpoint_by_turns(writer).expect("nothing fails"));
        assert!(store.lock().expect("nobody panics").checkpoints.is_ending());
    }

    fn go_on(store: &Store) {
        turn(store, |writer| store.go_on_ending(writer).expect("nothing fails"));
    }

    fn named(store: &Store) -> Option<CheckpointName> {
        read_superblock(store.region.storage()).expect("it is one").checkpoint
    }

    fn named_lsn(store: &Store) -> u64 {
        named(store).map_or(0, |name| name.lsn)
    }

    fn waiting_bytes(store: &Store) -> u64 {
        store.lock().expect("nobody panics").waiting_bytes()
    }

    fn place_count(store: &Store) -> usize {
        store.region.live().checkpoint_extents().into_iter().flatten().count()
    }

    /// Two handles of a store that is compacted, the first of which had the last turn.
    fn two(dir: &Path) -> (PathBuf, Arc<Store>, Arc<Store>) {
        let path = dir.join("a");
        let (store, other) = (open(&path), open(&path));
        put(&store, 0..2_000);
        turn(&store, |writer| {
            store.start_compacting(writer);
            store.checkpoint_in_this_turn(writer).expect("nothing fails");
        });
        put(&store, 2_000..4_000);
        (path, store, other)
    }

    /// Recovers a copy of the file from its checkpoint and the log after it, which has the changes up to
    /// `end`.
    fn check(path: &Path, end: u32) {
        let copy = path.with_extension("copy");
        std::fs::copy(path, &copy).expect("it has room");
        let db = options().rebuild_index().open(&copy).expect("what is named is whole");
        for i in end - 100..end {
            let found = db.get((i % 100).to_le_bytes()).expect("nothing fails");
            assert_eq!(found.as_deref(), Some(&[i as u8; 1_000][..]));
        }
    }

    /// Has a checkpoint end, with turns of another handle between all steps.
    fn end_between_the_turns_of_others() {
        let dir = tempfile::tempdir().expect("it has room");
        let (path, store, other) = two(dir.path());
        let (before, emptied) = (named(&store), waiting_bytes(&store));
        assert!(emptied > 0);
        begin(&store);
        let mut end = 4_000;
        for step in 0..2 {
            assert_eq!(named(&store) != before, step > 0);
            store.sync_ending().expect("nothing fails");
            put(&other, end..end + 100);
            go_on(&store);
            end += 100;
            put(&other, end..end + 100);
            end += 100;
            check(&path, end);
            assert_eq!(place_count(&store), 2, "the one before stays");
        }
        store.finish_by_turns().expect("nothing fails");
        assert_eq!(place_count(&store), 1);
        assert!(named_lsn(&other) > before.map_or(0, |name| name.lsn));
        // Not only what this handle has emptied in its last turn.
        assert!(waiting_bytes(&store) < emptied, "{emptied} bytes wait");
        put(&other, end..end + 2_000);
        check(&path, end + 2_000);
        drop((store, other));
    }

    #[test]
    fn a_checkpoint_ends_between_the_turns_of_others() {
        end_between_the_turns_of_others();
    }

    #[test]
    fn a_checkpoint_by_turns_that_one_superblock_names_is_found() {
        let broken = || mutant::with(Mutant::OneSuperblock, end_between_the_turns_of_others);
        assert!(std::panic::catch_unwind(broken).is_err(), "nobody notices");
    }

    #[test]
    fn who_goes_on_with_a_checkpoint_that_has_ended_leaves_the_next_one_due() {
        let dir = tempfile::tempdir().unwrap();
        let (_, store, other) = two(dir.path());
        begin(&store);
        for _ in 0..2 {
            store.sync_ending().unwrap();
            go_on(&store);
        }
        store.sync_ending().unwrap();
        // A change ends it before the thread has its turn.
        go_on(&store);
        assert_eq!(place_count(&store), 1);
        go_on(&store);
        let due_lsn = store.lock().unwrap().checkpoints.due_lsn;
        assert!(due_lsn < named_lsn(&store) + (1 << 30), "never");
        drop(other);
    }

    #[test]
    fn a_checkpoint_on_its_way_stays_when_others_open_the_store() {
        let dir = tempfile::tempdir().unwrap();
        let (path, store, other) = two(dir.path());
        let before = named_lsn(&store);
        begin(&store);
        for _ in 0..3 {
            store.sync_ending().unwrap();
            // The other handles live: nobody was closed in order, and this is a warm restart.
            let third = open(&path);
            put(&third, 4_000..4_100);
            assert_eq!(place_count(&third), 2, "it is freed");
            go_on(&store);
        }
        assert_eq!(place_count(&store), 1);
        assert!(named_lsn(&store) > before);
        put(&other, 4_100..4_200);
        check(&path, 4_200);
    }

    #[test]
    fn processes_that_change_one_pair_each_get_a_checkpoint_made() {
        let is_made = || {
            let dir = tempfile::tempdir().unwrap();
            let (path, ..) = two(dir.path());
            let options = options().sharing(Sharing::PerCall).checkpoint_bytes_min(64 << 10);
            (0..60_u8).any(|i| {
                let db = options.open(&path).unwrap();
                let before = db.stats().unwrap().checkpoint;
                db.put([i % 4], vec![i; 6_000]).unwrap();
                db.close().unwrap();
                // As if it had been closed long ago.
                let file = File::options().write(true).open(&path).unwrap();
                file.write_all_at(&[0; 8], READER_TABLE_OFFSET + 40).unwrap();
                let now = options.open(&path).unwrap().stats().unwrap().checkpoint;
                now != before
            })
        };
        assert!(is_made(), "after 360 kB of log none, of one in 64 KiB");
        assert!(!mutant::with(Mutant::FreesPendingAtOpen, is_made), "nobody notices");
    }

    #[test]
    fn a_close_makes_the_log_durable_for_a_checkpoint_that_is_due() {
        let dir = tempfile::tempdir().unwrap();
        let (path, slow, _) = two(dir.path());
        let store = open_with(&path, &options().durability(Durability::Buffered));
        begin(&slow);
        let mut count = 0;
        while !store.lock().unwrap().checkpoints.is_unsynced() {
            assert!(count < 200_000, "none is due");
            put(&store, count..count + 100);
            count += 100;
        }
        let lsn = store.lock().unwrap().log.position().lsn;
        assert!(store.region.live().durable_lsn() < lsn);
        store.close().unwrap();
        assert!(slow.region.live().durable_lsn() >= lsn, "the next turn has to");
    }

    #[test]
    fn a_writer_syncs_itself_while_the_thread_flushes_an_image() {
        let dir = tempfile::tempdir().unwrap();
        let age_max = Some(Duration::from_nanos(1));
        let store = open_with(&dir.path().join("a"), &options().async_age_max(age_max));
        put(&store, 0..100);
        begin(&store);
        turn(&store, |writer| {
            writer.pace.note_change();
            assert_eq!(store.step(writer), Step::GoOn, "the thread has time");
            writer.checkpoints.set_asked(true);
            assert!(matches!(store.step(writer), Step::Wait(_)));
        });
    }

    #[test]
    fn maintenance_begins_to_compact_beside_a_checkpoint_on_its_way() {
        let maintained = || {
            let dir = tempfile::tempdir().unwrap();
            let store = open(&dir.path().join("a"));
            put(&store, 0..100);
            begin(&store);
            put(&store, 100..2_000);
            let before = store.lock().unwrap().state.dead_bytes;
            assert!(!store.lock().unwrap().superblock.is_compacted, "nothing begins beside it");
            assert!(store.maintain(u64::MAX).unwrap().is_done);
            let writer = store.lock().unwrap();
            (writer.superblock.is_compacted, writer.state.dead_bytes < before / 2)
        };
        assert_eq!(maintained(), (true, true), "nothing is compacted");
        let broken = mutant::with(Mutant::WaitsForPending, maintained);
        assert_eq!(broken, (false, false), "nobody notices");
    }

    #[test]
    fn maintenance_wants_a_checkpoint_for_what_was_emptied_beside_one_on_its_way() {
        let dir = tempfile::tempdir().unwrap();
        let (_, store, other) = two(dir.path());
        begin(&store);
        assert!(!store.lock().unwrap().wants_checkpoint(), "the image has what is emptied");
        put(&store, 4_000..8_000);
        let writer = store.lock().unwrap();
        assert!(writer.checkpoints.is_ending());
        assert!(writer.wants_checkpoint(), "{} bytes wait", writer.waiting_bytes());
        drop(other);
    }

    #[test]
    fn a_thread_does_not_go_on_where_the_file_system_is_full() {
        let disk = SimDisk::new();
        disk.copy_on_write();
        let db = disk.open(&options().durability(Durability::Buffered)).unwrap();
        db.put("key", "value").unwrap();
        let store = db.store();
        begin(store);
        store.sync_ending().unwrap();
        disk.limit_to(0);
        let error = store.finish_by_turns().unwrap_err();
        assert!(crate::storage::failure::is_want_of_room(&error), "{error}");
        assert!(named(store).is_none());
        disk.limit_to(1 << 40);
        store.finish_by_turns().unwrap();
        assert!(named(store).is_some());
    }

    #[test]
    fn the_log_is_synced_before_a_checkpoint_that_is_made_within_a_turn() {
        let dir = tempfile::tempdir().unwrap();
        let (path, store, other) = two(dir.path());
        begin(&store);
        let before = named(&store);
        let due = |writer: &mut Writer| {
            let lsn = writer.log.position().lsn;
            writer.checkpoints.due_lsn = lsn;
            other.advance_checkpoint(writer, lsn);
        };
        put(&other, 4_000..4_001);
        turn(&other, due);
        assert!(other.lock().unwrap().checkpoints.needs_thread());
        assert_eq!(named(&other), before, "4 MB are synced in a turn");
        other.sync().unwrap();
        turn(&other, due);
        assert_ne!(named(&other), before);
        assert_eq!(place_count(&other), 1);
        check(&path, 4_001);
    }

    #[test]
    fn what_no_superblock_names_is_freed_without_a_flush() {
        for (steps, superblock_count) in [(0, 2), (1, 2), (2, 4), (3, 4)] {
            let dir = tempfile::tempdir().unwrap();
            let (_, store, other) = two(dir.path());
            begin(&store);
            for step in 1..=steps {
                if step % 2 == 1 { store.sync_ending().unwrap() } else { go_on(&store) }
            }
            let generation = || read_superblock(store.region.storage()).unwrap().generation;
            let before = generation();
            turn(&other, |writer| other.checkpoint_in_this_turn(writer).unwrap());
            assert_eq!(generation() - before, superblock_count, "after {steps} steps");
        }
    }

    #[test]
    fn a_change_without_room_ends_a_checkpoint_on_its_way() {
        for steps in 0..4 {
            let dir = tempfile::tempdir().unwrap();
            let (path, store, other) = two(dir.path());
            let (before, emptied) = (named_lsn(&store), waiting_bytes(&store));
            begin(&store);
            for step in 1..=steps {
                if step % 2 == 1 { store.sync_ending().unwrap() } else { go_on(&store) }
            }
            turn(&store, |writer| assert!(store.make_room(writer), "{emptied} bytes wait"));
            assert_eq!(place_count(&store), 1);
            assert!(named_lsn(&store) > before && waiting_bytes(&store) < emptied);
            put(&other, 4_000..4_100);
            check(&path, 4_100);
        }
    }

    #[test]
    fn a_checkpoint_that_nobody_ends_is_made_by_whoever_finds_it() {
        for steps in 0..4 {
            let dir = tempfile::tempdir().unwrap();
            let (path, store, other) = two(dir.path());
            begin(&store);
            for step in 1..=steps {
                if step % 2 == 1 { store.sync_ending().unwrap() } else { go_on(&store) }
            }
            let pending = store.region.view.segment(store.lock().unwrap().ending_offset()).unwrap();
            put(&other, 4_000..4_100);
            let due_lsn = other.lock().unwrap().checkpoints.due_lsn;
            assert!(due_lsn > pending.base_lsn + (1 << 20), "not before it may have been made");
            turn(&other, |writer| other.checkpoint_by_turns(writer).unwrap());
            assert_eq!(place_count(&other), 1);
            assert!(named(&other).unwrap().lsn > pending.base_lsn);
            // The one that had begun it goes on, and leaves the new one alone.
            let before = named(&other);
            store.finish_by_turns().unwrap();
            assert_eq!(named(&other), before);
            put(&store, 4_100..6_000);
            check(&path, 6_000);
        }
    }

    /// Its place is still in the live header.
    #[test]
    fn a_checkpoint_is_left_when_another_was_named_by_a_handle_that_was_killed_then() {
        for steps in 2..5 {
            let dir = tempfile::tempdir().unwrap();
            let (path, store, other) = two(dir.path());
            begin(&store);
            for step in 1..=steps {
                if step % 2 == 1 { store.sync_ending().unwrap() } else { go_on(&store) }
            }
            put(&other, 4_000..4_100);
            turn(&other, |writer| {
                other.free_pending(writer).unwrap();
                let name = other.image_in_turn(writer).unwrap().unwrap();
                let superblock = super::super::superblock_naming(writer, name);
                writer.superblock = other.write_naming(superblock).unwrap();
            });
            assert_eq!(place_count(&store), 2);
            let before = named(&other);
            store.finish_by_turns().unwrap();
            assert_eq!(named(&other), before);
            put(&store, 4_100..6_000);
            check(&path, 6_000);
        }
    }

    /// Has another handle free the place of a checkpoint whose image is durable, and use it again.
    fn go_on_after_it_was_freed() {
        let dir = tempfile::tempdir().expect("it has room");
        let (path, store, other) = two(dir.path());
        begin(&store);
        store.sync_ending().expect("nothing fails");
        turn(&other, |writer| {
            other.checkpoint_in_this_turn(writer).expect("nothing fails");
            let freed = store.lock().expect("nobody panics").ending_offset();
            if named(&other).is_some_and(|name| name.offset != freed) {
                let garbage = vec![0xdb; GRANULE_BYTES as usize];
                other.region.storage().write_at(freed, &garbage).expect("it is in the file");
            }
        });
        store.finish_by_turns().expect("it notices");
        put(&other, 4_000..4_100);
        check(&path, 4_100);
    }

    #[test]
    fn a_checkpoint_whose_place_was_freed_is_left() {
        go_on_after_it_was_freed();
    }

    #[test]
    fn a_superblock_that_names_what_was_freed_is_found() {
        let broken = || mutant::with(Mutant::NamesWhatWasFreed, go_on_after_it_was_freed);
        assert!(std::panic::catch_unwind(broken).is_err(), "nobody notices");
    }

    #[test]
    fn a_handle_without_a_lock_between_calls_waits_for_no_flush_of_its_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        let options = options().sharing(Sharing::PerCall).checkpoint_bytes_min(64 << 10);
        let options = options.durability(Durability::Buffered);
        let db = options.open(dir.path().join("a")).unwrap();
        let store = db.store();
        let mut number = 0_u32;
        let mut put_until = |is_done: &dyn Fn(&Writer) -> bool| {
            let begun = Instant::now();
            while !is_done(&store.lock().unwrap()) {
                let waited = begun.elapsed();
                assert!(waited.as_secs() < 60, "a change has done it itself, or nobody does");
                db.put((number % 100).to_le_bytes(), [7; 1_000]).unwrap();
                number += 1;
            }
        };
        // The first one is made within a turn.
        put_until(&|writer| writer.superblock.is_compacted);
        put_until(&|writer| writer.checkpoints.is_idle());
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let wait = move || {
            // Long enough for a change that would wait, which then finds that nobody syncs.
            let _ = ended.recv_timeout(Duration::from_secs(20));
            store.sync_for_all()
        };
        std::thread::scope(|scope| {
            let syncing = scope.spawn(move || store.group.sync_always(wait));
            while !store.group.is_syncing() {
                std::thread::yield_now();
            }
            let before = named_lsn(store);
            put_until(&|writer| writer.checkpoints.is_ending());
            put_until(&|writer| writer.checkpoints.is_flushing());
            assert!(store.group.is_syncing(), "a change waited for a flush");
            end.send(()).unwrap();
            syncing.join().unwrap().unwrap();
            put_until(&|_| named_lsn(store) > before);
        });
    }

    #[test]
    fn handles_make_checkpoints_by_a_thread_or_a_step_with_each_change() {
        for sharing in [Sharing::Shared, Sharing::PerCall] {
            let dir = tempfile::tempdir().unwrap();
            let options = options().sharing(sharing).checkpoint_bytes_min(64 << 10);
            let options = options.durability(Durability::Buffered);
            let db = options.open(dir.path().join("a")).unwrap();
            let mut made = Vec::new();
            let all_made = |i: u32| {
                db.put((i % 100).to_le_bytes(), [7; 1_000]).unwrap();
                std::thread::yield_now();
                let checkpoint = db.stats().unwrap().checkpoint.map(|one| one.log_bytes);
                if checkpoint.is_some() && made.last() != Some(&checkpoint) {
                    made.push(checkpoint);
                }
                // The last one has ended: the place of the one before is free.
                made.len() >= 3 && place_count(db.store()) == 1
            };
            assert!((0..1_000_000).any(all_made), "{sharing:?}");
        }
    }
}
