//! `Mapped`: one file, seen through shared mappings.
//!
//! All of the file is mapped for reading at a fixed reservation, past its end as well: growing
//! needs no new mapping, and a pointer into it stays valid while the handle lives. Only the
//! windows and the tail segment are mapped for writing, so a stray store cannot reach a record.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use rustix::fs::{AtFlags, StatxFlags};
use rustix::mm::{Advice, MapFlags, MsyncFlags, ProtFlags};

use super::anon::{release_span, reserve_span};
use super::claim::{Room, claim, free_bytes};
use super::fork::Origin;
use super::memory::memory_bytes;
use super::{
    Backing, Identity, Owner, Pages, Span, Storage, Tail, WindowKind, uninterrupted, write_whole,
};
use crate::prefaulter::Work;

/// Reads that tell whether a piece of an index is in the page cache.
const CACHE_PROBES: u64 = 32;
/// Size of a file that fits into any memory, so that nobody asks how much there is.
const SMALL_BYTES: u64 = 16 << 20;

/// A file behind shared mappings.
#[derive(Debug)]
pub(crate) struct Mapped {
    file: File,
    path: PathBuf,
    identity: Identity,
    origin: Origin,
    is_writable: bool,
    file_bytes: AtomicU64,
    /// From this size of the file on, what the kernel is told of the view is looked at again.
    advised_bytes: AtomicU64,
    view: Reservation,
    windows: [Arc<Reservation>; 3],
}

/// Address space that is given back when its owner goes.
#[derive(Debug)]
struct Reservation(Span);

// SAFETY: address space belongs to the process, not to a thread.
unsafe impl Send for Reservation {}
// SAFETY: as above; the type itself reads and writes nothing.
unsafe impl Sync for Reservation {}

impl Reservation {
    fn new(bytes: u64) -> io::Result<Self> {
        let (base, bytes) = reserve_span(bytes)?;
        Ok(Self(Span { base, bytes }))
    }
}

impl Owner for Reservation {}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the span is ours, and the storage that lent it out outlives its users.
        unsafe { release_span(self.0) };
    }
}

/// Whether a range of the file is mapped for writing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Protection {
    Read,
    ReadWrite,
}

impl Mapped {
    /// Maps `file`, which the caller has locked, for reading or for both.
    pub(crate) fn new(file: File, path: PathBuf, is_writable: bool) -> io::Result<Self> {
        if rustix::param::page_size() as u64 > crate::format::GRANULE_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "memory pages larger than 4096 bytes",
            ));
        }
        let metadata = file.metadata()?;
        let birth = metadata.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let identity = Identity {
            boot_id: boot_id(),
            mount_id: mount_id(&file),
            device: metadata.dev(),
            inode: metadata.ino(),
            birth_ns: birth.map_or(0, |since| since.as_nanos() as u64),
        };
        let view_bytes = super::view_bytes(disk_bytes(&file).max(metadata.len()));
        let view = Reservation::new(view_bytes)?;
        let [live, buckets, overflow] =
            WindowKind::ALL.map(|kind| Reservation::new(kind.reserve_bytes(view_bytes)));
        let windows = [live?, buckets?, overflow?].map(Arc::new);
        let file_bytes = AtomicU64::new(metadata.len());
        let origin = Origin::here();
        let advised_bytes = AtomicU64::new(0);
        let storage = Self {
            file,
            path,
            identity,
            origin,
            is_writable,
            file_bytes,
            advised_bytes,
            view,
            windows,
        };
        // The whole reservation, past the end of the file as well.
        let Span { base, bytes } = storage.view.0;
        storage.map_fixed(base, bytes, 0, Protection::Read)?;
        storage.advise_view(metadata.len());
        Ok(storage)
    }

    /// Tells the kernel how the view is read, when the file has grown enough for another answer: one
    /// large folio per fault while it is small beside the memory; single pages when it is not, so
    /// that a lookup reads 4 KiB from the disk and not 2 MiB.
    fn advise_view(&self, file_bytes: u64) {
        if file_bytes < self.advised_bytes.load(Ordering::Relaxed) {
            return;
        }
        let bound = if file_bytes < SMALL_BYTES { SMALL_BYTES } else { memory_bytes() / 2 };
        let is_small = file_bytes < bound;
        self.advised_bytes.store(if is_small { bound } else { u64::MAX }, Ordering::Relaxed);
        // The kernel looks for huge pages first: they have to be taken back.
        let advices: &[_] = if is_small {
            &[Advice::LinuxHugepage]
        } else {
            &[Advice::LinuxNoHugepage, Advice::Random]
        };
        let Span { base, bytes } = self.view.0;
        for &advice in advices {
            // SAFETY: the range is the view; these change no content, and a kernel that does not
            // know one refuses.
            let _ = unsafe { rustix::mm::madvise(base.cast(), bytes as usize, advice) };
        }
    }

    fn map_fixed(
        &self,
        base: *mut u8,
        bytes: u64,
        offset: u64,
        protection: Protection,
    ) -> io::Result<()> {
        let flags = match protection {
            Protection::Read => ProtFlags::READ,
            Protection::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        let fixed = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the callers give ranges inside reservations of this storage, over which a new
        // mapping may be laid.
        unsafe { rustix::mm::mmap(base.cast(), bytes as usize, flags, fixed, &self.file, offset) }?;
        Ok(())
    }

    /// Returns whether a range of the file seems to be in the page cache, by some bytes of it.
    fn is_cached(&self, offset: u64, bytes: u64) -> bool {
        let step = (bytes / CACHE_PROBES).max(crate::format::GRANULE_BYTES);
        (offset..offset + bytes).step_by(step as usize).all(|at| {
            let mut byte = [0];
            let slices = &mut [io::IoSliceMut::new(&mut byte)];
            let flags = rustix::io::ReadWriteFlags::NOWAIT;
            rustix::io::preadv2(&self.file, slices, at, flags).is_ok_and(|count| count == 1)
        })
    }

    fn protection(&self) -> Protection {
        if self.is_writable { Protection::ReadWrite } else { Protection::Read }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // Closing would do, but for a child that is being forked and still has the file open. In
        // that child the lock is the parent's.
        if self.origin.is_here() {
            let _ = self.file.unlock();
        }
    }
}

impl Storage for Mapped {
    fn path(&self) -> &Path {
        &self.path
    }

    fn identity(&self) -> Identity {
        self.identity
    }

    fn file_bytes(&self) -> u64 {
        self.file_bytes.load(Ordering::Acquire)
    }

    /// Waits for the first page alone, which is not being written as a rule; the kernel then reports
    /// an error of any page of the file, as with a sync, and costs no flush.
    fn has_write_back_error(&self) -> bool {
        let (fd, page) = (self.file.as_raw_fd(), crate::format::GRANULE_BYTES.cast_signed());
        // SAFETY: the descriptor is open, and the call takes no pointer.
        let done = unsafe { libc::sync_file_range(fd, 0, page, libc::SYNC_FILE_RANGE_WAIT_BEFORE) };
        let is_unknown = |error: &io::Error| error.raw_os_error() == Some(libc::ENOSYS);
        done != 0 && !is_unknown(&io::Error::last_os_error())
    }

    fn see_size(&self) -> io::Result<u64> {
        let bytes = self.file.metadata()?.len().min(self.view.0.bytes);
        self.file_bytes.store(bytes, Ordering::Release);
        self.advise_view(bytes);
        Ok(bytes)
    }

    fn view(&self) -> Span {
        self.view.0
    }

    fn window(&self, kind: WindowKind) -> Span {
        self.windows[kind.number()].0
    }

    fn grow(&self, bytes: u64) -> io::Result<()> {
        let before = self.file_bytes();
        if bytes <= before {
            return Ok(());
        }
        if bytes > self.view.0.bytes {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "no address space left"));
        }
        refuse_over_limit(bytes)?;
        let flags = rustix::fs::FallocateFlags::empty();
        let allocated =
            uninterrupted(|| Ok(rustix::fs::fallocate(&self.file, flags, before, bytes - before)?));
        match allocated {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                write_zeros(&self.file, before, bytes - before)?;
            }
            other => other?,
        }
        self.file_bytes.store(bytes, Ordering::Release);
        self.advise_view(bytes);
        Ok(())
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        assert!(bytes.is_multiple_of(crate::format::GRANULE_BYTES) && bytes <= self.file_bytes());
        uninterrupted(|| Ok(rustix::fs::ftruncate(&self.file, bytes)?))?;
        self.file_bytes.store(bytes, Ordering::Release);
        Ok(())
    }

    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let granule = crate::format::GRANULE_BYTES;
        assert!(offset.is_multiple_of(granule) && bytes.is_multiple_of(granule));
        assert!(offset + bytes <= self.file_bytes());
        let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        uninterrupted(|| Ok(rustix::fs::fallocate(&self.file, flags, offset, bytes)?))
    }

    fn map_piece(&self, kind: WindowKind, at: u64, bytes: u64, backing: Backing) -> io::Result<()> {
        let window = self.windows[kind.number()].0;
        if at + bytes > window.bytes {
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, "no address space left"));
        }
        let base = window.base.wrapping_add(at as usize);
        match backing {
            Backing::File(offset) => {
                self.map_fixed(base, bytes, offset, self.protection())?;
                // Small folios: with a large one a single slot store would dirty 2 MiB.
                // SAFETY: the mapping just made; the advice changes no content.
                let _ = unsafe { rustix::mm::madvise(base.cast(), bytes as usize, Advice::Random) };
            }
            Backing::Private => {
                let protection = ProtFlags::READ | ProtFlags::WRITE;
                let flags = MapFlags::PRIVATE | MapFlags::FIXED;
                // SAFETY: the range lies in our reservation, over which a new mapping may be laid.
                unsafe {
                    rustix::mm::mmap_anonymous(base.cast(), bytes as usize, protection, flags)
                }?;
            }
        }
        Ok(())
    }

    fn populate(&self, kind: WindowKind, at: u64, bytes: u64) {
        let base = self.windows[kind.number()].0.base.wrapping_add(at as usize);
        // The folios of a range that is not said to be read at random have up to 128 KiB: making
        // them takes a third of the time of single pages. The price is that a store to one dirties
        // all of it, until it has left the cache.
        for advice in [Advice::Normal, Advice::LinuxPopulateWrite, Advice::Random] {
            // SAFETY: the range is mapped, says the caller; these change no content. Where the
            // kernel cannot populate (before 5.14) the faults come one by one.
            let _ = unsafe { rustix::mm::madvise(base.cast(), bytes as usize, advice) };
        }
    }

    fn window_pages(&self, kind: WindowKind, at: u64, bytes: u64) -> Option<Pages> {
        let window = &self.windows[kind.number()];
        Some(Pages::new(window.0.base.wrapping_add(at as usize), bytes, window.clone()))
    }

    fn open_tail(&self, offset: u64, bytes: u64, used_bytes: u64) -> io::Result<Tail> {
        let reservation = Reservation::new(bytes)?;
        let base = reservation.0.base;
        self.map_fixed(base, bytes, offset, Protection::ReadWrite)?;
        // SAFETY: the mapping lives as long as the reservation; only the log stores to the
        // segment, and slices are made, of another mapping, only of records that are in use.
        Ok(unsafe { Tail::new(base, bytes, used_bytes, Some(Arc::new(reservation))) })
    }

    /// Cleared without pages; those come as one large folio, so that lookups in the segment need few
    /// entries of the translation buffer. A fault makes it without the lock of the file, which a
    /// write of the same zeros would hold for as long.
    fn ready_segment(&self, offset: u64, bytes: u64, map: &Tail) -> io::Result<Option<Work>> {
        self.clear_range(offset, bytes)?;
        Ok(map.pages().map(|pages| -> Work { Box::new(move || pages.fault_in_huge()) }))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        refuse_over_limit(offset + bytes.len() as u64)?;
        write_whole(bytes, offset, |bytes, offset| self.file.write_at(bytes, offset))
    }

    fn write_zeros(&self, offset: u64, bytes: u64) -> io::Result<()> {
        write_zeros(&self.file, offset, bytes)
    }

    /// Without pages: zeros written by hand would be in large folios, and then a single slot
    /// store would dirty 2 MiB.
    fn clear_range(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let flags = rustix::fs::FallocateFlags::ZERO_RANGE;
        let cleared =
            uninterrupted(|| Ok(rustix::fs::fallocate(&self.file, flags, offset, bytes)?));
        match cleared {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                self.write_zeros(offset, bytes)
            }
            other => other,
        }
    }

    /// Pages that are in the cache stay there: they are cheaper than new ones. Where they are not,
    /// a store would read them from the disk first.
    fn claim_range(&self, offset: u64, bytes: u64) -> io::Result<()> {
        if !self.is_cached(offset, bytes) {
            return self.clear_range(offset, bytes);
        }
        let flags = rustix::fs::FallocateFlags::empty();
        let claimed =
            uninterrupted(|| Ok(rustix::fs::fallocate(&self.file, flags, offset, bytes)?));
        match claimed {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                return self.write_zeros(offset, bytes);
            }
            other => other?,
        }
        claim(&self.file, offset..offset + bytes).map(drop)
    }

    fn claim_stores(&self, offset: u64, bytes: u64) -> io::Result<Room> {
        claim(&self.file, offset..offset + bytes)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        free_bytes(&self.file)
    }

    fn sync_range(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let page = crate::format::GRANULE_BYTES;
        let start = offset / page * page;
        let base = self.view.0.base.wrapping_add(start as usize);
        let len = (offset + bytes - start) as usize;
        // `msync` of a shared mapping is the range sync of its file: it covers what was written
        // by any means, and reaches the device.
        // SAFETY: the range lies in the view of this storage.
        unsafe { rustix::mm::msync(base.cast(), len, MsyncFlags::SYNC) }?;
        Ok(())
    }

    fn drop_resident(&self, offset: u64, bytes: u64) {
        let base = self.view.0.base.wrapping_add(offset as usize);
        // SAFETY: the range lies in the read-only shared view: dropping its page-table entries
        // loses nothing, the next read maps the page again.
        let _ = unsafe { rustix::mm::madvise(base.cast(), bytes as usize, Advice::LinuxDontNeed) };
    }
}

/// Refuses what would end behind the process's limit on the size of a file (`ulimit -f`). The
/// system's own refusal comes with a signal, SIGXFSZ, that ends a program which does not handle
/// it; a library must not change what signals do. Costs one short system call.
fn refuse_over_limit(end: u64) -> io::Result<()> {
    match rustix::process::getrlimit(rustix::process::Resource::Fsize).current {
        Some(limit_bytes) if end > limit_bytes => Err(rustix::io::Errno::FBIG.into()),
        _ => Ok(()),
    }
}

/// Writes zeros in calls as large as possible, so that the page cache uses large folios.
fn write_zeros(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    refuse_over_limit(offset + bytes)?;
    let (mut offset, end) = (offset, offset + bytes);
    while offset < end {
        let left = (end - offset) as usize;
        let slices: Vec<io::IoSlice<'_>> = (0..left.div_ceil(ZEROS.len()).min(32))
            .map(|i| io::IoSlice::new(&ZEROS[..ZEROS.len().min(left - i * ZEROS.len())]))
            .collect();
        match rustix::io::pwritev(file, &slices, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => offset += written as u64,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Returns the kernel's id of this boot, or zeros where it does not tell.
fn boot_id() -> [u8; 16] {
    let mut id = [0; 16];
    let Ok(text) = std::fs::read_to_string("/proc/sys/kernel/random/boot_id") else {
        return id;
    };
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    if digits.len() == 32 {
        for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = (pair[0] << 4 | pair[1]) as u8;
        }
    }
    id
}

/// Returns the kernel's number of the mount that the file was opened through, if it is one that is
/// never used again. The older numbers are: an unmounted file system may get its own back when it is
/// mounted next, so they prove nothing.
fn mount_id(file: &File) -> u64 {
    /// `STATX_MNT_ID_UNIQUE`, since Linux 6.8.
    const UNIQUE: u32 = 0x4000;
    let wanted = StatxFlags::from_bits_retain(UNIQUE);
    match rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, wanted) {
        Ok(found) if found.stx_mask & UNIQUE != 0 => found.stx_mnt_id,
        _ => 0,
    }
}

/// Returns the size in bytes of the file system that has the file, as far as it tells.
fn disk_bytes(file: &File) -> u64 {
    match rustix::fs::fstatvfs(file) {
        Ok(system) if system.f_blocks > 0 => system.f_blocks.saturating_mul(system.f_frsize),
        _ => u64::MAX,
    }
}

#[cfg(all(test, target_os = "linux", not(miri), not(loom)))]
mod tests {
    use super::*;

    /// Returns what the kernel says of the mapping at `base`: two letters for each advice.
    fn flags(base: *const u8) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("Linux has it");
        let start = format!("{:x}-", base.addr());
        let of_base = maps.lines().skip_while(|line| !line.starts_with(&start));
        of_base.into_iter().find(|line| line.starts_with("VmFlags:")).expect("a mapping").to_owned()
    }

    /// `rr` is random reading, `hg` huge pages. The file is a hole: it takes no space.
    #[test]
    fn a_file_that_outgrows_half_of_the_memory_is_read_by_single_pages() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sparse");
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        file.set_len(1 << 20).unwrap();
        let storage = Mapped::new(file.try_clone().unwrap(), path.clone(), true).unwrap();
        let base = storage.view().base;
        assert!(!flags(base).contains(" rr"), "{}", flags(base));
        file.set_len(memory_bytes() / 2 - (1 << 20)).unwrap();
        storage.see_size().unwrap();
        assert!(!flags(base).contains(" rr"), "{}", flags(base));

        file.set_len(memory_bytes() / 2 + (1 << 20)).unwrap();
        storage.see_size().unwrap();
        let of_large = flags(base);
        assert!(of_large.contains(" rr") && !of_large.contains(" hg"), "{of_large}");
        let opened = Mapped::new(file, path, false).unwrap();
        assert!(flags(opened.view().base).contains(" rr"), "large when it is opened");
    }
}
