//! Stores in a file that the program has opened, the mark of gdbm, and application data.

use std::fs::{self, File};
use std::path::Path;

use splitpoint::{Db, ErrorKind, Options, Result, SharedFile, backup, rehash, repair};

fn open_file(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

#[test]
fn a_shared_file_leaves_flock_to_the_program_and_keeps_other_handles_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let other = open_file(&path);
    let file = SharedFile::for_writer(open_file(&path), &path).unwrap();
    let db = Options::new().open_shared(&file).unwrap();
    db.put("key", "value").unwrap();
    // Another description would wait for ever if the store held `flock` on its own.
    other.try_lock().unwrap();
    other.unlock().unwrap();
    file.file().try_lock().unwrap();
    file.file().unlock().unwrap();

    assert!(is_locked(SharedFile::for_writer(open_file(&path), &path)));
    assert!(is_locked(SharedFile::for_reader(open_file(&path), &path)));
    db.close().unwrap();
    let again = Options::new().open_shared(&file).unwrap();
    assert!(again.contains("key").unwrap());
    assert!(is_locked(SharedFile::for_writer(open_file(&path), &path)));
    again.close().unwrap();
    // The descriptors above were closed, and the lock of the process was taken anew: this native
    // handle, the last to try, closes another.
    assert!(is_locked(Db::open(&path)));
    drop(file);

    let native = Db::open(&path).unwrap();
    assert!(is_locked(SharedFile::for_writer(open_file(&path), &path)));
    native.close().unwrap();
    let files = [(); 2].map(|()| SharedFile::for_reader(open_file(&path), &path).unwrap());
    for file in &files {
        let db = Options::new().read_only().open_shared(file).unwrap();
        assert!(db.contains("key").unwrap());
        assert_eq!(Options::new().open_shared(file).unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert!(is_locked(SharedFile::for_writer(open_file(&path), &path)));
}

fn is_locked<T: std::fmt::Debug>(opened: Result<T>) -> bool {
    opened.unwrap_err().kind() == ErrorKind::Locked
}

/// Makes a marked store with a key, and returns how a copy of it begins that `copy` makes.
fn assert_kept(copy: impl FnOnce(&Path, &Path)) {
    let dir = tempfile::tempdir().unwrap();
    let [path, target] = ["a", "b"].map(|name| dir.path().join(name));
    let options = Options::new().gdbm_mark(true).application_data(*b"0123456789abcdef");
    let db = options.open(&path).unwrap();
    db.put("key", "value").unwrap();
    db.set_application_data(*b"fedcba9876543210").unwrap();
    db.close().unwrap();
    assert!(fs::read(&path).unwrap().starts_with(b"\xcf\x9a\x57\x13SPLT"));
    copy(&path, &target);
    let found = if target.exists() { target } else { path };
    assert!(fs::read(&found).unwrap().starts_with(b"\xcf\x9a\x57\x13SPLT"));
    let db = Db::open(&found).unwrap();
    assert_eq!(&db.application_data().unwrap(), b"fedcba9876543210");
    assert!(db.contains("key").unwrap());
    assert!(db.check().unwrap().is_clean());
}

#[test]
fn backup_rehash_and_repair_keep_the_mark_and_the_application_data() {
    assert_kept(|_, _| ());
    assert_kept(|path, target| assert!(backup::backup(path, target).is_ok()));
    assert_kept(|path, _| assert!(rehash::rehash(path).is_ok()));
    assert_kept(|path, target| assert!(repair::repair(path, target).is_ok()));
}

#[test]
fn a_marked_store_has_its_mark_before_its_first_change() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let db = Options::new().gdbm_mark(true).open(&path).unwrap();
    assert!(fs::read(&path).unwrap().starts_with(b"\xcf\x9a\x57\x13SPLT"));
    db.close().unwrap();
    assert!(fs::read(&path).unwrap().starts_with(b"\xcf\x9a\x57\x13SPLT"));
}

#[test]
fn application_data_survives_a_killed_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let db = Db::open(&path).unwrap();
    db.set_application_data(*b"0123456789abcdef").unwrap();
    // What a process that is killed now would leave, on another machine.
    let copy = dir.path().join("b");
    fs::copy(&path, &copy).unwrap();
    let found = Db::open(&copy).unwrap();
    assert_eq!(&found.application_data().unwrap(), b"0123456789abcdef");
}
