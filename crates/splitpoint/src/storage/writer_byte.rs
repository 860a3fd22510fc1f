//! Process locks (`F_SETLK`) on two of the [lock bytes](super::byte_locks), for handles that must
//! leave `flock` to the program, and a count of such handles by inode.
//!
//! A program may use `flock` and locks of the whole file on a descriptor that it shares with a
//! handle: only a process lock conflicts with neither. Process locks have two weaknesses, for which
//! this module compensates. Handles of one process do not exclude each other by them, so the module
//! counts handles. And they end when the process closes any descriptor of the file, so all code of
//! this crate closes such a descriptor by [`Inode::close`], which locks the bytes again.
//!
//! # While a descriptor is closed
//!
//! No other handle may get in between the close and the new lock. So during a close the claim holds
//! a second lock, which belongs to its file description and which no close of another descriptor
//! ends. The claim cannot hold that lock permanently: a program that locks the whole file with
//! `fcntl` would conflict with it, and wait for itself forever. As it is, a thread of the program
//! that locks the file during a close waits, or is refused, for some microseconds.
//!
//! | a claim | locks of its process | locks of its description |
//! |---|---|---|
//! | at rest | presence, writer | none |
//! | before a close, and behind it | presence, writer | closing; of a reader: presence and writer |
//! | between the close and the new lock | none | closing; of a reader: presence and writer |
//!
//! A handle that locks the presence byte locks the closing byte in the same call, and so does a
//! handle that takes a claim. A handle that locks only the writer byte checks the other two
//! afterwards. The locks of a claim that lets readers in are shared, so its process and its
//! description can hold the same bytes at once.
//!
//! A process that is killed during a close loses both kinds of locks, the second kind with the last
//! descriptor or mapping of the description. A child of a fork, or a program started by `exec`, may
//! still have one: then no other handle can open the file until it ends.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::byte_locks;
use super::fork::Origin;
use super::own_file::OwnFile;
use super::status::Status;
use crate::format::WRITER_BYTE_OFFSET;
use crate::testing::mutant::{self, Mutant};

/// Which other handles a handle keeps out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exclusion {
    /// Writers.
    Writers,
    /// Writers and readers.
    Everybody,
}

impl Exclusion {
    fn kind(self) -> i32 {
        match self {
            Self::Writers => libc::F_RDLCK,
            Self::Everybody => libc::F_WRLCK,
        }
    }

    fn lets_readers_in(self) -> bool {
        self == Self::Writers
    }
}

/// The bytes that a process lock is on.
#[derive(Clone, Copy, Debug)]
enum Bytes {
    /// The closing byte, and both bytes of a claim.
    All,
    Closing,
    Claim,
    /// The first byte of a claim.
    Presence,
}

/// Locks bytes for this process, or unlocks them, without waiting. Returns `false` if another
/// process has a conflicting lock.
fn lock(file: &File, bytes: Bytes, kind: i32) -> io::Result<bool> {
    let (start, count) = match bytes {
        Bytes::All => (WRITER_BYTE_OFFSET - 1, 3),
        Bytes::Closing => (WRITER_BYTE_OFFSET - 1, 1),
        Bytes::Claim => (WRITER_BYTE_OFFSET, 2),
        Bytes::Presence => (WRITER_BYTE_OFFSET, 1),
    };
    let region = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start.cast_signed(),
        l_len: count,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and the region outlives the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const region) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        // The file system has no locks.
        Some(libc::ENOLCK | libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS) => Ok(true),
        _ => Err(error),
    }
}

/// Locks the bytes of a claim. Returns `false` if another handle excludes it, or is closing a descriptor of
/// the file and holds a claim on it.
fn lock_claim(file: &File, exclusion: Exclusion) -> io::Result<bool> {
    let is_locked = lock(file, Bytes::All, exclusion.kind())?;
    if is_locked {
        // Leave the closing byte free: the description of the claim locks it during a close.
        lock(file, Bytes::Closing, libc::F_UNLCK)?;
    }
    Ok(is_locked)
}

/// The claim of this process on an inode.
#[derive(Debug)]
struct Claimed {
    /// The file through which the locks are held. It shares its description with the first handle.
    file: OwnFile,
    exclusion: Exclusion,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    handle_count: u32,
    /// Threads that are closing a descriptor of the file.
    closing_count: u32,
}

impl Claimed {
    /// Adds a handle; returns `false` if another handle excludes it.
    fn join(&self, file: &File, exclusion: Exclusion) -> io::Result<bool> {
        let both = [self.exclusion, exclusion];
        // Lock again: the process lock of the earlier handles may have ended since, and another
        // process may have got in.
        let is_in = !both.contains(&Exclusion::Everybody) && lock_claim(file, exclusion)?;
        self.state().handle_count += u32::from(is_in);
        Ok(is_in)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while it was locked cannot have left it inconsistent: each statement on it keeps
        // it valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock of the description, which survives the close.
    fn begin_closing(&self) {
        let mut state = self.state();
        state.closing_count += 1;
        if state.closing_count == 1
            && state.handle_count > 0
            && !mutant::is_made(Mutant::ClosesUnguarded)
            && let Ok(file) = self.file.checked()
        {
            // It is refused if the program has ended the claim and another handle has got in.
            let _ = byte_locks::try_lock_to_close(file, self.exclusion.lets_readers_in());
        }
    }

    /// Takes the process locks again, which the close has ended, and then releases the lock of the
    /// description.
    fn end_closing(&self) {
        let mut state = self.state();
        state.closing_count -= 1;
        // If the program has closed this descriptor too, the claim is lost: only a `flock` of the
        // program excludes others then.
        let Ok(file) = self.file.checked() else { return };
        if state.handle_count > 0 {
            let kind = self.exclusion.kind();
            // A writer that is about to be refused may hold the writer byte for a moment. The
            // presence byte alone excludes it.
            if !matches!(lock(file, Bytes::Claim, kind), Ok(true)) {
                let _ = lock(file, Bytes::Presence, kind);
            }
        }
        if state.closing_count == 0 {
            let _ = byte_locks::unlock_after_close(file, self.exclusion.lets_readers_in());
        }
    }
}

/// A file, identified by its device and its inode number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Inode {
    pub(super) device: u64,
    pub(super) number: u64,
}

impl Inode {
    pub(super) fn of(status: &Status) -> Self {
        Self { device: status.device, number: status.inode }
    }

    /// Closes a descriptor of the file, by `close`. The claims of this process on the file stay.
    pub(super) fn close<T>(self, close: impl FnOnce() -> T) -> T {
        let _closing = Closing::begin(self);
        close()
    }

    /// Locks the claims of this process again, after a descriptor of the file was closed without
    /// [`close`](Self::close).
    pub(super) fn renew(self) {
        self.close(|| ());
    }
}

/// The claims of a process, and the files of which it is closing descriptors.
#[derive(Debug, Default)]
struct List {
    /// The claims, which are owned by their handles.
    claimed: BTreeMap<Inode, Weak<Claimed>>,
    /// The files of which a descriptor is being closed, with one entry for each close.
    closing: Vec<Inode>,
}

impl List {
    /// Returns a claim. The caller must unlock the list before it drops the claim: dropping the
    /// last reference closes a file, and that locks the list.
    fn claimed(&self, inode: Inode) -> Option<Arc<Claimed>> {
        self.claimed.get(&inode).and_then(Weak::upgrade)
    }
}

/// The list of one process.
struct Listed {
    origin: Origin,
    list: Mutex<List>,
    /// The list of the parent, kept so that leak checkers find it reachable.
    _of_parent: *const Self,
}

/// The list of this process, or of an ancestor from which it was forked.
static LISTED: AtomicPtr<Listed> = AtomicPtr::new(std::ptr::null_mut());

/// Locks the list of this process. A child of a fork gets a list of its own, because the list of
/// its parent may be locked by a thread that does not exist in the child.
fn list() -> MutexGuard<'static, List> {
    loop {
        let last = LISTED.load(Ordering::Acquire);
        // SAFETY: `LISTED` is null or points to a value that was boxed below. Once the exchange has
        // published such a value, nothing frees it.
        if let Some(listed) = unsafe { last.as_ref() } {
            if mutant::is_made(Mutant::UsesListOfParent) {
                return listed.list.try_lock().expect("a child would wait for ever");
            }
            if listed.origin.is_here() {
                return listed.list.lock().unwrap_or_else(PoisonError::into_inner);
            }
        }
        let (origin, list) = (Origin::here(), Mutex::default());
        let new = Box::new(Listed { origin, list, _of_parent: last });
        let new = Box::into_raw(new);
        if LISTED.compare_exchange(last, new, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            // SAFETY: `new` was boxed above, and the failed exchange did not publish it, so this is
            // the only pointer to it.
            drop(unsafe { Box::from_raw(new) });
        }
    }
}

/// A close of a descriptor in progress.
struct Closing {
    inode: Inode,
    origin: Origin,
    claimed: Option<Arc<Claimed>>,
}

impl Closing {
    fn begin(inode: Inode) -> Self {
        // Take the origin before doing anything that a child of a fork would undo on drop.
        let origin = Origin::here();
        let mut list = list();
        list.closing.push(inode);
        let claimed = list.claimed(inode);
        drop(list);
        if let Some(claimed) = &claimed {
            claimed.begin_closing();
        }
        Self { inode, origin, claimed }
    }
}

impl Drop for Closing {
    /// Ends the close, except in a child of a fork that a signal handler has made meanwhile: both
    /// locks belong to the parent.
    fn drop(&mut self) {
        if !self.origin.is_here() && !mutant::is_made(Mutant::EndsCloseOfParent) {
            return;
        }
        #[cfg(all(test, not(loom), not(miri)))]
        tests::run_behind_close();
        if let Some(claimed) = self.claimed.take() {
            claimed.end_closing();
            // Dropping the last reference here closes its file, which locks the list, so this comes
            // before the list is locked below.
        }
        let mut list = list();
        if let Some(at) = list.closing.iter().position(|&inode| inode == self.inode) {
            list.closing.swap_remove(at);
        }
    }
}

/// Returns whether a handle of this process has a claim on a file.
pub(super) fn is_claimed(file: &File) -> io::Result<bool> {
    let inode = Inode::of(&Status::of(file)?);
    Ok(list().claimed.contains_key(&inode))
}

/// The place of one handle of this process, given up on drop.
#[derive(Debug)]
pub(crate) struct Claim {
    inode: Inode,
    origin: Origin,
    claimed: Arc<Claimed>,
}

impl Claim {
    /// Locks the bytes for a handle on `file`, or returns `None` if another handle, in this or
    /// another process, excludes it.
    pub(crate) fn take(file: &File, exclusion: Exclusion) -> io::Result<Option<Self>> {
        let status = Status::of(file)?;
        let (inode, origin) = (Inode::of(&status), Origin::here());
        let mut list = list();
        if let Some(claimed) = list.claimed(inode) {
            let is_in = claimed.join(file, exclusion);
            // Unlock the list before `claimed` is dropped, which may close its file and lock the
            // list.
            drop(list);
            return Ok(if is_in? { Some(Self { inode, origin, claimed }) } else { None });
        }
        if list.closing.contains(&inode) {
            // A close that began before there was a claim would end this one without renewing it.
            return Ok(None);
        }
        let again = OwnFile::known(file.try_clone()?, status.device, status.inode);
        let is_in = lock_claim(file, exclusion);
        if !matches!(is_in, Ok(true)) {
            // Unlock the list before `again` is dropped, as above.
            drop(list);
            return is_in.map(|_| None);
        }
        let state = Mutex::new(State { handle_count: 1, closing_count: 0 });
        let claimed = Arc::new(Claimed { file: again, exclusion, state });
        list.claimed.insert(inode, Arc::downgrade(&claimed));
        Ok(Some(Self { inode, origin, claimed }))
    }
}

impl Drop for Claim {
    /// Gives the place up.
    fn drop(&mut self) {
        if !self.origin.is_here() {
            return;
        }
        let mut list = list();
        let mut state = self.claimed.state();
        state.handle_count -= 1;
        if state.handle_count == 0 {
            if let Ok(file) = self.claimed.file.checked() {
                let _ = lock(file, Bytes::Claim, libc::F_UNLCK);
            }
            list.claimed.remove(&self.inode);
        }
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use std::cell::RefCell;
    use std::panic::AssertUnwindSafe;
    use std::rc::Rc;

    use super::super::byte_locks::{self, LockByte, LockKind};
    use super::super::neighbours::{Neighbours, try_keep_writers_out};
    use super::*;
    use crate::options::Sharing;

    /// Returns whether a read-only handle with a path gets in; keeps its lock.
    fn is_read(file: &File) -> bool {
        byte_locks::try_lock(file, LockByte::PRESENCE, LockKind::Shared).expect("nothing fails")
    }

    /// Returns whether a writing handle with a path gets in.
    fn is_written(file: &File) -> bool {
        byte_locks::try_lock(file, LockByte::WRITER, LockKind::Exclusive).expect("nothing fails")
    }

    thread_local! {
        /// What this thread does after its next close, before its claims are locked again.
        static BEHIND_CLOSE: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    }

    pub(super) fn run_behind_close() {
        if let Some(run) = BEHIND_CLOSE.take() {
            run();
        }
    }

    /// Closes another descriptor of a file by `close`, and returns what `look` finds before the
    /// claims are locked again.
    fn behind_close<T: 'static>(
        close: impl FnOnce(),
        look: impl FnOnce() -> T + 'static,
    ) -> Option<T> {
        let found = Rc::new(RefCell::new(None));
        let to_find = found.clone();
        BEHIND_CLOSE.set(Some(Box::new(move || *to_find.borrow_mut() = Some(look()))));
        close();
        found.take()
    }

    /// Runs `what` in a child of a fork, which a signal ends if it hangs, and returns whether it returned `true`.
    fn in_child(what: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child runs what it is given, and ends itself.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: the call has no conditions.
                unsafe { libc::alarm(60) };
                let is_true = std::panic::catch_unwind(AssertUnwindSafe(what)).unwrap_or(false);
                // SAFETY: nothing of the parent's runs.
                unsafe { libc::_exit(i32::from(!is_true)) }
            }
            child => {
                assert!(child > 0);
                let mut status = 0;
                // SAFETY: the pointer leads to an integer.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                status == 0
            }
        }
    }

    /// Which kinds of handle get in, each tried from a description or process of its own, and
    /// released again.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[expect(clippy::struct_excessive_bools, reason = "each is of another comer")]
    struct Comers {
        /// A handle that takes a turn.
        turn: bool,
        reader: bool,
        writer: bool,
        /// A handle that only keeps writers out, as a backup does.
        observer: bool,
        /// Claims of another process.
        claims: [bool; 2],
        /// Another process that locks the whole file.
        whole: bool,
    }

    /// Asks each, without a close in this process: that would end the claims, as what is asked for does.
    fn comers(file: &File) -> Comers {
        let is_in = |lock: &dyn Fn(&File) -> io::Result<bool>| {
            let is_in = lock(file).expect("nothing fails");
            Neighbours::unlock(file);
            is_in
        };
        let claims = [Exclusion::Writers, Exclusion::Everybody].map(|exclusion| {
            in_child(|| Claim::take(file, exclusion).expect("nothing fails").is_some())
        });
        let whole = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        Comers {
            turn: is_in(&|file| Neighbours::try_lock_to_write(file, Sharing::PerCall)),
            reader: is_in(&|file| Neighbours::try_lock_to_read(file, Sharing::PerCall)),
            writer: is_in(&|file| Neighbours::try_lock_to_write(file, Sharing::OneWriter)),
            observer: is_in(&try_keep_writers_out),
            claims,
            whole: in_child(|| rustix::fs::fcntl_lock(file, whole).is_ok()),
        }
    }

    /// Returns which kinds of handle get in while a descriptor of a claimed file is closed, and
    /// after that.
    fn comers_while_closing(exclusion: Exclusion, locks_whole: bool) -> [Comers; 2] {
        let file = tempfile::NamedTempFile::new().expect("nothing fails");
        let open = || File::options().read(true).write(true).open(file.path());
        let [own, closed, other] = [(); 3].map(|()| open().expect("nothing fails"));
        let other = Rc::new(other);
        let claim = Claim::take(&own, exclusion).expect("nothing fails").expect("it is free");
        if locks_whole {
            let whole = rustix::fs::FlockOperation::NonBlockingLockExclusive;
            rustix::fs::fcntl_lock(&own, whole).expect("it is this process's own");
        }
        let closed = OwnFile::new(closed).expect("nothing fails");
        let looked_at = other.clone();
        let while_closing = behind_close(|| drop(closed), move || comers(&looked_at));
        let behind = comers(&other);
        drop(claim);
        let after = comers(&other);
        assert!(
            after.turn && after.writer && after.whole && after.claims == [true; 2],
            "{after:?}"
        );
        [while_closing.expect("it was closed"), behind]
    }

    #[test]
    fn nobody_comes_in_while_another_descriptor_of_a_claimed_file_is_closed() {
        for locks_whole in [false, true] {
            let found = comers_while_closing(Exclusion::Everybody, locks_whole);
            assert_eq!(found, [Comers::default(); 2], "{locks_whole}");
            let found = comers_while_closing(Exclusion::Writers, locks_whole);
            let readers =
                Comers { reader: true, observer: true, claims: [true, false], ..Comers::default() };
            assert_eq!(found, [readers; 2], "{locks_whole}");
        }
        for exclusion in [Exclusion::Everybody, Exclusion::Writers] {
            let unguarded = || comers_while_closing(exclusion, false);
            let [found, _] = mutant::with(Mutant::ClosesUnguarded, unguarded);
            assert!(found.turn && found.writer && found.claims == [true; 2] && found.whole);
        }
    }

    /// Returns whether a writer gets in after a child of a fork has gone on with a close of its
    /// parent, during which the process locks of the parent have ended.
    fn is_written_beside_a_child() -> bool {
        let file = tempfile::NamedTempFile::new().expect("nothing fails");
        let open = || File::options().read(true).write(true).open(file.path());
        let [own, closed, other] = [(); 3].map(|()| open().expect("nothing fails"));
        let claim = Claim::take(&own, Exclusion::Everybody).expect("nothing fails");
        let claim = claim.expect("it is free");
        let mut closing = Some(Closing::begin(claim.inode));
        drop(closed);
        assert!(in_child(|| {
            closing = None;
            true
        }));
        let found = comers(&other);
        drop(closing);
        found.turn || found.writer
    }

    #[test]
    fn a_child_that_is_forked_within_a_close_leaves_the_locks_of_its_parent() {
        assert!(!is_written_beside_a_child());
        assert!(mutant::with(Mutant::EndsCloseOfParent, is_written_beside_a_child));
    }

    #[test]
    fn a_claim_that_comes_while_a_descriptor_is_closed_does_not_end_with_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || Rc::new(File::options().read(true).write(true).open(file.path()).unwrap());
        let (own, other) = (open(), open());
        let taking = own.clone();
        let closed = OwnFile::new(File::open(file.path()).unwrap()).unwrap();
        let take = move || Claim::take(&taking, Exclusion::Everybody).unwrap().is_some();
        assert_eq!(behind_close(|| drop(closed), take), Some(false), "the close is not over");
        let _claim = Claim::take(&own, Exclusion::Everybody).unwrap().unwrap();
        assert!(!is_read(&other));
    }

    #[test]
    fn a_child_that_is_forked_while_the_list_is_locked_drops_its_handles_and_claims() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::options().read(true).write(true).open(file.path()).unwrap();
        let own = open();
        let mut handles = [(); 2].map(|()| {
            let claim = Claim::take(&own, Exclusion::Writers).unwrap();
            Some((OwnFile::new(open()).unwrap(), claim.unwrap()))
        });
        let claimed = handles[0].as_ref().unwrap().1.claimed.clone();
        // As another thread might have.
        let locked = (list(), claimed.state());
        let mut drop_them = || {
            handles = [None, None];
            Claim::take(&open(), Exclusion::Writers).unwrap().is_some()
        };
        assert!(in_child(&mut drop_them));
        let take = || Claim::take(&own, Exclusion::Writers).is_ok();
        assert!(in_child(take));
        assert!(!in_child(|| mutant::with(Mutant::UsesListOfParent, take)));
        drop(locked);
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
        claim.inode.renew();
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
