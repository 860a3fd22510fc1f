//! Memory that is about to be written, whose pages can be faulted in ahead of the writer.

use std::fs::File;
use std::io;
use std::sync::Arc;

use rustix::mm::Advice;

use super::{Owner, Span};
use crate::format::GRANULE_BYTES;

/// Bytes whose faults [`Pages::fault_in_slices`] takes in one call.
const SLICE_BYTES: u64 = 128 << 10;

/// `f_type` of tmpfs.
const TMPFS: i64 = 0x0102_1994;

/// How the kernel is asked for the pages of a shared mapping that will be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FirstTouch {
    /// As if each page was stored to: file systems want to know which pages become dirty.
    #[default]
    Write,
    /// As if each page was read. tmpfs does not ask, so it maps 16 pages that are there in one fault, and a
    /// store to them needs no other. Not for pages that have blocks and were never written: those take one
    /// fault each, and longer than for a store.
    Read,
}

impl FirstTouch {
    /// Returns that of a file, by its file system.
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let system = rustix::fs::fstatfs(file)?;
        Ok(if system.f_type & 0xffff_ffff == TMPFS { Self::Read } else { Self::Write })
    }
}

/// Complete pages of a tail segment or of a window.
#[derive(Debug)]
pub(crate) struct Pages {
    span: Span,
    first_touch: FirstTouch,
    /// Keeps the memory mapped.
    _owner: Arc<dyn Owner>,
}

// SAFETY: the owner keeps the span mapped; it belongs to the process, not to a thread, and no
// method reads or writes its bytes.
unsafe impl Send for Pages {}

impl Pages {
    /// Wraps `bytes` of pages at `base`, in the memory of `owner`.
    pub(super) fn new(base: *mut u8, bytes: u64, owner: Arc<dyn Owner>) -> Self {
        Self { span: Span { base, bytes }, first_touch: FirstTouch::Write, _owner: owner }
    }

    /// Has the faults taken in this way.
    pub(super) fn with(self, first_touch: FirstTouch) -> Self {
        Self { first_touch, ..self }
    }

    #[cfg(test)]
    pub(super) fn span(&self) -> Span {
        self.span
    }

    /// Returns whether all pages are in memory; `None` if this kernel takes no faults ahead.
    #[cfg(all(test, not(any(loom, miri))))]
    pub(crate) fn are_resident(&self) -> Option<bool> {
        let Span { base, bytes } = self.span;
        advise(Span { base, bytes: 0 }, Advice::LinuxPopulateWrite).ok()?;
        let mut of_pages = vec![0; (bytes / 4096) as usize];
        // SAFETY: the owner keeps the span mapped, and the vector has the byte that the kernel
        // writes for each page.
        let done = unsafe { libc::mincore(base.cast(), bytes as usize, of_pages.as_mut_ptr()) };
        Some(done == 0 && of_pages.iter().all(|flags: &u8| flags & 1 == 1))
    }

    /// Takes the faults of all pages at once, which costs a fraction of one by one.
    ///
    /// It does not change the contents, so other threads may write meanwhile. A kernel before Linux
    /// 5.14 leaves the faults to the writer, and so does a lack of memory.
    pub(crate) fn fault_in(&self) {
        self.fault_in_span(self.span);
    }

    /// As [`fault_in`](Self::fault_in), for a part of the pages.
    pub(crate) fn fault_in_part(&self, part: std::ops::Range<u64>) {
        let Span { base, bytes } = self.span;
        assert!(part.start <= part.end && part.end <= bytes);
        self.fault_in_span(Span {
            base: base.wrapping_add(part.start as usize),
            bytes: part.end - part.start,
        });
    }

    /// Returns whether all pages can be stored to; `false` if a store would raise a signal.
    pub(crate) fn can_be_stored_to(&self) -> bool {
        can_be_stored_to(self.span)
    }

    /// Returns the same of the first page and the last one, whose folios may go on outside.
    pub(crate) fn can_ends_be_stored_to(&self) -> bool {
        let Span { base, bytes } = self.span;
        let last = base.wrapping_add((bytes - GRANULE_BYTES) as usize);
        [base, last].into_iter().all(|base| can_be_stored_to(Span { base, bytes: GRANULE_BYTES }))
    }

    /// As [`fault_in`](Self::fault_in), with huge pages if the file system has them.
    pub(crate) fn fault_in_huge(&self) {
        // Without a huge page, small ones do.
        let _ = advise(self.span, Advice::LinuxHugepage);
        self.fault_in_span(self.span);
    }

    /// Does the same as [`fault_in`](Self::fault_in), a little at a time: the kernel locks the
    /// address space meanwhile, and a writer that maps something waits for the lock.
    pub(crate) fn fault_in_slices(&self) {
        let Span { base, bytes } = self.span;
        for at in (0..bytes).step_by(SLICE_BYTES as usize) {
            let base = base.wrapping_add(at as usize);
            self.fault_in_span(Span { base, bytes: SLICE_BYTES.min(bytes - at) });
        }
    }

    fn fault_in_span(&self, span: Span) {
        let advice = match self.first_touch {
            FirstTouch::Write => Advice::LinuxPopulateWrite,
            FirstTouch::Read => Advice::LinuxPopulateRead,
        };
        // The writer takes the faults that fail here.
        let _ = advise(span, advice);
    }
}

/// Returns whether all pages of a span can be stored to; `false` if a store would raise a signal.
pub(super) fn can_be_stored_to(span: Span) -> bool {
    // A kernel before Linux 5.14 does not know the advice, and returns another error.
    advise(span, Advice::LinuxPopulateWrite) != Err(rustix::io::Errno::FAULT)
}

#[cfg(not(miri))]
fn advise(span: Span, advice: Advice) -> rustix::io::Result<()> {
    // SAFETY: the span lies in memory that its owner keeps mapped. The advice values above change
    // no contents, and the kernel refuses pages that cannot be written.
    unsafe { rustix::mm::madvise(span.base.cast(), span.bytes as usize, advice) }
}

#[cfg(miri)]
fn advise(_: Span, _: Advice) -> rustix::io::Result<()> {
    Ok(())
}
