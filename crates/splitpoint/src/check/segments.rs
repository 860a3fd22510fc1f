//! The pass of a check over the segments of a table whose space is used again.
//!
//! Which records are live is known to the index alone. So every record must be valid, the records
//! that slots hold must be among them, and their bytes must add up to the counts.

use super::{Check, CheckStage};
use crate::error::Result;
use crate::format::{LIVE_OFFSET, SegmentHeader};
use crate::index::lookup::is_held;
use crate::log::record::{Record, RecordKind};
use crate::log::runs::RunWalk;
use crate::store::Writer;

impl Check<'_> {
    /// Reads every record of the segments, if the table follows them.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io) if the caller stops it.
    pub(super) fn read_segments(&mut self, writer: &Writer) -> Result<()> {
        let Some(runs) = writer.runs() else { return Ok(()) };
        let is_log_whole = writer.is_log_whole();
        let bytes_total = runs.iter().map(|run| run.end - run.start).sum();
        let (mut live_bytes, mut bytes) = (0, 0);
        for run in runs.iter() {
            let segment_offset = run.start - SegmentHeader::BYTES;
            let read = self.read_run(writer, segment_offset, run.end, is_log_whole);
            live_bytes += read.unwrap_or_else(|error| {
                self.report.note_error(&error);
                0
            });
            bytes += run.end - run.start;
            if !is_log_whole {
                self.tell(CheckStage::Log, bytes, bytes_total)?;
            }
        }
        let counted = writer.state.live_bytes;
        if self.report.is_clean() && live_bytes != counted {
            self.report.note("live bytes", LIVE_OFFSET, live_bytes, counted);
        }
        Ok(())
    }

    /// Reads the records of a segment up to `end`; returns how many bytes of them slots hold.
    fn read_run(
        &mut self,
        writer: &Writer,
        segment_offset: u64,
        end: u64,
        is_log_whole: bool,
    ) -> Result<u64> {
        let view = &self.store.region.view;
        let header = view.segment(segment_offset)?;
        let mut walk = RunWalk::of_one(view, segment_offset + SegmentHeader::BYTES..end);
        let mut live_bytes = 0;
        while let Some(record) = walk.next_record()? {
            record.verify(header.salt)?;
            if !is_log_whole {
                self.report.record_count += 1;
                self.report.log_bytes += record.bytes.len() as u64;
            }
            if self.is_live(&record)? {
                live_bytes += record.bytes.len() as u64;
                if !is_log_whole {
                    self.live.set(record.addr(), true);
                    self.record_count += 1;
                }
            }
        }
        // The segments of single records have no counts, and the first ones share theirs.
        let segments = writer.extents.segments().expect("there are runs of it");
        if let Some(counted) = segments.segment_at(segment_offset)
            && counted.live_bytes != live_bytes
        {
            let what = "live bytes of a segment";
            self.report.note(what, segment_offset, live_bytes, counted.live_bytes);
        }
        Ok(live_bytes)
    }

    /// Returns whether a slot holds a record.
    fn is_live(&self, record: &Record<'_>) -> Result<bool> {
        if !matches!(record.header.kind, RecordKind::Put | RecordKind::Big) {
            return Ok(false);
        }
        let hash = self.store.hash_of(record.key());
        is_held(&self.store.region.windows, hash, record.addr())
    }
}
