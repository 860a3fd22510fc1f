//! Would the sweeps notice? Each runs over an engine with one mistake, or on a machine that leaves
//! out what the engine asks for, and must find it.

use super::large::{self, Depth};
use super::{is_slow, options, seed, small};
use crate::format::LIVE_OFFSET;
use crate::storage::sim::Omission;
use crate::testing::mutant::{Mutant, with};
use crate::{Db, SimDisk, SimFault};

/// Small programs with thousands of images.
const MANY_IMAGES: [&str; 3] = ["segments", "a big record", "splits and a merge"];
/// A small program with a large file.
const LARGE_FILE: &str = "closed without a checksum of the index";

/// Who makes the mistake.
#[derive(Clone, Copy, Debug)]
enum Broken {
    Engine(Mutant),
    Machine(Omission),
}

impl Broken {
    /// Runs a sweep from a new machine.
    fn sweep<T>(self, sweep: impl FnOnce(SimDisk) -> T) -> T {
        match self {
            Self::Engine(mutant) => with(mutant, || sweep(SimDisk::new())),
            Self::Machine(omission) => sweep(SimDisk::without(omission)),
        }
    }

    /// Runs the sweeps of small programs, without those of thousands of images but in the slow mode, and returns
    /// what each finds.
    fn all_small_find(self) -> impl Iterator<Item = String> {
        let programs = small::programs().into_iter();
        let chosen = programs.filter(|(name, ..)| is_slow() || !MANY_IMAGES.contains(name));
        chosen.filter_map(move |(name, fill_factor, ops)| {
            let swept = self.sweep(|disk| small::sweep(disk, fill_factor, &ops, 8));
            swept.err().map(|error| format!("{name}: {error}"))
        })
    }

    /// Runs the sweeps of small programs until one finds something.
    fn small_finds(self) -> Option<String> {
        self.all_small_find().next()
    }

    /// Runs the sweep of the large program until it finds something.
    fn large_finds(self) -> Option<String> {
        let ops = large::program();
        let options = large::checkpointing(1.0);
        self.sweep(|disk| large::sweep(disk, options, &ops, seed(), Depth::QUICK)).err()
    }
}

/// Checks that both sweeps find a mistake, after a crash of the kind that shows it.
#[track_caller]
fn check(broken: Broken, crash: &str) {
    for (sweep, found) in [("small", broken.small_finds()), ("large", broken.large_finds())] {
        let found = found.unwrap_or_else(|| panic!("{broken:?} goes unnoticed by the {sweep} one"));
        println!("{broken:?}: {sweep}: {found}");
        assert!(found.contains(crash), "{sweep}: {found}");
    }
}

#[test]
fn a_slot_stored_before_its_record_is_found_by_killing() {
    check(Broken::Engine(Mutant::SlotBeforeRecord), "killed: ");
}

#[test]
fn a_split_that_leaves_its_movers_is_found_by_killing() {
    check(Broken::Engine(Mutant::MoversStay), "killed: ");
}

#[test]
fn a_superblock_before_the_tables_it_vouches_for_is_found_by_power_loss() {
    check(Broken::Machine(Omission::SyncOfClose), "power lost");
}

/// Those of a small store are compared with checksums: only the program that has none finds anything.
#[test]
fn tables_that_change_under_a_clean_superblock_are_found() {
    let broken = Broken::Machine(Omission::NotClean);
    let found: Vec<String> = broken.all_small_find().collect();
    let is_without = |found: &String| found.starts_with(LARGE_FILE);
    assert!(found.len() == 1 && found.iter().all(is_without), "{found:?}");
    let found = broken.large_finds().expect("it goes unnoticed");
    println!("{broken:?}: {found}");
}

/// Checks that the sweeps of small programs find a mistake in what a close of a small store has left out, by
/// power loss.
#[track_caller]
fn check_small(mutant: Mutant) {
    let found = Broken::Engine(mutant).small_finds();
    let found = found.unwrap_or_else(|| panic!("{mutant:?} goes unnoticed"));
    println!("{mutant:?}: {found}");
    assert!(found.contains("power lost") || found.contains("recovered"), "{found}");
}

#[test]
fn an_index_that_changed_under_a_clean_superblock_is_found_by_power_loss() {
    check_small(Mutant::TrustsIndexUnread);
}

/// Returns how many keys a store has that was closed with one, after a power loss has left the second of two
/// later records, and a put has come over the place of the first.
fn keys_over_remains() -> u64 {
    let options = options(7.0);
    let open = |disk: &SimDisk| disk.open(&options).expect("it opens");
    // Longer than a sector, so that a power loss may leave the end without the beginning.
    let put = |db: &Db, key: u8| db.put([key], [7; 600]).expect("there is room");
    let disk = SimDisk::new();
    let db = open(&disk);
    put(&db, 1);
    db.close().expect("nothing fails");
    let disk = disk.lose_power(u64::MAX);
    let db = open(&disk);
    put(&db, 2);
    let end = || db.store().lock().expect("nobody panics").log.position().offset as usize;
    let start = end() / 512 * 512;
    put(&db, 3);
    let left = start..end();
    let mut image = disk.lose_power(0).file();
    image[left.clone()].copy_from_slice(&disk.file()[left]);
    let disk = disk.outcomes().of_image(image);
    let db = open(&disk);
    put(&db, 4);
    open(&disk.kill()).len()
}

#[test]
fn a_log_that_went_on_behind_a_clean_superblock_is_found_by_power_loss() {
    assert_eq!(keys_over_remains(), 2);
    assert_eq!(with(Mutant::TrustsLogUnread, keys_over_remains), 3);
}

#[test]
fn a_superblock_over_the_only_durable_one_is_found_by_power_loss() {
    check_small(Mutant::LosesBothSuperblocks);
}

#[test]
fn tables_called_whole_before_they_are_built_are_found_by_a_crash_during_recovery() {
    check(Broken::Engine(Mutant::WholeBeforeBuilt), "killed: ");
}

#[test]
fn records_believed_without_their_checksum_are_found() {
    check(Broken::Engine(Mutant::AnyChecksum), "");
}

/// The small programs make no checkpoints.
#[track_caller]
fn check_with_checkpoints(broken: Broken) {
    let found = broken.large_finds().unwrap_or_else(|| panic!("{broken:?} goes unnoticed"));
    println!("{broken:?}: {found}");
    assert!(found.contains("power lost"), "{found}");
}

#[test]
fn a_superblock_before_the_checkpoint_that_it_names_is_found_by_power_loss() {
    check_with_checkpoints(Broken::Machine(Omission::SyncOfCheckpoint));
}

#[test]
fn a_log_that_is_replayed_from_behind_its_checkpoint_is_found_by_power_loss() {
    check_with_checkpoints(Broken::Engine(Mutant::ReplaysTooLate));
}

/// Skips each sync of small programs, one at a time, as if the engine had left it out. The sweep
/// must find each (programs with many images or a large file are for the slow mode), except some of the superblock alone: the first change of a store writes it
/// twice, either of which is enough, and one that says "clean" may be missing, since the tables are
/// then built again.
#[test]
fn every_sync_of_log_and_tables_that_is_left_out_is_found_by_power_loss() {
    let (mut found_count, mut spare_count) = (0, 0);
    for (name, fill_factor, ops) in small::programs() {
        if !is_slow() && (MANY_IMAGES.contains(&name) || name == LARGE_FILE) {
            continue;
        }
        for (call, range) in small::syncs(fill_factor, &ops) {
            let disk = SimDisk::new();
            disk.fail_once(call, SimFault::SkippedSync);
            let swept = small::sweep(disk, fill_factor, &ops, u64::MAX);
            match swept {
                Ok(_) => {
                    assert!(
                        range.end <= LIVE_OFFSET,
                        "{name}: nobody misses the sync of {range:?}"
                    );
                    spare_count += 1;
                }
                Err(error) => {
                    assert!(error.contains("power lost"), "{name}: {error}");
                    found_count += 1;
                }
            }
        }
    }
    println!("{found_count} syncs were missed, {spare_count} of the superblock were not");
    assert!(found_count > 20, "{found_count}");
}
