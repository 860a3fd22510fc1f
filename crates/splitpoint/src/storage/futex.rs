//! Futex: sleeping on a word that processes share, and waking the sleepers.
//!
//! The kernel identifies the word by its file and offset, so the processes may map it at different
//! addresses.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps if the word is `expected`, until a wake or for at most `most`; may also wake spuriously.
pub(super) fn wait(word: &AtomicU32, expected: u32, most: Duration) {
    use rustix::thread::futex::{Flags, Timespec, wait};
    let most =
        Timespec { tv_sec: most.as_secs().cast_signed(), tv_nsec: most.subsec_nanos().into() };
    // Every error is a reason for the caller to check again: another value, a timeout, a signal.
    if wait(word, Flags::empty(), expected, Some(&most)) == Err(rustix::io::Errno::NOSYS) {
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Wakes `count` of those that sleep on the word, those that came first; returns how many there were.
pub(super) fn wake(word: &AtomicU32, count: u32) -> usize {
    use rustix::thread::futex::{Flags, wake};
    wake(word, Flags::empty(), count.min(i32::MAX as u32)).unwrap_or(0)
}
