//! Batches that may be larger than memory: the spilled changes of a transaction.
//!
//! In the log such a batch is like any other [batch](super::batch), so it is atomic across a crash.
//! It differs in the memory it takes: a number for each bucket instead of a list of its changes.
//! The changes are read once to find out which keys are new, and once to append their records; then
//! the slots are stored from the log itself, as after a crash.

use super::batch::Member;
use super::{Store, TOMBSTONE_BYTES, Writer};
use crate::batch::Change;
use crate::error::Result;
use crate::format::Addr;
use crate::index::line::SLOT_COUNT;
use crate::index::lookup::for_each_line;
use crate::linear::BucketIndex;
use crate::log::append::{LogPosition, UnsyncedRange};
use crate::log::batch::{BatchCrc, COMMIT_BYTES, is_member};
use crate::log::scan::{LogWalk, Logged, Trust};
use crate::memory;
use crate::testing::mutant::{self, Mutant};

/// Changes of different keys, in an order that is the same each time.
pub(crate) trait Changes {
    /// Calls `visit` with each change, until it returns an error.
    fn for_each(&self, visit: &mut dyn FnMut(&Change<'_>) -> Result<()>) -> Result<()>;
}

impl Store {
    /// Makes all changes or, on an error, none.
    pub(crate) fn apply_large(&self, writer: &mut Writer, changes: &dyn Changes) -> Result<()> {
        match self.try_apply_large(writer, changes) {
            Err(error) => {
                self.after_room(writer, error, |writer| self.try_apply_large(writer, changes))
            }
            applied => applied,
        }
    }

    /// Merges the buckets again that were split for changes which were not made.
    pub(super) fn shrink_index_to(&self, writer: &mut Writer, bucket_count: u64) {
        let mut is_merged = false;
        while self.shape().geometry.bucket_count() > bucket_count && self.merge_below(writer, 100) {
            is_merged = true;
        }
        if is_merged && self.group.check().is_ok() {
            writer.extents.give_back_spare_pieces();
        }
    }

    /// Makes durable what was changed before: the sync in the background needs the lock, which a large batch
    /// keeps for long. What a sync has begun to cover becomes durable without the lock.
    fn secure_earlier(&self, writer: &Writer) -> Result<()> {
        if self.region.storage().is_volatile() || mutant::is_made(Mutant::LeavesEarlierUnsafe) {
            return Ok(());
        }
        let sync = |range: &UnsyncedRange| self.region.sync_range(range.offset, range.bytes);
        let synced = if self.takes_turns() {
            self.sync_by_turns().map(drop)
        } else {
            writer.unsynced().iter().try_for_each(sync)
        };
        synced.inspect_err(|error| self.group.fail(error))
    }

    fn try_apply_large(&self, writer: &mut Writer, changes: &dyn Changes) -> Result<()> {
        self.group.check()?;
        self.secure_earlier(writer)?;
        let bucket_count = self.shape().geometry.bucket_count();
        let start = match self.append_fitting(writer, changes) {
            Ok(Some(start)) => start,
            Ok(None) => return Ok(()),
            Err(error) => {
                self.shrink_index_to(writer, bucket_count);
                return Err(error);
            }
        };
        let (mut change_count, mut deleted_count) = (0, 0_u64);
        let published = self.for_each_logged(writer, start, |writer, logged| {
            let member = self.member_of(logged)?;
            change_count += 1;
            deleted_count += u64::from(member.value.is_none());
            self.publish_member(writer, &member)
        });
        if let Err(error) = published {
            // A damaged chain: the batch is in the log, and the next open makes all of it.
            self.group.fail(&error);
            return Err(error);
        }
        self.end_batch(writer);
        (0..deleted_count).for_each(|_| self.merge_if_due(writer));
        self.compact_after_batch(writer, change_count);
        self.checkpoint_if_due(writer);
        Ok(())
    }

    /// Makes the index fit, and appends the batch; returns where that begins, `None` if it is empty.
    fn append_fitting(
        &self,
        writer: &mut Writer,
        changes: &dyn Changes,
    ) -> Result<Option<LogPosition>> {
        self.make_index_fit(writer, changes)?;
        // The walk begins in a segment that is there.
        writer.log.reserve(COMMIT_BYTES, &mut writer.extents)?;
        let start = writer.log.position();
        match self.append_large(writer, changes) {
            Ok(count) => Ok((count > 0).then_some(start)),
            Err(error) => {
                self.give_up_large(writer, start)?;
                Err(error)
            }
        }
    }

    /// Splits as many buckets as the new keys will make due, and makes sure that every one of them finds a
    /// slot: else all of them would be in the chains of few buckets when they are stored.
    fn make_index_fit(&self, writer: &mut Writer, changes: &dyn Changes) -> Result<()> {
        let (mut new_count, mut deleted_count) = (0, 0_u64);
        self.for_each_in_count(changes, |_, is_new| {
            new_count += u64::from(is_new);
            deleted_count += u64::from(!is_new);
        })?;
        self.split_for(writer, new_count.saturating_sub(deleted_count))?;
        let geometry = self.shape().geometry;
        let mut new_counts = memory::filled(0_u32, geometry.bucket_count() as usize)?;
        self.for_each_in_count(changes, |hash, is_new| {
            new_counts[geometry.bucket_of(hash).0 as usize] += u32::from(is_new);
        })?;
        let mut line_count = 0;
        for (bucket, &count) in new_counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let mut empty_count = 0;
            for_each_line(&self.region.windows, BucketIndex(bucket as u64), |_, line| {
                empty_count += SLOT_COUNT - line.slot_count() as usize;
            })?;
            line_count += (count as usize).saturating_sub(empty_count).div_ceil(SLOT_COUNT) as u64;
        }
        writer.extents.reserve_overflow_lines(line_count)
    }

    /// Calls `visit` with the hash of each key whose change alters the number of records, and with whether it adds
    /// one.
    fn for_each_in_count(
        &self,
        changes: &dyn Changes,
        mut visit: impl FnMut(u64, bool),
    ) -> Result<()> {
        changes.for_each(&mut |change| {
            let (key, value) = change.parts();
            let hash = self.hash_of(key);
            let is_there = self.locate(key, hash)?.found.is_some();
            if value.is_some() != is_there {
                visit(hash, !is_there);
            }
            Ok(())
        })
    }

    /// Appends the records, then the one that commits them; returns how many these are.
    fn append_large(&self, writer: &mut Writer, changes: &dyn Changes) -> Result<u64> {
        let (mut batch, mut count) = (BatchCrc::default(), 0);
        changes.for_each(&mut |change| {
            let Some(mut member) = self.plan_member(self.hashed(change))? else { return Ok(()) };
            self.append_member(writer, &mut member, &mut batch, false)?;
            count += 1;
            if mutant::is_made(Mutant::PublishesUncommitted) {
                self.publish_member(writer, &member)?;
                self.commit(writer);
            }
            Ok(())
        })?;
        if count > 0 {
            self.append_commit(writer, batch, false)?;
        }
        Ok(count)
    }

    /// Counts what was appended since `start` as dead: no COMMIT follows it.
    fn give_up_large(&self, writer: &mut Writer, start: LogPosition) -> Result<()> {
        // What a device could not write is not read back: the mapping might answer with a signal.
        self.group.check()?;
        let counted = self.for_each_logged(writer, start, |writer, logged| {
            let (addr, bytes) = match logged {
                Logged::Put { pair, .. } => (Some(pair.addr()), pair.bytes.len() as u64),
                _ => (None, TOMBSTONE_BYTES),
            };
            // Before a big one is retired, which takes its bytes off again.
            writer.state.dead_bytes += bytes;
            if let Some(addr) = addr {
                writer.note_buried(self, addr, bytes);
            }
            Ok(())
        });
        writer.has_stray_records |= counted.is_err();
        // The log goes on behind it: one change at most may come after a published commit.
        self.commit(writer);
        counted
    }

    /// Calls `visit` with each change of a batch that was appended since `start`.
    fn for_each_logged(
        &self,
        writer: &mut Writer,
        start: LogPosition,
        mut visit: impl FnMut(&mut Writer, Logged<'_>) -> Result<()>,
    ) -> Result<()> {
        let (view, end_lsn) = (&self.region.view, writer.log.position().lsn);
        let mut walk = LogWalk::from_position(view, start, Trust::Published, end_lsn)?;
        loop {
            let lsn = walk.position().lsn;
            let Some(record) = walk.next_record()? else { return Ok(()) };
            if is_member(&record)
                && let Some(logged) = Logged::of(view, &record, lsn)?
            {
                visit(writer, logged)?;
            }
        }
    }

    /// Returns the change that a record of the log makes.
    fn member_of<'a>(&'a self, logged: Logged<'a>) -> Result<Member<'a>> {
        let (key, value, hash, prev, addr, record_bytes) = match logged {
            Logged::Put { pair, prev } => {
                let (key, value) = (pair.key(), Some(pair.value()));
                let (addr, bytes) = (Some(pair.addr()), pair.bytes.len() as u64);
                (key, value, self.hash_of(key), prev, addr, bytes)
            }
            Logged::Delete { hash, prev, .. } => {
                let key = self.region.view.pair(prev)?.key;
                (key, None, hash, Some(prev), None, TOMBSTONE_BYTES)
            }
            Logged::Move { .. } => unreachable!("a batch moves nothing"),
        };
        let prev_bytes = prev.map_or(Ok(0), |prev: Addr| self.bytes_of_record(prev))?;
        Ok(Member { key, value, hash, prev, prev_bytes, addr, record_bytes })
    }
}
