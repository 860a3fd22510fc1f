//! Finds the slot of a key: for readers, without a lock, and for the writer.
//!
//! The steps of a reader are always inlined into each lookup: as calls, they pass lines and results
//! through memory, and `get_many` took 1.5 times as long.

use super::Lines;
use super::line::{Line, LineNumber};
use super::shape::Shape;
use super::slot::{Slot, Tag};
use crate::atomic::Ordering;
use crate::error::{Error, Result};
use crate::format::Addr;
use crate::linear::BucketIndex;

/// Finds the record of a key, on any thread, while one writer may change the table.
///
/// `is_key` says whether the record at an address has the key that was hashed. If it reads records
/// that the writer may overwrite, the caller must hold a [pin](crate::pins); [`find_candidate`]
/// avoids the pin for a miss. A record that is found was current during the call. A miss is valid
/// only if the hash still leads to the same bucket and no memory that was read has been reused:
/// `docs/design.md` has the argument, under "Why is a lock-free miss right?".
///
/// # Source
///
/// Linear hashing with concurrent readers: Ellis 1987, as in the hash index of `PostgreSQL`, with a word
/// that is read twice in place of latches.
#[inline(always)]
pub(crate) fn find<L: Lines + ?Sized, T>(
    lines: &L,
    hash: u64,
    is_key: impl FnMut(Addr) -> Result<Option<T>>,
) -> Result<Option<T>> {
    match find_candidate(lines, hash)? {
        Some(candidate) => candidate.find_if(true, lines, hash, is_key),
        None => Ok(None),
    }
}

/// The first line of a chain with a slot that has the tag of a hash. Its records have not been read
/// yet.
pub(crate) struct Candidate<'a> {
    /// The word with the shape that led there.
    shape: u64,
    line: &'a Line,
    /// Lines of the chain before it.
    line_count: u64,
    /// The slots that had the tag.
    slots: u32,
}

/// The start of a lookup: the bucket line of a hash, whose prefetch may still be in progress.
#[derive(Clone, Copy)]
pub(crate) struct Start<'a> {
    /// The word with the shape that led there.
    shape: u64,
    line: &'a Line,
}

impl<'a> Start<'a> {
    /// Returns the start of the lookup of a hash.
    #[inline(always)]
    pub(crate) fn of_hash<L: Lines + ?Sized>(lines: &'a L, hash: u64) -> Self {
        Self::of_shape(lines, lines.shape().load(Ordering::Acquire), hash)
    }

    #[inline(always)]
    fn of_shape<L: Lines + ?Sized>(lines: &'a L, shape: u64, hash: u64) -> Self {
        let bucket = Shape::of_word(shape).geometry.bucket_of(hash);
        Self { shape, line: lines.bucket(bucket) }
    }

    /// Returns the line.
    #[inline(always)]
    pub(crate) fn line(self) -> &'a Line {
        self.line
    }

    /// Looks for a slot with the tag of the hash, as [`find_candidate`].
    #[inline(always)]
    pub(crate) fn find_candidate<L: Lines + ?Sized>(
        mut self,
        lines: &'a L,
        hash: u64,
    ) -> Result<Option<Candidate<'a>>> {
        loop {
            let Self { shape, line } = self;
            let missed = match next_with_tag(lines, line, 0, Tag::of_hash(hash)) {
                Ok(Some((line, line_count, slots))) => {
                    return Ok(Some(Candidate { shape, line, line_count, slots }));
                }
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            };
            // Like a miss, an error (a chain that is too long) is valid only if the chain has not
            // changed under the reader.
            let after = lines.shape().load(Ordering::Acquire);
            if shape == after || is_same_place(shape, after, hash) {
                return missed;
            }
            self = Self::of_shape(lines, after, hash);
        }
    }
}

/// Looks for a slot with the tag of a hash; `None` is a miss, as of [`find`].
#[inline(always)]
pub(crate) fn find_candidate<L: Lines + ?Sized>(
    lines: &L,
    hash: u64,
) -> Result<Option<Candidate<'_>>> {
    Start::of_hash(lines, hash).find_candidate(lines, hash)
}

/// Returns the first line of a chain, from `line` on, that has a slot with the tag, the number of lines
/// before it, and a mask of those slots.
#[inline(always)]
fn next_with_tag<'a, L: Lines + ?Sized>(
    lines: &'a L,
    mut line: &'a Line,
    mut line_count: u64,
    tag: Tag,
) -> Result<Option<(&'a Line, u64, u32)>> {
    loop {
        let slots = line.match_tag(tag);
        if slots != 0 {
            return Ok(Some((line, line_count, slots)));
        }
        let Some(next) = line.next() else { return Ok(None) };
        line_count += 1;
        line = follow(lines, next, line_count)?;
    }
}

impl<'a> Candidate<'a> {
    /// Returns the record that is compared first, unless its slot has become empty.
    #[inline(always)]
    pub(crate) fn first(&self) -> Option<Addr> {
        let slot = self.line.slot(self.slots.trailing_zeros() as usize);
        (!slot.is_empty()).then(|| slot.addr())
    }

    /// Finds the record like [`find`], for a caller that has taken a pin since the candidate was
    /// found.
    ///
    /// Before the pin, the line may have left its chain, or its buckets may have moved in memory.
    /// Then it still has the slots of that time, and the space of their records may have been
    /// reused. Both events change the epoch first.
    #[inline(always)]
    pub(crate) fn find_pinned<L: Lines + ?Sized, T>(
        self,
        lines: &'a L,
        hash: u64,
        is_key: impl FnMut(Addr) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let is_current = lines.shape().load(Ordering::Acquire) == self.shape;
        self.find_if(is_current, lines, hash, is_key)
    }

    /// Compares the records if the candidate `is_current`, and otherwise starts over. A candidate
    /// that was found under the caller's pin is current.
    #[inline(always)]
    pub(crate) fn find_if<L: Lines + ?Sized, T>(
        self,
        is_current: bool,
        lines: &'a L,
        hash: u64,
        mut is_key: impl FnMut(Addr) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let looked = is_current.then(|| self.find_in_rest(lines, Tag::of_hash(hash), &mut is_key));
        match looked {
            Some(Ok(Some(found))) => Ok(Some(found)),
            missed => settle(lines, hash, self.shape, missed, is_key),
        }
    }

    #[inline(always)]
    fn find_in_rest<L: Lines + ?Sized, T>(
        &self,
        lines: &'a L,
        tag: Tag,
        is_key: &mut impl FnMut(Addr) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let Self { mut line, mut line_count, mut slots, .. } = *self;
        loop {
            while slots != 0 {
                // Load the slot again: the space of the record that it held before the pin may have
                // been reused since.
                let slot = line.slot(slots.trailing_zeros() as usize);
                if slot.tag() == tag
                    && !slot.is_empty()
                    && let Some(found) = is_key(slot.addr())?
                {
                    return Ok(Some(found));
                }
                slots &= slots - 1;
            }
            let Some(next) = line.next() else { return Ok(None) };
            line_count += 1;
            line = follow(lines, next, line_count)?;
            slots = line.match_tag(tag);
        }
    }
}

/// Returns whether a slot of the chain of `hash` holds `addr`, from any thread. As [`find`], but
/// reads no record.
#[inline]
pub(crate) fn is_held<L: Lines + ?Sized>(lines: &L, hash: u64, addr: Addr) -> Result<bool> {
    let shape = Shape::of_word(lines.shape().load(Ordering::Acquire));
    let line = lines.bucket(shape.geometry.bucket_of(hash));
    // Fast path: a slot that holds `addr` is proof. Only a miss needs a second look at the shape.
    if line.has(Slot::new(Tag::of_hash(hash), addr)) {
        return Ok(true);
    }
    let found = find(lines, hash, |other| Ok((other == addr).then_some(())))?;
    Ok(found.is_some())
}

#[cold]
fn is_same_place(before: u64, after: u64, hash: u64) -> bool {
    debug_assert_ne!(before, after, "the same word needs no second look");
    let (before, after) = (Shape::of_word(before), Shape::of_word(after));
    before.epoch == after.epoch && before.geometry.bucket_of(hash) == after.geometry.bucket_of(hash)
}

/// Returns the miss or error if the writer has moved nothing since the reader loaded `shape`;
/// otherwise, or if there is no result yet, searches again. A function of its own, so that only the
/// path of a hit is inlined into the caller.
#[cold]
#[inline(never)]
fn settle<L: Lines + ?Sized, T>(
    lines: &L,
    hash: u64,
    mut shape: u64,
    mut missed: Option<Result<Option<T>>>,
    mut is_key: impl FnMut(Addr) -> Result<Option<T>>,
) -> Result<Option<T>> {
    loop {
        if let Some(missed) = missed {
            let after = lines.shape().load(Ordering::Acquire);
            if shape == after || is_same_place(shape, after, hash) {
                return missed;
            }
        }
        let Some(candidate) = find_candidate(lines, hash)? else { return Ok(None) };
        let looked = candidate.find_in_rest(lines, Tag::of_hash(hash), &mut is_key);
        if let Ok(Some(_)) = looked {
            return looked;
        }
        missed = Some(looked);
        shape = candidate.shape;
    }
}

/// Returns the line that continues a chain of `line_count` lines so far.
pub(super) fn follow<L: Lines + ?Sized>(
    lines: &L,
    next: LineNumber,
    line_count: u64,
) -> Result<&Line> {
    debug_assert!(next.0 != 0, "lines are counted from 1");
    let line = lines.overflow(next);
    let line_count_max = lines.overflow_line_count();
    match line {
        Some(line) if line_count <= line_count_max => Ok(line),
        _ => Err(Error::Corrupt {
            what: "overflow line number",
            offset: crate::format::LIVE_OFFSET,
            expected: line_count_max,
            found: next.0.into(),
        }),
    }
}

/// The result of the writer's search for a key: its slot, or the place for it.
#[derive(Debug)]
pub(crate) struct Located<'a> {
    /// The slot of the key, with its line and place.
    pub(crate) found: Option<(&'a Line, usize, Slot)>,
    /// The first empty slot of the chain.
    pub(crate) empty: Option<(&'a Line, usize)>,
    /// The last line of the chain.
    pub(crate) last: &'a Line,
    /// Lines of the chain, the bucket included.
    pub(crate) line_count: u64,
}

impl Located<'_> {
    /// Returns whether the last line of the chain, which deletes have emptied, stays empty when a
    /// new key is added.
    #[inline(always)]
    pub(crate) fn leaves_spare_line(&self) -> bool {
        self.line_count > 1
            && self.empty.is_some_and(|(line, _)| !std::ptr::eq(line, self.last))
            && self.last.in_use() == 0
    }
}

/// Finds the slot of a key, or the place for it. For the writer only: no other thread changes the
/// table.
#[inline]
pub(crate) fn locate<L: Lines + ?Sized>(
    lines: &L,
    hash: u64,
    mut is_key: impl FnMut(Addr) -> Result<bool>,
) -> Result<Located<'_>> {
    let tag = Tag::of_hash(hash);
    let shape = Shape::of_word(lines.shape().load(Ordering::Relaxed));
    let mut line = lines.bucket(shape.geometry.bucket_of(hash));
    let mut empty = None;
    let mut line_count = 1;
    loop {
        let mut candidates = line.match_tag(tag);
        while candidates != 0 {
            let i = candidates.trailing_zeros() as usize;
            let slot = line.slot(i);
            if !slot.is_empty() && is_key(slot.addr())? {
                return Ok(Located { found: Some((line, i, slot)), empty, last: line, line_count });
            }
            candidates &= candidates - 1;
        }
        if empty.is_none() {
            empty = line.first_empty().map(|i| (line, i));
        }
        let Some(next) = line.next() else {
            return Ok(Located { found: None, empty, last: line, line_count });
        };
        line = follow(lines, next, line_count)?;
        line_count += 1;
    }
}

/// Finds the slot that holds `addr` in the chain of `hash`, for replay, scans and checks: no key
/// is compared.
pub(crate) fn locate_addr<L: Lines + ?Sized>(
    lines: &L,
    hash: u64,
    addr: Addr,
) -> Result<Located<'_>> {
    locate(lines, hash, |other| Ok(other == addr))
}

/// Returns the slot that holds `addr` in the chain of `hash`, with its line and place, as
/// [`locate_addr`]: without a branch for each slot that has the tag, or for each line that is full.
#[inline]
pub(crate) fn locate_held<L: Lines + ?Sized>(
    lines: &L,
    hash: u64,
    addr: Addr,
) -> Result<Option<(&Line, usize, Slot)>> {
    let wanted = Slot::new(Tag::of_hash(hash), addr);
    let shape = Shape::of_word(lines.shape().load(Ordering::Relaxed));
    let mut line = lines.bucket(shape.geometry.bucket_of(hash));
    let mut line_count = 1;
    loop {
        if let Some(i) = line.place_of(wanted) {
            return Ok(Some((line, i, wanted)));
        }
        let Some(next) = line.next() else { return Ok(None) };
        line = follow(lines, next, line_count)?;
        line_count += 1;
    }
}

/// Returns the place for a new key in `bucket`, for a table that is being built: the key is known
/// to be new.
#[inline]
pub(crate) fn locate_end<L: Lines + ?Sized>(lines: &L, bucket: BucketIndex) -> Result<Located<'_>> {
    let mut line = lines.bucket(bucket);
    let mut line_count = 1;
    loop {
        let empty = line.first_empty().map(|i| (line, i));
        let next = if empty.is_none() { line.next() } else { None };
        let Some(next) = next else {
            return Ok(Located { found: None, empty, last: line, line_count });
        };
        line = follow(lines, next, line_count)?;
        line_count += 1;
    }
}

/// Calls `each` with every line of the chain of `bucket`, in order.
pub(crate) fn for_each_line<'a, L: Lines + ?Sized>(
    lines: &'a L,
    bucket: BucketIndex,
    mut each: impl FnMut(Option<LineNumber>, &'a Line),
) -> Result<()> {
    let mut line = lines.bucket(bucket);
    each(None, line);
    let mut line_count = 1;
    while let Some(next) = line.next() {
        line = follow(lines, next, line_count)?;
        line_count += 1;
        each(Some(next), line);
    }
    Ok(())
}
