//! Snapshots and transactions at every crash point, while records move and space is used again. A
//! snapshot shows the content of its moment whatever is done meanwhile, and leaves nothing in the file.

use super::compact::options;
use super::large::{self, Depth};
use super::{Op, is_slow, mix, seed};
use crate::Durability::{Buffered, Sync};
use crate::SimDisk;
use crate::testing::mutant::{Mutant, with};

const KEYS: u64 = 14;

fn key(i: u64) -> Vec<u8> {
    format!("key {i}").into_bytes()
}

/// Makes operations whose values all differ.
#[derive(Default)]
struct Program {
    ops: Vec<Op>,
    number: u64,
}

impl Program {
    fn random(&mut self) -> u64 {
        self.number += 1;
        mix(29, self.number)
    }

    fn value(&mut self) -> Vec<u8> {
        let random = self.random();
        let bytes = if random.is_multiple_of(40) { 5000 } else { 80 + random % 400 };
        (0..bytes).map(|at| (at * 3 + self.number) as u8).collect()
    }

    /// Puts, deletes and transactions, with what the thread in the background does between.
    fn change(&mut self, count: u64) {
        for i in 0..count {
            let random = self.random();
            let (one, other) = (key(random % KEYS), key((random >> 20) % KEYS));
            let op = match i % 6 {
                0..3 => Op::Put(one, self.value(), if i % 9 == 8 { Sync } else { Buffered }),
                3 => Op::Delete(one, Buffered),
                4 => Op::SyncInBackground,
                _ => {
                    let mut changes = vec![(one.clone(), Some(self.value()))];
                    changes.push((key(random % KEYS + 1), None));
                    changes.extend((one != other).then(|| (other, Some(self.value()))));
                    Op::Transaction(changes)
                }
            };
            self.ops.push(op);
        }
    }

    /// The same while a snapshot is open.
    fn change_under_snapshot(&mut self, count: u64) {
        let mut inner = Self { ops: Vec::new(), number: self.number };
        inner.change(count);
        inner.ops.push(Op::Maintain(u64::MAX));
        inner.change(count / 2);
        self.number = inner.number;
        self.ops.push(Op::WhileSnapshot(inner.ops));
    }
}

fn program() -> Vec<Op> {
    let mut program = Program::default();
    for i in 0..KEYS {
        let value = program.value();
        program.ops.push(Op::Put(key(i), value, Buffered));
    }
    program.change(50);
    program.ops.push(Op::Maintain(700));
    program.change_under_snapshot(24);
    program.ops.push(Op::Maintain(u64::MAX));
    program.change_under_snapshot(12);
    program.ops.push(Op::Kill);
    program.change(10);
    program.ops.push(Op::LosePower(3));
    program.change_under_snapshot(12);
    program.ops.push(Op::Reopen);
    program.change(6);
    program.ops
}

fn depth() -> Depth {
    if is_slow() {
        Depth { images: 40, second_every: 20, share: (0, 1) }
    } else {
        Depth { images: 1, second_every: 400, share: (0, 3) }
    }
}

#[test]
fn every_crash_point_beside_a_snapshot_and_in_a_transaction_leaves_a_prefix() {
    let swept = large::sweep(SimDisk::new(), options(), &program(), seed(), depth());
    let counts = swept.unwrap_or_else(|error| panic!("{error}"));
    println!("{counts:?}");
    assert!(counts.points > 300, "{counts:?}");
}

#[track_caller]
fn assert_found(mutant: Mutant) {
    let depth = Depth { images: 1, second_every: 1000, share: (0, 50) };
    let swept = with(mutant, || large::sweep(SimDisk::new(), options(), &program(), seed(), depth));
    let Err(found) = swept else { panic!("{mutant:?} goes unnoticed") };
    println!("{mutant:?}: {found}");
}

#[test]
fn a_record_moved_without_its_name_under_a_snapshot_is_found() {
    assert_found(Mutant::MovesWithoutName);
}

#[test]
fn space_used_again_under_a_snapshot_is_found() {
    assert_found(Mutant::ReusesUnderScan);
}

#[test]
fn a_key_deleted_under_a_snapshot_without_a_grave_is_found() {
    assert_found(Mutant::LeavesNoGrave);
}
