//! The only door to the operating system: bytes of a file, memory mappings of them, syncs.
//!
//! A storage is a file, or a substitute for one, with a read-only *view* of all of it, three
//! *windows* of contiguous memory over scattered pieces of it, and a writable mapping of the tail
//! segment. View and windows reserve address space in proportion to the file, and move when they
//! outgrow it; their old memory stays readable during the lifetime of the storage. The engine above
//! is the same on each of:
//!
//! - [`mapped`]: a file through shared mappings;
//! - [`anon`]: memory of this process, for tables without a file;
//! - [`sim`]: a memory image and a disk image, for tests of crashes and faults.

pub(crate) mod anon;
pub(crate) mod byte_locks;
mod claim;
pub(crate) mod failure;
pub(crate) mod fork;
mod futex;
pub(crate) mod holders;
mod limits;
pub(crate) mod mapped;
pub(crate) mod neighbours;
pub(crate) mod new_file;
pub(crate) mod open;
pub(crate) mod own_file;
mod pages;
pub(crate) mod raw;
pub(crate) mod reader_table;
pub(crate) mod regular;
mod reservation;
pub(crate) mod shared_counts;
pub(crate) mod shared_file;
#[cfg(any(test, feature = "sim"))]
pub(crate) mod sim;
pub(crate) mod status;
pub(crate) mod unnamed_file;
pub(crate) mod waiting;
mod write_hint;
mod writer_byte;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use rustix::io::Errno;

pub(crate) use claim::{Room, widened};
pub(crate) use limits::fits_in_memory;
pub(crate) use pages::Pages;
pub(crate) use reservation::HUGE_BYTES;

use neighbours::Neighbours;
use pages::FirstTouch;

use crate::atomic::may_be_killed;
use crate::prefaulter::Work;

/// A span of address space that a storage owns for its lifetime.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// First byte; aligned to a page.
    pub(crate) base: *mut u8,
    /// Size in bytes, part of which may not be backed by the file yet.
    pub(crate) bytes: u64,
}

/// Bytes by which the prefetch runs ahead of the tail of the log.
const PREFETCHED_BYTES: u64 = 256;

/// Writable memory over the tail segment of the log.
///
/// Stores only go forward: a byte that has been stored is never stored again, so a published record
/// cannot change under a reader.
#[derive(Debug)]
pub(crate) struct Tail {
    base: *mut u8,
    bytes: u64,
    /// Offset of the first byte that has not been stored.
    free_from: u64,
    /// The owner of the memory, if it is not the storage.
    owner: Option<Arc<dyn Owner>>,
    first_touch: FirstTouch,
}

/// An owner of memory, which frees it on drop.
trait Owner: fmt::Debug + Send + Sync {}

// SAFETY: the memory belongs to the process, not to a thread, and is stored to only through `&mut
// self`, so the thread that owns the `Tail` is the only one that stores.
unsafe impl Send for Tail {}

impl Tail {
    /// Wraps `bytes` of writable memory at `base`; those before `free_from` are in use.
    ///
    /// # Safety
    ///
    /// - The memory is writable during the lifetime of `owner` or, without one, of the storage,
    ///   which outlives this value.
    /// - Nothing refers to the bytes from `free_from` on, and nothing else stores to them.
    unsafe fn new(
        base: *mut u8,
        bytes: u64,
        free_from: u64,
        owner: Option<Arc<dyn Owner>>,
    ) -> Self {
        Self { base, bytes, free_from, owner, first_touch: FirstTouch::Write }
    }

    /// Sets how its pages are faulted in.
    fn with(self, first_touch: FirstTouch) -> Self {
        Self { first_touch, ..self }
    }

    /// Returns a tail that is not mapped: its bytes are written by other means.
    pub(crate) fn unmapped(free_from: u64) -> Self {
        let (base, first_touch) = (std::ptr::null_mut(), FirstTouch::Write);
        Self { base, bytes: 0, free_from, owner: None, first_touch }
    }

    /// Returns whether stores are possible.
    pub(crate) fn is_mapped(&self) -> bool {
        self.bytes > 0
    }

    /// Returns whether it is the same memory as `other`.
    pub(crate) fn is_where(&self, other: &Self) -> bool {
        self.base == other.base
    }

    /// Returns its pages, if they can be faulted in ahead.
    pub(crate) fn pages(&self) -> Option<Pages> {
        Some(Pages::new(self.base, self.bytes, self.owner.clone()?).with(self.first_touch))
    }

    /// Stores the parts of a record at `at`, contiguously, and fewer than 8 zeros of padding up to
    /// `record_bytes`. Returns `false`, without storing, if the record does not fit into the
    /// memory.
    #[inline]
    #[must_use]
    #[expect(clippy::cast_ptr_alignment, reason = "asserted: both offsets are multiples of 8")]
    pub(crate) fn store(&mut self, at: u64, record_bytes: u64, parts: [&[u8]; 3]) -> bool {
        assert!(at >= self.free_from && at.is_multiple_of(8) && record_bytes >= 8);
        if at + record_bytes > self.bytes {
            return false;
        }
        let part_bytes = parts.iter().map(|part| part.len() as u64).sum::<u64>();
        assert!(part_bytes <= record_bytes && record_bytes.is_multiple_of(8));
        self.free_from = at + record_bytes;
        // The padding is in the last word, so zero that word first; the parts may overwrite it.
        let last = self.base.wrapping_add((at + record_bytes - 8) as usize);
        // SAFETY: the word ends inside the memory, as was just checked; the memory is aligned to a
        // page and the offset to 8. The caller of `new` promised that nothing refers to bytes that
        // have not been stored.
        unsafe { last.cast::<u64>().write(0) };
        let mut target = self.base.wrapping_add(at as usize);
        may_be_killed();
        let [head, parts @ ..] = parts;
        let (words, rest) = head.as_chunks::<8>();
        assert!(rest.is_empty(), "a header is of whole words");
        for word in words {
            // SAFETY: the header is part of the record, which was checked to fit; nothing refers to
            // its bytes yet, as above. Copied by words, because most headers have one or two: a
            // call to copy costs more.
            unsafe { target.cast::<[u8; 8]>().write(*word) };
            target = target.wrapping_add(8);
        }
        may_be_killed();
        for part in parts {
            // SAFETY: the parts together are no longer than the record, as asserted, which was
            // checked to fit; nothing refers to its bytes yet, so source and target are disjoint.
            unsafe { target.copy_from_nonoverlapping(part.as_ptr(), part.len()) };
            target = target.wrapping_add(part.len());
            may_be_killed();
        }
        // The next records go there. Without the prefetch, the atomic instruction of the next
        // unlock would wait for the cache misses of their stores.
        for line in (0..record_bytes.min(PREFETCHED_BYTES)).step_by(64) {
            prefetch(self.base.wrapping_add((self.free_from + PREFETCHED_BYTES + line) as usize));
        }
        true
    }

    /// Returns the memory as atomic words, for the segment table.
    pub(crate) fn into_words(self) -> WordMap {
        let Self { base, bytes, owner, .. } = self;
        WordMap { base: base.cast_const().cast(), count: (bytes / 8) as usize, _owner: owner }
    }

    /// Records that the bytes before `at` have been written to the file by other means.
    pub(crate) fn skip_to(&mut self, at: u64) {
        assert!(at >= self.free_from && (at <= self.bytes || self.bytes == 0));
        self.free_from = at;
    }
}

/// Words of the file, shared with other processes that map them.
#[derive(Clone, Debug)]
pub(crate) struct WordMap {
    base: *const AtomicU64,
    count: usize,
    /// Keeps the memory mapped, if the storage does not.
    _owner: Option<Arc<dyn Owner>>,
}

// SAFETY: `words`, the only access, gives out shared references to atomics; `_owner` or the storage
// keeps the memory mapped on whichever thread.
unsafe impl Send for WordMap {}
// SAFETY: as for `Send`.
unsafe impl Sync for WordMap {}

impl WordMap {
    /// Returns the words.
    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the caller of `Tail::new` promised that the memory stays mapped during the
        // lifetime of its owner or the storage; the words are aligned to a page, and all access to
        // them is atomic.
        unsafe { std::slice::from_raw_parts(self.base, self.count) }
    }
}

/// Prefetches the cache line at an address.
#[inline]
pub(crate) fn prefetch(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch has no architectural effect and cannot fault, for any address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// A window: the live header or lines, contiguous in memory and scattered in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowKind {
    /// The live header: one piece.
    Live,
    /// The buckets.
    Buckets,
    /// The overflow lines.
    Overflow,
}

impl WindowKind {
    #[cfg(any(test, feature = "sim"))]
    pub(crate) const ALL: [Self; 3] = [Self::Live, Self::Buckets, Self::Overflow];

    pub(crate) fn number(self) -> usize {
        match self {
            Self::Live => 0,
            Self::Buckets => 1,
            Self::Overflow => 2,
        }
    }
}

/// The memory behind a piece of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    /// The file from this offset on.
    File(u64),
    /// The same for a piece by which a table grows, all of which will soon be stored to: in huge
    /// pages, if the storage has them for a piece of this size.
    Growth(u64),
    /// Zeroed memory of this handle only.
    Private,
}

/// Identifies a file across handles: proves that a live header was written to this very file and,
/// by the mount number, that its file system has been mounted ever since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The kernel's boot id; zero if unknown, which matches nothing.
    pub(crate) boot_id: [u8; 16],
    /// The unique id of the mount, which the kernel never reuses (Linux 6.8), mixed with the id of
    /// the file system or subvolume; 0 if unknown, which matches nothing. It matters because an
    /// unmount drops the page cache: after a device was removed and has returned, each page is in
    /// the state of its last write-back.
    pub(crate) mount_id: u64,
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// Creation time of the file, in nanoseconds since 1970; 0 if unknown. It matters because inode
    /// numbers are reused: a copy may have that of its deleted original.
    pub(crate) birth_ns: u64,
}

/// Writes back a range of the file, given by offset and size, so that its pages are clean. Returns
/// whether that succeeded.
pub(crate) type Clean<'a> = dyn Fn(u64, u64) -> bool + 'a;

/// A file, or a substitute for one.
pub(crate) trait Storage: fmt::Debug + Send + Sync {
    /// Returns the path, or `:memory:`.
    fn path(&self) -> &Path;

    /// Returns what identifies the file on this boot.
    fn identity(&self) -> Identity;

    /// Sets a mark that the kernel keeps only as long as it keeps the pages of the file: see
    /// [`write_hint`].
    fn set_write_hint(&self) {}

    /// Returns whether the kernel has provably kept the pages of the file since some process called
    /// [`set_write_hint`](Self::set_write_hint). `false` proves nothing.
    fn has_write_hint(&self) -> bool {
        false
    }

    /// Returns the means of coordination with other handles of the file, if other processes may
    /// have it open.
    fn neighbours(&self) -> Option<&Neighbours> {
        None
    }

    /// Returns whether anybody reads the file under a byte lock only. That may happen even beside a
    /// handle that lets no reader in: a backup of its log.
    fn is_read_by_lock(&self) -> bool {
        self.neighbours().is_some_and(Neighbours::is_read_by_lock)
    }

    /// Returns whether the bytes vanish with the process, so that there is nothing to sync.
    fn is_volatile(&self) -> bool {
        false
    }

    /// Returns whether a background thread may sync. If not, all events of a run are ordered, so a
    /// test can repeat the run.
    fn may_sync_in_background(&self) -> bool {
        !self.is_volatile()
    }

    /// Returns whether even small log segments are prepared in advance, for tests.
    fn prepares_small_segments(&self) -> bool {
        false
    }

    /// Returns random bits for a seed, a uuid or the salts of a log.
    fn random_u64(&self) -> io::Result<u64> {
        getrandom::u64().map_err(io::Error::other)
    }

    /// Returns the size of the file in bytes.
    fn file_bytes(&self) -> u64;

    /// Returns the id of this process.
    fn process_id(&self) -> u32 {
        std::process::id()
    }

    /// Returns the time since the machine was started.
    fn since_boot(&self) -> Duration {
        reader_table::since_boot()
    }

    /// Returns whether a write-back of the file has failed that the kernel has not reported yet.
    /// The page cache may then have dropped stores of a killed process.
    fn has_write_back_error(&self) -> bool {
        false
    }

    /// Returns whether the file has all its blocks but none was ever written: the state of a file
    /// whose creation was interrupted by a power loss. A program that has written zeros leaves
    /// another state.
    fn is_never_written(&self) -> bool {
        true
    }

    /// Reloads and returns the size of the file, which another process may have changed.
    fn see_size(&self) -> io::Result<u64> {
        Ok(self.file_bytes())
    }

    /// Returns the read-only view of the file, whose first `file_bytes` are readable. It moves when
    /// [`grow`](Self::grow) or [`see_size`](Self::see_size) needs more address space.
    fn view(&self) -> Span;

    /// Returns the window of this kind. Its mapped pieces are readable, and writable unless the
    /// storage was opened read-only. All windows but the live header move when
    /// [`map_piece`](Self::map_piece) needs more address space. A store through a window that has
    /// moved since may be lost, so the writer uses the newest.
    fn window(&self, kind: WindowKind) -> Span;

    /// Returns a copy of bytes of the file, which need not be published.
    fn read(&self, offset: u64, bytes: u64) -> Vec<u8> {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.file_bytes()));
        let mut copy = vec![0; bytes as usize];
        let start = self.view().base.wrapping_add(offset as usize);
        // SAFETY: the range was just checked to be within the view, which the storage keeps mapped.
        // A raw copy creates no reference to bytes that a writer may be changing.
        unsafe { start.copy_to_nonoverlapping(copy.as_mut_ptr(), copy.len()) };
        copy
    }

    /// Copies bytes of the file, which need not be published, by a system call if possible. For a
    /// few bytes from each of many pages, this is cheaper than page faults, which also map
    /// neighboring pages. Stores through a window are visible.
    ///
    /// It does not check that the descriptor is still that of the file. The results of one or more
    /// calls are valid only once [`vouch_for_reads`](Self::vouch_for_reads) has succeeded.
    ///
    /// # Errors
    ///
    /// The error of the operating system.
    fn read_scattered(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        into.copy_from_slice(&self.read(offset, into.len() as u64));
        Ok(())
    }

    /// Fails if the descriptor is no longer that of the file: a program may close descriptors that
    /// it does not own, and then open a file of its own with the same number.
    fn vouch_for_reads(&self) -> io::Result<()> {
        Ok(())
    }

    /// Makes the file at least `bytes` long. The new bytes are zero and their blocks are allocated,
    /// so a later store through a mapping cannot fail for a full disk.
    fn grow(&self, bytes: u64) -> io::Result<()>;

    /// Returns the work of releasing the pages of a view that has moved, if there is any, for a
    /// background thread: it may take milliseconds.
    fn outgrown_view(&self) -> Option<Work> {
        None
    }

    /// Truncates the file to `bytes`, a multiple of the granule, and frees the blocks beyond.
    ///
    /// Nothing may refer to the bytes beyond. In a file, an access to them raises a signal until
    /// [`grow`](Self::grow) has created them again, as zeros. A power loss before the next sync of
    /// the new end may restore the old size.
    fn truncate(&self, bytes: u64) -> io::Result<()>;

    /// Zeroes complete granules and frees their blocks; the file keeps its size.
    ///
    /// They can be read, but a store through a mapping could fail for a full disk until
    /// `clear_range`, `clear_piece` or `write_zeros` has allocated them again. On a file system
    /// without holes it fails with `Unsupported`, and nothing has changed.
    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()>;

    /// Maps a piece of `bytes` at offset `at` of a window.
    fn map_piece(&self, kind: WindowKind, at: u64, bytes: u64, backing: Backing) -> io::Result<()>;

    /// Maps consecutive pieces of a window from offset `at` on, each given by its size and its file
    /// offset. After an error some of them may be mapped.
    fn map_pieces(&self, kind: WindowKind, at: u64, pieces: &[(u64, u64)]) -> io::Result<()> {
        let mut at = at;
        for &(bytes, offset) in pieces {
            self.map_piece(kind, at, bytes, Backing::File(offset))?;
            at += bytes;
        }
        Ok(())
    }

    /// Replaces the last piece of a window, of `bytes` at offset `at`, by zeroed private memory, in
    /// the present memory of the window and in all outgrown memory. Readers that still use the
    /// piece find empty lines, from some moment of the call on. After an error the piece is
    /// unchanged in the memory that [`window`](Self::window) returns.
    fn unmap_piece(&self, kind: WindowKind, at: u64, bytes: u64) -> io::Result<()>;

    /// Maps a piece of a window to another place in the file that has the same bytes, in the
    /// present memory of the window and in all outgrown memory. Readers do not notice. After an
    /// error some outgrown memory may show the new place; the memory that [`window`](Self::window)
    /// returns shows the old one.
    fn move_piece(&self, kind: WindowKind, at: u64, bytes: u64, offset: u64) -> io::Result<()> {
        self.map_piece(kind, at, bytes, Backing::File(offset))
    }

    /// Faults in `bytes` from offset `at` of a window on, all mapped, which are about to be
    /// written. Done at once, this costs a fraction of single faults.
    fn populate(&self, _kind: WindowKind, _at: u64, _bytes: u64) {}

    /// Returns pages of a window, all mapped, if they can be faulted in ahead.
    fn window_pages(&self, _kind: WindowKind, _at: u64, _bytes: u64) -> Option<Pages> {
        None
    }

    /// Splits the huge pages of the buckets and the overflow lines, so that a store to a slot
    /// dirties 4 KiB instead of 2 MiB. Before each range it calls `clean` to write the range back,
    /// and stops if that returns `false`; without `clean`, the caller guarantees that all pages are
    /// clean and nothing stores to them. A page that is dirty, or that another process maps, is not
    /// split.
    fn split_huge_pages(&self, _clean: Option<&Clean<'_>>) {}

    /// Drops the pieces of the buckets and the overflow lines, because the index is about to be
    /// rebuilt elsewhere. No piece is accessed before it is mapped again.
    fn forget_pieces(&self) {}

    /// Returns writable memory over a segment of the file, whose first `used_bytes` are in use.
    fn open_tail(&self, offset: u64, bytes: u64, used_bytes: u64) -> io::Result<Tail>;

    /// Returns the memory of a tail again if it is part of the view, which may have moved when the
    /// file grew. A store through the old memory would be lost.
    fn moved_tail(&self, _offset: u64, _bytes: u64, _used_bytes: u64) -> Option<Tail> {
        None
    }

    /// Returns the work of zeroing a new segment and faulting it in, for a background thread;
    /// nothing may access the segment in the meantime. A segment that `is_new` has its blocks,
    /// which were never written and read as zeros. Without such a thread, the work is done at once.
    fn ready_segment(
        &self,
        offset: u64,
        bytes: u64,
        is_new: bool,
        map: &Tail,
    ) -> io::Result<Option<Work>> {
        if !is_new {
            self.write_zeros(offset, bytes)?;
        }
        if let Some(pages) = map.pages() {
            pages.fault_in();
        }
        Ok(None)
    }

    /// Returns pages of memory beyond the end of the file, into which the file can grow without
    /// moving, if they can be faulted in ahead.
    fn pages_behind(&self, _offset: u64, _bytes: u64) -> Option<Pages> {
        None
    }

    /// Writes bytes, which are visible in the view at once.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Writes zeros.
    fn write_zeros(&self, offset: u64, bytes: u64) -> io::Result<()>;

    /// Like [`clear_range`](Self::clear_range), for a piece by which a table grows, whose lines
    /// will soon be stored to. A piece that `is_new` has its blocks and needs no clearing.
    fn clear_piece(&self, offset: u64, bytes: u64, is_new: bool) -> io::Result<()> {
        if is_new { Ok(()) } else { self.clear_range(offset, bytes) }
    }

    /// Zeroes a range and allocates its blocks, for an index piece that is about to be mapped.
    fn clear_range(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.write_zeros(offset, bytes)
    }

    /// Allocates the blocks of a range, for an index piece that is about to be mapped and
    /// overwritten completely. The bytes are arbitrary.
    fn claim_range(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.clear_range(offset, bytes)
    }

    /// Allocates the blocks of a freed range that has kept its pages, for a segment. The bytes are
    /// arbitrary. The neighbors in its folios are unchanged, but their blocks may be allocated too,
    /// so the file system must have room for them.
    fn claim_freed(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.claim_range(offset, bytes)
    }

    /// Allocates the missing blocks of a range. The bytes are arbitrary.
    fn hold_range(&self, _offset: u64, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    /// Ensures that stores to a range through a mapping need no new blocks, or returns that the
    /// file system is copy-on-write and allocates a new block for each.
    fn claim_stores(&self, _offset: u64, _bytes: u64) -> io::Result<Room> {
        Ok(Room::Claimed)
    }

    /// Ends the opening phase: from now on the program may close descriptors, because it has the
    /// handle, or because the open takes long.
    fn end_opening(&self) {}

    /// Forgets which blocks were claimed, because a reflink copy may share them by now.
    fn forget_claims(&self) {}

    /// Returns the free bytes of the file system.
    fn free_bytes(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    /// Returns by how many bytes the file may still grow: the free bytes of the file system,
    /// bounded by the limit of the file size.
    fn growth_bytes(&self) -> io::Result<u64> {
        self.free_bytes()
    }

    /// Makes the bytes of the range durable, whether they were written by calls or through
    /// mappings.
    fn sync_range(&self, offset: u64, bytes: u64) -> io::Result<()>;

    /// Unmaps the pages of a range of the view; the next read faults them in again.
    fn drop_resident(&self, _offset: u64, _bytes: u64) {}
}

/// Returns whether an error means that a device or a file system has failed, as opposed to a full
/// disk or a missing system call.
pub(crate) fn is_of_device(error: &io::Error) -> bool {
    let of_device = [
        Errno::IO,
        Errno::NXIO,
        Errno::NODEV,
        Errno::ROFS,
        Errno::SHUTDOWN,
        Errno::STALE,
        Errno::UCLEAN,
    ];
    error.raw_os_error().is_some_and(|code| of_device.contains(&Errno::from_raw_os_error(code)))
}

/// Returns whether an error of the system says that space or memory is used up: the file system's,
/// the user's by quota or `ulimit`, or the machine's.
pub(crate) fn is_no_room(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, OutOfMemory, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge | OutOfMemory)
}

/// Returns the system's error for a full disk.
pub(crate) fn no_room() -> io::Error {
    Errno::NOSPC.into()
}

/// Repeats `call` while a signal interrupts it. Not for syncs: after a failed sync, it is unknown
/// which pages the kernel still considers dirty.
pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Writes all of `bytes` at `offset`, through calls that may be interrupted or write only a part.
pub(crate) fn write_whole(
    bytes: &[u8],
    offset: u64,
    mut write: impl FnMut(&[u8], u64) -> io::Result<usize>,
) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match uninterrupted(|| write(&bytes[done..], offset + done as u64))? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => done += written,
        }
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::options::{Create, Options};

    /// Runs `check` on a file of 8 granules, one of each kind of storage.
    fn on_every_storage(check: impl Fn(&dyn Storage)) {
        let dir = tempfile::tempdir().expect("nothing fails here");
        let path = dir.path().join("bytes");
        let options = Options::new().create(Create::New);
        let mapped = open::open_and_lock(&path, &options, &mut waiting::Waiting::new(&options))
            .expect("nothing fails here")
            .storage;
        let anon = anon::Anon::new().expect("nothing fails here");
        let disk = crate::SimDisk::new();
        let sim = disk.storage().expect("nothing fails here");
        let storages: [&dyn Storage; 3] = [&mapped, &anon, &*sim];
        for storage in storages {
            storage.grow(8 * 4096).expect("nothing fails here");
            storage.write_at(0, &vec![7; 8 * 4096]).expect("nothing fails here");
            check(storage);
        }
    }

    #[test]
    fn a_full_disk_is_no_failure_of_the_device() {
        let (edquot, efbig, eintr) = (122, 27, 4);
        for code in [edquot, efbig, eintr] {
            assert!(!is_of_device(&io::Error::from_raw_os_error(code)), "{code}");
        }
        assert!(!is_of_device(&no_room()) && is_no_room(&no_room()));
        let (eio, erofs) = (5, 30);
        assert!(
            [eio, erofs].into_iter().map(io::Error::from_raw_os_error).all(|e| is_of_device(&e))
        );
    }

    #[test]
    fn truncate_cuts_the_file_and_grow_makes_zeros_of_what_was_cut() {
        on_every_storage(|storage| {
            storage.truncate(3 * 4096).unwrap();
            assert_eq!(storage.file_bytes(), 3 * 4096);
            storage.grow(5 * 4096).unwrap();
            assert_eq!(storage.read(0, 3 * 4096), vec![7; 3 * 4096]);
            assert_eq!(storage.read(3 * 4096, 2 * 4096), vec![0; 2 * 4096]);
        });
    }

    #[test]
    fn punch_makes_zeros_and_keeps_the_size() {
        on_every_storage(|storage| {
            if let Err(error) = storage.punch(4096, 2 * 4096) {
                assert_eq!(error.kind(), io::ErrorKind::Unsupported);
                return;
            }
            assert_eq!(storage.file_bytes(), 8 * 4096);
            assert_eq!(storage.read(0, 4096), vec![7; 4096]);
            assert_eq!(storage.read(4096, 2 * 4096), vec![0; 2 * 4096]);
            assert_eq!(storage.read(3 * 4096, 5 * 4096), vec![7; 5 * 4096]);
            storage.clear_range(4096, 4096).unwrap();
            storage.write_at(4096, &[9]).unwrap();
            assert_eq!(storage.read(4096, 1), [9]);
        });
    }

    #[test]
    fn a_write_goes_on_after_a_signal_and_after_a_part() {
        let mut file = [0; 20];
        let mut calls = 0;
        let written = write_whole(&[1, 2, 3, 4, 5], 10, |bytes, offset| {
            calls += 1;
            if calls % 2 == 1 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let part = bytes.len().min(2);
            file[offset as usize..][..part].copy_from_slice(&bytes[..part]);
            Ok(part)
        });
        written.unwrap();
        assert_eq!((&file[10..15], calls), (&[1, 2, 3, 4, 5][..], 6));
        let error = write_whole(&[1], 0, |_, _| Ok(0)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WriteZero);
    }
}
