//! `Saver`: the pass that stores the newest value of each key in the new store.

use super::Found;
use super::bigs::read_big;
use super::reader::Reader;
use super::replaced::Replaced;
use super::segments::Part;
use crate::db::Db;
use crate::error::Result;
use crate::log::record::{Record, RecordKind};
use crate::log::scan::big_target;
use crate::log::segment::Segment;

/// The pass that stores what is to be kept.
pub(super) struct Saver<'a> {
    pub(super) found: &'a Found,
    pub(super) replaced: Replaced<'a>,
    pub(super) db: &'a Db,
    pub(super) record_count: u64,
    pub(super) saved_bytes: u64,
}

impl Saver<'_> {
    pub(super) fn save_all(mut self, reader: &mut Reader<'_>) -> Result<()> {
        let found = self.found;
        let mut doubtful = found.bigs.doubtful.iter().peekable();
        for part in &found.log.parts {
            part.each_record(reader, |reader, record| {
                let lsn = part.segment.lsn_at(record.offset);
                while let Some((&lsn, segment)) = doubtful.next_if(|(at, _)| **at < lsn) {
                    self.save_big(reader, segment, lsn)?;
                }
                self.apply(reader, part, record, lsn)
            })?;
            reader.advance("save", self.record_count, self.saved_bytes)?;
        }
        for (&lsn, segment) in doubtful {
            self.save_big(reader, segment, lsn)?;
        }
        Ok(())
    }

    fn apply(
        &mut self,
        reader: &mut Reader<'_>,
        part: &Part,
        record: &Record<'_>,
        lsn: u64,
    ) -> Result<()> {
        self.saved_bytes += record.bytes.len() as u64;
        match record.header.kind {
            RecordKind::Put if !self.replaced.is_replaced(&part.segment, record.offset) => {
                self.put(record.key(), record.value(), lsn)
            }
            RecordKind::BigPut => {
                let target = big_target(record).ok();
                let valid = target.and_then(|(offset, _)| self.found.bigs.valid.get(&offset));
                // Its number tells whether it is this record that names it.
                match valid.filter(|segment| segment.base_lsn == lsn) {
                    Some(segment) => self.save_big(reader, segment, lsn),
                    None => Ok(()),
                }
            }
            // An older version of the key may have been stored, since the one that replaced it
            // is lost.
            RecordKind::Delete
                if !self.replaced.is_complete
                    && self.replaced.unmark_replaced(record.header.prev) =>
            {
                match self.replaced.key_of_deleted(reader, record) {
                    Some(key) => self.db.delete(&key).map(drop),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn save_big(&mut self, reader: &mut Reader<'_>, segment: &Segment, lsn: u64) -> Result<()> {
        self.saved_bytes += segment.bytes;
        if self.replaced.big_marks.contains(&segment.offset) {
            return Ok(());
        }
        let Some(pair) = read_big(reader, segment) else { return Ok(()) };
        self.put(&pair.key, &pair.value, lsn)
    }

    fn put(&mut self, key: &[u8], value: &[u8], lsn: u64) -> Result<()> {
        if self.replaced.is_deleted_later(key, lsn) {
            return Ok(());
        }
        self.record_count += 1;
        self.db.put(key, value)
    }
}
