//! `SharedFile`: a file that the program has opened, and shares with handles.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::IntoRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::failure::io_error;
use super::holders::locked;
use super::open::refuse_network;
use super::own_file::OwnFile;
use super::reader_table::open_again;
use super::regular::refuse_special;
use super::status::Status;
use super::writer_byte::{Claim, Exclusion, Inode};
use crate::error::Result;

/// A file that the program opened itself, to share it with a store
/// ([`Options::open_shared`](crate::Options::open_shared)).
///
/// The store leaves `flock` to the program. The program may lock its descriptor with `flock`, and
/// also the whole file with `fcntl`, without conflicting with a lock of the store. There are two
/// kinds of shared files.
///
/// *By turns* ([`by_turns`](Self::by_turns)): any number of handles, as with
/// [`Sharing::PerCall`](crate::Sharing::PerCall). Each handle has a file description of its own, on
/// which it locks bytes far behind the end of the file: during a change, and during a lookup if
/// another handle is changing the file or this handle only reads. If the program has locked the
/// whole file with `F_SETLK`, the calls of its own process take those bytes out of that lock, which
/// then holds for the rest of the file; calls of other processes wait. The kernel does not say who
/// holds a lock of an open file description (`F_OFD_SETLK`), so a program must not lock those bytes
/// with one.
///
/// *Claimed* ([`for_writer`](Self::for_writer), [`for_reader`](Self::for_reader)): for as long as
/// it is shared, the file holds the place of the one writer, or the place of a reader: a
/// process-wide lock (`F_SETLK`) on two of those bytes. This lock ends when the program closes any
/// other descriptor of the file, or unlocks the whole file with `fcntl`; a program that does either
/// must keep other writers out by locks of its own. Closing a handle of this crate, or a descriptor
/// with [`close_other`](Self::close_other), keeps the lock; a `splitpoint_legacy` call that opens
/// and closes the file ends it. Within a process such files exclude each other by inode, whatever
/// happens to the lock, unless the process contains two copies of this library.
///
/// Clones share one file and one place. Dropping the last clone gives up the place and closes the
/// file.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("a.spt");
/// use splitpoint::{ErrorKind, Options, SharedFile};
///
/// let open = || std::fs::File::options().read(true).write(true).create(true).open(&path);
/// let file = SharedFile::for_writer(open()?, &path)?;
/// let db = Options::new().open_shared(&file)?;
/// file.file().lock()?; // A lock of the program's own, which does not wait for the store.
/// db.put("key", "value")?;
///
/// let other = SharedFile::for_writer(open()?, &path).unwrap_err();
/// assert_eq!(other.kind(), ErrorKind::Locked);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SharedFile(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    // Closed before the place is given up.
    file: OwnFile,
    path: PathBuf,
    is_writer: bool,
    place: Place,
}

/// How many times to try again for a place that is taken, and how long to wait before each try.
const CLAIM_LOOKS: u32 = 20;
const LOOK_AGAIN: Duration = Duration::from_micros(500);

/// The place that a file holds among other handles.
#[derive(Debug)]
enum Place {
    /// `None` once the place was given up.
    Claimed(Mutex<Option<Claim>>),
    /// None, and the description that the next handle has.
    ByTurns(Mutex<Option<OtherFile>>),
}

impl SharedFile {
    /// Claims the place of the one writer of `file`, which is open for reading and writing. Messages
    /// call it `path`.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Locked`](crate::ErrorKind::Locked) if another handle has the store open.
    /// - [`ErrorKind::NotAStore`](crate::ErrorKind::NotAStore) if the file is not regular.
    /// - [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if it is on a network file system.
    /// - [`ErrorKind::Io`](crate::ErrorKind::Io) if a system call fails.
    ///
    /// After an error the file is closed.
    pub fn for_writer(file: File, path: impl AsRef<Path>) -> Result<Self> {
        Self::claim(file, path.as_ref(), true)
    }

    /// Claims a place of a reader of `file`, beside other readers.
    ///
    /// # Errors
    ///
    /// As [`for_writer`](Self::for_writer), with `Locked` if there is a writer.
    pub fn for_reader(file: File, path: impl AsRef<Path>) -> Result<Self> {
        Self::claim(file, path.as_ref(), false)
    }

    /// Shares `file` with handles that change it by turns or, if it is open for reading only, read it.
    /// Messages call it `path`.
    ///
    /// This excludes no other handle, and locks nothing. The handles need file descriptions of
    /// their own. If the file cannot be opened again, because the program no longer has the
    /// permission or the system has no locks of file descriptions, this acts as
    /// [`for_writer`](Self::for_writer) or [`for_reader`](Self::for_reader), and
    /// [`takes_turns`](Self::takes_turns) returns `false`.
    ///
    /// # Errors
    ///
    /// As [`for_writer`](Self::for_writer), but `Locked` only if this acts as a claim. If another file claims
    /// the store, even in this process, a handle waits for it when it is opened and in its calls.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a.spt");
    /// use splitpoint::{Options, SharedFile};
    ///
    /// let open = || -> Result<_, Box<dyn std::error::Error>> {
    ///     let file = std::fs::File::options().read(true).write(true).create(true).open(&path)?;
    ///     Ok(Options::new().open_shared(&SharedFile::by_turns(file, &path)?)?)
    /// };
    /// let (one, other) = (open()?, open()?);
    /// one.increment("calls", 1)?;
    /// assert_eq!(other.increment("calls", 1)?, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn by_turns(file: File, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let is_writer = is_writable(&file);
        // Another `SharedFile` of this process may have claimed the file, perhaps only briefly: the
        // handles wait until it gives up its claim.
        let mut options = File::options();
        options.read(true).write(is_writer);
        let own = match open_again(&file, path, &options) {
            Ok(own) => own,
            Err(source) if is_short_of(&source) => {
                Self::close_other(file);
                return Err(io_error("open", path, source));
            }
            Err(_) => return Self::claim(file, path, is_writer),
        };
        let status = status_of(&file, path)?;
        if let Err(error) = refuse_strange(&file, &status, path) {
            Inode::of(&status).close(|| drop(file));
            return Err(error);
        }
        let place = Place::ByTurns(Mutex::new(Some(own)));
        Ok(Self::new(file, &status, path, is_writer, place))
    }

    fn new(file: File, status: &Status, path: &Path, is_writer: bool, place: Place) -> Self {
        let file = OwnFile::known(file, status.device, status.inode);
        Self(Arc::new(Inner { file, path: path.to_path_buf(), is_writer, place }))
    }

    fn claim(file: File, path: &Path, is_writer: bool) -> Result<Self> {
        let status = status_of(&file, path)?;
        match Self::try_claim(&file, &status, path, is_writer) {
            Ok(claim) => {
                let place = Place::Claimed(Mutex::new(Some(claim)));
                Ok(Self::new(file, &status, path, is_writer, place))
            }
            Err(error) => {
                Inode::of(&status).close(|| drop(file));
                Err(error)
            }
        }
    }

    fn try_claim(file: &File, status: &Status, path: &Path, is_writer: bool) -> Result<Claim> {
        refuse_strange(file, status, path)?;
        let exclusion = if is_writer { Exclusion::Everybody } else { Exclusion::Writers };
        // A handle that holds no lock between calls may be inside a call.
        for look in 0..CLAIM_LOOKS {
            if look > 0 {
                thread::sleep(LOOK_AGAIN);
            }
            let claim = Claim::take(file, exclusion);
            if let Some(claim) = claim.map_err(|source| io_error("lock", path, source))? {
                return Ok(claim);
            }
        }
        Err(locked(path, file))
    }

    /// Closes another descriptor of a file that this process may have claimed, and keeps the
    /// claims.
    pub fn close_other(file: File) {
        match Status::of(&file) {
            Ok(status) => Self::close_by(&status, || drop(file)),
            Err(_) => drop(file),
        }
    }

    /// Calls `close`, which closes a descriptor of the file with the given metadata. The claims of
    /// this process on that file stay: they are locked again before any other handle can take them.
    pub fn close_by<T>(status: &Status, close: impl FnOnce() -> T) -> T {
        Inode::of(status).close(close)
    }

    /// Returns the open file.
    pub fn file(&self) -> &File {
        &self.0.file
    }

    /// Returns the path that messages use.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Returns whether handles may change the file: it holds the place of the writer, or writers
    /// take turns.
    pub fn is_writer(&self) -> bool {
        self.0.is_writer
    }

    /// Returns whether handles share the file call by call.
    pub fn takes_turns(&self) -> bool {
        matches!(self.0.place, Place::ByTurns(..))
    }

    /// Gives up the place and returns the file, or `None` while a clone or a handle still uses it.
    pub fn into_file(self) -> Option<File> {
        Arc::into_inner(self.0).and_then(|inner| inner.file.into_file())
    }

    /// Gives up the place of a claimed file although clones are left. It is for handles that the
    /// program has leaked (`mem::forget`) because another process truncated the file under them:
    /// those must be neither used nor dropped afterwards.
    pub fn give_up_place(&self) {
        if let Place::Claimed(claim) = &self.0.place {
            drop(claim.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
    }

    /// Returns another descriptor of the same description.
    pub(super) fn descriptor(&self) -> io::Result<File> {
        self.0.file.try_clone()
    }

    /// Returns a description for a handle of its own, if handles take turns.
    pub(super) fn own_description(&self) -> Option<io::Result<OtherFile>> {
        let Place::ByTurns(next) = &self.0.place else { return None };
        if let Some(own) = next.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Some(Ok(own));
        }
        let mut options = File::options();
        options.read(true).write(self.0.is_writer);
        let file = self.0.file.checked();
        Some(file.and_then(|file| open_again(file, &self.0.path, &options)))
    }

    /// Returns whose claims end when a descriptor of the file is closed.
    pub(super) fn inode(&self) -> Inode {
        self.0.file.inode()
    }
}

/// Another descriptor of a file that this process may have claimed. Dropping it keeps the claims.
#[derive(Debug)]
pub(super) struct OtherFile {
    /// `Some` until the drop.
    file: Option<File>,
    inode: Inode,
}

impl OtherFile {
    pub(super) fn new(file: File, status: &Status) -> Self {
        Self { file: Some(file), inode: Inode::of(status) }
    }

    /// Returns the file, for a handle, and whose claims end with it if it comes to none.
    pub(super) fn into_parts(mut self) -> (File, Inode) {
        (self.file.take().expect("it is there until the drop"), self.inode)
    }
}

impl Deref for OtherFile {
    type Target = File;

    fn deref(&self) -> &File {
        self.file.as_ref().expect("it is there until the drop")
    }
}

impl Drop for OtherFile {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        if Status::of(&file).is_ok_and(|now| Inode::of(&now) == self.inode) {
            self.inode.close(|| drop(file));
        } else {
            // The program has closed the descriptor, and its number may by now belong to another
            // file.
            let _ = file.into_raw_fd();
            self.inode.renew();
        }
    }
}

/// Refuses a file that cannot hold a store.
fn refuse_strange(file: &File, status: &Status, path: &Path) -> Result<()> {
    refuse_special(status.kind, path)?;
    refuse_network(file, path)
}

fn status_of(file: &File, path: &Path) -> Result<Status> {
    Status::of(file).map_err(|source| io_error("read the size of", path, source))
}

/// Returns whether an open failed for a reason that may pass.
fn is_short_of(error: &io::Error) -> bool {
    let short = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
    error.raw_os_error().is_some_and(|code| short.contains(&Errno::from_raw_os_error(code)))
}

fn is_writable(file: &File) -> bool {
    let flags = rustix::fs::fcntl_getfl(file);
    flags.is_ok_and(|flags| flags & OFlags::RWMODE != OFlags::RDONLY)
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use std::os::fd::AsRawFd as _;
    use std::sync::Barrier;

    use super::*;
    use crate::db::Db;
    use crate::options::{Options, Sharing};

    fn file(path: &Path) -> File {
        let options =
            File::options().read(true).write(true).create(true).truncate(false).open(path);
        options.expect("nothing fails")
    }

    fn by_turns(path: &Path) -> SharedFile {
        SharedFile::by_turns(file(path), path).expect("nobody stands in the way for long")
    }

    #[test]
    fn a_file_that_another_thread_has_claimed_for_a_moment_is_shared_by_turns() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        for is_writer in [true, false] {
            let claim = SharedFile::claim(file(&path), &path, is_writer).unwrap();
            let shared = by_turns(&path);
            assert!(shared.takes_turns());
            let at_once = Options::new().lock_timeout(Duration::ZERO);
            assert!(at_once.open_shared(&shared).is_err(), "it is claimed");
            drop(claim);
            let db = at_once.open_shared(&shared).unwrap();
            let other = at_once.open_shared(&by_turns(&path)).unwrap();
            db.put("key", "value").unwrap();
            other.put("key", "other").unwrap();
            assert_eq!(db.get("key").unwrap().unwrap(), "other");
        }
    }

    #[test]
    fn a_handle_of_a_claimed_file_takes_no_turns() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        for sharing in [Sharing::Shared, Sharing::PerCall, Sharing::Exclusive] {
            let claim = SharedFile::for_writer(file(&path), &path).unwrap();
            let db = Options::new().sharing(sharing).open_shared(&claim).unwrap();
            db.put("key", "value").unwrap();
            assert!(!db.store().takes_turns(), "{sharing:?}");
        }
    }

    /// A backup of the log has only a byte locked. A close that shortens the file under it would kill it.
    #[test]
    fn a_handle_of_a_claimed_file_does_not_shorten_it_under_a_backup() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        for is_backed_up in [true, false] {
            let claim = SharedFile::for_writer(file(&path), &path).unwrap();
            let db = Options::new().open_shared(&claim).unwrap();
            for i in 0..4096_u32 {
                db.put(i.to_le_bytes(), [7; 1000]).unwrap();
            }
            db.clear().unwrap();
            let bytes = std::fs::metadata(&path).unwrap().len();
            let observed = crate::storage::open::open_to_observe(&path).unwrap();
            let reading = is_backed_up.then(|| observed.observer.begin_reading().unwrap());
            db.close().unwrap();
            let is_as_long = std::fs::metadata(&path).unwrap().len() >= bytes;
            drop(reading);
            assert_eq!(is_as_long, is_backed_up);
        }
    }

    /// Returns the positions of the open descriptions of a file, except of the program's.
    fn positions(shared: &SharedFile, path: &Path) -> Vec<u64> {
        let is_of_handle = |number: &i32| {
            *number != shared.file().as_raw_fd()
                && std::fs::read_link(format!("/proc/self/fd/{number}")).is_ok_and(|to| to == path)
        };
        let position = |number: i32| {
            let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}"));
            let text = text.expect("it is open");
            let position = text.lines().find_map(|line| line.strip_prefix("pos:"));
            position.and_then(|found| found.trim().parse().ok()).expect("it has a position")
        };
        (0..1000).filter(is_of_handle).map(position).collect()
    }

    #[test]
    fn a_handle_by_turns_marks_its_own_description_and_leaves_the_programs_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("a");
        let shared = by_turns(&path);
        let db = Options::new().open_shared(&shared).unwrap();
        for i in 0..1000_u32 {
            db.put(i.to_le_bytes(), [7; 1000]).unwrap();
        }
        let marks = positions(&shared, &path).into_iter().filter(|&it| it >= 1 << 40);
        assert_eq!(marks.count(), 1);
        assert_eq!(rustix::fs::tell(shared.file()), Ok(0));
    }

    #[test]
    fn a_place_that_was_given_up_is_free_though_a_handle_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        for is_writer in [true, false] {
            let claim = SharedFile::claim(file(&path), &path, is_writer).unwrap();
            let clone = claim.clone();
            assert!(SharedFile::for_writer(file(&path), &path).is_err());
            claim.give_up_place();
            assert!(SharedFile::for_writer(file(&path), &path).is_ok());
            clone.inode().renew();
            assert!(clone.file().metadata().is_ok());
        }
    }

    /// Runs `call` while somebody has the file for itself, who lets go of it after a while.
    fn beside_one_alone<T: Send>(path: &Path, call: impl FnOnce() -> T + Send) -> T {
        let alone = Options::new().sharing(Sharing::Exclusive).open(path).expect("it is free");
        let begun = Barrier::new(2);
        thread::scope(|scope| {
            let called = scope.spawn(|| {
                begun.wait();
                call()
            });
            begun.wait();
            // Longer than any call that does not wait.
            thread::sleep(Duration::from_millis(100));
            drop(alone);
            called.join().expect("it does not panic")
        })
    }

    #[test]
    fn lookups_changes_and_openings_by_turns_wait_for_one_that_has_the_file_for_itself() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let db = Options::new().open_shared(&by_turns(&path)).unwrap();
        db.put("key", "value").unwrap();
        let reader = File::open(&path).unwrap();
        let reader =
            Options::new().read_only().open_shared(&SharedFile::by_turns(reader, &path).unwrap());
        let reader = reader.unwrap();
        let get = |db: &Db| db.get("key").map(|found| found.is_some());
        assert!(beside_one_alone(&path, || get(&db)).unwrap());
        assert!(beside_one_alone(&path, || get(&reader)).unwrap());
        beside_one_alone(&path, || db.put("key", "value")).unwrap();
        beside_one_alone(&path, || Options::new().open_shared(&by_turns(&path))).unwrap();
    }
}
