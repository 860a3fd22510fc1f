//! A put or a delete of one key: its record, then its slot, then the commit.

use super::{Store, Writer};
use crate::canary::{self, Canary};
use crate::error::{Error, Result};
use crate::format::Addr;
use crate::index::slot::{Slot, Tag};
use crate::index::split::insert;
use crate::log::append::{Payload, Via};
use crate::log::record::RecordKind;
use crate::options::{Durability, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::region::LivePool;
use crate::table::PutMode;

/// Size in bytes of a record that deletes: header, prev and hash.
pub(crate) const TOMBSTONE_BYTES: u64 = 24;

/// The hash of a key, the record to be written and what it replaces.
pub(crate) struct Put<'a> {
    pub(crate) hash: u64,
    payload: Payload<'a>,
    mode: PutMode,
    via: Via,
}

pub(crate) fn via(durability: Durability) -> Via {
    match durability {
        Durability::Buffered | Durability::Async => Via::Mapping,
        Durability::Sync => Via::Write,
    }
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
        for (what, bytes, bytes_max) in
            [("key", key.len(), KEY_BYTES_MAX), ("value", value.len(), VALUE_BYTES_MAX)]
        {
            let bytes = bytes as u64;
            if bytes > bytes_max {
                return Err(Error::TooLarge { what, bytes, bytes_max });
            }
        }
        let hash = self.hash_of(key);
        // The checksum is computed while the bucket is on its way.
        self.prefetch_bucket(hash);
        Ok(Put {
            hash,
            payload: Payload::new(RecordKind::Put, key, value),
            mode,
            via: via(durability),
        })
    }

    /// Stores a pair while the lock is held, for callers that spend more on other things: the two
    /// steps of a put are compiled into the others, which saves a twelfth of their instructions.
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

    /// Stores a pair; the record first, then its slot, then the commit.
    #[inline(always)]
    pub(crate) fn put_locked(&self, writer: &mut Writer, put: &Put<'_>) -> Result<bool> {
        self.group.check()?;
        let region = &self.region;
        let mut at = self.locate(put.payload.key, put.hash)?;
        if at.found.is_some() && put.mode == PutMode::New {
            return Ok(false);
        }
        let prev = at.found.map(|(_, _, slot)| slot.addr());
        if at.found.is_none() && at.hole.is_none() {
            writer.extents.reserve_overflow_lines(1)?;
            at = self.locate(put.payload.key, put.hash)?;
            debug_assert!(at.found.is_none(), "only this thread stores slots");
        }
        let old_bytes = match prev {
            Some(old) => Some(region.view.record(old)?.bytes.len() as u64),
            None => None,
        };
        let mut header = put.payload.header;
        header.prev = prev;
        let record_bytes = header.record_bytes();
        let addr = if writer.log.is_big(record_bytes, region) {
            writer.log.append_big(&put.payload, prev, &mut writer.extents)?
        } else {
            writer.log.reserve(record_bytes, &mut writer.extents)?;
            if canary::is_made(Canary::SlotBeforeRecord) {
                let addr = Addr::of_offset(writer.log.position().offset);
                let place = at.found.map(|(line, i, _)| (line, i)).or(at.hole);
                if let Some((line, i)) = place {
                    line.set_slot(i, Slot::new(Tag::of_hash(put.hash), addr));
                }
            }
            writer.log.append(&put.payload, prev, put.via, region)?
        };
        let slot = Slot::new(Tag::of_hash(put.hash), addr);
        self.capture_bucket_of(writer, put.hash);
        let mut begins_second_line = false;
        debug_assert!(
            region.view.pair(addr).is_ok_and(|pair| pair.key == put.payload.key),
            "a record is complete before a slot holds its address"
        );
        if let Some((line, i, old)) = at.found {
            debug_assert_eq!(line.slot(i), old, "`prev` is what the slot held");
            line.set_slot(i, slot);
        } else {
            begins_second_line =
                insert(&region.windows, &mut LivePool(&region.windows), &at, slot)?;
        }
        writer.state.count_put(record_bytes, old_bytes);
        self.commit(writer);
        if at.found.is_none() {
            self.split_if_due(writer, begins_second_line);
        }
        self.checkpoint_if_due(writer);
        Ok(true)
    }

    /// Removes a key; the tombstone first, then the slot, then the commit.
    pub(crate) fn delete_locked(
        &self,
        writer: &mut Writer,
        key: &[u8],
        hash: u64,
        via: Via,
    ) -> Result<bool> {
        self.group.check()?;
        let region = &self.region;
        let Some((line, i, slot)) = self.locate(key, hash)?.found else { return Ok(false) };
        let old_bytes = region.view.record(slot.addr())?.bytes.len() as u64;
        let value = hash.to_le_bytes();
        let tombstone = Payload::new(RecordKind::Delete, &[], &value);
        debug_assert_eq!(tombstone.header.record_bytes() + 8, TOMBSTONE_BYTES, "with its `prev`");
        writer.log.reserve(TOMBSTONE_BYTES, &mut writer.extents)?;
        writer.log.append(&tombstone, Some(slot.addr()), via, region)?;
        self.capture_bucket_of(writer, hash);
        debug_assert_eq!(line.slot(i), slot, "`prev` is what the slot held");
        line.set_slot(i, Slot::EMPTY);
        writer.state.count_delete(TOMBSTONE_BYTES, old_bytes);
        self.commit(writer);
        self.merge_if_due(writer);
        self.checkpoint_if_due(writer);
        Ok(true)
    }

    #[inline(always)]
    pub(super) fn commit(&self, writer: &mut Writer) {
        let position = writer.log.position();
        debug_assert!(position.segment_offset <= position.offset);
        writer.state.tail_offset = position.offset;
        writer.state.tail_segment = position.segment_offset;
        self.region.live().commit(position.lsn, &writer.state);
        writer.pace.note_change();
    }
}
