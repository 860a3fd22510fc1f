//! Handles by turns that are closed on a file system which takes no stores through mappings any more:
//! one that has shut down, or btrfs that is full, for which every page that was written back is a new one.
//! A close notes what it can, and causes no signal.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use splitpoint::{Db, Durability, Options, Sharing};

use crate::mounts;
use crate::small_disk::{FileSystem, SmallDisk};
use crate::support::{HANG, end_with_parent};

const CHILD_ENV: &str = "SPLITPOINT_TEST_CLOSES";

/// What happens between the last change and the close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The kernel writes all pages back, then the file system shuts down.
    StopsWritten,
    /// The file system shuts down, then the kernel fails to write pages back.
    StopsUnwritten,
    /// The kernel writes all pages back, and somebody takes all the room.
    Fills,
}

impl Event {
    const ALL: [Self; 3] = [Self::StopsWritten, Self::StopsUnwritten, Self::Fills];
}

fn options() -> Options {
    Options::new().sharing(Sharing::Shared).durability(Durability::Buffered)
}

fn wait_for(note: &Path) {
    let begun = Instant::now();
    while !note.exists() {
        assert!(begun.elapsed() < HANG, "{} does not come", note.display());
        std::thread::yield_now();
    }
}

/// Not a test by itself: the process that the tests below start.
#[test]
fn process_closes_handles_by_turns() {
    let Some(arguments) = std::env::var_os(CHILD_ENV) else { return };
    end_with_parent();
    let arguments = arguments.into_string().expect("our own words");
    let [disk, notes, event] = arguments.split('|').collect::<Vec<_>>()[..] else {
        panic!("not three words: {arguments}")
    };
    let (disk, notes) = (Path::new(disk), Path::new(notes));
    let path = disk.join("a.spt");
    let [idle, last] = [(); 2].map(|()| options().open(&path).unwrap());
    last.put("key", "value").unwrap();
    let (file, directory) = (File::open(&path).unwrap(), File::open(disk).unwrap());
    let write_back = || rustix::fs::syncfs(&directory).unwrap();
    match Event::ALL[event.parse::<usize>().expect("a number")] {
        Event::StopsWritten => {
            write_back();
            mounts::shut_down(disk).unwrap();
        }
        Event::StopsUnwritten => {
            mounts::shut_down(disk).unwrap();
            file.sync_all().unwrap_err();
        }
        Event::Fills => {
            write_back();
            File::create(notes.join("ready")).unwrap();
            wait_for(&notes.join("full"));
        }
    }
    for db in [last, idle] {
        println!("close: {:?}", db.close());
    }
    // Shows the test that this process has run.
    File::create(notes.join("done")).unwrap();
}

/// Runs a process that closes handles after the event, which must end without a signal.
fn close_after(file_system: FileSystem, event: Event) {
    let Some(disk) = SmallDisk::mount(file_system, file_system.kib_min()) else { return };
    let (path, notes) = (disk.path(), disk.outside());
    Db::open(path.join("a.spt")).unwrap().put("before", "value").unwrap();
    let log = notes.join("process.log");
    let output = File::create(&log).unwrap();
    let mut child = Command::new(std::env::current_exe().expect("this program has a path"))
        .args(["--exact", "closes::process_closes_handles_by_turns", "--nocapture"])
        .env(CHILD_ENV, format!("{}|{}|{}", path.display(), notes.display(), event as u8))
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn()
        .expect("this program can be started");
    if event == Event::Fills {
        wait_for(&notes.join("ready"));
        disk.fill(0);
        File::create(notes.join("full")).unwrap();
    }
    let status = child.wait().unwrap();
    let said = fs::read_to_string(log).unwrap();
    println!("{file_system:?}, {event:?}: {status}\n{said}");
    assert!(status.success() && notes.join("done").exists(), "{file_system:?}, {event:?}: {said}");
    if event == Event::Fills {
        disk.make_room();
        let db = options().open(path.join("a.spt")).unwrap();
        assert_eq!(db.get("key").unwrap().unwrap(), "value");
    }
}

#[test]
fn a_close_by_turns_on_a_stopped_file_system_is_no_signal() {
    for file_system in FileSystem::PULLABLE {
        close_after(file_system, Event::StopsWritten);
        close_after(file_system, Event::StopsUnwritten);
    }
}

#[test]
fn a_close_by_turns_on_a_full_disk_is_no_signal() {
    close_after(FileSystem::Btrfs, Event::Fills);
}
