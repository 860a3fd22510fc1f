//! The copy of a store whose space was used again: its log is not whole, so its pairs are copied.
//!
//! A scan returns the pairs of one moment, also those that are deleted before it comes to them.
//!
//! # Invariants
//!
//! - Each record that is copied was verified against the salt of its segment.
//! - The copy has as many keys as the source had at that moment. A walk that damage led past live
//!   records ends in an error.

use std::io;
use std::sync::MutexGuard;

use super::{
    BackupProgress, BackupReport, BackupStage, CHUNK_BYTES, ProgressFunction, expect_count, tell,
};
use crate::cursor::Scan;
use crate::error::Result;
use crate::format::{Addr, SegmentHeader};
use crate::log::runs::run_at;
use crate::options::{Durability, Options};
use crate::recovery::open_storage;
use crate::stats::Recovery;
use crate::storage::failure::io_error;
use crate::storage::mapped::Mapped;
use crate::storage::unnamed_file::UnnamedFile;
use crate::store::{Hold, Store, Writer};
use crate::table::PutMode;

/// A copy of the pairs that a store has at one moment.
struct PairCopy<'a, 'p, 'f> {
    source: &'a Store,
    scan: Scan<'a>,
    /// Held all the time by a table in memory: there keys may be deleted without tombstones.
    writer: Option<MutexGuard<'a, Writer>>,
    record_count: u64,
    target: Store,
    /// The segment of the last record, and its salt.
    segment: (u64, u64),
    progress: &'p mut Option<ProgressFunction<'f>>,
    now: BackupProgress,
}

/// Makes a new store in `storage`, which is empty, with the pairs that `source` has when this begins,
/// and closes it; `stage` is what the progress function is told.
pub(super) fn copy_pairs(
    source: &Store,
    storage: Mapped,
    stage: BackupStage,
    progress: &mut Option<ProgressFunction<'_>>,
) -> Result<BackupReport> {
    // The file is there, which a caller may want to know; and it may want to change the store now.
    tell(progress, BackupProgress { stage, bytes: 0, bytes_total: 0 })?;
    let mut writer = source.lock_to_look()?;
    let scan = Scan::new(source, &mut writer, Hold::Unbounded)?;
    let record_count = writer.state.record_count;
    let bytes_total = writer.state.live_bytes;
    let options = options_for(source, &writer);
    let writer = source.region.storage().is_volatile().then_some(writer);
    let target = Store::new(open_storage(Box::new(storage), &options, true)?, &options);
    let mut copy = PairCopy {
        source,
        scan,
        writer,
        record_count,
        target,
        segment: (0, 0),
        progress,
        now: BackupProgress { stage, bytes: 0, bytes_total },
    };
    let copied_bytes = copy.read()?;
    let PairCopy { target, writer, .. } = copy;
    drop(writer);
    tell(progress, BackupProgress { stage, bytes: copied_bytes, bytes_total: copied_bytes })?;
    target.close()?;
    expect_count(record_count, target.region.live().record_count())?;
    Ok(BackupReport {
        record_count,
        log_bytes: target.region.live().committed().0,
        copied_bytes,
        file_bytes: target.region.view.file_bytes(),
        is_recovered: matches!(source.recovery, Recovery::Replayed { .. }),
    })
}

/// Returns the options of a copy: what the source was made with.
fn options_for(source: &Store, writer: &Writer) -> Options {
    let superblock = &writer.superblock;
    // It is closed at once: its first checkpoint is left to whoever changes it.
    let options = Options { checkpoint_bytes_min: u64::MAX, ..Options::new() };
    options
        .hash(source.hash.clone())
        .seed(source.seed)
        .fill_factor(f64::from(superblock.fill_thousandths) / 1000.0)
        .segment_bytes_min(superblock.segment_bytes_min.into())
        .expected_records(writer.state.record_count)
        .durability(Durability::Buffered)
        // The names of big records are dead from the first.
        .keep_dead_records()
}

impl PairCopy<'_, '_, '_> {
    /// Copies everything; returns how many bytes of records that was.
    fn read(&mut self) -> Result<u64> {
        let mut told_bytes = 0;
        while let Some((addr, _)) = self.scan.next_current()? {
            self.put(addr)?;
            // Nobody who holds the lock calls a function that may want it.
            if self.writer.is_none() && self.now.bytes - told_bytes >= CHUNK_BYTES {
                told_bytes = self.now.bytes;
                tell(self.progress, self.now)?;
            }
        }
        expect_count(self.record_count, self.target.region.live().record_count())?;
        Ok(self.now.bytes)
    }

    /// Verifies a record and stores its pair, if the copy has none of its key.
    fn put(&mut self, addr: Addr) -> Result<()> {
        let record = self.source.version(addr)?;
        record.verify(self.salt_of(record.offset)?)?;
        let mut writer = self.target.lock_for_change()?;
        let (mode, durability) = (PutMode::New, Durability::Buffered);
        let (key, value) = (record.key(), record.value());
        if self.target.put_at_once(&mut writer, key, value, mode, durability)? {
            self.now.bytes += record.bytes.len() as u64;
        }
        Ok(())
    }

    /// Returns the salt of the segment that has the record at `offset`.
    fn salt_of(&mut self, offset: u64) -> Result<u64> {
        let run = run_at(self.scan.runs(), offset);
        let segment_offset = run.map_or(0, |run| run.start - SegmentHeader::BYTES);
        if self.segment.0 != segment_offset {
            let header = self.source.region.view.segment(segment_offset)?;
            self.segment = (segment_offset, header.salt);
        }
        Ok(self.segment.1)
    }
}

/// Copies the pairs of a store to a file without a name, and that to a stream.
pub(super) fn stream_pairs(
    source: &Store,
    out: &mut impl io::Write,
    progress: &mut Option<ProgressFunction<'_>>,
) -> Result<BackupReport> {
    let path = source.region.storage().path();
    let random = source.region.storage().random_u64();
    let random = random.map_err(|error| io_error("choose a name for a copy of", path, error))?;
    let file = UnnamedFile::create(random)?;
    let report = copy_pairs(source, file.map()?, BackupStage::Verify, progress)?;
    let bytes_total = file.bytes()?;
    let (mut bytes, mut chunk) = (0, vec![0; CHUNK_BYTES as usize]);
    while bytes < bytes_total {
        let chunk = &mut chunk[..CHUNK_BYTES.min(bytes_total - bytes) as usize];
        file.read_at(chunk, bytes)?;
        out.write_all(chunk).map_err(|error| io_error("write the backup of", path, error))?;
        bytes += chunk.len() as u64;
        tell(progress, BackupProgress { stage: BackupStage::Copy, bytes, bytes_total })?;
    }
    out.flush().map_err(|error| io_error("write the backup of", path, error))?;
    Ok(BackupReport { file_bytes: bytes_total, ..report })
}
