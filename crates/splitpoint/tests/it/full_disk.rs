//! Full disks, and limits on the size of a file: they cause errors, and no loss.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use splitpoint::{Create, Db, Durability, Error, ErrorKind, Options, Recovery};

use crate::small_disk::{FileSystem, SmallDisk};
use crate::support::{Content, assert_content, assert_sound, content, tiny};

const ENOSPC: i32 = 28;
const EFBIG: i32 = 27;
const CHILD_ENV: &str = "SPLITPOINT_TEST_LIMITED";

/// Checks that an error names the file, the action and the system's reason.
#[track_caller]
fn assert_refused(error: &Error, path: &Path, errno: i32) {
    let Error::Io { source, .. } = error else { panic!("{error:?}") };
    assert_eq!(source.raw_os_error(), Some(errno), "{error}: {source}");
    let message = error.to_string();
    assert!(message.starts_with("cannot "), "{message}");
    assert!(message.contains(&*path.to_string_lossy()), "{message}");
}

/// A store, its expected contents, and its file.
struct Filled<'a> {
    db: Db,
    expected: Content,
    path: &'a Path,
    value_bytes: usize,
    errno: i32,
}

impl Filled<'_> {
    /// Stores a value, and notes it if the call succeeds.
    fn put(&mut self, number: u32, durability: Durability) -> splitpoint::Result<()> {
        let key = number.to_le_bytes();
        let value = vec![number as u8; self.value_bytes];
        self.db.put_with(&key, &value, durability)?;
        self.expected.insert(key.to_vec(), value);
        Ok(())
    }

    fn level(number: u32) -> Durability {
        match number % 16 {
            0 => Durability::Sync,
            1..8 => Durability::Async,
            _ => Durability::Buffered,
        }
    }

    /// Stores new keys until one is refused, and returns its number.
    fn fill(&mut self, from: u32) -> u32 {
        self.fill_at(from, Self::level)
    }

    fn fill_at(&mut self, from: u32, level: impl Fn(u32) -> Durability) -> u32 {
        for number in from.. {
            if let Err(error) = self.put(number, level(number)) {
                assert_refused(&error, self.path, self.errno);
                return number;
            }
        }
        unreachable!("no disk is so large")
    }

    /// Deletes half of the keys, none of which is refused, and stores others until a put is refused;
    /// returns its number. Then deletes still go on.
    fn exhaust(&mut self, number: u32) -> u32 {
        let keys: Vec<Vec<u8>> = self.expected.keys().cloned().collect();
        for key in &keys[..keys.len() / 2] {
            assert!(self.db.delete(key).unwrap());
            self.expected.remove(key);
        }
        let mut number = self.fill(number);
        let durabilities = [Durability::Buffered, Durability::Async, Durability::Sync];
        for durability in durabilities {
            number = self.fill_at(number, |_| durability);
        }
        for (durability, key) in durabilities.into_iter().zip(keys.iter().rev()) {
            assert!(self.db.delete_with(key, durability).unwrap());
            self.expected.remove(key);
        }
        number
    }
}

/// Fills a small disk until a put fails, deletes half, and fills it again. Errors name the reason; reads,
/// deletes, syncs and closing succeed. On the full disk the store opens and reads,
/// and every change that returned is there, also when read from the disk itself. With room
/// everything succeeds.
fn fill_a_disk(file_system: FileSystem, kib: u64, segment_bytes: u64, value_bytes: usize) {
    let Some(disk) = SmallDisk::mount(file_system, kib) else { return };
    let path = disk.path().join("full.spt");
    let ballast = disk.write_ballast(512 << 10);
    let options = Options::new().segment_bytes_min(segment_bytes).fill_factor(1.0);
    let db = options.open(&path).unwrap();
    let expected = Content::new();
    let mut filled = Filled { db, expected, path: &path, value_bytes, errno: ENOSPC };
    let number = filled.fill(0);
    assert_content(&filled.db, &filled.expected);
    filled.db.sync().unwrap();
    let first = number;
    let number = filled.exhaust(number);
    println!("{file_system:?}: {first} puts of {value_bytes} bytes, then up to {number}");
    filled.db.sync().unwrap();
    assert_content(&filled.db, &filled.expected);
    let Filled { db, expected, .. } = filled;
    db.close().unwrap();

    disk.reattach();
    let db = options.clone().read_only().open(&path).unwrap();
    assert_content(&db, &expected);
    drop(db);
    let db = options.open(&path).unwrap();
    assert_eq!(db.recovery(), Recovery::Clean);
    assert_content(&db, &expected);
    let mut filled = Filled { db, expected, path: &path, value_bytes, errno: ENOSPC };
    let number = filled.fill(number);

    fs::remove_file(&ballast).unwrap();
    for number in number..number + 12 {
        filled.put(number, Filled::level(number)).unwrap();
    }
    let key = filled.expected.keys().next().expect("there are many").clone();
    assert!(filled.db.delete(&key).unwrap());
    filled.expected.remove(&key);
    assert_content(&filled.db, &filled.expected);
    let Filled { db, expected, .. } = filled;
    db.close().unwrap();
    disk.reattach();
    assert_content(&options.open(&path).unwrap(), &expected);
}

#[test]
fn a_full_disk_in_memory_is_an_error_that_loses_nothing() {
    for (segment_bytes, value_bytes) in [(4096, 100), (64 << 10, 3000), (4096, 20_000)] {
        fill_a_disk(FileSystem::Tmpfs, 3 << 10, segment_bytes, value_bytes);
    }
}

#[test]
fn a_full_disk_with_a_journal_is_an_error_that_loses_nothing() {
    for (segment_bytes, value_bytes) in [(4096, 100), (64 << 10, 3000), (4096, 20_000)] {
        fill_a_disk(FileSystem::Ext4, 8 << 10, segment_bytes, value_bytes);
    }
}

/// What a crash left on a full disk: reading needs no room, and a refused recovery leaves the file
/// to the next one, which has room.
#[test]
fn a_store_that_needs_recovery_on_a_full_disk_is_read_and_opens_once_there_is_room() {
    for file_system in FileSystem::SMALL {
        let Some(disk) = SmallDisk::mount(file_system, 8 << 10) else { return };
        let (path, left) = (disk.path().join("full.spt"), disk.path().join("left.spt"));
        let options = tiny();
        let db = options.open(&path).unwrap();
        for number in 0..3000_u32 {
            db.put(&number.to_le_bytes(), &[7; 100]).unwrap();
        }
        let expected = content(&db);
        // A copy is replayed, as the file is after a power loss.
        fs::copy(&path, &left).unwrap();
        db.close().unwrap();
        let ballast = disk.write_ballast(16 << 20);
        let existing = options.clone().create(Create::Never);
        let mut refused_count = 0;
        for _ in 0..3 {
            let db = options.clone().read_only().open(&left).unwrap();
            assert!(matches!(db.recovery(), Recovery::Replayed { .. }), "{:?}", db.recovery());
            assert_content(&db, &expected);
            drop(db);
            match existing.clone().rebuild_index().open(&left) {
                Ok(db) => {
                    // In the room that the original held back.
                    assert_content(&db, &expected);
                    break;
                }
                Err(error) => {
                    assert_refused(&error, &left, ENOSPC);
                    refused_count += 1;
                }
            }
        }
        println!("{file_system:?}: {refused_count} of 3 recoveries had no room");
        fs::remove_file(&ballast).unwrap();
        let db = existing.open(&left).unwrap();
        assert_content(&db, &expected);
        db.put(b"more", b"room").unwrap();
        db.close().unwrap();
        disk.reattach();
        let db = existing.open(&left).unwrap();
        assert_eq!(db.recovery(), Recovery::Clean);
        assert_eq!(db.len(), 3001);
        assert_sound(&db);
    }
}

#[test]
fn making_a_store_on_a_full_disk_is_an_error_and_works_once_there_is_room() {
    let Some(disk) = SmallDisk::mount(FileSystem::Tmpfs, 256) else { return };
    let path = disk.path().join("new.spt");
    let ballast = disk.write_ballast(244 << 10);
    assert_refused(&Db::open(&path).unwrap_err(), &path, ENOSPC);
    assert!(!path.exists(), "what could not be made leaves nothing behind");
    fs::remove_file(&ballast).unwrap();
    let error = Options::new().expected_records(1 << 30).open(&path).unwrap_err();
    assert_refused(&error, &path, ENOSPC);
    let db = Db::open(&path).unwrap();
    db.put(b"key", b"value").unwrap();
    db.close().unwrap();
    assert!(Db::open(&path).unwrap().contains(b"key").unwrap());
}

/// Not a test by itself: the process that the test below limits.
#[test]
fn limited_process_fills_its_file() {
    let Some(path) = std::env::var_os(CHILD_ENV) else { return };
    let path = Path::new(&path);
    let unlimited = getrlimit(Resource::Fsize);
    let limit_to = |bytes: Option<u64>| {
        setrlimit(Resource::Fsize, Rlimit { current: bytes, maximum: unlimited.maximum }).unwrap();
    };
    let options = tiny();
    limit_to(Some(4096));
    assert_refused(&options.open(path).unwrap_err(), path, EFBIG);
    assert!(!path.exists(), "what could not be made leaves nothing behind");
    for value_bytes in [100, 3000, 70_000] {
        limit_to(Some(1 << 20));
        let db = options.open(path).unwrap();
        let expected = Content::new();
        let mut filled = Filled { db, expected, path, value_bytes, errno: EFBIG };
        let number = filled.fill(0);
        let number = filled.exhaust(number);
        assert_content(&filled.db, &filled.expected);
        assert!(fs::metadata(path).unwrap().len() <= 1 << 20);
        limit_to(Some(2 << 20));
        let number = filled.fill(number);
        // The limit is now below the size of the file; a change that needs no system call still
        // succeeds.
        limit_to(Some(1 << 16));
        let error = filled.put(number, Durability::Sync).unwrap_err();
        assert_refused(&error, path, EFBIG);
        filled.db.sync().unwrap();
        assert_content(&filled.db, &filled.expected);
        let Filled { db, expected, .. } = filled;
        db.close().unwrap();
        let error = options.clone().rebuild_index().open(path).unwrap_err();
        assert_refused(&error, path, EFBIG);
        limit_to(None);
        let db = options.open(path).unwrap();
        assert_content(&db, &expected);
        db.put(b"more", b"room").unwrap();
        db.close().unwrap();
        fs::remove_file(path).unwrap();
    }
    spill_to_the_limit(path, limit_to);
    // Shows the test that this process has run.
    fs::write(path.with_extension("done"), "").unwrap();
}

/// What a transaction keeps in files is refused as well.
fn spill_to_the_limit(path: &Path, limit_to: impl Fn(Option<u64>)) {
    let db = tiny().transaction_bytes(0).open(path).unwrap();
    limit_to(Some(1 << 20));
    let mut tx = db.begin().unwrap();
    let error = (0..100_u32).find_map(|i| tx.put(i.to_le_bytes(), vec![5; 60_000]).err()).unwrap();
    let assert_says_where = |error: &Error| {
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        let expected = format!(
            "cannot write the changes of a large transaction to an unnamed file in `{}`: File too large",
            path.parent().unwrap().display()
        );
        assert!(error.to_string().starts_with(&expected), "{error}");
    };
    assert_says_where(&error);
    // Already the files cannot be made.
    limit_to(Some(1 << 12));
    assert_says_where(&db.begin().unwrap().put("key", "value").unwrap_err());
    limit_to(Some(1 << 20));
    drop(tx);
    limit_to(None);
    db.put(b"more", b"room").unwrap();
    db.close().unwrap();
}

/// A limit on file sizes must cause an error, and not the signal that the system sends to a process
/// which exceeds it.
#[test]
fn a_file_size_limit_is_an_error_and_no_signal() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("limited.spt");
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "full_disk::limited_process_fills_its_file", "--nocapture"])
        .env(CHILD_ENV, &path)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    assert!(path.with_extension("done").exists(), "{said}");
}
