//! Puts and deletes.
//!
//! A pair of ordinary size goes to the first page of the bucket that has room. A new overflow page
//! comes right behind the bucket's page, and big pairs come behind all ordinary pages. So most
//! changes touch one existing page, which makes them cheap to sync in a safe order.
//!
//! # Invariants
//!
//! - A change counts the pages that it needs before it begins. If there are not enough, it fails
//!   and changes nothing.
//! - A change that fails later, because it cannot read a page back, poisons the handle. The file
//!   stays as it was last synced.

use splitpoint::{Error, PutMode, Result};

use super::addresses::OverflowAddr;
use super::big::layout;
use super::header::FILL_FACTOR_UNDECIDED;
use super::page::{After, Found, Page, PageMut, is_big, part_bytes_max};
use super::store::{At, BigEnd, Comparison, Steps, Store};

/// Longest key and value: the original has their sizes in an `int`.
pub(super) const PAIR_BYTES_MAX: u64 = i32::MAX as u64;

/// The lowest fill factor that is decided at the first overflow.
const FILL_FACTOR_MIN: u32 = 4;

/// The place of a key.
#[derive(Clone, Debug)]
struct Hit {
    at: At,
    /// The page before `at` in the chain.
    before: Option<At>,
    kind: HitKind,
}

#[derive(Clone, Debug)]
enum HitKind {
    Small(Found),
    Big(BigEnd),
}

/// The state of a bucket before a put.
#[derive(Clone, Debug)]
struct Place {
    hit: Option<Hit>,
    /// The first page with room for the pair.
    room: Option<At>,
    /// The last of the ordinary pages before the first big pair.
    last_ordinary: At,
}

/// Whether a pair was given a new overflow page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    None,
    Overflow,
}

impl Store {
    /// Returns an error unless this handle may change the table.
    pub(super) fn check_changeable(&self) -> Result<()> {
        self.check_usable()?;
        if self.is_read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Stores `value` under `key`, and returns whether it was stored.
    pub(super) fn put(&mut self, key: &[u8], value: &[u8], mode: PutMode) -> Result<bool> {
        self.check_changeable()?;
        for (what, bytes) in [("key", key.len() as u64), ("value", value.len() as u64)] {
            if bytes > PAIR_BYTES_MAX {
                return Err(Error::TooLarge { what, bytes, bytes_max: PAIR_BYTES_MAX });
            }
        }
        let bucket = self.bucket_of(key).expect("a table that is changed has a hash function");
        let mut place = self.locate(bucket, key, Some(value.len()))?;
        if mode == PutMode::New && place.hit.is_some() {
            return Ok(false);
        }
        let needed = self.pages_needed(&place, key, value);
        if needed > self.overflow.available(&self.shape) {
            self.reserve(needed)?;
            place = self.locate(bucket, key, Some(value.len()))?;
        }
        self.check_page(bucket, place.last_ordinary)?;
        self.check_hit(bucket, &place)?;
        self.changing(|store| {
            store.set_aside(bucket);
            let growth = store.put_at(bucket, place, key, value)?;
            if growth == Growth::Overflow || store.is_over_full() {
                store.split_counted(growth)?;
            }
            Ok(true)
        })
    }

    /// Removes `key` and returns whether it was there.
    pub(super) fn delete(&mut self, key: &[u8]) -> Result<bool> {
        self.check_changeable()?;
        let bucket = self.bucket_of(key).expect("a table that is changed has a hash function");
        let place = self.locate(bucket, key, None)?;
        self.check_hit(bucket, &place)?;
        let Some(hit) = place.hit else { return Ok(false) };
        self.changing(|store| {
            store.set_aside(bucket);
            store.remove(bucket, &hit)?;
            store.count(-1);
            Ok(true)
        })
    }

    /// Removes `key` from `bucket`, where it does not belong.
    pub(super) fn remove_from(&mut self, bucket: u32, key: &[u8]) -> Result<()> {
        let place = self.locate(bucket, key, None)?;
        self.check_hit(bucket, &place)?;
        place.hit.map_or(Ok(()), |hit| self.remove(bucket, &hit))
    }

    /// Runs a change of several steps. If it fails midway, it poisons the handle.
    pub(super) fn changing<T>(&mut self, change: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.is_changed = true;
        let result = change(self);
        if let Err(error) = &result {
            self.poison = Some(error.to_string());
        }
        result
    }

    /// Splits, and counts why.
    fn split_counted(&mut self, growth: Growth) -> Result<()> {
        let earlier = self.shape.max_bucket;
        self.split()?;
        let splits = u64::from(self.shape.max_bucket - earlier);
        let work = self.work.get_mut();
        match growth {
            Growth::Overflow => work.overflow_splits += splits,
            Growth::None => work.fill_splits += splits,
        }
        Ok(())
    }

    fn count(&mut self, difference: i32) {
        self.key_estimate = self.key_estimate.saturating_add_signed(difference);
        let count = self.record_count.as_mut();
        if let Some(count) = count {
            *count = count.saturating_add_signed(difference.into());
        }
    }

    /// Returns whether there are more keys per bucket than there should be.
    fn is_over_full(&self) -> bool {
        let bucket_count = u64::from(self.shape.max_bucket) + 1;
        u64::from(self.key_estimate) / bucket_count > u64::from(self.fill_factor)
    }

    /// Looks for `key` in all of its bucket, and for a page with room for it and a value of
    /// `value_bytes`; without a value it looks for the key alone.
    fn locate(&mut self, bucket: u32, key: &[u8], value_bytes: Option<usize>) -> Result<Place> {
        let pair_bytes = value_bytes.map(|bytes| key.len() + bytes);
        let has_room = |page: Page<'_>| pair_bytes.is_some_and(|bytes| page.has_room(bytes));
        let (mut hit, mut room) = (None, None);
        let (mut last_ordinary, mut before) = (At::Bucket, None);
        let mut has_big = false;
        let mut steps = self.steps();
        let mut at = At::Bucket;
        loop {
            self.step(&mut steps, bucket, at)?;
            let page = self.page(bucket, at)?;
            let (last, next) = if page.is_big() {
                has_big = true;
                let (found, end) = self.locate_big(bucket, at, key, &mut steps)?;
                if found && hit.is_none() {
                    hit = Some(Hit { at, before, kind: HitKind::Big(end) });
                }
                (end.last, end.next)
            } else {
                let found = if hit.is_none() { page.find(key)? } else { None };
                if room.is_none() && has_room(page) {
                    room = Some(at);
                }
                if let Some(found) = found {
                    // The page where the key is has the room that its old value leaves.
                    if pair_bytes.is_some_and(|bytes| page.has_room_without(&found, bytes)) {
                        room = Some(at);
                    }
                    hit = Some(Hit { at, before, kind: HitKind::Small(found) });
                }
                let next = page.next();
                if !has_big {
                    last_ordinary = at;
                }
                (at, next)
            };
            before = Some(last);
            match next.filter(|_| hit.is_none() || pair_bytes.is_some()) {
                Some(next) => at = At::Overflow(next),
                None => return Ok(Place { hit, room, last_ordinary }),
            }
        }
    }

    /// Returns whether the big pair at `at` has `key`, and where it ends.
    fn locate_big(
        &mut self,
        bucket: u32,
        at: At,
        key: &[u8],
        steps: &mut Steps,
    ) -> Result<(bool, BigEnd)> {
        // Skip the value.
        match self.compare_big(bucket, at, key, None, steps)? {
            Comparison::Same(end) => Ok((true, end)),
            Comparison::Other(end) => Ok((false, end)),
        }
    }

    /// Returns the number of overflow pages that a put needs.
    fn pages_needed(&self, place: &Place, key: &[u8], value: &[u8]) -> u32 {
        if is_big(self.page_bytes(), key.len(), value.len()) {
            // And an empty page behind, if the value ends on the page of the key.
            let pages = (key.len() + value.len()).div_ceil(part_bytes_max(self.page_bytes())) + 3;
            return u32::try_from(pages).unwrap_or(u32::MAX);
        }
        u32::from(place.room.is_none())
    }

    /// Makes `needed` overflow pages available, or fails with nothing changed.
    fn reserve(&mut self, needed: u32) -> Result<()> {
        if self.overflow.has_released() && self.pool.disk().is_some() {
            self.sync()?;
        }
        if needed <= self.overflow.available(&self.shape) {
            return Ok(());
        }
        let bytes = u64::from(needed) * u64::from(self.shape.page_bytes);
        Err(Error::Full { what: "set of overflow pages that the format has room for", bytes })
    }

    /// Returns an error if the page at `at` is too damaged to be changed.
    fn check_page(&mut self, bucket: u32, at: At) -> Result<()> {
        self.check_one(bucket, At::Bucket)?;
        if at == At::Bucket { Ok(()) } else { self.check_one(bucket, at) }
    }

    /// Checks one page, once for each time that it comes into memory.
    pub(super) fn check_one(&mut self, bucket: u32, at: At) -> Result<()> {
        let number = self.page_number(bucket, at)?;
        if !self.pool.is_checked(number) {
            self.page(bucket, at)?.can_change()?;
            self.pool.set_checked(number);
        }
        Ok(())
    }

    fn check_hit(&mut self, bucket: u32, place: &Place) -> Result<()> {
        if let Some(room) = place.room {
            self.check_page(bucket, room)?;
        }
        let Some(hit) = &place.hit else { return Ok(()) };
        if let Some(before) = hit.before
            && !self.page(bucket, before)?.is_big()
        {
            self.check_one(bucket, before)?;
        }
        self.check_page(
            bucket,
            if matches!(hit.kind, HitKind::Small(_)) { hit.at } else { At::Bucket },
        )
    }

    fn put_at(&mut self, bucket: u32, place: Place, key: &[u8], value: &[u8]) -> Result<Growth> {
        let is_big = is_big(self.page_bytes(), key.len(), value.len());
        let mut place = place;
        if let Some(hit) = place.hit.take() {
            match hit.kind {
                HitKind::Small(found) if !is_big && place.room == Some(hit.at) => {
                    let mut page = self.page_mut(bucket, hit.at)?;
                    page.remove_pair(&found);
                    page.add_pair(key, value);
                    return Ok(Growth::None);
                }
                _ => self.remove(bucket, &hit)?,
            }
            // Pages may have left the chain.
            place = self.locate(bucket, key, Some(value.len()))?;
        } else {
            self.count(1);
        }
        if is_big {
            self.add_big(bucket, place.last_ordinary, key, value)?;
            return Ok(Growth::Overflow);
        }
        if let Some(room) = place.room {
            self.page_mut(bucket, room)?.add_pair(key, value);
            return Ok(Growth::None);
        }
        let addr = self.add_page(bucket, At::Bucket)?;
        self.page_mut(bucket, At::Overflow(addr))?.add_pair(key, value);
        Ok(Growth::Overflow)
    }

    /// Takes a free overflow page for `bucket`, empty.
    ///
    /// # Panics
    ///
    /// If there is none. The caller has counted them before.
    pub(super) fn new_page(&mut self, bucket: u32) -> Result<OverflowAddr> {
        let addr = self.overflow.allocate(&mut self.shape);
        let addr = addr.expect("the pages were counted before the change began");
        let number = self.page_number(bucket, At::Overflow(addr))?;
        let order = self.order;
        PageMut::new(self.pool.new_page(number, bucket)?, order).clear();
        Ok(addr)
    }

    /// Adds an empty page to the chain behind the ordinary page at `before`.
    pub(super) fn add_page(&mut self, bucket: u32, before: At) -> Result<OverflowAddr> {
        self.check_one(bucket, before)?;
        self.decide_fill_factor(bucket, before)?;
        let next = self.page(bucket, before)?.next();
        let addr = self.new_page(bucket)?;
        self.page_mut(bucket, At::Overflow(addr))?.set_next(next);
        self.page_mut(bucket, before)?.set_next(Some(addr));
        Ok(addr)
    }

    /// Sets the fill factor to the number of pairs on the first page that overflows, if it is
    /// still undecided.
    fn decide_fill_factor(&mut self, bucket: u32, at: At) -> Result<()> {
        if self.fill_factor == FILL_FACTOR_UNDECIDED {
            let pairs = self.page(bucket, at)?.pair_count() as u32;
            self.fill_factor = pairs.max(FILL_FACTOR_MIN);
        }
        Ok(())
    }

    /// Adds a big pair to the chain behind the page at `before`.
    fn add_big(&mut self, bucket: u32, before: At, key: &[u8], value: &[u8]) -> Result<()> {
        self.check_one(bucket, before)?;
        self.decide_fill_factor(bucket, before)?;
        let shares = layout(self.page_bytes(), key.len(), value.len());
        let behind = self.page(bucket, before)?.next();
        let mut addrs = Vec::with_capacity(shares.len() + 1);
        for _ in &shares {
            addrs.push(self.new_page(bucket)?);
        }
        let last_has_key = shares.last().is_some_and(|share| share.has_key);
        let behind = match behind {
            None if last_has_key => Some(self.new_page(bucket)?),
            behind => behind,
        };
        for (i, share) in shares.iter().enumerate() {
            let next = addrs.get(i + 1).copied().or(behind);
            let mut page = self.page_mut(bucket, At::Overflow(addrs[i]))?;
            let (key, value) = (&key[share.key.clone()], &value[share.value.clone()]);
            if share.has_key {
                let next = next.expect("a page of a key has a next one");
                page.set_key_part(share.after, key, value, next);
            } else {
                page.set_value_part(value, share.after, next);
            }
        }
        self.page_mut(bucket, before)?.set_next(Some(addrs[0]));
        Ok(())
    }

    /// Removes the pair at `hit`, and overflow pages that nothing is left on.
    fn remove(&mut self, bucket: u32, hit: &Hit) -> Result<()> {
        match &hit.kind {
            HitKind::Small(found) => {
                self.page_mut(bucket, hit.at)?.remove_pair(found);
                let page = self.page(bucket, hit.at)?;
                let (is_empty, next) = (page.pair_count() == 0, page.next());
                match (hit.at, hit.before) {
                    (At::Overflow(addr), Some(before)) if is_empty => {
                        self.unlink(bucket, before, &[addr], next)
                    }
                    _ => Ok(()),
                }
            }
            HitKind::Big(end) => {
                let pages = self.pages_of_big(bucket, hit.at)?;
                let before = hit.before.expect("a big pair is behind the page of its bucket");
                self.unlink(bucket, before, &pages, end.next)
            }
        }
    }

    /// Returns the pages of the big pair at `at`.
    pub(super) fn pages_of_big(&mut self, bucket: u32, at: At) -> Result<Vec<OverflowAddr>> {
        let mut pages = Vec::new();
        let mut steps = self.steps();
        self.walk_big(bucket, at, &mut steps, |at, _, _| {
            if let At::Overflow(addr) = at {
                pages.push(addr);
            }
            std::ops::ControlFlow::Continue(())
        })?;
        Ok(pages)
    }

    /// Takes `pages`, which follow `before` and are followed by `next`, out of the chain.
    ///
    /// Where the big pair before needs a next page, one stays, empty.
    pub(super) fn unlink(
        &mut self,
        bucket: u32,
        before: At,
        pages: &[OverflowAddr],
        next: Option<OverflowAddr>,
    ) -> Result<()> {
        let mut pages = pages;
        if next.is_some() || self.page(bucket, before)?.can_be_last() {
            self.page_mut(bucket, before)?.set_next(next);
        } else if let Some((first, rest)) = pages.split_first() {
            self.page_mut(bucket, At::Overflow(*first))?.clear();
            pages = rest;
        }
        for addr in pages {
            self.free_page(bucket, *addr)?;
        }
        Ok(())
    }

    /// Frees a page that no chain leads to any more.
    pub(super) fn free_page(&mut self, bucket: u32, addr: OverflowAddr) -> Result<()> {
        let number = self.page_number(bucket, At::Overflow(addr))?;
        self.pool.forget(number);
        // A page that the header does not know of, left by a crash, has no bit to be freed.
        if let Some(index) = self.shape.overflow_index(addr) {
            self.overflow.release(index);
        }
        Ok(())
    }
}

/// What goes on behind a page of a big pair when it is copied to another place.
impl Store {
    /// Copies the big pair at `at`, page by page, into `to` behind the page at `before`, which is
    /// the last there, and returns its last page.
    pub(super) fn copy_big(&mut self, from: u32, at: At, to: u32, before: At) -> Result<At> {
        let pages = self.pages_of_big(from, at)?;
        let mut before = before;
        let mut due = After::Key;
        for (i, addr) in pages.iter().enumerate() {
            let page = self.page(from, At::Overflow(*addr))?;
            let after = page.part(due)?.after;
            let bytes = page.bytes().to_vec();
            let copy = self.new_page(to)?;
            let number = self.page_number(to, At::Overflow(copy))?;
            self.pool.page_mut(number, to)?.copy_from_slice(&bytes);
            if i + 1 == pages.len() && self.page(to, At::Overflow(copy))?.can_be_last() {
                self.page_mut(to, At::Overflow(copy))?.set_next(None);
            }
            self.page_mut(to, before)?.set_next(Some(copy));
            before = At::Overflow(copy);
            due = after;
        }
        Ok(before)
    }
}
