//! Stores that are moved to another hash function: complete at every moment, whatever else uses
//! them.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use splitpoint::hash::HashFunction;
use splitpoint::rehash::{Rehash, RehashStage, rehash};
use splitpoint::{Create, Db, Durability, ErrorKind, Options, Recovery};

use crate::support::{
    Content, Rng, assert_content, assert_sound, bad_hash, changes, content, end_with_parent,
    rounds, seed, tiny_with_whole_log, try_content, worst_hash,
};

const CHILD_ENV: &str = "SPLITPOINT_TEST_REHASH";
const LAST_ENV: &str = "SPLITPOINT_TEST_LAST_REHASH";

fn siphash() -> HashFunction {
    HashFunction::siphash_1_3()
}

/// Returns an open store and its contents: replaced, deleted and empty keys, large values, batches.
fn filled(path: &Path, options: &Options, rng: &mut Rng, count: u64) -> (Db, Content) {
    let db = options.clone().durability(Durability::Buffered).open(path).expect("a new store");
    let mut expected = Content::new();
    for _ in 0..count {
        // One in eight is a batch of several.
        let change_count = if rng.below(8) == 0 { 6 } else { 1 };
        let batch: Vec<_> = (0..change_count).map(|_| change(rng)).collect();
        match &batch[..] {
            [(key, Some(value))] => db.put(key, value).expect("there is room"),
            [(key, None)] => drop(db.delete(key).expect("nothing fails")),
            _ => db.apply(&changes(&batch)).expect("there is room"),
        }
        for (key, value) in batch {
            match value {
                Some(value) => drop(expected.insert(key, value)),
                None => drop(expected.remove(&key)),
            }
        }
    }
    (db, expected)
}

fn change(rng: &mut Rng) -> (Vec<u8>, Option<Vec<u8>>) {
    let key_bytes = [0, 1, 2, 9, 300][rng.index(5)];
    // Mostly small values; few have a page or a segment to themselves.
    let value_bytes = match rng.below(100) {
        0 => 70_000,
        1..4 => 5000,
        other => [0, 5, 80, 700][usize::try_from(other % 4).expect("small")],
    };
    let value = (rng.below(4) != 0).then(|| rng.bytes(value_bytes));
    (rng.bytes(key_bytes), value)
}

fn reopen(path: &Path, options: &Options) -> Db {
    options.clone().create(Create::Never).open(path).expect("it is a store")
}

fn hash_name(path: &Path) -> String {
    Options::new().read_only().open(path).unwrap().stats().unwrap().hash_name
}

/// Returns the names in a directory.
fn names_in(dir: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(dir).expect("a directory");
    let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
    names.sort();
    names
}

#[track_caller]
fn assert_error(
    result: splitpoint::Result<splitpoint::rehash::RehashReport>,
    kind: ErrorKind,
    says: &str,
) {
    let error = result.expect_err("it is refused");
    assert!(error.kind() == kind && error.to_string().contains(says), "{error}");
}

/// Moves random stores from and to every function: neither the contents nor their order changes.
#[test]
fn a_rehashed_store_has_the_same_records() {
    let mut rng = Rng::new(seed());
    let mut functions = HashFunction::all();
    functions.extend([bad_hash(), worst_hash()]);
    for round in 0..rounds(24, 500) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.spt");
        let old = functions[rng.index(functions.len())].clone();
        let new = functions[rng.index(functions.len())].clone();
        let count = [0, 1, 50, 400][rng.index(4)];
        let options = tiny_with_whole_log().hash(old.clone()).fill_factor(3.5);
        let (db, expected) = filled(&path, &options, &mut rng, count);
        db.close().unwrap();
        let report = Rehash::of_file(&path).opened_with(&options).hash(new.clone()).run().unwrap();
        assert_eq!((&*report.old_hash, &*report.new_hash), (old.name(), new.name()));
        assert_eq!(
            (report.record_count, report.recovery),
            (expected.len() as u64, Recovery::Clean)
        );
        assert_eq!(report.new_file_bytes, fs::metadata(&path).unwrap().len());
        let db = reopen(&path, &Options::new().hash(new));
        assert_eq!(db.recovery(), Recovery::Clean, "round {round}");
        assert_content(&db, &expected);
        let stats = db.stats().unwrap();
        // What names a big record in the log is dead from the beginning.
        let is_none_dead = stats.dead_bytes == 0 || stats.segments.big > 0;
        assert!((stats.fill_factor - 3.5).abs() < 1e-9 && is_none_dead, "{stats:?}");
        // It is a store like any other.
        db.put(b"more", b"of it").unwrap();
        assert_sound(&db);
        assert_eq!(names_in(dir.path()), ["a.spt"]);
    }
}

#[test]
fn without_a_function_a_store_keeps_its_own_under_a_new_seed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let seed_of = || u64::from_le_bytes(fs::read(&path).unwrap()[56..64].try_into().unwrap());
    let (db, expected) = filled(&path, &tiny_with_whole_log(), &mut Rng::new(seed()), 60);
    db.close().unwrap();
    assert_eq!(seed_of(), 7, "the offset of the seed in docs/format.md");
    let report = rehash(&path).unwrap();
    assert_eq!((&*report.old_hash, &*report.new_hash), ("rapidhash-v3", "rapidhash-v3"));
    let first = seed_of();
    rehash(&path).unwrap();
    assert!(first != 7 && seed_of() != first, "{first}");
    Rehash::of_file(&path).seed(12).hash(siphash()).run().unwrap();
    assert_eq!(seed_of(), 12);
    assert_content(&reopen(&path, &Options::new()), &expected);
}

/// The chains of chosen keys are gone, and the others are as long as chance makes them.
#[test]
fn a_keyed_function_takes_the_chains_of_chosen_keys_apart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let db = tiny_with_whole_log().open(&path).unwrap();
    for number in 0..3000_u64 {
        let chosen = [&0x8bb8_4b93_962e_acc9_u64.to_le_bytes()[..], &number.to_le_bytes()].concat();
        db.put(&chosen, b"").unwrap();
        db.put(&number.to_le_bytes(), b"").unwrap();
    }
    assert!(db.stats().unwrap().chains.longest >= 3000);
    db.close().unwrap();
    Rehash::of_file(&path).hash(siphash()).run().unwrap();
    let db = reopen(&path, &Options::new());
    let chains = db.stats().unwrap().chains;
    assert!(chains.longest < 30 && chains.beyond_chance_count == 0, "{}", chains.longest);
    assert_eq!(db.len(), 6000);
}

/// A store that a killed process left is opened by a warm restart, and one after a power loss is
/// replayed, before it is moved.
#[test]
fn a_store_that_was_not_closed_is_recovered_and_moved() {
    let dir = tempfile::tempdir().unwrap();
    let (path, left) = (dir.path().join("a.spt"), dir.path().join("left.spt"));
    let (db, expected) = filled(&path, &tiny_with_whole_log(), &mut Rng::new(seed()), 200);
    // A copy is another file, so only its log is trusted, as after a power loss.
    fs::copy(&path, &left).unwrap();
    drop(db);
    let report = Rehash::of_file(&left).hash(siphash()).run().unwrap();
    assert!(matches!(report.recovery, Recovery::Replayed { .. }), "{report:?}");
    assert_content(&reopen(&left, &Options::new()), &expected);
}

#[test]
fn a_store_that_any_handle_has_open_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    filled(&path, &tiny_with_whole_log(), &mut Rng::new(seed()), 20).0.close().unwrap();
    for options in [Options::new(), Options::new().read_only()] {
        let db = options.open(&path).unwrap();
        assert_error(rehash(&path), ErrorKind::Locked, "a.spt");
        drop(db);
    }
    let read_only = Options::new().read_only();
    let refused = Rehash::of_file(&path).opened_with(&read_only).run();
    assert_error(refused, ErrorKind::ReadOnly, "reading only");
    assert_eq!(names_in(dir.path()), ["a.spt"]);
    // While it is moved, no process opens the old store or the new one.
    let mut calls = 0;
    let watch = |_| {
        calls += 1;
        for options in [Options::new(), Options::new().read_only()] {
            assert_eq!(options.open(&path).unwrap_err().kind(), ErrorKind::Locked);
            let partial = dir.path().join("a.spt.rehash-in-progress");
            assert_eq!(options.open(partial).unwrap_err().kind(), ErrorKind::Locked);
        }
        assert_eq!(rehash(&path).unwrap_err().kind(), ErrorKind::Locked);
        ControlFlow::Continue(())
    };
    Rehash::of_file(&path).on_progress(watch).run().unwrap();
    assert!(calls >= 3, "{calls}");
}

#[test]
fn what_is_no_store_or_has_another_name_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| -> PathBuf { dir.path().join(name) };
    assert_error(rehash(at("none.spt")), ErrorKind::NotFound, "open");
    assert!(names_in(dir.path()).is_empty());
    fs::write(at("text"), b"no store at all").unwrap();
    assert_error(rehash(at("text")), ErrorKind::NotAStore, "text");
    assert_error(rehash(dir.path()), ErrorKind::NotAStore, "a directory");
    filled(&at("own.spt"), &tiny_with_whole_log().hash(bad_hash()), &mut Rng::new(1), 20)
        .0
        .close()
        .unwrap();
    let before = fs::read(at("own.spt")).unwrap();
    assert_error(rehash(at("own.spt")), ErrorKind::HashMismatch, "few-bits");
    assert!(fs::read(at("own.spt")).unwrap() == before);

    let (db, expected) = filled(&at("a.spt"), &tiny_with_whole_log(), &mut Rng::new(seed()), 40);
    db.close().unwrap();
    fs::hard_link(at("a.spt"), at("b.spt")).unwrap();
    let before = fs::read(at("a.spt")).unwrap();
    assert_error(rehash(at("a.spt")), ErrorKind::Unsupported, "2 names (hard links)");
    assert!(fs::read(at("a.spt")).unwrap() == before);
    assert_content(&reopen(&at("b.spt"), &Options::new()), &expected);
    // One that appears while the rehash runs.
    fs::remove_file(at("b.spt")).unwrap();
    let link = |_| {
        let _ = fs::hard_link(at("a.spt"), at("b.spt"));
        ControlFlow::Continue(())
    };
    let refused = Rehash::of_file(at("a.spt")).on_progress(link).run();
    assert_error(refused, ErrorKind::Unsupported, "2 names (hard links)");
    // Another store that took the name meanwhile is not replaced.
    fs::remove_file(at("b.spt")).unwrap();
    let replace = |_| {
        if !at("moved.spt").exists() {
            fs::rename(at("a.spt"), at("moved.spt")).unwrap();
            filled(&at("a.spt"), &tiny_with_whole_log(), &mut Rng::new(3), 1).0.close().unwrap();
        }
        ControlFlow::Continue(())
    };
    let refused = Rehash::of_file(at("a.spt")).on_progress(replace).run();
    assert_error(refused, ErrorKind::Unsupported, "another program has replaced it");
    assert_content(&reopen(&at("moved.spt"), &Options::new()), &expected);
    assert_eq!(names_in(dir.path()), ["a.spt", "moved.spt", "own.spt", "text"]);
}

#[test]
fn a_symbolic_link_stays_and_leads_to_the_new_store() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("data")).unwrap();
    let (link, path) = (dir.path().join("link.spt"), dir.path().join("data/a.spt"));
    let (db, expected) = filled(&path, &tiny_with_whole_log(), &mut Rng::new(seed()), 40);
    db.close().unwrap();
    std::os::unix::fs::symlink("data/a.spt", &link).unwrap();
    Rehash::of_file(&link).hash(siphash()).run().unwrap();
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("data/a.spt"));
    assert_eq!(hash_name(&path), "siphash-1-3");
    assert_content(&reopen(&link, &Options::new()), &expected);
    assert_eq!(names_in(dir.path()), ["data", "link.spt"]);
    assert_eq!(names_in(&dir.path().join("data")), ["a.spt"]);
}

/// The new file gets the old one's permissions, whatever the umask is, and is private until then. A
/// leftover under the temporary name is not written to, so a process that has it open cannot read
/// along.
#[test]
fn the_new_file_has_the_permissions_and_attributes_of_the_old_one() {
    let dir = tempfile::tempdir().unwrap();
    let (path, partial) = (dir.path().join("a.spt"), dir.path().join("a.spt.rehash-in-progress"));
    filled(&path, &tiny_with_whole_log(), &mut Rng::new(seed()), 40).0.close().unwrap();
    let attributes = rustix::fs::XattrFlags::empty();
    let has_attributes =
        rustix::fs::setxattr(&path, "user.splitpoint", b"mine", attributes).is_ok();
    for mode in [0o600, 0o640, 0o666, 0o604, 0o664] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        fs::write(&partial, b"left behind").unwrap();
        fs::set_permissions(&partial, Permissions::from_mode(0o666)).unwrap();
        let mut left = File::open(&partial).unwrap();
        let before = fs::metadata(&path).unwrap();
        let is_private = |_| {
            assert_eq!(fs::metadata(&partial).unwrap().mode() & 0o777, 0o600);
            ControlFlow::Continue(())
        };
        Rehash::of_file(&path).on_progress(is_private).run().unwrap();
        let after = fs::metadata(&path).unwrap();
        assert_eq!(after.mode() & 0o7777, mode);
        assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
        let mut text = String::new();
        left.read_to_string(&mut text).unwrap();
        assert_eq!(text, "left behind");
        if has_attributes {
            let mut value = [0; 9];
            let bytes = rustix::fs::getxattr(&path, "user.splitpoint", &mut value[..]).unwrap();
            assert_eq!(&value[..bytes], b"mine");
        }
    }
    assert_eq!(names_in(dir.path()), ["a.spt"]);
}

/// Only root may give a file away; without that right the test says so and ends.
#[test]
fn the_new_file_belongs_to_the_owner_of_the_old_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    filled(&path, &tiny_with_whole_log(), &mut Rng::new(seed()), 40).0.close().unwrap();
    if let Err(error) = std::os::unix::fs::chown(&path, Some(1234), Some(4321)) {
        let _ = writeln!(std::io::stderr(), "skipped: files cannot be given away: {error}");
        return;
    }
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    rehash(&path).unwrap();
    let after = fs::metadata(&path).unwrap();
    assert_eq!((after.uid(), after.gid(), after.mode() & 0o777), (1234, 4321, 0o640));
}

#[test]
fn a_rehash_that_is_given_up_leaves_the_store_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    filled(&path, &tiny_with_whole_log(), &mut Rng::new(seed()), 2500).0.close().unwrap();
    let before = fs::read(&path).unwrap();
    let partial = dir.path().join("a.spt.rehash-in-progress");
    for limit in 0..1000 {
        let (mut calls, mut last) = (0, None);
        let stop = |progress: splitpoint::rehash::RehashProgress| {
            assert!(partial.exists());
            last = Some(progress.stage);
            calls += 1;
            if calls > limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let done = Rehash::of_file(&path).hash(siphash()).on_progress(stop).run();
        assert_eq!(names_in(dir.path()), ["a.spt"]);
        if done.is_ok() {
            assert!(limit > 3 && last == Some(RehashStage::Sync), "{limit} calls");
            assert_eq!(hash_name(&path), "siphash-1-3");
            return;
        }
        assert_eq!(done.unwrap_err().kind(), ErrorKind::Io);
        assert!(fs::read(&path).unwrap() == before, "the store has changed");
    }
    panic!("the rehash never ended");
}

/// Returns the readable contents of a store, or the reason why there are none.
fn look(path: &Path) -> Result<Content, ErrorKind> {
    let db = Options::new().read_only().open(path).map_err(|error| error.kind())?;
    try_content(&db).map_err(|error| error.kind())
}

/// Flips bits everywhere: a damaged store is refused and stays as it is, or no record was hit and
/// all are in the new store.
#[test]
fn a_damaged_store_is_refused_or_moved_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let mut rng = Rng::new(seed());
    let (db, expected) = filled(&path, &tiny_with_whole_log(), &mut rng, 120);
    db.close().unwrap();
    let whole = fs::read(&path).unwrap();
    let used: Vec<usize> = (0..whole.len()).filter(|&at| whole[at] != 0).collect();
    let mut refused_count = 0;
    for _ in 0..rounds(150, 5000) {
        let mut bytes = whole.clone();
        bytes[used[rng.index(used.len())]] ^= 1 << rng.below(8);
        fs::write(&path, &bytes).unwrap();
        let before = look(&path);
        match rehash(&path) {
            Ok(_) => assert_content(&reopen(&path, &Options::new()), &expected),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                // An open may have rebuilt the index; the readable contents are the same.
                assert!(look(&path) == before, "the store has changed: {error}");
                refused_count += 1;
            }
        }
        assert_eq!(names_in(dir.path()), ["a.spt"]);
    }
    assert!(refused_count > 50, "{refused_count}");
}

/// Threads open the store whenever it is free, and put, while another thread rehashes it. Each
/// change that returned is there in the end; a change to a file that has lost its name would not
/// be.
#[test]
fn no_change_goes_into_a_store_that_was_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    tiny_with_whole_log().open(&path).unwrap().close().unwrap();
    let (is_done, made) = (AtomicBool::new(false), AtomicU64::new(0));
    // Limit of the threads: without one they might never leave the lock to a rehash.
    let allowed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_done.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                    if made.load(Ordering::SeqCst) >= allowed.load(Ordering::SeqCst) {
                        continue;
                    }
                    match Options::new().create(Create::Never).open(&path) {
                        Ok(db) => {
                            let number = made.fetch_add(1, Ordering::SeqCst);
                            db.put(&number.to_le_bytes(), b"").unwrap();
                            db.close().unwrap();
                        }
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Locked, "{error}"),
                    }
                }
            });
        }
        for _ in 0..rounds(30, 5000) {
            allowed.fetch_add(20, Ordering::SeqCst);
            while let Err(error) = rehash(&path) {
                assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
                std::thread::yield_now();
            }
        }
        is_done.store(true, Ordering::SeqCst);
    });
    let db = reopen(&path, &Options::new());
    let missing: Vec<u64> = (0..made.load(Ordering::SeqCst))
        .filter(|number| !db.contains(&number.to_le_bytes()).unwrap())
        .collect();
    assert!(missing.is_empty(), "{} changes are lost: {missing:?}", missing.len());
    assert_eq!(names_in(dir.path()), ["a.spt"]);
}

/// Not a test by itself: the process that rehashes a store back and forth between two functions
/// until it is killed. It prints a byte before each step; before the first of its last rehash it
/// prints another, and waits.
#[test]
fn other_process_rehashes_until_it_is_killed() {
    let Some(path) = std::env::var_os(CHILD_ENV) else { return };
    end_with_parent();
    let last = std::env::var(LAST_ENV).expect("a number").parse();
    let last: u64 = last.expect("a number");
    let mut report = std::io::stderr().lock();
    for number in 0..=last {
        let hash = if number % 2 == 0 { siphash() } else { HashFunction::xxh3_64() };
        let tell = |_| {
            report.write_all(if number == last { b"!" } else { b"." }).unwrap();
            if number == last {
                loop {
                    std::thread::park();
                }
            }
            ControlFlow::Continue(())
        };
        Rehash::of_file(&path).hash(hash).on_progress(tell).run().unwrap();
    }
}

fn start(path: &Path, last: u64) -> (Child, ChildStderr) {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "rehash::other_process_rehashes_until_it_is_killed", "--nocapture"])
        .env(CHILD_ENV, path)
        .env(LAST_ENV, last.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("this program runs");
    let pipe = child.stderr.take().expect("a pipe");
    (child, pipe)
}

/// Kills the process after each number of steps, and some time later, or in the middle of its first,
/// second or third rehash. The file is the old store or the new one, with every record, and the
/// leftover file stops no one.
#[test]
fn a_killed_rehash_leaves_the_old_store_or_the_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let mut rng = Rng::new(seed());
    let (db, expected) = filled(&path, &tiny_with_whole_log(), &mut rng, 1200);
    db.close().unwrap();
    for round in 0..rounds(16, 2000) {
        let last = if round < 3 { round } else { u64::MAX };
        let (mut child, mut pipe) = start(&path, last);
        let step_count = 1 + rng.index(20);
        let mut steps: Vec<u8> = Vec::new();
        let is_enough = |steps: &[u8]| match last {
            u64::MAX => steps.len() == step_count,
            _ => steps.contains(&b'!'),
        };
        while !is_enough(&steps) {
            let mut step = [0];
            pipe.read_exact(&mut step).expect("the process reports");
            steps.extend(step);
        }
        assert!(steps.iter().all(|step| b".!".contains(step)), "{}", steps.escape_ascii());
        // Anywhere in the step, and in the silent ones: the sync and the rename.
        for _ in 0..rng.below(20_000) {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let names = names_in(dir.path());
        assert!(
            names.len() == 2 || last == u64::MAX,
            "{names:?}: killed in the middle of its work"
        );
        assert!(names.iter().all(|name| name == "a.spt" || name == "a.spt.rehash-in-progress"));
        let db = reopen(&path, &Options::new());
        assert_eq!(content(&db), expected, "round {round}");
        assert_sound(&db);
        let name = db.stats().unwrap().hash_name;
        assert!(name == "siphash-1-3" || last != 1, "the first of two is complete: {name}");
    }
    rehash(&path).unwrap();
    assert_eq!(names_in(dir.path()), ["a.spt"]);
    assert_content(&reopen(&path, &Options::new()), &expected);
}
