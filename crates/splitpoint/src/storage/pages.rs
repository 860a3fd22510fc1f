//! Memory that is about to be written, whose page faults can be taken ahead of the writer.

use std::sync::Arc;

use rustix::mm::Advice;

use super::{Owner, Span};

/// Bytes whose faults are taken by one call of several.
const SLICE_BYTES: u64 = 128 << 10;

/// Whole pages of a tail segment or of a window.
#[derive(Debug)]
pub(crate) struct Pages {
    span: Span,
    /// What gives the memory back.
    _owner: Arc<dyn Owner>,
}

// SAFETY: the span is memory of its owner, which belongs to the process, not to a thread, and no
// method reads or writes it.
unsafe impl Send for Pages {}

impl Pages {
    /// Returns `bytes` of pages at `base`, which lie in the memory of `owner`.
    pub(super) fn new(base: *mut u8, bytes: u64, owner: Arc<dyn Owner>) -> Self {
        Self { span: Span { base, bytes }, _owner: owner }
    }

    /// Takes the faults of all pages at once, which costs a fraction of one by one. It changes no
    /// content, so others may write meanwhile; a kernel that cannot (before Linux 5.14) leaves them
    /// to the writer, and so does memory that is not to be had.
    pub(crate) fn fault_in(&self) {
        fault_in(self.span);
    }

    /// Returns whether all pages can be stored to: `false` where a store would be a signal.
    pub(crate) fn can_be_stored_to(&self) -> bool {
        // A kernel that does not know the question (before Linux 5.14) says so by another error.
        advise(self.span, Advice::LinuxPopulateWrite) != Err(rustix::io::Errno::FAULT)
    }

    /// As [`fault_in`](Self::fault_in), in huge pages where the file system has them.
    pub(crate) fn fault_in_huge(&self) {
        // One that the kernel does not give is as good as any.
        let _ = advise(self.span, Advice::LinuxHugepage);
        fault_in(self.span);
    }

    /// As [`fault_in`](Self::fault_in), a little at a time: the kernel keeps a lock on the address
    /// space meanwhile, and a writer that maps something waits for it.
    pub(crate) fn fault_in_slices(&self) {
        let Span { base, bytes } = self.span;
        for at in (0..bytes).step_by(SLICE_BYTES as usize) {
            let base = base.wrapping_add(at as usize);
            fault_in(Span { base, bytes: SLICE_BYTES.min(bytes - at) });
        }
    }
}

fn fault_in(span: Span) {
    // What fails is left to the writer.
    let _ = advise(span, Advice::LinuxPopulateWrite);
}

#[cfg(not(miri))]
fn advise(span: Span, advice: Advice) -> rustix::io::Result<()> {
    // SAFETY: the span lies in memory that its owner keeps mapped; the advices above change no
    // content, and what cannot be written is refused.
    unsafe { rustix::mm::madvise(span.base.cast(), span.bytes as usize, advice) }
}

#[cfg(miri)]
fn advise(_: Span, _: Advice) -> rustix::io::Result<()> {
    Ok(())
}
