//! Turns: handles in several processes change one file, one after the other.
//!
//! Between its turns such a handle reads like a reader beside a writer ([`reader`](crate::reader)).
//! For a change it takes the place of the writer, a lock on one byte of the file that the kernel
//! drops with the process, and [gives it up](super::lease) afterwards. What it does at the
//! beginning of a turn depends on the word of the last turn in the reader table:
//!
//! | word found | action |
//! |---|---|
//! | of this handle's own last turn | none: no other handle has had a turn since |
//! | of a turn of another handle that has ended | load the state of the writer from the file |
//! | of a turn that has not ended | complete what the killed writer has left, then the same |
//!
//! All of this is O(1), and keeps the mappings, so borrowed values stay valid.
//!
//! # What must be durable
//!
//! The ranges of the file that are not durable are derived from the file itself, regardless of
//! which handle wrote them: the log, from the durable LSN in the live header on, leads to all of
//! them. So a sync by any handle covers the changes of all, and needs no turn. It may have to wait
//! for a change of the same handle that is waiting for its turn.
//!
//! # Invariants
//!
//! - Only the handle with the place of the writer stores to the file, except for the durable LSN,
//!   which only grows, and the reader table.
//! - When a turn ends, everything that the next writer needs is in the file. The image of a
//!   checkpoint is written completely within one turn.
//! - A turn that may have left something unfinished is not marked as ended.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::known_segments::KnownSegments;
use super::lease::Keeper;
use super::{Mark, Store, Writer, in_fork};
use crate::error::{Error, Result};
use crate::format::{GRANULE_BYTES, SegmentHeader};
use crate::log::append::{LogPosition, UnsyncedRange, coalesce};
use crate::log::record::RecordKind;
use crate::log::relocation::Relocation;
use crate::log::runs::Runs;
use crate::log::scan::{LogWalk, Trust, big_target};
use crate::options::{Durability, Options};
use crate::region::Region;
use crate::segments::SegmentTable;
use crate::storage::Room;
use crate::storage::failure::io_error;
use crate::storage::neighbours::Neighbours;
use crate::storage::open::TURN_WAIT;
use crate::storage::reader_table::{Left, TurnWord, read_turn, write_left, write_turn};
use crate::testing::meanwhile::{self, Point};
use crate::testing::mutant::{self, Mutant};

/// How often the list of unsynced ranges is recomputed while other handles sync.
const LOOKS: u32 = 100;

/// Loads the state of the writer from the file at the beginning of a turn.
pub(crate) trait TakeOver: fmt::Debug + Send + Sync {
    /// Returns a writer that continues where the last one ended.
    ///
    /// # Errors
    ///
    /// Those of the file. After an error nothing has changed, unless the last turn had not ended.
    fn take_over(
        &self,
        region: &Arc<Region>,
        before: &mut Writer,
        last: LastTurn,
    ) -> Result<Writer>;
}

/// How the last turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastTurn {
    /// Its handle has ended it in order. `is_not_clean_durably` says whether the superblock is
    /// durably "not clean".
    Ended { is_not_clean_durably: bool },
    /// Its handle was killed or has failed.
    Killed,
}

/// The state of a handle that takes turns.
#[derive(Debug)]
pub(crate) struct Turns {
    take_over: Box<dyn TakeOver>,
    pub(super) options: Options,
    /// How long the handle waits for its turn.
    pub(super) wait_max: Duration,
    pub(super) keeper: Keeper,
    /// Whether stores through the mapping may allocate space, as on a copy-on-write file system.
    needs_room: OnceLock<bool>,
    /// The writer state with which the handle looks at the file between its turns.
    looking: Mutex<Writer>,
    own: Mutex<OwnTurns>,
    /// Whether the program's `on_wait` function has panicked while this handle waited for a turn.
    has_panicked_waiting: AtomicBool,
}

/// What a handle remembers about its own turns.
#[derive(Debug)]
struct OwnTurns {
    /// The word of its last turn.
    word: TurnWord,
    /// How often the handle has taken over from another handle.
    taken_over_count: u64,
    /// The segments at the end of its last turn, once they have been asked for.
    segments: Option<KnownSegments>,
}

impl OwnTurns {
    /// Records the word that a turn leaves, and drops the list of segments if the version of the
    /// segment table has changed.
    fn note_end(&mut self, word: TurnWord, version: Option<u64>) {
        self.word = word;
        self.segments.take_if(|known| !known.is_of(version));
    }
}

impl Turns {
    pub(super) fn new(take_over: Box<dyn TakeOver>, options: &Options, looking: Writer) -> Self {
        Self {
            take_over,
            options: options.clone(),
            wait_max: options.lock_timeout.unwrap_or(TURN_WAIT),
            keeper: Keeper::default(),
            needs_room: OnceLock::new(),
            looking: Mutex::new(looking),
            own: Mutex::new(OwnTurns { word: TurnWord::NONE, taken_over_count: 0, segments: None }),
            has_panicked_waiting: AtomicBool::new(false),
        }
    }

    fn own(&self) -> MutexGuard<'_, OwnTurns> {
        // Ignore poison: each statement leaves the value consistent.
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the segments with records at the end of the turn of `word`, if they are known and
    /// that was the last turn of this handle.
    pub(super) fn known_segments(&self, word: TurnWord) -> Option<Runs> {
        let own = self.own();
        let is_last = own.word == word || mutant::is_made(Mutant::TrustsKnownSegments);
        own.segments.as_ref().filter(|_| is_last).map(KnownSegments::segments)
    }

    /// Remembers the segments with records at the end of the last turn of this handle. The caller
    /// holds the writer's lock.
    pub(super) fn set_known_segments(&self, segments: KnownSegments) {
        self.own().segments = Some(segments);
    }

    /// Records that the program's `on_wait` function is panicking, so that the next caller recovers
    /// from the poisoned lock.
    pub(super) fn note_panic_of_wait(&self) {
        // During another panic, a drop does not poison the lock.
        if !thread::panicking() {
            self.has_panicked_waiting.store(true, Ordering::SeqCst);
        }
    }

    /// Returns whether it has panicked, and resets the flag.
    pub(super) fn take_panic_of_wait(&self) -> bool {
        self.has_panicked_waiting.swap(false, Ordering::SeqCst)
    }
}

/// The writer's lock, for a change. On a handle that takes turns, dropping it ends the turn.
pub(crate) struct Changing<'a> {
    store: &'a Store,
    writer: MutexGuard<'a, Writer>,
}

impl<'a> Changing<'a> {
    #[inline(always)]
    pub(super) fn new(store: &'a Store, writer: MutexGuard<'a, Writer>) -> Self {
        Self { store, writer }
    }
}

impl Deref for Changing<'_> {
    type Target = Writer;

    #[inline(always)]
    fn deref(&self) -> &Writer {
        &self.writer
    }
}

impl DerefMut for Changing<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Writer {
        &mut self.writer
    }
}

impl Drop for Changing<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.store.turns.is_some() {
            self.store.end_turn(&mut self.writer);
        }
    }
}

impl Store {
    /// Locks the writer state with which the handle looks at the file. On a handle that takes
    /// turns, this is not the lock of the writer.
    pub(crate) fn lock_to_look(&self) -> Result<MutexGuard<'_, Writer>> {
        match &self.turns {
            // Ignore poison: each use begins by loading the state from the file.
            Some(turns) if self.reader.is_some() => {
                Ok(turns.looking.lock().unwrap_or_else(PoisonError::into_inner))
            }
            _ => self.lock(),
        }
    }

    /// Locks the writer, within a turn on a handle that takes turns, so that nobody changes the
    /// store.
    #[inline(always)]
    pub(crate) fn lock_out_others(&self) -> Result<Changing<'_>> {
        let mut writer = Changing::new(self, self.lock()?);
        self.begin_turn_if_taken(&mut writer)?;
        Ok(writer)
    }

    /// Like [`lock_out_others`](Self::lock_out_others), for a background thread: it does not call
    /// `on_wait`, and does not wait long.
    pub(super) fn lock_out_others_in_silence(&self) -> Result<Changing<'_>> {
        let mut writer = Changing::new(self, self.lock()?);
        writer.turn.is_silent = true;
        let begun = self.begin_turn_if_taken(&mut writer);
        writer.turn.is_silent = false;
        begun.map(|()| writer)
    }

    /// Begins a turn, on a handle that takes turns.
    #[inline(always)]
    pub(super) fn begin_turn_if_taken(&self, writer: &mut Writer) -> Result<()> {
        if self.turns.is_some() { self.begin_turn(writer) } else { Ok(()) }
    }

    /// Returns the bytes of records that this handle has moved, if it takes turns.
    pub(crate) fn moved_by_turns(&self) -> Result<Option<u64>> {
        match &self.turns {
            Some(_) => Ok(Some(self.lock()?.moved_bytes())),
            None => Ok(None),
        }
    }

    /// Returns how often this handle has taken over from another one before its last turn, or
    /// `None` if another handle may have changed the store since.
    pub(crate) fn turns_of_others(&self) -> Option<u64> {
        let Some(turns) = self.turns.as_deref() else {
            return if self.reader.is_none() { Some(0) } else { None };
        };
        let OwnTurns { word, taken_over_count, .. } = *turns.own();
        let is_last = match &self.others {
            Some(others) => others.turn().is_ok_and(|last| last == word && last.has_ended()),
            None => false,
        };
        is_last.then_some(taken_over_count)
    }

    /// Returns whether the handle changes the file by turns.
    pub(crate) fn takes_turns(&self) -> bool {
        self.turns.is_some()
    }

    /// Takes the place of the writer, and loads the changes of other handles since the last turn.
    #[cold]
    #[inline(never)]
    pub(super) fn begin_turn(&self, writer: &mut Writer) -> Result<()> {
        let turns = self.turns.as_deref().expect("the caller has looked");
        debug_assert!(!writer.turn.is_held, "a turn ends with the lock of its writer");
        if !self.origin.is_here() {
            return Err(in_fork());
        }
        self.group.check()?;
        self.take_place(turns, &mut writer.turn)?;
        writer.turn.is_held = true;
        let begun = self.begin_turn_in_place(turns, writer);
        if begun.is_err() {
            writer.turn.is_held = false;
            self.leave_place(turns, &mut writer.turn, true);
        }
        begun
    }

    fn begin_turn_in_place(&self, turns: &Turns, writer: &mut Writer) -> Result<()> {
        self.refuse_after_failed_sync()?;
        let found = self.turn_word()?;
        let is_own = found == writer.turn.word && self.others.is_some();
        let number = match is_own {
            // A different number each time, so that a concurrent glance sees another word.
            true if !mutant::is_made(Mutant::RepeatsTurnWord) => writer.turn.number.wrapping_add(1),
            true => writer.turn.number,
            false => writer.log.next_salt(),
        };
        // The file may have been replaced since, so check that it still has its name.
        if found == TurnWord::NONE || !is_own && self.is_of_program() {
            self.expect_name()?;
        }
        // From here on, a kill leaves a turn that has not ended.
        self.set_turn_word(TurnWord::begun(number))?;
        if is_own {
            let prepared =
                if writer.turn.is_prepared { Ok(()) } else { self.prepare(turns, writer) };
            match prepared {
                Ok(()) => writer.turn.number = number,
                Err(_) => self.set_turn_word(found)?,
            }
            return prepared;
        }
        let last = if found.has_ended() {
            LastTurn::Ended { is_not_clean_durably: found.is_not_clean_durably() }
        } else {
            LastTurn::Killed
        };
        let taken = self.take_over(turns, writer, last);
        match &taken {
            Ok(()) => {
                let (word, since) =
                    (TurnWord::begun(number), Some(self.region.storage().since_boot()));
                let turn = Turn { word, number, since, ..Turn::default() };
                let number_in_all = writer.turn.number_in_all;
                let turn = Turn { number_in_row: 1, number_in_all, ..turn };
                writer.turn = Turn { is_held: true, is_prepared: true, ..turn };
                // The known segments are dropped at the end of the turn, because the table is a new
                // one.
                turns.own().taken_over_count += 1;
            }
            // Restore the word, so that the next handle finds what this one has found.
            Err(_) => self.set_turn_word(found)?,
        }
        taken
    }

    /// Fails after a failed sync of any process: later syncs prove nothing.
    fn refuse_after_failed_sync(&self) -> Result<()> {
        if !self.region.live().has_failed_sync() {
            return Ok(());
        }
        let reason =
            "a sync of another process has failed: the file may lack what it shows; close \
                      every handle, and open it again"
                .to_string();
        Err(Error::Poisoned { reason })
    }

    /// Returns the word of the last turn. On a simulated machine without locks, another handle always
    /// had it.
    fn turn_word(&self) -> Result<TurnWord> {
        match &self.others {
            Some(others) => others.turn().map_err(|source| self.table_error(source)),
            None => Ok(read_turn(self.region.storage())),
        }
    }

    fn set_turn_word(&self, word: TurnWord) -> Result<()> {
        match &self.others {
            Some(others) => others.set_turn(word).map_err(|source| self.table_error(source)),
            None => {
                write_turn(self.region.storage(), word).map_err(|source| self.table_error(source))
            }
        }
    }

    pub(super) fn table_error(&self, source: std::io::Error) -> Error {
        io_error("map the reader table of", self.region.storage().path(), source)
    }

    /// Replaces the state of the writer by the state in the file.
    fn take_over(&self, turns: &Turns, writer: &mut Writer, last: LastTurn) -> Result<()> {
        let mut new = turns.take_over.take_over(&self.region, writer, last)?;
        self.region.note_shared_creation();
        // A handle that was killed, or that has closed the store, leaves no pending checkpoint.
        let is_whole = last != LastTurn::Killed && new.mark != Mark::Clean;
        if let (LastTurn::Killed, Some(others)) = (last, &self.others) {
            others.end_move();
        }
        self.prepare(turns, &mut new)?;
        new.opened_lsn = writer.opened_lsn;
        new.change_count = writer.change_count;
        let written = new.written();
        std::mem::swap(&mut new.pace, &mut writer.pace);
        new.pace.go_on_from(written);
        self.group.note_durable(self.region.live().durable_lsn().min(written.lsn));
        new.log.keep_mapping(&mut writer.log);
        if new.superblock.checkpoint != writer.superblock.checkpoint {
            // Another handle has found space for a checkpoint, so do not postpone the next one.
            writer.checkpoints.put_off_lsn = 0;
        }
        new.checkpoints.go_on(&writer.checkpoints, is_whole);
        if let Some(live_share) = turns.options.live_share {
            new.begin_compaction(self, live_share, &turns.options);
            new.go_on_compacting(writer);
        }
        // Schedule after compaction has begun, which shortens the interval.
        new.schedule_checkpoint_by_turns(&self.region);
        *writer = new;
        Ok(())
    }

    /// Prepares the first change after the state of the writer was loaded, by an open or at the
    /// beginning of a turn. If "not clean" is not durable, `begin_changes` does this instead.
    fn prepare(&self, turns: &Turns, writer: &mut Writer) -> Result<()> {
        writer.needs_room = if let Some(&needs_room) = turns.needs_room.get() {
            needs_room
        } else {
            // A reflink copy may have been made since the open.
            self.region.storage().forget_claims();
            let tails = writer.log.rest_of_tail().into_iter();
            let needs_room = self.region.claim_stores(tails)? == Room::OfFileSystem;
            *turns.needs_room.get_or_init(|| needs_room)
        };
        if writer.mark == Mark::Changing {
            match writer.find_segments() {
                Err(Error::Corrupt { .. }) if !writer.superblock.is_compacted => {}
                found => found?,
            }
        }
        writer.turn.is_prepared = true;
        Ok(())
    }

    /// Records this process in the live header, for messages, before the first change since another
    /// handle may have had a turn. Not earlier, so that an open, a check or a scan does not change
    /// the file.
    pub(super) fn name_process(&self, writer: &mut Writer) {
        if !std::mem::replace(&mut writer.turn.is_named, true) {
            self.region.set_pid();
        }
    }

    /// Ends the turn, if the handle has one.
    #[cold]
    #[inline(never)]
    fn end_turn(&self, writer: &mut Writer) {
        let Some(turns) = self.turns.as_deref().filter(|_| writer.turn.is_held) else { return };
        writer.turn.is_held = false;
        if !thread::panicking() && self.group.check().is_ok() {
            let is_durably = writer.mark == Mark::Changing;
            writer.turn.word = TurnWord::begun(writer.turn.number).ended(is_durably);
            // Cannot fail: the table was mapped when the turn began.
            let _ = self.set_turn_word(writer.turn.word);
            let version = writer.extents.segments().map(SegmentTable::version);
            turns.own().note_end(writer.turn.word, version);
            if self.keeps_place(turns, &mut writer.turn) {
                return;
            }
        }
        self.leave_place(turns, &mut writer.turn, false);
    }

    /// Ends the first turn of a handle, in which it has opened the store.
    pub(super) fn end_opening(&self, last: TurnWord) {
        if self.turns.is_none() {
            return;
        }
        // Not contended: nobody else knows the handle yet.
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let live = self.region.live();
        let lsn = writer.log.position().lsn;
        // The durable LSN can be trusted if other handles were open all the time, or if the last
        // one ended its turn in order.
        let is_known =
            last.has_ended() || self.others.as_ref().is_some_and(|others| others.were_there());
        let durable_lsn = match writer.superblock.is_clean {
            true => lsn,
            false if is_known => live.durable_lsn().min(lsn),
            false => 0,
        };
        if live.durable_lsn() != durable_lsn {
            live.set_durable_lsn(durable_lsn);
        }
        if !writer.superblock.is_clean && last.is_not_clean_durably() {
            writer.mark = Mark::Changing;
        }
        writer.turn.number = writer.log.next_salt();
        writer.turn.is_held = true;
        writer.turn.since = Some(self.region.storage().since_boot());
        // Due regardless of which handle reaches it, because handles may be many and short-lived.
        writer.schedule_checkpoint_by_turns(&self.region);
        self.end_turn(&mut writer);
    }

    fn is_of_program(&self) -> bool {
        self.region.storage().neighbours().is_some_and(Neighbours::is_of_program)
    }

    /// Fails if a handle of another kind has replaced the file: changes would be lost.
    fn expect_name(&self) -> Result<()> {
        let storage = self.region.storage();
        if storage.neighbours().is_none_or(Neighbours::has_name) {
            return Ok(());
        }
        let reason = "the file was replaced; open it again".to_string();
        let source = std::io::Error::new(std::io::ErrorKind::NotFound, reason);
        Err(io_error("change", storage.path(), source))
    }

    /// Syncs everything that all handles have committed so far, and returns the LSN that it covers.
    /// Needs no turn.
    pub(super) fn sync_for_all(&self) -> Result<u64> {
        {
            let mut writer = self.lock()?;
            let written = writer.written();
            self.group.set_syncing_since(writer.pace.begin_sync(written));
        }
        let begun = Instant::now();
        meanwhile::at(Point::BeforeFlush);
        let lsn = self.sync_by_turns()?;
        meanwhile::at(Point::BehindFlush);
        self.lock()?.pace.end_sync(begun.elapsed());
        Ok(lsn)
    }

    /// Like [`sync_for_all`](Self::sync_for_all), for a caller that holds the writer's lock.
    pub(super) fn sync_by_turns(&self) -> Result<u64> {
        let (ranges, lsn) = self.unsynced_by_turns()?;
        for range in ranges {
            self.region.sync_range(range.offset, range.bytes)?;
        }
        // A concurrent failed sync of another process may have marked pages clean that this one
        // should have written.
        self.refuse_after_failed_sync()?;
        self.region.live().raise_durable_lsn(lsn);
        Ok(lsn)
    }

    /// Returns the ranges of the file that may not be durable, and the log sequence number that a
    /// sync of them covers.
    ///
    /// A handle without locks between calls excludes nobody here: another one may open the store,
    /// move records that the log names, and truncate the file. So this reads the log under a pin,
    /// taken before the commit is loaded. If another handle has exclusive use of the file, there is
    /// no pin; then this reads nothing and returns the whole file.
    fn unsynced_by_turns(&self) -> Result<(Vec<UnsyncedRange>, u64)> {
        let live = self.region.live();
        let (durable_lsn, (lsn, _)) = (live.durable_lsn(), live.committed());
        if durable_lsn >= lsn && lsn > 0 {
            return Ok((Vec::new(), lsn));
        }
        let pin = self.reader.as_ref().map(|reader| reader.pin_at_once(&self.region)).transpose();
        let looks = if pin.is_ok() { LOOKS } else { 0 };
        for _ in 0..looks {
            self.region.see_size()?;
            let durable_lsn = live.durable_lsn();
            let (lsn, state) = live.committed();
            if durable_lsn >= lsn && lsn > 0 {
                return Ok((Vec::new(), lsn));
            }
            meanwhile::at(Point::SyncBegun);
            let (segment_offset, offset) = (state.tail_segment, state.tail_offset);
            let end = LogPosition { segment_offset, offset, lsn };
            let ranges = self.ranges_between(durable_lsn, end);
            // If another handle has synced in the meantime, space that was read here may have been
            // reused.
            if live.durable_lsn() == durable_lsn
                && let Ok(Some(ranges)) = ranges
            {
                return Ok((coalesce(ranges), lsn));
            }
            if live.durable_lsn() == durable_lsn {
                break;
            }
        }
        let (lsn, _) = live.committed();
        // Reload the size after the commit, for which another handle may have extended the file.
        self.region.see_size()?;
        let whole = UnsyncedRange { offset: 0, bytes: self.region.view.file_bytes() };
        Ok((vec![whole], lsn))
    }

    /// Returns the ranges of the log, and those that it names, from `durable_lsn` to its end.
    /// `None` if the log does not go back that far, or nothing is known to be durable.
    fn ranges_between(
        &self,
        durable_lsn: u64,
        end: LogPosition,
    ) -> Result<Option<Vec<UnsyncedRange>>> {
        let view = &self.region.view;
        if durable_lsn == 0 || end.segment_offset == 0 {
            return Ok(None);
        }
        let mut segment_offset = end.segment_offset;
        let mut header = view.segment(segment_offset)?;
        while header.base_lsn > durable_lsn && !mutant::is_made(Mutant::SyncsTailAlone) {
            let previous = header.previous_offset;
            if previous == 0 {
                return Ok(None);
            }
            let before = view.segment(previous)?;
            if before.kind != header.kind || before.base_lsn >= header.base_lsn {
                return Ok(None);
            }
            (segment_offset, header) = (previous, before);
        }
        let first = segment_offset + SegmentHeader::BYTES;
        let offset = first + durable_lsn.saturating_sub(header.base_lsn);
        let begin = LogPosition { segment_offset, offset, lsn: durable_lsn.max(header.base_lsn) };
        let mut walk = LogWalk::from_position(view, begin, Trust::Published, end.lsn)?;
        // Include the segment header, if the range begins with the first record of a segment.
        let start = if offset == first { segment_offset } else { offset };
        let mut ranges = vec![UnsyncedRange { offset: start, bytes: 0 }];
        let mut named = Vec::new();
        let mut current = segment_offset;
        loop {
            let position = walk.position();
            if position.segment_offset != current {
                let last = ranges.last_mut().expect("there is one");
                last.bytes = walk_end(view, current)? - last.offset;
                current = position.segment_offset;
                ranges.push(UnsyncedRange { offset: current, bytes: 0 });
            }
            let Some(record) = walk.next_record()? else { break };
            match record.header.kind {
                _ if mutant::is_made(Mutant::SyncsWithoutCopies) => {}
                RecordKind::BigPut => {
                    let (offset, bytes) = big_target(&record)?;
                    named.push(UnsyncedRange { offset, bytes });
                }
                RecordKind::Relocate => {
                    let relocation = Relocation::decode(&record)?;
                    let offset = relocation.segment_offset;
                    let bytes = view.segment(offset)?.segment_bytes;
                    named.push(UnsyncedRange { offset, bytes });
                    if let Some(Range { start, end }) = relocation.range_before(view)
                        && !mutant::is_made(Mutant::SyncsWithoutLinks)
                    {
                        named.push(UnsyncedRange { offset: start, bytes: end - start });
                    }
                }
                _ => {}
            }
        }
        if walk.position().lsn != end.lsn || walk.position().offset != end.offset {
            return Ok(None);
        }
        let last = ranges.last_mut().expect("there is one");
        // The first sync of a segment covers all of it, so that later ones need not write file
        // system metadata.
        let is_first = last.offset == current;
        let until = if is_first { walk_end(view, current)? } else { end.offset };
        last.bytes = until.saturating_sub(last.offset).max(GRANULE_BYTES.min(8));
        ranges.extend(named);
        let file_bytes = view.file_bytes();
        let is_inside =
            |range: &UnsyncedRange| range.offset.saturating_add(range.bytes) <= file_bytes;
        Ok(ranges.iter().all(is_inside).then_some(ranges))
    }

    /// Closes a handle that takes turns: syncs only as its durability requires, and leaves the
    /// tables as they are.
    pub(super) fn close_by_turns(&self) -> Result<()> {
        let (is_changed, is_promised, turn) = {
            let mut writer = self.lock()?;
            self.group.check()?;
            if std::mem::replace(&mut writer.is_closed, true) {
                return Ok(());
            }
            if let Some(turns) = self.turns.as_deref().filter(|_| writer.turn.is_kept) {
                self.leave_place(turns, &mut writer.turn, true);
            }
            // A call may have requested a sync of its own. With a `SharedFile`, a close promises
            // durability.
            let neighbours = self.region.storage().neighbours();
            let is_promised = self.durability != Durability::Buffered
                || !writer.pace.is_unasked()
                // Otherwise the turn that makes the checkpoint would sync all of the log, while
                // other handles wait.
                || writer.checkpoints.is_unsynced()
                || neighbours.is_some_and(Neighbours::is_of_program);
            let is_changed = writer.change_count > 0 || writer.mark == Mark::New;
            (is_changed, is_promised, writer.turn.word)
        };
        if is_changed && is_promised {
            self.sync()?;
        }
        self.note_left(turn);
        Ok(())
    }

    /// Leaves a note for the next open that this handle was closed in order, valid if it had the
    /// last turn, unless a write-back has failed.
    fn note_left(&self, turn: TurnWord) {
        let storage = self.region.storage();
        // Take the time before the check: a failure after this moment is not covered by it.
        let at = storage.since_boot();
        if !self.region.is_written_back() {
            return;
        }
        let left = Left { turn, live_crc: self.region.live().crc(), at };
        match &self.others {
            Some(others) => others.note_left(left),
            // Ignore an error: only a simulated machine without locks gets here.
            None => drop(write_left(storage, left)),
        }
    }
}

/// Returns the end of a segment.
fn walk_end(view: &crate::region::View, segment_offset: u64) -> Result<u64> {
    Ok(segment_offset + view.segment(segment_offset)?.segment_bytes)
}

/// The present turn of a handle, or its last one.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is of another moment of a turn")]
pub(crate) struct Turn {
    /// The word that the handle has left in the reader table.
    pub(super) word: TurnWord,
    number: u64,
    pub(super) is_held: bool,
    /// Whether the loaded state has been prepared for a change.
    is_prepared: bool,
    /// Whether the live header names this process.
    is_named: bool,
    /// Whether the handle has kept its place after the last turn.
    pub(super) is_kept: bool,
    /// Whether the handle has just handed the place to a waiting one.
    pub(super) gave_way: bool,
    /// Whether a background thread waits for the turn, so that `on_wait` must not be called.
    pub(super) is_silent: bool,
    /// When this handle took over from another one, since the machine was started.
    pub(super) since: Option<Duration>,
    /// Number of turns since then.
    pub(super) number_in_row: u32,
    /// Number of turns since the handle was opened.
    pub(super) number_in_all: u32,
}

impl Default for Turn {
    fn default() -> Self {
        Self {
            word: TurnWord::NONE,
            number: 0,
            is_held: false,
            is_prepared: false,
            is_named: false,
            is_kept: false,
            gave_way: false,
            is_silent: false,
            since: None,
            number_in_row: 0,
            number_in_all: 0,
        }
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;
    use std::path::Path;

    use super::*;
    use crate::format::{
        LOG_SEGMENT_BYTES_MAX, PID_OFFSET, READER_TABLE_BYTES, READER_TABLE_OFFSET,
    };
    use crate::log::record::LINK_BYTES;
    use crate::log::segment::Segment;
    use crate::options::Sharing;
    use crate::{Cursor, Db, ErrorKind, SimDisk};

    const MIB: u64 = 1 << 20;

    /// A warm restart changes the piece epoch.
    #[test]
    fn an_open_by_turns_a_moment_after_an_orderly_close_is_no_warm_restart() {
        let dir = tempfile::tempdir().unwrap();
        for sharing in [Sharing::Shared, Sharing::PerCall] {
            let path = dir.path().join(format!("{sharing:?}"));
            let options = Options::new().sharing(sharing).durability(Durability::Buffered);
            let open = || options.open(&path).unwrap();
            let epoch = |db: &Db| db.store().region.live().piece_epoch();
            let goes_on = |is_noted: bool| {
                let db = open();
                db.put("key", "value").unwrap();
                let before = epoch(&db);
                db.close().unwrap();
                if !is_noted {
                    let file = File::options().write(true).open(&path).unwrap();
                    file.write_all_at(&[0; 8], READER_TABLE_OFFSET + 40).unwrap();
                }
                epoch(&open()) == before
            };
            assert!((0..100).any(|_| goes_on(true)), "one of them takes less than a second");
            assert!(!goes_on(false));
        }
    }

    /// Calls `meanwhile` when a handle without locks between calls collects the ranges that its
    /// sync must cover, at the end of a long file. Returns whether the file is shorter afterwards.
    fn is_cut_under_a_sync(meanwhile: impl Fn(&Path) + 'static) -> bool {
        let dir = tempfile::tempdir().expect("nothing fails");
        let path = dir.path().join("a");
        let options = Options::new().sharing(Sharing::PerCall).durability(Durability::Buffered);
        let db = options.open(&path).expect("a new store");
        for i in 0..5_000_u32 {
            db.put(i.to_le_bytes(), [7; 1000]).expect("there is room");
        }
        db.sync().expect("nothing fails");
        db.put("last", "value").expect("there is room");
        let bytes = || path.metadata().expect("it is there").len();
        let before = bytes();
        let of_other = path.clone();
        let at = move |point| {
            if point == Point::SyncBegun {
                meanwhile(&of_other);
            }
        };
        meanwhile::with(at, || db.sync()).expect("nothing fails");
        assert!(db.contains("last").expect("it can be read"));
        db.put("later", "value").expect("there is room");
        db.close().expect("nothing fails");
        assert!(options.open(&path).expect("it opens").check().expect("it is read").is_clean());
        bytes() < before
    }

    /// Beyond the new end of the file, a read through the mapping would raise a signal.
    #[test]
    fn nobody_cuts_the_file_while_a_sync_by_turns_reads_the_log() {
        let empty = |path: &Path| {
            let db = Options::new().sharing(Sharing::OneWriter).open(path).expect("it opens");
            for i in 0..5_000_u32 {
                db.delete(i.to_le_bytes()).expect("there is room");
            }
            db.maintain(u64::MAX).expect("there is room");
            db.close().expect("nothing fails");
        };
        assert!(!is_cut_under_a_sync(empty));
    }

    /// An exclusive handle lets nobody pin, and may change the file at any time.
    #[test]
    fn a_sync_beside_one_that_has_the_file_for_itself_covers_the_whole_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let options = Options::new().durability(Durability::Buffered).lock_timeout(Duration::ZERO);
        let db = options.clone().sharing(Sharing::PerCall).open(&path).unwrap();
        db.put("key", "value").unwrap();
        db.sync().unwrap();
        db.put("other", "value").unwrap();
        let alone = options.sharing(Sharing::Exclusive).open(&path).unwrap();
        alone.put("large", vec![7; 3 << 20]).unwrap();
        let (ranges, lsn) = db.store().unsynced_by_turns().unwrap();
        let bytes = path.metadata().unwrap().len();
        assert_eq!(ranges, [UnsyncedRange { offset: 0, bytes }]);
        assert_eq!(lsn, alone.store().lock().unwrap().log.position().lsn);
        db.sync().unwrap();
        assert_eq!(db.store().unsynced_by_turns().unwrap(), (Vec::new(), lsn));
        alone.close().unwrap();
        assert_eq!(db.get("other").unwrap().unwrap(), "value");
    }

    /// Nothing of a new store is known to be durable, so its first sync covers the file.
    #[test]
    fn a_sync_of_the_whole_file_covers_what_another_handle_extends_it_by_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let options = Options::new().sharing(Sharing::Shared).durability(Durability::Buffered);
        let (db, other) = (options.open(&path).unwrap(), options.open(&path).unwrap());
        db.put("key", "value").unwrap();
        assert_eq!(db.store().region.live().durable_lsn(), 0);
        let before = path.metadata().unwrap().len();
        let extend = move |point| {
            if point == Point::SyncBegun {
                other.put("large", vec![7; 3 << 20]).unwrap();
            }
        };
        let (ranges, lsn) = meanwhile::with(extend, || db.store().unsynced_by_turns()).unwrap();
        let bytes = path.metadata().unwrap().len();
        assert!(bytes > before);
        assert_eq!(lsn, db.store().region.live().committed().0);
        assert_eq!(ranges, [UnsyncedRange { offset: 0, bytes }]);
    }

    /// The file is truncated to 0, and a new store is created in it, while another handle is idle.
    #[test]
    fn a_store_that_is_another_one_by_now_is_not_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let open = || Options::new().sharing(Sharing::PerCall).open(&path).unwrap();
        let resting = open();
        resting.put("old", "value").unwrap();
        File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
        let new = open();
        new.put("new", "value").unwrap();
        for _ in 0..2 {
            let refused = resting.put("lost", "value").unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Poisoned, "{refused}");
        }
        drop(resting);
        assert!(new.get("lost").unwrap().is_none());
        new.put("newer", "value").unwrap();
        drop(new);
        assert_eq!(open().len(), 2);
    }

    /// Returns the bytes of a file, without the reader table.
    fn bytes(path: &std::path::Path) -> Vec<u8> {
        let mut bytes = std::fs::read(path).expect("nothing fails");
        let table = READER_TABLE_OFFSET as usize;
        bytes.drain(table..table + READER_TABLE_BYTES as usize);
        bytes
    }

    #[test]
    fn a_check_or_a_walk_by_turns_changes_nothing_and_the_next_change_names_its_process() {
        let dir = tempfile::tempdir().unwrap();
        let both = [Sharing::Shared, Sharing::PerCall];
        for (sharing, changes) in
            both.into_iter().flat_map(|sharing| [(sharing, 0), (sharing, 100)])
        {
            let path = dir.path().join(format!("{sharing:?}-{changes}"));
            let open = || Options::new().sharing(sharing).open(&path).unwrap();
            let db = open();
            for i in 0..changes {
                db.put([i], "value").unwrap();
            }
            db.close().unwrap();
            // As after changes of another process.
            let file = File::options().write(true).open(&path).unwrap();
            file.write_all_at(&[0; 8], PID_OFFSET).unwrap();
            drop(open());
            let before = bytes(&path);
            let db = open();
            assert!(db.check().unwrap().is_clean());
            assert_eq!(db.iter().count(), usize::from(changes));
            let mut walk = Cursor::at(0);
            while walk.next(&db).unwrap().is_some() {}
            assert!(bytes(&path) == before, "{sharing:?}, {changes}: a look changes the file");
            db.close().unwrap();
            assert!(
                bytes(&path) == before,
                "{sharing:?}, {changes}: a close without a change changes the file"
            );

            let db = open();
            db.put("key", "value").unwrap();
            assert!(db.store().region.live().has_pid(), "{sharing:?}, {changes}");
        }
    }

    /// On a simulated machine each change takes over from another handle.
    #[test]
    fn whoever_takes_over_a_compacted_store_makes_checkpoints_closer_together() {
        let options = Options::new().sharing(Sharing::Shared).durability(Durability::Buffered);
        let db = SimDisk::new().open(&options.checkpoint_bytes_min(9 * MIB)).unwrap();
        let mut changes = 0_u8;
        // The first one comes after 9 MiB of the log, and lets the store be compacted.
        while db.stats().unwrap().checkpoint.is_none() {
            db.put([changes % 8], vec![changes; 64 << 10]).unwrap();
            changes += 1;
            db.sync().unwrap();
        }
        assert!(db.store().lock().unwrap().superblock.is_compacted);
        for _ in 0..160 {
            db.put([changes % 8], vec![changes; 64 << 10]).unwrap();
            changes += 1;
            db.sync().unwrap();
            let stats = db.stats().unwrap();
            let since = stats.log_bytes - stats.checkpoint.unwrap().log_bytes;
            assert!(since < 5 * MIB, "{since} bytes of the log, not 4 MiB");
        }
    }

    /// Returns options for a store by turns that soon moves records.
    fn moving() -> Options {
        let options = Options::new().sharing(Sharing::Shared).durability(Durability::Buffered);
        options.segment_bytes_min(4096).live_share(0.9).checkpoint_bytes_min(MIB)
    }

    /// Returns the ranges that a sync covers after a turn that has moved a record to a new segment, and where the
    /// LINK is that leads there.
    fn ranges_and_link_to_copy() -> (Vec<UnsyncedRange>, u64) {
        let db = SimDisk::new().open(&moving()).expect("a new store");
        let (store, view) = (db.store(), &db.store().region.view);
        let segment_at = |offset| Segment::new(offset, &view.segment(offset).expect("it is one"));
        let put = |key: u32, fill| {
            db.put(key.to_le_bytes(), [fill; 100]).expect("there is room");
        };
        (0..100).chain(0..100).for_each(|key| put(key, 1));
        db.maintain(u64::MAX).expect("there is room");
        (0..600).for_each(|key| put(key, 2));
        (0..600).step_by(2).for_each(|key| put(key, 3));
        let mut writer = store.lock_for_change().expect("nobody has a turn");
        for _ in 0..10_000 {
            store.sync_by_turns().expect("nothing fails");
            let before = writer.heads()[1].segment_offset;
            // A record.
            store.compact(&mut writer, 1).expect("there is room");
            let [end, LogPosition { segment_offset: after, .. }] = writer.heads();
            if before == 0 || before == after {
                continue;
            }
            let link = segment_at(before).link_before(&segment_at(after)).expect("it follows");
            let durable_lsn = store.region.live().durable_lsn();
            let ranges = store.ranges_between(durable_lsn, end).expect("the log is sound");
            return (ranges.expect("the log leads on"), link);
        }
        panic!("moved records stay in one segment");
    }

    /// The first of the moved records in a segment count only with the LINK that leads there, which may be far
    /// from all else that a sync covers.
    #[test]
    fn a_sync_by_turns_covers_the_link_to_the_next_segment_of_moved_records() {
        let is_covered = |(ranges, link): (Vec<UnsyncedRange>, u64)| has(&ranges, link);
        assert!(is_covered(ranges_and_link_to_copy()));
        assert!(!is_covered(mutant::with(Mutant::SyncsWithoutLinks, ranges_and_link_to_copy)));
    }

    /// Returns whether one of these ranges has a LINK.
    fn has(ranges: &[UnsyncedRange], link: u64) -> bool {
        ranges
            .iter()
            .any(|range| range.offset <= link && link + LINK_BYTES <= range.offset + range.bytes)
    }

    /// Has a handle by turns sync a change behind the name of a first copy, far from the LINK that leads to it, and
    /// cuts the power. `sync` is that sync; returns whether all keys are there, and the key of that change.
    fn is_there_far_from_link(sync: impl Fn(&Store) -> Result<u64>) -> (bool, bool) {
        let disk = SimDisk::new();
        let db = disk.open(&moving()).expect("a new store");
        let (store, view) = (db.store(), &db.store().region.view);
        let segment_at = |offset| Segment::new(offset, &view.segment(offset).expect("it is one"));
        let put = |key: u32, fill| {
            db.put(key.to_le_bytes(), [fill; 100]).expect("there is room");
        };
        let heads = || store.lock().expect("nobody panics").heads().map(|head| head.segment_offset);
        let is_link_left_out = |link| {
            let looked = || store.unsynced_by_turns().expect("the log is sound");
            let (ranges, _) = mutant::with(Mutant::SyncsWithoutLinks, looked);
            !has(&ranges, link)
        };
        (0..600).chain((0..600).step_by(2)).for_each(|key| put(key, 1));
        db.maintain(u64::MAX).expect("there is room");
        // From now on segments begin behind it, when what is free before it is used up.
        let big_bytes = 2 * LOG_SEGMENT_BYTES_MAX;
        db.put("big", vec![1; big_bytes as usize]).expect("there is room");
        let until_far = (600..20_000).take_while(|_| heads()[0] < big_bytes);
        until_far.for_each(|key| put(key, 2));
        // A few at a time, so that they pay for no compaction.
        for key in 0..600 {
            put(key, 3);
            store.sync_by_turns().expect("nothing fails");
            let [_, before] = heads();
            let mut writer = store.lock_for_change().expect("nobody has a turn");
            // A record, each time.
            while store.compact(&mut writer, 1).expect("there is room") > 0
                && writer.heads()[1].segment_offset == before
            {
                store.sync_by_turns().expect("nothing fails");
            }
            drop(writer);
            let [_, after] = heads();
            if before == 0 || before == after {
                continue;
            }
            let link = segment_at(before).link_before(&segment_at(after)).expect("it follows");
            if !is_link_left_out(link) {
                continue;
            }
            put(u32::MAX, 4);
            assert!(is_link_left_out(link), "nothing near was changed");
            sync(store).expect("nothing fails");
            let lost = disk.lose_power(0).open(&moving()).expect("it opens");
            assert!(lost.check().expect("it can be checked").is_clean());
            let is_there = lost.contains(u32::MAX.to_le_bytes()).expect("it can be read");
            return (lost.len() == db.len(), is_there);
        }
        panic!("moved records stay near");
    }

    #[test]
    fn a_change_synced_by_turns_behind_a_first_copy_survives_a_power_loss_far_from_its_link() {
        assert_eq!(is_there_far_from_link(Store::sync_by_turns), (true, true));
        let without_links =
            |store: &Store| mutant::with(Mutant::SyncsWithoutLinks, || store.sync_by_turns());
        assert_eq!(is_there_far_from_link(without_links), (false, false));
    }
}
