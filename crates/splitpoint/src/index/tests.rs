//! The index against a model, and after every interruption of a split and a merge.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::Lines;
use super::line::{Line, LineNumber, SLOT_COUNT};
use super::lookup::{
    Candidate, find, find_candidate, for_each_line, locate, locate_addr, locate_held,
};
use super::overflow::LinePool;
use super::shape::Shape;
use super::slot::{Slot, Tag};
use super::split::{Scratch, insert, merge, repair_last_split, split, trim_chain};
use crate::atomic::kill_points::is_killed;
use crate::atomic::{AtomicU64, Ordering};
use crate::error::{Error, Result};
use crate::format::Addr;
use crate::linear::{BucketIndex, Geometry};

/// Lines in vectors.
struct Table {
    shape: AtomicU64,
    buckets: Vec<Line>,
    overflow: Vec<Line>,
}

impl Table {
    fn new(buckets: usize, overflow: usize) -> Self {
        Self {
            shape: AtomicU64::new(1),
            buckets: (0..buckets).map(|_| Line::new()).collect(),
            overflow: (0..overflow).map(|_| Line::new()).collect(),
        }
    }

    fn geometry(&self) -> Geometry {
        Shape::of_word(self.shape.load(Ordering::Relaxed)).geometry
    }

    fn epoch(&self) -> u32 {
        Shape::of_word(self.shape.load(Ordering::Relaxed)).epoch
    }

    /// Returns the addresses that a search of each bucket meets, with how often.
    fn slots(&self) -> BTreeMap<u64, u64> {
        let mut slots = BTreeMap::new();
        for bucket in 0..self.geometry().bucket_count() {
            for_each_line(self, BucketIndex(bucket), |_, line| {
                for (_, slot) in line.slots_in_use() {
                    *slots.entry(slot.addr().0).or_insert(0) += 1;
                }
            })
            .unwrap();
        }
        slots
    }

    fn chain_lines(&self) -> BTreeSet<u32> {
        let mut numbers = BTreeSet::new();
        for bucket in 0..self.geometry().bucket_count() {
            for_each_line(self, BucketIndex(bucket), |number, _| {
                if let Some(number) = number {
                    assert!(numbers.insert(number.0), "line {} is in two chains", number.0);
                }
            })
            .unwrap();
        }
        numbers
    }
}

impl Lines for Table {
    fn shape(&self) -> &AtomicU64 {
        &self.shape
    }

    fn bucket(&self, bucket: BucketIndex) -> &Line {
        &self.buckets[bucket.0 as usize]
    }

    fn overflow(&self, line: LineNumber) -> Option<&Line> {
        self.overflow.get((line.0 as usize).checked_sub(1)?)
    }

    fn overflow_line_count(&self) -> u64 {
        self.overflow.len() as u64
    }
}

/// Free lines in a vector; the last given back is taken first.
struct Pool<'a> {
    table: &'a Table,
    free: Vec<LineNumber>,
}

impl<'a> Pool<'a> {
    fn new(table: &'a Table) -> Self {
        let count = u32::try_from(table.overflow.len()).unwrap();
        Self { table, free: (1..=count).rev().map(LineNumber).collect() }
    }
}

impl LinePool for Pool<'_> {
    fn take(&mut self) -> Option<LineNumber> {
        let number = self.free.pop()?;
        self.table.overflow(number)?.clear();
        Some(number)
    }

    fn give(&mut self, line: LineNumber) {
        assert!(!self.free.contains(&line), "line {} is free already", line.0);
        self.free.push(line);
    }

    fn free_count(&self) -> u64 {
        self.free.len() as u64
    }
}

/// The hash of the key at an address: few values in the low bits, so that chains overflow.
fn hash_of(addr: u64) -> u64 {
    let mixed = addr.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    mixed & 0b1011 | (mixed & 0xf00) << 4
}

#[expect(clippy::unnecessary_wraps, reason = "the engine reads a record, which may fail")]
fn known_hash(addr: Addr) -> Result<u64> {
    Ok(hash_of(addr.0))
}

fn put(table: &Table, pool: &mut Pool<'_>, addr: u64) -> bool {
    let at = locate_addr(table, hash_of(addr), Addr(addr)).unwrap();
    assert!(at.found.is_none());
    let slot = Slot::new(Tag::of_hash(hash_of(addr)), Addr(addr));
    insert(table, pool, &at, slot).unwrap()
}

fn is_found(table: &Table, addr: u64) -> bool {
    let is_key = |other: Addr| Ok((other.0 == addr).then_some(()));
    let is_found = find(table, hash_of(addr), is_key).unwrap().is_some();
    let held = locate_held(table, hash_of(addr), Addr(addr)).unwrap();
    assert_eq!(held.is_some(), is_found, "both ways to look agree");
    assert!(held.is_none_or(|(line, i, slot)| line.slot(i) == slot && slot.addr() == Addr(addr)));
    is_found
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % n
    }
}

/// Random insertions, deletions, splits and merges. After each, every address that is in is found
/// once and no other, and every line is in one chain or free.
#[test]
fn random_splits_and_merges_keep_every_slot_once() {
    for seed in 0..20 {
        let table = Table::new(40, 60);
        let mut pool = Pool::new(&table);
        let mut scratch = Scratch::default();
        let mut model = BTreeSet::new();
        let mut rng = Rng(seed);
        let (mut begun_second, mut splits, mut merges) = (0, 0, 0);
        for _ in 0..1500 {
            let addr = 1 + rng.below(150);
            match rng.below(10) {
                0..=3 if !model.contains(&addr) => {
                    begun_second += u64::from(put(&table, &mut pool, addr));
                    model.insert(addr);
                }
                4..=6 if model.remove(&addr) => {
                    let at = locate_addr(&table, hash_of(addr), Addr(addr)).unwrap();
                    let (line, i, slot) = at.found.unwrap();
                    assert_eq!(slot.addr(), Addr(addr));
                    line.set_slot(i, Slot::EMPTY);
                }
                7 | 8 if table.geometry().bucket_count() < 40 => {
                    let plan = table.geometry().plan_split().unwrap();
                    split(&table, &mut pool, &plan, &mut scratch, &mut known_hash).unwrap();
                    assert_eq!(table.geometry(), plan.after);
                    splits += 1;
                }
                9 => {
                    let Some(plan) = table.geometry().plan_merge() else { continue };
                    merge(&table, &mut pool, &plan, &mut scratch).unwrap();
                    assert_eq!(table.geometry(), plan.after);
                    merges += 1;
                }
                _ => {}
            }
            let slots = table.slots();
            assert!(slots.values().all(|&count| count == 1), "seed {seed}");
            assert!(slots.keys().eq(model.iter()), "seed {seed}");
            assert!((1..=150).all(|addr| is_found(&table, addr) == model.contains(&addr)));
            let in_chains = table.chain_lines();
            assert_eq!(in_chains.len() + pool.free.len(), 60, "seed {seed}: a line is lost");
            assert!(pool.free.iter().all(|line| !in_chains.contains(&line.0)));
        }
        assert!(begun_second > 0 && splits > 0 && merges > 0);
    }
}

/// A split leaves the lower chain in as few lines as its slots need.
#[test]
fn a_split_shortens_the_chain_and_gives_the_lines_back() {
    let table = Table::new(2, 8);
    let mut pool = Pool::new(&table);
    let addrs: Vec<u64> = (1..1000).filter(|&addr| hash_of(addr) & 1 == 1).take(22).collect();
    let stays: Vec<u64> = (1..1000).filter(|&addr| hash_of(addr) & 1 == 0).take(8).collect();
    for &addr in addrs.iter().chain(&stays) {
        put(&table, &mut pool, addr);
    }
    assert_eq!(table.chain_lines().len(), 4);
    let plan = table.geometry().plan_split().unwrap();
    split(&table, &mut pool, &plan, &mut Scratch::default(), &mut known_hash).unwrap();
    let mut lens = [0, 0];
    for (bucket, len) in (0..).zip(&mut lens) {
        for_each_line(&table, BucketIndex(bucket), |_, _| *len += 1).unwrap();
    }
    assert_eq!(lens, [8_usize.div_ceil(SLOT_COUNT), 22_usize.div_ceil(SLOT_COUNT)]);
    assert_eq!(pool.free.len(), 8 - 1 - 3);
}

/// The lines of a table, with a reader that looks for a hash when the table first shows an epoch.
struct Watched<'a> {
    table: &'a Table,
    epoch: u32,
    hash: u64,
    found: RefCell<Option<Candidate<'a>>>,
}

impl Watched<'_> {
    fn look(&self) {
        if self.table.epoch() == self.epoch && self.found.borrow().is_none() {
            self.found.replace(find_candidate(self.table, self.hash).unwrap());
        }
    }
}

impl Lines for Watched<'_> {
    fn shape(&self) -> &AtomicU64 {
        self.table.shape()
    }

    fn bucket(&self, bucket: BucketIndex) -> &Line {
        self.look();
        self.table.bucket(bucket)
    }

    fn overflow(&self, line: LineNumber) -> Option<&Line> {
        self.look();
        self.table.overflow(line)
    }

    fn overflow_line_count(&self) -> u64 {
        self.table.overflow_line_count()
    }
}

/// A reader of the epoch in which a split takes a line off a chain has reached the line before the
/// split did. The space of the records in its slots may be reused by the time the reader takes a
/// pin, so it must not read them.
#[test]
fn a_reader_that_has_come_to_a_line_before_it_left_its_chain_looks_again() {
    const MOVER: u64 = 9;
    // Even ones stay; each has a tag of its own.
    let hash_of = |addr: u64| addr & 1 | addr << 8;
    let table = Table::new(2, 2);
    let mut pool = Pool::new(&table);
    let stays = (2..).step_by(2).take(SLOT_COUNT);
    for addr in stays.chain([MOVER]) {
        let at = locate_addr(&table, hash_of(addr), Addr(addr)).unwrap();
        let slot = Slot::new(Tag::of_hash(hash_of(addr)), Addr(addr));
        insert(&table, &mut pool, &at, slot).unwrap();
    }
    // A key that is nowhere: of the lower bucket, with the tag of the slot that moves.
    let hash = hash_of(MOVER) & !1;
    let (epoch, found) = (table.epoch() + 1, RefCell::default());
    let watched = Watched { table: &table, epoch, hash, found };
    let plan = table.geometry().plan_split().unwrap();
    let known_hash = &mut |addr: Addr| Ok(hash_of(addr.0));
    split(&watched, &mut pool, &plan, &mut Scratch::default(), known_hash).unwrap();
    assert_eq!(pool.free.len(), 2, "the line is free");
    let candidate = watched.found.take().expect("the line was in the chain in that epoch");
    let mut looked_at = Vec::new();
    let is_key = |addr: Addr| {
        looked_at.push(addr);
        Ok(None::<()>)
    };
    assert_eq!(candidate.find_pinned(&table, hash, is_key).unwrap(), None);
    assert_eq!(looked_at, [], "a line that is free");
}

#[test]
fn a_split_without_enough_lines_changes_nothing() {
    let table = Table::new(2, 2);
    let mut pool = Pool::new(&table);
    let movers: Vec<u64> = (1..1000).filter(|&addr| hash_of(addr) & 1 == 1).take(21).collect();
    for &addr in &movers {
        put(&table, &mut pool, addr);
    }
    let plan = table.geometry().plan_split().unwrap();
    let result = split(&table, &mut pool, &plan, &mut Scratch::default(), &mut known_hash);
    assert!(matches!(result, Err(Error::Full { .. })));
    assert_eq!(table.geometry(), Geometry::ONE);
    assert!(movers.iter().all(|&addr| is_found(&table, addr)));
}

#[test]
fn a_chain_in_a_circle_is_corrupt_and_ends() {
    let table = Table::new(1, 2);
    table.buckets[0].set_next(Some(LineNumber(1)));
    table.overflow[0].set_next(Some(LineNumber(2)));
    table.overflow[1].set_next(Some(LineNumber(1)));
    let corrupt = |result: Result<bool>| assert!(matches!(result, Err(Error::Corrupt { .. })));
    corrupt(find(&table, 0, |_| Ok(None::<()>)).map(|found| found.is_some()));
    corrupt(locate(&table, 0, |_| Ok(false)).map(|at| at.found.is_some()));
    corrupt(for_each_line(&table, BucketIndex(0), |_, _| {}).map(|()| true));
    table.overflow[0].set_next(Some(LineNumber(3)));
    corrupt(find(&table, 0, |_| Ok(None::<()>)).map(|found| found.is_some()));
}

/// A table with random keys, of the same content for the same seed.
fn random_table(seed: u64) -> (Table, BTreeSet<u64>, Vec<LineNumber>) {
    let table = Table::new(12, 40);
    let mut pool = Pool::new(&table);
    let mut scratch = Scratch::default();
    let mut rng = Rng(seed);
    let mut model = BTreeSet::new();
    for _ in 0..10 + rng.below(70) {
        let addr = 1 + rng.below(200);
        if model.insert(addr) {
            put(&table, &mut pool, addr);
        }
    }
    for _ in 0..=seed % 6 {
        let plan = table.geometry().plan_split().unwrap();
        split(&table, &mut pool, &plan, &mut scratch, &mut known_hash).unwrap();
    }
    for addr in 1..rng.below(200) {
        if addr % 3 == 0 && model.remove(&addr) {
            let at = locate_addr(&table, hash_of(addr), Addr(addr)).unwrap();
            let (line, i, _) = at.found.unwrap();
            line.set_slot(i, Slot::EMPTY);
        }
    }
    let free = pool.free;
    (table, model, free)
}

/// Kills a split, a merge or the trims of all chains before and after each of its stores, repairs the
/// table as the next process would, and compares it with the model; a second repair must change
/// nothing. Then the table is split and merged with the lines that are in no chain.
#[test]
fn repair_restores_the_table_after_every_interruption() {
    let (mut kill_count, mut needed_count, mut trim_count) = (0, 0, 0);
    for seed in 0..180 {
        for at in 0.. {
            let (table, mut model, free) = random_table(seed);
            let mut pool = Pool { table: &table, free };
            let mut scratch = Scratch::default();
            let geometry = table.geometry();
            if seed % 3 == 2 {
                empty_some_lines(&table, &mut model);
            }
            let (line_count, epoch) = (table.chain_lines().len() as u64, table.epoch());
            let was_killed = is_killed(at, || match seed % 3 {
                0 => {
                    let plan = geometry.plan_split().unwrap();
                    split(&table, &mut pool, &plan, &mut scratch, &mut known_hash).unwrap();
                }
                1 => {
                    let plan = geometry.plan_merge().unwrap();
                    merge(&table, &mut pool, &plan, &mut scratch).unwrap();
                }
                _ => (0..geometry.bucket_count()).map(BucketIndex).for_each(|bucket| {
                    trim_chain(&table, &mut pool, bucket, &mut scratch).unwrap();
                }),
            });
            if seed % 3 == 2 {
                let trimmed_count = line_count - table.chain_lines().len() as u64;
                let epochs = u64::from(table.epoch() - epoch);
                assert!(trimmed_count >= epochs, "a reader of the new epoch comes to a free line");
                trim_count += if was_killed { 0 } else { trimmed_count };
            }
            assert!(model.iter().all(|&addr| is_found(&table, addr)), "before the repair");
            let before = save(&table);
            repair_last_split(&table, table.geometry(), &mut known_hash).unwrap();
            let repaired = save(&table);
            needed_count += u64::from(repaired != before);
            assert_is_model(&table, &model, &format!("seed {seed}, killed at {at}"));
            repair_last_split(&table, table.geometry(), &mut known_hash).unwrap();
            assert_eq!(save(&table), repaired, "a repair twice is a repair once");
            if !was_killed {
                break;
            }
            kill_count += 1;
            let in_chains = table.chain_lines();
            let free = (1..=40).filter(|number| !in_chains.contains(number)).map(LineNumber);
            let mut pool = Pool { table: &table, free: free.collect() };
            for _ in 0..2 {
                let plan = table.geometry().plan_split().unwrap();
                split(&table, &mut pool, &plan, &mut scratch, &mut known_hash).unwrap();
            }
            for _ in 0..3 {
                let Some(plan) = table.geometry().plan_merge() else { break };
                merge(&table, &mut pool, &plan, &mut scratch).unwrap();
            }
            assert_is_model(&table, &model, &format!("seed {seed}, killed at {at}, later"));
        }
    }
    assert!(kill_count > 2000 && needed_count > 100, "{kill_count} {needed_count}");
    assert!(trim_count > 20, "{trim_count}");
}

/// Deletes the keys of three of four overflow lines.
fn empty_some_lines(table: &Table, model: &mut BTreeSet<u64>) {
    for bucket in 0..table.geometry().bucket_count() {
        for_each_line(table, BucketIndex(bucket), |number, line| {
            if number.is_some_and(|number| number.0 % 4 != 0) {
                for (i, slot) in line.slots_in_use() {
                    assert!(model.remove(&slot.addr().0));
                    line.set_slot(i, Slot::EMPTY);
                }
            }
        })
        .unwrap();
    }
}

fn assert_is_model(table: &Table, model: &BTreeSet<u64>, when: &str) {
    let slots = table.slots();
    assert!(slots.keys().eq(model.iter()), "{when}");
    assert!(slots.values().all(|&count| count == 1), "{when}: a slot twice");
    for addr in 1..=200 {
        assert_eq!(is_found(table, addr), model.contains(&addr), "{when}: {addr}");
    }
    table.chain_lines();
}

/// Returns all words of a table that a search may read.
fn save(table: &Table) -> Vec<u64> {
    let mut words = vec![table.shape.load(Ordering::Relaxed)];
    for line in table.buckets.iter().chain(&table.overflow) {
        words.extend((0..SLOT_COUNT).map(|i| line.slot(i).0));
        words.push(line.next().map_or(0, |next| next.0.into()));
    }
    words
}
