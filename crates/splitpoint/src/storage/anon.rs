//! `Anon`: a table in the memory of this process, with huge pages where the system has them.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Backing, Identity, Owner, Pages, Span, Storage, Tail, WindowKind};
use crate::prefaulter::Work;

/// Address space whose memory is committed from its beginning on, as it is needed.
#[derive(Debug)]
pub(super) struct Memory {
    span: Span,
    committed_bytes: AtomicU64,
    /// Whether all of it is readable and writable from the start: to change that bit by bit waits
    /// for page faults that other threads are in.
    is_open: bool,
    pages: PageSize,
}

/// Of which size the pages of memory are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageSize {
    /// 2 MiB behind the first 2 MiB, so that small tables stay small: for the log and the buckets,
    /// which are read at random, and which another thread makes ahead.
    Huge,
    /// What the system gives.
    Base,
}

// SAFETY: the span is owned memory; what is stored in it is up to its users, who share it through
// atomics or hand out ranges that nobody writes.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Owner for Memory {}

/// Size of a huge page, and the unit in which memory is committed, in bytes.
const HUGE_BYTES: u64 = 2 << 20;

impl Memory {
    /// Returns the memory as a span.
    pub(super) fn span(&self) -> Span {
        self.span
    }

    /// Returns how much of it is readable and writable, from its beginning on.
    #[cfg(any(test, feature = "sim"))]
    pub(super) fn committed_bytes(&self) -> u64 {
        self.committed_bytes.load(Ordering::Relaxed)
    }
}

#[cfg(not(miri))]
impl Memory {
    /// Reserves `bytes` of address space, or a fraction of it where a limit forbids.
    pub(super) fn reserve(bytes: u64, pages: PageSize) -> io::Result<Self> {
        let (base, bytes) = reserve_span(bytes)?;
        let span = Span { base, bytes };
        let committed_bytes = AtomicU64::new(0);
        let mut memory = Self { span, committed_bytes, is_open: false, pages };
        // Refused where the system promises no more memory than it has.
        memory.is_open = memory.open(0, bytes).is_ok();
        Ok(memory)
    }

    /// Makes the first `bytes` readable and writable; they are zero until written.
    pub(super) fn commit(&self, bytes: u64) -> io::Result<()> {
        let before = self.committed_bytes.load(Ordering::Relaxed);
        if bytes <= before {
            return Ok(());
        }
        // A small table asks for little; a large one seldom asks.
        let unit = if bytes < HUGE_BYTES { 64 << 10 } else { (bytes / 16).max(HUGE_BYTES) };
        let after = bytes.checked_next_multiple_of(unit).map_or(bytes, |b| b.min(self.span.bytes));
        if after < bytes {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        if !self.is_open {
            self.open(before, after)?;
        }
        self.committed_bytes.store(after, Ordering::Relaxed);
        Ok(())
    }

    /// Makes a range that is not in use readable and writable.
    fn open(&self, before: u64, after: u64) -> io::Result<()> {
        let start = self.span.base.wrapping_add(before as usize);
        let flags = rustix::mm::MprotectFlags::READ | rustix::mm::MprotectFlags::WRITE;
        // SAFETY: the range lies in our reservation, which is anonymous memory not yet in use.
        unsafe { rustix::mm::mprotect(start.cast(), (after - before) as usize, flags) }?;
        if self.pages == PageSize::Huge {
            self.advise_huge(before, after);
        }
        Ok(())
    }

    /// Asks for huge pages behind the first 2 MiB.
    fn advise_huge(&self, before: u64, after: u64) {
        let before = before.next_multiple_of(HUGE_BYTES).max(HUGE_BYTES);
        if after > before {
            // SAFETY: `before` is below `after`, which is inside the reservation.
            let start = unsafe { self.span.base.add(before as usize) };
            let len = (after - before) as usize;
            // SAFETY: the range lies in our reservation; the advice changes no content.
            // A kernel without huge pages refuses it, and nothing is lost.
            let _ = unsafe {
                rustix::mm::madvise(start.cast(), len, rustix::mm::Advice::LinuxHugepage)
            };
        }
    }
}

#[cfg(not(miri))]
impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the span came from `reserve_span` and ends with its owner.
        unsafe { release_span(self.span) };
    }
}

/// Reserves address space aligned to a huge page: `bytes` of it, or a quarter, and so on.
pub(super) fn reserve_span(bytes: u64) -> io::Result<(*mut u8, u64)> {
    use rustix::mm::{MapFlags, ProtFlags};
    let mut bytes = bytes;
    loop {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let len = (bytes + HUGE_BYTES) as usize;
        // SAFETY: a new mapping at a place of the kernel's choice touches nothing of ours.
        let mapped = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::empty(), flags)
        };
        match mapped {
            Ok(start) => return Ok(trim_span(start.cast(), bytes)),
            Err(_) if bytes > 64 << 20 => bytes /= 4,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Gives back what lies outside the aligned part of a reservation of `bytes + HUGE_BYTES`.
fn trim_span(start: *mut u8, bytes: u64) -> (*mut u8, u64) {
    let skip = start.align_offset(HUGE_BYTES as usize);
    let base = start.wrapping_add(skip);
    let after = HUGE_BYTES - skip as u64;
    for (at, bytes) in [(start, skip as u64), (base.wrapping_add(bytes as usize), after)] {
        if bytes > 0 {
            // SAFETY: the ends of a mapping just made, which nobody uses.
            unsafe { release_span(Span { base: at, bytes }) };
        }
    }
    (base, bytes)
}

/// Gives address space back.
///
/// # Safety
///
/// - The span is a mapping of ours, or part of one.
/// - Nothing refers to it any more.
pub(super) unsafe fn release_span(span: Span) {
    // SAFETY: the caller's promise.
    let unmapped = unsafe { rustix::mm::munmap(span.base.cast(), span.bytes as usize) };
    debug_assert!(unmapped.is_ok());
}

/// Miri has no address space to reserve: a small block of the heap, committed from the start.
#[cfg(miri)]
impl Memory {
    const BYTES_MAX: u64 = 1 << 20;

    fn layout(bytes: u64) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(bytes as usize, 4096).expect("a small layout")
    }

    pub(super) fn reserve(bytes: u64, pages: PageSize) -> io::Result<Self> {
        let bytes = bytes.min(Self::BYTES_MAX);
        // SAFETY: the layout is not empty.
        let base = unsafe { std::alloc::alloc_zeroed(Self::layout(bytes)) };
        assert!(!base.is_null());
        let committed_bytes = AtomicU64::new(bytes);
        Ok(Self { span: Span { base, bytes }, committed_bytes, is_open: true, pages })
    }

    pub(super) fn commit(&self, bytes: u64) -> io::Result<()> {
        if bytes > self.committed_bytes.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(())
    }
}

#[cfg(miri)]
impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `reserve` with the same layout.
        unsafe { std::alloc::dealloc(self.span.base, Self::layout(self.span.bytes)) };
    }
}

/// A file that is memory, and windows that are memory of their own.
#[derive(Debug)]
pub(crate) struct Anon {
    view: Arc<Memory>,
    windows: [Arc<Memory>; 3],
    file_bytes: AtomicU64,
}

impl Anon {
    /// Reserves the address space of a table in memory.
    pub(crate) fn new() -> io::Result<Self> {
        let memory_bytes = if cfg!(miri) { 0 } else { super::memory::memory_bytes() };
        let view_bytes = super::view_bytes(memory_bytes);
        let [live, buckets, overflow] = WindowKind::ALL.map(|kind| {
            let pages = match kind {
                WindowKind::Buckets => PageSize::Huge,
                WindowKind::Live | WindowKind::Overflow => PageSize::Base,
            };
            Memory::reserve(kind.reserve_bytes(view_bytes), pages)
        });
        Ok(Self {
            view: Arc::new(Memory::reserve(view_bytes, PageSize::Huge)?),
            windows: [live?, buckets?, overflow?].map(Arc::new),
            file_bytes: AtomicU64::new(0),
        })
    }

    fn range(&self, offset: u64, bytes: u64) -> *mut u8 {
        let file_bytes = self.file_bytes.load(Ordering::Relaxed);
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= file_bytes));
        self.view.span().base.wrapping_add(offset as usize)
    }
}

impl Storage for Anon {
    fn path(&self) -> &Path {
        Path::new(":memory:")
    }

    fn identity(&self) -> Identity {
        Identity { boot_id: [0; 16], mount_id: 0, device: 0, inode: 0, birth_ns: 0 }
    }

    fn is_volatile(&self) -> bool {
        true
    }

    fn file_bytes(&self) -> u64 {
        self.file_bytes.load(Ordering::Acquire)
    }

    fn view(&self) -> Span {
        self.view.span()
    }

    fn window(&self, kind: WindowKind) -> Span {
        self.windows[kind.number()].span()
    }

    fn grow(&self, bytes: u64) -> io::Result<()> {
        self.view.commit(bytes)?;
        self.file_bytes.fetch_max(bytes, Ordering::AcqRel);
        Ok(())
    }

    /// The memory stays: a table in memory gives back all of it or nothing.
    fn truncate(&self, bytes: u64) -> io::Result<()> {
        let before = self.file_bytes();
        assert!(bytes <= before);
        self.punch(bytes, before - bytes)?;
        self.file_bytes.store(bytes, Ordering::Release);
        Ok(())
    }

    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let start = self.range(offset, bytes);
        // SAFETY: `range` proved that the bytes are committed; the caller says that nothing refers
        // to them.
        unsafe { start.write_bytes(0, bytes as usize) };
        Ok(())
    }

    /// Index pieces are never in the file here, wherever they would be.
    fn map_piece(&self, kind: WindowKind, at: u64, bytes: u64, _: Backing) -> io::Result<()> {
        self.windows[kind.number()].commit(at + bytes)
    }

    fn window_pages(&self, kind: WindowKind, at: u64, bytes: u64) -> Option<Pages> {
        let window = &self.windows[kind.number()];
        Some(Pages::new(window.span().base.wrapping_add(at as usize), bytes, window.clone()))
    }

    fn open_tail(&self, offset: u64, bytes: u64, used_bytes: u64) -> io::Result<Tail> {
        let base = self.range(offset, bytes);
        // SAFETY: the range is committed memory of this table; only the log stores to it, and
        // slices are made only of records that are in use.
        Ok(unsafe { Tail::new(base, bytes, used_bytes, Some(self.view.clone())) })
    }

    /// New memory is zero.
    fn ready_segment(&self, _: u64, _: u64, map: &Tail) -> io::Result<Option<Work>> {
        Ok(map.pages().map(|pages| -> Work { Box::new(move || pages.fault_in()) }))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let target = self.range(offset, bytes.len() as u64);
        // SAFETY: `range` proved that the target is committed; nobody reads these bytes before
        // they are published, and the source is another object.
        unsafe { target.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// New memory is zero, and segments are not used twice in memory.
    fn write_zeros(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync_range(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
}
