//! Notices that a stranger has cut the file of a store, or put something else in its place.
//!
//! A store is read through a mapping, and what was cut off cannot be read any more: the kernel ends the process
//! with `SIGBUS`. Where the file has become another store since, what the handle knows of the old one leads to
//! nothing there. So the size and the uuid are looked at before a call, where that is cheap: once in a tick of the
//! kernel's clock, which is 1 to 10 ms. A call within the tick in which the file was cut still ends in the signal.
//!
//! # Invariants
//!
//! - A handle whose file was cut is not used any more, and not closed: its drop would read the mapping.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt as _;

use splitpoint::Status;

use crate::Identity;

/// Bytes that every store has: superblocks, live header, and the table of its readers.
const STORE_BYTES_MIN: u64 = 16 << 10;

/// Where the superblocks are.
const SUPERBLOCK_OFFSETS: [u64; 2] = [0, 4096];

/// What every superblock begins with, without and with the mark of gdbm.
const MAGICS: [[u8; 8]; 2] = [*b"\x89SPLIT\r\n", *b"\xcf\x9a\x57\x13SPLT"];

/// Which store a file had, and when it was looked at.
#[derive(Debug, Default)]
pub struct CutWatch {
    tick: Option<(i64, i64)>,
    /// `None` if it had none.
    uuid: Option<Uuid>,
}

type Uuid = [u8; 16];

impl CutWatch {
    /// Remembers which store is in a file.
    pub fn of(file: Option<&File>) -> Self {
        Self { tick: None, uuid: file.and_then(|file| uuid_in(file).ok()).flatten() }
    }

    /// Returns whether the file of the store was cut, if this tick of the clock has not seen it yet.
    ///
    /// A descriptor that the program has closed, or that leads elsewhere, says nothing.
    #[inline]
    pub fn sees_cut(&mut self, file: Option<&File>, identity: Identity) -> bool {
        let tick = Some(tick());
        if self.tick == tick {
            return false;
        }
        self.tick = tick;
        self.is_cut(file, identity)
    }

    /// Returns whether the file is too short for a store, or holds another one by now, or none.
    #[cold]
    #[inline(never)]
    pub fn is_cut(&self, file: Option<&File>, identity: Identity) -> bool {
        let Some(file) = file else { return false };
        let Ok(status) = Status::of(file) else { return false };
        if Identity::of_status(status) != identity {
            return false;
        }
        let is_other = |found| self.uuid.is_some() && self.uuid != found;
        status.bytes < STORE_BYTES_MIN || uuid_in(file).is_ok_and(is_other)
    }
}

/// Returns whether a file begins as stores do, perhaps with the mark of gdbm.
pub fn is_store(file: &File) -> bool {
    uuid_in(file).is_ok_and(|uuid| uuid.is_some())
}

/// Returns the uuid of the store in a file, if there is one. A new store has one superblock of the two.
fn uuid_in(file: &File) -> io::Result<Option<Uuid>> {
    for offset in SUPERBLOCK_OFFSETS {
        let mut head = [0; 48];
        file.read_exact_at(&mut head, offset)?;
        if MAGICS.iter().any(|magic| head.starts_with(magic)) {
            return Ok(head.last_chunk().copied());
        }
    }
    Ok(None)
}

/// Returns the time of the last tick: a read of memory.
#[inline]
fn tick() -> (i64, i64) {
    const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC_COARSE;
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the pointer leads to a place for the time.
    unsafe { libc::clock_gettime(CLOCK, time.as_mut_ptr()) };
    // SAFETY: all zeros are a time, if the call has failed.
    let time = unsafe { time.assume_init() };
    (time.tv_sec, time.tv_nsec)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use splitpoint::Options;

    use super::*;

    /// Makes a store, and returns its file.
    fn new_store(path: &Path, is_gdbms: bool) -> File {
        Options::new().gdbm_mark(is_gdbms).open(path).unwrap().close().unwrap();
        File::options().read(true).write(true).open(path).unwrap()
    }

    fn identity(file: &File) -> Identity {
        Identity::of_file(file).unwrap()
    }

    #[test]
    fn a_cut_is_seen_in_the_next_tick_and_a_strangers_file_is_none() {
        let dir = tempfile::tempdir().unwrap();
        for is_gdbms in [false, true] {
            let file = new_store(&dir.path().join(format!("{is_gdbms}")), is_gdbms);
            let identity = identity(&file);
            let mut watch = CutWatch::of(Some(&file));
            assert!(is_store(&file) && !watch.sees_cut(Some(&file), identity));
            file.set_len(STORE_BYTES_MIN - 1).unwrap();
            std::thread::sleep(Duration::from_millis(30));
            assert!(watch.sees_cut(Some(&file), identity));
            assert!(watch.is_cut(Some(&file), identity) && !watch.is_cut(None, identity));
            let stranger = tempfile::tempfile().unwrap();
            assert!(!watch.is_cut(Some(&stranger), identity) && !is_store(&stranger));
        }
    }

    #[test]
    fn a_store_that_was_cut_and_made_again_is_another_one() {
        let dir = tempfile::tempdir().unwrap();
        for is_gdbms in [false, true] {
            made_again(&dir.path().join(format!("{is_gdbms}")), is_gdbms);
        }
    }

    fn made_again(path: &Path, is_gdbms: bool) {
        let file = new_store(path, is_gdbms);
        let (identity, watch) = (identity(&file), CutWatch::of(Some(&file)));
        // Opened and closed it is the same one, also with the other superblock.
        for _ in 0..3 {
            new_store(path, is_gdbms);
            assert!(!watch.is_cut(Some(&file), identity));
        }
        file.set_len(0).unwrap();
        new_store(path, is_gdbms);
        assert!(watch.is_cut(Some(&file), identity));
        assert!(!CutWatch::of(Some(&file)).is_cut(Some(&file), identity));
        // An original's new database: as long as a store.
        file.set_len(0).unwrap();
        file.set_len(STORE_BYTES_MIN).unwrap();
        assert!(watch.is_cut(Some(&file), identity));
    }
}
