//! The only door to the operating system: bytes of a file, memory that shows them, syncs.
//!
//! A storage is one file (or what stands for it) with a read-only *view* of all of it, three
//! *windows* of contiguous memory over scattered pieces of it, and one writable mapping of the
//! tail segment. View and windows take address space in proportion to what they show, and move when
//! they have outgrown it; where they were stays readable as long as the storage lives. The engine
//! above is the same on each:
//!
//! - [`mapped`]: a file through shared mappings;
//! - [`anon`]: memory of this process, for tables that need no file;
//! - [`sim`]: a memory image and a disk image, for tests of crashes and faults.

pub(crate) mod anon;
mod claim;
pub(crate) mod fork;
pub(crate) mod mapped;
mod memory;
pub(crate) mod new_file;
pub(crate) mod open;
mod pages;
pub(crate) mod raw;
pub(crate) mod regular;
mod reservation;
#[cfg(any(test, feature = "sim"))]
pub(crate) mod sim;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;

pub(crate) use claim::Room;
pub(crate) use pages::Pages;

use crate::atomic::may_be_killed;
use crate::prefaulter::Work;

/// A span of address space that belongs to a storage and lives as long as it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// First byte; aligned to a page.
    pub(crate) base: *mut u8,
    /// Size in bytes; not all of it need be backed by the file yet.
    pub(crate) bytes: u64,
}

/// How far ahead of the tail of the log cache lines are asked for, in bytes.
const PREFETCHED_BYTES: u64 = 256;

/// Writable memory over the tail segment of the log.
///
/// It goes forward only: bytes that have been stored are never stored again, so those of a
/// published record cannot change under a reader.
#[derive(Debug)]
pub(crate) struct Tail {
    base: *mut u8,
    bytes: u64,
    /// Where the bytes begin that have not been stored.
    free_from: u64,
    /// What gives the memory back, if it is not the storage.
    owner: Option<Arc<dyn Owner>>,
}

/// Whatever owns memory.
trait Owner: fmt::Debug + Send + Sync {}

// SAFETY: the memory belongs to the process; only the owner of the `Tail` stores to it.
unsafe impl Send for Tail {}

impl Tail {
    /// Takes `bytes` of writable memory at `base`, of which those before `free_from` are in use.
    ///
    /// # Safety
    ///
    /// - The memory is writable as long as `owner` lives or, without one, as the storage, which
    ///   outlives this value.
    /// - Nothing refers to the bytes from `free_from` on, and nothing else writes them.
    unsafe fn new(
        base: *mut u8,
        bytes: u64,
        free_from: u64,
        owner: Option<Arc<dyn Owner>>,
    ) -> Self {
        Self { base, bytes, free_from, owner }
    }

    /// Returns its pages, if their faults can be taken ahead.
    pub(crate) fn pages(&self) -> Option<Pages> {
        Some(Pages::new(self.base, self.bytes, self.owner.clone()?))
    }

    /// Stores the parts of a record one after the other from `at` on, and zeros behind them up to
    /// `record_bytes`: fewer than 8.
    #[inline]
    #[expect(clippy::cast_ptr_alignment, reason = "asserted: both offsets are multiples of 8")]
    pub(crate) fn store(&mut self, at: u64, record_bytes: u64, parts: [&[u8]; 3]) {
        assert!(at >= self.free_from && at.is_multiple_of(8) && record_bytes >= 8);
        assert!(at + record_bytes <= self.bytes);
        let part_bytes = parts.iter().map(|part| part.len() as u64).sum::<u64>();
        assert!(part_bytes <= record_bytes && record_bytes.is_multiple_of(8));
        self.free_from = at + record_bytes;
        // The padding is in the last word: one store, which the parts may overwrite.
        let last = self.base.wrapping_add((at + record_bytes - 8) as usize);
        // SAFETY: the word ends inside the memory, which is aligned to a page; `new` was promised
        // that nothing refers to bytes that have not been stored.
        unsafe { last.cast::<u64>().write(0) };
        let mut target = self.base.wrapping_add(at as usize);
        may_be_killed();
        for part in parts {
            // SAFETY: the parts end inside the memory, as asserted; as above.
            unsafe { target.copy_from_nonoverlapping(part.as_ptr(), part.len()) };
            target = target.wrapping_add(part.len());
            may_be_killed();
        }
        // The next records will be stored there; a lock waits until its stores have reached the cache.
        for line in (0..record_bytes.min(PREFETCHED_BYTES)).step_by(64) {
            prefetch(self.base.wrapping_add((self.free_from + PREFETCHED_BYTES + line) as usize));
        }
    }

    /// Says that the bytes before `at` have been written to the file by other means.
    pub(crate) fn skip_to(&mut self, at: u64) {
        assert!(at >= self.free_from && at <= self.bytes);
        self.free_from = at;
    }
}

/// Asks for the cache line at an address, which will be read or written soon.
#[inline]
pub(crate) fn prefetch(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads nothing and cannot fault, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// A window: lines or the live header, contiguous in memory, scattered in the file.
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

/// What backs a piece of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    /// The file from this offset on.
    File(u64),
    /// Zeroed memory of this handle only.
    Private,
}

/// What proves that a live header was written to this very file, and that the kernel has had the
/// file system mounted since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The kernel's boot id; zero where there is none, which never proves anything.
    pub(crate) boot_id: [u8; 16],
    /// The kernel's number of the mount, which it never uses again (Linux 6.8); 0 where it has none,
    /// which never proves anything. The page cache may be dropped with the file system: a device
    /// that went away and came back shows each page as of the moment that it was last written.
    pub(crate) mount_id: u64,
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// When the file was made, in nanoseconds since 1970; 0 where that is not known. Numbers of
    /// inodes are used again: a copy may have that of its deleted original.
    pub(crate) birth_ns: u64,
}

/// A file, or what stands for it.
pub(crate) trait Storage: fmt::Debug + Send + Sync {
    /// Returns the path, or `:memory:`.
    fn path(&self) -> &Path;

    /// Returns what identifies the file on this boot.
    fn identity(&self) -> Identity;

    /// Returns whether the bytes are gone when the process is: nothing need be synced.
    fn is_volatile(&self) -> bool {
        false
    }

    /// Returns whether a thread of the engine's own may sync behind the caller's back. Where it may
    /// not, a run has one order of events, and can be repeated.
    fn may_sync_in_background(&self) -> bool {
        !self.is_volatile()
    }

    /// Returns whether small segments of the log are prepared ahead as well, for tests of it.
    fn prepares_small_segments(&self) -> bool {
        false
    }

    /// Returns random bits for a seed, a uuid or the salts of a log.
    fn random_u64(&self) -> io::Result<u64> {
        getrandom::u64().map_err(io::Error::other)
    }

    /// Returns the size of the file in bytes.
    fn file_bytes(&self) -> u64;

    /// Returns whether the kernel failed to write pages of the file back, and has told nobody yet.
    /// Then the cache may have dropped what a killed process stored.
    fn has_write_back_error(&self) -> bool {
        false
    }

    /// Returns whether the file has all its blocks and none of them was ever written, as a creation
    /// leaves it that a power loss interrupted. A file of zeros that somebody wrote is another thing.
    fn is_never_written(&self) -> bool {
        true
    }

    /// Asks how long the file is now, for a storage whose file another process writes to.
    fn see_size(&self) -> io::Result<u64> {
        Ok(self.file_bytes())
    }

    /// Returns the read-only view of the file; its first `file_bytes` are readable. It moves when
    /// [`grow`](Self::grow) or [`see_size`](Self::see_size) needs more address space.
    fn view(&self) -> Span;

    /// Returns the window of this kind; its mapped pieces are readable, and writable unless the
    /// storage was opened read-only. All but the live header move when
    /// [`map_piece`](Self::map_piece) needs more address space. What is stored through a window
    /// that has moved since may be lost: the writer uses the newest.
    fn window(&self, kind: WindowKind) -> Span;

    /// Returns a copy of bytes of the file, which need not be published.
    fn read(&self, offset: u64, bytes: u64) -> Vec<u8> {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.file_bytes()));
        let mut copy = vec![0; bytes as usize];
        let start = self.view().base.wrapping_add(offset as usize);
        // SAFETY: the range is readable, as was just checked; a raw copy needs no reference to
        // bytes that a writer may be changing.
        unsafe { start.copy_to_nonoverlapping(copy.as_mut_ptr(), copy.len()) };
        copy
    }

    /// Makes the file at least `bytes` long. The new bytes are zero and have their blocks, so
    /// that a later store through a mapping cannot meet a full disk.
    fn grow(&self, bytes: u64) -> io::Result<()>;

    /// Returns the work of letting go of the memory behind a view that has moved, for a thread of the
    /// engine's own, if there is any: it may take milliseconds.
    fn outgrown_view(&self) -> Option<Work> {
        None
    }

    /// Cuts the file to `bytes`, a multiple of the granule, and gives the blocks behind them back.
    /// Nothing may refer to the bytes behind: in a file, to touch them is a fault until
    /// [`grow`](Self::grow) has made them again, as zeros. A power loss before the next sync of the
    /// new end may bring back the old size.
    fn truncate(&self, bytes: u64) -> io::Result<()>;

    /// Makes whole granules zero and gives their blocks back; the file keeps its size. They can be
    /// read, but a store through a mapping could meet a full disk: `clear_range` or `write_zeros`
    /// first makes them anew. A file system without holes returns `Unsupported`, and nothing has
    /// changed.
    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()>;

    /// Puts a piece of `bytes` at offset `at` of a window.
    fn map_piece(&self, kind: WindowKind, at: u64, bytes: u64, backing: Backing) -> io::Result<()>;

    /// Says that `bytes` from offset `at` of a window on, all mapped, are about to be written: the
    /// faults of all pages at once cost a fraction of one by one.
    fn populate(&self, _kind: WindowKind, _at: u64, _bytes: u64) {}

    /// Returns pages of a window, all mapped, if their faults can be taken ahead.
    fn window_pages(&self, _kind: WindowKind, _at: u64, _bytes: u64) -> Option<Pages> {
        None
    }

    /// Says that no piece of the buckets and the overflow lines will be touched before it is mapped
    /// again: the index is about to be built anew, somewhere else.
    fn forget_pieces(&self) {}

    /// Returns writable memory over a segment of the file, whose first `used_bytes` are in use.
    fn open_tail(&self, offset: u64, bytes: u64, used_bytes: u64) -> io::Result<Tail>;

    /// Returns the same again where it is a part of the view, which may have moved when the file
    /// grew: what is stored through the one before is lost.
    fn moved_tail(&self, _offset: u64, _bytes: u64, _used_bytes: u64) -> Option<Tail> {
        None
    }

    /// Returns what makes a new segment zero and has its pages ready, for a thread of the engine's
    /// own; nobody touches the segment meanwhile. Where there is no such thread, it has been done.
    fn ready_segment(&self, offset: u64, bytes: u64, map: &Tail) -> io::Result<Option<Work>> {
        self.write_zeros(offset, bytes)?;
        if let Some(pages) = map.pages() {
            pages.fault_in();
        }
        Ok(None)
    }

    /// Writes bytes; they are visible in the view at once.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Writes zeros.
    fn write_zeros(&self, offset: u64, bytes: u64) -> io::Result<()>;

    /// Makes a range zero, with its blocks, for an index piece that is about to be mapped.
    fn clear_range(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.write_zeros(offset, bytes)
    }

    /// Makes sure that a range has its blocks, for an index piece all of which is about to be mapped
    /// and written; the bytes may be anything.
    fn claim_range(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.clear_range(offset, bytes)
    }

    /// Makes sure that stores to a range through a mapping find their blocks, or returns that the file
    /// system takes new ones for each.
    fn claim_stores(&self, _offset: u64, _bytes: u64) -> io::Result<Room> {
        Ok(Room::Claimed)
    }

    /// Returns how many bytes the file system has left.
    fn free_bytes(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    /// Makes the bytes of the range durable, however they were written.
    fn sync_range(&self, offset: u64, bytes: u64) -> io::Result<()>;

    /// Lets go of the memory behind a range of the view; the next read brings it back.
    fn drop_resident(&self, _offset: u64, _bytes: u64) {}
}

/// Returns whether an error tells of a device or a file system that failed, and not of too little
/// room or of a call that the system does not have.
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

/// Returns the system's error for a full disk.
pub(crate) fn no_room() -> io::Error {
    Errno::NOSPC.into()
}

/// Returns how much address space a refused mapping asked for, if that is why `error` was returned.
pub(crate) fn address_space_refused(error: &io::Error) -> Option<u64> {
    reservation::NoAddressSpace::of(error).map(|refused| refused.bytes)
}

/// Calls `call` again as long as a signal interrupts it. Not for syncs: after one that failed
/// nobody knows which pages the kernel still holds to be dirty.
pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Writes all of `bytes` at `offset` by calls that may write a part or be interrupted.
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
    use crate::options::{Access, Create};

    /// Runs `check` on a file of 8 granules, one of each kind of storage.
    fn on_every_storage(check: impl Fn(&dyn Storage)) {
        let dir = tempfile::tempdir().expect("nothing fails here");
        let path = dir.path().join("bytes");
        let mapped = open::open_and_lock(&path, Access::ReadWrite, Create::New)
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
        assert!(!is_of_device(&no_room()));
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
