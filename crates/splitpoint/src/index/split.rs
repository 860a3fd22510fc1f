//! Insert, split and merge: what the writer does to chains.

use super::Lines;
use super::line::{ALL_PLACES, Line, LineNumber, SLOT_COUNT, places_of};
use super::lookup::{Located, follow, for_each_line};
use super::overflow::LinePool;
use super::shape::Shape;
use super::slot::Slot;
use crate::atomic::{Ordering, may_be_killed};
use crate::error::{Error, Result};
use crate::format::Addr;
use crate::linear::{BucketIndex, Geometry, Plan};
use crate::testing::mutant::{self, Mutant};

/// Puts a slot where [`locate`](super::lookup::locate) found room for it.
///
/// The pool must have a line if the chain has no empty slot. Returns whether a second overflow line
/// was begun: the sign for an uncontrolled split.
#[inline(always)]
pub(crate) fn insert<L: Lines + ?Sized>(
    lines: &L,
    pool: &mut impl LinePool,
    at: &Located<'_>,
    slot: Slot,
) -> Result<bool> {
    debug_assert!(at.found.is_none(), "a key has one slot");
    if let Some((line, i)) = at.empty {
        line.set_slot(i, slot);
        return Ok(false);
    }
    let number = pool.take().ok_or(no_line())?;
    follow(lines, number, 0)?.set_slot(0, slot);
    at.last.set_next(Some(number));
    Ok(at.line_count >= 2)
}

fn no_line() -> Error {
    Error::Full { what: "overflow window", bytes: super::line::LINE_BYTES }
}

/// A chain as the writer reads it before it decides anything.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Overflow lines of the chain, in order.
    numbers: Vec<LineNumber>,
    /// What the slots of each line do, the bucket's first.
    places: Vec<Places>,
    /// Slots that move.
    moving: Vec<Slot>,
}

/// What the slots of a line do: masks of their places.
#[derive(Clone, Copy, Debug)]
struct Places {
    staying: u32,
    moving: u32,
}

/// Returns bit `bit` of the hash of the key in `slot`; `hash_of` reads the record when the tag
/// does not have it.
fn hash_bit(slot: Slot, bit: u32, hash_of: &mut impl FnMut(Addr) -> Result<u64>) -> Result<bool> {
    match slot.hash_bit(bit) {
        Some(bit) => Ok(bit),
        None => Ok(hash_of(slot.addr())? >> bit & 1 == 1),
    }
}

/// Returns a mask of the slots for whose hashes bit `bit` is set.
#[inline(always)]
fn places_with_bit(
    line: &Line,
    bit: u32,
    hash_of: &mut impl FnMut(Addr) -> Result<u64>,
) -> Result<u32> {
    if let Some(places) = line.with_hash_bit(bit) {
        return Ok(places);
    }
    line.slots_in_use()
        .try_fold(0, |places, (i, slot)| Ok(places | u32::from(hash_bit(slot, bit, hash_of)?) << i))
}

impl Scratch {
    /// Reads the chain of `bucket` and sorts its slots by bit `bit` of their hashes.
    #[inline(always)]
    fn read_chain<L: Lines + ?Sized>(
        &mut self,
        lines: &L,
        bucket: BucketIndex,
        bit: u32,
        hash_of: &mut impl FnMut(Addr) -> Result<u64>,
    ) -> Result<()> {
        self.numbers.clear();
        self.places.clear();
        self.moving.clear();
        let mut line = lines.bucket(bucket);
        loop {
            let moving = places_with_bit(line, bit, hash_of)?;
            self.places.push(Places { staying: line.in_use() & !moving, moving });
            self.moving.extend(line.slots_at(moving));
            let Some(next) = line.next() else { break };
            self.numbers.push(next);
            line = follow(lines, next, self.numbers.len() as u64)?;
        }
        let chain_count = self.numbers.len() + 1;
        assert_eq!(self.places.len(), chain_count, "a chain is its bucket line and overflow lines");
        Ok(())
    }

    /// Returns the number of slots that stay.
    fn stay_count(&self) -> usize {
        self.places.iter().map(|places| places.staying.count_ones() as usize).sum()
    }
}

/// Returns line `chain` of a chain whose overflow lines are `numbers`.
fn line_of_chain<'a, L: Lines + ?Sized>(
    lines: &'a L,
    bucket: BucketIndex,
    numbers: &[LineNumber],
    chain: usize,
) -> Result<&'a Line> {
    match chain.checked_sub(1) {
        None => Ok(lines.bucket(bucket)),
        Some(overflow) => follow(lines, numbers[overflow], 0),
    }
}

/// Returns the lines that `slot_count` slots need, at least one.
fn line_count_for(slot_count: usize) -> usize {
    slot_count.div_ceil(SLOT_COUNT).max(1)
}

/// Divides the bucket `plan.lower` into itself and `plan.upper`.
///
/// 1. The chain of the upper bucket is built; nobody can reach it.
/// 2. The shape is published.
/// 3. What moved is erased below, and the lower chain is made as short as its slots allow.
///
/// Before 2 nothing has happened; a process that is killed after 2 leaves slots twice, which
/// [`repair_last_split`] erases.
pub(crate) fn split<L: Lines + ?Sized>(
    lines: &L,
    pool: &mut impl LinePool,
    plan: &Plan,
    scratch: &mut Scratch,
    hash_of: &mut impl FnMut(Addr) -> Result<u64>,
) -> Result<()> {
    scratch.read_chain(lines, plan.lower, plan.bit, hash_of)?;
    if pool.free_count() < line_count_for(scratch.moving.len()) as u64 - 1 {
        return Err(no_line());
    }
    let shape = Shape::of_word(lines.shape().load(Ordering::Relaxed));
    debug_assert_eq!(shape.geometry.plan_split(), Some(*plan));
    build_chain(lines, pool, plan.upper, &scratch.moving)?;
    let shape = Shape { geometry: plan.after, ..shape };
    publish(lines, shape);
    shorten_chain(lines, pool, plan.lower, shape, scratch)
}

/// Tells readers that the lines they have read may be reused from now on, so that they retry.
pub(crate) fn change_epoch<L: Lines + ?Sized>(lines: &L) {
    publish(lines, Shape::of_word(lines.shape().load(Ordering::Relaxed)).in_next_epoch());
}

/// Stores the shape of the table, after everything stored before.
fn publish<L: Lines + ?Sized>(lines: &L, shape: Shape) {
    may_be_killed();
    lines.shape().store(shape.word(), Ordering::Release);
    may_be_killed();
}

/// Writes the chain of a bucket that no reader can reach.
fn build_chain<L: Lines + ?Sized>(
    lines: &L,
    pool: &mut impl LinePool,
    bucket: BucketIndex,
    slots: &[Slot],
) -> Result<()> {
    let line_count = line_count_for(slots.len()) as u64 - 1;
    assert!(line_count <= pool.free_count(), "a chain that nobody can reach is built to its end");
    let mut line = lines.bucket(bucket);
    line.clear();
    for (chain, slots) in slots.chunks(SLOT_COUNT).enumerate() {
        if chain > 0 {
            let number = pool.take().ok_or(no_line())?;
            line.set_next(Some(number));
            line = follow(lines, number, 0)?;
        }
        for (i, &slot) in slots.iter().enumerate() {
            line.set_slot(i, slot);
        }
    }
    Ok(())
}

/// Leaves only the slots that stay, in as few lines as they need.
///
/// First the slots of the lines to be removed are copied to earlier places. Then the epoch changes,
/// so that a reader that misses a slot in both places retries. Then the old slots are erased, and
/// the epoch changes again before the lines are freed.
fn shorten_chain<L: Lines + ?Sized>(
    lines: &L,
    pool: &mut impl LinePool,
    bucket: BucketIndex,
    shape: Shape,
    scratch: &mut Scratch,
) -> Result<()> {
    let stay_count = scratch.stay_count();
    let kept_count = line_count_for(stay_count);
    let Scratch { numbers, places, .. } = scratch;
    assert!(kept_count <= places.len(), "a chain only gets shorter");
    let (kept, leaving) = places.split_at_mut(kept_count);
    if !leaving.is_empty() {
        copy_down(lines, bucket, numbers, kept, leaving)?;
    }
    let kept_slots: usize = kept.iter().map(|kept| kept.staying.count_ones() as usize).sum();
    assert_eq!(kept_slots, stay_count, "each slot that stays has one place");
    if !leaving.is_empty() {
        publish(lines, shape.in_next_epoch());
        line_of_chain(lines, bucket, numbers, kept_count - 1)?.set_next(None);
        // A reader of the old epoch may have reached these lines before.
        change_epoch(lines);
    }
    for (chain, kept) in kept.iter().enumerate() {
        let line = line_of_chain(lines, bucket, numbers, chain)?;
        if !mutant::is_made(Mutant::MoversStay) {
            places_of(kept.moving).for_each(|i| line.set_slot(i, Slot::EMPTY));
        }
    }
    for &number in &numbers[kept_count - 1..] {
        pool.give(number);
    }
    Ok(())
}

/// Takes the lines that deletes have emptied off the end of a chain.
///
/// The lines are unlinked, then the epoch changes, then they are freed: a reader of the new epoch
/// cannot reach a line that is reused. No slot is copied, so a process that is killed in between
/// leaves each slot exactly once, and at worst leaks lines that are neither in a chain nor free.
#[cold]
#[inline(never)]
pub(crate) fn trim_chain<L: Lines + ?Sized>(
    lines: &L,
    pool: &mut impl LinePool,
    bucket: BucketIndex,
    scratch: &mut Scratch,
) -> Result<()> {
    scratch.read_chain(lines, bucket, Plan::NO_BIT, &mut |_| Ok(0))?;
    let Scratch { numbers, places, .. } = scratch;
    let last_used = places.iter().rposition(|places| places.staying != 0).unwrap_or(0);
    let spare = &numbers[last_used..];
    if spare.is_empty() {
        return Ok(());
    }
    line_of_chain(lines, bucket, numbers, last_used)?.set_next(None);
    change_epoch(lines);
    for &number in spare {
        pool.give(number);
    }
    Ok(())
}

/// Copies the slots that stay from the lines to be removed to places in the `kept` lines.
fn copy_down<L: Lines + ?Sized>(
    lines: &L,
    bucket: BucketIndex,
    numbers: &[LineNumber],
    kept: &mut [Places],
    leaving: &[Places],
) -> Result<()> {
    let (kept_count, mut at) = (kept.len(), 0);
    for (chain, places) in leaving.iter().enumerate() {
        let from = line_of_chain(lines, bucket, numbers, kept_count + chain)?;
        for slot in from.slots_at(places.staying) {
            while kept[at].staying == ALL_PLACES {
                at += 1;
            }
            let i = kept[at].staying.trailing_ones();
            line_of_chain(lines, bucket, numbers, at)?.set_slot(i as usize, slot);
            kept[at].staying |= 1 << i;
            kept[at].moving &= !(1 << i);
        }
    }
    Ok(())
}

/// Joins the bucket `plan.upper` to `plan.lower`.
///
/// First the lower chain is made as short as its slots allow, then the slots are copied down, then
/// the shape is published in a new epoch: a reader that is still in the upper bucket retries,
/// whatever becomes of its lines. A process that is killed before the shape is published leaves
/// copies in the lower bucket, which [`repair_last_split`] erases.
pub(crate) fn merge<L: Lines + ?Sized>(
    lines: &L,
    pool: &mut impl LinePool,
    plan: &Plan,
    scratch: &mut Scratch,
) -> Result<()> {
    // Remove lines that deletes have emptied now, or a table that has shrunk to one bucket could
    // keep some. Do it before the merge: then slots that a kill leaves twice are in the bucket that
    // a repair examines.
    scratch.read_chain(lines, plan.lower, Plan::NO_BIT, &mut |_| Ok(0))?;
    if line_count_for(scratch.stay_count()) <= scratch.numbers.len() {
        let shape = Shape::of_word(lines.shape().load(Ordering::Relaxed));
        shorten_chain(lines, pool, plan.lower, shape, scratch)?;
    }
    // Every slot of the upper bucket moves, whatever its hash.
    scratch.read_chain(lines, plan.upper, Plan::NO_BIT, &mut |_| Ok(u64::MAX))?;
    assert_eq!(scratch.stay_count(), 0, "what stays would be lost with its bucket");
    if pool.free_count() < line_count_for(scratch.moving.len()) as u64 {
        return Err(no_line());
    }
    let shape = Shape::of_word(lines.shape().load(Ordering::Relaxed));
    debug_assert_eq!(shape.geometry.plan_merge(), Some(*plan));
    fill_chain(lines, pool, plan.lower, &scratch.moving)?;
    let shape = Shape { geometry: plan.after, ..shape }.in_next_epoch();
    publish(lines, shape);
    debug_assert!(
        plan.upper.0 == shape.geometry.bucket_count(),
        "no hash leads to the upper bucket"
    );
    for &number in &scratch.numbers {
        pool.give(number);
    }
    Ok(())
}

/// Puts slots into the empty slots of a chain, and into new lines at its end.
fn fill_chain<L: Lines + ?Sized>(
    lines: &L,
    pool: &mut impl LinePool,
    bucket: BucketIndex,
    slots: &[Slot],
) -> Result<()> {
    let mut slots = slots.iter();
    let mut line = lines.bucket(bucket);
    let mut line_count = 0;
    loop {
        for i in 0..SLOT_COUNT {
            if line.slot(i).is_empty() {
                let Some(&slot) = slots.next() else { return Ok(()) };
                line.set_slot(i, slot);
            }
        }
        if slots.len() == 0 {
            return Ok(());
        }
        let next = if let Some(next) = line.next() {
            next
        } else {
            let number = pool.take().ok_or(no_line())?;
            line.set_next(Some(number));
            number
        };
        line_count += 1;
        line = follow(lines, next, line_count)?;
    }
}

/// Erases what a killed process may have left in the lower bucket of the last split or of the
/// merge that would undo it: slots that belong in the upper bucket, and slots that are there
/// twice. Idempotent.
pub(crate) fn repair_last_split<L: Lines + ?Sized>(
    lines: &L,
    geometry: Geometry,
    hash_of: &mut impl FnMut(Addr) -> Result<u64>,
) -> Result<()> {
    for_each_stray(lines, geometry, hash_of, |line, i| line.set_slot(i, Slot::EMPTY))
}

/// Returns whether [`repair_last_split`] would find nothing to erase.
pub(crate) fn is_last_split_whole<L: Lines + ?Sized>(
    lines: &L,
    geometry: Geometry,
    hash_of: &mut impl FnMut(Addr) -> Result<u64>,
) -> Result<bool> {
    let mut is_whole = true;
    for_each_stray(lines, geometry, hash_of, |_, _| is_whole = false)?;
    Ok(is_whole)
}

/// Returns the slots that [`repair_last_split`] would erase, by their line and place.
pub(crate) fn strays_of_last_split<'a, L: Lines + ?Sized>(
    lines: &'a L,
    geometry: Geometry,
    hash_of: &mut impl FnMut(Addr) -> Result<u64>,
) -> Result<Vec<(&'a Line, usize)>> {
    let mut strays = Vec::new();
    for_each_stray(lines, geometry, hash_of, |line, i| strays.push((line, i)))?;
    Ok(strays)
}

/// Visits the slots of the last split's lower bucket that do not belong there or are there twice.
fn for_each_stray<'a, L: Lines + ?Sized>(
    lines: &'a L,
    geometry: Geometry,
    hash_of: &mut impl FnMut(Addr) -> Result<u64>,
    mut visit: impl FnMut(&'a Line, usize),
) -> Result<()> {
    let Some(plan) = geometry.plan_merge() else { return Ok(()) };
    debug_assert!(plan.lower < plan.upper && plan.upper.0 + 1 == geometry.bucket_count());
    let mut seen = std::collections::HashSet::new();
    let mut fault = Ok(());
    for_each_line(lines, plan.lower, |_, line| {
        for (i, slot) in line.slots_in_use() {
            match hash_bit(slot, plan.bit, hash_of) {
                Ok(false) if seen.insert(slot.0) => {}
                Ok(_) => visit(line, i),
                Err(error) => fault = Err(error),
            }
        }
    })?;
    fault
}
