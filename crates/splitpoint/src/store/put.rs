//! A put or a delete of one key: append its record, store its slot, publish the commit.
//!
//! A [batch](super::batch) takes the same steps, but appends all records before it stores the first
//! slot, so it looks each key up again for its slot. A put is not implemented as a batch of one,
//! because that second lookup alone makes it 12 % longer (callgrind: 33.8 instead of 30.2 million
//! instructions for 20,000 puts). A run of puts commits each record on its own, but defers the
//! splits, the compaction and the checkpoint that they make due until after the last one. Crash
//! recovery does not depend on when these happen.

use super::{Store, Writer};
use crate::error::{Error, Result};
use crate::format::Addr;
use crate::index::lookup::Located;
use crate::index::slot::{Slot, Tag};
use crate::index::split::{insert, trim_chain};
use crate::log::append::{Payload, WritePath};
use crate::log::record::{RecordKind, payload_crc};
use crate::options::{Durability, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::region::LivePool;
use crate::storage::failure::is_want_of_room;
use crate::table::PutMode;
use crate::testing::mutant::{self, Mutant};

/// Size in bytes of a tombstone: header, prev and hash.
pub(crate) const TOMBSTONE_BYTES: u64 = 24;

/// Bytes of records after which a run of puts does the deferred work: as many as a step of
/// compaction reads.
const RUN_BYTES: u64 = 64 << 10;

/// The part of a put that needs no lock: the hash of its key, and the checksum begun over key and
/// value.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Begun {
    hash: u64,
    crc: u32,
}

impl Begun {
    /// Returns the put of the key and value with which this was begun.
    #[inline(always)]
    pub(crate) fn put<'a>(
        self,
        (key, value): (&'a [u8], &'a [u8]),
        mode: PutMode,
        durability: Durability,
    ) -> Put<'a> {
        let payload = Payload::begun(RecordKind::Put, key, value, self.crc);
        Put { hash: self.hash, payload, mode, write_path: write_path_of(durability) }
    }
}

/// The effect of a put, which decides whether a split is due.
struct Stored {
    is_new: bool,
    begins_second_line: bool,
}

/// A put ready to be stored: the hash of its key, its record, and whether it may replace one.
pub(crate) struct Put<'a> {
    pub(crate) hash: u64,
    payload: Payload<'a>,
    mode: PutMode,
    write_path: WritePath,
}

impl Put<'_> {
    /// Returns the size of the record in bytes.
    pub(crate) fn record_bytes(&self) -> u64 {
        self.payload.header.record_bytes()
    }
}

fn write_path_of(durability: Durability) -> WritePath {
    match durability {
        Durability::Buffered | Durability::Async => WritePath::Mapping,
        Durability::Sync => WritePath::Write,
    }
}

/// Fails if a key or a value exceeds its limit.
#[inline(always)]
pub(crate) fn check_sizes(key: &[u8], value: &[u8]) -> Result<()> {
    for (what, bytes, bytes_max) in
        [("key", key.len(), KEY_BYTES_MAX), ("value", value.len(), VALUE_BYTES_MAX)]
    {
        let bytes = bytes as u64;
        if bytes > bytes_max {
            return Err(Error::TooLarge { what, bytes, bytes_max });
        }
    }
    Ok(())
}

impl Store {
    #[inline(always)]
    pub(crate) fn prepare_put<'a>(
        &self,
        key: &'a [u8],
        value: &'a [u8],
        mode: PutMode,
        durability: Durability,
    ) -> Result<Put<'a>> {
        Ok(self.begin_put(key, value)?.put((key, value), mode, durability))
    }

    /// Prefetches the bucket of a put, and meanwhile does the work that needs no lock.
    #[inline(always)]
    pub(crate) fn begin_put(&self, key: &[u8], value: &[u8]) -> Result<Begun> {
        check_sizes(key, value)?;
        let hash = self.hash_of(key);
        self.prefetch_bucket(hash);
        Ok(Begun { hash, crc: payload_crc(key, value) })
    }

    /// Prefetches the records that may have to be compared with the key of a put.
    #[inline(always)]
    pub(crate) fn prefetch_candidates_of(&self, begun: &Begun) {
        self.prefetch_candidates(begun.hash);
    }

    /// Stores a record under the lock. For callers whose other work dominates: it is not inlined,
    /// unlike the two steps in the hot callers, where inlining saves a twelfth of the instructions.
    #[inline(never)]
    pub(crate) fn put_at_once(
        &self,
        writer: &mut Writer,
        key: &[u8],
        value: &[u8],
        mode: PutMode,
        durability: Durability,
    ) -> Result<bool> {
        let put = self.prepare_put(key, value, mode, durability)?;
        self.put_locked(writer, &put)
    }

    /// Stores a record under the lock, then does the work that it makes due. Returns `false` if the
    /// key exists and must not be replaced.
    #[inline(always)]
    pub(crate) fn put_locked(&self, writer: &mut Writer, put: &Put<'_>) -> Result<bool> {
        let Some(stored) = self.store_in_room(writer, put)? else { return Ok(false) };
        if stored.is_new {
            self.split_if_due(writer, stored.begins_second_line);
        }
        self.compact_if_due(writer);
        self.checkpoint_if_due(writer);
        Ok(true)
    }

    /// Stores records, each as a put of its own, until their size reaches [`RUN_BYTES`], then does
    /// the work that they make due. Returns how many are stored, and the error of the next one, if
    /// it failed.
    pub(crate) fn put_run<'a>(
        &self,
        writer: &mut Writer,
        puts: impl IntoIterator<Item = Put<'a>>,
    ) -> (usize, Result<()>) {
        let (mut stored_count, mut new_count, mut second_line_count) = (0, 0, 0);
        let mut bytes = 0;
        let mut result = Ok(());
        for put in puts {
            match self.store_in_room(writer, &put) {
                Ok(Some(stored)) => {
                    new_count += u64::from(stored.is_new);
                    second_line_count += u64::from(stored.begins_second_line);
                }
                Ok(None) => {}
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
            stored_count += 1;
            bytes += put.record_bytes();
            if bytes >= RUN_BYTES {
                break;
            }
        }
        // A poisoned handle must not change anything.
        if self.group.check().is_ok() {
            self.split_after_run(writer, new_count, second_line_count);
            // Each put pays for its own share of compaction.
            for _ in 0..stored_count {
                self.compact_if_due(writer);
                if self.group.check().is_err() {
                    // It stays due, and the next one would count below 0.
                    break;
                }
            }
            self.checkpoint_if_due(writer);
        }
        (stored_count, result)
    }

    /// Like [`store_pair`](Self::store_pair), but makes room and retries once if there was none.
    #[inline(always)]
    fn store_in_room(&self, writer: &mut Writer, put: &Put<'_>) -> Result<Option<Stored>> {
        match self.store_pair(writer, put) {
            Err(error) => self.store_after(writer, put, error),
            stored => stored,
        }
    }

    #[cold]
    #[inline(never)]
    fn store_after(
        &self,
        writer: &mut Writer,
        put: &Put<'_>,
        error: Error,
    ) -> Result<Option<Stored>> {
        self.after_room(writer, error, |writer| self.store_pair(writer, put))
    }

    /// Stores a record and commits it, without the work that it makes due. Returns `None` if the
    /// key exists and must not be replaced.
    #[inline(always)]
    fn store_pair(&self, writer: &mut Writer, put: &Put<'_>) -> Result<Option<Stored>> {
        self.group.check()?;
        let mut at = self.locate(put.payload.key, put.hash)?;
        if at.found.is_some() && put.mode == PutMode::New {
            return Ok(None);
        }
        let prev = at.found.map(|(_, _, slot)| slot.addr());
        if let (Some(prev), Some(segments)) = (prev, writer.extents.segments()) {
            segments.prefetch_counts(prev.offset());
        }
        if at.found.is_none() && at.empty.is_none() {
            writer.extents.reserve_overflow_lines(1)?;
            at = self.locate(put.payload.key, put.hash)?;
            debug_assert!(at.found.is_none(), "only this thread stores slots");
        }
        let old_bytes = prev.map(|old| self.bytes_of_record(old)).transpose()?;
        let tag = Tag::of_hash(put.hash);
        if mutant::is_made(Mutant::SlotBeforeRecord) {
            let addr = Addr::of_offset(writer.log.position().offset);
            self.publish(writer, put.hash, &at, Slot::new(tag, addr))?;
        }
        let (addr, record_bytes) = self.append(writer, &put.payload, prev, put.write_path)?;
        debug_assert!(
            self.region.view.pair(addr).is_ok_and(|pair| pair.key == put.payload.key),
            "a record is complete before a slot holds its address"
        );
        let published = self.publish(writer, put.hash, &at, Slot::new(tag, addr));
        let begins_second_line = published.inspect_err(|_| writer.note_stray(record_bytes))?;
        writer.state.count_put(record_bytes, old_bytes);
        if let (Some(prev), Some(old_bytes)) = (prev, old_bytes) {
            writer.note_buried(self, prev, old_bytes);
        }
        writer.change_count += 1;
        self.commit(writer);
        Ok(Some(Stored { is_new: prev.is_none(), begins_second_line }))
    }

    /// Deletes a key under the lock: appends the tombstone, empties the slot, publishes the commit.
    pub(crate) fn delete_locked(
        &self,
        writer: &mut Writer,
        key: &[u8],
        hash: u64,
        durability: Durability,
    ) -> Result<bool> {
        let write_path = write_path_of(durability);
        match self.try_delete(writer, key, hash, Some(write_path)) {
            Err(error) => self.delete_where_full(writer, key, hash, error),
            deleted => deleted,
        }
    }

    /// Retries a delete that failed for lack of space. If there is still no space, a table in
    /// memory deletes the key without a tombstone.
    #[cold]
    fn delete_where_full(
        &self,
        writer: &mut Writer,
        key: &[u8],
        hash: u64,
        error: Error,
    ) -> Result<bool> {
        let again =
            |writer: &mut Writer| self.try_delete(writer, key, hash, Some(WritePath::Mapping));
        match self.after_room(writer, error, again) {
            Err(error) if is_want_of_room(&error) && writer.begin_without_tombstones(self) => {
                self.try_delete(writer, key, hash, None)
            }
            deleted => deleted,
        }
    }

    /// Deletes a key, with a tombstone unless `write_path` is `None`.
    #[inline]
    fn try_delete(
        &self,
        writer: &mut Writer,
        key: &[u8],
        hash: u64,
        write_path: Option<WritePath>,
    ) -> Result<bool> {
        self.group.check()?;
        let at = self.locate(key, hash)?;
        let Some((_, _, slot)) = at.found else { return Ok(false) };
        if let Some(segments) = writer.extents.segments() {
            segments.prefetch_counts(slot.addr().offset());
        }
        let old_bytes = self.bytes_of_record(slot.addr())?;
        let value = hash.to_le_bytes();
        let tombstone = Payload::new(RecordKind::Delete, &[], &value);
        let mut tombstone_bytes = 0;
        if let Some(write_path) = write_path {
            let prev = Some(slot.addr());
            (_, tombstone_bytes) = self.append(writer, &tombstone, prev, write_path)?;
            debug_assert_eq!(tombstone_bytes, TOMBSTONE_BYTES);
        }
        self.keep_deleted(hash, slot.addr());
        self.publish(writer, hash, &at, Slot::EMPTY)?;
        writer.change_count += 1;
        writer.state.count_delete(tombstone_bytes, old_bytes);
        writer.note_buried(self, slot.addr(), old_bytes);
        self.commit(writer);
        self.merge_if_due(writer);
        self.compact_if_due(writer);
        self.checkpoint_if_due(writer);
        Ok(true)
    }

    /// Returns the size in bytes of a record that a slot holds.
    #[inline(always)]
    pub(super) fn bytes_of_record(&self, addr: Addr) -> Result<u64> {
        match self.region.view.short_pair_before(addr.offset(), u64::MAX) {
            Some((_, record_bytes)) => Ok(record_bytes),
            None => Ok(self.region.view.record(addr)?.bytes.len() as u64),
        }
    }

    /// Appends the record of a change, a big one in a segment of its own. Returns its address and
    /// its size in bytes.
    #[inline(always)]
    pub(super) fn append(
        &self,
        writer: &mut Writer,
        payload: &Payload<'_>,
        prev: Option<Addr>,
        write_path: WritePath,
    ) -> Result<(Addr, u64)> {
        let mut header = payload.header;
        header.prev = prev;
        let record_bytes = header.record_bytes();
        let is_big = writer.log.is_big(record_bytes, &self.region);
        let addr = if is_big {
            self.make_way_for_big(writer, record_bytes)?;
            let addr = writer.log.append_big(payload, prev, &mut writer.extents)?;
            writer.note_named();
            addr
        } else {
            if !writer.log.has_room_for_put(record_bytes) {
                self.make_way(writer, payload.header.kind, record_bytes)?;
            }
            // Even if the tail has room, its next pages may not be faulted in yet.
            writer.log.reserve(record_bytes, &mut writer.extents)?;
            writer.log.append(payload, prev, write_path, &self.region)?
        };
        if payload.header.kind == RecordKind::Put {
            writer.note_appended(addr, record_bytes, is_big);
        } else {
            writer.note_appended_dead(addr, record_bytes);
        }
        Ok((addr, record_bytes))
    }

    /// Stores the slot of a change whose record is in the log, at the place that
    /// [`locate`](Self::locate) has found; `slot` is empty for a delete. A new key also frees lines
    /// at the end of its chain that deletes have emptied. Returns whether a second overflow line
    /// was begun.
    #[inline(always)]
    pub(super) fn publish(
        &self,
        writer: &mut Writer,
        hash: u64,
        at: &Located<'_>,
        slot: Slot,
    ) -> Result<bool> {
        self.capture_bucket_of(writer, hash)?;
        let Some((line, i, old)) = at.found else {
            debug_assert!(!slot.is_empty(), "a delete has a slot to empty");
            let (windows, pool) = (&self.region.windows, &mut LivePool(&self.region.windows));
            let begins_second_line = insert(windows, pool, at, slot)?;
            if at.leaves_spare_line() {
                let bucket = self.shape().geometry.bucket_of(hash);
                trim_chain(windows, pool, bucket, &mut writer.scratch)?;
            }
            return Ok(begins_second_line);
        };
        debug_assert_eq!(line.slot(i), old, "`prev` is what the slot held");
        line.set_slot(i, slot);
        Ok(false)
    }

    #[inline(always)]
    pub(super) fn commit(&self, writer: &mut Writer) {
        let position = writer.log.position();
        debug_assert!(position.segment_offset <= position.offset);
        writer.state.tail_offset = position.offset;
        writer.state.tail_segment = position.segment_offset;
        writer.note_head();
        self.region.live().commit(position.lsn, &writer.state);
        writer.pace.note_change();
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use crate::{Db, Durability, Options, SimDisk};

    /// The splits after a chunk of new keys bring the mean below the fill factor, as those of
    /// single puts do.
    #[test]
    fn put_many_splits_as_many_buckets_as_its_keys_ask_for() {
        let bucket_count_min = |db: &Db| (db.len() * 1000).div_ceil(db.store().fill_thousandths);
        let db = Options::new().seed(1).in_memory().unwrap();
        for chunk in 0..200_u32 {
            db.put_many((0..32).map(|i| ((32 * chunk + i).to_le_bytes(), b"value"))).unwrap();
            let bucket_count = db.store().geometry().bucket_count();
            assert!(bucket_count >= bucket_count_min(&db), "chunk {chunk}: {bucket_count} buckets");
        }
        assert_eq!(db.len(), 6400);
        let report = db.check().unwrap();
        assert!(report.is_clean(), "{report:?}");
    }

    /// A sliding window of keys: 4 of 7 slots per bucket are in use at all times, and each bucket
    /// was full at some time.
    #[test]
    fn a_chain_gives_back_the_lines_that_deletes_have_emptied() {
        const KEYS: u32 = 2000;
        let db = Options::new().seed(1).in_memory().unwrap();
        for i in 0..KEYS * 50 {
            db.put(i.to_le_bytes(), b"").unwrap();
            if let Some(oldest) = i.checked_sub(KEYS) {
                assert!(db.delete(oldest.to_le_bytes()).unwrap());
            }
        }
        let stats = db.stats().unwrap();
        let used_count = stats.overflow_line_count;
        let bucket_count = stats.geometry.bucket_count();
        assert!(used_count < bucket_count / 5, "{used_count} of {bucket_count}");
        let report = db.check().unwrap();
        assert!(report.is_clean(), "{report:?}");
    }

    #[test]
    fn the_page_faults_of_a_record_are_taken_before_it_is_copied() {
        let db = SimDisk::new().open(&Options::new().durability(Durability::Buffered)).unwrap();
        for i in 0..4000_u32 {
            db.put(i.to_le_bytes(), [7; 100]).unwrap();
            assert!(db.store().lock().unwrap().log.is_tail_ready(), "put {i}");
        }
    }
}
