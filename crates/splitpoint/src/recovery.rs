//! From whatever the last writer left to a store that can be used.
//!
//! | found | done | cost |
//! |---|---|---|
//! | closed | the live tables are believed | O(1) |
//! | left by a killed process | what is after the last commit is applied | O(1) |
//! | anything else | the index is built again: from the newest checkpoint, if there is one, and the log after it | one pass over the checkpoint, two over the log |
//!
//! # Invariants
//!
//! - Nothing is written until the log to keep has been read to its end.
//! - The log ends at the first record whose checksum is wrong, so what is kept is a prefix of the
//!   commits; whatever was synced is in it.
//! - Each step can be interrupted and begun again: the live header names its boot only when the
//!   tables behind it are whole.

use std::path::Path;

use crate::atomic::Ordering;
use crate::canary::{self, Canary};
use crate::checkpoint::{Image, extent_of, release_all_but};
use crate::error::{Error, Result};
use crate::format::{
    Addr, CheckpointName, GRANULE_BYTES, HEADER_BYTES, LIVE_BYTES, LIVE_OFFSET,
    LOG_SEGMENT_BYTES_MAX, LogStart, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS, SegmentHeader,
    Superblock, SuperblockFault, u64_at,
};
use crate::hash::{HashFunction, HashId, PROBE_KEY};
use crate::identify::identify;
use crate::index::Lines;
use crate::index::line::LINE_BYTES;
use crate::index::lookup::{locate_addr, locate_end};
use crate::index::overflow::LinePool;
use crate::index::shape::Shape;
use crate::index::slot::{Slot, Tag};
use crate::index::split::{insert, is_last_split_whole, repair_last_split};
use crate::linear::Geometry;
use crate::live::{CommitState, LineWindow};
use crate::log::append::{Appender, Position};
use crate::log::record::{Record, RecordKind};
use crate::log::scan::{LogWalk, Trust, big_record_unverified, expect_value_bytes};
use crate::options::{Access, Create, Options};
use crate::region::{LivePool, Region};
use crate::space::{Extent, Space};
use crate::stats::Recovery;
use crate::storage::Storage;
use crate::storage::anon::Anon;
use crate::storage::open::{Locked, io_error, open_and_lock, remove_new, sync_directory};
use crate::store::{Opened, Store, TOMBSTONE_BYTES, Writer};

/// Opens or makes the store in the file at `path`.
pub(crate) fn open_file(path: &Path, options: &Options) -> Result<Opened> {
    let Locked { storage, is_new } = open_and_lock(path, options.access, options.create)?;
    let may_create = options.access == Access::ReadWrite && options.create != Create::Never;
    let opened = open_storage(Box::new(storage), options, may_create).and_then(|opened| {
        if opened.recovery == Recovery::Created {
            sync_directory(path)?;
        }
        Ok(opened)
    });
    if is_new && opened.is_err() {
        remove_new(path);
    }
    opened
}

/// Makes a table in memory.
pub(crate) fn open_memory(options: &Options) -> Result<Opened> {
    let storage = Anon::new().map_err(|_| Error::Full { what: "address space", bytes: 0 })?;
    create(Box::new(storage), options)
}

/// Opens what a storage holds, or makes a store if it holds nothing and `may_create`.
pub(crate) fn open_storage(
    storage: Box<dyn Storage>,
    options: &Options,
    may_create: bool,
) -> Result<Opened> {
    if may_create && is_unfinished_creation(&*storage) {
        return create(storage, options);
    }
    let superblock = read_superblock(&*storage)?;
    // Closing syncs the size of the file before it says so: a power loss cannot have cut it.
    if superblock.is_clean && storage.file_bytes() < superblock.file_bytes {
        let (expected, found) = (superblock.file_bytes, storage.file_bytes());
        return Err(Error::Corrupt { what: "file size", offset: found, expected, found });
    }
    if options.access == Access::ReadWrite && superblock.write_features != 0 {
        return Err(unknown_features(storage.path()));
    }
    let hash = resolve_hash(&superblock, options)?;
    let log = Appender::new(
        random_u64(&*storage)?,
        superblock.segment_bytes_min.into(),
        superblock.segment_bytes_max.into(),
    );
    let region = Region::new(storage, false)?;
    let mut opening = Opening { superblock, hash, log, access: options.access };
    if !options.rebuild_index {
        match opening.state_of_tables(&region) {
            Tables::Clean => return opening.open_clean(region),
            // Who may not finish the last change builds an index of its own.
            Tables::Left if options.access == Access::ReadOnly && !opening.is_settled(&region) => {}
            Tables::Left => {
                // What meets damage leaves it to the log.
                if let Ok((state, recovery, durable_lsn)) = opening.take_over(&region) {
                    let mut opened = opening.finish(region, state, recovery, durable_lsn);
                    // The superblock on disk says so already.
                    opened.writer.is_dirty = true;
                    return Ok(opened);
                }
            }
            Tables::Unknown => {}
        }
    }
    opening.replay(region, options.rebuild_index)
}

/// Returns the first `bytes` of a storage, fewer if it is shorter.
fn head(storage: &dyn Storage, bytes: u64) -> Vec<u8> {
    let len = storage.file_bytes().min(bytes);
    storage.read(0, len)
}

/// Returns whether nothing was ever stored: the file is empty, or a crash interrupted its
/// creation, which writes the superblock last.
///
/// A power loss may have left any words of the live header: those that tell it from other things
/// are zero or what a creation stores there. All else is still zero.
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
    if file_bytes < HEADER_BYTES || !is_zero(0, LIVE_OFFSET) {
        return false;
    }
    let word = |number: u64| u64_at(&storage.read(LIVE_OFFSET + 8 * number, 8), 0);
    let is_header = [0, crate::format::LIVE_MAGIC].contains(&word(0))
        && [0, crate::format::VERSION.into()].contains(&word(1))
        && is_zero(LIVE_OFFSET + 16, LIVE_OFFSET + 56);
    is_header && is_zero(LIVE_OFFSET + LIVE_BYTES, file_bytes)
}

/// Bytes looked at together for being zero.
const CHUNK_BYTES: u64 = 1 << 20;

/// Returns the newest valid superblock.
pub(crate) fn read_superblock(storage: &dyn Storage) -> Result<Superblock> {
    let path = storage.path().to_path_buf();
    let file_bytes = storage.file_bytes();
    let bytes = head(storage, HEADER_BYTES);
    if bytes.len() < 8 || bytes.len() < HEADER_BYTES as usize && bytes[..8] != crate::format::MAGIC
    {
        return Err(Error::NotAStore { path, found: identify(&bytes, file_bytes) });
    }
    if bytes.len() < HEADER_BYTES as usize {
        return Err(Error::Corrupt {
            what: "file size",
            offset: file_bytes,
            expected: HEADER_BYTES,
            found: file_bytes,
        });
    }
    let decoded = SUPERBLOCK_OFFSETS.map(|offset| {
        let start = offset as usize;
        Superblock::decode(&bytes[start..start + SUPERBLOCK_BYTES as usize])
    });
    match decoded {
        [Ok(a), Ok(b)] => Ok(if a.generation >= b.generation { a } else { b }),
        // A block of a newer version counts more than an older copy of this one.
        [Err(SuperblockFault::Version(found)), _] | [_, Err(SuperblockFault::Version(found))] => {
            Err(Error::Version { path, expected: crate::format::VERSION, found })
        }
        // So does one that asks for more than this library has.
        [Err(SuperblockFault::Features(_)), _] | [_, Err(SuperblockFault::Features(_))] => {
            Err(unknown_features(&path))
        }
        [Ok(block), Err(_)] | [Err(_), Ok(block)] => Ok(block),
        [Err(a), Err(b)] => Err(superblock_error(storage, &bytes, a, b)),
    }
}

pub(crate) fn unknown_features(path: &Path) -> Error {
    let reason = "it was written by a newer version, whose features this one lacks".to_string();
    Error::Unsupported { path: path.to_path_buf(), reason }
}

fn superblock_error(
    storage: &dyn Storage,
    bytes: &[u8],
    a: SuperblockFault,
    b: SuperblockFault,
) -> Error {
    let path = storage.path().to_path_buf();
    let (fault, start) =
        if a == SuperblockFault::Magic { (b, SUPERBLOCK_OFFSETS[1]) } else { (a, 0) };
    match fault {
        SuperblockFault::Magic => {
            Error::NotAStore { path, found: identify(bytes, storage.file_bytes()) }
        }
        SuperblockFault::Version(found) => {
            Error::Version { path, expected: crate::format::VERSION, found }
        }
        SuperblockFault::Features(_) => unknown_features(&path),
        SuperblockFault::Field { what, offset, expected, found } => {
            Error::Corrupt { what, offset: start + offset, expected, found }
        }
    }
}

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

/// Makes an empty store; its superblock is written last.
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
    let mut superblock = Superblock {
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
        write_features: 0,
    };
    storage.grow(HEADER_BYTES).map_err(|source| io_error("extend", storage.path(), source))?;
    // In memory the index has windows of its own, and no place among the segments.
    let is_private = storage.is_volatile();
    let region = Region::new(storage, is_private)?;
    region.live().initialize();
    region.live().set_pid();
    let mut space = region.live().space();
    let geometry = Store::geometry_for(options.expected_records, fill_thousandths);
    region.reserve_lines(LineWindow::Buckets, geometry.bucket_count(), &mut space)?;
    set_geometry(&region, geometry);
    if !region.storage().is_volatile() {
        let bytes = region.file_bytes() - LIVE_OFFSET;
        region.sync_range(LIVE_OFFSET, bytes)?;
    }
    region.write_superblock(&mut superblock, true)?;
    let log = Appender::new(
        random_u64(region.storage())?,
        superblock.segment_bytes_min.into(),
        superblock.segment_bytes_max.into(),
    );
    let writer = Writer::new(log, space, CommitState::default(), superblock);
    Ok(Opened { region, hash, writer, recovery: Recovery::Created, durable_lsn: 0 })
}

fn set_geometry(region: &Region, geometry: crate::linear::Geometry) {
    let shape = Shape::of_word(region.shape().load(Ordering::Relaxed));
    region.shape().store(Shape { geometry, ..shape }.word(), Ordering::Release);
}

/// What opening needs beside the region.
#[derive(Debug)]
struct Opening {
    superblock: Superblock,
    hash: HashFunction,
    log: Appender,
    access: Access,
}

/// What the live tables in the file are worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tables {
    /// The store was closed.
    Clean,
    /// A writer on this boot left them, valid as after each of its stores.
    Left,
    /// They cannot be believed.
    Unknown,
}

impl Opening {
    fn state_of_tables(&self, region: &Region) -> Tables {
        let live = region.live();
        // After a failed sync the cache may have lost records that the tables name.
        if live.has_failed_sync() || live.validate(region.file_bytes()).is_err() {
            return Tables::Unknown;
        }
        if self.superblock.is_clean {
            let is_as_closed = live.crc() == self.superblock.live_crc;
            return if is_as_closed { Tables::Clean } else { Tables::Unknown };
        }
        if live.is_of(region.storage().identity()) { Tables::Left } else { Tables::Unknown }
    }

    fn finish(
        self,
        region: Region,
        state: CommitState,
        recovery: Recovery,
        durable_lsn: u64,
    ) -> Opened {
        let space = region.live().space();
        if self.access == Access::ReadWrite {
            region.live().set_pid();
        }
        let writer = Writer::new(self.log, space, state, self.superblock);
        Opened { region, hash: self.hash, writer, recovery, durable_lsn }
    }

    fn open_clean(mut self, region: Region) -> Result<Opened> {
        region.map_listed_pieces()?;
        let (lsn, state) = region.live().committed();
        let position =
            Position { segment_offset: state.tail_segment, offset: state.tail_offset, lsn };
        self.resume(&region, position)?;
        Ok(self.finish(region, state, Recovery::Clean, lsn))
    }

    /// Goes on at the tail, if this handle may write.
    fn resume(&mut self, region: &Region, position: Position) -> Result<()> {
        match self.access {
            Access::ReadWrite => self.log.resume(region, position),
            Access::ReadOnly => {
                self.log.stand_at(position);
                Ok(())
            }
        }
    }

    /// Returns whether a killed writer left no change half made: no record after the last commit,
    /// whose slot readers may find already, and no split that goes on.
    fn is_settled(&self, region: &Region) -> bool {
        let settled = || -> Result<bool> {
            region.map_listed_pieces()?;
            let (position, _) = self.committed_position(region);
            if position.segment_offset != 0 {
                let mut walk = LogWalk::from_position(region, position, Trust::Nothing, 0)?;
                if walk.next_record()?.is_some() {
                    return Ok(false);
                }
            }
            let hash_of = &mut |addr: Addr| Ok(self.hash_of(region.pair(addr)?.key));
            let shape = Shape::of_word(region.shape().load(Ordering::Relaxed));
            is_last_split_whole(region, shape.geometry, hash_of)
        };
        // What meets damage leaves it to the log.
        settled().unwrap_or(false)
    }

    /// Returns where the log went on after the last commit that was published, and its counts.
    fn committed_position(&self, region: &Region) -> (Position, CommitState) {
        let (lsn, state) = region.live().committed();
        let mut position =
            Position { segment_offset: state.tail_segment, offset: state.tail_offset, lsn };
        let start = self.superblock.log_start;
        if position.segment_offset == 0 && start.segment_offset != 0 {
            let LogStart { segment_offset, record_offset: offset, lsn, .. } = start;
            position = Position { segment_offset, offset, lsn };
        }
        (position, state)
    }

    /// Takes over the tables of a killed writer.
    fn take_over(&mut self, region: &Region) -> Result<(CommitState, Recovery, u64)> {
        region.map_listed_pieces()?;
        let live = region.live();
        let (mut position, mut state) = self.committed_position(region);
        let durable_lsn = live.durable_lsn().min(live.committed().0);
        let mut records = 0;
        if self.access == Access::ReadWrite {
            self.take_over_checkpoints(region)?;
            let hash_of = &mut |addr: Addr| Ok(self.hash_of(region.pair(addr)?.key));
            let shape = Shape::of_word(region.shape().load(Ordering::Relaxed));
            repair_last_split(region, shape.geometry, hash_of)?;
            if position.segment_offset != 0 {
                let mut space = live.space();
                let mut walk = LogWalk::from_position(region, position, Trust::Nothing, 0)?;
                while let Some(record) = walk.next_record()? {
                    self.apply(region, &record, &mut state, &mut space)?;
                    records += 1;
                }
                position = walk.position();
                (state.tail_offset, state.tail_segment) =
                    (position.offset, position.segment_offset);
                live.commit(position.lsn, &state);
            }
        }
        self.resume(region, position)?;
        if durable_lsn < position.lsn {
            self.log.distrust_durability(region.file_bytes());
        }
        Ok((state, Recovery::TakenOver { records }, durable_lsn))
    }

    fn hash_of(&self, key: &[u8]) -> u64 {
        self.hash.hash(key, self.superblock.seed)
    }

    /// Keeps the checkpoint that the superblock names, unless its segment was given back, and gives
    /// back that of one which was not finished.
    fn take_over_checkpoints(&mut self, region: &Region) -> Result<()> {
        let live = region.live();
        let mut space = live.space();
        let is_kept = |name: CheckpointName| {
            let extent = extent_of(name);
            live.checkpoint_extents().contains(&Some(extent)) && !space.is_free(extent)
        };
        if self.superblock.checkpoint.is_some_and(|name| !is_kept(name)) {
            self.superblock.checkpoint = None;
            region.write_superblock(&mut self.superblock, false)?;
        }
        release_all_but(region, self.superblock.checkpoint, &mut space);
        Ok(())
    }

    /// Builds the index again, whatever the live tables say: from the checkpoint and the log after
    /// it, or from the whole log where there is no checkpoint or it is damaged.
    fn replay(mut self, region: Region, is_log_alone: bool) -> Result<Opened> {
        let has_failed_sync = region.live().has_failed_sync();
        let name = self.superblock.checkpoint.filter(|_| !is_log_alone && !has_failed_sync);
        // Nothing has been written yet, and a private index is made without the file.
        let base = name.and_then(|name| Base::of_checkpoint(&region, name).ok());
        let region = match self.access {
            Access::ReadWrite => {
                if has_failed_sync {
                    // So that the next sync writes it.
                    for used in &Base::of_log(&region, self.superblock.log_start)?.survey.used {
                        let (offset, bytes) = (used.granule, used.count);
                        region.write_again(offset * GRANULE_BYTES, bytes * GRANULE_BYTES)?;
                    }
                }
                // The log alone counts until the index is whole. The superblock that was found need
                // not be durable after a failed sync.
                if self.superblock.is_clean || has_failed_sync {
                    region.write_superblock(&mut self.superblock, false)?;
                }
                region
            }
            Access::ReadOnly => region.into_private()?,
        };
        if let Some(base) = base {
            match self.rebuild(&region, &base) {
                // What is wrong with a checkpoint does not matter to the log.
                Err(Error::Corrupt { .. }) => {}
                rebuilt => {
                    let rebuilt = rebuilt?;
                    return self.go_on(region, rebuilt);
                }
            }
        }
        if self.superblock.checkpoint.take().is_some() && self.access == Access::ReadWrite {
            // Its segment is about to be used for something else.
            region.write_superblock(&mut self.superblock, false)?;
        }
        let base = Base::of_log(&region, self.superblock.log_start)?;
        let rebuilt = self.rebuild(&region, &base)?;
        self.go_on(region, rebuilt)
    }

    /// Builds the index: the image of the checkpoint, then what the log did after it.
    fn rebuild(&self, region: &Region, base: &Base) -> Result<Rebuilt> {
        let survey = &base.survey;
        let live = region.live();
        live.clear_identity();
        live.initialize();
        if canary::is_made(Canary::WholeBeforeBuilt) {
            live.set_identity(region.storage().identity());
        }
        region.forget_pieces();
        let mut space = survey.space();
        live.set_space(&space);
        live.set_log_bytes(survey.log_bytes);
        live.set_big_bytes(survey.big_bytes);
        live.set_next_sequence(survey.next_sequence);
        let geometry = Store::geometry_for(survey.record_count, self.superblock.fill_thousandths);
        region.reserve_lines(LineWindow::Buckets, geometry.bucket_count(), &mut space)?;
        set_geometry(region, geometry);
        let mut state = CommitState::default();
        if let Some(image) = &base.image {
            live.set_checkpoint_extent(0, Some(extent_of(image.name())));
            self.load_image(region, image, geometry, &mut space)?;
            state = image.state.commit;
        }
        self.apply_all(region, base.start, &mut state, &mut space)?;
        let end = survey.end;
        (state.tail_offset, state.tail_segment) = (end.offset, end.segment_offset);
        live.commit(end.lsn, &state);
        let recovery = Recovery::Replayed {
            checkpoint_keys: base.image.as_ref().map_or(0, |image| image.state.commit.record_count),
            records: survey.records,
            dropped_bytes: survey.dropped_bytes,
        };
        Ok(Rebuilt { end, state, space, recovery })
    }

    /// Goes on behind the end of the log of a store whose index has been built.
    fn go_on(mut self, region: Region, rebuilt: Rebuilt) -> Result<Opened> {
        let Rebuilt { end, mut state, mut space, recovery } = rebuilt;
        let live = region.live();
        self.resume(&region, end)?;
        if self.access == Access::ReadOnly {
            return Ok(self.finish(region, state, recovery, end.lsn));
        }
        if end.segment_offset != 0 {
            // Nothing tells which of it a killed process, or a copy, left unsynced.
            self.log.distrust_durability(region.file_bytes());
            self.log.leave_segment(&region, &mut space)?;
            let position = self.log.position();
            (state.tail_offset, state.tail_segment) = (position.offset, position.segment_offset);
            live.commit(position.lsn, &state);
        } else {
            // The first segment never reached the disk: the next change begins another.
            self.superblock.log_start = LogStart::default();
        }
        let is_dirty = end.segment_offset != 0;
        if is_dirty {
            live.set_identity(region.storage().identity());
        }
        let mut opened = self.finish(region, state, recovery, 0);
        opened.writer.is_dirty = is_dirty;
        Ok(opened)
    }

    /// Puts the slots of a checkpoint into an empty table of any geometry.
    fn load_image(
        &self,
        region: &Region,
        image: &Image,
        geometry: Geometry,
        space: &mut Space,
    ) -> Result<()> {
        let from = image.state.geometry;
        // A bucket has its own number's bits of the hash, and the tag has bits 8 to 31.
        let is_known = from.level() >= Tag::FIRST_BIT;
        let mut pool = LivePool(region);
        image.for_each_entry(
            region,
            |bucket, slots| {
                for &slot in slots {
                    let slot = Slot(u64::from_le_bytes(slot));
                    let bucket = if from == geometry {
                        bucket
                    } else if is_known {
                        geometry.bucket_of(slot.low_hash(bucket.0))
                    } else {
                        geometry.bucket_of(self.hash_of(region.version(slot.addr())?.key()))
                    };
                    let mut at = locate_end(region, bucket)?;
                    if at.hole.is_none() && pool.free_count() == 0 {
                        let line_count = region.line_count(LineWindow::Overflow) + 1;
                        region.reserve_lines(LineWindow::Overflow, line_count, space)?;
                        at = locate_end(region, bucket)?;
                    }
                    insert(region, &mut pool, &at, slot)?;
                }
                Ok(())
            },
            |_| {},
        )
    }

    /// Applies every record of the log from `start` on, in its order.
    fn apply_all(
        &self,
        region: &Region,
        start: LogStart,
        state: &mut CommitState,
        space: &mut Space,
    ) -> Result<()> {
        let Some(mut walk) = LogWalk::new(region, start, Trust::Nothing, 0)? else { return Ok(()) };
        // A window of records is read ahead, so that the cache misses of their buckets overlap.
        let mut ahead = Vec::with_capacity(READ_AHEAD);
        loop {
            ahead.clear();
            while ahead.len() < READ_AHEAD {
                let Some(record) = walk.next_record()? else { break };
                if let Some(hash) = self.hash_of_record(region, &record)? {
                    let shape = Shape::of_word(region.shape().load(Ordering::Relaxed));
                    region.prefetch_bucket(shape.geometry.bucket_of(hash));
                }
                ahead.push(record);
            }
            if ahead.is_empty() {
                return Ok(());
            }
            for record in &ahead {
                self.apply(region, record, state, space)?;
            }
        }
    }

    /// Returns the hash of the key that a record changes.
    fn hash_of_record(&self, region: &Region, record: &Record<'_>) -> Result<Option<u64>> {
        Ok(match record.header.kind {
            RecordKind::Put => Some(self.hash_of(record.key())),
            RecordKind::BigPut => Some(self.hash_of(big_record_unverified(region, record)?.key())),
            RecordKind::Delete => {
                expect_value_bytes(record, 8)?;
                Some(u64_at(record.value(), 0))
            }
            _ => None,
        })
    }

    /// Applies one record to the index; a record that has been applied changes nothing there.
    fn apply(
        &self,
        region: &Region,
        record: &Record<'_>,
        state: &mut CommitState,
        space: &mut Space,
    ) -> Result<()> {
        let Some(hash) = self.hash_of_record(region, record)? else { return Ok(()) };
        let mut dead_bytes = 0;
        if let Some(prev) = record.header.prev {
            dead_bytes = region.record(prev)?.bytes.len() as u64;
        }
        state.dead_bytes += dead_bytes;
        state.live_bytes -= dead_bytes.min(state.live_bytes);
        if record.header.kind == RecordKind::Delete {
            let prev = record.header.prev.ok_or(no_prev(record))?;
            if let Some((line, i, _)) = locate_addr(region, hash, prev)?.found {
                line.set_slot(i, Slot::EMPTY);
            }
            state.record_count = state.record_count.saturating_sub(1);
            state.dead_bytes += TOMBSTONE_BYTES;
            return Ok(());
        }
        let (addr, bytes) = if record.header.kind == RecordKind::BigPut {
            let big = big_record_unverified(region, record)?;
            (big.addr(), big.bytes.len())
        } else {
            (record.addr(), record.bytes.len())
        };
        state.live_bytes += bytes as u64;
        if record.header.prev.is_none() {
            state.record_count += 1;
        }
        apply_put(region, hash, addr, record.header.prev, space)
    }
}

/// Puts the slot of a record where replay says it belongs.
fn apply_put(
    region: &Region,
    hash: u64,
    addr: Addr,
    prev: Option<Addr>,
    space: &mut Space,
) -> Result<()> {
    let slot = Slot::new(Tag::of_hash(hash), addr);
    if let Some(prev) = prev
        && let Some((line, i, _)) = locate_addr(region, hash, prev)?.found
    {
        line.set_slot(i, slot);
        return Ok(());
    }
    let mut at = locate_addr(region, hash, addr)?;
    if at.found.is_some() {
        return Ok(());
    }
    let mut pool = LivePool(region);
    if at.hole.is_none() && pool.free_count() == 0 {
        let line_count = region.line_count(LineWindow::Overflow) + 1;
        region.reserve_lines(LineWindow::Overflow, line_count, space)?;
        at = locate_addr(region, hash, addr)?;
    }
    insert(region, &mut pool, &at, slot).map(drop)
}

/// Records that replay reads ahead of the one it applies.
const READ_AHEAD: usize = 32;

fn no_prev(record: &Record<'_>) -> Error {
    Error::Corrupt { what: "record flags", offset: record.offset + 4, expected: 0x12, found: 0x02 }
}

/// An index that has been built, and where its log ends.
#[derive(Debug)]
struct Rebuilt {
    end: Position,
    state: CommitState,
    space: Space,
    recovery: Recovery,
}

/// What a first pass over the log finds: where it ends, what it uses, how much there is.
#[derive(Debug, Default)]
struct Survey {
    end: Position,
    used: Vec<Extent>,
    records: u64,
    record_count: u64,
    log_bytes: u64,
    big_bytes: u64,
    next_sequence: u64,
    dropped_bytes: u64,
}

/// What replay begins with, and the log after it.
#[derive(Debug)]
struct Base {
    image: Option<Image>,
    start: LogStart,
    survey: Survey,
}

impl Base {
    /// The checkpoint of that name and the log from its commit on.
    fn of_checkpoint(region: &Region, name: CheckpointName) -> Result<Self> {
        let image = Image::open(region, name)?;
        let state = &image.state;
        let start = state.replay_start;
        let mut survey = Survey {
            used: state.used.clone(),
            record_count: state.commit.record_count,
            log_bytes: state.log_bytes,
            big_bytes: state.big_bytes,
            next_sequence: state.next_sequence,
            ..Survey::default()
        };
        survey.used.push(extent_of(name));
        let walk = LogWalk::new(region, start, Trust::Nothing, 0)?;
        // The log was durable that far: without it there is damage, and more of it before.
        let walk = walk.ok_or(Error::Corrupt {
            what: "log start of the checkpoint",
            offset: name.offset,
            expected: start.record_offset,
            found: 0,
        })?;
        survey.walk(region, walk)?;
        Ok(Self { image: Some(image), start, survey })
    }

    /// Nothing, and the log from its start on.
    fn of_log(region: &Region, start: LogStart) -> Result<Self> {
        let mut survey = Survey { next_sequence: 1, ..Survey::default() };
        if let Some(walk) = LogWalk::new(region, start, Trust::Nothing, 0)? {
            survey.add_segment(walk.position().segment_offset, walk.header());
            survey.walk(region, walk)?;
        }
        Ok(Self { image: None, start, survey })
    }
}

impl Survey {
    fn walk(&mut self, region: &Region, mut walk: LogWalk<'_>) -> Result<()> {
        while let Some(record) = walk.next_record()? {
            self.records += 1;
            match record.header.kind {
                RecordKind::Link => {
                    self.add_segment(walk.position().segment_offset, walk.header());
                }
                RecordKind::BigPut => {
                    let offset = u64_at(record.value(), 0);
                    self.add_segment(offset, &region.segment(offset)?);
                }
                _ => {}
            }
            match record.header.kind {
                RecordKind::Put | RecordKind::BigPut if record.header.prev.is_none() => {
                    self.record_count += 1;
                }
                RecordKind::Delete => {
                    self.record_count = self.record_count.saturating_sub(1);
                }
                _ => {}
            }
        }
        self.end = walk.position();
        let segment_end = self.end.segment_offset + walk.header().segment_bytes;
        let rest = region.storage().read(self.end.offset, segment_end - self.end.offset);
        let last = rest.iter().rposition(|&byte| byte != 0);
        self.dropped_bytes = last.map_or(0, |last| last as u64 + 1);
        Ok(())
    }

    fn add_segment(&mut self, offset: u64, header: &SegmentHeader) {
        let count = header.segment_bytes / GRANULE_BYTES;
        self.used.push(Extent { granule: offset / GRANULE_BYTES, count });
        match header.kind {
            crate::format::SegmentKind::Big => self.big_bytes += header.segment_bytes,
            _ => self.log_bytes += header.segment_bytes,
        }
        self.next_sequence = self.next_sequence.max(header.sequence + 1);
    }

    fn space(&self) -> Space {
        Space::complement(HEADER_BYTES / GRANULE_BYTES, self.used.clone())
    }
}

const _: () = assert!(LINE_BYTES * 64 == GRANULE_BYTES);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::SimDisk;

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

    #[test]
    fn a_superblock_with_unknown_features_is_not_passed_over_for_the_older_copy() {
        let disk = with_newest_word(176, 1);
        for options in [Options::new(), Options::new().read_only()] {
            let error = disk.open(&options).expect_err("a feature of a later version");
            assert!(error.to_string().contains("newer version"), "{error}");
        }
    }

    #[test]
    fn a_store_with_unknown_write_features_may_be_read_only() {
        let disk = with_newest_word(184, 1);
        assert!(disk.open(&Options::new()).is_err());
        let db = disk.open(&Options::new().read_only()).unwrap();
        assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    }
}
