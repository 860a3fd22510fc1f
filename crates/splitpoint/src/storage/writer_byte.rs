//! Locks of the process on the first two [lock bytes](super::byte_locks), by which handles exclude others
//! that must leave `flock` to the program, and a count of such handles by inode.
//!
//! A program may use `flock` and locks of the whole file on a descriptor that it shares with a handle:
//! only a lock of the process meets neither. It has two weak points, which this makes up for. Handles of
//! one process do not exclude each other by it, so they are counted. It ends when the process closes any
//! descriptor of the file, so a handle that is closed takes it anew for those that stay.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::fork::Origin;
use super::own_file::OwnFile;
use super::status::Status;
use crate::format::WRITER_BYTE_OFFSET;

/// Who must not come in beside a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exclusion {
    /// Writers.
    Writers,
    /// Writers and readers.
    Everybody,
}

fn kind_of(exclusion: Exclusion) -> i32 {
    match exclusion {
        Exclusion::Writers => libc::F_RDLCK,
        Exclusion::Everybody => libc::F_WRLCK,
    }
}

/// Locks the two bytes, or unlocks them, without waiting. Returns whether it could.
fn lock(file: &File, command: i32, kind: i32) -> io::Result<bool> {
    let region = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: WRITER_BYTE_OFFSET.cast_signed(),
        l_len: 2,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and the region outlives the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), command, &raw const region) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        // A file system without locks.
        Some(libc::ENOLCK | libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS) => Ok(true),
        _ => Err(error),
    }
}

/// The handles of this process on one inode.
#[derive(Debug)]
struct Claimed {
    /// Holds the lock. It shares its description with the first handle.
    file: OwnFile,
    exclusion: Exclusion,
    handle_count: u32,
    /// A child of a fork has the entry of its parent, and no lock.
    origin: Origin,
}

type Inode = (u64, u64);

static CLAIMED: Mutex<BTreeMap<Inode, Claimed>> = Mutex::new(BTreeMap::new());

fn claimed() -> MutexGuard<'static, BTreeMap<Inode, Claimed>> {
    CLAIMED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The place of one handle of this process, which it gives up on drop.
#[derive(Debug)]
pub(crate) struct Claim {
    inode: Inode,
    origin: Origin,
}

impl Claim {
    /// Takes the byte for a handle on `file`, or returns `None` if another handle, here or in another
    /// process, keeps it out.
    pub(crate) fn take(file: &File, exclusion: Exclusion) -> io::Result<Option<Self>> {
        let status = Status::of(file)?;
        let inode = (status.device, status.inode);
        let origin = Origin::here();
        let mut claimed = claimed();
        if claimed.get(&inode).is_some_and(|found| !found.origin.is_here()) {
            claimed.remove(&inode);
        }
        if let Some(found) = claimed.get_mut(&inode) {
            let both = [found.exclusion, exclusion];
            // The lock of the others may have ended since, and another process may have come.
            if both.contains(&Exclusion::Everybody)
                || !lock(file, libc::F_SETLK, kind_of(exclusion))?
            {
                return Ok(None);
            }
            found.handle_count += 1;
            return Ok(Some(Self { inode, origin }));
        }
        let file = OwnFile::of_claim(file.try_clone()?, status.device, status.inode);
        if !lock(&file, libc::F_SETLK, kind_of(exclusion))? {
            return Ok(None);
        }
        claimed.insert(inode, Claimed { file, exclusion, handle_count: 1, origin });
        Ok(Some(Self { inode, origin }))
    }
}

/// Takes the lock anew for the handles of this process on an inode, of which a descriptor was closed.
pub(super) fn renew(status: &Status) {
    renew_inode((status.device, status.inode));
}

/// Returns whether a handle of this process has a claim on a file.
pub(super) fn is_claimed(file: &File) -> io::Result<bool> {
    let status = Status::of(file)?;
    let inode = (status.device, status.inode);
    Ok(claimed().get(&inode).is_some_and(|found| found.origin.is_here()))
}

/// Takes the claims on an inode anew when it is dropped, after a descriptor of the file was closed.
#[derive(Debug)]
pub(super) struct Renewing(pub(super) Inode);

impl Renewing {
    /// For a file that is open, at which somebody has looked.
    pub(super) fn of(status: &Status) -> Self {
        Self((status.device, status.inode))
    }

    /// Ends it: the descriptor stays open.
    pub(super) fn end(self) {
        std::mem::forget(self);
    }
}

impl Drop for Renewing {
    fn drop(&mut self) {
        renew_inode(self.0);
    }
}

fn renew_inode(inode: Inode) {
    if let Some(found) = claimed().get(&inode).filter(|found| found.origin.is_here()) {
        // It cannot be helped here: without the lock, `flock` is what excludes others.
        if let Ok(file) = found.file.checked() {
            let _ = lock(file, libc::F_SETLK, kind_of(found.exclusion));
        }
    }
}

impl Claim {
    /// Takes the lock anew after a descriptor of the file was closed.
    pub(super) fn renew(&self) {
        renew_inode(self.inode);
    }
}

impl Drop for Claim {
    /// Gives the place up, after the handle has closed its descriptor.
    fn drop(&mut self) {
        if !self.origin.is_here() {
            return;
        }
        let mut claimed = claimed();
        let Some(found) = claimed.get_mut(&self.inode) else { return };
        found.handle_count -= 1;
        if found.handle_count == 0 {
            if let Ok(file) = found.file.checked() {
                let _ = lock(file, libc::F_SETLK, libc::F_UNLCK);
            }
            claimed.remove(&self.inode);
        } else {
            drop(claimed);
            self.renew();
        }
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::super::byte_locks::{self, LockByte, LockKind};
    use super::*;

    /// Returns whether a handle with a path gets in that reads, and keeps the lock.
    fn is_read(file: &File) -> bool {
        byte_locks::try_lock(file, LockByte::PRESENCE, LockKind::Shared).expect("nothing fails")
    }

    /// Returns whether one gets in that writes.
    fn is_written(file: &File) -> bool {
        byte_locks::try_lock(file, LockByte::WRITER, LockKind::Exclusive).expect("nothing fails")
    }

    #[test]
    fn readers_of_a_process_share_the_byte_and_a_writer_is_alone() {
        let file = tempfile::tempfile().unwrap();
        let take = |exclusion| Claim::take(&file.try_clone().unwrap(), exclusion).unwrap();
        let readers = [take(Exclusion::Writers), take(Exclusion::Writers)];
        assert!(readers.iter().all(Option::is_some));
        assert!(take(Exclusion::Everybody).is_none());
        drop(readers);
        let writer = take(Exclusion::Everybody);
        assert!(writer.is_some());
        assert!(take(Exclusion::Writers).is_none());
        drop(writer);
        assert!(take(Exclusion::Writers).is_some());
    }

    #[test]
    fn the_lock_of_a_process_and_that_of_a_description_exclude_each_other() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::options().read(true).write(true).open(file.path()).unwrap();
        // Closing one would end the lock of the process.
        let [shared, own] = [open(), open()];
        let claim = Claim::take(&shared, Exclusion::Everybody).unwrap();
        assert!(!is_read(&own) && !is_written(&own));
        drop(claim);
        assert!(is_read(&own));
        assert!(Claim::take(&shared, Exclusion::Everybody).unwrap().is_none());
        assert!(Claim::take(&shared, Exclusion::Writers).unwrap().is_some());
    }

    #[test]
    fn a_lock_that_ended_with_another_descriptor_is_taken_anew() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::options().read(true).write(true).open(file.path()).unwrap();
        let [shared, own] = [open(), open()];
        let claim = Claim::take(&shared, Exclusion::Everybody).unwrap().unwrap();
        drop(open());
        assert!(is_read(&own), "the lock has ended");
        byte_locks::unlock_all(&own).unwrap();
        claim.renew();
        assert!(!is_read(&own) && !is_written(&own));
    }

    #[test]
    fn a_second_reader_takes_a_lock_anew_that_has_ended_or_is_kept_out() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::options().read(true).write(true).open(file.path()).unwrap();
        let [shared, own] = [open(), open()];
        let take = || Claim::take(&shared, Exclusion::Writers).unwrap();
        let _first = take().unwrap();
        drop(open());
        assert!(is_written(&own), "the lock has ended");
        assert!(take().is_none(), "a writer has come");
        byte_locks::unlock_all(&own).unwrap();
        let _second = take().unwrap();
        assert!(!is_written(&own));
    }

    /// As a program does that locks the descriptor it shares with a handle.
    #[test]
    fn locks_of_the_program_on_the_whole_file_are_free() {
        let file = tempfile::tempfile().unwrap();
        let claim = Claim::take(&file, Exclusion::Everybody).unwrap();
        file.try_lock().unwrap();
        let whole = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        rustix::fs::fcntl_lock(&file, whole).unwrap();
        drop(claim);
    }
}
