//! Uses the write hint of a file as proof that the kernel has kept its pages since the hint was
//! set.
//!
//! The kernel keeps the hint in its in-memory inode. It drops that inode when the file system is
//! unmounted, or when nobody has the file open and none of its pages is in memory. Until then it
//! drops no dirty page of the file without writing it back or having an error to report. It makes
//! no difference through which mount a process has opened the file.
//!
//! The hint used is `RWH_WRITE_LIFE_NONE`, "nothing is known about the lifetime of the data". A
//! file without a hint is treated in the same way, but reports another value,
//! `RWH_WRITE_LIFE_NOT_SET`.
//!
//! # Source
//!
//! `F_SET_RW_HINT` of `fcntl(2)`: Linux 4.13. Newer kernels let only the owner of the file set it.

use std::fs::File;
use std::os::fd::AsRawFd;

const F_GET_RW_HINT: libc::c_int = 1024 + 11;
const F_SET_RW_HINT: libc::c_int = 1024 + 12;
const RWH_WRITE_LIFE_NONE: u64 = 1;

/// Sets the hint of a file. If that is refused, [`is_set`] will return `false`, which proves
/// nothing.
pub(super) fn set(file: &File) {
    let _ = call(file, F_SET_RW_HINT, &mut RWH_WRITE_LIFE_NONE.clone());
}

/// Returns whether the file has the hint that [`set`] gives it.
pub(super) fn is_set(file: &File) -> bool {
    let mut hint = 0;
    call(file, F_GET_RW_HINT, &mut hint) && hint == RWH_WRITE_LIFE_NONE
}

/// Calls `fcntl` with a hint, and returns whether it succeeded.
fn call(file: &File, command: libc::c_int, hint: &mut u64) -> bool {
    // SAFETY: `file` keeps the descriptor open, and both commands only read or write the 64-bit
    // number at the pointer.
    unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(hint)) == 0 }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn the_hint_of_a_file_is_seen_through_any_descriptor_and_not_by_a_copy() {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("a"), dir.path().join("b"));
        let file = File::create(&path).unwrap();
        assert!(!is_set(&file));
        set(&file);
        if !is_set(&file) {
            println!("this file system keeps no hints");
            return;
        }
        assert!(is_set(&File::open(&path).unwrap()));
        std::fs::copy(&path, &copy).unwrap();
        assert!(!is_set(&File::open(&copy).unwrap()));
    }
}
