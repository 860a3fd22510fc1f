//! `Graves`: where the records are that were deleted while a snapshot is open.
//!
//! A snapshot finds the version of a key by the `prev` of its newer ones. A delete empties the slot, and
//! nothing leads to the older versions any more; so it leaves a *grave*: the hash of the key, and the
//! record that was deleted.
//!
//! The tombstone could stay in the slot instead. But then every reader and every walk over the index
//! would have to know of tombstones, recovery, compaction, `check` and checkpoints too; and one that is
//! left by a killed process leads, by its `prev`, to space that was used again. Graves are private
//! memory: no file has any. They cost 50 to 100 bytes for each key that is deleted while a snapshot is
//! open that has it. A process that cannot share them can find the same records: the log after the
//! moment of a snapshot is kept, and each tombstone there names what it deletes.
//!
//! # Invariants
//!
//! - A grave is there before the slot is empty, so a reader who misses the key finds it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::format::Addr;

/// The records that were deleted, by the hash of their keys.
#[derive(Debug, Default)]
pub(crate) struct Graves {
    inner: Mutex<Inner>,
    /// Whether there may be any.
    is_any: AtomicBool,
}

#[derive(Debug, Default)]
struct Inner {
    /// By hash and number: those of one hash come in the order in which they were dug.
    by_hash: BTreeMap<(u64, u64), Grave>,
    /// All of them, the oldest in front.
    in_order: VecDeque<(u64, u64)>,
    next_number: u64,
}

#[derive(Clone, Copy, Debug)]
struct Grave {
    addr: Addr,
    /// The stamp of its death.
    stamp: u64,
}

impl Graves {
    /// Adds the record at `addr`, which dies now, at `stamp`.
    pub(crate) fn add(&self, hash: u64, addr: Addr, stamp: u64) {
        let mut inner = self.lock();
        self.is_any.store(true, Ordering::Relaxed);
        let number = inner.next_number;
        inner.next_number += 1;
        inner.by_hash.insert((hash, number), Grave { addr, stamp });
        inner.in_order.push_back((hash, number));
    }

    /// Returns the records with keys of this hash that died after `moment`, in their order.
    pub(crate) fn after(&self, hash: u64, moment: u64) -> Vec<Addr> {
        let inner = self.lock();
        let of_hash = inner.by_hash.range((hash, 0)..=(hash, u64::MAX));
        let after = of_hash.filter(|(_, grave)| grave.stamp > moment);
        after.map(|(_, grave)| grave.addr).collect()
    }

    /// Returns whether there are any. One that is being dug may be missed: what is there is forgotten the next
    /// time.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Relaxed)
    }

    /// Forgets what died at `stamp` or before: nobody needs it any more.
    pub(crate) fn forget(&self, stamp: u64) {
        let mut inner = self.lock();
        let last = inner.in_order.back().and_then(|last| inner.by_hash.get(last));
        if last.is_none_or(|last| last.stamp <= stamp) {
            self.is_any.store(false, Ordering::Relaxed);
            let next_number = inner.next_number;
            let all = std::mem::replace(&mut *inner, Inner { next_number, ..Inner::default() });
            // Freeing them may take a while.
            drop(inner);
            drop(all);
            return;
        }
        while let Some(&first) = inner.in_order.front()
            && inner.by_hash.get(&first).is_none_or(|grave| grave.stamp <= stamp)
        {
            inner.by_hash.remove(&first);
            inner.in_order.pop_front();
        }
    }

    /// Returns how many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.lock().by_hash.len()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic in between could only be for want of memory, which aborts.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graves_are_found_by_hash_and_moment_and_forgotten_by_stamp() {
        let graves = Graves::default();
        for (hash, addr, stamp) in [(7, 10, 1), (8, 11, 1), (7, 12, 2), (7, 13, 4)] {
            graves.add(hash, Addr(addr), stamp);
        }
        assert_eq!(graves.after(7, 0), [Addr(10), Addr(12), Addr(13)]);
        assert_eq!(graves.after(7, 1), [Addr(12), Addr(13)]);
        assert_eq!(graves.after(9, 0), []);
        graves.forget(1);
        assert_eq!((graves.after(7, 0), graves.after(8, 0)), (vec![Addr(12), Addr(13)], vec![]));
        assert!(graves.is_any());
        graves.forget(4);
        assert_eq!((graves.count(), graves.is_any()), (0, false));
    }
}
