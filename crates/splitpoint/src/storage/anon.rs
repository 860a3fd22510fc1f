//! `Anon`: a table in the memory of this process, with huge pages if the system has them.
//!
//! A small table has everything in one block of some hundred KiB, so that a process can have ten
//! thousand of them. Its view, its buckets and its overflow lines move to other address space when
//! they outgrow the block. They then reserve much of it, because moving means copying here. The
//! writer is the only thread that stores, and does not while it copies, so readers find in the old
//! memory what was there when they began. The old memory is freed with the table.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::reservation::first_that_fits;
#[cfg(not(miri))]
use super::reservation::{HUGE_BYTES, Reservation};
use super::{Backing, Identity, Owner, Pages, Span, Storage, Tail, WindowKind};
use crate::format::{FILE_BYTES_MAX, LIVE_BYTES};
use crate::growing::Growing;
use crate::prefaulter::Work;

/// Address space whose memory is committed from its beginning on, as it is needed.
#[derive(Debug)]
pub(super) struct Memory {
    #[cfg(not(miri))]
    reservation: Reservation,
    #[cfg(miri)]
    span: Span,
    committed_bytes: AtomicU64,
    /// Whether all of it is readable and writable from the start. Opening it bit by bit would wait
    /// for page faults of other threads.
    #[cfg(not(miri))]
    is_open: bool,
    #[cfg(not(miri))]
    pages: PageSize,
}

/// The wanted size of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageSize {
    /// 2 MiB after the first 2 MiB, so that small tables stay small. For the log and the buckets,
    /// which are read at random, and whose pages another thread takes in advance.
    Huge,
    /// Whatever the system gives.
    Base,
    /// Single pages, whatever the system prefers: the block of a small table lies beside those of
    /// others, and 2 MiB would hold several of them.
    Single,
}

// SAFETY: this value owns the span, which belongs to the process, not to a thread. It has no safe
// access to the bytes; the users of the span share them as atomics, or only give out ranges to
// which no thread stores.
unsafe impl Send for Memory {}
// SAFETY: as for `Send`.
unsafe impl Sync for Memory {}

impl Owner for Memory {}

impl Memory {
    /// Returns the bytes, from its beginning on, that are readable and writable.
    #[cfg(any(test, feature = "sim"))]
    pub(super) fn committed_bytes(&self) -> u64 {
        self.committed_bytes.load(Ordering::Relaxed)
    }
}

#[cfg(not(miri))]
impl Memory {
    /// Reserves `bytes` of address space.
    pub(super) fn reserve(bytes: u64, pages: PageSize) -> io::Result<Self> {
        let reservation = match pages {
            PageSize::Huge => Reservation::aligned(bytes)?,
            PageSize::Base | PageSize::Single => Reservation::new(bytes)?,
        };
        let committed_bytes = AtomicU64::new(0);
        let mut memory = Self { reservation, committed_bytes, is_open: false, pages };
        // A system that does not overcommit memory refuses.
        memory.is_open = memory.open(0, bytes).is_ok();
        Ok(memory)
    }

    /// Returns the memory as a span.
    pub(super) fn span(&self) -> Span {
        self.reservation.span()
    }

    /// Returns whether all of it is readable and writable already.
    fn is_open(&self) -> bool {
        self.is_open
    }

    /// Makes the first `bytes` readable and writable; they are zero until written.
    pub(super) fn commit(&self, bytes: u64) -> io::Result<()> {
        let before = self.committed_bytes.load(Ordering::Relaxed);
        if bytes <= before {
            return Ok(());
        }
        // A small table commits little at a time; a large one seldom commits.
        let unit = if bytes < HUGE_BYTES { 64 << 10 } else { (bytes / 16).max(HUGE_BYTES) };
        let whole = self.span().bytes;
        let after = bytes.checked_next_multiple_of(unit).map_or(bytes, |b| b.min(whole));
        if after < bytes {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        if !self.is_open {
            self.open(before, after)?;
        }
        self.committed_bytes.store(after, Ordering::Relaxed);
        Ok(())
    }

    /// Makes an unused range readable and writable.
    fn open(&self, before: u64, after: u64) -> io::Result<()> {
        let start = self.span().base.wrapping_add(before as usize);
        let flags = rustix::mm::MprotectFlags::READ | rustix::mm::MprotectFlags::WRITE;
        // SAFETY: the range lies in this reservation, beyond the committed bytes, so nothing uses
        // it yet.
        unsafe { rustix::mm::mprotect(start.cast(), (after - before) as usize, flags) }?;
        self.advise(before, after);
        Ok(())
    }

    /// Gives pages back to the system, which nobody reads but as atomics; the bytes are 0 afterwards.
    fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        assert!(at + bytes <= self.committed_bytes.load(Ordering::Relaxed));
        self.reservation.discard(at, bytes)
    }

    /// Shows a part of a file in place of committed bytes.
    #[cfg(test)]
    pub(super) fn show(
        &self,
        at: u64,
        bytes: u64,
        part: super::reservation::Part<'_>,
    ) -> io::Result<()> {
        assert!(at + bytes <= self.committed_bytes());
        self.reservation.map_file(at, bytes, part)
    }

    /// Ends [`show`](Self::show); the bytes are 0 afterwards.
    #[cfg(test)]
    pub(super) fn hide(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.reservation.map_zeros(at, bytes)
    }

    /// Advises the kernel on the size of pages. A kernel without huge pages refuses, which does no
    /// harm.
    fn advise(&self, before: u64, after: u64) {
        use rustix::mm::Advice;
        let (before, advice) = match self.pages {
            PageSize::Base => return,
            PageSize::Single => (before, Advice::LinuxNoHugepage),
            PageSize::Huge => {
                (before.next_multiple_of(HUGE_BYTES).max(HUGE_BYTES), Advice::LinuxHugepage)
            }
        };
        if after > before {
            self.reservation.advise(before, after - before, &[advice]);
        }
    }
}

/// Miri cannot reserve address space, so this is a block of the heap, committed from the start.
#[cfg(miri)]
impl Memory {
    fn layout(bytes: u64) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(bytes as usize, 4096).expect("a small layout")
    }

    pub(super) fn reserve(bytes: u64, _: PageSize) -> io::Result<Self> {
        // SAFETY: no caller passes 0 bytes, so the layout is not empty.
        let base = unsafe { std::alloc::alloc_zeroed(Self::layout(bytes)) };
        assert!(!base.is_null());
        let committed_bytes = AtomicU64::new(bytes);
        Ok(Self { span: Span { base, bytes }, committed_bytes })
    }

    pub(super) fn span(&self) -> Span {
        self.span
    }

    pub(super) fn commit(&self, bytes: u64) -> io::Result<()> {
        if bytes > self.committed_bytes.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(())
    }

    fn is_open(&self) -> bool {
        false
    }

    /// The heap takes no pages back, but the bytes are 0 afterwards as well.
    fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        let words = self.span.base.wrapping_add(at as usize).cast::<AtomicU64>();
        for word in 0..bytes as usize / 8 {
            // SAFETY: the range lies in this memory and is aligned to a page; all access to it is
            // atomic.
            unsafe { &*words.wrapping_add(word) }.store(0, Ordering::Relaxed);
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

/// Sizes of the parts of a small table's block, in bytes: 512 buckets, for about 2,300 records;
/// overflow lines for a quarter of them; and after the header of the view three segments of 64 KiB.
const BLOCK_BUCKET_BYTES: u64 = if cfg!(miri) { 4 << 10 } else { 32 << 10 };
const BLOCK_OVERFLOW_BYTES: u64 = if cfg!(miri) { 4 << 10 } else { 8 << 10 };
const BLOCK_VIEW_BYTES: u64 = if cfg!(miri) { 32 << 10 } else { 256 << 10 };
/// A part that moves may take this fraction of the remaining address space: one of 64 shares.
const SHARES: u64 = 64;
/// Factor by which a part grows when it moves, at least.
const GROWTH: u64 = 4;

/// Memory that is contiguous for the engine: the view, or a window.
#[derive(Debug)]
struct Area {
    memory: Arc<Memory>,
    /// Its offset in the memory, and the bytes that it may use there.
    start: u64,
    bytes_max: u64,
    /// The bytes of it that are in use.
    used_bytes: u64,
    /// The share of the machine's memory that it may reserve, in thousandths: 2000 is twice the
    /// memory.
    memory_thousandths: u64,
    pages: PageSize,
    /// Its earlier memory: values and readers may still be there.
    outgrown: Vec<Arc<Memory>>,
}

impl Area {
    fn base(&self) -> *mut u8 {
        self.memory.span().base.wrapping_add(self.start as usize)
    }

    /// Makes the first `bytes` readable and writable; new ones are zero.
    fn reach(&mut self, bytes: u64) -> io::Result<()> {
        if bytes > self.bytes_max {
            self.move_to_larger(bytes)?;
        }
        self.memory.commit(self.start + bytes)?;
        self.used_bytes = self.used_bytes.max(bytes);
        Ok(())
    }

    /// Moves to address space for `bytes`, and as much more as may be had. After an error nothing
    /// has changed.
    fn move_to_larger(&mut self, bytes: u64) -> io::Result<()> {
        let least = bytes.saturating_mul(GROWTH).next_power_of_two();
        let most = super::limits::memory_limit_bytes() / 1000 * self.memory_thousandths;
        let wanted = (super::limits::address_space_left_bytes() / SHARES).min(most).max(least);
        #[cfg(test)]
        let wanted = wanted.min(limit::reserved_bytes_max()).max(least);
        let sizes = [wanted, least, bytes + bytes / 4, bytes]
            .map(|bytes| bytes.next_multiple_of(4096).min(FILE_BYTES_MAX));
        let larger = first_that_fits(&sizes, |bytes| Memory::reserve(bytes, self.pages))?;
        larger.commit(bytes)?;
        let (from, to) = (self.base(), larger.span().base);
        // SAFETY: both memories are committed up to `used_bytes` and are distinct. Only the caller,
        // the writer, stores to the old one, and it does not during the copy; the new one is not
        // published yet.
        unsafe { to.copy_from_nonoverlapping(from, self.used_bytes as usize) };
        self.start = 0;
        self.bytes_max = larger.span().bytes;
        self.outgrown.push(std::mem::replace(&mut self.memory, Arc::new(larger)));
        Ok(())
    }
}

/// A bound on the views of a thread's tables, for tests of what happens when memory is used up.
#[cfg(test)]
pub(crate) mod limit {
    use std::cell::Cell;
    use std::io;

    thread_local! {
        static VIEW_BYTES_MAX: Cell<u64> = const { Cell::new(u64::MAX) };
        static RESERVED_BYTES_MAX: Cell<u64> = const { Cell::new(u64::MAX) };
    }

    /// Refuses to let views grow beyond `bytes` from now on.
    pub(crate) fn set(bytes: u64) {
        VIEW_BYTES_MAX.set(bytes);
    }

    /// Has parts of a table that move reserve at most `bytes` from now on, or what they need.
    pub(crate) fn set_reserved(bytes: u64) {
        RESERVED_BYTES_MAX.set(bytes);
    }

    pub(super) fn reserved_bytes_max() -> u64 {
        RESERVED_BYTES_MAX.get()
    }

    pub(super) fn check(before: u64, bytes: u64) -> io::Result<()> {
        let is_refused = bytes > before.max(VIEW_BYTES_MAX.get());
        if is_refused { Err(io::ErrorKind::OutOfMemory.into()) } else { Ok(()) }
    }
}

/// A file in memory, and windows in memory beside it.
#[derive(Debug)]
pub(crate) struct Anon {
    /// The newest view, and the size of the file.
    view: Growing<u8>,
    areas: Mutex<Areas>,
}

#[derive(Debug)]
struct Areas {
    view: Area,
    windows: [Area; 3],
}

impl Anon {
    /// Reserves the memory of a small table.
    pub(crate) fn new() -> io::Result<Self> {
        let areas = [
            (LIVE_BYTES, PageSize::Base, 0),
            (BLOCK_BUCKET_BYTES, PageSize::Huge, 1000),
            (BLOCK_OVERFLOW_BYTES, PageSize::Base, 250),
            (BLOCK_VIEW_BYTES, PageSize::Huge, 2000),
        ];
        let block_bytes = areas.iter().map(|(bytes, ..)| bytes).sum();
        let block = Arc::new(Memory::reserve(block_bytes, PageSize::Single)?);
        let mut start = 0;
        let [live, buckets, overflow, view] =
            areas.map(|(bytes_max, pages, memory_thousandths)| {
                let area = Area {
                    memory: block.clone(),
                    start,
                    bytes_max,
                    used_bytes: 0,
                    memory_thousandths,
                    pages,
                    outgrown: Vec::new(),
                };
                start += bytes_max;
                area
            });
        Ok(Self {
            view: Growing::new(view.base(), 0),
            areas: Mutex::new(Areas { view, windows: [live, buckets, overflow] }),
        })
    }

    fn areas(&self) -> MutexGuard<'_, Areas> {
        self.areas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the address of a range of the newest view.
    fn range(&self, offset: u64, bytes: u64) -> *mut u8 {
        let file_bytes = self.view.count();
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= file_bytes));
        self.view.base().wrapping_add(offset as usize)
    }

    fn tail(&self, offset: u64, bytes: u64, used_bytes: u64) -> Tail {
        let base = self.range(offset, bytes);
        let owner = self.areas().view.memory.clone();
        // SAFETY: the range is committed memory of this table, which `owner` keeps. Only the log
        // stores to it, and slices are created only of published records, which lie before the free
        // bytes.
        unsafe { Tail::new(base, bytes, used_bytes, Some(owner)) }
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
        self.view.count()
    }

    fn view(&self) -> Span {
        let bytes = self.view.count();
        Span { base: self.view.base(), bytes }
    }

    fn window(&self, kind: WindowKind) -> Span {
        let area = &self.areas().windows[kind.number()];
        Span { base: area.base(), bytes: area.bytes_max }
    }

    fn grow(&self, bytes: u64) -> io::Result<()> {
        #[cfg(test)]
        limit::check(self.view.count(), bytes)?;
        let view = &mut self.areas().view;
        view.reach(bytes)?;
        self.view.grow(view.base(), bytes);
        Ok(())
    }

    /// Keeps the memory: a table in memory frees all of it or nothing.
    fn truncate(&self, bytes: u64) -> io::Result<()> {
        let before = self.file_bytes();
        assert!(bytes <= before);
        self.punch(bytes, before - bytes)?;
        self.view.cut(bytes);
        Ok(())
    }

    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let start = self.range(offset, bytes);
        {
            let view = &self.areas().view;
            if view.memory.discard(view.start + offset, bytes).is_ok() {
                return Ok(());
            }
        }
        // SAFETY: `range` has checked that the bytes are committed; the caller promises that
        // nothing refers to them.
        unsafe { start.write_bytes(0, bytes as usize) };
        Ok(())
    }

    /// Ignores the backing: index pieces are never in the file here.
    fn map_piece(&self, kind: WindowKind, at: u64, bytes: u64, _: Backing) -> io::Result<()> {
        self.areas().windows[kind.number()].reach(at + bytes)
    }

    fn unmap_piece(&self, kind: WindowKind, at: u64, bytes: u64) -> io::Result<()> {
        let area = &mut self.areas().windows[kind.number()];
        area.memory.discard(area.start + at, bytes)?;
        // What follows need not be copied when the window moves.
        area.used_bytes = area.used_bytes.min(at);
        Ok(())
    }

    fn window_pages(&self, kind: WindowKind, at: u64, bytes: u64) -> Option<Pages> {
        let area = &self.areas().windows[kind.number()];
        Some(Pages::new(area.base().wrapping_add(at as usize), bytes, area.memory.clone()))
    }

    fn open_tail(&self, offset: u64, bytes: u64, used_bytes: u64) -> io::Result<Tail> {
        Ok(self.tail(offset, bytes, used_bytes))
    }

    fn moved_tail(&self, offset: u64, bytes: u64, used_bytes: u64) -> Option<Tail> {
        Some(self.tail(offset, bytes, used_bytes))
    }

    /// What is behind the records of a segment may be anything.
    fn ready_segment(&self, _: u64, _: u64, _: bool, map: &Tail) -> io::Result<Option<Work>> {
        Ok(map.pages().map(|pages| -> Work { Box::new(move || pages.fault_in()) }))
    }

    fn pages_behind(&self, offset: u64, bytes: u64) -> Option<Pages> {
        let area = &self.areas().view;
        let is_there = area.memory.is_open() && offset + bytes <= area.bytes_max;
        is_there.then(|| {
            Pages::new(area.base().wrapping_add(offset as usize), bytes, area.memory.clone())
        })
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let target = self.range(offset, bytes.len() as u64);
        // SAFETY: `range` has checked that the target is committed. No thread reads these bytes
        // before the writer publishes them, and the source is another object.
        unsafe { target.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Does nothing: new memory is zero. A reused segment has the bytes of its last use, which are
    /// never read.
    fn write_zeros(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync_range(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
}
