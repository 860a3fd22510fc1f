//! A call of one handle fails, while others have the file and go on.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use super::fault::{EIO, ENOSPC, examine_and_go_on};
use super::handles::{interleave, with_third};
use super::turns::by_turns;
use super::{History, Op, Shared, compact, is_slow, large, mix, read, seed};
use crate::error::ErrorKind;
use crate::{Db, Durability, Options, SimDisk, SimFault};

/// What came of one failed call.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    /// Handles that made changes afterwards, and handles that refused.
    went_on: u64,
    refused: u64,
}

/// Has a handle make a change that is synced.
fn go_on(shared: &Shared, number: usize, db: &Db, outcome: &mut Outcome) -> Result<(), String> {
    match db.store().lock_out_others() {
        // It reads what it saw in its last turn.
        Ok(turn) => drop(turn),
        Err(error) if matches!(error.kind(), ErrorKind::Poisoned | ErrorKind::Io) => {
            outcome.refused += 1;
            return Ok(());
        }
        Err(error) => return Err(format!("handle {number}: {error}")),
    }
    let content = read(db).map_err(|error| format!("handle {number}: {error}"))?;
    {
        let mut history = shared.history.borrow_mut();
        let found = history.find(&content, history.acknowledged);
        *history = history.first(found.ok_or_else(|| format!("handle {number} misses a change"))?);
        history.attempt(&vec![(b"beside".to_vec(), Some(vec![number as u8; 50]))]);
    }
    match db.put_with(b"beside", vec![number as u8; 50], Durability::Sync) {
        Ok(()) => {
            outcome.went_on += 1;
            shared.settle(true);
        }
        Err(error) if matches!(error.kind(), ErrorKind::Poisoned | ErrorKind::Io) => {
            outcome.refused += 1;
        }
        Err(error) => return Err(format!("handle {number} cannot put: {error}")),
    }
    Ok(())
}

/// Runs a program in which a call fails; `None` if it has no such call.
fn fail_call(
    options: &Options,
    ops: &[Op],
    call: u64,
    fault: SimFault,
) -> Result<Option<Outcome>, String> {
    let disk = SimDisk::new();
    disk.fail_once(call, fault);
    let shared = Rc::new(Shared::new(disk.same(), History::default(), BTreeMap::new()));
    for op in ops {
        let acted = shared.act(op, options);
        if shared.failure.take().is_some() || acted.is_err() {
            break;
        }
    }
    if disk.call_count() < call {
        return Ok(None);
    }
    let mut outcome = Outcome::default();
    let handles = shared.handles.borrow().clone();
    // The one whose operation failed comes last.
    let caller = shared.caller.get();
    let others = handles.iter().filter(|(number, _)| **number != caller);
    for (&number, db) in others.chain(handles.get_key_value(&caller)) {
        go_on(&shared, number, db, &mut outcome)?;
    }
    let history = shared.history.borrow().clone();
    examine_and_go_on(&disk.kill(), options, &history, history.acknowledged)
        .map_err(|error| format!("killed: {error}"))?;
    for i in 0..4 {
        let seed = [0, u64::MAX].get(i).copied().unwrap_or(mix(seed() ^ call, i as u64));
        examine_and_go_on(&disk.lose_power(seed), options, &history, history.synced)
            .map_err(|error| format!("power lost, image {seed}: {error}"))?;
        examine_and_go_on(&disk.kill_and_drop_clean_pages(seed), options, &history, history.synced)
            .map_err(|error| format!("killed and pages dropped, image {seed}: {error}"))?;
    }
    drop(handles);
    drop(shared.handles.take());
    examine_and_go_on(&disk, options, &history, history.acknowledged)
        .map_err(|error| format!("closed: {error}"))?;
    Ok(Some(outcome))
}

fn sweep(options: &Options, ops: &[Op], fault: SimFault, one_in: usize) -> Outcome {
    let options = by_turns(options.clone());
    let one_in = if is_slow() { 1 } else { one_in };
    let mut sum = Outcome::default();
    for call in (1..).step_by(one_in) {
        let failed = catch_unwind(AssertUnwindSafe(|| fail_call(&options, ops, call, fault)));
        let failed = failed.unwrap_or_else(|_| Err("panic".to_string()));
        let what = || format!("call {call} goes wrong with {fault:?}, SPLITPOINT_SEED={}", seed());
        let outcome = failed.unwrap_or_else(|error| panic!("{}: {error}", what()));
        let Some(outcome) = outcome else {
            assert!(call > 60, "{call}");
            break;
        };
        sum.went_on += outcome.went_on;
        sum.refused += outcome.refused;
    }
    println!("{fault:?}: {sum:?}");
    sum
}

/// A machine that lost its power has other calls.
fn without_power_loss(ops: Vec<Op>) -> Vec<Op> {
    let is_loss = |op: &Op| matches!(op, Op::By(_, op) if matches!(**op, Op::LosePower(_)));
    with_third(interleave(ops, seed())).into_iter().filter(|op| !is_loss(op)).collect()
}

#[test]
fn what_one_handle_fails_to_write_or_sync_no_other_one_calls_durable() {
    for errno in [EIO, ENOSPC] {
        let ops = without_power_loss(large::program());
        let sum = sweep(&large::checkpointing(1.0), &ops, SimFault::Error(errno), 3);
        assert!(sum.went_on > 100 && sum.refused > 30, "{sum:?}");
        let ops = without_power_loss(compact::program());
        let sum = sweep(&compact::options(), &ops, SimFault::Error(errno), 11);
        // The least of ten seeds were 63 and 36.
        assert!(sum.went_on > 100 && sum.refused > 15, "{sum:?}");
    }
}
