//! Batches: changes that are atomic, also across a crash.
//!
//! All records are appended, then the COMMIT record; only then are their slots stored. So every
//! step that can fail comes before anything is visible, and if a process is killed between two
//! slots, the next process stores the remaining ones from the log.

use super::put::check_sizes;
use super::{GROUP, Store, TOMBSTONE_BYTES, Writer};
use crate::batch::Change;
use crate::error::Result;
use crate::format::Addr;
use crate::index::line::SLOT_COUNT;
use crate::index::lookup::{Located, for_each_line, locate_held};
use crate::index::slot::{Slot, Tag};
use crate::key_list::repeated;
use crate::linear::BucketIndex;
use crate::log::append::{Payload, WritePath};
use crate::log::batch::{BatchCrc, COMMIT_BYTES};
use crate::log::record::RecordKind;
use crate::memory;
use crate::options::Durability;
use crate::table::PutMode;

/// A change of a batch that has an effect.
#[derive(Debug)]
pub(super) struct Member<'a> {
    pub(super) key: &'a [u8],
    /// `None` for a delete.
    pub(super) value: Option<&'a [u8]>,
    pub(super) hash: u64,
    /// The present record of the key.
    pub(super) prev: Option<Addr>,
    pub(super) prev_bytes: u64,
    /// The new record of the key.
    pub(super) addr: Option<Addr>,
    pub(super) record_bytes: u64,
}

impl Member<'_> {
    /// Returns whether it adds a key.
    fn is_new(&self) -> bool {
        self.value.is_some() && self.prev.is_none()
    }

    /// Returns the address and the size in bytes of the record of a put, if it was appended.
    fn appended(&self) -> Option<(Addr, u64)> {
        self.addr.map(|addr| (addr, self.record_bytes))
    }
}

/// A change and the hash of its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HashedChange<'a> {
    pub(crate) hash: u64,
    pub(crate) key: &'a [u8],
    /// `None` for a delete.
    pub(crate) value: Option<&'a [u8]>,
}

impl Store {
    /// Applies all changes or, on an error, none.
    pub(crate) fn apply_locked(
        &self,
        writer: &mut Writer,
        changes: &[Change<'_>],
        durability: Durability,
    ) -> Result<()> {
        if let [change] = changes {
            let (key, value) = change.parts();
            return self.make_one(writer, key, value, durability);
        }
        let hashed = changes.iter().map(|change| self.hashed(change));
        self.apply_hashed(writer, memory::collected(hashed)?)
    }

    pub(super) fn hashed<'a>(&self, change: &Change<'a>) -> HashedChange<'a> {
        let (key, value) = change.parts();
        HashedChange { hash: self.hash_of(key), key, value }
    }

    /// Applies a single change, which needs no COMMIT record.
    pub(crate) fn make_one(
        &self,
        writer: &mut Writer,
        key: &[u8],
        value: Option<&[u8]>,
        durability: Durability,
    ) -> Result<()> {
        match value {
            Some(value) => self.put_at_once(writer, key, value, PutMode::Replace, durability),
            None => self.delete_locked(writer, key, self.hash_of(key), durability),
        }
        .map(drop)
    }

    /// Applies two or more changes or, on an error, none.
    pub(crate) fn apply_hashed(
        &self,
        writer: &mut Writer,
        mut changes: Vec<HashedChange<'_>>,
    ) -> Result<()> {
        for HashedChange { key, value, .. } in &changes {
            check_sizes(key, value.unwrap_or_default())?;
        }
        keep_last(&mut changes)?;
        match self.try_apply(writer, &changes) {
            Err(error) => self.after_room(writer, error, |writer| self.try_apply(writer, &changes)),
            applied => applied,
        }
    }

    fn try_apply(&self, writer: &mut Writer, changes: &[HashedChange<'_>]) -> Result<()> {
        self.group.check()?;
        let mut members = self.plan_batch(changes)?;
        if members.is_empty() {
            return Ok(());
        }
        let bucket_count = self.shape().geometry.bucket_count();
        let fitted = self
            .split_for_batch(writer, &members)
            .and_then(|()| self.reserve_lines_for(writer, &members));
        if let Err(error) = fitted {
            self.shrink_index_to(writer, bucket_count);
            return Err(error);
        }
        if let Err(error) = self.append_batch(writer, &mut members) {
            if self.group.check().is_err() {
                // After a failed write nothing is stored, because a store through the mapping might
                // raise a signal.
                return Err(error);
            }
            // Without a COMMIT, the appended records have no effect; count them as dead.
            let record_bytes: u64 = members.iter().map(|member| member.record_bytes).sum();
            writer.state.dead_bytes += record_bytes;
            for (addr, bytes) in members.iter().filter_map(Member::appended) {
                writer.note_buried(self, addr, bytes);
            }
            // Publish the end of the log after them: at most one change may follow a published
            // commit.
            self.commit(writer);
            self.shrink_index_to(writer, bucket_count);
            return Err(error);
        }
        let has_its_record = |member: &Member<'_>| member.addr.is_some() == member.value.is_some();
        assert!(members.iter().all(has_its_record), "a slot is stored behind the whole batch");
        for member in &members {
            if let Err(error) = self.publish_member(writer, member) {
                // A chain is damaged. The batch is committed in the log, so poison the handle: the
                // next open applies all of it.
                self.group.fail(&error);
                return Err(error);
            }
        }
        self.end_batch(writer);
        for member in &members {
            match (member.value, member.prev) {
                (Some(_), None) => self.split_if_due(writer, false),
                (Some(_), Some(_)) => {}
                (None, _) => self.merge_if_due(writer),
            }
        }
        self.compact_after_batch(writer, members.len());
        self.checkpoint_if_due(writer);
        Ok(())
    }

    /// Commits a batch whose slots are stored.
    pub(super) fn end_batch(&self, writer: &mut Writer) {
        writer.state.dead_bytes += COMMIT_BYTES;
        writer.change_count += 1;
        self.commit(writer);
    }

    /// Plans changes of distinct keys, without deletes of missing keys.
    fn plan_batch<'a>(&self, changes: &[HashedChange<'a>]) -> Result<Vec<Member<'a>>> {
        let mut members = memory::with_room(changes.len())?;
        for group in changes.chunks(GROUP) {
            // Overlap the cache misses of the bucket lines, then those of the records.
            for change in group {
                self.prefetch_bucket(change.hash);
            }
            for change in group {
                self.prefetch_candidates(change.hash);
            }
            for &change in group {
                members.extend(self.plan_member(change)?);
            }
        }
        Ok(members)
    }

    /// Plans a change; `None` for a delete of a missing key.
    pub(super) fn plan_member<'a>(&self, change: HashedChange<'a>) -> Result<Option<Member<'a>>> {
        let HashedChange { hash, key, value } = change;
        let found = self.locate(key, hash)?.found;
        let prev = found.map(|(_, _, slot)| slot.addr());
        if value.is_none() && prev.is_none() {
            return Ok(None);
        }
        let prev_bytes = prev.map_or(Ok(0), |prev| self.bytes_of_record(prev))?;
        let (addr, record_bytes) = (None, 0);
        Ok(Some(Member { key, value, hash, prev, prev_bytes, addr, record_bytes }))
    }

    /// Splits buckets before a batch that has more new keys than there are buckets. Smaller batches split
    /// afterwards, as puts do. A large one would first put all of its keys into the chains of few buckets, and
    /// walk such a chain for each key: 300,000 keys in a new store took 46 s.
    fn split_for_batch(&self, writer: &mut Writer, members: &[Member<'_>]) -> Result<()> {
        let new_count = members.iter().filter(|member| member.is_new()).count() as u64;
        if new_count <= self.shape().geometry.bucket_count() {
            return Ok(());
        }
        let deleted_count = members.iter().filter(|member| member.value.is_none()).count() as u64;
        match self.split_for(writer, new_count.saturating_sub(deleted_count)) {
            // On a full disk the chains grow longer, and the batch may still find room.
            Err(_) => self.group.check(),
            done => done,
        }
    }

    /// Reserves overflow lines, so that every new key finds a slot.
    fn reserve_lines_for(&self, writer: &mut Writer, members: &[Member<'_>]) -> Result<()> {
        let geometry = self.shape().geometry;
        let new = members.iter().filter(|member| member.is_new());
        let mut buckets: Vec<BucketIndex> =
            memory::collected(new.map(|member| geometry.bucket_of(member.hash)))?;
        buckets.sort_unstable();
        let mut line_count = 0;
        for new in buckets.chunk_by(|a, b| a == b) {
            let mut empty_count = 0;
            for_each_line(&self.region.windows, new[0], |_, line| {
                empty_count += SLOT_COUNT - line.slot_count() as usize;
            })?;
            line_count += new.len().saturating_sub(empty_count).div_ceil(SLOT_COUNT) as u64;
        }
        writer.extents.reserve_overflow_lines(line_count)
    }

    /// Appends the records, then the one that commits them.
    fn append_batch(&self, writer: &mut Writer, members: &mut [Member<'_>]) -> Result<()> {
        let mut batch = BatchCrc::default();
        let is_of_deletes = members.iter().all(|member| member.value.is_none());
        let may_use_reserve = is_of_deletes && writer.has_room_for_deletes(members.len());
        for member in members {
            self.append_member(writer, member, &mut batch, may_use_reserve)?;
        }
        self.append_commit(writer, batch, may_use_reserve)
    }

    /// Appends the record of a change, and adds it to the batch. One of deletes may use the reserve.
    pub(super) fn append_member(
        &self,
        writer: &mut Writer,
        member: &mut Member<'_>,
        batch: &mut BatchCrc,
        may_use_reserve: bool,
    ) -> Result<()> {
        if !may_use_reserve && !writer.log.has_room_for_put(TOMBSTONE_BYTES) {
            self.make_way(writer, RecordKind::Put, TOMBSTONE_BYTES)?;
        }
        let hash = member.hash.to_le_bytes();
        let mut payload = match member.value {
            Some(value) => Payload::new(RecordKind::Put, member.key, value),
            None => Payload::new(RecordKind::Delete, &[], &hash),
        };
        payload.header.is_in_transaction = true;
        let (addr, record_bytes) =
            self.append(writer, &payload, member.prev, WritePath::Mapping)?;
        member.record_bytes = record_bytes;
        member.addr = member.value.is_some().then_some(addr);
        *batch = batch.with(writer.log.last_record_crc());
        Ok(())
    }

    /// Appends the record that commits a batch.
    pub(super) fn append_commit(
        &self,
        writer: &mut Writer,
        batch: BatchCrc,
        may_use_reserve: bool,
    ) -> Result<()> {
        let value = batch.encode();
        let commit = Payload::new(RecordKind::Commit, &[], &value);
        if may_use_reserve {
            self.make_way_for_delete(writer, COMMIT_BYTES)?;
        } else if !writer.log.has_room_for_put(COMMIT_BYTES) {
            self.make_way(writer, RecordKind::Commit, COMMIT_BYTES)?;
        }
        let addr = writer.log.append(&commit, None, WritePath::Mapping, &self.region)?;
        assert_eq!(addr.offset(), writer.log.last_record_offset(), "the COMMIT ends its batch");
        writer.note_appended_dead(addr, COMMIT_BYTES);
        Ok(())
    }

    /// Returns where the key of a change is or should be: the slot with the record that it had, if it is still
    /// there, without a look at the record.
    fn locate_member(&self, member: &Member<'_>) -> Result<Located<'_>> {
        let held = member.prev.map(|prev| locate_held(&self.region.windows, member.hash, prev));
        match held.transpose()?.flatten() {
            Some(found) => {
                Ok(Located { found: Some(found), empty: None, last: found.0, line_count: 1 })
            }
            None => self.locate(member.key, member.hash),
        }
    }

    /// Stores the slot of a change whose record is in the log, and counts it.
    pub(super) fn publish_member(&self, writer: &mut Writer, member: &Member<'_>) -> Result<()> {
        // Again: the slots of the changes before it may have taken the place that it had found.
        let at = self.locate_member(member)?;
        debug_assert_eq!(at.found.map(|(_, _, slot)| slot.addr()), member.prev);
        let slot = match member.addr {
            Some(addr) => Slot::new(Tag::of_hash(member.hash), addr),
            None => Slot::EMPTY,
        };
        if let (None, Some(prev)) = (member.addr, member.prev) {
            self.keep_deleted(member.hash, prev);
        }
        self.publish(writer, member.hash, &at, slot)?;
        match member.value {
            Some(_) => {
                let replaced = member.prev.map(|_| member.prev_bytes);
                writer.state.count_put(member.record_bytes, replaced);
            }
            None => writer.state.count_delete(TOMBSTONE_BYTES, member.prev_bytes),
        }
        if let Some(prev) = member.prev {
            writer.note_buried(self, prev, member.prev_bytes);
        }
        Ok(())
    }
}

/// Leaves only the last change of each key.
fn keep_last(changes: &mut Vec<HashedChange<'_>>) -> Result<()> {
    let is_same = |i: usize, other: usize| changes[i].key == changes[other].key;
    let repeated = repeated(changes.len(), |i| changes[i].hash, is_same)?;
    let (mut i, mut repeated) = (0, repeated.into_iter().peekable());
    if repeated.peek().is_some() {
        changes.retain(|_| {
            i += 1;
            repeated.next_if_eq(&(i - 1)).is_none()
        });
    }
    Ok(())
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use crate::batch::Change;
    use crate::{Options, SimDisk};

    #[test]
    fn a_large_batch_that_finds_no_room_leaves_as_many_buckets_as_there_were() {
        let disk = SimDisk::new();
        let db = disk.open(&Options::new().seed(1)).unwrap();
        (0..2000_u32).for_each(|key| db.put(key.to_le_bytes(), "").unwrap());
        let before = db.store().geometry().bucket_count();
        disk.limit_to(disk.file().len() as u64 + (512 << 10));
        let keys: Vec<[u8; 4]> = (0..20_000_u32).map(u32::to_be_bytes).collect();
        let value = [7; 100];
        let batch: Vec<Change<'_>> =
            keys.iter().map(|key| Change::Put { key, value: &value }).collect();
        db.apply(&batch).unwrap_err();
        assert_eq!((db.len(), db.store().geometry().bucket_count()), (2000, before));
        assert!(db.check().unwrap().is_clean());
        disk.limit_to(u64::MAX);
        db.apply(&batch).unwrap();
        assert!(db.check().unwrap().is_clean());
    }
}
