//! Transactions whose changes are kept in files before they commit, at every crash point.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use super::compact::options;
use super::large::{self, Depth};
use super::{Counts, Op, is_slow, mix, seed, turns};
use crate::Durability::{Async, Buffered, Sync};
use crate::atomic::kill_points::observe;
use crate::testing::mutant::{Mutant, with};
use crate::{Options, SimDisk};

const KEYS: u64 = 40;

fn spilling() -> Options {
    options().transaction_bytes(0)
}

fn key(i: u64) -> Vec<u8> {
    format!("key {i}").into_bytes()
}

/// Returns changes of `count` keys, some of them twice, with big values among them.
fn changes(number: u64, count: u64) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let change = |i| {
        let random = mix(number, i);
        let bytes = if random.is_multiple_of(16) { 5000 } else { 20 + random % 200 };
        let value = (0..bytes).map(|at| (at * 5 + number + i) as u8).collect();
        (key((random >> 8) % KEYS), (!random.is_multiple_of(5)).then_some(value))
    };
    (0..count).map(change).collect()
}

fn program() -> Vec<Op> {
    let transaction = |number, count| Op::Transaction(changes(number, count));
    let put = |i, durability| Op::Put(key(i), vec![i as u8; 90], durability);
    vec![
        transaction(1, 28),
        put(3, Buffered),
        transaction(2, 24),
        Op::SyncInBackground,
        Op::WhileSnapshot(vec![transaction(3, 24), put(4, Sync), Op::Maintain(u64::MAX)]),
        transaction(4, 20),
        Op::Kill,
        transaction(5, 24),
        Op::LosePower(3),
        transaction(6, 28),
        Op::Maintain(u64::MAX),
        Op::Reopen,
        Op::Transaction((0..KEYS).step_by(2).map(|i| (key(i), None)).collect()),
        put(5, Sync),
        transaction(7, 1),
    ]
}

fn sweep(options: Options, ops: &[Op]) -> Result<Counts, String> {
    let depth = if is_slow() {
        Depth { images: 40, second_every: 20, share: (0, 1) }
    } else {
        Depth { images: 1, second_every: 400, share: (0, 3) }
    };
    large::sweep(SimDisk::new(), options, ops, seed(), depth)
}

#[test]
fn every_crash_point_of_a_spilled_transaction_leaves_all_of_it_or_nothing() {
    let counts = sweep(spilling(), &program()).unwrap_or_else(|error| panic!("{error}"));
    println!("{counts:?}");
    assert!(counts.points > 300, "{counts:?}");
}

#[test]
fn every_crash_point_of_a_spilled_transaction_by_turns_leaves_all_of_it_or_nothing() {
    let counts = sweep(turns::by_turns(spilling()), &turns::ops_of(program()));
    let counts = counts.unwrap_or_else(|error| panic!("{error}"));
    println!("{counts:?}");
    assert!(counts.points > 200, "{counts:?}");
}

#[test]
fn slots_of_a_spilled_transaction_that_the_log_does_not_commit_are_found() {
    let found = with(Mutant::PublishesUncommitted, || sweep(spilling(), &program()));
    let found = found.expect_err("a killed process leaves a part");
    println!("{found}");
    assert!(found.contains("killed"), "{found}");
}

/// Wherever a commit of much is killed, or loses power, what it has appended is used again.
#[test]
fn the_space_of_a_killed_commit_is_given_back() {
    kill_commits(false).unwrap();
}

#[test]
fn the_space_of_a_killed_commit_of_a_compacted_store_is_given_back() {
    kill_commits(true).unwrap();
}

#[test]
fn big_records_that_a_killed_commit_leaves_for_good_are_found() {
    let found = with(Mutant::KeepsAbandonedBigs, || kill_commits(true));
    let found = found.expect_err("nothing else looks for them");
    assert!(found.contains("given up"), "{found}");
}

/// Kills a commit in many places; what it left is to be given back.
fn kill_commits(is_compacted: bool) -> Result<(), String> {
    let disk = Rc::new(SimDisk::new());
    let options = spilling();
    let db = disk.open(&options).unwrap();
    for i in 0..KEYS {
        db.put(key(i), [1; 50]).unwrap();
    }
    for round in 0..if is_compacted { 400 } else { 0 } {
        for i in 0..KEYS {
            db.put(key(i), [round as u8; 50]).unwrap();
        }
        db.maintain(u64::MAX).unwrap();
        if db.stats().unwrap().segments.waiting > 0 {
            break;
        }
    }
    db.maintain(u64::MAX).unwrap();
    let mut transaction = db.begin().unwrap();
    for i in 0..600 {
        let bytes = if i % 50 == 9 { 9000 } else { 400 };
        transaction.put(key(i % 300), vec![i as u8; bytes]).unwrap();
    }
    // Many events; some of the machines that they leave.
    let killed: Rc<RefCell<Vec<SimDisk>>> = Rc::default();
    let (number, kept, machine) = (Cell::new(0_u64), killed.clone(), disk.clone());
    let observer = move || {
        number.set(number.get() + 1);
        if number.get().is_multiple_of(211) {
            kept.borrow_mut().extend([machine.kill(), machine.lose_power(number.get())]);
        }
    };
    observe(observer, || transaction.commit()).unwrap();
    let mut counts = BTreeMap::new();
    for left in killed.take() {
        let db = left.open(&options).unwrap();
        let count = db.len();
        assert!(count == KEYS || count == 300, "{count} keys");
        *counts.entry(count).or_insert(0) += 1;
        // Two checkpoints, and what waits for them.
        for round in 0..4_u8 {
            db.put("another", [round; 3000]).unwrap();
            db.maintain(u64::MAX).unwrap();
            db.sync().unwrap();
        }
        assert!(db.check().unwrap().is_clean());
        let used = db.stats().unwrap().segments;
        let bytes = used.log + used.big + used.waiting;
        if count != 300 && bytes > 24 << 10 {
            return Err(format!("{used:?}: what was given up takes 220,000 bytes"));
        }
    }
    assert!(counts[&KEYS] > 10 && counts[&300] > 1, "{counts:?}");
    Ok(())
}

/// A background sync would wait for the commit.
fn power_is_lost_in_a_commit(options: &Options) -> Result<(), String> {
    let disk = Rc::new(SimDisk::new());
    let db = disk.open(options).unwrap();
    for i in 0..KEYS {
        db.put(key(i), [1; 50]).unwrap();
    }
    db.sync().unwrap();
    let mut transaction = db.begin().unwrap();
    for i in 0..600 {
        transaction.put(key(i % 300), vec![i as u8; 400]).unwrap();
    }
    db.put_with("before", "the commit", Async).unwrap();
    let lost: Rc<RefCell<Vec<SimDisk>>> = Rc::default();
    let (number, kept, machine) = (Cell::new(0_u64), lost.clone(), disk.clone());
    let observer = move || {
        number.set(number.get() + 1);
        if number.get().is_multiple_of(199) {
            kept.borrow_mut().push(machine.lose_power(0));
        }
    };
    observe(observer, || transaction.commit()).unwrap();
    let lost = lost.take();
    assert!(lost.len() > 10, "{} machines", lost.len());
    let has = |left: &SimDisk| left.open(options).unwrap().contains("before").unwrap();
    match lost.iter().position(|left| !has(left)) {
        Some(i) => Err(format!("lost on machine {i} of {}", lost.len())),
        None => Ok(()),
    }
}

#[test]
fn what_was_changed_before_a_large_commit_is_durable_while_it_goes_on() {
    for options in [spilling().durability(Async), turns::by_turns(spilling())] {
        power_is_lost_in_a_commit(&options).unwrap();
        let found = with(Mutant::LeavesEarlierUnsafe, || power_is_lost_in_a_commit(&options));
        println!("{}", found.expect_err("nothing else syncs it"));
    }
}
