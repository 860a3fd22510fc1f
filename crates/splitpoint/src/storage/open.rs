//! Opens, creates and locks the file of a store.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::fs::OFlags;

use super::Storage;
use super::byte_locks::{self, LockByte, LockKind};
use super::failure::io_error;
use super::holders::{locked, pid_of, refused, writer_word};
use super::mapped::Mapped;
use super::neighbours::{Asked, Neighbours, let_writers_in, try_keep_writers_out};
use super::reader_table::{sleep_until_handed_over, wait_for_hand_over};
use super::regular::open_and_look;
use super::shared_file::{OtherFile, SharedFile};
use super::status::Status;
use super::waiting::Waiting;
use crate::error::{Error, Result, Unsupported};
use crate::options::{Access, Create, Options, Sharing};

/// Number of attempts to open a file that other processes keep replacing, before it counts as
/// locked.
pub(super) const OPENINGS_MAX: u32 = 100;
/// Minimum time for which a reader waits for a writer that is opening the file.
pub(crate) const OPENING_WAIT: Duration = Duration::from_secs(30);
/// Minimum time for which an open waits if there is no writer.
const MOMENT: Duration = Duration::from_millis(50);
/// Longest polling interval while a file is locked.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Default for how long a handle waits for its turn.
pub(crate) const TURN_WAIT: Duration = Duration::from_secs(10);

/// A file that this handle has locked and mapped.
#[derive(Debug)]
pub(crate) struct Locked {
    pub(crate) storage: Mapped,
    /// Whether this handle has created it.
    pub(crate) is_new: bool,
}

/// Opens the file at `path` and locks it, waiting for other handles as long as the options allow.
///
/// A new file is empty; an existing one has not been read.
pub(crate) fn open_and_lock(
    path: &Path,
    options: &Options,
    waiting: &mut Waiting<'_>,
) -> Result<Locked> {
    open_and_lock_with(path, options, waiting, || ())
}

/// Like [`open_and_lock`], but calls `before_lock` after each open, before the lock.
///
/// The process that held the lock at the time of the open may have renamed another file over this
/// one before releasing it, as a rehash and a backup do. Changes to the old file would be lost with
/// it, so this checks the name again under the lock.
fn open_and_lock_with(
    path: &Path,
    options: &Options,
    waiting: &mut Waiting<'_>,
    mut before_lock: impl FnMut(),
) -> Result<Locked> {
    waiting.begin_step();
    let mut opening_count = 0;
    let mut was_refused = false;
    // The file of the last attempt, reused while it still has the name: closing it would end claims
    // of this process on the file, and another process could get in before they are renewed.
    let mut kept: Option<(OtherFile, Status)> = None;
    while opening_count < OPENINGS_MAX {
        // The program may have closed the descriptor in the meantime, and its number may belong to
        // another file.
        let is_kept = |(file, opened): &(OtherFile, Status)| {
            leads_to(path, opened) && Status::of(file).is_ok_and(|now| now.is_same_file(opened))
        };
        let last = kept.take().filter(is_kept);
        let (file, opened, is_new) = if let Some((file, opened)) = last {
            (file, opened, false)
        } else {
            let (file, opened, is_new) = open(path, options)?;
            // Wrapped, so that it is closed properly however the attempt ends, also by a panic of
            // the program's functions.
            let file = OtherFile::new(file, &opened);
            refuse_network(&file, path)?;
            before_lock();
            (file, opened, is_new)
        };
        if !try_lock(&file, options).map_err(|source| io_error("lock", path, source))? {
            let awaits_turn = is_turn_awaited(&file, options);
            let wait_min = match options.access {
                Access::ReadOnly if Neighbours::is_being_opened(&file) => OPENING_WAIT,
                _ if awaits_turn => turn_wait_min(options),
                // An opening reader locks the file for a moment.
                _ if !Neighbours::is_being_written(&file) => MOMENT,
                _ => Duration::ZERO,
            };
            // The lock may have been released between the attempt and this check, so try once more
            // before failing.
            if was_refused && (waiting.is_late(wait_min) || options.stops_waiting()) {
                return Err(refused(path, &file, options));
            }
            waiting.tell(|| refused(path, &file, options));
            let pause = LOOK_AGAIN.min(waiting.step_elapsed());
            let is_handed_over = awaits_turn && wait_for_turn(&file, options.access, pause);
            // Do not reuse a file that this attempt has created: by the next attempt it may be the
            // store of another process.
            kept = (!is_new).then_some((file, opened));
            if std::mem::replace(&mut was_refused, true) && !is_handed_over {
                thread::sleep(pause);
            }
            continue;
        }
        if !leads_to(path, &opened) {
            // Unlock explicitly, as in `Mapped`: the child of a fork may have the file open for a
            // moment.
            Neighbours::unlock(&file);
            opening_count += 1;
            continue;
        }
        let is_writable = options.access == Access::ReadWrite;
        let (file, inode) = file.into_parts();
        let storage = Mapped::new(file, path.to_path_buf(), is_writable).map_err(|source| {
            inode.renew();
            io_error("map", path, source)
        })?;
        storage.trust_until_opened();
        return Ok(Locked { storage, is_new });
    }
    Err(Error::Locked { path: path.to_path_buf(), holders: Vec::new() })
}

/// Maps a file that the program has opened, sharing its file description.
pub(crate) fn share(
    file: &SharedFile,
    options: &Options,
    waiting: &mut Waiting<'_>,
) -> Result<Mapped> {
    let is_writable = options.access == Access::ReadWrite;
    if is_writable && !file.is_writer() {
        let reason = "a file that was claimed for a reader cannot be written".to_string();
        return Err(Error::Invalid { what: "shared file", reason });
    }
    let storage = Mapped::shared(file, is_writable);
    let storage = storage.map_err(|source| io_error("map", file.path(), source))?;
    if let Some(neighbours) = storage.neighbours() {
        wait_for_lock(neighbours, file, options, waiting)?;
        // A previous holder of the lock may have extended the file.
        storage.see_size().map_err(|source| io_error("map", file.path(), source))?;
    }
    storage.trust_until_opened();
    Ok(storage)
}

/// Locks a file to open a handle that takes turns. The descriptor stays open during the wait,
/// because closing it would end the program's own locks on the file.
fn wait_for_lock(
    neighbours: &Neighbours,
    file: &SharedFile,
    options: &Options,
    waiting: &mut Waiting<'_>,
) -> Result<()> {
    waiting.begin_step();
    loop {
        let is_in = neighbours.try_lock_to_open(options.access, options.sharing);
        if is_in.map_err(|source| io_error("lock", file.path(), source))? {
            return Ok(());
        }
        // An exclusive holder may be only a call, such as a reorganization or the creation of a
        // store.
        if waiting.is_late(turn_wait_min(options)) || options.stops_waiting() {
            return Err(locked(file.path(), file.file()));
        }
        let pause = (waiting.step_elapsed() / 4).clamp(Duration::from_micros(20), LOOK_AGAIN);
        let is_writer = options.access == Access::ReadWrite;
        if !is_writer || !wait_for_hand_over(file.file(), pause) {
            thread::sleep(pause);
        }
    }
}

/// Claims a file that is shared by turns for a reader that must keep writers out.
pub(crate) fn claim_to_read(
    file: &SharedFile,
    options: &Options,
    waiting: &mut Waiting<'_>,
) -> Result<SharedFile> {
    waiting.begin_step();
    loop {
        let again = file.descriptor().map_err(|source| io_error("open", file.path(), source))?;
        match SharedFile::for_reader(again, file.path()) {
            Err(Error::Locked { .. })
                if !waiting.is_late(turn_wait_min(options)) && !options.stops_waiting() =>
            {
                thread::sleep(LOOK_AGAIN);
            }
            claimed => return claimed,
        }
    }
}

/// Returns the minimum time for which an open waits for its turn, unless the program has bounded
/// all of its waits.
fn turn_wait_min(options: &Options) -> Duration {
    if options.lock_timeout.is_some() { Duration::ZERO } else { TURN_WAIT }
}

/// Returns whether a handle that takes turns, or a reader that excludes such handles, was refused
/// because another handle has its turn.
fn is_turn_awaited(file: &File, options: &Options) -> bool {
    match (options.access, options.sharing) {
        // An exclusive handle has the whole file locked.
        (Access::ReadWrite, Sharing::Shared) => Neighbours::is_open_to_turns(file),
        (Access::ReadWrite, Sharing::PerCall) => true,
        (Access::ReadOnly, Sharing::Exclusive) => Neighbours::is_written_by_turns(file),
        _ => false,
    }
}

/// Requests the turn, and sleeps until the present one is over, for at most `pause`. Returns
/// whether it slept.
fn wait_for_turn(file: &File, access: Access, pause: Duration) -> bool {
    if access == Access::ReadWrite {
        return wait_for_hand_over(file, pause);
    }
    let _asked = Asked::new(file);
    sleep_until_handed_over(file, pause);
    true
}

/// Tries to lock a file for a handle, and returns whether that succeeded.
fn try_lock(file: &File, options: &Options) -> io::Result<bool> {
    match options.access {
        Access::ReadWrite => Neighbours::try_lock_to_write(file, options.sharing),
        Access::ReadOnly => Neighbours::try_lock_to_read(file, options.sharing),
    }
}

/// Returns whether this open file still has the name.
pub(super) fn is_named(file: &File, path: &Path) -> Result<bool> {
    let opened = Status::of(file).map_err(|source| io_error("read the size of", path, source))?;
    Ok(leads_to(path, &opened))
}

/// Returns whether a path leads to the file that was opened.
pub(super) fn leads_to(path: &Path, opened: &Status) -> bool {
    Status::at(path).is_ok_and(|named| named.is_same_file(opened))
}

/// A file that this handle reads while others may write to it.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) storage: Mapped,
    pub(crate) observer: Observer,
}

/// Observes the locks of a file without holding the lock of a handle.
#[derive(Debug)]
pub(crate) struct Observer {
    file: OtherFile,
}

/// Keeps writers out until it is dropped.
#[derive(Debug)]
pub(crate) struct WritersOut<'a>(&'a File);

impl Drop for WritersOut<'_> {
    fn drop(&mut self) {
        // Closing the file would release the locks anyway.
        let _ = let_writers_in(self.0);
    }
}

/// Keeps writers from truncating the file until it is dropped.
#[derive(Debug)]
pub(crate) struct Reading<'a>(&'a File);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        // Closing the file would unlock it anyway.
        let _ = byte_locks::unlock(self.0, LockByte::pin(0));
    }
}

impl Observer {
    /// Keeps the file from being truncated, by the lock of a reader without a place. A program that
    /// has locked the whole file has locked this byte, too, and lets no writer in.
    pub(crate) fn begin_reading(&self) -> io::Result<Reading<'_>> {
        byte_locks::try_lock(&self.file, LockByte::pin(0), LockKind::Shared)?;
        Ok(Reading(&self.file))
    }

    /// Returns whether a writer is opening the file, or making a store in it.
    pub(crate) fn is_being_opened(&self) -> bool {
        Neighbours::is_being_opened(&self.file)
    }

    /// Keeps writers out, or returns `None` if there is a writer.
    pub(crate) fn keep_writers_out(&self) -> Option<WritersOut<'_>> {
        let is_kept = try_keep_writers_out(&self.file).is_ok_and(|is_kept| is_kept);
        is_kept.then_some(WritersOut(&self.file))
    }

    /// Returns the error that others change the file.
    pub(crate) fn locked(&self, path: &Path) -> Error {
        locked(path, &self.file)
    }

    /// Returns the process that has the file open for writing, if the file names it.
    pub(crate) fn writer_pid(&self) -> Option<u32> {
        writer_pid(&self.file)
    }
}

/// Opens the file at `path` for reading, without a lock.
pub(crate) fn open_to_observe(path: &Path) -> Result<Observed> {
    let (file, status) = open_and_look(path, OpenOptions::new().read(true), OFlags::empty())?;
    let observer = Observer { file: OtherFile::new(file, &status) };
    refuse_network(&observer.file, path)?;
    let file = observer.file.try_clone().map_err(|source| io_error("open", path, source))?;
    let storage = Mapped::new(file, path.to_path_buf(), false)
        .map_err(|source| io_error("map", path, source))?;
    Ok(Observed { storage, observer })
}

/// Opens or creates the regular file at `path`, and returns what the system says of it, and whether it is new.
fn open(path: &Path, options: &Options) -> Result<(File, Status, bool)> {
    let mut flags = OpenOptions::new();
    flags.read(true).write(options.access == Access::ReadWrite).mode(options.file_mode);
    let open = |flags: &OpenOptions, is_new| {
        let opened = open_and_look(path, flags, OFlags::empty());
        opened.map(|(file, status)| (file, status, is_new))
    };
    let existing = || open(&flags, false);
    let new = || open(flags.clone().create_new(true), true);
    match options.create {
        Create::New => new(),
        Create::Never => existing(),
        Create::IfMissing => match existing() {
            Err(error) if is_missing(&error) => match new() {
                // Another process was faster.
                Err(Error::Exists { .. }) => existing(),
                created => created,
            },
            opened => opened,
        },
    }
}

fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

/// Refuses file systems whose mappings are not coherent between machines.
pub(super) fn refuse_network(file: &File, path: &Path) -> Result<()> {
    const NETWORK: [(i64, &str); 6] = [
        (0x6969, "NFS"),
        (0xff53_4d42, "CIFS"),
        (0xfe53_4d42, "SMB"),
        (0x517b, "SMB"),
        (0x5346_414f, "AFS"),
        (0x00c3_6400, "Ceph"),
    ];
    let Ok(statistics) = rustix::fs::fstatfs(file) else { return Ok(()) };
    let kind = statistics.f_type & 0xffff_ffff;
    match NETWORK.iter().find(|(magic, _)| *magic == kind) {
        Some((_, name)) => Err(Error::Unsupported {
            path: path.to_path_buf(),
            feature: Unsupported::FileSystem,
            reason: format!(
                "{name} does not keep mappings coherent; copy the file to a local disk"
            ),
        }),
        None => Ok(()),
    }
}

/// Removes a file that this handle created but could not turn into a store.
pub(crate) fn remove_new(path: &Path) {
    // Only the first error counts.
    let _ = std::fs::remove_file(path);
}

/// Returns the process that the live header names, if it lives. While the file is locked that is
/// the writer, unless readers have locked it after a writer was killed.
pub(super) fn writer_pid(file: &File) -> Option<u32> {
    pid_of(&writer_word(file)?)
}

/// Makes the name of a new file durable.
pub(crate) fn sync_directory(path: &Path) -> Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(parent)
        .and_then(|directory| directory.sync_all())
        .map_err(|source| io_error("sync the directory of", path, source))
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::ErrorKind;

    /// Opens the file `a` of a directory, where `between` runs once between the opening and the
    /// lock, and returns the inode that was locked and the one that has the name.
    fn inodes_after(access: Access, create: Create, between: impl Fn(&Path)) -> (u64, u64) {
        let dir = tempfile::tempdir().expect("nothing fails");
        let path = dir.path().join("a");
        fs::write(&path, b"old").expect("nothing fails");
        let mut is_first = true;
        let options = Options { access, create, ..Options::new() };
        let locked = open_with(&path, &options, || {
            if std::mem::take(&mut is_first) {
                between(&path);
            }
        });
        let locked = locked.expect("nothing fails").storage;
        (
            crate::storage::Storage::identity(&locked).inode,
            fs::metadata(&path).expect("nothing fails").ino(),
        )
    }

    /// Opens a file in a wait that begins.
    fn open_with(path: &Path, options: &Options, before_lock: impl FnMut()) -> Result<Locked> {
        open_and_lock_with(path, options, &mut Waiting::new(options), before_lock)
    }

    fn open(path: &Path, options: &Options) -> Result<Locked> {
        open_with(path, options, || ())
    }

    fn replace(path: &Path) {
        let new = path.with_extension("new");
        fs::write(&new, b"new").expect("nothing fails");
        fs::rename(&new, path).expect("nothing fails");
    }

    #[test]
    fn a_file_replaced_between_opening_and_lock_is_not_used() {
        for access in [Access::ReadWrite, Access::ReadOnly] {
            let (locked, named) = inodes_after(access, Create::Never, replace);
            assert_eq!(locked, named, "{access:?}");
        }
    }

    /// Checks that `open` is refused when the function of its options has returned `true`, at the third call.
    fn check_ends<T: std::fmt::Debug>(options: &Options, open: impl FnOnce(&Options) -> Result<T>) {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let stopped = options.clone().stop_waiting(move || counted.fetch_add(1, Relaxed) == 2);
        let refused = open(&stopped).expect_err("the function ends the wait");
        assert_eq!((refused.kind(), calls.load(Relaxed)), (ErrorKind::Locked, 3), "{options:?}");
    }

    #[test]
    fn an_open_that_waits_for_its_turn_ends_when_the_program_says_so() {
        for sharing in [Sharing::Shared, Sharing::PerCall] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("a");
            let options = Options::new().sharing(sharing);
            let _opening = open(&path, &options).unwrap();
            check_ends(&options, |options| open(&path, options));
        }
    }

    #[test]
    fn an_open_that_waits_for_one_that_opens_ends_when_the_program_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let _opening = open(&path, &Options::new()).unwrap();
        check_ends(&Options::new().read_only(), |options| open(&path, options));
    }

    /// Closing the file would end claims of this process for a moment.
    #[test]
    fn an_open_that_waits_keeps_its_file_until_the_name_leads_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let _writer = open(&path, &Options::new()).unwrap();
        let count = |options: &Options| {
            let openings = AtomicUsize::new(0);
            let count = || _ = openings.fetch_add(1, Relaxed);
            (open_with(&path, options, count), openings.into_inner())
        };
        let looks = Arc::new(AtomicUsize::new(0));
        let counted = looks.clone();
        let options = Options::new().lock_timeout(std::time::Duration::MAX);
        let stopped = options.clone().stop_waiting(move || counted.fetch_add(1, Relaxed) == 5);
        let (refused, openings) = count(&stopped);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Locked);
        assert_eq!((looks.load(Relaxed), openings), (6, 1));

        let replaced = path.clone();
        let (locked, openings) = count(&options.stop_waiting(move || {
            replace(&replaced);
            false
        }));
        let locked = crate::storage::Storage::identity(&locked.unwrap().storage).inode;
        assert_eq!((locked, openings), (fs::metadata(&path).unwrap().ino(), 2));
    }

    #[test]
    fn an_open_of_a_shared_file_ends_its_wait_when_the_program_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let options = Options::new().sharing(Sharing::PerCall);
        let opening = open(&path, &options).unwrap();
        let file = || File::options().read(true).write(true).open(&path).unwrap();
        let by_turns = SharedFile::by_turns(file(), &path).unwrap();
        check_ends(&options, |options| share(&by_turns, options, &mut Waiting::new(options)));
        drop(opening);

        let _writer = SharedFile::for_writer(file(), &path).unwrap();
        check_ends(&options.read_only(), |options| {
            claim_to_read(&by_turns, options, &mut Waiting::new(options))
        });
    }

    #[test]
    fn a_file_removed_between_opening_and_lock_is_made_anew_or_missed() {
        let remove = |path: &Path| fs::remove_file(path).unwrap();
        let (locked, named) = inodes_after(Access::ReadWrite, Create::IfMissing, remove);
        assert_eq!(locked, named);

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::write(&path, b"old").unwrap();
        let opened = open_with(&path, &Options::new().create(Create::Never), || {
            let _ = fs::remove_file(&path);
        });
        assert!(is_missing(&opened.unwrap_err()));
    }

    #[test]
    fn a_file_that_is_replaced_again_and_again_is_an_error_and_no_endless_loop() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::write(&path, b"old").unwrap();
        let options = Options::new().create(Create::Never);
        let opened = open_with(&path, &options, || replace(&path));
        assert!(
            matches!(&opened, Err(Error::Locked { holders, .. }) if holders.is_empty()),
            "{opened:?}"
        );
    }

    #[test]
    fn a_new_file_has_its_permissions_from_the_first_moment() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("private");
        let mode = || fs::metadata(&path).unwrap().mode() & 0o777;
        let mut modes = Vec::new();
        let options = Options::new().file_mode(0o600);
        let locked = open_with(&path, &options, || modes.push(mode())).unwrap();
        drop(locked);
        assert_eq!((modes, mode()), (vec![0o600], 0o600));

        drop(open(&path, &Options::new().file_mode(0o666)).unwrap());
        assert_eq!(mode(), 0o600, "an existing file keeps its permissions");
    }
}
