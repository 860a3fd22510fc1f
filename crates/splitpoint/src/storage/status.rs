//! `Status`: the metadata of a file, without its times.
//!
//! On kernels with multigrain timestamps (Linux 6.13 or later; ext4, xfs, btrfs and tmpfs),
//! querying the times of a file makes the next write record a new time, however recent the last one
//! is. That dirties the inode, which an ext4 without a journal then writes with each flush. `fstat`
//! and `File::metadata` query everything; this type, which a handle uses with each call, does not.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags};

/// What it says of one file. Public for the libraries for C, which look at files of programs.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// The number of the device of its file system.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// Its size.
    pub bytes: u64,
    pub(super) link_count: u64,
    pub(super) kind: FileType,
}

impl Status {
    /// What is asked for.
    pub(super) const WANTED: StatxFlags =
        StatxFlags::TYPE.union(StatxFlags::NLINK).union(StatxFlags::INO).union(StatxFlags::SIZE);

    /// Looks at an open file.
    ///
    /// # Errors
    ///
    /// Of the system.
    pub fn of(file: &File) -> io::Result<Self> {
        let found = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, Self::WANTED).ok();
        match found.and_then(|found| Self::of_statx(&found)) {
            Some(status) => Ok(status),
            // A kernel, or a filter of system calls, that does not know it; or no such file.
            None => Ok(Self::of_metadata(&file.metadata()?)),
        }
    }

    /// Looks at the file to which a path leads.
    ///
    /// # Errors
    ///
    /// Of the system.
    pub fn at(path: &Path) -> io::Result<Self> {
        let found = rustix::fs::statx(CWD, path, AtFlags::empty(), Self::WANTED).ok();
        match found.and_then(|found| Self::of_statx(&found)) {
            Some(status) => Ok(status),
            None => Ok(Self::of_metadata(&fs::metadata(path)?)),
        }
    }

    /// Takes what a call has returned that asked for at least [`WANTED`](Self::WANTED).
    pub(super) fn of_statx(found: &Statx) -> Option<Self> {
        let has_all = found.stx_mask & Self::WANTED.bits() == Self::WANTED.bits();
        has_all.then(|| Self {
            device: rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
            bytes: found.stx_size,
            link_count: found.stx_nlink.into(),
            kind: FileType::from_raw_mode(found.stx_mode.into()),
        })
    }

    pub(super) fn of_metadata(found: &fs::Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.len(),
            link_count: found.nlink(),
            kind: FileType::from_raw_mode(found.mode()),
        }
    }

    /// Returns whether both are of one file.
    pub(super) fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn both_ways_to_look_agree() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::write(&path, [7; 100]).unwrap();
        let file = File::open(&path).unwrap();
        let all = |status: Status| (status.device, status.inode, status.bytes, status.link_count);
        let expected = Status::of_metadata(&file.metadata().unwrap());
        for found in [Status::of(&file).unwrap(), Status::at(&path).unwrap()] {
            assert_eq!(all(found), all(expected));
            assert_eq!((found.kind, expected.kind), (FileType::RegularFile, FileType::RegularFile));
        }
        assert_eq!(Status::at(dir.path()).unwrap().kind, FileType::Directory);
        let missing = Status::at(&dir.path().join("b")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    /// The coarse clock stands still for a tick. Whoever else asks for times moves on that of all files.
    #[test]
    fn a_write_after_a_look_may_keep_the_time_of_the_one_before() {
        let now = || {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
            (now.tv_sec, now.tv_nsec)
        };
        let file = tempfile::tempfile().unwrap();
        let is_kept = |look: &dyn Fn()| {
            let before = now();
            while now() == before {}
            let begun = now();
            file.write_all_at(&[7], 0).unwrap();
            look();
            file.write_all_at(&[7], 0).unwrap();
            let found = file.metadata().unwrap();
            (found.mtime(), found.mtime_nsec()) <= begun
        };
        let look = || assert_eq!(Status::of(&file).unwrap().bytes, 1);
        assert!((0..500).any(|_| is_kept(&look)), "each write notes a time");
    }
}
