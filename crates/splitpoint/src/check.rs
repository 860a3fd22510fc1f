//! Verification of a store without writing. Its result is a report, not an error.
//!
//! [`Db::check`](crate::Db::check) returns a [`CheckReport`] with each [`Damage`].

mod addr_set;
mod index;
mod left;
mod log;
mod losses;
mod segments;

use std::fmt;
use std::ops::ControlFlow;

use addr_set::AddrSet;
use left::Left;
use losses::Losses;

use crate::checkpoint::{Image, is_of_older_version};
use crate::error::{Error, Result, write_difference};
use crate::format::{
    Addr, CheckpointName, GRANULE_BYTES, HEADER_BYTES, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS,
    Superblock, SuperblockFault, newest, u64_at,
};
use crate::live::{END_OFFSET, LineWindow};
use crate::piece::piece_of;
use crate::region::{Extents, read_superblock};
use crate::space::Extent;
use crate::storage::failure::io_error;
use crate::storage::neighbours::Neighbours;
use crate::storage::open::TURN_WAIT;
use crate::storage::waiting::Waiting;
use crate::store::{Store, Writer, run_locked};

/// One damage that a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The damaged structure: a term of `docs/glossary.md` or a field of `docs/format.md`.
    pub what: &'static str,
    /// Its offset, in bytes from the start of the file.
    pub offset: u64,
    /// The value that the format requires there.
    pub expected: u64,
    /// The value that is there.
    pub found: u64,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, offset, expected, found } = self;
        write!(f, "{what} at byte {offset}: ")?;
        write_difference(f, what, *expected, *found)
    }
}

/// What a check has verified, and the damages that it has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// Valid records of the log.
    pub record_count: u64,
    /// Bytes of these records, including big records.
    pub log_bytes: u64,
    /// Buckets and overflow lines that were compared with the log.
    pub line_count: u64,
    /// The first damages found: at most [`CheckReport::DAMAGES_MAX`].
    pub damages: Vec<Damage>,
    /// Number of all damages: one for each damaged place, regardless of its consequences.
    pub damage_count: u64,
    /// Slots that lead to a record in a damaged part of the log: that many keys cannot be read. The
    /// slots themselves are intact and do not count as damages.
    pub lost_slot_count: u64,
    /// Records without a slot as the consequence of a damage: a record that cannot be read replaced
    /// or deleted them, or a damaged chain hides them. They do not count as damages.
    pub slotless_count: u64,
}

impl CheckReport {
    /// Largest number of damages that a report lists; further ones are only counted.
    pub const DAMAGES_MAX: usize = 1000;

    /// Returns whether the check found no damage.
    pub fn is_clean(&self) -> bool {
        self.damage_count == 0
    }

    /// Adds a damage to the report.
    pub(crate) fn note(&mut self, what: &'static str, offset: u64, expected: u64, found: u64) {
        self.damage_count += 1;
        if self.damages.len() < Self::DAMAGES_MAX {
            self.damages.push(Damage { what, offset, expected, found });
        }
    }

    /// Adds `count` damages of one kind, the first of which are at `addrs`.
    fn note_many(&mut self, what: &'static str, addrs: &[Addr], count: u64) {
        let noted = addrs.iter().take(count as usize);
        self.damage_count += count - noted.len() as u64;
        for addr in noted {
            self.note(what, addr.offset(), addr.0, 0);
        }
    }

    /// Adds the damage that an error describes.
    fn note_error(&mut self, error: &Error) {
        match error {
            Error::Corrupt { what, offset, expected, found } => {
                self.note(what, *offset, *expected, *found);
            }
            _ => self.note("operation", 0, 0, 0),
        }
    }
}

/// Offset within a superblock of the field with the checkpoint's offset.
const CHECKPOINT_FIELD: u64 = 144;

/// What a check is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckStage {
    /// Reading the log, every record.
    Log,
    /// Comparing every bucket of the index with the log.
    Index,
}

/// How far a check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckProgress {
    /// The present stage.
    pub stage: CheckStage,
    /// Bytes of the log, or of the index, that this stage has done.
    pub bytes: u64,
    /// Bytes that this stage has to do.
    pub bytes_total: u64,
}

/// The caller's function, which receives the progress and can stop the check.
pub(crate) type Watch<'a> = &'a mut dyn FnMut(CheckProgress) -> ControlFlow<()>;

/// A check in progress.
struct Check<'a> {
    store: &'a Store,
    watch: Watch<'a>,
    report: CheckReport,
    /// Records that are live according to the log, minus those for which a slot has been found.
    live: AddrSet,
    /// Records that may or may not be live, because damage hides the answer.
    doubtful: AddrSet,
    /// Parts of the log that cannot be read.
    losses: Losses,
    /// Segments of the log.
    used: Vec<Extent>,
    /// Bytes of big segments that were read.
    big_bytes: u64,
    /// Number of keys, as computed from the records.
    record_count: u64,
    /// Operations that a killed process has left unfinished.
    left: Left<'a>,
}

impl Store {
    /// Verifies log and index against each other.
    ///
    /// A complete log determines which records are live: every put, except those that a later
    /// record names as the record it replaces (its `prev`). The index must hold exactly these. The
    /// log of a compacted store has gaps: there every slot must lead to a valid record, and the
    /// counts must add up.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if `watch` stops it.
    pub(crate) fn check<'a>(
        &'a self,
        writer: &mut Writer,
        watch: Watch<'a>,
    ) -> Result<CheckReport> {
        let _no_writer = self.keep_writers_out(writer)?;
        let file_bytes = self.region.view.file_bytes();
        let mut check = Check {
            store: self,
            watch,
            report: CheckReport::default(),
            live: AddrSet::for_file(file_bytes),
            doubtful: AddrSet::for_file(file_bytes),
            losses: Losses::none(file_bytes),
            used: Vec::new(),
            big_bytes: 0,
            record_count: 0,
            left: Left::default(),
        };
        check.check_superblocks();
        check.check_live_header();
        check.find_left(writer);
        let is_log_whole = writer.is_log_whole();
        if is_log_whole {
            check.read_log(writer.superblock.log_start, writer.log.position())?;
        }
        if !is_log_whole && let Err(error) = self.find_segments_as_left(writer) {
            check.report.note_error(&error);
        }
        if !is_log_whole || self.region.storage().is_volatile() {
            check.read_segments(writer)?;
        }
        check.check_space();
        check.take_left();
        // Only a complete log still shows the records that no slot holds any more.
        let taken_count = if is_log_whole { 0 } else { check.left.taken_count };
        check.read_index(writer.state.record_count.saturating_sub(taken_count))?;
        Ok(check.report)
    }
}

/// Keeps writers out of a file that a read-only handle checks, until it is dropped.
struct NoWriter<'a>(&'a Neighbours);

impl Drop for NoWriter<'_> {
    fn drop(&mut self) {
        // Ignore the error: a byte that stays locked is unlocked when the handle is closed.
        let _ = self.0.let_writers_in();
    }
}

impl Store {
    /// Verifies a file that others change by turns, in a turn of this handle.
    pub(crate) fn check_in_turn(
        &self,
        watch: &mut dyn FnMut(CheckProgress) -> ControlFlow<()>,
    ) -> Result<CheckReport> {
        let turn = self.lock_out_others()?;
        if self.reader.is_none() {
            return run_locked(self, turn, |writer| self.check(writer, watch)).1;
        }
        run_locked(self, self.lock_to_look()?, |writer| self.check(writer, watch)).1
    }

    /// Keeps writers out of a file that this handle only reads, and loads the state that the last
    /// writer left.
    ///
    /// # Errors
    ///
    /// [`Error::Locked`] if there is a writer, or if another handle kept its turn for longer than
    /// this handle waits.
    fn keep_writers_out(&self, writer: &mut Writer) -> Result<Option<NoWriter<'_>>> {
        let Some(reader) = &self.reader else { return Ok(None) };
        let storage = self.region.storage();
        let shared = storage.neighbours().expect("a file that others may change");
        let no_writer = if self.takes_turns() {
            // The caller has the turn, which keeps writers out.
            None
        } else {
            let (options, mut waiting) = (&*self.waits, Waiting::new(&self.waits));
            let wait_max = options.lock_timeout.unwrap_or(TURN_WAIT);
            let is_kept = shared.keep_writers_out(wait_max, || {
                waiting.tell(|| self.locked());
                options.stops_waiting()
            });
            if !is_kept.map_err(|source| io_error("lock", storage.path(), source))? {
                return Err(self.locked());
            }
            Some(NoWriter(shared))
        };
        self.region.see_size()?;
        // Map these always: new pieces do not change the piece epoch.
        reader.map_pieces(&self.region)?;
        writer.superblock = read_superblock(storage)?;
        self.note_commit(writer);
        writer.extents = Extents::of(&self.region);
        Ok(no_writer)
    }
}

impl Check<'_> {
    /// Reports the progress, and fails if the caller's function wants to stop.
    fn tell(&mut self, stage: CheckStage, bytes: u64, bytes_total: u64) -> Result<()> {
        let bytes = bytes.min(bytes_total);
        match (self.watch)(CheckProgress { stage, bytes, bytes_total }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Io {
                action: "finish the check of",
                path: self.store.region.storage().path().to_path_buf(),
                source: std::io::ErrorKind::Interrupted.into(),
            }),
        }
    }

    fn check_live_header(&mut self) {
        let region = &self.store.region;
        // A private index in memory has no pieces in the file.
        if !region.is_private()
            && let Err(error) = region.live().validate(region.view.file_bytes())
        {
            self.report.note_error(&error);
        }
    }

    fn check_superblocks(&mut self) {
        let (store, report) = (self.store, &mut self.report);
        let storage = store.region.storage();
        if storage.is_volatile() {
            return;
        }
        let _no_writes = store.superblock_writes();
        let blocks = SUPERBLOCK_OFFSETS.map(|offset| storage.read(offset, SUPERBLOCK_BYTES));
        let copies = blocks.each_ref().map(|block| Superblock::decode(block));
        let is_new = newest(&copies).is_none_or(|superblock| !superblock.is_compacted);
        for ((offset, block), copy) in SUPERBLOCK_OFFSETS.into_iter().zip(&blocks).zip(&copies) {
            match *copy {
                Ok(_) => {}
                // A new store has written only one of them.
                Err(_) if is_new && block.iter().all(|&byte| byte == 0) => {}
                Err(SuperblockFault::Field { what, offset: at, expected, found }) => {
                    report.note(what, offset + at, expected, found);
                }
                Err(_) => report.note("superblock magic", offset, 0, u64_at(block, 0)),
            }
        }
        match newest(&copies) {
            None => report.note("superblocks", 0, 1, 0),
            Some(superblock) => match superblock.checkpoint {
                Some(name) => self.check_checkpoint(name, superblock.is_compacted),
                // The log of a compacted store is not complete, so it must have a checkpoint.
                None if superblock.is_compacted => {
                    let offset = superblock.offset() + CHECKPOINT_FIELD;
                    report.note("checkpoint offset", offset, HEADER_BYTES, 0);
                }
                None => {}
            },
        }
    }

    /// Verifies the checkpoint from which a recovery would start. A checkpoint of an older version
    /// is skipped, as recovery does, unless the store is compacted and depends on it.
    fn check_checkpoint(&mut self, name: CheckpointName, is_compacted: bool) {
        let region = &self.store.region;
        if !is_compacted && is_of_older_version(&region.view, name) {
            return;
        }
        let checked = Image::open(&region.view, name).and_then(|image| {
            image.for_each_entry(&region.view, |_| false, |_, _| Ok(()), |_| {}, |_| {})
        });
        if let Err(error) = checked {
            self.report.note_error(&error);
        }
    }

    /// Checks that no granule has two uses. A free extent must not overlap a segment of the log
    /// (`used`), a piece of the index, or another free extent.
    ///
    /// A granule without any use is not a damage: its space is lost only until the index is
    /// rebuilt.
    fn check_space(&mut self) {
        let region = &self.store.region;
        let live = region.live();
        let space = live.space();
        if region.storage().is_volatile() {
            return;
        }
        let mut used = std::mem::take(&mut self.used);
        used.push(Extent { granule: 0, count: HEADER_BYTES / GRANULE_BYTES });
        // The pieces of a private index are in memory, not in the file.
        if !region.is_private() {
            for window in LineWindow::ALL {
                used.extend((0..live.piece_count(window)).map(|piece| Extent {
                    granule: live.piece(window, piece),
                    count: piece_of(piece).granule_count(),
                }));
            }
            // A killed process may have recorded an extent before it was allocated, or after it was
            // freed.
            let checkpoints = live.checkpoint_extents().into_iter().flatten();
            let noted = checkpoints.chain(live.segment_table());
            used.extend(noted.filter(|&extent| !space.is_free(extent)));
        }
        let last = used.iter().map(|extent| extent.granule + extent.count).max();
        if let Some(last) = last.filter(|&last| last > space.end()) {
            self.report.note("end of the file in granules", END_OFFSET, last, space.end());
        }
        used.extend_from_slice(space.free());
        used.sort_unstable_by_key(|extent| extent.granule);
        for pair in used.windows(2) {
            let end = pair[0].granule + pair[0].count;
            if end > pair[1].granule {
                self.report.note("granule with two uses", pair[1].granule * GRANULE_BYTES, 1, 2);
            }
        }
    }
}
