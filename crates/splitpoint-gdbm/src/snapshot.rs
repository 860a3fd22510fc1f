//! Snapshots of the file beside it: made at each sync, and chosen after a crash.
//!
//! Stores do not need them: they are whole after a crash. They are for programs that ask.

use std::ffi::{CString, OsStr, c_int};
use std::fs::{File, Metadata, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use crate::code::{Code, Failure, Outcome};
use crate::database::Request;
use crate::descriptor;
use crate::flags;

const WRITE_ONLY: u32 = 0o200;
const READ_ONLY: u32 = 0o400;
/// The call that makes a file share the blocks of another (`FICLONE`).
const CLONE: libc::Ioctl = 0x4004_9409;

/// The two files that take snapshots in turn: while one is being made, the other is whole. Between two syncs the
/// newer alone may be read, so that a program has nothing to compare.
#[derive(Debug)]
pub(crate) struct Snapshots {
    files: [File; 2],
    next: usize,
    /// Whether the database has changed since the newer one was made.
    pub(crate) is_behind: bool,
}

impl Snapshots {
    /// Creates the two files, which must not exist.
    pub(crate) fn create(names: [&CString; 2]) -> Outcome<Self> {
        if names[0] == names[1] {
            return Err(Failure::of(Code::ERR_USAGE));
        }
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        let create = |name: &CString| {
            descriptor::open(name, flags, WRITE_ONLY)
                .map_err(|error| Failure::of_io(Code::FILE_OPEN_ERROR, &error))
        };
        let even = create(names[0])?;
        let odd = create(names[1]).inspect_err(|_| {
            // SAFETY: the name ends in NUL.
            unsafe { libc::unlink(names[0].as_ptr()) };
        })?;
        Ok(Self { files: [even, odd], next: 0, is_behind: true })
    }

    /// Makes the next of the two a snapshot of `database`, which is durable.
    pub(crate) fn take(&mut self, database: &File) -> Outcome<()> {
        let (file, older) = (&self.files[self.next], &self.files[1 - self.next]);
        let failed = |code| move |error: std::io::Error| Failure::of_io(code, &error);
        let allow = |file: &File, mode| {
            let allowed = file.set_permissions(Permissions::from_mode(mode));
            allowed.map_err(failed(Code::ERR_FILE_MODE))
        };
        let sync = |file: &File| file.sync_all().map_err(failed(Code::FILE_SYNC_ERROR));
        // A file that may only be written is not whole.
        allow(file, WRITE_ONLY)?;
        // SAFETY: both descriptors are open; the call takes no pointer.
        if unsafe { libc::ioctl(file.as_raw_fd(), CLONE, database.as_raw_fd()) } == -1 {
            return Err(failed(Code::ERR_SNAPSHOT_CLONE)(std::io::Error::last_os_error()));
        }
        sync(file)?;
        allow(file, READ_ONLY)?;
        sync(file)?;
        // From here on both are whole.
        allow(older, WRITE_ONLY)?;
        sync(older)?;
        self.next = 1 - self.next;
        self.is_behind = false;
        Ok(())
    }
}

/// Which of two snapshots to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Choice {
    Ok = 0,
    Bad = 1,
    Error = 2,
    Same = 3,
    Suspicious = 4,
}

/// What a file says of itself as a snapshot.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    is_whole: bool,
    sync_count: Option<u64>,
    modified: (i64, i64),
}

/// Chooses the snapshot that is whole and newer, and returns its number; only of `Ok` and `Suspicious`.
pub(crate) fn latest(names: [&CString; 2]) -> Outcome<(Choice, usize)> {
    if names[0] == names[1] {
        return Err(Failure::new(Code::ERR_USAGE, libc::EINVAL));
    }
    let [even, odd] = [candidate(names[0])?, candidate(names[1])?];
    let newer_of = |first: (i64, i64), second| usize::from(second > first);
    let choice = match (even.is_whole, odd.is_whole) {
        (true, false) => (Choice::Ok, 0),
        (false, true) => (Choice::Ok, 1),
        (false, false) => (Choice::Bad, 0),
        (true, true) => match (even.sync_count, odd.sync_count) {
            (Some(first), Some(second)) if first != second => {
                // The count goes on from 0 after the largest.
                let ahead = second.wrapping_sub(first);
                let is_second = ahead < 1 << 63;
                let distance = if is_second { ahead } else { ahead.wrapping_neg() };
                let choice = if distance == 1 { Choice::Ok } else { Choice::Suspicious };
                (choice, usize::from(is_second))
            }
            (Some(_), None) => (Choice::Suspicious, 0),
            (None, Some(_)) => (Choice::Suspicious, 1),
            _ if even.modified == odd.modified => (Choice::Same, 0),
            _ => (Choice::Ok, newer_of(even.modified, odd.modified)),
        },
    };
    Ok(choice)
}

fn candidate(name: &CString) -> Outcome<Candidate> {
    let path = Path::new(OsStr::from_bytes(name.as_bytes()));
    let metadata: Metadata =
        std::fs::metadata(path).map_err(|error| Failure::of_io(Code::FILE_STAT_ERROR, &error))?;
    let mode = metadata.mode() & (READ_ONLY | WRITE_ONLY);
    let modified = (metadata.mtime(), metadata.mtime_nsec());
    if !metadata.is_file() || !matches!(mode, READ_ONLY | WRITE_ONLY) {
        // Nothing that a snapshot can be.
        return Err(Failure::new(Code::FILE_STAT_ERROR, libc::EACCES));
    }
    if mode == WRITE_ONLY {
        // It was being written.
        return Ok(Candidate { is_whole: false, sync_count: None, modified });
    }
    let request = Request {
        name: name.clone(),
        block_size: 0,
        flags: flags::READER | flags::NOLOCK,
        mode: 0,
        fatal: None,
    };
    // One that cannot be read is not whole.
    let sync_count = request.open().map(|database| database.head.sync_count);
    Ok(Candidate { is_whole: sync_count.is_ok(), sync_count: sync_count.ok().flatten(), modified })
}

impl From<Choice> for c_int {
    fn from(choice: Choice) -> Self {
        choice as Self
    }
}
