//! Saves what a damaged file still holds into a new store.
//!
//! [`repair`](fn@repair) does it, and returns in a [`RepairReport`] what it could not save.
//!
//! ```text
//! granules --search--> headers of segments --order--> the log --verify--> its valid records
//!                                                                               | newest of each key
//!                                                                             new store
//! ```
//!
//! The log of a compacted store does not contain all its records: for such a store, `compacted`
//! saves the records that the index leads to, or those of the checkpoint and the log after it, or
//! every valid record.
//!
//! For any other store, the repair needs only the records and something that leads to them: a
//! superblock, the header of a segment or the link to it. It reads no content from the index and
//! the live header.
//!
//! # Invariants
//!
//! - The damaged file is never written.
//! - A value that is saved was stored under its key: every record that is used is valid under the
//!   salt of its segment, at its place.
//! - Records that an earlier recovery dropped do not come back, as far as the file tells, and
//!   neither do those of a batch that was never committed.
//! - The report accounts for every range that could not be read: newer values and deletes may have
//!   been there.

mod batches;
mod bigs;
mod compacted;
mod marks;
mod reader;
mod replaced;
mod report;
mod saver;
mod segments;

use std::ops::ControlFlow;
use std::path::Path;

use crate::atomic::AtomicU64;
use crate::db::Db;
use crate::error::{Error, Result};
use crate::file_kind::FileKind;
use crate::format::{
    FILE_BYTES_MAX, HEADER_BYTES, LIVE_BYTES, LIVE_OFFSET, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS,
    Superblock, is_magic, newest, u64_at,
};
use crate::hash::HashFunction;
use crate::live::{Live, WORD_COUNT};
use crate::options::{Create, Durability, Options};
use crate::recovery::{open_storage, resolve_hash};
use crate::region::refuse_newer;
use crate::storage::Storage;
use crate::storage::new_file::NewFile;
use crate::storage::open::TURN_WAIT;
use crate::storage::raw::RawFile;
#[cfg(any(test, feature = "sim"))]
use crate::storage::raw::ReadAt;

use batches::Undone;
use bigs::{Bigs, big_header};
use compacted::Compacted;
use reader::Reader;
use replaced::Replaced;
pub use report::{DamagedRange, RepairProgress, RepairReport};
use saver::Saver;
use segments::{Headers, KnownEnd, Log, Losses, losses, order};

/// Saves what the store in the file at `source` still holds into a new store at `target`.
///
/// As [`repair_with`] with [`Options::new`], without reports of progress.
///
/// # Errors
///
/// As [`repair_with`].
///
/// # Examples
///
/// ```
/// # fn main() -> splitpoint::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let (path, saved) = (dir.path().join("words.spt"), dir.path().join("saved.spt"));
/// let db = splitpoint::Db::open(&path)?;
/// db.put(b"key", b"value")?;
/// db.close()?;
/// // Both superblocks, the live header and the reader table.
/// let mut bytes = std::fs::read(&path).unwrap();
/// bytes[..16384].fill(0xff);
/// std::fs::write(&path, bytes).unwrap();
///
/// let report = splitpoint::repair::repair(&path, &saved)?;
/// assert!(report.is_whole());
/// let db = splitpoint::Db::open(&saved)?;
/// assert_eq!(db.get(b"key")?.as_deref(), Some(&b"value"[..]));
/// # Ok(())
/// # }
/// ```
pub fn repair(source: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<RepairReport> {
    repair_with(source, target, &Options::new(), |_| ControlFlow::Continue(()))
}

/// Saves what the store in the file at `source` still holds into a new store at `target`: the
/// newest value of each key that can be read.
///
/// The damaged file is opened for reading only. The new store keeps the hash function, the seed and
/// the fill factor of the old one if a superblock still has them; otherwise it takes those of
/// `options`. It always takes the `cache_bytes` of `options`. If the source is in a turn of another
/// process, `repair_with` waits for the end of the turn for at most the `lock_timeout` of
/// `options`, 10 seconds by default. It calls `watch` regularly with its progress, and stops if
/// `watch` returns `Break`. Until the new store is complete, its name is
/// `TARGET.repair-in-progress`; that file exists before the first call of `watch`. A killed process
/// leaves that file behind, and the next repair to `target` overwrites it.
///
/// # Errors
///
/// - [`ErrorKind::NotAStore`](crate::ErrorKind::NotAStore) if nothing in the file belongs to a store.
/// - [`ErrorKind::Version`](crate::ErrorKind::Version) or
///   [`Unsupported`](crate::ErrorKind::Unsupported) if a newer version wrote it.
/// - [`ErrorKind::Locked`](crate::ErrorKind::Locked) if a process has the source open for writing,
///   or keeps its turn for longer than the timeout.
/// - [`ErrorKind::Exists`](crate::ErrorKind::Exists) if there is a file at `target`.
/// - [`ErrorKind::Io`](crate::ErrorKind::Io) or [`Full`](crate::ErrorKind::Full) if the new store
///   cannot be written, and `Io` with [`Interrupted`](std::io::ErrorKind::Interrupted) if `watch`
///   stopped the work.
///
/// After an error there is no file at `target`. Ranges of the damaged file that cannot be read are
/// not an error; the report lists them.
///
/// # Durability
///
/// The new store appears under its name only when it is complete and synced.
///
/// # Cost
///
/// Reads the file once and the segments of the log four times, five times if there are batches.
/// Besides the cache of the new store, it takes one bit of memory for each 8 bytes of the log (two
/// if there are batches), 24 bytes for each record of the largest batch, and the size of the
/// largest record.
pub fn repair_with(
    source: impl AsRef<Path>,
    target: impl AsRef<Path>,
    options: &Options,
    mut watch: impl FnMut(RepairProgress) -> ControlFlow<()>,
) -> Result<RepairReport> {
    let new = NewFile::begin_first(target.as_ref(), "repair", source.as_ref())?;
    let source = RawFile::open(source.as_ref(), options.lock_timeout.unwrap_or(TURN_WAIT))?;
    let mut reader = Reader::new(&source, &mut watch);
    reader.ask()?;
    let report = if let Some(compacted) = Compacted::find(&mut reader, options)? {
        let options = compacted.options(options);
        save_into(Box::new(new.storage()?), &options, |db| compacted.save(&mut reader, db, true))?
    } else {
        let found = find(&mut reader, options)?;
        found.save_into(&mut reader, Box::new(new.storage()?), options)?
    };
    new.publish()?;
    Ok(report)
}

/// As [`repair_with`], from any bytes into a table in memory.
#[cfg(any(test, feature = "sim"))]
pub(crate) fn repair_in_memory(
    source: &dyn ReadAt,
    options: &Options,
) -> Result<(Db, RepairReport)> {
    let mut watch = |_| ControlFlow::Continue(());
    let mut reader = Reader::new(source, &mut watch);
    if let Some(compacted) = Compacted::find(&mut reader, options)? {
        let db = compacted.options(options).in_memory()?;
        let report = compacted.save(&mut reader, &db, false)?;
        return Ok((db, report));
    }
    let found = find(&mut reader, options)?;
    let db = found.options(options).in_memory()?;
    let report = found.save(&mut reader, &db)?;
    Ok((db, report))
}

/// The findings in a damaged file, before anything is saved.
struct Found {
    superblock: Option<Superblock>,
    /// The hash function of the store, if it is known.
    hash: Option<HashFunction>,
    log: Log,
    losses: Losses,
    bigs: Bigs,
    report: RepairReport,
}

/// Reads the file up to the point where it is known which records to save.
fn find(reader: &mut Reader<'_>, options: &Options) -> Result<Found> {
    let (superblock, superblock_count, has_magic) = read_superblocks(reader)?;
    let known_end = read_end(reader, superblock.as_ref());
    let headers = Headers::find(reader)?;
    if superblock.is_none() && !has_magic && headers.is_empty() {
        let (mut head, file_bytes) = (Vec::new(), reader.file_bytes());
        reader.read(0, HEADER_BYTES.min(file_bytes), &mut head);
        let path = reader.source.path().to_path_buf();
        return Err(Error::NotAStore { path, found: FileKind::of_content(&head, file_bytes) });
    }
    let start = superblock.as_ref().map(|superblock| superblock.log_start);
    let mut log = order(reader, headers, start, known_end)?;
    let mut losses = losses(&log, known_end);
    let is_known_empty = start.is_some_and(|start| start.segment_offset == 0);
    if log.parts.is_empty() && !is_known_empty {
        losses.segments += 1;
    }
    let is_tail_found = log.has_tail || log.parts.is_empty() && is_known_empty;
    // The published end of the log; records that a process was about to publish may lie behind it.
    let is_reached = |end: KnownEnd| log.end_lsn() >= end.lsn;
    let is_end_known = is_tail_found && known_end.is_some_and(is_reached);
    let is_end_sure = is_end_known || log.ends_in_a_sector() && known_end.is_none();
    let undone = batches::decide(reader, &mut log, is_end_sure)?;
    let Undone { uncommitted_count, doubtful_count: doubtful_batched_count } = undone;
    let bigs = Bigs::find(reader, &log, &losses)?;
    let mut report = RepairReport {
        file_bytes: reader.file_bytes(),
        superblock_count,
        is_tail_found,
        is_end_known,
        segment_count: log.parts.iter().filter(|part| !part.scan.runs.is_empty()).count() as u64,
        lost_segment_count: losses.segments,
        missing_bytes: losses.missing.iter().map(|range| range.end - range.start).sum(),
        lost_big_count: bigs.lost_count,
        doubtful_count: bigs.doubtful.len() as u64,
        doubtful_batched_count,
        uncommitted_count,
        ignored_segment_count: log.ignored_segments,
        ignored_bytes: log.ignored_bytes,
        record_bytes: log.record_bytes() + bigs.record_bytes,
        ..RepairReport::default()
    };
    for range in &losses.damaged {
        report.note(range.start, range.end - range.start);
    }
    let hash = superblock.as_ref().and_then(|superblock| hash_of_store(superblock, options));
    Ok(Found { superblock, hash, log, losses, bigs, report })
}

/// Returns the newest valid superblock, how many there are, and whether either has its magic.
fn read_superblocks(reader: &mut Reader<'_>) -> Result<(Option<Superblock>, u32, bool)> {
    let (mut has_magic, mut block) = (false, Vec::new());
    let copies = SUPERBLOCK_OFFSETS.map(|offset| {
        let here = reader.file_bytes().saturating_sub(offset).min(SUPERBLOCK_BYTES);
        reader.read(offset, here, &mut block);
        has_magic |= is_magic(&block);
        block.resize(SUPERBLOCK_BYTES as usize, 0);
        Superblock::decode(&block)
    });
    // A newer version wrote the store: this one does not know what its records mean.
    refuse_newer(reader.source.path(), &copies)?;
    let count = copies.iter().filter(|copy| copy.is_ok()).count() as u32;
    Ok((newest(&copies).cloned(), count, has_magic))
}

/// Returns the end of the log according to the live header, if it is a possible end.
fn read_end(reader: &mut Reader<'_>, superblock: Option<&Superblock>) -> Option<KnownEnd> {
    if reader.file_bytes() < LIVE_OFFSET + LIVE_BYTES {
        return None;
    }
    let mut block = Vec::new();
    reader.read(LIVE_OFFSET, LIVE_BYTES, &mut block);
    let words: [AtomicU64; WORD_COUNT] =
        std::array::from_fn(|word| AtomicU64::new(u64_at(&block, word * 8)));
    let live = Live(&words);
    // The file may be truncated: an end beyond the end of the file does not make the header wrong.
    live.validate(FILE_BYTES_MAX).ok()?;
    let (lsn, state) = live.committed();
    let is_certain = superblock.is_some_and(|block| block.is_clean && block.live_crc == live.crc());
    Some(KnownEnd {
        segment_offset: state.tail_segment,
        offset: state.tail_offset,
        lsn,
        durable_lsn: live.durable_lsn(),
        is_certain,
    })
}

impl Found {
    /// Returns the options of the new store.
    fn options(&self, options: &Options) -> Options {
        options_of(self.superblock.as_ref(), self.hash.as_ref(), options)
    }

    fn save_into(
        self,
        reader: &mut Reader<'_>,
        storage: Box<dyn Storage>,
        options: &Options,
    ) -> Result<RepairReport> {
        save_into(storage, &self.options(options), |db| self.save(reader, db))
    }

    /// Stores the newest value of each key in `db`, which is empty.
    fn save(mut self, reader: &mut Reader<'_>, db: &Db) -> Result<RepairReport> {
        let mut replaced = Replaced::new(&self);
        for part in &self.log.parts {
            part.each_record(reader, |reader, record| {
                replaced.add(reader, part, record);
                Ok(())
            })?;
        }
        for (&lsn, segment) in &self.bigs.doubtful {
            if let Some((header, _)) = big_header(reader, segment) {
                replaced.mark_replaced(header.prev, lsn);
            }
        }
        let (record_count, unknown) = (replaced.record_count, replaced.unknown_deletes);
        let saver = Saver { found: &self, replaced, db, record_count: 0, saved_bytes: 0 };
        saver.save_all(reader)?;
        if let (Some(superblock), None) = (&self.superblock, &self.hash) {
            self.report.replaced_hash = Some(superblock.hash_name.clone());
        }
        self.report.record_count = record_count + self.report.uncommitted_count;
        self.report.unknown_delete_count = unknown;
        self.report.key_count = db.len();
        self.report.unreadable_count = reader.unreadable.len() as u64;
        Ok(self.report)
    }
}

/// Returns the options of a new store that takes the place of one with such a superblock.
fn options_of(
    superblock: Option<&Superblock>,
    hash: Option<&HashFunction>,
    options: &Options,
) -> Options {
    let Some(superblock) = superblock else { return options.clone() };
    let options = options
        .clone()
        .fill_factor(f64::from(superblock.fill_thousandths) / 1000.0)
        .gdbm_mark(superblock.has_gdbm_mark)
        .application_data(superblock.application_data);
    match hash {
        Some(hash) => options.hash(hash.clone()).seed(superblock.seed),
        None => options,
    }
}

/// Creates the new store in an empty storage, has `save` fill it and closes it: when this returns a
/// report, all that the report counts is durable.
fn save_into(
    storage: Box<dyn Storage>,
    options: &Options,
    save: impl FnOnce(&Db) -> Result<RepairReport>,
) -> Result<RepairReport> {
    let options = options.clone().create(Create::New).durability(Durability::Buffered);
    let db = Db::from_opened(open_storage(storage, &options, true)?, &options);
    let report = save(&db)?;
    let is_closed = db.close()?;
    assert!(is_closed, "nobody else has a handle to the new store");
    Ok(report)
}

/// Returns the hash function that a superblock names: the caller's, or one of this library.
fn hash_of_store(superblock: &Superblock, options: &Options) -> Option<HashFunction> {
    let own = Options::new();
    [options, &own].into_iter().find_map(|options| resolve_hash(superblock, options).ok())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{SimDisk, SimFault};

    /// Repairs `bytes` into a new store on `target`.
    fn repair_to(target: &SimDisk, bytes: &Vec<u8>) -> Result<RepairReport> {
        let mut watch = |_| ControlFlow::Continue(());
        let mut reader = Reader::new(bytes, &mut watch);
        let options = Options::new();
        let found = find(&mut reader, &options)?;
        let storage = target.storage().expect("nothing fails before the first call");
        found.save_into(&mut reader, storage, &options)
    }

    #[test]
    fn a_repair_whose_store_is_not_durable_fails_whichever_call_went_wrong() {
        let disk = SimDisk::new();
        let db = disk.open(&Options::new()).expect("a new store");
        for i in 0..20_u8 {
            db.put([i], [i; 300]).expect("there is room");
        }
        db.close().expect("nothing fails here");
        let (bytes, target) = (disk.file(), SimDisk::new());
        let report = repair_to(&target, &bytes).expect("the store is sound");
        assert_eq!(report.key_count, 20);
        let (call_count, syncs) = (target.call_count(), target.syncs());
        assert!(!syncs.is_empty(), "a repair syncs");
        for call in 1..=call_count {
            let target = SimDisk::new();
            target.fail_once(call, SimFault::Error(5));
            let is_sync = syncs.iter().any(|&(sync, _)| sync == call);
            let repaired = repair_to(&target, &bytes);
            assert!(!(is_sync && repaired.is_ok()), "the sync in call {call} fails unnoticed");
            if repaired.is_ok() {
                let db = target.lose_power(0).open(&Options::new()).expect("it is durable");
                assert_eq!(db.len(), 20, "call {call}");
            }
        }
    }
}
