//! Every interleaving of a lookup with what the writer does to chains, by loom.
//!
//! The key is there the whole time, so a lookup must find it, wherever it is moved meanwhile and
//! whatever the places where it was are used for. Tables have up to three buckets and few keys.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p splitpoint --release --lib loom
//! ```

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::Lines;
use super::line::{Line, LineNumber};
use super::lookup::{find, find_candidate, locate};
use super::overflow::LinePool;
use super::shape::Shape;
use super::slot::{Slot, Tag};
use super::split::{Scratch, change_epoch, insert, merge, split};
use crate::atomic::{AtomicU64, Ordering};
use crate::error::Result;
use crate::format::Addr;
use crate::linear::{BucketIndex, Geometry};
use crate::pins::Pins;

/// A key is its address and its hash: the addresses below are numbered by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    addr: u64,
    hash: u64,
}

const BUCKETS: usize = 3;
const OVERFLOW_LINES: usize = 3;

struct Table {
    shape: AtomicU64,
    buckets: [Line; BUCKETS],
    overflow: [Line; OVERFLOW_LINES],
}

impl Table {
    fn new(bucket_count: u64) -> Self {
        let shape = Shape { geometry: Geometry::with_bucket_count(bucket_count), epoch: 0 };
        Self {
            shape: AtomicU64::new(shape.word()),
            buckets: std::array::from_fn(|_| Line::new()),
            overflow: std::array::from_fn(|_| Line::new()),
        }
    }

    fn geometry(&self) -> Geometry {
        Shape::of_word(self.shape.load(Ordering::Relaxed)).geometry
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
        OVERFLOW_LINES as u64
    }
}

/// The free lines: the last given back is taken first, as in the store.
struct Pool<'a> {
    table: &'a Table,
    free: Vec<LineNumber>,
}

impl LinePool for Pool<'_> {
    fn take(&mut self) -> Option<LineNumber> {
        let number = self.free.pop()?;
        self.table.overflow(number)?.clear();
        Some(number)
    }

    fn give(&mut self, line: LineNumber) {
        if let Some(line) = self.table.overflow(line) {
            line.set_next_free(self.free.last().copied());
        }
        self.free.push(line);
    }

    fn free_count(&self) -> u64 {
        self.free.len() as u64
    }
}

/// The writer: a table, its free lines, the keys by address.
struct Writer<'a> {
    table: &'a Table,
    pool: Pool<'a>,
    keys: Vec<Key>,
    scratch: Scratch,
}

impl<'a> Writer<'a> {
    fn new(table: &'a Table, keys: Vec<Key>) -> Self {
        let free = (1..=OVERFLOW_LINES as u32).rev().map(LineNumber).collect();
        Self { table, pool: Pool { table, free }, keys, scratch: Scratch::default() }
    }

    fn insert(&mut self, key: Key) {
        let at = locate(self.table, key.hash, |addr| Ok(addr.0 == key.addr)).unwrap();
        let slot = Slot::new(Tag::of_hash(key.hash), Addr(key.addr));
        insert(self.table, &mut self.pool, &at, slot).unwrap();
    }

    fn delete(&mut self, key: Key) {
        let at = locate(self.table, key.hash, |addr| Ok(addr.0 == key.addr)).unwrap();
        let (line, i, _) = at.found.expect("the key is there");
        line.set_slot(i, Slot::EMPTY);
    }

    fn split(&mut self) {
        let plan = self.table.geometry().plan_split().unwrap();
        let keys = &self.keys;
        let mut hash_of = |addr: Addr| -> Result<u64> {
            Ok(keys.iter().find(|key| key.addr == addr.0).expect("a key").hash)
        };
        split(self.table, &mut self.pool, &plan, &mut self.scratch, &mut hash_of).unwrap();
    }

    fn merge(&mut self) {
        let plan = self.table.geometry().plan_merge().unwrap();
        merge(self.table, &mut self.pool, &plan, &mut self.scratch).unwrap();
    }
}

fn key(addr: u64, hash: u64) -> Key {
    Key { addr, hash }
}

/// Looks a key up in one thread while `change` runs in another, in every interleaving. The table
/// has been `prepare`d before both.
fn find_during(
    bucket_count: u64,
    keys: &[Key],
    wanted: Key,
    prepare: impl Fn(&mut Writer<'_>) + Send + Sync + 'static,
    change: impl Fn(&mut Writer<'_>) + Send + Sync + 'static,
) {
    let keys = keys.to_vec();
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 20_000;
    builder.preemption_bound = Some(preemptions());
    builder.check(move || {
        let table = Arc::new(Table::new(bucket_count));
        let mut writer = Writer::new(&table, keys.clone());
        for &key in &keys {
            writer.insert(key);
        }
        prepare(&mut writer);
        let reader = {
            let table = table.clone();
            thread::spawn(move || {
                let found =
                    find(&*table, wanted.hash, |addr| Ok((addr.0 == wanted.addr).then_some(addr)));
                assert_eq!(found.unwrap(), Some(Addr(wanted.addr)));
            })
        };
        change(&mut writer);
        reader.join().unwrap();
    });
}

/// Returns how often a thread may be interrupted in one interleaving. Two find each mistake that
/// was tried: a missing epoch in a split or a merge, a relaxed store to a line that is cleared.
fn preemptions() -> usize {
    if std::env::var_os("SPLITPOINT_SLOW").is_some_and(|value| value == "1") { 3 } else { 2 }
}

/// Hashes that differ in the bits of the first two splits only; one tag for all.
const STAYS: u64 = 0b00;
const MOVES: u64 = 0b01;

#[test]
fn loom_a_lookup_during_a_split_finds_what_moves_and_what_stays() {
    let keys = [key(1, STAYS), key(2, MOVES)];
    for wanted in keys {
        find_during(1, &keys, wanted, |_| {}, |writer| writer.split());
    }
}

#[test]
fn loom_a_lookup_during_a_merge_finds_the_keys_of_both_buckets() {
    let keys = [key(1, STAYS), key(2, MOVES)];
    for wanted in keys {
        find_during(2, &keys, wanted, |_| {}, |writer| writer.merge());
    }
}

/// The shape is the same before and after; only the epoch tells the reader.
#[test]
fn loom_a_lookup_during_a_merge_and_a_split_of_the_same_bucket_finds_its_key() {
    let keys = [key(1, STAYS), key(2, MOVES)];
    for wanted in keys {
        find_during(
            2,
            &keys,
            wanted,
            |_| {},
            |writer| {
                writer.merge();
                writer.split();
            },
        );
    }
}

#[test]
fn loom_a_lookup_during_a_split_and_a_merge_finds_its_key() {
    let keys = [key(1, STAYS), key(2, MOVES)];
    for wanted in keys {
        find_during(
            1,
            &keys,
            wanted,
            |_| {},
            |writer| {
                writer.split();
                writer.merge();
            },
        );
    }
}

/// A full bucket and an overflow line with the wanted key, which the split copies to the bucket.
/// The line is given back, and taken again by another chain.
#[test]
fn loom_a_lookup_during_the_recycling_of_its_overflow_line_finds_its_key() {
    let mut keys: Vec<Key> = (1..=7).map(|addr| key(addr, MOVES)).collect();
    let wanted = key(8, STAYS);
    keys.push(wanted);
    find_during(
        1,
        &keys,
        wanted,
        |_| {},
        |writer| {
            writer.split();
            // The upper bucket is full: this key takes the line that was given back.
            let other = key(9, MOVES);
            writer.keys.push(other);
            writer.insert(other);
        },
    );
}

/// The wanted key is in an overflow line of the upper bucket, whose lines a merge gives back and
/// an insertion into another chain takes.
#[test]
fn loom_a_lookup_in_a_merged_bucket_finds_its_key_when_the_lines_are_used_again() {
    let mut keys: Vec<Key> = (1..=7).map(|addr| key(addr, MOVES)).collect();
    let wanted = key(8, MOVES);
    keys.push(wanted);
    find_during(
        2,
        &keys,
        wanted,
        |writer| {
            for addr in 1..=6 {
                writer.delete(key(addr, MOVES));
            }
        },
        |writer| {
            writer.merge();
            let line = writer.pool.take().unwrap();
            let line = writer.table.overflow(line).unwrap();
            line.set_slot(0, Slot::new(Tag::of_hash(0), Addr(99)));
        },
    );
}

/// The merged bucket was the first of its piece, which goes: its line becomes zeros under the reader.
#[test]
fn loom_a_lookup_in_a_merged_bucket_finds_its_key_when_the_piece_goes() {
    let keys = [key(1, STAYS), key(2, MOVES)];
    for wanted in keys {
        find_during(
            2,
            &keys,
            wanted,
            |_| {},
            |writer| {
                writer.merge();
                writer.table.buckets[1].erase();
            },
        );
    }
}

/// A replaced slot is one store: the reader sees the old record or the new one.
#[test]
fn loom_a_lookup_during_an_overwrite_finds_one_of_the_two() {
    loom::model(|| {
        let table = Arc::new(Table::new(1));
        let mut writer = Writer::new(&table, Vec::new());
        writer.insert(key(1, STAYS));
        let reader = {
            let table = table.clone();
            thread::spawn(move || {
                let found = find(&*table, STAYS, |addr| Ok((addr.0 <= 2).then_some(addr.0)));
                assert!(matches!(found.unwrap(), Some(1 | 2)));
            })
        };
        let at = locate(&*table, STAYS, |addr| Ok(addr.0 == 1)).unwrap();
        let (line, i, _) = at.found.expect("the key is there");
        line.set_slot(i, Slot::new(Tag::of_hash(STAYS), Addr(2)));
        reader.join().unwrap();
    });
}

/// A key that was never there is not found, whatever is moved meanwhile.
#[test]
fn loom_a_lookup_of_a_missing_key_ends() {
    loom::model(|| {
        let table = Arc::new(Table::new(1));
        let mut writer = Writer::new(&table, vec![key(1, MOVES)]);
        writer.insert(key(1, MOVES));
        let reader = {
            let table = table.clone();
            thread::spawn(move || {
                let found = find(&*table, MOVES, |addr| Ok((addr.0 == 7).then_some(())));
                assert_eq!(found.unwrap(), None);
            })
        };
        writer.split();
        reader.join().unwrap();
    });
}

/// A table in memory: its buckets can move, and the space of its two records is used again. The slots
/// hold the numbers of the records, from 1.
struct TableInMemory {
    shape: AtomicU64,
    /// Where the buckets are now.
    base: AtomicU64,
    buckets: [[Line; 2]; 2],
    pins: Pins,
    /// Loom fails when one thread writes to a cell that another may be reading.
    records: [UnsafeCell<()>; 2],
}

impl Lines for TableInMemory {
    fn shape(&self) -> &AtomicU64 {
        &self.shape
    }

    fn bucket(&self, bucket: BucketIndex) -> &Line {
        &self.buckets[self.base.load(Ordering::Acquire) as usize][bucket.0 as usize]
    }

    fn overflow(&self, _: LineNumber) -> Option<&Line> {
        None
    }

    fn overflow_line_count(&self) -> u64 {
        0
    }
}

/// A pool whose line nobody takes: buckets with one key need none, but a merge asks how many there are.
struct NoLines;

impl LinePool for NoLines {
    fn take(&mut self) -> Option<LineNumber> {
        None
    }

    fn give(&mut self, _: LineNumber) {}

    fn free_count(&self) -> u64 {
        1
    }
}

impl TableInMemory {
    /// Returns a table with record 1 of a key.
    fn new(bucket_count: u64, hash: u64) -> Self {
        let shape = Shape { geometry: Geometry::with_bucket_count(bucket_count), epoch: 0 };
        let table = Self {
            shape: AtomicU64::new(shape.word()),
            base: AtomicU64::new(0),
            buckets: std::array::from_fn(|_| std::array::from_fn(|_| Line::new())),
            pins: Pins::default(),
            records: std::array::from_fn(|_| UnsafeCell::new(())),
        };
        let bucket = table.bucket(shape.geometry.bucket_of(hash));
        bucket.set_slot(0, Slot::new(Tag::of_hash(hash), Addr(1)));
        table
    }

    /// Looks the key up like `Store::find_hashed`, which pins only when it has a candidate.
    fn read(&self, hash: u64) {
        let candidate = find_candidate(self, hash).unwrap().expect("the tag is there");
        let pin = self.pins.pin();
        let found = candidate.find_pinned(self, hash, |addr| {
            self.records[addr.0 as usize - 1].with(|_| ());
            Ok(Some(()))
        });
        assert_eq!(found.unwrap(), Some(()));
        drop(pin);
    }

    /// Copies the buckets to where they stay from now on.
    fn move_buckets(&self) {
        for (from, to) in self.buckets[0].iter().zip(&self.buckets[1]) {
            for (i, slot) in from.slots_in_use() {
                to.set_slot(i, slot);
            }
        }
        self.base.store(1, Ordering::Release);
    }

    fn merge(&self) {
        let shape = Shape::of_word(self.shape.load(Ordering::Relaxed));
        let plan = shape.geometry.plan_merge().unwrap();
        merge(self, &mut NoLines, &plan, &mut Scratch::default()).unwrap();
    }

    /// Replaces record 1 of the key by record 2, and uses its space again as soon as the pins allow it.
    fn replace(&self, hash: u64) {
        let at = locate(self, hash, |addr| Ok(addr.0 == 1)).unwrap();
        let (line, i, slot) = at.found.expect("the key is there");
        line.set_slot(i, Slot::new(slot.tag(), Addr(2)));
        let ticket = self.pins.ticket();
        if self.pins.poll() > ticket {
            self.records[0].with_mut(|_| ());
        }
    }
}

/// Looks a key up while its bucket is moved or merged and then the key gets another record.
fn read_during(bucket_count: u64, hash: u64, change: fn(&TableInMemory)) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 20_000;
    builder.preemption_bound = Some(preemptions());
    builder.check(move || {
        let table = Arc::new(TableInMemory::new(bucket_count, hash));
        let reader = {
            let table = table.clone();
            thread::spawn(move || table.read(hash))
        };
        change(&table);
        table.replace(hash);
        reader.join().unwrap();
    });
}

#[test]
fn loom_a_lookup_that_pins_after_its_bucket_moved_reads_nothing_that_is_used_again() {
    read_during(1, STAYS, |table| {
        table.move_buckets();
        change_epoch(table);
    });
}

/// The bucket that is merged away keeps its slots.
#[test]
fn loom_a_lookup_that_pins_after_its_bucket_was_merged_reads_nothing_that_is_used_again() {
    read_during(2, MOVES, TableInMemory::merge);
}

/// Shows that the first of the two can fail: a reader that pins too late learns of a move by the epoch.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_a_lookup_does_not_see_a_move_in_the_same_epoch() {
    read_during(1, STAYS, TableInMemory::move_buckets);
}
