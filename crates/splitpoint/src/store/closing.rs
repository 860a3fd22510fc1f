//! Marks the tables in the superblock: "not clean" before the first change, "clean" by a close.

use std::sync::MutexGuard;

use super::{Store, Writer};
use crate::error::{Error, Result};
use crate::format::{CheckpointName, LogStart, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS, Superblock};
use crate::options::Access;
use crate::storage::Room;
use crate::testing::meanwhile::{self, Point};
use crate::testing::mutant::{self, Mutant};

/// The state of the mark in the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// "Clean", on a store without a log, of which perhaps nothing is durable.
    New,
    /// "Clean": a close has nothing to write.
    Clean,
    /// "Not clean", perhaps only in the page cache: its writer may have been killed before the
    /// sync.
    NotClean,
    /// "Not clean", and the tables may change. Either the mark is durable, or the clean superblock
    /// that a power loss may restore has checksums, which the next open compares.
    Changing,
}

impl Store {
    /// Marks the store "not clean" before the live tables change. The mark is synced unless the
    /// last close has left checksums: without either, a power loss could leave a clean superblock
    /// over partly changed tables.
    #[cold]
    pub(super) fn begin_changes(&self, writer: &mut Writer) -> Result<()> {
        assert!(self.access == Access::ReadWrite, "only the writer stores to the file");
        assert!(!writer.is_closed, "the last handle closes the store");
        self.group.check()?;
        if !self.region.storage().is_volatile() {
            match writer.find_segments() {
                // Changes are possible without the segments; only compaction is not.
                Err(Error::Corrupt { .. }) if !writer.superblock.is_compacted => {}
                found => found?,
            }
        }
        let head = writer.compacting.as_ref().and_then(|compacting| compacting.rest_of_head());
        let tails = writer.log.rest_of_tail().into_iter().chain(head);
        self.region.storage().forget_claims();
        let room = self.region.claim_stores(tails)?;
        writer.needs_room = room == Room::OfFileSystem;
        // If a step below fails, the next change retries it.
        if writer.mark == Mark::Changing {
            writer.mark = Mark::NotClean;
        }
        if writer.superblock.log_start == LogStart::default() {
            // An empty store that was closed or synced is there to stay.
            let has_nothing_to_lose = self.region.is_unsynced_creation();
            // The reservation below changes the live header. After a kill or a full disk, the next
            // open must not take the changed header for one that was damaged after a clean close.
            // So both copies are first marked "not clean"; the superblocks written below overwrite
            // both again.
            if !mutant::is_made(Mutant::ReservesWhileClean) {
                writer.superblock =
                    self.region.place_both_superblocks(&writer.superblock, has_nothing_to_lose)?;
            }
            self.region.set_identity();
            writer.log.reserve(0, &mut writer.extents)?;
            meanwhile::at(Point::LogReserved);
            let log_start = writer.log.log_start();
            // Sync the segment before a superblock names it: an open treats a missing one as
            // damage.
            self.sync_file()?;
            let superblock = Superblock { log_start, ..writer.superblock.clone() };
            // Write both copies, so that damage to one does not leave one without a log start.
            writer.superblock =
                self.region.place_both_superblocks(&superblock, has_nothing_to_lose)?;
            // Until the first sync, a power loss may leave a store without a log, which is correct
            // because no change is durable yet. The first sync must cover the superblocks; on a
            // handle that takes turns, it covers the whole file.
            let is_volatile = self.region.storage().is_volatile();
            if !is_volatile && !mutant::is_made(Mutant::SyncsWithoutSuperblocks) {
                writer.log.mark_file_unsynced(SUPERBLOCK_OFFSETS[1] + SUPERBLOCK_BYTES);
            }
        } else {
            let has_checksums = writer.mark == Mark::Clean && writer.superblock.index_crc.is_some();
            // If not, the file may be a copy, of which perhaps nothing is durable.
            let is_of_file = self.region.live().is_of_file(self.region.storage().identity());
            if has_checksums && !self.takes_turns() {
                self.region.write_unsynced(&mut writer.superblock, None)?;
                // The first sync must cover the superblocks: nothing else proves that changes
                // followed the close.
                if !mutant::is_made(Mutant::SyncsWithoutSuperblocks) {
                    writer.log.mark_file_unsynced(SUPERBLOCK_OFFSETS[1] + SUPERBLOCK_BYTES);
                }
            } else if is_of_file || !self.takes_turns() {
                self.region.write_superblock(&mut writer.superblock, false)?;
            } else {
                // A sync by turns covers only what comes behind the durable LSN.
                let superblock = self.region.place_superblock(&writer.superblock, false)?;
                self.sync_file()?;
                writer.superblock = superblock;
            }
            if !is_of_file {
                writer.log.mark_file_unsynced(self.region.view.file_bytes());
            }
            self.region.set_identity();
        }
        writer.begun_file_bytes = writer.superblock.file_bytes;
        writer.mark = Mark::Changing;
        if !self.takes_turns() {
            // Ignore an error: without a reserve, deletes may fail on a full disk, but nothing
            // else.
            let _ = self.hold(writer);
        }
        writer.retry_damaged(&self.region);
        Ok(())
    }

    /// Syncs the whole file, of which perhaps nothing is durable yet.
    fn sync_file(&self) -> Result<()> {
        let synced = self.region.sync_range(0, self.region.view.file_bytes());
        // Poison the handle: after a failed sync, a second one that succeeds would prove nothing.
        synced.inspect_err(|error| self.group.fail(error))
    }

    /// Syncs a new store without changes.
    pub(super) fn sync_new(&self, writer: &mut Writer) -> Result<()> {
        if writer.mark == Mark::New {
            self.group.check()?;
            self.sync_file()?;
            writer.mark = Mark::Clean;
        }
        Ok(())
    }

    /// Returns whether all changes of this session are durable, together with the superblock that
    /// preceded them and with the present size of the file.
    fn is_log_durable(&self, writer: &Writer) -> bool {
        let lsn = writer.log.position().lsn;
        // An LSN beyond the durable one means that a sync in progress has taken ranges from the
        // list but has not finished.
        let is_synced = writer.opened_lsn < lsn && lsn <= self.group.durable_lsn();
        is_synced
            && writer.log.unsynced().is_empty()
            && self.region.view.file_bytes() <= writer.begun_file_bytes
    }

    /// Syncs the log, and the index unless the file is small, and marks the store clean. Does
    /// nothing the second time.
    pub(crate) fn close(&self) -> Result<()> {
        if self.access == Access::ReadOnly {
            return Ok(());
        }
        self.refuse_in_fork()?;
        if self.turns.is_some() {
            return self.close_by_turns();
        }
        self.pack_at_close();
        let mut writer = self.lock()?;
        if writer.is_closed {
            return Ok(());
        }
        writer.is_closed = true;
        // A poisoned handle must not store anything, not even to free what was set aside.
        self.group.check()?;
        if self.region.claim_live().is_ok() {
            self.region.live().clear_pid();
        }
        self.sync_new(&mut writer)?;
        assert_ne!(writer.mark, Mark::New, "a new store is durable before it is called clean");
        if writer.mark == Mark::Clean {
            // If the store has a reserve, keep all blocks: this session has not determined which of
            // them are in the reserve.
            if writer.is_maintained
                && (self.needs(&writer).is_none() || mutant::is_made(Mutant::GivesReserveBack))
            {
                // The open has filled holes, so that stores beside them find their blocks; punch
                // them again.
                let _ = writer.extents.shrink(true);
            }
            return Ok(());
        }
        drop(writer);
        self.compact_at_close()?;
        let mut writer = self.lock()?;
        // The log may have advanced without a commit, into a new segment for a change that failed.
        self.commit(&mut writer);
        let kept = writer.end_checkpoints();
        let Writer { log, extents, .. } = &mut *writer;
        log.release_next(extents);
        extents.let_go_of_end();
        let _ = self.hold(&mut writer);
        let Writer { extents, .. } = &mut *writer;
        extents.trim();
        extents.note_table_crc();
        self.call_clean(writer, kept)
    }

    /// Syncs the changes of this session, and marks the superblock clean. It names the checkpoint
    /// that is kept and, for a small store, has a checksum of the index.
    fn call_clean<'a>(
        &'a self,
        mut writer: MutexGuard<'a, Writer>,
        kept: Option<CheckpointName>,
    ) -> Result<()> {
        let lsn = writer.log.position().lsn;
        let had_checkpoint = writer.superblock.checkpoint.is_some();
        writer.superblock.checkpoint = kept;
        // No checksum if a checkpoint was named: the durable copy, which a power loss may restore,
        // must not name a checkpoint that is freed now.
        let crc_of_small = || self.region.index_crc_to_close_with(&writer.superblock);
        let index_crc = if had_checkpoint { None } else { crc_of_small() };
        if index_crc.is_none() || !self.is_log_durable(&writer) {
            let written = writer.written();
            self.group.set_syncing_since(writer.pace.begin_sync(written));
            drop(writer);
            // Sync log and index together: clean pages cost nothing, and one flush is enough.
            self.group.sync_always(|| {
                let bytes = self.region.view.file_bytes();
                self.region.sync_range(0, bytes)?;
                self.region.live().set_durable_lsn(lsn);
                Ok(lsn)
            })?;
            writer = self.lock()?;
        }
        assert_eq!(writer.log.position().lsn, lsn, "nobody changes a store while it is closed");
        assert!(lsn <= self.group.durable_lsn(), "what is called clean is durable");
        writer.superblock.may_be_lost = false;
        match index_crc {
            // Pages of the index that are not durable are detected by its checksum.
            Some(_) => self.region.write_unsynced(&mut writer.superblock, index_crc)?,
            None => self.region.write_superblock(&mut writer.superblock, true)?,
        }
        // No huge page is dirty now, so split them: the next session may change little.
        self.region.storage().split_huge_pages(None);
        // Ignore an error: space that is not freed now is reused by the next session.
        let _ = writer.extents.shrink(writer.is_maintained);
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::atomic::kill_points::observe;
    use crate::{Durability, Options, Recovery, Sharing, SimDisk};

    /// Returns what a nearly full disk has left before and after the close of a session that only maintains,
    /// which finds nothing to do. The segments are as large as what goes back to such a disk as a whole.
    fn free_around_a_close() -> (u64, u64) {
        let options = Options::new().segment_bytes_min(2 << 20);
        let disk = SimDisk::new();
        let open = || disk.open(&options).expect("nothing fails");
        let db = open();
        let put = |i: u8| db.put([i], vec![i; 500_000]).expect("there is room");
        (0..80).for_each(put);
        disk.limit_to(disk.file().len() as u64 + (40 << 20));
        (80..90).for_each(put);
        assert!(db.store().lock().expect("nothing fails").extents.is_anything_held());
        db.close().expect("nothing fails");
        let free_bytes = |store: &Store| store.region.storage().free_bytes().expect("it is known");
        let db = open();
        let before = free_bytes(db.store());
        {
            let mut writer = db.store().lock().expect("nothing fails");
            writer.is_maintained = true;
            assert_eq!(writer.mark, Mark::Clean);
        }
        db.close().expect("nothing fails");
        (before, free_bytes(open().store()))
    }

    #[test]
    fn a_close_after_maintenance_alone_keeps_what_deletes_may_need() {
        let (before, after) = free_around_a_close();
        assert_eq!(after, before);
    }

    #[test]
    fn a_close_that_gives_back_what_deletes_may_need_is_found() {
        let (before, after) = mutant::with(Mutant::GivesReserveBack, free_around_a_close);
        assert!(after > before, "{after} {before}");
    }

    fn buffered(sharing: Sharing) -> Options {
        Options::new().sharing(sharing).durability(Durability::Buffered).seed(1)
    }

    /// Returns how often a session flushes that makes one change and closes the store.
    fn flush_count(disk: &SimDisk, durability: Durability) -> usize {
        let before = disk.syncs().len();
        let db = disk.open(&buffered(Sharing::Exclusive)).expect("it opens");
        db.put_with("key", "value", durability).expect("there is room");
        db.close().expect("nothing fails");
        disk.syncs().len() - before
    }

    #[test]
    fn a_session_of_one_change_flushes_once_and_the_first_one_twice() {
        for durability in [Durability::Buffered, Durability::Sync] {
            let disk = SimDisk::new();
            assert_eq!(flush_count(&disk, durability), 2, "{:?}", disk.syncs());
            assert_eq!(flush_count(&disk, durability), 1, "{:?}", disk.syncs());
            assert_eq!(flush_count(&disk, durability), 1, "{:?}", disk.syncs());
            let db = disk.open(&buffered(Sharing::Exclusive)).unwrap();
            assert_eq!((db.recovery(), db.len()), (Recovery::Clean, 1));
        }
    }

    #[test]
    fn the_first_change_of_a_store_that_was_closed_empty_flushes_four_times() {
        let disk = SimDisk::new();
        disk.open(&buffered(Sharing::Exclusive)).unwrap().close().unwrap();
        let db = disk.open(&buffered(Sharing::Exclusive)).unwrap();
        let before = disk.syncs().len();
        db.put("key", "value").unwrap();
        assert_eq!(disk.syncs().len() - before, 4, "{:?}", disk.syncs());
    }

    #[test]
    fn a_session_of_a_large_store_flushes_for_each_of_its_marks_as_well() {
        let disk = SimDisk::new();
        let db = disk.open(&buffered(Sharing::Exclusive)).unwrap();
        (0..100_u32).for_each(|i| db.put(i.to_le_bytes(), vec![7; 20_000]).unwrap());
        db.close().unwrap();
        for _ in 0..3 {
            assert_eq!(flush_count(&disk, Durability::Buffered), 3, "{:?}", disk.syncs());
        }
    }

    /// Returns whether the first change of a session syncs the whole file of a store of 2 MB.
    fn is_all_synced(disk: &SimDisk, sharing: Sharing) -> bool {
        let db = disk.open(&buffered(sharing)).expect("it opens");
        assert_eq!(db.recovery(), Recovery::Clean);
        let file_bytes = disk.file().len() as u64;
        db.put_with("key", "value", Durability::Sync).expect("there is room");
        disk.syncs().iter().any(|(_, range)| range.start == 0 && file_bytes <= range.end)
    }

    #[test]
    fn the_first_sync_of_a_file_that_may_be_a_copy_covers_all_of_it() {
        let all = [Sharing::Exclusive, Sharing::Shared, Sharing::PerCall];
        let disk = SimDisk::new();
        let db = disk.open(&buffered(Sharing::Exclusive)).unwrap();
        (0..100_u32).for_each(|i| db.put(i.to_le_bytes(), vec![7; 20_000]).unwrap());
        db.close().unwrap();
        for sharing in all {
            let next_boot = disk.lose_power(u64::MAX);
            assert!(is_all_synced(&next_boot, sharing), "{sharing:?}");
            let own = SimDisk::with_file(&disk.file());
            assert!(!is_all_synced(&own, sharing), "{sharing:?}, its own file");
        }
    }

    /// Its index is not in a file.
    #[test]
    fn a_table_in_memory_for_many_records_is_closed() {
        let db = Options::new().expected_records(100_000).in_memory().unwrap();
        db.put("key", "value").unwrap();
        assert!(db.close().unwrap());
    }

    /// The handles of turns say "not clean" durably.
    #[test]
    fn a_store_that_was_closed_small_goes_on_by_turns() {
        for sharing in [Sharing::Shared, Sharing::PerCall] {
            let disk = SimDisk::new();
            flush_count(&disk, Durability::Buffered);
            let db = disk.open(&buffered(sharing)).unwrap();
            db.put("second", "value").unwrap();
            for seed in 0..64 {
                let found = disk.lose_power(seed).open(&buffered(sharing)).unwrap();
                assert!(found.contains("key").unwrap(), "{sharing:?}, seed {seed}");
                assert!(found.check().unwrap().is_clean(), "{sharing:?}, seed {seed}");
            }
        }
    }

    /// Returns whether one copy of the superblock is valid and durable, so that no torn write of the other one
    /// loses the store.
    fn has_durable_superblock(disk: &SimDisk) -> bool {
        let (durable, cached) = (disk.lose_power(0).file(), disk.file());
        SUPERBLOCK_OFFSETS.iter().any(|&at| {
            let block = at as usize..(at + SUPERBLOCK_BYTES) as usize;
            durable.get(block.clone()) == cached.get(block.clone())
                && Superblock::decode(&cached[block]).is_ok()
        })
    }

    /// Sessions of which every call fails once, in files of which a copy of the superblock is torn, or none.
    #[test]
    fn one_superblock_is_valid_and_durable_whatever_fails() {
        for session_count in 1..4 {
            let disk = SimDisk::new();
            for _ in 0..session_count {
                flush_count(&disk, Durability::Buffered);
            }
            let closed = disk.lose_power(u64::MAX).file();
            for torn in [None, Some(0), Some(1)] {
                let mut file = closed.clone();
                if let Some(copy) = torn {
                    file[SUPERBLOCK_OFFSETS[copy] as usize + 100] ^= 1;
                }
                for (call, errno) in (1..80).flat_map(|call| [(call, 5), (call, 28)]) {
                    let disk = SimDisk::with_file(&file);
                    disk.fail_once(call, crate::SimFault::Error(errno));
                    if let Ok(db) = disk.open(&buffered(Sharing::Exclusive)) {
                        let _ = db.put_with("second", "value", Durability::Sync);
                        let _ = db.set_application_data([7; 16]);
                        let _ = db.close();
                    }
                    let what = format!("{session_count} sessions, {torn:?} torn, call {call}");
                    assert!(has_durable_superblock(&disk), "{what}, error {errno}");
                }
            }
        }
    }

    /// Only the handle that has created it thinks that there is nothing to lose.
    #[test]
    fn an_empty_store_that_another_handle_by_turns_has_synced_is_there_to_stay() {
        for sharing in [Sharing::Shared, Sharing::PerCall] {
            let disk = Rc::new(SimDisk::with_locks());
            let creator = disk.open_beside(&buffered(sharing)).unwrap();
            disk.open_beside(&buffered(sharing)).unwrap().sync().unwrap();
            let machine = disk.clone();
            let look = move || assert!(has_durable_superblock(&machine));
            observe(look, || creator.put("key", "value")).unwrap();
        }
    }

    /// Handles by turns write one in a turn and sync it between turns.
    #[test]
    fn a_superblock_that_nobody_has_synced_is_synced_before_the_other_copy_is_written() {
        let disk = SimDisk::new();
        flush_count(&disk, Durability::Buffered);
        let db = disk.open(&buffered(Sharing::Exclusive)).unwrap();
        db.put_with("second", "value", Durability::Sync).unwrap();
        let region = &db.store().region;
        let mut superblock = db.store().lock().unwrap().superblock.clone();
        for is_synced in [false, true] {
            superblock = region.place_superblock(&superblock, false).unwrap();
            let own = superblock.offset();
            if is_synced {
                region.sync_range(own, SUPERBLOCK_BYTES).unwrap();
            }
            let before = disk.syncs().len();
            region.write_superblock(&mut superblock, false).unwrap();
            let syncs: Vec<u64> =
                disk.syncs()[before..].iter().map(|(_, range)| range.start).collect();
            let other = superblock.offset();
            let expected = if is_synced { vec![other] } else { vec![own, other] };
            assert!(own != other && syncs == expected, "{own} {other} {syncs:?}");
        }
    }

    /// A superblock that was written meanwhile has the new size, which its sync need not make durable.
    #[test]
    fn a_close_relies_on_no_size_that_is_not_durable() {
        let disk = SimDisk::new();
        flush_count(&disk, Durability::Buffered);
        let db = disk.open(&buffered(Sharing::Exclusive)).unwrap();
        (0..3000_u32).for_each(|i| db.put(i.to_le_bytes(), "").unwrap());
        db.set_application_data([7; 16]).unwrap();
        db.put_with("last", "value", Durability::Sync).unwrap();
        db.close().unwrap();
        for seed in (0..200).chain([u64::MAX]) {
            let found = disk.lose_power(seed).open(&buffered(Sharing::Exclusive)).unwrap();
            assert_eq!(found.len(), 3002, "seed {seed}");
        }
    }

    /// Only a file that was made to harm has no log and was closed so.
    #[test]
    fn a_store_without_a_log_that_calls_its_superblock_unsynced_begins_one() {
        let disk = SimDisk::new();
        disk.open(&buffered(Sharing::Exclusive)).unwrap().close().unwrap();
        let mut file = disk.file();
        for at in SUPERBLOCK_OFFSETS {
            let block = &mut file[at as usize..(at + SUPERBLOCK_BYTES) as usize];
            if let Ok(superblock) = Superblock::decode(block) {
                block.copy_from_slice(&Superblock { may_be_lost: true, ..superblock }.encode());
            }
        }
        let disk = SimDisk::with_file(&file);
        flush_count(&disk, Durability::Sync);
        assert_eq!(disk.lose_power(0).open(&buffered(Sharing::Exclusive)).unwrap().len(), 1);
    }

    /// Returns whether a change is there that a new store has synced, after each of some power losses.
    fn is_first_sync_kept(sharing: Sharing) -> bool {
        let disk = SimDisk::new();
        let db = disk.open(&buffered(sharing)).expect("a new store");
        db.put("key", "value").expect("there is room");
        db.sync().expect("nothing fails");
        (0..64).all(|seed| {
            let found = disk.lose_power(seed).open(&buffered(sharing)).expect("it opens");
            found.contains("key").expect("it can be read")
        })
    }

    #[test]
    fn the_first_sync_of_a_new_store_covers_its_superblocks() {
        for sharing in [Sharing::Exclusive, Sharing::Shared, Sharing::PerCall] {
            assert!(is_first_sync_kept(sharing), "{sharing:?}");
        }
        let broken = || is_first_sync_kept(Sharing::Exclusive);
        assert!(!mutant::with(Mutant::SyncsWithoutSuperblocks, broken), "nobody notices");
    }

    /// What has reached the disk of its superblocks, index and log, nobody knows.
    #[test]
    fn a_new_store_opens_after_a_power_loss_before_its_first_sync() {
        for sharing in [Sharing::Exclusive, Sharing::Shared] {
            for key_count in [1, 40, 600_u32] {
                let disk = SimDisk::new();
                let db = disk.open(&buffered(sharing)).unwrap();
                (0..key_count).for_each(|i| db.put(i.to_le_bytes(), [7; 20]).unwrap());
                for seed in (0..200).chain([u64::MAX]) {
                    let disk = disk.lose_power(seed);
                    let found = disk.open(&buffered(sharing)).unwrap();
                    let kept = found.len();
                    assert!(found.check().unwrap().is_clean());
                    let is_prefix =
                        |i: u32| found.contains(i.to_le_bytes()).unwrap() == (u64::from(i) < kept);
                    assert!((0..key_count).all(is_prefix), "{sharing:?}, seed {seed}");
                    found.put("more", "value").unwrap();
                    found.sync().unwrap();
                    let found = disk.lose_power(seed).open(&buffered(sharing)).unwrap();
                    assert_eq!(found.len(), kept + 1, "{sharing:?}, seed {seed}");
                }
            }
        }
    }

    /// Returns the file without what was not synced, each copy of its superblock damaged in turn.
    fn with_one_superblock(disk: &SimDisk) -> [SimDisk; 2] {
        SUPERBLOCK_OFFSETS.map(|offset| {
            let mut file = disk.lose_power(0).file();
            file[offset as usize + 100] ^= 1;
            SimDisk::with_file(&file)
        })
    }

    /// The first handle is killed between its first superblocks and its first record.
    #[test]
    fn both_superblocks_know_of_a_log_that_a_killed_process_began_without_a_record() {
        for sharing in [Sharing::Exclusive, Sharing::Shared, Sharing::PerCall] {
            let disk = SimDisk::new();
            let db = disk.open(&buffered(sharing)).unwrap();
            assert!(!db.delete("none").unwrap());
            let killed = disk.kill();
            let db = killed.open(&buffered(sharing)).unwrap();
            db.put_with("key", "value", Durability::Sync).unwrap();
            for copy in with_one_superblock(&killed) {
                let found = copy.open(&buffered(sharing)).unwrap();
                assert!(found.contains("key").unwrap(), "{sharing:?}");
            }
        }
    }

    /// The cache has both as they should be, and thinks that the disk has them too.
    #[test]
    fn both_superblocks_know_of_the_log_after_a_first_sync_that_failed() {
        for sharing in [Sharing::Exclusive, Sharing::Shared, Sharing::PerCall] {
            for call in 1..12 {
                let disk = SimDisk::new();
                let db = disk.open(&buffered(sharing)).unwrap();
                db.put("key", "value").unwrap();
                disk.fail_once(call, crate::SimFault::Error(5));
                let _ = db.sync();
                let killed = disk.kill();
                let db = killed.open(&buffered(sharing)).unwrap();
                db.put_with("key", "value", Durability::Sync).unwrap();
                for copy in with_one_superblock(&killed) {
                    let found = copy.open(&buffered(sharing)).unwrap();
                    assert!(found.contains("key").unwrap(), "{sharing:?}, call {call}");
                }
            }
        }
    }

    /// Whatever of the first session has reached the disk.
    #[test]
    fn both_superblocks_know_of_the_log_after_a_power_loss_before_the_first_sync() {
        for sharing in [Sharing::Exclusive, Sharing::Shared, Sharing::PerCall] {
            let disk = SimDisk::new();
            let db = disk.open(&buffered(sharing)).unwrap();
            db.put("key", "value").unwrap();
            for seed in (0..64).chain([u64::MAX]) {
                let lost = disk.lose_power(seed);
                let db = lost.open(&buffered(sharing)).unwrap();
                db.put_with("other", "value", Durability::Sync).unwrap();
                for copy in with_one_superblock(&lost) {
                    let found = copy.open(&buffered(sharing)).unwrap();
                    assert!(found.contains("other").unwrap(), "{sharing:?}, seed {seed}");
                }
            }
        }
    }
}
