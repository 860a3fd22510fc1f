//! An open table, and reading its pages. Changes are in `change`, `split` and `flush`.

use std::cell::Cell;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use splitpoint::hash::{HashFunction, PROBE_KEY};
use splitpoint::{Error, Result};

use super::addresses::{OverflowAddr, Shape};
use super::extent::needed_end;
use super::header::{FILL_FACTOR_UNDECIDED, Header};
use super::overflow::{Bits, Overflow};
use super::page::{After, Page, PageMut};
use super::page_map::Work;
use super::pool::Pool;
use super::scan::LiveScan;
use crate::ByteOrder;

/// The stores that were opened in this process.
static STORE_COUNT: AtomicU64 = AtomicU64::new(0);

/// A key with its value.
pub(super) type Pair = (Vec<u8>, Vec<u8>);

/// One page of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// The one that the bucket number leads to.
    Bucket,
    /// One of those behind.
    Overflow(OverflowAddr),
}

/// An open table.
pub(super) struct Store {
    pub(super) pool: Pool,
    pub(super) shape: Shape,
    pub(super) order: ByteOrder,
    /// Filled in when the table is opened to be changed.
    pub(super) overflow: Overflow,
    /// `None` if the function is unknown. Then the table is read-only, and only scans can read it.
    pub(super) hash: Option<HashFunction>,
    pub(super) probe_hash: u32,
    pub(super) fill_factor: u32,
    /// Number of keys as the header has it: enough to decide on splits.
    pub(super) key_estimate: u32,
    /// Number of keys, once somebody has counted.
    pub(super) record_count: Option<u64>,
    pub(super) is_read_only: bool,
    /// Whether the last sync did not come to its end, so that buckets may hold pairs that have
    /// moved away.
    pub(super) is_interrupted: bool,
    /// Pages from here on are not in the file. Only a table that is not written has such an end.
    pub(super) file_end: Option<u64>,
    /// Highest bucket in the file as it was last synced; `None` if there is no table in it.
    pub(super) synced_max_bucket: Option<u32>,
    /// Whether there is anything to sync.
    pub(super) is_changed: bool,
    /// The failure that poisoned this handle.
    pub(super) poison: Option<String>,
    pub(super) scans: Vec<LiveScan>,
    /// Its number in this process.
    number: u64,
    /// Counts changes, so that a caller knows when remembered pages are outdated.
    pub(super) change_count: u64,
    /// What the table has done. A step along a chain counts, and only looks.
    pub(super) work: Cell<Work>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("shape", &self.shape).finish_non_exhaustive()
    }
}

/// Number of further pages that a walk may read, so that a loop of pages ends.
#[derive(Debug)]
pub(super) struct Steps {
    pub(super) left: u64,
    /// The overflow pages seen before, none of which may come again; only scans keep them.
    pub(super) seen: Option<Bits>,
}

/// Where a big pair ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BigEnd {
    pub(super) last: At,
    /// The next page of the bucket.
    pub(super) next: Option<OverflowAddr>,
}

impl Store {
    /// Returns a table with the shape of `header`, before its overflow pages are known.
    pub(super) fn new(pool: Pool, header: Header, hash: Option<HashFunction>) -> Self {
        Self {
            pool,
            order: header.byte_order,
            overflow: Overflow::default(),
            hash,
            probe_hash: header.probe_hash,
            fill_factor: header.fill_factor,
            key_estimate: header.record_count,
            record_count: None,
            is_read_only: true,
            is_interrupted: header.is_interrupted,
            file_end: None,
            synced_max_bucket: Some(header.shape.max_bucket),
            is_changed: false,
            poison: None,
            scans: Vec::new(),
            number: STORE_COUNT.fetch_add(1, Ordering::Relaxed),
            change_count: 0,
            work: Cell::default(),
            shape: header.shape,
        }
    }

    /// Returns the header as of now.
    pub(super) fn header(&self) -> Header {
        let first_free = self.overflow.first_free(&self.shape);
        Header {
            byte_order: self.order,
            last_freed: first_free,
            fill_factor: self.fill_factor,
            record_count: self
                .record_count
                .map_or(self.key_estimate, |count| u32::try_from(count).unwrap_or(u32::MAX)),
            probe_hash: self.probe_hash,
            is_interrupted: self.is_interrupted,
            shape: self.shape.clone(),
        }
    }

    /// Returns what is the same as before, of any store of this process, only if nothing has changed since.
    pub(super) fn state(&self) -> (u64, u64) {
        (self.number, self.change_count)
    }

    /// Returns the fill factor, if it has been decided.
    pub(super) fn fill_factor(&self) -> Option<u32> {
        (self.fill_factor != FILL_FACTOR_UNDECIDED).then_some(self.fill_factor)
    }

    pub(super) fn page_bytes(&self) -> usize {
        self.shape.page_bytes as usize
    }

    /// Returns the hash of `key`, or `None` if the function is unknown.
    pub(super) fn hash_of(&self, key: &[u8]) -> Option<u32> {
        self.hash.as_ref().map(|hash| hash_32(hash, key))
    }

    /// Returns the bucket of `key`.
    pub(super) fn bucket_of(&self, key: &[u8]) -> Option<u32> {
        self.hash_of(key).map(|hash| self.shape.bucket_of(hash))
    }

    /// Returns an error if an earlier failure has left this handle behind its file.
    pub(super) fn check_usable(&self) -> Result<()> {
        match &self.poison {
            Some(reason) => Err(Error::Poisoned { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// Returns the number of the page at `at`.
    pub(super) fn page_number(&self, bucket: u32, at: At) -> Result<u64> {
        match at {
            At::Bucket => Ok(self.shape.bucket_page(bucket)),
            At::Overflow(addr) => self.shape.overflow_page(addr).ok_or(Error::Corrupt {
                what: "overflow address",
                offset: self.shape.bucket_page(bucket) * u64::from(self.shape.page_bytes),
                expected: 1,
                found: addr.0.into(),
            }),
        }
    }

    /// Returns the fault if the file lacks pages that it must have.
    pub(super) fn missing(&self) -> Option<Error> {
        let (needed, found) = (needed_end(&self.shape), self.file_end?);
        (found < needed).then(|| missing_pages(needed, found))
    }

    /// Returns the page at `at`, to read it.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the file ends before it, or if it is none.
    #[inline]
    pub(super) fn page(&mut self, bucket: u32, at: At) -> Result<Page<'_>> {
        let number = self.page_number(bucket, at)?;
        let offset = number * u64::from(self.shape.page_bytes);
        if let Some(end) = self.file_end.filter(|end| number >= *end) {
            let page_bytes = u64::from(self.shape.page_bytes);
            let (expected, found) = (offset + page_bytes, end * page_bytes);
            return Err(Error::Corrupt { what: "end of the file", offset, expected, found });
        }
        let order = self.order;
        Page::validate(self.pool.page(number, bucket)?, order, offset)
    }

    /// Returns the page at `at`, to change it; somebody has looked at it before.
    pub(super) fn page_mut(&mut self, bucket: u32, at: At) -> Result<PageMut<'_>> {
        let number = self.page_number(bucket, at)?;
        let order = self.order;
        Ok(PageMut::new(self.pool.page_mut(number, bucket)?, order))
    }

    /// Returns as many steps as a chain can have pages: each at most once.
    pub(super) fn steps(&self) -> Steps {
        Steps { left: self.pool.end().min(u64::from(u16::MAX)) + 1, seen: None }
    }

    /// Returns steps for a walk through all buckets, none of which may come to a page of another.
    /// [`Steps::left`] is for one bucket.
    pub(super) fn steps_of_all(&self) -> Steps {
        Steps { seen: Some(Bits::default()), ..self.steps() }
    }

    /// Counts a step to the page at `at`.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if there have been too many, or one to this page.
    #[inline]
    pub(super) fn step(&self, steps: &mut Steps, bucket: u32, at: At) -> Result<()> {
        let is_new = match (at, &mut steps.seen) {
            (At::Overflow(addr), Some(seen)) => seen.insert(addr.0.into()),
            _ => true,
        };
        if steps.left == 0 || !is_new {
            let offset = self.page_number(bucket, at)? * u64::from(self.shape.page_bytes);
            let what = "chain of overflow pages, which comes to a page again";
            return Err(Error::Corrupt { what, offset, expected: 0, found: 1 });
        }
        steps.left -= 1;
        let work = self.work.get();
        self.work.set(Work { chain_pages: work.chain_pages + 1, ..work });
        Ok(())
    }

    /// Returns the value of `key`.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the chain of its bucket is damaged before the key.
    pub(super) fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if let Some(bucket) = self.bucket_of(key) {
            return self.get_in(bucket, key);
        }
        for bucket in 0..self.bucket_end() {
            let value = self.get_in(bucket as u32, key)?;
            if value.is_some() {
                return Ok(value);
            }
        }
        self.missing().map_or(Ok(None), Err)
    }

    fn get_in(&mut self, bucket: u32, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut steps = self.steps();
        let mut at = At::Bucket;
        loop {
            self.step(&mut steps, bucket, at)?;
            let page = self.page(bucket, at)?;
            let next = if page.is_big() {
                let mut value = Vec::new();
                match self.compare_big(bucket, at, key, Some(&mut value), &mut steps)? {
                    Comparison::Same(_) => return Ok(Some(value)),
                    Comparison::Other(end) => end.next,
                }
            } else {
                if let Some(found) = page.find(key)? {
                    return Ok(Some(page.bytes()[found.value].to_vec()));
                }
                page.next()
            };
            match next {
                Some(next) => at = At::Overflow(next),
                None => return Ok(None),
            }
        }
    }

    /// Calls `visit` with each part of the key and the value of the big pair that begins at `at`,
    /// in their order, and returns where it ends.
    ///
    /// The visitor may skip the rest.
    pub(super) fn walk_big(
        &mut self,
        bucket: u32,
        at: At,
        steps: &mut Steps,
        mut visit: impl FnMut(At, &[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<BigEnd> {
        let mut at = at;
        let mut due = After::Key;
        let mut is_visited = true;
        loop {
            let page = self.page(bucket, at)?;
            let part = page.part(due)?;
            if is_visited {
                let bytes = page.bytes();
                is_visited = visit(at, &bytes[part.key], &bytes[part.value]).is_continue();
            }
            match (part.after, part.next) {
                (After::Nothing, next) => return Ok(BigEnd { last: at, next }),
                (after, Some(next)) => {
                    due = after;
                    at = At::Overflow(next);
                    self.step(steps, bucket, at)?;
                }
                (_, None) => unreachable!("`part` has checked that a pair that goes on can"),
            }
        }
    }

    /// Compares the key of the big pair at `at` with `key`; if it is the same, the value is added
    /// to `value`, if that is wanted.
    pub(super) fn compare_big(
        &mut self,
        bucket: u32,
        at: At,
        key: &[u8],
        mut value: Option<&mut Vec<u8>>,
        steps: &mut Steps,
    ) -> Result<Comparison> {
        let mut rest = Some(key);
        let end = self.walk_big(bucket, at, steps, |_, key_part, value_part| {
            rest = rest.and_then(|rest| rest.strip_prefix(key_part));
            // Behind the key there must be nothing left of it.
            let Some(left) = rest else { return ControlFlow::Break(()) };
            if !value_part.is_empty() && !left.is_empty() {
                rest = None;
                return ControlFlow::Break(());
            }
            if let Some(value) = &mut value {
                value.extend_from_slice(value_part);
            }
            ControlFlow::Continue(())
        })?;
        if rest == Some(&[]) { Ok(Comparison::Same(end)) } else { Ok(Comparison::Other(end)) }
    }

    /// Returns key and value of the big pair at `at`, and where it ends.
    pub(super) fn read_big(
        &mut self,
        bucket: u32,
        at: At,
        steps: &mut Steps,
    ) -> Result<(Pair, BigEnd)> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let end = self.walk_big(bucket, at, steps, |_, key_part, value_part| {
            key.extend_from_slice(key_part);
            value.extend_from_slice(value_part);
            ControlFlow::Continue(())
        })?;
        Ok(((key, value), end))
    }

    /// Calls `visit` with every pair of `bucket`.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] where the chain is damaged; the pairs before have been visited.
    pub(super) fn visit_bucket(
        &mut self,
        bucket: u32,
        steps: &mut Steps,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        self.walk_chain(bucket, steps, |store, at, steps| {
            let page = store.page(bucket, at)?;
            if page.is_big() {
                let ((key, value), end) = store.read_big(bucket, at, steps)?;
                visit(&key, &value);
                return Ok(end.next);
            }
            for pair in page.pairs() {
                let (_, key, value) = pair?;
                visit(key, value);
            }
            Ok(page.next())
        })
    }

    /// Calls `visit` with each page of `bucket` on which a pair or a list of pairs begins. It
    /// returns the page behind.
    pub(super) fn walk_chain(
        &mut self,
        bucket: u32,
        steps: &mut Steps,
        mut visit: impl FnMut(&mut Self, At, &mut Steps) -> Result<Option<OverflowAddr>>,
    ) -> Result<()> {
        let mut at = At::Bucket;
        loop {
            self.step(steps, bucket, at)?;
            match visit(self, at, steps)? {
                Some(next) => at = At::Overflow(next),
                None => return Ok(()),
            }
        }
    }

    /// Returns the pages of `bucket` behind the first, in the order of the chain.
    pub(super) fn chain(&mut self, bucket: u32) -> Result<Vec<OverflowAddr>> {
        let mut addrs = Vec::new();
        let mut steps = self.steps();
        let mut next = self.page(bucket, At::Bucket)?.next();
        while let Some(addr) = next {
            self.step(&mut steps, bucket, At::Overflow(addr))?;
            addrs.push(addr);
            next = self.page(bucket, At::Overflow(addr))?.next();
        }
        Ok(addrs)
    }

    /// Returns the number of pairs on each page of `bucket`: a big pair counts on its first, and
    /// its pages are one.
    pub(super) fn keys_per_page(&mut self, bucket: u32, steps: &mut Steps) -> Result<Vec<u64>> {
        let mut counts = Vec::new();
        self.walk_chain(bucket, steps, |store, at, steps| {
            let page = store.page(bucket, at)?;
            if page.is_big() {
                counts.push(1);
                let end = store.walk_big(bucket, at, steps, |_, _, _| ControlFlow::Break(()))?;
                return Ok(end.next);
            }
            counts.push(page.pair_count() as u64);
            Ok(page.next())
        })?;
        Ok(counts)
    }

    /// Returns the buckets that can hold something: those whose page has been written.
    pub(super) fn bucket_end(&self) -> u64 {
        let count = u64::from(self.shape.max_bucket) + 1;
        let end = self.file_end.unwrap_or(self.pool.end());
        let is_written =
            |bucket: &u64| self.shape.bucket_page(u32::try_from(*bucket).unwrap_or(u32::MAX)) < end;
        // Pages rise with their buckets.
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low + (high - low) / 2;
            if is_written(&middle) { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Returns the number of keys; counts them the first time.
    ///
    /// It does not trust the count in the header, because the original does not count some pairs,
    /// and an interrupted sync may leave others twice.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if a chain is damaged, or if the file was cut short.
    pub(super) fn len(&mut self) -> Result<u64> {
        if let Some(count) = self.record_count {
            return Ok(count);
        }
        if let Some(error) = self.missing() {
            return Err(error);
        }
        let mut count = 0;
        let mut steps = self.steps_of_all();
        for bucket in 0..self.bucket_end() {
            let bucket = bucket as u32;
            steps.left = self.steps().left;
            if self.is_interrupted && self.hash.is_some() {
                count += self.pairs_of(bucket)?.len() as u64;
            } else {
                count += self.keys_per_page(bucket, &mut steps)?.iter().sum::<u64>();
            }
        }
        self.record_count = Some(count);
        Ok(count)
    }

    /// Returns the pairs of `bucket`, without those that a sync that was interrupted has left here
    /// after they had moved.
    pub(super) fn pairs_of(&mut self, bucket: u32) -> Result<Vec<Pair>> {
        let mut steps = self.steps();
        let (pairs, result) = self.pairs_before_damage(bucket, &mut steps);
        result.map(|()| pairs)
    }

    /// Returns the pairs of `bucket` as [`pairs_of`](Self::pairs_of), and those before a damage.
    pub(super) fn pairs_before_damage(
        &mut self,
        bucket: u32,
        steps: &mut Steps,
    ) -> (Vec<Pair>, Result<()>) {
        let mut pairs: Vec<Pair> = Vec::new();
        let visit = |key: &[u8], value: &[u8]| pairs.push((key.to_vec(), value.to_vec()));
        let result = self.visit_bucket(bucket, steps, visit);
        if self.is_interrupted && self.hash.is_some() {
            pairs.retain(|(key, _)| self.bucket_of(key) == Some(bucket));
        }
        (pairs, result)
    }
}

/// The error for a file that must have `needed` pages and has `found`.
pub(super) fn missing_pages(needed: u64, found: u64) -> Error {
    Error::Corrupt { what: "number of pages", offset: 40, expected: needed, found }
}

/// Whether a big pair has the key that is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Same(BigEnd),
    Other(BigEnd),
}

/// Returns the 32 bits that the package uses of a hash.
pub(super) fn hash_32(hash: &HashFunction, key: &[u8]) -> u32 {
    hash.hash(key, 0) as u32
}

/// Returns the hash of the probe key, which the header keeps.
pub(super) fn probe_hash(hash: &HashFunction) -> u32 {
    hash_32(hash, PROBE_KEY)
}
