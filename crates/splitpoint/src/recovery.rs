//! Opens a store, from whatever state the last writer left.
//!
//! | state of the file | action | cost |
//! |---|---|---|
//! | closed | the live tables are used as they are | O(1), or a pass over the index of a small file |
//! | left by a killed process | the records after the last commit are applied | O(1) |
//! | anything else | the index is rebuilt from the newest checkpoint, if there is one, and the log after it: see `replay` | a pass over both |
//!
//! # Invariants
//!
//! - Nothing is written until the log that is kept has been read to its end.
//! - The log ends at the first record whose checksum is wrong, so recovery keeps a prefix of the
//!   commits. Every commit that was synced is in it.
//! - Recovery can be interrupted at any step and started again: the live header names this boot
//!   only once the tables are complete.

mod agreement;
mod beside;
mod halves;
mod log_scan;
mod replay;
mod turns;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use beside::Found;
use log_scan::{KeyHash, LogScan};
use replay::apply_change;

use crate::atomic::Ordering;
use crate::checkpoint::{is_place_of, release_all_but};
use crate::error::{Error, Result};
use crate::format::{
    Addr, CheckpointName, GRANULE_BYTES, HEADER_BYTES, LIVE_OFFSET, LOG_SEGMENT_BYTES_MAX,
    LogStart, READER_TABLE_BYTES, READER_TABLE_OFFSET, SegmentHeader, SegmentKind, Superblock,
    u64_at,
};
use crate::hash::{HashFunction, HashId, PROBE_KEY};
use crate::index::Lines;
use crate::index::line::LINE_BYTES;
use crate::index::shape::Shape;
use crate::index::split::{is_last_split_whole, repair_last_split};
use crate::linear::Geometry;
use crate::live::{BIRTH, CommitState, INODE, LineWindow};
use crate::log::append::{Appender, LogPosition};
use crate::log::scan::{LogWalk, Trust};
use crate::options::{Access, Create, OnRecovery, Options, RecoveryProgress, Sharing};
use crate::region::{Extents, Region, read_superblock, unknown_features};
use crate::segments::SegmentTotals;
use crate::stats::Recovery;
use crate::storage::anon::Anon;
use crate::storage::failure::io_error;
use crate::storage::holders::locked_storage;
use crate::storage::open::{
    Locked, claim_to_read, open_and_lock, remove_new, share, sync_directory,
};
use crate::storage::reader_table::{LastWriter, may_be_table, note_other_writer};
use crate::storage::shared_file::SharedFile;
use crate::storage::waiting::Waiting;
use crate::storage::{Identity, Storage, fits_in_memory, no_room};
use crate::store::{Mark, Opened, Store, Writer, committed_position};
use crate::testing::mutant::{self, Mutant};

/// Opens or creates the store in the file at `path`.
pub(crate) fn open_file(path: &Path, options: &Options) -> Result<Opened> {
    open_file_within(path, options, &mut Waiting::new(options))
}

/// As above, with a wait that may have begun already.
fn open_file_within(path: &Path, options: &Options, waiting: &mut Waiting<'_>) -> Result<Opened> {
    let Locked { storage, is_new } = open_and_lock(path, options, waiting)?;
    if options.reads_beside_writers() {
        return match beside::open(Box::new(storage), options, waiting)? {
            Found::Opened(opened) => let_go_between_calls(*opened, options),
            // An exclusive reader keeps writers out while it uses its own index.
            Found::NeedsOwnIndex => {
                let options = Options { sharing: Sharing::Exclusive, ..options.clone() };
                open_file_within(path, &options, waiting)
            }
            Found::Replaced => open_file_within(path, options, waiting),
        };
    }
    let may_create = options.access == Access::ReadWrite && options.create != Create::Never;
    let opened = open_storage_within(Box::new(storage), options, may_create, waiting);
    let opened = opened.and_then(|mut opened| {
        if opened.recovery == Recovery::Created {
            sync_directory(path)?;
        }
        if options.access == Access::ReadWrite {
            opened.let_others_in(options.sharing)?;
        }
        Ok(opened)
    });
    if is_new && opened.is_err() {
        remove_new(path);
    }
    opened
}

/// Opens the store in a file that the program has opened, or creates one there if the file is
/// empty.
pub(crate) fn open_shared(file: &SharedFile, options: &Options) -> Result<Opened> {
    open_shared_within(file, options, &mut Waiting::new(options))
}

/// As above, with a wait that may have begun already.
fn open_shared_within(
    file: &SharedFile,
    options: &Options,
    waiting: &mut Waiting<'_>,
) -> Result<Opened> {
    let storage = share(file, options, waiting)?;
    if file.takes_turns() && options.access == Access::ReadOnly {
        return match beside::open(Box::new(storage), options, waiting)? {
            Found::Opened(opened) => let_go_between_calls(*opened, options),
            // A claim for reading keeps writers out while the handle uses its own index.
            Found::NeedsOwnIndex => {
                let claimed = claim_to_read(file, options, waiting)?;
                open_shared_within(&claimed, options, waiting)
            }
            Found::Replaced => unreachable!("a file of the program needs no name"),
        };
    }
    let may_create = options.access == Access::ReadWrite && options.create != Create::Never;
    let mut opened = open_storage_within(Box::new(storage), options, may_create, waiting)?;
    if opened.recovery == Recovery::Created {
        sync_directory(file.path())?;
    }
    if file.takes_turns() {
        opened.let_others_in(Sharing::PerCall)?;
    }
    Ok(opened)
}

/// Opens the store in a storage beside others of the simulated machine, or creates it there, as
/// [`open_file`] does in a file.
#[cfg(test)]
pub(crate) fn open_locked(storage: Box<dyn Storage>, options: &Options) -> Result<Opened> {
    let waiting = &mut Waiting::new(options);
    let neighbours = storage.neighbours().expect("the handles of the machine have locks");
    let is_in = neighbours.try_lock_to_open(options.access, options.sharing);
    if !is_in.map_err(|source| io_error("lock", storage.path(), source))? {
        return Err(locked_storage(&*storage));
    }
    if options.reads_beside_writers() {
        return match beside::open(storage, options, waiting)? {
            Found::Opened(opened) => let_go_between_calls(*opened, options),
            Found::NeedsOwnIndex | Found::Replaced => {
                unreachable!("no program of the tests does that")
            }
        };
    }
    let may_create = options.access == Access::ReadWrite && options.create != Create::Never;
    let mut opened = open_storage_within(storage, options, may_create, waiting)?;
    if options.access == Access::ReadWrite {
        opened.let_others_in(options.sharing)?;
    }
    Ok(opened)
}

/// Releases the locks of an open for reading, if the handle holds none between calls.
fn let_go_between_calls(opened: Opened, options: &Options) -> Result<Opened> {
    let storage = opened.region.storage();
    if options.sharing == Sharing::PerCall
        && let Some(neighbours) = storage.neighbours()
    {
        let unlocked = neighbours.let_go_between_calls();
        unlocked.map_err(|source| io_error("unlock", storage.path(), source))?;
    }
    Ok(opened)
}

/// Creates a table in memory.
pub(crate) fn open_memory(options: &Options) -> Result<Opened> {
    let storage = Anon::new().map_err(|source| io_error("map", Path::new(":memory:"), source))?;
    create(Box::new(storage), options)
}

/// Opens the store in a storage, or creates one if the storage is empty and `may_create` is set.
pub(crate) fn open_storage(
    storage: Box<dyn Storage>,
    options: &Options,
    may_create: bool,
) -> Result<Opened> {
    open_storage_within(storage, options, may_create, &mut Waiting::new(options))
}

/// As above, with a wait that may have begun already.
fn open_storage_within(
    storage: Box<dyn Storage>,
    options: &Options,
    may_create: bool,
    waiting: &mut Waiting<'_>,
) -> Result<Opened> {
    let mut opened = open_alone(storage, options, may_create, waiting)?;
    if options.access == Access::ReadWrite && options.sharing.takes_turns() {
        let hash = opened.hash.clone();
        opened.take_over = Some(Box::new(turns::GoOn { hash }));
    }
    Ok(opened)
}

/// Like [`open_storage_within`], for a handle that is the only writer, or before it takes turns.
fn open_alone(
    storage: Box<dyn Storage>,
    options: &Options,
    may_create: bool,
    waiting: &mut Waiting<'_>,
) -> Result<Opened> {
    if may_create && is_unfinished_creation(&*storage) {
        exclude_others(&*storage, options, waiting)?;
        return create(storage, options);
    }
    let superblock = read_superblock(&*storage)?;
    refuse_shortened(&*storage, &superblock)?;
    if options.access == Access::ReadWrite && superblock.write_features != 0 {
        return Err(unknown_features(storage.path()));
    }
    let hash = resolve_hash(&superblock, options)?;
    let log = Appender::new(
        random_u64(&*storage)?,
        superblock.segment_bytes_min.into(),
        superblock.segment_bytes_max.into(),
    );
    let region = Arc::new(Region::new(storage, false)?);
    let mut opening = Opening {
        superblock,
        hash,
        log,
        access: options.access,
        on_recovery: options.on_recovery.clone(),
    };
    if !options.rebuild_index {
        let tables = opening.state_of_tables(&region);
        let last_writer = LastWriter::of(region.storage(), region.live().crc());
        if let Some((extents, found)) = opening.use_tables(&region, tables, last_writer, options)? {
            // The process id is only for messages, so it is left out if there is no space for its
            // page. A handle that takes turns stores it at its first change.
            if options.access == Access::ReadWrite
                && !options.sharing.takes_turns()
                && region.claim_live().is_ok()
            {
                region.set_pid();
            }
            let mut opened = opening.finish(extents, found);
            if tables == Tables::Left {
                // The superblock is "not clean" already, though perhaps only in the page cache.
                opened.writer.mark = Mark::NotClean;
                opened.last_writer = last_writer;
            }
            return Ok(opened);
        }
    }
    if options.access == Access::ReadWrite {
        note_writer(region.storage())?;
        exclude_others(region.storage(), options, waiting)?;
    }
    opening.replay(&region, options.rebuild_index)
}

/// Records in the reader table that a writer has the file that may change anything in it.
fn note_writer(storage: &dyn Storage) -> Result<()> {
    let noted = note_other_writer(storage);
    noted.map_err(|source| io_error("write to", storage.path(), source))
}

/// Refuses a file that has become shorter since the store was closed.
///
/// The size of the file is durable before the clean superblock is written, so a power loss cannot
/// have shortened it. The file of a new store without a log may be shorter; it is created again.
fn refuse_shortened(storage: &dyn Storage, superblock: &Superblock) -> Result<()> {
    let is_empty = superblock.log_start == LogStart::default();
    if !superblock.is_clean || is_empty || storage.file_bytes() >= superblock.file_bytes {
        return Ok(());
    }
    let (expected, found) = (superblock.file_bytes, storage.file_bytes());
    Err(Error::Corrupt { what: "file size", offset: found, expected, found })
}

/// Excludes all other handles while the tables are rebuilt; fails if there is another handle.
///
/// It retries for a while, because a handle that locks the file only during its calls, or one that
/// tests whether it may open the file, may hold a lock for a moment.
fn exclude_others(
    storage: &dyn Storage,
    options: &Options,
    waiting: &mut Waiting<'_>,
) -> Result<()> {
    let Some(shared) = storage.neighbours() else { return Ok(()) };
    // Rebuilding may take long, and so may the wait, and creating the index of a store for many
    // records. So this no longer counts as a short opening.
    storage.end_opening();
    waiting.begin_step();
    loop {
        let is_alone = shared.try_exclude_others();
        if is_alone.map_err(|source| io_error("lock", storage.path(), source))? {
            return Ok(());
        }
        if waiting.is_late(ALONE_WAIT) || options.stops_waiting() {
            return Err(locked_storage(storage));
        }
        waiting.tell(|| locked_storage(storage));
        thread::sleep(LOOK_AGAIN);
    }
}

/// Minimum time for which the locks that others hold for a moment are retried, and the interval.
const ALONE_WAIT: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_micros(500);

/// Returns whether no store was ever completed in the file: it is empty, or a power loss has lost
/// both superblocks of a new store.
///
/// A power loss may leave any words of the live header, of which the identifying ones must be zero
/// or have the values that a creation and the first change store; entries of handles in the reader
/// table; and the header of the first log segment, which must have no records. All other bytes must
/// be zero. A file with nothing but zeros is accepted only if it is no larger than a creation makes
/// it or its blocks were never written: any other file of zeros may belong to another program.
fn is_unfinished_creation(storage: &dyn Storage) -> bool {
    let file_bytes = storage.file_bytes();
    if file_bytes == 0 {
        return true;
    }
    let is_zero = |from: u64, to: u64| {
        (from..to).step_by(CHUNK_BYTES as usize).all(|offset| {
            let chunk = storage.read(offset, CHUNK_BYTES.min(to - offset));
            chunk.iter().all(|&byte| byte == 0)
        })
    };
    if file_bytes < HEADER_BYTES {
        // A process that is killed while the file system allocates the header leaves some of its
        // blocks.
        return file_bytes.is_multiple_of(SECTOR_BYTES) && is_zero(0, file_bytes);
    }
    if !is_zero(0, LIVE_OFFSET) {
        return false;
    }
    let word = |number: usize| u64_at(&storage.read(LIVE_OFFSET + 8 * number as u64, 8), 0);
    let Identity { inode, birth_ns, .. } = storage.identity();
    let is_header = [0, crate::format::LIVE_MAGIC].contains(&word(0))
        && [0, crate::format::VERSION.into()].contains(&word(1))
        && [0, inode].contains(&word(INODE))
        && [0, birth_ns].contains(&word(BIRTH));
    let is_blank = |start: u64| {
        let end = file_bytes.min(start + GRANULE_BYTES);
        is_zero(start, end)
            || is_first_segment(&storage.read(start, end - start))
                && is_zero(start + SegmentHeader::BYTES, end)
    };
    let granules = || (HEADER_BYTES..file_bytes).step_by(GRANULE_BYTES as usize);
    if !is_header || !may_be_table(&storage.read(READER_TABLE_OFFSET, READER_TABLE_BYTES)) {
        return false;
    }
    if is_zero(0, file_bytes) {
        return file_bytes <= CREATED_BYTES_MAX || storage.is_never_written();
    }
    granules().all(is_blank)
}

/// Returns whether a granule begins with the header of the first segment of a log.
fn is_first_segment(granule: &[u8]) -> bool {
    // A power loss may have cut the file before the end of the segment.
    granule.len() as u64 >= SegmentHeader::BYTES
        && SegmentHeader::decode(granule, 0, u64::MAX).is_ok_and(|header| {
            let is_first = header.previous_offset == 0 && header.base_lsn == 0;
            header.kind == SegmentKind::Log && is_first
        })
}

/// Largest file that a creation makes without `expected_records`: the header and one granule of
/// buckets.
const CREATED_BYTES_MAX: u64 = HEADER_BYTES + GRANULE_BYTES;

/// Smallest block of a file system in bytes.
const SECTOR_BYTES: u64 = 512;
/// Chunk size of the test for zeros.
const CHUNK_BYTES: u64 = 1 << 20;

/// Returns the hash function of a store: the one it names, checked with the probe key.
pub(crate) fn resolve_hash(superblock: &Superblock, options: &Options) -> Result<HashFunction> {
    let expected = superblock.hash_name.clone();
    let known = options.hash.clone().or_else(|| HashFunction::by_id(HashId(superblock.hash_id)));
    let Some(hash) = known else {
        return Err(Error::HashMismatch { expected, found: "any of this library".to_string() });
    };
    if hash.id().0 != superblock.hash_id {
        return Err(Error::HashMismatch { expected, found: hash.name().to_string() });
    }
    if hash.hash(PROBE_KEY, superblock.seed) != superblock.probe_hash {
        let found = format!("another {}", hash.name());
        return Err(Error::HashMismatch { expected, found });
    }
    Ok(hash)
}

/// Returns random bits for a seed, a uuid or the salts of a log.
fn random_u64(storage: &dyn Storage) -> Result<u64> {
    let action = "get random bits for";
    storage.random_u64().map_err(|source| io_error(action, storage.path(), source))
}

/// Size of the index of a new store up to which the free space is not checked first.
const INDEX_BYTES_UNASKED: u64 = 64 << 20;

/// Creates an empty store. Nothing of it is durable yet: the first change or the close makes it so.
fn create(storage: Box<dyn Storage>, options: &Options) -> Result<Opened> {
    let hash = options.hash.clone().unwrap_or_else(HashFunction::rapidhash_v3);
    let seed = match options.seed {
        Some(seed) => seed,
        None => random_u64(&*storage)?,
    };
    let fill_thousandths = (options.fill_factor * 1000.0).round() as u32;
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&random_u64(&*storage)?.to_le_bytes());
    uuid[8..].copy_from_slice(&random_u64(&*storage)?.to_le_bytes());
    let superblock = Superblock {
        generation: 0,
        is_clean: false,
        uuid,
        hash_id: hash.id().0,
        fill_thousandths,
        seed,
        probe_hash: hash.hash(PROBE_KEY, seed),
        hash_name: hash.name().to_string(),
        segment_bytes_min: u32::try_from(options.segment_bytes_min).unwrap_or(u32::MAX),
        segment_bytes_max: LOG_SEGMENT_BYTES_MAX as u32,
        log_start: LogStart::default(),
        checkpoint: None,
        file_bytes: 0,
        live_crc: 0,
        index_crc: None,
        may_be_lost: false,
        is_compacted: false,
        write_features: 0,
        has_gdbm_mark: options.has_gdbm_mark,
        application_data: options.application_data,
    };
    storage.grow(HEADER_BYTES).map_err(|source| io_error("extend", storage.path(), source))?;
    // In memory the index has windows of its own, apart from the segments.
    let is_private = storage.is_volatile();
    let region = Arc::new(Region::new(storage, is_private)?);
    if region.live().has_failed_sync() {
        // One of an earlier creation, which left no store: the first sync of this one writes what it stores to. Other
        // handles may store to the reader table.
        region.write_again(0, READER_TABLE_OFFSET)?;
        region.live().clear_sync_failed();
    }
    region.live().initialize();
    region.set_pid();
    let mut extents = Extents::of(&region);
    let geometry = Store::geometry_for(options.expected_records, fill_thousandths);
    let index_bytes = geometry.bucket_count() * LINE_BYTES;
    if is_private && !fits_in_memory(index_bytes) {
        // Overcommitting would invoke the kernel's OOM killer.
        return Err(Error::Full { what: "memory", bytes: index_bytes });
    }
    if !is_private && index_bytes >= INDEX_BYTES_UNASKED {
        // The file system would refuse it too, but only after this process has taken all free
        // space: on a tmpfs, the memory of the machine.
        let free = region
            .storage()
            .free_bytes()
            .and_then(|free| if free < index_bytes { Err(no_room()) } else { Ok(()) });
        free.map_err(|source| io_error("extend", region.storage().path(), source))?;
    }
    extents.create_buckets(geometry.bucket_count())?;
    set_geometry(&region, geometry);
    region.note_created();
    let mut superblock = region.place_superblock(&superblock, true)?;
    if superblock.has_gdbm_mark {
        // Write the first copy as well: programs look for the mark at the start of the file.
        region.note_durable_generation(superblock.generation);
        superblock = region.place_superblock(&superblock, true)?;
    }
    let log = Appender::new(
        random_u64(region.storage())?,
        superblock.segment_bytes_min.into(),
        superblock.segment_bytes_max.into(),
    );
    assert_eq!(superblock.log_start, LogStart::default(), "the first change begins the log");
    let writer = Writer::new(log, extents, CommitState::default(), superblock);
    let recovery = Recovery::Created;
    Ok(Opened::new(region, hash, writer, recovery, 0))
}

fn set_geometry(region: &Region, geometry: Geometry) {
    let line_count = region.windows.line_count(LineWindow::Buckets);
    assert!(geometry.bucket_count() <= line_count, "each bucket has a line");
    let shape = Shape::of_word(region.windows.shape().load(Ordering::Relaxed));
    region.windows.shape().store(Shape { geometry, ..shape }.word(), Ordering::Release);
}

/// Reports the progress of a recovery to the program.
fn report_progress(on_recovery: Option<&OnRecovery>, progress: RecoveryProgress) {
    if let Some(OnRecovery(function)) = on_recovery {
        function(progress);
    }
}

/// The state of an open in progress, apart from the region.
#[derive(Debug)]
struct Opening {
    superblock: Superblock,
    hash: HashFunction,
    log: Appender,
    access: Access,
    on_recovery: Option<OnRecovery>,
}

/// How far the live tables in the file can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tables {
    /// The store was closed.
    Clean,
    /// A writer of this boot left them, and the superblock says "not clean"; they are in the state
    /// after one of its stores.
    Left,
    /// They cannot be trusted.
    Unknown,
}

/// Result of an open: the counts, the kind of recovery, and the durable LSN.
type FoundState = (CommitState, Recovery, u64);

impl Opening {
    fn state_of_tables(&self, region: &Region) -> Tables {
        let live = region.live();
        // The kernel answers only once. A read-only handle leaves the question to a writer, which
        // can record the answer.
        let is_written_back = self.access == Access::ReadOnly || region.is_written_back();
        // After a failed sync the page cache may have lost records that the tables name.
        if live.has_failed_sync() || live.validate(region.view.file_bytes()).is_err() {
            return Tables::Unknown;
        }
        if self.superblock.is_clean {
            let is_as_closed = region.is_as_closed(&self.superblock, self.access);
            return if is_as_closed { Tables::Clean } else { Tables::Unknown };
        }
        let is_left = is_written_back && region.is_left_or_open();
        if is_left { Tables::Left } else { Tables::Unknown }
    }

    fn finish(self, extents: Extents, (state, recovery, durable_lsn): FoundState) -> Opened {
        let region = extents.region().clone();
        let writer = Writer::new(self.log, extents, state, self.superblock);
        Opened::new(region, self.hash, writer, recovery, durable_lsn)
    }

    /// Uses the tables of a store that was closed; `None` if its segment table is damaged.
    fn open_clean(&mut self, region: &Arc<Region>) -> Result<Option<(Extents, FoundState)>> {
        assert!(self.superblock.is_clean, "only a close vouches for the tables");
        let mut extents = Extents::of(region);
        if self.load_segments(&mut extents).is_err() {
            return Ok(None);
        }
        region.windows.map_listed_pieces()?;
        let (lsn, state) = region.live().committed();
        let position =
            LogPosition { segment_offset: state.tail_segment, offset: state.tail_offset, lsn };
        self.resume(region, position)?;
        Ok(Some((extents, (state, Recovery::Clean, lsn))))
    }

    /// Reads the segment table, if this handle may write and there is one.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if it is damaged, or missing in a store that was compacted.
    fn load_segments(&self, extents: &mut Extents) -> Result<()> {
        if self.access == Access::ReadOnly {
            return Ok(());
        }
        let is_loaded = extents.load_segments(&self.superblock, true)?;
        if is_loaded || !self.superblock.is_compacted {
            return Ok(());
        }
        let (what, offset) = ("segment table", LIVE_OFFSET + 160);
        Err(Error::Corrupt { what, offset, expected: 1, found: 0 })
    }

    /// Continues the log at its tail, if this handle may write.
    fn resume(&mut self, region: &Region, position: LogPosition) -> Result<()> {
        match self.access {
            Access::ReadWrite => self.log.resume(region, position),
            Access::ReadOnly => {
                self.log.set_read_position(position);
                Ok(())
            }
        }
    }

    /// Returns whether a killed writer left no change unfinished: neither a record after the last
    /// commit, whose slot readers may already see, nor a split in progress.
    fn is_settled(&self, region: &Region) -> bool {
        let settled = || -> Result<bool> {
            region.windows.map_listed_pieces()?;
            let (position, _) = committed_position(&self.superblock, region);
            if self.compare_with_log(region, position)?.records != 0 {
                return Ok(false);
            }
            let hash_of = &mut |addr: Addr| Ok(self.hash_of(region.view.pair(addr)?.key));
            let shape = Shape::of_word(region.windows.shape().load(Ordering::Relaxed));
            is_last_split_whole(&region.windows, shape.geometry, hash_of)
        };
        // On damage, fall back to the log.
        settled().unwrap_or(false)
    }

    /// Uses the tables in the file, if they can be trusted.
    fn use_tables(
        &mut self,
        region: &Arc<Region>,
        tables: Tables,
        last_writer: LastWriter,
        options: &Options,
    ) -> Result<Option<(Extents, FoundState)>> {
        let is_writer = self.access == Access::ReadWrite;
        if tables == Tables::Left
            && is_writer
            && options.sharing.takes_turns()
            && let Some(found) = self.go_on_from_close_by_turns(region, last_writer)
        {
            return Ok(Some(found));
        }
        if is_writer {
            // Only now: the file is known to be a store, and is about to be changed.
            note_writer(region.storage())?;
        }
        // Another handle that takes turns may be about to complete its pending checkpoint.
        let is_pending_kept = last_writer.turn.has_ended()
            && options.sharing.takes_turns()
            && !mutant::is_made(Mutant::FreesPendingAtOpen);
        match tables {
            Tables::Clean => self.open_clean(region),
            // A read-only handle cannot complete the last change, so it builds a private index.
            Tables::Left if !is_writer && !self.is_settled(region) => Ok(None),
            Tables::Left => match self.warm_restart(region, is_pending_kept) {
                Ok(found) => Ok(Some(found)),
                // For a compacted store the tables may be the only copy of the state, so do not
                // fall back to the log because of a passing error.
                Err(error)
                    if self.superblock.is_compacted && !matches!(error, Error::Corrupt { .. }) =>
                {
                    Err(error)
                }
                // On damage, fall back to the log.
                Err(_) => Ok(None),
            },
            Tables::Unknown => Ok(None),
        }
    }

    /// Uses the tables of a handle by turns that was closed in order, as if this handle had been
    /// open all the time and took the next turn, so that an open without a change does not change
    /// the file. Unless that handle has just left, the tables are first compared with the log.
    /// Returns `None` if something is wrong; at most the segment table has been repaired by then.
    fn go_on_from_close_by_turns(
        &mut self,
        region: &Arc<Region>,
        last_writer: LastWriter,
    ) -> Option<(Extents, FoundState)> {
        if !last_writer.has_just_left {
            if !last_writer.has_left {
                return None;
            }
            // The changes of a large batch are looked up in the index, which may take long.
            region.storage().end_opening();
            if !self.is_settled(region) {
                return None;
            }
        }
        region.windows.map_listed_pieces().ok()?;
        let (position, _) = committed_position(&self.superblock, region);
        let mut behind = LogWalk::from_position(&region.view, position, Trust::Nothing, 0).ok()?;
        if !matches!(behind.next_record(), Ok(None)) {
            return None;
        }
        region.claim_stores([].into_iter()).ok()?;
        self.go_on_from_turn(region, None).ok()
    }

    /// Uses the tables of a killed writer, or of one that is not known to have closed the store.
    /// With `is_pending_kept`, a pending checkpoint by turns is kept: its image is complete.
    fn warm_restart(
        &mut self,
        region: &Arc<Region>,
        is_pending_kept: bool,
    ) -> Result<(Extents, FoundState)> {
        assert!(!self.superblock.is_clean, "a store that was closed needs no recovery");
        // The changes of a large uncommitted batch are looked up in the index, which may take long.
        region.storage().end_opening();
        region.windows.map_listed_pieces()?;
        let live = region.live();
        let (mut position, mut state) = committed_position(&self.superblock, region);
        // Compare before anything is written: if they disagree, the log must be replayed.
        let mut unpublished = self.compare_with_log(region, position)?;
        let records = unpublished.records;
        let mut extents = Extents::of(region);
        let mut durable_lsn = live.durable_lsn().min(live.committed().0);
        if self.access == Access::ReadWrite {
            region.claim_stores([].into_iter())?;
            // The killed process may have moved a piece without advancing the epoch for readers,
            // and the old extent is about to be freed.
            live.change_piece_epoch();
            // The durable LSN in the live header has no checksum, and one that is too high would
            // make syncs skip records.
            durable_lsn = 0;
            self.load_segments(&mut extents)?;
            let head = unpublished.scan.head.map(|(head_segment, _)| head_segment);
            let head = head.unwrap_or(state.head_segment);
            let is_compacted = self.superblock.is_compacted;
            settle_segments(&mut extents, &mut unpublished.scan, head, is_compacted)?;
            self.settle_checkpoints(&mut extents, is_pending_kept)?;
            let hash_of = &mut |addr: Addr| Ok(self.hash_of(region.view.pair(addr)?.key));
            let shape = Shape::of_word(region.windows.shape().load(Ordering::Relaxed));
            repair_last_split(&region.windows, shape.geometry, hash_of)?;
            if position.segment_offset != 0 {
                {
                    let extents = Mutex::new(&mut extents);
                    for change in &unpublished.changes {
                        apply_change(region, change, &extents)?;
                    }
                }
                state = unpublished.scan.counts.after(&region.view, state, unpublished.end)?;
                assert!(position.lsn <= unpublished.end.lsn, "what was published stays");
                position = unpublished.end;
                (state.tail_offset, state.tail_segment) =
                    (position.offset, position.segment_offset);
                if let Some((head_segment, head_offset)) = unpublished.scan.head {
                    (state.head_segment, state.head_offset) = (head_segment, head_offset);
                }
                if is_compacted {
                    count_segments_again(&extents, &mut state);
                }
                live.commit(position.lsn, &state);
            }
        }
        self.resume(region, position)?;
        assert!(
            self.access == Access::ReadOnly || durable_lsn == 0,
            "the first sync covers the file"
        );
        // Also for a log without records: its superblocks may be only in the page cache.
        if self.access == Access::ReadWrite || durable_lsn < position.lsn {
            self.log.mark_file_unsynced(region.view.file_bytes());
        }
        Ok((extents, (state, Recovery::WarmRestart { records }, durable_lsn)))
    }

    fn hash_of(&self, key: &[u8]) -> u64 {
        self.key_hash().of(key)
    }

    fn key_hash(&self) -> KeyHash<'_> {
        KeyHash { function: &self.hash, seed: self.superblock.seed }
    }

    /// Keeps the checkpoint that the superblock names, unless its segment was freed. Frees the
    /// segment of an unfinished checkpoint, unless another handle may still complete it.
    fn settle_checkpoints(&mut self, extents: &mut Extents, is_pending_kept: bool) -> Result<()> {
        let region = extents.region().clone();
        let live = region.live();
        let is_kept = |name: CheckpointName| {
            let mut places = live.checkpoint_extents().into_iter().flatten();
            places.any(|extent| is_place_of(extent, name) && !extents.space().is_free(extent))
        };
        let is_freed = self.superblock.checkpoint.is_some_and(|name| !is_kept(name));
        if self.superblock.is_compacted {
            if is_freed || self.superblock.checkpoint.is_none() {
                let (what, offset) = ("checkpoint segment", LIVE_OFFSET + 448);
                return Err(Error::Corrupt { what, offset, expected: 1, found: 0 });
            }
            if is_pending_kept {
                return Ok(());
            }
            // The one before is about to be freed, and the killed process may not have synced the
            // superblock that names this one.
            region.write_superblock(&mut self.superblock, false)?;
        } else if is_freed {
            self.superblock.checkpoint = None;
            region.write_superblock(&mut self.superblock, false)?;
        } else if is_pending_kept {
            return Ok(());
        }
        release_all_but(extents, self.superblock.checkpoint);
        Ok(())
    }
}

/// Adds the segments that a killed process has begun and named to the table, and removes those of
/// compacted records that it has not named: `head_segment` is the last one that counts.
fn settle_segments(
    extents: &mut Extents,
    scan: &mut LogScan,
    head_segment: u64,
    is_compacted: bool,
) -> Result<()> {
    let region = extents.region().clone();
    let Some(segments) = extents.segments_mut() else { return Ok(()) };
    for found in &scan.found {
        found.add_to(segments)?;
    }
    scan.counts.add_to(&region.view, segments, is_compacted);
    let head = if head_segment == 0 { None } else { Some(region.view.segment(head_segment)?) };
    segments.end_compacted_after(head.map_or(0, |header| header.sequence));
    extents.free_the_rest();
    extents.publish();
    Ok(())
}

/// Recounts the segment bytes of a compacted store from the segment table, and bounds the dead bytes by them.
/// The killed process, or the one whose checkpoint is replayed, may have marked emptied segments and dead big
/// records in the table but not in these counts.
fn count_segments_again(extents: &Extents, state: &mut CommitState) {
    let Some(segments) = extents.segments() else { return };
    let (view, live) = (&extents.region().view, extents.region().live());
    let is_big = |offset| view.segment(offset).is_ok_and(|found| found.kind == SegmentKind::Big);
    let SegmentTotals { log_bytes, big_bytes } = segments.totals(is_big);
    live.set_log_bytes(log_bytes);
    live.set_big_bytes(big_bytes);
    let dead_bytes_max = (log_bytes + big_bytes).saturating_sub(state.live_bytes);
    state.dead_bytes = state.dead_bytes.min(dead_bytes_max);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::format::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS};
    use crate::options::Durability;
    use crate::{Db, ErrorKind, SimDisk};

    /// Returns a closed store whose newest superblock has `word` at `offset`, its checksum mended.
    fn with_newest_word(offset: usize, word: u64) -> SimDisk {
        let disk = SimDisk::new();
        let db = disk.open(&Options::new()).expect("a new store");
        db.put(b"key", b"value").expect("there is room");
        db.close().expect("nothing fails here");
        let mut file = disk.file();
        let newest = SUPERBLOCK_OFFSETS
            .into_iter()
            .max_by_key(|&at| u64_at(&file, at as usize + 16))
            .expect("there are two");
        let block = &mut file[newest as usize..][..SUPERBLOCK_BYTES as usize];
        block[offset..offset + 8].copy_from_slice(&word.to_le_bytes());
        block[12..16].fill(0);
        let crc = crc32c::crc32c(block);
        block[12..16].copy_from_slice(&crc.to_le_bytes());
        SimDisk::with_file(&file)
    }

    #[cfg(not(miri))]
    #[test]
    fn a_new_store_waits_for_a_handle_that_looks_at_its_file_for_a_moment() {
        use crate::storage::byte_locks::{LockByte, LockKind, try_lock};
        let sharings = [Sharing::OneWriter, Sharing::Exclusive, Sharing::Shared, Sharing::PerCall];
        for sharing in sharings {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("a");
            let other = std::fs::File::create_new(&path).unwrap();
            assert!(try_lock(&other, LockByte::PRESENCE, LockKind::Shared).unwrap());
            thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(Duration::from_millis(40));
                    drop(other);
                });
                let options =
                    Options::new().sharing(sharing).lock_timeout(Duration::from_secs(600));
                let opened = open_file(&path, &options);
                assert!(opened.is_ok(), "{sharing:?}: {opened:?}");
            });
        }
    }

    /// What stands in the way lasts, so an open that does not know how long it has waited waits for an hour.
    #[cfg(not(miri))]
    #[test]
    fn an_open_whose_first_step_took_all_its_time_waits_no_longer_in_the_next() {
        use crate::storage::byte_locks::{LockByte, LockKind, try_lock};
        const HOUR: Duration = Duration::from_secs(3600);
        const HANG: Duration = Duration::from_secs(60);
        let begun = std::time::Instant::now();
        let options = Options::new().lock_timeout(HOUR).stop_waiting(move || {
            assert!(begun.elapsed() < HANG, "it waits longer than it may");
            false
        });
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let file = || std::fs::File::options().read(true).write(true).open(&path).unwrap();
        let is_locked = |opened: Result<Opened>| matches!(opened, Err(error) if error.kind() == ErrorKind::Locked);
        let is_refused = |path: &Path, options: &Options| {
            is_locked(open_file_within(path, options, &mut Waiting::begun(options, HOUR)))
        };

        std::fs::write(&path, b"").unwrap();
        let other = file();
        assert!(try_lock(&other, LockByte::PRESENCE, LockKind::Shared).unwrap());
        assert!(is_refused(&path, &options), "others have it for a moment");
        drop(other);

        let writer = Db::open(&path).unwrap();
        writer.put(b"key", b"value").unwrap();
        assert!(is_refused(&path, &options), "it has a writer");
        let shared = SharedFile::by_turns(file(), &path).unwrap();
        let waiting = &mut Waiting::begun(&options, HOUR);
        let by_turns = options.clone().sharing(Sharing::PerCall);
        assert!(is_locked(open_shared_within(&shared, &by_turns, waiting)), "it has a writer");

        // As after a power loss, with a writer that has not begun to make the tables anew.
        let copy = dir.path().join("b");
        std::fs::copy(&path, &copy).unwrap();
        let other = std::fs::File::options().read(true).write(true).open(&copy).unwrap();
        assert!(try_lock(&other, LockByte::WRITER, LockKind::Exclusive).unwrap());
        assert!(is_refused(&copy, &options.read_only()), "its tables are in change");
    }

    #[test]
    fn what_a_power_loss_leaves_of_a_new_store_is_an_empty_store() {
        let disk = SimDisk::new();
        let db = disk.open(&Options::new().segment_bytes_min(4096)).unwrap();
        let created = disk.file();
        drop(db);
        let segment = SegmentHeader {
            kind: SegmentKind::Log,
            sequence: 1,
            segment_bytes: 4096,
            base_lsn: 0,
            previous_offset: 0,
            salt: 7,
        };
        for cut in (HEADER_BYTES..=created.len() as u64 + 8192).step_by(GRANULE_BYTES as usize) {
            for (has_superblock, has_segment) in
                [(true, true), (true, false), (false, true), (false, false)]
            {
                let mut file = created.clone();
                file.resize(created.len() + 8192, 0);
                if !has_superblock {
                    file[..LIVE_OFFSET as usize].fill(0);
                }
                if has_segment {
                    let at = created.len();
                    file[at..at + SegmentHeader::BYTES as usize].copy_from_slice(&segment.encode());
                }
                let disk = SimDisk::with_file(&file[..cut as usize]);
                let db = disk.open(&Options::new()).unwrap();
                assert!(db.is_empty(), "{cut} bytes, {has_superblock}, {has_segment}");
                db.put_with(b"key", b"value", Durability::Sync).unwrap();
                drop(db);
                let db = disk.lose_power(7).open(&Options::new()).unwrap();
                assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
            }
        }
    }

    /// Where the header is lost, only blocks that were never written say whose file it is.
    #[test]
    #[cfg(not(miri))]
    fn a_new_store_of_many_buckets_whose_header_a_power_loss_has_taken_is_an_empty_store() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        Options::new().expected_records(10_000).open(&path).unwrap().close().unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        let flags = rustix::fs::FallocateFlags::ZERO_RANGE;
        let file_bytes = file.metadata().unwrap().len();
        assert!(file_bytes > CREATED_BYTES_MAX, "{file_bytes} bytes");
        if rustix::fs::fallocate(&file, flags, 0, HEADER_BYTES).is_err() {
            println!("this file system clears nothing without a write");
            return;
        }
        file.sync_all().unwrap();
        drop(file);
        assert!(Options::new().open(&path).unwrap().is_empty());
    }

    #[test]
    fn what_a_power_loss_leaves_of_a_new_store_with_a_reader_table_is_an_empty_store() {
        let options = Options::new().sharing(Sharing::Shared);
        let disk = SimDisk::new();
        let db = disk.open(&options).unwrap();
        let mut file = disk.file();
        drop(db);
        file[..LIVE_OFFSET as usize].fill(0);
        assert_ne!(u64_at(&file, READER_TABLE_OFFSET as usize + 24), 0, "who had the last turn");
        let db = SimDisk::with_file(&file).open(&options).unwrap();
        assert!(db.is_empty());
        // A reserved word, which no handle stores.
        file[READER_TABLE_OFFSET as usize + 64 + 56] = 1;
        let error = SimDisk::with_file(&file).open(&options).unwrap_err();
        assert!(matches!(error, Error::NotAStore { .. }), "{error}");
    }

    /// The first change says for which file the header is before anything is durable.
    #[test]
    fn what_a_power_loss_leaves_of_a_first_change_is_an_empty_store_in_its_own_file_alone() {
        let disk = SimDisk::new();
        let db = disk.open(&Options::new()).unwrap();
        let mut file = disk.file();
        drop(db);
        file[..LIVE_OFFSET as usize].fill(0);
        let word = |number: usize| {
            LIVE_OFFSET as usize + 8 * number..LIVE_OFFSET as usize + 8 * number + 8
        };
        // Of another boot, and with its own inode and birth time.
        file[LIVE_OFFSET as usize + 16..word(INODE).start].fill(3);
        let Identity { inode, birth_ns, .. } = disk.identity();
        file[word(INODE)].copy_from_slice(&inode.to_le_bytes());
        file[word(BIRTH)].copy_from_slice(&birth_ns.to_le_bytes());
        assert!(SimDisk::with_file(&file).open(&Options::new()).unwrap().is_empty());
        for number in [INODE, BIRTH] {
            let mut other = file.clone();
            other[word(number)].copy_from_slice(&77_u64.to_le_bytes());
            let error = SimDisk::with_file(&other).open(&Options::new()).unwrap_err();
            assert!(matches!(error, Error::NotAStore { .. }), "{error}");
        }
    }

    /// A record behind the header is more than a creation leaves: without a superblock it is damage.
    #[test]
    fn a_log_with_a_record_is_never_taken_for_an_unfinished_creation() {
        let disk = SimDisk::new();
        let db = disk.open(&Options::new()).unwrap();
        db.put_with(b"key", b"value", Durability::Sync).unwrap();
        drop(db);
        let mut file = disk.lose_power(7).file();
        file[..READER_TABLE_OFFSET as usize].fill(0);
        let error = SimDisk::with_file(&file).open(&Options::new()).unwrap_err();
        assert!(matches!(error, Error::NotAStore { .. }), "{error}");
    }

    #[test]
    fn closing_a_new_store_without_a_change_makes_it_durable() {
        for (is_closed, is_killed) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut disk = SimDisk::new();
            let mut db = disk.open(&Options::new().seed(42)).unwrap();
            if is_killed {
                disk = disk.kill();
                db = disk.open(&Options::new()).unwrap();
            }
            if is_closed {
                db.close().unwrap();
            } else {
                db.sync().unwrap();
            }
            for seed in [0, 7, u64::MAX] {
                let options = Options::new().create(Create::Never);
                assert!(disk.lose_power(seed).open(&options).unwrap().is_empty());
            }
        }
    }

    #[test]
    fn a_new_store_whose_sync_failed_is_not_called_durable_by_its_close() {
        let disk = SimDisk::new();
        let db = disk.open(&Options::new()).unwrap();
        disk.fail_once(1, crate::SimFault::Error(5));
        assert!(db.sync().is_err());
        assert!(matches!(db.close(), Err(Error::Poisoned { .. })));
    }

    #[test]
    fn a_superblock_with_unknown_features_is_not_passed_over_for_the_older_copy() {
        let disk = with_newest_word(176, 2);
        for options in [Options::new(), Options::new().read_only()] {
            let error = disk.open(&options).expect_err("a feature of a later version");
            assert!(error.to_string().contains("newer version"), "{error}");
        }
    }

    #[test]
    fn a_store_with_unknown_write_features_may_be_read_only() {
        let disk = with_newest_word(184, 2);
        assert!(disk.open(&Options::new()).is_err());
        let db = disk.open(&Options::new().read_only()).unwrap();
        assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    }
}
