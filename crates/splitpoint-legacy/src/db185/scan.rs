//! A scan: every key of the table as it was when the scan began, once, whatever changes meanwhile.
//!
//! A scan covers the buckets that existed at its start. A change of a bucket that a scan has not
//! reached first sets its pairs aside for that scan. So deleting what a scan returns is safe, and
//! so are puts that split buckets; the original skips half of the keys then.
//!
//! Cost: memory for the pairs of one bucket, and for those of buckets that are changed before the
//! scan comes to them.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, PoisonError};

use splitpoint::{Entry, Error, Result, Value};

use super::overflow::Bits;
use super::store::{Pair, Steps, Store};

/// The store's state of a running scan.
#[derive(Debug)]
pub(super) struct LiveScan {
    id: u64,
    /// The next bucket, and the end of the buckets.
    next: u64,
    end: u64,
    aside: HashMap<u32, Batch>,
    /// Overflow pages seen since the last change, so that no page is read for two buckets.
    seen: Bits,
    change_count: u64,
}

/// The pairs of one bucket, up to a damage if there is one.
#[derive(Debug)]
struct Batch {
    pairs: Vec<Pair>,
    damage: Option<Error>,
}

impl Store {
    /// Begins a scan and returns its number.
    fn begin_scan(&mut self) -> Result<u64> {
        self.check_usable()?;
        let id = self.scans.last().map_or(0, |scan| scan.id + 1);
        // The scan reports a missing end of the file after the last bucket.
        let end = self.bucket_end() + u64::from(self.missing().is_some());
        let (aside, seen, change_count) = (HashMap::new(), Bits::default(), self.change_count);
        self.scans.push(LiveScan { id, next: 0, end, aside, seen, change_count });
        Ok(id)
    }

    fn end_scan(&mut self, id: u64) {
        self.scans.retain(|scan| scan.id != id);
    }

    /// Returns the pairs of the next bucket of scan `id`.
    fn next_batch(&mut self, id: u64) -> Option<Batch> {
        let change_count = self.change_count;
        let scan = self.scans.iter_mut().find(|scan| scan.id == id).expect("the scan has begun");
        if scan.next == scan.end {
            return None;
        }
        let bucket = scan.next as u32;
        scan.next += 1;
        let is_last = scan.next == scan.end;
        if let Some(damage) = self.missing().filter(|_| is_last) {
            return Some(Batch { pairs: Vec::new(), damage: Some(damage) });
        }
        let scan = self.scans.iter_mut().find(|scan| scan.id == id).expect("the scan has begun");
        if let Some(batch) = scan.aside.remove(&bucket) {
            return Some(batch);
        }
        if scan.change_count != change_count {
            (scan.change_count, scan.seen) = (change_count, Bits::default());
        }
        // A bucket that leads to a page of another is damaged, and reading such chains again and
        // again would never end.
        let seen = std::mem::take(&mut scan.seen);
        let mut steps = Steps { seen: Some(seen), ..self.steps() };
        let (pairs, result) = self.pairs_before_damage(bucket, &mut steps);
        let scan = self.scans.iter_mut().find(|scan| scan.id == id).expect("the scan has begun");
        scan.seen = steps.seen.unwrap_or_default();
        Some(Batch { pairs, damage: result.err() })
    }

    /// Sets the pairs of `bucket` aside for the scans that have not come to it, before it changes.
    pub(super) fn set_aside(&mut self, bucket: u32) {
        self.change_count += 1;
        let waits = |scan: &LiveScan| {
            (scan.next..scan.end).contains(&bucket.into()) && !scan.aside.contains_key(&bucket)
        };
        for index in 0..self.scans.len() {
            if waits(&self.scans[index]) {
                let mut steps = self.steps();
                let (pairs, result) = self.pairs_before_damage(bucket, &mut steps);
                let batch = Batch { pairs, damage: result.err() };
                self.scans[index].aside.insert(bucket, batch);
            }
        }
    }
}

/// The entries of a table, bucket by bucket.
///
/// Of a damaged bucket it returns the pairs before the damage, then an error, and then continues
/// with the next bucket.
pub(super) struct Scan<'table> {
    store: &'table Mutex<Store>,
    id: u64,
    pairs: VecDeque<Pair>,
    damage: Option<Error>,
    is_done: bool,
}

impl<'table> Scan<'table> {
    pub(super) fn new(store: &'table Mutex<Store>) -> Result<Self> {
        let id = store.lock().unwrap_or_else(PoisonError::into_inner).begin_scan()?;
        Ok(Self { store, id, pairs: VecDeque::new(), damage: None, is_done: false })
    }
}

impl fmt::Debug for Scan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan").field("id", &self.id).finish_non_exhaustive()
    }
}

impl<'table> Iterator for Scan<'table> {
    type Item = Result<Entry<'table>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((key, value)) = self.pairs.pop_front() {
                return Some(Ok(Entry { key: Value::owned(key), value: Value::owned(value) }));
            }
            if let Some(damage) = self.damage.take() {
                return Some(Err(damage));
            }
            if self.is_done {
                return None;
            }
            let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
            match store.next_batch(self.id) {
                Some(batch) => (self.pairs, self.damage) = (batch.pairs.into(), batch.damage),
                None => self.is_done = true,
            }
        }
    }
}

impl Drop for Scan<'_> {
    fn drop(&mut self) {
        self.store.lock().unwrap_or_else(PoisonError::into_inner).end_scan(self.id);
    }
}
