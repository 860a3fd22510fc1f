//! Handles that change a file by turns: each change of these programs reads the state of the writer from
//! the file, as if another process had made the one before.

use super::large::{self, Depth};
use super::{Counts, Op, compact, is_slow, seed};
use crate::testing::mutant::{Mutant, with};
use crate::{Durability, Options, Sharing, SimDisk};

pub(super) fn by_turns(options: Options) -> Options {
    options.sharing(Sharing::Shared).durability(Durability::Async)
}

/// Returns the operations of a program that such a handle has.
pub(super) fn ops_of(program: Vec<Op>) -> Vec<Op> {
    let ops = program.into_iter().flat_map(|op| match op {
        Op::WhileHeld(_, ops) | Op::WhileSnapshot(ops) => ops_of(ops),
        op => vec![op],
    });
    ops.collect()
}

/// Overwrites twice as often as the program of compaction.
fn compacting() -> Vec<Op> {
    let ops = ops_of(compact::program());
    ops.iter().chain(&ops).cloned().collect()
}

fn sweep(options: Options, ops: &[Op], depth: Depth) -> Result<Counts, String> {
    large::sweep(SimDisk::new(), by_turns(options), ops, seed(), depth)
}

fn depth() -> Depth {
    if is_slow() {
        Depth { images: 20, ..Depth::QUICK }
    } else {
        Depth { share: (0, 3), ..Depth::QUICK }
    }
}

#[test]
fn every_crash_point_of_changes_by_turns_leaves_a_prefix_with_everything_synced() {
    let ops = ops_of(large::program());
    // All of them: what the mutants below break is found at any.
    let depth = if is_slow() { depth() } else { Depth::QUICK };
    let counts = sweep(large::checkpointing(1.0), &ops, depth);
    let counts = counts.unwrap_or_else(|error| panic!("{error}"));
    println!("{counts:?}");
    assert!(counts.points > 200, "{counts:?}");
}

#[test]
fn every_crash_point_of_compaction_by_turns_leaves_a_prefix_with_everything_synced() {
    let counts = sweep(compact::options(), &compacting(), depth());
    let counts = counts.unwrap_or_else(|error| panic!("{error}"));
    println!("{counts:?}");
    assert!(counts.points > 200 && counts.moved_bytes > 15_000, "{counts:?}");
}

#[test]
fn a_handle_that_is_taken_for_one_that_was_closed_in_order_is_found_when_it_was_killed() {
    let ops = ops_of(large::program());
    let found =
        with(Mutant::TrustsLastTurns, || sweep(large::checkpointing(1.0), &ops, Depth::QUICK));
    println!("{}", found.expect_err("it goes on with half a split"));
}

#[test]
fn a_sync_by_turns_that_leaves_out_what_others_wrote_is_found_by_power_loss() {
    for mutant in [Mutant::SyncsTailAlone, Mutant::SyncsWithoutCopies] {
        let ops = compacting();
        let found = with(mutant, || sweep(compact::options(), &ops, Depth::QUICK));
        let found = found.expect_err("it loses what was synced");
        println!("{mutant:?}: {found}");
        assert!(found.contains("power lost"), "{mutant:?}: {found}");
    }
}

#[test]
fn a_checkpoint_by_turns_that_does_not_wait_for_the_device_is_found_by_power_loss() {
    let found = with(Mutant::NamesUnsynced, || {
        sweep(large::checkpointing(1.0), &ops_of(large::program()), Depth::QUICK)
    });
    let found = found.expect_err("what a superblock names is not on the disk");
    println!("{found}");
    assert!(found.contains("power lost"), "{found}");
}
