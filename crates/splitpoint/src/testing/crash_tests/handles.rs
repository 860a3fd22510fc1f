//! Several handles of one file, which change it by turns: what a handle remembers of the file may be stale.
//!
//! One thread plays all of them. A handle acts between the operations of another one, and before and behind each
//! flush that another one makes without a turn. One that is killed in an operation leaves others that go on.
//!
//! # Not here
//!
//! On these machines handles have no locks: each turn reads the state of the writer from the file, and nobody pins
//! or keeps the place between turns. [`neighbours`](super::neighbours) has machines with locks.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::rc::Rc;

use super::large::{self, Depth};
use super::turns::{by_turns, ops_of};
use super::{Counts, History, Op, Point, Run, compact, is_slow, mix, read, seed};
use crate::testing::mutant::{Mutant, with};
use crate::{Db, Durability, Options, SimDisk};

/// Gives each operation to one of so many handles.
fn spread(ops: Vec<Op>, handle_count: u64, seed: u64) -> Vec<Op> {
    let spread = ops_of(ops).into_iter().enumerate().map(|(i, op)| {
        let number = mix(seed, i as u64) % handle_count;
        Op::By(number as usize, Box::new(op))
    });
    spread.collect()
}

/// Returns a change after which a checkpoint is due that another handle has on its way.
fn much(i: u64, n: u64) -> Op {
    let pairs = (0..12).map(|key| (vec![b'm', (n % 3) as u8, key], vec![i as u8; 200]));
    Op::PutMany(pairs.collect(), Durability::Sync)
}

/// Gives each operation to one of two handles, and has the other one act whenever that is about to flush.
pub(super) fn interleave(ops: Vec<Op>, seed: u64) -> Vec<Op> {
    let interleaved = spread(ops, 2, seed).into_iter().enumerate().map(|(i, op)| {
        let Op::By(number, op) = op else { unreachable!("each has its handle") };
        let other = 1 - number;
        let at = mix(seed, i as u64) % 8;
        let meanwhile = (0..8).map(|n| {
            let op = match mix(seed, (i as u64) << 8 | n) % 6 {
                _ if n < at => Op::Sync,
                0 => Op::Reopen,
                1 => Op::Kill,
                2 => Op::SyncInBackground,
                _ => much(i as u64, n),
            };
            Op::By(other, Box::new(op))
        });
        let meanwhile = meanwhile.collect();
        // The changes of a `PutMany` have flushes between them.
        let is_alone = matches!(*op, Op::LosePower(_) | Op::PutMany(..));
        let op = Op::By(number, op);
        if is_alone { op } else { Op::Meanwhile(Box::new(op), meanwhile) }
    });
    interleaved.collect()
}

fn sweep(options: Options, ops: &[Op]) -> Counts {
    let depth = if is_slow() { Depth { images: 20, ..Depth::QUICK } } else { Depth::QUICK };
    let counts = large::sweep(SimDisk::new(), by_turns(options), ops, seed(), depth);
    let counts = counts.unwrap_or_else(|error| panic!("{error}"));
    println!("{counts:?}");
    assert!(counts.points > 200, "{counts:?}");
    counts
}

#[test]
fn every_crash_point_of_changes_of_three_handles_leaves_a_prefix_with_everything_synced() {
    sweep(large::checkpointing(1.0), &spread(large::program(), 3, seed()));
}

#[test]
fn every_crash_point_of_compaction_by_two_handles_leaves_a_prefix_with_everything_synced() {
    let ops = compact::program();
    let counts = sweep(compact::options(), &spread([&ops[..], &ops].concat(), 2, seed()));
    assert!(counts.moved_bytes > 15_000, "{counts:?}");
}

#[test]
fn every_crash_point_of_changes_between_a_turn_and_its_flushes_leaves_a_prefix() {
    let counts = sweep(large::checkpointing(1.0), &interleave(large::program(), seed()));
    // By the seed, 49 to 74.
    assert!(counts.acted_meanwhile > 30, "{counts:?}");
}

#[test]
fn every_crash_point_of_compaction_between_a_turn_and_its_flushes_leaves_a_prefix() {
    let counts = sweep(compact::options(), &interleave(compact::program(), seed()));
    assert!(counts.moved_bytes > 5_000 && counts.acted_meanwhile > 50, "{counts:?}");
}

#[test]
fn a_superblock_of_another_handle_that_is_taken_for_durable_is_found_by_power_loss() {
    // Not in each of these programs does a handle write one while that of another is on its way.
    let found = (1991..2003).find_map(|seed| {
        let ops = interleave(compact::program(), seed);
        let options = by_turns(compact::options());
        let swept = || large::sweep(SimDisk::new(), options, &ops, seed, Depth::QUICK);
        with(Mutant::TakesNewestForDurable, swept).err()
    });
    let found = found.expect("a power loss may take both");
    assert!(found.contains("neither superblock is durable"), "{found}");
}

/// What a handle that was opened before does when another one is killed in the middle of an operation.
pub(super) fn of_survivor() -> Vec<Op> {
    vec![
        Op::Put(b"first".to_vec(), vec![1; 40], Durability::Async),
        much(1, 1),
        Op::SyncInBackground,
        Op::Delete(b"first".to_vec(), Durability::Sync),
        much(2, 2),
        Op::Maintain(u64::MAX),
        Op::SyncInBackground,
        Op::Reopen,
        much(3, 1),
    ]
}

/// Kills the handle that is in a call, and has another one go on.
fn survive(point: &Point<'_>, depth: Depth, counts: &Rc<RefCell<Counts>>) -> Result<(), String> {
    let is_caller = |db: &Rc<Db>| point.caller.is_some_and(|caller| Rc::ptr_eq(db, caller));
    let is_free =
        |(number, db): &(&usize, &Rc<Db>)| point.waiting != Some(**number) && !is_caller(db);
    let Some((_, survivor)) = point.handles.iter().find(is_free) else { return Ok(()) };
    let survivor = survivor.clone();
    point.disk.kill_one(point.caller.map(|db| db.store().region.storage()));
    // It reads what it saw in its last turn.
    drop(survivor.store().lock_out_others().map_err(|error| format!("no turn: {error}"))?);
    let content = read(&survivor)?;
    let found = point.history.find(&content, point.history.acknowledged);
    let history = point.history.first(found.ok_or("it misses a change")?);
    let handles = BTreeMap::from([(0, survivor)]);
    let run = Run { options: point.options.clone(), ops: of_survivor(), seed: point.seed };
    run.on_with(handles, point.disk.same(), history, large::visit(depth, counts.clone()))?;
    Ok(())
}

/// Has a third handle act every now and then, which knows the file as it was then.
pub(super) fn with_third(ops: Vec<Op>) -> Vec<Op> {
    let third =
        |i: usize| Op::By(2, Box::new(Op::Put(vec![i as u8], vec![3; 30], Durability::Async)));
    let ops = ops.into_iter().enumerate();
    ops.flat_map(|(i, op)| [(i % 12 == 0).then(|| third(i)), Some(op)]).flatten().collect()
}

/// Calls `survive` at some events of a program, one at a time, each of which is the last one of its run. Returns
/// how many.
pub(super) fn kill_callers(
    machine: fn() -> SimDisk,
    options: &Options,
    ops: &[Op],
    every: u64,
    survive: impl Fn(&Point<'_>) -> Result<(), String> + Clone + 'static,
) -> Result<u64, String> {
    let (mut killed_count, mut at) = (0, 1);
    loop {
        let survived = Rc::new(Cell::new(None));
        let (result, survive) = (survived.clone(), survive.clone());
        let visit = move |point: &Point<'_>| {
            if point.number == at {
                result.set(Some(survive(point)));
                resume_unwind(Box::new("killed"));
            }
            Ok(())
        };
        let run = Run { options: options.clone(), ops: ops.to_vec(), seed: seed() };
        let ran = run.on(machine(), History::default(), visit);
        let Some(survived) = survived.take() else {
            // There are no more events.
            ran?;
            return Ok(killed_count);
        };
        survived.map_err(|error| format!("killed at event {at}: {error}"))?;
        killed_count += 1;
        at += every;
    }
}

#[test]
fn a_handle_goes_on_after_another_one_that_was_killed() {
    for (options, ops, every) in [
        (large::checkpointing(1.0), interleave(large::program(), seed()), 61),
        (compact::options(), interleave(compact::program(), seed()), 181),
    ] {
        let every = if is_slow() { 1 } else { every };
        let ops: Vec<Op> = with_third(ops);
        let counts = Rc::new(RefCell::new(Counts::default()));
        let survivor_count = Rc::new(Cell::new(0));
        let (of_all, survivors) = (counts.clone(), survivor_count.clone());
        let depth = Depth { images: 1, second_every: 1000, share: (0, 7) };
        let survive = move |point: &Point<'_>| {
            let point_count = of_all.borrow().points;
            let survived = survive(point, depth, &of_all);
            survivors.set(survivors.get() + u64::from(of_all.borrow().points > point_count));
            survived
        };
        let killed = kill_callers(SimDisk::new, &by_turns(options), &ops, every, survive);
        killed.unwrap_or_else(|error| panic!("{error}"));
        let counts = *counts.borrow();
        println!("{counts:?}");
        assert!(counts.points > 200 && survivor_count.get() > 15, "{survivor_count:?} {counts:?}");
    }
}
