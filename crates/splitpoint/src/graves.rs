//! `Graves`: the addresses of records that are deleted while a snapshot is open.
//!
//! A snapshot finds the version of a key by following `prev` from newer records. A delete empties
//! the slot, after which nothing leads to the older versions. So it leaves a *grave*: the hash of
//! the key, and the address of the deleted record.
//!
//! Rejected: leaving the tombstone in the slot. Every reader and every walk over the index
//! (recovery, compaction, `check`, checkpoints) would have to handle tombstones, and a tombstone
//! left by a killed process would lead, by its `prev`, to reused space. Graves are private memory,
//! never in a file. They take 50 to 100 bytes for each key that is deleted while a snapshot that
//! has it is open. Another process finds the same records in the log: the log after the moment of a
//! snapshot is kept, and each tombstone names the record that it deletes.
//!
//! # Invariants
//!
//! - A grave is added before the slot is emptied, so a reader that misses the key finds the grave.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::format::Addr;

/// The deleted records, by the hash of their keys.
#[derive(Debug, Default)]
pub(crate) struct Graves {
    inner: Mutex<Inner>,
    /// Whether there may be any.
    is_any: AtomicBool,
}

#[derive(Debug, Default)]
struct Inner {
    /// Keyed by hash and number, so that the graves of a hash are in the order in which they were
    /// added.
    by_hash: BTreeMap<(u64, u64), Grave>,
    /// The keys of all graves, oldest first.
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

    /// Returns the deleted records with this hash that died after `moment`, in the order of their
    /// deaths.
    pub(crate) fn after(&self, hash: u64, moment: u64) -> Vec<Addr> {
        let inner = self.lock();
        let of_hash = inner.by_hash.range((hash, 0)..=(hash, u64::MAX));
        let after = of_hash.filter(|(_, grave)| grave.stamp > moment);
        after.map(|(_, grave)| grave.addr).collect()
    }

    /// Returns whether there are graves. One that is being added may be missed; it is removed the
    /// next time.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Relaxed)
    }

    /// Removes the graves of records that died at `stamp` or before, which nobody needs any more.
    pub(crate) fn forget(&self, stamp: u64) {
        let mut inner = self.lock();
        let last = inner.in_order.back().and_then(|last| inner.by_hash.get(last));
        if last.is_none_or(|last| last.stamp <= stamp) {
            self.is_any.store(false, Ordering::Relaxed);
            let next_number = inner.next_number;
            let all = std::mem::replace(&mut *inner, Inner { next_number, ..Inner::default() });
            // Freeing them may take long, so do it without the lock.
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

    /// Returns the number of graves.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.lock().by_hash.len()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Ignore poison: only running out of memory could fail in between, which aborts.
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
