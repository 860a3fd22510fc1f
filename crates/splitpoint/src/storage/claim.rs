//! Blocks for stores through a mapping, claimed before the first store.
//!
//! A store to a mapped page without a block asks the file system for one, and on a full disk that
//! raises SIGBUS. The files of a store have their blocks from the beginning; copies of them may
//! not:
//!
//! | block | how to detect it | how to claim it |
//! |---|---|---|
//! | a hole, as after `cp --sparse` | `FIEMAP`, or `SEEK_HOLE` where there is none | `fallocate` |
//! | a block that is shared, as after `cp --reflink` | `FIEMAP` | `FALLOC_FL_UNSHARE_RANGE` |
//! | any block of a file on btrfs | by its file system | impossible: see [`Room`] |
//! | a page of a file on tmpfs, which are its blocks | `cachestat`, where the kernel has it | `fallocate` |

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use super::status::Status;
use super::uninterrupted;

/// Where a file gets the blocks for stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// The file has them already.
    Claimed,
    /// The file system takes a new block for each page that is written again, so there must be some
    /// left.
    OfFileSystem,
}

/// The largest folio of the page cache in bytes.
const FOLIO_BYTES_MAX: u64 = 2 << 20;
/// `f_type` of btrfs.
const BTRFS: i64 = 0x9123_683e;

/// `f_type` of tmpfs.
const TMPFS: i64 = 0x0102_1994;

/// What a file system does with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Takes a new one for each page that is written again.
    Btrfs,
    /// Has it in memory only.
    Tmpfs,
    /// Keeps it until it is shared or given back.
    Other,
}

impl Kind {
    fn of(file: &File) -> Self {
        match rustix::fs::fstatfs(file).map(|system| system.f_type & 0xffff_ffff) {
            Ok(BTRFS) => Self::Btrfs,
            Ok(TMPFS) => Self::Tmpfs,
            _ => Self::Other,
        }
    }
}

/// btrfs reserves room for each page that is stored to, and raises a signal if there is none. So it
/// does for a file with the flag `C` (no copy on write), whose blocks it then does not use (Linux
/// 6.18). New files therefore do not get that flag, which would also cost them reflinks and
/// checksums.
fn is_btrfs(file: &File) -> bool {
    Kind::of(file) == Kind::Btrfs
}

/// What a handle has claimed of its file.
///
/// Opening a handle claims the same few ranges at several points in the code: each is claimed only
/// once, until [`forget`](Self::forget). At any time a program may make a copy of the file that
/// shares its blocks (a reflink), so a handle that begins to change the file forgets its earlier
/// claims.
#[derive(Debug, Default)]
pub(super) struct Claims {
    kind: OnceLock<Kind>,
    /// The file position that the description gets back after a search for holes (`SEEK_HOLE` moves
    /// it): its mark.
    mark: Option<u64>,
    claimed: Mutex<Vec<(Range<u64>, Room)>>,
}

impl Claims {
    /// Returns the claims of a handle whose description may be marked.
    pub(super) fn of_marked(mark: Option<u64>) -> Self {
        Self { mark, ..Self::default() }
    }

    /// Returns the claims of a file of which no block can be claimed.
    #[cfg(all(test, not(loom), not(miri)))]
    pub(super) fn without_room() -> Self {
        Self { kind: OnceLock::from(Kind::Btrfs), ..Self::default() }
    }

    /// As [`claim`](Self::claim), for a range that is claimed only once.
    pub(super) fn claim_once(&self, file: &File, range: Range<u64>) -> io::Result<Room> {
        self.claim_of(file, &widened(range))
    }

    /// Ensures the same for a range that is claimed once, but for the rest of the folios at its ends: the file
    /// system must have room for that.
    pub(super) fn claim_alone(&self, file: &File, range: Range<u64>) -> io::Result<Room> {
        self.claim_of(file, &range)
    }

    /// Ensures that the blocks of a range of the file are allocated, so that stores through a
    /// mapping cannot fail for want of space.
    ///
    /// A store makes the file system provide for the whole folio of its page, so the range is widened
    /// to complete folios.
    ///
    /// # Cost
    ///
    /// Two system calls if nothing is missing; none if the range was claimed before.
    pub(super) fn claim(&self, file: &File, range: Range<u64>) -> io::Result<Room> {
        let range = widened(range);
        // A panic while it was locked cannot have left it inconsistent: a push is its only change.
        let mut claimed = self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        let is_within = |known: &Range<u64>| known.start <= range.start && range.end <= known.end;
        if let Some((_, room)) = claimed.iter().find(|(known, _)| is_within(known)) {
            return Ok(*room);
        }
        let room = self.claim_of(file, &range)?;
        claimed.push((range, room));
        Ok(room)
    }

    fn claim_of(&self, file: &File, range: &Range<u64>) -> io::Result<Room> {
        match self.kind.get_or_init(|| Kind::of(file)) {
            Kind::Btrfs => Ok(Room::OfFileSystem),
            Kind::Tmpfs => claim_pages(file, range),
            Kind::Other => claim_blocks(file, range, self.mark),
        }
    }

    /// Forgets all earlier claims, so that each range is claimed again when it is next asked for.
    pub(super) fn forget(&self) {
        self.claimed.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Returns the complete folios of a range.
pub(crate) fn widened(range: Range<u64>) -> Range<u64> {
    range.start / FOLIO_BYTES_MAX * FOLIO_BYTES_MAX..range.end.next_multiple_of(FOLIO_BYTES_MAX)
}

/// Claims the pages of a range of a file on a tmpfs. A tmpfs has no `FIEMAP`, and a search for a
/// hole walks over all pages of the file up to the next hole: in a file of 1.5 GB, with one search
/// for each of 45 ranges, that takes a second. If the file system is full, the pages claimed by
/// earlier steps stay allocated.
fn claim_pages(file: &File, range: &Range<u64>) -> io::Result<Room> {
    let range = range.start..range.end.min(Status::of(file)?.bytes);
    if range.is_empty() || has_all_pages(file, &range) {
        return Ok(Room::Claimed);
    }
    for step in steps_of(&range) {
        if has_all_pages(file, &step) {
            continue;
        }
        match fallocate(file, FallocateFlags::empty(), &step) {
            Err(error) if is_unknown(&error) => return Ok(Room::Claimed),
            filled => filled?,
        }
    }
    Ok(Room::Claimed)
}

/// Bytes of a file on a tmpfs that one call claims.
const STEP_BYTES: u64 = 4 << 20;

/// Returns the parts of a range that are claimed one after the other. Before Linux 6.10,
/// `fallocate` on tmpfs gives up at any signal and frees what it has allocated: under a periodic
/// timer, a call for a large range would start over forever.
fn steps_of(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    (range.start..end).step_by(STEP_BYTES as usize).map(move |at| at..end.min(at + STEP_BYTES))
}

/// Returns whether a file on a tmpfs has all pages of a range, as far as the kernel can tell (Linux
/// 6.5 and later, unless a seccomp filter refuses the call).
fn has_all_pages(file: &File, range: &Range<u64>) -> bool {
    const SYS_CACHESTAT: libc::c_long = 451;
    let asked = [range.start, range.end - range.start];
    let mut found = [0_u64; 5];
    // SAFETY: the kernel reads two numbers and writes five: `struct cachestat_range`, `struct cachestat`.
    let code = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), asked.as_ptr(), found.as_mut_ptr(), 0)
    };
    let page_bytes = rustix::param::page_size() as u64;
    code == 0 && page_count_of(&found) == range.end.div_ceil(page_bytes) - range.start / page_bytes
}

/// Returns how many pages a file on a tmpfs has, by what `cachestat` has found: those in the page cache, and those
/// that were evicted, which are on a swap device and keep their room in the file system. A claim reads these back.
fn page_count_of(found: &[u64; 5]) -> u64 {
    let [in_cache, _dirty, _in_write_back, evicted, _evicted_of_late] = found;
    in_cache + evicted
}

fn claim_blocks(file: &File, range: &Range<u64>, mark: Option<u64>) -> io::Result<Room> {
    let range = range.start..range.end.min(Status::of(file)?.bytes);
    if range.is_empty() {
        return Ok(Room::Claimed);
    }
    let extents = extents_of(file, &range)?;
    if !extents.as_ref().is_some_and(|extents| is_whole(extents, &range)) {
        fill_holes(file, &range, mark)?;
    }
    let is_shared = |extent: &FiemapExtent| extent.flags & SHARED != 0;
    if !extents.is_some_and(|extents| extents.iter().any(is_shared)) {
        return Ok(Room::Claimed);
    }
    match fallocate(file, FallocateFlags::UNSHARE_RANGE, &range) {
        Err(error) if is_unknown(&error) => Ok(Room::OfFileSystem),
        unshared => unshared.map(|()| Room::Claimed),
    }
}

/// Returns whether a store to any byte of a range needs no new block: xfs, which is full, refuses even such a
/// range to `fallocate`.
pub(super) fn has_own_blocks(file: &File, range: &Range<u64>) -> bool {
    let is_own = |extents: &[FiemapExtent]| {
        is_whole(extents, range) && extents.iter().all(|extent| extent.flags & SHARED == 0)
    };
    !is_btrfs(file) && extents_of(file, range).ok().flatten().is_some_and(|found| is_own(&found))
}

/// Returns whether extents in blocks of their own cover a range. Blocks that were never written do.
fn is_whole(extents: &[FiemapExtent], range: &Range<u64>) -> bool {
    let mut end = range.start;
    for extent in extents {
        if extent.logical > end || extent.flags & NOT_ALIGNED != 0 {
            return false;
        }
        end = end.max(extent.logical.saturating_add(extent.length));
    }
    end >= range.end
}

/// Returns the bytes of the file system that are free for unprivileged programs; the maximum if it
/// does not count them, like a tmpfs without a limit.
pub(super) fn free_bytes(file: &File) -> io::Result<u64> {
    let system = rustix::fs::fstatvfs(file)?;
    if system.f_blocks == 0 {
        return Ok(u64::MAX);
    }
    Ok(system.f_bavail.saturating_mul(system.f_frsize))
}

/// Allocates the holes of a range. Blocks that exist and were never written count as holes;
/// claiming them again costs nothing.
fn fill_holes(file: &File, range: &Range<u64>, mark: Option<u64>) -> io::Result<()> {
    let hole = match first_hole(file, range.start, mark) {
        Ok(Some(hole)) => hole,
        // Nobody can look: there may be one anywhere.
        Ok(None) => range.start,
        // Behind the end, or a file system that cannot report holes.
        Err(Errno::NXIO | Errno::INVAL) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if hole >= range.end {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::empty(), &(hole..range.end)) {
        Err(error) if is_unknown(&error) => Ok(()),
        filled => filled,
    }
}

/// Returns the offset of the first hole from `start` on; `None` if other threads kept the lock for
/// too long.
///
/// The kernel answers by moving the file position of the description, which is then set back to
/// `mark`: with a mark, any number of threads may search at once. Without one, the position may
/// belong to the program, and a second thread would take the answer for the first for that position
/// and restore it. So only one thread searches at a time; and none waits for the lock forever,
/// since a fork may have left it locked.
fn first_hole(file: &File, start: u64, mark: Option<u64>) -> Result<Option<u64>, Errno> {
    if let Some(mark) = mark {
        return hole_and_back(file, start, Ok(mark)).map(Some);
    }
    for look in 0..LOOKS_MAX {
        if look > 0 {
            thread::sleep(LOOK_AGAIN);
        }
        if let Ok(_alone) = LOOKING.try_lock() {
            return hole_and_back(file, start, rustix::fs::tell(file)).map(Some);
        }
    }
    Ok(None)
}

/// Held by the thread that searches for a hole in a file whose position belongs to the program.
static LOOKING: Mutex<()> = Mutex::new(());
const LOOKS_MAX: u32 = 100;
const LOOK_AGAIN: Duration = Duration::from_millis(1);

fn hole_and_back(file: &File, start: u64, position: Result<u64, Errno>) -> Result<u64, Errno> {
    let hole = rustix::fs::seek(file, SeekFrom::Hole(start));
    let _ = position.map(|position| rustix::fs::seek(file, SeekFrom::Start(position)));
    hole
}

fn fallocate(file: &File, flags: FallocateFlags, range: &Range<u64>) -> io::Result<()> {
    let (offset, bytes) = (range.start, range.end - range.start);
    uninterrupted(|| Ok(rustix::fs::fallocate(file, flags, offset, bytes)?))
}

fn is_unknown(error: &io::Error) -> bool {
    let unknown = [Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL];
    error.raw_os_error().is_some_and(|code| unknown.contains(&Errno::from_raw_os_error(code)))
}

/// Extents per call.
const EXTENTS: usize = 64;

/// The argument of `FS_IOC_FIEMAP`: `struct fiemap` with its extents.
#[repr(C)]
#[derive(Debug)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [FiemapExtent; EXTENTS],
}

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct FiemapExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved_64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

const _: () = assert!(size_of::<Fiemap>() == 32 + EXTENTS * 56);
/// `FS_IOC_FIEMAP`.
const FIEMAP: rustix::ioctl::Opcode = 0xc020_660b;
/// `FIEMAP_EXTENT_LAST`.
const LAST: u32 = 1;
/// `FIEMAP_EXTENT_NOT_ALIGNED`: inside a block of something else.
const NOT_ALIGNED: u32 = 0x100;
/// `FIEMAP_EXTENT_UNWRITTEN`.
const UNWRITTEN: u32 = 0x800;
/// `FIEMAP_EXTENT_SHARED`.
const SHARED: u32 = 0x2000;

/// Returns whether the file system reports that all blocks of the file are allocated and none was
/// ever written: a file after `fallocate`.
pub(super) fn is_never_written(file: &File) -> io::Result<bool> {
    let file_bytes = Status::of(file)?.bytes;
    let Some(extents) = extents_of(file, &(0..file_bytes))? else { return Ok(false) };
    let mut end = 0;
    for extent in extents {
        if extent.flags & UNWRITTEN == 0 || extent.logical > end {
            return Ok(false);
        }
        end = extent.logical.saturating_add(extent.length);
    }
    Ok(end >= file_bytes)
}

/// Returns the extents of a range in the order of the file, without its holes; `None` if the file
/// system cannot report them.
fn extents_of(file: &File, range: &Range<u64>) -> io::Result<Option<Vec<FiemapExtent>>> {
    let mut extents = Vec::new();
    let mut start = range.start;
    while start < range.end {
        let mut map = Fiemap {
            start,
            length: range.end - start,
            flags: 0,
            mapped_extents: 0,
            extent_count: EXTENTS as u32,
            reserved: 0,
            extents: [FiemapExtent::default(); EXTENTS],
        };
        // SAFETY: the number is that of FS_IOC_FIEMAP, and the type is its argument: the header,
        // and as many extents as it says.
        let call = unsafe { rustix::ioctl::Updater::<FIEMAP, Fiemap>::new(&mut map) };
        // SAFETY: the kernel writes the header and the extents, all of which are plain integers.
        match unsafe { rustix::ioctl::ioctl(file, call) } {
            Ok(()) => {}
            Err(error) if is_unknown(&error.into()) || error == Errno::NOTTY => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let found = &map.extents[..(map.mapped_extents as usize).min(EXTENTS)];
        extents.extend_from_slice(found);
        let Some(last) = found.last().filter(|last| last.flags & LAST == 0) else { break };
        let end = last.logical.saturating_add(last.length);
        if end <= start {
            break;
        }
        start = end;
    }
    Ok(Some(extents))
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, MetadataExt};

    #[test]
    fn a_hole_gets_its_blocks_and_keeps_its_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sparse");
        let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_all_at(&[7; 4096], 512 << 10).unwrap();
        let blocks = || file.metadata().unwrap().blocks() * 512;
        if blocks() > 8192 {
            println!("skipped: no holes on this file system");
            return;
        }
        rustix::fs::seek(&file, SeekFrom::Start(5)).unwrap();
        fill_holes(&file, &(256 << 10..768 << 10), None).unwrap();
        assert_eq!(rustix::fs::tell(&file), Ok(5));
        assert!((512 << 10..1 << 20).contains(&blocks()), "{}", blocks());
        let claims = Claims::default();
        claims.claim(&file, 4096..8192).unwrap();
        assert!(blocks() >= 1 << 20);
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, punch, &(0..64 << 10)).unwrap();
        claims.claim(&file, 4096..8192).unwrap();
        assert!(blocks() < 1 << 20, "it was claimed, and is not looked at again");
        let before = blocks();
        claims.claim_alone(&file, 4096..8192).unwrap();
        assert!((1..64 << 10).contains(&(blocks() - before)), "{} of {before}", blocks());
        claims.forget();
        claims.claim(&file, 4096..8192).unwrap();
        assert!(blocks() >= 1 << 20);
        let mut bytes = vec![1; 1 << 20];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let written = 512 << 10..(512 << 10) + 4096;
        let is_kept = |(at, &byte): (usize, &u8)| byte == 7 * u8::from(written.contains(&at));
        assert!(bytes.iter().enumerate().all(is_kept));
        assert_eq!(file.metadata().unwrap().len(), 1 << 20);
    }

    #[test]
    fn a_position_outlasts_two_threads_that_look_for_holes() {
        for mark in [None, Some(1 << 40)] {
            let file = tempfile::tempfile().unwrap();
            file.set_len(64 << 10).unwrap();
            rustix::fs::seek(&file, SeekFrom::Start(1 << 40)).unwrap();
            let look = || (0..5000).for_each(|_| fill_holes(&file, &(0..64 << 10), mark).unwrap());
            thread::scope(|scope| {
                scope.spawn(look);
                scope.spawn(look);
            });
            assert_eq!(rustix::fs::tell(&file), Ok(1 << 40));
        }
    }

    #[test]
    fn a_page_of_a_tmpfs_is_claimed_where_there_is_none() {
        let Ok(file) = tempfile::tempfile_in("/dev/shm") else { return };
        if Kind::of(&file) != Kind::Tmpfs {
            println!("skipped: no tmpfs");
            return;
        }
        file.set_len((1 << 20) + 5).unwrap();
        file.write_all_at(&vec![7; 256 << 10], 0).unwrap();
        if !has_all_pages(&file, &(0..4096)) {
            println!("this kernel has no cachestat: each claim allocates");
        }
        let blocks = || file.metadata().unwrap().blocks() * 512;
        let before = blocks();
        let claims = Claims::default();
        assert_eq!(claims.claim_alone(&file, 0..256 << 10).unwrap(), Room::Claimed);
        assert_eq!(blocks(), before, "nothing was missing");
        assert!(!has_all_pages(&file, &(252 << 10..260 << 10)));
        claims.claim_alone(&file, 252 << 10..260 << 10).unwrap();
        assert_eq!(blocks(), before + 4096, "one page was");
        claims.claim(&file, 0..4096).unwrap();
        assert_eq!(blocks(), (1 << 20) + 4096);
        let mut bytes = vec![1; 256 << 10];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 7));
    }

    #[test]
    fn pages_on_a_swap_device_count_once() {
        assert_eq!(page_count_of(&[5, 5, 0, 0, 0]), 5);
        assert_eq!(page_count_of(&[3, 3, 1, 2, 0]), 5);
        assert_eq!(page_count_of(&[3, 3, 1, 2, 2]), 5, "those of late are among the evicted ones");
    }

    #[test]
    fn a_large_range_is_claimed_in_steps_which_make_up_the_range() {
        for range in [0..1, 0..STEP_BYTES, 7..STEP_BYTES + 8, 4096..5 * STEP_BYTES, 9..9] {
            let mut at = range.start;
            for step in steps_of(&range) {
                assert!(step.start == at && step.end > at && step.end - step.start <= STEP_BYTES);
                at = step.end;
            }
            assert_eq!(at, range.end);
        }
        let Ok(file) = tempfile::tempfile_in("/dev/shm") else { return };
        if Kind::of(&file) != Kind::Tmpfs {
            println!("skipped: no tmpfs");
            return;
        }
        let bytes = 3 * STEP_BYTES;
        file.set_len(bytes).unwrap();
        file.write_all_at(&[7; 4096], STEP_BYTES).unwrap();
        Claims::default().claim_alone(&file, 4096..bytes).unwrap();
        assert_eq!(file.metadata().unwrap().blocks() * 512, bytes - 4096, "no step is left out");
    }

    /// `fallocate` of a complete range is refused by some full file systems, also if it has no hole.
    #[test]
    fn a_hole_is_found_while_another_thread_looks() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 4096], 0).unwrap();
        let looking = LOOKING.lock().unwrap();
        assert_eq!(first_hole(&file, 0, Some(1 << 40)), Ok(Some(4096)));
        assert_eq!(first_hole(&file, 0, None), Ok(None), "a fork may have left the lock");
        thread::scope(|scope| {
            let found = scope.spawn(|| first_hole(&file, 0, None));
            thread::sleep(2 * LOOK_AGAIN);
            drop(looking);
            assert_eq!(found.join().unwrap(), Ok(Some(4096)));
        });
    }

    #[test]
    fn a_range_behind_the_end_of_the_file_needs_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create_new(dir.path().join("empty")).unwrap();
        assert!(fill_holes(&file, &(0..4096), None).is_ok());
    }
}
