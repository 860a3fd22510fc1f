//! Mounts that only this test sees, and file systems that shut down as under a pulled device.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::ioctl::{Opcode, Setter, opcode};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::UnshareFlags;

/// `EXT4_IOC_SHUTDOWN` and `XFS_IOC_GOINGDOWN`, which have one number.
const GOING_DOWN: Opcode = opcode::read::<u32>(b'X', 125);
/// Leaves the journal as it is on the device.
const WITHOUT_LOG_FLUSH: u32 = 2;

/// Gives this thread, and the threads and processes that it will start, a private mount namespace.
/// The kernel unmounts its file systems with the last of these, however that ends.
#[expect(unsafe_code, reason = "rustix has no safe `unshare`")]
pub(crate) fn make_private() -> io::Result<()> {
    thread_local! {
        static IS_PRIVATE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }
    if IS_PRIVATE.get() {
        return Ok(());
    }
    // SAFETY: only a new table of file descriptors would need care, and none is requested.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    IS_PRIVATE.set(true);
    Ok(())
}

/// Shuts down the file system of `path`: nothing more reaches its device, not even its journal.
#[expect(unsafe_code, reason = "an ioctl")]
pub(crate) fn shut_down(path: &Path) -> io::Result<()> {
    let directory = File::open(path)?;
    // SAFETY: ext4 and xfs read one u32 for this number; all others refuse it.
    let request = unsafe { Setter::<GOING_DOWN, u32>::new(WITHOUT_LOG_FLUSH) };
    // SAFETY: as above; nothing in memory changes.
    unsafe { rustix::ioctl::ioctl(&directory, request) }?;
    Ok(())
}
