//! The pass of a check over the segments of a table that reuses space.
//!
//! Which records are live is known to the index alone. So every record of a segment in use must be
//! valid, the records that slots hold must be among them, and their bytes must add up to the counts.
//! Records in segments that were emptied do not count: no slot may lead there.
//!
//! Behind a damaged record the rest of its segment is searched for the next that is valid, so that
//! each place is one damage, as in the pass over the log.

use std::ops::Range;

use super::{Check, CheckStage};
use crate::error::Result;
use crate::format::{LIVE_OFFSET, SegmentHeader};
use crate::index::lookup::is_held;
use crate::log::record::{LINK_BYTES, Record, RecordKind};
use crate::log::resync::{Powers, records_of, scan};
use crate::log::segment::Segment;
use crate::store::Writer;

/// The pass over one segment.
struct Pass<'c, 'a> {
    check: &'c mut Check<'a>,
    segment: Segment,
    /// Whether records are appended to it, so that they end without a LINK.
    is_head: bool,
    /// Whether the log was read, which says itself which records are live.
    is_log_whole: bool,
    live_bytes: u64,
}

impl Check<'_> {
    /// Reads every record of the segments, if the table follows them.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io) if the caller stops it.
    pub(super) fn read_segments(&mut self, writer: &Writer) -> Result<()> {
        let Some(runs) = writer.runs() else { return Ok(()) };
        let segments = writer.extents.segments().expect("there are runs of it");
        let is_log_whole = writer.is_log_whole();
        if !is_log_whole {
            self.used.extend(segments.used());
        }
        let heads = writer.heads().map(|head| head.segment_offset);
        let bytes_total = runs.iter().map(|run| run.end - run.start).sum();
        let (mut live_bytes, mut bytes) = (0, 0);
        for run in runs.iter() {
            let segment_offset = run.start - SegmentHeader::BYTES;
            let is_head = heads.contains(&segment_offset);
            let read = self.read_run(run, is_head, is_log_whole);
            // The segments of single records have no counts, and the first ones share theirs. In a
            // file they are hints: a killed process leaves them wrong by a record.
            if self.store.region.storage().is_volatile()
                && let Some(counted) = segments.segment_at(segment_offset)
                && counted.live_bytes != read
            {
                let what = "live bytes of a segment";
                self.report.note(what, segment_offset, read, counted.live_bytes);
            }
            live_bytes += read;
            bytes += run.end - run.start;
            if !is_log_whole {
                self.tell(CheckStage::Log, bytes, bytes_total)?;
            }
        }
        let counted = writer.state.live_bytes.saturating_sub(self.left.taken_bytes);
        if self.report.is_clean() && live_bytes != counted {
            self.report.note("live bytes", LIVE_OFFSET, live_bytes, counted);
        }
        Ok(())
    }

    /// Reads the records of a segment; returns how many bytes of them slots hold.
    fn read_run(&mut self, run: &Range<u64>, is_head: bool, is_log_whole: bool) -> u64 {
        let segment_offset = run.start - SegmentHeader::BYTES;
        let header = match self.store.region.view.segment(segment_offset) {
            Ok(header) => header,
            Err(error) => {
                // Without its salt no record can be verified.
                self.report.note_error(&error);
                self.losses.add(run.clone());
                return 0;
            }
        };
        let segment = Segment::new(segment_offset, &header);
        let mut pass = Pass { check: self, segment, is_head, is_log_whole, live_bytes: 0 };
        pass.read(run);
        pass.live_bytes
    }
}

impl<'a> Pass<'_, 'a> {
    fn read(&mut self, run: &Range<u64>) {
        let mut at = run.start;
        while at < run.end {
            let Ok(record) = self.record_at(at, run.end) else {
                return self.read_damaged(at, run.end);
            };
            at += record.bytes.len() as u64;
            self.take(&record);
            if matches!(record.header.kind, RecordKind::Link | RecordKind::Big) {
                return;
            }
        }
    }

    fn record_at(&self, at: u64, end: u64) -> Result<Record<'a>> {
        let record = self.check.store.region.view.record_before(at, end)?;
        record.verify(self.segment.salt)?;
        Ok(record)
    }

    /// Takes a valid record.
    fn take(&mut self, record: &Record<'_>) {
        let Self { check, is_log_whole, .. } = self;
        let bytes = record.bytes.len() as u64;
        if !*is_log_whole {
            check.report.record_count += 1;
            check.report.log_bytes += bytes;
        }
        if !matches!(record.header.kind, RecordKind::Put | RecordKind::Big) {
            return;
        }
        let hash = check.store.hash_of(record.key());
        // What is wrong with its chain is found by the pass over the index.
        if !is_held(&check.store.region.windows, hash, record.addr()).unwrap_or(false) {
            return;
        }
        self.live_bytes += bytes;
        if !*is_log_whole {
            check.live.set(record.addr(), true);
            check.record_count += 1;
        }
    }

    /// Goes on behind the damaged record at `start`.
    #[cold]
    fn read_damaged(&mut self, start: u64, run_end: u64) {
        let view = &self.check.store.region.view;
        let bytes = match view.log_bytes(self.segment.offset..run_end) {
            Ok(bytes) => bytes,
            Err(error) => return self.check.report.note_error(&error),
        };
        let mut found = scan(bytes, &self.segment, &mut Powers::new());
        let link = found.links.iter().find(|link| link.offset >= start);
        let end = match link {
            Some(link) => link.offset + LINK_BYTES,
            None if self.is_head => run_end,
            None => found.last_used.clamp(start + 8, run_end),
        };
        found.truncate(end);
        let (mut at, rest) = (start, end..end);
        for run in found.runs.iter().filter(|run| run.end > start).chain([&rest]) {
            let run = run.start.max(at)..run.end.max(at);
            if at < run.start {
                if let Err(error) = self.record_at(at, end) {
                    self.check.report.note_error(&error);
                }
                self.check.losses.add(at..run.start);
            }
            for record in records_of(bytes, &self.segment, &run) {
                self.take(&record);
            }
            at = run.end;
        }
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use std::collections::BTreeMap;

    use crate::check::CheckReport;
    use crate::format::SegmentHeader;
    use crate::log::record::RecordKind::{Big, Link};
    use crate::{Db, Durability, Error, Options, SimDisk};

    type Model = BTreeMap<Vec<u8>, Vec<u8>>;

    fn options() -> Options {
        let options = Options::new().durability(Durability::Buffered).seed(7);
        options.segment_bytes_min(4096).checkpoint_bytes_min(8192)
    }

    fn content(db: &Db) -> Result<Model, Error> {
        let entries = db.scan()?.map(|entry| entry.map(|entry| (entry.key, entry.value)));
        entries.map(|entry| entry.map(|(key, value)| (key.into_vec(), value.into_vec()))).collect()
    }

    /// Returns the file of a compacted store that was closed.
    fn compacted() -> Vec<u8> {
        let disk = SimDisk::new();
        let db = disk.open(&options()).expect("a new store");
        for round in 0..30_u64 {
            for i in 0..150_u64 {
                let bytes = if i % 50 == 0 { 5000 } else { 40 };
                db.put(i.to_le_bytes(), vec![(i + round) as u8; bytes]).expect("there is room");
            }
            db.maintain(u64::MAX).expect("nothing fails");
        }
        (0..150_u64).step_by(9).for_each(|i| {
            db.delete(i.to_le_bytes()).expect("nothing fails");
        });
        assert!(db.store().lock().expect("nothing fails").superblock.is_compacted);
        db.close().expect("nothing fails");
        disk.file()
    }

    /// Opens a file and checks it; an error is a damage that was found.
    fn check(file: &[u8]) -> Result<(CheckReport, Model), Error> {
        let db = SimDisk::with_file(file).open(&options())?;
        let report = db.check()?;
        let content = if report.is_clean() { content(&db)? } else { Model::new() };
        Ok((report, content))
    }

    /// Returns the ranges of the records in use, without what is left at the ends of segments.
    fn records(file: &[u8]) -> Vec<std::ops::Range<u64>> {
        let db = SimDisk::with_file(file).open(&options()).expect("it is sound");
        let mut writer = db.store().lock().expect("nothing fails");
        writer.find_segments().expect("it is sound");
        let runs = writer.runs().expect("they were found");
        let view = &db.store().region.view;
        let end_of = |run: &std::ops::Range<u64>| {
            let mut at = run.start;
            while let Ok(record) = view.record_before(at, run.end) {
                at += record.bytes.len() as u64;
                if matches!(record.header.kind, Link | Big) || at == run.end {
                    break;
                }
            }
            at
        };
        runs.iter().map(|run| run.start - SegmentHeader::BYTES..end_of(run)).collect()
    }

    #[test]
    fn every_damaged_byte_of_a_record_in_use_is_found_and_no_other_does_harm() {
        let file = compacted();
        let (report, expected) = check(&file).expect("it is sound");
        assert!(report.is_clean(), "{:?}", report.damages);
        assert_eq!(expected.len(), 150 - 17);
        let records = records(&file);
        let step = if std::env::var_os("SPLITPOINT_SLOW").is_some() { 1 } else { 131 };
        let (mut in_use, mut found_count) = (0, 0);
        for at in (0..file.len()).step_by(step) {
            let mut damaged = file.clone();
            damaged[at] ^= 0x10;
            let found = check(&damaged);
            let is_found = found.as_ref().map_or(true, |(report, _)| !report.is_clean());
            let is_record = records.iter().any(|run| run.contains(&(at as u64)));
            assert!(is_found || !is_record, "byte {at}");
            in_use += u64::from(is_record);
            found_count += u64::from(is_found);
            if let Ok((report, content)) = found
                && report.is_clean()
            {
                assert!(content == expected, "byte {at}");
            }
        }
        println!("{in_use} of {} bytes are in records, {found_count} found", file.len() / step);
        assert!(in_use > 20);
    }

    #[test]
    fn each_damaged_place_is_one_finding_and_its_slots_are_lost_keys() {
        let file = compacted();
        // In the middle of the values of single records.
        let values: Vec<usize> = (0..file.len() - 40)
            .filter(|&at| at % 8 == 0 && file[at..at + 32].iter().all(|&byte| byte == file[at]))
            .filter(|&at| file[at] != 0)
            .collect();
        let records = records(&file);
        let mut found_count = 0;
        for at in values.into_iter().step_by(17) {
            let mut damaged = file.clone();
            damaged[at + 16] ^= 1;
            let (report, _) = check(&damaged).expect("it opens");
            let is_record = records.iter().any(|run| run.contains(&(at as u64)));
            assert_eq!(report.damage_count, u64::from(is_record), "{at}: {:?}", report.damages);
            assert!(report.lost_slot_count <= 1, "{report:?}");
            found_count += report.lost_slot_count;
        }
        assert!(found_count > 0, "a live record was damaged");
    }
}
