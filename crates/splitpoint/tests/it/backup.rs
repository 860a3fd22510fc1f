//! Backups of stores while they are written to, and of closed, killed and damaged ones.
//!
//! The number of a change determines it, and one key holds the number of the last: a copy must hold
//! exactly the changes up to some number.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use splitpoint::backup::Backup;
use splitpoint::{Change, Create, Db, Durability, ErrorKind, Options, Recovery, SimDisk};

use crate::support::{
    Content, Rng, assert_content, assert_sound, bad_hash, content, end_with_parent, rounds, seed,
    tiny, tiny_with_whole_log,
};

const CHILD_ENV: &str = "SPLITPOINT_TEST_BACKUP";
/// The key that holds the number of the last change.
const COUNTER: &[u8] = b"number of the last change";

/// Applies change `number` to a store: a put of any size or a delete.
fn change(number: u64) -> (Vec<u8>, Option<Vec<u8>>) {
    let mut rng = Rng::new(number);
    let key = rng.below(60).to_le_bytes().to_vec();
    let len = [8, 100, 700, 20_000][rng.index(40) / 13];
    let value = (rng.below(4) != 0).then(|| {
        let mut value = number.to_le_bytes().to_vec();
        value.resize(len, number as u8);
        value
    });
    (key, value)
}

fn apply(content: &mut Content, number: u64) {
    match change(number) {
        (key, Some(value)) => drop(content.insert(key, value)),
        (key, None) => drop(content.remove(&key)),
    }
}

/// Applies a change and stores its number.
fn make(db: &Db, number: u64) -> splitpoint::Result<()> {
    match change(number) {
        (key, Some(value)) => db.put(&key, &value)?,
        (key, None) => drop(db.delete(&key)?),
    }
    db.put(COUNTER, &number.to_le_bytes())
}

/// Options for a store whose space is not used again: one that another process writes to can be
/// copied.
fn log_alone() -> Options {
    tiny_with_whole_log()
}

/// Returns a store with the first `count` changes.
fn store_with(path: &Path, count: u64) -> Db {
    let options = log_alone().durability(Durability::Buffered);
    let db = options.open(path).expect("a new store");
    (1..=count).for_each(|number| make(&db, number).expect("there is room"));
    db
}

/// Checks that a store is sound and holds a prefix of the changes, and returns their number.
#[track_caller]
fn assert_prefix(db: &Db) -> u64 {
    assert_sound(db);
    let mut found = content(db);
    let counter = found.remove(COUNTER).unwrap_or_else(|| vec![0; 8]);
    let count = u64::from_le_bytes(counter.try_into().expect("8 bytes"));
    let mut expected = Content::new();
    (1..=count).for_each(|number| apply(&mut expected, number));
    if found != expected {
        // The next change may be there, and its number not yet.
        apply(&mut expected, count + 1);
        assert!(found == expected, "not the first {count} changes nor one more");
    }
    count
}

/// Opens a copy, which must be closed and complete, and checks it.
#[track_caller]
fn assert_whole(path: &Path) -> u64 {
    let db = Options::new().create(Create::Never).open(path).unwrap();
    assert_eq!(db.recovery(), Recovery::Clean);
    assert_prefix(&db)
}

/// Returns the names in a directory that are not among `expected`.
fn others_in(dir: &Path, expected: &[&str]) -> Vec<String> {
    let names = fs::read_dir(dir)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name of ours"));
    names.filter(|name| !expected.contains(&name.as_str())).collect()
}

/// Takes backups of every kind while a thread writes. Each holds a prefix of the changes, with all
/// that returned before it began.
#[test]
fn backups_beside_a_writer_are_prefixes_of_its_changes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let db = store_with(&path, 10);
    let (made, is_done) = (AtomicU64::new(10), AtomicBool::new(false));
    // Limit of the writer: the store must not outgrow the copying.
    let allowed = AtomicU64::new(10);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 11.. {
                while number > allowed.load(Ordering::SeqCst) {
                    if is_done.load(Ordering::SeqCst) {
                        return number - 1;
                    }
                    std::thread::yield_now();
                }
                make(&db, number).unwrap();
                made.store(number, Ordering::SeqCst);
            }
            unreachable!("there are enough numbers")
        });
        let mut last = 0;
        for round in 0..rounds(20, 300) {
            let copy = dir.path().join(format!("{round}.spt"));
            allowed.fetch_add(rounds(100, 30), Ordering::SeqCst);
            let before = made.load(Ordering::SeqCst);
            let count = match round % 4 {
                0 => {
                    db.backup(&copy).unwrap();
                    assert_whole(&copy)
                }
                1 => {
                    splitpoint::backup::backup(&path, &copy).unwrap();
                    assert_whole(&copy)
                }
                2 => {
                    let mut bytes = Vec::new();
                    let report = db.backup_to(&mut bytes).unwrap();
                    assert_eq!(report.file_bytes, bytes.len() as u64);
                    let found = SimDisk::with_file(&bytes).open(&Options::new()).unwrap();
                    assert_eq!(found.len(), report.record_count);
                    assert_prefix(&found)
                }
                _ => {
                    let mut bytes = Vec::new();
                    Backup::of_file(&path).write_to(&mut bytes).unwrap();
                    assert_prefix(&SimDisk::with_file(&bytes).open(&Options::new()).unwrap())
                }
            };
            assert!(count >= before && count >= last, "{count} of {before}, {last} changes");
            last = count;
            let _ = fs::remove_file(&copy);
        }
        is_done.store(true, Ordering::SeqCst);
        assert!(writer.join().unwrap() > 10, "the writer made no change meanwhile");
    });
    assert_eq!(others_in(dir.path(), &["a.spt"]), [""; 0]);
}

/// Not a test by itself: the process that writes to a store, or copies it, until it is killed, or
/// begins to copy it and waits.
#[test]
fn other_process_works_until_it_is_killed() {
    let Some(arguments) = std::env::var_os(CHILD_ENV) else { return };
    end_with_parent();
    let arguments = arguments.into_string().unwrap();
    let [what, path, other] = arguments.split('|').collect::<Vec<_>>()[..] else {
        panic!("three arguments")
    };
    let mut report = std::io::stderr().lock();
    if what == "write" {
        let db = log_alone().open(path).unwrap();
        for number in assert_prefix(&db) + 1.. {
            make(&db, number).unwrap();
            report.write_all(&number.to_le_bytes()).unwrap();
        }
    }
    for number in 1_u64.. {
        let tell = |_| {
            report.write_all(&number.to_le_bytes()).unwrap();
            if what == "wait" {
                loop {
                    std::thread::park();
                }
            }
            ControlFlow::Continue(())
        };
        Backup::of_file(path).replace_existing().on_progress(tell).write(other).unwrap();
    }
}

fn start(what: &str, path: &Path, other: &Path) -> (Child, ChildStderr) {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "backup::other_process_works_until_it_is_killed", "--nocapture"])
        .env(CHILD_ENV, format!("{what}|{}|{}", path.display(), other.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("this program runs");
    let pipe = child.stderr.take().expect("a pipe");
    (child, pipe)
}

/// Reads `count` reports and returns the last number.
fn reports(pipe: &mut ChildStderr, count: u64) -> u64 {
    let mut report = [0; 8];
    for _ in 0..count {
        pipe.read_exact(&mut report).expect("the process reports");
    }
    let number = u64::from_le_bytes(report);
    assert!(number < 1 << 32, "{:?}", String::from_utf8_lossy(&report));
    number
}

/// Keeps copying a store that another process has open, then kills that process, and copies the
/// store again before and after a warm restart.
#[test]
fn a_store_in_another_process_is_copied_while_it_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("a.spt"), dir.path().join("copy.spt"));
    for _ in 0..rounds(2, 30) {
        let (mut child, mut pipe) = start("write", &path, &copy);
        let mut last = 0;
        for _ in 0..5 {
            // No more are read than were written: the process waits for the pipe to be emptied.
            let acknowledged = reports(&mut pipe, 200);
            let report = Backup::of_file(&path).replace_existing().write(&copy).unwrap();
            assert!(!report.is_recovered);
            let count = assert_whole(&copy);
            assert!(count >= acknowledged && count >= last, "{count}, {acknowledged}, {last}");
            last = count;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let mut rest = Vec::new();
        pipe.read_to_end(&mut rest).unwrap();
        let report = Backup::of_file(&path).replace_existing().write(&copy).unwrap();
        assert!(!report.is_recovered, "the live header tells where a killed process was");
        let count = assert_whole(&copy);
        assert!(count >= last);
        let db = tiny().open(&path).unwrap();
        assert_eq!(assert_prefix(&db), count);
    }
}

/// Kills a process that copies a store over an older copy. The copy is complete at every moment,
/// and the leftover file does not stop the next backup.
#[test]
fn a_killed_backup_leaves_no_half_copy() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("a.spt"), dir.path().join("copy.spt"));
    let db = store_with(&path, 300);
    let mut rng = Rng::new(seed());
    for round in 0..rounds(24, 2000) {
        if round % 3 == 0 {
            let _ = fs::remove_file(&copy);
        }
        // At first in the middle of a copy, then at any moment.
        let (what, events) = if round < 2 { ("wait", 1) } else { ("copy", 1 + rng.below(400)) };
        let (mut child, mut pipe) = start(what, &path, &copy);
        let copies_before = reports(&mut pipe, events) - 1;
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(copies_before == 0 || copy.exists(), "round {round}");
        if copy.exists() {
            assert_eq!(assert_whole(&copy), 300);
        }
        let left_count = others_in(dir.path(), &["a.spt", "copy.spt"]).len();
        assert!(left_count == 1 || what == "copy", "{left_count} files are left of a copy");
    }
    Backup::of_file(&path).replace_existing().write(&copy).unwrap();
    assert_eq!(assert_whole(&copy), 300);
    assert_eq!(others_in(dir.path(), &["a.spt", "copy.spt"]), [""; 0]);
    drop(db);
}

/// Copies a store while other threads open, change, close and recover it.
#[test]
fn backups_beside_opening_closing_and_recovery_are_prefixes_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("a.spt"), dir.path().join("copy.spt"));
    store_with(&path, 500).close().unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 500;
            for round in 0_u64.. {
                if is_done.load(Ordering::SeqCst) {
                    return;
                }
                let options = log_alone().durability(Durability::Buffered);
                let options = if round % 2 == 0 { options.rebuild_index() } else { options };
                let db = loop {
                    // A backup that reads an unclosed store keeps writers out.
                    match options.open(&path) {
                        Ok(db) => break db,
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Locked, "{error}"),
                    }
                };
                for _ in 0..round % 3 {
                    number += 1;
                    make(&db, number).unwrap();
                }
                drop(db);
            }
        });
        let mut last = 500;
        for _ in 0..rounds(10, 500) {
            let copied = Backup::of_file(&path).replace_existing().write(&copy);
            match copied {
                Ok(_) => {
                    let count = assert_whole(&copy);
                    assert!(count >= last, "{count} changes after {last}");
                    last = count;
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Locked, "{error}"),
            }
        }
        is_done.store(true, Ordering::SeqCst);
    });
}

#[test]
fn a_closed_store_and_one_without_a_change_are_copied() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("a.spt"), dir.path().join("copy.spt"));
    let db = tiny().open(&path).unwrap();
    db.backup(&copy).unwrap();
    assert_eq!(assert_whole(&copy), 0);
    db.close().unwrap();
    Backup::of_file(&path).replace_existing().write(&copy).unwrap();
    assert_eq!(assert_whole(&copy), 0);
    store_with(&path, 200).close().unwrap();
    let report = Backup::of_file(&path).replace_existing().write(&copy).unwrap();
    assert_eq!(report.file_bytes, fs::metadata(&copy).unwrap().len());
    assert_eq!(assert_whole(&copy), 200);
    // The copy is a store like any other.
    let db = store_with(&copy, 0);
    (201..=400).for_each(|number| make(&db, number).unwrap());
    let second = dir.path().join("second.spt");
    db.backup(&second).unwrap();
    assert_eq!(assert_whole(&second), 400);
}

#[test]
fn a_table_in_memory_is_copied_to_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy.spt");
    let db = tiny().in_memory().unwrap();
    (1..=300).for_each(|number| make(&db, number).unwrap());
    let report = db.backup(&copy).unwrap();
    assert_eq!(report.record_count, db.len());
    assert_eq!(assert_whole(&copy), 300);
    let mut bytes = Vec::new();
    db.backup_to(&mut bytes).unwrap();
    assert_eq!(assert_prefix(&SimDisk::with_file(&bytes).open(&Options::new()).unwrap()), 300);
}

/// A file that was copied while it was open has no header to trust, like one after a power loss:
/// its log is read to its end, if no other process uses it.
#[test]
fn what_a_power_loss_leaves_is_copied_as_far_as_recovery_would_go() {
    let dir = tempfile::tempdir().unwrap();
    let (path, left) = (dir.path().join("a.spt"), dir.path().join("left.spt"));
    let db = store_with(&path, 300);
    fs::copy(&path, &left).unwrap();
    drop(db);
    let copy = dir.path().join("copy.spt");
    let report = splitpoint::backup::backup(&left, &copy).unwrap();
    assert!(report.is_recovered);
    assert_eq!(assert_whole(&copy), 300);
    let holder = File::open(&left).unwrap();
    holder.lock().unwrap();
    let error = Backup::of_file(&left).replace_existing().write(&copy).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    assert_eq!(assert_whole(&copy), 300);
}

/// After power losses of every seed, a copy of the store equals what a recovery finds.
#[test]
fn a_backup_through_a_read_only_handle_equals_the_recovered_store() {
    let disk = SimDisk::new();
    let db = disk.open(&tiny().durability(Durability::Buffered)).unwrap();
    for number in 1..=120 {
        make(&db, number).unwrap();
        if number % 40 == 0 {
            db.sync().unwrap();
        }
    }
    for seed in 0..rounds(40, 1000) {
        let after = disk.lose_power(seed);
        let found = after.open(&tiny().read_only()).unwrap();
        let mut bytes = Vec::new();
        found.backup_to(&mut bytes).unwrap();
        let copy = SimDisk::with_file(&bytes).open(&Options::new()).unwrap();
        assert_content(&copy, &content(&found));
        assert!(assert_prefix(&copy) >= 120);
    }
}

/// Flips bytes of the log: the copy is refused, and nothing is left of it, or equals the store.
#[test]
fn a_damaged_log_gives_an_error_and_no_copy() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("a.spt"), dir.path().join("copy.spt"));
    store_with(&path, 60).close().unwrap();
    let whole = fs::read(&path).unwrap();
    let first = 16_384;
    let mut rng = Rng::new(seed());
    let mut refused_count = 0;
    for _ in 0..rounds(150, 5000) {
        let mut bytes = whole.clone();
        bytes[first + rng.index(whole.len() - first)] ^= 1 << rng.below(8);
        fs::write(&path, &bytes).unwrap();
        let mut out = Vec::new();
        let streamed = Backup::of_file(&path).write_to(&mut out);
        let copied = splitpoint::backup::backup(&path, &copy);
        assert_eq!(streamed.is_ok(), copied.is_ok());
        if let Err(error) = copied {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert_eq!(out, [0; 0], "the log is verified before the first byte goes out");
            refused_count += 1;
        } else {
            assert_eq!(assert_whole(&copy), 60);
            fs::remove_file(&copy).unwrap();
        }
        assert_eq!(others_in(dir.path(), &["a.spt"]), [""; 0]);
    }
    assert!(refused_count > 20, "{refused_count}");
}

#[test]
fn a_destination_that_is_there_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let db = store_with(&path, 20);
    let kind = |dest: &Path, is_replacing| {
        let backup = db.backup_with();
        let backup = if is_replacing { backup.replace_existing() } else { backup };
        backup.write(dest).unwrap_err().kind()
    };
    let dest = |name: &str| -> PathBuf { dir.path().join(name) };
    // The store itself, under whatever name.
    fs::hard_link(&path, dest("hard.spt")).unwrap();
    std::os::unix::fs::symlink(&path, dest("soft.spt")).unwrap();
    for name in ["a.spt", "hard.spt", "soft.spt"] {
        for is_replacing in [false, true] {
            assert_eq!(kind(&dest(name), is_replacing), ErrorKind::Invalid, "{name}");
        }
    }
    fs::write(dest("notes"), b"mine").unwrap();
    assert_eq!(kind(&dest("notes"), false), ErrorKind::Exists);
    assert_eq!(fs::read(dest("notes")).unwrap(), b"mine");
    std::os::unix::fs::symlink("nowhere", dest("link")).unwrap();
    assert_eq!(kind(&dest("link"), false), ErrorKind::NotAStore);
    assert_eq!(kind(&dest("link"), true), ErrorKind::NotAStore);
    fs::create_dir(dest("dir")).unwrap();
    assert_eq!(kind(&dest("dir"), true), ErrorKind::NotAStore);
    assert_eq!(kind(Path::new("/dev/null"), true), ErrorKind::NotAStore);
    assert_eq!(kind(&dest("no/dir/b.spt"), false), ErrorKind::NotFound);
    // A store that is open elsewhere is not pulled away.
    let other = Db::open(dest("other.spt")).unwrap();
    assert_eq!(kind(&dest("other.spt"), true), ErrorKind::Locked);
    drop(other);
    db.backup_with().replace_existing().write(dest("other.spt")).unwrap();
    assert_eq!(assert_whole(&dest("other.spt")), 20);
    // Two at once under one name.
    let busy = File::create(dest("b.spt.backup-in-progress")).unwrap();
    busy.lock().unwrap();
    assert_eq!(kind(&dest("b.spt"), false), ErrorKind::Locked);
    let names = ["a.spt", "hard.spt", "soft.spt", "notes", "link", "dir", "other.spt"].as_slice();
    assert_eq!(others_in(dir.path(), names), ["b.spt.backup-in-progress"]);
}

#[test]
fn a_backup_that_is_given_up_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("a.spt"), dir.path().join("copy.spt"));
    let db = store_with(&path, 50);
    let partial = dir.path().join("copy.spt.backup-in-progress");
    for limit in 0..200 {
        let mut calls = 0;
        let stop = |progress: splitpoint::backup::BackupProgress| {
            assert!(partial.exists());
            assert!(calls > 0 || progress.bytes == 0, "{progress:?}");
            calls += 1;
            if calls > limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let Err(error) = db.backup_with().on_progress(stop).write(&copy) else {
            assert!(limit > 3, "{limit} calls");
            assert_eq!(assert_whole(&copy), 50);
            return;
        };
        assert_eq!(error.kind(), ErrorKind::Io);
        assert_eq!(others_in(dir.path(), &["a.spt"]), [""; 0]);
    }
    panic!("the backup never ended");
}

#[test]
fn a_store_with_a_function_of_the_user_asks_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("a.spt"), dir.path().join("copy.spt"));
    let options = tiny_with_whole_log().hash(bad_hash());
    let db = options.open(&path).unwrap();
    (1..=100).for_each(|number| make(&db, number).unwrap());
    let error = splitpoint::backup::backup(&path, &copy).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HashMismatch);
    assert_eq!(others_in(dir.path(), &["a.spt"]), [""; 0]);
    for backup in [Backup::of_file(&path).hash(bad_hash()), db.backup_with()] {
        backup.write(&copy).unwrap();
        assert_eq!(assert_prefix(&options.open(&copy).unwrap()), 100);
        fs::remove_file(&copy).unwrap();
    }
    let mut bytes = Vec::new();
    Backup::of_file(&path).write_to(&mut bytes).unwrap();
    assert_eq!(assert_prefix(&SimDisk::with_file(&bytes).open(&options).unwrap()), 100);
}

/// A copy has holes where its source has an index, and the permissions of its source.
#[test]
fn a_copy_is_sparse_and_as_private_as_its_source() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("a.spt"), dir.path().join("copy.spt"));
    // An index of 64 MiB for hardly any keys.
    let db = Options::new().expected_records(4_000_000).open(&path).unwrap();
    (1..=20).for_each(|number| make(&db, number).unwrap());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    db.backup(&copy).unwrap();
    let metadata = fs::metadata(&copy).unwrap();
    assert_eq!(metadata.mode() & 0o777, 0o600);
    assert!(metadata.blocks() * 512 < 2 << 20, "{} blocks", metadata.blocks());
    assert_eq!(assert_whole(&copy), 20);
}

/// The first record of a batch is in the log when its second fails: neither the copy nor the report
/// counts it.
#[test]
fn a_backup_does_not_count_the_records_of_a_batch_that_failed() {
    let big = vec![7; 100_000];
    let mut failed_count = 0;
    for call in 1..=20 {
        let disk = SimDisk::new();
        let db = disk.open(&Options::new()).unwrap();
        db.put(b"before", b"1").unwrap();
        disk.fail_call(call, 28, false);
        let batch =
            [Change::Put { key: b"small", value: b"2" }, Change::Put { key: b"big", value: &big }];
        failed_count += u32::from(db.apply(&batch).is_err());
        disk.fail_call(u64::MAX, 28, false);
        db.put(b"after", b"3").unwrap();
        let report = db.backup_with().write_to(std::io::sink()).unwrap();
        assert_eq!(report.record_count, db.len(), "call {call} fails");
    }
    assert!(failed_count > 0);
}
