//! Visits every state of the model within bounds, without a mistake and with each.
//!
//! `SPLITPOINT_SLOW=1` visits larger bounds as well.

use std::collections::BTreeSet;

use splitpoint_model::{Bounds, Canary, Model, PROPERTIES, State};
use stateright::{Checker as _, HasDiscoveries, Model as _};

/// Threads that visit states.
const THREADS: usize = 2;

const REUSE: &str = PROPERTIES[0];
const POWER: &str = PROPERTIES[1];
const DEATH: &str = PROPERTIES[2];
const PLACE: &str = PROPERTIES[3];
const OVERTAKEN: &str = PROPERTIES[4];

const NONE: Bounds = Bounds {
    writers: 1,
    turns: 0,
    readers: 0,
    looks: 0,
    snapshots: 0,
    puts: 0,
    moves: 0,
    checkpoints: 0,
    syncs: 0,
    deaths: 0,
};

/// Visits every state, and requires that all properties hold and that more than `least` were there.
fn check(bounds: Bounds, least: usize) {
    let checker = Model { bounds, canary: None }.checker().threads(THREADS);
    let checker = checker.symmetry_fn(State::representative).spawn_dfs().join();
    checker.assert_properties();
    let count = checker.unique_state_count();
    assert!(count > least, "{count} states of {bounds:?}");
}

/// Visits the same with larger bounds, if that is asked for.
fn check_deeply(bounds: Bounds) {
    if std::env::var_os("SPLITPOINT_SLOW").is_some_and(|value| value == "1") {
        check(bounds, 0);
    }
}

/// Requires that a property falls with a mistake, and holds without it within the same bounds.
fn check_canary(canary: Canary, property: &'static str, bounds: Bounds) {
    let until = HasDiscoveries::AnyOf(BTreeSet::from([property]));
    let model = Model { bounds, canary: Some(canary) };
    let wrong = model.checker().threads(THREADS).finish_when(until).spawn_bfs().join();
    let found = wrong.discovery(property);
    assert!(found.is_some(), "{} states: {canary:?} is not found", wrong.unique_state_count());
    check(bounds, 0);
}

#[test]
fn two_writers_and_two_readers_survive_a_death_a_checkpoint_and_a_reuse() {
    let bounds = Bounds { writers: 2, turns: 1, readers: 2, looks: 1, ..NONE };
    check(Bounds { puts: 2, checkpoints: 1, deaths: 1, ..bounds }, 1_000_000);
    check_deeply(Bounds { puts: 2, checkpoints: 1, syncs: 1, deaths: 1, ..bounds });
    check_deeply(Bounds { looks: 2, puts: 2, checkpoints: 1, deaths: 1, ..bounds });
    check_deeply(Bounds { turns: 2, puts: 2, checkpoints: 1, deaths: 1, ..bounds });
}

#[test]
fn turns_survive_a_death_at_any_step() {
    let bounds = Bounds { writers: 2, turns: 2, puts: 2, syncs: 1, deaths: 1, ..NONE };
    check(bounds, 200_000);
    check_deeply(Bounds { turns: 3, puts: 3, checkpoints: 1, deaths: 2, ..bounds });
}

#[test]
fn readers_are_safe_beside_one_writer_that_compacts() {
    let bounds = Bounds { readers: 2, looks: 1, puts: 2, checkpoints: 1, deaths: 1, ..NONE };
    check(bounds, 100_000);
    check(Bounds { readers: 1, looks: 2, moves: 1, syncs: 1, ..bounds }, 100_000);
    check_deeply(Bounds { looks: 2, moves: 1, checkpoints: 2, syncs: 1, ..bounds });
}

#[test]
fn a_snapshot_finds_its_version_beside_a_writer_that_compacts() {
    let bounds = Bounds { readers: 1, looks: 2, snapshots: 1, puts: 2, checkpoints: 1, ..NONE };
    check(bounds, 10_000);
    check_deeply(Bounds { readers: 2, moves: 1, ..bounds });
}

#[test]
fn nobody_waits_longer_than_a_row_of_turns() {
    check(Bounds { writers: 2, turns: 5, deaths: 1, ..NONE }, 3_000);
}

#[test]
fn a_segment_freed_by_its_count_is_found() {
    let bounds = Bounds { writers: 2, turns: 1, puts: 2, checkpoints: 1, deaths: 1, ..NONE };
    check_canary(Canary::FreedByCount, DEATH, bounds);
}

#[test]
fn a_segment_freed_before_that_is_durable_is_found() {
    let bounds = Bounds { puts: 2, ..NONE };
    check_canary(Canary::FreedBeforeDurable, POWER, bounds);
}

#[test]
fn a_segment_freed_in_the_replay_range_is_found() {
    let bounds = Bounds { puts: 3, syncs: 2, ..NONE };
    check_canary(Canary::FreedInReplayRange, POWER, bounds);
}

#[test]
fn a_segment_freed_before_the_second_superblock_is_found() {
    // What the older superblock leads to is in the segments that both of the first two puts have left.
    let bounds = Bounds { puts: 4, checkpoints: 1, ..NONE };
    check_canary(Canary::FreedBeforeSecondSuperblock, POWER, bounds);
}

#[test]
fn a_grace_period_with_one_look_is_found() {
    let bounds = Bounds { readers: 1, looks: 1, puts: 3, checkpoints: 2, ..NONE };
    check_canary(Canary::GracePeriodWithOneLook, REUSE, bounds);
}

#[test]
fn a_pin_after_the_slot_is_found() {
    let bounds = Bounds { readers: 1, looks: 1, puts: 2, checkpoints: 1, ..NONE };
    check_canary(Canary::PinsAfterTheSlot, REUSE, bounds);
}

#[test]
fn a_place_erased_without_its_lock_is_found() {
    let bounds = Bounds { readers: 1, looks: 1, puts: 2, checkpoints: 1, ..NONE };
    check_canary(Canary::PlaceErasedWithoutLock, REUSE, bounds);
}

#[test]
fn a_turn_word_that_is_set_after_the_first_store_is_found() {
    let bounds = Bounds { writers: 2, turns: 2, puts: 2, deaths: 1, ..NONE };
    check_canary(Canary::TurnWordAfterFirstStore, DEATH, bounds);
}

#[test]
fn a_killed_turn_taken_for_one_that_ended_is_found() {
    let bounds = Bounds { writers: 2, turns: 1, puts: 1, deaths: 1, ..NONE };
    check_canary(Canary::KilledTurnTakenForEnded, DEATH, bounds);
}

#[test]
fn a_place_given_up_before_the_word_is_found() {
    let bounds = Bounds { writers: 2, turns: 2, puts: 1, deaths: 1, ..NONE };
    check_canary(Canary::PlaceGivenUpBeforeWord, DEATH, bounds);
}

#[test]
fn a_place_taken_without_its_lock_is_found() {
    check_canary(Canary::PlaceTakenWithoutLock, PLACE, Bounds { writers: 2, turns: 1, ..NONE });
}

#[test]
fn an_ignored_horizon_is_found() {
    let bounds = Bounds { readers: 1, looks: 1, snapshots: 1, puts: 2, checkpoints: 1, ..NONE };
    check_canary(Canary::HorizonIgnored, REUSE, bounds);
}

#[test]
fn a_sync_of_the_tail_alone_is_found() {
    check_canary(Canary::SyncsTailAlone, POWER, Bounds { puts: 2, syncs: 1, ..NONE });
}

#[test]
fn an_image_that_is_named_before_it_is_durable_is_found() {
    let bounds = Bounds { writers: 2, turns: 1, puts: 1, checkpoints: 1, ..NONE };
    check_canary(Canary::NamedBeforeDurable, POWER, bounds);
}

#[test]
fn an_image_that_is_named_after_another_handle_has_freed_it_is_found() {
    let bounds = Bounds { writers: 2, turns: 2, puts: 1, checkpoints: 2, ..NONE };
    check_canary(Canary::FreedImageNamed, POWER, bounds);
}

#[test]
fn a_place_that_is_freed_before_the_next_checkpoint_is_named_durably_is_found() {
    let bounds = Bounds { writers: 2, turns: 2, puts: 1, checkpoints: 2, ..NONE };
    check_canary(Canary::PlaceFreedBeforeNamedDurably, POWER, bounds);
}

#[test]
fn a_checkpoint_goes_on_over_the_turns_of_both_writers() {
    let bounds = Bounds { writers: 2, turns: 4, puts: 1, checkpoints: 1, ..NONE };
    check(Bounds { turns: 3, deaths: 1, ..bounds }, 10_000);
    check(Bounds { turns: 2, checkpoints: 2, deaths: 1, ..bounds }, 10_000);
    check_deeply(Bounds { puts: 2, checkpoints: 2, deaths: 1, ..bounds });
}

#[test]
fn an_ignored_wait_word_is_found() {
    check_canary(Canary::WaitWordIgnored, OVERTAKEN, Bounds { writers: 2, turns: 5, ..NONE });
}

#[test]
fn a_wanted_place_that_is_kept_is_found() {
    check_canary(Canary::WantedPlaceKept, OVERTAKEN, Bounds { writers: 2, turns: 5, ..NONE });
}
