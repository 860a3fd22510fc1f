//! Address space of this process: reserves it, maps over it, and releases it.
//!
//! A handle reserves a few times as much as its file or table needs, so that it seldom moves. A
//! process may have ten thousand handles, and limits on its address space (`ulimit -v`) and its
//! mappings (`vm.max_map_count`).

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MlockFlags, MremapFlags, ProtFlags};

use super::{Owner, Span};
use crate::format::GRANULE_BYTES;

/// Size of a huge page in bytes.
pub(crate) const HUGE_BYTES: u64 = 2 << 20;

/// The system grants this process no more address space, or no more mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoAddressSpace {
    /// Size of the refused mapping.
    pub(crate) bytes: u64,
}

impl fmt::Display for NoAddressSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no address space for a mapping of {} bytes", self.bytes)
    }
}

impl std::error::Error for NoAddressSpace {}

impl NoAddressSpace {
    /// Returns the refused mapping that is the cause of `error`, if one is.
    pub(crate) fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}

/// Returns the error of a refused mapping of `bytes`.
fn refused(error: Errno, bytes: u64) -> io::Error {
    match error {
        Errno::NOMEM => io::Error::new(io::ErrorKind::OutOfMemory, NoAddressSpace { bytes }),
        other => other.into(),
    }
}

/// Calls `take` with one size after the other until there is address space.
pub(super) fn first_that_fits<T>(
    sizes: &[u64],
    mut take: impl FnMut(u64) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = Err(io::ErrorKind::InvalidInput.into());
    for &bytes in sizes {
        last = take(bytes);
        match &last {
            Err(error) if NoAddressSpace::of(error).is_some() => {}
            _ => return last,
        }
    }
    last
}

/// Returns the addresses of a mapping, if `line` of `/proc/self/smaps` begins with them.
fn address_range(line: &str) -> Option<Range<usize>> {
    let (start, rest) = line.split_once('-')?;
    let end = rest.split(' ').next()?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

/// Whether a range of a file is mapped for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protection {
    Read,
    ReadWrite,
}

impl Protection {
    fn flags(self) -> ProtFlags {
        match self {
            Self::Read => ProtFlags::READ,
            Self::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        }
    }
}

/// A part of a file to map.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'a> {
    pub(super) file: &'a File,
    pub(super) offset: u64,
    pub(super) protection: Protection,
}

/// Address space that is released on drop.
#[derive(Debug)]
pub(super) struct Reservation(Span);

// SAFETY: address space belongs to the process, not to a thread, and this value unmaps it only on
// drop.
unsafe impl Send for Reservation {}
// SAFETY: as for `Send`; no method reads or writes the memory.
unsafe impl Sync for Reservation {}

impl Owner for Reservation {}

impl Reservation {
    /// Reserves `bytes`.
    pub(super) fn new(bytes: u64) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses does not overlap an existing
        // one.
        let mapped = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                bytes as usize,
                ProtFlags::empty(),
                flags,
            )
        };
        match mapped {
            Ok(start) => Ok(Self(Span { base: start.cast(), bytes })),
            Err(error) => Err(refused(error, bytes)),
        }
    }

    /// Reserves `bytes`, aligned to a huge page.
    pub(super) fn aligned(bytes: u64) -> io::Result<Self> {
        let Self(Span { base: start, .. }) =
            *std::mem::ManuallyDrop::new(Self::new(bytes + HUGE_BYTES)?);
        let skip = start.align_offset(HUGE_BYTES as usize);
        let base = start.wrapping_add(skip);
        let after = HUGE_BYTES - skip as u64;
        // Release both ends of the new mapping.
        for (base, bytes) in [(start, skip as u64), (base.wrapping_add(bytes as usize), after)] {
            if bytes > 0 {
                drop(Self(Span { base, bytes }));
            }
        }
        Ok(Self(Span { base, bytes }))
    }

    /// Maps `bytes` of a file, at an address of the kernel's choice.
    pub(super) fn of_file(bytes: u64, part: Part<'_>) -> io::Result<Self> {
        let Part { file, offset, protection } = part;
        // SAFETY: as for `new`.
        let mapped = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes as usize,
                protection.flags(),
                MapFlags::SHARED,
                file,
                offset,
            )
        };
        match mapped {
            Ok(start) => Ok(Self(Span { base: start.cast(), bytes })),
            Err(error) => Err(refused(error, bytes)),
        }
    }

    /// Returns the address space.
    pub(super) fn span(&self) -> Span {
        self.0
    }

    /// Returns the address of byte `at`, after which there must be `bytes`.
    fn at(&self, at: u64, bytes: u64) -> *mut u8 {
        assert!(at.checked_add(bytes).is_some_and(|end| end <= self.0.bytes));
        self.0.base.wrapping_add(at as usize)
    }

    /// Maps a file over `bytes` from `at` on, in place of what is there.
    pub(super) fn map_file(&self, at: u64, bytes: u64, part: Part<'_>) -> io::Result<()> {
        let Part { file, offset, protection } = part;
        let base = self.at(at, bytes);
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the range lies in this reservation, over which a new mapping may be laid.
        let mapped = unsafe {
            rustix::mm::mmap(base.cast(), bytes as usize, protection.flags(), flags, file, offset)
        };
        mapped.map(drop).map_err(|error| refused(error, bytes))
    }

    /// Maps zeroed memory over `bytes` from `at` on, in place of what is there.
    /// [`map_again`](Self::map_again) can show this memory elsewhere as well.
    pub(super) fn map_memory(&self, at: u64, bytes: u64) -> io::Result<()> {
        let base = self.at(at, bytes);
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
        let protection = Protection::ReadWrite.flags();
        // SAFETY: the range lies in this reservation, over which a new mapping may be laid.
        let mapped =
            unsafe { rustix::mm::mmap_anonymous(base.cast(), bytes as usize, protection, flags) };
        mapped.map(drop).map_err(|error| refused(error, bytes))
    }

    /// Maps zeros over `bytes` from `at` on, in place of what is there. No moment is without a mapping.
    pub(super) fn map_zeros(&self, at: u64, bytes: u64) -> io::Result<()> {
        let base = self.at(at, bytes);
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        let protection = Protection::ReadWrite.flags();
        // SAFETY: the range lies in this reservation, over which a new mapping may be laid.
        let mapped =
            unsafe { rustix::mm::mmap_anonymous(base.cast(), bytes as usize, protection, flags) };
        mapped.map(drop).map_err(|error| refused(error, bytes))
    }

    /// Maps the memory of `other` from `other_at` on here as well, at `at`. It must be one mapping,
    /// created by [`map_memory`](Self::map_memory).
    pub(super) fn map_again(
        &self,
        at: u64,
        other: &Self,
        other_at: u64,
        bytes: u64,
    ) -> io::Result<()> {
        let (from, to) = (other.at(other_at, bytes), self.at(at, bytes));
        // SAFETY: an old size of 0 keeps the old mapping of shared memory and creates another one
        // of the same pages, here inside this reservation.
        let mapped = unsafe {
            rustix::mm::mremap_fixed(
                from.cast(),
                0,
                bytes as usize,
                MremapFlags::MAYMOVE,
                to.cast(),
            )
        };
        mapped.map(drop).map_err(|error| refused(error, bytes))
    }

    /// Advises the kernel on how `bytes` from `at` on are used. A kernel that does not know an
    /// advice refuses it, which does no harm.
    pub(super) fn advise(&self, at: u64, bytes: u64, advices: &[Advice]) {
        let base = self.at(at, bytes);
        for &advice in advices {
            // SAFETY: the range lies in this reservation. Advice that drops pages is used here only
            // for shared mappings of files, whose pages are reloaded with the same contents.
            let _ = unsafe { rustix::mm::madvise(base.cast(), bytes as usize, advice) };
        }
    }

    /// Gives the pages of a range of private memory back to the system; the bytes are 0 afterwards.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the range does not consist of whole pages; otherwise what the system says.
    pub(super) fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        let page_bytes = rustix::param::page_size() as u64;
        if !at.is_multiple_of(page_bytes) || !bytes.is_multiple_of(page_bytes) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let base = self.at(at, bytes);
        let advice = Advice::LinuxDontNeed;
        // SAFETY: the range lies in this reservation, and the caller promises that nothing refers
        // to it.
        Ok(unsafe { rustix::mm::madvise(base.cast(), bytes as usize, advice) }?)
    }

    /// Returns whether the mapping at `at` has huge pages of a file, as far as the kernel says.
    ///
    /// Costs a walk over the mappings of this process.
    pub(super) fn has_huge_pages(&self, at: u64) -> bool {
        let address = self.at(at, 1).addr();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        let mut lines = maps.lines();
        let found = lines.find(|line| address_range(line).is_some_and(|r| r.contains(&address)));
        let of_mapping = lines.take_while(|line| address_range(line).is_none());
        let mut huge = of_mapping.filter_map(|line| line.strip_prefix("FilePmdMapped:"));
        found.is_some() && huge.next().is_some_and(|size| size.trim() != "0 kB")
    }

    /// Keeps pages in memory from their first use on; fails if the process may not lock so many
    /// (`ulimit -l`).
    pub(super) fn lock_pages(&self, at: u64, bytes: u64) -> io::Result<()> {
        let base = self.at(at, bytes);
        // SAFETY: the range lies in this reservation; locking pages changes no contents.
        Ok(unsafe { rustix::mm::mlock_with(base.cast(), bytes as usize, MlockFlags::ONFAULT) }?)
    }

    /// Lets the kernel take pages back that [`lock_pages`](Self::lock_pages) has locked.
    pub(super) fn unlock_pages(&self, at: u64, bytes: u64) {
        let base = self.at(at, bytes);
        // SAFETY: the range lies in this reservation; unlocking pages changes no contents. It fails
        // for pages that are not locked, which does no harm.
        let _ = unsafe { rustix::mm::munlock(base.cast(), bytes as usize) };
    }

    /// Splits the huge pages of a mapping of a file, as far as they are clean and no other process
    /// maps them. Their contents stay in the cache.
    ///
    /// The kernel splits a huge page of which only a part is to be reclaimed first.
    pub(super) fn split_huge_pages(&self, at: u64, bytes: u64) {
        for unit in (at..at + bytes).step_by(HUGE_BYTES as usize) {
            self.advise(unit, GRANULE_BYTES, &[Advice::LinuxCold]);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let Span { base, bytes } = self.0;
        // SAFETY: this value owns the span. The storage that has given it out outlives all users,
        // so nothing refers to it any more.
        let unmapped = unsafe { rustix::mm::munmap(base.cast(), bytes as usize) };
        debug_assert!(unmapped.is_ok());
    }
}
