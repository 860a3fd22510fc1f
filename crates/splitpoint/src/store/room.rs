//! Room: reuses emptied segments, and makes room for a change that found none.
//!
//! [`Compaction::take_reusable`](crate::compaction::Compaction::take_reusable) decides whether a
//! segment may be reused.

use std::ops::Range;

use super::compacting::SLICE_BYTES;
use super::{Store, Writer};
use crate::compaction::{Compaction, Moment};
use crate::error::{Error, Result};
use crate::region::Region;
use crate::storage::failure::is_want_of_room;
use crate::storage::reader_table::{OtherReaders, PublishedMoment};
use crate::testing::mutant::{self, Mutant};

/// Number of polls of the pins, after which waiting segments are left waiting.
pub(super) const LOOKS_AT_PINS: u32 = 4;
/// Number of ranges whose pages the system does not take back, after which the background thread
/// ends its round.
const UNCOOLED_MAX: usize = 16;
/// Largest number of freed segments whose pages a turn releases: each may take the file system
/// milliseconds, while every other handle waits. The others keep their pages for the next segments.
const COOLED_IN_TURN_MAX: usize = 4;
/// Largest number of steps of [`PastMoments`](crate::moments::PastMoments) at a time: as many as a
/// round needs if nothing is pinned.
const STEPS_PER_LOOK: u32 = 3;
/// Largest number of bytes of victims that a change reads to make room in a full table.
const ROOM_BYTES_MAX: u64 = 4 << 20;

impl Store {
    /// Retries a change that found no room, if compaction can make some, by reusing an emptied
    /// segment or emptying a victim. So deletes still work in a full table.
    ///
    /// This may move records, so the caller must look up its keys again.
    #[cold]
    #[inline(never)]
    pub(super) fn after_room<T>(
        &self,
        writer: &mut Writer,
        error: Error,
        again: impl Fn(&mut Writer) -> Result<T>,
    ) -> Result<T> {
        if !is_want_of_room(&error) || writer.compacting.is_none() || !self.make_room(writer) {
            return Err(error);
        }
        again(writer)
    }

    /// Frees at least one segment, if possible. Returns whether it did.
    pub(super) fn make_room(&self, writer: &mut Writer) -> bool {
        if self.group.check().is_err() {
            return false;
        }
        let free_before = writer.extents.free_bytes();
        self.reuse_emptied(writer);
        if let Some(compacting) = &mut writer.compacting {
            compacting.state.forget_recent_live();
        }
        if !self.region.storage().is_volatile() {
            // Complete a pending checkpoint by turns now; it would otherwise only advance with the
            // next successful change. Ignore an error: that of a sync has poisoned the handle.
            let _ = self.group.check().and_then(|()| self.end_in_this_turn(writer));
            // Segments emptied from now on wait for the checkpoint after this one.
            writer.hurry_checkpoint();
            return writer.extents.free_bytes() > free_before;
        }
        let mut read_bytes = 0;
        while writer.extents.free_bytes() <= free_before && read_bytes < ROOM_BYTES_MAX {
            // Each poll advances the grace periods by one step.
            match self.compact(writer, SLICE_BYTES) {
                Ok(0) | Err(_) => break,
                Ok(bytes) => read_bytes += bytes,
            }
            self.reuse_emptied(writer);
        }
        for _ in 0..LOOKS_AT_PINS {
            self.reuse_emptied(writer);
        }
        writer.extents.free_bytes() > free_before
    }

    /// Frees the emptied segments that nobody reads any more.
    pub(super) fn reuse_emptied(&self, writer: &mut Writer) {
        if let Some(others) = &self.others {
            others.ask_again();
        }
        self.reuse_some(writer, usize::MAX);
    }

    /// Frees up to `count_max` emptied segments that nobody reads any more.
    pub(super) fn reuse_some(&self, writer: &mut Writer, count_max: usize) {
        let Writer {
            compacting: Some(compacting),
            extents,
            state,
            log,
            checkpoints,
            hopeless_dead_bytes,
            ..
        } = writer
        else {
            return;
        };
        if !compacting.state.is_any_waiting() || self.group.check().is_err() {
            return;
        }
        let pins = &self.region.pins;
        compacting.state.note_past(self.horizons.past(), || pins.ticket());
        let oldest = self.others.as_deref().and_then(OtherReaders::oldest_moment);
        let held_since = oldest.map(|oldest| oldest.since);
        let (unpinned, past_moments) =
            self.look_at_moments(&mut compacting.state, pins.poll(), held_since);
        let past_horizon = compacting.state.past_horizon(unpinned);
        let moment = if self.region.storage().is_volatile() {
            Moment::in_memory(unpinned, past_horizon)
        } else {
            Moment {
                durable_lsn: self.group.durable_lsn(),
                replay_checkpoint: checkpoints.replay_checkpoint,
                unpinned,
                past_horizon,
                past_moments,
            }
        };
        let live_bytes = compacting.movable_bytes(state.live_bytes);
        let segment_bytes = log.next_segment_bytes(&self.region);
        let least_held = self.least_held(oldest.as_ref());
        if least_held.is_some() {
            compacting.state.note_looked_back();
        }
        if let Some(least_bytes) = least_held
            && compacting.state.is_much_waiting(least_bytes)
        {
            self.horizons.evict(|horizon| compacting.state.held_bytes(&moment, horizon));
            self.evict_moments(|bytes_max| compacting.state.least_since(&moment, bytes_max));
        }
        // Punching may wait for the journal of the file system, for milliseconds.
        let is_cooled_by_thread =
            self.region.storage().may_sync_in_background() && self.turns.is_none();
        let (mut is_any_freed, mut cooled_count) = (false, 0);
        for _ in 0..count_max {
            let Some((segment, is_big)) = compacting.state.take_reusable(&moment) else { break };
            is_any_freed = true;
            extents.end_segment(segment.start, is_big);
            if compacting.is_poisoned {
                poison(&self.region, &segment);
            }
            let warm_bytes_max = compacting.state.warm_bytes_max(live_bytes, segment_bytes);
            let is_cooled_enough = self.turns.is_some()
                && cooled_count >= COOLED_IN_TURN_MAX
                && !mutant::is_made(Mutant::CoolsAllInTurn);
            let warm_bytes_max = if is_cooled_enough { u64::MAX } else { warm_bytes_max };
            extents.set_warm_bytes_max(warm_bytes_max, is_cooled_by_thread);
            cooled_count += usize::from(extents.release_segment(segment));
        }
        if !is_any_freed {
            compacting.state.note_peak(&moment, live_bytes);
        }
        checkpoints.is_excess |= is_any_freed && extents.has_excess();
        if is_any_freed {
            // Space was freed, so regaining may succeed now, even with fewer dead bytes.
            *hopeless_dead_bytes = 0;
        }
        if is_any_freed && extents.is_reserve_short() {
            // Refill the reserve before another use takes the freed space.
            let _ = self.hold(writer);
        }
    }
}

impl Store {
    /// Returns pages of free space to the system, for the background thread: those in excess, and
    /// those that a killed process has left behind. Works from the end of the file to its
    /// beginning, and skips ranges that the system does not take back. Punches without holding the
    /// writer's lock. Calls `go_on` before each range and stops when it returns `false`.
    pub(crate) fn cool_excess(&self, mut go_on: impl FnMut() -> bool) -> Result<()> {
        if self.turns.is_some() {
            return Ok(());
        }
        {
            let writer = &mut *self.lock()?;
            // Reset the flag first: space freed from now on may lie behind the point that this
            // round has reached, and then needs another round.
            writer.checkpoints.is_excess = false;
            // After a replay the reserve is not held yet: take it now, so that the blocks that
            // deletes need are not punched out.
            let _ = self.hold(writer);
        }
        let (mut end, mut uncooled_count) = (u64::MAX, 0);
        while go_on() {
            let mut writer = self.lock()?;
            // A store to the free-space list of a file that can no longer be written may raise a
            // signal.
            self.group.check()?;
            let is_over = uncooled_count >= UNCOOLED_MAX;
            let excess = if is_over { None } else { writer.extents.take_excess(end) };
            let is_excess = excess.is_some();
            let inherited = || if is_over { None } else { writer.extents.take_inherited() };
            let Some(range) = excess.or_else(inherited) else {
                writer.extents.leave_excess();
                break;
            };
            drop(writer);
            let cooled = self.region.storage().punch(range.start, range.end - range.start);
            uncooled_count += usize::from(cooled.is_err());
            if is_excess {
                end = range.start;
            }
            let mut writer = self.lock()?;
            self.group.check()?;
            // It is unknown whether inherited ranges have pages, so they count as released either
            // way.
            writer.extents.release_cool(range, !is_excess || cooled.is_ok());
        }
        Ok(())
    }

    /// Advances the view of the moments of other processes as far as the grace periods allow.
    /// Returns the ticket below which all grace periods are over, and the log sequence number below
    /// which no moment needs an emptied segment. `held_since` is the oldest moment that holds space
    /// back.
    fn look_at_moments(
        &self,
        state: &mut Compaction,
        mut unpinned: u64,
        held_since: Option<u64>,
    ) -> (u64, u64) {
        let Some(others) = self.others.as_deref().filter(|others| others.may_look_back()) else {
            return (unpinned, u64::MAX);
        };
        let (committed, _) = self.region.live().committed();
        let oldest = || others.oldest_moment().map(|oldest| oldest.since);
        let pins = &self.region.pins;
        for _ in 0..STEPS_PER_LOOK {
            if !state.step_past_moments(unpinned, committed, held_since, oldest, || pins.ticket()) {
                break;
            }
            unpinned = pins.poll();
        }
        (unpinned, state.past_moments())
    }

    /// Returns the smallest number of bytes that any open moment may hold back: those of this
    /// process, and the oldest of another process. `None` if no moment is open.
    fn least_held(&self, oldest: Option<&PublishedMoment>) -> Option<u64> {
        let own = self.horizons.is_any_open().then(|| self.pin_bytes_min());
        own.into_iter().chain(oldest.map(|oldest| oldest.bytes_max)).min()
    }

    /// Evicts the oldest moments of other processes, as long as they hold back more bytes than they
    /// may. `least_since` returns the oldest moment that holds back no more than a number of bytes.
    fn evict_moments(&self, least_since: impl Fn(u64) -> u64) {
        let Some(others) = self.others.as_deref() else { return };
        // A file system that has failed may answer a store to the table with a signal.
        if self.region.health().check().is_err() {
            return;
        }
        let (committed, _) = self.region.live().committed();
        while let Some(oldest) = others.oldest_moment() {
            let until = least_since(oldest.bytes_max).min(committed);
            if until <= oldest.since {
                break;
            }
            others.evict(&oldest, until);
        }
    }
}

/// Overwrites freed space, so that a test which still reads it fails.
fn poison(region: &Region, segment: &Range<u64>) {
    let bytes = vec![0xdb; (segment.end - segment.start) as usize];
    let _ = region.storage().write_at(segment.start, &bytes);
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::SimDisk;
    use crate::options::{Durability, Options, Sharing};
    use crate::recovery::open_file;
    use crate::table::PutMode;

    /// Makes many segments wait for a checkpoint, writes the checkpoint in a turn, and returns what
    /// percentage of the freed bytes keeps its pages.
    fn warm_share_after_a_checkpoint_in_a_turn() -> u64 {
        const WAITING_BYTES: u64 = 4 << 20;
        let dir = tempfile::tempdir().expect("nothing fails");
        let options = Options::new().sharing(Sharing::Shared);
        let opened = open_file(&dir.path().join("a"), &options).expect("nobody keeps it out");
        let store = Arc::new(Store::new(opened, &options));
        store.link_keeper();
        let share = (0_u32..100_000).find_map(|i| {
            let mut writer = store.lock_for_change().expect("nobody has a turn");
            let (key, value) = ((i % 100).to_le_bytes(), [7; 1_000]);
            let (mode, durability) = (PutMode::Replace, Durability::Buffered);
            let put = store.put_at_once(&mut writer, &key, &value, mode, durability);
            put.expect("nothing fails");
            let (waited, warm) = (writer.waiting_bytes(), writer.extents.warm_bytes());
            if waited < WAITING_BYTES {
                return None;
            }
            store.checkpoint_in_this_turn(&mut writer).expect("nothing fails");
            // Each poll advances the grace periods by one step.
            for _ in 0..LOOKS_AT_PINS {
                store.reuse_emptied(&mut writer);
            }
            let freed = waited - writer.waiting_bytes();
            assert!(freed >= WAITING_BYTES / 2, "{freed} bytes: nobody looks at it");
            Some(writer.extents.warm_bytes().saturating_sub(warm) * 100 / freed)
        });
        store.stop_keeper();
        store.close().expect("nothing fails");
        share.expect("so much waits after so many changes")
    }

    #[test]
    fn a_turn_gives_few_of_the_segments_back_that_it_frees() {
        assert!(warm_share_after_a_checkpoint_in_a_turn() > 50);
    }

    #[test]
    fn a_turn_that_gives_all_back_that_it_frees_is_found() {
        let share = mutant::with(Mutant::CoolsAllInTurn, warm_share_after_a_checkpoint_in_a_turn);
        assert!(share < 50, "{share} %");
    }

    /// Deletes a seventh of the live records, then has no room or enough, and returns how many
    /// bytes the next changes move.
    fn moved_after_deletes(is_full: bool) -> u64 {
        const KEYS: u32 = 2_000;
        let options = Options::new().seed(1).durability(Durability::Buffered).live_share(0.9);
        let db = SimDisk::new().open(&options.segment_bytes_min(4096)).expect("a new store");
        let put = |i: u32| db.put(i.to_le_bytes(), [7; 300]).expect("it has room");
        (0..KEYS).chain(0..KEYS / 4).for_each(put);
        db.maintain(u64::MAX).expect("it has room");
        let moved_bytes = || db.store().lock().expect("nobody panics").moved_bytes();
        let before = moved_bytes();
        assert_ne!(before, 0, "it is compacted");
        for i in (0..KEYS).filter(|i| i % 7 == 3) {
            assert!(db.delete(i.to_le_bytes()).expect("it has room"));
        }
        assert_eq!(moved_bytes(), before, "deletes leave that to the next puts");
        if is_full {
            db.store().make_room(&mut db.store().lock_for_change().expect("nobody panics"));
        }
        (0..64).for_each(|_| put(0));
        moved_bytes() - before
    }

    #[test]
    fn changes_pay_for_what_deletes_have_left_once_there_is_no_room() {
        assert_eq!(moved_after_deletes(false), 0);
        assert_ne!(moved_after_deletes(true), 0);
    }
}
