//! Splits: a bucket passes the pairs that belong elsewhere to a new bucket.
//!
//! A split is due when a pair was given a new overflow page (uncontrolled) or when there are more
//! keys per bucket than the fill factor (controlled). Which bucket is divided is fixed by the
//! shape of the table, not by which one is full: that is linear hashing.
//!
//! All pages of the new bucket are new, and a split copies big pairs. So the old bucket has
//! everything until the sync that adds the new bucket to the table has written it.
//!
//! # Invariants
//!
//! - A split that lacks overflow pages, or whose bucket is damaged, does not begin. The table is
//!   as good without it, only slower.

use splitpoint::{Error, Result};

use super::addresses::OverflowAddr;
use super::page::{INDEX_BYTES, PAGE_META_BYTES, PageMut, is_big};
use super::store::{At, Store, hash_32};

/// The part of a bucket that moves to another.
#[derive(Debug, Default)]
struct Moves {
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
    big: Vec<At>,
    /// Overflow pages that the new bucket needs.
    page_count: u32,
}

impl Store {
    /// Adds one bucket, if possible.
    pub(super) fn split(&mut self) -> Result<()> {
        let mut shape = self.shape.clone();
        let Some(split) = shape.grow() else { return Ok(()) };
        let earlier = std::mem::replace(&mut self.shape, shape);
        let moves = match self.plan_moves(split.from, split.to) {
            Ok(moves) if moves.page_count <= self.overflow.available(&self.shape) => moves,
            Ok(_) | Err(Error::Corrupt { .. }) => {
                self.shape = earlier;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.set_aside(split.from);
        self.fill(split.from, split.to, &moves)?;
        self.clear_moved(split.from, split.to)
    }

    /// Returns the pairs of bucket `from` that belong to `to`, now that there is one.
    fn plan_moves(&mut self, from: u32, to: u32) -> Result<Moves> {
        let mut moves = Moves::default();
        let page_bytes = self.page_bytes();
        let mut steps = self.steps();
        self.page(from, At::Bucket)?.can_change()?;
        self.walk_chain(from, &mut steps, |store, at, steps| {
            let page = store.page(from, at)?;
            if page.is_big() {
                let mut key = Vec::new();
                let mut page_count = 0;
                let end = store.walk_big(from, at, steps, |_, key_part, _| {
                    key.extend_from_slice(key_part);
                    page_count += 1;
                    std::ops::ControlFlow::Continue(())
                })?;
                if store.bucket_of(&key) == Some(to) {
                    moves.big.push(at);
                    moves.page_count += page_count;
                }
                return Ok(end.next);
            }
            page.can_change()?;
            let next = page.next();
            let mut pairs = Vec::new();
            for pair in page.pairs() {
                let (_, key, value) = pair?;
                if is_big(page_bytes, key.len(), value.len()) {
                    return Err(Error::Corrupt {
                        what: "pair, which fills more than its page",
                        offset: 0,
                        expected: page_bytes as u64,
                        found: (key.len() + value.len()) as u64,
                    });
                }
                pairs.push((key.to_vec(), value.to_vec()));
            }
            pairs.retain(|(key, _)| store.bucket_of(key) == Some(to));
            moves.pairs.extend(pairs);
            Ok(next)
        })?;
        // An empty page behind the last big pair, at most.
        moves.page_count += u32::from(!moves.big.is_empty());
        // Of two pages that follow each other, one alone could not have had the pairs of both.
        let pair_bytes = moves.pairs.iter().map(|(key, value)| key.len() + value.len() + 4);
        let pages =
            2 * pair_bytes.sum::<usize>() / (page_bytes - PAGE_META_BYTES - INDEX_BYTES) + 1;
        moves.page_count += pages.min(moves.pairs.len()) as u32;
        Ok(moves)
    }

    /// Fills bucket `to` with `moves`.
    fn fill(&mut self, from: u32, to: u32, moves: &Moves) -> Result<()> {
        let number = self.page_number(to, At::Bucket)?;
        let order = self.order;
        // What a crash may have left on that page does not count.
        PageMut::new(self.pool.new_page(number, to)?, order).clear();
        let mut last = At::Bucket;
        for (key, value) in &moves.pairs {
            if !self.page(to, last)?.has_room(key.len() + value.len()) {
                last = At::Overflow(self.add_page(to, last)?);
            }
            self.page_mut(to, last)?.add_pair(key, value);
        }
        for at in &moves.big {
            last = self.copy_big(from, *at, to, last)?;
        }
        if !self.page(to, last)?.can_be_last() {
            let addr = self.new_page(to)?;
            self.page_mut(to, last)?.set_next(Some(addr));
        }
        Ok(())
    }

    /// Removes from bucket `from` what has moved to `to`, and pages of which little is left.
    fn clear_moved(&mut self, from: u32, to: u32) -> Result<()> {
        let mut before: Option<At> = None;
        let mut next = Some(At::Bucket);
        while let Some(at) = next {
            let page = self.page(from, at)?;
            if page.is_big() {
                let mut steps = self.steps();
                let ((key, _), end) = self.read_big(from, at, &mut steps)?;
                next = end.next.map(At::Overflow);
                if self.bucket_of(&key) == Some(to) {
                    let pages = self.pages_of_big(from, at)?;
                    let before = before.expect("a big pair is behind the page of its bucket");
                    self.unlink(from, before, &pages, end.next)?;
                } else {
                    before = Some(end.last);
                }
                continue;
            }
            self.remove_moved(from, to, at)?;
            let behind = self.page(from, at)?.next();
            next = behind.map(At::Overflow);
            match (at, before) {
                (At::Overflow(addr), Some(earlier)) if self.is_spread(from, addr)? => {
                    self.unlink(from, earlier, &[addr], behind)?;
                }
                _ => before = Some(at),
            }
        }
        Ok(())
    }

    fn remove_moved(&mut self, from: u32, to: u32, at: At) -> Result<()> {
        let (hash, shape) = (self.hash.clone(), self.shape.clone());
        let hash = hash.expect("a table that is changed has a hash function");
        let moved = |key: &[u8]| shape.bucket_of(hash_32(&hash, key)) == to;
        let found = self.page(from, at)?.find_all(moved)?;
        let mut page = self.page_mut(from, at)?;
        // From the last, since the slots behind a pair move when it goes.
        for found in found.iter().rev() {
            page.remove_pair(found);
        }
        Ok(())
    }

    /// Moves the pairs of an overflow page to the page of its bucket if all have room there, and
    /// returns whether the page is empty now.
    fn is_spread(&mut self, bucket: u32, addr: OverflowAddr) -> Result<bool> {
        let page = self.page(bucket, At::Overflow(addr))?;
        let pairs =
            page.pairs().map(|pair| pair.map(|(_, key, value)| (key.to_vec(), value.to_vec())));
        let pairs = pairs.collect::<Result<Vec<_>>>()?;
        // As one pair, with the index of the others.
        let bytes = pairs.iter().map(|(key, value)| key.len() + value.len() + 4).sum::<usize>();
        if !pairs.is_empty() && !self.page(bucket, At::Bucket)?.has_room(bytes - 4) {
            return Ok(false);
        }
        for (key, value) in &pairs {
            self.page_mut(bucket, At::Bucket)?.add_pair(key, value);
        }
        Ok(true)
    }
}
