//! `View`: the read mapping of the whole file.
//!
//! A new mapping is two to eight times as large as the file, so the part behind the end of the file
//! appears as the file grows. A file that outgrows it is mapped again, completely, at another
//! address. The old mapping stays until the handle is closed, because values that were returned lie
//! in it; all old mappings together are smaller than a third of the newest.
//!
//! Growing in place was not tried: the kernel assigns addresses from the top down, so the space
//! behind a mapping belongs to the one created before it.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::mm::Advice;

use crate::format::{FILE_BYTES_MAX, GRANULE_BYTES};
use crate::growing::Growing;
use crate::prefaulter::Work;
use crate::storage::Span;
use crate::storage::limits::memory_limit_bytes;
use crate::storage::reservation::{HUGE_BYTES, Part, Protection, Reservation, first_that_fits};

/// Address space of the view of a small file: a process may have ten thousand of them.
const SMALLEST_BYTES: u64 = 4 << 20;
/// Size up to which a file fits into any memory, so that it need not be asked for.
const SMALL_FILE_BYTES: u64 = 16 << 20;
/// Releasing the pages of a larger mapping takes milliseconds.
const DROPPED_AT_ONCE_BYTES: u64 = 64 << 20;

/// The read mapping of the whole file.
#[derive(Debug)]
pub(super) struct View {
    /// The newest mapping and its size.
    newest: Growing<u8>,
    /// Size of the file from which the advice to the kernel must be reconsidered.
    advised_bytes: AtomicU64,
    mappings: Mutex<Mappings>,
}

#[derive(Debug)]
struct Mappings {
    /// Oldest first; never empty.
    all: Vec<Arc<Reservation>>,
    /// The mapping that was outgrown last, if it still has its pages.
    outgrown: Option<Arc<Reservation>>,
}

/// How the view is read, as advised to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// One large folio per fault, while the file is small compared with the memory.
    Folios,
    /// Single pages, so that a lookup reads 4 KiB from the disk and not 2 MiB.
    Pages,
}

impl Reading {
    fn advices(self) -> &'static [Advice] {
        match self {
            Self::Folios => &[Advice::LinuxHugepage],
            // The kernel checks the advice on huge pages first, so it must be withdrawn.
            Self::Pages => &[Advice::LinuxNoHugepage, Advice::Random],
        }
    }
}

impl View {
    /// Maps a file of `file_bytes`.
    pub(super) fn new(file: &File, file_bytes: u64) -> io::Result<Self> {
        let mapping = map(file, file_bytes)?;
        let Span { base, bytes } = mapping.span();
        let all = vec![Arc::new(mapping)];
        let view = Self {
            newest: Growing::new(base, bytes),
            advised_bytes: AtomicU64::new(0),
            mappings: Mutex::new(Mappings { all, outgrown: None }),
        };
        view.advise(file_bytes);
        Ok(view)
    }

    /// Returns the newest mapping, which covers every size passed to [`cover`](Self::cover) before.
    pub(super) fn span(&self) -> Span {
        let bytes = self.newest.count();
        Span { base: self.newest.base(), bytes }
    }

    /// Makes the view cover a file of `file_bytes`.
    ///
    /// Returns whether the kernel is advised anew.
    pub(super) fn cover(&self, file: &File, file_bytes: u64) -> io::Result<bool> {
        if file_bytes > self.newest.count() {
            let mut mappings = self.mappings.lock().unwrap_or_else(PoisonError::into_inner);
            if file_bytes > self.newest.count() {
                mappings.move_to(map(file, file_bytes)?);
                // The advice on the old mapping does not apply to the new one.
                self.advised_bytes.store(0, Ordering::Relaxed);
                let Span { base, bytes } = mappings.newest().span();
                self.newest.grow(base, bytes);
            }
        }
        Ok(self.advise(file_bytes))
    }

    /// Advises the kernel on how the view is read, once the file has grown enough to change the
    /// advice; returns whether it did.
    fn advise(&self, file_bytes: u64) -> bool {
        if file_bytes < self.advised_bytes.load(Ordering::Relaxed) {
            return false;
        }
        if file_bytes < HUGE_BYTES {
            // It has no huge page.
            self.advised_bytes.store(HUGE_BYTES, Ordering::Relaxed);
            return false;
        }
        let is_tiny = file_bytes < SMALL_FILE_BYTES;
        let bound = if is_tiny { SMALL_FILE_BYTES } else { memory_limit_bytes() / 2 };
        let reading = if file_bytes < bound { Reading::Folios } else { Reading::Pages };
        let again = if reading == Reading::Folios { bound } else { u64::MAX };
        self.advised_bytes.store(again, Ordering::Relaxed);
        let mappings = self.mappings.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = mappings.newest();
        newest.advise(0, newest.span().bytes, reading.advices());
        true
    }

    /// Returns whether the file is so large that the kernel is advised to read single pages.
    pub(super) fn is_read_by_pages(&self) -> bool {
        self.advised_bytes.load(Ordering::Relaxed) == u64::MAX
    }

    /// Returns the work of releasing the pages of an outgrown mapping, if it needs a thread;
    /// otherwise does it. Values that lie there bring their pages back.
    pub(super) fn outgrown(&self) -> Option<Work> {
        let mut mappings = self.mappings.lock().unwrap_or_else(PoisonError::into_inner);
        let outgrown = mappings.outgrown.take()?;
        if outgrown.span().bytes > DROPPED_AT_ONCE_BYTES {
            return Some(Box::new(move || drop_pages(&outgrown)));
        }
        drop_pages(&outgrown);
        None
    }

    /// Releases the pages of a range, as far as it is in the view.
    pub(super) fn drop_resident(&self, offset: u64, bytes: u64) {
        let mappings = self.mappings.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = mappings.newest();
        // A unit of residency may end behind the view, where the memory belongs to something else.
        let end = (offset + bytes).min(newest.span().bytes);
        if let Some(bytes) = end.checked_sub(offset) {
            newest.advise(offset, bytes, &[Advice::LinuxDontNeed]);
        }
    }
}

impl Mappings {
    fn newest(&self) -> &Arc<Reservation> {
        self.all.last().expect("there is one from the beginning")
    }

    fn move_to(&mut self, mapping: Reservation) {
        let outgrown = self.newest().clone();
        // The one before may still have its pages.
        if let Some(before) = self.outgrown.replace(outgrown) {
            drop_pages(&before);
        }
        self.all.push(Arc::new(mapping));
    }
}

/// Releases the pages of a mapping of a file; a read brings them back.
fn drop_pages(mapping: &Reservation) {
    mapping.advise(0, mapping.span().bytes, &[Advice::LinuxDontNeed]);
}

/// Returns the address space for a file of `file_bytes`: a power of four, so that a growing file
/// seldom moves.
fn view_bytes(file_bytes: u64) -> u64 {
    let mut bytes = SMALLEST_BYTES;
    while bytes < 2 * file_bytes && bytes < FILE_BYTES_MAX {
        bytes *= 4;
    }
    bytes.min(FILE_BYTES_MAX)
}

/// Maps a file of `file_bytes` with room to grow, or without it if the address space is short.
fn map(file: &File, file_bytes: u64) -> io::Result<Reservation> {
    let least = file_bytes.max(GRANULE_BYTES).next_multiple_of(GRANULE_BYTES);
    let more = (least + least / 4).next_multiple_of(GRANULE_BYTES);
    let part = Part { file, offset: 0, protection: Protection::Read };
    first_that_fits(&[view_bytes(file_bytes), more, least], |bytes| {
        if bytes <= SMALLEST_BYTES {
            return Reservation::of_file(bytes, part);
        }
        // The kernel maps large folios as such only if file and memory have the same alignment.
        let reservation = Reservation::aligned(bytes)?;
        reservation.map_file(0, bytes, part)?;
        Ok(reservation)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_view_is_two_to_eight_times_as_large_as_the_file_but_for_small_ones() {
        assert_eq!(view_bytes(0), 4 << 20);
        assert_eq!(view_bytes(2 << 20), 4 << 20);
        assert_eq!(view_bytes((2 << 20) + 1), 16 << 20);
        for file_bytes in [3 << 20, 50 << 20, 999 << 20, 1 << 30, 700 << 30] {
            let times = view_bytes(file_bytes) as f64 / file_bytes as f64;
            assert!((2.0..8.0).contains(&times), "{file_bytes}: {times}");
        }
        assert_eq!(view_bytes(FILE_BYTES_MAX / 2 - 1), FILE_BYTES_MAX);
        assert_eq!(view_bytes(FILE_BYTES_MAX), FILE_BYTES_MAX);
    }
}
