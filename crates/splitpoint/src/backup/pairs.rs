//! The copy of a compacted store: its log has gaps, so its records are copied one by one.
//!
//! A scan returns the records of one moment, including those that are deleted before it reaches
//! them.
//!
//! # Invariants
//!
//! - Each record that is copied was verified against the salt of its segment.
//! - The copy has as many keys as the source had at that moment. If damage makes the scan skip live
//!   records, the backup fails.

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

/// A copy in progress of the records that a store has at one moment.
struct PairCopy<'a, 'p, 'f> {
    source: &'a Store,
    scan: Scan<'a>,
    /// The lock of a table in memory, held throughout the copy: such a table may delete keys
    /// without tombstones.
    writer: Option<MutexGuard<'a, Writer>>,
    record_count: u64,
    target: Store,
    /// The segment of the last record, and its salt.
    segment: (u64, u64),
    progress: &'p mut Option<ProgressFunction<'f>>,
    now: BackupProgress,
}

/// Creates a new store in `storage`, which is empty, copies the present records of `source` to it,
/// and closes it. `stage` is the stage that the progress function sees.
pub(super) fn copy_pairs(
    source: &Store,
    storage: Mapped,
    stage: BackupStage,
    progress: &mut Option<ProgressFunction<'_>>,
) -> Result<BackupReport> {
    // Report once right after the file was created, before the lock is taken: the program's
    // function may change the store.
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

/// Returns the options of the copy: those with which the source was created.
fn options_for(source: &Store, writer: &Writer) -> Options {
    let superblock = &writer.superblock;
    // The copy is closed at once, so it needs no checkpoint before its first writer changes it.
    let options = Options { checkpoint_bytes_min: u64::MAX, ..Options::new() };
    options
        .hash(source.hash.clone())
        .seed(source.seed)
        .fill_factor(f64::from(superblock.fill_thousandths) / 1000.0)
        .segment_bytes_min(superblock.segment_bytes_min.into())
        .expected_records(writer.state.record_count)
        .durability(Durability::Buffered)
        // The BIGPUT records that name big records are dead from the start and must not trigger
        // compaction.
        .keep_dead_records()
}

impl PairCopy<'_, '_, '_> {
    /// Copies all records, and returns their size in bytes.
    fn read(&mut self) -> Result<u64> {
        let mut told_bytes = 0;
        while let Some((addr, _)) = self.scan.next_current()? {
            self.put(addr)?;
            // While this holds the lock, it must not call the program's function, which may want
            // the lock.
            if self.writer.is_none() && self.now.bytes - told_bytes >= CHUNK_BYTES {
                told_bytes = self.now.bytes;
                tell(self.progress, self.now)?;
            }
        }
        expect_count(self.record_count, self.target.region.live().record_count())?;
        Ok(self.now.bytes)
    }

    /// Verifies a record, and stores it unless the copy has its key already.
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

    /// Returns the salt of the segment that contains the record at `offset`.
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

/// Copies the records of a store to an unnamed file, and streams that file.
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
