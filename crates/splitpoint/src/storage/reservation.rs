//! Address space of this process: asked for, mapped over, given back.
//!
//! A handle asks for as much as its file or table needs, and a few times that, so that it moves
//! seldom; there may be ten thousand of them in a process, and limits on all of it (`ulimit -v`,
//! `vm.max_map_count`).

use std::fmt;
use std::fs::File;
use std::io;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags};

use super::{Owner, Span};

/// Size of a huge page in bytes.
pub(super) const HUGE_BYTES: u64 = 2 << 20;

/// The system grants this process no more address space, or no more mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoAddressSpace {
    /// What was asked for.
    pub(crate) bytes: u64,
}

impl fmt::Display for NoAddressSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no address space for a mapping of {} bytes", self.bytes)
    }
}

impl std::error::Error for NoAddressSpace {}

impl NoAddressSpace {
    /// Returns what was refused, if that is why `error` was returned.
    pub(crate) fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}

/// Returns the error of a mapping of `bytes` that was refused.
fn refused(error: Errno, bytes: u64) -> io::Error {
    match error {
        Errno::NOMEM => io::Error::new(io::ErrorKind::OutOfMemory, NoAddressSpace { bytes }),
        other => other.into(),
    }
}

/// Calls `take` with each size until there is address space for one.
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

/// A part of a file to be mapped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'a> {
    pub(super) file: &'a File,
    pub(super) offset: u64,
    pub(super) protection: Protection,
}

/// Address space that is given back when its owner goes.
#[derive(Debug)]
pub(super) struct Reservation(Span);

// SAFETY: address space belongs to the process, not to a thread.
unsafe impl Send for Reservation {}
// SAFETY: as above; the type itself reads and writes nothing.
unsafe impl Sync for Reservation {}

impl Owner for Reservation {}

impl Reservation {
    /// Reserves `bytes`.
    pub(super) fn new(bytes: u64) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at a place of the kernel's choice touches nothing of ours.
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

    /// Reserves `bytes` that begin at a multiple of a huge page.
    pub(super) fn aligned(bytes: u64) -> io::Result<Self> {
        let Self(Span { base: start, .. }) =
            *std::mem::ManuallyDrop::new(Self::new(bytes + HUGE_BYTES)?);
        let skip = start.align_offset(HUGE_BYTES as usize);
        let base = start.wrapping_add(skip);
        let after = HUGE_BYTES - skip as u64;
        // The ends of the mapping just made go back.
        for (base, bytes) in [(start, skip as u64), (base.wrapping_add(bytes as usize), after)] {
            if bytes > 0 {
                drop(Self(Span { base, bytes }));
            }
        }
        Ok(Self(Span { base, bytes }))
    }

    /// Maps `bytes` of a file at once, at a place of the kernel's choice.
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

    /// Returns the address of byte `at`, from which on there must be `bytes`.
    fn at(&self, at: u64, bytes: u64) -> *mut u8 {
        assert!(at.checked_add(bytes).is_some_and(|end| end <= self.0.bytes));
        self.0.base.wrapping_add(at as usize)
    }

    /// Lays a mapping of a file over `bytes` from `at` on, in place of what is there.
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

    /// Lays zeroed memory over `bytes` from `at` on, in place of what is there. It is memory that
    /// [`map_again`](Self::map_again) can show elsewhere as well.
    pub(super) fn map_memory(&self, at: u64, bytes: u64) -> io::Result<()> {
        let base = self.at(at, bytes);
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
        let protection = Protection::ReadWrite.flags();
        // SAFETY: the range lies in this reservation, over which a new mapping may be laid.
        let mapped =
            unsafe { rustix::mm::mmap_anonymous(base.cast(), bytes as usize, protection, flags) };
        mapped.map(drop).map_err(|error| refused(error, bytes))
    }

    /// Shows the memory of `other` from `at` on here as well, at the same distance from the base.
    /// It must be one mapping, laid by [`map_memory`](Self::map_memory).
    pub(super) fn map_again(
        &self,
        at: u64,
        other: &Self,
        other_at: u64,
        bytes: u64,
    ) -> io::Result<()> {
        let (from, to) = (other.at(other_at, bytes), self.at(at, bytes));
        // SAFETY: an old size of 0 leaves the old mapping of shared memory as it is and makes another
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

    /// Tells the kernel how `bytes` from `at` on are used. A kernel that does not know an advice
    /// refuses it, and nothing is lost.
    pub(super) fn advise(&self, at: u64, bytes: u64, advices: &[Advice]) {
        let base = self.at(at, bytes);
        for &advice in advices {
            // SAFETY: the range is ours. Of the advices in use here, those that drop pages are given
            // for shared mappings of files only, which bring them back.
            let _ = unsafe { rustix::mm::madvise(base.cast(), bytes as usize, advice) };
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let Span { base, bytes } = self.0;
        // SAFETY: the span is ours, and the storage that lent it out outlives its users.
        let unmapped = unsafe { rustix::mm::munmap(base.cast(), bytes as usize) };
        debug_assert!(unmapped.is_ok());
    }
}
