//! Bounds how much of a file's view is resident, by the clock algorithm.
//!
//! Dropping a page only removes its page-table entry. The page cache may keep the page, and the
//! next read maps it again. So a drop loses nothing, and slices that point there stay valid.

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::format::FILE_BYTES_MAX;

/// Size of the units that are counted, in bytes: a huge page.
const UNIT_BYTES: u64 = 2 << 20;

/// States of a unit.
const ABSENT: u8 = 0;
const RESIDENT: u8 = 1;
const REFERENCED: u8 = 2;

/// The units of a view, and the bound on the resident ones.
#[derive(Debug)]
pub(crate) struct Residency {
    unit_count_max: u64,
    /// State of each unit of the largest possible file: 4 MiB of address space, touched as far as
    /// the file reaches.
    units: Box<[AtomicU8]>,
    resident_count: AtomicU64,
    /// One more than the highest unit touched so far.
    end: AtomicUsize,
    /// The hand of the clock.
    hand: Mutex<usize>,
}

impl Residency {
    /// Creates a bound of `cache_bytes`, at least two units.
    pub(crate) fn new(cache_bytes: u64) -> Self {
        let zeros = vec![ABSENT; (FILE_BYTES_MAX / UNIT_BYTES) as usize];
        Self {
            unit_count_max: (cache_bytes / UNIT_BYTES).max(2),
            units: zeros.into_iter().map(AtomicU8::new).collect(),
            resident_count: AtomicU64::new(0),
            end: AtomicUsize::new(0),
            hand: Mutex::new(0),
        }
    }

    /// Notes that bytes are about to be read; calls `drop_unit` with the offset and size of each
    /// range to drop for them.
    #[inline]
    pub(crate) fn touch(&self, offset: u64, bytes: u64, drop_unit: impl Fn(u64, u64)) {
        let first = offset / UNIT_BYTES;
        let last = (offset + bytes.max(1) - 1) / UNIT_BYTES;
        for unit in first..=last {
            if self.units[unit as usize].load(Ordering::Relaxed) != REFERENCED {
                self.bring_in(unit as usize, &drop_unit);
            }
        }
    }

    #[cold]
    fn bring_in(&self, unit: usize, drop_unit: &impl Fn(u64, u64)) {
        if self.units[unit].swap(REFERENCED, Ordering::Relaxed) != ABSENT {
            return;
        }
        self.end.fetch_max(unit + 1, Ordering::Relaxed);
        if self.resident_count.fetch_add(1, Ordering::Relaxed) < self.unit_count_max {
            return;
        }
        let end = self.end.load(Ordering::Relaxed);
        let mut hand = self.hand.lock().unwrap_or_else(PoisonError::into_inner);
        // Two rounds find a unit that no reader uses, unless readers touch all of them meanwhile.
        for _ in 0..2 * end {
            if self.resident_count.load(Ordering::Relaxed) <= self.unit_count_max {
                return;
            }
            *hand = (*hand + 1) % end;
            if *hand == unit {
                continue;
            }
            let state = &self.units[*hand];
            match state.load(Ordering::Relaxed) {
                REFERENCED => state.store(RESIDENT, Ordering::Relaxed),
                RESIDENT => {
                    state.store(ABSENT, Ordering::Relaxed);
                    self.resident_count.fetch_sub(1, Ordering::Relaxed);
                    drop_unit(*hand as u64 * UNIT_BYTES, UNIT_BYTES);
                }
                _ => {}
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn the_units_in_use_stay_and_the_others_leave() {
        let residency = Residency::new(4 * UNIT_BYTES);
        let dropped = RefCell::new(Vec::new());
        let touch = |unit: u64| {
            residency.touch(unit * UNIT_BYTES, 8, |offset, _| {
                dropped.borrow_mut().push(offset / UNIT_BYTES);
            });
        };
        for unit in 0..100 {
            touch(7);
            touch(unit);
            assert!(residency.resident_count.load(Ordering::Relaxed) <= 4);
        }
        assert!(dropped.borrow().len() >= 95);
        assert!(!dropped.borrow().contains(&99));
    }

    #[test]
    fn a_range_touches_every_unit_it_reaches() {
        let residency = Residency::new(100 * UNIT_BYTES);
        residency.touch(UNIT_BYTES - 1, 2, |_, _| {});
        residency.touch(5 * UNIT_BYTES, 3 * UNIT_BYTES, |_, _| {});
        assert_eq!(residency.resident_count.load(Ordering::Relaxed), 5);
    }
}
