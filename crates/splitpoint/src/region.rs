//! A file as one handle uses it: its storage, its live header, and three interfaces to them.
//!
//! | type | gives access to | used by |
//! |---|---|---|
//! | [`View`] | bytes and records, by address | `log`, readers |
//! | [`Windows`] | buckets and overflow lines, by number | `index` |
//! | [`Extents`] | granules, free and allocated | the writer |
//!
//! [`Region`] holds what the three share: calls to the storage whose errors name the file, syncs,
//! superblocks, and the pins of readers.
//!
//! The view and the windows move when they outgrow their address space; [`growing`](crate::growing)
//! explains why a reader never reaches past the end of either. The live header does not move.

mod extents;
mod reserve;
mod superblocks;
mod view;
mod windows;

use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::atomic::{AtomicU64, Ordering, fence};
use crate::births::Births;
use crate::error::{Error, Result};
use crate::format::{GRANULE_BYTES, HEADER_BYTES, LIVE_BYTES, LIVE_OFFSET};
use crate::health::Health;
use crate::index::line::LINE_BYTES;
use crate::live::{LineWindow, Live, WORD_COUNT};
use crate::piece::piece_of;
use crate::pins::Pins;
use crate::prefaulter::Prefaulter;
use crate::storage::failure::io_error;
use crate::storage::neighbours::Neighbours;
use crate::storage::{Backing, Room, Storage, WindowKind, is_of_device, no_room, widened};

pub(crate) use extents::{Extents, has_ample_room};
pub(crate) use reserve::{Needs, may_hold};
pub(crate) use superblocks::{read_superblock, refuse_newer, unknown_features};
pub(crate) use view::View;
pub(crate) use windows::{LivePool, Windows};

/// Free bytes that a copy-on-write file system must have before a change: many times what one
/// change dirties, because other programs take space too.
const ROOM_BYTES_MIN: u64 = 16 << 20;
/// Bytes that [`Region::write_again`] reads and writes at a time.
const AGAIN_BYTES: u64 = 1 << 20;

/// A storage with its view, its windows and its live header.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) view: View,
    pub(crate) windows: Windows,
    /// Pins of the readers of this handle.
    pub(crate) pins: Pins,
    /// Which segments were begun after an open snapshot was taken.
    pub(crate) births: Births,
    device: Device,
    /// Whether the index is private memory of this handle, because it may not write to the file.
    is_private: AtomicBool,
    /// The highest generation of a superblock that this handle knows to be durable.
    durable_generation: AtomicU64,
    /// Whether this handle has created the store, and nothing of it is durable yet.
    is_unsynced_creation: AtomicBool,
    /// Held while the handle changes the size of the file that it has recorded.
    resizing: Mutex<()>,
    prefaulter: Prefaulter,
}

/// A storage, with the places where its errors are recorded. A background thread has a clone.
#[derive(Clone, Debug)]
struct Device {
    storage: Arc<dyn Storage>,
    live: LiveHeader,
    health: Arc<Health>,
}

/// The mapping of the live header of a storage.
#[derive(Clone, Copy, Debug)]
struct LiveHeader(*const [AtomicU64; WORD_COUNT]);

// SAFETY: the pointer is only used by `of`, which makes shared references to atomics from it, so
// any thread may have it; `of` borrows the storage, which keeps the words mapped.
unsafe impl Send for LiveHeader {}
// SAFETY: as for `Send`: all access is through shared references to atomics.
unsafe impl Sync for LiveHeader {}

impl LiveHeader {
    /// Maps the live header of a storage.
    fn map(storage: &dyn Storage, backing: Backing) -> Result<Self> {
        map_piece(storage, WindowKind::Live, 0, LIVE_BYTES, backing)?;
        Ok(Self(storage.window(WindowKind::Live).base.cast_const().cast()))
    }

    /// Returns the live header; it borrows the storage, which keeps the mapping.
    #[inline]
    fn of(self, _storage: &Arc<dyn Storage>) -> Live<'_> {
        // SAFETY: `map`, which alone makes a `LiveHeader`, has mapped LIVE_BYTES there, aligned to
        // a page. The live window never moves and stays mapped as long as its storage exists, which
        // the result borrows.
        Live(unsafe { &*self.0 })
    }
}

impl Device {
    fn write<T>(
        &self,
        action: &'static str,
        what: impl FnOnce(&dyn Storage) -> std::io::Result<T>,
    ) -> Result<T> {
        what(&*self.storage).map_err(|source| {
            let is_of_device = is_of_device(&source);
            let error = io_error(action, self.storage.path(), source);
            if is_of_device {
                self.health.fail(&error);
            }
            error
        })
    }

    fn sync_range(&self, offset: u64, bytes: u64) -> Result<()> {
        let synced = self.write("sync", |storage| storage.sync_range(offset, bytes));
        if synced.is_err() && self.can_note_failure() {
            self.live.of(&self.storage).set_sync_failed();
        }
        synced
    }

    /// Returns whether the page of the live header can be stored to. After a file system has shut
    /// itself down, a store may raise a signal.
    fn can_note_failure(&self) -> bool {
        let pages = self.storage.window_pages(WindowKind::Live, 0, LIVE_BYTES);
        pages.is_none_or(|pages| pages.can_be_stored_to())
    }

    /// Splits the huge pages of the index, syncing each, for a file that is still being changed.
    fn split_huge_pages(&self) {
        self.storage.split_huge_pages(Some(&|offset, bytes| {
            if self.health.check().is_err() {
                return false;
            }
            let synced = self.sync_range(offset, bytes);
            // Poison the handle: after a failed sync, a second one that succeeds would prove
            // nothing.
            synced.inspect_err(|error| self.health.fail(error)).is_ok()
        }));
    }
}

impl Region {
    /// Creates the region of a storage whose file has at least the header, with the index in the
    /// file or, if `is_private`, in memory.
    pub(crate) fn new(storage: Box<dyn Storage>, is_private: bool) -> Result<Self> {
        assert!(storage.file_bytes() >= crate::format::HEADER_BYTES);
        let storage: Arc<dyn Storage> = Arc::from(storage);
        let backing = if is_private { Backing::Private } else { Backing::File(LIVE_OFFSET) };
        let live = LiveHeader::map(&*storage, backing)?;
        Ok(Self {
            view: View::new(storage.clone()),
            windows: Windows::new(storage.clone(), live),
            pins: Pins::default(),
            births: Births::default(),
            device: Device { storage, live, health: Arc::default() },
            is_private: AtomicBool::new(is_private),
            durable_generation: AtomicU64::new(0),
            is_unsynced_creation: AtomicBool::new(false),
            resizing: Mutex::default(),
            prefaulter: Prefaulter::default(),
        })
    }

    /// Switches to a private index in memory, for a handle that may not write to the file.
    pub(crate) fn make_private(&self) -> Result<()> {
        map_piece(self.storage(), WindowKind::Live, 0, LIVE_BYTES, Backing::Private)?;
        self.is_private.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the storage.
    pub(crate) fn storage(&self) -> &dyn Storage {
        &*self.device.storage
    }

    /// Returns whether the index is private memory of this handle.
    pub(crate) fn is_private(&self) -> bool {
        self.is_private.load(Ordering::Relaxed)
    }

    /// Returns the live header.
    #[inline]
    pub(crate) fn live(&self) -> Live<'_> {
        self.device.live.of(&self.device.storage)
    }

    /// Reads the size of the file, which another process may have changed, records and returns it.
    pub(crate) fn see_size(&self) -> Result<u64> {
        let _resizing = self.resizing();
        let file_bytes = self.write("read the size of", |storage| storage.see_size())?;
        self.view.see(file_bytes);
        self.let_go_of_outgrown();
        Ok(file_bytes)
    }

    /// Locks the size of the file that this handle has recorded.
    fn resizing(&self) -> MutexGuard<'_, ()> {
        self.resizing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Maps the pieces that another process has listed into the windows, and returns their piece
    /// epoch.
    pub(crate) fn follow_pieces(&self) -> Result<u64> {
        let mut shown = self.windows.shown();
        loop {
            let epoch = self.live().piece_epoch();
            let listed = LineWindow::ALL.map(|window| self.windows.listed_pieces(window));
            fence(Ordering::Acquire);
            if self.live().piece_epoch() != epoch {
                continue;
            }
            self.see_size()?;
            for (window, listed) in LineWindow::ALL.into_iter().zip(&listed) {
                for (piece, &granule) in listed.iter().enumerate() {
                    self.check_piece(window, piece, granule)?;
                }
                self.windows.show(window, listed, &mut shown[window.number()])?;
            }
            return Ok(epoch);
        }
    }

    /// Checks that a piece that another process has listed lies completely within the file.
    fn check_piece(&self, window: LineWindow, piece: usize, granule: u64) -> Result<()> {
        let end = granule.saturating_add(piece_of(piece).granule_count());
        let expected = self.view.file_bytes() / GRANULE_BYTES;
        if granule >= HEADER_BYTES / GRANULE_BYTES && end <= expected {
            return Ok(());
        }
        let offset = Live::piece_offset(window, piece);
        Err(Error::Corrupt { what: "index extent", offset, expected, found: end })
    }

    /// Makes the file at least `end` bytes long.
    fn extend(&self, end: u64) -> Result<()> {
        let _resizing = self.resizing();
        self.write("extend", |storage| storage.grow(end))?;
        self.view.grow(end);
        assert!(end <= self.view.file_bytes(), "readers may look at what is handed out");
        self.let_go_of_outgrown();
        Ok(())
    }

    /// Has the pages of a view that has moved released in the background.
    fn let_go_of_outgrown(&self) {
        if let Some(work) = self.storage().outgrown_view() {
            self.prefaulter.ask(work);
        }
    }

    /// Returns the thread that takes page faults ahead of the writer.
    pub(crate) fn prefaulter(&self) -> &Prefaulter {
        &self.prefaulter
    }

    /// Has the huge pages of the index split once the table has stopped growing: changes are few
    /// from then on, and each would dirty 2 MiB.
    pub(crate) fn split_huge_pages_when_idle(&self) {
        if self.storage().may_sync_in_background() {
            let device = self.device.clone();
            self.prefaulter.ask_when_idle(Box::new(move || device.split_huge_pages()));
        }
    }

    /// Ensures that stores to the live header, the index and `tails` cannot fail for lack of space:
    /// their blocks are allocated or, on a copy-on-write file system, enough space is free.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if there is no space; without it a store through the mapping could raise a
    /// signal.
    pub(crate) fn claim_stores(&self, tails: impl Iterator<Item = Range<u64>>) -> Result<Room> {
        let live = std::iter::once(LIVE_OFFSET..LIVE_OFFSET + LIVE_BYTES);
        let pieces = LineWindow::ALL.into_iter().flat_map(|window| {
            let pieces = 0..self.live().piece_count(window);
            pieces.map(move |piece| {
                let start = self.live().piece(window, piece) * GRANULE_BYTES;
                start..start + piece_of(piece).line_count * LINE_BYTES
            })
        });
        let pieces = pieces.filter(|_| !self.is_private());
        let table = self.live().segment_table().filter(|_| !self.is_private()).map(|extent| {
            let start = extent.granule * GRANULE_BYTES;
            start..start + extent.count * GRANULE_BYTES
        });
        let ranges = live.chain(pieces).chain(table).chain(tails);
        let mut room = Room::Claimed;
        for range in in_folios(ranges) {
            let claimed = self.write("allocate blocks of", |storage| {
                storage.claim_stores(range.start, range.end - range.start)
            })?;
            if claimed == Room::OfFileSystem {
                room = claimed;
            }
        }
        if room == Room::OfFileSystem {
            self.require_room()?;
        }
        Ok(room)
    }

    /// Like [`claim_stores`](Self::claim_stores), for the live header only.
    pub(crate) fn claim_live(&self) -> Result<()> {
        let action = "allocate blocks of";
        match self.write(action, |storage| storage.claim_stores(LIVE_OFFSET, LIVE_BYTES))? {
            Room::Claimed => Ok(()),
            Room::OfFileSystem => self.require_room(),
        }
    }

    /// Records in the live header that this process writes to the file and that the tables are
    /// complete.
    pub(crate) fn set_identity(&self) {
        self.storage().set_write_hint();
        self.live().set_identity(self.storage().identity());
        self.set_pid();
    }

    /// Records the id of this process as the writer, and the time.
    pub(crate) fn set_pid(&self) {
        self.live().set_pid(self.storage().process_id(), self.storage().since_boot());
    }

    /// Returns whether a process of this boot stored this live header, and the kernel has kept the
    /// pages of the file in its page cache ever since.
    pub(crate) fn is_left_in_memory(&self) -> bool {
        let (live, identity) = (self.live(), self.storage().identity());
        live.is_of(identity) || live.is_of_file(identity) && self.storage().has_write_hint()
    }

    /// Like [`is_left_in_memory`](Self::is_left_in_memory), for a handle that has no place in the reader
    /// table yet. If another handle has one, the live header need not name this boot: a process may
    /// have been killed in its first change before it stored that.
    pub(crate) fn is_left_or_open(&self) -> bool {
        self.is_left_in_memory()
            || self.storage().neighbours().is_some_and(Neighbours::has_reader_with_place)
    }

    /// Returns whether, as far as a handle can know, no write-back of the file has failed.
    ///
    /// The kernel reports a write-back error only once, so it is recorded in the live header for
    /// the next handle. If the header cannot be stored to, do not ask the kernel: the report must
    /// be left to a handle that can record it, or to its next sync.
    pub(crate) fn is_written_back(&self) -> bool {
        let can_note = || self.claim_live().is_ok() && self.device.can_note_failure();
        if !can_note() {
            return false;
        }
        if self.storage().has_write_back_error() {
            // Check again: the page of the header may have been written back in the meantime, and
            // would need a new block.
            if can_note() {
                self.live().set_sync_failed();
            }
            return false;
        }
        !self.live().has_failed_sync()
    }

    /// Fails unless the file system has space for the stores of a few changes.
    pub(crate) fn require_room(&self) -> Result<()> {
        self.write("reserve space for", |storage| {
            if storage.free_bytes()? >= ROOM_BYTES_MIN {
                return Ok(());
            }
            Err(no_room())
        })
    }

    /// Calls the storage, and adds the action and the path to any error.
    pub(crate) fn write<T>(
        &self,
        action: &'static str,
        what: impl FnOnce(&dyn Storage) -> std::io::Result<T>,
    ) -> Result<T> {
        self.device.write(action, what)
    }

    /// Returns the health of the handle, which records the errors of the device.
    pub(crate) fn health(&self) -> &Arc<Health> {
        &self.device.health
    }

    /// Makes a range of the file durable.
    ///
    /// A failure is recorded in the live header, for the next process: see
    /// [`write_again`](Self::write_again).
    pub(crate) fn sync_range(&self, offset: u64, bytes: u64) -> Result<()> {
        // Read the generation before the sync: a superblock written during the sync need not be
        // covered by it.
        let generation = self.newest_generation_in(offset..offset + bytes);
        self.device.sync_range(offset, bytes)?;
        self.note_durable_generation(generation);
        if generation > 0 {
            self.is_unsynced_creation.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Rewrites the bytes of a range of the file with themselves.
    ///
    /// After a failed sync, pages may be clean in the page cache without being durable, and the
    /// next sync writes only dirty pages.
    pub(crate) fn write_again(&self, offset: u64, bytes: u64) -> Result<()> {
        let end = offset + bytes;
        for at in (offset..end).step_by(AGAIN_BYTES as usize) {
            let content = self.storage().read(at, AGAIN_BYTES.min(end - at));
            self.write("write to", |storage| storage.write_at(at, &content))?;
        }
        Ok(())
    }
}

/// Widens ranges to folios, and joins adjacent and overlapping ones.
fn in_folios(ranges: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut folios: Vec<Range<u64>> = ranges.map(widened).collect();
    folios.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in folios {
        match joined.last_mut().filter(|last| range.start <= last.end) {
            Some(last) => last.end = last.end.max(range.end),
            None => joined.push(range),
        }
    }
    joined
}

fn map_piece(
    storage: &dyn Storage,
    kind: WindowKind,
    at: u64,
    bytes: u64,
    backing: Backing,
) -> Result<()> {
    let mapped = storage.map_piece(kind, at, bytes, backing);
    mapped.map_err(|source| io_error("map the index of", storage.path(), source))
}
