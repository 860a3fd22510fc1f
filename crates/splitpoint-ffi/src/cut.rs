//! Notices that a stranger has cut the file of a store.
//!
//! A store is read through a mapping, and what was cut off cannot be read any more: the kernel ends the process
//! with `SIGBUS`. So the size is looked at before a call, where that is cheap: once in a tick of the kernel's
//! clock, which is 1 to 10 ms. A call within the tick in which the file was cut still ends in the signal.
//!
//! # Invariants
//!
//! - A handle whose file was cut is not used any more, and not closed: its drop would read the mapping.

use std::fs::File;
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt as _;

use crate::Identity;

/// Bytes that every store has: superblocks, live header, and the table of its readers.
const STORE_BYTES_MIN: u64 = 16 << 10;

/// When the size of a file was looked at.
#[derive(Debug, Default)]
pub struct CutWatch {
    tick: Option<(i64, i64)>,
}

impl CutWatch {
    /// Returns whether the file of a store is too short for one, if this tick of the clock has not seen it yet.
    ///
    /// A descriptor that the program has closed, or that leads elsewhere, says nothing.
    #[inline]
    pub fn sees_cut(&mut self, file: Option<&File>, identity: Identity) -> bool {
        let tick = Some(tick());
        if self.tick == tick {
            return false;
        }
        self.tick = tick;
        is_cut(file, identity)
    }
}

/// Returns whether the file of a store is too short for one.
#[cold]
#[inline(never)]
pub fn is_cut(file: Option<&File>, identity: Identity) -> bool {
    let metadata = file.and_then(|file| file.metadata().ok());
    metadata.is_some_and(|found| Identity::of(&found) == identity && found.size() < STORE_BYTES_MIN)
}

/// Returns the time of the last tick: a read of memory.
#[inline]
fn tick() -> (i64, i64) {
    #[cfg(target_os = "linux")]
    const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC_COARSE;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the pointer leads to a place for the time.
    unsafe { libc::clock_gettime(CLOCK, time.as_mut_ptr()) };
    // SAFETY: all zeros are a time, if the call has failed.
    let time = unsafe { time.assume_init() };
    (time.tv_sec, time.tv_nsec)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_cut_is_seen_in_the_next_tick_and_a_strangers_file_is_none() {
        let file = tempfile::tempfile().unwrap();
        let identity = Identity::of(&file.metadata().unwrap());
        file.set_len(STORE_BYTES_MIN).unwrap();
        let mut watch = CutWatch::default();
        assert!(!watch.sees_cut(Some(&file), identity));
        file.set_len(0).unwrap();
        std::thread::sleep(Duration::from_millis(30));
        assert!(watch.sees_cut(Some(&file), identity));
        assert!(is_cut(Some(&file), identity) && !is_cut(None, identity));
        let stranger = tempfile::tempfile().unwrap();
        assert!(!is_cut(Some(&stranger), identity));
    }
}
