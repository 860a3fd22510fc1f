//! `Mapped`: one file, through shared mappings.
//!
//! The whole file is mapped for reading, even past its end ([`view`]). Only the windows
//! ([`windows`]) and the tail segment are mapped for writing, so a stray store cannot reach a
//! record.

mod view;
mod windows;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::fs::{AtFlags, Statx, StatxFlags};
use rustix::mm::MsyncFlags;

use self::view::View;
use self::windows::{MappedPiece, Windows};
use super::byte_locks::{self, LockByte};
use super::claim::{Claims, Room, free_bytes, is_never_written};
use super::fork::Origin;
use super::limits::locked_bytes_max;
use super::neighbours::Neighbours;
use super::own_file::OwnFile;
use super::pages::FirstTouch;
use super::reservation::{HUGE_BYTES, Part, Protection, Reservation};
use super::shared_file::SharedFile;
use super::status::Status;
use super::write_hint;
use super::{
    Backing, Clean, Identity, Pages, Span, Storage, Tail, WindowKind, uninterrupted, write_whole,
};
use crate::format::FILE_BYTES_MAX;
use crate::prefaulter::Work;

/// Largest index piece that is cleared by writing zeros. A page fault creates folios of this size,
/// too.
const WRITTEN_BYTES_MAX: u64 = 128 << 10;
/// Number of reads that sample whether an index piece is in the page cache.
const CACHE_PROBES: u64 = 32;

/// A file behind shared mappings.
#[derive(Debug)]
pub(crate) struct Mapped {
    file: Arc<OwnFile>,
    path: PathBuf,
    identity: Identity,
    origin: Origin,
    file_bytes: AtomicU64,
    view: View,
    windows: Windows,
    claims: Arc<Claims>,
    first_touch: OnceLock<FirstTouch>,
    lock: Lock,
}

/// The locks that exclude other handles. Released after the file is closed.
#[derive(Debug)]
enum Lock {
    /// `flock` and byte locks on the file description, which belongs to this handle.
    Description(Neighbours),
    /// Locks [of the process](super::writer_byte), because the program owns the description and its
    /// locks.
    Byte(#[expect(dead_code, reason = "its drop gives the claim up")] SharedFile),
    /// Byte locks on a description of this handle's own, for a file that the program has opened.
    ByTurns(
        Neighbours,
        #[expect(dead_code, reason = "the program shares it as long as the handle is open")]
        SharedFile,
    ),
}

impl Mapped {
    /// Maps `file`, which the caller has locked, for reading or for reading and writing.
    pub(crate) fn new(file: File, path: PathBuf, is_writable: bool) -> io::Result<Self> {
        let (file, found) = look_at(file)?;
        let claims = Arc::new(Claims::default());
        let lock = Lock::Description(Neighbours::new(file.clone(), claims.clone()));
        Self::with_lock(file, found, path, is_writable, lock, claims)
    }

    /// Maps a file whose description the program shares.
    pub(super) fn shared(file: &SharedFile, is_writable: bool) -> io::Result<Self> {
        let path = file.path().to_path_buf();
        // On an error a descriptor is closed, which ends locks of the process, so renew them.
        let look_at = |own: File| look_at(own).inspect_err(|_| file.inode().renew());
        if let Some(own) = file.own_description() {
            let (own, _) = own?.into_parts();
            let (own, found) = look_at(own)?;
            let claims = Arc::new(Claims::of_marked(own.mark()));
            let neighbours = Neighbours::of_program(own.clone(), claims.clone());
            let lock = Lock::ByTurns(neighbours, file.clone());
            return Self::with_lock(own, found, path, is_writable, lock, claims);
        }
        let (own, found) = look_at(file.descriptor()?)?;
        Self::with_lock(own, found, path, is_writable, Lock::Byte(file.clone()), Arc::default())
    }

    /// Trusts the descriptor without checks until the open returns, for which the program is
    /// waiting.
    pub(super) fn trust_until_opened(&self) {
        self.file.trust();
    }

    fn with_lock(
        file: Arc<OwnFile>,
        (identity, file_bytes): (Identity, u64),
        path: PathBuf,
        is_writable: bool,
        lock: Lock,
        claims: Arc<Claims>,
    ) -> io::Result<Self> {
        let page_bytes = rustix::param::page_size();
        if page_bytes as u64 > crate::format::GRANULE_BYTES {
            let reason = format!("expected memory pages of 4096 bytes, found {page_bytes}");
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        let protection = if is_writable { Protection::ReadWrite } else { Protection::Read };
        let windows = Windows::new(protection)?;
        if let Lock::Description(neighbours) | Lock::ByTurns(neighbours, ..) = &lock
            && is_writable
        {
            neighbours.set_table(windows.reader_table());
        }
        Ok(Self {
            view: View::new(&file, file_bytes)?,
            windows,
            file,
            path,
            identity,
            origin: Origin::here(),
            file_bytes: AtomicU64::new(file_bytes),
            claims,
            first_touch: OnceLock::new(),
            lock,
        })
    }

    /// Extends the view to a file of `bytes`.
    fn cover(&self, bytes: u64) -> io::Result<()> {
        if self.view.cover(&self.file, bytes)? {
            self.keep_index();
        }
        Ok(())
    }

    /// Makes the file system turn a range into unwritten zeros; fails with `Unsupported` if it
    /// cannot.
    fn zero_range(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let flags = rustix::fs::FallocateFlags::ZERO_RANGE;
        uninterrupted(|| Ok(rustix::fs::fallocate(self.file.checked()?, flags, offset, bytes)?))
    }

    /// Returns how pages of written blocks are faulted in ahead.
    fn first_touch(&self) -> FirstTouch {
        if let Some(&known) = self.first_touch.get() {
            return known;
        }
        match self.file.checked().and_then(FirstTouch::of) {
            Ok(found) => *self.first_touch.get_or_init(|| found),
            Err(_) => FirstTouch::Write,
        }
    }

    /// Locks the index in memory, if the file is large compared with it.
    fn keep_index(&self) {
        if self.view.is_read_by_pages() {
            self.windows.keep_in_memory(locked_bytes_max());
        }
    }

    /// Allocates the blocks of a range and keeps its cached pages or, if the range is not in the
    /// page cache, clears it. Returns whether the pages were kept.
    fn allocate_cached(&self, offset: u64, bytes: u64) -> io::Result<bool> {
        if !self.is_cached(offset, bytes) {
            return self.clear_range(offset, bytes).map(|()| false);
        }
        let flags = rustix::fs::FallocateFlags::empty();
        let claimed = uninterrupted(|| {
            Ok(rustix::fs::fallocate(self.file.checked()?, flags, offset, bytes)?)
        });
        match claimed {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                self.write_zeros(offset, bytes).map(|()| false)
            }
            other => other.map(|()| true),
        }
    }

    /// Returns whether a range of the file seems to be in the page cache, judging by a sample of
    /// its bytes.
    fn is_cached(&self, offset: u64, bytes: u64) -> bool {
        let step = (bytes / CACHE_PROBES).max(crate::format::GRANULE_BYTES);
        (offset..offset + bytes).step_by(step as usize).all(|at| {
            let mut byte = [0];
            let slices = &mut [io::IoSliceMut::new(&mut byte)];
            let flags = rustix::io::ReadWriteFlags::NOWAIT;
            rustix::io::preadv2(&**self.file, slices, at, flags).is_ok_and(|count| count == 1)
        })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // Unlock explicitly: the child of a fork may still have the file open, which would keep the
        // lock. In the child, the lock belongs to the parent and must not be released.
        if self.origin.is_here()
            && self.file.checked().is_ok()
            && let Lock::Description(neighbours) | Lock::ByTurns(neighbours, ..) = &self.lock
        {
            neighbours.let_go();
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

    fn set_write_hint(&self) {
        // The program may have closed the descriptor: the number may be of a file of its own.
        if let Ok(file) = self.file.checked() {
            write_hint::set(file);
        }
    }

    fn has_write_hint(&self) -> bool {
        self.file.checked().is_ok_and(write_hint::is_set)
    }

    fn end_opening(&self) {
        self.file.watch();
    }

    fn neighbours(&self) -> Option<&Neighbours> {
        match &self.lock {
            Lock::Description(neighbours) | Lock::ByTurns(neighbours, ..) => Some(neighbours),
            Lock::Byte(_) => None,
        }
    }

    fn is_read_by_lock(&self) -> bool {
        let Some(neighbours) = self.neighbours() else {
            let is_locked = |file| byte_locks::is_locked_by_others(file, LockByte::pin(0));
            return self.file.checked().and_then(is_locked).unwrap_or(true);
        };
        neighbours.is_read_by_lock()
    }

    fn file_bytes(&self) -> u64 {
        self.file_bytes.load(Ordering::Acquire)
    }

    /// Waits only for the first page, which is rarely being written back. The kernel then reports a
    /// write-back error of any page of the file, as a sync would, but without a flush.
    fn has_write_back_error(&self) -> bool {
        // The program may have closed the descriptor: the number may be of a file of its own.
        let Ok(file) = self.file.checked() else { return false };
        let (fd, page) = (file.as_raw_fd(), crate::format::GRANULE_BYTES.cast_signed());
        // SAFETY: the descriptor is open, and the call takes no pointer.
        let done = unsafe { libc::sync_file_range(fd, 0, page, libc::SYNC_FILE_RANGE_WAIT_BEFORE) };
        let is_unknown = |error: &io::Error| error.raw_os_error() == Some(libc::ENOSYS);
        done != 0 && !is_unknown(&io::Error::last_os_error())
    }

    fn is_never_written(&self) -> bool {
        is_never_written(&self.file).unwrap_or(false)
    }

    fn see_size(&self) -> io::Result<u64> {
        let bytes = Status::of(&self.file)?.bytes.min(FILE_BYTES_MAX);
        self.cover(bytes)?;
        self.file_bytes.store(bytes, Ordering::Release);
        Ok(bytes)
    }

    fn view(&self) -> Span {
        self.view.span()
    }

    fn window(&self, kind: WindowKind) -> Span {
        self.windows.span(kind)
    }

    fn read_scattered(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, offset)
    }

    fn vouch_for_reads(&self) -> io::Result<()> {
        self.file.checked().map(drop)
    }

    fn grow(&self, bytes: u64) -> io::Result<()> {
        let before = self.file_bytes();
        if bytes <= before {
            return Ok(());
        }
        assert!(bytes <= FILE_BYTES_MAX);
        refuse_over_limit(bytes)?;
        // Cover first: if this failed after the file has grown, the file would stay longer.
        self.cover(bytes)?;
        let flags = rustix::fs::FallocateFlags::empty();
        let allocated = uninterrupted(|| {
            Ok(rustix::fs::fallocate(self.file.checked()?, flags, before, bytes - before)?)
        });
        match allocated {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                write_zeros(self.file.checked()?, before, bytes - before)?;
            }
            other => other?,
        }
        self.file_bytes.store(bytes, Ordering::Release);
        Ok(())
    }

    fn outgrown_view(&self) -> Option<Work> {
        self.view.outgrown()
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        assert!(bytes.is_multiple_of(crate::format::GRANULE_BYTES) && bytes <= self.file_bytes());
        uninterrupted(|| Ok(rustix::fs::ftruncate(self.file.checked()?, bytes)?))?;
        self.file_bytes.store(bytes, Ordering::Release);
        Ok(())
    }

    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let granule = crate::format::GRANULE_BYTES;
        assert!(offset.is_multiple_of(granule) && bytes.is_multiple_of(granule));
        assert!(offset + bytes <= self.file_bytes());
        let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        uninterrupted(|| Ok(rustix::fs::fallocate(self.file.checked()?, flags, offset, bytes)?))
    }

    fn map_piece(&self, kind: WindowKind, at: u64, bytes: u64, backing: Backing) -> io::Result<()> {
        let backing = match backing {
            Backing::Growth(offset) if self.view.is_read_by_pages() => Backing::File(offset),
            other => other,
        };
        let piece = MappedPiece { at, bytes, backing, is_kept: false };
        self.windows.map_piece(self.file.checked()?, kind, piece)?;
        let is_written = matches!(backing, Backing::Growth(_)) && bytes <= WRITTEN_BYTES_MAX;
        if is_written && self.first_touch() == FirstTouch::Read {
            self.windows.pages(kind, at, bytes).with(FirstTouch::Read).fault_in();
        }
        self.keep_index();
        Ok(())
    }

    fn map_pieces(&self, kind: WindowKind, at: u64, pieces: &[(u64, u64)]) -> io::Result<()> {
        self.windows.map_pieces(self.file.checked()?, kind, at, pieces)?;
        self.keep_index();
        Ok(())
    }

    fn unmap_piece(&self, kind: WindowKind, at: u64, bytes: u64) -> io::Result<()> {
        self.windows.unmap_piece(kind, at, bytes)?;
        self.keep_index();
        Ok(())
    }

    fn move_piece(&self, kind: WindowKind, at: u64, _: u64, offset: u64) -> io::Result<()> {
        self.windows.move_piece(self.file.checked()?, kind, at, offset)
    }

    fn split_huge_pages(&self, clean: Option<&Clean<'_>>) {
        self.windows.split_huge_pages(clean);
    }

    fn populate(&self, kind: WindowKind, at: u64, bytes: u64) {
        self.windows.populate(kind, at, bytes);
    }

    fn window_pages(&self, kind: WindowKind, at: u64, bytes: u64) -> Option<Pages> {
        // Prepared pieces are large, and are cleared without creating pages if the file system can.
        Some(self.windows.pages(kind, at, bytes))
    }

    fn forget_pieces(&self) {
        self.windows.forget_pieces();
    }

    fn open_tail(&self, offset: u64, bytes: u64, used_bytes: u64) -> io::Result<Tail> {
        let part = Part { file: self.file.checked()?, offset, protection: Protection::ReadWrite };
        let reservation = if bytes < HUGE_BYTES {
            Reservation::of_file(bytes, part)?
        } else {
            // The kernel maps a large folio with a huge page only if file offset and address have
            // the same alignment.
            let reservation = Reservation::aligned(bytes)?;
            reservation.map_file(0, bytes, part)?;
            reservation
        };
        let Span { base, .. } = reservation.span();
        // SAFETY: the reservation, which the tail owns, keeps the mapping. Only the log stores to
        // the segment, and slices of the view are created only of published records, which lie
        // before the free bytes.
        let tail = unsafe { Tail::new(base, bytes, used_bytes, Some(Arc::new(reservation))) };
        Ok(tail.with(self.first_touch()))
    }

    /// Clears the segment without creating pages. The page fault then creates one large folio, so
    /// that lookups in the segment need few TLB entries, and does so without the inode lock, which
    /// a write of zeros would hold for just as long.
    fn ready_segment(
        &self,
        offset: u64,
        bytes: u64,
        is_new: bool,
        map: &Tail,
    ) -> io::Result<Option<Work>> {
        if !is_new {
            self.clear_range(offset, bytes)?;
        }
        // Blocks of a new segment were never written.
        let pages = map.pages();
        let pages = if is_new { pages.map(|pages| pages.with(FirstTouch::Write)) } else { pages };
        Ok(pages.map(|pages| -> Work { Box::new(move || pages.fault_in_huge()) }))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        refuse_over_limit(offset + bytes.len() as u64)?;
        let file = self.file.checked()?;
        write_whole(bytes, offset, |bytes, offset| file.write_at(bytes, offset))
    }

    fn write_zeros(&self, offset: u64, bytes: u64) -> io::Result<()> {
        write_zeros(self.file.checked()?, offset, bytes)
    }

    /// Creates the pages of a small piece by writing: a page created by a write costs a third of
    /// one created by a read fault, even though there is nothing to read. Its folios are no larger
    /// than those of a read fault, because clearing splits larger ones of an earlier use, unless
    /// they are dirty.
    fn clear_piece(&self, offset: u64, bytes: u64, is_new: bool) -> io::Result<()> {
        if bytes > WRITTEN_BYTES_MAX {
            return if is_new { Ok(()) } else { self.clear_range(offset, bytes) };
        }
        if !is_new {
            match self.zero_range(offset, bytes) {
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
                zeroed => zeroed?,
            }
        }
        self.write_zeros(offset, bytes)
    }

    /// Clears without creating pages: written zeros would be in large folios, where a store to a
    /// single slot would dirty 2 MiB.
    fn clear_range(&self, offset: u64, bytes: u64) -> io::Result<()> {
        match self.zero_range(offset, bytes) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                self.write_zeros(offset, bytes)
            }
            other => other,
        }
    }

    /// Keeps pages that are in the page cache, which is cheaper than creating new ones. If a range
    /// is not in the page cache it is cleared, because a store to it would first read it from the
    /// disk.
    fn claim_range(&self, offset: u64, bytes: u64) -> io::Result<()> {
        if !self.allocate_cached(offset, bytes)? {
            return Ok(());
        }
        self.claims.claim_once(self.file.checked()?, offset..offset + bytes).map(drop)
    }

    fn claim_freed(&self, offset: u64, bytes: u64) -> io::Result<()> {
        if !self.allocate_cached(offset, bytes)? {
            return Ok(());
        }
        self.claims.claim_alone(self.file.checked()?, offset..offset + bytes).map(drop)
    }

    fn hold_range(&self, offset: u64, bytes: u64) -> io::Result<()> {
        refuse_over_limit(offset + bytes)?;
        let flags = rustix::fs::FallocateFlags::empty();
        let held = uninterrupted(|| {
            Ok(rustix::fs::fallocate(self.file.checked()?, flags, offset, bytes)?)
        });
        match held {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                self.write_zeros(offset, bytes)
            }
            Err(error)
                if error.kind() == io::ErrorKind::StorageFull
                    && super::claim::has_own_blocks(&self.file, &(offset..offset + bytes)) =>
            {
                Ok(())
            }
            held => held,
        }
    }

    fn claim_stores(&self, offset: u64, bytes: u64) -> io::Result<Room> {
        self.claims.claim(self.file.checked()?, offset..offset + bytes)
    }

    fn forget_claims(&self) {
        self.claims.forget();
    }

    fn free_bytes(&self) -> io::Result<u64> {
        free_bytes(&self.file)
    }

    fn growth_bytes(&self) -> io::Result<u64> {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        let to_limit = limit.map_or(u64::MAX, |bytes| bytes.saturating_sub(self.file_bytes()));
        Ok(self.free_bytes()?.min(to_limit))
    }

    fn sync_range(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let page = crate::format::GRANULE_BYTES;
        let start = offset / page * page;
        let base = self.view.span().base.wrapping_add(start as usize);
        let len = (offset + bytes - start) as usize;
        // `msync` of a shared mapping is a range sync of its file: it covers what was written by
        // any means, and reaches the device.
        // SAFETY: the range lies in the view, which this storage keeps mapped; a sync changes no
        // contents.
        unsafe { rustix::mm::msync(base.cast(), len, MsyncFlags::SYNC) }?;
        Ok(())
    }

    fn drop_resident(&self, offset: u64, bytes: u64) {
        self.view.drop_resident(offset, bytes);
    }
}

/// Refuses a write that ends behind the process's limit on file sizes (`ulimit -f`).
///
/// The system's own refusal raises SIGXFSZ, which ends a program that does not handle it, and a
/// library must not change the handling of signals. Costs one short system call.
pub(super) fn refuse_over_limit(end: u64) -> io::Result<()> {
    match rustix::process::getrlimit(rustix::process::Resource::Fsize).current {
        Some(limit_bytes) if end > limit_bytes => Err(rustix::io::Errno::FBIG.into()),
        _ => Ok(()),
    }
}

/// Writes zeros in large calls, so that the page cache uses large folios.
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

/// Returns the kernel's id of this boot, or zeros if it has none. A process sees one boot.
pub(super) fn boot_id() -> [u8; 16] {
    static HALVES: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
    static IS_KNOWN: AtomicBool = AtomicBool::new(false);
    // No thread may wait for another that reads the id, since a child of a fork could wait forever.
    if !IS_KNOWN.load(Ordering::Acquire) {
        let Some(id) = read_boot_id() else { return [0; 16] };
        for (half, bytes) in HALVES.iter().zip(id.as_chunks().0) {
            half.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        IS_KNOWN.store(true, Ordering::Release);
    }
    let mut id = [0; 16];
    for (bytes, half) in id.as_chunks_mut().0.iter_mut().zip(&HALVES) {
        *bytes = half.load(Ordering::Relaxed).to_le_bytes();
    }
    id
}

fn read_boot_id() -> Option<[u8; 16]> {
    let mut id = [0; 16];
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    if digits.len() == 32 {
        for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = (pair[0] << 4 | pair[1]) as u8;
        }
    }
    Some(id)
}

/// Takes an open file, and returns its identity and its size.
///
/// The number of the mount is 0 unless the kernel never reuses such numbers. Older kernels do: a file system
/// may get the same number when it is mounted again, so there the number proves nothing.
fn look_at(file: File) -> io::Result<(Arc<OwnFile>, (Identity, u64))> {
    /// `STATX_MNT_ID_UNIQUE`, since Linux 6.8.
    const UNIQUE: u32 = 0x4000;
    /// Spreads a number over all bits: both numbers are often small.
    const FILE_SYSTEM_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let wanted = StatxFlags::from_bits_retain(UNIQUE) | Status::WANTED | StatxFlags::BTIME;
    let found = rustix::fs::statx(&file, "", AtFlags::EMPTY_PATH, wanted).ok();
    let has = |found: &Statx, bits: u32| found.stx_mask & bits == bits;
    // All subvolumes of a btrfs share the mount. Each has a device number, which another subvolume
    // may get once this one is deleted; and a snapshot has the inode numbers and birth times of its
    // original.
    let mixed = |mount: u64| {
        rustix::fs::fstatvfs(&file)
            .map_or(0, |system| mount ^ system.f_fsid.wrapping_mul(FILE_SYSTEM_FACTOR))
    };
    let mount_id =
        found.filter(|found| has(found, UNIQUE)).map_or(0, |found| mixed(found.stx_mnt_id));
    let birth_ns = found.filter(|found| has(found, StatxFlags::BTIME.bits())).map_or(0, |found| {
        let seconds = u64::try_from(found.stx_btime.tv_sec).unwrap_or(0);
        let nanoseconds = u64::from(found.stx_btime.tv_nsec);
        seconds.wrapping_mul(1_000_000_000).wrapping_add(nanoseconds)
    });
    let status = match found.and_then(|found| Status::of_statx(&found)) {
        Some(status) => status,
        None => Status::of(&file)?,
    };
    let Status { device, inode, bytes, .. } = status;
    let identity = Identity { boot_id: boot_id(), mount_id, device, inode, birth_ns };
    let file = Arc::new(OwnFile::known(file, device, inode));
    Ok((file, (identity, bytes.min(FILE_BYTES_MAX))))
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;
    use crate::format::GRANULE_BYTES;
    use crate::storage::limits::memory_limit_bytes;

    /// Returns the line that the kernel has of the mapping at `base`.
    fn line(base: *const u8, name: &str) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("Linux has it");
        let start = format!("{:x}-", base.addr());
        let of_base = maps.lines().skip_while(|line| !line.starts_with(&start));
        of_base.into_iter().find(|line| line.starts_with(name)).expect("a mapping").to_owned()
    }

    /// Returns the kernel's flags of the mapping at `base`: two letters for each advice.
    fn flags(base: *const u8) -> String {
        line(base, "VmFlags:")
    }

    /// Creates a file of that size in `dir`, one hole that takes no space.
    fn sparse(dir: &tempfile::TempDir, bytes: u64) -> (File, PathBuf) {
        let path = dir.path().join("sparse");
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(&path);
        let file = file.expect("the directory is ours");
        file.set_len(bytes).expect("a hole takes no room");
        (file, path)
    }

    /// Behind the end of the file a store raises the same signal as one without a block on a full disk.
    #[test]
    fn the_last_page_of_a_tail_that_cannot_be_stored_to_is_found_without_a_signal() {
        let dir = tempfile::tempdir().unwrap();
        let (file, path) = sparse(&dir, 4 * GRANULE_BYTES);
        let storage = Mapped::new(file.try_clone().unwrap(), path, true).unwrap();
        let tail = storage.open_tail(GRANULE_BYTES, 3 * GRANULE_BYTES, 0).unwrap();
        let can_be_stored_to = || tail.pages().unwrap().can_ends_be_stored_to();
        assert!(can_be_stored_to());
        file.set_len(3 * GRANULE_BYTES).unwrap();
        assert!(!can_be_stored_to());
    }

    /// `rr` is random reading, `hg` huge pages.
    #[test]
    fn a_file_that_outgrows_half_of_the_memory_is_read_by_single_pages() {
        let dir = tempfile::tempdir().unwrap();
        let (file, path) = sparse(&dir, 1 << 20);
        let storage = Mapped::new(file.try_clone().unwrap(), path.clone(), true).unwrap();
        let flags_now = || flags(storage.view().base);
        assert!(!flags_now().contains(" rr"), "{}", flags_now());
        file.set_len(memory_limit_bytes() / 2 - (1 << 20)).unwrap();
        storage.see_size().unwrap();
        assert!(!flags_now().contains(" rr"), "{}", flags_now());

        file.set_len(memory_limit_bytes() / 2 + (1 << 20)).unwrap();
        storage.see_size().unwrap();
        let of_large = flags_now();
        assert!(of_large.contains(" rr") && !of_large.contains(" hg"), "{of_large}");
        let opened = Mapped::new(file, path, false).unwrap();
        assert!(flags(opened.view().base).contains(" rr"), "large when it is opened");
    }

    #[test]
    fn a_piece_by_which_a_table_grows_has_huge_pages_until_they_are_split() {
        let is_single = |base| line(base, "FilePmdMapped:").ends_with(" 0 kB");
        let dir = tempfile::tempdir().unwrap();
        let (file, path) = sparse(&dir, 4 * HUGE_BYTES);
        let storage = Mapped::new(file, path, true).unwrap();
        storage.clear_range(0, 4 * HUGE_BYTES).unwrap();
        let map = |at, backing| storage.map_piece(WindowKind::Buckets, at, HUGE_BYTES, backing);
        map(0, Backing::File(0)).unwrap();
        let base = || storage.window(WindowKind::Buckets).base;
        assert!(flags(base()).contains(" rr"), "a piece that was there has single pages");
        map(HUGE_BYTES, Backing::Growth(2 * HUGE_BYTES)).unwrap();
        let grown = base().wrapping_add(HUGE_BYTES as usize);
        assert!(grown.addr().is_multiple_of(HUGE_BYTES as usize));
        assert!(flags(grown).contains(" hg"), "{}", flags(grown));
        let pages = storage.window_pages(WindowKind::Buckets, HUGE_BYTES, HUGE_BYTES);
        pages.expect("a file has them").fault_in();
        // SAFETY: the piece is mapped, and nothing else refers to it.
        unsafe { grown.wrapping_add(8 * 4096).write(7) };
        if is_single(grown) {
            println!("this file system has no huge pages: the split has nothing to do");
        }
        storage.sync_range(0, 4 * HUGE_BYTES).unwrap();

        let cleaned = std::cell::RefCell::new(Vec::new());
        storage.split_huge_pages(Some(&|offset, bytes| {
            cleaned.borrow_mut().push((offset, bytes));
            true
        }));
        assert_eq!(*cleaned.borrow(), [(2 * HUGE_BYTES, HUGE_BYTES)], "the other has no huge page");
        assert!(!flags(base()).contains(" hg"));
        assert!(is_single(grown), "no page of the index is huge any more");
        assert_eq!(storage.read(2 * HUGE_BYTES + 8 * 4096, 1), [7], "the contents stay");
    }

    #[test]
    fn pieces_that_are_listed_are_mapped_once_however_large_their_window_becomes() {
        const PIECE_BYTES: u64 = 64 << 10;
        let dir = tempfile::tempdir().unwrap();
        let (file, path) = sparse(&dir, 8 << 20);
        let storage = Mapped::new(file.try_clone().unwrap(), path.clone(), true).unwrap();
        // A small one, then large ones, all apart in the file.
        let mut pieces = vec![(GRANULE_BYTES, 0)];
        pieces.extend((1..32).map(|i| (PIECE_BYTES, 2 * i * PIECE_BYTES)));
        for &(_, offset) in &pieces {
            file.write_all_at(&offset.to_le_bytes(), offset).unwrap();
        }
        storage.map_pieces(WindowKind::Buckets, 0, &pieces).unwrap();
        let base = storage.window(WindowKind::Buckets).base;
        let mut at = 0;
        for &(bytes, offset) in &pieces {
            let base = base.wrapping_add(at as usize);
            // SAFETY: the piece is mapped, and nobody stores to it.
            assert_eq!(unsafe { base.cast::<[u8; 8]>().read() }, offset.to_le_bytes());
            assert_eq!(flags(base).contains(" rr"), bytes == PIECE_BYTES, "{}", flags(base));
            let mut read = [0; 8];
            storage.read_scattered(offset, &mut read).unwrap();
            assert_eq!(u64::from_le_bytes(read), offset);
            at += bytes;
        }
        let behind = storage.read_scattered(8 << 20, &mut [0]);
        assert_eq!(behind.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path = path.canonicalize().unwrap();
        let of_file = maps.lines().filter(|line| line.ends_with(path.to_str().unwrap()));
        // The view of the whole file, and each piece.
        assert_eq!(of_file.count(), 1 + pieces.len());
    }

    #[test]
    fn a_small_piece_by_which_a_table_grows_has_its_pages_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let (file, path) = sparse(&dir, 1 << 20);
        let storage = Mapped::new(file.try_clone().unwrap(), path, true).unwrap();
        storage.write_at(768 << 10, &[1]).unwrap();
        if !storage.is_cached(768 << 10, 1) {
            println!("tmpfs does not say what is in memory");
            return;
        }
        storage.clear_range(0, WRITTEN_BYTES_MAX).unwrap();
        if storage.is_cached(0, WRITTEN_BYTES_MAX) {
            println!("this file system clears by writing: there is nothing to see");
            return;
        }
        storage.clear_piece(256 << 10, WRITTEN_BYTES_MAX, false).unwrap();
        assert!(storage.is_cached(256 << 10, WRITTEN_BYTES_MAX), "no store to it reads a page");
        storage.clear_piece(512 << 10, 2 * WRITTEN_BYTES_MAX, false).unwrap();
        assert!(!storage.is_cached(512 << 10, 4096), "its folios would be large");
    }

    /// Returns how many pages of the first 2 MiB of a file are dirty, if the kernel says it (Linux 6.5).
    fn dirty_count(file: &File) -> Option<u64> {
        const CACHESTAT: libc::c_long = 451;
        let (range, mut found) = ([0, HUGE_BYTES], [0_u64; 5]);
        // SAFETY: the kernel reads two numbers and writes five.
        let done = unsafe {
            libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), found.as_mut_ptr(), 0)
        };
        (done == 0).then_some(found[1])
    }

    #[test]
    fn a_small_piece_where_a_segment_was_has_no_large_folio() {
        let dir = tempfile::tempdir().unwrap();
        let (file, path) = sparse(&dir, 2 * HUGE_BYTES);
        let storage = Mapped::new(file.try_clone().unwrap(), path, true).unwrap();
        let dirtied = |base: *mut u8| {
            storage.sync_range(0, HUGE_BYTES).unwrap();
            // SAFETY: the address is mapped for writing, and nothing refers to it.
            unsafe { base.write(7) };
            dirty_count(&file)
        };
        let tail = storage.open_tail(0, HUGE_BYTES, 0).unwrap();
        storage.ready_segment(0, HUGE_BYTES, false, &tail).unwrap().expect("the thread's work")();
        if dirtied(tail.pages().expect("a file has them").span().base) != Some(512) {
            println!(
                "this file system has no large folios, or the kernel does not say what is dirty"
            );
            return;
        }
        drop(tail);
        storage.sync_range(0, HUGE_BYTES).unwrap();
        storage.clear_piece(256 << 10, 64 << 10, false).unwrap();
        let backing = Backing::Growth(256 << 10);
        storage.map_piece(WindowKind::Buckets, 0, 64 << 10, backing).unwrap();
        let dirty_count =
            dirtied(storage.window(WindowKind::Buckets).base).expect("it said so above");
        assert!(dirty_count <= WRITTEN_BYTES_MAX / 4096, "{dirty_count}");
    }

    #[test]
    fn a_window_that_has_left_the_cell_stays_for_long_where_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let (file, path) = sparse(&dir, 8 << 20);
        let storage = Mapped::new(file, path, true).unwrap();
        let base = || storage.window(WindowKind::Buckets).base;
        let map = |at, bytes| {
            storage.map_piece(WindowKind::Buckets, at, bytes, Backing::Growth(at)).unwrap();
            base()
        };
        let cell = map(0, 32 << 10);
        let moved = map(32 << 10, 4 << 10);
        assert_ne!(moved, cell);
        assert_eq!(map(36 << 10, (1 << 20) - (36 << 10)), moved);
        let moved_again = map(1 << 20, 1 << 20);
        assert_ne!(moved_again, moved);
        assert_eq!(map(2 << 20, 6 << 20), moved_again);
    }

    /// Returns the page faults of this thread so far.
    fn fault_count() -> i64 {
        // SAFETY: the struct is of integers, of which each may be zero.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes the struct that it is given.
        assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) }, 0);
        usage.ru_minflt
    }

    #[test]
    fn many_pages_of_tmpfs_come_in_one_fault_and_a_store_needs_no_other() {
        const PAGES: u64 = 256;
        let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return };
        let (file, path) = sparse(&dir, 2 << 20);
        let storage = Mapped::new(file, path, true).unwrap();
        storage.write_zeros(0, PAGES * 4096).unwrap();
        let tail = storage.open_tail(0, PAGES * 4096, 0).unwrap();
        let Span { base, .. } = tail.pages().expect("a file has them").span();
        let before = fault_count();
        tail.pages().expect("a file has them").fault_in();
        let taken_count = fault_count() - before;
        if storage.first_touch() == FirstTouch::Write || taken_count == 0 {
            println!("it is not tmpfs, or the kernel takes no faults ahead");
            return;
        }
        for page in 0..PAGES as usize {
            // SAFETY: the pages are mapped as long as `tail` lives, and nothing refers to them.
            unsafe { base.wrapping_add(page * 4096).write(7) };
        }
        let stored_count = fault_count() - before - taken_count;
        let few = PAGES.cast_signed() / 4;
        assert!(taken_count < few, "{taken_count} faults");
        assert!(stored_count < few, "{stored_count} faults of stores");
    }

    #[test]
    fn a_descriptor_that_leads_elsewhere_tells_nothing_of_the_device() {
        use std::os::fd::{FromRawFd as _, OwnedFd};
        let dir = tempfile::tempdir().unwrap();
        let (file, path) = sparse(&dir, 1 << 20);
        let number = file.as_raw_fd();
        let storage = Mapped::new(file, path, true).unwrap();
        let (pipe, _end) = std::io::pipe().unwrap();
        storage.vouch_for_reads().unwrap();
        // SAFETY: the descriptor is open, and this value is never dropped.
        let mut place = std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
        rustix::io::dup2(&pipe, &mut place).unwrap();
        assert!(storage.vouch_for_reads().is_err());
        // A pipe has no range to be synced.
        assert!(!storage.has_write_back_error());
        assert_eq!(storage.first_touch(), FirstTouch::Write);
        assert!(storage.first_touch.get().is_none(), "the file system is that of another file");
    }

    /// `lo` is locked: the kernel does not take the pages back.
    #[test]
    fn the_index_of_a_file_larger_than_half_of_the_memory_stays_in_memory_while_it_fits() {
        let dir = tempfile::tempdir().unwrap();
        let (file, path) = sparse(&dir, 1 << 20);
        let storage = Mapped::new(file.try_clone().unwrap(), path, true).unwrap();
        let map = |at, bytes| {
            storage.map_piece(WindowKind::Buckets, at, bytes, Backing::File(0)).unwrap();
        };
        let is_locked = || flags(storage.window(WindowKind::Buckets).base).contains(" lo");
        map(0, 4096);
        assert!(!is_locked(), "a small file is in memory anyway");
        file.set_len(memory_limit_bytes() / 2 + (1 << 20)).unwrap();
        storage.see_size().unwrap();
        assert!(is_locked(), "from the moment on at which the file is large");
        map(4096, 4096);
        map(64 << 10, 64 << 10);
        assert!(is_locked(), "so are pieces that come later, wherever the window moves");
        map(128 << 10, memory_limit_bytes());
        assert!(!is_locked(), "an index that does not fit would leave no room for records");
    }
}
