//! Finds out, for messages, who has a file locked.
//!
//! The kernel says whether a byte is locked, and which process has locked the whole file
//! (`/proc/locks`). For a lock of an open file description it names no process; those come from the
//! words that a writer leaves in the live header and a reader in its place of the reader table.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::time::Duration;

use super::Storage;
use super::byte_locks::{self, LockByte};
use super::neighbours::Neighbours;
use super::reader_table::{since_boot, taken_places};
use crate::error::Error;
use crate::format::{INODE_OFFSET, PID_OFFSET, u64_at};
use crate::holder::{Holder, HolderRole};
use crate::options::{Access, Options, Sharing};

/// Returns the error of a handle that was refused at a file, of which this process has another description.
pub(crate) fn locked(path: &Path, file: &File) -> Error {
    Error::Locked { path: path.to_path_buf(), holders: holders_of(file, false) }
}

/// Returns the error of a handle that is refused because others are there at all.
pub(super) fn locked_by_all(path: &Path, file: &File) -> Error {
    Error::Locked { path: path.to_path_buf(), holders: holders_of(file, true) }
}

/// Returns the error of an open that was refused. The description has no lock, so what the kernel does not
/// list is tried: on some file systems it names devices in another way.
pub(super) fn refused(path: &Path, file: &File, options: &Options) -> Error {
    if options.sharing == Sharing::Exclusive {
        return locked_by_all(path, file);
    }
    let mut holders = holders_of(file, false);
    let is_shared = || Neighbours::is_in_use(file) && Neighbours::is_open_to_turns(file);
    if options.access == Access::ReadWrite && is_shared() {
        let is_locked = || byte_locks::is_locked(file, LockByte::WRITER).unwrap_or(true);
        match holders.first_mut() {
            // One for its session has all of the file locked.
            Some(first) if first.role == HolderRole::Writer => first.role = HolderRole::TakesTurns,
            None if !is_locked() => holders.push(Holder::new(HolderRole::TakesTurns, None, None)),
            _ => {}
        }
    }
    Error::Locked { path: path.to_path_buf(), holders }
}

/// Returns the error of an open handle that is refused something.
pub(crate) fn locked_storage(storage: &dyn Storage) -> Error {
    let holders = if let Some(neighbours) = storage.neighbours() {
        neighbours.holders()
    } else {
        writer_in(&storage.read(PID_OFFSET, 8)).into_iter().collect()
    };
    Error::Locked { path: storage.path().to_path_buf(), holders }
}

/// Returns all holders of locks on the file, for the error message of a program to which a lock of
/// its own on this description was refused.
pub fn holders(file: &File) -> Vec<Holder> {
    holders_of(file, true)
}

/// Returns the holders of locks on the file: the writer, or else those that keep writers out.
/// Includes readers if `are_all`, or if no other holder is in the way.
pub(super) fn holders_of(file: &File, are_all: bool) -> Vec<Holder> {
    let lockers = whole_locks(file);
    let mut holders = Vec::new();
    if Neighbours::is_being_written(file) || Neighbours::is_being_opened(file) {
        let named = writer_word(file).and_then(|word| writer_in(&word));
        // A writer that is still opening the file has not written its name.
        let is_named = |pid: u32| lockers.iter().any(|lock| lock.is_exclusive && lock.pid == pid);
        let first = lockers.iter().find(|lock| lock.is_exclusive).map(|lock| lock.pid);
        let named = named.filter(|holder| {
            first.is_none() || holder.pid.is_some_and(is_named) || holder.pid.is_none()
        });
        let mut writer = named.unwrap_or_else(|| Holder::new(HolderRole::Writer, first, None));
        if first.is_none() && !lockers.is_empty() {
            writer.role = HolderRole::TakesTurns;
        }
        holders.push(writer);
    }
    let is_kept_out =
        holders.is_empty() && byte_locks::is_locked(file, LockByte::WRITER).unwrap_or(false);
    for lock in &lockers {
        let role = if lock.is_exclusive {
            HolderRole::Locker
        } else if is_kept_out {
            HolderRole::KeepsWritersOut
        } else {
            HolderRole::TakesTurns
        };
        push(&mut holders, Holder::new(role, Some(lock.pid), None));
    }
    if are_all || holders.is_empty() {
        for place in taken_places(file) {
            push(&mut holders, Holder::new(HolderRole::Reader, Some(place.pid), Some(place.age)));
        }
    }
    holders
}

/// Adds a holder that is not in the list yet.
fn push(holders: &mut Vec<Holder>, holder: Holder) {
    let is_new = holders.iter().all(|other| other.pid != holder.pid);
    if is_new || holder.role == HolderRole::Reader {
        holders.push(holder);
    }
}

/// Returns the word of the live header that names the writer, if it names one of this file: a copy
/// of a file that was open has the word of a process that writes the original.
pub(super) fn writer_word(file: &File) -> Option<[u8; 8]> {
    let read = |offset| {
        let mut word = [0; 8];
        file.read_exact_at(&mut word, offset).ok().map(|()| word)
    };
    let inode = u64_at(&read(INODE_OFFSET)?, 0);
    // A store has none before its first change.
    let is_of_file = inode == 0 || inode == file.metadata().ok()?.ino();
    is_of_file.then(|| read(PID_OFFSET))?
}

/// Returns the writer that a word of the live header names, if its process lives.
fn writer_in(word: &[u8]) -> Option<Holder> {
    let pid = pid_of(word)?;
    let since = u64_at(word, 0) >> 32;
    let age = (since != 0).then(|| since_boot().saturating_sub(Duration::from_secs(since)));
    Some(Holder::new(HolderRole::Writer, Some(pid), age))
}

/// Returns the process that the word of the live header names, if it lives.
pub(super) fn pid_of(word: &[u8]) -> Option<u32> {
    let pid = u64_at(word, 0) as u32;
    let process = rustix::process::Pid::from_raw(i32::try_from(pid).ok()?)?;
    let is_alive =
        !matches!(rustix::process::test_kill_process(process), Err(rustix::io::Errno::SRCH));
    is_alive.then_some(pid)
}

/// A lock of the whole file, or of bytes by a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WholeLock {
    is_exclusive: bool,
    pid: u32,
}

/// Returns the locks of a file of which the kernel names the process.
fn whole_locks(file: &File) -> Vec<WholeLock> {
    let Ok(metadata) = file.metadata() else { return Vec::new() };
    let device = metadata.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let wanted = format!("{major:02x}:{minor:02x}:{}", metadata.ino());
    fs::read_to_string("/proc/locks").map_or_else(|_| Vec::new(), |text| locks_in(&text, &wanted))
}

/// Reads `/proc/locks`: number, kind, `ADVISORY`, `READ` or `WRITE`, process, file, range. Those who wait
/// have an arrow.
fn locks_in(text: &str, wanted: &str) -> Vec<WholeLock> {
    let locks = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[_, kind, _, access, pid, file, ..] = &words[..] else { return None };
        let pid = pid.parse().ok().filter(|&pid| pid != 0)?;
        let is_one = file == wanted && matches!(kind, "FLOCK" | "POSIX");
        is_one.then_some(WholeLock { is_exclusive: access == "WRITE", pid })
    });
    locks.collect()
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use crate::storage::byte_locks::LockKind;

    fn refusing(path: &Path, options: &Options) -> Vec<Holder> {
        match options.clone().open(path) {
            Err(Error::Locked { holders, .. }) => holders,
            opened => panic!("{opened:?}"),
        }
    }

    #[test]
    fn locks_are_read_as_the_kernel_lists_them() {
        let text = "1: FLOCK  ADVISORY  WRITE 6682 00:1b:42 0 EOF\n\
                    1: -> FLOCK  ADVISORY  WRITE 6683 00:1b:42 0 EOF\n\
                    2: OFDLCK ADVISORY  READ -1 00:1b:42 4611686018427387904 4611686018427387904\n\
                    3: POSIX  ADVISORY  READ 7 00:1b:42 0 EOF\n\
                    4: FLOCK  ADVISORY  WRITE 8 00:1b:421 0 EOF\nrubbish\n";
        let lock = |is_exclusive, pid| WholeLock { is_exclusive, pid };
        assert_eq!(locks_in(text, "00:1b:42"), [lock(true, 6682), lock(false, 7)]);
    }

    #[test]
    fn a_refused_handle_learns_who_stands_in_the_way() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.spt");
        let own = Some(std::process::id());
        let roles = |holders: &[Holder]| {
            holders.iter().map(|holder| (holder.role, holder.pid)).collect::<Vec<_>>()
        };
        let by_turns = Options::new().sharing(Sharing::Shared).lock_timeout(Duration::ZERO);
        let alone = Options::new().sharing(Sharing::Exclusive);

        let writer = Options::new().open(&path).unwrap();
        for options in [Options::new(), by_turns.clone()] {
            let found = refusing(&path, &options);
            assert_eq!(roles(&found), [(HolderRole::Writer, own)]);
            assert!(found[0].age.is_some());
        }
        writer.put("a", "b").unwrap();
        let reader = Options::new().read_only().open(&path).unwrap();
        for _ in 0..100 {
            reader.get("a").unwrap();
        }
        let found = refusing(&path, &alone);
        assert_eq!(roles(&found), [(HolderRole::Writer, own), (HolderRole::Reader, own)]);
        // A program that has tried the lock itself learns the same.
        assert_eq!(roles(&holders(&File::open(&path).unwrap())), roles(&found));
        writer.close().unwrap();
        assert_eq!(roles(&refusing(&path, &alone)), [(HolderRole::Reader, own)]);
        drop(reader);

        let one = by_turns.open(&path).unwrap();
        let found = refusing(&path, &Options::new());
        assert_eq!(found[0].role, HolderRole::TakesTurns);
        drop(one);

        let writer = Options::new().open(&path).unwrap();
        writer.put("a", "c").unwrap();
        let copy = dir.path().join("copy");
        fs::copy(&path, &copy).unwrap();
        let other = File::options().write(true).open(&copy).unwrap();
        assert!(byte_locks::try_lock(&other, LockByte::WRITER, LockKind::Exclusive).unwrap());
        // The file names this process, which has the other one.
        assert_eq!(roles(&refusing(&copy, &Options::new())), [(HolderRole::Writer, None)]);
        drop((writer, other));

        let program = File::open(&path).unwrap();
        program.lock().unwrap();
        if whole_locks(&program).is_empty() {
            // The kernel names the device of this file system in another way.
            return;
        }
        assert_eq!(roles(&refusing(&path, &Options::new())), [(HolderRole::Locker, own)]);
    }
}
