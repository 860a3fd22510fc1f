//! Files that share or lack blocks, on disks that are full: copies with holes, reflink copies,
//! snapshots, and every file of a file system that never writes in place.
//!
//! A store through a mapping that finds no room raises SIGBUS, which ends the process. A change
//! must return an error instead.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use splitpoint::{Create, Durability, Error, Options, Recovery};

use crate::series::{Kind, Series};
use crate::small_disk::{FileSystem, SmallDisk};
use crate::support::{
    Content, HANG, Rng, assert_content, content, end_with_parent, is_slow, seed, tiny,
};
use crate::writer::make;

const CHILD_ENV: &str = "SPLITPOINT_TEST_FULL_COPY";
/// Changes that a store has before it is copied.
const BEFORE: u64 = 600;
/// Changes before the disk fills up under an open store.
const WHILE_OPEN: u64 = 10;
/// Number of refused changes after which no record fits.
const REFUSALS: u64 = 500;
/// Changes once there is room again.
const AFTER: u64 = 1000;
/// Bytes left on the disk.
const LEFT_BYTES: u64 = 128 << 10;
const ENOSPC: i32 = 28;

/// The origin of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// The store has written all its blocks.
    Written,
    /// A copy without the blocks of zeros, as `cp --sparse=always` and `rsync -S` make it.
    Sparse,
    /// A copy that shares all blocks with its original.
    Reflink,
}

/// When the disk fills up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filled {
    BeforeOpening,
    WhileOpen,
}

/// Makes `copy` of the closed store in `original`.
fn copy_file(origin: Origin, original: &Path, copy: &Path) {
    match origin {
        Origin::Written => fs::rename(original, copy).unwrap(),
        Origin::Sparse => copy_without_zeros(original, copy),
        Origin::Reflink => {
            run(Command::new("cp").arg("--reflink=always").args([original, copy]));
        }
    }
}

fn copy_without_zeros(original: &Path, copy: &Path) {
    let bytes = fs::read(original).unwrap();
    let copy = File::create_new(copy).unwrap();
    copy.set_len(bytes.len() as u64).unwrap();
    let mut hole_count = 0;
    for (at, block) in (0..).step_by(4096).zip(bytes.chunks(4096)) {
        if block.iter().all(|&byte| byte == 0) {
            hole_count += 1;
        } else {
            copy.write_all_at(block, at).unwrap();
        }
    }
    copy.sync_all().unwrap();
    assert!(hole_count > 100, "{hole_count} holes");
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The task of the process, and its paths.
#[derive(Clone, Debug)]
struct Job {
    store: PathBuf,
    /// A directory where there is room.
    notes: PathBuf,
    series: Series,
    /// Whether the log has the smallest segments that there are.
    is_tiny: bool,
    filled: Filled,
}

impl Job {
    fn encode(&self) -> String {
        let Self { store, notes, series: Series { seed, .. }, is_tiny, filled } = self;
        let (store, notes, filled) = (store.display(), notes.display(), *filled as u8);
        format!("{store}|{notes}|{seed}|{is_tiny}|{filled}")
    }

    fn decode(text: &str) -> Self {
        let [store, notes, seed, is_tiny, filled] = text.split('|').collect::<Vec<_>>()[..] else {
            panic!("not five words: {text}")
        };
        Self {
            store: store.into(),
            notes: notes.into(),
            series: Series { kind: Kind::Small, seed: seed.parse().expect("a number") },
            is_tiny: is_tiny == "true",
            filled: if filled == "0" { Filled::BeforeOpening } else { Filled::WhileOpen },
        }
    }

    /// Most of the buckets have never been used.
    fn options(&self) -> Options {
        let options = if self.is_tiny { tiny() } else { Options::new() };
        options.expected_records(400_000)
    }

    fn existing(&self) -> Options {
        self.options().create(Create::Never)
    }

    fn level(number: u64) -> Durability {
        match Rng::new(number).below(16) {
            0 => Durability::Sync,
            1..8 => Durability::Async,
            _ => Durability::Buffered,
        }
    }

    fn note(&self, name: &str) -> PathBuf {
        self.notes.join(name)
    }

    /// Returns what the store must hold: its earlier contents, and each change that the process
    /// noted as returned.
    fn expected(&self) -> Content {
        let mut content = self.series.content_after(BEFORE);
        for number in self.noted("acknowledged") {
            self.series.apply(&mut content, number);
        }
        content
    }

    fn noted(&self, name: &str) -> Vec<u64> {
        let noted = fs::read(self.note(name)).unwrap_or_default();
        let number = |bytes: &[u8]| u64::from_le_bytes(*bytes.first_chunk().expect("8 bytes"));
        noted.chunks_exact(8).map(number).collect()
    }

    /// Changes the store until no change fits. Every refusal names the reason, and a refused change
    /// has no effect.
    fn change_until_refused(&self) {
        let db = match self.existing().open(&self.store) {
            Ok(db) => db,
            Err(error) => {
                self.assert_full(&error);
                println!("opening is refused");
                let db = self.existing().read_only().open(&self.store).unwrap();
                assert_content(&db, &self.expected());
                return;
            }
        };
        let begun = File::create(self.note("begun")).unwrap();
        let mut acknowledged = File::create(self.note("acknowledged")).unwrap();
        let (mut refused, mut number) = (0, BEFORE);
        while refused < REFUSALS {
            if number == BEFORE + WHILE_OPEN && self.filled == Filled::WhileOpen {
                db.sync().unwrap();
                File::create(self.note("opened")).unwrap();
                wait_until(|| self.note("filled").exists());
            }
            number += 1;
            begun.write_all_at(&number.to_le_bytes(), 0).unwrap();
            match make(&db, &self.series, number, Self::level(number)) {
                Ok(()) => acknowledged.write_all(&number.to_le_bytes()).unwrap(),
                Err(error) => {
                    self.assert_full(&error);
                    refused += 1;
                }
            }
        }
        let expected = self.expected();
        assert_content(&db, &expected);
        for ended in [db.sync(), db.close().map(drop)] {
            if let Err(error) = ended {
                self.assert_full(&error);
                println!("{error}");
            }
        }
        let made = self.noted("acknowledged").len();
        println!("{made} of {} changes, {} keys", number - BEFORE, expected.len());
    }

    /// Checks that an error names the file and says that the disk is full.
    #[track_caller]
    fn assert_full(&self, error: &Error) {
        let Error::Io { source, .. } = error else { panic!("{error:?}") };
        assert_eq!(source.raw_os_error(), Some(ENOSPC), "{error}: {source}");
        assert!(error.to_string().contains(&*self.store.to_string_lossy()), "{error}");
    }
}

fn wait_until(is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < HANG, "nothing happens");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Not a test by itself: the process that the tests below start.
#[test]
fn process_changes_a_store_until_it_is_refused() {
    let Some(arguments) = std::env::var_os(CHILD_ENV) else { return };
    end_with_parent();
    let job = Job::decode(&arguments.into_string().expect("our own words"));
    job.change_until_refused();
    // Shows the test that this process has run.
    File::create(job.note("done")).unwrap();
}

/// A store on a separate disk.
struct Scene {
    disk: SmallDisk,
    job: Job,
}

impl Scene {
    /// Creates and closes a store, then turns it into a file of this origin.
    fn new(file_system: FileSystem, origin: Origin, is_tiny: bool, filled: Filled) -> Option<Self> {
        let disk = SmallDisk::mount(file_system, file_system.kib_min())?;
        let job = Job {
            store: disk.path().join("copy.spt"),
            notes: disk.outside(),
            series: Series { kind: Kind::Small, seed: seed() },
            is_tiny,
            filled,
        };
        let original = disk.path().join("original.spt");
        let db = job.options().open(&original).unwrap();
        for number in 1..=BEFORE {
            make(&db, &job.series, number, Durability::Buffered).unwrap();
        }
        db.close().unwrap();
        copy_file(origin, &original, &job.store);
        disk.reattach();
        Some(Self { disk, job })
    }

    /// Runs a process that changes the store while the disk fills up, after `before_full`. Returns
    /// its exit status and its output.
    fn change_until_refused(&self, before_full: impl FnOnce(&Self)) -> (ExitStatus, String) {
        let fill = || {
            before_full(self);
            self.disk.fill(LEFT_BYTES);
        };
        let mut fill = Some(fill);
        if self.job.filled == Filled::BeforeOpening {
            fill.take().expect("not yet called")();
        }
        let log = self.job.note("process.log");
        let output = File::create(&log).unwrap();
        let mut child = Command::new(std::env::current_exe().expect("this program has a path"))
            .args(["--exact", "full_copy::process_changes_a_store_until_it_is_refused"])
            .arg("--nocapture")
            .env(CHILD_ENV, self.job.encode())
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .expect("this program can be started");
        if let Some(fill) = fill {
            wait_until(|| self.job.note("opened").exists());
            fill();
            File::create(self.job.note("filled")).unwrap();
        }
        let status = child.wait().unwrap();
        (status, fs::read_to_string(log).unwrap())
    }

    /// Checks that the full disk has every change that returned and nothing else, then the same on
    /// a disk with room, where changes succeed again.
    fn assert_whole_and_go_on(&self) {
        let Self { disk, job } = self;
        disk.reattach();
        let expected = job.expected();
        let db = job.existing().read_only().open(&job.store).unwrap();
        assert_content(&db, &expected);
        drop(db);
        disk.make_room();
        self.go_on(expected);
    }

    /// Makes changes of a store with this content.
    fn go_on(&self, mut expected: Content) {
        let Self { disk, job } = self;
        let db = job.existing().open(&job.store).unwrap();
        assert_content(&db, &expected);
        for number in 1..=AFTER {
            make(&db, &job.series, number, Job::level(number)).unwrap();
            job.series.apply(&mut expected, number);
        }
        assert_content(&db, &expected);
        db.close().unwrap();
        disk.reattach();
        let db = job.existing().open(&job.store).unwrap();
        assert_eq!(db.recovery(), Recovery::Clean);
        assert_content(&db, &expected);
    }
}

/// Fills the disk under files of one origin, with logs in small and in usual segments.
fn fill_under(file_systems: &[FileSystem], origin: Origin) {
    let mut failures = Vec::new();
    for &file_system in file_systems {
        for (filled, is_tiny) in [
            (Filled::BeforeOpening, true),
            (Filled::WhileOpen, false),
            (Filled::BeforeOpening, false),
            (Filled::WhileOpen, true),
        ]
        .into_iter()
        .take(if is_slow() { 4 } else { 2 })
        {
            let Some(scene) = Scene::new(file_system, origin, is_tiny, filled) else { break };
            let (status, said) = scene.change_until_refused(|_| {});
            let at = format!("{file_system:?}, {origin:?}, {filled:?}, tiny: {is_tiny}: {status}");
            println!("{at}\n{said}");
            if status.success() {
                assert!(scene.job.note("done").exists(), "{said}");
                scene.assert_whole_and_go_on();
            } else {
                failures.push(at);
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn a_store_on_a_full_disk_gets_an_error_and_no_signal() {
    fill_under(&[FileSystem::Ext4, FileSystem::Xfs], Origin::Written);
}

#[test]
fn a_copy_with_holes_on_a_full_disk_gets_an_error_and_no_signal() {
    fill_under(&[FileSystem::Ext4, FileSystem::Xfs], Origin::Sparse);
}

#[test]
fn a_reflink_copy_on_a_full_disk_gets_an_error_and_no_signal() {
    fill_under(&[FileSystem::Xfs, FileSystem::Btrfs], Origin::Reflink);
}

#[test]
fn a_store_on_a_full_btrfs_gets_an_error_and_no_signal() {
    fill_under(&[FileSystem::Btrfs], Origin::Written);
}

#[test]
fn a_copy_with_holes_on_a_full_btrfs_gets_an_error_and_no_signal() {
    fill_under(&[FileSystem::Btrfs], Origin::Sparse);
}

/// Takes a snapshot of an open store, fills the disk, and changes the store: each of its blocks
/// that is written needs a new one. However that ends, every change that returned is there, and the
/// snapshot holds what was durable.
fn take_a_snapshot(file_system: FileSystem, take: impl Fn(&SmallDisk, &Path) -> PathBuf) {
    let origin = Origin::Written;
    let Some(scene) = Scene::new(file_system, origin, false, Filled::WhileOpen) else { return };
    let taken = std::cell::OnceCell::new();
    let (status, said) = scene.change_until_refused(|scene| {
        let snapshot = take(&scene.disk, &scene.job.store);
        taken.set((snapshot, scene.job.expected())).expect("there is one snapshot");
    });
    println!("{file_system:?}: {status}\n{said}");
    let Scene { disk, job } = &scene;
    disk.make_room();
    // XFS frees the blocks of removed files in the background; mounting completes that.
    disk.reattach();
    let (snapshot, expected) = taken.get().expect("the snapshot was taken");
    // A read-only handle needs no blocks.
    assert_content(&job.existing().read_only().open(snapshot).unwrap(), expected);

    let mut expected = job.expected();
    let db = job.existing().open(&job.store).unwrap();
    if content(&db) != expected {
        // The change in progress when the signal came.
        job.series.apply(&mut expected, job.noted("begun")[0]);
    }
    drop(db);
    scene.go_on(expected);
}

#[test]
fn a_reflink_snapshot_of_an_open_store_on_a_full_disk_loses_nothing() {
    for file_system in [FileSystem::Xfs, FileSystem::Btrfs] {
        take_a_snapshot(file_system, |disk, store| {
            let snapshot = disk.path().join("snapshot.spt");
            copy_file(Origin::Reflink, store, &snapshot);
            snapshot
        });
    }
}

#[test]
fn a_btrfs_snapshot_of_an_open_store_on_a_full_disk_loses_nothing() {
    take_a_snapshot(FileSystem::Btrfs, |disk, store| {
        let snapshot = disk.path().join("snapshot");
        run(Command::new("btrfs").args(["subvolume", "snapshot"]).args([&disk.path(), &snapshot]));
        snapshot.join(store.file_name().expect("the store has a name"))
    });
}
