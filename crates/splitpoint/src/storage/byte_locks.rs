//! Locks of single bytes of a file, far behind any content, that belong to an open file description.
//!
//! The kernel drops them when the last descriptor of the description is closed, so nothing is left of
//! a process that was killed, and no process id decides anything. Unlike the older locks of `fcntl`
//! they are not lost when the process closes another descriptor of the file, and two handles in one
//! process exclude each other.
//!
//! | byte | held | by |
//! |---|---|---|
//! | 2^62 - 1 | shared | every holder of the next byte, in the same mode. Exclusively: a process that is about to close a descriptor of a file that it has claimed, until it has renewed its claim |
//! | 2^62 | shared | every handle. Exclusively: a handle that excludes all others, for its session or while it rebuilds the tables |
//! | 2^62 + 1 | exclusively | the handle that may change the file. Shared: readers that keep writers out |
//! | 2^62 + 2 | exclusively | a writer that is opening the file, for which readers wait |
//! | 2^62 + 3 | shared | readers that wait to keep writers out, to make a handle that keeps the writer's place between turns give it up |
//! | 2^62 + 16, 2^62 + 17 | shared | readers without a place in the reader table, while they read: one byte for each parity. A backup of a file has the first one while it reads the log |
//! | 2^62 + 64 + i | exclusively | the reader whose place in the reader table is i, from 1 to 62 |
//! | 2^62 + 127 | shared | handles that add to the counts of lookups in the last place |
//!
//! A writer also has the file locked by `flock`, exclusively. A reader that has made a private index,
//! and whatever reads the file without the tables, has it shared: so no writer comes meanwhile.
//!
//! A handle on a file that the program has opened and locks itself
//! ([`SharedFile`](super::shared_file::SharedFile)) has a description of its own and locks nothing between
//! its calls, or has none: then it takes bytes 2^62 and 2^62 + 1 for its process (`F_SETLK`), both exclusively
//! if it may change the file, so that it is alone, and both shared if not, so that no writer comes.
//!
//! # Locks of the program
//!
//! A program may lock the whole file with the older locks of `fcntl`, up to infinity, and so these
//! bytes: its own calls would wait for it forever. A lock of its process that begins before these
//! bytes is the program's, and is taken off them ([`take_from_own_process`]). It holds for the rest
//! of the file, and keeps out whom it kept out, except from these bytes.
//!
//! # Source
//!
//! Open file description locks: Linux 3.15; POSIX.1-2024.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::reader_table::COUNTS_PLACE;
use super::writer_byte::is_claimed;
use crate::format::WRITER_BYTE_OFFSET;
use crate::testing::mutant::{self, Mutant};

/// A byte that is locked, by its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockByte(u64);

impl LockByte {
    /// That a handle has the file open. It is locked together with the byte before it.
    pub(crate) const PRESENCE: Self = Self(WRITER_BYTE_OFFSET);
    /// That a process closes a descriptor of the file, with which its claims end for a moment.
    const CLOSING: Self = Self(WRITER_BYTE_OFFSET - 1);
    /// That a handle may change the file.
    pub(crate) const WRITER: Self = Self(WRITER_BYTE_OFFSET + 1);
    /// That a writer is opening the file.
    pub(crate) const OPENING: Self = Self(WRITER_BYTE_OFFSET + 2);

    /// That a reader waits for the place of the writer, to keep writers out.
    pub(crate) const ASKED: Self = Self(WRITER_BYTE_OFFSET + 3);

    /// That a reader without a place reads, counted on a parity.
    pub(crate) fn pin(parity: u64) -> Self {
        Self(WRITER_BYTE_OFFSET + 16 + (parity & 1))
    }

    /// That a reader has a place in the reader table.
    pub(crate) fn place(place: usize) -> Self {
        Self(WRITER_BYTE_OFFSET + 64 + place as u64)
    }
}

/// Bytes from [`LockByte::CLOSING`] to behind the last.
const BYTE_COUNT: i64 = 129;

/// How a byte is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockKind {
    Shared,
    Exclusive,
}

/// Locks a byte, or changes the kind of the lock; returns `false` if another description has a lock
/// that does not go with it. An exclusive lock needs a file that is open for writing, a shared one a
/// file that is open for reading.
pub(crate) fn try_lock(file: &File, byte: LockByte, kind: LockKind) -> io::Result<bool> {
    let kind = match kind {
        LockKind::Shared => libc::F_RDLCK,
        LockKind::Exclusive => libc::F_WRLCK,
    };
    let (byte, byte_count) = with_closing(byte);
    try_lock_all(file, byte, byte_count, kind)
}

/// Returns the first byte and the number of bytes that a lock of `byte` covers. A lock of the
/// presence byte also covers the closing byte, so that no handle gets in while the process locks of
/// a claim are suspended.
fn with_closing(byte: LockByte) -> (LockByte, i64) {
    const { assert!(LockByte::PRESENCE.0 == LockByte::CLOSING.0 + 1) };
    if byte == LockByte::PRESENCE { (LockByte::CLOSING, 2) } else { (byte, 1) }
}

/// Locks both bytes of a writer that opens the file, by one call; returns `false` if another description has
/// a lock on either.
pub(crate) fn try_lock_to_open(file: &File) -> io::Result<bool> {
    const { assert!(LockByte::OPENING.0 == LockByte::WRITER.0 + 1) };
    try_lock_all(file, LockByte::WRITER, 2, libc::F_WRLCK)
}

fn try_lock_all(
    file: &File,
    byte: LockByte,
    byte_count: i64,
    kind: libc::c_int,
) -> io::Result<bool> {
    let try_once = || match call(file, libc::F_OFD_SETLK, &mut lock_of(byte, byte_count, kind)) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        locked => locked.map(|()| true),
    };
    let mut found = lock_of(byte, byte_count, kind);
    Ok(try_once()? || take_from_own_process(file, &mut found)? && try_once()?)
}

/// Takes the lock bytes out of a lock of the whole file that this program has, if that is what stands in the
/// way of a lock, which is overwritten; returns whether it was.
#[cold]
fn take_from_own_process(file: &File, found: &mut libc::flock) -> io::Result<bool> {
    call(file, libc::F_OFD_GETLK, found)?;
    // One of a description has no process, one of a child namespace not this number.
    let is_own = found.l_pid.cast_unsigned() == std::process::id();
    let is_whole = found.l_start < LockByte::CLOSING.0.cast_signed();
    if i32::from(found.l_type) == libc::F_UNLCK
        || !is_own
        || !is_whole
        || is_claimed(file)?
        || mutant::is_made(Mutant::MeetsOwnLock)
    {
        return Ok(false);
    }
    let mut bytes = lock_of(LockByte::CLOSING, BYTE_COUNT, libc::F_UNLCK);
    call(file, libc::F_SETLK, &mut bytes).map(|()| true)
}

/// Locks the bytes that stand for the claims of this process while it closes a descriptor of the
/// file. For an exclusive claim that is the closing byte; for a claim that only keeps writers out,
/// it is the presence and writer bytes, on which a description and its process can both hold shared
/// locks. Returns `false` if the claims had ended before and another handle has got in.
pub(super) fn try_lock_to_close(file: &File, lets_readers_in: bool) -> io::Result<bool> {
    let (byte, byte_count, kind) = of_closing(lets_readers_in);
    let try_once = || match call(file, libc::F_OFD_SETLK, &mut lock_of(byte, byte_count, kind)) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        locked => locked.map(|()| true),
    };
    if try_once()? {
        return Ok(true);
    }
    // The program may have locked the whole file. The claim stays, shared or exclusive.
    let own = if lets_readers_in { libc::F_RDLCK } else { libc::F_UNLCK };
    call(file, libc::F_SETLK, &mut lock_of(byte, byte_count, own))?;
    try_once()
}

/// Ends [`try_lock_to_close`].
pub(super) fn unlock_after_close(file: &File, lets_readers_in: bool) -> io::Result<()> {
    let (byte, byte_count, _) = of_closing(lets_readers_in);
    call(file, libc::F_OFD_SETLK, &mut lock_of(byte, byte_count, libc::F_UNLCK))
}

fn of_closing(lets_readers_in: bool) -> (LockByte, i64, libc::c_int) {
    const { assert!(LockByte::WRITER.0 == LockByte::PRESENCE.0 + 1) };
    if lets_readers_in {
        (LockByte::PRESENCE, 2, libc::F_RDLCK)
    } else {
        (LockByte::CLOSING, 1, libc::F_WRLCK)
    }
}

/// Unlocks a byte.
pub(crate) fn unlock(file: &File, byte: LockByte) -> io::Result<()> {
    let (byte, byte_count) = with_closing(byte);
    call(file, libc::F_OFD_SETLK, &mut lock_of(byte, byte_count, libc::F_UNLCK))
}

/// Unlocks every byte that this description has locked.
pub(crate) fn unlock_all(file: &File) -> io::Result<()> {
    call(file, libc::F_OFD_SETLK, &mut lock_of(LockByte::CLOSING, 0, libc::F_UNLCK))
}

/// Returns whether another description has a lock on a byte.
pub(crate) fn is_locked(file: &File, byte: LockByte) -> io::Result<bool> {
    conflicts(file, byte, libc::F_WRLCK)
}

/// Returns whether another description has an exclusive lock on a byte.
pub(crate) fn is_locked_exclusively(file: &File, byte: LockByte) -> io::Result<bool> {
    conflicts(file, byte, libc::F_RDLCK)
}

/// Returns whether another description has the byte of any place in the reader table. A lock of the
/// whole file, which a program may have, is none of a reader.
pub(crate) fn is_any_place_locked(file: &File) -> io::Result<bool> {
    const { assert!(COUNTS_PLACE == 63, "the places of readers are 1 to 62") };
    let first = LockByte::place(1);
    let mut lock = lock_of(first, 62, libc::F_WRLCK);
    call(file, libc::F_OFD_GETLK, &mut lock)?;
    Ok(i32::from(lock.l_type) != libc::F_UNLCK && lock.l_start >= first.0.cast_signed())
}

/// Returns whether somebody else has a lock on a byte: another process, or a description. Locks of this
/// process do not count, not even one of the whole file.
pub(super) fn is_locked_by_others(file: &File, byte: LockByte) -> io::Result<bool> {
    let mut lock = lock_of(byte, 1, libc::F_WRLCK);
    call(file, libc::F_GETLK, &mut lock)?;
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}

/// Returns whether a lock of a byte would have to wait.
fn conflicts(file: &File, byte: LockByte, kind: libc::c_int) -> io::Result<bool> {
    let (byte, byte_count) = with_closing(byte);
    let mut lock = lock_of(byte, byte_count, kind);
    call(file, libc::F_OFD_GETLK, &mut lock)?;
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}

/// Describes a lock of `byte_count` bytes from `byte` on, 0 for all.
fn lock_of(byte: LockByte, byte_count: i64, kind: libc::c_int) -> libc::flock {
    // SAFETY: all fields are numbers, for which zero is valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    lock.l_start = byte.0.cast_signed();
    lock.l_len = byte_count;
    lock
}

fn call(file: &File, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
    super::uninterrupted(|| {
        // SAFETY: the descriptor is open, and the pointer leads to a whole `struct flock`.
        let done = unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) };
        if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    })
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;

    /// Opens the same new file twice, for reading and writing.
    fn two_descriptions() -> (File, File) {
        let dir = tempfile::tempdir().expect("nothing fails");
        let path = dir.path().join("a");
        let first = File::create_new(&path).expect("nothing fails");
        let both = || File::options().read(true).write(true).open(&path).expect("nothing fails");
        drop(first);
        (both(), both())
    }

    #[test]
    fn two_handles_of_one_process_exclude_each_other() {
        let (a, b) = two_descriptions();
        assert!(try_lock(&a, LockByte::WRITER, LockKind::Exclusive).unwrap());
        assert!(is_locked(&b, LockByte::WRITER).unwrap());
        assert!(!is_locked(&a, LockByte::WRITER).unwrap(), "its own lock is none of another");
        assert!(!try_lock(&b, LockByte::WRITER, LockKind::Exclusive).unwrap());
        assert!(!try_lock(&b, LockByte::WRITER, LockKind::Shared).unwrap());
        assert!(try_lock(&b, LockByte::PRESENCE, LockKind::Exclusive).unwrap(), "another byte");
        unlock(&a, LockByte::WRITER).unwrap();
        assert!(try_lock(&b, LockByte::WRITER, LockKind::Exclusive).unwrap());
    }

    #[test]
    fn who_opens_a_file_to_write_has_both_bytes_or_neither() {
        let (a, b) = two_descriptions();
        for taken in [LockByte::WRITER, LockByte::OPENING] {
            assert!(try_lock(&a, taken, LockKind::Exclusive).unwrap());
            assert!(!try_lock_to_open(&b).unwrap());
            for byte in [LockByte::WRITER, LockByte::OPENING] {
                assert!(!is_locked(&a, byte).unwrap(), "nothing of the other is left");
            }
            unlock_all(&a).unwrap();
        }
        assert!(try_lock_to_open(&b).unwrap());
        assert!(
            is_locked(&a, LockByte::WRITER).unwrap() && is_locked(&a, LockByte::OPENING).unwrap()
        );
        assert!(!is_locked(&a, LockByte::PRESENCE).unwrap());
    }

    #[test]
    fn a_shared_lock_becomes_exclusive_only_when_the_others_are_gone() {
        let (a, b) = two_descriptions();
        assert!(try_lock(&a, LockByte::PRESENCE, LockKind::Shared).unwrap());
        assert!(try_lock(&b, LockByte::PRESENCE, LockKind::Shared).unwrap());
        assert!(!try_lock(&a, LockByte::PRESENCE, LockKind::Exclusive).unwrap());
        unlock_all(&b).unwrap();
        assert!(try_lock(&a, LockByte::PRESENCE, LockKind::Exclusive).unwrap());
        assert!(try_lock(&a, LockByte::PRESENCE, LockKind::Shared).unwrap());
        assert!(try_lock(&b, LockByte::PRESENCE, LockKind::Shared).unwrap());
    }

    /// Locks or unlocks the whole file for this process, as a program does.
    fn lock_whole(file: &File, kind: libc::c_int) {
        let mut whole = lock_of(LockByte(0), 0, kind);
        call(file, libc::F_SETLK, &mut whole).expect("nobody stands in the way");
    }

    #[test]
    fn a_lock_of_the_whole_file_of_its_own_program_stands_in_nobodys_way() {
        let (a, b) = two_descriptions();
        for kind in [libc::F_RDLCK, libc::F_WRLCK] {
            lock_whole(&a, kind);
            let try_lock = || try_lock(&b, LockByte::WRITER, LockKind::Exclusive).unwrap();
            assert!(!mutant::with(Mutant::MeetsOwnLock, try_lock));
            assert!(try_lock());
            // Of the rest it is still a lock.
            assert!(conflicts(&b, LockByte(0), libc::F_WRLCK).unwrap());
            assert!(conflicts(&b, LockByte(WRITER_BYTE_OFFSET + 200), libc::F_WRLCK).unwrap());
            assert!(!is_locked(&b, LockByte::place(63)).unwrap());
            unlock_all(&b).unwrap();
            lock_whole(&a, libc::F_UNLCK);
        }
    }

    #[test]
    fn a_place_of_another_reader_is_found_and_a_lock_of_the_whole_file_is_none() {
        let (a, b) = two_descriptions();
        lock_whole(&a, libc::F_WRLCK);
        assert!(!is_any_place_locked(&b).unwrap());
        lock_whole(&a, libc::F_UNLCK);
        for (place, is_found) in [(1, true), (62, true), (63, false)] {
            assert!(try_lock(&a, LockByte::place(place), LockKind::Exclusive).unwrap());
            assert_eq!(is_any_place_locked(&b).unwrap(), is_found, "{place}");
            assert!(!is_any_place_locked(&a).unwrap(), "its own is none of another");
            unlock_all(&a).unwrap();
        }
    }

    #[test]
    fn a_claim_of_this_process_is_no_lock_of_its_program() {
        use super::super::writer_byte::{Claim, Exclusion};
        let (a, b) = two_descriptions();
        let claim = Claim::take(&a, Exclusion::Everybody).unwrap();
        for _ in 0..2 {
            assert!(!try_lock(&b, LockByte::PRESENCE, LockKind::Shared).unwrap());
            // The system makes one of both.
            lock_whole(&a, libc::F_WRLCK);
        }
        drop(claim);
        assert!(try_lock(&b, LockByte::PRESENCE, LockKind::Shared).unwrap());
    }

    #[test]
    fn closing_another_descriptor_of_the_file_does_not_unlock() {
        let (a, b) = two_descriptions();
        assert!(try_lock(&a, LockByte::WRITER, LockKind::Exclusive).unwrap());
        let again = File::options().read(true).open(format!("/proc/self/fd/{}", a.as_raw_fd()));
        drop(again.unwrap());
        assert!(is_locked(&b, LockByte::WRITER).unwrap());
        drop(a);
        assert!(!is_locked(&b, LockByte::WRITER).unwrap(), "gone with the description");
    }
}
