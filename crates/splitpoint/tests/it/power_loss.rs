//! Power losses under a real file system, each built from the log of what reached its device.
//!
//! A writer makes changes of all levels on ext4 or XFS, over a device that records every write and
//! flush in order, and notes the length of that record after each call. Then the power is lost at
//! many moments: an image of the device has everything that was written before the last flush, and
//! any part of what came after it. The image is mounted, which replays the journal of the file
//! system, and the store on it must hold a prefix of the changes with all that were durable by
//! then.

mod logged_disk;
mod logged_file;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use splitpoint::{Create, Durability, Recovery};

use crate::series::{Kind, Series};
use crate::small_disk::{FileSystem, unmount};
use crate::support::{Rng, end_with_parent, rounds, seed};
use crate::writer::{Job, Levels, Note, Writer, make, notes};
use logged_disk::{LoggedDisk, SERVER_ENV, Survivors, blocks};
use logged_file::{Event, Log};

/// Changes of a writer.
const CHANGES: u64 = 800;
/// Changes after a power loss.
const MORE: u64 = 200;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Not a test by itself: the process that serves the device of a test.
#[test]
fn process_serves_a_logged_device() {
    let Some(arguments) = std::env::var_os(SERVER_ENV) else { return };
    end_with_parent();
    let arguments = arguments.into_string().expect("our own words");
    let [directory, content, log] = arguments.split('|').collect::<Vec<_>>()[..] else {
        panic!("not three words: {arguments}")
    };
    logged_file::serve(Path::new(directory), Path::new(content), Path::new(log)).unwrap();
}

/// The work of a writer on a logged device, after its end.
struct Run {
    disk: LoggedDisk,
    job: Job,
    notes: Vec<Note>,
    log: Log,
}

impl Run {
    /// Runs a writer; `None` if nothing can be mounted.
    fn new(file_system: FileSystem, kind: Kind, rng: &mut Rng) -> Option<Self> {
        let mut disk = LoggedDisk::mount(file_system)?;
        let job = Job {
            store: disk.path().join("a.spt"),
            notes: disk.memory(),
            series: Series { kind, seed: rng.next() },
            first: 1,
            levels: Levels::Mixed,
        };
        let mut writer = Writer::start(&job);
        for part in 1..=4 {
            writer.wait_until_made(part * CHANGES / 4 - rng.below(CHANGES / 8));
            // Gives the tables pages of many moments on the device.
            disk.write_back();
        }
        writer.wait_until_made(CHANGES);
        writer.kill();
        let is_direct = disk.is_direct();
        let log = disk.end();
        let notes = notes(&job);
        let flush_count = log.events().filter(|(event, _)| *event == Event::Flush).count();
        println!(
            "{file_system:?}, {:?}: {} changes, {} writes and flushes, {flush_count} flushes, \
             direct: {is_direct}",
            job.series,
            notes.last().expect("there were changes").made,
            log.events().count(),
        );
        Some(Self { disk, job, notes, log })
    }

    /// Returns a moment for a power loss: just after a call has returned, just before a flush ends,
    /// or any.
    fn moment(&self, rng: &mut Rng) -> u64 {
        let from = self.notes[0].device_position;
        let after = || self.log.events().skip_while(|(_, end)| *end < from);
        let moments: Vec<u64> = match rng.below(3) {
            0 => self.notes.iter().map(|note| note.device_position).collect(),
            1 => {
                let pairs = after().zip(after().skip(1));
                let before_flushes = pairs.filter(|(_, (next, _))| *next == Event::Flush);
                before_flushes.map(|((_, end), _)| end).collect()
            }
            _ => after().map(|(_, end)| end).collect(),
        };
        moments[rng.index(moments.len())]
    }

    /// Returns how many changes were durable at a moment, and how many may have been made.
    fn counts_at(&self, position: u64) -> (u64, u64) {
        let returned = self.notes.partition_point(|note| note.device_position <= position);
        let durable = self.notes[..returned].last().map_or(0, |note| note.durable);
        // The next call may have been in progress.
        let last = self.notes.get(returned).or(self.notes.last());
        (durable, last.map_or(0, |note| note.made + 1))
    }

    /// Loses the power at a moment, and opens the store.
    fn lose_power(&self, position: u64, survivors: Survivors, boot: Boot, rng: &mut Rng) {
        let (durable, made) = self.counts_at(position);
        println!("at {position}, {survivors:?}, {boot:?}: {durable} of {made} are durable");
        let image = self.disk.write_image(&self.log, position, survivors, rng);
        self.disk.with_image(&image, |directory| {
            let store = directory.join("a.spt");
            boot.during(&self.disk.memory(), || self.open_and_go_on(&store, durable, made));
        });
    }

    fn open_and_go_on(&self, store: &Path, durable: u64, made: u64) {
        let series = &self.job.series;
        // Before the first durable change there may be no store.
        let is_there = durable > 0;
        let create = if is_there { Create::Never } else { Create::IfMissing };
        let options = self.job.options().create(create);
        let read = is_there.then(|| {
            let db = options.clone().read_only().open(store).unwrap();
            series.assert_prefix(&db, durable..=made)
        });
        let db = options.open(store).unwrap();
        let count = series.assert_prefix(&db, durable..=made);
        println!("  {count} are there: {:?}", db.recovery());
        assert_eq!(count, read.unwrap_or(count), "recovery finds what a reader has found");
        let all = count + MORE;
        for number in count + 1..=all {
            make(&db, series, number, Durability::Async).unwrap();
        }
        db.close().unwrap();
        let db = options.open(store).unwrap();
        assert_eq!(db.recovery(), Recovery::Clean);
        series.assert_prefix(&db, all..=all);
    }
}

/// Whether the machine has lost its power, or only its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Boot {
    Other,
    Same,
}

impl Boot {
    /// Runs `what` on what appears to be this boot of the machine.
    fn during(self, directory: &Path, what: impl FnOnce()) {
        if self == Self::Same {
            return what();
        }
        let id = directory.join("boot_id");
        fs::write(&id, "8d1c0d3e-1991-4b1d-8a5e-0123456789ab\n").unwrap();
        rustix::mount::mount_bind(&id, BOOT_ID).unwrap();
        what();
        unmount(Path::new(BOOT_ID));
    }
}

/// Runs writers of every kind on each file system, and loses the power of each many times.
fn lose_power(boot: Boot) {
    let mut rng = Rng::new(seed());
    for file_system in FileSystem::PULLABLE {
        for kind in [Kind::Mixed, Kind::Small, Kind::Deleting, Kind::Growing, Kind::Overwriting]
            .into_iter()
            .take(rounds(1, 5) as usize)
        {
            let Some(run) = Run::new(file_system, kind, &mut rng) else { break };
            for survivors in Survivors::ALL.into_iter().cycle().take(rounds(5, 40) as usize) {
                let position = run.moment(&mut rng);
                run.lose_power(position, survivors, boot, &mut rng);
            }
        }
    }
}

#[test]
fn a_power_loss_leaves_a_prefix_with_all_durable_changes() {
    lose_power(Boot::Other);
}

#[test]
fn a_power_loss_of_the_device_alone_leaves_a_prefix_with_all_durable_changes() {
    lose_power(Boot::Same);
}

/// The log is complete: replayed, it equals the device.
#[test]
fn the_log_of_a_device_played_back_is_the_device() {
    let mut rng = Rng::new(seed());
    for file_system in FileSystem::PULLABLE {
        let Some(run) = Run::new(file_system, Kind::Small, &mut rng) else { break };
        let end = run.log.events().last().expect("there were changes").1;
        let image = run.disk.write_image(&run.log, end, Survivors::All, &mut rng);
        assert!(blocks(&image) == blocks(&run.disk.memory().join("content")));
    }
}

/// Shows that the check of the tests above fails: on a device that has lost what it had flushed.
#[test]
fn a_power_loss_that_takes_flushed_writes_is_noticed() {
    let mut rng = Rng::new(seed());
    let Some(run) = Run::new(FileSystem::Ext4, Kind::Growing, &mut rng) else { return };
    let durable = run.notes.last().expect("there were changes").durable;
    let before = run.notes.iter().rfind(|note| note.durable < durable).expect("several syncs");
    let (_, made) = run.counts_at(before.device_position);
    let image = run.disk.write_image(&run.log, before.device_position, Survivors::All, &mut rng);
    run.disk.with_image(&image, |directory| {
        let store = directory.join("a.spt");
        let check = || run.open_and_go_on(&store, made + 1, made + 2);
        let panic = catch_unwind(AssertUnwindSafe(check)).expect_err("a change is missing");
        let message = panic.downcast::<String>().expect("a message");
        assert!(message.starts_with("not what the first"), "{message}");
    });
}
