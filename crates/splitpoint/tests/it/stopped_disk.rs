//! File systems that shut down under an open store, as ext4 and XFS do when their device fails.
//!
//! On XFS a store through a mapping to a clean page then raises SIGBUS instead of returning an
//! error; on ext4 it succeeds. No process can foresee that. But once a call has failed, the process
//! must not get the signal any more, and a durable change is written by a call that can fail.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use splitpoint::{Create, Db, Durability, ErrorKind, Options};

use crate::mounts;
use crate::series::{Kind, Series};
use crate::small_disk::{FileSystem, SmallDisk};
use crate::support::{HANG, Rng, end_with_parent, rounds, seed, tiny_with_whole_log};
use crate::writer::make;

const CHILD_ENV: &str = "SPLITPOINT_TEST_STOPPED_DISK";
/// Changes before the file system shuts down. All but the last are durable.
const BEFORE: u64 = 2000;
/// How many of them the handle makes that is open then.
const BEFORE_BY_HANDLE: u64 = 200;
/// Calls of each kind once one has failed.
const CALLS_AFTER: u64 = 100;
const SIGBUS: i32 = 7;

/// What a process does after its file system has shut down, until a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Sync,
    PutSync,
    PutAsync,
    PutBuffered,
    /// Reads all keys, then syncs.
    Get,
}

impl First {
    const ALL: [Self; 5] =
        [Self::Sync, Self::PutSync, Self::PutAsync, Self::PutBuffered, Self::Get];
}

/// What the process does, and where.
#[derive(Clone, Debug)]
struct Job {
    disk: PathBuf,
    /// A directory of another file system.
    notes: PathBuf,
    series: Series,
    first: First,
    /// Whether the kernel has written back all pages before: the next store to each is a fault.
    is_written_back: bool,
    /// Microseconds from the last change until another thread stops the file system; 0 if it stops
    /// between two calls.
    stop_after_us: u64,
}

impl Job {
    fn encode(&self) -> String {
        let Self { disk, notes, series, first, is_written_back, stop_after_us } = self;
        let (disk, notes) = (disk.display(), notes.display());
        let (seed, first, is_written_back) =
            (series.seed, *first as u8, u8::from(*is_written_back));
        format!("{disk}|{notes}|{seed}|{first}|{is_written_back}|{stop_after_us}")
    }

    fn decode(text: &str) -> Self {
        let [disk, notes, seed, first, is_written_back, stop_after_us] =
            text.split('|').collect::<Vec<_>>()[..]
        else {
            panic!("not six words: {text}")
        };
        let number = |text: &str| text.parse::<u64>().expect("a number");
        Self {
            disk: disk.into(),
            notes: notes.into(),
            series: Series { kind: Kind::Small, seed: number(seed) },
            first: First::ALL[number(first) as usize],
            is_written_back: number(is_written_back) == 1,
            stop_after_us: number(stop_after_us),
        }
    }

    /// Without compaction, which asks for checkpoints: see [`run`](Self::run).
    fn options() -> Options {
        tiny_with_whole_log()
    }

    fn store(&self) -> PathBuf {
        self.disk.join("a.spt")
    }

    fn note(&self, name: &str) -> PathBuf {
        self.notes.join(name)
    }

    fn run(&self) {
        let db = Self::options().open(self.store()).unwrap();
        let by_handle = BEFORE - BEFORE_BY_HANDLE..BEFORE;
        for number in 1..by_handle.start {
            make(&db, &self.series, number, Durability::Async).unwrap();
        }
        // Its threads end with it. On a busy machine one may be at a sync or a checkpoint when the file system
        // stops, and store to a page before any call has failed.
        db.close().unwrap();
        let db = Self::options().open(self.store()).unwrap();
        for number in by_handle {
            let is_last = number == BEFORE - 1;
            let level = if is_last { Durability::Sync } else { Durability::Buffered };
            make(&db, &self.series, number, level).unwrap();
        }
        if self.is_written_back {
            rustix::fs::syncfs(File::open(&self.disk).unwrap()).unwrap();
        }
        if matches!(self.first, First::Sync | First::Get) {
            // Otherwise a sync has nothing to do, and nothing fails.
            make(&db, &self.series, BEFORE, Durability::Async).unwrap();
        }
        std::thread::scope(|scope| {
            let stop = || {
                std::thread::sleep(Duration::from_micros(self.stop_after_us));
                mounts::shut_down(&self.disk).unwrap();
            };
            if self.stop_after_us == 0 {
                stop();
            } else {
                scope.spawn(stop);
            }
            self.call_until_one_fails(&db);
        });
        File::create(self.note("failed")).unwrap();
        self.call_everything(&db);
        println!("close: {:?}", db.close());
    }

    fn call_until_one_fails(&self, db: &Db) {
        let begun = Instant::now();
        let (error, count) = (1..)
            .find_map(|count| {
                assert!(begun.elapsed() < HANG, "{count} calls and none fails");
                self.call(db, count).err().map(|error| (error, count))
            })
            .expect("there are enough numbers");
        println!("call {count} fails: {error}");
        assert!(is_failure(error.kind()), "{error}");
    }

    /// Makes call `count` after the change with which the file system stops.
    fn call(&self, db: &Db, count: u64) -> splitpoint::Result<()> {
        let number = BEFORE - 1 + count;
        match self.first {
            First::Sync => db.sync(),
            First::PutSync => make(db, &self.series, number, Durability::Sync),
            First::PutAsync => make(db, &self.series, number, Durability::Async),
            First::PutBuffered => make(db, &self.series, number, Durability::Buffered),
            First::Get if count > BEFORE => db.sync(),
            First::Get => {
                let (key, _) = &self.series.change(count)[0];
                db.get(key).map(drop)
            }
        }
    }

    /// Makes calls of all kinds. Nothing can be made durable any more. Reads go on.
    fn call_everything(&self, db: &Db) {
        for number in 1..=CALLS_AFTER {
            let (key, _) = &self.series.change(number)[0];
            for level in [Durability::Async, Durability::Buffered, Durability::Sync] {
                for result in
                    [db.put_with(key, b"value", level), db.delete_with(key, level).map(drop)]
                {
                    match result {
                        Ok(()) => assert!(level != Durability::Sync, "change {number} is durable"),
                        Err(error) => assert!(is_failure(error.kind()), "{level:?}: {error}"),
                    }
                    db.get(key).unwrap();
                }
            }
            if let Err(error) = db.sync() {
                assert!(is_failure(error.kind()), "{error}");
            }
        }
    }
}

fn is_failure(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Io | ErrorKind::Poisoned)
}

/// Not a test by itself: the process that the tests below start.
#[test]
fn process_goes_on_after_its_file_system_has_stopped() {
    let Some(arguments) = std::env::var_os(CHILD_ENV) else { return };
    end_with_parent();
    let job = Job::decode(&arguments.into_string().expect("our own words"));
    job.run();
    // Shows the test that this process has run.
    File::create(job.note("done")).unwrap();
}

/// Runs a process over a file system that shuts down. Once a call has failed, no signal may end the
/// process, and before that only if `is_signal_allowed`. Everything durable is there when the file
/// system is mounted again. Returns whether file systems can be mounted.
#[track_caller]
fn stop_under(
    file_system: FileSystem,
    first: First,
    is_written_back: bool,
    stop_after_us: u64,
    is_signal_allowed: bool,
) -> bool {
    let Some(disk) = SmallDisk::mount(file_system, file_system.kib_min()) else { return false };
    let series = Series { kind: Kind::Small, seed: seed() };
    let (path, notes) = (disk.path(), disk.outside());
    let job = Job { disk: path, notes, series, first, is_written_back, stop_after_us };
    let log = job.note("process.log");
    let output = File::create(&log).unwrap();
    let status = Command::new(std::env::current_exe().expect("this program has a path"))
        .args(["--exact", "stopped_disk::process_goes_on_after_its_file_system_has_stopped"])
        .arg("--nocapture")
        .env(CHILD_ENV, job.encode())
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .status()
        .expect("this program can be started");
    let has_failed = job.note("failed").exists();
    let said = fs::read_to_string(log).unwrap();
    println!("{file_system:?}, {job:?}: {status}, a call had failed: {has_failed}\n{said}");
    if status.signal() == Some(SIGBUS) && is_signal_allowed {
        assert!(!has_failed, "{file_system:?}, {job:?}: {status} after a call had failed");
    } else {
        assert!(status.success(), "{file_system:?}, {job:?}: {status}: {said}");
        assert!(job.note("done").exists(), "{said}");
    }

    disk.reattach();
    let db = Job::options().create(Create::Never).open(job.store()).unwrap();
    job.series.assert_prefix(&db, BEFORE - 1..=BEFORE + (1 << 20));
    true
}

/// Runs `check` on each file system that can shut down, with the pages of the store dirty and
/// clean.
fn on_each(check: impl Fn(FileSystem, bool) -> bool) {
    for file_system in FileSystem::PULLABLE {
        let _ = [false, true].iter().all(|&is_written_back| check(file_system, is_written_back));
    }
}

#[test]
fn a_durable_change_on_a_stopped_file_system_is_refused_without_a_signal() {
    on_each(|file_system, is_written_back| {
        stop_under(file_system, First::PutSync, is_written_back, 0, false)
    });
}

#[test]
fn a_sync_on_a_stopped_file_system_is_refused_without_a_signal() {
    on_each(|file_system, is_written_back| {
        stop_under(file_system, First::Sync, is_written_back, 0, false)
    });
}

#[test]
fn a_stopped_file_system_leaves_reads_as_they_were() {
    on_each(|file_system, is_written_back| {
        stop_under(file_system, First::Get, is_written_back, 0, false)
    });
}

#[test]
fn changes_that_nobody_waits_for_meet_no_signal_once_a_call_has_failed() {
    on_each(|file_system, is_written_back| {
        [First::PutAsync, First::PutBuffered]
            .iter()
            .all(|&first| stop_under(file_system, first, is_written_back, 0, true))
    });
}

#[test]
fn a_file_system_that_stops_at_any_moment_is_no_signal_once_a_call_has_failed() {
    let mut rng = Rng::new(seed());
    for _ in 0..rounds(2, 50) {
        for first in [First::PutSync, First::PutAsync, First::PutBuffered] {
            let stop_after_us = 1 + rng.below(3000);
            on_each(|file_system, is_written_back| {
                stop_under(file_system, first, is_written_back, stop_after_us, true)
            });
        }
    }
}
