//! Devices that go away and come back within one boot.
//!
//! The file is the same: boot id, device, inode and birth time are equal. But each of its pages is
//! as of its last write-back, and what was only in memory is gone.

use std::path::Path;

use splitpoint::{Create, Db, Durability, Options, Recovery, Sharing};

use crate::series::{Kind, Series};
use crate::small_disk::{FileSystem, SmallDisk};
use crate::support::{Rng, rounds, seed};
use crate::writer::{Job, Levels, Note, Writer, make};

/// Changes before the kernel writes everything back, and from there until the end: this many, or up
/// to twice as many.
const CHANGES: u64 = 1500;
/// Changes afterwards.
const MORE: u64 = 2000;

const PULLABLE: [FileSystem; 2] = FileSystem::PULLABLE;
const ON_DEVICES: [FileSystem; 3] = FileSystem::ON_DEVICES;

/// A file system and a writer's store on it.
struct Scene {
    disk: SmallDisk,
    job: Job,
    rng: Rng,
}

impl Scene {
    fn new(file_system: FileSystem, kind: Kind, seed: u64) -> Option<Self> {
        let disk = SmallDisk::mount(file_system, file_system.kib_min())?;
        let job = Job {
            store: disk.path().join("a.spt"),
            notes: disk.outside(),
            series: Series { kind, seed },
            first: 1,
            levels: Levels::Sync,
        };
        Some(Self { disk, job, rng: Rng::new(seed) })
    }

    /// Runs `check` on each of these file systems.
    fn on_each(file_systems: &[FileSystem], kind: Kind, check: impl Fn(Self)) {
        let mut rng = Rng::new(seed());
        for &file_system in file_systems {
            for _ in 0..rounds(1, 10) {
                let Some(scene) = Self::new(file_system, kind, rng.next()) else { break };
                check(scene);
            }
        }
    }

    /// Starts a writer, and has the kernel write back once while it works.
    fn write(&mut self) -> Writer {
        let mut writer = Writer::start(&self.job);
        writer.wait_until_made(self.job.first + CHANGES + self.rng.below(CHANGES));
        self.disk.write_back();
        let made = writer.note().made;
        writer.wait_until_made(made + CHANGES + self.rng.below(CHANGES));
        writer
    }

    /// Takes the device away while a writer works, and brings it back.
    ///
    /// Only changes that returned before count. A sync that is running when ext4 or XFS shuts down
    /// may return success and have written nothing (Linux 6.18; one in thirty, also without a
    /// store).
    fn write_until_pulled(&mut self) -> Note {
        let writer = self.write();
        let Note { durable, .. } = writer.note();
        self.disk.pull();
        let last = writer.kill();
        self.disk.reattach();
        Note { durable, ..last }
    }

    fn options(&self) -> Options {
        self.job.options().create(Create::Never)
    }

    /// Opens the store under `path`, and checks that every change that returned is there and none
    /// that was never begun; the one in progress may be. Returns the number of changes.
    #[track_caller]
    fn open(&self, options: &Options, path: &Path, note: Note) -> (Db, u64) {
        let db = options.open(path).unwrap();
        let count = self.job.series.assert_prefix(&db, note.durable..=note.made + 1);
        println!("{:?}: {count} changes of {note:?}, {:?}", self.job.series, db.recovery());
        (db, count)
    }

    /// Makes more changes after the first `count`, all of which must be there, also on the disk.
    #[track_caller]
    fn go_on(&self, db: Db, count: u64) {
        let (series, all) = (&self.job.series, count + MORE);
        for number in count + 1..=all {
            make(&db, series, number, Durability::Async).unwrap();
        }
        series.assert_prefix(&db, all..=all);
        db.close().unwrap();
        self.disk.reattach();
        let db = self.options().open(&self.job.store).unwrap();
        assert_eq!(db.recovery(), Recovery::Clean);
        series.assert_prefix(&db, all..=all);
    }
}

/// Loses the device under a writer whose changes are all durable. They are there when it is back,
/// and the tables, whose pages may be of different moments, are not trusted.
fn lose_a_device(mut scene: Scene) {
    let note = scene.write_until_pulled();
    let (db, count) = scene.open(&scene.options(), &scene.job.store, note);
    assert!(matches!(db.recovery(), Recovery::Replayed { .. }), "{:?}", db.recovery());
    scene.go_on(db, count);
}

#[test]
fn new_keys_are_there_when_a_lost_device_is_back() {
    Scene::on_each(&PULLABLE, Kind::Growing, lose_a_device);
}

#[test]
fn overwritten_values_are_the_newest_when_a_lost_device_is_back() {
    Scene::on_each(&PULLABLE, Kind::Overwriting, lose_a_device);
}

#[test]
fn deleted_keys_stay_deleted_when_a_lost_device_is_back() {
    Scene::on_each(&PULLABLE, Kind::Deleting, lose_a_device);
}

#[test]
fn batches_and_big_values_are_whole_when_a_lost_device_is_back() {
    Scene::on_each(&PULLABLE, Kind::Mixed, lose_a_device);
}

#[test]
fn a_device_that_is_lost_again_after_the_recovery_loses_nothing() {
    Scene::on_each(&PULLABLE, Kind::Mixed, |mut scene| {
        let note = scene.write_until_pulled();
        // The next writer opens what the loss left. What it makes again is unchanged.
        scene.job.first = note.durable + 1;
        let note = scene.write_until_pulled();
        let (db, count) = scene.open(&scene.options(), &scene.job.store, note);
        scene.go_on(db, count);
    });
}

#[test]
fn a_lost_device_that_is_back_is_read_as_it_is_recovered() {
    Scene::on_each(&PULLABLE, Kind::Mixed, |mut scene| {
        let note = scene.write_until_pulled();
        let copy = scene.disk.outside().join("copy.spt");
        splitpoint::backup::backup(&scene.job.store, &copy).unwrap();
        let read_only = scene.options().read_only();
        let (db, count) = scene.open(&read_only, &scene.job.store, note);
        drop(db);
        let (_, copied) = scene.open(&read_only, &copy, note);
        assert_eq!(copied, count, "the backup is of what a reader finds");
        let (db, recovered) = scene.open(&scene.options(), &scene.job.store, note);
        assert_eq!(recovered, count, "recovery finds what a reader has found");
        scene.go_on(db, recovered);
    });
}

#[test]
fn a_closed_store_is_clean_on_a_device_that_comes_back() {
    Scene::on_each(&ON_DEVICES, Kind::Mixed, |scene| {
        for is_pulled in [false, true] {
            let path = scene.disk.path().join(format!("{is_pulled}.spt"));
            let db = scene.job.options().open(&path).unwrap();
            let series = &scene.job.series;
            for number in 1..=CHANGES {
                make(&db, series, number, Durability::Buffered).unwrap();
            }
            db.close().unwrap();
            if is_pulled && PULLABLE.contains(&scene.disk.file_system()) {
                scene.disk.pull();
            }
            scene.disk.reattach();
            let db = scene.options().open(&path).unwrap();
            assert_eq!(db.recovery(), Recovery::Clean, "pulled: {is_pulled}");
            series.assert_prefix(&db, CHANGES..=CHANGES);
        }
    });
}

#[test]
fn a_killed_writer_is_taken_over_while_its_file_system_stays() {
    Scene::on_each(&ON_DEVICES, Kind::Mixed, |mut scene| {
        let note = scene.write().kill();
        let (db, count) = scene.open(&scene.options(), &scene.job.store, note);
        assert!(matches!(db.recovery(), Recovery::WarmRestart { .. }), "{:?}", db.recovery());
        scene.go_on(db, count);
    });
}

#[test]
fn a_killed_writer_loses_nothing_when_its_file_system_is_mounted_again() {
    Scene::on_each(&ON_DEVICES, Kind::Mixed, |mut scene| {
        let note = scene.write().kill();
        scene.disk.reattach();
        let (db, count) = scene.open(&scene.options(), &scene.job.store, note);
        scene.go_on(db, count);
    });
}

#[test]
fn a_killed_writer_loses_nothing_when_its_file_system_is_mounted_elsewhere_too() {
    Scene::on_each(&ON_DEVICES, Kind::Mixed, |mut scene| {
        let note = scene.write().kill();
        let count = scene.disk.with_second_mount(|elsewhere| {
            let (db, count) = scene.open(&scene.options(), &elsewhere.join("a.spt"), note);
            db.close().unwrap();
            count
        });
        let db = scene.options().open(&scene.job.store).unwrap();
        assert_eq!(db.recovery(), Recovery::Clean);
        scene.go_on(db, count);
    });
}

/// Each mount has a number of its own, as each container has that shares a directory with others.
#[test]
fn a_killed_writer_is_taken_over_through_another_mount() {
    Scene::on_each(&ON_DEVICES, Kind::Mixed, |mut scene| {
        let note = scene.write().kill();
        scene.disk.with_second_mount(|elsewhere| {
            let (db, _) = scene.open(&scene.options(), &elsewhere.join("a.spt"), note);
            assert!(matches!(db.recovery(), Recovery::WarmRestart { .. }), "{:?}", db.recovery());
        });
    });
}

#[test]
fn handles_of_two_mounts_take_turns_beside_a_reader() {
    Scene::on_each(&ON_DEVICES, Kind::Mixed, |scene| {
        scene.disk.with_second_mount(|elsewhere| {
            for sharing in [Sharing::Shared, Sharing::PerCall] {
                let (options, name) = (Options::new().sharing(sharing), format!("{sharing:?}.spt"));
                let first = options.clone().open(scene.disk.path().join(&name)).unwrap();
                first.put("a", "1").unwrap();
                let path = elsewhere.join(&name);
                let second = options.clone().create(Create::Never).open(&path).unwrap();
                assert_eq!(second.recovery(), Recovery::WarmRestart { records: 0 });
                assert_eq!(second.get("a").unwrap().unwrap(), "1");
                second.put("b", "2").unwrap();
                assert_eq!(first.get("b").unwrap().unwrap(), "2");
                let reader = options.clone().read_only().open(&path).unwrap();
                assert!(first.delete("a").unwrap());
                second.put("c", "3").unwrap();
                for db in [&first, &second, &reader] {
                    assert!(db.get("a").unwrap().is_none(), "{sharing:?}");
                    assert_eq!(db.get("c").unwrap().unwrap(), "3");
                }
            }
        });
    });
}

/// The kernel gives the number of the device that the deleted subvolume had to the next one: boot, device, inode,
/// birth time and mount are the same.
#[test]
fn a_snapshot_of_a_subvolume_in_the_place_of_its_original_is_not_taken_for_it() {
    Scene::on_each(&[FileSystem::Btrfs], Kind::Growing, |mut scene| {
        let [subvolume, snapshot] =
            ["subvolume", "snapshot"].map(|name| scene.disk.path().join(name));
        scene.disk.subvolume("create", &[&subvolume]);
        scene.job.store = subvolume.join("a.spt");
        let writer = scene.write();
        let Note { durable, .. } = writer.note();
        scene.disk.subvolume("snapshot", &[&subvolume, &snapshot]);
        let note = Note { durable, ..writer.kill() };
        scene.disk.subvolume("delete", &[&subvolume]);
        // The kernel deletes it after a commit.
        scene.disk.write_back();
        scene.disk.subvolume("sync", &[&scene.disk.path()]);
        scene.disk.subvolume("snapshot", &[&snapshot, &subvolume]);
        let (db, count) = scene.open(&scene.options(), &scene.job.store, note);
        assert!(matches!(db.recovery(), Recovery::Replayed { .. }), "{:?}", db.recovery());
        scene.go_on(db, count);
    });
}
