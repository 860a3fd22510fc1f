//! `Versions`: the versions of keys at one moment, for snapshots, scans and transactions.
//!
//! The version of a key is the first record on its chain of `prev`, starting from its slot, that
//! existed at the moment. A key that was deleted since has no slot; its chain begins at a
//! [grave](crate::graves). At most one record is the version:
//!
//! - The `prev` of a put is the record that the slot held, and a record that is moved while a
//!   horizon is open names its original. So the records of a key since its last delete form one
//!   chain.
//! - The first record after a delete has no `prev`. If it is younger than the moment, the version
//!   is on the chain of one of the graves dug since, or the key did not exist.
//! - The [horizon](crate::horizons) keeps all of these records from being overwritten.
//!
//! A handle that reads beside another process publishes its [moment](crate::moments) instead of
//! opening a horizon; without a place in the reader table, it holds a pin until the versions are
//! dropped. It recognizes the records of the moment by their addresses, and finds graves [in the
//! log](super::deleted).

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::deleted::Deleted;
use super::known_segments::PlacesThen;
use super::{Store, Writer, in_fork};
use crate::births::{AsOf, Head, Watch};
use crate::error::{Error, Result};
use crate::format::{Addr, LogStart, SegmentHeader};
use crate::horizons::{Horizon, Terms};
use crate::log::append::LogPosition;
use crate::log::record::Pair;
use crate::log::runs::{HeldRuns, Runs};
use crate::pins::{Bunch, Pin};
use crate::reader::Reader;
use crate::storage::fork::Origin;
use crate::storage::reader_table::OpenMoment;
use crate::testing::mutant::{self, Mutant};
use crate::value::Value;

/// Smallest default for the bytes that a snapshot may hold.
const PIN_BYTES_MIN: u64 = 64 << 20;
/// A scan may hold this many times as much: enough to delete every key that it returns.
const SCAN_PIN_FACTOR: u64 = 3;
/// Longest walk over the versions of a key whose result is not cached.
const WALK_MAX: u64 = 64;
/// Longest walk of a delete over the versions of a key, to find out whether a snapshot needs one.
const DELETE_WALK_MAX: u64 = 8;

/// How much space a reader of old versions may keep from being reused.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hold {
    /// As much as [`Options::max_snapshot_pin`](crate::Options::max_snapshot_pin) allows.
    Snapshot,
    /// A few times as much.
    Scan,
    /// Any amount.
    Unbounded,
}

/// Where the records of the moment are.
#[derive(Clone, Debug)]
pub(crate) enum Places {
    /// The runs of segments, and those of them whose records were all held by slots.
    Runs(Runs, HeldRuns),
    /// Along the log: the headers of a store that was never compacted are damaged.
    Log(LogStart, LogPosition),
}

/// The versions of keys at one moment. Their space is not reused until this is dropped or given up.
pub(crate) struct Versions<'db> {
    store: &'db Store,
    as_of: AsOf,
    /// The number of keys at the moment.
    pub(crate) record_count: u64,
    /// The number of changes that the handle had made by the moment.
    change_count: u64,
    log_end: LogPosition,
    places: OnceLock<Places>,
    /// Cached results of long walks.
    walked: Mutex<HashMap<Box<[u8]>, Option<Addr>>>,
    bytes_max: u64,
    /// Keeps and identifies the records of a file that another process may change.
    beside: Option<Box<Beside<'db>>>,
    /// Keeps the records of a file that only this process changes, or of a table in memory.
    horizon: Option<Horizon<'db>>,
    // Declared, and so dropped, after the horizon.
    _graves: ForgetGraves<'db>,
    _watch: Watch<'db>,
}

/// The moment of a handle that reads beside a writer of another process. Its records are identified
/// by their addresses.
struct Beside<'db> {
    reader: &'db Reader,
    keeper: Keeper<'db>,
    /// The process that has opened the moment.
    origin: Origin,
    places: PlacesThen,
    /// Number of moves without a name of the original that the writer had made by the moment.
    unnamed_moves: u64,
    deleted: Mutex<Deleted>,
}

/// What makes the writer of another process keep the records of a moment.
enum Keeper<'db> {
    Moment(OpenMoment),
    /// A pin, for a handle without a place in the reader table. It cannot be given up.
    Pin(Pin<'db>),
}

impl fmt::Debug for Versions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Versions")
            .field("record_count", &self.record_count)
            .field("as_of", &self.as_of)
            .finish_non_exhaustive()
    }
}

/// Removes the graves that nobody needs any more, when it is dropped.
struct ForgetGraves<'db>(&'db Store);

impl Drop for ForgetGraves<'_> {
    fn drop(&mut self) {
        if self.0.graves.is_any() {
            self.0.graves.forget(self.0.horizons.past());
        }
    }
}

impl<'db> Versions<'db> {
    /// Returns the versions of the present moment, for any kind of handle.
    pub(crate) fn now(store: &'db Store, hold: Hold) -> Result<Arc<Self>> {
        Self::now_locked(store, &mut *store.lock_to_look()?, hold)
    }

    /// Like [`now`](Self::now), for a caller that holds the lock of [`Store::lock_to_look`].
    pub(crate) fn now_locked(
        store: &'db Store,
        writer: &mut Writer,
        hold: Hold,
    ) -> Result<Arc<Self>> {
        match &store.reader {
            Some(reader) => Self::beside(store, reader, writer, hold),
            None => Ok(Self::of(store, writer, hold)),
        }
    }

    /// Returns the versions of the present moment of a store that only this handle can change.
    pub(crate) fn of(store: &'db Store, writer: &Writer, hold: Hold) -> Arc<Self> {
        let as_of = writer.as_of();
        let bytes_max = bytes_max(store, writer, hold);
        let terms = Terms::new(Some(as_of.clone()), bytes_max);
        let terms = if matches!(hold, Hold::Snapshot) { terms } else { terms.of_scan() };
        let horizon = store.horizons.open(terms);
        Self::kept(store, writer, as_of, bytes_max, Some(horizon), None)
    }

    /// Returns the versions of the present moment, kept by a horizon or a moment.
    #[inline(always)]
    fn kept(
        store: &'db Store,
        writer: &Writer,
        as_of: AsOf,
        bytes_max: u64,
        horizon: Option<Horizon<'db>>,
        beside: Option<Box<Beside<'db>>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            as_of,
            record_count: writer.state.record_count,
            change_count: writer.change_count,
            log_end: writer.log.position(),
            places: OnceLock::new(),
            walked: Mutex::default(),
            bytes_max,
            beside,
            horizon,
            _graves: ForgetGraves(store),
            _watch: store.region.births.watch(),
        })
    }

    /// Returns the versions of the last commit of another process.
    fn beside(
        store: &'db Store,
        reader: &'db Reader,
        writer: &mut Writer,
        hold: Hold,
    ) -> Result<Arc<Self>> {
        // Only for snapshots, so that a scan for a copy does not change a file without a writer.
        if matches!(hold, Hold::Snapshot) {
            reader.take_place_to_look_back(&store.region)?;
        }
        // Pin before the segments of the other process are read.
        let pin = reader.pin(&store.region)?;
        if let Some(others) = store.others.as_deref().filter(|_| store.takes_turns()) {
            others.expect_lookers_back().map_err(|source| store.table_error(source))?;
        }
        let unnamed_moves = reader.moves_that_are_over(&store.region)?;
        let (since, places) = if let Some(places) = store.places_of_own_turn(writer) {
            (writer.log.position().lsn, places)
        } else {
            let since = store.find_segments_beside(writer)?;
            (since, PlacesThen::of_runs(store.runs_beside(writer)?))
        };
        let bytes_max = bytes_max(store, writer, hold);
        let keeper = match reader.open_moment(&store.region, since, bytes_max)? {
            Some(moment) => Keeper::Moment(moment),
            None => Keeper::Pin(pin),
        };
        let beside = Box::new(Beside {
            reader,
            keeper,
            origin: Origin::here(),
            places,
            unnamed_moves,
            deleted: Mutex::new(Deleted::since(writer.log.position())),
        });
        Ok(Self::kept(store, writer, AsOf::default(), bytes_max, None, Some(beside)))
    }

    /// Returns whether nothing was changed since the moment. The caller holds the lock for changes.
    pub(super) fn is_of_now(&self, writer: &Writer) -> bool {
        match &self.beside {
            None => writer.change_count == self.change_count,
            // A change by any handle, and any move, advances the log.
            Some(_) => writer.log.position().lsn == self.log_end.lsn,
        }
    }

    /// Returns whether returned values borrow their bytes, with pins in the memory of this handle.
    pub(crate) fn is_pinned_here(&self) -> bool {
        self.beside.is_none() && !self.copies_values()
    }

    /// Pins everything that slots hold from now on, twice.
    pub(crate) fn two_pins(&self) -> Result<[Pin<'db>; 2]> {
        match &self.beside {
            None => Ok(self.store.region.pins.two()),
            Some(_) => self.pin().map(|pin| [pin.clone(), pin]),
        }
    }

    /// Releases the records before `offset`, which are no longer needed.
    #[inline]
    pub(crate) fn pass(&self, offset: u64) {
        if let Some(horizon) = &self.horizon {
            horizon.pass(offset);
        }
    }

    /// Returns the store.
    pub(crate) fn store(&self) -> &'db Store {
        self.store
    }

    /// Fails if the versions were given up. If it succeeds, space that was read before the call,
    /// under a pin, had not been reused.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        match &self.horizon {
            Some(horizon) if !horizon.is_evicted() => Ok(()),
            Some(_) => Err(self.too_old()),
            None => self.check_beside(),
        }
    }

    #[cold]
    fn check_beside(&self) -> Result<()> {
        match self.beside.as_deref() {
            // The moment belongs to the parent process, which opened it.
            Some(beside) if !beside.origin.is_here() => Err(in_fork()),
            Some(Beside { keeper: Keeper::Moment(moment), .. }) if moment.is_evicted() => {
                Err(self.too_old())
            }
            _ => Ok(()),
        }
    }

    #[cold]
    fn too_old(&self) -> Error {
        Error::SnapshotTooOld { bytes_max: self.bytes_max }
    }

    /// Returns the value that a key had.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Value<'db>>> {
        self.get_hashed(key, self.store.hash_of(key))
    }

    /// Like [`get`](Self::get), for a caller that has the hash of the key.
    pub(crate) fn get_hashed(&self, key: &[u8], hash: u64) -> Result<Option<Value<'db>>> {
        self.store.refuse_reading_in_fork()?;
        let pin = self.pin()?;
        let found = self.find_while_pinned(key, hash)?;
        let value = found.map(|pair| {
            if self.copies_values() {
                Value::copied(pair.value)
            } else {
                Ok(Value::pinned(pair.value, pin))
            }
        });
        value.transpose()
    }

    /// Pins everything that slots hold from now on.
    #[inline]
    fn pin(&self) -> Result<Pin<'db>> {
        match (self.beside.as_deref(), &self.store.reader) {
            (Some(Beside { keeper: Keeper::Pin(pin), .. }), _) => Ok(pin.clone()),
            (Some(beside), _) => beside.reader.pin(&self.store.region),
            (None, Some(reader)) => reader.pin(&self.store.region),
            (None, None) => Ok(self.store.region.pins.pin()),
        }
    }

    /// Like [`pin`](Self::pin), for a caller that hands out many values.
    pub(crate) fn pins(&self) -> Result<Bunch<'db>> {
        match &self.beside {
            Some(_) => self.pin().map(Bunch::of),
            None => self.store.pins(),
        }
    }

    /// Returns whether values are copied, because a pin would hold a lock that others may wait for.
    pub(crate) fn copies_values(&self) -> bool {
        self.store.reader.as_ref().is_some_and(Reader::is_per_call)
    }

    /// Returns the record that a key had, for a caller that holds a pin.
    pub(crate) fn find_while_pinned(&self, key: &[u8], hash: u64) -> Result<Option<Pair<'db>>> {
        self.check()?;
        let found = self.find(key, hash);
        // Check again: if the versions were given up in the meantime, a miss may be wrong.
        self.check()?;
        found
    }

    fn find(&self, key: &[u8], hash: u64) -> Result<Option<Pair<'db>>> {
        let newest = self.newest(key, hash)?;
        if let Some((addr, pair)) = newest
            && self.has(addr)
        {
            return Ok(Some(pair));
        }
        let version = self.earlier_version(newest.map(|(addr, _)| addr), key, hash)?;
        version.map(|addr| self.store.region.view.pair(addr)).transpose()
    }

    /// Returns whether the newest value of a key has the same bytes as the value at the moment. For
    /// a thread that holds the writer's lock, so that no space is reused meanwhile.
    pub(super) fn is_newest(&self, key: &[u8], hash: u64) -> Result<bool> {
        let newest = self.newest(key, hash)?;
        if newest.is_some_and(|(addr, _)| self.has(addr)) {
            return Ok(true);
        }
        let then = self.earlier_version(newest.map(|(addr, _)| addr), key, hash)?;
        let then = then.map(|addr| self.store.region.view.pair(addr)).transpose()?;
        Ok(newest.map(|(_, pair)| pair.value) == then.map(|pair| pair.value))
    }

    /// Returns the record that a slot holds for a key now.
    #[inline]
    fn newest(&self, key: &[u8], hash: u64) -> Result<Option<(Addr, Pair<'db>)>> {
        self.store.newest(key, hash)
    }

    /// Returns whether the record at `addr` existed at the moment.
    #[inline]
    fn has(&self, addr: Addr) -> bool {
        match &self.beside {
            None => self.as_of.has(&self.store.region.births, addr),
            Some(beside) => beside.places.has(addr.offset()),
        }
    }

    /// Returns the address of the version of a key, for a caller that holds a pin and
    /// [checks](Self::check) afterwards.
    pub(crate) fn version_of(&self, key: &[u8], hash: u64) -> Result<Option<Addr>> {
        match self.newest(key, hash)? {
            Some((addr, _)) if self.has(addr) => Ok(Some(addr)),
            newest => self.earlier_version(newest.map(|(addr, _)| addr), key, hash),
        }
    }

    /// Returns the version of a key whose newest record, if it has one, is younger than the moment.
    #[cold]
    fn earlier_version(&self, newest: Option<Addr>, key: &[u8], hash: u64) -> Result<Option<Addr>> {
        let mut walk = Walk { step_count: 0, known: None };
        let mut version = newest.map_or(Ok(None), |newest| self.walk(newest, key, &mut walk))?;
        if version.is_none() && walk.known.is_none() {
            for grave in self.graves(hash)? {
                let found = self.walk(grave, key, &mut walk)?;
                // Another key may have the same hash.
                if let Some(found) = found
                    && self.store.region.view.version(found)?.key() == key
                {
                    version = Some(found);
                    break;
                }
            }
        }
        if walk.step_count >= WALK_MAX && walk.known.is_none() {
            self.walked().insert(key.into(), version);
        }
        Ok(walk.known.unwrap_or(version))
    }

    /// Returns the stamp of the horizon.
    fn stamp(&self) -> u64 {
        self.horizon.as_ref().map_or(u64::MAX, Horizon::moment)
    }

    /// Returns the records with keys of this hash that were deleted since the moment.
    fn graves(&self, hash: u64) -> Result<Vec<Addr>> {
        match &self.beside {
            None => Ok(self.store.graves.after(hash, self.stamp())),
            Some(beside) => {
                // A panic while it was locked cannot have left it inconsistent: each statement on
                // it keeps it valid.
                let mut deleted = beside.deleted.lock().unwrap_or_else(PoisonError::into_inner);
                deleted.of(self.store, hash)
            }
        }
    }

    /// Follows a chain from `version` to the record that existed at the moment. When the walk
    /// becomes long, it looks for the cached result of an earlier one and sets `walk.known`.
    fn walk(&self, mut version: Addr, key: &[u8], walk: &mut Walk) -> Result<Option<Addr>> {
        while !self.has(version) {
            walk.step_count += 1;
            if walk.step_count == WALK_MAX {
                walk.known = self.walked().get(key).copied();
                if walk.known.is_some() {
                    return Ok(None);
                }
            }
            let prev = self.store.version(version)?.header.prev;
            let Some(prev) = prev else { return self.end_of_chain() };
            version = prev;
        }
        Ok(Some(version))
    }

    /// Returns the result of a chain that ended without a record of the moment: no version, or an
    /// error if a move may have broken the chain.
    fn end_of_chain(&self) -> Result<Option<Addr>> {
        let Some(beside) = &self.beside else { return Ok(None) };
        // The record may have been moved by a copy that does not name its original.
        let is_certain =
            beside.unnamed_moves & 1 == 0 && self.store.unnamed_moves()? == beside.unnamed_moves;
        if is_certain { Ok(None) } else { Err(self.store.locked()) }
    }

    fn walked(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, Option<Addr>>> {
        self.walked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns where the records of the moment are. The first call takes the writer's lock.
    pub(crate) fn places(&self) -> Result<Places> {
        self.check()?;
        if let Some(places) = self.places.get() {
            return Ok(places.clone());
        }
        if let Some(beside) = &self.beside {
            return Ok(Places::Runs(beside.places.to_runs(), HeldRuns::default()));
        }
        let mut writer = self.store.lock()?;
        let stamp = self.stamp();
        let runs = writer.find_segments().map(|()| writer.runs_at(&self.as_of, stamp));
        self.keep_places(&writer, runs)
    }

    /// Notes where the records of the moment are. The caller still holds the lock under which the
    /// versions were taken.
    pub(crate) fn find_places(&self, writer: &mut Writer) -> Result<Places> {
        let runs = match &self.beside {
            Some(beside) => Ok(Some(beside.places.to_runs())),
            None => writer.find_segments().map(|()| writer.runs()),
        };
        self.keep_places(writer, runs)
    }

    /// Returns those of `runs` whose records are all held by slots; the caller holds the writer's
    /// lock. Each such record existed at the moment too and is the version of its key: a later
    /// record of the key would have taken its slot.
    fn held_runs(&self, writer: &Writer, runs: &Runs) -> HeldRuns {
        let store = self.store;
        if mutant::is_made(Mutant::TakesAllForVersions) {
            return runs.iter().map(|run| run.start).collect();
        }
        let is_only_writer = self.beside.is_none() && !store.takes_turns();
        if !is_only_writer || writer.has_stray_records || store.group.check().is_err() {
            return HeldRuns::default();
        }
        let has_only_live = writer.has_only_live_records(runs);
        let segments = writer.extents.segments();
        let is_held = |offset: u64| {
            let segment_offset = offset - SegmentHeader::BYTES;
            has_only_live || segments.is_some_and(|segments| segments.is_all_live(segment_offset))
        };
        runs.iter().map(|run| run.start).filter(|&offset| is_held(offset)).collect()
    }

    fn keep_places(&self, writer: &Writer, runs: Result<Option<Runs>>) -> Result<Places> {
        let places = match runs {
            Ok(runs) => {
                let runs = runs.unwrap_or_default();
                let held = self.held_runs(writer, &runs);
                Places::Runs(runs, held)
            }
            Err(Error::Corrupt { .. }) if !writer.superblock.is_compacted => {
                Places::Log(writer.superblock.log_start, self.log_end)
            }
            Err(error) => return Err(error),
        };
        // No eviction can happen while the lock is held.
        self.check()?;
        Ok(self.places.get_or_init(|| places).clone())
    }
}

/// Returns how many bytes the versions may hold back.
fn bytes_max(store: &Store, writer: &Writer, hold: Hold) -> u64 {
    let (live_bytes, dead_bytes) = (writer.state.live_bytes, writer.state.dead_bytes);
    let bound = |usual_bytes: u64| store.max_snapshot_pin.unwrap_or(usual_bytes.max(PIN_BYTES_MIN));
    match hold {
        Hold::Snapshot => bound(live_bytes),
        Hold::Scan => bound(live_bytes + dead_bytes).saturating_mul(SCAN_PIN_FACTOR),
        Hold::Unbounded => u64::MAX,
    }
}

/// The state of a walk along the versions of a key.
struct Walk {
    step_count: u64,
    /// The result of an earlier walk, if one is cached.
    #[expect(clippy::option_option, reason = "whether it is known, and whether there is one")]
    known: Option<Option<Addr>>,
}

impl Writer {
    /// Returns the description of the records that are in the store now.
    fn as_of(&self) -> AsOf {
        let rests =
            [self.log.rest_of_tail(), self.compacting.as_ref().and_then(|it| it.rest_of_head())];
        let mut heads = self.heads().into_iter().zip(rests).map(|(head, rest)| {
            // Without a tail segment nothing is appended there.
            let end = rest.map_or(head.offset, |rest| rest.end);
            Head { segment_offset: head.segment_offset, rest: head.offset..end }
        });
        let heads = std::array::from_fn(|_| heads.next().unwrap_or_default());
        AsOf { next_sequence: self.extents.region().live().next_sequence(), heads }
    }
}

impl Store {
    /// Returns the number of graves.
    #[cfg(test)]
    pub(crate) fn grave_count(&self) -> usize {
        self.graves.count()
    }

    /// Returns the lower bound of the bytes that a snapshot may hold back.
    pub(super) fn pin_bytes_min(&self) -> u64 {
        self.max_snapshot_pin.unwrap_or(PIN_BYTES_MIN)
    }

    /// Keeps a record reachable, by a grave, if a delete is about to remove it from its slot and a
    /// snapshot needs it.
    #[inline]
    pub(super) fn keep_deleted(&self, hash: u64, addr: Addr) {
        if self.horizons.is_any_open() {
            self.dig_grave(hash, addr);
        }
    }

    #[cold]
    fn dig_grave(&self, hash: u64, addr: Addr) {
        let is_needed = self.horizons.any(|terms| self.is_needed(terms, addr));
        if is_needed && !mutant::is_made(Mutant::LeavesNoGrave) {
            self.graves.add(hash, addr, self.horizons.now());
        }
    }

    /// Returns whether the horizon with these terms may need the record at `addr`, or an earlier
    /// version, once it is deleted.
    fn is_needed(&self, terms: &Terms, addr: Addr) -> bool {
        let Some(as_of) = &terms.as_of else { return false };
        let mut version = addr;
        for _ in 0..DELETE_WALK_MAX {
            if as_of.has(&self.region.births, version) {
                return !terms.is_passed(version.offset());
            }
            match self.region.view.version(version).map(|record| record.header.prev) {
                Ok(Some(prev)) => version = prev,
                Ok(None) => return false,
                // Keep a damaged record: the reader that comes to it reports the damage.
                Err(_) => return true,
            }
        }
        true
    }
}
