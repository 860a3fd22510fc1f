//! `Sim`: a memory image and a disk image, for tests of crashes and faults.
//!
//! The memory image is what the process and the page cache have; the disk ([`disk`]) has every
//! version that a power loss may leave. A [`SimDisk`] is the machine: it answers what a killed
//! process or a power loss would leave, and can make a call fail.
//!
//! Every call to the storage is recorded at once. Stores through mappings are found by comparison:
//! at each place where a test of this crate may kill the process, which is before and after each
//! store, and otherwise at the next call or question.
//!
//! Several handles can have the file. On a machine with locks (`process`, for tests of this crate)
//! they know of each other as on a file; on others each is the only one that it knows of.
//!
//! Nothing depends on time, threads or chance: the same calls produce the same events.

mod disk;
#[cfg(all(test, not(miri)))]
mod process;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::disk::{Disk, How};
#[cfg(all(test, not(miri)))]
use self::process::LockFile;
#[cfg(all(test, not(miri)))]
pub(in crate::storage) use self::process::Process;
use super::anon::{Memory, PageSize};
use super::{
    Backing, Identity, Room as FromWhere, Span, Storage, Tail, WindowKind, no_room, uninterrupted,
    widened, write_whole,
};
use crate::atomic::may_be_killed;
use crate::db::Db;
use crate::error::Result;
use crate::format::{
    GRANULE_BYTES, HEADER_BYTES, LogStart, PID_OFFSET, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS,
    SegmentHeader, SegmentKind, Superblock, SuperblockFault, newest,
};
use crate::options::{Create, Options};

/// Largest file in bytes, and largest window.
const FILE_BYTES_MAX: u64 = if cfg!(miri) { 1 << 20 } else { 64 << 20 };

/// How long a new machine has been on.
const HOUR: Duration = Duration::from_secs(3600);

/// A simulated machine with one file, for tests of crashes and faults.
///
/// # Examples
///
/// ```
/// # fn main() -> splitpoint::Result<()> {
/// use splitpoint::{Durability, Options, SimDisk};
///
/// let disk = SimDisk::new();
/// let db = disk.open(&Options::new())?;
/// db.put_with(b"key", b"value", Durability::Sync)?;
/// let after = disk.lose_power(42); // The disk as one of many power losses would leave it.
/// let db = after.open(&Options::new())?;
/// assert!(db.contains(b"key")?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct SimDisk(Arc<Machine>);

#[derive(Debug)]
struct Machine {
    disk: Mutex<Disk>,
    boot: u64,
    /// The number of the mount.
    mount: u64,
    /// Whether the kernel tells that number.
    tells_mount: bool,
    /// Whether its handles have locks, and so know of each other.
    has_locks: bool,
    /// Whether the file has a write hint, which an unmount takes away.
    has_write_hint: AtomicBool,
    /// The handles, which have the file in one page cache.
    open: Mutex<Vec<Arc<Image>>>,
    fault: Mutex<FaultPlan>,
    /// Number of random numbers returned so far.
    random_count: AtomicU64,
    /// What this machine never does.
    omission: Option<Omission>,
    room: Mutex<Room>,
    write_back: Mutex<WriteBack>,
    /// Nanoseconds since the machine was started.
    clock_ns: AtomicU64,
}

/// The errors of write-back that the simulated kernel has not reported to any descriptor yet.
#[derive(Debug, Default)]
struct WriteBack {
    has_error: bool,
    /// How long it takes to report an error.
    wait: Duration,
}

/// The blocks of the file, and how many there may be.
#[derive(Clone, Debug)]
struct Room {
    /// Granules of the file without blocks.
    holes: BTreeSet<u64>,
    granules_max: u64,
    /// How often ranges were made holes.
    punch_count: u64,
    /// Whether a page that is stored to takes a new block.
    is_copied_on_write: bool,
}

impl Room {
    /// Gives granules their blocks, of a file with so many granules.
    fn fill(&mut self, granules: Range<u64>, granule_count: u64) -> io::Result<()> {
        let holes: Vec<u64> = self.holes.range(granules).copied().collect();
        let used_count = granule_count - self.holes.len() as u64;
        if !holes.is_empty() && used_count + holes.len() as u64 > self.granules_max {
            return Err(no_room());
        }
        self.holes.retain(|hole| !holes.contains(hole));
        Ok(())
    }
}

/// What a machine reports as done and leaves out: the mistake of an engine that does not ask for
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), expect(dead_code, reason = "only tests of this crate leave something out"))]
pub(crate) enum Omission {
    /// The sync of a close, before the superblock says "clean".
    SyncOfClose,
    /// The sync of a checkpoint, before a superblock names it.
    SyncOfCheckpoint,
    /// The superblock that says "not clean", before the tables of a store with a log change.
    NotClean,
}

impl Default for Machine {
    fn default() -> Self {
        Self::with_disk(Disk::new(Vec::new()), 1, 1)
    }
}

/// A fault of a call to the storage of a [`SimDisk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimFault {
    /// The call returns this error. A write has written half of its bytes. A sync may have written
    /// any part, and leaves its pages marked clean, so that no later sync writes them.
    Error(i32),
    /// A write writes half of its bytes and returns that number. Other calls are not affected.
    ShortWrite,
    /// A sync does nothing and returns success. Other calls are not affected. No correct disk does
    /// this; with it tests show that they would detect a missing sync.
    SkippedSync,
}

#[derive(Debug)]
struct FaultPlan {
    call_count: u64,
    fail_at: Option<u64>,
    fault: SimFault,
    is_permanent: bool,
    /// Whether the current call is a sync that has not been done yet.
    is_before_sync: bool,
    /// The calls that were syncs, with their ranges.
    syncs: Vec<(u64, Range<u64>)>,
    /// The file when a call other than a sync first failed because of the device.
    file_at_failure: Option<Vec<u8>>,
}

/// The file as all its handles see it.
#[derive(Debug)]
struct PageCache {
    view: Lent,
    file_bytes: AtomicU64,
    /// What the handles have locked, on a machine with locks.
    #[cfg(all(test, not(miri)))]
    lock_file: Option<LockFile>,
}

/// The memory of an open store.
#[derive(Debug)]
struct Image {
    cache: Arc<PageCache>,
    windows: [Lent; 3],
    pieces: Mutex<Vec<MappedPiece>>,
    /// Whether the process that has the handle was killed while others have the file open: it stores nothing.
    is_killed: AtomicBool,
    /// That process, on a machine with locks.
    #[cfg(all(test, not(miri)))]
    process: Option<Arc<Process>>,
}

/// A piece of a window, mapped to a part of the file.
#[derive(Clone, Debug)]
struct MappedPiece {
    kind: WindowKind,
    at: u64,
    offset: u64,
    /// The common contents of window and file when they were last compared.
    common: Vec<u8>,
}

/// Zeroed memory that becomes spare memory of its thread on drop. Sweeps open millions of stores,
/// and mapping and unmapping took half of their time.
#[derive(Debug)]
struct Lent(Option<Memory>);

/// Spare memory that a thread keeps: enough for an open store and its copy at a crash.
const SPARE_COUNT_MAX: usize = 16;
/// Memory with more committed bytes is not kept.
const SPARE_BYTES_MAX: u64 = 2 << 20;

thread_local! {
    static SPARE: RefCell<Vec<Memory>> = const { RefCell::new(Vec::new()) };
}

impl Lent {
    fn new() -> io::Result<Self> {
        let spare = SPARE.with_borrow_mut(Vec::pop);
        Ok(Self(Some(spare.map_or_else(|| Memory::reserve(FILE_BYTES_MAX, PageSize::Base), Ok)?)))
    }
}

impl std::ops::Deref for Lent {
    type Target = Memory;

    fn deref(&self) -> &Memory {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(memory) = self.0.take() else { return };
        let bytes = memory.committed_bytes();
        // Miri takes longer to zero memory than to allocate it.
        if cfg!(miri) || bytes > SPARE_BYTES_MAX {
            return;
        }
        // At the end of a thread its spare memory may already be gone.
        let _ = SPARE.try_with(|spare| {
            let spare = &mut *spare.borrow_mut();
            if spare.len() < SPARE_COUNT_MAX {
                for at in (0..bytes).step_by(ZEROS.len()) {
                    let rest = (bytes - at).min(ZEROS.len() as u64);
                    copy_to(memory.span(), at, &ZEROS[..rest as usize]);
                }
                spare.push(memory);
            }
        });
    }
}

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Tests continue after a panic that they expect.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Machine {
    fn with_disk(disk: Disk, boot: u64, mount: u64) -> Self {
        let fault = FaultPlan {
            call_count: 0,
            fail_at: None,
            fault: SimFault::ShortWrite,
            is_permanent: false,
            is_before_sync: false,
            syncs: Vec::new(),
            file_at_failure: None,
        };
        Self {
            disk: Mutex::new(disk),
            boot,
            mount,
            tells_mount: true,
            has_locks: false,
            has_write_hint: AtomicBool::new(false),
            open: Mutex::default(),
            fault: Mutex::new(fault),
            random_count: AtomicU64::new(0),
            omission: None,
            room: Mutex::new(Room {
                holes: BTreeSet::new(),
                granules_max: u64::MAX,
                punch_count: 0,
                is_copied_on_write: false,
            }),
            write_back: Mutex::default(),
            clock_ns: AtomicU64::new(HOUR.as_nanos() as u64),
        }
    }

    /// Returns the machine that has this disk after a crash of this one.
    fn after_crash(&self, disk: Disk, boot: u64, mount: u64) -> SimDisk {
        let granule_count = disk.file().len() as u64 / GRANULE_BYTES;
        let mut room = lock(&self.room).clone();
        room.holes.retain(|&hole| hole < granule_count);
        let (omission, room) = (self.omission, Mutex::new(room));
        let clock_ns = AtomicU64::new(self.clock_ns.load(Ordering::Relaxed));
        let is_in_memory = (boot, mount) == (self.boot, self.mount);
        let has_write_hint = is_in_memory && self.has_write_hint.load(Ordering::Relaxed);
        SimDisk(Arc::new(Self {
            tells_mount: self.tells_mount,
            has_locks: self.has_locks,
            has_write_hint: AtomicBool::new(has_write_hint),
            omission,
            room,
            clock_ns,
            ..Self::with_disk(disk, boot, mount)
        }))
    }

    fn pass(&self, time: Duration) {
        self.clock_ns.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    fn identity(&self) -> Identity {
        Identity {
            boot_id: [self.boot as u8; 16],
            mount_id: if self.tells_mount { self.mount } else { 0 },
            device: 1,
            inode: 1,
            birth_ns: 1,
        }
    }

    /// Returns the disk, with all stores through mappings so far.
    fn disk(&self) -> MutexGuard<'_, Disk> {
        let images = lock(&self.open).clone();
        carry_all(&images);
        let mut disk = lock(&self.disk);
        if let Some(image) = images.first() {
            disk.see(0, &image.cache.file(), How::Stored);
        }
        disk
    }
}

impl SimDisk {
    /// Creates a machine with an empty file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a machine whose file has these bytes, all durable.
    pub fn with_file(bytes: &[u8]) -> Self {
        Self(Arc::new(Machine::with_disk(Disk::new(bytes.to_vec()), 1, 1)))
    }

    /// Returns a machine whose file is empty, and which never does one thing.
    #[cfg(test)]
    pub(crate) fn without(omission: Omission) -> Self {
        let machine = Machine { omission: Some(omission), ..Machine::default() };
        Self(Arc::new(machine))
    }

    /// Opens the store in the file, or creates it.
    ///
    /// # Errors
    ///
    /// As [`Options::open`], and a fault that was set.
    pub fn open(&self, options: &Options) -> Result<Db> {
        self.open_with(&[], options)
    }

    /// Opens the store once more, as another process does beside the handles of this machine.
    ///
    /// While one of them is in a call, only a test that has it go on within that call may call another one.
    #[cfg(test)]
    pub(crate) fn open_beside(&self, options: &Options) -> Result<Db> {
        let others = lock(&self.0.open).clone();
        self.open_with(&others, options)
    }

    fn open_with(&self, others: &[Arc<Image>], options: &Options) -> Result<Db> {
        drop(self.0.disk());
        let storage = Sim::new(self.0.clone(), others)
            .map_err(|source| super::failure::io_error("open", Path::new(PATH), source))?;
        #[cfg(test)]
        if self.0.has_locks {
            let opened = crate::recovery::open_locked(Box::new(storage), options)?;
            return Ok(Db::from_opened(opened, options));
        }
        let may_create = options.create != Create::Never;
        let opened = crate::recovery::open_storage(Box::new(storage), options, may_create)?;
        Ok(Db::from_opened(opened, options))
    }

    /// Returns a machine with an empty file whose handles have locks, and so know of each other. Those that
    /// are opened [`beside`](Self::open_beside) others go on with them; [`open`](Self::open) begins without.
    #[cfg(test)]
    pub(crate) fn with_locks() -> Self {
        Self(Arc::new(Machine { has_locks: cfg!(not(miri)), ..Machine::default() }))
    }

    /// Returns whether its handles have locks.
    #[cfg(test)]
    pub(crate) fn has_locks(&self) -> bool {
        self.0.has_locks
    }

    /// Returns the same machine.
    #[cfg(test)]
    pub(crate) fn same(&self) -> Self {
        Self(self.0.clone())
    }

    /// Kills the process whose handle has this storage, or was opened last, while the others stay.
    #[cfg(test)]
    pub(crate) fn kill_one(&self, storage: Option<&dyn Storage>) {
        drop(self.0.disk());
        let mut open = lock(&self.0.open);
        let is_it = |image: &Arc<Image>| {
            let live = image.windows[WindowKind::Live.number()].span().base;
            storage.is_none_or(|storage| storage.window(WindowKind::Live).base == live)
        };
        if let Some(number) = open.iter().rposition(is_it) {
            let image = open.remove(number);
            image.is_killed.store(true, Ordering::Relaxed);
            #[cfg(not(miri))]
            if let Some(process) = &image.process {
                process.kill();
            }
        }
    }

    /// Returns whether no handle was opened after the one with this storage.
    #[cfg(all(test, not(miri)))]
    pub(crate) fn is_opened_last(&self, storage: &dyn Storage) -> bool {
        let live = storage.window(WindowKind::Live).base;
        let open = lock(&self.0.open);
        open.last()
            .is_some_and(|image| image.windows[WindowKind::Live.number()].span().base == live)
    }

    /// Returns the storage without a store.
    #[cfg(test)]
    pub(crate) fn storage(&self) -> io::Result<Box<dyn Storage>> {
        Ok(Box::new(Sim::new(self.0.clone(), &[])?))
    }

    /// Saves what the file still holds into a table in memory, as
    /// [`repair`](fn@crate::repair::repair) does into a file.
    ///
    /// # Errors
    ///
    /// As [`repair_with`](crate::repair::repair_with).
    pub fn repair(&self, options: &Options) -> Result<(Db, crate::repair::RepairReport)> {
        crate::repair::repair_in_memory(&self.file(), options)
    }

    /// Returns the bytes of the file in the page cache.
    pub fn file(&self) -> Vec<u8> {
        self.0.disk().file().to_vec()
    }

    /// Returns the machine after the process is killed now, with its page cache complete.
    #[must_use]
    pub fn kill(&self) -> Self {
        let disk = self.0.disk().clone();
        self.0.after_crash(disk, self.0.boot, self.0.mount)
    }

    /// Returns the machine after the process is killed now and the page cache has dropped the pages
    /// that a failed sync has marked clean.
    ///
    /// There the file has what is on the disk, chosen by `seed`.
    #[must_use]
    pub fn kill_and_drop_clean_pages(&self, seed: u64) -> Self {
        let mut disk = self.0.disk().clone();
        disk.drop_clean_pages(seed);
        self.0.after_crash(disk, self.0.boot, self.0.mount)
    }

    /// Returns the machine after one of the possible power losses now.
    ///
    /// Of what is not durable, a part chosen by `seed` has reached the disk: in sectors, and in
    /// words of 8 bytes where stores went through a mapping, each in any version since its last
    /// sync. Seed 0 chooses nothing, and `u64::MAX` everything.
    #[must_use]
    pub fn lose_power(&self, seed: u64) -> Self {
        let image = self.0.disk().images().seeded(seed);
        self.after_power_loss(image)
    }

    fn after_power_loss(&self, image: Vec<u8>) -> Self {
        // Each boot numbers its mounts from the beginning.
        self.0.after_crash(Disk::new(image), self.0.boot + 1, self.0.mount)
    }

    /// Returns the machine after the device went away now and was mounted again on the same boot.
    ///
    /// The file is one that a power loss may leave, chosen by `seed`.
    #[must_use]
    pub fn remount(&self, seed: u64) -> Self {
        let image = self.0.disk().images().seeded(seed);
        self.0.after_crash(Disk::new(image), self.0.boot, self.0.mount + 1)
    }

    /// Makes the `call`th call to the storage from now on, counted from 1, fail with `errno`; if
    /// `is_permanent`, all later calls too.
    pub fn fail_call(&self, call: u64, errno: i32, is_permanent: bool) {
        self.set_fault(call, SimFault::Error(errno), is_permanent);
    }

    /// Gives the `call`th call to the storage from now on, counted from 1, this fault.
    pub fn fail_once(&self, call: u64, fault: SimFault) {
        self.set_fault(call, fault, false);
    }

    fn set_fault(&self, call: u64, fault: SimFault, is_permanent: bool) {
        let mut plan = lock(&self.0.fault);
        plan.fail_at = Some(plan.call_count.saturating_add(call));
        plan.fault = fault;
        plan.is_permanent = is_permanent;
    }

    /// Lets the file have so many bytes from now on: what needs more is refused as on a full disk.
    #[cfg(test)]
    pub(crate) fn limit_to(&self, bytes: u64) {
        lock(&self.0.room).granules_max = bytes / GRANULE_BYTES;
    }

    /// Returns the granules of the file that have no blocks.
    #[cfg(test)]
    pub(crate) fn holes(&self) -> BTreeSet<u64> {
        lock(&self.0.room).holes.clone()
    }

    /// Returns how many granules of the file have no blocks.
    #[cfg(test)]
    pub(crate) fn hole_count(&self) -> u64 {
        lock(&self.0.room).holes.len() as u64
    }

    /// Returns how often ranges of the file were made holes.
    #[cfg(test)]
    pub(crate) fn punch_count(&self) -> u64 {
        lock(&self.0.room).punch_count
    }

    /// Has the file system take a new block for each page that is stored to, as btrfs does.
    #[cfg(test)]
    pub(crate) fn copy_on_write(&self) {
        lock(&self.0.room).is_copied_on_write = true;
    }

    /// Lets time go by.
    #[cfg(test)]
    pub(crate) fn pass(&self, time: Duration) {
        self.0.pass(time);
    }

    /// Has the kernel write all pages back, and fail: any part may be on the disk, and the pages are marked
    /// clean. It reports that once.
    #[cfg(test)]
    pub(crate) fn fail_write_back(&self) {
        let file_bytes = self.file().len();
        lock(&self.0.disk).fail_sync(&(0..file_bytes));
        lock(&self.0.write_back).has_error = true;
    }

    /// Has each question for an error of write-back take so long.
    #[cfg(test)]
    pub(crate) fn delay_write_back_reports(&self, wait: Duration) {
        lock(&self.0.write_back).wait = wait;
    }

    /// Returns the number of calls to the storage that may fail.
    pub fn call_count(&self) -> u64 {
        lock(&self.0.fault).call_count
    }

    /// Returns a machine whose kernel tells no number of a mount that it never uses again, as Linux before 6.8.
    #[cfg(test)]
    pub(crate) fn with_older_kernel() -> Self {
        let mut machine = Arc::into_inner(Self::new().0).expect("nobody else has it");
        machine.tells_mount = false;
        Self(Arc::new(machine))
    }

    /// Has the kernel forget the file, of which it has written all pages.
    #[cfg(test)]
    pub(crate) fn forget_write_hint(&self) {
        self.0.has_write_hint.store(false, Ordering::Relaxed);
    }

    /// Returns what identifies the file.
    #[cfg(test)]
    pub(crate) fn identity(&self) -> Identity {
        self.0.identity()
    }

    /// Returns the calls to the storage that were syncs, with their ranges.
    #[cfg(test)]
    pub(crate) fn syncs(&self) -> Vec<(u64, Range<u64>)> {
        lock(&self.0.fault).syncs.clone()
    }

    /// Returns the file as it was when a call other than a sync first failed because of the device, since this
    /// was asked for.
    #[cfg(test)]
    pub(crate) fn take_file_at_failure(&self) -> Option<Vec<u8>> {
        lock(&self.0.fault).file_at_failure.take()
    }

    /// Returns a number that changes with each event that changes what a crash may leave.
    #[cfg(test)]
    pub(crate) fn event_count(&self) -> u64 {
        self.0.disk().event_count()
    }

    /// Returns whether the next event is a sync. Until the sync after that, a power loss cannot
    /// leave more than it can now.
    #[cfg(test)]
    pub(crate) fn is_before_sync(&self) -> bool {
        lock(&self.0.fault).is_before_sync
    }

    /// Returns everything that a power loss may leave now.
    #[cfg(test)]
    pub(crate) fn outcomes(&self) -> Outcomes {
        let images = self.0.disk().images();
        Outcomes { machine: Self(self.0.clone()), images }
    }
}

/// Everything that a power loss may leave at one moment.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct Outcomes {
    machine: SimDisk,
    images: disk::Images,
}

#[cfg(test)]
impl Outcomes {
    /// Returns one chosen by `seed`, as [`SimDisk::lose_power`] does.
    pub(crate) fn seeded(&self, seed: u64) -> SimDisk {
        self.machine.after_power_loss(self.images.seeded(seed))
    }

    /// Calls `visit` with every image of `ranges` of the file and of its size, the rest being as of
    /// the last sync and then as it is now. Returns the number of images.
    pub(crate) fn every(&self, ranges: &[Range<usize>], visit: &mut dyn FnMut(Vec<u8>)) -> u64 {
        let rests = [disk::Rest::Oldest, disk::Rest::Newest];
        rests.into_iter().map(|rest| self.images.every(ranges, rest, visit)).sum()
    }

    /// Calls `visit` with the images in which everything is old, or everything is new, except what is `beside`
    /// in any combination, and one word or sector in `range`. Returns the number of images.
    pub(crate) fn each_alone(
        &self,
        range: &Range<usize>,
        beside: &Range<usize>,
        visit: &mut dyn FnMut(Vec<u8>),
    ) -> u64 {
        self.images.each_alone(range, beside, visit)
    }

    /// Returns whether this image is one of them.
    pub(crate) fn has(&self, image: &[u8]) -> bool {
        self.images.has(image)
    }

    /// Returns the machine with this image.
    pub(crate) fn of_image(&self, image: Vec<u8>) -> SimDisk {
        self.machine.after_power_loss(image)
    }
}

impl PageCache {
    fn new(file: &[u8], has_locks: bool) -> io::Result<Self> {
        let view = Lent::new()?;
        view.commit(file.len() as u64)?;
        #[cfg(all(test, not(miri)))]
        let lock_file = if has_locks { Some(LockFile::new()?) } else { None };
        #[cfg(all(test, not(miri)))]
        if let Some(lock_file) = &lock_file {
            view.commit(HEADER_BYTES)?;
            lock_file.show_table(&view)?;
        }
        assert!(cfg!(test) || !has_locks);
        copy_to(view.span(), 0, file);
        Ok(Self {
            view,
            file_bytes: AtomicU64::new(file.len() as u64),
            #[cfg(all(test, not(miri)))]
            lock_file,
        })
    }

    fn file(&self) -> Vec<u8> {
        copy_from(self.view.span(), 0, self.file_bytes.load(Ordering::Acquire))
    }
}

#[cfg(all(test, not(miri)))]
impl Drop for PageCache {
    fn drop(&mut self) {
        if self.lock_file.is_some() {
            process::hide_table(&self.view).expect("the table was shown there");
        }
    }
}

impl Image {
    /// Copies the stores through windows to the view, and returns where they are in the file.
    fn carry(&self) -> Vec<Range<u64>> {
        let mut stored = Vec::new();
        if self.is_killed.load(Ordering::Relaxed) {
            return stored;
        }
        let view = self.cache.view.span();
        // One for all pieces: a crash test comes here at each event.
        let mut content = Vec::new();
        for piece in &mut *lock(&self.pieces) {
            let window = self.windows[piece.kind.number()].span();
            content.resize(piece.common.len(), 0);
            copy_into(&mut content, window, piece.at);
            if content == piece.common {
                continue;
            }
            // Only the changed words: the granules may have another use by now.
            let (now, before) = (content.as_chunks::<8>().0, piece.common.as_chunks::<8>().0);
            for (word, (new, old)) in now.iter().zip(before).enumerate() {
                if new != old {
                    let offset = piece.offset + 8 * word as u64;
                    copy_to(view, offset, new);
                    stored.push(offset..offset + 8);
                }
            }
            piece.common.copy_from_slice(&content);
        }
        stored
    }

    /// Updates the windows that are mapped to a range of the file.
    fn refresh(&self, range: &Range<u64>) {
        for piece in &mut *lock(&self.pieces) {
            let bytes = piece.common.len() as u64;
            if piece.offset < range.end && range.start < piece.offset + bytes {
                piece.common = copy_from(self.cache.view.span(), piece.offset, bytes);
                copy_to(self.windows[piece.kind.number()].span(), piece.at, &piece.common);
            }
        }
    }
}

/// Copies what was stored through the windows of each handle to those of all.
fn carry_all(images: &[Arc<Image>]) {
    let stored: Vec<_> = images.iter().flat_map(|image| image.carry()).collect();
    if images.len() > 1 {
        refresh_all(images, &stored);
    }
}

fn refresh_all(images: &[Arc<Image>], ranges: &[Range<u64>]) {
    for image in images {
        for range in ranges {
            image.refresh(range);
        }
    }
}

/// Copies bytes out of a span that other threads may be changing.
fn copy_from(span: Span, at: u64, bytes: u64) -> Vec<u8> {
    let mut copy = vec![0; bytes as usize];
    copy_into(&mut copy, span, at);
    copy
}

/// Fills `copy` with the bytes of a span from `at` on.
fn copy_into(copy: &mut [u8], span: Span, at: u64) {
    assert!(at + copy.len() as u64 <= span.bytes);
    // SAFETY: the range is committed, and a raw copy makes no reference to it.
    let start = unsafe { span.base.add(at as usize) };
    // SAFETY: as above.
    unsafe { start.copy_to_nonoverlapping(copy.as_mut_ptr(), copy.len()) };
}

/// Copies bytes into a span.
fn copy_to(span: Span, at: u64, bytes: &[u8]) {
    assert!(at + bytes.len() as u64 <= span.bytes);
    // SAFETY: the range is committed; the engine reads it only once it is published or mapped.
    let start = unsafe { span.base.add(at as usize) };
    // SAFETY: as above; the source is another object.
    unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

const PATH: &str = ":sim:";

/// The storage of one open store on a [`SimDisk`].
#[derive(Debug)]
struct Sim {
    machine: Arc<Machine>,
    image: Arc<Image>,
    /// What it knows of other handles, on a machine with locks.
    #[cfg(all(test, not(miri)))]
    neighbours: Option<super::Neighbours>,
}

impl Sim {
    /// Opens the file beside these handles, whose page cache it shares. Others are not there any more.
    fn new(machine: Arc<Machine>, others: &[Arc<Image>]) -> io::Result<Self> {
        let cache = match others.first() {
            Some(other) => other.cache.clone(),
            None => Arc::new(PageCache::new(lock(&machine.disk).file(), machine.has_locks)?),
        };
        #[cfg(all(test, not(miri)))]
        let (process, neighbours) =
            cache.lock_file.as_ref().map(Process::start).transpose()?.unzip();
        let [live, buckets, overflow] = WindowKind::ALL.map(|_| Lent::new());
        let image = Arc::new(Image {
            cache,
            windows: [live?, buckets?, overflow?],
            pieces: Mutex::default(),
            is_killed: AtomicBool::new(false),
            #[cfg(all(test, not(miri)))]
            process,
        });
        *lock(&machine.open) = others.iter().chain([&image]).cloned().collect();
        Ok(Self {
            machine,
            image,
            #[cfg(all(test, not(miri)))]
            neighbours,
        })
    }

    /// Counts a call, and returns its error or another fault.
    fn call(&self) -> io::Result<Option<SimFault>> {
        if self.image.is_killed.load(Ordering::Relaxed) {
            return Err(io::Error::other("the process was killed"));
        }
        may_be_killed();
        let mut plan = lock(&self.machine.fault);
        plan.call_count += 1;
        let is_now = plan.fail_at == Some(plan.call_count);
        let is_since = plan.is_permanent && plan.fail_at.is_some_and(|at| plan.call_count > at);
        if !is_now && !is_since {
            return Ok(None);
        }
        match plan.fault {
            SimFault::Error(errno) => Err(io::Error::from_raw_os_error(errno)),
            fault => Ok(Some(fault)),
        }
    }

    /// Repeats the call while a signal interrupts it, as `Mapped` does.
    fn call_again(&self) -> io::Result<()> {
        uninterrupted(|| self.call()).map(drop).inspect_err(|error| self.note_failure(error))
    }

    /// Keeps the file as it is when the device first fails.
    fn note_failure(&self, error: &io::Error) {
        if super::is_of_device(error) {
            self.carry();
            let file = self.image.cache.file();
            lock(&self.machine.fault).file_at_failure.get_or_insert(file);
        }
    }

    /// Returns the superblock that an open would use now.
    fn superblock(&self) -> Option<Superblock> {
        let block = |at| {
            (at + SUPERBLOCK_BYTES <= self.file_bytes())
                .then(|| copy_from(self.view(), at, SUPERBLOCK_BYTES))
        };
        let decode =
            |at| block(at).map_or(Err(SuperblockFault::Magic), |block| Superblock::decode(&block));
        newest(&SUPERBLOCK_OFFSETS.map(decode)).cloned()
    }

    /// Returns whether this machine leaves out the sync of a range.
    fn omits_sync(&self, range: &Range<u64>) -> bool {
        match self.machine.omission {
            Some(Omission::SyncOfClose) => {
                let is_of_file = range.start == 0 && range.end > HEADER_BYTES;
                // The first change of a new store syncs all of it too, before a superblock names its log, and the
                // first sync may cover as much. A close has cleared the number of the process.
                let is_changed =
                    |block: Superblock| !block.is_clean && block.log_start != LogStart::default();
                let is_of_close =
                    copy_from(self.view(), PID_OFFSET, 8).iter().all(|&byte| byte == 0);
                is_of_file && is_of_close && self.superblock().is_some_and(is_changed)
            }
            Some(Omission::SyncOfCheckpoint) => {
                let head = copy_from(self.view(), range.start, SegmentHeader::BYTES);
                let header = SegmentHeader::decode(&head, range.start, self.file_bytes());
                header.is_ok_and(|header| header.kind == SegmentKind::Checkpoint)
            }
            Some(Omission::NotClean) | None => false,
        }
    }

    /// Returns whether this machine leaves out a write.
    fn omits_write(&self, offset: u64, bytes: &[u8]) -> bool {
        self.machine.omission == Some(Omission::NotClean)
            && SUPERBLOCK_OFFSETS.contains(&offset)
            && Superblock::decode(bytes).is_ok_and(|block| !block.is_clean)
            && self
                .superblock()
                .is_some_and(|block| block.is_clean && block.log_start != LogStart::default())
    }

    /// Returns whether no later process has opened the file; calls of an earlier one have no
    /// effect.
    fn is_current(&self) -> bool {
        lock(&self.machine.open).iter().any(|image| Arc::ptr_eq(image, &self.image))
    }

    /// Returns the handles that share its page cache, and itself.
    fn sharing(&self) -> Vec<Arc<Image>> {
        let images = lock(&self.machine.open).clone();
        if self.is_current() { images } else { vec![self.image.clone()] }
    }

    fn carry(&self) {
        carry_all(&self.sharing());
    }

    fn refresh(&self, range: Range<u64>) {
        refresh_all(&self.sharing(), &[range]);
    }

    /// Records the stores through mappings in a range.
    fn note_stores(&self, range: &Range<u64>) {
        self.carry();
        if self.is_current() {
            let stored = copy_from(self.view(), range.start, range.end - range.start);
            lock(&self.machine.disk).see(range.start as usize, &stored, How::Stored);
        }
    }

    /// Writes to the file; the windows show it at once.
    fn write(&self, offset: u64, bytes: &[u8]) {
        if self.image.is_killed.load(Ordering::Relaxed) {
            return;
        }
        let range = offset..offset + bytes.len() as u64;
        assert!(range.end <= self.file_bytes());
        self.note_stores(&range);
        copy_to(self.view(), offset, bytes);
        self.refresh(range);
        if self.is_current() {
            lock(&self.machine.disk).see(offset as usize, bytes, How::Written);
        }
        may_be_killed();
    }

    /// Gives a range its blocks.
    fn fill(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let granules = offset / GRANULE_BYTES..(offset + bytes).div_ceil(GRANULE_BYTES);
        lock(&self.machine.room).fill(granules, self.file_bytes() / GRANULE_BYTES)
    }

    fn resize(&self, bytes: u64) {
        self.image.cache.file_bytes.store(bytes, Ordering::Release);
        if self.is_current() {
            lock(&self.machine.disk).resize(bytes as usize);
        }
        may_be_killed();
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        drop(self.machine.disk());
        lock(&self.machine.open).retain(|image| !Arc::ptr_eq(image, &self.image));
        #[cfg(all(test, not(miri)))]
        if let Some(neighbours) = self.neighbours.as_ref().filter(|it| it.has_descriptor()) {
            neighbours.let_go();
        }
    }
}

impl Storage for Sim {
    fn path(&self) -> &Path {
        Path::new(PATH)
    }

    fn identity(&self) -> Identity {
        self.machine.identity()
    }

    #[cfg(all(test, not(miri)))]
    fn neighbours(&self) -> Option<&super::Neighbours> {
        self.neighbours.as_ref()
    }

    fn set_write_hint(&self) {
        self.machine.has_write_hint.store(true, Ordering::Relaxed);
    }

    fn has_write_hint(&self) -> bool {
        self.machine.has_write_hint.load(Ordering::Relaxed)
    }

    /// Prepares them, so that tests cover it; no thread is involved.
    fn prepares_small_segments(&self) -> bool {
        true
    }

    fn may_sync_in_background(&self) -> bool {
        false
    }

    /// Returns the same numbers in every run.
    fn random_u64(&self) -> io::Result<u64> {
        let count = self.machine.random_count.fetch_add(1, Ordering::Relaxed) + 1;
        let mixed = (count << 32 ^ self.machine.boot).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Ok(mixed ^ mixed >> 29)
    }

    /// Returns the same number in every run.
    fn process_id(&self) -> u32 {
        1991
    }

    fn since_boot(&self) -> Duration {
        Duration::from_nanos(self.machine.clock_ns.load(Ordering::Relaxed))
    }

    fn has_write_back_error(&self) -> bool {
        let mut write_back = lock(&self.machine.write_back);
        self.machine.pass(write_back.wait);
        std::mem::take(&mut write_back.has_error)
    }

    fn claim_stores(&self, _offset: u64, _bytes: u64) -> io::Result<FromWhere> {
        let is_copied_on_write = lock(&self.machine.room).is_copied_on_write;
        Ok(if is_copied_on_write { FromWhere::OfFileSystem } else { FromWhere::Claimed })
    }

    fn file_bytes(&self) -> u64 {
        self.image.cache.file_bytes.load(Ordering::Acquire)
    }

    fn view(&self) -> Span {
        self.image.cache.view.span()
    }

    fn window(&self, kind: WindowKind) -> Span {
        self.image.windows[kind.number()].span()
    }

    /// Stores to a piece of a window reach the view later.
    fn read_scattered(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let bytes = into.len() as u64;
        let end = offset + bytes;
        let pieces = lock(&self.image.pieces);
        let has_it = |piece: &&MappedPiece| {
            piece.offset <= offset && end <= piece.offset + piece.common.len() as u64
        };
        into.copy_from_slice(&match pieces.iter().find(has_it) {
            Some(piece) => {
                let window = self.image.windows[piece.kind.number()].span();
                copy_from(window, piece.at + (offset - piece.offset), bytes)
            }
            None => self.read(offset, bytes),
        });
        Ok(())
    }

    fn grow(&self, bytes: u64) -> io::Result<()> {
        self.call_again()?;
        {
            let room = lock(&self.machine.room);
            let used_count = self.file_bytes().max(bytes) / GRANULE_BYTES - room.holes.len() as u64;
            if bytes > self.file_bytes() && used_count > room.granules_max {
                return Err(no_room());
            }
        }
        self.image.cache.view.commit(bytes)?;
        self.resize(bytes.max(self.file_bytes()));
        Ok(())
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.call_again()?;
        let before = self.file_bytes();
        assert!(bytes <= before);
        self.note_stores(&(bytes..before));
        // The bytes that return when the file grows again are zero.
        copy_to(self.view(), bytes, &vec![0; (before - bytes) as usize]);
        self.refresh(bytes..before);
        lock(&self.machine.room).holes.retain(|&hole| hole < bytes / GRANULE_BYTES);
        self.resize(bytes);
        Ok(())
    }

    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        // Most of the engine goes on without.
        uninterrupted(|| self.call())?;
        self.write(offset, &vec![0; bytes as usize]);
        let granules = offset / GRANULE_BYTES..(offset + bytes) / GRANULE_BYTES;
        let mut room = lock(&self.machine.room);
        room.holes.extend(granules);
        room.punch_count += 1;
        Ok(())
    }

    fn hold_range(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.call_again()?;
        self.fill(offset, bytes)
    }

    /// Acts as if all pages were in the cache: the bytes stay.
    fn claim_range(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let folios = widened(offset..offset + bytes);
        let end = folios.end.min(self.file_bytes());
        self.claim_freed(folios.start, end - folios.start)
    }

    fn claim_freed(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.call_again()?;
        self.fill(offset, bytes)
    }

    fn map_piece(&self, kind: WindowKind, at: u64, bytes: u64, backing: Backing) -> io::Result<()> {
        self.call_again()?;
        let window = &self.image.windows[kind.number()];
        window.commit(at + bytes)?;
        self.carry();
        let mut pieces = lock(&self.image.pieces);
        pieces.retain(|piece| (piece.kind, piece.at) != (kind, at));
        match backing {
            Backing::File(offset) | Backing::Growth(offset) => {
                let common = copy_from(self.view(), offset, bytes);
                copy_to(window.span(), at, &common);
                pieces.push(MappedPiece { kind, at, offset, common });
            }
            Backing::Private => copy_to(window.span(), at, &vec![0; bytes as usize]),
        }
        Ok(())
    }

    fn unmap_piece(&self, kind: WindowKind, at: u64, bytes: u64) -> io::Result<()> {
        self.call_again()?;
        self.carry();
        lock(&self.image.pieces).retain(|piece| (piece.kind, piece.at) != (kind, at));
        copy_to(self.image.windows[kind.number()].span(), at, &vec![0; bytes as usize]);
        Ok(())
    }

    fn forget_pieces(&self) {
        lock(&self.image.pieces).retain(|piece| piece.kind == WindowKind::Live);
    }

    fn open_tail(&self, offset: u64, bytes: u64, used_bytes: u64) -> io::Result<Tail> {
        self.call_again()?;
        assert!(offset + bytes <= self.file_bytes());
        let base = self.view().base.wrapping_add(offset as usize);
        // SAFETY: committed memory of this storage; only the log stores to the segment.
        Ok(unsafe { Tail::new(base, bytes, used_bytes, None) })
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.omits_write(offset, bytes) {
            return Ok(());
        }
        self.fill(offset, bytes.len() as u64)?;
        write_whole(bytes, offset, |bytes, offset| {
            let half = &bytes[..bytes.len() / 2];
            match self.call() {
                Ok(Some(SimFault::ShortWrite)) if !half.is_empty() => {
                    self.write(offset, half);
                    Ok(half.len())
                }
                Ok(_) => {
                    self.write(offset, bytes);
                    Ok(bytes.len())
                }
                Err(error) => {
                    // A failed write may have been done in part; a signal comes before that.
                    if error.kind() != io::ErrorKind::Interrupted {
                        self.write(offset, half);
                    }
                    self.note_failure(&error);
                    Err(error)
                }
            }
        })
    }

    fn write_zeros(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.write_at(offset, &vec![0; bytes as usize])
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let room = lock(&self.machine.room);
        let used_count = self.file_bytes() / GRANULE_BYTES - room.holes.len() as u64;
        Ok(room.granules_max.saturating_sub(used_count).saturating_mul(GRANULE_BYTES))
    }

    fn sync_range(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let called = self.call();
        {
            let plan = &mut *lock(&self.machine.fault);
            plan.syncs.push((plan.call_count, offset..offset + bytes));
        }
        self.note_stores(&(offset..offset + bytes));
        let set_before_sync = |is_it| lock(&self.machine.fault).is_before_sync = is_it;
        set_before_sync(true);
        may_be_killed();
        set_before_sync(false);
        if !self.is_current() {
            return called.map(drop);
        }
        let is_omitted = self.omits_sync(&(offset..offset + bytes));
        let range = offset as usize..(offset + bytes) as usize;
        let mut disk = lock(&self.machine.disk);
        match called {
            Ok(_) if is_omitted => {}
            Ok(Some(SimFault::SkippedSync)) => {}
            Ok(_) => disk.sync(&range),
            Err(_) => disk.fail_sync(&range),
        }
        drop(disk);
        may_be_killed();
        called.map(drop)
    }
}
