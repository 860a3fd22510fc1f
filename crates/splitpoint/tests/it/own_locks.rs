//! Programs that lock the file of a store themselves, on a descriptor that they share with it: each lock that a
//! program may hold, beside calls of the same process and of another one.
//!
//! The other process is a child of a fork, which opens what it uses. Each test has a process of its own: a child
//! has no threads, and would wait for a lock that one of them had.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use splitpoint::{Db, ErrorKind, Options, SharedFile, Sharing};

use crate::support::HANG;

/// What a program holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Nothing,
    FlockShared,
    FlockExclusive,
    /// On another description of its own.
    FlockElsewhere,
    WholeShared,
    WholeExclusive,
}
use Held::*;

const HELD: [Held; 6] =
    [Nothing, FlockShared, FlockExclusive, FlockElsewhere, WholeShared, WholeExclusive];

fn open_file(path: &Path, is_writer: bool) -> File {
    File::options().read(true).write(is_writer).open(path).unwrap()
}

/// A handle by turns, and the descriptor that its program has.
struct Open {
    db: Db,
    file: SharedFile,
}

fn open(path: &Path, wait_max: Duration) -> Open {
    let file = SharedFile::by_turns(open_file(path, true), path).unwrap();
    assert!(file.takes_turns());
    let db = Options::new().lock_timeout(wait_max).open_shared(&file).unwrap();
    Open { db, file }
}

fn open_to_read(path: &Path) -> Db {
    let file = SharedFile::by_turns(open_file(path, false), path).unwrap();
    Options::new().read_only().open_shared(&file).unwrap()
}

#[expect(unsafe_code, reason = "the standard library has no fork, and no locks of fcntl")]
mod system {
    use std::fs::File;
    use std::os::fd::{AsRawFd as _, RawFd};
    use std::path::Path;

    /// Locks or unlocks the whole file, as `F_SETLK` does.
    pub(super) fn lock_whole(file: &File, kind: i32) -> bool {
        let whole = libc::flock {
            l_type: kind as i16,
            l_whence: libc::SEEK_SET as i16,
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        // SAFETY: the descriptor is open, and the region outlives the call.
        (unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const whole) }) == 0
    }

    /// Runs `what` in a child of a fork, and returns whether it returned `true`.
    pub(super) fn in_child(what: impl FnOnce() -> bool) -> bool {
        // SAFETY: the process has no other thread that does anything, and the child ends itself.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: the call has no conditions. The signal ends a child that hangs.
                unsafe {
                    libc::alarm(u32::try_from(crate::support::HANG.as_secs()).unwrap_or(u32::MAX))
                };
                let is_true = what();
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

    /// Locks the bytes of a writer that opens the file, for this description.
    pub(super) fn lock_to_open(file: &File) -> bool {
        // SAFETY: every bit pattern is a lock.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = libc::F_WRLCK as libc::c_short;
        (lock.l_start, lock.l_len) = ((1 << 62) + 1, 2);
        // SAFETY: `lock` lives through the call.
        (unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) }) == 0
    }

    /// Gives every open number but its own to a file, for a process that ends without closing them.
    pub(super) fn take_numbers(file: &File) {
        give_numbers(open_numbers(), file);
    }

    /// Returns the numbers that are open, but for the first three.
    fn open_numbers() -> Vec<RawFd> {
        let is_open = |&number: &RawFd| {
            // SAFETY: the call takes no pointer.
            (unsafe { libc::fcntl(number, libc::F_GETFD) }) != -1
        };
        (3..200).filter(is_open).collect()
    }

    fn give_numbers(numbers: Vec<RawFd>, file: &File) {
        for number in numbers.into_iter().filter(|&number| number != file.as_raw_fd()) {
            // SAFETY: the file is open, and nobody uses the number any more who would not look first.
            unsafe { libc::dup3(file.as_raw_fd(), number, libc::O_CLOEXEC) };
        }
    }

    /// Closes every number but the first three, makes a file, and gives them all to it.
    pub(super) fn close_and_take_numbers(path: &Path) -> File {
        let numbers = open_numbers();
        for &number in &numbers {
            // SAFETY: nobody uses a number any more who would not look first.
            let _ = unsafe { libc::close(number) };
        }
        let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
        give_numbers(numbers, &file);
        file
    }

    pub(super) fn is_root() -> bool {
        // SAFETY: the call has no conditions.
        unsafe { libc::geteuid() == 0 }
    }

    pub(super) fn become_nobody() {
        // SAFETY: the call has no conditions.
        assert_eq!(unsafe { libc::setuid(65534) }, 0);
    }
}
use system::lock_whole;

/// As [`system::in_child`], where a panic is `false`.
fn in_child(what: impl FnOnce() -> bool) -> bool {
    system::in_child(|| catch_unwind(AssertUnwindSafe(what)).unwrap_or(false))
}

/// Runs a test of this module in a process of its own.
fn alone(name: &str, test: impl FnOnce()) {
    const ENV: &str = "SPLITPOINT_TEST_ALONE";
    if std::env::var_os(ENV).is_some() {
        return test();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("own_locks::{name}"), "--test-threads=1", "--nocapture"]);
    let done = command.env(ENV, "1").output().unwrap();
    let said = [&done.stdout, &done.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(done.status.success() && said[0].contains("1 passed"), "{}\n{}", said[0], said[1]);
}

impl Held {
    /// Takes the lock, and returns what keeps it. It must not wait for the store.
    fn take(self, file: &File, path: &Path) -> Option<File> {
        match self {
            Nothing => {}
            FlockShared => file.try_lock_shared().unwrap(),
            FlockExclusive => file.try_lock().unwrap(),
            FlockElsewhere => {
                let other = open_file(path, true);
                other.try_lock().unwrap();
                return Some(other);
            }
            WholeShared => assert!(lock_whole(file, libc::F_RDLCK)),
            WholeExclusive => assert!(lock_whole(file, libc::F_WRLCK)),
        }
        None
    }

    fn give_up(self, file: &File, kept: Option<File>) {
        match self {
            FlockShared | FlockExclusive => file.unlock().unwrap(),
            WholeShared | WholeExclusive => assert!(lock_whole(file, libc::F_UNLCK)),
            Nothing | FlockElsewhere => drop(kept),
        }
    }
}

fn new_store(dir: &tempfile::TempDir) -> PathBuf {
    let path = dir.path().join("a.spt");
    Db::open(&path).unwrap().close().unwrap();
    path
}

#[test]
fn two_handles_of_a_process_change_the_store_under_any_lock_of_the_program() {
    alone("two_handles_of_a_process_change_the_store_under_any_lock_of_the_program", || {
        for held in HELD {
            let dir = tempfile::tempdir().unwrap();
            let path = new_store(&dir);
            let (one, other) = (open(&path, HANG), open(&path, HANG));
            let reader = open_to_read(&path);
            for round in 1..=20_i64 {
                let kept = held.take(one.file.file(), &path);
                // The lock is there when the first of them comes, and not there any more.
                assert_eq!(one.db.increment("all", 1).unwrap(), 3 * round - 2, "{held:?}");
                assert_eq!(other.db.increment("all", 1).unwrap(), 3 * round - 1, "{held:?}");
                assert_eq!(reader.get("all").unwrap().unwrap(), (3 * round - 1).to_le_bytes());
                // One that is opened under the lock.
                let third = open(&path, HANG);
                assert_eq!(third.db.increment("all", 1).unwrap(), 3 * round);
                held.give_up(one.file.file(), kept);
            }
        }
    });
}

/// The program's lock keeps out other programs that lock as it does, though its calls take the bytes of the
/// store out of it; no call of the store ends it.
#[test]
fn the_lock_of_a_program_stays_through_its_calls() {
    alone("the_lock_of_a_program_stays_through_its_calls", || {
        for held in HELD {
            let dir = tempfile::tempdir().unwrap();
            let path = new_store(&dir);
            let one = open(&path, HANG);
            let other = open(&path, HANG);
            let kept = held.take(one.file.file(), &path);
            one.db.put("key", "value").unwrap();
            other.db.put("key", "value").unwrap();
            assert_eq!(one.db.get("key").unwrap().unwrap(), "value");
            assert_eq!(one.db.iter_keys_count(), 1);
            let is_free = |held: Held| {
                in_child(|| {
                    let file = open_file(&path, true);
                    match held {
                        FlockExclusive => file.try_lock().is_ok(),
                        FlockShared => file.try_lock_shared().is_ok(),
                        WholeExclusive => lock_whole(&file, libc::F_WRLCK),
                        _ => lock_whole(&file, libc::F_RDLCK),
                    }
                })
            };
            let is_flock = matches!(held, FlockShared | FlockExclusive | FlockElsewhere);
            assert_eq!(is_free(FlockExclusive), !is_flock, "{held:?}");
            assert_eq!(is_free(FlockShared), !is_flock || held == FlockShared, "{held:?}");
            let is_whole = matches!(held, WholeShared | WholeExclusive);
            assert_eq!(is_free(WholeExclusive), !is_whole, "{held:?}");
            assert_eq!(is_free(WholeShared), held != WholeExclusive, "{held:?}");
            held.give_up(one.file.file(), kept);
        }
    });
}

#[test]
fn another_process_changes_the_store_beside_any_lock_of_a_program_that_calls_it() {
    alone("another_process_changes_the_store_beside_any_lock_of_a_program_that_calls_it", || {
        for held in HELD {
            let dir = tempfile::tempdir().unwrap();
            let path = new_store(&dir);
            let one = open(&path, HANG);
            let kept = held.take(one.file.file(), &path);
            assert_eq!(one.db.increment("all", 1).unwrap(), 1);
            // The first call has made way for others.
            for theirs in HELD {
                let is_counted = in_child(|| {
                    let other = open(&path, HANG);
                    let is_met = matches!(
                        (held, theirs),
                        (
                            FlockExclusive | FlockElsewhere,
                            FlockShared | FlockExclusive | FlockElsewhere
                        ) | (FlockShared, FlockExclusive | FlockElsewhere)
                            | (WholeExclusive, WholeShared | WholeExclusive)
                            | (WholeShared, WholeExclusive)
                    );
                    // What the two programs' own locks forbid is not asked for.
                    let kept = if is_met { None } else { theirs.take(other.file.file(), &path) };
                    let count = other.db.increment("all", 1).unwrap();
                    drop(kept);
                    open_to_read(&path).get("all").unwrap().unwrap() == count.to_le_bytes()[..]
                });
                assert!(is_counted, "{held:?}, {theirs:?}");
            }
            let count = one.db.increment("all", 1).unwrap();
            assert_eq!(usize::try_from(count).unwrap(), 2 + HELD.len());
            held.give_up(one.file.file(), kept);
        }
    });
}

#[test]
fn a_call_waits_for_a_lock_of_the_whole_file_that_another_process_has() {
    alone("a_call_waits_for_a_lock_of_the_whole_file_that_another_process_has", || {
        let dir = tempfile::tempdir().unwrap();
        let path = new_store(&dir);
        let program = open_file(&path, true);
        assert!(lock_whole(&program, libc::F_WRLCK));
        // Nobody has called the store under it.
        let is_locked = in_child(|| {
            let file = SharedFile::by_turns(open_file(&path, true), &path).unwrap();
            let opened = Options::new().lock_timeout(Duration::ZERO).open_shared(&file);
            opened.unwrap_err().kind() == ErrorKind::Locked
        });
        assert!(is_locked);
        assert!(lock_whole(&program, libc::F_UNLCK));
        assert!(in_child(|| open(&path, HANG).db.put("key", "value").is_ok()));
    });
}

#[test]
fn a_handle_on_a_descriptor_that_became_a_strangers_writes_and_locks_nothing() {
    alone("a_handle_on_a_descriptor_that_became_a_strangers_writes_and_locks_nothing", || {
        let dir = tempfile::tempdir().unwrap();
        let path = new_store(&dir);
        let is_refused = in_child(|| {
            let one = open(&path, Duration::ZERO);
            one.db.put("key", "value").unwrap();
            let stranger = dir.path().join("log");
            File::create(&stranger).unwrap();
            let log = File::options().read(true).write(true).open(&stranger).unwrap();
            system::take_numbers(&log);
            let is_refused = one.db.put("key", "other").is_err() && one.db.get("key").is_err();
            std::mem::forget(one);
            is_refused && log.metadata().unwrap().len() == 0
        });
        assert!(is_refused);
        assert_eq!(open(&path, HANG).db.get("key").unwrap().unwrap(), "value");
    });
}

/// A file system gives the inode of a file without a name to the next one, once nobody has it open.
#[test]
fn a_transaction_whose_file_became_a_strangers_writes_nothing() {
    alone("a_transaction_whose_file_became_a_strangers_writes_nothing", || {
        let dir = tempfile::tempdir().unwrap();
        let path = new_store(&dir);
        let is_left_alone = in_child(|| {
            let db = Db::open(&path).unwrap();
            let value = vec![7; 1 << 20];
            let mut transaction = db.begin().unwrap();
            for i in 0..70_u32 {
                transaction.put(i.to_le_bytes(), &value).unwrap();
            }
            let log = system::close_and_take_numbers(&dir.path().join("log"));
            let refused = (70..80_u32).any(|i| transaction.put(i.to_le_bytes(), &value).is_err());
            std::mem::forget(transaction);
            std::mem::forget(db);
            refused && log.metadata().unwrap().len() == 0
        });
        assert!(is_left_alone);
    });
}

/// A recovery reads the log for as long as that takes, and tells the program how far it is.
#[test]
fn a_recovery_during_which_its_descriptor_became_a_strangers_writes_nothing() {
    alone("a_recovery_during_which_its_descriptor_became_a_strangers_writes_nothing", || {
        let dir = tempfile::tempdir().unwrap();
        let path = new_store(&dir);
        let db = Db::open(&path).unwrap();
        (0..1000_u32).for_each(|i| db.put(i.to_le_bytes(), [7; 100]).unwrap());
        db.close().unwrap();
        for is_read_only in [false, true] {
            let is_left_alone = in_child(|| {
                let stranger = dir.path().join(format!("log-{is_read_only}"));
                let log = File::options().read(true).write(true).create_new(true).open(stranger);
                let log = Arc::new(log.unwrap());
                let taken = AtomicBool::new(false);
                let options = Options::new().rebuild_index().on_recovery({
                    let log = log.clone();
                    move |_| {
                        if !taken.swap(true, Ordering::Relaxed) {
                            system::take_numbers(&log);
                        }
                    }
                });
                let options = if is_read_only { options.read_only() } else { options };
                let opened = options.open(&path);
                let is_refused = opened.is_err();
                std::mem::forget(opened);
                (is_refused || is_read_only) && log.metadata().unwrap().len() == 0
            });
            assert!(is_left_alone, "read only: {is_read_only}");
        }
        assert_eq!(Db::open(&path).unwrap().len(), 1000);
    });
}

/// Opens the store at `path`, and gives all descriptors to another file while the open waits; returns whether that
/// is an error, and nothing is written to that file nor locked in it.
fn leaves_a_stranger_alone(stranger: &Path, options: Options, path: &Path) -> bool {
    let log = File::options().read(true).write(true).create_new(true).open(stranger);
    let log = Arc::new(log.expect("it can be made"));
    let taken = Arc::new(AtomicBool::new(false));
    let take = {
        let (log, taken) = (log.clone(), taken.clone());
        move || {
            if !taken.swap(true, Ordering::SeqCst) {
                system::take_numbers(&log);
            }
            false
        }
    };
    let opened = options.stop_waiting(take).open(path);
    let is_refused = matches!(&opened, Err(error) if error.kind() == ErrorKind::Io);
    std::mem::forget(opened);
    let is_empty = log.metadata().is_ok_and(|found| found.len() == 0);
    let is_taken = taken.load(Ordering::SeqCst);
    is_taken && is_refused && is_empty && lock_whole(&open_file(stranger, true), libc::F_WRLCK)
}

/// A handle that may come between the calls of others waits for them before it makes the tables anew.
#[test]
fn an_opening_that_waits_while_its_descriptor_becomes_a_strangers_locks_nothing() {
    alone("an_opening_that_waits_while_its_descriptor_becomes_a_strangers_locks_nothing", || {
        let dir = tempfile::tempdir().unwrap();
        let path = new_store(&dir);
        let other = Options::new().sharing(Sharing::Shared).open(&path).unwrap();
        other.put("key", "value").unwrap();
        let is_left_alone = in_child(|| {
            let options = Options::new().sharing(Sharing::PerCall).rebuild_index();
            leaves_a_stranger_alone(&dir.path().join("log"), options, &path)
        });
        assert!(is_left_alone);
        assert_eq!(other.get("key").unwrap().unwrap(), "value");
    });
}

/// A reader lets go of a file that a writer opens, and takes the locks again.
#[test]
fn a_reader_that_waits_while_its_descriptor_becomes_a_strangers_locks_nothing() {
    alone("a_reader_that_waits_while_its_descriptor_becomes_a_strangers_locks_nothing", || {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("left");
        // Whoever comes has to make the tables anew.
        std::fs::copy(new_store(&dir), &path).unwrap();
        let live = Db::open(&path).unwrap();
        let copy = dir.path().join("copy");
        live.put("key", "value").unwrap();
        std::fs::copy(&path, &copy).unwrap();
        let writer = open_file(&copy, true);
        assert!(system::lock_to_open(&writer));
        let is_left_alone = in_child(|| {
            leaves_a_stranger_alone(&dir.path().join("log"), Options::new().read_only(), &copy)
        });
        assert!(is_left_alone);
    });
}

/// The mapping keeps the lock of the place. Without the descriptor the handle makes no changes soon, and
/// cannot give the place up before it is dropped.
#[test]
fn a_place_whose_descriptor_the_program_has_closed_is_free_when_the_handle_is_dropped() {
    alone(
        "a_place_whose_descriptor_the_program_has_closed_is_free_when_the_handle_is_dropped",
        || {
            let dir = tempfile::tempdir().unwrap();
            let path = new_store(&dir);
            let stranger = dir.path().join("log");
            let is_free = in_child(|| {
                let options = Options::new().sharing(Sharing::Shared).lock_timeout(HANG);
                let db = options.clone().open(&path).unwrap();
                for i in 0..100_u32 {
                    db.put(i.to_le_bytes(), "kept").unwrap();
                }
                let log = File::options().read(true).write(true).create_new(true).open(&stranger);
                system::take_numbers(&log.unwrap());
                let stored_count =
                    (0..u32::MAX).find(|i| db.put("number", format!("{i}")).is_err());
                drop(db);
                let other = options.open(&path).unwrap();
                let last = stored_count.filter(|&count| count > 0).map(|count| count - 1);
                let found = other.get("number").unwrap().map(|value| value.to_vec());
                other.put("key", "of another").unwrap();
                other.close().unwrap();
                found == last.map(|last: u32| last.to_string().into_bytes())
                    && stranger.metadata().unwrap().len() == 0
            });
            assert!(is_free);
            let again = open(&path, HANG);
            assert_eq!(again.db.get("key").unwrap().unwrap(), "of another");
            assert_eq!(again.db.get(99_u32.to_le_bytes()).unwrap().unwrap(), "kept");
            assert!(again.db.check().unwrap().is_clean());
        },
    );
}

#[test]
fn a_child_of_a_fork_shares_the_file_anew_beside_its_parent() {
    alone("a_child_of_a_fork_shares_the_file_anew_beside_its_parent", || {
        let dir = tempfile::tempdir().unwrap();
        let path = new_store(&dir);
        let one = open(&path, HANG);
        one.db.increment("all", 1).unwrap();
        for round in 0..5_i64 {
            let is_counted = in_child(|| {
                // The handle is the parent's.
                let is_refused = one.db.increment("all", 1).is_err();
                let file =
                    SharedFile::by_turns(one.file.file().try_clone().unwrap(), &path).unwrap();
                let db = Options::new().lock_timeout(HANG).open_shared(&file).unwrap();
                let count = db.increment("all", 1).unwrap();
                is_refused && count == 2 * round + 2 && db.close().is_ok()
            });
            assert!(is_counted, "round {round}");
            assert_eq!(one.db.increment("all", 1).unwrap(), 2 * round + 3);
        }
    });
}

/// Returns whether another process cannot claim the place of the writer.
fn is_kept_from_others(path: &Path) -> bool {
    in_child(|| {
        let other = SharedFile::for_writer(open_file(path, true), path);
        other.is_err_and(|error| error.kind() == ErrorKind::Locked)
    })
}

/// A claim ends with any other descriptor of its file, also where a panic or an error ends an open or a backup.
#[test]
fn a_claim_stays_whatever_ends_another_open_of_its_file() {
    alone("a_claim_stays_whatever_ends_another_open_of_its_file", || {
        let dir = tempfile::tempdir().unwrap();
        let path = new_store(&dir);
        let claim = SharedFile::for_writer(open_file(&path, true), &path).unwrap();
        let is_kept = || is_kept_from_others(&path);
        assert!(is_kept());
        for sharing in [Sharing::OneWriter, Sharing::Shared, Sharing::PerCall] {
            let options = Options::new().sharing(sharing).lock_timeout(HANG);
            let panics = options.clone().stop_waiting(|| panic!("asked whether to go on"));
            assert!(catch_unwind(|| panics.open(&path)).is_err());
            assert!(is_kept(), "{sharing:?}: asked");
            let panics = options.clone().on_wait(|_| panic!("told of the wait"));
            assert!(catch_unwind(|| panics.open(&path)).is_err());
            assert!(is_kept(), "{sharing:?}: told");
            assert!(options.lock_timeout(Duration::ZERO).open(&path).is_err());
            assert!(is_kept(), "{sharing:?}: refused");
        }
        let by_turns = SharedFile::by_turns(open_file(&path, true), &path).unwrap();
        assert!(Options::new().lock_timeout(Duration::ZERO).open_shared(&by_turns).is_err());
        assert!(is_kept(), "a shared open");
        // A copy of it may be made all the same.
        splitpoint::backup::backup(&path, dir.path().join("copy")).unwrap();
        assert!(is_kept(), "a backup");
        splitpoint::repair::repair(&path, dir.path().join("none")).unwrap_err();
        assert!(is_kept(), "a repair that was refused");
        drop(claim);
        assert!(!is_kept());
        let claim = SharedFile::for_reader(open_file(&path, false), &path).unwrap();
        drop(Options::new().read_only().open(&path).unwrap());
        assert!(is_kept(), "a reader that was closed");
        splitpoint::repair::repair(&path, dir.path().join("repaired")).unwrap();
        assert!(is_kept(), "a repair");
        let copy = dir.path().join("copy");
        let over = splitpoint::backup::Backup::of_file(&copy).replace_existing();
        over.write(&path).unwrap_err();
        assert!(is_kept(), "a backup that would replace it");
        drop(claim);
        assert!(!is_kept());

        let empty = dir.path().join("empty");
        std::fs::write(&empty, "").unwrap();
        let _claim = SharedFile::for_writer(open_file(&empty, true), &empty).unwrap();
        let refused = splitpoint::backup::backup(&empty, dir.path().join("none")).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotAStore);
        assert!(is_kept_from_others(&empty), "a backup of what is no store");
    });
}

/// Each close ends the lock of the process for a moment. A child of a fork has none of the threads that close.
#[test]
fn nobody_comes_in_and_no_child_hangs_while_threads_close_descriptors_of_a_claimed_file() {
    alone(
        "nobody_comes_in_and_no_child_hangs_while_threads_close_descriptors_of_a_claimed_file",
        || {
            let dir = tempfile::tempdir().unwrap();
            let path = new_store(&dir);
            let file = SharedFile::for_writer(open_file(&path, true), &path).unwrap();
            let db = Options::new().open_shared(&file).unwrap();
            let mut handles = Some((db, file));
            let is_over = AtomicBool::new(false);
            let close = || {
                while !is_over.load(Ordering::Relaxed) {
                    SharedFile::close_other(open_file(&path, false));
                }
            };
            std::thread::scope(|scope| {
                scope.spawn(close);
                scope.spawn(close);
                let at_once = Options::new().lock_timeout(Duration::ZERO);
                let are_out = (0..8).all(|_| {
                    in_child(|| {
                        drop(handles.take());
                        (0..8).all(|_| {
                            at_once.clone().sharing(Sharing::PerCall).open(&path).is_err()
                                && at_once.clone().read_only().open(&path).is_err()
                                && SharedFile::for_reader(open_file(&path, false), &path).is_err()
                        })
                    })
                });
                is_over.store(true, Ordering::Relaxed);
                assert!(are_out);
            });
            assert!(handles.is_some_and(|(db, _)| db.put("key", "value").is_ok()));
        },
    );
}

/// Readers that must have an index of their own claim the file, and each closes the description it has looked with.
#[test]
fn readers_of_a_copy_by_turns_keep_the_writers_of_other_processes_out() {
    alone("readers_of_a_copy_by_turns_keep_the_writers_of_other_processes_out", || {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (new_store(&dir), dir.path().join("copy"));
        let db = Db::open(&path).unwrap();
        db.put("key", "value").unwrap();
        // In use: no writer of this boot has left the copy in order.
        std::fs::copy(&path, &copy).unwrap();
        let shared =
            [(), ()].map(|()| SharedFile::by_turns(open_file(&copy, false), &copy).unwrap());
        let readers = shared.each_ref().map(|file| {
            let reader = Options::new().read_only().open_shared(file).unwrap();
            assert!(is_kept_from_others(&copy));
            reader
        });
        assert!(readers.iter().all(|reader| reader.get("key").unwrap().is_some()));
        drop((readers, shared));
        assert!(!is_kept_from_others(&copy));
    });
}

/// Where the program may not open its file again, a handle is alone, as with a claim.
#[test]
fn a_file_that_cannot_be_opened_again_is_claimed() {
    alone("a_file_that_cannot_be_opened_again_is_claimed", || {
        if !system::is_root() {
            println!("skipped: needs to become another user");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = new_store(&dir);
        let file = open_file(&path, true);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o000);
        std::fs::set_permissions(&path, mode).unwrap();
        let is_claimed = in_child(|| {
            system::become_nobody();
            let file = SharedFile::by_turns(file, &path).unwrap();
            let db = Options::new().open_shared(&file).unwrap();
            db.put("key", "value").unwrap();
            !file.takes_turns() && db.close().is_ok()
        });
        assert!(is_claimed);
        assert_eq!(Db::open(&path).unwrap().get("key").unwrap().unwrap(), "value");
    });
}

#[test]
fn handles_that_are_opened_while_others_write_lose_nothing() {
    const KEYS: u32 = 400;
    alone("handles_that_are_opened_while_others_write_lose_nothing", || {
        let dir = tempfile::tempdir().unwrap();
        let path = new_store(&dir);
        let fill = |which: u32| {
            for round in 0..20 {
                let Open { db, .. } = open(&path, HANG);
                for i in 0..KEYS / 20 {
                    let key = which * KEYS + round * (KEYS / 20) + i;
                    db.put(key.to_le_bytes(), [7; 100]).unwrap();
                }
                db.close().unwrap();
            }
        };
        std::thread::scope(|scope| {
            for which in 0..4 {
                let fill = &fill;
                scope.spawn(move || fill(which));
            }
        });
        let Open { db, .. } = open(&path, HANG);
        assert!((0..4 * KEYS).all(|key| db.contains(key.to_le_bytes()).unwrap()));
        assert!(db.check().unwrap().is_clean());
    });
}

trait Count {
    fn iter_keys_count(&self) -> usize;
}

impl Count for Db {
    /// Walks over all keys, as the libraries for C do.
    fn iter_keys_count(&self) -> usize {
        let mut cursor = splitpoint::Cursor::at(0);
        let mut count = 0;
        while cursor.next(self).unwrap().is_some() {
            count += 1;
        }
        count
    }
}

#[test]
fn handles_by_path_and_by_descriptor_take_turns() {
    alone("handles_by_path_and_by_descriptor_take_turns", || {
        let dir = tempfile::tempdir().unwrap();
        let path = new_store(&dir);
        let by_path =
            Options::new().sharing(Sharing::Shared).lock_timeout(HANG).open(&path).unwrap();
        let other = open(&path, HANG);
        for round in 0..100_i64 {
            assert_eq!(by_path.increment("all", 1).unwrap(), 2 * round + 1);
            assert_eq!(other.db.increment("all", 1).unwrap(), 2 * round + 2);
        }
    });
}
